"""Rows of a JSONL file: reading them, and the report on what came of them.

No fault of a row is fatal: a row that cannot be used is left out, and noted by its line number.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeGuard, cast

import pydantic_core

from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import MAX_NAME_BYTES, is_usable
from flue_py.errors import shown
from flue_py.formats.kit.report import LineNote, ParseReport

MAX_NOTES = 1_000
"""How many notes of a kind a report lists. It counts them all."""


@dataclass(slots=True)
class Row:
    """One line that is a JSON object with a type, and the place in the tree it turns out to have.

    ``lost_parent`` is the parent it names if there is no such entry; ``parent`` is then None.
    """

    line: int
    text: str
    fields: JsonObject
    id: str = ""
    parent: str | None = None
    lost_parent: str | None = None

    @property
    def type(self) -> str:
        """What the row says it is."""
        return cast("str", self.fields["type"])


@dataclass(slots=True)
class Notes:
    """The report while it is being written; ``unit`` is what is numbered in it."""

    unit: str = "line"
    rows: int = 0
    skipped: list[LineNote] = field(default_factory=list)
    repaired: list[LineNote] = field(default_factory=list)
    unknown_kinds: Counter[str] = field(default_factory=Counter)
    surrogates_replaced: int = 0
    skipped_rows: int = 0
    repaired_rows: int = 0
    merged: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    held_back: int = 0
    held_back_from: int | None = None

    def skip(self, line: int, why: str) -> None:
        """Note that a line made no entry."""
        self.skipped_rows += 1
        if len(self.skipped) < MAX_NOTES:
            self.skipped.append(LineNote(line, why, self.unit))

    def repair(self, line: int, how: str) -> None:
        """Note that a line made an entry that differs from what the line says."""
        self.repaired_rows += 1
        if len(self.repaired) < MAX_NOTES:
            self.repaired.append(LineNote(line, how, self.unit))

    def hold_back(self, line: int) -> None:
        """Note that a line at the end was not taken, since what it belongs to may not be complete."""
        self.held_back += 1
        if self.held_back_from is None or line < self.held_back_from:
            self.held_back_from = line

    def restart(self) -> None:
        """Forget everything that was noted: it is of another file."""
        self.__init__(self.unit)  # type: ignore[misc]

    def report(self) -> ParseReport:
        """Return the report, its notes in order of line."""
        return ParseReport(
            rows=self.rows,
            skipped=tuple(sorted(self.skipped, key=lambda note: note.line)),
            repaired=tuple(sorted(self.repaired, key=lambda note: note.line)),
            unknown_kinds=dict(sorted(self.unknown_kinds.items())),
            surrogates_replaced=self.surrogates_replaced,
            skipped_rows=self.skipped_rows,
            repaired_rows=self.repaired_rows,
            merged=self.merged,
            left_out=dict(sorted(self.left_out.items())),
            held_back=self.held_back,
            held_back_from=self.held_back_from,
        )


def read_rows(lines: Iterable[bytes], notes: Notes) -> list[Row]:
    """Return the lines that are JSON objects with a type, in file order. Blank lines do not count."""
    rows = []
    for number, raw in enumerate(lines, 1):
        fields = decode_row(number, raw, notes)
        if fields is not None and has_type(number, fields, notes):
            rows.append(Row(number, raw.decode(errors="replace").strip(), fields))
    return rows


def decode_row(number: int, raw: bytes, notes: Notes) -> JsonObject | None:
    """Return the JSON object on a line; None for a blank line, and if it is not an object, which is noted. O(size)."""
    data = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
    if not data or data.isspace():
        return None
    notes.rows += 1
    try:
        value = pydantic_core.from_json(data, allow_inf_nan=False)
    except (ValueError, TypeError):  # a TypeError for half of a surrogate pair
        value = _decode_carefully(number, data.strip(), notes)
        if value is None:
            return None
    if type(value) is not dict:
        notes.skip(number, f"is a JSON {type(value).__name__}, not an object")
        return None
    return value


def _decode_carefully(number: int, data: bytes, notes: Notes) -> object:
    """Return the value of a line that the fast parser refuses; None if the slow one refuses it, too, which is noted."""
    text = data.decode(errors="replace")
    words: list[str] = []

    def kept(word: str) -> str:
        words.append(word)
        return word

    try:
        value = json.loads(text, parse_constant=kept)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        notes.skip(number, f"is not JSON ({reason}); a torn or damaged line")
        return None
    if words:
        notes.repair(number, f"{words[0]} is not a JSON number; it is kept as text")
    if "\ufffd" in text and text.encode() != data:
        notes.repair(number, "bytes that are not UTF-8 were replaced by U+FFFD")
    if value is None:
        notes.skip(number, "is a JSON NoneType, not an object")
    return cast("object", value)


def has_type(number: int, fields: JsonObject, notes: Notes) -> bool:
    """Return whether a row has a type; note it if it has none."""
    if isinstance(fields.get("type"), str):
        return True
    notes.skip(number, "has no type")
    return False


def is_name(value: object) -> TypeGuard[str]:
    """Return whether a value can be the id of something new: text that is not empty nor too long, without controls."""
    if type(value) is str and 0 < len(value) <= MAX_NAME_BYTES and value.isascii() and value.isprintable():
        return True
    return isinstance(value, str) and is_usable(value)


def unusable_id(value: object) -> str:
    """Return what is wrong with the id of a row that has none to use."""
    return "has no usable id" if value in (None, "") else f"has the id {shown(value)}, which cannot be used"
