"""What the user said, through many compactions; and turns that are written while a model is asked."""

from __future__ import annotations

import anyio
import pytest

from flue_py import Session, Store
from flue_py.compaction import CompactionSettings
from flue_py.compaction.material import Material
from flue_py.compaction.modes import Asker, Hybrid, Intent, Lossless, Made, Mode
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel, ModelRequest
from tests.compaction.strategies import call, tool_result
from tests.sessions.talk import answer, user
from tests.tables import inputs

SETTINGS = CompactionSettings(keep_recent_tokens=300)
WINDOW = 10_000


def model(name: str = "small") -> FunctionModel:
    return FunctionModel(lambda _: "## Goal\nfinish", name, context_window=200_000)


async def work(session: Session, number: int, said: str) -> None:
    """Append a turn: what the user said, a call with its result, and an answer."""
    asked, result = call("bash", {"command": "make"}, f"c{number}"), tool_result("line " * 300, f"c{number}")
    await session.append_messages([user(said), asked, result, answer("so on " * 100)])


def shown(messages: list[JsonObject]) -> str:
    return "\n".join(str(message["content"]) for message in messages)


@pytest.mark.thorough(but=["sqlite"])
@pytest.mark.parametrize("mode", ["llm", Hybrid(), Intent(), Lossless(state="on")], ids=lambda mode: str(mode)[:8])
async def test_all_constraints_within_the_share_survive_four_compactions(
    session: Session, store: Store, mode: str | Mode
) -> None:
    said = []
    for number in range(16):
        said.append(f"Constraint {number}: never use tool {number} on the folder of project {number * 7}.")
        await work(session, number, said[-1])
        if number % 4 == 3:
            done = await session.compact(model(), mode=mode, settings=SETTINGS, window=WINDOW)
            assert done.appended is not None
            text = shown(await session.build_context())
            assert [each for each in said if each not in text] == []
    assert sum(entry.kind == "compaction" for entry in await session.get_active_path()) == 4
    assert (await store.verify()).problems == []


class Brief:
    """A mode of somebody else's, which knows nothing of what is carried on."""

    name, needs_model = "brief", False

    async def make(self, material: Material, asker: Asker | None) -> Made:
        return Made("It went well.", self.name)


@inputs("mode", ["llm", "intent"])
async def test_what_was_carried_comes_back_after_a_mode_that_does_not_show_it(session: Session, mode: str) -> None:
    modes: list[str | Mode] = [mode, Brief(), Brief(), mode]
    for number, each in enumerate(modes):
        said = "Never touch the schema." if number == 0 else "go on"
        for turn in range(4):
            await work(session, 4 * number + turn, said)
        assert (await session.compact(model(), mode=each, settings=SETTINGS, window=WINDOW)).appended is not None
        shown_now = "Never touch the schema." in shown(await session.build_context())
        assert shown_now is not isinstance(each, Brief)


@inputs("mode", ["llm", "intent"])
async def test_words_that_look_like_a_programs_stay_as_well(session: Session, mode: str) -> None:
    said = [
        "/etc must never be changed.",
        "<instructions>Never push to main.</instructions>",
        "/review it, and never merge.",
        "<context>The repo of billing.</context>\nAlways run the tests.",
        'Put <file path="a.py"> before each file.',
        "Caveat: never run it as root.",
    ]
    for number, each in enumerate(said):
        await work(session, number, each)
    for number in range(10):
        await work(session, 10 + number, "go on")
        if number % 3 == 2:
            assert (await session.compact(model(), mode=mode, settings=SETTINGS, window=WINDOW)).appended is not None
            (text,) = [part["text"] for part in (await session.build_context())[0]["content"]]  # type: ignore[index, union-attr, call-overload]
            assert [each for each in said if each not in text] == []


@inputs("mode", ["llm", "hybrid", "intent", "lossless"])
async def test_where_most_of_what_was_said_is_the_users_it_stays_too(session: Session, mode: str) -> None:
    said = [f"Constraint {number}: keep the names of module {number} as they are, " + "x" * 60 for number in range(20)]
    for each in said:
        await session.append_messages([user(each), answer("Yes, I will mind that from now on. " * 6)])
    done = await session.compact(model(), mode=mode, settings=CompactionSettings(keep_recent_tokens=60), window=WINDOW)
    assert done.appended is not None
    text = shown(await session.build_context())
    assert [each for each in said if each not in text] == []


@inputs("mode", ["llm", "hybrid", "intent", "lossless"])
async def test_the_first_and_the_newest_stay_where_each_alone_is_larger_than_the_share(
    session: Session, mode: str
) -> None:
    await work(session, 0, "FIRST begins " + "f" * 20_000 + " FIRST ends")
    for number in range(1, 9):
        await work(session, number, f"wish {number}")
    for number in range(9, 12):
        await work(session, number, "NEWEST begins " + "n" * 20_000 + " NEWEST ends")
        await session.append_message(answer("done " * 300))
        done = await session.compact(model(), mode=mode, settings=SETTINGS, window=WINDOW)
        assert done.appended is not None
        text = shown(await session.build_context())
        for words in ("FIRST begins", "FIRST ends", "NEWEST begins", "NEWEST ends", "characters left out"):
            assert words in text
        assert (done.tokens_after or 0) < WINDOW // 2


class Held:
    """A model that answers when it is let go."""

    def __init__(self) -> None:
        self.asked, self.let_go = anyio.Event(), anyio.Event()

    async def answer(self, request: ModelRequest) -> str:
        self.asked.set()
        await self.let_go.wait()
        return "what was said"

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self.answer, "small", context_window=200_000)


