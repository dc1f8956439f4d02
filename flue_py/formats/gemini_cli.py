"""Session files of Gemini CLI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import REPLACEMENT, Layout, NewEntry, Range, laid_out
from flue_py.core.json import Frozen, JsonObject, JsonValue, decode_object, without
from flue_py.core.kinds import EXCLUSION, message_text
from flue_py.core.sessions import made_id
from flue_py.core.usage import read_reported, usage_json
from flue_py.errors import UnreadableFile, shown
from flue_py.formats import kit
from flue_py.formats.gathered import read_beside
from flue_py.providers.base import fields_of, listed, only
from flue_py.providers.gemini import messages_from_gemini
from flue_py.providers.openai_chat import calls_in

# Each list of messages that the conversation had is a path of the tree; the last one ends at the leaf. Where the first
# message was made anew, an exclusion puts the new one in the place of the old one. The older JSON documents are
# read as a header and rows. docs/formats/gemini-cli.md lists the fields that are kept.

FORMAT = "gemini-cli"

_TOKENS = {"input": "prompt", "output": "candidates", "cached": "cachedContent", "tool": "toolUsePrompt"}
"""The beginnings of the names that the Gemini API has for these numbers; all end with ``TokenCount``."""
_READ = ("id", "type", "timestamp", "content", "thoughts", "toolCalls", "tokens", "model")


_SAVED = re.compile(rb'\s*(\{\s*"history"\s*:\s*)?\[\s*\{\s*"(?:role"\s*:\s*"(?:user|model)"\s*,\s*"parts"|parts")\s*:')
"""The beginning of a saved chat; without the group it is the plain list that older versions wrote."""
_CHECKPOINT = "checkpoint-"


def looks_like_gemini_cli(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be a session of Gemini CLI, or a saved chat."""
    path, saved = path_name.replace("\\", "/"), _SAVED.match(head)
    is_saved = saved is not None and (saved[1] is not None or path.rpartition("/")[2].startswith(_CHECKPOINT))
    # Qwen Code began with such files.
    return (is_saved or re.match(rb'\s*\{[^{}\[\]]{0,400}"projectHash"', head) is not None) and "/.qwen/" not in path


class _Unit(Frozen):
    """A message of ours that a record is, or one of several: an answer or a result has no id of its own in the file."""

    entry: NewEntry
    name: str
    record: Record
    at: int | None
    beside: JsonObject
    own_id: str | None = None
    calls: tuple[str, ...] = ()
    is_said: bool = True


