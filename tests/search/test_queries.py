"""What words and queries mean, in a text."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flue_py.errors import InvalidArgument
from flue_py.search.queries import MOST_CHARACTERS, Need, read_query
from flue_py.search.terms import bag_of
from flue_py.search.values import How


def _holds(need: Need, terms: set[str]) -> bool:
    match need.kind:
        case "term":
            return need.term in terms
        case "prefix":
            return any(term.startswith(need.term) for term in terms)
        case "all":
            return all(_holds(part, terms) for part in need.parts)
    return any(_holds(part, terms) for part in need.parts)


@pytest.mark.parametrize(
    ("words", "how", "text", "found"),
    [
        ("it's", "words", "It's late", ["It's"]),
        ("its", "words", "it's late", None),
        ("gateway/run.py", "words", "see gateway/run.py:12", ["gateway/run.py"]),
        ("run gateway", "words", "gateway/run.py", ["gateway", "run"]),
        ("gateway/py", "words", "gateway/run.py", None),
        ("pool.py", "words", "src/db/pool.py:42", ["pool.py"]),
        ("userName", "words", "getUserName()", ["UserName"]),
        ("username", "words", "getUserName()", None),
        ("github", "words", "on GitHub", ["GitHub"]),
        ("GitHub", "words", "on github and GITHUB", ["github", "GITHUB"]),
        ("openai.com", "words", "see OpenAI.com/x", ["OpenAI.com"]),
        ("javas*", "query", "JavaScript", ["JavaScript"]),
        ("ภาษา", "words", "ภาษาไทยง่าย", ["ภาษา"]),
        ("ไทย", "words", "ภาษาไทยง่าย", ["ไทย"]),
        ("ﷺ", "words", "a ﷺ b", ["ﷺ"]),
        ("why?", "words", "why not", ["why"]),
        ("語", "words", "日本語で", ["語"]),
        ("本語", "words", "日本語で", ["本語"]),
        ("语言", "words", "Rust语言很快", ["语言"]),
        ("rust", "words", "Rust语言很快", ["Rust"]),
        ("???", "words", "what??? no", ["???"]),
        ("a.b", "substring", "xA.By", ["A.B"]),
        (r"[[a]b", "regex", "ab", ["ab"]),
        (r"po+l\b", "regex", "pool spool", ["pool", "pool"]),
        ('"run fast" OR walk', "query", "I run fast", ["run fast"]),
        ('"run fast" OR walk', "query", "fast run", None),
        ("run NOT fast", "query", "run slow", ["run"]),
        ("run -fast", "query", "run fast", None),
        ("(run OR walk) AND home", "query", "walk home", ["walk", "home"]),
        ("gatew*", "query", "the gateway", ["gateway"]),
        ("src/poo*", "query", "src/pool.py", ["src/pool"]),
        ("well-known", "query", "a well-known thing", ["well-known"]),
        ('run -"too fast"', "query", "run too fast", None),
    ],
)
def test_what_is_found(words: str, how: How, text: str, found: list[str] | None) -> None:
    spans = read_query(words, how).find(text)
    assert (None if spans is None else [text[start:end] for start, end in spans]) == found


@pytest.mark.parametrize(
    "words",
    [
        "(run",
        "run)",
        '"run',
        "AND run",
        "run AND",
        "OR",
        "NOT run",
        "run OR",
        "-",
        '""',
        "()",
        "(" * 40 + "a" + ")" * 40,
    ],
)
def test_a_query_that_cannot_be_read_says_why(words: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read as a query"):
        read_query(words, "query")


@pytest.mark.parametrize(
    ("words", "how"), [("", "words"), ("  \n", "words"), ("x" * (MOST_CHARACTERS + 1), "words"), ("(", "regex")]
)
def test_what_cannot_be_searched_for_is_refused(words: str, how: How) -> None:
    with pytest.raises(InvalidArgument, match="words: "):
        read_query(words, how)


@pytest.mark.parametrize("words", ["a/" * 1900, "a/" * 1000 + "b", "a*", "a/a*"])
def test_what_is_alike_all_over_is_searched_in_time(words: str) -> None:
    for text in ("a" * 500_000, "a " * 20_000):
        read_query(words, "query").find(text)


def test_an_expression_that_matches_everywhere_is_found_so_often_only() -> None:
    spans = read_query("x*", "regex").find("y" * 1_000_000)
    assert spans is not None
    assert len(spans) == 1_000


@settings(max_examples=1000)
@given(st.text(min_size=1, max_size=40).filter(lambda text: text.strip()))
def test_any_words_are_literal_and_find_a_text_of_themselves(words: str) -> None:
    query = read_query(words)
    assert query.find(f"before {words} behind") is not None
    assert query.how == ("words" if bag_of(words) else "substring")


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


@settings(max_examples=300)
@given(_QUERIES, _TEXTS)
def test_whatever_matches_has_the_terms_that_an_index_is_asked_for(words: str, text: str) -> None:
    query = read_query(words, "query")
    spans = query.find(text)
    if spans is not None:
        assert _holds(query.need, set(bag_of(text)))
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


_PIECES = st.lists(st.sampled_from(["a", "A", "b1", "B", "1", "ab", "-", " ", "aB", "BA", "é"]), max_size=12).map(
    "".join
)


@settings(max_examples=500)
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
        assert query.find(text) == query.find(f"{text} \u00ff")
