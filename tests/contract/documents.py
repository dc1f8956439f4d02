"""The contract: what is stored beside the history: attachments, artifacts, documents."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from hashlib import sha256

import pytest

from flue_py.core.entries import NewEntry, artifact_ids, artifact_of, is_of_text, new_artifact, text_of_artifact
from flue_py.core.json import JsonObject
from flue_py.core.kinds import ARTIFACT
from flue_py.core.sessions import (
    MAX_DOCUMENT_NAME,
    MAX_NAME_BYTES,
    MAX_PROJECT,
    MAX_SPACE,
    SEARCHED,
    STORED,
    Document,
    DocumentFilter,
    DocumentInfo,
    DocumentKind,
    DocumentName,
    NewDocument,
    NewSession,
    searched_words,
)
from flue_py.core.trees import TreeCopy
from flue_py.db.backend import Backend
from flue_py.errors import InvalidArgument
from tests.samples import (
    PICTURE,
    add,
    compaction,
    context_of,
    new_session,
    path_ids,
    path_of,
    pictured,
    placed,
    talk,
    tree_ids,
    user,
)
from tests.tables import inputs
from tests.values import existing

OTHER_PICTURE = PICTURE[::-1]
_BASE64 = b64encode(PICTURE).decode()
_URL = f"data:image/png;base64,{_BASE64}"

SHAPES: dict[str, JsonObject] = {
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _BASE64}},
    "openai chat": {"type": "image_url", "image_url": {"url": _URL, "detail": "high"}},
    "openai responses": {"type": "input_image", "image_url": _URL},
    "a file": {"type": "file", "data": _BASE64, "filename": "a.pdf"},
    "two in one part": {"type": "image", "data": _BASE64, "alt": {"thumbnail": _BASE64}},
    "quoted": {"type": "text", "text": f'see ![a "picture"\\n]({_URL}) and é{_BASE64}'},
}


async def whole_tree(backend: Backend, session_id: str) -> TreeCopy:
    """Return the tree of a session, as it is stored."""
    for head in await backend.list_trees(-1, 100):
        if any(session.id == session_id for session in head.sessions):
            return existing(await backend.read_whole_tree(head.tree_id))
    raise AssertionError(f"no tree has session {session_id}")


async def stored_pictures(backend: Backend, session_id: str) -> list[int]:
    """Return the sizes of the blobs of a session's tree."""
    return sorted(len(blob.data) for blob in (await whole_tree(backend, session_id)).blobs)


TEXT = "a line of é and 🚨\n" * 3_000


def artifact(text: str, drawn_id: str) -> NewEntry:
    """Return an artifact as an entry."""
    found = artifact_ids(text)[0]
    return new_artifact(found, text, tool="t", hint="path=x", call_id="c", parts=None, drawn_id=drawn_id)


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


