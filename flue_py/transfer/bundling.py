"""Bundles out of a store and into one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path

from flue_py.core.limits import Limits
from flue_py.core.trees import GonePayer, TreeCopy, TreeHead
from flue_py.errors import FlueError, SessionNotFound, StoreUnavailable, UnreadableFile
from flue_py.sessions.arguments import (
    HasId,
    checked_flag,
    checked_function,
    checked_limits,
    checked_path,
    checked_session,
)
from flue_py.sessions.opening import open as open_store
from flue_py.sessions.store import Store
from flue_py.store.files.private import Part
from flue_py.store.files.temporary import temporary_folder
from flue_py.store.schema.payloads import checked_text
from flue_py.transfer.bundles.layout import BundleCounts
from flue_py.transfer.bundles.reading import BundleReader
from flue_py.transfer.bundles.writing import BundleWriter
from flue_py.transfer.copying import CopyProgress, CopyRefusal, copy_store
from flue_py.transfer.plain_files import open_plain

_PAGE = 200
_GONE_PAGE = 100


@dataclass(frozen=True, slots=True)
class BundleReport:
    """A bundle that was written: where, what it holds, and its size."""

    path: Path
    counts: BundleCounts
    size_bytes: int


@dataclass(frozen=True, slots=True)
class UnbundleReport:
    """What reading a bundle did: what it holds, and how many of its trees were new, brought up to date, or unchanged.

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


async def write_bundle(
    store: Store,
    path: str | PathLike[str],
    sessions: Sequence[HasId | str] = (),
    *,
    keep_paths: bool = False,
    overwrite: bool = False,
) -> BundleReport:
    """Write the trees of some sessions, or all of a store, into one file, with their blobs and what they paid.

    With a session goes its whole tree, forks and all, and the trees of its task sessions. Each tree is as of one
    moment. Folders and configuration paths are left out, unless the bundle keeps paths; budgets and documents stay
    behind. The same trees give the same bytes. The file is its owner's, and is there when it is whole. Raises
    `SessionNotFound`, `InvalidArgument` for a file that is there, `CorruptStore` where a payload is not what was
    appended, `StoreUnavailable`. O(trees); one tree at a time is in memory.
    """
    target = checked_path(path, "path")
    checked_flag(keep_paths, "keep_paths")
    call = store.backend.waiting.call
    heads = await _chosen_trees(store, [checked_session(session) for session in sessions])
    part = await call(partial(Part, target, overwrite=checked_flag(overwrite, "overwrite")))
    with part:
        try:
            counts = await _write_trees(store, part.path, heads, is_all=not sessions, keep_paths=keep_paths)
        except FlueError:
            raise
        except OSError as error:
            raise StoreUnavailable(f"{target} cannot be written: {error.strerror or error}") from error
        await call(part.publish)
    return BundleReport(target, counts, await call(lambda: target.stat().st_size))


async def _write_trees(
    store: Store, path: Path, heads: Sequence[TreeHead], *, is_all: bool, keep_paths: bool
) -> BundleCounts:
    call = store.backend.waiting.call
    with await call(lambda: path.open("wb")) as file, closing(BundleWriter(file, keep_paths=keep_paths)) as writer:
        brought: set[int] = set()
        async for copy in _copies(store, heads):
            brought.update(payer.session_key for payer in copy.payers)
            await call(partial(writer.add_tree, copy))
        trees = None if is_all else {head.tree_id for head in heads}
        async for gone in _gone_payers(store, trees, brought):
            writer.add_gone(gone)
        return await call(writer.end)


async def _chosen_trees(store: Store, ids: Sequence[str]) -> list[TreeHead]:
    """Return the trees of these sessions and of their task sessions, or all; the oldest first."""
    heads = [head async for head in _all_heads(store)]
    if ids:
        tree_of = {session.id: head for head in heads for session in head.sessions}
        for session_id in ids:
            if session_id not in tree_of:
                raise SessionNotFound(session_id)
        waiting = list(ids)
        chosen: dict[int, TreeHead] = {}
        while waiting:
            head = tree_of.get(waiting.pop())
            if head is None or head.tree_id in chosen:
                continue
            chosen[head.tree_id] = head
            for session in head.sessions:
                waiting += [link.child_id for link in await store.backend.task_links(session.id)]
        heads = list(chosen.values())
    return sorted(heads, key=lambda head: min((session.created_at, session.id) for session in head.sessions))


