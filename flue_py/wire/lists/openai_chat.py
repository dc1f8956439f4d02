"""What the model sees as a list of OpenAI chat messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.wire.differences import restored
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.said import Said, answered, joined_answers, speakers_only
from flue_py.wire.openai_chat import EXTRA, parts_of, printed_chat, printed_image

_ALSO = frozenset({"developer", "function"})


def chat_list(messages: Iterable[Said], left: Leftovers) -> list[JsonObject]:
    """Return messages of ours as chat messages, every call of a tool answered right behind it.

    Reasoning is left out, unless it came from such a list. Images of tool results follow in a message of the user:
    the format takes them from no other role. Cost: O(messages).
    """
    printed: list[JsonObject] = []
    images: list[JsonValue] = []
    for said in answered(joined_answers(speakers_only(messages, left, also=_ALSO)), left):
        left.at = said.entry_id
        if images and said.role != "toolResult":
            _flush(printed, images)
        found = _printed(said, left)
        if found is not None:
            printed.append(found)
        if said.role == "toolResult" and EXTRA not in said.extra:
            images += _images(said.message, left)
    _flush(printed, images)
    left.at = None
    return printed


def _printed(said: Said, left: Leftovers) -> JsonObject | None:
    if EXTRA in said.extra:
        # Reasoning that came from such a list goes back into it, so that it is not left out.
        return restored(printed_chat(said.message, Leftovers()), said.extra[EXTRA])
    printed = printed_chat(said.message, Leftovers() if said.is_made_up else left)
    is_empty = said.role == "assistant" and printed["content"] is None and "tool_calls" not in printed
    return None if is_empty and isinstance(said.message.get("content"), list) else printed


def _images(message: Mapping[str, JsonValue], left: Leftovers) -> list[JsonValue]:
    found = [image for part in parts_of(message) if part.get("type") == "image" for image in printed_image(part, left)]
    for part in parts_of(message):
        if part.get("type") == "file":
            left.note("a file of a tool result", part)
    if not found:
        return []
    left.change("images of tool results stand in a message of the user")
    return [{"type": "text", "text": f"Images from tool call {message.get('toolCallId')}:"}, *found]


def _flush(messages: list[JsonObject], images: list[JsonValue]) -> None:
    if images:
        messages.append({"role": "user", "content": [*images]})
        images.clear()
