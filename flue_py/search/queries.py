"""What a search looks for: words taken literally, a query with operators, a piece of text, or a regular expression.

A query knows which terms a text must have (`Query.need`), which an index can tell, and finds itself in a text
(`Query.find`), which alone decides: so that every database, and a scan without an index, finds the same.
"""

from __future__ import annotations

import re
import warnings
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from flue_py.core.frozen import frozen
from flue_py.errors import InvalidArgument, shown
from flue_py.lazy import lazy_module
from flue_py.search.pairs import MOST_GROUPS, Pairs, one_of, pairs_of
from flue_py.search.terms import LONGEST_TERM, Term, bag_of, begins_term, is_term, terms_of, wholes_of
from flue_py.search.values import How

if TYPE_CHECKING:
    import regex
else:
    regex = lazy_module("regex")

Span: TypeAlias = tuple[int, int]
SECONDS = 5.0
"""How long a regular expression is tried on one text, in CPU time of the process."""
MOST_WORDS = 64
"""How many words an index is asked for. What has more of them, as what was pasted, is looked for by the longest."""
MOST_CHARACTERS = 4_000
"""The length of a query with operators and of a regular expression. Plain words have none."""
_DEEPEST = 32
_MOST_MATCHES = 1_000
"""What is counted of an expression in one text, which may match nothing at every place."""
_MOST_TRIED = 8
"""Terms of a phrase that an expression looks for: many that are alike, in a text of such, would take it minutes."""
_MOST_ASKED = 16
"""Terms of one phrase that an index is asked for."""


_FEW = 32
"""Places of a term that are looked at one by one. Of more, those count that have a second term beside it."""


@frozen
class Need:
    """What an index is asked for: a term (or the beginning of one), or all or any of several needs.

    With no parts, ``all`` is true of every text.
    """

    kind: Literal["term", "prefix", "all", "any"]
    term: str = ""
    parts: tuple[Need, ...] = ()


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
        found: dict[tuple[str, str], list[int]] = {}
        for at, pair in enumerate(pairwise(self.texts)):
            found.setdefault(pair, []).append(at)
        return found


def _runs(wanted: tuple[str, ...], texts: tuple[str, ...]) -> Iterable[int]:
    """Return where terms are one behind the other, by the way of Knuth, Morris and Pratt: O(terms), however alike."""
    back = [0]
    for term in wanted[1:]:
        back.append(_longer(wanted, back, back[-1], term))
    found, reached = [], 0
    for at, term in enumerate(texts):
        reached = _longer(wanted, back, reached, term)
        if reached == len(wanted):
            found.append(at + 1 - reached)
            reached = back[reached - 1]
    return found


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

    @cached_property
    def terms(self) -> _Terms:
        """Its terms: of a word that is written as several, each of these."""
        return _Terms(terms_of(self.text))

    @cached_property
    def wholes(self) -> _Terms:
        """Its words, each of them one term."""
        return _Terms(wholes_of(self.text))


class _Node(Protocol):
    @property
    def need(self) -> Need:
        """What a text must have for it."""

    @property
    def pairs(self) -> Pairs:
        """Which terms one behind the other a text must have for it."""

    def find(self, text: Text) -> list[Span] | None:
        """Return where a text has it, which may be nowhere; None where it does not match."""


