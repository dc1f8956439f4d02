"""Chats of Cursor's command line: databases made by hand, as the published readers describe them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.errors import UnreadableFile
from flue_py.formats.cursor_cli import beside_cursor_cli, gather_cursor_cli
from flue_py.formats.registry import recognize
from flue_py.sessions.store import Store
from tests.checks import raises
from tests.formats.transcripts import Seen, all_seen, import_file
from tests.tables import inputs

pytestmark = pytest.mark.anyio

CHAT = "5d3c0f0e-0000-4000-8000-000000000001"
SYSTEM = {"role": "system", "content": "You are an agent."}
INFO = {"role": "user", "content": "<user_info>\nOS Version: linux\n</user_info>"}
SAID = "<user_query>\nCount the files.\n</user_query>"
TALK: list[dict[str, Any]] = [
    SYSTEM,
    INFO,
    {"role": "user", "content": [{"type": "text", "text": SAID}], "providerOptions": {"cursor": {"requestId": "r1"}}},
    {
        "role": "assistant",
        "id": "1",
        "content": [
            {
                "type": "reasoning", "text": "List them.", "signature": "sig",
                "providerOptions": {"cursor": {"modelName": "claude-4.5-opus"}},
            },
            {"type": "redacted-reasoning", "data": "zzz"},
            {"type": "text", "text": "I look."},
            {"type": "tool-call", "toolCallId": "c1\nfc_1", "toolName": "Shell", "args": {"command": "ls"}},
            {"type": "tool-call", "toolCallId": "c2", "toolName": "Read", "args": {"path": "a"}},
        ],
    },
    {
        "role": "tool",
        "id": "c1",
        "content": [
            {"type": "tool-result", "toolCallId": "c1\nfc_1", "toolName": "Shell", "result": "a b", "kept": 1},
            {
                "type": "tool-result", "toolCallId": "c2", "toolName": "Read",
                "result": [{"type": "text", "text": "denied"}], "isError": True,
            },
        ],
    },
    {"role": "assistant", "id": "1", "content": "Two."},
]  # fmt: skip
SUMMARY = {
    "role": "user",
    "content": "[Previous conversation summary]: they counted.",
    "providerOptions": {"cursor": {"isSummary": True}},
}
MORE = [
    {"role": "user", "content": "And now?"},
    {"role": "assistant", "content": [{"type": "text", "text": "Still two."}]},
]


def number(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + number(value >> 7)


def wire(field: int, value: bytes | int) -> bytes:
    """Return a field of a record of protobuf."""
    if isinstance(value, int):
        return number(field << 3) + number(value)
    return number(field << 3 | 2) + number(len(value)) + value


class Chat:
    """A database of a chat, as the program writes it."""

    def __init__(self, home: Path, name: str = CHAT, title: str = "New Agent", **about: Any) -> None:
        self.about: dict[str, Any] = {"agentId": name, "name": title, "createdAt": 1_785_695_807_732, **about}
        self.file = home / f".cursor/chats/0123/{name}/store.db"
        self.file.parent.mkdir(parents=True)
        with closing(sqlite3.connect(self.file)) as database:
            database.execute("CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB)")
            database.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")

    def put(self, value: Any) -> bytes:
        """Store a message or a record, and return its digest."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        digest = sha256(data)
        with closing(sqlite3.connect(self.file, isolation_level=None)) as database:
            database.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (digest.hexdigest(), data))
        return digest.digest()

    def archive(self, messages: list[Any], summary: str, message: Any) -> bytes:
        """Store an archive, and return the field that names it."""
        names = b"".join(wire(1, self.put(item)) for item in messages)
        return wire(13, self.put(names + wire(2, summary.encode()) + wire(3, 0) + wire(4, self.put(message))))

    def save(self, messages: list[Any], *others: bytes) -> Path:
        """Store a root record as the latest one, and return the file."""
        root = b"".join(wire(1, self.put(message)) for message in messages) + b"".join(others)
        about = {**self.about, "latestRootBlobId": self.put(root + wire(10, 1)).hex()}
        with closing(sqlite3.connect(self.file, isolation_level=None)) as database:
            database.execute("INSERT OR REPLACE INTO meta VALUES ('0', ?)", (json.dumps(about).encode().hex(),))
        return self.file


async def imported(store: Store, file: Path) -> Seen:
    """Return the chat after an import without faults."""
    report = await import_file(store, file)
    assert (report.format, report.skipped, report.repaired, dict(report.unknown_kinds)) == ("cursor-cli", (), (), {})
    assert (await store.verify()).problems == []
    return (await all_seen(store))[CHAT]


