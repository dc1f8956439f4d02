"""The reference model: what a store must answer to the calls that the state machines make.

Small and obvious before fast: the entries of a tree are a dict with parent links. What a session sees is found by
walking those links, and deletion keeps what the survivors' walks reach. Methods never wait, so each is one transaction
by itself. What is wrong is found before anything is changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from flue_py.core import ledger
from flue_py.core.context import keeping, latest_compaction
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.kinds import COMPACTION, MESSAGE, SUMMARIES
from flue_py.core.sessions import (
    DEFAULT_LIMITS,
    STORED,
    Appended,
    Change,
    Deletion,
    Expected,
    LeafChoice,
    Moved,
    MoveReason,
    Navigated,
    NewSession,
    OnConflict,
    SessionInfo,
    SessionKind,
    Stored,
    TaskLink,
    TaskStatus,
    check_entry_id,
    check_name,
    is_meant,
    leaf_of,
    without_parent,
)
from flue_py.core.usage import MAX_AMOUNT, NO_USAGE, NOTHING_PAID, CallDifference, Paid, PaidCall, SumTooLarge
from flue_py.errors import CallConflict, EntryNotFound, FlueError, InvalidEntry, SessionExists, TaskDepthExceeded
from tests.model.budgets import ModelBudgets, unused
from tests.model.ledger import ModelLedger
from tests.model.rows import Operation, PayerNote, Row, Session, renew_paid_sums, with_paid_sums


class _OnPath(NamedTuple):
    """A path that a compaction is appended to. Nothing is pinned in a model."""

    path: Sequence[Entry]

    def named(self, ids: Iterable[str], /) -> dict[str, Entry]:
        wanted = set(ids)
        return {entry.id: entry for entry in self.path if entry.id in wanted}

    def group_of(self, entry_id: str, /) -> list[str]:
        return [entry_id]


def with_ranges(new: NewEntry, path: Sequence[Entry]) -> NewEntry:
    """Return an entry to be appended to a path: a compaction with the ranges that it keeps of the one before."""
    latest = latest_compaction(path) if new.kind == COMPACTION else None
    if latest is None:
        return new
    return keeping(new, {}, (latest.id, latest.fields), _OnPath(path), len(path))


class StoreModel(ModelLedger, ModelBudgets):
    """Those methods of a `Backend` that do one operation each."""

    # -- sessions ---------------------------------------------------------------------------------------------

    async def create_session(self, new: NewSession) -> SessionInfo:
        return self._told(self._create(new, new.kind, new.scope))

    # -- history ----------------------------------------------------------------------------------------------

    async def append(
        self,
        session_id: str,
        entries: Sequence[NewEntry],
        *,
        expected: Expected = STORED,
        on_conflict: OnConflict = "raise",
    ) -> Appended:
        session = self._session(session_id)
        leaf = session.info.leaf_id
        session.check_revision(expected)
        named = leaf_of(expected)
        below = leaf if isinstance(named, Stored) or on_conflict == "rebase" else named
        on_branch = below != leaf and on_conflict == "branch"
        if on_branch and entries:
            session.check_sees(below)
        elif on_conflict == "raise":
            session.check_seen(expected)
        rows = self._make_rows(session, [with_ranges(new, session.path(below)) for new in entries], below)
        if rows:
            last = leaf if on_branch else rows[-1].entry.id
            self._add_rows(session, entries, rows)
            self._commit(session, "branch" if on_branch else "append", rows, to=last)
            if not on_branch:
                session.do(leaf, last)
        result = _appended(session, entries, rows, on_branch=on_branch and bool(rows))
        return replace(result, parent_id=below if rows else leaf)

    async def import_entries(
        self, session_id: str, entries: Sequence[NewEntry], *, leaf: str | None, expected: Expected = STORED
    ) -> Appended:
        session = self._session(session_id)
        session.check_seen(expected)
        rows = self._make_rows(session, entries, STORED)
        if leaf is not None and all(row.entry.id != leaf for row in rows):
            session.check_sees(leaf)
        before = session.info.leaf_id
        differing: list[CallDifference] = []
        if rows or leaf != before:
            self._add_rows(session, entries, rows, differing)
            self._commit(session, "import", rows, to=leaf)
            session.do(before, leaf)
        return replace(_appended(session, entries, rows, on_branch=False), call_conflicts=tuple(differing))

    async def import_session(self, new: NewSession, entries: Sequence[NewEntry], *, leaf: str | None) -> SessionInfo:
        info = await self.create_session(new)
        try:
            await self.import_entries(info.id, entries, leaf=leaf)
        except FlueError:
            await self.delete_tree(info.id)
            raise
        return self._told(self._session(info.id))

    async def move(self, session_id: str, to: str | None, *, expected: Expected = STORED) -> Moved:
        session = self._session(session_id)
        session.check_seen(expected)
        session.check_sees(to)
        before = session.info.leaf_id
        if to != before:
            self._commit(session, "move", to=to)
            session.do(before, to)
        return Moved(before, to, session.info.revision, "move")

    async def navigate(
        self, session_id: str, to: str | None, *, summary: NewEntry | None = None, expected: Expected = STORED
    ) -> Navigated:
        session = self._session(session_id)
        session.check_seen(expected)
        session.check_sees(to)
        before = session.info.leaf_id
        summary_id = None
        if summary is not None:
            rows = self._make_rows(session, [summary], to)
            summary_id = rows[0].entry.id
            self._add_rows(session, [summary], rows)
            self._commit(session, "move", rows, to=summary_id)
            session.do(before, summary_id)
        elif to != before:
            self._commit(session, "move", to=to)
            session.do(before, to)
        return Navigated(before, summary_id or to, session.info.revision, summary_id)

    async def retract(self, session_id: str, entry_id: str, *, expected: Expected = STORED) -> Moved | None:
        session = self._session(session_id)
        session.check_seen(expected)
        if entry_id != session.info.leaf_id:
            return None
        entry = session.tree[entry_id].entry
        if entry.kind != MESSAGE or session.has_visible_child(entry_id):
            return None
        self._set_retracted(session, entry_id, retracted=True)
        self._commit(session, "retract", to=entry.parent_id)
        session.do(entry_id, entry.parent_id, retracted=entry_id)
        return Moved(entry_id, entry.parent_id, session.info.revision, "retract")

    async def undo(self, session_id: str, *, expected: Expected = STORED) -> Moved | None:
        session = self._session(session_id)
        session.check_seen(expected)
        if not session.done:
            return None
        operation = session.done[-1]
        self._step(session, operation, operation.before, "undo")
        session.undone.append(session.done.pop())
        return Moved(operation.after, operation.before, session.info.revision, "undo")

    async def redo(self, session_id: str, *, expected: Expected = STORED) -> Moved | None:
        session = self._session(session_id)
        session.check_seen(expected)
        if not session.undone:
            return None
        operation = session.undone[-1]
        if operation.retracted is not None and session.has_visible_child(operation.retracted):
            return None  # a branch landed below it since: retracting it now would tear the branch off
        self._step(session, operation, operation.after, "redo")
        session.done.append(session.undone.pop())
        return Moved(operation.before, operation.after, session.info.revision, "redo")

    def _step(self, session: Session, operation: Operation, to: str | None, reason: Literal["undo", "redo"]) -> None:
        if to is not None and to not in session.tree:
            raise EntryNotFound(session.info.id, to)
        if operation.retracted is not None:
            self._set_retracted(session, operation.retracted, retracted=reason == "redo")
        self._commit(session, reason, to=to)

    async def fork(
        self, session_id: str, at: LeafChoice, new: NewSession, *, scope: str | None = None, expected: Expected = STORED
    ) -> SessionInfo:
        session = self._session(session_id)
        session.check_seen(expected)
        leaf = session.info.leaf_id if isinstance(at, Stored) else at
        session.check_sees(leaf)
        fork = self._create(new, "fork", session.info.scope if scope is None else scope, source=session, leaf=leaf)
        for other in self._sessions.values():
            if other.tree is session.tree and other.info.forked_from_session == fork.info.id:
                other.info = replace(other.info, forked_from_session=None)
        return self._told(fork)

    async def record_call(self, session_id: str, call: PaidCall) -> ledger.Recorded:
        session = self._session(session_id)
        now = self._sources.now_us()
        call_id = self._sources.entry_id() if call.call_id is None else call.call_id
        row = ledger.call_row(
            call, scope=session.info.scope, call_id=call_id, session_key=session.number, entry_id=None, at_us=now
        )
        gone = self._replaced(row, call.replaces)
        row = row._replace(entry_id=next((known.entry_id for known in gone if known.entry_id is not None), None))
        calls = self._new_calls(session, [row], None, gone)
        if calls or gone:
            self._pay(session, calls, gone)
            renew_paid_sums(session.tree, self._ledger.values())
            self._commit(session, None)
        known = self._ledger[row.identity]
        return ledger.Recorded(
            row.provider, call_id, bool(calls or gone), known.cost, known.price_source, session.info.revision
        )

    # -- tasks and deletion -----------------------------------------------------------------------------------

    async def create_task(
        self,
        parent_id: str,
        task_id: str,
        new: NewSession,
        *,
        expected: Expected = STORED,
        max_depth: int = DEFAULT_LIMITS.task_depth,
    ) -> SessionInfo:
        parent = self._session(parent_id)
        check_name(task_id, "task_id")
        known = (self._sessions.get(link.child_id) for link in parent.links if link.task_id == task_id)
        child = next((session for session in known if session is not None), None)
        if child is None:
            parent.check_seen(expected)
            child = self._create_child(parent, task_id, new, max_depth)
        return self._told(child)

    def _create_child(self, parent: Session, task_id: str, new: NewSession, max_depth: int) -> Session:
        depth = parent.task_depth + 1
        if depth > max_depth:
            raise TaskDepthExceeded(
                f"session {parent.info.id!r}: Maximum task depth ({max_depth}) exceeded; "
                "start the task from a session further up"
            )
        given = replace(new, metadata_text=without_parent(new.metadata_text))
        child = self._create(given, "task", parent.info.scope)
        child.task_depth = depth
        self._link(parent, child.info.id, task_id, parent.info.leaf_id, "running")
        return child

    async def link_task(
        self, parent_id: str, child_id: str, task_id: str, *, entry_id: str | None = None, expected: Expected = STORED
    ) -> None:
        parent = self._session(parent_id)
        parent.check_seen(expected)
        check_name(child_id, "child id")
        check_name(task_id, "task_id")
        check_name(entry_id, "entry_id")
        self._link(parent, child_id, task_id, entry_id)
        parents = [link for session in self._sessions.values() for link in session.links if link.child_id == child_id]
        if len(parents) == 1:
            self._sink(child_id, parent.task_depth + 1)

    def _sink(self, child_id: str, depth: int) -> None:
        """Note how deep a task is that waited for its parent, and those below it: the shortest way counts."""
        waiting, seen = deque([(child_id, depth)]), set[str]()
        while waiting:
            session_id, depth = waiting.popleft()
            session = self._sessions.get(session_id)
            if session is None or session_id in seen:
                continue
            seen.add(session_id)
            if session.info.kind == "task" and session.task_depth != depth:
                self._commit(session, None)
                session.task_depth = depth
            waiting += [(link.child_id, depth + 1) for link in session.links]

    def _link(
        self, parent: Session, child_id: str, task_id: str, entry_id: str | None, status: TaskStatus | None = None
    ) -> None:
        linked = next((link for link in parent.links if link.child_id == child_id), None)
        if linked is None:
            link = TaskLink(parent.info.id, len(parent.links), task_id, child_id, entry_id, status)
            parent.links.append(link)
        elif linked.entry_id is None and entry_id is not None:
            parent.links[linked.position] = replace(linked, entry_id=entry_id)
        else:
            return
        self._commit(parent, None)

    async def plan_deletion(
        self, session_ids: Sequence[str], scope: str | None, expected: Expected = STORED
    ) -> Deletion:
        (session_id,) = session_ids
        return self._deletion(session_id, scope, expected)[0]

    async def delete_tree(self, session_id: str, *, scope: str | None = None, expected: Expected = STORED) -> Deletion:
        deletion, doomed, gone = self._deletion(session_id, scope, expected)
        self._remove(doomed, gone)
        return deletion

    def _deletion(
        self, session_id: str, scope: str | None, expected: Expected
    ) -> tuple[Deletion, dict[str, Session], list[tuple[dict[str, Row], str]]]:
        root = self._sessions.get(session_id)
        if root is None or not is_meant(session_id, root.number) or scope not in (None, root.info.scope):
            return Deletion(()), {}, []
        root.check_seen(expected)
        doomed: dict[str, Session] = {}
        missing: dict[str, None] = {}
        queue = [root.info.id]
        while queue:
            found = self._sessions.get(current := queue.pop())
            if found is None or scope not in (None, found.info.scope):
                missing[current] = None
            elif current not in doomed:
                doomed[current] = found
                queue += [link.child_id for link in found.links]
        links = tuple((each, link.child_id) for each, session in doomed.items() for link in session.links)
        kept, gone = self._parted(doomed)
        return Deletion(tuple(doomed), tuple(missing), len(gone), kept, links), doomed, gone

    def _parted(self, doomed: dict[str, Session]) -> tuple[int, list[tuple[dict[str, Row], str]]]:
        """Return how many entries the doomed sessions made that survivors hold, and the entries nobody holds."""
        kept: dict[int, set[str]] = {id(session.tree): set() for session in doomed.values()}
        for session in self._sessions.values():
            if session.info.id not in doomed and id(session.tree) in kept:
                session.reach(kept[id(session.tree)])
        trees = {id(session.tree): session.tree for session in doomed.values()}
        gone = [(tree, entry_id) for number, tree in trees.items() for entry_id in tree if entry_id not in kept[number]]
        own = sum(entry_id in kept[id(session.tree)] for session in doomed.values() for entry_id in session.created)
        return own, gone

    def _note_tasks(self, doomed: dict[str, Session]) -> None:
        """Write down whose tasks they were, for what they paid, since the links to them go."""
        first, *_ = doomed
        links = [
            (session_id, link.child_id)
            for session_id, session in doomed.items()
            for link in session.links
            if link.child_id in doomed or link.child_id not in self._sessions
        ]
        names = {note.session_id for note in self._payers.values()}
        owners = ledger.owners_of_tasks(first, links, names)
        for number, note in self._payers.items():
            task = note.session_id if note.task_of is None else note.task_of
            if task in owners and (note.task_of is None or task not in names):
                self._payers[number] = note._replace(task_of=owners[task])

    def _remove(self, doomed: dict[str, Session], gone: list[tuple[dict[str, Row], str]]) -> None:
        self._forget_budgets([note.id for note in self._budgets.values() if note.session_id in doomed])
        self._note_tasks(doomed)
        for tree, entry_id in gone:
            del tree[entry_id]
        for tree in {id(session.tree): session.tree for session in doomed.values()}.values():
            for entry_id, row in tree.items():
                if row.entry.session_id in doomed:
                    tree[entry_id] = replace(row, entry=replace(row.entry, session_id=None))
        for session_id, session in doomed.items():
            del self._sessions[session_id]
            if session.info.key is not None:
                del self._keys[session.info.scope, session.info.key]

    # -- how it is done ---------------------------------------------------------------------------------------

    def _set_retracted(self, session: Session, entry_id: str, *, retracted: bool) -> None:
        if retracted == (entry_id in session.retracted):
            return
        if retracted:
            session.retracted.add(entry_id)
        else:
            session.retracted.discard(entry_id)
        if entry_id in session.created:  # an inherited entry is not among what the session counts
            step = -1 if retracted else 1
            session.info = replace(
                session.info,
                entry_count=session.info.entry_count + step,
                message_count=session.info.message_count + step,
            )

    def _commit(
        self,
        session: Session,
        reason: Literal["append"] | MoveReason | None,
        rows: Sequence[Row] = (),
        *,
        to: LeafChoice = STORED,
    ) -> None:
        """Count one revision, and record the change."""
        now = self._sources.now_us()
        before = session.info.leaf_id
        leaf = before if isinstance(to, Stored) else to
        revision = session.info.revision + 1
        session.info = replace(session.info, revision=revision, leaf_id=leaf, updated_us=now)
        change = Change(session.info.id, revision, reason)
        if reason is not None:
            entries = tuple(row.entry for row in rows)
            at = rows[-1].entry.created_us if reason == "append" else now
            change = replace(change, entries=entries, from_id=before, to_id=leaf, at_us=at)
        session.changes.append(change)

    def _create(
        self, new: NewSession, kind: SessionKind, scope: str, *, source: Session | None = None, leaf: str | None = None
    ) -> Session:
        session_id = new.id
        if session_id is None:
            session_id = unused(self._sources.session_id, self._sessions)
        elif session_id in self._sessions:
            raise SessionExists(session_id)
        if new.key is not None and (scope, new.key) in self._keys:
            raise SessionExists(new.key)
        now = self._sources.now_us()
        created = now if new.created_us is None else new.created_us
        self._sessions_made += 1
        number = self._sessions_made
        info = SessionInfo(
            session_id,
            scope,
            new.key,
            new.title,
            kind,
            forked_from_session=None if source is None else source.info.id,
            forked_from_entry=leaf,
            leaf_id=leaf,
            metadata_text=new.metadata_text,
            cwd=new.cwd,
            config_path=new.config_path,
            created_us=created,
            updated_us=now,
            auto_title=new.auto_title,
            active_us=created,
            session_key=number,
        )
        tree_id, tree = (number, {}) if source is None else (source.tree_id, source.tree)
        session = Session(info, number, tree_id, tree, task_depth=int(kind == "task"))
        self._sessions[session_id] = session
        if new.key is not None:
            self._keys[scope, new.key] = session_id
        return session

    def _make_rows(self, session: Session, entries: Sequence[NewEntry], below: LeafChoice) -> list[Row]:
        """Return the rows of a chain below ``below``, or of entries that bring parents (`STORED`). Adds nothing."""
        now = self._sources.now_us()
        made: dict[str, Row] = {}
        parent_id = None if isinstance(below, Stored) else below
        for ordinal, new in enumerate(entries):
            if isinstance(below, Stored):
                parent_id = new.parent_id
                if parent_id is not None and parent_id not in made:
                    session.check_sees(parent_id)
            entry_id = self._new_entry_id(new, session.tree, made)
            parent = None if parent_id is None else made.get(parent_id) or session.tree[parent_id]
            added = new.usage if new.counted else NO_USAGE
            entry = Entry(
                entry_id,
                parent_id,
                session.info.id,
                new.kind,
                new.role,
                new.source,
                0 if parent is None else parent.entry.depth + 1,
                session.info.revision + 1,
                ordinal,
                now if new.created_us is None else new.created_us,
                new.payload,
                new.extra,
            )
            before = NO_USAGE if parent is None else parent.totals
            made[entry_id] = Row(entry, added, before.plus(added), new.counted, session.number)
            parent_id = entry_id
        for reference in (reference for new in entries for reference in new.references):
            if reference not in made:
                session.check_sees(reference)
        return list(made.values())

    def _new_entry_id(self, new: NewEntry, tree: dict[str, Row], made: dict[str, Row]) -> str:
        if new.id is None:
            return unused(self._sources.entry_id, tree, made)
        check_entry_id(new.id)
        if new.id in tree or new.id in made:
            raise InvalidEntry(f"entry id {new.id!r} is already there; ids are unique within a tree of sessions")
        return new.id

    def _add_rows(
        self,
        session: Session,
        entries: Sequence[NewEntry],
        rows: list[Row],
        differing: list[CallDifference] | None = None,
    ) -> None:
        info = session.info
        reported: list[ledger.CallRow] = []
        gone: list[ledger.CallRow] = []
        for new, row in zip(entries, rows, strict=True):
            for number, call in enumerate(new.calls if new.counted else ()):
                paid = ledger.call_row(
                    call,
                    scope=info.scope,
                    call_id=call.call_id or ledger.default_call_id(row.entry.id, number),
                    session_key=session.number,
                    entry_id=row.entry.id,
                    at_us=row.entry.created_us,
                )
                reported.append(paid)
                if differing is not None:
                    gone += self._replaced(paid, call.replaces)
                elif new.kind in SUMMARIES and call.call_id is not None:
                    known = self._ledger.get(paid.identity)
                    gone += [known] if known and ledger.is_booked_alone(paid, known) and known not in gone else []
        calls = self._new_calls(session, reported, differing, gone)
        rows[:] = with_paid_sums(rows, session.tree, calls.values())
        _check_range((row.paid for row in rows), "path cost")
        self._pay(session, calls, gone)
        newest = max((row.entry.created_us for row in rows), default=info.active_us)
        active = max(newest, info.active_us) if session.created else newest
        session.tree.update((row.entry.id, row) for row in rows)
        if gone:
            renew_paid_sums(session.tree, self._ledger.values())
        session.created += [row.entry.id for row in rows]
        session.info = replace(
            session.info,
            entry_count=info.entry_count + len(rows),
            message_count=info.message_count + sum(row.entry.kind == MESSAGE for row in rows),
            active_us=active,
            first_message=next(
                (text for text in (info.first_message, *(new.preview for new in entries)) if text is not None), None
            ),
        )

    def _replaced(self, call: ledger.CallRow, names: Sequence[str]) -> list[ledger.CallRow]:
        return ledger.replaced_by(call, names, lambda name: self._ledger.get((call.scope, call.provider, name)))

    def _new_calls(
        self,
        session: Session,
        reported: Sequence[ledger.CallRow],
        differing: list[CallDifference] | None,
        gone: Sequence[ledger.CallRow] = (),
    ) -> dict[tuple[str, str, str], ledger.CallRow]:
        """Return the calls that are not in the ledger, each once, by what tells them apart. Changes nothing.

        One that is there with other numbers is a `CallConflict`, or is added to ``differing``. Those of ``gone`` will
        be taken out before.
        """
        calls: dict[tuple[str, str, str], ledger.CallRow] = {}
        left = {call.identity for call in gone}
        for call in reported:
            known = None if call.identity in left else self._ledger.get(call.identity)
            known = known or calls.setdefault(call.identity, call)
            others = ledger.differences(known, call)
            if others and differing is None:
                raise CallConflict(call.provider, call.call_id, others)
            if others and differing is not None:
                differing.append(CallDifference(call.provider, call.call_id, others))
        info, spent = session.info, _paid_by(calls.values()).minus(_paid_by(gone))
        _check_range([(info.spent_tokens + spent.tokens, info.spent_picodollars + spent.picodollars)], "session spent")
        return calls

    def _pay(
        self,
        session: Session,
        calls: Mapping[tuple[str, str, str], ledger.CallRow],
        gone: Sequence[ledger.CallRow] = (),
    ) -> None:
        """Write new calls into the ledger, and take out those that are ``gone``."""
        info, spent = session.info, _paid_by(calls.values()).minus(_paid_by(gone))
        for call in gone:
            self._ledger.pop(call.identity, None)
        self._ledger.update(calls)
        if calls:
            self._payers[session.number] = PayerNote(info.id, session.tree_id, project=info.cwd or None)
        session.info = replace(
            info,
            spent_tokens=info.spent_tokens + spent.tokens,
            spent_picodollars=info.spent_picodollars + spent.picodollars,
            unpriced_calls=info.unpriced_calls + spent.unpriced_calls,
            unknown_calls=info.unknown_calls + spent.unknown_calls,
        )


def _appended(session: Session, entries: Sequence[NewEntry], rows: list[Row], *, on_branch: bool) -> Appended:
    return Appended(
        tuple(row.entry.id for row in rows),
        session.info.leaf_id,
        session.info.revision,
        on_branch=on_branch,
        surrogates_replaced=sum(new.surrogates_replaced for new in entries),
    )


def _paid_by(calls: Iterable[ledger.CallRow]) -> Paid:
    total = NOTHING_PAID
    for call in calls:
        total = total.plus(call.paid)
    return total


def _check_range(sums: Iterable[Sequence[int]], what: str) -> None:
    if any(max(each) > MAX_AMOUNT for each in sums):
        raise SumTooLarge(f"usage: what the {what} would exceed {MAX_AMOUNT}; check the reported numbers")
