"""Sessions of Goose: the database `sessions.db`, documents that it exports, and the files of versions before it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION, EXCLUSION, message_text
from flue_py.core.sessions import made_id
from flue_py.core.usage import PaidCall, call_of, read_reported
from flue_py.formats import gathered, kit
from flue_py.providers.base import fields_of, listed, objects_in, only, result_message
from flue_py.system import read_beginning

# A session is a row, its messages, and, since the program counts them, its calls. Before there was a database, it was a
# file: a line about it, and a line for each message.
#
# Rows stay when they leave the context: `agentVisible` is set to false. A compaction does that with all rows before it,
# and adds a summary and an answer, which a person is not shown.
# docs/formats/goose.md lists the fields that are kept.

FORMAT = "goose"

_JSON = ("extension_data", "recipe_json", "user_recipe_values_json", "model_config_json")
_EXPORTED = re.compile(rb'\s*\{\s*"id": ?"[^"]*",\s*"working_dir":')
_CODE = "-32603: "
"""The words that an export puts before the error of a call."""
_PLACEHOLDERS = frozenset({"", "CLI Session", "New Chat", "New session"})

# A fork copies messages, and not the calls for them: those of older sessions, up to when it was made, may be theirs.
_CALLS = "SELECT * FROM usage_ledger WHERE session_id = ? ORDER BY id"
_OLDER_CALL = """
    SELECT * FROM usage_ledger u WHERE id = :call
        AND EXISTS (SELECT 1 FROM sessions s WHERE s.id = u.session_id AND s.rowid < :place)
"""
_PERIOD = """
    SELECT min(m.created_timestamp), CAST(strftime('%s', s.created_at) AS INTEGER)
        FROM sessions s JOIN messages m ON m.session_id = s.id WHERE s.rowid = :place
