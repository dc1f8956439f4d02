"""The size of the database, after its write-ahead log has been moved into it, against the size of the messages."""

from __future__ import annotations

import gzip
from pathlib import Path

import flue_py
from benchmarks.measuring import BODY_BYTES, Goal, Line, Options, database_bytes, main, make_messages

TRANSCRIPT = Path(__file__).parent.parent / "tests" / "data" / "pi" / "large-session.jsonl.gz"


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    lines = [await _bodies(options, count) for count in ([100] if options.short else [1_000, 10_000])]
    return [*lines, await _transcript(options)]


async def _bodies(options: Options, count: int) -> Line:
    """Append one message at a time, as agents do, so that every page is as full as it will be in practice."""
    path = options.directory / f"store-{count}.db"
    async with flue_py.open(path, durability="normal") as store:
        session = await store.create_session()
        for message in make_messages(count):
            await session.append_message(message)
    goal = Goal(1.65, to="the bodies") if count == 1_000 else None
    size, bodies = database_bytes(path) / 1024, count * BODY_BYTES / 1024
    return Line.of_figures(
        f"size of {count:,} messages of {BODY_BYTES} bytes (raw: the bodies)", "KiB", [size], [bodies], goal
    )


async def _transcript(options: Options) -> Line:
    what = "size of a real pi transcript (raw: its JSONL)"
    if not TRANSCRIPT.exists():
        return Line.skipped(what, f"{TRANSCRIPT.name} is not there")
    from flue_py.transfer.importing.run import import_file

    file, path = options.directory / "session.jsonl", options.directory / "pi.db"
    file.write_bytes(gzip.decompress(TRANSCRIPT.read_bytes()))
    async with flue_py.open(path, durability="normal") as store:
        await import_file(store, file, "pi")
    size, jsonl = database_bytes(path) / 1024, file.stat().st_size / 1024
    return Line.of_figures(what, "KiB", [size], [jsonl], Goal(0.7, to="the JSONL"))


if __name__ == "__main__":
    main(measure)
