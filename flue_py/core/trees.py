"""Whole trees, as they cross from one store to another, whether a store may take one, and the entries of imports.

A tree's rows cross as they are stored: payloads packed or apart, totals and digests as they were written. Only the
internal keys (of sessions, and of the tree) mean nothing elsewhere: a store that takes a tree gives it its own keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Literal, TypeAlias

from msgspec.structs import replace

from flue_py.core import ledger
from flue_py.core.chain import UNKEYED, Chain
from flue_py.core.entries import NewEntry, checked_kind, checked_source, derived_from_payload, is_moment
from flue_py.core.json import Frozen, JsonValue, NamedTuple, decode_json
from flue_py.core.kinds import BUILT_KINDS, MESSAGE
from flue_py.core.sessions import NewSession, check_label, is_storable
from flue_py.core.usage import MAX_AMOUNT, NO_USAGE, PARTS, PaidCall, UsageTotals, is_whole
from flue_py.errors import CorruptStore, FixTheCall, InvalidArgument, InvalidEntry, SessionExists, shown

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


# ---------------------------------------------------------------------------------------------------------------------
# The sessions and entries of an import, checked before they reach a store: they may have been changed since they were
# built.

_WHOLE_NUMBERS = {int}
_BUILDERS = "make it with NewEntry.message(), NewEntry.custom() or another builder of the class"


def check_imported_session(new: NewSession) -> None:
    """Raise `InvalidArgument` if it is not a `NewSession`, `InvalidEntry` if its metadata is not an object.

    O(metadata).
    """
    if not isinstance(new, NewSession):
        raise InvalidArgument(f"new: should be a NewSession, not {type(new).__name__}")
    if not isinstance(_decoded(new.metadata_text, "metadata_text"), dict):
        raise InvalidEntry(f"metadata_text: {shown(new.metadata_text)} is not the text of a JSON object")


class CheckedEntries(tuple[NewEntry, ...]):
    """Entries that were checked, or that our own readers have just made: what they derive of a payload is right."""

    __slots__ = ()


def checked_imported_entries(entries: Sequence[NewEntry], program: str | None = None) -> CheckedEntries:
    """Return entries with the usage and the preview of their payloads, and with the calls of that usage.

    An entry that counts and names no call gets the one that its usage is of; calls that it names stay, for they may
    say more than the payload. A call that names no agent is of ``program``. Ids and parents are checked where they are
    stored. Raises `InvalidArgument` if it is not a sequence, `InvalidEntry` for one that no builder made, and for
    one that no store can hold. O(size), of `CheckedEntries` O(entries).
    """
    if isinstance(entries, CheckedEntries):
        return CheckedEntries([_of_program(entry, program) if entry.calls else entry for entry in entries])
    if isinstance(entries, (str, bytes)) or not isinstance(entries, Sequence):
        raise InvalidArgument(f"entries: should be a sequence of NewEntry, not {type(entries).__name__}")
    checked = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, NewEntry):
            raise InvalidEntry(f"entry {number}: should be a NewEntry, not {type(entry).__name__}; {_BUILDERS}")
        if not entry.built:
            raise InvalidEntry(f"entry {number}: {shown(entry.id)} was not made by a builder of NewEntry; {_BUILDERS}")
        try:
            checked.append(_of_program(_checked(entry), program))
        except FixTheCall as error:
            raise InvalidEntry(f"entry {number} of {len(entries)}: {error}") from error
    return CheckedEntries(checked)


def _of_program(entry: NewEntry, program: str | None) -> NewEntry:
    if program is None or not entry.calls:
        return entry
    calls = [replace(call, agent=program) if call.agent is None else call for call in entry.calls]
    return replace(entry, calls=tuple(calls))


def _checked(entry: NewEntry) -> NewEntry:
    checked_kind(entry.kind)
    checked_source(entry.source)
    check_label(entry.role, "role")
    payload = _decoded(entry.payload, "payload")
    if entry.kind in BUILT_KINDS and not isinstance(payload, dict):
        raise InvalidEntry(f"payload: {shown(entry.payload)} is not the JSON object that a {entry.kind} is")
    if entry.extra is not None and not isinstance(_decoded(entry.extra, "extra"), dict):
        raise InvalidEntry(f"extra: {shown(entry.extra)} is not the text of a JSON object")
    role = payload.get("role") if entry.kind == MESSAGE and isinstance(payload, dict) else None
    if entry.role != role or (entry.kind == MESSAGE and role is None):
        raise InvalidEntry(f"role: {shown(entry.role)} is not the role of the message, which is {shown(role)}")
    if entry.created_us is not None and not is_moment(entry.created_us):
        raise InvalidEntry(f"created_us: {shown(entry.created_us)} is not a time in microseconds since 1970 UTC")
    for name, text in (("id", entry.id), ("parent_id", entry.parent_id)):
        if text is not None and not isinstance(text, str):
            raise InvalidEntry(f"{name}: should be a string, not {type(text).__name__}")
    for name in ("counted", "unpaid"):
        if not isinstance(getattr(entry, name), bool):
            raise InvalidEntry(f"{name}: should be true or false, not {type(getattr(entry, name)).__name__}")
    _check_numbers(entry)
    return derived_from_payload(entry, payload) if isinstance(payload, dict) else entry


def _check_numbers(entry: NewEntry) -> None:
    if entry.usage is not NO_USAGE:
        _check_usage(entry.usage, "usage")
    if entry.calls != ():
        _check_calls(entry)
    for name, texts in (("references", entry.references), ("oddities", entry.oddities)):
        if texts != () and not (isinstance(texts, tuple) and all(isinstance(text, str) for text in texts)):
            raise InvalidEntry(f"{name}: should be a tuple of strings")
    if not is_whole(entry.surrogates_replaced, 0, MAX_AMOUNT):
        raise InvalidEntry(f"surrogates_replaced: {shown(entry.surrogates_replaced)} is not a count")


def check_imported_call(call: PaidCall) -> None:
    """Raise `InvalidEntry` if it is not a paid call that a store can hold. O(1)."""
    if not isinstance(call, PaidCall):
        raise InvalidEntry(f"call: should be a PaidCall, not {type(call).__name__}")
    _check_usage(call.usage, "call.usage")
    _check_call(call, "call")


def _check_calls(entry: NewEntry) -> None:
    if not isinstance(entry.calls, tuple) or not all(isinstance(call, PaidCall) for call in entry.calls):
        raise InvalidEntry("calls: should be a tuple of PaidCall")
    for number, call in enumerate(entry.calls):
        if call.usage is not entry.usage:
            _check_usage(call.usage, f"calls[{number}].usage")
        _check_call(call, f"calls[{number}]")


def _check_call(call: PaidCall, where: str) -> None:
    _check_parts(call, where)
    for name in ("provider", "model", "call_id", "purpose", "outcome", "price_source", "agent"):
        text = getattr(call, name)
        if type(text) is str and text.isascii() and "\0" not in text:
            continue
        if text is None and name not in ("call_id", "outcome", "price_source", "agent"):
            raise InvalidEntry(f"{where}.{name}: should be a string, not None")
        check_label(text, f"{where}.{name}")
    if call.replaces != () and not (
        isinstance(call.replaces, tuple) and all(isinstance(name, str) and is_storable(name) for name in call.replaces)
    ):
        raise InvalidEntry(f"{where}.replaces: should be a tuple of ids of calls")


def _check_parts(call: PaidCall, where: str) -> None:
    for name, most in (("cache_write_1h", call.usage.cache_write), ("reasoning", call.usage.output)):
        tokens = getattr(call, name)
        if type(tokens) is not int or not 0 <= tokens <= most:
            raise InvalidEntry(f"{where}.{name}: {shown(tokens)} is not a whole number from 0 to {most}")
    if type(call.is_unknown) is not bool or (call.is_unknown and (any(call.usage) or call.cost is not None)):
        raise InvalidEntry(f"{where}.is_unknown: should be a bool, and True only if there are no numbers")
    if not isinstance(call.told, frozenset) or not call.told.issubset(PARTS):
        raise InvalidEntry(f"{where}.told: should be a frozenset of {', '.join(PARTS)}")
    if call.cost is not None and not (type(call.cost) is int and 0 <= call.cost <= MAX_AMOUNT):
        raise InvalidEntry(f"{where}.cost: {shown(call.cost)} is not a whole number of picodollars")
    if call.at_us is not None and not is_moment(call.at_us):
        raise InvalidEntry(f"{where}.at_us: {shown(call.at_us)} is not a time in microseconds since 1970 UTC")


def _check_usage(usage: UsageTotals, where: str) -> None:
    is_fine = isinstance(usage, UsageTotals) and set(map(type, usage)) == _WHOLE_NUMBERS
    if not is_fine or min(usage) < 0 or max(usage) > MAX_AMOUNT:
        raise InvalidEntry(f"{where}: {shown(usage)} is not ten whole numbers from 0 to {MAX_AMOUNT}")


def _decoded(text: object, where: str) -> JsonValue:
    """Return the value of a JSON text that can be stored. Raises `InvalidEntry` if it is not JSON."""
    try:
        if isinstance(text, str) and "\0" not in text and text.encode():
            return decode_json(text)
    except (CorruptStore, UnicodeEncodeError):
        pass
    raise InvalidEntry(f"{where}: {shown(text)} is not JSON text")
