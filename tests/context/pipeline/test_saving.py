"""The steps that free tokens: superseded calls, cleared results, budgets of results, of a turn, and of all."""

from __future__ import annotations

import re
from typing import Any

from flue_py.context.steps import CLEARED, OMITTED, OVERWRITTEN, REPEATED
from flue_py.context.steps import IN_TURN_TOKENS_OMITTED as OVER_BUDGET
from flue_py.core.context import ContextEntry
from flue_py.core.json import JsonObject
from tests.context.pipeline.piped import answer, block, call, context, done, ids, piped, result, texts, user
from tests.tables import inputs


def calls(number: int, name: str = "Bash", size: int = 900) -> list[JsonObject]:
    """Return so many calls of a tool, each with its result."""
    pairs = [(answer("", call(f"c{at}", name, n=at)), result(f"c{at}", f"{at}:" + "x" * size)) for at in range(number)]
    return [message for pair in pairs for message in pair]


def test_old_results_of_certain_tools_are_cleared_but_for_the_newest() -> None:
    found = piped(context(user("Go."), *calls(8), answer("Done.")), {"microcompact": {"keep": 5}})
    assert [text.startswith(CLEARED) for text in texts(found)[2:18:2]] == [True] * 3 + [False] * 5
    assert texts(found)[2] == CLEARED == "[tool result cleared to save context]"
    assert done(found) == [("microcompact", f"e{at}", "replaced") for at in (2, 4, 6)]
    freed = [change.tokens_freed for change in found.report.changes]
    assert sum(freed) == found.report.tokens_freed == found.report.steps[0].tokens_freed
    assert all(tokens > 50 for tokens in freed)


@inputs("name", ["ReadFile", "read_file", "readFile", "READ-FILE"])
def test_a_tool_is_known_however_its_name_is_written(name: str) -> None:
    found = piped(context(*calls(2, name)), {"microcompact": {"keep": 1}})
    assert texts(found)[1] == CLEARED


def test_other_tools_and_what_is_cleared_already_do_not_count() -> None:
    assert piped(context(*calls(9, "ask_user")), {"microcompact": {}}).report.changes == ()
    cleared = [answer("", call("d", "Bash")), result("d", f"{CLEARED}\n[whole content: entry e1]")]
    found = piped(context(*cleared, *calls(5)), {"microcompact": {}})
    assert found.report.changes == ()


def test_a_result_above_its_limit_leaves_a_preview() -> None:
    said = context(
        answer("", call("c1")), result("c1", "a" * 50_001), answer("", call("c2")), result("c2", "b" * 50_000)
    )
    found = piped(said, {"tool_results": {}})
    assert texts(found)[1] == "a" * 1_000 + "\n... [truncated, 50001 total chars]"
    assert texts(found)[3] == "b" * 50_000


def test_single_results_are_capped_where_the_settings_say_so_and_by_no_default() -> None:
    said = context(
        answer("", call("c1")), result("c1", "a" * 150_000), answer("", call("c2")), result("c2", "b" * 99_999)
    )
    capped = {"tool_results": {"result_chars": 100_000, "preview_chars": 100_000, "round_chars": 10_000_000}}
    found = piped(said, capped)
    assert texts(found)[1] == "a" * 100_000 + "\n... [truncated, 150000 total chars]"
    assert texts(found)[3] == "b" * 99_999
    assert done(piped(said, {})) == []


def test_a_round_above_its_limit_leaves_previews_of_the_largest() -> None:
    sizes = [45_000, 50_000, 48_000, 46_000, 30_000]
    said = [
        answer("", *(call(f"c{at}") for at in range(5))),
        *(result(f"c{at}", "a" * n) for at, n in enumerate(sizes)),
    ]
    found = piped(context(*said), {"tool_results": {}})
    assert done(found) == [("tool_result_budget", "e2", "cut")]
    again = piped(context(*said), {"tool_results": {"round_chars": 100_000}})
    assert [each[1] for each in done(again)] == ["e2", "e3", "e4"]


