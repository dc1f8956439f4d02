"""A provider's whole response: the messages in it, and the paid call that it is.

`_RESPONSES` is the table of their forms. An answer of Anthropic's is a message and a response at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from flue_py.core.calls import RESPONSE_ID
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.shapes import Shape, shape_of
from flue_py.core.usage_shapes import billed_by
from flue_py.errors import InvalidEntry, shown


class Response(NamedTuple):
    """What a response says: messages in the form of its provider, with their paths, and fields of ours for the answer.

    ``call`` has ``usage`` as it was reported, ``model``, ``provider``, ``stopReason`` and ``responseId``, as far as the
    response says so.
    """

    shape: Shape
    messages: tuple[tuple[JsonObject, str], ...]
    call: JsonObject


class _Names(NamedTuple):
    """The fields of a form: what has the answers, and what the call says of itself, in each spelling."""

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
"""What a response of Gemini's says of its call, in each spelling, by our fields; callers put it on a content, too."""

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
"""What is charged beside the tokens of an answer, or shows that something was, and what usage calls its number.

Those are items of a Responses answer (a shell with the place it ran in), and annotations of a chat.
"""
_GROUNDED = {
    "webSearchQueries": "grounded_searches",
    "web_search_queries": "grounded_searches",
    "imageSearchQueries": "grounded_image_searches",
    "image_search_queries": "grounded_image_searches",
}
"""What Gemini searched for, and what usage calls its number."""


def response_in(value: Mapping[str, JsonValue], where: str = "message") -> Response | None:
    """Return what a whole response says; None for a message.

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
    for field, names in _RESPONSES.items():
        listed = value.get(field)
        if isinstance(listed, list):
            return _read(value, names, listed, f"{where}.{field}")
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
    for number, each in enumerate(listed):
        path = f"{where}[{number}]"
        if not isinstance(each, Mapping):
            raise InvalidEntry(f"{path}: should be an object, not {shown(each)}")
        if names.answer:
            reason = next((each[name] for name in names.stop if isinstance(each.get(name), str)), None)
            if reason is not None:
                call["stopReason"] = reason
            messages.append(_answer(each, names, path))
        else:
            messages.append((dict(each), path))
    return Response(names.shape, tuple(messages), call)


def _answer(each: Mapping[str, JsonValue], names: _Names, path: str) -> tuple[JsonObject, str]:
    answer, path = each.get(names.answer), f"{path}.{names.answer}"
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
        said = next((value[name] for name in spellings if value.get(name) is not None), None)
        if said is not None and (ours == "usage" or (isinstance(said, str) and said)):
            call[ours] = said
    # A response without a word of what it used was paid for all the same: its usage is unknown.
    usage = call.setdefault("usage", {})
    if isinstance(usage, Mapping):
        call["usage"] = {**usage, **billed_by(value, {"server_tool_use": charged(listed)})}
    return call


def charged(listed: Sequence[JsonValue | JsonObject]) -> JsonObject:
    """Return how often the provider's own tools were used, which the numbers of tokens do not say."""
    found: Counter[str] = Counter()
    for each in _objects(listed):
        action, place, message = each.get("action"), each.get("environment"), each.get("message")
        kind = f"{each.get('type')} {place.get('type')}" if isinstance(place, Mapping) else str(each.get("type"))
        if not isinstance(action, Mapping) or action.get("type", "search") == "search":
            found[_CHARGED.get(kind, "")] += 1
        for note in _objects(message.get("annotations") if isinstance(message, Mapping) else None):
            found[_CHARGED.get(str(note.get("type")), "")] += 1
        grounding = each.get("groundingMetadata") or each.get("grounding_metadata")
        for field, rows in grounding.items() if isinstance(grounding, Mapping) else ():
            found[_GROUNDED.get(field, "")] += len(rows) if isinstance(rows, list) else 0
            found["grounded_places"] += sum(bool(row.get("maps")) for row in _objects(rows))
    return {name: number for name, number in found.items() if name and number}


def _objects(rows: JsonValue | Sequence[JsonValue | JsonObject]) -> Iterator[Mapping[str, JsonValue]]:
    return (row for row in (rows if isinstance(rows, (list, tuple)) else ()) if isinstance(row, Mapping))
