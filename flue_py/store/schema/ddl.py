"""The SQL that makes a store, in either dialect: run by `migrate` and `postgres_format`, printed for review.

A new database is made from the schema; an older one is upgraded by alembic. Both ways lead to the same tables, which
the tests compare by what the catalogs say.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from flue_py.core.frozen import frozen
from flue_py.core.usage import PAID_COLUMNS
from flue_py.errors import CorruptStore, FormatTooNew, InvalidArgument
from flue_py.lazy import lazy_module
from flue_py.store.schema.ledger_sums import all_tokens
from flue_py.store.schema.stamp import APPLICATION_ID, FORMAT_VERSION

if TYPE_CHECKING:
    import sqlalchemy
    from alembic import command as alembic_command
    from alembic import config as alembic_settings
    from alembic import util as alembic_util
    from sqlalchemy import Connection

    from flue_py.store.schema import tables as schema
else:
    # alembic costs half a second, and is needed to migrate only; the tables are needed to make a database only.
    alembic_command = lazy_module("alembic.command")
    alembic_settings = lazy_module("alembic.config")
    alembic_util = lazy_module("alembic.util")
    sqlalchemy = lazy_module("sqlalchemy")
    schema = lazy_module("flue_py.store.schema.tables")

Dialect: TypeAlias = Literal["sqlite", "postgresql"]

REVISIONS = {1: "0001", 2: "0002", 3: "0004", 4: "0005"}
"""The alembic revision at which each format is complete. Early stores of format 3 are at 0003."""

HEAD = REVISIONS[FORMAT_VERSION]
"""The alembic revision of this format."""

UNFINISHED = "0003"
"""The alembic revision that the one which finishes format 3 follows."""

_IS_FINISHED: dict[Dialect, str] = {
    "sqlite": (
        "SELECT COUNT(*) = 6 FROM sqlite_master"
        " WHERE name IN ('attachments', 'uq_ledger_call_id', 'ix_sessions_scope_active_slot', 'ix_entries_setting')"
        " OR (name = 'entries' AND sql LIKE '%parent_id%' AND sql LIKE '%uq_entries_id_tree_id%')"
        " OR (name = 'task_links' AND sql LIKE '%summary%')"
    ),
    "postgresql": (
        "SELECT (SELECT COUNT(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = current_schema() AND c.relname IN ('attachments', 'uq_ledger_call_id',"
        " 'ix_sessions_scope_active_slot', 'ix_entries_setting', 'uq_entries_id_tree_id'))"
        " + (SELECT COUNT(*) FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema()"
        " AND (c.relname, a.attname) IN (('entries', 'parent_id'), ('task_links', 'summary'))) = 7"
    ),
}
"""Tells whether a store has all that finishes format 3: early builds made stores with a part of it, and stamped them
alike."""

STATEMENT_END = ";\n\n"
"""What stands behind each statement of a printed schema, and nowhere within one."""

RunAlembic: TypeAlias = "Callable[[Connection, str | None], None]"
"""Runs alembic on a connection with an open transaction. The schema is where its own table is, if there are schemas."""

LOCK_KEY = int.from_bytes(b"flue_py")
"""What PostgreSQL's advisory locks on making or upgrading a store count from: the name, read as a number."""

LOCK_STATEMENT = f"""\
SELECT pg_advisory_xact_lock({LOCK_KEY} + CAST(oid AS BIGINT))
  FROM pg_catalog.pg_namespace WHERE nspname = current_schema()"""
"""Waits until nobody else makes or upgrades a store in the same schema; held until the transaction ends."""


@frozen
class Migrated:
    """What bringing a database to the current format did; ``found`` is the format it had, None where it was empty."""

    location: str
    found: int | None
    backup: Path | None = None
    format: int = FORMAT_VERSION


def migrations_directory() -> Path:
    """Return where the migrations are: inside an installed wheel, else beside the package in a checkout."""
    package = Path(__file__).resolve().parents[2]
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def format_at(revision: str) -> int:
    """Return the format of a store at an alembic revision."""
    return next((found for found, last in REVISIONS.items() if revision <= last), FORMAT_VERSION)


def alembic_config(
    connection: Connection | None = None, url: str | None = None, schema: str | None = None
) -> alembic_settings.Config:
    """Return alembic's configuration for this project's migrations; no ini file is involved.

    ``connection`` is what to run on, ``schema`` where alembic's own table is on it. Offline there is only a ``url``,
    of which nothing but the dialect counts.
    """
    config = alembic_settings.Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    if url is not None:
        config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["schema"] = schema
    return config


