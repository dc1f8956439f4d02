"""Importing files of other programs, once and again.

A session keeps the id its file gives it, and entries keep theirs. That makes an import idempotent: the same file again
changes nothing, one that has grown adds what is new, and one that broke off half way goes on where it stopped. A file
is stored a few thousand entries at a time, each batch in one transaction, so that files of any length fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path

from flue_py.core.calls import CallDifference, PaidCall
from flue_py.core.entries import NewEntry
from flue_py.core.ledger import CallId
from flue_py.core.sessions import check_new_name, scope_meant
from flue_py.errors import SessionExists, UnreadableFile
from flue_py.formats.kit.report import LineNote
from flue_py.formats.kit.streaming import SessionPart
from flue_py.sessions.arguments import checked_flag, checked_function, checked_path
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.transfer.importing.calls import book_calls, with_settled
from flue_py.transfer.importing.reports import ImportReport, SessionImport
from flue_py.transfer.importing.sources import AUTO, ImportSource, checked_format
from flue_py.transfer.importing.targets import (
    Target,
    imported_in,
    imported_record,
    link_tasks,
    metadata_with_names,
    storable_entries,
)

Progress = Callable[[int, int], None]

TAKEN_BACK = "imported before it was complete"
"""Why an import retracts a message, in the log: the next import knows by it that the whole one is still to come."""

_LINES_AT_ONCE = 500
_ANEW = "delete the session, then import the file with again=True"


async def import_file(
    store: Store,
    path: str | PathLike[str],
    format: str = AUTO,  # noqa: A002 - what the command line calls it, too
    *,
    scope: str | None = None,
    finish: bool = False,
    again: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Import a session file of another program, or what it has gained since it was imported last.

    A session that was deleted stays deleted, with what the file has of its tasks, unless it is to be imported
    ``again``: what it had paid is its own then, and is not paid once more.

    ``format`` is ``auto`` (the file tells), or one of `flue_py.formats.registry.format_names`. A last message that may
    not be complete is held back, for a later import of the file, unless ``finish`` says that no more will come.
    ``progress`` is called with the bytes read and the bytes in all. Raises `UnreadableFile` for a file that is not of
    the format, or not the one its session was imported from; `SessionExists` if another scope has the session.
    Cost: O(file), a few thousand rows at a time; nothing that was stored before is read.
    """
    place = checked_path(path, "path")
    checked_flag(finish, "finish")
    checked_flag(again, "again")
    checked_function(progress, "progress")
    with ImportSource(Path(place), checked_format(format), take_all=finish, limits=store.limits) as source:
        await store.backend.waiting.call(source.start)
        return await import_source(store, source, scope=scope, again=again, progress=progress)


