"""Compare `FlueSaver` with the SQLite checkpointers of LangGraph.

    python -m benchmarks.adapters.langgraph [--short] [--rounds N]

Each round runs the same graph on all of them, in an order that turns: a conversation, three checkpoints a turn, with a
model that answers at once; then, by a saver that has read nothing yet, the newest state, the same again, a state from
the middle, and the last 10 checkpoints. CPU is that of the whole process, and of a turn the graph's own is part. A
ratio is taken inside a round and then the median; below 1 is less than LangGraph's saver needs.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from benchmarks.adapters.beside import Cost, blocking_cost_of, cost_of, in_turns, parser_of, ratio, size_of
from flue_py.adapters.langgraph import FlueSaver

OURS, THEIRS = "FlueSaver", "SqliteSaver"
SAVERS: dict[str, tuple[Any, Any]] = {OURS: (FlueSaver, FlueSaver), THEIRS: (SqliteSaver, AsyncSqliteSaver)}

WORDS = "the build fails because test collection imports a module that is missing on this runner so we pin it and run "
CONFIG: Any = {"configurable": {"thread_id": "one"}}
USAGE: Any = {"input_tokens": 900, "output_tokens": 120, "total_tokens": 1020}


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


def blocking(saver_class: Any, path: Path, turns: int) -> dict[str, Cost]:
    found = {}
    numbers = iter(range(turns))

    def turn() -> None:
        graph.invoke({"messages": [HumanMessage(text(next(numbers)))]}, CONFIG)

    with saver_class.from_conn_string(str(path)) as saver:
        graph = graph_on(saver)
        turn()
        found["a turn, of the first 20"] = blocking_cost_of(turn, min(19, turns - 1))
        rest = sum(1 for _ in range(20, turns))
        found[f"a turn, of the next {rest}"] = blocking_cost_of(turn, rest) if rest else Cost(0, 0)
        middle = [each.config for each in saver.list(CONFIG, limit=turns)][-1]
    found["file, bytes"] = size_of(path)
    with saver_class.from_conn_string(str(path)) as saver:
        saver.get_tuple({"configurable": {"thread_id": "none", "checkpoint_ns": ""}})
        found[f"newest state, {2 * turns} messages"] = blocking_cost_of(lambda: saver.get_tuple(CONFIG))
        found["the same again"] = blocking_cost_of(lambda: saver.get_tuple(CONFIG), 10)
    with saver_class.from_conn_string(str(path)) as saver:
        found["a state from the middle"] = blocking_cost_of(lambda: saver.get_tuple(middle))
    with saver_class.from_conn_string(str(path)) as saver:
        found["the last 10 checkpoints"] = blocking_cost_of(lambda: list(saver.list(CONFIG, limit=10)))
        found["the last 10, again"] = blocking_cost_of(lambda: list(saver.list(CONFIG, limit=10)), 5)
        filtered: Any = {"source": "input"}
        found["the last 10 inputs"] = blocking_cost_of(lambda: list(saver.list(CONFIG, filter=filtered, limit=10)), 5)
    return found


async def asynchronous(saver_class: Any, path: Path, turns: int) -> dict[str, Cost]:
    async with saver_class.from_conn_string(str(path)) as saver:
        graph = graph_on(saver)
        await graph.ainvoke({"messages": [HumanMessage(text(0))]}, CONFIG)
        numbers = iter(range(1, turns))

        async def turn() -> None:
            await graph.ainvoke({"messages": [HumanMessage(text(next(numbers)))]}, CONFIG)

        return {"a turn, asynchronous": await cost_of(turn, turns - 1)}


def measured(name: str, folder: Path, turns: int) -> dict[str, Cost]:
    saver, async_saver = SAVERS[name]
    found = blocking(saver, folder / f"{name}.db", turns)
    return found | asyncio.run(asynchronous(async_saver, folder / f"{name}-async.db", turns))


def main() -> None:
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--turns", type=int, default=200)
    options = parser.parse_args()
    turns, rounds = (5, 1) if options.short else (options.turns, options.rounds)
    runs = in_turns([*SAVERS], rounds, lambda name, folder: measured(name, folder, turns))
    print(f"{'FlueSaver beside SqliteSaver':<34}{'CPU':>8}{'wall':>8}{'ours':>14}{'theirs':>14}")
    for row in runs[0][OURS]:
        ratios = [ratio(runs, row, field, OURS, THEIRS) for field in (0, 1)]
        ours, other = (median(run[side][row].cpu for run in runs) for side in (OURS, THEIRS))
        shown = (f"{value / 1e6:.1f} MB" if "bytes" in row else f"{value * 1e3:.2f} ms" for value in (ours, other))
        print(f"{row:<34}" + "".join(f"{each:>8.2f}" for each in ratios) + "".join(f"{each:>14}" for each in shown))


if __name__ == "__main__":
    main()
