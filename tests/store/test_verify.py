"""`verify` finds every damage in a file and names the entry or session; and it finds nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from unittest.mock import Mock

import pytest

from flue_py.core.sessions import NewDocument, NewSession, Problem, VerifyReport
from flue_py.core.usage import PAID_COLUMNS, TOTAL_COLUMNS
from flue_py.db.backend import Backend
from flue_py.db.ops import seals
from flue_py.db.ops.verify import verify
from flue_py.db.sqlite.file import SqliteTransaction
from flue_py.db.sqlite.runner import open_sqlite
from flue_py.db.tables import metadata
from flue_py.errors import FixTheStore
from tests.checks import give_heads
from tests.samples import add, assistant, compaction, new_session, path_ids, placed, talk, user
from tests.sources import counted_sources
from tests.tables import inputs

NOISE = "".join(Random(5).choices("abcdefghijklmnopqrstuvwxyz0123456789-", k=60_000))
NEEDLE = "a needle in the file"


@dataclass(frozen=True)
class Made:
    """A store with something of everything, and the names of what it holds."""

    path: Path
    root: str
    fork: str
    heir: str
    task: str
    entries: list[str]
    packed: str
    blob: str
    fork_entries: list[str]
    inherited: list[str]


async def open_store(path: Path) -> Backend:
    return await open_sqlite(path, sources=counted_sources(), durability="normal")


async def make(path: Path) -> Made:
    backend = await open_store(path)
    root = await new_session(backend, *talk(4), user(NEEDLE), user("x" * 5_000), user(NOISE))
    first = await path_ids(backend, root.id)
    await backend.append(root.id, [compaction(first[2], tokens=7, dollars=0.5)], idempotency_key="once")
    await add(backend, root.id, user("after"), assistant("end", tokens=3, dollars=0.25))
    await backend.set_label(root.id, first[0], "start")
    (failed,) = await add(backend, root.id, assistant("failed", tokens=1))
    await backend.retract(root.id, failed)
    fork = await backend.fork(root.id, first[3], NewSession(key="fork"))
    fork_ids = await add(backend, fork.id, *talk(2), user(NOISE))
    task = await backend.create_task(root.id, "task", NewSession())
    await add(backend, task.id, *talk(2))
    await backend.import_entries(task.id, [placed(user(), "i1"), placed(user(), "i2", "i1")], leaf="i2")
    gone = await new_session(backend, *talk(6))
    await backend.put_document(NewDocument("memory", "d", "what it says, é", "user", space="repl"))
    left = await path_ids(backend, gone.id)
    heir = await backend.fork(gone.id, left[3], NewSession())
    await backend.delete_tree(gone.id)
    entries = await path_ids(backend, root.id)
    assert (await backend.verify()).problems == []
    await backend.close()
    return Made(path, root.id, fork.id, heir.id, task.id, entries, first[5], first[6], list(fork_ids), left[:4])


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return asyncio.run(make(tmp_path_factory.mktemp("verify") / "template.db"))


@pytest.fixture
def anew(template: Made, tmp_path: Path) -> Callable[[], Made]:
    """A function that makes another copy each time, for the rows of a table."""
    numbers = count()

    def copied() -> Made:
        return replace(template, path=Path(shutil.copy(template.path, tmp_path / f"copy{next(numbers)}.db")))

    return copied


@pytest.fixture
def made(anew: Callable[[], Made]) -> Made:
    return anew()


Parameters = tuple[object, ...]


def damage(path: Path, *statements: str | tuple[str, Parameters]) -> int:
    """Run SQL that no store would run; return how many rows it changed."""
    changed = 0
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            sql, parameters = (statement, ()) if isinstance(statement, str) else statement
            changed += connection.execute(sql, parameters).rowcount
        connection.commit()
    return changed


async def verified(path: Path) -> VerifyReport:
    backend = await open_store(path)
    try:
        return await backend.verify()
    finally:
        await backend.close()


def named(problems: Sequence[Problem]) -> set[tuple[str, str]]:
    return {(problem.kind, problem.where) for problem in problems}


def lane_of(path: Path, entry_id: str) -> str:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT lane_id, tree_id FROM entries WHERE id = ?", (entry_id,)).fetchone()
    return f"lane {found[0]} of tree {found[1]}"


# -- nothing is wrong -----------------------------------------------------------------------------------------------


async def test_an_untouched_store_is_clean_and_counted(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Mock(wraps=seals._rows_with_heads)
    monkeypatch.setattr(seals, "_rows_with_heads", rows)
    monkeypatch.setattr(seals, "_PAGE", 3)
    report = await verified(made.path)
    assert report.problems == []
    assert [len(call.args[1]) for call in rows.call_args_list] == [3, 1]
    with closing(sqlite3.connect(made.path)) as connection:
        assert report.sessions == connection.execute("SELECT COUNT(*) FROM sessions").fetchone()[0] == 4
        assert report.entries == connection.execute("SELECT COUNT(*) FROM entries").fetchone()[0] == 22


async def test_an_empty_store_is_clean(tmp_path: Path) -> None:
    assert await verified(tmp_path / "new.db") == VerifyReport(0, 0, [])


async def test_verification_changes_nothing(made: Made) -> None:
    before = made.path.read_bytes()
    await verified(made.path)
    assert made.path.read_bytes() == before


async def test_what_is_normal_is_no_problem(made: Made) -> None:
    damage(
        made.path,
        ("UPDATE task_links SET child_id = ?", ("never-was",)),
        ("UPDATE sessions SET forked_from_session = ? WHERE id = ?", ("long-gone", made.fork)),
        ("UPDATE sessions SET leaf = NULL WHERE id = ?", (made.root,)),
        ("UPDATE leaf_moves SET to_entry = ?, from_entry = ?", ("deleted", "deleted")),
    )
    give_heads(made.path)
    assert (await verified(made.path)).problems == []


# -- each kind of damage --------------------------------------------------------------------------------------------

Damage = Callable[[Made], list[str | tuple[str, Parameters]]]
Named = Callable[[Made], tuple[str, str]]

ENTRY = "UPDATE entries SET {} WHERE id = ?"
SESSION = "UPDATE sessions SET {} WHERE id = ?"


def entry(change: str, which: Callable[[Made], str], kind: str) -> tuple[Damage, Named]:
    """A change to an entry's row, and the problem that names the entry."""
    return lambda made: [(ENTRY.format(change), (which(made),))], lambda made: (kind, f"entry {which(made)}")


