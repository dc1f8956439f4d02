"""The projection, compared with a second implementation of its rules, and what exclusions leave of a path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flue_py.core.context import ContextEntry, latest_compaction, project, project_compacted, summary_text
from flue_py.core.entries import Entry, NewEntry, excluded_parts, has_part, read_exclusion, without_parts
from flue_py.core.json import JsonObject, JsonValue, encode_json
from flue_py.core.messages import UserMessage
from tests.tables import inputs

AT_US = 1_700_000_000_123_999
AT_MS = 1_700_000_000_123


def entry(new: NewEntry, number: int = 0) -> Entry:
    """An entry on a single path: its number is its depth, and its id says so."""
    return Entry(
        f"e{number}", f"e{number - 1}" if number else None, "s1", new.kind, new.role, new.source, number, number + 1,
        0, AT_US + number * 1_000_000, new.payload,
    )  # fmt: skip


def message(text: str, role: str = "user") -> NewEntry:
    return NewEntry.message({"timestamp": 5, "role": role, "content": [{"type": "text", "text": text}], "z": 1, "a": 2})


def summary(text: str, first_kept: str) -> NewEntry:
    return NewEntry.compaction(text, first_kept_entry_id=first_kept, tokens_before=1)


def path_of(*news: NewEntry) -> list[Entry]:
    return [entry(new, number) for number, new in enumerate(news)]


def shown(path: list[Entry]) -> list[str]:
    return [item.entry_id for item in project(path)]


# -- the rules, read again ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One entry of a generated path. ``keeps`` is where a compaction's first kept entry is: a position, or nowhere."""

    kind: str
    text: str = ""
    keeps: int = 0


TEXTS = st.sampled_from(["", "so far", "[Context Summary]", "[Context Summary]\n\ndone", "[Branch Summary] x", "é😀"])
STEPS = st.one_of(
    st.builds(Step, st.sampled_from(["user", "assistant", "toolResult", "system", "branch_summary"]), TEXTS),
    st.builds(Step, st.sampled_from(["custom", "custom_message", "label", "model_change"]), TEXTS),
    st.builds(Step, st.just("compaction"), TEXTS, st.integers(-2, 14)),
)
PATHS = st.lists(STEPS, max_size=12)


def made(step: Step) -> NewEntry:
    text: JsonObject = {"type": "text", "text": step.text}
    if step.kind == "toolResult":
        return NewEntry.message(
            {"role": "toolResult", "toolCallId": "c", "toolName": "t", "content": [text], "isError": False}
        )
    if step.kind in ("user", "assistant", "system"):
        return NewEntry.message({"role": step.kind, "content": step.text if step.kind == "system" else [text]})
    if step.kind == "branch_summary":
        return NewEntry.branch_summary(step.text, from_id="e0")
    if step.kind == "compaction":
        return summary(step.text, f"e{step.keeps}")
    return NewEntry.custom(step.kind, {"content": step.text})


def expected(steps: list[Step]) -> list[tuple[int, str, str]]:
    """(position, role, text) of each item of the context, from the rules as the feature rows state them."""
    compactions = [at for at, step in enumerate(steps) if step.kind == "compaction"]
    visible: list[int] = list(range(len(steps)))
    if compactions:
        last = compactions[-1]
        first_kept = steps[last].keeps
        kept = list(range(first_kept, last)) if 0 <= first_kept < last else []
        visible = [last, *kept, *range(last + 1, len(steps))]
    items = []
    for at in visible:
        kind, text = steps[at].kind, steps[at].text
        if kind == "compaction" and at == compactions[-1]:
            prefix = "" if text.startswith("[Context Summary]") else "[Context Summary]\n\n"
            items.append((at, "user", prefix + text))
        elif kind == "branch_summary":
            items.append((at, "user", "[Branch Summary]\n\n" + text))
        elif kind == "custom_message":
            items.append((at, "user", text))
        elif kind in ("user", "assistant", "toolResult", "system"):
            items.append((at, kind, text))
    return items


def text_of(data: JsonObject) -> str:
    content: Any = data["content"]
    return content if isinstance(content, str) else str(content[0]["text"])


