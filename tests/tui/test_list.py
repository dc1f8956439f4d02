"""The list of sessions: its columns, and the filter."""

from __future__ import annotations

from flue_py.core.sessions import SessionInfo
from flue_py.render.lines import UNICODE, cells, text_of
from flue_py.render.views import ListedSession, listed_session
from flue_py.tui.model import columns_of, fitting, list_heading, list_line
from tests.tables import inputs

IMPORTED = '{"imported": {"format": "codex"}}'
SESSIONS = [
    listed_session(info, info.title or "", model)
    for info, model in (
        (SessionInfo("1", title="Red build", cwd="/srv/shop", metadata_text=IMPORTED), "openai/gpt-5.1-codex"),
        (SessionInfo("2", title="Notes", cwd="/srv/website", key="release", first_message="Write it down"), ""),
        (SessionInfo("3", title="Login", cwd="/srv/shop", scope="team", kind="fork", message_count=1_018), ""),
        (SessionInfo("4", title="Straße 今日はログを見ます " * 9), ""),
    )
]


def plain(text: str) -> str:
    return text


@inputs(
    ("words", "found"),
    [
        ("", "1234"), ("  ", "1234"), ("red", "1"), ("SHOP login", "3"), ("team", "3"), ("release", "2"), ("down", "2"),
        ("CODEX", "1"), ("openai/", "1"), ("strasse", "4"), ("red notes", ""),
    ],
)  # fmt: skip
def test_every_word_that_is_typed_has_to_be_somewhere(words: str, found: str) -> None:
    assert "".join(row.info.id for row in fitting(SESSIONS, words, plain)) == found


def test_a_word_that_is_hidden_is_not_found() -> None:
    assert fitting(SESSIONS, "red", lambda text: text.replace("Red", "[hidden]")) == []


def lines(sessions: list[ListedSession], width: int) -> list[str]:
    columns = columns_of(sessions)
    drawn = [text_of(list_line(row, plain, columns, width, UNICODE)) for row in sessions]
    return [list_heading(columns, width, UNICODE), *drawn]


def test_a_line_says_when_what_of_which_program_where_and_how_much() -> None:
    assert [line.split() for line in lines(SESSIONS, 120)[:4]] == [
        ["active", "title", "program", "project", "model", "msgs", "cost"],
        ["70-01-01", "00:00", "Red", "build", "codex", "shop", "gpt-5.1-codex", "0", "$0.00"],
        ["70-01-01", "00:00", "Notes", "website", "0", "$0.00"],
        ["70-01-01", "00:00", "↳", "fork", "Login", "shop", "1.0k", "-"],
    ]
    for few in (lines(SESSIONS[3:], 78), lines(SESSIONS, 40)):
        assert few[0].split() == ["active", "title", "msgs", "cost"]
        assert {cells(line) for line in few} == {cells(few[0])}


@inputs("width", [78, 79, 120, 200])
def test_the_names_of_columns_stand_above_them(width: int) -> None:
    heading, *rows = lines(SESSIONS, width)
    assert {cells(line) for line in (heading, *rows)} == {width}
    assert heading.index("title") == rows[0].index("Red build")
    assert heading.index("program") == rows[0].index("codex")
