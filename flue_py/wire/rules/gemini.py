"""What the Gemini API refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.wire.rules.limits import RequestLimits
from flue_py.wire.rules.pictures import Picture, wrong_pictures
from flue_py.wire.rules.rule import Found, Rule, SentRequest, objects_in

_SIDES = ("user", "model")


def _parts(request: SentRequest) -> Iterator[tuple[str, Mapping[str, JsonValue], JsonObject]]:
    for at, content in enumerate(request.messages):
        for place, part in objects_in(content.get("parts")):
            yield f"contents[{at}].parts[{place}]", content, part


def _held(content: Mapping[str, JsonValue], kind: str) -> list[JsonObject]:
    return [held for _, part in objects_in(content.get("parts")) if isinstance(held := part.get(kind), dict)]


def is_thought_alone(content: Mapping[str, JsonValue]) -> bool:
    """Return whether the model says nothing in a content: it only thinks."""
    parts = content.get("parts")
    return (
        content.get("role") == "model"
        and isinstance(parts, list)
        and bool(parts)
        and all(isinstance(part, dict) and part.get("thought") is True for part in parts)
    )


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
    for where, _, part in _parts(request):
        if not part:
            yield where, "is empty"
        if "text" in part and not isinstance(part["text"], str):
            yield f"{where}.text", "is not a string"


def _exchanges(request: SentRequest, limits: RequestLimits) -> Found:
    awaited: Counter[str] = Counter()
    before: JsonValue = None
    for at, content in enumerate(request.messages):
        calls = Counter(str(held.get("name")) for held in _held(content, "functionCall"))
        answers = Counter(str(held.get("name")) for held in _held(content, "functionResponse"))
        if calls and before == "model":
            yield f"contents[{at}]", "a call that follows an answer"
        if answers != awaited:
            wanted, found = ", ".join(sorted(awaited.elements())), ", ".join(sorted(answers.elements()))
            yield f"contents[{at}]", f"responses to {found or 'nothing'} where {wanted or 'nothing'} was called"
        awaited, before = calls, content.get("role")
    yield from (("contents", f"no response for {name!r}") for name in awaited)


def _calls(request: SentRequest, limits: RequestLimits) -> Found:
    for where, content, part in _parts(request):
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
    for at, content in enumerate(request.messages):
        calls = [(place, part) for place, part in objects_in(content.get("parts")) if "functionCall" in part]
        if calls and not calls[0][1].get("thoughtSignature"):
            yield f"contents[{at}].parts[{calls[0][0]}]", "the first call of an answer has no signature"


def _pictures(request: SentRequest, limits: RequestLimits) -> Found:
    found: list[Picture] = []
    for where, _, part in _parts(request):
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
