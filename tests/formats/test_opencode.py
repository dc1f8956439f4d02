"""OpenCode: a database that the program wrote, at every state that it went through, and rows made by hand."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.core.entries import replacements
from flue_py.errors import UnreadableFile
from flue_py.formats.gathered import SESSION
from flue_py.formats.kit import Notes, Row, SessionPart
from flue_py.formats.opencode import parse_opencode
from tests.checks import raises
from tests.formats.trees import context_of, shown, text_of, tree_of
from tests.programs.made import unpack
from tests.values import existing

Store = flue_py.Store


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("opencode-1.18.33", tmp_path_factory.mktemp("opencode"))


def row(number: int, kind: str, fields: dict[str, Any]) -> Row:
    return Row(number, b"", {**fields, "type": kind})


def message(name: str, role: str, *parts: dict[str, Any], at: int = 0, **fields: Any) -> list[tuple[str, Any]]:
    """Return the rows of a message; an answer is complete unless it has a time."""
    data = {"role": role, "time": {"created": at, "completed": at + 1}, **fields}
    rows = [("part", {"id": f"{name}p{i}", "message_id": name, "data": part}) for i, part in enumerate(parts)]
    return [("message", {"id": name, "data": data}), *rows]


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def user(name: str, *parts: dict[str, Any], **fields: Any) -> list[tuple[str, Any]]:
    return message(name, "user", *parts, **fields)


def answer(name: str, *parts: dict[str, Any], **fields: Any) -> list[tuple[str, Any]]:
    end = () if "time" in fields else ({"type": "step-finish"},)
    return message(name, "assistant", *parts, *end, **{"providerID": "p", "modelID": "m", "finish": "stop", **fields})


def rows_of(*messages: list[tuple[str, Any]], **about: Any) -> list[Row]:
    rows = [(SESSION, {"id": "ses_1", "title": "T", **about}), *(row for rows in messages for row in rows)]
    return [row(number, kind, fields) for number, (kind, fields) in enumerate(rows, 1)]


def parsed(*messages: list[tuple[str, Any]], take_all: bool = False, **about: Any) -> SessionPart:
    return existing(parse_opencode(rows_of(*messages, **about), Notes("row"), take_all))


async def imported(store: Store, path: Path) -> dict[str, Any]:
    """Return the facts of every session after an import: entries, leaf, names, tasks."""
    report = await flue_py.import_file(store, path)
    facts: dict[str, Any] = {}
    for session in report.sessions:
        read = await store.find_session(session.session_id)
        tree = await read.get_tree()
        entries = {(entry.id, entry.parent_id, entry.kind, json.dumps(entry.fields, sort_keys=True)) for entry in tree}
        facts[session.session_id] = (
            entries, read.leaf_id, read.title, read.info.auto_title, read.info.cwd, session.task_of
        )  # fmt: skip
    return facts


async def paid(store: Store) -> tuple[Any, ...]:
    usage = await store.usage()
    return usage.total.calls, usage.total.total_tokens, usage.total.picodollars, usage.total.unpriced_calls


# The database of the program


async def test_sessions_of_the_program_as_it_showed_them(made: Path, store: flue_py.Store) -> None:
    sessions = await imported(store, made / "opencode.db")
    (first, fork, parent, compacted, odd, undone, task) = sessions.values()
    assert [facts[2] or facts[3] for facts in sessions.values()] == [
        "Named by hand",
        "Fruit notes (fork #1)",
        "Delegation",
        "Fruit notes",
        "Fruit notes",
        "Fruit notes",
        "Count fruit (@general subagent)",
    ]
    assert first[3] == "Fruit notes"
    assert task[5] == list(sessions)[2]
    assert parent[5] is None
    assert first[4] == "/tmp/opencode/home/work"
    kinds = [sorted(kind for _, _, kind, _ in facts[0] if kind != "message") for facts in sessions.values()]
    assert kinds == [[], [], [], ["compaction", "opencode.user"], ["opencode.failed"] * 2, [], []]
    assert len(first[0]) == 11
    assert len(fork[0]) == 9
    assert len(compacted[0]) == 11
    assert len(odd[0]) == 10
    # The revert is open: the conversation is where it went back to.
    assert len(undone[0]) == 4
    assert next(body for name, _, _, body in undone[0] if name == undone[1]).count("Answer 2.") == 1
    with closing(sqlite3.connect(made / "opencode.db")) as database:
        rows = database.execute("SELECT data FROM event WHERE type = 'message.updated.1'").fetchall()
    answers = {info["id"]: info for (data,) in rows if (info := json.loads(data)["info"])["role"] == "assistant"}
    unique = {(info["time"]["created"], info["tokens"]["input"]): info for info in answers.values()}
    tokens = [info["tokens"] for info in unique.values()]
    assert await paid(store) == (
        19,
        sum(counts.get("total", 0) for counts in tokens),
        sum(round(info["cost"] * 10**12) for info in unique.values()),
        0,
    )


async def test_the_context_before_each_answer_is_the_request_that_the_program_sent(made: Path) -> None:
    assert (await compared(made, "opencode.db"))[0] == 19


def documents_of(database: Path, folder: Path) -> Iterator[Path]:
    """Yield each session of a database as ``opencode export`` prints it."""
    with closing(sqlite3.connect(database)) as connection:
        for name, where, title in connection.execute("SELECT id, directory, title FROM session ORDER BY time_created"):
            messages = [
                {
                    "info": json.loads(data) | {"id": message_id, "sessionID": name},
                    "parts": [
                        json.loads(part) | {"id": part_id, "sessionID": name, "messageID": message_id}
                        for part_id, part in connection.execute(
                            "SELECT id, data FROM part WHERE message_id = ? ORDER BY id", (message_id,)
                        )
                    ],
                }
                for message_id, data in connection.execute(
                    "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", (name,)
                )
            ]
            file = folder / f"{name}.json"
            file.write_text(
                json.dumps({"info": {"id": name, "directory": where, "title": title}, "messages": messages})
            )
            yield file


async def test_a_session_that_the_program_exported_is_the_one_in_its_database(made: Path, tmp_path: Path) -> None:
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as other:
        await flue_py.import_file(store, made / "opencode.db")
        bill = (await store.usage()).total
        files = list(documents_of(made / "opencode.db", tmp_path))
        assert len(files) > 3
        for file in files:
            assert (await flue_py.import_file(store, file)).added == 0
            await flue_py.import_file(other, file)
            session, same = await store.find_session(file.stem), await other.find_session(file.stem)
            assert await same.build_context() == await session.build_context()
            assert (same.info.cwd, same.leaf_id) == (session.info.cwd, session.leaf_id)
        assert (await store.usage()).total == bill
        assert (await store.verify()).problems == []
        files[0].write_text(files[0].read_text()[:-9])
        await raises(UnreadableFile, flue_py.import_file(other, files[0]), match="is not a JSON document")


async def test_kilo_has_the_same_tables(tmp_path: Path) -> None:
    # Its forks copy answers without their cost, and its answers count what their sub-agents cost again.
    assert await compared(unpack("kilo-7.7.7", tmp_path), "kilo.db") == (19, 19_495, 33_765_000_000, 0)


async def compared(made: Path, name: str) -> tuple[Any, ...]:
    """Compare contexts with requests, and return what was paid.

    Answers were asked for in the order of their times; a summary is worded differently here.
    """
    async with flue_py.open(":memory:") as store:
        report = await flue_py.import_file(store, made / name)
        bill = await paid(store)
        asked: dict[int, tuple[str, list[Any]]] = {}
        for part in report.sessions:
            session = await store.find_session(part.session_id)
            for entry in await session.get_tree():
                is_answer = entry.role == "assistant" or entry.kind == "opencode.failed"
                if is_answer and entry.created_us not in asked:
                    sent = await session.request("openai-chat", leaf=entry.parent_id)
                    asked[entry.created_us] = (entry.id, list(sent.messages))
    requests = json.loads((made / "requests.json").read_text())
    assert len(asked) == len(requests) == 20
    for (_, ours), theirs in zip((asked[at] for at in sorted(asked)), requests, strict=True):
        assert [*map(plain, ours)] == summed_up([*map(plain, theirs)])
    return bill


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of a request without thoughts, which a chat request has no field for; no text is null.

    Kilo adds a note about the time and the folder to each prompt.
    """
    fields = {name: value for name, value in message.items() if name != "reasoning_content"}
    if isinstance(fields.get("content"), list):
        fields["content"] = [part for part in fields["content"] if "<environment_details>" not in part.get("text", "")]
    return {**fields, "content": text_of(fields) or None}


