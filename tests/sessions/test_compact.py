"""Compacting in one call: what it plans, asks, books and appends, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import pytest

import flue_py
import flue_py.sync
from flue_py import Appended, CallConflict, InvalidArgument, ModelUnavailable, Session, Store, SummaryFailed, compaction
from flue_py.compaction import CompactionSettings
from flue_py.compaction.material import Material
from flue_py.compaction.modes import Asker, Hybrid, Llm, Made
from flue_py.compaction.plan import CompactionResult
from flue_py.context.tokens import counter_for
from flue_py.core.json import JsonObject
from flue_py.core.model import ModelReply, ModelRequest
from flue_py.render.lines import entry_text
from tests.checks import raises
from tests.sessions.conftest import also_in_memory
from tests.sessions.guarded import model
from tests.sessions.talk import answer, talk, user
from tests.tables import inputs
from tests.values import existing

SETTINGS = CompactionSettings(keep_recent_tokens=290, user_words_share=0)
"""Two turns of `talk`."""

Answer: TypeAlias = Callable[[ModelRequest], ModelReply | str | Awaitable[ModelReply | str]]


def said_by(done: CompactionResult) -> str:
    """Return what the model said, without the line that names the entries that it stands for."""
    text, line = (done.summary or "").rsplit("\n\n", 1)
    assert line.startswith("[The originals are stored: entries ")
    return text


def reply(text: str = "what was said", call_id: str = "call-1", **usage: int) -> ModelReply:
    said: JsonObject = {
        "role": "assistant", "content": text, "usage": {"input": 900, "output": 40, **usage}, "provider": "house",
        "model": "small", "responseId": call_id, "stopReason": "stop",
    }  # fmt: skip
    return ModelReply((said,))


def counted(items: Sequence[flue_py.ContextEntry]) -> int:
    return sum(counter_for(None).count_entries(items))


async def text_of(session: Session) -> str:
    return str(await session.build_context())


async def test_a_session_is_compacted_in_one_call(session: Session) -> None:
    ids = await talk(session)
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> ModelReply:
        asked.append(request)
        return reply()

    done = await session.compact(model(answer), settings=SETTINGS, instructions="mind the questions")

    assert done.reason is None
    assert done.entry_id == session.leaf_id
    assert (done.mode, said_by(done)) == ("llm", "what was said")
    context = await session.build_context_entries()
    assert context[0].entry_id == done.entry_id
    assert [item.entry_id for item in context[1:]] == ids[-4:]
    assert done.tokens_before > 4 * (done.tokens_after or 0) > 0
    assert done.tokens_freed == done.tokens_before - (done.tokens_after or 0)
    assert len(asked) == 1
    assert asked[0].purpose == "compaction"
    assert "question 0" in str(asked[0].messages)
    assert "mind the questions" in str(asked[0].messages)
    assert "question 9" not in str(asked[0].messages)


async def test_what_the_summary_cost_is_counted_once(session: Session, store: Store) -> None:
    await talk(session)
    before = session.leaf_id
    done = await session.compact(model(lambda _: reply()), settings=SETTINGS)

    assert [call["callId"] for call in done.calls] == ["call-1"]
    window = await session.money.aggregate_usage_since(before)
    assert (window.usage.input, window.usage.output) == (900, 40)
    (row,) = (await store.usage(session, group_by=("purpose", "model"))).rows
    assert (row.group, row.input, row.calls) == ({"purpose": "compaction", "model": "small"}, 900, 1)
    assert window.calls == 1
    assert done.entry_id in await session.money.entry_costs()


async def test_a_call_that_was_booked_alone_is_of_its_summary_if_it_is_the_same(session: Session, store: Store) -> None:
    (first, *_) = await talk(session)
    fork = await session.fork()
    usage: JsonObject = {"input": 900, "output": 40}
    await session.money.record_call(usage, provider="house", model="small", call_id="ours", purpose="compaction")
    await fork.money.record_call(usage, provider="house", model="small", call_id="theirs", purpose="compaction")
    named: JsonObject = {**usage, "provider": "house", "model": "small"}
    calls = ({**named, "callId": "ours"}, {**named, "callId": "theirs"})

    done = await session.append_compaction("short", first_kept_entry_id=first, tokens_before=9, calls=calls)
    assert (await session.money.aggregate_usage_since(None)).calls == 1
    assert [*await session.money.entry_costs()] == [*done.entry_ids]
    assert (await store.usage()).total.calls == 2
    with pytest.raises(CallConflict):
        await session.append_compaction(
            "short", first_kept_entry_id=first, tokens_before=9, calls=[{**calls[0], "input": 1}]
        )
    await session.undo()
    assert (await session.money.aggregate_usage_since(None)).calls == 0
    assert (await store.usage()).total.calls == 2


async def test_an_answer_of_unknown_usage_is_unknown_and_not_0(session: Session, store: Store) -> None:
    await talk(session)
    done = await session.compact(model(lambda _: "short"), settings=SETTINGS)
    assert done.appended is not None
    (row,) = (await store.usage(session, group_by=("purpose",))).rows
    assert (row.calls, row.unknown_calls) == (1, 1)


@also_in_memory
async def test_the_second_third_and_thirtieth_work_alike(session: Session, target: str) -> None:
    pinned = (await talk(session, 2))[0]
    await session.marks.pin(pinned)
    rounds = 30 if target == ":memory:" else 3
    for number in range(rounds):
        await talk(session, 2, start=2 + 2 * number)
        done = await session.compact(model(lambda _, number=number: f"summary {number}"), settings=SETTINGS)
        assert done.reason is None
        again = await session.compact(model(lambda _: "never asked"), settings=SETTINGS)
        assert again.reason == "no_cut_point"
    context = await session.build_context()
    assert f"[Context Summary]\\n\\nsummary {rounds - 1}" in str(context[0]["content"])
    assert "question 0 " in str(context[1])
    assert len(context) == 1 + 1 + 3


async def test_undo_restores_the_earlier_bytes(session: Session) -> None:
    await talk(session)
    before = await session.build_context()
    await session.compact(model(lambda _: "short"), settings=SETTINGS)
    await session.undo()
    assert await session.build_context() == before


async def test_a_dry_run_and_a_plan_change_nothing_and_ask_nobody(session: Session) -> None:
    await talk(session)
    revision = session.revision

    def never(_: ModelRequest) -> str:
        raise AssertionError

    dry = await session.compact(model(never), settings=SETTINGS, dry_run=True)
    planned = await session.compactions.plan(settings=SETTINGS)
    assert (dry.reason, dry.appended, dry.calls) == ("dry_run", None, ())
    assert planned == dry
    assert dry.planned is not None
    assert len(dry.planned.leaving) == 16
    assert dry.tokens_staying < dry.tokens_before
    assert session.revision == revision


async def test_a_short_session_has_nothing_to_compact(session: Session) -> None:
    for reason in ("no_cut_point", "no_cut_point"):
        assert (await session.compact(mode="window")).reason == reason
        await session.append_message(user("hello"))


async def test_turns_written_meanwhile_stay(session: Session, store: Store) -> None:
    await talk(session)
    other = existing(await store.get_session(session.id))

    async def answer(_: ModelRequest) -> ModelReply:
        await talk(other, 1, start=77)
        return reply()

    done = await session.compact(model(answer), settings=SETTINGS)
    assert done.appended is not None
    assert not done.appended.on_branch
    context = await session.build_context()
    assert "what was said" in str(context[0])
    assert "question 77" in str(context[-2])
    assert len(context) == 1 + 4 + 2


async def test_a_leaf_that_was_moved_elsewhere_keeps_its_path_and_the_call_its_cost(
    session: Session, store: Store
) -> None:
    ids = await talk(session)
    other = existing(await store.get_session(session.id))

    async def answer(_: ModelRequest) -> ModelReply:
        await other.rewind(to=ids[3])
        return reply()

    done = await session.compact(model(answer), settings=SETTINGS)
    assert (done.reason, done.appended, said_by(done)) == ("leaf_moved", None, "what was said")
    assert (await session.get_active_path())[-1].id == ids[3]
    (row,) = (await store.usage(session, group_by=("purpose",))).rows
    assert (row.input, row.calls) == (900, 1)


async def test_of_two_compactions_at_once_one_is_appended(session: Session, store: Store) -> None:
    await talk(session)
    other = existing(await store.get_session(session.id))

    async def answer(_: ModelRequest) -> ModelReply:
        await other.compact(model(lambda _: "the other one"), settings=SETTINGS)
        return reply()

    done = await session.compact(model(answer), settings=SETTINGS)
    assert done.reason == "compacted_meanwhile"
    assert "the other one" in await text_of(session)
    kinds = [entry.kind for entry in await session.get_tree()]
    assert kinds.count("compaction") == 1


async def test_a_summary_of_what_was_redacted_meanwhile_is_not_appended(session: Session, store: Store) -> None:
    ids = await talk(session)
    elsewhere = await store.create_session()
    (apart,) = (await elsewhere.append_message(user("apart"))).entry_ids
    other = existing(await store.get_session(session.id))

    async def answer(_: ModelRequest) -> ModelReply:
        await other.redact(ids[0], "by request")
        return reply()

    async def answer_beside(_: ModelRequest) -> ModelReply:
        await elsewhere.redact(apart, "by request")
        return reply()

    assert (await session.compact(model(answer), settings=SETTINGS)).reason == "redacted_meanwhile"
    assert (await session.compact(model(answer_beside), settings=SETTINGS)).reason is None


async def test_an_answer_longer_than_what_it_replaces_is_not_appended(session: Session, store: Store) -> None:
    await talk(session)
    before = await session.build_context()
    done = await session.compact(model(lambda _: reply("long " * 5_000)), settings=SETTINGS)
    assert (done.reason, done.appended) == ("not_smaller", None)
    assert await session.build_context() == before
    assert (await store.usage(session)).total.input == 900


@inputs("text", ["", "  \n"])
async def test_an_empty_answer_fails_and_is_paid_for(session: Session, store: Store, text: str) -> None:
    leaf = (await talk(session))[-1]
    await raises(SummaryFailed, session.compact(model(lambda _: reply(text)), settings=SETTINGS), match="has no text")
    assert (await session.refresh()).leaf_id == leaf
    assert (await store.usage(session)).total.input == 900


async def test_an_answer_that_was_cut_off_fails(session: Session) -> None:
    await talk(session)
    cut = ModelReply(({**reply().messages[0], "stopReason": "length"},))
    await raises(SummaryFailed, session.compact(model(lambda _: cut), settings=SETTINGS), match="cut off")


async def test_a_failed_call_that_was_paid_for_is_booked(session: Session, store: Store) -> None:
    await talk(session)

    def fail(_: ModelRequest) -> str:
        raise ModelUnavailable("overloaded", call={"input": 70, "callId": "lost"})

    failed = await raises(SummaryFailed, session.compact(model(fail), settings=SETTINGS), match="overloaded")
    assert isinstance(failed.value.__cause__, ModelUnavailable)
    (row,) = (await store.usage(session, group_by=("purpose", "outcome"))).rows
    assert (row.group, row.input) == ({"purpose": "compaction", "outcome": "failed"}, 70)


async def test_answers_that_all_have_the_same_id_are_all_paid_for(session: Session, store: Store) -> None:
    for number in range(3):
        await talk(session, 5, start=5 * number)
        answer = reply(input=100 + number)
        assert (await session.compact(model(lambda _, answer=answer: answer), settings=SETTINGS)).appended
    total = (await store.usage(session)).total
    assert (total.calls, total.input) == (3, 303)


async def test_cancelling_leaves_everything_as_it_was(session: Session) -> None:
    await talk(session)
    revision = session.revision
    asked = anyio.Event()

    async def hang(_: ModelRequest) -> str:
        asked.set()
        await anyio.sleep_forever()
        return ""

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: session.compact(model(hang), settings=SETTINGS))
        await asked.wait()
        tasks.cancel_scope.cancel()
    assert (await session.refresh()).revision == revision
    assert (await session.compact(mode="window", settings=SETTINGS)).appended


async def test_a_mode_of_ones_own_is_given_what_leaves_and_what_stays(session: Session) -> None:
    ids = await talk(session)
    given: list[Material] = []

    class First:
        name = "first"
        needs_model = False

        async def make(self, material: Material, asker: Asker | None) -> Made:
            assert asker is None
            given.append(material)
            return Made("the first thing", self.name, {"kept": 1}, ("something was odd",))

    done = await session.compact(mode=First(), settings=SETTINGS)
    assert (done.mode, done.notes, done.reason) == ("first", ("something was odd",), None)
    assert [item.entry_id for item in given[0].leaving] == ids[:16]
    assert [item.entry_id for item in given[0].staying] == ids[16:]
    assert existing(await session.compactions.latest()).fields["details"] == {"kept": 1, "registered": []}


async def test_window_leaves_messages_out_and_puts_nothing_in_their_place(session: Session) -> None:
    ids = await talk(session)
    done = await session.compact(mode="window", settings=SETTINGS)
    assert (done.summary, done.tokens_after) == ("", counted(await session.build_context_entries()))
    assert [item.entry_id for item in await session.build_context_entries()] == ids[16:]
    more = await talk(session, 2, start=10)
    done = await session.compact(mode="window", settings=SETTINGS)
    shown = await session.build_context_entries()
    assert [item.entry_id for item in shown] == more
    assert shown[0].role == "user"
    assert [each["content"] for each in await session.build_context()] == [item.data["content"] for item in shown]
    entry = existing(await session.compactions.latest())
    details = entry.fields["details"]
    assert isinstance(details, dict)
    dropped = {"messages": 20, "firstEntryId": ids[0], "lastEntryId": ids[19]}
    assert (entry.id, details["dropped"], entry_text(entry)) == (done.entry_id, dropped, "20 messages are left out")
    assert (await session.compact(mode="window", settings=SETTINGS)).reason == "no_cut_point"
    await session.compactions.uncompact()
    assert [item.entry_id for item in await session.build_context_entries()] == [*ids[16:], *more]


async def test_window_says_nothing_of_a_range_that_it_takes_over(session: Session) -> None:
    ids = await talk(session)
    for settings in (None, SETTINGS):
        done = await session.compactions.compact_range(ids[10], ids[12], mode="window")
        assert done.summary == f"[3 earlier messages are not shown here: entries {ids[10]} to {ids[12]}]"
        if settings is None:
            await session.undo()
            await session.compact(mode="window", settings=CompactionSettings(keep_recent_tokens=700))
    done = await session.compact(mode="window", settings=SETTINGS)
    assert (done.summary, [item.entry_id for item in await session.build_context_entries()]) == ("", ids[16:])


async def test_window_keeps_an_earlier_summary_and_what_is_pinned(session: Session) -> None:
    ids = await talk(session)
    await session.marks.pin(ids[3])
    assert (await session.compact(mode="window", settings=SETTINGS)).summary == ""
    shown = [item.entry_id for item in await session.build_context_entries()]
    assert shown == [ids[3], *ids[16:]]
    await session.marks.unpin(ids[3])
    await talk(session, 2, start=10)
    assert said_by(await session.compact(model(lambda _: "told"), settings=SETTINGS)) == "told"
    more = await talk(session, 2, start=12)
    done = await session.compact(mode="window", settings=SETTINGS)
    assert done.summary is not None
    assert done.summary.startswith("told")
    assert "not shown" not in done.summary
    assert [item.entry_id for item in await session.build_context_entries()] == [done.entry_id, *more]
    assert await session.build_context() == [item.data for item in await session.build_context_entries()]


async def test_window_keeps_what_its_budget_says_and_eighty_thousand_where_nobody_does(store: Store) -> None:
    long: list[JsonObject] = [each for n in range(100) for each in (user(f"{n}" + "u" * 3_996), answer("a" * 4_000))]
    calls: list[JsonObject] = [user("u" * 4_000)]
    for n in range(100):
        made: JsonObject = {"type": "toolCall", "id": f"c{n}", "name": "bash", "arguments": {}}
        calls += [{"role": "assistant", "content": [made]}]
        calls += [{"role": "toolResult", "toolCallId": f"c{n}", "content": "r" * 4_000}]
    wrong = []
    for name, said, settings, window, least, most in (
        ("default", long, CompactionSettings(), None, 78_000, 80_000),
        ("default, no settings", long, None, None, 78_000, 80_000),
        ("said", long, CompactionSettings(keep_recent_tokens=80_000), None, 78_000, 80_000),
        ("other settings", long, CompactionSettings(reserve_tokens=1_000), None, 78_000, 80_000),
        ("60,000", long, CompactionSettings(keep_recent_tokens=60_000), None, 58_000, 60_000),
        ("20,000", long, CompactionSettings(keep_recent_tokens=20_000), None, 18_000, 20_000),
        # Bytes / 3 of an unknown model, below 40,000 less the reserve.
        ("a small window", long, CompactionSettings(), 40_000, 18_000, 23_000),
        ("a large window", long, CompactionSettings(), 1_000_000, 78_000, 80_000),
        ("one turn", calls, CompactionSettings(keep_recent_tokens=20_000), None, 18_000, 20_000),
        ("all fits", long[:60], CompactionSettings(), None, 0, 60_000),
    ):
        session = await store.create_session()
        await session.append_messages(said)
        done = await session.compact(mode="window", settings=settings, window=window)
        shown = await session.build_context()
        tokens = (await session.context.measure(faithful=True)).messages
        if not least <= tokens <= most or (done.reason is None) != (name != "all fits"):
            wrong.append((name, tokens, done.reason))
        if shown[0]["role"] != "user":
            wrong.append((name, shown[0]))
        wrong += [(name, target) for target in ("anthropic", "gemini") if (await session.request(target)).broken]
    assert wrong == []


async def test_what_is_pinned_after_it_was_summarized_is_counted_where_it_comes_back(session: Session) -> None:
    [first, *_] = await talk(session)
    summary = existing((await session.compact(mode="window", settings=SETTINGS)).entry_id)
    await session.compactions.uncompact()
    await session.compact(mode="window", settings=SETTINGS)
    for entry_id in (first, summary):
        await session.marks.pin(entry_id)
    await talk(session, 4, start=10)
    planned = await session.compactions.plan(mode="window", settings=SETTINGS)
    priced = await session.compactions.price(flue_py.Compact("window", SETTINGS))
    done = await session.compact(mode="window", settings=SETTINGS)
    items = await session.build_context_entries()
    # The compaction itself says nothing that could be kept.
    assert ([item.entry_id for item in items].count(summary), items[0].entry_id) == (0, first)
    size = counted(items)
    assert done.tokens_after == priced.tokens_after == size
    assert planned.planned is not None
    assert done.planned is not None
    for each in (planned.planned, done.planned):
        assert [item.entry_id for item in each.staying] == [item.entry_id for item in items]
    assert planned.tokens_staying == done.tokens_staying == size
    assert (await session.compact(mode="window", settings=SETTINGS)).reason == "no_cut_point"


async def test_what_comes_back_can_make_a_compaction_larger_than_what_it_stands_for(session: Session) -> None:
    huge = (await session.append_message(user("x" * 90_000))).entry_id
    await talk(session)
    await session.compact(mode="window", settings=SETTINGS)
    await session.marks.pin(huge)
    await talk(session, 4, start=10)
    before = await session.build_context()
    assert (await session.compact(mode="window", settings=SETTINGS)).reason == "not_smaller"
    assert (await session.compactions.price(flue_py.Compact("window", SETTINGS))).never == "nothing_to_do"
    assert await session.build_context() == before


async def test_a_context_that_pins_leave_too_large_is_noted(session: Session) -> None:
    huge = (await session.append_message(user("x" * 12_000))).entry_id
    await session.marks.pin(huge)
    await talk(session, 40)

    done = await session.compact(mode="window", settings=SETTINGS, window=4_000)

    assert done.appended is not None
    assert done.tokens_after is not None
    assert done.notes[-1].startswith(f"the context still takes {done.tokens_after:,} tokens, ")
    assert f": {done.tokens_staying:,} of them stay word for word" in done.notes[-1]
    await session.marks.unpin(huge)
    await talk(session, 40)
    assert (await session.compact(mode="window", settings=SETTINGS, window=4_000)).notes == ()


async def test_what_is_kept_fits_into_the_window(session: Session) -> None:
    await talk(session, 40)
    kept = CompactionSettings()
    assert (await session.compactions.plan(settings=kept)).reason == "no_cut_point"
    planned = await session.compactions.plan(settings=kept, window=2_000)
    assert planned.planned is not None
    # Half of what is left beside the reserve, and at most one message more.
    assert 750 <= planned.tokens_staying < 750 + 75


async def test_a_message_that_leaves_no_room_for_a_summary_is_not_kept_for_being_new(session: Session) -> None:
    await talk(session, 4)
    await session.append_message(user("x" * 3 * 7_000))
    newer = await talk(session, 2, start=4)
    for settings in (SETTINGS, CompactionSettings(keep_recent_tokens=2_000)):
        planned = existing((await session.compactions.plan(settings=settings, window=8_000)).planned)
        assert planned.first_kept_entry_id in newer
    done = await session.compact(mode="intent", window=8_000)
    assert done.tokens_after is not None
    assert done.tokens_after < 6_000
    assert (await session.compact(mode="intent", window=8_000)).reason == "no_cut_point"
    # As the newest message it is what the next call is about.
    await session.append_message(user("y" * 3 * 7_000))
    planned = existing((await session.compactions.plan(window=8_000)).planned)
    assert planned.first_kept_entry_id == session.leaf_id


@inputs(
    ("arguments", "message"),
    [
        ({"mode": "lmm"}, "mode: there is no 'lmm'; choose one of llm, "),
        ({"mode": 7}, "mode: 7 is neither the name of a mode nor a mode"),
        ({"mode": "llm"}, "model: mode 'llm' asks a model; give one, or choose a mode that needs none"),
        ({"model": print}, "is not a model; use flue_py.models.open_model, or FunctionModel for a function"),
        ({"settings": {}}, "settings: should be CompactionSettings, not {}"),
    ],
)
async def test_wrong_arguments_say_what_to_do(session: Session, arguments: dict[str, object], message: str) -> None:
    await talk(session)
    refused = await raises(InvalidArgument, session.compact(**{"settings": SETTINGS, **arguments}))  # type: ignore[arg-type]
    assert message in str(refused.value)


async def asked_later(_: ModelRequest) -> str:
    await anyio.lowlevel.checkpoint()
    return "from a loop"


def compact_blocking(answer: Answer, text: str, *, threads: bool) -> None:
    with flue_py.sync.open(":memory:", threads=threads) as store:
        session = store.create_session()
        for number in range(20):
            session.append_message(user(f"question {number} " + "q" * 200))
        done = session.compact(model(answer), settings=SETTINGS)
        assert (said_by(done), done.entry_id) == (text, session.leaf_id)
        assert store.verify().problems == []


@inputs(("answer", "text"), [(lambda _: "plain", "plain"), (asked_later, "from a loop")])
@inputs("threads", [False, True])
def test_the_blocking_twin_takes_plain_and_async_models(answer: Answer, text: str, threads: bool) -> None:
    compact_blocking(answer, text, threads=threads)


async def test_the_blocking_twin_asks_where_an_event_loop_runs() -> None:
    compact_blocking(asked_later, "from a loop", threads=False)


async def test_a_summary_is_told_what_stored_calls_changed_whatever_the_context_shows(session: Session) -> None:
    def call(at: int, name: str, **arguments: str) -> JsonObject:
        return {
            "role": "assistant",
            "agent": "Dev",
            "content": [{"type": "toolCall", "id": f"c{at}", "name": name, "arguments": {**arguments}}],
        }

    def result(at: int, *, failed: bool = False) -> JsonObject:
        return {"role": "toolResult", "toolCallId": f"c{at}", "content": "x" * 400, "isError": failed}

    work = [
        *(user("go"), call(1, "write_file", path="core.py"), result(1)),
        *(call(2, "patch_file", path="auth.py"), result(2, failed=True)),
        *(call(3, "shell_run", command="make"), result(3), call(4, "git_commit", message="done"), result(4)),
    ]
    await session.append_messages(work)
    await talk(session)
    # The calls are in no context any more.
    assert (await session.compact(mode="window", settings=SETTINGS)).appended
    await session.append_messages([user("more"), call(5, "edit", path="late.py"), result(5)])
    await talk(session, 4, start=10)
    asked: list[str] = []

    def answer(request: ModelRequest) -> str:
        asked.append(str(request.messages))
        return "told"

    changed = ("core.py", "[OK]", "done", "late.py")
    for mode in (Llm(), Hybrid(), Llm(template="Believe {{$change_log}}")):
        await session.compact(model(answer), mode=mode, settings=SETTINGS)
        log = asked[-1].partition("<change-log>")[2].partition("</change-log>")[0]
        assert [each for each in changed if each not in log] == []
        assert "auth.py" not in log
        await session.undo()
    await session.compact(model(answer), mode=Llm(change_log=lambda: "mine"), settings=SETTINGS)
    assert "<change-log>\\nmine\\n</change-log>" in asked[-1]
    assert "core.py" not in asked[-1].partition("<change-log>")[2]


# -- Compacting a session again and again, with what its handle returns -----------------------------------------------


LARGE_WINDOW = 240_000
TIGHT = compaction.CompactionSettings(reserve_tokens=10_000, keep_recent_tokens=2)


async def complete(request: compaction.SummaryRequest) -> compaction.SummaryReply:
    """Summarize without a model."""
    return compaction.SummaryReply(f"summary of {request.kind}", {"prompt_tokens": 100, "completion_tokens": 9})


async def test_every_compaction_plans_on_the_latest_one_and_is_not_due_again_at_once(session: Session) -> None:
    kinds = []
    for round_ in range(3):
        await session.append_message({"role": "user", "content": f"{round_} " + "w " * 400})
        usage = {"input_tokens": 239_000, "output_tokens": 1_000}
        await session.append_message({"role": "assistant", "content": "a " * 400, "usage": usage})
        await session.append_message({"role": "user", "content": "and now?"})
        items = await session.build_context_entries()
        size = compaction.estimate_context_tokens(items)
        assert size.usage_tokens == 240_000
        assert compaction.should_compact(size.tokens, LARGE_WINDOW, TIGHT)
        found = compaction.plan_session_compaction(items, await session.compactions.latest(), TIGHT)
        assert isinstance(found, compaction.SessionCompactionPlan)
        assert found.plan.tokens_before == size.tokens
        summary = await compaction.summarize(found.plan, complete)
        kinds.append(summary.calls[0].kind)
        await session.append_compaction(
            summary.text,
            first_kept_entry_id=found.first_kept_entry_id,
            tokens_before=size.tokens,
            details=summary.details,
            calls=summary.usages,
        )
        after = compaction.estimate_context_tokens(await session.build_context_entries())
        assert (after.usage_tokens, after.last_usage_index) == (0, None)
        assert after.tokens < 1_000
        assert not compaction.should_compact(after.tokens, LARGE_WINDOW, TIGHT)
        plain = compaction.estimate_context_tokens(await session.build_context())
        assert plain.tokens == after.tokens
    assert kinds == ["initial", "update", "update"]


async def test_what_the_latest_compaction_had_pinned_is_read_from_its_entry(session: Session) -> None:
    pinned = await session.append_message({"role": "user", "content": "keep me"})
    await session.marks.pin(pinned.entry_id)
    for round_ in range(2):
        for number in range(3):
            await session.append_message({"role": "user", "content": f"{round_}.{number} " + "w " * 400})
            await session.append_message({"role": "assistant", "content": "a " * 400})
        items = await session.build_context_entries()
        latest = await session.compactions.latest()
        found = compaction.plan_session_compaction(items, latest, TIGHT, pinned=await session.marks.pins())
        assert isinstance(found, compaction.SessionCompactionPlan)
        summarized = [message.get("content") for message in found.plan.messages_to_summarize]
        assert "keep me" not in summarized
        await session.append_compaction("s", first_kept_entry_id=found.first_kept_entry_id, tokens_before=1)


CALLS: dict[str, Any] = {
    "role": "assistant",
    "content": [{"type": "toolCall", "id": name, "name": "read", "arguments": {}} for name in ("a", "b")],
}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": call_id, "toolName": "read", "content": "done"}


@pytest.mark.parametrize("kept", ["first", "second", "repeated"])
async def test_a_compaction_keeps_the_call_of_a_result_that_it_keeps(session: Session, kept: str) -> None:
    said = [{"role": "user", "content": "Look."}, CALLS, *map(result, ("a", "b", "b")), {"role": "user", "content": ""}]
    _, called, *results = (await session.append_messages(said)).entry_ids
    first_kept = dict(zip(("first", "second", "repeated"), results, strict=False))[kept]

    async def compact(**options: Any) -> Appended:
        return await session.append_compaction("so far", first_kept_entry_id=first_kept, tokens_before=9, **options)

    made = await compact(idempotency_key="k")
    (told,) = made.oddities
    assert f"{called!r}" in told
    assert f"{first_kept!r}" in told
    assert [message["role"] for message in await session.build_context()][1:3] == ["assistant", "toolResult"]
    await session.append_message({"role": "user", "content": "and now?"})
    again = await compact(idempotency_key="k")
    assert (again.replayed, again.entry_ids) == (True, made.entry_ids)
    assert (await compact(keep_exchanges_whole=False)).oddities == ()
    assert (await session.build_context())[1]["role"] == "toolResult"


async def test_a_compaction_keeps_a_call_whose_result_is_to_come(session: Session) -> None:
    called, after = (await session.append_message(CALLS), await session.append_custom("note", {"of": "the program"}))
    made = await session.append_compaction("so far", first_kept_entry_id=after.entry_id, tokens_before=9)
    assert called.entry_id in made.oddities[0]
    await session.append_messages([result("a"), result("b")])
    roles = [message["role"] for message in await session.build_context()]
    assert roles == ["user", "assistant", "toolResult", "toolResult"]


async def test_a_compaction_leaves_a_pinned_call_where_it_is_kept_anyway(session: Session) -> None:
    await session.append_message({"role": "user", "content": "Look."})
    called = await session.append_message(CALLS)
    first, second = (await session.append_messages([result("a"), result("b")])).entry_ids
    await session.marks.pin(called.entry_id)
    made = await session.append_compaction("so far", first_kept_entry_id=second, tokens_before=9)
    assert made.oddities == ()
    roles = [message["role"] for message in await session.build_context()]
    assert roles == ["user", "assistant", "toolResult", "toolResult"]
    assert first != second
