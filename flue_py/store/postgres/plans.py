"""Planned writes as one statement, in one round trip: they land on the revision they were planned for, or not at all.

The row of the session is locked and compared first (``planned``); everything else reads from that, so that it
writes nothing where the session has moved on. Several rows of a table come as arrays, a column each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

from flue_py.core.listing import SLOT_BITS
from flue_py.core.sessions import Appended, SessionInfo
from flue_py.core.usage import MAX_AMOUNT, Paid
from flue_py.store.ops.append import EntryBatch, PlannedAppend
from flue_py.store.ops.ledger import distinct_calls, ledger_row, paid_by
from flue_py.store.ops.sessions import PlannedFork
from flue_py.store.postgres.errors import DIVISION_BY_ZERO, DRIVER_ERRORS, sqlstate_of
from flue_py.store.postgres.transaction import PostgresTransaction
from flue_py.store.schema.ledger_sums import all_tokens
from flue_py.store.seam import Insert, Row
from flue_py.store.sql import append as append_sql
from flue_py.store.sql import dialects as dialects_sql
from flue_py.store.sql import ledger as ledger_sql
from flue_py.store.sql.inserts import (
    INSERT_ATTACHMENT,
    INSERT_BLOB,
    INSERT_CALL,
    INSERT_ENTRY,
    INSERT_LANE,
    INSERT_MOVE,
    INSERT_PAYER,
    INSERT_REQUEST,
    INSERT_SESSION,
)


def land_in_one_statement(tx: PostgresTransaction, planned: PlannedAppend | PlannedFork) -> object | None:
    """Write what is planned; return its result, or None, with nothing written, where it takes a transaction."""
    if isinstance(planned, PlannedAppend):
        return append_in_one_statement(tx, planned)
    return fork_in_one_statement(tx, planned)


def append_in_one_statement(tx: PostgresTransaction, planned: PlannedAppend) -> Appended | None:
    """Write a planned append; return its result, or None, with nothing written, where the session has moved on.

    Raises `CallConflict` where it reports a call twice, with other numbers.
    Leaves the session's new state in ``tx.states``, except after an append beside the leaf.
    """
    batch = planned.batch
    if batch is None or not _is_spending_in_range(batch):
        return None
    calls = distinct_calls(batch.calls)
    update: Mapping[str, object] = batch.session_update(planned.result.leaf_id)
    tree_id = batch.state.tree_id
    arguments: list[object] = [batch.state.revision, *(update[name] for name in _UPDATED)]
    parts = _parts(
        arguments,
        # Not named as the table, which the update asks about.
        ("added", INSERT_ENTRY, batch.rows),
        ("lanes", INSERT_LANE, [(tree_id, *lane) for lane in batch.lanes]),
        ("blobs", INSERT_BLOB, batch.blob_rows),
        ("attachments", INSERT_ATTACHMENT, batch.attachments),
        ("calls", INSERT_CALL, [ledger_row(tree_id, call, batch.drawn) for call in calls]),
        ("payer", INSERT_PAYER, [(tree_id, *batch.payer)] if batch.calls and batch.names_payer else ()),
        ("move", INSERT_MOVE, _optional(planned.move)),
        ("request", INSERT_REQUEST, _optional(planned.request)),
    )
    named = [call.call_id for call in calls if call.call_id not in batch.drawn]
    if named:
        arguments.append(named)
    try:
        written = tx.connection.fetch(_append_statement(parts, has_names=bool(named)), arguments)
    except DRIVER_ERRORS as error:
        # A call is in the ledger already: the other way of writing counts it once, or says what differs.
        if sqlstate_of(error) != DIVISION_BY_ZERO:
            raise
        return None
    if not written:
        return None
    spent_tokens, spent_cost, *_ = written[0]
    new = Paid(tokens=spent_tokens - batch.state.spent_tokens, picodollars=spent_cost - batch.state.spent_cost)
    batch.note_spending(new)
    if planned.move is None:
        tx.states[batch.state.id] = batch.state_after(planned.result.entry_ids[-1])
    return planned.result


def fork_in_one_statement(tx: PostgresTransaction, planned: PlannedFork) -> SessionInfo | None:
    """Write a planned fork; return the session, or None, with nothing written, where its source has moved on.

    None, too, for the id of a deleted session that has forks, which takes a statement more.
    """
    if planned.used_again:
        return None
    arguments: list[object] = [planned.source.revision, planned.source.key]
    parts = _parts(
        arguments,
        ("fork", INSERT_SESSION, [(planned.session.tree_id, *planned.session.row)]),
        ("request", INSERT_REQUEST, _optional(planned.request)),
    )
    if not tx.connection.fetch(_fork_statement(parts), arguments):
        return None
    tx.states[planned.source.id] = planned.source
    return planned.result


def _parts(arguments: list[object], *tables: tuple[str, Insert[Any], Sequence[Row]]) -> tuple[_Part, ...]:
    """Return a part for each table that gets rows, and add its values to the arguments."""
    parts = []
    for name, statement, rows in tables:
        if rows:
            parts.append(_Part(name, statement, len(rows) == 1))
            arguments += rows[0] if len(rows) == 1 else [list(column) for column in zip(*rows, strict=True)]
    return tuple(parts)


def _is_spending_in_range(batch: EntryBatch) -> bool:
    """Return whether the spending stays within 64 bits; if not, the other way of writing reports it."""
    spent = paid_by(batch.calls)
    on_paths = max(map(max, batch.paid), default=0)
    session = max(batch.state.spent_tokens + spent.tokens, batch.state.spent_cost + spent.picodollars)
    return max(on_paths, session) <= MAX_AMOUNT


def _optional(row: Row | None) -> Sequence[Row]:
    return () if row is None else [row]


# What the session's row is given, in this order, after the revision that it must still have.
_UPDATED = ("session_key", "leaf", "revision", "at", "entry_count", "message_count", "first_message", "newest")


class _Part(NamedTuple):
    """The rows of one table, in a statement that writes several."""

    name: str
    statement: Insert[Any]
    is_single: bool


def _planned(lock: str) -> str:
    return (
        "planned AS (SELECT session_key FROM sessions WHERE session_key = $2::bigint AND revision = $1::bigint"
        f" AND trashed_at IS NULL FOR {lock})"
    )


@lru_cache(maxsize=256)
def _append_statement(parts: tuple[_Part, ...], *, has_names: bool) -> str:
    """Return the statement that writes these parts.

    Its parameters are the session's, then each part's columns, then the ids that calls were reported with.
    """
    first = len(_UPDATED) + 2
    numbers = count(first)
    last = first + sum(len(part.statement.parameters) for part in parts)
    clauses = [_planned("UPDATE")]
    for part in parts:
        before, after = "", ""
        if part.name == "payer":
            before = " WHERE EXISTS (SELECT 1 FROM calls)"
        elif part.name == "calls":
            before = ledger_sql.REFUSE_UNNAMED_CALLS.format(last) if has_names else ""
            after = f" RETURNING {all_tokens(row='')} AS tokens, cost, unknown"
        clauses.append(_clause(part, numbers, before, after))
    has_calls = any(part.name == "calls" for part in parts)
    return f"WITH {', '.join(clauses)} {_UPDATE_SPENDING if has_calls else _UPDATE}"


@lru_cache(maxsize=16)
def _fork_statement(parts: tuple[_Part, ...]) -> str:
    """Return the statement that makes a fork. Its source goes on meanwhile, but cannot be deleted."""
    numbers = count(3)
    clauses = [_planned("KEY SHARE"), *(_clause(part, numbers) for part in parts)]
    return f"WITH {', '.join(clauses)} SELECT session_key FROM planned"


def _clause(part: _Part, numbers: Iterator[int], before: str = "", after: str = "") -> str:
    """Return what inserts a part's rows; ``before`` and ``after`` stand around what the table does on conflict."""
    into, _, rest = part.statement.postgres.partition(" VALUES (")
    on_conflict = ledger_sql.REFUSE_KNOWN_CALLS if part.name == "calls" else rest.partition(")")[2]
    return f"{part.name} AS ({into} {_rows_of(part, numbers)}{before}{on_conflict}{after})"


