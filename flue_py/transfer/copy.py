"""Trees elsewhere: all of a store in another one, some in a bundle, and those that a damaged file still has."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from os.path import samefile
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from flue_py.core.chain import NO_PARENT
from flue_py.core.json import Frozen, decode_object, encode_json
from flue_py.core.ledger import Budget, BudgetRow, BudgetState
from flue_py.core.sessions import LARGEST_ENTRY, DocumentName, DocumentRow, DocumentState, Limits, Problem, StoreInfo
from flue_py.core.trees import GonePayer, SalvageReport, Standing, TreeCopy, TreeHead
from flue_py.db.backend import Backend, KeyChoice, Keys
from flue_py.db.files import Part, temporary_folder
from flue_py.db.ops.base import checked_text
from flue_py.db.runner import waiting_here
from flue_py.db.sqlite.checks import check_file
from flue_py.db.sqlite.file import leave_wal
from flue_py.errors import InvalidArgument, SessionExists, SessionNotFound, StoreUnavailable, UnreadableFile
from flue_py.providers.base import fields_of
from flue_py.sessions.handle import HasId, checked_flag, checked_function, checked_limits, checked_path, checked_session
from flue_py.sessions.store import Store, open
from flue_py.system import open_if_plain

# Copying all trees of a store to another one, while both are in use.

CopyPhase: TypeAlias = Literal["copying", "verifying"]

LISTED = 1_000
"""How many sessions that only the target has a report names."""

_PAGE = 200
_GONE_PAGE = 100
_BUDGET_PAGE = 100
_DOCUMENT_PAGE = 20
# Small trees are copied at the same time, so that a store can commit them together.
_TREES_AT_ONCE = 16
_ENTRIES_AT_ONCE = 1_000


class CopyProgress(Frozen):
    """How far a copy is: sessions looked at, of how many there were at the start; entries and bytes written."""

    phase: CopyPhase
    sessions: int
    sessions_total: int
    entries: int
    payload_bytes: int


class CopyRefusal(Frozen):
    """A tree that was not copied: the session that stands in the way, and the way out."""

    session_id: str
    reason: str


class BudgetLeft(Frozen):
    """A budget that was not copied, and why; ``is_refused`` where the target has another one in its place."""

    budget_id: str
    is_refused: bool
    reason: str


class DocumentLeft(Frozen):
    """A document that was not copied, and why; ``is_refused`` where it cannot be told which of the two is the later."""

    document: DocumentName
    is_refused: bool
    reason: str


class CopyReport(Frozen):
    """The effect of copying a store, and its findings.

    ``trees_copied`` were new to the target, ``trees_refreshed`` replaced an earlier copy, ``trees_unchanged`` were
    there as they are. ``sessions``, ``entries``, ``calls`` (in the ledger), ``budgets`` and ``payload_bytes`` (as
    stored) count written rows; ``budgets_kept`` are those that the target has in the same or a later state.
    ``documents`` are the memories and files that were written, ``documents_kept`` those that the target has as they
    are; those that it has in another state are in ``documents_left``.
    ``removed_ids`` are sessions that the source has deleted from a tree that is still there.
    ``only_in_target`` counts the sessions of whole trees that the source does not have, deleted there since or the
    target's own; ``only_in_target_ids`` are the first thousand.

    ``source`` and ``target`` are the stores at the end. ``source_went_on`` says that the source held less or more
    than at the start: copy again to catch up. The problems are those that `verify` found at either end, and counts
    that do not agree; ``verified`` says whether it was asked.
    """

    trees_copied: int
    trees_refreshed: int
    trees_unchanged: int
    sessions: int
    entries: int
    calls: int
    payload_bytes: int
    removed_ids: tuple[str, ...]
    refused: tuple[CopyRefusal, ...]
    only_in_target: int
    only_in_target_ids: tuple[str, ...]
    source: StoreInfo
    target: StoreInfo
    source_went_on: bool
    verified: bool
    source_problems: tuple[Problem, ...]
    target_problems: tuple[Problem, ...]
    budgets: int = 0
    budgets_kept: int = 0
    budgets_left: tuple[BudgetLeft, ...] = ()
    documents: int = 0
    documents_kept: int = 0
    documents_left: tuple[DocumentLeft, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether everything was copied, and no problem was found at either end."""
        budgets = any(left.is_refused for left in self.budgets_left)
        documents = any(left.is_refused for left in self.documents_left)
        return not (self.refused or budgets or documents or self.source_problems or self.target_problems)


