"""Every public method, called with what it does not take: an error of ours that says so, and nothing is changed."""

from __future__ import annotations

import asyncio
import inspect
import os
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta, tzinfo
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import flue_py
import flue_py.sync
from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel
from flue_py.core.sessions import NewSession
from flue_py.core.usage import PaidCall, UsageTotals
from flue_py.errors import EntryNotFound, FlueError, InvalidArgument, InvalidEntry, SessionNotFound
from tests.checks import raises
from tests.fuzz.hostile import ARGUMENTS, FEW, Drawn, Unprintable, check_refusal, note_refusal, odd_arguments
from tests.samples import parameters_of, session_methods, store_snapshot
from tests.strategies import hostile_texts
from tests.tables import inputs
from tests.values import existing

USER: JsonObject = {"role": "user", "content": "x"}
Usual = Mapping[str, Mapping[str, Any]]


def usual_of_session(first: str, last: str) -> Usual:
    """Return arguments that each method of a session takes."""
    return {
        "append_message": {"message": USER},
        "append_messages": {"messages": []},
        "append_compaction": {"summary": "s", "first_kept_entry_id": first, "tokens_before": 1},
        "append_branch_summary": {"summary": "s", "from_id": first},
        "append_blocks": {"blocks": []},
        "append_custom": {"kind": "note"},
        "import_entries": {"entries": [], "leaf": last},
        "move_leaf": {"to": last},
        "rewind": {"to": last},
        "redact": {"entry": "zz", "why": "w"},
        "undo": {},
        "redo": {},
        "remove_leaf_message": {"entry_id": "zz"},
        "navigate": {"entry_id": "zz"},
        "fork": {},
        "copy": {},
        "tasks.create": {"task_id": "t"},
        "tasks.end": {"status": "done"},
        "tasks.links": {},
        "reports.name": {},
        "tasks.parents": {},
        "get_active_path": {},
        "turns": {},
        "settings": {},
        "context.latest_assistant": {},
        "context.pending": {},
        "branches.is_ancestor": {"entry_id": first, "of": last},
        "build_context_entries": {},
        "build_context": {},
        "context.measure": {},
        "request": {"target": "anthropic"},
        "context.attempts": {"target": "anthropic"},
        "context.validate": {"target": "anthropic"},
        "context.gather": {"settings": {"spec": {"sources": ["brief_field:owner"]}}},
        "context.append_handoff": {"agent": "Coder", "settings": {"handoff": ["brief_field:owner"]}},
        "compactions.latest": {},
        "money.aggregate_usage_since": {"before": first},
        "reports.html": {},
        "reports.snapshots": {},
        "compact": {"mode": "window"},
        "compactions.plan": {},
        "compactions.compact_range": {"first": first, "last": last, "mode": "window"},
        "compactions.price": {"edit": "resume"},
        "context.common_prefix": {"leaf_a": first},
        "compactions.uncompact": {},
        "compactions.fit_to": {"model": FunctionModel(lambda _: "s", "m", context_window=100_000)},
        "compactions.loss_report": {},
        "compactions.recall": {"compaction": None, "words": "x"},
        "compactions.answer_recall": {
            "call": {"type": "toolCall", "id": "c", "name": "recall", "arguments": {"words": "x"}}
        },
        "files.checkpoint": {"root": "."},
        "files.before_edit": {"paths": "absent", "root": "."},
        "files.after_edit": {"paths": "absent", "root": "."},
        "files.checkpoints": {},
        "files.restore": {"root": ".", "dry_run": True},
        "artifacts.all": {},
        "artifacts.read": {"artifact_id": "zz"},
        "artifacts.answer_read": {"call": {"id": "c", "arguments": {"id": "zz"}}},
        "marks.register": {"name": "n", "text": "t"},
        "marks.unregister": {"name": "n"},
        "marks.registered": {},
        "branches.common_ancestor": {},
        "branches.diff": {},
        "branches.cherry_pick": {"entry_ids": [first], "source": "s"},
        "branches.merge_back": {"summary": "s", "source_leaf": last},
        "money.record_call": {"usage": {}},
        "money.import_call": {"call": PaidCall(UsageTotals(), call_id="imported")},
        "get_entry": {"entry_id": first},
        "get_entries": {"ids": [first, last]},
        "entries": {},
        "branches.children": {"entry_id": first},
        "branches.neighbours": {"entry_id": first, "count": 1},
        "resolve_entry_id": {"prefix": first},
        "get_tree": {},
        "marks.labels": {},
        "money.entry_costs": {},
        "marks.set_label": {"entry_id": first, "label": "l"},
        "marks.pin": {"entry_id": first},
        "marks.unpin": {"entry_id": first},
        "marks.pins": {},
        "marks.exclude": {"entry_id": first},
        "marks.include": {"entry_id": first},
        "marks.exclusions": {},
        "log": {},
        "go_back": {"to": 0},
        "set_title": {"title": "t"},
        "set_metadata": {"metadata": {}},
        "set_completed": {"at": None},
        "money.budgets": {},
        "money.check_budgets": {},
        "money.reserve": {"tokens": 1},
        "money.commit": {"reservation": "zz"},
        "money.release": {"reservation": "zz"},
        "money.prolong": {"reservation": "zz"},
        "money.budgeted": {"tokens": 1},
        "changes": {},
        "watch": {"after": 0},
        "append_shell": {"command": "ls", "output": "", "exit_code": 0},
        "refresh": {},
    }


