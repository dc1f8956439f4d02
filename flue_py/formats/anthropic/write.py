"""A context as a list of Anthropic messages."""

from __future__ import annotations

from collections.abc import Iterable

from flue_py.core.jsontext import JsonValue
from flue_py.core.projection import ContextEntry
from flue_py.formats.anthropic.read import FORMAT
from flue_py.formats.kit.exported import Exported, exported_json
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.anthropic import anthropic_list
from flue_py.wire.lists.said import said_in


def export_anthropic(context: Iterable[ContextEntry]) -> Exported:
    """Return what the model sees as Anthropic messages (see `anthropic_list`).

    Where the context has system messages, it is an object with ``system`` and ``messages``, as a request has them.
    Cost: O(messages).
    """
    left = Leftovers()
    system, messages = anthropic_list(said_in(context), left)
    value: JsonValue = [*messages]
    return exported_json(FORMAT, value if system is None else {"system": system, "messages": value}, left)