def session(change: str, which: Callable[[Made], str], kind: str) -> tuple[Damage, Named]:
    """A change to a session's row, and the problem that names the session."""
    return lambda made: [(SESSION.format(change), (which(made),))], lambda made: (kind, f"session {which(made)}")


def rows(problem: str, *statements: str) -> tuple[Damage, Named]:
    """Statements and the problem that they make, with the names of `Made` in braces."""

    def filled(text: str, made: Made) -> str:
        return text.format(**vars(made), tip=tip(made), fork_tip=fork_tip(made), other=OTHER.hex())

    def named(made: Made) -> tuple[str, str]:
        kind, _, where = filled(problem, made).partition(": ")
        return kind, where

    return lambda made: [filled(statement, made) for statement in statements], named


def first(made: Made) -> str:
    return made.entries[0]


def second(made: Made) -> str:
    return made.entries[1]


def tip(made: Made) -> str:
    return made.entries[-1]


def fork_tip(made: Made) -> str:
    return made.fork_entries[-1]


BUDGET = "INSERT INTO budgets VALUES (1, 'b', '', 'scope', NULL, 'tokens', 100, 25, 12, 5, 0, 0, '', '')"
RESERVATIONS = """\
INSERT INTO reservations VALUES
    ('r1', 1, NULL, 5, 'held', NULL, 0, 9, NULL), ('r2', 1, NULL, 7, 'held', NULL, 0, 9, NULL),
    ('r3', 1, NULL, 7, 'committed', 20, 0, 9, 3)"""
