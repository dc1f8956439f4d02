"""Errors of the context that are no overflow, and that a smaller context helps against as well."""

from __future__ import annotations

from types import SimpleNamespace

from flue_py.context.overflows import named_overflow, overflow_of
from flue_py.errors import ContextOverflow, RateLimited
from tests.values import existing


class ClientError(Exception):
    """Stands for an error of a provider's client."""

    def __init__(self, words: str, status_code: int) -> None:
        super().__init__(f"Error code: {status_code} - {{'error': {{'message': {words!r}}}}}")
        self.status_code = status_code


def test_what_an_error_of_a_client_tells_of() -> None:
    too_long = "prompt is too long: 210000 tokens > 200000 maximum"
    orphan = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
    cases: list[tuple[Exception, tuple[int | None, bool] | None]] = [
        (ClientError(too_long, 400), (200_000, False)), (ClientError(orphan, 400), (None, True)),
        (ClientError("payload", 413), (None, False)), (ClientError("input is too long", 429), None),
        (ClientError("no such model", 404), None), (RateLimited(too_long), None), (ValueError("prompt"), None),
    ]  # fmt: skip
    found = [(error, overflow_of(error)) for error, _ in cases]
    assert [told and (told.window, told.is_malformed) for _, told in found] == [expected for _, expected in cases]
    assert [told.__cause__ is error for error, told in found if told] == [True] * 3
    assert existing(overflow_of(ValueError(f"prompt is too long: {'9' * 5_000} tokens > 4"))).tokens is None
    own = ContextOverflow("own")
    assert overflow_of(own) is own


def test_an_error_has_its_status_where_its_client_puts_it() -> None:
    def error(words: str, **fields: object) -> Exception:
        made = RuntimeError(words)
        vars(made).update(fields)
        return made

    def places(status: int) -> list[dict[str, object]]:
        return [
            {"status_code": status}, {"code": status}, {"code": str(status)}, {"status": status},
            {"http_status": status}, {"status_code": None, "code": status},
            {"code": "rate_limit_exceeded", "response": SimpleNamespace(status_code=status)},
            {"response": {"Error": {"Code": "Any"}, "ResponseMetadata": {"HTTPStatusCode": status}}},
        ]  # fmt: skip

    assert [at for at in places(413) if overflow_of(error("Payload", **at)) is None] == []
    assert [at for at in places(429) if overflow_of(error("input is too long", **at)) is not None] == []
    assert overflow_of(error("Payload", response={"Error": {}}, code=True)) is None


def test_what_is_an_error_of_the_context() -> None:
    said = (
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'",
        "messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
        "'tool_calls' must be followed by tool messages. These tool_call_ids did not have response messages: c1",
        "No tool output found for function call call_1.",
        "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01",
        "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_01",
        "Please ensure that the number of function response parts is equal to the number of function call parts",
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    )
    malformed = {"tokens": None, "window": None, "is_malformed": True}
    assert [each for each in said if named_overflow(each) != malformed] == []
    assert named_overflow("prompt is too long") == {**malformed, "is_malformed": False}
    assert named_overflow("messages: text content blocks must be non-empty") is None
