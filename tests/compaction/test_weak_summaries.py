"""What a weak model answers where it is asked for a summary is taken only where it can be one."""

from __future__ import annotations

import asyncio

import pytest

import flue_py
from flue_py.compaction import CompactionSettings, SummaryFailed
from flue_py.compaction.modes.folding import Folding, fold, why_no_summary
from flue_py.compaction.prompts import LENGTH, instruction
from flue_py.core.model_seam import FunctionModel, ModelReply, ModelRequest
from flue_py.core.spoken import message_text

LAYOUT = instruction("initial")
GOOD = "\n".join(f"## {name}\n{text}" for name, text in (("Task", "Mend test 7."), ("Next", "none")))


def test_what_can_be_no_summary_is_named() -> None:
    wrong = []
    for text, why in (
        (" \n", "no text"),
        (".", "no words"),
        ("```\n```", "no words"),
        ("## \n- none\n- none\n", "no words"),
        ("[Corner]\n\n" * 400, "repeats one line"),
        ("Notes:\n" + "- The test passes.\n" * 30, "repeats one line"),
        (LAYOUT, "the instruction"),
        (LAYOUT[-800:], "the instruction"),
        ("\n".join(line for line in LAYOUT.splitlines() if line.startswith("##")), "the instruction"),
        ("\n".join(f"{line}\nnone" for line in LAYOUT.splitlines() if line.startswith("##")), "the instruction"),
        (LENGTH.format(words=640), "the instruction"),
        (GOOD, ""),
        ("told", ""),
        ("Task", ""),
        (f"{LAYOUT}\nTest 7 fails.", ""),
        ("\n".join(f"- Test {number} passes." for number in range(40)), ""),
        ("要約: テストは通る。", ""),
    ):
        found = why_no_summary(text)
        if (why not in found) if why else found:
            wrong.append((text[:60], found))
    assert wrong == []


def test_no_session_takes_one_and_nothing_is_changed() -> None:
    async def compacted(answer: str) -> tuple[bool, int]:
        async with flue_py.open(":memory:") as store:
            session = await store.create_session()
            for number in range(30):
                await session.append_message(
                    {"role": "user", "content": f"What does test {number} say? " + "log " * 100}
                )
                await session.append_message({"role": "assistant", "content": "It passes."})
            settings = CompactionSettings(keep_recent_tokens=500, user_words_share=0)
            try:
                await session.compact(FunctionModel(lambda _: answer, "weak", context_window=4_000), settings=settings)
            except SummaryFailed:
                return False, len(await session.build_context())
            return True, len(await session.build_context())

    for answer, is_taken in ((".", False), ("[Corner]\n\n" * 400, False), (LAYOUT[-800:], False), (GOOD, True)):
        taken, messages = asyncio.run(compacted(answer))
        assert (taken, messages == 60) == (is_taken, not is_taken)


def test_behind_a_summary_call_that_failed_no_other_is_made() -> None:
    asked: list[str] = []

    class Asker:
        async def ask(self, request: ModelRequest) -> ModelReply:
            raise NotImplementedError

        async def ask_all(self, requests: list[ModelRequest]) -> list[ModelReply | Exception]:
            asked.extend(message_text(each.messages[-1]) for each in requests)
            return [ModelReply(({"role": "assistant", "content": "."},))] * len(requests)

    def folding(text: str) -> Folding:
        return Folding(
            "initial",
            1,
            shown=lambda at, cap: text,
            asked=lambda kind, chunk, before, window: ModelRequest(({"role": "user", "content": chunk},)),
            tokens=len,
            cap=0,
            window=None,
        )

    with pytest.raises(SummaryFailed, match="no words"):
        asyncio.run(fold([folding("first"), folding("second")], Asker()))  # type: ignore[arg-type]
    assert asked == ["first"]
