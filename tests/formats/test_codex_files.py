"""Rollouts of Codex that go on from others, and packed ones."""

from __future__ import annotations

import gzip
import itertools
import json
import tracemalloc
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py import system
from flue_py.core.kinds import message_text
from flue_py.errors import MissingExtra, UnreadableFile
from flue_py.formats.codex import CodexReader
from flue_py.formats.registry import recognize
from flue_py.transfer.source import find_files
from tests.checks import raises
from tests.formats.test_codex import count, said
from tests.formats.transcripts import DATA, all_seen, as_lines
from tests.values import existing

# Forks and reverts of Codex 0.171, which are references to other files: rollouts that the program wrote.

FILES: dict[str, str] = json.loads(gzip.decompress((DATA / "codex/forks-0.171.json.gz").read_bytes()))
SOURCE, FORK, FORK_OF_FORK, FORK_OF_REVERTED, COMPACTED = (
    f"01a21f0e-{rest}"
    for rest in (
        "c516-76e3-a197-a7b113c848b4",
        "c60d-7940-b184-d117c045280d",
        "c657-71c2-9f3e-84ee5a19a21a",
        "c7c8-72a2-a716-f27137005e85",
        "c80e-73f2-9434-a8fa820c3f79",
    )
)
SEGMENT = "01a21f0e-c6ad-7ac0-b5e9-ced6d62f23b8"
IN_FORK = ["one", "Answer 3.", "two CALL", "Answer 5.", "three", "Answer 6.", "in the fork", "Answer 7."]
REVERTED = ["one", "Answer 3.", "seven", "Answer 12."]
SUMMARY = "Another language model started to solve this problem and produced a summary"
SENT = {
    SOURCE: (REVERTED, 8200),
    FORK: (IN_FORK, 1024),
    FORK_OF_FORK: ([*IN_FORK, "in the fork of the fork", "Answer 8."], 1026),
    FORK_OF_REVERTED: ([*REVERTED, "in D", "Answer 13."], 1036),
    COMPACTED: (["one", "two", "after compaction", "OVERFLOW", SUMMARY, "after overflow", "Answer 20."], 6262),
}
"""What the program sends of each thread, and what its own calls took."""


def write(folder: Path, *names: str) -> list[Path]:
    paths = [folder / "sessions/2026/11/27" / name for name in names or FILES]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILES[path.name])
    return paths


def names_of(thread: str) -> list[str]:
    return [name for name in FILES if f"-{thread}" in name]


async def texts(store: flue_py.Store, thread: str) -> list[str]:
    session = existing(await store.get_session(thread))
    found = [message_text(item) for item in await session.build_context() if item["role"] != "developer"]
    found = [SUMMARY if SUMMARY in text else text for text in found]
    return [text for text in found if text and not text.startswith(("<environment", "Chunk"))]


async def tokens_of(store: flue_py.Store, thread: str) -> int:
    return (await store.usage(thread)).total.total_tokens


async def test_forks_and_reverts_are_whole_and_paid_once_whatever_is_imported_first(tmp_path: Path) -> None:
    paths = write(tmp_path)
    wrong = []
    for turn in range(0, len(paths), 3):
        for order in ([*paths[turn:], *paths[:turn]], [*paths[turn:], *paths[:turn]][::-1]):
            async with flue_py.open(":memory:") as store:
                for path in order:
                    await flue_py.import_file(store, path)
                seen = {thread: (await texts(store, thread), await tokens_of(store, thread)) for thread in SENT}
                whole = (await store.usage()).total.total_tokens, len((await store.list_sessions()).sessions)
                again = [(await flue_py.import_file(store, path)).changed for path in order]
                source = existing(await store.get_session(SOURCE))
                kept = {message_text(json.loads(entry.payload)) for entry in await source.entries(kind="message")}
                if (seen, whole, any(again), (await store.verify()).problems) != (SENT, (17_548, 5), False, []):
                    wrong.append((turn, seen, whole, again))
                assert {"three", "four", "five", "six", "Answer 6.", "Answer 9.", "Answer 10.", "Answer 11."} <= kept
    assert not wrong


