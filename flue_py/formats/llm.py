"""The log of llm: `logs.db`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.sessions import made_id
from flue_py.core.usage import read_reported, usage_json
from flue_py.formats import gathered, kit
from flue_py.providers.base import fields_of, listed, objects_in, only

# The database has two logs. Since llm 0.36 messages are rows that name their parents and that threads share; a call is
# a turn: a row about the messages that it was sent and those that it gave. Before, a call was a response: a row with
# the prompt and the answer. A conversation that goes on after an update has both, under one id.
#
# Both become the same rows: one about the session, and its messages, parents first, each with the calls that gave it.
# docs/formats/llm.md lists the fields that are kept.

FORMAT = "llm"

_RESPONSES, _TURNS = "coalesce(conversation_id, id)", "coalesce(thread_id, id)"
_COUNTS = ("input_tokens", "output_tokens")
_CHAT = ("prompt_tokens", "completion_tokens")
_GEMINI = ("promptTokenCount", "candidatesTokenCount")
_NAMES = dict.fromkeys(("prompt_tokens_details", "completion_tokens_details"), _CHAT) | dict.fromkeys(
    ("promptTokensDetails", "candidatesTokenCount", "cachedContentTokenCount", "thoughtsTokenCount"), _GEMINI
)
"""The names of the two counts by those of the details beside them, where they are not the usual ones."""

_OBJECTS = ("options_json", "token_details", "response_json")
_READ = (
    *("type", "id", "thread_id", "conversation_id", "parent_message_hash", "tip_message_hash", "datetime_utc"),
    *("prompt", "system", "response", "reasoning", "prompt_json", "token_details", *_COUNTS),
)
"""The columns of a call that are not kept beside its message."""


def looks_like_llm(head: bytes, path_name: str = "") -> bool:
    """Return whether a file is a database with the tables of llm, given its first bytes and its path."""
    return gathered.has_tables(path_name, head, "_llm_migrations", "conversations", "responses")


def sessions_llm(_path: Path, database: gathered.Database) -> Iterator[tuple[JsonValue, Iterator[bytes]]]:
    """Yield the id of each session of the two logs, and its rows."""
    log = _Log(gathered.Tables(database))
    places = (("responses", _RESPONSES), ("threads", "id"), ("turns", _TURNS))
    for name in dict.fromkeys(name for place in places for name in log.tables.values(*place)):
        yield _session_id(name), (gathered.gathered_row(str(fields["type"]), fields) for fields in log.rows(name))


def _session_id(name: JsonValue) -> str:
    return name if kit.is_name(name) else made_id(FORMAT, str(name))


class _Log(Struct):
    """The two logs of a database."""

    tables: gathered.Tables

    def rows(self, name: JsonValue) -> Iterator[JsonObject]:
        """Yield the rows of a session."""
        thread, conversation = (self.tables.first(table, name) for table in ("threads", "conversations"))
        yield {"type": gathered.SESSION, "session": name, "thread": thread, "conversation": conversation}
        yield from self._older(name)
        yield from self._newer(name, thread)

    def _newer(self, name: JsonValue, thread: JsonObject) -> Iterator[JsonObject]:
        """Yield the messages of a thread, and the turns that have none."""
        seen, turns = set[str](), dict[JsonValue, list[JsonObject]]()
        for turn in (rows := self.tables.rows("turns", _TURNS, name)):
            turns.setdefault(turn.get("tip_message_hash"), []).append(turn)
        for turn in [*rows, thread]:
            yield from self._chain(turns, turn.get("tip_message_hash"), seen)
            if turn is not thread and turn.get("tip_message_hash") not in seen:
                yield {"type": "call", "calls": [self._call(turn, "turn")]}

    def _older(self, name: JsonValue) -> Iterator[JsonObject]:
        """Yield the messages of a conversation, as they would be sent again."""
        parent, system = None, None
        for row in self.tables.rows("responses", _RESPONSES, name):
            call, response_id = self._call(row, "response"), row.get("id")
            texts = {"prompt": self._text(row, "prompt", "\n"), "system": self._text(row, "system", "\n\n")}
            results = [
                {**result, "type": "tool_result", "attachments": self._files("tool_result", result)}
                for result in self.tables.rows("tool_results", "response_id", response_id)
            ]
            asked = _texts("text", texts["prompt"])
            asked += [{"type": "attachment", "attachment": file} for file in self._files("prompt", row)]
            answer = _texts("reasoning", row.get("reasoning")) + _texts("text", row.get("response"))
            for tool in self.tables.rows("tool_calls", "response_id", response_id):
                fields = only(tool, "name", "tool_call_id")
                answer.append({"type": "tool_call", **fields, "arguments": _object(tool.get("arguments"))})
            said = [] if texts["system"] in ("", system) else _texts("text", texts["system"])
            system = texts["system"] or system
            for role, parts in (("system", said), ("tool", results), ("user", asked), ("assistant", answer)):
                calls: list[JsonValue] = [call] if role == "assistant" else []
                if parts or calls:
                    own = str(response_id) if calls else made_id(FORMAT, str(response_id), role)
                    message: JsonObject = {"hash": own, "parent_hash": parent, "role": role, "parts": [*parts]}
                    yield {"type": "older", **message, "calls": calls, **only(row, "datetime_utc")}
                    parent = own if parts else parent

    def _text(self, row: JsonObject, name: str, gap: str) -> str:
        """Return a text of a response, behind the fragments before it."""
        rows = sorted(self.tables.rows(f"{name}_fragments", "response_id", row.get("id")), key=_order)
        texts = [self.tables.first("fragments", fragment.get("fragment_id")).get("content") for fragment in rows]
        return gap.join(text for text in [*texts, row.get(name)] if isinstance(text, str) and text)

    def _files(self, kind: str, row: JsonObject) -> list[JsonValue]:
        """Return the files that were sent with a response, or with the result of a tool."""
        names = ("prompt_attachments", "response_id") if kind == "prompt" else (f"{kind}s_attachments", f"{kind}_id")
        rows = sorted(self.tables.rows(*names, row.get("id")), key=_order)
        return [self._file({"id": file.get("attachment_id")}) for file in rows]

    def _chain(self, turns: dict[JsonValue, list[JsonObject]], tip: JsonValue, seen: set[str]) -> list[JsonObject]:
        """Return a message and those above it, parents first, down from the first that was not seen.

        ``turns`` are those of the thread, by the last message that they gave.
        """
        messages: list[JsonObject] = []
        moment: JsonObject = {}
        while isinstance(tip, str) and tip not in seen and (message := self.tables.first("messages", tip, "hash")):
            seen.add(tip)
            # A message that another thread gave has the call that was paid there; one that was sent, the time of that.
            others = [] if tip in turns else [self.tables.first("turns", tip, "tip_message_hash")]
            calls = [self._call(turn, "turn") for turn in turns.get(tip, others) if turn]
            moment = only(calls[0], "datetime_utc") if calls else moment
            parts = [self._part(part) for part in self.tables.rows("parts", "message_hash", tip)]
            messages.append({"type": "message", **message, **moment, "parts": [*parts], "calls": [*calls]})
            tip = message.get("parent_hash")
        return messages[::-1]

    def _part(self, row: JsonObject) -> JsonObject:
        """Return a part of a message, with the texts and files that it refers to."""
        part = {**_object(row.get("payload")), **only(row, "type", "text")}
        if "text_ref" in part:
            pieces = [piece for _, piece in objects_in(part.pop("text_ref"))]
            texts = [{**self.tables.first("fragments", piece.get("fragment")), **piece} for piece in pieces]
            part["text"] = "".join(str(text.get("literal", text.get("content", ""))) for text in texts)
        if "attachment" in part:
            part["attachment"] = self._file(part["attachment"])
        if "attachments" in part:
            part["attachments"] = [self._file(reference) for reference in listed(part["attachments"])]
        return part

    def _file(self, reference: JsonValue) -> JsonObject:
        return {**fields_of(reference), **self.tables.first("attachments", fields_of(reference).get("id"))}

    def _call(self, row: JsonObject, kind: str) -> JsonObject:
        """Return a call with the objects that its texts are, and its tools, fragments and schema."""
        call = {name: _object(value) if name in _OBJECTS else value for name, value in row.items()}
        owner, tools = f"{kind}_id", "turn_tools" if kind == "turn" else "tool_responses"
        more = ("kind", "tool_call_id")
        for name, table, of, kept in (
            ("tools", tools, "tool", ("name", "plugin")),
            ("fragments", "turn_fragments", "fragment", ("hash", "source")),
            ("instances", "tool_instantiations", "instance", ("name", "plugin", "arguments")),
        ):
            rows = self.tables.rows(table, owner, row.get("id")) if kind == "turn" or name == "tools" else []
            about = {"instance": "tool_instances"}.get(of, f"{of}s")
            used = [{**only(one, *more), **only(self.tables.first(about, one.get(f"{of}_id")), *kept)} for one in rows]
            call |= {name: [*used]} if used else {}
        schema = self.tables.first("schemas", row.get("schema_id"))
        return {**call, **({"schema": schema} if schema else {})}


def _texts(kind: str, text: JsonValue) -> list[JsonValue]:
    """Return a text as the parts of a message: none if it is empty."""
    return [{"type": kind, "text": text}] if text else []


def _order(row: JsonObject) -> int:
    place = row.get("order")
    return place if type(place) is int else 0


def _object(value: JsonValue) -> JsonObject:
    """Return the object that a text of JSON is; if it is none, an object that holds the text."""
    if value is None:
        return {}
    fields = kit.decode_row(2, value.encode(), kit.Notes()) if isinstance(value, str) else None
    return {"unreadable": value} if fields is None else fields


class _Reading(Struct):
    """The rows of a session that were read so far."""

    chain: kit.Chain
    entry_of: dict[str, str] = field(default_factory=dict)
    """The last entry of each message, by its hash."""
    older: dict[tuple[str | None, str], str] = field(default_factory=dict)
    """The entries of the older log, by the entry before and the message: later calls send them again."""
    unnamed: list[str] = field(default_factory=list)
    """The ids that were made for calls of tools that have none, and no result yet."""
    began_us: int | None = None

    def read(self, row: kit.Row) -> None:
        """Store a message, with the call that gave it, and the other calls that did."""
        fields, parent, notes = row.fields, row.fields.get("parent_hash"), self.chain.notes
        name, calls = str(fields.get("hash")), [call for _, call in objects_in(fields.get("calls"))]
        if row.type != "call":
            self.chain.leaf = self.entry_of.get(str(parent)) or None
        if parent is not None and self.chain.leaf is None:
            notes.repair(row.line, "follows a message that is not there; it begins a history of its own")
        messages = self._messages(name, fields) if fields.get("parts") or row.type == "message" else []
        own = calls[0] if calls and messages and fields.get("role") == "assistant" else {}
        moment = kit.read_time((calls[0] if calls else fields).get("datetime_utc"))
        self.began_us = self.began_us if moment is None else min(moment, self.began_us or moment)
        for number, message in enumerate(messages, 1 - len(messages)):
            key = (self.chain.leaf, kit.json_line(message))
            if key in self.older and not calls:
                self.chain.leaf = self.older[key]
                notes.left_out["was in the older log"] += number == 0
                continue
            entry, extra = self._entry(row, message, own if number == 0 else {})
            extra |= {**only(fields, "provider_metadata"), **only(message, "exception")}
            self._add(row, entry, made_id(FORMAT, name, str(number)) if number else name, moment, extra)
            if row.type == "older":
                self.older[key] = self.chain.leaf or ""
        leaf = self.entry_of[name] = self.chain.leaf or ""
        for call in calls[1:] if own else calls:
            self._add_call(row, call)
        self.chain.leaf = leaf or self.chain.leaf

    def _messages(self, name: str, fields: JsonObject) -> list[JsonObject]:
        """Return a message of the program as ours: one for each result of a tool."""
        parts = [part for _, part in objects_in(fields.get("parts"))]
        if fields.get("role") == "tool" and parts and all(part.get("type") == "tool_result" for part in parts):
            return [self._result(part) for part in parts]
        content = [_part(part, f"{name}:{number}") for number, part in enumerate(parts)]
        calls = [str(part["id"]) for part in content if part.get("type") == "toolCall"]
        self.unnamed = [call_id for call_id in calls if call_id.startswith(name)]
        is_text = len(content) == 1 and content[0].keys() == {"type", "text"}
        return [{"role": fields.get("role"), "content": content[0]["text"] if is_text else [*content]}]

    def _result(self, part: JsonObject) -> JsonObject:
        """Return the result of a tool; one without an id answers the next of the calls that had none."""
        call_id = part.get("tool_call_id")
        call_id = call_id if kit.is_name(call_id) or not self.unnamed else self.unnamed.pop(0)
        content: list[JsonValue] = [{"type": "text", "text": part.get("output", "")}]
        content += [_attached(file) for _, file in objects_in(part.get("attachments"))]
        message: JsonObject = {"role": "toolResult", "toolCallId": call_id, "toolName": part.get("name")}
        message["content"] = content
        return message | ({"isError": True, "exception": part["exception"]} if "exception" in part else {})

    def _entry(self, row: kit.Row, message: JsonObject, call: JsonObject) -> tuple[NewEntry, JsonObject]:
        usage = _tokens(call)
        message = {**message, **_model_of(call), **({"usage": usage} if usage else {})}
        entry, extra = kit.message_entry(message, {**message}, row.line, self.chain.notes)
        return kit.with_response(entry, FORMAT, call.get("id")), {**without(call, *_READ), **extra}

    def _add_call(self, row: kit.Row, call: JsonObject) -> None:
        """Store a call that gave no message of its own."""
        call_id, usage = made_id(FORMAT, str(call.get("id"))), _tokens(call)
        entry = kit.plain_entry("llm.call", call)
        if usage:
            names = {"provider": "", "model": "", **_model_of(call), "call_id": call_id}
            entry = kit.with_call(entry, usage, self.chain.notes, row.line, **names)
        self._add(row, entry, call_id, kit.read_time(call.get("datetime_utc")), {})

    def _add(self, row: kit.Row, entry: NewEntry, own_id: str, moment: int | None, beside: JsonObject) -> None:
        entry_id = own_id if kit.is_name(own_id) and own_id not in self.chain.lines else None
        self.chain.add(entry, row.line, beside=beside, entry_id=entry_id, created_us=moment)


def parse_llm(rows: list[kit.Row], notes: kit.Notes, take_all: bool) -> kit.SessionPart | None:
    """Return the session of a row about it and the rows after it; None if it says nothing. O(rows)."""
    about, thread = rows[0].fields, fields_of(rows[0].fields.get("thread"))
    conversation, name = fields_of(about.get("conversation")), about.get("session")
    notes.left_out["is about a session"] += 1
    reading = _Reading(kit.Chain(_session_id(name), notes))
    for row in rows[1:]:
        reading.read(row)
    chain = reading.chain
    if not chain.entries:
        return None
    chain.leaf = reading.entry_of.get(str(thread.get("tip_message_hash"))) or chain.leaf
    title = conversation.get("name", thread.get("name"))
    beside = {**only(thread, "forked_from"), **only(conversation, "model")}
    return chain.parsed(FORMAT, "logs.db", beside, auto_title=title, created_us=reading.began_us)


read_llm = partial(gathered.GatheredReader, parse_llm)


def _part(part: JsonObject, call_id: str) -> JsonObject:
    """Return a part of a message as one of ours; ``call_id`` is for a call without one. Others stay as they are."""
    kind, rest = part.get("type"), without(part, "type", "tool_call_id", "attachment")
    if kind == "reasoning":
        return {"type": "thinking", "thinking": rest.pop("text", ""), **rest}
    if kind == "tool_call" and not part.get("server_executed"):
        own_id = part.get("tool_call_id")
        return {"type": "toolCall", "id": own_id if kit.is_name(own_id) else call_id, **rest}
    return {**_attached(fields_of(part.get("attachment"))), **rest} if kind == "attachment" else part


def _attached(file: JsonObject) -> JsonObject:
    """Return a file that was sent with a message as an image or a file; as it is, if the log has only its path."""
    kind, place = kit.one_text(file.get("type")) or "", only(file, "url")
    if "path" in file:
        place["filename"] = file["path"]
    if "content" not in file and "url" not in file:
        return {"type": "attachment", "attachment": file}
    data = {"data": file["content"], "mimeType": kind} if "content" in file else {}
    return {"type": "image" if kind.startswith("image/") else "file", **data, **place}


def _model_of(call: JsonObject) -> dict[str, str]:
    model = kit.one_text(call.get("resolved_model") or call.get("model"), 160)
    return {"model": model} if model else {}


def _tokens(call: JsonObject) -> JsonObject:
    """Return the usage of a call: details are named as the provider names them, and say how the counts are meant."""
    details, counts = fields_of(call.get("token_details")), [call.get(name) for name in _COUNTS]
    names = next((_NAMES[name] for name in details if name in _NAMES), _COUNTS)
    thoughts = details.get("thoughtsTokenCount")
    if names is _GEMINI and type(counts[1]) is int and type(thoughts) is int:
        counts[1] -= thoughts  # llm adds them up
    usage = {name: count for name, count in zip(names, counts, strict=True) if count is not None}
    reported: JsonObject = {**details, **usage} if usage else {}
    return reported if not usage or (read := read_reported(reported)).oddities else usage_json(read)
