"""The common ground of the providers' forms: differences, notes of exports, limits, rules, responses and pictures."""

from __future__ import annotations

import json
import re
import struct
from base64 import b64decode
from binascii import Error
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import ClassVar, TypeAlias, TypeGuard

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple, Selective
from flue_py.core.kinds import Shape, shape_of
from flue_py.core.usage import RESPONSE_ID, billed_by
from flue_py.errors import InvalidArgument, InvalidEntry, shown

# Values of messages, read as the type that they should be of.


def fields_of(value: JsonValue) -> JsonObject:
    """Return an object; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def listed(value: JsonValue) -> list[JsonValue]:
    """Return a list; an empty one for any other value."""
    return value if isinstance(value, list) else []


def is_part(part: JsonValue, kind: str) -> TypeGuard[JsonObject]:
    """Return whether a part of a content is of a kind: ``text``, ``thinking``, ``toolCall``, ..."""
    return isinstance(part, dict) and part.get("type") == kind


def objects_in(value: JsonValue) -> list[tuple[int, JsonObject]]:
    """Return the objects of a list, each with its place; none for any other value."""
    if not isinstance(value, list):
        return []
    return [(place, item) for place, item in enumerate(value) if isinstance(item, dict)]


def blocks_of(content: JsonValue) -> list[JsonValue]:
    """Return the blocks of a content; a text is one block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else listed(content)


def only(fields: Mapping[str, JsonValue], *names: str) -> JsonObject:
    """Return the fields of these names that an object has, in this order."""
    return {name: fields[name] for name in names if name in fields}


def result_message(
    call_id: JsonValue, content: JsonValue, tool: JsonValue = None, *, is_error: JsonValue = None
) -> JsonObject:
    """Return the result of a tool as a message of ours, without the tool and the error where nothing says them."""
    named: JsonObject = {} if tool is None else {"toolName": tool}
    ended: JsonObject = {} if is_error is None else {"isError": is_error}
    return {"role": "toolResult", "toolCallId": call_id, **named, "content": content, **ended}


def is_blank(text: JsonValue) -> bool:
    """Return whether a text is empty or white space only."""
    return not isinstance(text, str) or not text or text.isspace()


def need_text(value: Mapping[str, JsonValue], field: str, where: str) -> None:
    """Check that a field is a text. Raises `InvalidEntry` with its path."""
    text = value.get(field)
    if text is None:
        raise InvalidEntry(f"{where}.{field}: is missing")
    if not isinstance(text, str):
        raise InvalidEntry(f"{where}.{field}: should be a string, not {shown(text)}")


def need_content(value: Mapping[str, JsonValue], where: str, field: str = "content") -> None:
    """Check that a field, the content by default, is a text or a list. Raises `InvalidEntry` with its path."""
    if not isinstance(value.get(field), (str, list)):
        raise InvalidEntry(f"{where}.{field}: should be a string or a list, not {shown(value.get(field))}")


def parts_with_paths(content: JsonValue, where: str, field: str = "content") -> Iterator[tuple[JsonObject, str]]:
    """Yield the parts of a content, each with its path. Raises `InvalidEntry` for one that is no object."""
    for number, part in enumerate(listed(content)):
        if not isinstance(part, dict):
            raise InvalidEntry(f"{where}.{field}[{number}]: should be an object with a type, not {shown(part)}")
        yield part, f"{where}.{field}[{number}]"


# How a message that came in differs from the one that is printed, so that a list goes out as it came in.
#
# A difference has the fields to ``set``, the names of those to ``unset``, and, from `close_difference`, the differences
# ``inside`` others: a difference for each, by name, or by place in a list. Empty, it changes nothing.

_UNORDERED = 3
"""A message, its parts and their fields: the order of names counts below them."""


def difference(printed: Mapping[str, JsonValue], original: Mapping[str, JsonValue]) -> JsonObject:
    """Return the difference of ``original`` from ``printed``: whole fields to set, and to leave out. O(size)."""
    changed = {
        name: value for name, value in original.items() if name not in printed or not _same(printed[name], value)
    }
    return _change_of(changed, [name for name in printed if name not in original], {})


def close_difference(printed: JsonObject, original: JsonObject) -> JsonObject:
    """Return a `difference` that looks inside objects and lists, too: a text is not kept twice for a field beside it.

    The fields of a message and of its parts may come back in another order; the words of a tool or a model may not,
    since providers cache a prompt by its text. Numbers and booleans that Python holds equal are told apart. O(size).
    """
    try:
        return _between_objects(printed, original, 1)
    except RecursionError:
        return difference(printed, original)


