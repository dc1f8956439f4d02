"""Contexts made by hand, and what the pipeline leaves of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from flue_py.context.pipeline import EpochRules, Piped, Step, View, run_steps
from flue_py.context.settings import AgentContext, context_settings
from flue_py.context.steps import steps_of
from flue_py.context.tokens import counter_for
from flue_py.core.context import ContextEntry
from flue_py.core.entries import Entry
from flue_py.core.json import JsonObject, JsonValue, encode_json


def context(*said: JsonObject, kinds: dict[int, str] | None = None) -> list[ContextEntry]:
    """Return a context of messages, the entries of which are ``e0``, ``e1``, ..."""
    entries = []
    for at, message in enumerate(said):
        payload, kind = encode_json(message, "message")[0], (kinds or {}).get(at, "message")
        role = str(message["role"]) if "role" in message else None
        entry = Entry(f"e{at}", f"e{at - 1}" if at else None, "s", kind, role, None, at, at, 0, at, payload, None)
        entries.append(ContextEntry(entry))
    return entries


def user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


def block(name: str, text: str) -> JsonObject:
    """Return the payload of a ``custom_message`` that tells a block."""
    return {"customType": f"block:{name}", "content": text, "details": {"same": text}}


def answer(text: str, *calls: JsonObject, agent: str | None = None, **more: JsonValue) -> JsonObject:
    said: list[JsonValue] = [{"type": "text", "text": text}] if text else []
    named: JsonObject = {} if agent is None else {"agent": agent}
    return {"role": "assistant", "content": [*said, *calls], **named, **more}


def call(call_id: str, name: str = "read_file", **arguments: JsonValue) -> JsonObject:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


def result(call_id: str, text: str = "done", **more: JsonValue) -> JsonObject:
    return {"role": "toolResult", "toolCallId": call_id, "content": [{"type": "text", "text": text}], **more}


def piped(
    items: Sequence[ContextEntry], given: dict[str, Any] | AgentContext, agent: str | None = None, *own: Step
) -> Piped:
    """Return what settings leave of a context. Addresses and epochs are off unless the settings name them."""
    if isinstance(given, dict):
        given = context_settings({"addresses": False, "epoch_tokens": 0, **given}).of(agent)
    view = View(agent, counter_for("gpt-5"), addresses=given.addresses)
    return run_steps(items, [*steps_of(given), *own], view, rules=EpochRules(given.epoch_tokens))


def begins_with(later: JsonValue, earlier: JsonValue) -> bool:
    """Return whether the text of a list begins with that of another, but for the brackets that close it."""
    return json.dumps(later).startswith(json.dumps(earlier).rstrip('"}]'))


def ids(found: Piped) -> list[str | None]:
    return [item.entry_id for item in found.items]


def texts(found: Piped) -> list[str]:
    """Return what each message says, its texts joined."""
    said = []
    for item in found.items:
        content = item.message.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        said.append("".join(str(part["text"]) for part in parts if isinstance(part, dict) and part["type"] == "text"))
    return said


def done(found: Piped) -> list[tuple[str, str | None, str]]:
    """Return what was done, as the step, the entry, and how."""
    return [(change.step, change.entry_id, change.how) for change in found.report.changes]
