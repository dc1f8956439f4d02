"""The workload itself: what a process measures of the one store that it has, a group of rows at a time.

All it makes before the clock starts is kept out of the garbage collector's sight, and histories are on the disk.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.measuring import Samples, make_messages, settle
from benchmarks.peers.protocol import Message, OpenPeer, Peer, PeerSession, Together
from benchmarks.peers.rows import Group

TRANSCRIPT = Path(__file__).resolve().parents[2] / "tests" / "data" / "pi" / "large-session.jsonl.gz"
KEPT = 200
LAST = 20
NAME = "3f2b8c1e-9a47-4d05-b6e2-71c0d8f4a593"
"""A session's name as programs make them. Some stores repeat it in each row."""
SUMMARY = "What was done so far. " * 25


@dataclass(frozen=True)
class Measured:
    """What a round measured in one row: samples in seconds, or one value; ``over`` says what stopped it.

    ``length`` is the history that was reached, where that is not the one that was asked for.
    """

    samples: Samples = field(default_factory=list)
    value: float | None = None
    over: float | None = None
    failed: int = 0
    length: int | None = None


@dataclass(frozen=True)
class Bench:
    """A store, where its files go, and how much to do of everything. ``budget`` is seconds for the samples of a row."""

    name: str
    open_peer: OpenPeer
    folder: Path
    short: bool = False
    budget: float = 6.0

    def count(self, full: int, short: int) -> int:
        """Return the number that belongs to the form that runs."""
        return short if self.short else full

    def length(self, full: int) -> int:
        """Return how long a history is in the form that runs."""
        return min(full, 60) if self.short else full

    async def sampled(self, work: Callable[[], Awaitable[object]], times: int) -> Samples:
        """Return the time of each of ``times`` runs, fewer where the budget is spent."""
        samples: Samples = []
        end = perf_counter() + self.budget
        while len(samples) < times and perf_counter() < end:
            start = perf_counter()
            kept = await work()
            samples.append(perf_counter() - start)
            del kept
        return samples

    async def history(self, length: int, *, compacted: bool = False) -> Path:
        """Return a folder with a session ``long`` of that length, and ``other`` of two; made once for all rounds."""
        folder = self.folder / f"{length}{'-compacted' if compacted else ''}"
        if folder.exists():
            return folder
        made = folder.with_name(folder.name + ".part")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        messages = make_messages(1000)
        history = [messages[number % 1000] for number in range(length)]
        peer = await self.open_peer(made)
        await (await peer.session("other")).append_many(messages[:2])
        session = await peer.session("long")
        if compacted:
            await session.append_many(history[: length - KEPT])
            await session.compact(SUMMARY, history[length - KEPT :])
        else:
            await session.append_many(history)
        await peer.close()
        checkpoint(made)
        made.rename(folder)
        return folder

    async def copied(self, source: Path, into: Path) -> Path:
        """Return a copy of a history, which is on the disk when this returns."""
        target = into / source.name
        shutil.copytree(source, target)
        for file in [*target.iterdir(), target]:
            handle = os.open(file, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)
        return target


def checkpoint(folder: Path) -> int:
    """Move the write-ahead log of a store that nobody has open into its database; return the bytes of all files."""
    for database in folder.glob("*.db"):
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return sum(file.stat().st_size for file in folder.iterdir())


def durability(folder: Path) -> str:
    """Return the journal mode of the databases in a folder, and how a new connection syncs."""
    for database in folder.glob("*.db"):
        with closing(sqlite3.connect(database)) as connection:
            journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
            return f"{journal}, synchronous {connection.execute('PRAGMA synchronous').fetchone()[0]}"
    return "files"


async def append(bench: Bench, group: Group) -> dict[str, Measured]:
    """One message at a time, to one session: on an empty history, or on one of the group's length."""
    messages = make_messages(1000)
    with TemporaryDirectory(dir=bench.folder) as scratch:
        folder = Path(scratch)
        if group.length:
            folder = await bench.copied(await bench.history(bench.length(group.length)), folder)
        peer = await bench.open_peer(folder)
        session = await peer.session("long")
        pending = iter(messages * 2)
        await warm_up(session, pending, bench.count(20, 2))
        settle()
        times = bench.count(300 if group.length else 1000, 5)
        samples = await bench.sampled(lambda: session.append(next(pending)), times)
        await peer.close()
    return {group.name: Measured(samples, over=None if samples else bench.budget)}


