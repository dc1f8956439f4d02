"""What a provider says that it cleared itself is read, kept with the answer, and told."""

from __future__ import annotations

from flue_py.core.json import JsonObject, JsonValue
from flue_py.providers import AppliedEdit, applied_edits
from flue_py.providers.anthropic import cleared_tokens
from tests.tables import inputs
from tests.values import existing

TOOLS: JsonObject = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50_000}
THINKING: JsonObject = {"type": "clear_thinking_20251015", "cleared_thinking_turns": 3, "cleared_input_tokens": 15_000}
EDITS: list[JsonValue] = [THINKING, TOOLS]
RESPONSE: JsonObject = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn",
    "usage": {"input_tokens": 25_000, "output_tokens": 20}, "context_management": {"applied_edits": EDITS},
}  # fmt: skip


def test_edits_are_read_of_a_response_an_event_and_a_message() -> None:
    found = (
        AppliedEdit("clear_thinking_20251015", None, 3, 15_000),
        AppliedEdit("clear_tool_uses_20250919", 8, None, 50_000),
    )
    event: JsonObject = {"type": "message_delta", "delta": {}, "context_management": {"applied_edits": EDITS}}
    for answer in (RESPONSE, event, {"role": "assistant", "appliedEdits": EDITS}):
        assert applied_edits(answer) == found
        assert cleared_tokens(answer) == 65_000
    assert [*map(str, found)] == [
        "clear_thinking_20251015: 3 turns of reasoning, 15,000 tokens",
        "clear_tool_uses_20250919: 8 tool uses, 50,000 tokens",
    ]


@inputs("managed", [None, {}, {"applied_edits": None}, "x", {"applied_edits": {}}])
def test_what_is_not_said_is_unknown(managed: JsonValue) -> None:
    assert applied_edits({"context_management": managed}) is None
    assert cleared_tokens({"context_management": managed}) is None
    assert applied_edits({}) is None


def test_nothing_cleared_is_no_tokens_and_a_missing_number_is_unknown() -> None:
    nothing: JsonObject = {"context_management": {"applied_edits": []}}
    assert (applied_edits(nothing), cleared_tokens(nothing)) == ((), 0)
    for odd in ({"type": "new"}, {**TOOLS, "cleared_input_tokens": True}, {**TOOLS, "cleared_input_tokens": -1}, 5):
        answer: JsonObject = {"context_management": {"applied_edits": [TOOLS, odd]}}
        assert cleared_tokens(answer) is None
        edits = existing(applied_edits(answer))
        assert [edit.input_tokens for edit in edits] == [50_000, None][: 1 if odd == 5 else 2]
    assert str(AppliedEdit("new")) == "new: unknown tokens"
