"""Copying a store again and again in the middle of a random history: the new store answers as the old one did.

The state machine of `machine` goes on in the store that was copied into, beside the model, which stays. So everything
counts that a copy could lose: what can be undone, what a deletion may take along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from hypothesis.stateful import rule
from msgspec.structs import replace

from flue_py.db.backend import Backend
from flue_py.sessions.store import Store
from flue_py.transfer.copy import CopyReport, copy_store
from tests.machine.answers import GHOSTS
from tests.machine.side_by_side import run_machine
from tests.machine.stores import BackendMachine
from tests.sources import OpenBackend


def check_copying(stores: Sequence[OpenBackend], share: float = 1.0, step_share: float = 1.0) -> None:
    """Run the machine, moving from each of these kinds of store to the next, and from the last to the first."""
    run_machine(CopyingMachine, stores[0], share, step_share, stores=tuple(stores))


class CopyingMachine(BackendMachine):
    """Every operation of a store, in any order, and now and then a move to a new store, or to one that follows it."""

    stores: ClassVar[Sequence[OpenBackend]]

    def __init__(self) -> None:
        super().__init__()
        self._copies = 0
        self._follower: Backend | None = None

    def teardown(self) -> None:
        """Copy once more, and let the store that follows catch up; then compare everything."""
        try:
            if self._is_alike:
                self.copy_and_switch()
                self.catch_up()
        finally:
            try:
                if self._follower is not None:
                    self._run(self._follower.close())
            finally:
                super().teardown()

    def _open_next(self) -> Backend:
        self._copies += 1
        stores = type(self).stores
        return self._run(stores[self._copies % len(stores)](self._steps[1].sources))

    def _copy_to(self, target: Backend) -> CopyReport:
        return self._run(copy_store(Store(self._store), Store(target)))

    @rule()
    def copy_and_switch(self) -> None:
        """Copy everything into a new store, and go on there."""
        old, new = self._store, self._open_next()
        report = self._copy_to(new)
        assert report.is_complete, report
        assert report.only_in_target == 0
        assert report.trees_refreshed == report.trees_unchanged == 0
        again = self._copy_to(new)
        assert (again.is_complete, again.sessions, again.calls) == (True, 0, 0)
        self._store = new
        self._run(old.close())
        self._compare_stores()

    @rule()
    def catch_up(self) -> None:
        """Delete in the other store what was deleted here, then copy what is new."""
        if self._follower is None:
            self._follower = self._open_next()
        follower = self._follower
        report = self._copy_to(follower)
        # Deleted here since; or an id or a key was used again here, and its former session is in the way there.
        while stale := [*report.only_in_target_ids, *(refusal.session_id for refusal in report.refused)]:
            for session_id in stale:
                if self._run(follower.get_session(session_id)) is not None:
                    self._run(follower.delete_tree(session_id))
            report = self._copy_to(follower)
        assert report.is_complete, report
        moved_to, self._store = self._store, follower
        try:
            for session_id in (*self._sessions, *GHOSTS):
                self._compare(session_id)
        finally:
            self._store = moved_to
        info, copied = self._run(moved_to.info()), self._run(follower.info())
        assert copied == replace(info, backend=copied.backend, location=copied.location, size_bytes=copied.size_bytes)
