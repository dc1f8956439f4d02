"""Several operations collected and committed as one; and what every write compares with what its caller has seen."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

import flue_py
from flue_py import (
    Appended,
    Atomic,
    InvalidArgument,
    InvalidEntry,
    LeafConflict,
    NewEntry,
    RevisionConflict,
    Session,
    SessionExists,
    SessionNotFound,
    Store,
)
from flue_py.db.runner import CommittedBeforeCancellation
from tests.checks import raises
from tests.context.blocks.blocks import Says
from tests.samples import UNKNOWN, parameters_of, placed
from tests.sessions.talk import assistant, path_of, say, texts, user
from tests.values import existing


async def stored(store: Store, session: Session) -> tuple[str | None, int]:
    found = existing(await store.get_session(session.id))
    return found.leaf_id, found.revision


async def totals(store: Store) -> tuple[int, int, int]:
    info = await store.info()
    return info.sessions, info.entries, info.ledger_rows


@pytest.fixture
async def other(store: Store) -> Session:
    return await store.create_session(key="other")


async def test_operations_on_several_sessions_are_committed_together(
    store: Store, session: Session, other: Session
) -> None:
    await say(session, "before")
    before = await totals(store)
    async with store.atomic() as tx:
        asked = tx.append_message(session, user("question"), source="prompt")
        answered = tx.append_messages(session, [assistant("answer", 7), user("thanks")])
        noted = tx.append_entries(other, [NewEntry.custom("note", {"about": asked.entry_id})])
        tx.set_label(session, asked.entry_id, "asked")
        pinned = tx.pin(session, asked.entry_id)
        fork = tx.fork(session, at=asked.entry_id, title="another answer")
        tx.append_message(fork, assistant("other answer", 5))
        task = tx.create_task(fork, task_id="look", metadata={"n": 1})
        tx.append_message(task, user("look it up"))
        made = tx.create_session(key="new", scope="user-8", metadata={"a": 1})
        tx.set_metadata(made, {"b": 2}, merge=True)
        tx.link_task(made, fork, task_id="linked")
        moved = tx.move_leaf(other, None, why="begin anew")
        retitled = tx.set_title(other, "renamed")
        completed = tx.set_completed(session, datetime(2026, 1, 1, tzinfo=UTC))
        assert await totals(store) == before
    assert await path_of(session) == ["before", "question", "answer", "thanks"]
    assert await path_of(fork) == ["before", "question", "other answer"]
    assert await path_of(task) == ["look it up"]
    assert (await session.marks.labels(), await session.marks.pins()) == ({asked.entry_id: "asked"}, [asked.entry_id])
    assert answered.result == Appended(
        answered.entry_ids, answered.entry_id, asked.result.revision + 1, parent_id=asked.entry_id
    )
    assert pinned.result == (asked.entry_id,)
    assert (moved.result.from_id, moved.result.to_id) == (noted.entry_id, None)
    assert (retitled.result.title, other.title) == ("renamed", "renamed")
    assert completed.result.completed_us is not None
    assert (fork.title, fork.info.kind, task.info.kind, made.key, made.info.scope) == (
        "another answer", "fork", "task", "new", "user-8",
    )  # fmt: skip
    assert (made.metadata, task.metadata["parentSession"]) == ({"a": 1, "b": 2}, fork.id)
    for each in (session, other, fork, task, made):
        assert (each.leaf_id, each.revision) == await stored(store, each)
    await say(fork, "and on")


async def test_a_block_that_raises_writes_nothing(store: Store, session: Session) -> None:
    before = await totals(store)
    with suppress(ZeroDivisionError):
        async with store.atomic() as tx:
            tx.append_message(session, user("lost"))
            fork = tx.fork(session)
            raise ZeroDivisionError
    assert await totals(store) == before
    assert session.leaf_id is None
    await raises(SessionNotFound, fork.get_active_path())
    with pytest.raises(InvalidArgument, match="over"):
        tx.append_message(session, user("too late"))


async def test_a_conflict_undoes_all_and_names_its_operation(store: Store, session: Session, other: Session) -> None:
    late = existing(await store.get_session(session.id))
    await say(session, "first")
    before = await totals(store)
    with pytest.raises(LeafConflict) as caught:  # noqa: PT012 - the end of the block commits
        async with store.atomic() as tx:
            mine = tx.append_message(other, user("mine"))
            tx.append_message(late, user("late"))
    assert (caught.value.operation, caught.value.expected, caught.value.actual) == (1, None, session.leaf_id)
    assert caught.value.__notes__ == [f"operation 2 of 2: append to session {session.id!r}; none of them was done"]
    assert await totals(store) == before
    assert (other.leaf_id, late.leaf_id) == (None, None)
    with pytest.raises(InvalidArgument, match="not committed"):
        _ = mine.result
    async with store.atomic() as tx:
        tx.append_message(other, user("mine"))
        beside = tx.append_message(late, user("late"), on_conflict="branch")
        after = tx.append_message(session.id, user("by id"), on_conflict="branch")
    assert (beside.result.on_branch, after.result.parent_id) == (True, beside.entry_id)
    assert await path_of(session) == ["first"]


async def test_what_a_session_gets_in_a_batch_is_one_chain(store: Store, session: Session) -> None:
    first, second = await say(session, "first", "second")
    async with store.atomic() as tx:
        tx.append_message(session, user("third"))
        tx.move_leaf(session, first)
        below = tx.append_message(session, user("other second"))
        tx.append_message(session, user("other third"), expected_leaf=below.entry_id, expected_revision=2)
        fork = tx.fork(session)
        tx.append_message(fork, user("in the fork"))
    assert await path_of(session) == ["first", "other second", "other third"]
    assert await path_of(fork) == ["first", "other second", "other third", "in the fork"]
    assert session.revision == 6
    with pytest.raises(RevisionConflict):
        async with store.atomic() as tx:
            tx.set_label(session, second, "x", expected_revision=5)
    with pytest.raises(LeafConflict):
        async with store.atomic() as tx:
            tx.move_leaf(session, None, expected_leaf=second)


async def test_calls_made_meanwhile_are_neither_held_up_nor_lost(store: Store, session: Session) -> None:
    async with store.atomic() as tx:
        tx.append_message(session, user("collected"))
        await session.append_message(user("at once"))
        # The handle has moved on: the batch builds on that, as a call that is made now would.
    assert await path_of(session) == ["at once", "collected"]


async def test_batches_and_calls_on_the_same_handles_at_once_wait_for_each_other(
    store: Store, session: Session, other: Session
) -> None:
    async def batch(number: int) -> None:
        order = (session, other) if number % 2 else (other, session)
        async with store.atomic() as tx:
            for each in order:
                tx.append_message(each, user(f"batch {number}"))

    calls = [session.append_message(user(f"call {number}")) for number in range(4)]
    await asyncio.gather(*(batch(number) for number in range(8)), *calls)
    assert len(await path_of(session)) == 12
    assert [text for text in await path_of(session) if text.startswith("batch")] == await path_of(other)


async def test_two_handles_on_one_session_both_know_where_it_is(store: Store, session: Session) -> None:
    twin = existing(await store.get_session(session.id))
    async with store.atomic() as tx:
        tx.append_message(session, user("one"))
        tx.append_message(twin, user("two"))
    assert (session.leaf_id, session.revision) == (twin.leaf_id, twin.revision) == await stored(store, session)


async def test_a_handle_that_has_not_seen_the_leaf_does_not_take_it_over(store: Store, session: Session) -> None:
    (first,) = await say(session, "first")
    late = existing(await store.get_session(session.id))
    await say(session, "second")
    async with store.atomic() as tx:
        tx.set_label(late, first, "seen")
        tx.set_title(late, "titled")
    assert (late.leaf_id, late.title) == (first, "titled")
    await raises(LeafConflict, say(late, "late"))


async def test_deletion_in_a_batch(store: Store, session: Session, other: Session) -> None:
    await say(session, "first")
    async with store.atomic() as tx:
        kept = tx.fork(session)
        deleted = tx.delete_session_tree(session, expected_revision=session.revision)
        tx.delete_session_tree(UNKNOWN)
        tx.append_message(kept, user("kept"))
    assert deleted.result.session_ids == (session.id,)
    assert await path_of(kept) == ["first", "kept"]
    await raises(SessionNotFound, session.refresh())


async def test_a_batch_with_a_key_is_done_once_whatever_ids_it_draws(store: Store, session: Session) -> None:
    await say(session, "first")

    async def write() -> tuple[Session, flue_py.Pending[Appended]]:
        handle = existing(await store.get_session(session.id))
        async with store.atomic(idempotency_key="turn-7") as tx:
            landed = tx.append_message(handle, user("once"), expected_leaf=session.leaf_id)
            fork = tx.fork(handle, at=landed.entry_id)
            tx.append_entries(
                fork, [NewEntry.compaction("so far", first_kept_entry_id=landed.entry_id, tokens_before=9)]
            )
            tx.set_metadata(fork, {"n": 1}, merge=True)
        return fork, landed

    fork, landed = await write()
    before = await totals(store)
    again, replayed = await write()
    assert await totals(store) == before
    assert (replayed.result.replayed, replayed.entry_ids) == (True, landed.entry_ids)
    assert (again.id, again.leaf_id, again.revision) == (fork.id, fork.leaf_id, fork.revision)
    await say(again, "and on")
    assert texts(await fork.get_active_path())[-1] == "and on"


async def test_a_caller_who_is_cancelled_in_mid_commit_leaves_handles_that_know(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    atomic = store.backend.atomic

    async def committed_and_cancelled(*arguments: object, **named: object) -> None:
        committed = CommittedBeforeCancellation(await atomic(*arguments, **named))  # type: ignore[arg-type]
        raise asyncio.CancelledError from committed

    monkeypatch.setattr(store.backend, "atomic", committed_and_cancelled)
    with pytest.raises(asyncio.CancelledError):  # noqa: PT012 - the end of the block commits
        async with store.atomic() as tx:
            landed = tx.append_message(session, user("there"))
            fork = tx.fork(session)
    monkeypatch.undo()
    assert (session.leaf_id, session.revision) == await stored(store, session) == (landed.entry_id, 1)
    assert landed.result.leaf_id == landed.entry_id
    assert await path_of(fork) == ["there"]


async def test_a_caller_who_is_cancelled_has_committed_all_or_nothing(
    store: Store, session: Session, other: Session
) -> None:
    for wait in range(6):

        async def write() -> None:
            async with store.atomic() as tx:
                tx.append_message(session, user("one"))
                tx.append_message(other, user("two"))

        writing = asyncio.create_task(write())
        for _ in range(wait):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
        assert (session.leaf_id, session.revision) == await stored(store, session)
        assert session.revision == other.revision


async def test_numbers_that_cannot_be_added_up_refuse_no_batch(store: Store, session: Session) -> None:
    most = 2**63 - 1
    async with store.atomic() as tx:
        tx.append_message(session, assistant("large", most))
        second = tx.append_message(session, assistant("too large", most))
    assert second.result.oddities
    assert await path_of(session) == ["large", "too large"]


async def test_messages_of_a_provider_are_converted_in_a_batch_too(store: Store, session: Session) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    async with store.atomic() as tx:
        landed = tx.append_messages(
            session, [{"role": "assistant", "content": None, "tool_calls": [call]},
                      {"role": "tool", "tool_call_id": "c", "content": "seen"}],
        )  # fmt: skip
    assert [each.shape for each in landed.result.converted] == ["openai-chat", "openai-chat"]
    assert landed.result.entry_ids == landed.entry_ids


async def test_arguments_are_checked_when_they_are_collected(store: Store, session: Session) -> None:
    async with flue_py.open(":memory:") as elsewhere, store.atomic() as tx:
        foreign = await elsewhere.create_session()
        with pytest.raises(InvalidArgument, match="another store"):
            tx.append_message(foreign, user("x"))
        with pytest.raises(InvalidEntry, match="role"):
            tx.append_message(session, {"content": "x"})
        with pytest.raises(InvalidArgument, match="NewEntry"):
            tx.append_entries(session, [NewEntry("note", "{}")])
        with pytest.raises(InvalidArgument, match="not a Session"):
            tx.fork("an id")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="metadata"):
            tx.set_metadata(session, None)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="task_id"):
            tx.create_task(session, task_id=None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="no entry id"):
            _ = tx.append_messages(session, []).entry_id
        with pytest.raises(InvalidArgument, match="expected_revision"):
            tx.unpin(session, "x", expected_revision=-1)
    assert session.leaf_id is None
    with pytest.raises(InvalidArgument, match="idempotency_key"):
        async with store.atomic(idempotency_key="k") as tx:
            tx.create_session()
    with pytest.raises(SessionExists):
        async with store.atomic() as tx:
            tx.create_session(key="triage", scope="user-7")
    async with store.atomic():
        pass


def test_every_method_that_writes_takes_what_was_seen() -> None:
    makes_its_own = {"create_session"}
    for name, method in inspect.getmembers(Atomic, inspect.isfunction):
        if not name.startswith("_") and name not in makes_its_own:
            assert {"expected_leaf", "expected_revision"} <= {*parameters_of(method)}, name


def test_the_blocking_twin_commits_several_operations_too(tmp_path: object) -> None:
    with flue_py.sync.open(f"{tmp_path}/s.db") as store:
        session = store.create_session()
        with store.atomic(idempotency_key="k") as tx:
            landed = tx.append_message(session, user("one"))
            fork = tx.fork(session, at=landed.entry_id)
            tx.append_messages(fork, [user("two")])
            made = tx.create_session(key="new")
            task = tx.create_task(made, task_id="t")
        assert landed.result.leaf_id == session.leaf_id == landed.entry_id
        assert texts(fork.get_active_path()) == ["one", "two"]
        assert [type(each) for each in (fork, made, task)] == [flue_py.sync.Session] * 3
        assert made.tasks.links()[0].child_id == task.id
        with pytest.raises(LeafConflict), store.atomic() as tx:
            tx.append_message(session, user("lost"), expected_leaf=None)
        assert len(session.get_active_path()) == 1


async def test_a_batch_goes_elsewhere_and_goes_on_from_there(store: Store, session: Session) -> None:
    first, second, third = [(await say(session, each))[0] for each in ("one", "two", "three")]
    task = await session.tasks.create(task_id="t")
    async with store.atomic() as tx:
        went = tx.navigate(session, second, summary="it was wrong", label="wrong")
        tx.append_message(session, user("two again"))
        back = tx.undo(session)
        again = tx.redo(session)
        ended = tx.end_task(task, "done", summary="looked")
    assert (went.result.summary_id, went.result.draft, went.result.from_id) == (went.entry_id, "two", third)
    assert await path_of(session) == ["one", "[branch_summary]", "two again"]
    assert back.result is not None
    assert again.result is not None
    assert (back.result.to_id, again.result.to_id) == (went.entry_id, session.leaf_id)
    assert (await session.marks.labels()) == {went.entry_id: "wrong"}
    assert ended.result.completed_us is not None
    assert [(link.status, link.summary) for link in await session.tasks.links()] == [("done", "looked")]
    assert (session.leaf_id, session.revision) == await stored(store, session)
    await say(session, "and on")
    async with store.atomic() as tx:
        tx.navigate(session.id, first)
        tx.undo(session.id)
        nothing = tx.redo(session, expected_revision=session.revision)
    assert nothing.result is not None
    assert (await session.refresh()).leaf_id is None


async def test_a_batch_does_not_go_from_a_leaf_that_its_handle_has_not_seen(store: Store, session: Session) -> None:
    (first,) = await say(session, "one")
    other = existing(await store.get_session(session.id))
    await say(other, "two")
    for step in ("navigate", "undo", "redo"):
        with pytest.raises(LeafConflict):
            async with store.atomic() as tx:
                tx.navigate(session, first) if step == "navigate" else getattr(tx, step)(session)
    assert await path_of(other) == ["one", "two"]


# -- What the caller has seen is compared by every write, in the transaction that writes --------------------------


_Given = dict[str, Any]
_Write = Callable[[Store, Session, str, _Given], Awaitable[object]]


async def _merge_back(store: Store, session: Session, entry: str, given: _Given) -> object:
    fork = await session.fork()
    await fork.append_message(user("in the fork"))
    return await session.branches.merge_back("done", source=fork, **given)


async def _cherry_pick(store: Store, session: Session, entry: str, given: _Given) -> object:
    fork = await session.fork(at=None)
    picked = await fork.append_message(user("in the fork"))
    return await session.branches.cherry_pick([picked.entry_id], source=fork, **given)


async def _end_task(store: Store, session: Session, entry: str, given: _Given) -> object:
    await store.link_task(await store.create_session(), session, task_id="t")
    return await session.tasks.end("done", **given)


WRITES: dict[str, _Write] = {
    "append_message": lambda store, session, entry, given: session.append_message(user("more"), **given),
    "append_messages": lambda store, session, entry, given: session.append_messages([user("more")], **given),
    "append_shell": lambda store, session, entry, given: session.append_shell("ls", "a", 0, **given),
    "append_compaction": lambda store, session, entry, given: session.append_compaction(
        "so far", first_kept_entry_id=entry, tokens_before=10, **given
    ),
    "compact": lambda store, session, entry, given: session.compact(mode="window", **given),
    "compact_range": lambda store, session, entry, given: session.compactions.compact_range(
        entry, None, mode="window", **given
    ),
    "uncompact": lambda store, session, entry, given: session.compactions.uncompact(**given),
    "append_branch_summary": lambda store, session, entry, given: session.append_branch_summary(
        "gone", from_id=entry, **given
    ),
    "register": lambda store, session, entry, given: session.marks.register("rules", "Be brief.", **given),
    "unregister": lambda store, session, entry, given: session.marks.unregister("rules", **given),
    "append_blocks": lambda store, session, entry, given: session.append_blocks([Says("here", "There.")], **given),
    "append_handoff": lambda store, session, entry, given: session.context.append_handoff(
        "Coder", settings={"handoff": ["tickets"]}, sources={"tickets": lambda asked: "open"}, **given
    ),
    "append_custom": lambda store, session, entry, given: session.append_custom("note", 1, **given),
    "import_entries": lambda store, session, entry, given: session.import_entries(
        [placed(NewEntry.message(user("more")), "new", entry)], leaf="new", **given
    ),
    "move_leaf": lambda store, session, entry, given: session.move_leaf(entry, **given),
    "rewind": lambda store, session, entry, given: session.rewind(turns=1, **given),
    "rewind over nothing": lambda store, session, entry, given: session.rewind(turns=9, **given),
    "navigate": lambda store, session, entry, given: session.navigate(session.leaf_id or "", **given),
    "undo": lambda store, session, entry, given: session.undo(**given),
    "redo": lambda store, session, entry, given: session.redo(**given),
    "go_back": lambda store, session, entry, given: session.go_back(to=1, **given),
    "go_back to an edit": lambda store, session, entry, given: session.go_back(to=2, before=True, **given),
    "remove_leaf_message": lambda store, session, entry, given: session.remove_leaf_message(entry, **given),
    "redact": lambda store, session, entry, given: session.redact(entry, "wrong", **given),
    "exclude": lambda store, session, entry, given: session.marks.exclude(entry, **given),
    "include what is not left out": lambda store, session, entry, given: session.marks.include(entry, **given),
    "pin": lambda store, session, entry, given: session.marks.pin(entry, **given),
    "unpin": lambda store, session, entry, given: session.marks.unpin(entry, **given),
    "set_label": lambda store, session, entry, given: session.marks.set_label(entry, "here", **given),
    "set_title": lambda store, session, entry, given: session.set_title("new", **given),
    "set_metadata": lambda store, session, entry, given: session.set_metadata({"n": 1}, merge=True, **given),
    "set_completed": lambda store, session, entry, given: session.set_completed(
        datetime(2026, 1, 1, tzinfo=UTC), **given
    ),
    "fork": lambda store, session, entry, given: session.fork(**given),
    "create_task": lambda store, session, entry, given: session.tasks.create(task_id="t", **given),
    "end_task": _end_task,
    "cherry_pick": _cherry_pick,
    "merge_back": _merge_back,
    "Store.append_messages": lambda store, session, entry, given: store.append_messages(
        session, [user("more")], **given
    ),
    "Store.link_task": lambda store, session, entry, given: store.link_task(session, "child", task_id="t", **given),
    "Store.delete_session_tree": lambda store, session, entry, given: store.delete_session_tree(session, **given),
}


async def _prepared(session: Session) -> str:
    """Give the session a history with something to take back; return the first entry."""
    first = (await say(session, "first"))[0]
    await session.set_title("old")
    await session.append_messages([assistant("second"), user("third"), assistant("fourth")])
    return first


_Check = Callable[[Store, Session, str, _Write], Awaitable[None]]


async def _failures(store: Store, names: Iterable[str], check: _Check) -> dict[str, str]:
    """Check each write on a session of its own, and return what failed by the name of the write."""
    failures = {}
    for name in names:
        session = await store.create_session(scope="user-7")
        try:
            await check(store, session, await _prepared(session), WRITES[name])
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001
            failures[name] = repr(error)
    return failures


async def _compares(store: Store, session: Session, first: str, work: _Write) -> None:
    seen = await session.refresh()
    for revision in (0, seen.revision - 1, seen.revision + 1):
        changed = await raises(RevisionConflict, work(store, session, first, {"expected_revision": revision}))
        assert (changed.value.expected, changed.value.actual) == (revision, seen.revision)
    for leaf in (first, None):
        moved = await raises(LeafConflict, work(store, session, first, {"expected_leaf": leaf}))
        assert (moved.value.expected, moved.value.actual) == (leaf, seen.leaf_id)
    assert await session.refresh() == seen
    await work(store, session, first, {"expected_leaf": seen.leaf_id, "expected_revision": seen.revision})


async def test_every_write_compares_what_its_caller_has_seen(store: Store) -> None:
    assert await _failures(store, WRITES, _compares) == {}


async def _takes_the_leaf(store: Store, session: Session, first: str, work: _Write) -> None:
    stale = existing(await store.get_session(session.id))
    await say(session, "since")
    await work(store, stale, first, {"expected_leaf": session.leaf_id})


async def test_a_leaf_that_is_named_takes_the_place_of_the_handles(store: Store) -> None:
    names = [write for write in WRITES if not write.startswith("Store.")]
    assert await _failures(store, names, _takes_the_leaf) == {}


async def _refuses_nonsense(store: Store, session: Session, first: str, work: _Write) -> None:
    before = await session.refresh()
    nonsense: list[dict[str, object]] = [{"expected_leaf": 7}, {"expected_revision": -1}, {"expected_revision": True}]
    for given in nonsense:
        await raises(InvalidArgument, work(store, session, first, given), match=next(iter(given)))
        assert await session.refresh() == before, given


# Refused before the store is asked, whichever it is.
@pytest.mark.parametrize("target", ["memory"], indirect=True)
async def test_what_cannot_have_been_seen_is_refused(store: Store) -> None:
    assert await _failures(store, WRITES, _refuses_nonsense) == {}


def test_no_write_is_forgotten() -> None:
    """Whatever takes one of the two takes both, and each that does is tried above."""
    names = {name.partition(" ")[0] for name in WRITES}
    for owner, prefix in ((Session, ""), (Store, "Store.")):
        for name, member in inspect.getmembers(owner, inspect.isfunction):
            takes = {"expected_leaf", "expected_revision"} & {*parameters_of(member)}
            assert len(takes) in (0, 2), name
            assert (f"{prefix}{name}" in names) is bool(takes), name


async def test_messages_are_appended_without_a_handle(store: Store, session: Session) -> None:
    first = await store.append_messages(session.id, [user("one"), assistant("two", 3)], expected_leaf=None)
    second = await store.append_messages(session.id, [user("three")], idempotency_key="k", source="prompt")
    again = await store.append_messages(session.id, [user("three")], idempotency_key="k", source="prompt")
    assert (first.parent_id, second.parent_id, again.replayed) == (None, first.leaf_id, True)
    beside = await store.append_messages(
        session.id, [{"role": "user", "content": "other"}], expected_leaf=first.entry_ids[0], on_conflict="branch"
    )
    assert (beside.on_branch, beside.parent_id) == (True, first.entry_ids[0])
    assert await path_of(session) == ["one", "two", "three"]
    assert (await session.get_active_path())[-1].source == "prompt"
    await raises(SessionNotFound, store.append_messages(UNKNOWN, [user("lost")]))
    with pytest.raises(InvalidArgument, match="on_conflict"):
        await store.append_messages(session, [user("lost")], on_conflict="merge")


async def test_a_rebase_lands_below_what_is_stored_and_the_handle_takes_that_over(
    store: Store, session: Session
) -> None:
    await say(session, "first")
    late = existing(await store.get_session(session.id))
    (theirs,) = await say(session, "theirs")
    landed = await late.append_message(user("late"), on_conflict="rebase")
    assert (landed.parent_id, late.leaf_id) == (theirs, landed.entry_id)
    await say(late, "and on")
    assert await path_of(session) == ["first", "theirs", "late", "and on"]


async def test_a_rebased_compaction_keeps_whole_exchanges_of_the_stored_path(store: Store, session: Session) -> None:
    await say(session, "first")
    late = existing(await store.get_session(session.id))
    call = {"type": "toolCall", "id": "c", "name": "look", "arguments": {}}
    called = await session.append_message({"role": "assistant", "content": [call], "stopReason": "toolUse"})
    result = await session.append_message({
        "role": "toolResult", "toolCallId": "c", "toolName": "look", "content": [], "isError": False,
    })  # fmt: skip
    done = await late.append_compaction(
        "so far", first_kept_entry_id=result.entry_id, tokens_before=9, on_conflict="rebase"
    )
    assert done.parent_id == result.entry_id
    assert done.oddities
    assert existing(await late.compactions.latest()).fields["firstKeptEntryId"] == called.entry_id