EDIT = "INSERT INTO session_edits VALUES (1, 1, 'title', NULL, NULL, 'new', 'somebody', NULL, 5, 0)"


OTHER = zlib.compress(b'{"role":"user","content":"other"}')
DAMAGES: dict[str, tuple[Damage, Named]] = {
    # payloads
    "a flipped byte": entry("payload = replace(payload, 'question 0', 'question o')", first, "damaged entry"),
    "another payload": entry("payload = '{}'", first, "damaged entry"),
    "text that is no JSON": entry("payload = substr(payload, 2)", first, "unreadable payload"),
    "an empty text": entry("payload = ''", first, "unreadable payload"),
    "bytes that are no UTF-8": entry("payload = CAST(X'7B22FF223A317D' AS TEXT)", first, "unreadable payload"),
    "another digest": entry("digest = zeroblob(16)", first, "damaged entry"),
    "a digest that is text": entry("digest = 'digest'", first, "damaged entry"),
    "packed bytes cut short": entry(
        "packed = substr(packed, 1, length(packed) - 5)", lambda made: made.packed, "unreadable payload"
    ),
    "other packed bytes": entry(
        f"packed = X'{OTHER.hex()}'", lambda made: made.packed, "damaged entry"
    ),
    "no payload at all": entry("payload = NULL", first, "unreadable payload"),
    "a blob that is missing": rows("unreadable payload: entry {blob}", "DELETE FROM blobs"),
    "a blob of other content": rows("unreadable payload: entry {blob}", "UPDATE blobs SET data = X'{other}'"),
    "a blob cut short": rows("unreadable payload: entry {fork_tip}", "UPDATE blobs SET data = substr(data, 1, 1000)"),
    "a blob of another tree": rows("unreadable payload: entry {blob}", "UPDATE blobs SET tree_id = tree_id + 1000"),
    "a blob of no entry": rows(
        "orphaned blob: blob ab", "INSERT INTO blobs (tree_id, sha256, size, data) VALUES (1, X'AB', 1, X'{other}')"
    ),
    # totals
    **{
        f"wrong {column}": entry(f"{column} = {column} + 1", second, "wrong totals") for column in TOTAL_COLUMNS
    },
    **{
        f"wrong {column} of a path": entry(f"{column} = {column} + 1", second, "wrong sums of calls")
        for column in PAID_COLUMNS
    },
    "a status that no task has": rows("wrong task status: session {root}", "UPDATE task_links SET status = 'gone'"),
    "a summary of a task that runs": rows(
        "wrong task status: session {root}", "UPDATE task_links SET summary = 'early'"
    ),
    "a sum of a path that is text": entry("paid_cost = 'much'", second, "wrong sums of calls"),
    "a negative total": entry("total_cost = -1", first, "wrong totals"),
    "a total beyond the range": entry("input_tokens = 9223372036854775807", first, "wrong totals"),
    "a total that is text": entry("input_tokens = 'many'", first, "wrong totals"),
    "a total that is a float": entry("input_tokens = 0.5", first, "wrong totals"),
    "an entry that no longer counts": entry("counted = 0", second, "wrong totals"),
    "an assistant that became a user": entry("role = 'user'", second, "damaged entry"),
    # places
    "a gap in a lane": entry("depth = depth + 5", tip, "wrong depth"),
    "an entry that is missing": rows(
        "wrong depth: entry {entries[2]}", "DELETE FROM entries WHERE id = '{entries[1]}'"
    ),
    "a lane that begins too deep": rows(
        "wrong depth: entry {fork_entries[0]}",
        "UPDATE lanes SET fork_depth = 1 WHERE owner_key = (SELECT session_key FROM sessions WHERE id = '{fork}')",
    ),
    "a parent that is missing": entry("parent_id = 'nowhere'", second, "wrong parent"),
    "a parent that is another entry": entry("parent_id = id", tip, "wrong parent"),
    "a parent that is forgotten": entry("parent_id = NULL", second, "wrong parent"),
    "a parent of the first entry": rows(
        "wrong parent: entry {entries[0]}", "UPDATE entries SET parent_id = '{entries[1]}' WHERE id = '{entries[0]}'"
    ),
    "a parent of a fork's first entry that is not where its lane forks": entry(
        "parent_id = (SELECT e.id FROM entries e WHERE e.tree_id = entries.tree_id AND e.depth = 0)",
        lambda made: made.fork_entries[0],
        "wrong parent",
    ),
    "an entry in a lane of another session": rows(
        "wrong lane: entry {fork_entries[0]}",
        "UPDATE lanes SET owner_key = (SELECT session_key FROM sessions WHERE id = '{heir}')"
        " WHERE owner_key = (SELECT session_key FROM sessions WHERE id = '{fork}')",
    ),
    "an entry of a session that is gone, below one of the owner's": entry(
        "session_key = 1000", tip, "wrong lane"
    ),
    "a revision that does not grow along a lane": entry("revision = 1", tip, "wrong order"),
    "an ordinal twice in a revision": entry(
        "(revision, ordinal) = (SELECT e.revision, e.ordinal FROM entries e"
        " WHERE e.tree_id = entries.tree_id AND e.lane_id = entries.lane_id AND e.depth = entries.depth - 1)",
        second,
        "wrong order",
    ),
    "an entry in a lane that does not exist": entry("lane_id = 999", tip, "dangling parent"),
    # sessions
    "a leaf that is missing": session("leaf = 'nowhere'", lambda made: made.root, "missing leaf"),
    "a leaf in another tree": session("leaf = 'i1'", lambda made: made.root, "missing leaf"),
    "a fork point that is missing": session("forked_from_entry = ''", lambda made: made.fork, "missing fork point"),
    "a revision too low": session("revision = 1", lambda made: made.root, "wrong revision"),
    "a revision below that of a move": session("revision = revision - 2", lambda made: made.root, "wrong revision"),
    "an entry too many": session("entry_count = entry_count + 1", lambda made: made.fork, "wrong count"),
    "a message too few": session("message_count = message_count - 1", lambda made: made.root, "wrong count"),
    "a retraction forgotten": rows("wrong count: session {root}", "DELETE FROM marks WHERE kind = 'retracted'"),
    "an entry that changed its creator": rows(
        "wrong count: session {root}", "UPDATE entries SET session_key = 1000 WHERE id = '{tip}'"
    ),
    "tokens that were not spent": session("spent_tokens = spent_tokens + 1", lambda made: made.root, "wrong spending"),
    "money that was not spent": session("spent_cost = spent_cost - 1", lambda made: made.fork, "wrong spending"),
    "a call without a price too many": session(
        "unpriced_calls = unpriced_calls + 1", lambda made: made.root, "wrong number of unpriced calls"
    ),
    "a call of unknown usage too many": session(
        "unknown_calls = unknown_calls + 1", lambda made: made.root, "wrong number of unknown calls"
    ),
    "activity that never was": session("active_at = active_at + 1", lambda made: made.root, "wrong activity"),
    "a slot of another time": session("active_slot = active_slot - 1", lambda made: made.root, "wrong activity"),
    "money spent by who paid nothing": session("spent_cost = 1", lambda made: made.heir, "wrong spending"),
    "a call that is missing in the ledger": rows(
        "wrong spending: session {root}", "DELETE FROM ledger WHERE entry_id = '{entries[1]}'"
    ),
    "a call of another amount": rows(
        "wrong spending: session {root}", "UPDATE ledger SET cost = cost + 1 WHERE entry_id = '{tip}'"
    ),
    "a call of other tokens": rows(
        "wrong spending: session {root}",
        "UPDATE ledger SET total_tokens = 0, input_tokens = 4 WHERE entry_id = '{tip}'",
    ),
    "a payer without a name": rows(
        "nameless call: call {fork_entries[1]}", "DELETE FROM ledger_sessions WHERE session_id = '{fork}'"
    ),
    "a call that lost its price": rows(
        "wrong number of unpriced calls: session {root}", "UPDATE ledger SET cost = NULL WHERE entry_id = '{tip}'"
    ),
    "a call without a price that is not there": session(
        "unpriced_calls = 1", lambda made: made.heir, "wrong number of unpriced calls"
    ),
    "a payer in another tree": rows(
        "wrong tree: payer {fork}", "UPDATE ledger_sessions SET tree_id = tree_id + 1 WHERE session_id = '{fork}'"
    ),
    "a payer without a tree": rows(
        "wrong tree: payer {task}", "UPDATE ledger_sessions SET tree_id = NULL WHERE session_id = '{task}'"
    ),
    "a payer in another project": rows(
        "wrong project: payer {fork}",
        "UPDATE ledger_sessions SET project = '/elsewhere' WHERE session_id = '{fork}'",
        "UPDATE sessions SET cwd = '/here' WHERE id = '{fork}'",
    ),
    "a budget that has set aside what nobody holds": rows(
        "wrong reservation: budget b", BUDGET, RESERVATIONS, "UPDATE budgets SET reserved = reserved + 1"
    ),
    "a budget that has spent what nobody used": rows(
        "wrong spending: budget b", BUDGET, RESERVATIONS, "UPDATE reservations SET used = 21 WHERE state = 'committed'"
    ),
    "a reservation of no budget": rows(
        "dangling reference: reservations row None", BUDGET, RESERVATIONS, "DELETE FROM budgets"
    ),
    "a document whose text is another": rows(
        "damaged document: memory 'd'", "UPDATE documents SET body = 'Another' WHERE name = 'd'"
    ),
    "a document whose text is not text": rows(
        "damaged document: memory 'd'", "UPDATE documents SET body = CAST(body AS BLOB) WHERE name = 'd'"
    ),
    "a document of another length": rows(
        "wrong length: memory 'd'", "UPDATE documents SET chars = chars + 1 WHERE name = 'd'"
    ),
    "a document with a name that nobody can type": rows(
        "unusable name: memory 'a\\n'", "UPDATE documents SET name = 'a' || CHAR(10) WHERE name = 'd'"
    ),
    # names of what is not there
    "a label on an entry that is missing": rows(
        "dangling mark: session {root}", "UPDATE marks SET entry_id = 'nowhere' WHERE kind = 'label'"
    ),
    "a next key that is taken": rows(
        "wrong next key: table flue_store", "UPDATE flue_store SET value = 2 WHERE name = 'next_key'"
    ),
    "a next key that is missing": rows(
        "wrong next key: table flue_store", "DELETE FROM flue_store WHERE name = 'next_key'"
    ),
    # the database itself
    "a value that a CHECK forbids": rows(
        "damaged database: {path}", "UPDATE sessions SET kind = 'other' WHERE id = '{heir}'"
    ),
}  # fmt: skip


