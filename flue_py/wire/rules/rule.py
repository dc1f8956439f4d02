"""A rule of a provider's API, and a request that breaks one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain
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


class Part(NamedTuple):
    """A part of a message: the places of both, and themselves."""

    at: int
    place: int
    message: Mapping[str, JsonValue]
    part: JsonObject


@frozen
class SentRequest:
    """What of a request the rules are about: the messages as the provider takes them, and what the system says.

    ``parts`` are the parts of the messages, ``kinds`` and ``names`` their types and fields, once a rule has asked.
    """

    messages: Sequence[Mapping[str, JsonValue]]
    system: JsonValue = None
    parts: list[Part] = field(default_factory=list, compare=False, repr=False)
    kinds: set[str] = field(default_factory=set, compare=False, repr=False)
    names: set[str] = field(default_factory=set, compare=False, repr=False)

    def parts_in(self, name: str) -> list[Part]:
        """Return the objects that the messages have in a field, in order. They are collected once. O(parts)."""
        if not self.parts:
            for at, message in enumerate(self.messages):
                value = message.get(name)
                for place, part in enumerate(value if isinstance(value, list) else ()):
                    if isinstance(part, dict):
                        self.parts.append(Part(at, place, message, part))
        return self.parts

    def has_kind(self, name: str, kinds: Iterable[str]) -> bool:
        """Return whether a part of the messages has one of some types, or one of the system, or one inside of these.

        Parts are what the messages have in a field, and what these have in it. O(parts) the first time.
        """
        self._look(name)
        return not self.kinds.isdisjoint(kinds)

    def has_field(self, name: str, wanted: str) -> bool:
        """Return whether one of the parts that `has_kind` is about has a field."""
        self._look(name)
        return wanted in self.names

    def _look(self, name: str) -> None:
        if self.kinds:
            return
        for part in chain((part for _, part in objects_in(self.system)), (each.part for each in self.parts_in(name))):
            self.kinds.add(str(part.get("type")))
            self.names.update(part)
            if name in part:
                for _, inner in objects_in(part[name]):
                    self.kinds.add(str(inner.get("type")))
                    self.names.update(inner)


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
