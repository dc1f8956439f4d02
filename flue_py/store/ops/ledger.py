"""Paid calls into the ledger, once each, with their entries or alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from flue_py.core.calls import CallDifference, PaidCall, ledger_name
from flue_py.core.documents import DocumentName, deletion_of
from flue_py.core.frozen import changed
from flue_py.core.ledger import (
    CallId,
    CallPrice,
    Recorded,
    UnpricedCall,
    call_row,
    differences,
    is_booked_alone,
    replaced_by,
)
from flue_py.core.rows import CallRow, Payer
from flue_py.core.sessions import is_storable
from flue_py.core.usage import MAX_AMOUNT, NOTHING_PAID, Paid, SumTooLarge
from flue_py.errors import CallConflict
from flue_py.store.ops.path_sums import NOBODY, renew_sums
from flue_py.store.ops.state import read_state
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sql import append as append_sql
from flue_py.store.sql import documents as documents_sql
from flue_py.store.sql import ledger as ledger_sql
from flue_py.store.sql.inserts import INSERT_CALL, INSERT_PAYER

_MANY = 8


def insert_calls(
    tx: Transaction,
    tree_id: int,
    calls: Sequence[CallRow],
    conflict: Callable[[CallDifference], None] | None = None,
    drawn: Collection[str] = (),
) -> list[CallRow]:
    """Write calls into the ledger, where they are not there yet; return those that were not.

    One that is there with other numbers raises `CallConflict`, or calls ``conflict``: the ledger keeps the first. Those
    that go by an id of ``drawn``, of entries that are just being made, cannot be there.
    """
    if drawn:
        new = [call for call in calls if call.call_id in drawn]
        tx.insert(INSERT_CALL, [ledger_row(tree_id, call, drawn) for call in new])
        others = [call for call in calls if call.call_id not in drawn]
        return [*new, *insert_calls(tx, tree_id, others, conflict)] if others else new
    if len(calls) >= _MANY and tx.is_alone:
        return _insert_many(tx, tree_id, calls, conflict)
    new = []
    if calls:
        name_calls(tx, calls)
    for call in calls:
        if tx.run(INSERT_CALL, tree_id=tree_id, **call._asdict()):
            new.append(call)
        else:
            _compare(_known(tx, call), call, conflict)
    return new


def ledger_row(tree_id: int, call: CallRow, drawn: Collection[str]) -> tuple[object, ...]:
    """Return a call as it is stored: without an id of its own where it goes by one that was drawn for its entry."""
    if call.call_id not in drawn:
        return (tree_id, *call)
    scope, provider, _, *rest = call
    return (tree_id, scope, provider, None, *rest)


def name_calls(tx: Transaction, calls: Iterable[CallRow]) -> None:
    """Have the ledger's unique index know the calls that go by one of these ids, though they are not named by it."""
    tx.run(ledger_sql.NAME_CALLS, ids=json.dumps([call.call_id for call in calls]))


def _insert_many(
    tx: Transaction, tree_id: int, calls: Sequence[CallRow], conflict: Callable[[CallDifference], None] | None
) -> list[CallRow]:
    """Do the same in two statements: as nobody else writes, what is asked first is still so afterwards."""
    known: dict[tuple[str, str, str], CallRow] = {}
    for scope in {call.scope for call in calls}:
        names = json.dumps([(call.provider, call.call_id) for call in calls if call.scope == scope])
        known.update((call.identity, call) for call in tx.rows(ledger_sql.FIND_CALLS, scope=scope, ids=names))
    new = []
    for call in calls:
        first = known.setdefault(call.identity, call)
        if first is call:
            new.append(call)
        else:
            _compare(first, call, conflict)
    tx.insert(INSERT_CALL, [(tree_id, *call) for call in new])
    return new


def unpriced_calls(tx: Transaction, after: int, limit: int) -> list[UnpricedCall]:
    """Return calls whose cost is unknown (see `Backend.unpriced_calls`)."""
    return list(tx.rows(ledger_sql.UNPRICED_CALLS, after_key=after, count=limit))


