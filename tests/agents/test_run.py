"""Runs of several agents: who is next, when a run ends, and how it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("agents", "pydantic_ai")

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

import flue_py
from flue_py.agents.config import RunConfig, read_config
from flue_py.agents.journal import Journal
from flue_py.agents.run import HITL_PROMPT, STUCK_PROMPT, TURN, Run, RunReport, begin, say
from flue_py.context.artifacts import READ_ADVICE
from flue_py.core.entries import artifact_ids
from flue_py.core.model import FunctionModel as Summarizer
from flue_py.errors import InvalidArgument, MissingExtra, StoreUnavailable, UnreadableFile
from tests.tables import inputs


class Lost(BaseException):
    """The end of a process, for whoever is in it."""


class Models:
    """Models that say the answers of one list, whoever is asked, and note the texts that each was sent."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [*answers]
        self.sent: list[tuple[str, list[str]]] = []

    def __call__(self, name: str) -> FunctionModel:
        def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
            self.sent.append((name, [str(getattr(part, "content", part)) for m in messages for part in m.parts]))
            said = self.answers.pop(0)
            if isinstance(said, BaseException):
                raise said
            parts = [TextPart(said)] if isinstance(said, str) else [said]
            return ModelResponse(
                parts=parts, usage=RequestUsage(input_tokens=10, output_tokens=2, cost=Decimal("0.25"))
            )

        return FunctionModel(answer, model_name=name)


def team(*names: str, **fields: Any) -> dict[str, Any]:
    return {"Agents": [{"Name": name, "Model": name.lower()} for name in names], **fields}


def moving(*states: dict[str, Any]) -> dict[str, Any]:
    return {"Selection": {"Type": "statemachine", "Initial": states[0]["Name"], "States": [*states]}}


def most(turns: int) -> dict[str, Any]:
    return {"Termination": {"MaxIterations": turns}}


Heard = Callable[[str], Any]


async def go(
    store: flue_py.Store, session: flue_py.Session, config: dict[str, Any], models: Models, **options: Any
) -> RunReport:
    return await Run(
        store, RunConfig(**config), session, folder=Path(session.info.cwd or ""), model_of=models, **options
    ).go()


def answering(*answers: str | None, asked: list[str] | None = None) -> Heard:
    left = iter(answers)

    async def ask(question: str) -> str | None:
        if asked is not None:
            asked.append(question)
        return next(left, None)

    return ask


async def texts(session: flue_py.Session) -> list[str]:
    """The messages of a session, without the blocks beside them."""
    path = [entry for entry in await session.get_active_path() if entry.kind == "message"]
    return [
        f"{entry.fields.get('agentName', entry.role)}: {flue_py.core.kinds.message_text(entry.fields)}"
        for entry in path
        if entry.role != "toolResult"
    ]


AGE = {"MaxTurnAge": -1}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "Agents: Field required"),
    (team("A"), "nothing ends this run"),
    (team("A", "a", **most(1)), "two agents have the same name"),
    (team("A", **most(1), Maximum=1), "Maximum: Extra inputs"),
    (team("A", Termination={"Pattern": "("}), "Termination.Pattern: is no regular expression"),
    (team("A", Termination={"Type": "regex"}), "lacks its field"),
    (team("A", Termination={"Pattern": "x", "AgentNames": ["B"]}), "there is no agent 'B'"),
    (team("A", **most(1), Compaction={"TriggerTurnCount": 10, "KeepRecentTurns": 10}), "must be greater"),
    (team("A", **most(1), ContextBudget={"CutoverAt": 5}), "CutoverAt needs a section Compaction"),
    (team("A", **most(1), Selection={"Type": "function"}), "Function goes with Type: function"),
    (team("A", **most(1), Selection={"Type": "statemachine"}), "States go with Type: statemachine"),
    (team("A", **moving({"Name": "S", "Agent": "B"})), "no agent 'B'"),
    (team("A", **moving({"Name": "S", "Transitions": [{"To": "T"}]})), "no state 'T'"),
    (
        team("A", **moving({"Name": "S", "Agent": "A", "Transitions": [{"To": "S", "Contract": "C"}]})),
        "no contract 'C'",
    ),
    ({"Agents": [{"Name": "A", "Model": "m", "Tools": ["x"]}], **most(1)}, "Agents.0.Tools.0"),
    ({"Agents": [{"Name": "A", "Model": "m", "ContextWindow": AGE}], **most(1)}, "Agents.0.ContextWindow.MaxTurnAge"),
]


