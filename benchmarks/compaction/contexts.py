"""What a model would see of a transcript: after compactions, or by the ways that they are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import flue_py.sync
from benchmarks.compaction.stand_in import stand_in
from benchmarks.compaction.transcripts import Transcript
from flue_py.compaction.settings import CompactionSettings
from flue_py.core.entries import answered_id, tool_calls
from flue_py.core.json import JsonObject, JsonValue

NEEDS_MODEL = frozenset({"llm", "hybrid"})


@dataclass(frozen=True)
class Context:
    """The messages a model would see, what they take in tokens, and what it took to get there."""

    messages: tuple[JsonObject, ...]
    tokens: int
    compactions: int = 0
    calls: tuple[JsonObject, ...] = ()

    @cached_property
    def text(self) -> str:
        """All that a model could read in it."""
        return "\n\n".join(map(message_as_text, self.messages))


def message_as_text(message: Mapping[str, JsonValue]) -> str:
    """Return what a model reads of a message: who says it, its texts, and its calls, each with its arguments."""
    result = " failed" if message.get("isError") is True else ""
    return "\n".join([f"[{message.get('role')}{result}]", *_texts(message.get("content"))])


def _texts(content: JsonValue) -> Iterable[str]:
    if isinstance(content, str):
        yield content
        return
    for part in content if isinstance(content, (list, tuple)) else ():
        if isinstance(part, Mapping):
            if part.get("type") == "toolCall":
                yield f"{part.get('name')}: {'; '.join(_strings(part.get('arguments')))}"
            else:
                yield from (text for key in ("text", "thinking") if isinstance(text := part.get(key), str))


def _strings(value: JsonValue) -> Iterable[str]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _strings(each)
    elif value is not None:
        yield str(value)


# -- compacted ---------------------------------------------------------------------------------------------------------


def compacted(transcript: Transcript, mode: str, window: int, times: int) -> Context:
    """Return the context after a transcript has grown in so many equal parts, and was compacted after each."""
    calls: list[JsonObject] = []
    made = 0
    model = stand_in(transcript.counter, window) if mode in NEEDS_MODEL else None
    with flue_py.sync.open(":memory:", prices=False) as store:
        session = store.create_session()
        for part in transcript.parts(times):
            session.append_messages(list(part))
            result = session.compact(model, mode=mode, window=window, settings=CompactionSettings())
            made += result.appended is not None
            calls += result.calls
        messages = tuple(session.build_context())
    return Context(messages, _tokens(transcript, messages), made, tuple(calls))


# -- what it is compared with ------------------------------------------------------------------------------------------


def untouched(transcript: Transcript) -> Context:
    """Return the whole transcript."""
    return Context(transcript.messages, transcript.tokens)


def masked(transcript: Transcript, window: int) -> Context:
    """Return the transcript with one line in place of each result, but for those that a compaction would keep."""
    kept = _kept(transcript, window)
    names = {call.get("id"): call.get("name") for message in transcript.messages for call in tool_calls(message)}
    messages = tuple(
        message
        if at >= kept or message.get("role") != "toolResult"
        else {
            **message,
            "content": f"[a result of {names.get(answered_id(message))} is not shown: {transcript.counts[at]} tokens]",
        }
        for at, message in enumerate(transcript.messages)
    )
    return Context(messages, _tokens(transcript, messages))


def _kept(transcript: Transcript, window: int) -> int:
    """Return the index of the first message that a compaction keeps word for word."""
    with flue_py.sync.open(":memory:", prices=False) as store:
        session = store.create_session()
        session.append_messages(list(transcript.messages))
        planned = session.compactions.plan(mode="intent", window=window).planned
    return 0 if planned is None else planned.plan.first_kept_index


def plain_window(transcript: Transcript, tokens: int) -> Context:
    """Return the end of the transcript that takes so many tokens, the oldest message cut to its end where need be."""
    left = tokens
    for at in range(len(transcript.messages) - 1, -1, -1):
        if transcript.counts[at] > left:
            part = _end_of(transcript, at, left)
            return Context((*part, *transcript.messages[at + 1 :]), tokens)
        left -= transcript.counts[at]
    return untouched(transcript)


def _end_of(transcript: Transcript, at: int, tokens: int) -> tuple[JsonObject, ...]:
    """Return the end of a message that takes at most so many tokens, as a message; nothing where none does."""
    text = message_as_text(transcript.messages[at])

    def ending(length: int) -> JsonObject:
        return {"role": "user", "content": text[len(text) - length :]}

    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if transcript.counter.count(ending(middle)) <= tokens:
            low = middle
        else:
            high = middle - 1
    return (ending(low),) if low else ()


def _tokens(transcript: Transcript, messages: Iterable[JsonObject]) -> int:
    return sum(map(transcript.counter.count, messages))