@given(PATHS)
def test_a_context_is_what_the_rules_say(steps: list[Step]) -> None:
    items = project(path_of(*map(made, steps)))
    assert [(int(item.entry_id[1:]), item.role, text_of(item.data)) for item in items] == expected(steps)
    assert [item.data["role"] for item in items] == [item.role for item in items]


@given(PATHS, st.data())
def test_the_kept_part_of_a_path_is_enough_to_project_it(steps: list[Step], data: st.DataObject) -> None:
    path = path_of(*map(made, steps))
    compaction = latest_compaction(path)
    if compaction is None:
        return
    first_kept = next((each.depth for each in path if each.id == compaction.fields["firstKeptEntryId"]), len(path))
    start = data.draw(st.integers(0, min(first_kept, compaction.depth)))
    assert project_compacted(compaction, path[start:]) == project(path)


@given(PATHS)
def test_the_latest_compaction_is_the_last_on_the_path(steps: list[Step]) -> None:
    found = latest_compaction(path_of(*map(made, steps)))
    positions = [at for at, step in enumerate(steps) if step.kind == "compaction"]
    assert (None if found is None else found.depth) == (positions[-1] if positions else None)


@given(PATHS)
def test_the_same_path_gives_the_same_bytes(steps: list[Step]) -> None:
    path = path_of(*map(made, steps))
    again = [replace(each) for each in path]
    first = [encode_json(item.data, "item")[0] for item in project(path)]
    assert [encode_json(item.data, "item")[0] for item in project(again)] == first


# -- each rule once more, by name -----------------------------------------------------------------------------------


def test_without_a_compaction_messages_and_summaries_come_in_path_order() -> None:
    path = path_of(message("a"), NewEntry.branch_summary("b", from_id=None), NewEntry.custom("label", {}), message("c"))
    assert shown(path) == ["e0", "e1", "e3"]


def test_an_empty_path_gives_an_empty_context() -> None:
    assert project([]) == []
    assert latest_compaction([]) is None


def test_the_summary_comes_first_then_what_is_kept_then_what_follows() -> None:
    path = path_of(message("a"), message("b"), message("c"), summary("s", "e1"), message("d"))
    assert shown(path) == ["e3", "e1", "e2", "e4"]


def test_an_older_compaction_in_the_kept_range_emits_nothing() -> None:
    path = path_of(message("a"), summary("one", "e0"), message("b"), summary("two", "e0"), message("c"))
    assert shown(path) == ["e3", "e0", "e2", "e4"]


@inputs("first_kept", ["elsewhere", "", "e3", "e4", "e9"])
def test_a_first_kept_entry_that_is_not_before_the_compaction_keeps_nothing(first_kept: str) -> None:
    path = path_of(message("a"), message("b"), message("c"), summary("s", first_kept), message("d"))
    assert shown(path) == ["e3", "e4"]


def test_what_is_kept_may_begin_at_an_entry_the_model_does_not_see() -> None:
    path = path_of(message("a"), NewEntry.custom("label", {}), message("b"), summary("s", "e1"))
    assert shown(path) == ["e3", "e2"]


def test_two_compactions_in_a_row_show_the_second() -> None:
    path = path_of(message("a"), summary("one", "e0"), summary("two", "e1"))
    assert shown(path) == ["e2"]


@inputs(
    ("text", "seen"),
    [
        ("so far", "[Context Summary]\n\nso far"),
        ("", "[Context Summary]\n\n"),
        ("[Context Summary]\n\nso far", "[Context Summary]\n\nso far"),
        ("[Context Summary] so far", "[Context Summary] so far"),
        (" [Context Summary]", "[Context Summary]\n\n [Context Summary]"),
    ],
)
def test_the_prefix_of_a_compaction_is_not_doubled(text: str, seen: str) -> None:
    assert summary_text("compaction", text) == seen
    assert ContextEntry(entry(summary(text, "e0"))).data == {
        "role": "user",
        "content": [{"type": "text", "text": seen}],
        "timestamp": AT_MS,
    }


def test_the_prefix_of_a_branch_summary_is_always_added() -> None:
    new = NewEntry.branch_summary("[Branch Summary]\n\nx", from_id=None)
    assert ContextEntry(entry(new)).data == {
        "role": "user",
        "content": [{"type": "text", "text": "[Branch Summary]\n\n[Branch Summary]\n\nx"}],
        "timestamp": AT_MS,
    }


