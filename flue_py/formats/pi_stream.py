"""pi session files row by row (see `streaming`): the same entries as `pi.parse_pi` gives, in little memory.

A row whose parent comes later in the file waits for it, up to a bound; beyond that it becomes a root.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import cast, overload

from flue_py.core.entries import NewEntry
from flue_py.core.jsontext import encode_json
from flue_py.core.sessions import MAX_LABEL_CHARACTERS, NewSession
from flue_py.errors import shown
from flue_py.formats import pi
from flue_py.formats.parsed import LabelChange, ParsedSession
from flue_py.formats.report import ParseReport
from flue_py.formats.rows import Notes, Row, decode_row, has_type, is_name, unusable_id
from flue_py.formats.streaming import (
    IdTable,
    SessionPart,
    TitleChange,
    first_rows,
    one_text,
    read_time,
)

_MAX_WAITING = 10_000
_MAX_WAITING_BYTES = 16 * 2**20
_ID = re.compile(rb'"id"\s*:\s*"([^"\\]{1,200})"')
_WHERE_IDS_ARE = 400


def looks_like_pi(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a pi session file."""
    for raw in first_rows(first_bytes):
        row = decode_row(2, raw, Notes())
        if row is not None and isinstance(row.get("type"), str):
            return row["type"] == "session" and is_name(row.get("id")) and "entries" not in row
    return False


def parse_pi_file(lines: Sequence[bytes], name: str) -> Sequence[ParsedSession]:
    """Return the one session of a file, as `pi.parse_pi` does."""
    return [pi.parse_pi(lines, name)]


class _Rows(Sequence[Row]):
    """The readable rows of a version 1 file, of which only the lines are kept: what `firstKeptEntryIndex` counts."""

    def __init__(self) -> None:
        self.session_id = ""
        self.lines = array("Q")

    def __len__(self) -> int:
        return len(self.lines)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        line = self.lines[index]
        return Row(line, "", {}, id=pi.derived_id(self.session_id, line))


