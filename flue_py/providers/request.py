"""Signed reasoning is sent only behind the beginning of a request that it was produced under.

A provider binds reasoning to system, tools and messages before it, and refuses or drops it where one of these has
changed. An answer that says what it was produced under (`flue_py.core.kinds`) is compared with the request
that is about to be sent, in one pass: what is dropped is not part of the beginning of what follows it.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from flue_py.core.context import is_same_model
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.kinds import (
    ASSISTANT,
    COMPACTION_PART,
    PRODUCED_UNDER,
    SYSTEM,
    RunningDigest,
    Shape,
    holds_compaction,
    is_signed,
    seen_by_model,
    signatures_in,
)
from flue_py.core.sessions import made_id
from flue_py.core.usage import context_of
from flue_py.errors import InvalidArgument, InvalidEntry, shown
from flue_py.providers import anthropic, gemini, openai_chat, openai_responses
from flue_py.providers.anthropic import CACHE_MARK, PDF, PLAIN_TEXT, SERVER_KINDS, is_blank
from flue_py.providers.base import (
    HEIF,
    Broken,
    ExportNote,
    Leftovers,
    Repair,
    RequestLimits,
    bare_type,
    checked_target,
    limits_of,
    restored,
    type_of_bytes,
    wrong_picture,
)
from flue_py.providers.gemini import FOREIGN_SIGNATURE
from flue_py.providers.lists import (
    BLANK,
    PI_ID,
    Said,
    SystemApart,
    anthropic_list,
    chat_list,
    gemini_list,
    kinds_in,
    last_model,
    responses_list,
    speakers_only,
    with_own_ids,
    with_signature,
)
from flue_py.providers.openai_chat import CUSTOM, arguments_object, image_from_url, is_text_of_object
from flue_py.providers.openai_responses import ITEM, part_of_reasoning, without_its_reasoning
from flue_py.providers.rules import (
    PARTS_OF,
    broken_rules,
    ends_in_server_call,
    is_empty_text,
    is_of_the_model,
    is_thought_alone,
    kind_of,
    torn_server_calls,
)

# Signed reasoning is sent only behind the beginning of a request that it was produced under.
#
# A provider binds reasoning to system, tools and messages before it, and refuses or drops it where one of these has
# changed. An answer that says what it was produced under (`flue_py.core.kinds`) is compared with the request
# that is about to be sent, in one pass: what is dropped is not part of the beginning of what follows it.

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

    # messages that are made of parts

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

    # messages, and items, that are one whole

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


# Messages of OpenAI chat, OpenAI Responses, Anthropic and Gemini, one at a time, from and to ours.
#
# `shape_of` finds the form of a message by features that only one provider has. `convert` makes ours of it, with what
# an
# export needs to give the original back; `to_provider` is the way back. Whole lists, with each result behind its call,
# are what imports and exports are for.

_CONVERSION_OURS = frozenset({
    "api", "provider", "model", "usage", "stopReason", "errorMessage", "timestamp", PRODUCED_UNDER,
})  # fmt: skip
"""Fields of our messages that callers put on a provider's: they count as they would on ours."""

_ITEMS = re.compile(r"message|reasoning|.*_(call|output|response|request|list_tools)|item_reference|compaction")
_Pairs = Iterator[tuple[JsonObject, JsonObject]]


class Converted(NamedTuple):
    """One of our messages, made from a provider's, with what stands beside it in the entry's ``extra``."""

    message: JsonObject
    beside: JsonObject


class Printed(NamedTuple):
    """The messages of a provider that one of ours is, and what they had no place for."""

    messages: tuple[JsonObject, ...]
    notes: tuple[ExportNote, ...]


def convert(
    message: JsonObject, shape: Shape, names: MutableMapping[str, str], where: str = "message"
) -> list[Converted]:
    """Return a provider's message as ours, one or more, with what brings the original back in an export.

    ``names`` are the names of the tool calls so far, by id; those of this message are added. Nothing is shared with
    ``message`` that is changed. Raises `InvalidEntry` with the path of what cannot be converted. O(size).
    """
    form = _form(shape)
    form.check(message, where)
    converted = [Converted(*pair) for pair in form.read(message, names)]
    beside = context_of(message)
    for each in converted:
        usage = each.message.get("usage")
        if beside and shape != "anthropic" and isinstance(usage, dict):
            # What stood beside the usage may have no place in a message of ours.
            each.message["usage"] = {**beside, **usage}
        names.update(openai_chat.calls_in(each.message))
    return converted


def beside_ours(message: JsonObject, shape: Shape) -> JsonObject:
    """Return what has to stand beside a message of ours, so that a list of ``shape`` gets it as it came. O(size)."""
    return _form(shape).difference(message, message)


def to_provider(message: JsonObject, shape: Shape, beside: Mapping[str, JsonValue] | None = None) -> Printed:
    """Return one of our messages as a provider takes it, and notes on what was left out or changed.

    With ``beside``, from `convert` or from the entry's `Entry.extra_fields`, the original comes back, field for field.
    A Responses answer is an item for each of its parts; of results of tools that Anthropic and Gemini have in one
    message, each is a message of its own. Raises `InvalidArgument` for an unknown shape. O(size).
    """
    form = _form(shape)
    found = (beside or {}).get(form.extra)
    left = Leftovers()
    printed = form.write(message, left)
    if found is None:
        return Printed(tuple(printed), left.notes())
    if shape == "anthropic" and message.get("role") == "toolResult":
        block = restored(anthropic.printed_result(message, left), found)
        return Printed(({"role": "user", "content": [block]},), ())
    return Printed((restored(printed[0] if len(printed) == 1 else {}, found),), ())


# The forms


def _from_chat(value: JsonObject, names: Mapping[str, str]) -> _Pairs:
    message = openai_chat.message_from_chat(value, names)
    yield message, openai_chat.chat_difference(message, value)


def _from_item(value: JsonObject, names: Mapping[str, str]) -> _Pairs:
    message = openai_responses.message_from_item(value, names)
    message.update((name, value[name]) for name in value.keys() & _CONVERSION_OURS if message["role"] == "assistant")
    if "timestamp" in value:
        message["timestamp"] = value["timestamp"]
    yield message, openai_responses.responses_difference(message, value)


def _from_anthropic(value: JsonObject, names: Mapping[str, str]) -> _Pairs:
    yield from anthropic.messages_from_anthropic(value, names, own=_CONVERSION_OURS)


