"""What pi asks of every message, put into messages that do not have it, and taken out again when the file comes back.

A row of such a message has a field that says what was put in. Without it the zeros that pi asks for would come back as
a cost of nothing, although the cost is unknown.
"""

from __future__ import annotations

from flue_py.core.costs import EntryCost
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.usage import PICODOLLARS_PER_DOLLAR, Cost
from flue_py.core.usage_shapes import read_reported, usage_json
from flue_py.wire.differences import difference, restored
from flue_py.wire.openai_chat import calls_in

FILLED = "flue_py"
"""The field of a row that says what was put into its message: a `difference`."""

_TOKENS: JsonObject = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
_COST: JsonObject = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
_PARTS = ("input", "output", "cacheRead", "cacheWrite")
_LOST = 1e-9
"""Which part of a total its parts may lack, since they are floats."""
_ANSWER = ("api", "provider", "model", "stopReason", "usage", "timestamp")
_MAY_BE_FILLED = frozenset({*_ANSWER, "toolName", "isError"})


def filled(message: JsonObject, created_us: int) -> tuple[JsonObject, JsonObject]:
    """Return a message with what pi reads without asking whether it is there, and what `unfilled` undoes it with.

    The content of an answer or a tool result becomes a list of parts, which means the same and is not undone.
    """
    whole = dict(message)
    role = message.get("role")
    if role in ("assistant", "toolResult") and not isinstance(message.get("content"), list):
        text = message.get("content")
        whole["content"] = [{"type": "text", "text": text}] if isinstance(text, str) and text else []
    whole.setdefault("timestamp", created_us // 1000)
    if role == "assistant":
        for name in ("api", "provider", "model"):
            whole.setdefault(name, "unknown")
        whole.setdefault("stopReason", "toolUse" if calls_in(whole) else "stop")
        whole["usage"] = _filled_usage(message.get("usage"))
    elif role == "toolResult":
        whole.setdefault("toolName", "unknown")
        whole.setdefault("isError", False)
    return whole, difference(_fillable(whole), _fillable(message))


def _filled_usage(usage: JsonValue) -> JsonObject:
    reported = _given(usage)
    return {
        **_TOKENS,
        **usage_json(read_reported(usage)),
        **reported,
        "cost": _filled_cost(_given(reported.get("cost"))),
    }


def _filled_cost(cost: JsonObject) -> JsonObject:
    """Return a cost with zeros for what it does not have; without those that would be parts of a larger total."""
    there = [value for name in _PARTS if isinstance(value := cost.get(name, 0), (int, float))]
    total = cost.get("total")
    is_larger = isinstance(total, (int, float)) and total - sum(there) > _LOST * total
    return cost if is_larger else {**_COST, **cost}


def _given(value: JsonValue) -> JsonObject:
    return {name: item for name, item in value.items() if item is not None} if isinstance(value, dict) else {}


def _fillable(message: JsonObject) -> JsonObject:
    return {name: value for name, value in message.items() if name in _MAY_BE_FILLED}


def unfilled(message: JsonObject, marker: JsonValue) -> JsonObject:
    """Return a message of a file without what `filled` put in; ``marker`` may be anything that stood in the row."""
    if not isinstance(marker, dict):
        return message
    gone, changed = marker.get("unset"), marker.get("set")
    undo: JsonObject = {
        "unset": [name for name in gone if name in _MAY_BE_FILLED] if isinstance(gone, list) else [],
        "set": _fillable(changed) if isinstance(changed, dict) else {},
    }
    return restored(message, undo)


def has_reported_cost(usage: JsonValue) -> bool:
    """Return whether a usage object says what its call cost."""
    reported = read_reported(usage)
    # What cannot be a cost was reported all the same, and goes out as it is.
    return reported.cost is not None or any(".cost" in oddity for oddity in reported.oddities)


def with_cost(usage: JsonValue, cost: EntryCost, parts: Cost | None) -> JsonObject:
    """Return a usage object, or an empty one, with the known cost of the calls behind an entry, and its parts."""
    reported = usage if isinstance(usage, dict) else {}
    dollars: JsonObject = {"total": _dollars(cost.picodollars)}
    if parts is not None:
        split = (parts.input, parts.output, parts.cache_read, parts.cache_write)
        dollars |= {name: _dollars(part) for name, part in zip(_PARTS, split, strict=True)}
    return {**reported, "cost": {**_given(reported.get("cost")), **dollars}}


def _dollars(picodollars: int) -> float:
    return picodollars / PICODOLLARS_PER_DOLLAR if picodollars else 0