@frozen
class _Phrase:
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
        needs = [Need("term", term) for term in _longest(dict.fromkeys(whole), _MOST_ASKED)]
        ending = Need("prefix" if self.is_prefix else "term", last)
        return ending if not needs else Need("all", parts=(*needs, ending))

    @property
    def pairs(self) -> Pairs:
        end = -1 if self.is_prefix else None
        ways = [pairs_of(terms[:end]) for terms in dict.fromkeys((self.terms, self.wholes))]
        return one_of([[[pair] for pair in way[:MOST_GROUPS]] for way in ways])

    def find(self, text: Text) -> list[Span] | None:
        if len(self.terms) > _MOST_TRIED or not text.text.isascii():
            return self.find_by_terms(text)
        patterns = _in_ascii(self.terms, self.wholes, self.is_prefix)
        if patterns is None:
            return self.find_by_terms(text)
        letters, parts, wholes = patterns
        # Both need the letters of its terms one behind the other, which most texts with its words do not have.
        if letters.search(text.text.lower()) is None:
            return None
        found = [span for match in parts.finditer(text.text) if (span := self._span(match)) is not None]
        found += [match.span(1) for match in wholes.finditer(text.text)]
        return found or None

    def find_by_terms(self, text: Text) -> list[Span] | None:
        """Return what `find` does, by the terms of the text: faster for the second phrase that it is asked for."""
        return [*self._spans(self.terms, text.terms), *self._spans(self.wholes, text.wholes)] or None

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
    """Return what finds a phrase in a text of ASCII, which is not taken apart into terms then: ten times as fast.

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


def _pairs_of_all(parts: Iterable[_Node]) -> Pairs:
    return list(dict.fromkeys(tuple(group) for part in parts for group in part.pairs))[:MOST_GROUPS]


@frozen
class _All:
    parts: tuple[_Node, ...]
    without: tuple[_Node, ...] = ()

    @property
    def need(self) -> Need:
        return Need("all", parts=tuple(part.need for part in self.parts))

    @property
    def pairs(self) -> Pairs:
        return _pairs_of_all(self.parts)

    def find(self, text: Text) -> list[Span] | None:
        found: list[Span] = []
        for part in self.parts:
            spans = part.find(text)
            if spans is None:
                return None
            found += spans
        return None if any(part.find(text) is not None for part in self.without) else found


@frozen
class _Many:
    """More phrases than an index is asked for, the longest first: most texts do not have that one."""

    parts: tuple[_Phrase, ...]

    @property
    def need(self) -> Need:
        return Need("all", parts=tuple(part.need for part in self.parts[:MOST_WORDS]))

    @property
    def pairs(self) -> Pairs:
        return _pairs_of_all(self.parts)

    def find(self, text: Text) -> list[Span] | None:
        first, *others = self.parts
        found = first.find(text)
        if found is None:
            return None
        for part in others:
            spans = part.find_by_terms(text)
            if spans is None:
                return None
            found += spans
        return found


@frozen
class _Any:
    parts: tuple[_Node, ...]

    @property
    def need(self) -> Need:
        return Need("any", parts=tuple(part.need for part in self.parts))

    @property
    def pairs(self) -> Pairs:
        return one_of(part.pairs for part in self.parts)

    def find(self, text: Text) -> list[Span] | None:
        found = [spans for part in self.parts if (spans := part.find(text)) is not None]
        return [span for spans in found for span in spans] if found else None


@frozen
class _Piece:
    """A piece of text, in any case: no index helps. It is no expression, whose time would grow with its length."""

    piece: str

    @property
    def need(self) -> Need:
        return ANYTHING

    @property
    def pairs(self) -> Pairs:
        return ()

    def find(self, text: Text) -> list[Span] | None:
        piece, there = _without_case(self.piece), _without_case(text.text)
        found: list[Span] = []
        at = there.find(piece)
        while at >= 0 and len(found) < _MOST_MATCHES:
            found.append((at, at + len(piece)))
            at = there.find(piece, at + len(piece))
        return found or None


_DOTS = {0x130: "i", 0x131: "i"}
"""An i with a dot in both cases, and one with none: each is one character here, as in regular expressions."""


def _without_case(text: str) -> str:
    """Return a text without case, character by character: what is found in it is at the same place in the text."""
    if text.isascii():
        return text.lower()
    plain = text.translate(_DOTS)
    folded = plain.casefold()
    return folded if len(folded) == len(plain) else "".join(map(_char_without_case, plain))


@lru_cache(maxsize=10_000)
def _char_without_case(char: str) -> str:
    return next(each for each in (char.casefold(), char.lower(), char) if len(each) == 1)


@frozen
class _Pattern:
    """A regular expression: no index helps."""

    pattern: regex.Pattern[str]

    @property
    def need(self) -> Need:
        return ANYTHING

    @property
    def pairs(self) -> Pairs:
        return ()

    def find(self, text: Text) -> list[Span] | None:
        matches = self.pattern.finditer(text.text, timeout=text.seconds, concurrent=True)
        return [match.span() for match in islice(matches, _MOST_MATCHES)] or None


@frozen
class Query:
    """What is looked for.

    ``needs_scan`` says that it can only be found by reading every text; ``why_scan`` is the reason in words. ``words``
    are the terms that suggestions are made for.
    """

    how: How
    node: _Node
    why_scan: str | None = None
    words: tuple[str, ...] = ()

    @property
    def need(self) -> Need:
        """What a text must have to match; more texts may have it than match."""
        return self.node.need

    @property
    def pairs(self) -> Pairs:
        """Which terms a text must have one behind the other to match: one pair of each group."""
        return self.node.pairs

    def find(self, text: str, seconds: float = SECONDS) -> list[Span] | None:
        """Return where a text has what is looked for, in order and without overlaps; None where it does not match.

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
    """Return what a text asks for. Raises `InvalidArgument`, never for words that are taken literally. O(characters).

    ``words``: every word between spaces has to be in the text, its terms one behind the other; there may be any number
    of them. ``query`` knows ``AND``,
    ``OR``, ``NOT`` or ``-``, ``"a phrase"``, ``begin*`` and parentheses. ``substring`` is a piece of the text, in any
    case, and ``regex`` a regular expression as Python's `re` has them.
    """
    if not text.strip():
        raise InvalidArgument("words: there is nothing to search for; give a word")
    if how in ("query", "regex") and len(text) > MOST_CHARACTERS:
        raise InvalidArgument(f"words: {len(text):,} characters are too many; give {MOST_CHARACTERS:,} at most")
    return _READERS[how](text)