def test_a_custom_message_gives_its_own_content() -> None:
    parts: JsonObject = {"content": [{"type": "image", "data": "x", "mimeType": "image/png"}], "customType": "c"}
    assert ContextEntry(entry(NewEntry.custom("custom_message", parts))).data == {
        "role": "user",
        "content": parts["content"],
        "timestamp": AT_MS,
    }
    assert text_of(ContextEntry(entry(NewEntry.custom("custom_message", {"content": "hi"}))).data) == "hi"


def test_a_message_is_given_unchanged_key_by_key() -> None:
    (item,) = project(path_of(message("a", "assistant")))
    assert json.dumps(item.data) == (
        '{"timestamp": 5, "role": "assistant", "content": [{"type": "text", "text": "a"}], "z": 1, "a": 2}'
    )


def test_an_item_is_decoded_afresh_so_that_nobody_changes_anothers() -> None:
    items = project(path_of(message("a"), summary("s", "e0")))
    for item in items:
        item.data["content"] = None
        assert text_of(item.data) in ("a", "[Context Summary]\n\ns")


def test_an_item_is_there_typed_too() -> None:
    items = project(path_of(message("a", "assistant"), summary("s", "e0")))
    assert [(item.kind, item.role, item.message.role) for item in items] == [
        ("compaction", "user", "user"),
        ("message", "assistant", "assistant"),
    ]
    assert isinstance(items[0].message, UserMessage)


CHILD = """
import json, sys
from flue_py.core.entries import Entry
from flue_py.core.context import project
path = [Entry(**row) for row in json.load(sys.stdin)]
print(json.dumps([item.data for item in project(path)]))
"""


def test_another_process_with_another_hash_seed_gives_the_same_bytes() -> None:
    path = path_of(message("é"), NewEntry.custom("custom_message", {"content": "x"}), summary("s", "e0"), message("b"))
    rows = json.dumps([{name: getattr(each, name) for name in Entry.__slots__} for each in path])
    outputs = {
        subprocess.run(
            [sys.executable, "-c", CHILD], input=rows, capture_output=True, check=True, text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert outputs == {json.dumps([item.data for item in project(path)]) + "\n"}


# -- What exclusions leave of a path ------------------------------------------------------------------------------


USER: JsonObject = {"role": "user", "content": "u"}


def exclusion(number: int, value: JsonValue) -> Entry:
    payload = encode_json(value, "payload")[0]
    return Entry(f"x{number}", None, "s", "exclusion", None, None, number, 1, 0, 0, payload)


def test_the_last_exclusion_of_an_entry_and_part_holds() -> None:
    path = [
        exclusion(0, {"entryId": "a"}),
        exclusion(1, {"entryId": "b", "part": 1}),
        exclusion(2, {"entryId": "b", "part": "i"}),
        exclusion(3, {"entryId": "c", "part": 0}),
        exclusion(4, {"entryId": "c", "excluded": False}),
        exclusion(5, {"entryId": "b", "part": 1, "excluded": False}),
        exclusion(6, {"entryId": "d", "excluded": False}),
    ]
    assert {entry_id: set(parts) for entry_id, parts in excluded_parts(path).items()} == {"a": {None}, "b": {"i"}}


@inputs("value", [None, [], "a", {}, {"entryId": 1}, {"entryId": "a", "part": True}, {"part": 1}])
def test_what_cannot_be_understood_excludes_nothing(value: JsonValue) -> None:
    assert read_exclusion(value) is None


def test_parts_are_named_by_position_or_id() -> None:
    parts: list[JsonValue] = [{"type": "text", "text": "t"}, {"type": "toolCall", "id": "i"}, "odd"]
    message: JsonObject = {"role": "assistant", "content": parts, "model": "m"}
    assert without_parts(message, frozenset({0, "i"})) == {"role": "assistant", "content": ["odd"], "model": "m"}
    assert without_parts(USER, frozenset({0})) == USER
    assert [has_part(message, part) for part in (0, 2, 3, "i", "j")] == [True, True, False, True, False]
