"""fuseraft REPL snapshots and run checkpoints."""

from __future__ import annotations

import json
import re
from functools import partial

from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import Frozen, JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION
from flue_py.core.sessions import made_id
from flue_py.core.usage import read_reported, usage_json
from flue_py.errors import UnreadableFile
from flue_py.formats import kit
from flue_py.providers.base import result_message
from flue_py.providers.openai_chat import arguments_from_text, calls_in

# fuseraft REPL snapshots: one object with the whole history, written anew after every turn.
#
# Parts that the program leaves out when it restores a snapshot (``skip`` contents, messages without contents) make no
# entry. The program makes its system prompt anew at every start: the ids of the other entries do not depend on it.
# docs/formats/fuseraft.md lists the fields that are kept.

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
    if not _HEAD.match(head):
        return False
    first_history = head.find(b'"History"')
    outside = head if first_history < 0 else head[:first_history]
    is_ours = bool(_OURS.search(head)) and not _OTHERS.search(outside)
    return is_ours or bool(re.search(r"repl-[^/]*\.json$", path_name))


def parse_fuseraft_repl(data: bytes, name: str = "the file") -> tuple[kit.SessionPart, ...]:
    """Return the session in a REPL snapshot. ``name`` is that of the file in errors and metadata.

    Raises `UnreadableFile` if it is not such an object; every other fault is in the report. O(size).
    """
    notes = kit.Notes("item")
    document = kit.read_object(data, notes, name)
    session_id = document.get("SessionId")
    if not kit.is_name(session_id) or not isinstance(document.get("History"), list):
        raise UnreadableFile(f"{name} is not a REPL snapshot: it has no SessionId and History; nothing was imported")
    created_us = kit.read_time(document.get("StartedAt"))
    chain = kit.Chain(session_id, notes)
    names: dict[str, str] = {}
    items = kit.items_of(document["History"], notes)
    last_turn = max((item.index for item in items if item.value.get("Role") == "user"), default=0)
    saved_us, model = kit.read_time(document.get("LastUpdatedAt")), kit.one_text(document.get("ModelId"))
    for item in items:
        for message, fields in _messages(item, names, notes):
            names.update(calls_in(message))
            entry, extra = kit.message_entry(message, item.value, item.index, notes)
            # The model may be another one the next time: an entry is known by its words.
            whole = {**message, "model": model} if model and message.get("role") == "assistant" else message
            by_model, _ = kit.message_entry(whole, item.value, item.index, kit.Notes())
            chain.add(
                by_model,
                item.index,
                beside={**fields, **extra},
                created_us=saved_us if saved_us is not None and item.index >= last_turn else created_us,
                is_link=message.get("role") != "system",
                known_by=entry,
            )
    snapshot: JsonObject = {"snapshot": without(document, "History")}
    return (chain.parsed(FORMAT, name, snapshot, cwd=document.get("Cwd"), created_us=created_us),)


read_fuseraft_repl = partial(kit.DocumentReader, parse_fuseraft_repl)


def _messages(item: kit.Item, names: dict[str, str], notes: kit.Notes) -> list[tuple[JsonObject, JsonObject]]:
    """Return the messages that an item of the history is, each with the fields beside it.

    Results of tools are messages of their own; all other contents of the item are one message.
    """
    role, contents = item.value.get("Role"), item.value.get("Contents")
    if not isinstance(role, str) or not isinstance(contents, list):
        notes.skip(item.index, "is not a message: it has no Role and Contents")
        return []
    messages: list[JsonObject] = []
    parts: list[JsonValue] = []
    for content in contents:
        kind = content.get("Type") if isinstance(content, dict) else None
        if not isinstance(content, dict) or not isinstance(kind, str):
            notes.repair(item.index, "has a content without a Type, which was left out")
        elif kind == "function_result":
            messages.append(_result(content, names))
        elif kind == "skip":
            notes.repair(item.index, "has a content marked as skipped, which the program leaves out, too")
        else:
            parts.append(_part(kind, content))
    if parts:
        messages.append(_message_of(role, parts))
    elif not messages:
        notes.skip(item.index, "has no contents; the program leaves it out, too")
    return [(message, without(item.value, "Role", "Contents")) for message in messages]


