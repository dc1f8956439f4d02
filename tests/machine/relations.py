"""Rules that make sessions of others, and delete them."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from flue_py.core.sessions import NewSession, TaskEnd
from tests import strategies
from tests.machine.comparing import ComparingMachine, picks


class Relating(ComparingMachine):
    """Forks, tasks, links, deletions."""

    @rule(pick=picks, at=picks, key=st.sampled_from([None, None, None, None, "f"]), again=picks, seen=picks)
    def fork(self, pick: int, at: int, key: str | None, again: int, seen: int) -> None:
        """Fork anywhere, also a fork, sometimes with the id of a session that was there."""
        session_id = self._session(pick)
        leaf, expected = self._choice(session_id, at), self._seen(session_id, seen)
        new = NewSession(title="forked", id=self._any_session_id(again) if again % 4 == 3 else None)
        self._create(
            lambda backend: backend.fork(session_id, leaf, new, expected=expected, idempotency_key=key),
            session_id,
            retried=key is not None,
        )

    @rule(
        pick=picks,
        task_id=st.sampled_from(["t1", "t2"]),
        key=st.sampled_from([None, None, None, None, "t"]),
        seen=picks,
    )
    def create_task(self, pick: int, task_id: str, key: str | None, seen: int) -> None:
        """Start a task session."""
        session_id = self._session(pick)
        new, expected = NewSession(metadata_text='{"given":1}'), self._seen(session_id, seen)
        self._create(
            lambda backend: backend.create_task(session_id, task_id, new, expected=expected, idempotency_key=key),
            session_id,
            retried=key is not None,
        )

    @rule(pick=picks, child=picks, task_id=st.sampled_from(["t1", "t3"]), seen=picks)
    def link_task(self, pick: int, child: int, task_id: str, seen: int) -> None:
        """Link any session, or one that is not there, as a task."""
        session_id = self._session(pick)
        child_id = self._any_session_id(child)
        expected = self._seen(session_id, seen)
        self._change(session_id, lambda backend: backend.link_task(session_id, child_id, task_id, expected=expected))

    @rule(pick=picks, status=st.sampled_from(["done", "failed"]), summary=st.none() | strategies.labels, seen=picks)
    def end_task(self, pick: int, status: TaskEnd, summary: str | None, seen: int) -> None:
        """Note how a task ended, or try to of a session that is none."""
        tasks = [each for each in self._alive() if self._run(self._model.task_parents(each))]
        session_id = tasks[pick % len(tasks)] if tasks and pick % 8 else self._session(pick)
        expected = self._seen(session_id, seen)
        self._both(lambda backend: backend.end_task(session_id, status, summary=summary, expected=expected))
        self._compare_stores()

    @precondition(lambda self: len(self._alive()) > 2)
    @rule(pick=picks, scope=st.sampled_from([None, None, None, "", "x"]), seen=picks)
    def delete(self, pick: int, scope: str | None, seen: int) -> None:
        """Delete a session and the closure of its links, after saying what that will do."""
        session_id = self._session(pick)
        expected = self._seen(session_id, seen)
        foretold = self._both(
            lambda backend: backend.delete_tree(session_id, scope=scope, dry_run=True, expected=expected)
        )
        self._compare_stores()
        done = self._both(lambda backend: backend.delete_tree(session_id, scope=scope, expected=expected))
        assert done == foretold
        self._compare_stores()

    @rule(scope=st.sampled_from(["", "x"]))
    def empty_scope(self, scope: str) -> None:
        """Delete the budgets of a scope, and what its calls say beside amounts, after saying how many there are."""
        foretold = self._both(lambda backend: backend.empty_scope(scope, dry_run=True))
        assert self._both(lambda backend: backend.empty_scope(scope)) == foretold
        self._compare_stores()
