"""What the documents say that the project was made from, where a default or an exact rule was another."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from flue_py import BudgetExceeded, ContextOverflow, JsonObject, Session, Store
from flue_py.agents.conversation import Conversation
from flue_py.agents.defaults import REPL_CONTEXT, RUN_DEFAULTS, RUN_OFFLOAD, run_blocks
from flue_py.agents.guard import CompactionGuard
from flue_py.compaction import CompactionSettings
from flue_py.compaction.material import Cancelled
from flue_py.compaction.settings import TriggerSettings, token_budget
from flue_py.context.settings import ContextSettings, ContextWindow, InTurn
from flue_py.core.model import FunctionModel, ModelRequest
from tests.checks import raises
from tests.sessions.talk import user
from tests.values import existing

pytestmark = pytest.mark.parametrize("target", ["memory"], indirect=True)

DONE: JsonObject = {"role": "assistant", "content": "done"}
SMALL = CompactionSettings(keep_recent_tokens=40, user_words_share=0)


def called(name: str, tool: str, path: str, text: str, *, failed: bool = False) -> list[JsonObject]:
    call: JsonObject = {"type": "toolCall", "id": name, "name": tool, "arguments": {"path": path}}
    return [
        {"role": "assistant", "content": [call], "agentName": "Dev"},
        {"role": "toolResult", "toolCallId": name, "content": [{"type": "text", "text": text}], "isError": failed},
    ]


async def test_changes_are_read_from_what_is_stored_whatever_was_compacted(session: Session) -> None:
    wrote = [
        each for n in range(5) for each in (user(f"go {n}"), *called(f"w{n}", "write_file", f"f{n}.py", "ok " * 300))
    ]
    await session.append_messages([*wrote, user("end " * 100)])
    settings = {"agents": {"T": {"handoff": ["changes_recent"], "spec": {"sources": ["changes_recent"]}}}}
    before = (await session.context.gather(agent="T", settings=settings)).text("H")
    assert all(f"f{n}.py" in before for n in range(5)), "all of them, where no number is named"
    assert (await session.compact(mode="intent", settings=SMALL)).appended is not None
    assert (await session.context.gather(agent="T", settings=settings)).text("H") == before
    assert (await session.context.append_handoff("T", settings=settings)).appended is not None


async def test_a_call_that_failed_has_modified_nothing(session: Session) -> None:
    wrong = called("p", "patch_file", "auth.go", "oldText not found", failed=True)
    right = [*called("w", "write_file", "new.go", "ok " * 300), *called("r", "read_file", "auth.go", "text " * 300)]
    await session.append_messages([user("q " * 300), *wrong, *right, user("end " * 80)])
    done = await session.compact(mode="intent", settings=SMALL)
    assert (done.summary or "").partition("<read-files>")[2] == (
        "\nauth.go\n</read-files>\n\n<modified-files>\nnew.go\n</modified-files>"
    )


async def test_long_results_of_a_turn_are_stored_beside_the_history_unless_that_is_switched_off(
    session: Session, store: Store
) -> None:
    for offload, is_stub in ((True, True), (False, False)):

        async def answers(context: list[JsonObject]) -> list[JsonObject]:
            done: JsonObject = {"role": "assistant", "content": "read"}
            return [*called(f"c{len(context)}", "read_file", "x", "z" * 40_001), done]

        await Conversation(store, session, offload=offload).take_turn("go", answers)
        assert ("offloaded" in str((await session.build_context())[-2])) is is_stub


async def test_the_defaults_of_a_run_compact_after_fifty_turns_and_keep_ten(session: Session, store: Store) -> None:
    guard = CompactionGuard(store, session, mode="intent", **RUN_DEFAULTS)
    outcomes = []
    for n in range(50):
        answer: JsonObject = {"role": "assistant", "content": "a" * 3_000}
        await session.append_messages([user(f"q{n}"), *called(f"c{n}", "read_file", f"f{n}", "x"), answer])
        outcomes.append((await guard.after_call()).outcome)
    assert outcomes == ["nothing"] * 49 + ["compacted"]
    said = [message["content"] for message in await session.build_context() if message["role"] == "user"]
    assert said[1:] == [f"q{n}" for n in range(40, 50)]

    async def sent(context: list[JsonObject]) -> int:
        return len(str(context[-1]["content"]))

    assert 2_000 < await guard.call(sent) < 2_200


async def test_what_needs_no_configuration_has_the_numbers_of_the_documents(store: Store) -> None:
    settings, triggers, context = (RUN_DEFAULTS[name] for name in ("settings", "triggers", "context"))
    assert (RUN_OFFLOAD.above, RUN_OFFLOAD.tools, RUN_OFFLOAD.preview_chars) == (40_000, {}, 0)
    assert context.window == ContextWindow(max_replay_chars=0), "0 stands for 2,000 characters, None cuts nothing"
    assert context.in_turn == InTurn(max_tool_pairs=12)
    assert (triggers.trigger_turns, triggers.keep_recent_turns, token_budget(settings)) == (50, 10, 80_000)
    assert (triggers.thrash_window, triggers.thrash_share, settings.max_message_chars) == (10, 0.1, 8_000)
    assert (settings.on_failure, settings.include_reasoning, settings.include_symbols) == ("mark", True, True)
    library = (CompactionSettings(), TriggerSettings(), ContextSettings())
    assert (library[0].on_failure, library[1].trigger_turns, library[2].window, library[2].in_turn) == (
        ("raise", 0, None, None)
    )
    assert [block.name for block in run_blocks(store)] == ["environment", "gitignore", "memory"]


async def test_the_blocks_of_a_run_are_of_its_folder_and_of_its_agent(
    store: Store, session: Session, tmp_path: Path
) -> None:
    (tmp_path / ".gitignore").write_text("build/\n" * 101)
    await store.remember("runner", "go test -race", type="preference", space="agents/Dev")
    await session.append_blocks(run_blocks(store, folder=tmp_path, space="agents/Dev"))
    environment, ignored, memory = (str(message["content"]) for message in await session.build_context())
    assert f"Working directory: {tmp_path}" in environment
    assert ignored.count("build/") == 100
    assert "[preference] runner: go test -race" in memory


async def test_a_run_stops_before_the_turn_that_begins_above_its_budget_and_not_within_one(store: Store) -> None:
    def paid(tokens: int, content: object = "done") -> JsonObject:
        usage: JsonObject = {"input": tokens - 1, "output": 1, "cost": {"total": tokens / 100}}
        return {"role": "assistant", "content": content, "agentName": "Dev", "usage": usage}  # type: ignore[dict-item]

    call: JsonObject = {"type": "toolCall", "id": "c", "name": "read", "arguments": {}}
    result: JsonObject = {"role": "toolResult", "toolCallId": "c", "content": []}
    asking, prompt = paid(60, [call]), user("go")
    # What is allowed, what there is, whose answer comes next, and what of it is refused.
    cases: list[tuple[str, dict[str, Any], list[JsonObject], str, bool]] = [
        ("as much as is allowed", {"tokens": 100}, [prompt, paid(100)], "", False),
        ("more, which nobody reserved", {"tokens": 100}, [prompt, paid(101)], "", True),
        ("a prompt after more", {"tokens": 100}, [prompt, paid(101), prompt], "", True),
        ("within a turn", {"tokens": 50}, [prompt, asking, result], "Dev", False),
        ("within one, whoever is asked", {"tokens": 50}, [prompt, asking, result], "", False),
        ("another agent's turn", {"tokens": 50}, [prompt, asking, result], "Tester", True),
        ("a person has said more", {"tokens": 50}, [prompt, asking, result, user("stop")], "Dev", True),
        ("money", {"cost": "1.00"}, [prompt, paid(101)], "", True),
        ("just enough money", {"cost": "1.01"}, [prompt, paid(101)], "", False),
    ]
    wrong = []
    for name, allowed, messages, agent, refused in cases:
        for covers in ("session", "scope", "scope_prefix"):
            session = await store.create_session(scope=f"{name}/{covers}")
            await session.append_messages(messages)
            where: dict[str, Any] = {covers: session.info.scope if covers != "session" else session}
            budget = await store.set_budget(**where, **allowed)
            guarded: list[tuple[dict[str, Any], bool]] = [({**RUN_DEFAULTS}, refused), ({}, False)]
            for settings, stops in guarded:
                told: BudgetExceeded | None = None
                try:
                    await CompactionGuard(store, session, mode="intent", **settings).before_call(agent)
                except BudgetExceeded as error:
                    told = error
                is_right = told is None or (told.budget_id, told.asked, told.left < 0) == (budget.id, 0, True)
                wrong += [(name, covers, stops)] if not is_right or (told is not None) is not stops else []
    assert wrong == []


async def test_what_was_spent_on_other_branches_and_by_deleted_tasks_is_of_the_run(store: Store) -> None:
    session = await store.create_session()
    await store.set_budget(session, tasks=True, tokens=30)
    answer: JsonObject = {"role": "assistant", "content": "a", "usage": {"input": 9, "output": 1}}
    task = await session.tasks.create(task_id="t")
    await task.append_message(answer)
    await store.delete_session_tree(task)
    for _ in range(2):
        await session.append_message(user("q"))
        await session.append_message(answer)
        await session.money.check_budgets()
        await session.rewind(turns=0)
    fork = await session.fork()
    await session.append_message(answer)
    (budget,), (counted,) = await session.money.budgets(), await session.money.budgets(by_ledger=True)
    assert (budget.spent, counted.spent, counted.left) == (0, 40, -10)
    await raises(BudgetExceeded, session.money.check_budgets(), match="40 tokens were spent, which exceeds the budget")
    await fork.money.check_budgets()


def overflowing(
    failures: int, sent: list[int | None], error: Exception
) -> Callable[[list[JsonObject]], Awaitable[list[JsonObject]]]:
    """Return a model that fails so often, and notes how long the result is that it is sent; None without one."""

    async def ask(context: list[JsonObject]) -> list[JsonObject]:
        results = [str(message["content"]) for message in context if message["role"] == "toolResult"]
        sent.append(results[0].count("z") if results else None)
        if len(sent) <= failures:
            raise error
        return [DONE]

    return ask


async def test_an_error_of_the_context_is_met_with_less_of_what_tools_gave_back(store: Store) -> None:
    off: dict[str, Any] = {"triggers": TriggerSettings(auto=False)}
    cases: list[tuple[str, dict[str, Any], int, list[int | None]]] = [
        ("the second helps", off, 1, [9_000, 4_000]),
        ("none helps, and nothing is sent twice", off, 4, [9_000, 4_000, 500, None]),
        ("limits, before it is sent", {**off, "context": {"fitting": {"max_context_tokens": 2_300}}}, 0, [500]),
        ("with settings", {**off, "context": {"window": {}}}, 2, [9_000, 4_000, 500]),
        ("no compaction is wanted", {"before_compaction": lambda about: Cancelled("no")}, 3, [9_000, 4_000, 500, None]),
        ("a compaction comes first", {"settings": SMALL}, 3, [9_000, 9_000, 4_000, 500]),
        ("an error of a client", {"settings": SMALL}, 3, [9_000, 9_000, 4_000, 500]),
        ("malformed, which no compaction helps", {"settings": SMALL}, 3, [9_000, 4_000, 500, None]),
    ]  # fmt: skip
    errors = {
        "an error of a client": ValueError("400: prompt is too long: 9000 tokens > 8000 maximum"),
        "malformed, which no compaction helps": ContextOverflow("no result", is_malformed=True),
    }
    wrong = []
    for name, given, failures, expected in cases:
        history = [user("q " * 2_000), {"role": "assistant", "content": "a " * 2_000}, user("read")]
        history += called("c", "read_file", "x", "z" * 9_000)
        session, talked = await store.create_session(), await store.create_session()
        await session.append_messages(history)
        await talked.append_messages(history)
        sent: list[int | None] = []
        with suppress(ContextOverflow):
            model = overflowing(failures, sent, errors.get(name, ContextOverflow("too long")))
            await CompactionGuard(store, session, mode="intent", **given).call(model)
        wrong += [(name, sent)] if sent != expected else []
        if given.keys() >= off.keys():
            sent.clear()
            talk = Conversation(store, talked, context=given.get("context"))
            with suppress(ContextOverflow):
                await talk.take_turn("and?", overflowing(failures, sent, ContextOverflow("too long")))
            wrong += [(f"conversation: {name}", sent)] if sent != expected else []
            # The session keeps all of it, and the question where it was answered.
            assert await talked.build_context() == [*history, *([user("and?"), DONE] if failures < 4 else [])]
    assert wrong == []


async def test_a_summary_by_turns_names_the_turns_that_it_covers_and_has_four_sections(session: Session) -> None:
    asked: list[str] = []

    def summarize(request: ModelRequest) -> str:
        asked.append(str(request.messages[-1]["content"]))
        return f"## Completed\nPart {len(asked)}."

    model = FunctionModel(summarize, "small", context_window=100_000)
    run = replace(RUN_DEFAULTS["settings"], keep_recent_tokens=40, user_words_share=0)
    wrong = []
    for mode, settings, before in (
        ("llm", run, "[CONVERSATION SUMMARY — covers turns 1–{}]\n\n"),
        ("hybrid", run, "\n\n---\n\n[CONVERSATION SUMMARY — covers turns 1–{}]\n\n"),
        ("llm", SMALL, ""),
    ):
        for turns in (4, 7):
            for n in range(4 if turns == 4 else 3):
                done: JsonObject = {"role": "assistant", "content": f"did {n} " + "ok " * 100}
                await session.append_messages([user(f"go {n}"), *called(f"{mode}{n}", "read_file", "x", "y"), done])
            await session.append_message(user("go on " * 40))
            made = await session.compact(model, mode=mode, settings=settings)
            head, _, _ = (made.summary or "").partition("## Completed\nPart ")
            expected = before.format(turns)
            if not (head.endswith(expected) if mode == "hybrid" else head == expected):
                wrong.append((mode, turns, head))
            sections = [line[3:] for line in asked[-1].splitlines() if line.startswith("## ")][-4:]
            if (sections == ["Completed", "Open Questions", "Remaining Work", "Key Findings"]) is (settings is SMALL):
                wrong.append((mode, turns, sections))
            if "CONVERSATION SUMMARY" in asked[-1]:
                wrong.append((mode, turns, "the line is not part of what the model said before"))
        await session.rewind(turns=0)
    assert wrong == []


async def test_what_somebody_asks_of_a_summary_takes_the_place_of_the_instruction(session: Session) -> None:
    asked: list[ModelRequest] = []

    def summarize(request: ModelRequest) -> str:
        asked.append(request)
        return "The schema has two tables."

    model = FunctionModel(summarize, "small", context_window=100_000)
    for n in range(2):
        turn: list[JsonObject] = [user("go " * 200), {"role": "assistant", "content": "ok " * 100}]
        await session.append_messages([*turn, *turn, user("go on " * 40)])
        wanted = f"Focus on the {{schema}} changes {n}"
        assert (await session.compact(model, settings=SMALL, instructions=wanted)).appended is not None
    for request, before in zip(asked, ("</conversation>", "</previous-summary>"), strict=True):
        prompt, system = str(request.messages[-1]["content"]), str(request.system)
        assert "Focus on the {schema} changes" in prompt.partition(f"{before}\n\n")[2]
        assert "Write" not in prompt
        assert "## Task" in system


async def test_who_asks_for_a_compaction_gets_one_of_all_that_is_over_however_little_that_is(
    session: Session, store: Store
) -> None:
    async def asked(*messages: JsonObject, meanwhile: str = "", guarded: bool = False) -> list[str]:
        """Return what is left of a short session when it was compacted by hand, twice."""
        made = await store.create_session()
        await made.append_messages([user("begin " * 200), {"role": "assistant", "content": "ok " * 200}, *messages])

        async def summarize(request: ModelRequest) -> str:
            if meanwhile:
                other = existing(await store.get_session(made.id))
                await other.append_message(user(meanwhile))
            return "Told."

        model = FunctionModel(summarize, "small", context_window=100_000)
        if guarded:
            assert (await CompactionGuard(store, made, model).compact()).outcome == "compacted"
        else:
            assert (await Conversation(store, made).compact(model)).appended is not None
            assert (await made.compact(model)).reason == "no_cut_point"
        assert (await store.verify()).problems == []
        context = await made.build_context()
        assert "Told." in str(context[0])
        await made.append_messages([user("more " * 200), {"role": "assistant", "content": "ok " * 200}])
        below = await made.build_context()
        whole = CompactionSettings(keep_recent_messages=0, mode="intent")
        assert (await made.compact(settings=whole)).appended is not None
        assert await made.compactions.uncompact() is not None
        assert await made.build_context() == below
        return [f"{message['role']} {str(message['content'])[:20]}" for message in context[1:]]

    failed: JsonObject = {"role": "assistant", "content": "half an", "stopReason": "error"}
    open_call = called("c", "read_file", "x", "")[:1]
    wrong = []
    for name, found, expected in (
        ("all of it is over", await asked(), []),
        ("by a guard", await asked(guarded=True), []),
        ("a message without an answer", await asked(user("and?")), ["user and?"]),
        ("one whose answer failed", await asked(user("and?"), failed), ["user and?", "assistant half an"]),
        ("a call without a result", [each[:14] for each in await asked(user("and?"), *open_call)], ["assistant [{'t"]),
        ("what was appended meanwhile", await asked(meanwhile="one more"), ["user one more"]),
    ):
        if found != expected:
            wrong.append((name, found))
    assert wrong == []
    await session.append_messages([user("go"), DONE])
    for settings in (None, CompactionSettings()):
        assert (await session.compact(mode="intent", settings=settings)).reason == "no_cut_point", "no model is asked"


async def test_files_that_were_read_last_are_shown_after_a_compaction_without_reading_them_again(
    session: Session,
) -> None:
    run = replace(RUN_DEFAULTS["settings"], keep_recent_tokens=400, user_words_share=0)
    reads = [each for n in range(7) for each in called(f"r{n}", "read_file", f"f{n}.py", f"text {n} of it")]
    stale = [*called("s", "read_file", "s.py", "stale"), *called("e", "Edit", "s.py", "edited")]
    failing = [
        *called("x", "Read", "f6.py", "no such file", failed=True),
        *called("y", "Edit", "f6.py", "no", failed=True),
    ]
    large = called("l", "Read", "large.txt", "z" * 60_000)
    seen = [user("and now?"), *called("t", "read_file", "f5.py", "tail " * 400)]
    end = user("end " * 400)
    for messages, paths in (
        ([*reads, *stale, *failing, DONE, end], ["f6.py", "f5.py", "f4.py", "f3.py", "f2.py"]),
        ([*reads, *stale, *seen], ["f6.py", "f4.py", "f3.py", "f2.py", "f1.py"]),
        ([*reads, *large, DONE, end], ["large.txt"]),
    ):
        await session.append_messages([user("go " * 400), *messages])
        text = (await session.compact(mode="intent", settings=run)).summary or ""
        block = text.partition("[FILES IN USE — as they were read last]\n")[2]
        assert re.findall(r'<file path="(.+?)">', block) == paths
        assert ("text 4 of it" in block) is ("f4.py" in paths)
        assert "stale" not in block
        assert block.count("z") <= 50_000
        await session.undo()
        default = replace(SMALL, keep_recent_tokens=400)
        assert "FILES IN USE" not in ((await session.compact(mode="intent", settings=default)).summary or "")
        await session.rewind(turns=0)


async def test_a_conversation_sends_what_fits_eighty_thousand_tokens_and_warns_once(store: Store) -> None:
    """A turn is 16,000 characters, which are 4,000 tokens: 19 turns and a question fit the budget."""
    largest: dict[str, list[int]] = {}
    warnings: list[str] = []
    given: dict[str, dict[str, Any]] = {"seed": {"context": REPL_CONTEXT}, "default": {}, "all": {"context": None}}
    for name, asked in given.items():
        session = await store.create_session()
        await session.append_message({"role": "system", "content": "Be brief."})
        talk = Conversation(store, session, **asked)
        sent: list[int] = []

        async def answers(context: list[JsonObject], sent: list[int] = sent) -> list[JsonObject]:
            assert context[0]["role"] == "system"
            sent.append(sum(len(str(message["content"])) for message in context[1:]))
            return [{"role": "assistant", "content": "a" * 8_000}]

        for _ in range(30):
            await talk.take_turn("q" * 8_000, answers)
            report = talk.context_report
            warnings += [] if report is None else [f"{name} {event}" for event in report.events]
        assert len(await session.build_context()) == 61
        largest[name] = sent
    assert largest["all"] == [16_000 * n + 8_000 for n in range(30)]
    assert largest["seed"] == [16_000 * min(n, 19) + 8_000 for n in range(30)]
    # Without the values of the seed it is trimmed for an epoch of 20,000 tokens, and grows again until the next one.
    assert largest["default"][:15] == largest["all"][:15]
    assert {chars // 16_000 for chars in largest["default"][15:]} == {14, 15, 16, 17, 18}
    assert warnings == [
        f"{name} context_warning: 62,000 tokens have reached 75% of 80,000" for name in ("seed", "default")
    ]
