"""Export as the reference's document: an imported one is exported unchanged, and everything else is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import flue_py
from flue_py.core.entries import Entry
from flue_py.core.sessions import SessionInfo, TaskNames
from flue_py.formats.flue import export_flue, parse_flue, parse_session_document
from flue_py.formats.kit import SessionTree
from flue_py.transfer.export import export_session
from flue_py.transfer.imports import import_file
from tests.formats.pi_files import as_lines, every_type, parse_pi
from tests.formats.trees import info_of, tree_of
from tests.tables import inputs
from tests.values import existing

AT = "2026-01-05T10:00:00.000Z"


def row(kind: str, entry_id: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    return {"id": entry_id, "type": kind, "parentId": parent, "timestamp": AT, **fields}


DOCUMENT = {
    "version": 3,
    "leafId": "c",
    "metadata": {"mood": "calm"},
    "createdAt": AT,
    "updatedAt": AT,
    "entries": [
        row("message", "a", None, message={"role": "user", "content": "hi"}, source="prompt"),
        row("message", "b", "a", message={"role": "assistant", "content": [], "usage": {"input": 3}}, odd=True),
        row("compaction", "c", "b", summary="S", firstKeptEntryId="b", tokensBefore=5, usage={"input": 1}),
        row("branch_summary", "d", "a", summary="B", fromId="a", details={"readFiles": []}),
    ],
}


def tree() -> tuple[SessionInfo, list[Entry], str | None]:
    (parsed,) = parse_flue(json.dumps(DOCUMENT).encode(), "s.json")
    return info_of(parsed), tree_of(parsed), parsed.leaf


def test_a_document_goes_back_as_it_was() -> None:
    out = export_flue(SessionTree(*tree()))
    assert (out.value, out.notes) == (DOCUMENT, ())


def test_task_sessions_are_named_in_the_metadata() -> None:
    info, entries, leaf = tree()
    info = replace(info, task_names=TaskNames((("t1", "child"),)))
    out: Any = export_flue(SessionTree(info, entries, leaf)).value
    assert out["metadata"] == {
        "mood": "calm",
        "taskSessions": [{"session": "child", "taskId": "t1", "storageKey": "child"}],
    }


def test_what_flue_has_no_place_for_is_said() -> None:
    parsed = parse_pi(as_lines(every_type()))
    out = export_flue(SessionTree(info_of(parsed), tree_of(parsed), parsed.leaf, {"u0000001": "start"}))
    texts = [str(note) for note in out.notes]
    assert texts[:3] == ["left out: the title", "left out: labels", "left out: the working directory"]
    assert "entries of kind 'label' are in the document, but mean nothing to Flue (3 times)" in texts
    assert "a message of role 'bashExecution' is in the document, but Flue knows no such role (2 times)" in texts
    assert [entry.id for entry in parse_session_document(out.value).entries] == [e["id"] for e in every_type()[1:]]


NAMED = {
    **DOCUMENT,
    "metadata": {"imported": "theirs", "taskSessions": [{"session": "task:a:t", "storageKey": "child", "taskId": "t"}]},
}
CHILD = {**DOCUMENT, "metadata": {"parentSession": "parent", "taskId": "t", "depth": 1}}


@inputs("order", [("parent", "child"), ("child", "parent")])
async def test_documents_keep_their_links_and_go_out_as_they_came_in(order: tuple[str, ...], tmp_path: Path) -> None:
    documents = {"parent": NAMED, "child": CHILD}
    async with flue_py.open(":memory:") as store:
        for name in order:
            (tmp_path / f"{name}.json").write_text(json.dumps(documents[name]))
            await import_file(store, tmp_path / f"{name}.json", "flue")
        for name in order:
            assert not (await import_file(store, tmp_path / f"{name}.json", "flue")).changed
            session = existing(await store.get_session(name))
            assert (await export_session(session, "flue")).value == documents[name]
        parent = existing(await store.get_session("parent"))
        assert [(link.child_id, link.task_id) for link in await parent.tasks.links()] == [("child", "t")]
        assert [info.id for info in (await store.list_sessions(kind="task")).sessions] == ["child"]
        await parent.append_message({"role": "user", "content": "more"})
        grown: Any = (await export_session(parent, "flue")).value
        assert grown["updatedAt"] != NAMED["updatedAt"]
        assert grown["metadata"] == NAMED["metadata"]


async def test_a_newer_document_goes_out_as_it_is_and_what_was_set_here_stays(tmp_path: Path) -> None:
    first = {**DOCUMENT, "metadata": {"mood": "calm", "colour": "red", "imported": "theirs"}}
    more = row("message", "e", "c", message={"role": "user", "content": "go on"})
    newer = {
        **DOCUMENT,
        "metadata": {"colour": "blue", "size": 3},
        "leafId": "e",
        "entries": [*DOCUMENT["entries"], more],  # type: ignore[misc]
        "updatedAt": "2026-01-05T11:00:00.000Z",
    }
    async with flue_py.open(":memory:") as store:
        await import_document(store, tmp_path, first)
        session = existing(await store.get_session("talk"))
        assert (await export_session(session, "flue")).value == first
        assert await import_document(store, tmp_path, newer)
        await session.refresh()
        assert (await export_session(session, "flue")).value == newer
        assert not await import_document(store, tmp_path, newer)
        # A key alone is taken away, too; one that was set here is nobody else's, and what it brought back is.
        await session.set_metadata({"mine": [1], "mood": "set here"}, merge=True)
        await import_document(store, tmp_path, {**newer, "metadata": {"size": 3}})
        await session.refresh()
        there = {name: value for name, value in session.metadata.items() if name != "imported"}
        assert there == {"mine": [1], "mood": "set here", "size": 3}


async def test_a_session_that_went_on_here_keeps_its_metadata(tmp_path: Path, store: flue_py.Store) -> None:
    more = row("message", "e", "c", message={"role": "user", "content": "go on"})
    newer = {**DOCUMENT, "metadata": {}, "leafId": "e", "entries": [*DOCUMENT["entries"], more]}  # type: ignore[misc]
    await import_document(store, tmp_path, DOCUMENT)
    session = existing(await store.get_session("talk"))
    await session.append_message({"role": "user", "content": "here"})
    await import_document(store, tmp_path, newer)
    await session.refresh()
    assert session.metadata["mood"] == "calm"


async def import_document(store: flue_py.Store, folder: Path, document: dict[str, Any]) -> bool:
    (folder / "talk.json").write_text(json.dumps(document))
    return (await import_file(store, folder / "talk.json", "flue")).changed


async def test_a_whole_session_is_imported_under_another_id_with_its_branches(tmp_path: Path) -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session(id="one", metadata={"x": 1})
        answer: flue_py.JsonObject = {"role": "assistant", "content": [], "usage": {"input": 5, "output": 2}}
        await session.append_messages([{"role": "user", "content": "hi"}, answer])
        await session.rewind(turns=0)
        await session.append_message({"role": "user", "content": "another way"})
        (tmp_path / "two.json").write_text((await export_session(session, "flue")).text)
        await import_file(store, tmp_path / "two.json", "flue")
        copy = existing(await store.get_session("two"))
        trees = [[(entry.id, entry.parent_id) for entry in await each.get_tree()] for each in (session, copy)]
        assert trees[0] == trees[1]
        assert (copy.leaf_id, copy.metadata["x"]) == (session.leaf_id, 1)
        assert (await store.usage()).total.calls == (await store.usage(session)).total.calls == 1
        await store.delete_session_tree(session)
        assert [(entry.id, entry.parent_id) for entry in await copy.get_tree()] == trees[1]
        assert (await store.verify()).problems == []
