"""Sessions of the SDK's own files, `SQLiteSession` and `AdvancedSQLiteSession`, brought into a store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from flue_py.adapters.access import Access, Target
from flue_py.adapters.keys import key_of, metadata_of
from flue_py.adapters.openai_agents.below import MAIN, Below
from flue_py.adapters.openai_agents.items import Call, entries_of
from flue_py.core.entries import NewEntry, to_microseconds
from flue_py.core.ids import derived_id
from flue_py.core.sessions import NewSession
from flue_py.errors import InvalidArgument, SessionNotFound, UnreadableFile
from flue_py.sessions.store import Store


@dataclass(frozen=True, slots=True)
class ImportedSessions:
    """What an import did: the ids of the sessions and, as (session, branch), of the branches that it made.

    ``already_there`` are sessions whose key the store had before; they were left as they are, but for branches of
    theirs that were missing. ``skipped`` counts rows whose item is not JSON, which the SDK skips, too.
    """

    sessions: tuple[str, ...]
    branches: tuple[tuple[str, str], ...]
    already_there: tuple[str, ...]
    skipped: int


@dataclass(frozen=True, slots=True)
class _Row:
    id: int
    turn: int | None
    item: object
    created_us: int | None


async def import_sqlite_sessions(
    path: str | Path,
    target: Target,
    *,
    sessions_table: str = "agent_sessions",
    messages_table: str = "agent_messages",
) -> ImportedSessions:
    """Import the sessions of a file of the SDK, branches and usage included, and report what was done.

    The file is only read. What is there already is left alone, so that the same import can be run again, also after one
    that broke off. Raises `UnreadableFile` if the file is not the SDK's. O(file).
    """
    access = Access(target)
    try:
        with closing(_opened(Path(path), sessions_table, messages_table)) as file:
            source = _Source(file, sessions_table, messages_table)
            done = _Done()
            for session_id, created in source.sessions():
                await access.run(lambda store, id=session_id, at=created: _bring(store, source, id, at, done))  # type: ignore[misc]
            return ImportedSessions(
                tuple(done.sessions), tuple(done.branches), tuple(done.already_there), source.skipped
            )
    finally:
        await access.aclose()


class _Done:
    def __init__(self) -> None:
        self.sessions: list[str] = []
        self.branches: list[tuple[str, str]] = []
        self.already_there: list[str] = []


async def _bring(store: Store, source: _Source, session_id: str, created_us: int | None, done: _Done) -> None:
    """Import one session: its main branch, then the others, each from the longest beginning that is there."""
    known: dict[tuple[int, ...], tuple[str, str]] = {}
    try:
        await store.open_session(key_of(session_id))
        done.already_there.append(session_id)
        is_new = False
    except SessionNotFound:
        is_new = True
    for branch in source.branches(session_id):
        rows = source.rows(session_id, branch)
        path = tuple(row.id for row in rows)
        shared = next((n for n in range(len(path), 0, -1) if path[:n] in known), 0)
        at, owner = known.get(path[:shared], (None, MAIN))
        entries, ends = _chained(rows[shared:], session_id, branch, at, source.usage(session_id, branch))
        for number, end in enumerate(ends, shared + 1):
            known.setdefault(path[:number], (end, branch))
        leaf = entries[-1].id if entries else at
        if branch == MAIN:
            if is_new:
                new = NewSession(
                    key=key_of(session_id), metadata_text=json.dumps(metadata_of(session_id)), created_us=created_us
                )
                await store.import_session(new, entries, leaf=leaf)
                done.sessions.append(session_id)
            continue
        if await _branch(store, Below(session_id), owner, at, branch, entries):
            done.branches.append((session_id, branch))


async def _branch(
    store: Store, below: Below, owner: str, at: str | None, branch: str, entries: Sequence[NewEntry]
) -> bool:
    """Make a branch at an entry of another one, with entries of its own; return whether anything was missing."""
    fork = (await below.branches(store)).get(branch)
    is_new = fork is None
    if fork is None:
        await below.switched(store, owner)
        await below.branched(store, at, branch, branch)
        fork = await below.made(store)
    if not entries or await fork.get_entry(str(entries[0].id)) is not None:
        return is_new
    await fork.import_entries(entries, leaf=entries[-1].id)
    return True


def _chained(
    rows: Sequence[_Row], session_id: str, branch: str, parent: str | None, usage: dict[int, list[Call]]
) -> tuple[list[NewEntry], list[str]]:
    """Return rows as a chain of entries, and the id that each row ends with. Each turn has the calls it paid for."""
    names: dict[str, str] = {}
    entries: list[NewEntry] = []
    ends: list[str] = []
    for turn, grouped in groupby(rows, key=lambda row: row.turn):
        group = list(grouped)
        calls = usage.get(turn, []) if turn is not None else []
        made = entries_of([row.item for row in group], names, calls)
        for number, entry in enumerate(made):
            row = group[min(number, len(group) - 1)]
            # An entry for calls without an answer comes behind the rows of its turn.
            what = "item" if number < len(group) else "usage"
            own = derived_id("openai-agents", session_id, branch, row.id, what)
            entries.append(replace(entry, id=own, parent_id=parent, created_us=row.created_us))
            parent = own
            if number < len(group):
                ends.append(own)
        ends[-1] = parent or ends[-1]
    return entries, ends


def _opened(path: Path, sessions_table: str, messages_table: str) -> sqlite3.Connection:
    for table in (sessions_table, messages_table):
        if not isinstance(table, str) or not table.isidentifier():
            raise InvalidArgument(f"table: {table!r} is not the name of a table")
    file = None
    try:
        file = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        file.execute(f"SELECT session_id, message_data, created_at FROM {messages_table} LIMIT 0")  # noqa: S608 - checked
        file.execute(f"SELECT session_id, created_at FROM {sessions_table} LIMIT 0")  # noqa: S608 - checked
    except sqlite3.Error as error:
        if file is not None:
            file.close()
        raise UnreadableFile(f"{path}: not a file of sessions of the OpenAI Agents SDK ({error})") from error
    return file


class _Source:
    """What is in a file of the SDK."""

    def __init__(self, file: sqlite3.Connection, sessions_table: str, messages_table: str) -> None:
        self._file = file
        self._sessions, self._messages = sessions_table, messages_table
        tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self._has_branches = {"message_structure", "turn_usage"} <= tables
        self.skipped = 0

    def sessions(self) -> list[tuple[str, int | None]]:
        query = f"SELECT session_id, created_at FROM {self._sessions} ORDER BY created_at, session_id"  # noqa: S608 - checked
        return [(id, _microseconds(at)) for id, at in self._file.execute(query)]

    def branches(self, session_id: str) -> list[str]:
        """Return the main branch, and the others in the order they were made."""
        if not self._has_branches:
            return [MAIN]
        query = "SELECT branch_id FROM message_structure WHERE session_id = ? GROUP BY branch_id ORDER BY MIN(id)"
        return [MAIN, *(name for (name,) in self._file.execute(query, [session_id]) if name != MAIN)]

    def rows(self, session_id: str, branch: str) -> list[_Row]:
        structured = f"""SELECT m.id, s.user_turn_number, m.message_data, m.created_at FROM message_structure s
            JOIN {self._messages} m ON m.id = s.message_id
            WHERE s.session_id = ? AND s.branch_id = ? ORDER BY s.sequence_number"""  # noqa: S608 - checked
        plain = f"SELECT id, NULL, message_data, created_at FROM {self._messages} WHERE session_id = ? ORDER BY id"  # noqa: S608 - checked
        found = self._file.execute(structured, [session_id, branch]).fetchall() if self._has_branches else []
        if not found and branch == MAIN and not self._is_structured(session_id):
            found = self._file.execute(plain, [session_id]).fetchall()
        return list(self._read(found))

    def usage(self, session_id: str, branch: str) -> dict[int, list[Call]]:
        """Return what each turn of a branch paid for: as many calls as there were, the first with the sum of them."""
        if not self._has_branches:
            return {}
        query = """SELECT user_turn_number, requests, input_tokens, output_tokens, total_tokens, input_tokens_details,
            output_tokens_details FROM turn_usage WHERE session_id = ? AND branch_id = ?"""
        found: dict[int, list[Call]] = {}
        for turn, requests, taken, made, total, of_input, of_output in self._file.execute(query, [session_id, branch]):
            whole: Call = {
                "input_tokens": taken,
                "output_tokens": made,
                "total_tokens": total,
                "input_tokens_details": json.loads(of_input or "{}"),
                "output_tokens_details": json.loads(of_output or "{}"),
            }
            found[turn] = [whole, *({} for _ in range((requests or 1) - 1))]
        return found

    def _is_structured(self, session_id: str) -> bool:
        query = "SELECT 1 FROM message_structure WHERE session_id = ? LIMIT 1"
        return self._has_branches and self._file.execute(query, [session_id]).fetchone() is not None

    def _read(self, found: list[tuple[int, int | None, str, str]]) -> Iterator[_Row]:
        for row_id, turn, data, at in found:
            try:
                item = json.loads(data)
            except (TypeError, ValueError):
                item = None
            if isinstance(item, dict):
                yield _Row(row_id, turn, item, _microseconds(at))
            else:
                self.skipped += 1


def _microseconds(text: object) -> int | None:
    """Return a time as SQLite writes it, in UTC; None if it is something else."""
    try:
        return to_microseconds(datetime.fromisoformat(str(text)).replace(tzinfo=UTC))
    except ValueError:
        return None
