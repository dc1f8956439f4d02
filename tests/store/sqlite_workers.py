"""Worker processes on a store, and how a test starts, talks with, and kills them."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GUARD_SECONDS = 120
"""Turns a test that hangs into one that fails; nothing is measured with it."""


class Worker:
    """A process that does one job (see `sqlite_worker` and `postgres_worker`)."""

    def __init__(self, nursery: Nursery, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self._nursery = nursery
        self._connection = connection
        self._unread = b""
        self._status: int | None = None

    def tell(self, what: object) -> None:
        """Write a line to the process."""
        self._connection.sendall(f"{json.dumps(what)}\n".encode())

    def hear(self) -> Any:
        """Wait for the next line of the process; return what it says."""
        line = self._line(time.monotonic() + GUARD_SECONDS)
        assert line is not None, f"the worker said nothing more, and ended with {self.wait()}"
        return line

    def hear_lines(self, count: int) -> list[Any]:
        """Return the next lines that the process says: so many, or fewer where it ends."""
        deadline = time.monotonic() + GUARD_SECONDS
        said: list[Any] = []
        while len(said) < count and (line := self._line(deadline)) is not None:
            said.append(line)
        return said

    def hear_until(self, seconds: float) -> list[Any]:
        """Return what the process says from now on, for so many seconds or to its end."""
        deadline = time.monotonic() + seconds
        said = []
        while (line := self._line(deadline)) is not None:
            said.append(line)
        return said

    def _line(self, deadline: float) -> Any:
        """Return the next whole line; None at the deadline, or where none will come."""
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._connection], [], [], max(0.0, deadline - time.monotonic()))
            more = self._connection.recv(1 << 20) if ready else b""
            if not more:
                return None
            self._unread += more
        line, self._unread = self._unread.split(b"\n", 1)
        return json.loads(line)

    def kill(self) -> list[Any]:
        """End the process with SIGKILL; return what it had still said."""
        os.kill(self.pid, signal.SIGKILL)
        return self.hear_until(GUARD_SECONDS)

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code, or minus the signal that ended it."""
        if self._status is None:
            self._status = self._nursery.wait_for(self.pid)
            self._connection.close()
        return self._status

    def end(self) -> None:
        """End the process, if it has not ended."""
        if self._status is None:
            # Not waited for yet, so the pid is still its own.
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


class Nursery:
    """The process that workers are forked from; all of it is imported once."""

    def __init__(self, script: str) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", script, str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd=ROOT
            )
        self._workers: list[Worker] = []

    def start(self, job: str, **arguments: object) -> Worker:
        """Have a process begin a job."""
        ours, theirs = socket.socketpair()
        with theirs:
            message = json.dumps({"job": job, "arguments": arguments}).encode()
            socket.send_fds(self._control, [message], [theirs.fileno()])
            worker = Worker(self, ours, self._answer())
        self._workers.append(worker)
        return worker

    def run(self, program: str, *arguments: object) -> str:
        """Run the text of a program in a process of its own, which must end well and write nothing to stderr.

        Returns what it printed.
        """
        worker = self.start("run_program", program=program, arguments=[str(argument) for argument in arguments])
        printed, errors = worker.hear()
        assert (errors, worker.wait()) == ("", 0)
        return str(printed).strip()

    def wait_for(self, pid: int) -> int:
        """Wait for the end of a process; return its exit code, or minus the signal."""
        self._control.send(json.dumps({"wait_for": pid}).encode())
        return self._answer()

    def _answer(self) -> int:
        answer = self._control.recv(1 << 16)
        assert answer, f"the process that workers are forked from ended with {self._process.wait()}"
        return int(json.loads(answer))

    def end(self) -> None:
        """End all workers, and the process that they were forked from."""
        for worker in self._workers:
            worker.end()
        self._control.close()
        self._process.wait(GUARD_SECONDS)


@contextmanager
def nursery(script: str = "tests.store.sqlite_worker") -> Iterator[Nursery]:
    """Start the process that workers are forked from; end them all, whatever happens."""
    started = Nursery(script)
    try:
        yield started
    finally:
        started.end()
