"""A witness: an older copy of a store that was put back is refused by name, and what goes on from it is not."""

from __future__ import annotations

import asyncio
import math
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import flue_py
import flue_py.sync
from flue_py.core.chain import Head, read_head
from flue_py.errors import CorruptStore, FlueError, HistoryPutBack, InvalidArgument, StoreUnavailable, StoreWarning
from flue_py.sessions.witnesses import Every, FileWitness, HttpWitness, StoreWitness
from tests.tables import inputs


class Memory:
    """A witness in memory, which may be out of order."""

    def __init__(self) -> None:
        self.heads: dict[str, Head] = {}
        self.fails = False

    def last(self, session_id: str, /) -> Head | None:
        if self.fails:
            raise OSError("out of order")
        return self.heads.get(session_id)

    def take(self, head: Head, /) -> None:
        if self.fails:
            raise OSError("out of order")
        self.heads[head.session_id] = head


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def opened(path: Path, witness: Any, **options: Any) -> Any:
    return flue_py.sync.open(path, prices=False, durability="normal", witness=witness, **options)


def say(store: flue_py.sync.Store, text: str, key: str = "a") -> str:
    session = store.open_session(key, mode="get_or_create")
    session.append_message({"role": "user", "content": text})
    return str(session.id)


def made_and_put_back(path: Path, witness: Any) -> str:
    """Make a session with two messages, and put back the store as it was after the first."""
    with opened(path, witness) as store:
        session_id = say(store, "one")
    shutil.copy(path, path.with_suffix(".old"))
    with opened(path, witness) as store:
        say(store, "two")
    shutil.copy(path.with_suffix(".old"), path)
    return session_id


USES: dict[str, Callable[[flue_py.sync.Store, str], object]] = {
    "opened by key": lambda store, _: store.open_session("a"),
    "opened by id": lambda store, session_id: store.get_session(session_id),
    "written": lambda store, _: say(store, "three"),
    "deleted": lambda store, session_id: store.delete_session_tree(session_id),
    "forked": lambda store, session_id: flue_py.sync.Session.fork(store.get_session(session_id)),
}


@inputs("use", USES)
def test_an_older_copy_of_the_store_is_refused_at_the_first_use(tmp_path: Path, use: str) -> None:
    path = tmp_path / "s.db"
    session_id = made_and_put_back(path, witness := Memory())
    before = path.read_bytes()
    with opened(path, witness) as store:
        with pytest.raises(HistoryPutBack, match=f"'{session_id}': its witness saw revision 2, and"):
            USES[use](store, session_id)
        assert say(store, "of another session", key="b")
    assert len(path.read_bytes()) >= len(before)
    with opened(path, witness, accept=[session_id]) as store:
        assert len(store.open_session("a").build_context()) == 1
        say(store, "another two")
    with opened(path, witness) as store:
        assert len(store.open_session("a").build_context()) == 2


def test_another_history_that_is_longer_than_the_one_seen_is_refused(path: Path) -> None:
    session_id = made_and_put_back(path, witness := Memory())
    with flue_py.sync.open(path, prices=False) as store:
        for text in ("another two", "three", "four"):
            say(store, text)
    with opened(path, witness) as store, pytest.raises(HistoryPutBack, match="of another history"):
        store.get_session(session_id)


def test_a_session_that_is_not_there_any_more_is_missed_unless_it_was_deleted(path: Path) -> None:
    with opened(path, witness := Memory()) as store:
        say(store, "kept")
    shutil.copy(path, path.with_suffix(".old"))
    with opened(path, witness) as store:
        lost, deleted = say(store, "lost", "lost"), say(store, "deleted", "deleted")
        store.delete_session_tree(deleted)
        assert store.get_session(deleted) is None
    shutil.copy(path.with_suffix(".old"), path)
    with opened(path, witness) as store:
        with pytest.raises(HistoryPutBack, match=f"{lost}.*it is not there"):
            store.get_session(lost)
        assert store.get_session(deleted) is None
    for accept in ([lost], []):
        with opened(path, witness, accept=accept) as store:
            assert store.get_session(lost) is None, "it is accepted once"


