"""What a search looks for: words taken literally, a query with operators, a piece of text, or a regular expression.

A query knows which terms a text must have (`Query.need`), which an index can tell, and finds itself in a text
(`Query.find`), which alone decides: so that every database, and a scan without an index, finds the same.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from itertools import islice
from typing import Literal, Protocol, TypeAlias

from flue_py.core.frozen import frozen
from flue_py.errors import InvalidArgument, shown
from flue_py.search.terms import LONGEST_TERM, Term, bag_of, begins_term, is_term, terms_of, wholes_of
from flue_py.search.values import How

Span: TypeAlias = tuple[int, int]
MOST_WORDS = 64
MOST_CHARACTERS = 4_000
_DEEPEST = 32
_MOST_MATCHES = 1_000
"""What is counted of an expression in one text, which may match nothing at every place."""
_MOST_TRIED = 8
"""Terms of a phrase that an expression looks for: many that are alike, in a text of such, would take it minutes."""


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

    __slots__ = ("in_order", "places", "texts")

    def __init__(self, terms: Iterable[Term]) -> None:
        self.in_order = list(terms)
        self.texts = tuple(term.text for term in self.in_order)
        self.places: dict[str, list[int]] = {}
        for at, term in enumerate(self.in_order):
            self.places.setdefault(term.text, []).append(at)


class Text:
    """A text that is searched, and its terms, which are made when they are asked for."""

    def __init__(self, text: str) -> None:
        self.text = text

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
        needs = [Need("term", term) for term in dict.fromkeys(whole)]
        ending = Need("prefix" if self.is_prefix else "term", last)
        return ending if not needs else Need("all", parts=(*needs, ending))

    def find(self, text: Text) -> list[Span] | None:
        if text.text.isascii() and (patterns := _in_ascii(self.terms, self.wholes, self.is_prefix)) is not None:
            parts, wholes = patterns
            found = [span for match in parts.finditer(text.text) if (span := self._span(match)) is not None]
            found += [match.span(1) for match in wholes.finditer(text.text)]
        else:
            found = [*self._spans(self.terms, text.terms), *self._spans(self.wholes, text.wholes)]
        return found or None

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
        before, texts = len(wanted) - 1, terms.texts
        for at in self._ends(wanted[-1], terms):
            first = at - before
            if first >= 0 and texts[first:at] == wanted[:-1]:
                yield terms.in_order[first].start, terms.in_order[at].end

    def _ends(self, last: str, terms: _Terms) -> Iterable[int]:
        """Return where the last term of the phrase is."""
        if not self.is_prefix:
            return terms.places.get(last, ())
        return [at for term, places in terms.places.items() if term.startswith(last) for at in places]


@lru_cache(maxsize=256)
def _in_ascii(
    terms: tuple[str, ...], wholes: tuple[str, ...], is_prefix: bool
) -> tuple[re.Pattern[str], re.Pattern[str]] | None:
    """Return what finds a phrase in a text of ASCII, which is not taken apart into terms then: ten times as fast.

    The first one finds its terms, which may be parts of others; the second one its whole words.
    """
    if len(terms) > _MOST_TRIED or not all(term.isascii() and len(term) < LONGEST_TERM for term in wholes):
        return None
    # Looking ahead finds those that overlap as well.
    parts = "(?=(" + ")[^A-Za-z0-9]*(".join(terms) + "))"
    end = "[A-Za-z0-9]*" if is_prefix else "(?![A-Za-z0-9])"
    whole = "(?<![A-Za-z0-9])(?=(" + "[^A-Za-z0-9]+".join(wholes) + end + "))"
    return re.compile(parts, re.IGNORECASE), re.compile(whole, re.IGNORECASE)


@frozen
class _All:
    parts: tuple[_Node, ...]
    without: tuple[_Node, ...] = ()

    @property
    def need(self) -> Need:
        return Need("all", parts=tuple(part.need for part in self.parts))

    def find(self, text: Text) -> list[Span] | None:
        found: list[Span] = []
        for part in self.parts:
            spans = part.find(text)
            if spans is None:
                return None
            found += spans
        return None if any(part.find(text) is not None for part in self.without) else found


@frozen
class _Any:
    parts: tuple[_Node, ...]

    @property
    def need(self) -> Need:
        return Need("any", parts=tuple(part.need for part in self.parts))

    def find(self, text: Text) -> list[Span] | None:
        found = [spans for part in self.parts if (spans := part.find(text)) is not None]
        return [span for spans in found for span in spans] if found else None


@frozen
class _Pattern:
    """A regular expression, or a piece of text in any case: no index helps."""

    pattern: re.Pattern[str]

    @property
    def need(self) -> Need:
        return ANYTHING

    def find(self, text: Text) -> list[Span] | None:
        found = [match.span() for match in islice(self.pattern.finditer(text.text), _MOST_MATCHES)]
        return found or None


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

    def find(self, text: str) -> list[Span] | None:
        """Return where a text has what is looked for, in order and without overlaps; None where it does not match.

        O(characters).
        """
        spans = self.node.find(Text(text))
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

    ``words``: every word between spaces has to be in the text, its terms one behind the other. ``query`` knows ``AND``,
    ``OR``, ``NOT`` or ``-``, ``"a phrase"``, ``begin*`` and parentheses. ``substring`` is a piece of the text, in any
    case, and ``regex`` a regular expression of Python.
    """
    if not text.strip():
        raise InvalidArgument("words: there is nothing to search for; give a word")
    if len(text) > MOST_CHARACTERS:
        raise InvalidArgument(f"words: {len(text):,} characters are too many; give {MOST_CHARACTERS:,} at most")
    return _READERS[how](text)


def _words(text: str) -> Query:
    phrases = [_phrase(word) for word in text.split()]
    kept = tuple(dict.fromkeys(phrase for phrase in phrases if phrase is not None))
    if not kept:
        why = "it has neither letters nor digits, so every text is read"
        return Query("substring", _literal(text.strip()), why)
    if len(kept) > MOST_WORDS:
        raise InvalidArgument(f"words: {len(kept)} different words are too many; give {MOST_WORDS} at most")
    node: _Node = kept[0] if len(kept) == 1 else _All(kept)
    return Query("words", node, words=tuple(bag_of(text)))


def _phrase(text: str, *, is_prefix: bool = False) -> _Phrase | None:
    """Return the phrase that a text is; None if it has neither letters nor digits."""
    terms = tuple(term.text for term in terms_of(text))
    wholes = tuple(term.text for term in wholes_of(text))
    return _Phrase(terms, wholes, is_prefix) if terms else None


def _literal(text: str) -> _Pattern:
    return _Pattern(re.compile(re.escape(text), re.IGNORECASE))


def _substring(text: str) -> Query:
    return Query("substring", _literal(text), "a piece of text may be within a word, so every text is read")


def _regex(text: str) -> Query:
    try:
        with warnings.catch_warnings():
            # What it may mean in a later Python is nobody's concern here.
            warnings.simplefilter("ignore")
            pattern = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"words: {shown(text)} is not a regular expression: {error}") from error
    return Query("regex", _Pattern(pattern), "a regular expression is tried on every text")


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
