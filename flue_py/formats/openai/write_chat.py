"""A context as a list of OpenAI chat messages."""

from __future__ import annotations

from collections.abc import Iterable

from flue_py.core.projection import ContextEntry
from flue_py.formats.kit.exported import Exported, exported_json
from flue_py.formats.openai.read_chat import FORMAT
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.openai_chat import chat_list
from flue_py.wire.lists.said import said_in


def export_openai_chat(context: Iterable[ContextEntry]) -> Exported:
    """Return what the model sees as chat messages (see `chat_list`). Cost: O(messages)."""
    left = Leftovers()
    return exported_json(FORMAT, [*chat_list(said_in(context), left)], left)
