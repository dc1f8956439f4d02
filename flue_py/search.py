"""The values of a search: terms, queries, the texts of entries, snippets. No I/O."""

from __future__ import annotations

import re
import unicodedata
import warnings
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args
from zlib import crc32

from flue_py.core.entries import Entry
from flue_py.core.json import Frozen, JsonValue, NamedTuple
from flue_py.core.kinds import CUSTOM_MESSAGE, MESSAGE, SUMMARIES
from flue_py.core.sessions import SessionInfo
from flue_py.errors import InvalidArgument, shown
from flue_py.lazy import expression, lazy_module

if TYPE_CHECKING:
    import regex
else:
    regex = lazy_module("regex")


# ---------------------------------------------------------------------------------------------------------------------
# The terms of a text: made before the index, so that one rule serves every database.
#
# A run of letters and digits is a word; one that is written as several, as `getUserName`, is those words, and their
# whole as well, so that `github` is in `GitHub`. Each character of a script that is written without spaces is a term by
# itself. Terms are compared without case and without marks.

VERSION = 2
"""The version of the rules for terms. An index that was made by another version is made anew."""

LONGEST_TERM = 64
"""The length at which a term is cut: nobody looks for the end of a longer one, and a digest has as many."""

_LONGEST_KNOWN = 64
"""The length of words that are remembered with their terms."""

# Thai, Lao, Myanmar and Khmer; Han, kana, bopomofo and Hangul, and what is written like them beyond the first plane.
_ALONE = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u1780-\u17d3\u17d7\u17dc\u17dd"
_ALONE += "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3040-\u318f\u31a0-\u31bf\u31f0-\u31ff"
_ALONE += "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f"
_ALONE += "\U00020000-\U0003ffff"
_MARKS = "\u0300-\u036f\u0591-\u05bd\u064b-\u065f"
# Most texts are ASCII, and this is several times as fast.
_ASCII_WORD = expression(r"[A-Za-z0-9]+")


@cache
def _word_of_any_script() -> re.Pattern[str]:
    """Return the expression of a word in any script: compiling it takes as long as a command takes to start."""
    return re.compile(rf"[{_ALONE}]|(?:[^\W_{_ALONE}][{_MARKS}]*)+")


class Term(NamedTuple):
    """A term, and where the text has it."""

    text: str
    start: int
    end: int


def terms_of(text: str) -> Iterator[Term]:
    """Yield the terms of a text, in order. O(characters)."""
    for word in (_ASCII_WORD if text.isascii() else _word_of_any_script()).finditer(text):
        start = word.start()
        for term, first, last in _parts(word[0]):
            yield Term(term, start + first, start + last)


def wholes_of(text: str) -> Iterator[Term]:
    """Yield the words of a text as terms, in order: one that is written as several is one. O(characters)."""
    for word in _word_of_any_script().finditer(text):
        yield Term(_folded(word[0]), *word.span())


