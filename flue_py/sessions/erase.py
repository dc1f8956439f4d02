"""Deletion of a scope, and erasures: deletions after which no byte is left, with a receipt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from flue_py.core.erasure import Look, Needles, Receipt
from flue_py.core.json import NamedTuple
from flue_py.core.redaction import Redaction
from flue_py.core.sessions import Deletion, Note, ScopeContents, ScopeDeletion, check_scope
from flue_py.errors import InvalidArgument, shown
from flue_py.prices import CallPricer
from flue_py.sessions import handle
from flue_py.sessions.handle import HasId, Scoped

_WHY = "erased"


class _Work(NamedTuple):
    """A deletion under way: what it has come to, and, if it is an erasure, the samples of what goes."""

    note: Note
    dry_run: bool
    needles: Needles | None
    trees: list[Deletion]
    redactions: list[Redaction]


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
        work = _Work(Note(), dry_run, None, trees := list[Deletion](), [])
        contents = await self._delete_scope(scope, work)
        return ScopeDeletion(
            tuple(dict.fromkeys(session_id for tree in trees for session_id in tree.session_ids)),
            None if dry_run else sum(tree.entries_deleted for tree in trees),
            None if dry_run else sum(tree.entries_kept for tree in trees),
            *contents,
        )

    async def _delete_scope(self, scope: str, work: _Work) -> ScopeContents:
        check_scope(scope)
        place = self._place(scope)
        # Budgets of sessions go with these.
        contents = await self._backend.empty_scope(place, dry_run=True)
        # A session that somebody writes to meanwhile, or makes, may be in no page that was read.
        while there := await handle.all_sessions(self._backend, scope=place):
            for info in there:
                await self._delete_tree(info.ref, place, work)
            if work.dry_run:
                break
        if not work.dry_run:
            await self._backend.empty_scope(place, erased=work.needles)
        return contents

    async def _delete_tree(self, session_id: str, scope: str | None, work: _Work) -> None:
        """Delete a session tree. In an erasure, the entries that others see lose their texts first."""
        delete = partial(self._backend.delete_tree, session_id, scope=scope, erased=work.needles)
        if work.needles is not None:
            await self._redact((await delete(dry_run=True)).shared, work)
        work.trees.append(await delete(dry_run=work.dry_run))

    async def _redact(self, pairs: Iterable[tuple[str, str]], work: _Work) -> None:
        entries: dict[str, list[str]] = {}
        for session_id, entry_id in pairs:
            entries.setdefault(session_id, []).append(entry_id)
        for session_id, ids in entries.items():
            redact = partial(self._backend.redact, note=work.note, dry_run=work.dry_run, erased=work.needles)
            work.redactions.append(await redact(session_id, ids))

    async def erase(
        self,
        sessions: Sequence[HasId | str] = (),
        *,
        dry_run: bool,
        entries: Sequence[tuple[str, str]] = (),
        scope: str | None = None,
        by: str | None = None,
        why: str | None = None,
    ) -> Receipt:
        """Delete sessions as `delete_session_tree` does, so that no byte of them is left, and return the receipt.

        ``entries``, as pairs of a session and an entry, are redacted (`Session.redact`), and so are those of the
        sessions that others see. Paid calls lose agents and folders. What goes is overwritten, the log is emptied, and
        a file that had it anywhere is written anew; then samples of all erased texts are looked for in every file of
        the store and in the rows that stay. On PostgreSQL that is rows, after ``VACUUM``. A call that is interrupted is
        completed by the same one, and by any other. With ``dry_run``, which has to be said, nothing goes. Raises
        `InvalidArgument`, and `EntryNotFound` for an entry. O(store), and O(files) of free disk at most.
        """
        handle.checked_flag(dry_run, "dry_run")
        for name, values in (("sessions", sessions), ("entries", entries)):
            if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
                raise InvalidArgument(f"{name}: {shown(values)} is not a list of {name}")
        if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in entries):
            raise InvalidArgument(f"entries: {shown(entries)} are not pairs of a session and an entry")
        pairs = [(handle.checked_session(pair[0]), handle.checked_id(pair[1], "entries")) for pair in entries]
        names, meant = [handle.checked_session(name) for name in sessions], self._meant(scope)
        for owner, _ in pairs:
            await self._own(owner)

        async def delete(work: _Work) -> None:
            await self._redact(pairs, work)
            for name in names:
                await self._delete_tree(name, meant, work)

        return await self._erase(delete, None, Note(by, why or _WHY), dry_run)

    async def erase_scope(self, scope: str, *, dry_run: bool, by: str | None = None, why: str | None = None) -> Receipt:
        """Do the same with everything that `delete_scope` deletes. Raises `InvalidArgument`. O(store)."""
        handle.checked_flag(dry_run, "dry_run")
        return await self._erase(partial(self._delete_scope, scope), scope, Note(by, why or _WHY), dry_run)

    async def _erase(
        self, delete: Callable[[_Work], Awaitable[ScopeContents | None]], scope: str | None, note: Note, dry_run: bool
    ) -> Receipt:
        work = _Work(note, dry_run, needles := Needles(), [], [])
        was_interrupted = await self._backend.is_erasing()
        contents = await delete(work)
        ids = dict.fromkeys(name for tree in work.trees for name in tree.session_ids)
        counts = {"sessions": len(ids), "entries": sum(tree.entries_deleted for tree in work.trees)}
        # What a session sees that was erased behind it has gone with it.
        redactions = [done for done in work.redactions if not ids.keys() >= set(done.seen_by)]
        look = None if dry_run else Look()
        if not dry_run and (needles.size or was_interrupted):
            look = await self._backend.forget_deleted(needles, rebuild=was_interrupted)
        return Receipt(
            tuple(ids),
            scope,
            counts if contents is None else counts | contents._asdict(),
            sum(len(done.entry_ids) for done in redactions),
            tuple(sorted({name for done in redactions for name in done.seen_by} - ids.keys())),
            tuple(sorted({name for done in redactions for name in done.may_quote})),
            self._pricer.now_us(),
            note.by,
            note.why,
            needles.size,
            look,
        )
