"""What one agent sees of the history: each part of a `ContextWindow`, their order, and their exact texts."""

from __future__ import annotations

from typing import Any

from flue_py.context.steps import CORRECTIONS
from flue_py.core.json import JsonObject
from tests.context.pipeline.piped import answer, block, call, context, done, ids, piped, result, texts, user
from tests.tables import inputs

HISTORY: list[JsonObject] = [
    user("Fix the build."), answer("I look.", call("c1", path="a.py"), agent="Coder"), result("c1", "x" * 900),
    answer("", call("c2", "write_file", path="A.py", content="new"), agent="Coder"), result("c2"),
    answer("Done.", agent="Coder"), answer("Looks good.", agent="Reviewer"), answer("Nobody said this."),
    user("Thanks."),
]  # fmt: skip


def window(**given: Any) -> dict[str, Any]:
    return {"window": given}


def test_without_a_window_all_of_the_history_is_seen() -> None:
    items = context(*HISTORY)
    found = piped(items, {})
    assert [item.source for item in found.items] == items
    assert found.report.changes == () == found.report.steps
    assert found.report.tokens_before == found.report.tokens_after > 0


def test_text_only_keeps_what_was_said_and_drops_the_tools() -> None:
    said = context({"role": "system", "content": "Be brief."}, *HISTORY)
    found = piped(said, window(text_only=True))
    assert texts(found) == ["Fix the build.", "I look.", "Done.", "Looks good.", "Nobody said this.", "Thanks."]
    assert found.items[1].message == answer("I look.", agent="Coder")
    assert [each for each in done(found) if each[2] == "cut"] == [("text_only", "e2", "cut")]
    assert {each[1] for each in done(found) if each[2] == "dropped"} == {"e0", "e3", "e4", "e5"}