def reads(first: JsonObject, second: JsonObject, size: int) -> list[JsonObject]:
    return [answer("", first), result("c1", "a" * size), answer("", second), result("c2", "b" * size), user("?")]


def test_a_repeated_read_leaves_the_newest_once_enough_is_freed() -> None:
    same = reads(call("c1", path="a", n=1), call("c2", n=1, path="a"), 70_000)
    found = piped(context(*same), {"superseded": {}})
    assert texts(found)[1] == REPEATED
    assert texts(found)[3] == "b" * 70_000
    assert (
        piped(context(*reads(call("c1", path="a"), call("c2", path="a"), 60_000)), {"superseded": {}}).report.changes
        == ()
    )
    other = reads(call("c1", path="a"), call("c2", path="b"), 70_000)
    assert piped(context(*other), {"superseded": {}}).report.changes == ()


def test_what_failed_or_was_not_answered_supersedes_nothing() -> None:
    same = reads(call("c1", path="a"), call("c2", path="a"), 70_000)
    failed = [*same[:3], {**same[3], "isError": True}, same[4]]
    for said in (failed, [*same[:3], same[4]]):
        assert piped(context(*said), {"superseded": {}}).report.changes == ()


def test_a_write_is_superseded_by_a_later_whole_one_with_its_long_arguments() -> None:
    body = "line\n" * 20_000
    said = reads(call("c1", "write_file", path="a", content=body), call("c2", "write_file", path="A", content=body), 9)
    found = piped(context(*said), {"superseded": {"argument_chars": 0, "text_chars": 0}})
    (part,) = found.items[0].calls
    assert part["arguments"] == {"path": "a", "content": OVERWRITTEN}
    assert found.items[2].message == said[2]
    patched = reads(call("c1", "write_file", path="a", content=body), call("c2", "patch_file", path="a"), 9)
    assert piped(context(*patched), {"superseded": {"argument_chars": 0}}).report.changes == ()


@inputs(
    ("text", "more", "outcome"),
    [
        ("ok " * 50, {}, "succeeded"),
        ("[EXIT 2] " + "no " * 50, {}, "failed [EXIT 2]"),
        ("no " * 50, {"isError": True}, "failed"),
        ("[EXIT 0] " + "ok " * 50, {}, "succeeded"),
        ("[EXIT timeout] " + "no " * 50, {}, "failed [EXIT timeout]"),
        ("[EXIT " + "no " * 50 + "]", {}, "failed"),
    ],
)
def test_a_command_that_was_run_again_leaves_how_it_ended(text: str, more: Any, outcome: str) -> None:
    run = [call(f"c{at}", "shell_run", command=command) for at, command in enumerate(["make ", "make", "make test"])]
    said = [message for at, each in enumerate(run) for message in (answer("", each), result(f"c{at}", text, **more))]
    said[-3:-2] = [result("c1", "fine now")]
    found = piped(context(*said), {"superseded": {}})
    assert texts(found)[1] == outcome
    assert done(found) == [("superseded", "e1", "replaced")]


def test_the_path_of_a_call_that_is_superseded_stays() -> None:
    path = "/srv/" + "deeper/" * 100 + "a.py"
    said = reads(call("c1", Path=path), call("c2", Path=path), 900)
    found = piped(context(*said), {"superseded": {"least_chars": 0}})
    assert [each.message for each in found.items if each.calls] == [said[0], said[2]]
    assert texts(found)[1] == REPEATED


