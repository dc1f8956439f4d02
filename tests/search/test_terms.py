"""The terms of texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.search.terms import MOST_CHARACTERS, bag_of, terms_of


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("it's", ["it", "s"]),
        ("gateway/run.py", ["gateway", "run", "py"]),
        ("POL-358", ["pol", "358"]),
        ("@nasa why? TODO:", ["nasa", "why", "todo"]),
        ("getUserName", ["get", "user", "name"]),
        ("HTTPServer2", ["http", "server2"]),
        ("snake_case_name", ["snake", "case", "name"]),
        ("日本語", ["日", "本", "語"]),
        ("foo数据bar", ["foo", "数", "据", "bar"]),
        ("Café CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
        ("Straße ﬁne", ["strasse", "fine"]),
        ("привет Мир", ["привет", "мир"]),
        ("x" * 100, ["x" * MOST_CHARACTERS]),
        ("!? :: -", []),
    ],
)
def test_terms_of_a_text(text: str, terms: list[str]) -> None:
    found = list(terms_of(text))
    assert [term.text for term in found] == terms
    assert list(bag_of(text)) == list(dict.fromkeys(terms))


@given(st.text())
def test_every_term_is_where_it_says(text: str) -> None:
    at = 0
    for term in terms_of(text):
        assert at <= term.start < term.end <= len(text)
        at = term.end
        assert term.text
        # What an index takes apart by itself would no longer be a term of ours.
        assert not any(char.isascii() and not char.isalnum() for char in term.text)


@given(st.text(), st.text())
def test_a_text_has_the_terms_of_each_of_its_lines(first: str, second: str) -> None:
    assert set(bag_of(f"{first}\n{second}")) == set(bag_of(first)) | set(bag_of(second))