def _words(text: str) -> Query:
    phrases = (_phrase(word) for word in dict.fromkeys(text.split()))
    kept = tuple(dict.fromkeys(phrase for phrase in phrases if phrase is not None))
    if not kept:
        why = "it has neither letters nor digits, so every text is read"
        return Query("substring", _Piece(text.strip()), why)
    return Query("words", _all_of(kept), words=tuple(bag_of(text)))


def _all_of(phrases: tuple[_Phrase, ...]) -> _Node:
    if len(phrases) <= MOST_WORDS:
        return phrases[0] if len(phrases) == 1 else _All(phrases)
    return _Many(tuple(sorted(phrases, key=lambda phrase: -sum(map(len, phrase.terms)))))


def _longest(terms: Collection[str], count: int) -> Collection[str]:
    """Return the longest terms, which are in the fewest texts, as far as one can tell of a term alone."""
    return terms if len(terms) <= count else sorted(terms, key=len, reverse=True)[:count]


def _phrase(text: str, *, is_prefix: bool = False) -> _Phrase | None:
    """Return the phrase that a text is; None if it has neither letters nor digits."""
    terms = tuple(term.text for term in terms_of(text))
    wholes = tuple(term.text for term in wholes_of(text))
    return _Phrase(terms, wholes, is_prefix) if terms else None


def _substring(text: str) -> Query:
    return Query("substring", _Piece(text), "a piece of text may be within a word, so every text is read")


def _regex(text: str) -> Query:
    try:
        with warnings.catch_warnings():
            # What it may mean in a later Python is nobody's concern here.
            warnings.simplefilter("ignore")
            is_verbose = bool(re.compile(text).flags & re.VERBOSE)
            pattern = regex.compile(_as_re_reads_it(text, is_verbose=is_verbose), regex.VERSION0)
    except (re.error, regex.error, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"words: {shown(text)} is not a regular expression: {error}") from error
    return Query("regex", _Pattern(pattern), "a regular expression is tried on every text")


_IN_EXPRESSION = re.compile(
    r"\\N\{[^}]*\}|\\.|\(\?#[^)]*\)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|\{(?:\d+|\d*,\d*)\}|(?P<brace>\{)|(?P<comment>\#[^\n]*)|.",
    re.DOTALL,
)
_IN_SET = re.compile(r"\\.|(?P<open>\[)", re.DOTALL)


