"""`FlueSaver` beside the framework's savers: the same graphs give the same states, and the store can read them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("langgraph", "langgraph.graph", "langgraph.checkpoint.sqlite")

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.base import copy_checkpoint, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, interrupt

import flue_py
from flue_py.adapters.langgraph import FlueSaver, ThreadOwned, layout
from flue_py.errors import InvalidArgument, LeafConflict, SessionNotFound
from tests.adapters.langgraph.graphs import USAGE, answers, chat, sound, thread
from tests.tables import inputs
from tests.values import existing


def checked(path: Path) -> Any:
    """Open a store for reading what a saver has written into it, once it has been found sound."""
    with flue_py.sync.open(path) as store:
        assert store.verify().problems == []
    return flue_py.sync.open(path)


def history(graph: Any, config: Any) -> list[Any]:
    """Return the states of a thread without what differs from run to run."""
    return [(state.values, state.next, state.metadata["step"]) for state in graph.get_state_history(config)]


def test_a_thread_is_a_session_whose_messages_are_ours(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with FlueSaver.from_conn_string(path) as saver:
        graph = chat(saver, answers(3))
        for text in ("One?", "Two?", "Three?"):
            graph.invoke({"messages": [("user", text)]}, thread("t"))
    with checked(path) as store:
        session = store.open_session("t")
        said = [(message["role"], message["content"]) for message in session.build_context()]
        assert said[:3] == [("user", "One?"), ("assistant", "Yes. 0"), ("user", "Two?")]
        messages = [entry for entry in session.get_tree() if entry.kind == "message"]
        assert len(messages) == 6  # once, however many checkpoints have them
        usage = store.usage(session)
        assert (usage.total.calls, usage.total.total_tokens) == (3, 45)
        assert [info.key for info in store.list_sessions().sessions] == ["t"]


def test_states_are_those_of_the_frameworks_own_saver(tmp_path: Path) -> None:
    def run(saver: Any) -> list[Any]:
        graph = chat(saver, answers(4))
        graph.invoke({"messages": [HumanMessage("One?", id="1")]}, thread("t"))
        graph.invoke({"messages": [HumanMessage("Two?", id="2")]}, thread("t"))
        first = list(graph.get_state_history(thread("t")))[3]
        graph.invoke({"messages": [HumanMessage("Else?", id="3")]}, first.config)
        graph.update_state(thread("t"), {"messages": [RemoveMessage("1")]})
        return history(graph, thread("t"))

    with FlueSaver.from_conn_string(tmp_path / "a.db") as saver:
        assert run(saver) == run(InMemorySaver())
    sound(tmp_path / "a.db", 1)


def test_messages_that_are_changed_and_removed_are_so(tmp_path: Path) -> None:
    steps: list[list[Any]] = [
        [HumanMessage("a", id="a"), AIMessage("b", id="b"), HumanMessage("c", id="c")],
        [RemoveMessage("b")],
        [HumanMessage("A", id="a")],
        [HumanMessage("d", id="d")],
        [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("e", id="e")],
        [HumanMessage(str(number), id=str(number)) for number in range(300)],
        [RemoveMessage(str(number)) for number in range(290)],
        [HumanMessage("f", id="f")],
    ]

    def edits(saver_of: Any) -> list[Any]:
        seen = []
        for step in steps:
            with saver_of() as saver:
                graph = chat(saver, [])
                graph.update_state(thread("t"), {"messages": step}, as_node="answer")
                seen.append(graph.get_state(thread("t")).values)
        with saver_of() as saver:
            return [*seen, *(values for values, _, _ in history(chat(saver, []), thread("t")))]

    memory = InMemorySaver()
    expected = edits(lambda: memory)
    with FlueSaver(tmp_path / "a.db") as saver:
        assert edits(lambda: nullcontext(saver)) == expected
    path = tmp_path / "restarted.db"
    assert edits(lambda: FlueSaver(path)) == expected
    with checked(path) as store:
        said = [message["content"] for message in store.open_session("t").build_context()]
        assert said == ["e", *(str(number) for number in range(290, 300)), "f"]


def through_the_framework(value: Any) -> Any:
    """Return what the framework's own savers give back of a value: a tuple is a list."""
    return JsonPlusSerializer().loads_typed(JsonPlusSerializer().dumps_typed(value))


