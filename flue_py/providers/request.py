"""Requests that a provider takes, made of messages of ours, and each message from and to a provider's form."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Literal

from msgspec.structs import replace

from flue_py.core.context import is_same_model
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple, without
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
from flue_py.errors import InvalidArgument, shown
from flue_py.providers import anthropic, base, gemini, lists, openai_chat, openai_responses, rules
from flue_py.providers.anthropic import CACHE_MARK, PDF, PLAIN_TEXT, SERVER_KINDS, is_blank
from flue_py.providers.base import Leftovers, RequestLimits
from flue_py.providers.gemini import FOREIGN_SIGNATURE
from flue_py.providers.lists import Said
from flue_py.providers.openai_chat import CUSTOM, arguments_object, image_from_url, is_text_of_object
from flue_py.providers.openai_responses import ITEM, part_of_reasoning, without_its_reasoning

# Signed reasoning is sent only behind the beginning of a request that it was produced under.
#
# A provider binds reasoning to system, tools and messages before it, and refuses or drops it where one of these has
# changed. An answer that says its beginning (`flue_py.core.kinds`) is compared with the request that is about to be
# sent, in one pass: reasoning that is dropped is not part of the beginning of the messages behind it.

STALE = "signed reasoning that was produced under another beginning of the request"

_OURS = "ours"
_PARTS_IN: Mapping[str, str] = {"anthropic": "content", "gemini": "parts"}
"""The targets whose messages are made of parts that may be joined, and the field that has them."""
_CHAT_REASONING = ("reasoning_content", "thinking_content", "reasoning", "reasoning_details", "thinking_signature")


class Bound(Frozen):
    """The digest that a signature was produced under, the entry of its answer, and the reasoning, if it is of ours."""

    digest: str
    entry_id: str | None
    part: JsonObject | None = None


class Kept(Frozen):
    """The messages that are sent, and for each message of the caller the place of it, or of the one before it.

    ``are_sent`` says for each message of the caller whether anything of it is sent; ``digest`` is that of the request
    with these messages.
    """

    messages: list[JsonObject]
    places: list[int]
    are_sent: list[bool]
    digest: str


def bound_signatures(messages: Iterable[Said]) -> dict[str, list[Bound]]:
    """Return the signatures of answers that have `producedUnder`. O(size of those answers)."""
    signatures: dict[str, list[Bound]] = {}
    for message in messages:
        digest = message.message.get(PRODUCED_UNDER)
        if isinstance(digest, str) and digest and message.role == ASSISTANT:
            reasoning = _reasoning_in(message.message)
            for signature in {*signatures_in(message.message), *signatures_in(message.extra)}:
                bound = Bound(digest, message.entry_id, reasoning.get(signature))
                signatures.setdefault(_key(signature), []).append(bound)
    return signatures


def _reasoning_in(message: JsonObject) -> dict[str, JsonObject]:
    """Return the reasoning of an answer of ours by its signature."""
    return {
        signature: part
        for _, part in base.objects_in(message.get("content"))
        if part.get("type") == "thinking" and isinstance(signature := part.get("thinkingSignature"), str)
    }


def _key(signature: str) -> str:
    """Return the key of a signature; an item of OpenAI's is one by its encrypted text, or else its id."""
    if not signature.startswith("{"):
        return signature
    try:
        item = json.loads(signature)
    except (ValueError, RecursionError):
        return signature
    key = _key_of_item(item) if isinstance(item, dict) else None
    return key or signature


