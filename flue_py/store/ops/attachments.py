"""The texts of payloads, with what was cut out of them put back.

Nothing in an entry's row says that something was cut out of its payload: what is left does not have the digest of the
whole. So a read in which every payload has its digest asks for nothing more, and one in which a payload has not looks
up the attachments of all that it reads, once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from flue_py.core.cutting import encoded, splice
from flue_py.core.jsontext import payload_digest
from flue_py.core.unavailable import without_lost
from flue_py.errors import CorruptStore
from flue_py.store.schema.payloads import MISMATCH, check_sum, damaged_entry, unpack, unpack_blob
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import Transaction
from flue_py.store.sql import attachments as attachments_sql
from flue_py.store.sql import read as read_sql
from flue_py.store.sql.read import Stretch

Cuts: TypeAlias = Sequence[tuple[int, bytes]]
"""What was cut out of one payload: the place in what is left, and the SHA-256 of the bytes."""


class Payloads:
    """Reads the payloads of one session, in one transaction; attachments that several of them share are read once.

    ``stretch`` is the part of a path that they are on: then one statement has the attachments of all of them; without
    ``contents``, of all but artifacts, whose texts are asked for by `rest`.
    """

    def __init__(
        self, tx: Transaction, state: SessionState, stretch: Stretch | None = None, *, contents: bool = True
    ) -> None:
        self._tx = tx
        self._state = state
        self._stretch = stretch
        self._of_path = attachments_sql.OF_PATH if contents else attachments_sql.OF_CONTEXT
        self._by_depth: dict[int, list[tuple[int, bytes]]] | None = None
        self._stored: dict[bytes, bytes | None] = {}
        self._encoded: dict[bytes, bytes | None] = {}

    def text(
        self,
        entry_id: str,
        digest: bytes,
        payload: bytes | None,
        packed: bytes | None,
        blob: bytes | None,
        depth: int | None = None,
    ) -> bytes:
        """Return the text of an entry's payload, from its digest and the payload's three columns.

        Words stand for attachments that are lost; the digest is not checked then. Raises `CorruptStore`, naming the
        entry, where the payload cannot be read or is not what its digest was made of.
        """
        try:
            data = payload if payload is not None else apart(self._tx, self._state.tree_id, packed, blob)
            if payload_digest(data) == digest:
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
        if payload_digest(whole) != digest:
            raise damaged_entry(entry_id, MISMATCH, self._state.id)
        return whole

    def rest(self, entry_id: str, payload: bytes | None, packed: bytes | None, blob: bytes | None) -> bytes:
        """Return what a payload is without its attachments, which nothing is read of; no digest is checked.

        Raises `CorruptStore`, naming the entry.
        """
        try:
            return payload if payload is not None else apart(self._tx, self._state.tree_id, packed, blob)
        except CorruptStore as error:
            raise damaged_entry(entry_id, f"cannot be read ({error})", self._state.id) from error

    def whole(self, depth: int, digest: bytes, rest: bytes) -> bytes | None:
        """Return the text that ``rest``, of an entry on the stretch, was cut from; None where it is not all there."""
        try:
            pieces = self._pieces(rest, self._cuts("", depth))
        except CorruptStore:
            return None
        text = splice(rest, [(place, piece) for place, piece in pieces if piece is not None])
        return text if payload_digest(text) == digest else None

    def _cuts(self, entry_id: str, depth: int | None) -> Cuts:
        if self._stretch is None or depth is None:
            return self._tx.rows(attachments_sql.OF_ENTRY, tree_id=self._state.tree_id, entry_id=entry_id)
        if self._by_depth is None:
            self._by_depth = defaultdict(list)
            for at, place, sha256, data in self._tx.rows(self._of_path, **self._stretch):
                self._by_depth[at].append((place, sha256))
                self._stored.setdefault(sha256, data)
        return self._by_depth.get(depth, ())

    def _pieces(self, rest: bytes, cuts: Cuts) -> list[tuple[int, bytes | None]]:
        """Return what was cut out of a payload, in base64; None if it is lost. Raises `CorruptStore` beyond limits."""
        found = [(place, self._piece(sha256)) for place, sha256 in cuts]
        check_sum(rest, (len(piece) for _, piece in found if piece is not None))
        return found

    def _piece(self, sha256: bytes) -> bytes | None:
        if sha256 not in self._encoded:
            is_here = sha256 in self._stored
            data = self._stored.pop(sha256) if is_here else blob_data(self._tx, self._state.tree_id, sha256)
            try:
                self._encoded[sha256] = encoded(unpack_blob(sha256, data))
            except CorruptStore:
                self._encoded[sha256] = None
        return self._encoded[sha256]


def checked_payload(
    tx: Transaction,
    state: SessionState,
    entry_id: str,
    digest: bytes,
    payload: bytes | None,
    packed: bytes | None,
    blob: bytes | None,
) -> bytes:
    """Return the text of one entry's payload, as `Payloads.text` does."""
    return Payloads(tx, state).text(entry_id, digest, payload, packed, blob)


def apart(tx: Transaction, tree_id: int, packed: bytes | None, blob: bytes | None) -> bytes:
    """Return the text of a payload that is packed in its row, or a blob. Raises `CorruptStore`."""
    if packed is not None:
        return unpack(packed)
    data = None if blob is None else blob_data(tx, tree_id, blob)
    if data is None:
        tx.require_snapshot()
    return unpack_blob(b"" if blob is None else blob, data)


def blob_data(tx: Transaction, tree_id: int, sha256: bytes) -> bytes | None:
    """Return the data of a blob; None if there is none."""
    (data,) = tx.first(read_sql.BLOB_DATA, tree_id=tree_id, sha256=sha256) or (None,)
    return data