def _rows_of(part: _Part, numbers: Iterator[int]) -> str:
    columns, types = part.statement.parameters, part.statement.types
    if part.is_single:
        values = ", ".join(f"${next(numbers)}::{types[column]}" for column in columns)
        return f"SELECT {values} FROM planned"
    arrays = ", ".join(f"${next(numbers)}::{types[column]}[]" for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    named = ", ".join(f'n."{column}"' for column in columns)
    return f"SELECT {named} FROM planned, unnest({arrays}) AS n({names})"


_ACTIVE_SINCE = (
    append_sql.ACTIVE_SINCE.replace(":newest", "$9::bigint")
    .replace(":session_key", "s.session_key")
    .replace("sessions.tree_id", "s.tree_id")
)
_SET = (
    "UPDATE sessions s SET leaf = $3::text, revision = $4::bigint, updated_at = $5::bigint,"
    " entry_count = entry_count + $6::bigint, message_count = message_count + $7::bigint,"
    f" first_message = COALESCE(first_message, $8::text), active_at = {_ACTIVE_SINCE},"
    f" active_slot = ({_ACTIVE_SINCE}) >> {SLOT_BITS}"
)
_FROM = " FROM planned WHERE s.session_key = planned.session_key"
_RETURNING = f" RETURNING s.spent_tokens, s.spent_cost, {dialects_sql.ANNOUNCEMENT}"
_UPDATE = _SET + _FROM + _RETURNING
_UPDATE_SPENDING = (
    f"{_SET}, spent_tokens = spent_tokens + paid.tokens, spent_cost = spent_cost + paid.cost,"
    " unpriced_calls = unpriced_calls + paid.unpriced, unknown_calls = unknown_calls + paid.unknown"
    " FROM planned, (SELECT COALESCE(CAST(SUM(tokens) AS BIGINT), 0) AS tokens,"
    " COALESCE(CAST(SUM(cost) AS BIGINT), 0) AS cost, COUNT(*) - COUNT(cost) AS unpriced,"
    " COALESCE(CAST(SUM(unknown) AS BIGINT), 0) AS unknown FROM calls) paid"
    " WHERE s.session_key = planned.session_key" + _RETURNING
)
