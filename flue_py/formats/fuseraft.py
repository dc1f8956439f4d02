"""fuseraft REPL snapshots and run checkpoints."""

from __future__ import annotations

import json
import re
from functools import partial

from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION
from flue_py.core.sessions import made_id
from flue_py.core.usage import read_reported, usage_json
from flue_py.errors import UnreadableFile
from flue_py.formats.kit import (
    UNREADABLE_MESSAGE,
    Chain,
    DocumentReader,
    Item,
    Notes,
    ParsedSession,
    imported_session,
    is_name,
    items_of,
    message_entry,
    one_text,
    plain_entry,
    read_object,
    read_time,
)
from flue_py.providers.openai_chat import arguments_from_text, calls_in

# fuseraft REPL snapshots: one object with the whole history, written anew after every turn.
#
# What the program leaves out when it restores a snapshot (``skip`` contents, messages without contents) makes no entry.
# The program makes its system prompt anew at every start: the ids of the other entries do not depend on
# it. docs/formats/fuseraft-repl.md lists what is kept.

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


# fuseraft run checkpoints: one object with the messages of every agent, written anew after every turn.
#
# A compaction replaces the messages before it by a summary at the beginning of the list. Here the history stays: the
# summary is a compaction entry that stands after the messages it left in place (which are older than it) and names the
# first of them, so that what was imported before goes on. docs/formats/fuseraft-run.md lists what is kept.

READ_RUN_FORMAT = "fuseraft-run"

_ID = re.compile(r"[0-9a-f]{8}")
_READ_RUN_OURS = re.compile(rb'"(Task|ConfigPath|IsComplete|Messages)"\s*:')
_FIELDS = frozenset({"AgentName", "Content", "Role", "Usage", "Timestamp", "ModelId"})
_TITLE = 120


def looks_like_fuseraft_run(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be a run checkpoint."""
    head = head.removeprefix(b"\xef\xbb\xbf")
    first_message = head.find(b'"Messages"')
    outside = head if first_message < 0 else head[: first_message + 12]
    return bool(_HEAD.match(head)) and bool(_READ_RUN_OURS.search(outside)) and b'"History"' not in outside


def parse_fuseraft_run(data: bytes, name: str = "the file") -> tuple[ParsedSession, ...]:
    """Return the session in a run checkpoint. ``name`` is what errors and metadata call the file.

    Raises `UnreadableFile` if it is not such an object, or its id is not eight hex characters;
    every other fault is in the report. O(size).
    """
    notes = Notes("item")
    document = read_object(data, notes, name)
    session_id = document.get("SessionId")
    if not isinstance(session_id, str) or not _ID.fullmatch(session_id):
        raise UnreadableFile(f"{name} is not a run checkpoint: its SessionId is not eight hex characters")
    if not isinstance(document.get("Messages"), list):
        raise UnreadableFile(f"{name} is not a run checkpoint: it has no list of Messages; nothing was imported")
    chain = Chain(session_id, notes)
    model, saved_us = one_text(document.get("ModelId")), read_time(document.get("LastUpdatedAt"))
    messages = [_read_run_said(item, notes, model, saved_us) for item in items_of(document["Messages"], notes)]
    for said in _in_order(messages, session_id):
        beside = {key: value for key, value in said.item.value.items() if key not in _FIELDS}
        chain.add(
            said.entry,
            said.item.index,
            beside={} if said.entry.kind == UNREADABLE_MESSAGE else {**beside, **said.beside},
            entry_id=_unused(chain, said.item.value),
            created_us=said.at,
        )
    rest = {key: value for key, value in document.items() if key != "Messages"}
    session = imported_session(
        session_id,
        READ_RUN_FORMAT,
        name,
        {"checkpoint": rest},
        notes,
        title=_title(document.get("Task")),
        created_us=read_time(document.get("StartedAt")),
    )
    parsed = chain.parsed(READ_RUN_FORMAT, "1", replace(session, config_path=one_text(document.get("ConfigPath"))))
    if document.get("IsComplete") is not True:
        return (parsed,)
    ends = [saved_us, *(said.at for said in reversed(messages)), session.created_us]
    return (replace(parsed, completed_us=next((end for end in ends if end is not None), None)),)


read_fuseraft_run = partial(DocumentReader, parse_fuseraft_run)


class _Said(Frozen):
    item: Item
    entry: NewEntry
    beside: JsonObject
    at: int | None


def _read_run_said(item: Item, notes: Notes, model: str | None, saved_us: int | None) -> _Said:
    """Return a message as an entry: an answer of the model of the run, unless it names its own."""
    value = item.value
    at = read_time(value.get("Timestamp"))
    if at is None:
        taken = "import" if saved_us is None else "checkpoint"
        notes.repair(item.index, f"has no readable Timestamp; the time of the {taken} was taken")
        at = saved_us
    if value.get("IsCompactionSummary") is True and isinstance(value.get("Content"), str) and item.index == 0:
        agent: JsonObject = {"agentName": value["AgentName"]} if "AgentName" in value else {}
        fields: JsonObject = {"summary": value["Content"], "firstKeptEntryId": "", "tokensBefore": 0}
        return _Said(item, plain_entry(COMPACTION, fields), agent, at)
    entry, beside = message_entry(_message(value, model), value, item.index, notes)
    return _Said(item, entry, beside, at)


def _message(value: JsonObject, model: str | None) -> JsonObject:
    message: JsonObject = {"role": value.get("Role"), "content": value.get("Content")}
    if "AgentName" in value:
        message["agentName"] = value["AgentName"]
    if value.get("Role") == "assistant" and (own := one_text(value.get("ModelId")) or model):
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
    """Return the id of a message: of what it says and when, so that it is known again after a compaction."""
    own = {name: value.get(name) for name in ("Role", "AgentName", "TurnIndex", "Timestamp", "Content")}
    try:
        text = json.dumps(own)
    except RecursionError:
        text = ""
    return made_id(session_id, text, str(number))


def _unused(chain: Chain, value: JsonObject) -> str:
    number = 0
    while (found := _own_id(chain.session_id, value, number)) in chain.lines:
        number += 1
    return found


def _in_order(said: list[_Said], session_id: str) -> list[_Said]:
    """Return the messages in the order of time: a summary comes after those that it left in place."""
    if not said or said[0].entry.kind != COMPACTION:
        return said
    summary, rest = said[0], said[1:]
    kept = 0
    while kept < len(rest) and (rest[kept].at or 0) < (summary.at or 0):
        kept += 1
    if kept == 0:
        return said
    fields: JsonObject = {
        "summary": summary.item.value["Content"],
        "firstKeptEntryId": _own_id(session_id, rest[0].item.value),
        "tokensBefore": 0,
    }
    return [*rest[:kept], replace(summary, entry=plain_entry(COMPACTION, fields)), *rest[kept:]]


def _title(task: JsonValue) -> str | None:
    """Return the first line of the task with text in it, as the program's own index shows it."""
    for line in (one_text(task) or "").splitlines():
        if stripped := line.lstrip("# ").strip():
            return stripped if len(stripped) <= _TITLE else f"{stripped[:_TITLE]}\u2026"
    return None
