"""pi session files, versions 1 to 3, row by row: files of any length, in little memory.

Version 1 has no ids: an entry's id is then derived from the session's id and the number of its line, so that the same
file always gives the same entries. pi stores no leaf: it is the last entry of the file. Only a file that does not begin
with a session header is refused.

A row whose parent comes later in the file waits for it, up to a bound; beyond that it becomes a root.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import replace

from flue_py.core.jsontext import JsonObject, encode_json
from flue_py.core.sessions import MAX_LABEL_CHARACTERS, NewSession
from flue_py.errors import InvalidEntry, UnreadableFile, shown
from flue_py.formats.kit.parsed import LabelChange
from flue_py.formats.kit.report import ParseReport
from flue_py.formats.kit.rows import Notes, Row, decode_row, has_type, is_name, unusable_id
from flue_py.formats.kit.streaming import Draft, IdTable, SessionPart, TitleChange, first_rows
from flue_py.formats.kit.values import one_text, read_moment
from flue_py.formats.pi.entries import FORMAT, LABEL, SESSION_INFO, PiFile, new_entry

_MAX_WAITING = 100_000
_MAX_WAITING_BYTES = 16 * 2**20
_PLACED, _LEFT_OUT, _WAITING = 1, 2, 3
# How pi begins a row: a type, then the id. Any other row is decoded to find its id.
_BEGINNING = re.compile(rb'\s*\{"type"\s*:\s*"([^"\\]*)"\s*,\s*"id"\s*:\s*"([^"\\]+)"')


def looks_like_pi(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a pi session file."""
    for raw in first_rows(first_bytes):
        row = decode_row(2, raw, Notes())
        if row is not None and isinstance(row.get("type"), str):
            return row["type"] == "session" and is_name(row.get("id")) and "entries" not in row
    return False


