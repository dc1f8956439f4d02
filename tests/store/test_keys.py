"""A store with a key: who lacks it reads nothing and changes nothing unseen, and nothing that is written shows it."""

from __future__ import annotations

import re
import sqlite3
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.core.chain import UNKEYED, Chain
from flue_py.core.sessions import VerifyReport
from flue_py.errors import CorruptStore, FlueError, InvalidArgument, StoreUnavailable, WrongKey
from flue_py.transfer import copy_store, read_bundle, salvage, write_bundle
from tests.checks import raises
from tests.tables import inputs

KEY, OTHER = b"canary-key-of-32-bytes-0123456789"[:32], b"another-canary-of-32-bytes-98765"
FINGERPRINT = f"{Chain(KEY).fingerprint % 2**64:016x}"
LARGE = "words " * 3_000
PICTURE = {"type": "image", "mediaType": "image/png", "data": "iVBORw0KGgo" * 2_000 + "A=="}


@pytest.fixture
def place(new_place: Callable[[], str]) -> str:
    """Return where a new store is made, in either database."""
    return new_place()


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def made(place: str, key: object = KEY) -> str:
    """Make a store of one session with a fork, a large message and a picture; return its id."""
    async with flue_py.open(place, key=key) as store:  # type: ignore[arg-type]
        session = await store.create_session()
        first = (await session.append_message(message("hello"))).leaf_id
        await session.append_message(message(LARGE))
        await session.append_message({"role": "user", "content": [PICTURE, {"type": "text", "text": "look"}]})
        fork = await session.fork(at=first)
        await fork.append_message(message("beside"))
        return session.id


async def texts(store: flue_py.Store, session_id: str) -> list[object]:
    """Return what a session says, read in the two ways that there are."""
    session = await store.find_session(session_id)
    entries = await session.get_tree()
    return [await session.build_context(), [entry.payload for entry in entries]]


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]


async def test_a_store_of_documents_alone_is_not_given_the_key_that_it_is_opened_with(place: str) -> None:
    async with flue_py.open(place) as store:
        await store.remember("fact", "x")
    with pytest.raises(WrongKey, match="has no key; open it without one, or give it one by flue-py rekey"):
        async with flue_py.open(place, key=KEY):
            pass
    async with flue_py.open(place) as store:
        assert (await store.verify()).problems == []
        assert [memory.body for memory in await store.memories()] == ["x"]


async def test_a_store_is_opened_by_its_key_alone(place: str) -> None:
    session_id = await made(place)
    refused: list[tuple[object, str]] = [
        (None, "was opened without one"),
        (OTHER, "was opened with another"),
        ([OTHER, None], "was opened with another"),
    ]
    for key, why in refused:
        with pytest.raises(WrongKey, match=f"needs the key with the fingerprint {FINGERPRINT}, and {why}"):
            async with flue_py.open(place, key=key):  # type: ignore[arg-type]
                pass
    said = []
    for key in (KEY, lambda: KEY, [OTHER, KEY], (None, KEY)):
        async with flue_py.open(place, key=key) as store:  # type: ignore[arg-type]
            said.append(await texts(store, session_id))
            assert (await store.info()).key == FINGERPRINT
            assert not (await store.verify()).problems
    assert said == said[:1] * 4
    async with flue_py.open(place, unchecked=True) as store:
        assert await texts(store, session_id) == said[0]
        answers = [await store.info(), await store.verify(), await store.list_sessions(), await store.search("a")]
        assert [answer.unchecked for answer in (store, *answers)] == [True] * 5
        session = await store.find_session(session_id)
        await raises(StoreUnavailable, session.append_message(message("more")), match="unchecked")
        await raises(StoreUnavailable, store.create_session(), match="unchecked")
    with pytest.raises(WrongKey), flue_py.sync.open(place):
        pass
    with flue_py.sync.open(place, unchecked=True) as blocking:
        assert blocking.unchecked


