"""Errors of the context that are no overflow, and that a smaller context helps against as well."""

from __future__ import annotations

from flue_py.models.overflows import named_overflow


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
