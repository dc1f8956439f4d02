"""What the model sees as a list of OpenAI Responses items."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flue_py.core.jsontext import JsonObject
from flue_py.core.native import COMPACTION_PART, holds_compaction
from flue_py.wire.codex_items import TOOL_SEARCH_CALL, TOOL_SEARCH_OUTPUT
from flue_py.wire.differences import restored
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.said import Said, answered, speakers_only
from flue_py.wire.openai_responses import EXTRA, completed, printed_items, without_its_reasoning
from flue_py.wire.rules.openai_responses import is_known, kind_of

_BOUND = frozenset({"message", "function_call", "custom_tool_call"})
"""The items that the API takes without an id."""
_ALSO = frozenset({"developer"})
PI_ID = re.compile(r"([^|]+)\|((?:fc|ctc)_[^|]*)")
"""How pi writes the id of a call: that of the call, and that of the item behind it."""


def responses_list(
    messages: Iterable[Said],
    left: Leftovers,
    *,
    is_complete: bool = False,
    is_sent: bool = False,
    account: str | None = None,
) -> list[JsonObject]:
    """Return messages of ours as Responses items, every call with an output.

    Where it is to be ``is_complete``, with what OpenAI's types ask for and our messages do not say; where it
    ``is_sent``, without ids that bind an item to reasoning which is not in it.

    Reasoning goes out where OpenAI gave it, as the item that came; where it does not, no id binds an item to it.
    Outputs stay where they are: the format does not ask for them right behind the calls. What OpenAI compacted itself,
    for ``account``, goes out as it came. Cost: O(messages).
    """
    items: list[JsonObject] = []
    called: dict[str, str] = {}
    is_reasoned = False
    spoken = speakers_only(messages, left, also=_ALSO, provider="openai", account=account)
    for said in answered(spoken, left, in_place=True):
        left.at = said.entry_id
        printed: list[JsonObject] = []
        for item in _printed(said, left):
            plain = _without_pi_id(item) if "call_id" in item else item
            if not is_complete or _is_taken(plain, left):
                printed.append(plain)
        if said.has_lost:
            bare = [without_its_reasoning(item, f"msg_{number}") for number, item in enumerate(printed, len(items))]
            if bare != printed:
                left.change("ids by which the API would look for reasoning that is left out are left out, too")
            printed = bare
        elif is_sent and said.role == "assistant":
            is_reasoned = _turn_is_reasoned(printed, left, is_reasoned=is_reasoned)
        elif said.role != "toolResult":
            is_reasoned = False
        stays = not is_complete or EXTRA in said.extra or COMPACTION_PART in [item.get("type") for item in printed]
        for item in printed:
            whole = item if stays else completed(item, f"msg_{len(items)}")
            items.append(_paired(whole, called, said) if "call_id" in whole else whole)
    left.at = None
    return items


def _turn_is_reasoned(items: list[JsonObject], left: Leftovers, *, is_reasoned: bool) -> bool:
    """Return whether reasoning of the turn has been sent behind some items; take off ids, in place, where none is.

    By the id of an item that its model made, the API looks for the reasoning that stood before it, and refuses it
    without: compacted lists have such items, and stores that keep no reasoning.
    """
    for at, item in enumerate(items):
        kind = item.get("type")
        if kind == "reasoning" or (is_reasoned and kind == COMPACTION_PART):
            is_reasoned = kind == "reasoning"
        elif "id" in item and not is_reasoned and kind in _BOUND:
            items[at] = {name: value for name, value in item.items() if name != "id"}
            left.change("ids by which the API would look for reasoning that is not sent are left out")
    return is_reasoned


def _printed(said: Said, left: Leftovers) -> list[JsonObject]:
    if EXTRA not in said.extra:
        return printed_items(said.message, Leftovers() if said.is_made_up else left)
    printed = printed_items(said.message, Leftovers())
    return [restored(printed[0] if len(printed) == 1 else {}, said.extra[EXTRA])]


def _is_taken(item: JsonObject, left: Leftovers) -> bool:
    kind = kind_of(item)
    if kind == "message":
        return True
    if kind == COMPACTION_PART and not holds_compaction(item):
        left.note("a compaction that holds nothing", item)
        return False
    if kind and not is_known(kind):
        left.note(f"an item {kind!r}, which is none of this form", item)
        return False
    return True


def _without_pi_id(item: JsonObject) -> JsonObject:
    """Return an item with the id of its call alone, where pi has put the id of the item behind it."""
    call_id = item.get("call_id")
    both = PI_ID.fullmatch(call_id) if isinstance(call_id, str) else None
    if both is None:
        return item
    is_call = str(item.get("type")).endswith("_call")
    return {**item, "call_id": both[1], **({"id": both[2]} if is_call else {})}


def _paired(item: JsonObject, called: dict[str, str], said: Said) -> JsonObject:
    """Return an item; an output that was made up as what its call asks for. ``called`` are the calls before it."""
    kind, call_id = item.get("type"), item.get("call_id")
    if not isinstance(call_id, str):
        return item
    if not said.is_made_up:
        if isinstance(kind, str) and kind.endswith("_call"):
            called[call_id] = kind
        return item
    if called.get(call_id) == TOOL_SEARCH_CALL:
        found: JsonObject = {"status": "completed", "execution": "client", "tools": []}
        return {"type": TOOL_SEARCH_OUTPUT, "call_id": call_id, **found}
    return {**item, "type": "custom_tool_call_output"} if called.get(call_id) == "custom_tool_call" else item