def _from_gemini(value: JsonObject, names: Mapping[str, str]) -> _Pairs:
    yield from gemini.messages_from_gemini(value, own=_CONVERSION_OURS)


# Checking


def _check_chat(value: JsonObject, where: str) -> None:
    role = value.get("role")
    if role == "function" or isinstance(value.get("function_call"), dict):
        field = "role" if role == "function" else "function_call"
        raise InvalidEntry(f"{where}.{field}: calls without an id are not converted; send tool_calls and role tool")
    if role == "tool":
        _need_text(value, "tool_call_id", where)
        _need_content(value, where)
    calls = value.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise InvalidEntry(f"{where}.tool_calls: should be a list or null, not {shown(calls)}")
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        _check_chat_call(call, f"{where}.tool_calls[{number}]")
    for part, path in _parts(value.get("content"), where):
        if part.get("type") == "image_url":
            held = part.get("image_url")
            _need_text(held if isinstance(held, dict) else {"url": held}, "url", f"{path}.image_url")


def _check_chat_call(call: JsonValue, where: str) -> None:
    if not isinstance(call, dict):
        raise InvalidEntry(f"{where}: should be an object, not {shown(call)}")
    _need_text(call, "id", where)
    kind = call.get("type", "function")
    if kind not in ("function", "custom"):
        raise InvalidEntry(f"{where}.type: {shown(kind)} is neither function nor custom")
    called = call.get(str(kind))
    if not isinstance(called, dict):
        raise InvalidEntry(f"{where}.{kind}: should be an object, not {shown(called)}")
    _need_text(called, "name", f"{where}.{kind}")
    if kind == "custom":
        _need_text(called, "input", f"{where}.custom")


def _check_item(value: JsonObject, where: str) -> None:
    kind = value.get("type", "message")
    if not _ITEMS.fullmatch(str(kind)):
        raise InvalidEntry(f"{where}.type: {shown(kind)} is not a type of a Responses item")
    if kind == "message":
        _need_text(value, "role", where)
        _need_content(value, where)
    elif kind in ("function_call", "custom_tool_call"):
        _need_text(value, "call_id", where)
        _need_text(value, "name", where)
        _need_text(value, "arguments" if kind == "function_call" else "input", where)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        _need_text(value, "call_id", where)
        if not isinstance(value.get("output"), (str, list)):
            raise InvalidEntry(f"{where}.output: should be a string or a list, not {shown(value.get('output'))}")
    for part, path in (*_parts(value.get("content"), where), *_parts(value.get("output"), where, "output")):
        if part.get("type") in ("input_text", "output_text"):
            _need_text(part, "text", path)


def _check_anthropic(value: JsonObject, where: str) -> None:
    role = value.get("role")
    if role not in ("user", "assistant"):
        raise InvalidEntry(f"{where}.role: should be user or assistant in this form, not {shown(role)}")
    for block, path in _parts(value.get("content"), where):
        kind = str(block.get("type"))
        if kind in _SIDES and role != _SIDES[kind]:
            raise InvalidEntry(f"{path}.type: a {kind} stands in a message of the {_SIDES[kind]}")
        for field in _NEEDED.get(kind, ()):
            _need_text(block, field, path)
        if kind == "tool_use" and "input" not in block:
            raise InvalidEntry(f"{path}.input: is missing")
        if kind == "tool_result" and not isinstance(block.get("content"), (str, list, type(None))):
            raise InvalidEntry(f"{path}.content: should be a string or a list, not {shown(block.get('content'))}")
        if kind in ("image", "document") and "source" in block and not isinstance(block["source"], dict):
            raise InvalidEntry(f"{path}.source: should be an object, not {shown(block['source'])}")


_SIDES: Mapping[str, str] = {"tool_use": "assistant", "tool_result": "user", "redacted_thinking": "assistant"}
_NEEDED = {
    "tool_use": ("id", "name"),
    "tool_result": ("tool_use_id",),
    "thinking": ("thinking",),
    "redacted_thinking": ("data",),
}


def _parts(content: JsonValue, where: str, field: str = "content") -> Iterator[tuple[JsonObject, str]]:
    for number, part in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(part, dict):
            raise InvalidEntry(f"{where}.{field}[{number}]: should be an object with a type, not {shown(part)}")
        yield part, f"{where}.{field}[{number}]"


def _need_text(value: Mapping[str, JsonValue], field: str, where: str) -> None:
    found = value.get(field)
    if found is None:
        raise InvalidEntry(f"{where}.{field}: is missing")
    if not isinstance(found, str):
        raise InvalidEntry(f"{where}.{field}: should be a string, not {shown(found)}")


def _need_content(value: Mapping[str, JsonValue], where: str) -> None:
    if not isinstance(value.get("content"), (str, list)):
        raise InvalidEntry(f"{where}.content: should be a string or a list, not {shown(value.get('content'))}")


class _Form(NamedTuple):
    """How messages of one shape are checked, read and written, and the field of ``extra`` that has the differences."""

    extra: str
    check: Callable[[JsonObject, str], None]
    read: Callable[[JsonObject, Mapping[str, str]], _Pairs]
    write: Callable[[JsonObject, Leftovers], list[JsonObject]]
    difference: Callable[[JsonObject, JsonObject], JsonObject]


def _write_chat(message: JsonObject, left: Leftovers) -> list[JsonObject]:
    return [openai_chat.printed_chat(message, left)]


def _write_anthropic(message: JsonObject, left: Leftovers) -> list[JsonObject]:
    return [anthropic.printed_anthropic(message, left)]


def _write_gemini(message: JsonObject, left: Leftovers) -> list[JsonObject]:
    return [gemini.printed_content(message, left)]


_FORMS: Mapping[str, _Form] = {
    "openai-chat": _Form(openai_chat.EXTRA, _check_chat, _from_chat, _write_chat, openai_chat.chat_difference),
    "openai-responses": _Form(
        openai_responses.EXTRA,
        _check_item,
        _from_item,
        openai_responses.printed_items,
        openai_responses.responses_difference,
    ),
    "anthropic": _Form(
        anthropic.EXTRA, _check_anthropic, _from_anthropic, _write_anthropic, anthropic.anthropic_difference
    ),
    "gemini": _Form(gemini.EXTRA, gemini.check_content, _from_gemini, _write_gemini, gemini.gemini_difference),
}


