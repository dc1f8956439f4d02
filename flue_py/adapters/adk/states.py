"""State that is folded from entries of a path: at every leaf, the state is what the path up to there made of it.

So a rewind, an undo and a fork have the state of their place. An entry that changes the state has the state in full
beside it (``is``), or names the entries to fold, the first of which has it in full (``in``). An entry that changes
nothing names the last one that did (``at``). The state is written in full whenever naming the changes since would take
more.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from flue_py.adapters.adk.events import BESIDE, STATE, as_text, beside_of, is_part
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.errors import CorruptStore, InvalidEntry

FIELD = "state"

_NAMED = 40  # bytes that naming one entry takes
_MOST = 64  # entries to read at most

Read = Callable[[Sequence[str]], Awaitable[Sequence[Entry | None]]]


class State(NamedTuple):
    """A state, and the entries that made it: the first of them has it in full."""

    values: JsonObject
    made_by: tuple[str, ...] = ()

    def beside(self) -> JsonObject:
        """Return what an entry that changes nothing has beside it."""
        return {FIELD: {"at": self.made_by[-1]}} if self.made_by else {}

    def changed(self, delta: Mapping[str, JsonValue], entry_id: str) -> tuple[State, JsonObject]:
        """Return the state after a change by an entry, and what that entry has beside it. O(state)."""
        values = {**self.values, **delta}
        text = as_text(values, "state")
        count = len(self.made_by) + 1
        if not self.made_by or count > _MOST or _NAMED * count * count / 2 + count * len(json.dumps(delta)) > len(text):
            return State(values, (entry_id,)), {FIELD: {"is": held(values)}}
        return State(values, (*self.made_by, entry_id)), {FIELD: {"in": list(self.made_by)}}


NOTHING = State({})


def first_state(values: JsonObject, entry_id: str) -> NewEntry:
    """Return the entry with the state that a session begins with. O(state)."""
    return NewEntry.custom(STATE, {"is": held(values)}, id=entry_id)


def later_state(state: State, delta: JsonObject, entry_id: str) -> NewEntry:
    """Return the entry with a change of a state that came with no event. O(state)."""
    _, beside = state.changed(delta, entry_id)
    return NewEntry.custom(STATE, {"set": held(delta)}, id=entry_id, extra={BESIDE: beside})


async def state_at(entry: Entry, read: Read, delta_of: Callable[[Entry], JsonObject]) -> State | None:
    """Return the state at an entry, or None where it is not told there. ``read`` reads others by their ids."""
    beside = beside_of(entry)
    told = _told(entry, beside)
    if told is None:
        return None if beside is None or is_part(beside) else NOTHING
    if isinstance(told.get("at"), str):
        return await state_at(_there(await read([str(told["at"])]), entry)[0], read, delta_of)
    if "is" in told:
        return State(_object(told["is"]), (entry.id,))
    named = told.get("in")
    ids = [str(name) for name in named] if isinstance(named, list) else []
    first, *others = _there(await read(ids), entry)
    values = _object((_told(first, beside_of(first)) or {}).get("is"))
    for other in (*others, entry):
        values.update(delta_of(other))
    return State(values, (*ids, entry.id))


def delta_of_state(entry: Entry) -> JsonObject:
    """Return what an entry that came with no event changed."""
    return _object(entry.fields.get("set"))


def held(values: JsonObject) -> JsonValue:
    """Return a state as it is stored: as text where no JSON in UTF-8 can hold it. O(size)."""
    try:
        if not encode_json(values, "state")[1]:
            return values
    except InvalidEntry:
        pass
    return as_text(values, "state")


def _told(entry: Entry, beside: JsonObject | None) -> JsonObject | None:
    if entry.kind == STATE and entry.extra is None:
        return entry.fields
    told = None if beside is None else beside.get(FIELD)
    return told if isinstance(told, dict) else None


def _object(stored: JsonValue) -> JsonObject:
    value = json.loads(stored) if isinstance(stored, str) else stored
    return dict(value) if isinstance(value, dict) else {}


def _there(entries: Sequence[Entry | None], entry: Entry) -> list[Entry]:
    found = [each for each in entries if each is not None]
    if len(found) != len(entries) or not found:
        raise CorruptStore(f"entry {entry.id!r}: an entry that its state is made of is not there; run verify()")
    return found