def price_calls(tx: Transaction, prices: Sequence[CallPrice]) -> int:
    """Give calls their costs (see `Backend.price_calls`)."""
    numbers = json.dumps([price.number for price in prices])
    payers = {number: (key, tree) for number, key, tree in tx.rows(ledger_sql.PAYERS_OF_CALLS, keys=numbers)}
    spent: dict[int, tuple[int, int]] = {}
    filled = 0
    for number, cost, source in prices:
        if number not in payers or not tx.run(ledger_sql.SET_COST, number=number, cost=cost, price_source=source):
            continue
        key, _ = payers[number]
        calls, total = spent.get(key, (0, 0))
        spent[key] = (calls + 1, total + cost)
        filled += 1
    for key, (calls, total) in sorted(spent.items()):
        tx.run(ledger_sql.ADD_COST, session_key=key, calls=calls, cost=total)
    for tree_id in sorted({tree for key, tree in payers.values() if key in spent}):
        renew_sums(tx, tree_id, NOBODY)
    return filled


def take_back(tx: Transaction, calls: Iterable[tuple[CallRow, Sequence[str]]]) -> list[CallRow]:
    """Delete the rows that calls take the place of (see `replaced_by`), by the ids they name; return those rows."""
    gone: list[CallRow] = []
    for call, names in calls:
        gone += _delete(tx, replaced_by(call, names, partial(_call_of, tx, call)))
    return gone


def take_alone(tx: Transaction, calls: Iterable[CallRow]) -> Sequence[CallRow]:
    """Delete the rows of calls that were booked without the entry they belong to; return those rows."""
    distinct = {call.identity: call for call in calls}.values()
    found = ((call, find_call(tx, call.scope, CallId(call.provider, call.call_id))) for call in distinct)
    return _delete(tx, [known for call, known in found if known is not None and is_booked_alone(call, known)])


def _delete(tx: Transaction, calls: Sequence[CallRow]) -> Sequence[CallRow]:
    if calls:
        name_calls(tx, calls)
    for known in calls:
        scope, provider, call_id = known.identity
        key = known.session_key
        tx.run(ledger_sql.DELETE_CALL, scope=scope, provider=provider, call_id=call_id, session_key=key)
    return calls


def _call_of(tx: Transaction, call: CallRow, name: str) -> CallRow | None:
    return find_call(tx, call.scope, CallId(call.provider, name))


def calls_of_entry(tx: Transaction, session_id: str, entry_id: str) -> list[CallRow]:
    """Return the calls that a session reported with an entry (see `Backend.calls_of_entry`)."""
    state = read_state(tx, session_id)
    return list(tx.rows(ledger_sql.CALLS_OF_ENTRY, session_key=state.key, entry_id=entry_id))


def _compare(known: CallRow, call: CallRow, conflict: Callable[[CallDifference], None] | None) -> None:
    differing = differences(known, call)
    if differing and conflict is None:
        raise CallConflict(call.provider, call.call_id, differing)
    if differing and conflict is not None:
        conflict(CallDifference(call.provider, call.call_id, differing))


def distinct_calls(calls: Iterable[CallRow]) -> list[CallRow]:
    """Return calls without those that are reported twice. Raises `CallConflict` where one has other numbers then."""
    found: dict[tuple[str, str, str], CallRow] = {}
    for call in calls:
        differing = differences(found.setdefault(call.identity, call), call)
        if differing:
            raise CallConflict(call.provider, call.call_id, differing)
    return list(found.values())


def _known(tx: Transaction, call: CallRow) -> CallRow:
    row = find_call(tx, call.scope, CallId(call.provider, call.call_id))
    return call if row is None else row


def find_call(tx: Transaction, scope: str, identity: CallId) -> CallRow | None:
    """Return a call of the ledger, or None."""
    return tx.first(ledger_sql.FIND_CALL, scope=scope, provider=identity.provider, call_id=identity.call_id)


def find_calls(tx: Transaction, scope: str, identities: Sequence[CallId]) -> list[CallRow]:
    """Return those of these calls that are in the ledger, in no order (see `Backend.find_calls`)."""
    if not all(is_storable(name) for name in (scope, *(name for identity in identities for name in identity))):
        return []
    return list(tx.rows(ledger_sql.FIND_CALLS, scope=scope, ids=json.dumps(identities)))


def paid_by(calls: Iterable[CallRow]) -> Paid:
    """Return what calls come to."""
    total = NOTHING_PAID
    for call in calls:
        total = call.paid if total is NOTHING_PAID else total.plus(call.paid)
    return total


def check_spending(tokens: int, picodollars: int) -> None:
    """Raise `InvalidEntry` where what a session has spent would leave the stored range."""
    if max(tokens, picodollars) > MAX_AMOUNT:
        raise SumTooLarge(f"usage: what the session spent would exceed {MAX_AMOUNT}; check the reported numbers")


