"""The blocking twin has everything the asynchronous surface has, and does the same."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import flue_py
from flue_py import sync
from flue_py.core.json import decode_object
from flue_py.sessions import store as opening
from tests.sessions.talk import assistant, user
from tests.tables import inputs
from tests.values import existing


@pytest.fixture
def store(target: str) -> Iterator[sync.Store]:
    with flue_py.sync.open(target, durability="normal") as opened:
        yield opened
        assert opened.verify().problems == []


def public(kind: type) -> dict[str, object]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


@inputs(
    ("original", "twin"), [(flue_py.Session, sync.Session), (flue_py.Store, sync.Store), (flue_py.Atomic, sync.Atomic)]
)
def test_every_public_method_and_property_has_a_twin(original: type, twin: type) -> None:
    originals, twins = public(original), public(twin)
    assert twins.keys() == originals.keys()
    for name, member in originals.items():
        assert isinstance(twins[name], property) == isinstance(member, property), name
        assert inspect.getdoc(getattr(twin, name)), name


def test_twins_keep_signature_and_docstring(store: sync.Store) -> None:
    session = store.create_session()
    for twin, original in ((session, flue_py.Session), (store, flue_py.Store)):
        for name, member in public(original).items():
            if isinstance(member, property):
                assert getattr(type(twin), name).__doc__ == member.__doc__
                continue
            theirs = list(inspect.signature(getattr(original, name)).parameters.values())[1:]
            bound = getattr(twin, name)
            assert list(inspect.signature(bound).parameters.values()) == theirs, name
            if name not in ("watch", "events"):
                assert bound.__doc__ == getattr(original, name).__doc__
                assert bound.__name__ == name
    assert inspect.signature(sync.open) == inspect.signature(opening.open)
    assert sync.open.__doc__ == opening.open.__doc__


def test_a_session_lives_without_an_event_loop(store: sync.Store) -> None:
    session = store.open_session("k", mode="get_or_create", scope="s")
    assert isinstance(session, sync.Session)
    appended = session.append_messages([user("U1"), assistant("A1", 5), user("U2")])
    before = appended.entry_ids[0]
    assert session.leaf_id == appended.entry_ids[-1]
    assert session.build_context() == [user("U1"), assistant("A1", 5), user("U2")]
    assert session.money.aggregate_usage_since(before).usage.total_tokens == 5
    assert session.rewind(turns=1) is not None
    assert len(session.get_active_path()) == 2
    assert session.undo() is not None
    assert (session.key, session.info.scope, session.info.kind, session.title) == ("k", "s", "root", None)
    assert (session.metadata, session.info.id, session.revision) == ({}, session.id, session.refresh().revision)
    assert repr(session).startswith("<Session ")


def test_sessions_that_come_back_are_blocking_too(store: sync.Store) -> None:
    session = store.create_session(id="alpha")
    session.append_message(user("a"))
    fork = session.fork()
    child = fork.tasks.create(task_id="t")
    found = [store.find_session("al"), store.get_session(fork.id), store.open_session("k", mode="create")]
    assert all(isinstance(each, sync.Session) for each in (fork, child, *found))
    assert store.get_session("missing") is None
    store.link_task(session, child, task_id="t")
    assert set(store.delete_session_tree(session).session_ids) == {session.id, child.id}


@inputs("place", [":memory:", "s.db"])
def test_a_store_on_sqlite_starts_no_thread(tmp_path: Path, place: str) -> None:
    before = threading.enumerate()
    with sync.open(place if place == ":memory:" else tmp_path / place) as store:
        session = store.create_session()
        session.append_message(user("a"))
        with store.atomic() as batch:
            batch.append_message(session, user("b"))
        assert len(session.build_context()) == 2
        assert threading.enumerate() == before
    with sync.open(tmp_path / "t.db", threads=True):
        assert len(threading.enumerate()) > len(before)
    assert threading.enumerate() == before


def test_a_blocking_store_is_used_inside_a_running_event_loop(tmp_path: Path) -> None:
    async def in_a_notebook() -> int:
        with sync.open(tmp_path / "s.db") as store:
            session = store.create_session()
            session.append_message(user("a"))
            changes = session.watch(after=0)
            assert next(changes).revision == 1
            changes.close()
            return len(session.build_context())

    assert asyncio.run(in_a_notebook()) == 1


def test_changes_are_still_told_when_the_event_loop_in_which_they_were_asked_for_has_ended(tmp_path: Path) -> None:
    with sync.open(tmp_path / "s.db") as store:
        session = store.create_session()
        changes = session.watch(after=0)

        async def in_a_notebook() -> int:
            session.append_message(user("a"))
            return next(changes).revision

        assert asyncio.run(in_a_notebook()) == 1
        session.append_message(user("b"))
        assert next(changes).revision == 2
        changes.close()


def test_a_function_that_is_called_between_transactions_may_call_the_store(tmp_path: Path) -> None:
    with sync.open(tmp_path / "s.db") as store:
        session = store.create_session()
        appended = session.append_messages([user("a"), assistant("b", 5), user("c")])

        def summary(_: object) -> str:
            return f"{len(session.build_context())} messages"

        session.navigate(appended.entry_ids[0], summary=summary)
        (left,) = session.get_active_path()
        assert left.fields["summary"] == "3 messages"


def test_what_is_awaited_by_a_blocking_call_is_named(tmp_path: Path) -> None:
    async def summary(_: object) -> str:
        await asyncio.sleep(0)
        return "never"

    with sync.open(tmp_path / "s.db") as store:
        session = store.create_session()
        appended = session.append_messages([user("a"), assistant("b", 5)])
        with pytest.raises(flue_py.InvalidArgument, match="give it plain functions to call"):
            session.navigate(appended.entry_ids[0], summary=summary)
        assert session.leaf_id == appended.entry_ids[1]


def test_errors_are_the_same(store: sync.Store) -> None:
    with pytest.raises(flue_py.SessionNotFound):
        store.open_session("missing")
    session, other = store.create_session(id="one"), store.find_session("one")
    session.append_message(user("a"))
    with pytest.raises(flue_py.LeafConflict):
        other.append_message(user("b"))


def test_watching_blocks_until_something_changes(store: sync.Store) -> None:
    session = store.create_session()
    session.append_message(user("a"))
    changes = session.watch(after=0)
    assert next(changes).revision == 1
    writer = threading.Thread(target=session.append_message, args=(user("b"),))
    writer.start()
    assert next(changes).revision == 2
    writer.join()
    changes.close()
    resumed = session.watch(after=1)
    assert next(resumed).revision == 2
    resumed.close()


def test_a_watcher_that_outlives_its_store_ends_quietly(target: str) -> None:
    with sync.open(target) as store:
        session = store.create_session()
        session.append_message(user("a"))
        changes = session.watch(after=0)
        assert next(changes).revision == 1
    changes.close()
    assert list(changes) == []


def test_watching_ends_when_the_store_is_closed_while_a_change_is_looked_at(target: str) -> None:
    with sync.open(target) as store:
        session = store.create_session()
        session.append_message(user("a"))
        changes = session.watch(after=0)
        assert next(changes).revision == 1
    assert list(changes) == []
    with pytest.raises(flue_py.StoreClosed):
        next(session.watch(after=0))


def test_threads_may_share_a_session(store: sync.Store) -> None:
    session = store.create_session()
    threads = [threading.Thread(target=session.append_message, args=(user(str(n)),)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(str(message["content"]) for message in session.build_context()) == [str(n) for n in range(10)]


def test_a_closed_store_stays_closed(tmp_path: Path) -> None:
    with sync.open(tmp_path / "s.db") as store:
        session = store.create_session()
        store.close()
        with pytest.raises(flue_py.StoreClosed):
            session.append_message(user("a"))
    with sync.open(tmp_path / "s.db") as store:
        assert len(store.list_sessions().sessions) == 1


FUNCTIONS = ("import_file", "export_session", "transcript", "write_transcript", "write_bundle", "read_bundle")


@inputs("name", FUNCTIONS)
def test_functions_of_stores_and_sessions_keep_signature_and_docstring(name: str) -> None:
    twin, original = getattr(sync, name), getattr(flue_py, name)
    assert inspect.signature(twin) == inspect.signature(original)
    assert (twin.__doc__, twin.__name__) == (original.__doc__, name)
    assert not inspect.iscoroutinefunction(twin)


def test_a_session_goes_out_and_comes_in_without_an_event_loop(store: sync.Store, tmp_path: Path) -> None:
    session = store.create_session(id="s")
    session.append_messages([user("U1"), assistant("A1", 5)])
    exported = sync.export_session(session, "pi")
    file = tmp_path / "s.jsonl"
    file.write_text(exported.text, encoding="utf-8")
    seen: list[tuple[int, int]] = []
    with sync.open(":memory:") as other:
        report = sync.import_file(other, file, "pi", progress=lambda done, size: seen.append((done, size)))
        (imported,) = report.sessions
        there = existing(other.get_session(imported.session_id))
        assert [message["role"] for message in there.build_context()] == ["user", "assistant"]
        assert sync.import_file(other, file).sessions[0].added == 0
    assert seen[-1] == (file.stat().st_size, file.stat().st_size)
    header = decode_object(exported.text.splitlines()[0])
    assert header["id"] == "s"


def test_transcripts_are_written_without_an_event_loop(store: sync.Store, tmp_path: Path) -> None:
    session = store.create_session()
    session.append_messages([user("U1"), assistant("A1", 5)])
    path = tmp_path / "t.md"
    assert sync.write_transcript(session, path).outcome == "new"
    assert path.read_text() == sync.transcript(session)
    session.append_message(user("U2"))
    assert sync.write_transcript(session, path, append=True).outcome == "continued"
    with pytest.raises(flue_py.InvalidArgument):
        sync.write_transcript(session, path)


def test_bundles_are_written_and_read_without_an_event_loop(store: sync.Store, tmp_path: Path) -> None:
    session = store.create_session(id="s")
    session.append_message(user("U1"))
    path = tmp_path / "s.bundle"
    assert sync.write_bundle(store, path, [session]).path == path
    with sync.open(":memory:") as other:
        assert sync.read_bundle(other, path).trees_added == 1
        assert existing(other.get_session("s")).build_context() == [user("U1")]
        assert not sync.read_bundle(other, path).changed


def test_what_is_not_blocking_is_refused_by_name() -> None:
    with pytest.raises(flue_py.InvalidArgument, match=r"import_file: .store. is not of flue_py\.sync"):
        sync.import_file("store", "s.jsonl")  # type: ignore[arg-type]


def test_a_store_is_opened_without_what_only_imports_and_exports_need(tmp_path: Path) -> None:
    code = (
        "import sys, flue_py\n"
        f"with flue_py.sync.open({str(tmp_path / 's.db')!r}): pass\n"
        "print([name for name in sys.modules if name.startswith(('flue_py.formats', 'flue_py.render.'))])\n"
        "print(callable(flue_py.sync.import_file), 'read_bundle' in dir(flue_py.sync))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["[]", "True True"]
    with pytest.raises(AttributeError, match="nothing"):
        _ = sync.nothing  # type: ignore[attr-defined]


def test_a_store_outlives_the_event_loop_in_which_it_was_opened(tmp_path: Path) -> None:
    ending = contextlib.ExitStack()

    async def main() -> flue_py.sync.Store:
        return ending.enter_context(flue_py.sync.open(tmp_path / "sessions.db"))

    with ending:
        store = asyncio.run(main())
        session = store.create_session()
        session.append_message({"role": "user", "content": "Hello"})
        assert len(session.build_context()) == 1


@inputs("threads", [False, True])
def test_what_was_entered_is_not_entered_again(tmp_path: Path, threads: bool) -> None:
    opening = sync.open(tmp_path / "a.db", threads=threads)
    for _ in range(2):
        with (
            pytest.raises(flue_py.InvalidArgument, match=r"flue_py.sync.open\(...\) was entered before"),
            opening,
            opening,
        ):
            pass
    with sync.open(tmp_path / "a.db", threads=threads) as store:
        batch = store.atomic()
        with batch:
            pass
        with pytest.raises(flue_py.InvalidArgument, match=r"^atomic\(\) was entered before"), batch:
            pass
        assert store.list_sessions().sessions == ()
