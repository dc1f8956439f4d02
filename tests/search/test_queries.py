"""What words and queries mean, in a text."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py import search as queries
from flue_py.errors import InvalidArgument
from flue_py.search import MOST_CHARACTERS, How, Need, Span, bag_of, bits_of, may_have, one_of, pairs_of, read_query
from tests.effort import examples
from tests.tables import inputs
from tests.values import existing


def _holds(need: Need, terms: set[str]) -> bool:
    match need.kind:
        case "term":
            return need.term in terms
        case "prefix":
            return any(term.startswith(need.term) for term in terms)
        case "all":
            return all(_holds(part, terms) for part in need.parts)
    return any(_holds(part, terms) for part in need.parts)


@inputs(
    ("words", "how", "text", "found"),
    [
        ("it's", "words", "It's late", ["It's"]), ("its", "words", "it's late", None),
        ("gateway/run.py", "words", "see gateway/run.py:12", ["gateway/run.py"]),
        ("run gateway", "words", "gateway/run.py", ["gateway", "run"]), ("gateway/py", "words", "gateway/run.py", None),
        ("pool.py", "words", "src/db/pool.py:42", ["pool.py"]), ("userName", "words", "getUserName()", ["UserName"]),
        ("username", "words", "getUserName()", None), ("github", "words", "on GitHub", ["GitHub"]),
        ("GitHub", "words", "on github and GITHUB", ["github", "GITHUB"]),
        ("openai.com", "words", "see OpenAI.com/x", ["OpenAI.com"]), ("javas*", "query", "JavaScript", ["JavaScript"]),
        ("ภาษา", "words", "ภาษาไทยง่าย", ["ภาษา"]), ("ไทย", "words", "ภาษาไทยง่าย", ["ไทย"]),
        ("ﷺ", "words", "a ﷺ b", ["ﷺ"]), ("why?", "words", "why not", ["why"]), ("語", "words", "日本語で", ["語"]),
        ("本語", "words", "日本語で", ["本語"]), ("语言", "words", "Rust语言很快", ["语言"]),
        ("rust", "words", "Rust语言很快", ["Rust"]), ("???", "words", "what??? no", ["???"]),
        ("a.b", "substring", "xA.By", ["A.B"]), (r"[[a]b", "regex", "ab", ["ab"]),
        (r"po+l\b", "regex", "pool spool", ["pool", "pool"]),
        ('"run fast" OR walk', "query", "I run fast", ["run fast"]), ('"run fast" OR walk', "query", "fast run", None),
        ("run NOT fast", "query", "run slow", ["run"]), ("run -fast", "query", "run fast", None),
        ("(run OR walk) AND home", "query", "walk home", ["walk", "home"]),
        ("gatew*", "query", "the gateway", ["gateway"]), ("src/poo*", "query", "src/pool.py", ["src/pool"]),
        ("well-known", "query", "a well-known thing", ["well-known"]),
        ('run -"too fast"', "query", "run too fast", None),
    ],
)  # fmt: skip
def test_what_is_found(words: str, how: How, text: str, found: list[str] | None) -> None:
    spans = read_query(words, how).find(text)
    assert (None if spans is None else [text[start:end] for start, end in spans]) == found


@inputs(
    "words",
    [
        "(run", "run)", '"run', "AND run", "run AND", "OR", "NOT run", "run OR", "-", '""', "()",
        "(" * 40 + "a" + ")" * 40,
    ],
)  # fmt: skip
def test_a_query_that_cannot_be_read_says_why(words: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read as a query"):
        read_query(words, "query")


@inputs(
    ("words", "how"),
    [
        ("", "words"),
        ("  \n", "words"),
        ("x" * (MOST_CHARACTERS + 1), "query"),
        ("x" * (MOST_CHARACTERS + 1), "regex"),
        ("(", "regex"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(words: str, how: How) -> None:
    with pytest.raises(InvalidArgument, match="words: "):
        read_query(words, how)


@inputs("words", ["a/" * 1900, "a/" * 1000 + "b", "a*", "a/a*"])
def test_what_is_alike_all_over_is_searched_in_time(words: str) -> None:
    for text in ("a" * 50_000, "a " * 10_000):
        read_query(words, "query").find(text)


_LONG = 200_000
_PASTES = {
    "words": " ".join(f"word{number}x" for number in range(_LONG // 11)),
    "paths": " ".join(f"src/lib/packages/sub/file{number}.py" for number in range(_LONG // 35)),
    "pairs": " ".join(f"a{first}/a{second}" for first in range(120) for second in range(120)),
    "one word in parts": "aB" * (_LONG // 2),
    "one phrase of one term": "a/" * (_LONG // 2),
    "one term": "x" * _LONG,
    "characters": "数据库" * (_LONG // 3),
    "signs": "?" * _LONG,
}


@pytest.mark.thorough(but=["paths", "one word"])
@pytest.mark.parametrize("paste", _PASTES.values(), ids=_PASTES)
def test_what_was_pasted_is_found_where_it_is_and_nowhere_else(paste: str) -> None:
    query = read_query(paste)
    assert query.find(f"before {paste} behind") is not None
    # Of a word, its beginning is compared.
    assert (query.find(paste[: _LONG // 2]) is None) == (paste[:64].strip("aBx") != "")
    assert _size(query.node.need) < 5_000


def _size(need: Need) -> int:
    return 1 + sum(map(_size, need.parts))


@inputs(
    ("piece", "text", "found"),
    [
        ("STRASSE ÇA", "die strasse ça va", "strasse ça"),
        ("istanbul", "ŉ ß İstanbul", "İstanbul"),
        ("İstanbul", "ŉ ß istanbul", "istanbul"),
        ("σας", "ŉΣΑΣ", "ΣΑΣ"),
        ("ẞ", "Maß", "ß"),
        ("k", "300 \u212a", "\u212a"),
    ],
)
def test_a_piece_is_found_in_any_case_where_it_is(piece: str, text: str, found: str) -> None:
    spans = existing(read_query(piece, "substring").find(text))
    assert [text[start:end] for start, end in spans] == [found]


def test_an_expression_that_matches_everywhere_is_found_so_often_only() -> None:
    spans = existing(read_query("x*", "regex").find("y" * 1_000_000))
    assert len(spans) == 1_000


def test_an_expression_that_goes_back_and_forth_for_ever_is_stopped() -> None:
    with pytest.raises(TimeoutError):
        read_query("(a|a)*$", "regex").find("a" * 60 + "b", 0.01)


_OF_EXPRESSIONS = ["a", "b", "e", "1", ":", "{", "}", "{e}", "{1}", "{,2}", "{e<=1}", "[", "]", "[a[]", "[[:alpha:]]"]
_OF_EXPRESSIONS += [
    "[^]a]",
    r"[\]{]",
    r"\{",
    r"\[",
    "#",
    "#{\n",
    "(",
    "(?:",
    ")",
    "|",
    "*",
    "?",
    "+",
    "^",
    "$",
    ".",
    "(?#x{)",
]
_OF_EXPRESSIONS += ["\n", r"\N{LATIN SMALL LETTER A}", r"\d", "&&", "--", "(?i:", "(?x:", "(?#x{)"]
_EXPRESSIONS = st.tuples(st.sampled_from(["", "(?x)"]), st.lists(st.sampled_from(_OF_EXPRESSIONS), max_size=8))


@examples(500)
@given(_EXPRESSIONS.map(lambda each: each[0] + "".join(each[1])), st.text("abe1:{}[]#=<&-A\n", max_size=12))
def test_an_expression_means_what_it_means_to_python(expression: str, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            known = re.compile(expression)
        except re.error:
            known = None
    if known is None or not expression.strip():
        with pytest.raises(InvalidArgument):
            read_query(expression, "regex")
        return
    found = read_query(expression, "regex").find(text)
    assert _covered(found or []) == _covered(match.span() for match in known.finditer(text))
    assert (found is None) == (known.search(text) is None)


@examples(1_000)
@given(st.text(min_size=1, max_size=40).filter(lambda text: text.strip()))
def test_any_words_are_literal_and_find_a_text_of_themselves(words: str) -> None:
    query = read_query(words)
    assert query.find(f"before {words} behind") is not None
    assert query.how == ("words" if bag_of(words) else "substring")


_ALIKE = ["a", "b", "aB", "ab", "a/a", "a/b", "a/a/b", "a/b/a/a", "/".join("aabaaab") + "/" + "a/" * 9, "数a", "é-b"]
_MANY = st.lists(st.sampled_from(_ALIKE), min_size=1, max_size=12)


@examples(200)
@given(_MANY, _MANY, st.integers(1, 3), st.integers(0, 2))
def test_more_words_than_an_index_is_asked_for_find_what_each_of_them_finds(
    words: list[str], texts: list[str], most: int, few: int
) -> None:
    text, pasted = " ".join(texts), " ".join(words)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(queries, "MOST_WORDS", most)
        patched.setattr(queries, "_FEW", few)
        patched.setattr(queries, "_MOST_ASKED", most)
        query = read_query(pasted)
        found = query.find(text)
        need = query.node.need
    each = [read_query(word).find(text) for word in words]
    assert (found is None) == (None in each)
    if found is not None:
        assert _covered(found) == _covered(span for spans in each for span in spans or ())
        assert _holds(need, set(bag_of(text)))
        assert may_have(bits_of(text), query.node.pairs)


def _covered(spans: Iterable[Span]) -> set[int]:
    return {at for start, end in spans for at in range(start, end)}


_TEXTS = st.lists(st.sampled_from(["run", "fast", "Pool", "pool.py", "userName", "GitHub", "数据", "a-b", "it's"])).map(
    " ".join
)
_QUERIES = st.recursive(
    st.sampled_from(["run", "fast", "poo*", "user*", "username", "github", "gith*", '"pool py"', "数", "a-b", "it's"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" ", " AND ", " OR ", " NOT "]), inner).map("".join), inner.map("({})".format)
    ),
    max_leaves=6,
)


@examples(300)
@given(_QUERIES, _TEXTS)
def test_whatever_matches_has_the_terms_that_an_index_is_asked_for(words: str, text: str) -> None:
    query = read_query(words, "query")
    spans = query.find(text)
    if spans is not None:
        assert _holds(query.node.need, set(bag_of(text)))
        assert may_have(bits_of(text), query.node.pairs)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


_PIECES = st.lists(st.sampled_from(["a", "A", "b1", "B", "1", "ab", "-", " ", "aB", "BA", "é"]), max_size=12).map(
    "".join
)


@examples(500)
@given(_PIECES, _PIECES, st.booleans())
def test_a_text_of_ascii_has_what_the_same_text_has_beside_another_script(
    words: str, text: str, is_prefix: bool
) -> None:
    how: How = "query" if is_prefix else "words"
    if bag_of(words):
        query = read_query(
            f"{'x OR ' if is_prefix else ''}{words.replace(' ', '').lstrip('-')}{'*' if is_prefix else ''}", how
        )
        # A sign that is not ASCII has the text taken apart into its terms instead.
        spans = query.find(text)
        assert spans == query.find(f"{text} \u00ff")
        assert spans is None or may_have(bits_of(text), query.node.pairs)


@inputs(
    ("words", "text", "may"),
    [
        ("one/two", "one two", True), ("one/two", "one or two, two or one", False), ("one/two", "two one", False),
        ("one two", "two one", True), ("userName", "getUserName", True), ("userName/x", "the username, x", True),
        ("userName/x", "x username", False), ("本語", "日本語", True),
    ],
)  # fmt: skip
def test_a_few_bits_say_that_words_are_not_one_behind_the_other(words: str, text: str, may: bool) -> None:
    assert may_have(bits_of(text), read_query(words).node.pairs) == may


def test_few_pairs_are_taken_for_those_of_a_text_that_it_does_not_have() -> None:
    words = [f"w{number}" for number in range(2_000)]
    bits = bits_of(" ".join(words))
    assert len(bits) == 750
    wrong = sum(may_have(bits, [[pair]]) for pair in pairs_of(words[::2]))
    assert wrong < 0.35 * 1_000
    assert bits_of(" ".join(f"w{number}" for number in range(20_000))) == bits_of("alone") == b""
    assert may_have(b"", [pairs_of(words)])


_ONE_OR_TWO = [[(1,), (2,)], [(3,)]]


def test_of_several_ways_a_text_has_the_pairs_of_one() -> None:
    assert one_of([]) == one_of([_ONE_OR_TWO, []]) == ()
    assert one_of(_ONE_OR_TWO) == [(1, 3), (2, 3)]
    assert read_query('"a b" OR "c d"', "query").node.pairs == one_of([[pairs_of("ab")], [pairs_of("cd")]])
    assert read_query('"a b" OR c', "query").node.pairs == ()
    assert list(read_query('"a b" "c d"', "query").node.pairs) == [pairs_of("ab"), pairs_of("cd")]