@inputs("config, words", WRONG)
def test_what_is_wrong_in_a_configuration_is_named_by_its_path(config: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        RunConfig(**config)
    assert words in str(error.value)


def test_a_file_of_yaml_or_json_is_read_and_what_is_none_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.json").write_text(json.dumps(team("A", **most(2))))
    (tmp_path / "c.yaml").write_text("Agents:\n  - {Name: A, Model: {ModelId: a}}\nTermination: {MaxIterations: 2}\n")
    assert read_config(tmp_path / "c.yaml") == read_config(tmp_path / "c.json")
    for name, text, error in (
        ("a.json", "{", InvalidArgument), ("b.yaml", "a: [", InvalidArgument), ("c.yml", "- 1", InvalidArgument),
        ("d.json", '{"Agents": []}', InvalidArgument), ("e.yaml", None, UnreadableFile),
    ):  # fmt: skip
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(error, match=name):
            read_config(tmp_path / name)
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(MissingExtra, match=r"flue-py\[agents\]"):
        read_config(tmp_path / "c.yaml")


async def test_agents_take_turns_see_each_other_and_the_run_is_complete_when_a_pattern_says_so(
    tmp_path: Path, store: flue_py.Store
) -> None:
    session = await begin(store, "Build it.", folder=tmp_path)
    assert (len(session.id), session.info.cwd) == (8, str(tmp_path))
    models = Models("Built. " + "x" * 3_000, "Not yet DONE", "Fixed.", "DONE")
    config = team("Dev", "Tester", Termination={"Type": "regex", "Pattern": "^DONE", "AgentNames": ["Tester"]})
    report = await go(store, session, config, models)
    assert (report.outcome, report.turns, len(models.sent)) == ("complete", 4, 4)
    assert (await session.refresh()).completed_us is not None
    assert [name for name, _ in models.sent] == ["dev", "tester", "dev", "tester"]
    sent = models.sent[1][1]
    assert sent[0] == "Build it."
    assert "## Runtime Environment" in sent[1]
    assert 2_000 < len(sent[2]) < 2_200, "answers are cut after 2,000 characters where they are sent again"
    assert sent[-1] == "It is your turn, Tester."
    rows = {str(row.group["agent"]): (row.calls, row.input) for row in report.usage.rows}
    assert rows == {"Dev": (2, 20), "Tester": (2, 20)}


ENDINGS: list[tuple[dict[str, Any], str, int]] = [
    (most(3), "complete", 3),
    ({"MaxTotalTokens": 24}, "tokens", 3),  # as much as is allowed is no more than that
    ({"MaxTotalTokens": 23}, "tokens", 2),
    ({"MaxCostUsd": 0.5}, "cost", 3),
    ({"MaxCostUsd": 0.49}, "cost", 2),
    ({"Selection": {"Type": "function", "Function": "tests.agents.test_run:second_or_nobody"}}, "complete", 2),
]


def second_or_nobody(names: Sequence[str], last: str, answer: str) -> str | None:
    """Name the second agent after the first, and nobody after that."""
    return names[1] if last == names[0] else None


@inputs("fields, outcome, turns", ENDINGS)
async def test_a_run_ends_before_the_turn_that_is_too_many(
    fields: dict[str, Any], outcome: str, turns: int, tmp_path: Path
) -> None:
    async with flue_py.open(tmp_path / "a.db") as store:
        session = await begin(store, "Go.", folder=tmp_path)
        models = Models(*"abcdef")
        report = await go(store, session, team("A", "B", **fields), models)
        assert (report.outcome, report.turns, len(models.sent)) == (outcome, turns, turns)
        completed = (await session.refresh()).completed_us
        assert (completed is not None) is (outcome == "complete")


async def test_a_run_goes_on_with_the_agent_that_was_next_also_with_another_configuration_and_task(
    tmp_path: Path,
) -> None:
    async with flue_py.open(tmp_path / "a.db") as store:
        session = await begin(store, "Go.", folder=tmp_path)
        assert (await go(store, session, team("A", "B", MaxTotalTokens=1), Models("one"))).outcome == "tokens"
    async with flue_py.open(tmp_path / "a.db") as store:
        session = await store.find_session(session.id)
        await say(session, "Also this.")
        models = Models("two", "three")
        report = await go(store, session, team("C", "B", "A", **most(3)), models)
        assert (report.outcome, report.turns) == ("complete", 3)
        assert [(name, sent[-1]) for name, sent in models.sent] == [("b", "Also this."), ("a", "It is your turn, A.")]
        # The turns count over all compactions.
        await session.compact(mode="window", settings=flue_py.compaction.settings.WHOLE)
        await say(session, "More.")
        assert (await go(store, session, team("C", **most(5)), Models("four", "five"))).turns == 5


@pytest.fixture
def effects() -> list[str]:
    _EFFECTS.clear()
    return _EFFECTS


_EFFECTS: list[str] = []


def pay(order: int) -> str:
    """Pay an order, and lose the process at the second."""
    _EFFECTS.append(f"paid {order}")
    if len(_EFFECTS) == 2:
        raise Lost
    return "ok"


async def test_a_turn_that_was_lost_goes_on_and_no_tool_runs_twice(
    tmp_path: Path, effects: list[str], store: flue_py.Store
) -> None:
    agents = [{"Name": "A", "Model": "a", "Tools": ["tests.agents.test_run:pay"]}, {"Name": "B", "Model": "b"}]
    config = {"Agents": agents, **most(2)}
    answers = [ToolCallPart("pay", {"order": 1}, "x"), ToolCallPart("pay", {"order": 2}, "y"), Lost(), "paid", "seen"]
    session = await begin(store, "Pay.", folder=tmp_path)
    models = Models(*answers)
    for _ in range(2):
        with pytest.raises(Lost):
            await go(store, session, config, models)
        session = await store.find_session(session.id)
    report = await go(store, session, config, models)
    assert (report.outcome, report.turns, effects) == ("complete", 2, ["paid 1", "paid 2"])
    assert [row.calls for row in report.usage.rows] == [3, 1]
    assert (await texts(session))[-3:] == ["A: paid", "user: It is your turn, B.", "B: seen"]


HEARD: list[tuple[list[str | None], str, list[str]]] = [
    (["", "y"], "complete", []),
    (["q"], "paused", []),
    ([None], "paused", []),
    (["  Use TLS.  ", "YES"], "complete", ["Human: Use TLS."]),
    (["", "quit"], "complete", []),
    (["", "More.", "", ""], "complete", ["Human: More."]),  # the run was complete, and goes on
]


@inputs("answers, outcome, said", HEARD)
async def test_a_person_goes_on_pauses_or_redirects_after_every_turn(
    answers: list[str | None], outcome: str, said: list[str], tmp_path: Path
) -> None:
    async with flue_py.open(tmp_path / "a.db") as store:
        session = await begin(store, "Go.", folder=tmp_path)
        asked: list[str] = []
        ask = answering(*answers, asked=asked)
        report = await go(store, session, team("A", "B", **most(2)), Models(*"abc"), ask=ask)
        assert (report.outcome, asked[0]) == (outcome, HITL_PROMPT)
        human = [text for text in await texts(session) if text.startswith("Human")]
        assert human == said
        events = [event async for event in store.events()]
        assert [event.why for event in events if event.type == "question"] == [
            f"question: {text.strip()}" for text in asked
        ]
        stops = [event.why for event in events if event.type == "run_stopped"]
        assert stops == ([f"run_stopped: paused: {report.reason}"] if outcome == "paused" else [])
        assert [event.what for event in events].count(TURN) == report.turns


async def test_an_answer_may_come_from_another_process(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "a.db") as store:
        session = await begin(store, "Go.", folder=tmp_path)
        assert (await go(store, session, team("A", "B", **most(2)), Models("a"), ask=answering("q"))).turns == 1
    async with flue_py.open(tmp_path / "a.db") as other:
        await (await other.find_session(session.id)).append_message({"role": "user", "content": "Mind the gap."})
    async with flue_py.open(tmp_path / "a.db") as store:
        models, asked = Models("b"), list[str]()
        ask = answering("", asked=asked)
        session = await store.find_session(session.id)
        report = await go(store, session, team("A", "B", **most(2)), models, ask=ask)
        assert (report.outcome, models.sent[0][1][-1]) == ("complete", "Mind the gap.")
        assert HITL_PROMPT not in asked, "the question was answered"


def http(status: int, words: str = "", **headers: str) -> ModelHTTPError:
    return ModelHTTPError(status, "m", {"message": words}, headers=headers)


FAILURES: list[tuple[list[Any], str, list[float], bool]] = [
    ([http(400, "maximum context length is 10 tokens")] * 9, "context_exceeded", [], False),
    ([http(429, **{"retry-after": "7"}), "a"], "complete", [9.0], False),
    ([http(429, **{"retry-after": "301"})], "rate_limited", [], False),
    ([http(429)], "rate_limited", [], False),
    ([http(400, "x" * 2_000)], "refused", [], False),
    ([http(400, "odd"), "a"], "complete", [], True),
    ([http(503)], "refused", [], False),
    ([ZeroDivisionError("of a client")], "failed", [], False),
]


@inputs("answers, outcome, waited, redirected", FAILURES)
async def test_a_failed_turn_waits_or_ends_the_run_which_goes_on_later(
    answers: list[Any], outcome: str, waited: list[float], redirected: bool, tmp_path: Path
) -> None:
    async with flue_py.open(tmp_path / "a.db") as store:
        session = await begin(store, "Go.", folder=tmp_path)
        seconds, asked = list[float](), list[str]()

        async def sleep(time: float) -> None:
            seconds.append(time)

        ask = answering("Try otherwise.", asked=asked) if redirected else None
        report = await go(store, session, team("A", **most(1)), Models(*answers), sleep=sleep, ask=ask)
        assert (report.outcome, seconds, STUCK_PROMPT in asked) == (outcome, waited, redirected)
        assert len(report.reason) <= 800
        assert (report.error is None) is (outcome == "complete")
        if outcome != "complete":
            again = Models("later")
            session = await store.find_session(session.id)
            assert (await go(store, session, team("A", **most(1)), again)).outcome == "complete"
            assert again.sent[0][1][0] == "Go."


_TO_TEST = {"To": "Testing", "Signal": "HANDOFF", "Contract": "Built", "HandoffContext": ["changes_recent:3"]}
_FROM_TEST = [{"To": "Done", "Signal": "PASS"}, {"To": "Building", "Signal": "FAIL"}]
MACHINE: dict[str, Any] = team(
    "Dev",
    "Tester",
    **moving(
        {"Name": "Building", "Agent": "Dev", "Transitions": [_TO_TEST]},
        {"Name": "Testing", "Agent": "Tester", "Transitions": _FROM_TEST},
        {"Name": "Done"},
    ),
    Contracts={"Built": {"Files": ["out.txt"]}},
)


async def test_a_state_is_left_on_its_signal_when_its_contract_holds_and_its_changes_are_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: flue_py.Store
) -> None:
    monkeypatch.chdir(tmp_path)
    machine = {**MACHINE, "Agents": [{**MACHINE["Agents"][0], "Tools": ["tests.agents.test_run:write_file"]},
                                     MACHINE["Agents"][1]]}  # fmt: skip
    session = await begin(store, "Build.", folder=tmp_path)
    models = Models(
        "thinking", "HANDOFF", ToolCallPart("write_file", {"path": "out.txt"}, "w"), "HANDOFF now", "FAIL",
        "HANDOFF again", "PASS",
    )  # fmt: skip
    report = await go(store, session, machine, models)
    assert (report.outcome, report.reason, report.turns) == ("complete", "state Done is reached", 6)
    assert report.failed_contracts == ()
    prompts = [sent[-1] for _, sent in models.sent]
    assert prompts[2].startswith("Contract Built does not hold, so that Testing is not reached: there is no out.txt")
    tester = next(sent for name, sent in models.sent if name == "tester")
    assert any("[HANDOFF CONTEXT — assembled for Tester]" in text and "out.txt" in text for text in tester)
    (tmp_path / "out.txt").unlink()
    await say(session, "Once more.")
    stuck = await go(store, session, machine, Models(*["HANDOFF"] * 3), ask=answering("", "", ""))
    assert (stuck.outcome, stuck.failed_contracts[0][0]) == ("paused", "Built")


