"""Searching very many messages, warm: `python -m benchmarks.searching --size 1000000 [--on STORE]`.

Without ``--on``, messages as of `benchmarks.search` are written to a SQLite file first, which is removed at the end.
With it, a store that is there is searched, of any database; one without sessions is filled, and kept. For each search
the median of five is printed, in wall time and CPU time of this process, and then the median and the worst of all.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import flue_py
from benchmarks.search import Texts, fill
from flue_py.search import How

_TIMES = 5


def _asked(words: list[str]) -> list[tuple[How, str, str]]:
    """Return what is searched for, with a name. Words are sorted by how often they are written, roughly."""
    alone = [0, 1, 10, 100, 1_000, 10_000, len(words) - 1]
    together = [(0, 1), (0, len(words) - 1), (100, 5_000), (10_000, 20_000), (0, 1, 2, 3, 4)]
    phrases = [(3, 4), (100, 101), (0, 5_000), (1_000, 2_000), (5, 6, 7)]
    asked: list[tuple[How, str, str]] = [("words", f"the word {at:,}", words[at]) for at in alone]
    asked += [("words", f"words {places}", " ".join(words[at] for at in places)) for places in together]
    asked += [("words", f"phrase {places}", "/".join(words[at] for at in places)) for places in phrases]
    return [
        *asked,
        ("words", "a word that is nowhere", "nowhereatall"),
        ("query", "one of two", f"{words[50]} OR {words[60]}"),
        ("query", "one without another", f"{words[2]} NOT {words[3]}"),
        ("query", "a beginning", f"{words[200][:4]}*"),
    ]


async def _measured(store: flue_py.Store, how: How, words: str) -> tuple[float, float]:
    """Return the median of milliseconds, and that of the milliseconds of CPU time."""
    taken = []
    for _ in range(_TIMES):
        start, cpu = perf_counter(), process_time()
        await store.search(words, how=how)
        taken.append((perf_counter() - start, process_time() - cpu))
    return median(each[0] for each in taken) * 1e3, median(each[1] for each in taken) * 1e3


async def _measure(target: str, size: int) -> None:
    texts = Texts(1)
    async with flue_py.open(target, durability="normal") as store:
        if not await store.backend.session_heads():
            await fill(store, texts, size)
        await store.search("warm")
        found = []
        for how, name, words in _asked(texts.words):
            found.append(await _measured(store, how, words))
            print(f"{name:32} {found[-1][0]:10.1f} ms {found[-1][1]:10.1f} ms CPU", flush=True)
    for which, name in ((median, "median"), (max, "worst")):
        wall, cpu = (which([each[at] for each in found]) for at in (0, 1))
        print(f"{name:32} {wall:10.1f} ms {cpu:10.1f} ms CPU")


def main() -> None:
    """Measure, and print the lines."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--on", metavar="STORE")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        asyncio.run(_measure(options.on or str(Path(folder) / "store.db"), options.size))


if __name__ == "__main__":
    main()