def summed_up(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if messages[0]["content"] != "What did we do so far?":
        return messages
    return [{"role": "user", "content": f"[Context Summary]\n\n{messages[1]['content']}"}, *messages[2:]]


def states(path: Path, made: Path, step: int) -> Iterator[None]:
    """Make a database anew, as its events say that it grew, and yield after every ``step`` of them."""
    with closing(sqlite3.connect(made)) as source:
        events = source.execute("SELECT id, aggregate_id, seq, type, data FROM event ORDER BY id").fetchall()
        tables = source.execute("SELECT sql FROM sqlite_schema WHERE type = 'table'").fetchall()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        for (table,) in tables:
            database.execute(table)
        for number, event in enumerate(events):
            database.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?)", event)
            apply(database, event[3], json.loads(event[4]))
            if number % step == 0:
                database.commit()
                yield
        database.commit()
        yield


def apply(database: sqlite3.Connection, kind: str, data: dict[str, Any]) -> None:
    info, part = data.get("info", {}), data.get("part", {})
    body = json.dumps({name: value for name, value in (info or part).items() if name not in ("id", "sessionID")})
    if kind.startswith("session."):
        revert = json.dumps(info["revert"]) if info.get("revert") else None
        values = (info["id"], info.get("parentID"), info["directory"], info["title"], info["version"], revert)
        database.execute("DELETE FROM session WHERE id = ?", values[:1])
        database.execute(
            "INSERT INTO session (id, project_id, slug, time_updated, parent_id, directory, title, version, revert, "
            "time_created) VALUES (?1, '', '', 0, ?2, ?3, ?4, ?5, ?6, ?7)",
            (*values, info["time"]["created"]),
        )
    elif kind == "message.updated.1":
        values = (info["id"], info["sessionID"], info["time"]["created"], body)
        database.execute("INSERT OR REPLACE INTO message VALUES (?1, ?2, ?3, 0, ?4)", values)
    elif kind == "message.part.updated.1":
        values = (part["id"], part["messageID"], part["sessionID"], body)
        database.execute("INSERT OR REPLACE INTO part VALUES (?1, ?2, ?3, 0, 0, ?4)", values)
    elif kind == "message.removed.1":
        database.execute("DELETE FROM part WHERE message_id = ?", (data["messageID"],))
        database.execute("DELETE FROM message WHERE id = ?", (data["messageID"],))


