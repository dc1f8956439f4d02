"""The contract: sessions, their listing, and what may be changed about them."""

from __future__ import annotations

import pytest

from flue_py.core.sessions import NewSession, SessionInfo, SessionKind
from flue_py.db.backend import Backend
from flue_py.errors import InvalidArgument, SessionExists, SessionNotFound
from tests.checks import refused
from tests.samples import UNKNOWN, new_session, session_info, talk, user
from tests.sources import START_US, OpenBackend, counted_sources, repeating_sources


async def listed(backend: Backend, limit: int, scope: str | None = None) -> list[SessionInfo]:
    """Return all pages of the listing, one after the other."""
    sessions: list[SessionInfo] = []
    cursor = None
    while True:
        page = await backend.list_sessions(scope=scope, kind=None, limit=limit, cursor=cursor)
        assert len(page.sessions) <= limit
        sessions += page.sessions
        cursor = page.next_cursor
        if cursor is None:
            return sessions


class SessionContract:
    """Creating, finding, listing and updating sessions."""

    async def test_a_created_session_is_an_empty_root_at_revision_zero(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession())
        assert (session.kind, session.leaf_id, session.revision) == ("root", None, 0)
        assert (session.key, session.title, session.scope, session.metadata_text) == (None, None, "", "{}")
        assert (session.forked_from_session, session.forked_from_entry) == (None, None)
        assert (session.entry_count, session.message_count, session.first_message) == (0, 0, None)
        assert (session.spent_tokens, session.spent_picodollars) == (0, 0)
        assert (session.completed_us, session.trashed_us) == (None, None)
        assert session.created_us >= START_US
        assert await backend.changes(session.id, 0, 10) == []

    async def test_a_session_keeps_what_it_was_created_with(self, backend: Backend) -> None:
        new = NewSession(
            id="chosen",
            key="ключ/日本",
            title='Red "build" 🚨',
            scope="user-7",
            metadata_text='{"b":1,"a":{"z":null,"y":[1.5,"é"]}}',
            cwd="/srv/app",
            config_path="/srv/app/flue.toml",
            created_us=1_234_567,
        )
        session = await backend.create_session(new)
        assert session == await backend.get_session("chosen")
        assert (session.id, session.key, session.title, session.scope) == (new.id, new.key, new.title, new.scope)
        assert session.metadata_text == new.metadata_text
        assert (session.cwd, session.config_path, session.created_us) == (new.cwd, new.config_path, new.created_us)

    async def test_session_ids_are_made_where_none_is_given(self, backend: Backend) -> None:
        made = [(await backend.create_session(NewSession())).id for _ in range(3)]
        assert len({*made}) == 3
        assert all(made)

    async def test_a_generated_session_id_that_is_taken_is_asked_for_again(self, open_backend: OpenBackend) -> None:
        backend = await open_backend(repeating_sources(session_ids=["one", "one", "one", "two"]))
        first = await backend.create_session(NewSession())
        second = await backend.create_session(NewSession())
        assert (first.id, second.id) == ("one", "two")
        assert (await backend.verify()).problems == []
        await backend.close()

    async def test_a_taken_session_id_is_refused(self, backend: Backend) -> None:
        await backend.create_session(NewSession(id="taken"))
        async with refused(backend, SessionExists) as caught:
            await backend.create_session(NewSession(id="taken", key="other"))
        assert "'taken'" in str(caught.value)

    async def test_a_key_is_unique_within_its_scope(self, backend: Backend) -> None:
        here = await backend.create_session(NewSession(key="triage", scope="a"))
        async with refused(backend, SessionExists) as caught:
            await backend.create_session(NewSession(key="triage", scope="a"))
        assert "'triage'" in str(caught.value)
        there = await backend.create_session(NewSession(key="triage", scope="b"))
        assert await backend.get_session_by_key("triage", "a") == here
        assert await backend.get_session_by_key("triage", "b") == there

    async def test_a_key_may_be_the_empty_string(self, backend: Backend) -> None:
        await backend.create_session(NewSession(key=None))
        empty = await backend.create_session(NewSession(key=""))
        await backend.create_session(NewSession(key=None))
        assert await backend.get_session_by_key("", "") == empty
        async with refused(backend, SessionExists):
            await backend.create_session(NewSession(key=""))

    async def test_keys_that_differ_in_case_or_normal_form_are_different(self, backend: Backend) -> None:
        keys = ["triage", "Triage", "caf\u00e9", "cafe\u0301", " triage", "triage "]
        made = [await backend.create_session(NewSession(key=key)) for key in keys]
        assert [await backend.get_session_by_key(key, "") for key in keys] == made

    async def test_a_session_that_is_not_there_is_none(self, backend: Backend) -> None:
        await backend.create_session(NewSession(key="a", scope="x"))
        assert await backend.get_session(UNKNOWN) is None
        assert await backend.get_session("") is None
        assert await backend.get_session_by_key("b", "x") is None
        assert await backend.get_session_by_key("a", "") is None

    async def test_a_session_of_another_scope_is_none(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession(scope="a"))
        assert await backend.get_session(session.id, "a") == session
        assert await backend.get_session(session.id, None) == session
        assert await backend.get_session(session.id, "") is None
        assert await backend.get_session(session.id, "A") is None

    # -- listing ----------------------------------------------------------------------------------------------

    async def test_the_most_recently_changed_session_is_listed_first(self, backend: Backend) -> None:
        made = [await new_session(backend) for _ in range(3)]
        await backend.append(made[0].id, [user()])
        assert [session.id for session in await listed(backend, 10)] == [made[0].id, made[2].id, made[1].id]

    async def test_sessions_changed_at_the_same_time_are_listed_newest_first(self, open_backend: OpenBackend) -> None:
        backend = await open_backend(counted_sources(step_us=0))
        made = [(await new_session(backend)).id for _ in range(5)]
        await backend.append(made[1], [user()])
        for limit in (1, 2, 5, 6):
            assert [session.id for session in await listed(backend, limit)] == made[::-1]
        await backend.close()

    async def test_every_session_is_on_exactly_one_page_also_when_the_clock_runs_backwards(
        self, open_backend: OpenBackend
    ) -> None:
        backend = await open_backend(counted_sources(step_us=-7))
        made = [(await new_session(backend, user())).id for _ in range(7)]
        for limit in (1, 3, 7, 8):
            assert sorted(session.id for session in await listed(backend, limit)) == sorted(made)
        await backend.close()

    async def test_the_last_page_has_no_cursor(self, backend: Backend) -> None:
        empty = await backend.list_sessions(scope=None, kind=None, limit=3, cursor=None)
        assert (empty.sessions, empty.next_cursor) == ((), None)
        for _ in range(3):
            await new_session(backend)
        full = await backend.list_sessions(scope=None, kind=None, limit=3, cursor=None)
        assert (len(full.sessions), full.next_cursor) == (3, None)
        part = await backend.list_sessions(scope=None, kind=None, limit=2, cursor=None)
        assert len(part.sessions) == 2
        assert part.next_cursor is not None

    async def test_a_listing_tells_what_get_session_tells(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4), key="a", scope="x")
        assert await listed(backend, 10) == [session]
        assert session.entry_count == 4

    async def test_sessions_are_listed_by_scope_and_by_kind(self, backend: Backend) -> None:
        root = await new_session(backend, user(), scope="a")
        other = await new_session(backend, scope="b")
        fork = await backend.fork(root.id, root.leaf_id, NewSession())
        task = await backend.create_task(root.id, "t", NewSession())
        assert {session.id for session in await listed(backend, 2, scope="a")} == {root.id, fork.id, task.id}
        assert [session.id for session in await listed(backend, 2, scope="b")] == [other.id]
        assert await listed(backend, 2, scope="c") == []
        kinds: dict[SessionKind, set[str]] = {"root": {root.id, other.id}, "fork": {fork.id}, "task": {task.id}}
        for kind, wanted in kinds.items():
            page = await backend.list_sessions(scope=None, kind=kind, limit=9, cursor=None)
            assert {session.id for session in page.sessions} == wanted
        both = await backend.list_sessions(scope="b", kind="root", limit=9, cursor=None)
        assert [session.id for session in both.sessions] == [other.id]

    async def test_what_has_been_listed_stays_where_it_was_while_others_change(self, backend: Backend) -> None:
        made = [(await new_session(backend)).id for _ in range(6)]
        first = await backend.list_sessions(scope=None, kind=None, limit=3, cursor=None)
        await backend.append(made[0], [user()])
        second = await backend.list_sessions(scope=None, kind=None, limit=9, cursor=first.next_cursor)
        seen = [session.id for session in first.sessions + second.sessions]
        assert seen == [made[5], made[4], made[3], made[2], made[1]]

    @pytest.mark.parametrize("cursor", ["", "nonsense", "é", "AAAA", "-1", "bnVsbA==", "W10=", "\ud800", "1.2"])
    async def test_a_malformed_cursor_is_refused(self, backend: Backend, cursor: str) -> None:
        await new_session(backend)
        with pytest.raises(InvalidArgument):
            await backend.list_sessions(scope=None, kind=None, limit=3, cursor=cursor)

    async def test_session_ids_are_matched_by_prefix_in_order(self, backend: Backend) -> None:
        for session_id in ("ab2", "ab1", "AB3", "b", "a%c", "a_d", "aé"):
            await backend.create_session(NewSession(id=session_id))
        assert await backend.match_session_ids("ab", 9) == ["ab1", "ab2"]
        assert await backend.match_session_ids("a", 9) == ["a%c", "a_d", "ab1", "ab2", "aé"]
        assert await backend.match_session_ids("a", 2) == ["a%c", "a_d"]
        assert await backend.match_session_ids("a") == ["a%c", "a_d"]
        assert await backend.match_session_ids("a%", 9) == ["a%c"]
        assert await backend.match_session_ids("a_", 9) == ["a_d"]
        assert await backend.match_session_ids("ab1", 9) == ["ab1"]
        assert await backend.match_session_ids("ab11", 9) == []
        assert len(await backend.match_session_ids("", 9)) == 7

    # -- updating ---------------------------------------------------------------------------------------------

    async def test_an_update_changes_what_is_named_and_leaves_the_rest(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2), key="k")
        titled = await backend.update_session(session.id, title="Red build")
        described = await backend.update_session(session.id, metadata_text='{"x":1}')
        completed = await backend.update_session(session.id, completed_us=77)
        assert (titled.title, titled.metadata_text, titled.completed_us) == ("Red build", "{}", None)
        assert (described.title, described.metadata_text, described.completed_us) == ("Red build", '{"x":1}', None)
        assert (completed.title, completed.metadata_text, completed.completed_us) == ("Red build", '{"x":1}', 77)
        cleared = await backend.update_session(session.id, title=None, completed_us=None)
        assert (cleared.title, cleared.metadata_text, cleared.completed_us) == (None, '{"x":1}', None)
        assert cleared == await backend.get_session(session.id)
        assert (cleared.key, cleared.leaf_id, cleared.entry_count) == ("k", session.leaf_id, 2)

    async def test_an_update_counts_one_revision(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        updated = await backend.update_session(session.id, title="a", metadata_text="{}", completed_us=1)
        assert updated.revision == session.revision + 1
        assert updated.updated_us > session.updated_us
        (change,) = await backend.changes(session.id, session.revision, 10)
        assert (change.revision, change.reason, change.entries) == (updated.revision, None, ())
        assert (change.from_id, change.to_id) == (None, None)

    async def test_an_update_of_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        async with refused(backend, SessionNotFound) as caught:
            await backend.update_session(UNKNOWN, title="x")
        assert UNKNOWN in str(caught.value)

    # -- what the row counts ----------------------------------------------------------------------------------

    async def test_a_session_counts_what_it_added(self, backend: Backend) -> None:
        session = await new_session(backend, user("\n\n  first line \nsecond"), *talk(3))
        assert (session.entry_count, session.message_count, session.first_message) == (4, 4, "first line")
        fork = await backend.fork(session.id, session.leaf_id, NewSession())
        assert (fork.entry_count, fork.message_count) == (0, 0)
        await backend.append(fork.id, talk(2))
        assert (await session_info(backend, fork.id)).entry_count == 2
        assert (await session_info(backend, session.id)).entry_count == 4