def write_file(path: str) -> str:
    """Write a file."""
    Path(path).write_text("built")
    return "written"


MODES = [
    ("intent", "write_file"),
    ("lossless", "STATE MACHINE POSITION"),
    ("window", ""),
    ("llm", "It was built."),
    ("hybrid", "It was built."),
]


@inputs("mode, words", MODES)
async def test_compactions_know_what_was_done_without_configuration(
    mode: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = {
        **MACHINE,
        "Agents": [{**agent, "Tools": ["tests.agents.test_run:write_file"]} for agent in MACHINE["Agents"]],
        "Compaction": {"Mode": mode, "TriggerTurnCount": 3, "KeepRecentTurns": 1, "TokenBudget": 300},
    }
    async with flue_py.open(tmp_path / "a.db") as store:
        session = await begin(store, "Build.", folder=tmp_path)
        call = ToolCallPart("write_file", {"path": "out.txt"}, "w")
        models = Models(call, "said " * 300, "said " * 300, "said " * 300, "said " * 300, "HANDOFF", "PASS")
        summarizer = Summarizer(lambda _: "It was built.")
        assert (await go(store, session, config, models, summarizer=summarizer)).outcome == "complete"
        compactions = [entry for entry in await session.get_active_path() if entry.kind == "compaction"]
        assert compactions
        assert words in str(compactions[0].fields["summary"])
        assert (await store.verify()).problems == []


async def test_a_request_that_overflows_is_compacted_and_made_again_and_a_long_result_is_sent_as_a_stub(
    tmp_path: Path, store: flue_py.Store
) -> None:
    agents = [{"Name": "A", "Model": "a", "Tools": ["tests.agents.test_run:long_text"]}]
    compaction = {"Mode": "intent", "TriggerTurnCount": 30, "KeepRecentTurns": 1}
    config = {"Agents": agents, **most(5), "Compaction": compaction}
    call, overflow = ToolCallPart("long_text", {}, "l"), http(400, "maximum context length is 10 tokens")
    session = await begin(store, "Build.", folder=tmp_path)
    [artifact_id, *_] = artifact_ids(long_text())
    read = ToolCallPart("read_artifact", {"id": artifact_id, "start": 49_990, "length": 5}, "r")
    models = Models(call, read, *["said " * 300] * 4, overflow, "done")
    report = await go(store, session, config, models)
    assert (report.outcome, report.reason) == ("complete", "MaxIterations: 5 turns")
    path = await session.get_active_path()
    assert "compaction" in [entry.kind for entry in path]
    failed, again = (sent for _, sent in models.sent[-2:])
    assert sum(map(len, again)) < sum(map(len, failed))
    assert any("It is your turn, A." in text for text in again)
    stub, part = models.sent[1][1][-1], models.sent[2][1][-1]
    assert stub.endswith(READ_ADVICE), "a long result is stored beside the session"
    assert part == f"[artifact {artifact_id}, 50,000 chars: from 49990 to 49995, from line 1 on]\nword "
    stored = [entry.data["toolCallId"] for entry in await session.get_tree() if entry.role == "toolResult"]
    assert stored == ["l", "r"]
    assert (await store.verify()).problems == []


async def test_a_turn_goes_on_in_memory_and_says_so_when_nothing_can_be_stored(
    tmp_path: Path, store: flue_py.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        monkeypatch.undo()
        raise StoreUnavailable("full")

    monkeypatch.setattr(Journal, "_write", fail)
    lines: list[tuple[str, str]] = []
    session = await begin(store, "Go.", folder=tmp_path)
    report = await go(store, session, team("A", **most(1)), Models("Done."), tell=lambda *line: lines.append(line))
    assert (report.outcome, lines[0]) == ("complete", ("not stored yet, and kept in memory: full", "yellow"))
    assert "Done." in str(await session.get_active_path()), "what was kept in memory is stored"


def long_text() -> str:
    """Return a text that is offloaded."""
    return "word " * 10_000
