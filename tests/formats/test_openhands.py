"""Conversations of the OpenHands SDK: its own files, whose contexts are the messages that it sent, and hostile ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

import flue_py
from flue_py.errors import UnreadableFile
from flue_py.formats.kit import Notes, ParseReport, Row, SessionPart, read_lines
from flue_py.formats.openhands import gather_openhands, looks_like_openhands, parse_openhands, read_openhands
from flue_py.formats.registry import recognize
from tests.formats.transcripts import all_seen, import_file
from tests.formats.trees import context_of, document
from tests.programs.made import unpack
from tests.tables import inputs
from tests.values import existing

CONVERSATIONS = ".openhands/conversations"
NAMES = {"talk": 1, "fork": 2, "part": 3, "long": 4, "empty": 5}


def named(name: str) -> str:
    return f"00000000-0000-0000-0000-00000000000{NAMES[name]}"


class Made:
    """The files of the program, and the messages that it sent."""

    def __init__(self, folder: Path) -> None:
        self.home = unpack("openhands-1.58.2", folder)
        told = json.loads((folder / "requests.json").read_text())
        self.sent: list[list[dict[str, Any]]] = told["sent"]
        self.ends: dict[str, int] = told["ends"]

    def file(self, name: str) -> Path:
        return self.home / CONVERSATIONS / named(name).replace("-", "") / "base_state.json"

    @property
    def helper(self) -> Path:
        (file,) = self.file("talk").parent.glob("subagents/*/base_state.json")
        return file

    def last_sent(self, name: str) -> list[tuple[str, str]]:
        return spoken(self.sent[self.ends[named(name).replace("-", "")]])


def spoken(messages: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return roles and texts; the program joins what people say in a row."""
    said: list[tuple[str, str]] = []
    for message in messages:
        role = "tool" if message["role"] == "toolResult" else message["role"]
        parts = message.get("content") or []
        texts = [parts] if isinstance(parts, str) else [part.get("text", "") for part in parts if "text" in part]
        text = "\n".join(texts).replace("[Context Summary]\n\n", "")
        if said and role == said[-1][0] == "user":
            said[-1] = (role, f"{said[-1][1]}\n{text}")
        else:
            said.append((role, text))
    return said


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("openhands"))


async def test_the_files_of_the_program_give_its_contexts_its_bill_and_its_tree(made: Made) -> None:
    async with flue_py.open(":memory:") as store:
        files = [made.file("fork"), made.helper, *map(made.file, ("talk", "part", "long", "empty"))]
        reports = [await import_file(store, file) for file in files]
        seen = await all_seen(store)
        talk = await store.find_session(named("talk"))
        links, bill = await talk.tasks.links(), (await store.usage()).total
        assert (await store.verify()).problems == []
    assert [(report.skipped, report.repaired, dict(report.unknown_kinds)) for report in reports] == [((), (), {})] * 6
    # Two calls in one response are one message, twice in a fork that copies them, and one event has no row of its own.
    assert [report.merged for report in reports] == [1, 0, 1, 0, 2, 0]
    helper = json.loads(made.helper.read_text())["id"]
    assert {name: seen[named(name)].spent_tokens for name in NAMES} == {
        "talk": 7 * 1020 + 1030 + 3 * 1205,
        "fork": 1020,
        "part": 0,
        "long": 11 * 1020 + 2 * 1030 + 2 * 1205 + 5 * 409,
        "empty": 1020,
    }
    assert seen[helper].spent_tokens == 307
    # The sum of all `accumulated_cost` but that of the task, which is the sub-agent's.
    assert bill.picodollars == 56_585_000_000
    assert (bill.calls, bill.unpriced_calls) == (34, 0)
    assert [(link.child_id, link.task_id) for link in links] == [(helper, helper)]
    for name in ("talk", "fork", "long"):
        assert spoken(seen[named(name)].context)[:-1] == made.last_sent(name)
    assert seen[named("empty")].context == []
    assert len(seen[named("talk")].entries) == 26


async def test_a_conversation_that_grows_is_the_same_in_the_end(made: Made, tmp_path: Path) -> None:
    for name in ("talk", "long"):
        whole = await grown(made.file(name), tmp_path / name)
        async with flue_py.open(":memory:") as store:
            await import_file(store, made.file(name))
            assert whole == (await all_seen(store))[named(name)]


