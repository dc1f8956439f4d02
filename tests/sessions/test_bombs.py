"""Small files that unpack to much more, and endless files, are refused by an error of ours, in bounded memory."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import flue_py
from flue_py.core.json import inflate, inflated_size, json_weight, memory_of_utf8, unescape
from flue_py.core.ledger import EntryRow
from flue_py.core.usage import PAID_COLUMNS
from flue_py.formats.registry import format_names
from tests.sessions.talk import user

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


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The lines of a bundle of one session with one message, which is packed."""
    path = tmp_path_factory.mktemp("bombs") / "true.flue"

    async def make() -> None:
        async with flue_py.open(":memory:", prices=False) as store:
            await (await store.create_session()).append_message(user("hello " + "x" * 3000))
            await flue_py.write_bundle(store, path)

    asyncio.run(make())
    return gzip.decompress(path.read_bytes()).splitlines(keepends=True)


def write(path: Path, lines: list[bytes]) -> None:
    """Write lines as a bundle that is whole."""
    end = json.loads(lines[-1])
    end["sha256"] = hashlib.sha256(b"".join(lines[:-1])).hexdigest()
    path.write_bytes(gzip.compress(b"".join([*lines[:-1], json.dumps(end).encode() + b"\n"]), mtime=0))


def write_repeated(path: Path, first: bytes, part: bytes, times: int, last: bytes) -> None:
    """Write a bundle in which a part stands so many times. As many at once as make a block are compressed once: the
    blocks are independent, so that the same bytes stand for them again and again.
    """
    at_once = min(times, max(1, 2**20 // len(part)))
    stream = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    block = stream.compress(part * at_once) + stream.flush(zlib.Z_FULL_FLUSH)
    whole, rest = divmod(times, at_once)
    check = zlib.crc32(first)
    for _ in range(whole):
        check = zlib.crc32(part * at_once, check)
    check = zlib.crc32(part * rest + last, check)
    size = len(first) + times * len(part) + len(last)
    with path.open("wb") as file:
        file.write(b"\x1f\x8b\x08\0\0\0\0\0\x02\xff")
        opened = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
        file.write(opened.compress(first) + opened.flush(zlib.Z_FULL_FLUSH))
        file.write(block * whole)
        ended = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
        file.write(ended.compress(part * rest + last) + ended.flush())
        file.write(struct.pack("<II", check, size % 2**32))


def with_entry(lines: list[bytes], change: Callable[[dict[str, Any]], None]) -> list[bytes]:
    """Return the lines with another entry."""
    # As a bundle has them: the sums last, and no parents.
    rows = [name for name in EntryRow._fields if name not in (*PAID_COLUMNS, "parent_id")]
    names = ["table", *rows, *PAID_COLUMNS]
    found = []
    for line in lines:
        value = json.loads(line)
        if isinstance(value, list) and value[0] == "entries":
            fields = dict(zip(names, value, strict=True))
            change(fields)
            value = list(fields.values())
        found.append(json.dumps(value).encode() + b"\n")
    return found


def packed_bomb(path: Path, lines: list[bytes]) -> None:
    data, digest, _ = packed_message(20 * ENTRY_BYTES)
    write(path, with_entry(lines, lambda row: row.update(packed=base64_of(data), digest=base64_of(digest))))


def endless_stream(path: Path, lines: list[bytes]) -> None:
    data, digest, _ = packed_message(2**20)
    write(path, with_entry(lines, lambda row: row.update(packed=base64_of(data[:-9]), digest=base64_of(digest))))


def blob_bomb(path: Path, lines: list[bytes]) -> None:
    data, digest, sha256 = packed_message(20 * ENTRY_BYTES)
    row = {"packed": None, "blob": base64_of(sha256), "digest": base64_of(digest)}
    changed = with_entry(lines, lambda fields: fields.update(row))
    place = next(number for number, line in enumerate(changed) if line.startswith(b'["entries"')) + 1
    blob = json.dumps(["blobs", base64_of(sha256), 20 * ENTRY_BYTES, base64_of(data)]).encode() + b"\n"
    head = json.loads(changed[1])
    head["tree"]["blobs"] = 1
    write(path, [changed[0], json.dumps(head).encode() + b"\n", *changed[2:place], blob, *changed[place:]])


def light_bomb(path: Path, lines: list[bytes]) -> None:
    data, digest, _ = packed(small_values(ENTRY_BYTES - 1000))
    write(path, with_entry(lines, lambda row: row.update(packed=base64_of(data), digest=base64_of(digest))))


def wide_bomb(path: Path, lines: list[bytes]) -> None:
    text = [b'{"role":"user","content":"', "😀".encode(), b"a" * (ENTRY_BYTES - 10_000), b'"}']
    data, digest, _ = packed(text)
    write(path, with_entry(lines, lambda row: row.update(packed=base64_of(data), digest=base64_of(digest))))


def rows_of(head: dict[str, int], row: bytes, times: int) -> Callable[[Path, list[bytes]], None]:
    """A tree with one row again and again, and with more of its kind to come."""

    def make(path: Path, lines: list[bytes]) -> None:
        first = json.loads(lines[1])
        first["tree"].update(head)
        before = [line for line in lines[2:] if line.startswith((b'["sessions"', b'["lanes"'))]
        write_repeated(path, b"".join([lines[0], json.dumps(first).encode(), b"\n", *before]), row, times, b"")

    return make


def beside(text: bytes) -> Callable[[Path, list[bytes]], None]:
    """Entries that have a large text beside them: as large as an entry may be, or so many times the text."""

    def make(path: Path, lines: list[bytes]) -> None:
        changed = with_entry(lines, lambda row: row.update(extra="@"))
        row = next(line for line in changed if line.startswith(b'["entries"'))
        long = text * ((ENTRY_BYTES - 10_000) // len(text)) if len(text) < 100 else text
        rows_of({"entries": 100}, row.replace(b'"@"', b'"' + long + b'"'), 20)(path, lines)

    return make


def wide_rows(path: Path, lines: list[bytes]) -> None:
    beside("😀".encode() + b" " * (ENTRY_BYTES // 2))(path, lines)


def many_wide_rows(path: Path, lines: list[bytes]) -> None:
    changed = with_entry(lines, lambda row: row.update(extra="@"))
    row = next(line for line in changed if line.startswith(b'["entries"'))
    row = row.replace(b'"@"', '"😀'.encode() + b" " * 60_000 + b'"')
    rows_of({"entries": 10_000}, row, 1_000)(path, lines)


def many_rows(path: Path, lines: list[bytes]) -> None:
    changed = with_entry(lines, lambda row: row.update(packed=None, payload="{}"))
    row = next(line for line in changed if line.startswith(b'["entries"'))
    rows_of({"entries": 10**6}, row, 400_000)(path, lines)


def long_move(path: Path, lines: list[bytes]) -> None:
    """A row of a table whose texts are short, but that nothing says so of, as long as a line may be."""
    head = {"entries": 0, "blobs": 0, "links": 0, "moves": 2}
    row = b'["moves",1,1,null,null,"' + b" " * (2 * ENTRY_BYTES - 10_000) + b'",null,null,1,null]\n'
    rows_of(head, row, 1)(path, lines)


def stream_of(first: bytes, part: bytes, times: int) -> Callable[[Path, list[bytes]], None]:
    def make(path: Path, lines: list[bytes]) -> None:
        write_repeated(path, lines[0] + first, part, times, b"")

    return make


def long_values(value: bytes) -> Callable[[Path, list[bytes]], None]:
    """A row whose values are small and many, shorter than the longest row."""

    def make(path: Path, lines: list[bytes]) -> None:
        times = ENTRY_BYTES // len(value) // 1000
        write_repeated(path, b"".join(lines[:2]) + b'["sessions"', value * 1000, times, b"]\n")

    return make


BUNDLES: dict[str, Callable[[Path, list[bytes]], None]] = {
    "a packed payload": packed_bomb,
    "a packed payload without an end": endless_stream,
    "a blob": blob_bomb,
    "many small values in a payload": light_bomb,
    "a payload with one wide character": wide_bomb,
    "rows that are each within the limits": beside(b" "),
    "rows of escapes": beside(b"\\u0020"),
    "rows of escapes that are short": beside(b"\\n"),
    "a row with one wide character": wide_rows,
    "many rows with one wide character": many_wide_rows,
    "many short rows": many_rows,
    "a row of moves with a long text": long_move,
    "a line of blanks": stream_of(b"", b" " * 2**20, 320),
    "a line of objects": stream_of(b"[", b"{}," * 2**18, 320),
    "a line of brackets": stream_of(b"", b"[" * 2**20, 5),
    "a line of digits": stream_of(b'{"tree":', b"9" * 2**20, 5),
    "a row of objects": long_values(b",{}"),
    "a row of lists": long_values(b",[]"),
    "a row of numbers": long_values(b",1"),
    "a row of texts": long_values(b',"ab"'),
}


@pytest.mark.parametrize("what", BUNDLES)
def test_a_bundle_that_stands_for_too_much_is_refused_in_bounded_memory(
    tmp_path: Path, lines: list[bytes], read_elsewhere: Reading, what: str
) -> None:
    path = tmp_path / "bomb.flue"
    BUNDLES[what](path, lines)
    assert path.stat().st_size < 2**20
    told = read_elsewhere("unbundle", path)
    assert told["error"] == "UnreadableFile", told
    assert "nothing was imported" in told["said"]
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


@pytest.mark.parametrize(
    "text",
    [
        r"plain", r"a\nb\u0041\u00e9\ud83d\ude00\/\"", "é日😀" * 20_000, r"\ud83d\ude00" * 20_000, r"\u65e5x" * 30_000,
        r"\u0041\ud83d\ude00" * 10_000, "a" * 1_023 + r"\\", "日" * 1_023 + r"\t" * 300 + "😀",
    ],
)  # fmt: skip
def test_a_string_is_unescaped_in_its_own_place(text: str) -> None:
    line = bytearray(b'["' + text.encode() + b'"]')
    end = unescape(line, 2, len(line) - 2)
    assert line[2:end].decode() == json.loads(f'"{text}"')


@pytest.mark.parametrize(
    "text", [rb"\ud83d", rb"\ud83dx", rb"\x", rb"\u12", b"a\nb", b"\\n\xff", b"\\n\xe6\x97", b"\\"]
)
def test_what_json_does_not_allow_in_a_string_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        unescape(bytearray(b'"' + text + b'"'), 1, 1 + len(text))


@pytest.mark.parametrize(("text", "width"), [("aé", 1), ("a日", 2), ("a日😀", 4), ("", 1)])
def test_the_memory_of_a_text_is_that_of_its_widest_character(text: str, width: int) -> None:
    data = text.encode() * 100_000
    assert memory_of_utf8(data, 0, len(data)) == width * len(text) * 100_000


@pytest.mark.anyio
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
        with pytest.raises(flue_py.InvalidArgument, match="limits"):
            await flue_py.read_bundle(store, path, limits=50_000)  # type: ignore[arg-type]
        assert (await store.info()).sessions == 0
        assert (await flue_py.read_bundle(store, path, limits=flue_py.Limits())).trees_added == 1


@pytest.mark.anyio
async def test_rows_longer_than_a_parser_gets_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "long.flue"
    noise = base64_of(os.urandom(300_000))
    awkward = 'a "quoted" \\ back\u2028slash é😀\n' * 5_000
    async with flue_py.open(tmp_path / "a.db", prices=False) as store:
        session = await store.create_session(metadata={"note": awkward})
        await session.append_message(user(noise))
        await session.append_message(user(awkward))
        await session.append_custom("note", {"text": awkward})
        await flue_py.write_bundle(store, path)
        assert max(map(len, gzip.decompress(path.read_bytes()).splitlines())) > 200_000
        before = [entry.payload for entry in await session.get_tree()]
        async with flue_py.open(tmp_path / "b.db", prices=False) as there:
            assert (await flue_py.read_bundle(there, path)).trees_added == 1
            again = await there.get_session(session.id)
            assert again is not None
            assert [entry.payload for entry in await again.get_tree()] == before
            assert again.metadata == {"note": awkward}
            assert (await there.verify()).problems == []


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
    "a line of one letter": (b"a" * 2**20, 10 * ENTRY_BYTES // 2**20, b"\n"),
    "a line without an end": (b"\0" * 2**20, 10 * ENTRY_BYTES // 2**20, b""),
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


@pytest.mark.anyio
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


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 1_000_000])
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
