"""What the user said, word for word: a summary may forget a constraint, and nobody can ask it again.

It is carried on in the details of each compaction, so that the hundredth has what the first one had.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, cast

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.content import ASSISTANT, string_field
from flue_py.compaction.material import Material
from flue_py.compaction.quoting import OWN_WORDS, attribute, fenced
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.spoken import message_text

HEADING = "[WHAT THE USER SAID — verbatim, oldest first; these requests may have been dealt with since]"
LEAST_TOKENS = 50
"""What the first and the newest message are cut to at most, in a window however small."""
_TAG = "user-said"
_ASKED = "model-asked"
_ASKED_CHARS = 200
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_HEADING_TOKENS = 60
"""What the heading takes, and the line that counts what did not fit, of the room that there is."""
_FIRST = 5 / 8
"""The share of a scarce room that is the user's before anybody else gets any."""
_REST_PART = 8
_MISSES = 50
"""After so many messages that did not fit, no older one is tried: counting each would take as long as they are."""


class _Said(NamedTuple):
    """``asked`` is the question of the model that it answers: "the second one" says nothing without."""

    entry_id: str
    text: str
    asked: str = ""


def words_set_aside(material: Material, *, only_carried: bool = False) -> Material:
    """Return it with room set aside for what the user said, which matters more than what else is put into a text.

    Where the room is scarce, that is what they take of five eighths of it, and an eighth of the window is left for the
    rest; with ``only_carried``, what earlier compactions carried of them. Once is enough. O(messages).
    """
    if material.room is None or material.set_aside:
        return material
    most = min(int(material.room * _FIRST), material.room - (material.window or 0) // _REST_PART)
    words = (carried_words if only_carried else user_words)(material.within(most))
    tokens = max(min(material.tokens_of(words.text), material.room), 0) if words.text else 0
    return replace(material, room=material.room - tokens, set_aside=tokens)


def user_words(material: Material) -> Block:
    """Return what the user said in what leaves, and in what left before, each under the id of its entry.

    It takes up to ``settings.user_words_share`` of the window, or of what leaves where the window is unknown; and it
    grows by at most three quarters of what leaves, so that compacting always makes room. The first message and the
    newest are always among it, cut in the middle where they are too long; of the others, the newest that fit. What was
    set aside for it is room as well. O(messages).
    """
    material = _besides_heading(material)
    share = material.settings.user_words_share
    if not share:
        return Block()
    carried, left_out = _carried(material.earlier)
    known = {said.entry_id for said in carried}
    new = [at for at in material.spoken if material.leaving[at].entry_id not in known]
    count = len(carried) + len(new)
    if not count:
        return Block()

    def said(number: int) -> _Said:
        # Read when it is about to be chosen: of ten thousand messages most do not fit.
        return carried[number] if number < len(carried) else _said(material, new[number - len(carried)])

    before = sum(material.tokens_of(_shown(each)) for each in carried)
    leaving = material.size_leaving
    room = material.at_most(min(int(share * (material.window or before + leaving)), before + leaving * 3 // 4))
    chosen = _chosen(material, said, count, room)
    return _block(chosen, left_out + count - len(chosen))


def carried_words(material: Material) -> Block:
    """Return the block as earlier compactions left it, for a mode that adds nothing to it; no more than its share."""
    material = _besides_heading(material)
    carried, left_out = _carried(material.earlier)
    if not carried:
        return Block()
    tokens = sum(material.tokens_of(_shown(said)) for said in carried)
    share = material.settings.user_words_share
    room = material.at_most(int(share * material.window) if share and material.window else tokens)
    chosen = carried if tokens <= room else _chosen(material, carried.__getitem__, len(carried), room)
    return _block(chosen, left_out + len(carried) - len(chosen))


def _besides_heading(material: Material) -> Material:
    material = material.with_all_room()
    return material if material.room is None else material.within(material.room - _HEADING_TOKENS)


def first_words(material: Material) -> str:
    """Return what the user said first, "" if that is not known."""
    carried, _ = _carried(material.earlier)
    if carried:
        return carried[0].text
    return next(map(material.words, material.spoken), "")


def _block(chosen: list[_Said], left_out: int) -> Block:
    parts = [HEADING, *map(_shown, chosen)]
    if left_out:
        parts.append(f"[{left_out} more of the user's messages did not fit; they are stored]")
    said: list[JsonValue] = [
        {"entryId": each.entry_id, "text": each.text, **({"asked": each.asked} if each.asked else {})}
        for each in chosen
    ]
    details: JsonObject = {"userWords": {"said": said, "leftOut": left_out}}
    return Block("\n\n".join(parts), details)


def _shown(said: _Said) -> str:
    shown = fenced(_TAG, said.text, attribute("entry", said.entry_id), foreign=OWN_WORDS)
    return f"{fenced(_ASKED, said.asked, also=[_TAG])}\n{shown}" if said.asked else shown


def _said(material: Material, at: int) -> _Said:
    """Return what one of the messages says, with the question that the message of the model before it ends on."""
    return _Said(material.leaving[at].entry_id, material.words(at), _question(material, at - 1))


def _question(material: Material, at: int) -> str:
    if at < 0 or material.roles[at] != ASSISTANT or not material.may_have(at, "?"):
        return ""
    text = message_text(material.message(at)).rstrip()
    if not text.endswith("?"):
        return ""
    line = text[-_ASKED_CHARS:].splitlines()[-1]
    return _SENTENCE_END.split(line)[-1].strip()


def _carried(earlier: Mapping[str, JsonValue] | None) -> tuple[list[_Said], int]:
    """Return what an earlier compaction carried, and how many messages it had to leave out."""
    stored = (earlier or {}).get("userWords")
    if not isinstance(stored, Mapping):
        return [], 0
    said, left_out = stored.get("said"), stored.get("leftOut")
    each = [one for one in said if isinstance(one, Mapping)] if isinstance(said, (list, tuple)) else []
    found = [
        _Said(cast("str", one["entryId"]), cast("str", one["text"]), string_field(one, "asked"))
        for one in each
        if isinstance(one.get("entryId"), str) and isinstance(one.get("text"), str)
    ]
    return found, left_out if isinstance(left_out, int) and left_out > 0 else 0


def _chosen(material: Material, said: Callable[[int], _Said], count: int, room: int) -> list[_Said]:
    """Return those that fit, in order: the first and the newest, and then from the newest to the oldest."""
    ends = sorted({0, count - 1})
    most = max(room // len(ends), LEAST_TOKENS)
    chosen = {at: _cut(material, said(at), most) for at in ends}
    left = room - sum(material.tokens_of(_shown(each)) for each in chosen.values())
    misses = 0
    for at in range(count - 2, 0, -1):
        if left <= 0 or misses > _MISSES:
            break
        each = said(at)
        tokens = material.tokens_of(_shown(each))
        if tokens <= left:
            chosen[at] = each
            left -= tokens
        else:
            misses += 1
    return [chosen[at] for at in sorted(chosen)]


def _cut(material: Material, said: _Said, most: int) -> _Said:
    """Return what was said with its middle left out where it takes more than ``most`` tokens."""
    text = said.text
    # No counter has less than a token for 40 characters, and a pasted megabyte need not be counted whole.
    tokens = material.tokens_of(text) if len(text) <= 40 * most else max(len(text) // 4, 1)
    if tokens <= most:
        return said
    kept = max(len(text) * most // tokens - 60, 120)
    head, tail = text[: kept * 2 // 3], text[-(kept // 3) :]
    missing = len(text) - len(head) - len(tail)
    if missing <= 0:
        return said
    return said._replace(text=f"{head}\n[… {missing} characters left out …]\n{tail}")
