"""Whether rewriting pays is worked out once for each place of a history, and a process that has not done so agrees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flue_py.context.pipeline import FORESEEN, EpochRules, Item, Over, Piped, Rewritten, Step, View, run_steps
from flue_py.context.settings import AgentContext, context_settings
from flue_py.context.steps import FunctionStep, microcompact, steps_of
from flue_py.context.tokens import Remembered, counter_for
from flue_py.core.context import ContextEntry
from flue_py.core.json import Frozen, JsonObject
from tests.context.pipeline.piped import answer, call, context, result, user
from tests.tables import inputs

COUNTER = counter_for("gpt-5")


def pays(found: Rewritten) -> bool:
    return (found.unedited - found.tokens) * 8 > found.cached - found.common


def run(items: Sequence[ContextEntry], steps: Sequence[Step], tokens: int, agent: str | None = None) -> Piped:
    return run_steps(items, steps, View(agent, COUNTER), rules=EpochRules(tokens, None, pays))


def sent(found: Piped) -> list[JsonObject]:
    return [item.message for item in found.items]


@st.composite
def histories(draw: st.DrawFn) -> list[ContextEntry]:
    """Draw what a user, a model and tools said; results may be missing, and the parts of an answer be excluded."""
    said: list[JsonObject] = []
    for number in range(draw(st.integers(1, 25))):
        words = draw(st.integers(1, 60))
        kind = draw(st.sampled_from(["user", "answer", "pair", "pair", "pair", "call"]))
        if kind == "user":
            said.append(user("word " * words))
        elif kind == "answer":
            said.append(answer("word " * words, agent=draw(st.sampled_from([None, "a", "b"]))))
        else:
            # The same few files, so that a read supersedes another.
            said.append(answer("I look.", call(f"c{number}", path=draw(st.sampled_from("abc")))))
            said += [result(f"c{number}", "word " * words)] if kind == "pair" else []
    found = context(*said)
    return [
        replace(
            item, excluded_parts=frozenset({0}) if item.role == "assistant" and draw(st.booleans()) else frozenset()
        )
        for item in found
    ]


SETTINGS: list[dict[str, Any]] = [
    {"microcompact": {"keep": 1, "tools": ["read_file"]}},
    {"superseded": {"least_chars": 10}, "in_turn": {"max_tool_pairs": 2, "max_context_tokens": 300}},
    {"microcompact": {"keep": 0, "tools": ["read_file"]}, "trim": {"max_tokens": 400}},
]


@given(histories(), st.sampled_from(SETTINGS), st.integers(20, 200), st.sampled_from([None, "a"]), st.data())
def test_what_is_remembered_is_what_would_be_found(
    items: list[ContextEntry], asked: dict[str, Any], tokens: int, agent: str | None, data: st.DataObject
) -> None:
    chosen: AgentContext = context_settings({"epoch_tokens": tokens, **asked})
    ends = data.draw(st.lists(st.integers(0, len(items)), min_size=1, max_size=6))
    FORESEEN.clear()
    warm = [run(items[:end], steps_of(chosen), tokens, agent) for end in ends]
    for end, found in zip(ends, warm, strict=True):
        FORESEEN.clear()
        cold = run(items[:end], steps_of(chosen), tokens, agent)
        assert cold.report == found.report
        assert sent(cold) == sent(found)


class Counting(Frozen):
    """Clears as `microcompact` does, and counts how many messages it was given."""

    inner: FunctionStep = microcompact(1, ("read_file",))
    name: str = "counting"
    reason: str = "a test counts"
    over: Over = "all"
    at_epochs: bool = True
    given: ClassVar[list[int]] = []

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        self.given.append(len(items))
        return self.inner.apply(items, view)


class Changing:
    """A step of an application that is not a value: it may do something else the next time."""

    name = "changing"
    reason = "a test changes it"
    over: Over = "all"
    at_epochs = True

    def __init__(self) -> None:
        self.keep = 1_000

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        return microcompact(self.keep, ("read_file",)).apply(items, view)


def reads(count: int) -> list[ContextEntry]:
    pairs = [(answer("", call(f"c{at}")), result(f"c{at}", "word " * 100)) for at in range(count)]
    return context(user("Go."), *(message for pair in pairs for message in pair))


def test_a_later_request_asks_for_what_has_come_since() -> None:
    items = reads(60)
    FORESEEN.clear()
    run(items[:-2], [Counting()], 100)
    Counting.given.clear()
    found = run(items, [Counting()], 100)
    # The epoch that it may begin, the one that would go on, and the request itself.
    assert len(Counting.given) <= 3
    FORESEEN.clear()
    Counting.given.clear()
    assert run(items, [Counting()], 100).report == found.report
    assert len(Counting.given) > 40


def test_a_step_that_may_change_is_asked_again() -> None:
    items, step = reads(12), Changing()
    FORESEEN.clear()
    before = run(items, [step], 200)
    assert before.report.tokens_freed == 0
    step.keep = 0
    changing = run(items, [step], 200)
    fresh = Changing()
    fresh.keep = 0
    assert changing.report == run(items, [fresh], 200).report
    assert changing.report.tokens_freed > 0


@inputs("most", [1, 2, 5])
def test_the_oldest_are_forgotten(most: int) -> None:
    memory, found = Remembered[int, Rewritten](most), Rewritten(1, 0, 1, 0)
    for number in range(20):
        memory.keep(number, found)
        assert memory.get(number) == found
    assert sum(memory.get(number) is not None for number in range(20)) <= most
