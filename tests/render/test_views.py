from __future__ import annotations

from decimal import Decimal

from flue_py.core.context import ContextEntry, project
from flue_py.core.sessions import Deletion, SessionInfo, StoreInfo
from flue_py.core.usage import Cost, Paid, Usage, UsageWindow, usage_of_window
from flue_py.render.lines import Line, Look, entry_text, text_of
from flue_py.render.views import (
    context_lines,
    context_summary,
    dollars,
    entry_block,
    entry_row,
    exact,
    facts_lines,
    listed_entry,
    path_lines,
    receipt_lines,
    session_facts,
    session_row,
    store_facts,
    tree_row,
    usage_lines,
    usage_row,
)
from flue_py.sessions.erase import receipt_of
from tests.render.entries import forest, made
from tests.tables import inputs

WINDOW = UsageWindow(
    Usage(1049, 83156, 43229469, 0, 0, Cost(3147000000, 0, 0, 0, 30330197700001)),
    "leaf",
    "before",
    told=frozenset({"cacheWrite"}),
)


def plain(lines: list[Line]) -> list[str]:
    return [text_of(line).rstrip() for line in lines]


UUID = "7ce96df4-1c2b-4d5e-8f90-0a1b2c3d4e5f"
CALL = {"type": "toolCall", "name": "stop", "arguments": {}}
VIBE = '{"command":"ls","returncode":2,"stderr":"no","stdout":"","timed_out":false}'


@inputs(
    ("fields", "text"),
    [
        ({"role": "user", "content": "hello\n  there"}, "hello there"),
        ({"role": "assistant", "content": [{"type": "text", "text": "so"}, {"type": "image"}]}, "so"),
        (
            {
                "role": "assistant",
                "content": [{"type": "toolCall", "id": "c", "name": "read", "arguments": {"p": "a.py"}}],
            },
            "-> read(a.py)",
        ),
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "toolCall", "name": "Edit", "arguments": {"all": False, "old": "x", "file_path": "a.py"}},
                    {"type": "toolCall", "name": "ask", "arguments": {"n": 2, "who": "ann"}},
                    {"type": "toolCall", "name": "wait", "arguments": {"n": 2}},
                    {"type": "toolCall", "name": "stop", "arguments": {}},
                ],
            },
            "-> Edit(a.py); -> ask(ann); -> wait(n: 2); -> stop()",
        ),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}, "(thinks) hm"),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, CALL]}, "-> stop()"),
        ({"role": "assistant", "content": [], "errorMessage": "aborted"}, "aborted"),
        ({"role": "assistant", "content": None}, "(nothing said)"),
        ({"role": "toolResult", "toolName": "bash", "isError": True, "content": "no"}, "[bash, failed] no"),
        ({"role": "toolResult", "toolName": "bash", "content": [{"type": "text", "text": VIBE}]}, "[bash, exit 2] no"),
        (
            {"role": "toolResult", "toolName": "read", "content": '{"content":"AAA","id":"x"}'},
            "[read] content: AAA id: x",
        ),
        (
            {"role": "toolResult", "toolName": "task", "content": f"agent_id: {UUID}. Go on"},
            "[task] agent_id: 7ce96df4…. Go on",
        ),
        ({"role": "bashExecution", "command": "ls", "output": "x"}, "! ls"),
        ({"role": "bashExecution", "command": "ls", "output": "x", "exitCode": 0}, "[exit 0] ! ls"),
        ({"content": "<system-reminder>x</system-reminder>\nFix it"}, "[system reminder] Fix it"),
        (
            {
                "content": "<command-message>review</command-message>\n<command-name>/review</command-name>\n"
                "<command-args>12 < 13</command-args>"
            },
            "/review 12 < 13",
        ),
        ({"content": "<command-name>/clear</command-name>\n<command-args></command-args>"}, "/clear"),
        ({"content": "<bash-input>ls -l"}, "! ls -l"),
        ({"content": "<bash-stdout>a.py</bash-stdout><bash-stderr></bash-stderr>"}, "[bash stdout, bash stderr]"),
        ({"content": "<bash-input>pwd</bash-input><bash-input>ls</bash-input>"}, "! pwd ! ls"),
        ({"content": "<bash-input></bash-input>"}, "[bash input]"),
        ({"content": "<command-args></command-args>"}, "[command args]"),
        ({"content": "<command-message>x</command-message>\nFix it"}, "[command message] Fix it"),
        (
            {"content": [{"type": "text", "text": "Fix it"}, {"type": "text", "text": "<ide_selection>x"}]},
            "[IDE selection] Fix it",
        ),
        ({"content": "/compact now"}, "/compact now"),
        ({"kind": "compaction", "summary": "so far"}, "so far"),
        ({"kind": "branch_summary", "summary": "tried"}, "tried"),
        ({"kind": "custom_message", "content": "ruff: 0 issues"}, "ruff: 0 issues"),
        ({"kind": "model_change", "provider": "openai", "modelId": "gpt-5"}, "openai/gpt-5"),
        ({"kind": "thinking_level_change", "thinkingLevel": "high"}, "high"),
        ({"kind": "label", "targetId": "e1", "label": ""}, "(cleared) on e1"),
        ({"kind": "session_info", "name": "INI"}, "INI"),
        ({"kind": "future", "a": [1], "b": {"c": "d", "e": None}, "f": False}, "a: 1, c: d, f: false"),
        ({"kind": "future", "a": {"b": {"c": {"d": 1}}}}, "c: …"),
        ({"kind": "future"}, "(empty)"),
        ({"kind": "leaf", "targetId": UUID}, "targetId: 7ce96df4…"),
        ({"kind": "future", "callId": UUID, "a": '{"b": [{"c": 1}]}'}, "c: 1"),
    ],
)
def test_an_entry_is_told_by_what_it_says(fields: dict[str, object], text: str) -> None:
    assert entry_text(made("e", None, **fields)) == text  # type: ignore[arg-type]


