"""Documents that are one JSON value: the value, and the items of a list in it, whatever state it is in.

A list is read item by item where it cannot be read whole, so that one bad item, or a torn end, costs that item only.
Items count from 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from flue_py.core.jsontext import MAX_DIGITS, JsonObject, JsonValue
from flue_py.errors import UnreadableFile
from flue_py.formats.kit.rows import Notes

_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_BLANK = re.compile(r"[\s,]*")


@dataclass(frozen=True, slots=True)
class Item:
    """One object of a list, with its index."""

    index: int
    value: JsonObject


@dataclass(frozen=True, slots=True)
class Items:
    """The objects of a list, and the fields beside the list in the object that holds it."""

    items: Sequence[Item]
    beside: JsonObject = field(default_factory=dict)


def read_document(data: bytes, notes: Notes, name: str) -> JsonValue:
    """Return the value of a JSON document. Raises `UnreadableFile`. Numbers that cannot be stored are noted."""
    text = _decoded(data, notes)
    try:
        return _loads(text, notes)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{name} is not a JSON document ({_reason(error)}); nothing was imported") from error


def read_object(data: bytes, notes: Notes, name: str) -> JsonObject:
    """Return the object of a JSON document. Raises `UnreadableFile`."""
    value = read_document(data, notes, name)
    if not isinstance(value, dict):
        raise UnreadableFile(f"{name} is a JSON {type(value).__name__}, not an object; nothing was imported")
    return value


def read_items(data: bytes, notes: Notes, name: str, keys: Sequence[str]) -> Items:
    """Return the objects in a list, in an object that has one under one of ``keys``, or one a line.

    Items that are not objects, or cannot be read, are skipped. Raises `UnreadableFile` for anything else. O(size).
    """
    text = _decoded(data, notes)
    start = text.lstrip()[:1]
    try:
        value = _loads(text, notes)
    except (ValueError, RecursionError) as error:
        if start == "[":
            return Items(tuple(_objects(_one_by_one(text, notes), notes)))
        if start == "{" and _is_one_a_line(text):
            return Items(tuple(_objects(_line_by_line(text, notes), notes)))
        raise UnreadableFile(f"{name} is not a JSON document ({_reason(error)}); nothing was imported") from error
    if isinstance(value, list):
        return Items(tuple(_objects(enumerate(value), notes)))
    if isinstance(value, dict):
        for key in keys:
            held = value.get(key)
            if isinstance(held, list):
                beside = {other: item for other, item in value.items() if other != key}
                return Items(tuple(_objects(enumerate(held), notes)), beside)
        if "role" in value or "type" in value:
            return Items(tuple(_objects(enumerate([value]), notes)))
    raise UnreadableFile(f"{name} holds no list of messages; nothing was imported")


def items_of(value: JsonValue, notes: Notes) -> list[Item]:
    """Return the objects of a list inside a document; none if it is not a list."""
    return list(_objects(enumerate(value), notes)) if isinstance(value, list) else []


def _objects(values: Iterator[tuple[int, JsonValue]] | enumerate[JsonValue], notes: Notes) -> Iterator[Item]:
    for index, value in values:
        notes.rows += 1
        if isinstance(value, dict):
            yield Item(index, value)
        else:
            notes.skip(index, f"is a JSON {type(value).__name__}, not an object")


def _decoded(data: bytes, notes: Notes) -> str:
    data = data.removeprefix(b"\xef\xbb\xbf")
    text = data.decode(errors="replace")
    if "\ufffd" in text and text.encode() != data:
        notes.repair(0, "bytes that are not UTF-8 were replaced by U+FFFD")
    return text


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


# --- JSON that others print ---------------------------------------------------------------------------------


def _decoder(notes: Notes, index: Callable[[], int]) -> json.JSONDecoder:
    def constant(word: str) -> str:
        notes.repair(index(), f"{word} is not a JSON number; it is kept as text")
        return word

    def integer(digits: str) -> int | str:
        if len(digits.lstrip("-")) <= MAX_DIGITS:
            return int(digits)
        notes.repair(index(), f"a number of {len(digits)} digits is kept as text")
        return digits

    return json.JSONDecoder(parse_constant=constant, parse_int=cast("Callable[[str], int]", integer))


def _loads(text: str, notes: Notes) -> JsonValue:
    trial = Notes(notes.unit)
    value = _decoder(trial, lambda: 0).decode(text)
    # Only now: where the document is read again, item by item, the notes are made again.
    for note in trial.repaired:
        notes.repair(note.line, note.text)
    return cast("JsonValue", value)


def _one_by_one(text: str, notes: Notes) -> Iterator[tuple[int, JsonValue]]:
    """Yield the values of a list that cannot be read whole, with their indexes."""
    at, index = text.index("[") + 1, 0
    decoder = _decoder(notes, lambda: index)
    while True:
        at = cast("re.Match[str]", _BLANK.match(text, at)).end()
        if at >= len(text):
            notes.skip(index, "the list is torn here")
            return
        if text[at] == "]":
            return
        try:
            value, at = decoder.raw_decode(text, at)
            yield index, cast("JsonValue", value)
        except (ValueError, RecursionError) as error:
            notes.rows += 1
            notes.skip(index, f"is not JSON ({_reason(error)}); a torn or damaged item")
            end = _end_of_value(text, at)
            if end is None:
                return
            at = end
        index += 1


def _end_of_value(text: str, at: int) -> int | None:
    """Return where a value that cannot be read ends, by its brackets; None if it does not end."""
    depth = 0
    for match in _BRACKET.finditer(text, at):
        sign = match.group()
        if sign in ("{", "["):
            depth += 1
        elif sign in ("}", "]"):
            depth -= 1
            if depth <= 0:
                return match.end() if depth == 0 else None
    return None


def _is_one_a_line(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) > 1 and lines[0].lstrip().startswith("{") and lines[0].rstrip().endswith("}")


def _line_by_line(text: str, notes: Notes) -> Iterator[tuple[int, JsonValue]]:
    index = 0
    decoder = _decoder(notes, lambda: index)
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            yield index, cast("JsonValue", decoder.decode(line.strip()))
        except (ValueError, RecursionError) as error:
            notes.rows += 1
            notes.skip(index, f"is not JSON ({_reason(error)}); a torn or damaged item")
        index += 1
