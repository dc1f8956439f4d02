"""Which session a name means: the same in the command line and in a conversation."""

from __future__ import annotations

from pathlib import Path

import pytest

import flue_py
from flue_py.errors import AmbiguousId, SessionNotFound
from flue_py.runtime.conversation import Conversation
from tests.edges.cli_runs import Flue

pytestmark = pytest.mark.anyio

SESSIONS = {
    "ab12cd34": "triage",
    "ab99": "ab12cd34-key",
    "7f01": "review-1",
    "7f02": "review-2",
    "7f0203": "7f0",
    "plain": "plain-1",
    "empty": "",
}
"""Ids, and the keys of these sessions."""

FOUND = {
    "ab12cd34": "ab12cd34",
    "AB12": "ab12cd34",
    "triage": "ab12cd34",
    "tri": "ab12cd34",
    "ab12cd34-": "ab99",
    "7f0": "7f0203",
    "7f02": "7f02",
    "review-2": "7f02",
    "pl": "plain",
    "": "empty",
}
"""Names, and the sessions that they mean: ids before keys, whole names before beginnings."""


async def test_a_name_means_one_session_everywhere(store: flue_py.Store) -> None:
    for session_id, key in SESSIONS.items():
        await store.create_session(id=session_id, key=key)
    talk = Conversation(store, await store.create_session(id="here"))
    assert {name: (await store.find_session(name)).id for name in FOUND} == FOUND
    assert {name: (await talk.find(name)).id for name in FOUND} == FOUND
    for name, error in {"review": AmbiguousId, "7": AmbiguousId, "PLAIN": SessionNotFound}.items():
        with pytest.raises(error):
            await store.find_session(name)
        with pytest.raises(error):
            await talk.find(name)


async def test_a_conversation_looks_in_its_scope_and_a_command_in_all(store: flue_py.Store) -> None:
    await store.create_session(id="aa01", key="mine", scope="one")
    await store.create_session(id="aa02", key="theirs", scope="two")
    talk = Conversation(store, await store.create_session(id="here", scope="one"))
    assert (await talk.find("aa")).id == (await talk.find("mi")).id == "aa01"
    assert (await store.find_session("the")).id == "aa02"
    for name in ("aa02", "theirs"):
        with pytest.raises(SessionNotFound):
            await talk.find(name)
    with pytest.raises(AmbiguousId):
        await store.find_session("aa0")


def test_commands_find_ids_in_any_case(flue: Flue) -> None:
    session = flue.import_every_type()
    fork = flue.json("fork", session, "--key", "triage")["id"]
    assert {flue.json("show", name)["id"] for name in (fork, fork[:9].upper(), "triage", "tri")} == {fork}


@pytest.fixture
def flue(tmp_path: Path) -> Flue:
    return Flue(tmp_path)
