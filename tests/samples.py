"""Entries and sessions as the contract uses them, and short ways to make and read them."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from inspect import Parameter, signature
from typing import TypeAlias

from msgspec.structs import replace

from flue_py.core import sessions
from flue_py.core.context import ContextEntry
from flue_py.core.context import context_of as context_items
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.ledger import Budget
from flue_py.core.usage import UsageWindow
from flue_py.db.backend import Backend
from flue_py.sessions import handle, request
from flue_py.sessions.session import Session

UNKNOWN = "no-such-id"


def user(text: str = "hello", **fields: JsonValue) -> NewEntry:
    """Return a user message."""
    return NewEntry.message({"role": "user", "content": text, **fields})


def assistant(text: str = "ok", *, tokens: int = 0, dollars: float = 0.0, **fields: JsonValue) -> NewEntry:
    """Return an assistant message that reports ``tokens`` input tokens and ``dollars``."""
    usage: JsonObject = {
        "input": tokens, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": tokens,
        "cost": {"input": dollars, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": dollars},
    }  # fmt: skip
    content: JsonValue = [{"type": "text", "text": text}]
    return NewEntry.message({"role": "assistant", "content": content, "usage": usage, **fields})


def call(*call_ids: str) -> NewEntry:
    """Return an assistant message that calls tools."""
    content: JsonValue = [{"type": "toolCall", "id": each, "name": "read", "arguments": {}} for each in call_ids]
    return NewEntry.message({"role": "assistant", "content": content})


def result(call_id: str) -> NewEntry:
    """Return the result of a tool call."""
    content: JsonValue = [{"type": "text", "text": call_id}]
    return NewEntry.message({"role": "toolResult", "toolCallId": call_id, "content": content})


def compaction(first_kept: str, summary: str = "so far", *, tokens: int = 0, dollars: float = 0.0) -> NewEntry:
    """Return a compaction whose summarisation used ``tokens`` input tokens and ``dollars``."""
    usage: JsonObject = {"input": tokens, "totalTokens": tokens, "cost": {"total": dollars}}
    return NewEntry.compaction(summary, first_kept_entry_id=first_kept, tokens_before=1000, usage=usage)


def talk(count: int, start: int = 0) -> list[NewEntry]:
    """Return ``count`` messages, user and assistant in turn; each assistant message used 10 tokens and 1 cent."""
    return [
        assistant(f"answer {n}", tokens=10, dollars=0.01) if n % 2 else user(f"question {n}")
        for n in range(start, start + count)
    ]


def placed(new: NewEntry, entry_id: str, parent_id: str | None = None, at_us: int | None = None) -> NewEntry:
    """Return the entry as an importer hands it in: with its id, parent and time."""
    return replace(new, id=entry_id, parent_id=parent_id, created_us=at_us)


async def new_session(
    backend: Backend, *entries: NewEntry, key: str | None = None, scope: str = "", cwd: str | None = None
) -> sessions.SessionInfo:
    """Return a new root session to which the entries were appended in one batch."""
    session = await backend.create_session(sessions.NewSession(key=key, scope=scope, cwd=cwd))
    await backend.append(session.id, entries)
    return await session_info(backend, session.id)


async def session_info(backend: Backend, session_id: str) -> sessions.SessionInfo:
    """Return a session that must be there."""
    info = await backend.get_session(session_id)
    assert info is not None
    return info


async def add(backend: Backend, session_id: str, *entries: NewEntry) -> tuple[str, ...]:
    """Append the entries at the stored leaf and return their ids."""
    return (await backend.append(session_id, entries)).entry_ids


async def talked(backend: Backend, count: int) -> tuple[sessions.SessionInfo, list[str]]:
    """Return a new root session of ``count`` messages, and their ids."""
    session = await new_session(backend, *talk(count))
    return session, await path_ids(backend, session.id)


async def path_of(backend: Backend, session_id: str, leaf: sessions.LeafChoice = sessions.STORED) -> list[Entry]:
    """Return the entries of the path."""
    return entries_of(await backend.read_path(session_id, leaf=leaf))


async def path_ids(backend: Backend, session_id: str, leaf: sessions.LeafChoice = sessions.STORED) -> list[str]:
    """Return the ids on the path, root to leaf."""
    return ids_of(await path_of(backend, session_id, leaf))


async def tree_ids(backend: Backend, session_id: str) -> list[str]:
    """Return the ids of all entries the session sees, in the store's order."""
    return ids_of(await backend.read_tree(session_id))


