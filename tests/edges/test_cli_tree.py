"""flue-py tree: the graph of a session, from its own database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import flue_py
from flue_py.render.lines import cells
from tests.edges.cli_runs import Flue
from tests.formats.pi_files import as_lines


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str, dollars: float | None = 0.25) -> dict[str, Any]:
    """Return an answer; one that cost nobody knows what for None."""
    usage = {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 3}
    cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": dollars}
    return {
        "role": "assistant", "content": [{"type": "text", "text": text}], "api": "a", "provider": "p", "model": "m",
        "stopReason": "stop", "usage": usage if dollars is None else {**usage, "cost": cost},
    }  # fmt: skip


def turns(word: str, count: int, dollars: float | None = 0.25) -> list[dict[str, Any]]:
    return [message for n in range(count) for message in (user(f"{word} {n}"), answer(f"{word} said {n}", dollars))]


def make(flue: Flue, tell: Callable[[flue_py.Store], Any]) -> Any:
    async def work() -> Any:
        async with flue_py.open(flue.database) as store:
            return await tell(store)

    return asyncio.run(work())


async def story(store: flue_py.Store) -> dict[str, str]:
    """Write a history with a branch on a branch, a fork of either, a task, and costs that are not all known."""
    session = await store.create_session(key="story", title="A \x1b[31mstory\u202e")
    main = await session.append_messages(turns("main", 10))
    await session.move_leaf(main.entry_ids[9])
    side = await session.append_messages(turns("side", 5, None))
    await session.move_leaf(side.entry_ids[3])
    await session.append_messages(turns("deep", 2, 1.5))
    await session.move_leaf(main.entry_ids[-1])
    await session.fork(at=main.entry_ids[9], title="Another way")
    fork = await session.fork(at=main.entry_ids[3], key="spent")
    await fork.append_message(answer("so", 2.0))
    await fork.fork(at=main.entry_ids[3], title="A fork of the fork")
    await session.fork(at=None, title="From the beginning")
    await session.tasks.create(task_id="t1", title="Look it up")
    return {"fork": fork.id, "end": main.entry_ids[-1], "where": main.entry_ids[9]}


def test_a_tree_shows_what_each_line_and_each_branch_cost(flue: Flue) -> None:
    made = make(flue, story)
    lines = flue.lines("tree", "story")
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("A \ufffd[31mstory\ufffd, 34 entries, 3 branches, ")
    assert lines[0].endswith(", $5.50 + ?")
    shown = [line.split() for line in lines]
    costs = {word: [row[-1] for row in shown if word in row] for word in ("main", "side", "deep")}
    assert costs == {"main": [*["0.2500"] * 9, "~6", "0.2500"], "side": ["-"] * 5, "deep": ["1.50"] * 2}
    assert "Σ 2.50" in next(line for line in lines if "← leaf" in line)
    assert sum("↳ fork" in line for line in lines) == 4
    assert lines.index("begun before the first entry") == len(lines) - 2
    assert "↳ fork" in lines[-1]
    (task,) = (n for n, line in enumerate(lines) if "t1 (running): Look it" in line)
    assert "← leaf" in lines[task - 1]
    spent = flue.json("tree", made["fork"])
    assert [fork["title"] for fork in spent["forks"]] == ["A fork of the fork"]


def test_a_long_title_leaves_room_for_the_numbers(flue: Flue) -> None:
    async def work(store: flue_py.Store) -> None:
        session = await store.create_session(key="long", title="漢字" * 60)
        await session.append_messages(turns("main", 1))

    make(flue, work)
    title = flue.lines("tree", "long")[0]
    assert cells(title) <= 80
    assert title.endswith("…, 2 entries, 1 branch, 3 tokens used, $0.2500")


def test_branches_in_json_have_exact_costs_or_none(flue: Flue) -> None:
    made = make(flue, story)
    tree = flue.json("tree", "story")
    by_length = sorted(tree["branches"], key=lambda branch: -int(branch["entries"]))
    assert [(b["entries"], b["active"], b["cost"], b["costIsWhole"]) for b in by_length] == [
        (20, True, "2.5", True),
        (10, False, None, False),
        (4, False, "3", True),
    ]
    assert by_length[0]["tipId"] == made["end"]
    assert by_length[1]["fromId"] == made["where"]
    assert flue.json("tree", "story", "--depth", "0")["branches"] == tree["branches"]
    assert {fork["forkedFrom"]["entryId"] for fork in tree["forks"]} >= {None, made["where"]}
    assert [task["taskId"] for task in tree["tasks"]] == ["t1"]


def test_depth_leaves_out_branches_of_branches_and_says_so(flue: Flue) -> None:
    make(flue, story)
    lines = flue.lines("tree", "story", "--depth", "1")
    assert not any("deep" in line for line in lines)
    assert any("+1 branch" in line for line in lines)
    assert "1 branch folded away, with 4 entries; see --all, --depth" in lines
    assert any("+2 branches" in line for line in flue.lines("tree", "story", "--depth", "0"))
    assert len([line for line in flue.lines("tree", "story", "--all") if " said " in line]) == 17
    flue.run("tree", "story", "--depth", "-1", code=2)


def test_an_imported_fork_sees_the_branches_of_its_own_history_only(flue: Flue) -> None:
    made = make(flue, story)
    lines = flue.lines("tree", made["fork"])
    assert "5 entries, 1 branch" in lines[0]
    assert "A fork of the fork" in "\n".join(lines)


def test_rows_that_a_program_wrote_for_itself_are_left_out_unless_all_is_asked_for(flue: Flue) -> None:
    row = {"isSidechain": False, "sessionId": "s1", "cwd": "/srv/shop", "version": "2.1.0"}
    said = {"role": "user", "content": "Fix it"}
    answer = {
        "role": "assistant",
        "id": "m1",
        "model": "claude-opus-4-6",
        "content": [{"type": "text", "text": "Done"}],
    }
    rows = [
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {"trackedFileBackups": {}}},
        {"type": "user", "uuid": "u1", "parentUuid": None, "timestamp": "2026-05-04T09:00:01Z", "message": said, **row},
        {
            "type": "progress", "uuid": "p1", "parentUuid": "u1", "timestamp": "2026-05-04T09:00:02Z",
            "data": {"hook": "lint"}, **row,
        },
        {
            "type": "assistant", "uuid": "a1", "parentUuid": "p1", "timestamp": "2026-05-04T09:00:03Z",
            "message": answer, **row,
        },
    ]  # fmt: skip
    file = flue.write(as_lines(rows), "s1.jsonl")
    session = flue.json("import", "claude-code", str(file), "--finish")[0]["sessionId"]
    shown = flue.run("tree", session).stdout
    assert "1 branch" in shown
    assert "progress" not in shown
    assert "snapshot" not in shown
    assert shown.splitlines()[-1] == "2 rows that the program wrote for itself left out; see --all"
    whole = flue.run("tree", session, "--all").stdout
    assert "claude_code.progress hook: lint" in whole
    assert "2 branches" in whole
