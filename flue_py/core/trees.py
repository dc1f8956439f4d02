"""Whole trees, as they cross from one store to another, and whether a store may take one.

A tree's rows cross as they are stored: payloads packed or apart, totals and digests as they were written. Only the
internal keys (of sessions, and of the tree) mean nothing elsewhere: a store that takes a tree gives it its own keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Literal, TypeAlias

from flue_py.core import ledger
from flue_py.core.chain import UNKEYED, Chain
from flue_py.core.json import Frozen, NamedTuple
from flue_py.errors import SessionExists

# ---------------------------------------------------------------------------------------------------------------------
# Lanes: how a tree of entries is laid out so that a path is a handful of ranges, and its rest after a deletion.
#
# A lane is a run of entries in which each is the child of the one before; it forks from a place in its parent lane.
# It is owned by the session that may grow it. Depth rises by one from parent to child, so a lane's own fork depth
# is always above its parent's.

LaneId = tuple[int, int]


class Lane(NamedTuple):
    """A lane of a tree: who owns it, and after which place of which lane it begins (None, -1: at a root)."""

    tree_id: int
    lane_id: int
    owner: int
    parent_lane: int | None
    fork_depth: int


class Hold(NamedTuple):
    """A surviving session holds a lane up to a depth: by its leaf, or by its fork point."""

    tree_id: int
    lane_id: int
    depth: int
    holder: int


class LaneFate(Frozen):
    """The fate of a lane whose owner is deleted: kept up to ``keep_depth`` for ``heir``, or dropped (None).

    ``keep_depth`` is the lane's fork depth where nothing is kept.
    """

    lane: Lane
    keep_depth: int
    heir: int | None


def plan_lane_deletion(doomed: Iterable[Lane], children: Iterable[Lane], holds: Iterable[Hold]) -> list[LaneFate]:
    """Return the fate of each lane whose owner is deleted.

    ``children`` are the lanes that fork from a doomed one (doomed or not), ``holds`` those of surviving sessions.
    A lane keeps its prefix up to the deepest point that something surviving holds, for that deepest holder: with
    any other heir, a later deletion would keep too much or too little. Lanes are judged children first, because
    the kept part of a child holds its parent. O(lanes), plus the sort.
    """
    lanes = {(lane.tree_id, lane.lane_id): lane for lane in doomed}
    holders: dict[LaneId, tuple[int, int]] = {}

    def hold(place: LaneId, depth: int, holder: int) -> None:
        if place in lanes and (place not in holders or depth > holders[place][0]):
            holders[place] = (depth, holder)

    for item in holds:
        hold((item.tree_id, item.lane_id), item.depth, item.holder)
    for child in children:
        if (child.tree_id, child.lane_id) not in lanes and child.parent_lane is not None:
            hold((child.tree_id, child.parent_lane), child.fork_depth, child.owner)
    fates = []
    for place, lane in sorted(lanes.items(), key=lambda item: item[1].fork_depth, reverse=True):
        if place not in holders:
            fates.append(LaneFate(lane, lane.fork_depth, None))
            continue
        depth, heir = holders[place]
        fates.append(LaneFate(lane, depth, heir))
        if lane.parent_lane is not None:
            hold((lane.tree_id, lane.parent_lane), lane.fork_depth, heir)
    return fates


# ---------------------------------------------------------------------------------------------------------------------
# The reports of a backup and of a salvage: the losses and the changes.


class BackupReport(Frozen):
    """A copy of a store that was made: where it is, its size, and how much it holds.

    ``is_verified`` says whether `verify` was run on the copy; then it found nothing. ``unchecked`` says that it
    compared no digest: the store was opened without its key.
    """

    path: str
    size_bytes: int
    sessions: int
    entries: int
    is_verified: bool = True
    unchecked: bool = False


class Loss(Frozen):
    """One thing that a rescue lost or had to change.

    ``what`` is one of ``entry``, ``session``, ``leaf``, ``fork point``, ``mark``, ``move``, ``edit``, ``request``,
    ``link``, ``call``, ``budget``, ``reservation``, ``document`` and ``page``. ``session_id`` and ``entry_id`` are None
    if they do not apply or are lost, too.
    """

    what: str
    session_id: str | None
    entry_id: str | None
    detail: str

    def __str__(self) -> str:
        named = [f"session {self.session_id}"] if self.session_id is not None else []
        named += [f"entry {self.entry_id}"] if self.entry_id is not None else []
        return f"{self.what}: {', '.join(named)}{': ' if named else ''}{self.detail}"


class SalvageReport(Frozen):
    """The result of a rescue: the rows of a damaged database that were written into a new one.

    ``losses`` are not in the new store; ``changes`` are in it, but not as they were: a branch whose beginning is lost,
    a leaf that went back to an entry that is left, a session of which only the entries are left. ``damaged_pages`` are
    the numbers, from 1, of the pages that could not be read whole. ``unchecked`` says that digests were not compared:
    the key of the damaged store was not given.
    """

    sessions: int
    entries: int
    calls: int
    damaged_pages: tuple[int, ...] = ()
    losses: tuple[Loss, ...] = ()
    changes: tuple[Loss, ...] = ()
    documents: int = 0
    unchecked: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether everything was rescued and is as it was."""
        return not self.losses and not self.changes

    @property
    def lost_entry_ids(self) -> tuple[str, ...]:
        """The ids of the entries that are lost, as far as they are known."""
        return tuple(loss.entry_id for loss in self.losses if loss.what == "entry" and loss.entry_id is not None)

    @property
    def lost_session_ids(self) -> tuple[str, ...]:
        """The ids of the sessions that are lost, as far as they are known."""
        return tuple(loss.session_id for loss in self.losses if loss.what == "session" and loss.session_id is not None)