async def context_of(
    backend: Backend, session_id: str, leaf: sessions.LeafChoice = sessions.STORED
) -> list[tuple[str, JsonObject]]:
    """Return the context as (entry id, message) pairs, having checked that both ways to read it agree."""
    items = projected(await backend.read_context(session_id, leaf=leaf))
    assert (await backend.read_messages(session_id, leaf=leaf)).messages == [item.data for item in items]
    return [(item.entry_id, item.data) for item in items]


def projected(read: sessions.PathRead) -> list[ContextEntry]:
    """Return the context items that a read of the context stands for."""
    return context_items(entries_of(read), read.compaction)


def entries_of(read: sessions.PathRead) -> list[Entry]:
    """Return the entries of a read that does not go on with one before."""
    assert not read.goes_on
    return list(read.entries)


def ids_of(entries: Iterable[Entry]) -> list[str]:
    """Return the ids of entries, in their order."""
    return [entry.id for entry in entries]


class Snapshot(Frozen):
    """Everything a store tells about one session."""

    info: sessions.SessionInfo
    path: Sequence[Entry]
    context: Sequence[tuple[str, JsonObject]]
    tree: Sequence[Entry]
    usage: UsageWindow
    turns: Sequence[Entry]
    marks: Sequence[sessions.Mark]
    changes: Sequence[sessions.Change]
    log: Sequence[sessions.LogLine]
    links: Sequence[sessions.TaskLink]
    parents: Sequence[sessions.TaskLink]


async def snapshot(backend: Backend, session_id: str) -> Snapshot:
    """Return everything the store tells about the session."""
    return Snapshot(
        await session_info(backend, session_id),
        await path_of(backend, session_id),
        await context_of(backend, session_id),
        await backend.read_tree(session_id),
        await backend.read_usage(session_id, None),
        await backend.read_turns(session_id),
        await backend.read_marks(session_id),
        await backend.changes(session_id, 0, 1_000_000),
        await backend.read_log(session_id, before=None, limit=20),
        await backend.task_links(session_id),
        await backend.task_parents(session_id),
    )


StoreSnapshot: TypeAlias = tuple[sessions.StoreInfo, list[Snapshot], list[Budget]]


async def store_snapshot(backend: Backend) -> StoreSnapshot:
    """Return everything the store tells about itself (but its size), about every session, and about every budget."""
    page = await backend.list_sessions(scope=None, kind=None, limit=1_000_000, cursor=None)
    info = replace(await backend.info(), size_bytes=None)
    budgets = await backend.list_budgets(scope=None, after=None, limit=1_000_000)
    return info, [await snapshot(backend, session.id) for session in page.sessions], budgets


PICTURE = b"".join(sha256(b"picture %d" % number).digest() for number in range(500))
"""16,000 bytes that do not compress: in base64 they are long enough to be stored apart."""


def pictured(*pictures: bytes, text: str = "look", **fields: JsonValue) -> NewEntry:
    """Return a user message with pictures."""
    shown: list[JsonValue] = [
        {"type": "image", "data": b64encode(picture).decode(), "mimeType": "image/png"} for picture in pictures
    ]
    return NewEntry.message({"role": "user", "content": [{"type": "text", "text": text}, *shown], **fields})


def session_methods() -> set[str]:
    """Return the names of the public methods of a session; those of its groups as ``marks.pin``."""
    from tests.docs.reference import groups_of_session

    owners: list[tuple[str, type]] = [("", Session), *((f"{name}.", group) for name, group in groups_of_session())]
    return {
        prefix + name
        for prefix, owner in owners
        for name in dir(owner)
        if not name.startswith("_") and callable(getattr(owner, name))
    }


def parameters_of(function: Callable[..., object]) -> list[str]:
    """Return the names of the parameters of a function, those of an `Unpack` of options one by one."""
    parameters = signature(function).parameters.values()
    return [name for parameter in parameters for name in options_of(parameter) or [parameter.name]]


def options_of(parameter: Parameter) -> Iterable[str] | None:
    """Return the names of the options that a parameter stands for; None for any other parameter."""
    options = re.fullmatch(r"Unpack\[(?:\w+\.)?(\w+Options)\]", str(parameter.annotation))
    if options is None:
        return None
    kind: type = getattr(handle, options[1], None) or getattr(request, options[1])
    return kind.__annotations__
