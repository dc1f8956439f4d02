"""Which terms of a text are one behind the other, in so few bits that an index can keep them: three for each two terms.

They say for certain that a text does not have two terms in that order, of most that have both of them somewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias
from zlib import crc32

from flue_py.search.terms import as_terms, words_of

Pair: TypeAlias = int
"""Two terms, one behind the other, as a number of 32 bits."""
Pairs: TypeAlias = Sequence[Sequence[Pair]]
"""Pairs of which a text has one of each group."""

_MOST = 1 << 14
"""How many pairs of a text are kept at most: of one with more, nothing is said."""
MOST_GROUPS = 16
_BITS_EACH = 3
"""Of a text that does not have a pair, three in ten have its bit; of two pairs, one in twelve has both."""
_FACTOR = 0x9E3779B1
_WHOLE = 0xFFFFFFFF
_LONGEST_KNOWN = 64
"""The length of words that are remembered as numbers."""


class _Word(NamedTuple):
    """A word as numbers: its first term, its last, its whole; and the pairs within it, if it is written as several."""

    first: int
    last: int
    whole: int
    inner: tuple[Pair, ...]


def _pair(first: int, second: int) -> Pair:
    return (first * _FACTOR + second) & _WHOLE


def pairs_of(terms: Iterable[str]) -> tuple[Pair, ...]:
    """Return the pairs of terms that are one behind the other."""
    return tuple(_pair(*each) for each in pairwise(map(_number, terms)))


def one_of(alternatives: Iterable[Pairs]) -> Pairs:
    """Return the pairs of what has those of one of several alternatives; none where one of these has none."""
    found: list[tuple[Pair, ...]] | None = None
    for each in alternatives:
        groups = [tuple(group) for group in each]
        found = groups if found is None else [(*one, *other) for one in found for other in groups][:MOST_GROUPS]
    return found or ()


def bits_of(text: str) -> bytes:
    """Return the bits of the pairs of a text; none for a text without pairs or with too many. O(characters)."""
    pairs = _pairs_in(words_of(text))
    if len(pairs) > _MOST:
        return b""
    count = (_BITS_EACH * len(pairs) + 7) // 8
    size = 8 * count
    places = {pair * size >> 32 for pair in pairs}
    return sum(map((1).__lshift__, places)).to_bytes(count, "little")


def _pairs_in(words: Sequence[str]) -> set[Pair]:
    """Return the terms that are one behind the other in a text of these words, and the same of its words as wholes."""
    numbers = [_known(word) if len(word) <= _LONGEST_KNOWN else _word(word) for word in words]
    pairs = {_pair(before.last, after.first) for before, after in pairwise(numbers)}
    # Few words are written as several.
    if any(each.inner for each in numbers):
        pairs.update(pair for each in numbers for pair in each.inner)
        joined = ((before, after) for before, after in pairwise(numbers) if before.inner or after.inner)
        pairs.update(_pair(before.whole, after.whole) for before, after in joined)
    return pairs


def _number(term: str) -> int:
    return crc32(term.encode("utf-8", "surrogatepass"))


def _word(word: str) -> _Word:
    terms, whole = as_terms(word)
    return _Word(_number(terms[0]), _number(terms[-1]), _number(whole), pairs_of(terms))


@lru_cache(maxsize=100_000)
def _known(word: str) -> _Word:
    return _word(word)


def may_have(bits: bytes, wanted: Pairs) -> bool:
    """Return whether a text of these bits may have one pair of each group. PostgreSQL does the same by itself."""
    size = 8 * len(bits)
    places = ([pair * size >> 32 for pair in group] for group in wanted)
    return not size or all(any(bits[place >> 3] >> (place & 7) & 1 for place in group) for group in places)
