"""Operations of every kind as JSON, chosen by chance, for a process that is killed and for the model of its store.

Every id is in the operation and the clock stands still, so that two stores to which the same operations were applied
are the same in everything they tell.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from msgspec import Struct, to_builtins
from msgspec.structs import asdict, replace

from flue_py.core import operations
from flue_py.core.entries import NewEntry
from flue_py.core.operations import Operation as Together
from flue_py.core.sessions import STORED, Deletion, NewSession, SessionInfo
from flue_py.db.backend import Backend
from flue_py.errors import FlueError
from tests.samples import assistant, compaction, path_ids, user
from tests.sources import counted_sources

SOURCES = counted_sources(step_us=0)
Operation: TypeAlias = dict[str, Any]

_WEIGHTS = {
    "append": 8, "batch": 5, "large": 1, "keyed": 4, "compaction": 3, "branch": 2, "import": 1, "fork": 3, "task": 3,
    "create": 1, "delete": 3, "move": 2, "retract": 1, "undo": 2, "redo": 1, "label": 1, "update": 1,
    "end": 2, "together": 3,
}  # fmt: skip
_MOST_SESSIONS = 6
_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"


class Chooser:
    """Chooses operations on the sessions of one scope, where nobody else writes."""

    def __init__(self, backend: Backend, scope: str, chance: random.Random) -> None:
        self._backend = backend
        self._scope = scope
        self._chance = chance
        # So that no id comes again from the next process.
        self._prefix = f"{chance.getrandbits(48):012x}"
        self._count = 0

    def _id(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count:04}"

    async def next(self) -> Operation:
        """Return the next operation, which the sessions that are there now allow as a rule."""
        page = await self._backend.list_sessions(scope=self._scope, kind=None, limit=100, cursor=None)
        chance = self._chance
        do = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if len(page.sessions) > _MOST_SESSIONS:
            do = "delete"
        if not page.sessions or do == "create":
            return {"do": "create", "id": self._id(), "scope": self._scope}
        session = chance.choice(sorted(page.sessions, key=lambda info: info.id))
        operation: Operation = {"do": do, "session": session.id}
        if do in ("append", "batch", "large", "keyed", "branch", "together"):
            operation["entries"] = self._entries(do)
        if do == "keyed":
            operation["key"] = self._id()
        elif do in ("fork", "task"):
            operation["id"] = self._id()
        elif do == "together":
            operation["ids"] = [self._id() for _ in range(3)]
        return await self._placed(operation, session)

    async def _placed(self, operation: Operation, session: SessionInfo) -> Operation:
        """Return an operation that needs entries of the session with some, or an append where it has none."""
        if operation["do"] not in ("compaction", "branch", "import", "fork", "move", "retract", "label"):
            return operation
        ids = await path_ids(self._backend, session.id)
        if not ids:
            return {"do": "append", "session": session.id, "entries": self._entries("append")}
        at = ids[-1] if operation["do"] == "retract" else self._chance.choice(ids)
        ours = [self._id(), self._id()] if operation["do"] in ("compaction", "import") else []
        return {**operation, "at": at, "ids": ours}

    def _entries(self, do: str) -> list[list[Any]]:
        """Return entries as (id, text, tokens), where tokens make it an assistant's message."""
        count = self._chance.randint(2, 12) if do in ("batch", "keyed") else 1
        sizes = [30_000 if do == "large" else self._chance.choice([20, 300, 2_000]) for _ in range(count)]
        return [
            [self._id(), "".join(self._chance.choices(_CHARACTERS, k=size)), self._chance.choice([0, 0, 7, 1_000_003])]
            for size in sizes
        ]


async def apply(backend: Backend, operation: Operation) -> object:
    """Do an operation; return its result, or the error of ours that it raised."""
    try:
        return await _apply(backend, operation)
    except FlueError as error:
        return error


async def _apply(backend: Backend, operation: Operation) -> object:
    session, at = operation.get("session", ""), operation.get("at", "")
    match operation["do"]:
        case "create":
            return await backend.create_session(NewSession(id=operation["id"], scope=operation["scope"]))
        case "append" | "batch" | "large":
            return await backend.append(session, _new_entries(operation["entries"]))
        case "keyed":
            return await backend.append(session, _new_entries(operation["entries"]), idempotency_key=operation["key"])
        case "branch":
            # Below an entry that is the leaf, it is a plain append.
            return await backend.append(session, _new_entries(operation["entries"]), expected=at, on_conflict="branch")
        case "compaction":
            return await backend.append(session, [replace(compaction(at, tokens=11), id=operation["ids"][0])])
        case "import":
            return await backend.import_entries(session, _siblings(at, *operation["ids"]), leaf=operation["ids"][1])
        case "fork":
            return await backend.fork(session, at, NewSession(id=operation["id"]))
        case "task":
            return await backend.create_task(session, operation["id"], NewSession(id=operation["id"]))
        case "delete":
            return await backend.delete_tree(session)
        case "move":
            return await backend.move(session, at, expected=STORED)
        case "retract":
            return await backend.retract(session, at)
        case "undo":
            return await backend.undo(session)
        case "redo":
            return await backend.redo(session)
        case "label":
            await backend.set_label(session, at, "kept")
            return None
        case "end":
            return await backend.end_task(session, "done", summary="so far")
        case "together":
            return await backend.atomic(_together(session, _new_entries(operation["entries"]), *operation["ids"]))
        case "update":
            return await backend.update_session(session, title="renamed", metadata_text='{"a":1}')
    raise AssertionError(operation)


def _new_entries(entries: Sequence[Sequence[Any]]) -> list[NewEntry]:
    return [
        replace(assistant(text, tokens=tokens, dollars=0.03) if tokens else user(text), id=entry_id)
        for entry_id, text, tokens in entries
    ]


def _together(session: str, entries: list[NewEntry], fork: str, task: str, said: str) -> list[Together]:
    """Return operations on three sessions, two of which they make themselves."""
    return [
        operations.AppendEntries(session, entries),
        operations.ForkSession(session, STORED, NewSession(), drawn_id=fork),
        operations.AppendEntries(fork, [replace(assistant("in the fork", tokens=3, dollars=0.01), id=said)]),
        operations.Undo(fork),
        operations.CreateTask(session, task, NewSession(id=task)),
        operations.EndTask(task, "done", "so far"),
        operations.SetLabel(session, str(entries[0].id), "kept"),
        operations.UpdateSession(session, title="renamed"),
    ]


def _siblings(parent: str, *ids: str) -> list[NewEntry]:
    return [replace(assistant("imported", tokens=5), id=entry_id, parent_id=parent) for entry_id in ids]


def outcome(result: object) -> Any:
    """Return what an operation came to as JSON, the same for the same result."""
    if result is None:
        return None
    if isinstance(result, FlueError):
        return type(result).__name__
    if isinstance(result, Deletion):
        # Which session an entry counts with once its creator is gone is the store's own affair.
        result = replace(result, entries_kept=0, links=())
    if isinstance(result, operations.Committed):
        left = sorted([name, each.leaf_id, each.revision] for name, each in result.left.items())
        return {"left": left, "outcomes": [outcome(each) for each in result.outcomes]}
    fields = {name: to_builtins(value) for name, value in asdict(cast("Struct", result)).items()}
    # Which of the scopes was first to make a session, and had the smaller key, is not told.
    fields.pop("session_key", None)
    # Which tasks a link names is compared with the link.
    fields.pop("task_names", None)
    return {name: sorted(value) if isinstance(value, tuple | list) else value for name, value in fields.items()}
