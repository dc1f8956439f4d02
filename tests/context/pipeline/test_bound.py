"""No request has signed reasoning behind another beginning than it was produced under, and none is lost otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from flue_py import sync
from flue_py.context import ContextRequest
from flue_py.core.json import JsonObject, JsonValue
from flue_py.errors import InvalidArgument
from flue_py.providers.request import STALE
from tests.effort import examples
from tests.tables import inputs

SIGNING = ("anthropic", "openai-responses", "gemini")
TOOLS: list[JsonObject] = [{"name": "read_file", "description": "Read.", "parameters": {"type": "object"}}]
REWRITING: dict[str, Any] = {
    "microcompact": {"keep": 1, "tools": ["read_file"]},
    "trim": {"max_tokens": 300},
    "epoch_tokens": 100,
}
RESUMING: dict[str, Any] = {"resume": True}
SETTINGS: tuple[dict[str, Any], ...] = ({}, RESUMING, REWRITING, {**REWRITING, **RESUMING})


def thought(target: str, signature: str) -> list[JsonObject]:
    """Return reasoning of an answer, as the target signs it."""
    if target == "openai-responses":
        item = {"type": "reasoning", "id": f"rs_{signature}", "summary": [], "encrypted_content": signature}
        return [{"type": "thinking", "thinking": "hm", "thinkingSignature": json.dumps(item)}]
    return [{"type": "thinking", "thinking": "hm", "thinkingSignature": signature}]


def answered(target: str, signature: str, call_id: str | None = None) -> JsonObject:
    provider = {"anthropic": "anthropic", "openai-responses": "openai", "gemini": "google"}[target]
    content: list[JsonValue] = [*thought(target, signature), {"type": "text", "text": f"I say {signature}."}]
    if call_id is not None:
        signed: JsonObject = {"thoughtSignature": f"call of {signature}"} if target == "gemini" else {}
        arguments: JsonObject = {"path": "a.py"}
        content.append({"type": "toolCall", "id": call_id, "name": "read_file", "arguments": arguments, **signed})
    return {"role": "assistant", "provider": provider, "content": content}


def signed_at(request: ContextRequest) -> Iterator[tuple[str, int]]:
    """Yield the signatures in a request, each with the place of its message."""
    for place, message in enumerate(request.messages):
        if "encrypted_content" in message:
            yield str(message["encrypted_content"]), place
        for part in message.get("content", message.get("parts")) or []:  # type: ignore[union-attr]
            found = part if isinstance(part, dict) else {}
            signature = found.get("signature", found.get("thoughtSignature"))
            if isinstance(signature, str) and not signature.startswith("skip_"):
                yield signature, place


class Talk:
    """A session whose every request is checked against what was sent when its answers were made."""

    def __init__(self, session: sync.Session, target: str) -> None:
        self.session = session
        self.target = target
        self.sent: dict[str, list[str]] = {}
        self.settings: dict[str, Any] = {}
        self.system: str | None = "Be brief."
        self.tools = TOOLS
        self.number = 0
        self.dropped = 0

    def ask(self) -> ContextRequest:
        request = self.session.request(
            self.target, settings=self.settings, system=self.system, tools=self.tools, model=None
        )
        assert request.broken == ()
        found = [*signed_at(request)]
        for signature, place in found:
            begun = self.sent[signature.removeprefix("call of ")]
            assert begun == [*self.beside(request), *map(json.dumps, request.messages[:place])]
        self.dropped = sum(STALE in repair.what for repair in request.repairs)
        return request

    def beside(self, request: ContextRequest) -> list[str]:
        return [json.dumps(request.system), json.dumps(request.tools)]

    def turn(self, *, calls: bool) -> None:
        self.number += 1
        self.session.append_message({"role": "user", "content": f"Question {self.number}. " + "word " * 20})
        if calls:
            self.answer(call_id := f"c{self.number}")
            result = f"Result {self.number}. " + "line " * 40
            self.session.append_message(
                {"role": "toolResult", "toolCallId": call_id, "toolName": "read_file", "content": result}
            )
        self.answer(None)

    def answer(self, call_id: str | None) -> None:
        request = self.ask()
        signature = f"s{len(self.sent)}"
        self.sent[signature] = [*self.beside(request), *map(json.dumps, request.messages)]
        self.session.append_message(answered(self.target, signature, call_id), produced_under=request.prefix_digest)

    def change(self, what: str, which: int) -> None:
        entries = self.session.build_context_entries()
        if what == "forget":  # answers come to follow each other
            entries = [entry for entry in entries if entry.role == "user"]
        entry = entries[which % len(entries)].entry if entries else None
        if what == "tools":
            self.tools = TOOLS[: which % 2]
        elif what == "system":
            self.system = f"Be brief. {which % 2}" if which % 3 else None
        elif what == "settings":
            self.settings = SETTINGS[which % len(SETTINGS)]
        elif what == "break off":
            # The session is interrupted at a tool: nothing answers the call.
            self.number += 1
            self.session.append_message({"role": "user", "content": f"Question {self.number}."})
            self.answer(f"c{self.number}")
        elif entry is not None and what in ("exclude", "forget") and entry.kind == "message":
            with suppress(InvalidArgument):  # a call whose result is still to come stays
                self.session.marks.exclude(entry.id)
        elif entry is not None and what == "compact":
            self.session.append_compaction("What was said.", first_kept_entry_id=entry.id, tokens_before=10)
        elif what == "undo":
            self.session.undo()


steps = st.one_of(
    st.tuples(st.just("turn"), st.integers(0, 1)),
    st.tuples(st.just("turn"), st.integers(0, 1)),
    st.tuples(st.just("forget"), st.integers(0, 7)),
    st.tuples(
        st.sampled_from(["tools", "system", "settings", "exclude", "compact", "undo", "break off"]), st.integers(0, 20)
    ),
)


@examples(40)
@given(st.sampled_from(SIGNING), st.sampled_from(SETTINGS), st.lists(steps, min_size=3, max_size=14))
@example("anthropic", RESUMING, [("turn", 0), ("turn", 0), ("forget", 1)])
@example("gemini", RESUMING, [("turn", 1), ("turn", 1), ("forget", 1)])
@example("openai-responses", RESUMING, [("turn", 1), ("turn", 0), ("forget", 1), ("break off", 0), ("turn", 1)])
def test_no_request_has_reasoning_behind_another_beginning(
    target: str, begun: dict[str, Any], done: list[tuple[str, int]]
) -> None:
    with sync.open(":memory:") as store:
        talk = Talk(store.create_session(), target)
        talk.settings = begun
        for what, which in done:
            if what == "turn":
                talk.turn(calls=bool(which))
            else:
                talk.change(what, which)
        if talk.sent:
            talk.session.append_message({"role": "user", "content": "And now?"})
            talk.ask()
        assert not store.verify().problems


@inputs("target", SIGNING)
def test_answers_that_come_to_follow_each_other_are_bound_each_to_its_own_beginning(target: str) -> None:
    with sync.open(":memory:") as store:
        talk = Talk(store.create_session(), target)
        talk.settings = RESUMING
        talk.turn(calls=False)
        talk.turn(calls=False)
        second = talk.session.build_context_entries()[2].entry_id
        talk.session.marks.exclude(second)
        request = talk.ask()
        assert {signature for signature, _ in signed_at(request)} == {"s0"}
        last = talk.session.build_context_entries()[-1].entry_id
        assert [repair.entry_id for repair in request.repairs if STALE in repair.what] == [last]
        text = json.dumps(request.messages)
        assert "I say s0." in text
        assert "I say s1." in text
        assert not store.verify().problems


@examples(15)
@given(st.sampled_from(SIGNING), st.lists(st.booleans(), min_size=1, max_size=8))
def test_without_a_change_all_of_it_is_sent(target: str, turns: list[bool]) -> None:
    with sync.open(":memory:") as store:
        talk = Talk(store.create_session(), target)
        for calls in turns:
            talk.turn(calls=calls)
            assert talk.dropped == 0
        request = talk.ask()
        assert {signature for signature, _ in signed_at(request)} >= talk.sent.keys()


@inputs("target", SIGNING)
@inputs("change", ["tools", "system"])
def test_what_is_left_out_is_told_with_its_entry_and_calls_and_texts_stay(target: str, change: str) -> None:
    with sync.open(":memory:") as store:
        talk = Talk(store.create_session(), target)
        talk.turn(calls=True)
        talk.change(change, 0)
        request = talk.ask()
        assert [*signed_at(request)] == []
        answers = [entry.entry_id for entry in talk.session.build_context_entries() if entry.role == "assistant"]
        told = [repair.entry_id for repair in request.repairs if STALE in repair.what]
        assert [*dict.fromkeys(told)] == answers
        text = json.dumps(request.messages)
        assert "I say s0." in text
        assert "read_file" in text
        assert "Result 1." in text
        kept = talk.session.request(
            target, system=talk.system, tools=talk.tools, settings={"keep_stale_reasoning": True}
        )
        assert {signature for signature, _ in signed_at(kept)} >= talk.sent.keys()


@inputs("place", ["first", "middle", "last"])
def test_messages_of_ours_go_with_the_items_that_they_were_made_of(place: str) -> None:
    content: list[JsonValue] = [*thought("anthropic", "s0")]
    alone: JsonObject = {"role": "assistant", "provider": "anthropic", "content": content}
    with sync.open(":memory:") as store:
        session = store.create_session()
        ids = [] if place == "first" else [session.append_message({"role": "user", "content": "Go."}).entry_id]
        stale = session.append_message(alone, produced_under="another").entry_id
        if place != "last":
            ids.append(session.append_message({"role": "user", "content": "And now?"}).entry_id)
        request = session.request()
        kept = session.request(settings={"keep_stale_reasoning": True})

        assert [item.entry_id for item in request.items] == ids
        assert [item.message for item in request.items] == request.messages
        assert [(repair.entry_id, repair.what) for repair in request.repairs] == [(stale, f"left out: {STALE}")]
        assert len(kept.items) == len(kept.messages) == len(ids) + 1
        for now, before in [(request, kept), (kept, request)]:
            found = now.break_since(before)
            if now is request or place != "last":
                assert found is not None
                assert (found.by, found.entry_id) == ("repair", stale)
            else:
                assert found is None
        assert not store.verify().problems
