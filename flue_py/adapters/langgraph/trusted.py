"""What is read without being asked for: values, and nothing that calls a function.

LangGraph's serializer imports what a stored value names, and calls it, whatever it is. Whoever can write to a database
could have a program run any command so. What is read here names classes of which the serializer writes values.
"""

from __future__ import annotations

import datetime
import decimal
import ipaddress
import pathlib
import sys
import uuid
import zoneinfo
from collections import deque
from dataclasses import is_dataclass
from enum import Enum
from functools import lru_cache
from importlib import import_module

import ormsgpack

from flue_py.errors import CorruptStore, shown

_FORMS = frozenset({"null", "bytes", "bytearray", "msgpack"})
_NAMING = frozenset(range(6))
"""The kinds of values that name what they are made by: a class, or a method of one."""
_HOLDING = frozenset({6, 7})
"""The kinds of values that may hold such a value, though they name nothing: arrays and snapshots of delta channels."""
_STANDARD = (
    *(set, frozenset, deque, Enum, uuid.UUID, decimal.Decimal, pathlib.PurePath, zoneinfo.ZoneInfo),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
    *(ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network),
    *(ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network),
)
_METHODS = ("model_dump", "get_secret_value", "dict", "_asdict")
"""What the serializer takes a value by: models of pydantic, secrets, and tuples with names."""
_ADVICE = (
    "nothing of it was read. LangGraph's serializer writes no such value unless it is told to: if it is meant, pass "
    "the serializer that wrote it, such as FlueSaver(..., serde=JsonPlusSerializer(...))"
)


def require_values(form: str, data: bytes) -> None:
    """Raise `CorruptStore` for what would call something else than a class of values, or would be unpickled. O(size).

    The modules of the classes are imported.
    """
    if form not in _FORMS:
        raise CorruptStore(f"a value of a checkpoint is stored as {shown(form)}: {_ADVICE}")
    if form != "msgpack":
        return
    named: list[object] = []

    def look(code: int, content: bytes) -> None:
        if code in _NAMING or code in _HOLDING:
            try:
                told = ormsgpack.unpackb(content, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
            except ValueError:
                # The serializer may call what is around something that cannot be read.
                told = None
            if code in _NAMING:
                named.append(told)

    ormsgpack.unpackb(data, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
    for told in named:
        match told:
            case [str(module), str(name), *_] if _makes_values(module, name):
                continue
            case [str(module), str(name), *_]:
                raise CorruptStore(f"a value of a checkpoint names {module}.{name}, no class of values: {_ADVICE}")
        raise CorruptStore(f"a value of a checkpoint does not say plainly what class it is of: {_ADVICE}")


@lru_cache(maxsize=1024)
def _makes_values(module: str, name: str) -> bool:
    if (module, name) == ("re", "compile"):
        return True
    try:
        found = getattr(import_module(module), name)
    except Exception:  # noqa: BLE001 - the serializer gives back what is stored then, and calls nothing
        return True
    if not isinstance(found, type):
        return False
    if issubclass(found, _STANDARD):
        return True
    if module.partition(".")[0] in sys.stdlib_module_names:
        return False
    is_framework = module in ("langgraph.types", "langgraph.store.base")
    return is_framework or is_dataclass(found) or any(callable(getattr(found, each, None)) for each in _METHODS)