# -- making a store ---------------------------------------------------------------------------------------------------


def stamp_statements(dialect: Dialect = "sqlite", made: int = FORMAT_VERSION) -> list[str]:
    """Return the SQL that stamps an empty database. PostgreSQL has no application id, and draws keys at random."""
    if dialect == "postgresql":
        return [
            """\
CREATE TABLE flue_store (
    name TEXT COLLATE "C" NOT NULL, value BIGINT NOT NULL, CONSTRAINT pk_flue_store PRIMARY KEY (name)
)""",
            f"INSERT INTO flue_store (name, value) VALUES ('format', {made}), ('epoch', 0)",
        ]
    return [
        f"PRAGMA application_id = {APPLICATION_ID}",
        """\
CREATE TABLE flue_store (
    name TEXT NOT NULL, value BIGINT NOT NULL, CONSTRAINT pk_flue_store PRIMARY KEY (name)
) WITHOUT ROWID""",
        f"INSERT INTO flue_store (name, value) VALUES ('format', {made}), ('epoch', 0), ('next_key', 1)",
    ]


def schema_statements(dialect: Dialect = "sqlite") -> list[str]:
    """Return the SQL that makes all other tables of the current format, stamped for alembic.

    It is read from the file that `printing` makes of the tables, so that a new store needs no SQLAlchemy.
    """
    return list(_printed_schema(dialect))


@cache
def _printed_schema(dialect: Dialect) -> tuple[str, ...]:
    text = printed_path(dialect).read_text(encoding="utf-8")
    return tuple(text.removesuffix(STATEMENT_END).split(STATEMENT_END))


def printed_path(dialect: Dialect) -> Path:
    """Return where the SQL of a dialect is."""
    return Path(__file__).with_name(f"{dialect}.sql")


def checked_stamp(stamp: object, location: str) -> int:
    """Return the format of a stamp. Raises `CorruptStore` if it is not a number, `FormatTooNew`."""
    if not isinstance(stamp, int):
        raise CorruptStore(f"{location} has the format stamp {stamp!r}, which is not a number; restore a backup")
    if stamp > FORMAT_VERSION:
        raise FormatTooNew(
            f"{location} has format {stamp}, this flue_py reads up to {FORMAT_VERSION}; upgrade flue_py. "
            "Nothing was read or written"
        )
    return stamp


def relation_names() -> frozenset[str]:
    """Return the names of the tables, indexes and views that a store brings with it."""
    tables = schema.metadata.tables.values()
    indexes = [str(index.name) for table in tables for index in table.indexes]
    return frozenset([*schema.metadata.tables, *indexes, "history", "alembic_version"])


# -- upgrading one ----------------------------------------------------------------------------------------------------


def take_back_unfinished(connection: Connection, schema: str | None) -> None:
    """Let alembic finish format 3 again where an early build ran a part of that; it leaves alone what is there.

    A store of a later format was finished on its way, so what it lacks now was taken from it since.
    """
    if not sqlalchemy.inspect(connection).has_table("alembic_version", schema=schema):
        return
    dialect: Dialect = "sqlite" if connection.dialect.name == "sqlite" else "postgresql"
    if connection.exec_driver_sql(_IS_FINISHED[dialect]).scalar():
        return
    versions = sqlalchemy.table("alembic_version", sqlalchemy.column("version_num"), schema=schema)
    again = sqlalchemy.update(versions).where(versions.c.version_num == REVISIONS[3])
    connection.execute(again.values(version_num=UNFINISHED))


def run_migrations(connection: Connection, schema: str | None = None) -> None:
    """Run the migrations that a database lacks, in the caller's transaction, and stamp the format it then has.

    Raises `CorruptStore` where alembic does not know its way from here, and errors of SQLAlchemy as they are.
    """
    try:
        alembic_command.upgrade(alembic_config(connection, schema=schema), "head")
    except alembic_util.CommandError as error:
        raise CorruptStore(f"the migrations cannot be run ({error}); restore a backup") from error
    connection.exec_driver_sql(f"UPDATE flue_store SET value = {FORMAT_VERSION} WHERE name = 'format'")