# ---------------------------------------------------------------------------------------------------------------------
# Whole trees, as they cross from one store to another, and whether a store may take one.
#
# A tree's rows cross as they are stored: payloads packed or apart, totals and digests as they were written. Only the
# internal keys (of sessions, and of the tree) mean nothing elsewhere: a store that takes a tree gives it its own keys.


class SessionHead(NamedTuple):
    """The columns that tell the states of a session apart: every change but a deletion counts its revision."""

    id: str
    scope: str
    key: str | None
    kind: str
    leaf: str | None
    revision: int
    entry_count: int
    created_at: int
    updated_at: int


class TreeHead(Frozen):
    """A tree as its sessions' rows tell of it, without its history. ``tree_id`` is good in its own store only."""

    tree_id: int
    sessions: tuple[SessionHead, ...]

    @property
    def fingerprint(self) -> bytes:
        """16 bytes that are the same wherever the tree is in the same state, and else are others."""
        text = json.dumps(sorted(self.sessions), ensure_ascii=True, separators=(",", ":"))
        return blake2b(text.encode(), digest_size=16).digest()

    @property
    def own_entries(self) -> int:
        """How many entries its sessions count as theirs: about how large the tree is."""
        return sum(session.entry_count for session in self.sessions)


class TreeCopy(Frozen):
    """Everything a store holds of one tree at one moment, and the calls that its sessions paid for.

    ``payers`` name the sessions of ``calls``; one of them may be gone while entries it made are still there.
    ``entries`` are ordered by lane and depth, with digests of ``chain``; those in ``masked`` have other texts
    since. ``epoch`` is the store's.
    """

    tree_id: int
    epoch: int
    sessions: Sequence[ledger.SessionRow]
    lanes: Sequence[ledger.LaneRow]
    entries: Sequence[ledger.EntryRow]
    blobs: Sequence[ledger.BlobRow]
    links: Sequence[ledger.LinkRow]
    moves: Sequence[ledger.MoveRow]
    requests: Sequence[ledger.RequestRow]
    marks: Sequence[ledger.MarkRow]
    calls: Sequence[ledger.CallRow]
    payers: Sequence[ledger.Payer]
    edits: Sequence[ledger.EditRow] = ()
    attachments: Sequence[ledger.AttachmentRow] = ()
    chain: Chain = UNKEYED
    masked: Collection[str] = ()

    @property
    def head(self) -> TreeHead:
        """The tree without its history."""
        return TreeHead(self.tree_id, tuple(head_of(session) for session in self.sessions))

    @property
    def stored_bytes(self) -> int:
        """How many bytes of payload there are, as they are stored."""
        return sum(entry.stored_bytes for entry in self.entries) + sum(len(blob.data) for blob in self.blobs)

    def all_keys(self) -> list[int]:
        """Return every internal key that its rows name, in order: the tree's, and those of sessions there or gone."""
        keys = {self.tree_id, *(session.session_key for session in self.sessions)}
        keys.update(entry.session_key for entry in self.entries)
        keys.update(payer.session_key for payer in self.payers)
        return sorted(keys)


class GonePayer(Frozen):
    """The calls of a session that is gone. ``member`` is a session of its tree, where one is still there."""

    payer: ledger.Payer
    tree_id: int
    member: str | None
    calls: Sequence[ledger.CallRow]


