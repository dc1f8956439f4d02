"""The tokens of a request are those of what is in it, whatever was repaired."""

from __future__ import annotations

import json

from flue_py import sync
from flue_py.core.json import JsonObject
from flue_py.providers.base import LIMITS
from flue_py.providers.lists import NO_RESULT
from tests.context.pipeline.piped import answer, call, result, user
from tests.tables import inputs

WORDS = "hm, I see " * 200
TEXT: JsonObject = {"type": "text", "text": "I say."}
ITEM = json.dumps({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2lnbmVk"})
SIGNED = {
    "anthropic": ("anthropic", "c2lnbmVk"),
    "openai-responses": ("openai", ITEM),
    "gemini": ("google", "c2lnbmVk"),
}
PLAIN = [user("Go."), {"role": "assistant", "content": [TEXT]}, user("And?")]


def thought(signature: str = "") -> JsonObject:
    return {"type": "thinking", "thinking": WORDS, **({"thinkingSignature": signature} if signature else {})}


def with_thought(signature: str = "", **more: str) -> list[JsonObject]:
    return [user("Go."), {"role": "assistant", "content": [thought(signature), TEXT], **more}, user("And?")]


def tokens_of(target: str | None, said: list[JsonObject], model: str | None = None, under: str | None = None) -> int:
    """Return the tokens of a request, in which something was repaired if they are not those of the whole."""
    with sync.open(":memory:") as store:
        session = store.create_session()
        for message in said:
            session.append_message(message, produced_under=under if message["role"] == "assistant" else None)
        request = session.request(target, model=model)
        assert request.broken == ()
        assert request.is_estimate == (request.report.is_estimate or bool(request.repairs))
        assert request.tokens == request.tokens_sent == request.report.tokens_after - request.tokens_repaired
        assert not store.verify().problems
        return request.tokens


@inputs("target", LIMITS)
def test_reasoning_of_another_model_does_not_count(target: str) -> None:
    said = with_thought("c2lnbmVk", provider="mistral", model="large")
    assert tokens_of(target, said, "gpt-5") == tokens_of(target, PLAIN, "gpt-5")


@inputs("target", LIMITS)
def test_reasoning_that_the_provider_did_not_sign_does_not_count(target: str) -> None:
    assert tokens_of(target, with_thought(provider="mistral")) == tokens_of(target, PLAIN)


@inputs("target", [*SIGNED, None])
def test_reasoning_under_another_beginning_does_not_count(target: str | None) -> None:
    provider, signature = SIGNED[target or "anthropic"]
    said = with_thought(signature, provider=provider)
    assert tokens_of(target, said) > 600
    assert tokens_of(target, said, under="another") == tokens_of(target, PLAIN)


@inputs("target", SIGNED)
def test_reasoning_that_nothing_follows_does_not_count(target: str) -> None:
    provider, signature = SIGNED[target]
    item = json.dumps({**json.loads(ITEM), "summary": [{"type": "summary_text", "text": WORDS}]})
    last: JsonObject = {
        "role": "assistant",
        "provider": provider,
        "content": [thought(item if target == "openai-responses" else signature)],
    }
    # The overhead of the message that it was alone in is no part of it, and Gemini is given a user's in its place.
    assert tokens_of(target, [*PLAIN, last]) - tokens_of(target, PLAIN) <= 8


@inputs("target", LIMITS)
def test_a_result_without_a_call_and_a_blank_message_do_not_count(target: str) -> None:
    said = [*PLAIN, result("orphan", WORDS), answer("Well."), user(" \n" * 50)]
    assert tokens_of(target, said) == tokens_of(target, [*PLAIN, answer("Well.")])


@inputs("target", LIMITS)
def test_an_error_in_place_of_a_result_counts(target: str) -> None:
    said = [user("Go."), answer("", call("c1"))]
    made = {**result("c1"), "content": NO_RESULT, "toolName": "read_file"}
    assert tokens_of(target, [*said, user("And?")]) == tokens_of(target, [*said, made, user("And?")])


@inputs("target", LIMITS)
def test_a_part_that_has_no_place_in_a_request_does_not_count(target: str) -> None:
    unknown: JsonObject = {"type": "hologram", "data": WORDS}
    said: list[JsonObject] = [{"role": "user", "content": [TEXT, unknown]}]
    assert tokens_of(target, said) == tokens_of(target, [{"role": "user", "content": [TEXT]}])


@inputs("target", ["anthropic", "openai-chat"])
def test_the_text_in_place_of_a_picture_counts(target: str) -> None:
    said: list[JsonObject] = [
        {"role": "user", "content": [TEXT, {"type": "image", "data": "AA", "mimeType": "image/tiff"}]}
    ]
    with sync.open(":memory:") as store:
        session = store.create_session()
        session.append_messages(said)
        request = session.request(target)
        assert request.repairs
        instead = next(part["text"] for part in request.messages[0]["content"] if "image left" in part.get("text", ""))  # type: ignore[union-attr, index, call-overload, operator]
    put: list[JsonObject] = [{"role": "user", "content": [TEXT, {"type": "text", "text": instead}]}]
    assert request.tokens == tokens_of(target, put)