def texts(context: list[Any]) -> list[str]:
    return [
        content if isinstance(content := message["content"], str) else content[0].get("text", content[0]["type"])
        for message in context
    ]


async def test_messages_calls_results_and_facts_of_the_chat(tmp_path: Path, store: flue_py.Store) -> None:
    chat = Chat(tmp_path, lastUsedModel="m")
    tokens = wire(5, wire(1, 28_484) + wire(2, 200_000))
    chat.save(TALK, tokens, wire(9, b"file:///home/dev/my%20demo"))
    (chat.file.parent / "meta.json").write_text(json.dumps({"title": "Counting files", "createdAtMs": 5}))
    seen = await imported(store, chat.file)
    info = (await store.find_session(CHAT)).info
    assert (info.title, info.auto_title, info.cwd) == (None, "Counting files", "/home/dev/my demo")
    assert (info.spent_tokens, info.created_us) == (0, 1_785_695_807_732_000)
    assert info.metadata["imported"]["tokens"] == [28_484, 200_000]  # type: ignore[index, call-overload]
    assert [message["role"] for message in seen.context] == [
        "system", "user", "user", "assistant", "toolResult", "toolResult", "assistant",
    ]  # fmt: skip
    answer = seen.context[3]
    assert answer["model"] == "claude-4.5-opus"
    assert [part["type"] for part in answer["content"]] == ["thinking", "thinking", "text", "toolCall", "toolCall"]
    assert (answer["content"][0]["thinkingSignature"], answer["content"][1]["redacted"]) == ("sig", True)
    assert answer["content"][3] == {
        "type": "toolCall",
        "id": "c1\nfc_1",
        "name": "Shell",
        "arguments": {"command": "ls"},
    }
    assert [(message["toolName"], message.get("isError")) for message in seen.context[4:6]] == [
        ("Shell", None), ("Read", True),
    ]  # fmt: skip
    assert texts(seen.context)[4:] == ["a b", "denied", "Two."]
    assert any('"kept":1' in (extra or "") for *_, extra in seen.entries.values())


async def test_a_chat_grows_and_every_state_gives_the_whole(tmp_path: Path) -> None:
    chat = Chat(tmp_path)
    async with flue_py.open(":memory:") as store:
        for length in range(1, len(TALK) + 1):
            seen = await imported(store, chat.save(TALK[:length]))
        assert not (await import_file(store, chat.file)).changed
        # The person took the last message back.
        report = await import_file(store, chat.save(TALK[:-1]))
        assert (report.added, report.changed) == (0, True)
        assert (await import_file(store, chat.save(TALK))).changed
        before = beside_cursor_cli(chat.file)
        (chat.file.parent / "meta.json").write_text("{}")
        assert beside_cursor_cli(chat.file) != before
    async with flue_py.open(":memory:") as store:
        assert await imported(store, chat.file) == seen


async def test_a_compaction_stands_for_the_messages_of_its_archive(tmp_path: Path) -> None:
    chat = Chat(tmp_path)
    async with flue_py.open(":memory:") as store:
        plain = await imported(store, chat.save(TALK))
        first = chat.archive(TALK[2:], "they counted.", SUMMARY)
        seen = await imported(store, chat.save([SYSTEM, INFO, SUMMARY, *MORE], first))
        assert plain.entries.items() <= seen.entries.items()
        expected = ["You are an agent.", f"[Context Summary]\n\n{SUMMARY['content']}", INFO["content"], "And now?"]
        assert texts(seen.context) == [*expected, "Still two."]
        path = await (await store.find_session(CHAT)).get_active_path()
        assert [entry.kind for entry in path] == ["message"] * 7 + ["compaction"] + ["message"] * 3
        other = {**SUMMARY, "content": "all of it"}
        second = chat.archive(MORE, "all", other)
        again = await imported(
            store, chat.save([SYSTEM, INFO, other, {"role": "user", "content": "Go on."}], first, second)
        )
        assert seen.entries.items() <= again.entries.items()
        assert texts(again.context)[1:] == ["[Context Summary]\n\nall of it", INFO["content"], "Go on."]
    async with flue_py.open(":memory:") as store:
        assert (await imported(store, chat.file)).context == again.context


