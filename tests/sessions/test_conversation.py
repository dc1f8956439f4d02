"""Conversations: what a REPL does to a history, as calls and as what its user types."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import flue_py
from flue_py import JsonObject
from flue_py.agents.conversation import COMMANDS, Conversation, Reply, run_command
from flue_py.compaction import CompactionSettings
from flue_py.core.model import FunctionModel, ModelRequest
from flue_py.errors import AmbiguousId, InvalidArgument, InvalidEntry, LeafConflict, RevisionConflict, SessionNotFound
from flue_py.sessions import housekeeping
from flue_py.sessions.housekeeping import delete_all, find_completed, find_older, find_prunable, parse_age
from tests.checks import raises
from tests.sessions.talk import assistant, texts, user
from tests.tables import inputs
from tests.values import existing

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
async def store(tmp_path: Path, anyio_backend: str) -> AsyncIterator[flue_py.Store]:
    async with flue_py.open(":memory:", clock=lambda: NOW) as opened:
        yield opened
        assert (await opened.verify()).problems == []


@pytest.fixture
async def talk(store: flue_py.Store) -> Conversation:
    """Return a conversation of a system message and three turns."""
    session = await store.create_session(
        key="talk", title="Red build", metadata={"plan": ["look"]}, cwd="/home/me/project", id="AB12cd34"
    )
    await session.append_message({"role": "system", "content": "Be brief."})
    for n in (1, 2, 3):
        await session.append_messages([user(f"question {n}"), assistant(f"answer {n}")])
    return Conversation(store, session, clock=lambda: NOW)


async def said(talk: Conversation) -> list[str]:
    return texts(await talk.session.get_active_path())


async def typed(talk: Conversation, line: str) -> str:
    return (await run_command(talk, line)).text


# -- going back -------------------------------------------------------------------------------------------------------


@inputs(
    ("line", "left", "answer"),
    [
        ("/rewind 2", 2, "Rewound to turn 2 of 3; /undo takes it back."),
        ("/rewind -1", 2, "Rewound to turn 2 of 3; /undo takes it back."),
        ("/rewind 0", 0, "Rewound to turn 0 of 3; /undo takes it back."),
        ("/rewind -9", 0, "Rewound to turn 0 of 3; /undo takes it back."),
        ("/rewind 3", 3, "Nothing to rewind: there are 3 turns."),
        ("/rewind 9", 3, "Nothing to rewind: there are 3 turns."),
        ("/rewind -0", 3, "Nothing to rewind: there are 3 turns."),
        ("/rewind", 3, "Usage: /rewind N"),
        ("/rewind --3", 3, "'--3' is not a number of turns"),
        ("/rewind soon", 3, "'soon' is not a number of turns"),
        ("/CLEAR", 0, "Cleared; /undo takes it back."),
    ],
)
async def test_rewinding_keeps_the_first_turns_and_what_came_before_them(
    talk: Conversation, line: str, left: int, answer: str
) -> None:
    assert (await typed(talk, line)).startswith(answer)
    expected = ["Be brief.", *[text for n in range(1, left + 1) for text in (f"question {n}", f"answer {n}")]]
    assert await said(talk) == expected
    if left < 3:
        assert await typed(talk, "/undo") == "Undone: there are 3 turns."
        assert await typed(talk, "/redo") == f"Done again: there are {left} turns."
        await talk.session.undo()
    assert len(await talk.turns()) == 3


async def test_a_conversation_without_turns_has_nothing_to_go_back_over(store: flue_py.Store) -> None:
    talk = Conversation(store, await store.create_session())
    lines = ["/rewind 1", "/rewind soon", "/clear", "/retry", "/undo", "/redo", "/last", "/history", "/conversation"]
    answers = [await typed(talk, line) for line in lines]
    assert [answer.split(";")[0] for answer in answers] == [
        "There are no turns to rewind.", "'soon' is not a number of turns", "There is nothing to clear.",
        "There is nothing to retry.", "There is nothing to undo.", "There is nothing to do again.",
        "There is no answer yet.", "Nothing has been said yet.", "There are no turns yet.",
    ]  # fmt: skip
    assert (await talk.retry(), await talk.last()) == (None, None)


async def test_a_retry_takes_the_last_message_back_and_gives_it_whole(talk: Conversation) -> None:
    picture: JsonObject = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    message: JsonObject = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}
    await talk.session.append_messages([message, assistant("No idea.")])
    reply = await run_command(talk, "/retry")
    assert reply == Reply("> What is this?", resend=message)
    assert len(await talk.turns()) == 3
    assert (await said(talk))[-1] == "answer 3"
    await talk.session.undo()
    assert await talk.last() == "No idea."


# -- reading ----------------------------------------------------------------------------------------------------------


async def test_the_turns_say_which_the_model_no_longer_sees(talk: Conversation) -> None:
    turns = await talk.session.turns()
    await talk.session.append_compaction("Two questions.", first_kept_entry_id=turns[2].id, tokens_before=9)
    assert [(turn.number, turn.text, turn.is_compacted) for turn in await talk.turns()] == [
        (1, "question 1", True),
        (2, "question 2", True),
        (3, "question 3", False),
    ]
    assert (await typed(talk, "/conversation")).splitlines() == [
        "2 earlier turns compacted; of what they said the model sees a summary",
        "   3  question 3",
    ]
    assert len((await typed(talk, "/conversation all")).splitlines()) == 4
    assert (await talk.rewind(1)).kept == 1
    assert [turn.is_compacted for turn in await talk.turns()] == [False]


async def test_the_last_turns_are_shown_when_a_conversation_is_taken_up(talk: Conversation) -> None:
    assert (await talk.resume_text(1)).splitlines() == ["Red build: 3 turns", "> question 3", "answer 3"]
    assert len((await talk.resume_text()).splitlines()) == 7
    assert await talk.resume_text(0) == ""
    assert await talk.resume_text(99) == await talk.resume_text()
    quiet = Conversation(talk.store, talk.session, replay=0)
    assert await quiet.resume_text() == ""
    assert (await typed(talk, "/replay 2")).splitlines()[1] == "> question 2"
    assert (await typed(talk, "/replay all")).splitlines()[0] == "> question 1"
    assert await typed(talk, "/replay some") == "Usage: /replay [N|all]"
    assert await typed(talk, "/last") == "answer 3"
    assert (await typed(talk, "/history")).splitlines()[:2] == ["> question 1", "answer 1"]
    assert texts(await talk.history(turns=1)) == ["question 3", "answer 3"]
    await raises(InvalidArgument, talk.resume_text(-1))


async def test_sessions_are_listed_newest_first_without_tasks(talk: Conversation, store: flue_py.Store) -> None:
    answer = {**assistant("so"), "model": "a-model-with-a-name-that-is-too-long"}
    other = await store.create_session(title="Other")
    await other.append_messages([user("x"), answer])
    await talk.session.tasks.create(task_id="t1")
    await store.create_session(scope="somebody else")
    listed = await talk.sessions()
    assert [(each.info.id, each.turns, each.is_current) for each in listed] == [
        (other.id, 1, False),
        (talk.session.id, 3, True),
    ]
    assert [each.info.id for each in await talk.sessions(limit=1)] == [other.id]
    lines = (await typed(talk, "/sessions")).splitlines()
    assert "a-model-with-a-name-that-is-" in lines[0]
    assert "too-long" not in lines[0]
    assert lines[1].startswith("* AB12cd34")
    assert lines[1].endswith("3 turns  0m ago  project")


async def test_saving_and_snapshots_write_private_files(
    talk: Conversation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert await typed(talk, "/save") == "Saved to conversation-AB12cd34.md."
    text = (tmp_path / "conversation-AB12cd34.md").read_text()
    assert text.startswith("# REPL Transcript\n\n**Model:** -  \n**Saved:** 2026-03-01 12:00:00 UTC\n")
    assert "**System**\n\nBe brief." in text
    assert await typed(talk, f"/save {tmp_path / 'x.md'}") == f"Saved to {tmp_path / 'x.md'}."
    assert "x.md is there already; name another file" in await typed(talk, "/save x.md")
    assert "No such file" in await typed(talk, "/save none/x.md")
    written = (await typed(talk, "/snapshot")).removeprefix("Snapshot written to ").removesuffix(".")
    state = json.loads((tmp_path / written).read_text())
    assert state == await talk.snapshot()
    assert [entry["payload"]["role"] for entry in state["entries"]][:2] == ["system", "user"]
    assert state["session"]["metadata"] == {"plan": ["look"]}
    assert {os.stat(each).st_mode & 0o777 for each in map(tmp_path.joinpath, os.listdir(tmp_path))} == {0o600}


# -- other sessions ---------------------------------------------------------------------------------------------------


async def test_a_fork_is_complete_stored_at_once_and_leaves_the_running_session_alone(talk: Conversation) -> None:
    before = await talk.session.refresh()
    reply = await typed(talk, "/fork")
    fork = await talk.find(reply.split()[2].rstrip(";"))
    assert (fork.title, fork.metadata) == ("Red build", {"plan": ["look"]})
    assert texts(await fork.get_active_path()) == await said(talk)
    assert await talk.session.refresh() == before
    assert await typed(talk, "/fork now") == "Usage: /fork [switch]"
    assert len(await talk.sessions()) == 2


async def test_a_fork_is_nobodys_task_and_keeps_what_is_the_applications_own(talk: Conversation) -> None:
    own = {"depth": 7, "taskId": "T-1"}
    await talk.session.set_metadata(own)
    task = await talk.session.tasks.create(task_id="t", metadata={"plan": 1})
    assert (await talk.fork()).metadata == own
    assert (await Conversation(talk.store, task).fork()).metadata == {"plan": 1}


async def test_a_fork_can_be_gone_on_with_at_once(talk: Conversation) -> None:
    source = talk.session
    assert await typed(talk, "/fork SWITCH") == f"Now in {talk.session.id}, a fork of this session."
    assert talk.session.id != source.id
    await talk.session.append_message(user("and now?"))
    assert len(await source.turns()) == 3


async def test_switching_says_where_it_is_and_stays_where_it_cannot(talk: Conversation, store: flue_py.Store) -> None:
    here = talk.session
    other = await store.create_session(key="other", id="ab99")
    await store.create_session(id="ab98", scope="somebody else")
    await store.create_session(id="77a")
    await store.create_session(id="77b")
    for name in ("AB12cd34", "ab12CD34", "talk"):
        assert await typed(talk, f"/switch {name}") == "Already in this session."
    assert await typed(talk, "/switch") == "Usage: /switch ID"
    assert "'nobody'" in await typed(talk, "/switch nobody")
    assert "fits several" in await typed(talk, "/switch 77")
    assert "ab98" in await typed(talk, "/switch ab98")
    assert talk.session is here
    assert await typed(talk, "/switch AB9") == "other: 0 turns"
    assert talk.session.id == other.id
    assert await typed(talk, "/switch talk") == await talk.resume_text()
    await raises(SessionNotFound, talk.switch("nobody"))
    await raises(AmbiguousId, talk.switch("77"))


async def test_deleting_spares_the_session_in_hand_and_all_means_completed(
    talk: Conversation, store: flue_py.Store
) -> None:
    done, _going_on = await store.create_session(id="done1"), await store.create_session(id="going1")
    await done.set_completed(NOW)
    await talk.session.set_completed(NOW)
    child = await store.create_session(id="child1")
    await store.link_task("child1", talk.session.id, task_id="t")
    await child.set_completed(NOW)
    for name in ("done1", "going1"):
        task = await store.create_session(scope="somebody else", id=f"task of {name}")
        await store.link_task(name, task, task_id="t")
    assert "switch to another first" in await typed(talk, "/delete talk")
    assert "switch to another first" in await typed(talk, "/delete child1")
    assert "'nobody'" in await typed(talk, "/delete nobody")
    assert await typed(talk, "/delete") == "Usage: /delete ID|all"
    assert await typed(talk, "/delete ALL") == "1 session deleted, of those that were completed."
    assert await typed(talk, "/delete going") == "1 session deleted."
    assert {each.info.id for each in await talk.sessions()} == {"AB12cd34", "child1"}
    theirs = (await store.list_sessions(scope="somebody else")).sessions
    assert {info.id for info in theirs} == {"task of done1", "task of going1"}


# -- turns ------------------------------------------------------------------------------------------------------------


@inputs("answered", [None, 5, "text", b"x", ["text"], {"role": "assistant"}])
async def test_a_model_that_answers_with_no_messages_is_told_so(talk: Conversation, answered: object) -> None:
    before = await talk.session.build_context()

    async def model(_: list[JsonObject]) -> object:
        return answered

    await raises(InvalidArgument, talk.take_turn("q", model), match="a list of messages")  # type: ignore[arg-type]
    await raises(InvalidArgument, talk.take_turn("q", answered), match="is not a function")  # type: ignore[arg-type]
    assert await talk.session.build_context() == before


async def test_a_turn_whose_answer_cannot_be_stored_or_awaited_is_taken_back(talk: Conversation) -> None:
    before = await talk.session.build_context()

    async def no_role(_: list[JsonObject]) -> list[JsonObject]:
        return [assistant("a"), {"role": "assistent", "content": "b"}]

    async def stream(_: list[JsonObject]) -> AsyncIterator[JsonObject]:
        yield assistant("a")

    await raises(InvalidEntry, talk.take_turn("q", no_role), match="assistent")
    for model in (stream, lambda _: [assistant("a")]):
        await raises(InvalidArgument, talk.take_turn("q", model), match="async function")  # type: ignore[arg-type]
    assert await talk.session.build_context() == before


async def test_a_turn_stores_the_question_first_and_then_the_answers(talk: Conversation) -> None:
    seen: list[int] = []

    async def model(context: list[JsonObject]) -> list[JsonObject]:
        other = existing(await talk.store.get_session(talk.session.id))
        seen.append(len(await other.turns()))
        return [assistant(f"I see {len(context)} messages.")]

    assert await talk.take_turn("question 4", model) == [assistant("I see 8 messages.")]
    assert seen == [4]
    assert (await said(talk))[-2:] == ["question 4", "I see 8 messages."]
    assert (await talk.session.turns())[-1].source == "prompt"


async def test_a_question_that_could_not_be_answered_is_taken_back(talk: Conversation) -> None:
    async def model(_: list[JsonObject]) -> list[JsonObject]:
        raise TimeoutError("the model did not answer")

    before = await said(talk)
    await raises(TimeoutError, talk.take_turn("question 4", model))
    assert await said(talk) == before
    await talk.session.undo()
    assert (await said(talk))[-1] == "question 4"


async def test_two_who_talk_to_one_session_lose_nothing(talk: Conversation) -> None:
    other = existing(await talk.store.get_session(talk.session.id))
    await other.append_messages([user("question 4"), assistant("answer 4")])
    await raises(LeafConflict, talk.take_turn("mine", lambda _: _answer("never asked")))
    assert (await said(talk))[-1] == "answer 4"

    async def interrupted(context: list[JsonObject]) -> list[JsonObject]:
        await other.refresh()
        await other.append_message(user("me first"))
        return [assistant(f"to {len(context)} messages")]

    await talk.take_turn("mine", interrupted)
    tree = texts(await talk.session.get_tree())
    assert {"to 10 messages", "me first"} <= set(tree)
    assert (await typed(talk, "/rewind -1")).startswith("Rewound to turn 5 of 6")
    assert (await said(talk))[-1] == "mine"


# -- commands ---------------------------------------------------------------------------------------------------------


async def test_help_lists_every_command_and_others_are_refused(talk: Conversation) -> None:
    lines = (await typed(talk, "/help")).splitlines()
    assert [line.split()[0] for line in lines] == ["/help", *(f"/{name}" for name in COMMANDS)]
    assert await typed(talk, "/dance\x1b") == "There is no command /dance\ufffd; /help lists them."
    assert (await run_command(talk, "/quit")).is_over


async def test_a_command_compacts_with_a_focus_where_there_is_a_model(talk: Conversation, store: flue_py.Store) -> None:
    asked: list[str] = []

    def summarize(request: ModelRequest) -> str:
        asked.append(str(request.messages))
        return "what was said"

    assert (await typed(talk, "/compact")).startswith("Nothing was compacted: the summary is not smaller than")
    await talk.session.append_messages([each for n in range(40) for each in (user("q" * 4_000), assistant("a" * 900))])
    assert (await typed(talk, "/compact")).startswith("Compacted from ")
    assert await typed(talk, "/undo") == "Undone: there are 43 turns."
    model = FunctionModel(summarize, "large", context_window=200_000)
    talk = Conversation(store, talk.session, summarizer=model)
    assert (await typed(talk, "/compact the build")).endswith(" tokens; /undo takes it back.")
    assert ["the build" in each for each in asked] == [True]
    assert (await talk.session.build_context())[0]["content"] != "Be brief."


async def test_a_command_lists_and_forgets_what_holds_in_the_folder(talk: Conversation, store: flue_py.Store) -> None:
    assert await typed(talk, "/memory") == "Nothing is remembered."
    await store.remember("editor", "uses vim")
    assert "editor: uses vim" in await typed(talk, "/memory")
    await store.remember("build", "make test", project="/home/me/project")
    shown = await typed(talk, "/memory")
    assert ("build" in shown, "editor" in shown) == (True, False)
    assert await typed(talk, "/memory rm editor") == "There is no memory 'editor'."
    assert await typed(talk, "/memory rm build") == "Forgot 'build'."
    assert [each.name for each in await store.memories()] == ["editor"]
    assert await typed(talk, "/memory build") == "Usage: /memory [rm NAME]"


async def test_what_a_command_shows_is_inert(talk: Conversation) -> None:
    await talk.take_turn("\x1b[2J\u202e", lambda _: _answer("\x1b]0;owned\x07"))
    for line in ("/last", "/history", "/conversation", "/replay", "/retry"):
        text = await typed(talk, line)
        assert not {"\x1b", "\u202e", "\x07"} & set(text)


async def _answer(text: str) -> list[JsonObject]:
    return [assistant(text)]


# -- housekeeping -----------------------------------------------------------------------------------------------------


@inputs(("text", "age"), [("30d", timedelta(days=30)), ("2W", timedelta(weeks=2)), (" 12h ", timedelta(hours=12))])
def test_ages_are_days_weeks_or_hours(text: str, age: timedelta) -> None:
    assert parse_age(text) == age


@inputs("text", ["", "30", "d", "-1d", "1m", "1.5d", "9999999d", "٣d"])
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not an age"):
        parse_age(text)


async def test_pruning_takes_sessions_whose_configuration_is_not_there(store: flue_py.Store) -> None:
    on_disk = {"/etc/agent.yaml", "/home/me/agent.yaml"}
    for name, config, cwd in (
        ("absolute", "/etc/agent.yaml", None),
        ("relative", "agent.yaml", "/home/me"),
        ("gone", "/etc/other.yaml", None),
        ("elsewhere", "agent.yaml", "/home/you"),
        ("empty", "", None),
        ("none", None, None),
    ):
        await store.create_session(id=name, config_path=config, cwd=cwd)
    kept = existing(await store.get_session("absolute"))
    task = await kept.tasks.create(task_id="t1")
    chosen = await find_prunable(store, is_there=on_disk.__contains__)
    assert {info.id for info in chosen} == {"gone", "elsewhere"}
    chosen = await find_prunable(store, is_there=on_disk.__contains__, without_config=True)
    assert {info.id for info in chosen} == {"gone", "elsewhere", "empty", "none"}
    ids = [info.id for info in chosen]
    for dry_run in (True, False):
        with pytest.raises(RevisionConflict):
            await delete_all(store, ids, dry_run=dry_run, expected_revision=99)
        for names, holds in ((json.loads("[5]"), ()), (ids, "hold")):
            with pytest.raises(InvalidArgument):
                await delete_all(store, names, dry_run=dry_run, despite_holds=holds)
    assert (await delete_all(store, ["gone already", *ids], dry_run=True, expected_revision=0)).session_ids
    deletion = await delete_all(store, ids)
    assert set(deletion.session_ids) == {info.id for info in chosen}
    assert {info.id for info in (await store.list_sessions()).sessions} == {"absolute", "relative", task.id}
    assert await find_completed(store) == []


async def test_cleaning_up_takes_what_is_old_with_all_its_tasks(tmp_path: Path) -> None:
    now = [NOW - timedelta(days=40)]
    async with flue_py.open(":memory:", clock=lambda: now[0]) as store:
        for name in ("old", "busy", "used"):
            session = await store.create_session(id=name)
            task = await session.tasks.create(task_id="t1")
        now[0] = NOW
        await (await store.find_session("used")).append_message(user("again"))
        await (await store.find_session("busy")).refresh()
        (link,) = await (await store.find_session("busy")).tasks.links()
        await (await store.find_session(link.child_id)).append_message(user("still at it"))
        assert task.info.kind == "task"
        assert [info.id for info in await find_older(store, timedelta(days=30), NOW)] == ["old"]
        assert await find_older(store, timedelta(days=50), NOW) == []
        assert await find_older(store, timedelta(days=999_999), NOW) == []
        assert await find_older(store.in_scope("nobody"), timedelta(days=30), NOW) == []
    assert housekeeping.DEFAULT_AGE == "30d"


async def test_what_a_provider_says_is_converted_in_a_conversation_too(talk: Conversation) -> None:
    call: JsonObject = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    answers: list[JsonObject] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
        {"role": "assistant", "content": "done"},
    ]

    async def model(_: list[JsonObject]) -> list[JsonObject]:
        return answers

    assert await talk.take_turn("go on", model) == answers
    path = await talk.session.get_active_path()
    assert [entry.role for entry in path[-4:]] == ["user", "assistant", "toolResult", "assistant"]
    assert len(await talk.session.turns()) == 4


async def test_a_question_that_became_several_entries_is_taken_back_whole(talk: Conversation) -> None:
    before = talk.session.leaf_id
    asking: JsonObject = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}, {"type": "text", "text": "and now?"}],
    }

    async def model(_: list[JsonObject]) -> list[JsonObject]:
        raise RuntimeError("no")

    await raises(RuntimeError, talk.take_turn(asking, model))
    assert talk.session.leaf_id == before


# -- making room ------------------------------------------------------------------------------------------------------


async def test_it_is_compacted_as_it_is_stored_now(talk: Conversation, store: flue_py.Store) -> None:
    settings = CompactionSettings(keep_recent_tokens=60, user_words_share=0)
    for number in range(10):
        await talk.take_turn(f"more {number} " + "x" * 200, _answers)
    before = talk.session.leaf_id
    await (await store.open_session("talk")).append_message(user("meanwhile"))
    planned = await talk.compact(mode="window", settings=settings, dry_run=True)
    assert (planned.reason, planned.entry_id, talk.session.leaf_id) == ("dry_run", None, before)
    assert planned.planned is not None
    done = await talk.compact(mode="window", settings=settings)
    assert done.entry_id == talk.session.leaf_id
    assert done.tokens_before > (done.tokens_after or 0)
    assert (await said(talk))[-2:] == ["meanwhile", "[compaction]"]
    assert any(turn.is_compacted for turn in await talk.turns())
    assert (await talk.compact(mode="window", settings=settings)).reason == "no_cut_point"


async def _answers(_: list[JsonObject]) -> list[JsonObject]:
    return [assistant("fine")]