def _key_of_item(item: Mapping[str, JsonValue]) -> str | None:
    key = item.get("encrypted_content") or item.get("id")
    return key if isinstance(key, str) else None


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

    ``bound`` is what `bound_signatures` found; reasoning that is not in it stays. A part that is left out is noted with
    its entry. Calls and texts stay, and an answer that has nothing else is left out. O(size).
    """
    return _Walk(target, system, tools, bound, left).through(messages)


def ours_without_stale(
    messages: Sequence[JsonObject], system: JsonValue, tools: Sequence[JsonObject]
) -> list[JsonObject]:
    """Return messages of ours without stale reasoning. O(fields) if none has `producedUnder`."""
    if not any(PRODUCED_UNDER in message for message in messages):
        return [*messages]
    bound = bound_signatures(Said(message) for message in messages)
    return without_stale_reasoning(None, messages, system, tools, bound, Leftovers()).messages


def answers_produced_under(
    messages: Sequence[JsonObject], system: JsonValue, tools: Sequence[JsonObject], answered: Sequence[JsonObject]
) -> list[JsonObject]:
    """Return the answers of a model to messages of ours, each signed one with `producedUnder`.

    An answer behind results of tools was produced under these, too. O(size) if there is signed reasoning.
    """
    if not any(map(is_signed, answered)):
        return [*answered]
    walk = _Walk(None, system, tools, {}, Leftovers())
    walk.through(messages)
    answers: list[JsonObject] = []
    begun = walk.digest.text
    for message in answered:
        if message.get("role") != ASSISTANT:
            walk.through([message])
            begun = walk.digest.text
            answers.append(message)
            continue
        is_complete = PRODUCED_UNDER in message or not is_signed(message)
        answers.append(message if is_complete else {**message, PRODUCED_UNDER: begun})
        walk.through([message])
    return answers


class _Walk:
    """A pass along the messages of a request, with the digest of the parts that are sent so far."""

    def __init__(
        self,
        target: Shape | None,
        system: JsonValue,
        tools: Sequence[JsonObject],
        bound: Mapping[str, list[Bound]],
        left: Leftovers,
    ) -> None:
        prompt: JsonValue = (
            system if isinstance(system, dict) else [_unmarked(block) for block in base.blocks_of(system or [])]
        )
        self.digest = RunningDigest(target or _OURS, prompt, [_unmarked(tool) for tool in tools])
        self._target = target
        self._bound = bound
        self._left = left
        self._side: JsonValue = None
        self._has_lost = False
        """Whether the answer that goes on has lost an item."""
        self._here: set[str] = set()
        """The digests since the answer began that goes on: a part of it may be produced under any of them."""
        self.wanted: str | None = None
        self.is_met = False

    def _add(self, part: JsonValue) -> None:
        self.digest.add(part)
        if self.wanted is not None and not self.is_met:
            self.is_met = self.digest.text == self.wanted

    def through(self, messages: Sequence[JsonObject]) -> Kept:
        """Go along messages, and return those that are sent."""
        field = _PARTS_IN.get(self._target or "")
        sent: list[JsonObject] = []
        places: list[int] = []
        are_sent: list[bool] = []
        for message in messages:
            whole = self._whole(message) if field is None else self._in_parts(message, field)
            if whole is not None and field == "content" and sent and sent[-1].get("role") == whole.get("role"):
                # A message between the two was left out.
                whole = {**whole, field: _joined(sent.pop(), whole, field)}
            if whole is not None:
                sent.append(whole)
            places.append(max(len(sent) - 1, 0))
            are_sent.append(whole is not None)
        return Kept(sent, places, are_sent, self.digest.text)

    # messages that are made of parts

    def _in_parts(self, message: JsonObject, field: str) -> JsonObject | None:
        role = message.get("role")
        content = message.get(field)
        parts = base.blocks_of(content)
        if role not in ("assistant", "model"):
            self._turn_to(role)
            for part in parts:
                self._add(_unmarked(part))
            return message
        if self._side != role:
            self._here = {self.digest.text} if self._bound else set()
        sent: list[JsonValue] = []
        for part in parts:
            has_call = any(isinstance(earlier, dict) and "functionCall" in earlier for earlier in sent)
            whole = self._part(part, is_first_call=not has_call)
            if whole is None:
                continue
            sent.append(whole)
            self._turn_to(role)
            self._add(_unmarked(whole))
            if self._bound:
                self._here.add(self.digest.text)
        if not sent and parts:
            return None
        return message if sent == parts or isinstance(content, str) else {**message, field: sent}

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
        rest = without(part, "thoughtSignature")
        is_call = is_first_call and "functionCall" in rest
        return {**rest, "thoughtSignature": FOREIGN_SIGNATURE} if is_call else rest

    def _is_stale(self, *signatures: JsonValue) -> bool:
        """Return whether one of the signatures was produced under another beginning, and note it."""
        for signature in signatures:
            bound = self._bound.get(signature) if isinstance(signature, str) else None
            if bound and not any(answer.digest in self._here for answer in bound):
                self._left.at = bound[0].entry_id
                self._left.note(STALE, *(() if bound[0].part is None else (bound[0].part,)))
                self._left.at = None
                return True
        return False

    # messages, and items, that are one whole

    def _whole(self, message: JsonObject) -> JsonObject | None:
        is_answer = (
            rules.is_of_the_model(message) if self._target == "openai-responses" else message.get("role") == ASSISTANT
        )
        side = "model" if is_answer else "user"
        sent: JsonObject | None = message
        if is_answer and self._bound:
            if self._side != side:
                self._here = {self.digest.text}
                self._has_lost = False
            sent = self._answer(message)
        self._side = side
        if sent is not None:
            self._add(seen_by_model(sent) if self._target is None else sent)
            if is_answer and self._bound:
                self._here.add(self.digest.text)
        return sent

    def _answer(self, message: JsonObject) -> JsonObject | None:
        if self._target == "openai-responses":
            return self._item(message)
        if self._target is None:
            return self._ours(message)
        details = message.get("reasoning_details")
        signatures = [message.get("thinking_signature"), *signatures_in(details)]
        if not self._is_stale(*signatures):
            return message
        return without(message, *_CHAT_REASONING)

    def _item(self, item: JsonObject) -> JsonObject | None:
        if rules.kind_of(item) == "reasoning":
            if not self._is_stale(_key_of_item(item)):
                return item
            self._has_lost = True
            return None
        return without_its_reasoning(item, f"msg_{self.digest.text}") if self._has_lost else item

    def _ours(self, message: JsonObject) -> JsonObject | None:
        content = message.get("content")
        if not isinstance(content, list):
            return message
        parts: list[JsonValue] = [whole for part in content if (whole := self._our_part(part)) is not None]
        if not parts and content:
            return None
        return message if parts == content else {**message, "content": parts}

    def _our_part(self, part: JsonValue) -> JsonValue:
        if not isinstance(part, dict):
            return part
        signatures = {name: _key(text) for name in _OWN_SIGNATURES if isinstance(text := part.get(name), str)}
        if not self._is_stale(*signatures.values()):
            return part
        if part.get("type") == "thinking":
            return None
        return without(part, *_OWN_SIGNATURES)


_OWN_SIGNATURES = ("thinkingSignature", "thoughtSignature", "textSignature")


def _signature_of(part: JsonObject) -> JsonValue:
    """Return the signature of a part of Anthropic's or Gemini's."""
    kind = part.get("type")
    if kind == "thinking":
        return part.get("signature")
    return part.get("data") if kind == "redacted_thinking" else part.get("thoughtSignature")


def _joined(first: JsonObject, second: JsonObject, field: str) -> list[JsonValue]:
    """Return the parts of two messages of one side."""
    return [*base.blocks_of(first.get(field)), *base.blocks_of(second.get(field))]


def _unmarked(part: JsonValue) -> JsonValue:
    """Return a part without its mark for the cache: the marks move from request to request."""
    return without(part, CACHE_MARK) if isinstance(part, dict) and CACHE_MARK in part else part


# Messages of OpenAI chat, OpenAI Responses, Anthropic and Gemini, one at a time, from and to ours.
#
# `shape_of` finds the form of a message by features that only one provider has. `convert` makes ours of it, with the
# fields by which an export gives the original back; `to_provider` is the way back. Imports and exports are for whole
# lists, with each result behind its call.

_CONVERSION_OURS = frozenset({
    "api", "provider", "model", "usage", "stopReason", "errorMessage", "timestamp", PRODUCED_UNDER,
})  # fmt: skip
"""Fields of our messages that callers put on a provider's: they count as they would on ours."""

