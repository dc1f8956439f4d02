"""Processes that work on a PostgreSQL store as they are told, forked as those of `sqlite_worker`.

Each opens the store, says "ready", waits for a line, so that many begin together, and says the result of its job.
"""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from sqlalchemy import make_url

from flue_py.core.json import JsonValue
from flue_py.core.sessions import NewSession
from flue_py.db.backend import Backend
from flue_py.db.engine import open_engine
from flue_py.db.postgres.runner import make_engine
from flue_py.errors import EntryNotFound, LeafConflict, SessionExists, SessionNotFound
from tests.samples import assistant, session_info, user
from tests.sources import random_sources
from tests.store.spending import reserve_everything, spend
from tests.store.sqlite_worker import Line, serve

SOURCES = random_sources()
LARGE = "large " * 20_000
BUSY_SECONDS = 60.0
SCRIPT = "tests.store.postgres_worker"


async def append_to_own_sessions(backend: Backend, *, sessions: int, appends: int) -> JsonValue:
    """Create sessions and append to all of them at once; return the ids that were acknowledged, by session."""

    async def fill() -> tuple[str, list[JsonValue]]:
        session = await backend.create_session(NewSession())
        ids: list[JsonValue] = []
        for number in range(appends):
            ids += (await backend.append(session.id, [user(str(number)), assistant(tokens=1)])).entry_ids
        return session.id, ids

    return dict(await asyncio.gather(*[fill() for _ in range(sessions)]))


async def append_and_rebase(backend: Backend, *, session_id: str, appends: int) -> JsonValue:
    """Append below the leaf that was seen, again after each conflict; return (parent, id) of each, and conflicts."""
    acknowledged: list[JsonValue] = []
    conflicts = 0
    while len(acknowledged) < appends:
        leaf = (await session_info(backend, session_id)).leaf_id
        try:
            appended = await backend.append(session_id, [assistant(tokens=1)], expected=leaf)
        except LeafConflict as conflict:
            if conflict.expected != leaf or conflict.actual == leaf:
                raise AssertionError("a conflict that is none") from conflict
            conflicts += 1
        else:
            acknowledged.append([leaf, appended.entry_ids[0]])
    return {"acknowledged": acknowledged, "conflicts": conflicts}


async def append_or_branch(backend: Backend, *, session_id: str, appends: int) -> JsonValue:
    """Append below what this worker last saw or wrote, branching after conflicts; return (parent, id, branched)."""
    acknowledged: list[JsonValue] = []
    leaf = (await session_info(backend, session_id)).leaf_id
    for _ in range(appends):
        appended = await backend.append(session_id, [assistant(tokens=1)], expected=leaf, on_conflict="branch")
        acknowledged.append([leaf, appended.entry_ids[0], appended.on_branch])
        leaf = appended.leaf_id if appended.on_branch else appended.entry_ids[0]
    return acknowledged


async def fork_and_delete(backend: Backend, *, root: str, seed: int, steps: int) -> JsonValue:
    """Fork, append to and delete sessions of one tree as chance has it; return what became of it, as counts."""
    chance = random.Random(seed)
    counts = {"forked": 0, "appended": 0, "deleted": 0, "gone": 0}
    for _ in range(steps):
        page = await backend.list_sessions(scope=None, kind=None, limit=1000, cursor=None)
        session = chance.choice(page.sessions)
        try:
            match chance.choice(["fork", "fork", "append", "append", "delete"]):
                case "fork":
                    path = (await backend.read_path(session.id)).entries
                    await backend.fork(session.id, chance.choice(path).id if path else None, NewSession())
                    counts["forked"] += 1
                case "append":
                    # The same text in several sessions: one blob of the tree, which deletion must not take too early.
                    await backend.append(session.id, [user(LARGE), user("small")])
                    counts["appended"] += 1
                case _ if session.id != root:
                    counts["deleted"] += len((await backend.delete_tree(session.id)).session_ids)
        except (SessionNotFound, EntryNotFound):
            counts["gone"] += 1
    return dict(counts)


