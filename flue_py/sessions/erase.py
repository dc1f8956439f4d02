"""Deletion of a scope, erasures, which are deletions after which no byte is left, and holds that prevent both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from flue_py.core.erasure import Look, Needles, Receipt, Redaction
from flue_py.core.json import NamedTuple
from flue_py.core.sessions import NO_NOTE, Deletion, LegalHold, Note, ScopeContents, check_scope
from flue_py.errors import InvalidArgument, SessionNotFound, shown
from flue_py.prices import CallPricer
from flue_py.sessions import handle
from flue_py.sessions.handle import HasId, Scoped

_WHY = "erased"


class _Work(NamedTuple):
    """A deletion under way: what it has come to, and, if it is an erasure, the texts that go."""

    note: Note
    dry_run: bool
    needles: Needles | None
    despite: Collection[str]
    trees: list[Deletion]
    redactions: list[Redaction]


class StoreErasure(Scoped):
    """The deletion of many things of a `Store` at once."""

    __slots__ = ()
    _pricer: CallPricer

    async def hold(
        self,
        session: HasId | str | None = None,
        *,
        scope: str | None = None,
        by: str | None = None,
        why: str | None = None,
    ) -> LegalHold:
        """Put a legal hold on a session, or without one on all of a scope, and return it. Another ``why`` replaces it.

        Whatever deletes, erases or redacts raises `OnHold` then, unless it names the hold, or somebody lifts it. Work
        goes on: appends, and memories that are written anew. Raises `SessionNotFound`, `InvalidArgument`. O(1).
        """
        notes = handle.checked_text(by, "by"), handle.checked_text(why, "why")
        place, session_id = self._meant(scope), None
        if session is not None:
            info = await self._backend.get_session(handle.checked_session(session), place)
            if info is None:
                raise SessionNotFound(str(session if isinstance(session, str) else session.id))
            place, session_id = info.scope, info.id
        if place is None:
            raise InvalidArgument("hold: takes a session, or scope=")
        check_scope(place)
        stored = await self._backend.put_document(LegalHold(place, session_id, *notes).document())
        return LegalHold(place, session_id, *notes, stored.created_us)

    async def holds(self, *, scope: str | None = None) -> tuple[LegalHold, ...]:
        """Return the legal holds of a scope, or of all, the oldest first. Raises `InvalidArgument`. O(documents)."""
        place = self._meant(scope)
        if place is not None:
            check_scope(place)
        return tuple(await self._backend.list_holds(place))

    async def lift_hold(self, session: HasId | str | None = None, *, scope: str | None = None) -> bool:
        """Lift the legal hold on a session, or without one that on a scope; return whether there was one.

        Raises `InvalidArgument`. O(documents).
        """
        session_id = None if session is None else str(handle.checked_session(session))
        place = self._meant(scope)
        if session_id is None and place is None:
            raise InvalidArgument("lift_hold: takes a session, or scope=")
        names = [hold.document().id for hold in await self.holds(scope=scope) if hold.session_id == session_id]
        return any([await self._backend.remove_document(name) for name in names])

    async def delete_scope(self, scope: str, *, dry_run: bool, despite_holds: Sequence[str] = ()) -> Receipt:
        """Delete everything of a tenant or user: sessions, memories, files, budgets, and names in the ledger.

        Paid calls stay: amounts, models and days under the scope and the ids of its sessions, entries and calls,
        without agents and folders; so do task sessions in another scope, and the entries that sessions of other scopes
        see. With ``dry_run``, which has to be said, it only tells which would go. Each session tree is a transaction of
        its own, and the rest is one: an interrupted call is finished by the same one. Raises `OnHold` for each hold on
        it, or on a session of it, that is not in ``despite_holds``, and `InvalidArgument`. O(rows deleted + ledger).
        """
        handle.checked_flag(dry_run, "dry_run")
        work = _Work(NO_NOTE, dry_run, None, handle.checked_ids(despite_holds), [], [])
        contents = await self._delete_scope(scope, work)
        return receipt_of(work.trees, self._pricer.now_us(), dry_run=dry_run, scope=scope, contents=contents)

    async def _delete_scope(self, scope: str, work: _Work) -> ScopeContents:
        check_scope(scope)
        place = self._place(scope)
        # Budgets of sessions go with these.
        contents = await self._backend.empty_scope(place, dry_run=True, despite=work.despite)
        # A session that somebody writes to meanwhile, or makes, may be in no page that was read.
        while there := await handle.all_sessions(self._backend, scope=place):
            await self._delete_trees([info.ref for info in there], place, work)
            if work.dry_run:
                break
        if not work.dry_run:
            await self._backend.empty_scope(place, erased=work.needles, despite=work.despite)
        return contents

    async def _delete_trees(self, names: Sequence[str], scope: str | None, work: _Work) -> None:
        """Delete session trees. In an erasure, the entries that others see lose their texts first."""
        erases, despite = work.needles is not None, work.despite
        plan = partial(self._backend.plan_deletion, scope=scope, despite=despite)
        delete = partial(self._backend.delete_tree, scope=scope, erased=work.needles, despite=despite)
        planned, trees = await plan(names, is_erasure=erases and work.dry_run), list[Deletion]()
        for name in () if work.dry_run else names:
            await self._redact((await plan([name], is_erasure=True)).shared if erases else (), work)
            trees.append(await delete(name))
        await self._redact(planned.shared if work.dry_run else (), work)
        work.trees.extend([planned] if work.dry_run else as_one(trees, planned))

    async def _redact(self, pairs: Iterable[tuple[str, str]], work: _Work) -> None:
        entries: dict[str, list[str]] = {}
        for session_id, entry_id in pairs:
            entries.setdefault(session_id, []).append(entry_id)
        for session_id, ids in entries.items():
            redact = partial(self._backend.redact, note=work.note, dry_run=work.dry_run, despite=work.despite)
            work.redactions.append(await redact(session_id, ids, erased=work.needles))

    async def erase(
        self,
        sessions: Sequence[HasId | str] = (),
        *,
        dry_run: bool,
        entries: Sequence[tuple[str, str]] = (),
        scope: str | None = None,
        by: str | None = None,
        why: str | None = None,
        despite_holds: Sequence[str] = (),
    ) -> Receipt:
        """Delete sessions as `delete_session_tree` does, so that no byte of them is left, and return the receipt.

        ``entries``, as pairs of a session and an entry, are redacted (`Session.redact`), and so are those of the
        sessions that others see. Paid calls lose agents and folders. What goes is overwritten, the log is emptied, and
        a file that had it anywhere is written anew; then all erased texts are looked for in every file of
        the store and in the rows that stay. On PostgreSQL that is rows, after ``VACUUM``. A call that is interrupted is
        completed by the same one, and by any other. With ``dry_run``, which has to be said, nothing goes. Raises
        `InvalidArgument`, `EntryNotFound` for an entry, and before anything is changed `OnHold` for a hold on a session
        that goes or sees what goes, if it is not in ``despite_holds``. O(store), and O(files) of free disk at most.
        """
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
            await self._delete_trees(names, meant, work)

        return await self._erase(delete, None, Note(by, why or _WHY), dry_run, despite_holds)

    async def erase_scope(
        self,
        scope: str,
        *,
        dry_run: bool,
        by: str | None = None,
        why: str | None = None,
        despite_holds: Sequence[str] = (),
    ) -> Receipt:
        """Do the same with everything that `delete_scope` deletes. Raises `OnHold`, `InvalidArgument`. O(store)."""
        return await self._erase(
            partial(self._delete_scope, scope), scope, Note(by, why or _WHY), dry_run, despite_holds
        )

    async def _erase(
        self,
        delete: Callable[[_Work], Awaitable[ScopeContents | None]],
        scope: str | None,
        note: Note,
        dry_run: bool,
        despite_holds: Sequence[str],
    ) -> Receipt:
        handle.checked_flag(dry_run, "dry_run")
        planned = _Work(note, True, Needles(), handle.checked_ids(despite_holds), [], [])
        contents = await delete(planned)
        was_interrupted = await self._backend.is_erasing()
        work = planned if dry_run else planned._replace(dry_run=False, needles=Needles(), trees=[], redactions=[])
        if not dry_run:
            await delete(work)
        needles = work.needles or Needles()
        look = None if dry_run else Look()
        if not dry_run and (needles.size or was_interrupted):
            look = await self._backend.forget_deleted(needles, rebuild=was_interrupted)
        return receipt_of(
            work.trees,
            self._pricer.now_us(),
            dry_run=dry_run,
            scope=scope,
            contents=contents,
            redactions=work.redactions,
            note=note,
            size=needles.size,
            look=look,
        )


def as_one(trees: Iterable[Deletion], planned: Deletion) -> list[Deletion]:
    """Return deletions with the number of entries that stay once all are done, since one may leave some to the next."""
    return [Deletion((), entries_kept=planned.entries_kept), *(replace(tree, entries_kept=0) for tree in trees)]


def receipt_of(
    trees: Sequence[Deletion],
    at_us: int,
    *,
    dry_run: bool,
    scope: str | None = None,
    contents: ScopeContents | None = None,
    redactions: Sequence[Redaction] = (),
    note: Note = NO_NOTE,
    size: int = 0,
    look: Look | None = None,
) -> Receipt:
    """Return the receipt of deletions and redactions, ``contents`` beside them. With ``redactions`` nothing is kept."""
    ids = dict.fromkeys(name for tree in trees for name in tree.session_ids)
    counts = {"sessions": len(ids), "entries": sum(tree.entries_deleted for tree in trees)}
    # What a session sees that was redacted behind it has gone with it.
    left = [done for done in redactions if not ids.keys() >= set(done.seen_by)]
    return Receipt(
        dry_run,
        tuple(ids),
        scope,
        counts if contents is None else counts | contents._asdict(),
        0 if redactions else sum(tree.entries_kept for tree in trees),
        sum(len(done.entry_ids) for done in left),
        tuple(sorted({name for done in left for name in done.seen_by} - ids.keys())),
        tuple(sorted({name for done in left for name in done.may_quote})),
        tuple(dict.fromkeys(name for tree in trees for name in tree.missing_ids)),
        at_us,
        note.by,
        note.why,
        size,
        look,
    )
