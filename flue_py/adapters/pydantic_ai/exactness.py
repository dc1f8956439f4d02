"""What JSON cannot say of a value, kept beside it: tuples, bytes, NaN, lone surrogates, keys that are no strings.

`repairs` compares a value with what reading its JSON gave, and returns the places that differ, each with what was
there, as JSON. `repaired` puts it back. Objects of an application's own classes stay what their JSON says.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TypeAlias, TypeVar, cast
from uuid import UUID

from pydantic_ai import messages, tools, usage

from flue_py.core.jsontext import JsonValue, replace_lone_surrogates
from flue_py.errors import CorruptStore

_Step: TypeAlias = "str | int"
Value = TypeVar("Value")


class _Unsayable(Exception):
    """A value of a class that is not ours to make again."""


def repairs(given: object, read: object) -> list[JsonValue]:
    """Return what makes ``given`` of ``read``, as places and values; empty if they are equal. O(size)."""
    if given == read:
        return []
    return [[list(path), told] for path, told in _differences(given, read, ())]


def repaired(value: object, found: JsonValue) -> object:
    """Return ``value``, changed in place, with what `repairs` found."""
    for path, told in cast("list[tuple[list[_Step], JsonValue]]", found or []):
        if not path:
            value = _untold(told, value)
            continue
        at = value
        for step in path[:-1]:
            at = _step(at, step)
        _put(at, path[-1], _untold(told, _step(at, path[-1])))
    return value


def without_surrogates(value: Value) -> Value:
    """Return a value with U+FFFD for each lone surrogate in it; what has none may be the same object. O(size)."""
    return cast("Value", _washed(value))


def _washed(value: object) -> object:
    kind = type(value)
    if kind is str:
        return replace_lone_surrogates(cast("str", value))[0]
    if kind in (list, tuple, set, frozenset):
        return kind(map(_washed, cast("list[object]", value)))
    if kind is dict:
        return {_washed(key): _washed(each) for key, each in cast("dict[object, object]", value).items()}
    if _is_of_framework(value):
        # Not by `copy`, which for a class that is deprecated warns.
        made: object = object.__new__(kind)
        vars(made).update((name, _washed(each)) for name, each in vars(value).items())
        return made
    return value


def _differences(given: object, read: object, path: tuple[_Step, ...]) -> Iterator[tuple[tuple[_Step, ...], JsonValue]]:
    if type(given) is type(read) and given == read:
        return
    inside = _inside(given, read)
    if inside is None:
        try:
            yield path, _told(given)
        except _Unsayable:
            return
        return
    if type(given) is not type(read):
        yield path, ["class", type(given).__name__]
    for step, one, other in inside:
        yield from _differences(one, other, (*path, step))


def _inside(given: object, read: object) -> list[tuple[_Step, object, object]] | None:
    """Return the parts of two values side by side; None where they have not the same ones."""
    if _is_of_framework(given) and _is_of_framework(read):
        one, other = vars(given), vars(read)
        return [(name, one[name], other[name]) for name in one] if one.keys() == other.keys() else None
    if type(given) is list and type(read) is list and len(given) == len(read):
        return list(zip(range(len(given)), given, read, strict=True))
    if type(given) is dict and type(read) is dict and list(given) == list(read):
        return [(key, given[key], read[key]) for key in given] if all(type(key) is str for key in given) else None
    return None


def _is_of_framework(value: object) -> bool:
    kind = type(value)
    return is_dataclass(kind) and _class_called(kind.__name__) is kind


def _class_called(name: str) -> object:
    return next((found for room in (messages, tools, usage) if (found := getattr(room, name, None)) is not None), None)


def _step(at: object, step: _Step) -> object:
    if isinstance(at, list):
        return at[int(step)]
    return at[step] if isinstance(at, dict) else getattr(at, str(step))


def _put(at: object, step: _Step, value: object) -> None:
    if isinstance(at, list):
        at[int(step)] = value
    elif isinstance(at, dict):
        at[step] = value
    else:
        # Some of the framework's values are frozen; these have just been read, and are nobody's yet.
        object.__setattr__(at, str(step), value)


_TOLD: Mapping[type, Callable[[object], JsonValue]] = {
    str: json.dumps,
    float: repr,
    bytes: lambda value: b64encode(cast("bytes", value)).decode(),
    datetime: lambda value: cast("datetime", value).isoformat(),
    date: lambda value: cast("date", value).isoformat(),
    time: lambda value: cast("time", value).isoformat(),
    timedelta: lambda value: [getattr(value, name) for name in ("days", "seconds", "microseconds")],
    Decimal: str,
    UUID: str,
    list: lambda value: [_told(each) for each in cast("list[object]", value)],
    tuple: lambda value: [_told(each) for each in cast("tuple[object, ...]", value)],
    set: lambda value: [_told(each) for each in cast("set[object]", value)],
    frozenset: lambda value: [_told(each) for each in cast("frozenset[object]", value)],
    dict: lambda value: [[_told(key), _told(each)] for key, each in cast("dict[object, object]", value).items()],
}

_UNTOLD: Mapping[str, Callable[[JsonValue], object]] = {
    "json": lambda told: told,
    "str": lambda told: json.loads(cast("str", told)),
    "float": lambda told: float(cast("str", told)),
    "bytes": lambda told: b64decode(cast("str", told)),
    "datetime": lambda told: datetime.fromisoformat(cast("str", told)),
    "date": lambda told: date.fromisoformat(cast("str", told)),
    "time": lambda told: time.fromisoformat(cast("str", told)),
    "timedelta": lambda told: timedelta(*cast("list[int]", told)),
    "Decimal": lambda told: Decimal(cast("str", told)),
    "UUID": lambda told: UUID(cast("str", told)),
    "list": lambda told: [_untold(each) for each in cast("list[JsonValue]", told)],
    "tuple": lambda told: tuple(_untold(each) for each in cast("list[JsonValue]", told)),
    "set": lambda told: {_untold(each) for each in cast("list[JsonValue]", told)},
    "frozenset": lambda told: frozenset(_untold(each) for each in cast("list[JsonValue]", told)),
    "dict": lambda told: {_untold(key): _untold(each) for key, each in cast("list[list[JsonValue]]", told)},
    "object": lambda told: _made(cast("list[JsonValue]", told)),
}


def _told(value: object) -> JsonValue:
    """Return a value as JSON with its type. Raises `_Unsayable`."""
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return ["json", cast("int", value)]
    if kind in _TOLD:
        return [kind.__name__, _TOLD[kind](value)]
    if _is_of_framework(value):
        return ["object", [kind.__name__, {name: _told(each) for name, each in vars(value).items()}]]
    raise _Unsayable


def _untold(told: JsonValue, instead_of: object = None) -> object:
    name, value = cast("tuple[str, JsonValue]", told)
    if name != "class":
        return _UNTOLD[name](value)
    made = _empty(cast("str", value))
    vars(made).update(vars(instead_of))
    return made


def _made(told: list[JsonValue]) -> object:
    name, fields = told
    made = _empty(cast("str", name))
    vars(made).update((field, _untold(each)) for field, each in cast("dict[str, JsonValue]", fields).items())
    return made


def _empty(name: str) -> object:
    """Return an object of a class of the framework's messages, without fields: making it anew might change them."""
    kind = _class_called(name)
    if not is_dataclass(kind):
        raise CorruptStore(f"{name} is not a class of this version of pydantic-ai; install the one that wrote it")
    return object.__new__(cast("type", kind))
