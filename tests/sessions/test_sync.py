"""The blocking twin has everything the asynchronous surface has, and does the same."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from threading import Event

import pytest

import flue_py
from flue_py import JsonObject, sync
from flue_py.agents import conversation as commands
from flue_py.agents.conversation import Conversation
from flue_py.agents.guard import CompactionGuard
from flue_py.compaction import CompactionSettings, SummaryFailed, SummaryReply, SummaryRequest, prepare_compaction
from flue_py.compaction import summarize as summarize_async
from flue_py.compaction.material import AboutToCompact
from flue_py.core.json import JsonValue, decode_object
from flue_py.errors import InvalidArgument
from flue_py.sessions import store as opening
from flue_py.transfer import copy_store
from tests.compaction import strategies
from tests.postgres import NewDatabase
from tests.sessions.talk import assistant, texts, user
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
    # Others, of tests before, may end meanwhile.
    before = {*threading.enumerate()}
    with sync.open(place if place == ":memory:" else tmp_path / place) as store:
        session = store.create_session()
        session.append_message(user("a"))
        with store.atomic() as batch:
            batch.append_message(session, user("b"))
        assert len(session.build_context()) == 2
        assert {*threading.enumerate()} <= before
    with sync.open(tmp_path / "t.db", threads=True):
        assert not {*threading.enumerate()} <= before
    assert {*threading.enumerate()} <= before


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


@inputs("closes", [True, False])
def test_watching_ends_when_the_store_is_closed_while_a_change_is_looked_at(target: str, closes: bool) -> None:
    with sync.open(target) as store:
        session = store.create_session()
        session.append_message(user("a"))
        changes = session.watch(after=0)
        assert next(changes).revision == 1
    if closes:
        changes.close()
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


# -- The blocking twins of conversations, summaries and copies, and that nothing public is without one ----------------


PUBLIC = (
    "flue_py", "flue_py.transfer", "flue_py.prices", "flue_py.providers", "flue_py.errors", "flue_py.core.context",
    "flue_py.compaction", "flue_py.formats.registry", "flue_py.agents.conversation", "flue_py.agents.conversation",
    "flue_py.agents.guard", "flue_py.agents.harness", "flue_py.sessions.housekeeping",
)  # fmt: skip
"""The modules that pages name."""

WITHOUT = {
    "Harness": "what an asynchronous harness calls", "HarnessSession": "what an asynchronous harness calls",
    "RunningCalls": "within the guard", "Memory": "within the guard", "Sending": "within the guard",
    "answer_of": "within the guard", "redo_last": "for commands", "undo_last": "for commands",
    "delete_all": "for commands", "find_completed": "for commands", "find_older": "for commands",
    "find_prunable": "for commands", "find_due": "for commands",
    "without_held": "for commands", "write_memories": "for commands", "write_title": "for commands",
}  # fmt: skip


def waits(found: object) -> bool:
    """Return whether something is awaited, or has a method that is."""
    if inspect.isclass(found):
        return any(waits(member) for name, member in vars(found).items() if not name.startswith("_"))
    bare = inspect.unwrap(found) if callable(found) else found
    return inspect.iscoroutinefunction(bare) or inspect.isasyncgenfunction(bare)


def names_that_wait() -> dict[str, object]:
    found: dict[str, object] = {}
    for module in map(import_module, PUBLIC):
        for name in getattr(module, "__all__", None) or vars(module):
            value = getattr(module, name)
            home = getattr(value, "__module__", "")
            mine = home.startswith("flue_py.") if hasattr(module, "__all__") else home == module.__name__
            if mine and not name.startswith("_") and (waits(value) or (inspect.isclass(value) and inherits(value))):
                found[name] = value
    return found


def inherits(found: type) -> bool:
    return any(waits(base) for base in found.__mro__[1:])


def test_all_that_waits_has_a_twin_that_blocks_or_a_reason_not_to() -> None:
    waiting = names_that_wait()
    assert {"open", "Store", "Session", "Conversation", "run_command", "summarize", "copy_store"} <= waiting.keys()
    missing = [name for name in waiting if name not in WITHOUT and not hasattr(sync, name)]
    assert missing == []
    assert [name for name in WITHOUT if name not in waiting or hasattr(sync, name)] == []
    for name in waiting.keys() - WITHOUT.keys():
        twin = getattr(sync, name)
        made = vars(twin).values() if inspect.isclass(twin) else [twin]
        assert not any(map(inspect.iscoroutinefunction, made)), name


def test_a_twin_has_the_names_and_the_docstring_of_the_original() -> None:
    twins: dict[str, tuple[object, object]] = {
        "copy_store": (sync.copy_store, copy_store),
        "summarize": (sync.summarize, summarize_async),
        "run_command": (sync.run_command, commands.run_command),
    }
    for twin, original in ((sync.Conversation, Conversation), (sync.CompactionGuard, CompactionGuard)):
        for name, value in vars(original).items():
            # A generator that errors are thrown into is for frameworks, which are asynchronous.
            if name[0] != "_" and inspect.isfunction(value) and name != "requests":
                twins[f"{original.__name__}.{name}"] = (getattr(twin, name), value)
    assert len(twins) >= 30
    assert [name for name, (twin, original) in twins.items() if described(twin) != described(original)] == []


def described(function: object) -> tuple[list[str], str | None]:
    return list(inspect.signature(function).parameters), function.__doc__  # type: ignore[arg-type]


# -- conversations ----------------------------------------------------------------------------------------------------


def talk_in(store: sync.Store) -> sync.Conversation:
    session = store.create_session(key="talk", title="Red build")
    for n in (1, 2):
        session.append_messages([user(f"question {n}"), assistant(f"answer {n}")])
    return sync.Conversation(store, session)


def test_a_conversation_goes_on_and_back_without_await(store: sync.Store) -> None:
    talk = talk_in(store)
    assert len(talk.turns()) == 2
    assert talk.last() == "answer 2"
    assert sync.run_command(talk, "/rewind 1").text == "Rewound to turn 1 of 2; /undo takes it back."
    assert talk.session.undo() is not None
    assert existing(talk.retry()).text == "question 2"
    fork = talk.fork(switch=True)
    assert isinstance(fork, sync.Session)
    assert talk.session.id == fork.id
    assert talk.switch("talk")
    assert talk.session.key == "talk"
    assert isinstance(talk.find("talk"), sync.Session)
    talk.session = fork
    assert (talk.session.id, talk.store) == (fork.id, store)
    assert talk.replay == 3
    assert talk.clock().tzinfo is not None


def test_a_model_that_blocks_is_called_with_the_context_and_may_call_the_store(store: sync.Store) -> None:
    talk = talk_in(store)
    asked: list[list[JsonObject]] = []

    def model(context: list[JsonObject]) -> Sequence[Mapping[str, JsonValue]]:
        asked.append(context)
        return [assistant(f"{len(talk.session.get_active_path())} entries")]

    (answer,) = talk.take_turn("question 3", model)
    assert [message["role"] for message in asked[0]] == ["user", "assistant", "user", "assistant", "user"]
    assert texts(talk.session.get_active_path())[-2:] == ["question 3", "5 entries"]
    assert answer["role"] == "assistant"


def test_a_model_that_fails_or_is_interrupted_leaves_no_question(store: sync.Store) -> None:
    talk = talk_in(store)
    for error in (RuntimeError("no answer"), OSError("no network")):

        def model(_: list[JsonObject], error: Exception = error) -> Sequence[Mapping[str, JsonValue]]:
            raise error

        with pytest.raises(type(error), match=str(error)):
            talk.take_turn("question 3", model)
        assert texts(talk.session.get_active_path())[-1] == "answer 2"


def test_another_writer_is_seen_before_the_model_is_called(store: sync.Store) -> None:
    talk = talk_in(store)
    store.find_session("talk").append_message(user("from elsewhere"))

    def model(context: list[JsonObject]) -> Sequence[Mapping[str, JsonValue]]:
        return [assistant(f"{len(context)} messages")]

    with pytest.raises(flue_py.LeafConflict):
        talk.take_turn("question 3", model)
    assert talk.take_turn("question 3", model)[0]["content"][0]["text"] == "6 messages"  # type: ignore[index, call-overload]


def test_a_turn_on_another_thread_is_waited_for_and_a_hook_may_read(store: sync.Store) -> None:
    talk = talk_in(store)
    asked, goes_on = Event(), Event()
    answered: list[str] = []

    def model(_: list[JsonObject]) -> Sequence[Mapping[str, JsonValue]]:
        asked.set()
        goes_on.wait()
        answered.append("answered")
        return [assistant("answer 3")]

    def hook(about: AboutToCompact) -> str:
        assert answered == ["answered"]
        return f"{len(about.leaving)} messages of {talk.session.key}"

    talk = sync.Conversation(store, talk.session, before_compaction=hook)
    with ThreadPoolExecutor(2) as threads:
        turn = threads.submit(talk.take_turn, "question 3", model)
        asked.wait()
        settings = CompactionSettings(keep_recent_tokens=1)
        compacting = threads.submit(talk.compact, mode="intent", settings=settings)
        goes_on.set()
        assert turn.result() == [assistant("answer 3")]
        done = compacting.result()
    assert (done.reason, done.from_hook) == (None, True)
    assert (done.summary or "").endswith("messages of talk")
    said = [text for text in texts(talk.session.get_active_path()) if text != "[compaction]"]
    assert said[-2:] == ["question 3", "answer 3"]


def test_a_model_may_compact(store: sync.Store) -> None:
    talk = talk_in(store)

    def model(_: list[JsonObject]) -> Sequence[Mapping[str, JsonValue]]:
        return [assistant(str(talk.compact(mode="window").reason))]

    assert talk.take_turn("question 3", model) == [assistant("no_cut_point")]


def test_hooks_of_a_conversation_are_plain_functions(store: sync.Store) -> None:
    async def hook(_: AboutToCompact) -> None:
        raise AssertionError

    for given in (hook, 7):
        with pytest.raises(InvalidArgument, match="is not a plain function"):
            sync.Conversation(store, store.create_session(), before_compaction=given)  # type: ignore[arg-type]


def test_ctrl_c_in_a_model_leaves_no_question(tmp_path: Path) -> None:
    def model(_: list[JsonObject]) -> Sequence[Mapping[str, JsonValue]]:
        raise KeyboardInterrupt

    with sync.open(tmp_path / "s.db") as store:
        talk = talk_in(store)
        with pytest.raises(KeyboardInterrupt):
            talk.take_turn("question 3", model)
        assert texts(talk.session.get_active_path())[-1] == "answer 2"
        assert store.verify().problems == []


def test_a_conversation_is_of_blocking_parts() -> None:
    with sync.open(":memory:") as store:
        session = store.create_session()
        with pytest.raises(InvalidArgument, match=r"store: .x. is not a Store of flue_py\.sync"):
            sync.Conversation("x", session)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=r"session: .x. is not a Session of flue_py\.sync"):
            sync.Conversation(store, "x")  # type: ignore[arg-type]
        talk = sync.Conversation(store, session)
        with pytest.raises(InvalidArgument, match=r"session: .x. is not a Session of flue_py\.sync"):
            talk.session = "x"  # type: ignore[assignment]


# -- summaries --------------------------------------------------------------------------------------------------------


def test_a_summary_is_made_by_a_function_that_blocks() -> None:
    messages = [
        strategies.user("old"),
        strategies.assistant("b" * 80),
        strategies.user("turn"),
        strategies.assistant("c" * 80),
    ]
    plan = prepare_compaction(messages, CompactionSettings(keep_recent_tokens=10))
    asked: list[SummaryRequest] = []

    def complete(request: SummaryRequest) -> SummaryReply:
        asked.append(request)
        return SummaryReply(f"summary {len(asked)}", {"input": 10, "output": 5})

    summary = sync.summarize(plan, complete, focus="the build")
    assert summary.text.startswith("summary 1")
    assert len(summary.usages) == len(asked)
    assert all("Additional focus: the build" in request.instruction for request in asked)

    def fails(_: SummaryRequest) -> SummaryReply:
        raise OSError("no network")

    with pytest.raises(SummaryFailed, match="no network"):
        sync.summarize(plan, fails)

    async def awaited(_: SummaryRequest) -> SummaryReply:
        return SummaryReply("never")

    with pytest.raises(InvalidArgument, match=r"await flue_py\.compaction\.summarize"):
        sync.summarize(plan, awaited)  # type: ignore[arg-type]


# -- copies -----------------------------------------------------------------------------------------------------------


def test_a_store_is_copied_without_await(store: sync.Store, tmp_path: Path) -> None:
    talk = talk_in(store)
    seen: list[str] = []
    with sync.open(tmp_path / "copy.db") as target:
        report = sync.copy_store(store, target, progress=lambda done: seen.append(done.phase))
        assert (report.trees_copied, report.is_complete) == (1, True)
        assert seen[-1] == "verifying"
        assert existing(target.get_session(talk.session.id)).build_context() == talk.session.build_context()
        assert sync.copy_store(target, store).trees_unchanged == 1
    with pytest.raises(flue_py.StoreClosed):
        sync.copy_store(store, target)


def test_stores_with_event_loops_of_their_own_are_not_copied_by_blocking(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    with sync.open(new_database()) as store, sync.open(tmp_path / "t.db", threads=True) as target:
        talk_in(store)
        with pytest.raises(InvalidArgument, match=r"await flue_py\.transfer\.copy_store"):
            sync.copy_store(store, target)
        assert target.list_sessions().sessions == ()


def test_what_is_copied_is_a_store_of_sync() -> None:
    with sync.open(":memory:") as store:
        with pytest.raises(InvalidArgument, match=r"target: None is not a Store of flue_py\.sync"):
            sync.copy_store(store, None)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="are the same store"):
            sync.copy_store(store, store)


def test_a_model_that_is_async_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    async def model(_: list[JsonObject]) -> list[JsonObject]:
        return [assistant("never")]

    with sync.open(tmp_path / "s.db") as store:
        session = store.create_session()
        with pytest.raises(InvalidArgument, match="not a plain function"):
            sync.Conversation(store, session).take_turn("q", model)  # type: ignore[arg-type]
        assert session.changes() == []


@inputs("threads", ["no", 0, 1, []])
def test_threads_are_checked_as_they_are_elsewhere(threads: object, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="threads"), sync.open(tmp_path / "s.db", threads=threads):  # type: ignore[arg-type]
        pass
    assert list(tmp_path.iterdir()) == []
