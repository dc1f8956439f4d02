"""Small files that unpack to much more, and endless files, are refused by an error of ours, in bounded memory."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import flue_py
from flue_py.core.json import inflate, inflated_size, json_weight, memory_of_utf8
from flue_py.formats.registry import format_names
from tests.checks import raises
from tests.sessions.talk import user
from tests.tables import inputs

ENTRY_BYTES = 16 * 2**20
ROOT = Path(__file__).parents[2]


Reading: TypeAlias = Callable[[str, "Path | str"], dict[str, Any]]


@pytest.fixture(scope="module")
def read_elsewhere() -> Iterator[Reading]:
    """A function that reads a file in a process of its own, and returns what it told."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.sessions.bomb_reader"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        asked, answers = reader.stdin, reader.stdout

        def read(how: str, path: Path | str) -> dict[str, Any]:
            asked.write(json.dumps([how, str(path), ENTRY_BYTES]) + "\n")
            asked.flush()
            told: dict[str, Any] = json.loads(answers.readline())
            return told

        yield read


def packed(parts: Iterable[bytes]) -> tuple[bytes, bytes, bytes]:
    """Return a zlib stream of what the parts are together, its payload digest and its SHA-256."""
    stream, digest, sha256 = zlib.compressobj(9), hashlib.blake2b(digest_size=16), hashlib.sha256()
    made = []
    for part in parts:
        made.append(stream.compress(part))
        digest.update(part)
        sha256.update(part)
    return b"".join([*made, stream.flush()]), digest.digest(), sha256.digest()


