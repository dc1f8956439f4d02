"""Lines of a terminal: cells, cuts and columns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flue_py.core.sessions import SessionInfo
from flue_py.render.lines import (
    Look,
    cells,
    clip,
    counted,
    one_line,
    padded,
    printable,
    short_count,
    shortest_ids,
    table,
    text_of,
)
from flue_py.render.views import listed_session, session_lines, session_name, short_model
from tests.tables import inputs


def test_wide_characters_take_two_cells_and_combining_ones_none() -> None:
    assert cells("abc") == 3
    assert cells("漢字") == 4
    assert cells("e\u0301") == 1


@given(st.text(max_size=60), st.integers(0, 40))
def test_a_clipped_text_fits_and_says_that_it_was_cut(text: str, width: int) -> None:
    clipped = clip(text, width)
    assert cells(clipped) <= width
    if cells(text) <= width:
        assert clipped == text
    elif width:
        assert clipped.endswith("…")
        assert text.startswith(clipped[:-1])


def test_escape_sequences_and_direction_overrides_do_not_reach_the_terminal() -> None:
    assert one_line("a\x1b[31mred\nnext\u202eline") == "a\ufffd[31mred next\ufffdline"
    assert printable("two\nlines\tand \x07") == "two\nlines\tand \ufffd"


@given(st.text(max_size=500))
def test_one_line_is_one_line_of_printable_characters(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1
    assert "\x1b" not in one_line(text)


@inputs(
    ("number", "text"),
    [
        (0, "0"), (999, "999"), (1000, "1.0k"), (1949, "1.9k"), (9949, "9.9k"), (9951, "10k"), (999_499, "999k"),
        (999_999, "1.0M"), (47_609_906, "48M"), (3_000_000_000, "3.0G"),
    ],
)  # fmt: skip
def test_counts_are_short(number: int, text: str) -> None:
    assert short_count(number) == text


def test_numbers_agree_with_their_nouns() -> None:
    assert [counted(n, "entry", "entries") for n in (0, 1, 1018)] == ["0 entries", "1 entry", "1,018 entries"]


def test_short_ids_are_as_long_as_it_takes_to_tell_them_apart() -> None:
    assert shortest_ids(["abcdef0000", "abcdef1111", "ffffffffff"]) == {
        "abcdef0000": "abcdef0",
        "abcdef1111": "abcdef1",
        "ffffffffff": "fffffff",
    }
    assert shortest_ids(["a", "ab"]) == {"a": "a", "ab": "ab"}
    parts = ["abcdef0000", "abcdef0000:1", "abcdef0000:12", "ffffffffff:1"]
    assert list(shortest_ids(parts).values()) == ["abcdef", "abcdef:1", "abcdef:12", "ffffff:1"]
    alike = ["00000000-0000-0000-a", "00000000-0000-0000-b"]
    assert shortest_ids(alike) == {each: each for each in alike}


@given(st.sets(st.text("ab", min_size=1, max_size=24), max_size=20))
def test_short_ids_are_unique_beginnings(ids: set[str]) -> None:
    short = shortest_ids(sorted(ids))
    assert len(set(short.values())) == len(ids)
    assert all(entry_id.startswith(short[entry_id]) for entry_id in ids)


def test_tables_align_their_columns() -> None:
    lines = table([[("a", ""), ("1", ""), ("x", "")], [("long", ""), ("100", ""), ("yy", "")]], right=frozenset({1}))
    assert [text_of(line) for line in lines] == ["a       1  x", "long  100  yy"]


def test_padding_counts_cells() -> None:
    assert padded("漢", 4) == "漢  "
    assert padded("7", 3, right=True) == "  7"


# -- the list of sessions ---------------------------------------------------------------------------------------------


RED = SessionInfo(
    id="0123456789abcdef",
    title="Red build\x1b",
    cwd="/home/me/the-longest-project",
    entry_count=1018,
    message_count=914,
    spent_tokens=5,
    spent_picodollars=1_500_000_000_000,
)
FORK = SessionInfo(id="fork-of-it", kind="fork", forked_from_session=RED.id, forked_from_entry="e")


def listed(*sessions: SessionInfo, width: int = 80, models: dict[str, str] | None = None) -> list[str]:
    rows = [
        listed_session(info, session_name(info, {RED.id: RED}.get(info.forked_from_session or "")), model)
        for info in sessions
        for model in [(models or {}).get(info.id, "")]
    ]
    return [text_of(line) for line in session_lines(rows, Look(width))]


def test_a_line_fits_eighty_cells_and_says_what_where_which_when_and_how_much() -> None:
    lines = listed(RED, SessionInfo(id="ffff", first_message="漢字" * 60), models={RED.id: "claude-opus-4-5-20251101"})
    assert lines[:2] == [
        "session   active      msgs     $  project     model     title",
        "01234567  1970-01-01   914  1.50  the-longe…  opus-4-5  Red build\ufffd",
    ]
    assert lines[2].endswith(("漢…", "字…"))
    assert max(map(cells, lines)) <= 80


def test_a_wide_screen_shows_more_of_a_name() -> None:
    assert "the-longest-project" in listed(RED, width=160)[1]


def test_columns_that_nobody_has_are_left_out() -> None:
    assert listed(replace(RED, cwd=None))[0] == "session   active      msgs     $  title"


def test_a_fork_without_a_name_is_known_by_what_was_forked() -> None:
    said = replace(FORK, first_message="Try again")
    lines = listed(FORK, said, replace(FORK, title="Mine"), replace(FORK, forked_from_session="gone"))
    titles = [line.partition(" 0.00  ")[2] for line in lines[1:]]
    forked = "fork of Red build\ufffd"
    assert titles == [forked, f"Try again ({forked})", "Mine", "fork of a deleted session"]


def test_a_task_says_that_it_is_one() -> None:
    assert listed(SessionInfo(id="t", kind="task", first_message="Look"))[1].endswith("task: Look")


@inputs(
    ("name", "short"),
    [
        ("claude-opus-4-5-20251101", "opus-4-5"),
        ("anthropic/claude-sonnet-4-5", "sonnet-4-5"),
        ("gpt-5.1-codex", "gpt-5.1-codex"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("claude-3-7-sonnet@20250219", "3-7-sonnet"),
        ("", ""),
    ],
)
def test_a_model_is_named_without_provider_and_date(name: str, short: str) -> None:
    assert short_model(name) == short
