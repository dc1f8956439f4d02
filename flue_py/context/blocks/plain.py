"""Text from outside as it may stand in a message: nothing in it acts on a terminal, or passes for something else."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    """Return a text in which control characters, changes of writing direction and the like are U+FFFD; tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char == "\t" or not _acts(char) else "\ufffd" for char in text)


def visible_line(text: str, most: int) -> str:
    """Return a text as one line of at most so many characters, … at its end where it was longer."""
    line = visible(text[: most + 1])
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _acts(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] == "C" or category in ("Zl", "Zp")
