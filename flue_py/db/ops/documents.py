"""The statements on documents."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter

from flue_py.core import sessions
from flue_py.core.chain import Chain
from flue_py.core.json import NamedTuple, decode_json, payload_digest
from flue_py.db import sql
from flue_py.db.runner import Insert, Nothing, Parameters, Row, Sources, Statement, Transaction
from flue_py.errors import MISMATCH, CorruptStore, OnHold

# ---------------------------------------------------------------------------------------------------------------------
# The statements on documents.

NAME_PARTS = ("scope", "kind", "space", "project", "name")


def _info(chain: Chain, row: Row) -> sessions.DocumentInfo:
    *columns, digest, seal = row
    info = sessions.DocumentInfo(*columns)
    if not chain.has_seal(seal, _TABLE, (*columns, digest)):
        raise CorruptStore(f"document {info.name!r} {MISMATCH}; restore a backup, or store it anew")
    return info


def _document(chain: Chain, row: Row) -> sessions.Document:
    *columns, body = row
    info = _info(chain, tuple(columns))
    if payload_digest(body) != columns[-2]:
        raise CorruptStore(f"document {info.name!r} {MISMATCH}; restore a backup, or store it anew")
    return sessions.Document(info, body.decode())


_TABLE = "documents"
_INFO = ", ".join(f"d.{name}" for name in sessions.DocumentRow._fields[:10])
_SEALED = f"{_INFO}, {sql.DOCUMENT_DIGEST}, d.seal"
_IS_IT = " AND ".join(f"d.{name} = :{name}" for name in NAME_PARTS)
# A page begins behind a name. A space or a project that is not asked for is NULL.
_PAGE = (
    "FROM documents d WHERE d.scope = :scope AND d.kind = :kind"
    " AND (d.space, d.project, d.name) > (:space, :project, :name)"
    " AND (:only_space IS NULL OR d.space = :only_space) AND (:only_project IS NULL OR d.project = :only_project)"
    " ORDER BY d.space, d.project, d.name LIMIT :count"
)

_WHOLE = f"{_SEALED}, {sql.BODY_BYTES}"
DOCUMENT = sql.statement(Row)(f"SELECT {_WHOLE} FROM documents d WHERE {_IS_IT}")
DOCUMENT_INFO = sql.statement(Row)(f"SELECT {_SEALED} FROM documents d WHERE {_IS_IT}")
LIST_DOCUMENTS = sql.statement(Row)(f"SELECT {_SEALED} {_PAGE}")
ALL_DOCUMENTS = sql.statement(Row)(f"SELECT {_SEALED} FROM documents d")
_FIRST = dict.fromkeys(NAME_PARTS, "")
_AFTER = (
    " WHERE (d.scope, d.kind, d.space, d.project, d.name) > (:scope, :kind, :space, :project, :name){}"
    " ORDER BY d.scope, d.kind, d.space, d.project, d.name LIMIT :count"
)
SEALED_AFTER = sql.statement(Row)(f"{ALL_DOCUMENTS.sql}{_AFTER.format('')}")
READ_DOCUMENTS = sql.statement(Row)(f"SELECT {_WHOLE} {_PAGE}")
NAMES_IN_PROJECT = sql.statement(tuple[str])(
    "SELECT d.name FROM documents d"
    " WHERE d.scope = :scope AND d.kind = :kind AND d.space = :space AND d.project = :project"
)
ALL_HOLDS = sql.statement(Row)(f"SELECT {_WHOLE} FROM documents d WHERE d.space = '{sessions.LEGAL_HOLDS}'")
HOLDS_IN = sql.statement(Row)(
    f"SELECT {_WHOLE} FROM documents d WHERE d.scope {sql.IN_IDS} AND d.kind = 'file'"
    f" AND d.space = '{sessions.LEGAL_HOLDS}'"
)
_IS_NAME = _IS_IT.replace("d.", "")
# Of all names, in their order.
_NAMED, _BACKWARDS = (", ".join(f"d.{name}{order}" for name in NAME_PARTS) for order in ("", " DESC"))
_AT = "(:scope, :kind, :space, :project, :name)"
NAME_BEFORE = sql.statement(Row)(
    f"SELECT {_NAMED} FROM documents d WHERE ({_NAMED}) < {_AT} ORDER BY {_BACKWARDS} LIMIT 1"
)
REMOVE_DOCUMENT = sql.statement(Nothing)(f"DELETE FROM documents WHERE {_IS_NAME}")
# Which sessions were deleted is remembered of all scopes in one, and stays.
REMOVE_DOCUMENTS = sql.statement(Nothing)(
    f"DELETE FROM documents WHERE scope = :scope AND (space <> '{sessions.IMPORTED_FILES}' OR project = '')"
)
SET_SEAL = sql.statement(Nothing)(f"UPDATE documents SET seal = :seal WHERE {_IS_NAME}")

# -- copies and verification -----------------------------------------------------------------------------------------

WHOLE_DOCUMENTS = sql.statement(sessions.DocumentRow)(
    f"SELECT {sql.quoted(sessions.DocumentRow, 'd')} FROM documents d"
    + _AFTER.format(f" AND d.space <> '{sessions.IMPORTED_FILES}'")
)
# In one statement, which sees one moment: the name before a place or at it, those behind it, and the end of the table.
_NAMES = f"SELECT {_NAMED}, d.gap FROM documents d WHERE ({_NAMED})"
GAPS = sql.statement(Row)(
    f"SELECT 0, a.* FROM ({_NAMES} <= {_AT} ORDER BY {_BACKWARDS} LIMIT 1) a"
    f" UNION ALL SELECT 1, b.* FROM ({_NAMES} > {_AT} ORDER BY {_NAMED} LIMIT :count) b"
    f" UNION ALL SELECT 2, {', '.join(['CAST(NULL AS TEXT)'] * len(NAME_PARTS))},"
    f" COALESCE((SELECT f.value FROM flue_store f WHERE f.name = '{_TABLE}'), 0)"
)
SET_GAP = sql.statement(Nothing)(f"UPDATE documents SET gap = :gap WHERE {_IS_NAME}")
# Who adds documents, or deletes them, is alone with that.
LOCK_GAPS = sql.statement(Nothing)(
    f"INSERT INTO flue_store (name, value) VALUES ('{_TABLE}', 0)"
    " ON CONFLICT (name) DO UPDATE SET value = flue_store.value"
)
DOCUMENT_STATE = sql.statement(tuple[int, bytes])(f"SELECT d.changed_at, d.digest FROM documents d WHERE {_IS_IT}")


# ---------------------------------------------------------------------------------------------------------------------
# Documents: texts with a name that belong to the store and to no session.

_READ_AT_ONCE = 50


def put_document(tx: Transaction, sources: Sources, new: sessions.NewDocument) -> sessions.DocumentInfo:
    """Write a document, or change the one of its name (see `Backend.put_document`)."""
    return put_row(tx, new.row(sources.now_us()))


def put_row(tx: Transaction, row: sessions.DocumentRow) -> sessions.DocumentInfo:
    """Write the row of a document, or change the one of its name; return it as it is then."""
    name = row.id._asdict()
    tx.run(LOCK_GAPS)
    if (before := tx.first(DOCUMENT_INFO, **name)) is not None:
        _info(tx.chain, before)
    _insert(tx, sql.PUT_DOCUMENT, row, is_new=before is None)
    stored = tx.first(DOCUMENT_INFO, **name)
    if stored is None:
        raise CorruptStore(f"document {row.name!r} was written and is not there")
    if before is not None and stored != before:
        # Its times are not those that were given.
        seal = tx.chain.seal(_TABLE, stored[:-1])
        tx.run(SET_SEAL, **name, seal=seal)
        stored = (*stored[:-1], seal)
    return _info(tx.chain, stored)


def _sealed(chain: Chain, row: sessions.DocumentRow) -> sessions.DocumentRow:
    return row._replace(seal=chain.seal(_TABLE, row[:11]))


def seal_anew(tx: Transaction) -> None:
    """Seal all documents. O(documents), without their texts."""
    if rows := tx.rows(ALL_DOCUMENTS):
        tx.run(LOCK_GAPS)
        _seal(tx, rows)
        seal_gaps(tx)


def _seal(tx: Transaction, rows: Iterable[Row]) -> None:
    seals = [dict(zip(NAME_PARTS, row, strict=False), seal=tx.chain.seal(_TABLE, row[:-1])) for row in rows]
    tx.run_many(SET_SEAL, seals)


def rekey_documents(
    tx: Transaction, place: sessions.DocumentName | None, *, most: int
) -> tuple[sessions.DocumentName | None, int]:
    """Seal some documents with the new key of the store, but those without their seals. O(``most``)."""
    tx.run(LOCK_GAPS)
    page = tx.rows(SEALED_AFTER, **(place._asdict() if place else _FIRST), count=most)
    _seal(tx, [row for row in page if is_sealed(tx.chain, row)])
    last = sessions.DocumentName(*page[-1][:5]) if len(page) == most else None
    _seal_all(tx, [gap for gap in gaps(tx, place or _START, last or ()) if gap.is_sealed(tx.chain)])
    return last, 0


def is_sealed(chain: Chain, row: Row) -> bool:
    """Return whether a row of `ALL_DOCUMENTS` has its seal."""
    return chain.has_seal(row[-1], _TABLE, row[:-1])


# -- gaps: which name is the next one, so that none is missing ---------------------------------------------------------

_START = ("",) * len(NAME_PARTS)
_GAPS_AT_ONCE = 200


class Gap(NamedTuple):
    """Two names with no other between them, in the order of all, and a seal of that; () is the beginning or the end."""

    before: Row
    after: Row
    seal: int

    def sealed(self, chain: Chain) -> int:
        """Return the seal that it has to have."""
        return chain.seal(_TABLE, self[:2]) if self.before or self.after else 0

    def is_sealed(self, chain: Chain) -> bool:
        """Return whether it has its seal."""
        is_empty = not (self.before or self.after) and chain.checks
        return self.seal == 0 if is_empty else chain.has_seal(self.seal, _TABLE, self[:2])


def gaps(tx: Transaction, start: Row = _START, end: Row = ()) -> Iterator[Gap]:
    """Yield the gaps behind a place, up to that which leads beyond ``end``, the beginning of a name. O(names)."""
    count = 1 if len(end) == len(_START) else _GAPS_AT_ONCE
    while True:
        page = tx.rows(GAPS, **dict(zip(NAME_PARTS, start, strict=True)), count=count)
        *rows, (*_, last) = sorted(page, key=itemgetter(0))
        before = rows.pop(0)[1:-1] if rows and rows[0][0] == 0 else ()
        for _, *name, seal in rows:
            yield Gap(before, tuple(name), seal)
            before = start = tuple(name)
            # SQLite may hold anything in it.
            if [str(part) for part in before[: len(end)]] > [*end]:
                return
        if len(rows) < count:
            yield Gap(before, (), last)
            return


def check_gaps(tx: Transaction, start: Row, end: Row) -> None:
    """Raise `CorruptStore` if a document behind a place is gone. O(names up to ``end``)."""
    for gap in gaps(tx, start, end) if tx.chain.checks else ():
        if not gap.is_sealed(tx.chain):
            raise CorruptStore(f"{described(gap)}; restore a backup, or store it anew")


def described(gap: Gap) -> str:
    """Return that a document is gone, in words."""
    before, after = (repr(name[-1]) if name else None for name in gap[:2])
    place = f"between {before} and {after}" if before and after else f"behind {before}" if before else f"before {after}"
    return f"a document {place if before or after else 'of the store'} is gone"


def seal_gaps(tx: Transaction, start: Row = _START, end: Row = ()) -> None:
    """Seal the gaps behind a place as they are, which are locked. O(names up to ``end``)."""
    _seal_all(tx, gaps(tx, start, end))


def _seal_all(tx: Transaction, unsealed: Iterable[Gap]) -> None:
    for gap in [*unsealed]:
        seal = gap.sealed(tx.chain)
        if gap.after:
            tx.run(SET_GAP, **dict(zip(NAME_PARTS, gap.after, strict=True)), gap=seal)
        else:
            tx.run(sql.WRITE_STATE, name=_TABLE, number=seal)


def _insert(tx: Transaction, insert: Insert[sessions.DocumentRow], row: sessions.DocumentRow, *, is_new: bool) -> None:
    """Write a row, sealed. One that is gone may come back into its gap. The gaps are locked."""
    if not is_new:
        tx.insert(insert, [_sealed(tx.chain, row)])
        return
    (gap,) = gaps(tx, row.id, row.id)
    if not gap._replace(before=tuple(row.id)).is_sealed(tx.chain):
        check_gaps(tx, row.id, row.id)
    tx.insert(insert, [_sealed(tx.chain, row)])
    seal_gaps(tx, gap.before or _START, row.id)


def _remove(tx: Transaction, name: sessions.DocumentName) -> bool:
    tx.run(LOCK_GAPS)
    before = tx.first(NAME_BEFORE, **name._asdict()) or _START
    check_gaps(tx, before, name)
    is_there = tx.run(REMOVE_DOCUMENT, **name._asdict()) > 0
    if is_there:
        seal_gaps(tx, before, name)
    return is_there


def get_document(tx: Transaction, name: sessions.DocumentName) -> sessions.Document | None:
    """Return a document, or None (see `Backend.get_document`)."""
    row = tx.first(DOCUMENT, **name._asdict()) if _is_possible(name) else None
    if row is None and _is_possible(name):
        check_gaps(tx, name, name)
    return None if row is None else _document(tx.chain, row)


def list_documents(
    tx: Transaction, where: sessions.DocumentFilter, after: sessions.DocumentName | None, limit: int
) -> Sequence[sessions.DocumentInfo]:
    """Return a page of documents without their texts (see `Backend.list_documents`)."""
    return [_info(tx.chain, row) for row in _rows(tx, LIST_DOCUMENTS, where, after, limit)]


def read_documents(
    tx: Transaction, where: sessions.DocumentFilter, after: sessions.DocumentName | None, limit: int
) -> Sequence[sessions.Document]:
    """Return a page of documents, whole (see `Backend.read_documents`)."""
    return [_document(tx.chain, row) for row in _rows(tx, READ_DOCUMENTS, where, after, limit)]


def _rows(
    tx: Transaction,
    listing: Statement[Row],
    where: sessions.DocumentFilter,
    after: sessions.DocumentName | None,
    limit: int,
) -> Sequence[Row]:
    """Return a page of rows of which none is missing."""
    page = _page(where, after, limit)
    rows = tx.rows(listing, **page)
    end: Row = (where.scope, where.kind)
    if len(rows) == limit:
        end = rows[-1][: len(_START)]
    elif where.space is not None:
        end += (where.space,) if where.project is None else (where.space, where.project)
    check_gaps(tx, tuple(page[name] for name in NAME_PARTS), end)
    return rows


def search_documents(
    tx: Transaction,
    where: sessions.DocumentFilter,
    words: tuple[str, ...],
    after: sessions.DocumentName | None,
    limit: int,
) -> sessions.DocumentsFound:
    """Return the documents that have all of these words (see `Backend.search_documents`)."""
    documents: list[sessions.Document] = []
    searched = 0
    while searched < sessions.SEARCHED:
        wanted = min(_READ_AT_ONCE, sessions.SEARCHED - searched)
        page = read_documents(tx, where, after, wanted)
        for document in page:
            searched += 1
            after = document.info.id
            if sessions.has_words(document, words):
                documents.append(document)
                if len(documents) == limit:
                    return sessions.DocumentsFound(tuple(documents), searched, after)
        if len(page) < wanted:
            return sessions.DocumentsFound(tuple(documents), searched, None)
    return sessions.DocumentsFound(tuple(documents), searched, after)


def remove_document(tx: Transaction, name: sessions.DocumentName) -> bool:
    """Delete a document (see `Backend.remove_document`)."""
    if not _is_possible(name):
        return False
    if name.space != sessions.LEGAL_HOLDS:
        check_holds(tx, [name.scope], ())
    return _remove(tx, name)


def remove_documents(tx: Transaction, scope: str) -> None:
    """Delete the documents of a scope. O(its documents)."""
    tx.run(LOCK_GAPS)
    tx.run(REMOVE_DOCUMENTS, scope=scope)
    seal_gaps(tx, (scope, "", "", "", ""), (scope,))


# -- legal holds ------------------------------------------------------------------------------------------------------


def list_holds(tx: Transaction, scope: str | None) -> list[sessions.LegalHold]:
    """Return the legal holds of a scope, or of all (see `Backend.list_holds`)."""
    rows = tx.rows(ALL_HOLDS) if scope is None else tx.rows(HOLDS_IN, ids=json.dumps([scope]))
    check_gaps(tx, *((_START, ()) if scope is None else _holds_of(scope)))
    return sorted((_hold(tx.chain, row) for row in rows), key=lambda hold: (hold.at_us, hold.name))


def check_holds(
    tx: Transaction, scopes: Collection[str], session_ids: Collection[str] | None, despite: Collection[str] = ()
) -> list[sessions.LegalHold]:
    """Raise `OnHold` if a hold is on a scope, or on one of these sessions in them (None: on any), but for ``despite``.

    Return the holds that are on them despite that. O(holds of the scopes).
    """
    names = {sessions.hold_name(name) for name in (None, *(session_ids or ()))}
    rows = tx.rows(HOLDS_IN, ids=json.dumps([*scopes]))
    for scope in sorted(scopes):
        check_gaps(tx, *_holds_of(scope))
    holds = [_hold(tx.chain, row) for row in rows if session_ids is None or row[4] in names]
    if stopping := [hold for hold in holds if hold.name not in despite]:
        raise OnHold([hold.name for hold in stopping], str(stopping[0]))
    return holds


def _holds_of(scope: str) -> tuple[Row, Row]:
    place = (scope, "file", sessions.LEGAL_HOLDS)
    return (*place, "", ""), place


def remove_holds(tx: Transaction, holds: Sequence[sessions.LegalHold]) -> list[str]:
    """Remove the holds on sessions among these, and return their texts: the sessions are deleted despite them."""
    documents = [hold.document() for hold in holds if hold.session_id is not None]
    for document in documents:
        _remove(tx, document.id)
    return [document.body for document in documents]


def _hold(chain: Chain, row: Row) -> sessions.LegalHold:
    document = _document(chain, row)
    fields = decode_json(document.body)
    if not isinstance(fields, dict):
        raise CorruptStore(f"the legal hold {document.info.name!r} of scope {document.info.scope!r} is no object")
    session_id, by, why = (
        text if isinstance(text := fields.get(name), str) else None for name in ("session", "by", "why")
    )
    return sessions.LegalHold(document.info.scope, session_id, by, why, document.info.created_us)


def list_whole_documents(
    tx: Transaction, after: sessions.DocumentName | None, limit: int
) -> Sequence[sessions.DocumentRow]:
    """Return a page of the documents of all scopes (see `Backend.list_whole_documents`)."""
    rows = tx.rows(WHOLE_DOCUMENTS, **(after._asdict() if after else _FIRST), count=limit)
    for row in rows:
        _info(tx.chain, (*row[:11], row.seal))
    check_gaps(tx, after or _START, rows[-1][: len(_START)] if len(rows) == limit else ())
    return [row._replace(seal=0, gap=0) for row in rows]


def write_documents(tx: Transaction, rows: Sequence[sessions.DocumentRow]) -> list[sessions.DocumentState]:
    """Write documents of another store (see `Backend.write_documents`)."""
    return [_write(tx, row) for row in rows]


_COPIED = ", ".join(f"{name} = excluded.{name}" for name in sessions.DocumentRow._fields[5:-1])
COPY_DOCUMENT = Insert(
    "documents", sessions.DocumentRow, f"{sql.SAME_DOCUMENT} {_COPIED} WHERE documents.changed_at < excluded.changed_at"
)


def _write(tx: Transaction, row: sessions.DocumentRow) -> sessions.DocumentState:
    name = {"scope": row.scope, "kind": row.kind, "space": row.space, "project": row.project, "name": row.name}
    tx.run(LOCK_GAPS)
    before = tx.first(DOCUMENT_STATE, **name)
    if before is not None and before[0] >= row.changed_at:
        return sessions.state_of_document(row, *before)
    _insert(tx, COPY_DOCUMENT, row, is_new=before is None)
    after = tx.first(DOCUMENT_STATE, **name)
    # Where many write at once, another one may have been faster.
    return "written" if after == (row.changed_at, row.digest) else sessions.state_of_document(row, *(after or (0, b"")))


def _is_possible(name: sessions.DocumentName) -> bool:
    return all(sessions.is_storable(part) for part in name)


def _page(where: sessions.DocumentFilter, after: sessions.DocumentName | None, limit: int) -> Parameters:
    if after is None:
        # A project is one of a space in the order of the key, so that one alone says nothing of where to begin.
        space, project, name = where.space or "", (where.project or "") if where.space is not None else "", ""
    else:
        _, _, space, project, name = after
    return {
        "scope": where.scope,
        "kind": where.kind,
        "only_space": where.space,
        "only_project": where.project,
        "space": space,
        "project": project,
        "name": name,
        "count": limit,
    }
