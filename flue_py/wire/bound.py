"""Signed reasoning is sent only behind the beginning of a request that it was produced under.

A provider binds reasoning to system, tools and messages before it, and refuses or drops it where one of these has
changed. An answer that says what it was produced under (`flue_py.core.bound`) is compared with the request
that is about to be sent, in one pass: what is dropped is not part of the beginning of what follows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from flue_py.core.bound import PRODUCED_UNDER, RunningDigest, is_signed, seen_by_model, signatures_in
from flue_py.core.faithful import ASSISTANT
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.shapes import Shape
from flue_py.wire.anthropic import CACHE_MARK
from flue_py.wire.gemini import FOREIGN_SIGNATURE
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.said import Said
from flue_py.wire.openai_responses import without_its_reasoning
from flue_py.wire.rules.openai_responses import is_of_the_model, kind_of

STALE = "signed reasoning that was produced under another beginning of the request"

_OURS = "ours"
_PARTS_IN: Mapping[str, str] = {"anthropic": "content", "gemini": "parts"}
"""The targets whose messages are made of parts that may be joined, and the field that has them."""
_CHAT_REASONING = ("reasoning_content", "thinking_content", "reasoning", "reasoning_details", "thinking_signature")


class Bound(NamedTuple):
    """The digest that a signature was produced under, the entry of its answer, and the reasoning, if it is of ours."""

    digest: str
    entry_id: str | None
    part: JsonObject | None = None


class Kept(NamedTuple):
    """The messages that are sent, and for each that was given the place of it, or of what came before it.

    ``are_sent`` says for each that was given whether anything of it is sent; ``digest`` is that of the request with
    these messages.
    """

    messages: list[JsonObject]
    places: list[int]
    are_sent: list[bool]
    digest: str


def bound_signatures(said: Iterable[Said]) -> dict[str, list[Bound]]:
    """Return the signatures of answers that say what they were produced under. O(size of those answers)."""
    found: dict[str, list[Bound]] = {}
    for each in said:
        digest = each.message.get(PRODUCED_UNDER)
        if isinstance(digest, str) and digest and each.role == ASSISTANT:
            reasoning = _reasoning_in(each.message)
            for signature in {*signatures_in(each.message), *signatures_in(each.extra)}:
                bound = Bound(digest, each.entry_id, reasoning.get(signature))
                found.setdefault(_key(signature), []).append(bound)
    return found


def _reasoning_in(message: JsonObject) -> dict[str, JsonObject]:
    """Return the reasoning of an answer of ours by its signature."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return {
        signature: part
        for part in parts
        if isinstance(part, dict)
        and part.get("type") == "thinking"
        and isinstance(signature := part.get("thinkingSignature"), str)
    }


def _key(signature: str) -> str:
    """Return what a signature is known by; an item of OpenAI's is one by its encrypted text, or else its id."""
    if not signature.startswith("{"):
        return signature
    try:
        item = json.loads(signature)
    except (ValueError, RecursionError):
        return signature
    found = _key_of_item(item) if isinstance(item, dict) else None
    return found or signature


def _key_of_item(item: Mapping[str, JsonValue]) -> str | None:
    found = item.get("encrypted_content") or item.get("id")
    return found if isinstance(found, str) else None


def prefix_digest(
    target: Shape | None, messages: Sequence[JsonObject], system: JsonValue, tools: Sequence[JsonObject]
) -> str:
    """Return the digest of a request: of its target, system, tools and messages, without marks for the cache.

    Where parts of one side follow each other, it does not matter how many messages they are. O(size).
    """
    return _Walk(target, system, tools, {}, Leftovers()).through(messages).digest


def begins_with(
    target: Shape | None, messages: Sequence[JsonObject], system: JsonValue, tools: Sequence[JsonObject], digest: str
) -> bool:
    """Return whether a request begins with one of this digest, part by part. O(size)."""
    walk = _Walk(target, system, tools, {}, Leftovers())
    walk.wanted = digest
    walk.through(messages)
    return walk.is_met