async def _all_heads(store: Store) -> AsyncIterator[TreeHead]:
    after = -1
    while page := await store.backend.list_trees(after, _PAGE):
        after = page[-1].tree_id
        for head in page:
            yield head


async def _copies(store: Store, heads: Sequence[TreeHead]) -> AsyncIterator[TreeCopy]:
    for head in heads:
        copy = await store.backend.read_whole_tree(head.tree_id)
        if copy is None:  # deleted meanwhile
            continue
        await store.backend.waiting.call(partial(_check_payloads, copy))
        yield copy


def _check_payloads(copy: TreeCopy) -> None:
    """Raise `CorruptStore` if a payload is not what was appended. O(bytes)."""
    blobs = {blob.sha256: blob.data for blob in copy.blobs}
    cuts: dict[tuple[int, int], list[tuple[int, bytes]]] = defaultdict(list)
    for row in copy.attachments:
        cuts[row.lane_id, row.depth].append((row.place, row.sha256))
    for entry in copy.entries:
        checked_text(entry, blobs, cuts.get((entry.lane_id, entry.depth), ()))


async def _gone_payers(store: Store, trees: set[int] | None, brought: set[int]) -> AsyncIterator[GonePayer]:
    """Yield what sessions that are gone have paid for these trees, or for any, but for those in ``brought``."""
    after = -1
    found: list[GonePayer] = []
    while page := await store.backend.list_gone_payers(after, _GONE_PAGE):
        after = page[-1].payer.session_key
        found += [
            gone
            for gone in page
            if gone.calls and (trees is None or gone.tree_id in trees) and gone.payer.session_key not in brought
        ]
    for gone in sorted(found, key=lambda gone: (gone.payer.session_id, min(call.identity for call in gone.calls))):
        yield gone


async def read_bundle(
    store: Store,
    path: str | PathLike[str],
    *,
    limits: Limits | None = None,
    progress: Callable[[CopyProgress], None] | None = None,
) -> UnbundleReport:
    """Bring the trees of a bundle into a store, where they are not there yet, and report what was done.

    The bundle is trusted with nothing: it is checked to be whole, and read into a store of its own that has to verify,
    before anything of it reaches ``store``. Sessions, entries and calls keep their ids, revisions and times. Reading
    the same bundle again changes nothing; a later one of the same store brings trees up to date that nobody has written
    to. What is larger than ``limits`` (None: those of the store) is refused before it is unpacked, as is a file that
    stands for far more than its size. Raises `UnreadableFile`, `FormatTooNew`, `StoreUnavailable`; what raises
    has changed nothing. O(bundle).
    """
    source = checked_path(path, "path")
    checked_function(progress, "progress")
    limits = store.limits if limits is None else checked_limits(limits)
    with temporary_folder() as folder:
        threads = store.backend.waiting.needs_loop
        async with open_store(folder / "bundle.db", durability="normal", prices=False, threads=threads) as scratch:
            try:
                file = await store.backend.waiting.call(partial(open_plain, source))
            except OSError as error:
                raise StoreUnavailable(f"{source} cannot be read: {error.strerror or error}") from error
            with file:
                counts = await _load(scratch, BundleReader(file, source.name, limits), source.name)
            report = await scratch.verify()
            if report.problems:
                raise UnreadableFile(f"{source.name} does not verify ({report.problems[0]}); nothing was imported")
            done = await copy_store(scratch, store, progress=progress, verify=False)
    return UnbundleReport(counts, done.trees_copied, done.trees_refreshed, done.trees_unchanged, done.refused)


async def _load(scratch: Store, reader: BundleReader, name: str) -> BundleCounts:
    found = reader.trees()
    gone: list[GonePayer] = []
    while (part := await scratch.backend.waiting.call(partial(_next_of, found))) is not None:
        if isinstance(part, GonePayer):
            gone.append(part)
            continue
        try:
            standing = await scratch.backend.write_whole_tree(part)
        except (FlueError, LookupError, ValueError) as error:
            raise UnreadableFile(f"{name}: a tree of it makes no sense ({error}); nothing was imported") from error
        if standing.state != "missing":
            raise UnreadableFile(f"{name} has session {part.sessions[0].id!r} twice; nothing was imported")
    await scratch.backend.write_gone_payers(gone)
    return reader.counts


def _next_of(parts: Iterator[TreeCopy | GonePayer]) -> TreeCopy | GonePayer | None:
    return next(parts, None)
