"""Deletion of a scope, and erasures: deletions after which no byte is left, with a receipt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from flue_py.core.erasure import Look, Needles, Receipt
from flue_py.core.sessions import Deletion, Note, ScopeContents, ScopeDeletion, check_scope
from flue_py.errors import InvalidArgument, shown
from flue_py.prices import CallPricer
from flue_py.sessions import handle
from flue_py.sessions.handle import HasId, Scoped


class StoreErasure(Scoped):
    """The deletion of many things of a `Store` at once."""

    __slots__ = ()
    _pricer: CallPricer

    async def delete_scope(self, scope: str, *, dry_run: bool) -> ScopeDeletion:
        """Delete everything of a tenant or user: sessions, memories, files, budgets, and names in the ledger.

        Paid calls stay: amounts, models and days under the scope and the ids of its sessions, entries and calls,
        without agents and folders; so do task sessions in another scope, and the entries that sessions of other scopes
        see. With ``dry_run``, which has to be said, it only tells which would go. Each session tree is a transaction of
        its own, and the rest is one: an interrupted call is finished by the same one. Raises `InvalidArgument`. O(rows
        deleted + ledger).
        """
        handle.checked_flag(dry_run, "dry_run")
        contents, trees = await self._delete_scope(scope, dry_run, None)
        return ScopeDeletion(
            tuple(dict.fromkeys(session_id for tree in trees for session_id in tree.session_ids)),
            None if dry_run else sum(tree.entries_deleted for tree in trees),
            None if dry_run else sum(tree.entries_kept for tree in trees),
            *contents,
        )

    async def _delete_scope(
        self, scope: str, dry_run: bool, erased: Needles | None
    ) -> tuple[ScopeContents, list[Deletion]]:
        check_scope(scope)
        place = self._place(scope)
        # Budgets of sessions go with these.
        contents = await self._backend.empty_scope(place, dry_run=True)
        trees: list[Deletion] = []
        # A session that somebody writes to meanwhile, or makes, may be in no page that was read.
        while there := await handle.all_sessions(self._backend, scope=place):
            trees += [
                await self._backend.delete_tree(info.ref, scope=place, dry_run=dry_run, erased=erased) for info in there
            ]
            if dry_run:
                break
        if not dry_run:
            await self._backend.empty_scope(place, erased=erased)
        return contents, trees

    async def erase(
        self,
        sessions: Sequence[HasId | str],
        *,
        dry_run: bool,
        scope: str | None = None,
        by: str | None = None,
        why: str | None = None,
    ) -> Receipt:
        """Delete sessions as `delete_session_tree` does, so that no byte of them is left, and return the receipt.

        Their paid calls lose agents and folders, too. What goes is overwritten, the log is emptied, and a file that
        had it anywhere is written anew; then samples of all erased texts are looked for in every file of the store and
        in the rows that stay. On PostgreSQL that is rows, after ``VACUUM``. Entries that other sessions see stay, and
        these are named. A call that is interrupted is completed by the same one, and by any other. With ``dry_run``,
        which has to be said, nothing goes. Raises `InvalidArgument`. O(store), and O(files) of free disk at most.
        """
        handle.checked_flag(dry_run, "dry_run")
        if isinstance(sessions, (str, bytes)) or not isinstance(sessions, Sequence):
            raise InvalidArgument(f"sessions: {shown(sessions)} is not a list of sessions")
        names, meant = [handle.checked_session(name) for name in sessions], self._meant(scope)

        async def delete(needles: Needles) -> tuple[None, list[Deletion]]:
            backend = self._backend
            return None, [
                await backend.delete_tree(name, scope=meant, dry_run=dry_run, erased=needles) for name in names
            ]

        return await self._erase(delete, None, Note(by, why), dry_run)

    async def erase_scope(self, scope: str, *, dry_run: bool, by: str | None = None, why: str | None = None) -> Receipt:
        """Do the same with everything that `delete_scope` deletes. Raises `InvalidArgument`. O(store)."""
        handle.checked_flag(dry_run, "dry_run")
        return await self._erase(
            lambda needles: self._delete_scope(scope, dry_run, needles), scope, Note(by, why), dry_run
        )

    async def _erase(
        self,
        delete: Callable[[Needles], Awaitable[tuple[ScopeContents | None, list[Deletion]]]],
        scope: str | None,
        note: Note,
        dry_run: bool,
    ) -> Receipt:
        needles, was_interrupted = Needles(), await self._backend.is_erasing()
        contents, trees = await delete(needles)
        ids = dict.fromkeys(name for tree in trees for name in tree.session_ids)
        counts = {"sessions": len(ids), "entries": sum(tree.entries_deleted for tree in trees)}
        # What a session sees that was erased behind it has gone with it.
        seeing = [(set(tree.seen_by) - ids.keys(), tree.entries_kept) for tree in trees]
        look = None if dry_run else Look()
        if not dry_run and (needles.size or was_interrupted):
            look = await self._backend.forget_deleted(needles, rebuild=was_interrupted)
        return Receipt(
            tuple(ids),
            scope,
            counts if contents is None else counts | contents._asdict(),
            sum(kept for names, kept in seeing if names),
            tuple(sorted({name for names, _ in seeing for name in names})),
            self._pricer.now_us(),
            note.by,
            note.why,
            needles.size,
            look,
        )