async def copy_store(
    source: Store, target: Store, *, progress: Callable[[CopyProgress], None] | None = None, verify: bool = True
) -> CopyReport:
    """Copy every tree of ``source`` into ``target``, with its costs, and return a report.

    Both stores may be in use: each tree is read as of one moment, and written in one transaction. If it breaks off,
    run it again; nothing is copied twice. Later runs catch up: a tree that has changed in the source replaces
    its copy, unless that was written to. A tree is refused, and reported, if the target has something
    else under the id or key of one of its sessions, or its copy was changed; the others are copied all the same.
    Nothing is deleted except sessions that are gone from a tree that is still there. Budgets come last, with what is
    reserved in them: each by its id, if the source has changed it later. So do documents, by their names.

    ``progress`` is called often, on the event loop. With ``verify`` both stores check themselves at the end. Raises
    `InvalidArgument` if both are the same store. O(source) at first, then O(sessions) and the trees that have
    changed. One large tree at a time is in memory, or several small ones: about 1 KB for each entry beside its payload.
    """
    for end, store in (("source", source), ("target", target)):
        if not isinstance(store, Store):
            raise InvalidArgument(f"{end}: should be an open store, not {type(store).__name__}")
    checked_flag(verify, "verify")
    checked_function(progress, "progress")
    if source is target or _is_same(await source.info(), await target.info()):
        raise InvalidArgument("source and target are the same store; name another target")
    return await _Copying(source.backend, target.backend, progress).run(verify=verify)


async def copy_trees(source: Store, target: Store, progress: Callable[[CopyProgress], None] | None) -> CopyReport:
    """Do the same for trees and their part of the ledger alone, without budgets, documents and `verify`."""
    return await _Copying(source.backend, target.backend, progress).run(verify=False, trees_only=True)


def _is_same(ours: StoreInfo, theirs: StoreInfo) -> bool:
    if "memory" in (ours.backend, theirs.backend):
        return False
    if ours.location == theirs.location:
        return True
    files = [_file_of(info) for info in (ours, theirs)]
    with suppress(OSError):  # a URL may name its file in a way that is not a path
        return files[0] is not None and files[1] is not None and samefile(files[0], files[1])
    return False


def _file_of(info: StoreInfo) -> str | None:
    """Return the file that an SQLite store is in."""
    if not info.backend.startswith("sqlite"):
        return None
    _, separator, path = info.location.partition(":///")
    return path.partition("?")[0] if separator else info.location