def bag_of(text: str) -> dict[str, None]:
    """Return the terms of a text and its words as wholes, each once, by their first place. O(characters)."""
    bag: dict[str, None] = {}
    for word in dict.fromkeys(words_of(text)):
        parts = _parts(word)
        for term, _, _ in parts:
            bag[term] = None
        if len(parts) > 1:
            bag[_folded(word)] = None
    return bag


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order, as they are written. O(characters)."""
    return (_ASCII_WORD if text.isascii() else _word_of_any_script()).findall(text)


def _parts(word: str) -> tuple[tuple[str, int, int], ...]:
    """Return the terms of a word with their places in it (see `_begins_word`)."""
    # A longer word comes once, and would be remembered for as long as the process lives.
    return _cut(word) if len(word) <= _LONGEST_KNOWN else _cut.__wrapped__(word)


@lru_cache(maxsize=100_000)
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
    return _plain(word) if len(word) <= _LONGEST_KNOWN else _plain.__wrapped__(word)


@lru_cache(maxsize=100_000)
def _plain(word: str) -> str:
    plain = unicodedata.normalize("NFKD", word).casefold()
    letters = "".join(c for c in plain if not unicodedata.combining(c) and (c.isalnum() or not c.isascii()))
    # A letter that stands for signs alone, as a mark on a space, is itself: an index takes terms apart at those.
    return unicodedata.normalize("NFC", letters or word)[:LONGEST_TERM]


# ---------------------------------------------------------------------------------------------------------------------
# Which terms of a text are one behind the other, in so few bits that an index can keep them: three for each two terms.
#
# They say for certain that a text does not have two terms in that order, of most that have both of them somewhere.

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


def pairs_of(terms: Iterable[str]) -> tuple[Pair, ...]:
    """Return the pairs of terms that are one behind the other."""
    return tuple(_pairs(map(_number, terms)))


def _pairs(numbers: Iterable[int]) -> Iterator[Pair]:
    return ((first * _FACTOR + second) & _WHOLE for first, second in pairwise(numbers))


def one_of(alternatives: Iterable[Pairs]) -> Pairs:
    """Return the pairs of several alternatives, each of which has its own; none if one of these has none."""
    product: list[tuple[Pair, ...]] | None = None
    for alternative in alternatives:
        groups = [tuple(group) for group in alternative]
        product = groups if product is None else [(*left, *right) for left in product for right in groups][:MOST_GROUPS]
    return product or ()


def bits_of(text: str) -> bytes:
    """Return the bits of the pairs of a text; none for a text without pairs or with too many. O(characters)."""
    words = [_numbers(word) if len(word) <= _LONGEST_KNOWN else _numbers.__wrapped__(word) for word in words_of(text)]
    terms = [term for word, _ in words for term in word]
    pairs = set(_pairs(terms))
    # Few words are written as several.
    if len(terms) > len(words):
        pairs.update(_pairs(whole for _, whole in words))
    if len(pairs) > _MOST:
        return b""
    count = (_BITS_EACH * len(pairs) + 7) // 8
    size = 8 * count
    places = {pair * size >> 32 for pair in pairs}
    return sum(map((1).__lshift__, places)).to_bytes(count, "little")


def _number(term: str) -> int:
    return crc32(term.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=100_000)
def _numbers(word: str) -> tuple[tuple[int, ...], int]:
    """Return the numbers of the terms of a word, and that of its whole."""
    return tuple(_number(term) for term, _, _ in _parts(word)), _number(_folded(word))


def may_have(bits: bytes, wanted: Pairs) -> bool:
    """Return whether a text of these bits may have one pair of each group. PostgreSQL does the same by itself."""
    size = 8 * len(bits)
    places = ([pair * size >> 32 for pair in group] for group in wanted)
    return not size or all(any(bits[place >> 3] >> (place & 7) & 1 for place in group) for group in places)


# ---------------------------------------------------------------------------------------------------------------------
# The answer of a search.

Part: TypeAlias = Literal["messages", "tools", "thinking", "titles", "summaries"]
PARTS: tuple[Part, ...] = get_args(Part)
DEFAULT_PARTS: tuple[Part, ...] = ("messages", "tools", "titles", "summaries")

How: TypeAlias = Literal["words", "query", "substring", "regex"]
HOWS: tuple[How, ...] = get_args(How)

Place: TypeAlias = Literal["active", "abandoned", "compacted", "title"]
"""Where a hit lies: on the active path, on another branch, before the latest compaction of the active path, or in the
title of the session."""


class Snippet(Frozen):
    """A piece of a text: the text, and where in it the matches are, as (start, end), in order."""

    text: str
    matches: tuple[tuple[int, int], ...]


class SearchHit(Frozen):
    """A text that matches a search. ``entry_id`` is None for a title.

    ``is_cut`` says that the text is longer than its searched part. ``go`` is the command line that shows it.
    ``by_id`` says that the words are its id, or that of its session where ``entry_id`` is None.
    """

    session_id: str
    entry_id: str | None
    part: Part
    role: str | None
    tool: str | None
    at_us: int
    place: Place
    snippet: Snippet
    is_cut: bool
    go: str
    by_id: bool = False


class SessionHits(Frozen):
    """The hits in one session, best first. ``revision`` is the one up to which it was searched."""

    session: SessionInfo
    revision: int
    hits: tuple[SearchHit, ...]


class Searched(Frozen):
    """The extent of a search: the numbers of sessions and entries, the parts, and the parts that were left out.

    ``revisions`` counts the changes of these sessions up to which they were searched: their revisions added up.
    ``newest`` is the session among them that was active last, as its id and the revision up to which it was searched;
    None if no session was. ``by_index`` is False where every text was read instead, and ``why_not`` says why.
    """

    sessions: int
    entries: int
    revisions: int
    newest: tuple[str, int] | None
    parts: tuple[Part, ...]
    left_out: tuple[Part, ...]
    by_index: bool
    why_not: str | None = None


class SearchAnswer(Frozen):
    """The answer of a search: sessions in order of their best hits.

    ``how`` is the way it was done: words that have neither letters nor digits are searched as a piece of text.
    ``has_more`` says that there are more hits than were asked for. With no hit, ``widen`` names the ways not tried yet,
    and ``suggestions`` words of the store that look like those asked for. ``damaged`` says, of each entry or session
    that could not be searched since it is damaged, which it is and how to go on. ``unchecked`` says that no digest was
    compared: the store was opened without its key.
    """

    words: str
    how: How
    sessions: tuple[SessionHits, ...]
    has_more: bool
    searched: Searched
    widen: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    unchecked: bool = False

    @property
    def hits(self) -> tuple[SearchHit, ...]:
        """All hits, session by session."""
        return tuple(hit for group in self.sessions for hit in group.hits)


# ---------------------------------------------------------------------------------------------------------------------
# A query: words taken literally, a query with operators, a piece of text, or a regular expression.
#
# A query knows which terms a text must have (`Query.need`), which an index can tell, and finds itself in a text
# (`Query.find`), which alone decides: so that every database, and a scan without an index, finds the same.

Span: TypeAlias = tuple[int, int]
SECONDS = 5.0
"""How long a regular expression is tried on one text, in CPU time of the process."""
MOST_WORDS = 64
"""How many words an index is asked for. A longer text, such as a pasted one, is looked for by the longest."""
MOST_CHARACTERS = 4_000
"""The length of a query with operators and of a regular expression. Plain words have none."""
_DEEPEST = 32
_MOST_MATCHES = 1_000
"""The most matches of an expression in one text, which may match nothing at every place."""
_MOST_TRIED = 8
"""Terms of a phrase that an expression looks for: many that are alike, in a text of such, would take it minutes."""
_MOST_ASKED = 16
"""Terms of one phrase that an index is asked for."""


_FEW = 32
"""Places of a term that are looked at one by one. Of more, those count that have a second term beside it."""


class Need(Frozen):
    """A question to an index: a term (or the beginning of one), or all or any of several needs.

    With no parts, ``all`` is true of every text.
    """

    kind: Literal["term", "prefix", "all", "any"]
    term: str = ""
    parts: tuple[Need, ...] = ()

    def written(self, term: str, prefix: str, both: str, either: str) -> str:
        """Return it in the language of an index, by its forms of a term and of a beginning, and its operators."""
        if self.kind in ("term", "prefix"):
            return (term if self.kind == "term" else prefix).format(self.term)
        between = both if self.kind == "all" else either
        return f"({between.join(part.written(term, prefix, both, either) for part in self.parts)})"


ANYTHING = Need("all")


class _Terms:
    """The terms of a text, in order, and where in that order each one is."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self.starts, self.ends = array("q"), array("q")
        self.places: dict[str, list[int]] = {}
        texts: list[str] = []
        for at, (term, start, end) in enumerate(terms):
            texts.append(term)
            self.starts.append(start)
            self.ends.append(end)
            self.places.setdefault(term, []).append(at)
        self.texts = tuple(texts)

    def runs_of(self, wanted: tuple[str, ...]) -> Iterable[int]:
        """Return where terms are one behind the other. O(places of the rarest two of them), at most O(terms)."""
        if len(wanted) == 1:
            return self.places.get(wanted[0], ())
        rarest = min(wanted, key=lambda term: len(self.places.get(term, ())))
        places: Sequence[int] = self.places.get(rarest, ())
        at = wanted.index(rarest)
        if len(places) > _FEW:
            pair = min(pairwise(wanted), key=lambda pair: len(self.pairs.get(pair, ())))
            places, at = self.pairs.get(pair, ()), list(pairwise(wanted)).index(pair)
        if len(places) * len(wanted) > len(self.texts) + len(wanted):
            return _runs(wanted, self.texts)
        starts = (place - at for place in places if place >= at)
        return [start for start in starts if self.texts[start : start + len(wanted)] == wanted]

    @cached_property
    def pairs(self) -> Mapping[tuple[str, str], Sequence[int]]:
        """Where each two terms are one behind the other."""
        pairs: dict[tuple[str, str], list[int]] = {}
        for at, pair in enumerate(pairwise(self.texts)):
            pairs.setdefault(pair, []).append(at)
        return pairs


