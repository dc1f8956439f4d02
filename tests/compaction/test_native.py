"""Mode `native` without a provider's client: what is stored, who is sent what, what survives where it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

import flue_py
import flue_py.transfer
from flue_py.adapters.messages import to_anthropic, to_gemini, to_openai, to_responses
from flue_py.compaction import CompactionSettings
from flue_py.compaction.modes import NativeMode
from flue_py.core.json import JsonObject
from flue_py.core.kinds import Native, native_in, sent_to
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from flue_py.errors import ContextOverflow, InvalidArgument, SummaryFailed
from tests.tables import inputs

BLOCK: JsonObject = {"type": "compaction", "content": "A red build, not yet fixed.", "signature": "sig==", "more": [1]}
ITEM: JsonObject = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA=="}
PARTS: dict[str, JsonObject] = {"anthropic": BLOCK, "openai": ITEM}
SETTINGS = CompactionSettings(keep_recent_tokens=60)
USAGE: JsonObject = {"input": 100, "output": 10}


class Compacting:
    """A model that compacts when it is asked to, and remembers what it was sent."""

    def __init__(self, provider: str, account: str | None = None) -> None:
        self.asked: list[ModelRequest] = []
        self.provider, self.account = provider, account

    def __call__(self, request: ModelRequest) -> ModelReply:
        self.asked.append(request)
        told: JsonObject = {"provider": self.provider, "model": "m-1", "usage": USAGE, "responseId": "r1"}
        named: JsonObject = {} if self.account is None else {"account": self.account}
        part = PARTS[self.provider] if request.compacts else {"type": "text", "text": "Hm."}
        return ModelReply(({"role": "assistant", "content": [part], **told, **named},))

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self, "m-1", self.provider)


async def go_on(session: flue_py.Session, numbers: range) -> None:
    for number in numbers:
        await session.append_message({"role": "user", "content": f"Question {number}: " + "why? " * 30})
        await session.append_message({"role": "assistant", "content": f"Answer {number}: " + "thus. " * 30})


async def filled(store: flue_py.Store) -> flue_py.Session:
    session = await store.create_session(key="s")
    await go_on(session, range(6))
    return session


@inputs("provider", ["anthropic", "openai"])
def test_what_the_provider_made_survives_a_fork_and_a_bundle(provider: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with flue_py.open(tmp_path / "one.db") as store:
            session = await filled(store)
            done = await session.compact(Compacting(provider, "team-a").model, mode="native", settings=SETTINGS)
            assert done.entry_id is not None
            items = await session.build_context_entries()
            forked = await session.fork()
            assert await forked.build_context() == await session.build_context()
            await flue_py.transfer.write_bundle(store, tmp_path / "out.flue", [session])
            assert (await store.verify()).problems == []
        async with flue_py.open(tmp_path / "two.db") as other:
            await flue_py.transfer.read_bundle(other, tmp_path / "out.flue")
            back = await other.open_session("s")
            assert await back.build_context() == [item.data for item in items]
            native = native_in((await back.build_context())[0]["native"])
            assert native == Native(provider, (PARTS[provider],), "m-1", "team-a")
            assert (await other.verify()).problems == []

    anyio.run(run)


@inputs("provider", ["anthropic", "openai"])
def test_each_list_has_the_block_of_its_own_provider_and_the_text_of_any_other(provider: str) -> None:
    async def run() -> None:
        async with flue_py.open(":memory:") as store:
            session = await filled(store)
            done = await session.compact(Compacting(provider, "team-a").model, mode="native", settings=SETTINGS)
            assert done.summary is not None
            entries, messages = await session.build_context_entries(), await session.build_context()
        for context in (entries, messages):
            texts = {
                "openai": to_openai(context).messages[0],
                "gemini": to_gemini(context).messages[0],
                "anthropic": to_anthropic(context, account="team-b").messages[0],
                "responses": to_responses(context, account="team-b").messages[0],
            }
            for first in texts.values():
                assert first["role"] == "user"
                assert done.summary.splitlines()[0] in str(first)
                assert "native" not in first
            own: Any = to_anthropic(context) if provider == "anthropic" else to_responses(context)
            first = own.messages[0]
            assert (first["content"][0] if provider == "anthropic" else first) == PARTS[provider]
            assert own.messages == to_own(context, provider, "team-a")
            assert "continued" not in str(own.messages)

    anyio.run(run)


def to_own(context: Any, provider: str, account: str) -> list[JsonObject]:
    made = to_anthropic if provider == "anthropic" else to_responses
    return made(context, account=account).messages


def test_a_text_stands_beside_what_cannot_be_read_and_the_next_mode_takes_that_over() -> None:
    async def run() -> None:
        async with flue_py.open(":memory:") as store:
            session = await filled(store)
            first = await session.compact(Compacting("openai").model, mode="native", settings=SETTINGS)
            assert first.mode == "native"
            assert first.summary is not None
            assert "Question 0" in first.summary
            await go_on(session, range(6, 9))
            second = await session.compact(mode="intent", settings=SETTINGS)
            assert second.summary is not None
            assert "Question 0" in second.summary
            assert "native" not in (await session.build_context())[0]
            await session.compactions.uncompact()
            assert (await session.build_context())[0]["native"]
            assert (await store.verify()).problems == []

    anyio.run(run)


def test_the_second_compaction_is_asked_with_the_first_in_both_forms() -> None:
    async def run() -> None:
        provider = Compacting("anthropic")
        async with flue_py.open(":memory:") as store:
            session = await filled(store)
            await session.compact(provider.model, mode="native", settings=SETTINGS)
            await go_on(session, range(6, 9))
            await session.compact(provider.model, mode="native", settings=SETTINGS)
        sent = provider.asked[1].messages[0]
        assert "A red build" in str(sent["content"])
        assert sent_to(sent, "anthropic")[0]["content"] == [BLOCK]

    anyio.run(run)


@inputs("answer", ["Sure, here is a summary.", {"type": "compaction", "content": None}])
def test_an_answer_without_a_compaction_fails_and_nothing_is_appended(answer: Any) -> None:
    def answers(request: ModelRequest) -> ModelReply | str:
        if isinstance(answer, str):
            return answer
        return ModelReply(({"role": "assistant", "content": [answer], "provider": "anthropic"},))

    async def run() -> None:
        async with flue_py.open(":memory:") as store:
            session = await filled(store)
            before = await session.build_context()
            with pytest.raises(SummaryFailed, match="has no compaction"):
                await session.compact(FunctionModel(answers), mode="native", settings=SETTINGS)
            assert await session.build_context() == before

    anyio.run(run)


def test_no_part_separates_a_call_from_its_results_and_one_that_cannot_fit_is_a_failure() -> None:
    most = 900

    def answers(request: ModelRequest) -> ModelReply:
        size = sum(len(str(message["content"])) for message in request.messages)
        if size > most:
            raise ContextOverflow("too long", tokens=size, window=most)
        asked.append(request)
        return provider(request)

    async def run() -> None:
        async with flue_py.open(":memory:") as store:
            session = await store.create_session()
            for number in range(8):
                call: JsonObject = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {}}
                await session.append_message({"role": "assistant", "content": [call]})
                result: JsonObject = {"role": "toolResult", "toolCallId": f"c{number}", "content": "log " * 60}
                await session.append_message(result)
            await session.append_message({"role": "user", "content": "And now? " * 40})
            done = await session.compact(FunctionModel(answers, "m-1", "anthropic"), mode="native", settings=SETTINGS)

            assert done.appended is not None
            assert len(asked) > 1
            for request in asked:
                called = [part["id"] for each in request.messages for part in parts_of(each) if "arguments" in part]
                answered = [each["toolCallId"] for each in request.messages if "toolCallId" in each]
                assert called == answered
            sent = [each for request in asked for each in request.messages if each["role"] == "toolResult"]
            assert [each["toolCallId"] for each in sent] == [f"c{number}" for number in range(8)]
            await session.append_message({"role": "user", "content": "x" * 2 * most})
            await session.append_message({"role": "assistant", "content": "Hm. " * 90})
            with pytest.raises(SummaryFailed, match="too long") as caught:
                await session.compact(FunctionModel(answers, "m-1", "anthropic"), mode="native", settings=SETTINGS)
            assert isinstance(caught.value.__cause__, ContextOverflow)

    provider, asked = Compacting("anthropic"), list[ModelRequest]()
    anyio.run(run)


def test_a_window_that_is_known_is_kept_to_without_asking_first() -> None:
    async def run() -> None:
        provider = Compacting("anthropic")
        async with flue_py.open(":memory:") as store:
            session = await filled(store)
            model = FunctionModel(provider, "m-1", "anthropic", context_window=300)
            done = await session.compact(model, mode="native", settings=SETTINGS, window=100_000)

            assert done.appended is not None
            assert len(provider.asked) > 1
            assert all(each.max_tokens is not None and each.max_tokens <= 75 for each in provider.asked)
            assert [each for each in done.notes if "parts" in each]

    anyio.run(run)


def parts_of(message: JsonObject) -> list[dict[str, Any]]:
    content = message["content"]
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def test_instructions_are_noted_as_left_out() -> None:
    async def run() -> None:
        async with flue_py.open(":memory:") as store:
            session = await filled(store)
            done = await session.compact(
                Compacting("anthropic").model, mode="native", settings=SETTINGS, instructions="mind the tests"
            )
            assert any("instructions" in note for note in done.notes)

    anyio.run(run)


def test_a_mode_of_a_provider_needs_a_model() -> None:
    assert NativeMode().needs_model

    async def run() -> None:
        async with flue_py.open(":memory:") as store:
            session = await filled(store)
            with pytest.raises(InvalidArgument, match="'native' asks a model"):
                await session.compact(mode="native", settings=SETTINGS)

    anyio.run(run)


@inputs("value", [None, "x", {}, {"provider": "p"}, {"provider": 1, "content": [BLOCK]}])
def test_what_is_no_compaction_of_a_provider_is_taken_for_none(value: Any) -> None:
    assert native_in(value) is None
    message: JsonObject = {"role": "user", "content": "text", "native": value}
    assert sent_to(message, "p") == [{"role": "user", "content": "text"}]


def test_a_compaction_behind_other_messages_goes_out_as_its_text() -> None:
    native: JsonObject = {"provider": "anthropic", "content": [BLOCK]}
    summary: JsonObject = {"role": "user", "content": "the text", "native": native}
    said: JsonObject = {"role": "user", "content": "before"}
    system: JsonObject = {"role": "system", "content": "be brief"}

    assert "the text" in str(to_anthropic([said, summary]).messages)
    assert str(to_anthropic([said, summary]).messages).count("compaction") == 0
    assert to_anthropic([system, summary]).messages == [{"role": "assistant", "content": [BLOCK]}]
