"""Paid calls that a file counts before their entries are complete: booked at once, and once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flue_py.core.calls import CallDifference, PaidCall
from flue_py.core.entries import NewEntry
from flue_py.core.ledger import CallId, call_row, is_part_of
from flue_py.core.rows import CallRow
from flue_py.core.usage import TOO_LARGE, SumTooLarge
from flue_py.errors import CallConflict, shown
from flue_py.formats.kit.streaming import SessionPart
from flue_py.sessions.store import Store
from flue_py.transfer.importing.targets import Target


async def with_settled(store: Store, target: Target, part: SessionPart, entries: list[NewEntry]) -> list[NewEntry]:
    """Return entries whose calls replace those that an earlier import booked without an entry.

    One look-up of the calls that the entries name, or stand for. What has an entry stays as it is.
    """
    named = {
        CallId(call.provider, name)
        for entry in entries
        for call in entry.calls
        for name in (call.call_id, *part.settles.get(str(entry.id), ()))
        if name is not None
    }
    known = await _known(store, target, list(named))
    alone = {name for name, row in known.items() if row.entry_id is None}
    if not alone:
        return entries
    return [
        replace(entry, calls=tuple(_settling(call, part.settles.get(str(entry.id), ()), alone) for call in entry.calls))
        for entry in entries
    ]


def _settling(call: PaidCall, names: Sequence[str], alone: set[CallId]) -> PaidCall:
    found = [name for name in (call.call_id, *names) if name is not None and CallId(call.provider, name) in alone]
    return replace(call, replaces=(*call.replaces, *found))


async def book_calls(store: Store, target: Target) -> list[CallDifference]:
    """Book calls that have no entry, and return those that the ledger has with other numbers.

    A call that is booked already stays, unless this report counts more, or says which report it takes the place of.
    """
    calls, target.calls = target.calls, []
    if target.is_older_copy:
        return []
    known = await _known(store, target, [CallId(call.provider, call.call_id) for call in calls if call.call_id])
    if target.unsettled:
        known.update(await _with_entries(store, target))
    conflicts = []
    for reported in calls:
        call = _grown(reported, known.get(CallId(reported.provider, reported.call_id or "")))
        if call is None:
            continue
        try:
            target.booked += (await target.session.import_call(call)).is_new
        except CallConflict as error:
            conflicts.append(CallDifference(error.provider, error.call_id, error.differences))
        except SumTooLarge:
            target.note_oddities([f"call {shown(call.call_id)}: usage: {TOO_LARGE}"], ())
    return conflicts


def _grown(call: PaidCall, there: CallRow | None) -> PaidCall | None:
    """Return a call as it is to be booked; None if the ledger has as much of it."""
    if there is None or call.replaces:
        return call
    now = call_row(
        call, scope=there.scope, call_id=there.call_id, session_key=there.session_key, entry_id=None, at_us=0
    )
    if is_part_of(now, there):
        return None
    return replace(call, replaces=(there.call_id,)) if is_part_of(there, now) else call


async def _with_entries(store: Store, target: Target) -> dict[CallId, CallRow]:
    """Return the calls that are booked with an entry, by the ids that they have while that is not complete."""
    session = target.session
    found = {}
    for entry_id in await store.backend.taken_entry_ids(session.id, list(target.unsettled)):
        for row in await store.backend.calls_of_entry(session.ref, entry_id):
            found.update({CallId(row.provider, name): row for name in target.unsettled[entry_id]})
    return found


async def _known(store: Store, target: Target, names: Sequence[CallId]) -> dict[CallId, CallRow]:
    rows = await store.backend.find_calls(target.session.scope, names) if names else []
    return {CallId(row.provider, row.call_id): row for row in rows}
