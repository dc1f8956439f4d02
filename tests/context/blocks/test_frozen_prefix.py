"""With every block on, a request begins with the bytes of the one before it, until a compaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import flue_py
from flue_py import JsonObject, Session, Store
from flue_py.context.blocks import Block, FileIndex, Gitignore, LocalMemory, RuntimeEnvironment
from flue_py.providers import LIMITS
from tests.adapters.messages.contexts import TRANSCRIPTS, context_of
from tests.context.blocks.blocks import Clock
from tests.context.pipeline.piped import begins_with
from tests.sessions.talk import assistant, user
from tests.tables import inputs

MOST_TURNS = 8
TOOLS: tuple[JsonObject, ...] = tuple(
    {"name": name, "description": f"{name}s a file", "parameters": {"type": "object", "properties": {"path": {}}}}
    for name in ("read", "edit")
)
BESIDE = ("tools", "system")
"""What a provider's cache has before the messages."""


class Surroundings:
    """What a runtime tells a model, and how it changes from turn to turn."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.clock = Clock()
        self.store = store
        self.folder = folder
        (folder / ".gitignore").write_text("build/\n")
        self.blocks: Sequence[Block] = [
            RuntimeEnvironment(cwd="/work", clock=self.clock),
            Gitignore(folder),
            LocalMemory(store),
            FileIndex(store),
        ]

    async def change(self, turn: int) -> None:
        self.clock.pass_by(hours=5, minutes=7)
        if turn % 2:
            await self.store.remember("fact", f"of turn {turn}")
        if turn % 3 == 2:
            (self.folder / ".gitignore").write_text(f"build/\n{turn}/\n")
        if turn % 4 < 2:
            await self.store.add_file("notes.md", "x" * turn)
        else:
            await self.store.remove_file("notes.md")


class Sent:
    """The latest request of each target, and whether each has begun with the one before it."""

    def __init__(self) -> None:
        self.before: dict[str, JsonObject] = {}
        self.kept: list[bool] = []

    async def send(self, session: Session) -> None:
        for target in LIMITS:
            request = await session.request(target, tools=[*TOOLS])
            before = self.before.get(target)
            sent: JsonObject = {"tools": [*request.tools], "system": request.system, "messages": [*request.messages]}
            if before is not None:
                is_same = all(json.dumps(sent[part]) == json.dumps(before[part]) for part in BESIDE)
                self.kept.append(is_same and begins_with(sent["messages"], before["messages"]))
            self.before[target] = sent


async def test_a_scripted_session_keeps_its_prefix_until_a_compaction(tmp_path: Path) -> None:
    sent = Sent()
    told = 0
    async with flue_py.open(":memory:") as store:
        around = Surroundings(tmp_path, store)
        session = await store.create_session()
        await session.append_message({"role": "system", "content": "You write code."})
        for turn in range(MOST_TURNS):
            await around.change(turn)
            told += len((await session.append_blocks(around.blocks)).told)
            await session.append_message(user(f"question {turn}"))
            await sent.send(session)
            call: JsonObject = {"type": "toolCall", "id": f"c{turn}", "name": "read", "arguments": {"path": "a"}}
            await session.append_message({"role": "assistant", "content": [call], "model": "m"})
            await session.append_message({"role": "toolResult", "toolCallId": f"c{turn}", "content": "text"})
            await sent.send(session)
            last = await session.append_message(assistant(f"answer {turn}"))
        assert told > MOST_TURNS
        assert sent.before["anthropic"]["tools"] == [*TOOLS]
        assert sent.kept == [True] * len(LIMITS) * (2 * MOST_TURNS - 1)
        await session.append_compaction("what was said", first_kept_entry_id=last.entry_id, tokens_before=100)
        done = await session.append_blocks(around.blocks)
        assert [each.name for each in done.told] == ["environment", "gitignore", "memory"]
        await session.append_message(user("and now?"))
        sent.kept.clear()
        await sent.send(session)
        assert sent.kept == [False] * len(LIMITS)


@inputs("name", TRANSCRIPTS)
async def test_a_real_session_keeps_its_prefix(name: str, tmp_path: Path) -> None:
    sent = Sent()
    messages = [item.data for item in context_of(name) if item.kind == "message"][:400]
    # Whatever it ends with, and if the user says nothing in it, there are turns.
    messages += [message for turn in range(3) for message in (user(f"go on {turn}"), assistant("gone on"))]
    turns = told = 0
    async with flue_py.open(":memory:", prices=False) as store:
        around = Surroundings(tmp_path, store)
        session = await store.create_session()
        for message in messages:
            is_turn = message["role"] == "user" and (turns < MOST_TURNS or "go on" in str(message["content"]))
            if is_turn:
                await around.change(turns)
                told += len((await session.append_blocks(around.blocks)).told)
            await session.append_message(message)
            if is_turn:
                await sent.send(session)
                turns += 1
    assert turns >= 3
    assert told >= turns
    assert sent.kept == [True] * len(LIMITS) * (turns - 1)