_IS_IMPORTED = "metadata LIKE '{\"imported\":{%'"
_WITH_AGENTS = "('claude-code', 'codex')"
_NAMING_A_PARENT = {
    "sqlite": (
        f"CASE WHEN {_IS_IMPORTED} AND json_valid(metadata) THEN json_type(metadata, '$.parentSession') = 'text'"
        f" AND json_extract(metadata, '$.imported.format') IN {_WITH_AGENTS} ELSE 0 END"
    ),
    "postgresql": (
        f"CASE WHEN {_IS_IMPORTED} THEN json_typeof(CAST(metadata AS json) -> 'parentSession') = 'string'"
        f" AND (CAST(metadata AS json) -> 'imported' ->> 'format') IN {_WITH_AGENTS} ELSE FALSE END"
    ),
}


def imported_agents_are_tasks(dialect: str) -> list[str]:
    """Return what makes task sessions of sub-agents' sessions, which formats 1 and 2 imported as root sessions.

    They are linked to a parent, or their metadata name one; those of other programs name one that they go on with. Each
    is as deep as the shortest way to it, from a session that is no task or is linked from nowhere.
    """
    kinds = (
        f"UPDATE sessions SET kind = 'task', task_depth = 1 WHERE kind = 'root' AND {_IS_IMPORTED}"
        " AND (EXISTS (SELECT 1 FROM task_links t WHERE t.child_id = sessions.id)"
        f" OR {_NAMING_A_PARENT[dialect]})"
    )
    depths = (
        "WITH RECURSIVE below(id, depth) AS (SELECT t.child_id, 1 FROM task_links t"
        " JOIN sessions p ON p.session_key = t.parent_key WHERE p.kind <> 'task'"
        " UNION SELECT s.id, 1 FROM sessions s WHERE s.kind = 'task'"
        " AND NOT EXISTS (SELECT 1 FROM task_links t WHERE t.child_id = s.id)"
        " UNION SELECT t.child_id, b.depth + 1 FROM below b JOIN sessions p ON p.id = b.id"
        " JOIN task_links t ON t.parent_key = p.session_key WHERE b.depth < 100)"
        " UPDATE sessions SET task_depth = (SELECT MIN(b.depth) FROM below b WHERE b.id = sessions.id)"
        f" WHERE kind = 'task' AND {_IS_IMPORTED} AND id IN (SELECT b.id FROM below b)"
    )
    return [kinds, depths]


def _columns(template: str) -> str:
    return ", ".join(template.format(name) for name in PAID_COLUMNS)


def _with_sums(made: str, keys: dict[str, str], sums: str) -> list[str]:
    """Return the statements that give entries the sums of a table that is made for that, found by these keys."""
    found = " AND ".join(f"s.{there} = entries.{here}" for here, there in keys.items())
    given = f"SELECT {sums} FROM flue_sums s WHERE {found}"
    return [
        f"CREATE TABLE flue_sums AS {made}",
        f"CREATE UNIQUE INDEX uq_flue_sums ON flue_sums ({', '.join(keys.values())})",
        f"UPDATE entries SET ({_columns('{}')}) = ({given}) WHERE EXISTS ({given})",
        "DROP TABLE flue_sums",
    ]


PAID_SUMS = (
    # What the ledger has of each entry; with the entries above it in its lane; with the lanes that this forks from.
    *_with_sums(
        "SELECT g.tree_id, g.session_key, g.entry_id, COUNT(*) AS paid_calls,"
        " COUNT(*) - COUNT(g.cost) AS unpriced_calls,"
        f" CAST(SUM(g.unknown) AS BIGINT) AS unknown_calls, CAST(SUM({all_tokens()}) AS BIGINT) AS paid_tokens,"
        " CAST(COALESCE(SUM(g.cost), 0) AS BIGINT) AS paid_cost"
        " FROM ledger g WHERE g.entry_id IS NOT NULL GROUP BY g.tree_id, g.session_key, g.entry_id",
        {"tree_id": "tree_id", "session_key": "session_key", "id": "entry_id"},
        _columns("s.{}"),
    ),
    *_with_sums(
        "SELECT * FROM (SELECT e.tree_id, e.lane_id, e.depth, "
        + ", ".join(
            f"CAST(SUM(e.{name}) OVER (PARTITION BY e.tree_id, e.lane_id ORDER BY e.depth) AS BIGINT) AS {name}"
            for name in PAID_COLUMNS
        )
        + " FROM entries e) t WHERE t.paid_calls > 0",
        {"tree_id": "tree_id", "lane_id": "lane_id", "depth": "depth"},
        _columns("s.{}"),
    ),
    *_with_sums(
        f"WITH RECURSIVE above(tree_id, lane_id, {_columns('{}')}) AS ("
        "SELECT l.tree_id, l.lane_id, "
        + ", ".join(["CAST(0 AS BIGINT)"] * len(PAID_COLUMNS))
        + " FROM lanes l WHERE l.parent_lane IS NULL UNION ALL SELECT l.tree_id, l.lane_id, "
        + ", ".join(f"a.{name} + e.{name}" for name in PAID_COLUMNS)
        + " FROM above a JOIN lanes l ON l.tree_id = a.tree_id AND l.parent_lane = a.lane_id"
        " JOIN entries e ON e.tree_id = l.tree_id AND e.lane_id = l.parent_lane AND e.depth = l.fork_depth)"
        " SELECT * FROM above WHERE paid_calls > 0",
        {"tree_id": "tree_id", "lane_id": "lane_id"},
        _columns("entries.{0} + s.{0}"),
    ),
)
"""Gives entries that have none the sums of what the ledger has of the path to each. O(entries), and sorts."""
_FORMAT_OF_IMPORT = '"imported":{"format":"'
_BEHIND_IT = f"substr(s.metadata, instr(s.metadata, '{_FORMAT_OF_IMPORT}') + {len(_FORMAT_OF_IMPORT)})"
_FORMAT_IN_METADATA = {
    "postgresql": f"split_part(split_part(s.metadata, '{_FORMAT_OF_IMPORT}', 2), '\"', 1)",
    "sqlite": f"substr({_BEHIND_IT}, 1, instr({_BEHIND_IT}, '\"') - 1)",
}


