"""The terms of a text: what a search looks for, made before the index, so that one rule serves every database.

A run of letters and digits is a word; one that is written as several, as `getUserName`, is those words, and their whole
as well, so that `github` is in `GitHub`. Each character of a script that is written without spaces is a term by itself.
Terms are compared without case and without marks.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

VERSION = 2
"""What terms a text has. An index that was made by another version is made anew."""

LONGEST_TERM = 64
"""What is kept of a term: nobody looks for the end of a longer one, and a digest has as many."""

_LONGEST_KNOWN = 64
"""The length of words that are remembered with what they are as terms."""

# Thai, Lao, Myanmar and Khmer; Han, kana, bopomofo and Hangul, and what is written like them beyond the first plane.
_ALONE = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u1780-\u17d3\u17d7\u17dc\u17dd"
_ALONE += "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3040-\u318f\u31a0-\u31bf\u31f0-\u31ff"
_ALONE += "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f"
_ALONE += "\U00020000-\U0003ffff"
_MARKS = "\u0300-\u036f\u0591-\u05bd\u064b-\u065f"
# Most texts are ASCII, and this is several times as fast.
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_WORD = re.compile(rf"[{_ALONE}]|(?:[^\W_{_ALONE}][{_MARKS}]*)+")


class Term(NamedTuple):
    """A term, and where the text has it."""

    text: str
    start: int
    end: int


def terms_of(text: str) -> Iterator[Term]:
    """Yield the terms of a text, in order. O(characters)."""
    for word in (_ASCII_WORD if text.isascii() else _WORD).finditer(text):
        start = word.start()
        for term, first, last in _parts(word[0]):
            yield Term(term, start + first, start + last)


def wholes_of(text: str) -> Iterator[Term]:
    """Yield the words of a text as terms, in order: one that is written as several is one. O(characters)."""
    for word in _WORD.finditer(text):
        yield Term(_folded(word[0]), *word.span())


def bag_of(text: str) -> dict[str, None]:
    """Return the terms of a text and its words as wholes, each once, by their first place. O(characters)."""
    found: dict[str, None] = {}
    for word in dict.fromkeys(words_of(text)):
        parts = _parts(word)
        for term, _, _ in parts:
            found[term] = None
        if len(parts) > 1:
            found[_folded(word)] = None
    return found


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order, as they are written. O(characters)."""
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text)


def as_terms(word: str) -> tuple[tuple[str, ...], str]:
    """Return the terms of a word, and its whole as one."""
    return tuple(term for term, _, _ in _parts(word)), _folded(word)


def _parts(word: str) -> tuple[tuple[str, int, int], ...]:
    """Return the terms of a word with their places in it (see `_begins_word`)."""
    # What is longer comes once, and would be remembered for as long as the process lives.
    return _known_parts(word) if len(word) <= _LONGEST_KNOWN else _cut(word)


@lru_cache(maxsize=100_000)
def _known_parts(word: str) -> tuple[tuple[str, int, int], ...]:
    return _cut(word)


def _cut(word: str) -> tuple[tuple[str, int, int], ...]:
    cuts = [0]
    if not (word.islower() or word.isupper()):
        cuts += [at for at in range(1, len(word)) if _begins_word(word, at)]
    return tuple((_folded(word[low:high]), low, high) for low, high in zip(cuts, [*cuts[1:], len(word)], strict=True))


def begins_term(text: str, at: int) -> bool:
    """Return whether no term of a text of ASCII goes across a place. O(1)."""
    return at in (0, len(text)) or not text[at].isalnum() or not text[at - 1].isalnum() or _begins_word(text, at)


def is_term(text: str, start: int, end: int) -> bool:
    """Return whether a part of a text of ASCII that is letters and digits is one of its terms. O(characters of it)."""
    return (
        begins_term(text, start)
        and begins_term(text, end)
        and not any(_begins_word(text, at) for at in range(start + 1, end))
    )


def _begins_word(word: str, at: int) -> bool:
    """Return whether a word begins within one: `B` in `aB`, and in `1Bc` and `ABc`; but `0A3F` is a number."""
    is_followed = at + 1 < len(word) and word[at + 1].islower()
    return word[at].isupper() and (word[at - 1].islower() or is_followed)


def _folded(word: str) -> str:
    """Return a word as it is compared: without case, width and marks."""
    if word.isascii():
        return word[:LONGEST_TERM].lower()
    return _known_plain(word) if len(word) <= _LONGEST_KNOWN else _plain(word)


@lru_cache(maxsize=100_000)
def _known_plain(word: str) -> str:
    return _plain(word)


def _plain(word: str) -> str:
    plain = unicodedata.normalize("NFKD", word).casefold()
    kept = "".join(each for each in plain if not unicodedata.combining(each) and _is_of_term(each))
    # A letter that stands for signs alone, as a mark on a space, is itself: an index takes terms apart at those.
    return unicodedata.normalize("NFC", kept or word)[:LONGEST_TERM]


def _is_of_term(char: str) -> bool:
    return char.isalnum() or not char.isascii()