def _runs(wanted: tuple[str, ...], texts: tuple[str, ...]) -> Iterable[int]:
    """Return where terms are one behind the other, by the way of Knuth, Morris and Pratt: O(terms), however alike."""
    back = [0]
    for term in wanted[1:]:
        back.append(_longer(wanted, back, back[-1], term))
    starts, reached = [], 0
    for at, term in enumerate(texts):
        reached = _longer(wanted, back, reached, term)
        if reached == len(wanted):
            starts.append(at + 1 - reached)
            reached = back[reached - 1]
    return starts


def _longer(wanted: tuple[str, ...], back: list[int], reached: int, term: str) -> int:
    """Return how many of the wanted terms end with this one, where so many ended with the one before."""
    while reached and wanted[reached] != term:
        reached = back[reached - 1]
    return reached + (wanted[reached] == term)


class Text:
    """A text that is searched, for so long at most, and its terms, which are made when they are asked for."""

    def __init__(self, text: str, seconds: float) -> None:
        self.text = text
        self.seconds = seconds
        self.is_taken_apart = False
        """Whether phrases are looked for by its terms: faster if there are many."""

    @cached_property
    def terms(self) -> _Terms:
        """Its terms: of a word that is written as several, each of these."""
        return _Terms(terms_of(self.text))

    @cached_property
    def wholes(self) -> _Terms:
        """Its words, each of them one term."""
        return _Terms(wholes_of(self.text))


