"""Sessions of OpenCode: its database, and the folders of older versions."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import dropwhile
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import REPLACEMENT, NewEntry
from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION, EXCLUSION, message_text
from flue_py.core.sessions import made_id
from flue_py.core.usage import PaidCall, read_reported
from flue_py.errors import UnreadableFile, shown
from flue_py.formats import gathered, kit
from flue_py.providers.base import fields_of, listed, only, result_message
from flue_py.providers.openai_chat import image_from_url

# The rows of a session are its own, those of its messages with their parts, and of the events behind them.
#
# A message is one step as a rule: an answer with the calls of tools and their results. A revert deletes messages when
# the conversation goes on; events still have them, and say in which order messages came and went. Forks copy messages
# under new ids, with their times and tokens. docs/formats/opencode.md lists the fields that are kept.

FORMAT = "opencode"

_SESSION_FILE = re.compile(rb'\s*\{\s*"id": ?"ses_[^"]*",\s*"(slug|version|projectID|parentID)"')
_EXPORTED = re.compile(rb'\s*\{\s*"info": ?\{\s*"id": ?"ses_')
_IS_DEFAULT = re.compile(r"|(New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z( \(fork #\d+\))?")
_ROWS = {"ses": gathered.SESSION, "msg": "message", "prt": "part"}
_CHANGES = [
    f"SELECT session_id, max(time_updated), count(*), sum(time_updated & 4294967295) FROM {table} GROUP BY session_id"  # noqa: S608 - words of the format
    for table in ("message", "part")
]
_LAST_EVENTS = "SELECT aggregate_id, count(*), max(seq) FROM event GROUP BY aggregate_id"
_EVENTS = """
    SELECT id, type AS name, data FROM event WHERE aggregate_id = ?1 AND (type GLOB 'session.*' OR type GLOB 'message.*'
        AND EXISTS (SELECT 1 FROM event WHERE aggregate_id = ?1 AND type GLOB 'message.removed.*')
        AND NOT (type GLOB 'message.part.*' AND EXISTS (
            SELECT 1 FROM part WHERE part.id = CASE json_valid(event.data) WHEN 1 THEN event.data ->> '$.part.id' END
        ))
    ) ORDER BY seq
