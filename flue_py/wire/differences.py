"""What printing a message again would not give back, so that a list goes out as it came in.

A difference has the fields to ``set``, the names of those to ``unset``, and, from `close_difference`, what differs
``inside`` others: a difference for each, by name, or by place in a list. Empty, it changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from flue_py.core.jsontext import JsonObject, JsonValue

_UNORDERED = 3
"""A message, its parts and their fields: the order of names counts in what lies deeper."""


def difference(printed: Mapping[str, JsonValue], original: Mapping[str, JsonValue]) -> JsonObject:
    """Return what makes ``original`` of ``printed``: whole fields to set, and to leave out. O(size)."""
    changed = {
        name: value for name, value in original.items() if name not in printed or not _same(printed[name], value)
    }
    return _told(changed, [name for name in printed if name not in original], {})


def close_difference(printed: JsonObject, original: JsonObject) -> JsonObject:
    """Return a `difference` that looks inside objects and lists, too: a text is not kept twice for a field beside it.

    The fields of a message and of its parts may come back in another order; what a tool or a model said may not, since
    providers cache a prompt by its text. Numbers and booleans that Python holds equal are told apart. O(size).
    """
    try:
        return _between_objects(printed, original, 1)
    except RecursionError:
        return difference(printed, original)


def restored(printed: JsonObject, found: JsonValue) -> JsonObject:
    """Return ``printed`` with a difference applied; what is none changes nothing. O(size of what differs)."""
    if not isinstance(found, dict) or not found:
        return printed
    gone, changed, inside = found.get("unset"), found.get("set"), found.get("inside")
    kept = {**printed}
    for name in gone if isinstance(gone, list) else ():
        if isinstance(name, str):
            kept.pop(name, None)
    for name, each in inside.items() if isinstance(inside, dict) else ():
        if name in kept:
            kept[name] = _restored_inside(kept[name], each)
    if isinstance(changed, dict):
        kept.update(changed)
    return kept


def _between_objects(printed: JsonObject, original: JsonObject, depth: int) -> JsonObject:
    changed: JsonObject = {}
    inside: JsonObject = {}
    for name, value in original.items():
        if name not in printed:
            changed[name] = value
        elif (before := printed[name]) is not value:
            _compare(name, before, value, depth, changed, inside)
    gone = [name for name in printed if name not in original] if len(printed) + len(changed) > len(original) else ()
    return _told(changed, gone, inside) if changed or inside or gone else {}


def _compare(
    name: str, before: JsonValue, value: JsonValue, depth: int, changed: JsonObject, inside: JsonObject
) -> None:
    """Note under its name how a value differs from another."""
    kind = type(value)
    if type(before) is not kind:
        changed[name] = value
    elif kind is dict and (depth < _UNORDERED or _keeps_order(before, value)):  # type: ignore[arg-type]
        if found := _between_objects(before, value, depth + 1):  # type: ignore[arg-type]
            inside[name] = found
    elif kind is list and len(before) == len(value):  # type: ignore[arg-type]
        if found := _between_lists(before, value, depth + 1):  # type: ignore[arg-type]
            inside[name] = found
    elif before != value or (kind is float and str(before) != str(value)) or kind in (dict, list):
        changed[name] = value


def _between_lists(printed: list[JsonValue], original: list[JsonValue], depth: int) -> JsonObject:
    changed: JsonObject = {}
    inside: JsonObject = {}
    for number, (before, value) in enumerate(zip(printed, original, strict=True)):
        _compare(str(number), before, value, depth, changed, inside)
    return _told(changed, (), inside)


def _told(changed: JsonObject, gone: Iterable[str], inside: JsonObject) -> JsonObject:
    found: JsonObject = {}
    if changed:
        found["set"] = changed
    if gone:
        found["unset"] = list(gone)
    if inside:
        found["inside"] = inside
    return found


def _restored_inside(value: JsonValue, found: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return restored(value, found)
    if not isinstance(value, list) or not isinstance(found, dict):
        return value
    changed, inside = found.get("set"), found.get("inside")
    kept = [*value]
    for number, each in _places(inside, len(kept)):
        kept[number] = _restored_inside(kept[number], each)
    for number, each in _places(changed, len(kept)):
        kept[number] = each
    return kept


def _places(found: JsonValue, length: int) -> list[tuple[int, JsonValue]]:
    """Return what stands under the places of a list of this length; other names stand for none."""
    told = found.items() if isinstance(found, dict) else ()
    places = {str(number): number for number in range(length)} if told else {}
    return [(places[name], each) for name, each in told if name in places]


def _keeps_order(printed: JsonObject, original: JsonObject) -> bool:
    """Return whether taking fields out of one and adding others at its end makes the order of the other."""
    names = list(original)
    if list(printed) == names:
        return True
    return [*(name for name in printed if name in original), *(name for name in names if name not in printed)] == names


def _same(one: JsonValue, other: JsonValue) -> bool:
    if type(one) is str and type(other) is str:
        return one == other
    # As text, since to Python 1, 1.0 and True are equal. Another order of keys counts as a difference; it costs space.
    try:
        return json.dumps(one) == json.dumps(other)
    except RecursionError:
        return False
