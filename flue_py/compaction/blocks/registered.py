"""Registered texts, word for word, behind every compaction, whichever mode made it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.policy import CompactionSettings
from flue_py.compaction.quoting import OWN_WORDS, attribute, fenced, quoted, shown_id
from flue_py.core.jsontext import JsonValue
from flue_py.core.registered import REGISTERED, REGISTERED_KINDS, RegisteredText

HEADING = "[REGISTERED — word for word, as last registered]"
_WINDOW_PART = 8
"""All of them take no more than the window divided by this."""
_LEAST_TOKENS = 40
"""With less room than this, a text is named, not begun."""
_JOIN_TOKENS = 3
"""What two texts may take more together than each by itself."""
_REST_TOKENS = 60
"""What is set aside for the line that counts the texts for which there is no room."""
_MOST_NAMED = 20
_NAMES_CHARS = 100


def registered_block(
    texts: Sequence[RegisteredText],
    settings: CompactionSettings,
    window: int | None,
    tokens_of: Callable[[str], int],
) -> Block:
    """Return the texts: instructions first, then plans, to-do lists and skills, each under its kind and name.

    Each takes up to ``settings.registered_item_tokens``, all of them ``registered_tokens``, and no more than an eighth
    of the window, the tags around them included. What is longer is cut at its end, what no longer fits is named, and
    what even that has no room for is counted; the notes say what is missing.
    Its details name the entries. O(text).
    """
    ordered = sorted(texts, key=lambda each: REGISTERED_KINDS.index(each.kind))
    most = settings.registered_tokens if window is None else min(settings.registered_tokens, window // _WINDOW_PART)
    left, cap = most - tokens_of(HEADING), settings.registered_item_tokens
    kept = _kept(ordered, left, cap, tokens_of)
    if len(kept) < len(ordered):
        kept = _kept(ordered, left - _REST_TOKENS, cap, tokens_of)
    notes = [_note(text, kept[text.entry_id]) for text in ordered if kept.get(text.entry_id, text.text) != text.text]
    shown = [_shown(text, kept[text.entry_id]) for text in ordered if text.entry_id in kept]
    rest = [text for text in ordered if text.entry_id not in kept]
    if rest:
        shown.append(_rest(rest))
        notes.append(f"{len(rest)} registered texts are left out, since all of them take at most {most} tokens")
    named: list[JsonValue] = [text.entry_id for text in texts]
    return Block("\n\n".join([HEADING, *shown]) if shown else "", {REGISTERED: named}, tuple(notes))


def _kept(texts: Sequence[RegisteredText], left: int, cap: int, tokens_of: Callable[[str], int]) -> dict[str, str]:
    """Return what is kept of each text for which there is room, by the id of its entry."""
    kept: dict[str, str] = {}
    for text in texts:
        begun = _cut(text.text, min(cap, left - tokens_of(_shown(text, "")) - _JOIN_TOKENS), tokens_of)
        tokens = tokens_of(_shown(text, begun)) + _JOIN_TOKENS
        if tokens <= left:
            left -= tokens
            kept[text.entry_id] = begun
    return kept


def _note(text: RegisteredText, kept: str) -> str:
    missing = len(text.text) - len(kept)
    return (
        f"the registered {text.kind} {text.name!r} (entry {text.entry_id}) is longer than its cap: "
        f"{missing} of {len(text.text)} characters are left out"
    )


def _rest(texts: Sequence[RegisteredText]) -> str:
    """Return one line for those for which there is no room."""
    names = quoted(", ".join(f"{text.kind} {text.name}" for text in texts[:_MOST_NAMED]), _NAMES_CHARS)
    more = "1 more registered text does" if len(texts) == 1 else f"{len(texts)} more registered texts do"
    return f"[… {more} not fit, and {'is' if len(texts) == 1 else 'are'} stored: {names} …]"


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
