"""The list of sessions: names, costs and times, within the width of the terminal."""

from __future__ import annotations

from msgspec.structs import replace

from flue_py.core.sessions import SessionInfo
from flue_py.render.lines import Look, cells, text_of
from flue_py.render.views import listed_session, session_lines, session_name, short_model
from tests.tables import inputs

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
