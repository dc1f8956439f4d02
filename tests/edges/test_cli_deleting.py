"""Commands that delete: they ask first, or need --yes, or refuse."""

from __future__ import annotations

import ast
import asyncio
import inspect
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

import flue_py
import flue_py.cli
from flue_py.agents.conversation import Conversation
from flue_py.sessions import housekeeping
from tests.edges.cli_runs import Flue, runner, seen_here
from tests.edges.every_command import CALLS, every_command, has_option, make_hostile

DELETING = {
    "erase", "redact", "cleanup", "rm", "rm --config-gone", "rm --inactive-for 0h", "budget rm", "memory rm",
    "store rm",
}  # fmt: skip


async def made(database: Path) -> None:
    async with flue_py.open(database) as store:
        gone = await store.create_session(
            id="gone", config_path=str(database.parent / "no-such.yaml"), title="Gone one"
        )
        await gone.append_message({"role": "user", "content": "question"})
        await gone.tasks.create(task_id="t", title="Its task")
        await store.create_session(id="never", title="Never had one")
        await (await store.create_session(id="done")).set_completed(datetime.now(UTC))
        await store.set_budget(gone, tokens=10)
        await store.remember("a fact", "what is remembered")
        await store.add_file("a file", "text")


async def held(database: Path) -> tuple[set[str], set[str], set[str], set[str], str | None]:
    async with flue_py.open(database) as store:
        sessions = {info.id for info in (await store.list_sessions()).sessions}
        entries = {
            f"{entry.id} {entry.payload}"
            for name in sessions
            for entry in await (await store.find_session(name)).get_tree()
        }
        leaf = (await store.find_session("gone")).leaf_id if "gone" in sessions else None
        budgets = {budget.id for budget in await store.list_budgets()}
        return sessions, entries, budgets, {each.name for each in [*await store.memories(), *await store.files()]}, leaf


@pytest.fixture
def flue(tmp_path: Path) -> Flue:
    flue = Flue(tmp_path)
    asyncio.run(made(flue.database))
    return flue


def policy(flue: Flue, *lines: str) -> Path:
    return flue.write([f"{line}\n".encode() for line in lines], "policy.toml")


def call(flue: Flue, name: str) -> list[str]:
    arguments = {
        "redact": ["gone", flue.json("tree", "gone")["entries"][0]["id"], "--why", "by request"],
        "rm": ["gone"],
        "erase": ["gone"],
        "cleanup": ["--policy", str(policy(flue, "[[rule]]", "max_sessions = 0"))],
        "memory rm": ["a fact"],
        "store rm": ["a file"],
        "budget rm": [flue.json("budget", "list")[0]["id"]] if name == "budget rm" else [],
    }
    return [*name.split(), *arguments.get(name, [])]


def test_the_commands_that_delete_are_these() -> None:
    asking = {name for name, command in every_command() if has_option(command, "--yes")}
    # Pricing writes costs where there are none, and `files` writes files of a folder: neither deletes from a store.
    assert asking - {"reprice", "files"} == {name for name in DELETING if "--" not in name}


@pytest.mark.parametrize("name", sorted(DELETING))
def test_off_a_terminal_nothing_is_deleted_unless_told(flue: Flue, name: str) -> None:
    before = asyncio.run(held(flue.database))
    arguments = call(flue, name)
    dry = flue.run(*arguments, "--dry-run")
    refused = flue.run(*arguments, code=2)
    assert refused.stdout == dry.stdout
    assert dry.stdout
    assert refused.stderr.startswith("Error: nothing was changed: this would ")
    assert "give --yes" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert flue.json(*arguments, code=2)["dryRun"] is True
    assert asyncio.run(held(flue.database)) == before
    done = flue.json(*arguments, "--yes")
    assert done["dryRun"] is False
    assert asyncio.run(held(flue.database)) != before


def test_prune_takes_sessions_whose_configuration_is_gone_and_others_only_if_told(flue: Flue) -> None:
    shown = flue.lines("rm", "--config-gone", "--yes")
    assert shown[0] == "2 sessions, 1 entry deleted"
    assert [line.split(maxsplit=1)[1] for line in shown[1:] if line.split()[0] == "gone"] == ["Gone one"]
    assert any(line.endswith("Its task") for line in shown)
    assert asyncio.run(held(flue.database))[0] == {"never", "done"}
    assert flue.lines("rm", "--config-gone", "--yes") == ["0 sessions, 0 entries deleted"]
    assert set(flue.json("rm", "--config-gone", "--without-config", "--yes")["sessionIds"]) == {"never", "done"}


