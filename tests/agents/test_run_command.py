"""The run command: its output, its exit codes, and a run whose process is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.adapters.needed import needs

needs("agents", "pydantic_ai", "openai")

import flue_py
from flue_py.agents.journal import leased
from flue_py.cli import main
from tests.models.servers import KEY, Answer, completion, provider
from tests.tables import inputs


def divide() -> str:
    """Fail as nobody expects."""
    return str(1 / 0)


def choose(*_: object) -> str:
    """Fail to say who is next."""
    return divide()


def die() -> str:
    """End this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def config(folder: Path, *names: str, model: str = "test", **fields: Any) -> str:
    agents = [{"Name": name, "Model": model, **fields.pop(name, {})} for name in names]
    path = folder / "team.json"
    path.write_text(json.dumps({"Agents": agents, "Termination": {"MaxIterations": 2}, **fields}))
    return str(path)


FAILING = {"A": {"Tools": ["tests.agents.test_run_command:divide"]}}
ROWS: list[tuple[dict[str, Any], list[str], int, str]] = [
    ({}, [], 0, "complete"),
    ({"Contracts": {"Built": {"Files": ["out.txt"]}}}, [], 0, "complete"),
    ({"Contracts": {"Built": {"Files": ["out.txt"]}}}, ["--ci"], 2, "complete"),
    ({"MaxTotalTokens": 1}, [], 8, "tokens"),
    (FAILING, [], 1, "failed"),
    ({"Selection": {"Type": "function", "Function": "tests.agents.test_run_command:choose"}}, [], 1, "failed"),
]


@inputs("fields, options, code, outcome", ROWS)
def test_a_run_prints_one_line_of_json_and_ends_with_a_code(
    fields: dict[str, Any], options: list[str], code: int, outcome: str, tmp_path: Path
) -> None:
    place = ["--db", str(tmp_path / "s.db"), "run"]
    call = [*place, config(tmp_path, "A", "B", **fields), "Build it.", "--work-dir", str(tmp_path), "--json", *options]
    done = CliRunner().invoke(main, [*call, "--output", str(tmp_path / "t.md")])
    assert done.exit_code == code, done.output
    [line] = done.stdout.splitlines()
    told = json.loads(line)
    assert told["outcome"] == outcome
    assert [row["name"] for row in told["failedContracts"]] == list(fields.get("Contracts", {}))
    resume = f"flue-py run --resume {told['sessionId']}"
    assert (resume in done.stderr) is (outcome != "complete")
    assert "Build it." in (tmp_path / "t.md").read_text()
    assert (told["dump"] is not None) is (outcome == "failed")
    if outcome == "failed":
        assert f"Crash dump: {told['dump']}" in done.stderr
        assert Path(told["dump"]).parent == tmp_path / "crashdumps"
        assert json.loads(Path(told["dump"]).read_text())["errors"][0]["type"] == "ZeroDivisionError"
    else:
        data = tmp_path / ".flue-py" / "logs" / f"ctx_snapshots_{told['sessionId']}.jsonl"
        assert len(data.read_text().splitlines()) == told["turns"]
        assert told["chart"] == str(data.with_name(f"ctx_viz_{told['sessionId']}.html"))
    # One that is complete needs a task to go on; one that is not is chosen from a list.
    again = CliRunner().invoke(main, [*place, "--resume", told["sessionId"] if outcome == "complete" else ""])
    assert again.exit_code == 1
    wanted = "is complete; give a TASK" if outcome == "complete" else f"name one of these runs: {told['sessionId']}"
    assert wanted in again.stderr


FORKING = """
import json, os, sys
import flue_py.agents.run, openai
from flue_py.cli import main
for line in sys.stdin:
    child = os.fork()
    if not child:
        print(os.getpid(), flush=True)
        main(json.loads(line))
    print(os.waitpid(child, 0)[1], flush=True)
"""
"""A program that runs each line as a command in a child, which has loaded all modules; prints its pid and its end."""