async def test_a_list_without_its_summary_is_the_context_and_archives_stand_beside_it(tmp_path: Path) -> None:
    chat = Chat(tmp_path)
    async with flue_py.open(":memory:") as store:
        archive = chat.archive(TALK[2:], "they counted.", SUMMARY)
        seen = await imported(store, chat.save([SYSTEM, *MORE], archive))
        assert texts(seen.context) == ["You are an agent.", "And now?", "Still two."]
        assert len(seen.entries) == 3 + 5 + 1
    async with flue_py.open(":memory:") as store:
        seen = await imported(store, chat.save([SYSTEM, SUMMARY, *MORE]))
        assert texts(seen.context)[1:] == [f"[Context Summary]\n\n{SUMMARY['content']}", "And now?", "Still two."]


async def test_the_chat_of_a_subagent_is_a_task(tmp_path: Path, store: flue_py.Store) -> None:
    chat = Chat(tmp_path, title="Count")
    child = Chat(tmp_path, "child-1", subagentInfo={"parentAgentId": CHAT, "toolCallId": "c1", "typeName": "explore"})
    await import_file(store, child.save([SYSTEM, *MORE]))
    await imported(store, chat.save(TALK))
    (link,) = await (await store.find_session(CHAT)).tasks.links()
    assert (link.child_id, link.task_id) == ("child-1", "child-1")
    assert (await store.find_session(CHAT)).info.auto_title == "Count"
    assert (await store.find_session("child-1")).info.auto_title is None


@inputs(
    ("about", "root", "skipped"),
    [
        ({"latestRootBlobId": "00" * 32}, None, 0),
        ({"latestRootBlobId": 7}, None, 0),
        ({}, wire(1, b"x" * 32) + wire(1, b"short") + wire(1, 5), 1),
        ({}, wire(13, b"y" * 32) + wire(5, b"\xff"), 1),
        ({"agentId": "", "createdAt": "soon", "name": [], "subagentInfo": 3}, wire(1, b"x" * 32), 1),
    ],
)
async def test_records_that_are_not_there_cost_themselves_only(
    about: dict[str, Any], root: bytes | None, skipped: int, tmp_path: Path
) -> None:
    chat = Chat(tmp_path)
    chat.about |= about
    chat.save([])
    if root is not None or about:
        value = {**chat.about, **({"latestRootBlobId": chat.put(root).hex()} if root is not None else {})}
        with closing(sqlite3.connect(chat.file, isolation_level=None)) as database:
            database.execute("UPDATE meta SET value = ?", (json.dumps(value).encode().hex(),))
    async with flue_py.open(":memory:") as store:
        report = await import_file(store, chat.file)
        assert (len(report.skipped), report.sessions) == (skipped, ())


@inputs(
    "message", [{"role": "tool", "content": "LOST"}, {"role": "assistant", "content": {"a": "LOST"}}, {"role": "x"}]
)
async def test_a_message_of_another_form_is_kept_and_counted(message: dict[str, Any], tmp_path: Path) -> None:
    chat = Chat(tmp_path)
    chat.save([{"role": "user", "content": "Hi"}, message])
    async with flue_py.open(":memory:") as store:
        report = await import_file(store, chat.file)
        (_, kept) = await (await store.find_session(CHAT)).get_active_path()
    assert (dict(report.unknown_kinds), kept.data) == ({f"cursor.{message['role']}": 1}, message)


async def test_a_damaged_root_is_refused_and_other_databases_are_not_taken(tmp_path: Path) -> None:
    chat = Chat(tmp_path)
    head = chat.file.read_bytes()
    assert recognize(head, str(chat.file)) is None
    for damaged in (b"\x0a\x20short", b"\x80", b"\x0b", b"\xff" * 11, wire(1, b"")[:1]):
        chat.about["latestRootBlobId"] = chat.put(damaged).hex()
        with closing(sqlite3.connect(chat.file, isolation_level=None)) as database:
            value = json.dumps(chat.about).encode().hex()
            database.execute("INSERT OR REPLACE INTO meta VALUES ('0', ?)", (value,))
        found = recognize(head, str(chat.file))
        assert [found.name if found else None] == ["cursor-cli"]
        async with flue_py.open(":memory:") as store:
            await raises(UnreadableFile, import_file(store, chat.file), match="its root record is damaged")


def test_one_message_that_is_named_without_end_costs_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Chat(tmp_path)
    monkeypatch.setattr("flue_py.formats.gathered.MOST_BYTES", 2000)
    file = chat.save([{"role": "user", "content": "x" * 1000}] * 2000)
    assert sum(map(len, gather_cursor_cli(file))) < 400_000
