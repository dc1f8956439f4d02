"""What printing a message again would not give back, so that a list goes out as it came in."""

from __future__ import annotations

import json
from collections.abc import Mapping

from flue_py.core.jsontext import JsonObject, JsonValue


def difference(printed: Mapping[str, JsonValue], original: Mapping[str, JsonValue]) -> JsonObject:
    """Return what makes ``original`` of ``printed``: fields to set, and to leave out; empty if they are equal."""
    changed = {
        name: value for name, value in original.items() if name not in printed or not _same(printed[name], value)
    }
    gone: list[JsonValue] = [name for name in printed if name not in original]
    found: JsonObject = {}
    if changed:
        found["set"] = changed
    if gone:
        found["unset"] = gone
    return found


def restored(printed: JsonObject, found: JsonValue) -> JsonObject:
    """Return ``printed`` with a `difference` applied; what is none changes nothing."""
    if not isinstance(found, dict):
        return printed
    gone, changed = found.get("unset"), found.get("set")
    kept = {name: value for name, value in printed.items() if not (isinstance(gone, list) and name in gone)}
    return {**kept, **(changed if isinstance(changed, dict) else {})}


def _same(one: JsonValue, other: JsonValue) -> bool:
    # As text, since to Python 1, 1.0 and True are equal. Another order of keys counts as a difference; it costs space.
    try:
        return json.dumps(one) == json.dumps(other)
    except RecursionError:
        return False
