"""What a context takes, on every store, and what two contexts begin with."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from threading import current_thread
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flue_py
import flue_py.sync
from flue_py import EntryNotFound, InvalidArgument, JsonObject, Session, Store
from flue_py.context import tokens as counters
from flue_py.context.tokens import ENTRY_COUNTS, counter_for, measure_context
from flue_py.core.context import chain_of, item_bytes
from flue_py.core.json import encode_json
from flue_py.providers import to_provider
from flue_py.sync import Session as BlockingSession
from flue_py.transfer import export_session
from tests.checks import raises
from tests.sessions.conftest import also_in_memory
from tests.sessions.talk import assistant, hold_turns, user
from tests.sessions.test_compact_any_history import Step, take
from tests.tables import inputs
from tests.values import existing
from tests.wire.test_applied import EDITS, RESPONSE

LONG = "word " * 200


def answer(text: str, tokens: int, model: str = "gpt-5") -> JsonObject:
    return {**assistant(text, tokens), "provider": "openai", "model": model}


async def test_the_size_is_what_was_reported_and_what_follows(session: Session) -> None:
    ids = (await session.append_messages([user(LONG), answer("a", 250), user("b")])).entry_ids
    size = await session.context.measure()
    items = await session.build_context_entries()
    assert size == measure_context(items, counter_for("gpt-5"), model="gpt-5")
    assert size.counter == "tiktoken:o200k_base"
    assert size.reported is not None
    assert (size.reported.entry_id, size.tokens) == (ids[1], 250 + size.trailing)
    assert (await session.context.measure("claude-opus-4-5")).reported is None
    assert (await session.context.measure("claude-opus-4-5")).counter == "bytes/3"
    assert (await session.context.measure("gpt-5", provider="azure")).reported is None
    assert (await session.context.measure(faithful=True)).counter == "faithful"
    assert (await session.context.measure(window=249)).distrust == "above_window"
    assert (await session.context.measure(leaf=ids[0])).tokens == counter_for(None).count(user(LONG))
    assert (await session.context.measure(leaf=None)).tokens == 0
    assert (await session.context.measure(use_reported=False)).tokens == sum(counter_for("gpt-5").count_entries(items))


async def test_the_model_is_that_of_the_path_and_a_change_of_model_leaves_the_report(session: Session) -> None:
    await session.append_messages([user(LONG), answer("a", 250)])
    await session.append_custom("model_change", {"provider": "openai", "modelId": "gpt-4"})
    size = await session.context.measure()
    assert (size.counter, size.reported) == ("tiktoken:cl100k_base", None)


async def test_a_compaction_an_exclusion_and_their_undo(session: Session) -> None:
    ids = (await session.append_messages([user(LONG), user("b"), answer("c", 250)])).entry_ids
    assert (await session.context.measure()).tokens == 250
    await session.marks.exclude(ids[1])
    excluded = await session.context.measure()
    assert excluded.reported is None
    assert excluded.tokens == sum(counter_for("gpt-5").count_entries(await session.build_context_entries()))
    await session.undo()
    assert (await session.context.measure()).tokens == 250
    await session.append_compaction("s", first_kept_entry_id=ids[1], tokens_before=250)
    compacted = await session.context.measure()
    assert compacted.reported is None
    assert compacted.tokens < 50
    await session.append_messages([user("d"), answer("e", 40)])
    assert (await session.context.measure()).reported is not None


async def test_a_fork_has_the_report_and_a_copy_has_none(session: Session, store: flue_py.Store) -> None:
    ids = (await session.append_messages([user(LONG), answer("a", 250)])).entry_ids
    fork = await session.fork()
    assert (await fork.context.measure()).tokens == 250
    other = await store.create_session()
    await other.append_message(user(LONG))
    await other.branches.cherry_pick(ids, source=session)
    assert (await other.context.measure()).reported is None


async def test_what_was_counted_is_not_counted_again(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    ENTRY_COUNTS.clear()
    await hold_turns(session, 3)
    first = await session.context.measure("gpt-5", use_reported=False)

    def counted_again(*_: object) -> int:
        raise AssertionError

    monkeypatch.setattr(counters, "count_message_tokens", counted_again)
    session = await session.fork()
    assert await session.context.measure("gpt-5", use_reported=False) == first
    await session.append_message(user("more"))
    await raises(AssertionError, session.context.measure("gpt-5"))


@also_in_memory
async def test_other_tasks_do_not_wait_for_a_first_count(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    ENTRY_COUNTS.clear()
    threads = []

    def noted(message: Any, model: str | None) -> Any:
        threads.append(current_thread())
        return original(message, model)

    original = counters.count_message_tokens
    monkeypatch.setattr(counters, "count_message_tokens", noted)
    await hold_turns(session, 1)
    await session.context.measure("gpt-5")
    await session.context.measure("gpt-5")
    assert len(threads) == 2
    await session.context.measure("gpt-5", system="Be brief.")
    assert len(threads) == 3
    assert current_thread() not in threads


@inputs(
    ("given", "says"),
    [
        ({"model": ""}, "model: must not be empty"), ({"provider": ""}, "provider: must not be empty"),
        ({"system": 1}, "system: 1 is not the text"), ({"tools": {}}, "tools: .* is not a list"),
        ({"tools": "read"}, "tools: .* is not a list"), ({"tools": ["read"]}, "tools: 'read' is not the definition"),
        ({"window": 0}, "window: 0 is not a number of tokens >= 1"), ({"window": True}, "window: True is not a number"),
        ({"faithful": 1}, "faithful: 1 is neither"), ({"use_reported": None}, "use_reported: None is neither"),
        ({"leaf": 5}, "leaf: 5 is not an id"),
    ],
)  # fmt: skip
async def test_arguments_that_say_nothing_are_refused(session: Session, given: dict[str, Any], says: str) -> None:
    await raises(InvalidArgument, session.context.measure(**given), match=says)
    await raises(EntryNotFound, session.context.measure(leaf="missing"))


# -- What two contexts begin with: the running digests say the same as comparing the projections whole ------------


steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["ask", "ask", "say", "call", "pin", "exclude", "compact", "range", "uncompact", "rewind", "jump", "jump"]
        ),
        st.integers(0, 400),
    ),
    min_size=5,
    max_size=40,
)


def projected(session: BlockingSession, leaf: str | None) -> list[bytes]:
    return [encode_json(message, "message")[0].encode() for message in session.build_context(leaf=leaf)]


def compared(one: list[bytes], other: list[bytes]) -> int:
    pairs = zip(one, other, strict=False)
    return next((place for place, (mine, theirs) in enumerate(pairs) if mine != theirs), min(len(one), len(other)))


def same_session(store: flue_py.sync.Store, session: BlockingSession) -> BlockingSession:
    """Return another handle, which has read nothing."""
    return existing(store.get_session(session.id))


def summarize_range(session: BlockingSession, size: int) -> None:
    """Compact a few messages of the context, wherever they are, if they can be."""
    shown = [item.entry_id for item in session.build_context_entries() if item.kind == "message"]
    if shown:
        first = size % len(shown)
        with suppress(InvalidArgument):
            session.compactions.compact_range(shown[first], shown[min(first + 3, len(shown) - 1)], mode="window")


def grow(session: BlockingSession, taken: list[tuple[str, int]], leaves: list[str | None]) -> None:
    numbers = count()
    for step in taken:
        what, size = step
        if what == "jump":
            session.move_leaf(leaves[size % len(leaves)])
        elif what == "range":
            summarize_range(session, size)
        else:
            take(session, cast("Step", step), numbers)
        if session.leaf_id not in leaves:
            leaves.append(session.leaf_id)


@given(steps, st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=15))
def test_the_digests_agree_with_the_projections_over_any_tree(
    taken: list[tuple[str, int]], pairs: list[tuple[int, int]]
) -> None:
    with flue_py.sync.open(":memory:") as store:
        session, leaves = store.create_session(), [None]
        grow(session, taken, leaves)
        asked = same_session(store, session)
        shown = {leaf: projected(session, leaf) for leaf in leaves}
        for one, other in ((leaves[mine % len(leaves)], leaves[theirs % len(leaves)]) for mine, theirs in pairs):
            found = asked.context.common_prefix(one, other)
            items = compared(shown[one], shown[other])
            assert (found.items, found.items_a, found.items_b) == (items, len(shown[one]), len(shown[other]))
            ids = [item.entry_id for item in session.build_context_entries(leaf=one)]
            assert found.entry_id == (ids[items - 1] if items else None)
        assert store.verify().problems == []


@given(steps)
def test_the_projection_of_a_leaf_is_the_same_bytes_forever(taken: list[tuple[str, int]]) -> None:
    with flue_py.sync.open(":memory:") as store:
        session, leaves = store.create_session(), [None]
        grow(session, taken[: len(taken) // 2], leaves)
        shown = {leaf: projected(session, leaf) for leaf in leaves}
        chains = {leaf: chain_of(session.build_context_entries(leaf=leaf)).ends for leaf in leaves}
        grow(session, taken[len(taken) // 2 :], list(leaves))
        other = same_session(store, session)
        for leaf, before in shown.items():
            assert projected(other, leaf) == before
            items = other.build_context_entries(leaf=leaf)
            assert [item_bytes(item) for item in items] == before
            assert chain_of(items).ends == chains[leaf]


async def test_what_changes_the_context_changes_the_digest_from_there(session: Session) -> None:
    ids = [
        (await session.append_message({"role": "user", "content": f"{number} " * 50})).entry_id for number in range(8)
    ]
    before = session.leaf_id
    alike = await session.context.common_prefix(before)
    assert (alike.items, alike.entry_id, alike.is_whole) == (8, ids[-1], True)

    await session.marks.exclude(ids[5])
    shorter = await session.context.common_prefix(before)
    assert (shorter.items, shorter.entry_id, shorter.items_a, shorter.items_b) == (5, ids[4], 8, 7)
    assert not shorter.is_whole

    await session.undo()
    await session.append_compaction("so far", first_kept_entry_id=ids[3], tokens_before=9)
    assert await session.context.common_prefix(before) == type(alike)(0, None, "0" * 32, 8, 6)


async def test_equal_messages_on_two_branches_are_the_same_bytes(session: Session) -> None:
    message = {"role": "user", "content": "again", "timestamp": 5}
    first = (await session.append_message({"role": "user", "content": "begin"})).entry_id
    one = (await session.append_message(message)).entry_id
    await session.move_leaf(first)
    other = (await session.append_message(message)).entry_id
    assert one != other
    found = await session.context.common_prefix(one, other)
    assert (found.items, found.entry_id) == (2, one)


async def test_a_known_leaf_costs_no_reading_of_entries(
    session: Session, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [(await session.append_message({"role": "user", "content": f"{number}"})).entry_id for number in range(30)]
    await session.move_leaf(ids[20])
    await session.append_message({"role": "user", "content": "elsewhere"})
    asked = await store.open_session(session.key or "", scope=session.info.scope)
    read: list[int] = []
    for name in ("read_context", "read_path_since"):
        plain = getattr(type(asked._backend), name)

        async def counting(self: object, *args: object, plain: object = plain, **given: object) -> object:
            found = await plain(self, *args, **given)  # type: ignore[operator]
            read.append(len(found.entries))
            return found

        monkeypatch.setattr(type(asked._backend), name, counting)
    assert (await asked.context.common_prefix(ids[-1])).items == 21
    # The first is read whole, the other from where the two part.
    assert read == [30, 1]
    del read[:]
    assert (await asked.context.common_prefix(ids[-1])).items == 21
    assert read == [0, 0]


async def test_a_leaf_that_is_not_there_is_an_error(session: Session) -> None:
    await session.append_message({"role": "user", "content": "x"})
    await raises(EntryNotFound, session.context.common_prefix("missing"))
    await raises(InvalidArgument, session.context.common_prefix(5))  # type: ignore[arg-type]


# -- What a provider says that it cleared itself is kept with its answer, measured, and told before the next
# request ---------------------------------------------------------------------------------------------------------


async def test_an_answer_keeps_what_was_cleared_and_the_next_request_tells_it(session: Session) -> None:
    await session.append_message({"role": "user", "content": "Go."})
    answered = (await session.append_message(RESPONSE)).entry_id
    message = (await session.build_context())[-1]
    assert message["appliedEdits"] == EDITS
    measured = await session.context.measure(model="claude-sonnet-4-5")
    assert measured.reported is not None
    assert (measured.reported.tokens, measured.reported.cleared) == (25_020, 65_000)
    settings = {"provider_editing": {"clear_tool_uses": {"trigger_tokens": 50_000}, "keep_thinking_turns": 1}}
    sent = await session.request("anthropic", settings=settings)
    assert [(event.name, event.text) for event in sent.report.events] == [
        ("provider_cleared", f"for the answer {answered} clear_thinking_20251015: 3 turns of reasoning, 15,000 tokens"),
        ("provider_cleared", f"for the answer {answered} clear_tool_uses_20250919: 8 tool uses, 50,000 tokens"),
    ]
    for target in ("anthropic", "openai-chat", "openai-responses", "gemini"):
        assert "clear_" not in str(to_provider(message, target))
        assert "clear_" not in str((await session.request(target)).messages)
    entry = existing(await session.get_entry(answered))
    assert '"context_management":{"applied_edits":[' in str(entry.extra)
    assert "appliedEdits" not in (await export_session(session, "anthropic")).text
    await session.append_message({"role": "assistant", "content": "And on."})
    assert (await session.request("anthropic", settings=settings)).report.events == ()
