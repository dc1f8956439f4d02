"""The chats of Cursor's command line: the database `store.db` of each."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.context import PROMPT
from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION, message_text
from flue_py.errors import UnreadableFile
from flue_py.formats import gathered, kit
from flue_py.providers.base import fields_of, listed, objects_in
from flue_py.providers.openai_chat import image_from_url

# A chat is a database of blobs, each under its digest: messages as JSON, and records of them in the form of protobuf.
# The latest root record names the messages that are sent. A compaction puts a summary into that list, and leaves an
# archive, which names the messages that it stands for.
#
# The program cannot be run without an account: this follows the readers that others have published.
# docs/formats/cursor-cli.md lists the fields that are kept.

FORMAT = "cursor-cli"

_MESSAGES, _TOKENS, _FOLDERS, _LATEST_ARCHIVE, _ARCHIVES = 1, 5, 9, 11, 13
"""The fields of a root record."""
_SUMMARIZED, _SUMMARY, _SUMMARY_MESSAGE = 1, 2, 4
"""The fields of an archive."""
_DIGEST_BYTES = 32
_UNNAMED = "New Agent"
_TAKEN = ("type", "text", "signature", "data", "toolCallId", "toolName", "args", "result", "isError", "image")
"""The fields of a part that are in the message."""

_Fields = dict[int, list[int | bytes]]


def looks_like_cursor_cli(head: bytes, path_name: str = "") -> bool:
    """Return whether a file is the database of a chat, given its first bytes and its path. Never raises."""
    if gathered.has_tables(path_name, head, "blobs", "meta"):
        with suppress(UnreadableFile, OSError), gathered.database_of(Path(path_name)) as database:
            return "latestRootBlobId" in _about(gathered.Tables(database))
    return False


def beside_cursor_cli(path: Path) -> JsonValue:
    """Return the states of the log of a database, and of the file about its chat. Never raises."""
    return [gathered.log_beside(path), gathered.states_of([path.with_name("meta.json")])]


def gather_cursor_cli(path: Path) -> Generator[bytes, None, None]:
    """Yield a row about the chat, those of each archive with its messages before it, and the messages.

    Raises `UnreadableFile`.
    """
    with gathered.database_of(path) as database:
        blobs = _Blobs(gathered.Tables(database), gathered.MOST_BYTES)
        about = _about(blobs.tables)
        try:
            root = _fields_in(blobs.read(about.get("latestRootBlobId")))
        except ValueError as error:
            raise UnreadableFile(f"{path}: its root record is damaged ({error}); nothing was imported") from error
        folders = [folder.decode(errors="replace") for folder in root.get(_FOLDERS, ()) if isinstance(folder, bytes)]
        fields: JsonObject = {"id": path.parent.name, "store": about, "tokens": [*_numbers_in(root)]}
        yield gathered.gathered_row(
            gathered.SESSION,
            {**fields, "meta": gathered.object_beside(path.with_name("meta.json")), "folders": [*folders]},
        )
        for name in _names(root, _ARCHIVES) or _names(root, _LATEST_ARCHIVE):
            archive: _Fields = {}
            with suppress(ValueError):
                archive = _fields_in(blobs.read(name))
            for message in _names(archive, _SUMMARIZED):
                yield blobs.row("archived", message)
            words = [text.decode(errors="replace") for text in archive.get(_SUMMARY, ()) if isinstance(text, bytes)]
            summary = (_names(archive, _SUMMARY_MESSAGE) or [""])[-1]
            yield blobs.row("archive", summary, {"summary": "".join(words[-1:])})
        for message in _names(root, _MESSAGES):
            yield blobs.row("message", message)


class _Blobs(Struct):
    """The messages of a database. One that is named often is read again until that has been too much."""

    tables: gathered.Tables
    left: int
    seen: set[str] = field(default_factory=set)

    def read(self, name: JsonValue) -> bytes:
        """Return a record; an empty one if it is not there."""
        return self.tables.data("blobs", name)

    def row(self, kind: str, name: str, fields: JsonObject | None = None) -> bytes:
        """Return the row of a message; without data if it is not there."""
        data = self.read(name)
        self.left -= len(data) if name in self.seen else 0
        self.seen.add(name)
        text = data.decode(errors="replace") if data and self.left >= 0 else "null"
        return gathered.gathered_row(kind, {**(fields or {}), "blob": name}, {"data": text})


def _about(tables: gathered.Tables) -> JsonObject:
    """Return the metadata of a chat: JSON, written in hexadecimal digits; an empty object if there are none."""
    with suppress(ValueError):
        text = bytes.fromhex(str(tables.first("meta", "0", "key").get("value")))
        return kit.decode_row(1, text, kit.Notes()) or {}
    return {}


def _fields_in(record: bytes) -> _Fields:
    """Return the numbers and the bytes in a record of protobuf, by field. Raises `ValueError`. O(size)."""
    fields: _Fields = {}
    at = 0
    while at < len(record):
        key, at = _number(record, at)
        size = {1: 8, 5: 4}.get(key & 7, 0)
        if key & 7 == 0:
            value, at = _number(record, at)
            fields.setdefault(key >> 3, []).append(value)
        elif key & 7 == 2:
            size, at = _number(record, at)
            fields.setdefault(key >> 3, []).append(record[at : at + size])
        elif not size:
            raise ValueError(f"a field has the type {key & 7}")
        at += size
    if at > len(record):
        raise ValueError("it is cut off")
    return fields


def _number(record: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and where it ends."""
    number = 0
    for place, byte in enumerate(record[at : at + 10]):
        number |= (byte & 127) << (7 * place)
        if byte < 128:
            return number, at + place + 1
    raise ValueError("it is cut off")


