"""A handle on a deleted session neither reads nor writes a later session with the same id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from operator import attrgetter
from pathlib import Path

import pytest

import flue_py
import flue_py.sync
from flue_py import Session, SessionNotFound, Store
from flue_py.context.blocks import RuntimeEnvironment
from flue_py.core.entries import NewEntry
from flue_py.core.model import FunctionModel
from flue_py.core.usage import NO_USAGE, PaidCall
from tests.checks import raises
from tests.samples import session_methods
from tests.sessions.talk import user
from tests.values import existing

USED_AGAIN = "session 'abc' was deleted, and its id has been used again"

ALONE = """\
refresh reports.name undo redo copy fork get_active_path settings turns context.latest_assistant context.pending
build_context build_context_entries context.measure context.gather compactions.latest money.entry_costs entries get_tree
marks.labels tasks.links tasks.parents reports.html reports.snapshots compactions.plan compactions.uncompact
compactions.loss_report artifacts.all marks.registered changes marks.pins marks.exclusions log money.budgets
money.check_budgets files.checkpoints
"""
"""Methods that are called without an argument."""
OF_ENTRY = """\
remove_leaf_message navigate get_entry branches.children context.common_prefix marks.pin marks.unpin marks.exclude
marks.include
"""
"""Methods that are called with an entry."""
CALLS: dict[str, Callable[[Session, str], Awaitable[object]]] = {
    **{name: lambda session, entry, name=name: attrgetter(name)(session)() for name in ALONE.split()},
    **{name: lambda session, entry, name=name: attrgetter(name)(session)(entry) for name in OF_ENTRY.split()},
    "append_message": lambda session, entry: session.append_message(user("stale")),
    "append_messages": lambda session, entry: session.append_messages([user("stale")]),
    "append_compaction": lambda session, entry: session.append_compaction(
        "s", first_kept_entry_id=entry, tokens_before=1
    ),
    "append_shell": lambda session, entry: session.append_shell("ls", "", 0),
    "append_blocks": lambda session, entry: session.append_blocks([RuntimeEnvironment()]),
    "append_branch_summary": lambda session, entry: session.append_branch_summary("s", from_id=entry),
    "append_custom": lambda session, entry: session.append_custom("note", {}),
    "import_entries": lambda session, entry: session.import_entries([NewEntry.message(user("stale"))], leaf=None),
    "money.record_call": lambda session, entry: session.money.record_call({"input": 1}),
    "money.import_call": lambda session, entry: session.money.import_call(PaidCall(NO_USAGE, call_id="c")),
    "move_leaf": lambda session, entry: session.move_leaf(None),
    "rewind": lambda session, entry: session.rewind(turns=0),
    "fork once": lambda session, entry: session.fork(idempotency_key="fork"),
    "tasks.create": lambda session, entry: session.tasks.create(task_id="t"),
    "tasks.end": lambda session, entry: session.tasks.end("done"),
    "marks.set_label": lambda session, entry: session.marks.set_label(entry, "x"),
    "set_title": lambda session, entry: session.set_title("x"),
    "set_metadata": lambda session, entry: session.set_metadata({"a": 1}),
    "set_completed": lambda session, entry: session.set_completed(None),
    "branches.is_ancestor": lambda session, entry: session.branches.is_ancestor(entry, of=entry),
    "request": lambda session, entry: session.request("anthropic"),
    "context.attempts": lambda session, entry: session.context.attempts("anthropic"),
    "context.validate": lambda session, entry: session.context.validate("anthropic"),
    "context.append_handoff": lambda session, entry: session.context.append_handoff(
        "Coder", settings={"handoff": ["file:x"]}
    ),
    "money.aggregate_usage_since": lambda session, entry: session.money.aggregate_usage_since(None),
    "get_entries": lambda session, entry: session.get_entries([entry]),
    "resolve_entry_id": lambda session, entry: session.resolve_entry_id(entry[:4]),
    "compact": lambda session, entry: session.compact(mode="window"),
    "compactions.compact_range": lambda session, entry: session.compactions.compact_range(entry, None, mode="window"),
    "compactions.price": lambda session, entry: session.compactions.price("resume"),
    "compactions.fit_to": lambda session, entry: session.compactions.fit_to(
        FunctionModel(lambda _: "s", "m", context_window=100_000)
    ),
    "compactions.recall": lambda session, entry: session.compactions.recall(None, "x"),
    "compactions.answer_recall": lambda session, entry: session.compactions.answer_recall(
        {"id": "c", "arguments": {"words": "x"}}
    ),
    "artifacts.read": lambda session, entry: session.artifacts.read("zz"),
    "artifacts.answer_read": lambda session, entry: session.artifacts.answer_read(
        {"id": "c", "arguments": {"id": "z"}}
    ),
    "marks.register": lambda session, entry: session.marks.register("n", "t"),
    "marks.unregister": lambda session, entry: session.marks.unregister("n"),
    "watch": lambda session, entry: anext(session.watch(after=0)),
    "go_back": lambda session, entry: session.go_back(to=0),
    "redact": lambda session, entry: session.redact(entry, "by request"),
    "money.reserve": lambda session, entry: session.money.reserve(tokens=1),
    "branches.neighbours": lambda session, entry: session.branches.neighbours(entry, 1),
    "files.checkpoint": lambda session, entry: session.files.checkpoint(root="."),
    "files.before_edit": lambda session, entry: session.files.before_edit("none", root="."),
    "files.after_edit": lambda session, entry: session.files.after_edit("none", root="."),
    "files.restore": lambda session, entry: session.files.restore(root="."),
}
OTHERS = {
    *("money.commit", "money.release", "money.prolong", "money.budgeted"),
    *("branches.common_ancestor", "branches.diff", "branches.cherry_pick", "branches.merge_back"),
}
"""Those that take a reservation, whose id says whose it is, or another session: see below."""


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return ":memory:" if request.param == "memory" else str(tmp_path / "s.db")


async def used_again(store: Store) -> tuple[Session, Session, str]:
    """Return a handle on a deleted session, one on the session that has its id now, and an entry of that."""
    old = await store.create_session(id="abc", key="k")
    await old.append_message(user("old"))
    await old.build_context_entries()
    await store.delete_session_tree(old)
    new = await store.create_session(id="abc", key="k2")
    entry = (await new.append_message(user("new"))).entry_ids[0]
    return old, new, entry


async def everything(store: Store, session: Session) -> tuple[object, ...]:
    return await store.info(), await session.refresh(), await session.get_tree(), await session.log(), session.metadata


async def test_no_call_on_a_stale_handle_reaches_the_new_session(place: str) -> None:
    async with flue_py.open(place, prices=False) as store:
        old, new, entry = await used_again(store)
        before = await everything(store, new)
        reached = []
        for name, call in CALLS.items():
            try:
                await call(old, entry)
                reached.append(name)
            except SessionNotFound as error:
                if USED_AGAIN not in str(error):
                    reached.append(f"{name}: {error}")
        assert reached == []
        assert await everything(store, new) == before
        assert (await store.verify()).problems == []


def test_every_method_of_a_handle_is_tried() -> None:
    assert session_methods() - {name.split()[0] for name in CALLS} == OTHERS


async def test_a_stale_handle_is_no_source_and_no_target_of_another_session(place: str) -> None:
    async with flue_py.open(place, prices=False) as store:
        old, new, entry = await used_again(store)
        fork = await new.fork(key="fork")
        await fork.append_message(user("on the fork"))
        for use in (
            lambda: fork.branches.common_ancestor(old),
            lambda: old.branches.common_ancestor(fork),
            lambda: fork.branches.diff(old),
            lambda: fork.branches.cherry_pick([entry], source=old),
            lambda: old.branches.cherry_pick([entry], source=fork),
            lambda: fork.branches.merge_back("summary", source=old),
            lambda: old.branches.merge_back("summary", source=fork),
            lambda: store.link_task(old, fork, task_id="t"),
            lambda: store.set_budget(old, tokens=10),
        ):
            await raises(SessionNotFound, use(), match=USED_AGAIN)
        assert (await store.delete_session_tree(old)).session_ids == ()
        assert [item["content"] for item in await new.build_context()] == ["new"]


async def test_the_id_itself_means_whichever_session_has_it(place: str) -> None:
    async with flue_py.open(place, prices=False) as store:
        old, new, _ = await used_again(store)
        assert type(old.id) is str
        found = existing(await store.get_session(old.id))
        assert (found.ref, found.ref.session_key, found.key) == (new.ref, new.ref.session_key, "k2")
        assert old.ref == new.ref
        assert old.ref.session_key != new.ref.session_key
        assert (await store.delete_session_tree(old.id)).session_ids == ("abc",)
        await raises(SessionNotFound, old.refresh(), match="does not exist or has been deleted")


def test_the_blocking_twin_does_the_same(place: str) -> None:
    with flue_py.sync.open(place, prices=False) as store:
        old = store.create_session(id="abc")
        old.append_message(user("old"))
        store.delete_session_tree(old)
        new = store.create_session(id="abc")
        entry = new.append_message(user("new")).entry_ids[0]
        for call in (
            old.refresh, lambda: old.append_message(user("stale")), old.build_context, lambda: old.fork(at=entry),
            lambda: old.marks.pin(entry), lambda: old.money.reserve(tokens=1),
            lambda: store.link_task(old, new, task_id="t"),
        ):  # fmt: skip
            with pytest.raises(SessionNotFound, match=USED_AGAIN):
                call()
        assert store.delete_session_tree(old).session_ids == ()
        assert [item["content"] for item in new.build_context()] == ["new"]
