"""The strict copy of a JSON value: the rules of `flue_py.core.jsontext`, with the path of what breaks them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from math import isfinite
from types import NoneType
from typing import cast

from flue_py.core.jsontext import MAX_JSON_DEPTH, JsonObject, JsonValue, replace_lone_surrogates, step_shown
from flue_py.errors import InvalidEntry, shown

SCALARS: frozenset[type] = frozenset((str, int, bool, NoneType))
"""Types that are JSON whatever their value. A float is not among them: it may be NaN."""


class Refusal(ValueError):
    """Why a value is refused. The path to it grows on the way out, so that accepting costs no path."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return f"{self.path.removeprefix('.')}: {self.reason}" if self.path else self.reason

    def at(self, where: str) -> InvalidEntry:
        # A key with half a surrogate pair must not make the error itself impossible to print.
        return InvalidEntry(replace_lone_surrogates(f"{where}{self.path}: {self.reason}")[0])


def plain_copy(value: object, depth: int) -> JsonValue:
    """Return a copy of a JSON value, by the rules of `encode_json`. Raises `Refusal` for anything else.

    One frame per level, so that the deepest value it accepts fits the interpreter's stack with room to spare.
    """
    if type(value) is not dict and type(value) is not list:
        value = _of_exact_type(value)
        if not isinstance(value, (dict, list)):
            return cast("JsonValue", value)
    if depth >= MAX_JSON_DEPTH:
        raise Refusal(f"nested deeper than {MAX_JSON_DEPTH} levels; flatten it or store it as text")
    step: str | int | None = None
    try:
        if isinstance(value, dict):
            plain: JsonObject = {}
            for raw_key, item in value.items():
                step = None
                step = key = raw_key if type(raw_key) is str else plain_key(raw_key, plain)
                plain[key] = item if type(item) in SCALARS else plain_copy(item, depth + 1)
            return plain
        plain_list: list[JsonValue] = []
        for number, item in enumerate(value):
            step = number
            plain_list.append(item if type(item) in SCALARS else plain_copy(item, depth + 1))
    except Refusal as refusal:
        if step is not None:
            refusal.path = f"{_step_text(step)}{refusal.path}"
        raise
    return plain_list


def _step_text(step: str | int) -> str:
    return f".{step_shown(step)}" if isinstance(step, str) else f"[{step}]"


def _of_exact_type(value: object) -> object:
    """Return what stands for a value whose class only derives from a JSON type, such as an enum of strings."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _finite(float(value))
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return list(value)
    raise Refusal(f"a {type(value).__name__} cannot be stored as JSON; convert it first")


def plain_key(key: object, taken: Container[str]) -> str:
    if not isinstance(key, str):
        raise Refusal(f"key {shown(key)} is a {type(key).__name__}; JSON keys are strings")
    plain = str.__str__(key)
    if plain in taken:  # a subclass may have its own idea of which keys are the same
        raise Refusal(f"two keys are the text {shown(plain)}; leave one of them out")
    return plain


def _finite(value: float) -> float:
    if not isfinite(value):
        raise Refusal(f"{value!r} is not a JSON number; use null or a finite number")
    return value


def is_json(value: object, depth: int) -> bool:
    """Return whether `plain_copy` would give the same value back."""
    kind = type(value)
    if kind in SCALARS:
        return True
    if kind is dict and depth < MAX_JSON_DEPTH:
        for key, item in cast("dict[object, object]", value).items():
            inside = type(item)
            # Most values are text or numbers: those are seen here, without a call for each.
            is_plain = inside in SCALARS or (inside is float and isfinite(cast("float", item)))
            if type(key) is not str or not (is_plain or is_json(item, depth + 1)):
                return False
        return True
    if kind is list and depth < MAX_JSON_DEPTH:
        for item in cast("list[object]", value):  # noqa: SIM110 - a generator would double the frames per level
            if not (type(item) in SCALARS or is_json(item, depth + 1)):
                return False
        return True
    return kind is float and isfinite(cast("float", value))