class _Tally(Struct):
    """The progress of the copy."""

    trees_copied: int = 0
    trees_refreshed: int = 0
    trees_unchanged: int = 0
    sessions_there: int = 0
    sessions: int = 0
    entries: int = 0
    calls: int = 0
    budgets: int = 0
    budgets_kept: int = 0
    payload_bytes: int = 0
    removed_ids: list[str] = field(default_factory=list)
    refused: list[CopyRefusal] = field(default_factory=list)
    budgets_left: list[BudgetLeft] = field(default_factory=list)
    documents: int = 0
    documents_kept: int = 0
    documents_left: list[DocumentLeft] = field(default_factory=list)

    def note(self, head: TreeHead, standing: Standing) -> None:
        """Count the outcome of a tree."""
        if standing.state != "refused":
            self.sessions_there += len(head.sessions)
        self.trees_copied += standing.state == "missing"
        self.trees_refreshed += standing.state == "behind"
        self.trees_unchanged += standing.state == "same"
        self.removed_ids += standing.removed

    def note_written(self, copy: TreeCopy) -> None:
        """Count the rows that were written of a tree."""
        self.sessions += len(copy.sessions)
        self.entries += len(copy.entries)
        self.calls += len(copy.calls)
        self.payload_bytes += copy.stored_bytes

    def note_budget(self, budget: BudgetRow, state: BudgetState, other: Budget | None = None) -> None:
        """Count the outcome of a budget. ``other`` is the one of the target that is in its place."""
        self.budgets += state == "written"
        self.budgets_kept += state in ("same", "later")
        if state == "no session":
            why = f"budget {budget.id!r}: its session {budget.session_id!r} was not copied"
            self.budgets_left.append(BudgetLeft(budget.id, False, why))
        elif state == "taken":
            there = "another one of this id" if other is None else f"{other.id!r} of {other.target}"
            why = f"budget {budget.id!r}: the target has {there}, in {budget.unit}"
            name = repr(budget.id if other is None else other.id)
            self.budgets_left.append(BudgetLeft(budget.id, True, f"{why}; delete {name} there, then copy again"))

    def note_document(self, row: DocumentRow, state: DocumentState) -> None:
        """Count the outcome of a document."""
        self.documents += state == "written"
        self.documents_kept += state == "same"
        if state in ("later", "other"):
            why = f"{row.kind} {row.name!r}: the target has it in a later state"
            if state == "other":
                why = f"{row.kind} {row.name!r}: the target has another one of the same time; remove one of the two"
            self.documents_left.append(DocumentLeft(row.id, state == "other", why))


