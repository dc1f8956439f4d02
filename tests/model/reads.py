"""The reads of the model. Nothing here changes what is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace

from flue_py.core.context import ContextRead, begins_turn, context_of, latest_compaction, pinned_ids
from flue_py.core.entries import Entry, Pairing, PathSettings, gaps_of, layout_of, messages_of
from flue_py.core.json import JsonObject
from flue_py.core.kinds import EXCLUSION
from flue_py.core.ledger import CallRow
from flue_py.core.sessions import (
    ANY_SESSION,
    LAST_ACTIVE_FIRST,
    STORED,
    Change,
    EntryPlace,
    LeafChoice,
    LogLine,
    Mark,
    MessagesRead,
    Ordering,
    PathRead,
    Place,
    ReadStamp,
    SessionFilter,
    SessionInfo,
    SessionKind,
    SessionPage,
    Stored,
    StoreInfo,
    TaskLink,
    TaskNames,
    read_cursor,
    require_meant,
    sort_value,
    write_cursor,
)
from flue_py.core.usage import Usage, UsageWindow, usage_of_window
from flue_py.errors import AmbiguousId, EntryNotFound, InvalidArgument, SessionNotFound
from tests.model.rows import BudgetNote, PayerNote, ReservationNote, Row, Session


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

    async def get_sessions(self, session_ids: Sequence[str]) -> list[SessionInfo | None]:
        return [await self._session_or_none(session_id) for session_id in session_ids]

    async def _session_or_none(self, session_id: str) -> SessionInfo | None:
        with suppress(SessionNotFound):
            return await self.get_session(session_id)
        return None

    async def get_session(self, session_id: str, scope: str | None = None) -> SessionInfo | None:
        session = self._sessions.get(session_id)
        if session is None or (scope is not None and session.info.scope != scope):
            return None
        require_meant(session_id, session.number)
        return self._told(session)

    def _told(self, session: Session) -> SessionInfo:
        """Return a session with what the links say of it."""
        links = (link for each in self._sessions.values() for link in each.links if link.child_id == session.info.id)
        to = min(links, key=lambda link: link.parent_id, default=None)
        depth = session.task_depth if session.info.kind == "task" and to is not None else None
        names = TaskNames(
            tuple((link.task_id, link.child_id) for link in session.links),
            None if to is None else (to.parent_id, to.task_id),
            depth,
        )
        return replace(session.info, task_names=names)

    async def list_sessions(
        self,
        *,
        scope: str | None,
        kind: SessionKind | None,
        limit: int,
        cursor: str | None,
        where: SessionFilter = ANY_SESSION,
        ordering: Ordering = LAST_ACTIVE_FIRST,
    ) -> SessionPage:
        if limit < 1:
            raise InvalidArgument(f"limit: {limit!r} is not a number of sessions; ask for at least 1")
        last = None if cursor is None else read_cursor(cursor, ordering)
        listed = [
            (Place(sort_value(info, ordering.order), session.number), info)
            for session in self._sessions.values()
            for info in [self._told(session)]
            if scope in (None, info.scope) and kind in (None, info.kind) and where.matches(info)
        ]
        # Python compares texts by code points, which is the order of their bytes in UTF-8.
        listed.sort(key=lambda item: item[0], reverse=ordering.descending)
        if last is not None:
            listed = [item for item in listed if (item[0] < last if ordering.descending else item[0] > last)]
        page = tuple(info for _, info in listed[:limit])
        return SessionPage(page, write_cursor(ordering, listed[limit - 1][0]) if len(listed) > limit else None)

    async def task_links(self, session_id: str) -> list[TaskLink]:
        return list(self._session(session_id).links)

    async def task_parents(self, session_id: str) -> list[TaskLink]:
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

    async def read_path(
        self, session_id: str, *, leaf: LeafChoice = STORED, unless: ReadStamp | None = None
    ) -> PathRead:
        session = self._session(session_id)
        at = _leaf(session, leaf)
        return _path_read(session, at, None if unless == ReadStamp(at, 0) else session.path(at))

    async def read_path_since(self, session_id: str, since: str | None, *, leaf: LeafChoice = STORED) -> PathRead:
        session = self._session(session_id)
        at = _leaf(session, leaf)
        path = session.path(at)
        if since is not None:
            depth = next((entry.depth for entry in path if entry.id == since), len(path))
            path = path[depth + 1 :]
        return _path_read(session, at, path)

    async def read_path_end(self, session_id: str, limit: int, *, leaf: LeafChoice = STORED) -> PathRead:
        read = await self.read_path(session_id, leaf=leaf)
        entries = read.entries or ()
        return replace(read, entries=entries[_start_of_end(messages_of(entries), limit) :])

    async def read_context(
        self, session_id: str, *, leaf: LeafChoice = STORED, unless: ReadStamp | None = None
    ) -> PathRead:
        session = self._session(session_id)
        at = _leaf(session, leaf)
        if unless == ReadStamp(at, 0):
            return _path_read(session, at, None)
        path = session.path(at)
        compaction = latest_compaction(path)
        if compaction is not None:
            path = _kept_entries(path, compaction)
        return replace(_path_read(session, at, path), compaction=compaction)

    async def read_messages(self, session_id: str, *, leaf: LeafChoice = STORED) -> MessagesRead:
        read = await self.read_context(session_id, leaf=leaf)
        kept = read.entries or ()
        items = context_of(kept, read.compaction)
        return MessagesRead(read.leaf_id, read.stored_leaf_id, read.revision, [item.data for item in items])

    async def read_context_end(self, session_id: str, limit: int, *, leaf: LeafChoice = STORED) -> ContextRead:
        read = await self.read_context(session_id, leaf=leaf)
        items = context_of(read.entries or (), read.compaction)
        start = _start_of_end([item.data for item in items], limit)
        return ContextRead(read.leaf_id, read.stored_leaf_id, read.revision, items[start:])

    async def read_usage(self, session_id: str, since: str | None, *, leaf: LeafChoice = STORED) -> UsageWindow:
        session = self._session(session_id)
        at = _leaf(session, leaf)
        if since is not None and all(entry.id != since for entry in session.path(at)):
            return UsageWindow(Usage(), at, since, on_path=False)
        used = session.totals(at).minus(session.totals(since))
        paid = session.paid(at).minus(session.paid(since))
        return UsageWindow(usage_of_window(used, paid), at, since, paid=paid, reported_cost=used.cost_total)

    async def read_turns(self, session_id: str, *, leaf: LeafChoice = STORED) -> list[Entry]:
        session = self._session(session_id)
        path = session.path(_leaf(session, leaf))
        return [entry for entry in path if begins_turn(entry)]

    async def read_settings(self, session_id: str, *, leaf: LeafChoice = STORED) -> PathSettings:
        session = self._session(session_id)
        found: dict[str, object] = {}
        for entry in session.path(_leaf(session, leaf)):
            data = entry.data if isinstance(entry.data, dict) else {}
            if entry.kind == "thinking_level_change":
                found["thinking_level"] = data.get("thinkingLevel")
            elif entry.kind == "model_change":
                found |= {"provider": data.get("provider"), "model": data.get("modelId")}
            elif entry.role == "assistant" and entry.source != "shell":
                found |= {"provider": data.get("provider"), "model": data.get("model")}
        return PathSettings(**{name: value for name, value in found.items() if isinstance(value, str) and value})

    async def read_tree(self, session_id: str) -> list[Entry]:
        session = self._session(session_id)
        return [entry for entry in self._held(session) if entry.id not in session.retracted]

    def _held(self, session: Session) -> list[Entry]:
        """Return what a session inherited, root first, then its own as they were added; also what it retracted."""
        own = [session.tree[entry_id].entry for entry_id in session.created]
        return session.path(session.info.forked_from_entry) + own

    async def get_entry(self, session_id: str, entry_id: str) -> Entry | None:
        session = self._session(session_id)
        return session.tree[entry_id].entry if session.sees(entry_id) else None

    async def find_entry(self, entry_id: str) -> Entry | None:
        trees = {id(session.tree): session.tree for session in self._sessions.values()}
        rows = [(number, tree[entry_id]) for number, tree in trees.items() if entry_id in tree]
        if len(rows) > 1:
            raise AmbiguousId(entry_id, tuple(sorted(self._holder(*each) for each in rows))[:5])
        return rows[0][1].entry if rows else None

    def _holder(self, tree: int, row: Row) -> str:
        """Return the session that added an entry, or any of its tree where that is gone."""
        ids = {session.number: each for each, session in self._sessions.items() if id(session.tree) == tree}
        return ids.get(row.creator) or min(ids.values())

    async def get_entries(self, session_id: str, ids: Sequence[str]) -> list[Entry | None]:
        return [await self.get_entry(session_id, entry_id) for entry_id in ids]

    async def read_named(self, named: Sequence[tuple[str, str]]) -> list[Entry | None]:
        return [await self._named(*each) for each in named]

    async def _named(self, session_id: str, entry_id: str) -> Entry | None:
        with suppress(SessionNotFound):
            return await self.get_entry(session_id, entry_id)
        return None

    async def places_of(self, named: Sequence[tuple[str, str]]) -> list[EntryPlace | None]:
        return [await self._place(*each) for each in named]

    async def _place(self, session_id: str, entry_id: str) -> EntryPlace | None:
        if await self._named(session_id, entry_id) is None:
            return None
        kept = (await self.read_context(session_id)).entries or ()
        if any(entry.id == entry_id for entry in kept):
            return "active"
        session = self._session(session_id)
        on_path = any(entry.id == entry_id for entry in session.path(session.info.leaf_id))
        return "compacted" if on_path else "abandoned"

    async def read_leaves(self, session_ids: Sequence[str]) -> list[Entry | None]:
        return [await self._leaf_entry(session_id) for session_id in session_ids]

    async def _leaf_entry(self, session_id: str) -> Entry | None:
        with suppress(SessionNotFound):
            leaf = self._session(session_id).info.leaf_id
            return None if leaf is None else await self.get_entry(session_id, leaf)
        return None

    async def read_entries(
        self,
        session_id: str,
        *,
        kind: str | None = None,
        after: str | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> list[Entry]:
        session = self._session(session_id)
        entries = self._held(session)
        if newest_first:
            entries.reverse()
        if after is not None:
            places = [place for place, entry in enumerate(entries) if entry.id == after]
            if not places:
                raise EntryNotFound(session_id, after)
            entries = entries[places[0] + 1 :]
        return [entry for entry in entries if kind in (None, entry.kind) and entry.id not in session.retracted][:limit]

    async def children(self, session_id: str, entry_id: str | None) -> list[Entry]:
        self._session(session_id).check_sees(entry_id)
        return [entry for entry in await self.read_tree(session_id) if entry.parent_id == entry_id]

    async def match_entry_ids(self, session_id: str, prefix: str, limit: int = 2) -> list[str]:
        session = self._session(session_id)
        return sorted(found for found in session.reach() - session.retracted if found.startswith(prefix))[:limit]

    async def is_ancestor(self, session_id: str, entry_id: str, of: str) -> bool:
        session = self._session(session_id)
        session.check_sees(entry_id)
        session.check_sees(of)
        return any(entry.id == entry_id for entry in session.path(of))

    async def common_ancestor(
        self, session_id: str, other_id: str, *, leaf: LeafChoice = STORED, other_leaf: LeafChoice = STORED
    ) -> str | None:
        session, other = self._session(session_id), self._session(other_id)
        path, other_path = session.path(_leaf(session, leaf)), other.path(_leaf(other, other_leaf))
        if session.tree is not other.tree:
            return None
        there = {entry.id for entry in other_path}
        return next((entry.id for entry in reversed(path) if entry.id in there), None)

    async def changes(self, session_id: str, after: int, limit: int) -> list[Change]:
        session = self._session(session_id)
        return [change for change in session.changes if change.revision > after][:limit]

    async def read_log(self, session_id: str, *, before: int | None, limit: int) -> list[LogLine]:
        session = self._session(session_id)
        last = len(session.changes) if before is None else min(before - 1, len(session.changes))
        return [session.log_line(revision) for revision in range(last, max(last - limit, 0), -1)]

    async def read_marks(self, session_id: str) -> list[Mark]:
        session = self._session(session_id)
        seen = [Mark(*place, value) for place, value in session.seen_marks().items()]
        retracted = [Mark(entry_id, "retracted") for entry_id in session.retracted]
        return sorted(seen + retracted, key=lambda mark: (mark.entry_id, mark.kind))

    async def info(self) -> StoreInfo:
        trees = {id(session.tree): session.tree for session in self._sessions.values()}
        entries = sum(map(len, trees.values()))
        return StoreInfo("memory", ":memory:", 0, len(self._sessions), entries, len(self._ledger), None)

    def _session(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFound(session_id)
        require_meant(session_id, session.number)
        return session


def _leaf(session: Session, leaf: LeafChoice) -> str | None:
    """Return the leaf to read at. Raises `EntryNotFound` if the session does not see it."""
    if isinstance(leaf, Stored):
        return session.info.leaf_id
    session.check_sees(leaf)
    return leaf


def _start_of_end(messages: Sequence[JsonObject | None], limit: int) -> int:
    """Return where the last whole exchanges begin: in the last ``limit`` messages, else as late as may be."""
    cuts = Pairing(messages).whole_cuts(range(len(messages)))
    return min((cut for cut in cuts if cut >= len(messages) - limit), default=max(cuts, default=0))


def _path_read(session: Session, leaf: str | None, entries: list[Entry] | None) -> PathRead:
    return PathRead(leaf, session.info.leaf_id, session.info.revision, ReadStamp(leaf, 0), entries)


def _kept_entries(path: list[Entry], compaction: Entry) -> list[Entry]:
    """Return what a compaction keeps of a path, with what it names, and the exclusions where it names anything."""
    layout, pinned = layout_of(compaction.id, compaction.fields), pinned_ids(compaction.fields)
    above = {entry.id: entry for entry in path[: compaction.depth + 1]}
    start = above.get(layout.first_kept_id or "", compaction).depth
    gaps = gaps_of(layout, above, start, compaction.depth)
    names = set() if layout.is_plain and not pinned else {*layout.named, *pinned}
    return [
        entry
        for entry in path
        if (entry.depth >= start and not any(gap.first <= entry.depth <= gap.last for gap in gaps))
        or (entry.id in names and entry.depth <= compaction.depth)
        or (names and entry.kind == EXCLUSION)
    ]