def test_what_is_said_on_the_way_to_a_call_is_shortened_and_signed_reasoning_is_not() -> None:
    signed: JsonObject = {"type": "thinking", "thinking": "t" * 500, "thinkingSignature": "c2ln"}
    plain: JsonObject = {"type": "thinking", "thinking": "t" * 500}
    said: JsonObject = {
        "role": "assistant",
        "content": [signed, plain, {"type": "text", "text": "w" * 500}, call("c1", "run", path="a", script="s" * 501)],
    }
    found = piped(context(said, result("c1"), answer("a" * 500)), {"superseded": {}})
    content: Any = found.items[0].message["content"]
    assert content[0] == signed
    assert content[1]["thinking"] == "t" * 120 + "[reasoning omitted]"
    assert content[2]["text"] == "w" * 120 + "[text omitted]"
    assert content[3]["arguments"]["path"] == "a"
    assert "501 characters" in content[3]["arguments"]["script"]
    assert ids(found) == ["e0", "e1", "e2"]
    assert done(found) == [("intermediate", "e0", "cut")]


def test_what_is_shortened_says_where_the_whole_is() -> None:
    plain: JsonObject = {"type": "thinking", "thinking": "t" * 500}
    at = "\n[whole content: entry e0]"
    # One that is no longer than what would stand for it stays as it is.
    just: JsonObject = {"type": "text", "text": "w" * (120 + len("[text omitted]" + at))}
    said: JsonObject = {"role": "assistant", "content": [plain, {"type": "text", "text": "w" * 500}, just, call("c1")]}
    found = piped(context(said, result("c1")), {"superseded": {}, "addresses": True})
    content: Any = found.items[0].message["content"]
    assert content[0]["thinking"] == "t" * 120 + "[reasoning omitted]" + at
    assert content[1]["text"] == "w" * 120 + "[text omitted]" + at
    assert content[2] == just


def test_the_last_results_of_a_turn_stay_in_full() -> None:
    said = [user("Before."), *calls(3), answer("Done."), user("Go."), *calls(5)]
    found = piped(context(*said), {"in_turn": {"max_tool_pairs": 2}})
    stubs = [item.entry_id for item, text in zip(found.items, texts(found), strict=True) if text == OMITTED]
    assert stubs == ["e10", "e12", "e14"]
    assert OMITTED == "[result omitted — sliding window]"
    assert [item.message.get("toolCallId") for item in found.items] == [each.get("toolCallId") for each in said]


def test_a_turn_that_is_over_is_left_as_it_is() -> None:
    found = piped(context(user("Go."), *calls(5), answer("Done.")), {"in_turn": {"max_tool_pairs": 2}})
    assert found.report.changes == ()


