"""Redactions: valid contexts, forged tombstones, other keys, copies, rescues, and a process that is killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest

import flue_py
from flue_py import Session, Store
from flue_py.agents.harness import undo_last
from flue_py.core.erasure import is_tombstone
from flue_py.db.backend import Key
from flue_py.db.sqlite.file import Writer
from flue_py.errors import CorruptStore, InvalidArgument, StoreUnavailable
from flue_py.providers.base import LIMITS
from flue_py.transfer.copy import copy_store, read_bundle, salvage, write_bundle
from tests.checks import raises
from tests.tables import inputs

KEY, NEW = b"k" * 32, b"n" * 32
SECRET = "the code of the vault is 4711"
LINE = "[redacted by a person: by request]"
PARTS = [
    {"type": "thinking", "thinking": SECRET, "thinkingSignature": "c2ln"},
    {"type": "text", "text": SECRET},
    {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": SECRET}},
]
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": SECRET},
    {"role": "assistant", "content": PARTS, "provider": "anthropic", "model": "m", "usage": {"input": 3, "output": 4}},
    {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": [{"type": "text", "text": SECRET}]},
    {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    {"role": "user", "content": "Thanks."},
]


async def made(store: Store) -> tuple[Session, list[str]]:
    """Return a session, and its entries that have the secret."""
    session = await store.create_session()
    appended = await session.append_messages(MESSAGES)
    return session, [*appended.entry_ids[:3]]


async def redacted(store: Store) -> tuple[Session, list[str]]:
    session, ids = await made(store)
    await session.redact(ids, "by request", by="a person")
    return session, ids


async def check(store: Store) -> None:
    """Check that a store is whole, with the tombstones of `redacted` in it."""
    assert not (await store.verify()).problems
    (info,) = (await store.list_sessions()).sessions
    session = await store.find_session(info.id)
    path = await session.get_active_path()
    assert [is_tombstone(entry.kind, entry.payload) for entry in path[:5]] == [True] * 3 + [False] * 2
    assert SECRET not in json.dumps(await session.build_context())
    assert info.first_message == LINE
    await session.append_message({"role": "user", "content": "after"})


def files_with(folder: Path, words: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if words in file.read_bytes()]


@inputs("target", sorted(LIMITS))
async def test_a_context_with_tombstones_breaks_no_rule_of_a_provider(target: str) -> None:
    async with flue_py.open(":memory:") as store:
        session, _ = await redacted(store)
        validity = await session.context.validate(target)
        assert [fault for fault in validity.broken if fault.rule != "signatures"] == []
        assert validity.left == ()


@inputs("key", [None, KEY])
async def test_no_byte_of_it_is_in_any_file(tmp_path: Path, key: Key | None) -> None:
    async with flue_py.open(tmp_path / "s.db", key=key) as store:
        session, ids = await made(store)
        long = "".join(f"{SECRET} {number} " for number in range(3_000))
        (large,) = (await session.append_message({"role": "user", "content": long})).entry_ids
        other = await store.create_session()
        await other.append_message({"role": "user", "content": "something else"})
        await store.search("vault")
        done = await session.redact([*ids, large], "by request", by="a person")
        assert done.look is not None
        assert done.look.is_clean
        assert (done.look.run_bytes, done.look.stays) == (16, ())
        await other.build_context()
    assert files_with(tmp_path, b"something else") == ["s.db"]
    assert files_with(tmp_path, b"vault") == files_with(tmp_path, b"4711") == []


async def test_handles_that_have_read_it_before_see_the_tombstone(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "s.db") as store, flue_py.open(tmp_path / "s.db") as another:
        session, ids = await made(store)
        other = await another.find_session(session.id)
        for each in (session, other):
            await each.build_context()
            await each.get_active_path()
        before = session.revision
        await session.redact(ids, "by request", by="a person")
        for each in (session, other):
            assert SECRET not in str([await each.build_context(), await each.get_active_path()])
        assert (await session.log(limit=1))[0].why == "by request"
        assert [change.revision for change in await session.changes(after=before)] == [before + 1]


@inputs("numbers, first", [([1], LINE), ([2], "ok"), ([3], "ok"), ([0, 1], LINE)])
async def test_the_preview_goes_with_the_first_message_and_with_no_other_of_its_text(
    tmp_path: Path, numbers: list[int], first: str
) -> None:
    said: list[dict[str, Any]] = [{"role": "user", "content": "<environment_context>\n</environment_context>"}]
    said += [{"role": role, "content": "ok"} for role in ("user", "assistant", "user")]
    async with flue_py.open(tmp_path / "s.db") as store:
        session = await store.create_session()
        ids = (await session.append_messages(said)).entry_ids
        await session.redact([ids[number] for number in numbers], "by request", by="a person")
        assert (await session.refresh()).first_message == first
        assert not (await store.verify()).problems


async def test_words_of_it_are_found_no_more_and_the_line_is(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "s.db") as store:
        session, ids = await made(store)
        assert (await store.search("vault")).sessions
        await session.redact(ids, "by request")
        answer = await store.search("vault")
        assert (answer.sessions, answer.searched.by_index) == ((), True)
        assert (await store.search("redacted")).sessions


async def test_a_reason_and_entries_are_needed(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "s.db") as store:
        session, ids = await made(store)
        for entries, why in ((ids, " "), ((), "by request"), (ids, "x" * 3_000)):
            await raises(InvalidArgument, session.redact(entries, why))
    (tmp_path / "s.db").chmod(0o400)
    if os.geteuid():
        async with flue_py.open(tmp_path / "s.db") as store:
            with pytest.raises(StoreUnavailable):
                await (await store.find_session(session.id)).redact(ids, "by request")


FORGERIES = {
    "another reason": lambda text: text.replace("by request", "by mistake"),
    "more text": lambda text: text.replace('"content"', '"more":"x","content"'),
    "no seal": lambda text: text[: text.index(',"seal"')] + "}}",
    "another seal": lambda text: text.replace('"seal":"', '"seal":"0')[:-4] + '"}}',
    "that of another entry": lambda text: text,
}


@inputs("key, how", [(key, how) for key in (None, KEY) for how in FORGERIES])
async def test_a_tombstone_that_was_changed_is_damage(tmp_path: Path, key: Key | None, how: str) -> None:
    async with flue_py.open(tmp_path / "s.db", key=key) as store:
        session, _ = await redacted(store)
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        (text,) = connection.execute("SELECT payload FROM entries WHERE depth = 0").fetchone()
        place = 4 if how == "that of another entry" else 0
        sql = "UPDATE entries SET payload = ?, packed = NULL, blob = NULL WHERE depth = ?"
        connection.execute(sql, (FORGERIES[how](text), place))
        connection.commit()
    async with flue_py.open(tmp_path / "s.db", key=key) as store:
        session = await store.find_session(session.id)
        await raises(CorruptStore, session.build_context(), match="does not match its digest")
        assert "damaged entry" in str((await store.verify()).problems)


async def test_with_a_key_nobody_without_it_makes_a_tombstone(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "keyed.db", key=KEY) as store, flue_py.open(":memory:") as plain:
        session, _ = await made(store)
        other, _ = await redacted(plain)
        forged = (await other.get_active_path())[0].payload
    with closing(sqlite3.connect(tmp_path / "keyed.db")) as connection:
        connection.execute("UPDATE entries SET payload = ? WHERE depth = 0", (forged,))
        connection.commit()
    async with flue_py.open(tmp_path / "keyed.db", key=KEY) as store:
        with pytest.raises(CorruptStore):
            await (await store.find_session(session.id)).build_context()
    async with flue_py.open(tmp_path / "keyed.db", unchecked=True) as store:
        assert LINE in str(await (await store.find_session(session.id)).build_context())


@inputs("before, after", [(None, NEW), (KEY, NEW), (KEY, None)])
async def test_tombstones_go_along_with_keys_copies_bundles_and_rescues(
    tmp_path: Path, before: Key | None, after: Key | None
) -> None:
    async with flue_py.open(tmp_path / "s.db", key=before) as store:
        session, ids = await redacted(store)
        await session.append_message({"role": "user", "content": "for the log"})
    report = await salvage(tmp_path / "s.db", tmp_path / "rescued.db", key=before)
    assert (report.losses, report.changes) == ((), ())
    async with flue_py.open(tmp_path / "s.db", key=before) as store:
        await write_bundle(store, tmp_path / "b.flue", keep_paths=True)
        async with flue_py.open(tmp_path / "copy.db", key=after) as target:
            await copy_store(store, target)
        async with flue_py.open(tmp_path / "unbundled.db", key=after) as target:
            await read_bundle(target, tmp_path / "b.flue")
        await store.rekey(after)
        session = await store.find_session(session.id)
        assert (await session.redact(ids, "again")).already == tuple(ids)
    assert (await salvage(tmp_path / "copy.db", tmp_path / "rescued copy.db", key=after)).losses == ()
    for name, key in (("s", after), ("rescued", before), ("copy", after), ("unbundled", after)):
        async with flue_py.open(tmp_path / f"{name}.db", key=key) as store:
            await check(store)


async def test_an_older_copy_does_not_bring_it_back_and_a_newer_one_takes_it_along(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "s.db") as store, flue_py.open(tmp_path / "copy.db") as copy:
        session, ids = await made(store)
        await copy_store(store, copy)
        await (await copy.find_session(session.id)).append_message({"role": "user", "content": "more"})
        await session.redact(ids, "by request", by="a person")
        assert "is not a copy of this one" in str((await copy_store(copy, store)).refused)
        await check(store)
        await copy.delete_session_tree(session.id)
        assert not (await copy_store(store, copy)).refused
        await check(copy)


async def test_to_undo_it_is_refused_by_name(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "s.db") as store:
        session, _ = await redacted(store)
        for _ in range(51):
            await session.set_metadata({}, merge=True, why="command: /cost")  # changes nothing
        await raises(InvalidArgument, undo_last(session, by="a person"), match="is a redaction, which cannot be undone")


@inputs("is_committed", [False, True])
async def test_a_process_that_is_killed_has_redacted_all_or_nothing(tmp_path: Path, is_committed: bool) -> None:
    where = tmp_path / "s.db"
    async with flue_py.open(where) as store:
        session, ids = await made(store)
        assert (await store.search("vault")).sessions
    assert death_of(where, session.id, ids, is_committed=is_committed) == -signal.SIGKILL
    async with flue_py.open(where) as store:
        assert not (await store.verify()).problems
        session = await store.find_session(session.id)
        path = await session.get_active_path()
        assert [is_tombstone(entry.kind, entry.payload) for entry in path[:3]] == [is_committed] * 3
        # The same call goes on with what was left to do.
        done = await session.redact(ids, "by request", by="a person")
        assert (done.already == tuple(ids)) is is_committed
        assert not (await store.search("vault")).sessions
        await check(store)


def death_of(where: Path, session_id: str, ids: list[str], *, is_committed: bool) -> int:
    """Return how a process ends that redacts entries, and is killed."""
    child = os.fork()
    if not child:
        redact_until(where, session_id, ids, is_committed=is_committed)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def redact_until(where: Path, session_id: str, ids: list[str], *, is_committed: bool) -> NoReturn:
    commit = Writer._commit

    def killed(self: Writer, operations: Any) -> None:
        if is_committed:
            commit(self, operations)
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        with flue_py.sync.open(where, durability="normal") as store:
            session = store.find_session(session_id)
            Writer._commit = killed  # type: ignore[method-assign]
            session.redact(ids, "by request", by="a person")
    finally:
        os._exit(1)
