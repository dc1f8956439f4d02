"""Processes that work on a SQLite store as they are told, forked from one that has everything imported.

The process started by this script listens on the socket whose descriptor it is given. A message is JSON: a job's name
and arguments, with a socket for the job to talk over, which is answered with the pid of the process forked for it; or
the pid of one to wait for, which is answered with how it ended. A job reads and writes a line of JSON at a time.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import resource
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import flue_py.sync
from flue_py.db.backend import Backend
from flue_py.db.schema import schema_statements
from flue_py.db.sqlite.runner import open_sqlite
from flue_py.errors import StoreBusy
from tests.samples import assistant, user
from tests.sources import random_sources
from tests.store import spending
from tests.store.kill_operations import SOURCES, Chooser, apply, outcome

RANDOM = random_sources()


class Line:
    """The socket of a job: lines of JSON, written whole and at once."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile()

    def say(self, what: object) -> None:
        """Write a line."""
        self._connection.sendall(f"{json.dumps(what)}\n".encode())

    def hear(self) -> Any:
        """Wait for a line; an end of the file is an end of this process."""
        line = self._reader.readline()
        if not line:
            sys.exit("nobody listens any more")
        return json.loads(line)


# -- jobs -------------------------------------------------------------------------------------------------------------


def die_at_work(line: Line, *, path: str, durability: Any, seed: str, scopes: list[str], log_bytes: int | None) -> None:
    """Do operations of every kind on the sessions of several scopes at once, until this process is ended from outside.

    Says each operation before it is begun, and its outcome when it is acknowledged. With ``log_bytes`` the kernel
    ends the process as it writes that byte of a file (of the write-ahead log, since it grows past the database).
    """
    if log_bytes is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        sys.dont_write_bytecode = True  # it would be cut off, and stay
        resource.setrlimit(resource.RLIMIT_FSIZE, (log_bytes, log_bytes))

    async def work_on(backend: Backend, scope: str) -> None:
        chooser = Chooser(backend, scope, random.Random(f"{seed} {scope}"))
        while True:
            operation = await chooser.next()
            line.say(["begun", scope, operation])
            line.say(["landed", scope, outcome(await apply(backend, operation))])

    async def main() -> None:
        backend = await open_sqlite(path, sources=SOURCES, durability=durability)
        await asyncio.gather(*[work_on(backend, scope) for scope in scopes])

    line.say("ready")
    asyncio.run(main())


def append_batches(
    line: Line, *, path: str, own: str, shared: str, worker: str, appends: int, busy_timeout: float
) -> None:
    """Append batches to a session of one's own and to a shared one, all through one store; say what came of it.

    A batch's texts are "worker-number-place". The result: ids by session, seconds of the longest wait, errors.
    """

    async def fill(backend: Backend, session_id: str) -> tuple[list[list[str]], float]:
        batches, longest = [], 0.0
        for number in range(appends):
            name = f"{worker}-{number}"
            begun = time.monotonic()
            appended = await backend.append(session_id, [user(f"{name}-0"), assistant(f"{name}-1", tokens=1)])
            longest = max(longest, time.monotonic() - begun)
            batches.append(list(appended.entry_ids))
        return batches, longest

    async def main() -> object:
        backend = await open_sqlite(path, sources=RANDOM, durability="full", busy_timeout=busy_timeout)
        try:
            line.say("ready")
            await asyncio.to_thread(line.hear)
            results = await asyncio.gather(fill(backend, own), fill(backend, shared))
        finally:
            await backend.close()
        return {"own": results[0][0], "shared": results[1][0], "longest": max(results[0][1], results[1][1])}

    try:
        line.say({"result": asyncio.run(main())})
    except StoreBusy as error:
        line.say({"error": f"StoreBusy: {error}"})


def hold_a_snapshot(line: Line, *, path: str) -> None:
    """Begin to read, and go on until told; say how many entries are seen, at the begin and at the end."""
    with closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        line.say(connection.execute("SELECT COUNT(*) FROM entries").fetchone()[0])
        line.hear()
        line.say(connection.execute("SELECT COUNT(*) FROM entries").fetchone()[0])
        connection.execute("COMMIT")
        line.say("let go")
        line.hear()


def spend(line: Line, *, path: str, session_ids: list[str], seed: int, beyond: int) -> None:
    """Spend a budget together with other processes (see `spending.spend`); begin when told."""

    async def main() -> object:
        backend = await open_sqlite(path, sources=RANDOM, durability="normal", busy_timeout=60.0)
        line.say("ready")
        line.hear()
        try:
            return await spending.spend(backend, session_ids=session_ids, seed=seed, beyond=beyond)
        finally:
            await backend.close()

    line.say(asyncio.run(main()))


def hold_a_reservation(line: Line, *, path: str, session_id: str) -> None:
    """Reserve all that is left, say which reservation that is, and hold it until this process is ended."""

    async def main() -> None:
        backend = await open_sqlite(path, sources=RANDOM)
        line.say(await spending.reserve_everything(backend, session_id=session_id))
        await asyncio.to_thread(line.hear)

    asyncio.run(main())


def run_program(line: Line, *, program: str, arguments: list[str]) -> None:
    """Run the text of a program with these arguments; say what it printed, and what it wrote to stderr."""
    printed, errors = io.StringIO(), io.StringIO()
    sys.argv[1:] = arguments
    with redirect_stdout(printed), redirect_stderr(errors):
        exec(program, {"__name__": "__main__"})
    line.say([printed.getvalue(), errors.getvalue()])


JOBS: dict[str, Callable[..., None]] = {
    job.__name__: job for job in (die_at_work, append_batches, hold_a_snapshot, spend, hold_a_reservation, run_program)
}


# -- the process they are forked from ---------------------------------------------------------------------------------


def serve(control: socket.socket, jobs: Mapping[str, Callable[..., None]]) -> None:
    """Fork a process for each job, and tell how each ended to who asks for it."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 1)
        if not message:
            return
        told = json.loads(message)
        if "wait_for" in told:
            _, status = os.waitpid(told["wait_for"], 0)
            control.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            with socket.socket(fileno=descriptors[0]) as connection:
                jobs[told["job"]](Line(connection), **told["arguments"])
            sys.exit(0)
        os.close(descriptors[0])
        control.send(json.dumps(pid).encode())


if __name__ == "__main__":
    # What is imported late is imported once, here.
    schema_statements()
    with flue_py.sync.open(":memory:", prices=False) as warm:
        warm.create_session().append_message({"role": "user", "content": "warm"})
    user("warm")
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        serve(parent, JOBS)