"""
"""The events of a session that lost messages, but for those of parts that are there; of others those of its names."""


def looks_like_opencode(head: bytes, path_name: str = "") -> bool:
    """Return whether a file may be the database of OpenCode, or a session file of an older version."""
    if path_name.endswith(".json"):
        is_one = "/session/" in path_name.replace("\\", "/") and _SESSION_FILE.match(head)
        return bool(is_one or _EXPORTED.match(head))
    return gathered.has_tables(path_name, head, "session", "message", "part")


def gather_opencode(path: Path) -> Generator[bytes, None, None]:
    """Yield the rows of an export, or of the files of a session of older versions. Raises `UnreadableFile`."""
    whole = gathered.whole_file(path)
    if _EXPORTED.match(whole):
        yield from _rows_of_export(whole)
        return
    yield _row_of_file(path, whole)
    for file in _files_beside(path):
        yield _row_of_file(file, gathered.read_beside(file) or b"")


def _row_of_file(file: Path, data: bytes) -> bytes:
    fields: JsonObject = {"id": file.stem, "message_id": file.parent.name}
    kind = _ROWS.get(file.name[:3], gathered.SESSION)
    return gathered.gathered_row(kind, fields, {"data": data.decode(errors="replace")})


def _rows_of_export(whole: bytes) -> Iterator[bytes]:
    """Yield the rows of a document of ``opencode export``. Raises `UnreadableFile` if it is no JSON."""
    document = kit.read_object(whole, kit.Notes(), "the file of a session")
    info = fields_of(document.get("info"))
    yield gathered.gathered_row(gathered.SESSION, {"id": info.get("id"), "data": info})
    for message in map(fields_of, listed(document.get("messages"))):
        data = fields_of(message.get("info"))
        yield gathered.gathered_row("message", {"id": data.get("id"), "data": data})
        for part in map(fields_of, listed(message.get("parts"))):
            yield gathered.gathered_row("part", {"id": part.get("id"), "message_id": data.get("id"), "data": part})


def fingerprints_opencode(path: Path) -> dict[str, str]:
    """Return a text of each session of a database: of its row, and how many others it has, and when they changed.

    One that changed within the last second has none: it may change again at the same time. O(rows), without their data.
    """
    fingerprints: dict[str, str] = {}
    # A database that cannot be read so is read whole, which says what is wrong with it.
    with suppress(UnreadableFile), gathered.database_of(path) as database:
        counts: dict[str, list[JsonValue]] = {}
        for query in (*_CHANGES, *([_LAST_EVENTS] if _has_events(database) else [])):
            for row in database.execute(query):
                counts.setdefault(row[0], []).extend(row[1:])
        ((now,),) = database.execute("SELECT (julianday('now') - 2440587.5) * 86400000")
        for session in database.execute("SELECT * FROM session"):
            name, own = session["id"], counts.get(session["id"], [])
            is_settled = all(isinstance(at, int) and at < now - 1000 for at in (session["time_updated"], *own[0:6:3]))
            if isinstance(name, str) and is_settled:
                digest = blake2b(repr(tuple(session)).encode(errors="replace"), digest_size=16).hexdigest()
                fingerprints[name] = f"{digest} {own}"
    return fingerprints


def beside_opencode(path: Path) -> JsonValue:
    """Return the states of the log of a database, or of the files of messages and parts. Never raises."""
    return gathered.states_of(_files_beside(path)) if path.suffix == ".json" else gathered.log_beside(path)


def _files_beside(path: Path) -> Iterator[Path]:
    """Yield the files of the messages of a session, each before those of its parts."""
    storage = path.absolute().parent.parent.parent
    for message in sorted((storage / "message" / path.stem).glob("msg_*.json")):
        yield message
        yield from sorted((storage / "part" / message.stem).glob("prt_*.json"))


def sessions_opencode(_path: Path, database: gathered.Database) -> Iterator[tuple[JsonValue, Iterator[bytes]]]:
    """Yield the id of each session, and its row with those of its messages, their parts, and its events."""
    messages = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    parts = "SELECT id, message_id, data FROM part WHERE message_id = ? ORDER BY id"
    has_events = _has_events(database)

    def rows(session: gathered.TableRow) -> Iterator[bytes]:
        yield gathered.table_row(gathered.SESSION, session, "revert", "model", "metadata", "permission")
        for message in database.execute(messages, (session["id"],)):
            yield gathered.table_row("message", message, "data")
            for part in database.execute(parts, (message["id"],)):
                yield gathered.table_row("part", part, "data")
        for event in database.execute(_EVENTS, (session["id"],)) if has_events else ():
            yield gathered.table_row("event", event, "data")

    for session in database.execute("SELECT * FROM session ORDER BY time_created, id"):
        yield session["id"], rows(session)


def _has_events(database: gathered.Database) -> bool:
    return database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'event'").fetchone() is not None


class _Rows(Struct):
    """The messages of a session that are there, in their order, and those that were taken back."""

    notes: kit.Notes
    there: dict[str, MessageRow] = field(default_factory=dict)
    gone: dict[str, MessageRow] = field(default_factory=dict)
    alive: dict[str, None] = field(default_factory=dict)
    before: dict[str, str | None] = field(default_factory=dict)
    """The message before each one, when it came."""
    titles: list[str] = field(default_factory=list)

    def read(self, row: kit.Row) -> None:
        """Read a row of a message, a part or an event."""
        data, name, owner = row.fields.get("data"), row.fields.get("id"), row.fields.get("message_id")
        if not isinstance(data, dict) or not kit.is_name(name):
            self.notes.skip(row.line, "is not an object with an id")
        elif row.type == "message":
            self.there[name] = MessageRow(name, row.line, own_fields(data))
        elif row.type == "event":
            self._replay(row, data)
        elif isinstance(owner, str) and owner in self.there:
            self.there[owner].parts[name] = own_fields(data)
        else:
            self.notes.skip(row.line, f"is a part of the message {shown(owner)}, which is not there")

    def _replay(self, row: kit.Row, data: JsonObject) -> None:
        self.notes.left_out["is an event"] += 1
        kind, info, part = str(row.fields.get("name")), fields_of(data.get("info")), fields_of(data.get("part"))
        name, part_id = info.get("id", data.get("messageID", part.get("messageID"))), part.get("id")
        if kind.startswith("session."):
            self.titles.append(kit.one_text(info.get("title")) or "")
        elif kind.startswith("message.removed.") and isinstance(name, str) and name in self.alive:
            del self.alive[name]
        elif kind.startswith("message.updated.") and kit.is_name(name):
            if name not in self.before:
                self.before[name] = next(reversed(self.alive), None)
                self.alive[name] = None
            if name not in self.there:
                self.gone.setdefault(name, MessageRow(name, row.line, {})).fields = own_fields(info)
        elif kind.startswith("message.part.updated.") and isinstance(part_id, str) and str(name) in self.gone:
            self.gone[str(name)].parts[part_id] = own_fields(part)

    def hold_back(self, *, take_all: bool) -> None:
        """Leave out the messages at the end that may not be complete: an answer being written, and all after it.

        A prompt that has no answer yet may lack parts, and a request to sum up is nothing without its summary.
        """
        messages = [*self.there.values()]
        last = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].is_ended), -1)
        after = messages[last + 1 :]
        if any(message.is_answer for message in after):
            after = [*dropwhile(lambda message: not message.is_answer and not message.has(COMPACTION), after)]
        for message in after:
            message.is_partial = True
            if not take_all:
                self.notes.hold_back(message.line)
                del self.there[message.id]


class _Tree(Struct):
    """The entries so far."""

    rows: _Rows
    chain: kit.Chain
    tails: dict[str | None, str | None] = field(default_factory=dict)
    """The last entry of each message."""
    tokens: int = 0
    """The tokens of the last answer."""

    def build(self, revert: JsonValue) -> None:
        """Add the messages that are there, and those that were taken back; an open ``revert`` begins at this one."""
        rows, chain = self.rows, self.chain
        messages = {**rows.gone, **rows.there}
        asked = {str(message.fields.get("parentID")) for message in messages.values() if message.is_summary}
        before = {**rows.before, **dict(zip(rows.there, (None, *rows.there), strict=False))}
        places = (
            (at, name, message.line)
            for message in rows.there.values()
            for name, part in message.parts.items()
            if (at := kit.read_moment(fields_of(fields_of(part.get("state")).get("time")).get("compacted"))) is not None
        )
        cleared = deque(sorted(places))
        for message in rows.there.values():
            at = kit.read_moment(fields_of(message.fields.get("time")).get("created")) or 0
            while cleared and cleared[0][0] < at:
                self._clear(*cleared.popleft())
            self._add(message, messages, is_summed_up=message.id in asked)
        for place in cleared:
            self._clear(*place)
        leaf = self.tails.get(before.get(revert)) if isinstance(revert, str) and revert in messages else chain.leaf
        for message in rows.gone.values():
            chain.leaf = self.tails.get(before.get(message.id))
            self._add(message, messages, is_summed_up=message.id in asked)
        chain.leaf = leaf

    def _clear(self, at: int, name: str, line: int) -> None:
        """Add that the result of a call is sent as cleared from here on."""
        if name in self.chain.lines:
            body: JsonObject = {"entryId": name, "excluded": False, REPLACEMENT: CLEARED}
            mark = made_id(self.chain.session_id, "cleared", name)
            self.chain.add(kit.plain_entry(EXCLUSION, body), line, entry_id=mark, created_us=at)

    def _add(self, message: MessageRow, messages: dict[str, MessageRow], *, is_summed_up: bool) -> None:
        fields, parts = message.fields, [*message.parts.values()]
        content: list[JsonValue] = [sent for part in parts if (sent := sent_part(part))]
        if message.is_summary and (asked := messages.get(str(fields.get("parentID")))) is not None:
            self._compaction(message, asked)
        elif message.is_answer and not message.is_left_out:
            for number, step in enumerate(steps_of(message.parts)):
                self._answer(message, step, number)
        elif fields.get("role") == "user" and content and not is_summed_up:
            self._place(message, *self._entry(message, {"role": "user", "content": content}, parts))
        else:
            kind = kit.entry_kind("opencode.", "failed" if message.is_answer else str(fields.get("role")))
            self._place(message, self._paid(kit.plain_entry(kind, {**fields, "parts": [*parts]}), message), {})
        self.tails[message.id] = self.chain.leaf

    def _entry(self, message: MessageRow, said: JsonObject, parts: Iterable[JsonObject]) -> tuple[NewEntry, JsonObject]:
        entry, extra = kit.message_entry(said, message.fields, message.line, self.rows.notes)
        beside = without(message.fields, "role", "providerID", "modelID")
        return entry, {**beside, "parts": [without(part, "text", "url") for part in parts], **extra}

    def _place(self, message: MessageRow, entry: NewEntry, beside: JsonObject, own_id: str = "") -> None:
        session_id, name = self.chain.session_id, own_id or message.id
        whole = kit.first_unused(lambda number: made_id(name, str(number)) if number else name, self.chain.lines)
        partial_id = made_id(session_id, "partial", whole)
        self.chain.earlier[whole] = (partial_id,)
        at = kit.read_moment(fields_of(message.fields.get("time")).get("created"))
        entry_id = partial_id if message.is_partial else whole
        self.chain.add(entry, message.line, beside=beside, entry_id=entry_id, created_us=at)

    def _compaction(self, message: MessageRow, asked: MessageRow) -> None:
        said = answer_of(message.fields, [*message.parts.items()], 0)
        first = next((part["tail_start_id"] for part in asked.parts.values() if "tail_start_id" in part), None)
        body: JsonObject = {
            "summary": message_text(said),
            "firstKeptEntryId": first if isinstance(first, str) and first in self.chain.lines else "",
            "tokensBefore": self.tokens,
        }
        entry = self._paid(kit.plain_entry(COMPACTION, body), message, COMPACTION)
        self._place(message, entry, self._entry(message, {"role": "user", "content": ""}, ())[1])

    def _paid(self, entry: NewEntry, message: MessageRow, purpose: str = "turn") -> NewEntry:
        """Return an entry that is no answer with the calls that were paid for it."""
        if not message.is_answer:
            return entry
        calls: list[PaidCall] = []
        for number, step in enumerate(steps_of(message.parts)):
            answer, _ = self._entry(message, answer_of(message.fields, step, number), ())
            calls += _paid_once(answer, message, number).calls
        return replace(entry, calls=tuple(replace(call, purpose=purpose) for call in calls))

    def _answer(self, message: MessageRow, step: list[tuple[str, JsonObject]], number: int) -> None:
        """Add an answer, and the results of its calls behind it."""
        said = answer_of(message.fields, step, number)
        self.tokens = read_reported(said.get("usage")).totals.tokens or self.tokens
        entry, beside = self._entry(message, said, [part for _, part in step if part.get("type") != "tool"])
        self._place(message, _paid_once(entry, message, number), beside, step[0][0] if number else "")
        for name, part in step:
            if part.get("type") == "tool" and not message.is_partial:
                result, rest = result_of(part)
                self._place(message, self._entry(message, result, ())[0], rest, name)


def parse_opencode(rows: list[kit.Row], notes: kit.Notes, take_all: bool) -> kit.SessionPart | None:
    """Return the session of some rows (see `ParseRows`)."""
    first = rows[0]
    about = fields_of(first.fields.get("data", without(first.fields, "type", "summary_diffs")))
    session_id, parent_id = about.get("id"), about.get("parent_id", about.get("parentID"))
    if first.type != gathered.SESSION or not kit.is_name(session_id):
        notes.skip(first.line, f"is not the row of a session: it {kit.unusable_id(session_id)}")
        return None
    read = _Rows(notes)
    for row in rows[1:]:
        read.read(row)
    read.hold_back(take_all=take_all)
    tree = _Tree(read, kit.Chain(session_id, notes))
    tree.build(fields_of(about.get("revert")).get("messageID"))
    # The first title that is not the date is the program's; one that was put in its place is a person's.
    told = (*read.titles, kit.one_text(about.get("title")) or "")
    titles = [title for title in told if not _IS_DEFAULT.fullmatch(title)] or [""]
    parsed = tree.chain.parsed(
        FORMAT,
        FORMAT,
        {"session": about},
        version=kit.one_text(about.get("version")) or "1",
        auto_title=titles[0] or None,
        cwd=about.get("directory"),
        created_us=kit.read_moment(about.get("time_created", fields_of(about.get("time")).get("created"))),
        parent=kit.task_below(parent_id, session_id),
    )
    name = titles[-1] if titles[-1] != titles[0] else None
    return replace(parsed, restates=True, name=name)


read_opencode = partial(gathered.GatheredReader, parse_opencode)


def _paid_once(entry: NewEntry, message: MessageRow, number: int) -> NewEntry:
    """Return an answer whose call has the name that it has in every fork, which copies times and tokens."""
    # Kilo takes the costs of copies away.
    same = only(message.fields, "time", "providerID", "modelID", "agent", "tokens")
    return kit.with_response(entry, FORMAT, json.dumps([same, number], sort_keys=True))


# The parts of messages, and usage, in our words.

_ASKS = {COMPACTION: "What did we do so far?", "subtask": "The following tool was executed by the user"}
"""The words that the program sends for parts of a user's message."""
_INTERRUPTED = "[Tool execution was interrupted]"
CLEARED = "[Old tool result content cleared]"
"""The words that the program sends for the result of a call that it cleared, which it keeps."""
_STOPS = {"tool-calls": "toolUse", "content-filter": "error", "unknown": "stop", "other": "stop"}


