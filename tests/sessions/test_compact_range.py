"""Compacting a range of the context, or taking a compaction back: everything that reads a context knows of it."""

from __future__ import annotations

import re
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest

import flue_py
import flue_py.sync
from flue_py import EntryNotFound, InvalidArgument, LeafConflict, Session, Store
from flue_py.compaction import CompactionSettings, RangePlan
from flue_py.compaction.material import Material
from flue_py.compaction.modes import Asker, Made
from flue_py.compaction.plan import CompactionResult
from flue_py.core.context import project
from flue_py.core.entries import Pairing
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from flue_py.errors import SummaryFailed
from tests.checks import raises
from tests.sessions.talk import user
from tests.tables import inputs
from tests.values import existing


class Says:
    """A mode that has a summary without a model."""

    name = "says"
    needs_model = False

    async def make(self, material: Material, asker: Asker | None) -> Made:
        return Made(f"{material.previous_summary or ''} said before {material.staying[-1].entry_id}", self.name)


async def talk(session: Session, count: int, start: int = 0) -> list[str]:
    asked = [user(f"question {number} " + "q" * 200) for number in range(start, start + count)]
    return list((await session.append_messages(asked)).entry_ids)


def call(call_id: str) -> JsonObject:
    part: JsonObject = {"type": "toolCall", "id": call_id, "name": "read", "arguments": {"path": "a.txt"}}
    return {"role": "assistant", "content": [part]}


def result(call_id: str) -> JsonObject:
    text: JsonObject = {"type": "text", "text": "r" * 300}
    return {"role": "toolResult", "toolCallId": call_id, "toolName": "read", "content": [text], "isError": False}


async def compacted(session: Session, first: str | None, last: str | None) -> CompactionResult:
    done = await session.compactions.compact_range(first, last, mode="window")
    assert done.reason is None
    assert done.tokens_after is not None
    assert done.tokens_after < done.tokens_before
    await assert_all_reads_agree(session)
    return done


async def ids_in(session: Session) -> list[str]:
    return [item.entry_id for item in await session.build_context_entries()]


async def test_both_ends_stay_and_the_summary_stands_between(session: Session) -> None:
    ids = await talk(session, 10)
    before = await session.build_context()
    done = await compacted(session, ids[2], ids[6])
    after = await session.build_context()
    assert after[:2] == before[:2]
    assert after[3:] == before[7:]
    assert await ids_in(session) == [*ids[:2], done.entry_id, *ids[7:]]
    assert f"entries {ids[2]} to {ids[6]}" in str(after[2])
    assert done.calls == ()
    assert done.notes == ()


async def test_undo_and_uncompact_take_it_back(session: Session) -> None:
    ids = await talk(session, 10)
    before = await session.build_context()
    await compacted(session, ids[2], ids[6])
    await session.undo()
    assert await session.build_context() == before
    await compacted(session, ids[2], ids[6])
    await talk(session, 2, start=10)
    since = (await session.build_context())[-2:]
    assert existing(await session.compactions.uncompact()).restored_id is None
    assert await session.build_context() == before + since
    await assert_all_reads_agree(session)


async def test_several_ranges_stand_beside_each_other_and_come_off_one_by_one(session: Session) -> None:
    ids = await talk(session, 14)
    contexts = [await session.build_context()]
    layers = []
    for first, last in ((8, 10), (2, 4), (5, 6)):
        layers.append((await compacted(session, ids[first], ids[last])).entry_id)
        contexts.append(await session.build_context())
    assert await ids_in(session) == [*ids[:2], layers[1], layers[2], ids[7], layers[0], *ids[11:]]
    for layer, context in zip(reversed(layers), reversed(contexts[:-1]), strict=True):
        assert existing(await session.compactions.uncompact()).compaction_id == layer
        assert await session.build_context() == context
        await assert_all_reads_agree(session)
    assert await session.compactions.uncompact() is None