_Pairs = Iterator[tuple[JsonObject, JsonObject]]


class Converted(NamedTuple):
    """One of our messages, made from a provider's, with the fields ``beside`` it, for the entry's ``extra``."""

    message: JsonObject
    beside: JsonObject


class Printed(Frozen):
    """The messages of a provider that one of ours is, and notes on parts without a place in them."""

    messages: tuple[JsonObject, ...]
    notes: tuple[base.ExportNote, ...]


def convert(
    message: JsonObject, shape: Shape, names: MutableMapping[str, str], where: str = "message"
) -> list[Converted]:
    """Return a provider's message as ours, one or more, with the fields that bring the original back in an export.

    ``names`` are the names of the tool calls so far, by id; those of this message are added. Nothing is shared with
    ``message`` that is changed. Raises `InvalidEntry` with the path of a value that cannot be converted. O(size).
    """
    form = _form(shape)
    form.check(message, where)
    converted = [Converted(*pair) for pair in form.read(message, names)]
    context = context_of(message)
    for result in converted:
        usage = result.message.get("usage")
        if context and shape != "anthropic" and isinstance(usage, dict):
            # The fields beside the usage may have no place in a message of ours.
            result.message["usage"] = {**context, **usage}
        names.update(openai_chat.calls_in(result.message))
    return converted


def beside_ours(message: JsonObject, shape: Shape) -> JsonObject:
    """Return the fields to keep beside a message of ours, so that a list of ``shape`` gets it as it came. O(size)."""
    return _form(shape).difference(message, message)


