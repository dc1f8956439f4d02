"""Another key for a store: while others go on, and whatever the moment at which it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

import flue_py
import flue_py.sync
from flue_py import STORED, FileWitness, Witness
from flue_py.core.chain import Chain
from flue_py.db.backend import Key, KeyedRunner
from flue_py.errors import WrongKey
from tests.checks import raises
from tests.tables import inputs

KEY, NEW, THIRD = (letter * 32 for letter in (b"k", b"n", b"t"))
CHANGES: list[tuple[Key | None, Key | None]] = [(None, NEW), (KEY, NEW), (KEY, None)]
TREES = 3
ENTRIES = 4


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def made(place: str, key: Key | None, *, trees: int = TREES, witness: Witness | None = None) -> list[str]:
    """Make a store of some trees, one with two forks; return the ids of their first sessions."""
    async with flue_py.open(place, key=key, witness=witness) as store:
        sessions = [await store.create_session() for _ in range(trees)]
        for session in sessions:
            await session.append_message(message("hello"))
            await session.append_message(message("more " * 3_000))
        for entry in await sessions[0].get_tree():
            fork = await sessions[0].fork(at=entry.id)
            await fork.append_message(message("beside"))
        return [session.id for session in sessions]


async def check(place: str, key: Key | None, ids: list[str], count: int) -> None:
    """Check that a store is whole, and has this key and no other."""
    async with flue_py.open(place, key=key) as store:
        assert not (await store.verify()).problems
        assert (await store.info()).entries == count
        for session_id in ids:
            session = await store.find_session(session_id)
            await session.append_message(message("after"))
            assert (await session.build_context())[0]["content"] == "hello"
        assert not (await store.verify()).problems


@inputs("before, after", CHANGES)
async def test_a_key_is_given_changed_and_taken_away(
    new_place: Callable[[], str], before: Key | None, after: Key | None
) -> None:
    where = new_place()
    ids = await made(where, before)
    async with flue_py.open(where, key=before) as store:
        told: list[tuple[int, int]] = []
        done = await store.rekey(after, progress=lambda *now: told.append(now))
        assert (done.trees, done.entries) == (TREES, 2 * TREES + 2)
        assert told == [(number, TREES) for number in range(1, TREES + 1)]
        again = await store.rekey(after)
        assert (again.before, again.trees) == (done.after, 0)
        session = await store.find_session(ids[0])
        await session.append_message(message("by who changed it"))
    for key in {before, THIRD} - {after}:
        with pytest.raises(WrongKey):
            async with flue_py.open(where, key=key):
                pass
    await check(where, after, ids, 2 * TREES + 3)


@inputs("before, after", CHANGES)
async def test_others_who_have_both_keys_go_on_meanwhile(
    new_place: Callable[[], str], before: Key | None, after: Key | None
) -> None:
    where = new_place()
    ids = await made(where, before)
    both = [after, before] if before is None else [before, after]
    async with (
        flue_py.open(where, key=both) as other,
        flue_py.open(where, key=before) as lacking,
        flue_py.open(where, key=before) as store,
    ):
        others, theirs = [await other.find_session(name) for name in ids], await lacking.find_session(ids[0])
        written = 0

        async def go_on() -> None:
            nonlocal written
            for session in others:
                await session.append_message(message("meanwhile"))
                assert (await session.build_context())[-1]["content"] == "meanwhile"
                written += 1
            assert not (await other.verify()).problems

        await go_on()
        await theirs.refresh()
        await theirs.append_message(message("last"))
        await others[0].refresh()
        # Between any two of its transactions, of which the first has stated both keys.
        rekey = store.backend._runner._state  # type: ignore[attr-defined]

        async def state(stated: Any) -> None:
            await rekey(stated)
            await go_on()
            await raises(WrongKey, theirs.append_message(message("by a former key"), expected_leaf=STORED))

        store.backend._runner._state = state  # type: ignore[method-assign]
        await store.rekey(after)
        await go_on()
        fork = await others[0].fork()
        await fork.append_message(message("by a fork"))
        await raises(WrongKey, lacking.create_session())
        await raises(WrongKey, theirs.build_context())
    await check(where, after, ids, 2 * TREES + 2 + written + 2)


async def test_a_list_read_by_a_former_key_is_refused_not_named_as_damaged(new_place: Callable[[], str]) -> None:
    where = new_place()
    ids = await made(where, KEY)
    async with flue_py.open(where, key=KEY) as lacking, flue_py.open(where, key=[KEY, NEW]) as store:
        async with flue_py.open(where, key=KEY) as other:
            await other.rekey(NEW)
        # All of them at once, of which one is the first to look which key it is.
        pages = await asyncio.gather(*(store.list_sessions() for _ in range(6)))
        assert [page.damaged for page in pages] == 6 * [()]
        assert all({info.id for info in page.sessions} >= {*ids} for page in pages)
        sessions = [await store.find_session(name) for name in ids]
        async with flue_py.open(where, key=NEW) as other:
            await other.rekey(KEY)
        contexts = await asyncio.gather(*(session.build_context() for session in 2 * sessions))
        assert {str(context[0]["content"]) for context in contexts} == {"hello"}
        async with flue_py.open(where, key=KEY) as other:
            await other.rekey(NEW)
        await raises(WrongKey, lacking.list_sessions())


class Death(BaseException):
    """A process that ends."""


async def test_who_ends_between_two_trees_leaves_a_store_for_both_keys(new_place: Callable[[], str]) -> None:
    where = new_place()
    ids = await made(where, KEY)

    def die(trees: int, _: int) -> NoReturn:
        raise Death(trees)

    async with flue_py.open(where, key=KEY) as store:
        with suppress(Death):
            await store.rekey(NEW, progress=die)
    names = [f"{Chain(key).fingerprint % 2**64:016x}" for key in (KEY, NEW)]
    for key in (KEY, NEW, None):
        with pytest.raises(WrongKey, match=f"is changing from key {names[0]} to key {names[1]}.*run flue-py rekey"):
            async with flue_py.open(where, key=key):
                pass
    async with flue_py.open(where, key=[KEY, NEW, THIRD]) as store:
        assert not (await store.verify()).problems
        session = await store.find_session(ids[-1])
        await session.append_message(message("between"))
        await raises(WrongKey, store.rekey(THIRD), match="complete that")
        assert (await store.rekey(NEW)).trees == TREES
    await check(where, NEW, ids, 2 * TREES + 3)


@pytest.mark.thorough(but=["file"])
async def test_processes_that_are_killed_behind_each_commit_are_followed_by_one_that_completes_it(
    new_place: Callable[[], str], tmp_path: Path
) -> None:
    """Each between a commit and the witness, which has not seen its heads then."""
    where, heads = new_place(), FileWitness(tmp_path / "heads")
    ids = await made(where, KEY, trees=1, witness=heads)
    commits = 1
    while death_of(where, commits, heads) == -signal.SIGKILL:
        async with flue_py.open(where, key=[KEY, NEW], witness=heads) as store:
            assert not (await store.verify()).problems
            for session in [await store.find_session(name) for name in ids]:
                assert (await session.build_context())[0]["content"] == "hello"
                if commits in (1, 3):
                    await session.append_message(message("between"))
                if commits == 3:
                    # It has its new digest then, and what the fork has below it has not.
                    await session.redact((await session.get_active_path())[1].id, "by request")
        commits += 1
    assert commits > 10
    async with flue_py.open(where, key=NEW, witness=heads) as store:
        assert not (await store.verify()).problems
        assert (await store.info()).entries == ENTRIES + 2 * len(ids)


def death_of(where: str, commits: int, witness: FileWitness) -> int:
    """Return how a process ends that changes the key of a store, and is killed behind a commit."""
    child = os.fork()
    if not child:
        rekey_until(where, commits, witness)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def rekey_until(where: str, commits: int, witness: FileWitness) -> NoReturn:
    """Change the key of a store in the smallest parts, and be killed behind a commit."""
    left, write = iter(range(commits - 1, -1, -1)), KeyedRunner.write

    async def killed(self: KeyedRunner, *work: Any, **options: Any) -> Any:
        result = await write(self, *work, **options)
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    KeyedRunner.rekeyed_at_once = 1
    try:
        with flue_py.sync.open(where, key=[KEY, NEW], witness=witness) as store:
            KeyedRunner.write = killed  # type: ignore[method-assign]
            store.rekey(NEW)
    finally:
        os._exit(0)


async def test_a_damaged_entry_stays_damaged(tmp_path: Path) -> None:
    await made(str(tmp_path / "s.db"), KEY)
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.execute("UPDATE entries SET role = 'system' WHERE tree_id = 1 AND depth = 0")
        connection.commit()
    async with flue_py.open(tmp_path / "s.db", key=KEY) as store:
        before = [str(problem) for problem in (await store.verify()).problems]
        assert "damaged entry" in str(before)
        await store.rekey(NEW)
        assert [str(problem) for problem in (await store.verify()).problems] == before
