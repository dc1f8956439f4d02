"""A request that a provider takes, made of a context: repaired, converted, and checked against the provider's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.native import COMPACTION_PART
from flue_py.core.shapes import Shape
from flue_py.wire.anthropic import SERVER_KINDS
from flue_py.wire.bound import Bound, bound_signatures, without_stale_reasoning
from flue_py.wire.files import FILES, with_fitting_files, with_readable_files
from flue_py.wire.leftovers import Leftovers, Repair
from flue_py.wire.lists.anthropic import anthropic_list
from flue_py.wire.lists.gemini import gemini_list, with_signature
from flue_py.wire.lists.openai_chat import chat_list
from flue_py.wire.lists.openai_responses import responses_list
from flue_py.wire.lists.said import BLANK, Said, SystemApart, kinds_in, last_model, with_own_ids
from flue_py.wire.marks import CacheMarks, with_cache_marks
from flue_py.wire.openai_responses import part_of_reasoning
from flue_py.wire.repairs import (
    fitting_name,
    with_fitting_calls,
    with_fitting_images,
    without_empty,
    without_foreign_reasoning,
    without_spare_compactions,
    without_torn_server_calls,
)
from flue_py.wire.rules import Broken, RequestLimits, broken_rules, checked_target, limits_of
from flue_py.wire.rules.anthropic import ends_in_server_call
from flue_py.wire.rules.gemini import is_empty_text, is_thought_alone
from flue_py.wire.rules.openai_chat import PARTS_OF
from flue_py.wire.rules.openai_responses import is_of_the_model, kind_of

CONTINUE = "(continue)"
"""What the user says behind an answer that stands last, where a provider takes no request that ends in one."""


@frozen
class WireRequest:
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


@frozen
class _Beside:
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
            turns[-1] = {**turns[-1], "parts": [*_listed(turns[-1]["parts"]), *_listed(content.get("parts"))]}
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
        parts = [part for part in _listed(content.get("parts")) if not is_empty_text(part)]
        if len(parts) < len(_listed(content.get("parts"))):
            left.change("empty texts are left out, which the API refuses")
        if parts:
            kept.append({**content, "parts": parts})
    return kept


def _signed(content: JsonObject, left: Leftovers) -> JsonObject:
    parts = _listed(content.get("parts"))
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
        thoughts = [part for part in _listed(turn.get("parts")) if isinstance(part, dict)]
        left.note(
            "an answer of thoughts alone", *({"type": "thinking", "thinking": part.get("text")} for part in thoughts)
        )
    return kept


def _listed(value: JsonValue) -> list[JsonValue]:
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
