"""What printing a message again would not give back, so that a list goes out as it came in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeGuard

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


def close_difference(printed: Mapping[str, JsonValue], original: Mapping[str, JsonValue]) -> JsonObject:
    """Return a `difference` that looks inside lists of objects, too: a text is not kept twice for a field beside it.

    Fields of these objects may come back in another order.
    """
    found = difference(printed, original)
    changed = found.get("set")
    if not isinstance(changed, dict):
        return found
    inside: JsonObject = {}
    for name, value in list(changed.items()):
        before = printed.get(name)
        if _are_objects(before) and _are_objects(value) and len(before) == len(value):
            inside[name] = [difference(one, other) for one, other in zip(before, value, strict=True)]
            del changed[name]
    if not inside:
        return found
    if not changed:
        del found["set"]
    return {**found, "inside": inside}


def restored(printed: JsonObject, found: JsonValue) -> JsonObject:
    """Return ``printed`` with a difference applied; what is none changes nothing."""
    if not isinstance(found, dict):
        return printed
    gone, changed, inside = found.get("unset"), found.get("set"), found.get("inside")
    kept = {name: value for name, value in printed.items() if not (isinstance(gone, list) and name in gone)}
    for name, each in inside.items() if isinstance(inside, dict) else ():
        before = kept.get(name)
        if _are_objects(before) and isinstance(each, list) and len(each) == len(before):
            kept[name] = [restored(one, other) for one, other in zip(before, each, strict=True)]
    return {**kept, **(changed if isinstance(changed, dict) else {})}


def _are_objects(value: JsonValue) -> TypeGuard[list[JsonObject]]:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _same(one: JsonValue, other: JsonValue) -> bool:
    if type(one) is str and type(other) is str:
        return one == other
    # As text, since to Python 1, 1.0 and True are equal. Another order of keys counts as a difference; it costs space.
    try:
        return json.dumps(one) == json.dumps(other)
    except RecursionError:
        return False
