"""What differs between the databases in SQL: one function or constant for each difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from flue_py.store.seam import P, R, Reader, Statement

Dialect: TypeAlias = Literal["sqlite", "postgresql"]
# What sets our advisory keys apart from those of other programs in the same database.
WATCH_SEED = 7_161_021
CHANNEL = "flue_py"
ANNOUNCEMENT = (
    f"CASE WHEN pg_try_advisory_xact_lock(hashtextextended(id, {WATCH_SEED})) THEN NULL"
    f" ELSE pg_notify('{CHANNEL}', id) END"
)


def per_dialect(
    takes: Callable[P, object], gives: type[R] | Reader[R], text: Callable[[Dialect], str]
) -> Statement[P, R]:
    """Return the statement whose text is made for each dialect."""
    return Statement(takes, gives, text("sqlite"), text("postgresql"))


def in_keys(column: str, dialect: Dialect) -> str:
    """Whether a column is one of the numbers of the JSON array ``:keys``.

    PostgreSQL takes a set of rows for a hundred, and then reads whole tables for the one that is there; not an array.
    """
    if dialect == "sqlite":
        return f"{column} IN (SELECT CAST(value AS BIGINT) FROM json_each(:keys))"
    return f"{column} = ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST(:keys AS json))))"


def numbers(dialect: Dialect) -> str:
    """The numbers of the JSON array ``:keys``, as rows."""
    if dialect == "sqlite":
        return "SELECT CAST(value AS BIGINT) AS number FROM json_each(:keys)"
    return "SELECT CAST(value AS BIGINT) AS number FROM json_array_elements_text(CAST(:keys AS json)) AS value"


def in_ids(column: str, dialect: Dialect) -> str:
    """Whether a column is one of the texts of the JSON array ``:ids``."""
    if dialect == "sqlite":
        return f"{column} IN (SELECT value FROM json_each(:ids))"
    return f"{column} = ANY (ARRAY(SELECT json_array_elements_text(CAST(:ids AS json))))"


def tails_in(dialect: Dialect) -> str:
    """The ends of lanes that a JSON array of [tree, lane, depth to keep] names, as rows."""
    if dialect == "sqlite":
        items = [f"json_extract(value, '$[{index}]')" for index in range(3)]
        source = "json_each(:tails)"
    else:
        items = [f"value->>{index}" for index in range(3)]
        source = "json_array_elements(CAST(:tails AS json))"
    columns = zip(items, ("tree_id", "lane_id", "low"), strict=True)
    return "SELECT " + ", ".join(f"CAST({item} AS BIGINT) AS {name}" for item, name in columns) + f" FROM {source}"


def same_as_column(dialect: Dialect, text: str) -> str:
    """A text that a recursive query starts from, compared as the column it goes on with."""
    return text if dialect == "sqlite" else f'{text} COLLATE "C"'


def stored_bytes(dialect: Dialect, column: str) -> str:
    """A text as the bytes that are stored, which may be no valid text."""
    return f"CAST({column} AS BLOB)" if dialect == "sqlite" else f"convert_to({column}, 'UTF8')"


def storage_class(dialect: Dialect, column: str) -> str:
    """How SQLite stores a value, whatever the column declares; PostgreSQL holds its columns to it."""
    return f"typeof({column})" if dialect == "sqlite" else "CAST('text' AS TEXT)"


def announcing(dialect: Dialect) -> str:
    """Tell whoever watches the session, at commit (SQLite has no such thing; its watchers look).

    A watcher holds a shared advisory lock on the session while it listens. Where nobody does, nothing is sent:
    all commits that notify wait for each other in one queue of the whole database.
    """
    return "" if dialect == "sqlite" else f" RETURNING {ANNOUNCEMENT}"


# What PostgreSQL does with a blob that is there: it is locked, so that who deletes it meanwhile sees its new use.
LOCK_BLOB_THAT_IS_THERE = " ON CONFLICT (tree_id, sha256) DO UPDATE SET size = excluded.size"


def payload_in(dialect: Dialect, text: str) -> str:
    """A text that reads payloads as the bytes that are stored, in the words of a dialect."""
    return text.replace(stored_bytes("sqlite", "e.payload"), stored_bytes(dialect, "e.payload"))


def reading(takes: Callable[P, object], gives: type[R] | Reader[R], text: str) -> Statement[P, R]:
    """Return a statement that reads payloads, written for SQLite (see `payload_in`)."""
    return per_dialect(takes, gives, lambda dialect: payload_in(dialect, text))
