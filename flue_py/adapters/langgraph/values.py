"""Values of a graph as JSON, and back: as they are where they are JSON, else as the framework's serializer has them."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from math import isfinite
from types import NoneType
from typing import TYPE_CHECKING

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from flue_py.adapters.langgraph.trusted import require_values
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.errors import CorruptStore

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

_STRICT = ("1", "true", "yes")
_LARGEST = 2**63
_DEEPEST = 100


class Values:
    """The way of values into entries, by the serializer of a saver."""

    def __init__(self, serde: SerializerProtocol, *, is_default: bool = False) -> None:
        self._serde = serde
        # Whoever chooses a serializer chooses what it reads; and a strict one calls nothing by itself.
        self._is_guarded = is_default and os.environ.get("LANGGRAPH_STRICT_MSGPACK", "").lower() not in _STRICT
        # Only what the framework's own serializer does is known. Another one may encrypt, or write a form of its own.
        self.may_show = type(serde) is JsonPlusSerializer

    def stored(self, value: object) -> JsonObject:
        """Return a value as an entry has it. Raises what the serializer raises. O(size)."""
        if self.may_show and is_plain(value):
            return {"json": _copied(value)}  # type: ignore[dict-item]
        return self.serialized(value)

    def serialized(self, value: object) -> JsonObject:
        """Return a value as the serializer has it. Raises what that raises. O(size)."""
        form, data = self._serde.dumps_typed(value)
        return {"data": [form, b64encode(data).decode("ascii")]}

    def loaded(self, stored: JsonValue) -> object:
        """Return the value that `stored` gave this. Raises `CorruptStore`, and what the serializer raises. O(size)."""
        match stored:
            case {"json": value}:
                return _copied(value)
            case {"data": [str(form), str(data)]}:
                content = b64decode(data)
                if self._is_guarded:
                    require_values(form, content)
                return self._serde.loads_typed((form, content))
        raise CorruptStore("a value of a checkpoint is in no form that is known; run verify()")


def is_plain(value: object, depth: int = 0) -> bool:
    """Return whether JSON in UTF-8 gives a value back exactly: no subclass, no tuple, no number it would change."""
    if type(value) is list:
        return depth < _DEEPEST and all(is_plain(each, depth + 1) for each in value)
    if type(value) is dict:
        return depth < _DEEPEST and all(
            type(key) is str and is_text(key) and is_plain(each, depth + 1) for key, each in value.items()
        )
    check = _SCALARS.get(type(value))
    return check is not None and check(value)


def _copied(value: object) -> object:
    # A graph may change what it has put, and what it got: neither may reach what a process remembers.
    if type(value) is list:
        return [_copied(each) for each in value]
    if type(value) is dict:
        return {key: _copied(each) for key, each in value.items()}
    return value


def is_text(text: object) -> bool:
    """Return whether a text has no half of a surrogate pair."""
    if not isinstance(text, str) or text.isascii():
        return isinstance(text, str)
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_always(value: object) -> bool:
    return True


_SCALARS: Mapping[type, Callable[[object], bool]] = {
    str: is_text,
    bool: _is_always,
    NoneType: _is_always,
    int: lambda value: isinstance(value, int) and -_LARGEST <= value < _LARGEST,
    float: lambda value: isinstance(value, float) and isfinite(value),
}
"""The types that JSON has, and which of their values it gives back."""
