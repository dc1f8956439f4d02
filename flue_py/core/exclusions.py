"""What is left out of a context.

An ``exclusion`` entry on the path names another entry, or one part of its content, and leaves it out of the context
of everything below; with ``"excluded": false`` it takes it back in, with a ``replacement`` in the place of its content
if it has one. The last one on the path holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import EXCLUSION

WHOLE = None
REPLACEMENT = "replacement"
"""The field of an exclusion that takes an entry back in with another content: text, or a list of parts."""


@frozen
class Exclusion:
    """What the exclusions of a path leave out: an entry, or (``part``: a position or an id) one part of it.

    ``exclusion_id`` is the entry that says so, with who was behind it and why. ``in_effect`` is False if the
    context would not have it anyway: it is not on the path, or was compacted away, or there is no such part.
    """

    entry_id: str
    part: int | str | None
    exclusion_id: str
    by: str | None = None
    why: str | None = None
    in_effect: bool = True


class Excluding(NamedTuple):
    """An entry's fields, where it is an exclusion that can be read."""

    entry_id: str
    part: int | str | None
    excluded: bool


def read_exclusion(value: JsonValue) -> Excluding | None:
    """Return what the payload of an exclusion says; None if it says nothing that can be understood."""
    if not isinstance(value, dict) or not isinstance(entry_id := value.get("entryId"), str):
        return None
    part = value.get("part")
    if isinstance(part, bool) or not (part is None or isinstance(part, (int, str))):
        return None
    return Excluding(entry_id, part, value.get("excluded") is not False)


def excluded_parts(path: Iterable[Entry]) -> dict[str, dict[int | str | None, Entry]]:
    """Return what the exclusions among these entries leave out: by entry, the parts, each with who says so.

    `WHOLE` (None) as a part stands for the whole entry. To take a whole entry back in takes back its parts, too.
    """
    found: dict[str, dict[int | str | None, Entry]] = {}
    for entry in path:
        if entry.kind != EXCLUSION or (read := read_exclusion(entry.data)) is None:
            continue
        parts = found.setdefault(read.entry_id, {})
        if read.excluded:
            parts[read.part] = entry
        elif read.part is WHOLE:
            parts.clear()
        else:
            parts.pop(read.part, None)
    return {entry_id: parts for entry_id, parts in found.items() if parts}


def replacements(path: Iterable[Entry]) -> dict[str, Entry]:
    """Return which exclusions among these entries put another content in the place of an entry's, by that entry's id.

    The last one counts, from its place on the path on.
    """
    found: dict[str, Entry] = {}
    for entry in path:
        if entry.kind != EXCLUSION or (read := read_exclusion(entry.data)) is None:
            continue
        if not read.excluded and read.part is WHOLE and isinstance(entry.fields.get(REPLACEMENT), (str, list)):
            found[read.entry_id] = entry
    return found


def with_replacement(message: JsonObject, content: JsonValue) -> JsonObject:
    """Return a message with another content, in the form that its own content has."""
    is_text = isinstance(content, str) and not isinstance(message.get("content"), str)
    return {**message, "content": [{"type": "text", "text": content}] if is_text else content}


def without_parts(message: JsonObject, parts: frozenset[int | str]) -> JsonObject:
    """Return a message without some parts of its content, named by position or id."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [part for number, part in enumerate(content) if not _is_named(number, part, parts)]}


def _is_named(number: int, part: JsonValue, names: frozenset[int | str]) -> bool:
    part_id = part.get("id") if isinstance(part, dict) else None
    return number in names or (isinstance(part_id, str) and part_id in names)


def has_part(message: JsonObject, part: int | str) -> bool:
    """Return whether the content of a message has a part at this position, or with this id."""
    content = message.get("content")
    names = frozenset((part,))
    return isinstance(content, list) and any(_is_named(number, each, names) for number, each in enumerate(content))
