"""Asking for a summary by the request that the model was sent last: most of it is read from the provider's cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flue_py.compaction.content import Message
from flue_py.compaction.material import Material
from flue_py.compaction.modes.folding import MARGIN
from flue_py.compaction.prompts import ALIGNED, ALIGNED_EARLIER, LAYOUTS
from flue_py.compaction.quoting import on_one_line
from flue_py.core.exchange import Pairing
from flue_py.core.jsontext import JsonObject
from flue_py.core.model_seam import ModelRequest
from flue_py.core.spoken import message_text
from flue_py.errors import InvalidArgument
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.said import Said, answered
from flue_py.wire.repairs import without_empty

LEAST_CACHED = 0.85
"""The share of such a request that has to be in the cache: with less, a transcript is the shorter thing to send."""
_SHOWN_CHARS = 200


def aligned_request(material: Material, known: str, limit: int, purpose: str) -> ModelRequest | str:
    """Return the last request with one user message more, or in a few words why a summary is not asked for so.

    ``known`` is what is told beside the instruction, ``limit`` how many tokens the answer may have. Its tools are
    declared, so that the beginning is the same bytes; calls in the answer are not made. There is no message in it
    that says nothing, no call without a result and no result without its call, as in what providers are sent. O(size).
    """
    last = material.last_request
    if last is None:
        return material.unaligned or "there is no last request"
    pairing = Pairing(last.messages)
    groups = (pairing.group_of(place) for place in range(len(last.messages)))
    if any(group is not None and group.is_open for group in groups):
        return "a call of a tool is without its result"
    prompt = _prompt(material, known)
    tokens = last.tokens + material.tokens_of(prompt)
    if last.cached_tokens < LEAST_CACHED * tokens:
        return f"only {last.cached_tokens:,} of its {tokens:,} tokens would be in the cache"
    window = material.summarizer_window
    if window is not None and tokens + limit > window * MARGIN:
        return f"its {tokens:,} tokens and the answer do not fit into a window of {window:,}"
    try:
        return ModelRequest(
            (*_whole(last.messages), {"role": "user", "content": prompt}),
            last.system or None,
            last.tools,
            max_tokens=limit,
            purpose=purpose,
        )
    except InvalidArgument as error:
        return str(error)


def _whole(messages: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """Yield messages as a provider is sent them, whose list is the same of these as of those that were given."""
    said = answered(without_empty(list(map(Said, messages)), Leftovers()), Leftovers(), in_place=True)
    return (each.message for each in said)


def _prompt(material: Material, known: str) -> str:
    """Return the message that asks for the summary: what it is to stand for, and how to write it."""
    staying, first_id = material.staying, material.planned.first_kept_entry_id
    at = next((at for at, item in enumerate(staying) if item.entry_id == first_id), None)
    first: Message = {"role": ""} if at is None else staying[at].data
    shown, role = on_one_line(message_text(first), _SHOWN_CHARS), str(first.get("role"))
    after = len(staying) - (at or 0)
    cut = f"The last {after} messages stay in sight; the first of them is of role {role}"
    cut += f" and begins: {shown!r}." if shown else "."
    if not first_id:
        cut = "This message is the first that stays in sight."
    earlier = ALIGNED_EARLIER if material.previous_summary else ""
    layout = LAYOUTS[material.settings.summary_form]
    return "\n\n".join(filter(None, [ALIGNED.format(cut=cut, earlier=earlier, layout=layout), known]))
