"""Compare `FlueConversationStore` with what pydantic-ai has, and with what one would write for SQLite.

    python -m benchmarks.adapters.pydantic_ai [--short] [--rounds N]

pydantic-ai has no store in SQLite. So beside its store in memory stands `TableStore`, the fewest lines that keep its
promises there: a table of records and one of entries, each with its JSON, one connection, a worker thread. It knows
neither usage nor branches of a tree, and reads of the ledger are not compared.

Each round runs the same work on all of them, in an order that turns: turns of four messages (a prompt, a call, its
result, an answer), one save each; then, by a store that has read nothing yet, all messages, and the last 20; then 20 of
many conversations. CPU is that of the whole process. A ratio is taken inside a round and then the median; below 1 is
less than theirs needs.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from benchmarks.adapters.beside import Cost, cost_of, in_turns, parser_of, print_ratios, size_of
from flue_py.adapters.pydantic_ai import FlueConversationStore

WORDS = "the build fails because test collection imports a module that is missing on this runner so we pin it and run "
RECORD = TypeAdapter(ConversationRecord)
REVISION = "SELECT revision FROM records WHERE id = ?"
PATH = """
WITH RECURSIVE path(id, parent, message, back) AS (
  SELECT id, parent, message, 1 FROM entries WHERE id = ?
  UNION ALL SELECT e.id, e.parent, e.message, back + 1 FROM path p JOIN entries e ON e.id = p.parent WHERE back < ?
) SELECT id, parent, message FROM path ORDER BY back DESC
"""


class TableStore(ConversationStore):
    """Records and entries as JSON in two tables."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = wal")
        self._db.execute("PRAGMA synchronous = full")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS records "
            "(id TEXT PRIMARY KEY, revision TEXT, scope TEXT, updated TEXT, record TEXT)"
        )
        self._db.execute("CREATE INDEX IF NOT EXISTS by_time ON records (scope, updated)")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS entries (id TEXT PRIMARY KEY, parent TEXT, message TEXT) WITHOUT ROWID"
        )

    async def close(self) -> None:
        self._db.close()

    async def _ask(self, statement: str, *values: object) -> list[Any]:
        return await asyncio.to_thread(lambda: self._db.execute(statement, values).fetchall())

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        rows = await self._ask("SELECT record FROM records WHERE id = ?", conversation_id)
        return RECORD.validate_json(rows[0][0]) if rows else None

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        statement = "SELECT record FROM records WHERE ? IS NULL OR scope = ? ORDER BY updated DESC LIMIT ?"
        rows = await self._ask(statement, scope, scope, -1 if limit is None else limit)
        return [RECORD.validate_json(row[0]) for row in rows]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        new = [
            (each.id, each.parent_id, ModelMessagesTypeAdapter.dump_json([each.message]).decode()[1:-1])
            for each in new_entries
        ]
        text = RECORD.dump_json(record).decode()

        def write() -> None:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                rows = self._db.execute(REVISION, [record.conversation_id]).fetchall()
                if (rows[0][0] if rows else None) != expected_revision:
                    raise ConversationConflict(record.conversation_id)
                self._db.executemany("INSERT INTO entries VALUES (?, ?, ?)", new)
                at = record.updated_at.isoformat()
                row = (record.conversation_id, record.revision, record.scope, at, text)
                self._db.execute("REPLACE INTO records VALUES (?, ?, ?, ?, ?)", row)
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

        await asyncio.to_thread(write)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        await self._ask("DELETE FROM records WHERE id = ?", conversation_id)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        return (await self.read_history(entry_id, limit=1))[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        rows = await self._ask(PATH, head_id, 2**62 if limit is None else limit)
        messages = ModelMessagesTypeAdapter.validate_json(f"[{','.join(row[2] for row in rows)}]")
        return [
            ConversationEntry(id=row[0], parent_id=row[1], message=message)
            for row, message in zip(rows, messages, strict=True)
        ]


OPEN: dict[str, Callable[[Path], Any]] = {
    "memory": lambda _: InMemoryConversationStore(),
    "table": TableStore,
    "flue": FlueConversationStore.open,
}


def turn(number: int) -> list[ModelMessage]:
    """Return a turn as a run leaves it behind: 1.1 kB of text."""
    text = (WORDS * 8)[number % 40 : number % 40 + 600]
    usage = RequestUsage(input_tokens=1_000 + number, output_tokens=100)
    run = {"run_id": f"0198f3a2-7c1e-7000-8000-{number:012x}", "conversation_id": "one"}
    answer = {"usage": usage, "model_name": "large-1", "provider_name": "example", "finish_reason": "stop", **run}
    at = datetime.now(UTC)
    return [
        ModelRequest(parts=[UserPromptPart(f"{number}: {text[:200]}")], timestamp=at, **run),
        ModelResponse(parts=[ToolCallPart("read", '{"path":"build.log"}', f"call_{number:024x}")], **answer),
        ModelRequest(parts=[ToolReturnPart("read", text, f"call_{number:024x}")], timestamp=at, **run),
        ModelResponse(parts=[TextPart(text[:300])], **answer),
    ]


async def measured(name: str, folder: Path, turns: int, conversations: int) -> dict[str, Cost]:
    path = folder / f"{name}.db"
    store = OPEN[name](path)
    # The first save also loads what all later ones use, published prices for one.
    await store.save(Conversation(messages=turn(0), conversation_id="zero"))
    conversation = Conversation(conversation_id="one")
    await store.save(conversation)
    numbers = iter(range(turns))

    async def save() -> None:
        conversation.messages += turn(next(numbers))
        await store.save(conversation)

    found = {"append a turn": await cost_of(save, turns)}
    if name != "memory":
        await store.close()
        found["file, bytes"] = size_of(path)
        store = OPEN[name](path)
    await store.load("one", limit=1)
    found[f"load {4 * turns:,} messages"] = await cost_of(lambda: store.load("one"), 3)
    found["load the last 20"] = await cost_of(lambda: store.load("one", limit=20), 20)
    for number in range(conversations):
        await store.save(Conversation(messages=turn(number), conversation_id=f"other {number}"))
    found[f"list 20 of {conversations}"] = await cost_of(lambda: store.list_conversations(limit=20), 10)
    if name != "memory":
        await store.close()
    return found


def main() -> None:
    options = parser_of(__doc__).parse_args()
    turns, conversations, rounds = (5, 3, 1) if options.short else (250, 200, options.rounds)
    runs = in_turns([*OPEN], rounds, lambda name, folder: asyncio.run(measured(name, folder, turns, conversations)))
    print_ratios(runs, "flue", {"memory": "memory", "table": "table"})


if __name__ == "__main__":
    main()
