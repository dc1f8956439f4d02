"""What the user said, word for word: a summary may forget a constraint, and nobody can ask it again.

It is carried on in the details of each compaction, so that the hundredth has what the first one had.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.content import ASSISTANT, USER
from flue_py.compaction.material import Material
from flue_py.compaction.quoting import OWN_WORDS, attribute, fenced
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.spoken import message_text, own_words

HEADING = "[WHAT THE USER SAID — verbatim, oldest first; these requests may have been dealt with since]"
LEAST_TOKENS = 50
"""What the first and the newest message are cut to at most, in a window however small."""
_TAG = "user-said"
_ASKED = "model-asked"
_ASKED_CHARS = 200
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_MISSES = 50
"""After so many messages that did not fit, no older one is tried: counting each would take as long as they are."""


class _Said(NamedTuple):
    """``asked`` is the question of the model that it answers: "the second one" says nothing without.

    It is looked for in the message at ``before`` when the words are about to be chosen; nowhere if that is below 0.
    """

    entry_id: str
    text: str
    asked: str = ""
    before: int = -1


def user_words(material: Material) -> Block:
    """Return what the user said in what leaves, and in what left before, each under the id of its entry.

    It takes up to ``settings.user_words_share`` of the window, or of what leaves where the window is unknown; and it
    grows by at most three quarters of what leaves, so that compacting always makes room. The first message and the
    newest are always among it, cut in the middle where they are too long; of the others, the newest that fit.
    O(messages).
    """
    share = material.settings.user_words_share
    if not share:
        return Block()
    carried, left_out = _carried(material.earlier)
    known = {said.entry_id for said in carried}
    found = [*carried, *(said for said in _spoken(material) if said.entry_id not in known)]
    if not found:
        return Block()
    before = sum(material.tokens_of(_shown(said)) for said in carried)
    leaving = material.tokens_leaving
    if leaving is None:
        leaving = sum(map(material.count, material.messages))
    room = material.at_most(min(int(share * (material.window or before + leaving)), before + leaving * 3 // 4))
    chosen = _chosen(material, found, room)
    return _block(chosen, left_out + len(found) - len(chosen))


def carried_words(material: Material) -> Block:
    """Return the block as earlier compactions left it, for a mode that adds nothing to it; no more than its share."""
    carried, left_out = _carried(material.earlier)
    if not carried:
        return Block()
    tokens = sum(material.tokens_of(_shown(said)) for said in carried)
    share = material.settings.user_words_share
    room = material.at_most(int(share * material.window) if share and material.window else tokens)
    chosen = carried if tokens <= room else _chosen(material, carried, room)
    return _block(chosen, left_out + len(carried) - len(chosen))


def first_words(material: Material) -> str:
    """Return what the user said first, "" if that is not known."""
    carried, _ = _carried(material.earlier)
    said = carried[0] if carried else next(_spoken(material), None)
    return said.text if said else ""


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


def _spoken(material: Material) -> Iterator[_Said]:
    for at, (item, role) in enumerate(zip(material.leaving, material.roles, strict=True)):
        if role == USER and item.kind == "message":
            message = material.message(at)
            text = "" if message.get("isMeta") is True else own_words(message_text(message)).strip()
            if text:
                yield _Said(item.entry_id, text, before=at - 1)


def _with_question(material: Material, said: _Said) -> _Said:
    """Return what was said with the question that the message of the model before it ends on."""
    if said.before < 0 or material.roles[said.before] != ASSISTANT:
        return said
    text = message_text(material.message(said.before)).rstrip()
    if not text.endswith("?"):
        return said
    line = text[-_ASKED_CHARS:].splitlines()[-1]
    return said._replace(asked=_SENTENCE_END.split(line)[-1].strip())


def _carried(earlier: Mapping[str, JsonValue] | None) -> tuple[list[_Said], int]:
    """Return what an earlier compaction carried, and how many messages it had to leave out."""
    stored = (earlier or {}).get("userWords")
    if not isinstance(stored, Mapping):
        return [], 0
    said, left_out = stored.get("said"), stored.get("leftOut")
    each = [one for one in said if isinstance(one, Mapping)] if isinstance(said, (list, tuple)) else []
    found = [
        _Said(cast("str", one["entryId"]), cast("str", one["text"]), _text_or_empty(one.get("asked")))
        for one in each
        if isinstance(one.get("entryId"), str) and isinstance(one.get("text"), str)
    ]
    return found, left_out if isinstance(left_out, int) and left_out > 0 else 0


def _text_or_empty(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _chosen(material: Material, found: list[_Said], room: int) -> list[_Said]:
    """Return those that fit, in order: the first and the newest, and then from the newest to the oldest."""
    ends = sorted({0, len(found) - 1})
    most = max(room // len(ends), LEAST_TOKENS)
    chosen = {at: _cut(material, _with_question(material, found[at]), most) for at in ends}
    left = room - sum(material.tokens_of(_shown(said)) for said in chosen.values())
    misses = 0
    for at in range(len(found) - 2, 0, -1):
        if left <= 0 or misses > _MISSES:
            break
        said = _with_question(material, found[at])
        tokens = material.tokens_of(_shown(said))
        if tokens <= left:
            chosen[at] = said
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