def without_stale_reasoning(
    target: Shape | None,
    messages: Sequence[JsonObject],
    system: JsonValue,
    tools: Sequence[JsonObject],
    bound: Mapping[str, list[Bound]],
    left: Leftovers,
) -> Kept:
    """Return the messages of a request without reasoning that was produced under another beginning.

    ``bound`` is what `bound_signatures` found; reasoning that is not in it stays. What is left out is noted with its
    entry. Calls and texts stay, and an answer that has nothing else is left out. O(size).
    """
    return _Walk(target, system, tools, bound, left).through(messages)


def ours_without_stale(
    messages: Sequence[JsonObject], system: JsonValue, tools: Sequence[JsonObject]
) -> list[JsonObject]:
    """Return messages of ours without stale reasoning. O(fields) where none says what it was produced under."""
    if not any(PRODUCED_UNDER in each for each in messages):
        return [*messages]
    bound = bound_signatures(Said(each) for each in messages)
    return without_stale_reasoning(None, messages, system, tools, bound, Leftovers()).messages


def answers_produced_under(
    messages: Sequence[JsonObject], system: JsonValue, tools: Sequence[JsonObject], answered: Sequence[JsonObject]
) -> list[JsonObject]:
    """Return what a model answered to messages of ours, each signed answer with what it was produced under.

    An answer behind results of tools was produced under these, too. O(size) if there is signed reasoning.
    """
    if not any(map(is_signed, answered)):
        return [*answered]
    walk = _Walk(None, system, tools, {}, Leftovers())
    walk.through(messages)
    told: list[JsonObject] = []
    begun = walk.digest.text
    for message in answered:
        if message.get("role") != ASSISTANT:
            walk.through([message])
            begun = walk.digest.text
            told.append(message)
            continue
        known = PRODUCED_UNDER in message or not is_signed(message)
        told.append(message if known else {**message, PRODUCED_UNDER: begun})
        walk.through([message])
    return told


