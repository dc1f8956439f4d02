"""Values that nobody should pass, by name; and what may become of a call that passes one."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, UserDict, UserList, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from hypothesis import strategies as st

from flue_py.core.sessions import STORED
from flue_py.errors import FlueError

LEVELS = 10_000


class Unprintable:
    """An object whose ``__repr__`` fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def nested(levels: int = LEVELS) -> list[Any]:
    """Return a list in a list in a list."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def containing_itself() -> list[Any]:
    """Return a list that contains itself, twice."""
    value: list[Any] = []
    value += [value, value]
    return value


def dict_containing_itself() -> dict[str, Any]:
    """Return a dict that contains itself."""
    value: dict[str, Any] = {}
    value["again"] = value
    return value


def arguments() -> dict[str, object]:
    """Return hostile arguments, by name, made afresh."""
    return {
        "None": None,
        "an integer": 5,
        "minus one": -1,
        "True": True,
        "an integer beyond 64 bits": 2**70,
        "an integer with too many digits to print": 10**5000,
        "NaN": math.nan,
        "infinity": math.inf,
        "a float": 1.5,
        "a decimal that signals": Decimal("sNaN"),
        "a complex number": 1j,
        "bytes": b"x",
        "empty text": "",
        "a text": "zz",
        "NUL": "a\0b",
        "a lone surrogate": "\ud800",
        "a long text": "x" * 100_000,
        "an empty list": [],
        "a list with a number": [5],
        "a list with None": [None],
        "a tuple": ("a",),
        "an empty dict": {},
        "a dict with a number as key": {5: 1},
        "a dict with a huge number as key": {10**5000: 1},
        "a mapping proxy": MappingProxyType({}),
        "a set": {1},
        "a generator": (number for number in ()),
        "a list that contains itself": containing_itself(),
        "a deep list": nested(),
        "a list with a huge number": [10**5000],
        "a naive datetime": datetime(2020, 1, 1),  # noqa: DTZ001 - that it has no zone is the point
        "a time before the year 1 of UTC": datetime.min.replace(tzinfo=timezone(timedelta(hours=23))),
        "a date": date(2020, 1, 1),
        "a class": dict,
        "a function": print,
        "an object": object(),
        "an object that cannot be shown": Unprintable(),
        "STORED": STORED,
    }


ARGUMENTS = arguments()


@dataclass(frozen=True, repr=False)
class Drawn:
    """A value that was drawn, by a name: Hypothesis shows what it draws, and some of these cannot be shown."""

    value: Any
    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"


odd_arguments = st.sampled_from(sorted(ARGUMENTS)).map(lambda name: Drawn(ARGUMENTS[name], name))

FEW = (
    "None", "an integer beyond 64 bits", "an integer with too many digits to print", "bytes", "NUL",
    "a lone surrogate", "a long text", "a deep list", "an object that cannot be shown", "STORED",
)  # fmt: skip
"""The names of those arguments that drivers took most offence at."""


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 7


class Plain(Enum):
    ONE = 1


class Text(str):
    """A subclass that has its own idea of everything."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __str__(self) -> str:
        return "another text"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def encode(self, *_: object) -> bytes:  # type: ignore[override]
        raise RuntimeError("no bytes")


class Point(NamedTuple):
    x: int
    y: int


