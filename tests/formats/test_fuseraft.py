"""fuseraft snapshots and checkpoints: what is imported shows what the program would restore, worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flue_py.core.usage import UsageTotals
from flue_py.errors import UnreadableFile
from flue_py.formats import fuseraft
from flue_py.formats.kit import SessionPart
from tests.formats.trees import context_of, document, shown, tree_of
from tests.tables import inputs


def text(role: str, *texts: str) -> dict[str, Any]:
    return {"Role": role, "Contents": [{"Type": "text", "Text": each} for each in texts]}


CALL = {"Type": "function_call", "CallId": "c1", "FunctionName": "list_files", "ArgumentsJson": '{"path":"."}'}
RESULT = {"Type": "function_result", "CallId": "c1", "ResultJson": '"a.txt\\nb.txt"'}
HISTORY = [
    text("system", "You are helpful."),
    text("user", "list files"),
    {"Role": "assistant", "Contents": [{"Type": "text", "Text": "Looking."}, CALL]},
    {"Role": "tool", "Contents": [RESULT]},
    text("assistant", "Two files."),
]


def snapshot(*history: Any, **fields: Any) -> dict[str, Any]:
    return {
        "SessionId": "a87569bcd7b0", "ModelId": "claude-sonnet-4-6", "Cwd": "/home/dev/proj",
        "StartedAt": "2026-05-25T14:32:00Z", "TurnIndex": 2, "History": [*history], **fields,
    }  # fmt: skip


def repl(*history: Any, **fields: Any) -> SessionPart:
    (session,) = fuseraft.parse_fuseraft_repl(document(snapshot(*history, **fields)), "repl-a87569bcd7b0.json")
    return session


def test_a_snapshot_shows_its_history_with_calls_and_results() -> None:
    session = repl(*HISTORY, RecoveryHint="go on")
    assert context_of(session) == [
        {"role": "system", "content": "You are helpful."},
        {"role": "user", "content": "list files"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Looking."},
                {"type": "toolCall", "id": "c1", "name": "list_files", "arguments": {"path": "."}},
            ],
            "model": "claude-sonnet-4-6",
        },
        {"role": "toolResult", "toolCallId": "c1", "toolName": "list_files", "content": "a.txt\nb.txt"},
        {"role": "assistant", "content": [{"type": "text", "text": "Two files."}], "model": "claude-sonnet-4-6"},
    ]
    assert (session.session.id, session.session.cwd) == ("a87569bcd7b0", "/home/dev/proj")
    assert session.session.created_us == 1779719520000000
    rest = json.loads(session.session.metadata_text)["imported"]["snapshot"]
    assert (rest["RecoveryHint"], "History" in rest) == ("go on", False)
    assert session.report.skipped == session.report.repaired == ()


def test_another_model_makes_no_other_history_of_a_snapshot() -> None:
    later = [*HISTORY, text("user", "and now?"), text("assistant", "Three.")]
    before, after = repl(*HISTORY), repl(*later, ModelId="gpt-5.5")
    assert [entry.id for entry in after.entries[: len(before.entries)]] == [entry.id for entry in before.entries]


def test_the_last_turn_of_a_snapshot_is_of_the_time_at_which_it_was_saved() -> None:
    session = repl(
        *HISTORY, text("user", "and now?"), text("assistant", "Three."), LastUpdatedAt="2026-05-25T14:40:12Z"
    )
    minutes = [((entry.created_us or 0) - 1779719520000000) // 1_000_000 for entry in session.entries]
    assert minutes == [0, 0, 0, 0, 0, 492, 492]


def test_skipped_contents_and_empty_messages_are_left_out_as_the_program_does() -> None:
    skip = {"Type": "skip"}
    session = repl(
        text("user", "hi"),
        {"Role": "assistant", "Contents": [skip]},
        {"Role": "assistant", "Contents": []},
        {"Role": "assistant", "Contents": [skip, {"Type": "text", "Text": "yes"}]},
    )
    assert shown(session) == [("user", "hi"), ("assistant", "yes")]
    assert [note.line for note in session.report.skipped] == [1, 2]
    assert [note.line for note in session.report.repaired] == [1, 3]


def test_several_results_are_messages_of_their_own_and_results_that_are_no_text_are_shown_as_json() -> None:
    other = {"Type": "function_result", "CallId": "c2", "ResultJson": '{"count": 2}'}
    broken = {"Type": "function_result", "CallId": "c3", "ResultJson": "{torn"}
    session = repl({"Role": "tool", "Contents": [RESULT, other, broken]})
    assert [(m["toolCallId"], m["content"]) for m in context_of(session)] == [
        ("c1", "a.txt\nb.txt"),
        ("c2", '{"count": 2}'),
        ("c3", "{torn"),
    ]


def test_images_and_contents_from_the_future_survive() -> None:
    session = repl(
        {
            "Role": "user",
            "Contents": [{"Type": "image", "Name": "a.png", "Sha256": "ff"}, {"Type": "hologram", "Depth": 3}],
        }
    )
    assert context_of(session)[0]["content"] == [
        {"type": "text", "text": "[image no longer available: a.png]", "image": {"Name": "a.png", "Sha256": "ff"}},
        {"type": "fuseraft:hologram", "Depth": 3},
    ]


def test_a_longer_history_begins_with_the_entries_of_the_shorter_one() -> None:
    whole = repl(*HISTORY)
    for count in range(len(HISTORY)):
        assert repl(*HISTORY[:count]).entries == whole.entries[:count]


def test_a_new_system_prompt_is_no_new_history_and_another_turn_is() -> None:
    before, after = repl(*HISTORY), repl(text("system", "You are brief."), *HISTORY[1:])
    assert [entry.id for entry in before.entries[1:]] == [entry.id for entry in after.entries[1:]]
    assert before.entries[0].id != after.entries[0].id
    rewound = repl(*HISTORY[:1], text("user", "something else"), *HISTORY[2:])
    assert not {entry.id for entry in rewound.entries[1:]} & {entry.id for entry in before.entries}


def test_items_that_are_no_messages_are_named_by_their_index() -> None:
    session = repl(
        5, {"Role": "user"}, text("user", "hi"), {"Role": "user", "Contents": [7, {"Type": "text", "Text": 8}]}
    )
    assert [str(note) for note in session.report.skipped] == [
        "item 0: is a JSON int, not an object",
        "item 1: is not a message: it has no Role and Contents",
    ]
    assert [note.line for note in session.report.repaired] == [3, 3]
    assert shown(session) == [("user", "hi")]


# --- Runs ---------------------------------------------------------------------------------------------------


def turn(number: int, content: str, **fields: Any) -> dict[str, Any]:
    at = f"2026-05-27T10:{number:02}:00Z"
    agent = {"AgentName": "Developer", "Role": "assistant", "IsCompactionSummary": False}
    return {"Content": content, "Timestamp": at, "TurnIndex": number, **agent, **fields}


def checkpoint(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {
        "SessionId": "a3f92c1d",
        "Task": "\n## Refactor the payment module\nand more",
        "ConfigPath": "/home/dev/proj/orchestration.yaml",
        "Messages": [*messages],
        "StartedAt": "2026-05-27T10:00:00Z",
        "IsComplete": False,
        **fields,
    }


def run(*messages: Any, **fields: Any) -> SessionPart:
    (session,) = fuseraft.parse_fuseraft_run(document(checkpoint(*messages, **fields)), "a3f92c1d.json")
    return session


SUMMED = turn(1, "So far.", AgentName="System", Role="user", IsCompactionSummary=True)
USAGE = {"InputTokens": 4200, "OutputTokens": 310, "TotalTokens": 4510}


def test_a_checkpoint_shows_its_messages_in_order() -> None:
    calls = [{"Name": "write_file", "ArgsSummary": "path=a.py", "Succeeded": True}]
    session = run(
        turn(0, "Done.", Usage=USAGE, ToolCalls=calls), turn(1, "use decimals", AgentName="Human", Role="user")
    )
    assert context_of(session) == [
        {
            "role": "assistant",
            "content": "Done.",
            "agentName": "Developer",
            "usage": {"input": 4200, "output": 310, "totalTokens": 4510},
        },
        {"role": "user", "content": "use decimals", "agentName": "Human"},
    ]
    assert session.session.title == "Refactor the payment module"
    assert session.session.config_path == "/home/dev/proj/orchestration.yaml"
    assert tree_of(session)[0].extra_fields == {"TurnIndex": 0, "IsCompactionSummary": False, "ToolCalls": calls}


def test_a_run_that_is_complete_was_completed_when_it_was_saved() -> None:
    saved = "2026-05-27T11:00:00Z"
    assert run(turn(0, "a"), LastUpdatedAt=saved).completed_us is None
    assert run(turn(0, "a"), LastUpdatedAt=saved, IsComplete=True).completed_us == 1779879600000000
    assert run(turn(5, "a"), IsComplete=True).completed_us == 1779876300000000
    assert run(IsComplete=True).completed_us == 1779876000000000
    assert run(IsComplete="yes").completed_us is None


def test_the_answers_of_a_run_are_of_its_model_unless_they_name_another() -> None:
    session = run(turn(0, "a", Usage=USAGE), turn(1, "b", ModelId="other"), turn(2, "c", Role="user"), ModelId="m")
    assert [message.get("model") for message in context_of(session)] == ["m", "other", None]
    assert [call.model for entry in session.entries for call in entry.calls] == ["m"]
    assert [entry.id for entry in session.entries[:1]] == [entry.id for entry in run(turn(0, "a")).entries]


def test_usage_counts_once_and_a_cost_only_where_one_was_reported() -> None:
    session = run(turn(0, "a", Usage=USAGE), turn(1, "b", Usage={**USAGE, "CostUsd": 0.25}), turn(2, "c", Usage="much"))
    assert [entry.usage for entry in session.entries] == [
        UsageTotals(4200, 310, 0, 0, 4510),
        UsageTotals(4200, 310, 0, 0, 4510, 0, 0, 0, 0, 250_000_000_000),
        UsageTotals(),
    ]
    assert "cost" not in json.loads(session.entries[0].payload)["usage"]
    assert [note.line for note in session.report.repaired] == [2]
    calls = {call.call_id: call.is_unknown for entry in session.entries for call in entry.calls}
    assert list(calls.values()) == [False, False, True]
    assert json.loads(session.entries[2].payload)["usage"] == "much"


def test_after_a_compaction_the_summary_comes_first_and_what_was_imported_before_goes_on() -> None:
    old = [turn(number, f"turn {number}", Usage=USAGE) for number in range(4)]
    summed = turn(1, "They did 0 and 1.", AgentName="System", Role="user", IsCompactionSummary=True)
    summed["Timestamp"] = "2026-05-27T10:30:00Z"
    later = turn(40, "turn 4")
    before, after = run(*old), run(summed, *old[2:], later)
    # By the program's rule: the messages in the order of the checkpoint.
    assert shown(after) == [
        ("user", "[Context Summary]\n\nThey did 0 and 1."),
        ("assistant", "turn 2"),
        ("assistant", "turn 3"),
        ("assistant", "turn 4"),
    ]
    known = [entry.id for entry in before.entries]
    assert [entry.id for entry in after.entries[:2]] == known[2:]
    assert after.entries[2].parent_id == known[3]
    calls = [call.call_id for session in (before, after) for entry in session.entries for call in entry.calls]
    assert len(set(calls)) == 4


@inputs(
    ("turns", "expected"),
    [
        ([SUMMED, turn(2, "next")], [("user", "[Context Summary]\n\nSo far."), ("assistant", "next")]),
        ([turn(0, "a"), SUMMED, turn(2, "b")], [("assistant", "a"), ("user", "So far."), ("assistant", "b")]),
    ],
    ids=["one that kept nothing", "one in the middle"],
)
def test_a_summary_is_shown_where_it_is(turns: list[Any], expected: list[Any]) -> None:
    assert shown(run(*turns)) == expected


def test_equal_messages_are_all_there() -> None:
    session = run(turn(0, "same"), turn(0, "same"), {"Role": "user", "Content": "no time"})
    assert [content for _, content in shown(session)] == ["same", "same", "no time"]
    assert [note.line for note in session.report.repaired] == [2]


@inputs("session_id", ["", "../../etc", "A3F92C1D", "a3f92c1", "a3f92c1d0", 7, None])
def test_an_id_that_is_not_eight_hex_characters_is_refused(session_id: Any) -> None:
    with pytest.raises(UnreadableFile, match="eight hex characters"):
        run(SessionId=session_id)