class _Walk:
    """A pass along the messages of a request, with the digest of what is sent so far."""

    def __init__(
        self,
        target: Shape | None,
        system: JsonValue,
        tools: Sequence[JsonObject],
        bound: Mapping[str, list[Bound]],
        left: Leftovers,
    ) -> None:
        self.digest = RunningDigest(target or _OURS, _unmarked_system(system), [_unmarked(tool) for tool in tools])
        self._target = target
        self._bound = bound
        self._left = left
        self._side: JsonValue = None
        self._has_lost = False
        """Whether the answer that goes on has lost an item."""
        self._here: set[str] = set()
        """The digests since the answer began that goes on: any of them may be what a part of it was produced under."""
        self.wanted: str | None = None
        self.is_met = False

    def _add(self, part: JsonValue) -> None:
        self.digest.add(part)
        if self.wanted is not None and not self.is_met:
            self.is_met = self.digest.text == self.wanted

    def through(self, messages: Sequence[JsonObject]) -> Kept:
        """Go along messages, and return those that are sent."""
        field = _PARTS_IN.get(self._target or "")
        kept: list[JsonObject] = []
        places: list[int] = []
        are_sent: list[bool] = []
        for message in messages:
            made = self._whole(message) if field is None else self._in_parts(message, field)
            if made is not None and field == "content" and kept and kept[-1].get("role") == made.get("role"):
                # What stood between the two was left out.
                made = {**made, field: [*_listed(kept.pop().get(field)), *_listed(made.get(field))]}
            if made is not None:
                kept.append(made)
            places.append(max(len(kept) - 1, 0))
            are_sent.append(made is not None)
        return Kept(kept, places, are_sent, self.digest.text)

    # -- messages that are made of parts -------------------------------------------------------------------------

    def _in_parts(self, message: JsonObject, field: str) -> JsonObject | None:
        role = message.get("role")
        content = message.get(field)
        parts = _listed(content)
        if role not in ("assistant", "model"):
            self._turn_to(role)
            for part in parts:
                self._add(_unmarked(part))
            return message
        self._begin(role)
        kept: list[JsonValue] = []
        for part in parts:
            made = self._part(part, is_first_call=not any(map(_is_function_call, kept)))
            if made is None:
                continue
            kept.append(made)
            self._turn_to(role)
            self._add(_unmarked(made))
            if self._bound:
                self._here.add(self.digest.text)
        if not kept and parts:
            return None
        return message if kept == parts or isinstance(content, str) else {**message, field: kept}

    def _begin(self, role: JsonValue) -> None:
        if self._side != role:
            self._here = {self.digest.text} if self._bound else set()

    def _turn_to(self, role: JsonValue) -> None:
        if self._side != role:
            self._side = role
            self._add(role)

    def _part(self, part: JsonValue, *, is_first_call: bool) -> JsonValue:
        """Return a part as it is sent, None for one that is not."""
        if not isinstance(part, dict) or not self._is_stale(_signature_of(part)):
            return part
        if self._target == "anthropic" or part.get("thought") is True:
            return None
        rest = {name: value for name, value in part.items() if name != "thoughtSignature"}
        is_call = is_first_call and "functionCall" in rest
        return {**rest, "thoughtSignature": FOREIGN_SIGNATURE} if is_call else rest

    def _is_stale(self, *signatures: JsonValue) -> bool:
        """Return whether one of the signatures was produced under another beginning, and note it."""
        for signature in signatures:
            bound = self._bound.get(signature) if isinstance(signature, str) else None
            if bound and not any(each.digest in self._here for each in bound):
                self._left.at = bound[0].entry_id
                self._left.note(STALE, *(() if bound[0].part is None else (bound[0].part,)))
                self._left.at = None
                return True
        return False

    # -- messages, and items, that are one whole -----------------------------------------------------------------

    def _whole(self, message: JsonObject) -> JsonObject | None:
        is_answer = is_of_the_model(message) if self._target == "openai-responses" else message.get("role") == ASSISTANT
        side = "model" if is_answer else "user"
        made: JsonObject | None = message
        if is_answer and self._bound:
            if self._side != side:
                self._here = {self.digest.text}
                self._has_lost = False
            made = self._answer(message)
        self._side = side
        if made is not None:
            self._add(seen_by_model(made) if self._target is None else made)
            if is_answer and self._bound:
                self._here.add(self.digest.text)
        return made

    def _answer(self, message: JsonObject) -> JsonObject | None:
        if self._target == "openai-responses":
            return self._item(message)
        if self._target is None:
            return self._ours(message)
        details = message.get("reasoning_details")
        signatures = [message.get("thinking_signature"), *signatures_in(details)]
        if not self._is_stale(*signatures):
            return message
        return {name: value for name, value in message.items() if name not in _CHAT_REASONING}

    def _item(self, item: JsonObject) -> JsonObject | None:
        if kind_of(item) == "reasoning":
            if not self._is_stale(_key_of_item(item)):
                return item
            self._has_lost = True
            return None
        return without_its_reasoning(item, f"msg_{self.digest.text}") if self._has_lost else item

    def _ours(self, message: JsonObject) -> JsonObject | None:
        content = message.get("content")
        if not isinstance(content, list):
            return message
        kept: list[JsonValue] = [made for part in content if (made := self._our_part(part)) is not None]
        if not kept and content:
            return None
        return message if kept == content else {**message, "content": kept}

    def _our_part(self, part: JsonValue) -> JsonValue:
        if not isinstance(part, dict):
            return part
        signatures = {name: _key(held) for name in _OWN_SIGNATURES if isinstance(held := part.get(name), str)}
        if not self._is_stale(*signatures.values()):
            return part
        if part.get("type") == "thinking":
            return None
        return {name: value for name, value in part.items() if name not in _OWN_SIGNATURES}


_OWN_SIGNATURES = ("thinkingSignature", "thoughtSignature", "textSignature")


def _signature_of(part: JsonObject) -> JsonValue:
    """Return the signature of a part of Anthropic's or Gemini's."""
    kind = part.get("type")
    if kind == "thinking":
        return part.get("signature")
    return part.get("data") if kind == "redacted_thinking" else part.get("thoughtSignature")


def _is_function_call(part: JsonValue) -> bool:
    return isinstance(part, dict) and "functionCall" in part


def _listed(content: JsonValue) -> list[JsonValue]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _unmarked_system(system: JsonValue) -> JsonValue:
    if isinstance(system, dict):
        return system
    return [_unmarked(each) for each in _listed(system)] if system else []


def _unmarked(part: JsonValue) -> JsonValue:
    """Return a part without its mark for the cache: what is marked moves from request to request."""
    if isinstance(part, dict) and CACHE_MARK in part:
        return {name: value for name, value in part.items() if name != CACHE_MARK}
    return part