class _Node(Frozen):
    """A part of a query. By default no index helps to find it."""

    @property
    def need(self) -> Need:
        """The terms that a text must have to match; more texts may have them than match."""
        return ANYTHING

    @property
    def pairs(self) -> Pairs:
        """Which terms a text must have one behind the other to match: one pair of each group."""
        return ()

    def find(self, text: Text) -> list[Span] | None:
        """Return where a text has it, which may be nowhere; None if it does not match."""
        raise NotImplementedError


class _Phrase(_Node):
    """Terms one behind the other, or as many whole words; of the last one, maybe the beginning only."""

    terms: tuple[str, ...]
    wholes: tuple[str, ...]
    is_prefix: bool = False

    @property
    def need(self) -> Need:
        needs = [self._need(terms) for terms in dict.fromkeys((self.terms, self.wholes))]
        return needs[0] if len(needs) == 1 else Need("any", parts=tuple(needs))

    def _need(self, terms: tuple[str, ...]) -> Need:
        *whole, last = terms
        # The longest are in the fewest texts, as far as one can tell of a term alone.
        needs = [Need("term", term) for term in sorted(dict.fromkeys(whole), key=len, reverse=True)[:_MOST_ASKED]]
        ending = Need("prefix" if self.is_prefix else "term", last)
        return ending if not needs else Need("all", parts=(*needs, ending))

    @property
    def pairs(self) -> Pairs:
        end = -1 if self.is_prefix else None
        ways = [pairs_of(terms[:end]) for terms in dict.fromkeys((self.terms, self.wholes))]
        return one_of([[[pair] for pair in way[:MOST_GROUPS]] for way in ways])

    def find(self, text: Text) -> list[Span] | None:
        is_short = len(self.terms) <= _MOST_TRIED and text.text.isascii() and not text.is_taken_apart
        patterns = _in_ascii(self.terms, self.wholes, self.is_prefix) if is_short else None
        if patterns is None:
            return [*self._spans(self.terms, text.terms), *self._spans(self.wholes, text.wholes)] or None
        letters, parts, wholes = patterns
        # Both need the letters of its terms one behind the other, which most texts with its words do not have.
        if letters.search(text.text.lower()) is None:
            return None
        spans = [span for match in parts.finditer(text.text) if (span := self._span(match)) is not None]
        spans += [match.span(1) for match in wholes.finditer(text.text)]
        return spans or None

    def _span(self, match: re.Match[str]) -> Span | None:
        """Return where the terms of a match are, if they are terms of the text, and not only parts of some."""
        text, last = match.string, len(self.terms)
        if not begins_term(text, match.start(1)):
            return None
        end = match.end(last)
        while self.is_prefix and not begins_term(text, end):
            end += 1
        spans = [match.span(at) for at in range(1, last)] + [(match.start(last), end)]
        return (match.start(1), end) if all(is_term(text, *span) for span in spans) else None

    def _spans(self, wanted: tuple[str, ...], terms: _Terms) -> Iterable[Span]:
        for first in self._starts(wanted, terms):
            yield terms.starts[first], terms.ends[first + len(wanted) - 1]

    def _starts(self, wanted: tuple[str, ...], terms: _Terms) -> Iterable[int]:
        """Return where the first term of the phrase is."""
        if not self.is_prefix:
            return terms.runs_of(wanted)
        *whole, last = wanted
        if not whole:
            return [at for term, places in terms.places.items() if term.startswith(last) for at in places]
        runs = ((first, first + len(whole)) for first in terms.runs_of(tuple(whole)))
        return [first for first, at in runs if at < len(terms.texts) and terms.texts[at].startswith(last)]


