"""Turns of agents, and the prompts by which people count when they go back.

A turn is one agent's answers and results, until an answer without calls, another agent or a person; what was said
before the first of these answers is part of it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonValue
from flue_py.core.kinds import CUSTOM_MESSAGE, MESSAGE
from flue_py.core.spoken import has_words, is_spoken, message_text
from flue_py.core.traits import TRAITS, traits_in
from flue_py.errors import InvalidArgument, shown

PREVIEW_CHARACTERS = 80
_NUMBER = re.compile(r"-?[0-9]+")
_MOST_DIGITS = 18


@frozen
class Turn:
    """One turn of a path: its number from 1, its user message, and whether a compaction has taken it out of sight."""

    number: int
    entry: Entry
    is_compacted: bool = False

    @property
    def text(self) -> str:
        """What the user said; "" where that were no words."""
        return message_text(self.entry.fields)

    @property
    def preview(self) -> str:
        """The first 80 characters of what the user said, on one line; … where there are more."""
        return preview(self.text)


def begins_turn(entry: Entry) -> bool:
    """Return whether an entry is a message of the user that a turn begins with: not one that a program wrote."""
    return entry.kind == MESSAGE and entry.role == "user" and (has_words(entry.payload) or is_spoken(entry.fields))


class TurnPart(NamedTuple):
    """What a message is to a turn: an ``answer`` of an agent, perhaps with calls, a ``result``, a ``prompt``, or ""."""

    kind: str
    calls: bool = False
    agent: str | None = None


_OTHER, _PROMPT, _RESULT = TurnPart(""), TurnPart("prompt"), TurnPart("result")
_ANSWER, _CALLING = TurnPart("answer"), TurnPart("answer", True)


def part_of(entry: Entry) -> TurnPart:
    """Return what an entry is to a turn. O(1) for most: what was read of an answer once is remembered."""
    if entry.kind != MESSAGE:
        return _OTHER
    if entry.role == "toolResult":
        return _RESULT
    if entry.role != "assistant":
        return _PROMPT if begins_turn(entry) else _OTHER
    traits = TRAITS.of(entry)
    if traits.agent is None:
        return _CALLING if traits.calls else _ANSWER
    return TurnPart("answer", traits.calls, traits.agent)


def part_in(message: Mapping[str, JsonValue]) -> TurnPart:
    """Return what a message is to a turn. O(size)."""
    role = message.get("role")
    if role == "assistant":
        traits = traits_in(message)
        return TurnPart("answer", traits.calls, traits.agent)
    if role == "toolResult":
        return _RESULT
    return _PROMPT if role == "user" and is_spoken(message) else _OTHER


class Turns:
    """Counts turns, message by message. ``before`` are those that came before the first message."""

    __slots__ = ("_agent", "_is_closed", "ended", "number")

    def __init__(self, before: int = 0) -> None:
        self.number = before + 1
        """The turn of the last message."""
        self.ended = before
        """How many turns have ended: by an answer without calls, or because another one has begun."""
        self._agent: str | None = None
        self._is_closed: bool | None = None  # None before the first answer of the turn

    def add_entry(self, entry: Entry) -> int:
        """Return the turn of the next message, from 1. O(1) for most."""
        if entry.role == "toolResult":
            return self.number
        # Only within a round of tools it matters whether a person or a program wrote in the user's name.
        is_any = entry.role == "user" and self._is_closed is not False
        return self.add(_OTHER if is_any else part_of(entry))

    def goes_on(self, agent: str = "") -> bool:
        """Return whether an answer now, of an agent ("": of whoever answered last), is of a turn that has answers."""
        return self._is_closed is False and (not agent or self._agent in (None, agent.casefold()))

    def add(self, part: TurnPart) -> int:
        """Return the turn of the next message, from 1."""
        kind, calls, agent = part
        if kind == "result":
            return self.number
        name = agent.casefold() if agent else self._agent
        is_other = kind == "answer" and self._agent is not None and name != self._agent
        if self._is_closed is not None and (self._is_closed or is_other or kind == "prompt"):
            self.ended, self.number = self.number, self.number + 1
            self._is_closed, self._agent = None, None
            name = agent.casefold() if agent else None
        if kind == "answer":
            self._agent, self._is_closed = name, not calls
            if not calls:
                self.ended = self.number
        return self.number


def turn_numbers(parts: Iterable[TurnPart], before: int = 0) -> list[int]:
    """Return the turn of each of some messages, in order, from ``before`` + 1. O(messages)."""
    return [*map(Turns(before).add, parts)]


def last_turns(parts: Sequence[TurnPart], most: int) -> int:
    """Return where the last ``most`` turns that have an answer begin; 0 where there are no more. O(messages)."""
    numbers = turn_numbers(parts)
    last = next((numbers[at] for at in range(len(parts) - 1, -1, -1) if parts[at].kind == "answer"), 0)
    return bisect_left(numbers, last - most + 1)


def numbered_turns(messages: Sequence[Entry], seen: Collection[str]) -> list[Turn]:
    """Return the turns of a path from its user messages, given the ids of the entries that the model sees."""
    return [Turn(number, entry, entry.id not in seen) for number, entry in enumerate(messages, 1)]


def preview(text: str) -> str:
    """Return the first 80 characters of a text on one line, with … behind them where there are more."""
    line = " ".join(text[: PREVIEW_CHARACTERS * 20].split())
    return line if len(line) <= PREVIEW_CHARACTERS else line[:PREVIEW_CHARACTERS] + "…"


def kept_turns(wanted: str | int, total: int) -> int:
    """Return how many of ``total`` turns a rewind keeps: n keeps n, -n drops the last n, 0 drops all.

    The text "-0" drops none. A number out of range is clamped. Raises `InvalidArgument` if it is not a whole number.
    """
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        return max(0, min(wanted if wanted >= 0 else total + wanted, total))
    text = wanted.strip() if isinstance(wanted, str) else ""
    if not _NUMBER.fullmatch(text):
        raise InvalidArgument(
            f"{shown(wanted)} is not a number of turns; n keeps the first n, -n drops the last n, 0 drops all"
        )
    digits = text.removeprefix("-").lstrip("0") or "0"
    number = int(digits) if len(digits) <= _MOST_DIGITS else total
    return max(0, total - number) if text.startswith("-") else min(number, total)


def is_editable(entry: Entry) -> bool:
    """Return whether an entry is what a person wrote and may want to write anew: before it, and not at it, one forks.

    That is a message of the user, or a ``custom_message``.
    """
    return entry.kind == CUSTOM_MESSAGE or (entry.kind == MESSAGE and entry.role == "user")