async def test_a_range_takes_over_the_summaries_in_it(session: Session) -> None:
    ids = await talk(session, 12)
    inner = await compacted(session, ids[3], ids[5])
    outer = await compacted(session, ids[2], ids[7])
    assert await ids_in(session) == [*ids[:2], outer.entry_id, *ids[8:]]
    assert outer.summary is not None
    assert inner.summary is not None
    assert inner.summary in outer.summary
    assert "[3 earlier messages are not shown here" in outer.summary.removeprefix(inner.summary)
    again = await compacted(session, outer.entry_id, ids[8])
    assert await ids_in(session) == [*ids[:2], again.entry_id, *ids[9:]]
    await session.compactions.uncompact()
    await session.compactions.uncompact()
    assert await ids_in(session) == [*ids[:3], inner.entry_id, *ids[6:]]


async def test_a_summary_that_comes_first_is_taken_over_also_past_what_is_pinned_behind_it(session: Session) -> None:
    ids = await talk(session, 8)
    await session.marks.pin(ids[1])
    whole = await session.compactions.compact_range(None, ids[4], mode=Says())
    before = await session.build_context_entries()

    done = await session.compactions.compact_range(before[0].entry_id, None, mode=Says())

    assert whole.summary is not None
    assert done.summary is not None
    assert done.summary.startswith(whole.summary)
    assert await ids_in(session) == [ids[1], done.entry_id]
    assert done.tokens_after == (await session.context.measure(use_reported=False)).tokens
    await session.compactions.uncompact()
    assert await session.build_context_entries() == before


async def test_from_here_goes_to_the_leaf_and_what_is_written_later_follows(session: Session) -> None:
    ids = await talk(session, 8)
    done = await compacted(session, ids[3], None)
    more = await talk(session, 2, start=8)
    assert await ids_in(session) == [*ids[:3], done.entry_id, *more]
    await assert_all_reads_agree(session)


async def test_up_to_here_is_a_compaction_cut_where_it_was_asked_for(session: Session) -> None:
    ids = await talk(session, 8)
    done = await compacted(session, None, ids[4])
    assert await ids_in(session) == [done.entry_id, *ids[5:]]
    latest = existing(await session.compactions.latest())
    assert latest.fields["firstKeptEntryId"] == ids[5]
    assert "ranges" not in latest.fields
    everything = await compacted(session, None, ids[7])
    assert await ids_in(session) == [everything.entry_id]
    more = await talk(session, 1, start=8)
    assert await ids_in(session) == [everything.entry_id, *more]
    await assert_all_reads_agree(session)


async def test_a_range_behind_a_compaction_leaves_its_summary_first(session: Session) -> None:
    ids = await talk(session, 14)
    whole = await session.compact(mode=Says(), settings=CompactionSettings(keep_recent_tokens=700))
    kept = (await ids_in(session))[1:]
    done = await compacted(session, kept[2], kept[4])
    assert await ids_in(session) == [whole.entry_id, *kept[:2], done.entry_id, *kept[5:]]
    everything = await compacted(session, whole.entry_id, kept[1])
    assert await ids_in(session) == [everything.entry_id, done.entry_id, *kept[5:]]
    assert ids[-1] == kept[-1]
    for _ in range(3):
        await session.compactions.uncompact()
        await assert_all_reads_agree(session)
    assert await ids_in(session) == ids


async def test_a_whole_compaction_takes_over_the_ranges_before_its_cut_and_leaves_the_others(session: Session) -> None:
    ids = await talk(session, 30)
    early = await compacted(session, ids[2], ids[5])
    late = await compacted(session, ids[24], ids[26])
    whole = await session.compact(mode=Says(), settings=CompactionSettings(keep_recent_tokens=700))
    found = await ids_in(session)
    assert found[0] == whole.entry_id
    assert late.entry_id in found
    assert early.entry_id not in found
    assert found[found.index(late.entry_id or "") + 1 :] == ids[27:]
    assert whole.summary is not None
    assert f"entries {ids[2]} to {ids[5]}" in whole.summary
    await assert_all_reads_agree(session)
    await session.compactions.uncompact()
    assert early.entry_id in await ids_in(session)
    await assert_all_reads_agree(session)


