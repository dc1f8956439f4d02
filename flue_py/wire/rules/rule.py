"""A rule of a provider's API, and a request that breaks one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
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

    ``parts`` are the parts of the messages, once a rule has asked for them.
    """

    messages: Sequence[Mapping[str, JsonValue]]
    system: JsonValue = None
    parts: list[Part] = field(default_factory=list, compare=False, repr=False)

    def parts_in(self, name: str) -> list[Part]:
        """Return the objects that the messages have in a field, in order. They are collected once. O(parts)."""
        if not self.parts:
            self.parts.extend(
                Part(at, place, message, part)
                for at, message in enumerate(self.messages)
                for place, part in objects_in(message.get(name))
            )
        return self.parts


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
    return not isinstance(text, str) or not text.strip()
