"""Compare runs of an agent with `Recorded`, without anything, and with the step store of pydantic-ai's harness.

    python -m benchmarks.adapters.agents [--short] [--rounds N] [--steps N]

Each step is an answer of a scripted model that calls a tool, and the result of that. `SqliteStepStore` takes part if
`pydantic-ai-harness` can be imported, and so does its `StepPersistence` with a `HarnessStore` ("kept"). CPU is that of
the whole process, for one step; the file is what the whole run leaves. A ratio is taken inside a round and then the
median; below 1 is less than theirs needs. A guarded run has each request made of its session by a `CompactionGuard`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

import flue_py
from benchmarks.adapters.beside import Cost, cost_of, in_turns, parser_of, print_ratios, size_of
from flue_py.agents import Recorded
from flue_py.agents.defaults import RUN_DEFAULTS
from flue_py.agents.guard import CompactionGuard

HARNESS = "pydantic_ai_harness.step_persistence"


def agent_of(steps: int, capabilities: list[Any]) -> Agent[None, str]:
    """Return an agent whose model calls a tool so many times."""
    left = [*range(steps)]

    def answer(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        call = [ToolCallPart("look", {"order": left[0]}, f"call_{left.pop(0):024x}")] if left else [TextPart("Done.")]
        return ModelResponse(parts=call, usage=RequestUsage(input_tokens=1_000, output_tokens=100))

    agent = Agent(FunctionModel(answer, model_name="script"), capabilities=capabilities, name="clerk")

    @agent.tool_plain
    async def look(order: int) -> str:
        return f"order {order} was sent on the third, and has not arrived"

    return agent


async def run_of(agent: Agent[None, str], steps: int) -> dict[str, Cost]:
    limits = UsageLimits(request_limit=None)
    cost = await cost_of(lambda: agent.run("Where is everything?", conversation_id="c", usage_limits=limits))
    return {"a step": Cost(cost.cpu / steps, cost.wall / steps)}


async def saved(step_store: object, steps: int) -> dict[str, Cost]:
    """Return the cost of a run whose steps the harness saves in a store."""
    harness: Any = import_module(HARNESS)
    await agent_of(1, [harness.StepPersistence(store=step_store)]).run("Warm up.", conversation_id="first")
    return await run_of(agent_of(steps, [harness.StepPersistence(store=step_store)]), steps)


async def measured(name: str, folder: Path, steps: int) -> dict[str, Cost]:
    path = folder / f"{name}.db"
    if name in ("recorded", "guarded"):
        async with flue_py.open(path) as store:
            guard = partial(CompactionGuard, store, mode="intent", **RUN_DEFAULTS) if name == "guarded" else None
            # The first run also loads what all later ones use.
            await agent_of(1, [Recorded(store, guard=guard)]).run("Warm up.", conversation_id="first")
            costs = await run_of(agent_of(steps, [Recorded(store, guard=guard)]), steps)
        return {**costs, "file, bytes": size_of(path)}
    if name == "harness":
        costs = await saved(import_module(HARNESS).SqliteStepStore(database=path), steps)
        return {**costs, "file, bytes": size_of(path)}
    if name == "kept":
        async with flue_py.open(path) as store:
            costs = await saved(import_module("flue_py.agents.stores").HarnessStore(store), steps)
        return {**costs, "file, bytes": size_of(path)}
    await agent_of(1, []).run("Warm up.")
    return await run_of(agent_of(steps, []), steps)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    steps, rounds = (3, 1) if options.short else (options.steps, options.rounds)
    theirs = {"bare": "bare"}
    if find_spec(HARNESS.partition(".")[0]) is not None:
        theirs |= {"harness": "harness", "kept": "kept"}
    runs = in_turns(
        ["recorded", "guarded", *theirs], rounds, lambda name, folder: asyncio.run(measured(name, folder, steps))
    )
    print_ratios(runs, "recorded", theirs)
    for name in (name for name in ("recorded", "guarded", "kept") if name in runs[0]):
        above = median(1_000 * (run[name]["a step"].cpu - run["bare"]["a step"].cpu) for run in runs)
        print(f"CPU of a step above bare, {name}: {above:.2f} ms, of {steps:,} steps")


if __name__ == "__main__":
    main()
