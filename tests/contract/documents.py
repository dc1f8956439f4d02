"""The contract: documents, which belong to the store and to no session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from hashlib import sha256

import pytest

from flue_py.core.sessions import (
    MAX_DOCUMENT_NAME,
    MAX_NAME_BYTES,
    MAX_PROJECT,
    MAX_SPACE,
    SEARCHED,
    Document,
    DocumentFilter,
    DocumentInfo,
    DocumentKind,
    DocumentName,
    NewDocument,
    searched_words,
)
from flue_py.db.backend import Backend
from flue_py.errors import InvalidArgument
from tests.samples import new_session, talk

MEMORIES = DocumentFilter("memory")


def memory(
    name: str, body: str = "what it says", *, space: str = "repl", project: str = "", scope: str = ""
) -> NewDocument:
    """Return a memory."""
    return NewDocument("memory", name, body, "user", scope, space, project)


def key_of(name: str, *, kind: DocumentKind = "memory", space: str = "repl", project: str = "") -> DocumentName:
    """Return what a document is found by."""
    return DocumentName("", kind, space, project, name)


async def put(backend: Backend, *new: NewDocument) -> None:
    """Store documents."""
    for each in new:
        await backend.put_document(each)


async def documents_of(backend: Backend) -> list[Document]:
    """Return all documents of a store, of the scopes that these tests have."""
    found: list[Document] = []
    for scope in ("", "other"):
        for kind in ("memory", "file"):
            found += await backend.read_documents(DocumentFilter(kind, scope), after=None, limit=10_000)
    return found


async def names(backend: Backend, where: DocumentFilter, limit: int = 100) -> list[tuple[str, str, str]]:
    """Return spaces, projects and names, read in pages of ``limit``, having checked that both ways to read agree."""
    found: list[DocumentInfo] = []
    async for page in pages(backend, where, limit):
        found += page
    whole = await backend.read_documents(where, after=None, limit=1_000)
    assert [each.info for each in whole] == found
    return [(info.space, info.project, info.name) for info in found]


async def pages(backend: Backend, where: DocumentFilter, limit: int) -> AsyncIterator[Sequence[DocumentInfo]]:
    """Yield the pages of a list."""
    after: DocumentName | None = None
    while page := await backend.list_documents(where, after=after, limit=limit):
        after = page[-1].id
        yield page


class DocumentContract:
    """Documents."""

    async def test_a_document_is_read_as_it_was_stored(self, backend: Backend) -> None:
        body = "é 🚨\r\n\ttabs, and \\u0000 as six characters\n" * 2_000
        new = NewDocument("file", "notes.md", body, "text/markdown", "", "", "/work", "/home/me/notes.md")
        info = await backend.put_document(new)
        found = await backend.get_document(new.id)
        assert found == Document(info, body)
        assert (info.id, info.type, info.source, info.chars) == (
            new.id,
            "text/markdown",
            "/home/me/notes.md",
            len(body),
        )
        assert info.created_us == info.changed_us > 0
        assert await backend.get_document(new.id._replace(name="notes")) is None
        assert await backend.get_document(new.id._replace(kind="memory")) is None
        assert await backend.get_document(new.id._replace(scope="other")) is None
        assert await backend.get_document(new.id._replace(name="no\0tes\ud800")) is None

    async def test_a_change_is_later_than_what_it_changes_and_the_same_again_is_none(self, backend: Backend) -> None:
        first = await backend.put_document(memory("m", "one"))
        assert await backend.put_document(memory("m", "one")) == first
        second = await backend.put_document(memory("m", "two, longer"))
        assert (second.created_us, second.chars) == (first.created_us, 11)
        assert second.changed_us > first.changed_us
        third = await backend.put_document(NewDocument("memory", "m", "two, longer", "project", space="repl"))
        assert (third.type, third.chars) == ("project", 11)
        assert third.changed_us > second.changed_us
        fourth = await backend.put_document(
            NewDocument("memory", "m", "two, longer", "project", space="repl", source="/a")
        )
        assert (fourth.source, fourth.changed_us > third.changed_us) == ("/a", True)
        assert (await backend.info()).documents == 1

    async def test_lists_are_in_order_and_read_page_by_page(self, backend: Backend) -> None:
        expected = [
            ("agents/a", "", "z"), ("agents/a", "/p", "a"), ("repl", "", "B"), ("repl", "", "a"), ("repl", "", "é"),
            ("repl", "/p", "a"), ("repl", "/p/q", "a"),
        ]  # fmt: skip
        for space, project, name in reversed(expected):
            await put(backend, memory(name, space=space, project=project))
        await put(backend, memory("a", scope="other"), NewDocument("file", "a", "x", "text/plain"))
        for limit in (1, 2, 3, 100):
            assert await names(backend, MEMORIES, limit) == expected
            of_space = [each for each in expected if each[0] == "repl"]
            assert await names(backend, DocumentFilter("memory", space="repl"), limit) == of_space
            of_project = [each for each in expected if each[1] == "/p"]
            assert await names(backend, DocumentFilter("memory", project="/p"), limit) == of_project
            assert await names(backend, DocumentFilter("memory", space="repl", project=""), limit) == expected[2:5]
            assert await names(backend, DocumentFilter("memory", space="repl", project="/p"), limit) == expected[5:6]
        assert await names(backend, DocumentFilter("memory", space="none")) == []
        assert await names(backend, DocumentFilter("memory", "other")) == [("repl", "", "a")]
        assert await names(backend, DocumentFilter("file")) == [("", "", "a")]

    async def test_a_page_goes_on_behind_a_document_that_is_gone(self, backend: Backend) -> None:
        await put(backend, memory("a"), memory("b"), memory("c"))
        assert await backend.remove_document(key_of("b"))
        page = await backend.list_documents(MEMORIES, after=key_of("b"), limit=10)
        assert [info.name for info in page] == ["c"]

    async def test_a_search_finds_every_word_in_any_case_literally(self, backend: Backend) -> None:
        await put(
            backend,
            memory("Editor", "uses vim, 100% of the time"),
            memory("shell", "FISH_shell and ÉCLAIR"),
            memory("language", "writes vim script", project="/p"),
        )
        for words, expected in (
            ("VIM", ["Editor", "language"]), ("vim time", ["Editor"]), ("100%", ["Editor"]), ("%", ["Editor"]),
            ("h_s", ["shell"]), ("éclair", ["shell"]), ("editor", ["Editor"]), ("vim nothing", []), ("v.m", []),
        ):  # fmt: skip
            found = await backend.search_documents(MEMORIES, searched_words(words), after=None, limit=10)
            assert [each.name for each in found.documents] == expected
            assert (found.searched, found.after) == (3, None)
        in_project = DocumentFilter("memory", project="/p")
        found = await backend.search_documents(in_project, searched_words("vim"), after=None, limit=10)
        assert [each.name for each in found.documents] == ["language"]
        first = await backend.search_documents(MEMORIES, searched_words("vim"), after=None, limit=1)
        assert ([each.name for each in first.documents], first.searched) == (["Editor"], 1)
        assert first.after == key_of("Editor")
        second = await backend.search_documents(MEMORIES, searched_words("vim"), after=first.after, limit=10)
        assert [each.name for each in second.documents] == ["language"]

    async def test_a_search_reads_so_many_and_says_where_to_go_on(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert SEARCHED == 1_000
        monkeypatch.setattr("flue_py.db.ops.documents.SEARCHED", 70)
        await put(backend, *(memory(f"m{number:03}", "needle" if number == 75 else "hay") for number in range(80)))
        first = await backend.search_documents(MEMORIES, ("needle",), after=None, limit=10)
        assert (first.documents, first.searched, first.after) == ((), 70, key_of("m069"))
        second = await backend.search_documents(MEMORIES, ("needle",), after=first.after, limit=10)
        assert [each.name for each in second.documents] == ["m075"]
        assert (second.searched, second.after) == (10, None)

    async def test_a_document_that_is_removed_is_gone(self, backend: Backend) -> None:
        await put(backend, memory("a"), memory("a", project="/p"))
        assert await backend.remove_document(key_of("a"))
        assert not await backend.remove_document(key_of("a"))
        assert not await backend.remove_document(key_of("no\0name"))
        assert await names(backend, MEMORIES) == [("repl", "/p", "a")]
        again = await backend.put_document(memory("a", "made anew"))
        assert again.created_us == again.changed_us

    async def test_documents_stay_when_sessions_go(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await put(backend, memory("a"))
        await backend.delete_tree(session.id)
        info = await backend.info()
        assert (info.sessions, info.documents) == (0, 1)

    async def test_the_longest_names_are_stored(self, backend: Backend) -> None:
        def noise(length: int) -> str:
            return "".join(sha256(b"%d" % number).hexdigest() for number in range(length))[:length]

        new = NewDocument(
            "memory", noise(MAX_DOCUMENT_NAME), "x", "user", noise(MAX_NAME_BYTES), noise(MAX_SPACE), noise(MAX_PROJECT)
        )
        info = await backend.put_document(new)
        assert await backend.get_document(new.id) == Document(info, "x")
        assert await backend.remove_document(new.id)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("name", ""), ("name", " "), ("name", "a\nb"), ("name", "a\0b"), ("name", "\ud800"), ("name", "x" * 501),
            ("name", 1), ("space", "a\tb"), ("space", "x" * 201), ("space", None), ("project", "/a\n"),
            ("project", "é" * 401), ("scope", None), ("scope", "a\0"), ("kind", "note"), ("type", ""),
            ("type", "two words"), ("type", "x" * 101), ("type", None), ("source", ""), ("source", "a\nb"),
            ("source", 1), ("body", None), ("body", "secret\0"), ("body", "secret\ud800"), ("body", b"secret"),
        ],
    )  # fmt: skip
    async def test_what_no_store_takes_is_refused_and_what_it_says_is_not_shown(
        self, backend: Backend, field: str, value: object
    ) -> None:
        fields: dict[str, object] = {
            "kind": "memory", "name": "n", "body": "secret", "type": "user", "scope": "", "space": "repl",
            "project": "", "source": None,
        }  # fmt: skip
        with pytest.raises(InvalidArgument) as caught:
            NewDocument(**{**fields, field: value})  # type: ignore[arg-type]
        assert str(caught.value).startswith(f"{field}: ")
        assert "secret" not in str(caught.value)
        assert (await backend.info()).documents == 0