async def test_a_budget_with_what_is_held_in_it_is_clean(made: Made) -> None:
    assert damage(made.path, BUDGET, RESERVATIONS) == 4
    assert (await verified(made.path)).problems == []


@inputs("what", DAMAGES)
async def test_damage_is_found_and_named(anew: Callable[[], Made], what: str) -> None:
    made = anew()
    damages, problem = DAMAGES[what]
    assert damage(made.path, *damages(made)) >= 1
    assert problem(made) in named((await verified(made.path)).problems)


@inputs("column", TOTAL_COLUMNS)
async def test_one_wrong_total_is_not_reported_all_the_way_down(anew: Callable[[], Made], column: str) -> None:
    made = anew()
    damage(made.path, (ENTRY.format(f"{column} = {column} + 1"), (second(made),)))
    assert named((await verified(made.path)).problems) <= {
        ("wrong totals", f"entry {each}") for each in made.entries[1:3]
    }


async def test_a_wrong_parent_is_one_problem_and_says_both(made: Made) -> None:
    damage(made.path, (ENTRY.format("parent_id = 'nowhere'"), (second(made),)))
    (problem,) = (await verified(made.path)).problems
    assert problem.detail == f"says that it was added to 'nowhere', its lane has it below {first(made)!r}"


async def test_a_tip_with_a_wrong_total_is_one_problem(made: Made) -> None:
    damage(made.path, (ENTRY.format("total_cost = total_cost + 1"), (fork_tip(made),)))
    (problem,) = (await verified(made.path)).problems
    assert str(problem).startswith(f"wrong totals: entry {fork_tip(made)}: ")


