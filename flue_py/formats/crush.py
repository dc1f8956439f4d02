"""Sessions of Crush, and of the older OpenCode that it came from: the database in a project."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION
from flue_py.core.sessions import made_id
from flue_py.core.usage import PaidCall, call_of, read_reported
from flue_py.errors import shown
from flue_py.formats import gathered, kit
from flue_py.providers.base import fields_of, objects_in, only

# A message is a row, and its parts are a list of JSON. An answer is rewritten while it is streamed, until it has a part
# that says how it finished. The context begins at the summary that the session names.
#
# The program is not run here: this follows its published source. docs/formats/crush.md lists the fields that are kept.

FORMAT = "crush"

_UNTITLED = frozenset({"", "Untitled Session", "New Session", "New Agent Session"})
_THOUGHT = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
"""The thoughts of small models before the title that they are asked for."""
_ATTACHED = "<system_info>The files below have been attached by the user, consider them in your response</system_info>"
"""The words that the program sends before the text files of a prompt."""
_STOPS = {"end_turn": "stop", "max_tokens": "length", "tool_use": "toolUse", "canceled": "aborted"}


def looks_like_crush(head: bytes, path_name: str = "") -> bool:
    """Return whether a file is a database of Crush, given its first bytes and its path. Never raises."""
    columns = ("messages.session_id", "messages.parts", "messages.finished_at")
    return gathered.has_tables(path_name, head, "sessions", "files", *columns)


def sessions_crush(path: Path, database: gathered.Database) -> Iterator[tuple[JsonValue, Iterator[bytes]]]:
    """Yield the id of each session, and its row with those of its messages."""
    folder = path.absolute().parent
    messages = "SELECT * FROM messages WHERE session_id = ? ORDER BY created_at, rowid"

    def rows(session: gathered.TableRow) -> Iterator[bytes]:
        yield gathered.table_row(gathered.SESSION, session, "todos")
        if folder.name in (".crush", ".opencode"):
            yield gathered.gathered_row("place", {"folder": str(folder.parent)})
        for message in database.execute(messages, (session["id"],)):
            yield gathered.table_row("message", message, "parts")

    lost = (
        "SELECT DISTINCT session_id AS id, 1 AS is_lost FROM messages WHERE session_id NOT IN (SELECT id FROM sessions)"
    )
    for query in ("SELECT * FROM sessions ORDER BY created_at, rowid", f"{lost} ORDER BY session_id"):
        for session in database.execute(query):
            yield session["id"], rows(session)


class _Message(Struct):
    """A row of a message."""

    line: int
    fields: JsonObject

    def data(self, kind: str) -> list[JsonObject]:
        """Return the parts of a type."""
        return [fields_of(part.get("data")) for _, part in objects_in(self.fields["parts"]) if part.get("type") == kind]

    def text(self) -> str:
        """Return its text: the program writes one."""
        return next((text for part in self.data("text") if isinstance(text := part.get("text"), str)), "")

    def unread(self, *kinds: str) -> list[JsonObject]:
        """Return the parts of other types, and the texts behind the first: they are kept beside the entry."""
        parts = [part for _, part in objects_in(self.fields["parts"])]
        later = [part for part in parts if part.get("type") == "text"][1:] if "text" in kinds else []
        return [*(part for part in parts if part.get("type") not in kinds), *later]

    @property
    def role(self) -> JsonValue:
        """The role of who wrote it."""
        return self.fields.get("role")

    @property
    def finish(self) -> JsonValue:
        """The reason for which it finished; None while it is streamed."""
        return next((part.get("reason", "") for part in self.data("finish")), None)

    @property
    def is_open(self) -> bool:
        """Whether it is an answer that is still streamed, or never finished."""
        return self.role == "assistant" and self.finish is None


class _Reading(Struct):
    """The entries of a session."""

    chain: kit.Chain
    summary: JsonValue
    """The message that is the latest summary."""
    tools: dict[str, str] = field(default_factory=dict)
    """The tools of the calls, which results do not name."""

    def add(self, message: _Message) -> None:
        """Add a message."""
        is_summary = message.fields["id"] == self.summary or message.fields.get("is_summary_message") == 1
        if is_summary and message.finish == "end_turn":
            body: JsonObject = {"summary": message.text(), "firstKeptEntryId": "", "tokensBefore": 0}
            self._place(message, kit.plain_entry(COMPACTION, body), only(message.fields, "model", "provider"))
        elif message.role == "tool" and (results := message.data("tool_result")):
            unread = message.unread("tool_result", "finish")
            for number, result in enumerate(results):
                rest = without(result, "tool_call_id", "name", "content", "is_error")
                self._say(message, _result_of(result), [rest, *([] if number else unread)])
        elif message.role == "user" and (content := _asked(message)):
            unread = message.unread("text", "binary", "shell_command", "finish")
            self._say(message, {"role": "user", "content": content}, unread)
        elif message.role == "assistant" and (content := _answered(message)) and not is_summary:
            names = only(message.fields, "model", "provider")
            stop = _STOPS.get(str(message.finish), "error")
            said: JsonObject = {"role": "assistant", "content": content, **names, "stopReason": stop}
            for call in message.data("tool_call"):
                if (call_id := kit.one_text(call.get("id"))) and (tool := kit.one_text(call.get("name"))):
                    self.tools[call_id] = tool
            thoughts = [without(part, "thinking", "signature") for part in message.data("reasoning")]
            unread = message.unread("reasoning", "text", "tool_call", "finish")
            self._say(message, said, [*thoughts, *message.data("finish"), *unread])
        else:
            # An answer without words is not sent, nor are parts of unknown types.
            kind = kit.entry_kind("crush.", "summary" if is_summary else str(message.role))
            self._place(message, kit.plain_entry(kind, only(message.fields, "role", "parts", "model")), {})

    def _say(self, message: _Message, said: JsonObject, rests: list[JsonObject]) -> None:
        named, tool = said, self.tools.get(kit.one_text(said.get("toolCallId")) or "")
        if tool and said["role"] == "toolResult" and "toolName" not in said:
            named = {**said, "toolName": tool}
        entry, extra = kit.message_entry(named, message.fields, message.line, self.chain.notes)
        # The row does not name the tool, and ids are made of what rows say.
        known_by = entry if named is said else kit.message_entry(said, message.fields, message.line, kit.Notes())[0]
        parts: list[JsonValue] = [rest for rest in rests if any(rest.values())]
        self._place(message, entry, {**({"parts": parts} if parts else {}), **extra}, known_by)

    def _place(self, message: _Message, entry: NewEntry, beside: JsonObject, known_by: NewEntry | None = None) -> None:
        beside, at_us = {**only(message.fields, "id"), **beside}, kit.read_moment(message.fields.get("created_at"))
        self.chain.add(entry, message.line, beside=beside, created_us=at_us, known_by=known_by)


def _asked(message: _Message) -> list[JsonValue]:
    """Return a prompt as it is sent: its text with text files and commands behind it, and other files."""
    files = [file for file in message.data("binary") if isinstance(file.get("Data"), str)]
    documents = [file for file in files if str(file.get("MIMEType")).startswith("text/")]
    said = message.text().strip() + (f"\n{_ATTACHED}\n" if documents else "")
    for file in documents:
        path = f" path='{file['Path']}'" if file.get("Path") else ""
        said += f"<file{path}>\n\n{_decoded(file)}\n</file>\n"
    commands = [
        f"$ {command.get('command')}\n{command.get('output')}"
        + ("" if command.get("exit_code") is None else f"\n(exit code {command['exit_code']})")
        for command in message.data("shell_command")
    ]
    text = "\n\n".join(part for part in (said, *commands) if part)
    content: list[JsonValue] = [{"type": "text", "text": text}] if text else []
    for file in files:
        if file not in documents:
            kind = "image" if str(file.get("MIMEType")).startswith("image/") else "file"
            content.append({"type": kind, "data": file["Data"], "mimeType": file.get("MIMEType")})
    return content


def _decoded(file: JsonObject) -> str:
    try:
        return b64decode(str(file["Data"])).decode(errors="replace")
    except ValueError:
        return ""


def _answered(message: _Message) -> list[JsonValue]:
    """Return the parts of an answer: thoughts, a text, and calls."""
    content: list[JsonValue] = [
        kit.thought(thought, part.get("signature") or None)
        for part in message.data("reasoning")
        if isinstance(thought := part.get("thinking"), str) and thought
    ]
    if text := message.text():
        content.append({"type": "text", "text": text})
    for call in message.data("tool_call"):
        given = kit.decode_row(2, str(call.get("input")).encode(errors="replace"), kit.Notes())
        arguments: JsonObject = {"input": call.get("input")} if given is None else given
        content.append({"type": "toolCall", "id": call.get("id"), "name": call.get("name"), "arguments": arguments})
    return content


def _result_of(result: JsonObject) -> JsonObject:
    data, is_error = result.get("data"), result.get("is_error") is True
    content: JsonObject = {"type": "text", "text": result.get("content")}
    if data and not is_error:
        content = {"type": "image", "data": data, "mimeType": result.get("mime_type")}
    said: JsonObject = {"role": "toolResult", "toolCallId": result.get("tool_call_id"), "content": [content]}
    return {**said, **({"toolName": result["name"]} if result.get("name") else {}), "isError": is_error}


def _call(session: JsonObject, session_id: str) -> tuple[PaidCall, ...]:
    """Return the cost of a session as one call. Its tokens are those of the last call, and no sum."""
    cost = session.get("cost")
    if not isinstance(cost, (int, float)) or not cost:
        return ()
    name = made_id(FORMAT, session_id, "cost")
    # It takes the place of the cost that the session had before: no count of tokens tells the two apart.
    return (replace(call_of(read_reported({"cost": {"total": cost}}), call_id=name), replaces=(name,)),)


def parse_crush(rows: list[kit.Row], notes: kit.Notes, take_all: bool) -> kit.SessionPart | None:
    """Return the session of some rows (see `ParseRows`)."""
    first, about = rows[0], without(rows[0].fields, "type", "is_lost")
    session_id = about.get("id")
    if first.type != gathered.SESSION or not kit.is_name(session_id):
        notes.skip(first.line, f"is not the row of a session: it {kit.unusable_id(session_id)}")
        return None
    if "is_lost" in first.fields:
        notes.repair(first.line, f"the session {shown(session_id)} has messages, and no row of its own")
    messages = []
    for row in rows[1:]:
        parts, name = row.fields.get("parts"), row.fields.get("id")
        if row.type == "message" and isinstance(parts, list) and isinstance(name, str):
            messages.append(_Message(row.line, row.fields))
        elif row.type != "place":
            notes.skip(row.line, "is not a message with a list of parts")
    ended = [at for at, message in enumerate(messages) if message.role == "assistant" and not message.is_open]
    last = max(ended, default=-1)
    opened = next((at for at in range(last + 1, len(messages)) if messages[at].is_open), len(messages))
    reading = _Reading(kit.Chain(session_id, notes), about.get("summary_message_id"))
    for at, message in enumerate(messages):
        if at >= opened and not take_all:
            notes.hold_back(message.line)
        else:
            reading.add(message)
    parent = kit.task_below(about.get("parent_session_id"), session_id)
    said = kit.one_text(about.get("title")) or ""
    thought = _THOUGHT.match(said)
    title = said[thought.end() :].strip() if thought else said
    # The cost of a task is added to that of the session above it.
    calls = _call(about, session_id) if parent is None else ()
    if not reading.chain.entries and not calls:
        notes.left_out["is a session without messages"] += 1
        return None
    parsed = reading.chain.parsed(
        FORMAT,
        "crush.db",
        {"session": about},
        auto_title=None if title in _UNTITLED else title,
        cwd=next((row.fields.get("folder") for row in rows[1:] if row.type == "place"), None),
        created_us=kit.read_moment(about.get("created_at")),
        parent=parent,
    )
    return replace(parsed, restates=True, calls=calls)


read_crush = partial(gathered.GatheredReader, parse_crush)