MESSAGES: list[BaseMessage] = [
    HumanMessage("plain"),
    HumanMessage("", id="e"),
    HumanMessage(
        [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    ),
    HumanMessage(["a", {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}], name="Ann"),
    HumanMessage("x", additional_kwargs={"a": (1, 2)}),
    HumanMessage("x", additional_kwargs={"when": datetime(2026, 1, 1, tzinfo=UTC), "n": 1.0, "t": True}),
    HumanMessage("beside", extra_field={"a": [1]}),  # type: ignore[call-arg]
    SystemMessage("Be brief.", id="s"),
    AIMessage("hi", usage_metadata=USAGE, response_metadata={"model_name": "m", "model_provider": "p"}, id="1"),
    AIMessage("", tool_calls=[{"name": "look", "args": {"a": [1, None]}, "id": "c1"}]),
    AIMessage("and", tool_calls=[{"name": "look", "args": {}, "id": None}], invalid_tool_calls=[]),
    AIMessage(
        [
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
        ],
        tool_calls=[{"name": "look", "args": {}, "id": "c2"}],
    ),
    AIMessage([{"type": "reasoning", "summary": []}, {"type": "text", "text": "x", "annotations": []}]),
    AIMessage(
        "old",
        additional_kwargs={
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
        },
    ),
    AIMessage("x", response_metadata={"finish_reason": "length", "logprobs": None, "n": 1}),
    AIMessageChunk("part", id="run-1"),
    ToolMessage("42", tool_call_id="c1", name="look"),
    ToolMessage("no", tool_call_id="c1", status="error", artifact={"raw": [1]}),
    ToolMessage("x", tool_call_id="c1", artifact=b"bytes"),
    ToolMessage([{"type": "text", "text": "x"}], tool_call_id=""),
    ChatMessage("said", role="critic"),
    HumanMessage("NUL \0 and 🦊", id="\0"),
]


def test_every_message_comes_back_value_for_value(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    empty: Any = empty_checkpoint()
    with FlueSaver.from_conn_string(path) as saver:
        saved = [
            saver.put(thread(str(number)), empty | {"channel_values": {"messages": [message]}}, {}, {})
            for number, message in enumerate(MESSAGES)
        ]
    for _ in range(2):
        with FlueSaver.from_conn_string(path) as saver:
            read = [existing(saver.get_tuple(config)).checkpoint["channel_values"]["messages"] for config in saved]
            assert [(type(back), repr(back)) for (back,) in read] == [
                (type(message), repr(through_the_framework(message))) for message in MESSAGES
            ]
    with checked(path) as store:
        for number in range(len(MESSAGES)):
            (entry,) = (entry for entry in store.open_session(str(number)).get_tree() if entry.kind == "message")
            assert entry.role in ("user", "assistant", "system", "toolResult", "critic")


VALUES: list[Any] = [
    *(
        None, True, 1, 1.0, float("inf"), "text", "NUL \0", b"bytes", bytearray(b"b"), [], {}, (1, 2), {1: 2},
        {"a": (1,)},
    ),
    *(2**63 - 1, -(2**63), {1, 2}, datetime(2026, 1, 1, tzinfo=UTC), [[[]]], "x" * 10_000, {"json": 1}, {"at": "x"}),
    {"line": True},
]  # fmt: skip


def test_every_value_comes_back_value_for_value(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    values = {f"v{number}": value for number, value in enumerate(VALUES)}
    checkpoint: Any = empty_checkpoint() | {"channel_values": values, "channel_versions": dict.fromkeys(values, 1)}
    with FlueSaver.from_conn_string(path) as saver:
        saved = saver.put(thread("t"), checkpoint, {}, dict.fromkeys(values, 1))
        saver.put_writes(saved, list(values.items()), "task")
    with FlueSaver.from_conn_string(path) as saver:
        found = existing(saver.get_tuple(saved))
        expected = [repr(through_the_framework(value)) for value in VALUES]
        assert [repr(value) for value in found.checkpoint["channel_values"].values()] == expected
        assert sorted(repr(write[2]) for write in found.pending_writes or []) == sorted(expected)


def test_what_a_graph_does_to_a_value_reaches_nobody_else(tmp_path: Path) -> None:
    with FlueSaver.from_conn_string(tmp_path / "a.db") as saver:
        values: Any = {"list": [1], "messages": [HumanMessage("a", id="a", additional_kwargs={"n": [1]})]}
        checkpoint: Any = empty_checkpoint() | {"channel_values": values}
        saved = saver.put(thread("t"), checkpoint, {}, {})
        for _ in range(2):
            found: Any = saver.get_tuple(saved)
            values = found.checkpoint["channel_values"]
            assert values["list"] == [1]
            assert values["messages"] == [HumanMessage("a", id="a", additional_kwargs={"n": [1]})]
            values["list"].append(2)
            values["messages"][0].content = "changed"
            values["messages"][0].additional_kwargs["n"].append(2)


def test_one_saver_serves_loops_and_threads(tmp_path: Path) -> None:
    saver = FlueSaver.from_conn_string(tmp_path / "a.db")
    graph = chat(saver, answers(50))
    asyncio.run(graph.ainvoke({"messages": [("user", "One?")]}, thread("t")))
    asyncio.run(graph.ainvoke({"messages": [("user", "Two?")]}, thread("t")))
    graph.invoke({"messages": [("user", "Three?")]}, thread("t"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: graph.invoke({"messages": [("user", str(n))]}, thread(f"t{n}")), range(8)))
    assert len(graph.get_state(thread("t")).values["messages"]) == 6
    for number in range(8):
        assert len(graph.get_state(thread(f"t{number}")).values["messages"]) == 2
    saver.close()
    sound(tmp_path / "a.db", 9)


@pytest.mark.parametrize("how", ["path", "open store"])
def test_many_tasks_write_at_once(tmp_path: Path, how: str) -> None:
    async def writes(saver: FlueSaver) -> None:
        saved = await saver.aput(thread("t"), empty_checkpoint(), {}, {})
        await asyncio.gather(*(saver.aput_writes(saved, [("c", n)], f"task {n:03}") for n in range(80)))
        found = existing(await saver.aget_tuple(saved))
        assert [write[2] for write in found.pending_writes or []] == list(range(80))

    async def main() -> None:
        if how == "path":
            async with FlueSaver.from_conn_string(tmp_path / "a.db") as saver:
                await writes(saver)
            return
        async with flue_py.open(tmp_path / "a.db") as store:
            await writes(FlueSaver(store))

    asyncio.run(main())
    sound(tmp_path / "a.db", 1)


def test_rewinding_and_forking_by_the_store_is_seen_by_the_graph(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with FlueSaver.from_conn_string(path) as saver:
        graph = chat(saver, answers(9))
        for text in ("One?", "Two?"):
            graph.invoke({"messages": [("user", text)]}, thread("t"))
        with flue_py.sync.open(path) as store:
            session = store.open_session("t")
            session.fork(key="fork")
            session.rewind(turns=-1)
        assert [message.content for message in graph.get_state(thread("t")).values["messages"]] == ["One?", "Yes. 0"]
        assert graph.get_state(thread("t")).next == ()
        graph.invoke({"messages": [("user", "Other?")]}, thread("t"))
        graph.invoke({"messages": [("user", "Three?")]}, thread("fork"))
        said = [message.content for message in graph.get_state(thread("t")).values["messages"]]
        assert said == ["One?", "Yes. 0", "Other?", "Yes. 2"]
        said = [message.content for message in graph.get_state(thread("fork")).values["messages"]]
        assert said == ["One?", "Yes. 0", "Two?", "Yes. 1", "Three?", "Yes. 3"]
    with checked(path) as store:
        assert store.usage().total.calls == 4


def test_a_session_that_was_begun_by_hand_goes_on_as_a_thread(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    usage = {"input": 5, "output": 5, "totalTokens": 10}
    call = {"type": "toolCall", "id": "c", "name": "look", "arguments": {"a": 1}}
    with flue_py.sync.open(path) as store:
        session = store.create_session(key="t")
        session.append_message({"role": "user", "content": "One?"})
        session.append_message({"role": "assistant", "content": [call], "usage": usage})
        session.append_message({"role": "toolResult", "toolCallId": "c", "toolName": "look", "content": "42"})
        session.append_message({"role": "assistant", "content": "It is 42.", "usage": usage})
    with FlueSaver.from_conn_string(path) as saver:
        for number in range(2):
            graph = chat(saver, answers(2)[number:])
            graph.invoke({"messages": [("user", "Two?")]}, thread("t"))
        messages = graph.get_state(thread("t")).values["messages"]
        assert [type(message) for message in messages[:4]] == [HumanMessage, AIMessage, ToolMessage, AIMessage]
        assert messages[1].tool_calls == [{"name": "look", "args": {"a": 1}, "id": "c", "type": "tool_call"}]
        assert [message.content for message in messages[3:]] == ["It is 42.", "Two?", "Yes. 0", "Two?", "Yes. 1"]
        assert len(list(saver.list(thread("t")))) == 7
    with checked(path) as store:
        assert len(store.open_session("t").build_context()) == 8
        assert store.usage().total.calls == 4


def test_what_others_append_while_a_graph_runs_is_a_conflict_and_what_it_finds_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    turn = {"role": "user", "content": "By another."}

    def ask(state: MessagesState) -> Any:
        if len(state["messages"]) == 5:
            with flue_py.sync.open(path) as store:
                store.open_session("t").append_message(turn)
            return {"messages": [AIMessage("2.")]}
        return {"messages": [AIMessage(str(interrupt(state["messages"][-1].content)))]}

    graph: Any = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")
    with FlueSaver.from_conn_string(path) as saver, flue_py.sync.open(path) as store:
        app = graph.compile(checkpointer=saver)
        app.invoke({"messages": [("user", "One?")]}, thread("t"))
        session = store.open_session("t")
        session.append_message(turn)
        assert app.get_state(thread("t")).next == ("ask",)
        said = app.invoke(Command(resume="1."), thread("t"))["messages"]
        assert [message.content for message in said] == ["One?", "By another.", "1."]
        for number in range(5):
            # One that stands for what others added is followed by the next, whether or not a graph ran between.
            earlier: Any = saver.get_tuple(thread("t"))
            session.refresh()
            session.append_message(turn)
            later: Any = saver.get_tuple(thread("t"))
            assert later.checkpoint["id"] > earlier.checkpoint["id"]
            saver.put_writes(later.config, [("x", number)], f"task-{number}")
        session.refresh()
        session.rewind(turns=2)
        # A checkpoint that was read before others appended is no place to write below.
        found: Any = saver.get_tuple(thread("t"))
        session.refresh()
        session.append_message(turn)
        with pytest.raises(LeafConflict):
            saver.put(found.config, {**empty_checkpoint(), "channel_values": {}}, {"source": "loop", "step": 9}, {})
        with pytest.raises(LeafConflict):
            app.invoke({"messages": [("user", "Two?")]}, thread("t"), durability="sync")
        assert [message["content"] for message in session.build_context()][2:] == [
            "1.", "By another.", "Two?", "By another."
        ]  # fmt: skip
        session.refresh()
        session.append_compaction("Short.", first_kept_entry_id=session.leaf_id or "", tokens_before=9)
        said = app.invoke({"messages": [("user", "Three?")]}, thread("t"))["messages"]
        summed_up = ["[Context Summary]\n\nShort.", "By another.", "Three?"]
        assert [message.text for message in said] == summed_up
        saver.copy_thread("t", "copy")
        saver.prune(["t"])
        for id in ("t", "copy"):
            assert [message.text for message in app.get_state(thread(id)).values["messages"]] == summed_up
            context = [message["content"] for message in store.open_session(id).build_context()]
            assert context == [[{"type": "text", "text": summed_up[0]}], *summed_up[1:]]
    sound(path, 2)


@pytest.mark.parametrize("is_begun", [False, True])
def test_writes_of_a_task_may_come_before_their_checkpoint_in_a_session_that_others_added_to(
    tmp_path: Path, is_begun: bool
) -> None:
    path = tmp_path / "a.db"
    with FlueSaver.from_conn_string(path) as saver, flue_py.sync.open(path) as store:
        graph = chat(saver, answers(3)[is_begun:])
        session = store.create_session(key="t")
        if is_begun:
            graph.invoke({"messages": [("user", "One?")]}, thread("t"))
            session.refresh()
        session.append_message({"role": "user", "content": "By another."})
        read: Any = saver.get_tuple(thread("t"))
        new = {**copy_checkpoint(read.checkpoint), "id": empty_checkpoint()["id"]}
        version = saver.get_next_version(max(new["channel_versions"].values()), None)
        new["channel_values"]["x"], new["channel_versions"]["x"] = 1, version
        saver.put_writes(thread("t", checkpoint_id=new["id"]), [("x", 2)], "early")
        assert graph.get_state(thread("t")).config == read.config
        saver.put(read.config, new, {"source": "loop", "step": 9}, {"x": version})
        put: Any = saver.get_tuple(thread("t"))
        assert (put.checkpoint["id"], put.checkpoint["channel_values"]["x"]) == (new["id"], 1)
        assert put.pending_writes == [("early", "x", 2)]
        assert put.parent_config["configurable"]["checkpoint_id"] == read.config["configurable"]["checkpoint_id"]
        said = graph.invoke({"messages": [("user", "Two?")]}, thread("t"))["messages"]
        assert [message.text for message in said][-3:-1] == ["By another.", "Two?"]
    sound(path, 1)


def test_a_late_write_of_a_task_leaves_nothing_behind_that_refuses_what_is_put_next(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    turn = {"role": "user", "content": "By another."}
    with FlueSaver.from_conn_string(path) as saver, flue_py.sync.open(path) as store:
        graph = chat(saver, answers(2))
        graph.invoke({"messages": [("user", "One?")]}, thread("t"))
        ran: Any = saver.get_tuple(thread("t"))
        session = store.open_session("t")
        session.append_message(turn)
        saver.put_writes(ran.config, [("x", 1)], "late")
        session.refresh()
        session.append_message(turn)
        said = graph.invoke({"messages": [("user", "Two?")]}, thread("t"))["messages"]
        assert [message.text for message in said][2:4] == ["By another.", "By another."]


class Noted(MessagesState):
    note: str


@pytest.mark.parametrize("kind", ["message", layout.WRITES, layout.VALUE, layout.CHECKPOINT])
def test_what_is_redacted_is_in_no_answer_of_a_saver_that_knew_it_and_the_graph_goes_on(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "a.db"
    secret, note = "a number that nobody should read, or even know of", "and a note " * 20

    def ask(state: Noted) -> Any:
        return {"messages": [AIMessage(secret)], "note": note}

    graph: Any = StateGraph(Noted).add_node("ask", ask).add_edge(START, "ask")
    with FlueSaver.from_conn_string(path) as saver, flue_py.sync.open(path) as store:
        app = graph.compile(checkpointer=saver)
        app.invoke({"messages": [("user", "One?")]}, thread("t"))
        assert secret in str(app.get_state(thread("t")).values)
        session = store.open_session("t")
        done = session.redact([entry.id for entry in session.entries() if entry.kind == kind], "asked for")
        # A checkpoint with the input, and the writes of tasks, have the messages as the framework serialises them.
        assert done.look is not None
        assert {trace.place for trace in done.look.stays} >= ({"entries"} if kind == "message" else set())
        with FlueSaver.from_conn_string(path) as other:
            for checkpoints in (saver, other):
                app = graph.compile(checkpointer=checkpoints)
                state = app.get_state(thread("t"))
                texts = [message.text for message in state.values["messages"]]
                shown = "[redacted: asked for]"
                assert texts == ([shown, shown] if kind == "message" else ["One?", secret])
                gone = kind in (layout.VALUE, layout.CHECKPOINT)
                assert state.values.get("note") == (None if gone else note)
                history = [*app.get_state_history(thread("t"))]
                assert len(history) == (0 if kind == layout.CHECKPOINT else 3)
        said = graph.compile(checkpointer=saver).invoke({"messages": [("user", "Two?")]}, thread("t"))
        assert [message.text for message in said["messages"]] == [*texts, "Two?", secret]
    sound(path, 1)


def test_messages_of_others_are_not_taken_for_those_that_another_serializer_wrote(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    class Other(JsonPlusSerializer):
        """Whose values are not known to be those of the framework."""

    with FlueSaver.from_conn_string(path, serde=Other()) as saver, flue_py.sync.open(path) as store:
        graph = chat(saver, answers(2))
        graph.invoke({"messages": [("user", "One?")]}, thread("t"))
        session = store.open_session("t")
        session.append_message({"role": "user", "content": "By another."})
        with pytest.raises(InvalidArgument, match="in no form that these can be added to"):
            graph.get_state(thread("t"))
        session.undo()
        assert len(graph.get_state(thread("t")).values["messages"]) == 2


def test_the_first_checkpoint_of_a_process_loads_nothing_more(tmp_path: Path) -> None:
    """A graph runs on while it is written, so whoever is killed loses what waits for modules to be compiled."""
    program = """
        import sys
        from langchain_core.messages import HumanMessage
        from langgraph.checkpoint.base import empty_checkpoint
        from flue_py.adapters.langgraph import FlueSaver
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        with FlueSaver.from_conn_string(sys.argv[1]) as saver:
            saver.get_tuple(config)
            before = set(sys.modules)
            values = {"channel_values": {"messages": [HumanMessage("Hi", id="h")]}, "channel_versions": {"messages": 1}}
            put = saver.put(config, {**empty_checkpoint(), **values}, {"source": "input", "step": -1}, {"messages": 1})
            saver.put_writes(put, [("messages", [HumanMessage("Ho")])], "task")
            print(sorted(each for each in set(sys.modules) - before if each.startswith("flue_py")))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "a.db")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_run_that_ended_after_its_input_goes_on(tmp_path: Path) -> None:
    def failing(state: MessagesState) -> Any:
        raise ConnectionError

    path = tmp_path / "a.db"
    graph: Any = StateGraph(MessagesState).add_node("answer", failing).add_edge(START, "answer")
    with FlueSaver.from_conn_string(path) as saver, pytest.raises(ConnectionError):
        graph.compile(checkpointer=saver).invoke({"messages": [("user", "One?")]}, thread("t"))
    with FlueSaver.from_conn_string(path) as saver:
        done = chat(saver, answers(1)).invoke(None, thread("t"))
        assert [message.content for message in done["messages"]] == ["One?", "Yes. 0"]
        with flue_py.sync.open(path) as store:
            store.open_session("t").rewind(turns=0)
        assert chat(saver, []).get_state(thread("t")).values == {}
        done = chat(saver, answers(1, "No.")).invoke({"messages": [("user", "Else?")]}, thread("t"))
        assert [message.content for message in done["messages"]] == ["Else?", "No. 0"]
    sound(path, 1)


def test_subgraphs_are_tasks_and_their_calls_are_paid_once(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with FlueSaver.from_conn_string(path) as saver:
        inner = chat(True, answers(5))  # type: ignore[arg-type]
        outer = StateGraph(MessagesState)
        outer.add_node("inner", inner)
        outer.add_edge(START, "inner")
        graph: Any = outer.compile(checkpointer=saver)
        for text in ("One?", "Two?"):
            graph.invoke({"messages": [("user", text)]}, thread("t"))
        everything = len(list(saver.list(thread("t"))))
        assert everything > len(list(saver.list(thread("t", checkpoint_ns=""))))
        saver.copy_thread("t", "copy")
        assert len(list(saver.list(thread("copy")))) == everything
    with checked(path) as store:
        assert store.usage().total.calls == 2
        assert [link.task_id for link in store.open_session("t").tasks.links()] == ["inner"]
    with FlueSaver.from_conn_string(path) as saver:
        saver.delete_thread("t")
        assert list(saver.list(thread("t"))) == []
        assert len(list(saver.list(thread("copy")))) == everything
    sound(path, 2)


def test_pruned_namespaces_name_the_sessions_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with FlueSaver.from_conn_string(path) as saver:
        for namespace in ("", "b"):
            for checkpoint_id in ("1", "2"):
                checkpoint: Any = empty_checkpoint() | {"id": checkpoint_id}
                saver.put(thread("t", checkpoint_ns=namespace), checkpoint, {}, {})
        saver.prune(["t"])
        assert len(list(saver.list(thread("t")))) == 2
    with checked(path) as store:
        session = store.open_session("t")
        (link,) = session.tasks.links()
        assert [item["session"] for item in session.metadata["taskSessions"]] == [link.child_id]
        task = existing(store.get_session(link.child_id))
        assert task.metadata["parentSession"] == session.id


def test_pruning_keeps_the_newest_and_what_was_paid(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with FlueSaver.from_conn_string(path) as saver:
        graph = chat(saver, answers(9))
        for text in ("One?", "Two?"):
            graph.invoke({"messages": [("user", text)]}, thread("t"))
        before = graph.get_state(thread("t"))
        saver.prune(["t", "nobody"])
        assert len(list(saver.list(thread("t")))) == 1
        assert graph.get_state(thread("t")).values == before.values
        graph.invoke({"messages": [("user", "Three?")]}, thread("t"))
        assert len(graph.get_state(thread("t")).values["messages"]) == 6
        with pytest.raises(InvalidArgument, match="keep_latest"):
            saver.prune(["t"], strategy="some")
    with checked(path) as store:
        assert store.usage().total.calls == 3
        assert len(store.list_sessions().sessions) == 1


def test_the_runs_of_a_thread_are_deleted_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with FlueSaver.from_conn_string(path) as saver:
        graph = chat(saver, answers(9))
        for text, run in (("One?", "r1"), ("Two?", "r2"), ("Three?", "r3")):
            graph.invoke({"messages": [("user", text)]}, thread("t") | {"metadata": {"run_id": run}})
        before = [found for found in saver.list(thread("t")) if found.metadata["run_id"] != "r2"]
        saver.delete_for_runs(["r2", "unknown"])
        after = list(saver.list(thread("t")))
        assert [found.checkpoint for found in after] == [found.checkpoint for found in before]
        assert [found.pending_writes for found in after] == [found.pending_writes for found in before]
        saver.delete_for_runs(["r1", "r3"])
        assert list(saver.list(None)) == []
    with checked(path) as store:
        assert store.usage().total.calls == 3
        assert store.list_sessions().sessions == ()


def test_what_others_added_stays_when_runs_are_deleted(tmp_path: Path) -> None:
    with FlueSaver(tmp_path / "a.db") as saver, checked(tmp_path / "a.db") as store:
        graph = chat(saver, answers(2))
        for run in ("1", "2"):
            graph.invoke({"messages": [HumanMessage(run)]}, {**thread("t"), "metadata": {"run_id": run}})
        store.open_session("t").append_message({"role": "user", "content": "of another"})
        for run in ("1", "2"):
            saver.delete_for_runs([run])
            said = [message.content for message in graph.get_state(thread("t")).values["messages"]]
            assert said == ["1", "Yes. 0", "2", "Yes. 1", "of another"]
            assert run not in [found.metadata.get("run_id") for found in saver.list(None)]


def test_an_owner_keeps_others_out_until_it_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    one, two, any_one = FlueSaver(path, owner="one"), FlueSaver(path, owner="two"), FlueSaver(path)
    chat(one, answers(9)).invoke({"messages": [("user", "One?")]}, thread("t"))
    for other in (two, any_one):
        with pytest.raises(ThreadOwned, match=r"thread 't' is owned by 'one'"):
            chat(other, answers(9)).invoke({"messages": [("user", "Two?")]}, thread("t"))
        assert len(chat(other, []).get_state(thread("t")).values["messages"]) == 2
    any_one.release("t")
    chat(two, answers(9)).invoke({"messages": [("user", "Two?")]}, thread("t"))
    with pytest.raises(ThreadOwned):
        chat(one, answers(9)).invoke({"messages": [("user", "Three?")]}, thread("t"))
    with pytest.raises(InvalidArgument, match="owner"):
        FlueSaver(path, owner="")
    for saver in (one, two, any_one):
        saver.close()


def test_a_serializer_that_may_encrypt_shows_nothing(tmp_path: Path) -> None:
    class Hidden(JsonPlusSerializer):
        """Writes nothing that anybody can read."""

        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            form, data = super().dumps_typed(obj)
            return form, bytes(byte ^ 0x55 for byte in data)

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return super().loads_typed((data[0], bytes(byte ^ 0x55 for byte in data[1])))

    path = tmp_path / "a.db"
    with FlueSaver.from_conn_string(path, serde=Hidden()) as saver:
        graph = chat(saver, answers(3, "sesame"))
        graph.invoke({"messages": [("user", "sesame?")]}, thread("t"))
        assert graph.get_state(thread("t")).values["messages"][1].content == "sesame 0"
    with checked(path) as store:
        assert all("sesame" not in entry.payload for entry in store.open_session("t").get_tree())


@inputs("id", ["", "x" * 3_000, "a\tb", "n\0ul", "später 🦊", "sha256:x", 7])
def test_every_id_of_a_thread_and_a_checkpoint_is_its_own(id: Any) -> None:
    with FlueSaver.from_conn_string(":memory:") as saver:
        for namespace in ("", "b", "a\tb"):
            for checkpoint_id in ("1", "x~2", "x:w1", "y" * 2_000, "z\0", "später"):
                checkpoint: Any = empty_checkpoint() | {"id": checkpoint_id, "channel_values": {"n": namespace}}
                saved = saver.put(thread(id, checkpoint_ns=namespace), checkpoint, {}, {})
                saver.put_writes(saved, [("c", checkpoint_id)], "task")
        for namespace in ("", "b", "a\tb"):
            found = list(saver.list(thread(id, checkpoint_ns=namespace)))
            ids = [each.checkpoint["id"] for each in found]
            assert ids == sorted(ids, reverse=True)
            assert len(ids) == 6
            assert {each.checkpoint["channel_values"]["n"] for each in found} == {namespace}
            assert [(each.pending_writes or [])[0][2] for each in found] == ids
        assert len(list(saver.list(thread(id)))) == 18
        assert {each.config["configurable"]["thread_id"] for each in saver.list(None)} == {str(id)}


def test_another_checkpointers_threads_are_imported_once(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with SqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as theirs, FlueSaver(path) as ours:
        graph = chat(theirs, answers(9))
        for text in ("One?", "Two?"):
            graph.invoke({"messages": [("user", text)]}, thread("t"))
        graph.invoke({"messages": [("user", "Else?")]}, list(theirs.list(thread("t")))[2].config)
        graph.invoke({"messages": [("user", "Three?")]}, thread("other"))
        expected = list(theirs.list(None))
        assert ours.import_from(theirs) == len(expected)
        assert list(ours.list(None)) == expected
        assert ours.import_from(theirs) == 0
        again = FlueSaver(":memory:")
        assert asyncio.run(again.aimport_from(ours)) == len(expected)
        assert list(again.list(None)) == expected
        state = chat(ours, [AIMessage("Now.", id="now")]).invoke({"messages": [("user", "Four?")]}, thread("t"))
        assert [message.content for message in state["messages"]][-1] == "Now."
    with checked(path) as store:
        assert store.usage().total.calls == 4


def test_a_configuration_without_a_thread_is_refused(tmp_path: Path) -> None:
    saver = FlueSaver(tmp_path / "a.db")
    for config in ({}, {"configurable": {}}, None):
        with pytest.raises(InvalidArgument, match="config"):
            saver.get_tuple(config)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="names no checkpoint"):
        saver.put_writes(thread("t"), [("a", 1)], "task")
    assert list(tmp_path.iterdir()) == []


def test_nothing_else_imports_the_framework() -> None:
    program = "import flue_py, flue_py.cli, flue_py.sync, sys; print([m for m in sys.modules if 'lang' in m])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_late_write_does_not_bring_a_deleted_thread_back() -> None:
    began: Any = {"source": "input", "step": -1}
    late: Any = {"source": "loop", "step": 0}
    new: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    with FlueSaver.from_conn_string(":memory:") as saver:
        at = saver.put(new, empty_checkpoint(), began, {})
        saver.delete_thread("t")
        for _ in range(2):
            with pytest.raises(SessionNotFound):
                saver.put(at, empty_checkpoint(), late, {})
            with pytest.raises(SessionNotFound):
                saver.put_writes(at, [("x", 1)], "task")
        assert saver.get_tuple(new) is None
        again = saver.put(new, empty_checkpoint(), began, {})
        saver.delete_thread("t")
        with pytest.raises(SessionNotFound):
            saver.put_writes(again, [("x", 1)], "task")
        saver.put(new, empty_checkpoint(), began, {})
        assert len(list(saver.list(new))) == 1


def test_threads_of_one_name_are_apart_in_stores_of_two_scopes() -> None:
    async def run() -> None:
        async with flue_py.open(":memory:") as store:
            listed = []
            for scope in ("t1", "t2"):
                saver = FlueSaver(store.in_scope(scope))
                state = await chat(saver, answers(1)).ainvoke({"messages": [("user", scope)]}, thread("x"))
                assert state["messages"][0].content == scope
                listed.append(len([found async for found in saver.alist(None)]))
            assert listed[0] == listed[1] > 0
            assert {info.scope for info in (await store.list_sessions()).sessions} == {"t1", "t2"}
            assert [found async for found in FlueSaver(store).alist(None)] == []

    asyncio.run(run())
