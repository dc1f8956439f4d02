"""Registered texts, word for word, behind every compaction, whichever mode made it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.policy import CompactionSettings
from flue_py.compaction.quoting import OWN_WORDS, attribute, fenced, shown_id
from flue_py.core.jsontext import JsonValue
from flue_py.core.registered import REGISTERED, REGISTERED_KINDS, RegisteredText

HEADING = "[REGISTERED — word for word, as last registered]"
_WINDOW_PART = 8
"""All of them take no more than the window divided by this."""
_LEAST_TOKENS = 40
"""With less room than this, a text is named, not begun."""


def registered_block(
    texts: Sequence[RegisteredText],
    settings: CompactionSettings,
    window: int | None,
    tokens_of: Callable[[str], int],
) -> Block:
    """Return the texts: instructions first, then plans, to-do lists and skills, each under its kind and name.

    Each takes up to ``settings.registered_item_tokens``, all of them ``registered_tokens``, and no more than an eighth
    of the window. What is longer is cut at its end, what no longer fits is named; the notes say what is missing.
    Its details name the entries. O(text).
    """
    left = settings.registered_tokens if window is None else min(settings.registered_tokens, window // _WINDOW_PART)
    shown: list[str] = []
    notes: list[str] = []
    for text in sorted(texts, key=lambda each: REGISTERED_KINDS.index(each.kind)):
        kept = _cut(text.text, min(settings.registered_item_tokens, left), tokens_of)
        line = _shown(text, kept)
        left -= tokens_of(line)
        shown.append(line)
        if kept != text.text:
            missing = len(text.text) - len(kept)
            notes.append(
                f"the registered {text.kind} {text.name!r} (entry {text.entry_id}) is longer than its cap: "
                f"{missing} of {len(text.text)} characters are left out"
            )
    named: list[JsonValue] = [text.entry_id for text in texts]
    return Block("\n\n".join([HEADING, *shown]) if shown else "", {REGISTERED: named}, tuple(notes))


def _shown(text: RegisteredText, kept: str) -> str:
    attributes = attribute("kind", text.kind) + attribute("name", text.name)
    if kept == text.text:
        return fenced(REGISTERED, kept, attributes, foreign=OWN_WORDS)
    missing = f"[… {len(text.text) - len(kept)} more characters, stored in entry {shown_id(text.entry_id)} …]"
    return fenced(REGISTERED, f"{kept}\n{missing}" if kept else missing, attributes, foreign=OWN_WORDS)


def _cut(text: str, most: int, tokens_of: Callable[[str], int]) -> str:
    """Return the beginning of a text that takes at most so many tokens; "" where there is no room worth beginning."""
    # No counter has less than a token for 40 characters: a text of a megabyte need not be counted whole.
    begun = text[: 40 * max(most, 0)]
    tokens = tokens_of(begun) if begun else 0
    if tokens <= most and len(begun) == len(text):
        return text
    if most < _LEAST_TOKENS:
        return ""
    while begun and tokens > most:
        begun = begun[: min(len(begun) * most // tokens, len(begun) - 1)]
        tokens = tokens_of(begun)
    return begun