async def grown(file: Path, folder: Path) -> Any:
    """Return what is seen of a conversation that was imported after each event."""
    place = folder / "base_state.json"
    async with flue_py.open(":memory:") as store:
        for _ in states(file, folder):
            await import_file(store, place)
        assert (await import_file(store, place)).added == 0
        assert (await store.verify()).problems == []
        (session,) = (await all_seen(store)).values()
    return session


def states(file: Path, folder: Path) -> Iterator[None]:
    """Copy a conversation, and yield at each event, which is then its leaf; and at the end."""
    state = json.loads(file.read_text())
    (folder / "events").mkdir(parents=True)
    if (file.parent / "subagents").is_dir():
        copytree(file.parent / "subagents", folder / "subagents")
    for event in sorted(file.parent.glob("events/event-*.json")):
        (folder / "events" / event.name).write_text(event.read_text())
        leaf = json.loads(event.read_text())["id"]
        (folder / "base_state.json").write_text(json.dumps({**state, "leaf_event_id": leaf}))
        yield
    (folder / "base_state.json").write_text(file.read_text())
    yield


async def test_the_leaf_goes_where_the_program_goes_without_an_event(tmp_path: Path, store: flue_py.Store) -> None:
    place = folder_of(tmp_path, TALK)
    contexts = []
    for state in ({}, {"leaf_event_id": "u1"}, {"head_is_empty": True}, {"leaf_event_id": "a2"}):
        place.write_text(json.dumps({**STATE, **state}))
        await import_file(store, place)
        (session,) = (await all_seen(store)).values()
        contexts.append([text for _, text in spoken(session.context)])
    assert contexts == [["Be brief.", "One.", "First.", "Two.", "Second."], ["Be brief.", "One."], [], contexts[0]]


STATE: dict[str, Any] = {"id": "c0ffee00-0000-4000-8000-000000000001", "agent": {"kind": "Agent"}, "stats": {}}


