"""A session that is looked at: its tree and what marks its entries, kept up to date while others write. No screen."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from flue_py.core.costs import EntryCost, entry_costs
from flue_py.core.entries import Entry
from flue_py.core.kinds import COMPACTION, EXCLUSION, may_be_paid
from flue_py.core.sessions import Change, SessionInfo
from flue_py.render.entries import exclusion_text
from flue_py.render.views import name_among
from flue_py.sessions.families import forks_seen, sources_of
from flue_py.sessions.finding import all_sessions
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.tui.outline import Begun, Outline, begun_at
from flue_py.tui.reading import Marks

FIRST_PAGE = 1_000
"""How many of the newest entries are shown before all are there."""


_LEAVE_ENTRIES = frozenset({"append", "move", "rewind", "branch", "import", None})
"""What a change may be without taking an entry out of the tree, or bringing one back."""


class OpenedSession:
    """What the browser knows of a session. Each ``load_`` reads a part of it; what was there stays until then."""

    def __init__(self, store: Store, session: Session) -> None:
        self.store = store
        self.session = session
        self.name = ""
        self.info: SessionInfo = session.info
        self.outline = Outline.of((), None)
        self.is_whole = False
        self.labels: Mapping[str, str] = {}
        self.pinned: frozenset[str] = frozenset()
        self.excluded: Mapping[str, str] = {}
        self.begun: Mapping[str, Sequence[Begun]] = {}
        self._tree: list[Entry] = []
        self._costs: Mapping[str, EntryCost] = {}
        self._costs_are_new = False
        self._turn = asyncio.Lock()

    async def load_end(self) -> None:
        """Read the newest entries, which are shown first. O(`FIRST_PAGE`)."""
        self.info = await self.session.refresh()
        self.name = await self.session.name()
        newest = await self.session.entries(newest_first=True, limit=FIRST_PAGE)
        self.labels = await self.session.labels()
        self.outline = Outline.of(newest[::-1], self.info.leaf_id)

    async def load_all(self) -> None:
        """Read the whole tree, and what marks its entries. O(entries), most of it on another thread."""
        async with self._turn:
            await self._load_tree()
            await self._load_marks()
            await self.load_begun()

    async def catch_up(self, changes: Sequence[Change]) -> None:
        """Read what changes brought: what was added, what marks it, where the leaf is. O(what is new) as a rule."""
        async with self._turn:
            before = self.info
            self.info = await self.session.refresh()
            self.name = await self.session.name()
            added = [entry for change in changes for entry in change.entries]
            reasons = {change.reason for change in changes}
            if reasons <= _LEAVE_ENTRIES and self.is_whole:
                await self._grow()
            else:
                await self._load_tree()
            if reasons - {"append", None} or not added or any(entry.kind in (COMPACTION, EXCLUSION) for entry in added):
                await self._load_marks()
            self._costs_are_new = False
            if self.info.metadata_text != before.metadata_text or not added:
                await self.load_begun()

    def lacks_cost(self, entry: Entry) -> bool:
        """Return whether an entry may have a cost that `load_costs` would find."""
        return not self._costs_are_new and entry.id not in self._costs and may_be_paid(entry.kind, entry.role)

    async def load_costs(self) -> None:
        """Read what every entry cost. O(calls of the tree)."""
        self._costs_are_new = True
        paid = await self.session.entry_costs()
        self._costs = await asyncio.to_thread(entry_costs, list(self.outline.entries), paid)

    @property
    def marked(self) -> frozenset[str]:
        """The ids of the entries with a label or a pin."""
        return self.pinned | self.labels.keys()

    def marks_of(self, entry: Entry) -> Marks:
        """Return what is known of an entry beside itself."""
        return Marks(
            self.labels.get(entry.id),
            entry.id in self.pinned,
            self.excluded.get(entry.id),
            entry.id == self.info.leaf_id,
            entry.id in self.outline.active,
            self._costs.get(entry.id),
            self.session.id,
        )

    async def _load_tree(self) -> None:
        self._tree = await self.session.get_tree()
        self.outline = await asyncio.to_thread(Outline.of, self._tree, self.info.leaf_id)
        self.is_whole = True

    async def _grow(self) -> None:
        """Add what is new to the tree. O(new) where the path goes on at its end, else O(entries) on another thread."""
        new: list[Entry] = []
        after = self._tree[-1].id if self._tree else None
        while page := await self.session.entries(after=after, limit=FIRST_PAGE):
            new += page
            after = page[-1].id
        self._tree += new
        if not new and self.outline.leaf == self.info.leaf_id:
            return
        grown = self.outline.grown(new, self.info.leaf_id)
        if grown is None:
            grown = await asyncio.to_thread(Outline.of, self._tree, self.info.leaf_id)
        self.outline = grown

    async def _load_marks(self) -> None:
        self.labels = await self.session.labels()
        self.pinned = frozenset(await self.session.pins())
        excluded: dict[str, str] = {}
        for each in await self.session.exclusions():
            if each.in_effect:
                excluded[each.entry_id] = exclusion_text(each)
        self.excluded = excluded

    async def load_begun(self) -> None:
        """Read which tasks and forks begin here. O(tasks and forks of the store)."""
        links = await self.session.task_links()
        tasks: dict[str, SessionInfo] = {}
        if links:
            tasks = {each.id: each for each in await all_sessions(self.store.backend, kind="task")}
            for link in links:
                # A session that was linked later may be of another kind.
                if link.child_id not in tasks and (child := await self.store.get_session(link.child_id)) is not None:
                    tasks[link.child_id] = child.info
        forks = await forks_seen(self.store.backend, self.info, self.outline.place)
        self.begun = begun_at([fork for begun in forks.values() for fork in begun], links, tasks)


async def named(store: Store, infos: Sequence[SessionInfo]) -> dict[str, str]:
    """Return the names of sessions, by id. O(sessions); forks without a name of their own have their sources read."""
    sources = await sources_of(store.backend, infos)
    return {info.id: name_among(info, sources) for info in infos}
