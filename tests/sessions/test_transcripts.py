"""Transcripts as files: written, continued as the session grows, and refused if the file is something else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from flue_py import EntryNotFound, InvalidArgument, Session, Store, StoreUnavailable
from flue_py.transfer.export import transcript, transcripts_of_tasks, write_transcript
from tests.sessions.talk import hold_turns, say

pytestmark = pytest.mark.anyio


def said_in(text: str) -> list[str]:
    """Return what was said, and the notes of going back, in order."""
    lines = [line for line in text.splitlines() if line and not line.startswith(("---", "<!--", "#", "**", "*What"))]
    notes = {line: line.removeprefix("## ") for line in text.splitlines() if line.startswith("## Rewound")}
    return [notes.get(line, line) for line in text.splitlines() if line in lines or line in notes]


async def test_a_transcript_is_continued_as_the_session_grows(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    await hold_turns(session, 1)
    first = await write_transcript(session, path)
    assert (first.outcome, first.entries, first.leaf_id) == ("new", 2, session.leaf_id)
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_text()
    assert before == await transcript(session)
    assert (await write_transcript(session, path, append=True)).outcome == "unchanged"
    await say(session, "U2", "U3")
    more = await write_transcript(session, path, append=True)
    assert (more.outcome, more.entries) == ("continued", 2)
    assert path.read_text().startswith(before)
    assert said_in(path.read_text()) == ["U1", "A1", "U2", "U3"]
    assert path.read_text().count("[Human] — Turn 2") == 2, "two prompts of one turn"


async def test_a_transcript_says_where_the_session_went_back(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    await hold_turns(session, 3)
    await write_transcript(session, path, append=True)
    await session.rewind(turns=1)
    assert (await write_transcript(session, path, append=True)).outcome == "unchanged"
    await say(session, "instead")
    assert (await write_transcript(session, path, append=True)).outcome == "rewound"
    assert said_in(path.read_text())[-2:] == ["Rewound to turn 1", "instead"]
    assert path.read_text().count("[Human] — Turn 2") == 2
    await session.move_leaf(None)
    await say(session, "anew")
    assert (await write_transcript(session, path, append=True)).outcome == "rewound"
    assert said_in(path.read_text())[-2:] == ["Rewound to the beginning", "anew"]


async def test_an_empty_session_has_a_transcript_that_can_be_continued(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    assert (await write_transcript(session, path)).leaf_id is None
    await say(session, "hello")
    assert (await write_transcript(session, path, append=True)).outcome == "continued"
    assert said_in(path.read_text()) == ["hello"]


async def test_what_is_no_transcript_of_the_session_is_left_alone(
    session: Session, store: Store, tmp_path: Path
) -> None:
    path, other_path = tmp_path / "t.md", tmp_path / "other.md"
    ids = await hold_turns(session, 1)
    await write_transcript(session, path)
    other = await store.create_session()
    await say(other, "other")
    await write_transcript(other, other_path)
    with pytest.raises(InvalidArgument, match="is there already"):
        await write_transcript(session, path)
    with pytest.raises(InvalidArgument, match="transcript of session"):
        await write_transcript(session, other_path, append=True)
    notes = tmp_path / "notes.md"
    notes.write_text("my notes")
    with pytest.raises(InvalidArgument, match="is not a transcript"):
        await write_transcript(session, notes, append=True)
    with pytest.raises(InvalidArgument, match="either"):
        await write_transcript(session, path, append=True, overwrite=True)
    with pytest.raises(StoreUnavailable):
        await write_transcript(session, tmp_path / "missing" / "t.md")
    with pytest.raises(StoreUnavailable):
        await write_transcript(session, tmp_path, append=True)
    with pytest.raises(EntryNotFound):
        await write_transcript(session, tmp_path / "new.md", leaf="missing")
    forged = path.read_text().replace(ids[-1], "0" * 16)
    path.write_text(forged)
    with pytest.raises(InvalidArgument, match="does not see any more"):
        await write_transcript(session, path, append=True)
    assert (notes.read_text(), path.read_text()) == ("my notes", forged)
    assert sorted(name for name in os.listdir(tmp_path) if name.endswith(".md")) == ["notes.md", "other.md", "t.md"]
    assert (await write_transcript(session, path, overwrite=True)).outcome == "new"


class Killed(BaseException):
    """The end of a process, as the file system sees it."""


async def test_a_transcript_is_continued_whole_or_not_at_all(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = tmp_path / "t.md", tmp_path / "link.md"
    await hold_turns(session, 1)
    await write_transcript(session, path)
    path.chmod(0o640)
    link.symlink_to(path.name)
    before = path.read_bytes()
    await hold_turns(session, 1)

    def end(_: int) -> NoReturn:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", end)
        with pytest.raises(Killed):
            await write_transcript(session, link, append=True)
    assert path.read_bytes() == before
    assert (await write_transcript(session, link, append=True)).outcome == "continued"
    assert path.read_bytes().startswith(before)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert (await write_transcript(session, path, append=True)).outcome == "unchanged"


async def test_task_sessions_follow_each_once(session: Session, store: Store) -> None:
    first = await session.tasks.create(task_id="t1", title="first")
    await say(first, "T1")
    nested = await first.tasks.create(task_id="t2", title="nested")
    await say(nested, "T2")
    await store.link_task(nested, session, task_id="loop")
    await store.link_task(session, "missing", task_id="gone")
    await store.link_task(session, nested, task_id="again")
    parts = [part async for part in transcripts_of_tasks(store, session)]
    assert [part.splitlines()[0] for part in parts] == ["# Task session: first", "# Task session: nested"]
    assert f"**Task of:** `{first.id}`" in parts[1]