def test_a_path_can_leave_out_its_middle() -> None:
    path = forest([None, *range(9)], turn_every=3)
    look = Look(60, dict.fromkeys([entry.id for entry in path], 1))
    assert len(path_lines(path, look)) == 10
    lines = plain(path_lines(path, look, leaf=path[-1].id, head=2, tail=3))
    assert [line.split()[0] for line in lines] == ["e00000", "e00001", "┊", "e00007", "e00008", "e00009"]
    assert "5 entries, 2 turns" in lines[2]
    assert "← leaf" in lines[-1]
    assert [line.split()[0] for line in plain(path_lines(path, look, head=0, tail=1))] == ["┊", "e00009"]
    assert len(path_lines(path[:3], look, head=1, tail=1)) == 3


def test_a_context_says_its_size_and_that_it_begins_with_a_summary() -> None:
    items = [ContextEntry(made("k", kind="compaction", summary="so far")), ContextEntry(made("a", "k"))]
    assert context_summary(items, 1234, is_estimate=True) == (
        "2 messages, size about 1,234 tokens; the first is the summary of what was compacted"
    )
    assert context_summary([], 0, is_estimate=False) == "0 messages, size 0 tokens"
    assert [line.split()[2] for line in plain(context_lines(items, Look()))] == ["compaction", "user"]


def test_the_system_message_of_a_compaction_is_listed_as_one_with_its_own_size() -> None:
    fields = {"summary": "so far", "systemMessage": {"role": "system", "content": "Be brief."}}
    items = project([made("a"), made("kkk", "a", kind="compaction", firstKeptEntryId="", tokensBefore=9, **fields)])
    sizes = dict(zip((listed_entry(item).id for item in items), (3, 40), strict=True))
    assert context_summary(items, 43, is_estimate=False) == (
        "2 messages, size 43 tokens; the first is the summary of what was compacted"
    )
    lines = [line.split() for line in plain(context_lines(items, Look(60, sizes)))]
    assert [(line[0], line[2], line[-1]) for line in lines] == [("kkk", "system", "3"), ("kkk", "compaction", "40")]


