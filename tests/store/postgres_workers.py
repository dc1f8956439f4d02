"""Worker processes on a PostgreSQL store, and their interface for a test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "tests.store.postgres_worker"
BUSY_SECONDS = 60.0


class Worker:
    """A process that does one job after the other (see `postgres_worker`)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def tell(self, line: str) -> None:
        """Write a line to the process."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """Wait for the next line of the process; return what it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the worker ended with {self._process.wait()}"
        return json.loads(line)

    def prepare(self, job: str, url: str, *, busy_timeout: float = BUSY_SECONDS, **arguments: object) -> None:
        """Have a job's store opened."""
        self.tell(json.dumps({"job": job, "url": url, "busy_timeout": busy_timeout, "arguments": arguments}))

    def expect(self, line: str) -> None:
        """Wait for a line that says this."""
        heard = self.hear()
        assert heard == line, heard

    def result(self) -> Any:
        """Wait for the end of the job; return its result."""
        return _result(self.hear())

    def end(self) -> None:
        """Let the process go."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue


@contextmanager
def workers(count: int) -> Iterator[list[Worker]]:
    """Start processes; end them all, whatever happens."""
    with ExitStack() as stack:
        started = []
        for _ in range(count):
            worker = Worker()
            stack.callback(worker.end)
            started.append(worker)
        for worker in started:
            worker.expect("started")
        yield started


def all_at_once(team: Sequence[Worker], job: str, url: str, arguments: Sequence[dict[str, object]]) -> list[Any]:
    """Have each worker do a job with its arguments, all beginning together; return their results."""
    for worker, own in zip(team, arguments, strict=True):
        worker.prepare(job, url, **own)
    for worker in team:
        worker.expect("ready")
    for worker in team:
        worker.tell("go")
    # All are heard before any is judged: who is used again has nothing left to say.
    return [_result(said) for said in [worker.hear() for worker in team]]


def _result(said: Any) -> Any:
    assert "result" in said, said
    return said["result"]
