"""What an edit of a session would cost, before it is made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

import flue_py
import flue_py.sync
from flue_py import Compact, EditPlan, EntryNotFound, Exclude, Fork, InvalidArgument, Resume, Rewind, Session, Store
from flue_py.compaction import CompactionSettings
from flue_py.context.tokens import counter_for
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel
from flue_py.prices import published_window
from flue_py.sessions.compact import EditChoice
from tests.checks import raises

MODEL = "claude-sonnet-5"
PRICES = {MODEL: {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75}}
START = datetime(2026, 3, 1, tzinfo=UTC)
SETTINGS = CompactionSettings(keep_recent_tokens=600, user_words_share=0)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(target: str, clock: Clock) -> AsyncIterator[Store]:
    async with flue_py.open(target, prices=PRICES, clock=clock, durability="normal") as opened:
        yield opened
        assert (await opened.verify()).problems == []


def answer(text: str, model: str = MODEL) -> JsonObject:
    return {"role": "assistant", "content": text, "provider": "anthropic", "model": model}


async def talk(session: Session, turns: int = 10) -> list[str]:
    ids = []
    for number in range(turns):
        asked = {"role": "user", "content": f"question {number} " + "why? " * 150}
        ids.append((await session.append_message(asked)).entry_id)
        ids.append((await session.append_message(answer(f"answer {number} " + "thus. " * 150))).entry_id)
    return ids


async def sizes(session: Session, leaf: str | None) -> list[int]:
    return counter_for(MODEL).count_entries(await session.build_context_entries(leaf=leaf))


async def test_the_next_call_reads_what_was_sent_last(session: Session) -> None:
    ids = await talk(session)
    counts = await sizes(session, ids[-1])
    plan = await session.compactions.price("resume", system="Be brief. " * 40, tools=[])
    around = counter_for(MODEL).count({"role": "user", "content": [{"type": "text", "text": "Be brief. " * 40}]})

    assert (plan.kind, plan.leaf_id, plan.model, plan.provider) == ("resume", ids[-1], MODEL, "anthropic")
    assert plan.is_warm
    # All but the last answer was in the last request.
    assert (plan.common_items, plan.kept) == (19, around + sum(counts[:-1]))
    assert (plan.tokens_after, plan.rewritten) == (around + sum(counts), counts[-1])
    assert plan.tokens_before == plan.tokens_after
    assert plan.price is not None
    assert plan.price.next_call.cache_read == plan.kept * 300_000
    assert plan.price.next_call.cache_write == plan.rewritten * 3_750_000
    assert (plan.turns_to_pay, plan.never) == (None, "no_edit")


async def test_after_a_pause_or_with_another_model_everything_is_written_anew(session: Session, clock: Clock) -> None:
    await talk(session)
    other = await session.compactions.price(Resume(), model="another", provider="openai")
    assert (other.is_warm, other.kept, other.price) == (False, 0, None)
    assert other.never == "no_edit"
    clock.now = START + timedelta(minutes=6)
    paused = await session.compactions.price(Resume())
    assert (paused.is_warm, paused.kept, paused.rewritten) == (False, 0, paused.tokens_after)
    assert (await session.compactions.price(Resume(), cached=True)).kept > 0


async def test_the_same_model_of_another_provider_has_another_cache(session: Session) -> None:
    await talk(session, 2)
    other = await session.compactions.price("resume", model=MODEL, provider="openrouter")
    assert (other.is_warm, other.kept) == (False, 0)
    assert not (await session.compactions.price("resume", provider="openrouter")).is_warm
    for provider in ("anthropic", "Anthropic", None):
        assert (await session.compactions.price("resume", model=MODEL, provider=provider)).is_warm
    await session.append_message({"role": "assistant", "content": "ok", "model": MODEL})
    assert (await session.compactions.price("resume", model=MODEL, provider="openrouter")).is_warm


async def test_a_rewind_keeps_the_beginning_and_pays_at_once(session: Session) -> None:
    ids = await talk(session)
    counts = await sizes(session, ids[-1])
    plan = await session.compactions.price(Rewind(to=ids[7]))
    assert (plan.common_items, plan.tokens_after, plan.rewritten) == (8, sum(counts[:8]), 0)
    assert plan.tokens_saved == sum(counts[8:])
    assert (plan.turns_to_pay, plan.never) == (1, None)
    assert (
        await session.compactions.price(Rewind(turns=4)) == await session.compactions.price("rewind", turns=4) == plan
    )
    assert await session.compactions.price("rewind", to=ids[7]) == plan
    await session.rewind(to=ids[7])
    assert await sizes(session, session.leaf_id) == counts[:8]


async def test_an_exclusion_breaks_the_cache_from_where_it_is(session: Session) -> None:
    ids = await talk(session)
    counts = await sizes(session, ids[-1])
    early, late = await session.compactions.price(Exclude([ids[8]])), await session.compactions.price(Exclude(ids[18]))
    assert (early.common_items, late.common_items) == (8, 18)
    assert early.tokens_after == sum(counts) - counts[8]
    assert early.kept == sum(counts[:8])
    assert early.rewritten == sum(counts[9:])
    assert early.price is not None
    assert early.turns_to_pay is not None
    assert early.turns_to_pay > 50
    assert late.turns_to_pay == 1
    several = await session.compactions.price(Exclude([ids[8], ids[3], ids[8]]))
    assert (several.common_items, several.tokens_after) == (3, sum(counts) - counts[8] - counts[3])

    for entry_id in (ids[8], ids[3]):
        await session.marks.exclude(entry_id)
    assert sum(await sizes(session, session.leaf_id)) == several.tokens_after
    again = await session.compactions.price(Exclude([ids[8]]))
    assert (again.turns_to_pay, again.never) == (None, "nothing_to_do")


async def test_a_compaction_without_a_model_is_counted_and_one_with_a_model_estimated(session: Session) -> None:
    await talk(session, 40)
    counted = await session.compactions.price(Compact(mode="window", settings=SETTINGS))
    assert counted.summary_call is None
    assert (counted.common_items, counted.kept) == (0, 0)
    done = await session.compact(mode="window", settings=SETTINGS)
    assert (counted.tokens_before, counted.tokens_after) == (done.tokens_before, done.tokens_after)
    await session.undo()
    without = replace(SETTINGS, prefer_deterministic=True)
    assert (await session.compactions.price(Compact(mode="llm", settings=without))).summary_call is None

    asked = await session.compactions.price(Compact(settings=SETTINGS, summary_tokens=500))
    assert asked.summary_call is not None
    assert asked.summary_call.cache_read == 0
    assert asked.summary_call.output == 500
    assert asked.is_estimate
    aligned = await session.compactions.price(Compact(settings=SETTINGS, summary_tokens=500), system="", tools=[])
    assert aligned.summary_call is not None
    assert aligned.summary_call.cache_read == aligned.kept_unedited
    assert aligned.price is not None
    assert asked.price is not None
    assert aligned.price.edit is not None
    assert asked.price.edit is not None
    assert aligned.price.edit.total < asked.price.edit.total
    assert aligned.turns_to_pay is not None
    assert asked.turns_to_pay is not None
    assert 1 < aligned.turns_to_pay <= asked.turns_to_pay


async def test_a_compaction_that_would_be_refused_as_not_smaller_has_nothing_to_do(session: Session) -> None:
    await session.append_messages([{"role": "user", "content": "hi"}, answer("ok"), {"role": "user", "content": "go"}])
    settings = CompactionSettings(keep_recent_tokens=1)
    plan = await session.compactions.price(Compact(mode="intent", settings=settings))
    assert (plan.turns_to_pay, plan.never) == (None, "nothing_to_do")
    assert plan.tokens_after == plan.tokens_before
    assert (await session.compact(mode="intent", settings=settings)).reason == "not_smaller"


async def test_a_range_keeps_what_is_before_it_in_the_cache(session: Session) -> None:
    ids = await talk(session, 20)
    sent = await sizes(session, session.leaf_id)
    plan = await session.compactions.price(Compact(mode="intent", first=ids[8], last=ids[15]))
    assert (plan.kind, plan.common_items, plan.kept) == ("compact", 8, sum(sent[:8]))
    assert plan.kept_unedited == sum(sent[:-1])
    leaf = session.leaf_id
    done = await session.compactions.compact_range(ids[8], ids[15], mode="intent")
    assert (plan.tokens_before, plan.tokens_after) == (done.tokens_before, done.tokens_after)
    assert (await session.context.common_prefix(leaf, session.leaf_id)).items == 8
    later = await session.compactions.price("compact", mode="intent", first=ids[20], last=ids[23])
    assert (later.is_warm, later.common_items) == (True, 8)
    await session.append_message(answer("read as it is now"))
    later = await session.compactions.price("compact", mode="intent", first=ids[20], last=ids[23])
    assert later.common_items == 8 + 1 + 4


async def test_what_comes_back_with_a_range_comes_after_its_summary(session: Session) -> None:
    ids = await talk(session, 12)
    await session.compactions.compact_range(ids[8], ids[11], mode="window")
    await session.append_message(answer("read as it is now"))
    await session.marks.pin(ids[9])
    leaf = session.leaf_id
    plan = await session.compactions.price(Compact(mode="window", first=ids[6], last=ids[15]))
    done = await session.compactions.compact_range(ids[6], ids[15], mode="window")
    assert plan.tokens_after == done.tokens_after == sum(await sizes(session, session.leaf_id))
    assert plan.common_items == (await session.context.common_prefix(leaf, session.leaf_id)).items == 6
    assert ids[9] in [item.entry_id for item in await session.build_context_entries()]


async def test_a_range_from_the_beginning_keeps_nothing_in_the_cache(session: Session) -> None:
    ids = await talk(session, 10)
    await session.compact(mode="window", settings=CompactionSettings(keep_recent_tokens=2_000))
    await session.append_message(answer("read as it is now"))
    plan = await session.compactions.price(Compact(mode="window", last=ids[-5]))
    done = await session.compactions.compact_range(None, ids[-5], mode="window")
    assert (plan.common_items, plan.kept) == (0, 0)
    assert plan.tokens_after == done.tokens_after


async def test_a_model_is_shown_the_range_alone(session: Session) -> None:
    ids = await talk(session, 20)
    counts = await sizes(session, session.leaf_id)
    plan = await session.compactions.price(Compact(first=ids[4], last=ids[11], summary_tokens=300), system="", tools=[])
    assert plan.summary_call is not None
    assert (plan.summary_call.cache_read, plan.summary_call.output) == (0, 300)
    assert plan.summary_call.input == sum(counts[4:12]) + 600
    assert plan.tokens_after == sum(counts) - sum(counts[4:12]) + 300
    assert plan.is_estimate
    assert (await session.compactions.price(Compact(first=ids[4], summary_tokens=300))).tokens_after == sum(
        counts[:4]
    ) + 300


async def test_ranges_that_cannot_be_are_refused_as_they_would_be(session: Session) -> None:
    ids = await talk(session, 4)
    await raises(EntryNotFound, session.compactions.price(Compact(first="missing", last=ids[2])))
    with pytest.raises(InvalidArgument, match="the other way round"):
        await session.compactions.price(Compact(first=ids[4], last=ids[2]))
    with pytest.raises(InvalidArgument, match="last"):
        Compact(last=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="Fork: Unexpected keyword argument 'first'"):
        await session.compactions.price("fork", first=ids[2])


async def test_a_fork_reads_what_the_session_sent(session: Session) -> None:
    ids = await talk(session)
    plan = await session.compactions.price(Fork(at=ids[9]))
    assert (plan.common_items, plan.rewritten, plan.never) == (10, 0, "no_edit")
    fork = await session.fork(at=ids[9])
    assert sum(await sizes(fork, fork.leaf_id)) == plan.tokens_after
    assert (await session.compactions.price("fork")).tokens_after == (
        await session.compactions.price("resume")
    ).tokens_after


async def test_nothing_is_changed_and_unknown_is_none(session: Session, store: Store) -> None:
    ids = await talk(session, 2)
    before = (session.leaf_id, (await session.refresh()).revision, await session.log())
    edits: tuple[EditChoice, ...] = ("compact", "fork", "resume", Rewind(to=ids[0]), Exclude([ids[0]]))
    for edit in edits:
        plan = await session.compactions.price(edit, model="nobody-knows")
        assert isinstance(plan, EditPlan)
        assert plan.price is None
        assert plan.turns_to_pay is None
        assert plan.never in ("price_unknown", "no_edit", "nothing_to_do")
    assert (session.leaf_id, (await session.refresh()).revision, await session.log()) == before
    empty = await (await store.create_session()).compactions.price("resume", model=MODEL)
    assert (empty.tokens_after, empty.is_warm, empty.leaf_id) == (0, False, None)


async def test_what_is_not_an_edit_is_refused(session: Session) -> None:
    ids = await talk(session, 1)
    for wrong in ("rewound", "", None, 5, Rewind):
        with pytest.raises(InvalidArgument, match=r"edit: .* is not an edit; give one of compact, rewind"):
            await session.compactions.price(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="either to= or turns="):
        Rewind()
    with pytest.raises(InvalidArgument, match="at least one entry"):
        Exclude([])
    with pytest.raises(InvalidArgument, match="summary_tokens"):
        Compact(summary_tokens=-1)
    await raises(EntryNotFound, session.compactions.price("exclude", entry_ids=["missing"]))
    with pytest.raises(InvalidArgument, match=r"edit: Exclude: Missing required argument 'entry_ids'"):
        await session.compactions.price("exclude")
    with pytest.raises(InvalidArgument, match=r"edit: Fork: Unexpected keyword argument 'turns'"):
        await session.compactions.price("fork", turns=1)
    with pytest.raises(InvalidArgument, match="turns: is an argument of an edit given by its name"):
        await session.compactions.price(Rewind(turns=1), turns=1)
    await raises(EntryNotFound, session.compactions.price(Fork(at="missing")))
    await session.move_leaf(ids[0])
    await raises(InvalidArgument, session.compactions.price(Rewind(to=ids[1])), match="not on the path")


# -- Whose window a compaction is sized by: that of the session's own model, as far as it is known --------------------


ROOMY = CompactionSettings(user_words_share=0)


async def talk_by(store: Store, **said: str) -> Session:
    session = await store.create_session()
    messages: list[JsonObject] = []
    for n in range(60):
        messages.append({"role": "user", "content": f"question {n} " + "word " * 200})
        messages.append({"role": "assistant", "content": "a " * 300, **said})
    await session.append_messages(messages)
    return session


def summarizer(window: int, name: str = "summarizer") -> FunctionModel:
    return FunctionModel(lambda _: "what was said", name, context_window=window)


async def test_what_stays_is_sized_by_the_model_of_the_latest_answer() -> None:
    async with flue_py.open(":memory:") as store:
        small = await talk_by(store, provider="openai", model="gpt-4")
        planned = await small.compactions.plan(settings=ROOMY)
        done = await small.compact(summarizer(400_000), settings=ROOMY)
        assert done.appended is not None
        assert done.tokens_staying == planned.tokens_staying < 8_192 // 2
        large = await talk_by(store, provider="anthropic", model="claude-sonnet-4-5")
        done = await large.compact(summarizer(8_000), settings=ROOMY)
        assert done.tokens_staying >= ROOMY.keep_recent_tokens
        assert (await store.verify()).problems == []


async def test_a_window_that_is_given_counts_and_then_what_the_model_itself_says() -> None:
    async with flue_py.open(":memory:") as store:
        session = await talk_by(store, provider="openai", model="gpt-4")
        wide = await session.compactions.plan(settings=ROOMY, window=100_000)
        assert wide.tokens_staying >= ROOMY.keep_recent_tokens
        done = await session.compact(summarizer(100_000, "gpt-4"), settings=ROOMY)
        assert done.tokens_staying >= ROOMY.keep_recent_tokens


async def test_a_model_that_is_not_known_leaves_it_to_the_summarizer() -> None:
    async with flue_py.open(":memory:") as store:
        for said in ({}, {"provider": "mine", "model": "not-published"}):
            session = await talk_by(store, **said)
            assert (await session.compactions.plan(settings=ROOMY)).tokens_staying >= ROOMY.keep_recent_tokens
            done = await session.compact(summarizer(8_000), settings=ROOMY)
            assert done.tokens_staying < 4_000


def test_windows_are_known_by_the_names_that_models_have() -> None:
    assert published_window("gpt-4", "openai") == published_window("openai:gpt-4") == published_window("gpt-4") == 8_192
    assert published_window("claude-sonnet-4-5", "my-gateway") == 200_000
    assert published_window("not-published") is None
