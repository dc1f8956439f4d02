"""What settings leave of the contents of a request: what no step has changed is the object that came in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from flue_py.adapters.adk import FlueSessionService, sent_to_adk
from flue_py.errors import InvalidArgument, InvalidEntry
from tests.adapters.adk.samples import APP, USER, call, result
from tests.adapters.adk.stores import with_service
from tests.adapters.adk.test_runner import Fake, fake, say
from tests.values import existing

if TYPE_CHECKING:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.sessions.base_session_service import BaseSessionService

CLEARED = "[tool result cleared to save context]"
SETTINGS: dict[str, Any] = {
    "epoch_tokens": 0,
    "microcompact": {"keep": 0, "tools": ["read"]},
    "agents": {"Reviewer": {"window": {"text_only": True, "max_replay_chars": 4}, "microcompact": None}},
}
LONG = "line " * 100


class Asking:
    """Who is about to ask a model, as far as the callback wants to know."""

    def __init__(self, agent_name: str) -> None:
        self.agent_name = agent_name


def sent(contents: list[types.Content], settings: Any = SETTINGS, name: str = "root", **options: Any) -> Any:
    request = LlmRequest(contents=contents)
    returned: Any = sent_to_adk(settings, **options)(Asking(name), request)  # type: ignore[arg-type, func-returns-value]
    assert returned is None, "ADK would take it for the answer"
    return request.contents


def user(*parts: types.Part | types.FunctionResponse | str) -> types.Content:
    return types.Content(role="user", parts=[_part(each) for each in parts])


def model(*parts: types.Part | str) -> types.Content:
    return types.Content(role="model", parts=[_part(each) for each in parts])


def _part(given: types.Part | types.FunctionResponse | str) -> types.Part:
    if isinstance(given, types.FunctionResponse):
        return types.Part(function_response=given)
    return types.Part(text=given) if isinstance(given, str) else given


def signed(part: types.Part, signature: bytes) -> types.Part:
    part.thought_signature = signature
    return part


PICTURE = types.Part(inline_data=types.Blob(data=bytes(range(256)), mime_type="image/png", display_name="a.png"))


def history() -> list[types.Content]:
    thought = signed(types.Part(text="Let me see.", thought=True), b"\xff\xfe")
    return [
        user("Why?", PICTURE),
        model(thought, "I look.", signed(call("read", "c1", path="a.py"), b"\x01"), call("list", path=".")),
        user(result("read", "c1", result=LONG), result("list", names=["a.py"]), "And mind the gap."),
        types.Content(role="user"),
        model(signed(types.Part(text="It hangs."), b"\x02")),
        user("Sure?"),
    ]


def test_contents_that_no_step_has_changed_are_the_objects_that_came_in() -> None:
    given = history()
    found = sent(given)
    assert [each is was for each, was in zip(found, given, strict=True)] == [True, True, False, True, True, True]
    was, made = given[2].parts or [], found[2].parts
    assert [each is other for each, other in zip(made, was, strict=True)] == [False, True, True]
    assert made[0].function_response == result("read", "c1", result=CLEARED)
    assert given == history(), "what came in is as it was"


def test_each_agent_gets_what_its_own_settings_leave() -> None:
    given = history()
    found = sent(given, name="Reviewer")
    assert [each.role for each in found] == ["user", "model", "user", "user", "model", "user"]
    assert found[0] is given[0]
    assert [part.text for part in found[1].parts] == [
        "I lo\n[...truncated — 3 chars omitted to reduce context size...]"
    ]
    assert [part.text for part in found[2].parts] == ["And mind the gap."]
    assert found[2].parts[0] is (given[2].parts or [])[2]
    assert (found[3], found[5]) == (given[3], given[5])
    assert found[4].parts[0].thought_signature is None, "a signature is that of the whole text"
    assert sent(given, agent="reviewer", name="root") == found, "the one that is named"


def test_the_response_of_a_function_is_shortened_in_the_field_that_it_was_in() -> None:
    def shortened(response: types.FunctionResponse) -> types.FunctionResponse:
        contents = [user("Why?"), model(call("read", "c1")), user(response), model("So."), user("Go on.")]
        made = sent(contents)[2].parts[0].function_response
        assert isinstance(made, types.FunctionResponse)
        return made

    assert shortened(result("read", "c1", output=LONG)).response == {"output": CLEARED}
    assert shortened(result("read", "c1", error=LONG)).response == {"error": CLEARED}
    assert shortened(result("read", "c1", lines=[LONG], n=1)).response == {"result": CLEARED}
    file = types.FunctionResponsePart(inline_data=types.FunctionResponseBlob(data=b"\x00" * 9, mime_type="image/png"))
    later = types.FunctionResponse(
        id="c1", name="read", response={"a": LONG}, parts=[file], scheduling=types.FunctionResponseScheduling.SILENT
    )
    made = shortened(later)
    assert (made.response, made.parts) == ({"result": CLEARED}, None)
    assert (made.scheduling, made.id, made.name) == (later.scheduling, "c1", "read")


def test_a_call_with_shorter_arguments_keeps_its_id_and_has_a_mark_for_its_signature() -> None:
    wrote = signed(call("write", "c1", path="a.py", text="x" * 2_000), b"\x01\x02")
    again = call("write", path="b.py", text="y" * 2_000)
    given = [user("Write."), model("Well. " * 100, wrote, again), user(result("write", "c1"), result("write"))]
    given += [model("Done."), user("Go on.")]
    found = sent(given, {"epoch_tokens": 0, "superseded": {"text_chars": 20, "argument_chars": 100}})
    said, one, other = found[1].parts
    assert said.text.endswith("[text omitted]")
    assert (one.thought_signature, other.thought_signature) == (b"skip_thought_signature_validator", None)
    assert (one.function_call.id, one.function_call.args["path"]) == ("c1", "a.py")
    assert (other.function_call.id, other.function_call.args["path"]) == (None, "b.py")
    assert "2,000 characters" in one.function_call.args["text"]
    assert found[2] is given[2]


def test_what_an_interrupted_call_lacks_stands_among_the_responses_of_the_others() -> None:
    given = [
        user("Look."),
        user("Now."),
        model(call("read", path="a"), call("list", "c2")),
        user(result("read", result="text")),
        user("Go on."),
    ]
    found = sent(given, {"resume": True})
    assert [each.role for each in found] == ["user", "model", "user", "user"]
    assert [part is (was.parts or [None])[0] for part, was in zip(found[0].parts, given, strict=False)] == [True, True]
    assert found[1] is given[2]
    first, second = found[2].parts
    assert first is (given[3].parts or [])[0]
    assert second.function_response.id == "c2"
    assert second.function_response.response == {"error": "Error: Tool result missing due to interrupted session."}


def test_contents_do_not_begin_with_an_answer_because_of_the_settings() -> None:
    given = [user("Why?"), model("So."), user("How?")]
    found = sent(given, {"window": {"max_tail_messages": 2}})
    assert [each.parts[0].text for each in found] == ["(continued)", "So.", "How?"]
    assert sent(given[1:], {}) == given[1:], "where it came in so, that is for ADK to decide"
    assert sent([]) == []


def test_wrong_settings_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidArgument, match=r"microcompact\.keep"):
        sent_to_adk({"microcompact": {"keep": -1}})
    with pytest.raises(InvalidArgument, match="spec: is read from a session"):
        sent_to_adk({"agents": {"Coder": {"spec": {"sources": ["session_context"]}}}})
    with pytest.raises(InvalidArgument, match="agent"):
        sent_to_adk({}, agent=7)  # type: ignore[arg-type]


def test_a_content_that_is_none_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidEntry, match=r"contents\[1\].*functionCall: stands in a content of the model"):
        sent([user("Why?"), user(call("read"))])
    with pytest.raises(InvalidEntry, match=r"contents\[0\]: is no JSON"):
        sent([user(result("read", result=object()))])


def read(path: str) -> str:
    """Return what is in a file."""
    return LONG


def list_(path: str) -> str:
    """Return the names in a folder."""
    return "a.py"


async def asked_last(service: BaseSessionService, model: Fake, agent: LlmAgent, **options: Any) -> list[Any]:
    """Ask an agent what takes a tool, and then something else. Returns the contents of the last request."""
    async with Runner(app=App(name=APP, root_agent=agent, **options), session_service=service) as runner:
        await service.create_session(app_name=APP, user_id=USER, session_id="s")
        assert (await say(runner, "What is in it?"))[-1] == "Lines."
        assert await say(runner, "Where?") == ["In a.py."]
    return model.asked[-1]


def test_an_agent_calls_it_before_each_request_and_the_session_stays_whole(target: str) -> None:
    async def main(service: FlueSessionService) -> None:
        model = fake(signed(call("read", path="a.py"), b"\x01"), "Lines.", "In a.py.")
        agent = LlmAgent(name="root", model=model, tools=[read], before_model_callback=sent_to_adk(SETTINGS))
        asked = await asked_last(service, model, agent)
        assert asked[1]["parts"][0]["thought_signature"] == b"\x01"
        assert asked[2]["parts"][0]["function_response"]["response"] == {"result": CLEARED}
        got = existing(await service.get_session(app_name=APP, user_id=USER, session_id="s"))
        [response] = [each for event in got.events for each in event.get_function_responses()]
        assert response.response == {"result": LONG}

    with_service(target, main)


def test_a_plugin_calls_it_for_every_agent() -> None:
    send = sent_to_adk({"agents": {"root": {"epoch_tokens": 0, "microcompact": SETTINGS["microcompact"]}}})

    class Sending(BasePlugin):
        async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
            send(callback_context, llm_request)

    model = fake(call("read", path="a.py"), "Lines.", "In a.py.")
    agent = LlmAgent(name="root", model=model, tools=[read])
    asked = asyncio.run(asked_last(InMemorySessionService(), model, agent, plugins=[Sending("sending")]))
    assert asked[2]["parts"][0]["function_response"]["response"] == {"result": CLEARED}


def thought_of(content: Any) -> list[Any]:
    return [part["thought_signature"] for part in content["parts"] if "thought_signature" in part]


def test_no_signature_is_sent_behind_a_result_that_has_been_cleared_since() -> None:
    def reads(number: int) -> LlmResponse:
        thought = signed(types.Part(text="Hm.", thought=True), b"thought %d" % number)
        called = signed(call("read", path="a.py"), b"call %d" % number)
        content = types.Content(role="model", parts=[thought, called, call("list_", path=".")])
        return LlmResponse(content=content, model_version="gemini-3-pro")

    def asked_with(settings: Any) -> list[list[Any]]:
        model = fake([reads(1)], [reads(2)], "Lines.", "In a.py.")
        agent = LlmAgent(name="root", model=model, tools=[read, list_], before_model_callback=sent_to_adk(settings))
        asyncio.run(asked_last(InMemorySessionService(), model, agent))
        return [[thought_of(content) for content in contents if content["role"] == "model"] for contents in model.asked]

    settings: Any = {"epoch_tokens": 0, "microcompact": {"keep": 1, "tools": ["read"]}}
    first, second = [b"thought 1", b"call 1"], [b"thought 2", b"call 2"]
    assert asked_with({**settings, "keep_stale_reasoning": True})[2] == [first, second]
    asked = asked_with(settings)
    assert asked[:3] == [[], [first], [first, [b"skip_thought_signature_validator"]]]
    assert asked[3][:2] == asked[2]


def parts_of_users() -> st.SearchStrategy[types.Part]:
    responses = st.builds(result, st.sampled_from(["read", "list"]), st.sampled_from([None, "c1", "c2"]))
    long = responses.map(lambda each: each.model_copy(update={"response": {"result": LONG}}))
    media = st.builds(PICTURE.model_copy)
    return st.one_of(
        st.builds(lambda text: types.Part(text=text), st.text()), media, st.one_of(responses, long).map(_part)
    )


def parts_of_models() -> st.SearchStrategy[types.Part]:
    texts = st.builds(
        lambda text, is_thought: types.Part(text=text, thought=is_thought or None), st.text(), st.booleans()
    )
    calls = st.builds(call, st.sampled_from(["read", "list"]), st.sampled_from([None, "c1", "c2"]), path=st.text())
    made = st.one_of(texts, calls)
    code = st.builds(lambda: types.Part(executable_code=types.ExecutableCode(code="1", language=types.Language.PYTHON)))
    return st.one_of(made, st.builds(signed, made, st.binary(min_size=1)), code)


CONTENTS = st.lists(
    st.one_of(
        st.lists(parts_of_users(), max_size=4).map(lambda parts: user(*parts)),
        st.lists(parts_of_models(), max_size=4).map(lambda parts: model(*parts)),
        st.builds(types.Content, role=st.just("user")),
    ),
    max_size=8,
)
CHOICES: list[Any] = [
    {},
    SETTINGS,
    {"resume": True},
    {"epoch_tokens": 0, "window": {"max_tail_messages": 3}},
    {"epoch_tokens": 0, "window": {"text_only": True, "max_replay_chars": 2}},
    {"epoch_tokens": 0, "superseded": {"text_chars": 1, "argument_chars": 1}, "in_turn": {"max_tool_pairs": 1}},
]


@given(CONTENTS, st.sampled_from(CHOICES))
def test_nothing_of_an_untouched_content_is_changed(contents: list[types.Content], settings: Any) -> None:
    before = [each.model_copy(deep=True) for each in contents]
    found = sent(contents, settings)
    assert contents == before, "what came in is as it was"
    known = {id(part): part for content in contents for part in content.parts or []}
    if not settings:
        assert [*map(id, found)] == [*map(id, contents)]
    ids = {part.function_call.id for part in known.values() if part.function_call is not None}
    wholes = {tuple(map(id, content.parts or [])): id(content) for content in contents}
    for content in found:
        if content.parts:
            assert wholes.get(tuple(map(id, content.parts)), id(content)) == id(content)
        for part in content.parts or []:
            if part.function_call is not None and id(part) not in known:
                assert part.function_call.id in ids
                assert part.thought_signature in (None, b"skip_thought_signature_validator")
            assert part.inline_data is None or id(part) in known
