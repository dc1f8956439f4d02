"""Memories: what agents keep from one session to the next, as documents of the store."""

from __future__ import annotations

import re
from pathlib import PurePosixPath, PureWindowsPath

from flue_py.core.documents import (
    Document,
    DocumentFilter,
    DocumentInfo,
    DocumentName,
    DocumentsFound,
    NewDocument,
    check_document_name,
    searched_words,
)
from flue_py.core.limits import Limits
from flue_py.errors import InvalidArgument, shown
from flue_py.sessions.arguments import checked_flag, checked_limit
from flue_py.sessions.scoping import Scoped

REPL = "repl"
_SPACE = re.compile(r"repl|agents/.+")
_PAGE = 100


class StoreMemories(Scoped):
    """The half of a `Store` that remembers.

    A memory has a name in a space (``repl``, or ``agents/`` and the name of an agent) and a project: the absolute path
    of a folder, or "" for all of them.
    """

    __slots__ = ()
    _limits: Limits

    async def remember(
        self,
        name: str,
        body: str,
        *,
        type: str = "user",
        space: str = REPL,
        project: str = "",
        scope: str | None = None,
    ) -> DocumentInfo:
        """Keep a fact under a name, in place of what was kept under it before, and return what the store says of it.

        ``type`` is one word: ``user``, ``feedback``, ``project``, ``reference`` or another. The same again changes
        nothing. Raises `InvalidArgument`, which never shows the text. One transaction, O(size).
        """
        _check_place(space, project)
        new = NewDocument("memory", name, body, type, self._place(scope), space, project)
        if not body.strip():
            raise InvalidArgument("body: says nothing; forget() a memory that is no more")
        self._limits.check_document(body)
        return await self._backend.put_document(new)

    async def memories(
        self, *, space: str = REPL, project: str = "", scope: str | None = None, initialized: bool = False
    ) -> tuple[Document, ...]:
        """Return the memories that hold in a project, whole, in order of type, then of name.

        Where the project has some of its own, or is ``initialized``, these are all; else they are those that are for no
        project. What `flue_py.context.blocks.memory_text` tells a model of them has a limit. Raises `InvalidArgument`.
        O(their size).
        """
        _check_place(space, project)
        checked_flag(initialized, "initialized")
        scope = self._place(scope)
        found = await self._memories_of(DocumentFilter("memory", scope, space, project))
        if project and not found and not initialized:
            found = await self._memories_of(DocumentFilter("memory", scope, space, ""))
        return tuple(sorted(found, key=lambda memory: (memory.type, memory.name)))

    async def _memories_of(self, where: DocumentFilter) -> list[Document]:
        found: list[Document] = []
        while True:
            after = found[-1].info.id if found else None
            page = await self._backend.read_documents(where, after=after, limit=_PAGE)
            found += page
            if len(page) < _PAGE:
                return found

    async def search_memories(
        self,
        words: str,
        *,
        space: str | None = None,
        project: str | None = None,
        scope: str | None = None,
        after: DocumentName | None = None,
        limit: int = 20,
    ) -> DocumentsFound:
        """Return up to ``limit`` (1 to 1000) memories whose names or texts have all of these words.

        They are taken literally, in any case, and may be parts of words. Of all spaces and projects where none is
        named; in order of space, project and name. No index helps: a call reads up to 1,000 memories, and its
        ``after`` says where the next one goes on, None at the end. Raises `InvalidArgument`. O(size of what is read).
        """
        if space is not None:
            _check_space(space)
        if project is not None:
            _check_project(project)
        place = self._place(scope)
        if after is not None:
            check_document_name(_checked_after(after))
        where = DocumentFilter("memory", place, space, project)
        asked = searched_words(words)
        return await self._backend.search_documents(where, asked, after=after, limit=checked_limit(limit))

    async def forget(self, name: str, *, space: str = REPL, project: str = "", scope: str | None = None) -> bool:
        """Delete a memory; return whether there was one. Nothing keeps its text. Raises `InvalidArgument`. O(1)."""
        _check_place(space, project)
        found = DocumentName(self._place(scope), "memory", space, project, name)
        check_document_name(found)
        return await self._backend.remove_document(found)


def _check_place(space: str, project: str) -> None:
    _check_space(space)
    _check_project(project)


def _check_space(space: str) -> None:
    if not isinstance(space, str) or not _SPACE.fullmatch(space):
        raise InvalidArgument(f"space: {shown(space)} is neither 'repl' nor 'agents/' and the name of an agent")


def _check_project(project: str) -> None:
    if not isinstance(project, str):
        raise InvalidArgument(f"project: should be a string, not {type(project).__name__}")
    if project and not (PurePosixPath(project).is_absolute() or PureWindowsPath(project).is_absolute()):
        raise InvalidArgument(f"project: {shown(project)} is not the absolute path of a folder; '' is for all of them")


def _checked_after(after: DocumentName) -> DocumentName:
    if not isinstance(after, DocumentName):
        raise InvalidArgument(f"after: {shown(after)} is not the name of a document; give what the page before has")
    return after
