"""Graphs with models that answer from a list, and savers of the framework beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.graph import START, MessagesState, StateGraph

import flue_py

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

USAGE: Any = {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15}


def answers(count: int, text: str = "Yes.") -> list[BaseMessage]:
    """Return answers of a model with ids of their own, each of which was paid for."""
    about = {"model_name": "small-1", "model_provider": "example", "finish_reason": "stop"}
    return [
        AIMessage(f"{text} {number}", id=f"answer-{number}", usage_metadata=USAGE, response_metadata=about)
        for number in range(count)
    ]


def chat(saver: BaseCheckpointSaver[str], replies: Sequence[BaseMessage]) -> Any:
    """Return a graph with one node that lets a model answer."""
    model = FakeMessagesListChatModel(responses=list(replies))

    def answer(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


def thread(id: str, **more: str) -> Any:
    """Return the configuration that names a thread."""
    return {"configurable": {"thread_id": id, **more}}


def sound(path: Path, sessions: int) -> None:
    """Check that nothing is wrong with a store, and how many sessions it has."""
    with flue_py.sync.open(path) as store:
        assert store.verify().problems == []
        assert len(store.list_sessions(limit=500).sessions) == sessions
