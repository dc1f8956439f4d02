"""How far each counter of tokens is from what providers counted, on the real transcripts of the tests.

Run with ``python -m benchmarks.token_counts``. Two calls of one model on one path tell how many tokens the messages
between them took: the prompt of the later one, less that of the earlier one. System prompt and tools are in both, so
they need not be known. A line has the median of the errors, below 0 where a counter counts too few, and the 95th
percentile of their sizes: for the messages between two calls in a row, and for all since the first call of a context.
"""

from __future__ import annotations

import gzip
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import flue_py.sync
from flue_py.context.tokens import counter_for
from flue_py.core.context import ContextEntry, EntryCounter, reported_tokens, usage_start
from flue_py.core.usage import read_reported

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
COUNTERS = (counter_for("gpt-5"), counter_for("gpt-4"), counter_for(None), counter_for(None, faithful=True))


@dataclass(frozen=True)
class Call:
    """A call whose prompt the provider counted: it held the items up to ``place``, exclusively."""

    place: int
    model: str
    prompt: int


@dataclass(frozen=True)
class Stretch:
    """Messages between two calls, and what the provider says that they take."""

    model: str
    items: tuple[ContextEntry, ...]
    tokens: int


def calls_of(items: Sequence[ContextEntry]) -> Iterator[Call]:
    """Yield the calls among the items whose prompt is known and was that of this context."""
    for place in range(usage_start(items), len(items)):
        message = items[place].data
        usage, model = message.get("usage"), message.get("model")
        if items[place].role == "assistant" and isinstance(model, str) and reported_tokens(message):
            used = read_reported(usage).totals
            yield Call(place, model, used.input + used.cache_read + used.cache_write)


def stretches(items: Sequence[ContextEntry], *, whole: bool) -> Iterator[Stretch]:
    """Yield what lies between each call and the next one of its model; with ``whole``, and each later one."""
    first: dict[str, Call] = {}
    for call in calls_of(items):
        earlier = first.get(call.model)
        if earlier is not None and call.prompt > earlier.prompt:
            yield Stretch(call.model, tuple(items[earlier.place : call.place]), call.prompt - earlier.prompt)
        if earlier is None or not whole:
            first[call.model] = call


def contexts() -> Iterator[list[ContextEntry]]:
    """Yield the context of each transcript, at its leaf."""
    with tempfile.TemporaryDirectory() as folder, flue_py.sync.open(":memory:", prices=False) as store:
        for packed in sorted(DATA.glob("*/*.jsonl.gz")):
            file = Path(folder, packed.name.removesuffix(".gz"))
            file.write_bytes(gzip.decompress(packed.read_bytes()))
            for imported in flue_py.sync.import_file(store, file).sessions:
                session = store.get_session(imported.session_id)
                if session is not None:
                    yield session.build_context_entries()


def errors(found: Sequence[Stretch], counter: EntryCounter) -> list[float]:
    """Return how far a counter is off, in per cent of what the provider says; below 0 where it counts too few."""
    counted = (sum(counter.count_entry(item) for item in stretch.items) for stretch in found)
    return [(own / stretch.tokens - 1) * 100 for own, stretch in zip(counted, found, strict=True)]


def cells(off: Sequence[float]) -> list[str]:
    """Return the median error and the 95th percentile of its size."""
    sizes = sorted(map(abs, off))
    return [f"{median(off):+.0f} %", f"{sizes[min(len(sizes) - 1, round(len(sizes) * 0.95))]:.0f} %"]


HEADINGS = ("model (calls)", "counter", "one step: median", "p95", "since the first call: median", "p95")


def table() -> list[str]:
    """Return the lines of the table, in Markdown."""
    found: dict[bool, dict[str, list[Stretch]]] = {whole: defaultdict(list) for whole in (False, True)}
    for items in contexts():
        for whole, by_model in found.items():
            for stretch in stretches(items, whole=whole):
                by_model[stretch.model].append(stretch)
    lines = [f"| {' | '.join(HEADINGS)} |", f"| --- | --- |{' ---: |' * 4}"]
    for model, steps in sorted(found[False].items()):
        for counter in COUNTERS:
            figures = [*cells(errors(steps, counter)), *cells(errors(found[True][model], counter))]
            lines.append(f"| {' | '.join([f'{model} ({len(steps)})', counter.name, *figures])} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
