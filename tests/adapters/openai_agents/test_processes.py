"""Several processes use one session: nothing is lost, and what was acknowledged survives a kill."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tests.adapters.needed import needs

needs("openai-agents", "agents")

import flue_py
from flue_py.adapters.openai_agents import FlueSession

ROOT = Path(__file__).resolve().parents[3]

WRITER = """
import asyncio, sys
from agents import RunContextWrapper, Usage
from flue_py.adapters.openai_agents import FlueSession

async def main(path, name, turns):
    session = FlueSession("one", path)
    for turn in range(turns):
        usage = Usage(requests=1, input_tokens=10, output_tokens=1, total_tokens=11)
        call = {"type": "function_call", "call_id": f"{name}.{turn}", "name": "look", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": f"{name}.{turn}", "output": "x"}
        await session.add_items([call, output], wrapper=RunContextWrapper(None, usage=usage))
        print(turn, flush=True)
    session.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def writing(path: Path, name: str, turns: int) -> subprocess.Popen[str]:
    """Start a process that writes turns of a call and its output, each with what it was paid, and says each."""
    command = [sys.executable, "-c", WRITER, str(path), name, str(turns)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def turns_in(path: Path) -> dict[str, list[int]]:
    """Return the turns of each writer as a reader sees them, each whole, with its ledger and the store checked."""
    session = FlueSession("one", path)
    items = asyncio.run(session.get_items())
    session.close()
    ids = [str(item["call_id"]) for item in items if "call_id" in item]
    assert ids[::2] == ids[1::2], "a call and its output stand together"
    with flue_py.sync.open(path) as store:
        assert (store.usage().total.calls, store.usage().total.total_tokens) == (len(ids) // 2, 11 * len(ids) // 2)
        assert store.verify().problems == []
    found: dict[str, list[int]] = {}
    for each in ids[::2]:
        name, _, turn = each.partition(".")
        found.setdefault(name, []).append(int(turn))
    return found


def test_two_processes_write_to_one_session(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    writers = [writing(path, name, 10) for name in ("a", "b")]
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert turns_in(path) == {"a": [*range(10)], "b": [*range(10)]}


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    writer = writing(path, "a", 1_000_000)
    assert writer.stdout is not None
    for _ in range(5):
        writer.stdout.readline()
    writer.kill()
    said = 5 + len(writer.communicate()[0].splitlines())
    found = turns_in(path)["a"]
    assert found == [*range(len(found))]
    # A line may not have got out for a turn that was committed.
    assert said <= len(found)
    later = FlueSession("one", path)
    asyncio.run(later.add_items([{"role": "user", "content": "again"}]))
    assert asyncio.run(later.get_items(1)) == [{"role": "user", "content": "again"}]
    later.close()
