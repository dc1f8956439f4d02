"""What the caller has seen is compared by every write, in the transaction that writes."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from flue_py import InvalidArgument, LeafConflict, RevisionConflict, Session, SessionNotFound, Store
from flue_py.core.entries import new_message
from tests.context.blocks.blocks import Says
from tests.samples import UNKNOWN, placed
from tests.sessions.talk import assistant, path_of, say, user

pytestmark = pytest.mark.anyio

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
        [placed(new_message(user("more")), "new", entry)], leaf="new", **given
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
        with pytest.raises(RevisionConflict) as changed:
            await work(store, session, first, {"expected_revision": revision})
        assert (changed.value.expected, changed.value.actual) == (revision, seen.revision)
    for leaf in (first, None):
        with pytest.raises(LeafConflict) as moved:
            await work(store, session, first, {"expected_leaf": leaf})
        assert (moved.value.expected, moved.value.actual) == (leaf, seen.leaf_id)
    assert await session.refresh() == seen
    await work(store, session, first, {"expected_leaf": seen.leaf_id, "expected_revision": seen.revision})


async def test_every_write_compares_what_its_caller_has_seen(store: Store) -> None:
    assert await _failures(store, WRITES, _compares) == {}


async def _takes_the_leaf(store: Store, session: Session, first: str, work: _Write) -> None:
    stale = await store.get_session(session.id)
    assert stale is not None
    await say(session, "since")
    await work(store, stale, first, {"expected_leaf": session.leaf_id})


async def test_a_leaf_that_is_named_takes_the_place_of_the_handles(store: Store) -> None:
    names = [write for write in WRITES if not write.startswith("Store.")]
    assert await _failures(store, names, _takes_the_leaf) == {}


async def _refuses_nonsense(store: Store, session: Session, first: str, work: _Write) -> None:
    before = await session.refresh()
    nonsense: list[dict[str, object]] = [{"expected_leaf": 7}, {"expected_revision": -1}, {"expected_revision": True}]
    for given in nonsense:
        with pytest.raises(InvalidArgument, match=next(iter(given))):
            await work(store, session, first, given)
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
            takes = {"expected_leaf", "expected_revision"} & inspect.signature(member).parameters.keys()
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
    with pytest.raises(SessionNotFound):
        await store.append_messages(UNKNOWN, [user("lost")])
    with pytest.raises(InvalidArgument, match="on_conflict"):
        await store.append_messages(session, [user("lost")], on_conflict="merge")


async def test_a_rebase_lands_below_what_is_stored_and_the_handle_takes_that_over(
    store: Store, session: Session
) -> None:
    await say(session, "first")
    late = await store.get_session(session.id)
    assert late is not None
    (theirs,) = await say(session, "theirs")
    landed = await late.append_message(user("late"), on_conflict="rebase")
    assert (landed.parent_id, late.leaf_id) == (theirs, landed.entry_id)
    await say(late, "and on")
    assert await path_of(session) == ["first", "theirs", "late", "and on"]


async def test_a_rebased_compaction_keeps_whole_exchanges_of_the_stored_path(store: Store, session: Session) -> None:
    await say(session, "first")
    late = await store.get_session(session.id)
    assert late is not None
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
    compaction = await late.compactions.latest()
    assert compaction is not None
    assert compaction.fields["firstKeptEntryId"] == called.entry_id
