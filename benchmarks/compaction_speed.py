"""The cost of planning a compaction of a long session, of the modes that ask no model, and of what comes afterwards.

That is reading the context, saying what was lost, and finding it: the last two with a real session, repeated until it
is as long. The counts of the messages are known, as they are after the first look at a session's size. Beside each
figure stands what it costs to decode every message once (raw). A mode is given a plan of which nothing has been read
before; what messages call is known as their counts are, or, in the lines that say so, is not. The figures are CPU time,
of all threads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import process_time

import flue_py
from benchmarks.compaction.transcripts import transcripts
from benchmarks.measuring import Goal, Line, Message, Options, Samples, in_rounds, main
from flue_py import Session, Store
from flue_py.compaction.material import Material
from flue_py.compaction.modes import find_mode
from flue_py.compaction.settings import CompactionSettings
from flue_py.context.tokens import counter_for
from flue_py.core.context import TRAITS

MODEL = "gpt-5"
MODES = ("intent", "window")
WINDOW = 200_000
SETTINGS = CompactionSettings(keep_recent_tokens=10_000)
PATH = "packages/coding-agent/src"
WORDS = "the theme of tools"
_WORDS = "word " * 100


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    count = options.count(10_000, 400)
    async with flue_py.open(options.directory / "compaction.db", durability="normal") as store:
        session = await store.create_session(key="long")
        messages = _messages(count)
        for at in range(0, count, 1_000):
            await session.append_messages(messages[at : at + 1_000])
        decoded, planned, *made = await in_rounds(
            options.rounds,
            lambda: _decoded(store, options.count(5, 1)),
            lambda: _planned(store, options.count(20, 1)),
            *(lambda mode=mode: _made(store, mode, options.count(5, 1)) for mode in MODES),
            *(lambda mode=mode: _made(store, mode, options.count(5, 1), is_known=False) for mode in MODES),
        )
        lines = [
            Line.of_latencies(f"plan a compaction of {count:,} messages", "ms", planned, decoded, Goal(5, "value"))
        ]
        for mode, taken in zip(MODES, made[: len(MODES)], strict=True):
            what = f"text of mode {mode} for {count:,} messages"
            lines.append(Line.of_latencies(what, "ms", taken, decoded, Goal(50, "value")))
        for mode, taken in zip(MODES, made[len(MODES) :], strict=True):
            what = f"the same of mode {mode}, nothing known of them"
            lines.append(Line.of_latencies(what, "ms", taken, decoded))
        return [*lines, await _context(store, session, options), *await _lost(store, count, options)]


async def _context(store: Store, session: Session, options: Options) -> Line:
    """Return what the context costs after a compaction, beside that of a session which has only what was kept."""
    done = await session.compact(mode="window", settings=SETTINGS)
    assert done.appended is not None, done.reason
    short = await store.create_session(key="short")
    await short.append_messages(await session.build_context())
    times = options.count(50, 2)
    after, kept = await in_rounds(
        options.rounds, lambda: _read(store, "long", times), lambda: _read(store, "short", times)
    )
    return Line.of_latencies("context after it (raw: of the kept alone)", "ms", after, kept, Goal(2))


async def _lost(store: Store, count: int, options: Options) -> list[Line]:
    """Return what a report of what was lost costs, and finding a path and words that most messages have."""
    said = next(each.messages for each in transcripts() if each.name.startswith("pi-"))
    session = await store.create_session(key="real")
    for start in range(0, count, 1_000):
        await session.append_messages([said[at % len(said)] for at in range(start, min(start + 1_000, count))])
    items = await session.build_context_entries()
    done = await session.compact(mode="window", settings=SETTINGS)
    assert done.appended is not None, done.reason

    async def raw() -> Samples:
        return [_timed(lambda: [item.data for item in items])]

    asked = {
        "loss_report": session.compactions.loss_report,
        f"recall of {PATH!r}": lambda: session.compactions.recall(None, PATH),
        f"recall of {WORDS!r}": lambda: session.compactions.recall(None, WORDS),
    }
    decoded, *taken = await in_rounds(options.rounds, raw, *(lambda ask=ask: _asked(ask) for ask in asked.values()))
    return [
        Line.of_latencies(f"{what}, {count:,} messages", "ms", each, decoded)
        for what, each in zip(asked, taken, strict=True)
    ]


async def _asked(ask: Callable[[], Awaitable[object]]) -> Samples:
    start = process_time()
    await ask()
    return [process_time() - start]


def _messages(count: int) -> list[Message]:
    """Return messages of some 600 bytes: a question, a call, its result, an answer, and so on."""
    made: list[Message] = []
    for at in range(0, count, 4):
        usage = {"input": 100, "output": 20, "totalTokens": 120}
        said: Message = {"role": "assistant", "provider": "openai", "model": MODEL, "usage": usage, "timestamp": at}
        call = {"type": "toolCall", "id": f"c{at}", "name": "read", "arguments": {"path": f"src/f{at % 300}.py"}}
        text = {"type": "text", "text": _WORDS[:300]}
        made += [
            {"role": "user", "content": f"Look at file {at}, please. {_WORDS}", "timestamp": at},
            {**said, "content": [text, call], "stopReason": "toolUse"},
            {
                "role": "toolResult",
                "toolCallId": f"c{at}",
                "toolName": "read",
                "content": [{"type": "text", "text": _WORDS}],
                "isError": at % 40 == 0,
                "timestamp": at,
            },
            {**said, "content": [{"type": "text", "text": _WORDS}], "stopReason": "stop"},
        ]
    return made[:count]


async def _decoded(store: Store, times: int) -> list[float]:
    items = await (await store.open_session("long")).build_context_entries()
    return [_timed(lambda: [item.data for item in items]) for _ in range(times)]


async def _planned(store: Store, times: int) -> list[float]:
    session = await store.open_session("long")
    await session.compactions.plan(settings=SETTINGS)
    taken = []
    for _ in range(times):
        start = process_time()
        await session.compactions.plan(settings=SETTINGS)
        taken.append(process_time() - start)
    return taken


async def _made(store: Store, mode: str, times: int, *, is_known: bool = True) -> Samples:
    session = await store.open_session("long")
    taken = []
    for _ in range(times):
        found = await session.compactions.plan(settings=SETTINGS)
        assert found.planned is not None
        leaving = found.tokens_before - found.tokens_staying
        material = Material(found.planned, counter_for(MODEL).count, window=WINDOW, tokens_leaving=leaving)
        if not is_known:
            TRAITS.clear()
        start = process_time()
        await find_mode(mode).make(material, None)
        taken.append(process_time() - start)
    return taken


async def _read(store: Store, key: str, times: int) -> Samples:
    taken = []
    for _ in range(times):
        session = await store.open_session(key)
        start = process_time()
        await session.build_context()
        taken.append(process_time() - start)
    return taken


def _timed(work: Callable[[], object]) -> float:
    start = process_time()
    work()
    return process_time() - start


if __name__ == "__main__":
    main(measure)
