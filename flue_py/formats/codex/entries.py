"""The entries of a Codex rollout while they are made, one below the other: their ids, and when they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flue_py.core.ids import derived_id
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.core.sessions import NewSession
from flue_py.errors import InvalidEntry
from flue_py.formats.codex.rows import FORMAT, UNREADABLE, CodexRow
from flue_py.formats.kit.encoding import Content, encode_decoded, message_content
from flue_py.formats.kit.parsed import TaskOf
from flue_py.formats.kit.rows import Notes
from flue_py.formats.kit.streaming import Draft, SessionPart
from flue_py.formats.kit.values import read_moment


class Entries:
    """The entries of one rollout that were not returned yet. ``tail`` is the one that the next hangs below."""

    def __init__(
        self,
        notes: Notes,
        session: NewSession,
        version: str,
        parent: TaskOf | None,
        segment: str,
        name: str | None,
    ) -> None:
        self._notes = notes
        self._session = session
        self._version = version
        self._parent = parent
        self._segment = segment
        self._name = name
        self._last_time: int | None = None
        self.place = segment
        """Which of the files that the session goes through the next rows are of; "" for the one that it began with."""

        self.pays = True
        """Whether the calls of what comes next are the session's own."""
        self.draft = Draft()
        self.tail: str | None = None

    @property
    def ready(self) -> int:
        """How many can be taken."""
        return len(self.draft.entries)

    def take(self) -> list[SessionPart]:
        """Return what is ready, and forget it."""
        draft = self.draft
        if not draft.has_part:
            return []
        part = draft.take(FORMAT, self._version, self._session, self._parent)
        return [replace(part, segment=self._segment, name=self._name)]

    def id_of(self, row: CodexRow) -> str:
        """Return the id of the entry that a row becomes."""
        return derived_id(f"{self._session.id}{self.place}", row.line, row.raw.strip().decode(errors="replace"))

    def unsettled_id(self, begins: CodexRow) -> str:
        """Return the id of the call for tokens whose entry is not complete yet, by the row where that entry begins."""
        return f"codex:{self.id_of(begins)}"

    def settle(self, entry_id: str, begins: CodexRow) -> None:
        """Note that an entry's call may have been booked before the entry was complete; it begins in a row."""
        self.draft.settles[entry_id] = (self.unsettled_id(begins),)

    def emit(self, row: CodexRow, content: Content, *, entry_id: str | None = None, line: int | None = None) -> str:
        """Hand an entry over, below the one before it. Return its id."""
        name = entry_id or self.id_of(row)
        moment = read_moment(row.timestamp)
        if moment is None:
            moment = self._last_time
            if moment is None:
                moment = self._session.created_us
        else:
            self._last_time = moment
        self._notes.surrogates_replaced += content.surrogates_replaced
        if content.calls and not self.pays:
            content = content._replace(calls=(), unpaid=True)
        extra = f'{{"line":{line or row.line}}}'
        self.draft.entries.append(content.placed(name, self.tail, moment, extra, content.surrogates_replaced))
        self.draft.lines.append(line or row.line)
        if content.kind in (MESSAGE, COMPACTION):
            self.draft.leaves.append(name)
        self.tail = name
        return name

    def emit_step(self, rows: Sequence[CodexRow], spoken: CodexRow, content: Content, *, begins: CodexRow) -> None:
        """Add the entry that several rows make, under the id of the last, at the time of the spoken one."""
        ids = [self.id_of(row) for row in rows]
        if content.calls:
            self.settle(ids[-1], begins)
        self.emit(spoken, content, entry_id=ids[-1], line=rows[-1].line)
        if len(ids) > 1:
            self.draft.earlier[ids[-1]] = tuple(ids[:-1])

    def leave_unfinished(self) -> None:
        """Note that the rows of the last message may not be complete."""
        self.draft.unfinished = frozenset(self.draft.leaves[-1:])

    def go_back(self, to: str | None) -> None:
        """Go on below an earlier entry: what follows is another branch."""
        self.tail = to
        if to is not None:
            self.draft.leaves.append(to)

    # -- what they hold -----------------------------------------------------------------------------------------

    def message(self, row: CodexRow, message: JsonObject, items: Sequence[JsonObject]) -> Content:
        """Return a message; where it cannot be one, the items it was made of."""
        try:
            return message_content(message)
        except InvalidEntry as error:
            return self._unreadable(row, f"{UNREADABLE}message", error, {"items": list(items)})

    def custom(self, row: CodexRow, kind: str, body: JsonValue) -> Content:
        """Return an entry that is not a message."""
        try:
            text, replaced = encode_decoded(body, kind)
        except InvalidEntry as error:
            return self._unreadable(row, f"{UNREADABLE}entry", error, None)
        return Content(kind, text, surrogates_replaced=replaced)

    def _unreadable(self, row: CodexRow, kind: str, error: InvalidEntry, body: JsonValue) -> Content:
        self._notes.repair(row.line, f"{error}; kept as {kind}, outside the context")
        try:
            if body is None:
                raise error
            text, replaced = encode_json(body, kind)
        except InvalidEntry:
            text, replaced = encode_json({"line": row.text}, kind)
        return Content(kind, text, surrogates_replaced=replaced)
