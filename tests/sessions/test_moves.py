"""Where the leaf goes: elsewhere in the tree, back, and back again; the log of it all, and what a turn owes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import flue_py
from flue_py import BranchSummary, EntryNotFound, InvalidArgument, LeafConflict, Leaving, Navigated, Session, Store
from flue_py.agents.harness import redo_last, undo_last
from tests.checks import raises
from tests.sessions.talk import assistant, hold_turns, path_of, say, texts, user
from tests.tables import inputs
from tests.values import existing


async def test_an_answer_becomes_the_leaf_and_a_message_of_the_user_a_draft(session: Session) -> None:
    ids = await hold_turns(session, 3)
    assert await session.navigate(ids[1]) == Navigated(ids[5], ids[1], 2)
    assert await session.navigate(ids[4]) == Navigated(ids[1], ids[3], 3, draft="U3")
    assert await path_of(session) == ["U1", "A1", "U2", "A2"]
    assert await session.navigate(ids[0]) == Navigated(ids[3], None, 4, draft="U1")
    assert (await session.append_message(user("anew"))).entry_id is not None


async def test_the_leaf_itself_is_no_target_even_if_a_person_wrote_it(session: Session) -> None:
    ids = await hold_turns(session, 1)
    await session.move_leaf(ids[0])
    assert await session.navigate(ids[0], label="x", summary="s") == Navigated(ids[0], ids[0], 2)
    assert (await session.marks.labels(), session.leaf_id) == ({}, ids[0])


async def test_a_callback_gets_what_is_left_and_its_summary_names_both_ends(session: Session, store: Store) -> None:
    ids = await hold_turns(session, 3)
    seen: list[Leaving] = []

    async def summarize(leaving: Leaving) -> BranchSummary:
        seen.append(leaving)
        assert await session.marks.labels() == {}  # the session can be read meanwhile
        return BranchSummary("tried", details={"n": 1}, calls=[{"output": 2}, {"output": 3}])

    went = await session.navigate(ids[4], summary=summarize, label="back", by="me")
    (leaving,) = seen
    assert (leaving.from_id, leaving.to_id, leaving.common_id) == (ids[5], ids[3], ids[3])
    assert texts(leaving.entries) == ["U3", "A3"]
    entry = existing(await session.get_entry(went.summary_id or ""))
    assert {name: entry.fields[name] for name in ("summary", "fromId", "abandonedLeafId", "details")} == {
        "summary": "tried",
        "fromId": ids[3],
        "abandonedLeafId": ids[5],
        "details": {"n": 1},
    }
    assert (entry.parent_id, session.leaf_id, went.draft) == (ids[3], entry.id, "U3")
    assert await session.marks.labels() == {entry.id: "back"}
    assert {row.group["purpose"]: row.calls for row in (await store.usage(session, group_by=["purpose"])).rows} == {
        "turn": 3,
        "branch_summary": 2,
    }
    await session.undo()
    assert session.leaf_id == ids[5]


async def test_a_callback_can_go_without_a_summary_or_keep_the_session_where_it_is(session: Session) -> None:
    ids = await hold_turns(session, 2)
    stayed = await session.navigate(ids[1], summary=lambda leaving: False, label="x")
    assert stayed == Navigated(ids[3], ids[3], 1, cancelled=True)
    assert (await session.marks.labels(), session.leaf_id, session.revision) == ({}, ids[3], 1)
    assert await session.navigate(ids[1], summary=lambda leaving: None) == Navigated(ids[3], ids[1], 2)


async def test_what_a_callback_raises_or_wrongly_returns_keeps_the_session_where_it_is(session: Session) -> None:
    ids = await hold_turns(session, 2)

    def fail(leaving: Leaving) -> str:
        raise RuntimeError("the model is away")

    await raises(RuntimeError, session.navigate(ids[1], summary=fail), match="the model is away")
    wrong: Any = lambda leaving: 5  # noqa: E731
    await raises(InvalidArgument, session.navigate(ids[1], summary=wrong), match="summary: should be a text")
    await raises(EntryNotFound, session.navigate("missing", summary=fail))
    assert (session.leaf_id, (await session.refresh()).revision) == (ids[3], 1)


async def test_a_session_that_went_on_meanwhile_stays_where_it_is(session: Session, store: Store) -> None:
    ids = await hold_turns(session, 2)

    async def summarize(leaving: Leaving) -> str:
        other = existing(await store.get_session(session.id))
        await other.append_message(user("meanwhile"))
        return "s"

    await raises(LeafConflict, session.navigate(ids[1], summary=summarize))
    assert (await session.refresh()).entry_count == 5
    await raises(flue_py.RevisionConflict, session.navigate(ids[1], expected_revision=1))


# -- rewind counts turns as the reference's command does, and goes back on the active path only -------------------


THREE_TURNS = ["U1", "A1", "U2", "A2", "U3", "A3"]


async def check_rewind(store: Store, kinds: Sequence[str], turns: int) -> None:
    """Rewind a new session, and check that it keeps whole turns, or is told that there is nothing to do."""
    session = await store.create_session()
    messages = [user(str(n)) if kind == "u" else assistant(str(n)) for n, kind in enumerate(kinds)]
    ids = list((await session.append_messages(messages)).entry_ids)
    revision, total = session.revision, kinds.count("u")
    wanted = min(total, max(0, turns if turns >= 0 else total + turns))
    moved = await session.rewind(turns=turns)
    path = [entry.id for entry in await session.get_active_path()]
    assert path == ids[: len(path)]
    assert kinds[: len(path)].count("u") == wanted
    assert len(path) == len(ids) or kinds[len(path)] == "u"
    if wanted == total:
        assert (moved, session.revision) == (None, revision)
    else:
        assert moved is not None
        assert (moved.reason, moved.from_id, moved.to_id) == ("rewind", ids[-1], path[-1] if path else None)
        assert session.leaf_id == moved.to_id


@inputs("turns", [1, 2, 0, -1, -2, -3, -99, 3, 4, 10**9])
@inputs("kinds", ["uauaua", "", "a"])
async def test_rewind_keeps_the_turns_it_is_told_to(store: Store, kinds: str, turns: int) -> None:
    await check_rewind(store, kinds, turns)


@given(kinds=st.lists(st.sampled_from("ua"), max_size=12), turns=st.integers(-15, 15))
async def test_for_any_history_rewind_keeps_a_prefix_with_the_right_number_of_turns(
    kinds: list[str], turns: int, anyio_backend: str
) -> None:
    async with flue_py.open(":memory:") as store:
        await check_rewind(store, kinds, turns)


async def test_rewinding_to_no_turns_keeps_what_came_before_the_first(session: Session) -> None:
    await session.append_custom("settings", {"model": "m"})
    await hold_turns(session, 2)
    assert await session.rewind(turns=0) is not None
    assert await path_of(session) == ["[settings]"]


async def test_a_turn_ends_where_the_next_user_message_begins(session: Session) -> None:
    ids = await hold_turns(session, 1)
    await session.append_compaction("s", first_kept_entry_id=ids[0], tokens_before=1)
    await say(session, "U2")
    await session.append_branch_summary("b", from_id=ids[0])
    assert await session.rewind(turns=-1) is not None
    assert await path_of(session) == ["U1", "A1", "[compaction]"]


async def test_turns_are_counted_on_the_active_path_alone(session: Session) -> None:
    ids = await hold_turns(session, 3)
    await session.move_leaf(ids[1])
    await say(session, "other")
    assert await session.rewind(turns=2) is None
    assert await session.rewind(turns=-1) is not None
    assert await path_of(session) == ["U1", "A1"]


@inputs("turns", [True, 1.0, "1", [1]])
async def test_what_is_no_whole_number_of_turns_changes_nothing(session: Session, turns: object) -> None:
    await hold_turns(session, 2)
    before = await path_of(session)
    await raises(InvalidArgument, session.rewind(turns=turns), match="turns")  # type: ignore[arg-type]
    assert await path_of(session) == before


async def test_rewind_to_an_ancestor_and_before_the_first_entry(session: Session) -> None:
    a, b, _ = await say(session, "a", "b", "c")
    assert await session.rewind(to=b) is not None
    assert await session.rewind(to=b) is None
    assert await session.rewind(to=a) is not None
    assert await session.rewind(to=None) is not None
    assert await session.rewind(to=None) is None
    assert session.leaf_id is None
    for arguments in ({}, {"to": a, "turns": 1}):
        await raises(InvalidArgument, session.rewind(**arguments), match="either")  # type: ignore[arg-type]


async def test_rewind_does_not_leave_the_path(session: Session) -> None:
    a, b = await say(session, "a", "b")
    await session.move_leaf(a)
    await raises(InvalidArgument, session.rewind(to=b), match="move_leaf")
    await session.move_leaf(None)
    await raises(InvalidArgument, session.rewind(to=a), match="move_leaf")
    assert session.leaf_id is None


async def test_rewind_to_an_entry_the_session_does_not_see(store: Store, session: Session) -> None:
    other = await store.create_session()
    (foreign,) = await say(other, "foreign")
    for entry_id in (foreign, "missing"):
        await raises(EntryNotFound, session.rewind(to=entry_id))
    await say(session, "a")
    await raises(EntryNotFound, session.rewind(to="missing"))
    assert await path_of(session) == ["a"]


async def test_a_rewind_is_undone_like_any_move(session: Session) -> None:
    await hold_turns(session, 3)
    await session.rewind(turns=1)
    await session.rewind(turns=0)
    assert await session.undo() is not None
    assert await path_of(session) == ["U1", "A1"]
    assert await session.undo() is not None
    assert await path_of(session) == THREE_TURNS
    assert await session.redo() is not None
    assert await path_of(session) == ["U1", "A1"]


# -- Undo as a person means it, between edits that programs make in nobody's name ---------------------------------


STEPS: dict[str, tuple[list[tuple[str, Any, bool]], list[Any]]] = {
    "metadata of a program stay": (
        [("merge", {"a": 1}, True), ("merge", {"p": 9}, False)],
        [{"p": 9}, {"a": 1, "p": 9}],
    ),
    "a key that was replaced since stays": (
        [("merge", {"a": 1, "b": 1}, True), ("merge", {"b": 2}, False)],
        [{"b": 2}, {"a": 1, "b": 2}],
    ),
    "a key that was taken away comes back": (
        [("metadata", {"a": 1, "b": {"c": [1.5]}}, False), ("metadata", {"a": 1}, True), ("merge", {"p": 9}, False)],
        [{"a": 1, "b": {"c": [1.5]}, "p": 9}, {"a": 1, "p": 9}],
    ),
    "what an import writes stays": (
        [("merge", {"a": 1}, True), ("merge", {"imported": {"rows": 7}}, False)],
        [{"imported": {"rows": 7}}, {"a": 1, "imported": {"rows": 7}}],
    ),
    "a title of a program stays, and what was before it is undone": (
        [("label", "L", True), ("title", "mine", True), ("title", "of a program", False)],
        [("of a program", None), ("of a program", "L")],
    ),
    "a label of a program stays, and what was before it is undone": (
        [("title", "mine", True), ("label", "L", True), ("label", "of a program", False)],
        [(None, "of a program"), ("mine", "of a program")],
    ),
    "an edit whose taking back changes nothing is passed over": (
        [("title", "one", True), ("title", "two", True), ("title", "one", False)],
        [(None, None), ("one", None)],
    ),
}
"""Steps (what, the value, whether somebody is named), and what is stored after an undo and a redo."""


async def run(session: flue_py.Session, entry: str, what: str, value: Any, by: str | None) -> None:
    if what == "title":
        await session.set_title(value, by=by)
    elif what == "label":
        await session.marks.set_label(entry, value, by=by)
    else:
        await session.set_metadata(value, merge=what == "merge", by=by)


async def test_undo_leaves_what_programs_have_changed_since() -> None:
    wrong = []
    async with flue_py.open(":memory:") as store:
        for name, (steps, expected) in STEPS.items():
            session = await store.create_session()
            (entry,) = (await session.append_message({"role": "user", "content": "x"})).entry_ids
            for what, value, is_named in steps:
                await run(session, entry, what, value, "me" if is_named else None)
            seen: list[Any] = []
            for act in (undo_last, redo_last):
                line = await act(session, by="me")
                labels = await session.marks.labels()
                row = session.metadata if steps[0][0] in ("merge", "metadata") else (session.title, labels.get(entry))
                seen.append((line is not None, row))
            if seen != [(True, row) for row in expected]:
                wrong.append((name, seen))
    assert not wrong


async def test_undo_goes_back_through_values_that_come_again() -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        for title in ("one", "two", "one"):
            await session.set_title(title, by="me")
        await session.set_metadata({"a": 1}, by="me")
        seen = []
        for act in (*[undo_last] * 4, *[redo_last] * 4, *[undo_last] * 5):
            await act(session, by="me")
            seen.append((session.title, *session.metadata.values()))
        back = [("one",), ("two",), ("one",), (None,)]
        assert seen == [*back, ("one",), ("two",), ("one",), ("one", 1), *back, (None,)]


# -- A session's log, and what a handle knows after going back ----------------------------------------------------


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
    fresh = existing(await store.get_session(session.id))
    assert (session.title, session.metadata, session.leaf_id) == ("first", {"n": 1}, a)
    assert (fresh.title, fresh.metadata, fresh.leaf_id) == ("first", {"n": 1}, a)
    assert session.info.completed_us == fresh.info.completed_us is not None
    await say(session, "c")
    assert await path_of(session) == ["a", "c"]


async def test_a_title_that_was_given_at_creation_comes_back(store: Store) -> None:
    session = await store.create_session(title="given")
    await session.set_title("renamed")
    line = existing(await session.go_back(to=1, before=True, by="ann"))
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
    other = existing(await store.get_session(session.id))
    await say(other, "c")
    await raises(LeafConflict, session.go_back(to=1))
    assert await path_of(session) == ["a", "b", "c"]


@inputs("to", [-1, True, 1.0, "1", None, 2**63])
async def test_what_is_no_revision_is_refused(session: Session, to: object) -> None:
    await say(session, "a")
    before = await session.log()
    await raises(InvalidArgument, session.go_back(to=to), match="revision")  # type: ignore[arg-type]
    await raises(InvalidArgument, session.log(limit=0))
    assert await session.log() == before


# -- What a turn owes whose program died --------------------------------------------------------------------------


ASKED: dict[str, Any] = {"role": "user", "content": "fix"}
FAILED: dict[str, Any] = {"role": "assistant", "content": [], "stopReason": "error"}
PAUSED: dict[str, Any] = {
    "role": "assistant", "stop_reason": "pause_turn",
    "content": [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}],
}  # fmt: skip
DONE: dict[str, Any] = {"role": "assistant", "content": "done"}
WRITTEN: dict[str, Any] = {"role": "user", "content": "<system-reminder>be brief</system-reminder>"}


def calling(*ids: str, **fields: str) -> dict[str, Any]:
    calls = [{"type": "toolCall", "id": id, "name": "read", "arguments": {"path": id}} for id in ids]
    return {"role": "assistant", "content": calls, **fields}


def result(id: str) -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": id, "content": "ok"}


TURNS: dict[str, tuple[list[dict[str, Any]], int | None, list[str]]] = {
    "nothing was said": ([], None, []),
    "only a system message": ([{"role": "system", "content": "You fix."}], None, []),
    "a user": ([ASKED], 0, []),
    "an answer": ([ASKED, DONE], None, []),
    "a second user": ([ASKED, DONE, ASKED], 2, []),
    "a call": ([ASKED, calling("a")], None, ["a"]),
    "one call of two": ([ASKED, calling("a", "b"), result("a")], None, ["b"]),
    "calls in two messages": ([ASKED, calling("a"), calling("b"), result("b")], None, ["a"]),
    "every result": ([ASKED, calling("a", "b"), result("b"), result("a")], 3, []),
    "an id again": ([ASKED, calling("a"), result("a"), calling("a")], None, ["a"]),
    "one message that calls twice by an id": ([ASKED, calling("a", "a"), result("a")], None, ["a"]),
    "a failed answer": ([ASKED, FAILED], 0, []),
    "an aborted answer with a call": ([ASKED, calling("a", stopReason="aborted")], 0, []),
    "the result of an aborted call": ([ASKED, calling("a", stopReason="aborted"), result("a")], 0, []),
    "a failed answer to results": ([ASKED, calling("a"), result("a"), FAILED], 2, []),
    "an answer after calls": ([ASKED, calling("a"), result("a"), DONE], None, []),
    "a paused answer": ([ASKED, PAUSED], 1, []),
    "a paused answer of ours": ([ASKED, {**DONE, "stopReason": "pause_turn"}, WRITTEN], 1, []),
    "a paused answer after calls": ([ASKED, calling("a"), result("a"), PAUSED], 3, []),
    "what follows a paused answer": ([ASKED, PAUSED, DONE], None, []),
    "a call that a paused answer makes": ([ASKED, calling("a", stopReason="pause_turn")], None, ["a"]),
    "a user instead of results": ([ASKED, calling("a"), ASKED], 2, []),
    "a reminder after an answer": ([ASKED, DONE, WRITTEN], None, []),
    "a reminder after a user": ([ASKED, WRITTEN], 0, []),
}


async def test_what_is_owed_is_the_results_of_calls_or_an_answer(store: Store) -> None:
    wrong = []
    for name, (messages, unanswered, calls) in TURNS.items():
        session = await store.create_session()
        ids = (await session.append_messages(messages)).entry_ids
        found = await session.context.pending()
        told = None if found.unanswered is None else ids.index(found.unanswered.id)
        if (told, [call.id for call in found.calls]) != (unanswered, calls):
            wrong.append((name, found))
        if found.is_over is not (unanswered is None and not calls):
            wrong.append((name, found))
        wrong += [(name, found) for call in found.calls if (call.name, call.arguments) != ("read", {"path": call.id})]
    assert wrong == []


async def test_a_call_names_the_entry_that_it_is_in_and_a_leaf_says_what_was_owed_there(store: Store) -> None:
    session = await store.create_session()
    asked, calls, _ = (await session.append_messages([ASKED, calling("a"), result("a")])).entry_ids
    (call,) = (await session.context.pending(leaf=calls)).calls
    assert call.entry_id == calls
    assert existing((await session.context.pending(leaf=asked)).unanswered).id == asked


async def test_what_a_person_ran_in_a_shell_and_what_is_excluded_is_not_owed(store: Store) -> None:
    session = await store.create_session()
    await session.append_messages([ASKED, DONE])
    await session.append_shell("ls", "a.py", 0)
    assert (await session.context.pending()).is_over
    again = (await session.append_message(ASKED)).entry_ids[0]
    await session.append_custom("note", {"text": "by hand"})
    assert not (await session.context.pending()).is_over
    await session.marks.exclude(again)
    assert (await session.context.pending()).is_over
