"""What a store makes, finds, lists, names, limits and deletes, and where it is opened."""

from __future__ import annotations

import asyncio
import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import create_async_engine

import flue_py
from flue_py import AmbiguousId, InvalidArgument, InvalidEntry, NewSession, SessionExists, SessionNotFound, Store
from flue_py.agents.conversation import Conversation
from flue_py.core.entries import NewEntry
from flue_py.core.sessions import SessionInfo
from flue_py.db.backend import Backend
from flue_py.db.sqlite.runner import MemoryRunner
from flue_py.errors import TaskDepthExceeded
from flue_py.sessions.request import read_reported
from tests.checks import raises
from tests.core.test_spoken import INSERTED
from tests.earlier import names_unchecked
from tests.edges.cli_runs import Flue
from tests.formats.pi_files import HEADER as NOUMEN_HEADER
from tests.formats.test_claude_code import user as claude_user
from tests.formats.test_codex import META, item
from tests.formats.transcripts import as_lines
from tests.render.test_report import data_of
from tests.sessions.conftest import also_in_memory
from tests.sessions.talk import path_of, say, user
from tests.sources import counted_sources
from tests.tables import inputs
from tests.values import existing


async def test_a_key_is_looked_up_made_and_found_again(store: Store) -> None:
    await raises(SessionNotFound, store.open_session("triage"), match="get_or_create")
    made = await store.open_session("triage", mode="create", title="Red build", metadata={"x": 1}, cwd="/w")
    await raises(SessionExists, store.open_session("triage", mode="create"))
    for found in (await store.open_session("triage"), await store.open_session("triage", mode="get_or_create")):
        assert found.id == made.id
        assert (found.title, found.metadata, found.info.cwd) == ("Red build", {"x": 1}, "/w")


async def test_an_empty_key_is_a_key_and_no_key_is_none(store: Store) -> None:
    empty = await store.open_session("", mode="create")
    assert (await store.open_session("")).id == empty.id
    keyless = [await store.create_session() for _ in range(2)]
    assert len({session.id for session in keyless}) == 2


async def test_what_is_no_key_or_mode_is_refused(store: Store) -> None:
    await raises(InvalidArgument, store.open_session(None), match="key")  # type: ignore[arg-type]
    await raises(InvalidArgument, store.open_session("k", mode="upsert"), match="mode")  # type: ignore[arg-type]
    for key in ("a\0b", "half \ud83d"):
        await raises(InvalidArgument, store.open_session(key, mode="get_or_create"), match="key")
    await raises(InvalidEntry, store.create_session(metadata={"x": float("nan")}), match=r"metadata\.x")
    assert (await store.list_sessions()).sessions == ()


async def test_however_many_race_to_open_a_key_there_is_one_session(store: Store) -> None:
    opened = await asyncio.gather(*(store.open_session("k", mode="get_or_create") for _ in range(20)))
    assert len({session.id for session in opened}) == 1
    assert len((await store.list_sessions()).sessions) == 1


class LateLook(Backend):
    """A store in which somebody else is always a little faster: a key is taken just after it was found free."""

    async def get_session_by_key(self, key: str, scope: str) -> SessionInfo | None:
        found = await super().get_session_by_key(key, scope)
        if found is None:
            await super().create_session(NewSession(key=key, scope=scope, title="theirs"))
        return found


async def test_whoever_loses_the_race_gets_the_winners_session(anyio_backend: str) -> None:
    store = Store(LateLook(MemoryRunner(), counted_sources()))
    assert (await store.open_session("k", mode="get_or_create", title="mine")).title == "theirs"


class NeverThere(Backend):
    """A store in which a taken key is never found: whoever has it is deleted as soon as one looks."""

    async def get_session_by_key(self, key: str, scope: str) -> SessionInfo | None:
        return None


async def test_a_race_that_cannot_be_won_ends(anyio_backend: str) -> None:
    store = Store(NeverThere(MemoryRunner(), counted_sources()))
    await store.create_session(key="k")
    await raises(SessionExists, store.open_session("k", mode="get_or_create"))


# -- ids ----------------------------------------------------------------------------------------------------------