class _Tree(Struct):
    """The entries so far: each list of messages is a path from a root on, as far as possible one that is there."""

    chain: kit.Chain
    reading: Conversation
    placed: dict[tuple[str | None, str, str], str] = field(default_factory=dict)
    """The entries, by the message before them, and their names and payloads."""

    began: dict[str, str] = field(default_factory=dict)
    """The answers that called agents, by the ids of the agents' sessions."""

    read: dict[int, list[_Unit]] = field(default_factory=dict)
    """The messages of each record."""

    marks: dict[tuple[int, str], NewEntry] = field(default_factory=dict)
    """The entries that say something of those before them, by record and the entry before."""

    def add(self, records: Sequence[Record]) -> None:
        """Put the messages of a path below each other. The leaf is the last one."""
        said = self.chain.leaf = None
        ids: list[str] = []
        for unit in self._units(records):
            entry = unit.entry
            if ids and (unit.record.is_change or unit.record.key in self.reading.summed_up):
                place = id(unit.record), ids[-1]
                has_first = records[0] is self.reading.first
                entry = self.marks[place] = self.marks.get(place) or _marked(unit, ids, has_first=has_first)
            key = said, unit.name, entry.payload
            self.chain.leaf = self.placed[key] = self.placed.get(key) or self._place(unit, entry, said)
            ids.append(self.chain.leaf)
            said = self.chain.leaf if unit.is_said else said

    def _place(self, unit: _Unit, entry: NewEntry, said: str | None) -> str:
        """Make an entry of a message: under its own id the first time, then under one made of its place."""
        made, taken = self._made(unit), self.chain.lines
        first = unit.own_id or made
        name = kit.first_unused(lambda number: made_id(made, str(said), str(number)) if number else first, taken)
        if name == made and unit.record.key[1] == ANSWER:
            rows = [self._made(self._of(row)[0]) for row in self.reading.versions.get(unit.record.key, ())]
            self.chain.earlier[name] = tuple(dict.fromkeys(rows[: rows.index(made)] if made in rows else ()))
        for call in listed(unit.record.fields.get("toolCalls")) if unit.calls else ():
            if kit.is_name(agent := fields_of(call).get("agentId")):
                self.began.setdefault(agent, name)
        return self.chain.add(entry, unit.record.line, beside=unit.beside, entry_id=name, created_us=unit.at)

    def _made(self, unit: _Unit) -> str:
        return made_id(self.chain.session_id, unit.name, unit.entry.payload)

    def _of(self, record: Record) -> list[_Unit]:
        if id(record) not in self.read:
            reading = {"user": _said, ANSWER: _answered}.get(record.key[1], _noted)
            self.read[id(record)] = list(reading(record, self.chain))
        return self.read[id(record)]

    def _units(self, records: Sequence[Record]) -> Iterator[_Unit]:
        """Yield the messages of a path, each result once, behind its call, in the words that were sent."""
        users = [self._of(record) for record in records if record.key[1] == "user"]
        sent = {unit.name: unit for units in reversed(users) for unit in units if unit.own_id is None}
        answered: set[str] = set()
        for record in records:
            first, *others = self._of(record)
            if not first.calls:
                yield from (unit for unit in (first, *others) if unit.name not in answered)
                continue
            yield first
            own = {unit.name: unit for unit in others}
            for name in first.calls:
                unit = sent.get(name) or own.get(name)
                if unit is not None and name not in answered:
                    yield replace(unit, beside=own.get(name, unit).beside)
                answered.add(name)


def _marked(unit: _Unit, ids: Sequence[str], *, has_first: bool) -> NewEntry:
    """Return the entry of a summary, or of a first message made anew, given the ids of the path before it."""
    if unit.record.is_change:
        content = decode_object(unit.entry.payload).get("content")
        fields: JsonObject = {"excluded": False, REPLACEMENT: content} if unit.record.is_context else {}
        return replace(kit.plain_entry(EXCLUSION, {"entryId": ids[0], **fields}), references=(ids[0],))
    text = message_text(decode_object(unit.entry.payload))
    entry = NewEntry.compaction(text, first_kept_entry_id=ids[0] if has_first else "", tokens_before=0)
    if not has_first or len(ids) == 1:
        return entry
    # The first message, which is no part of the conversation, stays before the summary.
    return laid_out(entry, [Range(ids[1], ids[-1], None)], head=Layout(None, None))


def _unit(message: JsonObject, record: Record, beside: JsonObject, chain: kit.Chain, **fields: Any) -> _Unit:  # noqa: ANN401
    entry, extra = kit.message_entry(message, record.fields, record.line, chain.notes)
    if message["role"] == "toolResult":
        fields["name"] = f"result:{message.get('toolCallId')}"
    # However often an answer was written, also into the file of a session that began with it, its call is one.
    entry = kit.with_response(entry, FORMAT, f"{record.key[0]}:{record.fields.get('timestamp')}")
    at = kit.read_time(beside.get("timestamp")) or kit.read_time(record.fields.get("timestamp"))
    return _Unit(entry, record=record, at=at, beside={**without(beside, *_READ), **extra}, **fields)


def _said(record: Record, chain: kit.Chain) -> Iterator[_Unit]:
    """Yield the user's message, and each result of a tool that stands in the same row."""
    for message, _ in messages_from_gemini({"role": "user", "parts": content_parts(record.fields.get("content"))}):
        is_own = message["role"] != "toolResult" and not record.is_change
        own_id = record.key[0] if is_own else None
        name = f"context:{record.key[0]}" if record.is_change else record.key[0]
        yield _unit(message, record, record.fields, chain, name=name, own_id=own_id, is_said=not record.is_change)
        if record.is_change:
            return


