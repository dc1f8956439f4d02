"""Payloads, marks, states, moves and paths: the parts that operations share."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from hashlib import blake2b, sha256
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from flue_py.core import sessions
from flue_py.core.chain import HALF, NO_PARENT, Chain
from flue_py.core.entries import Entry
from flue_py.core.json import SHORTEST, Cut, Frozen, NamedTuple, cut, encoded, inflate, splice, to_json
from flue_py.core.kinds import ARTIFACT, without_lost
from flue_py.core.ledger import BlobRow, EditRow, EntryRow, MarkRow, MoveRow, RequestRow
from flue_py.core.operations import MoveLeaf, Redo, Undo
from flue_py.core.sessions import LARGEST_ENTRY
from flue_py.db import sql
from flue_py.db.ops.seals import MARK, TAKEN_IDS, drop_mark, marks_by, own_marks, put_mark, read_rows_of_log, write_log
from flue_py.db.runner import (
    Pages,
    Parameters,
    Position,
    Row,
    SessionState,
    Sources,
    Statement,
    Transaction,
    collector_held,
    position_of,
    state_of,
)
from flue_py.errors import (
    MISMATCH,
    CorruptStore,
    EntryNotFound,
    IdempotencyConflict,
    SessionNotFound,
    damaged_entry,
    damaged_path,
    damaged_session,
)

# ---------------------------------------------------------------------------------------------------------------------
# How a payload lies in its row: as text, packed if it is larger, or apart in `blobs` if it is large.
#
# Text up to `PACK_ABOVE` bytes stays text, to be read with any tool. Above that it is zlib-compressed in its row,
# if that makes it smaller, and with less effort if it is `LARGE`; above `SPILL_ABOVE` compressed bytes it is stored
# once per tree under its SHA-256. Long base64 is cut out of it before: the picture or file that it stands for is
# stored once per tree, too, whatever payloads it is in.

PACK_ABOVE = 640
SPILL_ABOVE = 16_384
CUT_FROM = SHORTEST
"""How many characters of base64 are stored apart. Reading does not ask it."""
LARGE = 4_096
"""Above so many bytes zlib's last effort costs four times the time, and saves a fiftieth of the size."""
_LEVEL, _LEVEL_WHERE_LARGE = 6, 4


_SAMPLE, _WORTH_PACKING = 4_096, 0.9


class StoredPayload(NamedTuple):
    """The three columns of a payload, of which exactly one is set, and the blobs and cuts stored beside its row.

    ``cuts`` are the pieces cut out of the text: the place in the rest, and the SHA-256 of the bytes. ``blobs`` has
    those, and the text where that is a blob.
    """

    payload: str | None
    packed: bytes | None
    blob: bytes | None
    blobs: tuple[BlobRow, ...] = ()
    cuts: tuple[tuple[int, bytes], ...] = ()


def pack(text: str) -> StoredPayload:
    """Return how a payload's text is stored. O(size)."""
    if len(text) <= PACK_ABOVE // 4:
        return StoredPayload(text, None, None)
    data = text.encode()
    if len(data) <= PACK_ABOVE:
        return StoredPayload(text, None, None)
    rest, pieces = cut(data, CUT_FROM)
    if not pieces:
        return _packed(text, data)
    blobs = [_bytes_as_blob(piece) for piece in pieces]
    stored = _packed(rest.decode(), rest)
    cuts = tuple((piece.place, blob.sha256) for piece, blob in zip(pieces, blobs, strict=True))
    return stored._replace(blobs=(*blobs, *stored.blobs), cuts=cuts)


def _packed(text: str, data: bytes) -> StoredPayload:
    if len(data) <= PACK_ABOVE:
        return StoredPayload(text, None, None)
    packed = zlib.compress(data, _LEVEL if len(data) <= LARGE else _LEVEL_WHERE_LARGE)
    if len(packed) > SPILL_ABOVE:
        sha = sha256(data).digest()
        return StoredPayload(None, None, sha, (BlobRow(sha, len(data), packed),))
    if len(packed) < len(data):
        return StoredPayload(None, packed, None)
    return StoredPayload(text, None, None)