def test_rm_of_a_scope_asks_and_says_what_went_and_what_stays(flue: Flue) -> None:
    with flue_py.sync.open(flue.database) as store:
        mine = store.in_scope("t1")
        session = mine.create_session(cwd="/home/jane")
        session.append_message({"role": "assistant", "content": "x", "usage": {"input": 1, "output": 0}})
        mine.remember("fact", "x")
        mine.set_budget(tokens=5)
        of_sessions = [f"  {session.fork().id}  fork of (empty)", f"  {session.id}  (empty)"]
    before = asyncio.run(held(flue.database))
    assert "or give --scope for everything of a tenant or user" in flue.run("rm", code=2).stderr
    assert "this would delete everything of scope 't1'" in flue.run("rm", "--scope", "t1", code=2).stderr
    assert flue.lines("rm", "--scope", "t1", "--dry-run") == [
        "2 sessions, 1 entry, 1 memory, 0 files, 1 budget would be deleted",
        *of_sessions,
        "what was paid stays: 1 paid call, without agents and folders",
    ]
    assert asyncio.run(held(flue.database)) == before
    row = flue.json("rm", "--scope", "t1", "--yes")
    assert (len(row["sessionIds"]), row["dryRun"], row["complete"], row["entriesKept"]) == (2, False, None, 0)
    assert row["counts"] == {"sessions": 2, "entries": 1, "memories": 1, "files": 0, "budgets": 1, "calls": 1}
    assert "has the id or key 'gone'" in flue.run("rm", "gone", "--scope", "t1", code=4).stderr
    assert asyncio.run(held(flue.database))[3] == before[3]
    flue.run("rm", "--scope", "nobody")


@pytest.mark.parametrize("name", ["erase", "cleanup", "rm", "rm --inactive-for 0h"])
def test_what_was_written_to_before_the_answer_is_kept(flue: Flue, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def confirm(_: str) -> None:
        with flue_py.sync.open(flue.database) as store:
            task = next(info for info in store.list_sessions(kind="task").sessions if info.title == "Its task")
            store.find_session(task.id).append_message({"role": "user", "content": "one more"})

    monkeypatch.setattr("flue_py.cli.command.confirm", confirm)
    before = asyncio.run(held(flue.database))
    code, shown = seen_here("--db", str(flue.database), *call(flue, name), cwd=flue.folder)
    assert (code, "look at it, and run the command again" in shown) == (5, True)
    assert asyncio.run(held(flue.database))[0] == before[0]


def test_where_there_is_nothing_to_delete_nobody_is_refused(flue: Flue) -> None:
    for arguments in (["rm", "--config-gone", "--scope", "nobody"], ["rm", "--inactive-for", "90w"]):
        flue.run(*arguments)


def test_no_command_takes_anything_away_off_a_terminal_without_being_told_and_none_starts_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_hostile(tmp_path / "hostile")
    assert set(CALLS) == {name for name, _ in every_command()}, "give each a call in tests/edges/every_command.py"

    async def all_ids() -> tuple[set[str], set[str]]:
        async with flue_py.open(store.database) as opened:
            sessions = {info.id for info in (await opened.list_sessions()).sessions}
            entries = {entry.id for each in sessions for entry in await (await opened.find_session(each)).get_tree()}
            memories = {each.name for each in [*await opened.memories(), *await opened.files()]}
            return sessions | {budget.id for budget in await opened.list_budgets()} | memories, entries

    rows, entries = asyncio.run(all_ids())
    refused, running, begin = set(), list[tuple[str, str]](), threading.Thread.start

    def start(thread: threading.Thread) -> None:
        running.append((name, thread.name))
        begin(thread)

    # To start a thread and to stop it is most of what a short command would wait for.
    monkeypatch.setattr(threading.Thread, "start", start)
    for name, calls in CALLS.items():
        for arguments in calls:
            result = runner().invoke(flue_py.cli.main, ["--db", str(store.database), *store.call(name, arguments)])
            assert result.exception is None or isinstance(result.exception, SystemExit), (name, result.exception)
            if "nothing was changed: this would" in result.stderr:
                refused.add(name)
    monkeypatch.undo()
    assert running == []
    assert refused == {name for name in DELETING if "--" not in name}
    now, entries_now = asyncio.run(all_ids())
    assert rows <= now
    assert entries <= entries_now


# -- a new command cannot forget it -----------------------------------------------------------------------------------


@cache
def deleting_names() -> set[str]:
    """Return how the calls that delete are named: of the store, of sessions, of conversations, and by the lot."""
    owners = (flue_py.Store, flue_py.Session, Conversation, housekeeping)
    names = {name for owner in owners for name in dir(owner) if name.startswith(("delete", "prune", "remove", "drop"))}
    return {*names, "clear"}


def calls_outside_of_plans(source: str) -> Iterator[str]:
    for outer in ast.parse(source).body:
        is_plan = (
            isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
            and isinstance(outer.returns, ast.Name)
            and outer.returns.id == "Plan"
        )
        if is_plan:
            continue
        for node in ast.walk(outer):
            called = node.func if isinstance(node, ast.Call) else node
            name = (
                called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
            )
            if name in deleting_names() and isinstance(node, ast.Call | ast.Attribute):
                yield ast.unparse(node)


def test_nothing_is_deleted_but_by_a_plan() -> None:
    assert {"delete_session_tree", "delete_budget", "delete_all", "clear"} <= deleting_names()
    folder = Path(inspect.getfile(flue_py.cli)).parent
    found = {path.name: [*calls_outside_of_plans(path.read_text(encoding="utf-8"))] for path in folder.rglob("*.py")}
    assert {name: calls for name, calls in found.items() if calls} == {}