def own_fields(fields: JsonObject) -> JsonObject:
    """Return the fields of a message or a part without its ids, and the summary that is added to a prompt later."""
    return without(fields, "id", "sessionID", "messageID", "summary" if isinstance(fields.get("summary"), dict) else "")


def error_of(fields: JsonObject) -> str:
    """Return the name of the error that an answer ended in; "" for none."""
    error = fields.get("error")
    return str(fields_of(error).get("name", "error")) if error else ""


class MessageRow(Struct):
    """A message: its row, its fields, and its parts by id."""

    id: str
    line: int
    fields: JsonObject
    parts: dict[str, JsonObject] = field(default_factory=dict)
    is_partial: bool = False
    """Whether it may not be complete."""

    @property
    def is_answer(self) -> bool:
        """Whether it is a message of the model."""
        return self.fields.get("role") == "assistant"

    @property
    def is_ended(self) -> bool:
        """Whether it is an answer that does not change any more. A fork copies the parts after the message."""
        is_completed = fields_of(self.fields.get("time")).get("completed") is not None
        is_whole = not self.fields.get("finish") or self.has("step-finish")
        return self.is_answer and (bool(error_of(self.fields)) or (is_completed and is_whole))

    @property
    def is_summary(self) -> bool:
        """Whether it is the summary that a compaction ended in."""
        is_done = bool(self.fields.get("finish")) and not error_of(self.fields)
        return self.is_answer and self.fields.get("summary") is True and is_done

    def has(self, kind: str) -> bool:
        """Return whether it has a part of a type."""
        return any(part.get("type") == kind for part in self.parts.values())

    @property
    def is_left_out(self) -> bool:
        """Whether it is an answer that is not sent: it failed, or was aborted before it said anything."""
        kinds = {str(part.get("type")) for part in self.parts.values()}
        is_heard = error_of(self.fields) == "MessageAbortedError" and kinds - {"step-start", "reasoning"}
        return not kinds or bool(error_of(self.fields) and not is_heard)


