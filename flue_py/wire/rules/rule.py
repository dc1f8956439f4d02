"""A rule of a provider's API, and a request that breaks one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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


@frozen
class SentRequest:
    """What of a request the rules are about: the messages as the provider takes them, and what the system says."""

    messages: Sequence[Mapping[str, JsonValue]]
    system: JsonValue = None


Found: TypeAlias = Iterator[tuple[str, str]]
"""Where a rule is broken, and what is wrong there."""


class Rule(NamedTuple):
    """One rule: its name, what it says, and the function that finds where a request breaks it."""

    name: str
    says: str
    find: Callable[[SentRequest, RequestLimits], Found]


def objects_in(value: JsonValue) -> Iterator[tuple[int, JsonObject]]:
    """Yield the objects of a list, each with its place; nothing for any other value."""
    for place, each in enumerate(value if isinstance(value, list) else ()):
        if isinstance(each, dict):
            yield place, each


def is_blank(text: JsonValue) -> bool:
    """Return whether a text is empty or white space only."""
    return not isinstance(text, str) or not text.strip()
