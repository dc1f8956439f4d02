"""Rules that move the leaf of a session."""

from __future__ import annotations

from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import rule

from flue_py.core.entries import NewEntry
from flue_py.core.sessions import Expected, Stored
from flue_py.db.backend import Backend
from tests import strategies
from tests.machine.comparing import ComparingMachine, picks


class Moving(ComparingMachine):
    """Moves, navigation, retractions, undo and redo."""

    @rule(pick=picks, to=picks, seen=picks)
    def move(self, pick: int, to: int, seen: int) -> None:
        """Move the leaf to an entry or to None."""
        session_id = self._session(pick)
        expected = self._seen(session_id, seen)
        target = None if to % 12 == 6 else self._entry(session_id, to)
        self._change(session_id, lambda backend: backend.move(session_id, target, expected=expected))

    @rule(pick=picks, to=picks, summary=st.none() | strategies.summary_entries, seen=picks)
    def navigate(self, pick: int, to: int, summary: NewEntry | None, seen: int) -> None:
        """Go elsewhere, often with a summary of what is left."""
        session_id = self._session(pick)
        target, expected = self._choice(session_id, to), self._seen(session_id, seen)
        leaf = None if isinstance(target, Stored) else target
        self._change(session_id, lambda backend: backend.navigate(session_id, leaf, summary=summary, expected=expected))

    @rule(pick=picks, entry=picks, seen=picks)
    def retract(self, pick: int, entry: int, seen: int) -> None:
        """Retract the leaf, or try to retract something else."""
        session_id = self._session(pick)
        entry_id = (self._stored_leaf(session_id) if entry % 4 else None) or self._entry(session_id, entry)
        expected = self._seen(session_id, seen)
        self._change(session_id, lambda backend: backend.retract(session_id, entry_id, expected=expected))

    @rule(pick=picks, steps=st.lists(st.booleans(), min_size=1, max_size=6), expected=picks)
    def undo_and_redo(self, pick: int, steps: list[bool], expected: int) -> None:
        """Undo and redo, back and forth."""
        session_id = self._session(pick)
        for forward in steps:
            named = self._choice(session_id, expected) if expected % 10 == 9 else self._seen(session_id, expected)
            self._change(session_id, partial(_redo if forward else _undo, session_id, named))


async def _undo(session_id: str, expected: Expected, backend: Backend) -> object:
    return await backend.undo(session_id, expected=expected)


async def _redo(session_id: str, expected: Expected, backend: Backend) -> object:
    return await backend.redo(session_id, expected=expected)
