"""Legal holds: each way to delete or overwrite refuses what has one, changes nothing, and names it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import flue_py
from flue_py.errors import CorruptStore, InvalidArgument, OnHold, SessionNotFound
from tests.files import new_store_file

Message = dict[str, object]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def make(store: flue_py.sync.Store) -> tuple[flue_py.sync.Session, str]:
    """Make a session of a scope with a task and a fork, a memory and a file; return it and the id of its entry."""
    session = store.create_session(id="s", scope="acme")
    (entry_id,) = session.append_message(user("Jane has an illness")).entry_ids
    session.fork(id="fork")
    session.tasks.create(task_id="t")
    store.remember("fact", "x", scope="acme")
    store.add_file("f.txt", "x", scope="acme")
    return session, entry_id


@pytest.mark.parametrize("on", ["s", "task", "fork", "scope"])
def test_no_way_deletes_or_overwrites_what_has_a_hold(on: str) -> None:
    with flue_py.sync.open(":memory:") as store:
        session, entry_id = make(store)
        task = session.tasks.links()[0].child_id
        store.hold({"task": task}.get(on, on), by="legal", why="case 7") if on != "scope" else store.hold(scope="acme")
        (hold,) = store.holds()
        assert (hold.name, hold.scope) == ({"task": task, "scope": "scope:acme"}.get(on, on), "acme")

        def batch() -> object:
            with store.atomic() as atomic:
                return atomic.delete_session_tree(session)

        all_ways: dict[str, Callable[[], object]] = {
            "delete": lambda: store.delete_session_tree("s"),
            "plan": lambda: store.delete_session_tree("s", dry_run=True), "batch": batch,
            "scope": lambda: store.delete_scope("acme", dry_run=False),
            "erase": lambda: store.erase(["other", "s"], dry_run=False),
            "erase scope": lambda: store.erase_scope("acme", dry_run=False),
            "erase entry": lambda: store.erase([], entries=[("s", entry_id)], dry_run=False),
            "redact": lambda: session.redact(entry_id, "x"), "forget": lambda: store.forget("fact", scope="acme"),
            "file": lambda: store.remove_file("f.txt", scope="acme"),
        }  # fmt: skip
        allowed = {
            "s": {"forget", "file"}, "scope": set(), "task": {"forget", "file", "redact", "erase entry"},
            # The fork stays in a deletion, with what it sees.
            "fork": {"forget", "file", "delete", "plan", "batch"},
        }[on]  # fmt: skip
        store.create_session(id="other")
        before = store.info()
        wrong = []
        for name, way in all_ways.items():
            if name in allowed:
                continue
            try:
                way()
            except OnHold as error:
                if error.holds == (hold.name,) and "nothing was deleted" in str(error) and store.info() == before:
                    continue
            wrong.append(name)
        assert wrong == []
        assert session.append_message(user("work goes on"))
        done = store.erase(["s", "fork"], dry_run=False, despite_holds=[hold.name])
        assert done.is_complete
        assert store.holds() == (() if on != "scope" else (hold,))
        assert store.lift_hold(scope="acme") == (on == "scope")
        assert store.verify().problems == []


def test_a_hold_is_set_listed_and_lifted() -> None:
    with flue_py.sync.open(":memory:") as store:
        session, _ = make(store)
        first = store.hold(session, why="case 7")
        again = store.hold("s", by="legal", why="case 8")
        assert again == store.holds()[0]
        assert (first.at_us, first.why, again.why) == (again.at_us, "case 7", "case 8")
        assert (len(store.holds(scope="acme")), store.holds(scope="x"), store.files()) == (1, (), ())
        assert "session 's' is on hold since" in str(again)
        assert str(again).endswith("(by legal: case 8)")
        assert (store.lift_hold("s"), store.lift_hold("s"), store.holds()) == (True, False, ())
        assert store.delete_session_tree("s").session_ids
        for call in (store.hold, store.lift_hold, lambda: store.hold(scope="a\0b")):
            with pytest.raises(InvalidArgument):
                call()
        with pytest.raises(SessionNotFound):
            store.hold("nobody")


def test_a_hold_that_was_changed_behind_the_store_is_no_way_around_it(tmp_path: Path) -> None:
    path = new_store_file(tmp_path / "s.db")
    with flue_py.sync.open(path) as store:
        make(store)
        store.hold("s", why="case 7")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE documents SET body = replace(body, 'case 7', 'case 8')")
    with flue_py.sync.open(path) as store:
        with pytest.raises(CorruptStore):
            store.delete_session_tree("s")
        assert [problem.kind for problem in store.verify().problems]


def test_a_copy_takes_holds_along_and_deletes_nothing_that_has_one(tmp_path: Path) -> None:
    with flue_py.sync.open(":memory:") as source, flue_py.sync.open(":memory:") as target:
        make(source)
        source.hold("s")
        flue_py.sync.copy_store(source, target)
        assert target.holds() == source.holds()
        target.hold("fork")
        source.delete_session_tree("fork")
        report = flue_py.sync.copy_store(source, target)
        assert "session 'fork' is on hold" in report.refused[0].reason
        assert target.get_session("fork") is not None
        target.lift_hold("fork")
        assert flue_py.sync.copy_store(source, target).removed_ids == ("fork",)
