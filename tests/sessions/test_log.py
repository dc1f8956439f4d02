"""A session's log, and what a handle knows after going back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from flue_py import InvalidArgument, LeafConflict, Session, Store
from tests.sessions.talk import path_of, say

pytestmark = pytest.mark.anyio


async def test_every_operation_takes_who_and_why(session: Session) -> None:
    a, b = await say(session, "a", "b")
    said = {"by": "ann", "why": "because"}
    await session.move_leaf(a, **said)
    await session.move_leaf(b)
    await session.rewind(turns=1, **said)
    await session.undo(**said)
    await session.redo(**said)
    await session.undo()
    await session.remove_leaf_message(b, **said)
    await session.set_title("t", **said)
    await session.set_metadata({"n": 1}, merge=True, by="ann", why="because")
    await session.set_metadata({"n": 2}, by="ann", why="because")
    await session.set_completed(datetime(2026, 1, 1, tzinfo=UTC), **said)
    await session.marks.set_label(a, "x", **said)
    await session.marks.pin(a, **said)
    await session.marks.unpin(a, **said)
    await session.marks.exclude(a, **said)
    await session.marks.include(a, **said)
    await session.go_back(to=1, **said)
    lines = [line for line in await session.log() if line.by == "ann" and line.why == "because"]
    assert [line.what for line in reversed(lines)] == [
        "move", "rewind", "undo", "redo", "retract", "title", "metadata", "metadata", "completed", "label", "pin",
        "pin", "exclusion", "inclusion", "back",
    ]  # fmt: skip


async def test_a_handle_knows_what_going_back_changed(store: Store, session: Session) -> None:
    a, _ = await say(session, "a", "b")
    await session.set_title("first")
    await session.set_metadata({"n": 1})
    await session.set_completed(datetime(2026, 1, 1, tzinfo=UTC))
    await session.set_title("second")
    await session.set_metadata({"n": 2})
    await session.set_completed(None)
    for revision in (3, 4, 5, 1):
        assert await session.go_back(to=revision) is not None
    fresh = await store.get_session(session.id)
    assert fresh is not None
    assert (session.title, session.metadata, session.leaf_id) == ("first", {"n": 1}, a)
    assert (fresh.title, fresh.metadata, fresh.leaf_id) == ("first", {"n": 1}, a)
    assert session.info.completed_us == fresh.info.completed_us is not None
    await say(session, "c")
    assert await path_of(session) == ["a", "c"]


async def test_a_title_that_was_given_at_creation_comes_back(store: Store) -> None:
    session = await store.create_session(title="given")
    await session.set_title("renamed")
    line = await session.go_back(to=1, before=True, by="ann")
    assert line is not None
    assert (line.what, line.by, session.title) == ("title", "ann", "given")
    assert await session.go_back(to=1, before=True) is None


async def test_a_handle_knows_the_automatic_title_that_came_back(session: Session) -> None:
    await session.set_title("First", auto=True)
    first = session.revision
    await session.set_title("Second", auto=True)
    await session.go_back(to=first)
    assert session.info.auto_title == session.info.shown_title == "First"
    assert (await session.refresh()).auto_title == "First"


async def test_going_back_is_refused_where_another_writer_was_quicker(store: Store, session: Session) -> None:
    await say(session, "a", "b")
    other = await store.get_session(session.id)
    assert other is not None
    await say(other, "c")
    with pytest.raises(LeafConflict):
        await session.go_back(to=1)
    assert await path_of(session) == ["a", "b", "c"]


@pytest.mark.parametrize("to", [-1, True, 1.0, "1", None, 2**63])
async def test_what_is_no_revision_is_refused(session: Session, to: object) -> None:
    await say(session, "a")
    with pytest.raises(InvalidArgument, match="revision"):
        await session.go_back(to=to)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        await session.log(limit=0)
    assert len(await session.log()) == 1
