"""Sessions of Mistral Vibe: its unified store, and the files of version 2."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.kinds import message_text
from flue_py.core.sessions import made_id
from flue_py.core.usage import PaidCall, call_of, read_reported
from flue_py.errors import UnreadableFile
from flue_py.formats import kit
from flue_py.formats.gathered import (
    SESSION,
    GatheredReader,
    gathered_row,
    lines_of,
    object_beside,
    read_beside,
    states_of,
)
from flue_py.providers.base import blocks_of, fields_of, listed, only
from flue_py.providers.openai_chat import message_from_chat

# A session is a folder. CURRENT names the generation that counts; its manifest names the chunks that hold the messages
# of the context. The generation before it is there as well: each is a list, and a path of the tree.
# docs/formats/mistral-vibe.md lists the fields that are kept.

FORMAT = "mistral-vibe"
LIST, ITEM = "list", "item"
"""The types of gathered rows: the beginning of a list, and a message of one."""

_BEGINNING = re.compile(rb'\s*\{[^{}]{0,2000}"store_format": ?"mistral\.vibe\.unified-session-store/')
_NAME = re.compile(r"[0-9a-f]{16,128}")
_READ = ("role", "content", "tool_call_id", "tool_calls", "reasoning_content")
_OF_VERSION_2 = re.compile(r"[/\\]session_[^/\\]*_[0-9a-f]{8}[/\\]messages\.jsonl$")


def looks_like_mistral_vibe(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be the one that names the current generation of a session."""
    is_object = head.lstrip().startswith(b"{")
    return bool(_BEGINNING.match(head)) or (is_object and bool(_OF_VERSION_2.search(path_name)))


def beside_mistral_vibe(path: Path) -> JsonValue:
    """Return the state of the file about the session. Never raises."""
    return states_of([path.parent / "meta.json"])


def gather_mistral_vibe(path: Path) -> Generator[bytes, None, None]:
    """Yield a row about a session, and the messages of each generation, the current one last."""
    folder, current = path.absolute().parent, object_beside(path)
    if _OF_VERSION_2.search(str(path.absolute())):
        meta = object_beside(folder / "meta.json")
        current = {"session_id": meta.get("session_id")}
        yield gathered_row(SESSION, {"file": path.name, "current": current, "meta": meta})
        yield gathered_row(LIST, {})
        for line in lines_of(path):
            yield from _items(b'[{"message":%s}]' % line.strip()) if line.strip() else ()
        return
    name = kit.one_text(current.get("generation")) or ""
    older = sorted(place.name for place in folder.glob("generations/*") if place.name != name)
    newest = object_beside(folder / f"generations/{name}/projection-state.json") if _NAME.fullmatch(name) else {}
    snapshot = fields_of(fields_of(newest.get("snapshot")).get("session"))
    meta = object_beside(folder / "meta.json")
    yield gathered_row(SESSION, {"file": path.name, "current": current, "meta": meta, "session": snapshot})
    for generation in [name for name in (*older, name) if _NAME.fullmatch(name)]:
        yield gathered_row(LIST, {})
        manifest = object_beside(folder / f"generations/{generation}/manifest.json")
        for chunk in listed(fields_of(manifest.get("checkpoint")).get("chunks")):
            if isinstance(chunk, str) and _NAME.fullmatch(chunk):
                yield from _items(read_beside(folder / f"chunks/{chunk}.json") or b"[]")
        rest = object_beside(folder / f"generations/{generation}/checkpoint.json")
        yield from _rows(fields_of(rest.get("context")).get("messages"))


def _items(data: bytes) -> Iterator[bytes]:
    try:
        yield from _rows(json.loads(data))
    except (ValueError, RecursionError):
        yield data[:100].replace(b"\n", b" ") + b"\n"


def _rows(values: JsonValue) -> Iterator[bytes]:
    return (gathered_row(ITEM, {"row": value}) for value in listed(values))