"""
_MOST_LOOKS = 1_000_000
"""How many older calls are looked at, in all: only hostile databases have more."""


def looks_like_goose(head: bytes, path_name: str = "") -> bool:
    """Return whether a file is a database of Goose, or a session of its older versions, given its first bytes."""
    columns = ("messages.session_id", "messages.content_json", "messages.created_timestamp")
    if _EXPORTED.match(head) or gathered.has_tables(path_name, head, "sessions", "schema_version", *columns):
        return True
    fields = next(kit.first_rows(head), {})
    is_message = isinstance(fields.get("created"), int) and isinstance(fields.get("content"), list)
    return "type" not in fields and (
        fields.keys() >= {"description", "message_count"} or (is_message and "role" in fields)
    )


def gather_goose(path: Path) -> Generator[bytes, None, None]:
    """Yield the rows of an export, or of a file of older versions. Raises `UnreadableFile`."""
    if path.suffix.lower() == ".json" or _EXPORTED.match(read_beginning(path, 4096) or b""):
        yield from _rows_of_export(kit.read_object(gathered.whole_file(path), kit.Notes(), str(path)))
        return
    lines = gathered.lines_of(path)
    first = next(lines, b"{}")
    about = kit.decode_row(1, first, kit.Notes()) or {}
    is_message = "role" in about
    yield gathered.gathered_row(gathered.SESSION, {**({} if is_message else about), "id": path.stem})
    for line in (*([first] if is_message else ()), *lines):
        yield gathered.gathered_row("message", {}, {"data": line.decode(errors="replace").strip() or "null"})


def _rows_of_export(document: JsonObject) -> Iterator[bytes]:
    """Yield the rows of a document of ``goose session export --format json``."""
    messages = [fields_of(message) for message in listed(document.get("conversation"))]
    sums: JsonObject = {}
    if not any(_Message(0, message).usage for message in messages):
        # Where messages have their calls, the others are in the database alone, by other names.
        for name, count in fields_of(document.get("accumulated_usage")).items():
            sums[f"accumulated_{name.replace('read_input', 'read').replace('write_input', 'write')}"] = count
    about = without(document, "conversation")
    yield gathered.gathered_row(gathered.SESSION, {**about, **sums, "parent": document.get("parent_session_id")})
    for message in messages:
        for _, part in objects_in(message.get("content")):
            result = fields_of(part.get("toolResult"))
            if isinstance(error := result.get("error"), str):
                result["error"] = error.removeprefix(_CODE)
        yield gathered.gathered_row("message", {"data": message})


def sessions_goose(_path: Path, database: gathered.Database) -> Iterator[tuple[JsonValue, Iterator[bytes]]]:
    """Yield the id of each session, and its row with its calls, then its messages."""
    schema = database.execute("SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c").fetchall()
    columns = {f"{row[0]}.{row[1]}" for row in schema}
    optional = ("messages.message_id", "messages.metadata_json", "sessions.parent_session_id")
    own_id, metadata, parent = (name if name in columns else "NULL" for name in optional)
    messages = (
        f"SELECT {own_id} AS id, role, created_timestamp AS created, content_json AS content,"  # noqa: S608
        f" {metadata} AS metadata FROM messages WHERE session_id = :session ORDER BY created_timestamp, messages.id"
    )
    sessions = f"SELECT rowid AS place, {parent} AS parent, * FROM sessions ORDER BY rowid"  # noqa: S608
    ledger = "SELECT created_timestamp, id FROM usage_ledger WHERE typeof(created_timestamp) = 'integer'"
    times = sorted(map(tuple, database.execute(ledger))) if "usage_ledger.id" in columns else []
    looks = iter(range(_MOST_LOOKS))

    def rows(session: gathered.TableRow) -> Iterator[bytes]:
        values = {"session": session["id"], "place": session["place"]}
        yield gathered.table_row(gathered.SESSION, session, *_JSON)
        for call in database.execute(_CALLS, (session["id"],)) if "usage_ledger.id" in columns else ():
            yield gathered.table_row("call", call)
        began, made = database.execute(_PERIOD, values).fetchone()
        if type(began) is int and type(made) is int:
            older = times[bisect_left(times, (began, 0)) : bisect_left(times, (made + 1, 0))]
            for (_, name), _ in zip(older, looks, strict=False):
                for call in database.execute(_OLDER_CALL, {"call": name, "place": session["place"]}):
                    yield gathered.table_row("call", call)
        for message in database.execute(messages, values):
            yield gathered.table_row("message", message, "content", "metadata")

    for session in database.execute(sessions):
        yield session["id"], rows(session)


class _Message(Struct):
    """A row of a message."""

    line: int
    fields: JsonObject

    @property
    def parts(self) -> list[JsonObject]:
        """The parts of its content."""
        return [part for _, part in objects_in(self.fields.get("content"))]

    @property
    def metadata(self) -> JsonObject:
        """Its visibility, model and usage."""
        return fields_of(self.fields.get("metadata"))

    @property
    def usage(self) -> JsonObject:
        """The tokens and the cost of its call."""
        return fields_of(self.metadata.get("usage"))

    @property
    def is_for_model(self) -> bool:
        """Whether a person is not shown it, though it is no note about the time and the folder."""
        return self.metadata.get("userVisible") is False and "turnContext" not in self.metadata

    @property
    def is_hidden(self) -> bool:
        """Whether it is not in the context any more, or never was."""
        return self.metadata.get("agentVisible") is False

    def is_by(self, role: str) -> bool:
        """Return whether it is of a role."""
        return self.fields.get("role") == role


class _Reading(Struct):
    """The rows of a session that were read so far."""

    chain: kit.Chain
    ledger: dict[str, deque[JsonObject]] = field(default_factory=dict)
    """The calls that no message had, by their usage: of this session, then of those that it may have copies of."""
    messages: list[_Message] = field(default_factory=list)
    providers: dict[JsonValue, JsonValue] = field(default_factory=dict)
    """The provider of each model."""
    tools: dict[JsonValue, JsonValue] = field(default_factory=dict)
    """The tool of each call."""
    counted: list[list[int | None]] = field(default_factory=list)
    """The tokens of each call."""
    tokens: int = 0
    """The tokens of the last answer."""

    def read(self, row: kit.Row) -> None:
        """Take over a row."""
        fields = fields_of(row.fields.get("data", row.fields))
        if row.type == "call":
            self.ledger.setdefault(kit.json_line(usage_of(fields)), deque()).append(fields)
            self.counted.append(counts_of(fields))
        elif row.type == "message" and isinstance(fields.get("content"), list):
            self.messages.append(_Message(row.line, fields))
        else:
            self.chain.notes.skip(row.line, "is not a message with a content")

    def build(self) -> None:
        """Make the entries."""
        rows = [*self.messages, _Message(0, {})]
        summaries = {
            at
            for at, (row, after) in enumerate(pairwise(rows))
            if row.is_by("user") and row.is_for_model and after.is_by("assistant") and after.is_for_model
        }
        last, is_notice = max(summaries, default=-1), False
        for at, (row, after) in enumerate(pairwise(rows)):
            is_slash = row.is_by("user") and message_text(row.fields).startswith("/")
            is_command = is_slash and "turnContext" not in after.metadata
            is_reply = row.is_by("assistant") and is_notice and not row.metadata.keys() & {"inference", "usage"}
            is_notice = row.is_hidden and (is_command or is_reply)
            if at in summaries:
                summary: JsonObject = {"summary": message_text(row.fields)}
                body: JsonObject = {**summary, "firstKeptEntryId": "", "tokensBefore": self.tokens}
                words = kit.plain_entry(COMPACTION, summary)
                self._place(row, kit.plain_entry(COMPACTION, body), {"metadata": self._rest(row)}, words)
            else:
                first = len(self.chain.entries)
                self._add(row, is_notice=is_notice)
                for entry in self.chain.entries[first:] if row.is_hidden and not is_notice and at > last else ():
                    self.chain.add(kit.plain_entry(EXCLUSION, {"entryId": entry.id}), row.line)

    def _add(self, row: _Message, *, is_notice: bool) -> None:
        said: list[JsonValue] = []
        parts = row.parts
        results = [part for part in parts if part.get("type") == "toolResponse"]
        for part in () if is_notice else results:
            result, rest = result_of(part)
            result["toolName"] = self.tools.get(part["id"] if isinstance(part.get("id"), str) else None)
            self._say(row, {name: value for name, value in result.items() if value is not None}, [rest])
        said = [words for part in parts if (words := sent_part(part))]
        others = [part for part in parts if part.get("type") != "toolResponse"]
        if said and not is_notice:
            for call in said:
                name = fields_of(call).get("id")
                self.tools[name if isinstance(name, str) else None] = fields_of(call).get("name")
            self._say(row, {"role": row.fields.get("role"), "content": said}, [rest_of(part) for part in others])
        elif is_notice or not results:
            kind = kit.entry_kind("goose.", str(parts[0].get("type")) if parts and not is_notice else "notice")
            self._place(row, kit.plain_entry(kind, {**only(row.fields, "role"), "content": [*parts]}), {})

    def _say(self, row: _Message, message: JsonObject, rests: list[JsonObject]) -> None:
        inference, usage = fields_of(row.metadata.get("inference")), usage_of(row.usage)
        words = kit.message_entry(message, row.fields, row.line, kit.Notes())[0]
        if message["role"] == "assistant":
            model, provider = inference.get("requestedModel"), inference.get("provider")
            paid: JsonObject = {"model": model, "provider": provider, "usage": usage or None}
            message |= {name: value for name, value in paid.items() if value is not None}
            if isinstance(model, str) and isinstance(provider, str):
                self.providers[model] = provider
        entry, extra = kit.message_entry(message, row.fields, row.line, self.chain.notes)
        if entry.calls:
            self.tokens = entry.calls[0].usage.total_tokens
            entry = self._paid(entry, row)
        parts: list[JsonValue] = [rest for rest in rests if rest.keys() - {"type", "id"}]
        self._place(row, entry, {"metadata": self._rest(row), "parts": parts, **extra}, words)

    def _paid(self, entry: NewEntry, row: _Message) -> NewEntry:
        """Return an answer whose call has the name that it has in the program's own list of calls."""
        if calls := self.ledger.get(kit.json_line(usage_of(row.usage))):
            name = _call_id(calls.popleft())
            return replace(entry, calls=tuple(replace(paid, call_id=name) for paid in entry.calls))
        self.counted.append(counts_of(row.usage))
        return kit.with_response(entry, FORMAT, row.fields.get("id"))

    def _rest(self, row: _Message) -> JsonObject:
        return without(row.metadata, "agentVisible", "userVisible", "usage")

    def _place(self, row: _Message, entry: NewEntry, beside: JsonObject, words: NewEntry | None = None) -> None:
        """Add an entry, whose id is made of its words and of those before: people edit rows, which keep their ids."""
        moment = kit.read_moment(row.fields.get("created"))
        beside = {name: value for name, value in {**only(row.fields, "id"), **beside}.items() if value}
        self.chain.add(entry, row.line, beside=beside, created_us=moment, known_by=words)

    def calls_alone(self, about: JsonObject) -> tuple[PaidCall, ...]:
        """Return the calls that no message has: of compactions, of messages that are gone, and of older versions."""
        calls = []
        for call in chain.from_iterable(self.ledger.values()):
            if call.get("session_id") != self.chain.session_id:
                continue
            model = call.get("model")
            provider = self.providers.get(model if isinstance(model, str) else None, about.get("provider_name"))
            purpose = COMPACTION if call.get("is_compaction") else "turn"
            paid = call_of(
                read_reported(usage_of(call)), provider=provider, model=model, call_id=_call_id(call), purpose=purpose
            )
            calls.append(replace(paid, at_us=kit.read_moment(call.get("created_timestamp"))))
        prefix = "accumulated_"
        sums = counts_of({name.removeprefix(prefix): about[name] for name in about if name.startswith(prefix)})
        usage = usage_of(rest_of_sums(sums, self.counted))
        if usage:
            # Older versions have the sums only: of the calls, neither the number nor the models are stored.
            calls.append(call_of(read_reported(usage), call_id=made_id(FORMAT, self.chain.session_id, "sums")))
        return tuple(calls)


