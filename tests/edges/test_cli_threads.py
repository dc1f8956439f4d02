"""On files, commands start no thread: to start and stop one is most of what a short command would wait for."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from flue_py.cli import main
from tests.edges.cli_runs import runner
from tests.edges.every_command import CALLS, make_hostile

if TYPE_CHECKING:
    import pytest


def test_no_command_on_a_file_starts_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_hostile(tmp_path / "store")
    started: dict[str, list[str]] = {}
    begin = threading.Thread.start

    for name, calls in CALLS.items():

        def start(thread: threading.Thread, name: str = name) -> None:
            started.setdefault(name, []).append(thread.name)
            begin(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
        for arguments in calls:
            runner().invoke(main, ["--db", str(store.database), *store.call(name, arguments)], prog_name="flue-py")
    assert started == {}
