"""Text of others inside a text of ours: shortened, and in fences that it cannot close."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from html import escape

_ID_CHARS = 1_000
_SHORT = 300

OWN_WORDS = ("user-said", "registered", "model-asked")
"""The tags around words that count as those of the user, or of the program: nothing else may be between them."""

SUMMARY_TAGS = (*OWN_WORDS, "reasoning", "file", "read-files", "modified-files")
"""The tags in summaries: what is quoted there must not pass for what the user said, or for another block."""


def fenced(
    tag: str, text: str, attributes: str = "", *, also: Sequence[str] = (), foreign: Sequence[str] = SUMMARY_TAGS
) -> str:
    """Return a text between an opening and a closing tag.

    A tag of this name in the text, of those in ``also`` or in ``foreign`` no longer is one, so that the text cannot
    end its own fence, nor begin another. O(text).
    """
    return f"<{tag}{attributes}>\n{_without(text, (tag, *also, *foreign))}\n</{tag}>"


def attribute(name: str, value: str) -> str:
    """Return an attribute for `fenced`, on one line: the value can end neither its quotes nor the tag."""
    line = escape(" ".join(value.splitlines()), quote=False).replace('"', "&quot;")
    return f' {name}="{line}"'


def without_tags(text: str, also: Sequence[str] = ()) -> str:
    """Return a text in which nothing is a tag of `SUMMARY_TAGS` or of ``also``: their ``<`` is written ``&lt;``."""
    return _without(text, (*also, *SUMMARY_TAGS))


def _without(text: str, tags: Sequence[str]) -> str:
    if "<" not in text:
        return text
    names = "|".join(map(re.escape, tags))
    return re.sub(rf"<(?=\s*/?\s*(?:{names})\b)", "&lt;", text, flags=re.IGNORECASE)


def quoted(text: str, most: int) -> str:
    """Return the beginning of a text for a line of ours: `on_one_line`, and nothing in it is a tag."""
    # Names of tools, agents and files are in hundreds of lines.
    return _quoted(text, most) if len(text) <= _SHORT else without_tags(on_one_line(text, most))


@lru_cache(maxsize=1_024)
def _quoted(text: str, most: int) -> str:
    return without_tags(on_one_line(text, most))


def shown_id(entry_id: str) -> str:
    """Return the id of an entry for a line of ours: who wrote a file that was imported has chosen it."""
    return quoted(entry_id, _ID_CHARS)


def on_one_line(text: str, most: int) -> str:
    """Return the beginning of a text as one line of at most ``most`` characters, which says if it was cut."""
    if len(text) <= most and "  " not in text and text.isprintable():
        return text.strip()
    # Far more than is shown may be white space, but a megabyte of output need not be split for one line.
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else line[: most - 1].rstrip() + "…"