async def test_a_range_is_widened_to_whole_exchanges(session: Session) -> None:
    await talk(session, 2)
    (caller,) = (await session.append_messages([call("a")])).entry_ids
    answer, *_ = (await session.append_messages([result("a")])).entry_ids
    ids = await talk(session, 4, start=2)
    planned = await session.compactions.compact_range(answer, ids[1], mode="window", dry_run=True)
    assert isinstance(planned.planned, RangePlan)
    assert (planned.planned.first_entry_id, planned.planned.is_widened) == (caller, True)
    done = await compacted(session, answer, ids[1])
    assert done.notes == (f"the range is that from {caller!r} to {ids[1]!r}: no call is separated from its results",)
    assert caller not in await ids_in(session)


async def test_a_range_that_ends_before_an_open_call_says_that_it_was_widened(session: Session) -> None:
    await talk(session, 2)
    caller, answer = (await session.append_messages([call("a"), result("a")])).entry_ids
    (*_, last), (opened,) = await talk(session, 2, start=2), (await session.append_messages([call("b")])).entry_ids
    done = await compacted(session, answer, None)
    assert done.notes == (f"the range is that from {caller!r} to {last!r}: no call is separated from its results",)
    assert (await ids_in(session))[-1] == opened


async def test_a_call_without_its_result_is_left_alone(session: Session) -> None:
    ids = await talk(session, 6)
    (caller,) = (await session.append_messages([call("a")])).entry_ids
    with pytest.raises(InvalidArgument, match="result is still to come"):
        await session.compactions.compact_range(ids[1], caller, mode="window")
    done = await compacted(session, ids[1], None)
    assert await ids_in(session) == [ids[0], done.entry_id, caller]
    await session.append_messages([result("a")])
    await assert_all_reads_agree(session)


async def test_what_is_pinned_in_the_range_stays_after_the_summary(session: Session) -> None:
    ids = await talk(session, 12)
    await session.marks.pin(ids[4])
    done = await compacted(session, ids[2], ids[7])
    assert await ids_in(session) == [*ids[:2], done.entry_id, ids[4], *ids[8:]]
    assert [item.entry_id for item in await session.build_context_entries() if item.is_pinned] == [ids[4]]
    again = await compacted(session, ids[8], ids[9])
    assert await ids_in(session) == [*ids[:2], done.entry_id, ids[4], again.entry_id, *ids[10:]]
    whole = await compacted(session, None, ids[10])
    assert await ids_in(session) == [whole.entry_id, ids[4], ids[11]]
    await session.marks.unpin(ids[4])
    last = await compacted(session, whole.entry_id, None)
    assert (await ids_in(session)) in ([last.entry_id], [ids[4], last.entry_id])


async def test_what_was_unpinned_outside_of_the_range_stays(session: Session) -> None:
    ids = await talk(session, 12)
    late = await compacted(session, ids[9], ids[10])
    for at in (1, 3, 5):
        await session.marks.pin(ids[at])
    whole = await compacted(session, None, ids[6])
    await session.marks.unpin(ids[1])
    await session.marks.unpin(ids[3])
    before = await session.build_context()
    assert await ids_in(session) == [whole.entry_id, ids[1], ids[3], ids[5], *ids[7:9], late.entry_id, ids[11]]
    done = await compacted(session, None, ids[1])
    assert await ids_in(session) == [done.entry_id, ids[3], ids[5], *ids[7:9], late.entry_id, ids[11]]
    assert (await session.build_context())[1:] == before[2:]
    assert list(await session.marks.pins()) == [ids[5]]
    await session.compactions.uncompact()
    assert await session.build_context() == before


