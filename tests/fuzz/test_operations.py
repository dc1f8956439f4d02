"""Operations in the format of the conformance runner, in any order: every store answers what memory answers."""

from __future__ import annotations

import asyncio
from traceback import extract_tb
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import flue_py
from tests.conformance.comparing import Engine, Mismatch, running
from tests.conformance.history import History
from tests.conformance.lifecycle import Lifecycle, run_deletion
from tests.conformance.run import run_cases
from tests.fuzz.hostile import ARGUMENTS, note_refusal
from tests.strategies import hostile_json, messages, texts, usages
from tests.tables import inputs

ASKING = ("active_path", "build_context", "latest_compaction", "latest_assistant", "leaf", "tree")

entries = st.integers(0, 12).map(lambda number: f"e{number}")
places = st.none() | entries | st.just("no-such-entry")
times = st.sampled_from([None, "2026-01-01T00:00:00.000Z", "2025-01-01T00:00:00.000Z"])


def op(name: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"op": st.just(name), **arguments})


operations = st.one_of(
    op("append_message", message=messages, at=times),
    op("append_messages", messages=st.lists(messages, max_size=3)),
    op("append_compaction", summary=texts, first_kept=entries, tokens_before=st.integers(0, 99), usage=usages),
    op("append_branch_summary", summary=texts, **{"from": places}),
    op("move_leaf", to=places),
    op("remove_leaf_message", entry=entries),
    op("run_compaction", replies=st.just([]), reserve_tokens=st.just(100), keep_recent_tokens=st.integers(0, 20)),
    op("reload"),
    op("aggregate_usage_since", since=places),
    op("active_path_since", since=places),
    *(op(name) for name in ASKING),
)  # fmt: skip


async def answers(engine: Engine, case: dict[str, Any]) -> list[Any]:
    """Return what the store answers to each op: whatever the runner would compare with the fixture."""
    seen: list[Any] = []

    def note(_: object, actual: object) -> None:
        seen.append(actual)

    player = History(engine, case)
    with mock.patch("tests.conformance.history.check", note):
        await player.start()
        for each in case["ops"]:
            expecting: dict[str, Any] = {"result": None, "expect": None, **each}
            if each["op"] in ("build_context", "tree"):
                expecting["expect"] = {"entries": []} if each["op"] == "tree" else []
            if each["op"] == "run_compaction":
                expecting.update(entry={}, context_len=0, calls=[])
            try:
                await player.run(expecting)
            except flue_py.FlueError as error:
                note_refusal(error)
                seen.append(type(error).__name__)
            except ValueError as error:
                # The runner's own, whose comparison is put out of action: none that leaves the library.
                assert "conformance" in extract_tb(error.__traceback__)[-1].filename, repr(error)  # noqa: PT017
                seen.append(type(error).__name__)
    return seen


async def answers_of(backend: str, case: dict[str, Any], url: str | None = None) -> list[Any]:
    async with running(backend, url) as engine:
        return await answers(engine, case)


@given(st.lists(operations, max_size=15))
@example([{"op": "move_leaf", "to": "no-such-entry"}])
def test_any_operations_are_answered_alike_by_memory_and_sqlite(ops: list[dict[str, Any]]) -> None:
    case = {"name": "any", "ops": ops}
    assert asyncio.run(answers_of("memory", case)) == asyncio.run(answers_of("sqlite", case))


@pytest.mark.slow
def test_any_operations_are_answered_alike_by_postgresql(new_database: Any) -> None:
    async def run(ops: list[dict[str, Any]], number: int) -> None:
        case = {"name": f"case {number}", "ops": ops}
        async with running("memory") as memory, running("postgres", url) as postgres:
            assert await answers(memory, case) == await answers(postgres, case)

    url = new_database()
    numbers = iter(range(10**6))

    @given(st.lists(operations, max_size=15))
    def check(ops: list[dict[str, Any]]) -> None:
        asyncio.run(run(ops, next(numbers)))

    check()


SOUND = {
    "name": "sound",
    "ops": [
        {"op": "append_message", "message": {"role": "user", "content": "a"}, "result": "e0"},
        {"op": "leaf", "expect": "e0"},
        {"op": "tree", "expect": {"leaf": "e0", "entries": [["e0", "message", None]]}},
    ],
}
NAMES = [*ASKING, "append_message", "append_messages", "append_compaction", "append_branch_summary", "move_leaf",
         "remove_leaf_message", "run_compaction", "load", "to_data", "reload", "no_such_op"]  # fmt: skip
FIELDS = ["message", "messages", "summary", "first_kept", "tokens_before", "usage", "details", "from", "to", "entry",
          "result", "expect", "since", "data", "at", "source", "reserve_tokens", "replies"]  # fmt: skip
malformed = st.builds(
    lambda name, fields: {"op": name, **fields},
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(FIELDS), hostile_json | st.sampled_from(list(ARGUMENTS.values())), max_size=5),
)


@inputs("backend", ["memory", "sqlite"])
def test_malformed_operations_fail_by_name_and_leave_the_store_sound(backend: str) -> None:
    @given(st.lists(malformed, min_size=1, max_size=4))
    def check(ops: list[dict[str, Any]]) -> None:
        # The run ends with verify().
        cases: Any = [SOUND, *({"name": f"malformed {n}", "ops": [*SOUND["ops"], each]} for n, each in enumerate(ops))]
        outcome = asyncio.run(run_cases("history", [*cases, {**SOUND, "name": "sound again"}], backend))
        assert {"sound", "sound again"} <= set(outcome.passed)
        assert all("op 3" in text for text in outcome.failed.values())

    check()


@inputs("backend", ["memory", "sqlite"])
async def test_malformed_cases_of_deletion_and_lifecycle_leave_the_store_sound(backend: str) -> None:
    async with running(backend) as engine:
        for number, odd in enumerate(ARGUMENTS.values()):
            tasks = [{"storageKey": "b", "taskId": odd}, odd]
            sessions: Any = {"a": {"taskSessions": tasks}, "b": {"taskSessions": odd}}
            expect = {"remaining": [], "delete_calls": ["a", "b"]}
            try:
                await run_deletion(engine, {"name": f"d{number}", "sessions": sessions, "root": "a", "expect": expect})
            except flue_py.FlueError as error:  # a task id that no link can have
                note_refusal(error)
            player = Lifecycle(engine, {"name": f"l{number}", "instance": "i", "harness": "h"})
            await player.start()
            for each in (
                {"op": "open", "name": odd, "mode": "get_or_create", "expect": None},
                {"op": "open", "name": "n", "mode": odd, "expect": None},
                {"op": "open", "name": "n", "mode": "get_or_create", "role": odd, "expect": None},
                {"op": "task", "session": "n", "task_id": odd, "expect": None},
                {"op": "append", "session": "n", "messages": odd, "expect": None},
                {"op": "delete", "name": odd},
            ):
                try:
                    await player.run(each)
                except flue_py.FlueError as error:
                    note_refusal(error)
                except (Mismatch, KeyError):  # of the runner itself
                    continue
