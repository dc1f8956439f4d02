"""fuseraft run checkpoints: one object with the messages of every agent, written anew after every turn.

A compaction replaces the messages before it by a summary at the beginning of the list. Here the history stays: the
summary is a compaction entry that stands after the messages it left in place (which are older than it) and names the
first of them, so that what was imported before goes on. docs/formats/fuseraft-run.md lists what is kept.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import partial

from flue_py.core.entries import NewEntry
from flue_py.core.ids import made_id
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION
from flue_py.core.usage_shapes import read_reported, usage_json
from flue_py.errors import UnreadableFile
from flue_py.formats.kit.documents import Item, items_of, read_object
from flue_py.formats.kit.linear import UNREADABLE_MESSAGE, Chain, imported_session, message_entry, plain_entry
from flue_py.formats.kit.parsed import ParsedSession
from flue_py.formats.kit.rows import Notes
from flue_py.formats.kit.streaming import DocumentReader
from flue_py.formats.kit.values import one_text, read_time

FORMAT = "fuseraft-run"

_ID = re.compile(r"[0-9a-f]{8}")
_HEAD = re.compile(rb'\s*\{\s*"SessionId"\s*:')
_OURS = re.compile(rb'"(Task|ConfigPath|IsComplete|Messages)"\s*:')
_FIELDS = frozenset({"AgentName", "Content", "Role", "Usage", "Timestamp", "ModelId"})
_TITLE = 120


def looks_like_fuseraft_run(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be a run checkpoint."""
    head = head.removeprefix(b"\xef\xbb\xbf")
    first_message = head.find(b'"Messages"')
    outside = head if first_message < 0 else head[: first_message + 12]
    return bool(_HEAD.match(head)) and bool(_OURS.search(outside)) and b'"History"' not in outside


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
    messages = [_said(item, notes, model, saved_us) for item in items_of(document["Messages"], notes)]
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
        FORMAT,
        name,
        {"checkpoint": rest},
        notes,
        title=_title(document.get("Task")),
        created_us=read_time(document.get("StartedAt")),
    )
    parsed = chain.parsed(FORMAT, "1", replace(session, config_path=one_text(document.get("ConfigPath"))))
    if document.get("IsComplete") is not True:
        return (parsed,)
    ends = [saved_us, *(said.at for said in reversed(messages)), session.created_us]
    return (replace(parsed, completed_us=next((end for end in ends if end is not None), None)),)


read_fuseraft_run = partial(DocumentReader, parse_fuseraft_run)


@dataclass(frozen=True, slots=True)
class _Said:
    item: Item
    entry: NewEntry
    beside: JsonObject
    at: int | None


def _said(item: Item, notes: Notes, model: str | None, saved_us: int | None) -> _Said:
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