async def test_an_unpinned_exchange_is_not_taken_apart(session: Session) -> None:
    await talk(session, 2)
    caller, answer = (await session.append_messages([call("a"), result("a")])).entry_ids
    ids = await talk(session, 4, start=2)
    await session.marks.pin(caller)
    whole = await compacted(session, None, ids[1])
    await session.marks.unpin(caller)
    assert await ids_in(session) == [whole.entry_id, caller, answer, *ids[2:]]
    done = await compacted(session, None, caller)
    assert await ids_in(session) == [done.entry_id, *ids[2:]]
    assert any(repr(answer) in note for note in done.notes)


async def test_exclusions_in_and_around_a_range_hold(session: Session) -> None:
    ids = await talk(session, 10)
    await session.marks.exclude(ids[1])
    await session.marks.exclude(ids[4])
    done = await compacted(session, ids[3], ids[6])
    assert await ids_in(session) == [ids[0], ids[2], done.entry_id, *ids[7:]]
    await session.marks.exclude(ids[8])
    await session.marks.include(ids[1])
    assert await ids_in(session) == [*ids[:3], done.entry_id, ids[7], ids[9]]
    await assert_all_reads_agree(session)


async def test_what_cannot_be_a_range_is_refused_and_changes_nothing(session: Session) -> None:
    ids = await talk(session, 8)
    leaf = session.leaf_id
    await raises(InvalidArgument, session.compactions.compact_range(None, None, mode="window"), match="both None")
    await raises(EntryNotFound, session.compactions.compact_range("no-such-entry", ids[3], mode="window"))
    await raises(InvalidArgument, session.compactions.compact_range(ids[3], ids[1], mode="window"), match="comes after")
    await compacted(session, ids[2], ids[4])
    with pytest.raises(InvalidArgument, match="not in the context"):
        await session.compactions.compact_range(ids[3], ids[6], mode="window")
    await session.undo()
    assert session.leaf_id == leaf


async def test_a_pinned_summary_is_not_taken_over(session: Session) -> None:
    ids = await talk(session, 10)
    done = await compacted(session, ids[2], ids[4])
    assert done.entry_id is not None
    await session.marks.pin(done.entry_id)
    with pytest.raises(InvalidArgument, match="pinned summary"):
        await session.compactions.compact_range(ids[1], ids[6], mode="window")


async def test_a_pinned_summary_that_comes_first_is_not_taken_over(session: Session) -> None:
    await talk(session, 12)
    whole = await session.compact(mode=Says(), settings=CompactionSettings(keep_recent_tokens=400))
    assert whole.entry_id is not None
    await session.marks.pin(whole.entry_id)
    before = await session.build_context()
    kept = (await ids_in(session))[1:]
    for first in (None, whole.entry_id):
        with pytest.raises(InvalidArgument, match="pinned summary"):
            await session.compactions.compact_range(first, kept[1], mode="window")
    assert await session.build_context() == before
    done = await compacted(session, kept[0], kept[1])
    assert await ids_in(session) == [whole.entry_id, done.entry_id, *kept[2:]]


async def test_compact_keeps_a_pinned_summary_that_comes_first_once(session: Session) -> None:
    await talk(session, 12)
    settings = CompactionSettings(keep_recent_tokens=200, user_words_share=0)
    whole = await session.compact(mode=Says(), settings=settings)
    assert whole.entry_id is not None
    assert whole.summary is not None
    await session.marks.pin(whole.entry_id)
    await talk(session, 8, start=12)
    done = await session.compact(mode=Says(), settings=settings)
    found = await ids_in(session)
    assert found[:2] == [done.entry_id, whole.entry_id]
    assert str(await session.build_context()).count(whole.summary[:60]) == 1
    assert done.summary is not None
    assert whole.summary not in done.summary
    assert done.tokens_after == (await session.compactions.plan(settings=settings)).tokens_before
    await assert_all_reads_agree(session)


