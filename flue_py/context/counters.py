"""The counters of tokens, and what each has counted before.

A count is remembered for each entry, in the process: to measure a context again is one look-up for each of its items.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from threading import Lock
from typing import TypeAlias

from flue_py.context.tokens import (
    ESTIMATE_BYTES_PER_TOKEN,
    count_message_tokens,
    encoding_name_for,
    estimate_message_tokens,
    is_text_only,
)
from flue_py.core.counting import Counter, EntryCounter, model_names
from flue_py.core.faithful import faithful_tokens
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonValue, encode_json
from flue_py.core.kinds import MESSAGE
from flue_py.core.projection import ContextEntry
from flue_py.core.traits import TRAITS

__all__ = [
    "ENTRY_COUNTS",
    "Counter",
    "EntryCounter",
    "EntryCounts",
    "ModelCounter",
    "NotCounted",
    "Tally",
    "counter_for",
]

MOST_COUNTS = 100_000
"""How many counts are kept for each counter. All of them take some 30 MB."""

MOST_COUNTERS = 8

_Count: TypeAlias = tuple[int, str, int]
"""The hash of the payload and the kind of the entry that was counted, and its tokens; ``~tokens`` if not all of it was
text, so that they are an estimate whatever the counter."""


@frozen
class Tally:
    """What several items take together, and whether any of it is an estimate."""

    tokens: int
    is_estimate: bool


class NotCounted(LookupError):
    """Something was not counted before."""


class EntryCounts:
    """What entries take, by counter: at most ``most`` for each, the newest. One object may be used by all threads.

    A count is found by the entry's id and by what was left out of it, and is good as long as kind and payload are the
    same. Counters of the same name are taken to count alike.
    """

    def __init__(self, most: int = MOST_COUNTS) -> None:
        self._most = most
        self._counts: dict[str, dict[Hashable, _Count]] = {}
        self._changing = Lock()

    def count(self, item: ContextEntry, counter: Counter) -> int:
        """Return how many tokens an item takes. O(1) if it was counted before, else O(size)."""
        return self.tally((item,), counter).tokens

    def each(self, items: Iterable[ContextEntry], counter: Counter) -> list[int]:
        """Return how many tokens each of the items takes, in their order. The cost of `tally`."""
        return self.each_and_all(items, counter)[0]

    def each_and_all(self, items: Iterable[ContextEntry], counter: Counter) -> tuple[list[int], Tally]:
        """Return what `each` and what `tally` returns, by one look-up for each item."""
        found = self._each(items, counter, only_known=False)
        return [~tokens if tokens < 0 else tokens for tokens in found], _tally(found, counter)

    def tally(self, items: Iterable[ContextEntry], counter: Counter, *, only_known: bool = False) -> Tally:
        """Return how many tokens items take together. O(items), and O(size) of those not counted before.

        With ``only_known``, raises `NotCounted` at the first of those.
        """
        return _tally(self._each(items, counter, only_known=only_known), counter)

    def tally_texts(self, texts: Iterable[str], counter: Counter, *, only_known: bool = False) -> Tally:
        """Return what texts take together, each as a message of its own. As `tally`, and remembered likewise."""
        known = self._known(counter.name)
        total = 0
        for text in texts:
            key = (len(text), hash(text))
            found = known.get(key)
            if found is None:
                if only_known:
                    raise NotCounted
                found = (0, "", counter.count({"role": "user", "content": [{"type": "text", "text": text}]}))
                self._keep(known, key, found)
            total += found[2]
        return Tally(total, counter.is_estimate and total > 0)

    def count_message(self, message: Mapping[str, JsonValue], counter: Counter) -> int:
        """Return how many tokens a message takes that no entry has as it is. O(size), and remembered by its text."""
        text = encode_json(dict(message), "message")[0]
        known = self._known(counter.name)
        key = (len(text), hash(text), "message")
        found = known.get(key)
        if found is None:
            found = (0, "", counter.count(message))
            self._keep(known, key, found)
        return found[2]

    def clear(self) -> None:
        """Forget all counts."""
        with self._changing:
            self._counts.clear()

    def _each(self, items: Iterable[ContextEntry], counter: Counter, *, only_known: bool) -> list[int]:
        known = self._known(counter.name)
        each = []
        for item in items:
            # Written out, since this is all that happens for each of ten thousand items that were counted before.
            entry = item.entry
            found = known.get((entry.id, item.excluded_parts) if item.excluded_parts else entry.id)
            # Another store may have the same id for something else. Python keeps the hash of a text beside it.
            if found is None or found[0] != hash(entry.payload) or found[1] != entry.kind:
                if only_known:
                    raise NotCounted
                found = self._count_entry(known, item, counter)
            each.append(found[2])
        return each

    def _known(self, name: str) -> dict[Hashable, _Count]:
        known = self._counts.get(name)
        if known is not None:
            return known
        with self._changing:
            if len(self._counts) >= MOST_COUNTERS and name not in self._counts:
                del self._counts[next(iter(self._counts))]
            return self._counts.setdefault(name, {})

    def _count_entry(self, known: dict[Hashable, _Count], item: ContextEntry, counter: Counter) -> _Count:
        message = item.data
        tokens = counter.count(message)
        entry = item.entry
        if entry.kind == MESSAGE and not item.excluded_parts:
            TRAITS.note(entry, message)
        count = (hash(entry.payload), entry.kind, tokens if is_text_only(message) else ~tokens)
        self._keep(known, (entry.id, item.excluded_parts) if item.excluded_parts else entry.id, count)
        return count

    def _keep(self, known: dict[Hashable, _Count], key: Hashable, count: _Count) -> None:
        with self._changing:
            if len(known) >= self._most:
                for oldest in list(known)[: len(known) // 2 + 1]:
                    del known[oldest]
            known[key] = count


def _tally(found: Sequence[int], counter: Counter) -> Tally:
    """Return what counts come to; one below 0 is ``~tokens``, of what is not all text (`_Count`)."""
    if min(found, default=0) >= 0:
        total = sum(found)
        return Tally(total, counter.is_estimate and total > 0)
    return Tally(sum(~tokens if tokens < 0 else tokens for tokens in found), is_estimate=True)


ENTRY_COUNTS = EntryCounts()
"""The counts that all sessions of the process share."""


class ModelCounter:
    """A counter whose counts of entries are remembered in `ENTRY_COUNTS`. Made by `counter_for`."""

    __slots__ = ("_count", "_is_estimate", "_name")

    def __init__(self, name: str, count: Callable[[Mapping[str, JsonValue]], int], *, is_estimate: bool) -> None:
        self._name = name
        self._count = count
        self._is_estimate = is_estimate

    def __repr__(self) -> str:
        return f"<counter {self._name}>"

    @property
    def name(self) -> str:
        """Which counter it is: ``tiktoken:`` and the vocabulary, ``bytes/3``, or ``faithful``."""
        return self._name

    @property
    def is_estimate(self) -> bool:
        """False if text is counted with the model's own vocabulary."""
        return self._is_estimate

    def count(self, message: Mapping[str, JsonValue], /) -> int:
        """Return how many tokens one message takes. O(size)."""
        return self._count(message)

    def count_entry(self, item: ContextEntry, /) -> int:
        """Return how many tokens the message of an item takes. O(1) if it was counted before, else O(size)."""
        return ENTRY_COUNTS.count(item, self)

    def count_entries(self, items: Sequence[ContextEntry], /) -> list[int]:
        """Return how many tokens each of the items takes. One look-up for each that was counted before."""
        return ENTRY_COUNTS.each(items, self)


