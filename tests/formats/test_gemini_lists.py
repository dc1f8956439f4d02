"""Contents of Gemini come back as they were, and lists of other providers become valid ones for it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flue_py import providers as wire
from flue_py.core.json import JsonObject
from flue_py.formats.lists import parse_anthropic, parse_openai_chat, parse_openai_responses
from flue_py.providers.base import Leftovers
from flue_py.providers.gemini import FOREIGN_SIGNATURE
from flue_py.providers.lists import Said, SystemApart, anthropic_list, chat_list, gemini_list, said_in, with_own_ids
from tests.effort import examples
from tests.formats.test_list_round_trips import (
    anthropic_lists,
    chat_lists,
    is_valid_anthropic,
    is_valid_chat,
    objects,
    optional,
    responses_lists,
    same,
    texts,
)
from tests.formats.trees import document, items_of
from tests.tables import inputs


def said_from(contents: list[Any]) -> list[Said]:
    names: dict[str, str] = {}
    return [Said(*each) for content in contents for each in wire.convert(content, "gemini", names)]


def printed(contents: list[Any]) -> tuple[SystemApart, list[str]]:
    left = Leftovers()
    found = gemini_list(said_from(contents), left)
    return found, [str(note) for note in left.notes()]


def one(name: str, value: st.SearchStrategy[Any], **beside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({name: value}, optional=beside)


blobs = st.fixed_dictionaries(
    {"mimeType": st.sampled_from(["image/png", "audio/wav"]), "data": st.just("QUJD")}, optional={"displayName": texts}
)
files = st.fixed_dictionaries({"fileUri": texts}, optional={"mimeType": st.sampled_from(["image/png", "video/mp4"])})
media = one("inlineData", blobs, videoMetadata=objects) | one("fileData", files, mediaResolution=texts)
snake_media = one("inline_data", st.just({"mime_type": "image/png", "data": "QUJD", "display_name": None}))
signatures = st.sampled_from(["QUJD", "c2ln"])
spoken = one("text", texts, thought=st.booleans(), thoughtSignature=signatures) | one("text", st.just(""))
ran = one("executableCode", st.just({"language": "PYTHON", "code": "1"})) | one("codeExecutionResult", objects)
responses = objects | st.fixed_dictionaries({"output": texts}) | st.fixed_dictionaries({"error": texts | objects})


@st.composite
def gemini_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    number = 0
    for _ in range(draw(st.integers(1, 4))):
        answers: list[Any] = []
        for call in calls:
            answer = {
                **call,
                "response": draw(responses),
                **draw(optional(parts=st.lists(media, min_size=1, max_size=1))),
            }
            answers.append({draw(st.sampled_from(["functionResponse", "function_response"])): answer})
        parts = draw(st.lists(spoken | media | snake_media, min_size=0 if answers else 1, max_size=3))
        if answers and draw(st.booleans()):
            contents += [{"role": "function", "parts": answers}, *([{"parts": parts}] if parts else [])]
        else:
            contents.append({"role": "user", "parts": [*answers, *parts]})
        calls = []
        for name in draw(st.lists(st.sampled_from(["read", "list"]), max_size=3)):
            calls.append({"name": name, **({"id": f"c{number}"} if draw(st.booleans()) else {})})
            number += 1
        used = [
            {"functionCall": {**call, **draw(optional(args=objects))}, **draw(optional(thoughtSignature=signatures))}
            for call in calls
        ]
        contents.append({"role": "model", "parts": [*draw(st.lists(spoken | ran, min_size=1, max_size=3)), *used]})
    return contents if not calls else contents[:-1]


@examples(60)
@given(gemini_lists())
def test_gemini_lists_come_back_as_they_were(contents: list[dict[str, Any]]) -> None:
    found, notes = printed(contents)
    assert same(found.messages, contents)
    assert notes == []
    assert found.system is None


@examples(25)
@given(gemini_lists(), st.integers(0, 5))
def test_gemini_lists_become_valid_ones_of_other_providers_even_torn(contents: list[dict[str, Any]], cut: int) -> None:
    said = said_from(contents[cut % len(contents) :])
    assert is_valid_chat(chat_list(said, Leftovers()))
    assert is_valid_anthropic(anthropic_list(said, Leftovers()).messages)


def is_valid_gemini(contents: list[dict[str, Any]]) -> bool:
    """Return whether every call is answered by the next content, by name and in as many parts, and nothing is empty."""
    names: list[str] = []
    for content in contents:
        answers = [part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part]
        if not content["parts"] or sorted(answers) != sorted(names):
            return False
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and "thoughtSignature" not in calls[0]:
            return False
        names = [part["functionCall"]["name"] for part in calls]
    return not names and (not contents or contents[0]["role"] == "user")


@examples(12)
@given(anthropic_lists(), chat_lists(), responses_lists(), st.integers(0, 5))
def test_every_list_becomes_a_valid_one_for_gemini_even_torn(
    anthropic: list[Any], chat: list[Any], responses: list[Any], cut: int
) -> None:
    for parse, items in ((parse_anthropic, anthropic), (parse_openai_chat, chat), (parse_openai_responses, responses)):
        (session,) = parse(document(items[cut % len(items) :][: 1 + len(items) - cut] or items), "list.json")
        assert is_valid_gemini(gemini_list(said_in(items_of(session)), Leftovers()).messages)


CALL: JsonObject = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {}}


def ours(*messages: JsonObject) -> tuple[SystemApart, list[str]]:
    left = Leftovers()
    return gemini_list([Said(message) for message in messages], left), [str(note) for note in left.notes()]


def test_the_first_call_of_another_provider_has_a_mark_for_its_signature() -> None:
    found, notes = ours(
        {"role": "user", "content": "q"},
        {"role": "assistant", "provider": "anthropic", "content": [CALL, {**CALL, "id": "c2", "name": "list"}]},
        {"role": "toolResult", "toolCallId": "c2", "content": "b"},
        {"role": "toolResult", "toolCallId": "c1", "content": "a", "isError": True},
    )
    assert found.messages[1:] == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"id": "c1", "name": "read", "args": {}}, "thoughtSignature": FOREIGN_SIGNATURE},
                {"functionCall": {"id": "c2", "name": "list", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c2", "name": "list", "response": {"output": "b"}}},
                {"functionResponse": {"id": "c1", "name": "read", "response": {"error": "a"}}},
            ],
        },
    ]
    assert notes == ["calls that a model other than Google's made go out with a mark in place of its signature"]


def test_what_the_system_said_stands_apart() -> None:
    found, notes = ours(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "q"},
        {"role": "developer", "content": [{"type": "text", "text": "In French."}]},
    )
    assert found.system == {"parts": [{"text": "Be brief."}, {"text": "In French."}]}
    assert found.messages == [{"role": "user", "parts": [{"text": "q"}]}]
    assert notes == ["system messages from within the conversation stand at its beginning"]


def test_pictures_of_a_tool_stand_in_its_response() -> None:
    image: JsonObject = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
    found, _ = ours(
        {"role": "user", "content": "q"},
        {"role": "assistant", "provider": "google", "content": [CALL]},
        {"role": "toolResult", "toolCallId": "c1", "content": [{"type": "text", "text": "a"}, image]},
    )
    answer = {"id": "c1", "name": "read", "response": {"output": "a"}}
    parts = [{"inlineData": {"mimeType": "image/png", "data": "QUJD"}}]
    assert found.messages[-1]["parts"] == [{"functionResponse": {**answer, "parts": parts}}]


@inputs(
    ("message", "shape"),
    [
        ({"role": "model", "parts": []}, "gemini"),
        ({"role": "user", "parts": [{"text": "x"}]}, "gemini"),
        ({"parts": [{"function_response": {"name": "f"}}]}, "gemini"),
        ({"role": "system", "parts": [{"text": "x"}]}, "gemini"),
        # Other programs have parts, too, and tell their types.
        ({"role": "user", "parts": [{"type": "text", "text": "x"}]}, None),
        ({"role": "assistant", "parts": [{"text": "x"}]}, None),
        ({"role": "user", "content": "q", "parts": [{"text": "x"}]}, None),
    ],
)
def test_parts_tell_a_content(message: JsonObject, shape: str | None) -> None:
    assert wire.shape_of(message) == shape


def test_calls_of_the_same_name_in_several_turns_have_ids_of_their_own_at_anthropic() -> None:
    call = {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]}
    answers = [
        {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": text}}}]}
        for text in "ab"
    ]
    said = said_from([{"role": "user", "parts": [{"text": "q"}]}, call, answers[0], call, answers[1]])
    left = Leftovers()
    turns: Any = anthropic_list(said, left).messages
    assert [turn["content"][0].get("id") or turn["content"][0].get("tool_use_id") for turn in turns[1:]] == [
        "call_read_0", "call_read_0", "call_read_0_2", "call_read_0_2",
    ]  # fmt: skip
    assert [turn["content"][0]["content"] for turn in turns[2::2]] == ["a", "b"]
    assert "ids of tool calls that were used again have a number behind them" in map(str, left.notes())


def test_an_id_that_comes_later_changes_none_before_it() -> None:
    def exchange(call_id: str) -> list[Said]:
        part: JsonObject = {"type": "toolCall", "id": call_id, "name": "read", "arguments": {}}
        return [
            Said({"role": "assistant", "content": [part]}),
            Said({"role": "toolResult", "toolCallId": call_id, "content": "a"}),
        ]

    # The third is what would be made of the second.
    said = [each for call_id in ("c", "c", "c_2", "c", "c_2") for each in exchange(call_id)]
    sent = [each.message["toolCallId"] for each in with_own_ids(said, Leftovers())[1::2]]
    assert sent == ["c", "c_2", "c_2_2", "c_3", "c_2_3"]
    for end in range(2, len(said), 2):
        assert with_own_ids(said[:end], Leftovers()) == with_own_ids(said, Leftovers())[:end]
