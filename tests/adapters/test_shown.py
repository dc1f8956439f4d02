"""A table of adapters and of what changes a context: each shows what the model is sent, and goes on below it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import pytest
from msgspec.structs import replace

import flue_py
from flue_py.core.entries import NewEntry
from tests.adapters.needed import needs
from tests.values import existing


class Adapter(Protocol):
    """One framework above a session with the key ``s`` in the scope ``app/user``, or in none."""

    scope: str

    async def say(self, text: str) -> None: ...

    async def seen(self) -> list[str]: ...


class OpenAIAgents:
    scope = ""

    def __init__(self, store: flue_py.Store) -> None:
        from flue_py.adapters.openai_agents import FlueSession

        self.session: Any = FlueSession.from_store("s", store)

    async def say(self, text: str) -> None:
        await self.session.add_items(
            [{"role": "user", "content": text}, {"role": "assistant", "content": f"re {text}"}]
        )

    async def seen(self) -> list[str]:
        return [text_of(item["content"]) for item in await self.session.get_items()]


class PydanticAI:
    scope = ""

    def __init__(self, store: flue_py.Store) -> None:
        from flue_py.adapters.pydantic_ai import FlueConversationStore

        self.store = FlueConversationStore(store)

    async def say(self, text: str) -> None:
        from pydantic_ai import messages as m
        from pydantic_ai.conversation import Conversation

        conversation = await self.store.load("s") or Conversation(conversation_id="s")
        asked, answered = m.UserPromptPart(text), m.TextPart(f"re {text}")
        conversation.messages += [m.ModelRequest(parts=[asked]), m.ModelResponse(parts=[answered])]
        # As a program has it that has kept the messages alone: they are compared with what is stored.
        conversation.new_message_index = None
        await self.store.save(conversation)

    async def seen(self) -> list[str]:
        conversation = existing(await self.store.load("s"))
        last = existing(await self.store.load("s", limit=2))
        assert last.messages == conversation.messages[-2:]
        return [text_of(part.content) for message in conversation.messages for part in message.parts]


class LangGraph:
    scope = ""

    def __init__(self, store: flue_py.Store) -> None:
        from langchain_core.messages import AIMessage
        from langgraph.graph import START, MessagesState, StateGraph

        from flue_py.adapters.langgraph import FlueSaver

        def answer(state: dict[str, Any]) -> Any:
            return {"messages": [AIMessage(f"re {state['messages'][-1].content}")]}

        graph: Any = StateGraph(MessagesState)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        self.graph = graph.compile(checkpointer=FlueSaver(store))
        self.config: Any = {"configurable": {"thread_id": "s"}}

    async def say(self, text: str) -> None:
        await self.graph.ainvoke({"messages": [("user", text)]}, self.config)

    async def seen(self) -> list[str]:
        state = await self.graph.aget_state(self.config)
        assert (await self.graph.aget_state(state.config)).values == state.values
        return [text_of(message.content) for message in state.values["messages"]]


class Adk:
    scope = "app/user"

    def __init__(self, store: flue_py.Store) -> None:
        from flue_py.adapters.adk import FlueSessionService

        self.service = FlueSessionService(store)
        self.names: Any = {"app_name": "app", "user_id": "user", "session_id": "s"}

    async def say(self, text: str) -> None:
        from google.adk.events.event import Event
        from google.genai import types

        session = await self.service.get_session(**self.names) or await self.service.create_session(**self.names)
        for author, role, said in (("user", "user", text), ("root", "model", f"re {text}")):
            content = types.Content(role=role, parts=[types.Part(text=said)])
            await self.service.append_event(session, Event(author=author, content=content, invocation_id=text))

    async def seen(self) -> list[str]:
        session = existing(await self.service.get_session(**self.names))
        times = [event.timestamp for event in session.events]
        assert times == sorted(times), "ADK puts events in the order of their times"
        return ["".join(part.text for part in event.content.parts) for event in session.events if event.content]


def text_of(content: Any) -> str:
    """Return the text of a content, in whichever form."""
    if isinstance(content, str):
        return content
    return "".join(part if isinstance(part, str) else part["text"] for part in content)


async def _compact(session: flue_py.Session) -> None:
    kept = (await session.build_context_entries())[-2].entry_id
    await session.append_compaction("They asked a.", first_kept_entry_id=kept, tokens_before=50)


async def _compact_and_undo(session: flue_py.Session) -> None:
    await _compact(session)
    await session.undo()


async def _pin(session: flue_py.Session) -> None:
    await session.marks.pin((await session.build_context_entries())[0].entry_id)


async def _compact_with_a_prompt(session: flue_py.Session) -> None:
    """Append a compaction as files of pi have it, with the system message from then on."""
    kept = (await session.build_context_entries())[-2].entry_id
    made = NewEntry.compaction("They asked a.", first_kept_entry_id=kept, tokens_before=50, parent_id=session.leaf_id)
    prompt = {"role": "system", "content": "Be brief."}
    payload = json.dumps({**json.loads(made.payload), "systemMessage": prompt})
    entry = replace(made, id="compacted", payload=payload)
    await session.import_entries([entry], leaf="compacted")


async def _merge_back(session: flue_py.Session) -> None:
    fork = await session.fork()
    await fork.append_message({"role": "user", "content": "elsewhere"})
    await session.branches.merge_back("It works.", source=fork)


async def _exclude(session: flue_py.Session) -> None:
    await session.marks.exclude((await session.build_context_entries())[1].entry_id)


async def _exclude_a_part(session: flue_py.Session) -> None:
    parts = [{"type": "text", "text": "long"}, {"type": "text", "text": "short"}]
    await session.append_messages([{"role": "user", "content": parts}, {"role": "assistant", "content": "so"}])
    await session.marks.exclude((await session.build_context_entries())[-2].entry_id, 0)


def _says(role: str) -> Callable[[flue_py.Session], Awaitable[object]]:
    return lambda session: session.append_message({"role": role, "content": "Be brief."})


_TWO = ["a", "re a", "b", "re b"]
CHANGES: dict[str, tuple[list[Callable[[flue_py.Session], Awaitable[object]]], list[str]]] = {
    "a turn of another writer": ([_says("user"), _says("assistant")], [*_TWO, "Be brief.", "Be brief."]),
    "a compaction": ([_compact], ["[Context Summary]\n\nThey asked a.", "b", "re b"]),
    "a compaction, undone": ([_compact_and_undo], _TWO),
    "a compaction, taken back": ([_compact, lambda session: session.compactions.uncompact()], _TWO),
    "a compaction, with a pin": ([_pin, _compact], ["[Context Summary]\n\nThey asked a.", "a", "b", "re b"]),
    "a compaction with a prompt": (
        [_compact_with_a_prompt],
        ["Be brief.", "[Context Summary]\n\nThey asked a.", "b", "re b"],
    ),
    "a note, which no model sees": ([lambda session: session.append_custom("note", {"x": 1})], _TWO),
    "a custom message": ([lambda session: session.append_custom("custom_message", {"content": "x"})], [*_TWO, "x"]),
    "two compactions": (
        [_compact, _says("user"), _compact],
        ["[Context Summary]\n\nThey asked a.", "re b", "Be brief."],
    ),
    "a merge-back": ([_merge_back], [*_TWO, "[Branch Summary]\n\nIt works."]),
    "a system message": ([_says("system")], [*_TWO, "Be brief."]),
    "a developer message": ([_says("developer")], [*_TWO, "Be brief."]),
    "a message left out": ([_exclude], ["a", "b", "re b"]),
    "a part left out": ([_exclude_a_part], [*_TWO, "short", "so"]),
    "a part left out, then a compaction": (
        [_exclude_a_part, _compact],
        ["[Context Summary]\n\nThey asked a.", "short", "so"],
    ),
}


async def begun(
    store: flue_py.Store, adapter: Adapter, changes: list[Any], *, by_hand: bool = False
) -> flue_py.Session:
    """Begin the session with two turns, by the framework or by hand, and make changes of it."""
    if by_hand:
        session = await store.create_session(key="s", scope=adapter.scope)
        roles = ["user", "assistant"] * 2
        await session.append_messages([{"role": r, "content": t} for r, t in zip(roles, _TWO, strict=True)])
    else:
        for text in ("a", "b"):
            await adapter.say(text)
        session = await store.open_session("s", scope=adapter.scope)
    for change in changes:
        await change(session)
    return session


@pytest.mark.parametrize(
    ("made", "extra", "module"),
    [
        (OpenAIAgents, "openai-agents", "agents"),
        (PydanticAI, "pydantic-ai", "pydantic_ai.conversation_store"),
        (LangGraph, "langgraph", "langgraph.graph"),
        (Adk, "adk", "google.adk"),
    ],
)
def test_every_adapter_shows_what_the_model_is_sent(
    made: Callable[[flue_py.Store], Adapter], extra: str, module: str
) -> None:
    needs(extra, module)
    wrong: list[str] = []

    async def check(what: str, is_begun_by_hand: bool) -> None:
        changes, expected = CHANGES[what]
        async with flue_py.open(":memory:") as store:
            adapter = made(store)
            session = await begun(store, adapter, changes, by_hand=is_begun_by_hand)
            how = f"{what}, begun {'by hand' if is_begun_by_hand else 'by the framework'}"
            seen = await adapter.seen()
            if seen != expected:
                wrong.append(f"{how}: {seen}")
            path = await session.get_active_path()
            for text in ("c", "d"):
                await adapter.say(text)
            seen = await adapter.seen()
            await session.refresh()
            context = [text_of(message["content"]) for message in await session.build_context()]
            if not seen == context == [*expected, "c", "re c", "d", "re d"]:
                wrong.append(f"{how}, then: {seen}; the context is {context}")
            if (await session.get_active_path())[: len(path)] != path:
                wrong.append(f"{how}: something of the path is on a branch now")
            wrong.extend(f"{how}: {problem}" for problem in (await store.verify()).problems)

    for what in CHANGES:
        for is_begun_by_hand in (True, False):
            asyncio.run(check(what, is_begun_by_hand))
    assert not wrong, "\n".join(wrong)


def test_what_a_graph_removes_or_edits_behind_a_compaction_stays_so() -> None:
    """A summary and its system message are no entries that an exclusion can name."""
    needs("langgraph", "langgraph.graph")
    from langchain_core.messages import HumanMessage, RemoveMessage
    from langgraph.graph.message import REMOVE_ALL_MESSAGES

    edits: dict[str, Callable[[list[Any]], list[Any]]] = {
        "all": lambda _: [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("new")],
        "the first": lambda messages: [RemoveMessage(messages[0].id)],
        "the second": lambda messages: [RemoveMessage(messages[1].id)],
        "the first, edited": lambda messages: [HumanMessage("edited", id=messages[0].id)],
    }
    wrong: list[str] = []

    async def check(what: str, edit: str) -> None:
        async with flue_py.open(":memory:") as store:
            adapter = LangGraph(store)
            session = await begun(store, adapter, CHANGES[what][0])
            messages = (await adapter.graph.aget_state(adapter.config)).values["messages"]
            await adapter.graph.aupdate_state(adapter.config, {"messages": edits[edit](messages)}, as_node="answer")
            left = await adapter.seen()
            for text, copy in (("c", "t"), ("d", "u")):
                await session.refresh()
                await session.append_message({"role": "user", "content": "of another"})
                await adapter.say(text)
                left += ["of another", text, f"re {text}"]
                await adapter.graph.checkpointer.acopy_thread("s", copy)
                context = [
                    [text_of(message["content"]) for message in await (await store.open_session(key)).build_context()]
                    for key in ("s", copy)
                ]
                if not await adapter.seen() == context[0] == context[1] == left:
                    wrong.append(f"{what}, {edit}: {await adapter.seen()}; contexts {context}; expected {left}")
            wrong.extend(f"{what}, {edit}: {problem}" for problem in (await store.verify()).problems)

    for what in (each for each in CHANGES if each.startswith(("a compaction", "two")) or "then a compaction" in each):
        for edit in edits:
            asyncio.run(check(what, edit))
    assert not wrong, "\n".join(wrong)


def test_adk_goes_back_to_what_was_shown_before_an_invocation() -> None:
    needs("adk", "google.adk")
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions

    wrong: list[str] = []

    async def check(what: str) -> None:
        changes, expected = CHANGES[what]
        async with flue_py.open(":memory:") as store:
            adapter = Adk(store)
            session = await begun(store, adapter, changes)
            await adapter.say("c")
            for text in ("d", "e"):
                shown = await adapter.service.get_session(**adapter.names)
                back = EventActions(rewind_before_invocation_id="c" if text == "d" else "d")
                event = Event(author="user", invocation_id=f"before {text}", actions=back)
                await adapter.service.append_event(shown, event)
                await adapter.say(text)
                await session.refresh()
                context = [text_of(message["content"]) for message in await session.build_context()]
                if context != [*expected, text, f"re {text}"]:
                    wrong.append(f"{what}: the context is {context}; expected {expected}")

    for what in CHANGES:
        asyncio.run(check(what))
    assert not wrong, "\n".join(wrong)


def test_a_fork_and_a_save_without_a_change_leave_the_context_as_it_is() -> None:
    needs("pydantic-ai", "pydantic_ai.conversation_store")
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    wrong: list[str] = []

    async def check(what: str) -> None:
        changes, expected = CHANGES[what]
        async with flue_py.open(":memory:") as store:
            adapter = PydanticAI(store)
            await begun(store, adapter, changes)
            same = existing(await adapter.store.load("s"))
            await adapter.store.save(same)
            if await adapter.seen() != expected:
                wrong.append(f"{what}, saved without a change: {await adapter.seen()}; expected {expected}")
            for more in ([], ["c"]):
                fork = await adapter.store.fork("s")
                fork.messages += [ModelRequest(parts=[UserPromptPart(text)]) for text in more]
                await adapter.store.save(fork)
                copy = await adapter.store.session_for(fork.conversation_id)
                context = [text_of(message["content"]) for message in await copy.build_context()]
                if context != [*expected, *more]:
                    wrong.append(f"{what}: {context}; expected {[*expected, *more]}")

    for what in CHANGES:
        asyncio.run(check(what))
    assert not wrong, "\n".join(wrong)
