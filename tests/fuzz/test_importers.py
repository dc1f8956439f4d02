"""Session files as disks, editors and other programs leave them: what is readable is imported, the rest is named."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import flue_py
from flue_py.core.entries import settings_on
from flue_py.core.json import JsonValue
from flue_py.core.sessions import MAX_NAME_BYTES
from flue_py.errors import UnreadableFile
from flue_py.formats.flue import parse_session_document, session_document
from tests.formats.pi_files import HEADER, as_lines, every_type, parse_pi, real_lines
from tests.formats.transcripts import import_lines
from tests.fuzz.hostile import check_refusal
from tests.strategies import hostile_json, hostile_texts
from tests.tables import inputs
from tests.values import existing

FILE = Path("session.jsonl")
DEEP = b'{"type":"custom","id":"deep","parentId":null,"data":' + b"[" * 10_000 + b"]" * 10_000 + b"}\n"
ODD: list[JsonValue] = [
    None, True, 0, -1, 1.5, 2**70, "", "\0", "\ud800", "x" * 3_000, [], [[]], {}, {"a": None}, 1e308,
]  # fmt: skip


async def check_import(lines: list[bytes], store: flue_py.Store, folder: Path) -> flue_py.Session | None:
    """Import a file, which may be refused; then everything can be read, and importing it again changes nothing."""
    lines = BytesIO(b"".join(lines)).readlines()
    try:
        # In a thread, as files are imported: how deep rows may be nested depends on the depth of the stack.
        parsed = await asyncio.to_thread(parse_pi, lines, FILE.name)
    except UnreadableFile as error:
        check_refusal(error)
        return None
    report = await import_lines(store, folder, lines, FILE.name, format="pi")
    assert report.added == len(parsed.entries)
    session = existing(await store.get_session(report.session_id))
    tree = await session.get_tree()
    assert [entry.id for entry in tree] == [entry.id for entry in parsed.entries]
    assert report.rows >= 1 + len(parsed.entries)
    path = await session.get_active_path()
    assert session.info.created_at
    assert all(entry.created_at.tzinfo for entry in path)
    settings_on(path)
    await session.build_context()
    for item in await session.build_context_entries():
        assert item.message.role
    again = await import_lines(store, folder, lines, FILE.name, format="pi")
    assert not again.changed
    assert (await store.verify()).problems == []
    return session


def check(lines: list[bytes]) -> None:
    async def run() -> None:
        with TemporaryDirectory() as folder:
            async with flue_py.open(":memory:") as store:
                await check_import(lines, store, Path(folder))

    asyncio.run(run())


SMALL = as_lines(every_type())
REAL = [line for line in real_lines() if len(line) < 4_000][:40]


def _places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _places(item, (*path, number))


def _replaced(value: Any, path: tuple[str | int, ...], by: JsonValue) -> Any:
    changed = copy.deepcopy(value)
    if not path:
        return by
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = by
    return changed


@inputs("number", range(len(every_type())), ids=[row["type"] for row in every_type()])
def test_a_wrong_type_at_any_field_of_a_row_is_repaired_or_named(number: int) -> None:
    rows = every_type()
    for turn, place in enumerate(_places(rows[number])):
        # A third of the odd values at each place, all of them at neighbouring ones.
        for odd in ODD[turn % 3 :: 3]:
            changed = [*rows[:number], _replaced(rows[number], place, odd), *rows[number + 1 :]]
            lines = as_lines([json.dumps(row) for row in changed])
            try:
                parsed = parse_pi(lines)
            except UnreadableFile as error:
                assert number == 0
                check_refusal(error)
            else:
                assert len(parsed.entries) + len(parsed.report.skipped) == len(rows) - 1
    check(
        as_lines(
            [json.dumps(row) for row in [*rows[:number], _replaced(rows[number], ("type",), "x"), *rows[number + 1 :]]]
        )
    )


mutations: st.SearchStrategy[tuple[str, int, int]] = st.tuples(
    st.sampled_from(["cut", "flip", "drop", "repeat", "swap", "insert", "nul", "join", "split"]),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)


def mutated(lines: list[bytes], changes: list[tuple[str, int, int]]) -> list[bytes]:
    """Return lines damaged as told."""
    lines = list(lines)
    for what, where, how in changes:
        if not lines:
            break
        number = where % len(lines)
        line = lines[number]
        place = how % max(1, len(line))
        if what == "cut":
            lines[number] = line[:place]
        elif what == "flip":
            lines[number] = line[:place] + bytes([(line[place] if line else 0) ^ (1 << where % 8)]) + line[place + 1 :]
        elif what == "drop":
            del lines[number]
        elif what == "repeat":
            lines.insert(how % len(lines), line)
        elif what == "swap":
            other = how % len(lines)
            lines[number], lines[other] = lines[other], lines[number]
        elif what == "insert":
            lines.insert(number, (b"\xff\xfe", b"null\n", b"[]\n", b'{"type":"session"}\n', DEEP, b"\r\n")[how % 6])
        elif what == "nul":
            lines[number] = line[:place] + b"\0" + line[place:]
        elif what == "join":
            lines[number] = line.rstrip()
            lines = b"".join(lines).splitlines(keepends=True)
        else:
            lines[number : number + 1] = [line[:place] + b"\n", line[place:]]
    return lines


@given(st.sampled_from([SMALL, REAL]), st.lists(mutations, min_size=1, max_size=6))
@example(SMALL, [("cut", 0, 0)])
def test_a_damaged_file_is_imported_as_far_as_it_can_be_read(
    lines: list[bytes], changes: list[tuple[str, int, int]]
) -> None:
    check(mutated(lines, changes))


ids = st.sampled_from(["a", "b", "c", "d", "e"])
rows = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "compaction", "branch_summary", "label", "custom_message", "session_info"])},
    optional={
        "id": ids | hostile_json,
        "parentId": st.none() | ids | hostile_json,
        "timestamp": st.sampled_from(["2026-01-05T10:00:01.000Z", "0001-01-01T00:00:00+23:59", 0]) | hostile_json,
        "message": st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "bashExecution"])},
            optional={"content": hostile_json, "usage": hostile_json, "timestamp": hostile_json},
        ),
        "summary": hostile_json,
        "firstKeptEntryId": ids | hostile_json,
        "firstKeptEntryIndex": st.integers(-3, 9) | hostile_json,
        "tokensBefore": hostile_json,
        "usage": hostile_json,
        "targetId": ids | hostile_json,
        "label": hostile_texts,
        "content": hostile_json,
        "name": hostile_texts,
    },
)


@given(st.sampled_from([1, 2, 3, None, 2**70, "3", 1.5]), st.lists(rows, max_size=8))
def test_rows_that_are_nearly_right_with_parents_anywhere_are_imported(version: Any, entries: list[Any]) -> None:
    check([json.dumps(row).encode() + b"\n" for row in [{**HEADER, "version": version}, *entries]])


def _encoded(encoding: str) -> list[bytes]:
    return b"".join(SMALL).decode().encode(encoding).splitlines(keepends=True)


@inputs("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7", "cp037"])
def test_a_file_in_an_encoding_that_is_not_utf_8_is_refused_or_read(encoding: str) -> None:
    check(_encoded(encoding))


NUL_FILLED = [*SMALL[:3], b"\0" * 4096]
"""What some file systems leave at the end of a file after a power cut."""

BAD_TIMES = ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]

ODD_FILES: dict[str, list[bytes]] = {
    "with a byte order mark": _encoded("utf-8-sig"),
    "in Latin-1": [line.replace(b"Reading", "é".encode("latin-1")) for line in SMALL],
    "with Windows line ends": [line.replace(b"\n", b"\r\n") for line in SMALL],
    "with the line ends of an old Mac": b"".join(SMALL).replace(b"\n", b"\r").splitlines(keepends=True),
    "that ends in NULs": NUL_FILLED,
    "with NULs between": [line + b"\0\n" for line in SMALL],
    "with rows nested ten thousand levels deep": [*SMALL, DEEP, b"[" * 10_000 + b"\n"],
    "with rows nested as deep as can be read": [
        *SMALL,
        *(
            b'{"type":"%s","id":"d%d-%d","parentId":null,"%s":' % (kind, levels, number, field)
            + b"[" * levels
            + b"]" * levels
            + b"}\n"
            for levels in (199, 200, 201, 400, 900, 940, 960, 975, 985, 990, 995)
            for number, (kind, field) in enumerate(
                [(b"custom", b"data"), (b"message", b"timestamp"), (b"compaction", b"tokensBefore"), (b"label", b"x")]
            )
        ),
    ],
    "with compactions that count in nests": [
        SMALL[0],
        *(
            b'{"type":"compaction","id":"c%d","summary":"s","timestamp":' % levels
            + b"[" * levels + b"]" * levels + b',"tokensBefore":' + b"[" * levels + b"]" * levels + b"}\n"
            for levels in range(100, 1_000, 20)
        ),
    ],
    "with a number of 5,000 digits": [*SMALL, b'{"type":"custom","id":"n","data":' + b"9" * 5_000 + b"}\n"],
    "with a number of 4,000 digits": [*SMALL, b'{"type":"custom","id":"n","data":' + b"9" * 4_000 + b"}\n"],
    "with times of 4,300 and 4,301 digits": [
        *SMALL,
        *(b'{"type":"custom","id":"t%d","timestamp":' % n + b"9" * n + b',"data":1}\n' for n in (4_300, 4_301)),
    ],
    "with numbers that are none": [
        *SMALL,
        b'{"type":"custom","id":"n","data":[NaN,1e999,-Infinity]}\n',
        b'{"type":"custom","id":"m","timestamp":1e999}\n',
    ],
    "with keys twice": [
        SMALL[0],
        b'{"type":"message","id":"a","id":"b","message":{"role":"user","role":"x","content":"c"}}\n',
    ],
    "with an invalid escape": [
        *SMALL,
        b'{"type":"custom","id":"n","data":"\\ud800 \\x"}\n',
        b'{"type":"custom","id":"m","data":"\\ud800"}\n',
    ],
    "with times that no calendar has": [
        SMALL[0],
        *(
            json.dumps({"type": "custom", "id": str(number), "timestamp": at}).encode() + b"\n"
            for number, at in enumerate(
                [*BAD_TIMES, -1, 253_402_300_799_999, 253_402_300_800_000, 1e300, "24", ""]
            )
        ),
    ],
    "whose header has such a time": [
        json.dumps({**HEADER, "timestamp": "0001-01-01T00:00:00+23:59"}).encode() + b"\n", *SMALL[1:]
    ],
    "with parents in a circle": as_lines(
        [
            HEADER,
            *({"type": "custom", "id": str(n), "parentId": str((n + 1) % 3)} for n in range(3)),
            {"type": "custom", "id": "x", "parentId": "1"},
        ]
    ),
    "with a parent chain of 5,000 entries, last first": as_lines(
        [HEADER, *({"type": "custom", "id": str(n), "parentId": str(n - 1)} for n in reversed(range(5_000)))]
    ),
}  # fmt: skip


@inputs("name", ODD_FILES)
def test_a_file(name: str) -> None:
    check(ODD_FILES[name])


def test_an_id_that_is_too_long_costs_its_row_and_not_the_file() -> None:
    longest, longer = "é" * (MAX_NAME_BYTES // 2), "é" * (MAX_NAME_BYTES // 2) + "x"
    places = [(longest, None), (longer, longest), ("a", longer)]
    parsed = parse_pi(as_lines([HEADER, *({"type": "custom", "id": name, "parentId": at} for name, at in places)]))
    assert [entry.id for entry in parsed.entries] == [longest, "a"]
    assert [note.line for note in parsed.report.skipped] == [3]
    for note in (*parsed.report.skipped, *parsed.report.repaired):
        assert len(str(note)) < 1_000
    with pytest.raises(UnreadableFile, match="its session header has the id"):
        parse_pi(as_lines([{**HEADER, "id": longer}]))


async def test_a_label_that_is_too_long_is_cut_and_said_so(target: str, tmp_path: Path) -> None:
    label = {"type": "label", "id": "l", "parentId": "a", "targetId": "a", "label": "é" * 5_000}
    lines = as_lines([HEADER, {"type": "custom", "id": "a", "parentId": None}, label])
    assert ["a label of 5000 characters" in str(note) for note in parse_pi(lines).report.repaired][-1]
    async with flue_py.open(target, durability="normal") as store:
        session = existing(await check_import(lines, store, tmp_path))
        assert await session.marks.labels() == {"a": "é" * 200}


async def test_every_odd_file_is_imported_alike_by_every_store(target: str, tmp_path: Path) -> None:
    async with flue_py.open(target, durability="normal") as store:
        for number, (name, lines) in enumerate(ODD_FILES.items()):
            if "5,000" in name:
                continue
            own = [line.replace(HEADER["id"].encode(), b"file-%d" % number) for line in lines]
            await check_import(own, store, tmp_path)


# --- Documents of the reference -----------------------------------------------------------------------------


async def _document() -> Any:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        first = await session.append_message(
            {"role": "user", "content": [{"type": "text", "text": "a"}]}, source="prompt"
        )
        await session.append_message(
            {"role": "assistant", "content": "b", "usage": {"input": 1, "cost": {"total": 0.5}}}
        )
        await session.append_branch_summary("s", from_id="x", details={"a": 1})
        await session.append_compaction("c", first_kept_entry_id=first.entry_id, tokens_before=5, usage={"output": 2})
        await session.append_custom("note", {"a": [1]})
        tree = await session.get_tree()
        return session_document(tree, session.leaf_id, metadata={"a": 1}, created_us=10**15, updated_us=10**15)


async def _load(document: Any) -> None:
    try:
        parsed = parse_session_document(document)
        text = json.dumps(parsed.metadata)
    except UnreadableFile as error:
        check_refusal(error)
        return
    async with flue_py.open(":memory:") as store:
        session = await store.import_session(
            flue_py.NewSession(metadata_text=text, created_us=parsed.created_us), parsed.entries, leaf=parsed.leaf_id
        )
        assert len(await session.get_tree()) == len(parsed.entries)
        await session.build_context()
        assert (await store.verify()).problems == []


def test_a_wrong_type_anywhere_in_a_document_is_refused_or_imported() -> None:
    async def run() -> None:
        document = await _document()
        for turn, place in enumerate(_places(document)):
            for odd in ODD[turn % 3 :: 3]:
                await _load(_replaced(document, place, odd))

    asyncio.run(run())


@given(st.data())
def test_a_document_with_any_json_in_it_is_refused_or_imported(data: st.DataObject) -> None:
    async def run() -> None:
        document = await _document()
        for _ in range(data.draw(st.integers(1, 3))):
            places = list(_places(document))[1:]
            place = data.draw(st.sampled_from(places)) if places else ()
            document = _replaced(document, place, data.draw(hostile_json)) if place else document
        await _load(document)

    asyncio.run(run())


def test_an_id_that_is_two_halves_of_one_character_is_refused() -> None:
    document = asyncio.run(_document())
    document["entries"][2]["id"] = "\ud800\udc00"
    with pytest.raises(UnreadableFile, match="entries"):
        parse_session_document(document)