KEYS = {
    "lanes": ("owner_key", "tree_id, lane_id"),
    "task_links": ("parent_key", "parent_key, position"),
    "leaf_moves": ("session_key", "session_key, revision"),
    "session_edits": ("session_key", "session_key, revision, what"),
    "requests": ("session_key", "session_key, idempotency_key"),
    "marks": ("session_key", "session_key, entry_id, kind"),
}
"""Of each table that names sessions by key: the column that does, and its primary key."""


@inputs("table", KEYS)
async def test_rows_of_a_session_that_is_not_there_are_named_by_their_table(
    anew: Callable[[], Made], table: str
) -> None:
    made = anew()
    column, key = KEYS[table]
    damage(made.path, EDIT)
    one_row = f"({key}) = (SELECT {key} FROM {table} LIMIT 1)"
    assert damage(made.path, f"UPDATE {table} SET {column} = 999 WHERE {one_row}") == 1
    problems = (await verified(made.path)).problems
    assert ("rows of no session", f"table {table}") in named(problems)
    assert any("999" in problem.detail for problem in problems if problem.where == f"table {table}")


async def test_a_session_row_that_is_gone_is_named_by_its_id_with_an_entry_it_left(made: Made) -> None:
    damage(made.path, ("DELETE FROM sessions WHERE id = ?", (made.fork,)))
    problems = (await verified(made.path)).problems
    (lanes,) = [problem for problem in problems if problem.where == "table lanes"]
    assert lanes.kind == "rows of no session"
    assert f"(session {made.fork})" in lanes.detail
    assert lanes.detail.endswith(min(made.fork_entries))


