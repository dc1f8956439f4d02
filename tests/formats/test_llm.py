"""The log of llm: databases of the program itself, whose contexts are the messages that it sent."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.core.trees import check_imported_session, checked_imported_entries
from flue_py.errors import UnreadableFile
from flue_py.formats.kit import Notes, Row
from flue_py.formats.llm import looks_like_llm, parse_llm
from flue_py.formats.registry import find_format
from flue_py.sessions.store import Store
from tests.formats.transcripts import Seen, all_seen, import_file
from tests.programs.made import unpack
from tests.tables import inputs
from tests.values import existing


class Made:
    """The databases of the program, and the messages that it sent, by the last words of a person."""

    def __init__(self, folder: Path) -> None:
        self.folder = unpack("llm-0.36", folder)
        self.sent: dict[str, list[dict[str, Any]]] = json.loads((folder / "sent.json").read_text())

    def copied(self, folder: Path, name: str = "logs.db") -> Path:
        """Return a copy of a database that can be changed."""
        return Path(shutil.copyfile(self.folder / name, folder / "logs.db"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("llm"))


def in_short(messages: list[dict[str, Any]]) -> list[tuple[str, str, int, int]]:
    """Return the role, the text, and the numbers of pictures and calls of messages, ours or of a request."""
    found: list[tuple[str, str, int, int]] = []
    for message in messages:
        content = message.get("content") or ""
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        kinds = [part["type"] for part in parts]
        calls = kinds.count("toolCall") + len(message.get("tool_calls", ()))
        text = "".join(part.get("text", "") for part in parts)
        short = (
            message["role"].replace("toolResult", "tool"),
            text,
            kinds.count("image") + kinds.count("image_url"),
            calls,
        )
        # The older version sends the text and the calls of an answer as two messages.
        if found and short[:2] == ("assistant", "") and found[-1][0] == "assistant":
            found[-1] = (*found[-1][:3], calls)
        else:
            found.append(short)
    return found


def by_words(seen: dict[str, Seen], words: str) -> Seen:
    """Return the session whose last words of a person are these: of a session and its fork the longer one."""
    lasts = [
        ([message for message in in_short(talk.context) if message[0] == "user"][-1][1], talk) for talk in seen.values()
    ]
    return max((talk for last, talk in lasts if last.endswith(words)), key=lambda talk: len(talk.entries))


async def imported(store: Store, file: Path) -> dict[str, Seen]:
    report = await import_file(store, file)
    assert (report.skipped, report.repaired, dict(report.unknown_kinds)) == ((), (), {})
    assert (await store.verify()).problems == []
    return await all_seen(store)


async def test_the_contexts_are_the_messages_that_were_sent(made: Made, store: flue_py.Store) -> None:
    seen = await imported(store, made.folder / "logs.db")
    infos = {info.id: info for info in (await store.list_sessions(limit=100)).sessions}
    assert len(seen) == 10
    for words in (
        "Two before.", "And then before?", "Look before.", "Two.", "And then?", "Look.", "A piped picture.",
        "Go on since.",
    ):  # fmt: skip
        assert in_short(by_words(seen, words).context)[:-1] == in_short(made.sent[words]), words
    talk = by_words(seen, "And then?")
    assert talk.usage.total_tokens == talk.spent_tokens == 1020 + 1412 + 2030
    assert talk.context[1]["usage"] == {
        "input": 400, "output": 20, "cacheRead": 600, "totalTokens": 1020, "reasoning": 8,
    }  # fmt: skip
    assert [message.get("toolName") for message in talk.context[2:4]] == ["llm_version", "llm_time"]
    # 7 calls before the update and 9 since; the refused ones are in no log, the fork repeats one.
    assert sum(session.spent_tokens for session in seen.values()) == 2 * (1020 + 1412) + 12 * 2030
    fork = next(info for info in infos.values() if info.auto_title == "A fork")
    assert (fork.spent_tokens, len(seen[fork.id].context)) == (0, 5)


async def test_a_conversation_goes_on_after_the_update(made: Made, tmp_path: Path, store: flue_py.Store) -> None:
    before = by_words(await imported(store, made.copied(tmp_path, "older.db")), "A piped picture before.")
    after = by_words(await imported(store, made.copied(tmp_path)), "Go on since.")
    assert before.entries.items() <= after.entries.items()
    # llm 0.36 sends the message again without its picture: a branch below the same system message.
    assert len(after.entries) == len(before.entries) + 4
    assert after.spent_tokens == 4060


async def test_every_state_of_the_database_is_caught_up(made: Made, tmp_path: Path) -> None:
    file = made.copied(tmp_path)
    async with flue_py.open(":memory:") as store:
        whole = await imported(store, file)
    with closing(sqlite3.connect(file)) as database:
        turns = database.execute("SELECT id, thread_id, tip_message_hash FROM turns ORDER BY rowid").fetchall()
    async with flue_py.open(":memory:") as store:
        for count in range(len(turns) + 1):
            file = made.copied(tmp_path)
            with closing(sqlite3.connect(file, isolation_level=None)) as database:
                database.execute("PRAGMA foreign_keys = OFF")
                for turn, thread, tip in turns[count:][::-1]:
                    database.execute("DELETE FROM turns WHERE id = ?", (turn,))
                    database.execute("DELETE FROM threads WHERE tip_message_hash = ?", (tip,))
                    left = [row for row in turns[:count] if row[1] == thread]
                    if left:
                        values = (left[-1][2], thread)
                        database.execute("UPDATE threads SET tip_message_hash = ? WHERE id = ?", values)
            await imported(store, file)
        again = await import_file(store, made.copied(tmp_path))
        seen = await all_seen(store)
    assert again.added == 0
    assert {name: session.context for name, session in seen.items()} == {
        name: session.context for name, session in whole.items()
    }
    assert {name: session.entries for name, session in seen.items()} == {
        name: session.entries for name, session in whole.items()
    }
    assert {name: session.spent_tokens for name, session in seen.items()} == {
        name: session.spent_tokens for name, session in whole.items()
    }


def heard(role: str, *parts: Any, name: str = "b2:1", **fields: Any) -> dict[str, Any]:
    return {"type": "message", "hash": name, "role": role, "parts": [*parts], "calls": [], **fields}


def context_of(*rows: dict[str, Any]) -> tuple[list[Any], Notes]:
    notes = Notes("row")
    first = {"type": "session", "session": "s"}
    parsed = existing(parse_llm([Row(line, b"", row) for line, row in enumerate([first, *rows], 1)], notes, True))
    check_imported_session(parsed.session)
    checked_imported_entries(parsed.entries)
    return [json.loads(entry.payload) for entry in parsed.entries], notes


@inputs(
    ("counts", "details", "usage"),
    [
        ((10, 5), None, {"input": 10, "output": 5, "totalTokens": 15}),
        ((None, None), {"x": 1}, None),
        ((10, None), None, {"input": 10}),
        ((100, 5), {"prompt_tokens_details": {"cached_tokens": 60}}, {"input": 40, "cacheRead": 60}),
        ((100, 5), {"input_tokens_details": {"cached_tokens": 60}}, {"input": 40, "cacheRead": 60}),
        ((100, 5), {"cache_read_input_tokens": 60}, {"input": 100, "cacheRead": 60}),
        (
            (100, 9),
            {"cachedContentTokenCount": 60, "thoughtsTokenCount": 4},
            {"input": 40, "output": 9, "reasoning": 4},
        ),
    ],
)
def test_details_say_how_the_counts_are_meant(
    counts: tuple[int | None, int | None], details: Any, usage: dict[str, int] | None
) -> None:
    call = {"id": "t", "model": "m", "input_tokens": counts[0], "output_tokens": counts[1], "token_details": details}
    (message,), notes = context_of(heard("assistant", {"type": "text", "text": "x"}, calls=[call]))
    assert notes.repaired == []
    assert (usage or {}).items() <= message.get("usage", {}).items()
    assert ("usage" in message) is (usage is not None)


def test_calls_without_ids_are_answered_in_their_order() -> None:
    call, result = (
        {"type": "tool_call", "name": "f", "arguments": {}},
        {"type": "tool_result", "name": "f", "output": "x"},
    )
    messages, _ = context_of(
        heard("assistant", call, call),
        heard("tool", result, {**result, "exception": "E"}, name="b2:2", parent_hash="b2:1"),
    )
    ids = [part["id"] for part in messages[0]["content"]]
    assert [message["toolCallId"] for message in messages[1:]] == ids
    assert len({*ids}) == 2
    assert [message.get("isError") for message in messages[1:]] == [None, True]


async def test_a_damaged_database_is_read_as_far_as_it_says_something(made: Made, tmp_path: Path) -> None:
    file = made.copied(tmp_path)
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("UPDATE messages SET parent_hash = hash WHERE rowid = 6")
        database.execute("UPDATE parts SET payload = '{', text = x'ff00' WHERE id % 3 = 0")
        database.execute("UPDATE turns SET tip_message_hash = 'gone', datetime_utc = 7 WHERE rowid = 9")
        database.execute("DELETE FROM messages WHERE rowid = 3")
        database.execute("UPDATE responses SET conversation_id = NULL, response = NULL WHERE rowid = 1")
    async with flue_py.open(":memory:") as store:
        await import_file(store, file)
        assert (await store.verify()).problems == []


def test_a_database_is_known_by_its_tables(made: Made, tmp_path: Path) -> None:
    file = made.folder / "logs.db"
    assert looks_like_llm(file.read_bytes()[:100], str(file))
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE conversations (id)")
    assert not looks_like_llm(other.read_bytes()[:100], str(other))
    other.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    assert not looks_like_llm(other.read_bytes()[:100], str(other))
    with pytest.raises(UnreadableFile):
        list(find_format("llm").gathered(other) or ())
