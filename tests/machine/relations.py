"""Rules that make sessions of others, and delete them."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from flue_py.core.sessions import NewSession
from tests.machine.comparing import ComparingMachine, picks


class Relating(ComparingMachine):
    """Forks, tasks, links, deletions."""

    @rule(pick=picks, at=picks, again=picks, seen=picks)
    def fork(self, pick: int, at: int, again: int, seen: int) -> None:
        """Fork anywhere, also a fork, sometimes with the id of a session that was there."""
        session_id = self._session(pick)
        leaf, expected = self._choice(session_id, at), self._seen(session_id, seen)
        new = NewSession(title="forked", id=self._any_session_id(again) if again % 4 == 3 else None)
        self._create(lambda backend: backend.fork(session_id, leaf, new, expected=expected), session_id)

    @rule(pick=picks, task_id=st.sampled_from(["t1", "t2"]), seen=picks)
    def create_task(self, pick: int, task_id: str, seen: int) -> None:
        """Start a task session."""
        session_id = self._session(pick)
        new, expected = NewSession(metadata_text='{"given":1}'), self._seen(session_id, seen)
        self._create(lambda backend: backend.create_task(session_id, task_id, new, expected=expected), session_id)

    @rule(pick=picks, child=picks, task_id=st.sampled_from(["t1", "t3"]), seen=picks)
    def link_task(self, pick: int, child: int, task_id: str, seen: int) -> None:
        """Link any session, or one that is not there, as a task."""
        session_id = self._session(pick)
        child_id = self._any_session_id(child)
        expected = self._seen(session_id, seen)
        self._change(session_id, lambda backend: backend.link_task(session_id, child_id, task_id, expected=expected))

    @precondition(lambda self: len(self._alive()) > 2)
    @rule(pick=picks, scope=st.sampled_from([None, None, None, "", "x"]), seen=picks)
    def delete(self, pick: int, scope: str | None, seen: int) -> None:
        """Delete a session and the closure of its links, after saying what that will do."""
        session_id = self._session(pick)
        expected = self._seen(session_id, seen)
        foretold = self._both(lambda backend: backend.plan_deletion([session_id], scope, expected))
        self._compare_stores()
        done = self._both(lambda backend: backend.delete_tree(session_id, scope=scope, expected=expected))
        assert done == foretold
        self._compare_stores()
