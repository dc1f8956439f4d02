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
from flue_py.core.json import Frozen, JsonObject, JsonValue, decode_object
from flue_py.core.kinds import EXCLUSION, message_text
from flue_py.core.sessions import made_id
from flue_py.core.usage import read_reported, usage_json
from flue_py.errors import UnreadableFile
from flue_py.formats import kit
from flue_py.formats.gathered import read_beside
from flue_py.formats.gemini_rows import ANSWER, Conversation, Record, content_parts
from flue_py.providers.base import fields_of, listed, only, without
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
    start, path = head.removeprefix(b"\xef\xbb\xbf"), path_name.replace("\\", "/")
    saved = _SAVED.match(start)
    is_saved = saved is not None and (saved[1] is not None or path.rpartition("/")[2].startswith(_CHECKPOINT))
    # Qwen Code began with such files.
    return (is_saved or re.match(rb'\s*\{[^{}\[\]]{0,400}"projectHash"', start) is not None) and "/.qwen/" not in path


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

    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)
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
            self.earlier[name] = tuple(dict.fromkeys(rows[: rows.index(made)] if made in rows else ()))
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
        answers = [
            part for part in answers if fields_of(part["functionResponse"]).get("id") == call.get("id")
        ] or answers
        text = call.get("result")
        output: JsonObject = {"output": text} if isinstance(text, str) else {"result": results}
        other: JsonObject = {"functionResponse": {**only(call, "id", "name"), "response": output}}
        if results:
            message = next(
                message for message, _ in messages_from_gemini({"role": "user", "parts": [*(answers or [other])]})
            )
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
        is_task = self.parent is not None and about.get("kind") == "subagent"
        parent = kit.TaskOf(str(self.parent), session_id) if is_task else None
        # Of sub-agents and of exported files the file names the folder.
        folders = (one for one in (self.folder, *listed(about.get("directories"))) if isinstance(one, str))
        hashed = {sha256(one.encode(errors="replace")).hexdigest(): one for one in folders}
        title, cwd = about.get("summary") or None, hashed.get(str(about.get("projectHash")))
        names: kit.SessionFields = {"auto_title": title, "cwd": cwd, "created_us": moment, "parent": parent}
        parsed = tree.chain.parsed(FORMAT, self._name, {"session": about}, **names)
        self._part = replace(kit.whole_session(replace(parsed, earlier=tree.earlier)), began=tree.began)
        self.ready = len(parsed.entries)

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
            parsed = chain.parsed(FORMAT, self._name, about, cwd=self.folder)
            self._part = kit.whole_session(replace(parsed, name=tag or None))
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


def read_place(path: Path, reader: GeminiCliReader, lines: object) -> Iterator[None]:
    """Tell a reader the folder that was worked in, and for a sub-agent the session that called it. Yields no rows."""
    if path.parent.parent.name == "chats":
        reader.parent = path.parent.name
    above = 2 if reader.parent else 1 if path.parent.name == "chats" else 0
    root = path.parents[above] / ".project_root" if len(path.parents) > 2 else path
    reader.folder = kit.one_text((read_beside(root) or b"").decode(errors="replace").strip()) if root != path else None
    return iter(())
