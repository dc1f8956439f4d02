"""How long the summary of a branch is at most, whatever makes it and however long the branch is."""

from __future__ import annotations

import pytest

from flue_py import Session, Store
from flue_py.compaction.material import Material
from flue_py.compaction.modes import Asker, Made
from flue_py.context.tokens import counter_for
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from tests.sessions.talk import hold_turns, user
from tests.tables import inputs

pytestmark = pytest.mark.anyio

MOST = 2_048


def tokens_of(text: str) -> int:
    return counter_for(None).count({"role": "user", "content": text})


async def work_long(session: Session) -> str:
    """Go far on a branch, and return the entry that it parts from."""
    parted = (await hold_turns(session, 1))[-1]
    for number in range(80):
        path = f"src/some/folder/module_{number}.py"
        asked = user(f"wish {number}: never touch {path}, " + "and mind the others too " * 8)
        written: JsonObject = {"type": "toolCall", "id": f"c{number}", "name": "write", "arguments": {"path": path}}
        result: JsonObject = {"role": "toolResult", "toolCallId": f"c{number}", "content": "ok"}
        said: list[JsonObject] = [asked, {"role": "assistant", "content": [written]}]
        await session.append_messages([*said, *([result] if number % 3 else []), user(f"and {number}?")])
    return parted


async def left_for(session: Session, entry_id: str, **how: object) -> JsonObject:
    """Return the summary of the branch that is left, as stored."""
    went = await session.navigate(entry_id, **how)  # type: ignore[arg-type] # the arguments of the tests
    entry = await session.get_entry(went.summary_id or "")
    assert entry is not None
    return dict(entry.fields)


def answering(text: str, window: int | None, asked: list[ModelRequest]) -> FunctionModel:
    def answer(request: ModelRequest) -> ModelReply:
        asked.append(request)
        return ModelReply(({"role": "assistant", "content": text},))

    return FunctionModel(answer, "small", provider="house", context_window=window)


@inputs("window", [None, 200_000])
@inputs("mode", ["intent", "lossless", "window"])
async def test_a_long_branch_is_told_within_the_budget(
    session: Session, store: Store, mode: str, window: int | None
) -> None:
    parted = await work_long(session)
    told = await left_for(session, parted, mode=mode, window=window)
    assert tokens_of(str(told["summary"])) <= MOST
    assert "[…" not in str(told["summary"]).rpartition("<modified-files>")[0], "nothing is cut off where it ended"
    await store.verify()


@inputs("window", [None, 200_000])
@inputs("mode", ["llm", "hybrid"])
async def test_the_answer_of_a_model_has_half_of_the_budget(session: Session, mode: str, window: int | None) -> None:
    parted = await work_long(session)
    asked: list[ModelRequest] = []
    told = await left_for(session, parted, mode=mode, model=answering("it was tried", window, asked))
    limits = [request.max_tokens for request in asked]
    assert all(limit is not None and MOST // 8 < limit <= MOST // 2 for limit in limits)
    text = str(told["summary"])
    assert tokens_of(text) <= MOST
    for said in ("it was tried", "wish 0:", "and 79?", "module_79.py", "[OPEN WORK]" if mode == "llm" else "⧖"):
        assert said in text


async def test_an_answer_longer_than_was_asked_for_is_cut_and_says_so(session: Session) -> None:
    parted = await work_long(session)
    told = await left_for(session, parted, mode="llm", model=answering("many words " * 9_000, 200_000, []))
    text, details = str(told["summary"]), told["details"]
    assert tokens_of(text) <= MOST
    assert text.endswith("more characters]")
    assert isinstance(details, dict)
    assert details["notes"] == ["the summary was longer than 2,048 tokens, and its end is left out"]
    assert "own" not in details, "what it names is not there any more"


async def test_a_mode_of_somebody_elses_is_held_to_it(session: Session) -> None:
    class Wordy:
        name = "wordy"
        needs_model = False

        async def make(self, material: Material, asker: Asker | None) -> Made:
            assert material.room is not None
            assert material.room + material.set_aside < MOST
            return Made("one word more " * 5_000, self.name)

    parted = await work_long(session)
    told = await left_for(session, parted, mode=Wordy())
    assert tokens_of(str(told["summary"])) <= MOST


async def test_a_summary_that_is_all_of_a_branch_is_held_to_it(session: Session) -> None:
    parted = (await hold_turns(session, 1))[-1]
    asked = (
        await session.append_messages([user(f"question {n} " + "lorem ipsum " * 6_000) for n in range(3)])
    ).entry_ids
    done = await session.compactions.compact_range(
        asked[0], asked[-1], answering("words of a summary " * 900, 200_000, []), window=200_000
    )
    assert done.reason is None
    assert done.summary is not None
    assert tokens_of(done.summary) > MOST
    told = await left_for(session, parted, mode="window")
    assert str(told["summary"]).count("words of a summary") > 100
    assert tokens_of(str(told["summary"])) <= MOST
