"""The contract: artifacts, which lie on the path and are no part of any context."""

from __future__ import annotations

from base64 import b64encode

from flue_py.core.entries import NewEntry, artifact_ids, artifact_of, is_of_text, new_artifact, text_of_artifact
from flue_py.core.kinds import ARTIFACT
from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from tests.contract.attachments import stored_pictures, whole_tree
from tests.samples import PICTURE, add, compaction, context_of, new_session, path_ids, path_of, pictured, talk, user

TEXT = "a line of é and 🚨\n" * 3_000


def artifact(text: str, drawn_id: str) -> NewEntry:
    """Return an artifact as an entry."""
    found = artifact_ids(text)[0]
    return new_artifact(found, text, tool="t", hint="path=x", call_id="c", parts=None, drawn_id=drawn_id)


class ArtifactContract:
    """Artifacts."""

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
        in_context = (await backend.read_context(fork.id)).entries or ()
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
        assert all(len(entry.payload) < 1_000 for entry in read.entries or () if entry.kind == ARTIFACT)
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
