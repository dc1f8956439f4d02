"""A state machine that drives a store and the model in memory side by side, and compares all they tell.

Both get the same operations with the same ids and the same time, so every answer has to be equal: results, errors,
and after each step the row, path, tree, usage and changes of the session that was touched. All reads are also checked
against the entries themselves, so that the model is not the only witness. Batches, retries, listings, the log, marks
and ends of tasks are the contract's.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from flue_py.core.sessions import NewSession
from tests import samples
from tests.machine.growing import Growing
from tests.machine.moving import Moving
from tests.machine.relations import Relating
from tests.machine.side_by_side import run_machine
from tests.sources import OpenBackend


def check_against_model(open_backend: OpenBackend, share: float = 1.0, step_share: float = 1.0) -> None:
    """Run the machine over a backend, with these shares of the profile's examples and of the steps of each."""
    run_machine(BackendMachine, open_backend, share, step_share)


class BackendMachine(Growing, Moving, Relating):
    """Every operation on the history of a store, in any order, on a handful of sessions."""

    @initialize(length=st.integers(0, 5), forked=st.booleans())
    def begin(self, length: int, forked: bool) -> None:
        """Start with one session, or with it and its fork."""
        self._create(lambda backend: backend.create_session(NewSession(key="first")))
        first = self._sessions[0]
        self._change(first, lambda backend: backend.append(first, samples.talk(length)))
        if forked:
            leaf = self._entry(first, length) if length else None
            self._create(lambda backend: backend.fork(first, leaf, NewSession()), first)