def to_provider(message: JsonObject, shape: Shape, beside: Mapping[str, JsonValue] | None = None) -> Printed:
    """Return one of our messages as a provider takes it, and notes on parts that were left out or changed.

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
        block = base.restored(anthropic.printed_result(message, left), found)
        return Printed(({"role": "user", "content": [block]},), ())
    return Printed((base.restored(printed[0] if len(printed) == 1 else {}, found),), ())


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


class _Form(Frozen):
    """How messages of one shape are checked, read and written, and the field of ``extra`` that has the differences.

    ``provider`` is whose own compactions the form takes; ``system`` makes the part of a request that the system says,
    and ``content`` is the field of a message with its parts, for a form that has these.
    """

    extra: str
    check: Callable[[JsonObject, str], None]
    read: Callable[[JsonObject, Mapping[str, str]], _Pairs]
    write: Callable[[JsonObject, Leftovers], list[JsonObject]]
    difference: Callable[[JsonObject, JsonObject], JsonObject]
    provider: str | None = None
    content: str | None = None
    system: Callable[[Iterable[Said], Leftovers], lists.SystemApart] | None = None


_FORMS: Mapping[str, _Form] = {
    "openai-chat": _Form(
        openai_chat.EXTRA,
        openai_chat.check_chat,
        _from_chat,
        lambda message, left: [openai_chat.printed_chat(message, left)],
        openai_chat.chat_difference,
    ),
    "openai-responses": _Form(
        openai_responses.EXTRA,
        openai_responses.check_item,
        _from_item,
        openai_responses.printed_items,
        openai_responses.responses_difference,
        openai_responses.PROVIDER,
    ),
    "anthropic": _Form(
        anthropic.EXTRA,
        anthropic.check_anthropic,
        lambda value, names: anthropic.messages_from_anthropic(value, names, own=_CONVERSION_OURS),
        lambda message, left: [anthropic.printed_anthropic(message, left)],
        anthropic.anthropic_difference,
        anthropic.PROVIDER,
        "content",
        lists.anthropic_list,
    ),
    "gemini": _Form(
        gemini.EXTRA,
        gemini.check_content,
        lambda value, names: gemini.messages_from_gemini(value, own=_CONVERSION_OURS),
        lambda message, left: [gemini.printed_content(message, left)],
        gemini.gemini_difference,
        content="parts",
        system=lists.gemini_list,
    ),
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


def with_fitting_files(messages: Sequence[Said], left: Leftovers, *, are_documents: bool) -> list[Said]:
    """Return messages whose files a provider takes, with a text in the place of each other one. O(size of files).

    Anthropic takes them as documents; of others each file has to be base64.
    """
    fit, kinds = (_fitting_file, FILES) if are_documents else (_readable_file, frozenset({"file"}))
    fitting: list[Said] = []
    for message in messages:
        content, left.at = message.message.get("content"), message.entry_id
        parts = [
            fit(part, left) if isinstance(part, dict) and part.get("type") in kinds else part
            for part in base.listed(content)
        ]
        fitting.append(message.with_parts(parts) if parts and parts != content else message)
    return fitting


def _fitting_file(part: JsonObject, left: Leftovers) -> JsonValue:
    data, mime_type = _data_of(part)
    kind, real = base.bare_type(mime_type), None if data is None else base.type_of_bytes(data)
    if kind in (None, PDF) and (data is None or real == PDF):
        return part
    if data is not None and real is not None:
        return _retyped(part, data, real, left)
    if kind == PDF:
        return _left_out(part, _NO_PDF, left)
    if kind == PLAIN_TEXT:
        text = "" if data is None else _text(data)
        if not text.strip():
            return _left_out(part, "a file of plain text that has none, or cannot be read", left)
        left.change("a file of plain text goes out as its text")
        return _document(part, text)
    name = "a file that does not say its type" if kind is None else f"a file of type {kind!r}"
    return _left_out(part, f"{name}; it takes {PDF} and {PLAIN_TEXT}", left)


def _readable_file(part: JsonObject, left: Leftovers) -> JsonValue:
    data, mime_type = _data_of(part)
    if data is None:
        return part
    try:  # of either alphabet
        b64decode(data.translate(base.OTHER_ALPHABET), validate=True)
    except ValueError:
        return _left_out(part, "a file whose data are no base64", left)
    kind, real = base.bare_type(mime_type), base.type_of_bytes(data)
    if real is not None:
        return _retyped(part, data, real, left) if real != kind or real.startswith("image/") else part
    if kind is not None and (kind == PDF or kind.startswith("image/")):
        return _left_out(part, _NO_PDF if kind == PDF else _NO_PICTURE, left)
    return part


def _retyped(part: JsonObject, data: str, real: str, left: Leftovers) -> JsonObject:
    """Return a file with the type that its data are: as a picture, where they are those of one."""
    left.change(f"a file that is said to be of another type, or of none, goes out as {real}, as its data are")
    if real.startswith("image/"):
        return {"type": "image", "data": data, "mimeType": real}
    if part.get("type") == "document":
        return {**part, "source": {**base.fields_of(part.get("source")), "media_type": real}}
    return {**without(part, "url"), "data": data, "mimeType": real}


def _left_out(part: JsonObject, why: str, left: Leftovers) -> JsonObject:
    left.note(why)
    name = part.get("filename", part.get("title"))
    return _in_its_place(f"file {name!r}" if isinstance(name, str) else "file", why, left.at)


def _in_its_place(name: str, why: str, entry_id: str | None) -> JsonObject:
    """Return the text that stands in the place of a file or an image."""
    stored = "" if entry_id is None else f"; it is stored in entry {entry_id}"
    return {"type": "text", "text": f"[{name} left out: {why}{stored}]"}


def _data_of(part: JsonObject) -> tuple[str | None, str | None]:
    """Return the base64 text of a file or an image and its MIME type, from its fields, its URL or its source."""
    source, url = part.get("source"), part.get("url")
    if isinstance(source, dict) and part.get("type") == "document":
        fields, inline = (source if source.get("type") == "base64" else {}), {}
        data, mime_type = fields.get("data"), fields.get("media_type")
    else:
        inline = image_from_url(url) if isinstance(url, str) else {}
        data, mime_type = part.get("data"), part.get("mimeType")
    data = data if isinstance(data, str) else inline.get("data")
    mime_type = mime_type if isinstance(mime_type, str) else inline.get("mimeType")
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


# Marks for Anthropic's cache, put where they help the next request: the API writes, and reads, a beginning up to a
# mark.

_MARKED = frozenset({
    "text", "image", "document", "search_result", "tool_use", "tool_result", "server_tool_use",
    "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "container_upload",
})  # fmt: skip
"""The blocks that may have a mark: reasoning, for one, may not."""


class CacheMarks(Frozen):
    """How many marks a request gets, how long the cache keeps a beginning, and the entry that ends an epoch."""

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
    bare = [_without_marks(message) for message in messages]
    prompt = [_without_marks(block) for block in base.blocks_of(system) if isinstance(block, dict)]
    offered = [_without_marks(tool) for tool in tools]
    left = marks.count
    mark: JsonObject = {"type": "ephemeral", "ttl": marks.ttl}
    places: list[int] = []
    for part in _order(bare, epoch_at):
        if left and part == _SYSTEM:
            left -= _mark_last(prompt if _last_marked(prompt) is not None else offered, mark)
        elif left and part == _TOOLS:
            left -= _mark_last(offered, mark)
        elif left and part not in places:
            places.append(part)
            left -= _mark_message(bare, part, mark)
    is_marked = any(CACHE_MARK in block for block in prompt)
    return Marked(bare, [*prompt] if is_marked or isinstance(system, list) else system, offered)


_SYSTEM, _TOOLS = -1, -2


def _order(messages: Sequence[JsonObject], epoch_at: int | None) -> Iterator[int]:
    """Yield the places of messages that get a mark, and `_SYSTEM` and `_TOOLS`, the most useful first."""
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
    blocks = [block for block in base.blocks_of(messages[at].get("content")) if isinstance(block, dict)]
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


def _without_marks(value: JsonObject) -> JsonObject:
    """Return a message or a block without the marks in it: the same one if it has none. O(blocks)."""
    bare = without(value, CACHE_MARK) if CACHE_MARK in value else value
    content = bare.get("content")
    if not isinstance(content, list):
        return bare
    blocks: list[JsonValue] = [_without_marks(block) if isinstance(block, dict) else block for block in content]
    is_same = all(new is old for new, old in zip(blocks, content, strict=True))
    return bare if is_same else {**bare, "content": blocks}


# Repairs of messages of ours, so that a provider takes them: ids, names, pictures, foreign reasoning.
#
# Each repair takes the messages of a context and returns them; a change is noted with the entry. A message is changed
# for its own content and for the messages before it, so that the beginning of a growing conversation stays the same
# bytes; pictures, of which a request may have so many, leave in portions.

_SAY_SOMETHING = frozenset({"user", "assistant", "system", "developer", "custom"})
_PORTION = 5
"""Above the limit so many portions are made of it: with 100 images allowed, they leave 20 at a time."""


def fitting_id(call_id: str, limits: RequestLimits) -> str:
    """Return the id of a call as a provider takes it: the same where it does, else one made of it. O(size)."""
    if limits.takes_id(call_id):
        return call_id
    bare = lists.PI_ID.fullmatch(call_id)
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


def with_fitting_calls(answer: Said, limits: RequestLimits, left: Leftovers, *, as_items: bool) -> Said:
    """Return a message whose calls, or result, have ids, names and arguments that a provider takes. O(parts).

    ``as_items`` says that a call which was an item of Responses goes out as that item.
    """
    message = answer.message
    left.at = answer.entry_id
    if answer.role == "toolResult":
        fitting = _fitted(message, limits, "toolCallId", "toolName")
    elif answer.calls:
        parts = base.listed(message.get("content"))
        fitted = [_fitted(part, limits, "id", "name") if base.is_part(part, "toolCall") else part for part in parts]
        fitting = {**message, "content": fitted} if fitted != parts else message
    else:
        return answer
    if fitting is not message:
        left.change("ids or names of tool calls were changed to what the API accepts")
    whole = _with_objects(fitting, left, as_items=as_items) if answer.calls else fitting
    return answer if whole is message else answer.with_message(whole)


def _with_objects(message: JsonObject, left: Leftovers, *, as_items: bool) -> JsonObject:
    """Return an answer whose calls have objects as arguments, or the text of one; the same one if they do."""
    parts = [*base.listed(message.get("content"))]
    is_changed = False
    for place, part in base.objects_in(parts):
        if part.get("type") != "toolCall" or part.get(CUSTOM) is True:
            continue
        arguments = part.get("arguments")
        is_item = as_items and part.get(ITEM, "function_call") != "function_call"
        if arguments is None or isinstance(arguments, dict) or is_item or is_text_of_object(arguments):
            continue
        parts[place], is_changed = {**part, "arguments": arguments_object(part, left)}, True
    return {**message, "content": parts} if is_changed else message


def _fitted(value: JsonValue, limits: RequestLimits, id_field: str, name_field: str) -> JsonObject:
    fields = base.fields_of(value)
    changed: JsonObject = {}
    call_id, name = fields.get(id_field), fields.get(name_field)
    if isinstance(call_id, str) and (fitting := fitting_id(call_id, limits)) != call_id:
        changed[id_field] = fitting
    if isinstance(name, str) and (fitting := fitting_name(name, limits)) != name:
        changed[name_field] = fitting
    return {**fields, **changed} if changed else fields


def without_foreign_reasoning(messages: Sequence[Said], model: str | None, left: Leftovers) -> list[Said]:
    """Return messages without the reasoning of other models than the one that is asked.

    Where that is None, all of it stays, and so does that of an answer that names no model. If an answer goes on
    behind it, in this message or in the next ones, has `Said.has_lost`. O(parts).
    """
    if model is None:
        return [*messages]
    sent: list[Said] = []
    has_lost = False
    for message in messages:
        by = message.message.get("model") if message.role == "assistant" else None
        is_foreign = isinstance(by, str) and by and not is_same_model(by, model)
        bare = _without_reasoning(message, left) if is_foreign else message
        has_lost = message.role == "assistant" and (has_lost or bare is not message)
        sent.append(Said(bare.message, bare.extra, bare.entry_id, has_lost=True) if has_lost else bare)
    return sent


def _without_reasoning(answer: Said, left: Leftovers) -> Said:
    thoughts = [place for place, part in enumerate(answer.parts) if base.is_part(part, "thinking")]
    left.at = answer.entry_id
    for place in thoughts:
        left.note("reasoning of another model", base.fields_of(answer.parts[place]))
    return answer.without_parts(thoughts)


def with_fitting_images(
    messages: Sequence[Said], limits: RequestLimits, left: Leftovers, *, in_answers: bool
) -> list[Said]:
    """Return messages without the images that a provider does not take, with a text in the place of each.

    Of more images than a request may have, the oldest leave. ``in_answers`` says whether answers may have any.
    O(parts).
    """
    images = [
        (at, place, part, *_data_of(part))
        for at, message in enumerate(messages)
        for place, part in base.objects_in(message.message.get("content"))
        if part.get("type") == "image"
    ]
    spare = _spare([len(data or "") for _, _, _, data, _ in images], limits)
    changes: dict[int, list[JsonValue]] = {}
    for number, (at, place, image, data, declared) in enumerate(images):
        why = "" if in_answers or messages[at].role != "assistant" else "an image in an answer"
        if number < spare:
            why = why or f"an image of more than the API takes in one request ({limits.images:,})"
        real = _real_type(data, declared)
        why = why or base.wrong_picture(data, real or declared, limits, among=len(images) - spare)
        left.at = messages[at].entry_id
        put: JsonObject | None = None
        if why:
            put = _in_its_place("image", why, left.at)
            left.note(why, image, put=put)
        elif real is not None:
            left.change(f"an image that is said to be of another type goes out as {real}, as its data are")
            put = {**without(image, "url"), "data": data, "mimeType": real}
        if put is not None:
            changes.setdefault(at, [*messages[at].parts])[place] = put
    return [message.with_parts(changes[at]) if at in changes else message for at, message in enumerate(messages)]


def _real_type(data: str | None, declared: str | None) -> str | None:
    """Return the type of the picture that some data are, if it is declared as another; None if it is not."""
    real = None if data is None else base.type_of_bytes(data)
    sent = declared or "image/png"
    is_other = real is not None and real.startswith("image/") and real != sent and {real, sent} != base.HEIF
    return real if is_other else None


def _spare(sizes: Sequence[int], limits: RequestLimits) -> int:
    """Return how many images leave from the beginning, in portions, so that the rest fits."""
    portion = max(1, limits.images // _PORTION)
    spare = -(-max(0, len(sizes) - limits.images) // portion) * portion
    most = limits.image_chars_in_all
    if most is not None:
        # So many characters leave that the next images do not move the cut again.
        goal = -(-max(0, sum(sizes) - most) // max(1, most // _PORTION)) * (most // _PORTION)
        characters, leaving = 0, 0
        while characters < goal and leaving < len(sizes):
            characters += sizes[leaving]
            leaving += 1
        spare = max(spare, leaving)
    return min(spare, len(sizes))


def without_spare_compactions(messages: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return messages without a provider's own compactions, but for one that stands first and holds something.

    The messages before a compaction say the same, and a provider would otherwise be sent both. O(parts).
    """
    sent: list[Said] = []
    first = lists.leading_system(messages)
    for at, message in enumerate(messages):
        is_first = at == first and message.role == "assistant"
        spare = [
            place
            for place, part in enumerate(message.parts)
            if base.is_part(part, COMPACTION_PART)
            and not (is_first and place == 0 and holds_compaction(base.fields_of(part)))
        ]
        if spare:
            left.at = message.entry_id
            lost = [base.fields_of(message.parts[place]) for place in spare]
            left.note("a compaction of the provider's that does not stand first, or holds nothing", *lost)
        sent.append(message.without_parts(spare))
    return sent


