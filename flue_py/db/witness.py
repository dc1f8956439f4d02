"""A runner that hands the head of each session to a witness as it is written, and refuses an older one."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from flue_py.core.chain import GOES_ON, Age, Head, Witness, check_methods
from flue_py.core.sessions import SessionInfo, SessionPage, is_storable
from flue_py.db import sql
from flue_py.db.ops import delete, seals, transfer
from flue_py.db.runner import (
    Insert,
    Nothing,
    Pages,
    Parameters,
    R,
    Runner,
    RunnerAround,
    SessionState,
    Statement,
    Transaction,
    Written,
)
from flue_py.errors import CorruptStore, FlueError, HistoryPutBack, SessionNotFound, StoreUnavailable, StoreWarning

Result = TypeVar("Result")
_PAGE, _SHOWN = 200, 3
_MOST_KNOWN = 100_000
"""How many sessions a process remembers to have compared."""

_ID = 2  # of the rows that `sql.INSERT_SESSION` takes


class _Unseen(Exception):
    """A session that this process has not compared with the witness yet."""


class _Watched(Transaction):
    """A transaction that notes which sessions it reads and which it writes."""

    def __init__(self, tx: Transaction, known: Collection[str] | None = None) -> None:
        self._tx, self._known = tx, known
        self.states, self.chain, self.stated = tx.states, tx.chain, tx.stated
        self.read: dict[str, int] = {}
        self._written: set[int] = set()
        self._created: set[str] = set()
        self._deleted: list[Head] = []

    @property
    def is_alone(self) -> bool:
        return self._tx.is_alone

    def saw(self, session_id: str, state: SessionState | None) -> None:
        name = str(session_id)
        self.read[name] = -1 if state is None else state.revision
        self._require(name)

    def _require(self, name: str) -> None:
        """Raise `_Unseen` before a write to a session that was not compared."""
        if self._known is not None and name not in self._known and name not in self._created:
            raise _Unseen(name)

    def heads(self) -> list[Head]:
        """Return the heads of the sessions that were written; those of deleted ones have no value."""
        return [*self._deleted, *self._tx.rows(seals.HEADS_OF_KEYS, keys=json.dumps(sorted(self._written)))]

    def _note_deleted(self, keys: Iterable[int]) -> None:
        doomed = self._tx.rows(seals.HEADS_OF_KEYS, keys=json.dumps(sorted(keys)))
        for head in doomed:
            self._require(head.session_id)
        self._deleted += [Head(head.session_id, head.revision, b"") for head in doomed]

    def require_snapshot(self) -> None:
        self._tx.require_snapshot()

    def lock_sessions(self, keys: Collection[int]) -> None:
        self._tx.lock_sessions(keys)

    def lock_session(self, session_id: str) -> None:
        self._tx.lock_session(session_id)

    def lock_named(self, session_ids: Collection[str]) -> None:
        self._tx.lock_named(session_ids)

    def new_key(self) -> int:
        return self._tx.new_key()

    def rows(self, statement: Statement[R], /, **parameters: object) -> Sequence[R]:
        return self._tx.rows(statement, **parameters)

    def pages(self, statement: Statement[R], /, **parameters: object) -> Pages[R]:
        return self._tx.pages(statement, **parameters)

    def first(self, statement: Statement[R], /, **parameters: object) -> R | None:
        return self._tx.first(statement, **parameters)

    def run(self, statement: Statement[Nothing], /, **parameters: object) -> int:
        if statement is delete.DELETE_SESSIONS:
            self._note_deleted(json.loads(str(parameters["keys"])))
        elif statement is transfer.DELETE_SESSION:
            self._note_deleted([int(str(parameters["session_key"]))])
        elif statement is sql.UPDATE_STATE:
            self._written.add(int(str(parameters["session_key"])))
        return self._tx.run(statement, **parameters)

    def run_many(self, statement: Statement[R], parameters: Sequence[Parameters]) -> None:
        if statement is seals.SET_HEAD:
            self._written.update(int(str(row["session_key"])) for row in parameters)
        self._tx.run_many(statement, parameters)

    def insert(self, statement: Insert[Written], rows: Sequence[Written]) -> None:
        if statement.sql == sql.INSERT_SESSION.sql:
            created = [tuple(row) for row in rows]
            self._written.update(row[1] for row in created)
            self._created.update(row[_ID] for row in created)
        self._tx.insert(statement, rows)


class WitnessedRunner(RunnerAround):
    """Runs transactions on another runner's database; a session is compared when this process first needs it."""

    def __init__(self, runner: Runner, witness: Witness, accepted: Collection[str] = ()) -> None:
        super().__init__(runner)
        check_methods("witness", witness, ("last", "take"))
        self._witness = witness
        self._accepted = {*accepted}
        self._known: dict[str, int] = {}
        self._late: dict[str, Head] = {}

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        written: list[Head] = []

        def watched(tx: Transaction) -> Result:
            watch = _Watched(tx, self._known)
            result = work(watch)
            written[:] = watch.heads()
            return result

        while True:
            try:
                result = await self._runner.write(watched, repeatable=repeatable)
            except _Unseen as unseen:
                await self._compare([str(unseen)])
                continue
            await self._take(written)
            return result

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        seen: dict[str, int] = {}

        def watched(tx: Transaction) -> Result:
            watch = _Watched(tx)
            seen.clear()
            try:
                return work(watch)
            finally:
                seen.update(watch.read)

        try:
            result = await self._runner.read(watched, loose=loose)
        except SessionNotFound:
            await self._compare_new(seen)
            raise
        if isinstance(result, SessionInfo):
            seen[result.id] = result.revision
        await self._compare_new(seen)
        if isinstance(result, SessionPage):
            await self._compare_new({info.id: info.revision for info in result.sessions}, takes=False)
        return result

    async def missed(self, session_id: str) -> None:
        await self._compare_new({session_id: -1})

    async def put_back(self, *, takes: bool) -> list[HistoryPutBack]:
        """Return an error for each session of the store that is not as it was seen last. O(sessions)."""
        names = [head.session_id for head in await self._runner.read(seals.list_heads)]
        pages = [names[at : at + _PAGE] for at in range(0, len(names), _PAGE)]
        return [error for page in pages for error in await self._put_back(page, takes=takes)]

    async def _compare_new(self, seen: dict[str, int], *, takes: bool = True) -> None:
        new = [name for name, revision in seen.items() if revision < self._known.get(name, revision + 1)]
        await self._compare(new, takes=takes)

    async def _compare(self, names: Sequence[str], *, takes: bool = True) -> None:
        for error in await self._put_back(names, takes=takes):
            raise error

    async def _put_back(self, names: Sequence[str], *, takes: bool = True) -> list[HistoryPutBack]:
        """Return an error for each session that is not what the witness saw, and does not go on from it.

        The witness is asked first: it sees a commit after the store has it. It ``takes`` what it did not see, or that
        is left to who reads the session, and so is a damaged one.
        """
        names = [name for name in names if is_storable(name)]
        if not names:
            return []
        last = await self._last(names)

        def find(tx: Transaction) -> list[tuple[str, Head | None, Age]]:
            found = list[tuple[str, Head | None, Age]]()
            for name in names:
                try:
                    found.append((name, *seals.head_after(tx, name, last.get(name))))
                except CorruptStore:
                    # With another key, all of them look damaged.
                    if takes or (tx.stated is not None and seals.stated_keys(tx) != tx.stated):
                        raise
            return found

        late, errors = list[Head](), list[HistoryPutBack]()
        for name, present, age in await self._runner.read(find):
            seen = last.get(name)
            if seen is not None and age not in GOES_ON and name not in self._accepted:
                errors.append(HistoryPutBack(name, seen.revision, None if present is None else present.revision))
                continue
            if not takes and age != "same":
                continue
            self._accepted.discard(name)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[name] = -1 if present is None else present.revision
            late += [] if present is None or age == "same" else [present]
            # One that is missing was accepted, as one that is gone.
            late += [Head(name, seen.revision, b"")] if seen is not None and age == "missing" else []
        if late:
            await self._take(late)
        return errors

    async def _last(self, names: Sequence[str]) -> Mapping[str, Head]:
        """Return the heads that the witness saw last: in one call if it has a method for that."""
        several: Callable[[Sequence[str]], Mapping[str, Head]] | None = getattr(self._witness, "last_of", None)

        def ask() -> Mapping[str, Head]:
            if several is not None:
                return several(names)
            heads = ((name, self._witness.last(name)) for name in names)
            return {name: head for name, head in heads if head is not None}

        try:
            return await self.waiting.call(ask)
        except FlueError:
            raise
        except Exception as error:
            who = ", ".join(map(repr, names[:_SHOWN]))
            problem = f"the witness cannot be asked for the head of session {who} ({error}); nothing was done"
            raise StoreUnavailable(problem) from error

    async def _take(self, new: Sequence[Head]) -> None:
        for head in new:
            self._known[head.session_id] = head.revision if head.value else -1
            self._late[head.session_id] = head
        if self._late:
            await self.waiting.finish(self.waiting.call(self._hand_in))

    def _hand_in(self) -> None:
        failures: dict[str, Exception] = {}
        for head in [*self._late.values()]:
            try:
                self._witness.take(head)
            except Exception as error:  # noqa: BLE001 - of the caller's: the commit is done, and is no failure
                failures[head.session_id] = error
                continue
            if self._late.get(head.session_id) is head:
                del self._late[head.session_id]
        if failures:
            known = "was written, and its witness does not know it yet"
            problem = "; ".join(f"session {name!r} {known} ({error})" for name, error in failures.items())
            warnings.warn(f"{problem}; its head goes with the next one", StoreWarning, stacklevel=2)

    async def close(self) -> None:
        if self._late:
            await self._take(())
        finish = getattr(self._witness, "flush", None)
        if finish is not None:
            await self.waiting.call(finish)
        await self._runner.close()