def _call_id(call: JsonObject) -> str:
    return made_id(FORMAT, str(call.get("session_id")), "call", str(call.get("id")))


def parse_goose(rows: list[kit.Row], notes: kit.Notes, take_all: bool) -> kit.SessionPart | None:
    """Return the session of some rows (see `ParseRows`)."""
    first, about = rows[0], without(rows[0].fields, "type", "place", "parent")
    session_id, parent_id = about.get("id"), rows[0].fields.get("parent")
    if first.type != gathered.SESSION or not kit.is_name(session_id):
        notes.skip(first.line, f"is not the row of a session: it {kit.unusable_id(session_id)}")
        return None
    reading = _Reading(kit.Chain(session_id, notes))
    for row in rows[1:]:
        reading.read(row)
    reading.build()
    calls = reading.calls_alone(about)
    if not reading.chain.entries and not calls:
        notes.left_out["is a session without messages"] += 1
        return None
    names = (kit.one_text(about.get(key)) or "" for key in ("name", "description"))
    title = next((name for name in names if name not in _PLACEHOLDERS), None)
    is_given = bool(about.get("user_set_name"))
    # A file of older versions stays behind, and says nothing of what became of its session in the database.
    is_stored = "place" in first.fields
    parsed = reading.chain.parsed(
        FORMAT,
        FORMAT,
        {"session": about},
        is_rewritten=is_stored,
        auto_title=None if is_given else title,
        cwd=about.get("working_dir"),
        created_us=kit.read_time(about.get("created_at")),
        parent=kit.task_below(parent_id, session_id),
    )
    return replace(parsed, restates=is_stored, name=title if is_given else None, calls=calls)