def steps_of(message_parts: dict[str, JsonObject]) -> list[list[tuple[str, JsonObject]]]:
    """Return the parts of each step of an answer, with their ids; there is one at least.

    Older versions put several in a message.
    """
    steps: list[list[tuple[str, JsonObject]]] = [[]]
    for name, part in message_parts.items():
        if part.get("type") == "step-start" and any(said_part(other) for _, other in steps[-1]):
            steps.append([])
        steps[-1].append((name, part))
    return steps


def answer_of(fields: JsonObject, step: list[tuple[str, JsonObject]], number: int) -> JsonObject:
    """Return a step as an answer of ours."""
    ends = (part for _, part in step if part.get("type") == "step-finish" and "tokens" in part)
    finish = next(ends, {} if number else fields)
    reason = str(finish.get("reason", fields.get("finish", "stop")))
    said: JsonObject = {
        "role": "assistant",
        "content": [item for _, part in step if (item := said_part(part))],
        "provider": fields.get("providerID"),
        "model": fields.get("modelID"),
        "stopReason": {"": _STOPS.get(reason, reason), "MessageAbortedError": "aborted"}.get(error_of(fields), "error"),
        "usage": usage_of(fields_of(finish.get("tokens")), finish.get("cost")),
    }
    return {name: value for name, value in said.items() if value is not None}


