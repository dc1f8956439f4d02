"""What the context pipeline costs, and how much of what it sends a provider would read from its cache.

The cost: the steps over a context of 1,000 messages whose counts are known, beside decoding every message once (raw),
in CPU time of all threads. The share: every request of real sessions, one before each answer, is made in turn; what two
requests in a row begin with counts as cached, in tokens. Raw is the share of the bare history, which is what comes
without any steps. A part that frees tokens at epochs sends fewer of them, and pays for each epoch by reading anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from time import process_time
from typing import Any

import flue_py
from benchmarks.compaction.transcripts import Transcript, transcripts
from benchmarks.measuring import Goal, Line, Options, Samples, fill, in_rounds, main, make_messages
from flue_py.context.choosing import steps_of
from flue_py.context.counters import ModelCounter, counter_for
from flue_py.context.items import Item
from flue_py.context.pipeline import Piped, run_steps
from flue_py.context.settings import ContextSettings, context_settings
from flue_py.context.steps.protocol import View
from flue_py.core.projection import ContextEntry

READERS = ["read", "bash", "edit", "write", "grep"]
PARTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "superseded": {"superseded": {"observing_tools": ["read"], "shell_tools": ["bash"], "write_tools": ["write"]}},
    "microcompact": {"microcompact": {"tools": READERS}},
    "microcompact, every request": {"microcompact": {"tools": READERS}, "epoch_tokens": 0},
    "tool_results": {"tool_results": {"result_chars": 10_000}},
    "in_turn": {"in_turn": {"max_tool_pairs": 8}},
    "trim": {"trim": {}},
    "trim, every request": {"trim": {}, "epoch_tokens": 0},
}
MODEL = "gpt-5"


async def measure(options: Options) -> list[Line]:
    """Return the lines: what each part costs, and the share of what it sends that a cache would serve."""
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        count = options.count(1_000, 100)
        await fill(session, make_messages(100), count)
        items = await session.build_context_entries()
        lines = [await _cost(name, items, options) for name in PARTS if "every" not in name]
    found = sorted(transcripts(), key=lambda each: each.tokens)[: 1 if options.short else None]
    for transcript in found:
        lines += await _shares(transcript, options)
    return lines


async def _cost(name: str, items: Sequence[ContextEntry], options: Options) -> Line:
    settings, counter = context_settings(PARTS[name]), counter_for(MODEL)
    _run(items, settings, counter)

    async def ours() -> Samples:
        return [_timed(lambda: _run(items, settings, counter)) for _ in range(options.count(20, 1))]

    async def raw() -> Samples:
        return [_timed(lambda: [item.data for item in items]) for _ in range(options.count(20, 1))]

    taken, decoded = await in_rounds(options.rounds, ours, raw)
    goal = Goal(15, "value") if name == "defaults" else None
    return Line.of_latencies(f"the steps of {name} over {len(items):,} messages", "ms", taken, decoded, goal)


def _run(items: Sequence[ContextEntry], settings: ContextSettings, counter: ModelCounter) -> Piped:
    return run_steps(items, steps_of(settings), View(None, counter), epoch_tokens=settings.epoch_tokens)


def _timed(work: Any) -> float:
    start = process_time()
    work()
    return process_time() - start


async def _shares(transcript: Transcript, options: Options) -> list[Line]:
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        await session.append_messages(transcript.messages)
        items = await session.build_context_entries()
    ends = [at for at in range(1, len(items)) if items[at].role == "assistant"][: options.count(10_000, 8)]
    bare, _ = _share(items, ends, ContextSettings(), transcript.counter)
    lines = []
    for name, given in PARTS.items():
        share, sent = _share(items, ends, context_settings(given), transcript.counter)
        goal = Goal(1, at_least=True) if name == "defaults" else None
        lines.append(Line.of_figures(f"{transcript.name}: {name}, cached of what is sent", "%", [share], [bare], goal))
        lines.append(Line.of_figures(f"{transcript.name}: {name}, tokens sent", "thousands", [sent / 1_000]))
    return lines


def _share(
    items: Sequence[ContextEntry], ends: Sequence[int], settings: ContextSettings, counter: ModelCounter
) -> tuple[float, int]:
    """Return the share of the tokens of all requests, in percent, that the one before them began with; and all."""
    before: Sequence[Item] = ()
    cached = sent = 0
    for end in ends:
        view = View(None, counter)
        found = run_steps(items[:end], steps_of(settings), view, epoch_tokens=settings.epoch_tokens).items
        same = [*takewhile(lambda pair: _is_same(*pair), zip(before, found, strict=False))]
        cached += sum(view.tokens(item) for _, item in same)
        sent += sum(map(view.tokens, found))
        before = found
    return 100 * cached / sent, sent


def _is_same(one: Item, other: Item) -> bool:
    return one.source is other.source and one.how == other.how and (one.how is None or one.message == other.message)


if __name__ == "__main__":
    main(measure)
