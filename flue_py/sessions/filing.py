"""Files: texts that somebody has added to a store for agents to read, as documents of the store."""

from __future__ import annotations

from flue_py.core.documents import (
    Document,
    DocumentFilter,
    DocumentInfo,
    DocumentName,
    NewDocument,
    check_document_name,
)
from flue_py.core.limits import Limits
from flue_py.sessions.scoping import Scoped

_PAGE = 500
_ANY_NAME = "name"


class StoreFiles(Scoped):
    """The files of a `Store`.

    A file has a name and a project, the folder that it is for; "" is for all of them.
    """

    __slots__ = ()
    _limits: Limits

    async def add_file(
        self,
        name: str,
        text: str,
        *,
        media_type: str = "text/plain",
        source: str | None = None,
        project: str = "",
        scope: str | None = None,
    ) -> DocumentInfo:
        """Store a text for agents to read, in place of what has its name, and return what the store says of it.

        ``source`` is where it came from. `flue_py.transfer.add_files` reads it from the disk.
        The same again changes nothing. Raises `InvalidArgument`, which never shows the text. One transaction, O(size).
        """
        new = NewDocument("file", name, text, media_type, self._place(scope), "", project, source)
        self._limits.check_document(text)
        return await self._backend.put_document(new)

    async def files(self, *, project: str | None = None, scope: str | None = None) -> tuple[DocumentInfo, ...]:
        """Return the files of a project, or of all, in order of project and name, without their texts.

        O(files). Raises `InvalidArgument`.
        """
        place = self._place(scope)
        check_document_name(DocumentName(place, "file", "", "" if project is None else project, _ANY_NAME))
        where = DocumentFilter("file", place, "", project)
        found: list[DocumentInfo] = []
        while True:
            page = await self._backend.list_documents(where, after=found[-1].id if found else None, limit=_PAGE)
            found += page
            if len(page) < _PAGE:
                return tuple(found)

    async def read_file(self, name: str, *, project: str = "", scope: str | None = None) -> Document | None:
        """Return a file, whole, or None if there is none of that name. Raises `InvalidArgument`. O(size)."""
        return await self._backend.get_document(_checked(name, project, self._place(scope)))

    async def remove_file(self, name: str, *, project: str = "", scope: str | None = None) -> bool:
        """Delete a file; return whether there was one. Nothing keeps its text. Raises `InvalidArgument`. O(size)."""
        return await self._backend.remove_document(_checked(name, project, self._place(scope)))


def _checked(name: str, project: str, scope: str) -> DocumentName:
    found = DocumentName(scope, "file", "", project, name)
    check_document_name(found)
    return found
