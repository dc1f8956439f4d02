"""The contract: a session was last active at the time of its newest entry, or when it was made."""

from __future__ import annotations

from flue_py.core.sessions import NewSession, Ordering, SessionInfo
from flue_py.core.usage import PaidCall, UsageTotals
from flue_py.db.backend import Backend
from tests.samples import add, new_session, path_of, placed, session_info, talk, user


async def newest_of(backend: Backend, session: SessionInfo) -> int:
    """Return the time of a session's newest entry on its path."""
    return max(entry.created_us for entry in await path_of(backend, session.id))


class ActivityContract:
    """The time of last activity."""

    async def test_a_session_without_entries_was_last_active_when_it_was_made(self, backend: Backend) -> None:
        session = await new_session(backend)
        assert session.active_us == session.created_us
        old = await backend.create_session(NewSession(created_us=5))
        assert (old.created_us, old.active_us) == (5, 5)
        fork = await backend.fork((await new_session(backend, *talk(2))).id, None, NewSession())
        assert fork.active_us == fork.created_us

    async def test_an_append_counts_and_what_adds_no_entry_does_not(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        active = await newest_of(backend, session)
        assert session.active_us == active > session.created_us
        await backend.update_session(session.id, title="later")
        await backend.move(session.id, None)
        await backend.record_call(session.id, PaidCall(UsageTotals(total_tokens=3), call_id="c"))
        later = await session_info(backend, session.id)
        assert (later.active_us, later.updated_us > active) == (active, True)
        await add(backend, session.id, user())
        assert (await session_info(backend, session.id)).active_us == await newest_of(backend, session) > active

    async def test_a_retracted_entry_was_activity_all_the_same(self, backend: Backend) -> None:
        session = await new_session(backend)
        (failed,) = await add(backend, session.id, user())
        active = (await session_info(backend, session.id)).active_us
        assert active > session.created_us
        assert await backend.retract(session.id, failed)
        assert (await session_info(backend, session.id)).active_us == active
        await backend.import_entries(session.id, [placed(user(), "old", at_us=5)], leaf="old")
        assert (await session_info(backend, session.id)).active_us == active

    async def test_an_imported_session_was_last_active_when_its_newest_entry_says(self, backend: Backend) -> None:
        entries = [placed(user(), "a", at_us=70), placed(user(), "b", "a", 90), placed(user(), "c", "b", 80)]
        session = await backend.import_session(NewSession(), entries, leaf="c")
        assert (session.active_us, session.created_us > 90) == (90, True)
        await backend.import_entries(session.id, [placed(user(), "d", "c", 60)], leaf="d")
        assert (await session_info(backend, session.id)).active_us == 90
        await backend.import_entries(session.id, [placed(user(), "e", "d", 95)], leaf="e")
        assert (await session_info(backend, session.id)).active_us == 95
        await add(backend, session.id, user())
        assert (await session_info(backend, session.id)).active_us == await newest_of(backend, session) > 95

    async def test_an_import_of_nothing_is_no_activity_and_one_from_before_1970_is(self, backend: Backend) -> None:
        session = await new_session(backend)
        await backend.import_entries(session.id, [], leaf=None)
        assert (await session_info(backend, session.id)).active_us == session.created_us
        old = await backend.import_session(NewSession(), [placed(user(), "a", at_us=-7)], leaf="a")
        assert old.active_us == -7
        assert (await backend.verify()).problems == []

    async def test_sessions_are_listed_by_it(self, backend: Backend) -> None:
        first, second = await new_session(backend, user()), await new_session(backend, user())
        old = await backend.import_session(NewSession(), [placed(user(), "a", at_us=7)], leaf="a")
        await backend.update_session(first.id, title="changed last")
        for descending, expected in ((True, [second, first, old]), (False, [old, first, second])):
            page = await backend.list_sessions(
                scope=None, kind=None, limit=9, cursor=None, ordering=Ordering("activity", descending)
            )
            assert [info.id for info in page.sessions] == [info.id for info in expected]
