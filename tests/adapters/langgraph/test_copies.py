"""Copies, forks and pruned threads: exact however often an id is taken, and in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("langgraph", "langgraph.graph")

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint

import flue_py
from flue_py.adapters.langgraph import FlueSaver
from flue_py.db.backend import Backend
from flue_py.errors import InvalidArgument, SessionNotFound
from tests.adapters.langgraph.graphs import answers, chat, sound, thread
from tests.values import existing


def shown(saver: FlueSaver, id: str) -> list[Any]:
    """Return all that is to be seen of a thread, but its id."""
    return [
        (found.checkpoint, found.metadata, found.pending_writes, (found.parent_config or {}).get("configurable", {}))
        for found in saver.list(thread(id))
    ]


def without_thread(rows: list[Any]) -> list[Any]:
    return [(*row[:3], row[3].get("checkpoint_id")) for row in rows]


def branched(saver: FlueSaver, id: str) -> None:
    """Make a thread with messages, and writes, on two branches."""
    graph = chat(saver, answers(9))
    graph.invoke({"messages": [("user", "One?")]}, thread(id))
    first = graph.get_state(thread(id)).config
    graph.invoke({"messages": [("user", "Two?")]}, thread(id))
    graph.invoke({"messages": [("user", "Else?")]}, first)
    saver.put_writes(first, [("late", 1)], "late")


def test_a_thread_is_copied_often_and_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with FlueSaver(path) as saver:
        branched(saver, "t")
        expected = without_thread(shown(saver, "t"))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: saver.copy_thread("t", f"copy {n}"), range(12)))
        saver.copy_thread("copy 11", "copy of a copy")
        with pytest.raises(InvalidArgument, match="is there already"):
            saver.copy_thread("t", "copy 11")
        with pytest.raises(SessionNotFound):
            saver.copy_thread("nobody", "new")
        for number in range(11):
            saver.delete_thread(f"copy {number}")
        saver.delete_thread("t")
        for id in ("copy 11", "copy of a copy"):
            assert without_thread(shown(saver, id)) == expected
            for row in saver.list(thread(id)):
                again = existing(saver.get_tuple(row.config))
                assert (again.checkpoint, again.pending_writes) == (row.checkpoint, row.pending_writes)
        done = chat(saver, [AIMessage("On.", id="on")]).invoke({"messages": [("user", "On?")]}, thread("copy 11"))
        assert len(done["messages"]) == 6
    sound(path, 2)


def test_a_checkpoint_is_put_again_as_often_as_you_like(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with FlueSaver(path) as one, FlueSaver(path) as two:
        for number in range(60):
            checkpoint: Any = empty_checkpoint() | {"id": "1", "channel_values": {"n": number}}
            (one, two)[number % 2].put(thread("t"), checkpoint, {"step": number}, {})
        for saver in (one, two):
            assert [found.metadata["step"] for found in saver.list(thread("t"))] == [59]
            found = existing(saver.get_tuple(thread("t", checkpoint_id="1")))
            assert found.checkpoint["channel_values"] == {"n": 59}
    sound(path, 1)


@pytest.mark.parametrize("restarted", [False, True])
def test_forks_of_one_checkpoint_have_the_writes_of_their_own(tmp_path: Path, restarted: bool) -> None:
    path = tmp_path / "a.db"
    saver = FlueSaver(path)
    with flue_py.sync.open(path) as store:
        saved = saver.put(thread("0"), empty_checkpoint(), {}, {})
        saver.put_writes(saved, [("c", "shared")], "task 00")
        for number in range(1, 5):
            store.open_session("0").fork(key=str(number))
        for written in range(1, 20):
            for number in range(5):
                if restarted:
                    saver.close()
                    saver = FlueSaver(path)
                config = thread(str(number), checkpoint_id=saved["configurable"]["checkpoint_id"])
                saver.put_writes(config, [("c", (number, written))], f"task {written:02}")
        store.open_session("3").fork(key="5")
        for number, expected in [*((n, n) for n in range(5)), (5, 3)]:
            for config in (thread(str(number)), thread(str(number), checkpoint_ns="")):
                found = existing(saver.get_tuple(config))
                writes = [write[2] for write in found.pending_writes or []]
                assert writes == ["shared", *([expected, written] for written in range(1, 20))]
        last = thread("5", checkpoint_id=saved["configurable"]["checkpoint_id"])
        saver.put_writes(last, [("c", "last")], "task 20")
        found = existing(saver.get_tuple(last))
        assert len(found.pending_writes or []) == 21
    saver.close()
    sound(path, 6)


def test_two_threads_go_on_from_the_same_messages_of_before(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with FlueSaver(path) as saver, flue_py.sync.open(path) as store:
        session = store.create_session(key="t")
        session.append_message({"role": "user", "content": "One?"})
        for number in range(6):
            session.fork(key=f"fork {number}")
        for id in ("t", *(f"fork {number}" for number in range(6))):
            done = chat(saver, answers(1)).invoke({"messages": [("user", "Two?")]}, thread(id))
            assert [message.content for message in done["messages"]] == ["One?", "Two?", "Yes. 0"]
            assert len(list(saver.list(thread(id)))) == 4
            first = list(saver.list(thread(id)))[-1]
            assert saver.get_tuple(first.config) == first
    sound(path, 7)


@pytest.mark.parametrize("change", ["copy", "prune", "delete runs"])
def test_what_fails_at_the_end_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    path = tmp_path / "a.db"
    with FlueSaver(path) as saver:
        branched(saver, "t")
        saver.put(thread("t") | {"metadata": {"run_id": "r"}}, empty_checkpoint(), {}, {})
        before = shown(saver, "t")
        with flue_py.sync.open(path) as store:
            size = len(store.open_session("t").get_tree())

        async def fails(*_: object, **__: object) -> None:
            raise OSError("the power went")

        changes: dict[str, Callable[[], None]] = {
            "copy": lambda: saver.copy_thread("t", "copy"),
            "prune": lambda: saver.prune(["t"]),
            "delete runs": lambda: saver.delete_for_runs(["r"]),
        }
        with monkeypatch.context() as broken:
            broken.setattr(Backend, "atomic", fails)
            with pytest.raises(OSError, match="power"):
                changes[change]()
        assert shown(saver, "t") == before
    sound(path, 1)
    with flue_py.sync.open(path) as store:
        assert len(store.open_session("t").get_tree()) == size


@dataclass
class Mine:
    """A class that a program which prunes may not have."""

    text: str


def test_pruning_and_copying_read_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values: Any = {"mine": Mine("x"), "long": [Mine("y" * 500)], "small": (1, 2)}
    versions = dict.fromkeys(values, "1")
    with FlueSaver(tmp_path / "a.db") as saver:
        config = thread("t")
        for number in range(3):
            checkpoint: Any = empty_checkpoint() | {"channel_values": values, "channel_versions": versions}
            config = saver.put(config, checkpoint, {"step": number}, versions if number == 0 else {})
            saver.put_writes(config, [("c", Mine("z"))], "task")
        with monkeypatch.context() as elsewhere:
            elsewhere.delattr("tests.adapters.langgraph.test_copies.Mine")
            saver.copy_thread("t", "copy")
            saver.prune(["t"])
        assert len(list(saver.list(thread("copy")))) == 3
        for id in ("t", "copy"):
            found = existing(saver.get_tuple(thread(id)))
            assert found.checkpoint["channel_values"] == values | {"small": [1, 2]}
            assert [write[2] for write in found.pending_writes or []] == [Mine("z")]
    sound(tmp_path / "a.db", 2)


def test_what_is_written_while_a_thread_is_pruned_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with FlueSaver(path) as saver, FlueSaver(path) as other:
        saved = saver.put(thread("t", checkpoint_ns="sub"), empty_checkpoint(), {}, {})
        saved = saver.put(saved, empty_checkpoint(), {}, {})

        def write(number: int) -> None:
            other.put_writes(saved, [("c", number)], f"task {number:02}")

        with ThreadPoolExecutor(2) as pool:
            running = pool.map(write, range(20))
            for _ in range(5):
                saver.prune(["t"])
            list(running)
        found = existing(saver.get_tuple(saved))
        assert [each[2] for each in found.pending_writes or []] == list(range(20))
    sound(path, 2)
