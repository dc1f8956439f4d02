"""What pi itself makes of a path: the settings in force at its end, and the messages that go to the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import MESSAGE
from flue_py.core.spoken import message_text
from flue_py.formats.kit.conversation import bash_text

MODEL_CHANGE = "model_change"
THINKING_LEVEL_CHANGE = "thinking_level_change"


@frozen
class PathSettings:
    """The settings in force at a leaf: the last ones on its path."""

    thinking_level: str = "off"
    provider: str | None = None
    model: str | None = None


def settings_on(path: Sequence[Entry]) -> PathSettings:
    """Return the settings in force at the end of a path (entries from root to leaf). Cost: O(path)."""
    settings = PathSettings()
    for entry in path:
        if entry.kind == THINKING_LEVEL_CHANGE:
            settings = replace(settings, thinking_level=_text(_fields(entry).get("thinkingLevel")) or "off")
        elif entry.kind == MODEL_CHANGE:
            fields = _fields(entry)
            settings = replace(settings, provider=_text(fields.get("provider")), model=_text(fields.get("modelId")))
        elif entry.kind == MESSAGE and entry.role == "assistant":
            fields = entry.fields
            settings = replace(settings, provider=_text(fields.get("provider")), model=_text(fields.get("model")))
    return settings


def _fields(entry: Entry) -> JsonObject:
    data = entry.data  # an entry of these kinds may carry any JSON
    return data if isinstance(data, dict) else {}


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


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
