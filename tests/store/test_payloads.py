"""Payloads are stored as text, packed, or in `blobs`; each comes back byte for byte."""

from __future__ import annotations

import sqlite3
import tracemalloc
import zlib
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flue_py.core.entries import NewEntry
from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from flue_py.db.ops.base import LARGE, PACK_ABOVE, SPILL_ABOVE, StoredPayload, decode_payload, pack, unpack, unpack_blob
from flue_py.db.sqlite.runner import open_sqlite
from flue_py.errors import CorruptStore
from tests.checks import raises
from tests.samples import add, new_session, path_of, user
from tests.sources import counted_sources
from tests.tables import inputs
from tests.values import existing

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"


def noise(length: int, seed: int = 0) -> str:
    """Text that compresses to about three quarters."""
    return "".join(Random(seed).choices(LETTERS, k=length))


def read_back(stored: StoredPayload) -> str:
    """The text, as reading finds it in the three columns and the blob's row."""
    if stored.payload is not None:
        return stored.payload
    if stored.packed is not None:
        return unpack(stored.packed).decode()
    (blob,) = stored.blobs
    assert blob.sha256 == stored.blob
    return unpack_blob(blob.sha256, blob.data).decode()


TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=50),
    st.builds(lambda text, times: text * times, st.text(st.characters(codec="utf-8"), max_size=20), st.integers(0, 99)),
    st.builds(noise, st.integers(0, 40_000), st.integers(0, 5)),
    st.integers(PACK_ABOVE // 4 - 2, PACK_ABOVE // 4 + 2).map(lambda length: "😀" * length),
)


@given(TEXTS)
@example("")
@example("x" * PACK_ABOVE)
@example("é" * PACK_ABOVE)
@example("\0" * 100_000)
def test_a_packed_text_comes_back_and_lies_in_one_place(text: str) -> None:
    stored = pack(text)
    assert read_back(stored) == text
    assert sum(column is not None for column in stored[:3]) == 1
    assert (stored.blob is None) == (not stored.blobs)


@given(TEXTS)
def test_packing_never_makes_a_payload_larger(text: str) -> None:
    stored = pack(text)
    data = text.encode()
    held = [blob.data for blob in stored.blobs] if stored.packed is None else [stored.packed]
    assert all(len(each) < len(data) for each in held)


