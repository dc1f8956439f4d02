"""A context as a list of OpenAI Responses items."""

from __future__ import annotations

from collections.abc import Iterable

from flue_py.core.projection import ContextEntry
from flue_py.formats.kit.exported import Exported, exported_json
from flue_py.formats.openai.read_responses import FORMAT
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.openai_responses import responses_list
from flue_py.wire.lists.said import said_in


def export_openai_responses(context: Iterable[ContextEntry]) -> Exported:
    """Return what the model sees as Responses items (see `responses_list`). Cost: O(messages)."""
    left = Leftovers()
    return exported_json(FORMAT, [*responses_list(said_in(context), left)], left)
