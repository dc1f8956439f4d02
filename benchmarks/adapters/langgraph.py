"""Compare `FlueSaver` with the SQLite checkpointers of LangGraph.

    python -m benchmarks.adapters.langgraph [--short] [--rounds N]

Each round runs the same graph on all of them, in an order that turns: a conversation, three checkpoints a turn, with a
model that answers at once; then, by a saver that has read nothing yet, the newest state, the same again, a state from
the middle, and the last 10 checkpoints. CPU is that of the whole process, and of a turn the graph's own is part. A
ratio is taken inside a round and then the median; below 1 is less than LangGraph's saver needs.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from flue_py.adapters.langgraph import FlueSaver

WORDS = "the build fails because test collection imports a module that is missing on this runner so we pin it and run "
CONFIG: Any = {"configurable": {"thread_id": "one"}}
USAGE: Any = {"input_tokens": 900, "output_tokens": 120, "total_tokens": 1020}


class Cost(NamedTuple):
    """What one piece of work took: seconds of CPU, and on the clock."""

    cpu: float
    wall: float


def text(number: int) -> str:
    return f"{number}: " + (WORDS * 6)[number % 40 : number % 40 + 550]


def graph_on(saver: Any) -> Any:
    def answer(state: MessagesState) -> Any:
        number = len(state["messages"])
        about = {"model_name": "large-1", "model_provider": "example", "finish_reason": "stop"}
        said = AIMessage(text(number), id=f"run-{number:032x}", usage_metadata=USAGE, response_metadata=about)
        return {"messages": [said]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


def cost_of(work: Callable[[], object], times: int = 1) -> Cost:
    cpu, wall = process_time(), perf_counter()
    for _ in range(times):
        work()
    return Cost((process_time() - cpu) / times, (perf_counter() - wall) / times)


def blocking(saver_class: Any, path: Path, turns: int) -> dict[str, Cost]:
    found = {}
    numbers = iter(range(turns))

    def turn() -> None:
        graph.invoke({"messages": [HumanMessage(text(next(numbers)))]}, CONFIG)

    with saver_class.from_conn_string(str(path)) as saver:
        graph = graph_on(saver)
        turn()
        found["a turn, of the first 20"] = cost_of(turn, min(19, turns - 1))
        rest = sum(1 for _ in range(20, turns))
        found[f"a turn, of the next {rest}"] = cost_of(turn, rest) if rest else Cost(0, 0)
        middle = [each.config for each in saver.list(CONFIG, limit=turns)][-1]
    size = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
    found["file, bytes"] = Cost(size, size)
    with saver_class.from_conn_string(str(path)) as saver:
        saver.get_tuple({"configurable": {"thread_id": "none", "checkpoint_ns": ""}})
        found[f"newest state, {2 * turns} messages"] = cost_of(lambda: saver.get_tuple(CONFIG))
        found["the same again"] = cost_of(lambda: saver.get_tuple(CONFIG), 10)
    with saver_class.from_conn_string(str(path)) as saver:
        found["a state from the middle"] = cost_of(lambda: saver.get_tuple(middle))
    with saver_class.from_conn_string(str(path)) as saver:
        found["the last 10 checkpoints"] = cost_of(lambda: list(saver.list(CONFIG, limit=10)))
        found["the last 10, again"] = cost_of(lambda: list(saver.list(CONFIG, limit=10)), 5)
        filtered: Any = {"source": "input"}
        found["the last 10 inputs"] = cost_of(lambda: list(saver.list(CONFIG, filter=filtered, limit=10)), 5)
    return found


async def asynchronous(saver_class: Any, path: Path, turns: int) -> dict[str, Cost]:
    async with saver_class.from_conn_string(str(path)) as saver:
        graph = graph_on(saver)
        await graph.ainvoke({"messages": [HumanMessage(text(0))]}, CONFIG)
        cpu, wall = process_time(), perf_counter()
        for number in range(1, turns):
            await graph.ainvoke({"messages": [HumanMessage(text(number))]}, CONFIG)
        spent = Cost((process_time() - cpu) / (turns - 1), (perf_counter() - wall) / (turns - 1))
    return {"a turn, asynchronous": spent}


def measured(theirs: bool, folder: Path, turns: int) -> dict[str, Cost]:
    found = blocking(SqliteSaver if theirs else FlueSaver, folder / f"{theirs}.db", turns)
    other = asynchronous(AsyncSqliteSaver if theirs else FlueSaver, folder / f"{theirs}-async.db", turns)
    return found | asyncio.run(other)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="prove that it runs, and measure nothing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=200)
    options = parser.parse_args()
    turns, rounds = (5, 1) if options.short else (options.turns, options.rounds)
    runs: list[dict[bool, dict[str, Cost]]] = []
    for number in range(rounds):
        order = (True, False) if number % 2 else (False, True)
        with TemporaryDirectory() as folder:
            runs.append({theirs: measured(theirs, Path(folder), turns) for theirs in order})
    print(f"{'FlueSaver beside SqliteSaver':<34}{'CPU':>8}{'wall':>8}{'ours':>14}{'theirs':>14}")
    for row in runs[0][False]:
        ratios = [median(run[False][row][at] / max(run[True][row][at], 1e-9) for run in runs) for at in (0, 1)]
        ours, other = (median(run[side][row].cpu for run in runs) for side in (False, True))
        shown = (f"{value / 1e6:.1f} MB" if "bytes" in row else f"{value * 1e3:.2f} ms" for value in (ours, other))
        print(f"{row:<34}" + "".join(f"{ratio:>8.2f}" for ratio in ratios) + "".join(f"{each:>14}" for each in shown))


if __name__ == "__main__":
    main()
