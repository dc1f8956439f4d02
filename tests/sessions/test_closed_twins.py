"""The blocking twin when its store is closed, and clocks, id sources and URLs for `open` that are wrong."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from threading import Thread
from typing import NoReturn

import pytest

import flue_py.sync
from flue_py.errors import InvalidArgument, StoreClosed, StoreUnavailable, WrongEventLoop
from tests.postgres import NewDatabase
from tests.tables import inputs

TARGETS = [":memory:", "{}/s.db", "sqlite+aiosqlite:///{}/s.db"]
MESSAGE = {"role": "user", "content": "a"}
Draw = Callable[[], str]


@pytest.fixture(params=TARGETS, ids=["memory", "file", "engine"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path)


def methods(twin: object) -> Iterator[tuple[str, Callable[..., object]]]:
    """The public methods of a twin that can be called without arguments, or with one that is no matter."""
    for name in dir(type(twin)):
        # in_scope does nothing with the database.
        if name[0] == "_" or name == "in_scope" or isinstance(inspect.getattr_static(type(twin), name), property):
            continue
        yield name, getattr(twin, name)


def called(method: Callable[..., object]) -> object:
    """Call a method with a word for each argument it needs; enter what is to be entered."""
    needed = [each for each in inspect.signature(method).parameters.values() if each.default is each.empty]
    by_place = ["x" for each in needed if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    result = method(*by_place, **{each.name: "x" for each in needed if each.kind is each.KEYWORD_ONLY})
    return next(result) if inspect.isgenerator(result) else result


def test_every_call_on_a_closed_store_or_a_session_of_it_says_so(target: str) -> None:
    with flue_py.sync.open(target, prices=False) as store:
        session = store.create_session(key="k")
    seen = 0
    for twin in (store, session):
        for name, method in methods(twin):
            if (twin, name) == (store, "close"):
                method()
                continue
            with pytest.raises(StoreClosed, match="closed; open it again"):
                called(method)
            seen += 1
    assert seen > 50
    with pytest.raises(StoreClosed):
        flue_py.sync.transcript(session)


def test_a_blocking_call_from_the_thread_of_the_event_loop_is_refused(tmp_path: Path) -> None:
    with flue_py.sync.open(tmp_path / "s.db", prices=False, threads=True) as store:
        store.create_session(key="k")

        async def progress() -> None:
            store.list_sessions()

        with flue_py.sync.open(tmp_path / "t.db", prices=False):
            pass
        with pytest.raises(WrongEventLoop, match="would wait for itself"):
            store._way.call(progress)


@inputs("argument", ["ids", "session_ids"])
def test_ids_that_repeat_or_run_out_are_named_and_change_nothing(target: str, argument: str) -> None:
    made = count()
    drawn = iter(["only"])

    def fresh() -> str:
        return f"id-{next(made)}"

    def exhausted() -> str:
        return next(drawn)

    for draw, said in ((lambda: "same", "ids in a row are taken"), (exhausted, "run out")):
        sources: dict[str, Draw] = {"ids": fresh, "session_ids": fresh, argument: draw}
        with flue_py.sync.open(target, prices=False, **sources) as store:
            session = store.create_session()
            session.append_message(MESSAGE)
            again = store.create_session if argument == "session_ids" else partial(session.append_message, MESSAGE)
            with pytest.raises(InvalidArgument, match=said) as caught:
                again()
            assert "backup" not in str(caught.value)
            assert store.verify().problems == []
        Path(target.removeprefix("sqlite+aiosqlite:///")).unlink(missing_ok=True)


def test_ids_that_repeat_are_named_on_postgresql_without_a_pause(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flue_py.db.postgres.runner.random.random", lambda: pytest.fail("it draws a pause"))
    with flue_py.sync.open(new_database(), prices=False, ids=lambda: "same", session_ids=lambda: "one") as store:
        session = store.create_session()
        session.append_message(MESSAGE)
        with pytest.raises(InvalidArgument, match=r"^ids: .* ids in a row are taken"):
            session.append_message(MESSAGE)
        with pytest.raises(InvalidArgument, match=r"^session_ids: .* ids in a row are taken"):
            store.create_session()
        assert store.verify().problems == []


@inputs(
    ("argument", "error"),
    [
        ("clock", OSError(28, "full")), ("clock", sqlite3.OperationalError("mine")), ("ids", MemoryError()),
        ("ids", KeyError("k")), ("session_ids", sqlite3.OperationalError("mine")), ("session_ids", OSError(28, "full")),
    ],
)  # fmt: skip
def test_what_a_function_of_the_caller_raises_is_an_invalid_argument_everywhere(
    target: str, argument: str, error: Exception
) -> None:
    def fail() -> NoReturn:
        raise error

    sources: dict[str, Callable[[], NoReturn]] = {argument: fail}
    with flue_py.sync.open(target, prices=False) as store:
        session_id = store.create_session().id
    with flue_py.sync.open(target, prices=False, **sources) as store:
        is_new = target == ":memory:" and argument == "ids"
        session = store.create_session() if is_new else store.get_session(session_id)
        with pytest.raises(InvalidArgument, match=f"{argument}: it raised {type(error).__name__}") as caught:
            _ = store.create_session() if session is None or argument != "ids" else session.append_message(MESSAGE)
        assert caught.value.__cause__ is error
        assert store.verify().problems == []


def test_where_no_thread_can_be_started_the_store_is_unavailable(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Thread.start

    needed = {":memory:": 1}.get(target, 3 if "://" in target else 4)
    threads = None if "://" in target else True
    # A worker that has just ended its work may be taken for a busy one, and another be started.
    for allowed in (*range(needed), 2 * needed):
        begun: list[Thread] = []

        def start(thread: Thread, allowed: int = allowed, begun: list[Thread] = begun) -> None:
            if len(begun) == allowed:
                raise RuntimeError("can't start new thread")
            begun.append(thread)
            begin(thread)

        with monkeypatch.context() as patch:
            patch.setattr(Thread, "start", start)
            refused = pytest.raises(StoreUnavailable, match="can't start new thread; close other stores")
            with (
                refused if allowed < needed else nullcontext(),
                flue_py.sync.open(target, prices=False, threads=threads),
            ):
                pass
        for thread in begun:
            thread.join()


@inputs("query", ["uri=true", "mode=ro&uri=true", "cache=shared", "foo=bar"])
def test_a_url_of_sqlite_with_a_query_is_refused_by_the_name_in_it(tmp_path: Path, query: str) -> None:
    with (
        pytest.raises(InvalidArgument, match=r"'\w+' in its query"),
        flue_py.sync.open(f"sqlite+aiosqlite:///{tmp_path}/s.db?{query}", prices=False),
    ):
        pytest.fail("it was opened")
    assert list(tmp_path.iterdir()) == []


def test_a_timeout_in_the_query_of_a_url_is_the_drivers(tmp_path: Path) -> None:
    with flue_py.sync.open(f"sqlite+aiosqlite:///{tmp_path}/s.db?timeout=5", prices=False) as store:
        assert store.verify().problems == []
