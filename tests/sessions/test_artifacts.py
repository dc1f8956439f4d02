"""Long results of tools as artifacts: stored once and whole, found by every session that sees them, gone with them."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

import flue_py
from flue_py import (
    Artifact,
    ArtifactNotFound,
    InvalidArgument,
    JsonObject,
    Limits,
    NewEntry,
    OffloadSettings,
    Session,
    Store,
)
from flue_py.context.settings import ContextSettings, Microcompacting
from flue_py.transfer import copy_store, export_session, import_file, read_bundle, write_bundle
from tests.checks import raises
from tests.sessions.talk import user
from tests.tables import inputs
from tests.values import existing

OFFLOAD = OffloadSettings()
LINES = "".join(f'line {number}: é🚨 "quoted"\\\t\r\n' for number in range(3_000))
LONG = LINES[:52_000]


def call(call_id: str = "c", path: str = "src/X") -> JsonObject:
    part: JsonObject = {"type": "toolCall", "id": call_id, "name": "read_file", "arguments": {"path": path}}
    return {"role": "assistant", "content": [part]}


def result(text: str = LONG, call_id: str = "c") -> JsonObject:
    content: list[JsonObject] = [{"type": "text", "text": text}]
    return {"role": "toolResult", "toolCallId": call_id, "toolName": "read_file", "content": content, "isError": False}  # type: ignore[dict-item]


async def put_aside(session: Session, text: str = LONG, call_id: str = "c") -> str:
    """Append a call and its result, which is long; return the id of the artifact."""
    await session.append_message(call(call_id))
    before = {artifact.entry_id for artifact in await session.artifacts.all()}
    appended = await session.append_message(result(text, call_id), offload=OFFLOAD)
    (made,) = [artifact for artifact in await session.artifacts.all() if artifact.entry_id not in before]
    assert appended.entry_ids[0] == made.entry_id
    return made.id


async def whole(session: Session, artifact_id: str) -> str:
    return (await session.artifacts.read(artifact_id, length=None)).text


async def stored_bytes(store: Store) -> int:
    """Return how many bytes the blobs of all trees have."""
    total = 0
    for head in await store.backend.list_trees(-1, 100):
        tree = existing(await store.backend.read_whole_tree(head.tree_id))
        total += sum(len(blob.data) for blob in tree.blobs)
    return total


def stub_of(artifact_id: str, chars: str = "52,000") -> str:
    return (
        f"[result offloaded — {chars} chars stored to artifact store]\n"
        "Tool: read_file | path=src/X\n"
        f"Artifact: {artifact_id}\n"
        "Use targeted tools (e.g. read_file with startLine/maxLines, or grep_in_file) for specific sections."
    )


# -- what is stored ---------------------------------------------------------------------------------------------------


async def test_the_history_has_the_stub_and_the_store_the_whole_result(session: Session) -> None:
    await session.append_messages([user("read it"), call()])
    appended = await session.append_message(result(), offload=OFFLOAD)
    (artifact,) = await session.artifacts.all()
    entry = existing(await session.get_entry(appended.entry_id))
    assert entry.fields == {
        **result(),
        "content": [{"type": "text", "text": stub_of(artifact.id)}],
        "offloaded": {"artifact": artifact.id},
    }
    assert entry.parent_id == artifact.entry_id == appended.entry_ids[0]
    assert artifact == Artifact(
        artifact.id, "read_file", "path=src/X", 52_000, "c", artifact.entry_id, artifact.created_at
    )
    assert len(artifact.id) == 12
    assert int(artifact.id, 16)
    assert await session.build_context() == [user("read it"), call(), entry.fields]
    assert [item.entry_id for item in await session.build_context_entries()][-1] == entry.id
    assert await whole(session, artifact.id) == LONG
    assert session.leaf_id == entry.id


async def test_nothing_is_offloaded_that_nobody_asked_for(session: Session) -> None:
    await session.append_message(call())
    appended = await session.append_message(result())
    assert len(appended.entry_ids) == 1
    assert (await session.build_context())[1] == result()
    assert await session.artifacts.all() == ()


@pytest.mark.parametrize("length", [40_000, 40_001])
async def test_exactly_the_threshold_stays(session: Session, length: int) -> None:
    await session.append_message(call())
    appended = await session.append_message(result("é" * length), offload=OFFLOAD)
    assert len(await session.artifacts.all()) == len(appended.entry_ids) - 1 == length - 40_000


async def test_several_messages_at_once_and_results_without_a_known_call(session: Session) -> None:
    messages = [call("a"), result("a" * 40_001, "a"), user("go on"), result("b" * 50_000, "lost"), result("short", "x")]
    appended = await session.append_messages(messages, offload=OFFLOAD)
    first, second = await session.artifacts.all()
    assert len(appended.entry_ids) == 7
    assert (first.hint, first.call_id, first.characters) == ("path=src/X", "a", 40_001)
    assert (second.tool, second.hint, second.call_id) == ("read_file", "", "lost")
    assert await whole(session, first.id) == "a" * 40_001
    assert await whole(session, second.id) == "b" * 50_000
    shown = await session.build_context()
    assert [message["role"] for message in shown] == [message["role"] for message in messages]
    assert "Tool: read_file\n" in str(shown[3]["content"][0]["text"])  # type: ignore[index, call-overload]


async def test_messages_of_a_provider_are_offloaded_too(session: Session) -> None:
    asked: JsonObject = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"src/X"}'}}
        ],
    }
    await session.append_message(asked)
    appended = await session.append_message(
        {"role": "tool", "tool_call_id": "c", "content": LONG}, offload=OffloadSettings(tools={"READ_FILE": 50_000})
    )
    assert appended.converted[0].entry_ids == appended.entry_ids
    (artifact,) = await session.artifacts.all()
    assert (artifact.tool, artifact.hint) == ("read_file", "path=src/X")
    assert await whole(session, artifact.id) == LONG
    request = await session.request("openai-chat")
    assert request.messages[-1] == {"role": "tool", "tool_call_id": "c", "content": stub_of(artifact.id)}


async def test_a_retry_returns_the_first_result(session: Session, store: Store) -> None:
    await session.append_message(call())
    first = await session.append_message(result(), offload=OFFLOAD, idempotency_key="k")
    await session.append_message(user("later"))
    other = existing(await store.get_session(session.id))
    again = await other.append_message(result(), offload=OFFLOAD, idempotency_key="k")
    assert (again.entry_ids, again.replayed) == (first.entry_ids, True)
    await raises(flue_py.IdempotencyConflict, session.append_message(result(), idempotency_key="k"))
    assert len(await session.artifacts.all()) == 1


async def test_a_conflict_is_told_as_in_any_append(session: Session, store: Store) -> None:
    await session.append_message(call())
    other = existing(await store.get_session(session.id))
    await other.append_message(user("meanwhile"))
    await raises(flue_py.LeafConflict, session.append_message(result(), offload=OFFLOAD))
    branched = await session.append_message(result(), offload=OFFLOAD, on_conflict="branch")
    assert branched.on_branch
    (artifact,) = await session.artifacts.all()
    assert (artifact.hint, await whole(other, artifact.id)) == ("path=src/X", LONG)
    await session.refresh()
    await session.remove_leaf_message(str(session.leaf_id))
    await raises(flue_py.LeafConflict, other.append_message(result(), offload=OFFLOAD))


async def test_one_that_is_refused_for_its_size_stays_whole(target: str) -> None:
    async with flue_py.open(target, limits=Limits(entry_bytes=60_000)) as store:
        session = await store.create_session()
        await session.append_message(call())
        text = "x" * 50_000
        appended = await session.append_message(result(text), offload=OFFLOAD)
        assert (await session.build_context())[1] == result(text)
        assert len(appended.entry_ids) == 1
        assert "stays whole" in appended.oddities[0]
        await raises(flue_py.InvalidEntry, session.append_message(result("x" * 70_000), offload=OFFLOAD))


async def test_what_is_no_settings_is_refused_and_nothing_is_stored(session: Session) -> None:
    for odd in (True, 40_000, {"above": 3}):
        await raises(InvalidArgument, session.append_message(result(), offload=odd), match="offload")  # type: ignore[arg-type]
        await raises(InvalidArgument, session.append_messages([result()], offload=odd), match="offload")  # type: ignore[arg-type]
    assert await session.get_tree() == []


async def test_lone_surrogates_are_replaced_as_in_any_message(session: Session) -> None:
    await session.append_message(call())
    appended = await session.append_message(result("\ud800" + "x" * 50_000), offload=OFFLOAD)
    assert appended.surrogates_replaced == 1
    (artifact,) = await session.artifacts.all()
    assert await whole(session, artifact.id) == "\ufffd" + "x" * 50_000


async def test_texts_of_every_kind_come_back_as_they_were(session: Session) -> None:
    for number, unit in enumerate(["\0", '\\u0000"', "A" * 16, "🚨\u2028", "0", "\r\n", "iVBORw0KGgo="]):
        text = unit * (41_000 // len(unit)) + unit
        artifact_id = await put_aside(session, text, f"c{number}")
        assert await whole(session, artifact_id) == text


async def test_short_results_may_be_offloaded_as_well(session: Session) -> None:
    await session.append_message(call())
    await session.append_message(result("four"), offload=OffloadSettings(above=3))
    (artifact,) = await session.artifacts.all()
    assert await whole(session, artifact.id) == "four"


# -- once -------------------------------------------------------------------------------------------------------------


async def test_the_same_result_twice_is_stored_once(session: Session, store: Store) -> None:
    first = await put_aside(session)
    size = await stored_bytes(store)
    second = await put_aside(session, call_id="d")
    fork = await session.fork()
    third = await put_aside(fork, call_id="e")
    assert first == second == third
    assert await stored_bytes(store) == size
    assert [artifact.call_id for artifact in await fork.artifacts.all()] == ["c", "d", "e"]


async def test_a_result_whose_id_another_has_gets_a_longer_one(session: Session) -> None:
    artifact_id = await put_aside(session)
    other = await session.fork()
    await other.move_leaf(None)
    forged = {"artifact": artifact_id, "tool": "t", "chars": 1, "sha256": "0" * 64, "content": ""}
    await other.import_entries([NewEntry.custom("tool_artifact", forged, id=f"{artifact_id}-0")], leaf=None)
    longer = await put_aside(other)
    assert longer.startswith(artifact_id)
    assert len(longer) == 16
    assert await whole(other, longer) == LONG


# -- who finds it -----------------------------------------------------------------------------------------------------


async def test_it_is_read_in_parts_and_by_lines(session: Session) -> None:
    artifact_id = await put_aside(session)
    part = await session.artifacts.read(artifact_id, start=10, length=30)
    assert (part.text, part.start, part.end, part.first_line) == (LONG[10:40], 10, 40, 1)
    assert (await session.artifacts.read(artifact_id)).text == LONG[:20_000]
    assert (await session.artifacts.read(artifact_id, start=51_990)).text == LONG[51_990:]
    assert (await session.artifacts.read(artifact_id, start=99_999)).text == ""
    found = await session.artifacts.read(artifact_id, grep="LINE 7: É")
    assert [(line.number, line.text) for line in found.found] == [(8, LONG.split("\n")[7].removesuffix("\r"))]
    some = await session.artifacts.read(artifact_id, grep="line", length=100)
    assert (len(some.found), some.left_out) == (4, LONG.count("line") - 4)
    rest = await session.artifacts.read(artifact_id, grep="line", start=some.end, length=None)
    assert rest.found[0].number == 5
    assert len(rest.found) == some.left_out


@inputs(
    "odd",
    [{"start": -1}, {"start": "0"}, {"length": 0}, {"length": True}, {"grep": ""}, {"grep": "a\nb"}, {"grep": 5}],
    ids=str,
)
async def test_what_cannot_be_read_is_refused(session: Session, odd: JsonObject) -> None:
    artifact_id = await put_aside(session)
    await raises(InvalidArgument, session.artifacts.read(artifact_id, **odd), match=next(iter(odd)))  # type: ignore[arg-type]
    for unknown in ("", "0" * 12, artifact_id[:8], artifact_id.upper() + "x"):
        await raises(ArtifactNotFound, session.artifacts.read(unknown), match="sees no artifact")


async def test_a_model_reads_it_by_the_tool(session: Session) -> None:
    artifact_id = await put_aside(session)
    answer = await session.artifacts.answer_read(
        {"type": "toolCall", "id": "r", "name": "read_artifact", "arguments": {"id": artifact_id, "grep": "line 1234:"}}
    )
    assert (answer["toolCallId"], answer["toolName"], answer["isError"]) == ("r", "read_artifact", False)
    assert "1235: line 1234: é🚨" in str(answer["content"])
    whole_part = await session.artifacts.answer_read({"id": "r", "arguments": {"id": artifact_id, "length": 30_000}})
    appended = await session.append_messages([call("r"), whole_part], offload=OFFLOAD)
    assert len(appended.entry_ids) == 2
    for arguments in (
        None,
        {"id": "0" * 12},
        {"id": artifact_id, "length": 10**6},
        {"id": artifact_id, "grep": "\ud800"},
    ):
        failed = await session.artifacts.answer_read({"id": "r", "arguments": arguments})  # type: ignore[dict-item]
        assert failed["isError"] is True
    await raises(InvalidArgument, session.artifacts.answer_read({"arguments": {"id": artifact_id}}), match="call")


async def test_it_is_found_after_rewinds_compactions_and_in_forks(session: Session) -> None:
    first = (await session.append_message(user("before"))).entry_id
    artifact_id = await put_aside(session)
    await session.append_messages([user("next"), {"role": "assistant", "content": "x" * 9_000}, user("last")])
    fork = await session.fork()
    await session.compact(mode="window", settings=None)
    await session.append_compaction("sum", first_kept_entry_id=str(session.leaf_id), tokens_before=1)
    assert await whole(session, artifact_id) == LONG
    await session.rewind(to=first)
    assert artifact_id not in str(await session.build_context())
    assert await whole(session, artifact_id) == LONG
    assert len(await session.artifacts.all()) == 1
    early = await session.fork(at=first)
    assert await early.artifacts.all() == ()
    await raises(ArtifactNotFound, early.artifacts.read(artifact_id))
    assert await whole(fork, artifact_id) == LONG


async def test_it_is_found_by_another_process(target: str, store: Store, session: Session) -> None:
    artifact_id = await put_aside(session)
    script = (
        "import sys, flue_py.sync\n"
        "with flue_py.sync.open(sys.argv[1]) as store:\n"
        "    session = store.find_session(sys.argv[2])\n"
        "    print(session.artifacts.read(sys.argv[3], length=None).text.encode().hex())\n"
        "    print([artifact.id for artifact in session.artifacts.all()])\n"
    )
    done = await anyio.run_process([sys.executable, "-c", script, target, session.id, artifact_id], stderr=None)
    text, ids = done.stdout.decode().split("\n")[:2]
    assert bytes.fromhex(text).decode() == LONG
    assert ids == f"['{artifact_id}']"


async def test_copies_of_a_stub_bring_their_artifact_along(session: Session, store: Store) -> None:
    task = await session.tasks.create(task_id="t")
    artifact_id = await put_aside(task)
    path = await task.get_active_path()
    picked = await session.branches.cherry_pick([path[0].id, path[2].id], source=task)
    again = await session.branches.cherry_pick([path[0].id, path[2].id], source=task)
    assert (again.entry_ids, again.replayed) == (picked.entry_ids, True)
    assert [entry.kind for entry in await session.get_active_path()] == ["message", "tool_artifact", "message"]
    assert await whole(session, artifact_id) == LONG
    await store.delete_session_tree(task)
    assert await whole(session, artifact_id) == LONG


async def test_it_is_found_where_its_entry_came_with_another_id(session: Session) -> None:
    artifact_id = await put_aside(session)
    payload = (await session.get_active_path())[1].data
    await session.move_leaf(None)
    fork = await session.fork()
    await fork.import_entries([NewEntry.custom("tool_artifact", payload, id="elsewhere")], leaf="elsewhere")
    assert await whole(fork, artifact_id) == LONG


async def test_a_request_that_clears_a_stub_still_says_which_artifact_it_was(session: Session) -> None:
    ids = [await put_aside(session, f"{number}" + LONG, f"c{number}") for number in range(3)]
    await session.append_message(user("and now?"))
    settings = ContextSettings(microcompact=Microcompacting(keep=1, tools=("read_file",)), epoch_tokens=0)
    request = await session.request("anthropic", settings=settings)
    said = str(request.messages)
    assert [f"[whole content: artifact {each}]" in said for each in ids] == [True, True, False]
    assert f"Artifact: {ids[2]}" in said
    assert f"Artifact: {ids[0]}" not in said


# -- how long it stays ------------------------------------------------------------------------------------------------


async def test_it_goes_with_the_last_session_that_sees_it(session: Session, store: Store) -> None:
    await session.append_message(user("before"))
    early = await session.fork()
    artifact_id = await put_aside(session)
    late = await session.fork()
    size = await stored_bytes(store)
    assert size > 0
    await store.delete_session_tree(session)
    assert await whole(late, artifact_id) == LONG
    assert [artifact.id for artifact in await late.artifacts.all()] == [artifact_id]
    assert await early.artifacts.all() == ()
    assert (await store.verify()).problems == []
    await store.delete_session_tree(late)
    assert await stored_bytes(store) == 0
    assert (await store.verify()).problems == []


async def test_a_retracted_stub_keeps_its_artifact(session: Session) -> None:
    artifact_id = await put_aside(session)
    await session.remove_leaf_message(str(session.leaf_id))
    assert await whole(session, artifact_id) == LONG


async def test_undo_takes_both_back_and_redo_brings_both(session: Session) -> None:
    await session.append_message(call())
    leaf = session.leaf_id
    await session.append_message(result(), offload=OFFLOAD)
    await session.undo()
    assert session.leaf_id == leaf
    await session.redo()
    assert "offloaded" in (await session.build_context())[-1]


# -- where else it goes -----------------------------------------------------------------------------------------------


async def test_bundles_and_copies_of_a_store_have_it(session: Session, store: Store, tmp_path: Path) -> None:
    artifact_id = await put_aside(session)
    await write_bundle(store, tmp_path / "all.flue")
    async with flue_py.open(":memory:") as bundled, flue_py.open(tmp_path / "copy.db") as copied:
        await read_bundle(bundled, tmp_path / "all.flue")
        await copy_store(store, copied)
        for each in (bundled, copied):
            found = existing(await each.get_session(session.id))
            assert await whole(found, artifact_id) == LONG
            assert await found.artifacts.all() == await session.artifacts.all()
            assert (await each.verify()).problems == []


@pytest.mark.parametrize("format_name", ["pi", "flue"])
async def test_an_exported_session_brings_it_back(session: Session, tmp_path: Path, format_name: str) -> None:
    await session.append_message(user("read it"))
    artifact_id = await put_aside(session)
    path = tmp_path / "exported.jsonl"
    path.write_text((await export_session(session, format_name)).text, encoding="utf-8", newline="")
    async with flue_py.open(":memory:") as other:
        report = await import_file(other, path)
        found = existing(await other.get_session(report.sessions[0].session_id))
        assert await whole(found, artifact_id) == LONG
        again = await export_session(found, format_name)
        assert again.text.count(artifact_id) == path.read_text(encoding="utf-8").count(artifact_id)
        assert (await other.verify()).problems == []


# -- what is not there ------------------------------------------------------------------------------------------------


async def test_a_stub_that_a_program_appends_elsewhere_is_a_message_like_any_other(
    session: Session, store: Store, tmp_path: Path
) -> None:
    artifact_id = await put_aside(session)
    stub = (await session.build_context())[-1]
    other = await store.create_session()
    await other.append_messages([call(), stub])
    assert await other.artifacts.all() == ()
    await raises(ArtifactNotFound, other.artifacts.read(artifact_id), match=artifact_id)
    # Nothing of the store is damaged, and all of it can be taken elsewhere.
    assert (await store.verify()).problems == []
    await write_bundle(store, tmp_path / "all.flue")
    async with flue_py.open(":memory:") as bundled:
        await read_bundle(bundled, tmp_path / "all.flue")
        assert (await bundled.verify()).problems == []


async def test_what_is_listed_is_never_read(session: Session) -> None:
    """The list says what a thousand artifacts are without their texts, and knows no other entries."""
    for number in range(5):
        await put_aside(session, str(number) * 50_000, f"c{number}")
    await session.append_custom("tool_artifact", {"of": "somebody else"})
    await session.append_custom("tool_artifact", "text")
    assert [artifact.characters for artifact in await session.artifacts.all()] == [50_000] * 5


# -- wherever a result comes from -------------------------------------------------------------------------------------


async def test_the_output_of_a_command_is_put_aside_too(session: Session) -> None:
    appended = await session.append_shell("make all", LONG, 0, offload=OFFLOAD, idempotency_key="k")
    (artifact,) = await session.artifacts.all()
    assert (artifact.tool, artifact.hint, len(appended.entry_ids)) == ("bash", "command=make all", 4)
    assert await whole(session, artifact.id) == LONG
    assert (await session.build_context())[-1]["details"] == {"command": "make all", "exitCode": 0}
    again = await session.append_shell("make all", LONG, 0, offload=OFFLOAD, idempotency_key="k")
    assert (again.entry_ids, again.replayed) == (appended.entry_ids, True)


async def test_a_store_puts_results_aside_without_a_handle(session: Session, store: Store) -> None:
    await store.append_messages(session.id, [user("read it"), call()])
    given = {"offload": OFFLOAD, "idempotency_key": "k"}
    appended = await store.append_messages(session.id, [result()], **given)  # type: ignore[arg-type]
    await store.append_messages(session, [user("later")] * 40, expected_leaf=appended.entry_id)
    again = await store.append_messages(session.id, [result()], **given)  # type: ignore[arg-type]
    assert (again.entry_ids, again.replayed) == (appended.entry_ids, True)
    (artifact,) = await session.artifacts.all()
    assert (artifact.hint, artifact.entry_id) == ("path=src/X", appended.entry_ids[0])
    await raises(flue_py.SessionNotFound, store.append_messages("unknown", [result()], offload=OFFLOAD))
    await raises(InvalidArgument, store.append_messages(session, [result()], offload=True), match="offload")  # type: ignore[arg-type]


async def test_a_batch_puts_results_aside_when_it_is_committed(session: Session, store: Store) -> None:
    await session.append_messages([user("read it"), call("a", "src/A")])
    async with store.atomic() as batch:
        stored = batch.append_message(session, result("a" * 50_000, "a"), offload=OFFLOAD)
        batch.append_message(session, call("b", "src/B"))
        own = batch.append_messages(session, [result("b" * 50_000, "b"), user("go on")], offload=OFFLOAD)
        shell = batch.append_shell(session, "make", "c" * 50_000, 0, offload=OFFLOAD)
        entries = batch.append_entries(session, [NewEntry.message(result("d" * 50_000, "lost"))], offload=OFFLOAD)
        known = own.entry_ids
    assert (len(stored.entry_ids), len(own.entry_ids), len(shell.entry_ids), len(entries.entry_ids)) == (2, 3, 4, 2)
    assert own.entry_ids[1:] == known
    artifacts = await session.artifacts.all()
    assert [artifact.hint for artifact in artifacts] == ["path=src/A", "path=src/B", "command=make", ""]
    assert [(await whole(session, artifact.id))[0] for artifact in artifacts] == [*"abcd"]
    assert [len(each.result.entry_ids) for each in (stored, own, shell, entries)] == [2, 3, 4, 2]
    assert session.leaf_id == entries.entry_id
    async with store.atomic() as batch:
        with pytest.raises(InvalidArgument, match="offload"):
            batch.append_message(session, result(), offload=True)  # type: ignore[arg-type]


async def test_a_batch_finds_the_calls_of_sessions_that_it_makes(session: Session, store: Store) -> None:
    await session.append_messages([user("read it"), call("a", "src/A")])
    async with store.atomic() as batch:
        fork = batch.fork(session)
        batch.append_message(fork, result("a" * 50_000, "a"), offload=OFFLOAD)
        root = batch.create_session()
        batch.append_messages(root, [user("go"), call("b", "src/B")])
        batch.append_message(root, result("b" * 50_000, "b"), offload=OFFLOAD)
        task = batch.create_task(root, task_id="t")
        batch.append_message(task, result("c" * 50_000, "c"), offload=OFFLOAD)
    found = [(await each.artifacts.all())[0].hint for each in (fork, root, task)]
    assert found == ["path=src/A", "path=src/B", ""]
    assert await session.artifacts.all() == ()


@pytest.mark.parametrize("way", ["move", "branch", "rebase", "undo"])
async def test_a_batch_looks_for_calls_below_where_its_results_land(session: Session, store: Store, way: str) -> None:
    first = await session.append_message(call("a", "src/A"))
    await session.append_message(call("a", "src/other"))
    async with store.atomic() as batch:
        if way == "move":
            batch.move_leaf(session, first.entry_id)
        elif way == "undo":
            batch.undo(session)
        given: JsonObject = {"branch": {"on_conflict": "branch", "expected_leaf": first.entry_id}}.get(way, {})
        on = session.id if way == "rebase" else session
        if way == "rebase":
            given = {"on_conflict": "rebase"}
        made = batch.append_message(on, result(LONG, "a"), offload=OFFLOAD, **given)  # type: ignore[arg-type]
    (artifact,) = await session.artifacts.all()
    # Where an undo leads only the store can tell.
    hints = {"move": "path=src/A", "branch": "path=src/A", "rebase": "path=src/other", "undo": ""}
    assert (artifact.hint, artifact.entry_id) == (hints[way], made.entry_ids[0])


@pytest.mark.parametrize("of", ["batch", "append"])
async def test_a_retry_of_a_batch_returns_the_first_results(session: Session, store: Store, of: str) -> None:
    await session.append_messages([user("read it"), call("a", "src/A")])
    keys = {"batch": ("k", None), "append": (None, "k")}[of]

    async def work() -> tuple[str, ...]:
        async with store.atomic(idempotency_key=keys[0]) as batch:
            made = batch.append_message(session.id, result(LONG, "a"), offload=OFFLOAD, idempotency_key=keys[1])
        return made.entry_ids

    first = await work()
    await session.refresh()
    await session.append_messages([user("later")] * 40)
    assert await work() == first
    assert len(await session.artifacts.all()) == 1
    with pytest.raises(flue_py.IdempotencyConflict):
        async with store.atomic(idempotency_key=keys[0]) as batch:
            batch.append_message(session.id, result("other " * 9_000, "a"), offload=OFFLOAD, idempotency_key=keys[1])


async def test_a_retry_of_a_whole_batch_has_the_same_stubs(session: Session, store: Store) -> None:
    async def work() -> tuple[str, ...]:
        async with store.atomic(idempotency_key="k") as batch:
            batch.append_message(session.id, call("a", "src/A"))
            made = batch.append_message(session.id, result(LONG, "a"), offload=OFFLOAD)
            fork = batch.fork(session, at=made.entry_id)
            told = batch.append_messages(fork, [call("b", "src/B"), result("b" * 50_000, "b")], offload=OFFLOAD)
        return made.entry_ids + told.entry_ids

    assert await work() == await work()


async def test_a_batch_says_which_of_its_operations_names_no_session(session: Session, store: Store) -> None:
    async def work() -> None:
        async with store.atomic() as batch:
            batch.append_message(session, user("hello"))
            batch.append_message("unknown", result(), offload=OFFLOAD)

    told = await raises(flue_py.SessionNotFound, work())
    assert told.value.operation == 1


def test_the_blocking_twins_put_aside_as_well() -> None:
    with flue_py.sync.open(":memory:") as store:
        session = store.create_session()
        session.append_shell("make", LONG, 0, offload=OFFLOAD)
        with store.atomic() as batch:
            batch.append_messages(session, [call(), result("b" * 50_000)], offload=OFFLOAD)
        store.append_messages(session, [call(), result("c" * 50_000)], offload=OFFLOAD)
        assert [artifact.characters for artifact in session.artifacts.all()] == [52_000, 50_000, 50_000]
        assert store.verify().problems == []


# -- rounds -----------------------------------------------------------------------------------------------------------


def calls(*names: str, tool: str = "read_file") -> JsonObject:
    made: list[JsonObject] = [
        {"type": "toolCall", "id": name, "name": tool, "arguments": {"path": f"src/{name}"}} for name in names
    ]
    return {"role": "assistant", "content": made}  # type: ignore[dict-item]


def sizes(messages: list[JsonObject]) -> list[int]:
    """Return how long the texts of results are, 0 for one that is a stub."""
    return [
        0 if "offloaded" in message else len(str(message["content"][0]["text"]))  # type: ignore[index, call-overload]
        for message in messages
        if message["role"] == "toolResult"
    ]


ROUND = OffloadSettings(round_above=200_000)


async def test_the_largest_results_of_a_round_are_put_aside_until_it_fits(session: Session) -> None:
    lengths = [39_000, 40_000, 38_000, 40_000, 37_000, 30_000]
    messages = [
        calls(*"abcdef"),
        *(result(name * length, name) for name, length in zip("abcdef", lengths, strict=True)),
    ]
    await session.append_messages(messages, offload=ROUND)
    # The first of two that are as long; then 184,000 and a stub are left.
    assert sizes(await session.build_context()) == [39_000, 0, 38_000, 40_000, 37_000, 30_000]
    (artifact,) = await session.artifacts.all()
    assert (artifact.call_id, await whole(session, artifact.id)) == ("b", "b" * 40_000)


async def test_a_round_of_exactly_its_limit_stays_and_other_rounds_do_not_count(session: Session) -> None:
    for names in ("abcde", "fghij"):
        await session.append_messages([calls(*names), *(result(name * 40_000, name) for name in names)], offload=ROUND)
    assert await session.artifacts.all() == ()
    await session.append_messages([calls(*"klmno"), *(result("x" * 40_000, each) for each in "klmn")], offload=ROUND)
    await session.append_message(result("x" * 40_001, "o"), offload=OffloadSettings(above=50_000, round_above=200_000))
    assert sizes(await session.build_context()) == [40_000] * 14 + [0]


async def test_results_that_come_one_by_one_count_those_that_are_stored(session: Session, store: Store) -> None:
    names = "abcdefg"
    await session.append_message(calls(*names))
    for name in names[:5]:
        await session.append_message(result(name * 39_000, name), offload=ROUND)
    given = {"offload": ROUND, "idempotency_key": "k"}
    first = await session.append_message(result("f" * 30_000, "f"), **given)  # type: ignore[arg-type]
    small = await session.append_message(result("g" * 100, "g"), offload=ROUND)
    # What is stored is not rewritten, and a stub is not longer than what it stands for.
    assert sizes(await session.build_context()) == [39_000] * 5 + [0, 100]
    assert (len(first.entry_ids), len(small.entry_ids)) == (2, 1)
    await session.append_messages([user("later")] * 40)
    other = existing(await store.get_session(session.id))
    again = await other.append_message(result("f" * 30_000, "f"), **given)  # type: ignore[arg-type]
    assert (again.entry_ids, again.replayed) == (first.entry_ids, True)


async def test_a_tool_whose_results_always_stay_counts_and_stays(session: Session) -> None:
    settings = OffloadSettings(tools={"read_file": None}, round_above=1_000)
    other = {**result("y" * 900, "b"), "toolName": "grep"}
    messages = [
        calls("a", "b", "c"),
        result("x" * 60_000, "a"),
        other,
        {**result("z" * 300, "c"), "toolName": "read_artifact"},
    ]
    await session.append_messages(messages, offload=settings)
    assert sizes(await session.build_context()) == [60_000, 0, 300]


async def test_a_result_above_its_own_limit_counts_as_its_stub(session: Session) -> None:
    messages = [calls("a", "b", "c"), result("x" * 190_000, "a"), result("y" * 39_000, "b"), result("z" * 39_000, "c")]
    await session.append_messages(messages, offload=ROUND)
    assert sizes(await session.build_context()) == [0, 39_000, 39_000]


async def test_a_batch_fits_rounds_and_its_retry_finds_the_same(session: Session, store: Store) -> None:
    await session.append_messages([user("read"), calls(*"abcdef"), *(result(each * 39_000, each) for each in "abc")])

    async def work() -> tuple[str, ...]:
        async with store.atomic(idempotency_key="k") as batch:
            some = batch.append_messages(session.id, [result(each * 39_000, each) for each in "de"], offload=ROUND)
            last = batch.append_message(session.id, result("f" * 39_000, "f"), offload=ROUND)
        return some.entry_ids + last.entry_ids

    first = await work()
    assert await work() == first
    await session.refresh()
    assert sizes(await session.build_context()) == [39_000] * 5 + [0]


async def test_a_stub_may_have_a_preview(session: Session) -> None:
    await session.append_messages([call(), result()], offload=OffloadSettings(preview_chars=2_000))
    (artifact,) = await session.artifacts.all()
    text = str((await session.build_context())[1]["content"][0]["text"])  # type: ignore[index, call-overload]
    shown = LONG[:2_000].rpartition("\n")[0]
    assert text == f"{stub_of(artifact.id)}\n\nPreview (first {len(shown):,} chars):\n{shown}"
    assert await whole(session, artifact.id) == LONG