async def import_source(
    store: Store,
    source: ImportSource,
    *,
    scope: str | None = None,
    again: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Import a file that was started, as `import_file` does."""
    work = _FileImport(store, scope_meant(store.scope, scope) or "", source, again=again)
    # While one batch is stored, the next one is read.
    async with aclosing(store.backend.waiting.ahead(partial(_next_batch, source))) as batches:
        async for batch, done in batches:
            for part in batch:
                await work.add(part)
            if progress is not None:
                progress(done, source.size)
    await work.finish()
    return work.report()


def _next_batch(source: ImportSource) -> tuple[list[SessionPart], int] | None:
    """Return a batch and how many bytes have been read so far; None at the end."""
    batch = source.batch()
    return None if batch is None else (batch, source.bytes_read)


class _FileImport:
    """The import of one file."""

    def __init__(self, store: Store, scope: str, source: ImportSource, *, again: bool) -> None:
        check_new_name(scope, "scope")
        # A session that another scope has is there, also for a store that is narrowed to one.
        self._store = Store(store.backend, store.limits, store._pricer)  # noqa: SLF001 - nobody else may
        self._path = source.path
        self._scope = scope
        self._source = source
        self._again = again
        self._targets: dict[str, Target] = {}
        self._deleted: dict[str, SessionImport] = {}
        self._notes: list[LineNote] = []
        self._paid: dict[str, tuple[str, ...]] = {}
        self._conflicts: list[CallDifference] = []
        self._rewritten: set[str] = set()
        self._payers: set[str] = set()
        self._repeated: list[PaidCall] = []
        """Calls that the session which asked cannot have: the one that repeats them has the bill."""

    async def add(self, part: SessionPart) -> None:
        """Store what is new of a part."""
        session_id = str(part.session.id)
        if await self._stays_deleted(session_id, part) or await self._is_elsewhere(session_id, part):
            return
        if part.is_rewritten:
            self._rewritten.add(session_id)
        target = await self._add(session_id, part)
        target.calls += part.calls
        if part.is_payer:
            self._payers.add(session_id)
        if part.calls:
            named = {call.call_id for call in part.calls}
            target.unsettled.update({entry: names for entry, names in part.settles.items() if named & {*names}})
        target.note_beginning(part)
        target.completed_us = part.completed_us or target.completed_us
        if part.is_rewritten:
            target.about = imported_in(part.session.metadata_text)

    async def _stays_deleted(self, session_id: str, part: SessionPart) -> bool:
        """Return whether a session was deleted, or the one whose task it is, and not to be imported again."""
        if self._again or session_id in self._targets or await self._store.get_session(session_id) is not None:
            return False
        parent = part.parent.session_id if part.parent else None
        asked = [session_id] if parent is None or parent in self._targets else [session_id, parent]
        gone = await self._store.backend.was_deleted(asked, self._scope)
        # One that had a bill alone was never imported from its own file.
        if not any(had_entries or not part.entries for had_entries in gone.values()):
            self._deleted.pop(session_id, None)
            return False
        self._deleted[session_id] = SessionImport(session_id, False, 0, 0, None, task_of=parent, deleted=True)
        if part.is_payer:
            self._repeated += part.calls
        return True

    async def _is_elsewhere(self, session_id: str, part: SessionPart) -> bool:
        """Return whether the session that asked for what the file repeats is in another scope: it stays as it is."""
        session = await self._store.get_session(session_id) if part.is_payer else None
        if session is None or session.scope == self._scope:
            return False
        names = [CallId(call.provider, call.call_id or "") for call in part.calls]
        paid = {CallId(row.provider, row.call_id) for row in await self._store.backend.find_calls(session.scope, names)}
        self._repeated += [call for call, name in zip(part.calls, names, strict=True) if name not in paid]
        return True

    async def _add(self, session_id: str, part: SessionPart) -> Target:
        target = self._targets.get(session_id)
        if target is None:
            session = await self._store.get_session(session_id)
            if session is None:
                return await self._create(part)
            if session.scope != self._scope:
                session = await self._adopted(session)
            target = self._targets[session_id] = Target(session, created=False)
            target.parent = part.parent.session_id if part.parent else None
            target.segment, target.is_chained = part.segment, self._source.format.is_chained
            await self._check_unchanged(target)
            target.take_names()
        await self._extend(target, part)
        return target

    async def _adopted(self, session: Session) -> Session:
        """Return the session of another scope, which had only the bill that a fork there repeats, in this one."""
        try:
            await self._store.backend.adopt_session(session.id, self._scope)
        except SessionExists as error:
            raise SessionExists(session.id, detail=f"{self._path.name}: {error}") from error
        return await self._store.find_session(session.id)

    # -- a new session ------------------------------------------------------------------------------------------

    async def _create(self, part: SessionPart) -> Target:
        most = self._store.limits.batch_entries
        entries = storable_entries(part, self._store.limits.entry_bytes, self._notes)
        leaf = _last_among(part.leaves, entries[:most])
        new = replace(part.session, scope=self._scope, metadata_text=metadata_with_names(part))
        told: list[str] = []
        session = await self._store.import_session(new, entries[:most], leaf=leaf, on_oddity=told.append)
        self._conflicts += await self._store.call_conflicts(entries[:most], scope=self._scope)
        target = Target(session, created=True, newest=leaf, first_part=False, segment=part.segment)
        target.parent = part.parent.session_id if part.parent else None
        target.added = len(entries[:most])
        target.note_oddities(told, entries[:most])
        target.recorded = imported_record(session)
        self._targets[session.id] = target
        if len(entries) > most:
            await self._store_entries(target, entries[most:], part.leaves, _last(part.leaves))
            target.newest = _last(part.leaves)
        target.note_names(part, None)
        return target

    # -- a session that is there --------------------------------------------------------------------------------

    async def _check_unchanged(self, target: Target) -> None:
        """Raise `UnreadableFile` if the file does not begin any more with what was imported before."""
        target.recorded = imported_record(target.session)
        count, digest = target.read_before()
        if type(count) is not int or not isinstance(digest, str):
            return
        if self._source.size < count:
            # An older copy of the file, if it is one, has nothing new.
            target.is_older_copy = True
            return
        target.is_unchanged = count > 0
        if await self._store.backend.waiting.call(partial(self._source.digest_of_first, count)) != digest:
            raise UnreadableFile(
                f"{self._path.name}: its first {count} bytes have changed since they were imported into session "
                f"{target.session.id!r}, and its rows have no ids to tell them by; nothing was changed; {_ANEW}"
            )

    async def _extend(self, target: Target, part: SessionPart) -> None:
        if target.created:
            # Nobody else has written to it, and the reader has left out repeated ids.
            entries = storable_entries(part, self._store.limits.entry_bytes, self._notes)
            leaf = _last(part.leaves) or target.newest
            target.note_names(part, None)
            if entries:
                await target.remember_coming(None)
                await self._store_entries(target, entries, part.leaves, leaf)
                target.newest = leaf
            return
        session, first_part = target.session, target.first_part
        follows = False
        if part.lost:
            part, follows = await self._reattach_lost(target, part)
        asked = [str(entry.id) for entry in part.entries]
        for earlier in part.earlier.values():
            asked += earlier
        taken = await self._store.backend.taken_entry_ids(session.id, asked)
        if asked:
            target.first_part = False
        replaced = await self._replace_incomplete(target, part, taken)
        missing = [
            self._reattached(target, entry)
            for entry in storable_entries(part, self._store.limits.entry_bytes, self._notes)
            if entry.id not in taken and entry.id not in target.instead
        ]
        missing = await with_settled(self._store, target, part, missing)
        known = [leaf for leaf in part.leaves if leaf in taken]
        if known:
            target.newest = known[-1]
        target.already_there += sum(entry.id in taken for entry in part.entries)
        follows = follows or replaced or session.leaf_id == target.newest
        follows = follows or _is_where_it_was(target, part)
        follows = follows and not target.is_superseded
        if not follows and part.unfinished:
            # The session has it whole by now, or has gone on without it.
            missing = [entry for entry in missing if entry.id not in part.unfinished]
        if not missing:
            target.note_names(part, set())
            return
        if not part.may_overlap:
            missing = self._in_order(target, part, taken, missing)
        if first_part and not taken and session.info.entry_count and not (part.may_overlap or part.is_rewritten):
            raise UnreadableFile(
                f"{self._path.name} and session {session.id!r} have no entry in common: the file was rewritten with "
                f"new ids (pi does so when it takes over an old version); {_ANEW}"
            )
        leaf = target.stands_for(_last(part.leaves)) if follows and part.leaves else session.leaf_id
        added = {str(entry.id) for entry in missing}
        target.note_names(part, added)
        await target.remember_coming(imported_in(part.session.metadata_text) if part.is_rewritten else None)
        await self._store_entries(target, missing, part.leaves if follows else (), leaf)
        if follows:
            target.newest = leaf
        kept = not follows and not target.is_superseded and any(leaf in added for leaf in part.leaves)
        target.leaf_kept = target.leaf_kept or kept

    def _in_order(self, target: Target, part: SessionPart, taken: set[str], missing: list[NewEntry]) -> list[NewEntry]:
        """Return the new entries behind those that were imported, of a file whose rows have no ids of their own.

        Raises `UnreadableFile` if rows before have changed. Where they are the same, the version that imported them
        made fewer entries of them.
        """
        if not self._source.format.is_chained:
            return missing
        last = max((at for at, entry in enumerate(part.entries) if entry.id in taken), default=-1)
        early = {entry.id for entry in part.entries[: last + 1] if entry.id not in taken}
        early -= {name for name, earlier in part.earlier.items() if taken.intersection(earlier)}
        if target.is_older_copy or (early and not target.is_unchanged):
            raise UnreadableFile(
                f"{self._path.name}: rows have changed since they were imported into session {target.session.id!r}; "
                f"its rows have no ids to tell them by; nothing was changed; {_ANEW}"
            )
        if early:
            text = f"{len(early)} entries of rows that were imported before, by an earlier version, were not added"
            self._notes.append(LineNote(0, f"{text}; to have them, {_ANEW}"))
        return [entry for entry in missing if entry.id not in early]

    async def _replace_incomplete(self, target: Target, part: SessionPart, taken: set[str]) -> bool:
        """Retract messages that were taken before they were complete; return whether the leaf stepped back for one.

        What was built on meanwhile stays as it is, and stands for the whole message.
        """
        replaced = False
        for position, entry in enumerate(part.entries):
            earlier = [name for name in part.earlier.get(str(entry.id), ()) if name in taken]
            if not earlier or entry.id in taken:
                continue
            session, stored = target.session, await target.session.get_entry(earlier[-1])
            paid = await self._store.backend.calls_of_entry(session.ref, earlier[-1])
            self._paid[str(entry.id)] = tuple(call.call_id for call in paid)
            if stored is not None and await session.remove_leaf_message(stored.id, why=TAKEN_BACK):
                replaced = True
                continue
            if stored is None and await self._was_taken_back(session, earlier[-1]):
                replaced = replaced or session.leaf_id == target.stands_for(entry.parent_id)
                continue
            # What it cost is known better now, whatever became of it here.
            # Where nothing was, every file that has the message calls it by the id that it had without its entry.
            alone = () if paid else part.settles.get(str(entry.id), ())
            calls = [replace(call, call_id=alone[0]) if alone else call for call in entry.calls]
            target.calls += [self._repaid(str(entry.id), call) for call in calls]
            line = part.lines[position] if position < len(part.lines) else 0
            self._notes.append(
                LineNote(
                    line,
                    f"the message {entry.id!r} was imported before it was complete, and the session has gone "
                    "on since; it stays as it was",
                )
            )
            target.instead[str(entry.id)] = earlier[-1] if stored is not None else entry.parent_id
        return replaced

    async def _was_taken_back(self, session: Session, entry_id: str) -> bool:
        """Return whether an import retracted the message, and died before it stored the whole one. O(log)."""
        before: int | None = None
        while lines := await self._store.backend.read_log(session.ref, before=before, limit=_LINES_AT_ONCE):
            for line in lines:
                if line.what == "retract" and line.from_id == entry_id:
                    return line.why == TAKEN_BACK
            before = lines[-1].revision
        return False

    def _reattached(self, target: Target, entry: NewEntry) -> NewEntry:
        """Return an entry below what stands for its parent, and its call in the place of what was paid of it before."""
        if entry.parent_id in target.instead:
            entry = replace(entry, parent_id=target.stands_for(entry.parent_id))
        if entry.calls and entry.id in self._paid:
            entry = replace(entry, calls=tuple(self._repaid(entry.id, call) for call in entry.calls))
        return entry

    def _repaid(self, entry_id: str, call: PaidCall) -> PaidCall:
        return replace(call, replaces=self._paid[entry_id])

    async def _reattach_lost(self, target: Target, part: SessionPart) -> tuple[SessionPart, bool]:
        """Put entries whose parents are in another file of the same session below them, where they are stored."""
        session = target.session
        stored = await self._store.backend.taken_entry_ids(session.id, list(part.lost.values()))
        if not stored:
            return part, False
        entries = []
        follows = False
        for entry in part.entries:
            name = part.lost.get(str(entry.id))
            if name in stored and entry.parent_id is None:
                self._notes.append(LineNote(0, f"entry {entry.id!r} was put below {name!r}, which the session has"))
                follows = follows or name == session.leaf_id
                entries.append(replace(entry, parent_id=name))
            else:
                entries.append(entry)
        return replace(part, entries=tuple(entries)), follows

    # -- both ---------------------------------------------------------------------------------------------------

    async def _store_entries(
        self, target: Target, entries: Sequence[NewEntry], leaves: Sequence[str], leaf: str | None
    ) -> None:
        """Store entries a batch at a time. The leaf follows, so that a next import finds it where this one died."""
        most = self._store.limits.batch_entries
        for start in range(0, len(entries), most):
            some = entries[start : start + most]
            is_last = start + most >= len(entries)
            reached = leaf if is_last else _last_among(leaves, some) or target.session.leaf_id
            added = await target.session.import_entries(some, leaf=reached)
            self._conflicts += added.call_conflicts
            target.note_oddities(added.oddities, some)
            target.added += len(some)

    async def finish(self) -> None:
        """Set titles and labels, remember how far the file was read, and link task sessions."""
        repeating = next((each for name, each in self._targets.items() if name not in self._payers), None)
        if repeating is not None:
            repeating.calls += self._repeated
        for target in self._targets.values():
            self._conflicts += await book_calls(self._store, target)
            await target.set_names(self._notes)
            await target.restate(self._store)
            await target.set_completed()
            await target.remember_beginning()
            if self._source.format.is_chained:
                await target.remember_end(self._source)
            if target.session.id in self._rewritten and not target.leaf_kept:
                await target.remember_leaf()
        await link_tasks(self._store, self._scope, self._targets.values())

    def report(self) -> ImportReport:
        """Return what was done."""
        rows = self._source.report
        # What the file is of comes first; then the task sessions in it.
        sessions = [*(target.report() for target in self._targets.values()), *self._deleted.values()]
        return ImportReport(
            file=str(self._path),
            format=self._source.format.name,
            sessions=tuple(sorted(sessions, key=lambda session: session.task_of is not None)),
            rows=rows.rows,
            skipped=rows.skipped,
            repaired=(*rows.repaired, *self._notes),
            unknown_kinds=dict(rows.unknown_kinds),
            surrogates_replaced=rows.surrogates_replaced,
            skipped_rows=rows.skipped_rows,
            repaired_rows=len(self._notes) + rows.repaired_rows,
            merged=rows.merged,
            left_out=dict(rows.left_out),
            held_back=rows.held_back,
            held_back_from=rows.held_back_from,
            call_conflicts=tuple(self._conflicts),
        )


def _is_where_it_was(target: Target, part: SessionPart) -> bool:
    """Return whether the leaf is where the last import left it, of a file that may not show that any more."""
    recorded, leaf = target.recorded or {}, target.session.leaf_id
    # A file that was rewritten may have lost the entry; a document's leaf need not be its last entry.
    is_newest = target.is_chained and not target.is_older_copy and "leaf" in recorded
    if part.is_rewritten or is_newest:
        return leaf == recorded.get("leaf")
    return part.restates and "leafId" in recorded and leaf == recorded["leafId"]


def _last_among(names: Sequence[str], entries: Sequence[NewEntry]) -> str | None:
    there = {entry.id for entry in entries}
    return next((name for name in reversed(names) if name in there), None)


def _last(names: Sequence[str]) -> str | None:
    return names[-1] if names else None
