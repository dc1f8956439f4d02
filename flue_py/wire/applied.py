"""What a provider says it left out of a request itself."""

from __future__ import annotations

from collections.abc import Mapping

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonValue

APPLIED_EDITS = "appliedEdits"
"""The field of an answer of ours that has what Anthropic said it cleared, as it was said."""

MANAGED, EDITS = "context_management", "applied_edits"
"""The field of a response that says so, and the one in it that has the list."""


@frozen
class AppliedEdit:
    """One way in which a provider shortened a request before it answered, by its own name (``type``).

    ``tool_uses`` and ``thinking_turns`` are how many of these it cleared, ``input_tokens`` is how many tokens that
    freed; None where it does not say.
    """

    type: str
    tool_uses: int | None = None
    thinking_turns: int | None = None
    input_tokens: int | None = None

    def __str__(self) -> str:
        amounts = ((self.tool_uses, "tool uses"), (self.thinking_turns, "turns of reasoning"))
        said = [f"{amount:,} {what}" for amount, what in amounts if amount is not None]
        tokens = "unknown" if self.input_tokens is None else f"{self.input_tokens:,}"
        return f"{self.type}: {', '.join([*said, f'{tokens} tokens'])}"


def applied_edits(answer: Mapping[str, JsonValue]) -> tuple[AppliedEdit, ...] | None:
    """Return what Anthropic cleared of the request behind an answer, in its order; None where that is not said.

    ``answer`` is a response of the API, the event of a stream that ends one (``message_delta``), or a message of ours
    that was made of one. What is no edit in it is passed over. O(edits).
    """
    said = _said(answer)
    return None if said is None else tuple(edit for edit in map(_edit, said) if edit is not None)


def cleared_tokens(answer: Mapping[str, JsonValue]) -> int | None:
    """Return how many tokens `applied_edits` freed together; None where that of any of them is not said."""
    said = _said(answer)
    tokens = [edit.input_tokens for edit in map(_edit, said or ()) if edit and edit.input_tokens is not None]
    return None if said is None or len(tokens) < len(said) else sum(tokens)


def _said(answer: Mapping[str, JsonValue]) -> list[JsonValue] | None:
    managed = answer.get(MANAGED)
    edits = answer.get(APPLIED_EDITS, managed.get(EDITS) if isinstance(managed, Mapping) else None)
    return edits if isinstance(edits, list) else None


def _edit(value: JsonValue) -> AppliedEdit | None:
    if not isinstance(value, Mapping) or not isinstance(kind := value.get("type"), str):
        return None
    uses, turns, tokens = (
        _amount(value.get(name)) for name in ("cleared_tool_uses", "cleared_thinking_turns", "cleared_input_tokens")
    )
    return AppliedEdit(kind, uses, turns, tokens)


def _amount(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
