"""A state machine that drives a store and the model in memory side by side, and compares all they tell.

Both get the same operations with the same ids and the same time, so every answer has to be equal: results, errors,
and after each step everything that can be read of the session that was touched. What a read says is also checked
against what the entries themselves say, so that the model is not the only witness.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from flue_py.core.sessions import NewSession, SessionInfo
from tests import samples
from tests.machine.batches import STEPS, BatchMaker
from tests.machine.comparing import MAX_SESSIONS, picks
from tests.machine.growing import Growing
from tests.machine.moving import Moving
from tests.machine.relations import Relating
from tests.machine.side_by_side import run_machine
from tests.sources import OpenBackend


def check_against_model(open_backend: OpenBackend, share: float = 1.0, step_share: float = 1.0) -> None:
    """Run the machine over a backend, with these shares of the profile's examples and of the steps of each."""
    run_machine(BackendMachine, open_backend, share, step_share)


class BackendMachine(Growing, Moving, Relating):
    """Every operation of a store, in any order, on a handful of sessions."""

    @initialize(length=st.integers(0, 5), forked=st.booleans())
    def begin(self, length: int, forked: bool) -> None:
        """Start with one session, or with it and its fork."""
        self._create(lambda backend: backend.create_session(NewSession(key="first")))
        first = self._sessions[0]
        self._change(first, lambda backend: backend.append(first, samples.talk(length)))
        if forked:
            leaf = self._entry(first, length) if length else None
            self._create(lambda backend: backend.fork(first, leaf, NewSession()), first)

    @rule(
        steps=st.lists(st.tuples(st.sampled_from(STEPS), picks, picks, picks), min_size=1, max_size=6),
        key=st.sampled_from([None, None, None, "b1", "b2"]),
    )
    def batch(self, steps: list[tuple[str, int, int, int]], key: str | None) -> None:
        """Do several operations as one, later ones on what earlier ones make."""
        self._batches += 1
        maker = BatchMaker(f"b{self._batches}", self._session, self._entry, self._seen)
        room = MAX_SESSIONS - len(self._alive())
        operations = [maker.make(*step, room=room) for step in steps]
        done = self._both(lambda backend: backend.atomic(operations, idempotency_key=key))
        if key is not None:
            self._retries.append(lambda backend: backend.atomic(operations, idempotency_key=key))
        if isinstance(done, tuple) and done[0] == "committed":
            self._sessions += [made for made in maker.sessions if made not in self._sessions]
        self._compare_stores()

    @rule(pick=picks)
    def retry(self, pick: int) -> None:
        """Do again an operation that had an idempotency key."""
        if self._retries:
            result = self._both(self._retries[pick % len(self._retries)])
            if isinstance(result, SessionInfo) and result.id not in self._sessions:
                self._sessions.append(result.id)
            self._compare_stores()