def usual_of_store(session_id: str) -> Usual:
    """Return arguments that each method of a store takes."""
    return {
        "create_session": {}, "in_scope": {"scope": "t"}, "open_session": {"key": "k"},
        "get_session": {"id": session_id}, "get_entry": {"entry_id": "zz"}, "find_session": {"name": session_id},
        "add_file": {"name": "n", "text": "t"}, "files": {}, "read_file": {"name": "n"}, "remove_file": {"name": "n"},
        "list_sessions": {}, "append_messages": {"session": session_id, "messages": []}, "events": {}, "atomic": {},
        "usage": {"session": session_id}, "reprice": {"dry_run": True},
        "import_session": {"new": NewSession(), "entries": [], "leaf": None},
        "link_task": {"parent": session_id, "child": "c", "task_id": "t"}, "delete_session_tree": {"session": "zz"},
        "delete_scope": {"scope": "nobody", "dry_run": True}, "erase": {"sessions": ["zz"], "dry_run": True},
        "erase_scope": {"scope": "nobody", "dry_run": True}, "set_budget": {"session": session_id, "tokens": 5},
        "get_budget": {"budget_id": "zz"}, "list_budgets": {}, "delete_budget": {"budget_id": "zz"},
        "held_amounts": {"budget_id": "zz"}, "get_reservation": {"reservation_id": "zz"},
        "remember": {"name": "n", "body": "b"}, "memories": {}, "search": {"words": "b"},
        "search_memories": {"words": "b"}, "forget": {"name": "n"}, "verify": {}, "info": {},
        "heads": {}, "compare_heads": {"heads": ()}, "rekey": {"key": None},
        "hold": {"session": session_id}, "holds": {}, "lift_hold": {"session": "zz"},
    }  # fmt: skip


def public_methods(owner: object) -> set[str]:
    # A backup has tests of its own: in memory it is always refused.
    if isinstance(owner, flue_py.Session):
        return session_methods()
    return {
        name
        for name in dir(owner)
        if not name.startswith("_") and callable(getattr(owner, name)) and name not in ("close", "backup")
    }


def with_odd_argument(method: str, usual: Mapping[str, Any], parameter: str, odd: object) -> dict[str, Any]:
    given = {**usual, parameter: odd}
    if (method, parameter) == ("rewind", "turns"):
        del given["to"]
    return given


@asynccontextmanager
async def made(where: str) -> AsyncIterator[tuple[flue_py.Store, flue_py.Session, str, str]]:
    """Give a store with a session of two messages, and the ids of these."""
    async with flue_py.open(where, durability="normal") as store:
        session = await store.create_session(key="k", id="s")
        first, last = (await session.append_messages([USER, {"role": "assistant", "content": "y"}])).entry_ids
        yield store, session, first, last
        assert (await store.verify()).problems == []