read_goose = partial(gathered.GatheredReader, parse_goose)


# The parts of messages, and usage, in our words.

_COUNTS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "total_tokens": "totalTokens",
    "cache_read_tokens": "cacheReadTokens",
    "cache_write_tokens": "cacheWriteTokens",
}
"""The counts of a call, as a row has them and as a message has them."""
_TAKEN = ("text", "thinking", "signature", "data", "mimeType")
"""The fields of a part that are in the message."""
_FAILED = "The tool call returned the following error:\n"
"""The words that the program sends before the error of a call."""
_UNREADABLE = "unparseable_tool_call"
"""The name that the program gives to a call that it cannot read."""


def counts_of(fields: JsonObject) -> list[int | None]:
    """Return the counts of a call, of a row or a message, in the order of `_COUNTS`."""
    counts = [fields.get(row, fields.get(message)) for row, message in _COUNTS.items()]
    return [count if type(count) is int else None for count in counts]


def rest_of_sums(sums: Sequence[int | None], calls: Sequence[Sequence[int | None]]) -> JsonObject:
    """Return the counts of sums that calls leave, named as in a row; an empty object if they leave none."""
    left = [
        None if whole is None else max(0, whole - sum(call[place] or 0 for call in calls))
        for place, whole in enumerate(sums)
    ]
    return dict(zip(_COUNTS, left, strict=True)) if any(left) else {}


