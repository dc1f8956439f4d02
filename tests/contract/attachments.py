"""The contract: pictures and files in messages, stored once for each tree."""

from __future__ import annotations

from base64 import b64encode

import pytest

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject
from flue_py.core.sessions import STORED, NewSession
from flue_py.core.trees import TreeCopy
from flue_py.db.backend import Backend
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
            tree = await backend.read_whole_tree(head.tree_id)
            assert tree is not None
            return tree
    raise AssertionError(f"no tree has session {session_id}")


async def stored_pictures(backend: Backend, session_id: str) -> list[int]:
    """Return the sizes of the blobs of a session's tree."""
    return sorted(len(blob.data) for blob in (await whole_tree(backend, session_id)).blobs)


class AttachmentContract:
    """Attachments."""

    @pytest.mark.parametrize("shape", SHAPES)
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