class AttachmentContract:
    """Pictures and files in messages, stored once for each tree."""

    @inputs("shape", SHAPES)
    async def test_a_picture_of_every_shape_comes_back_as_it_was_and_is_stored_once(
        self, backend: Backend, shape: str
    ) -> None:
        said = [NewEntry.custom("custom_message", {"content": [SHAPES[shape]], "n": n}) for n in range(3)]
        session = await new_session(backend, *said)
        assert [entry.payload for entry in await path_of(backend, session.id)] == [new.payload for new in said]
        tree = await whole_tree(backend, session.id)
        assert [blob.data for blob in tree.blobs] == [PICTURE]
        assert all(entry.stored_bytes < 1_000 for entry in tree.entries)
        assert {row.sha256 for row in tree.attachments} == {tree.blobs[0].sha256}

    async def test_every_read_puts_pictures_back(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2), pictured(PICTURE), user("beside"))
        await add(backend, session.id, pictured(OTHER_PICTURE, PICTURE), NewEntry.custom("artifact", {"data": _BASE64}))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, pictured(PICTURE, text="again"), user("end"))
        path = await path_of(backend, fork.id)
        pictures = [entry for entry in path if len(entry.payload) > len(_BASE64)]
        said = [pictured(PICTURE), pictured(OTHER_PICTURE, PICTURE), NewEntry.custom("artifact", {"data": _BASE64})]
        assert [entry.payload for entry in pictures] == [
            each.payload for each in (*said, pictured(PICTURE, text="again"))
        ]
        assert await backend.read_tree(fork.id) == path
        assert [await backend.get_entry(fork.id, entry.id) for entry in path] == path
        assert (await backend.read_path_since(fork.id, path[1].id)).entries == path[2:]
        turns = await backend.read_turns(fork.id)
        assert [entry for entry in turns if entry in pictures] == [pictures[0], pictures[1], pictures[3]]
        changed = [entry for change in await backend.changes(session.id, 0, 100) for entry in change.entries]
        assert changed == path[: len(changed)]
        messages = [entry.data for entry in path if entry.kind == "message"]
        assert (await backend.read_messages(fork.id)).messages == messages
        assert [message for _, message in await context_of(backend, fork.id)] == messages
        logged = (await backend.read_log(session.id, before=None, limit=1))[0]
        assert (logged.entry_ids, logged.words) == ((path[4].id, path[5].id), "look")

    async def test_a_context_after_a_compaction_has_its_pictures(self, backend: Backend) -> None:
        session = await new_session(backend, pictured(PICTURE, text="old"), *talk(2), pictured(PICTURE), user("end"))
        ids = await path_ids(backend, session.id)
        await backend.set_pin(session.id, ids[0], True)
        await add(backend, session.id, compaction(ids[3], summary=f"seen: {_BASE64}"))
        shown = [message for _, message in await context_of(backend, session.id)]
        assert pictured(PICTURE, text="old").payload in [NewEntry.message(message).payload for message in shown]
        assert _BASE64 in str(shown[0])
        assert shown == (await backend.read_messages(session.id)).messages

    async def test_a_picture_stays_as_long_as_an_entry_of_its_tree_has_it(self, backend: Backend) -> None:
        session = await new_session(backend, pictured(PICTURE), user("fork here"))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, session.id, pictured(PICTURE), pictured(OTHER_PICTURE))
        await add(backend, fork.id, pictured(PICTURE))
        assert await stored_pictures(backend, fork.id) == [len(PICTURE)] * 2
        await backend.delete_tree(session.id)
        assert await stored_pictures(backend, fork.id) == [len(PICTURE)]
        path = await path_of(backend, fork.id)
        assert [entry.payload for entry in path] == [
            pictured(PICTURE).payload,
            user("fork here").payload,
            pictured(PICTURE).payload,
        ]
        assert (await backend.verify()).problems == []
        tree = await whole_tree(backend, fork.id)
        assert len(tree.attachments) == 2

    async def test_a_fork_may_go_first(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, pictured(PICTURE), pictured(OTHER_PICTURE))
        await add(backend, session.id, pictured(PICTURE))
        await backend.delete_tree(fork.id)
        assert await stored_pictures(backend, session.id) == [len(PICTURE)]
        assert (await path_of(backend, session.id))[1].payload == pictured(PICTURE).payload
        assert await tree_ids(backend, session.id) == await path_ids(backend, session.id)

    async def test_trees_share_no_pictures(self, backend: Backend) -> None:
        session = await new_session(backend, pictured(PICTURE))
        task = await backend.create_task(session.id, "look", NewSession())
        await add(backend, task.id, pictured(PICTURE))
        other = await new_session(backend, pictured(PICTURE))
        for each in (session, task, other):
            assert await stored_pictures(backend, each.id) == [len(PICTURE)]
        await backend.delete_tree(session.id)
        assert (await path_of(backend, other.id))[0].payload == pictured(PICTURE).payload
        assert (await backend.verify()).problems == []

    async def test_a_file_and_a_text_of_the_same_bytes_are_one_blob(self, backend: Backend) -> None:
        large = NewEntry.custom("artifact", ".".join(_BASE64[at : at + 999] for at in range(0, len(_BASE64), 999)))
        session = await new_session(backend, large, pictured(large.payload.encode()))
        assert len(await stored_pictures(backend, session.id)) == 1
        (_, second) = await path_ids(backend, session.id)
        fork = await backend.fork(session.id, second, NewSession())
        await backend.delete_tree(session.id)
        assert [entry.payload for entry in await path_of(backend, fork.id)] == [
            large.payload,
            pictured(large.payload.encode()).payload,
        ]

    async def test_imported_entries_and_retries_share_pictures_too(self, backend: Backend) -> None:
        entries = [placed(pictured(PICTURE), "a"), placed(pictured(PICTURE, text="b"), "b", "a")]
        session = await backend.import_session(NewSession(), [*entries, placed(pictured(PICTURE), "c", "a")], leaf="b")
        first = await backend.append(session.id, [pictured(PICTURE, text="more")], idempotency_key="once")
        again = await backend.append(session.id, [pictured(PICTURE, text="more")], idempotency_key="once")
        assert again.replayed
        assert again.entry_ids == first.entry_ids
        assert await stored_pictures(backend, session.id) == [len(PICTURE)]
        assert len((await whole_tree(backend, session.id)).attachments) == 4

    async def test_what_compresses_is_stored_compressed(self, backend: Backend) -> None:
        drawing = b"<svg>" + b"<circle r='1'/>" * 2_000
        session = await new_session(backend, pictured(drawing))
        (blob,) = (await whole_tree(backend, session.id)).blobs
        assert blob.size == len(drawing)
        assert len(blob.data) < 1_000
        assert (await path_of(backend, session.id))[0].payload == pictured(drawing).payload