def usage_of(fields: JsonObject) -> JsonObject:
    """Return the tokens and the cost of a call as our usage; the program has the cache in the input."""
    shown, output, total, read, write = counts_of(fields)
    cached, cost = (read or 0) + (write or 0), fields.get("cost")
    usage: JsonObject = {"input": shown - cached if shown is not None and shown >= cached else shown}
    usage |= {"output": output, "cacheRead": read, "cacheWrite": write, "totalTokens": total}
    usage["cost"] = {"total": cost} if isinstance(cost, (int, float)) and cost else None
    return {name: count for name, count in usage.items() if count is not None}


def sent_part(part: JsonObject) -> JsonObject | None:
    """Return a part as it is sent; None for one that is not, and for the result of a call."""
    audience = fields_of(part.get("annotations")).get("audience")
    kind, text, thought = part.get("type"), part.get("text"), part.get("thinking")
    sent: JsonObject | None = None
    if isinstance(audience, list) and "assistant" not in audience:
        return None
    if kind == "resource":
        kind, text = "text", fields_of(part.get("resource")).get("text")
    if kind == "reasoning":
        kind, thought = "thinking", text
    if kind == "text" and isinstance(text, str):
        sent = {"type": "text", "text": text}
    elif kind == "image" and isinstance(part.get("data"), str):
        sent = {"type": "image", **only(part, "data", "mimeType")}
    elif kind == "thinking" and isinstance(thought, str):
        sent = kit.thought(thought, part.get("signature") or None)
    elif kind == "redactedThinking":
        sent = kit.thought("", None, part.get("data"))
    elif kind in ("toolRequest", "frontendToolRequest"):
        call = fields_of(fields_of(part.get("toolCall")).get("value"))
        sent = {"type": "toolCall", "id": part.get("id"), "name": call.get("name", _UNREADABLE)}
        sent["arguments"] = fields_of(call.get("arguments"))
    return sent


def rest_of(part: JsonObject) -> JsonObject:
    """Return the fields of a part that are not in the message: all of one that is not sent."""
    is_whole = sent_part(part) is not None and fields_of(part.get("toolCall")).get("error") is None
    return without(part, *_TAKEN, "toolCall") if is_whole else part


def result_of(part: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return the result of a call as it is sent, and the other fields of the part."""
    result = fields_of(part.get("toolResult"))
    value, error = result.get("value"), result.get("error")
    about = fields_of(value)
    words = [sent_part(fields_of(item)) for item in listed(about.get("content", value))]
    content: list[JsonValue] = [word for word in words if word is not None]
    if error is not None:
        content = [{"type": "text", "text": f"{_FAILED}{error}"}]
    is_error = error is not None or about.get("isError") is True
    message = result_message(part.get("id"), content, is_error=is_error)
    rest = without(about, "content", "isError")
    return message, part if None in words else {**without(part, "toolResult"), **({"result": rest} if rest else {})}
