"""Formats, and the SQL that makes a store; ``python -m flue_py.db.schema`` prints it anew from the tables."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from flue_py.core.json import Frozen
from flue_py.core.usage import PAID_COLUMNS
from flue_py.errors import CorruptStore, FormatTooNew, InvalidArgument, StoreUnavailable
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import alembic.command as alembic_command
    import alembic.config as alembic_settings
    import alembic.util as alembic_util
    import sqlalchemy
    from sqlalchemy import Connection

    from flue_py.db import tables as schema
else:
    # alembic costs half a second, and is needed to migrate only; the tables are needed to make a database only.
    alembic_command = lazy_module("alembic.command")
    alembic_settings = lazy_module("alembic.config")
    alembic_util = lazy_module("alembic.util")
    sqlalchemy = lazy_module("sqlalchemy")
    schema = lazy_module("flue_py.db.tables")


# ---------------------------------------------------------------------------------------------------------------------
# What a row of the ledger counts for in a sum, in SQL that SQLite and PostgreSQL both read.


def all_tokens(row: str = "g.") -> str:
    """Return the expression for all tokens of a call: the reported total, or the sum of the kinds where there is none.

    ``row`` is put before each column.
    """
    kinds = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")
    summed = " + ".join(f"{row}{kind}" for kind in kinds)
    return f"CASE WHEN {row}total_tokens > 0 THEN {row}total_tokens ELSE {summed} END"


# ---------------------------------------------------------------------------------------------------------------------
# What a database is stamped with, so that anybody can tell whose it is and in which format.

APPLICATION_ID = 0x464C5545
"""``PRAGMA application_id`` of every SQLite file of ours: "FLUE"."""

FIRST_FORMAT = 4
"""The format of the first release. Stores of a lower one were made before it, and are refused."""

FIRST_CHAINED = 6
"""The first format with a chain of digests and heads of sessions."""

FORMAT_VERSION = 6
"""The stored format that this package reads and writes. Older ones are upgraded, newer ones refused."""


# ---------------------------------------------------------------------------------------------------------------------
# The SQL that makes a store, in either dialect: run by `migrate` and `postgres_format`, printed for review.
#
# A new database is made from the schema; an older one is upgraded by alembic. Both ways lead to the same tables, which
# the tests compare by what the catalogs say.

Dialect: TypeAlias = Literal["sqlite", "postgresql"]

REVISIONS = {FIRST_FORMAT: "0001", 5: "0002", 6: "0003"}
"""The alembic revision that leads to each format."""

HEAD = REVISIONS[FORMAT_VERSION]
"""The alembic revision of this format."""

PRINTED = 5
"""The last format that SQL alone leads to from those before it: the digests of the next one are computed."""

UNRELEASED = "0005"
"""The name that 0001 had in stores of the first format that were made before the first release."""

STATEMENT_END = ";\n\n"
"""Stands behind each statement of a printed schema, and nowhere within one."""

RunAlembic: TypeAlias = "Callable[[Connection, str | None], None]"
"""Runs alembic on a connection with an open transaction. The schema is where its own table is, if there are schemas."""

LOCK_KEY = int.from_bytes(b"flue_py")
"""PostgreSQL's advisory locks on making or upgrading a store count from here: the name, read as a number."""

LOCK_STATEMENT = f"""\
SELECT pg_advisory_xact_lock({LOCK_KEY} + CAST(oid AS BIGINT))
  FROM pg_catalog.pg_namespace WHERE nspname = current_schema()"""
"""Waits until nobody else makes or upgrades a store in the same schema; held until the transaction ends."""


class Migrated(Frozen):
    """An upgrade of a database to the current format; ``found`` is the format it had, None where it was empty."""

    location: str
    found: int | None
    backup: Path | None = None

    @property
    def format(self) -> int:
        """The format that it has now."""
        return FORMAT_VERSION


def migrations_directory() -> Path:
    """Return where the migrations are: inside an installed wheel, else beside the package in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def format_at(revision: str) -> int:
    """Return the format of a store at an alembic revision."""
    return next((format_ for format_, last in REVISIONS.items() if revision <= last), FORMAT_VERSION)


def alembic_config(
    connection: Connection | None = None, url: str | None = None, schema: str | None = None
) -> alembic_settings.Config:
    """Return alembic's configuration for this project's migrations; no ini file is involved.

    ``connection`` is the one to run on, ``schema`` where alembic's own table is on it. Offline there is only a ``url``,
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


