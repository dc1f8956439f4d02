"""Stale reasoning is left out of any history, in any form that it came in, and what is left breaks no rule."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import flue_py
from flue_py.core.json import JsonObject
from flue_py.core.kinds import signatures_in
from flue_py.providers import LIMITS
from flue_py.providers.lists import Said
from flue_py.providers.request import STALE, prefix_digest, wire_request
from tests.effort import examples
from tests.tables import inputs
from tests.wire.hostile import histories

OTHER = "0" * 32
"""What no request has as its digest."""


def stale(messages: list[JsonObject]) -> list[Said]:
    """Return messages whose answers were all produced under something else."""
    said = []
    for number, message in enumerate(messages):
        bound = {**message, "producedUnder": OTHER} if message["role"] == "assistant" else message
        said.append(Said(bound, entry_id=f"e{number}"))
    return said


@examples(80)
@given(histories, st.sampled_from([None, "claude-sonnet-4-5", "gpt-5"]))
def test_without_stale_reasoning_any_history_breaks_no_rule(messages: list[JsonObject], model: str | None) -> None:
    before = json.dumps(messages)
    for target in LIMITS:
        found = wire_request(target, stale(messages), model=model)
        assert [str(each) for each in found.broken] == ([] if found.messages else [str(found.broken[0])])
        assert {*signatures_in([*found.messages])} <= {"skip_thought_signature_validator"}
        plain = wire_request(target, stale(messages), model=model, keeps_stale_reasoning=True)
        if not any(STALE in repair.what for repair in found.repairs):
            assert found.messages == plain.messages
    assert json.dumps(messages) == before


def test_the_digest_is_of_target_system_tools_and_messages_but_not_of_marks_or_of_how_parts_are_joined() -> None:
    text = {"type": "text", "text": "Why?"}
    said: list[JsonObject] = [{"role": "user", "content": "Why?"}]
    digest = prefix_digest("anthropic", said, "Be brief.", ())
    marked: list[JsonObject] = [{"role": "user", "content": [{**text, "cache_control": {"type": "ephemeral"}}]}]
    assert prefix_digest("anthropic", marked, [{"type": "text", "text": "Be brief."}], ()) == digest
    twice: list[JsonObject] = [{"role": "user", "content": [text, text]}]
    assert prefix_digest("anthropic", [*said, *said], None, ()) == prefix_digest("anthropic", twice, None, ())
    others = [
        prefix_digest("gemini", said, "Be brief.", ()),
        prefix_digest("anthropic", said, "Be long.", ()),
        prefix_digest("anthropic", said, "Be brief.", [{"name": "read"}]),
        prefix_digest("anthropic", twice, "Be brief.", ()),
        prefix_digest("anthropic", [{"role": "assistant", "content": "Why?"}], "Be brief.", ()),
    ]
    assert len({digest, *others}) == 6


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"}
FORMS: dict[str, list[dict[str, Any]]] = {
    "anthropic": [
        {
            "role": "assistant",
            "content": [
                {"type": "redacted_thinking", "data": "sealed"},
                {"type": "thinking", "thinking": "hm", "signature": "signed"},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "done"}]},
    ],
    "openai-responses": [
        REASONING,
        {
            "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": "{}",
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ],
    "gemini": [
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True, "thoughtSignature": "signed"},
                {"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "of the call"},
            ],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "done"}}}]},
    ],
}  # fmt: skip


@inputs("target", FORMS)
async def test_an_answer_as_the_provider_gave_it_is_sent_again_as_it_was_or_without_its_reasoning(target: str) -> None:
    form = FORMS[target]
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        await session.append_message({"role": "user", "content": "Why?"})
        digest = (await session.request(target, system="Be brief.")).prefix_digest
        await session.append_messages(form, produced_under=digest)
        kept = await session.request(target, system="Be brief.")
        assert kept.messages[-len(form) :] == form
        assert all(STALE not in repair.what for repair in kept.repairs)

        left = await session.request(target, system="Be long.")
        text = json.dumps(left.messages)
        assert not any(word in text for word in ("signed", "sealed", "abc", "of the call", "fc_1"))
        assert '"read"' in text
        assert "done" in text
        assert left.broken == ()
        assert {repair.entry_id for repair in left.repairs if STALE in repair.what} <= {
            item.entry_id for item in await session.build_context_entries()
        }
        assert (await store.verify()).problems == []