COLUMNS = [(table, column.name) for table in metadata.sorted_tables for column in table.columns]


@pytest.mark.thorough(but=["bytes"])
@pytest.mark.parametrize("value", ["'x'", "X'00FF'", "0.5"], ids=["text", "bytes", "float"])
async def test_a_value_of_any_type_in_any_column_is_no_reason_to_fail(made: Made, value: str) -> None:
    changed = 0
    damage(made.path, BUDGET, RESERVATIONS, EDIT)
    with closing(sqlite3.connect(made.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for table, column in COLUMNS:
            key = ", ".join(part.name for part in table.primary_key)
            one_row = f"({key}) = (SELECT {key} FROM {table.name} LIMIT 1)"
            connection.execute("BEGIN")
            with contextlib.suppress(sqlite3.IntegrityError):
                sql = f'UPDATE {table.name} SET "{column}" = {value} WHERE {one_row}'
                changed += connection.execute(sql).rowcount
            assert all(str(problem) for problem in verify(SqliteTransaction(connection)).problems)
            connection.execute("ROLLBACK")
    assert changed > 120


async def test_a_lane_whose_parent_is_missing_is_named(made: Made) -> None:
    where = lane_of(made.path, fork_tip(made))
    damage(made.path, ("UPDATE lanes SET parent_lane = 999 WHERE lane_id = ?", (where.split()[1],)))
    assert ("dangling parent", where) in named((await verified(made.path)).problems)


async def test_a_lane_without_entries_is_named(made: Made) -> None:
    damage(
        made.path, "INSERT INTO lanes (tree_id, lane_id, owner_key, parent_lane, fork_depth) VALUES (1, 77, 1, 1, 2)"
    )
    assert ("empty lane", "lane 77 of tree 1") in named((await verified(made.path)).problems)


async def test_entries_that_a_deletion_should_have_taken_are_named(made: Made) -> None:
    change = (SESSION.format("leaf = NULL, forked_from_entry = NULL"), (made.heir,))
    damage(made.path, change)
    give_heads(made.path)
    where = lane_of(made.path, made.inherited[-1])
    assert named((await verified(made.path)).problems) == {("orphaned entries", where)}


async def test_entries_below_the_deepest_hold_are_named(made: Made) -> None:
    held = made.inherited[1]
    damage(made.path, ("UPDATE sessions SET leaf = ?, forked_from_entry = ? WHERE id = ?", (held, held, made.heir)))
    give_heads(made.path)
    where = lane_of(made.path, made.inherited[-1])
    assert named((await verified(made.path)).problems) == {("orphaned entries", where)}


@inputs(
    "sql",
    ["UPDATE entries SET role = 'toolResult' WHERE depth = 0", "UPDATE blobs SET size = size + 1"],
    ids=["the role of a message", "the size of a blob"],
)
async def test_whatever_is_stored_twice_is_compared(made: Made, sql: str) -> None:
    assert damage(made.path, sql) >= 1
    assert (await verified(made.path)).problems != []


async def test_everything_that_is_wrong_is_reported_at_once(made: Made) -> None:
    damage(
        made.path,
        (ENTRY.format("payload = replace(payload, 'question', 'Question')"), (first(made),)),
        (ENTRY.format("packed = X'00'"), (made.packed,)),
        (SESSION.format("entry_count = 0"), (made.fork,)),
        (SESSION.format("leaf = 'nowhere'"), (made.heir,)),
        (SESSION.format("spent_tokens = 999"), (made.task,)),
    )
    assert named((await verified(made.path)).problems) == {
        ("damaged entry", f"entry {first(made)}"),
        ("unreadable payload", f"entry {made.packed}"),
        ("wrong count", f"session {made.fork}"),
        ("missing leaf", f"session {made.heir}"),
        ("wrong spending", f"session {made.task}"),
        *(("damaged session", f"session {session_id}") for session_id in (made.fork, made.heir, made.task)),
    }


async def test_problems_come_from_the_database_then_by_entry_then_by_session_then_of_the_ledger(made: Made) -> None:
    damage(
        made.path,
        (SESSION.format("spent_tokens = 999"), (made.root,)),
        (SESSION.format("leaf = 'nowhere'"), (made.heir,)),
        (SESSION.format("entry_count = 0"), (made.fork,)),
        (ENTRY.format("packed = X'00'"), (made.packed,)),
        (ENTRY.format("payload = replace(payload, 'question', 'Question')"), (first(made),)),
        ("UPDATE leaf_moves SET session_key = 999999", ()),
    )
    assert list(dict.fromkeys(problem.kind for problem in (await verified(made.path)).problems)) == [
        "dangling reference",
        "damaged entry",
        "unreadable payload",
        "damaged session",
        "damaged log",
        "wrong count",
        "missing leaf",
        "wrong spending",
        "rows of no session",
    ]


# -- damage to the bytes --------------------------------------------------------------------------------------------


def flip(path: Path, offset: int, bits: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= bits
    path.write_bytes(data)


@inputs("bit", range(8))
async def test_a_bit_that_flips_in_a_payload_is_found_and_the_entry_named(anew: Callable[[], Made], bit: int) -> None:
    made = anew()
    data = made.path.read_bytes()
    assert data.count(NEEDLE.encode()) == 1
    flip(made.path, data.index(NEEDLE.encode()) + 4, 1 << bit)
    where = f"entry {made.entries[4]}"
    assert {("damaged entry", where), ("unreadable payload", where)} & named((await verified(made.path)).problems)


async def test_a_page_that_is_overwritten_is_always_noticed(made: Made, tmp_path: Path) -> None:
    with closing(sqlite3.connect(made.path, isolation_level=None)) as connection:
        connection.execute("VACUUM")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    whole = made.path.read_bytes()
    assert pages > 20
    for page in range(pages):
        damaged = tmp_path / f"{page}.db"
        damaged.write_bytes(whole[: page * size] + b"\xa5" * size + whole[(page + 1) * size :])
        try:
            report = await verified(damaged)
        except FixTheStore as error:
            assert str(damaged) in str(error)  # noqa: PT017 - refusing and reporting are both fine
        else:
            assert report.problems != [], page
        damaged.unlink()
