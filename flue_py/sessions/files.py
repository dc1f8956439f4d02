"""The files that a session's tools edit: checkpoints of them in the session's own entries, and the way back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import TypeAlias, Unpack

from msgspec.structs import replace

from flue_py.core.entries import Entry, NewEntry
from flue_py.core.files import (
    MAX_SNAPSHOTS,
    FileChange,
    FileCheckpoint,
    FileContent,
    FileRecord,
    FileState,
    Reason,
    RestoredFiles,
    content_of,
    new_backup,
    record_of,
)
from flue_py.core.kinds import FILE_BACKUP, FILE_CHECKPOINT
from flue_py.core.sessions import STORED, LeafChoice, Seen, Stored
from flue_py.db.files import Folder
from flue_py.errors import EntryNotFound, FilesChanged, InvalidArgument, UnreadableFile, shown
from flue_py.sessions import handle
from flue_py.sessions.handle import Group, Landing
from flue_py.sessions.write import Writing

Root: TypeAlias = str | PathLike[str] | None
"""The folder that files are in; None for the working directory of the session."""
Paths: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]]
"""A file or several, from the root on or from that of the file system."""

_PAGE = 20
_OF_ITS_PARENT = ("turn", "before restore")
_LOST = "its content is not stored any more: it was redacted, masked or deleted"
_REFUSED = (
    "changed by other means since the session last saw it, or has to stay as it is; nothing was restored: look at "
)
_REFUSED += "restore(dry_run=True), and say force=True to restore what can be"


class Files(Group[Writing]):
    """The files that the tools of a session edit: checkpoints of them, and the way back.

    A checkpoint is an entry, and so is each content, so that they follow branches, forks and undo, and go where the
    session goes: into copies, bundles and deletions. No context shows them. A file is tracked from its first edit
    on. ``root`` is the folder that the files are in, by default the session's ``cwd``; no path leads out of it, through
    a symbolic link or into ``.git``.
    """

    async def checkpoint(
        self, *, root: Root = None, max_snapshots: int = MAX_SNAPSHOTS, **options: Unpack[handle.SeenOptions]
    ) -> FileCheckpoint:
        """Append a checkpoint of all tracked files, for the beginning of a turn of the user, and return it.

        A file that has not changed keeps its backup; a missing one has none. If nothing came since the last one, that
        is returned. Only the newest ``max_snapshots`` are offered from here on; what older ones say stays stored.
        Raises `InvalidArgument`, `LeafConflict`. O(bytes of the files).
        """
        folder, seen = self._folder(root), await self._seen(**options)
        if isinstance(max_snapshots, bool) or not isinstance(max_snapshots, int) or max_snapshots < 1:
            raise InvalidArgument(f"max_snapshots: {shown(max_snapshots)} is not a number of checkpoints >= 1")
        history, leaf = _History(self), self._session._built_on(seen)
        base = await self._at(history, leaf)
        files, backups = await self._states(folder, _files(base), base)
        entry = None if leaf is None else await self._session.get_entry(leaf)
        if base is not None and files == base.files and entry and entry.kind in (FILE_CHECKPOINT, FILE_BACKUP):
            return base
        new = self._entry(FileRecord("turn", history.newest + 1, files, max_snapshots=max_snapshots))
        return await self._append([new, *backups], handle.Landing(seen))

    async def before_edit(
        self, paths: Paths, *, root: Root = None, **options: Unpack[handle.SeenOptions]
    ) -> tuple[str, ...]:
        """Back up files before a tool edits them for the first time, and return the names of those that it was done to.

        They join the checkpoint that the leaf is below; where there is none, they make one. Tracked files are left
        alone. Raises `UnreadableFile` for one that is no plain file or too large, before anything is appended;
        `InvalidArgument` for a path out of the root; `LeafConflict`. O(bytes of the new files).
        """
        folder, seen = self._folder(root), await self._seen(**options)
        history = _History(self)
        base = await self._at(history, self._session._built_on(seen))
        names = [name for name in _names(folder, paths) if name not in _files(base)]
        if not names:
            return ()
        files, backups = await self._states(folder, names, base, is_strict=True)
        if base is None:
            new = FileRecord("turn", history.newest + 1, files, max_snapshots=history.max_snapshots)
        else:
            new = FileRecord("edit", base.sequence, files, of=base.entry_id)
        await self._session._append([self._entry(new), *backups], Landing(seen))
        return tuple(names)

    async def after_edit(self, paths: Paths, *, root: Root = None, **options: Unpack[handle.SeenOptions]) -> None:
        """Append what a tool has made of files, so that they come back with this leaf, and count as ours.

        Raises `InvalidArgument` for a file that is not tracked: call `before_edit` before the edit; `LeafConflict`.
        O(bytes of the files).
        """
        folder, seen = self._folder(root), await self._seen(**options)
        base = await self._at(_History(self), self._session._built_on(seen))
        names = _names(folder, paths)
        wrong = [name for name in names if name not in _files(base)]
        if base is None or wrong:
            raise InvalidArgument(f"path: {shown(wrong[:1])} is not tracked: call before_edit() before it is edited")
        files, backups = await self._states(folder, names, base)
        files = {name: state for name, state in files.items() if state != base.files[name]}
        if files:
            new = self._entry(FileRecord("edited", base.sequence, files, of=base.entry_id))
            await self._session._append([new, *backups], Landing(seen))

    async def checkpoints(self) -> tuple[FileCheckpoint, ...]:
        """Return the checkpoints that the session sees, on the path or off it, the newest last, without evicted ones.

        O(entries), though not their payloads.
        """
        return tuple(reversed((await self._whole_history()).checkpoints))

    async def restore(
        self,
        to: LeafChoice = STORED,
        *,
        root: Root = None,
        dry_run: bool = False,
        force: bool = False,
        **options: Unpack[handle.SeenOptions],
    ) -> RestoredFiles:
        """Bring files back to how they were at a checkpoint or another entry, by default at the leaf; say what changed.

        Of another entry that is: at a checkpoint right below it, or at the last one above, with the edits up to the
        entry. A file that was not there is deleted, one that was not tracked yet is left alone, and no leaf is moved.
        First, how the files are now is appended as a checkpoint, and the one that they come back to as another, so that
        `undo` and a second `restore` take it back. Each file is replaced as a whole. After a crash in between, the same
        call finishes. With ``dry_run`` nothing is changed.

        Raises `FilesChanged` if a file is not as this session has left it, or has to stay as it is; with ``force`` the
        first are restored and the second are left. `InvalidArgument` if there is no checkpoint there, or it was
        evicted; `EntryNotFound`, `LeafConflict`, and `StoreUnavailable` if a file cannot be written.
        """
        handle.checked_leaf(to, "to")
        handle.checked_flag(dry_run, "dry_run")
        handle.checked_flag(force, "force")
        folder, seen = self._folder(root), await self._seen(**options)
        history, leaf = await self._whole_history(), self._session._built_on(seen)
        base = await self._at(history, leaf)
        place = leaf if isinstance(to, Stored) else to
        target = await self._target(history, place)
        changes = await self._changes(folder, target.files, history.known)
        untracked = tuple(sorted(name for name in _files(base) if name not in target.files))
        result = RestoredFiles(target, changes, untracked)
        if dry_run or not changes:
            return result
        refused = [change.name for change in changes if change.is_outside or change.problem is not None]
        if refused and not force:
            raise FilesChanged(refused, _REFUSED)
        reason: Reason = "replaced" if place == leaf else "before restore"
        await self._note_restore(folder, history, base, result, reason, seen)
        await handle.waiting_of(self._session).call(lambda: self._write(folder, changes))
        return replace(result, done=True)

    # -- the parts of it ------------------------------------------------------------------------------------------

    async def _whole_history(self) -> _History:
        history = _History(self)
        while await history.next():
            pass
        return history

    async def _seen(self, **options: Unpack[handle.SeenOptions]) -> Seen:
        seen = handle.checked_seen(**options)
        await self._session._compare(seen)
        return seen

    def _folder(self, root: Root) -> Folder:
        chosen = self._session.info.cwd if root is None else root
        if chosen is None:
            raise InvalidArgument("root: the session has no working directory; name the folder that the files are in")
        return Folder(chosen)

    @property
    def _most(self) -> int:
        """How many bytes a backup takes: as JSON, they are up to twice as many."""
        return max(self._session._limits.entry_bytes // 2 - 1_024, 0)

    def _entry(self, record: FileRecord) -> NewEntry:
        return record.entry(self._backend.new_entry_id())

    async def _append(self, entries: Sequence[NewEntry], landing: Landing) -> FileCheckpoint:
        """Append a checkpoint with its backups, and return it."""
        appended = await self._session._append(entries, landing)
        entry = await self._session.get_entry(appended.entry_ids[0])
        record = None if entry is None else record_of(entry)
        if entry is None or record is None:
            raise EntryNotFound(self._session.id, appended.entry_ids[0])
        return _checkpoint(entry, record)

    async def _at(self, history: _History, leaf: str | None) -> FileCheckpoint | None:
        """Return how the files were at an entry: at the last checkpoint above it, with the edits up to it."""
        number = 0
        while number < len(history.checkpoints) or await history.next():
            checkpoint = history.checkpoints[number]
            if leaf is not None and await self._is_above(checkpoint.entry_id, leaf):
                files = {**history.records[checkpoint.entry_id].files}
                for entry_id, edit in history.edits[checkpoint.entry_id]:
                    if await self._is_above(entry_id, leaf):
                        files = {**files, **edit.files} if edit.reason == "edited" else {**edit.files, **files}
                return replace(checkpoint, files=files)
            number += 1
        return None

    async def _is_above(self, entry_id: str, leaf: str) -> bool:
        return await self._ask(self._backend.is_ancestor, entry_id, leaf)

    async def _target(self, history: _History, place: str | None) -> FileCheckpoint:
        """Return the checkpoint that a restore goes back to. Raises as `restore`."""
        entry = None if place is None else await self._session.get_entry(place)
        if place is not None and entry is None:
            raise EntryNotFound(self._session.id, place)
        record = None if entry is None else record_of(entry)
        wanted = None if entry is None or record is None else (record.of or entry.id)
        if wanted is None and (entry is None or entry.kind != FILE_BACKUP):
            below = await self._ask(self._backend.children, place)
            records = ((child.id, record_of(child)) for child in below)
            wanted = next((id_ for id_, new in records if new and new.reason in _OF_ITS_PARENT), None)
        if wanted is None:
            checkpoint = await self._at(history, place)
            if checkpoint is None:
                raise InvalidArgument(f"to: there is no checkpoint of files at {shown(place)}, above it or right below")
            return checkpoint
        checkpoint = next((offered for offered in history.checkpoints if offered.entry_id == wanted), None)
        if checkpoint is None:
            raise InvalidArgument(f"to: the checkpoint {wanted!r} was evicted: only the newest are offered")
        return checkpoint

    async def _states(
        self, folder: Folder, names: Iterable[str], base: FileCheckpoint | None, *, is_strict: bool = False
    ) -> tuple[dict[str, FileState], list[NewEntry]]:
        """Return how files are now, and the backups of those that are not as at the base."""
        most, draw, wanted = self._most, self._backend.new_entry_id, [*names]

        def read() -> tuple[dict[str, FileState], list[NewEntry]]:
            files: dict[str, FileState] = {}
            backups: list[NewEntry] = []
            for name in wanted:
                before = _files(base).get(name)
                try:
                    content = folder.read(name, most)
                except UnreadableFile as error:
                    if is_strict:
                        raise
                    files[name] = _with_problem(before, str(error))
                    continue
                files[name] = _state(before, content, draw)
                if content is not None and (before is None or files[name].backup != before.backup):
                    backups.append(new_backup(content, files[name].backup or ""))
            return files, backups

        return await handle.waiting_of(self._session).call(read)

    async def _changes(
        self, folder: Folder, files: Mapping[str, FileState], known: Mapping[str, set[_Look]]
    ) -> tuple[FileChange, ...]:
        """Return how files differ from a checkpoint, by name."""
        most = self._most

        def read() -> list[FileChange]:
            changes = []
            for name in sorted(files):
                try:
                    content = folder.read(folder.name(name), most)
                except UnreadableFile as error:
                    changes.append(FileChange(name, None, None, problem=str(error)))
                    continue
                if not files[name].has(content):
                    looks = (None, 0) if content is None else (content.digest, content.mode)
                    changes.append(FileChange(name, content, None, looks not in known[name], files[name].problem))
            return changes

        changes = await handle.waiting_of(self._session).call(read)
        ids = [backup for change in changes if (backup := files[change.name].backup) is not None]
        entries = {entry.id: entry for entry in await self._session.get_entries(ids) if entry is not None}
        return tuple(_filled(change, files[change.name], entries) for change in changes)

    async def _note_restore(
        self,
        folder: Folder,
        history: _History,
        base: FileCheckpoint | None,
        result: RestoredFiles,
        reason: Reason,
        seen: Seen,
    ) -> None:
        """Append how the files are, and how they are about to be, before any is written."""
        target = result.checkpoint.files
        now, backups = await self._states(folder, {**_files(base), **target}, base)
        then, contents = {**now}, {change.name: change for change in result.changes}
        for name, change in contents.items():
            if change.problem is not None:
                continue
            then[name] = _state(now[name], change.after, self._backend.new_entry_id)
            if change.after is not None and then[name].backup != now[name].backup:
                backups.append(new_backup(change.after, then[name].backup or ""))
        newest, most = history.newest, history.max_snapshots
        records = (
            FileRecord(reason, newest + 1, now, None, most),
            FileRecord("restored", newest + 2, then, None, most),
        )
        await self._session._append([*map(self._entry, records), *backups], Landing(seen))

    def _write(self, folder: Folder, changes: Sequence[FileChange]) -> None:
        for number, change in enumerate(changes):
            if change.problem is not None:
                continue
            if folder.read(change.name, self._most) != change.before:
                raise FilesChanged(
                    [change.name],
                    f"changed just now; {number} of {len(changes)} files were restored: restore() goes on",
                )
            folder.write(change.name, change.after)


_Look: TypeAlias = tuple[str | None, int]
"""The SHA-256 of a file, and its permissions; None and 0 if it is not there."""


class _History:
    """The checkpoints that a session sees, read from the newest on as far as they are needed.

    ``records`` are theirs, ``edits`` those of their edits, the oldest first, and ``known`` is how files were at any.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._page: list[Entry] = []
        self._after: str | None = None
        self.checkpoints: list[FileCheckpoint] = []
        self.records: dict[str, FileRecord] = {}
        self.edits: defaultdict[str, list[tuple[str, FileRecord]]] = defaultdict(list)
        self.known: defaultdict[str, set[_Look]] = defaultdict(set)

    @property
    def newest(self) -> int:
        """The number of the newest checkpoint; 0 if there is none."""
        return max((checkpoint.sequence for checkpoint in self.checkpoints), default=0)

    @property
    def max_snapshots(self) -> int:
        """How many checkpoints are offered: as many as the newest says."""
        return self.checkpoints[0].max_snapshots if self.checkpoints else MAX_SNAPSHOTS

    async def next(self) -> bool:
        """Read one checkpoint more; return whether there was one that is offered."""
        read = partial(self._files._backend.read_entries, kind=FILE_CHECKPOINT, newest_first=True, limit=_PAGE)
        while len(self.checkpoints) < self.max_snapshots:
            if not self._page:
                self._page = await self._files._ask(read, after=self._after)
            if not self._page:
                return False
            entry = self._page.pop(0)
            self._after = entry.id
            if (record := record_of(entry)) is not None and self._add(entry, record):
                return True
        return False

    def _add(self, entry: Entry, record: FileRecord) -> bool:
        """Take a record in; return whether it is a checkpoint. Its edits came before it."""
        for name, state in record.files.items():
            self.known[name] |= {(state.sha256, state.mode)} if state.problem is None else set()
        if record.of is not None:
            self.edits[record.of].insert(0, (entry.id, record))
            return False
        files = {**record.files}
        for _, edit in self.edits[entry.id]:
            files = {**edit.files, **files}
        self.records[entry.id] = record
        self.checkpoints.append(_checkpoint(entry, replace(record, files=files)))
        return True


