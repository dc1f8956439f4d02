"""What the Gemini API refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.wire.rules.limits import RequestLimits
from flue_py.wire.rules.pictures import Picture, wrong_pictures
from flue_py.wire.rules.rule import Found, Rule, SentRequest, objects_in

_SIDES = ("user", "model")


def _parts(request: SentRequest, *fields: str) -> Iterator[tuple[str, Mapping[str, JsonValue], JsonObject]]:
    """Yield those parts that have one of some fields, each with its path and its content."""
    if request.has_field(*fields):
        for at, place, content, part in request.parts:
            if not part.keys().isdisjoint(fields):
                yield f"contents[{at}].parts[{place}]", content, part


def _names(parts: Sequence[JsonObject], kind: str) -> list[str]:
    """Return the names of the calls or the responses among the parts of a content, sorted."""
    return sorted([str(held.get("name")) for part in parts if isinstance(held := part.get(kind), dict)])


def is_thought_alone(content: Mapping[str, JsonValue]) -> bool:
    """Return whether the model says nothing in a content: it only thinks."""
    parts = content.get("parts")
    if content.get("role") != "model" or not isinstance(parts, list):
        return False
    for part in parts:
        if not isinstance(part, dict) or part.get("thought") is not True:
            return False
    return bool(parts)


def is_empty_text(part: JsonValue) -> bool:
    """Return whether a part says "" and nothing else. One with a signature has that to say."""
    return isinstance(part, dict) and part.get("text") == "" and not part.get("thoughtSignature")


def _turns(request: SentRequest, limits: RequestLimits) -> Found:
    if not request.messages:
        yield "contents", "there is no content"
        return
    for at, content in enumerate(request.messages):
        if content.get("role") not in _SIDES:
            yield f"contents[{at}].role", f"{content.get('role')!r} is neither user nor model"
    if request.messages[0].get("role") != "user":
        yield "contents[0].role", "an answer stands first"
    if request.messages[-1].get("role") != "user":
        yield f"contents[{len(request.messages) - 1}].role", "an answer stands last"


def _content(request: SentRequest, limits: RequestLimits) -> Found:
    for at, content in enumerate(request.messages):
        if not isinstance(content.get("parts"), list) or not content["parts"]:
            yield f"contents[{at}].parts", "is empty"
        elif is_thought_alone(content):
            yield f"contents[{at}].parts", "an answer of thoughts alone"
    told = request.system.get("parts") if isinstance(request.system, dict) else None
    for place, part in objects_in(told):
        if not limits.empty_texts and is_empty_text(part):
            yield f"systemInstruction.parts[{place}].text", "is empty"
    for at, place, _, part in request.parts:
        if not part:
            yield f"contents[{at}].parts[{place}]", "is empty"
        elif not isinstance(part.get("text", ""), str):
            yield f"contents[{at}].parts[{place}].text", "is not a string"
        elif not limits.empty_texts and is_empty_text(part):
            yield f"contents[{at}].parts[{place}].text", "is empty"


def _exchanges(request: SentRequest, limits: RequestLimits) -> Found:
    if not request.has_field("functionCall", "functionResponse"):
        return
    awaited: list[str] = []
    before: JsonValue = None
    for at, content in enumerate(request.messages):
        parts = [part for _, part in objects_in(content.get("parts"))]
        calls, answers = _names(parts, "functionCall"), _names(parts, "functionResponse")
        if calls and before == "model":
            yield f"contents[{at}]", "a call that follows an answer"
        if answers != awaited:
            wanted, found = ", ".join(awaited), ", ".join(answers)
            yield f"contents[{at}]", f"responses to {found or 'nothing'} where {wanted or 'nothing'} was called"
        awaited, before = calls, content.get("role")
    yield from (("contents", f"no response for {name!r}") for name in dict.fromkeys(awaited))


def _calls(request: SentRequest, limits: RequestLimits) -> Found:
    for where, content, part in _parts(request, "functionCall", "functionResponse"):
        for kind, side in (("functionCall", "model"), ("functionResponse", "user")):
            held = part.get(kind)
            if kind not in part:
                continue
            if not isinstance(held, dict):
                yield f"{where}.{kind}", "is not an object"
                continue
            if content.get("role") != side:
                yield f"{where}.{kind}", f"stands in a content of the {content.get('role')}"
            if not limits.takes_name(held.get("name")):
                yield f"{where}.{kind}.name", f"{held.get('name')!r} is no name that is taken"
            field = "args" if kind == "functionCall" else "response"
            if field in held and not isinstance(held[field], dict):
                yield f"{where}.{kind}.{field}", "is not an object"


def _signatures(request: SentRequest, limits: RequestLimits) -> Found:
    if not request.has_field("functionCall"):
        return
    last: int | None = None
    for at, place, _, part in request.parts:
        if "functionCall" in part and at != last:
            last = at
            if not part.get("thoughtSignature"):
                yield f"contents[{at}].parts[{place}]", "the first call of an answer has no signature"


def _pictures(request: SentRequest, limits: RequestLimits) -> Found:
    found: list[Picture] = []
    for where, _, part in _parts(request, "inlineData", "fileData"):
        for kind in ("inlineData", "fileData"):
            held = part.get(kind)
            mime_type = held.get("mimeType") if isinstance(held, dict) else None
            if isinstance(held, dict) and isinstance(mime_type, str) and mime_type.startswith("image/"):
                found.append(Picture.of(where, mime_type, held.get("data")))
    yield from wrong_pictures(found, limits)


RULES = (
    Rule("turns", "The first content and the last one are a user's.", _turns),
    Rule("content", "No content and no part is empty, and no answer is thoughts alone.", _content),
    Rule("exchanges", "The content after calls has a response to each, and no other content has any.", _exchanges),
    Rule("calls", "Names of calls match their pattern, arguments and responses are objects.", _calls),
    Rule("signatures", "The first call of an answer has a signature.", _signatures),
    Rule("images", "Number, size and type of images are within the limits.", _pictures),
)