class ArtifactContract:
    """Artifacts, which lie on the path and are no part of any context."""

    async def test_an_artifact_is_read_whole_and_no_context_has_it(self, backend: Backend) -> None:
        new = artifact(TEXT, "1")
        session = await new_session(backend, user("read"), new, user("stub"), pictured(PICTURE))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, artifact(TEXT, "2"), user("again"))
        path = await path_of(backend, fork.id)
        assert path[1].payload == new.payload
        assert [text_of_artifact(path[place]) for place in (1, 4)] == [TEXT, TEXT]
        assert await backend.get_entry(fork.id, path[1].id) == path[1]
        assert await backend.read_tree(fork.id) == path
        messages = [entry.data for entry in path if entry.kind == "message"]
        assert (await backend.read_messages(fork.id)).messages == messages
        assert [message for _, message in await context_of(backend, fork.id)] == messages
        end = await backend.read_context_end(fork.id, 3)
        assert [item.data for item in end.items] == messages[1:]
        assert (await backend.read_path_end(fork.id, 2)).entries == path[4:]
        in_context = (await backend.read_context(fork.id)).entries
        assert [entry.id for entry in in_context] == [entry.id for entry in path]
        assert all(len(entry.payload) < 1_000 for entry in in_context if entry.kind == ARTIFACT)
        assert [entry for entry in in_context if entry.kind == "message"] == [
            entry for entry in path if entry.kind == "message"
        ]

    async def test_a_compaction_keeps_nothing_of_its_bytes(self, backend: Backend) -> None:
        session = await new_session(backend, pictured(PICTURE, text="old"), artifact(TEXT, "1"), *talk(2), user("end"))
        ids = await path_ids(backend, session.id)
        await add(backend, session.id, compaction(ids[1]))
        await backend.set_pin(session.id, ids[0], True)
        await add(backend, session.id, compaction(ids[2]), artifact(TEXT, "2"), user("on"))
        read = await backend.read_context(session.id)
        assert all(len(entry.payload) < 1_000 for entry in read.entries if entry.kind == ARTIFACT)
        assert (await backend.read_messages(session.id)).messages == [
            message for _, message in await context_of(backend, session.id)
        ]

    async def test_what_a_list_says_of_it_is_read_without_its_text(self, backend: Backend) -> None:
        session = await new_session(backend, user("x"), artifact(TEXT, "1"), user("y"), artifact(TEXT[::-1], "2"))
        listed = await backend.read_entries(session.id, kind=ARTIFACT, contents=False)
        whole = await backend.read_entries(session.id, kind=ARTIFACT)
        assert [artifact_of(entry) for entry in listed] == [artifact_of(entry) for entry in whole]
        assert [is_of_text(entry, TEXT) for entry in listed] == [True, False]
        assert all(len(entry.payload) < 1_000 for entry in listed)
        assert [text_of_artifact(entry) for entry in whole] == [TEXT, TEXT[::-1]]
        everything = await backend.read_entries(session.id, newest_first=True, contents=False)
        assert [entry.id for entry in everything] == (await path_ids(backend, session.id))[::-1]

    async def test_an_artifact_is_stored_once_and_goes_with_the_last_that_sees_it(self, backend: Backend) -> None:
        session = await new_session(backend, user("x"), artifact(TEXT, "1"), user("stub"))
        fork = await backend.fork(session.id, STORED, NewSession())
        early = await backend.fork(session.id, (await path_ids(backend, session.id))[0], NewSession())
        await add(backend, session.id, artifact(TEXT, "2"), artifact(TEXT[::-1], "3"))
        tree = await whole_tree(backend, session.id)
        assert sorted(blob.size for blob in tree.blobs) == [len(TEXT.encode())] * 2
        assert b64encode(TEXT.encode()).decode() not in str(tree.entries)
        await backend.delete_tree(session.id)
        assert len(await stored_pictures(backend, fork.id)) == 1
        assert text_of_artifact((await path_of(backend, fork.id))[1]) == TEXT
        await backend.delete_tree(fork.id)
        assert await stored_pictures(backend, early.id) == []


class DocumentContract:
    """Documents, which belong to the store and to no session."""

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
        monkeypatch.setattr("flue_py.core.sessions.SEARCHED", 70)
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

    @inputs(
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
