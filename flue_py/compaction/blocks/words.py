"""What the user said, word for word: a summary may forget a constraint, and nobody can ask it again.

It is carried on in the details of each compaction, so that the hundredth has what the first one had.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.blocks.said import MOST_LINES, Said, shown_said
from flue_py.compaction.content import ASSISTANT, Message, string_field
from flue_py.compaction.material import Material
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.spoken import message_text

HEADING = "[WHAT THE USER SAID — verbatim, oldest first; these requests may have been dealt with since]"
LEAST_TOKENS = 50
"""What the first and the newest message are cut to at most, in a window however small."""
_ASKED_CHARS = 200
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_HEADING_TOKENS = 60
"""What the heading takes, and the line that counts what did not fit, of the room that there is."""
_FIRST = 5 / 8
"""The share of a scarce room that is the user's before anybody else gets any."""
_REST_PART = 8
_WITH_TAGS = 3 / 2
"""How much more than its share the words may take with the tags around them: those of short messages are longer."""
_MISSES = 50
"""After so many messages that did not fit, no older one is tried: counting each would take as long as they are."""


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
    """Return what the user said in what leaves, and in what left before, in tags with the ids of entries.

    The words take up to ``settings.user_words_share`` of the window, or of what leaves where the window is unknown, and
    with the tags around them half as much again; and it all grows by at most three quarters of what leaves, so that
    compacting always makes room. The first message and the newest are always among it, cut in the middle where they are
    too long; of the others, the newest that fit. What was set aside for it is room as well. O(messages).
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

    def said(number: int) -> _Counted:
        # Read when it is about to be chosen: of ten thousand messages most do not fit.
        if number < len(carried):
            return _Counted(carried[number], material.tokens_of(carried[number].text))
        return _said(material, new[number - len(carried)])

    before = material.tokens_of(_text(carried)) if carried else 0
    leaving = material.size_leaving
    most = _Room.of_share(int(share * (material.window or before + leaving)))
    chosen = _chosen(material, said, count, most.within(material.at_most(before + leaving * 3 // 4)))
    return _block(chosen, left_out + count - len(chosen))


def carried_words(material: Material) -> Block:
    """Return the block as earlier compactions left it, for a mode that adds nothing to it; no more than its share."""
    material = _besides_heading(material)
    carried, left_out = _carried(material.earlier)
    if not carried:
        return Block()
    tokens = material.tokens_of(_text(carried))
    share = material.settings.user_words_share
    # What made it had no more room than there was then, in a window that may have been larger.
    most = _Room.of_share(int(share * material.window)) if share and material.window else _Room(tokens, tokens)
    most = most.within(material.at_most(tokens))
    chosen = carried
    if tokens > min(most.words, most.all):

        def said(number: int) -> _Counted:
            return _Counted(carried[number], material.tokens_of(carried[number].text))

        chosen = _chosen(material, said, len(carried), most)
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


class _Room(NamedTuple):
    """How many tokens the words may take, and how many with the tags around them."""

    words: int
    all: int

    @classmethod
    def of_share(cls, tokens: int) -> _Room:
        return cls(tokens, int(tokens * _WITH_TAGS))

    def within(self, tokens: int) -> _Room:
        return _Room(min(self.words, tokens), min(self.all, tokens))


class _Counted(NamedTuple):
    said: Said
    tokens: int
    """What its words take, each as a message of its own."""


def _text(said: Sequence[Said]) -> str:
    return "\n\n".join(shown_said(said))


def _block(chosen: Sequence[Said], left_out: int) -> Block:
    parts = [HEADING, *shown_said(chosen)]
    if left_out:
        parts.append(f"[{left_out} more of the user's messages did not fit; they are stored]")
    said: list[JsonValue] = [each.json for each in chosen]
    details: JsonObject = {"userWords": {"said": said, "leftOut": left_out}}
    return Block("\n\n".join(parts), details)


def _said(material: Material, at: int) -> _Counted:
    """Return what one of the messages says, with the question that the message of the model before it ends on."""
    words, known = material.words(at), material.tokens_at(at)
    # Of a message that says nothing else, it is known what it takes, and counting takes far longer than reading it.
    tokens = known if known is not None and _only_says(material.message(at), words) else material.tokens_of(words)
    return _Counted(Said(material.leaving[at].entry_id, words, _question(material, at - 1)), tokens)


def _only_says(message: Message, words: str) -> bool:
    content = message.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        content = content[0].get("text") if content[0].get("type") == "text" else None
    return isinstance(content, str) and content.strip() == words


def _question(material: Material, at: int) -> str:
    if at < 0 or material.roles[at] != ASSISTANT or not material.may_have(at, "?"):
        return ""
    text = message_text(material.message(at)).rstrip()
    if not text.endswith("?"):
        return ""
    line = text[-_ASKED_CHARS:].splitlines()[-1]
    return _SENTENCE_END.split(line)[-1].strip()


def _carried(earlier: Mapping[str, JsonValue] | None) -> tuple[list[Said], int]:
    """Return what an earlier compaction carried, and how many messages it had to leave out."""
    stored = (earlier or {}).get("userWords")
    if not isinstance(stored, Mapping):
        return [], 0
    said, left_out = stored.get("said"), stored.get("leftOut")
    each = [one for one in said if isinstance(one, Mapping)] if isinstance(said, (list, tuple)) else []
    found = [
        Said(cast("str", one["entryId"]), cast("str", one["text"]), string_field(one, "asked"))
        for one in each
        if isinstance(one.get("entryId"), str) and isinstance(one.get("text"), str)
    ]
    return found, left_out if isinstance(left_out, int) and left_out > 0 else 0


def _chosen(material: Material, said: Callable[[int], _Counted], count: int, most: _Room) -> list[Said]:
    """Return those that fit, in order: the first and the newest, and then from the newest to the oldest."""
    ends = sorted({0, count - 1})
    each_end = max(min(most) // len(ends), LEAST_TOKENS)
    chosen = {at: _cut(material, said(at).said, each_end) for at in ends}
    shown = material.tokens_of(_text(list(chosen.values())))
    words, both = most.words - shown, most.all - shown
    tags = _Tags(material)
    newer, misses = chosen[count - 1], 0
    for at in range(count - 2, 0, -1):
        if words <= 0 or both <= 0 or misses > _MISSES:
            break
        each, tokens = said(at)
        with_tags = tokens + tags.around(each, newer)
        if tokens <= words and with_tags <= both:
            chosen[at] = newer = each
            words, both = words - tokens, both - with_tags
        else:
            misses += 1
    return [chosen[at] for at in sorted(chosen)]


class _Tags:
    """What the tags around messages take: as much for all ids of a length."""

    def __init__(self, material: Material) -> None:
        self._material = material
        self._known: dict[int, int] = {}

    def around(self, said: Said, newer: Said) -> int:
        """Return what a message takes beside its words: a part of a tag where it is shown with the one after it."""
        size = len(said.entry_id)
        if size not in self._known:
            self._known[size] = self._material.tokens_of(_text([said._replace(text="", asked="")]))
        tag = self._known[size]
        if said.asked or "<" in said.text:
            return self._material.tokens_of(_text([said])) - self._material.tokens_of(said.text)
        # A line has a part of the tag, and the tag of several names two entries.
        return -(-2 * tag // MOST_LINES) if said.is_line and newer.is_line else tag


def _cut(material: Material, said: Said, most: int) -> Said:
    """Return what was said with its middle left out where it takes more than ``most`` tokens."""
    text = said.text
    # No counter has less than a token for 40 characters, and a pasted megabyte need not be counted whole.
    tokens = material.tokens_of(text) if len(text) <= 40 * most else max(len(text) // 4, 1)
    if tokens <= most:
        return said
    kept = max(len(text) * most // tokens - 60, 120)
    head, tail = text[: kept * 2 // 3], text[-(kept // 3) :]
    cut = f"{head}\n[… {len(text) - len(head) - len(tail)} characters left out …]\n{tail}"
    return said._replace(text=cut) if len(cut) < len(text) else said