def message_of(size: int) -> Iterable[bytes]:
    yield b'{"role":"user","content":"'
    for _ in range(size // 2**20):
        yield b"a" * 2**20
    yield b'"}'


@cache
def packed_message(size: int) -> tuple[bytes, bytes, bytes]:
    return packed(message_of(size))


def small_values(size: int) -> Iterable[bytes]:
    yield b'{"role":"user","content":['
    for _ in range(size // 3 // 1000):
        yield b"{}," * 1000
    yield b"0]}"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of one session with one message, which is packed."""
    path = tmp_path_factory.mktemp("bombs") / "true.flue"

    async def make() -> None:
        async with flue_py.open(":memory:", prices=False) as store:
            await (await store.create_session()).append_message(user("hello " + "x" * 3000))
            await flue_py.write_bundle(store, path)

    asyncio.run(make())
    return path


def put_packed(connection: sqlite3.Connection, data: bytes, digest: bytes) -> None:
    connection.execute("UPDATE entries SET packed = ?, digest = ?", (data, digest))


def packed_bomb(connection: sqlite3.Connection) -> None:
    data, digest, _ = packed_message(6 * ENTRY_BYTES)
    put_packed(connection, data, digest)


def endless_stream(connection: sqlite3.Connection) -> None:
    data, digest, _ = packed_message(2**20)
    put_packed(connection, data[:-9], digest)


def blob_bomb(connection: sqlite3.Connection) -> None:
    data, digest, sha256 = packed_message(6 * ENTRY_BYTES)
    connection.execute("UPDATE entries SET packed = NULL, blob = ?, digest = ?", (sha256, digest))
    row = (sha256, 6 * ENTRY_BYTES, data)
    connection.execute("INSERT INTO blobs (tree_id, sha256, size, data) SELECT tree_id, ?, ?, ? FROM entries", row)


def light_bomb(connection: sqlite3.Connection) -> None:
    data, digest, _ = packed(small_values(ENTRY_BYTES - 1000))
    put_packed(connection, data, digest)


def wide_bomb(connection: sqlite3.Connection) -> None:
    text = [b'{"role":"user","content":"', "😀".encode(), b"a" * (ENTRY_BYTES - 10_000), b'"}']
    data, digest, _ = packed(text)
    put_packed(connection, data, digest)


def attachment_bomb(connection: sqlite3.Connection) -> None:
    """An attachment within the limits, which stands in its entry again and again."""
    data, _, sha256 = packed([b"a" * 2**20])
    connection.execute(
        "INSERT INTO blobs (tree_id, sha256, size, data) SELECT tree_id, ?, ?, ? FROM entries", (sha256, 2**20, data)
    )
    insert = "INSERT INTO attachments SELECT tree_id, lane_id, depth, ?, ? FROM entries"
    connection.executemany(insert, [(place, sha256) for place in range(100)])


BUNDLES: dict[str, Callable[[sqlite3.Connection], None]] = {
    "a packed payload": packed_bomb,
    "a packed payload without an end": endless_stream,
    "a blob": blob_bomb,
    "many small values in a payload": light_bomb,
    "a payload with one wide character": wide_bomb,
    "an attachment many times": attachment_bomb,
}


@inputs("change", BUNDLES.values(), ids=BUNDLES.keys())
def test_a_bundle_that_stands_for_too_much_is_refused_in_bounded_memory(
    tmp_path: Path, bundle: Path, read_elsewhere: Reading, change: Callable[[sqlite3.Connection], None]
) -> None:
    path = tmp_path / "bomb.flue"
    path.write_bytes(bundle.read_bytes())
    with closing(sqlite3.connect(path)) as connection, connection:
        change(connection)
    assert path.stat().st_size < 2**20
    told = read_elsewhere("unbundle", path)
    assert told["error"] == "UnreadableFile", told
    assert "larger than the store takes" in told["said"]
    assert told["sessions"] == 0
    assert told["grew"] < 4 * ENTRY_BYTES, told


LARGEST: dict[str, bytes] = {
    "of one letter": b"a" * (ENTRY_BYTES - 1_000),
    "of quotes": b'\\"' * (ENTRY_BYTES // 2 - 1_000),
    "with a wide character": "😀".encode() + b"a" * (ENTRY_BYTES // 2),
}


@pytest.mark.parametrize("what", LARGEST)
def test_a_small_bundle_of_an_entry_that_is_within_the_limits_is_read_in_bounded_memory(
    tmp_path: Path, read_elsewhere: Reading, what: str
) -> None:
    path = tmp_path / "large.flue"

    async def make() -> None:
        async with flue_py.open(":memory:", prices=False) as store:
            text: str = json.loads(b'"%b"' % LARGEST[what])
            await (await store.create_session()).append_message(user(text))
            await flue_py.write_bundle(store, path)

    asyncio.run(make())
    assert path.stat().st_size < 2**20
    told = read_elsewhere("unbundle", path)
    assert (told["error"], told["sessions"]) == (None, 1)
    assert told["grew"] < 4 * ENTRY_BYTES, told


@inputs(("text", "width"), [("aé", 1), ("a日", 2), ("a日😀", 4), ("", 1)])
def test_the_memory_of_a_text_is_that_of_its_widest_character(text: str, width: int) -> None:
    data = text.encode() * 100_000
    assert memory_of_utf8(data, 0, len(data)) == width * len(text) * 100_000


async def test_a_bundle_is_read_by_limits_of_its_own_where_some_are_given(tmp_path: Path) -> None:
    path = tmp_path / "big.flue"
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session(metadata={"note": "y" * 200})
        await session.append_message(user("x" * 100_000))
        await flue_py.write_bundle(store, path)
    tight = flue_py.Limits(entry_bytes=50_000)
    async with flue_py.open(":memory:", prices=False, limits=tight) as store:
        with pytest.raises(flue_py.UnreadableFile, match=r"larger than the store takes \(50000 bytes, entry_bytes\)"):
            await flue_py.read_bundle(store, path)
        with pytest.raises(flue_py.UnreadableFile, match=r"more metadata than the store takes \(100 bytes"):
            await flue_py.read_bundle(store, path, limits=flue_py.Limits(metadata_bytes=100))
        await raises(flue_py.InvalidArgument, flue_py.read_bundle(store, path, limits=50_000), match="limits")  # type: ignore[arg-type]
        assert (await store.info()).sessions == 0
        assert (await flue_py.read_bundle(store, path, limits=flue_py.Limits())).trees_added == 1


@pytest.mark.thorough(but=["auto", "unbundle", "pi", "opencode"])
@pytest.mark.parametrize("how", ["auto", "unbundle", *format_names()])
def test_a_device_without_an_end_is_refused(read_elsewhere: Reading, how: str) -> None:
    told = read_elsewhere(how, "/dev/zero")
    assert told["error"] == "UnreadableFile", told
    assert "pipe or a device" in told["said"]
    assert told["grew"] < 4 * ENTRY_BYTES


@pytest.mark.parametrize("how", ["auto", "unbundle", "pi"])
def test_a_pipe_that_nobody_writes_to_is_refused_and_not_waited_for(
    tmp_path: Path, read_elsewhere: Reading, how: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_elsewhere(how, tmp_path / "pipe")["error"] == "UnreadableFile"


HEAD = b'{"type":"session","version":3,"id":"long","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}\n'
ROW = b'{"type":"message","id":"%b","parentId":null,"timestamp":"2026-01-01T00:00:00.000Z","message":'
LONG = {
    "a line of one letter": (b"a" * 2**20, 6 * ENTRY_BYTES // 2**20, b"\n"),
    "a line without an end": (b"\0" * 2**20, 6 * ENTRY_BYTES // 2**20, b""),
    "a line of objects": (b'{"a":[' + b"{}," * 2**18, 15, b"0]}\n"),
}


@pytest.mark.parametrize("what", LONG)
def test_a_row_to_import_that_would_take_too_much_memory_is_skipped(
    tmp_path: Path, read_elsewhere: Reading, what: str
) -> None:
    part, times, end = LONG[what]
    path = tmp_path / "long.jsonl"
    last = ROW % b"two" + b'{"role":"user","content":"hello","timestamp":1}}\n'
    with path.open("wb") as file:
        file.write(HEAD)
        for _ in range(times):
            file.write(part)
        file.write(end + last)
    told = read_elsewhere("pi", path)
    assert told["grew"] < 4 * ENTRY_BYTES, told
    assert (told["error"], told["sessions"]) == (None, 1)


async def test_a_document_that_is_read_as_a_whole_is_held_to_the_limits_of_the_store(tmp_path: Path) -> None:
    document = tmp_path / "chat.json"
    document.write_text(json.dumps([{"role": "user", "content": "x" * 5_000}, {"role": "assistant", "content": "y"}]))
    size = document.stat().st_size
    async with flue_py.open(":memory:", prices=False, limits=flue_py.Limits(document_bytes=size - 1)) as store:
        for name in ("openai-chat", "anthropic", "auto"):
            with pytest.raises(flue_py.UnreadableFile, match=rf"{size} bytes are more than the {size - 1} .*document_"):
                await flue_py.import_file(store, document, name)
        assert (await store.info()).sessions == 0
        # A format that can be read row by row is, and needs no limit.
        rows = tmp_path / "long.jsonl"
        rows.write_bytes(HEAD + b"".join(ROW % b"%d" % n + b'{"role":"user","content":"x"}}\n' for n in range(100)))
        assert rows.stat().st_size > size
        assert (await flue_py.import_file(store, rows, "pi")).added == 100
    async with flue_py.open(":memory:", prices=False, limits=flue_py.Limits(document_bytes=size)) as store:
        assert (await flue_py.import_file(store, document, "openai-chat")).added == 2


@pytest.mark.parametrize("how", ["anthropic", "openai-chat", "flue", "fuseraft-run"])
def test_a_document_of_many_small_values_is_refused_before_they_are_made(
    tmp_path: Path, read_elsewhere: Reading, how: str
) -> None:
    path = tmp_path / "many.json"
    path.write_bytes(b'{"messages":[' + b"{}," * (ENTRY_BYTES // 4) + b"0]}")
    told = read_elsewhere(how, path)
    assert told["error"] == "UnreadableFile", told
    assert "document_bytes" in told["said"]
    assert (told["grew"] < 4 * ENTRY_BYTES, told["sessions"]) == (True, 0)


# -- measuring ------------------------------------------------------------------------------------------------------


@inputs("size", [0, 1, 65_535, 65_536, 65_537, 1_000_000])
def test_the_size_of_what_is_packed_is_known_without_unpacking_it(size: int) -> None:
    stream = zlib.compress(b"x" * size)
    assert inflated_size(stream, size) == size
    assert inflate(stream, size) == b"x" * size
    assert (inflated_size(stream[:-1], size), inflate(stream[:-1], size)) == (None, None)
    if size:
        assert (inflated_size(stream, size - 1), inflate(stream, size - 1)) == (None, None)
    with pytest.raises(zlib.error):
        inflated_size(b"no zlib stream", 10)


def test_a_text_weighs_what_its_values_take_and_what_stands_in_strings_nothing() -> None:
    plain = json_weight(b'{"a":"b"}')
    assert json_weight(b'{"a":"[{,}]\\"[{,}]\\\\"}') == plain
    assert json_weight(json.dumps({"a": "," * 100_000}).encode()) == plain
    many = b"[" + b"{}," * 10_000 + b"0]"
    assert json_weight(many) > 64 * 10_000
    text = json.dumps([{"a": 'b"\\' * 3}] * 5_000).encode()
    assert json_weight(text) == sum(json_weight(line) for line in (b"[]", *[b',{"":""}'] * 5_000)) - 64
