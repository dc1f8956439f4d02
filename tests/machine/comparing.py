"""A store and the model side by side: what calls are about, and how what comes of them is compared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from hypothesis import strategies as st

from flue_py.core.sessions import STORED, Expected, LeafChoice, Seen, SessionInfo
from flue_py.db.backend import Backend
from tests.machine.answers import GHOSTS, answer_of, bills_of, costs_of, ledger_of, told_of_session, told_of_store
from tests.machine.reads import check_reads
from tests.machine.side_by_side import SideBySide
from tests.samples import ids_of

MAX_SESSIONS = 10

_LEDGER_EVERY = 5

picks = st.integers(0, 119)
"""Which of the things that are there at the time a rule means."""


class ComparingMachine(SideBySide):
    """A store and the model, which get the same calls: picks what calls are about, and compares what comes of them."""

    def __init__(self) -> None:
        super().__init__()
        self._is_alike = True
        self._compared = 0
        self._sessions: list[str] = []
        self._entries: list[str] = []

    def finish(self) -> None:
        """Compare everything once more, and let the store check itself."""
        if self._is_alike:
            for session_id in (*self._sessions, *GHOSTS):
                self._compare(session_id)
            self._compare_counts()
            super().finish()

    # -- what is there to pick from -------------------------------------------------------------------------------

    def _session(self, pick: int) -> str:
        """Return a session, now and then one that is gone or never was."""
        alive = self._alive()
        if not alive or pick % 30 == 29:
            return self._any_session_id(pick)
        return alive[pick % len(alive)]

    def _any_session_id(self, pick: int) -> str:
        ids = [*self._sessions, *GHOSTS]
        return ids[pick % len(ids)]

    def _alive(self) -> list[str]:
        return [session_id for session_id in self._sessions if self._is_there(session_id)]

    def _is_there(self, session_id: str) -> bool:
        return self._run(self._model.get_session(session_id)) is not None

    def _entry(self, session_id: str, pick: int) -> str:
        """Return an entry the session sees, now and then any other."""
        seen: Sequence[str] = ()
        if pick % 10 != 9 and self._is_there(session_id):
            seen = ids_of(self._run(self._model.read_tree(session_id)))
        found = seen or [*self._entries, *GHOSTS]
        return found[pick % len(found)]

    def _stored_leaf(self, session_id: str) -> str | None:
        found = self._run(self._model.get_session(session_id))
        return None if found is None else found.leaf_id

    def _choice(self, session_id: str, pick: int) -> LeafChoice:
        """Return a leaf to name: mostly the stored one, else any entry or None."""
        if pick % 5 < 2:
            return STORED
        if pick % 5 == 2:
            return self._stored_leaf(session_id)
        return None if pick % 15 == 3 else self._entry(session_id, pick)

    def _seen(self, session_id: str, pick: int) -> Expected:
        """Return what to compare: mostly nothing, else a leaf, the stored revision or another one."""
        if pick % 4:
            return STORED
        found = self._run(self._model.get_session(session_id))
        revision = None if found is None or pick % 3 == 2 else found.revision + (pick % 5 == 4)
        return Seen(self._choice(session_id, pick // 4), revision)

    # -- how they are compared ------------------------------------------------------------------------------------

    def _both(self, call: Callable[[Backend], Awaitable[object]]) -> object:
        """Do it in both stores and return the answer, which is the same: a result or an error."""
        self._is_alike = False
        for steps in self._steps:
            steps.begin_step()
        expected = self._run(answer_of(call, self._model))
        actual = self._run(answer_of(call, self._store))
        assert actual == expected, "the answers differ"
        self._is_alike = True
        return expected

    def _create(self, call: Callable[[Backend], Awaitable[SessionInfo]], source_id: str | None = None) -> None:
        if len(self._alive()) >= MAX_SESSIONS:
            return
        made = self._both(call)
        if isinstance(made, SessionInfo):
            if made.id not in self._sessions:
                self._sessions.append(made.id)
            self._compare(made.id)
        if source_id is not None:
            self._compare(source_id)

    def _change(self, session_id: str, call: Callable[[Backend], Awaitable[object]]) -> None:
        self._both(call)
        self._compare(session_id)

    def _compare(self, session_id: str) -> None:
        """Compare all that both tell about a session."""
        if self._is_there(session_id):
            self._note_entries(session_id)
        # One of the entries there are, another one each time: many of them the session does not see.
        known = self._entries or [*GHOSTS]
        self._compared += 1
        self._compare_told(session_id, known[(7 * self._compared) % len(known)])
        if self._compared % _LEDGER_EVERY == 0:
            bills = bills_of(session_id, known[self._compared % len(known)])
            bill = bills[self._compared // _LEDGER_EVERY % len(bills)]
            paid = [self._run(answer_of(partial(ledger_of, bill), each)) for each in (self._model, self._store)]
            assert paid[1] == paid[0], f"{bill}"
            costs = [self._run(answer_of(partial(costs_of, session_id), each)) for each in (self._model, self._store)]
            assert costs[1] == costs[0], f"costs of {session_id}"
        if self._is_there(session_id):
            self._run(check_reads(self._store, session_id))

    def _compare_told(self, session_id: str, *probes: str) -> None:
        expected = self._run(told_of_session(self._model, session_id, probes))
        actual = self._run(told_of_session(self._store, session_id, probes))
        self._is_alike = False
        for what in expected.keys() | actual.keys():
            assert actual.get(what) == expected.get(what), f"{what} of {session_id}"
        self._is_alike = True

    def _note_entries(self, session_id: str) -> None:
        known = {*self._entries}
        self._entries += [entry.id for entry in self._run(self._model.read_tree(session_id)) if entry.id not in known]

    def _compare_stores(self) -> None:
        """Compare what can be read of every session, and all of one of them, another one each time."""
        for session_id in (*self._sessions, *GHOSTS):
            if self._is_there(session_id):
                self._note_entries(session_id)
            self._compare_told(session_id)
        self._compare(self._any_session_id(self._compared))
        self._compare_counts()

    def _compare_counts(self) -> None:
        expected, actual = (self._run(told_of_store(backend)) for backend in (self._model, self._store))
        assert actual == expected
