"""Batches of operations for the state machine: each on what is there, or on what earlier ones of the batch make."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.operations import (
    AppendEntries,
    CreateSession,
    CreateTask,
    DeleteTree,
    EndTask,
    ForkSession,
    LinkTask,
    MoveLeaf,
    Navigate,
    OnSession,
    Operation,
    Redo,
    Undo,
)
from flue_py.core.sessions import STORED, Expected, LeafChoice, NewSession
from tests.samples import assistant, placed, user

STEPS = (
    "append", "append", "append", "branch", "rebase", "create", "fork", "fork", "task", "link", "end", "move",
    "navigate", "undo", "redo", "delete",
)  # fmt: skip
"""What a batch may do."""


class BatchMaker:
    """Makes the operations of one batch, whose ids begin with ``prefix``.

    ``session``, ``entry`` and ``seen`` pick from what the store has: a session, one of its entries, what to compare.
    """

    def __init__(
        self,
        prefix: str,
        session: Callable[[int], str],
        entry: Callable[[str, int], str],
        seen: Callable[[str, int], Expected],
    ) -> None:
        self._prefix = prefix
        self._session = session
        self._entry = entry
        self._seen = seen
        self._count = 0
        self.sessions: list[str] = []
        self._entries: dict[str, list[str]] = {}

    def make(self, do: str, pick: int, other: int, seen: int, *, room: int) -> Operation:
        """Return the next operation; one that makes no session if there is no ``room`` for more."""
        if do in ("create", "fork", "task") and len(self.sessions) >= room:
            do = "append"
        session_id = self._pick(pick)
        # What a batch makes itself has no revision before it; and one conflict is enough to undo a whole batch.
        is_compared = session_id not in self.sessions and seen % 3 == 0
        expected = self._seen(session_id, seen) if is_compared else STORED
        if do == "create":
            return CreateSession(NewSession(id=self._new_session(), key="a" if other % 8 == 0 else None))
        if do in ("append", "branch", "rebase"):
            return self._append(session_id, do, other, expected)
        return self._other(do, session_id, other, expected)

    def _other(self, do: str, session_id: str, other: int, expected: Expected) -> OnSession:
        entry_id = self._pick_entry(session_id, other)
        made: OnSession = DeleteTree(session_id, None, expected)
        if do == "fork":
            at: LeafChoice = STORED if other % 3 == 0 else entry_id
            made = ForkSession(session_id, at, NewSession(), expected=expected, drawn_id=self._new_session(session_id))
        elif do == "task":
            made = CreateTask(session_id, f"t{other % 3}", NewSession(id=self._new_session()), expected)
        elif do == "link":
            made = LinkTask(session_id, self._pick(other), "t3", None, expected)
        elif do == "end":
            made = EndTask(session_id, "done" if other % 2 else "failed", None if other % 3 else "so far", expected)
        elif do == "move":
            made = MoveLeaf(session_id, None if other % 10 == 0 else entry_id, expected)
        elif do == "navigate":
            summary = replace(NewEntry.branch_summary("left", from_id=None), id=self._id()) if other % 2 else None
            made = Navigate(session_id, entry_id, summary, None, expected)
        elif do in ("undo", "redo"):
            made = (Undo if do == "undo" else Redo)(session_id, expected)
        return made

    def _append(self, session_id: str, do: str, other: int, expected: Expected) -> AppendEntries:
        ids = [self._id() for _ in range(other % 3)]
        entries = [
            placed(assistant(tokens=3, dollars=0.01) if number % 2 else user(), entry_id)
            for number, entry_id in enumerate(ids)
        ]
        self._entries.setdefault(session_id, []).extend(ids)
        match do:
            case "branch":
                return AppendEntries(session_id, entries, self._pick_entry(session_id, other), "branch")
            case "rebase":
                return AppendEntries(session_id, entries, expected, "rebase")
        return AppendEntries(session_id, entries, expected)

    def _id(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count}"

    def _new_session(self, source: str | None = None) -> str:
        made = self._id()
        self.sessions.append(made)
        self._entries[made] = list(self._entries.get(source, ())) if source is not None else []
        return made

    def _pick(self, pick: int) -> str:
        if self.sessions and pick % 2:
            return self.sessions[pick % len(self.sessions)]
        return self._session(pick)

    def _pick_entry(self, session_id: str, pick: int) -> str:
        made = self._entries.get(session_id)
        if made and pick % 3:
            return made[pick % len(made)]
        return self._entry(session_id, pick)
