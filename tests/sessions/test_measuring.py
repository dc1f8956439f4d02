"""`Session.measure_context`: on every store, past compactions, exclusions and forks, and beside the event loop."""

from __future__ import annotations

from threading import current_thread
from typing import Any

import pytest

import flue_py
import flue_py.sync
from flue_py import EntryNotFound, InvalidArgument, JsonObject, Session
from flue_py.context import tokens as counters
from flue_py.context.tokens import ENTRY_COUNTS, counter_for, measure_context
from tests.sessions.talk import assistant, hold_turns, user
from tests.tables import inputs

LONG = "word " * 200


def answer(text: str, tokens: int, model: str = "gpt-5") -> JsonObject:
    return {**assistant(text, tokens), "provider": "openai", "model": model}


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_the_model_is_that_of_the_path_and_a_change_of_model_leaves_the_report(session: Session) -> None:
    await session.append_messages([user(LONG), answer("a", 250)])
    await session.append_custom("model_change", {"provider": "openai", "modelId": "gpt-4"})
    size = await session.context.measure()
    assert (size.counter, size.reported) == ("tiktoken:cl100k_base", None)


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_a_fork_has_the_report_and_a_copy_has_none(session: Session, store: flue_py.Store) -> None:
    ids = (await session.append_messages([user(LONG), answer("a", 250)])).entry_ids
    fork = await session.fork()
    assert (await fork.context.measure()).tokens == 250
    other = await store.create_session()
    await other.append_message(user(LONG))
    await other.branches.cherry_pick(ids, source=session)
    assert (await other.context.measure()).reported is None


@pytest.mark.anyio
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
    with pytest.raises(AssertionError):
        await session.context.measure("gpt-5")


@pytest.mark.anyio
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


@pytest.mark.anyio
@inputs(
    ("given", "says"),
    [
        ({"model": ""}, "model: must not be empty"),
        ({"provider": ""}, "provider: must not be empty"),
        ({"system": 1}, "system: 1 is not the text"),
        ({"tools": {}}, "tools: .* is not a list"),
        ({"tools": "read"}, "tools: .* is not a list"),
        ({"tools": ["read"]}, "tools: 'read' is not the definition"),
        ({"window": 0}, "window: 0 is not a number of tokens >= 1"),
        ({"window": True}, "window: True is not a number"),
        ({"faithful": 1}, "faithful: 1 is neither"),
        ({"use_reported": None}, "use_reported: None is neither"),
        ({"leaf": 5}, "leaf: 5 is not an id"),
    ],
)
async def test_arguments_that_say_nothing_are_refused(session: Session, given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        await session.context.measure(**given)
    with pytest.raises(EntryNotFound):
        await session.context.measure(leaf="missing")
