"""What Anthropic's Messages API refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.native import COMPACTION_PART, holds_compaction
from flue_py.wire.anthropic import (
    CACHE_MARK,
    MAX_CACHE_MARKS,
    PDF,
    PLAIN_TEXT,
    REASONING,
    SERVER_CALLS,
    SERVER_KINDS,
    is_reasoning,
)
from flue_py.wire.media import type_of_bytes
from flue_py.wire.rules.limits import RequestLimits
from flue_py.wire.rules.pictures import Picture, wrong_pictures
from flue_py.wire.rules.rule import Found, Rule, SentRequest, is_blank, objects_in

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
    """Return whether an answer pauses: its last block calls a tool that the API runs, or is what that came to."""
    content = message.get("content")
    last = content[-1] if isinstance(content, list) and content else None
    return isinstance(last, dict) and (last.get("type") in SERVER_CALLS or _is_server_result(last))


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
            if block.get("type") in SERVER_CALLS:
                waiting[str(block.get("id"))] = (at, place)
            elif _is_server_result(block) and waiting.pop(str(block.get("tool_use_id")), None) is None:
                torn.append((at, place))
    return sorted(torn)


def _server_calls(request: SentRequest, limits: RequestLimits) -> Found:
    if not request.has_kind(*SERVER_KINDS):
        return
    sides: list[tuple[str, Sequence[JsonValue]]] = []
    for message in request.messages:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
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
                    (where, f"a tool_result for {one!r}, which was not called just before")
                    for one in _not_in(results, uses)
                )
            if len(results) != len(set(map(str, results))):
                yield where, "two results of the same call"
        uses = [block.get("id") for block in blocks if block.get("type") == "tool_use"] if "tool_use" in kinds else []
    yield from (("messages", f"no tool_result for {use!r}") for use in uses)


def _not_in(found: list[JsonValue], known: list[JsonValue]) -> list[JsonValue]:
    """Return what of one list is not in another."""
    return [each for each in found if each not in known]


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
        met.add(call_id)
        if not limits.takes_name(block.get("name")):
            yield f"{where}.name", f"{block.get('name')!r} is no name that is taken"
        if not isinstance(block.get("input"), dict):
            yield f"{where}.input", "is not an object"


def _reasoning(request: SentRequest, limits: RequestLimits) -> Found:
    if not request.has_kind(*REASONING):
        return
    for where, message, block in _blocks(request, *REASONING):
        if message.get("role") != "assistant":
            yield where, "reasoning stands outside of an answer"
        elif not block.get("signature" if block.get("type") == "thinking" else "data"):
            yield where, "reasoning without a signature"
    for at, message in enumerate(request.messages):
        content = message.get("content")
        if message.get("role") == "assistant" and isinstance(content, list) and content and is_reasoning(content[-1]):
            yield f"messages[{at}].content[{len(content) - 1}]", "an answer ends in reasoning"


def _compaction(request: SentRequest, limits: RequestLimits) -> Found:
    found = [(where, block) for where, _, block in _blocks(request, COMPACTION_PART)]
    for number, (where, block) in enumerate(found):
        if number or where != "messages[0].content[0]":
            yield where, "a compaction that does not stand first"
        if not holds_compaction(block):
            yield where, "a compaction without content"


def _marks(request: SentRequest, limits: RequestLimits) -> Found:
    marked = [where for where, _ in _all_blocks(request, lambda block: CACHE_MARK in block)]
    if len(marked) > MAX_CACHE_MARKS:
        yield marked[0], f"{len(marked)} marks for the cache, and {MAX_CACHE_MARKS} are taken"


def _pictures(request: SentRequest, limits: RequestLimits) -> Found:
    sources = ((where, block.get("source")) for where, block in _all_of(request, "image"))
    found = [
        Picture.of(where, held.get("media_type"), held.get("data")) for where, held in sources if isinstance(held, dict)
    ]
    yield from wrong_pictures(found, limits)


_DOCUMENTS: Mapping[JsonValue, str] = {"base64": PDF, "text": PLAIN_TEXT}
"""The MIME type that the source of a document has, by the type of the source."""


def _files(request: SentRequest, limits: RequestLimits) -> Found:
    for where, block in _all_of(request, "document"):
        source = block.get("source")
        if not isinstance(source, dict):
            continue
        taken = _DOCUMENTS.get(str(source.get("type")))
        if taken is not None and source.get("media_type") != taken:
            yield f"{where}.source.media_type", f"{source.get('media_type')!r} as {source['type']}; it takes {taken}"
        elif taken == PDF and type_of_bytes(str(source.get("data"))) != PDF:
            yield f"{where}.source.data", "is no PDF"


RULES = (
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
