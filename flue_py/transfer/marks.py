"""A reader between two imports of a file that grows, as text: what it knows of the rows so far."""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode, b64encode
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from itertools import chain
from types import ModuleType, NoneType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

import flue_py
from flue_py.core import usage
from flue_py.core.json import Frozen
from flue_py.formats import kit
from flue_py.formats.kit import Reader

# A reader is a graph: parts of it refer to each other. Each part that may change has a number, and is a row: the name
# of its class, and its contents, where a list with one number stands for the part of that number, and other lists for
# values that do not change. Classes are those that the reader's own module names: no other code is ever called.

VERSION = f"{flue_py.__version__} {sys.hexversion:x} {sys.byteorder}"
"""The version of the texts: another one reads none of them."""

_PLAIN = frozenset({str, int, float, bool, NoneType})
_CONTAINERS: dict[str, type[Any]] = {kind.__name__: kind for kind in (dict, OrderedDict, Counter, list, deque, set)}


class End(Frozen):
    """A session where an import left it; ``state`` is a digest of its row."""

    session_id: str
    state: str
    newest: str | None
    segment: str
    parent: str | None


class Bookmark(Frozen):
    """The whole lines of a file that were read, and its reader as it was then.

    ``taken`` counts the entries of each session that were returned by then. ``ends`` are the sessions of the file.
    """

    format: str
    reader: str
    lines: int
    size: int
    digest: str
    before: dict[str, list[int]]
    beside: Any
    taken: dict[str, int]
    ends: tuple[End, ...] = ()


class _Page(Frozen):
    """A bookmark as it is stored, with the name of its file."""

    version: str
    file: str
    mark: Bookmark


def text_with(mark: Bookmark, file: str) -> str:
    """Return a bookmark of a file as JSON."""
    return msgspec.json.encode(_Page(VERSION, file, mark)).decode()


def mark_in(text: str | None, file: str) -> Bookmark | None:
    """Return the bookmark of a file that a text has; None if it has none of this version."""
    with suppress(msgspec.MsgspecError):
        page = msgspec.json.decode(text or "", type=_Page)
        return page.mark if (page.version, page.file) == (VERSION, file) else None
    return None


def text_of(reader: Reader) -> str:
    """Return what a reader knows, as JSON. O(size). Raises `TypeError` if something in it cannot be kept."""
    kinds = _classes(reader)
    places: dict[int, int] = {}
    parts: list[Any] = []

    def kept(value: Any) -> Any:  # noqa: ANN401 - the parts of a reader
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind in (tuple, frozenset):
            return [kind.__name__, *map(kept, value)]
        if kind is bytes:
            return ["bytes", b64encode(value).decode()]
        if isinstance(value, tuple):
            return [_name(kind, kinds), *(item if type(item) in _PLAIN else kept(item) for item in value)]
        if isinstance(value, Frozen):
            return [_name(kind, kinds), *(kept(getattr(value, name)) for name in kind.__struct_fields__)]
        place = places.setdefault(id(value), len(parts))
        if place == len(parts):
            parts.append(value)
        return [place]

    def row(part: Any) -> list[Any]:  # noqa: ANN401
        kind = type(part)
        if kind is array:
            return ["array", part.typecode, b64encode(part).decode()]
        if isinstance(part, Struct):
            name, more = _name(kind, kinds), None
            items: Iterable[Any] = astuple(part)
        elif _CONTAINERS.get(kind.__name__) is not kind:
            more = (*getattr(part, "__slots__", ()), *getattr(part, "__dict__", ()))
            name, items = _name(kind, kinds), [getattr(part, field) for field in more]
        else:
            name, more = kind.__name__, part.maxlen if kind is deque else None
            items = chain.from_iterable(part.items()) if isinstance(part, dict) else part
        return [name, [item if type(item) in _PLAIN else kept(item) for item in items], more]

    kept(reader)
    try:
        return msgspec.json.encode([row(part) for part in parts]).decode()  # parts are added while they are described
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError) as error:
        raise TypeError(str(error)) from error


def take_up(reader: Reader, text: str) -> bool:
    """Give a new reader what another one of its class knew; return False if the text is none of it. O(size).

    That reader is then of no use.
    """
    try:
        _take_up(reader, text)
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
        return False
    return True


def _take_up(reader: Reader, text: str) -> None:
    kinds, rows = _classes(reader), msgspec.json.decode(text)
    blanks: dict[str, Any] = {}
    parts: list[Any] = [reader, *(_empty(row, kinds, blanks) for row in rows[1:])]
    if kinds[rows[0][0]] is not type(reader):
        raise TypeError("another reader")

    def value(kept: Any) -> Any:  # noqa: ANN401
        if type(kept) is not list:
            return kept
        name, *rest = kept
        if type(name) is int:
            return parts[name]
        if name == "tuple":
            return tuple(map(value, rest))
        if name == "frozenset":
            return frozenset(map(value, rest))
        if name == "bytes":
            return b64decode(rest[0])
        kind = kinds[name]
        if not issubclass(kind, (tuple, Frozen)):
            raise TypeError(f"a {name} may change")
        return kind(*(value(item) if type(item) is list else item for item in rest))

    for part, (name, contents, more) in zip(parts, rows, strict=True):
        if name == "array":
            continue
        items = [value(item) if type(item) is list else item for item in contents]
        if isinstance(part, dict):
            for key, item in zip(items[::2], items[1::2], strict=True):
                part[key] = item
        elif isinstance(part, set):
            part.update(items)
        elif isinstance(part, (list, deque)):
            part.extend(items)
        else:
            for field, item in zip(more or part.__struct_fields__, items, strict=True):
                setattr(part, field, item)


def _classes(reader: Reader) -> dict[str, type[Any]]:
    """Return the classes of the parts of a reader, by their names: those of its module, of the kit and of usage."""
    modules: Iterable[ModuleType] = (usage, kit, sys.modules[type(reader).__module__])
    return {
        name: kind
        for module in modules
        for name, kind in vars(module).items()
        if isinstance(kind, type) and kind.__module__.startswith(("flue_py.formats.", "flue_py.core."))
    }


def _name(kind: type[Any], kinds: dict[str, type[Any]]) -> str:
    if kinds.get(kind.__name__) is not kind:
        raise TypeError(f"a {kind.__name__} cannot be kept")
    return kind.__name__


def _empty(row: list[Any], kinds: dict[str, type[Any]], blanks: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return a part to be filled. ``blanks`` are those of the classes so far."""
    name, contents, more = row
    if name == "array":
        return array(contents, b64decode(more))
    if name == "deque":
        return deque(maxlen=more)
    if name in _CONTAINERS:
        return _CONTAINERS[name]()
    kind = kinds[name]
    if not issubclass(kind, Struct):
        return object.__new__(kind)
    if name not in blanks:
        blanks[name] = kind(**dict.fromkeys(kind.__struct_fields__))
    return copy(blanks[name])