async def test_a_database_imported_at_its_states_ends_as_one_imported_whole(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    async with flue_py.open(":memory:") as growing, flue_py.open(":memory:") as whole:
        for _ in states(path, made / "opencode.db", 11):
            grown = await imported(growing, path)
        assert grown == await imported(whole, made / "opencode.db")
        assert await paid(growing) == await paid(whole)
        assert not (await flue_py.import_file(growing, path)).changed


async def test_a_message_taken_before_it_was_complete_is_replaced(tmp_path: Path) -> None:
    begun = answer("m2", text("Hel"), time={"created": 5})
    rest = parsed(user("m1", text("hi")), begun)
    assert (shown(rest), rest.report.held_back) == ([("user", "hi")], 1)
    taken = parsed(user("m1", text("hi")), begun, take_all=True)
    whole = parsed(user("m1", text("hi")), answer("m2", text("Hello")))
    assert [entry.id for entry in whole.entries] == ["m1", "m2"]
    assert whole.earlier["m2"] == (taken.entries[1].id,)


# Rows made by hand


def test_parts_are_read_as_the_program_sends_them() -> None:
    image = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,QUJD", "filename": "a.png"}
    call = {"type": "tool", "callID": "c1", "tool": "read", "metadata": {"x": 1}}
    done = {"status": "completed", "input": {"a": 1}, "output": "AAA", "attachments": [image], "title": "a"}
    cut = {"status": "error", "input": {}, "error": "cut", "metadata": {"interrupted": True, "output": "half"}}
    signed = {"anthropic": {"signature": "sig"}}
    session = parsed(
        user(
            "m1",
            text("Look"),
            text("hidden", ignored=True),
            text("made", synthetic=True),
            image,
            {"type": "file", "mime": "text/plain", "url": "file:///a.txt"},
            {"type": "agent", "name": "general"},
            {"type": "subtask", "prompt": "p"},
        ),
        answer(
            "m2",
            {"type": "reasoning", "text": "Hm.", "metadata": signed},
            {**call, "state": done},
            {**call, "callID": "c2", "state": cut},
            {**call, "callID": "c3", "state": {"status": "running", "input": {}}},
            {"type": "patch", "hash": "h", "files": []},
        ),
    )
    picture = {"type": "image", "data": "QUJD", "mimeType": "image/png", "filename": "a.png"}
    calls = [{"type": "toolCall", "id": f"c{n}", "name": "read", "arguments": {}} for n in (1, 2, 3)]
    asked, said, *results = context_of(session)
    assert asked["content"] == [
        text("Look"),
        text("made"),
        picture,
        text("The following tool was executed by the user"),
    ]
    assert said["content"] == [
        {"type": "thinking", "thinking": "Hm.", "thinkingSignature": "sig"},
        {**calls[0], "arguments": {"a": 1}},
        *calls[1:],
    ]
    assert [(result["content"], result["isError"]) for result in results] == [
        ([text("AAA"), picture], False),
        ([text("half")], False),
        ([text("[Tool execution was interrupted]")], True),
    ]
    assert [entry.id for entry in session.entries][2:] == ["m2p1", "m2p2", "m2p3"]
    extra = json.loads(session.entries[1].extra or "")
    assert {"type": "patch", "hash": "h", "files": []} in extra["parts"]


def test_tokens_are_ours_and_zeros_are_unknown() -> None:
    tokens = {"input": 10, "output": 5, "reasoning": 3, "cache": {"read": 7, "write": 2}}
    none = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    step = {"type": "step-finish", "reason": "tool-calls", "tokens": tokens, "cost": 0.5}
    session = parsed(
        answer("m1", text("one"), tokens=tokens, cost=0),
        answer("m2", text("two"), tokens=none, cost=0),
        # A message of an older version: two steps, its own tokens are those of the last.
        answer(
            "m3",
            {"type": "step-start"},
            text("a"),
            step,
            {"type": "step-start"},
            text("b"),
            step,
            tokens=tokens,
            cost=1,
            at=5,
        ),
    )
    assert [(entry.usage.input, entry.usage.output, entry.usage.cost_total) for entry in session.entries] == [
        (10, 8, 0),
        (0, 0, 0),
        (10, 8, 5 * 10**11),
        (10, 8, 5 * 10**11),
    ]
    calls = [call for entry in session.entries for call in entry.calls]
    assert len({call.call_id for call in calls}) == len(calls) == 3
    assert [entry.id for entry in session.entries][2:] == ["m3", "m3p3"]
    # An answer that is not sent is paid all the same.
    failed = parsed(answer("m1", text("x"), tokens=tokens, cost=0.5, error={"name": "StructuredOutputError"}))
    ((call,), kind) = failed.entries[0].calls, failed.entries[0].kind
    assert (kind, call.outcome, call.cost) == ("opencode.failed", "failed", 5 * 10**11)


def test_a_compaction_keeps_the_tail_that_it_names() -> None:
    ask = {"type": "compaction", "auto": True, "tail_start_id": "m3"}
    messages = [user("m1", text("one")), answer("m2", text("1")), user("m3", text("two")), answer("m4", text("2"))]
    summary = {"summary": True, "parentID": "m5", "tokens": {"input": 9, "output": 1}}
    session = parsed(*messages, user("m5", ask), answer("m6", text("Sum."), **summary), user("m7", text("on")))
    assert shown(session) == [("user", "[Context Summary]\n\nSum."), ("user", "two"), ("assistant", "2")]
    assert [call.purpose for entry in session.entries for call in entry.calls] == ["compaction"]
    # One that failed is a prompt like another.
    error = {**summary, "error": {"name": "APIError"}}
    failed = parsed(*messages[:2], user("m5", ask), answer("m6", **error))
    assert shown(failed) == [("user", "one"), ("assistant", "1"), ("user", "What did we do so far?")]
    # Without its summary it waits.
    assert parsed(*messages[:2], user("m5", ask)).report.held_back == 1


def test_a_result_that_was_cleared_stays_and_is_sent_as_cleared() -> None:
    state = {"status": "completed", "input": {}, "output": "long"}
    call = {"type": "tool", "callID": "c", "tool": "t"}
    cleared = {**call, "state": {**state, "time": {"compacted": 15}}}

    def session(part: dict[str, Any], *more: list[tuple[str, Any]]) -> SessionPart:
        return parsed(user("m1", text("a"), at=1), answer("m2", part, time={"created": 2, "completed": 9}), *more)

    before, after = session({**call, "state": state}), session(cleared)
    end = {"type": "step-finish"}
    later = session(
        cleared, user("m3", text("b"), at=20), answer("m4", text("c"), end, time={"created": 21}, error="x")
    )
    assert [entry.id for entry in after.entries[:3]] == [entry.id for entry in before.entries]
    assert [entry.payload for entry in after.entries[:3]] == [entry.payload for entry in before.entries]
    assert later.entries[: len(after.entries)] == after.entries
    (mark,) = replacements(tree_of(later)).items()
    assert (mark[0], mark[1].fields["replacement"]) == ("m2p0", "[Old tool result content cleared]")
    assert [entry.parent_id for entry in later.entries][3:5] == ["m2p0", mark[1].id]


def test_files_of_older_versions_are_read_with_the_same_rules(tmp_path: Path) -> None:
    storage = tmp_path / "opencode" / "storage"
    files: dict[str, Any] = {
        "session/global/ses_1.json": {"id": "ses_1", "version": "0.15.0", "projectID": "global", "directory": "/w"},
        "message/ses_1/msg_1.json": {"id": "msg_1", "role": "user", "time": {"created": 1}},
        "message/ses_1/msg_2.json": {"id": "msg_2", "role": "assistant", "time": {"created": 2, "completed": 3}},
        "part/msg_1/prt_1.json": {"id": "prt_1", "type": "text", "text": "hi"},
        "part/msg_2/prt_2.json": {"id": "prt_2", "type": "text", "text": "yes"},
    }
    for name, value in files.items():
        (storage / name).parent.mkdir(parents=True, exist_ok=True)
        (storage / name).write_text(json.dumps(value, indent=2))

    async def run() -> None:
        async with flue_py.open(":memory:") as store:
            (report,) = [
                await flue_py.import_file(store, path) for path in flue_py.transfer.source.find_files([storage])
            ]
            assert report.format == "opencode"
            session = await store.find_session("ses_1")
            assert [entry.id for entry in await session.get_tree()] == ["msg_1", "msg_2"]
            (storage / "message/ses_1/msg_3.json").write_text('{"role": "user", "time": {"created": 4}}')
            assert (await flue_py.import_file(store, storage / "session/global/ses_1.json")).held_back == 1

    import anyio

    anyio.run(run)


async def test_a_database_without_sessions_is_refused(tmp_path: Path, store: flue_py.Store) -> None:
    with closing(sqlite3.connect(tmp_path / "o.db")) as database:
        for table in ("session (id, time_created)", "message (id)", "part (id)"):
            database.execute(f"CREATE TABLE {table}")
    await raises(UnreadableFile, flue_py.import_file(store, tmp_path / "o.db"), match="holds no session")


async def test_of_a_database_that_changed_only_the_sessions_that_changed_are_read(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: flue_py.Store
) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes((made / "opencode.db").read_bytes())

    def change(statement: str) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            assert database.execute(statement).rowcount == 1

    one = "(SELECT id FROM session ORDER BY id LIMIT 1)"
    every = (await flue_py.import_file(store, path)).rows
    assert (await flue_py.import_file(store, path)).rows == 0
    change(f"UPDATE session SET title = 'Another' WHERE id = {one}")
    rows = [(await flue_py.import_file(store, path)).rows]
    change(f"DELETE FROM part WHERE rowid = (SELECT max(rowid) FROM part WHERE session_id = {one})")
    rows += [(await flue_py.import_file(store, path)).rows]
    assert 0 < rows[1] < rows[0] < every / 2
    # Its last answer has no end any more: it may be written still.
    assert (await flue_py.import_file(store, path)).rows == rows[1]
    assert (await flue_py.import_file(store, path, finish=True)).rows == rows[1]
    assert (await flue_py.import_file(store, path)).rows == 0
    monkeypatch.setattr(flue_py, "__version__", "0.0")
    report = await flue_py.import_file(store, path)
    assert report.rows > every / 2, "another version may read more"
    await store.delete_session_tree(first := report.sessions[0].session_id)
    assert await store.get_session(first) is None
    report = await flue_py.import_file(store, path, again=True)
    assert (report.created, 0 < report.rows < every / 2) == (True, True)
    assert len(report.sessions) == 7
