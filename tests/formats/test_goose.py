"""Goose: the database that the program wrote, after each step, and rows made by hand."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.core.kinds import EXCLUSION
from flue_py.core.trees import check_imported_session, checked_imported_entries
from flue_py.errors import UnreadableFile
from flue_py.formats.gathered import SESSION
from flue_py.formats.goose import looks_like_goose, parse_goose
from flue_py.formats.kit import Notes, Row, SessionPart
from flue_py.formats.registry import find_format, recognize
from flue_py.sessions.store import Store
from tests.formats.transcripts import Seen, all_seen, import_file
from tests.formats.trees import shown
from tests.programs.made import unpack
from tests.tables import inputs
from tests.values import existing

OLD = "20250325_200615"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the database after each step, in order, by the name of the step."""
    folder = unpack("goose-1.52.0", tmp_path_factory.mktemp("goose"))
    files = {}
    for script in sorted(folder.glob("*.sql")):
        file = files[script.stem[3:]] = folder / script.stem / "sessions.db"
        file.parent.mkdir()
        with closing(sqlite3.connect(file)) as database:
            database.executescript(script.read_text())
    return files


async def imported(store: Store, file: Path) -> dict[str, Seen]:
    """Return the sessions after an import, by the part of their id behind the date."""
    report = await import_file(store, file)
    assert (report.format, report.skipped, report.repaired, dict(report.unknown_kinds)) == ("goose", (), (), {})
    assert (await store.verify()).problems == []
    return {name.split("_")[1]: session for name, session in (await all_seen(store)).items()}


def spent(sessions: dict[str, Seen]) -> int:
    """Return the tokens of all calls."""
    return sum(session.spent_tokens for session in sessions.values())


