"""The contract: copying again brings what is new, and leaves alone what was changed or made in the copy."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flue_py.core.json import payload_digest
from flue_py.core.sessions import STORED, DocumentName, NewDocument, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, SessionExists
from flue_py.sessions.store import Store
from flue_py.transfer.copy import copy_store
from tests.checks import refused, unchanged
from tests.samples import UNKNOWN, add, assistant, new_session, path_ids, placed, talk, user
from tests.whole_stores import copied, make_everything, told, whole_trees


class CatchUpContract:
    """Writing whole trees into a store that has some of them already."""

    # -- documents --------------------------------------------------------------------------------------------------

    async def test_documents_are_copied_as_they_are(self, backend: Backend, other: Backend) -> None:
        for number in range(45):
            name = f"d{number:02}"
            scope, project = ("", "s")[number % 2], ("", "/p")[number % 3 == 0]
            await backend.put_document(NewDocument("memory", name, f"é {number}", "user", scope, "repl", project))
        await backend.put_document(NewDocument("file", "d00", "a file", "text/plain", source="/a"))
        report = await copied(backend, other)
        assert (report.documents, report.documents_kept, report.documents_left) == (46, 0, ())
        rows = await backend.list_whole_documents(None, 100)
        assert await other.list_whole_documents(None, 100) == rows
        assert len(rows) == 46
        again = await copied(backend, other)
        assert (again.documents, again.documents_kept) == (0, 46)
        assert await other.write_documents(rows) == ["same"] * 46

    async def test_of_two_states_of_a_document_the_later_one_stays(self, backend: Backend, other: Backend) -> None:
        new = NewDocument("memory", "d", "one", "user", space="repl")
        await backend.put_document(new)
        await copied(backend, other)
        await backend.put_document(replace(new, body="two"))
        report = await copied(backend, other)
        assert (report.documents, report.documents_kept) == (1, 0)
        assert await other.list_whole_documents(None, 9) == await backend.list_whole_documents(None, 9)
        await other.put_document(replace(new, body="three"))
        report = await copied(backend, other)
        assert (report.documents, report.documents_kept) == (0, 0)
        (left,) = report.documents_left
        assert (left.document, left.is_refused) == (DocumentName("", "memory", "repl", "", "d"), False)
        assert left.reason == "memory 'd': the target has it in a later state"
        assert [row.body for row in await other.list_whole_documents(None, 9)] == ["three"]

    async def test_another_document_of_the_same_time_stays_and_is_reported(
        self, backend: Backend, other: Backend
    ) -> None:
        info = await backend.put_document(NewDocument("memory", "d", "one", "user", space="repl"))
        (row,) = await backend.list_whole_documents(None, 9)
        assert (row.changed_at, row.id) == (info.changed_us, info.id)
        written = row._replace(body="two", digest=payload_digest("two"))
        assert await other.write_documents([written]) == ["written"]
        report = await copy_store(Store(backend), Store(other))
        assert not report.is_complete
        assert [left.is_refused for left in report.documents_left] == [True]
        assert await other.list_whole_documents(None, 9) == [written]

    # -- copying again ----------------------------------------------------------------------------------------------

    async def test_copying_again_writes_nothing(self, backend: Backend, other: Backend) -> None:
        await make_everything(backend)
        await copied(backend, other)
        async with unchanged(other):
            report = await copied(backend, other)
        assert (report.trees_copied, report.trees_refreshed, report.sessions, report.calls) == (0, 0, 0, 0)
        (copy, *_) = await whole_trees(backend)
        async with unchanged(other):
            assert (await other.write_whole_tree(copy)).state == "same"

    async def test_copying_again_brings_what_is_new(self, backend: Backend, other: Backend) -> None:
        session = await make_everything(backend)
        await copied(backend, other)
        await add(backend, session.id, user("more"), assistant("paid", tokens=11))
        await backend.fork(session.id, STORED, NewSession(id="new fork"))
        await backend.set_label(session.id, (await path_ids(backend, session.id))[0], None)
        report = await copied(backend, other)
        assert (report.trees_copied, report.trees_refreshed) == (0, 1)
        assert await told(other) == await told(backend)
        assert (await other.info()).ledger_rows == (await backend.info()).ledger_rows

    @pytest.mark.parametrize(
        "change", ["title", "metadata", "completed", "label", "link", "move", "undo", "retract", "append", "fork"]
    )
    async def test_every_change_is_brought(self, backend: Backend, other: Backend, change: str) -> None:
        session = await new_session(backend, *talk(2))
        first, leaf = await path_ids(backend, session.id)
        await copied(backend, other)
        match change:
            case "title":
                await backend.update_session(session.id, title="new")
            case "metadata":
                await backend.update_session(session.id, metadata_text='{"new":true}')
            case "completed":
                await backend.update_session(session.id, completed_us=7)
            case "label":
                await backend.set_label(session.id, first, "new")
            case "link":
                await backend.link_task(session.id, UNKNOWN, "new")
            case "move":
                await backend.move(session.id, first)
            case "undo":
                await backend.undo(session.id)
            case "retract":
                await backend.retract(session.id, leaf)
            case "append":
                await add(backend, session.id, user("new"))
            case "fork":
                await backend.fork(session.id, first, NewSession())
        assert (await copied(backend, other)).trees_refreshed == 1
        assert await told(other) == await told(backend)

    async def test_sessions_deleted_from_a_tree_go_from_its_copy_and_what_they_paid_stays(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend, *talk(2), key="k")
        one = await backend.fork(session.id, STORED, NewSession())
        (kept, _) = await add(backend, one.id, assistant("kept", tokens=3), assistant("lost", tokens=5))
        two = await backend.fork(one.id, kept, NewSession())
        await copied(backend, other)
        await backend.delete_tree(session.id)
        await backend.delete_tree(one.id)
        report = await copied(backend, other)
        assert set(report.removed_ids) == {session.id, one.id}
        assert await told(other) == await told(backend)
        assert (await other.info()).ledger_rows == 3
        assert (await copied(backend, other)).calls == 0
        await backend.delete_tree(two.id)
        await other.delete_tree(two.id)
        assert (await copied(backend, other)).calls == 0
        assert (await other.info()).ledger_rows == 3

    async def test_a_tree_deleted_since_is_reported_and_stays(self, backend: Backend, other: Backend) -> None:
        session, stays = await new_session(backend, *talk(2)), await new_session(backend, user())
        await copied(backend, other)
        await add(backend, session.id, assistant("not copied", tokens=9))
        await backend.delete_tree(session.id)
        report = await copied(backend, other)
        assert (report.only_in_target, report.only_in_target_ids, report.calls) == (1, (session.id,), 1)
        assert set(await told(other)) == {session.id, stays.id}
        await other.delete_tree(session.id)
        report = await copied(backend, other)
        assert (report.only_in_target, report.calls) == (0, 0)
        assert (await other.info()).ledger_rows == (await backend.info()).ledger_rows == 2

    async def test_a_tree_deleted_in_the_target_comes_again_with_what_it_paid(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend, *talk(4))
        await copied(backend, other)
        await other.delete_tree(session.id)
        report = await copied(backend, other)
        assert report.trees_copied == 1
        assert await told(other) == await told(backend)
        assert (await other.info()).ledger_rows == 2
        assert await other.list_gone_payers(-1, 10) == []

    async def test_a_session_deleted_before_it_was_copied_anew_takes_its_calls_along(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend, *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        (head,) = await backend.list_trees(-1, 10)
        await copied(backend, other)
        (kept,) = await add(backend, session.id, assistant("more", tokens=7))
        second = await backend.fork(session.id, kept, NewSession())
        await backend.delete_tree(session.id)
        # As if the copy had come as far as the ledger, having read the tree before the last steps.
        await other.write_gone_payers(await backend.list_gone_payers(-1, 10))
        await copied(backend, other)
        assert await told(other) == await told(backend)
        assert {each.payer.session_id for each in await other.list_gone_payers(-1, 10)} == {session.id}
        assert len(await other.list_gone_payers(-1, 10)) == 1
        assert {fork.id, second.id} == set(await told(other))
        assert (await backend.list_trees(-1, 10))[0].tree_id == head.tree_id

    # -- what is refused --------------------------------------------------------------------------------------------

    async def refused_to_write(self, source: Backend, target: Backend) -> SessionExists:
        """Return why the one tree of the source is refused; it changes nothing, and a copy reports the same."""
        (copy,) = await whole_trees(source)
        (standing,) = await target.compare_trees([copy.head])
        assert standing.state == "refused"
        async with refused(target, SessionExists) as caught:
            await target.write_whole_tree(copy)
        async with unchanged(target):
            report = await copy_store(Store(source), Store(target))
        assert [(each.session_id, each.reason) for each in report.refused] == [
            (caught.value.session, str(caught.value))
        ]
        assert not report.is_complete
        assert caught.value.session in str(caught.value)
        return caught.value

    async def test_another_session_of_the_same_id_is_left_alone(self, backend: Backend, other: Backend) -> None:
        await backend.create_session(NewSession(id="same"))
        await add(backend, "same", user("ours"))
        await other.create_session(NewSession(id="same"))
        assert "not a copy" in str(await self.refused_to_write(backend, other))
        await other.delete_tree("same")
        await copied(backend, other)

    async def test_a_key_that_is_taken_is_refused(self, backend: Backend, other: Backend) -> None:
        await new_session(backend, user(), key="k", scope="s")
        await other.create_session(NewSession(id="free", key="k"))
        await other.create_session(NewSession(id="holder", key="k", scope="s"))
        assert "'holder'" in str(await self.refused_to_write(backend, other))
        await other.delete_tree("holder")
        assert (await copied(backend, other)).only_in_target_ids == ("free",)

    @pytest.mark.parametrize("change", ["append", "title", "fork", "delete"])
    async def test_a_copy_that_was_changed_is_left_alone(self, backend: Backend, other: Backend, change: str) -> None:
        session = await new_session(backend, *talk(2), key="k")
        fork = await backend.fork(session.id, STORED, NewSession())
        await copied(backend, other)
        match change:
            case "append":
                await add(other, session.id, user("there"))
            case "title":
                await other.update_session(fork.id, title="there")
            case "fork":
                await other.fork(session.id, STORED, NewSession(id="another"))
            case "delete":
                await other.delete_tree(fork.id)
        await add(backend, session.id, user("here"), user("and here"))
        assert "has been changed in the target" in str(await self.refused_to_write(backend, other))
        for session_id in await told(other):
            await other.delete_tree(session_id)
        await copied(backend, other)
        assert await told(other) == await told(backend)

    async def test_a_source_that_was_set_back_is_refused(self, backend: Backend, other: Backend) -> None:
        session = await new_session(backend, *talk(2))
        before = await backend.read_whole_tree((await backend.list_trees(-1, 1))[0].tree_id)
        assert before is not None
        await add(backend, session.id, user("later"))
        await copied(backend, other)
        async with refused(other, SessionExists) as caught:
            await other.write_whole_tree(before)
        assert "later revision" in str(caught.value)
        await add(backend, session.id, user("latest"))
        (after,) = await whole_trees(backend)
        lost = next(entry.id for entry in after.entries if entry.depth == 2)
        other_way = [entry._replace(id="went-another-way") if entry.id == lost else entry for entry in after.entries]
        async with refused(other, SessionExists) as caught:
            await other.write_whole_tree(replace(after, entries=other_way))
        assert lost in str(caught.value)

    async def test_an_id_that_was_used_again_is_another_session(self, backend: Backend, other: Backend) -> None:
        for text in ("first", "second"):
            await backend.create_session(NewSession(id="again"))
            await add(backend, "again", user(text))
            if text == "first":
                await copied(backend, other)
                await backend.delete_tree("again")
        assert "another session" in str(await self.refused_to_write(backend, other))

    async def test_a_tree_that_is_several_in_the_target_is_refused(self, backend: Backend, other: Backend) -> None:
        session = await new_session(backend, user())
        (alone,) = await whole_trees(backend)
        fork = await backend.fork(session.id, None, NewSession())
        (both,) = await whole_trees(backend)
        forked = replace(both, sessions=[row for row in both.sessions if row.id == fork.id], lanes=[], entries=[])
        await other.write_whole_tree(alone)
        await other.write_whole_tree(forked)
        assert "several trees" in str(await self.refused_to_write(backend, other))

    async def test_a_paid_call_that_another_session_has_reported_is_refused(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend, placed(assistant("paid", tokens=3), "the-call"))
        await other.create_session(NewSession(id="theirs"))
        await add(other, "theirs", placed(assistant("paid", tokens=4), "the-call"))
        (copy,) = await whole_trees(backend)
        async with refused(other, SessionExists) as caught:
            await other.write_whole_tree(copy)
        assert "the-call" in str(caught.value)
        assert "'theirs'" in str(caught.value)
        await backend.delete_tree(session.id)
        async with unchanged(other):
            assert await other.write_gone_payers(await backend.list_gone_payers(-1, 10)) == 0

    async def test_the_others_are_copied_all_the_same(self, backend: Backend, other: Backend) -> None:
        sessions = [await new_session(backend, *talk(2)) for _ in range(5)]
        await other.create_session(NewSession(id=sessions[2].id))
        report = await copy_store(Store(backend), Store(other))
        assert [refusal.session_id for refusal in report.refused] == [sessions[2].id]
        assert report.trees_copied == 4
        with pytest.raises(EntryNotFound):
            await path_ids(other, sessions[2].id, (await path_ids(backend, sessions[2].id))[0])

    async def test_what_was_in_the_way_and_is_brought_up_to_date_first_is_no_longer_in_the_way(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend, user())
        await backend.fork(session.id, STORED, NewSession(id="fork", key="k"))
        await copied(backend, other)
        await backend.delete_tree("fork")
        await backend.create_session(NewSession(id="other", key="k"))
        await backend.create_session(NewSession(id="fork"))
        report = await copied(backend, other)
        assert report.removed_ids == ("fork",)
        assert await told(other) == await told(backend)