@lru_cache(maxsize=256)
def _in_ascii(
    terms: tuple[str, ...], wholes: tuple[str, ...], is_prefix: bool
) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]] | None:
    """Return the patterns of a phrase in a text of ASCII, which is not taken apart into terms: ten times as fast.

    The first one finds its letters in a text of small ones, which is forty times as fast again; the second one its
    terms, which may be parts of others; the third one its whole words.
    """
    if not all(term.isascii() and len(term) < LONGEST_TERM for term in wholes):
        return None
    letters = "[^a-z0-9]*".join(terms)
    # Looking ahead finds those that overlap as well.
    parts = "(?=(" + ")[^A-Za-z0-9]*(".join(terms) + "))"
    end = "[A-Za-z0-9]*" if is_prefix else "(?![A-Za-z0-9])"
    whole = "(?<![A-Za-z0-9])(?=(" + "[^A-Za-z0-9]+".join(wholes) + end + "))"
    return re.compile(letters), re.compile(parts, re.IGNORECASE), re.compile(whole, re.IGNORECASE)


class _All(_Node):
    """All of several parts. Of more than `MOST_WORDS`, an index is asked for the first ones."""

    parts: tuple[_Node, ...]
    without: tuple[_Node, ...] = ()

    @property
    def need(self) -> Need:
        return Need("all", parts=tuple(part.need for part in self.parts[:MOST_WORDS]))

    @property
    def pairs(self) -> Pairs:
        return list(dict.fromkeys(tuple(group) for part in self.parts for group in part.pairs))[:MOST_GROUPS]

    def find(self, text: Text) -> list[Span] | None:
        all_spans: list[Span] = []
        for part in self.parts:
            spans = part.find(text)
            if spans is None:
                return None
            all_spans += spans
            text.is_taken_apart = len(self.parts) > MOST_WORDS
        return None if any(part.find(text) is not None for part in self.without) else all_spans


class _Any(_Node):
    parts: tuple[_Node, ...]

    @property
    def need(self) -> Need:
        return Need("any", parts=tuple(part.need for part in self.parts))

    @property
    def pairs(self) -> Pairs:
        return one_of(part.pairs for part in self.parts)

    def find(self, text: Text) -> list[Span] | None:
        span_lists = [spans for part in self.parts if (spans := part.find(text)) is not None]
        return [span for spans in span_lists for span in spans] if span_lists else None


class _Piece(_Node):
    """A piece of text, in any case. It is no expression, whose time would grow with its length."""

    piece: str

    def find(self, text: Text) -> list[Span] | None:
        piece, there = _without_case(self.piece), _without_case(text.text)
        spans: list[Span] = []
        at = there.find(piece)
        while at >= 0 and len(spans) < _MOST_MATCHES:
            spans.append((at, at + len(piece)))
            at = there.find(piece, at + len(piece))
        return spans or None


_DOTS = {0x130: "i", 0x131: "i"}
"""An i with a dot in both cases, and one with none: each is one character here, as in regular expressions."""


def _without_case(text: str) -> str:
    """Return a text without case, character by character: a match in it is at the same place in the text."""
    if text.isascii():
        return text.lower()
    plain = text.translate(_DOTS)
    folded = plain.casefold()
    return folded if len(folded) == len(plain) else "".join(map(_char_without_case, plain))


@lru_cache(maxsize=10_000)
def _char_without_case(char: str) -> str:
    return next(plain for plain in (char.casefold(), char.lower(), char) if len(plain) == 1)


class _Pattern(_Node):
    """A regular expression."""

    pattern: regex.Pattern[str]

    def find(self, text: Text) -> list[Span] | None:
        matches = self.pattern.finditer(text.text, timeout=text.seconds, concurrent=True)
        return [match.span() for match in islice(matches, _MOST_MATCHES)] or None


