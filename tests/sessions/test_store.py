"""What a store makes, finds, lists, links, imports and deletes."""

from __future__ import annotations

import asyncio

import pytest

import flue_py
from flue_py import AmbiguousId, InvalidArgument, InvalidEntry, NewSession, SessionExists, SessionNotFound, Store
from flue_py.core.entries import NewEntry
from flue_py.core.sessions import SessionInfo
from flue_py.db.backend import Backend
from flue_py.db.sqlite.runner import MemoryRunner
from tests.sessions.talk import say, user
from tests.sources import counted_sources
from tests.tables import inputs

pytestmark = pytest.mark.anyio


async def test_a_key_is_looked_up_made_and_found_again(store: Store) -> None:
    with pytest.raises(SessionNotFound, match="get_or_create"):
        await store.open_session("triage")
    made = await store.open_session("triage", mode="create", title="Red build", metadata={"x": 1}, cwd="/w")
    with pytest.raises(SessionExists):
        await store.open_session("triage", mode="create")
    for found in (await store.open_session("triage"), await store.open_session("triage", mode="get_or_create")):
        assert found.id == made.id
        assert (found.title, found.metadata, found.info.cwd) == ("Red build", {"x": 1}, "/w")


async def test_an_empty_key_is_a_key_and_no_key_is_none(store: Store) -> None:
    empty = await store.open_session("", mode="create")
    assert (await store.open_session("")).id == empty.id
    keyless = [await store.create_session() for _ in range(2)]
    assert len({session.id for session in keyless}) == 2


async def test_what_is_no_key_or_mode_is_refused(store: Store) -> None:
    with pytest.raises(InvalidArgument, match="key"):
        await store.open_session(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="mode"):
        await store.open_session("k", mode="upsert")  # type: ignore[arg-type]
    for key in ("a\0b", "half \ud83d"):
        with pytest.raises(InvalidArgument, match="key"):
            await store.open_session(key, mode="get_or_create")
    with pytest.raises(InvalidEntry, match=r"metadata\.x"):
        await store.create_session(metadata={"x": float("nan")})
    assert (await store.list_sessions()).sessions == ()


async def test_however_many_race_to_open_a_key_there_is_one_session(store: Store) -> None:
    opened = await asyncio.gather(*(store.open_session("k", mode="get_or_create") for _ in range(20)))
    assert len({session.id for session in opened}) == 1
    assert len((await store.list_sessions()).sessions) == 1


class LateLook(Backend):
    """A store in which somebody else is always a little faster: a key is taken just after it was found free."""

    async def get_session_by_key(self, key: str, scope: str) -> SessionInfo | None:
        found = await super().get_session_by_key(key, scope)
        if found is None:
            await super().create_session(NewSession(key=key, scope=scope, title="theirs"))
        return found


async def test_whoever_loses_the_race_gets_the_winners_session(anyio_backend: str) -> None:
    store = Store(LateLook(MemoryRunner(), counted_sources()))
    assert (await store.open_session("k", mode="get_or_create", title="mine")).title == "theirs"


class NeverThere(Backend):
    """A store in which a taken key is never found: whoever has it is deleted as soon as one looks."""

    async def get_session_by_key(self, key: str, scope: str) -> SessionInfo | None:
        return None


async def test_a_race_that_cannot_be_won_ends(anyio_backend: str) -> None:
    store = Store(NeverThere(MemoryRunner(), counted_sources()))
    await store.create_session(key="k")
    with pytest.raises(SessionExists):
        await store.open_session("k", mode="get_or_create")


# -- ids ----------------------------------------------------------------------------------------------------------