class PiReader:
    """Reads a pi session file row by row (see `Reader`)."""

    needs_scan = True
    needs_whole = False

    def __init__(self, name: str = "the file") -> None:
        self._name = name
        self._notes = Notes()
        self._file: PiFile | None = None
        self._session: NewSession | None = None
        self._has_ids: bool | None = None
        """Whether its rows have ids of their own; None until the scan has met the header."""

        self._announced = IdTable()
        self._known = IdTable()
        self._first_lines: dict[str, int] = {}
        """The line of the first row of each id that occurs more than once."""

        self._previous: str | None = None
        self._waiting: dict[str, list[Row]] = {}
        self._waiting_count = 0
        self._waiting_bytes = 0
        self._last_line = 0
        self._title_line = 0
        self._label_lines: dict[str, int] = {}
        self._early_labels: list[tuple[int, LabelChange]] = []
        """Labels, with their lines, of entries that were still to come."""

        self._draft = Draft()

    # -- the interface ------------------------------------------------------------------------------------------

    def scan(self, number: int, raw: bytes) -> None:
        """Take down the id of a row, to know which entries come later."""
        if self._has_ids is False:
            return
        found = _BEGINNING.match(raw)
        if found is not None and found[1] != b"session":
            name = found[2].decode(errors="replace")
        else:
            row = decode_row(number, raw, Notes()) or {}
            if row.get("type") == "session" and self._has_ids is None:
                self._has_ids = _version(row) >= 2
            given = row.get("id")
            if row.get("type") == "session" or not is_name(given):
                return
            name = given
        if self._announced.get(name) is not None:
            self._first_lines[name] = 0
        self._announced.put(name)

    def feed(self, number: int, raw: bytes) -> None:
        """Read a line. Raises `UnreadableFile` if the first readable row is not a session header."""
        fields = decode_row(number, raw, self._notes)
        if fields is None or not has_type(number, fields, self._notes):
            return
        row = Row(number, raw.decode(errors="replace").strip(), fields)
        if self._file is None:
            self._file = self._begin(row)
            return
        is_header = row.type == "session"
        if self._file.version < 2:
            self._file.lines.append(0 if is_header else number)
        if is_header:
            self._notes.skip(number, "is a second session header")
        elif self._file.version < 2:
            row.id, row.parent = self._file.id_on(number), self._previous
            self._previous = row.id
            self._hand_over(row, self._file)
        else:
            self._place(row, self._file)

    def _begin(self, row: Row) -> PiFile:
        header = row.fields
        session_id = _session_id(header, self._name)
        version = _version(header)
        created_us = read_moment(header.get("timestamp"))
        imported = {"format": FORMAT, "version": version, "file": one_text(self._name) or "", "header": header}
        try:
            metadata, replaced = encode_json({"imported": imported}, "header")
        except InvalidEntry as error:
            raise UnreadableFile(f"{self._name}: {error}; nothing was imported") from error
        self._notes.surrogates_replaced += replaced
        self._session = NewSession(
            id=session_id, cwd=one_text(header.get("cwd")), metadata_text=metadata, created_us=created_us
        )
        return PiFile(session_id, version, created_us, self._notes, array("Q", [row.line]))

    @property
    def ready(self) -> int:
        """How many entries can be taken."""
        return len(self._draft.entries)

    def take(self) -> list[SessionPart]:
        """Return what is ready."""
        session, draft = self._session, self._draft
        if session is None or self._file is None or not draft.has_part:
            return []
        if draft.titles:
            session = replace(session, title=draft.titles[-1].title)
        return [draft.take(FORMAT, str(self._file.version), session)]

    def finish(self, *, take_all: bool) -> list[SessionPart]:
        """Return what is left. A pi entry is one row, so that nothing is held back."""
        if self._file is None:
            _session_id({}, self._name)
        else:
            self._give_up_waiting("is missing", self._file)
        for line, label in self._early_labels:
            if self._known.get(label.target_id) != _PLACED:
                self._note_no_target(line, label.target_id)
                self._draft.labels = [other for other in self._draft.labels if other is not label]
        return self.take()

    def report(self) -> ParseReport:
        """Return what came of the rows."""
        return self._notes.report()

    # -- where rows stand in the tree ---------------------------------------------------------------------------

    def _place(self, row: Row, file: PiFile) -> None:
        entry_id, parent = row.fields.get("id"), row.fields.get("parentId")
        if not is_name(entry_id):
            self._notes.skip(row.line, unusable_id(entry_id))
            return
        if self._known.get(entry_id) is not None:
            first = self._first_lines.get(entry_id)
            self._notes.skip(row.line, f"repeats the id {entry_id!r} of line {first}; the first one counts")
            return
        if entry_id in self._first_lines:
            self._first_lines[entry_id] = row.line
        row.id = entry_id
        row.parent = parent if isinstance(parent, str) and parent else None
        if row.parent == row.id:
            self._make_root(row, "names itself as its parent")
        elif row.parent is not None and self._known.get(row.parent) != _PLACED:
            if self._may_come(row.parent):
                self._wait(row, row.parent, file)
                return
            self._make_root(row, f"names the parent {shown(row.parent)}, which is missing")
        self._emit(row, file)

    def _may_come(self, entry_id: str) -> bool:
        """Return whether an entry that was not returned may still be."""
        known = self._known.get(entry_id)
        return known == _WAITING or (known is None and self._announced.get(entry_id) is not None)

    def _make_root(self, row: Row, why: str) -> None:
        row.lost_parent, row.parent = row.parent, None
        self._notes.repair(row.line, f"entry {row.id!r} {why}; it became a root")

    def _wait(self, row: Row, parent: str, file: PiFile) -> None:
        self._known.put(row.id, _WAITING)
        self._waiting.setdefault(parent, []).append(row)
        self._waiting_count += 1
        self._waiting_bytes += len(row.text)
        if self._waiting_count > _MAX_WAITING or self._waiting_bytes > _MAX_WAITING_BYTES:
            self._give_up_waiting("comes too much later", file)

    def _give_up_waiting(self, why: str, file: PiFile) -> None:
        """Leave out rows that are their own ancestors, and make roots of those that wait for nothing that waits."""
        rows = sorted((row for waiting in self._waiting.values() for row in waiting), key=lambda row: row.line)
        by_id = {row.id: row for row in rows}
        cyclic = _on_cycles(by_id)
        for row in cyclic:
            self._known.put(row.id, _LEFT_OUT)
            self._notes.skip(row.line, f"entry {row.id!r} is its own ancestor (its parent is {shown(row.parent)})")
        left_out = {row.id for row in cyclic}
        for row in rows:
            is_orphan = row.parent in left_out
            if row.id in left_out or (row.parent in by_id and not is_orphan):
                continue
            self._waiting.pop(str(row.parent), None)
            self._make_root(row, f"names the parent {shown(row.parent)}, which {'is missing' if is_orphan else why}")
            self._emit(row, file)
        self._waiting, self._waiting_count, self._waiting_bytes = {}, 0, 0

    def _emit(self, row: Row, file: PiFile) -> None:
        """Hand an entry over, and those that were waiting for it."""
        ready = [row]
        while ready:
            row = ready.pop()
            self._hand_over(row, file)
            for late in reversed(self._waiting.pop(row.id, ())):
                self._waiting_count -= 1
                self._waiting_bytes -= len(late.text)
                ready.append(late)

    def _hand_over(self, row: Row, file: PiFile) -> None:
        self._known.put(row.id, _PLACED)
        self._draft.entries.append(new_entry(row, file))
        self._draft.lines.append(row.line)
        if row.line > self._last_line:
            self._last_line = row.line
            self._draft.leaves.append(row.id)
        if row.type == SESSION_INFO:
            self._retitle(row)
        elif row.type == LABEL:
            self._label(row)

    # -- titles and labels: the last one in the file counts -------------------------------------------------------

    def _retitle(self, row: Row) -> None:
        title = (one_text(row.fields.get("name")) or "").strip()
        if title and row.line > self._title_line:
            self._title_line = row.line
            self._draft.titles.append(TitleChange(row.id, title))

    def _label(self, row: Row) -> None:
        target, label = row.fields.get("targetId"), one_text(row.fields.get("label")) or ""
        is_there = isinstance(target, str) and self._known.get(target) == _PLACED
        if not isinstance(target, str) or not (is_there or self._may_come(target)):
            self._note_no_target(row.line, target)
            return
        if len(label) > MAX_LABEL_CHARACTERS:
            self._notes.repair(row.line, f"a label of {len(label)} characters was cut to {MAX_LABEL_CHARACTERS}")
        if row.line < self._label_lines.get(target, 0):
            return
        self._label_lines[target] = row.line
        change = LabelChange(row.id, target, label[:MAX_LABEL_CHARACTERS] or None)
        self._draft.labels.append(change)
        if not is_there:
            self._early_labels.append((row.line, change))

    def _note_no_target(self, line: int, target: object) -> None:
        self._notes.repair(line, f"labels {shown(target)}, which is not in the file; no label was set")