def _message_of(role: str, parts: list[JsonValue]) -> JsonObject:
    only = parts[0] if len(parts) == 1 else None
    if role in ("user", "system") and isinstance(only, dict) and set(only) == {"type", "text"}:
        return {"role": role, "content": only["text"]}
    return {"role": "toolResult" if role == "tool" else role, "content": parts}


def _part(kind: str, content: JsonObject) -> JsonObject:
    rest = without(content, *_CONTENT_FIELDS.get(kind, ("Type",)))
    if kind == "text":
        return {"type": "text", "text": content.get("Text"), **rest}
    if kind == "function_call":
        call: JsonObject = {"type": "toolCall", "id": content.get("CallId"), "name": content.get("FunctionName")}
        return {**call, "arguments": arguments_from_text(content.get("ArgumentsJson")), **rest}
    if kind == "image":
        # The picture lies in a file beside the snapshot; where that is gone the program shows these words, too.
        label = content.get("Name") or content.get("FileName") or "image"
        return {"type": "text", "text": f"[image no longer available: {label}]", "image": rest}
    return {"type": f"fuseraft:{kind}", **rest}


def _result(content: JsonObject, names: dict[str, str]) -> JsonObject:
    call_id = content.get("CallId")
    name = names.get(call_id) if isinstance(call_id, str) else None
    message = result_message(call_id, _result_text(content.get("ResultJson")), name)
    return {**message, **without(content, *_CONTENT_FIELDS["function_result"])}


def _result_text(text: JsonValue) -> str:
    """Return the words of a tool: its string, which stands in JSON inside JSON, or the JSON text of any value."""
    if not isinstance(text, str):
        return "" if text is None else json.dumps(text, ensure_ascii=False)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str) else text


# fuseraft run checkpoints: one object with the messages of every agent, written anew after every turn.
#
# A compaction replaces the messages before it by a summary at the beginning of the list. Here the history stays: the
# summary is a compaction entry that stands after the messages it left in place (which are older than it) and names the
# first of them, so that the entries of earlier imports go on. docs/formats/fuseraft.md lists the fields.

READ_RUN_FORMAT = "fuseraft-run"

_ID = re.compile(r"[0-9a-f]{8}")
_READ_RUN_OURS = re.compile(rb'"(Task|ConfigPath|IsComplete|Messages)"\s*:')
_FIELDS = frozenset({"AgentName", "Content", "Role", "Usage", "Timestamp", "ModelId"})
_TITLE = 120