def restored(printed: JsonObject, change: JsonValue) -> JsonObject:
    """Return ``printed`` with a difference applied; any other value changes nothing. O(size of the difference)."""
    if not isinstance(change, dict) or not change:
        return printed
    unset, changed, inside = change.get("unset"), change.get("set"), change.get("inside")
    whole = {**printed}
    for name in listed(unset):
        if isinstance(name, str):
            whole.pop(name, None)
    for name, inner in fields_of(inside).items():
        if name in whole:
            whole[name] = _restored_inside(whole[name], inner)
    whole.update(fields_of(changed))
    return whole


def _between_objects(printed: JsonObject, original: JsonObject, depth: int) -> JsonObject:
    changed: JsonObject = {}
    inside: JsonObject = {}
    for name, value in original.items():
        if name not in printed:
            changed[name] = value
        elif (before := printed[name]) is not value:
            _compare(name, before, value, depth, changed, inside)
    unset = [name for name in printed if name not in original] if len(printed) + len(changed) > len(original) else ()
    return _change_of(changed, unset, inside) if changed or inside or unset else {}


def _compare(
    name: str, before: JsonValue, value: JsonValue, depth: int, changed: JsonObject, inside: JsonObject
) -> None:
    """Note under its name how a value differs from another."""
    kind = type(value)
    if type(before) is not kind:
        changed[name] = value
    elif kind is dict and (depth < _UNORDERED or _keeps_order(before, value)):  # type: ignore[arg-type]
        if change := _between_objects(before, value, depth + 1):  # type: ignore[arg-type]
            inside[name] = change
    elif kind is list and len(before) == len(value):  # type: ignore[arg-type]
        if change := _between_lists(before, value, depth + 1):  # type: ignore[arg-type]
            inside[name] = change
    elif before != value or (kind is float and str(before) != str(value)) or kind in (dict, list):
        changed[name] = value


def _between_lists(printed: list[JsonValue], original: list[JsonValue], depth: int) -> JsonObject:
    changed: JsonObject = {}
    inside: JsonObject = {}
    for number, (before, value) in enumerate(zip(printed, original, strict=True)):
        _compare(str(number), before, value, depth, changed, inside)
    return _change_of(changed, (), inside)


def _change_of(changed: JsonObject, unset: Iterable[str], inside: JsonObject) -> JsonObject:
    change: JsonObject = {}
    if changed:
        change["set"] = changed
    if unset:
        change["unset"] = list(unset)
    if inside:
        change["inside"] = inside
    return change


