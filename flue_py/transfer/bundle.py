"""Bundles: store files that hold whole trees, with their blobs and their part of the ledger, for somebody else."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path

from msgspec.structs import replace

from flue_py.core.chain import NO_PARENT
from flue_py.core.json import Frozen, decode_object, encode_json
from flue_py.core.sessions import Limits
from flue_py.core.trees import GonePayer, TreeCopy, TreeHead
from flue_py.db.files import Part, temporary_folder
from flue_py.db.payloads import checked_text
from flue_py.db.sqlite.checks import check_file
from flue_py.db.sqlite.file import leave_wal
from flue_py.errors import SessionNotFound, StoreUnavailable, UnreadableFile
from flue_py.providers.base import fields_of
from flue_py.sessions.handle import HasId, checked_flag, checked_function, checked_limits, checked_path, checked_session
from flue_py.sessions.store import Store, open
from flue_py.transfer.copy import CopyProgress, CopyRefusal, copy_trees
from flue_py.transfer.source import open_plain

_PAGE = 200
_GONE_PAGE = 100
_PATHS_OF_IMPORTS = ("cwd", "parentSession")
_GZIP = b"\x1f\x8b"
_SQLITE = b"SQLite format 3\0"
_WRITE_VERSION = 18
"""The place of the byte in a SQLite header that is 2 if a write-ahead log may belong to the file."""


class BundleCounts(Frozen):
    """How much a bundle holds. ``calls`` are paid calls, those of deleted sessions among them."""

    trees: int = 0
    sessions: int = 0
    entries: int = 0
    calls: int = 0


class BundleReport(Frozen):
    """A bundle that was written: its path, contents and size."""

    path: Path
    counts: BundleCounts
    size_bytes: int


class UnbundleReport(Frozen):
    """The effect of reading a bundle: its contents, and how many of its trees were new, brought up to date, unchanged.

    ``refused`` names trees that the store has in another way under the same ids or keys; they stay as they are here.
    """

    counts: BundleCounts
    trees_added: int
    trees_refreshed: int
    trees_unchanged: int
    refused: tuple[CopyRefusal, ...]

    @property
    def changed(self) -> bool:
        """Whether the store is not as it was before."""
        return self.trees_added + self.trees_refreshed > 0


# writing


async def write_bundle(
    store: Store,
    path: str | PathLike[str],
    sessions: Sequence[HasId | str] = (),
    *,
    keep_paths: bool = False,
    overwrite: bool = False,
) -> BundleReport:
    """Write the trees of some sessions, or all of a store, into one file, with their blobs and their paid calls.

    With a session goes its whole tree, forks and all, and the trees of its task sessions. Each tree is as of one
    moment. Folders and configuration paths are left out, unless the bundle keeps paths; budgets and documents stay
    behind. The file is its owner's, and is there when it is whole. Raises `SessionNotFound`, `InvalidArgument` for a
    file that is there, `CorruptStore` if a payload is not as it was appended, `StoreUnavailable`. O(trees); one tree
    at a time is in memory.
    """
    target = checked_path(path, "path")
    checked_flag(keep_paths, "keep_paths")
    call = store.backend.waiting.call
    heads = await _heads(store, [checked_session(session) for session in sessions])
    part = await call(partial(Part, target, overwrite=checked_flag(overwrite, "overwrite")))
    with part:
        threads = store.backend.waiting.needs_loop
        async with open(part.path, durability="normal", prices=False, threads=threads) as bundle:
            await _write_trees(store, bundle, heads, is_all=not sessions, keep_paths=keep_paths)
            counts = await _counts(bundle, len(heads))
        await call(partial(leave_wal, part.path))
        await call(part.publish)
    return BundleReport(target, counts, await call(lambda: target.stat().st_size))


async def _heads(store: Store, ids: Sequence[str]) -> list[TreeHead]:
    """Return the trees of these sessions and of their task sessions, or all; the oldest first."""
    heads: list[TreeHead] = []
    while page := await store.backend.list_trees(heads[-1].tree_id if heads else -1, _PAGE):
        heads += page
    if ids:
        head_of = {session.id: head for head in heads for session in head.sessions}
        for session_id in ids:
            if session_id not in head_of:
                raise SessionNotFound(session_id)
        pending = list(ids)
        bundled: dict[int, TreeHead] = {}
        while pending:
            head = head_of.get(pending.pop())
            if head is None or head.tree_id in bundled:
                continue
            bundled[head.tree_id] = head
            for session in head.sessions:
                pending += [link.child_id for link in await store.backend.task_links(session.id)]
        heads = list(bundled.values())
    return sorted(heads, key=lambda head: min((session.created_at, session.id) for session in head.sessions))


async def _write_trees(
    store: Store, bundle: Store, heads: Sequence[TreeHead], *, is_all: bool, keep_paths: bool
) -> None:
    payers: set[int] = set()
    for head in heads:
        copy = await store.backend.read_whole_tree(head.tree_id)
        if copy is None:  # deleted meanwhile
            continue
        await store.backend.waiting.call(partial(_check_payloads, copy))
        payers.update(payer.session_key for payer in copy.payers)
        await bundle.backend.write_whole_tree(copy if keep_paths else _without_paths(copy))
    trees = None if is_all else {head.tree_id for head in heads}
    async for deleted in _gone_payers(store, trees, payers):
        payer = deleted.payer if keep_paths else deleted.payer._replace(project=None)
        await bundle.backend.write_gone_payers([replace(deleted, payer=payer)])


def _check_payloads(copy: TreeCopy) -> None:
    """Raise `CorruptStore` if an entry is not as it was appended. O(bytes)."""
    blobs = {blob.sha256: blob.data for blob in copy.blobs}
    cuts: dict[tuple[int, int], list[tuple[int, bytes]]] = defaultdict(list)
    for row in copy.attachments:
        cuts[row.lane_id, row.depth].append((row.place, row.sha256))
    digests = {entry.id: entry.digest for entry in copy.entries}
    for entry in copy.entries:
        above = NO_PARENT if entry.parent_id is None else digests.get(entry.parent_id, b"")
        checked_text(copy.chain, entry, above, blobs, cuts.get((entry.lane_id, entry.depth), ()))


def _without_paths(copy: TreeCopy) -> TreeCopy:
    """Return a tree whose sessions name no folder and no file of the machine they are from. Their messages may."""
    sessions = [
        row._replace(cwd=None, config_path=None, metadata=_metadata_without_paths(row.metadata))
        for row in copy.sessions
    ]
    payers = [payer._replace(project=None) for payer in copy.payers]
    return replace(copy, sessions=sessions, payers=payers)


def _metadata_without_paths(text: str) -> str:
    metadata = decode_object(text)
    header = fields_of(fields_of(metadata.get("imported")).get("header"))
    if not any(name in header for name in _PATHS_OF_IMPORTS):
        return text
    for name in _PATHS_OF_IMPORTS:
        header.pop(name, None)
    return encode_json(metadata, "metadata")[0]


async def _gone_payers(store: Store, trees: set[int] | None, written: set[int]) -> AsyncIterator[GonePayer]:
    """Yield the deleted sessions that have paid for these trees, or for any, but for those already written."""
    after = -1
    while page := await store.backend.list_gone_payers(after, _GONE_PAGE):
        after = page[-1].payer.session_key
        for deleted in page:
            if (
                deleted.calls
                and (trees is None or deleted.tree_id in trees)
                and deleted.payer.session_key not in written
            ):
                yield deleted


async def _counts(bundle: Store, trees: int) -> BundleCounts:
    info = await bundle.info()
    return BundleCounts(trees, info.sessions, info.entries, info.ledger_rows)


# reading


async def read_bundle(
    store: Store,
    path: str | PathLike[str],
    *,
    limits: Limits | None = None,
    progress: Callable[[CopyProgress], None] | None = None,
) -> UnbundleReport:
    """Bring the trees of a bundle into a store, unless they are there already, and return a report.

    The bundle is trusted with nothing: a copy of it is checked to have the tables of a store and nothing else, rows of
    the right types within the limits, and it has to verify, before anything of it reaches ``store``. Sessions, entries
    and calls keep their ids, revisions and times. Reading the same bundle again changes nothing; a later one of the
    same store brings trees up to date that nobody has written to. A payload that is larger than ``limits`` (None: those
    of the store) is refused before it is unpacked. Raises `UnreadableFile`, `FormatTooNew`, `StoreUnavailable`; what
    raises has changed nothing. O(bundle).
    """
    source = checked_path(path, "path")
    checked_function(progress, "progress")
    limits = store.limits if limits is None else checked_limits(limits)
    call, threads = store.backend.waiting.call, store.backend.waiting.needs_loop
    with temporary_folder() as folder:
        copy = folder / "bundle.db"
        try:
            await call(partial(_copy_file, source, copy))
            await call(partial(check_file, copy, limits))
            async with open(copy, durability="normal", prices=False, threads=threads) as bundle:
                report = await bundle.verify()
                if report.problems:
                    raise UnreadableFile(f"does not verify ({report.problems[0]})")
                done = await copy_trees(bundle, store, progress)
                trees = done.trees_copied + done.trees_refreshed + done.trees_unchanged + len(done.refused)
                counts = await _counts(bundle, trees)
        except UnreadableFile as error:
            why = str(error).replace(str(copy), "it")
            raise UnreadableFile(f"{source.name}: {why}; nothing was imported") from error
    return UnbundleReport(counts, done.trees_copied, done.trees_refreshed, done.trees_unchanged, done.refused)


def _copy_file(source: Path, copy: Path) -> None:
    """Copy a file that may be a bundle. Raises `UnreadableFile` if its header is not that of one."""
    try:
        with open_plain(source) as file:
            header = file.read(_WRITE_VERSION + 1)
            if header.startswith(_GZIP):
                raise UnreadableFile(
                    "it is compressed: bundles of before the first release were, and are not read; write it anew from "
                    "its store, or unpack it first"
                )
            if not header.startswith(_SQLITE) or len(header) <= _WRITE_VERSION:
                raise UnreadableFile("it is no bundle")
            if header[_WRITE_VERSION] != 1:
                raise UnreadableFile("it is a database in use, with a log beside it; write a bundle from it")
            file.seek(0)
            with copy.open("xb") as target:
                shutil.copyfileobj(file, target)
    except OSError as error:
        raise StoreUnavailable(f"{source} cannot be read: {error.strerror or error}") from error