async def test_a_store_without_a_key_is_refused_to_who_gives_one(place: str) -> None:
    await made(place, None)
    with pytest.raises(WrongKey, match="has no key"):
        async with flue_py.open(place, key=KEY):
            pass
    async with flue_py.open(place, key=[KEY, None]) as store:
        assert (await store.info()).key is None


@inputs(
    "key, why",
    [
        (b"", "0 bytes"),
        (b"short", "5 bytes"),
        (b"x" * 65, "65 bytes"),
        ("a text of 32 characters, no bytes", "a str is no key"),
        ([], "a list is no key"),
        (lambda: "text", "a str is no key"),
        (lambda: 1 // 0, "ZeroDivisionError"),
        (KEY, "unchecked: .*leave out one"),
    ],
)
async def test_what_is_no_key_is_refused_and_makes_nothing(tmp_path: Path, key: Any, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        async with flue_py.open(tmp_path / "s.db", key=key, unchecked=key == KEY):
            pass
    assert not (tmp_path / "s.db").exists()


async def test_an_edit_with_a_digest_made_without_the_key_is_found(tmp_path: Path) -> None:
    session_id = await made(str(tmp_path / "s.db"))
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        row = connection.execute("SELECT payload, kind, rowid FROM entries WHERE depth = 0").fetchone()
        text = str(row[0]).replace("hello", "HELLO")
        forged = UNKEYED.text(bytes(16), str(row[1]), text.encode())
        edit = "UPDATE entries SET payload = ?, digest = ? || substr(digest, 9) WHERE rowid = ?"
        connection.execute(edit, (text, forged, row[2]))
        connection.commit()
    async with flue_py.open(tmp_path / "s.db", key=KEY) as store:
        session = await store.find_session(session_id)
        await raises(CorruptStore, session.build_context())
    async with flue_py.open(tmp_path / "s.db", unchecked=True) as store:
        assert "HELLO" in str(await texts(store, session_id))


async def test_a_store_that_loses_its_statement_is_refused_not_read(tmp_path: Path) -> None:
    await made(str(tmp_path / "s.db"))
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.execute("DELETE FROM flue_store WHERE name = 'key'")
        connection.commit()
    with pytest.raises(WrongKey, match="has no key"):
        async with flue_py.open(tmp_path / "s.db", key=KEY):
            pass


async def test_copies_and_bundles_have_the_key_of_where_they_are(place: str, tmp_path: Path) -> None:
    session_id = await made(place)
    async with flue_py.open(place, key=KEY) as source:
        said = await texts(source, session_id)
        await write_bundle(source, tmp_path / "b.flue")
        for name, key in (("same", KEY), ("other", OTHER), ("none", None)):
            async with flue_py.open(tmp_path / name, key=key) as target:
                report = await copy_store(source, target)
                assert report.is_complete
                assert await texts(target, session_id) == said
                assert (await copy_store(source, target)).trees_unchanged == 1
    async with flue_py.open(tmp_path / "b.flue", read_only=True) as bundle:
        assert await texts(bundle, session_id) == said
    for key in (OTHER, None):
        async with flue_py.open(":memory:", key=key) as target:
            assert (await read_bundle(target, tmp_path / "b.flue")).trees_added == 1
            assert await texts(target, session_id) == said
            assert not (await target.verify()).problems


async def test_a_damaged_entry_is_damaged_in_a_copy_with_another_key(tmp_path: Path) -> None:
    await made(str(tmp_path / "s.db"))
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.execute("UPDATE entries SET payload = replace(payload, 'hello', 'other') WHERE depth = 0")
        connection.execute("UPDATE entries SET source = 'elsewhere' WHERE depth = 2")
        connection.commit()
    async with flue_py.open(tmp_path / "s.db", key=KEY) as source, flue_py.open(":memory:", key=OTHER) as target:
        report = await copy_store(source, target)
        kinds = [[problem.kind for problem in side] for side in (report.source_problems, report.target_problems)]
        assert kinds[0].count("damaged entry") == kinds[1].count("damaged entry") == 2


async def test_a_rescue_compares_digests_where_it_has_the_key(tmp_path: Path) -> None:
    session_id = await made(str(tmp_path / "s.db"))
    async with flue_py.open(tmp_path / "s.db", key=KEY) as store:
        said = await texts(store, session_id)
    keyed = await salvage(tmp_path / "s.db", tmp_path / "keyed.db", key=KEY)
    without = await salvage(tmp_path / "s.db", tmp_path / "without.db")
    assert (keyed.is_complete, keyed.unchecked) == (True, False)
    assert (without.is_complete, without.unchecked) == (True, True)
    for name, key in (("keyed.db", KEY), ("without.db", None)):
        async with flue_py.open(tmp_path / name, key=key) as store:
            assert await texts(store, session_id) == said
    await raises(WrongKey, salvage(tmp_path / "s.db", tmp_path / "new.db", key=OTHER), match=FINGERPRINT)
    assert not (tmp_path / "new.db").exists()


async def test_a_backup_is_verified_by_the_key(tmp_path: Path) -> None:
    await made(str(tmp_path / "s.db"))
    async with flue_py.open(tmp_path / "s.db", key=KEY) as store:
        await store.backup(tmp_path / "backup.db")
    async with flue_py.open(tmp_path / "backup.db", key=KEY) as store:
        assert await store.verify() == VerifyReport(2, 4, [])
    async with flue_py.open(tmp_path / "s.db", unchecked=True) as store:
        assert (await store.backup(tmp_path / "again.db")).unchecked
        assert (await write_bundle(store, tmp_path / "b.flue")).unchecked


async def test_the_key_is_in_no_file_and_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    session_id = await made(str(tmp_path / "s.db"))
    said = []
    async with flue_py.open(tmp_path / "s.db", key=lambda: KEY) as store:
        await store.search("hello")
        await write_bundle(store, tmp_path / "b.flue")
        await store.backup(tmp_path / "backup.db")
        said += [repr(store), repr(store.backend), repr(vars(store.backend)), repr(await store.info())]
        said.append(repr(await store.backend.read_whole_tree((await store.backend.list_trees(-1, 9))[0].tree_id)))
    await salvage(tmp_path / "s.db", tmp_path / "rescued.db", key=KEY)
    keys: list[object] = [KEY[:8], KEY + KEY, KEY.decode(), {KEY: KEY}, [KEY, KEY.decode()], OTHER]
    for key in keys:
        try:
            async with flue_py.open(tmp_path / "s.db", key=key):  # type: ignore[arg-type]
                pass
        except FlueError as error:
            said.append("".join(traceback.format_exception(error)))
    assert len(said) == 5 + len(keys)
    written = [file.read_bytes() for file in files_in(tmp_path)]
    assert len(written) >= 4
    assert session_id.encode() in b"".join(written)
    for text in (*written, *(text.encode() for text in said), caplog.text.encode()):
        for key in (KEY[:8], OTHER[:8], KEY.hex()[:16].encode()):
            assert key not in text


PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
CHECK = re.search(r"```python\n(import sqlite3\nfrom hashlib.*?)```", PAGE, re.DOTALL)


@inputs("key", [None, KEY])
async def test_the_lines_of_the_page_check_a_chain_with_and_without_a_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: bytes | None
) -> None:
    assert CHECK is not None
    assert len([line for line in CHECK[1].splitlines() if line]) == 10
    path = tmp_path / f"{key is None}.db"
    async with flue_py.open(path, key=key) as store:
        session = await store.create_session()
        for text in ("one", "two", "long " * 9_000, "three"):
            await session.append_message(message(text))
    lines = CHECK[1].replace("sessions.db", str(path)).replace('= b"", {}', f"= {key or b''!r}, {{}}")
    exec(lines, {})
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["True"] * 4
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE entries SET payload = replace(payload, 'two', 'owt')")
        connection.execute("UPDATE entries SET source = 'forged' WHERE depth = 2")
        connection.commit()
    exec(lines, {})
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["True", "False", "False", "True"]
