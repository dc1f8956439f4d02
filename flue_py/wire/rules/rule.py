"""A rule of a provider's API, and a request that breaks one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
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

    ``field`` is the one in which a message has its parts, ``path`` the one in which a request has its messages. The
    parts are collected once, when a rule first asks for them.
    """

    def __init__(
        self,
        messages: Sequence[Mapping[str, JsonValue]],
        system: JsonValue,
        field: str,
        path: str = "messages",
        tools: Sequence[Mapping[str, JsonValue]] = (),
    ) -> None:
        self.messages = messages
        self.system = system
        self.path = path
        self.tools = tools
        self._field = field

    @cached_property
    def parts(self) -> Sequence[Part]:
        """The objects that the messages have as parts, in order. O(parts)."""
        return [
            (at, place, message, part)
            for at, message in enumerate(self.messages)
            if isinstance(parts := message.get(self._field), list)
            for place, part in enumerate(parts)
            if isinstance(part, dict)
        ]

    @cached_property
    def all_parts(self) -> Sequence[JsonObject]:
        """Those, what the system has as parts, and the parts of all of these. O(parts)."""
        outer = [part for _, part in objects_in(self.system)] + [part for _, _, _, part in self.parts]
        inner = [part[self._field] for part in outer if self._field in part]
        return [*outer, *[part for each in inner for _, part in objects_in(each)]]

    @cached_property
    def _kinds(self) -> frozenset[str]:
        return frozenset([str(part.get("type")) for part in self.all_parts])

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset().union(*self.all_parts)

    def has_kind(self, *kinds: str) -> bool:
        """Return whether one of `all_parts` is of one of some types. O(parts) the first time."""
        return not self._kinds.isdisjoint(kinds)

    def has_field(self, *names: str) -> bool:
        """Return whether one of `all_parts` has one of some fields. O(parts) the first time."""
        return not self._names.isdisjoint(names)


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
