"""The contract: sessions of tasks, and what goes with a session."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import pytest
from msgspec.structs import replace

from flue_py.core.entries import Entry
from flue_py.core.json import JsonObject, JsonValue, to_json
from flue_py.core.ledger import LedgerQuery, NewBudget
from flue_py.core.sessions import (
    STORED,
    DocumentFilter,
    Edit,
    NewDocument,
    NewSession,
    Note,
    Seen,
    SessionFilter,
    TaskLink,
    deletion_of,
    ended_task,
)
from flue_py.core.usage import PaidCall, UsageTotals
from flue_py.db.backend import MAX_TASK_DEPTH, Backend
from flue_py.errors import InvalidArgument, LeafConflict, SessionExists, SessionNotFound, TaskDepthExceeded
from tests.checks import Refusals, raises, refusal, refused, unchanged
from tests.samples import (
    UNKNOWN,
    Snapshot,
    add,
    assistant,
    compaction,
    new_session,
    path_ids,
    placed,
    session_info,
    snapshot,
    talk,
    talked,
    tree_ids,
    user,
)
from tests.together import together


async def fingerprints(backend: Backend) -> dict[str, bytes]:
    """Return by what copies know the states of trees, by their first sessions."""
    return {head.sessions[0].id: head.fingerprint for head in await backend.list_trees(-1, 10)}


def orphaned(before: Snapshot, *deleted: str) -> Snapshot:
    """Return what a survivor should show: all it showed, with deleted sessions no longer named as creators."""

    def without_creator(entries: Sequence[Entry]) -> list[Entry]:
        return [replace(entry, session_id=None) if entry.session_id in deleted else entry for entry in entries]

    return replace(
        before,
        path=without_creator(before.path),
        tree=without_creator(before.tree),
        turns=without_creator(before.turns),
        parents=[link for link in before.parents if link.parent_id not in deleted],
    )


class TaskContract:
    """Task sessions and the links that lead to them."""

    async def test_a_task_session_has_a_history_of_its_own_and_the_scope_of_its_parent(self, backend: Backend) -> None:
        parent = await new_session(backend, *talk(2), scope="user-7")
        child = await backend.create_task(parent.id, "t", NewSession(key="child", title="look", scope="ignored"))
        assert (child.kind, child.scope, child.key, child.title) == ("task", "user-7", "child", "look")
        assert (child.leaf_id, child.revision, child.entry_count) == (None, 0, 0)
        assert (child.forked_from_session, child.forked_from_entry) == (None, None)
        own = await add(backend, child.id, *talk(3))
        assert await path_ids(backend, child.id) == list(own)
        assert (await session_info(backend, parent.id)).entry_count == 2

    async def test_a_task_session_says_whose_it_is_beside_the_metadata_it_was_given(self, backend: Backend) -> None:
        parent = await new_session(backend)
        child = await backend.create_task(parent.id, "t-1", NewSession(metadata_text='{"a":[1],"depth":"x"}'))
        assert child.metadata == {"a": [1], "parentSession": parent.id, "taskId": "t-1", "depth": 1}
        grandchild = await backend.create_task(child.id, "t-2", NewSession())
        assert grandchild.metadata == {"parentSession": child.id, "taskId": "t-2", "depth": 2}
        # The link says so, and nothing else.
        assert (child.metadata_text, grandchild.metadata_text) == ('{"a":[1]}', "{}")

    async def test_metadata_name_what_links_say_wherever_a_session_is_returned(self, backend: Backend) -> None:
        parent = await backend.create_session(NewSession(key="p", metadata_text='{"a":1}'))
        child = await backend.create_task(parent.id, "t", NewSession())
        await backend.link_task(parent.id, "later", "u")
        tasks: list[JsonValue] = [
            {"session": name, "taskId": task, "storageKey": name} for name, task in ((child.id, "t"), ("later", "u"))
        ]
        shown: JsonObject = {"a": 1, "taskSessions": tasks}
        listed = await backend.list_sessions(scope=None, kind=None, limit=10, cursor=None)
        for found in (
            await backend.get_session(parent.id),
            await backend.get_session_by_key("p", ""),
            await backend.update_session(parent.id, title="x"),
            *(info for info in listed.sessions if info.id == parent.id),
        ):
            assert found is not None
            assert (found.metadata, found.metadata_text) == (shown, '{"a":1}')
        told: JsonObject = {"parentSession": parent.id, "taskId": "u"}
        later = await backend.create_session(NewSession(id="later"))
        assert (later.metadata, (await session_info(backend, "later")).metadata) == (told, told)
        fork = await backend.fork(parent.id, None, NewSession(id="fork"))
        assert fork.metadata == {}
        await backend.delete_tree(fork.id)
        await backend.link_task(child.id, "fork", "v")
        fork = await backend.fork(parent.id, None, NewSession(id="fork"))
        assert fork.metadata == {"parentSession": child.id, "taskId": "v"}
        assert (await backend.end_task(child.id, "done")).metadata == {
            "parentSession": parent.id, "taskId": "t", "depth": 1, "taskSessions": [
                {"session": "fork", "taskId": "v", "storageKey": "fork"}
            ],
        }  # fmt: skip
        # A link outlives its child.
        await backend.delete_tree(child.id)
        assert (await session_info(backend, parent.id)).metadata == shown

    async def test_metadata_name_the_first_parent_by_id(self, backend: Backend) -> None:
        for parent_id in ("b", "a"):
            await backend.create_session(NewSession(id=parent_id))
        child = await backend.create_task("b", "of b", NewSession())
        await backend.link_task("a", child.id, "of a")
        found = await session_info(backend, child.id)
        assert found.metadata == {"parentSession": "a", "taskId": "of a", "depth": 1}

    async def test_metadata_may_be_changed_and_given_back(self, backend: Backend) -> None:
        parent = await new_session(backend)
        child = await backend.create_task(parent.id, "t", NewSession(metadata_text='{"a":1}'))
        await backend.create_task(child.id, "below", NewSession())
        shown = (await session_info(backend, child.id)).metadata
        text = to_json({**shown, "b": 2}).decode()
        updated = await backend.update_session(child.id, metadata_text=text)
        assert (updated.metadata, updated.metadata_text) == ({**shown, "b": 2}, '{"a":1,"b":2}')
        # What no link says is kept, and stands before what links say.
        other: JsonObject = {"parentSession": "mine", "depth": 7, "taskSessions": ["odd"]}
        updated = await backend.update_session(child.id, metadata_text=to_json({**shown, **other}).decode())
        assert updated.metadata == {
            **shown,
            **other,
            "taskSessions": ["odd", *cast("list[str]", shown["taskSessions"])],
        }
        again = await backend.update_session(child.id, metadata_text=to_json(updated.metadata).decode())
        assert (again.metadata, again.metadata_text) == (updated.metadata, updated.metadata_text)
        (line,) = await backend.read_log(child.id, before=None, limit=1)
        assert [edit.after for edit in line.edits] == [again.metadata_text]

    async def test_tasks_are_found_by_what_their_links_say(self, backend: Backend) -> None:
        one, two = await new_session(backend), await new_session(backend)
        tasks = [await backend.create_task(each.id, name, NewSession()) for each in (one, two) for name in ("t", "u")]
        written = await backend.create_session(NewSession(metadata_text='{"taskId":"t"}'))
        for asked, found in (
            ((("taskId", "t"),), {tasks[0].id, tasks[2].id, written.id}),
            ((("parentSession", two.id),), {tasks[2].id, tasks[3].id}),
            ((("parentSession", one.id), ("depth", 1), ("taskId", "u")), {tasks[1].id}),
            ((("depth", 2),), set[str]()),
        ):
            where = SessionFilter(metadata=asked)
            page = await backend.list_sessions(scope=None, kind=None, limit=10, cursor=None, where=where)
            assert {info.id for info in page.sessions} == found

    async def test_a_task_links_its_parent_to_it_and_counts_one_revision_there(self, backend: Backend) -> None:
        parent = await new_session(backend, *talk(2))
        child = await backend.create_task(parent.id, "t", NewSession())
        link = TaskLink(parent.id, 0, "t", child.id, parent.leaf_id, "running")
        assert await backend.task_links(parent.id) == [link]
        assert await backend.task_parents(child.id) == [link]
        (change,) = await backend.changes(parent.id, parent.revision, 10)
        assert (change.revision, change.reason, change.entries) == (parent.revision + 1, None, ())
        assert (await session_info(backend, parent.id)).leaf_id == parent.leaf_id

    async def test_the_same_task_of_the_same_parent_is_the_same_child(self, backend: Backend) -> None:
        parent, other = await new_session(backend), await new_session(backend)
        child = await backend.create_task(parent.id, "t", NewSession(title="first"))
        async with unchanged(backend):
            again = await backend.create_task(parent.id, "t", NewSession(title="second"))
        assert again == child
        assert (await backend.create_task(parent.id, "u", NewSession())).id != child.id
        assert (await backend.create_task(other.id, "t", NewSession())).id != child.id

    async def test_a_task_whose_session_was_deleted_gets_a_new_one(self, backend: Backend) -> None:
        parent = await new_session(backend)
        first = await backend.create_task(parent.id, "t", NewSession())
        await backend.delete_tree(first.id)
        second = await backend.create_task(parent.id, "t", NewSession())
        assert second.id != first.id
        assert [link.child_id for link in await backend.task_links(parent.id)] == [first.id, second.id]
        assert (await backend.create_task(parent.id, "t", NewSession())).id == second.id

    async def test_of_several_starts_of_one_task_at_once_all_get_the_same_child(self, backend: Backend) -> None:
        parent = await new_session(backend)
        children = await together(*(backend.create_task(parent.id, "t", NewSession()) for _ in range(5)))
        assert len({child.id for child in children}) == 1
        assert (await backend.info()).sessions == 2

    async def test_tasks_nest_to_the_maximum_depth_and_no_deeper(self, backend: Backend) -> None:
        session = await new_session(backend)
        root = session.id
        current = root
        for depth in range(1, MAX_TASK_DEPTH + 1):
            child = await backend.create_task(current, "t", NewSession())
            assert child.metadata["depth"] == depth
            current = child.id
        caught = await refusal(backend, TaskDepthExceeded, backend.create_task(current, "too deep", NewSession()))
        assert str(MAX_TASK_DEPTH) in str(caught.value)
        assert (await backend.create_task(root, "beside", NewSession())).metadata["depth"] == 1

    async def test_tasks_nest_as_deep_as_the_call_allows(self, backend: Backend) -> None:
        parent = await new_session(backend)
        child = await backend.create_task(parent.id, "t", NewSession(), max_depth=1)
        async with refused(backend, TaskDepthExceeded) as caught:
            await backend.create_task(child.id, "t", NewSession(), max_depth=1)
        assert "1" in str(caught.value)
        assert (await backend.create_task(child.id, "t", NewSession(), max_depth=2)).metadata["depth"] == 2

    async def test_a_fork_of_a_task_session_is_no_task(self, backend: Backend) -> None:
        current = (await new_session(backend)).id
        for _ in range(MAX_TASK_DEPTH):
            current = (await backend.create_task(current, "t", NewSession())).id
        fork = await backend.fork(current, STORED, NewSession())
        assert (await backend.create_task(fork.id, "t", NewSession())).metadata["depth"] == 1

    async def test_a_task_with_a_taken_key_or_id_is_refused(self, backend: Backend) -> None:
        parent = await new_session(backend, key="k")
        refusals = Refusals(backend)
        for new in (NewSession(key="k"), NewSession(id=parent.id)):
            await refusals.of(SessionExists, backend.create_task(parent.id, "t", new))

    # -- how tasks end --------------------------------------------------------------------------------------------

    async def test_a_task_that_ends_says_how_on_the_link_and_when_in_its_row(self, backend: Backend) -> None:
        parent = await new_session(backend, *talk(2))
        child = await backend.create_task(parent.id, "t", NewSession())
        other = await backend.create_task(parent.id, "u", NewSession())
        begun = await session_info(backend, parent.id)
        ended = await backend.end_task(child.id, "done", summary="three of them", note=Note("child", "all read"))
        assert ended == await session_info(backend, child.id)
        assert (ended.completed_us, ended.revision) == (ended.updated_us, child.revision + 1)
        assert [(link.status, link.summary) for link in await backend.task_links(parent.id)] == [
            ("done", "three of them"),
            ("running", None),
        ]
        assert (await session_info(backend, other.id)) == other
        (line,) = await backend.read_log(parent.id, before=None, limit=1)
        assert (line.revision, line.what, line.by, line.why) == (begun.revision + 1, "ended", "child", "all read")
        before, after = ended_task(child.id, "running", None), ended_task(child.id, "done", "three of them")
        assert line.edits == (Edit("ended", None, before, after),)
        (own,) = await backend.read_log(child.id, before=None, limit=1)
        assert own.edits == (Edit("completed", None, None, str(ended.completed_us)),)

    async def test_the_same_end_again_changes_nothing_and_another_takes_its_place(self, backend: Backend) -> None:
        parent = await new_session(backend)
        child = await backend.create_task(parent.id, "t", NewSession())
        await backend.end_task(child.id, "failed", summary="no network")
        async with unchanged(backend):
            again = await backend.end_task(child.id, "failed", summary="no network")
        assert again == await session_info(backend, child.id)
        await backend.end_task(child.id, "done")
        (link,) = await backend.task_links(parent.id)
        assert (link.status, link.summary) == ("done", None)
        lines = await backend.read_log(parent.id, before=None, limit=2)
        assert [line.edits[0].after for line in reversed(lines)] == [
            ended_task(child.id, "failed", "no network"),
            ended_task(child.id, "done", None),
        ]
        # A task that is started again goes on under the link that it has.
        assert (await backend.create_task(parent.id, "t", NewSession())).id == child.id
        assert (await backend.task_links(parent.id))[0].status == "done"

    async def test_every_parent_is_told_and_a_session_may_be_its_own(self, backend: Backend) -> None:
        one, two = await new_session(backend), await new_session(backend)
        child = await backend.create_task(one.id, "t", NewSession())
        await backend.link_task(two.id, child.id, "shared")
        await backend.link_task(child.id, child.id, "self")
        before = await session_info(backend, child.id)
        await refusal(backend, LeafConflict, backend.end_task(child.id, "done", expected=UNKNOWN))
        ended = await backend.end_task(child.id, "done", summary="s", expected=Seen(None, before.revision))
        assert ended.revision == before.revision + 1
        told = [(await backend.task_links(each))[0] for each in (one.id, two.id, child.id)]
        assert [(link.task_id, link.status, link.summary) for link in told] == [
            ("t", "done", "s"),
            ("shared", "done", "s"),
            ("self", "done", "s"),
        ]
        # One that is linked later is not told by anybody yet.
        await backend.link_task((await new_session(backend)).id, child.id, "late")
        assert {link.status for link in await backend.task_parents(child.id)} == {"done", None}

    async def test_what_is_no_task_has_no_end(self, backend: Backend) -> None:
        root = await new_session(backend)
        waiting = await backend.create_session(NewSession(kind="task"))
        refusals = Refusals(backend)
        for session in (root, waiting):
            caught = await refusals.of(InvalidArgument, backend.end_task(session.id, "done"))
            assert "is the task of no session" in str(caught.value)
        await refusals.of(SessionNotFound, backend.end_task(UNKNOWN, "done"))
        child = await backend.create_task(root.id, "t", NewSession())
        for status, summary in (("running", None), ("", None), (None, None), ("done", "\0"), ("done", "x" * 20_001)):
            await refusal(backend, InvalidArgument, backend.end_task(child.id, status, summary=summary))  # type: ignore[arg-type]

    async def test_an_end_is_a_change_that_copies_notice(self, backend: Backend) -> None:
        parent = await new_session(backend)
        child = await backend.create_task(parent.id, "t", NewSession())
        before = await fingerprints(backend)
        await backend.end_task(child.id, "failed")
        after = await fingerprints(backend)
        assert {name for name, found in after.items() if found != before[name]} == {parent.id, child.id}

    async def test_ends_of_many_tasks_at_once_all_count(self, backend: Backend) -> None:
        parent = await new_session(backend)
        children = [await backend.create_task(parent.id, f"t{number}", NewSession()) for number in range(5)]
        for child in children:
            await backend.link_task(children[0].id, child.id, "shared")
        await together(*(backend.end_task(child.id, "done", summary=child.id) for child in children))
        assert [link.summary for link in await backend.task_links(parent.id)] == [child.id for child in children]
        assert (await session_info(backend, parent.id)).revision == 10
        assert (await backend.verify()).problems == []

    # -- bare links -----------------------------------------------------------------------------------------------

    async def test_links_keep_the_order_in_which_they_were_made(self, backend: Backend) -> None:
        parent = await new_session(backend)
        children = [f"child-{n}" for n in (3, 1, 2)]
        for number, child_id in enumerate(children):
            await backend.link_task(parent.id, child_id, f"task-{number}")
        child = await backend.create_task(parent.id, "task-9", NewSession())
        assert await backend.task_links(parent.id) == [
            *(TaskLink(parent.id, n, f"task-{n}", child_id) for n, child_id in enumerate(children)),
            TaskLink(parent.id, 3, "task-9", child.id, status="running"),
        ]
        assert (await session_info(backend, parent.id)).revision == 4

    async def test_a_second_link_to_the_same_child_is_ignored(self, backend: Backend) -> None:
        parent, child = await new_session(backend), await new_session(backend)
        await backend.link_task(parent.id, child.id, "t")
        async with unchanged(backend):
            await backend.link_task(parent.id, child.id, "t")
            await backend.link_task(parent.id, child.id, "u")

    async def test_several_children_may_share_a_task_id(self, backend: Backend) -> None:
        parent = await new_session(backend)
        one, two = await new_session(backend), await new_session(backend)
        await backend.link_task(parent.id, "never made", "t")
        await backend.link_task(parent.id, one.id, "t")
        await backend.link_task(parent.id, two.id, "t")
        assert len(await backend.task_links(parent.id)) == 3
        assert await backend.create_task(parent.id, "t", NewSession()) == one

    async def test_links_may_form_cycles_and_lead_to_the_session_itself(self, backend: Backend) -> None:
        one, two = await new_session(backend), await new_session(backend)
        await backend.link_task(one.id, two.id, "t")
        await backend.link_task(two.id, one.id, "t")
        await backend.link_task(one.id, one.id, "self")
        assert [link.child_id for link in await backend.task_links(one.id)] == [two.id, one.id]
        assert [link.parent_id for link in await backend.task_parents(one.id)] == sorted([one.id, two.id])

    async def test_tasks_that_were_linked_later_are_as_deep_as_they_are_nested(self, backend: Backend) -> None:
        root = await new_session(backend)
        names = [
            (await backend.create_session(NewSession(id=name, kind="task"))).id for name in ("one", "two", "three")
        ]
        # From below, and round in a circle at last.
        await backend.link_task("two", "three", "t")
        await backend.link_task("one", "two", "t")
        await backend.link_task("three", "three", "t")
        await backend.link_task(root.id, "one", "t")
        await backend.link_task(root.id, "three", "again")
        depths = [await backend.create_task(name, "new", NewSession(), max_depth=9) for name in names]
        assert [info.metadata["depth"] for info in depths] == [2, 3, 4]
        await refusal(backend, TaskDepthExceeded, backend.create_task("three", "newer", NewSession(), max_depth=3))

    async def test_a_depth_that_a_link_changes_is_a_revision_that_copies_notice(self, backend: Backend) -> None:
        root = await new_session(backend)
        for name in ("one", "two"):
            await backend.create_session(NewSession(id=name, kind="task"))
        await backend.append("two", talk(1))
        before = await fingerprints(backend)
        await backend.link_task("one", "two", "t")
        assert (await session_info(backend, "two")).revision == 2
        (line,) = await backend.read_log("two", before=None, limit=1)
        assert line.edits == (Edit("depth", before="1", after="2"),)
        linked = await fingerprints(backend)
        assert [name for name, found in linked.items() if found != before[name]] == ["one", "two"]
        # As deep as they were: nothing of them has changed.
        await backend.link_task(root.id, "one", "t")
        after = await fingerprints(backend)
        assert [name for name, found in after.items() if found != linked[name]] == [root.id]
        await backend.append("two", talk(1))
        assert [change.revision for change in await backend.changes("two", 0, 10)] == [1, 2, 3]

    async def test_the_parents_of_a_session_are_in_order_of_id(self, backend: Backend) -> None:
        child = await new_session(backend)
        for parent_id in ("b", "a", "c"):
            await backend.create_session(NewSession(id=parent_id))
            await backend.link_task(parent_id, "other", "t")
            await backend.link_task(parent_id, child.id, "t")
        assert await backend.task_parents(child.id) == [TaskLink(one, 1, "t", child.id) for one in "abc"]

    async def test_a_task_session_may_be_imported_before_its_parent(self, backend: Backend) -> None:
        child = await backend.import_session(NewSession(id="child", kind="task"), [placed(user(), "a")], leaf="a")
        assert (child.kind, child.entry_count) == ("task", 1)
        parent = await new_session(backend, *talk(1))
        await backend.link_task(parent.id, "child", "t")
        deleted = await backend.delete_tree(parent.id)
        assert set(deleted.session_ids) == {parent.id, "child"}

    async def test_a_link_says_where_the_task_began_where_that_is_known(self, backend: Backend) -> None:
        parent = await new_session(backend, *talk(2))
        await backend.link_task(parent.id, "a", "a", entry_id=parent.leaf_id)
        await backend.link_task(parent.id, "b", "b", entry_id=UNKNOWN)
        await backend.link_task(parent.id, "c", "c")
        await backend.link_task(parent.id, "c", "c", entry_id=parent.leaf_id)
        places = [link.entry_id for link in await backend.task_links(parent.id)]
        assert places == [parent.leaf_id, UNKNOWN, parent.leaf_id]
        await backend.link_task(parent.id, "c", "c", entry_id=UNKNOWN)
        assert (await backend.task_links(parent.id))[2].entry_id == parent.leaf_id

    async def test_a_link_does_not_make_a_session_a_task(self, backend: Backend) -> None:
        parent, child = await new_session(backend), await new_session(backend, user())
        await backend.link_task(parent.id, child.id, "t")
        assert await session_info(backend, child.id) == child

    async def test_a_link_may_lead_to_a_session_that_is_made_later(self, backend: Backend) -> None:
        parent = await new_session(backend)
        await backend.link_task(parent.id, "later", "t")
        await backend.create_session(NewSession(id="later"))
        assert await backend.task_parents("later") == [TaskLink(parent.id, 0, "t", "later")]

    async def test_tasks_and_links_of_a_session_that_is_not_there_are_refused(self, backend: Backend) -> None:
        session = await new_session(backend)
        refusals = Refusals(backend)
        await refusals.of(SessionNotFound, backend.create_task(UNKNOWN, "t", NewSession()))
        await refusals.of(SessionNotFound, backend.link_task(UNKNOWN, session.id, "t"))
        await refusals.of(SessionNotFound, backend.task_links(UNKNOWN))
        await refusals.of(SessionNotFound, backend.task_parents(UNKNOWN))


class DeletionContract:
    """Deletion is exact. What no survivor sees goes, what one sees stays."""

    async def test_a_deleted_session_is_gone_with_its_entries(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4), key="k")
        await backend.set_label(session.id, (await path_ids(backend, session.id))[0], "x")
        await backend.move(session.id, None)
        deletion = await backend.delete_tree(session.id)
        assert deletion.session_ids == (session.id,)
        assert (deletion.missing_ids, deletion.entries_deleted, deletion.entries_kept) == ((), 4, 0)
        assert await backend.get_session(session.id) is None
        assert await backend.get_session_by_key("k", "") is None
        assert await backend.match_session_ids("", 9) == []
        info = await backend.info()
        assert (info.sessions, info.entries) == (0, 0)

    async def test_reads_and_writes_of_a_deleted_session_are_refused_also_when_its_key_is_used_again(
        self, backend: Backend
    ) -> None:
        session = await new_session(backend, *talk(2), key="k")
        await backend.delete_tree(session.id)
        again = await new_session(backend, user("new"), key="k")
        await raises(SessionNotFound, backend.read_path(session.id))
        async with unchanged(backend):
            await raises(SessionNotFound, backend.append(session.id, [user()]))
            await raises(SessionNotFound, backend.move(session.id, None))
        assert await backend.get_session_by_key("k", "") == again

    async def test_deleting_what_is_not_there_is_no_error(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await backend.delete_tree(session.id)
        other = await new_session(backend, user())
        async with unchanged(backend):
            for session_id in (UNKNOWN, session.id, ""):
                deletion = await backend.delete_tree(session_id)
                assert (deletion.session_ids, deletion.entries_deleted, deletion.entries_kept) == ((), 0, 0)
                assert deletion.missing_ids == ()  # it names linked children, and nothing led here
        assert await session_info(backend, other.id) == other

    async def test_a_scope_is_emptied_of_documents_budgets_and_names_and_keeps_what_was_paid(
        self, backend: Backend
    ) -> None:
        for scope in ("a", "b"):
            session = await new_session(backend, scope=scope, cwd="/home/jane")
            call = PaidCall(UsageTotals(5, total_tokens=5), call_id="c1", agent="jane's agent")
            await backend.record_call(session.id, call)
            await backend.put_document(NewDocument("memory", "fact", "x", "user", scope, "repl"))
            await backend.put_document(NewDocument("file", "f.txt", "x", "text/plain", scope))
            await backend.set_budget(NewBudget("session", "tokens", 5, session.id))
            await backend.set_budget(NewBudget("scope", "tokens", 5, None, scope))
        async with unchanged(backend):
            assert await backend.empty_scope("a", dry_run=True) == (1, 1, 2, 1)
        assert await backend.empty_scope("a") == (1, 1, 2, 1)
        assert await backend.empty_scope("a") == (0, 0, 0, 1)
        # What was deleted in another scope is remembered in this one.
        note = deletion_of("gone", "b")
        await backend.put_document(note)
        assert await backend.empty_scope("") == (0, 0, 0, 0)
        assert await backend.get_document(note.id) is not None
        query = LedgerQuery(group_by=("scope", "project", "agent"))
        report = await backend.read_ledger(query)
        assert [(dict(row.group), row.input) for row in report.rows] == [
            ({"scope": "a", "project": None, "agent": None}, 5),
            ({"scope": "b", "project": "/home/jane", "agent": "jane's agent"}, 5),
        ]
        assert len(await backend.list_budgets(scope=None, after=None, limit=9)) == 2
        for kind in ("memory", "file"):
            assert list(await backend.list_documents(DocumentFilter(kind, "a"), after=None, limit=9)) == []
            assert len(await backend.list_documents(DocumentFilter(kind, "b"), after=None, limit=9)) == 1
        assert (await backend.verify()).problems == []

    async def test_a_session_of_another_scope_is_not_deleted(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2), scope="a")
        async with unchanged(backend):
            assert (await backend.delete_tree(session.id, scope="b")).session_ids == ()
            assert (await backend.delete_tree(session.id, scope="")).session_ids == ()
        assert (await backend.delete_tree(session.id, scope="a")).session_ids == (session.id,)

    async def test_tasks_of_another_scope_stay_with_theirs(self, backend: Backend) -> None:
        parent, own = await new_session(backend, scope="a"), await new_session(backend, scope="a")
        await backend.link_task(parent.id, own.id, "own")
        # A link may be there before its task, which somebody else then makes.
        await backend.link_task(parent.id, "theirs", "t")
        await backend.import_session(NewSession(id="theirs", scope="b"), [placed(user(), "e")], leaf="e")
        below = await new_session(backend, scope="a")
        await backend.link_task("theirs", below.id, "below")
        for session_id, tokens in ((parent.id, 3), ("theirs", 5)):
            call = PaidCall(UsageTotals(tokens, total_tokens=tokens), call_id=session_id)
            await backend.record_call(session_id, call)
        for deletion in (backend.plan_deletion([parent.id], "a"), backend.delete_tree(parent.id, scope="a")):
            gone = await deletion
            assert (set(gone.session_ids), gone.missing_ids) == ({parent.id, own.id}, ("theirs",))
        assert await backend.get_session("theirs") is not None
        assert await backend.get_session(below.id) is not None
        assert (await backend.read_ledger(LedgerQuery(parent.id, tasks=True))).total.input == 3

    async def test_a_dry_run_says_what_would_go_and_changes_nothing(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        fork = await backend.fork(session.id, (await path_ids(backend, session.id))[1], NewSession())
        child = await backend.create_task(session.id, "t", NewSession())
        await add(backend, child.id, *talk(3))
        await backend.link_task(child.id, UNKNOWN, "u")
        async with unchanged(backend):
            foretold = await backend.plan_deletion([session.id], None)
        assert {*foretold.session_ids} == {session.id, child.id}
        assert (foretold.missing_ids, foretold.entries_deleted, foretold.entries_kept) == ((UNKNOWN,), 5, 2)
        done = await backend.delete_tree(session.id)
        assert {*done.session_ids} == {*foretold.session_ids}
        assert replace(done, session_ids=()) == replace(foretold, session_ids=())
        assert (await backend.info()).entries == 2
        assert await tree_ids(backend, fork.id) == await path_ids(backend, fork.id)

    # -- task sessions --------------------------------------------------------------------------------------------

    async def test_task_sessions_go_with_their_parent_and_so_do_theirs(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        bystander = await new_session(backend, *talk(2))
        current, family = session.id, {session.id}
        for _ in range(4):
            child = await backend.create_task(current, "t", NewSession())
            sibling = await backend.create_task(current, "u", NewSession())
            await add(backend, child.id, *talk(2))
            family |= {child.id, sibling.id}
            current = child.id
        deletion = await backend.delete_tree(session.id)
        assert {*deletion.session_ids} == family
        assert len(deletion.session_ids) == len(family)
        assert deletion.entries_deleted == 10
        info = await backend.info()
        assert (info.sessions, info.entries) == (1, 2)
        assert await session_info(backend, bystander.id) == bystander

    async def test_deleting_a_task_session_leaves_its_parent_and_the_link(self, backend: Backend) -> None:
        parent = await new_session(backend, *talk(2))
        child = await backend.create_task(parent.id, "t", NewSession())
        before = await snapshot(backend, parent.id)
        assert (await backend.delete_tree(child.id)).session_ids == (child.id,)
        assert await snapshot(backend, parent.id) == before
        assert [link.child_id for link in await backend.task_links(parent.id)] == [child.id]
        async with unchanged(backend):
            await backend.link_task(parent.id, child.id, "again")

    async def test_a_missing_child_is_reported_and_tolerated(self, backend: Backend) -> None:
        parent = await new_session(backend)
        child = await backend.create_task(parent.id, "t", NewSession())
        await backend.link_task(parent.id, UNKNOWN, "u")
        await backend.link_task(child.id, UNKNOWN, "u")
        foretold = await backend.plan_deletion([parent.id], None)
        assert sorted(foretold.links) == sorted([(parent.id, child.id), (parent.id, UNKNOWN), (child.id, UNKNOWN)])
        deletion = await backend.delete_tree(parent.id)
        assert {*deletion.session_ids} == {parent.id, child.id}
        assert deletion.missing_ids == (UNKNOWN,)

    async def test_cycles_of_links_are_deleted_once(self, backend: Backend) -> None:
        ids = [(await new_session(backend, *talk(2))).id for _ in range(4)]
        for parent_id, child_id in zip(ids, [*ids[1:], ids[0]], strict=True):
            await backend.link_task(parent_id, child_id, "t")
        await backend.link_task(ids[2], ids[2], "self")
        deletion = await backend.delete_tree(ids[1])
        assert sorted(deletion.session_ids) == sorted(ids)
        assert (deletion.missing_ids, deletion.entries_deleted) == ((), 8)
        assert (await backend.info()).sessions == 0

    async def test_a_child_of_several_parents_goes_with_the_first_of_them(self, backend: Backend) -> None:
        one, two = await new_session(backend), await new_session(backend)
        child = await backend.create_task(one.id, "t", NewSession())
        await backend.link_task(two.id, child.id, "t")
        deletion = await backend.delete_tree(one.id)
        assert {*deletion.session_ids} == {one.id, child.id}
        assert [link.child_id for link in await backend.task_links(two.id)] == [child.id]
        assert (await backend.delete_tree(two.id)).missing_ids == (child.id,)

    async def test_a_child_reached_twice_is_deleted_once(self, backend: Backend) -> None:
        top, left, right, bottom = [(await new_session(backend, *talk(1))).id for _ in range(4)]
        for parent_id, child_id in ((top, left), (top, right), (left, bottom), (right, bottom)):
            await backend.link_task(parent_id, child_id, "t")
        deletion = await backend.delete_tree(top)
        assert sorted(deletion.session_ids) == sorted([top, left, right, bottom])
        assert deletion.entries_deleted == 4

    async def test_a_long_chain_of_links_is_followed_to_its_end(self, backend: Backend) -> None:
        ids = [f"link-{n:03d}" for n in range(60)]
        for session_id in ids:
            await backend.create_session(NewSession(id=session_id))
        for parent_id, child_id in pairwise(ids):
            await backend.link_task(parent_id, child_id, "t")
        assert len((await backend.delete_tree(ids[0])).session_ids) == 60

    async def test_a_task_session_that_was_forked_goes_and_its_fork_stays(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(1))
        child = await backend.create_task(session.id, "t", NewSession())
        ids = await add(backend, child.id, *talk(4))
        fork = await backend.fork(child.id, ids[2], NewSession())
        before = await snapshot(backend, fork.id)
        deletion = await backend.delete_tree(session.id)
        assert (deletion.entries_deleted, deletion.entries_kept) == (2, 3)
        assert await snapshot(backend, fork.id) == orphaned(before, child.id)

    async def test_a_fork_that_is_linked_as_a_task_goes_with_its_source(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, *talk(2))
        await backend.link_task(session.id, fork.id, "t")
        deletion = await backend.delete_tree(session.id)
        assert {*deletion.session_ids} == {session.id, fork.id}
        assert (deletion.entries_deleted, (await backend.info()).entries) == (5, 0)

    # -- forks ----------------------------------------------------------------------------------------------------

    async def test_a_fork_keeps_all_it_sees_when_its_source_goes(self, backend: Backend) -> None:
        session, path = await talked(backend, 6)
        await add(backend, session.id, compaction(path[2]), *talk(3))
        leaf = (await session_info(backend, session.id)).leaf_id
        fork = await backend.fork(session.id, leaf, NewSession())
        await add(backend, fork.id, *talk(2))
        await backend.move(fork.id, path[1])
        await add(backend, fork.id, *talk(2))
        await add(backend, session.id, *talk(5))
        before = await snapshot(backend, fork.id)
        deletion = await backend.delete_tree(session.id)
        assert (deletion.session_ids, deletion.entries_deleted, deletion.entries_kept) == ((session.id,), 5, 10)
        assert await snapshot(backend, fork.id) == orphaned(before, session.id)
        assert (await backend.info()).entries == 14

    async def test_a_fork_goes_on_working_when_its_source_is_gone(self, backend: Backend) -> None:
        session, path = await talked(backend, 4)
        fork = await backend.fork(session.id, path[2], NewSession())
        (own,) = await add(backend, fork.id, user())
        await backend.delete_tree(session.id)
        await backend.undo(fork.id)
        assert await path_ids(backend, fork.id) == path[:3]
        await backend.redo(fork.id)
        await backend.move(fork.id, path[0])
        (aside,) = await add(backend, fork.id, compaction(path[1]))
        assert await tree_ids(backend, fork.id) == [*path[:3], own, aside]
        assert await backend.get_entry(fork.id, path[3]) is None
        again = await backend.fork(fork.id, path[1], NewSession())
        await backend.delete_tree(fork.id)
        assert await tree_ids(backend, again.id) == path[:2]
        assert (await backend.info()).entries == 2

    async def test_the_source_keeps_all_it_sees_when_its_fork_goes(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        before = await snapshot(backend, session.id)
        fork = await backend.fork(session.id, (await path_ids(backend, session.id))[1], NewSession())
        await add(backend, fork.id, *talk(3))
        deletion = await backend.delete_tree(fork.id)
        assert (deletion.entries_deleted, deletion.entries_kept) == (3, 0)
        assert await snapshot(backend, session.id) == before

    @pytest.mark.parametrize("order", ["source first", "middle first", "last first"])
    async def test_forks_of_forks_may_go_in_any_order(self, backend: Backend, order: str) -> None:
        first = await new_session(backend, *talk(4))
        second = await backend.fork(first.id, (await path_ids(backend, first.id))[2], NewSession())
        await add(backend, second.id, *talk(3))
        third = await backend.fork(second.id, (await path_ids(backend, second.id))[-2], NewSession())
        await add(backend, third.id, *talk(2))
        ids = [first.id, second.id, third.id]
        if order == "middle first":
            ids = [second.id, first.id, third.id]
        elif order == "last first":
            ids = ids[::-1]
        for number, session_id in enumerate(ids):
            before = {other: await snapshot(backend, other) for other in ids[number + 1 :]}
            await backend.delete_tree(session_id)
            for other, shown in before.items():
                assert await snapshot(backend, other) == orphaned(shown, session_id)
            seen = {entry_id for other in before for entry_id in await tree_ids(backend, other)}
            assert (await backend.info()).entries == len(seen)
            assert (await backend.verify()).problems == []

    async def test_each_of_several_forks_holds_its_own_stretch(self, backend: Backend) -> None:
        session, path = await talked(backend, 10)
        forks = [await backend.fork(session.id, path[depth], NewSession()) for depth in (7, 2, 5, 2)]
        await backend.delete_tree(session.id)
        for fork, left, held in zip(forks, (8, 6, 6, 3), (8, 3, 6, 3), strict=True):
            assert (await backend.info()).entries == left
            assert await path_ids(backend, fork.id) == path[:held]
            await backend.delete_tree(fork.id)
            assert (await backend.verify()).problems == []
        assert (await backend.info()).entries == 0

    async def test_a_fork_holds_its_fork_point_also_after_its_leaf_moved_away(self, backend: Backend) -> None:
        session, path = await talked(backend, 4)
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.move(fork.id, None)
        await backend.delete_tree(session.id)
        assert await tree_ids(backend, fork.id) == path
        await backend.move(fork.id, path[-1])
        assert await path_ids(backend, fork.id) == path

    async def test_a_fork_that_retracted_its_fork_point_keeps_it_for_undo(self, backend: Backend) -> None:
        session, path = await talked(backend, 3)
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.retract(fork.id, path[-1])
        await backend.delete_tree(session.id)
        assert await tree_ids(backend, fork.id) == path[:-1]
        assert await backend.undo(fork.id) is not None
        assert await path_ids(backend, fork.id) == path

    async def test_branches_and_other_roots_of_a_deleted_session_go_too(self, backend: Backend) -> None:
        session, path = await talked(backend, 3)
        await backend.append(session.id, talk(2), expected=path[0], on_conflict="branch")
        await backend.append(session.id, talk(2), expected=None, on_conflict="branch")
        fork = await backend.fork(session.id, path[1], NewSession())
        deletion = await backend.delete_tree(session.id)
        assert (deletion.entries_deleted, deletion.entries_kept) == (5, 2)
        assert await tree_ids(backend, fork.id) == path[:2]

    async def test_an_entry_whose_creator_was_deleted_names_no_creator(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(1))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, user())
        await backend.delete_tree(session.id)
        assert [entry.session_id for entry in await backend.read_tree(fork.id)] == [None, fork.id]

    async def test_the_id_of_a_deleted_entry_can_be_used_again(self, backend: Backend) -> None:
        session = await new_session(backend, placed(user("one"), "a"), placed(user("two"), "b"))
        fork = await backend.fork(session.id, "a", NewSession())
        await backend.delete_tree(session.id)
        await add(backend, fork.id, placed(user("again"), "b"))
        assert await path_ids(backend, fork.id) == ["a", "b"]

    async def test_the_id_of_a_deleted_session_can_be_used_again_and_nothing_comes_back(self, backend: Backend) -> None:
        await backend.create_session(NewSession(id="again"))
        path = await add(backend, "again", *talk(3))
        await backend.set_label("again", path[0], "old")
        await backend.link_task("again", UNKNOWN, "t")
        fork = await backend.fork("again", path[1], NewSession())
        await backend.delete_tree("again")
        for _ in range(2):
            reborn = await backend.fork(fork.id, path[0], NewSession(id="again"))
            assert (reborn.revision, reborn.entry_count, reborn.spent_tokens) == (0, 0, 0)
            assert await backend.changes("again", 0, 10) == []
            assert await tree_ids(backend, "again") == [path[0]]
            assert await backend.read_marks("again") == await backend.read_marks(fork.id)
            assert await backend.task_links("again") == []
            assert await backend.undo("again") is None
            await add(backend, "again", *talk(2))
            assert len(await backend.changes("again", 0, 10)) == 1
            await backend.delete_tree("again")
            assert await tree_ids(backend, fork.id) == list(path[:2])

    # -- money ----------------------------------------------------------------------------------------------------

    async def test_the_bill_outlives_what_it_paid_for(self, backend: Backend) -> None:
        session = await new_session(backend, user(), assistant(tokens=7, dollars=0.5))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, assistant(tokens=2, dollars=0.25))
        rows = (await backend.info()).ledger_rows
        assert rows == 2
        await backend.delete_tree(session.id)
        assert (await backend.info()).ledger_rows == rows
        info = await session_info(backend, fork.id)
        assert (info.spent_tokens, info.spent_picodollars) == (2, 25 * 10**10)
        assert (await backend.read_usage(fork.id, None)).usage.total_tokens == 9
        await backend.delete_tree(fork.id)
        assert (await backend.info()).ledger_rows == rows

    async def test_it_is_known_which_imported_sessions_were_deleted_in_a_scope(self, backend: Backend) -> None:
        new = NewSession(id="x", scope="a", metadata_text='{"imported":{}}')
        known = []
        for scope in ("a", "b"):
            await backend.import_session(replace(new, scope=scope), [placed(user(), "e")], leaf="e")
            known += [await backend.was_deleted(["x", UNKNOWN], of) for of in ("a", "b", "")]
            await backend.delete_tree("x")
            known += [await backend.was_deleted(["x", UNKNOWN], of) for of in ("a", "b", "")]
        assert known == [{}, {}, {}, {"x": True}, {}, {}, {}, {}, {}, {"x": True}, {"x": True}, {}]
        assert (await backend.verify()).problems == []
