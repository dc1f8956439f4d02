"""What pi itself makes of a context: the messages that go to the model."""

from __future__ import annotations

from collections.abc import Iterable

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.spoken import message_text
from flue_py.wire.lists.said import bash_text


def messages_for_model(context: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the messages of a context as pi sends them: roles user, assistant and toolResult only.

    A ``bashExecution`` becomes a user message with `bash_text`, and goes where it says ``excludeFromContext``; a
    ``custom`` message becomes a user message; any other role is left out. Cost: O(messages).
    """
    sent: list[JsonObject] = []
    for message in context:
        role = message.get("role")
        if role in ("user", "assistant", "toolResult"):
            sent.append(message)
        elif role == "bashExecution" and not message.get("excludeFromContext"):
            sent.append(_from_user(bash_text(message), message))
        elif role == "custom":
            content = message.get("content")
            sent.append(_from_user(content if isinstance(content, list) else message_text(message), message))
    return sent


def _from_user(content: str | list[JsonValue], message: JsonObject) -> JsonObject:
    parts: JsonValue = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {"role": "user", "content": parts, "timestamp": message.get("timestamp")}
