"""Each mode of compaction through a session, on every database."""

from __future__ import annotations

import pytest

from flue_py import InvalidArgument, Session, Store
from flue_py.compaction import CompactionSettings
from flue_py.compaction.modes import Hybrid, Lossless, Mode
from flue_py.core.jsontext import JsonObject
from flue_py.core.model_seam import FunctionModel
from tests.sessions.talk import user

pytestmark = pytest.mark.anyio

SETTINGS = CompactionSettings(keep_recent_tokens=200)


async def work(session: Session, rounds: int, start: int = 0) -> None:
    for number in range(start, start + rounds):
        await session.append_message(user(f"wish {number}"))
        called: JsonObject = {
            "type": "toolCall",
            "id": f"c{number}",
            "name": "read",
            "arguments": {"path": f"f{number}"},
        }
        await session.append_message({"role": "assistant", "content": [called]})
        await session.append_message(
            {"role": "toolResult", "toolCallId": f"c{number}", "toolName": "read", "content": "line " * 200}
        )
        await session.append_message({"role": "assistant", "content": "read it"})


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("intent", ['✓ read → "f0" (turn 2, assistant)', "[INTENT-DERIVED RECONSTRUCTION — covers turns 1–"]),
        (Lossless(state="building"), ["STATE MACHINE POSITION:\n  building", "RECENT EVIDENCE (newest first):"]),
        (Hybrid(), ["[CONTEXT RECONSTRUCTION", "\n\n---\n\nmodel says"]),
        ("llm", ["model says"]),
    ],
    ids=["intent", "lossless", "hybrid", "llm"],
)
async def test_a_session_is_compacted_again_and_again(
    session: Session, store: Store, mode: str | Mode, words: list[str]
) -> None:
    model = FunctionModel(lambda _: "model says", "small", provider="house", context_window=200_000)
    await work(session, 10)
    before = await session.build_context()
    done = await session.compact(model, mode=mode, settings=SETTINGS)
    assert done.appended is not None
    assert done.tokens_freed is not None
    assert done.tokens_freed > 0
    for word in words:
        assert word in (done.summary or "")
    await session.undo()
    assert await session.build_context() == before
    for number in range(3):
        await work(session, 6, start=20 + 6 * number)
        done = await session.compact(model, mode=mode, settings=SETTINGS)
        assert done.appended is not None
        assert (done.summary or "").count("[WHAT THE USER SAID") == 1
        for said in ("wish 0\n", "wish 9\n", "wish 20\n"):
            assert said in str(done.summary)
    assert (await store.verify()).problems == []


async def test_a_call_that_runs_is_never_summarised_away(session: Session) -> None:
    await work(session, 10)
    running: JsonObject = {"type": "toolCall", "id": "live", "name": "bash", "arguments": {"command": "make"}}
    caller = await session.append_message({"role": "assistant", "content": [running]})
    done = await session.compact(mode="intent", settings=CompactionSettings(keep_recent_tokens=0))
    assert done.planned is not None
    assert caller.entry_id in [item.entry_id for item in done.planned.staying]
    await session.append_message(user("go on without it"))
    await work(session, 5, start=10)
    done = await session.compact(mode="intent", settings=SETTINGS)
    assert '⧖ bash → "make" (turn ' in str(done.summary)
    assert f"[entry {caller.entry_id}]" in str(done.summary)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user_words_share", 2),
        ("user_words_share", True),
        ("on_failure", "ignore"),
        ("max_message_chars", -1),
        ("prefer_deterministic", 1),
        ("include_reasoning", "yes"),
        ("include_symbols", None),
    ],
)
def test_settings_name_the_field_that_is_wrong(field: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=f"^{field}: "):
        CompactionSettings(**{field: value})  # type: ignore[arg-type]
