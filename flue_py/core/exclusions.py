"""What is left out of a context, and what belongs together in it: a tool call and its results.

An ``exclusion`` entry on the path names another entry, or one part of its content, and leaves it out of the context
of everything below; with ``"excluded": false`` it takes it back in. The last one on the path holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flue_py.core.entries import EXCLUSION, MESSAGE, Entry
from flue_py.core.exchanges import answered_id, called_ids
from flue_py.core.jsontext import JsonObject, JsonValue

WHOLE = None


@dataclass(frozen=True, slots=True)
class Exclusion:
    """What the exclusions of a path leave out: an entry, or (``part``: a position or an id) one part of it.

    ``exclusion_id`` is the entry that says so, with who was behind it and why. ``in_effect`` is False where the
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
    """Return what the payload of an exclusion says; None where it says nothing that can be understood."""
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


class ToolGroup(NamedTuple):
    """An assistant message with tool calls (``caller``) and the results of these (``results``: by call), by index.

    ``is_open`` where calls have no result, and nothing yet says that none will come.
    """

    caller: int | None
    results: dict[str, int]
    is_open: bool

    @property
    def members(self) -> list[int]:
        """The indices of all its messages, in order."""
        return sorted({*([] if self.caller is None else [self.caller]), *self.results.values()})


def tool_group(messages: Sequence[Mapping[str, JsonValue] | None], index: int) -> ToolGroup | None:
    """Return the group that a message belongs to; None for one with neither calls nor a call it answers.

    ``messages`` are consecutive; None stands for what is no message. A group ends at the next assistant message. Of a
    result whose call is not there, the group is the result alone.
    """
    message = messages[index]
    if message is None:
        return None
    answered = answered_id(message)
    caller: int | None = index
    if answered is not None:
        before = (number for number in range(index - 1, -1, -1) if _role(messages[number]) == "assistant")
        caller = next(before, None)
        if caller is None or answered not in called_ids(messages[caller] or {}):
            return ToolGroup(None, {answered: index}, is_open=False)
    assert caller is not None
    calls = called_ids(messages[caller] or {})
    if not calls:
        return None
    results: dict[str, int] = {}
    is_over = False
    for number in range(caller + 1, len(messages)):
        role = _role(messages[number])
        if role == "assistant":
            is_over = True
            break
        is_over = is_over or role == "user"
        call_id = answered_id(messages[number] or {})
        if call_id in calls:
            results.setdefault(str(call_id), number)
    return ToolGroup(caller, results, is_open=not is_over and len(results) < len(set(calls)))


def group_is_whole(messages: Sequence[Mapping[str, JsonValue] | None], index: int) -> tuple[bool, bool]:
    """Return whether a stretch reaches far enough before and after a message to tell the group it belongs to."""
    roles = [_role(message) for message in messages]
    reaches_back = roles[index] != "toolResult" or "assistant" in roles[:index]
    return reaches_back, "assistant" in roles[index + 1 :]


def _role(message: Mapping[str, JsonValue] | None) -> JsonValue:
    return None if message is None else message.get("role")


def messages_of(entries: Iterable[Entry]) -> list[JsonObject | None]:
    """Return the messages of entries, None for those that are none."""
    return [entry.fields if entry.kind == MESSAGE else None for entry in entries]


def group_ids(entries: Sequence[Entry], messages: Sequence[JsonObject | None], index: int) -> list[str]:
    """Return the ids of the entries that belong together with one of them; it alone where none does."""
    group = tool_group(messages, index)
    members = [index] if group is None else group.members
    return [entries[member].id for member in members]
