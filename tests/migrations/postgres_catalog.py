"""What the catalogs of PostgreSQL know of a store, as facts that can be compared between two databases."""

from __future__ import annotations

from typing import Any

from tests.postgres import connected

_IN_SCHEMA = "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema()"

FACTS = {
    "relations": f"SELECT c.relname, c.relkind::text, c.relpersistence::text FROM pg_class c {_IN_SCHEMA}",
    # Of tables in any order: upgrades add columns at the end.
    "columns": f"""
        SELECT c.relname, CASE WHEN c.relkind = 'v' THEN a.attnum END, a.attname,
               format_type(a.atttypid, a.atttypmod), l.collname, a.attnotnull,
               a.attidentity::text, a.attgenerated::text, pg_get_expr(d.adbin, d.adrelid)
          FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
          LEFT JOIN pg_collation l ON l.oid = a.attcollation
          LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
          {_IN_SCHEMA} AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'v')""",
    "constraints": f"""
        SELECT c.relname, k.conname, k.contype::text, pg_get_constraintdef(k.oid), k.condeferrable, k.convalidated
          FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid {_IN_SCHEMA}""",
    "indexes": f"""
        SELECT c.relname, pg_get_indexdef(i.indexrelid), i.indisprimary, i.indisunique, i.indisvalid,
               pg_get_expr(i.indpred, i.indrelid)
          FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid {_IN_SCHEMA}""",
    "views": f"SELECT c.relname, pg_get_viewdef(c.oid) FROM pg_class c {_IN_SCHEMA} AND c.relkind = 'v'",
    "others": """
        SELECT 'sequences', count(*) FROM pg_sequences WHERE schemaname = current_schema()
        UNION ALL SELECT 'triggers', count(*) FROM pg_trigger WHERE NOT tgisinternal""",
}

STAMPS = {
    "flue_store": "SELECT name, value FROM flue_store",
    "alembic_version": "SELECT version_num FROM alembic_version",
}


async def _read(url: str, statements: dict[str, str], schema: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of each statement by its name, all read by one connection: to connect takes longest."""
    async with connected(url) as connection:
        await connection.execute(f'SET search_path = "{schema}"')
        return {name: [tuple(row) for row in await connection.fetch(sql)] for name, sql in statements.items()}


async def query(url: str, sql: str, schema: str = "public") -> list[tuple[Any, ...]]:
    """Return the rows of a statement, or of the last of several without any."""
    return (await _read(url, {"": sql}, schema))[""]


async def run_script(url: str, script: str, schema: str = "public") -> None:
    """Run statements as they are, as `psql` does."""
    async with connected(url) as connection:
        await connection.execute(f'SET search_path = "{schema}"')
        await connection.execute(script)


async def catalog(url: str, schema: str = "public") -> dict[str, list[tuple[Any, ...]]]:
    """Return everything in a schema, its own name left out: tables, columns, collations, keys, indexes, views."""
    return _compared(await _read(url, FACTS, schema), schema)


async def contents(url: str, schema: str = "public") -> dict[str, list[tuple[Any, ...]]]:
    """Return the catalog, and the stamps."""
    return _compared(await _read(url, {**FACTS, **STAMPS}, schema), schema)


def _compared(facts: dict[str, list[tuple[Any, ...]]], schema: str) -> dict[str, list[tuple[Any, ...]]]:
    return {name: sorted((_without(schema, row) for row in rows), key=repr) for name, rows in facts.items()}


def _without(schema: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(fact.replace(f" {schema}.", " ") if isinstance(fact, str) else fact for fact in row)
