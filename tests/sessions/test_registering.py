"""Registered texts: word for word after each compaction, in another process, on the path they were registered on."""

from __future__ import annotations

import sys

import anyio
import pytest

import flue_py
from flue_py import InvalidArgument, LeafConflict, Session, Store
from flue_py.compaction import CompactionSettings
from flue_py.compaction.blocks import registered_block
from flue_py.compaction.material import Material
from flue_py.compaction.modes import Asker, Hybrid, Lossless, Made, Mode
from flue_py.context.tokens import counter_for
from flue_py.core.entries import REGISTERED_KINDS, RegisteredText
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel, ModelRequest
from tests.sessions.talk import say, user

pytestmark = pytest.mark.anyio

SETTINGS = CompactionSettings(keep_recent_tokens=200)
MODEL = FunctionModel(lambda _: "model says", "small", provider="house", context_window=200_000)
RULES = "Never push.\nAsk before you delete <anything>."


class Plain:
    """A mode of somebody else's, which knows nothing of blocks."""

    name = "plain"
    needs_model = False

    async def make(self, material: Material, asker: Asker | None) -> Made:
        return Made(f"{len(material.leaving)} left", self.name)


async def talk(session: Session, turns: int, start: int = 0) -> None:
    for number in range(start, start + turns):
        await session.append_message(user(f"question {number} " + "q" * 300))
        await session.append_message({"role": "assistant", "content": f"answer {number} " + "a" * 300})


async def text_of(session: Session) -> str:
    first = (await session.build_context())[0]
    assert first["role"] == "user"
    return str(first["content"][0]["text"])  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    "mode", ["llm", "intent", "window", Lossless(state="building"), Hybrid(), Plain()], ids=lambda mode: str(mode)[:8]
)
async def test_they_come_back_word_for_word_after_ten_compactions(session: Session, store: Store, mode: Mode) -> None:
    await session.marks.register("rules", RULES)
    await session.marks.register("way", "1. look\n2. leap", kind="plan")
    for number in range(10):
        if number == 5:
            await session.marks.register("way", "1. leap", kind="plan")
        called: JsonObject = {"type": "toolCall", "id": f"c{number}", "name": "bash", "arguments": {"command": "make"}}
        result: JsonObject = {"role": "toolResult", "toolCallId": f"c{number}", "toolName": "bash", "content": "made"}
        await session.append_messages([{"role": "assistant", "content": [called]}, result])
        await talk(session, 6, start=6 * number)
        done = await session.compact(MODEL, mode=mode, settings=SETTINGS)
        assert done.appended is not None
        assert done.notes == ()
        text = await text_of(session)
        assert text.count("[REGISTERED") == 1
        assert text.count(f'<registered kind="instructions" name="rules">\n{RULES}\n</registered>') == 1
        assert text.count("1. look") == (number < 5)
        assert text.count("1. leap") == (number >= 5)
    assert [(each.name, each.kind, each.text) for each in await session.marks.registered()] == [
        ("rules", "instructions", RULES),
        ("way", "plan", "1. leap"),
    ]
    await session.marks.unregister("way")
    await talk(session, 6, start=60)
    await session.compact(MODEL, mode=mode, settings=SETTINGS)
    assert "leap" not in await text_of(session)
    assert RULES in await text_of(session)
    assert (await store.verify()).problems == []


async def test_another_process_has_them(tmp_path: object) -> None:
    path = f"{tmp_path}/store.db"
    async with flue_py.open(path) as store:
        session = await store.create_session(key="k")
        await session.marks.register("rules", RULES)
        for number in range(10):
            await talk(session, 6, start=6 * number)
            await session.marks.register("todo", f"- step {number}", kind="todo")
            assert (await session.compact(MODEL, settings=SETTINGS)).appended is not None
    code = """if True:
        import sys, flue_py.sync
        with flue_py.sync.open(sys.argv[1]) as store:
            session = store.open_session("k", mode="get")
            print([each.text for each in session.marks.registered()])
            print(session.build_context()[0]["content"][0]["text"])
    """
    out = (await anyio.run_process([sys.executable, "-c", code, path])).stdout.decode()
    assert out.startswith(repr([RULES, "- step 9"]))
    assert RULES in out
    assert out.count("- step ") == 2


async def test_the_same_text_is_registered_once(session: Session) -> None:
    assert await session.marks.unregister("rules") is None
    first = await session.marks.register("rules", RULES)
    assert first is not None
    assert await session.marks.register("rules", RULES) is None
    assert await session.marks.register("rules", RULES, kind="skill") is not None
    assert await session.marks.register("rules", RULES, kind="skill", idempotency_key="once") is not None
    again = await session.marks.register("rules", RULES, kind="skill", idempotency_key="once")
    assert again is not None
    assert again.replayed
    assert [(each.kind, each.text) for each in await session.marks.registered()] == [("skill", RULES)]
    assert await session.build_context() == []


async def test_they_are_those_of_the_path(session: Session, store: Store) -> None:
    before = (await say(session, "one"))[0]
    await session.marks.register("rules", "old")
    fork = await session.fork()
    await session.marks.register("rules", "new")
    assert [each.text for each in await fork.marks.registered()] == ["old"]
    assert [each.text for each in await session.marks.registered()] == ["new"]
    assert await session.marks.registered(leaf=before) == ()
    await session.move_leaf(before)
    assert await session.marks.registered() == ()


