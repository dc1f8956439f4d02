"""Many writers on one thread: of one process, which take turns, and of others, which are noticed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("langgraph", "langgraph.graph")

from langgraph.checkpoint.base import empty_checkpoint

import flue_py
from flue_py.adapters.langgraph import FlueSaver, ThreadOwned
from flue_py.db.backend import Backend
from tests.adapters.langgraph.graphs import sound, thread
from tests.values import existing


def written(saver: FlueSaver, config: Any) -> list[Any]:
    found = existing(saver.get_tuple(config))
    return [write[2] for write in found.pending_writes or []]


def test_the_threads_of_a_process_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    real = Backend.import_entries

    def counted(*args: Any, **named: Any) -> Any:
        calls.append(args)
        return real(*args, **named)

    monkeypatch.setattr(Backend, "import_entries", counted)
    with FlueSaver(tmp_path / "a.db") as saver:
        saved = saver.put(thread("t"), empty_checkpoint(), {}, {})
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: saver.put_writes(saved, [("c", n)], f"task {n:03}"), range(60)))
        assert written(saver, saved) == list(range(60))
    # Nobody had to write twice.
    assert len(calls) == 61


def test_what_others_wrote_since_the_last_write_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with FlueSaver(path) as one, FlueSaver(path) as two:
        saved = one.put(thread("t"), empty_checkpoint(), {}, {})
        for number in range(6):
            (one, two)[number % 2].put_writes(saved, [("c", number)], f"task {number}")
        assert written(one, saved) == written(two, saved) == list(range(6))
        below = two.put(saved, empty_checkpoint(), {}, {})
        one.put_writes(below, [("c", "below")], "task")
        one.put_writes(saved, [("c", 6)], "task 6")
        assert written(two, below) == ["below"]
        assert written(two, saved) == list(range(7))
        two.delete_thread("t")
        one.put(thread("t"), empty_checkpoint(), {"step": 1}, {})
        assert [found.metadata["step"] for found in two.list(thread("t"))] == [1]
        with flue_py.sync.open(path) as store:
            store.open_session("t").set_metadata({"owner": "worker"}, merge=True)
        with pytest.raises(ThreadOwned, match="worker"):
            one.put(thread("t"), empty_checkpoint(), {}, {})
    sound(path, 1)