async def warm_up(session: PeerSession, messages: object, times: int) -> None:
    """Append a few messages, for a second at most."""
    end = perf_counter() + 1
    for _ in range(times):
        await session.append(next(messages))  # type: ignore[call-overload]
        if perf_counter() > end:
            break


async def atomic(bench: Bench, group: Group) -> dict[str, Measured]:
    """The same message to ten sessions, as one where the store can, else one after the other."""
    messages = make_messages(1000)
    with TemporaryDirectory(dir=bench.folder) as scratch:
        peer = await bench.open_peer(Path(scratch))
        sessions = [await peer.session(f"one of ten {number}") for number in range(10)]
        pending = iter(messages)

        async def append() -> None:
            message = next(pending)
            if isinstance(peer, Together):
                await peer.append_together(sessions, message)
                return
            for session in sessions:
                await session.append(message)

        await append()
        settle()
        samples = await bench.sampled(append, bench.count(300, 5))
        await peer.close()
    return {group.name: Measured(samples, over=None if samples else bench.budget)}


async def at_once(bench: Bench, group: Group) -> dict[str, Measured]:
    """A hundred sessions, each of which appends fifty messages, and waits for each."""
    count, each = bench.count(100, 5), bench.count(50, 3)
    messages = make_messages(each)
    failed = 0

    async def append_all(session: PeerSession, samples: Samples, end: float) -> None:
        nonlocal failed
        for message in messages:
            start = perf_counter()
            if start > end:
                return
            try:
                await session.append(message)
            except Exception:  # noqa: BLE001 - a peer raises what it raises: the append is lost, and counted
                failed += 1
            else:
                samples.append(perf_counter() - start)

    with TemporaryDirectory(dir=bench.folder) as scratch:
        peer = await bench.open_peer(Path(scratch))
        sessions = [await peer.session(f"session {number}") for number in range(count)]
        for _ in range(2):
            await asyncio.gather(*[session.append(messages[0]) for session in sessions])
        settle()
        samples: Samples = []
        start = perf_counter()
        await asyncio.gather(*[append_all(session, samples, start + bench.budget * 1.5) for session in sessions])
        seconds = perf_counter() - start
        await peer.close()
    return {group.name: Measured(samples, len(samples) / seconds, failed=failed)}


async def load(bench: Bench, group: Group) -> dict[str, Measured]:
    """The whole history: by a store just opened that has read another session, and again by the same handle."""
    length = bench.length(group.length)
    folder = await bench.history(length)
    cold: Samples = []
    again: Samples = []
    end = perf_counter() + bench.budget
    while len(cold) < bench.count(5 if length > 1000 else 15, 1) and (not cold or perf_counter() < end):
        peer = await bench.open_peer(folder)
        await (await peer.session("other")).load()
        session = await peer.session("long")
        settle()
        cold += await bench.sampled(lambda session=session: loaded(session, length), 1)  # type: ignore[misc]
        again += await bench.sampled(lambda session=session: loaded(session, length), 2)  # type: ignore[misc]
        await peer.close()
    return {f"{group.name}_cold": Measured(cold), f"{group.name}_again": Measured(again)}


async def loaded(session: PeerSession, length: int) -> None:
    """Load a session, and compare how much came."""
    found = await session.load()
    if found != length:
        raise AssertionError(f"{found} messages were loaded, not {length}")


