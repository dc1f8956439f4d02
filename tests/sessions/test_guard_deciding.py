"""A guard in memory: what is due, what is held back, and what an overflow leads to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flue_py import ContextOverflow, InvalidArgument, ModelUnavailable, Session, Store
from flue_py.agents.conversation import Conversation
from flue_py.agents.guard import CompactionGuard, GuardAnswer
from flue_py.compaction import CompactionSettings, ContextBudget
from flue_py.compaction.material import AboutToCompact, Cancelled
from flue_py.compaction.settings import TriggerSettings
from flue_py.core.json import JsonObject
from flue_py.core.model import ModelRequest
from flue_py.sessions.compact import Claim
from tests.checks import raises
from tests.sessions.guarded import SETTINGS, WINDOW, answer, events, guard_of, larger, model, talk, wrong_results
from tests.sessions.talk import user
from tests.tables import inputs
from tests.values import existing

pytestmark = pytest.mark.parametrize("target", ["memory"], indirect=True)


async def test_a_session_below_the_threshold_is_left_alone_and_its_log_too(session: Session, store: Store) -> None:
    guard = guard_of(store, session)
    await talk(session, 2)
    revision = session.revision
    for asked in (guard.before_call, guard.after_call, guard.resumed):
        assert (await asked()).outcome == "nothing"
    assert session.revision == revision
    assert await events(session) == []


async def test_system_and_tools_are_counted(session: Session, store: Store) -> None:
    await talk(session, 8)
    assert not await guard_of(store, session, system="", tools=()).should_compact()
    guard = guard_of(store, session, system="s" * 3_000, tools=[{"name": "read", "parameters": {}}])
    done = await guard.before_call()
    assert done.outcome == "compacted"
    assert (done.decision.size.system or 0) >= 1_000
    assert not await guard.should_compact()


@inputs("given", [{"threshold": 1_500}, {"single_call_limit": 1_500}], ids=lambda given: next(iter(given)))
async def test_what_is_kept_leaves_room_below_a_size_that_was_set(
    session: Session, store: Store, given: dict[str, int]
) -> None:
    guard = guard_of(
        store,
        session,
        settings=CompactionSettings(),
        window=200_000,
        triggers=TriggerSettings(**given),
        system="",
        tools=(),
    )
    sizes, done = [], []
    for _ in range(60):
        await talk(session, 1)
        done.append((await guard.before_call()).outcome)
        sizes.append((await session.context.measure("small", system="", tools=())).tokens)
    assert max(sizes) <= 1_500
    assert done.count("compacted") < 20
    assert {*done} == {"nothing", "compacted"}


@inputs("agent", ["", "Coder"])
async def test_what_an_answer_reports_above_the_window_counts_for_no_budget(
    session: Session, store: Store, agent: str
) -> None:
    budget = ContextBudget(warn_at=3_000, cutover_at=4_000)
    guard = guard_of(store, session, window=100_000, triggers=TriggerSettings(budget=budget))
    await talk(session, 4, model="small", usage={"input": 500, "output": 1, "totalTokens": 501}, agent="Coder")
    wrong = {"input": 10, "cacheRead": 9_000_000, "output": 1, "totalTokens": 9_000_011}
    await talk(session, 1, model="small", usage=wrong, agent="Coder")
    assert (await guard.before_call(agent=agent)).decision.held_by == "disbelieved_report"
    await talk(session, 2, model="small", usage={"input": 500, "output": 1, "totalTokens": 501}, agent="Coder")
    warned = await guard.before_call(agent=agent)
    assert warned.outcome == "warned"
    assert "has sent 3,000 tokens" in warned.decision.reason
    await talk(session, 2, model="small", usage={"input": 500, "output": 1, "totalTokens": 501}, agent="Coder")
    assert (await guard.before_call(agent=agent)).outcome == "compacted"


async def test_what_is_kept_leaves_room_for_system_and_tools(session: Session, store: Store) -> None:
    await talk(session, 12)
    settings = CompactionSettings(user_words_share=0)
    guard = guard_of(store, session, settings=settings, system="s" * 3_000, tools=())
    assert (await guard.before_call()).outcome == "compacted"
    size = await session.context.measure("small", system="s" * 3_000, tools=())
    assert size.tokens <= 1_500


async def test_an_overflow_of_a_context_that_somebody_else_has_compacted_compacts_nothing(
    session: Session, store: Store
) -> None:
    await talk(session, 20)
    other = await store.open_session("triage", scope="user-7")
    asked: list[int] = []

    async def ask(context: list[JsonObject]) -> str:
        asked.append(len(context))
        if len(asked) == 1:
            assert (await guard_of(store, other).before_call()).outcome == "compacted"
            raise ContextOverflow("too long")
        return "fine"

    def never(_: ModelRequest) -> str:
        raise AssertionError

    assert await guard_of(store, session, model(never), window=100_000).call(ask) == "fine"
    assert asked[1] < asked[0] == 40


@pytest.mark.thorough
async def test_thirty_compactions_in_a_row(session: Session, store: Store) -> None:
    guard = guard_of(store, session)
    rounds = 30
    done = 0
    while done < rounds:
        await talk(session, 1)
        if (await guard.before_call()).outcome == "compacted":
            done += 1
            assert not await guard.should_compact()
        assert (await session.context.measure("small")).tokens <= 1_500
    assert len([entry for entry in await session.get_active_path() if entry.kind == "compaction"]) == rounds
    assert len(await events(session)) == 2 * rounds


async def test_answers_trigger_and_as_many_stay(session: Session, store: Store) -> None:
    guard = guard_of(
        store, session, window=200_000, triggers=TriggerSettings(trigger_turns=8, keep_recent_turns=3, thrash_share=0)
    )
    await talk(session, 7)
    assert (await guard.before_call()).outcome == "nothing"
    await talk(session, 1)
    assert (await guard.after_call()).outcome == "compacted"
    kept = await session.build_context_entries()
    assert sum(item.role == "assistant" for item in kept) <= 3
    assert (await guard.before_call()).decision.trigger == ""


async def test_a_session_that_is_full_when_it_is_resumed(session: Session, store: Store) -> None:
    await talk(session, 20)
    off = guard_of(store, session, triggers=TriggerSettings(on_resume=False))
    assert (await off.resumed()).outcome == "nothing"
    assert (await guard_of(store, session).resumed()).outcome == "compacted"


async def test_on_demand_nothing_is_held_back(session: Session, store: Store) -> None:
    await talk(session, 10)
    guard = guard_of(store, session, triggers=TriggerSettings(auto=False))
    assert (await guard.compact("mind the numbers")).outcome == "compacted"
    assert (await guard.compact()).outcome == "nothing_to_cut"


async def test_three_failures_in_a_row_are_enough(session: Session, store: Store) -> None:
    calls = []

    def fail(_: ModelRequest) -> str:
        calls.append(1)
        raise ModelUnavailable("down")

    await talk(session, 20)
    before = await session.build_context()
    for _ in range(3):
        failed = await guard_of(store, session, model(fail)).before_call()
        assert (failed.outcome, failed.error is not None) == ("failed", True)
    for _ in range(3):
        held = await guard_of(store, session, model(fail)).before_call()
        assert (held.outcome, held.decision.held_by) == ("held", "breaker")
    assert len(calls) == 3
    assert await session.build_context() == before
    said = await events(session)
    assert [text.partition(":")[0] for text in said] == [
        *(["compacting", "failed"] * 3),
        "3 compactions failed in a row",
    ]
    assert "down" in said[1]
    assert (await guard_of(store, session).compact()).outcome == "compacted"
    assert (await guard_of(store, session).state()).failures == 0


async def test_less_than_a_twentieth_freed_is_no_second_attempt(session: Session, store: Store) -> None:
    calls = []

    def long_winded(request: ModelRequest) -> str:
        calls.append(request)
        return "s" * 4_650

    await talk(session, 20)
    guard = guard_of(store, session, model(long_winded))
    first = await guard.before_call()
    assert first.outcome == "too_little"
    for _ in range(3):
        assert (await guard.before_call()).outcome in ("held", "nothing")
    assert len(calls) == 1
    await session.append_message(user("q" * 100))
    held = await guard.before_call()
    assert held.decision.held_by == "no_progress"
    assert (await guard_of(store, session).before_call()).outcome == "held"
    assert len(calls) == 1
    await talk(session, 6)
    await guard.before_call()
    assert len(calls) > 1


async def test_a_text_that_is_no_smaller_is_no_compaction_whatever_a_compaction_has_to_free(
    session: Session, store: Store
) -> None:
    await talk(session, 4)
    before = await session.build_context()
    triggers = TriggerSettings(trigger_turns=4, keep_recent_turns=2, least_share=0.0)
    done = await guard_of(store, session, model(lambda _: "s" * 4_650), window=200_000, triggers=triggers).before_call()
    assert done.result is not None
    assert (done.outcome, done.result.reason) == ("too_little", "not_smaller")
    assert await session.build_context() == before


async def test_where_next_to_nothing_could_be_freed_no_model_is_asked(session: Session, store: Store) -> None:
    def never(_: ModelRequest) -> str:
        raise AssertionError

    await session.append_message(user("go"))
    await session.append_message(answer("on it"))
    await session.append_message(user("x" * 6_000))
    guard = guard_of(store, session, model(never))
    assert (await guard.before_call()).outcome == "too_little"
    assert (await guard.before_call()).outcome == "held"
    assert (await guard.before_call()).outcome == "held"
    assert len(await events(session)) == 2


async def test_one_message_with_many_rounds_of_tools(session: Session, store: Store) -> None:
    guard = guard_of(store, session)
    await session.append_message(user("Do it all."))
    compactions = 0
    for number in range(100):
        if (await guard.before_call()).outcome == "compacted":
            compactions += 1
        call: JsonObject = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {"path": f"f{number}"}}
        await session.append_messages(
            [
                {"role": "assistant", "content": [call], "stopReason": "toolUse"},
                {"role": "toolResult", "toolCallId": f"c{number}", "toolName": "read", "content": "r" * 200},
            ]
        )
        await guard.after_call()
        context = await session.build_context()
        assert (await session.context.measure("small")).tokens <= 1_500
        assert wrong_results(context) == []
    assert compactions == 0
    assert await session.compactions.latest() is not None


async def test_a_second_overflow_is_an_error_and_costs_nothing_more(session: Session, store: Store) -> None:
    await talk(session, 12)
    summaries = []

    def summarize(_: ModelRequest) -> str:
        summaries.append(1)
        return "short"

    async def ask(_: list[JsonObject]) -> str:
        await session.append_message({"role": "assistant", "content": [], "stopReason": "error"})
        raise ContextOverflow("too long")

    for _ in range(3):
        with pytest.raises(ContextOverflow, match="again after one compaction and one retry"):
            await guard_of(store, session, summarizer=larger(summarize), window=100_000).call(ask)
    assert len(summaries) == 1
    await session.append_message(user("and now?"))
    await raises(ContextOverflow, guard_of(store, session, summarizer=larger(summarize), window=100_000).call(ask))
    assert len(summaries) > 1


async def test_without_auto_an_overflow_is_left_to_the_caller(session: Session, store: Store) -> None:
    await talk(session, 12)

    async def ask(_: list[JsonObject]) -> str:
        await session.append_message({"role": "assistant", "content": [], "stopReason": "error"})
        raise ContextOverflow("too long")

    guard = guard_of(store, session, triggers=TriggerSettings(auto=False))
    await raises(ContextOverflow, guard.call(ask), match="too long")
    assert await session.compactions.latest() is None
    assert (await session.get_active_path())[-1].fields["stopReason"] == "error"


async def test_an_overflow_asks_no_model_that_has_failed_three_times(session: Session, store: Store) -> None:
    def fail(_: ModelRequest) -> str:
        raise ModelUnavailable("down")

    await talk(session, 20)
    guard = guard_of(store, session, model(fail))
    for _ in range(3):
        await guard.before_call()
    overflow = ContextOverflow("too long")
    done = await guard.recover(overflow)
    assert done.outcome == "compacted"
    assert done.result is not None
    assert done.result.mode == "intent"


@inputs("mode", ["llm", "hybrid"])
@inputs(
    ("summarizer", "told", "made_by_a_model"),
    [
        pytest.param(None, None, False, id="the model that refused it"),
        pytest.param(200_000, None, True, id="a larger model"),
        pytest.param(1_500, None, False, id="a smaller model"),
        pytest.param(200_000, 250_000, False, id="more than the larger model takes, by the count of the provider"),
        pytest.param(None, 1_000, False, id="a model of an unknown window"),
    ],
)
async def test_an_overflow_asks_only_a_model_that_takes_the_context(
    session: Session, store: Store, mode: str, summarizer: int | None, told: int | None, made_by_a_model: bool
) -> None:
    asked = []

    def summarize(request: ModelRequest) -> str:
        asked.append(request)
        return "short"

    async def ask(context: list[JsonObject]) -> str:
        if len(context) > 20:
            raise ContextOverflow("too long", tokens=told)
        return "fine"

    await talk(session, 12)
    other = None if summarizer is None and told is None else larger(summarize, summarizer)
    guard = guard_of(store, session, model(summarize), summarizer=other, mode=mode, window=100_000)
    assert await guard.call(ask) == "fine"
    assert bool(asked) == made_by_a_model
    latest = existing(await session.compactions.latest())
    details = latest.fields["details"]
    assert isinstance(details, dict)
    assert details["mode"] == (mode if made_by_a_model else "intent")
    assert ("no model was to be asked" in str(latest.fields["summary"])) != made_by_a_model


async def test_a_demand_and_a_threshold_ask_the_model_also_where_parts_are_needed(
    session: Session, store: Store
) -> None:
    await talk(session, 40)
    small = larger(lambda _: "short", 2_000)
    done = await guard_of(store, session, small).compact()
    assert done.result is not None
    assert done.result.mode == "llm"
    await talk(session, 40)
    done = await guard_of(store, session, small).before_call()
    assert done.result is not None
    assert done.result.mode == "llm"


async def test_a_claim_of_another_machine_ends_by_itself(session: Session, store: Store) -> None:
    await talk(session, 20)
    claim = Claim.make(session.id, "", 0)
    claim.drop()
    elsewhere = replace(claim, host="elsewhere")
    assert elsewhere.holds(session.id, 599)
    assert not elsewhere.holds(session.id, 600)
    assert not elsewhere.holds("another", 0)
    assert Claim.from_json(elsewhere.to_json()) == elsewhere
    assert Claim.from_json({"pid": "1"}) is None


async def test_every_answer_but_nothing_is_passed_on(session: Session, store: Store) -> None:
    told: list[GuardAnswer] = []
    guard = guard_of(store, session, on_answer=told.append)
    await talk(session, 2)
    await guard.before_call()
    await talk(session, 20)
    await guard.before_call()
    assert [each.outcome for each in told] == ["compacting", "compacted"]


@inputs(
    ("given", "named"),
    [
        ({"triggers": 7}, "triggers"), ({"settings": 7}, "settings"), ({"mode": "none"}, "mode"),
        ({"summarizer": 7}, "model"), ({"on_answer": 3}, "on_answer"), ({"before_compaction": 3}, "before_compaction"),
        ({"clock": 3}, "clock"), ({"patience": "x"}, "patience"), ({"patience": -1}, "patience"),
        ({"window": 10**400}, "window"), ({"system": 7}, "system"), ({"tools": "read"}, "tools"),
    ],
)  # fmt: skip
async def test_a_guard_that_makes_no_sense_is_refused(
    session: Session, store: Store, given: dict[str, object], named: str
) -> None:
    with pytest.raises(InvalidArgument, match=named):
        guard_of(store, session, **given)  # type: ignore[arg-type]


async def test_a_hook_is_told_why_and_may_cancel(session: Session, store: Store) -> None:
    asked: list[AboutToCompact] = []

    def cancel(about: AboutToCompact) -> Cancelled:
        asked.append(about)
        return Cancelled("not now")

    await talk(session, 20)
    guard = guard_of(store, session, before_compaction=cancel)
    await guard.request("mind the numbers")
    done = await guard.before_call()
    assert (done.outcome, done.decision.trigger) == ("cancelled", "tokens")
    assert done.result is not None
    assert done.result.notes == ("a hook cancelled it: not now",)
    assert (asked[0].trigger, asked[0].reason) == ("tokens", done.decision.reason)
    assert asked[0].instructions == "mind the numbers"
    assert await session.compactions.latest() is None
    state = await guard.state()
    assert (state.wanted, state.failures, state.attempts) == (None, 0, ())
    assert (await events(session))[-1] == f"a hook cancelled it: not now; {done.decision.reason}"
    assert (await guard.compact("now")).outcome == "cancelled"
    assert (asked[1].trigger, asked[1].instructions) == ("demand", "now")


async def test_a_hook_gives_the_text(session: Session, store: Store) -> None:
    def never(_: ModelRequest) -> str:
        raise AssertionError

    await talk(session, 20)
    guard = guard_of(store, session, model(never), before_compaction=lambda _: "what was said")
    done = await guard.before_call()
    assert (done.outcome, done.result is not None and done.result.from_hook) == ("compacted", True)
    assert (await events(session))[-1].startswith("compacted by a hook, ")
    assert not await guard.should_compact()


async def test_an_overflow_that_a_hook_leaves_is_raised_and_spends_no_recovery(session: Session, store: Store) -> None:
    answers: list[Cancelled | None] = [Cancelled("not now"), None]
    calls = []

    async def ask(context: list[JsonObject]) -> str:
        calls.append(len(context))
        if len(context) > 20:
            raise ContextOverflow("too long")
        return "fine"

    await talk(session, 12)
    guard = guard_of(store, session, window=100_000, before_compaction=lambda _: answers.pop(0))
    caught = await raises(ContextOverflow, guard.call(ask))
    assert "the context was not compacted (cancelled)" in caught.value.__notes__[0]
    assert await guard.call(ask) == "fine"


async def test_a_hook_that_fails(session: Session, store: Store) -> None:
    errors: list[Exception] = [KeyError("ticket"), ModelUnavailable("down")]

    def fails(_: AboutToCompact) -> None:
        if errors:
            raise errors.pop(0)

    await talk(session, 20)
    guard = guard_of(store, session, before_compaction=fails)
    await raises(KeyError, guard.before_call())
    assert (await guard.before_call()).outcome == "failed"
    assert (await guard.state()).failures == 1
    assert (await guard.before_call()).outcome == "compacted"


async def test_a_mode_without_a_model_needs_none(session: Session, store: Store) -> None:
    with pytest.raises(InvalidArgument, match="asks a model"):
        CompactionGuard(store, session, window=WINDOW)
    await talk(session, 20)
    guard = CompactionGuard(store, session, window=WINDOW, mode="intent", settings=SETTINGS)
    assert (await guard.before_call()).outcome == "compacted"


async def test_a_message_before_a_compaction_is_taken_back_with_it(session: Session, store: Store) -> None:
    await talk(session, 20)
    conversation = Conversation(store, session)
    guard = guard_of(store, session)
    calls = []

    async def ask(_: list[JsonObject]) -> list[JsonObject]:
        calls.append(1)
        if len(calls) == 1:
            raise ModelUnavailable("down")
        return [answer("fine")]

    await raises(ModelUnavailable, conversation.take_turn("and now?", lambda _: guard.call(ask)))
    assert await session.compactions.latest() is not None
    retried = existing(await conversation.retry())
    assert retried.text == "and now?"
    assert await session.compactions.latest() is None
    assert await conversation.take_turn(retried.message, lambda _: guard.call(ask)) == [answer("fine")]
    said = [item.data["content"] for item in await session.build_context_entries() if item.role == "user"]
    assert said.count("and now?") == 1


async def test_grace_and_what_comes_after_it_are_events_once_each(session: Session, store: Store) -> None:
    triggers = TriggerSettings(trigger_turns=3, grace_turns=2, keep_recent_turns=1, thrash_share=0)
    guard = guard_of(store, session, window=200_000, triggers=triggers)
    await talk(session, 4)
    assert (await guard.before_call()).outcome == "compacted"
    before = len(await events(session))
    held = []
    for _ in range(2):
        await talk(session, 1)
        held += [await guard.after_call(), await guard.after_call()]
    assert {each.decision.held_by for each in held} >= {"grace"}
    told = (await events(session))[before:]
    assert len([why for why in told if "are free of this trigger" in why]) == 1
    assert len(told) == 1


async def test_nothing_new_is_an_event_once_and_so_is_that_nothing_is_due_any_more(
    session: Session, store: Store
) -> None:
    await talk(session, 20)
    guard = guard_of(store, session)
    assert (await guard.before_call()).outcome == "compacted"
    small = guard_of(store, session, triggers=TriggerSettings(threshold=20))
    before = len(await events(session))
    for _ in range(3):
        assert (await small.before_call()).decision.held_by == "nothing_new"
    for _ in range(3):
        assert (await guard.before_call()).outcome == "nothing"
    held, nothing = (await events(session))[before:]
    assert "nothing was written since the latest compaction" in held
    assert nothing.startswith("nothing is due any more: the context takes ")
    assert await small.state() == await guard.state()


async def test_a_turn_is_all_that_an_agent_does_until_it_calls_nothing_and_so_many_stay(
    session: Session, store: Store
) -> None:
    triggers = TriggerSettings(trigger_turns=3, keep_recent_turns=2, grace_turns=0, least_share=0)
    settings = CompactionSettings(keep_recent_tokens=1, mode="intent", user_words_share=0)
    guard = CompactionGuard(store, session, settings=settings, triggers=triggers)
    outcomes = []
    for turn in range(3):
        for message in (user(f"q{turn}"), *(each for call in range(8) for each in _called(f"{turn}-{call}"))):
            await session.append_message(message)
            outcomes.append((await guard.after_call()).outcome)
        await session.append_message({"role": "assistant", "content": f"done {turn}", "agent": "Dev"})
        outcomes.append((await guard.after_call()).outcome)
    assert outcomes == ["nothing"] * 53 + ["compacted"]
    context = await session.build_context()
    assert [message["content"] for message in context[1:] if message["role"] == "user"] == ["q1", "q2"]
    assert len(context) == 1 + 2 * 18
    assert "covers turns 1–1]" in str(context[0]["content"])


def _called(name: str) -> list[JsonObject]:
    call: JsonObject = {"type": "toolCall", "id": name, "name": "read", "arguments": {"path": name}}
    return [
        {"role": "assistant", "content": [call], "agentName": "Dev"},
        {"role": "toolResult", "toolCallId": name, "content": [{"type": "text", "text": "x" * 400}]},
    ]


async def test_a_guard_of_mode_window_has_a_budget_whether_or_not_the_window_is_known(
    session: Session, store: Store
) -> None:
    wrong = []
    for name, settings, triggers, window, due, least, most in (
        ("nothing said", {}, {}, None, 80_000, 76_000, 80_000),
        ("a budget", {"keep_recent_tokens": 40_000}, {}, None, 40_000, 36_000, 40_000),
        ("a threshold", {}, {"threshold": 40_000}, None, 40_000, 36_000, 40_000),
        ("both", {"keep_recent_tokens": 20_000}, {"threshold": 40_000}, None, 40_000, 16_000, 20_000),
        ("no turns", {}, {"trigger_turns": 3, "keep_recent_turns": 1}, None, 80_000, 76_000, 80_000),
        ("a large window", {}, {}, 1_000_000, 80_000, 76_000, 80_000),
    ):
        session = await store.create_session()
        guard = CompactionGuard(
            store,
            session,
            mode="window",
            window=window,
            settings=CompactionSettings(**settings),
            triggers=TriggerSettings(**triggers),
        )
        fired = None
        for turn in range(27):
            # What an answer reports of a context that is gone decides nothing.
            reported = {"usage": {"input": 2_000 * turn, "output": 1, "totalTokens": 2_000 * turn}}
            await session.append_messages([user(f"{turn:4}" + "u" * 7_996), answer("a" * 8_000, **reported)])
            done = await guard.after_call()
            tokens = (await session.context.measure(faithful=True)).messages
            if done.outcome == "compacted":
                fired = fired or (turn + 1) * 4_000
                if not least <= tokens <= most or done.decision.trigger != "token_budget":
                    wrong.append((name, turn, tokens, done.decision))
            elif done.outcome != "nothing" or tokens > due:
                wrong.append((name, turn, tokens, done))
        if fired != due + 4_000:
            wrong.append((name, fired))
        wrong += [name for each in await session.build_context() if "not shown" in str(each)]
    assert wrong == []
