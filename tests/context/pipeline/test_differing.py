"""Where a request begins otherwise than an earlier one, the first entry that differs and what made it so are named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flue_py.context.pipeline import Item, Over, View
from flue_py.context.request import ContextRequest, context_request
from flue_py.context.settings import context_settings
from flue_py.context.tokens import counter_for
from flue_py.core.context import ContextEntry
from flue_py.errors import InvalidArgument
from flue_py.providers import LIMITS
from tests.adapters.messages.contexts import TRANSCRIPTS, context_of
from tests.context.pipeline.piped import answer, begins_with, call, context, result, user
from tests.context.pipeline.test_epochs import PARTS, ends_of_requests
from tests.tables import inputs
from tests.values import existing

COUNTER = counter_for("gpt-5")
READ = {"name": "read_file", "input_schema": {"type": "object"}}
SAID = context(
    user("Go."),
    answer("", call("c1", "Bash")),
    result("c1", "old " * 50),
    answer("", call("c2", "Bash")),
    result("c2", "new"),
    answer("Done."),
    user("And now?"),
)


def request(
    items: Sequence[ContextEntry], target: str | None = "anthropic", *steps: Any, settings: Any = None, **given: Any
) -> ContextRequest:
    chosen = context_settings({"addresses": False, "epoch_tokens": 0, **(settings or {})})
    return context_request(items, target, chosen, COUNTER, steps=steps, **given)


def broken(before: ContextRequest, after: ContextRequest) -> tuple[str, str | None] | None:
    found = after.break_since(before)
    return None if found is None else (found.by, found.entry_id)


def test_only_requests_are_compared() -> None:
    nothing: Any = None
    with pytest.raises(InvalidArgument, match=r"before: None is not what session\.request returns"):
        request(SAID).break_since(nothing)


@inputs("target", [*LIMITS, None])
def test_a_request_that_has_gone_on_breaks_nothing(target: str | None) -> None:
    first = request(SAID[:5], target, system="Be brief.", tools=[READ])
    again = request(SAID, target, system="Be brief.", tools=[READ])
    assert again.break_since(first) is None
    assert broken(again, first) == ("context", "e5")


@inputs("target", [*LIMITS, None])
def test_system_and_tools_are_named(target: str | None) -> None:
    first = request(SAID[:5], target, system="Be brief.", tools=[READ])
    assert broken(first, request(SAID, target, system="Be long.", tools=[READ])) == ("system", None)
    assert broken(first, request(SAID, target, system="Be brief.")) == ("tools", None)


def test_what_the_system_says_later_is_named_where_it_goes_to_the_front() -> None:
    told = context(user("Go."), {"role": "system", "content": "Be kind."})
    assert broken(request(told[:1], "gemini"), request(told, "gemini")) == ("system", "e1")
    for target in ("anthropic", "openai-chat", "openai-responses"):
        assert broken(request(told[:1], target), request(told, target)) is None


def test_another_target_is_named() -> None:
    assert broken(request(SAID, "gemini"), request(SAID, "anthropic")) == ("target", None)


def test_the_step_that_rewrites_is_named_with_its_entry() -> None:
    settings = {"microcompact": {"keep": 1}}
    first, second = request(SAID[:3], settings=settings), request(SAID[:5], settings=settings)
    found = existing(second.break_since(first))
    assert (found.by, found.entry_id) == ("microcompact", "e2")
    assert str(found).startswith("e2: microcompact, replaced it (")
    assert broken(second, request(SAID)) == ("microcompact", "e2")


def test_what_a_step_drops_or_adds_is_named() -> None:
    class Own:
        name = "own"
        reason = "the application wants it"
        over: Over = "all"
        at_epochs = False

        def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
            return items[1:] if len(items) > 6 else items

    assert broken(request(SAID[:5], None, Own()), request(SAID, None, Own())) == ("own", "e0")


def test_a_compaction_and_what_the_context_has_no_longer_are_named() -> None:
    kept = context({"summary": "What was done."}, user("And now?"), kinds={0: "compaction"})
    assert broken(request(SAID), request(kept)) == ("compaction", "e0")
    assert broken(request(SAID), request([*SAID[:3], *SAID[5:]])) == ("context", "e3")


def test_a_repair_is_named() -> None:
    first = request(SAID[:2])
    assert broken(first, request(SAID[:3])) == ("repair", "e1")


@inputs("name", TRANSCRIPTS)
def test_it_is_named_for_every_request_of_a_real_session_that_begins_otherwise(name: str) -> None:
    items = context_of(name)
    settings = context_settings({"epoch_tokens": 5_000, **PARTS["all"]})
    before: ContextRequest | None = None
    for end in ends_of_requests(items, 5):
        sent = context_request(items[:end], None, settings, COUNTER)
        if before is not None:
            assert (sent.break_since(before) is None) == begins_with([*sent.messages], [*before.messages])
        before = sent
