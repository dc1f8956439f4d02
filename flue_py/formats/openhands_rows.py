"""The rows of conversations of OpenHands: events as our messages, and the calls that were paid for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.sessions import made_id
from flue_py.core.usage import PaidCall, call_of, read_reported, usage_json
from flue_py.formats.kit import one_text, read_moment
from flue_py.providers.base import blocks_of, fields_of, listed, only, without
from flue_py.providers.openai_chat import arguments_from_text, image_from_url

FORMAT = "openhands"
ACTION, CONDENSATION = "ActionEvent", "Condensation"
RESULTS = {"ObservationEvent": "observation", "UserRejectObservation": "rejection_reason", "AgentErrorEvent": "error"}
"""The kinds of results of tools, and their field that has the words."""
SHOWN = frozenset({"SystemPromptEvent", "MessageEvent", ACTION, *RESULTS})
"""The kinds that a model is shown."""
ENVELOPE = ("id", "parent_id", "timestamp", "kind")
"""The fields that every event has."""

_TOKENS = {
    "prompt_tokens": "input",
    "completion_tokens": "output",
    "cache_read_tokens": "cacheRead",
    "cache_write_tokens": "cacheWrite",
    "reasoning_tokens": "reasoning",
}
_FAILED = "[An error occurred during execution.]\n"
_THOUGHT = ("thinking_blocks", "reasoning_content", "responses_reasoning_item")
_TASK = {"Task ID": "task_id", "Subagent": "subagent", "Status": "status"}
_COMMAND = {"working_dir": "Current working directory:", "py_interpreter_path": "Python interpreter:"}
_PICTURES = {"/": "image/jpeg", "R": "image/gif", "U": "image/webp"}
"""The kinds of pictures by the first letter of their base64 text; any other is a PNG."""


def text_of(fields: JsonObject, name: str) -> str:
    """Return a field that is a text; "" for any other value."""
    return one_text(fields.get(name)) or ""


# events


class Event(Struct):
    """An event: the indexes of its parent, of its children, and of the last call of its response."""

    line: int
    id: str
    kind: str
    fields: JsonObject
    parent: int | None
    last: int
    children: list[int] = field(default_factory=list)

    @property
    def response(self) -> str:
        """The id of the response that it is of, or ""."""
        return text_of(self.fields, "llm_response_id")

    @property
    def has_summary(self) -> bool:
        """Whether it is a condensation that puts a summary in the view."""
        offset, summary = self.fields.get("summary_offset"), self.fields.get("summary")
        return self.kind == CONDENSATION and type(offset) is int and offset >= 0 and isinstance(summary, str)


def message_of(events: Sequence[JsonObject]) -> tuple[JsonObject, JsonObject]:
    """Return the message that an event of `SHOWN` is, or the actions of a response; and their other fields."""
    fields = events[-1]
    kind = text_of(fields, "kind")
    if kind == "SystemPromptEvent":
        prompt = _parts(fields.get("system_prompt"), fields.get("dynamic_context"))
        return {"role": "system", "content": prompt}, without(fields, *ENVELOPE, "system_prompt", "dynamic_context")
    if kind == "MessageEvent":
        return _said(fields)
    if kind in RESULTS:
        return _result(fields, RESULTS[kind])
    parts = [part for event in events for part in (*_thoughts(event), *_parts(*listed(event.get("thought"))))]
    actions: list[JsonValue] = [without(event, *ENVELOPE[1:], *_THOUGHT, "thought") for event in events]
    parts += [_call(event.get("tool_call")) for event in events]
    return {"role": "assistant", "content": parts}, {"actions": actions}


def _said(fields: JsonObject) -> tuple[JsonObject, JsonObject]:
    value = fields_of(fields.get("llm_message"))
    words = _parts(*blocks_of(value.get("content")), *listed(fields.get("extended_content")))
    calls = [_call(call) for call in listed(value.get("tool_calls"))]
    rest = without(value, "role", "content", "tool_calls", *_THOUGHT)
    beside = without(fields, *ENVELOPE, "llm_message", "extended_content")
    message: JsonObject = {"role": value.get("role"), "content": [*_thoughts(value), *words, *calls]}
    return message, {**beside, **({"llm_message": rest} if rest else {})}


def _result(fields: JsonObject, name: str) -> tuple[JsonObject, JsonObject]:
    result, text = fields_of(fields.get(name)), text_of(fields, name)
    words, is_error = _observed(result), result.get("is_error") is True
    if name != "observation":
        words, is_error = [_text(f"Action rejected: {text}" if name == "rejection_reason" else text)], True
    message: JsonObject = {"role": "toolResult", "toolCallId": fields.get("tool_call_id"), "isError": is_error}
    message["toolName"] = fields.get("tool_name")
    message["content"] = _parts(*words, *listed(fields.get("extended_content")))
    beside = without(fields, *ENVELOPE, "tool_call_id", "tool_name", "extended_content", name)
    return message, {**beside, **({name: without(result, "content")} if result else {})}


def _observed(result: JsonObject) -> list[JsonValue]:
    """Return the parts that the model is shown of a result of a tool, which some tools put words around."""
    parts, picture, kind = listed(result.get("content")), result.get("screenshot_data"), result.get("kind")
    head: list[JsonValue] = [_text(_FAILED)] if result.get("is_error") is True else []
    if kind == "TaskObservation":
        head.insert(0, _text("\n".join(f"{name}: {result.get(key)}" for name, key in _TASK.items())))
    elif kind == "TerminalObservation":
        about = fields_of(result.get("metadata"))
        text = "".join(text_of(fields_of(part), "text") for part in parts)
        lines = [f"{words} {about[name]}" for name, words in _COMMAND.items() if about.get(name)]
        code = about.get("exit_code", -1)
        lines += [f"Command finished with exit code {code}"] if code != -1 else []
        text = f"{text_of(about, 'prefix')}{text}{text_of(about, 'suffix')}"
        parts = [_text(text + "".join(f"\n[{line}]" for line in lines))]
    if isinstance(picture, str):
        parts = [*parts, {"type": "image", "data": picture, "mimeType": _PICTURES.get(picture[:1], "image/png")}]
    return [*head, *parts]


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _parts(*values: JsonValue) -> list[JsonValue]:
    """Return parts of a message as ours: an image of several URLs is several."""
    parts: list[JsonValue] = []
    for part in map(fields_of, values):
        urls = part.get("image_urls")
        if part.get("type") == "image" and isinstance(urls, list):
            parts += [{"type": "image", **image_from_url(url)} for url in urls if isinstance(url, str)]
        elif part:
            parts.append(without(part, "cache_prompt") if part.get("cache_prompt") is False else part)
    return parts


def _thoughts(value: JsonObject) -> list[JsonValue]:
    """Return the reasoning of an answer, in the most exact of the forms in which it has it."""
    blocks = [fields_of(block) for block in listed(value.get("thinking_blocks"))]
    item = fields_of(value.get("responses_reasoning_item"))
    if blocks:
        return [_thought(text_of(block, "thinking"), block.get("signature"), block.get("data")) for block in blocks]
    if item:
        texts = [text for text in (*listed(item.get("summary")), *listed(item.get("content"))) if isinstance(text, str)]
        return [{**_thought("\n\n".join(texts), item.get("encrypted_content")), **only(item, "id", "status")}]
    text = text_of(value, "reasoning_content")
    return [_thought(text)] if text else []


def _thought(text: str, signature: JsonValue = None, redacted: JsonValue = None) -> JsonObject:
    thought: JsonObject = {"type": "thinking", "thinking": text}
    if isinstance(redacted, str):
        return {**thought, "thinkingSignature": redacted, "redacted": True}
    return {**thought, "thinkingSignature": signature} if isinstance(signature, str) else thought


def _call(value: JsonValue) -> JsonObject:
    call = fields_of(value)
    arguments = arguments_from_text(call.get("arguments"))
    return {"type": "toolCall", "id": call.get("id"), "name": call.get("name"), "arguments": arguments}


# the bill


class Paid(Frozen):
    """A call that was paid for, as it was reported."""

    usage: JsonObject
    names: dict[str, str]
    at_us: int | None


def bill_of(state: JsonObject) -> dict[tuple[str, int], Paid]:
    """Return the calls of a conversation, by the ids of their responses, and how often each occurred before."""
    bill: dict[tuple[str, int], Paid] = {}
    is_driven = fields_of(state.get("agent")).get("kind") == "ACPAgent"
    for name, value in stats_of(state).items():
        usages, costs = ([fields_of(item) for item in listed(value.get(part))] for part in ("token_usages", "costs"))
        models, prices, seen = Counter(map(_model, usages)), Counter(map(_model, costs)), Counter[str]()
        for usage in usages:
            model, response = _model(usage), text_of(usage, "response_id") or f"{state.get('id')}:{name}"
            # A call without a cost has none in the list: where there are as many of both, it is known which is whose.
            places = [place for place, cost in enumerate(costs) if _model(cost) == model][:1]
            cost = costs.pop(places[0]) if places and models[model] == prices[model] else {}
            provider, slash, rest = model.partition("/")
            names = {"provider": provider if slash else "", "model": rest if slash else model}
            names["purpose"] = "compaction" if name == "condenser" else "turn"
            moment = cost.get("timestamp")
            at_us = read_moment(moment * 1000) if isinstance(moment, (int, float)) else None
            bill.setdefault((response, seen[response]), Paid(_reported(usage, cost, is_driven), names, at_us))
            seen[response] += 1
    return bill


def stats_of(state: JsonObject) -> dict[str, JsonObject]:
    """Return the sums and lists of calls of a conversation, by the uses of its models."""
    stats = fields_of(fields_of(state.get("stats")).get("usage_to_metrics"))
    return {name: fields_of(value) for name, value in stats.items()}


def _model(usage: JsonObject) -> str:
    return text_of(usage, "model")


def _reported(usage: JsonObject, cost: JsonObject, is_driven: bool) -> JsonObject:
    """Return the usage of a call in our shape: its input holds the cache, but for programs that OpenHands drives."""
    counts = only(usage, *_TOKENS)
    value: JsonObject = {_TOKENS[name] if is_driven else name: count for name, count in counts.items()}
    read = read_reported(value)
    tokens = value if read.oddities else usage_json(read)
    return {**tokens, "cost": {"total": cost["cost"]}} if "cost" in cost else tokens


def calls_alone(bill: Mapping[tuple[str, int], Paid], booked: Container[str | None]) -> tuple[PaidCall, ...]:
    """Return the calls whose responses became no event: titles, questions aside, sub-agents without a file."""
    calls = []
    for (response, number), paid in bill.items():
        call_id = made_id(FORMAT, response, *([str(number)] if number else []))
        call = call_of(read_reported(paid.usage), call_id=call_id, **paid.names)
        calls += [replace(call, at_us=paid.at_us)] if call_id not in booked else []
    return tuple(calls)