async def delete(backend: Backend, *, session_id: str) -> JsonValue:
    """Delete a session; return the sessions that went with it, and how many entries."""
    deletion = await backend.delete_tree(session_id)
    return {"sessions": list(deletion.session_ids), "entries": deletion.entries_deleted}


async def create_with_keys(backend: Backend, *, keys: list[str]) -> JsonValue:
    """Create a session for each key, all at once; return the ids, None where another was first."""

    async def create(key: str) -> JsonValue:
        try:
            return (await backend.create_session(NewSession(key=key))).id
        except SessionExists:
            return None

    return list(await asyncio.gather(*[create(key) for key in keys]))


async def repeat_with_key(backend: Backend, *, session_id: str, to: str, keys: list[str]) -> JsonValue:
    """Append, move and fork under each key; return (id, replayed), (revision, replayed) and id of the results."""
    results: list[JsonValue] = []
    for key in keys:
        appended = await backend.append(session_id, [assistant(tokens=1)], idempotency_key=f"append {key}")
        moved = await backend.move(session_id, to, idempotency_key=f"move {key}")
        fork = await backend.fork(session_id, to, NewSession(), idempotency_key=f"fork {key}")
        results.append([[appended.entry_ids[0], appended.replayed], [moved.revision, moved.replayed], fork.id])
    return results


async def append_until_stopped(backend: Backend, line: Line, *, session_id: str, worker: str) -> JsonValue:
    """Append with a text that tells each append from every other; say each one that is begun, and that has landed.

    Ends when it is told something, and returns what could not be done.
    """
    stop = asyncio.get_running_loop().run_in_executor(None, line.hear)
    failures: list[JsonValue] = []
    number = 0
    while not stop.done():
        number += 1
        text = f"{worker}-{number}"
        line.say(["begun", text])
        try:
            await backend.append(session_id, [user(text)])
        except (OSError, TimeoutError) as error:
            failures.append([text, type(error).__name__])
        else:
            line.say(["landed", text])
    return failures


async def hold_a_reservation(backend: Backend, line: Line, *, session_id: str) -> JsonValue:
    """Reserve all that is left, say which reservation that is, and hold it until this process is ended."""
    line.say(await reserve_everything(backend, session_id=session_id))
    await asyncio.to_thread(line.hear)
    return None


JOBS: dict[str, Callable[..., Awaitable[JsonValue]]] = {
    job.__name__: job
    for job in (
        append_to_own_sessions,
        append_and_rebase,
        append_or_branch,
        fork_and_delete,
        delete,
        create_with_keys,
        repeat_with_key,
        spend,
    )
}


TALKING: dict[str, Callable[..., Awaitable[JsonValue]]] = {
    job.__name__: job for job in (append_until_stopped, hold_a_reservation)
}
"""Jobs that say more than their result."""


def work(job: str, line: Line, *, url: str, **arguments: object) -> None:
    """Do one job."""

    async def answer() -> None:
        backend = await open_engine(url, sources=SOURCES, busy_timeout=BUSY_SECONDS, pool_size=4)
        try:
            line.say("ready")
            await asyncio.to_thread(line.hear)
            do = partial(TALKING[job], backend, line) if job in TALKING else partial(JOBS[job], backend)
            said: JsonValue = {"result": await do(**arguments)}
        except Exception as error:  # noqa: BLE001 - whatever escapes is what the test has to hear of
            said = {"error": f"{type(error).__name__}: {error}"}
        finally:
            await backend.close()
        # Before the loop ends, which waits for the thread of a job that hears: the test may say nothing more.
        line.say(said)

    asyncio.run(answer())


if __name__ == "__main__":
    # What is imported late is imported once, here.
    make_engine(make_url("postgresql+asyncpg://"), durability="full", busy_timeout=1.0, pool_size=1, pool_timeout=1.0)
    user("warm")
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        serve(parent, {job: partial(work, job) for job in (*JOBS, *TALKING)})