def _answered(record: Record, chain: kit.Chain) -> Iterator[_Unit]:
    """Yield an answer, and the results that stand with its calls. A call that was broken off has none."""
    fields, content = record.fields, content_parts(record.fields.get("content"))
    called = [fields_of(fields_of(part).get("functionCall")).get("id") for part in content]
    own = [fields_of(call) for call in listed(fields.get("toolCalls"))]
    thoughts = [] if any(fields_of(part).get("thought") for part in content) else listed(fields.get("thoughts"))
    parts: list[JsonValue] = [{"text": _thought(fields_of(thought)), "thought": True} for thought in thoughts]
    parts += content
    parts += [{"functionCall": only(call, "id", "name", "args")} for call in own if call.get("id") not in called]
    value: JsonObject = {"role": "model", "parts": parts, "modelVersion": fields.get("model")}
    ((message, _),) = messages_from_gemini(value)
    if isinstance(tokens := fields.get("tokens"), dict):
        usage: JsonObject = {f"{_TOKENS.get(name, name)}TokenCount": count for name, count in tokens.items()}
        read = read_reported(usage)
        message["usage"] = usage if read.oddities else usage_json(read)
    name, calls = record.key[0], tuple(f"result:{call_id}" for call_id in calls_in(message))
    yield _unit(message, record, {**fields, "message": name}, chain, name=name, calls=calls)
    for call in own:
        results = content_parts(call.get("result"))
        answers = [part for part in map(fields_of, results) if isinstance(part.get("functionResponse"), dict)]
        # The results of calls that were made together may stand with each of them.
        own_answers = [part for part in answers if fields_of(part["functionResponse"]).get("id") == call.get("id")]
        text = call.get("result")
        output: JsonObject = {"output": text} if isinstance(text, str) else {"result": results}
        other: JsonObject = {"functionResponse": {**only(call, "id", "name"), "response": output}}
        if results:
            parts = [*(own_answers or answers or [other])]
            message, _ = next(iter(messages_from_gemini({"role": "user", "parts": parts})))
            yield _unit(message, record, without(call, "name", "args", "result"), chain)


def _thought(thought: JsonObject) -> JsonValue:
    """Return a thought in the words in which it is sent again."""
    subject, text = thought.get("subject"), thought.get("description")
    return f"**{subject}** {text}" if subject else text


def _noted(record: Record, chain: kit.Chain) -> Iterator[_Unit]:
    """Yield a record that is no part of the conversation: what the program told its user."""
    (name, kind), fields = record.key, record.fields
    if kind not in ("info", "warning", "error"):
        chain.notes.unknown_kinds[kind] += 1
    entry = kit.plain_entry(kit.entry_kind("gemini_cli.", kind), without(fields, "id", "type", "timestamp"))
    yield _Unit(entry, name, record, kit.read_time(fields.get("timestamp")), {}, name, is_said=False)


