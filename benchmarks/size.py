"""The size of the database, after its write-ahead log has been moved into it, against the size of the messages."""

from __future__ import annotations

import gzip
from pathlib import Path

import flue_py
from benchmarks.measuring import BODY_BYTES, Goal, Line, Options, database_bytes, main, make_messages
from benchmarks.pages import bytes_by_tree

GOALS = {1_000: Goal(1.65, to="the bodies"), 10_000: Goal(1.5, to="the bodies")}
TRANSCRIPT_GOAL = Goal(0.8, to="the JSONL")
TRANSCRIPT = Path(__file__).parent.parent / "tests" / "data" / "pi" / "large-session.jsonl.gz"


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    lines = []
    for count in [100] if options.short else [1_000, 10_000]:
        lines += await _bodies(options, count)
    return [*lines, *await _transcript(options)]


async def _bodies(options: Options, count: int) -> list[Line]:
    """Append one message at a time, as agents do, so that every page is as full as it will be in practice."""
    path = options.directory / f"store-{count}.db"
    async with flue_py.open(path, durability="normal") as store:
        session = await store.create_session()
        for message in make_messages(count):
            await session.append_message(message)
    size, bodies = database_bytes(path) / 1024, count * BODY_BYTES / 1024
    what = f"size of {count:,} messages of {BODY_BYTES} bytes"
    line = Line.of_figures(f"{what} (raw: the bodies)", "KiB", [size], [bodies], GOALS.get(count))
    return [line, *_by_tree(what, path, count)]


async def _transcript(options: Options) -> list[Line]:
    what = "size of a real pi transcript"
    if not TRANSCRIPT.exists():
        return [Line.skipped(what, f"{TRANSCRIPT.name} is not there")]
    from flue_py.transfer.imports import import_file

    file, path = options.directory / "session.jsonl", options.directory / "pi.db"
    file.write_bytes(gzip.decompress(TRANSCRIPT.read_bytes()))
    async with flue_py.open(path, durability="normal") as store:
        await import_file(store, file, "pi")
        entries = (await store.info()).entries
    size, jsonl = database_bytes(path) / 1024, file.stat().st_size / 1024
    line = Line.of_figures(f"{what} (raw: its JSONL)", "KiB", [size], [jsonl], TRANSCRIPT_GOAL)
    return [line, *_by_tree(what, path, entries)]


def _by_tree(what: str, path: Path, entries: int) -> list[Line]:
    """Return how many bytes an entry takes in each table and index; together in those that have one page only."""
    trees = bytes_by_tree(path)
    if trees is None:
        return [Line.skipped(f"- {what}: bytes an entry", "this SQLite has no dbstat")]
    page = min(trees.values())
    large = {name: size for name, size in trees.items() if size > page}
    small = [size for size in trees.values() if size == page]
    named = {**large, f"{len(small)} others, of one page each": sum(small)}
    return [Line.of_figures(f"- {what}: an entry in {name}", "bytes", [size / entries]) for name, size in named.items()]


if __name__ == "__main__":
    main(measure)