async def test_a_compaction_that_somebody_wrote_by_hand_loses_none(session: Session) -> None:
    await session.marks.register("rules", RULES)
    await session.marks.register("gone", "gone")
    await session.marks.unregister("gone")
    kept = (await say(session, "one", "two"))[1]
    await session.append_compaction("by hand", first_kept_entry_id=kept, tokens_before=9)
    assert [each.text for each in await session.marks.registered()] == [RULES]
    await talk(session, 6)
    await session.compact(MODEL, settings=SETTINGS)
    assert RULES in await text_of(session)
    await session.compactions.uncompact()
    assert [each.text for each in await session.marks.registered()] == [RULES]


async def test_beside_a_summary_that_stays_they_are_shown_once(session: Session) -> None:
    await session.marks.register("rules", RULES)
    await talk(session, 10)
    await session.compact(mode="intent", settings=CompactionSettings(keep_recent_tokens=1_000, user_words_share=0))
    kept = [item.entry_id for item in await session.build_context_entries()]
    settings = CompactionSettings(user_words_share=0)
    done = await session.compactions.compact_range(kept[2], kept[-2], mode="window", settings=settings)
    assert done.appended is not None
    assert str(await session.build_context()).count("Never push.") == 1
    assert [each.text for each in await session.marks.registered()] == [RULES]
    await talk(session, 10, start=10)
    await session.marks.register("rules", "New rules.")
    kept = [item.entry_id for item in await session.build_context_entries()]
    done = await session.compactions.compact_range(kept[-8], kept[-2], mode="window", settings=settings)
    assert done.appended is not None
    assert "New rules." in str(done.summary)
    assert (await session.compact(mode="intent", settings=SETTINGS)).appended is not None
    assert str(await session.build_context()).count("Never push.") == 0
    assert str(await session.build_context()).count("New rules.") == 1


async def test_what_is_registered_while_the_model_answers_is_in_the_summary(session: Session, store: Store) -> None:
    await session.marks.register("way", "the old way", kind="plan")
    await talk(session, 10)
    other = await store.get_session(session.id)
    assert other is not None

    async def answer(request: ModelRequest) -> str:
        await other.marks.register("way", "the new way", kind="plan")
        return "summary"

    done = await session.compact(FunctionModel(answer, "small", context_window=200_000), settings=SETTINGS)
    assert done.appended is not None
    assert "the new way" in await text_of(session)
    assert "the old way" not in await text_of(session)
    assert [each.text for each in await session.marks.registered()] == ["the new way"]


@pytest.mark.parametrize(("count", "words"), [(300, 5), (300, 3_000), (40, 20_000)])
def test_the_cap_of_all_holds_however_many_there_are(count: int, words: int) -> None:
    texts = [RegisteredText(f"text {at}", REGISTERED_KINDS[at % 4], "rule " * words, f"e{at}") for at in range(count)]
    counter = counter_for("gpt-5")
    for window, most in ((None, 25_000), (20_000, 2_500), (8_000, 1_000)):
        block = registered_block(texts, CompactionSettings(), window, lambda text: counter.count(user(text)))
        assert counter.count(user(block.text)) <= most
        shown = [text for text in texts if f'name="{text.name}"' in block.text]
        assert shown[0] is texts[0]
        left = [note for note in block.notes if "registered texts are left out" in note]
        assert bool(left) == (len(shown) < count)
        if left:
            assert left[0].startswith(f"{count - len(shown)} ")
            assert f"[… {count - len(shown)} more registered texts do not fit, and are stored: " in block.text


async def test_caps_cut_and_say_what_is_missing(session: Session) -> None:
    await session.marks.register("skill", "S" + "s" * 4_000, kind="skill")
    await session.marks.register("rules", "r" * 4_000)
    await session.marks.register("plan", "short", kind="plan")
    await talk(session, 20)
    settings = CompactionSettings(keep_recent_tokens=200, registered_item_tokens=300, registered_tokens=460)
    done = await session.compact(mode="window", settings=settings)
    text = await text_of(session)
    assert [note.split(" is longer")[0].split(" (")[0] for note in done.notes] == [
        "the registered instructions 'rules'",
        "the registered skill 'skill'",
    ]
    assert "of 4000 characters are left out" in done.notes[0]
    assert "more characters, stored in entry" in text
    assert 0 < text.count("r" * 10) < 400
    assert '<registered kind="plan" name="plan">\nshort\n</registered>' in text
    assert [len(each.text) for each in await session.marks.registered()] == [4_001, 4_000, 5]
    await talk(session, 20, start=20)
    small = await session.compact(mode="window", settings=SETTINGS, window=1_600)
    assert small.appended is not None
    assert "characters are left out" in " ".join(small.notes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "name: should be one line"),
        ({"name": "a\nb"}, "name: should be one line"),
        ({"name": "a\n"}, "name: should be one line"),
        ({"name": "a\u2028"}, "name: should be one line"),
        ({"name": "\t"}, "name: should be one line"),
        ({"text": " "}, "text: is not a text with words"),
        ({"text": 7}, "text: is not a text with words"),
        ({"kind": "rule"}, "kind: 'rule' is not one of instructions, plan, todo, skill"),
    ],
)
async def test_wrong_arguments_say_what_to_do(session: Session, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{message}"):
        await session.marks.register(**{"name": "n", "text": "t", **arguments})  # type: ignore[arg-type]
    assert await session.marks.registered() == ()


async def test_a_handle_that_has_not_seen_the_leaf_registers_nothing(session: Session, store: Store) -> None:
    other = await store.get_session(session.id)
    assert other is not None
    await say(session, "one")
    with pytest.raises(LeafConflict):
        await other.marks.register("rules", RULES)
    assert await session.marks.registered() == ()