def event(name: str, kind: str, /, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": name, "timestamp": "2026-11-28T20:00:00", "parent_id": parent, "kind": kind, **fields}


def said(name: str, text: str, parent: str | None = None, role: str = "user", **fields: Any) -> dict[str, Any]:
    message = {"role": role, "content": [{"type": "text", "text": text}]}
    return event(name, "MessageEvent", parent, llm_message=message, **fields)


def action(name: str, parent: str | None, call: str, response: str, **fields: Any) -> dict[str, Any]:
    called = {"id": call, "name": "terminal", "arguments": '{"command": "ls"}'}
    thought = fields.pop("thought", [])
    return event(name, "ActionEvent", parent, tool_call=called, llm_response_id=response, thought=thought, **fields)


def observed(name: str, parent: str | None, call: str, **observation: Any) -> dict[str, Any]:
    return event(name, "ObservationEvent", parent, tool_call_id=call, tool_name="terminal", observation=observation)


def forgets(name: str, parent: str, ids: list[str], **fields: Any) -> dict[str, Any]:
    return event(name, "Condensation", parent, forgotten_event_ids=ids, llm_response_id="r9", **fields)


TALK = [
    event("s0", "SystemPromptEvent", system_prompt={"type": "text", "text": "Be brief."}, tools=[]),
    said("u1", "One.", "s0"),
    said("a1", "First.", "u1", "assistant", llm_response_id="r1"),
    said("u2", "Two.", "a1"),
    said("a2", "Second.", "u2", "assistant", llm_response_id="r2"),
]


def folder_of(folder: Path, events: Sequence[Any], **state: Any) -> Path:
    """Write a conversation, and return the file of its state."""
    (folder / "events").mkdir(parents=True)
    for number, fields in enumerate(events):
        data = fields if isinstance(fields, bytes) else document(fields)
        (folder / "events" / f"event-{number:05d}-0000000{number}.json").write_bytes(data)
    (folder / "base_state.json").write_bytes(document({**STATE, **state}))
    return folder / "base_state.json"


def parsed(*events: Any, **state: Any) -> tuple[SessionPart, ParseReport]:
    about = {"type": "session", "data": {**STATE, **state}, "file": "x/base_state.json", "billed": ["r7"]}
    rows = [about, *({"type": "event", "name": str(at), "data": fields} for at, fields in enumerate(events))]
    notes = Notes("row")
    session = existing(
        parse_openhands([Row(number, b"", fields) for number, fields in enumerate(rows, 1)], notes, True)
    )
    return session, notes.report()


def texts(*events: Any, **state: Any) -> list[str]:
    session, _ = parsed(*events, **state)
    return [text for _, text in spoken(context_of(session))]


@inputs(
    ("gone", "offset", "context"),
    [
        (["u1", "a1"], 1, ["Be brief.", "SUM\nTwo.", "Second."]),
        (["a1", "u2", "a2"], 2, ["Be brief.", "One.\nSUM"]),
        (["s0", "u1"], 0, ["SUM", "First.", "Two.", "Second."]),
        (["s0", "u1", "a1", "u2", "a2"], 0, ["SUM"]),
        (["u1", "u2"], 1, ["Be brief.", "SUM", "First.", "Second."]),
        (["a1"], None, ["Be brief.", "One.\nTwo.", "Second."]),
        (["nobody"], None, ["Be brief.", "One.", "First.", "Two.", "Second."]),
    ],
)
def test_a_condensation_leaves_the_view_of_the_program(gone: list[str], offset: int | None, context: list[str]) -> None:
    summary = {} if offset is None else {"summary": "SUM", "summary_offset": offset}
    assert texts(*TALK, forgets("c1", "a2", gone, **summary)) == context


def test_a_later_condensation_takes_the_summary_of_an_earlier_one_with_it() -> None:
    first = forgets("c1", "a2", ["u1", "a1"], summary="OLD", summary_offset=1)
    then = [said("u3", "Three.", "c1"), said("a3", "Third.", "u3", "assistant")]
    last = forgets("c2", "a3", ["c1-summary", "u2", "a2"], summary="NEW", summary_offset=1)
    kept = forgets("c2", "a3", ["u2", "a2"], summary="NEW", summary_offset=3)
    assert texts(*TALK, first, *then, last) == ["Be brief.", "NEW\nThree.", "Third."]
    assert texts(*TALK, first, *then) == ["Be brief.", "OLD\nTwo.", "Second.", "Three.", "Third."]
    # There is no stretch between two messages in which a summary could stand.
    assert [note.line for note in parsed(*TALK, first, *then, kept)[1].repaired] == [10]
    assert texts(*TALK, first, *then, kept) == ["Be brief.", "OLD\nThree.", "Third."]


def test_each_call_is_paid_once_where_its_response_is() -> None:
    def usage(response: str, **tokens: int) -> dict[str, Any]:
        return {"model": "openai/m", "prompt_tokens": 100, "completion_tokens": 7, "response_id": response, **tokens}

    mine = {
        "token_usages": [usage("r1", cache_read_tokens=60), usage("r5"), usage("r6", reasoning_tokens=3)],
        "costs": [{"model": "openai/m", "cost": cost, "timestamp": 1_795_898_876.5} for cost in (0.1, 0.2, 0.3)],
    }
    unpriced = {"token_usages": [usage("r9"), usage("r7"), usage("r1")], "costs": [{"model": "openai/m", "cost": 9.0}]}
    stats = {"usage_to_metrics": {"agent": mine, "condenser": unpriced}}
    calls = [action("x1", "a2", "c1", "r5"), action("x2", "x1", "c2", "r5"), forgets("k", "x2", ["u1"])]
    session, report = parsed(*TALK, *calls, stats=stats)
    paid = {entry.id: call for entry in session.entries for call in entry.calls}
    assert {name: (call.usage[:5], call.cost, call.purpose) for name, call in paid.items()} == {
        "a1": ((40, 7, 60, 0, 107), 100_000_000_000, "turn"),
        "x2": ((100, 7, 0, 0, 107), 200_000_000_000, "turn"),
        "k": ((100, 7, 0, 0, 107), None, "compaction"),
    }
    # r7 is in the file of a sub-agent; r6 has no event.
    assert [(call.usage.tokens, call.reasoning, call.at_us) for call in session.calls] == [(107, 3, 1795898876500000)]
    assert {(call.provider, call.model) for call in (*paid.values(), *session.calls)} == {("openai", "m")}
    assert (report.merged, report.repaired) == (1, ())
    other, _ = parsed(said("a1", "First.", None, "assistant", llm_response_id="r1"), stats=stats)
    assert [call.call_id for entry in other.entries for call in entry.calls] == [paid["a1"].call_id]
    # Programs that OpenHands drives report what they did not cache, in one session for all calls.
    acp = {"usage_to_metrics": {"agent": {"token_usages": [usage("z", cache_read_tokens=60), usage("z")]}}}
    driven, _ = parsed(*TALK, agent={"kind": "ACPAgent"}, stats=acp)
    assert [(call.usage[:5]) for call in driven.calls] == [(100, 7, 60, 0, 167), (100, 7, 0, 0, 107)]
    assert len({call.call_id for call in driven.calls}) == 2


def test_a_response_is_one_message_unless_the_program_went_back_into_it() -> None:
    calls = [
        action("x1", "a2", "c1", "r5", thought=[{"type": "text", "text": "Both."}]),
        action("x2", "x1", "c2", "r5"),
    ]
    session, _ = parsed(*TALK, *calls)
    assert (session.entries[-1].id, session.leaf, dict(session.earlier)) == ("x2", "x2", {"x2": ("x1",)})
    assert [part["type"] for part in context_of(session)[-1]["content"]] == ["text", "toolCall", "toolCall"]
    aside = event("e", "ConversationStateUpdateEvent", "x1", key="stats", value={})
    assert len(parsed(*TALK, *calls, aside, leaf_event_id="x2")[0].entries) == 7
    back, _ = parsed(*TALK, *calls, leaf_event_id="x1")
    assert [entry.id for entry in back.entries[-2:]] == ["x1", "x2"]
    assert back.leaf == "x1"


@inputs(
    ("result", "text", "is_error"),
    [
        ({"content": [{"type": "text", "text": "out"}]}, "out", False),
        (
            {"content": [{"type": "text", "text": "out"}], "is_error": True},
            "[An error occurred during execution.]\n\nout",
            True,
        ),
        (
            {
                "kind": "TerminalObservation",
                "content": [{"type": "text", "text": "out"}],
                "metadata": {"exit_code": 0, "working_dir": "/w", "prefix": "<", "suffix": ">"},
            },
            "<out>\n[Current working directory: /w]\n[Command finished with exit code 0]",
            False,
        ),
    ],
)
def test_a_result_has_the_words_that_the_model_was_shown(result: dict[str, Any], text: str, is_error: bool) -> None:
    session, _ = parsed(*TALK, action("x", "a2", "c1", "r5"), observed("o", "x", "c1", **result))
    message = context_of(session)[-1]
    assert (spoken([message])[0][1], message["isError"], message["toolCallId"]) == (text, is_error, "c1")


def test_events_without_a_parent_follow_each_other_and_faults_are_noted() -> None:
    old = [{name: value for name, value in fields.items() if name != "parent_id"} for fields in TALK]
    assert texts(*old) == ["Be brief.", "One.", "First.", "Two.", "Second."]
    assert texts(event("c", "Condensation", summary="SUM", summary_offset=0), said("u1", "One.", "c")) == ["One."]
    root = said("u3", "Anew.", "__root__")
    assert texts(*TALK, root) == ["Anew."]
    session, report = parsed(*TALK, said("u2", "Again.", "a1"), said("v", "Lost.", "w"), event("n", "NewEvent"), 7)
    assert [note.line for note in report.repaired] == [7, 8]
    assert dict(report.unknown_kinds) == {"NewEvent": 1, "": 1}
    assert len(session.entries) == 9


async def test_torn_and_deep_files_cost_themselves_alone(tmp_path: Path, store: flue_py.Store) -> None:
    deep = b'{"id":"d","kind":"X","v":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    evil = b'{"id":"e"},"type":"session","data":{}'
    place = folder_of(tmp_path / "c", [*TALK, b"", b'{"id":"t', deep, evil, said("u3", "End.", "a2")])
    report = await import_file(store, place)
    (session,) = (await all_seen(store)).values()
    assert [text for _, text in spoken(session.context)][-1] == "End."
    assert [note.line for note in report.skipped] == [7, 8, 9]


@inputs(
    "data", [b"", b"null", b"[]", document({"id": "x"}), document({"id": 7, "agent": {}}), b'{"id": "x", "agent": {']
)
def test_what_is_no_state_is_refused_in_one_line(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "base_state.json").write_bytes(data)
    with pytest.raises(UnreadableFile, match=r"nothing was imported$"):
        read_lines(read_openhands("base_state.json"), [*gather_openhands(tmp_path / "base_state.json")])


def test_a_state_is_recognized_and_nothing_else_of_a_conversation(made: Made) -> None:
    for file in made.home.rglob("*.json"):
        form = recognize(file.read_bytes()[:65536], str(file))
        assert (form is not None and form.name == "openhands") == (file.name == "base_state.json")
    assert not looks_like_openhands(document({"id": "x", "agent": {}}))
