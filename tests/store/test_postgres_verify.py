"""What `verify` finds in a PostgreSQL database that was really damaged: the same, named the same way."""

from __future__ import annotations

from flue_py.core.sessions import NewSession
from flue_py.db.engine import open_engine
from tests.postgres import NewDatabase, connected
from tests.samples import add, assistant, new_session, path_ids, talk, user
from tests.sources import counted_sources
from tests.store.test_verify import NOISE


async def test_each_kind_of_damage_is_found_and_named(new_database: NewDatabase) -> None:
    url = new_database()
    backend = await open_engine(url, sources=counted_sources())
    try:
        root = await new_session(backend, *talk(8), user(NOISE))
        ids = await path_ids(backend, root.id)
        fork = await backend.fork(root.id, ids[3], NewSession(key="fork"))
        fork_ids = list(await add(backend, fork.id, *talk(2)))
        await backend.set_label(root.id, ids[0], "start")
        gone = await new_session(backend, *talk(2), assistant("paid", tokens=1))
        gone_ids = await path_ids(backend, gone.id)
        bare = await new_session(backend, user())
        assert (await backend.verify()).problems == []
        async with connected(url) as connection:
            # Foreign keys and checks of the server are what a damaged disk does not ask.
            await connection.execute("SET session_replication_role = replica")
            for statement, *values in (
                ("UPDATE entries SET payload = replace(payload, 'question 0', 'question o') WHERE id = $1", ids[0]),
                ("UPDATE entries SET total_cost = total_cost + 1 WHERE id = $1", ids[7]),
                ("UPDATE entries SET depth = depth + 3 WHERE id = $1", fork_ids[1]),
                ("UPDATE blobs SET data = $1", b"no zlib stream"),
                ("UPDATE sessions SET leaf = 'nowhere' WHERE id = $1", fork.id),
                ("UPDATE marks SET entry_id = 'nowhere'",),
                ("UPDATE lanes SET parent_lane = 7 WHERE parent_lane IS NOT NULL",),
                ("DELETE FROM sessions WHERE id = $1", gone.id),
                ("DELETE FROM lanes WHERE owner_key = (SELECT session_key FROM sessions WHERE id = $1)", bare.id),
                ("INSERT INTO blobs VALUES (1, '\\xab', 1, '\\xab')",),
            ):
                await connection.execute(statement, *values)
        problems = (await backend.verify()).problems
        (bare_id,) = [
            problem.where.removeprefix("entry ") for problem in problems if "lane that does not" in str(problem)
        ]
        named = {(problem.kind, problem.where) for problem in problems}
        assert {
            ("damaged entry", f"entry {ids[0]}"),
            ("wrong totals", f"entry {ids[7]}"),
            ("wrong depth", f"entry {fork_ids[1]}"),
            ("unreadable payload", f"entry {ids[8]}"),
            ("missing leaf", f"session {fork.id}"),
            ("dangling mark", f"session {root.id}"),
            ("rows of no session", "table lanes"),
            ("dangling parent", f"entry {bare_id}"),
            ("orphaned blob", "blob ab"),
        } <= named
        assert any(kind == "dangling parent" and where.startswith("lane ") for kind, where in named)
        (lanes,) = [problem for problem in problems if problem.where == "table lanes"]
        assert f"(session {gone.id})" in lanes.detail
        assert lanes.detail.endswith(min(gone_ids))
    finally:
        await backend.close()
