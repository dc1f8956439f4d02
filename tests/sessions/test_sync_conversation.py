"""The blocking twins of a conversation and of a summary do what the awaited ones do."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import flue_py
from flue_py import JsonObject, sync
from flue_py.compaction import (
    CompactionSettings,
    SessionCompactionPlan,
    SummaryReply,
    SummaryRequest,
    plan_session_compaction,
)
from flue_py.core.jsontext import JsonValue
from flue_py.errors import LeafConflict, SummaryFailed
from flue_py.runtime.conversation import Conversation as AsyncConversation
from flue_py.sync.compaction import summarize
from flue_py.sync.conversation import Conversation
from tests.sessions.talk import assistant, texts, user


@pytest.fixture(params=[None, True], ids=["on this thread", "on a loop"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.Store]:
    with flue_py.sync.open(tmp_path / "s.db", threads=request.param) as opened:
        yield opened
        assert opened.verify().problems == []


@pytest.fixture
def talk(store: sync.Store) -> Conversation:
    session = store.create_session(key="talk", title="Red build")
    for n in (1, 2):
        session.append_messages([user(f"question {n}"), assistant(f"answer {n}")])
    return Conversation(store, session)


def answer(context: list[JsonObject]) -> Sequence[Mapping[str, JsonValue]]:
    return [assistant(f"answer {len(context)}")]


def test_a_conversation_has_everything_that_the_awaited_one_has() -> None:
    for name, member in vars(AsyncConversation).items():
        if not name.startswith("_"):
            assert inspect.getdoc(getattr(Conversation, name)), name
            assert not inspect.iscoroutinefunction(getattr(Conversation, name))
            if name != "take_turn":
                theirs = list(inspect.signature(member).parameters)
                assert list(inspect.signature(getattr(Conversation, name)).parameters) == theirs, name


def test_a_conversation_goes_on_back_and_elsewhere(talk: Conversation) -> None:
    assert [message["role"] for message in talk.take_turn("question 3", answer)] == ["assistant"]
    assert talk.last() == "answer 5"
    assert talk.rewind(2).kept == 2
    assert texts(talk.session.get_active_path()) == ["question 1", "answer 1", "question 2", "answer 2"]
    fork = talk.fork(switch=True)
    assert isinstance(fork, sync.Session)
    assert talk.session.id == fork.id
    assert talk.switch("talk")
    assert talk.session.key == "talk"
    assert isinstance(talk.find(fork.id), sync.Session)
    assert {listed.info.id for listed in talk.sessions()} == {fork.id, talk.session.id}


def test_a_turn_whose_model_fails_leaves_nothing(talk: Conversation) -> None:
    def fail(_: list[JsonObject]) -> Sequence[Mapping[str, JsonValue]]:
        raise OSError("no answer")

    with pytest.raises(OSError, match="no answer"):
        talk.take_turn("question 3", fail)
    assert len(talk.turns()) == 2


def test_another_writer_is_seen_before_the_model_is_called(store: sync.Store, talk: Conversation) -> None:
    store.find_session("talk").append_message(user("from elsewhere"))
    with pytest.raises(LeafConflict):
        talk.take_turn("question 3", answer)
    assert talk.take_turn("question 3", answer)


def test_a_summary_is_made_by_a_plain_function(talk: Conversation) -> None:
    asked: list[SummaryRequest] = []

    def complete(request: SummaryRequest) -> SummaryReply:
        asked.append(request)
        return SummaryReply("what was said")

    found = plan_session_compaction(
        talk.session.build_context_entries(), None, CompactionSettings(reserve_tokens=10_000, keep_recent_tokens=2)
    )
    assert isinstance(found, SessionCompactionPlan)
    assert "what was said" in summarize(found.plan, complete).text
    assert asked

    def fail(_: SummaryRequest) -> SummaryReply:
        raise OSError("no answer")

    with pytest.raises(SummaryFailed, match="no answer"):
        summarize(found.plan, fail)
