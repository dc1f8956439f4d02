"""The turns of a branch, as `AdvancedSQLiteSession` tells of them: what was asked in each, and what was done for it.

A turn begins with an item of the user. Turns are counted from 1 along the whole path, also those that a compaction has
summed up, so that a branch can begin before any of them; what comes before the first is turn 0.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from flue_py.adapters.openai_agents.items import items_of
from flue_py.core.entries import Entry
from flue_py.core.projection import project_kept
from flue_py.errors import InvalidArgument, shown
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from agents import TResponseInputItem


class ConversationTurn(TypedDict):
    """A turn: its number, what the user said, a beginning of that as text, and when (ISO 8601, UTC)."""

    turn: int
    content: str
    full_content: object
    timestamp: str
    can_branch: bool


class TurnItem(TypedDict):
    """An item of a turn: ``user``, ``assistant`` or its type, and the name of the tool that it calls, if it does."""

    type: str
    tool_name: str | None


class Asked(NamedTuple):
    """The item that a turn begins with, and its entry."""

    number: int
    entry: Entry
    item: Mapping[str, object]


_PREVIEW = 100
_CALLS = frozenset(
    {
        "tool_call",
        "function_call",
        "computer_call",
        "file_search_call",
        "web_search_call",
        "code_interpreter_call",
        "tool_search_call",
        "custom_tool_call",
        "mcp_call",
        "mcp_approval_request",
        "shell_call",
        "apply_patch_call",
    }
)
_OF_A_SERVER = frozenset({"mcp_call", "mcp_approval_request"})
_NAMED_BY_TYPE = _CALLS - _OF_A_SERVER - {"tool_call", "function_call", "custom_tool_call", "tool_search_call"}
_SEARCHES = frozenset({"tool_search_call", "tool_search_output"})


async def turns_of(session: Session) -> list[Asked]:
    """Return what the turns of a branch begin with. O(path)."""
    found: list[Asked] = []
    for number, entry, item in _numbered(await _said(session)):
        if item.get("role") == "user" and (not found or found[-1].number < number):
            found.append(Asked(number, entry, item))
    return found


async def conversation_turns(session: Session) -> list[ConversationTurn]:
    """Return the turns of a branch, with the first 100 characters of each. O(path)."""
    return [_told(turn, _PREVIEW) for turn in await turns_of(session)]


async def turns_with(session: Session, term: str) -> list[ConversationTurn]:
    """Return the turns in which the user said a text, in whatever case its ASCII letters are. O(path)."""
    if not isinstance(term, str):
        raise InvalidArgument(f"search_term: should be a string, not {shown(term)}")
    pattern = re.compile(re.escape(term), re.IGNORECASE | re.ASCII)
    return [_told(turn) for turn in await turns_of(session) if any(map(pattern.search, _texts(turn.item)))]


async def by_turns(session: Session) -> dict[int, list[TurnItem]]:
    """Return the items of a branch by their turns, in order, without what they say. O(path)."""
    turns: dict[int, list[TurnItem]] = {}
    for number, _, item in _numbered(await _said(session)):
        turns.setdefault(number, []).append(TurnItem(type=_type_of(item), tool_name=_tool_of(item)))
    return turns


async def tools_used(session: Session) -> list[tuple[str, int, int]]:
    """Return how often each tool was called in each turn: name, calls, turn; by turn, then by name. O(path)."""
    calls: Counter[tuple[int, str]] = Counter()
    for number, items in (await by_turns(session)).items():
        called = [each for each in items if each["type"] in _CALLS]
        if not any(each["type"] == "tool_search_call" for each in called):
            called += [each for each in items if each["type"] == "tool_search_output"]
        calls.update((number, each["tool_name"] or "") for each in called)
    return [(name, count, number) for (number, name), count in sorted(calls.items())]


async def _said(session: Session) -> list[tuple[Entry, TResponseInputItem]]:
    """Return the items of the whole path with their entries, but for those that are excluded."""
    path = project_kept(await session.get_active_path())
    return [(each.entry, item) for each in path for item in items_of(each)]


def _numbered(
    said: list[tuple[Entry, TResponseInputItem]],
) -> Iterator[tuple[int, Entry, Mapping[str, object]]]:
    number = 0
    for entry, item in said:
        fields: Mapping[str, object] = item  # type: ignore[assignment]
        number += fields.get("role") == "user"
        yield number, entry, fields


def _told(turn: Asked, characters: int | None = None) -> ConversationTurn:
    content = turn.item.get("content", "")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    is_cut = characters is not None and len(text) > characters
    return ConversationTurn(
        turn=turn.number,
        content=f"{text[:characters]}..." if is_cut else text,
        full_content=content,
        timestamp=turn.entry.created_at.isoformat(),
        can_branch=True,
    )


def _texts(item: Mapping[str, object]) -> list[str]:
    content = item.get("content", "")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text", "") for part in parts if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str)]


def _type_of(item: Mapping[str, object]) -> str:
    role = item.get("role")
    return str(role) if role in ("user", "assistant") else str(item.get("type") or "other")


def _tool_of(item: Mapping[str, object]) -> str | None:
    kind, name = str(item.get("type")), item.get("name")
    if kind in _OF_A_SERVER and "server_label" in item:
        named = [str(part) for part in (item["server_label"], name) if part]
        return ".".join(named) or None
    if kind in _SEARCHES:
        return "tool_search"
    if kind in _NAMED_BY_TYPE:
        return kind
    if name is None:
        return None
    space = item.get("namespace")
    return f"{space}.{name}" if name and space and space != name else str(name)
