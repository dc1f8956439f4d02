"""A provider compacts a session itself: what it is asked, what is stored, who gets it back, what it cost."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from tests.adapters.needed import needs

needs("models", "pydantic_ai", "openai", "anthropic")

from anthropic.types.beta import BetaCompactionBlockParam, BetaMessage
from openai.types.responses import CompactedResponse
from openai.types.responses.response_compaction_item_param_param import ResponseCompactionItemParamParam
from openai.types.responses.response_input_item_param import Message as InputMessage
from pydantic import TypeAdapter

import flue_py
from flue_py.adapters.messages import to_anthropic, to_openai, to_responses
from flue_py.compaction import CompactionSettings
from flue_py.core.model import ModelRequest
from flue_py.errors import ContextOverflow, ModelError, ModelRefused, ModelUnavailable, SummaryFailed
from flue_py.models import open_model
from tests.models import servers
from tests.models.servers import COMPACTION_BLOCK, KEY, Answer, Provider
from tests.values import existing

OPENAI, ANTHROPIC, CHAT = "openai:gpt-5", "anthropic:claude-sonnet-5", "openai-chat:gpt-5"
KEEP_LITTLE = CompactionSettings(reserve_tokens=1000, keep_recent_tokens=150)
ITEM = servers.compacted_response()["output"][-1]
WHOLE: dict[str, Any] = {OPENAI: servers.response, ANTHROPIC: servers.message, CHAT: servers.completion}


def opened(name: str, provider: Provider, account: str | None = None) -> Any:
    path = "" if name == ANTHROPIC else "/v1"
    return open_model(name, api_key=KEY, base_url=provider.url + path, stream=False, account=account)


def compaction_of(name: str) -> dict[str, Any]:
    return servers.compaction_message() if name == ANTHROPIC else servers.compacted_response("Question 0?")


async def filled(store: flue_py.Store, turns: int = 6) -> flue_py.Session:
    session = await store.create_session()
    for number in range(turns):
        await session.append_message({"role": "user", "content": f"Question {number}: " + "why? " * 50})
        await session.append_message({"role": "assistant", "content": f"Answer {number}: " + "thus. " * 50})
    return session


def running(run: Callable[[Provider, flue_py.Store], Awaitable[None]]) -> None:
    async def whole(provider: Provider) -> None:
        async with flue_py.open(":memory:") as store:
            await run(provider, store)
            assert (await store.verify()).problems == []

    with servers.provider() as provider:
        anyio.run(whole, provider)


async def asked(model: Any, session: flue_py.Session, provider: Provider, name: str) -> dict[str, Any]:
    """Return the body of a request with the context of a session."""
    provider.answers.append(Answer(WHOLE[name]()))
    await model.complete(ModelRequest(tuple(await session.build_context()), max_tokens=50))
    return provider.asked[-1][1]


def test_the_servers_answer_in_the_shapes_of_the_clients() -> None:
    message = BetaMessage.model_validate(servers.compaction_message(iterations=2))
    assert message.content[0].type == "compaction"
    assert message.usage.iterations is not None
    assert [step.type for step in message.usage.iterations] == ["compaction", "compaction"]
    TypeAdapter(BetaCompactionBlockParam).validate_python(COMPACTION_BLOCK)

    assert CompactedResponse.model_validate(servers.compacted_response()).output[0].type == "compaction"
    # What the user said comes back among the output as it may be sent: the client's type of an output does not have it.
    said, item = servers.compacted_response("Hello.")["output"]
    TypeAdapter(InputMessage).validate_python(said)
    TypeAdapter(ResponseCompactionItemParamParam).validate_python(item)


def test_anthropic_is_asked_for_its_block_and_gets_it_back_unchanged() -> None:
    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        provider.answers = [Answer(compaction_of(ANTHROPIC))]
        model = opened(ANTHROPIC, provider)
        done = await session.compact(model, mode="native", settings=KEEP_LITTLE)

        [(path, body)] = provider.asked
        assert path.startswith("/v1/messages")
        assert body["compaction"] == {"type": "summarize"}
        assert "compact-2026-09-04" in provider.headers[0]["anthropic-beta"]
        assert not {"context_management", "stop_sequences", "tool_choice", "output_config"} & set(body)
        assert "Question 0" in str(body["messages"])
        assert "Question 5" not in str(body["messages"])

        assert done.entry_id is not None
        entry = existing(await session.get_entry(done.entry_id))
        stored: Any = entry.fields
        assert stored["details"]["native"] == {
            "provider": "anthropic",
            "model": "claude-sonnet-5-20260101",
            "content": [COMPACTION_BLOCK],
            "covers": len(stored["summary"]),
        }
        assert stored["summary"].startswith(COMPACTION_BLOCK["content"])

        listed = to_anthropic(await session.build_context_entries()).messages
        assert listed[0]["role"] == "assistant"
        assert listed[0]["content"] == [COMPACTION_BLOCK]
        again = await asked(model, session, provider, ANTHROPIC)
        first = again["messages"][0]
        assert first["role"] == "assistant"
        # pydantic-ai leaves out what is null, and the changes of tools where there are none.
        assert first["content"][0] == {name: COMPACTION_BLOCK[name] for name in ("type", "content", "signature")}
        assert "Question 5" in str(again["messages"][1:])
        assert "compact-2026-09-04" in provider.headers[-1]["anthropic-beta"]

    running(run)


def test_openai_is_asked_for_its_item_and_gets_it_back_unchanged() -> None:
    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        answer = compaction_of(OPENAI)
        provider.answers = [Answer(answer)]
        model = opened(OPENAI, provider)
        done = await session.compact(model, mode="native", settings=KEEP_LITTLE)

        [(path, body)] = provider.asked
        assert path == "/v1/responses/compact"
        assert "Question 0" in str(body["input"])
        assert "Question 5" not in str(body["input"])

        assert done.entry_id is not None
        entry = existing(await session.get_entry(done.entry_id))
        details: Any = entry.fields["details"]
        assert details["native"]["content"] == answer["output"]
        assert done.summary is not None
        assert "INTENT-DERIVED RECONSTRUCTION" in done.summary
        assert "Question 0" in done.summary

        items = to_responses(await session.build_context_entries()).messages
        assert items[: len(answer["output"])] == answer["output"]
        again = await asked(model, session, provider, OPENAI)
        assert ITEM in again["input"]
        assert "RECONSTRUCTION" not in str(again["input"])

    running(run)


@pytest.mark.parametrize("name", [ANTHROPIC, OPENAI])
def test_any_other_provider_or_account_gets_the_text_and_the_first_one_its_own_again(name: str) -> None:
    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        provider.answers = [Answer(compaction_of(name))]
        own = opened(name, provider, "team-a")
        done = await session.compact(own, mode="native", settings=KEEP_LITTLE)
        assert done.summary is not None
        other = ANTHROPIC if name == OPENAI else OPENAI

        for model, called in (
            (opened(other, provider), other),
            (opened(CHAT, provider), CHAT),
            (opened(name, provider, "team-b"), name),
        ):
            sent = json.dumps(await asked(model, session, provider, called))
            assert '"compaction"' not in sent
            assert COMPACTION_BLOCK["signature"] not in sent
            assert ITEM["encrypted_content"] not in sent
            assert json.dumps(done.summary)[1:40] in sent
            await session.append_message({"role": "assistant", "content": "Yes."})
        assert '"compaction"' in json.dumps(await asked(own, session, provider, name))

        chat = to_openai(await session.build_context_entries()).messages
        [text] = chat[0]["content"] if isinstance(chat[0]["content"], list) else [{"text": chat[0]["content"]}]
        assert isinstance(text, dict)
        assert str(text["text"]).endswith(done.summary)
        assert "native" not in chat[0]

    running(run)


@pytest.mark.parametrize("iterations", [1, 2])
def test_each_iteration_is_a_call_of_the_ledger(iterations: int) -> None:
    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        provider.answers = [Answer(servers.compaction_message(iterations=iterations))]
        await session.compact(opened(ANTHROPIC, provider), mode="native", settings=KEEP_LITTLE)

        [row] = (await store.usage(session, group_by=["provider", "purpose"])).rows
        assert row.group == {"provider": "anthropic", "purpose": "compaction"}
        assert row.calls == iterations
        assert row.input == 20 * iterations
        assert row.output == 30 * iterations
        assert row.cache_read == 100 * iterations

    running(run)


def test_steps_of_other_models_and_what_changes_the_price_are_those_of_the_ledger() -> None:
    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        answer = servers.compaction_message(iterations=2)
        answer["usage"]["service_tier"] = "priority"
        answer["usage"]["iterations"][1]["model"] = "advisor-1"
        provider.answers = [Answer(answer)]
        await session.compact(opened(ANTHROPIC, provider), mode="native", settings=KEEP_LITTLE)
        rows = (await store.usage(session, group_by=["model", "price_source"])).rows
        assert [(row.calls, row.input, row.group["price_source"]) for row in rows] == [
            (1, 20, "not priced: service_tier=priority")
        ] * 2
        assert "advisor-1" in {row.group["model"] for row in rows}

    running(run)


@pytest.mark.parametrize("name", [ANTHROPIC, OPENAI])
def test_the_next_compaction_begins_with_the_block_of_the_one_before(name: str) -> None:
    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        provider.answers = [Answer(compaction_of(name)), Answer(compaction_of(name))]
        model = opened(name, provider)
        await session.compact(model, mode="native", settings=KEEP_LITTLE)
        for number in range(6, 9):
            await session.append_message({"role": "user", "content": f"Question {number}: " + "why? " * 50})
            await session.append_message({"role": "assistant", "content": f"Answer {number}: " + "thus. " * 50})
        done = await session.compact(model, mode="native", settings=KEEP_LITTLE)

        assert done.appended is not None
        sent = provider.asked[-1][1]
        if name == ANTHROPIC:
            assert sent["messages"][0]["content"][0] == COMPACTION_BLOCK
            assert str(sent).count("'compaction'") == 2  # the block, and what the request asks for
        else:
            assert sent["input"][: len(compaction_of(name)["output"])] == compaction_of(name)["output"]
        assert "Question 6" in str(sent)

    running(run)


def test_a_compaction_that_failed_is_no_compaction_and_what_it_cost_is_booked() -> None:
    failed = {**COMPACTION_BLOCK, "content": None, "signature": None}

    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        before = await session.build_context()
        provider.answers = [Answer(servers.compaction_message(failed))]
        with pytest.raises(SummaryFailed, match="no compaction"):
            await session.compact(opened(ANTHROPIC, provider), mode="native", settings=KEEP_LITTLE)

        assert await session.build_context() == before
        [row] = (await store.usage(session, group_by=["outcome"])).rows
        assert (row.group, row.calls) == ({"outcome": "failed"}, 1)

    running(run)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("refusal", ModelRefused),
        ("model_context_window_exceeded", ContextOverflow),
        ("max_tokens", ModelUnavailable),
        ("end_turn", ModelUnavailable),
    ],
)
def test_why_there_is_no_compaction_is_the_kind_of_the_error(reason: str, kind: type[ModelError]) -> None:
    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        ended = {"content": [], "stop_reason": reason}
        provider.answers = [Answer(servers.compaction_message(**ended, id=f"msg_{number}")) for number in range(9)]
        with pytest.raises(SummaryFailed, match=reason) as caught:
            await session.compact(opened(ANTHROPIC, provider), mode="native", settings=KEEP_LITTLE)

        assert type(caught.value.__cause__) is kind
        [row] = (await store.usage(session, group_by=["outcome"])).rows
        assert (row.group, row.calls) == ({"outcome": "failed"}, len(provider.asked))

    running(run)


BESIDE = (
    {"type": "text", "text": "Here it is."},
    {"type": "thinking", "thinking": "What was it?", "signature": "sig"},
    {"type": "compaction", "content": "An earlier one.", "signature": "s0"},
    {"type": "compaction", "content": None, "signature": None},
)


@pytest.mark.parametrize("beside", BESIDE, ids=["text", "thought", "block", "empty"])
def test_of_what_stands_beside_the_block_nothing_goes_back(beside: dict[str, Any]) -> None:
    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        provider.answers = [Answer(servers.compaction_message(beside, COMPACTION_BLOCK))]
        model = opened(ANTHROPIC, provider)
        done = await session.compact(model, mode="native", settings=KEEP_LITTLE)

        assert done.summary is not None
        assert done.summary.startswith(COMPACTION_BLOCK["content"])
        first = to_anthropic(await session.build_context_entries()).messages[0]
        assert first == {"role": "assistant", "content": [COMPACTION_BLOCK]}
        [row] = (await store.usage(session, group_by=["purpose"])).rows
        assert row.calls == 1

    running(run)


def test_settings_of_the_caller_go_along_but_what_a_compaction_is_refused_with() -> None:
    settings = {
        "extra_headers": {"Anthropic-Beta": "context-1m-2025-08-07, other-beta", "X-Team": "a"},
        "extra_body": {
            "stop_sequences": ["\n\nHuman:"],
            "context_management": {"edits": []},
            "tool_choice": {"type": "any"},
            "output_config": {"effort": "low", "format": {"type": "json_schema"}, "task_budget": {"type": "tokens"}},
            "metadata": {"user_id": "u1"},
        },
    }

    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        provider.answers = [Answer(compaction_of(ANTHROPIC))]
        model = open_model(ANTHROPIC, api_key=KEY, base_url=provider.url, stream=False, settings=settings)
        done = await session.compact(model, mode="native", settings=KEEP_LITTLE)

        assert done.appended is not None
        [headers] = provider.headers
        betas = next(value for name, value in headers.items() if name.lower() == "anthropic-beta")
        assert betas.split(",") == ["context-1m-2025-08-07", "other-beta", "compact-2026-09-04"]
        assert "a" in [value for name, value in headers.items() if name.lower() == "x-team"]
        assert not {"stop_sequences", "context_management", "tool_choice"} & set(provider.request)
        assert provider.request["output_config"] == {"effort": "low"}
        assert provider.request["metadata"] == {"user_id": "u1"}
        assert provider.request["compaction"] == {"type": "summarize"}

    running(run)


@pytest.mark.parametrize("name", [ANTHROPIC, OPENAI])
def test_what_goes_with_the_sessions_requests_goes_with_this_one(name: str) -> None:
    tool = {"name": "read", "description": "Read a file.", "parameters": {"type": "object", "properties": {}}}

    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        provider.answers = [Answer(compaction_of(name))]
        await session.compact(
            opened(name, provider), mode="native", settings=KEEP_LITTLE, system="Be brief.", tools=[tool]
        )

        assert provider.request["system" if name == ANTHROPIC else "instructions"] == "Be brief."
        if name == ANTHROPIC:
            [sent] = provider.request["tools"]
            assert (sent["name"], sent["input_schema"]) == ("read", tool["parameters"])

    running(run)


@pytest.mark.parametrize("name", [ANTHROPIC, OPENAI])
def test_what_is_more_than_the_window_is_compacted_in_parts(name: str) -> None:
    too_long = "prompt is too long: 3000 tokens > 2000 maximum"
    refused = {
        ANTHROPIC: servers.anthropic_error(400, "invalid_request_error", too_long),
        OPENAI: servers.openai_error(400, too_long, "invalid_request_error", "context_length_exceeded"),
    }

    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        provider.answers = [
            refused[name],
            *[Answer({**compaction_of(name), "id": f"r_{number}"}) for number in range(9)],
        ]
        model = opened(name, provider)
        done = await session.compact(model, mode="native", settings=KEEP_LITTLE)

        assert done.appended is not None
        assert any("parts" in note for note in done.notes)
        field = "messages" if name == ANTHROPIC else "input"
        sent = [json.dumps(body[field]) for _, body in provider.asked[1:]]
        assert len(sent) > 1
        for number in range(5):
            assert sum(f"Question {number}: " in each for each in sent) == 1
        own = COMPACTION_BLOCK["signature"] if name == ANTHROPIC else ITEM["encrypted_content"]
        assert all(own in each for each in sent[1:])
        [row] = (await store.usage(session, group_by=["purpose"])).rows
        assert row.calls == len(sent)

    running(run)


@pytest.mark.parametrize("name", [ANTHROPIC, OPENAI])
def test_a_refused_request_changes_nothing_and_says_why(name: str) -> None:
    why = "compaction is not available for this model"
    made: dict[str, Answer] = {
        ANTHROPIC: servers.anthropic_error(400, "invalid_request_error", why),
        OPENAI: servers.openai_error(400, why, "invalid_request_error"),
    }

    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        before = await session.build_context()
        provider.answers = [made[name]]
        with pytest.raises(SummaryFailed, match=why) as caught:
            await session.compact(opened(name, provider), mode="native", settings=KEEP_LITTLE)
        assert isinstance(caught.value.__cause__, ModelError)
        assert KEY not in str(caught.value)
        assert await session.build_context() == before

    running(run)


def test_a_model_whose_interface_has_none_is_told_so_or_the_fallback_makes_the_text() -> None:
    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        with pytest.raises(SummaryFailed, match="no compaction of its own"):
            await session.compact(opened(CHAT, provider), mode="native", settings=KEEP_LITTLE)
        settings = CompactionSettings(1000, 150, on_failure="fallback")
        done = await session.compact(opened(CHAT, provider), mode="native", settings=settings)

        assert done.mode == "intent"
        assert provider.asked == []
        assert any("'native' mode was requested" in note or "native" in note for note in done.notes)

    running(run)


def test_no_more_is_asked_for_than_the_model_can_answer() -> None:
    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        provider.answers = [Answer(compaction_of(ANTHROPIC))]
        model = open_model(ANTHROPIC, api_key=KEY, base_url=provider.url, stream=False, max_output_tokens=4_000)
        await session.compact(model, mode="native", settings=KEEP_LITTLE)

        assert provider.request["max_tokens"] == 4_000

    running(run)


def test_what_is_registered_goes_with_the_block() -> None:
    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store)
        await session.marks.register("rules", "Never push to main.", kind="instructions")
        provider.answers = [Answer(compaction_of(ANTHROPIC))]
        model = opened(ANTHROPIC, provider)
        done = await session.compact(model, mode="native", settings=KEEP_LITTLE)

        assert done.appended is not None
        own, beside, *_ = to_anthropic(await session.build_context_entries()).messages
        assert own["content"] == [COMPACTION_BLOCK]
        assert beside["role"] == "user"
        assert "Never push to main." in str(beside["content"])
        assert COMPACTION_BLOCK["content"] not in str(beside["content"])

    running(run)


def test_a_block_in_an_ordinary_answer_is_kept_and_goes_back() -> None:
    """Anthropic may compact by a threshold, in the middle of an answer."""
    block = {"type": "compaction", "content": "So far: a red build.", "encrypted_content": "Eo8BCk=="}

    async def run(provider: Provider, store: flue_py.Store) -> None:
        session = await filled(store, 1)
        told = servers.message(content=[block, {"type": "text", "text": "Fixed."}])
        provider.answers = [Answer(told)]
        model = opened(ANTHROPIC, provider)
        reply = await model.complete(ModelRequest(tuple(await session.build_context()), max_tokens=50))
        assert reply.messages[0]["content"] == [{**block, "type": "compaction"}, {"type": "text", "text": "Fixed."}]
        await session.append_message(reply.messages[0])
        await session.append_message({"role": "user", "content": "Thanks."})
        sent = await asked(model, session, provider, ANTHROPIC)
        assert block in sent["messages"][0]["content"]

    running(run)
