"""Pins and exclusions: what they do to a context, and what is refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flue_py import EntryNotFound, InvalidArgument, LeafConflict, Session, Store
from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue
from tests.checks import raises
from tests.sessions.talk import assistant, say, user
from tests.values import existing


def calling(*call_ids: str, text: str | None = None) -> JsonObject:
    """Return an assistant message that calls tools."""
    parts: list[JsonValue] = [] if text is None else [{"type": "text", "text": text}]
    parts += [{"type": "toolCall", "id": call_id, "name": "read", "arguments": {}} for call_id in call_ids]
    return {"role": "assistant", "content": parts}


def result(call_id: str) -> JsonObject:
    """Return the result of a tool call."""
    return {"role": "toolResult", "toolCallId": call_id, "content": [{"type": "text", "text": f"result of {call_id}"}]}


async def append(session: Session, *messages: JsonObject) -> tuple[str, ...]:
    return (await session.append_messages(messages)).entry_ids


async def context(session: Session) -> list[str]:
    """Return the ids of the context, having checked that the messages agree with it."""
    items = await session.build_context_entries()
    assert [item.data for item in items] == await session.build_context()
    return [item.entry_id for item in items]


async def compact(session: Session, first_kept: str) -> str:
    return (await session.append_compaction("so far", first_kept_entry_id=first_kept, tokens_before=9)).entry_id


async def kept_by_compacting(session: Session, first_kept: str) -> list[str]:
    """Append a compaction; return the ids that the context has after its summary."""
    summary = await compact(session, first_kept)
    first, *others = await context(session)
    assert first == summary
    return others


# -- pins -------------------------------------------------------------------------------------------------------------


async def test_a_pin_leaves_the_context_as_it_is_and_every_later_compaction_keeps_the_entry(session: Session) -> None:
    a, b, c, d = await say(session, "a", "b", "c", "d")
    effect = await session.marks.pin(b, by="ann", why="the task")
    assert effect.entry_ids == (b,)
    assert effect.before == effect.after
    assert effect.tokens_before == effect.tokens_after > effect.own_tokens > 0
    assert await context(session) == [a, b, c, d]
    first = await compact(session, d)
    assert await context(session) == [first, b, d]
    assert [item.is_pinned for item in await session.build_context_entries()] == [False, True, False]
    (e,) = await say(session, "e")
    second = await compact(session, e)
    assert await context(session) == [second, b, e]
    assert await session.marks.pins() == [b]


async def test_without_pins_a_compaction_says_nothing_of_them(session: Session) -> None:
    a, b, c = await say(session, "a", "b", "c")
    await session.marks.pin(a)
    await session.marks.unpin(a)
    await session.marks.pin(c)
    entry = existing(await session.get_entry(await compact(session, b)))
    assert list(entry.fields) == ["summary", "firstKeptEntryId", "tokensBefore"]


async def test_unpinned_entries_are_dropped_by_the_next_compaction_not_before(session: Session) -> None:
    _, b, c = await say(session, "a", "b", "c")
    await session.marks.pin(b)
    first = await compact(session, c)
    await session.marks.unpin(b)
    assert await session.marks.pins() == []
    assert await context(session) == [first, b, c]
    (d,) = await say(session, "d")
    assert await kept_by_compacting(session, d) == [d]


async def test_an_entry_that_was_summarized_before_comes_back_with_the_next_compaction(session: Session) -> None:
    a, b, c = await say(session, "a", "b", "c")
    first = await compact(session, c)
    await session.marks.pin(a)
    assert await context(session) == [first, c]
    (d,) = await say(session, "d")
    assert await kept_by_compacting(session, d) == [a, d]
    assert b not in await context(session)


async def test_a_pinned_result_keeps_its_call_and_the_reverse(session: Session) -> None:
    (ask,) = await append(session, user("go"))
    call, one, two = await append(session, calling("1", "2"), result("1"), result("2"))
    (end,) = await append(session, assistant("done"))
    for named in (call, one, two):
        effect = await session.marks.pin(named)
        assert effect.entry_ids == (call, one, two)
        assert await session.marks.pins() == [call, one, two]
        assert (await session.marks.unpin(two)).entry_ids == (call, one, two)
        assert await session.marks.pins() == []
    await session.marks.pin(one)
    assert await kept_by_compacting(session, end) == [call, one, two, end]
    assert ask not in await context(session)


async def test_results_that_come_after_the_pin_are_kept_with_their_call(session: Session) -> None:
    (call,) = await append(session, calling("1"))
    await session.marks.pin(call)
    (one,) = await append(session, result("1"))
    (end,) = await append(session, assistant("done"))
    assert await kept_by_compacting(session, end) == [call, one, end]


async def test_what_is_pinned_twice_counts_one_revision(session: Session) -> None:
    (a,) = await say(session, "a")
    await session.marks.pin(a)
    before = (await session.refresh()).revision
    await session.marks.pin(a)
    assert (await session.refresh()).revision == before
    await session.marks.unpin(a)
    await session.marks.unpin(a)
    assert (await session.refresh()).revision == before + 1


async def test_a_retried_compaction_is_the_same_whatever_was_pinned_since(session: Session) -> None:
    a, b = await say(session, "a", "b")
    first = await session.append_compaction("s", first_kept_entry_id=b, tokens_before=1, idempotency_key="k")
    await session.marks.pin(a)
    again = await session.append_compaction("s", first_kept_entry_id=b, tokens_before=1, idempotency_key="k")
    assert (again.replayed, again.entry_ids) == (True, first.entry_ids)


# -- exclusions -------------------------------------------------------------------------------------------------------


async def test_an_excluded_entry_leaves_the_context_and_what_follows_stays(session: Session) -> None:
    a, b, c = await say(session, "a", "b", "c")
    effect = await session.marks.exclude(b, by="ann", why="a detour")
    assert effect.entry_ids == (b,)
    assert [item.entry_id for item in effect.before] == [a, b, c]
    assert [item.entry_id for item in effect.after] == await context(session) == [a, c]
    assert effect.tokens_before - effect.tokens_after == effect.own_tokens > 0
    assert session.leaf_id == effect.exclusion_ids[-1]
    (exclusion,) = await session.marks.exclusions()
    assert (exclusion.entry_id, exclusion.part, exclusion.by, exclusion.why) == (b, None, "ann", "a detour")
    assert exclusion.in_effect


async def test_what_is_out_already_changes_nothing(session: Session) -> None:
    a, b = await say(session, "a", "b")
    assert (await session.marks.include(a)).exclusion_ids == ()
    await session.marks.exclude(a)
    revision = session.revision
    effect = await session.marks.exclude(a)
    assert (effect.exclusion_ids, effect.before) == ((), effect.after)
    assert session.revision == revision
    assert await context(session) == [b]


async def test_a_part_is_left_out_by_its_position(session: Session) -> None:
    parts: list[JsonValue] = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    (a,) = await append(session, {"role": "user", "content": parts})
    await session.marks.exclude(a, 0)
    (message,) = await session.build_context()
    assert message["content"] == parts[1:]
    await session.marks.exclude(a, 1)
    assert await context(session) == []
    await session.marks.include(a, 0)
    (message,) = await session.build_context()
    assert message["content"] == parts[:1]
    await session.marks.include(a)
    (message,) = await session.build_context()
    assert message["content"] == parts
    assert await session.marks.exclusions() == []


@pytest.mark.parametrize("named", ["call", "result", "other result"])
async def test_a_call_and_its_results_leave_together(session: Session, named: str) -> None:
    ask, call, one, two, end = await append(
        session, user("go"), calling("1", "2", text="reading"), result("1"), result("2"), assistant("done")
    )
    if named == "call":
        effect = await session.marks.exclude(call)
        assert effect.entry_ids == (call, one, two)
        assert await context(session) == [ask, end]
        await session.marks.include(two)
        assert await context(session) == [ask, call, one, two, end]
        return
    left, right = (one, two) if named == "result" else (two, one)
    effect = await session.marks.exclude(left)
    assert effect.entry_ids == (call, left)
    assert await context(session) == [ask, call, right, end]
    reading = (await session.build_context())[1]["content"]
    assert isinstance(reading, list)
    assert len(reading) == 2
    await session.marks.include(left)
    assert await context(session) == [ask, call, one, two, end]


async def test_the_part_that_is_a_call_leaves_with_its_result(session: Session) -> None:
    call, one, end = await append(session, calling("1"), result("1"), assistant("done"))
    assert (await session.marks.exclude(call, 0)).entry_ids == (call, one)
    assert await context(session) == [end]
    await session.marks.include(call, "1")
    assert await context(session) == [call, one, end]
    await session.marks.exclude(call, "1")
    assert await context(session) == [end]


async def test_a_call_whose_result_is_still_to_come_stays(session: Session) -> None:
    call, _ = await append(session, calling("1", "2"), result("1"))
    for part in (None, 1, "2"):
        await raises(InvalidArgument, session.marks.exclude(call, part), match="still to come")
    await append(session, user("never mind"))
    await session.marks.exclude(call)
    assert len(await context(session)) == 1


async def test_an_exclusion_holds_through_a_later_compaction_also_of_what_is_pinned(session: Session) -> None:
    parts: list[JsonValue] = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    a, b, c, d = await append(session, {"role": "user", "content": parts}, user("b"), user("c"), user("d"))
    await session.marks.pin(a)
    await session.marks.pin(b)
    await session.marks.exclude(a, 1)
    await session.marks.exclude(b)
    await session.marks.exclude(d)
    (e,) = await say(session, "e")
    summary = await compact(session, c)
    assert await context(session) == [summary, a, c, e]
    assert (await session.build_context())[1]["content"] == parts[:1]
    await session.marks.include(b)
    assert await context(session) == [summary, a, b, c, e]
    (f,) = await say(session, "f")
    assert await kept_by_compacting(session, f) == [a, b, f]
    assert (await session.build_context())[1]["content"] == parts[:1]


async def test_an_exclusion_of_what_is_not_on_the_path_leaves_nothing_out_and_is_told_of(session: Session) -> None:
    a, b = await say(session, "a", "b")
    await session.move_leaf(a)
    (c,) = await say(session, "c")
    odd: list[JsonValue] = [
        {"entryId": b}, {"entryId": "missing"}, {"entryId": a, "part": 7}, {"entryId": 1}, "no object",
    ]  # fmt: skip
    for number, data in enumerate(odd):
        brought = replace(NewEntry.custom("exclusion", data), id=f"x{number}", parent_id=session.leaf_id)
        await session.import_entries([brought], leaf=brought.id)
    assert await context(session) == [a, c]
    assert [(each.entry_id, each.in_effect) for each in await session.marks.exclusions()] == [
        (b, False),
        ("missing", False),
        (a, False),
    ]


async def test_what_cannot_be_left_out_is_refused_and_changes_nothing(session: Session) -> None:
    a, b = await say(session, "a", "b")
    setting = (await session.append_custom("model_change", {"model": "m"})).entry_id
    summary = await compact(session, b)
    revision = session.revision
    for entry_id, part, message in (
        (setting, None, "never part of a context"), (summary, None, "compaction"), (b, 0, "one text"),
        (b, "x", "one text"), (b, -1, "part"), (b, True, "part"), (b, 1.5, "part"),
    ):  # fmt: skip
        for change in (session.marks.exclude, session.marks.include):
            await raises(InvalidArgument, change(entry_id, part), match=message)  # type: ignore[arg-type]
    await raises(EntryNotFound, session.marks.exclude("missing"))
    await raises(InvalidArgument, session.marks.exclude(b, why="x" * 2001), match="why")
    assert (await session.refresh()).revision == revision
    await session.move_leaf(a)
    await raises(InvalidArgument, session.marks.exclude(b), match="not on the path")


async def test_what_was_compacted_away_can_be_left_out_to_no_effect(session: Session) -> None:
    a, b = await say(session, "a", "b")
    summary = await compact(session, b)
    effect = await session.marks.exclude(a)
    assert effect.before == effect.after
    assert await context(session) == [summary, b]


async def test_another_writer_is_not_overwritten(store: Store, session: Session) -> None:
    (a,) = await say(session, "a")
    other = existing(await store.get_session(session.id))
    await say(other, "b")
    await raises(LeafConflict, session.marks.exclude(a))


async def test_the_latest_assistant_is_not_a_pinned_one(session: Session) -> None:
    first, second, end = await append(session, assistant("pinned"), assistant("later"), user("u"))
    await session.marks.pin(first)
    await compact(session, end)
    assert existing(await session.context.latest_assistant()).id == second


async def test_a_retracted_entry_is_neither_pinned_nor_labelled_until_it_is_back(session: Session) -> None:
    (_, failed) = await say(session, "a", "b")
    await session.marks.pin(failed)
    await session.marks.set_label(failed, "here")
    assert await session.remove_leaf_message(failed)
    assert (await session.marks.pins(), await session.marks.labels()) == ([], {})
    await session.undo()
    assert (await session.marks.pins(), await session.marks.labels()) == ([failed], {failed: "here"})


async def test_a_call_leaves_with_a_result_that_comes_after_other_messages(session: Session) -> None:
    ask, call, meanwhile, steer, one, end = await append(
        session, user("go"), calling("1"), assistant("meanwhile"), user("and?"), result("1"), assistant("done")
    )
    effect = await session.marks.exclude(call)
    assert effect.entry_ids == (call, one)
    assert await context(session) == [ask, meanwhile, steer, end]
    await session.marks.include(one)
    assert await context(session) == [ask, call, meanwhile, steer, one, end]
    assert (await session.marks.exclude(one)).entry_ids == (call, one)
    assert await context(session) == [ask, meanwhile, steer, end]


async def test_a_result_that_comes_after_its_call_was_left_out_is_left_out_with_it(session: Session) -> None:
    ask, call, never_mind = await append(session, user("go"), calling("1"), user("never mind"))
    await session.marks.exclude(call)
    (late,) = await append(session, result("1"))
    assert await context(session) == [ask, never_mind]
    await session.marks.include(call)
    assert await context(session) == [ask, call, never_mind, late]


async def test_a_repeated_result_is_never_there_without_the_call(session: Session) -> None:
    ask, call, one, again = await append(session, user("go"), calling("1"), result("1"), result("1"))
    assert (await session.marks.exclude(call)).entry_ids == (call, one)
    assert await context(session) == [ask]
    await session.marks.include(call)
    assert await context(session) == [ask, call, one, again]
    assert (await session.marks.exclude(again)).entry_ids == (again,)
    assert await context(session) == [ask, call, one]


async def test_one_of_two_calls_of_the_same_id_leaves_with_its_own_result(session: Session) -> None:
    ask, call, one, two = await append(session, user("go"), calling("1", "1"), result("1"), result("1"))
    assert (await session.marks.exclude(two)).entry_ids == (call, two)
    assert await context(session) == [ask, call, one]
    calls = (await session.build_context())[1]["content"]
    assert isinstance(calls, list)
    assert len(calls) == 1


async def test_an_id_that_is_used_again_is_another_call(session: Session) -> None:
    first, one, second, two = await append(session, calling("1"), result("1"), calling("1"), result("1"))
    assert (await session.marks.exclude(two)).entry_ids == (second, two)
    assert await context(session) == [first, one]


async def test_a_pinned_call_keeps_a_result_that_comes_after_other_messages(session: Session) -> None:
    _, call, _, one, end = await append(
        session, user("go"), calling("1"), assistant("meanwhile"), result("1"), user("thanks")
    )
    assert (await session.marks.pin(one)).entry_ids == (call, one)
    assert await kept_by_compacting(session, end) == [call, one, end]