async def test_compact_cuts_nothing_off_that_would_lose_a_pinned_summary(session: Session) -> None:
    await talk(session, 12)
    settings = CompactionSettings(keep_recent_tokens=600, user_words_share=0)
    whole = await session.compact(mode=Says(), settings=settings)
    assert whole.entry_id is not None
    await session.marks.pin(whole.entry_id)
    kept = (await ids_in(session))[1:]
    assert len(kept) > 2
    # It was appended after what it kept: a compaction that keeps from there on would show it nowhere.
    less = CompactionSettings(keep_recent_tokens=100, user_words_share=0)
    assert (await session.compact(mode=Says(), settings=less)).reason == "no_cut_point"
    [newer, *_] = await talk(session, 3, start=12)
    done = await session.compact(mode=Says(), settings=less)
    assert newer not in await ids_in(session)
    assert (await ids_in(session))[:2] == [done.entry_id, whole.entry_id]
    await assert_all_reads_agree(session)


async def test_compact_keeps_the_pinned_summary_of_a_range(session: Session) -> None:
    ids = await talk(session, 12)
    settings = CompactionSettings(keep_recent_tokens=200, user_words_share=0)
    done = await compacted(session, ids[4], ids[6])
    assert done.entry_id is not None
    await session.marks.pin(done.entry_id)
    for start in (12, 20):
        whole = await session.compact(mode=Says(), settings=settings)
        assert (await ids_in(session))[0] == whole.entry_id
        assert (await ids_in(session)).count(done.entry_id) == 1
        assert whole.tokens_after == (await session.compactions.plan(settings=settings)).tokens_before
        await assert_all_reads_agree(session)
        await talk(session, 8, start=start)


async def test_a_model_is_asked_and_booked_before_its_answer_is_used(session: Session, store: Store) -> None:
    ids = await talk(session, 8)
    leaf = session.leaf_id
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> ModelReply:
        asked.append(request)
        said: JsonObject = {"role": "assistant", "content": "the middle", "usage": {"input": 90, "output": 4}}
        return ModelReply((said,))

    model = FunctionModel(answer, "small", provider="house")
    done = await session.compactions.compact_range(ids[2], ids[5], model, instructions="mind the files")
    assert done.summary is not None
    assert done.summary.startswith("the middle")
    text = str(asked[0].messages[0]["content"])
    assert "question 2 " in text
    assert "question 5 " in text
    assert "question 1 " not in text
    assert "question 6 " not in text
    assert "mind the files" in text
    total = (await store.usage(session)).total
    assert (total.calls, total.input) == (1, 90)

    def fail(request: ModelRequest) -> ModelReply:
        raise RuntimeError("no")

    await session.undo()
    with pytest.raises(SummaryFailed):
        await session.compactions.compact_range(ids[2], ids[5], FunctionModel(fail, "small", provider="house"))
    assert (await session.refresh()).leaf_id == leaf


async def test_turns_written_meanwhile_stay(session: Session, store: Store) -> None:
    ids = await talk(session, 8)
    other = existing(await store.get_session(session.id))
    late: list[str] = []

    async def answer(request: ModelRequest) -> ModelReply:
        late.extend(await talk(other, 1, start=8))
        return ModelReply(({"role": "assistant", "content": "the end"},))

    done = await session.compactions.compact_range(ids[4], None, FunctionModel(answer, "small", provider="house"))
    assert await ids_in(session) == [*ids[:4], done.entry_id, *late]
    await assert_all_reads_agree(session)


async def test_a_compaction_of_ones_own_keeps_the_ranges_behind_its_cut(session: Session) -> None:
    ids = await talk(session, 12)
    await compacted(session, ids[1], ids[2])
    late = await compacted(session, ids[7], ids[8])
    mine = await session.append_compaction("so far", first_kept_entry_id=ids[5], tokens_before=1)
    assert await ids_in(session) == [mine.entry_id, *ids[5:7], late.entry_id, *ids[9:]]
    await assert_all_reads_agree(session)


async def test_forks_and_earlier_leaves_see_the_context_of_their_place(session: Session) -> None:
    ids = await talk(session, 10)
    before = await session.build_context()
    done = await compacted(session, ids[2], ids[6])
    fork = await session.fork()
    assert await fork.build_context() == await session.build_context()
    await fork.compactions.uncompact()
    assert await fork.build_context() == before
    assert await session.build_context(leaf=ids[9]) == before
    assert done.entry_id in await ids_in(session)