def usage_of(tokens: JsonObject, cost: JsonValue) -> JsonObject | None:
    """Return tokens and cost as our usage; None if nothing was reported, for which the program has zeros."""
    cache, reasoning, output = fields_of(tokens.get("cache")), tokens.get("reasoning"), tokens.get("output")
    if isinstance(output, int) and isinstance(reasoning, int):
        output += reasoning
    usage: JsonObject = {"input": tokens.get("input"), "output": output, "reasoning": reasoning}
    usage |= {"cacheRead": cache.get("read"), "cacheWrite": cache.get("write"), "totalTokens": tokens.get("total")}
    # A cost of 0 is that of a model whose price the program does not know, or that is free.
    usage["cost"] = {"total": cost} if cost else None
    return {name: count for name, count in usage.items() if count is not None} if any(usage.values()) else None


def sent_part(part: JsonObject) -> JsonObject | None:
    """Return a part of a user's message as it is sent; None for one that is not."""
    kind, text = part.get("type"), part.get("text")
    if kind == "text" and isinstance(text, str) and text and not part.get("ignored"):
        return {"type": "text", "text": text}
    # The text of these files stands in the message, too.
    if kind == "file" and part.get("mime") not in ("text/plain", "application/x-directory"):
        return _file(part)
    return {"type": "text", "text": _ASKS[kind]} if isinstance(kind, str) and kind in _ASKS else None


