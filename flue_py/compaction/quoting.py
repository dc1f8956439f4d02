"""Text of others inside a text of ours: shortened, and in fences that it cannot close."""

from __future__ import annotations

import re
from collections.abc import Sequence


def fenced(tag: str, text: str, attributes: str = "", *, also: Sequence[str] = ()) -> str:
    """Return a text between an opening and a closing tag.

    A tag of this name in the text, or of those in ``also``, no longer is one, so that the text cannot end its own
    fence, nor begin another. O(text).
    """
    if "<" not in text:
        return f"<{tag}{attributes}>\n{text}\n</{tag}>"
    names = "|".join(map(re.escape, (tag, *also)))
    safe = re.sub(rf"<(?=\s*/?\s*(?:{names})\b)", "&lt;", text, flags=re.IGNORECASE)
    return f"<{tag}{attributes}>\n{safe}\n</{tag}>"


def on_one_line(text: str, most: int) -> str:
    """Return the beginning of a text as one line of at most ``most`` characters, which says if it was cut."""
    # Far more than is shown may be white space, but a megabyte of output need not be split for one line.
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else line[: most - 1].rstrip() + "…"