async def test_a_session_is_found_by_its_id_or_the_beginning_of_it(store: Store) -> None:
    for session_id in ("alpha-1", "alpha-2", "beta", "betamax"):
        await store.create_session(id=session_id, scope=session_id[:1])
    assert (await store.find_session("alpha-1")).id == "alpha-1"
    assert (await store.find_session("betam")).id == "betamax"
    assert (await store.find_session("beta")).id == "beta"
    caught = await raises(AmbiguousId, store.find_session("alpha"))
    assert caught.value.matches == ("alpha-1", "alpha-2")
    # The beginning of a task session's id is its parent's: that one is meant, until more is said.
    await store.create_session(id="alpha-2:s1")
    assert (await store.find_session("alpha-2")).id == "alpha-2"
    await store.create_session(id="delta-2")
    await store.create_session(id="delta-2:s1")
    assert (await store.find_session("del")).id == "delta-2"
    assert (await store.find_session("delta-2:")).id == "delta-2:s1"
    await raises(AmbiguousId, store.find_session("bet"))
    await raises(SessionNotFound, store.find_session("gamma"))
    await raises(SessionNotFound, store.find_session(""))
    with pytest.raises(InvalidArgument, match="name: should be the id or key of a session, not NoneType"):
        await store.find_session(None)  # type: ignore[arg-type]


async def test_a_shortened_id_is_looked_up_in_the_scope_that_is_named(store: Store) -> None:
    await store.create_session(id="alpha-1", scope="me")
    await store.create_session(id="alpha-2", scope="you")
    assert (await store.find_session("alpha", scope="me")).id == "alpha-1"
    for prefix in ("alpha", "alpha-1"):
        await raises(SessionNotFound, store.find_session(prefix, scope="them"))


# -- listing ------------------------------------------------------------------------------------------------------


@inputs("limit", [0, -1, 1001, True, 1.5, "10", None])
async def test_a_page_holds_1_to_1000_sessions(store: Store, limit: object) -> None:
    await raises(InvalidArgument, store.list_sessions(limit=limit), match="limit")  # type: ignore[arg-type]


async def test_what_is_no_kind_or_cursor_is_refused(store: Store) -> None:
    await raises(InvalidArgument, store.list_sessions(kind="branch"), match="kind")  # type: ignore[arg-type]
    await raises(InvalidArgument, store.list_sessions(cursor="nonsense"))


# -- importing ----------------------------------------------------------------------------------------------------


async def test_an_import_that_fails_leaves_nothing_behind(store: Store) -> None:
    from msgspec.structs import replace

    orphan = replace(NewEntry.message(user("x")), id="x", parent_id="missing")
    await raises(flue_py.EntryNotFound, store.import_session(NewSession(key="k"), [orphan], leaf="x"))
    assert (await store.list_sessions()).sessions == ()
    await store.create_session(key="k")
    await raises(SessionExists, store.import_session(NewSession(key="k"), [], leaf=None))


# -- tasks and deletion -------------------------------------------------------------------------------------------


async def test_links_are_bare_and_may_lead_anywhere(store: Store) -> None:
    one, two = await store.create_session(), await store.create_session()
    await store.link_task(one, two, task_id="t")
    await store.link_task(two.id, one.id, task_id="back")
    await store.link_task(one, "never-made", task_id="gone")
    await store.link_task(one, two, task_id="again")
    assert [(link.child_id, link.task_id) for link in await one.tasks.links()] == [
        (two.id, "t"),
        ("never-made", "gone"),
    ]
    await raises(SessionNotFound, store.link_task("missing", one, task_id="t"))
    await raises(InvalidArgument, store.link_task(one, None, task_id="t"))  # type: ignore[arg-type]


# -- Where a store can be opened, and its clock and id sources ----------------------------------------------------


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@inputs("form", ["path", "text", "url"])
async def test_a_file_is_made_private_and_found_again(tmp_path: Path, form: str, anyio_backend: str) -> None:
    path = tmp_path / "sessions.db"
    target = {"path": path, "text": str(path), "url": f"sqlite+aiosqlite:///{path}"}[form]
    async with flue_py.open(target) as store:
        await say(await store.open_session("k", mode="create"), "a")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with flue_py.open(target) as store:
        assert await path_of(await store.open_session("k")) == ["a"]