def _names(fields: _Fields, number: int) -> list[str]:
    return [value.hex() for value in fields.get(number, ()) if isinstance(value, bytes) and len(value) == _DIGEST_BYTES]


def _numbers_in(root: _Fields) -> Iterator[int]:
    """Yield the tokens of the context at the last step, and the most that the model takes, where they are stored."""
    with suppress(ValueError):
        tokens = _fields_in(b"".join(part for part in root.get(_TOKENS, ())[-1:] if isinstance(part, bytes)))
        yield from (value for number in (1, 2) for value in tokens.get(number, ())[-1:] if isinstance(value, int))


class _Chat(Struct):
    """The entries of a chat."""

    chain: kit.Chain
    created_us: int | None

    def build(self, archives: list[tuple[list[kit.Row], kit.Row]], messages: list[kit.Row]) -> None:
        """Add the messages that summaries stand for, the summaries, and the messages that are sent."""
        names = {_name(row) for _, row in archives}
        at = next((at for at, row in enumerate(messages) if _name(row) in names or _is_summary(row)), None)
        head = [] if at is None else messages[:at]
        before = {_name(row) for row in head}
        for row in head:
            self._say(row)
        for rows, summary in archives:
            for row in rows:
                if _name(row) not in before:
                    self._say(row)
            self._sum_up(summary, head)
        if at is None:
            # The list has none of the summaries: the archives are beside it.
            self.chain.leaf, self.chain.linked, at = None, "", -1
        elif not archives:
            self._sum_up(messages[at], head)
        for row in [*(row for row in head if _data(row).get("role") != "system"), *messages[at + 1 :]]:
            self._say(row)

    def _sum_up(self, row: kit.Row, head: list[kit.Row]) -> None:
        summary = message_text(_data(row)) or kit.one_text(row.fields.get("summary"))
        if not summary:
            self.chain.notes.skip(row.line, "is a summary that cannot be read")
            return
        prompts = [message_text(_data(other)) for other in head if _data(other).get("role") == "system"]
        prompt: JsonObject = {PROMPT: {"role": "system", "content": "\n".join(prompts)}} if prompts else {}
        body: JsonObject = {"summary": summary, "firstKeptEntryId": "", "tokensBefore": 0, **prompt}
        self._place(row, kit.plain_entry(COMPACTION, body), without(_data(row), "role", "content"))

    def _say(self, row: kit.Row) -> None:
        data = _data(row)
        role, content, rest = data.get("role"), data.get("content"), without(data, "role", "content")
        if not data:
            self.chain.notes.skip(row.line, f"is the message {_name(row)}, which cannot be read")
        elif role == "tool" and any(objects_in(content)):
            for _, part in objects_in(content):
                entry, extra = kit.message_entry(_result_of(part), data, row.line, self.chain.notes)
                self._place(row, entry, {**rest, **without(part, *_TAKEN), **extra})
        elif role in ("system", "user", "assistant") and isinstance(content, str | list):
            said: JsonObject = {"role": role, "content": content if isinstance(content, str) else _parts_of(content)}
            model = _model_of(data) if role == "assistant" else None
            said |= {"model": model} if model else {}
            entry, extra = kit.message_entry(said, data, row.line, self.chain.notes)
            parts: list[JsonValue] = [beside for _, part in objects_in(content) if (beside := without(part, *_TAKEN))]
            self._place(row, entry, {**rest, **({"parts": parts} if parts else {}), **extra})
        else:
            kind = kit.entry_kind("cursor.", str(role))
            self.chain.notes.unknown_kinds[kind] += 1
            self._place(row, kit.plain_entry(kind, data), {})

    def _place(self, row: kit.Row, entry: NewEntry, beside: JsonObject) -> None:
        beside = {"blob": _name(row), **beside}
        self.chain.add(entry, row.line, beside=beside, created_us=self.created_us)


