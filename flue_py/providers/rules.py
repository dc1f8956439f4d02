"""The rules of the providers' APIs, and the check of a request against them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from flue_py.core.json import JsonObject, JsonValue, encode_json, to_json
from flue_py.core.kinds import COMPACTION_PART, Shape, holds_compaction
from flue_py.providers import anthropic
from flue_py.providers.base import (
    LIMITS,
    Broken,
    Found,
    Picture,
    RequestLimits,
    Rule,
    SentRequest,
    checked_target,
    fields_of,
    is_blank,
    limits_of,
    listed,
    objects_in,
    type_of_bytes,
    wrong_pictures,
)
from flue_py.providers.openai_chat import image_from_url, is_text_of_object

__all__ = ["LIMITS", "RULES", "Broken", "RequestLimits", "Rule", "broken_rules", "checked_target", "limits_of"]


# The rules of Anthropic's Messages API.

_SIDES = ("user", "assistant")


def _blocks(request: SentRequest, *kinds: str) -> Iterator[tuple[str, Mapping[str, JsonValue], JsonObject]]:
    """Yield those blocks of the messages that are of some types, each with its path and its message."""
    if request.has_kind(*kinds):
        for at, place, message, block in request.parts:
            if block.get("type") in kinds:
                yield f"messages[{at}].content[{place}]", message, block


def _all_blocks(request: SentRequest, has: Callable[[JsonObject], bool]) -> Iterator[tuple[str, JsonObject]]:
    """Yield those blocks of system and messages, and those inside of results, that have something, with their paths."""
    if not any(map(has, request.all_parts)):
        return
    for place, block in objects_in(request.system):
        if has(block):
            yield f"system[{place}]", block
    for at, place, _, block in request.parts:
        if has(block):
            yield f"messages[{at}].content[{place}]", block
        if "content" in block:
            for inside, inner in objects_in(block["content"]):
                if has(inner):
                    yield f"messages[{at}].content[{place}].content[{inside}]", inner


def _all_of(request: SentRequest, kind: str) -> Iterator[tuple[str, JsonObject]]:
    """Yield the blocks of a type, as `_all_blocks` does."""
    if request.has_kind(kind):
        yield from _all_blocks(request, lambda block: block.get("type") == kind)


def _is_blank_text(block: JsonObject) -> bool:
    return block.get("type") == "text" and is_blank(block.get("text"))


def _begins_compacted(request: SentRequest) -> bool:
    first = next((block for _, block in objects_in(request.messages[0].get("content"))), {}) if request.messages else {}
    return first.get("type") == COMPACTION_PART


def ends_in_server_call(message: Mapping[str, JsonValue]) -> bool:
    """Return whether an answer pauses: its last block calls a tool that the API runs, or is the result of one."""
    last = next(reversed(listed(message.get("content"))), None)
    return isinstance(last, dict) and (last.get("type") in anthropic.SERVER_CALLS or _is_server_result(last))


def _is_server_result(block: JsonObject) -> bool:
    kind = block.get("type")
    return isinstance(kind, str) and kind.endswith("_tool_result")


def torn_server_calls(messages: Iterable[tuple[str, Sequence[JsonValue]]]) -> list[tuple[int, int]]:
    """Return where a tool that the API runs is called without a result, or has a result without a call: two places.

    A message is who says it, and its blocks. The result may come later in the same turn: behind the results of tools
    that the call itself has called (``caller``), or in a further answer. A call that nothing follows goes on.
    O(blocks).
    """
    torn: list[tuple[int, int]] = []
    waiting: dict[JsonValue, tuple[int, int]] = {}
    callers: set[JsonValue] = set()
    for at, (side, blocks) in enumerate(messages):
        if side != "assistant":
            ended = [call_id for call_id in waiting if side == "user" or call_id not in callers]
            torn += [waiting.pop(call_id) for call_id in ended]
            continue
        for place, block in enumerate(blocks):
            if not isinstance(block, dict):
                continue
            caller = block.get("caller")
            if isinstance(caller, dict):
                callers.add(str(caller.get("tool_id")))
            if block.get("type") in anthropic.SERVER_CALLS:
                waiting[str(block.get("id"))] = (at, place)
            elif _is_server_result(block) and waiting.pop(str(block.get("tool_use_id")), None) is None:
                torn.append((at, place))
    return sorted(torn)


def _server_calls(request: SentRequest, limits: RequestLimits) -> Found:
    if not request.has_kind(*anthropic.SERVER_KINDS):
        return
    sides: list[tuple[str, Sequence[JsonValue]]] = []
    for message in request.messages:
        blocks = listed(message.get("content"))
        is_results = bool(blocks) and all(isinstance(b, dict) and b.get("type") == "tool_result" for b in blocks)
        sides.append(("results" if is_results else str(message.get("role")), blocks))
    for at, place in torn_server_calls(sides):
        yield f"messages[{at}].content[{place}]", "a tool of the API's own is called without a result, or the reverse"


def _turns(request: SentRequest, limits: RequestLimits) -> Found:
    if not request.messages:
        yield "messages", "there is no message"
    before: JsonValue = "assistant"
    for at, message in enumerate(request.messages):
        role = message.get("role")
        if role == "system" and limits.system_within:
            following = request.messages[at + 1].get("role") if at + 1 < len(request.messages) else None
            if before != "user" and not (at and ends_in_server_call(request.messages[at - 1])):
                yield f"messages[{at}].role", "a system message that does not stand behind one of the user"
            elif following not in (None, "assistant"):
                yield f"messages[{at}].role", "a system message that no answer follows"
        elif role not in _SIDES:
            yield f"messages[{at}].role", f"{role!r} is neither user nor assistant"
        elif role == before and not (at == 0 and _begins_compacted(request)):
            yield f"messages[{at}].role", "an answer stands first" if at == 0 else f"two messages of {role} in a row"
        before = role


def _content(request: SentRequest, limits: RequestLimits) -> Found:
    for at, message in enumerate(request.messages):
        content = message.get("content")
        if not content or not isinstance(content, (str, list)):
            yield f"messages[{at}].content", "is empty"
        elif isinstance(content, str) and is_blank(content):
            yield f"messages[{at}].content", "is white space only"
    for where, _ in _all_blocks(request, _is_blank_text):
        yield f"{where}.text", "is empty or white space only"
    if isinstance(request.system, str) and is_blank(request.system):
        yield "system", "is white space only"


def _end(request: SentRequest, limits: RequestLimits) -> Found:
    last: Mapping[str, JsonValue] = request.messages[-1] if request.messages else {}
    if last.get("role") != "assistant":
        return
    if not limits.answer_last and not ends_in_server_call(last):
        yield (
            f"messages[{len(request.messages) - 1}].role",
            "an answer stands last, which the model does not go on with",
        )
    content = last.get("content")
    blocks = [block for _, block in objects_in(content)]
    text = content if isinstance(content, str) else blocks[-1].get("text") if blocks else None
    if isinstance(text, str) and text != text.rstrip():
        yield f"messages[{len(request.messages) - 1}].content", "the last answer ends in white space"


def _exchanges(request: SentRequest, limits: RequestLimits) -> Found:
    if not request.has_kind("tool_use", "tool_result"):
        return
    uses: list[JsonValue] = []
    for at, message in enumerate(request.messages):
        blocks = [block for _, block in objects_in(message.get("content"))]
        kinds = [block.get("type") for block in blocks]
        results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
        if uses or results:
            where = f"messages[{at}].content"
            if "tool_result" in kinds[len(results) :]:
                yield where, "something stands before a tool_result"
            if uses != results:
                yield from ((where, f"no tool_result for {use!r}") for use in uses if use not in results)
                yield from (
                    (where, f"a tool_result for {result!r}, which was not called just before")
                    for result in results
                    if result not in uses
                )
            if len(results) != len(set(map(str, results))):
                yield where, "two results of the same call"
        uses = [block.get("id") for block in blocks if block.get("type") == "tool_use"] if "tool_use" in kinds else []
    yield from (("messages", f"no tool_result for {use!r}") for use in uses)


def _calls(request: SentRequest, limits: RequestLimits) -> Found:
    met: set[JsonValue] = set()
    for where, _, block in _blocks(request, "tool_use", "tool_result"):
        if block.get("type") == "tool_result" and not limits.takes_id(block.get("tool_use_id")):
            yield f"{where}.tool_use_id", f"{block.get('tool_use_id')!r} is no id that is taken"
        if block.get("type") != "tool_use":
            continue
        call_id = block.get("id")
        if not limits.takes_id(call_id):
            yield f"{where}.id", f"{call_id!r} is no id that is taken"
        elif call_id in met:
            yield f"{where}.id", f"{call_id!r} is the id of a call before it"
        else:
            met.add(call_id)
        if not limits.takes_name(block.get("name")):
            yield f"{where}.name", f"{block.get('name')!r} is no name that is taken"
        if not isinstance(block.get("input"), dict):
            yield f"{where}.input", "is not an object"


def _reasoning(request: SentRequest, limits: RequestLimits) -> Found:
    if not request.has_kind(*anthropic.REASONING):
        return
    for where, message, block in _blocks(request, *anthropic.REASONING):
        if message.get("role") != "assistant":
            yield where, "reasoning stands outside of an answer"
        elif not block.get("signature" if block.get("type") == "thinking" else "data"):
            yield where, "reasoning without a signature"
    for at, message in enumerate(request.messages):
        content = message.get("content")
        if (
            message.get("role") == "assistant"
            and isinstance(content, list)
            and content
            and anthropic.is_reasoning(content[-1])
        ):
            yield f"messages[{at}].content[{len(content) - 1}]", "an answer ends in reasoning"


def _compaction(request: SentRequest, limits: RequestLimits) -> Found:
    compactions = [(where, block) for where, _, block in _blocks(request, COMPACTION_PART)]
    for number, (where, block) in enumerate(compactions):
        if number or where != "messages[0].content[0]":
            yield where, "a compaction that does not stand first"
        if not holds_compaction(block):
            yield where, "a compaction without content"


def _marks(request: SentRequest, limits: RequestLimits) -> Found:
    marked = [where for where, _ in _all_blocks(request, lambda block: anthropic.CACHE_MARK in block)]
    if len(marked) > anthropic.MAX_CACHE_MARKS:
        yield marked[0], f"{len(marked)} marks for the cache, and {anthropic.MAX_CACHE_MARKS} are taken"


def _pictures(request: SentRequest, limits: RequestLimits) -> Found:
    sources = ((where, block.get("source")) for where, block in _all_of(request, "image"))
    pictures = [
        Picture.of(where, source.get("media_type"), source.get("data"))
        for where, source in sources
        if isinstance(source, dict)
    ]
    yield from wrong_pictures(pictures, limits)


_DOCUMENTS: Mapping[JsonValue, str] = {"base64": anthropic.PDF, "text": anthropic.PLAIN_TEXT}
"""The MIME type that the source of a document has, by the type of the source."""


def _files(request: SentRequest, limits: RequestLimits) -> Found:
    for where, block in _all_of(request, "document"):
        source = block.get("source")
        if not isinstance(source, dict):
            continue
        taken = _DOCUMENTS.get(str(source.get("type")))
        if taken is not None and source.get("media_type") != taken:
            yield f"{where}.source.media_type", f"{source.get('media_type')!r} as {source['type']}; it takes {taken}"
        elif taken == anthropic.PDF and type_of_bytes(str(source.get("data"))) != anthropic.PDF:
            yield f"{where}.source.data", "is no PDF"


ANTHROPIC_RULES = (
    Rule(
        "turns",
        "The first message is a user's; users and answers take turns, a system message between the two.",
        _turns,
    ),
    Rule("content", "No message and no text is empty or white space only.", _content),
    Rule("end", "No answer stands last, or, for a model that goes on with it, none that ends in white space.", _end),
    Rule(
        "exchanges", "The results of an answer's tools stand at the head of the next message, one for each.", _exchanges
    ),
    Rule("calls", "Ids and names of calls match their patterns, ids are used once, the input is an object.", _calls),
    Rule("server calls", "Every call of a tool that the API runs has its result, and the reverse.", _server_calls),
    Rule("reasoning", "Reasoning stands in answers, is signed, and ends none of them.", _reasoning),
    Rule("compaction", "What the API compacted itself stands first, once, and holds something.", _compaction),
    Rule("marks", "There are at most four marks for the cache.", _marks),
    Rule("images", "Number, size and type of images are within the limits.", _pictures),
    Rule("files", "A document in base64 is a PDF, one as text is plain text.", _files),
)


# The rules of the Gemini API.

_GEMINI_SIDES = ("user", "model")


def _parts(request: SentRequest, *fields: str) -> Iterator[tuple[str, Mapping[str, JsonValue], JsonObject]]:
    """Yield those parts that have one of some fields, each with its path and its content."""
    if request.has_field(*fields):
        for at, place, content, part in request.parts:
            if not part.keys().isdisjoint(fields):
                yield f"contents[{at}].parts[{place}]", content, part


def _names(parts: Sequence[JsonObject], kind: str) -> list[str]:
    """Return the names of the calls or the responses among the parts of a content, sorted."""
    return sorted([str(called.get("name")) for part in parts if isinstance(called := part.get(kind), dict)])


def is_thought_alone(content: Mapping[str, JsonValue]) -> bool:
    """Return whether the model says nothing in a content: it only thinks."""
    parts = listed(content.get("parts")) if content.get("role") == "model" else []
    for part in parts:
        if not isinstance(part, dict) or part.get("thought") is not True:
            return False
    return bool(parts)


def is_empty_text(part: JsonValue) -> bool:
    """Return whether a part says "" and nothing else. One with a signature has that to say."""
    return isinstance(part, dict) and part.get("text") == "" and not part.get("thoughtSignature")


def _gemini_turns(request: SentRequest, limits: RequestLimits) -> Found:
    if not request.messages:
        yield "contents", "there is no content"
        return
    for at, content in enumerate(request.messages):
        if content.get("role") not in _GEMINI_SIDES:
            yield f"contents[{at}].role", f"{content.get('role')!r} is neither user nor model"
    if request.messages[0].get("role") != "user":
        yield "contents[0].role", "an answer stands first"
    if request.messages[-1].get("role") != "user":
        yield f"contents[{len(request.messages) - 1}].role", "an answer stands last"


def _gemini_content(request: SentRequest, limits: RequestLimits) -> Found:
    for at, content in enumerate(request.messages):
        if not isinstance(content.get("parts"), list) or not content["parts"]:
            yield f"contents[{at}].parts", "is empty"
        elif is_thought_alone(content):
            yield f"contents[{at}].parts", "an answer of thoughts alone"
    for place, part in objects_in(fields_of(request.system).get("parts")):
        if not limits.empty_texts and is_empty_text(part):
            yield f"systemInstruction.parts[{place}].text", "is empty"
    for at, place, _, part in request.parts:
        if not part:
            yield f"contents[{at}].parts[{place}]", "is empty"
        elif not isinstance(part.get("text", ""), str):
            yield f"contents[{at}].parts[{place}].text", "is not a string"
        elif not limits.empty_texts and is_empty_text(part):
            yield f"contents[{at}].parts[{place}].text", "is empty"


def _gemini_exchanges(request: SentRequest, limits: RequestLimits) -> Found:
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
            wanted, names = ", ".join(awaited), ", ".join(answers)
            yield f"contents[{at}]", f"responses to {names or 'nothing'} where {wanted or 'nothing'} was called"
        awaited, before = calls, content.get("role")
    yield from (("contents", f"no response for {name!r}") for name in dict.fromkeys(awaited))


def _gemini_calls(request: SentRequest, limits: RequestLimits) -> Found:
    for where, content, part in _parts(request, "functionCall", "functionResponse"):
        for kind, side in (("functionCall", "model"), ("functionResponse", "user")):
            called = part.get(kind)
            if kind not in part:
                continue
            if not isinstance(called, dict):
                yield f"{where}.{kind}", "is not an object"
                continue
            if content.get("role") != side:
                yield f"{where}.{kind}", f"stands in a content of the {content.get('role')}"
            if not limits.takes_name(called.get("name")):
                yield f"{where}.{kind}.name", f"{called.get('name')!r} is no name that is taken"
            field = "args" if kind == "functionCall" else "response"
            if field in called and not isinstance(called[field], dict):
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


def _gemini_pictures(request: SentRequest, limits: RequestLimits) -> Found:
    pictures: list[Picture] = []
    for where, _, part in _parts(request, "inlineData", "fileData"):
        for kind in ("inlineData", "fileData"):
            media = fields_of(part.get(kind))
            mime_type = media.get("mimeType")
            if isinstance(mime_type, str) and mime_type.startswith("image/"):
                pictures.append(Picture.of(where, mime_type, media.get("data")))
    yield from wrong_pictures(pictures, limits)


GEMINI_RULES = (
    Rule("turns", "The first content and the last one are a user's.", _gemini_turns),
    Rule("content", "No content and no part is empty, and no answer is thoughts alone.", _gemini_content),
    Rule(
        "exchanges", "The content after calls has a response to each, and no other content has any.", _gemini_exchanges
    ),
    Rule("calls", "Names of calls match their pattern, arguments and responses are objects.", _gemini_calls),
    Rule("signatures", "The first call of an answer has a signature.", _signatures),
    Rule("images", "Number, size and type of images are within the limits.", _gemini_pictures),
)


# The rules of OpenAI's Chat Completions API.

# Tuples, since a role or a type may be any value, also one that no set takes.
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
PARTS_OF: Mapping[str, tuple[str, ...]] = {
    "system": ("text",),
    "developer": ("text",),
    "tool": ("text",),
    "assistant": ("text", "refusal"),
    "user": ("text", "image_url", "input_audio", "file", "video_url", "audio_url"),
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


def _openai_chat_content(request: SentRequest, limits: RequestLimits) -> Found:
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
                if part.get("type") not in PARTS_OF.get(str(role), ()):
                    yield f"{where}[{place}].type", f"{part.get('type')!r} is no part of a message of {role}"
                elif part.get("type") == "text" and not isinstance(part.get("text"), str):
                    yield f"{where}[{place}].text", "is not a string"
        else:
            yield where, "is neither text nor parts"


def _openai_chat_exchanges(request: SentRequest, limits: RequestLimits) -> Found:
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


def _openai_chat_calls(request: SentRequest, limits: RequestLimits) -> Found:
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


def _openai_chat_pictures(request: SentRequest, limits: RequestLimits) -> Found:
    pictures: list[Picture] = []
    for at, place, _, part in request.parts:
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        if part.get("type") == "image_url" and isinstance(url, str):
            pictures.append(picture_at(f"messages[{at}].content[{place}]", url))
    yield from wrong_pictures(pictures, limits)


def picture_at(where: str, url: str) -> Picture:
    """Return the picture that a URL holds or names."""
    image = image_from_url(url)
    return Picture.of(where, image.get("mimeType"), image.get("data"))


OPENAI_CHAT_RULES = (
    Rule("roles", "Each message has a role of this form, and no name that is not taken.", _roles),
    Rule("content", "Each message says something, in parts that its role may have.", _openai_chat_content),
    Rule("exchanges", "Every call has its result right behind it, and nothing else has one.", _openai_chat_exchanges),
    Rule(
        "calls", "Ids and names of calls match their patterns, arguments are the text of an object.", _openai_chat_calls
    ),
    Rule("images", "Number, size and type of images are within the limits.", _openai_chat_pictures),
)


# The rules of OpenAI's Responses API.

_OPENAI_RESPONSES_ROLES = ("system", "developer", "user", "assistant")
_REASONING = "reasoning"
_NAMED_CALLS = frozenset({"function_call", "custom_tool_call"})
_SERVER_CALLS = frozenset({
    "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call",
})  # fmt: skip
"""Calls that the API runs itself: they have no output of their own."""
_KINDS = re.compile(
    r"message|reasoning|compaction\w*|item_reference|program|\w+_(call|output|response|request|list_tools)"
)
_FROM_THE_MODEL = ("_call", "mcp_list_tools", "mcp_approval_request", "compaction")


def kind_of(item: Mapping[str, JsonValue]) -> str:
    """Return the type of an item: of one that says none, that of a message."""
    kind = item.get("type", "message" if "role" in item else "")
    return kind if isinstance(kind, str) else ""


@lru_cache(maxsize=256)
def is_known(kind: str) -> bool:
    """Return whether a type is one of this form, so far as the names of its types tell."""
    return _KINDS.fullmatch(kind) is not None


def is_of_the_model(item: Mapping[str, JsonValue]) -> bool:
    """Return whether the model made an item."""
    kind = kind_of(item)
    return (kind == "message" and item.get("role") == "assistant") or kind.endswith((*_FROM_THE_MODEL, _REASONING))


def _items(request: SentRequest, limits: RequestLimits) -> Found:
    if not request.messages:
        yield "input", "there is no item"
    for at, item in enumerate(request.messages):
        kind = kind_of(item)
        if not limits.takes_item_id(item.get("id")):
            yield f"input[{at}].id", f"{item['id']!r} is no id that is taken"
        if not kind:
            yield f"input[{at}].type", "is missing"
        elif kind == "message":
            if item.get("role") not in _OPENAI_RESPONSES_ROLES:
                yield f"input[{at}].role", f"{item.get('role')!r} is no role of this form"
            content = item.get("content")
            if not isinstance(content, str) and not (isinstance(content, list) and content):
                yield f"input[{at}].content", "is neither text nor parts"
        elif not is_known(kind):
            yield f"input[{at}].type", f"{kind!r} is no type of this form"


def _openai_responses_exchanges(request: SentRequest, limits: RequestLimits) -> Found:
    kinds = [*map(kind_of, request.messages)]
    calls = {kind for kind in {*kinds} if kind.endswith("_call") and kind not in _SERVER_CALLS}
    outputs = {kind for kind in {*kinds} if kind.endswith("_call_output") or kind == "tool_search_output"}
    both = [
        (at, item, kind in calls)
        for at, (kind, item) in enumerate(zip(kinds, request.messages, strict=True))
        if (kind in calls or kind in outputs) and item.get("execution") != "server"
    ]
    called = [item.get("call_id") for _, item, is_call in both if is_call]
    awaited: list[JsonValue] = []
    for at, item, is_call in both:
        if is_call:
            awaited.append(item.get("call_id"))
            continue
        answered = item.get("call_id", item.get("id"))  # the output of a local shell has the id of its call as its own
        if answered in awaited:
            awaited.remove(answered)
        else:
            fault = "is answered before it is called, or twice" if answered in called else "was not called"
            yield f"input[{at}].call_id", f"{answered!r} {fault}"
    yield from (("input", f"no output for {call_id!r}") for call_id in awaited)


def _openai_responses_calls(request: SentRequest, limits: RequestLimits) -> Found:
    for at, item in enumerate(request.messages):
        kind = kind_of(item)
        if "call_id" in item and not limits.takes_id(item["call_id"]):
            yield f"input[{at}].call_id", f"{item['call_id']!r} is no id that is taken"
        if kind not in _NAMED_CALLS:
            continue
        if not limits.takes_name(item.get("name")):
            yield f"input[{at}].name", f"{item.get('name')!r} is no name that is taken"
        if kind == "custom_tool_call" and not isinstance(item.get("input"), str):
            yield f"input[{at}].input", "is not a string"
        if kind == "function_call" and not is_text_of_object(item.get("arguments")):
            yield f"input[{at}].arguments", "is not the JSON text of an object"


def _openai_responses_reasoning(request: SentRequest, limits: RequestLimits) -> Found:
    for at, item in enumerate(request.messages):
        if item.get("type") != _REASONING:
            continue
        following = request.messages[at + 1] if at + 1 < len(request.messages) else None
        if following is None or not is_of_the_model(following):
            yield f"input[{at}]", "reasoning without the item that it led to"


def _openai_responses_pictures(request: SentRequest, limits: RequestLimits) -> Found:
    pictures = [
        picture_at(f"input[{at}].{field}[{place}]", url)
        for at, item in enumerate(request.messages)
        for field in ("content", "output")
        for place, part in objects_in(item.get(field))
        if part.get("type") == "input_image" and isinstance(url := part.get("image_url"), str)
    ]
    yield from wrong_pictures(pictures, limits)


OPENAI_RESPONSES_RULES = (
    Rule("items", "Each item has a type and no id that is not taken, each message a role and content.", _items),
    Rule("exchanges", "Every call has one output after it, and nothing else has one.", _openai_responses_exchanges),
    Rule(
        "calls",
        "Ids and names of calls match their patterns, arguments are the text of an object.",
        _openai_responses_calls,
    ),
    Rule("reasoning", "Reasoning is followed by what it led to.", _openai_responses_reasoning),
    Rule("images", "Number, size and type of images are within the limits.", _openai_responses_pictures),
)


# The rules that each provider has with a number of its own: texts, files, tools, messages, the whole request.

_SHORT = 100_000
"""Below so many characters no text is too long anywhere."""


def _texts(request: SentRequest, limits: RequestLimits) -> Found:
    of_text, of_file = limits.text_chars, limits.file_chars
    for path, field, text in _strings(request):
        most = of_file if field == "file_data" else of_text
        if most is not None and len(text) > most:
            yield f"{request.path}{path}.{field}", f"{len(text):,} characters, and {most:,} are taken"


def _strings(request: SentRequest) -> list[tuple[str, str, str]]:
    """Return the texts and files that are longer than some are, each with its path and its field. O(parts)."""
    # Written out: almost every string of a history is asked, and is short.
    strings = []
    for at, message in enumerate(request.messages):
        for field in ("content", "output"):
            content = message.get(field)
            if isinstance(content, str):
                if len(content) > _SHORT:
                    strings.append((f"[{at}]", field, content))
                continue
            for place, part in objects_in(content):
                for name in ("text", "file_data"):
                    if isinstance(text := part.get(name), str) and len(text) > _SHORT:
                        strings += [(f"[{at}].{field}[{place}]", name, text)]
    return strings


def _tools(request: SentRequest, limits: RequestLimits) -> Found:
    if limits.tools is not None and len(request.tools) > limits.tools:
        yield f"tools[{limits.tools}]", f"{len(request.tools):,} tools, and a request may have {limits.tools:,}"
    for at, tool in enumerate(request.tools):
        function: JsonValue = tool.get("function", dict(tool))
        declared = tool.get("functionDeclarations", tool.get("function_declarations", [function]))
        for _, declaration in objects_in(declared):
            name = declaration.get("name")
            if name is not None and not limits.takes_name(name):
                yield f"tools[{at}].name", f"{name!r} is no name that is taken"


def _size(request: SentRequest, limits: RequestLimits) -> Found:
    if limits.messages is not None and len(request.messages) > limits.messages:
        yield request.path, f"{len(request.messages):,} messages, and a request may have {limits.messages:,}"
    if limits.request_bytes is None:
        return
    whole = {"system": request.system, "messages": [*request.messages]}
    try:
        size = len(to_json(whole))
    except ValueError:  # half of a surrogate pair, which a client replaces, or a mapping that is no dict
        size = len(encode_json(whole, "request")[0].encode())
    if size > limits.request_bytes:
        yield request.path, f"{size:,} bytes, and a request may have {limits.request_bytes:,}"


TEXTS = Rule("texts", "No text and no file is longer than one may be.", _texts)
TOOLS = Rule("tools", "There are not too many tools, and their names match the pattern.", _tools)
SIZE = Rule("size", "The request is not larger than the API takes.", _size)


# A table of rules and one of limits for each provider, and the check of a request.
#
#     broken_rules("anthropic", messages, system)
#
# A target is the name of a form: ``anthropic``, ``openai-chat``, ``openai-responses`` or ``gemini``. The rules are
# those
# that the providers document or answer with an error; that a request breaks none does not prove that it is taken.

RULES: Mapping[Shape, tuple[Rule, ...]] = {
    "anthropic": (*ANTHROPIC_RULES, SIZE, TOOLS),
    "openai-chat": (*OPENAI_CHAT_RULES, TEXTS, TOOLS),
    "openai-responses": (*OPENAI_RESPONSES_RULES, TEXTS, TOOLS),
    "gemini": (*GEMINI_RULES, TOOLS),
}
_FIELDS: Mapping[Shape, tuple[str, str]] = {
    "anthropic": ("content", "messages"),
    "openai-chat": ("content", "messages"),
    "openai-responses": ("content", "input"),
    "gemini": ("parts", "contents"),
}
"""In which field a message has its parts, and a request its messages."""


def broken_rules(
    target: str,
    messages: Sequence[Mapping[str, JsonValue]],
    system: JsonValue = None,
    *,
    limits: RequestLimits | None = None,
    tools: Sequence[Mapping[str, JsonValue]] = (),
) -> tuple[Broken, ...]:
    """Return where a request breaks the rules of a target, in the order of the rules; () if it breaks none.

    ``messages`` are as the provider takes them, ``system`` and ``tools`` stand beside them in the request.
    ``limits`` are those of the target unless others are given. Raises `InvalidArgument` for a target that is none.
    O(size).
    """
    name = checked_target(target)
    request, within = SentRequest(messages, system, *_FIELDS[name], tools), limits or LIMITS[name]
    return tuple(Broken(rule.name, *fault) for rule in RULES[name] for fault in rule.find(request, within))