async def test_a_session_is_found_by_its_id_or_the_beginning_of_it(store: Store) -> None:
    for session_id in ("alpha-1", "alpha-2", "beta", "betamax"):
        await store.create_session(id=session_id, scope=session_id[:1])
    assert (await store.find_session("alpha-1")).id == "alpha-1"
    assert (await store.find_session("betam")).id == "betamax"
    assert (await store.find_session("beta")).id == "beta"
    with pytest.raises(AmbiguousId) as caught:
        await store.find_session("alpha")
    assert caught.value.matches == ("alpha-1", "alpha-2")
    # The beginning of a task session's id is its parent's: that one is meant, until more is said.
    await store.create_session(id="alpha-2:s1")
    assert (await store.find_session("alpha-2")).id == "alpha-2"
    await store.create_session(id="delta-2")
    await store.create_session(id="delta-2:s1")
    assert (await store.find_session("del")).id == "delta-2"
    assert (await store.find_session("delta-2:")).id == "delta-2:s1"
    with pytest.raises(AmbiguousId):
        await store.find_session("bet")
    with pytest.raises(SessionNotFound):
        await store.find_session("gamma")
    with pytest.raises(SessionNotFound):
        await store.find_session("")
    with pytest.raises(InvalidArgument, match="name: should be the id or key of a session, not NoneType"):
        await store.find_session(None)  # type: ignore[arg-type]


async def test_a_shortened_id_is_looked_up_in_the_scope_that_is_named(store: Store) -> None:
    await store.create_session(id="alpha-1", scope="me")
    await store.create_session(id="alpha-2", scope="you")
    assert (await store.find_session("alpha", scope="me")).id == "alpha-1"
    for prefix in ("alpha", "alpha-1"):
        with pytest.raises(SessionNotFound):
            await store.find_session(prefix, scope="them")


# -- listing ------------------------------------------------------------------------------------------------------


@inputs("limit", [0, -1, 1001, True, 1.5, "10", None])
async def test_a_page_holds_1_to_1000_sessions(store: Store, limit: object) -> None:
    with pytest.raises(InvalidArgument, match="limit"):
        await store.list_sessions(limit=limit)  # type: ignore[arg-type]


async def test_what_is_no_kind_or_cursor_is_refused(store: Store) -> None:
    with pytest.raises(InvalidArgument, match="kind"):
        await store.list_sessions(kind="branch")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        await store.list_sessions(cursor="nonsense")


# -- importing ----------------------------------------------------------------------------------------------------


async def test_an_import_that_fails_leaves_nothing_behind(store: Store) -> None:
    from msgspec.structs import replace

    orphan = replace(NewEntry.message(user("x")), id="x", parent_id="missing")
    with pytest.raises(flue_py.EntryNotFound):
        await store.import_session(NewSession(key="k"), [orphan], leaf="x")
    assert (await store.list_sessions()).sessions == ()
    await store.create_session(key="k")
    with pytest.raises(SessionExists):
        await store.import_session(NewSession(key="k"), [], leaf=None)


# -- tasks and deletion -------------------------------------------------------------------------------------------


async def test_links_are_bare_and_may_lead_anywhere(store: Store) -> None:
    one, two = await store.create_session(), await store.create_session()
    await store.link_task(one, two, task_id="t")
    await store.link_task(two.id, one.id, task_id="back")
    await store.link_task(one, "never-made", task_id="gone")
    await store.link_task(one, two, task_id="again")
    assert [(link.child_id, link.task_id) for link in await one.tasks.links()] == [
        (two.id, "t"),
        ("never-made", "gone"),
    ]
    with pytest.raises(SessionNotFound):
        await store.link_task("missing", one, task_id="t")
    with pytest.raises(InvalidArgument):
        await store.link_task(one, None, task_id="t")  # type: ignore[arg-type]


async def test_a_session_in_another_scope_is_not_deleted(store: Store) -> None:
    session = await store.create_session(scope="me")
    assert (await store.delete_session_tree(session, scope="you")).session_ids == ()
    assert await store.get_session(session.id) is not None


async def test_a_store_tells_what_it_holds(store: Store) -> None:
    session = await store.create_session()
    await say(session, "a", "b")
    info = await store.info()
    assert (info.sessions, info.entries) == (1, 2)
    assert (await store.verify()).entries == 2
