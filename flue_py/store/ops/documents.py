"""Documents: texts with a name that belong to the store and to no session."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.documents import (
    SEARCHED,
    Document,
    DocumentFilter,
    DocumentInfo,
    DocumentName,
    DocumentRow,
    DocumentsFound,
    DocumentState,
    NewDocument,
    has_words,
    state_of_document,
)
from flue_py.core.sessions import is_storable
from flue_py.errors import CorruptStore
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sql import documents as documents_sql
from flue_py.store.sql.inserts import COPY_DOCUMENT, PUT_DOCUMENT

_READ_AT_ONCE = 50


def put_document(tx: Transaction, sources: Sources, new: NewDocument) -> DocumentInfo:
    """Write a document, or change the one of its name (see `Backend.put_document`)."""
    tx.insert(PUT_DOCUMENT, [new.row(sources.now_us())])
    found = tx.first(documents_sql.DOCUMENT_INFO, **new.id._asdict())
    if found is None:
        raise CorruptStore(f"document {new.name!r} was written and is not there")
    return found


def get_document(tx: Transaction, name: DocumentName) -> Document | None:
    """Return a document, or None (see `Backend.get_document`)."""
    return tx.first(documents_sql.DOCUMENT, **name._asdict()) if _is_possible(name) else None


def list_documents(
    tx: Transaction, where: DocumentFilter, after: DocumentName | None, limit: int
) -> Sequence[DocumentInfo]:
    """Return a page of documents without their texts (see `Backend.list_documents`)."""
    return tx.rows(documents_sql.LIST_DOCUMENTS, **_page(where, after, limit))


def read_documents(
    tx: Transaction, where: DocumentFilter, after: DocumentName | None, limit: int
) -> Sequence[Document]:
    """Return a page of documents, whole (see `Backend.read_documents`)."""
    return tx.rows(documents_sql.READ_DOCUMENTS, **_page(where, after, limit))


def search_documents(
    tx: Transaction, where: DocumentFilter, words: tuple[str, ...], after: DocumentName | None, limit: int
) -> DocumentsFound:
    """Return the documents that have all of these words (see `Backend.search_documents`)."""
    found: list[Document] = []
    searched = 0
    while searched < SEARCHED:
        wanted = min(_READ_AT_ONCE, SEARCHED - searched)
        page = read_documents(tx, where, after, wanted)
        for document in page:
            searched += 1
            after = document.info.id
            if has_words(document, words):
                found.append(document)
                if len(found) == limit:
                    return DocumentsFound(tuple(found), searched, after)
        if len(page) < wanted:
            return DocumentsFound(tuple(found), searched, None)
    return DocumentsFound(tuple(found), searched, after)


def remove_document(tx: Transaction, name: DocumentName) -> bool:
    """Delete a document (see `Backend.remove_document`)."""
    return _is_possible(name) and tx.run(documents_sql.REMOVE_DOCUMENT, **name._asdict()) > 0


def list_whole_documents(tx: Transaction, after: DocumentName | None, limit: int) -> Sequence[DocumentRow]:
    """Return a page of the documents of all scopes (see `Backend.list_whole_documents`)."""
    scope, kind, space, project, name = ("", "", "", "", "") if after is None else after
    page = documents_sql.AfterNameCount(scope=scope, kind=kind, space=space, project=project, name=name, count=limit)
    return tx.rows(documents_sql.WHOLE_DOCUMENTS, **page)


def write_documents(tx: Transaction, rows: Sequence[DocumentRow]) -> list[DocumentState]:
    """Write documents of another store (see `Backend.write_documents`)."""
    return [_write(tx, row) for row in rows]


def _write(tx: Transaction, row: DocumentRow) -> DocumentState:
    name = documents_sql.Name(scope=row.scope, kind=row.kind, space=row.space, project=row.project, name=row.name)
    before = tx.first(documents_sql.DOCUMENT_STATE, **name)
    if before is not None and before[0] >= row.changed_at:
        return state_of_document(row, *before)
    tx.insert(COPY_DOCUMENT, [row])
    after = tx.first(documents_sql.DOCUMENT_STATE, **name)
    # Where many write at once, another one may have been faster.
    return "written" if after == (row.changed_at, row.digest) else state_of_document(row, *(after or (0, b"")))


def _is_possible(name: DocumentName) -> bool:
    return all(is_storable(part) for part in name)


def _page(where: DocumentFilter, after: DocumentName | None, limit: int) -> documents_sql.Page:
    if after is None:
        # A project is one of a space in the order of the key, so that one alone says nothing of where to begin.
        space, project, name = where.space or "", (where.project or "") if where.space is not None else "", ""
    else:
        _, _, space, project, name = after
    return documents_sql.Page(
        scope=where.scope,
        kind=where.kind,
        only_space=where.space,
        only_project=where.project,
        space=space,
        project=project,
        name=name,
        count=limit,
    )
