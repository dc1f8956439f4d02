"""Marks for Anthropic's cache, put where they help the next request: the API writes, and reads, what ends at a mark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.wire.anthropic import CACHE_MARK, is_blank

_MARKED = frozenset({
    "text", "image", "document", "search_result", "tool_use", "tool_result", "server_tool_use",
    "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "container_upload",
})  # fmt: skip
"""The blocks that may have a mark: reasoning, for one, may not."""


@frozen
class CacheMarks:
    """How many marks a request gets, how long the cache keeps what ends at one, and the entry that ends an epoch."""

    count: int
    ttl: Literal["5m", "1h"] = "5m"
    epoch_end: str | None = None


class Marked(NamedTuple):
    """A request with its marks."""

    messages: list[JsonObject]
    system: JsonValue
    tools: list[JsonObject]


def with_cache_marks(
    messages: Sequence[JsonObject],
    system: JsonValue,
    tools: Sequence[JsonObject],
    marks: CacheMarks,
    epoch_at: int | None,
) -> Marked:
    """Return a request of Anthropic's with marks in place of those that it had, at most as many as are asked for.

    They stand, in the order of their use: at the end, which the next request begins with; behind the system, or else
    the tools; where the request before this one ended, however much came since; at the message ``epoch_at``, where an
    epoch ended; and behind the tools. Text that gets a mark becomes a block. O(blocks).
    """
    bare = [_without_marks(each) for each in messages]
    prompt = [_without_marks(each) for each in _blocks(system) if isinstance(each, dict)]
    offered = [_without_marks(each) for each in tools]
    left = marks.count
    mark: JsonObject = {"type": "ephemeral", "ttl": marks.ttl}
    places: list[int] = []
    for part in _order(bare, epoch_at):
        if left and part == _SYSTEM:
            held = prompt if _last_marked(prompt) is not None else offered
            left -= _mark_last(held, mark)
        elif left and part == _TOOLS:
            left -= _mark_last(offered, mark)
        elif left and part not in places:
            places.append(part)
            left -= _mark_message(bare, part, mark)
    is_marked = any(CACHE_MARK in each for each in prompt)
    return Marked(bare, [*prompt] if is_marked or isinstance(system, list) else system, offered)


_SYSTEM, _TOOLS = -1, -2


def _order(messages: Sequence[JsonObject], epoch_at: int | None) -> Iterator[int]:
    """Yield the places of messages that get a mark, and what stands for system and tools, the most useful first."""
    last = len(messages) - 1
    if messages:
        yield last
    yield _SYSTEM
    answer = next((at for at in range(last, -1, -1) if messages[at].get("role") == "assistant"), 0)
    if answer:
        yield answer - 1
    if epoch_at is not None:
        yield epoch_at
    yield _TOOLS


def _mark_message(messages: list[JsonObject], at: int, mark: JsonObject) -> int:
    blocks = [each for each in _blocks(messages[at].get("content")) if isinstance(each, dict)]
    if not _mark_last(blocks, mark):
        return 0
    messages[at] = {**messages[at], "content": [*blocks]}
    return 1


def _mark_last(blocks: list[JsonObject], mark: JsonObject) -> int:
    """Mark the last block that may have a mark, in place; return how many that is."""
    at = _last_marked(blocks)
    if at is None or CACHE_MARK in blocks[at]:
        return 0
    blocks[at] = {**blocks[at], CACHE_MARK: mark}
    return 1


def _last_marked(blocks: Sequence[JsonObject]) -> int | None:
    return next((at for at in range(len(blocks) - 1, -1, -1) if _may_have_mark(blocks[at])), None)


def _may_have_mark(block: JsonObject) -> bool:
    kind = block.get("type")
    if kind == "text":
        return not is_blank(block.get("text"))
    # A tool has a schema; those that the API defines have a type of their own.
    return kind in _MARKED or "input_schema" in block


def _blocks(content: JsonValue) -> list[JsonValue]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content if isinstance(content, list) else []


def _without_marks(value: JsonObject) -> JsonObject:
    """Return a message or a block without the marks in it: the same one if it has none. O(blocks)."""
    made = {name: held for name, held in value.items() if name != CACHE_MARK} if CACHE_MARK in value else value
    content = made.get("content")
    if not isinstance(content, list):
        return made
    kept: list[JsonValue] = [_without_marks(each) if isinstance(each, dict) else each for each in content]
    is_same = all(new is old for new, old in zip(kept, content, strict=True))
    return made if is_same else {**made, "content": kept}