def in_short(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the parts of messages, ours or of a request, each with the role and a word for it."""
    short: list[tuple[str, str]] = []
    for message in messages:
        role, content = message["role"], message.get("content") or []
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            kind, text = part["type"], part.get("text", "").removeprefix("[Context Summary]\n\n")
            if kind == "tool_result" or role in ("toolResult", "tool"):
                short.append(("result", str(part.get("content", text))))
            elif kind in ("toolCall", "tool_use"):
                short.append(("call", json.dumps(part.get("input", part.get("arguments")))))
            else:
                short.append((role, text or part["thinking"]))
        short += [("call", call["function"]["arguments"]) for call in message.get("tool_calls", ())]
    return short


STEPS = [
    ("read", "1"), ("resumed", "1"), ("forked", "2"), ("edited", "1"), ("went on", "1"), ("by itself", "1"),
    ("delegated", "3"), ("cleared", "1"),
]  # fmt: skip


async def test_the_contexts_are_the_messages_that_were_sent(made: dict[str, Path]) -> None:
    sent = json.loads((made["read"].parent.parent / "sent.json").read_text())
    by_step = {step[3:]: messages for step, messages in sent.items()}
    for step, name in STEPS:
        async with flue_py.open(":memory:") as store:
            context = (await imported(store, made[step]))[name].context
        assert in_short(context)[:-1] == in_short(by_step[step]), step


async def test_calls_are_paid_once_and_sessions_are_named_and_linked(made: dict[str, Path]) -> None:
    async with flue_py.open(":memory:") as store:
        seen = await imported(store, made["no tool"])
        infos = {info.id.split("_")[1]: info for info in (await store.list_sessions(limit=100)).sessions}
        report = await import_file(store, made["no tool"])
    with closing(sqlite3.connect(made["no tool"])) as database:
        query = "SELECT id, accumulated_total_tokens, accumulated_cost FROM sessions"
        sums = {name.split("_")[1]: (tokens or 0, cost or 0) for name, tokens, cost in database.execute(query)}
    assert {name: session.spent_tokens for name, session in seen.items()} == {
        name: tokens for name, (tokens, _) in sums.items()
    }
    assert spent(seen) == 12_998
    assert float(infos["1"].spent) == pytest.approx(sums["1"][1])
    assert {name: (info.title, info.auto_title) for name, info in infos.items()} == {
        **dict.fromkeys(("1", "2", "5", "6"), (None, "Fruit notes")),
        "3": ("By hand", None),
        "4": (None, "Delegated task"),
        OLD.split("_")[1]: (None, "Old one"),
    }
    assert {part.session_id: part.task_of for part in report.sessions}[infos["4"].id] == infos["3"].id
    assert (infos["1"].cwd, infos["4"].kind) == ("/tmp/goose/m/work", "task")


async def test_every_state_of_the_database_is_caught_up(made: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    async with flue_py.open(":memory:") as store:
        for step, state in made.items():
            file.write_bytes(state.read_bytes())
            seen = await imported(store, file)
            async with flue_py.open(":memory:") as another:
                whole = await imported(another, state)
            for name, session in whole.items():
                # What an edit or `/clear` takes away stays as a branch, and stays paid.
                assert session.entries.items() <= seen[name].entries.items(), (step, name)
                assert (session.context, session.leaf) == (seen[name].context, seen[name].leaf), (step, name)
                assert session.title == seen[name].title, (step, name)
            # A fork pays for what it copied if the messages are gone from the session that had them first.
            assert spent(whole) == spent(seen), step
        assert (await import_file(store, made["cleared"])).added == 0


async def test_a_file_of_older_versions_is_the_session_that_the_database_has(made: dict[str, Path]) -> None:
    file = made["read"].parent.parent / f"{OLD}.jsonl"
    async with flue_py.open(":memory:") as store:
        before = (await imported(store, file))["200615"]
        after = (await imported(store, made["read"]))["200615"]
        again = await import_file(store, file)
    assert (again.added, len(before.entries), before.spent_tokens) == (0, 2, 30)
    assert (after.entries, after.spent_tokens) == (before.entries, 30)
    assert in_short(before.context) == [("user", "Hello."), ("assistant", "Hi.")]


async def test_a_file_that_the_database_has_gone_on_from_takes_nothing_back(
    made: dict[str, Path], tmp_path: Path, store: flue_py.Store
) -> None:
    file = tmp_path / "sessions.db"
    file.write_bytes(made["read"].read_bytes())
    row = ("n", OLD, "user", json.dumps([text("More?")]), 1742900002)
    names = "message_id, session_id, role, content_json, created_timestamp"
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute(f"INSERT INTO messages ({names}) VALUES (?, ?, ?, ?, ?)", row)
    await imported(store, file)
    seen = await imported(store, made["read"].parent.parent / f"{OLD}.jsonl")
    assert in_short(seen["200615"].context)[-1] == ("user", "More?")


async def test_an_exported_document_is_the_session_that_the_database_has(made: dict[str, Path]) -> None:
    files = sorted((made["read"].parent.parent / "export").glob("*.json"))
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as other:
        before = await imported(store, made["cleared"])
        for file in files:
            await imported(other, file)
            assert (await import_file(store, file)).added == 0
        after, alone = await all_seen(store), await all_seen(other)
        assert {name.split("_")[1]: session for name, session in after.items()} == before
        for name, session in after.items():
            assert (session.context, session.leaf) == (alone[name].context, alone[name].leaf), name
        # Those of messages that are gone, and of compactions, are in the database alone: 3,338 of the first session.
        assert (spent(before), spent(alone)) == (14_018, 10_680)
        infos = {info.id.split("_")[1]: info for info in (await other.list_sessions(limit=100)).sessions}
        assert (infos["3"].title, infos["1"].auto_title, infos["4"].kind) == ("By hand", "Fruit notes", "task")


async def test_a_database_of_older_versions_has_fewer_columns(made: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    file.write_bytes(made["resumed"].read_bytes())
    with closing(sqlite3.connect(file)) as database:
        database.executescript(
            "DROP TABLE usage_ledger; DROP INDEX idx_messages_message_id; DROP INDEX idx_sessions_parent;"
            "ALTER TABLE messages DROP COLUMN message_id; ALTER TABLE messages DROP COLUMN metadata_json;"
            "ALTER TABLE sessions DROP COLUMN parent_session_id; ALTER TABLE sessions DROP COLUMN accumulated_cost;"
        )
    async with flue_py.open(":memory:") as store:
        seen = await imported(store, file)
        newer = await imported(store, made["resumed"])
    # Without the calls, their sums are one call; those of the database since are not paid again.
    assert (seen["1"].spent_tokens, len(seen["1"].entries)) == (3160, 10)
    assert (seen["1"].context[-1].get("usage"), newer["1"].entries.keys()) == (None, seen["1"].entries.keys())


def message(role: str, *parts: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "created": 1790000000, "content": [*parts], **fields}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def parsed(*rows: Any, **about: Any) -> tuple[SessionPart, Notes]:
    notes = Notes("row")
    first = {"type": SESSION, "id": "20260101_1", **about}
    session = existing(parse_goose([Row(line, b"", row) for line, row in enumerate([first, *rows], 1)], notes, True))
    check_imported_session(session.session)
    checked_imported_entries(session.entries)
    return session, notes


def seen_as(*, user: bool, agent: bool, **fields: Any) -> dict[str, Any]:
    return {"userVisible": user, "agentVisible": agent, **fields}


def test_rows_that_a_model_is_not_shown_are_kept_outside_the_context() -> None:
    session, _ = parsed(
        message("user", text("One."), metadata=seen_as(user=True, agent=False)),
        message("user", text("/prompts"), metadata=seen_as(user=True, agent=False)),
        message("assistant", text("None."), metadata=seen_as(user=True, agent=False)),
        message("user", text("Two.", annotations={"audience": ["user"]}), text("Three.")),
        message("assistant", {"type": "systemNotification", "msg": "Wait."}),
    )
    assert shown(session) == [("user", "Three.")]
    assert [entry.kind for entry in session.entries] == [
        "message", EXCLUSION, "goose.notice", "goose.notice", "message", "goose.systemNotification",
    ]  # fmt: skip
    assert "Two." in str(session.entries[4].extra)


@inputs(
    ("part", "ours"),
    [
        ({"type": "image", "data": "QQ==", "mimeType": "image/png"}, {"type": "image"}),
        ({"type": "reasoning", "text": "So."}, {"type": "thinking", "thinking": "So."}),
        ({"type": "redactedThinking", "data": "x"}, {"type": "thinking", "redacted": True, "thinkingSignature": "x"}),
        (
            {"type": "frontendToolRequest", "id": "c", "toolCall": {"value": {"name": "f", "arguments": None}}},
            {"type": "toolCall", "id": "c", "name": "f", "arguments": {}},
        ),
        (
            {"type": "toolRequest", "id": "c", "toolCall": {"status": "error", "error": "no"}},
            {"type": "toolCall", "name": "unparseable_tool_call"},
        ),
    ],
)
def test_parts_become_ours(part: dict[str, Any], ours: dict[str, Any]) -> None:
    session, notes = parsed(message("assistant", part))
    (entry,) = session.entries
    assert ours.items() <= json.loads(entry.payload)["content"][0].items()
    assert notes.repaired == []


async def test_a_damaged_database_is_read_as_far_as_it_says_something(made: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    file.write_bytes(made["no tool"].read_bytes())
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("UPDATE messages SET content_json = '[' WHERE id % 5 = 0")
        database.execute("UPDATE messages SET content_json = x'ff00', metadata_json = '7' WHERE id % 7 = 0")
        database.execute("UPDATE sessions SET id = '', working_dir = x'00' WHERE rowid = 3")
        database.execute("UPDATE sessions SET parent_session_id = id, recipe_json = '{' WHERE rowid = 5")
    async with flue_py.open(":memory:") as store:
        assert (await import_file(store, file)).skipped
        assert (await store.verify()).problems == []


def test_calls_of_older_sessions_are_looked_at_so_often_and_no_more(
    made: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def calls() -> list[str]:
        rows = [json.loads(line) for line in find_format("goose").gathered(made["forked"]) or ()]
        return [row["session_id"].split("_")[1] for row in rows if row["type"] == "call"]

    # Of the fork first its own, then those of the session that it may have copies of.
    assert calls() == ["1", "1", "1", "2", "1", "1", "1"]
    monkeypatch.setattr("flue_py.formats.goose._MOST_LOOKS", 0)
    assert calls() == ["1", "1", "1", "2"]


def test_files_are_recognised(made: dict[str, Path], tmp_path: Path) -> None:
    def name(file: Path) -> str | None:
        form = recognize(file.read_bytes()[:4096], str(file))
        return None if form is None else form.name

    old = made["read"].parent.parent / f"{OLD}.jsonl"
    headless = tmp_path / "old.jsonl"
    headless.write_bytes(old.read_bytes().partition(b"\n")[2])
    assert [name(file) for file in (made["read"], old, headless)] == ["goose"] * 3
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as database:
        database.executescript(
            "CREATE TABLE sessions (id); CREATE TABLE messages (id); CREATE TABLE schema_version (v)"
        )
    assert name(other) is None
    exported = next((made["read"].parent.parent / "export").glob("*.json"))
    without_suffix = tmp_path / "export"
    without_suffix.write_bytes(exported.read_bytes())
    rows = [list(find_format("goose").gathered(file) or ()) for file in (exported, without_suffix)]
    assert (name(without_suffix), rows[1]) == ("goose", rows[0])
    assert (name(exported), looks_like_goose(b'{"id": "x", "working_dirs": 1}')) == ("goose", False)
    assert not looks_like_goose(b'{"type": "x", "description": "", "message_count": 1}\n')
    other.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with pytest.raises(UnreadableFile):
        list(find_format("goose").gathered(other) or ())