@inputs("text", ["x" * PACK_ABOVE, "é" * (PACK_ABOVE // 2), "😀" * (PACK_ABOVE // 4), ""])
def test_up_to_the_threshold_in_bytes_text_stays_text(text: str) -> None:
    assert pack(text) == StoredPayload(text, None, None)


@inputs("text", ["x" * (PACK_ABOVE + 1), "é" * (PACK_ABOVE // 2 + 1), "😀" * (PACK_ABOVE // 4 + 1)])
def test_one_byte_more_is_packed(text: str) -> None:
    stored = pack(text)
    assert stored.payload is None
    assert stored.packed is not None
    assert zlib.decompress(stored.packed) == text.encode()


@given(st.integers(LARGE - 3, LARGE + 3), st.sampled_from(["x", "é", "ab "]))
def test_how_large_it_is_decides_only_how_hard_it_is_packed(length: int, letters: str) -> None:
    text = (letters * length)[:length]
    packed = existing(pack(text).packed)
    assert unpack(packed) == text.encode()


def test_what_is_large_is_packed_with_less_effort() -> None:
    lines = "".join(f"{number * 7919 % 997} of {number}\n" for number in range(2_000)).encode()
    small, large = lines[:LARGE].decode(), lines[: LARGE + 1].decode()
    assert pack(small).packed == zlib.compress(small.encode(), 6)
    assert pack(large).packed == zlib.compress(large.encode(), 4)


def test_what_is_large_even_when_compressed_lies_apart_under_its_sha256() -> None:
    text = noise(SPILL_ABOVE * 2)
    stored = pack(text)
    assert stored[:3] == (None, None, sha256(text.encode()).digest())
    (blob,) = stored.blobs
    assert (blob.size, zlib.decompress(blob.data)) == (len(text), text.encode())


def test_what_compresses_well_stays_in_its_row_however_large() -> None:
    assert pack("x-" * 500_000).packed is not None


@inputs(
    "damaged",
    [b"", b"nonsense", zlib.compress(b"x" * 900)[:-1], b"\0" + zlib.compress(b"x")[1:]],
    ids=["empty", "nonsense", "cut short", "wrong header"],
)
def test_damaged_packed_bytes_are_a_corrupt_store(damaged: bytes) -> None:
    with pytest.raises(CorruptStore, match="verify"):
        unpack(damaged)
    with pytest.raises(CorruptStore, match="verify"):
        unpack_blob(sha256(b"x").digest(), damaged)


def test_bytes_that_are_no_text_are_a_corrupt_store() -> None:
    with pytest.raises(CorruptStore, match="verify"):
        decode_payload(unpack(zlib.compress(b"\xff\xfe")))


@inputs("length", [999, 1_000, 1_001, 10_000_000])
def test_no_more_is_unpacked_than_is_allowed(length: int) -> None:
    packed = zlib.compress(b"x" * length)
    digest = sha256(b"x" * length).digest()
    if length <= 1_000:
        assert unpack(packed, 1_000) == unpack_blob(digest, packed, 1_000) == b"x" * length
        return
    tracemalloc.start()
    try:
        with pytest.raises(CorruptStore, match="longer than 1000 bytes"):
            unpack(packed, 1_000)
        with pytest.raises(CorruptStore, match="longer than 1000 bytes"):
            unpack_blob(digest, packed, 1_000)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_a_missing_blob_and_one_of_other_content_are_named() -> None:
    digest = sha256(b"text").digest()
    with pytest.raises(CorruptStore, match=f"{digest.hex()} is missing"):
        unpack_blob(digest, None)
    with pytest.raises(CorruptStore, match=f"{digest.hex()} does not match"):
        unpack_blob(digest, zlib.compress(b"other"))


# -- in the store ---------------------------------------------------------------------------------------------------

TIERS = {
    "text": "short",
    "text at the threshold": "y" * 500,
    "packed": noise(2_000),
    "packed, compresses well": "y-" * 100_000,
    "packed, astral": "😀" * 1_000,
    "blob": noise(40_000),
    "blob of 1 MB": noise(100_000) * 10,  # zlib looks back less far
}


def columns(path: Path, column: str) -> list[object]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute(f"SELECT {column} FROM entries ORDER BY depth")]


def blob_sizes(path: Path) -> list[tuple[int, int]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT size, LENGTH(data) FROM blobs ORDER BY size").fetchall()


async def open_in(folder: Path) -> tuple[Backend, Path]:
    path = folder / "s.db"
    return await open_sqlite(path, sources=counted_sources(), durability="normal"), path


async def test_messages_of_every_size_come_back_from_every_read(tmp_path: Path) -> None:
    backend, path = await open_in(tmp_path)
    news = [user(text) for text in TIERS.values()]
    session = await new_session(backend, *news)
    assert [entry.payload for entry in await path_of(backend, session.id)] == [new.payload for new in news]
    await backend.close()
    again = await open_sqlite(path, sources=counted_sources(), durability="normal")
    tree = await again.read_tree(session.id)
    assert [entry.payload for entry in tree] == [new.payload for new in news]
    assert [entry.payload for entry in await again.read_turns(session.id)] == [new.payload for new in news]
    for entry in tree:
        assert await again.get_entry(session.id, entry.id) == entry
    changes = await again.changes(session.id, 0, 10)
    assert [entry.payload for change in changes for entry in change.entries] == [new.payload for new in news]
    assert (await again.verify()).problems == []
    await again.close()
    assert [payload is not None for payload in columns(path, "payload")] == ["text" in tier for tier in TIERS]
    assert [blob is not None for blob in columns(path, "blob")] == ["blob" in tier for tier in TIERS]
    sizes = [len(new.payload.encode()) for new, tier in zip(news, TIERS, strict=True) if "blob" in tier]
    assert [size for size, _ in blob_sizes(path)] == sizes
    assert all(0.7 * size < held < 0.8 * size for size, held in blob_sizes(path))


def spilled(seed: int = 0) -> NewEntry:
    return user(noise(40_000, seed))


async def test_the_same_large_message_is_held_once_per_tree(tmp_path: Path) -> None:
    backend, path = await open_in(tmp_path)
    session = await new_session(backend, spilled(), spilled(), spilled(1))
    fork = await backend.fork(session.id, STORED, NewSession())
    await add(backend, fork.id, spilled())
    assert len(blob_sizes(path)) == 2
    other = await new_session(backend, spilled())
    assert len(blob_sizes(path)) == 3
    assert (await path_of(backend, other.id))[0].payload == spilled().payload
    await backend.close()


async def test_a_blob_stays_as_long_as_an_entry_needs_it(tmp_path: Path) -> None:
    backend, path = await open_in(tmp_path)
    session = await new_session(backend, spilled(1), user("fork here"))
    fork = await backend.fork(session.id, STORED, NewSession())
    await add(backend, session.id, spilled(2), spilled(3))
    await add(backend, fork.id, spilled(3))
    await backend.delete_tree(session.id)
    assert len(blob_sizes(path)) == 2
    expected = [spilled(1).payload, user("fork here").payload, spilled(3).payload]
    assert [entry.payload for entry in await path_of(backend, fork.id)] == expected
    assert (await backend.verify()).problems == []
    await backend.delete_tree(fork.id)
    assert blob_sizes(path) == []
    assert (await backend.verify()).problems == []
    await backend.close()


async def test_reading_a_damaged_blob_says_so_and_other_sessions_are_not_affected(tmp_path: Path) -> None:
    backend, path = await open_in(tmp_path)
    session = await new_session(backend, spilled())
    other = await new_session(backend, user("fine"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE blobs SET data = ?", (zlib.compress(b"other"),))
        connection.commit()
    await raises(CorruptStore, backend.read_path(session.id), match="does not match its SHA-256")
    assert [entry.data for entry in await path_of(backend, other.id)] == [{"role": "user", "content": "fine"}]
    await backend.close()