@inputs("target", [":memory:", "memory://"])
async def test_a_store_in_memory_dies_with_its_block(target: str, anyio_backend: str) -> None:
    async with flue_py.open(target) as store:
        await store.create_session(key="k")
        assert (await store.info()).backend == "memory"
    async with flue_py.open(target) as store:
        assert (await store.list_sessions()).sessions == ()


async def test_a_borrowed_engine_stays_its_owners(tmp_path: Path, anyio_backend: str) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/sessions.db")
    for _ in range(2):
        async with flue_py.open(engine=engine) as store:
            await say(await store.open_session("k", mode="get_or_create"), "a")
    async with engine.connect() as connection:
        assert (await connection.exec_driver_sql("SELECT count(*) FROM sessions")).scalar() == 1
    await engine.dispose()


@inputs(
    ("target", "hint"),
    [
        ("", "path"), (b"x", "path"), (None, "either"), ("sqlite:///x.db", r"sqlite\+aiosqlite"),
        ("postgres://h/x", r"postgresql\+asyncpg"), ("redis+py://x", "not one of"),
    ],
)  # fmt: skip
async def test_what_is_no_target_is_refused_with_a_hint(target: str, hint: str, anyio_backend: str) -> None:
    with pytest.raises(InvalidArgument, match=hint):
        async with flue_py.open(target):
            pass


async def test_impossible_choices_are_refused(tmp_path: Path, anyio_backend: str) -> None:
    path = tmp_path / "sessions.db"
    with pytest.raises(InvalidArgument, match="durability"):
        async with flue_py.open(path, durability="some"):  # type: ignore[arg-type]
            pass
    with pytest.raises(InvalidArgument, match="either"):
        async with flue_py.open(path, engine=object()):  # type: ignore[arg-type]
            pass
    with pytest.raises(InvalidArgument, match="create"):
        async with flue_py.open(f"sqlite+aiosqlite:///{path}", create=False):
            pass
    assert not path.exists()


async def test_without_create_a_missing_file_stays_missing(tmp_path: Path, anyio_backend: str) -> None:
    path = tmp_path / "sessions.db"
    with pytest.raises(flue_py.FixTheStore):
        async with flue_py.open(path, create=False):
            pass
    assert files_in(tmp_path) == []


