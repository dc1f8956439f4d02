"""A rule of a provider's API, and a request that breaks one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.wire.rules.limits import RequestLimits


@frozen
class Broken:
    """Where a request breaks a rule: the path of the value (``messages[3].content[0].id``), and what is wrong there.

    ``entry_id`` is the entry behind the message, where that is known.
    """

    rule: str
    where: str
    what: str
    entry_id: str | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.rule})"


Part: TypeAlias = tuple[int, int, Mapping[str, JsonValue], JsonObject]
"""A part of a message: the places of both, and themselves."""


class SentRequest:
    """What of a request the rules are about: the messages as the provider takes them, and what the system says.

    The parts of the messages are collected once, when a rule first asks for them, by the field that has them.
    """

    def __init__(self, messages: Sequence[Mapping[str, JsonValue]], system: JsonValue = None) -> None:
        self.messages = messages
        self.system = system
        self._parts: list[Part] = []
        self._all: list[JsonObject] = []
        self._kinds: set[str] = set()
        self._names: set[str] = set()

    def parts_in(self, name: str) -> list[Part]:
        """Return the objects that the messages have in a field, in order. O(parts) the first time."""
        if not self._parts:
            self._parts = [
                (at, place, message, part)
                for at, message in enumerate(self.messages)
                if isinstance(parts := message.get(name), list)
                for place, part in enumerate(parts)
                if isinstance(part, dict)
            ]
        return self._parts

    def all_in(self, name: str) -> list[JsonObject]:
        """Return those objects, and those of the system, and those that these have in the field. As `parts_in`."""
        if not self._all:
            lists = [self.system, *[message.get(name) for message in self.messages]]
            outer = [part for each in lists if isinstance(each, list) for part in each if isinstance(part, dict)]
            inner = [part[name] for part in outer if name in part]
            self._all = [*outer, *[part for each in inner for _, part in objects_in(each)]]
        return self._all

    def has_kind(self, name: str, kinds: Iterable[str]) -> bool:
        """Return whether something in `all_in` has one of some types. O(parts) the first time."""
        if not self._kinds:
            self._kinds = {str(part.get("type")) for part in self.all_in(name)}
        return not self._kinds.isdisjoint(kinds)

    def has_field(self, name: str, *wanted: str) -> bool:
        """Return whether something in `all_in` has one of some fields. O(parts) the first time."""
        if not self._names:
            self._names = set().union(*self.all_in(name))
        return not self._names.isdisjoint(wanted)


Found: TypeAlias = Iterator[tuple[str, str]]
"""Where a rule is broken, and what is wrong there."""


class Rule(NamedTuple):
    """One rule: its name, what it says, and the function that finds where a request breaks it."""

    name: str
    says: str
    find: Callable[[SentRequest, RequestLimits], Found]


def objects_in(value: JsonValue) -> list[tuple[int, JsonObject]]:
    """Return the objects of a list, each with its place; none for any other value."""
    if not isinstance(value, list):
        return []
    return [(place, each) for place, each in enumerate(value) if isinstance(each, dict)]


def is_blank(text: JsonValue) -> bool:
    """Return whether a text is empty or white space only."""
    return not isinstance(text, str) or not text or text.isspace()
