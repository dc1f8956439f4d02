"""Deleting a session: what would go, in words to ask with, and doing it if nothing has changed since."""

from __future__ import annotations

from flue_py.core.frozen import frozen
from flue_py.core.sessions import Deletion
from flue_py.errors import RevisionConflict
from flue_py.render.lines import clip, counted
from flue_py.sessions.store import Store


@frozen
class Planned:
    """A deletion that was not made yet: what to ask, and what there is to know."""

    store: Store
    session_id: str
    revision: int
    question: str
    facts: tuple[str, ...]
    would: Deletion

    async def go(self) -> Deletion:
        """Delete it. Raises `RevisionConflict`, and deletes nothing, if the session or a task of it was written since.

        The tasks are looked at right before.
        """
        now = await self.store.delete_session_tree(self.session_id, dry_run=True, expected_revision=self.revision)
        if now != self.would:
            raise RevisionConflict(self.session_id, self.revision, self.revision)
        return await self.store.delete_session_tree(self.session_id, expected_revision=self.revision)


async def plan_deletion(store: Store, session_id: str) -> Planned | None:
    """Return what deleting a session would do; None if it is gone. O(rows that would be deleted)."""
    session = await store.get_session(session_id)
    if session is None:
        return None
    would = await store.delete_session_tree(session_id, dry_run=True, expected_revision=session.revision)
    tasks = len(would.session_ids) - 1
    facts = [f"{counted(would.entries_deleted, 'entry', 'entries')} would go; this cannot be undone."]
    if tasks:
        facts.insert(0, f"{counted(tasks, 'task session goes', 'task sessions go')} with it.")
    if would.entries_kept:
        facts.append(f"{counted(would.entries_kept, 'entry', 'entries')} stay, because other sessions see them.")
    question = f"Delete {clip(await session.name(), 100)!r}?"
    return Planned(store, session_id, session.revision, question, tuple(facts), would)
