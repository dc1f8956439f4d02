"""What a database has to bring: a `Runner` of transactions; and what an operation needs of it: statements in, rows out.

A `Statement` is SQL text with ``:name`` parameters, which both dialects read unless it says otherwise. The stdlib
driver takes the text as it is, SQLAlchemy takes it as `text()`, asyncpg with numbered and typed parameters.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from flue_py.core.frozen import frozen
from flue_py.errors import InvalidArgument

if TYPE_CHECKING:
    from sqlalchemy import TextClause
    from sqlalchemy.types import TypeEngine

    from flue_py.core.salvaging import BackupReport
    from flue_py.core.sessions import Problem
    from flue_py.store.schema.session_state import SessionState

Result = TypeVar("Result")
Written_co = TypeVar("Written_co", covariant=True)

Row: TypeAlias = tuple[Any, ...]
Parameters: TypeAlias = Mapping[str, object]

Durability: TypeAlias = Literal["full", "normal"]
"""Whether a commit waits until the disk has it, or a crash of the machine may take the last ones."""

_PARAMETER = re.compile(r"(?<!:):([a-z_0-9]+)")


@dataclass(frozen=True)
class Statement:
    """One SQL statement; ``postgres`` is its text where PostgreSQL needs another (see `sql.dialects`)."""

    sql: str
    postgres: str | None = None

    @cached_property
    def writes(self) -> bool:
        """Whether the statement changes anything."""
        return self.sql.startswith(("INSERT", "UPDATE", "DELETE"))

    @cached_property
    def positional(self) -> str:
        """The statement with ``?`` for its parameters, in the order of `parameters`: sqlite3's fastest way."""
        return _PARAMETER.sub("?", self.sql)

    @cached_property
    def clause(self) -> TextClause:
        """The statement as SQLAlchemy takes it, each parameter with its type."""
        from sqlalchemy import BigInteger, LargeBinary, Text, bindparam, text  # noqa: PLC0415 - only for an engine

        clause = text(self.sql)
        types: dict[str, TypeEngine[Any]] = {"text": Text(), "bytea": LargeBinary(), "bigint": BigInteger()}
        return clause.bindparams(
            *[bindparam(name, type_=types[parameter_type(name)]) for name in self.parameters if name]
        )

    @cached_property
    def numbered(self) -> str:
        """The statement for PostgreSQL, with ``$1::bigint`` for its parameters, in the order of `parameters`.

        Typed, because PostgreSQL would guess `integer` for a parameter that meets a small literal.
        """
        numbers = {name: number for number, name in enumerate(self.parameters, start=1)}
        return _PARAMETER.sub(
            lambda found: f"${numbers[found[1]]}::{parameter_type(found[1])}", self.postgres or self.sql
        )

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, in order of first use."""
        return tuple(dict.fromkeys(_PARAMETER.findall(self.sql)))


_TEXT = frozenset(
    [
        "id",
        "prefix",
        "end_prefix",
        "session_id",
        "scope",
        "key",
        "title",
        "auto_title",
        "kind",
        "metadata",
        "cwd",
        "config_path",
        "forked_from_session",
        "forked_from_entry",
        "leaf",
        "entry_id",
        "other_id",
        "parent_entry",
        "role",
        "source",
        "extra",
        "payload",
        "reason",
        "moved_by",
        "idempotency_key",
        "operation",
        "result",
        "mark",
        "value",
        "first_message",
        "task_id",
        "task_of",
        "child_id",
        "provider",
        "call_id",
        "purpose",
        "model",
        "agent",
        "project",
        "project_from",
        "project_to",
        "price_source",
        "outcome",
        "branch_name",
        "name",
        "from_entry",
        "to_entry",
        "ids",
        "keys",
        "tails",
        "last_text",
        "title_part",
        "outcome",
        "why",
        "what",
        "before",
        "after",
        "edited_by",
        "covers",
        "unit",
        "reservation_id",
        "state",
    ]
)
_BYTES = frozenset({"digest", "blob", "packed", "sha256", "data"})


def parameter_type(name: str) -> str:
    """Return ``text``, ``bytea`` or ``bigint``: a parameter's type follows from its name, everywhere the same."""
    return "text" if name in _TEXT else "bytea" if name in _BYTES else "bigint"