async def test_an_answer_that_stayed_without_its_tokens_is_paid_once_by_all_files_that_have_it(tmp_path: Path) -> None:
    first, second, *later = write(tmp_path, *names_of(SOURCE))
    second.write_text("".join(FILES[second.name].splitlines(keepends=True)[:8]))
    for path in later:
        path.unlink()
    async with flue_py.open(":memory:") as store:
        for path in (first, second):
            await flue_py.import_file(store, path, finish=True)
        session = await store.find_session(SOURCE)
        await session.append_message({"role": "user", "content": "mine"})
        write(tmp_path, *names_of(SOURCE))
        for path in (*later, second, first, second):
            await flue_py.import_file(store, path)
        assert await tokens_of(store, SOURCE) == SENT[SOURCE][1]


async def test_a_revert_is_followed_but_not_by_who_has_moved_on_here(tmp_path: Path, store: flue_py.Store) -> None:
    first, second, *_ = write(tmp_path, *names_of(SOURCE))
    await flue_py.import_file(store, first)
    session = existing(await store.get_session(SOURCE))
    await session.append_message({"role": "user", "content": "mine"})
    report = await flue_py.import_file(store, second)
    assert report.leaf_kept
    assert (await texts(store, SOURCE))[-1] == "mine"


async def test_a_source_is_found_where_it_was_archived(tmp_path: Path, store: flue_py.Store) -> None:
    first, *_ = write(tmp_path, *names_of(SOURCE))
    (fork,) = write(tmp_path, *names_of(FORK))
    archived = tmp_path / "archived_sessions" / first.name
    archived.parent.mkdir()
    first.rename(archived)
    first.symlink_to(tmp_path / "nowhere")
    await flue_py.import_file(store, fork)
    assert await texts(store, FORK) == IN_FORK


async def test_what_a_rollout_goes_on_from_is_named_where_it_is_not_there(tmp_path: Path) -> None:
    (fork,) = write(tmp_path, *names_of(FORK))
    reverted = write(tmp_path, *names_of(SOURCE)[1:])
    nowhere = fork.parent / names_of(SOURCE)[0]
    for target in (tmp_path / "nowhere", nowhere):
        nowhere.unlink(missing_ok=True)
        nowhere.symlink_to(target)
        async with flue_py.open(":memory:") as store:
            report = await flue_py.import_file(store, fork)
            assert f"goes on from {SOURCE}" in str(report.repaired[0])
    nowhere.unlink()
    async with flue_py.open(":memory:") as store:
        report = await flue_py.import_file(store, fork)
        assert f"goes on from {SOURCE}" in str(report.repaired[0])
        assert await texts(store, FORK) == IN_FORK[-2:]
        assert await tokens_of(store, FORK) == 1024
        for path, needed in zip(reverted, (SOURCE, SEGMENT, SOURCE), strict=True):
            path.rename(tmp_path / path.name)
            with pytest.raises(UnreadableFile, match=f"Put rollout-...{needed}.jsonl into"):
                await flue_py.import_file(store, tmp_path / path.name)
            (tmp_path / path.name).unlink()
        assert await store.get_session(SOURCE) is None
    (torn,) = write(tmp_path, *names_of(SOURCE)[:1])
    torn.write_text("".join(FILES[torn.name].splitlines(keepends=True)[:14]))
    async with flue_py.open(":memory:") as store:
        report = await flue_py.import_file(store, fork)
        assert f"goes on behind byte 15248 of {torn.name}, which has {torn.stat().st_size}:" in str(report.repaired[0])
        assert await texts(store, FORK) == [*IN_FORK[:2], *IN_FORK[-2:]]