def imported_calls_have_agents(dialect: str) -> str:
    """Return what notes, of calls whose entries were imported, the program that the session says they are from.

    Agents that messages name are not looked for: a payload may be packed, which no SQL reads.
    """
    find = "instr" if dialect == "sqlite" else "strpos"
    return (
        f"UPDATE ledger SET agent = (SELECT {_FORMAT_IN_METADATA[dialect]} FROM sessions s"
        " JOIN entries e ON e.tree_id = ledger.tree_id AND e.id = ledger.entry_id AND e.session_key = s.session_key"
        " JOIN leaf_moves m ON m.session_key = e.session_key AND m.revision = e.revision AND m.reason = 'import'"
        " WHERE s.session_key = ledger.session_key) WHERE session_key IN"
        f" (SELECT s.session_key FROM sessions s WHERE {find}(s.metadata, '{_FORMAT_OF_IMPORT}') > 0)"
    )


# -- for review -------------------------------------------------------------------------------------------------------


def creation_sql(dialect: Dialect) -> str:
    """Return, as one script, the SQL that makes a new store: what opening an empty database runs."""
    where = " in the first schema of the search_path" if dialect == "postgresql" else ""
    statements = [*stamp_statements(dialect), *schema_statements(dialect)]
    opening = ["BEGIN", LOCK_STATEMENT] if dialect == "postgresql" else ["PRAGMA journal_mode = WAL", "BEGIN IMMEDIATE"]
    script = [_tidy(statement) + ";\n" for statement in [*opening, *statements, "COMMIT"]]
    return f"-- Makes a store of format {FORMAT_VERSION}{where}, in one transaction.\n\n" + "\n".join(script)


def upgrade_sql(dialect: Dialect, found: int) -> str:
    """Return, as one script, the SQL that upgrades a store of format ``found`` to the current one.

    Raises `InvalidArgument` for a format that there is not, or not yet.
    """
    if not 1 <= found <= FORMAT_VERSION:
        raise InvalidArgument(f"format {found} is not one that this flue_py knows: there are 1 to {FORMAT_VERSION}")
    if found == FORMAT_VERSION:
        return f"-- Format {found} is the current one: there is nothing to do.\n"
    script = alembic_sql(dialect, f"{REVISIONS[found]}:head")
    return f"-- Upgrades a store from format {found} to {FORMAT_VERSION}, in one transaction.\n\n{script}"


def alembic_sql(dialect: Dialect, revisions: str = "head") -> str:
    """Return what alembic's offline mode prints for a range of revisions (``0001:head``, or ``head``: from nothing)."""
    config = alembic_config(url=f"{dialect}://")
    config.output_buffer = printed = io.StringIO()
    alembic_command.upgrade(config, revisions, sql=True)
    return printed.getvalue()


def _tidy(statement: str) -> str:
    """Return a statement without tabs, blanks at the ends of lines and blank lines."""
    lines = (line.rstrip().replace("\t", "    ") for line in statement.split("\n"))
    return "\n".join(line for line in lines if line)