async def test_the_session_goes_on_while_a_model_is_asked(session: Session, store: Store) -> None:
    for number in range(8):
        await work(session, number, f"wish {number}")
    before = await session.build_context_entries()
    held = Held()
    made = []

    async def compact() -> None:
        made.append(await session.compact(held.model, settings=SETTINGS))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compact)
        await held.asked.wait()
        async with anyio.create_task_group() as writers:
            for number in range(10, 30):
                writers.start_soon(session.append_message, user(f"meanwhile {number}"))
            writers.start_soon(session.build_context)
            writers.start_soon(session.context.measure)
        await work(session, 30, "and a whole turn")
        assert [item.entry_id for item in (await session.build_context_entries())[: len(before)]] == [
            item.entry_id for item in before
        ]
        held.let_go.set()
    (done,) = made
    assert done.appended is not None
    assert done.planned is not None
    text = shown(await session.build_context())
    assert all(text.count(f"meanwhile {number}") == 1 for number in range(10, 30))
    assert text.endswith(shown([answer("so on " * 100)]))
    staying = [item.entry_id for item in done.planned.staying]
    after = [item.entry_id for item in await session.build_context_entries()]
    assert after[: len(staying) + 1] == [done.entry_id, *staying]
    assert len(after) == 1 + len(staying) + 20 + 4
    await session.compactions.uncompact()
    restored = [item.entry_id for item in await session.build_context_entries()]
    assert restored == [item.entry_id for item in before] + after[len(staying) + 1 :]
    assert (await store.verify()).problems == []


async def test_a_call_that_is_made_meanwhile_gets_its_result_after_the_compaction(session: Session) -> None:
    for number in range(8):
        await work(session, number, f"wish {number}")
    held = Held()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: session.compact(held.model, settings=SETTINGS))
        await held.asked.wait()
        call: JsonObject = {"type": "toolCall", "id": "late", "name": "bash", "arguments": {"command": "sleep"}}
        await session.append_message({"role": "assistant", "content": [call]})
        held.let_go.set()
    await session.append_message({"role": "toolResult", "toolCallId": "late", "toolName": "bash", "content": "slept"})
    context = await session.build_context()
    assert "what was said" in shown(context[:1])
    assert [message["role"] for message in context[-2:]] == ["assistant", "toolResult"]


@pytest.mark.parametrize("provider", ["anthropic", "openai-chat", "openai-responses", "gemini"])
async def test_a_result_of_a_call_that_was_taken_for_dead_is_stored_and_left_out_of_requests_by_name(
    session: Session, store: Store, provider: str
) -> None:
    call: JsonObject = {"type": "toolCall", "id": "late", "name": "bash", "arguments": {"command": "sleep"}}
    await session.append_messages([user("Look."), {"role": "assistant", "content": [call]}])
    for number in range(8):
        await work(session, number, f"wish {number}")
    done = await session.compact(mode="intent", settings=SETTINGS)
    assert "has no recorded result" in (done.summary or "")
    late: JsonObject = {"role": "toolResult", "toolCallId": "late", "toolName": "bash", "content": "slept for long"}
    stored = (await session.append_message(late)).entry_id
    await session.append_message(user("And?"))
    # The context is what is stored; a request is what a provider takes.
    assert (await session.build_context())[-2] == late
    request = await session.request(provider)
    assert request.broken == ()
    named = [repair.entry_id for repair in request.repairs if "whose call is not in the context" in repair.what]
    assert named == [stored]
    # It is not lost: it can be found, also after it was summarized.
    again = await session.compact(mode="intent", settings=CompactionSettings(keep_recent_tokens=10))
    assert again.entry_id is not None
    assert [hit.entry_id for hit in (await session.compactions.recall(None, "slept for long")).hits] == [stored]
    assert (await store.verify()).problems == []


async def test_a_compaction_that_is_cancelled_meanwhile_leaves_what_was_written(session: Session) -> None:
    for number in range(8):
        await work(session, number, f"wish {number}")
    held = Held()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: session.compact(held.model, settings=SETTINGS))
        await held.asked.wait()
        await session.append_message(user("meanwhile"))
        context, revision = await session.build_context(), session.revision
        tasks.cancel_scope.cancel()
    assert await session.build_context() == context
    assert (await session.refresh()).revision == revision
    assert (await session.compact(model(), settings=SETTINGS)).appended is not None


@inputs("window", [None, 1_000])
async def test_so_many_messages_stay_each_time(session: Session, store: Store, window: int | None) -> None:
    settings = CompactionSettings(keep_recent_tokens=50_000, keep_recent_messages=6)
    for number in range(12):
        await work(session, number, f"go on {number}")
        if number % 3 == 2:
            done = await session.compact(mode="intent", settings=settings, window=window)
            assert done.appended is not None
            kept = (await session.build_context())[1:]
            # A call and its result belong together, so of six messages five stay; the small window has room for one.
            assert len(kept) == (5 if window is None else 1)
            assert kept[-1]["role"] == "assistant"
    assert (await store.verify()).problems == []


async def test_mode_window_keeps_the_question_of_the_turn_that_it_cuts_until_the_next(session: Session) -> None:
    pinned = (await session.append_messages([user("pinned"), answer("ok")])).entry_ids[0]
    await session.marks.pin(pinned)
    for number, question in enumerate(["first?", "first?", "second?"]):
        said = [] if number == 1 else [user(question)]
        for step in range(4):
            said += [call("bash", {}, f"c{number}{step}"), tool_result("line " * 200, f"c{number}{step}")]
        await session.append_messages(said)
        done = await session.compact(mode="window", settings=SETTINGS)
        assert done.appended is not None
        messages = await session.build_context()
        assert [message["content"] for message in messages if message["role"] == "user"] == ["pinned", question]
        assert done.tokens_after == (await session.context.measure(use_reported=False)).messages
        assert await session.marks.pins() == [pinned], "it is no pin that a person would have to take off"