def without_torn_server_calls(messages: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return messages without calls of tools that Anthropic runs itself whose result never came. O(parts)."""
    sides = (("results" if message.role == "toolResult" else str(message.role), message.parts) for message in messages)
    torn: dict[int, list[int]] = {}
    for at, place in rules.torn_server_calls(sides):
        torn.setdefault(at, []).append(place)
        left.at = messages[at].entry_id
        lost = base.fields_of(messages[at].parts[place])
        left.note("a call of a tool that the API runs, without its result or the reverse", lost)
    return [message.without_parts(torn.get(at, ())) for at, message in enumerate(messages)]


def without_empty(messages: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return messages without those that say nothing: no content, or nothing but white space and empty parts.

    The result of a tool stays: it answers its call. O(parts).
    """
    sent: list[Said] = []
    for message in messages:
        if not message.extra and _says_nothing(message.message.get("content")) and message.role in _SAY_SOMETHING:
            left.at = message.entry_id
            left.note("a message that says nothing", message.message)
        else:
            sent.append(message)
    return sent


def _says_nothing(content: JsonValue) -> bool:
    if not isinstance(content, list):
        return is_blank(content)
    # Written out: almost every part of a history is asked, and says something.
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not is_blank(part.get("text")):
            return False
    return True


# A request that a provider takes, made of a context: repaired, converted, and checked against the provider's rules.

CONTINUE = "(continue)"
"""The words of the user behind an answer that stands last, since some providers take no request that ends in one."""


class WireRequest(Frozen):
    """A context as the request of one provider.

    ``messages`` are as it takes them, ``system`` stands beside them in a request; None if there is none, or it stands
    among the messages. ``repairs`` are the parts that were left out or changed, with the entry of each. ``broken`` are
    the rules that the request breaks all the same, () if it breaks none that is known. ``tools`` are those of the
    caller, the last of them marked if there are marks for the cache.
    """

    target: Shape
    messages: list[JsonObject]
    system: JsonValue
    repairs: tuple[base.Repair, ...]
    broken: tuple[base.Broken, ...]
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
    """Return a context as the request of a target that breaks none of its rules, if that can be had.

    With ``model``, the reasoning of other models is left out. A provider's own compaction goes to it for ``account``
    alone. ``limits`` are those of the target by default. A value above a limit that cannot be left out (the size of a
    request) stays, and is in `WireRequest.broken`, as is a context without any message.

    Signed reasoning of an answer with its beginning (`producedUnder`) is left out if the target, the system, ``tools``
    or the messages before it have changed since, unless ``keeps_stale_reasoning``. With ``cache_marks`` a request for
    Anthropic has these marks and no others. Raises `InvalidArgument` for a target that is none. O(size).
    """
    name, messages = base.checked_target(target), [*said]
    within = limits or base.limits_of(name, model or lists.last_model(messages))
    bound = {} if keeps_stale_reasoning else bound_signatures(messages)
    request_of = partial(_request, name, within, model, account, tools, bound, cache_marks)
    request = request_of(messages)
    if request.broken and any(message.extra for message in messages):
        # The fields beside a message brought back a value that the provider refuses.
        bare = [message.with_message(message.message) for message in messages]
        second = request_of(bare)
        if len(second.broken) < len(request.broken):
            return second
    return request


def _request(
    target: Shape,
    limits: RequestLimits,
    model: str | None,
    account: str | None,
    tools: Sequence[JsonObject],
    bound: Mapping[str, list[Bound]],
    marks: CacheMarks | None,
    context: Sequence[Said],
) -> WireRequest:
    left = Leftovers()
    fitting = [*context]
    # Most conversations have few kinds of parts, and the repairs of the others need not look at each message.
    kinds = lists.kinds_in(fitting)
    if target == "anthropic" and not kinds.isdisjoint(SERVER_KINDS):
        fitting = without_torn_server_calls(fitting, left)
    if "toolCall" in kinds:
        fitting = lists.with_own_ids(fitting, left)
    if "thinking" in kinds:
        fitting = without_foreign_reasoning(fitting, model, left)
    if target == "anthropic" and COMPACTION_PART in kinds:
        fitting = without_spare_compactions(fitting, left)
    if not kinds.isdisjoint(FILES):
        fitting = with_fitting_files(fitting, left, are_documents=target == "anthropic")
    if not kinds.isdisjoint(("toolCall", "toolResult")):
        as_items = target == "openai-responses"
        fitting = [with_fitting_calls(message, limits, left, as_items=as_items) for message in fitting]
    if not kinds.isdisjoint(("image", *FILES)):  # a file may be a picture
        fitting = with_fitting_images(fitting, limits, left, in_answers=target == "gemini")
    if lists.BLANK in kinds or left.repairs:  # a repair may have left nothing of a message
        fitting = without_empty(fitting, left)
    left.at = None
    system, messages = _list_of(target, fitting, left, account, limits)
    messages = _ENDS[target](messages, left, limits)
    epoch_at = None if marks is None else left.places.get(marks.epoch_end)
    if bound:
        sent = without_stale_reasoning(target, messages, system, tools, bound, left)
        messages = _ENDS[target](sent.messages, left, limits)
        epoch_at = None if epoch_at is None else sent.places[epoch_at]
    if target == "anthropic" and marks is not None:
        messages, system, tools = with_cache_marks(messages, system, tools, marks, epoch_at)
    broken = rules.broken_rules(target, messages, system, limits=limits, tools=tools)
    return WireRequest(target, messages, system, tuple(left.repairs), broken, tuple(tools))


def _list_of(
    target: Shape, messages: Sequence[Said], left: Leftovers, account: str | None, limits: RequestLimits
) -> lists.SystemApart:
    """Return messages of ours as the list of a target."""
    if target == "anthropic":
        return lists.anthropic_list(messages, left, is_sent=True, account=account, system_within=limits.system_within)
    if target == "openai-chat":
        return lists.SystemApart(None, lists.chat_list(messages, left))
    if target == "openai-responses":
        return lists.SystemApart(
            None, lists.responses_list(messages, left, is_complete=True, is_sent=True, account=account)
        )
    system, contents = lists.gemini_list(messages, left)
    instruction = [system] if isinstance(system, dict) else []
    return lists.SystemApart(next(iter(_without_empty_texts(instruction, left)), None), contents)


def _with_parts_that_are_taken(messages: list[JsonObject], left: Leftovers, limits: RequestLimits) -> list[JsonObject]:
    """Return chat messages without parts that their role may not have, and without those that are then empty."""
    sent: list[JsonObject] = []
    for original in messages:
        message, name, content = original, original.get("name"), original.get("content")
        if isinstance(name, str) and not limits.takes_name(name):
            left.change("names of who speaks were changed to what the API accepts")
            message = {**message, "name": fitting_name(name, limits)}
        if isinstance(content, list):
            types = rules.PARTS_OF.get(str(message.get("role")), ())
            parts: list[JsonValue] = [part for part in content if isinstance(part, dict) and part.get("type") in types]
            for part in content if len(parts) < len(content) else ():
                if part not in parts:
                    lost = (part,) if isinstance(part, dict) else ()
                    left.note(f"a part that a message of {message.get('role')} may not have", *lost)
            if not parts and "tool_calls" not in message:
                left.note("a message that says nothing")
                continue
            if len(parts) < len(content):
                message = {**message, "content": parts or None}
        sent.append(message)
    return sent


def _with_end(messages: list[JsonObject], left: Leftovers, limits: RequestLimits) -> list[JsonObject]:
    """Return Anthropic messages whose last one is no answer, or one that the model goes on with, without blanks."""
    if not messages or messages[-1].get("role") != "assistant":
        return messages
    if not limits.answer_last and not rules.ends_in_server_call(messages[-1]):
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

    The first call of each answer has a signature, or the mark that the API takes in place of one.
    """
    turns: list[JsonObject] = []
    signed = [_signed(content, left) if content.get("role") == "model" else content for content in contents]
    for content in signed if limits.empty_texts else _without_empty_texts(signed, left):
        if turns and content.get("role") == turns[-1].get("role") == "model":
            left.change("answers that followed each other were joined")
            turns[-1] = {**turns[-1], "parts": [*base.listed(turns[-1]["parts"]), *base.listed(content.get("parts"))]}
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
    sent: list[JsonObject] = []
    for content in contents:
        parts = [part for part in base.listed(content.get("parts")) if not rules.is_empty_text(part)]
        if len(parts) < len(base.listed(content.get("parts"))):
            left.change("empty texts are left out, which the API refuses")
        if parts:
            sent.append({**content, "parts": parts})
    return sent


def _signed(content: JsonObject, left: Leftovers) -> JsonObject:
    parts = base.listed(content.get("parts"))
    readable = [_with_readable_signature(part, left) for part in parts]
    return lists.with_signature(content if readable == parts else {**content, "parts": readable}, left)


def _with_readable_signature(part: JsonValue, left: Leftovers) -> JsonValue:
    signature = part.get("thoughtSignature") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(signature, str) or not signature.startswith("{"):
        return part
    left.change("a signature that is an item of another provider's is left out, since the API reads base64 alone")
    return without(part, "thoughtSignature")


def _without_thoughts_alone(turns: list[JsonObject], left: Leftovers) -> list[JsonObject]:
    sent: list[JsonObject] = []
    for turn in turns:
        if not rules.is_thought_alone(turn):
            sent.append(turn)
            continue
        thoughts = [
            {"type": "thinking", "thinking": part.get("text")} for _, part in base.objects_in(turn.get("parts"))
        ]
        left.note("an answer of thoughts alone", *thoughts)
    return sent


def _with_reasoning_followed(items: list[JsonObject], left: Leftovers, limits: RequestLimits) -> list[JsonObject]:
    """Return Responses items without reasoning that nothing of the model's follows, and without empty messages."""
    sent: list[JsonObject] = []
    for item in reversed([_with_fitting_id(item, left, limits) for item in items]):
        kind = rules.kind_of(item)
        if kind == "message" and item.get("content") in ([], None):
            left.note("a message that says nothing")
        elif kind == "reasoning" and not (sent and rules.is_of_the_model(sent[-1])):
            left.note("reasoning without the item that it led to, which the API refuses", part_of_reasoning(item))
        else:
            sent.append(item)
    return sent[::-1]


def _with_fitting_id(item: JsonObject, left: Leftovers, limits: RequestLimits) -> JsonObject:
    """Return an item without an id that is not taken, where nothing else names it by that."""
    is_named = rules.kind_of(item) not in ("message", "reasoning") and "call_id" not in item
    if is_named or limits.takes_item_id(item.get("id")):
        return item
    left.change("ids of items that the API does not take are left out")
    return without(item, "id")


_ENDS: Mapping[Shape, Callable[[list[JsonObject], Leftovers, RequestLimits], list[JsonObject]]] = {
    "anthropic": _with_end,
    "openai-chat": _with_parts_that_are_taken,
    "openai-responses": _with_reasoning_followed,
    "gemini": _with_turns,
}


# The rules that a context breaks as it is: each message in the provider's form, and none of it repaired.

_PLACE = re.compile(r"\w+\[(\d+)\]")


class Validity(Frozen):
    """Whether a provider takes a context as it is, and the repairs that make a request of it that is taken.

    ``broken`` is where the context breaks the rules of the target as it is, each with the entry behind it if it is
    about one message; ``repairs`` are the parts that a request leaves out or changes; ``left`` is where the request
    breaks rules all the same, () if it breaks no rule that is known.
    """

    target: Shape
    broken: tuple[base.Broken, ...]
    repairs: tuple[base.Repair, ...]
    left: tuple[base.Broken, ...]

    @property
    def is_valid(self) -> bool:
        """Whether the context breaks no rule as it is.

        There may be repairs all the same: a part without a place in the form is left out, and so is reasoning that
        another model gave or that was produced under another beginning, which no rule can see.
        """
        return not self.broken


def broken_as_it_is(
    target: str, said: Iterable[Said], *, account: str | None = None, model: str | None = None
) -> tuple[base.Broken, ...]:
    """Return where a context breaks the rules of a target if nothing of it is repaired, () if it breaks none.

    Each message is put into the provider's form for itself, as `to_provider` does; the first words of the system stand
    beside the list if a request has them there; results of tools that follow each other are one message of the user
    with the words of the user behind them. The limits are those of ``model``, by default that of the last answer.
    Raises `InvalidArgument` for a target that is none. O(size).
    """
    name, said = base.checked_target(target), [*said]
    form = _FORMS[name]
    spoken = lists.speakers_only(said, Leftovers(), also=SYSTEM, provider=form.provider, account=account)
    apart = lists.leading_system(spoken) if form.system else 0
    system = form.system(spoken[:apart], Leftovers()).system if form.system else None
    messages, entry_ids = _printed(name, spoken[apart:], form.content)
    limits = base.limits_of(name, model or lists.last_model(said))
    return tuple(_with_entry(broken, entry_ids) for broken in rules.broken_rules(name, messages, system, limits=limits))


def _printed(target: Shape, spoken: Sequence[Said], field: str | None) -> tuple[list[JsonObject], list[str | None]]:
    """Return the messages, and the entry behind each."""
    messages: list[JsonObject] = []
    entry_ids: list[str | None] = []
    before: JsonValue = None
    for message in spoken:
        is_same_turn = before == "toolResult" and message.role in ("toolResult", "user")
        for printed in to_provider(message.message, target, message.extra).messages:
            if is_same_turn and messages and field is not None:
                messages[-1] = {**messages[-1], field: _joined(messages[-1], printed, field)}
            else:
                messages.append(printed)
                entry_ids.append(message.entry_id)
        before = message.role
    return messages, entry_ids


def _with_entry(broken: base.Broken, entry_ids: Sequence[str | None]) -> base.Broken:
    """Return where a rule is broken with the entry of the message that the path names."""
    match = None if broken.where.startswith("system") else _PLACE.match(broken.where)
    if match is None or int(match[1]) >= len(entry_ids):
        return broken
    return replace(broken, entry_id=entry_ids[int(match[1])])
