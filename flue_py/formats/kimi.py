"""Session files of Kimi Code, and of Kimi CLI, the program before it, which has ended."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Generator, Sequence
from functools import partial
from hashlib import md5
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import BASE, RANGES, NewEntry, Range
from flue_py.core.json import Frozen, JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION, MESSAGE, message_text
from flue_py.core.sessions import made_id
from flue_py.core.usage import PaidCall, call_of, read_reported, usage_json
from flue_py.errors import UnreadableFile
from flue_py.formats import kit
from flue_py.formats.gathered import SESSION, GatheredReader, gathered_row, lines_of, object_beside, states_of
from flue_py.providers.base import blocks_of, fields_of, listed, objects_in, only
from flue_py.providers.openai_chat import calls_in, message_from_chat

# Kimi Code. A session is a folder: state.json, and a wire.jsonl for each agent, whose rows are gathered behind a row
# about it.
#
# Rows say what happened, in order. An answer is a step: its parts, its calls, their results, and its end; the rows from
# its beginning on wait until it is over. A row may go back to a line: what follows is another branch.
# docs/formats/kimi.md lists the fields that are kept.

FORMAT = "kimi"
_STATE = "../../state.json"
"""The file about the session, from the folder of an agent."""

_BEGINNING = re.compile(rb'\s*\{"type": ?"metadata", ?"protocol_version": ?"[^"]*", ?"created_at"')
_REPEATING = re.compile(r"(agent\.(message|turn)\.\w+|turn\.prompt|prompt\.completed|token_counting\.\w+)$")
_KNOWN = re.compile(
    r"(agent|config|context|cron|file_history|full_compaction|goal|interaction|interruptionReminder|llm|mcp|permission|plan"
    r"|plan_mode|plugin|profile|prompt|runtime|subagent|swarm_mode|task|tools|tower_mode|turn|usage)\.|(metadata|forked)$"
)
_PARTS = ("content.part", "tool.call", "step.end")
_MOVES = frozenset({"agent.switched", "context.undo", "context.clear"})
_TOKENS = {"inputOther": "input", "inputCacheRead": "cacheRead", "inputCacheCreation": "cacheWrite"}
_READ = ("role", "content", "output", "toolCalls", "toolCallId", "id", "note", "isError")


def looks_like_kimi(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be the rows of an agent of Kimi Code."""
    return bool(_BEGINNING.match(head))


def gather_kimi(path: Path) -> Generator[bytes, None, None]:
    """Yield a row about the session whose folder a file is in, and the rows of the file."""
    place = path.absolute()
    about: JsonObject = {"file": path.name}
    if place.parent.parent.name == "agents":
        about |= {"agent": place.parent.name, "session": place.parts[-4], "state": object_beside(path.parent / _STATE)}
    yield gathered_row(SESSION, about)
    yield from lines_of(path)


def beside_kimi(path: Path) -> JsonValue:
    """Return the state of the file about the session. Never raises."""
    return states_of([path.parent / _STATE])


class _Place(Frozen):
    """A place in the tree: its entry, the id that made ids go on from, and how many messages its context has."""

    leaf: str | None = None
    linked: str = ""
    messages: int = 0


class _Said(Frozen):
    """A message of the context: its entry, whether a person said it, and the place to which its undo goes back."""

    entry_id: str
    is_users: bool
    before: _Place | None