async def test_what_a_range_lost_is_told_of_the_range_alone(session: Session) -> None:
    ids = await talk(session, 8)
    done = await compacted(session, ids[2], ids[5])
    assert existing(await session.compactions.loss_report(done.entry_id)).entry_ids == tuple(ids[2:6])


async def test_exports_say_that_others_do_not_show_ranges(session: Session) -> None:
    ids = await talk(session, 8)
    await compacted(session, ids[2], ids[5])
    for name in ("pi", "flue"):
        exported = await flue_py.export_session(session, name)
        assert any("the ranges of a compaction" in str(note) for note in exported.notes), exported.notes
    await session.undo()
    assert (await session.compact(mode="window", settings=CompactionSettings(keep_recent_tokens=200))).summary == ""
    for name in ("pi", "flue"):
        exported = await flue_py.export_session(session, name)
        assert any("a compaction that leaves messages out" in str(note) for note in exported.notes), exported.notes


def two_calls(first: str, second: str) -> JsonObject:
    parts = [part for each in (first, second) if isinstance(content := call(each)["content"], list) for part in content]
    return {"role": "assistant", "content": [*parts]}


async def assert_is_valid(session: Session) -> None:
    pairing = Pairing(await session.build_context())
    assert pairing.unpaired == set()
    assert all(pairing.results.values())


@pytest.mark.parametrize("with_late_result", [False, True])
async def test_what_is_hidden_of_an_exchange_goes_with_it(session: Session, with_late_result: bool) -> None:
    """One call of a message is left out, with its result; the range ends before that, and the call is shown again."""
    ids = await talk(session, 3)
    called = await session.append_message(two_calls("c1", "c2"))
    await session.append_message(result("c2"))
    between = await talk(session, 2, start=3) if with_late_result else []
    late = (await session.append_message(result("c1"))).entry_ids[0]
    await talk(session, 2, start=5)
    await session.marks.exclude(called.entry_ids[0], "c1")
    assert late not in await ids_in(session)

    done = await session.compactions.compact_range(
        ids[1], between[0] if between else called.entry_ids[0], mode="window"
    )
    assert done.appended is not None
    assert isinstance(done.planned, RangePlan)
    shown = await ids_in(session)
    assert shown[:2] == [ids[0], done.entry_id]
    assert not set(between) & set(shown)
    await session.marks.include(called.entry_ids[0], "c1")
    assert await ids_in(session) == shown
    await assert_is_valid(session)
    await assert_all_reads_agree(session)
    await session.compactions.uncompact()
    assert late in await ids_in(session)
    await assert_is_valid(session)


async def test_what_is_hidden_before_a_range_is_shown_again_as_it_was(session: Session) -> None:
    ids = await talk(session, 10)
    before = await session.build_context()
    await session.marks.exclude(ids[0])
    done = await compacted(session, ids[3], ids[6])
    await session.marks.include(ids[0])
    assert await ids_in(session) == [*ids[:3], done.entry_id, *ids[7:]]
    await session.compactions.uncompact()
    assert await session.build_context() == before
    await assert_all_reads_agree(session)


async def test_what_is_hidden_of_a_pinned_exchange_comes_back_with_it(session: Session) -> None:
    called = (await session.append_message(two_calls("c1", "c2"))).entry_ids[0]
    await session.append_messages([result("c2"), result("c1")])
    await session.marks.exclude(called, "c2")
    await session.marks.pin(called)
    await talk(session, 6)
    await session.compact(mode=Says(), settings=CompactionSettings(keep_recent_tokens=150))
    ids = await talk(session, 6, start=6)
    await compacted(session, ids[1], ids[3])
    await assert_is_valid(session)
    await session.marks.include(called, "c2")
    assert "c2" in str(await session.build_context())
    await assert_is_valid(session)
    await assert_all_reads_agree(session)


