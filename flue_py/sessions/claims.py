"""A claim on a session that ends with its process: who compacts it now.

It names a process so that others of the same machine see whether that still runs, however it ended. Of a process
elsewhere nobody here can tell; its claim holds for ten minutes, and is renewed before each call of a model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import platform
else:
    # Few sessions are compacted by a guard, and fewer where there is no /proc.
    platform = lazy_module("platform")

ELSEWHERE_SECONDS = 600

_SPARE_SECONDS = 60

_under: ContextVar[Claim | None] = ContextVar("_under", default=None)
"""The claim under which a task compacts a session."""

_held: set[str] = set()
"""The tokens of the claims that this process holds."""


@frozen
class Claim:
    """Who compacts a session: the process, when that began, and when the claim was made, in seconds since 1970.

    ``cycle`` is the latest compaction then. Two claims of one process differ in ``token``.
    """

    session_id: str
    host: str
    pid: int
    born: str
    token: str
    cycle: str
    at: int

    @classmethod
    def make(cls, session_id: str, cycle: str, at: int) -> Claim:
        """Return a claim of this process, which holds from now on."""
        claim = cls(session_id, _this_host(), os.getpid(), _born(os.getpid()) or "", os.urandom(8).hex(), cycle, at)
        _held.add(claim.token)
        return claim

    def drop(self) -> None:
        """Let go of it. It may be dropped again."""
        _held.discard(self.token)

    def holds(self, session_id: str, now: int) -> bool:
        """Return whether whoever made it is still at work. That of another session, copied with metadata, holds not."""
        if self.session_id != session_id:
            return False
        if self.host != _this_host():
            return now - self.at < ELSEWHERE_SECONDS
        if self.pid == os.getpid():
            return self.token in _held
        born = _born(self.pid)
        return born is not None and born == self.born

    def renewed(self, now: int, seconds: float) -> Claim | None:
        """Return it as it holds elsewhere for so many seconds more; None where it does already."""
        until = now + int(seconds) + _SPARE_SECONDS
        return None if until <= self.at + ELSEWHERE_SECONDS else replace(self, at=max(now, until - ELSEWHERE_SECONDS))

    def to_json(self) -> JsonObject:
        """Return it as JSON."""
        return {
            "sessionId": self.session_id,
            "host": self.host,
            "pid": self.pid,
            "born": self.born,
            "token": self.token,
            "cycle": self.cycle,
            "at": self.at,
        }

    @classmethod
    def from_json(cls, stored: JsonValue) -> Claim | None:
        """Return what was stored; None if it is no claim."""
        if not isinstance(stored, dict):
            return None
        texts = [stored.get(name) for name in ("sessionId", "host", "born", "token", "cycle")]
        pid, at = stored.get("pid"), stored.get("at")
        if not isinstance(pid, int) or not isinstance(at, int) or not all(isinstance(text, str) for text in texts):
            return None
        session_id, host, born, token, cycle = map(str, texts)
        return cls(session_id, host, pid, born, token, cycle, at)


@contextmanager
def compacting_under(claim: Claim | None) -> Iterator[None]:
    """Have what is called in the block compact a session under a claim of this process; under none for None."""
    before = _under.set(claim)
    try:
        yield
    finally:
        _under.reset(before)


def claim_of_this_task(session_id: str) -> Claim | None:
    """Return the claim under which this task compacts a session; None for none."""
    claim = _under.get()
    return claim if claim is not None and claim.session_id == session_id else None


@lru_cache(maxsize=1)
def _this_host() -> str:
    """Return a name of this machine, since it was started, and of the processes that see each other on it."""
    try:
        booted = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # Processes in two containers may have the same number.
        return f"{booted} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def _born(pid: int) -> str | None:
    """Return when a process began, "" where the system does not say; None where it does not run."""
    if pid <= 0:
        return None
    if Path("/proc/self/stat").exists():
        return _born_by_proc(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""
    return ""


def _born_by_proc(pid: int) -> str | None:
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name of the program stands in brackets, and may hold blanks and brackets.
    fields = told.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]