async def test_calls_before_a_gap_are_not_those_of_the_first_row_behind_it(tmp_path: Path) -> None:
    wrong, gaps = [], 0
    paths = write(tmp_path)
    for base, fork in itertools.permutations(paths, 2):
        lines = FILES[base.name].splitlines(keepends=True)
        base.write_text("".join(lines[: len(lines) // 2]))
        async with flue_py.open(":memory:") as store:
            has_gap = "goes on behind" in str((await flue_py.import_file(store, fork)).repaired)
            base.write_text(FILES[base.name])
            if not has_gap:
                continue
            gaps += 1
            for path in paths:
                await flue_py.import_file(store, path)
            spent = {thread: await tokens_of(store, thread) for thread in SENT}
            if spent != {thread: tokens for thread, (_, tokens) in SENT.items()}:
                wrong.append((base.name, fork.name, spent))
    assert (wrong, gaps > 3) == ([], True)


async def test_rows_of_which_an_older_version_made_nothing_do_not_bar_what_comes_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: flue_py.Store
) -> None:
    (path,) = write(tmp_path, *names_of(COMPACTED))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:45]))
    with monkeypatch.context() as older:
        aside = CodexReader._aside
        older.setattr(CodexReader, "_aside", lambda *given: given[2].type == "world_state" or aside(*given))
        await flue_py.import_file(store, path)
    path.write_text("".join(lines))
    report = await flue_py.import_file(store, path)
    assert "2 entries of rows that were imported before, by an earlier version" in str(report.repaired[-1])
    assert (await texts(store, COMPACTED), await tokens_of(store, COMPACTED)) == SENT[COMPACTED]
    path.write_text("".join(lines).replace("Answer 14.", "Answer 41."))
    await raises(UnreadableFile, flue_py.import_file(store, path), match="have changed since they were imported")


async def test_a_thread_has_the_name_that_people_gave_it_unless_it_got_another_here(tmp_path: Path) -> None:
    (path,) = write(tmp_path, *names_of(FORK_OF_FORK))
    index = tmp_path / "session_index.jsonl"

    async def title_after(store: flue_py.Store, *names: str) -> str | None:
        rows = [{"id": FORK_OF_FORK, "thread_name": name} for name in names]
        index.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, {"id": "x", "thread_name": "no"}, [], {}]))
        await flue_py.import_file(store, path)
        session = await store.get_session(FORK_OF_FORK)
        return None if session is None else session.title

    async with flue_py.open(":memory:") as store:
        assert await title_after(store) is None
        assert await title_after(store, "first", "second") == "second"
        session = existing(await store.get_session(FORK_OF_FORK))
        await session.set_title("mine")
        assert await title_after(store, "first", "second") == "mine"
        assert await title_after(store, "first", "second", "third") == "third"


async def test_calls_are_two_where_a_thread_went_two_ways_that_are_alike(tmp_path: Path) -> None:
    folder, meta = tmp_path / "sessions", {"cwd": "/w", "model_provider": "p", "history_mode": "paginated"}
    folder.mkdir()

    def turns(*totals: int) -> list[dict[str, Any]]:
        return [
            row for total in totals for row in (said("user", "go"), said("assistant", "Fine."), count(total, last=10))
        ]

    source = as_lines([{"type": "session_meta", "payload": {**meta, "id": "a"}}, *turns(10, 20)])
    base = {"thread_id": "a", "end_ordinal_exclusive": 4, "end_byte_offset": sum(map(len, source[:4]))}
    files = {"a": source}
    for name, thread in (("b", "b"), ("c", "c"), ("a_s", "a")):
        header = {"type": "session_meta", "payload": {**meta, "id": thread, "history_base": base}}
        files[name] = as_lines([header, *turns(20)])
    for order in itertools.permutations(files):
        async with flue_py.open(":memory:") as store:
            for name, rows in files.items():
                (folder / f"rollout-1-{name}.jsonl").write_bytes(b"".join(rows))
            for name in order:
                await flue_py.import_file(store, folder / f"rollout-1-{name}.jsonl", finish=True)
            paid = [(await store.usage(thread)).total.total_tokens for thread in "abc"]
            assert (order, paid) == (order, [30, 10, 10])


async def test_files_that_grow_in_turn_are_those_that_were_imported_whole(tmp_path: Path, store: flue_py.Store) -> None:
    for name, text in FILES.items():
        lines = text.splitlines(keepends=True)
        for size in (*range(2, len(lines), 3), len(lines)):
            (path,) = write(tmp_path, name)
            path.write_text("".join(lines[:size]))
            report = await flue_py.import_file(store, path)
            assert (report.leaf_kept, report.repaired) == (False, ())
    seen = {thread: (await texts(store, thread), await tokens_of(store, thread)) for thread in SENT}
    assert (seen, (await store.verify()).problems) == (SENT, [])


