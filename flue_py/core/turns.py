"""Turns: what a person said, and what follows up to the next time, as people count them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.kinds import CUSTOM_MESSAGE, MESSAGE
from flue_py.core.spoken import is_spoken, message_text
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
    return entry.kind == MESSAGE and entry.role == "user" and is_spoken(entry.fields)


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