def looks_like_fuseraft_run(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be a run checkpoint."""
    first_message = head.find(b'"Messages"')
    outside = head if first_message < 0 else head[: first_message + 12]
    return bool(_HEAD.match(head)) and bool(_READ_RUN_OURS.search(outside)) and b'"History"' not in outside


def parse_fuseraft_run(data: bytes, name: str = "the file") -> tuple[kit.SessionPart, ...]:
    """Return the session in a run checkpoint. ``name`` is that of the file in errors and metadata.

    Raises `UnreadableFile` if it is not such an object, or its id is not eight hex characters;
    every other fault is in the report. O(size).
    """
    notes = kit.Notes("item")
    document = kit.read_object(data, notes, name)
    session_id = document.get("SessionId")
    if not isinstance(session_id, str) or not _ID.fullmatch(session_id):
        raise UnreadableFile(f"{name} is not a run checkpoint: its SessionId is not eight hex characters")
    if not isinstance(document.get("Messages"), list):
        raise UnreadableFile(f"{name} is not a run checkpoint: it has no list of Messages; nothing was imported")
    chain = kit.Chain(session_id, notes)
    model, saved_us = kit.one_text(document.get("ModelId")), kit.read_time(document.get("LastUpdatedAt"))
    messages = [_run_message(item, notes, model, saved_us) for item in kit.items_of(document["Messages"], notes)]
    for message in _in_order(messages, session_id):
        value, is_readable = message.item.value, message.entry.kind != kit.UNREADABLE_MESSAGE
        chain.add(
            message.entry,
            message.item.index,
            beside={**without(value, *_FIELDS), **message.fields} if is_readable else {},
            entry_id=kit.first_unused(partial(_own_id, session_id, value), chain.lines),
            created_us=message.at,
        )
    checkpoint: JsonObject = {"checkpoint": without(document, "Messages")}
    title, started_us = _title(document.get("Task")), kit.read_time(document.get("StartedAt"))
    parsed = chain.parsed(READ_RUN_FORMAT, name, checkpoint, title=title, created_us=started_us)
    session = replace(parsed.session, config_path=kit.one_text(document.get("ConfigPath")))
    parsed = replace(parsed, session=session)
    if document.get("IsComplete") is not True:
        return (parsed,)
    ends = [saved_us, *(message.at for message in reversed(messages)), started_us]
    return (replace(parsed, completed_us=next((end for end in ends if end is not None), None)),)


read_fuseraft_run = partial(kit.DocumentReader, parse_fuseraft_run)


class _RunMessage(Frozen):
    item: kit.Item
    entry: NewEntry
    fields: JsonObject
    at: int | None


def _run_message(item: kit.Item, notes: kit.Notes, model: str | None, saved_us: int | None) -> _RunMessage:
    """Return a message as an entry: an answer of the model of the run, unless it names its own."""
    value = item.value
    at = kit.read_time(value.get("Timestamp"))
    if at is None:
        source = "import" if saved_us is None else "checkpoint"
        notes.repair(item.index, f"has no readable Timestamp; the time of the {source} was taken")
        at = saved_us
    if value.get("IsCompactionSummary") is True and isinstance(value.get("Content"), str) and item.index == 0:
        agent: JsonObject = {"agentName": value["AgentName"]} if "AgentName" in value else {}
        return _RunMessage(item, _compaction(value, ""), agent, at)
    return _RunMessage(item, *kit.message_entry(_message(value, model), value, item.index, notes), at)


def _compaction(summary: JsonObject, first_kept: str) -> NewEntry:
    fields: JsonObject = {"summary": summary["Content"], "firstKeptEntryId": first_kept, "tokensBefore": 0}
    return kit.plain_entry(COMPACTION, fields)


def _message(value: JsonObject, model: str | None) -> JsonObject:
    message: JsonObject = {"role": value.get("Role"), "content": value.get("Content")}
    if "AgentName" in value:
        message["agentName"] = value["AgentName"]
    if value.get("Role") == "assistant" and (own := kit.one_text(value.get("ModelId")) or model):
        message["model"] = own
    if value.get("Usage") is not None:
        message["usage"] = _usage(value["Usage"])
    return message


def _usage(reported: JsonValue) -> JsonValue:
    """Return reported usage under our names; a cost only where one was reported."""
    read = read_reported(reported)
    if not isinstance(reported, dict) or read.oddities or not read.is_known:
        return reported
    cost: JsonObject = {} if read.cost is None else {"cost": {"total": reported["CostUsd"]}}
    return usage_json(read) | cost


def _own_id(session_id: str, value: JsonObject, number: int = 0) -> str:
    """Return the id of a message: made of its words and their time, so that it is known again after a compaction."""
    own = {name: value.get(name) for name in ("Role", "AgentName", "TurnIndex", "Timestamp", "Content")}
    try:
        text = json.dumps(own)
    except RecursionError:
        text = ""
    return made_id(session_id, text, str(number))


def _in_order(messages: list[_RunMessage], session_id: str) -> list[_RunMessage]:
    """Return the messages in the order of time: a summary comes after those that it left in place."""
    if not messages or messages[0].entry.kind != COMPACTION:
        return messages
    summary, rest = messages[0], messages[1:]
    older = next((at for at, message in enumerate(rest) if (message.at or 0) >= (summary.at or 0)), len(rest))
    if older == 0:
        return messages
    compaction = _compaction(summary.item.value, _own_id(session_id, rest[0].item.value))
    return [*rest[:older], replace(summary, entry=compaction), *rest[older:]]


def _title(task: JsonValue) -> str | None:
    """Return the first line of the task with text in it, as the program's own index shows it."""
    for line in (kit.one_text(task) or "").splitlines():
        if stripped := line.lstrip("# ").strip():
            return stripped if len(stripped) <= _TITLE else f"{stripped[:_TITLE]}\u2026"
    return None