def _checkpoint(entry: Entry, record: FileRecord) -> FileCheckpoint:
    return FileCheckpoint(
        entry.id, record.sequence, record.reason, record.max_snapshots, entry.created_at, record.files
    )


def _files(checkpoint: FileCheckpoint | None) -> Mapping[str, FileState]:
    return {} if checkpoint is None else checkpoint.files


def _names(folder: Folder, paths: Paths) -> list[str]:
    if not isinstance(paths, (str, PathLike, Sequence)) or isinstance(paths, bytes):
        raise InvalidArgument(f"paths: {shown(paths)} is no path, and no list of paths")
    return [*dict.fromkeys(map(folder.name, [paths] if isinstance(paths, (str, PathLike)) else paths))]


def _state(before: FileState | None, content: FileContent | None, draw: Callable[[], str]) -> FileState:
    """Return how a file is, after how it was: with a new backup only if its content is another."""
    if before is not None and before.has(content):
        return before
    version = 1 if before is None else before.version + 1
    if content is None:
        return FileState(version)
    digest = content.digest
    backup = before.backup if before is not None and before.sha256 == digest else None
    return FileState(version, digest, content.mode, len(content.data), backup or draw())


def _with_problem(before: FileState | None, problem: str) -> FileState:
    if before is not None and before.problem == problem:
        return before
    return FileState(1 if before is None else before.version + 1, problem=problem)


def _filled(change: FileChange, state: FileState, entries: Mapping[str, Entry]) -> FileChange:
    """Return a change with the content that the file comes back to, or why it cannot."""
    if change.problem is not None or state.sha256 is None:
        return change
    content = content_of(entries.get(state.backup or ""), state)
    return replace(change, after=content, problem=None if content is not None else _LOST)