class _Reading(Struct):
    """The rows that were read so far."""

    chain: kit.Chain
    began_us: int | None
    """When the file began: forks copy it with the rows."""
    copied: int
    """The line up to which a fork repeats another session, which has their bill."""
    repeats_left: int
    """How many messages compactions and undos may repeat: only a hostile file has more."""
    request: JsonObject = field(default_factory=dict)
    """The last request to a model."""
    said: list[_Said] = field(default_factory=list)
    reminders: list[kit.Row] = field(default_factory=list)
    """The messages that an undo leaves where they are."""
    step: list[kit.Row] = field(default_factory=list)
    """The rows of an answer that is not over."""
    tools: dict[str, str] = field(default_factory=dict)
    places: list[_Place] = field(default_factory=lambda: [_Place(), _Place()])
    """The place after each line, from 0; line 1 is the header."""
    undone: int = 0
    """The line of an undo that the row before it has done."""
    repeated: list[PaidCall] = field(default_factory=list)

    def read(self, row: kit.Row) -> None:
        """Take over a row of the file."""
        kind, _ = _event(row)
        if self.step and (kind in _MOVES or kind == "step.begin"):
            self.settle()
        if kind == "llm.request":
            self.request = row.fields
        if self.step or kind == "step.begin":
            self.step.append(row)
        else:
            self._place(row)
        if self.step and kind == "step.end":
            self.settle()
        self.places.append(self._here())

    def _here(self) -> _Place:
        return _Place(self.chain.leaf, self.chain.linked, len(self.said))

    def settle(self, *, is_over: bool = True) -> None:
        """Store the answer whose rows were read, and the rows that were waiting behind it: messages last."""
        rows = self.step
        uuid, events = kit.text_in(_event(rows[0])[1], "uuid"), [(*_event(row), row) for row in rows[1:]]
        content = [event.get("part") for kind, event, _ in events if kind == "content.part"]
        calls: list[JsonValue] = [event for kind, event, _ in events if kind == "tool.call"]
        end = next((event for kind, event, _ in events if kind == "step.end"), {})
        paid = next((row.fields for kind, _, row in events if kind == "usage.record"), end if "usage" in end else None)
        others = [row for kind, _, row in events if not (kind in _PARTS or row.fields is paid)]
        self.step = [] if is_over else rows
        if calls or content:
            *before, last = (made_id(FORMAT, uuid, str(number)) for number in range(len(content) + len(calls) + 1))
            self.chain.earlier |= {uuid: (*before, last)} if is_over else {}
            value: JsonObject = {"role": "assistant", "step": uuid, "end": without(end, "usage")}
            value |= {"content": content, "toolCalls": calls}
            self._say(rows[0], value, uuid if is_over else last, paid)
            self.step = [] if is_over else others
        elif is_over and paid is not None:
            self._aside(rows[0], "usage.record", paid, uuid)
        elif is_over:
            self.chain.notes.left_out["is an answer without words"] += 1
        self.chain.notes.merged += len(events) - len(others) if self.step is not rows else 0
        for row in sorted(others, key=lambda row: row.type == "context.append_message") if is_over else ():
            self._place(row)

    def _place(self, row: kit.Row) -> None:
        """Store a row that is not part of an answer."""
        (kind, event), notes = _event(row), self.chain.notes
        if kind == "context.append_message":
            value = fields_of(row.fields.get("message"))
            self._say(row, value, value.get("id"))
            origin = fields_of(value.get("origin"))
            self.reminders += [row] if origin.get("kind") == "injection" and "ownerPromptId" not in origin else []
        elif kind == "tool.result":
            value = {**fields_of(event.get("result")), "role": "tool", "toolCallId": event.get("toolCallId")}
            self._say(row, {**value, "content": value.get("output")}, made_id(FORMAT, kit.text_in(event, "parentUuid")))
        elif kind == "context.apply_compaction":
            self._compact(row)
        elif kind in _MOVES:
            self._move(row)
        elif _REPEATING.match(kind):
            notes.left_out["repeats other rows"] += 1
        else:
            notes.unknown_kinds.update([] if _KNOWN.match(kind) else [kind])
            self._aside(row, kind, row.fields)

    def _say(self, row: kit.Row, value: JsonObject, own_id: JsonValue, paid: JsonObject | None = None) -> None:
        """Store a message, with the call that it cost."""
        message, before = self._message(value), self._here()
        if value.get("role") == "assistant":
            message |= {**self._model_of(paid or {}), **({"usage": _tokens(paid)} if paid else {})}
        entry, extra = kit.message_entry(message, value, row.line, self.chain.notes)
        extra = {**without(value, *_READ), **extra}
        entry_id = self._add(row, kit.with_response(entry, FORMAT, value.get("step")), extra, own_id)
        if entry.kind == MESSAGE:
            origin = fields_of(value.get("origin"))
            is_own = origin.get("kind", "user") == "user" or origin.get("trigger") == "user-slash"
            self.said.append(_Said(entry_id, entry.role == "user" and is_own, before))

    def _message(self, value: JsonObject) -> JsonObject:
        """Return a message of the program as one of ours."""
        parts, note = [_part(part) for part in blocks_of(value.get("content"))], kit.text_in(value, "note")
        if note:
            text = fields_of(parts[0]).get("text") if len(parts) == 1 else None
            parts = [] if isinstance(text, str) else parts
            parts.append({"type": "text", "text": f"{text}\n{note}" if isinstance(text, str) else note})
        calls = [_call(call) for _, call in objects_in(value.get("toolCalls"))]
        chat: JsonObject = {"role": value.get("role"), "content": parts, "tool_call_id": value.get("toolCallId")}
        chat |= {"tool_calls": calls} if calls else only(value, "isError")
        message = message_from_chat(chat, self.tools)
        self.tools |= calls_in(message)
        return without(message, "tool_call_id")

    def _add(self, row: kit.Row, entry: NewEntry, beside: JsonObject, own_id: JsonValue = None) -> str:
        """Store an entry, under an id of its own if that is free."""
        entry_id = own_id if kit.is_name(own_id) and own_id not in self.chain.lines else None
        moment = kit.read_moment(row.fields.get("time"))
        if row.line <= self.copied:
            self.repeated += [replace(call, at_us=moment) for call in entry.calls]
            entry = replace(entry, calls=(), unpaid=True)
        line = max(row.line, self.chain.lines.get(self.chain.leaf or "", 0))
        return self.chain.add(entry, line, beside=beside, entry_id=entry_id, created_us=moment)

    def _aside(self, row: kit.Row, kind: str, fields: JsonObject, name: str = "") -> str:
        """Store a row outside the conversation, with the call that it reports, of this name."""
        entry = kit.plain_entry(kit.entry_kind("kimi.", kind), without(fields, "type"))
        if kind == "usage.record":
            call_id = made_id(FORMAT, name or f"{self.began_us}:{entry.payload}")
            names = {"provider": "", "model": "", **self._model_of(fields), "call_id": call_id}
            names["purpose"] = "compaction" if self.request.get("kind") == "compaction" else "turn"
            entry = kit.with_call(entry, _tokens(fields), self.chain.notes, row.line, **names)
        return self._add(row, entry, {})

    def _model_of(self, fields: JsonObject) -> dict[str, str]:
        """Return the provider and the model of a call: those of the request, or else its short name."""
        names = {"model": fields.get("model"), **only(self.request, "provider", "model")}
        return {name: text for name, value in names.items() if (text := kit.one_text(value, 160))}

    def _move(self, row: kit.Row) -> None:
        """Go back to a line, or before the last messages of a person, or begin anew."""
        line, count, since = len(self.places), row.fields.get("count"), row.line
        base = fields_of(row.fields.get("base")).get("line")
        place = _Place() if row.type == "context.clear" else self._here() if line == self.undone else None
        if row.type == "agent.switched" and type(base) is int and 0 <= base < line:
            place, self.undone, since = self.places[base], line + 1, row.line - line + base
        elif place is None and type(count) is int and 0 < count <= len(self.said):
            last = [message for message in self.said if message.is_users][-count:]
            if len(last) == count and last[0].before is not None:
                place, since = last[0].before, self.chain.lines[last[0].entry_id]
        if place is None:
            self.chain.notes.repair(row.line, "goes back to a place that is not there; nothing was taken back")
        else:
            self.chain.leaf, self.chain.linked = place.leaf, f"{place.linked}:{line}"
            del self.said[place.messages :]
        self._aside(row, row.type, row.fields)
        for other in self._few([other for other in self.reminders if other.line > since]):
            self._say(other, fields_of(other.fields.get("message")), None)

    def _few(self, values: list[kit.Value]) -> list[kit.Value]:
        values = values[: self.repeats_left]
        self.repeats_left -= len(values)
        return values

    def _compact(self, row: kit.Row) -> None:
        """Store a compaction: words of people stay before the summary, in older files the last messages behind it."""
        fields, old = row.fields, row.fields.get("summary")
        summary = message_text({"content": fields.get("contextSummary") or fields_of(old).get("content", old)})
        mark = self._aside(row, row.type, without(fields, "contextSummary"))
        body: JsonObject = {"summary": summary, "tokensBefore": fields.get("tokensBefore")}
        kept, head, count = map(fields.get, ("keptUserMessageCount", "keptHeadUserMessageCount", "compactedCount"))
        before, behind = [], []
        if type(kept) is int and kept >= 0 and fields.get("legacyTail") is not True:
            users = [message for message in self.said if message.is_users]
            first = min(head, kept) if type(head) is int and head > 0 else 0
            before = self._few([*users[:first], *users[max(first, len(users) - kept + first) :]])
            body |= {"pinnedEntryIds": [message.entry_id for message in before], "firstKeptEntryId": mark}
            body |= {BASE: None, RANGES: [Range(mark, mark, None).as_json]}
        else:
            behind = self.said[count:] if type(count) is int and count >= 0 else []
            body["firstKeptEntryId"] = behind[0].entry_id if behind else ""
        entry_id = self._add(row, kit.plain_entry(COMPACTION, body), {})
        self.said = [*(replace(message, before=None) for message in before), _Said(entry_id, False, None), *behind]


