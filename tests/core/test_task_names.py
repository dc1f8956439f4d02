"""Metadata with the names of task sessions: what links say is shown once, and what was written is never lost."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.json import JsonObject, decode_object, encode_json
from flue_py.core.sessions import OF_TASKS, TaskNames

ids = st.sampled_from(["one", "two", "three"])
names = st.builds(
    TaskNames,
    st.lists(st.tuples(st.sampled_from(["t", "u"]), ids), max_size=3, unique_by=lambda pair: pair[1]).map(tuple),
    st.none() | st.tuples(ids, st.sampled_from(["t", "u"])),
    st.none() | st.integers(1, 2),
)
items = st.builds(
    lambda session, task, key: {"session": session, "taskId": task, "storageKey": key}, ids, st.just("t"), ids
) | st.sampled_from(["odd", 1, None, {}])
values = {
    "parentSession": ids | st.none(),
    "taskId": st.sampled_from(["t", "mine"]),
    "depth": st.sampled_from([1, 2, "deep", True, 1.0]),
    "taskSessions": st.lists(items, max_size=3, unique_by=json.dumps) | st.just("none"),
    "a": st.integers(0, 2),
}
metadata = st.fixed_dictionaries({}, optional=values)


def text_of(value: JsonObject) -> str:
    return encode_json(value, "metadata")[0]


@given(names, metadata)
def test_metadata_that_are_given_back_are_stored_as_they_were(links: TaskNames, stored: JsonObject) -> None:
    shown = links.added_to(stored)
    assert decode_object(links.taken_from(text_of(shown), text_of(stored))) == stored
    assert {name: shown[name] for name in stored if name != "taskSessions"} == {
        name: value for name, value in stored.items() if name != "taskSessions"
    }


@given(names, metadata, metadata)
def test_what_is_written_is_shown_whatever_links_say(links: TaskNames, written: Any, stored: JsonObject) -> None:
    shown: Any = links.added_to(decode_object(links.taken_from(text_of(written), text_of(stored))))
    assert all(shown[name] == value for name, value in written.items() if name not in OF_TASKS)
    for name in OF_TASKS & written.keys():
        if name == "taskSessions" and isinstance(written[name], list):
            assert all(item in shown[name] for item in written[name])
        else:
            assert (shown[name], type(shown[name])) == (written[name], type(written[name]))


@given(names, st.lists(items, max_size=3, unique_by=json.dumps))
def test_links_are_named_behind_what_is_stored_unless_that_names_them(links: TaskNames, stored: list[Any]) -> None:
    shown: Any = links.added_to({"taskSessions": stored})["taskSessions"]
    there = {item["storageKey"] for item in stored if isinstance(item, dict) and item}
    added = [
        {"session": child, "taskId": task, "storageKey": child} for task, child in links.tasks if child not in there
    ]
    assert shown == [*stored, *added]