def test_a_session_that_was_hidden_or_renamed_is_missed(path: Path) -> None:
    with opened(path, witness := Memory()) as store:
        session_id = say(store, "one")
    for change in ("trashed_at = 7", "trashed_at = NULL, id = 'another'"):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"UPDATE sessions SET {change}")
        with opened(path, witness) as store, pytest.raises((CorruptStore, HistoryPutBack), match=session_id):
            store.get_session(session_id)


def test_a_store_that_is_ahead_of_its_witness_is_accepted(path: Path) -> None:
    with opened(path, witness := Memory()) as store:
        session_id = say(store, "one")
        witness.fails = True
        with pytest.warns(StoreWarning, match=f"{session_id}.*does not know it yet"):
            say(store, "two")
        witness.fails = False
        say(store, "three", "another")
        assert witness.heads[session_id].revision == 2
    with flue_py.sync.open(path, prices=False) as store:
        store.open_session("a").set_title("written without the witness")
    with opened(path, witness) as store:
        store.open_session("a")
    assert witness.heads[session_id].revision == 3


class Counting(Memory):
    """A witness that is asked for several heads at once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def last_of(self, session_ids: Sequence[str], /) -> dict[str, Head]:
        self.asked.append(len(session_ids))
        return {name: self.heads[name] for name in session_ids if name in self.heads}


@inputs("witness", [Memory, Counting])
def test_a_list_is_compared_with_the_witness_in_one_call_if_it_can(tmp_path: Path, witness: type[Memory]) -> None:
    path = tmp_path / f"{witness.__name__}.db"
    session_id = made_and_put_back(path, seen := witness())
    with flue_py.sync.open(path, prices=False) as store:
        others = {say(store, "beside", key=f"b{number}") for number in range(5)}
    if isinstance(seen, Counting):
        seen.asked.clear()
    with opened(path, seen) as store:
        page = store.list_sessions(limit=5)
        assert {info.id for info in page.sessions} == others
        with pytest.raises(HistoryPutBack, match=session_id):
            store.list_sessions()
        if isinstance(seen, Counting):
            assert seen.asked == [5, 6]
        # Only who reads a session hands in its head.
        assert seen.heads.keys() == {session_id}
    with opened(path, seen, accept=[session_id]) as store:
        assert len(store.list_sessions().sessions) == 6
        store.open_session("a")
    with opened(path, seen) as store:
        assert len(store.list_sessions().sessions) == 6


class Forgetful(Memory):
    """A witness that does not take the heads of some sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[str] = set()

    def take(self, head: Head, /) -> None:
        if head.session_id in self.refused:
            raise OSError("no room")
        super().take(head)


async def say_to_all(store: flue_py.Store, sessions: Sequence[flue_py.Session]) -> None:
    async with store.atomic() as batch:
        for session in sessions:
            batch.append_message(session, {"role": "user", "content": "x"})


async def test_what_a_witness_does_not_take_keeps_no_other_from_it(path: Path) -> None:
    witness = Forgetful()
    async with flue_py.open(path, witness=witness, prices=False) as store:
        sessions = [await store.create_session() for _ in range(4)]
        witness.refused = {sessions[0].id, sessions[2].id}
        with pytest.warns(StoreWarning) as warned:
            await say_to_all(store, sessions)
        assert all(f"session '{name}' was written" in str(warned[0].message) for name in witness.refused)
        assert [witness.heads[session.id].revision for session in sessions] == [0, 1, 0, 1]
        witness.refused = set()
        await sessions[1].append_message({"role": "user", "content": "y"})
        assert [witness.heads[session.id].revision for session in sessions] == [1, 2, 1, 1]


