"""What an agent is told in place of the history: the task, its own answers, what sources say, what waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flue_py.context.pipeline import Item, Piped, View, run_steps
from flue_py.context.settings import ContextSource, context_settings
from flue_py.context.sources import (
    GatheredContext,
    Section,
    SkippedSource,
    changes_of,
    changes_text,
    cut_source,
    label_of,
    listed_changes,
)
from flue_py.context.steps import steps_of
from flue_py.context.tokens import counter_for
from flue_py.core.context import ContextEntry
from flue_py.errors import InvalidArgument
from tests.context.pipeline.piped import answer, block, call, context, done, ids, piped, result, texts, user
from tests.tables import inputs
from tests.values import existing

TASK = "Make the build green again, and change nothing in the public interface."
SECTIONS = GatheredContext("Coder", (Section("file:PLAN.md", "PLAN.md", "1. read the log"),))


def told(
    items: Sequence[ContextEntry],
    spec: dict[str, Any],
    agent: str | None = "Coder",
    gathered: GatheredContext = SECTIONS,
) -> Piped:
    given = context_settings({"addresses": False, "epoch_tokens": 0, "spec": spec}).of(agent)
    return run_steps(items, steps_of(given, gathered), View(agent, counter_for("gpt-5"), addresses=given.addresses))


def handoff(text: str, agent: str) -> dict[str, Any]:
    return {"customType": "handoff", "content": f"[HANDOFF CONTEXT — assembled for {agent}]\n\n## Plan\n{text}"}


def test_the_task_comes_first_then_the_agents_own_answers_then_what_the_sources_say() -> None:
    found = told(
        context(
            user(TASK),
            answer("I have read the log.", call("c1"), agent="coder"),
            result("c1", "TIMEOUT"),
            answer("Somebody else's.", agent="Reviewer"),
            answer("parse() hangs.", agent="Coder"),
            user("Then mend it."),
        ),
        {"sources": ["own_history", "file:PLAN.md"]},
    )
    assert texts(found) == [
        TASK,
        "I have read the log.",
        "parse() hangs.",
        "[AGENT CONTEXT — assembled from artifacts]\n\n## PLAN.md\n1. read the log",
        "Then mend it.",
    ]
    assert done(found) == [
        ("spec", "e1", "cut"),
        ("spec", "e2", "dropped"),
        ("spec", "e3", "dropped"),
        ("spec", None, "added"),
    ]


def test_the_turn_in_progress_follows_what_was_assembled() -> None:
    before = context(user(TASK), answer("Done.", agent="Coder"), user("And now?"))
    spec = {"sources": ["own_history:1"]}
    first = told(before, spec)
    later = told(context(*[item.data for item in before], answer("", call("c1"), agent="Coder"), result("c1")), spec)
    assert ids(later) == [*ids(first), "e3", "e4"]


def test_a_window_is_passed_over_where_there_is_a_spec() -> None:
    items = context(user(TASK), answer("one"), user("two"))
    given = {"spec": {"sources": []}, "window": {"max_tail_messages": 1}}
    assert [step.name for step in piped(items, given).report.steps] == ["spec"]


def test_of_the_agents_own_answers_the_last_ones_that_fit_stay() -> None:
    items = context(user(TASK), *[answer(f"{number}" * 10, agent="Coder") for number in range(1, 9)])
    assert ids(told(items, {"sources": ["own_history"]})) == ["e0", "e3", "e4", "e5", "e6", "e7", "e8", None]
    assert ids(told(items, {"sources": ["own_history:2"]})) == ["e0", "e7", "e8", None]
    assert ids(told(items, {"sources": ["own_history:0"]})) == ["e0", "e8", None], "fewer than one is one"
    assert ids(told(items, {"sources": [{"source": "OWN_HISTORY:5", "max_chars": 29}]})) == ["e0", "e7", "e8", None]
    assert ids(told(items, {"sources": []})) == ["e0", None]


def test_an_answer_that_is_longer_than_all_is_cut() -> None:
    found = told(
        context(user(TASK), answer("short", agent="Coder"), answer("a" * 8_001, agent="Coder")),
        {"sources": ["own_history"], "reminder": False},
        gathered=GatheredContext("Coder"),
    )
    assert texts(found) == [TASK, "a" * 8_000 + "\n[...truncated — own_history turn exceeded 8,000 char limit]"]


def test_the_task_is_repeated_at_the_end_of_a_long_context() -> None:
    long, task = GatheredContext("Coder", (Section("x", "x", "w" * 2_000),)), "t" * 201
    spec = {"sources": []}
    assert texts(told(context(user(task)), spec, gathered=long))[-1] == f"[Task Reminder]\n\n{'t' * 200}…"
    assert texts(told(context(user(task[:200])), spec, gathered=long))[-1] == f"[Task Reminder]\n\n{'t' * 200}"
    assert len(told(context(user("t" * 50)), spec, gathered=long).items) == 2, "a task of 50 characters is short"
    assert len(told(context(user(task)), spec).items) == 2, "not much follows it"
    assert len(told(context(user(task)), {**spec, "reminder": False}, gathered=long).items) == 2
    assert texts(told(context(user("Hi.")), {**spec, "task": TASK}, gathered=long))[0] == TASK
    assert texts(told(context(user("Hi.")), {**spec, "task": TASK}, gathered=long))[-1].endswith(TASK)


def test_corrections_are_for_the_agent_that_answered_before_them() -> None:
    items = context(
        user(TASK),
        answer("mine", agent="Coder"),
        user("RETRY with the tool"),
        answer("another's", agent="Reviewer"),
        user("CRITICAL: read the file first"),
        user("Is that all?"),
    )
    assert ids(told(items, {"sources": []}))[2:] == ["e2", "e5"]
    assert ids(told(items, {"sources": []}, "Reviewer"))[2:] == ["e4", "e5"]
    assert ids(told(items, {"sources": []}, "Planner"))[2:] == ["e5"], "it has not answered, so none is for it"


@inputs(
    "broken",
    [
        [answer("", agent="Coder", stopReason="error")],
        [answer("", agent="Coder")],
        [answer("", call("c1"), call("c2"), agent="Coder"), result("c1"), result("c2"), user("Hurry.")],
    ],
)
def test_what_the_user_said_waits_until_an_answer_has_ended(broken: list[dict[str, Any]]) -> None:
    items = context(user(TASK), answer("Done.", agent="Coder"), user("Now the docs."), *broken)
    assert texts(told(items, {"sources": ["own_history"]}))[3:] == [
        "Now the docs.",
        *[text for text in ("Hurry.",) if len(broken) > 1],
    ]


def test_what_an_answer_that_broke_off_had_begun_with_stands_behind_what_the_user_had_said() -> None:
    items = context(
        user(TASK),
        answer("Done.", agent="Coder"),
        user("Now the docs."),
        answer("I begin with", agent="Coder", stopReason="aborted"),
        user("Only the index."),
    )
    assert ids(told(items, {"sources": ["own_history"]})) == ["e0", "e1", None, "e2", "e3", "e4"]


def test_nobody_is_corrected_before_the_first_answer() -> None:
    items = context(user("CRITICAL: the build is red."), user("RETRY the last one, too."))
    assert ids(told(items, {"sources": []})) == ["e0", None, "e1"]
    assert ids(told(items[:1], {"sources": []}, None)) == ["e0", None]


def test_an_agent_that_hands_on_by_a_tool_has_answered() -> None:
    items = context(
        user(TASK),
        user("Now the docs."),
        answer("", call("c1", "handoff"), agent="Coder"),
        result("c1"),
        answer("Read.", agent="Reviewer"),
    )
    assert ids(told(items, {"sources": ["own_history"]})) == ["e0", None]


def test_a_handoff_reaches_the_agent_that_it_names() -> None:
    items = context(
        user(TASK),
        handoff("mend it", "coder"),
        handoff("read it", "Reviewer"),
        kinds={1: "custom_message", 2: "custom_message"},
    )
    assert ids(told(items, {"sources": []}))[2:] == ["e1"]
    assert ids(told(items, {"sources": []}, "Reviewer"))[2:] == ["e2"]


def test_messages_of_the_system_and_blocks_stay() -> None:
    block = {"customType": "block:environment", "content": "## Runtime Environment"}
    items = context(
        {"role": "system", "content": "Be brief."},
        user(TASK),
        block,
        answer("mine", agent="Coder"),
        kinds={2: "custom_message"},
    )
    assert ids(told(items, {"sources": []})) == ["e0", "e1", "e2", None]


def test_a_summary_stands_for_the_task_and_is_not_repeated() -> None:
    long = GatheredContext("Coder", (Section("x", "x", "w" * 3_000),))
    items = context(
        {"summary": "The user wants the build green. " * 5, "firstKeptEntryId": "e1", "tokensBefore": 9},
        answer("mine", agent="Coder"),
        kinds={0: "compaction"},
    )
    found = told(items, {"sources": ["own_history"]}, gathered=long)
    assert ids(found) == ["e0", "e1", None]


def test_sources_that_said_nothing_are_told() -> None:
    skipped = GatheredContext("Coder", (), (SkippedSource("tickets", "no source has this name"),))
    found = told(context(user(TASK)), {"sources": ["tickets"]}, gathered=skipped)
    assert [str(event) for event in found.report.events] == ["source_skipped: tickets: no source has this name"]
    assert texts(found) == [TASK]


@inputs(
    ("sources", "wrong"),
    [
        (["file:"], "spec.sources.0.source: file needs a path behind a colon"),
        (["ok", {"source": "brief_field"}], "spec.sources.1.source: brief_field needs the name of a field"),
        (["own_history:many"], "spec.sources.0.source: own_history needs a number"),
        (["changes_recent:1.5"], "spec.sources.0.source: changes_recent needs a number"),
        (["own_history", "Own_History:2"], "spec.sources: own_history is named twice"),
        ([":x"], "spec.sources.0.source: a source has a name"),
        ([7], "spec.sources.0"),
        ([{"source": "x", "max_chars": -1}], "spec.sources.0.max_chars"),
    ],
)
def test_sources_are_checked_before_anything_is_read(sources: list[Any], wrong: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        context_settings({"spec": {"sources": sources}})
    assert wrong in str(raised.value)


def test_a_source_is_cut_and_says_how_much_is_missing() -> None:
    for name in ("session_context", "changes_recent:2", "brief_field:objective", "file:docs/PLAN.md"):
        source = ContextSource(source=name)
        assert cut_source("x" * 4_000, source) == "x" * 4_000
        assert cut_source("x" * 5_234, source)[4_000:] == "\n[...1,234 chars truncated — use file tool to read in full]"


def test_a_source_of_the_application_that_is_cut_is_named_and_no_file() -> None:
    source = ContextSource(source="tickets:open", max_chars=100)
    assert cut_source("x" * 100, source) == "x" * 100
    assert cut_source("x" * 1_334, source)[100:] == "\n[...1,234 chars truncated — source tickets:open has it in full]"


def test_sections_have_the_headings_that_the_source_gives_them() -> None:
    names = ["session_context", "Changes_Recent:2", "brief_field:objective", "file:docs/PLAN.md", "tickets:open"]
    found = existing(context_settings({"spec": {"sources": names}}).spec)
    assert [label_of(each) for each in found.sources] == [
        "Session Context", "Recent Changes", "Task: objective", "PLAN.md", "tickets:open",
    ]  # fmt: skip


def test_changes_are_those_of_calls_that_worked_by_the_turns_of_their_agents() -> None:
    items = context(
        user(TASK),
        answer(
            "", call("c1", "write_file", path="a.py"), call("c2", "patch_file", path="b.py"),
            call("c3", "shell_run", command="make"), call("c4", "read_file", path="c.py"), agent="Coder",
        ),
        result("c1"), result("c2", "no such file", isError=True), result("c3", "1 failed", isError=True), result("c4"),
        block("day", "Monday"),
        answer("", call("c5", "Write", file_path="a.py"), call("c6", "Bash", command=["ls", "-l"]), agent="Coder"),
        result("c5"),
        answer(
            "", call("c7", "delete_file", path="old.py"), call("c8", "git_commit", message="Mend"), agent="Reviewer"
        ),
        result("c7"),
        result("c8"),
        user("Thanks."),
        answer("You are welcome.", agent="Coder"),
        kinds={6: "custom_message"},
    )  # fmt: skip
    assert changes_text(changes_of([Item(item, at) for at, item in enumerate(items)])) == "\n".join(
        [
            "[Turn 1] Coder (1970-01-01 00:00 UTC)", "  Files written:", "    - a.py", "  Commands run:",
            "    - make [FAILED]", "    - ls -l [no result]", "[Turn 1] Reviewer (1970-01-01 00:00 UTC)",
            "  Files deleted:", "    - old.py", "  Git commits:", "    - Mend",
        ]
    )  # fmt: skip


def test_a_change_log_is_read_in_whatever_case_and_its_own_session_goes_first() -> None:
    log = {
        "Entries": [
            {"SessionId": "other", "Agent": "A", "FilesWritten": ["x"]},
            {
                "sessionId": "s", "turnIndex": 4, "agent": "Coder", "timestamp": "2026-01-02T03:04:05.1234567Z",
                "filesWritten": ["a.py"], "commandsRun": [{"command": "make", "succeeded": True}, {"command": "test"}],
            },
            "not a change",
        ]
    }  # fmt: skip
    own = listed_changes(log, "s")
    assert changes_text(own) == "\n".join(
        [
            "[Turn 4] Coder (2026-01-02 03:04 UTC)", "  Files written:", "    - a.py", "  Commands run:",
            "    - make [OK]", "    - test [FAILED]",
        ]
    )  # fmt: skip
    assert [change.agent for change in listed_changes(log, "none")] == ["A", "Coder"], "else all of them"
    assert listed_changes(["no log"], "s") == []
