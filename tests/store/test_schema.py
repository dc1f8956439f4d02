"""The database, read with `sqlite3` and docs/format.md alone, without flue_py."""

from __future__ import annotations

import asyncio
import sqlite3
import zlib
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.sessions import STORED, NewSession, Ordering, SessionOrder
from flue_py.db.backend import Backend
from flue_py.db.ops import sessions as listing_sql
from flue_py.db.ops.ledger import CALLS_IN_TIME, SPENT_IN_TIME, ledger_sums
from tests.samples import add, assistant, compaction, new_session, path_of, session_info, talk, user
from tests.sources import START_US
from tests.store.sqlite_batches import opened
from tests.tables import inputs

NOISE = "".join(Random(3).choices("abcdefghijklmnopqrstuvwxyz0123456789-", k=60_000))


def query(path: Path, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(sql, parameters).fetchall()


# -- the view `history` ---------------------------------------------------------------------------------------------


HISTORY = "SELECT tree_id, id, parent_id, depth, kind, role, revision, created_at, created_by FROM history"
TREES = "SELECT id, tree_id FROM sessions"


async def history_of(backend: Backend, trees: list[tuple[str, int]]) -> set[tuple[object, ...]]:
    """Return what a store tells of the entries of its sessions, as rows of the view."""
    return {
        (tree, each.id, each.parent_id, each.depth, each.kind, each.role, each.revision, each.created_us,
         each.session_id)
        for session_id, tree in trees for each in await backend.read_tree(session_id)
    }  # fmt: skip


async def check_history(path: Path, backend: Backend) -> int:
    """Compare the view with what the store tells; return how many entries that were."""
    rows = query(path, HISTORY)
    assert {*rows} == await history_of(backend, query(path, TREES))
    assert len({row[:2] for row in rows}) == len(rows)
    return len(rows)


async def branches(backend: Backend) -> tuple[str, str]:
    """Make a session with branches and several roots, and a fork of it; return their ids."""
    root = await new_session(backend, *talk(4))
    ids = [each.id for each in await path_of(backend, root.id)]
    await backend.append(root.id, [user("branch"), assistant("b")], expected=ids[1], on_conflict="branch")
    await backend.move(root.id, ids[0])
    await add(backend, root.id, user("another branch"), compaction(ids[0]))
    await backend.move(root.id, None)
    await add(backend, root.id, user("another root"))
    fork = await backend.fork(root.id, ids[2], NewSession())
    await add(backend, fork.id, *talk(3))
    return root.id, fork.id


async def test_the_view_tells_each_entrys_parent_as_the_store_does(path: Path) -> None:
    async with opened(path) as backend:
        root, fork = await branches(backend)
        second = await backend.fork(fork, STORED, NewSession())
        await add(backend, second.id, *talk(2))
        task = await backend.create_task(root, "task", NewSession())
        await add(backend, task.id, user("in another tree"))
        assert await check_history(path, backend) == 15
        await backend.delete_tree(fork)
        assert await check_history(path, backend) == 15
        await backend.delete_tree(root)
        left = await check_history(path, backend)
        assert left == len(await path_of(backend, second.id)) == 8
        # What a deleted session made, another one still sees, and nobody is named as its maker.
        assert {each.session_id for each in await path_of(backend, second.id)} == {None, second.id}


@given(st.integers(0, 2**32))
def test_the_view_tells_the_parents_of_any_history(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.mktemp("history")
    asyncio.run(play(folder / "s.db", Random(seed)))


async def play(path: Path, random: Random) -> None:
    """Make a random tree of sessions and compare it with the view."""
    async with opened(path) as backend:
        names = [(await new_session(backend)).id]
        for _ in range(random.randint(5, 15)):
            name = random.choice(names)
            seen: list[str | None] = [None, *[each.id for each in await backend.read_tree(name)]]
            what = random.choice(["append", "branch", "move", "fork", "delete"])
            if what == "append":
                await add(backend, name, *talk(random.randint(1, 3)))
            elif what == "branch":
                await backend.append(name, talk(2), expected=random.choice(seen), on_conflict="branch")
            elif what == "move":
                await backend.move(name, random.choice(seen))
            elif what == "fork":
                names.append((await backend.fork(name, random.choice(seen), NewSession())).id)
            elif len(names) > 1:
                names.remove(name)
                await backend.delete_tree(name)
        await check_history(path, backend)
        assert (await backend.verify()).problems == []


# -- what docs/format.md says ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Store:
    path: Path
    root: str
    fork: str
    ids: list[str]
    texts: dict[str, str]


async def make(path: Path) -> Store:
    async with opened(path) as backend:
        root = await new_session(backend, *talk(3), user("y" * 3_000), user(NOISE), key="main", scope="user-7")
        ids = [each.id for each in await path_of(backend, root.id)]
        fork = await backend.fork(root.id, ids[2], NewSession(key="side"))
        await add(backend, fork.id, assistant("c", tokens=5, dollars=0.25), compaction(ids[1], tokens=2, dollars=0.5))
        trees = [await backend.read_tree(each) for each in (root.id, fork.id)]
        return Store(path, root.id, fork.id, ids, {each.id: each.payload for tree in trees for each in tree})


@pytest.fixture
def store(path: Path) -> Store:
    return asyncio.run(make(path))


def text_of(payload: str | None, packed: bytes | None, data: bytes | None) -> str:
    if payload is not None:
        return payload
    return zlib.decompress(packed if packed is not None else data or b"").decode()


PLACES = (
    "SELECT e.id, e.payload, e.packed, b.data, e.digest, e.blob, b.size FROM entries e"
    " LEFT JOIN blobs b ON b.tree_id = e.tree_id AND b.sha256 = e.blob"
)


def test_every_payload_is_text_a_zlib_stream_or_a_blob(store: Store) -> None:
    rows = query(store.path, PLACES)
    assert {row[0]: text_of(*row[1:4]) for row in rows} == store.texts
    assert {sum(each is not None for each in row[1:4]) for row in rows} == {1}
    assert [sum(row[n] is not None for row in rows) for n in (1, 2, 3)] == [5, 1, 1]


FIELDS = "json_array(e.id, e.kind, e.role, e.source, e.revision, e.ordinal, e.created_at, e.extra)"


def test_digests_and_sizes_can_be_checked_by_anybody(store: Store) -> None:
    fields = f"SELECT e.id, e.kind, e.parent_id, {FIELDS} FROM entries e"
    found = {id_: rest for id_, *rest in query(store.path, fields)}
    digests = {row[0]: row[4] for row in query(store.path, PLACES)}
    for id_, *columns, digest, blob, size in query(store.path, PLACES):
        data, (kind, parent, covered) = text_of(*columns).encode(), found[id_]
        above = digests.get(parent, bytes(16))
        first = blake2b(f"{kind}\0".encode() + above[:8] + data, digest_size=8).digest()
        second = blake2b(above + first + covered.encode(), digest_size=8, person=b"fields")
        assert first + second.digest() == digest, id_
        if blob is not None:
            assert (sha256(data).digest(), len(data)) == (blob, size)


PATH = """
WITH RECURSIVE path AS (
  SELECT h.* FROM sessions s JOIN history h ON h.tree_id = s.tree_id AND h.id = s.leaf WHERE s.key = ?
  UNION ALL
  SELECT h.* FROM path p JOIN history h ON h.tree_id = p.tree_id AND h.id = p.parent_id
)
SELECT id FROM path ORDER BY depth
"""


def test_a_path_is_found_by_walking_up_the_view(store: Store) -> None:
    assert [row[0] for row in query(store.path, PATH, "main")] == store.ids
    side = [row[0] for row in query(store.path, PATH, "side")]
    assert side[:3] == store.ids[:3]
    assert len(side) == 5


def test_a_path_is_a_few_ranges_of_lanes(store: Store) -> None:
    lanes = query(store.path, "SELECT lane_id, parent_lane, fork_depth FROM lanes ORDER BY lane_id")
    assert lanes == [(1, None, -1), (2, 1, 2)]
    places = query(store.path, "SELECT lane_id, depth FROM entries ORDER BY lane_id, depth")
    assert places == [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4)]


def test_a_window_is_a_subtraction_of_two_rows(store: Store) -> None:
    sql = """
    SELECT b.total_tokens - a.total_tokens, b.total_cost - a.total_cost
      FROM entries a JOIN entries b ON b.tree_id = a.tree_id JOIN sessions s ON s.leaf = b.id
     WHERE a.id = ? AND s.key = 'side'
    """
    assert query(store.path, sql, store.ids[1]) == [(7, 75 * 10**10)]


def test_what_was_paid_is_in_the_ledger_with_the_name_of_who_paid(store: Store) -> None:
    sql = """
    SELECT n.session_id, g.scope, g.purpose, SUM(g.total_tokens), SUM(g.cost)
      FROM ledger g JOIN ledger_sessions n ON n.session_key = g.session_key GROUP BY 1, 2, 3 ORDER BY 1 DESC, 3
    """
    assert query(store.path, sql) == [
        (store.fork, "user-7", "compaction", 2, 5 * 10**11),
        (store.fork, "user-7", "turn", 5, 25 * 10**10),
        (store.root, "user-7", "turn", 10, 10**10),
    ]


def test_times_are_microseconds_and_the_listing_needs_the_session_row_alone(store: Store) -> None:
    rows = query(store.path, "SELECT id, entry_count, message_count, first_message FROM sessions ORDER BY session_key")
    assert rows == [(store.root, 5, 5, "question 0"), (store.fork, 2, 1, None)]
    times = [
        row[0] for row in query(store.path, "SELECT created_at FROM entries UNION SELECT updated_at FROM sessions")
    ]
    assert all(START_US <= moment < START_US + 10**6 for moment in times)


async def test_the_ledger_and_who_paid_outlive_the_session(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, assistant("a", tokens=5, dollars=0.5))
        await backend.delete_tree(session.id)
        sql = "SELECT n.session_id, g.cost FROM ledger g JOIN ledger_sessions n USING (session_key)"
        assert query(path, sql) == [(session.id, 5 * 10**11)]
        again = await backend.create_session(NewSession(id=session.id))
        await add(backend, again.id, assistant("b", tokens=1))
        assert (await session_info(backend, again.id)).spent_tokens == 1
        assert (await backend.verify()).problems == []


async def test_another_program_reads_beside_a_store_that_is_open(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, *talk(2))
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            count = "SELECT COUNT(*) FROM entries"
            assert reader.execute(count).fetchone() == (2,)
            await add(backend, session.id, *talk(2))
            assert reader.execute(count).fetchone() == (2,)
            reader.execute("COMMIT")
            assert reader.execute(count).fetchone() == (4,)


# -- what the database itself refuses -------------------------------------------------------------------------------


@inputs(
    "sql",
    [
        "UPDATE sessions SET kind = 'other'",
        "UPDATE sessions SET id = 'one'",
        "UPDATE sessions SET key = 'same', scope = ''",
        "UPDATE entries SET packed = X'00'",
        "UPDATE entries SET payload = NULL, packed = NULL, blob = NULL",
        "UPDATE entries SET id = 'one'",
        "UPDATE entries SET depth = 0",
        "UPDATE entries SET digest = NULL",
        "UPDATE lanes SET fork_depth = 5",
        "UPDATE lanes SET lane_id = 1",
        "INSERT INTO marks (session_key, entry_id, kind, at) VALUES (1, 'x', 'other', 0)",
        "INSERT INTO marks (session_key, entry_id, kind, at) VALUES (999, 'x', 'label', 0)",
        "INSERT INTO requests (session_key, idempotency_key, operation, digest, result) VALUES (999, '', '', '', '')",
        "INSERT INTO leaf_moves (session_key, revision, reason, at) VALUES (999, 1, 'move', 0)",
        "INSERT INTO task_links (parent_key, position, task_id, child_id) VALUES (999, 0, 't', 'c')",
        "INSERT INTO ledger SELECT * FROM ledger",
        "INSERT INTO session_edits (session_key, revision, what, at) VALUES (999, 1, 'title', 0)",
        "INSERT INTO budgets VALUES (1, 'b', '', 'scope', 'x', 'tokens', 1, 0, 0, 0, 0, 0, '', '')",
        "INSERT INTO budgets VALUES (1, 'b', '', 'other', NULL, 'tokens', 1, 0, 0, 0, 0, 0, '', '')",
        "INSERT INTO budgets VALUES (1, 'b', '', 'scope', NULL, 'dollars', 1, 0, 0, 0, 0, 0, '', '')",
        "INSERT INTO budgets VALUES (1, 'b', '', 'scope', NULL, 'tokens', 1, 0, 0, 0, 0, 0, 'year', 'UTC')",
        "INSERT INTO budgets VALUES (1, 'b', '', 'scope', NULL, 'tokens', 1, 0, 0, 0, 0, 0, 'day', '')",
        "INSERT INTO reservations VALUES ('r', 999, NULL, 1, 'held', NULL, 0, 0, NULL)",
    ],
)
def test_a_row_that_would_break_the_format_is_refused(store: Store, sql: str) -> None:
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(sql)


@inputs(
    ("sql", "index"),
    [
        ("SELECT * FROM entries WHERE tree_id = 1 AND lane_id = 1 AND depth > 2 ORDER BY depth", "autoindex_entries_1"),
        ("SELECT * FROM entries WHERE tree_id = 1 AND id = 'x'", "autoindex_entries_2"),
        ("SELECT * FROM entries WHERE id = 'x'", "autoindex_entries_2"),
        ("SELECT id FROM entries WHERE +tree_id = 1 AND id >= 'x' AND id < 'y' ORDER BY id", "autoindex_entries_2"),
        (
            "SELECT * FROM entries WHERE tree_id = 1 AND lane_id = 1 AND kind = 'compaction' ORDER BY depth DESC",
            "ix_entries_compaction",
        ),
        ("SELECT * FROM sessions WHERE id = 'x'", "autoindex_sessions_1"),
        (
            "SELECT * FROM sessions WHERE scope = '' AND key = 'x' AND key IS NOT NULL AND trashed_at IS NULL",
            "uq_sessions_scope_key",
        ),
        ("SELECT * FROM sessions ORDER BY active_slot DESC, session_key DESC LIMIT 9", "ix_sessions_active_slot"),
        ("SELECT * FROM lanes WHERE owner_key = 1", "ix_lanes_owner_key"),
        ("SELECT * FROM task_links WHERE child_id = 'x'", "ix_task_links_child_id"),
        ("SELECT * FROM ledger WHERE session_key = 1", "ix_ledger_session_key"),
    ],
)
def test_a_common_question_is_answered_by_an_index_without_sorting(store: Store, sql: str, index: str) -> None:
    plan = " / ".join(str(row[3]) for row in query(store.path, f"EXPLAIN QUERY PLAN {sql}"))
    assert index in plan
    assert "SCAN entries" not in plan
    assert "TEMP B-TREE" not in plan


def test_the_ledger_of_some_sessions_is_found_by_an_index(store: Store) -> None:
    statement = ledger_sums(("session", "model"), by_keys=True)
    values = {"keys": "[1]", "from_us": 0, "before_us": 1}
    with closing(sqlite3.connect(store.path)) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", values)]
    assert any("SEARCH g USING INDEX ix_ledger_session_key" in step for step in plan), plan
    assert not any(step == "SCAN g" for step in plan), plan


@inputs("who, index", [("scope", "ix_ledger_at"), ("scopes", "ix_ledger_at"), ("sessions", "ix_ledger_session_key")])
def test_what_was_spent_in_a_period_is_found_by_an_index(store: Store, who: str, index: str) -> None:
    for statement in (SPENT_IN_TIME[who], CALLS_IN_TIME[who]):
        values = {**dict.fromkeys(statement.parameters, 1), "ids": '["a"]'}
        with closing(sqlite3.connect(store.path)) as connection:
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", values)]
        assert any(f"SEARCH g USING INDEX {index}" in step for step in plan), plan


@inputs("order", ["activity", "created", "title"])
@inputs("descending", [True, False], ids=["most first", "least first"])
@inputs("is_first", [True, False], ids=["first page", "further page"])
@inputs("filters", [{"kind", "completed"}, {"kind", "scope"}], ids=["all scopes", "one scope"])
def test_a_page_of_a_listing_is_read_from_an_index(
    store: Store, order: SessionOrder, descending: bool, is_first: bool, filters: set[str]
) -> None:
    statement = listing_sql.session_page(Ordering(order, descending), frozenset(filters), is_first=is_first)
    values = dict.fromkeys(statement.parameters, 1)
    with closing(sqlite3.connect(store.path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", values).fetchall()
    # The tasks of each session that is shown are queries within it.
    step, *sorting = [row[3] for row in plan if row[1] == 0 and "SUBQUERY" not in row[3]]
    name = {"activity": "active_slot", "created": "created_at", "title": "title"}[order]
    in_scope = order == "activity" and "scope" in filters
    assert f"USING INDEX ix_sessions_{'scope_' if in_scope else ''}{name}" in step
    assert step.startswith("SCAN" if is_first and order != "activity" else "SEARCH")
    # By activity, the sessions of one slot are sorted, and no others.
    sorting = [step.replace("LAST 2 TERMS", "RIGHT PART") for step in sorting]  # as newer SQLites say it
    assert sorting == ["USE TEMP B-TREE FOR RIGHT PART OF ORDER BY"] * (order == "activity")