@inputs("by_hand", [False, True])
async def test_no_compaction_separates_what_is_hidden_of_an_exchange_from_it(session: Session, by_hand: bool) -> None:
    await talk(session, 3)
    called = await session.append_message(two_calls("c1", "c2"))
    await session.append_message(result("c2"))
    between = await talk(session, 2, start=3)
    await session.append_message(result("c1"))
    await talk(session, 2, start=5)
    await session.marks.exclude(called.entry_ids[0], "c1")
    if by_hand:
        await session.append_compaction("what was said", first_kept_entry_id=between[1], tokens_before=900)
    else:
        done = await session.compact(mode=Says(), settings=CompactionSettings(keep_recent_tokens=250))
        assert done.appended is not None
    await assert_is_valid(session)
    await session.marks.include(called.entry_ids[0], "c1")
    await assert_is_valid(session)
    await assert_all_reads_agree(session)


async def test_its_text_fits_beside_what_goes_with_requests(session: Session) -> None:
    asked = [user(f"question {number} " + "some words that count " * 20) for number in range(40)]
    ids = (await session.append_messages(asked)).entry_ids
    settings = CompactionSettings(user_words_share=1)
    system = "word " * 500
    tools: list[JsonObject] = [{"name": "read", "description": "word " * 500, "parameters": {"type": "object"}}]
    tokens = []
    for said, offered in ((None, None), (system, None), (system, tools)):
        done = await session.compactions.compact_range(
            ids[2], ids[30], mode="intent", settings=settings, window=6_000, system=said, tools=offered
        )
        tokens.append(done.tokens_after or 0)
        await session.undo()
    # By about what stands beside it, each time: 500 words.
    assert tokens[0] - tokens[1] > 400
    assert tokens[1] - tokens[2] > 400


@inputs("wrong", [{"system": 1}, {"tools": "read"}, {"tools": [1]}])
async def test_what_goes_with_requests_is_checked(session: Session, wrong: dict[str, object]) -> None:
    ids = await talk(session, 4)
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        await session.compactions.compact_range(ids[0], ids[1], mode="window", **wrong)  # type: ignore[arg-type]


# -- Taking a compaction back: one layer at a time, with what was written since -----------------------------------


SETTINGS = CompactionSettings(keep_recent_tokens=290)


async def compacted_whole(session: Session) -> str:
    done = await session.compact(mode="window", settings=SETTINGS)
    assert done.entry_id is not None
    return done.entry_id


async def assert_all_reads_agree(session: Session) -> None:
    """Every way to read the context says the same, and so does the projection of the whole path."""
    whole = await session.build_context()
    entries = await session.build_context_entries()
    assert [item.data for item in entries] == whole
    assert [item.data for item in project(await session.get_active_path())] == whole
    assert await session.build_context(leaf=session.leaf_id) == whole
    assert await session.build_context(limit=1000) == whole
    assert await session.build_context(limit=2) == whole[-2:]


async def test_uncompacting_restores_the_earlier_bytes_before_what_was_written_since(session: Session) -> None:
    await talk(session, 12)
    before = await session.build_context()
    compaction = await compacted_whole(session)

    done = existing(await session.compactions.uncompact())
    assert (done.compaction_id, done.restored_id) == (compaction, None)
    assert done.appended.entry_ids == (session.leaf_id,)
    assert done.tokens_after > done.tokens_before
    assert await session.build_context() == before
    assert await session.compactions.latest() is None
    await assert_all_reads_agree(session)

    await session.undo()
    await talk(session, 2, start=12)
    since = (await session.build_context())[-2:]
    await session.compactions.uncompact()
    assert await session.build_context() == before + since
    await assert_all_reads_agree(session)


