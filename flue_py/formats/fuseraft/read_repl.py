"""fuseraft REPL snapshots: one object with the whole history, written anew after every turn.

What the program leaves out when it restores a snapshot (``skip`` contents, messages without contents) makes no entry.
The program makes its system prompt anew at every start: the ids of the other entries do not depend on
it. docs/formats/fuseraft-repl.md lists what is kept.
"""

from __future__ import annotations

import json
import re
from functools import partial

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.errors import UnreadableFile
from flue_py.formats.kit.documents import Item, items_of, read_object
from flue_py.formats.kit.linear import Chain, imported_session, message_entry
from flue_py.formats.kit.parsed import ParsedSession
from flue_py.formats.kit.rows import Notes, is_name
from flue_py.formats.kit.streaming import DocumentReader
from flue_py.formats.kit.values import one_text, read_time
from flue_py.wire.openai_chat import arguments_from_text, calls_in

FORMAT = "fuseraft-repl"

_HEAD = re.compile(rb'\s*\{\s*"SessionId"\s*:')
_OURS = re.compile(rb'"(History|ModelId|Cwd)"\s*:')
_OTHERS = re.compile(rb'"(Task|ConfigPath|Messages)"\s*:')
_CONTENT_FIELDS = {
    "text": frozenset({"Type", "Text"}),
    "function_call": frozenset({"Type", "CallId", "FunctionName", "ArgumentsJson"}),
    "function_result": frozenset({"Type", "CallId", "ResultJson"}),
}


def looks_like_fuseraft_repl(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be a REPL snapshot; a name like ``repl-ID.json`` helps."""
    head = head.removeprefix(b"\xef\xbb\xbf")
    if not _HEAD.match(head):
        return False
    first_history = head.find(b'"History"')
    outside = head if first_history < 0 else head[:first_history]
    is_ours = bool(_OURS.search(head)) and not _OTHERS.search(outside)
    return is_ours or bool(re.search(r"repl-[^/]*\.json$", path_name))


def parse_fuseraft_repl(data: bytes, name: str = "the file") -> tuple[ParsedSession, ...]:
    """Return the session in a REPL snapshot. ``name`` is what errors and metadata call the file.

    Raises `UnreadableFile` if it is not such an object; every other fault is in the report. O(size).
    """
    notes = Notes("item")
    document = read_object(data, notes, name)
    session_id = document.get("SessionId")
    if not is_name(session_id) or not isinstance(document.get("History"), list):
        raise UnreadableFile(f"{name} is not a REPL snapshot: it has no SessionId and History; nothing was imported")
    created_us = read_time(document.get("StartedAt"))
    chain = Chain(session_id, notes)
    names: dict[str, str] = {}
    items = items_of(document["History"], notes)
    last_turn = max((item.index for item in items if item.value.get("Role") == "user"), default=0)
    saved_us, model = read_time(document.get("LastUpdatedAt")), one_text(document.get("ModelId"))
    for item in items:
        for message, beside in _messages(item, names, notes):
            names.update(calls_in(message))
            entry, found = message_entry(message, item.value, item.index, notes)
            # The model may be another one the next time: what an entry is known by is what was said.
            by_model, _ = message_entry(_answered_by(model, message), item.value, item.index, Notes())
            chain.add(
                by_model,
                item.index,
                beside={**beside, **found},
                created_us=saved_us if saved_us is not None and item.index >= last_turn else created_us,
                is_link=message.get("role") != "system",
                known_by=entry,
            )
    rest = {key: value for key, value in document.items() if key != "History"}
    session = imported_session(
        session_id,
        FORMAT,
        name,
        {"snapshot": rest},
        notes,
        cwd=one_text(document.get("Cwd")),
        created_us=created_us,
    )
    return (chain.parsed(FORMAT, "1", session),)


read_fuseraft_repl = partial(DocumentReader, parse_fuseraft_repl)


def _answered_by(model: str | None, message: JsonObject) -> JsonObject:
    return {**message, "model": model} if model and message.get("role") == "assistant" else message


def _messages(item: Item, names: dict[str, str], notes: Notes) -> list[tuple[JsonObject, JsonObject]]:
    """Return the messages that an item of the history is, each with what stands beside it.

    Results of tools are messages of their own; whatever else the item holds is one message.
    """
    role, contents = item.value.get("Role"), item.value.get("Contents")
    if not isinstance(role, str) or not isinstance(contents, list):
        notes.skip(item.index, "is not a message: it has no Role and Contents")
        return []
    found: list[JsonObject] = []
    parts: list[JsonValue] = []
    for content in contents:
        kind = content.get("Type") if isinstance(content, dict) else None
        if not isinstance(content, dict) or not isinstance(kind, str):
            notes.repair(item.index, "has a content without a Type, which was left out")
        elif kind == "function_result":
            found.append(_result(content, names))
        elif kind == "skip":
            notes.repair(item.index, "has a content marked as skipped, which the program leaves out, too")
        else:
            parts.append(_part(kind, content))
    if parts:
        found.append(_said(role, parts))
    elif not found:
        notes.skip(item.index, "has no contents; the program leaves it out, too")
    rest = {name: value for name, value in item.value.items() if name not in ("Role", "Contents")}
    return [(message, dict(rest)) for message in found]


def _said(role: str, parts: list[JsonValue]) -> JsonObject:
    only = parts[0] if len(parts) == 1 else None
    if role in ("user", "system") and isinstance(only, dict) and set(only) == {"type", "text"}:
        return {"role": role, "content": only["text"]}
    return {"role": "toolResult" if role == "tool" else role, "content": parts}


def _part(kind: str, content: JsonObject) -> JsonObject:
    rest = {name: value for name, value in content.items() if name not in _CONTENT_FIELDS.get(kind, ("Type",))}
    if kind == "text":
        return {"type": "text", "text": content.get("Text"), **rest}
    if kind == "function_call":
        arguments = arguments_from_text(content.get("ArgumentsJson"))
        return {
            "type": "toolCall",
            "id": content.get("CallId"),
            "name": content.get("FunctionName"),
            "arguments": arguments,
            **rest,
        }
    if kind == "image":
        # The picture lies in a file beside the snapshot; where that is gone the program shows these words, too.
        label = content.get("Name") or content.get("FileName") or "image"
        return {"type": "text", "text": f"[image no longer available: {label}]", "image": rest}
    return {"type": f"fuseraft:{kind}", **rest}


def _result(content: JsonObject, names: dict[str, str]) -> JsonObject:
    call_id, text = content.get("CallId"), content.get("ResultJson")
    message: JsonObject = {"role": "toolResult", "toolCallId": call_id}
    if isinstance(call_id, str) and call_id in names:
        message["toolName"] = names[call_id]
    message["content"] = _result_text(text)
    rest = {name: value for name, value in content.items() if name not in _CONTENT_FIELDS["function_result"]}
    return {**message, **rest}


def _result_text(text: JsonValue) -> str:
    """Return what a tool said: its string, which stands in JSON inside JSON, or the JSON text of anything else."""
    if not isinstance(text, str):
        return "" if text is None else json.dumps(text, ensure_ascii=False)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str) else text
