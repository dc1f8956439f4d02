"""Whole lists of plain objects: to each provider, and back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given

import flue_py
from flue_py import InvalidEntry, Session
from flue_py.adapters import messages as adapter
from flue_py.adapters.messages import OurMessages, ProviderList
from flue_py.core.messages import validate_message
from tests.adapters.messages.contexts import EVERYTHING, TRANSCRIPTS, context_of
from tests.effort import examples
from tests.formats.test_gemini_lists import gemini_lists, is_valid_gemini
from tests.formats.test_list_round_trips import (
    anthropic_lists,
    chat_lists,
    is_valid_anthropic,
    is_valid_chat,
    responses_lists,
    same,
)
from tests.tables import inputs

To = Callable[[Any], ProviderList]
From = Callable[..., OurMessages]
FORMS: dict[str, tuple[To, From]] = {
    "openai": (adapter.to_openai, adapter.from_openai),
    "responses": (adapter.to_responses, adapter.from_responses),
    "anthropic": (adapter.to_anthropic, adapter.from_anthropic),
    "gemini": (adapter.to_gemini, adapter.from_gemini),
}


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with flue_py.open(":memory:", prices=False) as store:
        yield await store.create_session()


forms = inputs("form", FORMS)


def back(form: str, found: ProviderList) -> OurMessages:
    beside = () if found.system is None else (found.system,)
    return FORMS[form][1](found.messages, *beside)


@forms
@inputs("name", TRANSCRIPTS)
def test_a_list_of_a_real_transcript_comes_back_as_it_was(form: str, name: str) -> None:
    to, _ = FORMS[form]
    sent = to(context_of(name))
    assert sent.messages
    ours = back(form, sent)
    assert all(validate_message(each) for each in ours.messages)
    again = to(ours)
    assert same(again.messages, sent.messages)
    assert same(again.system, sent.system)
    assert again.notes == ()


@inputs("name", TRANSCRIPTS)
def test_a_list_of_a_real_transcript_is_one_that_the_provider_takes(name: str) -> None:
    context = context_of(name)
    assert is_valid_anthropic(adapter.to_anthropic(context).messages)
    assert is_valid_chat(adapter.to_openai(context).messages)
    assert is_valid_gemini(adapter.to_gemini(context).messages)


@examples(15)
@given(chat_lists(), responses_lists(), anthropic_lists(), gemini_lists())
def test_any_list_comes_back_as_it_was(
    chat: list[Any], items: list[Any], anthropic: list[Any], contents: list[Any]
) -> None:
    for form, given_list in zip(FORMS, (chat, items, anthropic, contents), strict=True):
        to, read = FORMS[form]
        before = json.dumps(given_list)
        found = to(read(given_list))
        assert same(found.messages, given_list)
        assert found.notes == ()
        assert json.dumps(given_list) == before


@forms
def test_what_a_provider_has_a_place_for_comes_back(form: str) -> None:
    sent = FORMS[form][0](EVERYTHING)
    found = back(form, sent).messages
    texts = json.dumps(found)
    for said in ("Be brief.", "red?", "I look.", "build.log", "TIMEOUT", "times out", "And this?", "ls", "A plan"):
        assert said in texts
    assert [each["role"] for each in found if each["role"] in ("system", "toolResult")] == [
        "system", "toolResult", "toolResult",
    ]  # fmt: skip
    calls = [part for each in found if isinstance(each["content"], list) for part in each["content"]]
    named = [
        (part["name"], part["arguments"]) for part in calls if isinstance(part, dict) and part["type"] == "toolCall"
    ]
    assert named == [("read", {"path": "build.log"}), ("show", {})]


@forms
async def test_a_session_gives_back_the_list_that_was_appended(form: str) -> None:
    to, _ = FORMS[form]
    sent = to(EVERYTHING).messages
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        await session.append_messages(sent)
        assert same(to(await session.build_context_entries()).messages, sent)
        assert to(await session.build_context()).messages


async def test_summaries_of_a_compaction_and_of_a_branch_are_texts(session: Session) -> None:
    await session.append_message({"role": "user", "content": "old"})
    kept = await session.append_message({"role": "user", "content": "kept"})
    await session.append_compaction("The story so far.", first_kept_entry_id=kept.leaf_id, tokens_before=10)
    context = await session.build_context()
    for to, _ in FORMS.values():
        sent = json.dumps(to(context).messages)
        assert "The story so far." in sent
        assert "kept" in sent
        assert "old" not in sent


def test_what_the_system_said_is_apart_where_the_provider_has_it_apart() -> None:
    assert [to(EVERYTHING).system for to, _ in FORMS.values()] == [
        None, None, "Be brief.", {"parts": [{"text": "Be brief."}]},
    ]  # fmt: skip
    assert adapter.to_openai(EVERYTHING).messages[0] == {"role": "system", "content": "Be brief."}


def test_blocks_of_a_system_prompt_come_back_with_their_marks() -> None:
    system: list[Any] = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    ours = adapter.from_anthropic([{"role": "user", "content": "q"}], system)
    assert adapter.to_anthropic(ours).system == system
    assert adapter.to_gemini(adapter.from_gemini([], "Be brief.")).system == {"parts": [{"text": "Be brief."}]}


def test_what_has_no_place_is_told() -> None:
    context: list[Any] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]},
        {"role": "memory", "content": "m"},
    ]
    for to, _ in FORMS.values():
        notes = [str(note) for note in to(context).notes]
        assert len(notes) == 2
        assert "left out: a message of role 'memory'" in notes
        assert any("reasoning" in note for note in notes)


@inputs(
    ("given_list", "path"),
    [
        (
            [{"role": "user", "content": "q"}, {"role": "tool", "tool_call_id": "c", "content": "x"}],
            r"messages\[1\]: is of",
        ),
        ([{"role": "user", "content": 5}], r"messages\[0\].content: "),
        (["text"], r"messages\[0\]: should be a message"),
    ],
)
def test_what_is_not_a_message_of_ours_is_refused_with_its_path(given_list: list[Any], path: str) -> None:
    for to, _ in FORMS.values():
        with pytest.raises(InvalidEntry, match=path):
            to(given_list)


@forms
@inputs("wrong", ["text", None, {"role": "user", "content": {1: 2}}, {"role": "user", "content": 5.5j}])
def test_what_is_not_a_message_of_the_provider_is_refused_with_its_path(form: str, wrong: Any) -> None:
    with pytest.raises(InvalidEntry, match=r"messages\[0\]"):
        FORMS[form][1]([wrong])


@forms
def test_a_message_of_another_provider_is_refused(form: str) -> None:
    other = adapter.to_anthropic(EVERYTHING) if form == "gemini" else adapter.to_gemini(EVERYTHING)
    with pytest.raises(InvalidEntry, match=r"messages\[\d+\](: is of the form gemini, not|.parts: should be a list)"):
        FORMS[form][1](other.messages)


def test_a_whole_answer_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidEntry, match=r"messages\[0\].choices: is a whole completion"):
        adapter.from_openai([{"object": "chat.completion", "choices": [{"message": {}}]}])


def test_plain_lists_need_no_framework() -> None:
    program = (
        "import sys\nfrom flue_py.adapters import messages as m\n"
        "m.to_openai([]), m.to_responses([]), m.to_gemini([]), m.from_anthropic([])\n"
        "found = {'openai', 'anthropic', 'google.genai', 'pydantic_ai', 'langchain_core'} & set(sys.modules)\n"
        "sys.exit(str(found) if found else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@inputs(
    ("module", "extra", "convert"),
    [("pydantic_ai", "pydantic-ai", adapter.to_pydantic_ai), ("langchain_core", "langgraph", adapter.to_langchain)],
)
def test_a_framework_that_is_not_installed_is_named(
    module: str, extra: str, convert: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(flue_py.MissingExtra, match=rf"flue-py\[{extra}\]"):
        convert([])


def test_every_public_name_is_there() -> None:
    assert len(adapter.__all__) > 15
    assert [name for name in adapter.__all__ if getattr(adapter, name, None) is None] == []


def test_items_of_responses_stay_as_they_came_and_others_are_completed() -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    bare: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": [picture]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Red."}]},
    ]
    ours = adapter.from_responses(bare)
    assert adapter.to_responses(ours).messages == bare
    assert adapter.to_responses(ours.messages).messages == [
        {"type": "message", "role": "user", "content": [{**picture, "detail": "auto"}]},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Red.", "annotations": []}],
        },
    ]