class _Copying:
    """One run from one store to another."""

    def __init__(self, source: Backend, target: Backend, tell: Callable[[CopyProgress], None] | None) -> None:
        self._source = source
        self._target = target
        self._tell = tell
        self._seen = 0
        self._total = 0
        self._tally = _Tally()
        self._refused: list[TreeHead] = []
        self._refused_at_last: list[TreeHead] = []

    async def run(self, *, verify: bool, trees_only: bool = False) -> CopyReport:
        before = await self._source.info()
        self._total = before.sessions
        await self._copy_trees()
        await self._copy_gone_payers()
        if not trees_only:
            await self._copy_budgets()
            await self._copy_documents()
        source, target = await self._source.info(), await self._target.info()
        tally: dict[str, Any] = asdict(self._tally)
        has_more = target.sessions > tally.pop("sessions_there")
        extra, extra_ids = await self._find_extra() if has_more else (0, [])
        went_on = _counts(before) != _counts(source)
        problems = [[], [] if went_on or self._tally.refused else _count_problems(source, target, extra)]
        if verify:
            for backend, end_problems in zip((self._source, self._target), problems, strict=True):
                self._report("verifying")
                end_problems.extend((await backend.verify()).problems)
        for name, value in tally.items():
            tally[name] = tuple(value) if isinstance(value, list) else value
        return CopyReport(
            **tally,
            only_in_target=extra,
            only_in_target_ids=tuple(extra_ids),
            source=source,
            target=target,
            source_went_on=went_on,
            verified=verify,
            source_problems=tuple(problems[0]),
            target_problems=tuple(problems[1]),
        )

    def _report(self, phase: CopyPhase) -> None:
        done = self._tally
        if self._tell is not None:
            self._tell(CopyProgress(phase, self._seen, max(self._seen, self._total), done.entries, done.payload_bytes))

    async def _copy_trees(self) -> None:
        after = -1
        while heads := await self._source.list_trees(after, _PAGE):
            after = heads[-1].tree_id
            changed = []
            for head, standing in zip(heads, await self._target.compare_trees(heads), strict=True):
                if standing.state in ("missing", "behind"):
                    changed.append(head)
                    continue
                self._seen += len(head.sessions)
                self._tally.note(head, standing)
                if standing.state == "refused":
                    self._refused.append(head)
            self._report("copying")
            for group in _groups(changed):
                self._refused += [head for head, _ in await self._copy_group(group)]
                self._seen += sum(len(head.sessions) for head in group)
                self._report("copying")
        # A tree may have been refused because of an earlier copy that is up to date by now.
        for head in self._refused:
            for _, refusal in await self._copy_group([head]):
                self._refused_at_last.append(head)
                self._tally.refused.append(CopyRefusal(refusal.session, str(refusal)))
            self._report("copying")

    async def _copy_group(self, heads: Sequence[TreeHead]) -> list[tuple[TreeHead, SessionExists]]:
        """Copy trees, each in a transaction of its own, in their order; return those that the target refused."""
        read = await self._source.waiting.outcomes([self._source.read_whole_tree(head.tree_id) for head in heads])
        copies = [copy for copy in read if isinstance(copy, TreeCopy)]
        results = await self._target.waiting.outcomes([self._target.write_whole_tree(copy) for copy in copies])
        refused = []
        failures = [failure for failure in read if isinstance(failure, Exception)]
        for copy, result in zip(copies, results, strict=True):
            if isinstance(result, SessionExists):
                refused.append((copy.head, result))
            elif isinstance(result, Exception):
                failures.append(result)
            else:
                self._tally.note(copy.head, result)
                if result.state != "same":
                    self._tally.note_written(copy)
        if failures:
            raise failures[0]
        return refused

    async def _copy_gone_payers(self) -> None:
        after = -1
        while page := await self._source.list_gone_payers(after, _GONE_PAGE):
            after = page[-1].payer.session_key
            self._tally.calls += await self._target.write_gone_payers(page)

    async def _copy_budgets(self) -> None:
        # A session of the target that only has the same id as one of this store must not get its budgets.
        refused = {session.id for head in self._refused_at_last for session in head.sessions}
        after = -1
        while page := await self._source.list_whole_budgets(after, _BUDGET_PAGE):
            after = page[-1].position
            copies = [copy for copy in page if copy.budget.session_id not in refused]
            states = dict(
                zip((copy.budget.id for copy in copies), await self._target.write_budgets(copies), strict=True)
            )
            for copy in page:
                state = states.get(copy.budget.id, "no session")
                other = await self._budget_in_place_of(copy.budget) if state == "taken" else None
                self._tally.note_budget(copy.budget, state, other)

    async def _budget_in_place_of(self, budget: BudgetRow) -> Budget | None:
        """Return the budget of the target with the same target, unit and period; None if only its id is taken."""
        wanted, after = (budget.scope, budget.session_id, budget.covers, budget.unit, budget.period), None
        while page := await self._target.list_budgets(scope=None, after=after, limit=_BUDGET_PAGE):
            for there in page:
                if (there.scope, there.session_id, there.covers, there.unit, there.period or "") == wanted:
                    return there
            after = page[-1].id
        return None

    async def _copy_documents(self) -> None:
        after: DocumentName | None = None
        while page := await self._source.list_whole_documents(after, _DOCUMENT_PAGE):
            after = page[-1].id
            for row, state in zip(page, await self._target.write_documents(page), strict=True):
                self._tally.note_document(row, state)

    async def _find_extra(self) -> tuple[int, list[str]]:
        """Return how many sessions are in trees that only the target has, and the ids of the first of them."""
        count = 0
        ids: list[str] = []
        after = -1
        while heads := await self._target.list_trees(after, _PAGE):
            after = heads[-1].tree_id
            for head, standing in zip(heads, await self._source.compare_trees(heads), strict=True):
                if standing.state == "missing":
                    count += len(head.sessions)
                    ids += [session.id for session in head.sessions[: LISTED - len(ids)]]
        return count, ids


