"""The list of sessions: groups by folder, and the filter."""

from __future__ import annotations

import pytest

from flue_py.core.sessions import SessionInfo
from flue_py.tui.model import NO_FOLDER, Listed, Project, grouped, next_session

SESSIONS = [
    SessionInfo("1", title="Red build", cwd="/srv/shop"),
    SessionInfo("2", title="Notes", cwd="/srv/website", key="release"),
    SessionInfo("3", title="Login", cwd="/srv/shop", scope="team"),
    SessionInfo("4", title="Straße"),
]


def listed(words: str) -> list[str]:
    rows = grouped(SESSIONS, words, lambda info: info.title or "")
    return [f"{row.folder} {row.sessions}" if isinstance(row, Project) else row.id for row in rows]


def test_sessions_stand_below_their_folders_in_the_order_of_the_list() -> None:
    assert listed("") == ["/srv/shop 2", "1", "3", "/srv/website 1", "2", f"{NO_FOLDER} 1", "4"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("red", ["/srv/shop 1", "1"]),
        ("SHOP login", ["/srv/shop 1", "3"]),
        ("team", ["/srv/shop 1", "3"]),
        ("release", ["/srv/website 1", "2"]),
        ("strasse", [f"{NO_FOLDER} 1", "4"]),
        ("red notes", []),
        ("  ", ["/srv/shop 2", "1", "3", "/srv/website 1", "2", f"{NO_FOLDER} 1", "4"]),
    ],
)
def test_every_word_that_is_typed_has_to_be_somewhere(words: str, found: list[str]) -> None:
    assert listed(words) == found


def test_the_heads_of_projects_are_passed_over() -> None:
    rows: list[Listed] = grouped(SESSIONS, "", lambda info: "")
    assert [next_session(rows, at, 1) for at in range(7)] == [1, 1, 2, 4, 4, 6, 6]
    assert [next_session(rows, at, -1) for at in range(7)] == [1, 1, 2, 2, 4, 4, 6]
    assert next_session([], 0, 1) == 0