async def outcome_of(call: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """Return the name of the error a call raises, which is ours, or "accepted"."""
    try:
        result = call(**given)
        if hasattr(result, "__anext__"):
            # What it takes, it may wait for longer than anybody has time.
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(anext(result, None), 0.05)
            await result.aclose()
        elif hasattr(result, "__aenter__"):
            async with result:
                pass
        elif inspect.isawaitable(result):
            await result
    except FlueError as error:
        check_refusal(error)
        return type(error).__name__
    return "accepted"


async def rows_of(store: flue_py.Store) -> object:
    """Return the counts of a store and the rows of the sessions changed last: any write shows in them."""
    return replace(await store.info(), size_bytes=None), await store.list_sessions(limit=3)


async def all_outcomes(where: str, names: tuple[str, ...]) -> dict[tuple[str, str, str], str]:
    """Call every method with every odd argument in every place. Refusals must change nothing."""
    outcomes = {}
    async with made(where) as (store, session, first, last):
        before = await rows_of(store)
        for owner, methods in ((session, usual_of_session(first, last)), (store, usual_of_store("s"))):
            assert public_methods(owner) == set(methods)
            for method, usual in methods.items():
                call = attrgetter(method)(owner)
                for parameter in parameters_of(call):
                    for name in names:
                        given = with_odd_argument(method, usual, parameter, ARGUMENTS[name])
                        outcome = await outcome_of(call, given)
                        outcomes[method, parameter, name] = outcome
                        after = await rows_of(store)
                        assert outcome == "accepted" or after == before, (method, parameter, name)
                        before = after
                        await session.refresh()
    return outcomes


@pytest.mark.thorough(but=["None", "bytes", "a lone surrogate", "a deep list", "an integer beyond"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_every_method_refuses_what_it_does_not_take_and_every_store_alike(tmp_path: Path, name: str) -> None:
    in_memory = asyncio.run(all_outcomes(":memory:", (name,)))
    assert len(in_memory) * len(ARGUMENTS) > 3_000
    if name in FEW:
        assert asyncio.run(all_outcomes(str(tmp_path / "s.db"), (name,))) == in_memory


@pytest.mark.slow
def test_postgresql_refuses_alike(new_database: Callable[[], str]) -> None:
    assert asyncio.run(all_outcomes(new_database(), FEW)) == asyncio.run(all_outcomes(":memory:", FEW))


def test_what_is_no_id_is_never_taken_for_one() -> None:
    outcomes = asyncio.run(all_outcomes(":memory:", ("an integer", "bytes", "a list with None", "a class")))
    accepted = {key for key, outcome in outcomes.items() if outcome == "accepted"}
    # What is called takes a class, too.
    called = {("import_session", "on_oddity"), ("import_session", "on_conflict"), ("search", "progress")}
    called |= {("rekey", "progress")}
    accepted -= {(*argument, "a class") for argument in called}
    assert {(method, parameter) for method, parameter, _ in accepted} == {
        ("append_custom", "data"), ("append_compaction", "details"), ("append_branch_summary", "details"),
        *((read, "limit") for read in ("get_active_path", "build_context", "build_context_entries", "entries")),
        ("append_shell", "exit_code"), ("files.checkpoint", "max_snapshots"), ("append_blocks", "patience"),
        ("append_compaction", "tokens_before"), ("rewind", "turns"), ("changes", "after"), ("changes", "limit"),
        ("list_sessions", "limit"), ("watch", "after"), ("reports.html", "warn_at"), ("reports.html", "cutover_at"),
        ("reports.snapshots", "warn_at"), ("reports.snapshots", "cutover_at"),
        ("compact", "window"), ("compactions.plan", "window"), ("compactions.fit_to", "window"),
        ("compactions.loss_report", "limit"), ("compactions.recall", "limit"),
        ("compactions.compact_range", "window"),
        ("list_sessions", "limit"), ("watch", "after"), ("money.reserve", "tokens"), ("money.reserve", "cost"),
        ("money.reserve", "ttl"),
        ("money.budgeted", "tokens"), ("money.budgeted", "cost"), ("money.budgeted", "ttl"), ("list_budgets", "limit"),
        ("search", "limit"), ("branches.neighbours", "count"),
        ("search_memories", "limit"),
        ("set_budget", "tokens"), ("set_budget", "spent_so_far"), ("context.measure", "window"),
        # Of a session that is not there, no revision is compared.
        ("delete_session_tree", "expected_revision"),
        ("list_sessions", "limit"), ("watch", "after"), ("log", "limit"), ("log", "before"), ("go_back", "to"),
    }  # fmt: skip
    assert {name for *_, name in accepted} == {"an integer", "a list with None"}


def test_the_blocking_twin_refuses_alike() -> None:
    names = ("bytes", "an object that cannot be shown", "a lone surrogate")
    expected = asyncio.run(all_outcomes(":memory:", names))
    with flue_py.sync.open(":memory:") as store:
        session = store.create_session(key="k", id="s")
        first, last = session.append_messages([USER, {"role": "assistant", "content": "y"}]).entry_ids
        for owner, methods in ((session, usual_of_session(first, last)), (store, usual_of_store("s"))):
            for method, usual in methods.items():
                for parameter in parameters_of(attrgetter(method)(owner)):
                    for name in names:
                        given = with_odd_argument(method, usual, parameter, ARGUMENTS[name])
                        try:
                            result = attrgetter(method)(owner)(**given)
                            if method in ("watch", "events"):
                                next(result, None)
                            elif method in ("money.budgeted", "atomic"):
                                with result:
                                    pass
                            outcome = "accepted"
                        except FlueError as error:
                            check_refusal(error)
                            outcome = type(error).__name__
                        assert outcome == expected[method, parameter, name]
                        session.refresh()


odd_or_text = odd_arguments | hostile_texts.map(lambda text: Drawn(text, ascii(text)))


@given(st.data())
def test_several_odd_arguments_at_once_are_refused_like_one(data: st.DataObject) -> None:
    async def run() -> None:
        async with made(":memory:") as (store, session, first, last):
            for _ in range(5):
                owner, methods = data.draw(
                    st.sampled_from([(session, usual_of_session(first, last)), (store, usual_of_store("s"))])
                )
                method = data.draw(st.sampled_from(sorted(methods)))
                call = attrgetter(method)(owner)
                parameters = [name for name in parameters_of(call) if method not in ("watch", "events")]
                chosen = data.draw(st.sets(st.sampled_from(parameters))) if parameters else set()
                given = {**methods[method], **{name: data.draw(odd_or_text).value for name in chosen}}
                before = await store_snapshot(store.backend)
                if await outcome_of(call, given) != "accepted":
                    assert await store_snapshot(store.backend) == before
                await session.refresh()

    asyncio.run(run())


async def test_a_wrong_name_of_an_argument_is_a_type_error() -> None:
    async with made(":memory:") as (store, session, first, last):
        for owner, methods in ((session, usual_of_session(first, last)), (store, usual_of_store("s"))):
            for method, usual in methods.items():
                with pytest.raises(TypeError, match="no_such_argument"):
                    await attrgetter(method)(owner)(**usual, no_such_argument=1)


# --- Opening ------------------------------------------------------------------------------------------------


OPENING = ("target", "engine", "durability", "create", "busy_timeout", "pool_size", "pool_timeout", "limits", "clock",
           "ids", "session_ids")  # fmt: skip


@inputs("parameter", OPENING)
def test_open_refuses_what_it_does_not_take(parameter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def run() -> None:
        for name, odd in ARGUMENTS.items():
            if (parameter, name) in {("target", "a text"), ("clock", "a function")}:
                continue
            given: dict[str, Any] = {"target": ":memory:", parameter: odd}
            if parameter == "engine":
                del given["target"]
            try:
                async with flue_py.open(**given) as store:
                    await (await store.create_session()).append_message(USER)
            except FlueError as error:
                # A path is named whole, however long it is.
                if (parameter, name) != ("target", "a long text"):
                    check_refusal(error)
            else:
                assert name in {"None", "an integer", "a float", "True"}, name

    asyncio.run(run())
    assert os.listdir(tmp_path) == []


@inputs("parameter", ["path", "overwrite", "verify", "progress"])
async def test_a_backup_refuses_what_it_does_not_take_and_leaves_nothing(tmp_path: Path, parameter: str) -> None:
    (tmp_path / "store").mkdir()
    async with made(str(tmp_path / "store" / "s.db")) as (store, *_):
        for name, odd in ARGUMENTS.items():
            if (parameter, name) in (("overwrite", "True"), ("verify", "True"), ("progress", "None")) or (
                parameter == "path" and isinstance(odd, (str, PathLike))
            ):
                continue
            if parameter == "progress" and callable(odd):
                continue
            given = {"path": tmp_path / "copy.db", parameter: odd}
            assert await outcome_of(store.backup, given) == "InvalidArgument", name
            assert os.listdir(tmp_path) == ["store"]


async def test_a_rescue_refuses_what_is_no_path(tmp_path: Path) -> None:
    for name, odd in ARGUMENTS.items():
        if not isinstance(odd, (str, PathLike)):
            for given in ({"damaged": odd, "new": tmp_path / "new.db"}, {"damaged": tmp_path / "d.db", "new": odd}):
                assert await outcome_of(flue_py.salvage, given) == "InvalidArgument", name
    assert os.listdir(tmp_path) == []


URLS = (
    "sqlite+aiosqlite://", "sqlite+aiosqlite:///", "sqlite+aiosqlite:///a\0b", "sqlite+aiosqlite:///\ud800",
    "sqlite+aiosqlite://host/x", "sqlite+aiosqlite:///x?timeout=zz", "sqlite+aiosqlite:///x?check_same_thread=maybe",
    "postgresql+asyncpg://", "postgresql+asyncpg://h:port/db", "postgresql+asyncpg://[::1/db",
    "postgresql+asyncpg:///x?port=zz", "postgresql+asyncpg://u:secret@127.0.0.1:99999/d",
    "postgresql+asyncpg://u:secret@127.0.0.1:1/d?nonsense=1", "postgresql+asyncpg://u:secret@127.0.0.1:1/d",
    "nothing://x", "\0", "a\0b", "/", "/dev/null", "/dev/null/x", "x" * 5_000,
)  # fmt: skip


async def _open_url(url: str) -> None:
    async with flue_py.open(url, busy_timeout=0.1):
        pass


async def test_a_url_that_leads_nowhere_is_refused_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in URLS:
        caught = await raises(FlueError, _open_url(url))
        assert "secret" not in str(caught.value)
        note_refusal(caught.value)


@inputs("field", flue_py.Limits.__struct_fields__)
def test_limits_are_whole_numbers_that_databases_can_count_to(field: str) -> None:
    for name, odd in ARGUMENTS.items():
        if name == "an integer":
            continue
        with pytest.raises(InvalidArgument, match=field) as caught:
            flue_py.Limits(**{field: odd})  # type: ignore[arg-type]
        check_refusal(caught.value)


class Nowhere(tzinfo):
    """A time zone that does not know its offset."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        return None


async def test_a_clock_or_a_source_of_ids_that_answers_nonsense_is_refused(target: str) -> None:
    nowhere = datetime(2020, 1, 1, tzinfo=Nowhere())
    for odd in (None, 5, "", "now", "a\0b", "\ud800", "x" * 2_000, Unprintable(), nowhere):
        for source in ("clock", "ids", "session_ids"):
            if isinstance(odd, str) and odd == "now" and source != "clock":
                continue
            async with flue_py.open(target, durability="normal", **{source: lambda odd=odd: odd}) as store:  # type: ignore[arg-type]
                with pytest.raises(InvalidArgument) as caught:
                    await (await store.create_session()).append_message(USER)
                check_refusal(caught.value)
                assert (await store.verify()).problems == []


async def test_ids_that_are_always_taken_come_to_an_end(target: str) -> None:
    async with flue_py.open(target, durability="normal", ids=lambda: "same") as store:
        session = await store.create_session()
        await session.append_message(USER)
        before = await session.refresh()
        caught = await raises(InvalidArgument, session.append_message(USER))
        check_refusal(caught.value)
        assert await session.refresh() == before


# --- Cursors, places, revisions -----------------------------------------------------------------------------


def _cursor(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode()


BAD_CURSORS = (
    "", "x", "====", "\ud800", "é", " ", _cursor(""), _cursor("1"), _cursor("1.2.3"), _cursor("a.b"), _cursor("1_0.1"),
    _cursor(" 1.1"), _cursor("١.١"), _cursor("9" * 30 + ".1"), _cursor("1." + "9" * 30), _cursor("1." + "9" * 5_000),
    _cursor("1.1") + "\n", "!" + _cursor("1.1"), _cursor("+1.1"), _cursor("01.1"),
)  # fmt: skip


async def test_a_cursor_that_was_not_given_is_refused(target: str) -> None:
    async with flue_py.open(target, durability="normal") as store:
        for _ in range(3):
            await store.create_session()
        cursor = existing((await store.list_sessions(limit=1)).next_cursor)
        changed = [cursor[:place] + "A" + cursor[place + 1 :] for place in range(len(cursor))]
        for bad in BAD_CURSORS:
            caught = await raises(InvalidArgument, store.list_sessions(cursor=bad))
            check_refusal(caught.value)
        for other in [*changed, cursor[:-4], cursor + cursor, cursor.swapcase()]:
            try:
                page = await store.list_sessions(cursor=other)
            except InvalidArgument as error:
                check_refusal(error)
            else:
                assert len(page.sessions) <= 3
        assert len((await store.list_sessions(cursor=cursor)).sessions) == 2


@given(hostile_texts, hostile_texts)
def test_any_text_as_a_place_names_an_entry_or_is_not_found(text: str, key: str) -> None:
    async def run() -> None:
        async with made(":memory:") as (store, session, _, _):
            reads: list[Callable[[], Any]] = [
                lambda: session.get_active_path(leaf=text),
                lambda: session.build_context(leaf=text),
                lambda: session.money.aggregate_usage_since(None, leaf=text),
                lambda: session.fork(at=text),
                lambda: session.marks.set_label(text, "x"),
                lambda: session.append_compaction("s", first_kept_entry_id=text, tokens_before=1),
                lambda: session.move_leaf(text),
                lambda: session.rewind(to=text),
                lambda: session.branches.is_ancestor(text, of=text),
            ]
            for read in reads:
                caught = await raises(EntryNotFound, read())
                check_refusal(caught.value)
            assert await session.get_active_path(since=text) == []
            assert not (await session.money.aggregate_usage_since(text)).on_path
            assert await session.get_entry(text) is None
            assert not await session.remove_leaf_message(text)
            keyed: list[Callable[[], Any]] = [
                lambda: session.move_leaf(text, idempotency_key=key),
                lambda: session.fork(at=text, idempotency_key=key),
            ]
            for call in keyed:
                await raises((EntryNotFound, InvalidArgument), call())
            await raises((SessionNotFound, InvalidArgument), store.open_session(f"no{text}"))

    asyncio.run(run())


async def test_half_a_character_as_a_place_is_not_found_also_with_an_idempotency_key(target: str) -> None:
    async with flue_py.open(target, durability="normal") as store:
        session = await store.create_session()
        await raises(EntryNotFound, session.move_leaf("\ud800", idempotency_key="k"))
        await raises(EntryNotFound, session.fork(at="\ud800", idempotency_key="k"))
        await session.append_message(USER, idempotency_key="k")


# --- Importing what nobody checked ---------------------------------------------------------------------------

SOUND = NewEntry.message({"role": "assistant", "content": "x", "usage": {"input": 1}})
ODD_ENTRIES: dict[str, object] = {
    "no entry": USER,
    "a kind that is no name": replace(SOUND, kind="a b"),
    "a payload that is no text": replace(SOUND, payload=5),  # type: ignore[arg-type]
    "a payload that is no JSON": replace(SOUND, payload="{"),
    "a payload with half a character": replace(SOUND, payload='{"role":"assistant","a":"\ud800"}'),
    "a payload with NUL": replace(SOUND, payload='{"role":"assistant"}\0'),
    "a payload that is no object": replace(SOUND, payload="[1]"),
    "a bottomless payload": replace(NewEntry.custom("note", None), payload="[" * 10_000),
    "another role than its message": replace(SOUND, role="user"),
    "no role": replace(SOUND, role=None),
    "a role beside no message": replace(NewEntry.custom("note", None), role="user"),
    "a source that is no tag": replace(SOUND, source="a b"),
    "an id that is no text": replace(SOUND, id=5),  # type: ignore[arg-type]
    "an empty id": replace(SOUND, id=""),
    "an id with NUL": replace(SOUND, id="a\0b"),
    "an id that is too long": replace(SOUND, id="x" * 1_001),
    "a parent that is no text": replace(SOUND, parent_id=5),  # type: ignore[arg-type]
    "a time that is no number": replace(SOUND, created_us="now"),  # type: ignore[arg-type]
    "a time beyond 64 bits": replace(SOUND, created_us=10**30),
    "a time before the year 1": replace(SOUND, created_us=-(10**17)),
    "extra that is no object": replace(SOUND, extra="[]"),
    "extra that is no JSON": replace(SOUND, extra="x"),
    "extra that is no text": replace(SOUND, extra={}),  # type: ignore[arg-type]
    "usage that is no sum": replace(SOUND, usage={"input": 1}),  # type: ignore[arg-type]
    "usage below zero": replace(SOUND, usage=UsageTotals(input=-1)),
    "usage beyond 64 bits": replace(SOUND, usage=UsageTotals(cost_total=2**70)),
    "usage that is no whole number": replace(SOUND, usage=UsageTotals(input=1.5)),  # type: ignore[arg-type]
    "a call that is none": replace(SOUND, calls=({"provider": "p"},)),  # type: ignore[arg-type]
    "calls that are no tuple": replace(SOUND, calls=5),  # type: ignore[arg-type]
    "a call of nobody": replace(SOUND, calls=(PaidCall(UsageTotals(), provider=None),)),  # type: ignore[arg-type]
    "a call with half a character": replace(SOUND, calls=(PaidCall(UsageTotals(), call_id="\ud800"),)),
    "a call beyond 64 bits": replace(SOUND, calls=(PaidCall(UsageTotals(cost_total=2**70)),)),
    "references that are no ids": replace(SOUND, references=(5,)),  # type: ignore[arg-type]
    "counted that is no flag": replace(SOUND, counted="no"),  # type: ignore[arg-type]
    "a count of surrogates that is none": replace(SOUND, surrogates_replaced=None),  # type: ignore[arg-type]
}


async def test_entries_that_no_store_can_hold_are_not_imported(target: str) -> None:
    async with made(target) as (store, session, _, _):
        before = await session.refresh()
        for name, odd in ODD_ENTRIES.items():
            entries: Any = [replace(SOUND, id="sound"), odd]
            for call in (
                lambda entries=entries: session.import_entries(entries, leaf="sound"),
                lambda entries=entries: store.import_session(NewSession(), entries, leaf="sound"),
            ):
                caught = await raises(InvalidEntry, call())
                check_refusal(caught.value)
            assert await session.refresh() == before, name
        assert (await store.info()).sessions == 1


@inputs("field", NewEntry.__struct_fields__)
def test_an_entry_with_any_field_odd_is_imported_or_refused(field: str) -> None:
    async def refused(values: Iterable[Any], session: flue_py.Session) -> list[Any]:
        refusals: list[Any] = []
        for odd in values:
            entries: Any = [replace(SOUND, **{field: odd})]
            try:
                await session.import_entries(entries, leaf=None)
            except FlueError as error:
                check_refusal(error)
                refusals.append(odd)
            else:
                await session.fork()
        return refusals

    async def run() -> None:
        async with made(":memory:") as (_, session, _, _):
            wrong = await refused(ARGUMENTS.values(), session)
        async with made(":memory:") as (store, session, _, _):
            before = await store_snapshot(store.backend)
            assert len(await refused(wrong, session)) == len(wrong)
            assert await store_snapshot(store.backend) == before

    asyncio.run(run())


ODD_SESSIONS: dict[str, dict[str, Any]] = {
    "scope": {"scope": None},
    "cwd": {"cwd": "\ud800"},
    "config_path": {"config_path": 5},
    "metadata_text that is no text": {"metadata_text": 5},
    "created_us": {"created_us": 10**30},
    "created_us that is a flag": {"created_us": True},
}


@inputs("name", ODD_SESSIONS)
def test_a_session_that_no_store_can_hold_is_refused_when_it_is_described(name: str) -> None:
    with pytest.raises(InvalidArgument, match=name.partition(" ")[0]):
        NewSession(**ODD_SESSIONS[name])


@inputs("text", ["", "{", "[]", "5", '{"a":\ud800}', "{}\0", "[" * 10_000])
async def test_metadata_that_is_no_object_is_not_imported(text: str) -> None:
    async with flue_py.open(":memory:") as store:
        with pytest.raises(InvalidEntry, match="metadata_text"):
            await store.import_session(NewSession(metadata_text=text), [], leaf=None)
        assert (await store.info()).sessions == 0


async def test_a_copy_is_from_a_store_to_a_store() -> None:
    async with flue_py.open(":memory:") as store:
        for odd in (None, 5, "x.db", Unprintable()):
            for ends in ((store, odd), (odd, store)):
                await raises(InvalidArgument, flue_py.copy_store(*ends), match="open store")  # type: ignore[arg-type]
