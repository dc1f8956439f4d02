"""The contract: sessions are listed in every order, page by page, and filtered, as the store in memory does it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flue_py.core.json import encode_json
from flue_py.core.sessions import (
    ANY_SESSION,
    ORDERS,
    SLOT_BITS,
    NewSession,
    Ordering,
    Scalar,
    SessionFilter,
    SessionInfo,
    SessionOrder,
    sort_value,
)
from flue_py.db.backend import Backend
from flue_py.db.sqlite.runner import open_memory
from flue_py.errors import InvalidArgument
from tests.checks import Refusals, refused
from tests.samples import add, assistant, new_session, session_info, talk, user
from tests.sources import START_US, counted_sources

TITLES = ("b", "B", "ä", "a", "", None, "日本", "z" * 300, "z" * 300 + "a", "%", "a_c", "🚨", "\uffff")


async def make_sessions(backend: Backend) -> None:
    """Make sessions that differ, and some that are alike, in everything that is listed."""
    for number, title in enumerate(TITLES):
        scope, cwd = ("", "other")[number % 2], (None, "/work", "/home")[number % 3]
        session = await backend.create_session(
            NewSession(title=title, scope=scope, cwd=cwd, key=f"key {number}" if number % 4 else None)
        )
        await add(backend, session.id, *talk(number % 5), user(f"Question {number}"))
        if number % 3 == 0:
            await backend.update_session(session.id, auto_title=f"About {'XYZ'[number % 2]} {number}")
        if number % 4 == 0:
            await add(backend, session.id, assistant(tokens=1000 + number % 3, dollars=number / 4))
            await backend.update_session(session.id, completed_us=number)
    source = await new_session(backend, *talk(2))
    await backend.fork(source.id, source.leaf_id, NewSession(title="a", created_us=START_US - 5))
    await backend.create_task(source.id, "t", NewSession(created_us=START_US + 10**9))


WHERES = (
    SessionFilter(title="b"),
    SessionFilter(title="ABOUT x"),
    SessionFilter(title="question 1"),
    SessionFilter(title="%"),
    SessionFilter(title="Ä"),
    SessionFilter(title=""),
    SessionFilter(title="nowhere"),
    SessionFilter(key="key 5"),
    SessionFilter(key="no such key"),
    SessionFilter(cwd="/work"),
    SessionFilter(completed=True),
    SessionFilter(completed=False),
    SessionFilter(title="a", cwd="/work", completed=False),
)


async def made_in_memory() -> Backend:
    """Return a store in memory with the same sessions."""
    backend = open_memory(counted_sources())
    await make_sessions(backend)
    return backend


async def every_page(
    backend: Backend, ordering: Ordering, where: SessionFilter = ANY_SESSION, limit: int = 100
) -> list[SessionInfo]:
    """Return all pages of a listing, one after the other."""
    found: list[SessionInfo] = []
    cursor = None
    while True:
        page = await backend.list_sessions(
            scope=None, kind=None, limit=limit, cursor=cursor, where=where, ordering=ordering
        )
        assert len(page.sessions) <= limit
        found += page.sessions
        cursor = page.next_cursor
        if cursor is None:
            return found
        assert len(page.sessions) == limit


class ListingContract:
    """Orders, filters, cursors and titles."""

    async def test_every_order_is_that_of_the_model_in_both_directions(self, backend: Backend) -> None:
        await make_sessions(backend)
        model = await made_in_memory()
        for order in ORDERS:
            for descending in (True, False):
                ordering = Ordering(order, descending)
                found = await every_page(backend, ordering)
                assert [info.id for info in found] == [info.id for info in await every_page(model, ordering)], ordering
                values = [(sort_value(info, order), info.id) for info in found]
                assert values == sorted(values, reverse=descending), ordering
                assert len({value for value, _ in values}) > 3

    async def test_pages_join_without_a_gap_in_every_order(self, backend: Backend) -> None:
        await make_sessions(backend)
        for order in ORDERS:
            for descending in (True, False):
                whole = await every_page(backend, Ordering(order, descending))
                assert await every_page(backend, Ordering(order, descending), limit=4) == whole

    async def test_sessions_are_in_the_order_of_their_last_activity_to_the_microsecond(self, backend: Backend) -> None:
        slot = 1 << SLOT_BITS
        start = START_US // slot * slot
        offsets = (0, slot - 1, 1, slot, -1, slot + 1, 2, -slot, slot - 1, 3 * slot, 0)
        made = [await backend.create_session(NewSession(created_us=start + offset)) for offset in offsets]
        for number, at in ((0, start + 1), (1, start - 2 * slot), (2, start + slot), (2, start + 2), (7, start + 7)):
            entry = replace(user("."), created_us=at)
            await backend.import_entries(made[number].id, [entry], leaf=None)
        times = {made[number].id: start + offset for number, offset in enumerate(offsets)}
        times |= {made[0].id: start + 1, made[1].id: start - 2 * slot, made[2].id: start + slot, made[7].id: start + 7}
        numbers = {info.id: number for number, info in enumerate(made)}
        for descending in (True, False):
            expected = sorted(times, key=lambda each: (times[each], numbers[each]), reverse=descending)
            for limit in (100, 1, 3):
                found = await every_page(backend, Ordering("activity", descending), limit=limit)
                assert [info.id for info in found] == expected
                assert [info.active_us for info in found] == [times[each] for each in expected]
        assert (await backend.verify()).problems == []

    async def test_every_filter_finds_what_the_model_finds(self, backend: Backend) -> None:
        await make_sessions(backend)
        model = await made_in_memory()
        for number, where in enumerate(WHERES):
            ordering = Ordering(ORDERS[number % len(ORDERS)], descending=number % 2 == 0)
            found = await every_page(backend, ordering, where, limit=6)
            assert found == [info for info in await every_page(backend, ordering) if where.matches(info)], where
            in_memory = await every_page(model, ordering, where)
            assert [info.id for info in found] == [info.id for info in in_memory], where

    async def test_what_no_store_can_hold_is_found_nowhere(self, backend: Backend) -> None:
        await make_sessions(backend)
        for text in ("\0", "\ud800"):
            for where in (SessionFilter(title=text), SessionFilter(key=text), SessionFilter(cwd=text)):
                assert await every_page(backend, Ordering(), where) == []

    async def test_scope_and_kind_go_with_every_order(self, backend: Backend) -> None:
        await make_sessions(backend)
        for order in ORDERS:
            everything = await every_page(backend, Ordering(order))
            page = await backend.list_sessions(
                scope="other", kind="root", limit=100, cursor=None, ordering=Ordering(order)
            )
            assert list(page.sessions) == [info for info in everything if (info.scope, info.kind) == ("other", "root")]

    @pytest.mark.parametrize("order", ["updated", "title", "cost"])
    async def test_a_cursor_of_another_order_is_refused(self, backend: Backend, order: SessionOrder) -> None:
        for _ in range(3):
            await new_session(backend)
        page = await backend.list_sessions(scope=None, kind=None, limit=2, cursor=None, ordering=Ordering(order))
        refusals = Refusals(backend)
        for other in ORDERS:
            for descending in (True, False):
                if (other, descending) == (order, True):
                    continue
                async with refusals.refused(InvalidArgument):
                    await backend.list_sessions(
                        scope=None, kind=None, limit=2, cursor=page.next_cursor, ordering=Ordering(other, descending)
                    )

    async def test_a_session_that_comes_later_is_met_where_it_belongs(self, backend: Backend) -> None:
        for number in range(4):
            await new_session(backend, *talk(2 * number + 2))
        ordering = Ordering("messages", descending=False)
        first = await backend.list_sessions(scope=None, kind=None, limit=2, cursor=None, ordering=ordering)
        await new_session(backend, *talk(1))
        new = await new_session(backend, *talk(7))
        second = await backend.list_sessions(
            scope=None, kind=None, limit=9, cursor=first.next_cursor, ordering=ordering
        )
        assert [info.message_count for info in first.sessions + second.sessions] == [2, 4, 6, 7, 8]
        assert new in second.sessions

    async def test_scopes_and_their_beginnings_are_found_in_every_order(self, backend: Backend) -> None:
        last = "user\U0010ffff"
        scopes = ("", "user", "user-1", "user-1", "user-2", last, f"{last}\U0010ffffz", "usf", "ä", "%")
        for number, scope in enumerate(scopes):
            session = await backend.create_session(NewSession(scope=scope, title=str(number % 3)))
            await add(backend, session.id, *talk(number % 4))
        asked = (
            SessionFilter(scopes=("user-1", "ä", "nobody", "\0", "\ud800")), SessionFilter(scopes=()),
            SessionFilter(scopes=("", "user-2")), SessionFilter(scope_prefix="user"), SessionFilter(scope_prefix=""),
            SessionFilter(scope_prefix="user-"), SessionFilter(scope_prefix="user\U0010ffff"),
            SessionFilter(scope_prefix="%"), SessionFilter(scope_prefix="u", scopes=("usf", "ä"), title="1"),
        )  # fmt: skip
        for order in ORDERS:
            everything = await every_page(backend, Ordering(order))
            for where in asked:
                expected = [info for info in everything if where.matches(info)]
                assert await every_page(backend, Ordering(order), where, limit=2) == expected, where
        assert [len(await every_page(backend, Ordering(), where)) for where in asked] == [3, 0, 2, 6, 10, 3, 2, 1, 1]
        page = await backend.list_sessions(scope="user-1", kind=None, limit=9, cursor=None, where=asked[0])
        assert {info.scope for info in page.sessions} == {"user-1"}
        assert await every_page(backend, Ordering(), SessionFilter(scope_prefix="\ud800")) == []

    async def test_metadata_are_compared_as_json_compares_them(self, backend: Backend) -> None:
        made: tuple[dict[str, object], ...] = (
            {"user": "ada", "n": 1}, {"user": "ada", "n": 1.0}, {"user": "ada", "n": True}, {"user": "Ada"},
            {"nested": {"user": "ada", "n": 1}}, {"user": None}, {"user": ["ada"]}, {},
            {"user": 'a"d\\a', 'ä"': "\x7f"}, {"user": "\u0000"}, {"text": '"user":"ada"'},
            {"user": "ada", "n": False, "x": "日本"},
        )  # fmt: skip
        texts = [encode_json(metadata, "metadata")[0] for metadata in made]
        numbers = {
            (await backend.create_session(NewSession(metadata_text=text))).id: number
            for number, text in enumerate(texts)
        }
        asked: list[tuple[tuple[tuple[str, Scalar], ...], set[int]]] = [
            ((("user", "ada"),), {0, 1, 2, 11}),
            ((("n", 1),), {0}),
            ((("n", 1.0),), {1}),
            ((("n", True),), {2}),
            ((("n", False),), {11}),
            ((("user", "ada"), ("n", 1)), {0}),
            ((("user", "ada"), ("x", "日本")), {11}),
            ((("user", None),), {5}),
            ((("user", 'a"d\\a'), ('ä"', "\x7f")), {8}),
            ((("user", "\u0000"),), {9}),
            ((("nobody", None),), set()),
            ((), set(range(len(made)))),
        ]
        for pairs, expected in asked:
            where = SessionFilter(metadata=pairs)
            for order in ORDERS:
                found = await every_page(backend, Ordering(order), where, limit=2)
                assert {numbers[info.id] for info in found} == expected, pairs
                assert len(found) == len(expected)
                assert found == [info for info in await every_page(backend, Ordering(order)) if where.matches(info)]

    async def test_metadata_that_few_have_are_found_behind_many_that_others_have(self, backend: Backend) -> None:
        for number in range(600):
            text = f'{{"number":{number},"even":{"true" if number % 2 == 0 else "false"}}}'
            await backend.create_session(NewSession(metadata_text=text))
        for number in (0, 299, 599):
            (one,) = await every_page(backend, Ordering(), SessionFilter(metadata=(("number", number),)))
            assert one.metadata["number"] == number
        where = SessionFilter(metadata=(("even", True),))
        found = await every_page(backend, Ordering("created", descending=False), where, limit=170)
        assert [info.metadata["number"] for info in found] == list(range(0, 600, 2))

    # -- titles -------------------------------------------------------------------------------------------------

    async def test_a_title_that_was_given_beats_one_that_was_made_whichever_came_later(self, backend: Backend) -> None:
        session = await new_session(backend, user("How it begins"))
        assert session.shown_title == "How it begins"
        assert (await backend.update_session(session.id, auto_title="Made")).shown_title == "Made"
        assert (await backend.update_session(session.id, title="Given")).shown_title == "Given"
        assert (await backend.update_session(session.id, auto_title="Made again")).shown_title == "Given"
        assert (await backend.update_session(session.id, title=None)).shown_title == "Made again"
        assert (await backend.update_session(session.id, title="", auto_title=None)).shown_title == "How it begins"
        info = await session_info(backend, session.id)
        assert (info.title, info.auto_title) == ("", None)

    async def test_a_made_title_counts_one_revision_and_nothing_else(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        updated = await backend.update_session(session.id, auto_title="Made")
        expected = replace(session, auto_title="Made", revision=2, updated_us=updated.updated_us)
        assert updated == expected == await session_info(backend, session.id)

    async def test_a_session_may_be_created_with_a_made_title(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession(auto_title="Made"))
        fork = await backend.fork(session.id, None, NewSession(auto_title="Made, too"))
        assert (session.auto_title, session.title, fork.auto_title) == ("Made", None, "Made, too")
        assert await session_info(backend, fork.id) == fork

    # -- metadata -----------------------------------------------------------------------------------------------

    async def test_metadata_are_edited_as_they_are_stored(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession(metadata_text='{"a":1}'))
        seen: list[str] = []

        def edit(stored: str) -> str:
            seen.append(stored)
            return '{"b":2}'

        assert (await backend.update_session(session.id, metadata_text=edit)).metadata == {"b": 2}
        assert set(seen) == {'{"a":1}'}

    async def test_an_edit_that_raises_changes_nothing(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession(metadata_text='{"a":1}'))

        def edit(_: str) -> str:
            raise InvalidArgument("metadata: too large")

        async with refused(backend, InvalidArgument):
            await backend.update_session(session.id, title="new", metadata_text=edit)
        assert (await session_info(backend, session.id)).title is None