class Query(Frozen):
    """A search, read from its text.

    ``needs_scan`` says that it can only be found by reading every text; ``why_scan`` is the reason in words. ``words``
    are the terms that suggestions are made for.
    """

    how: How
    node: _Node
    why_scan: str | None = None
    words: tuple[str, ...] = ()

    def find(self, text: str, seconds: float = SECONDS) -> list[Span] | None:
        """Return the places of the matches in a text, in order and without overlaps; None if it does not match.

        Raises `TimeoutError` for a regular expression that takes longer. O(characters).
        """
        spans = self.node.find(Text(text, seconds))
        return None if spans is None else _joined(spans)


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, those that overlap as one."""
    joined: list[Span] = []
    for start, end in sorted(set(spans)):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def read_query(text: str, how: How = "words") -> Query:
    """Return the query of a text. Raises `InvalidArgument`, never for words that are taken literally. O(characters).

    ``words``: every word between spaces has to be in the text, its terms one behind the other; there may be any number
    of them. ``query`` knows ``AND``,
    ``OR``, ``NOT`` or ``-``, ``"a phrase"``, ``begin*`` and parentheses. ``substring`` is a piece of the text, in any
    case, and ``regex`` a regular expression as Python's `re` has them.
    """
    if not text.strip():
        raise InvalidArgument("words: there is nothing to search for; give a word")
    if how in ("query", "regex") and len(text) > MOST_CHARACTERS:
        raise InvalidArgument(f"words: {len(text):,} characters are too many; give {MOST_CHARACTERS:,} at most")
    match how:
        case "query":
            reader = _Reader(text)
            return Query("query", reader.read(), words=tuple(reader.bag))
        case "substring":
            return Query("substring", _Piece(text), "a piece of text may be within a word, so every text is read")
        case "regex":
            return _regex(text)
    return _words(text)


def _words(text: str) -> Query:
    phrases = [*dict.fromkeys(filter(None, map(_phrase, dict.fromkeys(text.split()))))]
    if not phrases:
        why = "it has neither letters nor digits, so every text is read"
        return Query("substring", _Piece(text.strip()), why)
    if len(phrases) > MOST_WORDS:
        # Most texts do not have the longest.
        phrases.sort(key=lambda phrase: -sum(map(len, phrase.terms)))
    return Query("words", phrases[0] if len(phrases) == 1 else _All(tuple(phrases)), words=tuple(bag_of(text)))


def _phrase(text: str, *, is_prefix: bool = False) -> _Phrase | None:
    """Return the phrase that a text is; None if it has neither letters nor digits."""
    terms = tuple(term.text for term in terms_of(text))
    wholes = tuple(term.text for term in wholes_of(text))
    return _Phrase(terms, wholes, is_prefix) if terms else None


def _regex(text: str) -> Query:
    try:
        with warnings.catch_warnings():
            # The meaning that it may have in a later Python is nobody's concern here.
            warnings.simplefilter("ignore")
            is_verbose = bool(re.compile(text).flags & re.VERBOSE)
            pattern = regex.compile(_as_re_reads_it(text, is_verbose=is_verbose), regex.VERSION0)
    except (re.error, regex.error, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"words: {shown(text)} is not a regular expression: {error}") from error
    return Query("regex", _Pattern(pattern), "a regular expression is tried on every text")


_IN_EXPRESSION = expression(
    r"\\N\{[^}]*\}|\\.|\(\?#[^)]*\)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|\{(?:\d+|\d*,\d*)\}|(?P<brace>\{)|(?P<comment>\#[^\n]*)|.",
    re.DOTALL,
)
_IN_SET = expression(r"\\.|(?P<open>\[)", re.DOTALL)


def _as_re_reads_it(expression: str, *, is_verbose: bool) -> str:
    """Return an expression of `re` in which `regex` finds nothing of its own: `a{e}` and `[[:alpha:]]` mean more to it.

    `re` cannot be stopped: one that goes back and forth for hours would hold up the whole process.
    """

    def written(token: re.Match[str]) -> str:
        if token["brace"]:
            return r"\{"
        if token["set"]:
            return token[0][0] + _IN_SET.sub(lambda bracket: r"\[" if bracket["open"] else bracket[0], token[0][1:])
        if token["comment"]:
            return token[0] if is_verbose else token[0][0] + _IN_EXPRESSION.sub(written, token[0][1:])
        return token[0]

    return _IN_EXPRESSION.sub(written, expression)


_TOKEN = expression(r'\s*(?:(?P<open>\()|(?P<close>\))|(?P<not>-(?=[^\s-]))?"(?P<phrase>[^"]*)"|(?P<word>[^\s()"]+))')


class _Reader:
    """Reads a query with operators, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        self.bag: dict[str, None] = {}
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.wrong("a quotation mark is not closed")
            self._add(match)
            at = match.end()
        self._tokens.append(("end", ""))

    def _add(self, match: re.Match[str]) -> None:
        kind = match.lastgroup or ""
        value = match[kind]
        is_word_without = kind == "word" and len(value) > 1 and value[0] == "-"
        if match["not"] or is_word_without:
            self._tokens.append(("NOT", ""))
        value = value[is_word_without:]
        self._tokens.append((value if kind == "word" and value in ("AND", "OR", "NOT") else kind, value))
        if len(self._tokens) > MOST_WORDS * 4:
            raise self.wrong("it has too many words")

    def wrong(self, why: str) -> InvalidArgument:
        return InvalidArgument(
            f"words: {shown(self._text)} cannot be read as a query: {why}; plain words are searched without operators"
        )

    def read(self) -> _Node:
        node = self._any(0)
        if self._kind != "end":
            raise self.wrong("a parenthesis is closed that was not opened")
        return node

    @property
    def _kind(self) -> str:
        """The kind of the next token."""
        return self._tokens[self._at][0]

    def _any(self, depth: int) -> _Node:
        if depth > _DEEPEST:
            raise self.wrong("parentheses are too deep")
        parts = [self._all(depth)]
        while self._kind == "OR":
            self._at += 1
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else _Any(tuple(parts))

    def _all(self, depth: int) -> _Node:
        parts: list[_Node] = []
        without: list[_Node] = []
        while self._kind not in ("end", "close", "OR"):
            if self._kind == "AND":
                if not parts and not without:
                    raise self.wrong("nothing stands before AND")
                self._at += 1
                if self._kind in ("end", "OR", "AND"):
                    raise self.wrong("nothing stands behind AND")
                continue
            is_not = self._kind == "NOT"
            self._at += is_not
            (without if is_not else parts).append(self._one(depth))
        if not parts:
            raise self.wrong("only what is not wanted is named" if without else "a part of it is empty")
        return parts[0] if len(parts) == 1 and not without else _All(tuple(parts), tuple(without))

    def _one(self, depth: int) -> _Node:
        kind, value = self._tokens[self._at]
        if kind in ("end", "close", "OR", "AND", "NOT"):
            raise self.wrong("an operator has nothing behind it")
        self._at += 1
        if kind == "open":
            node = self._any(depth + 1)
            if self._kind != "close":
                raise self.wrong("a parenthesis is not closed")
            self._at += 1
            return node
        phrase = _phrase(value, is_prefix=kind == "word" and value.endswith("*"))
        if phrase is None:
            raise self.wrong(f"{shown(value)} has neither letters nor digits")
        self.bag |= dict.fromkeys(phrase.terms)
        return phrase