def _name(row: kit.Row) -> str:
    """Return the digest of a message."""
    return kit.one_text(row.fields.get("blob")) or ""


def _data(row: kit.Row) -> JsonObject:
    return fields_of(row.fields.get("data"))


def _options(fields: JsonObject) -> JsonObject:
    """Return the fields of a message or a part that are of this program."""
    return fields_of(fields_of(fields.get("providerOptions")).get("cursor"))


def _is_summary(row: kit.Row) -> bool:
    return _options(_data(row)).get("isSummary") is True


def _model_of(message: JsonObject) -> JsonValue:
    """Return the name of the model of an answer, which stands in it or in a part; None if it is not there."""
    parts = [message, *(part for _, part in objects_in(message.get("content")))]
    return next((name for part in parts if (name := _options(part).get("modelName"))), None)


def _parts_of(content: JsonValue) -> list[JsonValue]:
    """Return the parts of a message as ours; one of an unknown type as it is."""
    parts: list[JsonValue] = []
    for _, part in objects_in(content):
        kind, image = part.get("type"), part.get("image")
        if kind == "reasoning":
            parts.append(kit.thought(part.get("text"), part.get("signature")))
        elif kind == "redacted-reasoning":
            parts.append(kit.thought("", None, part.get("data")))
        elif kind == "tool-call":
            call = {"type": "toolCall", "id": part.get("toolCallId"), "name": part.get("toolName")}
            parts.append({**call, "arguments": part.get("args", {})})
        elif kind == "image" and isinstance(image, str) and image.startswith(("data:", "https:")):
            parts.append({"type": "image", **image_from_url(image)})
        else:
            parts.append({"type": "text", "text": part["text"]} if kind == "text" and "text" in part else part)
    return parts


def _result_of(part: JsonObject) -> JsonObject:
    """Return the result of a call: a text, or parts; any other value as JSON."""
    result = part.get("result")
    text = result if isinstance(result, str) else kit.json_line(result)
    content: list[JsonValue] = [{"type": "text", "text": text}]
    if isinstance(result, list):
        content = _parts_of(result)
    said: JsonObject = {"role": "toolResult", "toolCallId": part.get("toolCallId"), "content": content}
    if isinstance(part.get("toolName"), str):
        said["toolName"] = part["toolName"]
    return {**said, "isError": part["isError"]} if isinstance(part.get("isError"), bool) else said


def parse_cursor_cli(rows: list[kit.Row], notes: kit.Notes, _take_all: bool) -> kit.SessionPart | None:
    """Return the chat of some rows (see `ParseRows`)."""
    first = rows[0].fields
    store, meta = fields_of(first.get("store")), fields_of(first.get("meta"))
    session_id = next((name for name in (store.get("agentId"), first.get("id")) if kit.is_name(name)), None)
    if rows[0].type != gathered.SESSION or session_id is None:
        notes.skip(rows[0].line, "is not the row of a chat with an id")
        return None
    moments = (kit.read_moment(at) for at in (store.get("createdAt"), meta.get("createdAtMs")))
    created_us = next((moment for moment in moments if moment is not None), None)
    chat = _Chat(kit.Chain(session_id, notes), created_us)
    archives: list[tuple[list[kit.Row], kit.Row]] = []
    summarized: list[kit.Row] = []
    for row in rows[1:]:
        if row.type == "archived":
            summarized.append(row)
        elif row.type == "archive":
            archives.append((summarized, row))
            summarized = []
    chat.build(archives, [row for row in rows if row.type == "message"])
    if not chat.chain.entries:
        notes.left_out["is a chat without messages"] += 1
        return None
    titles = [name for about in (meta.get("title"), store.get("name")) if (name := kit.one_text(about))]
    folders = [unquote(url.removeprefix("file://")) for url in map(str, listed(first.get("folders")))]
    parent = kit.task_below(fields_of(store.get("subagentInfo")).get("parentAgentId"), session_id)
    parsed = chat.chain.parsed(
        FORMAT,
        "store.db",
        {"store": store, "meta": meta, "tokens": first.get("tokens")},
        auto_title=next((title for title in titles if title != _UNNAMED), None),
        cwd=kit.one_text(meta.get("cwd")) or next(reversed(folders), None),
        created_us=created_us,
        parent=parent,
    )
    return replace(parsed, restates=True)


read_cursor_cli = partial(gathered.GatheredReader, parse_cursor_cli)
