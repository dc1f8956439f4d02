"""A guard on every store: what it is asked, what it does, what it remembers, and what the log has of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

import flue_py
from flue_py import ContextOverflow, InvalidArgument, ModelUnavailable, Session, Store
from flue_py.agents.conversation import Conversation
from flue_py.agents.guard import BY, CompactionGuard, GuardAnswer
from flue_py.compaction import CompactionSettings, ContextBudget
from flue_py.compaction.settings import TriggerSettings
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from flue_py.core.sessions import GUARD_KEY
from flue_py.sessions.compact import ELSEWHERE_SECONDS, Claim
from tests.checks import raises
from tests.sessions.guarded import SETTINGS, answer, events, guard_of, model, summary, talk
from tests.sessions.talk import user
from tests.values import existing


async def test_it_compacts_what_is_due_and_says_why(session: Session, store: Store) -> None:
    guard = guard_of(store, session)
    await talk(session, 20)
    assert await guard.should_compact()
    done = await guard.before_call()
    assert (done.outcome, done.decision.trigger) == ("compacted", "tokens")
    assert done.result is not None
    assert done.result.entry_id == session.leaf_id
    began, ended = await events(session)
    for named in ("compacting:", "tokens (bytes/3)", "window of 2,000", "due above 1,500"):
        assert named in began
    assert ended.startswith(f"compacted, {done.result.tokens_before:,} -> {done.result.tokens_after:,} tokens")
    assert not await guard.should_compact()
    assert (await guard.before_call()).outcome == "nothing"
    await session.undo()
    assert await session.compactions.latest() is None


async def test_what_it_decides_is_told_as_events(session: Session, store: Store) -> None:
    await talk(session, 20)
    seen = [event.id async for event in store.events()]
    await guard_of(store, session).before_call()
    told = [event async for event in store.events(after=seen)]
    assert [(event.type, event.what) for event in told] == [
        ("compaction_start", "metadata"),
        ("session_changed", "other"),  # the paid call
        ("compaction", None),
        ("session_changed", "metadata"),
    ]
    assert [event.why for event in told if event.by == BY] == await events(session)
    assert [event.by for event in told] == [BY, None, None, BY]


async def test_an_agent_is_warned_of_once_and_then_cut_over(session: Session, store: Store) -> None:
    budget = TriggerSettings(budget=ContextBudget(warn_at=300, cutover_at=500))
    guard = guard_of(store, session, window=200_000, triggers=budget)
    await talk(session, 3, usage={"input": 100, "output": 1}, agentName="ann", agent="ann")
    assert (await guard.after_call("ann")).outcome == "warned"
    assert (await guard.after_call("ann")).outcome == "nothing"
    assert (await guard_of(store, session, window=200_000, triggers=budget).after_call("ann")).outcome == "nothing"
    assert (await guard.after_call("bob")).outcome == "nothing"
    await talk(session, 5, usage={"input": 100, "output": 1}, agentName="ann", agent="ann")
    done = await guard.after_call("ann")
    assert (done.outcome, done.decision.trigger) == ("compacted", "input_budget")
    assert (await guard.before_call("ann")).outcome == "nothing"
    assert "agent 'ann' has sent 300 tokens" in (await events(session))[0]
    warned = [event async for event in store.events() if event.type == "context_budget_warn"]
    assert [(event.by, event.session_id) for event in warned] == [(BY, session.id)]
    assert (warned[0].why or "").startswith("context_budget_warn: agent 'ann' has sent 300 tokens")


async def test_a_cutover_needs_compaction_by_itself(session: Session, store: Store) -> None:
    budget, off = ContextBudget(warn_at=1, cutover_at=2), CompactionSettings(enabled=False)
    for more, what in (
        ({"triggers": TriggerSettings(budget=budget), "settings": off}, r"cutover_at of 2 .* settings\.enabled"),
        (
            {"triggers": TriggerSettings(agent_budgets={"ann": budget}, auto=False)},
            r"cutover_at of 2 .* triggers\.auto",
        ),
    ):
        with pytest.raises(InvalidArgument, match=what):
            CompactionGuard(store, session, mode="intent", **more)  # type: ignore[arg-type]
    await talk(session, 1, usage={"input": 100, "output": 1})
    guard = CompactionGuard(
        store, session, mode="intent", triggers=TriggerSettings(budget=ContextBudget(warn_at=1), auto=False)
    )
    assert [(await guard.after_call()).outcome for _ in range(2)] == ["warned", "nothing"]


async def test_the_call_of_a_compaction_is_in_the_window_that_triggered_it(session: Session, store: Store) -> None:
    await store.set_budget(session, tokens=100_000)
    usage: JsonObject = {"input": 900, "output": 40}
    paid = {"usage": usage, "provider": "house", "model": "small", "responseId": "call-1", "stopReason": "stop"}
    guard = guard_of(store, session, model(lambda _: ModelReply((answer("short", **paid),))))
    await talk(session, 20, usage={"input": 1_700, "output": 1})
    done = await guard.before_call()
    assert done.outcome == "compacted"
    whole = await session.money.aggregate_usage_since(None)
    assert (whole.usage.input, whole.calls) == (20 * 1_700 + 900, 21)
    assert (await store.usage(session, path=True)).total.calls == 21
    assert (await session.money.aggregate_usage_since(session.leaf_id)).calls == 0
    (row,) = (await store.usage(session, purpose="compaction", group_by=("purpose",))).rows
    assert (row.calls, row.input) == (1, 900)
    (left,) = await session.money.budgets()
    assert left.allowed == 100_000


async def test_a_request_is_met_at_the_next_question_also_of_another_process(session: Session, store: Store) -> None:
    asked: list[ModelRequest] = []

    def summarize(request: ModelRequest) -> str:
        asked.append(request)
        return "short"

    await talk(session, 6)
    await guard_of(store, session).request("mind the numbers")
    again = await store.open_session("triage", scope="user-7")
    done = await guard_of(store, again, model(summarize)).before_call()
    assert (done.outcome, done.decision.trigger) == ("compacted", "agent_requested")
    assert "mind the numbers" in str(asked[0].messages)
    await talk(again, 1)
    assert (await guard_of(store, again).before_call()).outcome == "nothing"


async def test_an_overflow_is_recovered_from(session: Session, store: Store) -> None:
    await talk(session, 12)
    guard = guard_of(store, session, window=100_000)
    seen: list[int] = []

    async def ask(context: list[JsonObject]) -> str:
        seen.append(len(context))
        if len(context) > 20:
            await session.append_message({"role": "assistant", "content": [], "stopReason": "error"})
            raise ContextOverflow("too long", tokens=1_000, window=600)
        return "fine"

    assert await guard.call(ask) == "fine"
    assert seen[0] == 24
    assert seen[1] < 20
    assert all(entry.fields.get("stopReason") != "error" for entry in await session.get_active_path())
    assert any(line.what == "retract" and line.by == BY for line in await session.log())
    assert "overflowed" in (await events(session))[1]


async def test_what_others_wrote_before_a_recovery_is_no_reason_for_another(session: Session, store: Store) -> None:
    await talk(session, 24)
    other = existing(await store.get_session(session.id))
    await other.append_message(user("STOP"))
    guard = guard_of(store, session)
    assert (await guard.recover(ContextOverflow("too long"))).outcome == "compacted"
    await raises(ContextOverflow, guard.recover(ContextOverflow("too long")), match="overflowed again")
    await other.refresh()
    await other.append_message(user("and another"))
    await guard.recover(ContextOverflow("too long"))


async def test_who_comes_second_asks_no_model(session: Session, store: Store) -> None:
    await talk(session, 20)
    other = await store.open_session("triage", scope="user-7")
    second: list[GuardAnswer] = []

    async def summarize(_: ModelRequest) -> str:
        second.append(await guard_of(store, other).before_call())
        return "short"

    first = FunctionModel(summarize, "small", context_window=200_000)
    assert (await guard_of(store, session, first).before_call()).outcome == "compacted"
    assert [each.outcome for each in second] == ["elsewhere"]
    assert len([entry for entry in await session.get_active_path() if entry.kind == "compaction"]) == 1


async def test_a_claim_of_a_process_that_is_gone_is_none_and_counts_as_a_failure(
    session: Session, store: Store
) -> None:
    await talk(session, 20)
    guard = guard_of(store, session)
    claim = Claim.make(session.id, "", 0)
    await session.set_metadata({GUARD_KEY: {"claim": claim.to_json()}})
    assert (await guard.before_call()).outcome == "elsewhere"
    claim.drop()
    assert (await guard.state()).failures == 1
    assert (await guard.before_call()).outcome == "compacted"
    elsewhere, compacting, *_ = await events(session)
    assert elsewhere.startswith("somebody else compacts the session; ")
    assert "has ended, which counts as a failure" in compacting


async def test_what_somebody_else_writes_meanwhile_is_kept(session: Session, store: Store) -> None:
    await talk(session, 20)
    other = await store.open_session("triage", scope="user-7")

    async def summarize(_: ModelRequest) -> str:
        await other.append_message(user("meanwhile"))
        await other.set_metadata({"mine": 1}, merge=True)
        return "short"

    done = await guard_of(store, session, FunctionModel(summarize, "small", context_window=200_000)).before_call()
    assert done.outcome == "compacted"
    assert (await session.build_context())[-1]["content"] == "meanwhile"
    assert session.metadata["mine"] == 1


async def test_a_cancelled_compaction_lets_go_of_the_session(session: Session, store: Store) -> None:
    await talk(session, 20)

    with anyio.CancelScope() as scope:

        async def stop(_: ModelRequest) -> str:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
            raise AssertionError

        await guard_of(store, session, FunctionModel(stop)).before_call()
    assert scope.cancelled_caught
    assert (await guard_of(store, session).before_call()).outcome == "compacted"
    assert "given up" in await events(session)


@pytest.mark.parametrize("in_batch", [False, True], ids=["alone", "in a batch"])
async def test_who_replaces_the_metadata_leaves_what_a_guard_remembers(
    session: Session, store: Store, in_batch: bool
) -> None:
    asked: list[ModelRequest] = []

    def down(request: ModelRequest) -> str:
        asked.append(request)
        raise ModelUnavailable("down")

    await talk(session, 30)
    guard = guard_of(store, session, model(down))
    for turn in range(8):
        await guard.before_call()
        if in_batch:
            async with store.atomic() as batch:
                batch.set_metadata(session, {"turn": turn})
        else:
            await session.set_metadata({"turn": turn})
    assert len(asked) == guard.triggers.max_failures
    await session.refresh()
    assert session.metadata["turn"] == 7
    assert set(session.metadata) == {"turn", GUARD_KEY}
    await session.set_metadata({GUARD_KEY: None})
    await guard.before_call()
    assert len(asked) == guard.triggers.max_failures + 1
    assert set(session.metadata) == {GUARD_KEY}


async def test_who_compacts_by_hand_leaves_it_to_a_guard_that_does(session: Session, store: Store) -> None:
    await talk(session, 20)
    by_hand = await store.open_session("triage", scope="user-7")
    asked: list[str] = []
    reasons: list[str | None] = []

    async def summarize(_: ModelRequest) -> str:
        asked.append("guard")
        other = model(lambda _: asked.append("by hand") or "short")
        path = await by_hand.get_active_path()
        done = [
            await by_hand.compact(other, settings=SETTINGS),
            await by_hand.compact(mode="window", settings=SETTINGS),
        ]
        done.append(await by_hand.compactions.compact_range(path[0].id, path[7].id, other))
        done.append(await Conversation(store, by_hand).compact(other, settings=SETTINGS))
        reasons.extend(each.reason for each in done)
        reasons.append((await by_hand.compact(other, settings=SETTINGS, dry_run=True)).reason)
        return "short"

    done = await guard_of(store, session, FunctionModel(summarize, "small", context_window=200_000)).before_call()
    assert done.outcome == "compacted"
    assert asked == ["guard"]
    assert reasons == ["elsewhere"] * 4 + ["dry_run"]
    await talk(session, 20)
    assert (await by_hand.compact(summary(), settings=SETTINGS)).appended is not None


async def test_a_claim_is_renewed_before_a_call_that_would_outlast_it(tmp_path: Path) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    seen: list[tuple[Claim, int]] = []
    async with flue_py.open(tmp_path / "s.db", clock=lambda: now[0]) as store:
        session = await store.create_session(key="triage")
        await talk(session, 40)

        async def summarize(_: ModelRequest) -> str:
            stored = (await (await store.open_session("triage")).refresh()).metadata[GUARD_KEY]
            assert isinstance(stored, dict)
            claim = existing(Claim.from_json(stored["claim"]))
            seen.append((claim, int(now[0].timestamp())))
            now[0] += timedelta(seconds=250)
            return "short"

        small = FunctionModel(summarize, "large", context_window=3_000)
        guard = guard_of(store, session, summarizer=small, clock=lambda: now[0])
        assert (await guard.before_call()).outcome == "compacted"
        assert len(seen) > 2
        # Each call may take five minutes, and elsewhere nobody can tell whether this process still runs.
        assert all(claim.at + ELSEWHERE_SECONDS >= at + 300 for claim, at in seen)
        assert len({claim.token for claim, _ in seen}) == 1
        assert (await session.refresh()).metadata[GUARD_KEY].get("claim") is None
        assert (await store.verify()).problems == []
