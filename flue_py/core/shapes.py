"""Messages in a provider's own form, told from ours, a message at a time.

A field or a part that only one provider has says whose message it is. A message without any is in our form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from flue_py.core.jsontext import JsonValue
from flue_py.errors import InvalidEntry

Shape: TypeAlias = Literal["openai-chat", "openai-responses", "anthropic", "gemini"]
"""Whose form a message is in; lists of the first three are formats of this name, too."""

_CHAT_FIELDS = frozenset({
    "tool_calls", "function_call", "tool_call_id", "refusal", "audio", "annotations", "reasoning_content",
    "thinking_content",
})  # fmt: skip
_ANTHROPIC_FIELDS = frozenset({"stop_reason", "stop_sequence"})
_CHAT_PARTS = ("image_url", "input_audio", "audio_url", "video_url")
_RESPONSES_PARTS = ("input_text", "output_text", "input_image", "input_file", "summary_text")
_ANTHROPIC_PARTS = (
    "tool_use", "tool_result", "redacted_thinking", "server_tool_use", "web_search_tool_result",
    "web_fetch_tool_result", "code_execution_tool_result", "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result", "tool_search_tool_result", "mcp_tool_use", "mcp_tool_result",
    "container_upload",
)  # fmt: skip
_PART_SHAPES: dict[str, Shape] = {
    **dict.fromkeys(_CHAT_PARTS, "openai-chat"),
    **dict.fromkeys(_RESPONSES_PARTS, "openai-responses"),
    **dict.fromkeys(_ANTHROPIC_PARTS, "anthropic"),
}
_MARKED_BY_FIELD: dict[str, tuple[str, Shape]] = {
    "thinking": ("signature", "anthropic"),
    "image": ("source", "anthropic"),
    "document": ("source", "anthropic"),
    "search_result": ("source", "anthropic"),
    "file": ("file", "openai-chat"),
    "refusal": ("refusal", "openai-chat"),
}
_WHOLE_ANSWERS = {
    "choices": "a whole completion, which append_message() takes; its choices[0].message is a message",
    "output": "a whole response, which append_message() takes; the items in it are messages",
    "messages": "a whole request; append the messages in it, with append_messages()",
    "candidates": "a whole answer of Gemini, which append_message() takes; its candidates[0].content is a message",
    "contents": "a whole request to Gemini; append the contents in it, with append_messages()",
}
_GEMINI_PARTS = frozenset({
    "text", "functionCall", "function_call", "functionResponse", "function_response", "inlineData", "inline_data",
    "fileData", "file_data", "executableCode", "executable_code", "codeExecutionResult", "code_execution_result",
})  # fmt: skip


def shape_of(message: Mapping[str, JsonValue], where: str = "message") -> Shape | None:
    """Return whose form a message is in; None for ours.

    Raises `InvalidEntry` if it mixes the parts of two providers, and for a whole request or response. O(parts).
    """
    role = message.get("role")
    if role == "toolResult":
        return None
    if "parts" in message and _is_content(message, role):
        return "gemini"
    if role is None and "type" not in message:
        _refuse_whole_answer(message, where)
    content = message.get("content")
    by_parts = _shape_of_parts(content, where) if type(content) is list else None
    if by_parts == "ours":
        return None
    by_fields = _shape_of_fields(message, role, by_parts)
    if by_parts is None or by_fields is None or by_parts == by_fields:
        return by_fields or by_parts
    if by_parts == "openai-chat" and by_fields == "openai-responses":  # both have refusals and files
        return by_fields
    raise InvalidEntry(f"{where}.content: holds parts of {by_parts} in a message of {by_fields}; send one form")


def _is_content(message: Mapping[str, JsonValue], role: JsonValue) -> bool:
    """Return whether a message is a content of Gemini's: it has parts in place of a content."""
    parts = message.get("parts")
    if not isinstance(parts, list) or "content" in message:
        return False
    if role == "model":
        return True
    if role not in ("user", "function", "system", None):
        return False
    return any(isinstance(part, dict) and "type" not in part and not _GEMINI_PARTS.isdisjoint(part) for part in parts)


def _shape_of_fields(message: Mapping[str, JsonValue], role: JsonValue, by_parts: Shape | None) -> Shape | None:
    kind = message.get("type")
    # What has a role and another type is ours, with a field that we do not know.
    if isinstance(kind, str) and (kind == "message" or role is None):
        # Items of the Responses API have no usage, but by their parts they may be some to which a caller added it.
        fields = _ANTHROPIC_FIELDS if by_parts else _ANTHROPIC_FIELDS | {"usage"}
        is_answer = kind == "message" and not fields.isdisjoint(message)
        return "anthropic" if is_answer or by_parts == "anthropic" else "openai-responses"
    if role in ("tool", "function"):
        return "openai-chat"
    if role == "assistant":
        if not _ANTHROPIC_FIELDS.isdisjoint(message):
            return "anthropic"
        if not _CHAT_FIELDS.isdisjoint(message):
            return "openai-chat"
    return None


def _shape_of_parts(content: Sequence[JsonValue], where: str) -> Shape | Literal["ours"] | None:
    found: Shape | None = None
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(part, dict) or not isinstance(kind, str):
            continue
        if kind == "toolCall" or (kind == "thinking" and "thinkingSignature" in part):
            return "ours"
        shape = _PART_SHAPES.get(kind)
        if shape is None and kind in _MARKED_BY_FIELD:
            field, marked = _MARKED_BY_FIELD[kind]
            shape = marked if field in part else None
        if shape is None or shape == found:
            continue
        if found == "openai-responses" and kind == "refusal":
            continue
        if found is not None and not (found == "openai-chat" and shape == "openai-responses"):
            raise InvalidEntry(f"{where}.content[{number}]: a part of {shape} beside parts of {found}; send one form")
        found = shape
    return found


def _refuse_whole_answer(message: Mapping[str, JsonValue], where: str) -> None:
    for field, what in _WHOLE_ANSWERS.items():
        if isinstance(message.get(field), list):
            raise InvalidEntry(f"{where}.{field}: is {what}")


def check_is_ours(message: Mapping[str, JsonValue], where: str = "message") -> None:
    """Raise `InvalidEntry`, with the path of what tells it, for a message in a provider's form. O(parts)."""
    shape = shape_of(message, where)
    if shape is not None:
        raise InvalidEntry(
            f"{where}{_mark_of(message)}: is of the form {shape}, which one entry may not hold; append_message() "
            "and append_messages() convert it"
        )


def _mark_of(message: Mapping[str, JsonValue]) -> str:
    """Return the path below a message of what makes it a provider's."""
    content = message.get("content")
    if _is_content(message, message.get("role")):
        return ".parts"
    for number, part in enumerate(content if isinstance(content, list) else ()):
        if _shape_of_parts([part], "") is not None:
            return f".content[{number}].type"
    if message.get("role") in ("tool", "function"):
        return ".role"
    found = [field for field in message if field in _CHAT_FIELDS or field in _ANTHROPIC_FIELDS]
    return f".{found[0]}" if found else ".type"