def test_usage_shows_every_digit_of_the_cost() -> None:
    assert plain(usage_lines(WINDOW)) == [
        "                 tokens       US dollars",
        "input             1,049         0.003147",
        "output           83,156                -",
        "cache read   43,229,469                -",
        "cache write           0             0.00",
        "total                 0  30.330197700001",
    ]
    away = UsageWindow(Usage(), "leaf", "elsewhere", on_path=False)
    assert "elsewhere is not on the path" in plain(usage_lines(away))[-1]


def test_money_is_exact_text() -> None:
    assert [exact(Decimal(text)) for text in ("0E-12", "30.330197700000", "1E+2")] == ["0", "30.3301977", "100"]
    assert [dollars(Decimal(text)) for text in ("0E-12", "1.5", "0.000001")] == ["0.00", "1.50", "0.000001"]


def test_usage_as_json_has_camel_case_tokens_and_exact_cost_strings() -> None:
    assert usage_row(WINDOW) == {
        "input": 1049, "output": 83156, "cacheRead": 43229469, "cacheWrite": 0, "totalTokens": 0,
        "cost": {"input": "0.003147", "output": None, "cacheRead": None, "cacheWrite": "0", "total": "30.330197700001"},
        "calls": 0, "unpricedCalls": 0, "unknownCalls": 0, "paidTokens": 0, "sinceId": "before", "leafId": "leaf",
        "onPath": True,
    }  # fmt: skip


INFO = SessionInfo(
    id="0123456789abcdef",
    title="Red build\x1b",
    kind="fork",
    forked_from_session="parent",
    leaf_id="leaf",
    entry_count=1018,
    message_count=914,
    spent_tokens=5,
    spent_picodollars=1_500_000_000_000,
    completed_us=0,
)


def test_facts_leave_out_what_is_not_there() -> None:
    names = [line.split("  ")[0] for line in plain(facts_lines(session_facts(INFO, "Red build"), Look()))]
    assert "forked from" in names
    assert "key" not in names
    assert "size" not in [
        name for name, value in store_facts(StoreInfo("memory", ":memory:", 1, 0, 0, 0, None)) if value
    ]


def test_a_session_as_json_tells_where_it_was_forked_and_what_it_spent() -> None:
    row = session_row(INFO, "Red build")
    assert row["id"] == "0123456789abcdef"
    assert row["forkedFrom"] == {"sessionId": "parent", "entryId": None}
    assert row["name"] == "Red build"
    assert (row["spent"], row["completedAt"]) == ("1.5", "1970-01-01T00:00:00.000000Z")


def test_a_deletion_says_what_went_what_stays_and_what_was_missing() -> None:
    receipt = receipt_of([Deletion(("s1", "s2"), ("s3",), 7, 2)], 5, dry_run=True)
    lines = plain(receipt_lines(receipt, {"s1": "Task"}))
    assert lines[0] == "2 sessions, 7 entries would be deleted"
    assert lines[1:3] == ["  s1  Task", "  s2"]
    assert "2 entries stay" in lines[3]
    assert "s3" in lines[4]
    assert receipt.to_json()["complete"] is None


def test_an_entry_is_shown_whole_without_anything_a_terminal_acts_on() -> None:
    content = [{"type": "text", "text": "one\ntwo \x1b[2J"}, {"type": "image", "data": "AA"}]
    lines = plain(entry_block(made("e", content=content), "mark"))
    assert lines[-3:] == ["one", "two \ufffd[2J", "image, type unknown, 1 byte"]
    assert "label" in "".join(lines)
    shown = plain(entry_block(made("c", kind="custom", data={"items": [1]})))
    assert any("items" in line for line in shown)
    command = plain(entry_block(made("b", role="bashExecution", content=None, command="ls", output="a\nb")))
    assert command[-3:] == ["$ ls", "a", "b"]


