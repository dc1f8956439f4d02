"""Whole trees into and out of the store in memory, which has parent links, logs and stacks where others have rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence
from itertools import islice
from operator import attrgetter

from flue_py.core.trees import (
    BlobRow,
    FoundTree,
    GonePayer,
    LinkRow,
    Payer,
    Standing,
    TreeCopy,
    TreeHead,
    call_refused,
    check_is_earlier,
    standing_of,
)
from flue_py.store.memory.budget_copying import MemoryBudgetCopying
from flue_py.store.memory.lanes import lay_out
from flue_py.store.memory.ledger import MemoryLedger
from flue_py.store.memory.model import PayerNote, Session, renew_paid_sums
from flue_py.store.memory.rows import (
    Rebuilding,
    entry_row,
    mark_rows,
    move_rows,
    request_rows,
    session_row,
    tree_head,
)
from flue_py.store.schema.payloads import pack


class MemoryCopying(MemoryLedger, MemoryBudgetCopying):
    """What `Backend` says of moving house."""

    def _new_number(self) -> int:
        self._sessions_made += 1
        return self._sessions_made

    # -- reading ----------------------------------------------------------------------------------------------

    async def list_trees(self, after: int, limit: int) -> list[TreeHead]:
        self._check_open()
        trees: dict[int, list[Session]] = defaultdict(list)
        for session in sorted(self._sessions.values(), key=attrgetter("tree_id", "number")):
            if session.tree_id > after:
                trees[session.tree_id].append(session)
        return [tree_head(sessions) for sessions in islice(trees.values(), limit)]

    def _members(self, tree_id: int) -> list[Session]:
        """Return the sessions of a tree, in the order they were made."""
        return sorted((each for each in self._sessions.values() if each.tree_id == tree_id), key=attrgetter("number"))

    async def read_whole_tree(self, tree_id: int) -> TreeCopy | None:
        self._check_open()
        sessions = self._members(tree_id)
        if not sessions:
            return None
        tree = sessions[0].tree
        lanes, places = lay_out(tree, sessions)
        entries, blobs = [], {}
        for entry_id in sorted(tree, key=places.__getitem__):
            stored = pack(tree[entry_id].entry.payload)
            entries.append(entry_row(tree[entry_id], places[entry_id].lane_id, *stored[:3]))
            if stored.blob is not None and stored.blob_data is not None:
                size = len(tree[entry_id].entry.payload.encode())
                blobs[stored.blob] = BlobRow(stored.blob, size, stored.blob_data)
        involved = {session.number for session in sessions} | {row.creator for row in tree.values()}
        return TreeCopy(
            tree_id,
            0,
            [session_row(session) for session in sessions],
            lanes,
            entries,
            list(blobs.values()),
            [
                LinkRow(session.number, link.position, link.task_id, link.child_id, link.entry_id)
                for session in sessions
                for link in session.links
            ],
            [row for session in sessions for row in move_rows(session)],
            [row for session in sessions for row in request_rows(session)],
            [row for session in sessions for row in mark_rows(session)],
            [call for call in self._ledger.values() if call.session_key in involved],
            [self._payer(number) for number in sorted(involved & self._payers.keys())],
            [edit for session in sessions for edit in session.edits],
        )

    def _payer(self, number: int) -> Payer:
        note = self._payers[number]
        return Payer(number, note.session_id, note.task_of, note.project)

    async def list_gone_payers(self, after: int, limit: int) -> list[GonePayer]:
        self._check_open()
        members = {session.tree_id: session.info.id for session in self._sessions.values()}
        numbers = {session.number for session in self._sessions.values()}
        gone = sorted(number for number in self._payers.keys() - numbers if number > after)
        found = []
        for number in gone[:limit]:
            tree_id = self._payers[number].tree_id
            calls = sorted(call for call in self._ledger.values() if call.session_key == number)
            found.append(GonePayer(self._payer(number), tree_id, members.get(tree_id), calls))
        return found

    # -- comparing --------------------------------------------------------------------------------------------

    async def compare_trees(self, heads: Sequence[TreeHead]) -> list[Standing]:
        self._check_open()
        return [self._compare(head) for head in heads]

    def _compare(self, head: TreeHead) -> Standing:
        return standing_of(head, self._find(head), lambda scope, key: self._keys.get((scope, key)))

    def _find(self, head: TreeHead) -> list[FoundTree]:
        there = [self._sessions[session.id].tree_id for session in head.sessions if session.id in self._sessions]
        found = []
        for tree_id in dict.fromkeys(there):
            sessions = self._members(tree_id)
            found.append(FoundTree(tree_head(sessions), frozenset(session.stamp for session in sessions)))
        return found

    # -- writing ----------------------------------------------------------------------------------------------

    async def write_whole_tree(self, copy: TreeCopy) -> Standing:
        self._check_open()
        found = self._find(copy.head)
        standing = self._compare(copy.head)
        if standing.refusal is not None:
            raise standing.refusal
        if standing.state == "same":
            return standing
        if standing.tree_id is not None:
            check_is_earlier(found[0].head, copy)
        is_again = self._check_calls(copy, {session.id for tree in found for session in tree.head.sessions})
        keys = self._keys_here(copy, standing)
        rebuilt = Rebuilding(copy, keys).sessions()
        for session_id in standing.removed:
            self._forget(session_id)
        for session in rebuilt:
            self._sessions[session.info.id] = session
            if session.info.key is not None:
                self._keys[session.info.scope, session.info.key] = session.info.id
        self._payers.update(
            (keys[payer.session_key], PayerNote(payer.session_id, keys[copy.tree_id], *payer[2:]))
            for payer in copy.payers
        )
        live = {session.number for session in rebuilt}
        self._ledger = {name: call for name, call in self._ledger.items() if call.session_key not in live}
        for call in copy.calls:
            self._ledger[call.identity] = call._replace(session_key=keys[call.session_key])
        for tree_id in {note.tree_id for note in self._payers.values()} if is_again else {keys[copy.tree_id]}:
            self._renew_paid_sums(tree_id)
        if is_again:
            paid = {call.session_key for call in self._ledger.values()}
            self._payers = {number: note for number, note in self._payers.items() if number in paid}
        for session_id in (*standing.removed, *(session.info.id for session in rebuilt)):
            self._notify(session_id)
        return standing

    def _renew_paid_sums(self, tree_id: int) -> None:
        """Derive anew what was paid on the paths of a tree: calls came into the ledger, or went to another session."""
        for tree in [session.tree for session in self._members(tree_id)][:1]:
            renew_paid_sums(tree, self._ledger.values())

    def _check_calls(self, copy: TreeCopy, replaced: Container[str]) -> bool:
        """Return whether some of the calls are in the ledger already, by the copy or by sessions that are gone.

        Raises `SessionExists` where a session that stays as it is has reported one of them.
        """
        names = {payer.session_key: payer.session_id for payer in copy.payers}
        is_again = False
        for call in copy.calls:
            there = self._ledger.get(call.identity)
            if there is None:
                continue
            is_again = True
            owner = self._payers[there.session_key].session_id
            session = None if owner in replaced else self._sessions.get(owner)
            if owner != names[call.session_key] or (session is not None and session.number == there.session_key):
                raise call_refused(call, names[call.session_key], owner)
        return is_again

    def _keys_here(self, copy: TreeCopy, standing: Standing) -> dict[int, int]:
        """Return this store's numbers for the copy's keys: what it has already keeps its number."""
        keys = {
            session.session_key: self._sessions[session.id].number
            for session in copy.sessions
            if session.id in self._sessions
        }
        if standing.tree_id is not None:
            keys[copy.tree_id] = standing.tree_id
        for key in copy.all_keys():
            if key not in keys:
                keys[key] = self._new_number()
        return keys

    def _forget(self, session_id: str) -> None:
        self._forget_budgets([note.id for note in self._budgets.values() if note.session_id == session_id])
        info = self._sessions.pop(session_id).info
        if info.key is not None:
            self._keys.pop((info.scope, info.key), None)

    async def write_gone_payers(self, payers: Sequence[GonePayer]) -> int:
        self._check_open()
        written = 0
        trees: dict[int, int] = {}
        numbers = {session.number for session in self._sessions.values()}
        for gone in payers:
            missing = [call for call in gone.calls if call.identity not in self._ledger]
            there = [self._ledger[call.identity].session_key for call in gone.calls if call.identity in self._ledger]
            known = [
                number
                for number in there
                if number not in numbers and self._payers[number].session_id == gone.payer.session_id
            ]
            if known and gone.payer.task_of is not None:
                self._payers[known[0]] = self._payers[known[0]]._replace(task_of=gone.payer.task_of)
            if not missing:
                continue
            number = known[0] if known else self._new_number()
            member = None if gone.member is None else self._sessions.get(gone.member)
            tree_id = trees.get(gone.tree_id) or (number if member is None else member.tree_id)
            trees[gone.tree_id] = tree_id
            self._payers.setdefault(number, PayerNote(gone.payer.session_id, tree_id, *gone.payer[2:]))
            self._ledger.update((call.identity, call._replace(session_key=number)) for call in missing)
            written += len(missing)
        return written
