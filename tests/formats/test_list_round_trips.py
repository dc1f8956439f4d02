"""Lists of messages are imported and exported unchanged, and can be exported for another provider."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.context import ContextEntry
from flue_py.formats.kit import Exported, SessionPart
from flue_py.formats.lists import (
    export_anthropic,
    export_openai_chat,
    export_openai_responses,
    looks_like_anthropic,
    looks_like_openai_chat,
    looks_like_openai_responses,
    parse_anthropic,
    parse_openai_chat,
    parse_openai_responses,
)
from tests.effort import examples
from tests.formats.trees import document, items_of
from tests.tables import inputs

Parser = Callable[[bytes, str], tuple[SessionPart, ...]]
Exporter = Callable[[list[ContextEntry]], Exported]


def through(parse: Parser, export: Exporter, value: Any) -> Exported:
    (session,) = parse(document(value), "list.json")
    assert session.report.skipped == session.report.repaired == ()
    return export(items_of(session))


def same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
objects = st.dictionaries(
    texts, st.recursive(scalars, lambda inner: st.lists(inner, max_size=2), max_leaves=3), max_size=2
)
data = st.sampled_from(["QUJD", "AAAA"])


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def block(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind), **fields})


# --- Anthropic ----------------------------------------------------------------------------------------------

sources = (
    block("base64", media_type=st.just("image/png"), data=data)
    | block("url", url=st.just("https://example.org/a.png"))
    | block("file", file_id=texts)
)
words = texts.map(lambda text: text if text.strip() else "words")
"""The API refuses texts of white space only."""
a_text = block("text", text=words) | block("text", text=words, citations=st.lists(objects, max_size=1))
a_image = block("image", source=sources)
a_document = block("document", source=sources, title=texts) | block(
    "document", source=block("text", media_type=st.just("text/plain"), data=texts), context=texts
)
a_user_blocks = st.lists(a_text | a_image | a_document, min_size=1, max_size=3)
a_thinking = block("thinking", thinking=texts, signature=texts) | block("redacted_thinking", data=texts)
a_server = block("server_tool_use", id=texts, name=st.just("web_search"), input=objects)


@st.composite
def anthropic_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    calls: list[str] = []
    number = 0
    for _ in range(draw(st.integers(1, 4))):
        results = []
        for call in calls:
            content = draw(st.none() | texts | st.lists(a_text | a_image, min_size=1, max_size=2))
            result = {"type": "tool_result", "tool_use_id": call, **({} if content is None else {"content": content})}
            results.append({**result, **draw(optional(is_error=st.booleans()))})
        said = draw(st.lists(a_text | a_image, max_size=2)) if results else draw(words | a_user_blocks)
        results = draw(st.permutations(results))
        messages.append({"role": "user", "content": [*results, *said] if isinstance(said, list) else said})
        calls = [f"toolu_{number + each}" for each in range(draw(st.integers(0, 2)))]
        number += len(calls)
        uses = [{"type": "tool_use", "id": call, "name": "f", "input": draw(objects)} for call in calls]
        spoken: Any = draw(st.lists(a_thinking | a_text | a_server, min_size=1, max_size=3))
        if not uses:
            spoken = draw(st.just(spoken) | words)
        messages.append({"role": "assistant", "content": [*spoken, *uses] if isinstance(spoken, list) else spoken})
    return messages if not calls else messages[:-1]


@examples(25)
@given(anthropic_lists())
def test_anthropic_lists_come_back_as_they_were(messages: list[dict[str, Any]]) -> None:
    exported = through(parse_anthropic, export_anthropic, messages)
    assert same(exported.value, messages)
    assert exported.notes == ()


# --- OpenAI chat --------------------------------------------------------------------------------------------

c_text = block("text", text=texts)
c_image = block(
    "image_url",
    image_url=st.sampled_from(
        [{"url": "data:image/png;base64,QUJD"}, {"url": "https://example.org/a.png", "detail": "low"}, {"url": ""}]
    ),
)
c_audio = block("input_audio", input_audio=st.just({"data": "AAAA", "format": "wav"}))
c_file = block("file", file=st.sampled_from([{"file_id": "f1"}, {"file_data": "data:a/b;base64,AA", "filename": "x"}]))
c_parts = st.lists(c_text | c_image | c_audio | c_file, min_size=1, max_size=3)
argument_texts = objects.map(json.dumps) | st.sampled_from(
    ['{"a":1}', '{ "a" : 1.0 }', "{torn", "", "[1]", '{"a":1,"a":2}']
)


@st.composite
def chat_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [
        {"role": draw(st.sampled_from(["system", "developer"])), "content": draw(texts | st.lists(c_text, min_size=1))}
    ]
    for turn in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(texts | c_parts), **draw(optional(name=texts))})
        calls = [
            {"id": f"c{turn}{each}", "type": "function", "function": {"name": "f", "arguments": draw(argument_texts)}}
            for each in range(draw(st.integers(0, 2)))
        ]
        answer: dict[str, Any] = {
            "role": "assistant",
            "content": draw(texts | st.lists(c_text, min_size=1, max_size=2)),
        }
        if calls:
            answer = {
                **answer,
                "tool_calls": calls,
                "content": draw(st.none() | st.just("") | st.just(answer["content"])),
            }
        answer |= draw(optional(refusal=st.none(), reasoning_content=texts, annotations=st.just([])))
        if calls and draw(st.booleans()):
            del answer["content"]
        messages.append(answer)
        for call in draw(st.permutations(calls)):
            content = draw(texts | st.just("") | st.lists(c_text, min_size=1, max_size=2))
            messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": content, **draw(optional(name=texts))}
            )
    return messages


@examples(25)
@given(chat_lists())
def test_chat_lists_come_back_as_they_were(messages: list[dict[str, Any]]) -> None:
    exported = through(parse_openai_chat, export_openai_chat, messages)
    assert same(exported.value, messages)
    assert exported.notes == ()


# --- OpenAI Responses ---------------------------------------------------------------------------------------

r_parts = st.lists(
    block("input_text", text=texts)
    | block("input_image", image_url=st.just("data:image/png;base64,QUJD"), detail=st.just("auto"))
    | block("input_image", file_id=texts)
    | block("input_file", file_data=st.just("data:application/pdf;base64,AAAA"), filename=texts)
    | block("input_file", file_id=texts),
    min_size=1,
    max_size=2,
)
r_answer = st.lists(
    block("output_text", text=texts, annotations=st.lists(objects, max_size=1)) | block("refusal", refusal=texts),
    min_size=1,
    max_size=2,
)
r_message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "developer"]), "content": texts | r_parts},
    optional={"type": st.just("message")},
)
r_said = st.fixed_dictionaries(
    {"type": st.just("message"), "role": st.just("assistant"), "content": texts | r_answer},
    optional={"id": texts, "status": st.just("completed"), "phase": st.just("final_answer")},
)
r_reasoning = st.fixed_dictionaries(
    {"type": st.just("reasoning"), "summary": st.lists(block("summary_text", text=texts), max_size=2)},
    optional={"id": texts, "encrypted_content": texts | st.none()},
)
r_other = st.sampled_from(
    [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "item_reference", "id": "msg_1"},
        {"type": "mcp_approval_response", "approve": True, "approval_request_id": "m1"},
        {"type": "compaction", "encrypted_content": "xyz"},
    ]
)


@st.composite
def responses_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [draw(r_message)]
    for turn in range(draw(st.integers(1, 3))):
        items += draw(st.lists(r_message | r_said | r_reasoning | r_other, max_size=3))
        outputs = []
        for each in range(draw(st.integers(0, 2))):
            call = f"call_{turn}{each}"
            output = draw(texts | r_parts)
            if draw(st.booleans()):
                items.append({"type": "function_call", "call_id": call, "name": "f", "arguments": draw(argument_texts)})
                outputs.append({"type": "function_call_output", "call_id": call, "output": output})
            else:
                items.append(
                    {"type": "custom_tool_call", "call_id": call, "name": "p", "input": draw(texts), "id": "x"}
                )
                outputs.append({"type": "custom_tool_call_output", "call_id": call, "output": output})
        items += outputs
    return items


@examples(25)
@given(responses_lists())
def test_responses_items_come_back_as_they_were(items: list[dict[str, Any]]) -> None:
    exported = through(parse_openai_responses, export_openai_responses, items)
    assert same(exported.value, items)
    assert exported.notes == ()


# --- From one to another ------------------------------------------------------------------------------------


def is_valid_chat(messages: list[dict[str, Any]]) -> bool:
    """Return whether every call is answered right behind it, and nothing else is."""
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return False
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return False
        open_calls |= {call["id"] for call in message.get("tool_calls", ())}
    return not open_calls


def has_blank_text(content: Any) -> bool:
    """Return whether content, or that of a result in it, is or has a text of white space only."""
    if isinstance(content, str):
        return not content.strip()
    inner = [each["content"] for each in content if isinstance(each.get("content"), list)]
    return any(each["type"] == "text" and not each["text"].strip() for each in content) or any(
        map(has_blank_text, inner)
    )


def is_valid_anthropic(messages: list[dict[str, Any]]) -> bool:
    """Return whether sides take turns, and every use of a tool has its result at the head of the next message."""
    uses: set[str] = set()
    for number, message in enumerate(messages):
        if message["role"] != ("user", "assistant")[number % 2] or not message["content"]:
            return False
        if has_blank_text(message["content"]):
            return False
        blocks = message["content"] if isinstance(message["content"], list) else []
        kinds = [each["type"] == "tool_result" for each in blocks]
        if kinds != sorted(kinds, reverse=True):
            return False
        if {each["tool_use_id"] for each in blocks if each["type"] == "tool_result"} != uses:
            return False
        uses = {each["id"] for each in blocks if each["type"] == "tool_use"}
    return not uses


@examples(12)
@given(anthropic_lists(), chat_lists(), responses_lists(), st.integers(0, 5))
def test_every_list_becomes_a_valid_one_of_another_provider_even_torn(
    anthropic: list[Any], chat: list[Any], responses: list[Any], cut: int
) -> None:
    for parse, items in ((parse_anthropic, anthropic), (parse_openai_chat, chat), (parse_openai_responses, responses)):
        (session,) = parse(document(items[cut % len(items) :][: 1 + len(items) - cut] or items), "list.json")
        context = items_of(session)
        exported: Any = export_anthropic(context).value
        assert is_valid_anthropic(exported if isinstance(exported, list) else exported["messages"])
        assert is_valid_chat(export_openai_chat(context).value)
        calls, outputs = [], []
        for item in export_openai_responses(context).value:
            kind = item.get("type", "")
            (outputs if kind.endswith("_call_output") else calls).append(item.get("call_id"))
        assert sorted(call for call in calls if call) == sorted(outputs)


BLANKS = ["", " ", "\n\n", "\t\u3000"]


def test_nothing_of_white_space_only_is_sent_to_anthropic() -> None:
    blank = [{"type": "text", "text": text} for text in BLANKS]
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [*blank, {"type": "text", "text": "x"}]}
    messages: list[Any] = [
        *({"role": "user", "content": text} for text in BLANKS),
        {"role": "user", "content": [*blank, {"type": "text", "text": " hi "}]},
        {"role": "assistant", "content": [*blank, call]},
        {"role": "user", "content": [result, *blank]},
        {"role": "assistant", "content": blank},
        {"role": "user", "content": []},
        {"role": "assistant", "content": " done "},
    ]
    for system in (" ", blank):
        exported = through(parse_anthropic, export_anthropic, {"system": system, "messages": messages})
        assert exported.value == [
            {"role": "user", "content": [{"type": "text", "text": " hi "}]},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [{**result, "content": [{"type": "text", "text": "x"}]}]},
            {"role": "assistant", "content": " done "},
        ]
        told = {note.text: note.count for note in exported.notes}
        blanks = 1 if system == " " else 4
        assert told == {
            "left out: a text without characters other than white space, which the API refuses": 23 + blanks,
            "left out: a message without content, which the API refuses": 2,
        }


def test_a_system_prompt_goes_beside_the_anthropic_list_and_back_into_the_chat_list() -> None:
    request = {
        "model": "claude",
        "max_tokens": 5,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "hi"}],
    }
    (session,) = parse_anthropic(document(request), "request.json")
    kept = json.loads(session.session.metadata_text)["imported"]["document"]
    assert kept == {"model": "claude", "max_tokens": 5}
    assert export_anthropic(items_of(session)).value == {"system": "Be brief.", "messages": request["messages"]}
    assert export_openai_chat(items_of(session)).value == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]


MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def test_marks_for_the_cache_come_out_as_they_came_in() -> None:
    inner = {"type": "text", "text": "of a file", **MARK}
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}, **MARK}
    request = {
        "system": [{"type": "text", "text": "Be brief.", **MARK}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}, image]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}, **MARK}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [inner]}]},
        ],
    }
    exported = through(parse_anthropic, export_anthropic, request)
    assert (exported.value, exported.notes) == (request, ())


def test_of_more_marks_for_the_cache_than_the_api_takes_the_last_ones_go_out() -> None:
    def marked(text: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": text, **MARK}]

    turns = [{"role": ("user", "assistant")[number % 2], "content": marked(str(number))} for number in range(6)]
    exported = through(parse_anthropic, export_anthropic, {"system": marked("s"), "messages": turns})
    value: Any = exported.value
    assert [list(block) for block in value["system"]] == [["type", "text"]]
    assert [MARK.keys() <= turn["content"][0].keys() for turn in value["messages"]] == [False] * 2 + [True] * 4
    assert [note.count for note in exported.notes] == [3]


def test_a_whole_response_is_counted_once_and_goes_out_as_a_message() -> None:
    usage = {"input_tokens": 9, "cache_creation_input_tokens": 228, "cache_read_input_tokens": 1000, "output_tokens": 5}
    usage["cache_creation"] = {"ephemeral_1h_input_tokens": 200}
    response = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn"}
    said = {"role": "user", "content": "hi"}
    answer = {**response, "content": [{"type": "text", "text": "yes"}], "usage": usage}
    (session,) = parse_anthropic(document([said, answer]), "list.json")
    message = json.loads(session.entries[1].payload)
    assert message["usage"] == {
        "input": 9, "output": 5, "cacheRead": 1000, "cacheWrite": 228, "cacheWrite1h": 200, "totalTokens": 1242,
    }  # fmt: skip
    assert (message["model"], message["stopReason"]) == ("claude", "end_turn")
    (other,) = parse_anthropic(document([said, answer]), "other.json")
    assert session.entries[1].calls == other.entries[1].calls != ()
    assert export_anthropic(items_of(session)).value == [said, {"role": "assistant", "content": answer["content"]}]


def test_the_usage_of_a_response_is_counted_once_on_its_last_answer() -> None:
    details = {"input_tokens_details": {"cached_tokens": 60}, "output_tokens_details": {"reasoning_tokens": 3}}
    usage = {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107, **details}
    output = [{"type": "reasoning", "summary": []}, {"type": "message", "role": "assistant", "content": "yes"}]
    response = {"object": "response", "id": "resp_1", "model": "gpt", "output": output, "usage": usage}
    first, second = (parse_openai_responses(document(response), name)[0] for name in ("a.json", "b.json"))
    (call,) = [call for entry in first.entries for call in entry.calls]
    assert first.entries[1].usage == (40, 7, 60, 0, 107, 0, 0, 0, 0, 0)
    assert json.loads(first.entries[1].payload)["usage"]["reasoning"] == 3
    assert [call.call_id] == [call.call_id for entry in second.entries for call in entry.calls]
    assert call.model == "gpt"
    assert export_openai_responses(items_of(first)).value == output


def test_images_of_tool_results_follow_in_a_message_of_the_user() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [image]}]},
    ]
    exported = through(parse_anthropic, export_openai_chat, messages)
    assert exported.value == [
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": ""},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Images from tool call t1:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
            ],
        },
    ]
    assert [str(note) for note in exported.notes] == ["images of tool results stand in a message of the user"]


def test_reasoning_goes_only_where_its_provider_gets_it_back() -> None:
    thought = [{"type": "thinking", "thinking": "Hm.", "signature": "sig"}, {"type": "text", "text": "yes"}]
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": thought}]
    for export in (export_openai_chat, export_openai_responses):
        exported = through(parse_anthropic, export, messages)
        assert "Hm." not in exported.text
        assert "reasoning" in str(exported.notes[0])
    assert through(parse_anthropic, export_anthropic, messages).value == messages


def test_a_call_without_a_result_gets_an_error_and_a_result_without_a_call_goes() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "tool", "tool_call_id": "c0", "content": "stray"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "go on"},
    ]
    exported = through(parse_openai_chat, export_openai_chat, messages)
    assert [(message["role"], message["content"]) for message in exported.value] == [
        ("assistant", None),
        ("tool", "No result: this tool call was never answered."),
        ("user", "go on"),
    ]
    assert len(exported.notes) == 2


class Shortened(ContextEntry):
    """An item of which the context shows the first part only."""

    @property
    def data(self) -> dict[str, Any]:
        message = super().data
        return {**message, "content": message["content"][:1]}


def test_a_part_that_the_context_leaves_out_does_not_go_out_by_what_stands_beside_the_message() -> None:
    parts = [{"type": "text", "text": "shown", "x": 1}, {"type": "text", "text": "left out", "x": 1}]
    for parse, export in (
        (parse_openai_chat, export_openai_chat),
        (parse_openai_responses, export_openai_responses),
        (parse_anthropic, export_anthropic),
    ):
        (session,) = parse(document([{"role": "user", "content": parts}]), "list.json")
        assert session.entries[0].extra is not None
        assert "left out" in export(items_of(session)).text
        shortened = export([Shortened(item.entry) for item in items_of(session)])
        assert "shown" in shortened.text
        assert "left out" not in shortened.text


def test_ids_that_anthropic_refuses_are_changed_alike_in_call_and_result() -> None:
    calls = [f"call|{'x' * 80}{end}" for end in "ab"]
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    for call in calls:
        called = {"id": call, "type": "function", "function": {"name": "f", "arguments": "[1]"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [called]})
        messages.append({"role": "tool", "tool_call_id": call, "content": "x"})
    exported = through(parse_openai_chat, export_anthropic, messages)
    uses = [message["content"][0] for message in exported.value if message["role"] == "assistant"]
    assert len({use["id"] for use in uses}) == 2
    assert all(len(use["id"]) <= 64 and "|" not in use["id"] for use in uses)
    assert is_valid_anthropic(exported.value)


# --- Ids, and telling them apart ----------------------------------------------------------------------------


@inputs("parse", [parse_openai_chat, parse_openai_responses, parse_anthropic])
def test_a_longer_list_begins_with_the_entries_of_the_shorter_one(parse: Parser) -> None:
    items = [{"role": role, "content": f"m{number}"} for number, role in enumerate(["user", "assistant"] * 4)]
    (whole,) = parse(document(items), "list.json")
    for count in range(1, len(items)):
        (shorter,) = parse(document(items[:count]), "list.json")
        assert shorter.session.id == whole.session.id
        assert shorter.entries == whole.entries[:count]
    assert parse(document(items), "list.json") == (whole,)


def test_another_name_or_beginning_is_another_session_and_another_middle_a_branch() -> None:
    def ids(*texts: str, name: str = "a.json") -> tuple[Any, list[Any]]:
        items = [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]
        (session,) = parse_openai_chat(document(items), name)
        return session.session.id, [entry.id for entry in session.entries]

    session, entries = ids("hi", "yes", "and?")
    assert ids("hi", "yes", "and?", name="b.json")[0] != session
    assert ids("ho", "yes", "and?")[0] != session
    other, branched = ids("hi", "no", "and?")
    assert other == session
    assert [one == two for one, two in zip(entries, branched, strict=True)] == [True, False, False]


def test_many_conversations_one_a_line_are_sessions_of_their_own() -> None:
    lines = [json.dumps({"messages": [{"role": "user", "content": text}], "id": text}) for text in ("a", "b", "a")]
    sessions = parse_openai_chat("\n".join(lines).encode(), "training.jsonl")
    assert [[item.data["content"] for item in items_of(session)] for session in sessions] == [["a"], ["b"], ["a"]]
    assert len({session.session.id for session in sessions}) == 3
    assert looks_like_openai_chat(lines[0].encode(), "training.jsonl")


CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": []}]
ITEMS = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
BLOCKS = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}]


@inputs("indent", [None, 2])
def test_the_beginning_of_a_list_tells_whose_it_is(indent: int | None) -> None:
    asked = (looks_like_openai_chat, looks_like_openai_responses, looks_like_anthropic)
    answers = []
    for value in (CHAT, ITEMS, BLOCKS, {"messages": CHAT}, {"model": "gpt", "input": ITEMS}, {"a": 1}, [], "x"):
        head = json.dumps(value, indent=indent).encode()
        answers.append([looks(head, "x.json") for looks in asked])
    yes, no = True, False
    assert answers == [
        [yes, no, no], [no, yes, no], [no, no, yes], [yes, no, no], [no, yes, no], [no, no, no], [no, no, no],
        [no, no, no],
    ]  # fmt: skip
