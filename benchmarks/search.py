"""What a search costs: catching the index up with new messages, asking it, and how large it is.

The floor of catching up reads the new entries and decodes them. The text of the messages is drawn from 60,000 words,
a few of them often and most of them rarely, as people write. With ``--long``, a million messages are searched.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from itertools import accumulate
from pathlib import Path
from time import process_time

import flue_py
from benchmarks.measuring import Goal, Line, Options, database_bytes, main, scratch, timed_async
from flue_py.core.json import JsonObject, decode_object

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_BATCH = 1_000


class Texts:
    """Draws messages, and knows words by how often they are in them."""

    def __init__(self, seed: int) -> None:
        self._draws = random.Random(seed)
        self.words = ["".join(self._draws.choices(_LETTERS, k=self._draws.randint(3, 11))) for _ in range(60_000)]
        self._weights = list(accumulate(1 / (place + 10) for place in range(len(self.words))))
        self.characters = 0

    def messages(self, count: int) -> list[JsonObject]:
        """Return messages of 8 to 80 words, of user and assistant in turn."""
        return [{"role": ("user", "assistant")[number % 2], "content": self._text()} for number in range(count)]

    def _text(self) -> str:
        length = self._draws.choice((8, 15, 40, 80))
        text = " ".join(self._draws.choices(self.words, cum_weights=self._weights, k=length))
        self.characters += len(text)
        return text


async def fill(store: flue_py.Store, texts: Texts, count: int) -> flue_py.Session:
    """Write so many messages, to a new session for each thousand; return the last one."""
    session = await store.create_session()
    for low in range(0, count, _BATCH):
        session = await store.create_session()
        await session.append_messages(texts.messages(min(_BATCH, count - low)))
    return session


async def _read(store: flue_py.Store, session: flue_py.Session) -> None:
    for change in await store.backend.changes(session.id, 0, _BATCH):
        for entry in change.entries:
            decode_object(entry.payload)


async def _cpu_of(work: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds of CPU time that something takes, on all threads."""
    before = process_time()
    await work()
    return process_time() - before


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    count = 1_000_000 if options.long else options.count(100_000, 300)
    texts = Texts(1)
    with scratch(options) as folder:
        path = folder / "store.db"
        async with flue_py.open(path, durability="normal") as store:
            await fill(store, texts, count)
            await store.search("nothing")
            share = 100 * database_bytes(Path(f"{path}-words")) / texts.characters
            what = f"index of {count:,} messages, of their text"
            lines = [Line.of_figures(what, "%", [share], goal=Goal(60, of="value"))]
            lines.append(await _catching_up(options, store, texts))
            return lines + [await _asking(options, store, what, words, count) for what, words in _asked(texts)]


async def _catching_up(options: Options, store: flue_py.Store, texts: Texts) -> Line:
    added = options.count(10_000, 100)
    taken, floor = [], []
    for _ in range(options.rounds):
        session = await store.create_session()
        for low in range(0, added, _BATCH):
            await session.append_messages(texts.messages(min(_BATCH, added - low)))
        taken.append([await _cpu_of(lambda: store.search("nothing"))])
        floor.append([await _cpu_of(lambda: _read(store, session))])  # noqa: B023 - called at once
    what = f"catch up with {added:,} new messages, CPU"
    return Line.of_latencies(what, "ms", taken, floor, Goal(2_000, of="value"))


def _asked(texts: Texts) -> list[tuple[str, str]]:
    return [
        ("a word that is everywhere", texts.words[0]),
        ("two words", f"{texts.words[100]} {texts.words[5_000]}"),
        ("a rare word", texts.words[-1]),
        ("two words one behind the other", f"{texts.words[3]}/{texts.words[4]}"),
        ("a word that is nowhere", "nowhereatall"),
    ]


async def _asking(options: Options, store: flue_py.Store, what: str, words: str, count: int) -> Line:
    samples = [
        [await timed_async(lambda: store.search(words)) for _ in range(options.count(5, 1))]
        for _ in range(options.rounds)
    ]
    return Line.of_latencies(f"search {count:,} messages: {what}", "ms", samples, goal=Goal(100, of="value"))


if __name__ == "__main__":
    main(measure)
