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
    print("ready", flush=True)
    for turn in range(turns):
        input()
        usage = Usage(requests=1, input_tokens=10, output_tokens=1, total_tokens=11)
        call = {"type": "function_call", "call_id": f"{name}.{turn}", "name": "look", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": f"{name}.{turn}", "output": "x"}
        await session.add_items([call, output], wrapper=RunContextWrapper(None, usage=usage))
        print(turn, flush=True)
    session.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def writing(path: Path, name: str, turns: int) -> subprocess.Popen[str]:
    """Start a process that writes a turn of a call and its output for each line that it reads, and says each."""
    command = [sys.executable, "-c", WRITER, str(path), name, str(turns)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def tell(writer: subprocess.Popen[str], turns: int) -> None:
    """Have a process write more turns."""
    assert writer.stdin is not None
    writer.stdin.write("\n" * turns)
    writer.stdin.flush()


def said(writer: subprocess.Popen[str], lines: int) -> list[str]:
    """Return the next lines of a process."""
    assert writer.stdout is not None
    return [writer.stdout.readline() for _ in range(lines)]


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


def test_two_processes_write_to_one_session_and_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    writer, killed = writing(path, "a", 10), writing(path, "b", 1_000)
    assert [said(each, 1) for each in (writer, killed)] == [["ready\n"]] * 2
    for each in (writer, killed):
        tell(each, 10)
    written = writer.communicate()[0].splitlines()
    assert (writer.returncode, len(written)) == (0, 10)
    tell(killed, 990)
    said(killed, 15)
    killed.kill()
    acknowledged = 15 + len(killed.communicate()[0].splitlines())
    found = turns_in(path)
    # A line may not have got out for a turn that was committed.
    assert acknowledged <= len(found["b"])
    assert found == {"a": [*range(10)], "b": [*range(len(found["b"]))]}
    later = FlueSession("one", path)
    asyncio.run(later.add_items([{"role": "user", "content": "again"}]))
    assert asyncio.run(later.get_items(1)) == [{"role": "user", "content": "again"}]
    later.close()