def _groups(heads: Sequence[TreeHead]) -> Iterator[list[TreeHead]]:
    """Yield trees in their order: large ones alone, small ones together."""
    group: list[TreeHead] = []
    size = 0
    for head in heads:
        if group and (len(group) == _TREES_AT_ONCE or size + head.own_entries > _ENTRIES_AT_ONCE):
            yield group
            group, size = [], 0
        group.append(head)
        size += head.own_entries
    if group:
        yield group


def _counts(info: StoreInfo) -> tuple[int, int, int]:
    return info.sessions, info.entries, info.ledger_rows


def _count_problems(source: StoreInfo, target: StoreInfo, extra: int) -> list[Problem]:
    """Return the counts that do not agree. Further data of the target may only add to them."""
    problems = []
    for noun, ours, theirs in zip(("sessions", "entries", "paid calls"), _counts(source), _counts(target), strict=True):
        may_be_more = extra > 0 or noun == "paid calls"
        if theirs < ours or (theirs > ours and not may_be_more):
            problems.append(Problem("wrong count", noun, f"the source holds {ours}, the target {theirs}"))
    return problems


# Bundles: store files that hold whole trees, with their blobs and their part of the ledger, for somebody else.

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
    """A bundle that was written: its path, contents and size; ``unchecked`` if its store was opened without its key."""

    path: Path
    counts: BundleCounts
    size_bytes: int
    unchecked: bool = False


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
            counts = await _bundled(bundle, len(heads))
        await call(partial(leave_wal, part.path))
        await call(part.publish)
    return BundleReport(target, counts, await call(lambda: target.stat().st_size), store.unchecked)


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


async def _bundled(bundle: Store, trees: int) -> BundleCounts:
    info = await bundle.info()
    return BundleCounts(trees, info.sessions, info.entries, info.ledger_rows)


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
                counts = await _bundled(bundle, trees)
        except UnreadableFile as error:
            why = str(error).replace(str(copy), "it")
            raise UnreadableFile(f"{source.name}: {why}; nothing was imported") from error
    return UnbundleReport(counts, done.trees_copied, done.trees_refreshed, done.trees_unchanged, done.refused)


def _copy_file(source: Path, copy: Path) -> None:
    """Copy a file that may be a bundle. Raises `UnreadableFile` if its header is not that of one."""
    try:
        file = open_if_plain(source)
        if file is None:
            raise UnreadableFile("it is a pipe or a device, not a file; write it into a file first")
        with file:
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


# Rescuing what is readable from a damaged SQLite file.


async def salvage(
    damaged: str | PathLike[str], new: str | PathLike[str], *, limits: Limits | None = None, key: KeyChoice = None
) -> SalvageReport:
    """Write what is readable in a damaged SQLite file into a new store, which verifies clean; return the losses.

    ``damaged``, with the write-ahead log beside it, is never changed; nobody may write to it meanwhile. ``new`` must
    not be there, is readable by its owner only, and appears when it is whole. Entries whose ancestors are lost become
    branches with a root of their own; nothing that is readable is left out. An entry larger than ``limits`` allow
    (None: whatever any store may hold, 512 MiB) is not unpacked, and is a loss. ``key`` is as for `flue_py.open`, and
    the first becomes that of ``new``; without it digests that need one are not compared, and the report says so.
    Raises `InvalidArgument` if ``new`` is there, `NotAStore` where nothing of a store is found, `WrongKey`,
    `FormatTooNew`, `StoreUnavailable`. O(file).
    """
    waiting = waiting_here()
    return await waiting.finish(waiting.call(partial(salvage_file, damaged, new, limits=limits, key=key)))


def salvage_file(
    damaged: str | PathLike[str], new: str | PathLike[str], *, limits: Limits | None = None, key: KeyChoice = None
) -> SalvageReport:
    """Do the same, blocking."""
    from flue_py.db.salvage import rebuild as salvaging  # noqa: PLC0415 - needed seldom, and it imports all that makes a store

    most = LARGEST_ENTRY if limits is None else checked_limits(limits).entry_bytes
    return salvaging.salvage(checked_path(damaged, "damaged"), checked_path(new, "new"), most, Keys(key))
