"""Stores to compare with the framework's own, and what is compared of what they do."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.usage import RequestUsage

import flue_py
from flue_py.adapters.pydantic_ai import FlueConversationStore
from tests.postgres import NewDatabase

PLACES = ("memory", "file", "postgres")

Scenario: TypeAlias = Callable[["Seen"], Awaitable[None]]

_START = datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def opened(place: str, folder: Path, new_database: NewDatabase) -> Iterator[FlueConversationStore]:
    """Open a store of ours of one kind; at the end it has to be sound."""
    if place == "memory":
        with flue_py.sync.open(":memory:") as memory:
            yield FlueConversationStore(memory)
            assert memory.verify().problems == []
        return
    target = str(folder / "a.db") if place == "file" else new_database()
    store = FlueConversationStore.open(target)
    try:
        yield store
    finally:
        asyncio.run(store.close())
    with flue_py.sync.open(target) as again:
        assert again.verify().problems == []


def asked(text: str, number: int = 0) -> ModelRequest:
    """A prompt, with the time of its number."""
    at = _START + timedelta(seconds=number)
    return ModelRequest(parts=[UserPromptPart(text, timestamp=at)], timestamp=at, run_id=f"run-{number}")


def answered(text: str, number: int = 0) -> ModelResponse:
    """An answer, with the time of its number."""
    return ModelResponse(
        parts=[TextPart(text)],
        usage=RequestUsage(input_tokens=10 + number, output_tokens=3),
        timestamp=_START + timedelta(seconds=number),
        model_name="large-1",
        provider_name="example",
        run_id=f"run-{number}",
    )


def turns(count: int, first: int = 0) -> list[ModelMessage]:
    """Turns of a prompt and an answer."""
    numbers = range(first, first + count)
    return [each for n in numbers for each in (asked(f"question {n}", n), answered(f"answer {n}", n))]


class Seen:
    """A store, and all that it was seen to do: ids that it draws are told by when they were first seen."""

    def __init__(self, store: ConversationStore) -> None:
        self.store = store
        self.seen: list[object] = []
        self._names: dict[str, str] = {}

    async def do(self, call: Awaitable[Any]) -> Any:
        """Wait for a call, note what came of it, and return it; None where it was refused."""
        try:
            result = await call
        except (ConversationConflict, UserError) as error:
            self.seen.append((type(error).__name__, self._told(str(error))))
            return None
        except LookupError:
            self.seen.append("LookupError")
            return None
        self.seen.append(self._shown(result))
        return result

    async def look(self, *conversation_ids: str) -> None:
        """Note all that is there of some conversations."""
        for each in conversation_ids:
            await self.do(self.store.load(each))
            await self.do(self.store.load_entries(each))
            record = await self.do(self.store.read_record(each))
            for branch in [] if record is None else record.branches:
                await self.do(self.store.read_history(branch))
        await self.do(self.store.list_conversations())

    def _shown(self, value: object) -> object:
        if isinstance(value, list):
            return [self._shown(each) for each in value]
        if isinstance(value, ConversationEntry):
            return (self._name(value.id), self._name(value.parent_id), value.message)
        if isinstance(value, ConversationRecord):
            drawn = {"head_id": self._name(value.head_id), "forked_at": self._name(value.forked_at)}
            branches = [str(self._name(each)) for each in value.branches]
            return dataclasses.replace(value, **drawn, branches=branches, revision="", updated_at=_START)
        if isinstance(value, Conversation):
            return (dataclasses.replace(value, revision=None), value.new_message_index)
        return value

    def _name(self, drawn: str | None) -> str | None:
        return None if drawn is None else self._names.setdefault(drawn, f"id {len(self._names)}")

    def _told(self, text: str) -> str:
        for drawn, name in self._names.items():
            text = text.replace(repr(drawn), name)
        return text


async def the_same(store: ConversationStore, scenario: Scenario) -> None:
    """Say that a store does in a scenario what the framework's own does."""
    wanted, found = Seen(InMemoryConversationStore()), Seen(store)
    await scenario(wanted)
    await scenario(found)
    for number, (one, other) in enumerate(zip(wanted.seen, found.seen, strict=True)):
        assert other == one, f"{scenario}, step {number}"
