"""What OpenAI's Chat Completions API refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.wire.openai_chat import image_from_url, is_text_of_object
from flue_py.wire.rules.limits import RequestLimits
from flue_py.wire.rules.pictures import Picture, wrong_pictures
from flue_py.wire.rules.rule import Found, Rule, SentRequest, objects_in

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
PARTS_OF: Mapping[JsonValue, frozenset[JsonValue]] = {
    "system": frozenset({"text"}),
    "developer": frozenset({"text"}),
    "tool": frozenset({"text"}),
    "assistant": frozenset({"text", "refusal"}),
    "user": frozenset({"text", "image_url", "input_audio", "file", "video_url", "audio_url"}),
}
"""The parts that the content of each role may have; the last two are for other servers that speak this form."""
_SAYS_SOMETHING = ("tool_calls", "function_call", "refusal", "audio")


def _calls_in(message: Mapping[str, JsonValue]) -> Sequence[tuple[int, JsonObject]]:
    return objects_in(message["tool_calls"]) if "tool_calls" in message else ()


def _roles(request: SentRequest, limits: RequestLimits) -> Found:
    if not request.messages:
        yield "messages", "there is no message"
    for at, message in enumerate(request.messages):
        if message.get("role") not in _ROLES:
            yield f"messages[{at}].role", f"{message.get('role')!r} is no role of this form"
        if not limits.takes_name(message.get("name", "none")):
            yield f"messages[{at}].name", f"{message['name']!r} is no name that is taken"


def _content(request: SentRequest, limits: RequestLimits) -> Found:
    for at, message in enumerate(request.messages):
        content = message.get("content")
        if isinstance(content, str):
            continue
        where, role = f"messages[{at}].content", message.get("role")
        if content is None:
            if role != "assistant" or not any(message.get(name) for name in _SAYS_SOMETHING):
                yield where, "there is none"
        elif isinstance(content, list):
            if not content:
                yield where, "is an empty list"
            for place, part in objects_in(content):
                if part.get("type") not in PARTS_OF.get(role, ()):
                    yield f"{where}[{place}].type", f"{part.get('type')!r} is no part of a message of {role}"
                elif part.get("type") == "text" and not isinstance(part.get("text"), str):
                    yield f"{where}[{place}].text", "is not a string"
        else:
            yield where, "is neither text nor parts"


def _exchanges(request: SentRequest, limits: RequestLimits) -> Found:
    awaited: list[JsonValue] = []
    for at, message in enumerate(request.messages):
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in awaited:
                yield f"messages[{at}].tool_call_id", f"{call_id!r} was not called just before"
            else:
                awaited.remove(call_id)
            continue
        for call_id in awaited:
            yield f"messages[{at}]", f"no result for {call_id!r} before it"
        awaited = [call.get("id") for _, call in _calls_in(message)]
    yield from (("messages", f"no result for {call_id!r}") for call_id in awaited)


def _calls(request: SentRequest, limits: RequestLimits) -> Found:
    for at, message in enumerate(request.messages):
        if "tool_calls" in message and not message["tool_calls"]:
            yield f"messages[{at}].tool_calls", "is empty"
        for place, call in _calls_in(message):
            where = f"messages[{at}].tool_calls[{place}]"
            if not limits.takes_id(call.get("id")):
                yield f"{where}.id", f"{call.get('id')!r} is no id that is taken"
            kind = call.get("type")
            called = call.get(kind) if kind in ("function", "custom") and isinstance(kind, str) else None
            if not isinstance(called, dict):
                yield where, f"a call of type {kind!r} without what it calls"
                continue
            if not limits.takes_name(called.get("name")):
                yield f"{where}.{kind}.name", f"{called.get('name')!r} is no name that is taken"
            if kind == "custom" and not isinstance(called.get("input"), str):
                yield f"{where}.custom.input", "is not a string"
            if kind == "function" and not is_text_of_object(called.get("arguments")):
                yield f"{where}.function.arguments", "is not the JSON text of an object"


def _pictures(request: SentRequest, limits: RequestLimits) -> Found:
    found: list[Picture] = []
    for at, place, _, part in request.parts:
        held = part.get("image_url")
        url = held.get("url") if isinstance(held, dict) else held
        if part.get("type") == "image_url" and isinstance(url, str):
            found.append(picture_at(f"messages[{at}].content[{place}]", url))
    yield from wrong_pictures(found, limits)


def picture_at(where: str, url: str) -> Picture:
    """Return the picture that a URL holds or names."""
    told = image_from_url(url)
    return Picture.of(where, told.get("mimeType"), told.get("data"))


RULES = (
    Rule("roles", "Each message has a role of this form, and no name that is not taken.", _roles),
    Rule("content", "Each message says something, in parts that its role may have.", _content),
    Rule("exchanges", "Every call has its result right behind it, and nothing else has one.", _exchanges),
    Rule("calls", "Ids and names of calls match their patterns, arguments are the text of an object.", _calls),
    Rule("images", "Number, size and type of images are within the limits.", _pictures),
)