async def fork(bench: Bench, group: Group) -> dict[str, Measured]:
    """Forks at the middle, each by a handle of its own, and by how much the files grow for each."""
    length = bench.length(group.length)
    with TemporaryDirectory(dir=bench.folder) as scratch:
        folder = await bench.copied(await bench.history(length), Path(scratch))
        before = checkpoint(folder)
        peer = await bench.open_peer(folder)
        at = await (await peer.session("long")).place(length // 2)
        samples: Samples = []
        end = perf_counter() + bench.budget
        try:
            while len(samples) < bench.count(100, 2) and perf_counter() < end:
                session = await peer.session("long")
                settle()
                async with asyncio.timeout(bench.budget):
                    samples += await bench.sampled(lambda session=session: session.fork(at), 1)  # type: ignore[misc]
        except TimeoutError:
            return {"fork": Measured(over=bench.budget), "fork_bytes": Measured(over=bench.budget)}
        finally:
            await peer.close()
        grown = (checkpoint(folder) - before) / len(samples)
    # The first one prepares statements.
    return {"fork": Measured(samples[1:] or samples), "fork_bytes": Measured(value=grown)}


async def usage(bench: Bench, group: Group) -> dict[str, Measured]:
    """The output tokens since the middle. Each store has to come to the same number."""
    length = bench.length(group.length)
    messages = make_messages(1000)
    expected = sum(messages[number % 1000].get("usage", {}).get("output", 0) for number in range(length // 2, length))
    peer = await bench.open_peer(await bench.history(length))
    session = await peer.session("long")
    since = await session.place(length // 2)
    found = await session.usage_since(since)
    if found != expected:
        raise AssertionError(f"{found} output tokens since the middle, not {expected}")
    settle()
    samples = await bench.sampled(lambda: session.usage_since(since), bench.count(200, 3))
    await peer.close()
    return {group.name: Measured(samples)}


async def context(bench: Bench, group: Group) -> dict[str, Measured]:
    """What the model sees after a compaction that keeps 200 messages, each time by a handle that has read nothing."""
    length = max(bench.length(group.length), KEPT + 10)
    peer = await bench.open_peer(await bench.history(length, compacted=True))
    samples: Samples = []
    end = perf_counter() + bench.budget
    await (await peer.session("other")).load()
    while len(samples) < bench.count(100, 2) and perf_counter() < end:
        session = await peer.session("long")
        samples += await bench.sampled(lambda session=session: in_context(session), 1)  # type: ignore[misc]
    await peer.close()
    return {group.name: Measured(samples[1:] or samples)}


async def tail(bench: Bench, group: Group) -> dict[str, Measured]:
    """The last twenty messages, each time by a handle that has read nothing."""
    peer = await bench.open_peer(await bench.history(bench.length(group.length)))
    samples: Samples = []
    end = perf_counter() + bench.budget
    await (await peer.session("other")).load()
    while len(samples) < bench.count(200, 2) and perf_counter() < end:
        session = await peer.session("long")
        samples += await bench.sampled(lambda session=session: in_tail(session), 1)  # type: ignore[misc]
    await peer.close()
    return {group.name: Measured(samples[1:] or samples)}


async def in_tail(session: PeerSession) -> None:
    """Read the last messages, and compare how much came."""
    found = await session.last(LAST)
    if found != LAST:
        raise AssertionError(f"{found} messages were read, not the last {LAST}")


async def in_context(session: PeerSession) -> None:
    """Read the context, and compare how much came: what is kept, with a summary or without."""
    found = await session.context()
    if found not in (KEPT, KEPT + 1):
        raise AssertionError(f"{found} messages in the context, not {KEPT}")


async def size(bench: Bench, group: Group) -> dict[str, Measured]:
    """The files after messages of 600 bytes, appended one at a time as agents do."""
    return await _size(bench, group, make_messages(bench.count(1000, 20)))


async def size_short(bench: Bench, group: Group) -> dict[str, Measured]:
    """The files after messages of a line each, without usage."""
    roles = ("user", "assistant")
    messages = [
        {"role": roles[number % 2], "content": f"Line {number}: the tests pass."}
        for number in range(bench.count(1000, 20))
    ]
    return await _size(bench, group, messages)


async def size_pi(bench: Bench, group: Group) -> dict[str, Measured]:
    """The files after the messages of a real session. Only flue_py also keeps its other entries, and its tree."""
    lines = [json.loads(line) for line in gzip.decompress(TRANSCRIPT.read_bytes()).splitlines()]
    messages = [line["message"] for line in lines if line.get("type") == "message"]
    return await _size(bench, group, messages[: bench.count(len(messages), 10)])


async def _size(bench: Bench, group: Group, messages: list[Message]) -> dict[str, Measured]:
    with TemporaryDirectory(dir=bench.folder) as scratch:
        folder = Path(scratch)
        peer: Peer = await bench.open_peer(folder)
        session = await peer.session(NAME)
        for message in messages:
            await session.append(message)
        await peer.close()
        return {group.name: Measured(value=float(checkpoint(folder)))}