def test_a_budget_of_tokens_omits_the_oldest_results_first() -> None:
    said = context(user("Go."), *calls(6, size=4_000))
    full = piped(said, {}).report.tokens_before
    found = piped(said, {"in_turn": {"max_context_tokens": full * 2 // 3}})
    assert found.report.tokens_after <= full * 2 // 3
    omitted = [text.startswith(OVER_BUDGET) for text in texts(found)[2::2]]
    assert omitted == sorted(omitted, reverse=True)
    assert any(omitted)
    assert not omitted[-1]


def test_a_result_that_does_not_fit_alone_is_cut_and_says_so() -> None:
    said = context(user("Go."), *calls(1, size=40_000))
    found = piped(said, {"in_turn": {"max_context_tokens": 300}})
    text = texts(found)[2]
    assert text.startswith("0:xxx")
    assert "TRUNCATED HERE" in text
    assert len(text.split("\n")[0]) >= 200
    assert found.report.tokens_after < found.report.tokens_before // 4


def test_arguments_that_were_left_out_go_without_what_signed_the_call() -> None:
    signed: JsonObject = {**call("c1", "run", script="s" * 999), "thoughtSignature": "c2ln"}
    other: JsonObject = {**call("c2", "run", script="s"), "thoughtSignature": "c2ln"}
    found = piped(context(answer("", signed, other), result("c1"), result("c2")), {"superseded": {}})
    changed, same = found.items[0].calls
    assert "thoughtSignature" not in changed
    assert same == other


@inputs("most", [1_500, 2_500, 5_000])
def test_stubs_leave_the_newest_result_all_the_room_that_there_is(most: int) -> None:
    said = context(user("Go."), *calls(20, size=3_000), answer("", call("n", "Bash")), result("n", "word " * 9_000))
    found = piped(said, {"in_turn": {"max_context_tokens": most}, "addresses": True})
    outside = piped(said[:1], {}).report.tokens_before
    assert most * 0.95 < found.report.tokens_after - outside <= most, "the history before the turn does not count"
    assert all(text.endswith(f"[whole content: entry e{at}]") for at, text in enumerate(texts(found)) if "[" in text)


def test_results_that_are_cut_keep_the_same_share() -> None:
    # Stubs would be longer than the first two, which are cut no further than they may be.
    said = context(user("Go."), *calls(2, size=90), answer("", call("n", "Bash")), result("n", "word " * 900))
    found = piped(said, {"in_turn": {"max_context_tokens": 400}})
    assert done(found) == [("max_in_turn_context_tokens", "e6", "cut")]


@inputs(
    "given",
    [
        {"microcompact": {"keep": 0}},
        {"in_turn": {"max_tool_pairs": 1}},
        {"in_turn": {"max_context_tokens": 1}},
        {"superseded": {"least_chars": 0, "argument_chars": 5, "shell_tools": ["Bash"]}},
    ],
)
@inputs("addresses", [True, False])
def test_no_note_is_longer_than_what_it_stands_for(given: dict[str, Any], addresses: bool) -> None:
    said = [
        message
        for at in range(4)
        for message in (answer("", call(f"c{at}", "Bash", command="make it")), result("c", "ok"))
    ]
    said = [{**each, "toolCallId": f"c{at // 2}"} if "toolCallId" in each else each for at, each in enumerate(said)]
    assert piped(context(user("Go."), *said), {**given, "addresses": addresses}).report.changes == ()


def test_a_picture_that_was_read_again_is_superseded() -> None:
    picture: JsonObject = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
    said = reads(call("c1", path="a.png"), call("c2", path="a.png"), 9)
    said[1], said[3] = ({**said[at], "content": [picture]} for at in (1, 3))
    found = piped(context(*said), {"superseded": {"least_chars": 0}})
    assert done(found) == [("superseded", "e1", "replaced")]
    assert found.report.tokens_freed > 1_000


def test_the_oldest_turns_go_and_the_last_always_stays() -> None:
    turns = [message for at in range(6) for message in (user(f"{at} " + "word " * 300), *calls(1), answer("ok"))]
    said = context({"role": "system", "content": "Be brief."}, *turns)
    full = piped(said, {}).report.tokens_before
    found = piped(said, {"trim": {"max_tokens": full // 2}})
    assert found.report.tokens_after <= full // 2
    assert ids(found)[0] == "e0"
    assert (found.items[1].entry_id or "e0")[1:].isdigit()
    assert (int((found.items[1].entry_id or "e0")[1:]) - 1) % 4 == 0
    least = piped(said, {"trim": {"max_tokens": 1}})
    assert ids(least) == ["e0", "e21", "e22", "e23", "e24"]


@inputs("role", ["user", "bashExecution"])
def test_what_the_user_says_between_a_call_and_its_result_begins_no_turn(role: str) -> None:
    between: JsonObject = {"role": role, "content": "And be quick.", "command": "ls"}
    said = [user("Go."), answer("", call("c1")), between, result("c1", "word " * 90), answer("Done."), user("Thanks.")]
    for most in range(1, 200, 20):
        found = piped(context(*said), {"trim": {"max_tokens": most}})
        assert ids(found) in (["e5"], [f"e{at}" for at in range(6)])
    assert ids(piped(context(*said[:5]), {"trim": {"max_tokens": 1}})) == [f"e{at}" for at in range(5)]


def test_the_newest_text_of_a_block_stays_and_notes_do_not_take_the_question_away() -> None:
    said = [block("team", "Kim"), user("Go."), answer("Done."), block("team", "Lee"), block("day", "Monday")]
    said += [user("And now?"), *calls(1), block("day", "Tuesday"), {"content": "A note."}]
    notes = dict.fromkeys((0, 3, 4, 8, 9), "custom_message")
    found = piped(context(*said, kinds=notes), {"trim": {"max_tokens": 1}})
    assert ids(found) == ["e3", "e5", "e6", "e7", "e8", "e9"]


def test_what_is_left_of_a_turn_before_the_first_message_of_the_user_goes_first() -> None:
    said = context(answer("Hello."), *calls(1), user("Go."), answer("Done."), user("Thanks."))
    assert ids(piped(said, {"trim": {"max_tokens": 100}})) == ["e3", "e4", "e5"]
    assert ids(piped(said, {"trim": {"max_tokens": 1}})) == ["e5"]
    assert ids(piped(said[:5], {"trim": {"max_tokens": 1}})) == ["e3", "e4"]
    assert ids(piped(said[:3], {"trim": {"max_tokens": 1}})) == ["e0", "e1", "e2"]


@inputs(
    "given",
    [
        {"microcompact": {"keep": 0}},
        {"tool_results": {"result_chars": 50, "round_chars": 50, "preview_chars": 5}},
        {"superseded": {"least_chars": 0, "text_chars": 1, "argument_chars": 1, "observing_tools": ["bash"]}},
        {"in_turn": {"max_context_tokens": 1}},
        {"trim": {"max_tokens": 1}},
    ],
)
def test_what_is_pinned_goes_out_word_for_word(given: dict[str, Any]) -> None:
    pinned = [
        user("Never touch main."),
        answer("I look " * 9, call("p", "Bash", text="a" * 900)),
        result("p", "b" * 900),
    ]
    said = [{"summary": "s"}, *pinned, answer("", call("q", "Bash", text="a" * 900)), result("q", "b" * 900), user("?")]
    items = [
        ContextEntry(item.entry, is_pinned=0 < at < 4)
        for at, item in enumerate(context(*said, kinds={0: "compaction"}))
    ]
    found = piped(items, given)
    assert [item.message for item in found.items][1:4] == pinned
    assert [entry for entry in found.report.by_entry() if entry in ("e1", "e2", "e3")] == []
    assert ids(found)[0] == "e0"
    if "trim" in given:
        assert ids(found) == ["e0", "e1", "e2", "e3", "e6"]


@inputs(("part", "step", "most"), [("in_turn", "max_in_turn_context_tokens", 10), ("trim", "trim_history", 200)])
@inputs("epoch_tokens", [0, 100])
def test_a_budget_that_cannot_be_met_is_told(part: str, step: str, most: int, epoch_tokens: int) -> None:
    name = "max_context_tokens" if part == "in_turn" else "max_tokens"
    said = context(user("word " * 300), *calls(2), user("word " * 300), *calls(2))
    given = {part: {name: most}, "epoch_tokens": epoch_tokens}
    found = piped(said, given)
    (event,) = [each for each in found.report.events if each.name == "over_budget"]
    assert re.fullmatch(rf"{step} leaves [0-9,]+ tokens, more than {most}", event.text)
    assert piped(said, {part: {name: 9_000}, "epoch_tokens": epoch_tokens}).report.events == ()


def test_the_summary_of_a_compaction_is_not_trimmed() -> None:
    summary: JsonObject = {"summary": "s " * 200}
    said = context(summary, *map(user, "abc"), kinds={0: "compaction"})
    assert ids(piped(said, {"trim": {"max_tokens": 1}})) == ["e0", "e3"]


def test_a_warning_is_told_by_the_request_that_reaches_it_and_by_no_later_one() -> None:
    said = [message for at in range(8) for message in (user("word " * 100), answer(f"{at}"))]
    told = []
    for end in range(1, len(said) + 1, 2):
        events = piped(context(*said[:end]), {"trim": {"max_tokens": 700, "warn_fraction": 0.5}}).report.events
        told += [(end, event.name) for event in events]
    assert [name for _, name in told] == ["context_warning"]
