"""Between two epochs a request begins with the bytes of the one before it, with every part of the settings on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from flue_py.context.pipeline import EpochRules, Piped, Rewritten, View, epoch_end, run_steps
from flue_py.context.request import context_request
from flue_py.context.settings import ContextSettings, context_settings
from flue_py.context.steps import steps_of
from flue_py.context.tokens import counter_for
from flue_py.core.context import ContextEntry
from flue_py.core.json import JsonObject, JsonValue
from flue_py.providers import LIMITS
from tests.adapters.messages.contexts import TRANSCRIPTS, context_of
from tests.context.pipeline.piped import answer, begins_with, call, context, piped, result, texts, user
from tests.tables import inputs

PARTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "superseded": {"superseded": {}},
    "microcompact": {"microcompact": {}},
    "tool_results": {"tool_results": {"result_chars": 2_000}},
    "trim": {"trim": {"max_tokens": 30_000}},
    "all": {"superseded": {}, "microcompact": {}, "tool_results": {}, "trim": {}},
}
COUNTER = counter_for("gpt-5")


def run(items: Sequence[ContextEntry], settings: ContextSettings) -> Piped:
    view = View(None, COUNTER, addresses=settings.addresses)
    return run_steps(items, steps_of(settings), view, rules=EpochRules(settings.epoch_tokens))


def ends_of_requests(items: Sequence[ContextEntry], most: int) -> list[int]:
    """Return where requests of a session ended, at most so many of them, each followed by the next one."""
    ends = [at for at in range(1, len(items)) if items[at].role == "assistant"]
    stretch = max(len(ends) // most, 1) * 4
    return [end for number, end in enumerate(ends) if number % stretch < 4]


def is_over_budget(found: Piped) -> bool:
    """Return whether what an epoch added did not fit, so that a limit took effect that holds in every request."""
    limits = [step for step in found.report.steps if step.name == "trim_history"]
    return any(step.changes for step in limits[1::2])


@pytest.mark.thorough(but=["defaults", "all"])
@pytest.mark.parametrize("part", PARTS)
@inputs("name", TRANSCRIPTS)
def test_a_request_begins_with_the_one_before_it_until_an_epoch_begins(name: str, part: str) -> None:
    items = context_of(name)
    settings = context_settings({"epoch_tokens": 5_000, **PARTS[part]})
    before: list[JsonValue] = []
    epoch: str | None = None
    broken = 0
    ends = ends_of_requests(items, 12)
    for end in ends:
        found = run(items[:end], settings)
        sent: list[JsonValue] = [item.message for item in found.items]
        if found.report.epoch_end != epoch:
            broken += 1
        elif is_over_budget(found) or (before and not begins_with(sent, before)):
            assert part in ("trim", "all")
            assert is_over_budget(found)
            broken += 1
        before, epoch = sent, found.report.epoch_end
    assert broken <= max(len(ends) * 3 // 4, 1)


@pytest.mark.thorough(but=["anthropic"])
@pytest.mark.parametrize("target", LIMITS)
def test_what_a_provider_is_sent_begins_so_too(target: str) -> None:
    items = context_of("pi/large-session.jsonl.gz")
    settings = context_settings({"epoch_tokens": 5_000, **PARTS["all"], "trim": None})
    rewritten = kept = 0
    before: list[JsonValue] = []
    epoch: str | None = None
    for end in ends_of_requests(items, 12):
        found = context_request(items[:end], target, settings, COUNTER)
        sent: list[JsonValue] = [*found.messages]
        if found.report.epoch_end == epoch:
            assert begins_with(sent, before)
            kept += 1
        elif before:
            rewritten += not begins_with(sent, before)
        before, epoch = sent, found.report.epoch_end
    assert kept
    assert rewritten


def unasked(at: int, end: int, begins: int) -> Rewritten:
    raise AssertionError("nothing has to pay")


def test_an_epoch_begins_when_the_context_has_grown_and_with_the_request_that_finds_it() -> None:
    said = context(*(message for at in range(6) for message in (user("u" * 10), answer(str(at)))))
    sizes = [10, 1] * 6
    ends = [epoch_end(said[:end], sizes[:end], EpochRules(25), unasked) for end in range(13)]
    # Requests end at 1, 3, 5, ...: with five items 32 tokens have come, with nine 54.
    assert ends == [0, 0, 0, 0, 0, 5, 5, 5, 5, 9, 9, 9, 9]


def test_a_compaction_begins_an_epoch() -> None:
    kept = [answer("", call("c1", "Bash")), result("c1", "old " * 50), answer("", call("c2", "Bash")), result("c2")]
    summary: JsonObject = {"summary": "What was done."}
    before = context(*kept, summary, kinds={4: "compaction"})
    items = [before[4], *before[:4]]
    given = {"microcompact": {"keep": 1}, "epoch_tokens": 100_000}
    assert texts(piped(items, given))[2].startswith("[tool result cleared")
    assert texts(piped(before[:4], given))[1].startswith("old")


def test_rewriting_waits_for_the_next_epoch() -> None:
    pairs = [(answer("", call(f"c{at}", "Bash")), result(f"c{at}", "word " * 200)) for at in range(12)]
    said = context(user("Go."), *(message for pair in pairs for message in pair))
    sent = []
    for end in range(1, len(said) + 1, 2):
        found = piped(said[:end], {"microcompact": {"keep": 1}, "epoch_tokens": 1_000})
        sent.append(sum(text.startswith("[tool result cleared") for text in texts(found)))
    assert sent == sorted(sent)
    assert len({*sent}) < 5
    assert sent[-1] > 5


def test_an_epoch_that_does_not_pay_waits_until_the_context_has_grown_again() -> None:
    said = context(*(message for at in range(6) for message in (user("u" * 10), answer(str(at)))))
    asked: list[tuple[int, int, int]] = []

    def rewritten(at: int, end: int, begins: int) -> Rewritten:
        asked.append((at, end, begins))
        return Rewritten(at, 0, at, 0)

    rules = EpochRules(25, pays=lambda found: found.tokens > 5)
    assert [epoch_end(said[:end], ([10, 1] * 6)[:end], rules, rewritten) for end in range(13)] == [0] * 9 + [9] * 4
    assert {*asked} == {(5, 0, 5), (9, 0, 9)}


def test_an_epoch_begins_when_the_last_call_is_long_ago() -> None:
    said = context(*(message for at in range(4) for message in (user("u"), answer(str(at)))))
    # A second lies between two entries, and an hour before the third question.
    times = [second * 1_000_000 + 3_600_000_000 * (second >= 4) for second in range(8)]
    late = [ContextEntry(replace(item.entry, created_us=time)) for item, time in zip(said, times, strict=True)]
    rules = EpochRules(1_000, cold_seconds=300)
    assert [epoch_end(late[:end], [1] * end, rules, unasked) for end in range(9)] == [0, 0, 0, 0, 0, 5, 5, 5, 5]
    assert epoch_end(late, [1] * 8, EpochRules(1_000), unasked) == 0


@inputs("name", TRANSCRIPTS)
def test_what_pays_is_found_again_by_each_later_request(name: str) -> None:
    items = context_of(name)
    rules = EpochRules(8_000, 600, lambda found: (found.unedited - found.tokens) * 8 > found.cached - found.common)
    settings = context_settings(PARTS["all"] | {"trim": None})
    before: Piped | None = None
    for end in ends_of_requests(items, 8):
        found = run_steps(
            items[:end], steps_of(settings), View(None, COUNTER, addresses=settings.addresses), rules=rules
        )
        if before is not None and before.report.epoch_end == found.report.epoch_end:
            assert begins_with([item.message for item in found.items], [item.message for item in before.items])
        before = found