def head_of(session: ledger.SessionRow) -> SessionHead:
    """Return a session's row without the columns that its revision covers."""
    return SessionHead._make(getattr(session, name) for name in SessionHead._fields)


# -- whether a store may take a tree ----------------------------------------------------------------------------------

TreeState: TypeAlias = Literal["missing", "same", "behind", "refused"]


class FoundTree(Frozen):
    """A tree of the target in which a session of the source's tree was found.

    ``stamps`` are those of its sessions: the fingerprint of the tree as it was when it was copied there; None for a
    session that was made in another way.
    """

    head: TreeHead
    stamps: frozenset[bytes | None]


class Standing(Frozen):
    """How a target stands to a tree of the source.

    ``missing``: it has nothing of it. ``same``: it has it as it is. ``behind``: it has a copy of an earlier state,
    which was not written to; ``tree_id`` is that copy's, ``removed`` are sessions that the source has deleted since.
    ``refused``: it has something else, as ``refusal`` says.
    """

    state: TreeState
    tree_id: int | None = None
    removed: tuple[str, ...] = ()
    refusal: SessionExists | None = None


def standing_of(head: TreeHead, found: Sequence[FoundTree], holder_of: Callable[[str, str], str | None]) -> Standing:
    """Return how a target stands to a tree.

    ``found`` are its trees that have sessions of the same ids; ``holder_of`` returns the session of the target that
    has a key, given the scope and the key.
    """
    if len(found) == 1 and found[0].head.fingerprint == head.fingerprint:
        return Standing("same", found[0].head.tree_id)
    refusal = _refusal(head, found)
    there = {session.id for tree in found for session in tree.head.sessions}
    for session in head.sessions:
        holder = None if refusal is not None or session.key is None else holder_of(session.scope, session.key)
        if holder is not None and holder not in there:
            refusal = SessionExists(
                session.id,
                detail=f"session {session.id!r}: its key {session.key!r} belongs to session {holder!r} in the target; "
                "delete that one there, then copy again",
            )
    if refusal is not None:
        return Standing("refused", refusal=refusal)
    if not found:
        return Standing("missing")
    ids = {session.id for session in head.sessions}
    removed = tuple(session.id for session in found[0].head.sessions if session.id not in ids)
    return Standing("behind", found[0].head.tree_id, removed)


def _refusal(head: TreeHead, found: Sequence[FoundTree]) -> SessionExists | None:
    ids = {session.id: session for session in head.sessions}
    for tree in found:
        common = next(session for session in tree.head.sessions if session.id in ids)
        if tree.stamps == {None}:
            return _refused(common.id, "is in the target already, and is not a copy of this one")
        if tree.stamps != {tree.head.fingerprint}:
            return _refused(common.id, "was copied before, and its copy has been changed in the target since")
        for theirs in tree.head.sessions:
            ours = ids.get(theirs.id)
            if ours is not None and ours.created_at != theirs.created_at:
                return _refused(theirs.id, "is in the target already, and is another session of that id")
            if ours is not None and ours.revision < theirs.revision:
                return _refused(theirs.id, "is at a later revision in the target than in the source")
    if len(found) > 1:
        return _refused(head.sessions[0].id, "belongs to a tree that is several trees in the target")
    return None


def _refused(session_id: str, reason: str) -> SessionExists:
    return SessionExists(session_id, detail=f"session {session_id!r} {reason}; delete it there, then copy again")


def check_is_earlier(head: TreeHead, copy: TreeCopy) -> None:
    """Raise `SessionExists` if a copy that is behind is not an earlier state of the tree.

    The leaf of a session exists as long as the session does: if it is missing, the source was set back, and
    has gone on in another way.
    """
    sessions = {session.id for session in copy.sessions}
    leaves = {session.leaf: session.id for session in head.sessions if session.id in sessions}
    missing = leaves.keys() - {None, *(entry.id for entry in copy.entries)}
    for leaf in missing:
        raise _refused(leaves[leaf], f"has entry {leaf!r} in the target, which the source does not have")


def call_refused(call: ledger.CallRow, payer: str, owner: str) -> SessionExists:
    """Return the error for a paid call that another session of the target has reported before."""
    return SessionExists(
        payer,
        detail=f"session {payer!r}: its paid call {call.call_id!r} is in the target's ledger as one of session "
        f"{owner!r}, and would be paid twice; copy into another store",
    )
