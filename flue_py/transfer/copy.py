"""Copying all trees of a store to another one, while both are in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from os.path import samefile
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import asdict

from flue_py.core.json import Frozen
from flue_py.core.ledger import Budget, BudgetRow, BudgetState
from flue_py.core.sessions import LARGEST_ENTRY, DocumentName, DocumentRow, DocumentState, Limits, Problem, StoreInfo
from flue_py.core.trees import SalvageReport, Standing, TreeCopy, TreeHead
from flue_py.db.backend import Backend
from flue_py.db.keys import KeyChoice, Keys
from flue_py.db.runner import waiting_here
from flue_py.errors import InvalidArgument, SessionExists
from flue_py.sessions.handle import checked_flag, checked_function, checked_limits, checked_path
from flue_py.sessions.store import Store

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