def test_an_answer_of_text_alone_stays_with_its_reasoning() -> None:
    thought: JsonObject = {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"}
    said: JsonObject = {"role": "assistant", "content": [thought, {"type": "text", "text": "Yes."}]}
    found = piped(context(user("?"), said, user("!")), window(text_only=True))
    assert found.items[1].message == said
    assert found.report.changes == ()


@inputs("name", ["coder", "CODER", "Coder"])
def test_an_excluded_agent_is_left_out_in_whatever_case_and_tools_with_it(name: str) -> None:
    found = piped(context(*HISTORY), window(exclude_agents=[name]))
    assert texts(found) == ["Fix the build.", "Looks good.", "Nobody said this.", "Thanks."]


def test_a_name_is_found_however_long_it_is_and_whatever_stands_around_it() -> None:
    name = "agent " * 40
    said = context(user("Go."), answer("a", agent=name), answer("b", agent=f" {name} "), answer("c", agent="x"))
    assert texts(piped(said, window(exclude_agents=[name, " X"]))) == ["Go."]


def test_an_answer_without_an_agent_is_of_unknown() -> None:
    found = piped(context(*HISTORY), window(exclude_agents=["unknown"]))
    assert "Nobody said this." not in texts(found)
    assert "Looks good." in texts(found)


@inputs(("most", "first"), [(1, "e7"), (2, "e6"), (3, "e0"), (0, "e0")])
def test_the_last_turns_stay_whole_with_their_prompts(most: int, first: str) -> None:
    assert ids(piped(context(*HISTORY), window(max_turn_age=most)))[0] == first


def test_the_last_messages_are_kept_and_corrections_beside_them() -> None:
    said = [user("one"), user("RETRY at once"), answer("two"), user("[see [fuseraft:blocked now"), *map(user, "345")]
    found = piped(context(*said), window(max_tail_messages=2))
    assert texts(found) == ["RETRY at once", "[see [fuseraft:blocked now", "4", "5"]
    assert ids(piped(context(*said), window(max_tail_messages=5))) == [f"e{at}" for at in range(7)]
    assert ids(piped(context(*said), window(max_tail_messages=0))) == [f"e{at}" for at in range(7)]


@inputs("text", CORRECTIONS)
def test_each_correction_is_known_by_how_it_begins_and_only_of_the_user(text: str) -> None:
    said = [user(text), answer(text), user("RETRYING is no correction"), user("last")]
    assert texts(piped(context(*said), window(max_tail_messages=1))) == [text, "last"]


def test_a_cap_is_told_at_its_fraction_of_what_is_left_after_the_cut() -> None:
    said = context(*map(user, "abcd"))
    (event,) = piped(said, window(max_tail_messages=5, context_cap_fraction=0.8)).report.events
    assert str(event) == "context_cap_warning: 4 messages have reached 80% of max_tail_messages (5)"
    assert piped(said, window(max_tail_messages=6, context_cap_fraction=0.8)).report.events == ()
    assert piped(said, window(max_tail_messages=1, context_cap_fraction=0.0)).report.events == ()
    many = context(*[user("a")] * 55)
    assert len(piped(many, window(max_tail_messages=100, context_cap_fraction=0.55)).report.events) == 1


def test_a_slice_has_no_half_exchange_and_every_result_of_a_kept_call() -> None:
    said = [
        answer("", call("c0")), result("c0", "cut off"),
        answer("I try.", call("c1"), call("c2"), call("c3")), result("c1"), result("c3"), user("go on"),
    ]  # fmt: skip
    found = piped(context(*said), window(max_tail_messages=5))
    assert ids(found) == ["e2", "e3", "e4", "e5"]
    assert found.items[0].message == answer("I try.", call("c1"), call("c3"))
    orphans = piped(context(*said), window(max_tail_messages=2))
    assert ids(orphans) == ["e5"]


def test_calls_and_results_that_name_no_other_are_half_exchanges() -> None:
    nameless: JsonObject = {"type": "toolCall", "name": "read_file", "arguments": {}}
    said = [
        answer("I try.", call("c1"), call("c1", "run"), nameless), result("c1"),
        {"role": "toolResult", "content": "of nothing"}, answer("", nameless), user("go on"),
    ]  # fmt: skip
    found = piped(context(*said), window(max_tail_messages=9))
    assert [item.message for item in found.items] == [answer("I try.", call("c1")), result("c1"), user("go on")]


def test_parts_without_a_text_say_nothing() -> None:
    empty: JsonObject = {"role": "assistant", "content": [{"type": "text"}, {"type": "text", "text": None}, call("c1")]}
    found = piped(context(empty, result("c1"), user("?")), window(text_only=True))
    assert ids(found) == ["e2"]


def test_a_call_that_nothing_answers_leaves_its_text_or_nothing() -> None:
    said = [answer("I try.", call("c1")), answer("", call("c2")), user("stop")]
    found = piped(context(*said), window(max_tail_messages=9))
    assert [item.message for item in found.items] == [answer("I try."), user("stop")]


def test_long_results_are_cut_with_the_number_of_what_is_missing() -> None:
    said = [answer("", call("c1", "run")), result("c1", "a" * 4_321), user("?")]
    found = piped(context(*said), window(max_tool_result_chars=1_000))
    assert texts(found)[1] == ("a" * 1_000 + "\n[...truncated — 3,321 chars omitted to reduce context size...]")
    assert ids(piped(context(*said), window(max_tool_result_chars=4_321)))
    assert piped(context(*said), window(max_tool_result_chars=4_321)).report.changes == ()


def test_a_result_in_several_parts_is_cut_as_one_text_and_keeps_its_pictures() -> None:
    parts = [{"type": "text", "text": "aaaa"}, {"type": "image", "data": "QUJD"}, {"type": "text", "text": "bbbb"}]
    said: JsonObject = {"role": "toolResult", "toolCallId": "c1", "content": [*parts, {"type": "text", "text": "cc"}]}
    found = piped(context(answer("", call("c1")), said, user("?")), window(max_tool_result_chars=6))
    cut = {"type": "text", "text": "bb\n[...truncated — 4 chars omitted to reduce context size...]"}
    assert found.items[1].message["content"] == [*parts[:2], cut]


@inputs(("limit", "length"), [(10, 10), (0, 900), (5_000, 900)])
def test_a_tool_may_have_a_limit_of_its_own_whatever_the_case_of_its_name(limit: int, length: int) -> None:
    said = context(answer("", call("c1", "Grep_File")), result("c1", "a" * 900), user("?"))
    given = window(max_tool_result_chars=100, tool_result_char_overrides={"grep_file": limit})
    assert texts(piped(said, given))[1].count("a" * length) == 1
    assert len(texts(piped(said, given))[1].split("\n")[0]) == length
    assert piped(said, window(tool_result_char_overrides={"grep_file": 5})).report.changes == ()


def test_a_read_of_a_file_that_was_written_since_is_cut_whatever_its_limit() -> None:
    given = window(max_tool_result_chars=10_000, tool_result_char_overrides={"read_file": 0})
    note = (
        "\n[...400 chars elided — file was written or patched later this session; "
        "call read_file again if current content is needed]"
    )
    assert texts(piped(context(*HISTORY), given))[2] == "x" * 500 + note
    assert piped(context(*HISTORY), window(tool_result_char_overrides={"read_file": 9})).report.changes == ()


def test_a_write_in_the_same_message_or_of_another_path_consumes_nothing() -> None:
    together = [
        answer("", call("c1", PATH="a.py"), call("c2", "write_file", path="a.py")),
        result("c1", "x" * 900), result("c2"), user("?"),
    ]  # fmt: skip
    other = [
        answer("", call("c1", path="./a.py")), result("c1", "x" * 900),
        answer("", call("c2", "patch_file", path="a.py")), result("c2"), user("?"),
    ]  # fmt: skip
    for said in (together, other):
        assert piped(context(*said), window(max_tool_result_chars=10_000)).report.changes == ()


def test_long_answers_are_cut_and_summaries_and_calls_stay() -> None:
    thought: JsonObject = {"type": "thinking", "thinking": "long " * 9, "thinkingSignature": "c2ln"}
    said: list[JsonObject] = [
        {"role": "assistant", "content": [thought, {"type": "text", "text": "abcdef"}, call("c1")]},
        result("c1"),
        answer("[CONVERSATION SUMMARY — 9 turns]"),
        {"role": "assistant", "content": "plain text"},
        user("a long text of the user"),
    ]
    found = piped(context(*said), window(max_replay_chars=4))
    note = "\n[...truncated — 2 chars omitted to reduce context size...]"
    assert found.items[0].message["content"] == [thought, {"type": "text", "text": "abcd" + note}, call("c1")]
    assert texts(found)[2:] == [
        "[CONVERSATION SUMMARY — 9 turns]",
        "plai\n[...truncated — 6 chars omitted to reduce context size...]",
        "a long text of the user",
    ]


def test_answers_are_cut_after_the_general_limit_where_none_is_given() -> None:
    said = context(user("?"), answer("x" * 2_000), user("?"), answer("y" * 3_234), user("!"))
    found = piped(said, window(max_replay_chars=0))
    note = "\n[...truncated — 1,234 chars omitted to reduce context size...]"
    assert texts(found) == ["?", "x" * 2_000, "?", "y" * 2_000 + note, "!"]
    for given in (window(max_replay_chars=None), window()):
        assert piped(said, given).report.changes == ()


def test_a_text_that_was_cut_goes_without_what_signed_the_whole() -> None:
    signed: JsonObject = {"type": "text", "text": "abcdef", "textSignature": "c2ln"}
    short: JsonObject = {"type": "text", "text": "ab", "textSignature": "c2ln"}
    said: JsonObject = {"role": "assistant", "content": [short, signed]}
    found = piped(context(said, user("?")), window(max_replay_chars=4))
    note = "\n[...truncated — 4 chars omitted to reduce context size...]"
    assert found.items[0].message["content"] == [short, {"type": "text", "text": "ab" + note}]


def test_the_parts_of_a_window_run_in_their_order() -> None:
    given = window(
        text_only=True, exclude_agents=["x"], max_turn_age=1, max_tail_messages=1, context_cap_fraction=0.1,
        max_tool_result_chars=1, max_replay_chars=1,
    )  # fmt: skip
    assert [step.name for step in piped(context(*HISTORY), given).report.steps] == [
        "text_only", "exclude_agents", "max_turn_age", "max_tail_messages", "context_cap_fraction", "tool_pairs",
        "max_tool_result_chars", "max_replay_chars",
    ]  # fmt: skip


def test_the_turn_in_progress_is_seen_whole() -> None:
    now = [user("And now?"), answer("I look.", call("n1"), agent="Coder"), result("n1", "y" * 900)]
    found = piped(context(*HISTORY, *now), window(text_only=True, max_tail_messages=1), "Coder")
    assert [item.message for item in found.items] == now


@inputs("given", [{"text_only": True}, {"max_tail_messages": 1}, {"max_replay_chars": 1}])
def test_what_the_user_says_during_a_turn_does_not_end_it(given: dict[str, Any]) -> None:
    now = [answer("I look.", call("n1"), call("n2")), result("n1"), user("Be quick."), result("n2", "y" * 900)]
    for said in (now, [*now[:3], answer("Yes.", call("n3")), result("n3"), now[3]]):
        found = piped(context(*HISTORY, *said), window(**given))
        assert [item.message for item in found.items][-len(said) :] == said


@inputs("given", [{"text_only": True}, {"max_tail_messages": 1}, {"max_replay_chars": 1}])
def test_a_note_during_a_turn_does_not_end_it(given: dict[str, Any]) -> None:
    note: JsonObject = {"content": "It is Monday."}
    now = [answer("I look.", call("n1")), result("n1"), note, answer("Again.", call("n2")), result("n2"), note]
    said = [*HISTORY, user("And now?"), *now]
    notes = dict.fromkeys((len(said) - 4, len(said) - 1), "custom_message")
    assert ids(piped(context(*said, kinds=notes), window(**given)))[-6:] == [
        f"e{len(said) - at}" for at in range(6, 0, -1)
    ]
    over = [user("And now?"), answer("I know it."), note, *now[3:5]]
    left = piped(context(*over, kinds={2: "custom_message"}), window(max_tail_messages=1))
    assert ids(left) == ["e2", "e3", "e4"]


@inputs("given", [window(max_turn_age=1), window(max_tail_messages=2), {"trim": {"max_tokens": 1}}, {"spec": {}}])
def test_the_newest_text_of_each_block_stays_in_view_until_it_is_withdrawn(given: dict[str, Any]) -> None:
    said = [block("day", "Monday"), block("team", "Kim"), block("at", "Rome"), user("Go."), block("at", "[Gone.]")]
    said[4]["details"] = {"withdrawn": True}
    said += [answer("Hm."), block("day", "Sunday"), user("And now?"), answer("Done."), user("Thanks.")]
    items = context(*said, kinds=dict.fromkeys((0, 1, 2, 4, 6), "custom_message"))
    assert "".join(ids(piped(items, given))) in ("e1e6e7e8e9", "e1e6e8e9", "e1e6e9", "e1e3e6e9")
    assert "e4" in ids(piped(items[:5], given)), "it is told first"


def test_the_turn_of_another_agent_is_history() -> None:
    now = [user("And now?"), answer("I look.", call("n1"), agent="Coder"), result("n1", "y" * 900)]
    found = piped(context(*HISTORY, *now), window(text_only=True), "Reviewer")
    assert texts(found)[-2:] == ["And now?", "I look."]


def test_a_note_has_the_entry_with_the_whole_content() -> None:
    given = {**window(max_tool_result_chars=100), "addresses": True}
    said = piped(context(*HISTORY), given)
    assert texts(said)[2].endswith("\n[whole content: entry e2]")
