"""What the context pipeline costs, and how much of what it sends a provider would read from its cache.

The cost: the steps over a context of 1,000 messages whose counts are known, and `Session.request` for each target, of
as many texts and of as many messages of a real session, beside decoding every message once (raw), in CPU time of all
threads. The share: every request of real sessions for Anthropic, one before each answer, is made in
turn; the messages with which two requests in a row begin, byte for byte, count as cached, in tokens. Raw is the share
of the bare history: the messages of `build_context`, encoded without the pipeline. A part that frees tokens at epochs
sends fewer of them, and pays for each epoch by reading anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from time import process_time
from typing import Any

import flue_py
from benchmarks.compaction.transcripts import Transcript, transcripts
from benchmarks.measuring import Goal, Line, Options, Samples, fill, in_rounds, main, make_messages
from flue_py import Session
from flue_py.context.pipeline import EpochRules, Piped, View, run_steps
from flue_py.context.request import ContextRequest, context_request
from flue_py.context.settings import ContextSettings, context_settings
from flue_py.context.steps import steps_of
from flue_py.context.tokens import ModelCounter, counter_for
from flue_py.core.context import ContextEntry
from flue_py.core.json import JsonObject, JsonValue, encode_json
from flue_py.core.kinds import Shape
from flue_py.prices import CallPricer, PriceBook
from flue_py.providers.lists import Said
from flue_py.providers.request import WireRequest, wire_request
from flue_py.sessions.request import epoch_rules

READERS = ["read", "bash", "edit", "write", "grep"]
PARTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "superseded": {"superseded": {"observing_tools": ["read"], "shell_tools": ["bash"], "write_tools": ["write"]}},
    "microcompact": {"microcompact": {"tools": READERS}},
    "microcompact, every request": {"microcompact": {"tools": READERS}, "epoch_tokens": 0},
    "tool_results": {"tool_results": {"result_chars": 10_000}},
    "in_turn": {"in_turn": {"max_tool_pairs": 8}},
    "window": {"window": {"max_tail_messages": 40, "max_tool_result_chars": 10_000, "max_replay_chars": 0}},
    "resume": {"resume": True},
    "rewriting": {"microcompact": {"tools": READERS}, "rewriting": {}},
    "trim": {"trim": {}},
    "trim, every request": {"trim": {}, "epoch_tokens": 0},
}
MODEL = "gpt-5"
TARGET: Shape = "anthropic"
TARGETS: tuple[Shape, ...] = ("anthropic", "openai-chat", "openai-responses", "gemini")
PRICER = CallPricer(PriceBook(), lambda: 1_767_225_600_000_000)  # published prices, of 2026-01-01


async def measure(options: Options) -> list[Line]:
    """Return the lines: what each part costs, and the share of what it sends that a cache would serve."""
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        count = options.count(1_000, 100)
        await fill(session, make_messages(100), count)
        items = await session.build_context_entries()
        lines = [await _cost(name, items, options) for name in PARTS if "every" not in name and name != "rewriting"]
        lines += [await _whole(session, target, "texts", options) for target in TARGETS]
        real = await store.create_session()
        said = next(each.messages for each in transcripts() if each.name.startswith("pi-"))
        await real.append_messages([said[at % len(said)] for at in range(count)])
        lines += [await _whole(real, target, "messages of pi", options) for target in TARGETS]
    found = sorted(transcripts(), key=lambda each: each.tokens)[: 1 if options.short else None]
    for transcript in found:
        lines += await shares(transcript, options)
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


async def _whole(session: Session, target: Shape, what: str, options: Options) -> Line:
    """Return what a request of a session costs with the defaults, with everything that is read for it."""
    items = await session.build_context_entries()
    await session.request(target)

    async def ours() -> Samples:
        return [await _waited(session.request(target)) for _ in range(options.count(20, 1))]

    async def raw() -> Samples:
        return [_timed(lambda: [item.data for item in items]) for _ in range(options.count(20, 1))]

    taken, decoded = await in_rounds(options.rounds, ours, raw)
    goal = Goal(15, "value") if what == "texts" else None
    return Line.of_latencies(f"a request for {target} of {len(items):,} {what}", "ms", taken, decoded, goal)


async def _waited(asked: Awaitable[object]) -> float:
    start = process_time()
    await asked
    return process_time() - start


def _run(items: Sequence[ContextEntry], settings: ContextSettings, counter: ModelCounter) -> Piped:
    view = View(None, counter, addresses=settings.addresses)
    return run_steps(items, steps_of(settings), view, rules=EpochRules(settings.epoch_tokens))


def _timed(work: Any) -> float:
    start = process_time()
    work()
    return process_time() - start


async def shares(transcript: Transcript, options: Options) -> list[Line]:
    """Return what `share_lines` has of a transcript: all its requests, or the first eight in the short form."""
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        await session.append_messages(transcript.messages)
        items, messages = await session.build_context_entries(), await session.build_context()
    ends = [at for at in range(1, len(items)) if items[at].role == "assistant"][: options.count(10_000, 8)]
    return [*share_lines(transcript, items, messages, ends)]


def share_lines(
    transcript: Transcript, items: Sequence[ContextEntry], messages: Sequence[JsonObject], ends: Sequence[int]
) -> Iterator[Line]:
    """Yield two lines for each part: the share that a cache would serve, beside the bare history's, and what is sent.

    The bare history is the messages as they are, encoded for the target without the pipeline.
    """
    tokens = _Tokens(transcript.counter)
    bare, _ = cached_share((_texts(wire_request(TARGET, map(Said, messages[:end]))) for end in ends), tokens)
    for name, given in PARTS.items():
        settings = context_settings(given)
        share, sent = cached_share((_sent(items[:end], settings, transcript) for end in ends), tokens)
        goal = Goal(1, at_least=True) if name == "defaults" else None
        yield Line.of_figures(f"{transcript.name}: {name}, cached of what is sent", "%", [share], [bare], goal)
        yield Line.of_figures(f"{transcript.name}: {name}, tokens sent", "thousands", [sent / 1_000])


def cached_share(requests: Iterable[Sequence[str]], tokens: Callable[[str], int]) -> tuple[float, int]:
    """Return the share of the tokens of all requests, in percent, that the one before each began with; and all."""
    before: Sequence[str] = ()
    cached = sent = 0
    for request in requests:
        sizes = [*map(tokens, request)]
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, request, strict=False)))
        cached += sum(sizes[:same])
        sent += sum(sizes)
        before = request
    return 100 * cached / sent, sent


def _sent(items: Sequence[ContextEntry], settings: ContextSettings, transcript: Transcript) -> list[str]:
    """Return what a request has, in the order in which a cache reads it: the system, and each message."""
    rules = epoch_rules(settings, transcript.model, _provider(transcript), PRICER)
    return _texts(context_request(items, TARGET, settings, transcript.counter, rules=rules))


def _texts(request: WireRequest | ContextRequest) -> list[str]:
    return [*([_text(request.system)] if request.system else []), *map(_text, request.messages)]


def _provider(transcript: Transcript) -> str | None:
    providers = (each.get("provider") for each in reversed(transcript.messages) if each.get("role") == "assistant")
    return next((provider for provider in providers if isinstance(provider, str)), None)


def _text(value: JsonValue) -> str:
    return encode_json(value, "request")[0]


class _Tokens:
    """How many tokens a text takes. Each is counted once: the requests of a session have most of them in common."""

    def __init__(self, counter: ModelCounter) -> None:
        self._counter = counter
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._counter.count({"role": "user", "content": text})
        return found


if __name__ == "__main__":
    main(measure)
