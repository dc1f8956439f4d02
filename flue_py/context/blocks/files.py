"""Which files a store has for agents to read: an index alone, since most of them are not needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flue_py.context.blocks.plain import visible_line
from flue_py.context.blocks.protocol import BlockText
from flue_py.core.documents import DocumentFilter, DocumentInfo, DocumentName, check_document_name
from flue_py.core.sessions import scope_meant
from flue_py.errors import InvalidArgument, shown

MOST_FILES = 200
_NAME_CHARS = 200
_HINT_CHARS = 1_000


class ListsDocuments(Protocol):
    """The backend of a store, as far as it lists documents."""

    async def list_documents(
        self, where: DocumentFilter, *, after: DocumentName | None, limit: int
    ) -> Sequence[DocumentInfo]: ...


class StoreOfFiles(Protocol):
    """A store, blocking or not."""

    @property
    def backend(self) -> ListsDocuments: ...
    @property
    def scope(self) -> str | None: ...


class FileIndex:
    """The block ``files``: name, type and size of the files of a store, the first 200 in the order of their names.

    Those of a ``project``, the folder that they were added for, and of none (""). ``hint`` is a line that says how to
    read one, such as the name of the tool. Nothing where there are none.
    """

    name = "files"

    def __init__(self, store: StoreOfFiles, *, scope: str | None = None, project: str = "", hint: str = "") -> None:
        if not callable(getattr(getattr(store, "backend", None), "list_documents", None)):
            raise InvalidArgument(f"store: {shown(store)} is not a store")
        place = scope_meant(store.scope, scope) or ""
        check_document_name(DocumentName(place, "file", "", project, "name"))
        if not isinstance(hint, str):
            raise InvalidArgument(f"hint: {shown(hint)} is not a text")
        self._backend = store.backend
        self._scope = place
        self._projects = ("", project) if project else ("",)
        self._hint = visible_line(hint, _HINT_CHARS)

    async def read(self) -> BlockText | None:
        """Return the index, None if there are no files. O(files that are shown)."""
        found: list[DocumentInfo] = []
        for project in self._projects:
            where = DocumentFilter("file", self._scope, "", project)
            found += await self._backend.list_documents(where, after=None, limit=MOST_FILES + 1)
        if not found:
            return None
        found.sort(key=lambda file: (file.name, file.project))
        lines = ["## Stored files", "", *([self._hint] if self._hint else [])]
        lines += [f"- {_line(file)}" for file in found[:MOST_FILES]]
        if len(found) > MOST_FILES:
            lines.append(f"- ... and more than these {MOST_FILES}")
        return BlockText("\n".join(lines))


def _line(file: DocumentInfo) -> str:
    return f"{visible_line(file.name, _NAME_CHARS)} ({visible_line(file.type, _NAME_CHARS)}, {file.chars:,} characters)"