# Rollouts that Codex packed with zstd: the same sessions as from the plain files, whichever is imported first.

try:
    ZSTD: Any = import_module("compression.zstd")
except ImportError:
    ZSTD = pytest.importorskip("backports.zstd")


def pack(path: Path) -> Path:
    """Do as Codex: pack a file in the place of the plain one."""
    packed = path.with_name(f"{path.name}.zst")
    with ZSTD.ZstdFile(packed, "w", level=3) as file:
        file.write(path.read_bytes())
    path.unlink()
    return packed


async def import_all(store: flue_py.Store, folder: Path) -> int:
    """Import the files of a folder, and return how many entries were new."""
    return sum([(await flue_py.import_file(store, path)).added for path in find_files([folder])])


async def test_packed_files_give_the_sessions_of_the_plain_ones_in_any_order(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    write(plain)
    for path in write(packed):
        pack(path)
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as other:
        await import_all(store, plain)
        seen = await all_seen(store)
        await import_all(other, packed)
        assert await all_seen(other) == seen
        assert (await import_all(store, packed), await import_all(other, plain)) == (0, 0)
        assert (await all_seen(store), await all_seen(other)) == (seen, seen)


async def test_a_fork_of_a_packed_file_has_its_beginning(tmp_path: Path, store: flue_py.Store) -> None:
    paths = write(tmp_path, *names_of(FORK), *names_of(SOURCE))
    for path in paths[1:]:
        pack(path)
    report = await flue_py.import_file(store, paths[0])
    assert (report.session_id, report.repaired) == (FORK, ())


async def test_a_packed_file_is_caught_up_with_when_it_is_unpacked_and_grows(tmp_path: Path) -> None:
    name = names_of(SOURCE)[0]
    lines = FILES[name].splitlines(keepends=True)
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as other:
        (path,) = write(tmp_path, name)
        await flue_py.import_file(other, path)
        path.write_text("".join(lines[: len(lines) // 2]))
        old = pack(path)
        await flue_py.import_file(store, old)
        (path,) = write(tmp_path, name)
        assert (await flue_py.import_file(store, path)).added > 0
        assert await all_seen(store) == await all_seen(other)
        assert (await flue_py.import_file(store, old)).added == 0


async def test_a_damaged_packed_file_changes_nothing(tmp_path: Path, store: flue_py.Store) -> None:
    (path,) = write(tmp_path, names_of(SOURCE)[0])
    whole = pack(path).read_bytes()
    file = tmp_path / "rollout-x.jsonl.zst"
    for data in (whole[:-9], whole[:40], whole[:4], whole + b"more"):
        file.write_bytes(data)
        await raises(UnreadableFile, flue_py.import_file(store, file), match="its packed bytes are damaged")
    assert (await store.list_sessions()).sessions == ()


async def test_without_the_extra_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = write(tmp_path, names_of(SOURCE)[0])
    packed = pack(path)

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(system, "import_module", missing)
    assert list(find_files([tmp_path])) == [packed]
    async with flue_py.open(":memory:") as store:
        await raises(MissingExtra, flue_py.import_file(store, packed), match=r"flue-py\[zstd\]")


def test_a_packed_file_is_read_in_little_memory(tmp_path: Path) -> None:
    file = tmp_path / "rollout-x.jsonl.zst"
    with ZSTD.ZstdFile(file, "w") as packed:
        for _ in range(64):
            packed.write(b" " * 2**20)
    tracemalloc.start()
    with system.unpacked(file.open("rb")) as opened:
        assert opened.seek(0, 2) == 64 * 2**20
        opened.seek(-3, 1)
        assert opened.read() == b"   "
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 2**20


def test_only_packed_rollouts_are_recognised(tmp_path: Path) -> None:
    head = ZSTD.compress(b"{}")
    form = existing(recognize(head, str(tmp_path / "rollout-x.jsonl.zst")))
    assert form.name == "codex"
    assert recognize(head, str(tmp_path / "x.csv.zst")) is None