async def test_time_and_ids_may_come_from_outside(target: str, anyio_backend: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = (start + timedelta(seconds=n) for n in range(100))
    names = (f"{letter}{n}" for letter in "abcdefgh" for n in range(3))
    async with flue_py.open(
        target, clock=lambda: next(times), ids=lambda: next(names), session_ids=lambda: "s-1"
    ) as store:
        session = await store.create_session()
        ids = await say(session, "x", "y")
        assert (session.id, ids) == ("s-1", ["a0", "a1"])
        entries = await session.get_tree()
        assert start < entries[0].created_at < entries[1].created_at


async def test_a_clock_without_a_time_zone_is_refused(target: str, anyio_backend: str) -> None:
    async with flue_py.open(target, clock=lambda: datetime(2026, 1, 1)) as store:  # noqa: DTZ001
        await raises(InvalidArgument, store.create_session(), match="time zone")
        assert (await store.list_sessions()).sessions == ()


async def test_generated_ids_are_16_hex_characters_each_its_own(target: str, anyio_backend: str) -> None:
    async with flue_py.open(target) as store:
        session = await store.create_session()
        ids = await say(session, *"abcdef")
        for each in (session.id, *ids):
            assert len(each) == 16
            assert set(each) <= set("0123456789abcdef")
        assert len(set(ids)) == 6


async def test_the_store_is_closed_also_when_the_block_fails(tmp_path: Path, anyio_backend: str) -> None:
    with pytest.raises(KeyError):
        async with flue_py.open(tmp_path / "sessions.db") as store:
            raise KeyError
    await raises(flue_py.StoreClosed, store.create_session())


async def test_what_was_entered_is_not_entered_again(tmp_path: Path, anyio_backend: str) -> None:
    opening = flue_py.open(tmp_path / "a.db")
    with pytest.raises(AttributeError, match=r"^create_session: enter flue_py.open\(...\) by .* and use the result"):
        opening.create_session()  # type: ignore[attr-defined]
    async with opening as store:
        session = await store.create_session()
        await raises(InvalidArgument, opening.__aenter__(), match=r"flue_py.open\(...\) was entered before")
        batch, call = store.atomic(), session.money.budgeted(tokens=1)
        for manager, what in ((batch, r"atomic\(\)"), (call, r"budgeted\(\)")):
            async with manager:
                pass
            await raises(InvalidArgument, manager.__aenter__(), match=f"^{what} was entered before")
        # The store goes on.
        await session.append_message({"role": "user", "content": "hello"})
        # An option of other calls is named, and not a function that nobody has called.
        await raises(TypeError, session.rewind(turns=0, source="x"), match="^source: is no argument of this call")
    with pytest.raises(InvalidArgument, match="was entered before, and is good for one block; call it once more"):
        await opening.__aenter__()


# -- A store refuses what is beyond its limits, and nothing changes -----------------------------------------------


TIGHT = flue_py.Limits(entry_bytes=200, batch_entries=2, metadata_bytes=50, task_depth=1, sessions_per_page=2)
SHORT = {"role": "user", "content": "short"}
LONG = {"role": "user", "content": "x" * 200}


@also_in_memory
async def test_limits_are_those_the_store_was_opened_with(target: str) -> None:
    async with flue_py.open(target) as store:
        assert store.limits == flue_py.Limits()
        session = await store.create_session()
        await session.append_message(LONG)
        await session.set_metadata({"note": "x" * 50})
    async with flue_py.open(target, limits=TIGHT) as store:
        assert store.limits == TIGHT
        if target != ":memory:":
            # What is there is read, whatever its size.
            found = existing(await store.get_session(session.id))
            assert await found.build_context() == [LONG]


async def test_what_is_beyond_a_limit_is_refused_and_changes_nothing(target: str) -> None:
    async with flue_py.open(target, limits=TIGHT) as store:
        session = await store.create_session(metadata={"a": 1})
        await session.append_messages([SHORT, SHORT])
        fork = await session.fork()
        for handle in (session, fork):
            await handle.set_metadata({"note": "x" * 30})
            before = await handle.refresh()
            await raises(InvalidEntry, handle.append_message(LONG), match="entry_bytes")
            await raises(InvalidEntry, handle.append_messages([SHORT, LONG]), match="entry 1 of 2")
            await raises(InvalidEntry, handle.append_messages([SHORT] * 3), match="batch_entries")
            with pytest.raises(InvalidEntry, match="batch_entries"):
                await handle.import_entries([NewEntry.custom("note", None)] * 3, leaf=None)
            await raises(InvalidArgument, handle.set_metadata({"note": "x" * 50}), match="metadata_bytes")
            await raises(InvalidArgument, handle.set_metadata({"more": "x" * 20}, merge=True), match="metadata_bytes")
            await raises(InvalidArgument, handle.fork(metadata={"note": "x" * 50}), match="metadata_bytes")
            after = await handle.refresh()
            assert after == before
        await raises(InvalidArgument, store.create_session(metadata={"note": "x" * 50}), match="metadata_bytes")
        with pytest.raises(InvalidEntry, match="batch_entries"):
            await store.import_session(flue_py.NewSession(), [NewEntry.custom("note", None)] * 3, leaf=None)
        await raises(InvalidArgument, store.list_sessions(limit=3), match="from 1 to 2")
        assert len((await store.list_sessions(limit=2)).sessions) == 2
        assert (await store.verify()).problems == []


async def test_a_task_may_be_as_deep_as_the_limit_says(target: str) -> None:
    deep = flue_py.Limits(task_depth=6)
    async with flue_py.open(target, limits=deep) as store:
        session = await store.create_session()
        for depth in range(1, 7):
            session = await session.tasks.create(task_id="t")
            assert session.metadata["depth"] == depth
        await raises(TaskDepthExceeded, session.tasks.create(task_id="t"), match="6")


async def test_what_is_no_limits_is_refused(target: str) -> None:
    with pytest.raises(InvalidArgument, match="limits"):
        async with flue_py.open(target, limits={"entry_bytes": 5}):  # type: ignore[arg-type]
            pass


# -- Names that nobody could type or show: refused for new sessions and entries, still found if already stored ----


BAD = ["a\x1b[31m", "\x07", "a\x7f", "a\x9bb"]


@inputs("bad", BAD)
async def test_new_names_with_control_characters_are_refused_and_shown_escaped(bad: str) -> None:
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:", ids=lambda: bad) as drawn:
        session = await store.create_session(id="fine")
        for what, make in (
            ("session id", lambda: store.create_session(id=bad)),
            ("key", lambda: store.create_session(key=bad)),
            ("key", lambda: store.open_session(bad, mode="get_or_create")),
            ("scope", lambda: store.create_session(scope=bad)),
            ("key", lambda: session.fork(key=bad)),
            ("key", lambda: session.tasks.create(task_id="t", key=bad)),
            ("task_id", lambda: session.tasks.create(task_id=bad)),
        ):
            refused = await raises(flue_py.InvalidArgument, make())
            assert str(refused.value) == f"{what}: {bad!r} holds a control character; leave it out"
        entry = flue_py.InvalidEntry
        with pytest.raises(entry, match="control character"):
            await session.import_entries([replace(NewEntry.custom("note", {}), id=bad)], leaf=None)
        made = await drawn.create_session(id="fine")
        with pytest.raises(flue_py.InvalidArgument, match="control character"):
            await made.append_message({"role": "user", "content": "x"})
        assert (await store.list_sessions()).sessions == (session.info,)
        assert (await session.refresh()).entry_count == 0


async def test_tabs_and_line_ends_and_every_letter_are_no_control_characters() -> None:
    async with flue_py.open(":memory:") as store:
        for name in ("a\tb", "a\nb", "日本 💥", "a/b:c"):
            assert (await store.create_session(id=name, key=name, scope=name)).id == name


@inputs("bad", BAD)
async def test_a_store_that_has_such_names_goes_on_as_it_was(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "store.db"
    with names_unchecked():
        async with flue_py.open(path) as store:
            session = await store.create_session(id=bad, key=bad, scope=bad)
            await session.import_entries([replace(NewEntry.custom("note", {}), id=bad)], leaf=bad)
    async with flue_py.open(path) as store:
        by_id = existing(await store.get_session(bad, scope=bad))
        by_key = await store.open_session(bad, scope=bad, mode="get_or_create")
        assert by_id.id == by_key.id == bad
        assert [entry.id for entry in await by_key.get_active_path()] == [bad]
        await by_key.append_message({"role": "user", "content": "more"})
        fork = await by_key.fork()
        await fork.tasks.create(task_id="t")
        assert {problem.kind for problem in (await store.verify()).problems} == {"unusable id"}


def rows_of(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


HEADER: dict[str, object] = {"type": "session", "version": 3, "id": "pi-1", "timestamp": "2026-01-01T00:00:00Z"}
ROW: dict[str, object] = {"type": "message", "parentId": None, "timestamp": "2026-01-01T00:00:00Z"}
SAID = {"message": {"role": "user", "content": "x"}}


@inputs("bad", BAD)
async def test_an_import_leaves_out_such_rows_says_so_and_refuses_such_sessions(tmp_path: Path, bad: str) -> None:
    file = tmp_path / "file.jsonl"
    async with flue_py.open(":memory:") as store:
        file.write_text(rows_of(HEADER, {**ROW, "id": bad, **SAID}, {**ROW, "id": "b", "parentId": bad, **SAID}))
        report = await flue_py.import_file(store, file, "pi")
        assert [note.line for note in report.skipped] == [2]
        assert repr(bad) in str(report.skipped[0])
        assert [note.line for note in report.repaired] == [3]
        file.write_text(rows_of({**HEADER, "id": bad}, {**ROW, "id": "b", **SAID}))
        with pytest.raises(flue_py.UnreadableFile, match="cannot be used; nothing was imported") as refused:
            await flue_py.import_file(store, file, "pi")
        assert repr(bad) in str(refused.value)
        file.write_text(rows_of({**HEADER, "id": "pi-2"}, {**ROW, "id": "b", **SAID}))
        with pytest.raises(flue_py.InvalidArgument, match="control character"):
            await flue_py.import_file(store, file, "pi", scope=bad)
        assert len((await store.list_sessions()).sessions) == 1


@inputs("bad", BAD)
async def test_a_row_of_claude_code_is_given_another_id_and_the_report_says_so(tmp_path: Path, bad: str) -> None:
    file = tmp_path / "file.jsonl"
    row: dict[str, object] = {"type": "user", "sessionId": "s1", "timestamp": "2026-01-01T00:00:00Z", **SAID}
    file.write_text(rows_of({**row, "uuid": "a", "parentUuid": None}, {**row, "uuid": bad, "parentUuid": "a"}))
    async with flue_py.open(":memory:") as store:
        report = await flue_py.import_file(store, file, "claude-code")
        assert [(note.line, repr(bad) in note.text) for note in report.repaired] == [(2, True)]
        session = await store.find_session("s1")
        first, second = await session.get_active_path()
        assert (first.id, second.parent_id) == ("a", "a")
        assert second.id.isprintable()


# -- Titles and turns of sessions with many messages that programs wrote in the user's name, in every format and
# store -----------------------------------------------------------------------------------------------------------


TEXTS = [*INSERTED, f"{INSERTED[9]}Fix the parser", "And the tests"]


def pi_rows() -> list[dict[str, Any]]:
    row = {"type": "message", "timestamp": "2026-01-05T10:00:01.000Z"}
    return [
        NOUMEN_HEADER,
        *(
            {
                **row,
                "id": f"e{n}",
                "parentId": f"e{n - 1}" if n else None,
                "message": {"role": "user", "content": text, "timestamp": n},
            }
            for n, text in enumerate(TEXTS)
        ),
    ]


def noumen_rows() -> list[dict[str, Any]]:
    row = {"type": "message", "sessionId": "n", "timestamp": "2026-02-01T09:00:00.000Z"}
    return [{**row, "uuid": f"u{n}", "message": {"role": "user", "content": text}} for n, text in enumerate(TEXTS)]


FILES: dict[str, Any] = {
    "pi": pi_rows(),
    "noumen": noumen_rows(),
    "claude-code": [claude_user(f"u{n}", f"u{n - 1}" if n else None, text) for n, text in enumerate(TEXTS)],
    "codex": [META, *(item(type="message", role="user", content=[{"type": "input_text", "text": t}]) for t in TEXTS)],
    "openai-chat": [{"role": "user", "content": text} for text in TEXTS],
    "openai-responses": [{"type": "message", "role": "user", "content": text} for text in TEXTS],
    "anthropic": {"max_tokens": 1, "messages": [{"role": "user", "content": text} for text in TEXTS]},
    "fuseraft-repl": {
        "SessionId": "a87569bcd7b0",
        "ModelId": "m",
        "StartedAt": "2026-05-25T14:32:00Z",
        "History": [{"Role": "user", "Contents": [{"Type": "text", "Text": text}]} for text in TEXTS],
    },
}


@inputs("format_name", FILES)
async def test_a_session_is_called_by_the_first_words_of_a_person_in_every_format(
    format_name: str, tmp_path: Path
) -> None:
    value = FILES[format_name]
    is_rows = format_name in ("pi", "noumen", "claude-code", "codex")
    file = tmp_path / "history"
    file.write_bytes(b"".join(as_lines(value)) if is_rows else json.dumps(value).encode())
    async with flue_py.open(":memory:") as store:
        report = await flue_py.import_file(store, file, format_name)
        session = existing(await store.get_session(report.session_id))
        assert session.info.shown_title == "Fix the parser"
        talk = Conversation(store, session)
        assert [turn.preview.endswith(("Fix the parser", "And the tests")) for turn in await talk.turns()] == [
            True,
            True,
        ]
        assert (await store.verify()).problems == []


async def test_going_back_counts_the_turns_that_a_person_began(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "store.db") as store:
        session = await store.create_session()
        for text in ("/clear", "one", INSERTED[9], "two"):
            await session.append_message({"role": "user", "content": text})
            await session.append_message({"role": "assistant", "content": f"to {text}"})
        assert [entry.fields["content"] for entry in await session.turns()] == ["one", "two"]
        text = await flue_py.transcript(session)
        assert text.count("## [Human] — Turn") == 2
        assert "## [Program] — Turn 1" in text
        await session.rewind(turns=1)
        assert (await session.build_context())[-1]["content"] == f"to {INSERTED[9]}"
        assert (await store.verify()).problems == []


# -- Files of a store: texts for agents to read, with a name in a project and a scope -----------------------------


async def test_a_file_is_added_replaced_listed_read_and_removed(store: Store) -> None:
    first = await store.add_file("a.md", "one", media_type="text/markdown", source="/tmp/a.md")
    assert (first.name, first.type, first.source, first.chars) == ("a.md", "text/markdown", "/tmp/a.md", 3)
    again = await store.add_file("a.md", "one", media_type="text/markdown", source="/tmp/a.md")
    assert again == first
    second = await store.add_file("a.md", "three")
    assert (second.chars, second.created_us) == (5, first.created_us)
    assert second.changed_us > first.changed_us
    await store.add_file("b.md", "other", project="/work")
    await store.add_file("c.md", "theirs", scope="them")
    assert [(file.project, file.name) for file in await store.files()] == [("", "a.md"), ("/work", "b.md")]
    assert [file.name for file in await store.files(project="/work")] == ["b.md"]
    assert [file.name for file in await store.files(project="")] == ["a.md"]
    assert [file.name for file in await store.files(scope="them")] == ["c.md"]
    assert existing(await store.read_file("a.md")).body == "three"
    assert await store.read_file("a.md", project="/work") is None
    assert await store.remove_file("a.md")
    assert not await store.remove_file("a.md")
    assert await store.read_file("a.md") is None


async def test_more_files_than_fit_a_page_are_listed(store: Store) -> None:
    for number in range(501):
        await store.add_file(f"{number:04}", "x")
    assert [file.name for file in await store.files()] == [f"{number:04}" for number in range(501)]


async def test_wrong_names_and_texts_are_refused_and_texts_not_shown(store: Store) -> None:
    wrong: Any
    for wrong in ("", " ", "a\nb", 5, None, "x" * 501):
        for call in (store.add_file(wrong, "x"), store.read_file(wrong), store.remove_file(wrong)):
            with pytest.raises(InvalidArgument, match="name"):
                await call
    for wrong in (5, None, b"x", "secret\0", "secret\ud800"):
        caught = await raises(InvalidArgument, store.add_file("a", wrong), match="body")
        assert "secret" not in str(caught.value)
    for given in ({"media_type": "a b"}, {"source": ""}, {"project": 5}, {"scope": 5}):
        await raises(InvalidArgument, store.add_file("a", "x", **given))  # type: ignore[arg-type]
    await raises(InvalidArgument, store.files(project=5))  # type: ignore[arg-type]
    assert await store.files() == ()


# -- Which session a name means: the same in the command line and in a conversation -------------------------------


SESSIONS = {
    "ab12cd34": "triage", "ab99": "ab12cd34-key", "7f01": "review-1", "7f02": "review-2", "7f0203": "7f0",
    "plain": "plain-1", "empty": "",
}  # fmt: skip
"""Ids, and the keys of these sessions."""

FOUND = {
    "ab12cd34": "ab12cd34", "AB12": "ab12cd34", "triage": "ab12cd34", "tri": "ab12cd34", "ab12cd34-": "ab99",
    "7f0": "7f0203", "7f02": "7f02", "review-2": "7f02", "pl": "plain", "": "empty",
}  # fmt: skip
"""Names, and the sessions that they mean: ids before keys, whole names before beginnings."""


async def test_a_name_means_one_session_everywhere(store: flue_py.Store) -> None:
    for session_id, key in SESSIONS.items():
        await store.create_session(id=session_id, key=key)
    talk = Conversation(store, await store.create_session(id="here"))
    assert {name: (await store.find_session(name)).id for name in FOUND} == FOUND
    assert {name: (await talk.find(name)).id for name in FOUND} == FOUND
    for name, error in {"review": AmbiguousId, "7": AmbiguousId, "PLAIN": SessionNotFound}.items():
        await raises(error, store.find_session(name))
        await raises(error, talk.find(name))


async def test_a_conversation_looks_in_its_scope_and_a_command_in_all(store: flue_py.Store) -> None:
    await store.create_session(id="aa01", key="mine", scope="one")
    await store.create_session(id="aa02", key="theirs", scope="two")
    talk = Conversation(store, await store.create_session(id="here", scope="one"))
    assert (await talk.find("aa")).id == (await talk.find("mi")).id == "aa01"
    assert (await store.find_session("the")).id == "aa02"
    for name in ("aa02", "theirs"):
        await raises(SessionNotFound, talk.find(name))
    await raises(AmbiguousId, store.find_session("aa0"))


def test_commands_find_ids_in_any_case(tmp_path: Path) -> None:
    flue = Flue(tmp_path)
    session = flue.import_every_type()
    fork = flue.json("fork", session, "--key", "triage")["id"]
    assert {flue.json("show", name)["id"] for name in (fork, fork[:9].upper(), "triage", "tri")} == {fork}


# -- What a report collects from a store --------------------------------------------------------------------------


def backend_of(session: flue_py.Session) -> Backend:
    backend: Backend = session._backend
    return backend


async def test_a_report_has_the_session_and_all_its_tasks_once(store: flue_py.Store) -> None:
    root = await store.create_session(title="root")
    one = await root.tasks.create(task_id="one")
    two = await root.tasks.create(task_id="two")
    deep = await one.tasks.create(task_id="deep")
    await store.link_task(two, deep, task_id="deep again")
    await store.link_task(deep, root, task_id="a cycle")
    await store.link_task(root, "gone", task_id="missing")
    found = await read_reported(backend_of(root), root.id)
    assert [(each.info.id, each.task_id, each.parent_id) for each in found] == [
        (root.id, None, None),
        (one.id, "one", root.id),
        (two.id, "two", root.id),
        (deep.id, "deep", one.id),
    ]


async def test_a_report_of_a_fork_has_what_the_fork_sees(store: flue_py.Store) -> None:
    root = await store.create_session()
    await root.append_messages([{"role": "user", "content": text} for text in "abc"])
    path = await root.get_active_path()
    fork = await root.fork(at=path[1].id)
    await fork.append_message({"role": "user", "content": "d"})
    await fork.marks.set_label(path[0].id, "begin")
    (found,) = await read_reported(backend_of(fork), fork.id)
    assert [entry.data["content"] for entry in found.entries] == ["a", "b", "d"]  # type: ignore[index, call-overload]
    assert found.labels == {path[0].id: "begin"}
    assert found.sizes.keys() == {entry.id for entry in found.entries}
    (unsized,) = await read_reported(backend_of(fork), fork.id, sizes=False)
    assert unsized.sizes == {}


async def test_the_report_of_a_session_is_the_same_at_every_call(store: flue_py.Store) -> None:
    session = await store.create_session(title="Red build")
    await session.append_message({"role": "user", "content": "why?"})
    page = await session.reports.html(warn_at=5)
    assert page == await session.reports.html(warn_at=5)
    assert page != await session.reports.html(warn_at=6)
    assert session.leaf_id in page


async def test_snapshots_name_the_session_and_the_agents(store: flue_py.Store) -> None:
    session = await store.create_session(title="Red build")
    task = await session.tasks.create(task_id="check")
    await task.append_message({"role": "assistant", "content": [], "usage": {"input": 3, "output": 1}})
    (line,) = (await session.reports.snapshots(cutover_at=9)).splitlines()
    row: dict[str, Any] = json.loads(line)
    assert (row["session"], row["agent"], row["cutover_at"]) == (session.id, "check", 9)


@inputs("limit", [-1, True, 1.5, "9", 2**63])
async def test_a_threshold_is_a_number_of_tokens(store: flue_py.Store, limit: Any) -> None:
    session = await store.create_session()
    await raises(InvalidArgument, session.reports.html(warn_at=limit), match=r"warn_at: .* is not a number of tokens")
    with pytest.raises(InvalidArgument, match=r"cutover_at: .* is not a number of tokens"):
        await session.reports.snapshots(cutover_at=limit)


async def test_a_deleted_session_has_no_report(store: flue_py.Store) -> None:
    session = await store.create_session()
    await store.delete_session_tree(session)
    await raises(flue_py.SessionNotFound, session.reports.html())


async def test_the_tasks_of_a_report_come_last_active_first(store: flue_py.Store) -> None:
    root = await store.create_session()
    for name, at_us in (("second", 2), ("last", 3), ("first", 1)):
        task = await root.tasks.create(task_id=name)
        said = replace(NewEntry.message({"role": "user", "content": "x"}), id=name, created_us=at_us * 10**6)
        await task.import_entries([said], leaf=name)
    sessions = data_of(await root.reports.html(sizes=False))["sessions"]
    assert [session["agent"] for session in sessions[1:]] == ["last", "second", "first"]
