"""Rows as they are stored and as they cross to another store, a named tuple for each table.

The fields are named and ordered as the columns that `docs/format.md` describes.
"""

from __future__ import annotations

from typing import NamedTuple

from flue_py.core.usage import Paid


class SessionRow(NamedTuple):
    """A session."""

    session_key: int
    id: str
    scope: str
    key: str | None
    title: str | None
    kind: str
    task_depth: int
    forked_from_session: str | None
    forked_from_entry: str | None
    leaf: str | None
    revision: int
    metadata: str
    cwd: str | None
    config_path: str | None
    completed_at: int | None = None
    trashed_at: int | None = None
    entry_count: int = 0
    message_count: int = 0
    first_message: str | None = None
    spent_tokens: int = 0
    spent_cost: int = 0
    created_at: int = 0
    updated_at: int = 0
    auto_title: str | None = None
    unpriced_calls: int = 0
    active_at: int = 0
    unknown_calls: int = 0
    active_slot: int = 0


class LaneRow(NamedTuple):
    """A lane. Its id is kept: it is unique in the tree only."""

    lane_id: int
    owner_key: int
    parent_lane: int | None
    fork_depth: int


class EntryRow(NamedTuple):
    """An entry; exactly one of ``payload``, ``packed`` and ``blob`` is set. ``session_key`` may name no session."""

    lane_id: int
    depth: int
    id: str
    parent_id: str | None
    kind: str
    role: str | None
    source: str | None
    session_key: int
    revision: int
    ordinal: int
    created_at: int
    counted: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    total_tokens: int
    input_cost: int
    output_cost: int
    cache_read_cost: int
    cache_write_cost: int
    total_cost: int
    paid_calls: int
    unpriced_calls: int
    unknown_calls: int
    paid_tokens: int
    paid_cost: int
    digest: bytes
    blob: bytes | None
    packed: bytes | None
    extra: str | None
    payload: str | None

    @property
    def stored_bytes(self) -> int:
        """How many bytes of payload the row itself holds."""
        return len(self.packed or b"") if self.payload is None else len(self.payload.encode())


class BlobRow(NamedTuple):
    """What is stored apart, the text of a payload or an attachment: its SHA-256, its size, and its bytes.

    ``data`` are the bytes themselves, or a zlib stream of them.
    """

    sha256: bytes
    size: int
    data: bytes


class AttachmentRow(NamedTuple):
    """What was cut out of an entry's payload: how many bytes of the rest stand before it, and the blob that it is."""

    lane_id: int
    depth: int
    place: int
    sha256: bytes


class LinkRow(NamedTuple):
    """A link from a session of the tree to a task session, of any tree or missing."""

    parent_key: int
    position: int
    task_id: str
    child_id: str
    entry_id: str | None = None
    status: str | None = None
    summary: str | None = None


class MoveRow(NamedTuple):
    """A change of a leaf other than a plain append."""

    session_key: int
    revision: int
    from_entry: str | None
    to_entry: str | None
    reason: str
    undoes: int | None
    moved_by: str | None
    at: int
    why: str | None = None


class EditRow(NamedTuple):
    """A change of what a session says of itself: its title, its metadata, its marks."""

    session_key: int
    revision: int
    what: str
    entry_id: str | None
    before: str | None
    after: str | None
    edited_by: str | None
    why: str | None
    at: int


class RequestRow(NamedTuple):
    """An operation that was asked for with an idempotency key. ``result`` is JSON text."""

    session_key: int
    idempotency_key: str
    operation: str
    digest: bytes
    result: str


class MarkRow(NamedTuple):
    """A session's mark on an entry."""

    session_key: int
    entry_id: str
    kind: str
    value: str | None
    at: int


class Payer(NamedTuple):
    """Who paid: the key that the ledger's rows name, and the id of that session, which may be gone.

    ``task_of`` is, of one that is gone, the session above that it was a task of (see `owners_of_tasks`). ``project`` is
    the folder that it worked in at its first paid call.
    """

    session_key: int
    session_id: str
    task_of: str | None = None
    project: str | None = None


class CallRow(NamedTuple):
    """A paid model call. ``cost`` is in picodollars; None if it is unknown; ``agent`` is who made it.

    ``unknown`` is 1 if its usage is unknown: its tokens are zero for that reason alone. ``reported`` has a bit
    for each number of tokens that was reported, in the order of `PARTS`.
    """

    scope: str
    provider: str
    call_id: str
    session_key: int
    entry_id: str | None
    purpose: str
    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    reasoning_tokens: int
    total_tokens: int
    cost: int | None
    price_source: str | None
    at: int
    outcome: str | None = None
    unknown: int = 0
    agent: str | None = None
    reported: int = 0

    @property
    def identity(self) -> tuple[str, str, str]:
        """What tells the call from all others of a store: scope, provider, call id."""
        return self[:3]

    @property
    def tokens(self) -> int:
        """All tokens: the reported total, or the sum of the kinds where none was reported."""
        return self.total_tokens or sum(self[7:12])

    @property
    def paid(self) -> Paid:
        """The call as a sum of one."""
        return Paid(1, int(self.cost is None), self.unknown, self.tokens, self.cost or 0)

    @property
    def is_summed(self) -> bool:
        """Whether all its tokens are the sum of the kinds."""
        return self.tokens == sum(self[7:12])