def counter_for(model: str | None, *, faithful: bool = False) -> ModelCounter:
    """Return the counter for a model: of its own vocabulary if that is shipped, else an estimate of bytes / 3.

    ``model`` may have its provider before it (``openai:gpt-5``, ``openai/gpt-5``); None is a model that is not known.
    With ``faithful`` it is the reference's estimate of UTF-16 code units / 4, whatever the model. Loads nothing: a
    vocabulary is loaded at the first count (see `load_encoding`). O(1).
    """
    if faithful:
        return _FAITHFUL
    return _ESTIMATE if model is None else _counter_of(model) or _ESTIMATE


def budget_counts(items: Sequence[ContextEntry]) -> list[int]:
    """Return the sizes of items as a budget counts them: characters / 4, whatever the model. As `count_entries`."""
    return _FAITHFUL.count_entries(items)


@lru_cache(maxsize=256)
def _counter_of(model: str) -> ModelCounter | None:
    for name in model_names(model):
        if (encoding := encoding_name_for(name)) is not None:
            return ModelCounter(f"tiktoken:{encoding}", partial(_tokens_for, name), is_estimate=False)
    return None


def _tokens_for(model: str, message: Mapping[str, JsonValue]) -> int:
    return count_message_tokens(message, model).tokens


def _estimated_tokens(message: Mapping[str, JsonValue]) -> int:
    return estimate_message_tokens(message).tokens


_ESTIMATE = ModelCounter(f"bytes/{ESTIMATE_BYTES_PER_TOKEN}", _estimated_tokens, is_estimate=True)
_FAITHFUL = ModelCounter("faithful", faithful_tokens, is_estimate=True)