def _file(part: JsonObject) -> JsonObject | None:
    url, kind = part.get("url"), "image" if str(part.get("mime")).startswith("image/") else "file"
    return {"type": kind, **image_from_url(url), **only(part, "filename")} if isinstance(url, str) else None


def said_part(part: JsonObject) -> JsonObject | None:
    """Return a part of an answer as ours; None for one that says nothing."""
    kind, text = part.get("type"), part.get("text")
    if kind == "tool":
        arguments = fields_of(part.get("state")).get("input")
        return {"type": "toolCall", "id": part.get("callID"), "name": part.get("tool"), "arguments": arguments}
    if kind == "reasoning" and isinstance(text, str):
        return kit.thought(text, fields_of(fields_of(part.get("metadata")).get("anthropic")).get("signature"))
    return {"type": "text", "text": text} if kind == "text" and isinstance(text, str) and text else None


def result_of(part: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return the result of a call as it is sent, and the other fields of the part."""
    state = fields_of(part.get("state"))
    metadata = fields_of(state.get("metadata"))
    is_cut = metadata.get("interrupted") is True and isinstance(metadata.get("output"), str)
    is_done = state.get("status") == "completed" or is_cut
    text = metadata["output"] if is_cut else state.get("output" if is_done else "error")
    files = [file for item in listed(state.get("attachments")) if (file := _file(fields_of(item)))]
    content: JsonValue = [{"type": "text", "text": text if isinstance(text, str) else _INTERRUPTED}, *files]
    said = result_message(part.get("callID"), content, part.get("tool"), is_error=not is_done)
    rest = without(state, "input", "output", "error", "attachments")
    return said, {**without(part, "type", "callID", "tool", "state"), "state": rest}