read_pi = PiReader


def _version(header: JsonObject) -> int:
    version = header.get("version")
    return version if isinstance(version, int) and not isinstance(version, bool) else 1


def _session_id(header: JsonObject, name: str) -> str:
    """Return the session's id. Raises `UnreadableFile` if the first readable row is not a header with one."""
    session_id = header.get("id")
    is_header = header.get("type") == "session"
    if is_header and is_name(session_id):
        return session_id
    if is_header and isinstance(session_id, str) and session_id:
        raise UnreadableFile(f"{name}: its session header {unusable_id(session_id)}; nothing was imported")
    raise UnreadableFile(
        f"{name} is not a pi session: its first readable line is not a session header with an id; nothing was imported"
    )


def _on_cycles(by_id: Mapping[str, Row]) -> list[Row]:
    """Return the rows that are their own ancestors. A row has one parent, so that a walk ends in one cycle at most."""
    cyclic: list[Row] = []
    met_from: dict[str, str] = {}
    for start in by_id:
        at: str | None = start
        while at is not None and at in by_id and at not in met_from:
            met_from[at] = start
            at = by_id[at].parent
        if at is None or met_from.get(at) != start:
            continue
        row, first = by_id[at], len(cyclic)
        while len(cyclic) == first or row is not cyclic[first]:
            cyclic.append(row)
            row = by_id[str(row.parent)]
    return cyclic