def _event(row: kit.Row) -> tuple[str, JsonObject]:
    """Return the type of a row, or of the event of an answer that it holds, and the event."""
    event = fields_of(row.fields.get("event"))
    return kit.text_in(event, "type") if row.type == "context.append_loop_event" else row.type, event


def _tokens(fields: JsonObject) -> JsonObject:
    usage: JsonObject = {_TOKENS.get(name, name): count for name, count in fields_of(fields.get("usage")).items()}
    return usage if (read := read_reported(usage)).oddities else usage_json(read)


def _call(call: JsonObject) -> JsonValue:
    arguments = call.get("arguments", call.get("args")) or {}
    return {"id": call.get("id", call.get("toolCallId")), "function": {**only(call, "name"), "arguments": arguments}}


def _part(value: JsonValue) -> JsonValue:
    """Return a part of a message as one of ours; of another type as it is."""
    part = fields_of(value)
    image = fields_of(part.get("imageUrl", part.get("image_url")))
    if part.get("type") == "think":
        return kit.thought(part.get("think"), part.get("encrypted") or None)
    return {"type": "image_url", "image_url": only(image, "url")} if image else value


def parse_kimi(rows: Sequence[kit.Row], notes: kit.Notes, take_all: bool) -> list[kit.SessionPart]:
    """Return the session of the rows of an agent.

    The rows of an answer that is not over are held back, and noted, unless ``take_all``.
    Raises `UnreadableFile` if the first row of the file is not one of Kimi Code.
    """
    about, rows = (rows[0].fields, rows[1:]) if rows[0].type == SESSION else ({}, rows)
    file = kit.one_text(about.get("file")) or "the file"
    if not rows or rows[0].type != "metadata" or "protocol_version" not in rows[0].fields:
        raise UnreadableFile(f"{file} is not a session of Kimi Code: it does not begin like one; nothing was imported")
    state, name, agent = fields_of(about.get("state")), about.get("session"), about.get("agent")
    began_us = kit.read_moment(rows[0].fields.get("created_at"))
    version = kit.text_in(rows[0].fields, "protocol_version")
    root = session_id = name if kit.is_name(name) else made_id(FORMAT, file, str(began_us))
    notes.left_out["is about the session"] += 1 + bool(about)
    parent, main = None, state
    if kit.is_name(agent) and agent != "main":
        above = fields_of(fields_of(state.get("agents")).get(agent)).get("parentAgentId")
        parent = kit.TaskOf(f"{root}:{above}" if kit.is_name(above) and above != "main" else root, agent)
        session_id, main = f"{root}:{agent}", {}
    # A title is by a person or not.
    source, titles = main.get("forkedFrom"), {main.get("isCustomTitle") is True: kit.one_text(main.get("title"))}
    copied = max((row.line for row in rows if row.type == "forked"), default=0) if kit.is_name(source) else 0
    reading = _Reading(kit.Chain(session_id, notes), began_us, copied, 20 * len(rows) + 1000)
    for row in rows[1:]:
        reading.read(row)
    if take_all and reading.step:
        reading.settle(is_over=False)
    for row in reading.step:
        notes.hold_back(row.line)
    cwd = kit.one_text(state.get("cwd"))
    parsed = reading.chain.parsed(
        FORMAT,
        file,
        {"state": without(main, "agents")},
        version=version,
        is_rewritten=False,
        auto_title=titles.get(False),
        cwd=cwd,
        created_us=kit.read_moment(main.get("createdAt")) or began_us,
        parent=parent,
    )
    part = replace(parsed, name=titles.get(True), restates=True)
    return [part, *kit.payer_part(str(source), part, file, reading.repeated)]