async def test_a_change_of_the_key_hands_in_the_new_heads(path: Path) -> None:
    witness = Memory()
    async with flue_py.open(path, witness=witness, prices=False) as store:
        sessions = [await store.create_session() for _ in range(3)]
        for session in sessions:
            await session.append_message({"role": "user", "content": "x"})
    before = dict(witness.heads)
    witness.heads.pop(sessions[2].id)
    async with flue_py.open(path, witness=witness, prices=False) as store:
        await store.rekey(b"k" * 32)
    assert witness.heads.keys() == before.keys()
    assert not {head.value for head in before.values()} & {head.value for head in witness.heads.values()}
    async with flue_py.open(path, key=b"k" * 32, witness=witness, prices=False) as store:
        for session in sessions:
            await store.find_session(session.id)


def test_a_change_of_the_key_gives_no_new_heads_to_what_was_put_back(path: Path) -> None:
    session_id = made_and_put_back(path, witness := Memory())
    with opened(path, witness) as store:
        with pytest.raises(HistoryPutBack, match=session_id):
            store.rekey(b"k" * 32)
        assert store.info().key is None
    with flue_py.sync.open(path, prices=False) as store:
        assert store.verify().problems == []


def test_without_an_answer_nothing_is_read_or_written(path: Path) -> None:
    witness = Memory()
    with opened(path, witness) as store:
        say(store, "one")
    witness.fails = True
    with opened(path, witness) as store:
        for use in (lambda: say(store, "two"), lambda: store.open_session("a")):
            with pytest.raises(StoreUnavailable, match=r"cannot be asked.*out of order.*nothing was done"):
                use()
    with flue_py.sync.open(path, prices=False) as store:
        assert len(store.open_session("a").build_context()) == 1


def test_a_report_is_whole_and_the_witness_is_told_nothing(path: Path) -> None:
    session_id = made_and_put_back(path, witness := Memory())
    with flue_py.sync.open(path, prices=False) as store:
        damaged, _ = (say(store, "unknown to the witness", key) for key in "bc")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE sessions SET title = 'changed' WHERE key = 'b'")
    with opened(path, witness) as store:
        found = {(problem.kind, problem.where) for problem in store.verify().problems}
        assert found >= {("damaged session", f"session {damaged}"), ("put back", f"session {session_id}")}
    with opened(path, witness, accept=[session_id]) as store:
        assert "put back" not in {problem.kind for problem in store.verify().problems}
        assert [head.revision for head in witness.heads.values()] == [2]
        assert store.open_session("a").id == session_id
        witness.fails = True
        first, *_, last = store.verify().problems
        assert (first.kind, last.kind, "out of order" in last.detail) == ("damaged session", "witness not asked", True)


async def test_on_an_event_loop_and_in_a_batch(path: Path) -> None:
    witness = Memory()
    async with flue_py.open(path, prices=False, witness=witness) as store, store.atomic() as batch:
        first, second = batch.create_session(key="a"), batch.create_session(key="b")
        batch.append_message(first, {"role": "user", "content": "hello"})
        batch.append_message(second, {"role": "user", "content": "hello"})
    assert [head.revision for head in witness.heads.values()] == [1, 1]


# -- those that come with it


def test_a_file_is_private_and_outlives_a_crash_at_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "heads"
    first, second = Head("a", 1, b"1" * 24, "leaf", b"d" * 16), Head("a", 2, b"2" * 24)
    FileWitness(path).take(first)
    whole = path.read_bytes()
    FileWitness(path).take(second)
    after = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    for length in range(len(whole), len(after)):
        path.write_bytes(after[:length])
        witness = FileWitness(path)
        assert witness.last("a") in (first, second)
        witness.take(Head("b", 5, b"3" * 24))
        assert FileWitness(path).last("a") == witness.last("a")
        assert FileWitness(path).last("b") == Head("b", 5, b"3" * 24)


def test_a_file_is_shared_and_stays_small(tmp_path: Path) -> None:
    one, other = FileWitness(tmp_path / "heads"), FileWitness(tmp_path / "heads")
    for revision in range(0, 2_200, 2):
        one.take(Head("a", revision, b"1"))
        other.take(Head("b", revision + 1, b"2"))
    assert (one.last("b"), other.last("a")) == (Head("b", 2_199, b"2"), Head("a", 2_198, b"1"))
    assert len((tmp_path / "heads").read_bytes().splitlines()) < 1_100
    assert [(file.name, file.stat().st_mode & 0o777) for file in tmp_path.iterdir()] == [("heads", 0o600)]