class GeminiCliReader(kit.RowReader):
    """Reads a session file, of rows or one document (see `Reader`), as a whole: a row may replace all before it."""

    needs_whole = True

    ready = 0
    parent: str | None = None
    """The session whose task it is, if it is one: the name of its folder."""
    folder: str | None = None
    _part: kit.SessionPart | None = None

    def feed(self, number: int, raw: bytes) -> None:
        """Read the file. Raises `UnreadableFile` if it is not of this format."""
        if _SAVED.match(raw.removeprefix(b"\xef\xbb\xbf")):
            self._read_saved(raw)
            return
        reading = Conversation(self._notes)
        for line, row in self._rows(raw):
            reading.read(line, row)
        about = reading.about
        session_id, moment = about.get("sessionId"), kit.read_time(about.get("startTime"))
        if not kit.is_name(session_id):
            raise UnreadableFile(f"{self._name} is not a session of Gemini CLI: it has no id; nothing was imported")
        paths = [*reading.paths, reading.path()]
        if all(record.is_context for path in paths for record in path):
            # Whenever a session is resumed, a file of its id is begun in which nothing is ever said.
            return
        tree = _Tree(kit.Chain(session_id, self._notes), reading)
        for path in paths:
            tree.add(path)
        parent = kit.TaskOf(self.parent, session_id) if self.parent and about.get("kind") == "subagent" else None
        # Of sub-agents and of exported files the file names the folder.
        folders = (one for one in (self.folder, *listed(about.get("directories"))) if isinstance(one, str))
        hashed = {sha256(one.encode(errors="replace")).hexdigest(): one for one in folders}
        title, cwd = about.get("summary") or None, hashed.get(str(about.get("projectHash")))
        names: kit.SessionFields = {"auto_title": title, "cwd": cwd, "created_us": moment, "parent": parent}
        part = tree.chain.parsed(FORMAT, self._name, {"session": about}, **names)
        self._part = replace(part, began=tree.began)
        self.ready = len(part.entries)

    def _read_saved(self, raw: bytes) -> None:
        """Read a saved chat: the contents that were sent, without ids, times and usage."""
        notes = self._notes = kit.Notes("item")
        items = kit.read_items(raw, notes, self._name, ("history",))
        chain = kit.Chain(kit.list_session_id(FORMAT, f"{self.folder}/{self._name}", items), notes)
        answered: set[JsonValue] = set()
        for item in items.items:
            for message, extra in messages_from_gemini(item.value):
                call = message.get("toolCallId")
                if isinstance(call, str) and call in answered:
                    notes.left_out["repeats a result"] += 1
                    continue
                answered.add(call if isinstance(call, str) else None)
                entry, more = kit.message_entry(message, item.value, item.index, notes)
                chain.add(entry, item.index, beside={**extra, **more})
        about: JsonObject = {"document": items.beside} if items.beside else {}
        tag = kit.one_text(unquote(self._name.removesuffix(".json").removeprefix(_CHECKPOINT)))
        if chain.entries:
            self._part = replace(chain.parsed(FORMAT, self._name, about, cwd=self.folder), name=tag or None)
            self.ready = len(chain.entries)

    def _rows(self, raw: bytes) -> Iterable[tuple[int, JsonObject]]:
        with suppress(UnreadableFile):
            trial = kit.Notes("item")
            document = kit.read_object(raw, trial, self._name)
            if isinstance(document.get("messages"), list):
                items = kit.items_of(document["messages"], trial)
                trial.rows += 1
                self._notes = trial
                return [(0, without(document, "messages")), *((item.index, item.value) for item in items)]
        lines = enumerate(raw.split(b"\n"), 1)
        return ((line, row) for line, text in lines if (row := kit.decode_row(line, text, self._notes)) is not None)

    def take(self) -> list[kit.SessionPart]:
        """Return the session, once."""
        part, self._part, self.ready = self._part, None, 0
        return [] if part is None else [part]

    def finish(self, *, take_all: bool) -> list[kit.SessionPart]:
        """Return the session if it was not taken."""
        return self.take()


read_gemini_cli = GeminiCliReader


def before_gemini_cli(path: Path, reader: GeminiCliReader, lines: object) -> Iterator[None]:
    """Tell a reader the folder that was worked in, and for a sub-agent the session that called it. Yields no rows."""
    if path.parent.parent.name == "chats":
        reader.parent = path.parent.name
    above = 2 if reader.parent else 1 if path.parent.name == "chats" else 0
    root = path.parents[above] / ".project_root" if len(path.parents) > 2 else path
    reader.folder = kit.one_text((read_beside(root) or b"").decode(errors="replace").strip()) if root != path else None
    return iter(())


# The rows of a file, replayed: the messages of the conversation as it is, and as it was before each change.

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

    notes: kit.Notes
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
        if kit.is_name(row.get("id")):
            return kit.has_type(line, row, self.notes)
        self.notes.skip(line, kit.unusable_id(row.get("id")))
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