def _read(chain: kit.Chain, row: kit.Row) -> None:
    """Take over a row: the beginning of a list, or a message of one."""
    if row.type == LIST:
        chain.notes.left_out["is about the session"] += 1
        chain.leaf = None
        return
    item = fields_of(row.fields.get("row"))
    value = fields_of(item.get("message"))
    entry, extra = kit.message_entry(_message(value), value, row.line, chain.notes)
    extra = {**without(item, "message"), **without(value, *_READ, "name", "images"), **extra}
    chain.follow(entry, row.line, beside=extra)


def _message(value: JsonObject) -> JsonObject:
    """Return a message of the store, or of version 2, as one of ours."""
    content = value.get("content")
    if not isinstance(content, list):
        message = message_from_chat(only(value, *_READ), {str(value.get("tool_call_id")): str(value.get("name"))})
        pictures = [_picture(fields_of(picture)) for picture in listed(value.get("images"))]
        return {**message, "content": [*blocks_of(message.get("content")), *pictures]} if pictures else message
    parts: list[JsonValue] = [_part(part) for part in content]
    if value.get("role") != "tool":
        return {"role": value.get("role"), "content": parts}
    message = {"role": "toolResult", "toolCallId": value.get("tool_call_id"), "content": parts}
    is_error = value.get("outcome") not in (None, "success")
    return {**message, "toolName": value.get("name"), **({"isError": True} if is_error else {})}


def _picture(picture: JsonObject) -> JsonValue:
    data = fields_of(picture.get("source")).get("data")
    return picture if data is None else {"type": "image", "data": data, "mimeType": picture.get("mime_type")}


def _part(value: JsonValue) -> JsonValue:
    part = fields_of(value)
    if part.get("type") == "reasoning":
        return {"type": "thinking", "thinking": message_text(part)}
    if part.get("type") == "tool_call":
        arguments = fields_of(part.get("arguments"))
        called = arguments.get("value") if isinstance(arguments.get("value"), dict) else arguments.get("raw")
        return {"type": "toolCall", **only(part, "id", "name"), "arguments": {} if called is None else called}
    return value


def _spent(session_id: str, usage: JsonObject) -> PaidCall:
    """Return the tokens of all calls of a session as one call, which takes the place of the one that was fewer."""
    total, cached = usage.get("inputTokens"), usage.get("cachedInputTokens")
    tokens: JsonObject = {"input": total, "output": usage.get("outputTokens")}
    if type(total) is int and type(cached) is int and 0 <= cached <= total:
        tokens |= {"input": total - cached, "cacheRead": cached}
    call_id = made_id(FORMAT, session_id)
    return replace(call_of(read_reported(tokens), call_id=call_id), replaces=(call_id,))


def parse_mistral_vibe(rows: Sequence[kit.Row], notes: kit.Notes, take_all: bool) -> kit.SessionPart | None:
    """Return the session of gathered rows. Raises `UnreadableFile` if it has no id."""
    about, meta = rows[0].fields, fields_of(rows[0].fields.get("meta"))
    file, session_id = kit.one_text(about.get("file")) or "the file", fields_of(about.get("current")).get("session_id")
    if not kit.is_name(session_id):
        raise UnreadableFile(f"{file} is not a session of Mistral Vibe: it has no id; nothing was imported")
    notes.left_out["is about the session"] += 1
    chain = kit.Chain(session_id, notes)
    for row in rows[1:]:
        _read(chain, row)
    titles = {meta.get("title_source") == "auto": kit.one_text(meta.get("title"))}
    snapshot = fields_of(about.get("session"))
    parsed = chain.parsed(
        FORMAT,
        file,
        {"meta": without(meta, "username"), "session": snapshot},
        auto_title=titles.get(True),
        cwd=fields_of(meta.get("environment")).get("working_directory"),
        created_us=kit.read_time(meta.get("start_time")),
    )
    usage = fields_of(snapshot.get("tokenUsage"))
    calls = (_spent(session_id, usage),) if usage.get("totalTokens") else ()
    return replace(parsed, name=titles.get(False), restates=True, calls=calls)


read_mistral_vibe = partial(GatheredReader, parse_mistral_vibe)