def _form(shape: str) -> _Form:
    if shape not in _FORMS:
        raise InvalidArgument(f"shape: {shown(shape)} is not one of {', '.join(_FORMS)}")
    return _FORMS[shape]


# Files as providers take them: in base64. As Anthropic does: a PDF, a plain text as its text; of others, a text.

FILES = frozenset({"file", "document"})
"""The types of the parts that are files."""
_NO_PDF = "a file that is said to be a PDF, and whose data are those of none"
_NO_PICTURE = "a file that is said to be a picture, and whose data are those of none"


def with_fitting_files(said: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return messages whose files Anthropic takes, with a text in the place of each other one. O(size of files)."""
    return [_fitting(each, left, _part) for each in said]


def with_readable_files(said: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return messages with a text in the place of each file whose data are no base64. O(size of files)."""
    return [_fitting(each, left, _readable) for each in said]


_Fit: TypeAlias = Callable[[JsonValue, str | None, Leftovers], JsonValue]


def _fitting(said: Said, left: Leftovers, fit: _Fit) -> Said:
    content = said.message.get("content")
    if not isinstance(content, list):
        return said
    left.at = said.entry_id
    parts = [fit(part, said.entry_id, left) for part in content]
    return said if parts == content else said.with_message({**said.message, "content": parts})


def _part(part: JsonValue, entry_id: str | None, left: Leftovers) -> JsonValue:
    if not isinstance(part, dict) or part.get("type") not in FILES:
        return part
    data, mime_type = _held(part)
    kind, real = bare_type(mime_type), None if data is None else type_of_bytes(data)
    if kind in (None, PDF) and (data is None or real == PDF):
        return part
    if data is not None and real is not None:
        return _retyped(part, data, real, left)
    if kind == PDF:
        return _left_out(part, _NO_PDF, entry_id, left)
    text = _text(data) if kind == PLAIN_TEXT and data is not None else ""
    if text.strip():
        left.change("a file of plain text goes out as its text")
        return _document(part, text)
    return _left_out(part, _why(kind, is_text=kind == PLAIN_TEXT), entry_id, left)


def _readable(part: JsonValue, entry_id: str | None, left: Leftovers) -> JsonValue:
    if not isinstance(part, dict) or part.get("type") != "file":
        return part
    data, mime_type = _held(part)
    if data is None:
        return part
    if _is_base64(data):
        kind, real = bare_type(mime_type), type_of_bytes(data)
        if real is None and kind is not None and (kind == PDF or kind.startswith("image/")):
            return _left_out(part, _NO_PDF if kind == PDF else _NO_PICTURE, entry_id, left)
        is_other = real is not None and (real != kind or real.startswith("image/"))
        return _retyped(part, data, real, left) if real is not None and is_other else part
    return _left_out(part, "a file whose data are no base64", entry_id, left)


def _retyped(part: JsonObject, data: str, real: str, left: Leftovers) -> JsonObject:
    """Return a file with the type that its data are: as a picture, where they are those of one."""
    left.change(f"a file that is said to be of another type, or of none, goes out as {real}, as its data are")
    if real.startswith("image/"):
        return {"type": "image", "data": data, "mimeType": real}
    if part.get("type") == "document":
        source = part.get("source")
        return {**part, "source": {**(source if isinstance(source, dict) else {}), "media_type": real}}
    return {**{name: value for name, value in part.items() if name != "url"}, "data": data, "mimeType": real}


def _is_base64(text: str) -> bool:
    """Return whether a text is base64, of either alphabet. O(size)."""
    try:
        b64decode(text.translate(_OTHER_ALPHABET), validate=True)
    except ValueError:
        return False
    return True


_OTHER_ALPHABET = str.maketrans("-_", "+/", "\r\n")


def _left_out(part: JsonObject, why: str, entry_id: str | None, left: Leftovers) -> JsonObject:
    left.note(why)
    name = part.get("filename", part.get("title"))
    named = f" {name!r}" if isinstance(name, str) else ""
    stored = "" if entry_id is None else f"; it is stored in entry {entry_id}"
    return {"type": "text", "text": f"[file{named} left out: {why}{stored}]"}


def _why(kind: str | None, *, is_text: bool) -> str:
    if is_text:
        return "a file of plain text that has none, or cannot be read"
    told = "a file that does not say its type" if kind is None else f"a file of type {kind!r}"
    return f"{told}; it takes {PDF} and {PLAIN_TEXT}"


def _held(part: JsonObject) -> tuple[str | None, str | None]:
    """Return the base64 text of a file and its MIME type, from its own fields, its URL or its source; None for none."""
    source, url = part.get("source"), part.get("url")
    if isinstance(source, dict) and part.get("type") == "document":
        found = (source.get("data"), source.get("media_type")) if source.get("type") == "base64" else (None, None)
    else:
        inline = image_from_url(url) if isinstance(url, str) else {}
        found = part.get("data", inline.get("data")), part.get("mimeType", inline.get("mimeType"))
    data, mime_type = found
    return data if isinstance(data, str) else None, mime_type if isinstance(mime_type, str) else None


def _text(data: str) -> str:
    try:
        return b64decode(data).decode()
    except ValueError:  # neither base64 nor UTF-8
        return ""


def _document(part: JsonObject, text: str) -> JsonObject:
    source: JsonObject = {"type": "text", "media_type": PLAIN_TEXT, "data": text}
    if part.get("type") == "document":
        return {**part, "source": source}
    named: JsonObject = {"title": part["filename"]} if isinstance(part.get("filename"), str) else {}
    marked: JsonObject = {CACHE_MARK: part[CACHE_MARK]} if CACHE_MARK in part else {}
    return {"type": "document", "source": source, **named, **marked}


# Marks for Anthropic's cache, put where they help the next request: the API writes, and reads, what ends at a mark.

_MARKED = frozenset({
    "text", "image", "document", "search_result", "tool_use", "tool_result", "server_tool_use",
    "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "container_upload",
})  # fmt: skip
"""The blocks that may have a mark: reasoning, for one, may not."""


class CacheMarks(Frozen):
    """How many marks a request gets, how long the cache keeps what ends at one, and the entry that ends an epoch."""

    count: int
    ttl: Literal["5m", "1h"] = "5m"
    epoch_end: str | None = None


class Marked(NamedTuple):
    """A request with its marks."""

    messages: list[JsonObject]
    system: JsonValue
    tools: list[JsonObject]


def with_cache_marks(
    messages: Sequence[JsonObject],
    system: JsonValue,
    tools: Sequence[JsonObject],
    marks: CacheMarks,
    epoch_at: int | None,
) -> Marked:
    """Return a request of Anthropic's with marks in place of those that it had, at most as many as are asked for.

    They stand, in the order of their use: at the end, which the next request begins with; behind the system, or else
    the tools; where the request before this one ended, however much came since; at the message ``epoch_at``, where an
    epoch ended; and behind the tools. Text that gets a mark becomes a block. O(blocks).
    """
    bare = [_without_marks(each) for each in messages]
    prompt = [_without_marks(each) for each in _blocks(system) if isinstance(each, dict)]
    offered = [_without_marks(each) for each in tools]
    left = marks.count
    mark: JsonObject = {"type": "ephemeral", "ttl": marks.ttl}
    places: list[int] = []
    for part in _order(bare, epoch_at):
        if left and part == _SYSTEM:
            held = prompt if _last_marked(prompt) is not None else offered
            left -= _mark_last(held, mark)
        elif left and part == _TOOLS:
            left -= _mark_last(offered, mark)
        elif left and part not in places:
            places.append(part)
            left -= _mark_message(bare, part, mark)
    is_marked = any(CACHE_MARK in each for each in prompt)
    return Marked(bare, [*prompt] if is_marked or isinstance(system, list) else system, offered)


_SYSTEM, _TOOLS = -1, -2


def _order(messages: Sequence[JsonObject], epoch_at: int | None) -> Iterator[int]:
    """Yield the places of messages that get a mark, and what stands for system and tools, the most useful first."""
    last = len(messages) - 1
    if messages:
        yield last
    yield _SYSTEM
    answer = next((at for at in range(last, -1, -1) if messages[at].get("role") == "assistant"), 0)
    if answer:
        yield answer - 1
    if epoch_at is not None:
        yield epoch_at
    yield _TOOLS


def _mark_message(messages: list[JsonObject], at: int, mark: JsonObject) -> int:
    blocks = [each for each in _blocks(messages[at].get("content")) if isinstance(each, dict)]
    if not _mark_last(blocks, mark):
        return 0
    messages[at] = {**messages[at], "content": [*blocks]}
    return 1


def _mark_last(blocks: list[JsonObject], mark: JsonObject) -> int:
    """Mark the last block that may have a mark, in place; return how many that is."""
    at = _last_marked(blocks)
    if at is None or CACHE_MARK in blocks[at]:
        return 0
    blocks[at] = {**blocks[at], CACHE_MARK: mark}
    return 1


def _last_marked(blocks: Sequence[JsonObject]) -> int | None:
    return next((at for at in range(len(blocks) - 1, -1, -1) if _may_have_mark(blocks[at])), None)


def _may_have_mark(block: JsonObject) -> bool:
    kind = block.get("type")
    if kind == "text":
        return not is_blank(block.get("text"))
    # A tool has a schema; those that the API defines have a type of their own.
    return kind in _MARKED or "input_schema" in block


def _blocks(content: JsonValue) -> list[JsonValue]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content if isinstance(content, list) else []


def _without_marks(value: JsonObject) -> JsonObject:
    """Return a message or a block without the marks in it: the same one if it has none. O(blocks)."""
    made = {name: held for name, held in value.items() if name != CACHE_MARK} if CACHE_MARK in value else value
    content = made.get("content")
    if not isinstance(content, list):
        return made
    kept: list[JsonValue] = [_without_marks(each) if isinstance(each, dict) else each for each in content]
    is_same = all(new is old for new, old in zip(kept, content, strict=True))
    return made if is_same else {**made, "content": kept}


# What has to be changed in messages of ours before a provider takes them: ids, names, pictures, foreign reasoning.
#
# Each repair takes the messages of a context and returns them; what it changed is noted with the entry. A message is
# changed for what it says itself and for what came before it, so that the beginning of a growing conversation stays the
# same bytes; pictures, of which a request may have so many, leave in portions.

_SAY_SOMETHING = frozenset({"user", "assistant", "system", "developer", "custom"})
_PORTION = 5
"""Above the limit so many portions are made of it: with 100 images allowed, they leave 20 at a time."""


def fitting_id(call_id: str, limits: RequestLimits) -> str:
    """Return the id of a call as a provider takes it: the same where it does, else one made of it. O(size)."""
    if limits.takes_id(call_id):
        return call_id
    bare = PI_ID.fullmatch(call_id)
    if bare is not None and limits.takes_id(bare[1]):
        return bare[1]
    # The digest keeps two apart that begin alike, or whose signs were replaced by the same one.
    digest = made_id(call_id)
    text = f"{_only_fitting(call_id, limits.id_pattern)[: limits.most_id_chars - 17]}_{digest}"
    return text if limits.takes_id(text) else digest[: limits.most_id_chars]


def fitting_name(name: str, limits: RequestLimits) -> str:
    """Return the name of a tool as a provider takes it, as `fitting_id` does. O(size)."""
    if limits.takes_name(name):
        return name
    text = _only_fitting(name, limits.name_pattern)[: limits.most_name_chars]
    return text if limits.takes_name(text) else f"tool_{text}"[: limits.most_name_chars]


def _only_fitting(text: str, pattern: str) -> str:
    return "".join(sign if re.fullmatch(pattern, f"a{sign}") else "_" for sign in text)


def with_fitting_calls(
    said: Sequence[Said], limits: RequestLimits, left: Leftovers, *, as_items: bool = False
) -> list[Said]:
    """Return messages whose calls and results have ids, names and arguments that a provider takes. O(parts).

    ``as_items`` says that a call which was an item of Responses goes out as that item.
    """
    return [_with_fitting_call(each, limits, left, as_items=as_items) for each in said]


def _with_fitting_call(said: Said, limits: RequestLimits, left: Leftovers, *, as_items: bool) -> Said:
    message = said.message
    left.at = said.entry_id
    if said.role == "toolResult":
        fitting = _fitted(message, limits, "toolCallId", "toolName")
    elif said.calls:
        given = _repairs_parts(message)
        parts = [_fitted(part, limits, "id", "name") if _is(part, "toolCall") else part for part in given]
        fitting = {**message, "content": parts} if parts != given else message
    else:
        return said
    if fitting is not message:
        left.change("ids or names of tool calls were changed to what the API accepts")
    whole = _with_objects(fitting, left, as_items=as_items) if said.calls else fitting
    return said if whole is message else said.with_message(whole)


def _with_objects(message: JsonObject, left: Leftovers, *, as_items: bool) -> JsonObject:
    """Return an answer whose calls have objects as arguments, or the text of one; the same one if they do."""
    changed: dict[int, JsonValue] = {}
    for place, part in enumerate(_repairs_parts(message)):
        if not isinstance(part, dict) or part.get("type") != "toolCall" or part.get(CUSTOM) is True:
            continue
        arguments = part.get("arguments")
        is_item = as_items and part.get(ITEM, "function_call") != "function_call"
        if arguments is None or isinstance(arguments, dict) or is_item or is_text_of_object(arguments):
            continue
        changed[place] = {**part, "arguments": arguments_object(part, left)}
    if not changed:
        return message
    return {**message, "content": [changed.get(place, part) for place, part in enumerate(_repairs_parts(message))]}


def _fitted(value: JsonValue, limits: RequestLimits, id_field: str, name_field: str) -> JsonObject:
    held = value if isinstance(value, dict) else {}
    changed: JsonObject = {}
    call_id, name = held.get(id_field), held.get(name_field)
    if isinstance(call_id, str) and (fitting := fitting_id(call_id, limits)) != call_id:
        changed[id_field] = fitting
    if isinstance(name, str) and (fitting := fitting_name(name, limits)) != name:
        changed[name_field] = fitting
    return {**held, **changed} if changed else held


def without_foreign_reasoning(said: Sequence[Said], model: str | None, left: Leftovers) -> list[Said]:
    """Return messages without the reasoning of other models than the one that is asked.

    Where that is None, all of it stays, and so does that of an answer that names no model. What an answer goes on with
    behind it, in this message or in the next ones, has `Said.has_lost`. O(parts).
    """
    if model is None:
        return [*said]
    kept: list[Said] = []
    has_lost = False
    for each in said:
        bare = _without_reasoning(each, left) if _is_foreign(each.message, model) else each
        has_lost = each.role == "assistant" and (has_lost or bare is not each)
        kept.append(Said(bare.message, bare.extra, bare.entry_id, has_lost=True) if has_lost else bare)
    return kept


def _is_foreign(message: JsonObject, model: str) -> bool:
    by = message.get("model")
    return message.get("role") == "assistant" and isinstance(by, str) and bool(by) and not is_same_model(by, model)


def _without_reasoning(said: Said, left: Leftovers) -> Said:
    parts = _repairs_parts(said.message)
    kept = [part for part in parts if not _is(part, "thinking")]
    if len(kept) == len(parts):
        return said
    left.at = said.entry_id
    for part in parts:
        if _is(part, "thinking"):
            left.note("reasoning of another model", _object(part))
    return said.with_message({**said.message, "content": kept})


def with_fitting_images(
    said: Sequence[Said], limits: RequestLimits, left: Leftovers, *, in_answers: bool
) -> list[Said]:
    """Return messages without the images that a provider does not take, with a text in the place of each.

    Of more images than a request may have, the oldest leave. ``in_answers`` says whether answers may have any.
    O(parts).
    """
    found = [
        (at, place)
        for at, each in enumerate(said)
        for place, part in enumerate(_repairs_parts(each.message))
        if _is(part, "image")
    ]
    held = [_repairs_held(_repairs_parts(said[at].message)[place]) for at, place in found]
    types = [_real_type(*each) for each in held]
    spare = _spare([len(data or "") for data, _ in held], limits)
    changes: dict[int, dict[int, JsonValue]] = {}
    for number, ((at, place), (data, declared), real) in enumerate(zip(found, held, types, strict=True)):
        why = "" if in_answers or said[at].role != "assistant" else "an image in an answer"
        if number < spare:
            why = why or f"an image of more than the API takes in one request ({limits.images:,})"
        why = why or wrong_picture(data, real or declared, limits, among=len(found) - spare)
        left.at = said[at].entry_id
        if not why and real is not None:
            left.change(f"an image that is said to be of another type goes out as {real}, as its data are")
            rest = {
                name: value for name, value in _object(_repairs_parts(said[at].message)[place]).items() if name != "url"
            }
            changes.setdefault(at, {})[place] = {**rest, "data": data, "mimeType": real}
        if why:
            instead: JsonObject = {"type": "text", "text": _in_its_place(why, said[at].entry_id)}
            left.note(why, _object(_repairs_parts(said[at].message)[place]), put=instead)
            changes.setdefault(at, {})[place] = instead
    return [_replaced(each, changes.get(at)) for at, each in enumerate(said)]


def _real_type(data: str | None, declared: str | None) -> str | None:
    """Return the type of the picture that some data are, where it is said to be of another; None where it is not."""
    real = None if data is None else type_of_bytes(data)
    said = declared or "image/png"  # as it goes out
    is_other = real is not None and real.startswith("image/") and real != said and {real, said} != HEIF
    return real if is_other else None


def _spare(sizes: Sequence[int], limits: RequestLimits) -> int:
    """Return how many images leave from the beginning, in portions, so that the rest fits."""
    portion = max(1, limits.images // _PORTION)
    spare = -(-max(0, len(sizes) - limits.images) // portion) * portion
    most = limits.image_chars_in_all
    if most is not None:
        # So many characters leave that the next images do not move the cut again.
        goal = -(-max(0, sum(sizes) - most) // max(1, most // _PORTION)) * (most // _PORTION)
        gone, leaving = 0, 0
        while gone < goal and leaving < len(sizes):
            gone += sizes[leaving]
            leaving += 1
        spare = max(spare, leaving)
    return min(spare, len(sizes))


def _in_its_place(why: str, entry_id: str | None) -> str:
    stored = "" if entry_id is None else f"; it is stored in entry {entry_id}"
    return f"[image left out: {why}{stored}]"


def _replaced(said: Said, parts: dict[int, JsonValue] | None) -> Said:
    if not parts:
        return said
    kept = [parts.get(place, part) for place, part in enumerate(_repairs_parts(said.message))]
    return said.with_message({**said.message, "content": kept})


def without_spare_compactions(said: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return messages without what a provider compacted itself, but where it stands first and holds something.

    What it stands for is in the messages before it, which a provider would otherwise be sent beside it. O(parts).
    """
    kept: list[Said] = []
    first = next((at for at, each in enumerate(said) if each.role not in SYSTEM), None)
    for at, each in enumerate(said):
        parts = _repairs_parts(each.message)
        is_first = at == first and each.role == "assistant"
        good = [
            part
            for place, part in enumerate(parts)
            if not _is(part, COMPACTION_PART) or (is_first and place == 0 and holds_compaction(_object(part)))
        ]
        if len(good) == len(parts):
            kept.append(each)
            continue
        left.at = each.entry_id
        spare = [_object(part) for part in parts if part not in good]
        left.note("a compaction of the provider's that does not stand first, or holds nothing", *spare)
        kept.append(each.with_message({**each.message, "content": good}))
    return kept


def without_torn_server_calls(said: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return messages without calls of tools that Anthropic runs itself whose result never came. O(parts)."""
    sides = (
        ("results" if each.role == "toolResult" else str(each.role), _repairs_parts(each.message)) for each in said
    )
    torn: dict[int, list[int]] = {}
    for at, place in torn_server_calls(sides):
        torn.setdefault(at, []).append(place)
    kept = [*said]
    for at, places in torn.items():
        parts = _repairs_parts(said[at].message)
        left.at = said[at].entry_id
        for place in places:
            left.note("a call of a tool that the API runs, without its result or the reverse", _object(parts[place]))
        whole = [part for place, part in enumerate(parts) if place not in places]
        kept[at] = said[at].with_message({**said[at].message, "content": whole})
    return kept


def without_empty(said: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return messages without those that say nothing: no content, or nothing but white space and empty parts.

    The result of a tool stays: it answers its call. O(parts).
    """
    kept: list[Said] = []
    for each in said:
        if not each.extra and _says_nothing(each.message.get("content")) and each.role in _SAY_SOMETHING:
            left.at = each.entry_id
            left.note("a message that says nothing", each.message)
        else:
            kept.append(each)
    return kept


def _says_nothing(content: JsonValue) -> bool:
    if not isinstance(content, list):
        return is_blank(content)
    # Written out: almost every part of a history is asked, and says something.
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not is_blank(part.get("text")):
            return False
    return True


def _repairs_parts(message: JsonObject) -> list[JsonValue]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _is(part: JsonValue, kind: str) -> bool:
    return isinstance(part, dict) and part.get("type") == kind


def _repairs_held(part: JsonValue) -> tuple[str | None, str | None]:
    """Return the base64 text of an image and its MIME type, from its own fields or from its URL; None for neither."""
    image = _object(part)
    url = image.get("url")
    inline = image_from_url(url) if isinstance(url, str) else {}
    data = image["data"] if isinstance(image.get("data"), str) else inline.get("data")
    mime_type = image["mimeType"] if isinstance(image.get("mimeType"), str) else inline.get("mimeType")
    return data if isinstance(data, str) else None, mime_type if isinstance(mime_type, str) else None


# A request that a provider takes, made of a context: repaired, converted, and checked against the provider's rules.

CONTINUE = "(continue)"
"""What the user says behind an answer that stands last, where a provider takes no request that ends in one."""


class WireRequest(Frozen):
    """What one provider is sent of a context.

    ``messages`` are as it takes them, ``system`` is what a request has beside them, None where that is nothing or
    stands among the messages. ``repairs`` say what was left out or changed, with the entry of each. ``broken`` are the
    rules that the request breaks all the same, () if it breaks none that is known. ``tools`` are those that were given,
    the last of them marked where marks for the cache are asked for.
    """

    target: Shape
    messages: list[JsonObject]
    system: JsonValue
    repairs: tuple[Repair, ...]
    broken: tuple[Broken, ...]
    tools: tuple[JsonObject, ...] = ()


def wire_request(
    target: str,
    said: Iterable[Said],
    *,
    model: str | None = None,
    account: str | None = None,
    limits: RequestLimits | None = None,
    tools: Sequence[JsonObject] = (),
    keeps_stale_reasoning: bool = False,
    cache_marks: CacheMarks | None = None,
) -> WireRequest:
    """Return a context as the request of a target that breaks none of its rules, where that can be had.

    With ``model``, the reasoning of other models is left out. What a provider compacted itself goes to it for
    ``account`` alone. ``limits`` are those of the target unless others are given. What is above a limit and cannot be
    left out (the size of a request) stays, and is in `WireRequest.broken`, as is a context without any message.

    Signed reasoning of an answer that says what it was produced under (`producedUnder`) is left out where the target,
    the system, ``tools`` or the messages before it have changed since, unless ``keeps_stale_reasoning``. With
    ``cache_marks`` a request for Anthropic has these marks and no others. Raises `InvalidArgument` for a target that is
    none. O(size).
    """
    name = checked_target(target)
    given = [*said]
    within = limits or limits_of(name, model or last_model(given))
    beside = _Beside(model, account, tools, {} if keeps_stale_reasoning else bound_signatures(given), cache_marks)
    found = _made(name, given, within, beside)
    if found.broken and any(each.extra for each in given):
        # What stood beside a message brought back what the provider refuses.
        bare = [each.with_message(each.message) for each in given]
        again = _made(name, bare, within, beside)
        if len(again.broken) < len(found.broken):
            return again
    return found


class _Beside(Frozen):
    """What a request is made by beside its messages, and what the reasoning in them is bound to."""

    model: str | None
    account: str | None
    tools: Sequence[JsonObject]
    bound: Mapping[str, list[Bound]]
    marks: CacheMarks | None


def _made(target: Shape, said: Sequence[Said], limits: RequestLimits, beside: _Beside) -> WireRequest:
    left = Leftovers()
    fitting = [*said]
    # Most conversations have few kinds of parts, and what repairs another need not look at each message.
    kinds = kinds_in(fitting)
    if target == "anthropic" and not kinds.isdisjoint(SERVER_KINDS):
        fitting = without_torn_server_calls(fitting, left)
    if "toolCall" in kinds:
        fitting = with_own_ids(fitting, left)
    if "thinking" in kinds:
        fitting = without_foreign_reasoning(fitting, beside.model, left)
    if target == "anthropic" and COMPACTION_PART in kinds:
        fitting = without_spare_compactions(fitting, left)
    if not kinds.isdisjoint(FILES):
        fitting = with_fitting_files(fitting, left) if target == "anthropic" else with_readable_files(fitting, left)
    if not kinds.isdisjoint(("toolCall", "toolResult")):
        fitting = with_fitting_calls(fitting, limits, left, as_items=target == "openai-responses")
    if not kinds.isdisjoint(("image", *FILES)):  # a file may be a picture
        fitting = with_fitting_images(fitting, limits, left, in_answers=target == "gemini")
    if BLANK in kinds or left.repairs:  # of what a repair took something from, nothing may be left
        fitting = without_empty(fitting, left)
    left.at = None
    system, messages = _LISTS[target](fitting, left, beside.account, limits)
    messages = _ENDS[target](messages, left, limits)
    epoch_at = None if beside.marks is None else left.places.get(beside.marks.epoch_end)
    if beside.bound:
        kept = without_stale_reasoning(target, messages, system, beside.tools, beside.bound, left)
        messages = _ENDS[target](kept.messages, left, limits)
        epoch_at = None if epoch_at is None else kept.places[epoch_at]
    tools = beside.tools
    if target == "anthropic" and beside.marks is not None:
        messages, system, tools = with_cache_marks(messages, system, tools, beside.marks, epoch_at)
    broken = broken_rules(target, messages, system, limits=limits, tools=tools)
    return WireRequest(target, messages, system, tuple(left.repairs), broken, tuple(tools))


_List: TypeAlias = Callable[[Sequence[Said], Leftovers, str | None, RequestLimits], SystemApart]
_End: TypeAlias = Callable[[list[JsonObject], Leftovers, RequestLimits], list[JsonObject]]


def _anthropic(said: Sequence[Said], left: Leftovers, account: str | None, limits: RequestLimits) -> SystemApart:
    return anthropic_list(said, left, is_sent=True, account=account, system_within=limits.system_within)


def _chat(said: Sequence[Said], left: Leftovers, account: str | None, limits: RequestLimits) -> SystemApart:
    return SystemApart(None, chat_list(said, left))


def _responses(said: Sequence[Said], left: Leftovers, account: str | None, limits: RequestLimits) -> SystemApart:
    return SystemApart(None, responses_list(said, left, is_complete=True, is_sent=True, account=account))


def _gemini(said: Sequence[Said], left: Leftovers, account: str | None, limits: RequestLimits) -> SystemApart:
    system, contents = gemini_list(said, left)
    told = [system] if isinstance(system, dict) else []
    return SystemApart(next(iter(_without_empty_texts(told, left)), None), contents)


_LISTS: Mapping[Shape, _List] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}


def _with_parts_that_are_taken(messages: list[JsonObject], left: Leftovers, limits: RequestLimits) -> list[JsonObject]:
    """Return chat messages without parts that their role may not have, and without those that are then empty."""
    kept: list[JsonObject] = []
    for message in (_with_fitting_name(each, left, limits) for each in messages):
        content = message.get("content")
        if isinstance(content, list):
            taken = PARTS_OF.get(message.get("role"), frozenset())
            parts: list[JsonValue] = [part for part in content if isinstance(part, dict) and part.get("type") in taken]
            if parts and len(parts) == len(content):
                kept.append(message)
                continue
            for part in content:
                if part not in parts:
                    lost = (part,) if isinstance(part, dict) else ()
                    left.note(f"a part that a message of {message.get('role')} may not have", *lost)
            if not parts and "tool_calls" not in message:
                left.note("a message that says nothing")
                continue
            if len(parts) < len(content):
                kept.append({**message, "content": parts or None})
                continue
        kept.append(message)
    return kept


def _with_fitting_name(message: JsonObject, left: Leftovers, limits: RequestLimits) -> JsonObject:
    name = message.get("name")
    if not isinstance(name, str) or limits.takes_name(name):
        return message
    left.change("names of who speaks were changed to what the API accepts")
    return {**message, "name": fitting_name(name, limits)}


def _with_end(messages: list[JsonObject], left: Leftovers, limits: RequestLimits) -> list[JsonObject]:
    """Return Anthropic messages whose last one is no answer, or one that the model goes on with, without blanks."""
    if not messages or messages[-1].get("role") != "assistant":
        return messages
    if not limits.answer_last and not ends_in_server_call(messages[-1]):
        going_on: JsonObject = {"role": "user", "content": CONTINUE}
        left.change("a message of the user stands behind the last answer, which the model asks for", put=[going_on])
        return [*messages, going_on]
    content = messages[-1].get("content")
    if isinstance(content, str):
        shorter: JsonValue = content.rstrip()
    elif isinstance(content, list) and content and isinstance(last := content[-1], dict) and "text" in last:
        shorter = [*content[:-1], {**last, "text": str(last["text"]).rstrip()}]
    else:
        return messages
    if shorter == content:
        return messages
    left.change("white space at the end of the last answer is left out, which the API refuses")
    return [*messages[:-1], {**messages[-1], "content": shorter}]


def _with_turns(contents: list[JsonObject], left: Leftovers, limits: RequestLimits) -> list[JsonObject]:
    """Return Gemini contents with answers that followed each other as one, and a content of the user last.

    The first call of each answer has a signature, or what the API takes in place of one.
    """
    turns: list[JsonObject] = []
    signed = [_signed(each, left) if each.get("role") == "model" else each for each in contents]
    for content in signed if limits.empty_texts else _without_empty_texts(signed, left):
        if turns and content.get("role") == turns[-1].get("role") == "model":
            left.change("answers that followed each other were joined")
            turns[-1] = {
                **turns[-1],
                "parts": [*_requests_listed(turns[-1]["parts"]), *_requests_listed(content.get("parts"))],
            }
        else:
            turns.append(content)
    turns = _without_thoughts_alone(turns, left)
    if turns and turns[-1].get("role") != "user":
        left.change(
            "a content of the user stands behind the last answer, which the API asks for",
            put=[{"role": "user", "content": CONTINUE}],
        )
        turns.append({"role": "user", "parts": [{"text": CONTINUE}]})
    return turns


def _without_empty_texts(contents: list[JsonObject], left: Leftovers) -> list[JsonObject]:
    """Return Gemini contents without parts that say "", and without those that are then empty."""
    kept: list[JsonObject] = []
    for content in contents:
        parts = [part for part in _requests_listed(content.get("parts")) if not is_empty_text(part)]
        if len(parts) < len(_requests_listed(content.get("parts"))):
            left.change("empty texts are left out, which the API refuses")
        if parts:
            kept.append({**content, "parts": parts})
    return kept


def _signed(content: JsonObject, left: Leftovers) -> JsonObject:
    parts = _requests_listed(content.get("parts"))
    readable = [_with_readable_signature(part, left) for part in parts]
    return with_signature(content if readable == parts else {**content, "parts": readable}, left)


def _with_readable_signature(part: JsonValue, left: Leftovers) -> JsonValue:
    if not isinstance(part, dict) or "thoughtSignature" not in part:
        return part
    signature = part["thoughtSignature"]
    if not isinstance(signature, str) or not signature.startswith("{"):
        return part
    left.change("a signature that is an item of another provider's is left out, since the API reads base64 alone")
    return {name: value for name, value in part.items() if name != "thoughtSignature"}


def _without_thoughts_alone(turns: list[JsonObject], left: Leftovers) -> list[JsonObject]:
    kept: list[JsonObject] = []
    for turn in turns:
        if not is_thought_alone(turn):
            kept.append(turn)
            continue
        thoughts = [part for part in _requests_listed(turn.get("parts")) if isinstance(part, dict)]
        left.note(
            "an answer of thoughts alone", *({"type": "thinking", "thinking": part.get("text")} for part in thoughts)
        )
    return kept


def _requests_listed(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _with_reasoning_followed(items: list[JsonObject], left: Leftovers, limits: RequestLimits) -> list[JsonObject]:
    """Return Responses items without reasoning that nothing of the model's follows, and without empty messages."""
    kept: list[JsonObject] = []
    for item in reversed([_with_fitting_id(each, left, limits) for each in items]):
        kind = kind_of(item)
        if kind == "message" and item.get("content") in ([], None):
            left.note("a message that says nothing")
        elif kind == "reasoning" and not (kept and is_of_the_model(kept[-1])):
            left.note("reasoning without the item that it led to, which the API refuses", part_of_reasoning(item))
        else:
            kept.append(item)
    return kept[::-1]


def _with_fitting_id(item: JsonObject, left: Leftovers, limits: RequestLimits) -> JsonObject:
    """Return an item without an id that is not taken, where nothing else names it by that."""
    is_named = kind_of(item) not in ("message", "reasoning") and "call_id" not in item
    if is_named or limits.takes_item_id(item.get("id")):
        return item
    left.change("ids of items that the API does not take are left out")
    return {name: value for name, value in item.items() if name != "id"}


_ENDS: Mapping[Shape, _End] = {
    "anthropic": _with_end,
    "openai-chat": _with_parts_that_are_taken,
    "openai-responses": _with_reasoning_followed,
    "gemini": _with_turns,
}


# What a provider would refuse of a context as it is: each message in the provider's form, and none of it repaired.

_PLACE = re.compile(r"\w+\[(\d+)\]")


class Validity(Frozen):
    """Whether a provider takes a context as it is, and what makes a request of it that is taken.

    ``broken`` is where the context breaks the rules of the target as it is, each with the entry behind it where it is
    about one message; ``repairs`` are what a request leaves out or changes; ``left`` is what the request breaks all the
    same, () if it breaks no rule that is known.
    """

    target: Shape
    broken: tuple[Broken, ...]
    repairs: tuple[Repair, ...]
    left: tuple[Broken, ...]

    @property
    def is_valid(self) -> bool:
        """Whether the context breaks no rule as it is.

        There may be repairs all the same: what a form has no place for is left out, and so is reasoning that another
        model gave or that was produced under another beginning, which no rule can see.
        """
        return not self.broken


class _ValidityForm(NamedTuple):
    """Where a provider has what the system said and what makes a message, and whose own compactions it takes."""

    system: Callable[[Iterable[Said], Leftovers], SystemApart] | None = None
    content: str | None = None
    provider: str | None = None


_VALIDITY_FORMS: Mapping[Shape, _ValidityForm] = {
    "anthropic": _ValidityForm(anthropic_list, "content", "anthropic"),
    "openai-chat": _ValidityForm(),
    "openai-responses": _ValidityForm(provider="openai"),
    "gemini": _ValidityForm(gemini_list, "parts"),
}


def broken_as_it_is(
    target: str, said: Iterable[Said], *, account: str | None = None, model: str | None = None
) -> tuple[Broken, ...]:
    """Return where a context breaks the rules of a target if nothing of it is repaired, () if it breaks none.

    Each message is put into the provider's form for itself, as `to_provider` does, what the system says first beside
    the list where a request has it there; results of tools that follow each other are one message of the user with what
    the user says behind them. The limits are those of ``model``, by default that of the last answer. Raises
    `InvalidArgument` for a target that is none. O(size).
    """
    name, said = checked_target(target), [*said]
    form = _VALIDITY_FORMS[name]
    spoken = speakers_only(said, Leftovers(), also=SYSTEM, provider=form.provider, account=account)
    apart = _first_of_system(spoken) if form.system else 0
    told = form.system(spoken[:apart], Leftovers()).system if form.system else None
    messages, entry_ids = _printed(name, spoken[apart:], form)
    limits = limits_of(name, model or last_model(said))
    return tuple(_with_entry(each, entry_ids) for each in broken_rules(name, messages, told, limits=limits))


def _first_of_system(said: Sequence[Said]) -> int:
    return next((at for at, each in enumerate(said) if each.role not in SYSTEM), len(said))


def _printed(target: Shape, said: Sequence[Said], form: _ValidityForm) -> tuple[list[JsonObject], list[str | None]]:
    """Return the messages, and the entry behind each."""
    messages: list[JsonObject] = []
    entry_ids: list[str | None] = []
    before: JsonValue = None
    for each in said:
        is_one = form.content is not None and before == "toolResult" and each.role in ("toolResult", "user")
        for printed in to_provider(each.message, target, each.extra).messages:
            if is_one and messages and form.content:
                whole = [*_listed(messages[-1].get(form.content)), *_listed(printed.get(form.content))]
                messages[-1] = {**messages[-1], form.content: whole}
            else:
                messages.append(printed)
                entry_ids.append(each.entry_id)
        before = each.role
    return messages, entry_ids


def _with_entry(broken: Broken, entry_ids: Sequence[str | None]) -> Broken:
    """Return where a rule is broken with the entry of the message that the path names."""
    found = _PLACE.match(broken.where)
    is_known = found is not None and not broken.where.startswith("system") and int(found[1]) < len(entry_ids)
    return replace(broken, entry_id=entry_ids[int(found[1])]) if is_known and found else broken
