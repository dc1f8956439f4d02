"""The places where one JSON value differs from another, so that what can be derived is not stored twice."""

from __future__ import annotations

from typing import TypeAlias, cast

from flue_py.core.jsontext import JsonObject, JsonValue

_Step: TypeAlias = "str | int"
_UNORDERED = 3
"""So many levels of a message have fields of the framework's own, in whatever order."""


def differences(base: JsonValue, wanted: JsonValue) -> list[JsonValue]:
    """Return what makes ``wanted`` of ``base``: places with their value, and places alone that are to go. O(size).

    Numbers and booleans that Python holds equal are told apart, and so is the order of the keys of what a tool or a
    model said: the order is part of the prompt that a provider caches.
    """
    found: list[JsonValue] = []
    _compare(base, wanted, (), found)
    return found


def applied(base: JsonValue, found: JsonValue) -> JsonValue:
    """Return ``base``, changed in place, with the `differences`."""
    for each in cast("list[list[JsonValue]]", found or []):
        path = cast("list[_Step]", each[0])
        if not path:
            base = each[1]
            continue
        at = base
        for step in path[:-1]:
            at = at[step]  # type: ignore[index, call-overload]
        if len(each) > 1:
            at[path[-1]] = each[1]  # type: ignore[index, call-overload]
        else:
            del at[path[-1]]  # type: ignore[union-attr, arg-type]
    return base


def _compare(base: JsonValue, wanted: JsonValue, path: tuple[_Step, ...], found: list[JsonValue]) -> None:
    if type(base) is dict and type(wanted) is dict and (len(path) < _UNORDERED or _keeps_order(base, wanted)):
        for key, value in wanted.items():
            if key in base:
                _compare(base[key], value, (*path, key), found)
            else:
                found.append([[*path, key], value])
        found.extend([[*path, key]] for key in base if key not in wanted)
    elif type(base) is list and type(wanted) is list and len(base) == len(wanted):
        for index, (one, other) in enumerate(zip(base, wanted, strict=True)):
            _compare(one, other, (*path, index), found)
    elif type(base) is not type(wanted) or base != wanted or (type(base) is float and str(base) != str(wanted)):
        found.append([list(path), wanted])


def _keeps_order(base: JsonObject, wanted: JsonObject) -> bool:
    """Return whether taking keys out of one and adding others at its end makes the order of the other."""
    return [*(key for key in base if key in wanted), *(key for key in wanted if key not in base)] == list(wanted)
