"""The settings in force at a leaf: the model and the thinking level, as the path has them."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import MESSAGE

MODEL_CHANGE = "model_change"
THINKING_LEVEL_CHANGE = "thinking_level_change"
SHELL = "shell"
"""The source of an answer that no model gave: it calls a command that a person ran."""


@frozen
class PathSettings:
    """The settings in force at a leaf: the last ones on its path. None where the path says nothing."""

    thinking_level: str | None = None
    provider: str | None = None
    model: str | None = None


def settings_on(path: Sequence[Entry]) -> PathSettings:
    """Return the settings in force at the end of a path, its entries from root to leaf; others may be left out.

    The thinking level is that of the last ``thinking_level_change`` (``thinkingLevel``). The model is that of the last
    ``model_change`` (``provider``, ``modelId``) or answer (``provider``, ``model``), but for the
    calls of `shell_exchange`, which no model made. From the end, as far as is needed:
    O(path) at worst.
    """
    level: JsonObject | None = None
    model: tuple[JsonValue, JsonValue] | None = None
    for entry in reversed(path):
        if level is None and entry.kind == THINKING_LEVEL_CHANGE:
            level = _object(entry)
        elif model is None and entry.kind == MODEL_CHANGE:
            model = _object(entry).get("provider"), _object(entry).get("modelId")
        elif model is None and entry.role == "assistant" and entry.kind == MESSAGE and entry.source != SHELL:
            model = entry.fields.get("provider"), entry.fields.get("model")
        if level is not None and model is not None:
            break
    provider, name = model or (None, None)
    return PathSettings(_text((level or {}).get("thinkingLevel")), _text(provider), _text(name))


def _object(entry: Entry) -> JsonObject:
    data = entry.data  # an entry of these kinds may carry any JSON
    return data if isinstance(data, dict) else {}


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