read_kimi = partial(GatheredReader, parse_kimi)


# Kimi CLI. A session is a folder. context.jsonl is the list of its messages; before a list is begun anew, the program
# keeps it as context_N.jsonl. Each list is a path of the tree. wire.jsonl says when a step ended, and the tokens that
# it took.

CLI_FORMAT = "kimi-cli"
LIST, ITEM, EVENT = "list", "item", "event"
"""The types of gathered rows: the beginning of a list, a row of one, and a row of wire.jsonl."""

_LIST_BEGINNING = re.compile(rb'\s*\{"role": ?"_(system_prompt|checkpoint|usage)"')
_IN_PLACE = re.compile(rb'\s*\{"role": ?"(user|assistant)"')
_LIST = re.compile(r"context(?:_(\d+))?\.jsonl")
_LIST_TOKENS = {"input_other": "input", "input_cache_read": "cacheRead", "input_cache_creation": "cacheWrite"}


def looks_like_kimi_cli(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be the messages of Kimi CLI; without marks of it, its place tells."""
    is_there = ".kimi/sessions/" in path_name.replace("\\", "/") and _IN_PLACE.match(head)
    return bool(_LIST_BEGINNING.match(head) or is_there)


def _lists(path: Path) -> list[Path]:
    """Return the lists of the session of a file, the newest last."""
    if not _LIST.fullmatch(path.name):
        return [path]
    numbers = {file: match[1] for file in path.parent.glob("context*.jsonl") if (match := _LIST.fullmatch(file.name))}
    return sorted(numbers, key=lambda file: (numbers[file] is None, int(numbers[file] or 0)))


def _files(path: Path) -> tuple[Path, Path]:
    """Return the folder of the session of a file, and that of the agent that wrote it."""
    folder = path.absolute().parent
    return (folder.parent.parent if folder.parent.name == "subagents" else folder), folder


def beside_kimi_cli(path: Path) -> JsonValue:
    """Return the states of the other files of the session. Never raises."""
    root, folder = _files(path)
    return states_of([*_lists(path), root / "state.json", folder / "wire.jsonl"])


def gather_kimi_cli(path: Path) -> Generator[bytes, None, None]:
    """Yield a row about the session of a file, and the rows of its files."""
    root, folder = _files(path)
    is_list = _LIST.fullmatch(path.name) is not None
    known = listed(object_beside(root.parent.parent.parent / "kimi.json").get("work_dirs"))
    # The folder above is named for the project's path, which only a digest tells.
    places = {md5(name.encode(), usedforsecurity=False).hexdigest(): name for name in map(_path_of, known)}
    is_of_folder = root != folder or path.stem.startswith("context")
    about: JsonObject = {"session": root.name if is_of_folder else path.stem, "file": path.name}
    about["cwd"] = places.get(root.parent.name)
    if root != folder or (is_of_folder and not is_list):
        about["agent"] = folder.name if root != folder else path.stem
    yield gathered_row(SESSION, {**about, "state": object_beside(root / "state.json")})
    for line in lines_of(folder / "wire.jsonl"):
        is_turn = b'"TurnBegin"' in line
        if (is_turn or b'"StatusUpdate"' in line) if is_list else (is_turn and b'"SubagentEvent"' in line):
            yield _row(EVENT, line)
    for file in _lists(path):
        yield gathered_row(LIST, {})
        yield from (_row(ITEM, line) for line in lines_of(file) if not line.isspace())


def _row(kind: str, line: bytes) -> bytes:
    return b'{"row":%s,"type":"%s"}\n' % (line.strip(), kind.encode())


def _path_of(place: JsonValue) -> str:
    return kit.one_text(fields_of(place).get("path")) or ""


class _Lists(Struct):
    """The rows that were read so far."""

    chain: kit.Chain
    tools: dict[str, str] = field(default_factory=dict)
    calls: list[PaidCall] = field(default_factory=list)
    began_us: int | None = None
    times: list[int | None] = field(default_factory=list)
    """The times of the prompts of the session, in order: lists have none."""

    prompts: dict[str, list[int]] = field(default_factory=dict)
    """The places of those with the same words, in order."""

    turn: int = -1
    """The one that the list has come to."""

    def read(self, row: kit.Row) -> None:
        """Take over a row."""
        notes, value = self.chain.notes, fields_of(row.fields.get("row"))
        role = value.get("role")
        if row.type == LIST:
            notes.left_out["is about the session"] += 1
            self.chain.leaf, self.turn = None, -1
        elif row.type == EVENT:
            notes.left_out["is about a step"] += 1
            self._time(value)
        elif role in ("_checkpoint", "_usage"):
            notes.left_out["is a mark in the list"] += 1
        elif role == "_system_prompt":
            entry = kit.plain_entry("kimi_cli.system_prompt", only(value, "content"))
            self.chain.follow(entry, row.line, created_us=self.began_us)
        else:
            content = value.get("content")
            parts = [_part(part) for part in content] if isinstance(content, list) else content
            message = message_from_chat({**value, "content": parts}, self.tools)
            self.tools |= calls_in(message)
            entry, extra = kit.message_entry(message, value, row.line, notes)
            if role == "user":
                same = self.prompts.get(message_text(message), [])
                place = bisect(same, self.turn)
                self.turn = same[place] if place < len(same) else self.turn
            created_us = self.times[self.turn] if self.turn >= 0 else self.began_us
            self.chain.follow(entry, row.line, beside=extra, created_us=created_us)

    def _time(self, value: JsonObject) -> None:
        """Note when a prompt came, or book the tokens of a step: nothing says which message it made."""
        message = fields_of(value.get("message"))
        payload = fields_of(message.get("payload"))
        if "event" in payload and "agent_id" not in payload:  # of an agent without a wire.jsonl
            message = fields_of(payload["event"])
            payload = fields_of(message.get("payload"))
        at_us, usage = kit.read_moment(value.get("timestamp")), payload.get("token_usage")
        self.began_us = self.began_us or at_us
        if message.get("type") == "TurnBegin":
            text = message_text({"content": payload.get("user_input")})
            self.prompts.setdefault(text, []).append(len(self.times))
            self.times.append(at_us)
        if not isinstance(usage, dict):
            return
        reported = read_reported({_LIST_TOKENS.get(name, name): count for name, count in usage.items()})
        call_id = made_id(CLI_FORMAT, f"{at_us}:{kit.one_text(payload.get('message_id'))}")
        self.calls.append(replace(call_of(reported, call_id=call_id), at_us=at_us))


def parse_kimi_cli(rows: Sequence[kit.Row], notes: kit.Notes, take_all: bool) -> kit.SessionPart | None:
    """Return the session of gathered rows. Raises `UnreadableFile` if no row is of Kimi CLI."""
    about = rows[0].fields
    file, name, agent = kit.one_text(about.get("file")) or "the file", about.get("session"), about.get("agent")
    if not any("role" in fields_of(row.fields.get("row")) for row in rows):
        raise UnreadableFile(f"{file} is not a session of Kimi CLI: no row has a role; nothing was imported")
    notes.left_out["is about the session"] += 1
    root = name if kit.is_name(name) else made_id(CLI_FORMAT, file)
    parent = kit.TaskOf(root, agent) if kit.is_name(agent) else None
    session_id = root if parent is None else f"{root}:{agent}"
    reading = _Lists(kit.Chain(session_id, notes))
    for row in rows[1:]:
        reading.read(row)
    state = fields_of(about.get("state")) if parent is None else {}
    titles = {state.get("title_generated") is True: kit.one_text(state.get("custom_title"))}
    cwd, began_us = about.get("cwd"), reading.began_us
    names: kit.SessionFields = {"auto_title": titles.get(True), "cwd": cwd, "created_us": began_us, "parent": parent}
    parsed = reading.chain.parsed(CLI_FORMAT, file, {"state": state}, **names)
    return replace(parsed, name=titles.get(False), restates=True, calls=tuple(reading.calls))


read_kimi_cli = partial(GatheredReader, parse_kimi_cli)