def test_another_store_is_a_witness(path: Path) -> None:
    with flue_py.sync.open(":memory:", prices=False) as other:
        session_id = made_and_put_back(path, StoreWitness(other))
        with opened(path, StoreWitness(other)) as store, pytest.raises(HistoryPutBack):
            store.get_session(session_id)


def test_a_witness_knows_sessions_by_whatever_id_they_have(path: Path) -> None:
    session_id = "a/../line\n" + 900 * "x"
    with flue_py.sync.open(":memory:", prices=False) as other:
        witness = StoreWitness(other)
        with flue_py.sync.open(path, prices=False, witness=witness, session_ids=lambda: session_id) as store:
            assert store.create_session().id == session_id
            assert store.get_session("no \ud800 id") is None
        assert witness.last(session_id) is not None


def test_one_that_is_told_now_and_then_knows_at_the_end(path: Path) -> None:
    witness = Memory()
    with opened(path, Every(witness, 3_600.0)) as store:
        session_id = say(store, "one")
        say(store, "two")
        assert witness.heads == {}
    assert witness.heads[session_id].revision == 2


@inputs(
    "make",
    [
        lambda path: opened(path, "s.heads"),
        lambda path: opened(path, FileWitness),
        lambda path: opened(path, SimpleNamespace(last=print, take=asyncio.sleep)),
        lambda _: StoreWitness(flue_py.sync.open(":memory:")),
        lambda _: StoreWitness(SimpleNamespace(read_file=asyncio.sleep, add_file=print)),
        lambda _: Every(3, 1.0),
        *(partial(lambda value, _: Every(Memory(), value), each) for each in (-1.0, math.nan, math.inf, "1", None)),
    ],
)
def test_what_is_no_witness_is_refused_before_anything_is_written(tmp_path: Path, make: Any) -> None:
    with pytest.raises(InvalidArgument), make(tmp_path / "s.db"):
        pass


@contextmanager
def endpoint(answer: Callable[[str, str, bytes], tuple[int, bytes]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, data = answer(self.command, f"{self.path} {self.headers.get('Authorization')}", body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = _answer  # noqa: N815 - the names that the server calls

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/heads"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_endpoint_is_a_witness(path: Path) -> None:
    lines: dict[str, bytes] = {}

    def answer(method: str, place: str, body: bytes) -> tuple[int, bytes]:
        assert place.startswith("/heads/")
        assert place.endswith(" Bearer secret")
        if method == "PUT":
            lines[place] = body
        return (200, lines[place]) if place in lines else (404, b"")

    with endpoint(answer) as url:
        witness = HttpWitness(url, token="secret")
        session_id = made_and_put_back(path, witness)
        with opened(path, witness) as store, pytest.raises(HistoryPutBack):
            store.get_session(session_id)


@inputs("answer", [(302, b""), (500, b""), (200, b"x" * 70_000), (200, b"no head")])
def test_an_endpoint_that_does_not_answer_so_is_refused(answer: tuple[int, bytes]) -> None:
    with endpoint(lambda *_: answer) as url, pytest.raises(FlueError):
        HttpWitness(url).last("a")


@inputs(
    "url", ["http://example.com/x", "ftp://localhost/x", "localhost", "https://user:word@host/", "https://host/?a=b"]
)
def test_only_https_or_this_machine_is_asked(url: str) -> None:
    with pytest.raises(InvalidArgument, match="https"):
        HttpWitness(url)


@inputs("line", ["", "{}", "[]", '["a", "1", "", null, ""]', '["a", 1, "zz", null, ""]', '[1, 1, "", null, ""]'])
def test_a_line_that_is_no_head_is_refused(line: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a head"):
        read_head(line)