def check_path(sums: Iterable[Sequence[int]]) -> None:
    """Raise `InvalidEntry` where what the path to an entry cost would leave the stored range."""
    if any(max(each) > MAX_AMOUNT for each in sums):
        raise SumTooLarge(f"usage: what the path cost would exceed {MAX_AMOUNT}; check the reported numbers")


def take_calls_of_deleted(tx: Transaction, state: SessionState) -> set[CallId]:
    """Give a new session what one of its id that was deleted has paid: it was, and is back. O(calls).

    Those that have no entry are returned: the session may bring it.
    """
    ids = json.dumps([state.id])
    earlier = [key for _, key, _ in tx.rows(ledger_sql.PAYERS_OF, ids=ids) if key != state.key]
    for key in earlier:
        tx.run(ledger_sql.TAKE_CALLS, earlier_key=key, session_key=state.key, tree_id=state.tree_id, scope=state.scope)
        tx.run(ledger_sql.DROP_PAYER, session_key=key)
    calls = tx.rows(ledger_sql.OWN_CALLS, session_key=state.key) if earlier else ()
    if calls:
        tx.insert(INSERT_PAYER, [(state.tree_id, *payer_row(state))])
        tx.run(append_sql.ADD_SPENDING, **append_sql.spending(paid_by(calls)), session_key=state.key)
    return {CallId(call.provider, call.call_id) for call in calls if call.entry_id is None}


def was_deleted(tx: Transaction, session_ids: Collection[str], scope: str) -> dict[str, bool]:
    """Return those of these ids that sessions had which were deleted (see `Backend.was_deleted`)."""
    rows = tx.rows(ledger_sql.DELETED, ids=json.dumps(sorted(session_ids)), scope=scope)
    return {name: bool(had_entries) for name, had_entries in rows if _is_noted(tx, deletion_of(name, scope).id)}


def _is_noted(tx: Transaction, name: DocumentName) -> bool:
    """Return whether a deletion was noted in a scope, or in none: in a copy, and before it was noted at all."""
    scope, kind, space, project, own = name
    noted = tx.rows(documents_sql.NAMES_IN_PROJECT, scope=scope, kind=kind, space=space, project=project)
    return not noted or (own,) in noted


def payer_row(state: SessionState) -> Payer:
    """Return the session as the ledger names it."""
    return Payer(state.key, state.id, project=state.cwd or None)


def record_call(
    tx: Transaction, sources: Sources, session_id: str, call: PaidCall, steps: Sequence[PaidCall] = ()
) -> Recorded:
    """Write a paid call without an entry, and its steps by other models (see `Backend.record_call`)."""
    recorded = _record(tx, sources, session_id, call)
    for step in steps:
        of_step = step.call_id or ledger_name(f"{recorded.call_id}:{step.model}")
        recorded = recorded.plus(_record(tx, sources, session_id, changed(step, call_id=of_step)))
    return recorded


def _record(tx: Transaction, sources: Sources, session_id: str, call: PaidCall) -> Recorded:
    state = read_state(tx, session_id)
    now = sources.now_us()
    call_id = sources.entry_id() if call.call_id is None else call.call_id
    row = call_row(call, scope=state.scope, call_id=call_id, session_key=state.key, entry_id=None, at_us=now)
    gone = take_back(tx, [(row, call.replaces)])
    # What stands for the report that an entry brought belongs to that entry.
    row = row._replace(entry_id=next((known.entry_id for known in gone if known.entry_id is not None), None))
    new = insert_calls(tx, state.tree_id, [row])
    if not new and not gone:
        known = _known(tx, row)
        return Recorded(row.provider, call_id, False, known.cost, known.price_source, state.revision)
    spent = paid_by(new).minus(paid_by(gone))
    check_spending(state.spent_tokens + spent.tokens, state.spent_cost + spent.picodollars)
    tx.insert(INSERT_PAYER, [(state.tree_id, *payer_row(state))])
    tx.run(
        append_sql.UPDATE_AFTER_APPEND,
        leaf=state.leaf,
        revision=state.revision + 1,
        at=now,
        entry_count=0,
        message_count=0,
        first_message=None,
        **append_sql.spending(spent),
        newest=None,
        session_key=state.key,
    )
    if gone:
        renew_sums(tx, state.tree_id, state.key)
    return Recorded(row.provider, call_id, True, row.cost, row.price_source, state.revision + 1)