async def test_layers_are_peeled_off_one_by_one(session: Session) -> None:
    pinned = (await talk(session, 12))[1]
    await session.marks.pin(pinned)
    contexts: list[list[JsonObject]] = []
    layers = []
    for number in range(3):
        contexts.append(await session.build_context())
        layers.append(await compacted_whole(session))
        await assert_all_reads_agree(session)
        await talk(session, 4, start=12 + 4 * number)
    for number in (2, 1, 0):
        done = existing(await session.compactions.uncompact())
        assert (done.compaction_id, done.restored_id) == (layers[number], layers[number - 1] if number else None)
        context = await session.build_context()
        assert context[: len(contexts[number])] == contexts[number]
        assert len(context) == len(contexts[number]) + 4 * (3 - number)
        await assert_all_reads_agree(session)
    assert await session.compactions.uncompact() is None
    assert "question 23 " in str((await session.build_context())[-1])


async def test_a_session_is_compacted_again_after_uncompacting(session: Session) -> None:
    await talk(session, 12)
    first = await compacted_whole(session)
    await session.compactions.uncompact()
    again = await compacted_whole(session)
    assert again != first
    assert len(await session.build_context()) == 5
    done = existing(await session.compactions.uncompact())
    assert (done.compaction_id, done.restored_id) == (again, None)
    assert len(await session.build_context()) == 12
    await assert_all_reads_agree(session)


async def test_uncompacting_can_be_undone_and_is_told_from_the_leaf(session: Session, store: Store) -> None:
    ids = await talk(session, 12)
    compaction = await compacted_whole(session)
    small = await session.build_context()
    await session.compactions.uncompact()
    fork = await session.fork()
    await session.undo()
    assert await session.build_context() == small
    assert len(await fork.build_context()) == 12
    assert await fork.build_context(leaf=compaction) == small
    await fork.move_leaf(to=ids[4])
    assert await fork.compactions.uncompact() is None


async def test_nothing_is_appended_where_the_session_has_gone_on(session: Session, store: Store) -> None:
    await talk(session, 12)
    await compacted_whole(session)
    other = existing(await store.get_session(session.id))
    await talk(other, 1, start=12)
    await raises(LeafConflict, session.compactions.uncompact(expected_leaf=session.leaf_id))
    assert await session.compactions.latest() is not None


# -- The query of the format's page, which reads a context with SQL alone, knows ranges as the library does -----------


PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")


def query() -> str:
    found = existing(re.search(r"\*\*The context of a session\*\*.*?```sql\n(.*?)```", PAGE, re.DOTALL))
    return found[1].replace("'triage'", ":key")


def text_of(payload: str | None, packed: bytes | None) -> str:
    return zlib.decompress(packed or b"").decode() if payload is None else payload


def shown(database: sqlite3.Connection) -> list[str]:
    database.create_function("text_of", 2, text_of)
    database.execute(
        "CREATE TEMP VIEW IF NOT EXISTS texts AS SELECT tree_id, id, text_of(payload, packed) AS text FROM entries"
    )
    return [str(content) for *_, content in database.execute(query(), {"key": "triage"})]


def told(session: flue_py.sync.Session) -> list[str]:
    return [
        str(item.entry.fields["summary"]) if item.kind == "compaction" else str(item.data["content"])
        for item in session.build_context_entries()
    ]


def test_the_query_of_the_page_returns_the_context(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with flue_py.sync.open(path) as store, closing(sqlite3.connect(path)) as database:
        session = store.create_session(key="triage")
        asked = [{"role": "user", "content": f"question {number} " + "q" * 200} for number in range(24)]
        ids = session.append_messages(asked).entry_ids
        contexts = [told(session)]
        for first, last in ((ids[3], ids[6]), (ids[8], ids[9]), (ids[14], ids[16]), (None, ids[1]), (ids[18], None)):
            assert session.compactions.compact_range(first, last, mode="window").reason is None
            assert shown(database) == told(session)
            contexts.append(told(session))
        whole = session.compact(mode="window", settings=CompactionSettings(keep_recent_tokens=100))
        assert whole.reason is None
        assert shown(database) == told(session)
        for context in reversed(contexts):
            assert session.compactions.uncompact() is not None
            assert shown(database) == told(session) == context
