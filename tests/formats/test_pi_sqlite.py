"""The databases of pi's agent library: the sessions that the same rows in pi's own files give."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.core.kinds import message_text
from flue_py.errors import UnreadableFile
from flue_py.formats.kit import read_lines
from flue_py.formats.pi_sqlite import looks_like_pi_sqlite, read_pi_sqlite
from flue_py.formats.registry import find_format, recognize
from tests.formats.pi_files import HEADER, as_lines, every_type
from tests.formats.transcripts import all_seen, import_file, import_lines, seen
from tests.programs.made import unpack
from tests.tables import inputs
from tests.values import existing

SESSIONS = "id TEXT PRIMARY KEY, created_at TEXT, cwd TEXT, parent_session_id TEXT, metadata TEXT"
ROW = "id TEXT, parent_id TEXT, type TEXT, timestamp TEXT, payload TEXT"
OLDER = (
    f"CREATE TABLE sessions ({SESSIONS}, active_leaf_id TEXT)",
    f"CREATE TABLE session_entries (session_id TEXT, entry_seq INTEGER, {ROW}, PRIMARY KEY (session_id, id))",
    "CREATE TABLE session_sequences (session_id TEXT PRIMARY KEY, next_seq INTEGER)",
)
NEWER = (
    f"CREATE TABLE sessions ({SESSIONS})",
    f"CREATE TABLE entries (session_id TEXT, seq INTEGER, {ROW}, PRIMARY KEY (session_id, id))",
    "CREATE TABLE session_sequences (session_id TEXT PRIMARY KEY, next_seq INTEGER)",
    "CREATE TABLE lanes (session_id TEXT, lane TEXT, leaf_id TEXT)",
    "CREATE TABLE facts (session_id TEXT, seq INTEGER, kind TEXT, key TEXT, value TEXT)",
    "CREATE TABLE records (session_id TEXT, seq INTEGER, id TEXT, lane TEXT, type TEXT, timestamp TEXT, payload TEXT)",
    "CREATE TABLE leases (session_id TEXT PRIMARY KEY, owner TEXT, heartbeat INTEGER)",
)
USAGE = {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 15, "cost": {"total": 0.5}}


class Made:
    """A database that is being written, row by row, as the library writes it."""

    def __init__(self, path: Path, *, is_older: bool = False) -> None:
        self.path = path
        self.is_older = is_older
        self.seq = 0
        with closing(sqlite3.connect(path)) as database, database:
            for statement in OLDER if is_older else NEWER:
                database.execute(statement)

    def put(self, table: str, *values: Any) -> None:
        marks = ", ".join("?" * len(values))
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute(f"INSERT INTO {table} VALUES ({marks})", values)

    def session(self, header: dict[str, Any], **fields: Any) -> None:
        row = [header["id"], header["timestamp"], header["cwd"], fields.get("parent"), fields.get("metadata")]
        self.put("sessions", *row, *([None] if self.is_older else []))
        if not self.is_older:
            self.put("lanes", header["id"], "main", None)

    def entry(self, session_id: str, row: dict[str, Any], *, moves: bool = True) -> None:
        """Append a row of a pi session file; the leaf goes there."""
        self.seq += 1
        payload = {name: value for name, value in row.items() if name not in ("type", "id", "parentId", "timestamp")}
        table = "session_entries" if self.is_older else "entries"
        envelope = (row["id"], row["parentId"], row["type"], row["timestamp"])
        self.put(table, session_id, self.seq, *envelope, json.dumps(payload))
        if moves:
            self.move(session_id, row["id"])

    def move(self, session_id: str, leaf: str | None) -> None:
        statement = "UPDATE lanes SET leaf_id = ? WHERE session_id = ? AND lane = 'main'"
        if self.is_older:
            statement = "UPDATE sessions SET active_leaf_id = ? WHERE id = ?"
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute(statement, (leaf, session_id))

    def fact(self, session_id: str, kind: str, key: str | None, value: str | None) -> None:
        self.seq += 1
        self.put("facts", session_id, self.seq, kind, key, None if value is None else json.dumps(value))

    def record(self, session_id: str, name: str, **fields: Any) -> None:
        self.seq += 1
        payload = json.dumps({"type": "usage", "id": name, "lane": "main", **fields})
        self.put("records", session_id, self.seq, name, "main", "usage", "2026-01-05T10:01:00.000Z", payload)


def said(entry_id: str, parent: str | None, role: str = "user", **fields: Any) -> dict[str, Any]:
    message = {"role": role, "content": [{"type": "text", "text": f"text of {entry_id}"}], "timestamp": 1, **fields}
    return row("message", entry_id, parent, message=message)


def row(kind: str, entry_id: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": entry_id, "parentId": parent, "timestamp": "2026-01-05T10:00:01.000Z", **fields}


def talk() -> list[dict[str, Any]]:
    return [
        said("u1", None),
        said("a1", "u1", "assistant", usage=USAGE, stopReason="stop"),
        said("u2", "a1"),
        said("a2", "u2", "assistant", usage=USAGE, stopReason="stop", model="m"),
    ]


def filled(path: Path, rows: Iterable[dict[str, Any]], *, is_older: bool = False) -> Made:
    made = Made(path, is_older=is_older)
    made.session(HEADER)
    for each in rows:
        made.entry(HEADER["id"], each)
    return made


@inputs("is_older", [True, False])
async def test_a_database_gives_the_session_of_the_file_with_its_rows(tmp_path: Path, is_older: bool) -> None:
    header, *rows = every_type()
    made = filled(tmp_path / f"{is_older}.sqlite", rows, is_older=is_older)
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as other:
        await import_lines(store, tmp_path, as_lines([header, *rows]))
        report = await flue_py.import_file(other, made.path)
        of_file = await all_seen(store)
        assert await all_seen(other) == of_file
        assert (report.format, report.skipped) == ("pi-sqlite", ())
        again = await flue_py.import_file(store, made.path)
        assert (again.added, await all_seen(store)) == (0, of_file)
        assert (await other.verify()).problems == []


async def test_the_sessions_of_the_library_have_its_contexts_leaves_and_bills(tmp_path: Path) -> None:
    folder = unpack("pi-sqlite-0.81.1", tmp_path)
    said = json.loads((folder / "seen.json").read_bytes())
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as other:
        report = await flue_py.import_file(store, folder / "sessions.sqlite")
        assert (report.skipped, report.repaired, dict(report.unknown_kinds)) == ((), (), {})
        sessions = await all_seen(store)
        for name, facts in said.items():
            session, messages = sessions[name], facts["messages"]
            assert session.leaf == facts["leaf"]
            assert {key: value[0] for key, value in session.entries.items()} == {
                entry["id"]: entry["parentId"] for entry in facts["entries"]
            }
            texts = [message_text(message) for message in session.context]
            assert [message.get("summary") or message_text(message) for message in messages] == [
                text.removeprefix("[Context Summary]\n\n") for text in texts
            ]
        # The fork has 340 tokens of the session that it began with.
        assert {name: session.spent_tokens for name, session in sessions.items()} == {
            name: facts["totalTokens"] - 340 * (name == "fork") for name, facts in said.items()
        }
        assert (sessions["fork"].title, sessions["gone"].leaf) == ("A name", None)
        # A file of the library with the same rows goes on where it does.
        rows = [{**HEADER, "id": "moved"}, *said["moved"]["entries"]]
        await import_lines(other, tmp_path, as_lines(rows))
        assert (await seen(other, "moved")).leaf == said["moved"]["leaf"]


@inputs("is_older", [True, False])
async def test_a_database_that_grows_is_caught_up_with_where_its_leaf_is(tmp_path: Path, is_older: bool) -> None:
    made = filled(tmp_path / f"{is_older}.sqlite", [], is_older=is_older)
    steps: list[Any] = [*talk()[:2], "u1", said("u3", "u1"), "a1", talk()[2], "u3", "u1"]
    async with flue_py.open(":memory:") as store:
        for step in steps:
            if isinstance(step, str):
                made.move(HEADER["id"], step)
            else:
                made.entry(HEADER["id"], step)
            await flue_py.import_file(store, made.path)
            session = await seen(store, HEADER["id"])
            assert session.leaf == (step if isinstance(step, str) else step["id"])
        assert set(session.entries) == {"u1", "a1", "u3", "u2"}
    form = find_format("pi-sqlite")
    assert list(form.gathered(made.path, {HEADER["id"]}) or "none") == []
    assert form.fingerprints_of(made.path).keys() == {HEADER["id"]}


async def test_a_leaf_that_is_before_the_first_entry_is_none(tmp_path: Path, store: flue_py.Store) -> None:
    made = filled(tmp_path / "s.sqlite", talk())
    made.move(HEADER["id"], None)
    await flue_py.import_file(store, made.path)
    assert (await seen(store, HEADER["id"])).leaf is None


async def test_names_and_labels_follow_the_tables_of_facts(tmp_path: Path, store: flue_py.Store) -> None:
    made, session_id = filled(tmp_path / "s.sqlite", talk()), HEADER["id"]
    made.fact(session_id, "name", None, "First name")
    made.fact(session_id, "label", "u2", "here")
    await flue_py.import_file(store, made.path)
    session = await store.find_session(session_id)
    assert (session.title, await session.marks.labels(), session.leaf_id) == ("First name", {"u2": "here"}, "a2")
    # As an import that died might have left them.
    odd: dict[str, object] = {"title": "Ours", "labels": {"u1": 5}}
    await session.set_metadata({"imported": {**session.metadata["imported"], "names": odd}}, merge=True)
    made.fact(session_id, "label", "u2", None)
    made.fact(session_id, "label", "u1", "start")
    await flue_py.import_file(store, made.path)
    session = await store.find_session(session_id)
    assert (session.title, await session.marks.labels(), session.leaf_id) == ("Ours", {"u1": "start"}, "a2")
    made.fact(session_id, "name", None, "Second name")
    made.entry(session_id, said("u3", "a2"))
    report = await flue_py.import_file(store, made.path)
    session = await store.find_session(session_id)
    assert (session.title, session.leaf_id, report.repaired) == ("Second name", "u3", ())


async def test_each_call_is_paid_once_whichever_table_has_its_usage(tmp_path: Path, store: flue_py.Store) -> None:
    made, session_id = filled(tmp_path / "s.sqlite", talk()), HEADER["id"]
    made.record(session_id, "r1", cause="assistant", entryId="a1", usage=USAGE)
    made.record(session_id, "r2", cause="assistant", entryId="failed", attempt=1, usage=USAGE)
    fork = {**HEADER, "id": "fork", "timestamp": "2026-01-06T10:00:00.000Z"}
    made.session(fork, parent=session_id, metadata=json.dumps({"profile": "writer"}))
    for each in talk()[:2]:
        made.entry("fork", each)
    report = await flue_py.import_file(store, made.path)
    sessions = await all_seen(store)
    assert (report.skipped, report.repaired, dict(report.unknown_kinds)) == ((), (), {})
    assert [(name, each.leaf, each.spent_tokens) for name, each in sorted(sessions.items())] == [
        (session_id, "a2", 45),
        ("fork", "a1", 0),
    ]
    header = (await store.find_session("fork")).info.metadata["imported"]["header"]
    assert (header["parentSessionId"], header["metadata"]) == (session_id, {"profile": "writer"})


@inputs("kept", [0, 1, 3, 4])
async def test_a_compaction_shows_its_tail(tmp_path: Path, kept: int) -> None:
    rows = talk()
    rows.insert(2, row("custom", "c1", "a1", customType="note"))
    rows[3]["parentId"] = "c1"
    tail = [each["message"] for each in talk()][4 - kept :]
    rows.append(row("compaction", "k1", "a2", summary="so far", retainedTail=tail, tokensBefore=9))
    # The next one keeps messages from before the first, which that kept as well.
    rows += [said("u4", "k1"), row("compaction", "k2", "u4", summary="by now", tokensBefore=9)]
    rows[-1]["retainedTail"] = [*tail, rows[-2]["message"]]
    made, session_id = filled(tmp_path / f"{kept}.sqlite", rows[:-2]), HEADER["id"]
    async with flue_py.open(":memory:") as store:
        report = await flue_py.import_file(store, made.path)
        context = (await seen(store, session_id)).context
        assert [message["content"] for message in context[1:]] == [message["content"] for message in tail]
        assert "so far" in json.dumps(context[0])
        for each in rows[-2:]:
            made.entry(session_id, each)
        report = await flue_py.import_file(store, made.path)
        context = (await seen(store, session_id)).context
        assert report.repaired == ()
        assert [message["content"] for message in context[1:]] == [
            message["content"] for message in rows[-1]["retainedTail"]
        ]
        assert "by now" in json.dumps(context[0])


async def test_a_tail_of_other_messages_is_kept_and_noted(tmp_path: Path, store: flue_py.Store) -> None:
    tail = [{"role": "user", "content": "never said", "timestamp": 1}]
    rows = [*talk(), row("compaction", "k1", "a2", summary="so far", retainedTail=tail, tokensBefore=9)]
    report = await flue_py.import_file(store, filled(tmp_path / "s.sqlite", rows).path)
    assert len((await seen(store, HEADER["id"])).context) == 1
    assert "names no first kept entry" in str(report.repaired[0])


@inputs(("version", "tokens"), [("0.84.4", (885, 470, 0)), ("0.87.1", (1005, 0))])
async def test_files_of_version_4_have_the_contexts_leaves_and_bills_of_the_library(
    version: str, tokens: tuple[int, ...], tmp_path: Path
) -> None:
    folder = unpack("pi-lanes-0.87.1", tmp_path) / version
    said = json.loads((folder / "seen.json").read_bytes())
    async with flue_py.open(":memory:") as store:
        for file in sorted(folder.glob("*/*.jsonl")):
            report = await import_file(store, file)
            told = (report.format, report.skipped, report.repaired, dict(report.unknown_kinds))
            assert told == ("pi-sqlite", (), (), {})
        sessions = await all_seen(store)
        for (name, facts), spent in zip(said.items(), tokens, strict=True):
            session = sessions[name]
            assert (session.leaf, session.spent_tokens, facts["totalTokens"]) == (facts["leaf"], spent, spent)
            parents = {key: value[0] for key, value in session.entries.items()}
            assert parents.items() >= dict(facts["parents"]).items()
            texts = [message_text(message).removeprefix("[Context Summary]\n\n") for message in session.context]
            assert [message.get("summary") or message_text(message) for message in facts["messages"]] == texts
        talk = await store.find_session("talk")
        assert (talk.title, await talk.marks.labels()) == ("A name", {"e2": "good"})
        assert (talk.info.cwd, "side" in str(talk.info.metadata["imported"])) == ("/home/shop", True)
        assert (await store.verify()).problems == []


@inputs("version", ["0.84.4", "0.87.1"])
async def test_a_file_of_version_4_is_the_same_at_every_length(version: str, tmp_path: Path) -> None:
    (file,) = (unpack("pi-lanes-0.87.1", tmp_path) / version).glob("*/*talk.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as other:
        for length in range(2, len(lines) + 1):
            # The last line is torn, and then whole.
            await import_lines(store, tmp_path, [*lines[: length - 1], lines[length - 1][:-9]])
            await import_lines(store, tmp_path, lines[:length])
        await import_file(other, file)
        grown, whole = await all_seen(store), await all_seen(other)
        assert {key: value[0] for key, value in grown["talk"].entries.items()} == {
            key: value[0] for key, value in whole["talk"].entries.items()
        }
        assert (grown["talk"].leaf, grown["talk"].spent_tokens) == (whole["talk"].leaf, whole["talk"].spent_tokens)


async def test_the_sum_of_a_file_of_version_3_is_not_paid_again_and_no_line_is_fatal(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": [], "usage": USAGE, "provider": "p", "model": "m", "stopReason": "stop"}
    summary = {"type": "compaction", "summary": "so far", "retainedTail": [], "tokensBefore": 9, "usage": USAGE}
    names = {"namespace": "pi.branch.tip", "key": "work"}
    lines: list[Any] = [
        {"kind": "header", "v": 4, "storageVersion": 1, "id": "s", "cwd": "/w", "createdAt": 1, "nextSeq": 9},
        {
            "kind": "entry", "seq": 1, "timestamp": 1, "type": "message", "id": "a1", "parentId": None,
            "message": message,
        },
        [{"kind": "entry", "seq": 2, "timestamp": 2, "id": "k1", "parentId": "a1", **summary}],
        {"kind": "usage", "seq": 3, "id": "c1", "usage": USAGE, "adjustment": True, "details": {"source": "v3-import"}},
        *[7, "x", None, [], [[]], {}, {"kind": 7}, {"kind": "entry"}, {"kind": "usage"}, {"kind": "lane", "lane": []}],
        {"kind": "value", "op": "set", "seq": 4, **names, "value": "k1"},
        {"kind": "value", "op": "delete", "namespace": "pi.session.name", "key": ""},
    ]  # fmt: skip
    data = [*as_lines(lines), b"{torn\n"]
    async with flue_py.open(":memory:") as store:
        report = await import_lines(store, tmp_path, data)
        session = await seen(store, "s")
        assert (session.leaf, session.spent_tokens) == ("k1", 30)
        assert "torn" in str(report.skipped)
        assert len(report.skipped) == 8
        assert (await store.verify()).problems == []


async def test_records_and_values_of_unknown_kinds_are_kept_outside_the_context(tmp_path: Path) -> None:
    said = {"kind": "entry", "id": "u1", "type": "message", "message": {"role": "user", "content": "hi"}}
    others: list[Any] = [
        {"kind": "record", "type": "approval", "seq": 2, "id": "r1", "granted": True},
        {"kind": "value", "op": "set", "namespace": "pi.goal", "key": "", "value": "all green"},
    ]
    lines = [{"kind": "header", "version": 4, "id": "s", "createdAt": 1}, {**said, "lane": "main", "seq": 1}, *others]
    async with flue_py.open(":memory:") as store:
        report = await import_lines(store, tmp_path, as_lines(lines))
        session = await seen(store, "s")
        assert (session.leaf, len(session.context)) == ("u1", 1)
        tree = await (await store.find_session("s")).get_tree()
        assert [(entry.kind, entry.parent_id, entry.fields["change"]) for entry in tree[1:]] == [
            ("pi.record.approval", "u1", others[0]),
            ("pi.value.pi.goal", "u1", others[1]),
        ]
        assert report.unknown_kinds == {"pi.record.approval": 1, "pi.value.pi.goal": 1}
        assert not (await import_lines(store, tmp_path, as_lines(lines))).changed


async def test_the_call_of_an_entry_that_is_still_to_come_waits(tmp_path: Path, store: flue_py.Store) -> None:
    record = {"kind": "record", "type": "usage", "seq": 1, "id": "c1", "lane": "main", "timestamp": 1, "usage": USAGE}
    lines: list[Any] = [
        {"kind": "header", "version": 4, "id": "s", "cwd": "/w", "createdAt": 1},
        {**record, "cause": "compaction", "entryId": "k1"},
        {"kind": "entry", "lane": "main", "seq": 2, "timestamp": 2, "id": "k1", "parentId": None, "type": "compaction"},
    ]
    lines[2] |= {"summary": "so far", "retainedTail": [], "tokensBefore": 9, "usage": USAGE}
    report = await import_lines(store, tmp_path, as_lines(lines[:2]))
    assert report.held_back == 1
    await import_lines(store, tmp_path, as_lines(lines))
    assert (await seen(store, "s")).spent_tokens == 15
    lines.append({**record, "seq": 3, "id": "c2", "entryId": "failed", "cause": "assistant"})
    await import_lines(store, tmp_path, as_lines(lines), finish=True)
    assert (await seen(store, "s")).spent_tokens == 30


HOSTILE = ("", "null", "[]", "7", '{"message": 7}', "{" * 9000, '{"id": "other", "type": "session"}', None, b"\xff")


@inputs("is_older", [True, False])
async def test_no_row_of_a_database_is_fatal(tmp_path: Path, is_older: bool) -> None:
    made, session_id = filled(tmp_path / f"{is_older}.sqlite", talk(), is_older=is_older), HEADER["id"]
    table = "session_entries" if is_older else "entries"
    for number, payload in enumerate(HOSTILE):
        for kind in ("message", "compaction", "label", "session", "leaf"):
            name = f"{kind}-{number}"
            made.seq += 1
            made.put(table, session_id, made.seq, name, name, kind, "never", payload)
            if not is_older:
                made.put("facts", session_id, made.seq, kind, name, payload)
                made.put("records", session_id, made.seq, name, "main", "usage", payload, payload)
    made.put("sessions", None, 7, b"x", 8, "[", *([9] if is_older else []))
    made.entry(session_id, said("u3", "a2"))
    async with flue_py.open(":memory:") as store:
        report = await flue_py.import_file(store, made.path)
        session = await seen(store, session_id)
        assert session.leaf == "u3"
        assert {"u1", "a1", "u2", "a2", "u3"} <= set(session.entries)
        assert report.skipped
        assert report.repaired
        assert (await store.verify()).problems == []


def test_only_such_a_database_is_recognised(tmp_path: Path) -> None:
    for is_older in (True, False):
        path = filled(tmp_path / f"{is_older}.sqlite", talk(), is_older=is_older).path
        form = existing(recognize(path.read_bytes()[:4096], str(path)))
        assert form.name == "pi-sqlite"
    with closing(sqlite3.connect(tmp_path / "other.db")) as database, database:
        database.execute("CREATE TABLE sessions (id TEXT)")
    other = tmp_path / "other.db"
    assert not looks_like_pi_sqlite(other.read_bytes(), str(other))
    with pytest.raises(UnreadableFile, match="holds no session"):
        read_lines(read_pi_sqlite("s"), list(form.gathered(Made(tmp_path / "none.sqlite").path) or ()))
