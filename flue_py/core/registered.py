"""Registered texts: what every compaction of a session brings back word for word.

Each registration is an entry of its own on the path, which no model sees: a branch has the texts of its path, and a
later entry of the same name takes the place of the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue

REGISTERED = "registered"
"""The kind of these entries, and the name under which a compaction notes those in force."""

RegisteredKind: TypeAlias = Literal["instructions", "plan", "todo", "skill"]
REGISTERED_KINDS: tuple[RegisteredKind, ...] = ("instructions", "plan", "todo", "skill")
"""What is registered, in the order in which it is shown."""


@frozen
class RegisteredText:
    """A text that every compaction brings back word for word: its name, what it is, and the entry that set it last."""

    name: str
    kind: RegisteredKind
    text: str
    entry_id: str


def registration(name: str, kind: RegisteredKind | None, text: str | None) -> JsonObject:
    """Return the payload of an entry that registers a text; None for both takes it off the register."""
    return {"name": name, "kind": kind, "text": text}


def texts_in_force(entries: Iterable[Entry], before: Sequence[Entry] = ()) -> tuple[RegisteredText, ...]:
    """Return the texts in force at the end of a path, in the order of their names' first registration.

    ``before`` are the entries in force where ``entries`` begin, or anywhere after that. What is not a registration is
    passed over. O(entries).
    """
    found: dict[str, RegisteredText] = {}
    for entry in (*before, *entries):
        if entry.kind != REGISTERED:
            continue
        data = entry.data
        read = _read(data, entry.id) if isinstance(data, dict) else None
        if read is not None:
            found[read.name] = read
        elif isinstance(data, dict) and isinstance(name := data.get("name"), str):
            found.pop(name, None)
    return tuple(found.values())


def _read(data: JsonObject, entry_id: str) -> RegisteredText | None:
    name, kind, text = data.get("name"), data.get("kind"), data.get("text")
    if not isinstance(name, str) or not isinstance(text, str) or kind not in REGISTERED_KINDS:
        return None
    return RegisteredText(name, kind, text, entry_id)


def noted_ids(details: JsonValue) -> list[str] | None:
    """Return the ids of the entries that a compaction notes as in force; None where it notes nothing of that."""
    listed = details.get(REGISTERED) if isinstance(details, dict) else None
    if not isinstance(listed, list):
        return None
    return [each for each in listed if isinstance(each, str)]