def _bytes_as_blob(piece: Cut) -> BlobRow:
    """Return the blob of a piece that was cut out: as it is where zlib would not make it smaller, as pictures are."""
    data = piece.data
    samples = b"".join(data[at : at + _SAMPLE] for at in (0, len(data) // 2, max(len(data) - _SAMPLE, 0)))
    stored = data
    if len(zlib.compress(samples, 1)) < _WORTH_PACKING * len(samples):
        stored = min(data, zlib.compress(data, _LEVEL_WHERE_LARGE), key=len)
    return BlobRow(sha256(data).digest(), len(data), stored)


def unpack(packed: bytes, most: int = LARGEST_ENTRY) -> bytes:
    """Return the text of a packed payload, in UTF-8. Raises `CorruptStore` where it cannot be read, or is longer.

    No more than ``most`` bytes are made of it, however much it stands for.
    """
    try:
        data = inflate(packed, most)
    except (zlib.error, TypeError) as error:
        raise CorruptStore(f"a packed payload cannot be read ({error}); run verify() to find it") from error
    if data is None:
        raise CorruptStore(f"a packed payload is longer than {most} bytes, or has no end; run verify() to find it")
    return data


def unpacked(packed: bytes | None) -> bytes | None:
    """Return the same; None for a payload that is not packed, or cannot be read."""
    try:
        return None if packed is None else unpack(packed)
    except CorruptStore:
        return None


def unpack_blob(blob: bytes, data: bytes | None, most: int = LARGEST_ENTRY) -> bytes:
    """Return the bytes of a blob, verified by its SHA-256: its data as they are, or unpacked; otherwise as `unpack`.

    Raises `CorruptStore` where it is missing or differs.
    """
    # SQLite may hold something else than bytes in either column.
    if not isinstance(blob, bytes):
        raise CorruptStore(f"{blob!r} is not the SHA-256 of a blob; run verify()")
    if data is None:
        raise CorruptStore(f"blob {blob.hex()} is missing; run verify()")
    # First, since what came as a zlib stream is stored as it is, and may stand for any number of bytes.
    if is_raw(blob, data) and len(data) <= most:
        return data
    text = unpack(data, most)
    if sha256(text).digest() != blob:
        raise CorruptStore(f"blob {blob.hex()} does not match its SHA-256; run verify()")
    return text


def is_raw(blob: bytes, data: bytes) -> bool:
    """Return whether a blob's data are its bytes themselves, rather than a zlib stream of that. O(size)."""
    return isinstance(data, bytes) and sha256(data).digest() == blob


def check_sum(rest: bytes, lengths: Iterable[int], most: int = LARGEST_ENTRY) -> None:
    """Raise `CorruptStore` if a payload with its attachments, of these lengths in base64, is longer than ``most``."""
    if len(rest) + sum(lengths) > most:
        raise CorruptStore(f"a payload with its attachments is longer than {most} bytes; run verify() to find it")


def checked_text(
    chain: Chain,
    row: EntryRow,
    above: bytes,
    blobs: Mapping[bytes, bytes],
    cuts: Sequence[tuple[int, bytes]] = (),
    most: int = LARGEST_ENTRY,
) -> str:
    """Return the text of an entry's payload, with the pieces cut out of it: places in the rest, and the SHA-256s.

    Raises `CorruptStore` if the entry does not have its digest, below one of digest ``above``.
    """
    try:
        data = stored_text(row, blobs, cuts, most)
    except CorruptStore as error:
        raise damaged_entry(row.id, f"cannot be read ({error})") from error
    if not (chain.has_text(row.digest, above, row.kind, data) and chain.has_fields(row.digest, above, row.fields)):
        raise damaged_entry(row.id, MISMATCH)
    return decode_payload(data)


def stored_text(
    row: EntryRow, blobs: Mapping[bytes, bytes], cuts: Sequence[tuple[int, bytes]] = (), most: int = LARGEST_ENTRY
) -> bytes:
    """Return the same, in UTF-8, whatever its digest. Raises `CorruptStore`."""
    if row.payload is not None:
        data = row.payload.encode()
    elif row.packed is not None:
        data = unpack(row.packed, most)
    else:
        data = unpack_blob(row.blob or b"", blobs.get(row.blob or b""), most)
    if not cuts:
        return data
    pieces = [(place, encoded(unpack_blob(sha, blobs.get(sha), most))) for place, sha in cuts]
    check_sum(data, (len(piece) for _, piece in pieces), most)
    return splice(data, pieces)


def decode_payload(data: bytes) -> str:
    """Return the text of a payload. Raises `CorruptStore` where its bytes are no UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptStore(f"a stored payload is not text ({error}); run verify() to find it") from error


# ---------------------------------------------------------------------------------------------------------------------
# The texts of payloads, with what was cut out of them put back.
#
# Nothing in an entry's row says that something was cut out of its payload: the rest does not have the digest of the
# whole. So a read in which every payload has its digest asks for nothing more, and one in which a payload has not looks
# up the attachments of all that it reads, once.

Cuts: TypeAlias = Sequence[tuple[int, bytes]]
"""The pieces cut out of one payload: the place in the rest, and the SHA-256 of the bytes."""


# Of the entries on a stretch of a path. The bytes of a blob come with the first of its uses, and with no other: what
# numbers the uses has no bytes in it, so that none are sorted.
_USES = (
    sql.WITH_SPANS + "SELECT n.depth, n.place, n.sha256, b.data FROM (SELECT a.depth, a.place, a.sha256,"
    " ROW_NUMBER() OVER (PARTITION BY a.sha256 ORDER BY a.depth, a.place) AS use FROM spans s CROSS JOIN attachments a"
    " ON a.tree_id = :tree_id AND a.lane_id = s.lane_id AND a.depth > s.low AND a.depth <= s.high"
    " AND a.depth > :low_depth WHERE s.high > :low_depth"
)
_THEIR_BYTES = (
    ") n LEFT JOIN blobs b ON n.use = 1 AND b.tree_id = :tree_id AND b.sha256 = n.sha256 ORDER BY n.depth, n.place"
)
OF_PATH = sql.statement(tuple[int, int, bytes, bytes | None])(_USES + _THEIR_BYTES)
# The same without those of artifacts, whose bytes no context has.
OF_CONTEXT = sql.statement(tuple[int, int, bytes, bytes | None])(
    _USES + " AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = a.lane_id"
    f" AND e.depth = a.depth AND e.kind = '{ARTIFACT}')" + _THEIR_BYTES
)
OF_ENTRY = sql.statement(tuple[int, bytes])(
    "SELECT a.place, a.sha256 FROM entries e JOIN attachments a ON a.tree_id = e.tree_id AND a.lane_id = e.lane_id"
    " AND a.depth = e.depth WHERE e.tree_id = :tree_id AND e.id = :entry_id ORDER BY a.place"
)


class Payloads:
    """Reads the payloads of one session, in one transaction; attachments that several of them share are read once.

    ``stretch`` is the part of a path that they are on: then one statement has the attachments of all of them; without
    ``contents``, of all but artifacts, whose texts are asked for by `rest`.
    """

    def __init__(
        self, tx: Transaction, state: SessionState, stretch: Parameters | None = None, *, contents: bool = True
    ) -> None:
        self._tx = tx
        self._state = state
        self._stretch = stretch
        self._of_path = OF_PATH if contents else OF_CONTEXT
        self._by_depth: dict[int, list[tuple[int, bytes]]] | None = None
        self._stored: dict[bytes, bytes | None] = {}
        self._encoded: dict[bytes, bytes | None] = {}

    def text(
        self,
        entry_id: str,
        kind: str,
        above: bytes,
        digest: bytes,
        payload: bytes | None,
        packed: bytes | None,
        blob: bytes | None,
        depth: int | None = None,
    ) -> bytes:
        """Return the text of an entry's payload, from its digest, the one above, and the payload's three columns.

        Words stand for attachments that are lost; the digest is not checked then. Raises `CorruptStore`, naming the
        entry, where the payload cannot be read or does not have its digest.
        """
        is_whole = partial(self._tx.chain.has_text, digest, above, kind)
        try:
            data = payload if payload is not None else apart(self._tx, self._state.tree_id, packed, blob)
            if self._tx.chain.checks and is_whole(data):
                return bytes(data)
            cuts = self._cuts(entry_id, depth)
            pieces = self._pieces(data, cuts)
            lost = any(piece is None for _, piece in pieces)
            if lost or not cuts:
                # What is deleted meanwhile is missing, too.
                self._tx.require_snapshot()
            if lost:
                return without_lost(bytes(data), pieces, "payload").encode()
        except CorruptStore as error:
            raise damaged_entry(entry_id, f"cannot be read ({error})", self._state.id) from error
        whole = splice(data, [(place, piece) for place, piece in pieces if piece is not None])
        if not is_whole(whole):
            raise damaged_entry(entry_id, MISMATCH, self._state.id)
        return whole

    def rest(self, entry_id: str, payload: bytes | None, packed: bytes | None, blob: bytes | None) -> bytes:
        """Return a payload without its attachments, none of which is read; no digest is checked.

        Raises `CorruptStore`, naming the entry.
        """
        try:
            return payload if payload is not None else apart(self._tx, self._state.tree_id, packed, blob)
        except CorruptStore as error:
            raise damaged_entry(entry_id, f"cannot be read ({error})", self._state.id) from error

    def whole(self, depth: int, kind: str, above: bytes, digest: bytes, *columns: bytes | None) -> bytes | None:
        """Return the text of the payload, in these three columns, of an entry on the stretch; None where it is damaged,
        or not all there.
        """
        try:
            rest = self.rest("", *columns)
            if self._tx.chain.text(above, kind, rest) == digest[:HALF]:
                return rest
            pieces = self._pieces(rest, self._cuts("", depth))
        except CorruptStore:
            return None
        text = splice(rest, [(place, piece) for place, piece in pieces if piece is not None])
        return text if self._tx.chain.has_text(digest, above, kind, text) else None

    def _cuts(self, entry_id: str, depth: int | None) -> Cuts:
        if self._stretch is None or depth is None:
            return self._tx.rows(OF_ENTRY, tree_id=self._state.tree_id, entry_id=entry_id)
        if self._by_depth is None:
            self._by_depth = defaultdict(list)
            for at, place, sha256, data in self._tx.rows(self._of_path, **self._stretch):
                self._by_depth[at].append((place, sha256))
                self._stored.setdefault(sha256, data)
        return self._by_depth.get(depth, ())

    def _pieces(self, rest: bytes, cuts: Cuts) -> list[tuple[int, bytes | None]]:
        """Return the pieces cut out of a payload, in base64; None if lost. Raises `CorruptStore` beyond limits."""
        pieces = [(place, self._piece(sha256)) for place, sha256 in cuts]
        check_sum(rest, (len(piece) for _, piece in pieces if piece is not None))
        return pieces

    def _piece(self, sha256: bytes) -> bytes | None:
        if sha256 not in self._encoded:
            is_here = sha256 in self._stored
            data = self._stored.pop(sha256) if is_here else blob_data(self._tx, self._state.tree_id, sha256)
            try:
                self._encoded[sha256] = encoded(unpack_blob(sha256, data))
            except CorruptStore:
                self._encoded[sha256] = None
        return self._encoded[sha256]


def checked_payload(tx: Transaction, state: SessionState, row: sql.StoredEntry) -> bytes:
    """Return the text of one entry's payload, as `Payloads.text` does."""
    above = row.digest_above
    if not tx.chain.has_fields(row.digest, above, row.fields):
        raise damaged_entry(row.id, MISMATCH, state.id)
    return Payloads(tx, state).text(row.id, row.kind, above, row.digest, row.payload, row.packed, row.blob)


def apart(tx: Transaction, tree_id: int, packed: bytes | None, blob: bytes | None) -> bytes:
    """Return the text of a payload that is packed in its row, or a blob. Raises `CorruptStore`."""
    if packed is not None:
        return unpack(packed)
    data = None if blob is None else blob_data(tx, tree_id, blob)
    if data is None:
        tx.require_snapshot()
    return unpack_blob(b"" if blob is None else blob, data)


BLOB_DATA = sql.statement(tuple[bytes])("SELECT b.data FROM blobs b WHERE b.tree_id = :tree_id AND b.sha256 = :sha256")


def blob_data(tx: Transaction, tree_id: int, sha256: bytes) -> bytes | None:
    """Return the data of a blob; None if there is none."""
    (data,) = tx.first(BLOB_DATA, tree_id=tree_id, sha256=sha256) or (None,)
    return data


# ---------------------------------------------------------------------------------------------------------------------
# Marks as a session sees them: its own, and on the path that a fork shares with its sources, theirs.
#
# A fork copies nothing when it is made: it looks at the marks of the session it was made of, and through that at those
# of its sources. Its own marks win; one without a value hides what a source says. When sources are deleted, the forks
# that stay get what they saw as marks of their own.

Spans: TypeAlias = dict[int, int]
"""A path: of each of its lanes the depth down to which it goes there."""


class MarkOfSource(Frozen):
    """A mark of a session that a fork was made of, ``level`` forks above it; without ``entry_id``, that it has none.

    ``point_lane`` and ``point_depth`` are the place that was forked from, ``lane_id`` and ``depth`` those of the entry.
    """

    fork_key: int
    source_key: int
    tree_id: int
    level: int
    point_lane: int
    point_depth: int
    entry_id: str | None
    kind: str | None
    value: str | None
    at: int | None
    lane_id: int | None
    depth: int | None


SeenMarks: TypeAlias = dict[tuple[str, str], MarkOfSource]
"""The marks that a fork sees of its sources, by entry and kind. Those without a value hide marks above them."""


def marks_of(tx: Transaction, state: SessionState) -> list[sessions.Mark]:
    """Return the marks that a session sees, by entry and kind. O(marks), and of a fork, O(forks above it)."""
    own = {(mark.entry_id, mark.kind): mark.value for mark in own_marks(tx, state)}
    seen = {**{place: mark.value for place, mark in _inherited(tx, state).items()}, **own}
    marks = [
        sessions.Mark(*place, value) for place, value in seen.items() if value is not None or place[1] == "retracted"
    ]
    return sorted(marks, key=attrgetter("entry_id", "kind"))


def pins_of(tx: Transaction, state: SessionState) -> dict[str, str]:
    """Return the session's pins and those of its sources: ``on`` or ``off``, by entry."""
    seen = {entry_id: mark.value for (entry_id, kind), mark in _inherited(tx, state).items() if kind == "pin"}
    seen |= {mark.entry_id: mark.value for mark in own_marks(tx, state) if mark.kind == "pin"}
    return {entry_id: value for entry_id, value in seen.items() if value is not None}


def mark_of(tx: Transaction, state: SessionState, entry_id: str, kind: str) -> str | None:
    """Return the value of a label or a pin as the session sees it; None without one."""
    own = tx.first(MARK, session_key=state.key, entry_id=entry_id, kind=kind)
    if own is not None:
        return own.value
    mark = _inherited(tx, state).get((entry_id, kind))
    return None if mark is None else mark.value


def retracted_ids(tx: Transaction, state: SessionState) -> set[str]:
    """Return the ids of the entries that a session has retracted."""
    return {mark.entry_id for mark in own_marks(tx, state) if mark.kind == "retracted"}


def put_marks(
    tx: Transaction, sources: Sources, state: SessionState, entry_ids: Iterable[str], kind: str, value: str | None
) -> None:
    """Give labels or pins a value. Where the session would see that anyway, it has no mark of its own."""
    inherited = _inherited(tx, state)
    for entry_id in entry_ids:
        above = inherited.get((entry_id, kind))
        if value == (None if above is None else above.value):
            drop_mark(tx, state, entry_id, kind)
        else:
            put_mark(tx, state, MarkRow(state.key, entry_id, kind, value, sources.now_us()))


# The forks that stay of sessions that go.
ID_OF_KEY = sql.statement(tuple[str])("SELECT s.id FROM sessions s WHERE s.session_key = :session_key")
FORKS_THAT_STAY = sql.statement(tuple[int])(
    "SELECT f.session_key FROM sessions p JOIN sessions f ON f.tree_id = p.tree_id AND f.forked_from_session = p.id"
    f" WHERE p.session_key {sql.IN_KEYS} AND NOT f.session_key {sql.IN_KEYS} AND f.forked_from_entry IS NOT NULL"
)


def leave_marks(tx: Transaction, keys: str) -> None:
    """Give the forks that stay, of sessions that are about to be deleted, the marks that they see of these.

    ``keys`` is a JSON array of the sessions' keys. A constant number of statements, and some for each fork that sees
    marks.
    """
    forks = {key for (key,) in tx.rows(FORKS_THAT_STAY, keys=keys)}
    if not forks:
        return
    if not tx.is_alone:
        # What they mark meanwhile is theirs, and wins.
        tx.lock_sessions(forks)
    for fork_key, seen in _seen_by(tx, forks).items():
        (fork_id,) = tx.first(ID_OF_KEY, session_key=fork_key) or ("",)
        state = read_state(tx, fork_id)
        own = {(mark.entry_id, mark.kind) for mark in own_marks(tx, state)}
        for place, mark in seen.items():
            if mark.value is not None and place not in own:
                put_mark(tx, state, MarkRow(fork_key, *place, mark.value, mark.at or 0))
        write_state(tx, state)


def _inherited(tx: Transaction, state: SessionState) -> SeenMarks:
    if state.forked_from_entry is None:
        return {}
    return _seen_by(tx, [state.key]).get(state.key, {})


# The labels and pins of the sessions that forks were made of, and of those that these were made of, nearest first.
# (An id is used once among the sources of a tree's forks; the level ends what only a damaged store can have: a circle.)
_SOURCE = (
    "JOIN sessions p ON p.id = f.forked_from_session AND p.tree_id = f.tree_id WHERE f.forked_from_entry IS NOT NULL"
)
MARKS_OF_SOURCES = sql.statement(MarkOfSource)(
    "WITH RECURSIVE sources(fork_key, level, source_key, tree_id, point) AS ("
    "  SELECT f.session_key, 1, p.session_key, p.tree_id, f.forked_from_entry"
    f"   FROM sessions f {_SOURCE} AND f.session_key {sql.IN_KEYS}"
    "  UNION ALL SELECT s.fork_key, s.level + 1, p.session_key, p.tree_id, f.forked_from_entry"
    f"   FROM sources s JOIN sessions f ON f.session_key = s.source_key {_SOURCE} AND s.level < 100000"
    ") SELECT s.fork_key, s.source_key, s.tree_id, s.level,"
    " a.lane_id, a.depth, m.entry_id, m.kind, m.value, m.at, e.lane_id, e.depth"
    " FROM sources s JOIN entries a ON a.tree_id = s.tree_id AND a.id = s.point"
    " LEFT JOIN marks m ON m.session_key = s.source_key AND m.kind IN ('label', 'pin')"
    " LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.id = m.entry_id ORDER BY s.fork_key, s.level"
)


def _seen_by(tx: Transaction, keys: Collection[int]) -> dict[int, SeenMarks]:
    """Return the marks of their sources that forks see. One statement, if none of those has marks."""
    rows = tx.rows(MARKS_OF_SOURCES, keys=json.dumps(sorted(keys)))
    marks_by(tx, {row.source_key for row in rows})
    by_fork = {}
    for fork_key, group in groupby(rows, key=attrgetter("fork_key")):
        marks = list(group)
        if any(mark.entry_id is not None for mark in marks):
            by_fork[fork_key] = _on_shared_path(tx, marks)
    return by_fork


def _on_shared_path(tx: Transaction, marks: Iterable[MarkOfSource]) -> SeenMarks:
    """Return those of the marks of a fork's sources that lie on the path it shares with each, the nearest of each."""
    seen: SeenMarks = {}
    shared: Spans | None = None
    for _, group in groupby(marks, key=attrgetter("level")):
        of_level = list(group)
        shared = _shared(tx, shared, of_level[0])
        for mark in of_level:
            if mark.entry_id is None or mark.kind is None:
                continue
            if mark.lane_id is None or mark.depth is None:
                raise damaged_entry(mark.entry_id, "is marked, and not there")
            if mark.depth <= shared.get(mark.lane_id, -1):
                seen.setdefault((mark.entry_id, mark.kind), mark)
    return seen


def _shared(tx: Transaction, path: Spans | None, point: MarkOfSource) -> Spans:
    """Return the part of a path in common with the one to the place that a source was forked from."""
    lane_id, depth = point.point_lane, point.point_depth
    if path is not None and depth <= path.get(lane_id, -1):
        return {lane: min(low, depth) for lane, low in path.items()}
    source_path = dict(tx.rows(sql.SPANS, tree_id=point.tree_id, lane_id=lane_id, depth=depth))
    if path is None:
        return source_path
    return {lane: min(low, source_path[lane]) for lane, low in path.items() if lane in source_path}


# ---------------------------------------------------------------------------------------------------------------------
# Where an operation starts: the session with the place of its leaf, what it sees, and what it did before.


# A session with the place of its leaf: what every operation starts from, in one statement. What a read asks for
# next comes with it, so that it takes one round trip less.
SESSION_STATE = sql.statement(state_of)(f"SELECT {sql.STATE}{sql.STATE_FROM}{sql.LIVING}")


def read_state(tx: Transaction, session_id: str) -> SessionState:
    """Return the session and the place of its leaf, locked where rows can be. Raises `SessionNotFound`."""
    cached = tx.states.pop(session_id, None)
    if cached is not None:
        sessions.require_meant(session_id, cached.key)
        return cached
    if sessions.is_storable(session_id):
        tx.lock_session(session_id)
    state = tx.first(SESSION_STATE, id=session_id) if sessions.is_storable(session_id) else None
    return checked_state(tx, session_id, state)


def checked_state(tx: Transaction, session_id: str, state: SessionState | None) -> SessionState:
    """Return the state that was read of a session.

    Raises `SessionNotFound` where that is none, or another one's, and `CorruptStore` if its row has not its head.
    """
    tx.saw(session_id, state)
    if state is None:
        raise SessionNotFound(session_id)
    sessions.require_meant(session_id, state.key)
    if state.leaf is not None and state.position is None:
        raise CorruptStore(f"session {session_id!r}: its leaf {state.leaf!r} is not there; run verify()")
    has_lane = state.position is None or state.position.owner_key is not None
    if not state.has_head(tx.chain) or not has_lane:
        raise damaged_session(session_id)
    return state


def write_state(tx: Transaction, state: SessionState) -> None:
    """Write what an append may change of a session, and give the state and its row the head that they have now."""
    state.head = state.head_by(tx.chain)
    tx.run(sql.UPDATE_STATE, **changed_columns(state))


_CHANGED, _changed = ("session_key", *sql.CHANGED), attrgetter("key", *sql.CHANGED)


def changed_columns(state: SessionState) -> dict[str, object]:
    """Return the parameters of `sql.UPDATE_STATE`."""
    return dict(zip(_CHANGED, _changed(state), strict=True))


def lock_tree(tx: Transaction, tree_id: int) -> set[int]:
    """Keep others from writing to the sessions of a tree, and return their keys."""
    locked: set[int] = set()
    # A fork is made by who has locked its source, so that none is missing once nothing is new.
    while new := {key for key, _ in tx.rows(sql.SESSION_IDS, tree_id=tree_id)} - locked:
        locked |= new
        tx.lock_sessions(locked)
    tx.states.clear()
    return locked


def see_entry(tx: Transaction, state: SessionState, entry_id: str) -> Position:
    """Return the place of an entry that the session sees. Raises `EntryNotFound` for any other."""
    position = find_visible(tx, state, entry_id)
    if position is None:
        raise EntryNotFound(state.id, entry_id)
    return position


def find_visible(tx: Transaction, state: SessionState, entry_id: str) -> Position | None:
    """Return the place of an entry, or None where the session does not see it. O(lanes the session builds on)."""
    position, is_hidden = find_held(tx, state, entry_id)
    return None if is_hidden else position


def _marked_place(row: Row) -> tuple[Position, bool]:
    mark, *place = row
    return position_of(place), mark is not None


# The same, with whether the session has retracted it.
ENTRY_AND_MARK = sql.statement(_marked_place)(
    f"SELECT m.kind, {sql.place_of('e', 'l')} FROM entries e"
    " JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " LEFT JOIN marks m ON m.session_key = :session_key AND m.entry_id = :entry_id AND m.kind = 'retracted'"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)


def find_held(tx: Transaction, state: SessionState, entry_id: str) -> tuple[Position | None, bool]:
    """Return the place of an entry that the session holds (or None), and whether the session has retracted it."""
    if entry_id == state.leaf:
        return state.position, False
    if not sessions.is_storable(entry_id):
        return None, False
    row = tx.first(ENTRY_AND_MARK, tree_id=state.tree_id, entry_id=entry_id, session_key=state.key)
    if row is None:
        return None, False
    position, is_retracted = row
    is_seen = position.owner_key == state.key or is_held(tx, state, position.lane_id, position.depth)
    return (position if is_seen else None), is_retracted


# Whether an entry is an ancestor of what the session holds: its leaf, its fork point, its lanes' fork points.
IS_HELD = sql.statement(tuple[int])(
    "WITH RECURSIVE anchors(lane_id, depth) AS ("
    "  SELECT e.lane_id, e.depth FROM entries e WHERE e.tree_id = :tree_id AND e.id IN (:leaf, :forked_from_entry)"
    "  UNION SELECT l.parent_lane, l.fork_depth FROM lanes l"
    "   WHERE l.owner_key = :session_key AND l.parent_lane IS NOT NULL"
    "), held(lane_id, depth) AS ("
    "  SELECT a.lane_id, a.depth FROM anchors a"
    "  UNION SELECT l.parent_lane, l.fork_depth FROM held h"
    "   JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = h.lane_id WHERE l.parent_lane IS NOT NULL"
    ") SELECT 1 FROM held h WHERE h.lane_id = :lane_id AND h.depth >= :depth LIMIT 1"
)


def is_held(tx: Transaction, state: SessionState, lane_id: int, depth: int) -> bool:
    """Return whether a place is an ancestor of the session's leaf, fork point, or lanes."""
    return tx.first(IS_HELD, **held_by(state), lane_id=lane_id, depth=depth) is not None


def held_by(state: SessionState) -> Parameters:
    """Return the parameters that say which entries a session holds."""
    return {
        "tree_id": state.tree_id,
        "session_key": state.key,
        "leaf": state.leaf,
        "forked_from_entry": state.forked_from_entry,
    }


def is_retracted(tx: Transaction, state: SessionState, entry_id: str) -> bool:
    """Return whether the session has retracted the entry."""
    return tx.first(MARK, session_key=state.key, entry_id=entry_id, kind="retracted") is not None


def place(tx: Transaction, state: SessionState, leaf: sessions.LeafChoice) -> tuple[str | None, Position | None]:
    """Return a leaf to read at, and its place. Raises `EntryNotFound` where the session does not see it."""
    if isinstance(leaf, sessions.Stored) or leaf == state.leaf:
        return state.leaf, state.position
    if leaf is None:
        return None, None
    return leaf, see_entry(tx, state, leaf)


_AT_ONCE = 5_000

Named = TypeVar("Named", str, tuple[str, str])


def in_parts(names: Iterable[Named]) -> Iterator[list[Named]]:
    """Yield the names, each once, in parts that a statement takes."""
    every = list(dict.fromkeys(names))
    for low in range(0, len(every), _AT_ONCE):
        yield every[low : low + _AT_ONCE]


def taken_ids(tx: Transaction, state: SessionState, ids: Iterable[str]) -> set[str]:
    """Return those of the ids that the session's tree has. A text that cannot be an id is not among them."""
    taken: set[str] = set()
    for some in in_parts(filter(sessions.is_storable, ids)):
        rows = tx.rows(TAKEN_IDS, tree_id=state.tree_id, ids=json.dumps(some))
        taken.update(entry_id for (entry_id,) in rows)
    return taken


def content_digest(*parts: object) -> bytes:
    """Return a digest of an operation's content, which a retry has, and another operation has not."""
    try:
        text = to_json(parts)
    except ValueError:  # half of a surrogate pair, in an id that no entry can have
        text = repr(parts).encode()
    return blake2b(text, digest_size=16).digest()


def replayed_result(
    tx: Transaction, state: SessionState, idempotency_key: str | None, operation: str, digest: bytes
) -> str | None:
    """Return the stored result of an earlier operation under this key, or None where it is new.

    Raises `IdempotencyConflict` where the key was used for something else.
    """
    if idempotency_key is None:
        return None
    sessions.check_name(idempotency_key, "idempotency key")
    row = tx.first(sql.REQUEST, session_key=state.key, idempotency_key=idempotency_key)
    if row is None:
        return None
    stored_operation, known_digest, result = row
    if stored_operation != operation or bytes(known_digest) != digest:
        raise IdempotencyConflict(state.id, idempotency_key)
    return str(result)


def remember_result(
    tx: Transaction, state: SessionState, idempotency_key: str | None, operation: str, digest: bytes, result: object
) -> None:
    """Store the result of an operation under its key, for the retry."""
    if (row := request_row(state, idempotency_key, operation, digest, result)) is not None:
        tx.insert(sql.INSERT_REQUEST, [row])


def request_row(
    state: SessionState, idempotency_key: str | None, operation: str, digest: bytes, result: object
) -> RequestRow | None:
    """Return the row of a result that is stored; None without a key."""
    if idempotency_key is None:
        return None
    return RequestRow(state.key, idempotency_key, operation, digest, to_json(result).decode())


# ---------------------------------------------------------------------------------------------------------------------
# Leaf moves, retraction, undo and redo. None of them touches an entry.
#
# The undo log is what is stored anyway: the revisions of a session's entries, and its leaf moves. Walking it back
# from a revision: a plain append or move is the operation to undo; an undo of revision r leaves things as they were
# before r, so the walk goes on below r; a redo of r leaves things as after r, so r is the operation to undo.


class Operation(NamedTuple):
    """One operation on a session's leaf, as the log tells it, and the revision that it undoes or redoes."""

    revision: int
    reason: str
    from_id: str | None = None
    to_id: str | None = None
    undoes: int | None = None


def move(tx: Transaction, sources: Sources, operation: MoveLeaf) -> sessions.Moved:
    """Set the leaf (see `Backend.move`)."""
    to, reason, idempotency_key = operation.to, operation.reason, operation.idempotency_key
    state = read_state(tx, operation.session_id)
    digest = b""
    if idempotency_key is not None:
        digest = content_digest(to)
        stored = replayed_result(tx, state, idempotency_key, "move", digest)
        if stored is not None:
            from_id, to_id, revision, first_reason = json.loads(stored)
            return sessions.Moved(from_id, to_id, revision, first_reason, replayed=True)
    state.require(operation.expected)
    place = None if to is None else see_entry(tx, state, to)
    if to == state.leaf:
        moved = sessions.Moved(to, to, state.revision, reason)
    else:
        moved = write_move(tx, sources, state, place, reason, operation.note)
    remember_result(
        tx, state, idempotency_key, "move", digest, [moved.from_id, moved.to_id, moved.revision, moved.reason]
    )
    return moved


def write_move(
    tx: Transaction,
    sources: Sources,
    state: SessionState,
    place: Position | None,
    reason: sessions.MoveReason,
    note: sessions.Note,
    *,
    undoes: int | None = None,
    entries_back: int = 0,
    edits: Sequence[sessions.Edit] = (),
) -> sessions.Moved:
    """Set the leaf, write that down with edits, and count the session's own entries that come back or go away."""
    revision, to = state.revision + 1, None if place is None else place.id
    at = sources.now_us()
    after = replace(
        state,
        leaf=to,
        revision=revision,
        updated_at=at,
        entry_count=state.entry_count + entries_back,
        message_count=state.message_count + entries_back,
        position=place,
    )
    row = MoveRow(state.key, revision, state.leaf, to, reason, undoes, note.by, at, note.why)
    write_log(tx, after, [row], [edit_row(state.key, revision, edit, note, at) for edit in edits])
    write_state(tx, after)
    # In its own lanes alone, nobody else changes the place of its leaf.
    if place is None or place.owner_key == state.key:
        tx.states[state.id] = after
    return sessions.Moved(state.leaf, to, revision, reason)


def edit_row(session_key: int, revision: int, edit: sessions.Edit, note: sessions.Note, at: int) -> EditRow:
    """Return an edit as it is stored."""
    return EditRow(session_key, revision, edit.what, edit.entry_id, edit.before, edit.after, note.by, note.why, at)


def _position(tx: Transaction, state: SessionState, entry_id: str) -> Position:
    row = tx.first(sql.ENTRY_POSITION, tree_id=state.tree_id, entry_id=entry_id)
    if row is None:
        raise CorruptStore(f"session {state.id!r}: entry {entry_id!r} is not there; run verify()")
    return row.position


def retract(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    entry_id: str,
    *,
    expected: sessions.Expected = sessions.STORED,
    note: sessions.Note = sessions.NO_NOTE,
) -> sessions.Moved | None:
    """Retract a failed leaf message (see `Backend.retract`)."""
    state = read_state(tx, session_id)
    state.require(expected)
    if entry_id != state.leaf or state.position is None:
        return None
    row = tx.first(sql.ENTRY_POSITION, tree_id=state.tree_id, entry_id=entry_id)
    if row is None or row.kind != "message" or _has_visible_child(tx, state, state.position):
        return None
    _mark_retracted(tx, sources, state, entry_id)
    is_own = row.session_key == state.key
    parent = None if row.parent_id is None else _position(tx, state, row.parent_id)
    return write_move(tx, sources, state, parent, "retract", note, entries_back=-1 if is_own else 0)


def _mark_retracted(tx: Transaction, sources: Sources, state: SessionState, entry_id: str) -> None:
    put_mark(tx, state, MarkRow(state.key, entry_id, "retracted", None, sources.now_us()))


CHILD_PLACES = sql.statement(tuple[str, int, int, int])(
    f"SELECT e.id, e.lane_id, e.depth, o.owner_key FROM {sql.CHILDREN}"
    " JOIN lanes o ON o.tree_id = e.tree_id AND o.lane_id = e.lane_id"
)


def _has_visible_child(tx: Transaction, state: SessionState, position: Position) -> bool:
    place = {"tree_id": state.tree_id, "lane_id": position.lane_id, "depth": position.depth}
    for child_id, lane_id, depth, owner_key in tx.rows(CHILD_PLACES, **place):
        is_seen = owner_key == state.key or is_held(tx, state, lane_id, depth)
        if is_seen and not is_retracted(tx, state, child_id):
            return True
    return False


def undo(tx: Transaction, sources: Sources, operation: Undo) -> sessions.Moved | None:
    """Undo the last operation that is not undone (see `Backend.undo`)."""
    state = read_state(tx, operation.session_id)
    state.require(operation.expected)
    last = _operation_to_undo(tx, state)
    if last is None:
        return None
    comes_back = 0
    if last.reason == "retract" and last.from_id is not None:
        comes_back = bring_back(tx, state, [last.from_id])
    elif last.reason == "back":
        comes_back = -_retract_again(tx, sources, state, last.revision)
    place, note = _target(tx, state, last.from_id, "undo"), operation.note
    return write_move(tx, sources, state, place, "undo", note, undoes=last.revision, entries_back=comes_back)


def redo(tx: Transaction, sources: Sources, operation: Redo) -> sessions.Moved | None:
    """Redo the last undo (see `Backend.redo`)."""
    state = read_state(tx, operation.session_id)
    state.require(operation.expected)
    last = _operation_to_redo(tx, state)
    if last is None:
        return None
    goes_away = 0
    if last.reason == "retract" and last.from_id is not None:
        # Something grew below the entry since: to retract it now would hide what the session sees.
        failed = find_visible(tx, state, last.from_id)
        if failed is not None and _has_visible_child(tx, state, failed):
            return None
        _mark_retracted(tx, sources, state, last.from_id)
        goes_away = -_own_entries(tx, state, last.from_id)
    elif last.reason == "back":
        goes_away = bring_back(tx, state, _brought_back(tx, state, last.revision))
    place, note = _target(tx, state, last.to_id, "redo"), operation.note
    return write_move(tx, sources, state, place, "redo", note, undoes=last.revision, entries_back=goes_away)


def bring_back(tx: Transaction, state: SessionState, ids: Sequence[str]) -> int:
    """Take back the retraction of entries; return how many of them are the session's own."""
    dropped = [entry_id for entry_id in ids if drop_mark(tx, state, entry_id, "retracted")]
    return sum(_own_entries(tx, state, entry_id) for entry_id in dropped)


def _retract_again(tx: Transaction, sources: Sources, state: SessionState, revision: int) -> int:
    """Retract the entries that going back had brought back; return how many entries of the session's own that hides.

    An entry that something grew below since stays, with all above it: else the path would be torn off.
    """
    hidden = 0
    for entry_id in _brought_back(tx, state, revision):
        position = find_visible(tx, state, entry_id)
        if position is None or _has_visible_child(tx, state, position):
            break
        _mark_retracted(tx, sources, state, entry_id)
        hidden += _own_entries(tx, state, entry_id)
    return hidden


def _brought_back(tx: Transaction, state: SessionState, revision: int) -> list[str]:
    """Return the ids that going back, at a revision, brought back from being retracted; the deepest first."""
    _, edits = read_rows_of_log(tx, state, revision - 1, revision)
    return next((sessions.decode_ids(edit.before) for edit in edits if edit.what == "retracted"), [])


def leaf_at(tx: Transaction, state: SessionState, revision: int) -> str | None:
    """Return the session's leaf after a revision. O(1)."""
    record = _latest_record(tx, state, revision)
    return state.forked_from_entry if record is None else _operation_at(tx, state, record.revision).to_id


def retracted_on_path(tx: Transaction, state: SessionState, position: Position) -> list[str]:
    """Return the entries on the path to a place that the session has retracted, the deepest first."""
    retracted = []
    for entry_id in retracted_ids(tx, state):
        position_, _ = find_held(tx, state, entry_id)
        if position_ is not None and is_on_path(tx, state, position_, position):
            retracted.append((position_.depth, entry_id))
    return [entry_id for _, entry_id in sorted(retracted, reverse=True)]


# Whether an entry lies on the path to a place.
IS_ON_PATH = sql.statement(tuple[int])(
    sql.WITH_SPANS + "SELECT 1 FROM spans s WHERE s.lane_id = :other_lane AND s.high >= :other_depth LIMIT 1"
)


def is_on_path(tx: Transaction, state: SessionState, place: Position, of: Position) -> bool:
    """Return whether a place is another one or above it."""
    if place.lane_id == of.lane_id:
        return place.depth <= of.depth
    on_path = tx.first(
        IS_ON_PATH,
        tree_id=state.tree_id,
        lane_id=of.lane_id,
        depth=of.depth,
        other_lane=place.lane_id,
        other_depth=place.depth,
    )
    return on_path is not None


def _own_entries(tx: Transaction, state: SessionState, entry_id: str) -> int:
    row = tx.first(sql.ENTRY_POSITION, tree_id=state.tree_id, entry_id=entry_id)
    return int(row is not None and row.session_key == state.key)


def _target(tx: Transaction, state: SessionState, target: str | None, verb: str) -> Position | None:
    place = None if target is None else find_visible(tx, state, target)
    if target is not None and place is None:
        raise EntryNotFound(
            state.id, target, detail=f"session {state.id!r}: cannot {verb}: entry {target!r} has been deleted"
        )
    return place


def _operation_to_undo(tx: Transaction, state: SessionState) -> Operation | None:
    record = _latest_record(tx, state, state.revision)
    while record is not None:
        if record.reason == "undo":
            record = _latest_record(tx, state, (record.undoes or 0) - 1)
        elif record.reason == "redo":
            return _operation_at(tx, state, record.undoes or 0)
        elif record.reason == "branch":
            record = _latest_record(tx, state, record.revision - 1)
        else:
            return _operation_at(tx, state, record.revision) if record.reason == "append" else record
    return None


def _operation_to_redo(tx: Transaction, state: SessionState) -> Operation | None:
    """Replay the undos and redos since the last new operation: the last one undone then comes back first."""
    since: list[Operation] = []
    record = _latest_record(tx, state, state.revision)
    while record is not None and record.reason in ("undo", "redo", "branch"):
        since.append(record)
        record = _latest_record(tx, state, record.revision - 1)
    undone: list[int] = []
    for record in reversed(since):
        if record.reason == "undo":
            undone.append(record.undoes or 0)
        elif record.reason == "redo" and undone:
            undone.pop()
    return _operation_at(tx, state, undone[-1]) if undone else None


LAST_MOVE = sql.statement(Operation)(
    "SELECT m.revision, m.reason, m.from_entry, m.to_entry, m.undoes FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision <= :revision ORDER BY m.revision DESC LIMIT 1"
)


def _latest_record(tx: Transaction, state: SessionState, revision: int) -> Operation | None:
    """Return the last change of the leaf at or before a revision: a leaf move, or an append, without its ends."""
    moved = tx.first(LAST_MOVE, session_key=state.key, revision=revision)
    appended = _last_append(tx, state, revision)
    # An import and an append to a branch have both entries and a move at their revision; the move names them.
    if appended is not None and (moved is None or appended.revision > moved.revision):
        return Operation(appended.revision, "append")
    return moved


# From where the leaf moved next after a revision.
NEXT_MOVE_FROM = sql.statement(tuple[str | None])(
    "SELECT m.from_entry FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision > :revision ORDER BY m.revision LIMIT 1"
)


class LastOfRun(Frozen):
    """An entry, who added it, at which revision."""

    id: str
    session_key: int
    revision: int


_WITH_RUN = (
    "WITH RECURSIVE halved(lane_id, low, high) AS ("
    "  SELECT e.lane_id,"
    f"   CASE WHEN {sql.is_after('e', ':revision')} THEN l.fork_depth ELSE e.depth END,"
    f"   CASE WHEN {sql.is_after('e', ':revision')} THEN e.depth - 1 ELSE e.depth END"
    "   FROM entries e JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = e.lane_id"
    "   WHERE e.tree_id = :tree_id AND e.id = :entry_id"
    "  UNION ALL SELECT h.lane_id,"
    f"   CASE WHEN {sql.is_after('e', ':revision')} THEN h.low ELSE e.depth END,"
    f"   CASE WHEN {sql.is_after('e', ':revision')} THEN e.depth - 1 ELSE h.high END"
    "   FROM halved h CROSS JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id"
    "    AND e.depth = (h.low + h.high + 1) / 2 WHERE h.low < h.high) "
)
# Of an entry and those above it in its lane, the deepest that the session did not add after a revision.
LAST_IN_LANE = sql.statement(LastOfRun)(
    f"{_WITH_RUN} SELECT e.id, e.session_key, e.revision FROM halved h"
    " CROSS JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id AND e.depth = h.low WHERE h.low = h.high"
)


def _last_append(tx: Transaction, state: SessionState, revision: int) -> LastOfRun | None:
    """Return the last entry that plain appends have added, if that was between the moves around a revision.

    Such entries are a chain, in one lane, up to the leaf that the next move began at. Any entry that is older than the
    last move may be returned, too.
    """
    end = state.leaf
    if revision < state.revision:
        (end,) = tx.first(NEXT_MOVE_FROM, session_key=state.key, revision=revision) or (end,)
    if end is None:
        return None
    where = {"tree_id": state.tree_id, "session_key": state.key, "entry_id": end, "revision": revision}
    last = tx.first(LAST_IN_LANE, **where)
    return last if last is not None and last.session_key == state.key else None


# The parent of the first that it did add after it.
PARENT_OF_FIRST_IN_LANE = sql.statement(tuple[str | None])(
    f"{_WITH_RUN} SELECT e.parent_id FROM halved h"
    " CROSS JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id AND e.depth = h.low + 1"
    " WHERE h.low = h.high"
)


def _operation_at(tx: Transaction, state: SessionState, revision: int) -> Operation:
    moved = tx.first(LAST_MOVE, session_key=state.key, revision=revision)
    if moved is not None and moved.revision == revision:
        return moved
    last = _last_append(tx, state, revision)
    if last is None or last.revision != revision:
        raise CorruptStore(f"session {state.id!r}: revision {revision} has no entries and no move; run verify()")
    where = {"tree_id": state.tree_id, "session_key": state.key, "entry_id": last.id, "revision": revision - 1}
    (above,) = tx.first(PARENT_OF_FIRST_IN_LANE, **where) or (None,)
    return Operation(revision, "append", above, last.id)


ID_AT = sql.statement(tuple[str])(
    "SELECT e.id FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id AND e.depth = :depth"
)


def id_at(tx: Transaction, tree_id: int, lane_id: int, depth: int) -> str | None:
    """Return the id of the entry at a place, or None."""
    (entry_id,) = tx.first(ID_AT, tree_id=tree_id, lane_id=lane_id, depth=depth) or (None,)
    return entry_id


# ---------------------------------------------------------------------------------------------------------------------
# A path: its rows by range scans over lanes, and the entries that they become.

BY_DEPTH = itemgetter(0)  # what is read along a path has the depth first

OfPath = TypeVar("OfPath", sql.EntryColumns, sql.StoredBody)


def _with_epoch(row: Row) -> tuple[SessionState, int]:
    epoch, *state = row
    return state_of(state), int(epoch or 0)


SESSION_AND_EPOCH = sql.statement(_with_epoch)(f"SELECT {sql.EPOCH}, {sql.STATE}{sql.STATE_FROM}{sql.LIVING}")


def read_epoch(tx: Transaction) -> int:
    """Return the epoch (see `Backend.read_epoch`)."""
    (epoch,) = tx.first(sql.READ_STATE, name="epoch") or (0,)
    return epoch


def read_state_and_epoch(tx: Transaction, session_id: str) -> tuple[SessionState, int]:
    """Return a session with the place of its leaf, and the epoch. Raises `SessionNotFound`."""
    row = tx.first(SESSION_AND_EPOCH, id=session_id) if sessions.is_storable(session_id) else None
    state, epoch = row or (None, 0)
    return checked_state(tx, session_id, state), epoch


def place_to_read(
    tx: Transaction, state: SessionState, leaf: sessions.LeafChoice
) -> tuple[str | None, Position | None]:
    """Return a leaf to read at, and its place; on one snapshot where that has to be looked up."""
    if not isinstance(leaf, sessions.Stored):
        tx.require_snapshot()
    return place(tx, state, leaf)


def ancestor_of(tx: Transaction, state: SessionState, entry_id: str, of: Position | None) -> Position | None:
    """Return the place of an entry that is ``of`` or an ancestor of it, or None."""
    position = find_visible(tx, state, entry_id)
    if of is None or position is None:
        return None
    return position if is_on_path(tx, state, position, of) else None


def spans_range(entry: str) -> str:
    """Return the text that reads columns of the entries of a path over several lanes, in no order."""
    return (
        f"{sql.WITH_SPANS}SELECT {entry} FROM spans s CROSS JOIN entries e ON {sql.IN_SPAN} AND e.depth > :low_depth"
        " WHERE s.high > :low_depth"
    )


SPANS_RANGE = sql.entry_columns(spans_range(sql.on_path(":low_depth")))


def path_entries(
    tx: Transaction, state: SessionState, position: Position | None, above: int, *, contents: bool = True
) -> list[Entry]:
    """Return the entries of a path that lie deeper than ``above``, in order of depth (``contents``: `made_entries`)."""
    if position is None:
        return []
    with collector_held(position.depth - above):
        pages = pages_of_path(tx, state, position, above, sql.LANE_RANGE, SPANS_RANGE)
        return entries_of_pages(tx, state, pages, stretch_of(state, position, above), contents=contents)


PATH_STRETCH = sql.entry_columns(
    sql.WITH_SPANS + f"SELECT {sql.on_path(':low_depth')} FROM spans s CROSS JOIN entries e ON {sql.IN_SPAN}"
    " AND e.depth > :low_depth AND e.depth <= :last_depth WHERE s.high > :low_depth AND s.low < :last_depth"
)


def path_stretch(
    tx: Transaction, state: SessionState, position: Position, above: int, last: int, *, contents: bool = True
) -> list[Entry]:
    """Return the entries on the path to a place that lie deeper than ``above``, and no deeper than ``last``."""
    rows: Sequence[sql.EntryColumns]
    if _is_in_last_lane(position, above):
        rows = tx.rows(sql.LANE_RANGE, tree_id=state.tree_id, lane_id=position.lane_id, low=above, high=last)
    else:
        unsorted = tx.rows(PATH_STRETCH, **spans_of(state, position), low_depth=above, last_depth=last)
        rows = sorted(unsorted, key=BY_DEPTH)
    _require_all(tx, rows, last - above)
    entries = made_entries(tx, state, rows, stretch_of(state, position, above), contents=contents)
    _require_count(state, len(rows), last - above)
    return entries


def named_on_path(
    tx: Transaction, state: SessionState, position: Position, ids: Iterable[str], last_depth: int
) -> list[Entry]:
    """Return those of some entries that lie on the path to a place, no deeper than ``last_depth``, root first."""
    return named_above(tx, state, spans_of(state, position), ids, last_depth)


# Entries on a path that are named, and its exclusions, up to a depth.
NAMED_ON_PATH = sql.statement(sql.StoredEntry)(
    sql.WITH_SPANS + f"SELECT {sql.ENTRY} FROM {sql.ENTRIES_BY_ID}"
    f" AND e.depth <= :last_depth AND EXISTS (SELECT 1 FROM spans s WHERE {sql.IN_SPAN})"
)


def named_above(
    tx: Transaction, state: SessionState, where: Parameters, ids: Iterable[str], last_depth: int
) -> list[Entry]:
    """Return the same as `named_on_path`, of the path to a lane and a depth."""
    named = json.dumps(sorted(entry_id for entry_id in ids if sessions.is_storable(entry_id)))
    rows = tx.rows(NAMED_ON_PATH, **where, ids=named, last_depth=last_depth)
    return entries_of_rows(tx, state, rows)


EXCLUSIONS_ON_PATH = sql.statement(sql.StoredEntry)(
    sql.WITH_SPANS + f"SELECT {sql.ENTRY} FROM spans s CROSS JOIN entries e ON {sql.IN_SPAN} AND e.kind = 'exclusion'"
    " WHERE e.depth <= :last_depth"
)


def exclusions_on_path(tx: Transaction, state: SessionState, position: Position, last_depth: int) -> list[Entry]:
    """Return the exclusions on the path to a place, no deeper than ``last_depth``, root first."""
    rows = tx.rows(EXCLUSIONS_ON_PATH, **spans_of(state, position), last_depth=last_depth)
    return entries_of_rows(tx, state, rows)


def entries_of_rows(tx: Transaction, state: SessionState, rows: Sequence[sql.StoredEntry]) -> list[Entry]:
    """Return entries of a path that need not follow each other, root first."""
    if rows:
        tx.require_snapshot()
    return made_entries(tx, state, sorted(rows, key=BY_DEPTH))


def pages_of_path(
    tx: Transaction,
    state: SessionState,
    position: Position,
    above: int,
    in_lane: Statement[OfPath],
    in_spans: Statement[OfPath],
) -> Pages[OfPath]:
    """Yield the rows of a path that lie deeper than ``above``: one range, or one for each lane it runs through."""
    where = {"tree_id": state.tree_id, "lane_id": position.lane_id, "low": above, "high": position.depth}
    is_in_lane = _is_in_last_lane(position, above)
    count, expected = 0, position.depth - above
    if is_in_lane and tx.is_alone:
        for page in tx.pages(in_lane, **where):
            count += len(page)
            yield page
        _require_count(state, count, expected)
        return
    rows: Sequence[OfPath]
    if is_in_lane:
        rows = tx.rows(in_lane, **where)
    else:
        rows = sorted(tx.rows(in_spans, **spans_of(state, position), low_depth=above), key=BY_DEPTH)
    _require_all(tx, rows, expected)
    yield rows
    _require_count(state, len(rows), expected)


def _is_in_last_lane(position: Position, above: int) -> bool:
    return position.parent_lane is None or position.fork_depth <= above


def _require_all(tx: Transaction, rows: Sequence[OfPath], expected: int) -> None:
    if len(rows) != expected:
        # What is deleted while it is read is missing here: entries change in no other way.
        tx.require_snapshot()


def _require_count(state: SessionState, count: int, expected: int) -> None:
    """Raise `CorruptStore` for a path that is too short or too long, where no entry on it said so before."""
    if count != expected:
        raise damaged_path(state.id, count, expected)


def made_entries(
    tx: Transaction,
    state: SessionState,
    rows: Sequence[sql.EntryColumns],
    stretch: Parameters | None = None,
    *,
    contents: bool = True,
    damaged: list[str] | None = None,
) -> list[Entry]:
    """Return the entries of rows that are all there, as `entries_of_pages` does."""
    return entries_of_pages(tx, state, (page for page in (rows,)), stretch, contents=contents, damaged=damaged)


def entries_of_pages(
    tx: Transaction,
    state: SessionState,
    pages: Pages[sql.EntryColumns],
    stretch: Parameters | None = None,
    *,
    contents: bool = True,
    damaged: list[str] | None = None,
) -> list[Entry]:
    """Return the entries that rows stand for, in their order; ``stretch`` is the part of a path that they are on.

    Without ``contents``, pieces cut out of an artifact are not read, and missing in its payload.
    Raises `CorruptStore`, naming the entry, for one that is not as it was appended, or not below its parent; with
    ``damaged``, its words are added there, and the entry is left out.
    """
    creators, payloads = _Creators(tx, state), Payloads(tx, state, stretch, contents=contents)
    digest_of, last_id, last = tx.chain.digest, None, NO_PARENT
    entries: list[Entry] = []
    with closing(pages):
        for row in chain.from_iterable(pages):
            depth, _, parent, above, by, id_, kind, role, source, revision, ordinal, at, extra, digest, data, _, _ = row
            if data is None:
                data = unpacked(row[15])
            try:
                if above is None:
                    above = last if parent == last_id else _digest_above(state, row)
                # Most payloads are in their rows, and intact: nothing else is called for them.
                if data is None or digest_of(above, row[5:13], data) != digest:
                    data = _checked(tx, state, payloads, row, above, rest_only=not contents and kind == ARTIFACT)
                text = _decoded(state, id_, data)
            except CorruptStore as error:
                if damaged is None:
                    raise
                damaged.append(str(error))
            else:
                creator = creators[by]
                entries.append(
                    Entry(id_, parent, creator, kind, role, source, depth, revision, ordinal, at, text, extra)
                )
            last_id, last = id_, digest
    return entries


def _decoded(state: SessionState, entry_id: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise damaged_entry(entry_id, f"is not text ({error})", state.id) from error


def _checked(
    tx: Transaction, state: SessionState, payloads: Payloads, row: sql.EntryColumns, above: bytes, *, rest_only: bool
) -> bytes:
    """Return the text of a payload that is not in its row as it was appended, or without what was cut out of it."""
    depth, id_, kind, digest, data, packed, blob = row[0], row[5], row[6], *row[13:]
    if rest_only:
        text = payloads.rest(id_, data, packed, blob)
    else:
        text = payloads.text(id_, kind, above, digest, data, packed, blob, depth)
    if not tx.chain.has_fields(digest, above, row[5:13]):
        raise damaged_entry(id_, MISMATCH, state.id)
    return text


def chained(tx: Transaction, state: SessionState, pages: Pages[sql.EntryColumns]) -> Iterator[sql.EntryColumns]:
    """Yield the rows of a path, each with the digest above it; all but the payloads was checked.

    Raises `CorruptStore`, naming the entry.
    """
    last_id, last = None, NO_PARENT
    with closing(pages):
        for row in chain.from_iterable(pages):
            parent, above, entry_id, digest = row[2], row[3], row[5], row[13]
            if above is None:
                above = last if parent == last_id else _digest_above(state, row)
            if not tx.chain.has_fields(digest, above, row[5:13]):
                raise damaged_entry(entry_id, MISMATCH, state.id)
            yield (*row[:3], above, *row[4:])
            last_id, last = entry_id, digest


_NO_PAYLOAD = ", ".join(f"CASE WHEN 1 = 0 THEN {column} END" for column in (sql.PAYLOAD_BYTES, "e.packed", "e.blob"))
SPANS_FIELDS = sql.entry_columns(spans_range(sql.on_path(":low_depth", _NO_PAYLOAD)))


def require_path(tx: Transaction, state: SessionState, where: Parameters, depth: int) -> None:
    """Raise `CorruptStore` if the path to a lane and a depth is not whole: what is not on it may have been. O(path)."""
    rows = sorted(tx.rows(SPANS_FIELDS, **where, low_depth=-1), key=BY_DEPTH)
    _require_all(tx, rows, depth + 1)
    count = sum(1 for _ in chained(tx, state, (page for page in (rows,))))
    _require_count(state, count, depth + 1)


def _digest_above(state: SessionState, row: sql.EntryColumns) -> bytes:
    """Return the digest above a root. Raises `CorruptStore` for an entry below another, which is not before it."""
    parent, entry_id = row[2], row[5]
    if parent is not None:
        raise damaged_entry(entry_id, f"says that it was added to {parent!r}, which is not there", state.id)
    return NO_PARENT


class _Creators(dict[int, str | None]):
    """The ids of the sessions that created entries, by key; None for a deleted one. Others are read when needed."""

    def __init__(self, tx: Transaction, state: SessionState) -> None:
        super().__init__({state.key: state.id})
        self._tx, self._tree_id = tx, state.tree_id

    def __missing__(self, key: int) -> str | None:
        self._tx.require_snapshot()
        for session_key, session_id in self._tx.rows(sql.SESSION_IDS, tree_id=self._tree_id):
            self[session_key] = session_id
        return self.setdefault(key, None)


def stretch_of(state: SessionState, position: Position, above: int) -> Parameters:
    """Return where the part of a path below a depth is, as statements take it."""
    return {"tree_id": state.tree_id, "lane_id": position.lane_id, "depth": position.depth, "low_depth": above}


def spans_of(state: SessionState, position: Position) -> Parameters:
    """Return the place that a path leads to, as statements take it."""
    return place_at(state, position.lane_id, position.depth)


def place_at(state: SessionState, lane_id: int, depth: int) -> Parameters:
    """Return a place of the session's tree, as statements take it."""
    return {"tree_id": state.tree_id, "lane_id": lane_id, "depth": depth}