def stamp_statements(dialect: Dialect = "sqlite", format_: int | None = None) -> list[str]:
    """Return the SQL that stamps an empty database, with this format or the current one.

    PostgreSQL has no application id, and draws keys at random.
    """
    format_ = FORMAT_VERSION if format_ is None else format_
    if dialect == "postgresql":
        return [
            """\
CREATE TABLE flue_store (
    name TEXT COLLATE "C" NOT NULL, value BIGINT NOT NULL, CONSTRAINT pk_flue_store PRIMARY KEY (name)
)""",
            f"INSERT INTO flue_store (name, value) VALUES ('format', {format_}), ('epoch', 0)",
        ]
    return [
        f"PRAGMA application_id = {APPLICATION_ID}",
        """\
CREATE TABLE flue_store (
    name TEXT NOT NULL, value BIGINT NOT NULL, CONSTRAINT pk_flue_store PRIMARY KEY (name)
) WITHOUT ROWID""",
        f"INSERT INTO flue_store (name, value) VALUES ('format', {format_}), ('epoch', 0), ('next_key', 1)",
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
    """Return the format of a stamp.

    Raises `CorruptStore` if it is not a number, `FormatTooNew`, and `StoreUnavailable` for a format that was
    never released.
    """
    if not isinstance(stamp, int):
        raise CorruptStore(f"{location} has the format stamp {stamp!r}, which is not a number; restore a backup")
    if stamp > FORMAT_VERSION:
        raise FormatTooNew(
            f"{location} has format {stamp}, this flue_py reads up to {FORMAT_VERSION}; upgrade flue_py. "
            "Nothing was read or written"
        )
    if stamp < FIRST_FORMAT:
        raise StoreUnavailable(unreleased(location, stamp))
    return stamp


def unreleased(location: str, stamp: int) -> str:
    """Return the words for a database of a format that was never released."""
    return (
        f"{location} has format {stamp}, which only versions before the first release made, and this flue_py does not "
        "read it; export its sessions with the version that made it, and import them. Nothing was read or written"
    )


def relation_names() -> frozenset[str]:
    """Return the names of the tables, indexes and views that a store brings with it."""
    tables = schema.metadata.tables.values()
    indexes = [str(index.name) for table in tables for index in table.indexes]
    return frozenset([*schema.metadata.tables, *indexes, "history", "alembic_version"])


# -- upgrading one ----------------------------------------------------------------------------------------------------


def rename_unreleased(connection: Connection, schema: str | None) -> None:
    """Let alembic find its way from a store of the first format that was made before the first release."""
    there = sqlalchemy.inspect(connection).get_table_names(schema=schema)
    if not {"alembic_version", "flue_store"} <= {*there}:
        return
    versions = sqlalchemy.table("alembic_version", sqlalchemy.column("version_num"), schema=schema)
    stamps = sqlalchemy.table("flue_store", sqlalchemy.column("name"), sqlalchemy.column("value"), schema=schema)
    stamp = sqlalchemy.select(stamps.c.value).where(stamps.c.name == "format").scalar_subquery()
    # A migration of a later format may have that name, too.
    rename = sqlalchemy.update(versions).where(versions.c.version_num == UNRELEASED, stamp == FIRST_FORMAT)
    connection.execute(rename.values(version_num=REVISIONS[FIRST_FORMAT]))


def run_migrations(connection: Connection, schema: str | None = None) -> None:
    """Run the migrations that a database lacks, in the caller's transaction, and stamp the format it then has.

    Raises `CorruptStore` where alembic does not know its way from here, and errors of SQLAlchemy as they are.
    """
    try:
        alembic_command.upgrade(alembic_config(connection, schema=schema), "head")
    except alembic_util.CommandError as error:
        raise CorruptStore(f"the migrations cannot be run ({error}); restore a backup") from error
    connection.exec_driver_sql(f"UPDATE flue_store SET value = {FORMAT_VERSION} WHERE name = 'format'")


def _columns(template: str) -> str:
    return ", ".join(template.format(name) for name in PAID_COLUMNS)


def _with_sums(rows: str, keys: dict[str, str], sums: str) -> list[str]:
    """Return the statements that give entries the sums of a table that is made for that, found by these keys."""
    condition = " AND ".join(f"s.{there} = entries.{here}" for here, there in keys.items())
    values = f"SELECT {sums} FROM flue_sums s WHERE {condition}"
    return [
        f"CREATE TABLE flue_sums AS {rows}",
        f"CREATE UNIQUE INDEX uq_flue_sums ON flue_sums ({', '.join(keys.values())})",
        f"UPDATE entries SET ({_columns('{}')}) = ({values}) WHERE EXISTS ({values})",
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
"""Gives entries that have none the sums of the ledger for the path to each. O(entries), and sorts."""


# -- for review -------------------------------------------------------------------------------------------------------


def creation_sql(dialect: Dialect) -> str:
    """Return, as one script, the SQL that makes a new store, as opening an empty database runs it."""
    where = " in the first schema of the search_path" if dialect == "postgresql" else ""
    statements = [*stamp_statements(dialect), *schema_statements(dialect)]
    opening = ["BEGIN", LOCK_STATEMENT] if dialect == "postgresql" else ["PRAGMA journal_mode = WAL", "BEGIN IMMEDIATE"]
    script = [_tidy(statement) + ";\n" for statement in [*opening, *statements, "COMMIT"]]
    return f"-- Makes a store of format {FORMAT_VERSION}{where}, in one transaction.\n\n" + "\n".join(script)


def upgrade_sql(dialect: Dialect, earlier: int) -> str:
    """Return, as one script, the SQL that upgrades a store of format ``earlier`` to the current one.

    To `PRINTED` where that is before it: the script then says how to go on. Raises `InvalidArgument` for a format
    that there is not, or not yet.
    """
    if not FIRST_FORMAT <= earlier <= FORMAT_VERSION:
        raise InvalidArgument(
            f"format {earlier} is not one that this flue_py knows: there are {FIRST_FORMAT} to {FORMAT_VERSION}"
        )
    if earlier == FORMAT_VERSION:
        return f"-- Format {earlier} is the current one: there is nothing to do.\n"
    last = PRINTED if earlier <= PRINTED else FORMAT_VERSION
    opening = f"-- Upgrades a store from format {earlier} to {last}, in one transaction.\n"
    if last != FORMAT_VERSION:
        goes_on = "run flue-py migrate without --sql, or open the store, to go on from there"
        opening += f"-- The digests of format {PRINTED + 1} are computed, which no SQL does: {goes_on}.\n"
    return (
        opening if earlier == last else f"{opening}\n{alembic_sql(dialect, f'{REVISIONS[earlier]}:{REVISIONS[last]}')}"
    )


def alembic_sql(dialect: Dialect, revisions: str = "head") -> str:
    """Return the output of alembic's offline mode for some revisions (``0001:head``, or ``head``: from nothing)."""
    config = alembic_config(url=f"{dialect}://")
    config.output_buffer = printed = io.StringIO()
    alembic_command.upgrade(config, revisions, sql=True)
    return printed.getvalue()


def printed_schema(dialect: Dialect) -> str:
    """Return the SQL that makes every table but the stamp, in an order in which it can be run."""
    compiler = sqlalchemy.make_url(f"{dialect}://").get_dialect()()
    statements: list[str] = []
    for table in schema.metadata.sorted_tables:
        if table.name != "flue_store":
            statements.append(str(sqlalchemy.schema.CreateTable(table).compile(dialect=compiler)))
            indexes = sorted(table.indexes, key=lambda index: str(index.name))
            statements += [str(sqlalchemy.schema.CreateIndex(index).compile(dialect=compiler)) for index in indexes]
    statements += [
        schema.HISTORY_VIEW,
        """\
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)""",
        f"INSERT INTO alembic_version (version_num) VALUES ('{HEAD}')",
    ]
    return "".join(_tidy(statement) + STATEMENT_END for statement in statements)


def _tidy(statement: str) -> str:
    """Return a statement without tabs, blanks at the ends of lines and blank lines."""
    lines = (line.rstrip().replace("\t", "    ") for line in statement.split("\n"))
    return "\n".join(line for line in lines if line)


if __name__ == "__main__":
    for dialect in get_args(Dialect):
        printed_path(dialect).write_text(printed_schema(dialect), encoding="utf-8")
