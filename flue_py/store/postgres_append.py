"""An append as one statement, and so one round trip: it lands on the revision it was planned for, or not at all.

The row of the session is locked and compared first (``planned``); everything else reads from that, so that it
writes nothing where the session has moved on. Several rows of a table come as arrays, a column each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import count
from typing import NamedTuple, cast

import pydantic_core

from flue_py.core.sessions import Appended
from flue_py.core.usage import MAX_AMOUNT
from flue_py.store import queries
from flue_py.store.appending import EntryBatch, PlannedAppend
from flue_py.store.postgres_transaction import PostgresTransaction
from flue_py.store.transaction import Row, Statement, parameter_type


def append_in_one_statement(tx: PostgresTransaction, planned: PlannedAppend, batch: EntryBatch) -> Appended | None:
    """Write a planned append; return its result, or None, with nothing written, where the session has moved on.

    Leaves the session's new state in ``tx.states``, except after an append beside the leaf.
    """
    if not _is_spending_in_range(batch):
        return None
    parts: list[_Part] = []
    update = batch.session_update(planned.result.leaf_id)
    arguments: list[object] = [update[name] for name in _UPDATED] + [batch.state.revision]
    for name, statement, rows in (
        ("entries", queries.INSERT_ENTRY, batch.rows),
        ("lanes", queries.INSERT_LANE, _columns(queries.INSERT_LANE, batch.lanes)),
        ("blobs", queries.INSERT_BLOB, _columns(queries.INSERT_BLOB, batch.blobs.values())),
        ("calls", queries.INSERT_CALL, _columns(queries.INSERT_CALL, batch.calls)),
        ("payer", queries.INSERT_LEDGER_SESSION, _columns(queries.INSERT_LEDGER_SESSION, _payer(batch))),
        ("move", queries.INSERT_MOVE, _columns(queries.INSERT_MOVE, _move(planned))),
        ("request", queries.INSERT_REQUEST, _columns(queries.INSERT_REQUEST, _request(planned))),
    ):
        if rows:
            parts.append(_Part(name, statement, len(rows) == 1))
            arguments += rows[0] if len(rows) == 1 else [list(column) for column in zip(*rows, strict=True)]
    written = tx.connection.fetch(_statement(tuple(parts)), arguments)
    if not written:
        return None
    spent_tokens, spent_cost, _ = written[0]
    batch.note_spending(spent_tokens - batch.state.spent_tokens, spent_cost - batch.state.spent_cost)
    if planned.move is None:
        tx.states[batch.state.id] = batch.state_after(planned.result.entry_ids[-1])
    return planned.result


def _is_spending_in_range(batch: EntryBatch) -> bool:
    """Return whether the spending stays within 64 bits; if not, the other way of writing reports it."""
    tokens = sum(cast("int", call["spent_tokens"]) for call in batch.calls)
    cost = sum(cast("int", call["cost"]) for call in batch.calls)
    return max(batch.state.spent_tokens + tokens, batch.state.spent_cost + cost) <= MAX_AMOUNT


def _columns(statement: Statement, rows: Iterable[Mapping[str, object]]) -> list[Row]:
    return [tuple(row[column] for column in statement.parameters) for row in rows]


def _payer(batch: EntryBatch) -> list[dict[str, object]]:
    return [batch.payer] if batch.calls and batch.names_payer else []


def _move(planned: PlannedAppend) -> list[dict[str, object]]:
    return [] if planned.move is None else [planned.move]


def _request(planned: PlannedAppend) -> list[dict[str, object]]:
    if planned.idempotency_key is None:
        return []
    return [
        {
            "session_key": planned.state.key,
            "idempotency_key": planned.idempotency_key,
            "operation": "append",
            "digest": planned.digest,
            "result": pydantic_core.to_json(planned.replayable).decode(),
        }
    ]


# What the session's row is given, in this order; the revision it must still have comes after them.
_UPDATED = ("session_key", "leaf", "revision", "at", "entry_count", "message_count", "first_message")


class _Part(NamedTuple):
    """The rows of one table, in a statement that writes several."""

    name: str
    statement: Statement
    is_single: bool


@lru_cache(maxsize=256)
def _statement(parts: tuple[_Part, ...]) -> str:
    """Return the statement that writes these parts; its parameters are the session's, then each part's columns."""
    numbers = count(len(_UPDATED) + 2)
    planned = (
        "SELECT session_key FROM sessions WHERE session_key = $1::bigint"
        f" AND revision = ${len(_UPDATED) + 1}::bigint AND trashed_at IS NULL FOR UPDATE"
    )
    clauses = [f"planned AS ({planned})"]
    for part in parts:
        into, _, after = (part.statement.postgres or part.statement.sql).partition(" VALUES (")
        tail = after.partition(")")[2]
        if part.name == "payer":
            tail = f" WHERE EXISTS (SELECT 1 FROM calls){tail}"
        elif part.name == "calls":
            tail += f" RETURNING {_SPENT_TOKENS} AS tokens, cost"
        clauses.append(f"{part.name} AS ({into} {_rows_of(part, numbers)}{tail})")
    has_calls = any(part.name == "calls" for part in parts)
    return f"WITH {', '.join(clauses)} {_UPDATE_SPENDING if has_calls else _UPDATE}"


def _rows_of(part: _Part, numbers: Iterator[int]) -> str:
    columns = part.statement.parameters
    if part.is_single:
        values = ", ".join(f"${next(numbers)}::{parameter_type(column)}" for column in columns)
        return f"SELECT {values} FROM planned"
    arrays = ", ".join(f"${next(numbers)}::{parameter_type(column)}[]" for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    named = ", ".join(f'n."{column}"' for column in columns)
    return f"SELECT {named} FROM planned, unnest({arrays}) AS n({names})"


_SPENT_TOKENS = (
    "CASE WHEN total_tokens > 0 THEN total_tokens ELSE input_tokens + output_tokens + cache_read_tokens"
    " + cache_write_5m_tokens + cache_write_1h_tokens END"
)
_SET = (
    "UPDATE sessions s SET leaf = $2::text, revision = $3::bigint, updated_at = $4::bigint,"
    " entry_count = entry_count + $5::bigint, message_count = message_count + $6::bigint,"
    " first_message = COALESCE(first_message, $7::text)"
)
_FROM = " FROM planned WHERE s.session_key = planned.session_key"
_RETURNING = f" RETURNING s.spent_tokens, s.spent_cost, {queries.ANNOUNCEMENT}"
_UPDATE = _SET + _FROM + _RETURNING
_UPDATE_SPENDING = (
    f"{_SET}, spent_tokens = spent_tokens + paid.tokens, spent_cost = spent_cost + paid.cost"
    " FROM planned, (SELECT COALESCE(CAST(SUM(tokens) AS BIGINT), 0) AS tokens,"
    " COALESCE(CAST(SUM(cost) AS BIGINT), 0) AS cost FROM calls) paid"
    " WHERE s.session_key = planned.session_key" + _RETURNING
)
