"""A hook before a compaction: it goes on, cancels, or gives the text itself, which is then as safe as a mode's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

import flue_py
import flue_py.sync
from flue_py import InvalidArgument, Session, Store, SummaryFailed
from flue_py.compaction import CompactionSettings
from flue_py.compaction.material import AboutToCompact, Cancelled, HookSummary
from flue_py.compaction.modes import Intent, make_text
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.model import FunctionModel, ModelRequest
from tests.checks import raises
from tests.sessions.talk import answer, talk, user
from tests.tables import inputs
from tests.values import existing

SETTINGS = CompactionSettings(keep_recent_tokens=290, user_words_share=0)
"""Two turns of `talk`."""
USAGE: JsonObject = {"input": 900, "output": 40, "provider": "house", "model": "small", "callId": "call-1"}


def never(_: ModelRequest) -> str:
    raise AssertionError


def model(answer: Callable[[ModelRequest], str] = never) -> FunctionModel:
    return FunctionModel(answer, "small", context_window=200_000)


def reading(call_id: str, path: str) -> list[JsonObject]:
    call: JsonObject = {"type": "toolCall", "id": call_id, "name": "read", "arguments": {"path": path}}
    return [
        {"role": "assistant", "content": [call], "stopReason": "toolUse"},
        {"role": "toolResult", "toolCallId": call_id, "toolName": "read", "content": "r" * 200},
    ]


async def compacted(session: Session, answer: str | HookSummary) -> Mapping[str, JsonValue]:
    done = await session.compact(model(), settings=SETTINGS, before_compaction=lambda _: answer)
    assert done.reason is None
    assert done.entry_id is not None
    entry = existing(await session.get_entry(done.entry_id))
    return entry.fields


async def test_a_hook_is_asked_about_the_plan(session: Session) -> None:
    ids = await talk(session)
    asked: list[AboutToCompact] = []

    def hook(about: AboutToCompact) -> None:
        asked.append(about)

    done = await session.compact(
        model(lambda _: "short"), settings=SETTINGS, instructions="mind the tests", before_compaction=hook
    )
    (about,) = asked
    assert [item.entry_id for item in about.leaving] == ids[:-4]
    assert [item.entry_id for item in about.staying] == ids[-4:]
    assert about.planned.first_kept_entry_id == ids[-4]
    assert (about.mode, about.instructions, about.previous_summary) == ("llm", "mind the tests", None)
    assert (about.trigger, about.reason) == ("demand", "asked for")
    assert (about.tokens_before, about.tokens_staying) == (done.tokens_before, done.tokens_staying)
    assert about.counter == done.counter
    assert about.material.window == 200_000
    assert (done.mode, done.from_hook) == ("llm", False)
    assert "fromHook" not in (await session.get_active_path())[-1].fields


async def test_a_hook_gives_the_text(session: Session) -> None:
    await session.marks.register("rules", "Never push to main.")
    ids = await talk(session)
    done = await session.compact(
        model(), settings=SETTINGS, before_compaction=lambda _: HookSummary("the whole story", {"ticket": 7})
    )
    assert (done.reason, done.mode, done.from_hook) == (None, "hook", True)
    assert done.tokens_freed > 0
    compaction, *kept = await session.build_context_entries()
    assert compaction.entry_id == done.entry_id == session.leaf_id
    assert [item.entry_id for item in kept] == ids[-4:]
    said = str(compaction.data["content"])
    assert "the whole story" in said
    assert "Never push to main." in said
    fields = compaction.entry.fields
    assert fields["fromHook"] is True
    details = fields["details"]
    assert isinstance(details, dict)
    assert (details["ticket"], details["mode"], details["turns"]) == (7, "hook", 8)
    assert details["originals"] == [ids[0], ids[-5]]
    assert [text.name for text in await session.marks.registered()] == ["rules"]
    assert (await session.compactions.recall(done.entry_id, "question 3")).hits[0].entry_id == ids[6]

    assert (await session.compactions.uncompact()) is not None
    assert [item.entry_id for item in await session.build_context_entries()] == ids
    await session.undo()
    await session.undo()
    assert [item.entry_id for item in await session.build_context_entries()] == ids


async def test_a_hook_cancels(session: Session) -> None:
    await talk(session)
    before, revision = await session.build_context(), session.revision
    done = await session.compact(
        model(), settings=SETTINGS, before_compaction=lambda _: Cancelled("a release is being made")
    )
    assert (done.reason, done.appended) == ("cancelled", None)
    assert done.notes == ("a hook cancelled it: a release is being made",)
    assert done.planned is not None
    unexplained = await session.compact(model(), settings=SETTINGS, before_compaction=lambda _: Cancelled())
    assert unexplained.notes == ("a hook cancelled it",)
    assert (await session.build_context(), (await session.refresh()).revision) == (before, revision)


async def test_a_hook_that_fails_or_is_ended_changes_nothing(session: Session) -> None:
    await talk(session)
    before, revision = await session.build_context(), session.revision

    def fails(_: AboutToCompact) -> None:
        raise KeyError("ticket")

    await raises(KeyError, session.compact(model(), settings=SETTINGS, before_compaction=fails), match="ticket")
    with anyio.CancelScope() as scope:

        async def ended(_: AboutToCompact) -> str:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
            return "short"

        await session.compact(model(), settings=SETTINGS, before_compaction=ended)
    assert scope.cancelled_caught
    with pytest.raises(SummaryFailed, match="it gave no text"):
        await session.compact(model(), settings=SETTINGS, before_compaction=lambda _: " \n")
    assert (await session.build_context(), (await session.refresh()).revision) == (before, revision)


async def test_a_text_that_is_not_smaller_is_refused_and_what_it_cost_is_not_lost(
    session: Session, store: Store
) -> None:
    await talk(session)
    revision = session.revision
    long = HookSummary("x y " * 4_000, calls=[USAGE])
    done = await session.compact(model(), settings=SETTINGS, before_compaction=lambda _: long)
    assert (done.reason, done.from_hook, done.appended) == ("not_smaller", True, None)
    assert (await session.refresh()).leaf_id != done.entry_id
    assert [call["callId"] for call in done.calls] == ["call-1"]
    assert (await store.usage(session, purpose="compaction")).total.input == 900
    assert revision <= session.revision


async def test_what_a_hook_paid_is_of_its_compaction_and_counted_once(session: Session, store: Store) -> None:
    await talk(session)
    before = session.leaf_id
    await session.money.record_call(
        {"input": 900, "output": 40}, provider="house", model="small", call_id="call-1", purpose="compaction"
    )
    await compacted(session, HookSummary("short", calls=[USAGE]))
    window = await session.money.aggregate_usage_since(before)
    assert (window.calls, window.usage.input) == (1, 900)
    assert (await store.usage(session, purpose="compaction")).total.calls == 1


async def test_the_next_compaction_takes_over_the_text_and_nothing_of_the_details(session: Session) -> None:
    await session.append_messages([user("Look."), *reading("c1", "a.py"), answer("Done. " * 40)])
    await talk(session, 6)
    details: JsonObject = {
        "readFiles": ["hook.py"],
        "modifiedFiles": [],
        "userWords": {"said": "?"},
        "inherited": [0, 3],
    }
    first = await compacted(session, HookSummary("what the hook said", details))
    stored = first["details"]
    assert isinstance(stored, dict)
    assert stored["readFiles"] == ["hook.py"]
    assert stored["userWords"] == {"said": "?"}

    await session.append_messages([user("And b?"), *reading("c2", "b.py"), answer("Done. " * 40)])
    await talk(session, 4)
    asked: list[AboutToCompact] = []
    done = await session.compact(mode="intent", settings=SETTINGS, before_compaction=asked.append)
    assert asked[0].previous_summary == first["summary"]
    assert done.summary is not None
    assert done.summary.count("what the hook said") == 1
    assert "b.py" in done.summary
    assert "hook.py" not in done.summary
    later = (await session.get_active_path())[-1].fields["details"]
    assert isinstance(later, dict)
    assert later["readFiles"] == ["b.py"]
    assert "covers turns 6–10" in done.summary


async def test_the_files_of_a_compaction_that_a_program_appended_are_carried_on(session: Session) -> None:
    ids = await talk(session, 6)
    for from_hook in (False, True):
        await session.append_compaction(
            "short", first_kept_entry_id=ids[4], tokens_before=9, details={"readFiles": ["x.py"]}, from_hook=from_hook
        )
        planned = existing((await session.compactions.plan(settings=SETTINGS)).planned)
        assert planned.plan.read_files == (() if from_hook else ("x.py",))
        await session.undo()


async def test_what_happens_while_a_hook_thinks(session: Session) -> None:
    ids = await talk(session)

    async def writes(_: AboutToCompact) -> str:
        await session.append_message(user("meanwhile"))
        return "short"

    async def moves(_: AboutToCompact) -> str:
        await session.move_leaf(ids[3])
        return "short"

    done = await session.compact(model(), settings=SETTINGS, before_compaction=writes)
    assert done.reason is None
    assert (await session.build_context())[-1]["content"] == "meanwhile"
    await session.undo()
    assert (await session.compact(model(), settings=SETTINGS, before_compaction=moves)).reason == "leaf_moved"
    assert await session.compactions.latest() is None


async def test_a_hook_may_have_a_mode_make_a_text(session: Session) -> None:
    await talk(session)

    async def hook(about: AboutToCompact) -> str:
        return "As told by a hook.\n\n" + (await make_text(Intent(), about.material, None)).text

    done = await session.compact(model(), settings=SETTINGS, before_compaction=hook)
    assert done.summary is not None
    assert done.summary.startswith("As told by a hook.\n\n[COMPACTION WARNING: nothing in it calls a tool")
    assert "\n\n[INTENT-DERIVED RECONSTRUCTION" in done.summary


async def test_a_range_has_a_hook_too(session: Session) -> None:
    ids = await talk(session)
    done = await session.compactions.compact_range(ids[2], ids[5], model(), before_compaction=lambda _: "a detour")
    assert (done.reason, done.from_hook) == (None, True)
    items = await session.build_context_entries()
    assert [item.entry_id for item in items] == [*ids[:2], done.entry_id, *ids[6:]]
    assert items[2].entry.fields["fromHook"] is True
    assert (
        await session.compactions.compact_range(ids[6], ids[7], model(), before_compaction=lambda _: Cancelled())
    ).notes


async def test_nobody_is_asked_where_nothing_is_done(session: Session) -> None:
    def hook(_: AboutToCompact) -> str:
        raise AssertionError

    assert (await session.compact(model(), before_compaction=hook)).reason == "no_cut_point"
    await talk(session)
    done = await session.compact(model(), settings=SETTINGS, dry_run=True, before_compaction=hook)
    assert done.reason == "dry_run"


@inputs("answer", [7, True, b"short", {"text": "short"}])
async def test_answers_that_are_none_are_refused(session: Session, answer: object) -> None:
    await talk(session)
    with pytest.raises(InvalidArgument, match="before_compaction: answered"):
        await session.compact(model(), settings=SETTINGS, before_compaction=lambda _: answer)  # type: ignore[arg-type,return-value]
    await raises(InvalidArgument, session.compact(model(), before_compaction=7), match="before_compaction")  # type: ignore[arg-type]


def test_summaries_that_make_no_sense_are_refused() -> None:
    for given, named in (
        ({"text": 7}, "text"),
        ({"text": "x", "details": 7}, "details"),
        ({"text": "x", "details": {"turns": 3}}, "details: 'turns' is written"),
        ({"text": "x", "calls": {"input": 3}}, "calls"),
    ):
        with pytest.raises(InvalidArgument, match=named):
            HookSummary(**given)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="reason"):
        Cancelled(3)  # type: ignore[arg-type]


@inputs("threads", [False, True])
def test_hooks_without_a_loop(tmp_path: Path, *, threads: bool) -> None:
    with flue_py.sync.open(tmp_path / "sessions.db", threads=threads) as store:
        session = store.create_session()
        for number in range(10):
            session.append_messages([user(f"question {number} " + "q" * 200), answer("a" * 200)])
        done = session.compact(mode="intent", settings=SETTINGS, before_compaction=lambda _: "plain")
        assert (done.summary, done.from_hook) == ("plain", True)
        session.undo()

        async def hook(about: AboutToCompact) -> str:
            await anyio.lowlevel.checkpoint()
            return f"async, of {len(about.leaving)}"

        assert session.compact(mode="intent", settings=SETTINGS, before_compaction=hook).summary == "async, of 16"
        assert store.verify().problems == []
