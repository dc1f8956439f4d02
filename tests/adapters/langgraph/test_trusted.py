"""What is read from a database that somebody else can write to."""

from __future__ import annotations

import pickle
import subprocess
from base64 import b64encode
from collections import namedtuple
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("langgraph", "langgraph.graph")

import ormsgpack
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Send
from pydantic import BaseModel, SecretStr
from typing_extensions import TypedDict

import flue_py
from flue_py.adapters.langgraph import FlueSaver
from flue_py.core.entries import NewEntry
from flue_py.errors import CorruptStore
from tests.adapters.langgraph.graphs import thread
from tests.values import existing


class Model(BaseModel):
    """A model of a program's own."""

    text: str


@dataclass
class Data:
    """A dataclass of a program's own."""

    text: str
    inner: Any = None


class Colour(Enum):
    """An enum of a program's own."""

    RED = "red"


Named = namedtuple("Named", ["a", "b"])


def call(code: int, *told: object) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(told)))


def named_by_places(command: str) -> bytes:
    told = ormsgpack.packb({0: "os", 1: "system", 2: command}, option=ormsgpack.OPT_NON_STR_KEYS)
    return ormsgpack.packb(ormsgpack.Ext(0, told))


def evil(path: Path, form: str, data: bytes) -> None:
    """Write a thread whose newest checkpoint has a value that nothing of ours has written."""
    with FlueSaver(path) as saver:
        saver.put(thread("t"), empty_checkpoint() | {"id": "1"}, {}, {})  # type: ignore[typeddict-item]
    with flue_py.sync.open(path) as store:
        session = store.open_session("t")
        (entry,) = session.get_tree()
        fields = entry.fields | {"id": "2", "values": {"x": {"data": [form, b64encode(data).decode()]}}}
        made = NewEntry.custom("langgraph.checkpoint", fields, id="2", parent_id=entry.id)
        session.import_entries([made], leaf="2")


def calls(marker: Path) -> list[tuple[str, bytes]]:
    touch = ["touch", str(marker)]
    inner = ormsgpack.Ext(0, ormsgpack.packb(("os", "system", f"touch {marker}")))
    return [
        ("msgpack", call(0, "os", "system", f"touch {marker}")),
        ("msgpack", call(0, "subprocess", "Popen", touch)),
        ("msgpack", call(1, "subprocess", "run", [touch])),
        ("msgpack", call(2, "subprocess", "Popen", {"args": touch})),
        ("msgpack", call(4, "subprocess", "Popen", {"args": touch})),
        ("msgpack", call(5, "subprocess", "Popen", {"args": touch}, "x")),
        ("msgpack", ormsgpack.packb({"deep": [{"er": inner}]})),
        ("msgpack", call(0, "builtins", "set", inner)),
        ("msgpack", ormsgpack.packb(ormsgpack.Ext(7, ormsgpack.packb(inner)))),
        # What is around something that cannot be read is called nevertheless.
        ("msgpack", call(2, "subprocess", "Popen", {"args": touch, "bufsize": ormsgpack.Ext(0, b"\xc1")})),
        ("msgpack", ormsgpack.packb(ormsgpack.Ext(6, ormsgpack.packb(["<i4", inner])))),
        # The serializer takes a mapping for a list where its keys are the numbers of places.
        ("msgpack", named_by_places(f"touch {marker}")),
        ("pickle", pickle.dumps(subprocess.Popen)),
        ("json", b"{}"),
    ]


@pytest.mark.parametrize("number", range(14))
def test_nothing_is_called_that_makes_no_value(tmp_path: Path, number: int) -> None:
    form, data = calls(tmp_path / "marker")[number]
    evil(tmp_path / "a.db", form, data)
    with FlueSaver(tmp_path / "a.db") as saver:
        for read in (lambda: saver.get_tuple(thread("t")), lambda: list(saver.list(None))):
            with pytest.raises(CorruptStore, match="of a checkpoint"):
                read()
    assert not (tmp_path / "marker").exists()


def test_whoever_passes_a_serializer_is_not_looked_after(tmp_path: Path) -> None:
    evil(tmp_path / "a.db", "pickle", pickle.dumps({"a": 1}))
    with FlueSaver(tmp_path / "a.db", serde=JsonPlusSerializer(pickle_fallback=True)) as saver:
        found = existing(saver.get_tuple(thread("t")))
        assert found.checkpoint["channel_values"] == {"x": {"a": 1}}


def test_values_of_a_programs_own_classes_come_back(tmp_path: Path) -> None:
    values: Any = {
        "model": Model(text="x"), "data": Data("x", [Model(text="y"), {Colour.RED}, Send("node", Data("z"))]),
        "enum": Colour.RED, "named": Named(1, 2), "secret": SecretStr("s"), "messages": [HumanMessage("a", id="a")],
        "other": [HumanMessage("b", id="b")], "path": Path("/tmp"),
    }  # fmt: skip
    with FlueSaver(tmp_path / "a.db") as saver:
        checkpoint: Any = empty_checkpoint() | {"channel_values": values}
        saved = saver.put(thread("t"), checkpoint, {}, {})
        saver.put_writes(saved, list(values.items()), "task")
    with FlueSaver(tmp_path / "a.db") as saver:
        found = existing(saver.get_tuple(saved))
        assert found.checkpoint["channel_values"] == values
        assert {channel: value for _, channel, value in found.pending_writes or []} == values


class State(TypedDict):
    """A state of one value."""

    x: Any


@pytest.mark.parametrize("ours", [True, False])
def test_what_cannot_be_serialised_is_an_error_and_the_thread_stays(tmp_path: Path, ours: bool) -> None:
    saver: Any = FlueSaver(tmp_path / "a.db") if ours else InMemorySaver()
    builder = StateGraph(State)
    builder.add_node("node", lambda state: {"x": (lambda: 1) if state["x"] == "function" else "done"})
    builder.add_edge(START, "node")
    graph: Any = builder.compile(checkpointer=saver)
    graph.invoke({"x": "first"}, thread("t"))
    with pytest.raises(TypeError, match="function"):
        graph.invoke({"x": "function"}, thread("t"))
    assert graph.invoke({"x": "again"}, thread("t")) == {"x": "done"}
    if ours:
        saver.close()
        with flue_py.sync.open(tmp_path / "a.db") as store:
            assert store.verify().problems == []