def test_an_entry_shows_its_calls_results_and_texts_of_programs_as_people_read_them() -> None:
    edit = {"type": "toolCall", "name": "Edit", "arguments": {"file_path": "a", "old_string": "x", "new_string": "y"}}
    calls = entry_block(made("e", role="assistant", content=[{"type": "thinking", "thinking": "hm"}, edit]))
    assert calls[-5:] == [
        (("[thinking]", "bold"),),
        (("hm", "dim italic"),),
        (("[Edit a]", "bold"),),
        (("-x", "red"),),
        (("+y", "green"),),
    ]
    todos = {"type": "toolCall", "name": "todo", "arguments": {"todos": [{"content": "a", "status": "completed"}]}}
    assert plain(entry_block(made("e", role="assistant", content=[todos])))[-2:] == ["[todo]", "[x] a"]
    assert plain(entry_block(made("e", role="toolResult", toolName="bash", content=VIBE)))[-2:] == ["[exit 2]", "no"]
    assert entry_block(made("e", content="<ide_selection>x</ide_selection>\nFix it"))[-3:] == [
        (("[IDE selection]", "bold"),), (("<ide_selection>x</ide_selection>", "dim"),), (("Fix it", ""),)
    ]  # fmt: skip
    assert plain(entry_block(made("e", content=[{"type": "new", "a": 1}, 7, "so"])))[-4:] == [
        "type: new",
        "a: 1",
        "7",
        "so",
    ]


def test_rows_of_entries_are_whole_and_rows_of_trees_are_light() -> None:
    entry = made("e", content="hello")
    assert entry_row(entry)["payload"] == {"role": "user", "content": "hello"}
    row = tree_row(INFO, "Red build", [entry], {"e": "mark"}, {"e": 5}, True)
    assert row["leafId"] == "leaf"
    assert row["entries"] == [
        {
            "id": "e", "parentId": None, "kind": "message", "role": "user", "depth": 0,
            "createdAt": "2026-01-05T10:00:00.000000Z", "text": "hello", "size": 5, "label": "mark",
        }
    ]  # fmt: skip


def test_a_cost_that_nobody_knows_is_a_dash_and_not_nothing() -> None:
    def shown(paid: Paid, usage: Usage = Usage(input=5, output=7, total_tokens=12)) -> list[str]:  # noqa: B008
        told = frozenset({"cacheRead", "cacheWrite"} if usage.input else ())
        return plain(usage_lines(UsageWindow(usage_of_window(usage.totals, paid), "leaf", paid=paid, told=told)))

    unpriced = shown(Paid(2, 2, tokens=12))
    assert [line.split()[-1] for line in unpriced[1:6]] == ["-", "-", "0.00", "0.00", "-"]
    assert unpriced[6] == "what 2 calls of 2 cost is not known, and not in the sum"
    # The ledger's price is of whole calls: what a kind of tokens cost nobody said.
    for paid in (Paid(2, 1, tokens=12, picodollars=10**10), Paid(2, tokens=12, picodollars=10**10)):
        assert [line.split()[-1] for line in shown(paid)[1:6]] == ["-", "-", "0.00", "0.00", "0.01"]
    free = shown(Paid(2, tokens=12))
    assert [line.split()[-1] for line in free[1:6]] == ["0.00"] * 5
    assert shown(Paid(3, tokens=20))[-1] == "paid for 20 tokens, branch summaries included; see --path"
    unknown = shown(Paid(2, 2, 2), Usage())
    assert [line.split()[-2:] for line in unknown[1:6]] == [["-", "-"]] * 5
    assert unknown[-1] == "what 2 calls of 2 used is not known, and not in the sum"
