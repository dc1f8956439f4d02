"""The statements on documents."""

from __future__ import annotations

from typing import TypedDict

from flue_py.core.documents import IMPORTED_FILES, Document, DocumentInfo, DocumentRow
from flue_py.store.seam import Nothing, Row
from flue_py.store.sql.dialects import statement

NAME_PARTS = ("scope", "kind", "space", "project", "name")

Name = TypedDict("Name", {"scope": str, "kind": str, "space": str, "project": str, "name": str})
InProject = TypedDict("InProject", {"scope": str, "kind": str, "space": str, "project": str})
AfterNameCount = TypedDict(
    "AfterNameCount", {"scope": str, "kind": str, "space": str, "project": str, "name": str, "count": int}
)
Page = TypedDict(
    "Page",
    {
        "scope": str,
        "kind": str,
        "only_space": str | None,
        "only_project": str | None,
        "space": str,
        "project": str,
        "name": str,
        "count": int,
    },
)


def _info(row: Row) -> DocumentInfo:
    return DocumentInfo(*row)


def _document(row: Row) -> Document:
    *columns, body = row
    return Document(DocumentInfo(*columns), body)


_INFO = ", ".join(f"d.{name}" for name in DocumentRow._fields if name not in ("digest", "body"))
_ROW = ", ".join(f"d.{name}" for name in DocumentRow._fields)
_IS_IT = " AND ".join(f"d.{name} = :{name}" for name in NAME_PARTS)
# A page begins behind a name. A space or a project that is not asked for is NULL.
_PAGE = (
    "FROM documents d WHERE d.scope = :scope AND d.kind = :kind"
    " AND (d.space, d.project, d.name) > (:space, :project, :name)"
    " AND (:only_space IS NULL OR d.space = :only_space) AND (:only_project IS NULL OR d.project = :only_project)"
    " ORDER BY d.space, d.project, d.name LIMIT :count"
)

DOCUMENT = statement(Name, _document)(f"SELECT {_INFO}, d.body FROM documents d WHERE {_IS_IT}")
DOCUMENT_INFO = statement(Name, _info)(f"SELECT {_INFO} FROM documents d WHERE {_IS_IT}")
LIST_DOCUMENTS = statement(Page, _info)(f"SELECT {_INFO} {_PAGE}")
READ_DOCUMENTS = statement(Page, _document)(f"SELECT {_INFO}, d.body {_PAGE}")
NAMES_IN_PROJECT = statement(InProject, tuple[str])(
    "SELECT d.name FROM documents d"
    " WHERE d.scope = :scope AND d.kind = :kind AND d.space = :space AND d.project = :project"
)
REMOVE_DOCUMENT = statement(Name, Nothing)(
    f"DELETE FROM documents WHERE {' AND '.join(f'{name} = :{name}' for name in NAME_PARTS)}"
)

# -- copies and verification -----------------------------------------------------------------------------------------

WHOLE_DOCUMENTS = statement(AfterNameCount, DocumentRow)(
    f"SELECT {_ROW} FROM documents d"
    " WHERE (d.scope, d.kind, d.space, d.project, d.name) > (:scope, :kind, :space, :project, :name)"
    f" AND d.space <> '{IMPORTED_FILES}'"
    " ORDER BY d.scope, d.kind, d.space, d.project, d.name LIMIT :count"
)
DOCUMENT_STATE = statement(Name, tuple[int, bytes])(f"SELECT d.changed_at, d.digest FROM documents d WHERE {_IS_IT}")