ROUND_TRIPS: dict[str, tuple[object, object]] = {
    "minus zero": (-0.0, -0.0), "the smallest float": (5e-324, 5e-324),
    "the largest float": (1.7976931348623157e308, 1.7976931348623157e308),
    "a float with seventeen digits": (0.1 + 0.2, 0.1 + 0.2), "a float that is whole": (1e22, 1e22),
    "a float beyond 53 bits": (2.0**53 + 2, 2.0**53 + 2), "an integer beyond 53 bits": (2**53 + 1, 2**53 + 1),
    "an integer beyond 64 bits": (-(2**70), -(2**70)), "an integer of 3,900 digits": (10**3899 + 7, 10**3899 + 7),
    "True is not 1": ([True, 1, 1.0, False, 0], [True, 1, 1.0, False, 0]), "NUL": ("a\0b", "a\0b"),
    "NUL in a key": ({"a\0b": 1}, {"a\0b": 1}), "a noncharacter": ("\uffff\ufdd0\U0010ffff", "\uffff\ufdd0\U0010ffff"),
    "combining characters as they came": (["e\u0301", "\u00e9"], ["e\u0301", "\u00e9"]),
    "keys that normalise to one": ({"e\u0301": 1, "\u00e9": 2}, {"e\u0301": 1, "\u00e9": 2}),
    "marks of direction": ("\u202e\u2066\u200f", "\u202e\u2066\u200f"),
    "a byte order mark inside": ("a\ufeffb", "a\ufeffb"), "a byte order mark first": ("\ufeffa", "\ufeffa"),
    "separators of lines": ("\u2028\u2029\x85\r\n\x0b", "\u2028\u2029\x85\r\n\x0b"),
    "control characters": ("".join(map(chr, range(32))) + "\x7f", "".join(map(chr, range(32))) + "\x7f"),
    "an escape that is text": ("\\ud800 \\u0000", "\\ud800 \\u0000"), "a lone surrogate": ("a\ud800b", "a\ufffdb"),
    "a lone surrogate in a key": ({"\udc00": 1}, {"\ufffd": 1}),
    "halves of a pair side by side": ("\ud83d\ude80", "\U0001f680"),
    "halves the wrong way round": ("\ude80\ud83d", "\ufffd\ufffd"), "an empty key": ({"": {"": ""}}, {"": {"": ""}}),
    "keys in their order": ({"b": 1, "a": 2, "": 3}, {"b": 1, "a": 2, "": 3}),
    "nesting up to the limit": (nested(200), nested(200)),
    "an enum of texts": ([Colour.RED, {Colour.RED: 1}], ["red", {"red": 1}]), "an enum of numbers": (Level.HIGH, 7),
    "a subclass of str": (Text("text"), "text"), "a subclass of str as key": ({Text("key"): 1}, {"key": 1}),
    "an ordered dict": (OrderedDict(b=1, a=2), {"b": 1, "a": 2}), "a user dict": (UserDict({"a": 1}), {"a": 1}),
    "a mapping proxy": (MappingProxyType({"a": MappingProxyType({})}), {"a": {}}), "a tuple": ((1, (2,)), [1, [2]]),
    "a named tuple": (Point(1, 2), [1, 2]),
}  # fmt: skip
"""What is kept, and what it is read back as."""


def refused_values() -> dict[str, object]:
    """Return values that JSON cannot hold, or we do not, made afresh."""
    return {
        "NaN": math.nan, "infinity": math.inf, "minus infinity in a list": [-math.inf],
        "an integer of 5,000 digits": 10**5000, "a deep list": nested(), "a list one level too deep": nested(201),
        "a list that contains itself": containing_itself(), "a dict that contains itself": dict_containing_itself(),
        "a number as key": {5: 1}, "a huge number as key": {10**5000: 1}, "None as key": {None: 1},
        "bytes as key": {b"a": 1},
        "keys that are one once they are cleaned": dict(zip(("\ud800", "\udc00"), (1, 2), strict=True)),
        "keys that are one beside what they say": {Text("a"): 1, Text("a"): 2}, "bytes": b"x",
        "a bytearray": bytearray(b"x"), "a set": {1}, "a date": date(2020, 1, 1),
        "a datetime": datetime(2020, 1, 1, tzinfo=UTC), "a decimal": Decimal(1), "an enum": Plain.ONE,
        "a deque": deque([1]), "a user list": UserList([1]), "a generator": (number for number in ()),
        "an object": object(), "an object that cannot be shown": Unprintable(), "a class": dict,
        "a long key above something wrong": {"k" * 1_000_000: [object()]},
    }  # fmt: skip


REFUSED: Counter[str] = Counter()
"""How many inputs the test that runs has refused, by the class of the error that each became."""


def note_refusal(error: object) -> None:
    """Count what a refused input became, which is an error of ours and no other."""
    assert isinstance(error, FlueError), repr(error)
    assert type(error).__module__.startswith("flue_py."), repr(error)
    REFUSED[type(error).__name__] += 1


def check_refusal(error: object) -> None:
    """Check and count an error: it is one of ours, and says something, and not too much."""
    note_refusal(error)
    text = str(error)
    assert text.strip()
    assert len(text) < 2_000, text[:200]
    text.encode()


def same_value(ours: object, theirs: object) -> bool:
    """Return whether two JSON values are the same, value for value: 1 is not True, 0.0 not -0.0, order counts."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, dict) and isinstance(theirs, dict):
        pairs = zip(ours.items(), theirs.items(), strict=False)
        return len(ours) == len(theirs) and all(a == b and same_value(x, y) for (a, x), (b, y) in pairs)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same_value, ours, theirs))
    return repr(ours) == repr(theirs)
