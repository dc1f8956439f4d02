"""Histories that are plain lists: their messages as a chain of entries, each with an id that stays the same.

An entry without an id of its own gets one made from the session's id, the entry before it and its content. The same
list always gives the same ids, a longer one begins with them, and a list that was changed in the middle becomes a
branch beside what was imported before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flue_py.core.entries import NewEntry, checked_kind, entry_of_message
from flue_py.core.ids import made_id
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.sessions import NewSession
from flue_py.errors import InvalidEntry, shown
from flue_py.formats.kit.parsed import ParsedSession
from flue_py.formats.kit.rows import Notes
from flue_py.formats.kit.values import one_text

UNREADABLE_MESSAGE = "unreadable_message"
"""The kind of an entry whose message cannot be one: kept whole, never in the context."""


def message_entry(message: JsonObject, original: JsonValue, at: int, notes: Notes) -> tuple[NewEntry, JsonObject]:
    """Return a message as an entry, and what stands beside it in ``extra``. Never raises.

    What of its usage cannot be counted is noted; so is what cannot be a message at all, and is kept as ``original``, in
    an entry outside the context.
    """
    try:
        entry = entry_of_message(message)
    except InvalidEntry as error:
        usage = message.get("usage")
        if message.get("role") == "assistant" and _storable(usage) is not usage:
            notes.repair(at, f"{error}; it is kept as text")
            return message_entry({**message, "usage": _storable(usage)}, original, at, notes)
        notes.repair(at, f"{error}; kept as {UNREADABLE_MESSAGE}, outside the context")
        return plain_entry(UNREADABLE_MESSAGE, _storable(original)), {}
    for oddity in entry.oddities:
        notes.repair(at, oddity)
    return entry, {}


def plain_entry(kind: str, data: JsonValue) -> NewEntry:
    """Return an entry of any kind, its payload made storable. Raises `InvalidEntry` for the kind."""
    text, replaced = encode_json(_storable(data), kind)
    return NewEntry(checked_kind(kind), text, surrogates_replaced=replaced, built=True)


def _storable(value: JsonValue) -> JsonValue:
    """Return a value that JSON text here can hold: itself, or its own text where numbers or nesting forbid it."""
    try:
        encode_json([[[value]]], "value")  # it will stand a few levels deep
    except InvalidEntry:
        try:
            return {"text": json.dumps(value, ensure_ascii=False)}
        except (ValueError, RecursionError):
            return {"text": shown(value)}
    return value


@dataclass(slots=True)
class Chain:
    """A list that is being made into entries, each the child of the one before it."""

    session_id: str
    notes: Notes
    entries: list[NewEntry] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    leaf: str | None = None
    linked: str = ""
    """The id that the next made id is made from."""

    def add(
        self,
        entry: NewEntry,
        at: int,
        *,
        beside: Mapping[str, JsonValue] | None = None,
        entry_id: str | None = None,
        created_us: int | None = None,
        is_link: bool = True,
        known_by: NewEntry | None = None,
    ) -> str:
        """Put an entry at the end of the chain, and return its id.

        ``at`` is its line or index. An id that is made is made of what ``known_by`` says, if it is given. Without
        ``is_link`` the ids of later entries do not depend on this one.
        """
        extra, replaced = encode_json(_storable(dict(beside)), "extra") if beside else (None, 0)
        found = entry_id or self._unused(known_by or entry)
        surrogates = entry.surrogates_replaced + replaced
        self.notes.surrogates_replaced += surrogates
        calls = tuple(replace(call, call_id=call.call_id or f"import:{found}") for call in entry.calls)
        self.entries.append(
            replace(
                entry,
                id=found,
                parent_id=self.leaf,
                created_us=created_us,
                extra=extra,
                surrogates_replaced=surrogates,
                calls=calls,
            )
        )
        self.lines[found] = len(self.entries) if self.notes.unit == "item" else at
        self.leaf = found
        if is_link:
            self.linked = found
        return found

    def _unused(self, entry: NewEntry) -> str:
        number = 0
        while (found := made_id(self.session_id, self.linked, entry.kind, entry.payload, str(number))) in self.lines:
            number += 1
        return found

    def parsed(
        self, format_name: str, version: str, session: NewSession, *, is_rewritten: bool = True
    ) -> ParsedSession:
        """Return the session with the chain's entries, its leaf being the end of the chain."""
        return ParsedSession(
            format=format_name,
            version=version,
            session=session,
            entries=tuple(self.entries),
            leaf=self.leaf,
            lines=self.lines,
            report=self.notes.report(),
            is_rewritten=is_rewritten,
        )


def imported_session(
    session_id: str,
    format_name: str,
    name: str,
    document: Mapping[str, JsonValue],
    notes: Notes,
    *,
    title: str | None = None,
    auto_title: str | None = None,
    cwd: str | None = None,
    created_us: int | None = None,
) -> NewSession:
    """Return the session to create; its metadata says where it came from, with the rest of the document."""
    imported: JsonObject = {"format": format_name, "file": one_text(name), **document}
    try:
        text, replaced = encode_json({"imported": imported}, "metadata")
    except InvalidEntry as error:
        notes.repair(0, f"{error}; what stands beside the messages is kept as text")
        rest = {key: _storable(value) for key, value in imported.items()}
        text, replaced = encode_json({"imported": rest}, "metadata")
    notes.surrogates_replaced += replaced
    return NewSession(
        id=session_id, title=title, cwd=cwd, metadata_text=text, created_us=created_us, auto_title=auto_title
    )
