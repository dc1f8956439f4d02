"""What a summarizer is shown: each message under a line that names its turn and entry, and no longer than allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from flue_py.compaction.content import ASSISTANT, USER, Message
from flue_py.compaction.material import Material
from flue_py.compaction.operations import called_on, turn_numbers
from flue_py.compaction.policy import CompactionPolicy
from flue_py.compaction.quoting import on_one_line, quoted, shown_id
from flue_py.compaction.serialize import serialize_conversation
from flue_py.core.calls import agent_of
from flue_py.core.exchange import Call, Pairing, tool_calls

_LOOKS_LIKE_A_HEADING = re.compile(r"^(?=\[[^\]\n]{1,80} — Turn \d)", re.MULTILINE)
_AGENT_CHARS = 80
_MOST_CALLS = 20
_CALL_CHARS = 120


class Line(NamedTuple):
    """A message with the line that stands over it, and its calls with what became of each."""

    heading: str
    message: Message
    calls: tuple[str, ...]


def lines_of(material: Material) -> list[Line]:
    """Return what leaves, one line a message, in order. O(messages)."""
    messages = material.messages
    pairing = material.pairing
    turns = turn_numbers(material)
    return [
        Line(_heading(message, turn, item.entry_id), message, _calls(messages, pairing, at))
        for at, (item, message, turn) in enumerate(zip(material.leaving, messages, turns, strict=True))
    ]


def _heading(message: Message, turn: int, entry_id: str) -> str:
    role = message.get("role")
    agent = quoted((agent_of(message) or "").replace("[", "(").replace("]", ")"), _AGENT_CHARS) or "Agent"
    speaker = "Human" if role == USER else agent if role == ASSISTANT else "Result"
    return f"[{speaker} — Turn {turn}, entry {shown_id(entry_id)}]"


def _calls(messages: Sequence[Message], pairing: Pairing, at: int) -> tuple[str, ...]:
    marks = [_mark(messages, results) for results in _results(pairing, at)]
    parts = [part for part in tool_calls(messages[at]) if isinstance(part.get("id"), str)]
    return tuple(f"{mark} {_short(called_on(part))}" for mark, part in zip(marks, parts, strict=True))


def _results(pairing: Pairing, at: int) -> list[list[int]]:
    found: dict[Call, list[int]] = pairing.results_of(at)
    return list(found.values())


def _mark(messages: Sequence[Message], results: Sequence[int]) -> str:
    if not results:
        return "⧖"
    return "✗" if messages[results[0]].get("isError") is True else "✓"


def _short(text: str) -> str:
    return on_one_line(text, _CALL_CHARS)


def shown(line: Line, policy: CompactionPolicy, most: int) -> str:
    """Return a message as a summarizer is shown it: cut after ``most`` characters, 0 for none; "" if it says nothing.

    What is cut says how long it was, and which tools it called.
    """
    body = serialize_conversation([line.message], policy)
    if not body:
        return ""
    if 0 < most < len(body):
        body = f"{body[:most]} [TRUNCATED — {len(body)} chars total]"
        if line.calls:
            more = ", …" if len(line.calls) > _MOST_CALLS else ""
            body += f"\n  [Tool calls: {', '.join(line.calls[:_MOST_CALLS])}{more}]"
    escaped = _LOOKS_LIKE_A_HEADING.sub(r"\\", body)
    return f"{line.heading}\n{escaped}"