class PiReader:
    """Reads a pi session file row by row (see `RowReader`)."""

    needs_scan = True

    def __init__(self, name: str = "the file") -> None:
        self._name = name
        self._notes = Notes()
        self._file: pi._File | None = None
        self._session: NewSession | None = None
        self._rows = _Rows()
        self._announced = IdTable()
        self._placed = IdTable()
        self._previous: str | None = None
        self._waiting: dict[str, list[Row]] = {}
        self._waiting_count = 0
        self._waiting_bytes = 0
        self._last_line = 0
        self._entries: list[NewEntry] = []
        self._lines: list[int] = []
        self._leaves: list[str] = []
        self._labels: list[LabelChange] = []
        self._titles: list[TitleChange] = []
        self._is_new = True
        self.ready = 0

    # -- the interface ------------------------------------------------------------------------------------------

    def scan(self, number: int, raw: bytes) -> None:
        """Take down the id of a row, to know which parents come later."""
        found = _ID.search(raw, 0, _WHERE_IDS_ARE)
        if found is not None:
            self._announced.put(found[1].decode(errors="replace"))

    def feed(self, number: int, raw: bytes) -> None:
        """Read a line. Raises `UnreadableFile` where the first readable row is no session header."""
        fields = decode_row(number, raw, self._notes)
        if fields is None or not has_type(number, fields, self._notes):
            return
        row = Row(number, raw.decode(errors="replace").strip(), fields)
        if self._file is None:
            self._begin(row)
            return
        if self._file.version < 2:
            self._rows.lines.append(number)
        if row.type == "session":
            self._notes.skip(number, "is a second session header")
        elif self._file.version < 2:
            row.id, row.parent = pi.derived_id(self._rows.session_id, number), self._previous
            self._previous = row.id
            self._emit(row)
        else:
            self._place(row)

    def _begin(self, row: Row) -> None:
        header = pi._header([row], self._name)
        self._file = pi._File(pi._version(header), read_time(header.get("timestamp")), self._rows, self._notes)
        self._rows.session_id = cast("str", header["id"])
        self._rows.lines.append(row.line)
        imported = {
            "format": pi.FORMAT,
            "version": self._file.version,
            "file": one_text(self._name) or "",
            "header": header,
        }
        metadata, replaced = encode_json({"imported": imported}, "header")
        self._notes.surrogates_replaced += replaced
        self._session = NewSession(
            id=self._rows.session_id,
            cwd=one_text(header.get("cwd")),
            metadata_text=metadata,
            created_us=self._file.created_us,
        )

    def take(self) -> list[SessionPart]:
        """Return what is ready."""
        self.ready = 0
        if self._session is None or self._file is None or not (self._entries or self._is_new):
            return []
        part = SessionPart(
            pi.FORMAT,
            str(self._file.version),
            self._session,
            tuple(self._entries),
            tuple(self._leaves),
            tuple(self._lines),
            labels=tuple(self._labels),
            titles=tuple(self._titles),
        )
        self._entries, self._lines, self._leaves, self._labels, self._titles = [], [], [], [], []
        self._is_new = False
        return [part]

    def finish(self, *, take_all: bool) -> list[SessionPart]:
        """Return what is left. A pi entry is one row, so that nothing is held back."""
        if self._file is None:
            pi._header([], self._name)
        self._give_up_waiting("is missing, or its own descendant")
        return self.take()

    def report(self) -> ParseReport:
        """Return what came of the rows."""
        return self._notes.report()

    # -- where rows stand in the tree ---------------------------------------------------------------------------

    def _place(self, row: Row) -> None:
        entry_id, parent = row.fields.get("id"), row.fields.get("parentId")
        if not is_name(entry_id):
            self._notes.skip(row.line, unusable_id(entry_id))
            return
        if self._placed.get(entry_id) is not None:
            self._notes.skip(row.line, f"repeats the id {entry_id!r} of an earlier line; the first one counts")
            return
        self._placed.put(entry_id, 0)
        row.id = entry_id
        row.parent = parent if isinstance(parent, str) and parent else None
        if row.parent == row.id:
            self._make_root(row, "names itself as its parent")
        elif row.parent is not None and self._placed.get(row.parent) != 1:
            if self._placed.get(row.parent) is None and self._announced.get(row.parent) is None:
                self._make_root(row, f"names the parent {shown(row.parent)}, which is missing")
            else:
                self._wait(row, row.parent)
                return
        self._emit(row)

    def _make_root(self, row: Row, why: str) -> None:
        row.lost_parent, row.parent = row.parent, None
        self._notes.repair(row.line, f"entry {row.id!r} {why}; it became a root")

    def _wait(self, row: Row, parent: str) -> None:
        self._waiting.setdefault(parent, []).append(row)
        self._waiting_count += 1
        self._waiting_bytes += len(row.text)
        if self._waiting_count > _MAX_WAITING or self._waiting_bytes > _MAX_WAITING_BYTES:
            self._give_up_waiting("comes too much later")

    def _give_up_waiting(self, why: str) -> None:
        while self._waiting:
            row = min((rows[0] for rows in self._waiting.values()), key=lambda row: row.line)
            waiting = self._waiting[str(row.parent)]
            waiting.remove(row)
            if not waiting:
                del self._waiting[str(row.parent)]
            self._forget(row)
            self._make_root(row, f"names the parent {shown(row.parent)}, which {why}")
            self._emit(row)

    def _forget(self, row: Row) -> None:
        self._waiting_count -= 1
        self._waiting_bytes -= len(row.text)

    def _emit(self, row: Row) -> None:
        """Hand an entry over, and those that were waiting for it."""
        ready = [row]
        while ready:
            row = ready.pop()
            self._hand_over(row)
            for late in reversed(self._waiting.pop(row.id, ())):
                self._forget(late)
                ready.append(late)

    def _hand_over(self, row: Row) -> None:
        assert self._file is not None
        self._placed.put(row.id, 1)
        self._entries.append(pi._new_entry(row, self._file))
        self._lines.append(row.line)
        if row.line > self._last_line:
            self._last_line = row.line
            self._leaves.append(row.id)
        if row.type == pi.SESSION_INFO:
            title = (one_text(row.fields.get("name")) or "").strip()
            if title:
                self._titles.append(TitleChange(row.id, title))
        elif row.type == pi.LABEL:
            self._label(row)
        self.ready += 1

    def _label(self, row: Row) -> None:
        target, label = row.fields.get("targetId"), one_text(row.fields.get("label")) or ""
        if not isinstance(target, str) or self._placed.get(target) != 1:
            self._notes.repair(row.line, f"labels {shown(target)}, which is not in the file; no label was set")
            return
        if len(label) > MAX_LABEL_CHARACTERS:
            self._notes.repair(row.line, f"a label of {len(label)} characters was cut to {MAX_LABEL_CHARACTERS}")
        self._labels.append(LabelChange(row.id, target, label[:MAX_LABEL_CHARACTERS] or None))
