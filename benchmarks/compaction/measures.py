"""What a context has of a transcript: facts that survive, questions that it answers, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from benchmarks.compaction.contexts import Context, compacted, masked, plain_window, untouched
from benchmarks.compaction.questions import KINDS, Answering, Question, questions_of
from benchmarks.compaction.stand_in import NAME, PROVIDER
from benchmarks.compaction.transcripts import Transcript
from flue_py.compaction.facts import Fact, FactKind, covered, facts_of
from flue_py.core.json import JsonObject
from flue_py.core.usage import PaidCall, read_calls
from flue_py.prices import PriceBook

FACTS: Mapping[str, FactKind] = {
    "paths": "file",
    "names": "identifier",
    "errors": "error",
    "user": "instruction",
    "questions": "question",
}
"""The columns of what survives, with the kind of facts in each (`flue_py.compaction.facts` has their rules)."""
COLUMNS: tuple[str, ...] = (*FACTS, *KINDS)
RESULTS = "results"
"""The first and the last lines of tools' results: no mode is there to carry them, so they are told beside the table."""
MODES = ("window", "intent", "lossless", "hybrid", "llm")
_AT = 1_767_225_600_000_000
"""When the calls are taken to be made: prices change."""


@dataclass(frozen=True)
class Row:
    """What one way keeps, of how much there is, by column; ``plain`` is what a plain window of equal size has.

    ``making`` is the cost of the compactions' calls, ``reading`` that of reading the context once, in picodollars; None
    where no price is known.
    """

    way: str
    times: int
    before: int
    after: int
    kept: Counter[str]
    of: Counter[str]
    plain: Counter[str] | None = None
    making: int | None = 0
    reading: int | None = 0
    compactions: int = 0

    def __add__(self, other: Row) -> Row:
        return Row(
            self.way,
            self.times,
            self.before + other.before,
            self.after + other.after,
            self.kept + other.kept,
            self.of + other.of,
            None if self.plain is None or other.plain is None else self.plain + other.plain,
            None if self.making is None or other.making is None else self.making + other.making,
            None if self.reading is None or other.reading is None else self.reading + other.reading,
            self.compactions + other.compactions,
        )

    @property
    def not_better(self) -> list[str]:
        """The columns in which a plain window of equal size has as much or more, unless both have all there is."""
        plain = self.plain or Counter()
        return [
            column
            for column in COLUMNS
            if self.kept[column] < plain[column] or self.kept[column] == plain[column] < self.of[column]
        ]


@dataclass(frozen=True)
class Asked:
    """A transcript with its facts, by column, and the questions about it."""

    transcript: Transcript
    facts: Mapping[str, Sequence[Fact]] = field(repr=False)
    questions: Sequence[Question] = field(repr=False)

    @classmethod
    def of(cls, transcript: Transcript) -> Asked:
        """Return what there is to keep of a transcript."""
        found = facts_of(transcript.messages)
        facts = {column: found.of(kind) for column, kind in FACTS.items()} | {RESULTS: found.results}
        return cls(transcript, facts, questions_of(transcript.messages))

    @property
    def total(self) -> Counter[str]:
        """How much there is, by column."""
        counts = Counter({column: len(facts) for column, facts in self.facts.items()})
        return counts + Counter(question.kind for question in self.questions)

    def kept(self, text: str) -> Counter[str]:
        """Return how much of it a text has, by column."""
        answering = Answering(text)
        counts = Counter({name: sum(covered(fact, text) for fact in facts) for name, facts in self.facts.items()})
        return counts + Counter(question.kind for question in self.questions if answering.has(question))

    def row(self, way: str, times: int, context: Context, *, with_plain: bool = False) -> Row:
        """Return what a context has of it."""
        plain = self.kept(plain_window(self.transcript, context.tokens).text) if with_plain else None
        return Row(
            way,
            times,
            self.transcript.tokens,
            context.tokens,
            self.kept(context.text),
            self.total,
            plain,
            cost_of(context.calls),
            cost_of([{"input": context.tokens, "provider": PROVIDER, "model": NAME}]),
            context.compactions,
        )


def rows_of(
    asked: Asked, window: int, *, modes: Sequence[str] = MODES, times: Sequence[int] = (1, 10)
) -> Iterator[Row]:
    """Yield what each way keeps at a window: doing nothing, masking results, and each mode so many times."""
    yield asked.row("nothing", 0, untouched(asked.transcript))
    yield asked.row("masking", 0, masked(asked.transcript, window))
    for mode in modes:
        for number in times:
            yield asked.row(mode, number, compacted(asked.transcript, mode, window, number), with_plain=True)


def cost_of(calls: Sequence[JsonObject]) -> int | None:
    """Return what calls cost at list prices, in picodollars; None where the price of one is unknown."""
    priced = [_book().priced(call, lambda: _AT) for call in _read(calls)]
    costs = [call.known_cost for call in priced]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def _read(calls: Sequence[JsonObject]) -> Sequence[PaidCall]:
    return [call for each in calls for call in read_calls([each], "calls", "compaction")]


@cache
def _book() -> PriceBook:
    return PriceBook()
