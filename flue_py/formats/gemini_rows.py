"""The conversation in a session file of Gemini CLI: its messages now, and the paths that they were before."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.errors import shown
from flue_py.formats.kit import Notes, has_type, is_name, unusable_id
from flue_py.providers.base import fields_of, listed, only, without

# A file says which messages the conversation has now: a row adds a message or replaces the one of its id, ``$rewindTo``
# takes messages from the end, and ``$set`` may replace the whole list. Each list that the conversation had is a path.
#
# A list leaves out fields of a message (tokens, thoughts, calls of tools), which are taken from the rows before it. Its
# first message, the session's context, is made anew on resuming: the new one is a change of the old one, behind the
# messages that were there. A summary stands behind the messages that it sums up.

ANSWER = "gemini"
"""The type of an answer of the model."""
_CONTEXT = "<session_context>"
"""The beginning of the message that the program puts first, with the date and the folder."""
_THANKS: list[JsonValue] = [{"text": "Got it. Thanks for the additional context!"}]
"""The answer that the program makes up to its summary: it has no other mark."""
_MOST, _FAR_MORE = 1_000_000, 50_000_000
"""How many messages the lists of a file may have in all, to be paths, and to be read at all."""

_Key = tuple[str, str]


class Record(Frozen):
    """A message of the file, and the line or the index of the row that it is from.

    ``key`` is its id, of which a call of a tool and its result may have the same one, and its type. ``is_context`` says
    that it is the session's context, ``is_change`` that it takes the place of the first one.
    """

    line: int
    fields: JsonObject
    key: _Key
    is_context: bool = False
    is_change: bool = False


def _record(line: int, fields: JsonObject) -> Record:
    key = str(fields["id"]), str(fields["type"])
    first = fields_of(next(iter(content_parts(fields.get("content"))), None)).get("text")
    is_context = key[1] == "user" and isinstance(first, str) and first[:100].lstrip().startswith(_CONTEXT)
    return Record(line, fields, key, is_context)


class Conversation(Struct):
    """The conversation as the rows so far have it: its messages, and the paths that they were before."""

    notes: Notes
    records: dict[_Key, Record] = field(default_factory=dict)
    paths: list[list[Record]] = field(default_factory=list)
    versions: dict[_Key, list[Record]] = field(default_factory=dict)
    """The rows of each message, in the order of the file."""

    first: Record | None = None
    """The first context of the session."""

    changes: dict[_Key, list[Record]] = field(default_factory=dict)
    """The contexts that took its place later, by the message behind which they did."""

    summed_up: dict[_Key, list[Record]] = field(default_factory=dict)
    """The path before each summary."""

    about: JsonObject = field(default_factory=dict)
    """The first header, as later ones and ``$set`` rows have changed it."""

    steps: int = 0

    def read(self, line: int, row: JsonObject) -> None:
        """Take over a row. One that is none of the program is noted."""
        changes = row.get("$set")
        if self.steps > _FAR_MORE:
            self.notes.skip(line, "comes after more changes of the conversation than are followed")
        elif isinstance(name := row.get("$rewindTo"), str):
            self._rewind(line, name)
        elif "id" not in row and isinstance(changes, dict):
            self.notes.left_out["sets fields of the session"] += 1
            self._set(line, changes)
        elif "id" not in row and "sessionId" in row:
            self.notes.left_out["is a header"] += 1
            self._set(line, row)
        elif self._is_message(line, row):
            record = _record(line, row)
            rows = self.versions.setdefault(record.key, [])
            rows.append(record)
            self.records[record.key] = record
            self.notes.merged += len(rows) > 1

    def _is_message(self, line: int, row: JsonObject) -> bool:
        if is_name(row.get("id")):
            return has_type(line, row, self.notes)
        self.notes.skip(line, unusable_id(row.get("id")))
        return False

    def _rewind(self, line: int, name: str) -> None:
        self.notes.left_out["takes messages back"] += 1
        records = [*self.records.values()]
        at = next((at for at, record in enumerate(records) if record.key[0] == name), 0)
        if not records or records[at].key[0] != name:
            self.notes.repair(line, f"goes back to {shown(name)}, which is not there; the conversation begins anew")
        self._replace(line, records[:at])

    def _set(self, line: int, changes: JsonObject) -> None:
        self.about.update(without(changes, "messages") | only(self.about, "sessionId", "startTime"))
        items = [fields_of(item) for item in listed(changes.get("messages"))]
        records = [self._of_list(_record(line, item)) for item in items if self._is_message(line, item)]
        if records:
            self._sum_up(records)
            self._replace(line, records)
            self._change_first(line, records[0])

    def _of_list(self, record: Record) -> Record:
        """Return a message of a list, with the fields that its own row has beside its text."""
        rows = self.versions.get(record.key) or [record]
        content = record.fields.get("content")
        if _words(content) == _words(rows[-1].fields.get("content")):
            return rows[-1]
        return _record(record.line, {**rows[-1].fields, "content": content})

    def _replace(self, line: int, records: Sequence[Record]) -> None:
        path = [] if self.is_full else self.path()
        self.paths.append(path)
        self.steps += len(path or self.records) + 1
        self.records = {record.key: record for record in records}
        if self.is_full:
            self.notes.repair(line, "the conversation was changed too often; the messages that it had are no branch")

    @property
    def is_full(self) -> bool:
        """Whether no more paths are made: rows of a few bytes can each make a long one."""
        return self.steps > _MOST

    def _sum_up(self, records: Sequence[Record]) -> None:
        """Remember the path before a summary, if a list begins with a new one."""
        asked, answer, *_ = [*records[records[0].is_context :], None, None]
        if asked is None or answer is None or asked.key in self.summed_up or self.is_full:
            return
        is_made = not any(isinstance(row.fields.get("tokens"), dict) for row in self.versions.get(answer.key, ()))
        types = asked.key[1], answer.key[1]
        if is_made and types == ("user", ANSWER) and _words(answer.fields.get("content")) == _THANKS:
            new = {record.key for record in records if not record.is_context}
            self.summed_up[asked.key] = [record for record in self.path() if record.key not in new]

    def _change_first(self, line: int, first: Record) -> None:
        """Take the first message of a list for the session's context, from the end of the list on."""
        if self.first is None and first.is_context:
            self.first = first
        if self.first is None or len(self.records) == 1 or self.is_full:
            return
        path = self.path()
        now = next((record for record in reversed(path) if record.is_change), self.first)
        new = first if first.is_context else Record(line, {}, ("", "user"))
        if _words(now.fields.get("content")) != _words(new.fields.get("content")):
            last = next(record for record in reversed(path) if not record.is_change)
            self.changes.setdefault(last.key, []).append(replace(new, line=line, is_change=True))

    def path(self) -> list[Record]:
        """Return the messages now, behind those that are summed up, with each change of the first one in its place."""
        records = [record for record in self.records.values() if self.first is None or not record.is_context]
        before: list[Record] = []
        if records and records[0].key in self.summed_up:
            before = self.summed_up[records[0].key]
        elif self.first is not None:
            records = [self.first, *records]
        return before + [item for record in records for item in (record, *self.changes.get(record.key, ()))]


def content_parts(content: JsonValue) -> list[JsonValue]:
    """Return the parts of a content of any form."""
    values = content if isinstance(content, list) else [] if content in ("", None) else [content]
    return [{"text": part} if isinstance(part, str) else part for part in values]


def _words(content: JsonValue) -> list[JsonValue]:
    """Return the parts of a content that are neither thoughts nor calls, which a row has in fields of their own."""
    parts = [
        part
        for part in map(fields_of, content_parts(content))
        if not part.get("thought") and "functionCall" not in part
    ]
    return [without(part, "thoughtSignature") for part in parts]