def _restored_inside(value: JsonValue, change: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return restored(value, change)
    if not isinstance(value, list) or not isinstance(change, dict):
        return value
    changed, inside = change.get("set"), change.get("inside")
    items = [*value]
    for number, inner in _places(inside, len(items)):
        items[number] = _restored_inside(items[number], inner)
    for number, inner in _places(changed, len(items)):
        items[number] = inner
    return items


def _places(values: JsonValue, length: int) -> list[tuple[int, JsonValue]]:
    """Return the values under the places of a list of this length; other names stand for none."""
    named = values.items() if isinstance(values, dict) else ()
    places = {str(number): number for number in range(length)} if named else {}
    return [(places[name], value) for name, value in named if name in places]


def _keeps_order(printed: JsonObject, original: JsonObject) -> bool:
    """Return whether taking fields out of one and adding others at its end makes the order of the other."""
    names = list(original)
    if list(printed) == names:
        return True
    return [*(name for name in printed if name in original), *(name for name in names if name not in printed)] == names


def _same(left: JsonValue, right: JsonValue) -> bool:
    if type(left) is str and type(right) is str:
        return left == right
    # As text, since to Python 1, 1.0 and True are equal. Another order of keys counts as a difference; it costs space.
    try:
        return json.dumps(left) == json.dumps(right)
    except RecursionError:
        return False


# Values that a format has no place for: counted while it is printed, so that none is left out silently.

_LEFT_OUT = "left out: "


class ExportNote(Frozen):
    """One remark of an export, and how often it holds."""

    text: str
    count: int = 1

    def __str__(self) -> str:
        return self.text if self.count == 1 else f"{self.text} ({self.count:,} times)"


class Repair(Selective):
    """A part that was left out of one message, or a change in it, so that a provider takes it.

    ``entry_id`` is the entry behind the message, None if there is none. ``what`` is the text of the `ExportNote`.
    ``lost`` are the parts, or whole messages of ours, that are not in the request, and ``put`` those that are in it
    instead, as far as they take tokens.
    """

    _not_compared: ClassVar[tuple[str, ...]] = ("lost", "put")
    _not_shown: ClassVar[tuple[str, ...]] = ("lost", "put")

    entry_id: str | None
    what: str
    lost: tuple[JsonObject, ...] = ()
    put: tuple[JsonObject, ...] = ()

    def __str__(self) -> str:
        return self.what if self.entry_id is None else f"{self.entry_id}: {self.what}"


class Leftovers(Struct):
    """The remarks of an export while it is being made. ``at`` is the entry that is being printed, if it is known."""

    at: str | None = None
    repairs: list[Repair] = field(default_factory=list)
    """Each remark, in the order in which they were made, with the entry that it is about."""
    places: dict[str | None, int] = field(default_factory=dict)
    """Where in the list a message went, by its entry, for a list that tells it."""

    def note(self, text: str, *lost: Mapping[str, JsonValue], put: Mapping[str, JsonValue] | None = None) -> None:
        """Note that something was left out: parts or messages of ours, with ``put`` in their place."""
        instead = () if put is None else (dict(put),)
        self.repairs.append(Repair(self.at, f"{_LEFT_OUT}{text}", tuple(map(dict, lost)), instead))

    def change(
        self, text: str, *, lost: Sequence[Mapping[str, JsonValue]] = (), put: Sequence[Mapping[str, JsonValue]] = ()
    ) -> None:
        """Note that a value goes out other than it is, with the parts that it loses, and those put there."""
        self.repairs.append(Repair(self.at, text, tuple(map(dict, lost)), tuple(map(dict, put))))

    def notes(self) -> tuple[ExportNote, ...]:
        """Return the remarks, each once: those on parts that were left out, then the changes."""
        counts = Counter(repair.what for repair in self.repairs)
        ordered = sorted(counts, key=lambda text: not text.startswith(_LEFT_OUT))
        return tuple(ExportNote(text, counts[text]) for text in ordered)


# The type of the bytes of a picture or a document, whatever type they are declared as.

_HEAD_CHARS = 64
OTHER_ALPHABET = str.maketrans("-_", "+/", "\r\n")
_TYPES: tuple[tuple[str, re.Pattern[bytes]], ...] = (
    ("image/png", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", re.compile(rb"\xff\xd8\xff")),
    ("image/gif", re.compile(rb"GIF8[79]a")),
    ("image/webp", re.compile(rb"RIFF....WEBP", re.DOTALL)),
    ("image/avif", re.compile(rb"....ftypavi[fs]", re.DOTALL)),
    ("image/heic", re.compile(rb"....ftyphe(ic|ix|vc|vx|im|is)", re.DOTALL)),
    ("image/heif", re.compile(rb"....ftypm(if|sf)1", re.DOTALL)),
    ("image/bmp", re.compile(rb"BM....\0\0\0\0", re.DOTALL)),
    ("image/tiff", re.compile(rb"II\*\0|MM\0\*")),
    ("image/svg+xml", re.compile(rb"\s*(<\?xml[^>]*>\s*)?<svg[\s>]")),
    ("application/pdf", re.compile(rb"\s*%PDF-")),
)
"""How the bytes of each type begin, as its specification says."""


def type_of_bytes(data: str) -> str | None:
    """Return the MIME type of the bytes in a text of base64, by how they begin; None if no type is known. O(1)."""
    start = data[: 2 * _HEAD_CHARS].translate(OTHER_ALPHABET)[:_HEAD_CHARS]
    try:
        head = b64decode(start[: len(start) // 4 * 4], validate=True)
    except ValueError:
        return None
    return next((name for name, begins in _TYPES if begins.match(head)), None)


def bare_type(mime_type: JsonValue) -> str | None:
    """Return a MIME type without its parameters, in small letters; None if it is no text."""
    return mime_type.partition(";")[0].strip().lower() if isinstance(mime_type, str) else None


# A provider's whole response: the messages in it, and the paid call that it is.
#
# `_RESPONSES` is the table of their forms. An answer of Anthropic's is a message and a response at once.


class Response(NamedTuple):
    """The messages of a response in the form of its provider, with their paths, and fields of ours for the answer.

    ``call`` has ``usage`` as it was reported, ``model``, ``provider``, ``stopReason`` and ``responseId``, as far as the
    response says so.
    """

    shape: Shape
    messages: tuple[tuple[JsonObject, str], ...]
    call: JsonObject


class _Names(Frozen):
    """The fields of a form: that of the answers, and those of the call itself, in each spelling."""

    shape: Shape
    answer: str
    """The field of one of several answers that has its message; "" where the list is the messages themselves."""
    told: Mapping[str, tuple[str, ...]]
    stop: tuple[str, ...]


GEMINI_CALL = {
    "usage": ("usageMetadata", "usage_metadata"),
    "model": ("modelVersion", "model_version"),
    RESPONSE_ID: ("responseId", "response_id"),
}
"""The fields of the call in a response of Gemini's, in each spelling, by ours; callers put them on a content, too."""

_OPENAI = {"usage": ("usage",), "model": ("model",), RESPONSE_ID: ("id",), "provider": ("provider",)}
_RESPONSES: Mapping[str, _Names] = {
    "choices": _Names("openai-chat", "message", _OPENAI, ("finish_reason",)),
    "output": _Names("openai-responses", "", _OPENAI, ()),
    "candidates": _Names("gemini", "content", GEMINI_CALL, ("finishReason", "finish_reason")),
}
_CHARGED = {
    "web_search_call": "web_search_requests",
    "file_search_call": "file_search_requests",
    "code_interpreter_call": "code_interpreter_requests",
    "image_generation_call": "image_generation_requests",
    "shell_call container_reference": "hosted_shell_requests",
    "shell_call container_auto": "hosted_shell_requests",
    "url_citation": "cited_pages",
}
"""Things that are charged beside the tokens of an answer, or show that one was, and the name of their number in usage.

Those are items of a Responses answer (a shell with the place it ran in), and annotations of a chat.
"""
_GROUNDED = {
    "webSearchQueries": "grounded_searches",
    "web_search_queries": "grounded_searches",
    "imageSearchQueries": "grounded_image_searches",
    "image_search_queries": "grounded_image_searches",
}
"""The searches of Gemini, and the name of their number in usage."""


def response_in(value: Mapping[str, JsonValue], where: str = "message") -> Response | None:
    """Return the messages and the call of a whole response; None for a message.

    Raises `InvalidEntry` for a response with no answer or with several, and for a part of a stream. O(1).
    """
    if "role" in value:
        is_whole = value.get("type") == "message" and isinstance(value.get("id"), str)
        if not is_whole or shape_of(value, where) != "anthropic":
            return None
        unknown: JsonObject = {} if value.get("usage") is not None else {"usage": {}}
        return Response("anthropic", ((dict(value), where),), {RESPONSE_ID: value["id"], **unknown})
    ended = value.get("response")
    if isinstance(ended, Mapping) and str(value.get("type")).startswith("response."):
        # The last event of a stream of the Responses API has the whole response in it.
        value, where = ended, f"{where}.response"
    elif "type" in value:
        return None
    for key, names in _RESPONSES.items():
        listed = value.get(key)
        if isinstance(listed, list):
            return _read(value, names, listed, f"{where}.{key}")
    return None


def _read(value: Mapping[str, JsonValue], names: _Names, listed: list[JsonValue], where: str) -> Response:
    if not listed:
        raise InvalidEntry(f"{where}: is empty, so there is no answer to append; record_call() books what it used")
    if names.answer and len(listed) > 1:
        field = where.rpartition(".")[2]
        raise InvalidEntry(
            f"{where}: has {len(listed)} answers, and a message is one of them; leave the others out of {field!r}"
        )
    call = _call(value, names, listed)
    messages = []
    for number, answer in enumerate(listed):
        path = f"{where}[{number}]"
        if not isinstance(answer, Mapping):
            raise InvalidEntry(f"{path}: should be an object, not {shown(answer)}")
        if names.answer:
            reason = next((answer[name] for name in names.stop if isinstance(answer.get(name), str)), None)
            if reason is not None:
                call["stopReason"] = reason
            messages.append(_answer(answer, names, path))
        else:
            messages.append((dict(answer), path))
    return Response(names.shape, tuple(messages), call)


def _answer(candidate: Mapping[str, JsonValue], names: _Names, path: str) -> tuple[JsonObject, str]:
    answer, path = candidate.get(names.answer), f"{path}.{names.answer}"
    if names.shape == "gemini":
        # A candidate that was ended before it said anything has no content, or no parts.
        content = answer if isinstance(answer, Mapping) else {}
        return {**content, "role": content.get("role") or "model", "parts": content.get("parts") or []}, path
    if not isinstance(answer, Mapping):
        raise InvalidEntry(f"{path}: is missing; append a whole answer, not a part of a stream")
    return {"role": "assistant", **answer}, path


def _call(value: Mapping[str, JsonValue], names: _Names, listed: list[JsonValue]) -> JsonObject:
    call: JsonObject = {}
    for ours, spellings in names.told.items():
        value_of = next((value[name] for name in spellings if value.get(name) is not None), None)
        if value_of is not None and (ours == "usage" or (isinstance(value_of, str) and value_of)):
            call[ours] = value_of
    # A response without usage was paid for all the same: its usage is unknown.
    usage = call.setdefault("usage", {})
    if isinstance(usage, Mapping):
        call["usage"] = {**usage, **billed_by(value, {"server_tool_use": charged(listed)})}
    return call


def charged(listed: Sequence[JsonValue | JsonObject]) -> JsonObject:
    """Return how often the provider's own tools were used, which the numbers of tokens do not say."""
    charges: Counter[str] = Counter()
    for item in _objects(listed):
        action, place, message = item.get("action"), item.get("environment"), item.get("message")
        kind = f"{item.get('type')} {place.get('type')}" if isinstance(place, Mapping) else str(item.get("type"))
        if not isinstance(action, Mapping) or action.get("type", "search") == "search":
            charges[_CHARGED.get(kind, "")] += 1
        for note in _objects(message.get("annotations") if isinstance(message, Mapping) else None):
            charges[_CHARGED.get(str(note.get("type")), "")] += 1
        grounding = item.get("groundingMetadata") or item.get("grounding_metadata")
        for key, rows in grounding.items() if isinstance(grounding, Mapping) else ():
            charges[_GROUNDED.get(key, "")] += len(rows) if isinstance(rows, list) else 0
            charges["grounded_places"] += sum(bool(row.get("maps")) for row in _objects(rows))
    return {name: number for name, number in charges.items() if name and number}


def _objects(rows: JsonValue | Sequence[JsonValue | JsonObject]) -> Iterator[Mapping[str, JsonValue]]:
    return (row for row in (rows if isinstance(rows, (list, tuple)) else ()) if isinstance(row, Mapping))


# The limits of a provider's requests, with the source of each number.
#
# If two sources differ, the smaller number stands: a request that fits it is taken by either.


class RequestLimits(Selective):
    """The limits of one provider's requests. None is a limit that is not known, and is not checked.

    ``id_pattern`` and ``most_id_chars`` are for the ids of tool calls, ``name_pattern`` and ``most_name_chars`` for the
    names of tools and of who speaks, ``item_id_pattern`` for the ids of items. ``images`` is how many a request may
    have, ``image_chars`` how long the base64 text of one may be, ``image_chars_in_all`` of all of them, and
    ``image_side`` how many pixels a side of one may have, or ``many_images_side`` where there are more than
    ``many_images``. ``image_types`` are the MIME types that are taken. ``text_chars`` is how long one text may be, and
    ``file_chars`` the base64 text of one file. ``messages`` and ``tools`` are how many a request may have,
    ``request_bytes`` its size as JSON. ``answer_last`` says whether an answer may stand last, for the model to go on
    with, ``system_within`` whether a system message may stand in the middle, and ``empty_texts`` whether the text of a
    part may be "". ``sources`` says of each row where it is from, and of when that is.
    """

    _not_compared: ClassVar[tuple[str, ...]] = ("sources",)

    id_pattern: str
    most_id_chars: int
    name_pattern: str
    most_name_chars: int
    images: int
    image_chars: int | None
    image_chars_in_all: int | None
    image_side: int | None
    many_images: int | None
    many_images_side: int | None
    image_types: frozenset[str]
    request_bytes: int | None
    sources: Mapping[str, str]
    answer_last: bool = True
    system_within: bool = True
    empty_texts: bool = True
    item_id_pattern: str | None = None
    text_chars: int | None = None
    file_chars: int | None = None
    messages: int | None = None
    tools: int | None = None

    @property
    def source(self) -> str:
        """Where all of it is from, each source once."""
        return "; ".join(dict.fromkeys(self.sources.values()))

    def takes_id(self, call_id: object) -> bool:
        """Return whether a provider takes a value as the id of a tool call."""
        return isinstance(call_id, str) and _fits(call_id, self.id_pattern, self.most_id_chars)

    def takes_item_id(self, item_id: object) -> bool:
        """Return whether a provider takes a value as the id of an item. It need not have any."""
        pattern = self.item_id_pattern
        return item_id is None or pattern is None or (isinstance(item_id, str) and _matches(item_id, pattern))

    def takes_name(self, name: object) -> bool:
        """Return whether a provider takes a value as the name of a tool."""
        return isinstance(name, str) and _fits(name, self.name_pattern, self.most_name_chars)


def _fits(text: str, pattern: str, most: int) -> bool:
    return 0 < len(text) <= most and _matches(text, pattern)


@lru_cache(maxsize=8_192)
def _matches(text: str, pattern: str) -> bool:
    # The same ids and names are asked about before a request is made, when it is, and for the next one.
    return re.fullmatch(pattern, text) is not None


_VISION = "Anthropic's documentation of vision, November 2026"
_OPENAI_IMAGES = "OpenAI's documentation of images, November 2026"
_OPENAPI = "OpenAI's OpenAPI description, August 2026"
_GOOGLE_IMAGES = "Google's documentation of images, November 2026"
_COMMON_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_NAME = r"[a-zA-Z0-9_-]+"
_Row: TypeAlias = tuple[object, str]


def _limits(like: RequestLimits | None = None, /, **rows: _Row) -> RequestLimits:
    """Return the limits of rows, each a value and its source; without a row it is that of ``like``, or not known."""
    beneath = {**dict.fromkeys(_NOT_KNOWN), **({} if like is None else asdict(like))}
    sources = {**({} if like is None else like.sources), **{name: source for name, (_, source) in rows.items()}}
    values = {name: value for name, (value, _) in rows.items()}
    return RequestLimits(**{**beneath, **values, "sources": sources})


_NOT_KNOWN = ("image_chars", "image_chars_in_all", "image_side", "many_images", "many_images_side", "request_bytes")

_ANTHROPIC = _limits(
    id_pattern=(_NAME, "the API's refusal, November 2026"),
    most_id_chars=(64, "the API's refusal, November 2026"),
    name_pattern=(_NAME, "Anthropic's documentation of tools, November 2026"),
    most_name_chars=(128, "Anthropic's documentation of tools, November 2026"),
    images=(100, f"{_VISION}: for a window of 200,000 tokens, and 600 for larger ones"),
    image_chars=(5 * 1024 * 1024, _VISION),
    image_side=(8_000, _VISION),
    many_images=(20, _VISION),
    many_images_side=(2_000, _VISION),
    image_types=(_COMMON_TYPES, _VISION),
    request_bytes=(32_000_000, "Anthropic's documentation of errors, November 2026"),
    messages=(100_000, "anthropic 2.14.0, November 2026"),
)
_CHAT = _limits(
    id_pattern=(r"(?s).+", "the API's refusal, February 2026"),
    most_id_chars=(40, "the API's refusal, February 2026"),
    name_pattern=(_NAME, f"{_OPENAPI}; for who speaks, the API's refusal, 2024"),
    most_name_chars=(64, _OPENAPI),
    images=(500, f"{_OPENAI_IMAGES}; another page has 1,500"),
    image_chars_in_all=(50_000_000, f"{_OPENAI_IMAGES}; another page has 512 MB"),
    image_types=(_COMMON_TYPES, _OPENAI_IMAGES),
    text_chars=(10_485_760, "the API's refusal, May 2025"),
    tools=(128, f"{_OPENAPI}; the API's refusal, November 2025"),
)
_LIMITS_RESPONSES = _limits(
    _CHAT,
    most_id_chars=(64, _OPENAPI),
    most_name_chars=(128, _OPENAPI),
    item_id_pattern=(r"[a-zA-Z0-9_-]{1,64}", "the API's refusal, July 2026"),
    image_chars=(20_971_520 - len("data:image/jpeg;base64,"), f"{_OPENAPI}: of the URL"),
    text_chars=(10_485_760, _OPENAPI),
    file_chars=(73_400_320, _OPENAPI),
    tools=(None, f"{_OPENAPI}: no limit"),
)
_GEMINI = _limits(
    id_pattern=(r"(?s).+", "no limit is documented, November 2026"),
    most_id_chars=(1_000_000, "no limit is documented, November 2026"),
    name_pattern=(r"[a-zA-Z_][a-zA-Z0-9_.:-]*", "Google's documentation of FunctionDeclaration, November 2026"),
    most_name_chars=(64, "Google's documentation of FunctionDeclaration, 2026; google-genai 3.6.1 has 128"),
    images=(900, f"{_GOOGLE_IMAGES}: of a preview model, and 3,000 of others"),
    image_chars=(7_000_000, _GOOGLE_IMAGES),
    image_types=(frozenset({"image/jpeg", "image/png", "image/webp", "image/heic", "image/heif"}), _GOOGLE_IMAGES),
    empty_texts=(False, "the API's refusal, January 2026"),
)

LIMITS: Mapping[Shape, RequestLimits] = {
    "anthropic": _ANTHROPIC,
    "openai-chat": _CHAT,
    "openai-responses": _LIMITS_RESPONSES,
    "gemini": _GEMINI,
}
_NOT_IN_CLOUDS: _Row = (False, "Anthropic's documentation: neither Amazon Bedrock nor Google Cloud, July 2026")
_OF_MODELS: tuple[tuple[Shape, re.Pattern[str], Mapping[str, _Row]], ...] = (
    # Others that speak this form were made for the form as it began.
    ("anthropic", re.compile(r"(?!.*claude)"), {"system_within": (False, "the form as of 2024")}),
    ("anthropic", re.compile(r".*claude-.*@|publishers/"), {"system_within": _NOT_IN_CLOUDS}),
    (
        "anthropic",
        re.compile(r"(.*[./:])?anthropic\.claude"),
        {
            "system_within": _NOT_IN_CLOUDS,
            "request_bytes": (20_000_000, "the Amazon Bedrock user guide, of InvokeModel, 2026"),
        },
    ),
    (
        "openai-chat",
        re.compile(r".*(mistral|mixtral|ministral|codestral|devstral|magistral|pixtral|voxtral)"),
        {
            "id_pattern": (r"[a-zA-Z0-9]{9}", "Mistral's refusal, March 2026"),
            "most_id_chars": (9, "Mistral's refusal, March 2026"),
        },
    ),
)
"""Models that take less than their target does: a pattern of their names, and the rows that differ."""


_CLAUDE = re.compile(r"claude(?:-[a-z]+)*-v?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_LAST_WITH_PREFILL = (4, 5)
"""From Claude 4.6 on an answer that stands last is refused (Anthropic's notes on migration to Opus 4.6, 2026)."""
_FIRST_WITH_SYSTEM = (4, 8)
"""From Claude 4.8 on a system message may stand behind one of the user ("What's new in Claude 4.8", May 2026)."""


def limits_of(target: str, model: str | None = None) -> RequestLimits:
    """Return the limits of a target, and of a model of it, where that is known.

    Of Anthropic's models the newest are meant by a name without a version. Raises `InvalidArgument` for a target that
    is none. O(1).
    """
    name = checked_target(target)
    return _of_model(name, model.lower()) if model else LIMITS[name]


@lru_cache(maxsize=64)
def _of_model(target: Shape, model: str) -> RequestLimits:
    limits = LIMITS[target]
    if target == "anthropic" and "claude" in model:
        version = _CLAUDE.search(model)
        number = (int(version[1]), int(version[2] or 0)) if version else (99, 0)
        limits = replace(limits, answer_last=number <= _LAST_WITH_PREFILL, system_within=number >= _FIRST_WITH_SYSTEM)
    for of, pattern, rows in _OF_MODELS:
        if of == target and pattern.match(model):
            limits = _limits(limits, **rows)
    return limits


def checked_target(target: object) -> Shape:
    """Return the name of a target. Raises `InvalidArgument`, with the names that there are, for any other value."""
    name = next((name for name in LIMITS if name == target), None)
    if name is None:
        raise InvalidArgument(f"target: should be one of {', '.join(LIMITS)}, not {shown(target)}")
    return name


# A rule of a provider's API, and a request that breaks one.


class Broken(Frozen):
    """Where a request breaks a rule: the path of the value (``messages[3].content[0].id``), and the fault (``what``).

    ``entry_id`` is the entry behind the message, where that is known.
    """

    rule: str
    where: str
    what: str
    entry_id: str | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.rule})"


Part: TypeAlias = tuple[int, int, Mapping[str, JsonValue], JsonObject]
"""A part of a message: the places of both, and themselves."""


class SentRequest:
    """The parts of a request that rules are about: the messages as the provider takes them, and the system.

    ``field`` is the one in which a message has its parts, ``path`` the one in which a request has its messages. The
    parts are collected once, when a rule first asks for them.
    """

    def __init__(
        self,
        messages: Sequence[Mapping[str, JsonValue]],
        system: JsonValue,
        field: str,
        path: str = "messages",
        tools: Sequence[Mapping[str, JsonValue]] = (),
    ) -> None:
        self.messages = messages
        self.system = system
        self.path = path
        self.tools = tools
        self._field = field

    @cached_property
    def parts(self) -> Sequence[Part]:
        """The objects that the messages have as parts, in order. O(parts)."""
        return [
            (at, place, message, part)
            for at, message in enumerate(self.messages)
            if isinstance(parts := message.get(self._field), list)
            for place, part in enumerate(parts)
            if isinstance(part, dict)
        ]

    @cached_property
    def all_parts(self) -> Sequence[JsonObject]:
        """Those, the parts of the system, and the parts of all of these. O(parts)."""
        outer = [part for _, part in objects_in(self.system)] + [part for _, _, _, part in self.parts]
        inner = [part[self._field] for part in outer if self._field in part]
        return [*outer, *[part for content in inner for _, part in objects_in(content)]]

    @cached_property
    def _kinds(self) -> frozenset[str]:
        return frozenset([str(part.get("type")) for part in self.all_parts])

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset().union(*self.all_parts)

    def has_kind(self, *kinds: str) -> bool:
        """Return whether one of `all_parts` is of one of some types. O(parts) the first time."""
        return not self._kinds.isdisjoint(kinds)

    def has_field(self, *names: str) -> bool:
        """Return whether one of `all_parts` has one of some fields. O(parts) the first time."""
        return not self._names.isdisjoint(names)


Found: TypeAlias = Iterator[tuple[str, str]]
"""Where a rule is broken, and the fault there."""


class Rule(Frozen):
    """One rule: its name, its text, and the function that finds where a request breaks it."""

    name: str
    says: str
    find: Callable[[SentRequest, RequestLimits], Found]


# The pictures of a request: how many, how large, of what type.

_HEADER_CHARS = 128 * 1024
"""How much of the base64 text of a picture is decoded to find its size: the data that cameras put first are shorter."""
HEIF = {"image/heic", "image/heif"}
"""Two names of one container."""
_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})


class Picture(Frozen):
    """A picture of a request: its path, its MIME type, and its base64 text, None where it is named by a URL."""

    where: str
    mime_type: str | None
    data: str | None

    @classmethod
    def of(cls, where: str, mime_type: JsonValue, data: JsonValue) -> Picture:
        """Return the picture that some fields of a request are."""
        return cls(where, mime_type if isinstance(mime_type, str) else None, data if isinstance(data, str) else None)


def wrong_pictures(pictures: Iterable[Picture], limits: RequestLimits) -> Found:
    """Yield the pictures of a request that are above a limit, or of a type that is not taken. O(pictures)."""
    images = list(pictures)
    if len(images) > limits.images:
        yield (images[limits.images].where, f"{len(images):,} images, and a request may have {limits.images:,}")
    in_all = sum(len(picture.data or "") for picture in images)
    if limits.image_chars_in_all is not None and in_all > limits.image_chars_in_all:
        yield (
            images[0].where,
            f"{in_all:,} characters of images, and a request may have {limits.image_chars_in_all:,}",
        )
    for picture in images:
        wrong = wrong_picture(picture.data, picture.mime_type, limits, among=len(images))
        if wrong:
            yield picture.where, wrong


def wrong_picture(data: str | None, mime_type: str | None, limits: RequestLimits, *, among: int = 1) -> str:
    """Return the fault of one picture of ``among`` in a request; "" if none is known. O(1)."""
    if mime_type is not None and mime_type not in limits.image_types:
        return f"an image of type {mime_type!r}; it takes {', '.join(sorted(limits.image_types))}"
    if data is None:
        return ""
    real = type_of_bytes(data)
    if real != (mime_type or "image/png") and {real, mime_type} != HEIF:
        return f"an image whose data are {real or 'those of none'}"
    if limits.image_chars is not None and len(data) > limits.image_chars:
        return f"an image of {len(data):,} characters in base64, and {limits.image_chars:,} are taken"
    most = limits.image_side
    if limits.many_images is not None and among > limits.many_images:
        most = limits.many_images_side
    size = None if most is None else pixels(data)
    if most is not None and size is not None and max(size) > most:
        return f"an image of {size[0]:,} x {size[1]:,} pixels, and a side of {most:,} is taken"
    return ""


def pixels(data: str) -> tuple[int, int] | None:
    """Return width and height of a picture in base64: PNG, GIF, JPEG or WebP; None where they cannot be told. O(1)."""
    start = data[:_HEADER_CHARS]
    try:
        head = b64decode(start[: len(start) // 4 * 4])
        return _size_in(head)
    except (Error, ValueError, struct.error, IndexError):
        return None


def _size_in(head: bytes) -> tuple[int, int] | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        width, height = struct.unpack(">II", head[16:24])
        return width, height
    if head[:6] in (b"GIF87a", b"GIF89a"):
        width, height = struct.unpack("<HH", head[6:10])
        return width, height
    if head.startswith(b"\xff\xd8"):
        return _size_in_jpeg(head)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _size_in_webp(head)
    return None


def _size_in_jpeg(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if marker == 0xFF:  # a byte that fills
            at += 1
            continue
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        at += 2 + int(struct.unpack(">H", head[at + 2 : at + 4])[0])
    return None


def _size_in_webp(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None