def _as_re_reads_it(expression: str, *, is_verbose: bool) -> str:
    """Return an expression of `re` in which `regex` finds nothing of its own: `a{e}` and `[[:alpha:]]` mean more to it.

    `re` cannot be stopped: one that goes back and forth for hours would hold up the whole process.
    """

    def written(found: re.Match[str]) -> str:
        if found["brace"]:
            return r"\{"
        if found["set"]:
            return found[0][0] + _IN_SET.sub(lambda each: r"\[" if each["open"] else each[0], found[0][1:])
        if found["comment"]:
            return found[0] if is_verbose else found[0][0] + _IN_EXPRESSION.sub(written, found[0][1:])
        return found[0]

    return _IN_EXPRESSION.sub(written, expression)


_TOKEN = re.compile(r'\s*(?:(?P<open>\()|(?P<close>\))|(?P<not>-(?=[^\s-]))?"(?P<phrase>[^"]*)"|(?P<word>[^\s()"]+))')


class _Reader:
    """Reads a query with operators, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.wrong("a quotation mark is not closed")
            self._add(found)
            at = found.end()
        self._at = 0
        self.bag: dict[str, None] = {}

    def _add(self, found: re.Match[str]) -> None:
        if found["not"]:
            self._tokens.append(("word", "NOT"))
        kind = found.lastgroup or ""
        value = found[kind]
        if kind == "word" and len(value) > 1 and value[0] == "-":
            self._tokens.append(("word", "NOT"))
            value = value[1:]
        self._tokens.append((kind, value))
        if len(self._tokens) > MOST_WORDS * 4:
            raise self.wrong("it has too many words")

    def wrong(self, why: str) -> InvalidArgument:
        return InvalidArgument(
            f"words: {shown(self._text)} cannot be read as a query: {why}; plain words are searched without operators"
        )

    def read(self) -> _Node:
        node = self._any(0)
        if self._at < len(self._tokens):
            raise self.wrong("a parenthesis is closed that was not opened")
        return node

    def _next(self) -> tuple[str, str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _any(self, depth: int) -> _Node:
        if depth > _DEEPEST:
            raise self.wrong("parentheses are too deep")
        parts = [self._all(depth)]
        while self._next() == ("word", "OR"):
            self._at += 1
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else _Any(tuple(parts))

    def _all(self, depth: int) -> _Node:
        parts: list[_Node] = []
        without: list[_Node] = []
        while (token := self._next()) is not None and token[0] != "close" and token != ("word", "OR"):
            if token == ("word", "AND"):
                if not parts and not without:
                    raise self.wrong("nothing stands before AND")
                self._at += 1
                if self._next() in (None, ("word", "OR"), ("word", "AND")):
                    raise self.wrong("nothing stands behind AND")
                continue
            is_not = token == ("word", "NOT")
            if is_not:
                self._at += 1
            (without if is_not else parts).append(self._one(depth))
        if not parts:
            raise self.wrong("only what is not wanted is named" if without else "a part of it is empty")
        return parts[0] if len(parts) == 1 and not without else _All(tuple(parts), tuple(without))

    def _one(self, depth: int) -> _Node:
        token = self._next()
        if token is None or token[0] == "close" or token in (("word", "OR"), ("word", "AND"), ("word", "NOT")):
            raise self.wrong("an operator has nothing behind it")
        self._at += 1
        kind, value = token
        if kind == "open":
            node = self._any(depth + 1)
            if self._next() != ("close", ")"):
                raise self.wrong("a parenthesis is not closed")
            self._at += 1
            return node
        phrase = _phrase(value, is_prefix=kind == "word" and value.endswith("*"))
        if phrase is None:
            raise self.wrong(f"{shown(value)} has neither letters nor digits")
        self.bag |= dict.fromkeys(phrase.terms)
        return phrase


def _query(text: str) -> Query:
    reader = _Reader(text)
    node = reader.read()
    return Query("query", node, words=tuple(reader.bag))


_READERS: Mapping[How, Callable[[str], Query]] = {
    "words": _words,
    "query": _query,
    "substring": _substring,
    "regex": _regex,
}