class Transaction(Protocol):
    """A transaction under way. Rows are plain tuples, in the order of the statement's columns."""

    @property
    def is_alone(self) -> bool:
        """Whether no other transaction writes meanwhile.

        If not, sessions have to be locked before they are read for writing, and keys are drawn, not counted.
        """

    def require_snapshot(self) -> None:
        """Go on where all statements see one moment, or raise `NeedsSnapshot`: the read is then run again on one."""

    def lock_sessions(self, keys: Collection[int]) -> None:
        """Wait until no other transaction writes to these sessions, and keep others out until the end."""

    def lock_session(self, session_id: str) -> None:
        """Do the same for one session by its id; one that is not there is no error."""

    def new_key(self) -> int:
        """Return a key for a new session (and its tree) that no session has or ever had."""

    states: dict[str, SessionState]
    """What earlier transactions of this writer left of sessions, by id: a cache, which may be empty at any time.

    An operation takes a state out when it starts, and puts one back when it knows what it left.
    """

    def rows(self, statement: Statement, parameters: Parameters) -> Sequence[Row]:
        """Return all rows."""

    def first(self, statement: Statement, parameters: Parameters) -> Row | None:
        """Return the first row, or None."""

    def run(self, statement: Statement, parameters: Parameters) -> int:
        """Run a statement that writes; return how many rows it touched."""

    def run_many(self, statement: Statement, parameters: Sequence[Parameters]) -> None:
        """Run a statement that writes once per set of parameters."""

    def insert(self, statement: Statement, rows: Sequence[Row]) -> None:
        """Run an INSERT once per row; a row has the statement's parameters in their order."""


class NeedsSnapshot(Exception):
    """A read whose statements each saw their own moment cannot tell whether what they saw belongs together."""


class IdTaken(Exception):
    """A unique key was violated by an id that was just generated."""


class CommittedBeforeCancellation(asyncio.CancelledError):
    """The caller was cancelled when the commit had begun: it was finished first, and this is what it returned."""

    def __init__(self, result: object) -> None:
        self.result = result
        super().__init__()


@frozen
class Sources:
    """Where time and ids come from. Tests inject them; generated ids that collide are asked for again."""

    now_us: Callable[[], int]
    entry_id: Callable[[], str]
    session_id: Callable[[], str]


class Plan(Protocol[Written_co]):
    """A write that was checked and placed, and is not written yet."""

    def write(self, tx: Transaction) -> Written_co:
        """Write it; return the result."""


class Runner(Protocol):
    """Runs transactions on a database."""

    @property
    def backend_name(self) -> str:
        """What kind of store this is, for `info`."""

    @property
    def location(self) -> str:
        """Where the database is, without secrets."""

    async def size_bytes(self) -> int | None:
        """Return how large the database is on disk, where that can be told."""

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        """Run ``work`` in a transaction that may write; it is durable when this returns.

        ``work`` may be run again, from the start, after a rollback; where it is ``repeatable``, which means that a
        second run does nothing more, also where the connection was lost while committing.
        """

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        """Run ``work`` on one snapshot.

        ``loose`` says that it can do without: that it is one statement, or checks that what several have found fits
        together (see `Transaction.require_snapshot`). Then a database may save the round trips of a transaction.
        """

    async def storage_problems(self) -> list[Problem]:
        """Return what the database's own checks find."""

    def wakeups(self, session_id: str) -> AsyncIterator[None]:
        """Yield at once, then whenever the session may have changed, here or elsewhere; end when the store is closed.

        What is committed after a wake-up brings another one.
        """

    async def land(self, session_id: str, plan: Callable[[Transaction], Plan[Result] | Result]) -> Result | None:
        """Return what a planned write did in one round trip, or None, with nothing done, where it takes a transaction.

        Of use to databases for which a transaction is several round trips.
        """
        del session_id, plan
        return None

    async def backup(
        self, target: Path, *, overwrite: bool, verified: bool, progress: Callable[[int, int], None] | None
    ) -> BackupReport:
        """Copy the database into a file, where it is one (see `Backend.backup`)."""
        del target, overwrite, verified, progress
        raise InvalidArgument(
            f"{self.location} is no file, so there is nothing to back up; copy it into one with flue-py copy, "
            "or use what its server brings (pg_dump)"
        )

    async def close(self) -> None:
        """Finish what was started and let go."""