# ---------------------------------------------------------------------------------------------------------------------
# A piece of a text around its matches.

CHARACTERS = 200
_BEFORE = 60


def snippet(text: str, spans: Sequence[tuple[int, int]]) -> Snippet:
    """Return about `CHARACTERS` characters around the closest matches, on one line. O(characters and matches)."""
    start, end = _window(text, spans)
    before, after = "…" if start else "", "…" if end < len(text) else ""
    shown = "".join(" " if char.isspace() else char for char in text[start:end])
    moved = [(max(first, start), min(last, end)) for first, last in spans if first < end and last > start]
    shift = len(before) - start
    return Snippet(before + shown + after, tuple((first + shift, last + shift) for first, last in moved))


def _window(text: str, spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the part of the text that shows most matches; of equals the first."""
    best, most, low = 0, 0, 0
    for at, (_, last) in enumerate(spans):
        while spans[low][0] < last - CHARACTERS + _BEFORE and low < at:
            low += 1
        if at - low + 1 > most:
            best, most = low, at - low + 1
    first = spans[best][0] if spans else 0
    start = max(0, first - _BEFORE)
    space = text.rfind(" ", start, first)
    start = 0 if start == 0 else space + 1 if 0 <= space < first else start
    return start, min(len(text), start + CHARACTERS)


# ---------------------------------------------------------------------------------------------------------------------
# The texts of an entry that are searched: messages, calls of tools and their results, reasoning,
# summaries. Pictures, base64, signatures and encrypted reasoning are none.

TEXTS_MOST_CHARACTERS = 10_000_000
"""The searched part of one text of an entry: its beginning."""
MOST_OF_TOOLS = 200_000
"""The same of a tool's call or result: programs write more than people read."""

# Written in one piece, or in lines of 60 to 76 characters as mail and certificates have it. The digit and both cases
# keep long words and paths out; nobody looks for the middle of a text that this removes.
_ENCODED = expression(r"(?:[A-Za-z0-9+/_-]{60,}[\r\n]{0,2}){2,}[A-Za-z0-9+/_-]*={0,2}|[A-Za-z0-9+/_-]{200,}={0,2}")
_DIGIT, _LOWER, _UPPER = expression(r"\d"), expression(r"[a-z]"), expression(r"[A-Z]")
_SHORTEST_RUN = 60
_BETWEEN = expression(r"[/_-]")
_MOST_BETWEEN = 12
"""Paths have one of these signs in so many characters; encoded text has one in 32 at most."""
_TEXTS_DEEPEST = 40


class SearchedText(Frozen):
    """A text of an entry, its beginning where it is long (``is_cut``), and which part of it that is."""

    part: Part
    tool: str | None
    text: str
    is_cut: bool = False


def texts_of(entry: Entry) -> tuple[SearchedText, ...]:
    """Return the texts of an entry, at most one for each part (for tools, one for each tool). O(payload).

    Never raises for a stored entry: a payload that is not shaped as a message has no text.
    """
    try:
        value = entry.data
    except Exception:  # noqa: BLE001 - a payload that cannot be decoded is for `verify`; here it has no text
        return ()
    if not isinstance(value, dict):
        return ()
    pieces: dict[tuple[Part, str | None], list[str]] = {}
    for part, tool, text in _pieces(entry.kind, value):
        if text.strip():
            pieces.setdefault((part, tool), []).append(text)
    return tuple(_searched(part, tool, "\n".join(texts)) for (part, tool), texts in pieces.items())


def title_text(title: str) -> SearchedText:
    """Return the title of a session as it is searched."""
    return _searched("titles", None, title)


def _searched(part: Part, tool: str | None, text: str) -> SearchedText:
    most = MOST_OF_TOOLS if part == "tools" else TEXTS_MOST_CHARACTERS
    plain = without_encoded(text[: most * 4])
    return SearchedText(part, tool, plain[:most], is_cut=len(plain) > most)


def without_encoded(text: str) -> str:
    """Return a text with a mark in place of its base64. O(characters)."""
    if max(map(len, text.split()), default=0) < _SHORTEST_RUN:
        return text
    return _ENCODED.sub(_mark, text)


def _mark(match: re.Match[str]) -> str:
    text = match[0]
    is_path = len(_BETWEEN.findall(text)) * _MOST_BETWEEN > len(text)
    is_encoded = not is_path and _DIGIT.search(text) and _LOWER.search(text) and _UPPER.search(text)
    return "…" if is_encoded else text


def _pieces(kind: str, value: Mapping[str, JsonValue]) -> Iterator[tuple[Part, str | None, str]]:
    if kind in SUMMARIES:
        summary = value.get("summary")
        if isinstance(summary, str):
            yield "summaries", None, summary
    elif kind in (MESSAGE, CUSTOM_MESSAGE):
        yield from _of_message(value)


def _of_message(value: Mapping[str, JsonValue]) -> Iterator[tuple[Part, str | None, str]]:
    role = value.get("role")
    is_result = role in ("toolResult", "tool", "bashExecution")
    tool = value.get("toolName") if is_result else None
    name = tool if isinstance(tool, str) else None
    kind: Part = "tools" if is_result else "messages"
    for field in ("command", "output") if role == "bashExecution" else ():
        field_text = value.get(field)
        if isinstance(field_text, str):
            yield "tools", None, field_text
    error = value.get("errorMessage")
    if isinstance(error, str):
        yield kind, name, error
    content = value.get("content")
    if isinstance(content, str):
        yield kind, name, content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict):
            yield from _of_part(part, kind, name)


def _of_part(part: Mapping[str, JsonValue], kind: Part, tool: str | None) -> Iterator[tuple[Part, str | None, str]]:
    text, thinking, name = part.get("text"), part.get("thinking"), part.get("name")
    match part.get("type"):
        case "text" if isinstance(text, str):
            yield kind, tool, text
        case "thinking" if isinstance(thinking, str) and part.get("redacted") is not True:
            yield "thinking", None, thinking
        case "toolCall" if isinstance(name, str):
            yield "tools", name, "\n".join([name, *_strings(part.get("arguments"), 0)])
        case "file" if isinstance(filename := part.get("filename"), str):
            yield kind, tool, filename


def _strings(value: JsonValue, depth: int) -> Iterator[str]:
    """Yield the texts of a call's arguments, in order: texts, names of fields, numbers."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bool) or value is None or depth > _TEXTS_DEEPEST:
        return
    elif isinstance(value, (int, float)):
        yield str(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            if depth:
                yield key
            yield from _strings(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, depth + 1)
