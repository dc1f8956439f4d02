"""Sessions of Mistral Vibe: the store of the program itself after each run, and damaged ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.core.kinds import message_text
from flue_py.errors import UnreadableFile
from flue_py.formats import registry
from flue_py.formats.mistral_vibe import beside_mistral_vibe, looks_like_mistral_vibe
from tests.checks import raises
from tests.formats.transcripts import all_seen, import_file, rows_are_accounted_for
from tests.programs.made import unpack
from tests.tables import inputs
from tests.values import existing

CALL = 1020
"""The tokens of each call, but for one of 40,020."""
SPENT = (2 * CALL, 3 * CALL, 3 * CALL, 3 * CALL + 40_020, 5 * CALL + 40_020, 6 * CALL + 40_020)
"""After each run: two calls for tools, an answer, a failure, a long answer, a compaction with an answer, an answer."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("mistral-vibe-3.0.2", tmp_path_factory.mktemp("vibe"))


def put(state: Path, folder: Path) -> Path:
    """Put a state of the store in the place of the one before, and return the file to import."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(state, folder)
    return next(folder.glob("*/CURRENT"))


def texts_of(messages: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(message["role"].replace("toolResult", "tool"), message_text(message)) for message in messages]


async def test_each_state_gives_the_messages_that_were_sent_and_the_tokens_so_far(made: Path, tmp_path: Path) -> None:
    sent = [texts_of(messages) for messages in json.loads((made / "sent.json").read_text())]
    async with flue_py.open(":memory:") as store:
        for number, spent in enumerate(SPENT):
            report = await import_file(store, put(made / f"states/{number}", tmp_path / "store"))
            (seen,) = (await all_seen(store)).values()
            context = texts_of(seen.context)
            assert (context in sent) if context[-1][0] == "user" else (context[:-1] in sent)
            assert seen.spent_tokens == spent
            assert (report.skipped, report.repaired) == ((), ())
            assert rows_are_accounted_for(report)
            assert not report.sessions[0].leaf_kept
        assert not (await import_file(store, tmp_path / "store" / report.sessions[0].session_id / "CURRENT")).changed
        assert (await store.verify()).problems == []
        info = (await store.find_session(report.sessions[0].session_id)).info
        # Messages have no time of their own.
        assert (info.spent_tokens, {entry[3] for entry in seen.entries.values()}) == (SPENT[-1], {info.created_us})
        assert any("AAA, and hi." in payload for *_, payload, _ in seen.entries.values())
    async with flue_py.open(":memory:") as store:
        await import_file(store, tmp_path / "store" / report.sessions[0].session_id / "CURRENT")
        (whole,) = (await all_seen(store)).values()
    assert (whole.context, whole.leaf, whole.spent_tokens) == (seen.context, seen.leaf, seen.spent_tokens)
    assert (info.cwd or "").endswith("/work")
    assert "username" not in str(info.metadata)


async def test_thoughts_calls_and_results_are_parts_and_messages(made: Path, store: flue_py.Store) -> None:
    await import_file(store, next((made / "states/0").glob("*/CURRENT")))
    (seen,) = (await all_seen(store)).values()
    assert [part["type"] for part in seen.context[1]["content"]] == ["thinking", "text", "toolCall", "toolCall"]
    assert seen.context[1]["content"][2]["arguments"] == {"path": "a.txt"}
    assert [message.get("toolName") for message in seen.context] == [None, None, "read_file", "bash", None]


@inputs(
    ("head", "is_one"),
    [
        (b'{"generation":"0000000000000008","store_format":"mistral.vibe.unified-session-store/v1"}', True),
        (b'{"generation":"1"}', False),
        (b'[{"message":{"role":"user"},"source":"history","turn_index":0}]', False),
        (b'[{"content":[{"text":"hi","type":"text"}],"role":"user","generationStatus":"completed"}]', False),
        (b"", False),
    ],
)
def test_the_file_that_names_the_generation_is_the_session(head: bytes, is_one: bool) -> None:
    assert looks_like_mistral_vibe(head) is is_one
    found = registry.recognize(head, "x/CURRENT")
    assert (found.name if found else None) == ("mistral-vibe" if is_one else None)


async def test_chunks_that_are_damaged_missing_or_elsewhere_cost_their_messages_only(
    made: Path, tmp_path: Path, store: flue_py.Store
) -> None:
    current = put(made / "states/1", tmp_path / "store")
    *_, last = sorted(current.parent.glob("generations/*/manifest.json"))
    manifest = json.loads(last.read_text())
    (name,) = manifest["checkpoint"]["chunks"]
    last.write_text(json.dumps({"checkpoint": {"chunks": [name, "0" * 64, "../../../meta", 7, {}]}}))
    (current.parent / f"chunks/{name}.json").write_text('[{"message"')
    (current.parent / "meta.json").write_text("[")
    report = await import_file(store, current)
    assert len(report.skipped) == 1
    current.write_text(
        '{"store_format": "mistral.vibe.unified-session-store/v1", "session_id": 7, "generation": "../x"}'
    )
    await raises(UnreadableFile, import_file(store, current), match=r"it has no id; nothing was imported$")
    assert beside_mistral_vibe(Path("/CURRENT")) == {}


async def test_a_session_of_version_2_is_read_with_thoughts_calls_and_pictures(tmp_path: Path) -> None:
    file = tmp_path / "session_20260102_030405_0199aaaa/messages.jsonl"
    called = {"id": "c1", "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'}}
    picture = {"source": {"kind": "inline", "data": "AAAA"}, "alias": "a", "mime_type": "image/png"}
    rows = [
        {"role": "user", "content": "Look.", "images": [picture], "message_id": "m1"},
        {"role": "assistant", "content": "So.", "reasoning_content": "Hm.", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "name": "read_file", "content": "AAA"},
    ]  # fmt: skip
    file.parent.mkdir()
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"role": "assist')
    about = {"session_id": "0199aaaa-1", "title": "A", "environment": {"working_directory": "/w"}}
    (file.parent / "meta.json").write_text(json.dumps(about))
    async with flue_py.open(":memory:") as store:
        report = await import_file(store, file)
        (session,) = [existing(await store.get_session("0199aaaa-1"))]
        user, answer, result = await session.build_context()
    assert (report.format, session.info.cwd, len(report.skipped)) == ("mistral-vibe", "/w", 1)
    assert user["content"][1] == {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    assert [part["type"] for part in answer["content"]] == ["thinking", "text", "toolCall"]
    assert answer["content"][2]["arguments"] == {"path": "a.txt"}
    assert (result["toolCallId"], result["content"]) == ("c1", "AAA")
