"""Requests around the items of a session of the SDK, and the turns that they make up."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import TypedDict, cast

from flue_py import providers
from flue_py.adapters.items import OTHER, SHAPE, WHOLE, item_reading, items_of
from flue_py.core.context import ContextEntry, project_kept
from flue_py.core.entries import Entry
from flue_py.core.json import Frozen, JsonObject
from flue_py.core.kinds import COMPACTION
from flue_py.errors import InvalidArgument, shown
from flue_py.providers.lists import Said, said_of
from flue_py.providers.openai_responses import EXTRA
from flue_py.sessions.session import Session


class Aside(str):
    """The content of a message in place of an item that is in no form of the API, while a request is made around it."""

    item: JsonObject


def said_of_item(shown_item: ContextEntry, message: JsonObject) -> list[Said]:
    """Return the messages that a request is made of for an entry of the context, as it is: each prints as its items.

    An item that is in no form of the API stands in a message as `Aside`. O(size).
    """
    context_message = said_of(shown_item, message)
    is_odd = message.get("role") == OTHER or WHOLE in context_message.extra
    if not is_odd and shown_item.kind != COMPACTION:
        if EXTRA not in context_message.extra and len(providers.to_provider(message, SHAPE).messages) == 1:
            # Without this a request gives an answer an id that it did not come with.
            return [context_message.with_message(context_message.message, {EXTRA: {}})]
        return [context_message]
    names: dict[str, str] = {}
    entry_id = shown_item.entry_id
    readings = [item_reading(item, names, "item") for item in items_of(shown_item)]
    return [
        Said({"role": "user", "content": _aside(item)}, entry_id=entry_id)
        if message is None
        else Said(message, {EXTRA: difference}, entry_id)
        for item, message, difference in readings
    ]


def _aside(item: JsonObject) -> Aside:
    aside = Aside("an item in no form of the API")
    aside.item = item
    return aside


# Turns of a branch, as `AdvancedSQLiteSession` has them
#
# A turn begins with an item of the user. Turns are counted from 1 along the whole path, also those that a compaction
# has summed up, so that a branch can begin before any of them; items before the first turn are in turn 0.


class ConversationTurn(TypedDict):
    """A turn: its number, the words of the user, a beginning of them as text, and when (ISO 8601, UTC)."""

    turn: int
    content: str
    full_content: object
    timestamp: str
    can_branch: bool


class TurnItem(TypedDict):
    """An item of a turn: ``user``, ``assistant`` or its type, and the name of the tool that it calls, if it does."""

    type: str
    tool_name: str | None


class Turn(Frozen):
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


async def turns_of(session: Session) -> list[Turn]:
    """Return the first items of the turns of a branch. O(path)."""
    return [Turn(*numbered) for numbered in await _numbered(session) if numbered[2].get("role") == "user"]


async def conversation_turns(session: Session) -> list[ConversationTurn]:
    """Return the turns of a branch, with the first 100 characters of each. O(path)."""
    return [_conversation_turn(turn, _PREVIEW) for turn in await turns_of(session)]


async def turns_with(session: Session, term: str) -> list[ConversationTurn]:
    """Return the turns in which the user said a text, in whatever case its ASCII letters are. O(path)."""
    if not isinstance(term, str):
        raise InvalidArgument(f"search_term: should be a string, not {shown(term)}")
    pattern = re.compile(re.escape(term), re.IGNORECASE | re.ASCII)
    turns = await turns_of(session)
    return [_conversation_turn(turn) for turn in turns if any(map(pattern.search, _texts(turn.item)))]


async def by_turns(session: Session) -> dict[int, list[TurnItem]]:
    """Return the items of a branch by turn, in order, without their content. O(path)."""
    turns: dict[int, list[TurnItem]] = {}
    for number, _, item in await _numbered(session):
        turns.setdefault(number, []).append(TurnItem(type=_type_of(item), tool_name=_tool_of(item)))
    return turns


async def tools_used(session: Session) -> list[tuple[str, int, int]]:
    """Return how often each tool was called in each turn: name, calls, turn; by turn, then by name. O(path)."""
    calls: Counter[tuple[int, str]] = Counter()
    for number, items in (await by_turns(session)).items():
        called = [item for item in items if item["type"] in _CALLS]
        if not any(item["type"] == "tool_search_call" for item in called):
            called += [item for item in items if item["type"] == "tool_search_output"]
        calls.update((number, item["tool_name"] or "") for item in called)
    return [(name, count, number) for (number, name), count in sorted(calls.items())]


async def _numbered(session: Session) -> list[tuple[int, Entry, Mapping[str, object]]]:
    """Return the items of the whole path, but for those that are excluded, with their turns and their entries."""
    numbered: list[tuple[int, Entry, Mapping[str, object]]] = []
    number = 0
    for shown_item in project_kept(await session.get_active_path()):
        for item in items_of(shown_item):
            number += item.get("role") == "user"
            numbered.append((number, shown_item.entry, cast("Mapping[str, object]", item)))
    return numbered


def _conversation_turn(turn: Turn, characters: int | None = None) -> ConversationTurn:
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
