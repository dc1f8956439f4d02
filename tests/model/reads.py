"""The reads of the model. Nothing here changes what is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from flue_py.core import sessions
from flue_py.core.entries import Entry
from flue_py.core.ledger import CallRow
from flue_py.core.usage import Usage, UsageWindow, usage_of_window
from flue_py.errors import SessionNotFound
from tests.model.rows import BudgetNote, PayerNote, ReservationNote, Session


class Sources(Protocol):
    """Where time and ids come from."""

    @property
    def now_us(self) -> Callable[[], int]: ...

    @property
    def entry_id(self) -> Callable[[], str]: ...

    @property
    def session_id(self) -> Callable[[], str]: ...


class ModelReads:
    """What is stored, and every method that only reads it."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._sessions: dict[str, Session] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._ledger: dict[tuple[str, str, str], CallRow] = {}
        self._payers: dict[int, PayerNote] = {}
        self._budgets: dict[str, BudgetNote] = {}
        self._reservations: dict[str, ReservationNote] = {}
        self._sessions_made = 0

    # -- sessions and tasks ------------------------------------------------------------------------------------

    async def get_session(self, session_id: str, scope: str | None = None) -> sessions.SessionInfo | None:
        session = self._sessions.get(session_id)
        if session is None or (scope is not None and session.info.scope != scope):
            return None
        sessions.require_meant(session_id, session.number)
        return self._told(session)

    def _told(self, session: Session) -> sessions.SessionInfo:
        """Return a session with what the links say of it."""
        links = (link for each in self._sessions.values() for link in each.links if link.child_id == session.info.id)
        to = min(links, key=lambda link: link.parent_id, default=None)
        depth = session.task_depth if session.info.kind == "task" and to is not None else None
        names = sessions.TaskNames(
            tuple((link.task_id, link.child_id) for link in session.links),
            None if to is None else (to.parent_id, to.task_id),
            depth,
        )
        return replace(session.info, task_names=names)

    async def task_links(self, session_id: str) -> list[sessions.TaskLink]:
        return list(self._session(session_id).links)

    async def task_parents(self, session_id: str) -> list[sessions.TaskLink]:
        self._session(session_id)
        links = (link for session in self._sessions.values() for link in session.links)
        return sorted((link for link in links if link.child_id == session_id), key=lambda link: link.parent_id)

    def _task_ids(self, session_id: str) -> set[str]:
        """Return the session and all its tasks, there or gone."""
        found: set[str] = set()
        queue = [session_id]
        while queue:
            current = queue.pop()
            if current not in found:
                found.add(current)
                session = self._sessions.get(current)
                queue += [] if session is None else [link.child_id for link in session.links]
                queue += [note.session_id for note in self._payers.values() if note.task_of == current]
        return found

    # -- reading ----------------------------------------------------------------------------------------------

    async def read_path(self, session_id: str, *, leaf: sessions.LeafChoice = sessions.STORED) -> sessions.PathRead:
        session = self._session(session_id)
        at = _leaf(session, leaf)
        return sessions.PathRead(
            at, session.info.leaf_id, session.info.revision, sessions.ReadStamp(at, 0), session.path(at)
        )

    async def read_usage(
        self, session_id: str, since: str | None, *, leaf: sessions.LeafChoice = sessions.STORED
    ) -> UsageWindow:
        session = self._session(session_id)
        at = _leaf(session, leaf)
        if since is not None and all(entry.id != since for entry in session.path(at)):
            return UsageWindow(Usage(), at, since, on_path=False)
        used = session.totals(at).minus(session.totals(since))
        paid = session.paid(at).minus(session.paid(since))
        return UsageWindow(usage_of_window(used, paid), at, since, paid=paid, reported_cost=used.cost_total)

    async def read_tree(self, session_id: str) -> list[Entry]:
        session = self._session(session_id)
        own = [session.tree[entry_id].entry for entry_id in session.created]
        held = session.path(session.info.forked_from_entry) + own
        return [entry for entry in held if entry.id not in session.retracted]

    async def get_entry(self, session_id: str, entry_id: str) -> Entry | None:
        session = self._session(session_id)
        return session.tree[entry_id].entry if session.sees(entry_id) else None

    async def changes(self, session_id: str, after: int, limit: int) -> list[sessions.Change]:
        session = self._session(session_id)
        return [change for change in session.changes if change.revision > after][:limit]

    async def info(self) -> sessions.StoreInfo:
        trees = {id(session.tree): session.tree for session in self._sessions.values()}
        entries = sum(map(len, trees.values()))
        return sessions.StoreInfo("memory", ":memory:", 0, len(self._sessions), entries, len(self._ledger), None)

    def _session(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFound(session_id)
        sessions.require_meant(session_id, session.number)
        return session


def _leaf(session: Session, leaf: sessions.LeafChoice) -> str | None:
    """Return the leaf to read at. Raises `EntryNotFound` if the session does not see it."""
    if isinstance(leaf, sessions.Stored):
        return session.info.leaf_id
    session.check_sees(leaf)
    return leaf
