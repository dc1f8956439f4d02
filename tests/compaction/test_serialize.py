"""The text a summarizer reads, and the file lists a summary ends with."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flue_py import compaction
from flue_py.core.json import JsonObject, JsonValue
from tests.compaction.strategies import assistant, call, messages, odd_messages, paths, tool_result, user
from tests.tables import inputs
from tests.values import existing


def test_an_assistant_message_gives_its_thinking_its_text_and_its_calls_in_that_order() -> None:
    message: JsonObject = {
        "role": "assistant",
        "content": [
            {"type": "toolCall", "name": "read", "arguments": {"path": "a", "n": 1.0, "2": None}},
            {"type": "text", "text": "t1"},
            {"type": "thinking", "thinking": "h1"},
            {"type": "text", "text": "t2"},
            {"type": "toolCall", "name": "bash", "arguments": {}},
        ],
    }
    assert compaction.serialize_conversation([message]) == (
        '[Assistant thinking]: h1\n\n[Assistant]: t1\nt2\n\n[Assistant tool calls]: read(2=null, path="a", n=1); bash()'
    )


def test_messages_without_text_and_unknown_roles_are_left_out() -> None:
    image: JsonObject = {"role": "toolResult", "content": [{"type": "image", "data": "AA=="}]}
    custom: JsonObject = {"role": "custom", "content": "zz"}
    context = [user(""), image, custom, user("x"), assistant("y")]
    assert compaction.serialize_conversation(context) == "[User]: x\n\n[Assistant]: y"


def test_text_parts_of_a_user_message_are_joined_without_a_separator() -> None:
    parts: list[JsonValue] = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert compaction.serialize_conversation([{"role": "user", "content": parts}]) == "[User]: ab"


def test_a_tool_result_of_2000_units_is_whole_and_one_more_is_cut() -> None:
    assert compaction.serialize_conversation([tool_result("x" * 2000)]) == "[Tool result]: " + "x" * 2000
    assert compaction.serialize_conversation([tool_result("x" * 2001)]) == (
        "[Tool result]: " + "x" * 2000 + "\n\n[... 1 more characters truncated]"
    )


def test_the_cut_of_a_tool_result_keeps_characters_whole() -> None:
    context = [tool_result("x" * 1999 + "🚀🚀")]
    whole = compaction.serialize_conversation(context)
    assert whole == "[Tool result]: " + "x" * 1999 + "\n\n[... 4 more characters truncated]"


@inputs(("role", "label"), [("assistant", "Assistant"), ("toolResult", "Tool result")])
def test_content_as_a_plain_string_is_shown(role: str, label: str) -> None:
    message: JsonObject = {"role": role, "content": "abc"}
    assert compaction.serialize_conversation([message]) == f"[{label}]: abc"


def test_arguments_that_are_no_object_are_printed_as_they_are() -> None:
    context = [call("f", '{"a":1}'), call("g", None), call("h", [1])]
    assert compaction.serialize_conversation(context) == (
        '[Assistant tool calls]: f("{\\"a\\":1}")\n\n[Assistant tool calls]: g()\n\n[Assistant tool calls]: h([1])'
    )


@given(context=messages)
def test_a_conversation_is_the_text_of_its_messages_one_by_one(context: list[JsonObject]) -> None:
    alone = [compaction.serialize_conversation([message]) for message in context]
    assert compaction.serialize_conversation(context) == "\n\n".join(text for text in alone if text)


@given(context=odd_messages)
def test_messages_of_any_shape_are_serialized(context: list[JsonObject]) -> None:
    text = compaction.serialize_conversation(context)
    assert text == "" or text.startswith("[")


def test_file_lists_are_appended_as_tagged_blocks() -> None:
    lists = compaction.file_lists(read=["b", "a", "m"], written=["m"], edited=["Z"])
    assert lists == compaction.FileLists(("a", "b"), ("Z", "m"))
    assert compaction.appended_file_lists(lists) == (
        "\n\n<read-files>\na\nb\n</read-files>\n\n<modified-files>\nZ\nm\n</modified-files>"
    )
    assert compaction.appended_file_lists(compaction.FileLists()) == ""
    assert (
        compaction.appended_file_lists(compaction.FileLists(modified_files=("m",)))
        == "\n\n<modified-files>\nm\n</modified-files>"
    )


def test_file_lists_sort_by_utf16_code_units() -> None:
    assert compaction.file_lists(["\uffee", "\U0001f680"], [], []).read_files == ("\U0001f680", "\uffee")


@given(read=st.lists(paths), written=st.lists(paths), edited=st.lists(paths))
def test_every_file_is_in_exactly_one_list(read: list[str], written: list[str], edited: list[str]) -> None:
    lists = compaction.file_lists(read, written, edited)
    assert set(lists.modified_files) == {*written, *edited}
    assert set(lists.read_files) == set(read) - set(lists.modified_files)
    assert len(lists.read_files + lists.modified_files) == len({*read, *written, *edited})


def test_file_lists_survive_being_stored_as_details() -> None:
    lists = compaction.FileLists(("a", "b"), ("c",))
    assert compaction.listed_files(lists.details) == lists


@inputs("details", [None, {}, {"readFiles": None, "modifiedFiles": 3}, {"readFiles": [1, {}]}])
def test_details_of_any_shape_hold_no_files(details: JsonObject | None) -> None:
    assert compaction.listed_files(details) == compaction.FileLists()


def test_only_file_calls_with_a_string_path_are_collected() -> None:
    context: list[JsonObject] = [
        call("read", {"path": "r"}), call("read", {"path": ""}), call("read", {"path": 5}),
        call("READ", {"path": "no"}), call("grep", {"path": "no"}), call("write", {"path": "w"}),
        call("edit", {"path": "r2"}), call("edit", "no object"), tool_result("no call"),
        {"role": "user", "content": [{"type": "toolCall", "name": "read", "arguments": {"path": "no"}}]},
    ]  # fmt: skip
    earlier = compaction.FileLists(("old", "w"), ("m",))
    assert compaction.collect_file_lists(context, earlier) == compaction.FileLists(("old", "r"), ("m", "r2", "w"))


OTHER_FILE_CALLS = [
    call("read_file", {"path": "r1"}), call("ReadFile", {"filePath": "r2"}),
    call("Read", {"path": "", "file_path": "r3"}), call("write_file", {"path": "w1"}),
    call("Write", {"file_path": "w2"}), call("create_file", {"filename": "w3"}), call("edit_file", {"file": "m1"}),
    call("MultiEdit", {"file_path": "m2", "edits": []}), call("NotebookEdit", {"notebook_path": "m3"}),
    call("edit", {"file_path": "m4"}), call("read_files", {"path": "no"}), call("Grep", {"file_path": "no"}),
    call("Read", {"file_path": 5}), call("Read", {"url": "no"}),
]  # fmt: skip


def test_tools_for_files_are_known_by_the_names_that_agents_have_for_them() -> None:
    lists = compaction.collect_file_lists(OTHER_FILE_CALLS)
    assert lists == compaction.FileLists(("r1", "r2", "r3"), ("m1", "m2", "m3", "m4", "w1", "w2", "w3"))


def test_a_plan_lists_files() -> None:
    context = [user("a" * 400), call("Write", {"file_path": "w"}), tool_result("ok"), user("b"), assistant("c" * 40)]
    plan = existing(compaction.prepare_compaction(context, compaction.CompactionSettings(keep_recent_tokens=4)))
    assert plan.files.modified_files == ("w",)
