from __future__ import annotations

from datetime import UTC, datetime, timedelta

from flue_py.core.context import Turn
from flue_py.core.sessions import SessionInfo
from flue_py.render.lines import text_of
from flue_py.render.transcript import Listed, age, listed_lines, said_lines, saved_transcript, turn_lines
from tests.render.entries import made
from tests.tables import inputs

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def since(**passed: int) -> int:
    return int((NOW - timedelta(**passed)).timestamp() * 1_000_000)


@inputs(
    ("passed", "text"),
    [
        (timedelta(days=40, hours=3), "40d"), (timedelta(days=1), "1d"), (timedelta(hours=23, minutes=59), "23h"),
        (timedelta(minutes=59, seconds=59), "59m"), (timedelta(seconds=5), "0m"), (timedelta(seconds=-5), "0m"),
    ],
)  # fmt: skip
def test_ages_are_days_else_hours_else_minutes(passed: timedelta, text: str) -> None:
    assert age(passed) == text


def test_the_list_of_a_repl_has_id_model_turns_age_and_the_last_part_of_the_path() -> None:
    here = SessionInfo("0123456789ab", cwd="/home/me/project/", active_us=since(days=2))
    there = SessionInfo("fedcba987654", active_us=since(minutes=7))
    lines = listed_lines([Listed(there, "", 1), Listed(here, "m" * 40, 12, is_current=True)], NOW)
    assert [text_of(line).rstrip() for line in lines] == [
        "  fedcba98  -                               1 turn  7m ago",
        "* 01234567  mmmmmmmmmmmmmmmmmmmmmmmmmmmm  12 turns  2d ago  project",
    ]


def test_turns_are_numbered_and_compacted_ones_are_counted_in_a_note() -> None:
    turns = [Turn(n, made(f"e{n}", content=f"question\n{n}\x1b"), is_compacted=n < 3) for n in range(1, 5)]
    assert [text_of(line) for line in turn_lines(turns)] == [
        "2 earlier turns compacted; of what they said the model sees a summary",
        "   3  question 3\ufffd",
        "   4  question 4\ufffd",
    ]
    assert len(turn_lines(turns, whole=True)) == 5
    assert len(turn_lines(turns[2:])) == 2


PATH = [
    made("s", role="system", content="Be brief."),
    made("u", "s", content="Why?\nReally, why?"),
    made("a", "u", role="assistant", content=[{"type": "toolCall", "id": "c", "name": "ls", "arguments": {}}]),
    made("r", "a", role="toolResult", toolName="ls", content="a.py"),
    made("b", "r", role="assistant", content=[{"type": "text", "text": "Because.\x1b[2J"}]),
    made("k", "b", kind="compaction", summary="They talked.", firstKeptEntryId="b"),
    made("x", "k", kind="note", n=1),
]


def test_what_was_said_leaves_out_tools_and_is_inert() -> None:
    assert [text_of(line) for line in said_lines(PATH)] == [
        "> Why?",
        "> Really, why?",
        "Because.\ufffd[2J",
        "(the turns before were compacted here)",
    ]


def test_texts_of_programs_are_a_line_each_in_a_conversation() -> None:
    asked = made("e", content="<system-reminder>x\ny</system-reminder>\n/compact\nnow")
    assert [text_of(line) for line in said_lines([asked])] == ["[system reminder]", "> /compact", "> now"]


def test_the_saved_transcript_is_markdown_with_roles_and_without_tools() -> None:
    assert saved_transcript(PATH, model="gpt-5", saved=NOW) == (
        "# REPL Transcript\n\n**Model:** gpt-5  \n**Saved:** 2026-03-01 12:00:00 UTC\n\n"
        "---\n\n**System**\n\nBe brief.\n\n"
        "---\n\n**User**\n\nWhy?\nReally, why?\n\n"
        "---\n\n**Assistant**\n\nBecause.\x1b[2J\n\n"
        "---\n\n**Summary of the turns before**\n\nThey talked.\n"
    )
    assert "**Model:** -" in saved_transcript([], model="", saved=NOW)