def test_a_run_whose_process_is_killed_in_a_call_or_in_a_tool_goes_on(tmp_path: Path) -> None:
    path = config(tmp_path, "A", model="openai-chat:gpt-5", A={"Tools": ["tests.agents.test_run_command:die"]})
    program = ["--db", str(tmp_path / "s.db"), "run"]
    call = {"id": "c", "type": "function", "function": {"name": "die", "arguments": "{}"}}
    with provider() as server:
        keys = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": KEY, "PYTHONPATH": os.getcwd()}
        options: dict[str, Any] = {"env": {**os.environ, **keys}, "cwd": tmp_path, "text": True}
        server.answers = [
            Answer(hangs=True),
            Answer(completion(None, message={"tool_calls": [call]}, finish_reason="tool_calls", id="one")),
            Answer(completion("Turned on.", id="two")),
            Answer(completion("DONE.", id="three")),
        ]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", FORKING], **pipes, **options) as forking:
            assert forking.stdin is not None
            assert forking.stdout is not None
            print(json.dumps([*program, path, "Go.", "--json"]), file=forking.stdin, flush=True)
            server.reached.wait()
            os.kill(int(forking.stdout.readline()), signal.SIGKILL)
            assert int(forking.stdout.readline()) == signal.SIGKILL
            with flue_py.sync.open(tmp_path / "s.db") as store:
                [session] = store.list_sessions(completed=False).sessions
            resume = json.dumps([*program, "--resume", session.id, "--json"])
            printed, _ = forking.communicate(f"{resume}\n{resume}\n")
    _, killed, _, report, status = printed.splitlines()
    assert (int(killed), int(status)) == (signal.SIGKILL, 0)
    told = json.loads(report)
    assert (told["outcome"], told["turns"], told["usage"]["total"]["calls"]) == ("complete", 2, 3)
    [result] = [item for item in server.asked[2][1]["messages"] if item["role"] == "tool"]
    assert "it may have run, and was not made again" in result["content"]
    with flue_py.sync.open(tmp_path / "s.db") as store:
        assert store.verify().problems == []


@pytest.mark.parametrize("missing", ["TASK", "CONFIG"])
def test_a_call_without_a_task_or_a_configuration_is_refused(missing: str, tmp_path: Path) -> None:
    call = ["--db", str(tmp_path / "s.db"), "run", *([config(tmp_path, "A")] if missing == "TASK" else [])]
    done = CliRunner().invoke(main, call)
    assert done.exit_code == 2
    assert missing in done.output


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": "nowhere:m"}, "'nowhere:m' is not a model that can be opened"),
    ({"model": "openai:gpt-5"}, "OPENAI_API_KEY"),
    ({"A": {"Tools": ["tests.nowhere:tool"]}}, "tests.nowhere:tool"),
    ({"A": {"Tools": ["wrong_module:tool"]}}, "wrong_module:tool: its module raises SyntaxError"),
]


@inputs("fields, words", REFUSED)
def test_nothing_is_begun_or_said_that_cannot_go_on(
    fields: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "wrong_module.py").write_text("def tool(: pass")
    call = ["--db", str(tmp_path / "s.db"), "run"]
    asyncio.run(_begun(tmp_path))
    for more in ([], ["--resume", "begun"]):
        done = CliRunner().invoke(main, [*call, config(tmp_path, "A", **fields), "More.", *more])
        assert (done.exit_code, words in done.output) == (1, True), done.output
    with flue_py.sync.open(tmp_path / "s.db") as store:
        assert [info.first_message for info in store.list_sessions().sessions] == ["Go."]
        assert len(store.find_session("begun").get_active_path()) == 1


async def _begun(folder: Path) -> None:
    async with flue_py.open(folder / "s.db") as store:
        session = await store.create_session(id="begun", metadata={"run": True}, config_path=str(folder / "team.json"))
        await session.append_message({"role": "user", "content": "Go."})


def test_a_task_alone_goes_on_with_a_run_unless_another_process_runs_it(tmp_path: Path) -> None:
    path = config(tmp_path, "A")
    call = ["--db", str(tmp_path / "s.db"), "run", "--resume", "begun", "--work-dir", str(tmp_path)]
    asyncio.run(_begun(tmp_path))
    assert CliRunner().invoke(main, [*call[:-1], str(tmp_path / "none"), "More."]).exit_code == 2

    async def busy() -> list[tuple[int, bool]]:
        async with flue_py.open(tmp_path / "s.db") as store:
            session = await store.find_session("begun")
            async with leased(store, session):
                done = [
                    await asyncio.to_thread(CliRunner().invoke, main, [*call, *more])
                    for more in (["More."], [path, "More."], [path])
                ]
                return [(each.exit_code, "Resume with: flue-py run --resume begun" in each.stderr) for each in done]

    assert asyncio.run(busy()) == [(7, False), (7, False), (7, True)]
    assert CliRunner().invoke(main, [*call, " "]).exit_code == 9
    done = CliRunner().invoke(main, [*call, "At last."])
    assert (done.exit_code, "complete" in done.output) == (0, True), done.output
    with flue_py.sync.open(tmp_path / "s.db") as store:
        texts = [
            entry.fields["content"] for entry in store.find_session("begun").get_active_path() if entry.role == "user"
        ]
    assert texts == ["Go.", "At last.", "It is your turn, A."]
