"""The terms of texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flue_py.search import LONGEST_TERM, bag_of, terms_of, wholes_of
from tests.tables import inputs


@inputs(
    ("text", "terms"),
    [
        ("it's", ["it", "s"]), ("gateway/run.py", ["gateway", "run", "py"]), ("POL-358", ["pol", "358"]),
        ("@nasa why? TODO:", ["nasa", "why", "todo"]), ("getUserName", ["get", "user", "name"]),
        ("HTTPServer2Go", ["http", "server2", "go"]), ("0A3F 1B a1B", ["0a3f", "1b", "a1b"]),
        ("snake_case_name", ["snake", "case", "name"]), ("日本語", ["日", "本", "語"]),
        ("foo数据bar", ["foo", "数", "据", "bar"]), ("Café CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
        ("Straße ﬁne", ["strasse", "fine"]), ("привет Мир", ["привет", "мир"]), ("x" * 100, ["x" * LONGEST_TERM]),
        ("ไทยง่าย", ["ไ", "ท", "ย", "ง", "่", "า", "ย"]), ("ﷺ ⑴ ½", ["صلىاللهعليهوسلم", "1", "1⁄2"]), ("ﱞ", ["ﱞ"]),
        ("!? :: -", []),
    ],
)  # fmt: skip
def test_terms_of_a_text(text: str, terms: list[str]) -> None:
    assert [term.text for term in terms_of(text)] == terms
    assert set(bag_of(text)) == {*terms, *(term.text for term in wholes_of(text))}


def test_words_that_are_written_as_several_are_one_as_well() -> None:
    assert [(term.text, term.start) for term in wholes_of("on GitHub: getUserName 数据")] == [
        ("on", 0), ("github", 3), ("getusername", 11), ("数", 23), ("据", 24),
    ]  # fmt: skip
    assert list(bag_of("GitHub git")) == ["git", "hub", "github"]


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


@given(st.text(st.sampled_from("aBcDEf12_.- "), max_size=30))
def test_a_sign_of_another_script_changes_no_term_beside_it(text: str) -> None:
    assert [*bag_of(f"{text} ж")] == [*dict.fromkeys([*bag_of(text), "ж"])]
    assert [term.text for term in terms_of(f"{text} ж")][:-1] == [term.text for term in terms_of(text)]
