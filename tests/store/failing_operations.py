"""Every operation of a backend that writes, and how to make them fail at each step until they succeed."""

from __future__ import annotations

import random
import shutil
import sqlite3
import string
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from msgspec.structs import replace

from flue_py.core import operations
from flue_py.core.entries import NewEntry
from flue_py.core.operations import Operation as Several
from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from flue_py.db.ops.base import SPILL_ABOVE
from flue_py.errors import FlueError
from tests.samples import assistant, compaction, new_session, path_ids, placed, talk, user
from tests.sources import StepSources
from tests.store.sqlite_batches import opened


def _large(seed: int) -> NewEntry:
    """Return a message that is stored as a blob: it does not compress well enough to be in its row."""
    return user("".join(random.Random(seed).choices(string.ascii_letters + string.digits, k=SPILL_ABOVE * 3 // 2)))


SESSION, FORK, TASK = "session-0001", "session-0002", "session-0003"
STORED_BLOB, NEW_BLOB = _large(0), _large(1)


@dataclass(frozen=True)
class Prepared:
    """A store with something in it for every operation to work on: a session, a fork and a task of it."""

    path: Path
    ids: tuple[str, ...]

    def copy(self, path: Path) -> Path:
        """Copy the store, which is closed, and return where."""
        shutil.copy(self.path, path)
        return path


async def prepare(path: Path) -> Prepared:
    """Make the store."""
    async with opened(path) as backend:
        session = await new_session(backend, *talk(4), STORED_BLOB, assistant("end", tokens=3, dollars=0.01))
        assert session.id == SESSION
        await backend.append(SESSION, [assistant("once", tokens=2)], idempotency_key="used")
        ids = await path_ids(backend, SESSION)
        await backend.set_label(SESSION, ids[0], "kept")
        await backend.fork(SESSION, STORED, NewSession(id=FORK))
        await backend.append(FORK, [*talk(2), STORED_BLOB])
        await backend.move(FORK, ids[1])
        await backend.undo(FORK)
        await backend.create_task(SESSION, "task", NewSession(id=TASK))
        await backend.append(TASK, talk(2))
    return Prepared(path, tuple(ids))


Operation: TypeAlias = Callable[[Backend, tuple[str, ...]], Awaitable[object]]


def _several(ids: tuple[str, ...]) -> list[Several]:
    """Return operations on sessions that are there, that they make, and that they delete."""
    return [
        operations.AppendEntries(
            SESSION, [placed(user("x"), "n1"), placed(assistant("y", tokens=5, dollars=0.1), "n2")]
        ),
        operations.AppendEntries(SESSION, [replace(NEW_BLOB, id="n3"), replace(STORED_BLOB, id="n4")]),
        operations.ForkSession(SESSION, "n1", NewSession(), drawn_id="made"),
        operations.Navigate("made", ids[0], replace(NewEntry.branch_summary("left", from_id=None), id="n5"), "here"),
        operations.Undo("made"),
        operations.MoveLeaf(FORK, ids[1]),
        operations.UpdateSession(FORK, title="t", metadata_text='{"a":1}'),
        operations.SetLabel(SESSION, "n2", "new"),
        operations.SetPin(SESSION, "n1", True),
        operations.EndTask(TASK, "failed", "no time"),
        operations.DeleteTree(TASK),
    ]


OPERATIONS: dict[str, Operation] = {
    "append": lambda backend, _: backend.append(SESSION, [user("x")]),
    "append a batch with usage": lambda backend, _: backend.append(
        SESSION, [user("x"), assistant("y", tokens=5, dollars=0.1), assistant("z", tokens=1)]
    ),
    "append new and known blobs": lambda backend, _: backend.append(SESSION, [NEW_BLOB, STORED_BLOB]),
    "append a compaction": lambda backend, ids: backend.append(SESSION, [compaction(ids[1], tokens=7)]),
    "append with a key": lambda backend, _: backend.append(SESSION, [user("x")], idempotency_key="k"),
    "append to a branch": lambda backend, ids: backend.append(
        SESSION, [user("x"), assistant("y", tokens=5)], expected=ids[0], on_conflict="branch"
    ),
    "append to a task": lambda backend, _: backend.append(TASK, talk(3)),
    "import": lambda backend, _: backend.import_entries(
        SESSION, [placed(user("x"), "i1"), placed(user("y"), "i2", "i1"), placed(user("z"), "i3", "i1")], leaf="i3"
    ),
    "import a session": lambda backend, _: backend.import_session(
        NewSession(key="imported"), [placed(user("x"), "i1"), placed(assistant(tokens=3), "i2", "i1")], leaf="i2"
    ),
    "move": lambda backend, ids: backend.move(SESSION, ids[1]),
    "move with a key": lambda backend, ids: backend.move(SESSION, ids[1], idempotency_key="m"),
    "retract": lambda backend, ids: backend.retract(SESSION, ids[-1]),
    "undo": lambda backend, _: backend.undo(SESSION),
    "redo": lambda backend, _: backend.redo(FORK),
    "fork": lambda backend, ids: backend.fork(SESSION, ids[1], NewSession(key="f"), idempotency_key="f"),
    "create a session": lambda backend, _: backend.create_session(NewSession(key="c")),
    "create a task": lambda backend, _: backend.create_task(SESSION, "t", NewSession(), idempotency_key="t"),
    "link a task": lambda backend, _: backend.link_task(SESSION, FORK, "linked"),
    "end a task": lambda backend, _: backend.end_task(TASK, "done", summary="found it"),
    "label": lambda backend, ids: backend.set_label(SESSION, ids[1], "here"),
    "clear a label": lambda backend, ids: backend.set_label(SESSION, ids[0], None),
    "update": lambda backend, _: backend.update_session(SESSION, title="t", metadata_text='{"a":1}', completed_us=1),
    "several at once": lambda backend, ids: backend.atomic(_several(ids)),
    # A key is one statement before them all and one behind: of these, some will do.
    "several at once with a key": lambda backend, ids: backend.atomic(_several(ids)[:3], idempotency_key="several"),
    "delete": lambda backend, _: backend.delete_tree(SESSION),
}

Dump: TypeAlias = dict[str, list[tuple[Any, ...]]]


class Tables:
    """The tables of a store, beside all that the store itself says of them."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)

    def dump(self) -> Dump:
        """Return the rows of every table, in the order of their keys."""
        found = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        return {name: self._connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in found}

    def close(self) -> None:
        """Let go."""
        self._connection.close()


class Fault(Protocol):
    """Something that makes the n-th step of an operation fail."""

    def arm(self, step: int) -> None:
        """Make that step fail, once."""

    def disarm(self) -> bool | None:
        """Let everything succeed again; return whether the step was met, None where that cannot be told."""


@dataclass(frozen=True)
class Outcome:
    """What an operation came to, and the store it left."""

    result: object
    tables: Dump


async def undisturbed(prepared: Prepared, path: Path, operation: Operation, step: int) -> Outcome:
    """Return what an operation comes to in a copy of the store where nothing fails, at a step of the sources."""
    sources = StepSources()
    for _ in range(step):
        sources.begin_step()
    async with opened(prepared.copy(path), sources.sources) as backend:
        with closing(Tables(path)) as tables:
            return Outcome(await operation(backend, prepared.ids), tables.dump())


async def fail_until_it_succeeds(
    backend: Backend, sources: StepSources, prepared: Prepared, path: Path, operation: Operation, fault: Fault
) -> tuple[Outcome, int]:
    """Make an operation fail at its first step, at its second, and so on; return its success, and at which try.

    Asserts that each failure is one of our errors and leaves every table as it was.
    """
    with closing(Tables(path)) as tables:
        before = tables.dump()
        result: object
        for step in count(1):
            sources.begin_step()
            fault.arm(step)
            result, failed = None, False
            try:
                result = await operation(backend, prepared.ids)
            except FlueError:
                failed = True
            finally:
                met = fault.disarm()
            assert met in (failed, None), step
            if not failed:
                return Outcome(result, tables.dump()), step
            assert tables.dump() == before, step
    raise AssertionError("unreachable")
