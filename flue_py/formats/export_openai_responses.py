"""A context as a list of OpenAI Responses items."""

from __future__ import annotations

from collections.abc import Iterable

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.projection import ContextEntry
from flue_py.formats.conversation import Said, answered, speakers_only
from flue_py.formats.differences import restored
from flue_py.formats.exported import Exported, exported_json
from flue_py.formats.leftovers import Leftovers
from flue_py.formats.openai_responses import FORMAT
from flue_py.formats.responses_items import EXTRA, printed_items

_ALSO = frozenset({"developer"})


def export_openai_responses(context: Iterable[ContextEntry]) -> Exported:
    """Return what the model sees as Responses items, every call with an output (row I06).

    Reasoning goes out where OpenAI gave it, as the item that came. Outputs stay where they are: the format does not
    ask for them right behind the calls. Cost: O(messages).
    """
    left = Leftovers()
    items: list[JsonValue] = []
    for said in answered(speakers_only(context, left, also=_ALSO), left, in_place=True):
        items += _printed(said, left)
    return exported_json(FORMAT, items, left)


def _printed(said: Said, left: Leftovers) -> list[JsonObject]:
    if EXTRA not in said.extra:
        return printed_items(said.message, Leftovers() if said.is_made_up else left)
    printed = printed_items(said.message, Leftovers())
    return [restored(printed[0] if len(printed) == 1 else {}, said.extra[EXTRA])]
