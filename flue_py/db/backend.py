"""The keys of a store, and its promises: each method of `Backend` is one transaction of one operation.

The docstrings of `Backend` are the contract. `tests.contract` proves it on every runner. The transactions are
in `ops`, a file for each idea.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from flue_py.core.chain import UNKEYED, Chain, UncheckedChain
from flue_py.core.entries import NewEntry
from flue_py.core.json import NamedTuple
from flue_py.core.ledger import Amounts, Budget, Recorded, Reservation
from flue_py.core.operations import (
    Committed,
    CreateTask,
    EndTask,
    LinkTask,
    MoveLeaf,
    Operation,
    Redo,
    SetLabel,
    SetPin,
    Undo,
    UpdateSession,
    Write,
)
from flue_py.core.sessions import (
    ANY_SESSION,
    DEFAULT_LIMITS,
    LAST_ACTIVE_FIRST,
    NO_NOTE,
    STORED,
    Appended,
    Deletion,
    Expected,
    LeafChoice,
    Listing,
    Mark,
    NewSession,
    Note,
    OnConflict,
    Ordering,
    Problem,
    ScopeContents,
    Seen,
    SessionFilter,
    SessionInfo,
    SessionKind,
    SessionPage,
    StoreInfo,
    VerifyReport,
)
from flue_py.core.usage import CallDifference, PaidCall
from flue_py.db import ops, sql
from flue_py.db.ops.seals import NO_KEY, NOT_CHANGING, Stated
from flue_py.db.runner import Backup, KeyChanged, Plan, Runner, RunnerAround, Sources, Transaction, WordIndex, written
from flue_py.db.schema import FORMAT_VERSION
from flue_py.errors import (
    CorruptStore,
    FlueError,
    HistoryPutBack,
    InvalidArgument,
    StoreBusy,
    StoreClosed,
    StoreUnavailable,
    WrongKey,
)
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    from flue_py.core import erasure
    from flue_py.core.chain import Witness
    from flue_py.core.erasure import Redaction
    from flue_py.core.trees import BackupReport
    from flue_py.db import secrets
    from flue_py.db import witness as witnessing
    from flue_py.db.secrets import SecretFilter, SecretsChoice
else:
    erasure = lazy_module("flue_py.core.erasure")
    secrets = lazy_module("flue_py.db.secrets")
    witnessing = lazy_module("flue_py.db.witness")


MAX_TASK_DEPTH = DEFAULT_LIMITS.task_depth


P = ParamSpec("P")
Result = TypeVar("Result")


# ---------------------------------------------------------------------------------------------------------------------
# The keys of a store: which one its digests have, as every transaction finds it, and errors for those that lack it.

SHORTEST_KEY = 16
LONGEST_KEY = 64

Key: TypeAlias = bytes | Callable[[], bytes]
"""A key, or a function that fetches it."""

KeyChoice: TypeAlias = Key | Sequence[Key | None] | None
"""A key, or none, or several of which a store may have any: None among them stands for no key."""

_ATTEMPTS_TO_READ = 3
_OF_ODD_ROWS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


class Keys:
    """The keys that a caller has, by fingerprint. Nothing shows them."""

    def __init__(self, choice: KeyChoice, *, unchecked: bool = False) -> None:
        """Raise `InvalidArgument`, which never shows the key."""
        is_list = isinstance(choice, (list, tuple)) and len(choice) > 0
        several: Sequence[Key | None] = cast("Sequence[Key | None]", choice if is_list else (choice,))
        self.is_unchecked = unchecked
        keys = [_fetched_key(key) for key in several]
        chains = [UNKEYED if key is None else Chain(_checked_key(key)) for key in keys]
        if unchecked and chains != [UNKEYED]:
            raise InvalidArgument("unchecked: with a key a store is checked; leave out one of the two")
        self._chains = {chain.fingerprint: chain for chain in chains}

    @property
    def first(self) -> int:
        """The fingerprint of the first: that of a new store."""
        return next(iter(self._chains))

    def add(self, key: Key | None) -> int:
        """Have another key, too; return its fingerprint. Raises `InvalidArgument`."""
        fetched = _fetched_key(key)
        chain = UNKEYED if fetched is None else Chain(_checked_key(fetched))
        self._chains.setdefault(chain.fingerprint, chain)
        return chain.fingerprint

    def chain(self, stated: Stated, location: str) -> Chain:
        """Return the digests of a store that states this. Raises `WrongKey`."""
        if self.is_unchecked:
            return UncheckedChain()
        key, new_key = stated
        lacking = [number for number in stated if number != NOT_CHANGING and number not in self._chains]
        if not lacking:
            return self._chains[key] if new_key == NOT_CHANGING else self._chains[new_key].after(self._chains[key])
        raise WrongKey(f"{location} {_why_wrong_key(stated, lacking, is_keyed=self._chains.keys() != {NO_KEY})}")


def named_fingerprint(number: int) -> str | None:
    """Return a fingerprint as 16 hexadecimal digits; None for no key."""
    return None if number == NO_KEY else f"{number % 2**64:016x}"


def _key_name(number: int) -> str:
    name = named_fingerprint(number)
    return "no key" if name is None else f"key {name}"


def _why_wrong_key(stated: Stated, lacking: Sequence[int], *, is_keyed: bool) -> str:
    if stated.new_key != NOT_CHANGING:
        return (
            f"is changing from {_key_name(stated.key)} to {_key_name(stated.new_key)}, and"
            f" {' and '.join(map(_key_name, lacking))} was not given; give both (key=[new, old], --key-file twice), or"
            " run flue-py rekey again, which completes it"
        )
    if stated.key == NO_KEY:
        return "has no key; open it without one, or give it one by flue-py rekey"
    way = "was opened with another" if is_keyed else "was opened without one"
    return (
        f"needs the key with the fingerprint {named_fingerprint(stated.key)}, and {way}; give that key (key=,"
        " --key-file), or read it unchecked (unchecked=True, --unchecked)"
    )


def _fetched_key(key: Key | None) -> object:
    if not callable(key):
        return key
    try:
        return key()
    except Exception as error:
        raise InvalidArgument(f"key: the function raised {type(error).__name__}; nothing was opened") from error


def _checked_key(key: object) -> bytes:
    if not isinstance(key, bytes):
        raise InvalidArgument(f"key: a {type(key).__name__} is no key; give bytes, or a function that returns them")
    if not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        raise InvalidArgument(
            f"key: it has {len(key)} bytes; a key has {SHORTEST_KEY} to {LONGEST_KEY}, drawn at random"
        )
    return key


class Rekeyed(NamedTuple):
    """A change of a key: the fingerprints before and after it, and how many trees and entries it has gone through."""

    before: int
    after: int
    trees: int
    entries: int


_TREES_AT_ONCE = 200
_PAUSE_SECONDS = 0.025


class _Parts:
    """Runs work in transactions of some of it, and leaves others who write a moment now and then."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._paused_at = time.monotonic()

    async def run(self, part: Callable[..., ops.verify.Part[object]]) -> int:
        """Run each part as a transaction; return how many entries got another digest."""
        place, total = None, 0
        while True:
            place, count = await self._runner.write(partial(part, place=place), repeatable=True)
            total += count
            if time.monotonic() - self._paused_at > 2 * _PAUSE_SECONDS:
                # Whoever waits for SQLite's lock looks for it so often, and would not get it in between.
                await self._runner.waiting.pause(_PAUSE_SECONDS)
                self._paused_at = time.monotonic()
            if place is None:
                return total


def _trees_after(tx: Transaction, after: int) -> list[int]:
    return [tree_id for (tree_id,) in tx.rows(ops.seals.TREES, after_key=after, count=_TREES_AT_ONCE)]


class KeyedRunner(RunnerAround):
    """Runs transactions on another runner, each with the digests of the key that the store has then.

    Every write compares what the store states with what is known here: before the first commit of others can be
    built on in SQLite, in the statement that commits in PostgreSQL. A read finds out where digests do not match.
    """

    rekeyed_at_once = 1_000
    """How many entries, or sessions, get another key in one transaction."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self._keys = Keys(None)
        # Together, since other threads read them.
        self._known: tuple[Stated, Chain] = Stated(), UNKEYED

    async def take(self, keys: Keys) -> None:
        """Have these keys, and give the first to an empty store. Raises `WrongKey`."""
        self._keys = keys
        stated = await self._runner.read(ops.seals.stated_keys, loose=True)
        if stated == Stated() and keys.first != NO_KEY and not keys.is_unchecked:
            try:
                stated = await self._runner.write(lambda tx: ops.seals.state_first(tx, keys.first))
            except StoreUnavailable:
                # Of one that is open for reading only it is said that it has no key.
                keys.chain(stated, self.location)
                raise
        self._know(stated)

    def _know(self, stated: Stated) -> None:
        self._runner.forget_states()
        self._known = stated, self._keys.chain(stated, self.location)

    @property
    def _stated(self) -> Stated:
        return self._known[0]

    @property
    def chain(self) -> Chain:
        """The digests of the store, as far as it is known."""
        return self._known[1]

    @property
    def key(self) -> str | None:
        """The fingerprint of the store's key, None without one."""
        return named_fingerprint(self._stated.key)

    @property
    def keys(self) -> Keys:
        """The keys that were given."""
        return self._keys

    async def refresh(self) -> bool:
        """Look what the store states; return whether that is something else. Raises `WrongKey`."""
        stated = await self._runner.read(ops.seals.stated_keys, loose=True)
        has_changed = stated != self._stated
        if has_changed:
            self._know(stated)
        return has_changed

    def _reading(self, work: Callable[[Transaction], Result], tx: Transaction) -> Result:
        tx.stated, tx.chain = self._known
        if tx.stated[1] != NOT_CHANGING:
            tx.chain = ops.seals.over_seams(tx, tx.chain)
        return work(tx)

    def _writing(self, work: Callable[[Transaction], Result], tx: Transaction) -> Result:
        if tx.is_alone and not tx.states and ops.seals.stated_keys(tx) != self._stated:
            raise KeyChanged
        # Not by `_reading`: every append comes through here.
        tx.stated, tx.chain = self._known
        if tx.stated[1] != NOT_CHANGING:
            tx.chain = ops.seals.over_seams(tx, tx.chain)
        return work(tx)

    async def _is_former(self, known: tuple[Stated, Chain]) -> bool:
        """Return whether the keys are others than those known when a call began: another may have looked since."""
        return await self.refresh() or self._known is not known

    async def _again(
        self, error: KeyChanged | CorruptStore, known: tuple[Stated, Chain], call: Callable[[], Awaitable[Result]]
    ) -> Result:
        """Run a call that failed with an error once more, if that is because the key is another one now."""
        for _ in range(_ATTEMPTS_TO_READ):
            if not await self._is_former(known) and isinstance(error, CorruptStore):
                raise error
            known = self._known
            try:
                return await call()
            except (KeyChanged, CorruptStore) as another:
                error = another
        raise StoreBusy(f"{self.location}: its key is being changed; try again")

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        if self._keys.is_unchecked:
            raise StoreUnavailable(f"{self.location} was opened unchecked, and is for reading only; give its key")
        keyed, known = partial(self._writing, work), self._known
        try:
            return await self._runner.write(keyed, repeatable=repeatable)
        except (KeyChanged, CorruptStore) as error:
            return await self._again(error, known, lambda: self._runner.write(keyed, repeatable=repeatable))

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        async def checked() -> Result:
            known = self._known
            result = await self._runner.read(partial(self._reading, work), loose=loose)
            # All of them look damaged to who has the former key.
            if isinstance(result, SessionPage) and result.damaged and await self._is_former(known):
                raise KeyChanged
            return result

        known = self._known
        try:
            return await checked()
        except (KeyChanged, CorruptStore) as error:
            return await self._again(error, known, checked)
        except _OF_ODD_ROWS as error:
            await self._refuse_damage(error)
            raise

    async def _refuse_damage(self, error: Exception) -> None:
        """Raise `CorruptStore` for an error in a read of a damaged file: its columns may have anything."""
        problems = [] if isinstance(error, FlueError) else await self._runner.storage_problems()
        if problems:
            advice = "restore a backup, or run flue-py salvage"
            raise CorruptStore(f"{self.location} is damaged ({problems[0].detail}); {advice}") from error

    async def land(self, session_id: str, plan: Callable[[Transaction], Plan[Result] | Result]) -> Result | None:
        # A plan is of digests that are not compared when it lands.
        if self._keys.is_unchecked or self._stated.new_key != NOT_CHANGING:
            return None
        keyed, known = partial(self._writing, plan), self._known
        try:
            return await self._runner.land(session_id, keyed)
        except (KeyChanged, CorruptStore) as error:
            return await self._again(error, known, lambda: self._runner.land(session_id, keyed))

    async def rekey(
        self, key: Key | None, tell: Callable[[int, int], None] | None = None, outer: Runner | None = None
    ) -> Rekeyed:
        """Give the store another key (see `Backend.rekey`). The trees are written on ``outer``, by default on this."""
        number, parts, most = self._keys.add(key), _Parts(outer or self), self.rekeyed_at_once
        await self.refresh()
        before, under_way = self._stated
        if under_way not in (number, NOT_CHANGING):
            raise WrongKey(
                f"{self.location} is changing to {_key_name(under_way)}: complete that by flue-py rekey before another"
            )
        trees, entries, last = 0, 0, -1
        if number != before or under_way != NOT_CHANGING:
            await self._state(Stated(before, number))
            (total,) = await self.read(lambda tx: tx.first(ops.seals.COUNT_TREES), loose=True) or (0,)
            while page := await self.read(partial(_trees_after, after=last), loose=True):
                for last in page:
                    for part in (ops.verify.rekey_entries, ops.verify.rekey_sessions):
                        entries += await parts.run(partial(part, tree_id=last, most=most))
                    trees += 1
                    if tell is not None:
                        tell(trees, max(total, trees))
            await parts.run(partial(ops.verify.rekey_payers, most=most))
            await parts.run(partial(ops.documents.rekey_documents, most=most))
            await self._state(Stated(number))
        # Until here they say to who has read an entry before, and to a witness, what a digest was then.
        while await self.write(partial(ops.seals.drop_seams, count=most), repeatable=True):
            pass
        return Rekeyed(before, number, trees, entries)

    async def _state(self, stated: Stated) -> None:
        await self.write(lambda tx: ops.seals.state_keys(tx, stated), repeatable=True)
        await self.refresh()

    async def backup(self, wanted: Backup) -> BackupReport:
        return await self._runner.backup(replace(wanted, chain=self.chain))


# ---------------------------------------------------------------------------------------------------------------------
# The operations, each a method.


def _read(
    function: Callable[[], Callable[Concatenate[Transaction, P], Result]], *, loose: bool = False
) -> Callable[Concatenate[Backend, P], Coroutine[object, object, Result]]:
    """Return a method that runs a function of a transaction, whose module is loaded when it is first called."""

    async def method(self: Backend, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._runner.read(lambda tx: function()(tx, *args, **kwargs), loose=loose)

    return method


def _read_at(
    function: Callable[[], Callable[Concatenate[Transaction, Sources, P], Result]],
) -> Callable[Concatenate[Backend, P], Coroutine[object, object, Result]]:
    """Do the same with a function that takes the time from the store's sources."""

    async def method(self: Backend, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._runner.read(lambda tx: function()(tx, self._sources, *args, **kwargs))

    return method


def _write(
    function: Callable[[], Callable[Concatenate[Transaction, P], Result]], *, repeatable: bool = False
) -> Callable[Concatenate[Backend, P], Coroutine[object, object, Result]]:
    """Do the same with a function that writes."""

    async def method(self: Backend, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._runner.write(self._with_values(function(), *args, **kwargs), repeatable=repeatable)

    return method


def _write_at(
    function: Callable[[], Callable[Concatenate[Transaction, Sources, P], Result]], *, repeatable: bool = False
) -> Callable[Concatenate[Backend, P], Coroutine[object, object, Result]]:
    """Do the same with a function that takes ids and the time from the store's sources."""

    async def method(self: Backend, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        work = self._with_values(function(), self._sources, *args, **kwargs)
        return await self._runner.write(work, repeatable=repeatable)

    return method


def _does(kind: Callable[P, Write[Result]]) -> Callable[Concatenate[Backend, P], Coroutine[object, object, Result]]:
    """Return a method that does an operation, and takes its fields."""

    async def method(self: Backend, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self.do(kind(*args, **kwargs))

    return method


def _is_repeatable(operation: object) -> bool:
    """Return whether an operation can be done twice: one that changes no leaf, unless it expects a revision that it
    ends itself, and one with a key.
    """
    if isinstance(operation, (CreateTask, MoveLeaf)):
        return isinstance(operation, CreateTask) or operation.idempotency_key is not None
    if isinstance(operation, (LinkTask, EndTask, UpdateSession, SetLabel, SetPin)):
        return not (isinstance(operation.expected, Seen) and operation.expected.revision is not None)
    return False


class Backend:
    """One store of sessions. A method's docstring says its own promises. These hold for all of them.

    Atomicity: a call is one transaction. A write happens as a whole or not at all, and a call that raises has
    changed nothing. A read sees one moment. Calls may run at the same time; writes to one session never interleave.

    Leaf: a method with ``expected`` compares it with the stored one, in the transaction: a leaf, or a `Seen`, which may
    have a revision, too. It raises `RevisionConflict` if the revisions differ, else `LeafConflict` if the leaves do;
    ``STORED`` takes whatever is stored. A read with ``leaf`` is of the path to it: ``STORED`` is the stored leaf, None
    is no entry, and any other must be an entry that the session sees (`EntryNotFound`).

    Order: "in order of id" means by code point, so that it is the same on every database.

    Repeating: a read can be repeated. A write is done once more by each call, unless its docstring says otherwise. With
    an ``idempotency_key`` the second call of the same content returns the first result and changes nothing; other
    content, or another operation, under the same key raises `IdempotencyConflict`.

    Errors: `SessionNotFound` for a session that is missing or deleted, unless the method returns None for it;
    `InvalidArgument` for a text to be written that cannot be stored; `StoreClosed` after `close`; and those of the
    database: `StoreBusy`, `OutcomeUnknown`, `StoreUnavailable`, `CorruptStore`. A caller who is cancelled while a
    commit is under way is cancelled when it is done, with `CommittedBeforeCancellation` as the cause.

    Cost: in rows read and written, each found by an index. No method's cost grows with the history unless it says so.
    """

    def __init__(self, runner: Runner, sources: Sources) -> None:
        self._runner: Runner
        self._runner = self._keyed = KeyedRunner(runner)
        self._most_landed = runner.most_landed
        self._sources = sources
        self._secrets: SecretFilter | None = None
        self.waiting = runner.waiting

    def _with_values(
        self, function: Callable[Concatenate[Transaction, P], Result], /, *values: P.args, **named: P.kwargs
    ) -> Callable[[Transaction], Result]:
        """Return a function of a transaction with the values that it writes: each write but a removal is made here."""
        if self._secrets is not None:
            return self._secrets.with_values(function, *values, **named)
        return lambda tx: function(tx, *values, **named)

    def filter_secrets(self, choice: SecretsChoice) -> None:
        """Mask or refuse secrets in whatever is written from now on, which raises `SecretRefused` then.

        Raises `InvalidArgument` for another choice, and `MissingExtra` without the extra ``secrets``. O(1).
        """
        self._secrets = secrets.SecretFilter(choice)

    async def take_keys(self, keys: Keys) -> None:
        """Check and make digests by one of these keys, the first for a store that has neither a key nor a session.

        Raises `WrongKey` if the store has none of them. O(1).
        """
        await self._keyed.take(keys)

    async def rekey(self, key: Key | None, tell: Callable[[int, int], None] | None = None) -> Rekeyed:
        """Give the store another key, or none, while others read and write who have both.

        First it states both, then trees are changed in transactions of 1,000 entries at most, then it states the new
        one alone. Where it was ended before, the same call goes on with that. A witness takes the new heads with each
        commit; a session that is not as it was seen, or as the change has left it, is `HistoryPutBack` before anything
        is changed. ``tell`` is told of trees that are done, and of trees in all. Raises `WrongKey` while it changes to
        another one. O(store).
        """
        # Once they have other digests, nobody can tell which of them were put back.
        for error in await self._put_back(takes=True):
            raise error
        return await self._keyed.rekey(key, tell, self._runner)

    async def _put_back(self, *, takes: bool) -> list[HistoryPutBack]:
        """Return an error for each session that is not as the witness, if there is one, saw it last. O(sessions)."""
        return await self._runner.put_back(takes=takes) if isinstance(self._runner, witnessing.WitnessedRunner) else []

    @property
    def is_unchecked(self) -> bool:
        """Whether it is read without checking a digest, and not written."""
        return self._keyed.keys.is_unchecked

    @cached_property
    def _words_turn(self) -> AbstractAsyncContextManager[object]:
        """Whose turn it is with the index of words, in all stores of the loop that have this database. Who waits for
        another one in SQLite blocks a thread: with all threads blocked, the one that holds the index could not go on.
        """
        return self.waiting.shared_turn(self._runner.words_name)

    def show_heads(self, witness: Witness, accepted: Collection[str] = ()) -> None:
        """Hand the heads of sessions to a witness from now on, and refuse an older one but for those ``accepted``.

        Raises `InvalidArgument` for what has not both methods of one; what reads or writes a session raises
        `HistoryPutBack` from then on. O(1).
        """
        self._runner = witnessing.WitnessedRunner(self._runner, witness, accepted)

    list_heads = _read(lambda: ops.seals.list_heads)
    """Return the heads of all sessions, in order of id. Raises nothing of its own. O(sessions)."""

    compare_heads = _read(lambda: ops.seals.compare_heads)
    """Return what is there of each of these heads, in their order. Raises `CorruptStore`. O(heads)."""

    async def do(self, operation: Write[Result]) -> Result:
        """Do one operation on a session that is there, as its own method does: `atomic` does several.

        Raises as `atomic` does. O(the operation).
        """
        work = self._with_values(ops.edit.perform, self._sources, cast("Operation", operation))
        return cast("Result", await self._runner.write(work, repeatable=_is_repeatable(operation)))

    # -- sessions -------------------------------------------------------------------------------------------

    create_session = _write_at(lambda: ops.sessions.create_session)
    """Create a root session with an empty history, and return it.

    Raises `SessionExists` for a taken key or id. O(1).
    """

    async def get_session(self, session_id: str, scope: str | None = None) -> SessionInfo | None:
        """Return the session; None if it is missing, or in another scope than the one named.

        Raises nothing of its own. O(1).
        """
        info = await self._runner.read(lambda tx: ops.sessions.get_session(tx, session_id, scope), loose=True)
        if info is None:
            await self._runner.missed(session_id)
        return info

    get_session_by_key = _read(lambda: ops.sessions.get_session_by_key, loose=True)
    """Return the session with this key in this scope, or None. Raises nothing of its own. O(1)."""

    async def list_sessions(
        self,
        *,
        scope: str | None,
        kind: SessionKind | None,
        limit: int,
        cursor: str | None,
        where: SessionFilter = ANY_SESSION,
        ordering: Ordering = LAST_ACTIVE_FIRST,
    ) -> SessionPage:
        """Return a page of the sessions that ``where`` asks for, by default most recently active first.

        Sessions that are equal in that order are in the order they were made, reversed where ``ordering`` descends. A
        session that changes while pages are read may be met twice or not at all, every other exactly once. Raises
        `InvalidArgument` for a limit below 1, and for a cursor that is malformed or of another order. Damaged sessions
        are named (`SessionPage.damaged`), and the others are there. O(page) by
        activity, creation or title without a filter that passes sessions over; else O(sessions), of these scopes.
        """
        listing = Listing(scope, kind, where, ordering)
        return await self._runner.read(lambda tx: ops.sessions.list_sessions(tx, listing, limit, cursor), loose=True)

    session_heads = _read(lambda: ops.sessions.session_heads, loose=True)
    """Return the head of every session, for a search, most recently active last.

    Raises `CorruptStore` if one has no counts. O(sessions), of which little is read.
    """

    stored_bytes = _read(lambda: ops.sessions.stored_bytes)
    """Return how many bytes the payloads of the entries take that each session has added, by id; those it lacks have 0.

    What several entries share counts for each of them. Raises nothing of its own. O(store).
    """

    get_sessions = _read(lambda: ops.read.get_sessions)
    """Return these sessions, in the order given: None for one that is missing.

    Raises nothing of its own. O(ids), a statement for every 5,000 ids.
    """

    async def open_words(self, version: int) -> WordIndex | None:
        """Open the index of words beside the store; None where there is none, and can be none.

        One that was made for another ``version`` of texts, or is broken, is made anew. Raises
        `StoreUnavailable` where its file cannot be written. O(1).
        """
        return await self._runner.open_words(version, self._words_turn)

    async def remove_words(self) -> None:
        """Remove the index of words; the next search makes it anew. Raises `StoreUnavailable`. O(1)."""
        async with self._words_turn:
            await self._runner.remove_words()

    async def words_location(self) -> str | None:
        """Return where the index of words lies; None if there is none yet. Raises nothing of its own. O(1)."""
        return await self._runner.words_location()

    match_session_ids = _read(lambda: ops.sessions.match_session_ids, loose=True)
    """Return up to ``limit`` session ids that start with ``prefix``, in order of id.

    Raises nothing of its own. O(limit).
    """

    update_session = _does(UpdateSession)
    """Change the fields that are given, count one revision, log it, and return the session.

    ``metadata_text`` may be a function: it gets the stored metadata and returns the new ones, in the same
    transaction. It may be called more than once, and its errors are raised here. Setting the same values again
    writes one more revision. Raises `InvalidArgument` for a title that is too long. O(1).
    """

    adopt_session = _write_at(lambda: ops.edit.adopt_session)
    """Give a session to another scope, with its paid calls and its budgets, and return it.

    It has only a bill, which the file of a fork repeated before its own was imported into that scope. Raises
    `SessionExists` for one with entries, a key or tasks, and for one that no import made. One revision. O(its
    calls).
    """

    create_task = _does(CreateTask)
    """Create a task session, link it to its parent where the parent's leaf is, as ``running``, and return it.

    A second call with the same (parent, task_id) returns the same child, and changes and compares nothing. Raises
    `SessionExists`, `IdempotencyConflict`, and `TaskDepthExceeded` beyond ``max_depth`` levels below the session
    that is not a task. O(1).
    """

    link_task = _does(LinkTask)
    """Link ``child_id``, which need not exist, to a parent; count one revision of the parent.

    ``entry_id`` names the entry of the parent below which the task began; it need not exist either. A second link
    to the same child changes nothing, but gives the first one its ``entry_id`` if it has none. A task with one
    parent is as deep as that says, and so are its own tasks. Raises nothing of its own. O(tasks below whose depth
    changes).
    """

    end_task = _does(EndTask)
    """Note on every link to a task session how it ended, and when; return the session.

    ``completed_us`` is the time. It is one revision of the task, and one of each parent whose link says something
    else; a call that says the same again changes nothing. A later one with another end takes its place: the
    parents' logs keep both. Raises `InvalidArgument` for a session that no link leads to. O(links to the task).
    """

    task_links = _read(lambda: ops.sessions.task_links)
    """Return the session's links to its task sessions, in the order they were made.

    Raises nothing of its own. O(links).
    """

    task_parents = _read(lambda: ops.sessions.task_parents)
    """Return the links that point to this session, in order of the parents' ids.

    Raises nothing of its own. O(links).
    """

    async def delete_tree(
        self,
        session_id: str,
        *,
        scope: str | None = None,
        expected: Expected = STORED,
        erased: erasure.Needles | None = None,
        despite: Collection[str] = (),
    ) -> Deletion:
        """Delete the session and the closure of its task links, and every entry that no other session sees.

        Several parents, cycles and missing children are allowed. A session that is missing, or is in another scope than
        the one named, deletes nothing: so does a second call; only one that is there is compared. Where a scope is
        named, tasks in another one are as missing, and stay. Ledger rows stay. Budgets of these sessions go; their
        reservations in others stay, to be settled or to expire. With ``erased`` it is an erasure: ledger rows lose
        agents and folders, what goes is overwritten, and ``erased`` takes what goes, for `forget_deleted`. Raises
        `OnHold` for holds on these sessions or their scopes that are not in ``despite``. O(rows deleted), a constant
        number of statements; an erasure O(their size).
        """

        def work(tx: Transaction) -> tuple[Deletion, erasure.Needles | None]:
            # It may be run again.
            needles = None if erased is None else erasure.Needles()
            delete = partial(ops.delete.delete_tree, tx, self._sources, session_id, scope, expected, despite=despite)
            return delete(erased=needles), needles

        deletion, needles = await self._runner.write(work)
        if erased is not None and needles is not None:
            erased.take(needles)
        await self._forget_words(deletion)
        return deletion

    plan_deletion = _read(lambda: ops.delete.plan_deletion)
    """Return the deletion of several sessions at once, as `delete_tree` would report it. Nothing goes.

    Raises as `delete_tree`, for each. O(entries that go), a constant number of statements and one for each session.
    """

    async def empty_scope(
        self, scope: str, *, dry_run: bool = False, erased: erasure.Needles | None = None, despite: Collection[str] = ()
    ) -> ScopeContents:
        """Delete the documents and the budgets of a scope, and from the ledger the texts of its calls.

        These are agents and folders; scope, ids, models, times and amounts stay. Its sessions are not deleted, and
        those that are there keep no budget. With ``dry_run`` they are only counted. ``erased`` is that of
        `delete_tree`. Raises `OnHold` for each hold on it or a session of it that is not in ``despite``. O(ledger +
        documents).
        """
        run = self._runner.read if dry_run else self._runner.write
        return await run(lambda tx: ops.delete.empty_scope(tx, scope, dry_run=dry_run, erased=erased, despite=despite))

    is_erasing = _read(lambda: ops.delete.is_erasing, loose=True)
    """Return whether an erasure has not come to its end: it goes on, or was killed. Raises nothing of its own. O(1)."""

    async def forget_deleted(self, needles: erasure.Needles, *, rebuild: bool = False) -> erasure.Look:
        """Leave nothing of what was erased in the database's files, and look for it in them and in all rows.

        To be called after the transactions of an erasure. With ``rebuild``, or if something is left in them, files
        are written anew. Raises nothing of its own. O(store).
        """
        look = await self._look(needles, rebuild=rebuild)
        if {trace.place for trace in look.traces} == {await self._runner.words_location()}:
            # Of the words in its texts there are long ones that others have in a row that is packed.
            await self.remove_words()
            look = await self._look(needles, rebuild=False)
        if look.traces and not look.hindrances and not rebuild:
            look = await self._look(needles, rebuild=True)
        if look.is_clean:
            await self._runner.write(lambda tx: tx.run(ops.delete.FINISHED), repeatable=True)
        return look

    async def _look(self, needles: erasure.Needles, *, rebuild: bool) -> erasure.Look:
        if rebuild:
            async with self._words_turn:
                await self._runner.remove_words()
        files = await self._runner.forget_deleted(needles, rebuild=rebuild)
        tables, rows = await self._runner.read(lambda tx: ops.delete.look_for_erased(tx, needles))
        return erasure.look_of(needles, files, tables, rows, rebuilt=rebuild)

    async def redact(
        self,
        session_id: str,
        entry_ids: Sequence[str],
        *,
        expected: Expected = STORED,
        note: Note = NO_NOTE,
        dry_run: bool = False,
        erased: erasure.Needles | None = None,
        despite: Collection[str] = (),
    ) -> Redaction:
        """Take the payloads of entries, and what derives from them, and leave tombstones with their digests.

        Of a tool's result that is stored apart, its artifact goes along. Previews, titles of programs that quote them,
        texts in results of batches, and attachments that nobody else has go in the same transaction, the words of an
        index after it; usage and ledger stay. The sessions that added the entries get a line in their logs. An entry
        that is a tombstone stays as it is, and a call of such alone writes nothing but takes their words from the index
        again. Then it is looked for in all files, and goes from there (`forget_deleted`); with ``erased``, which takes
        what goes, that is left to the caller. With ``dry_run`` nothing is changed, and the same is returned. Raises
        `EntryNotFound` for an entry that the session neither sees nor has retracted, and `OnHold` if a hold is on a
        session that sees one, and not in ``despite``. O(store).
        """

        def work(tx: Transaction) -> tuple[Redaction, erasure.Needles]:
            # It may be run again.
            needles = erasure.Needles()
            values = (session_id, entry_ids, expected, note, None if dry_run else needles, despite)
            return self._with_values(ops.delete.redact, self._sources, *values)(tx), needles

        was_killed = await self.is_erasing()
        redaction, needles = await (self._runner.read if dry_run else self._runner.write)(work)
        if dry_run:
            return redaction
        await self.waiting.finish(self._forget_in_turn(redaction.seen_by))
        if erased is not None:
            erased.take(needles)
            return redaction
        if not redaction.entry_ids and not was_killed:
            return redaction
        look = await self.waiting.finish(self.forget_deleted(needles, rebuild=was_killed))
        return replace(redaction, size=needles.size, look=look)

    async def _forget_words(self, *outcomes: object) -> None:
        """Remove deleted sessions from the index of words, too. The next search does that if this is killed."""
        session_ids = [name for deletion in outcomes if isinstance(deletion, Deletion) for name in deletion.session_ids]
        if session_ids:
            await self.waiting.finish(self._forget_in_turn(session_ids))

    async def _forget_in_turn(self, session_ids: Sequence[str]) -> None:
        async with self._words_turn:
            await self._runner.forget_words(session_ids)

    # -- history --------------------------------------------------------------------------------------------
    # A `Note` says who did something, and why; both texts are kept as given, for the log.

    async def append(
        self,
        session_id: str,
        entries: Sequence[NewEntry],
        *,
        expected: Expected = STORED,
        on_conflict: OnConflict = "raise",
        idempotency_key: str | None = None,
    ) -> Appended:
        """Add entries as a chain below ``expected``, in the order given, and move the leaf to the last one.

        With ``on_conflict="branch"`` another leaf makes the chain a sibling branch below the expected one instead, and
        nobody's leaf moves; with ``"rebase"`` it is appended below whatever leaf is stored (``parent_id``). An empty
        sequence changes nothing and only compares the leaf. An idempotency key is looked up before the leaf is compared
        (``replayed``). A paid call that was reported before with the same numbers counts once. Raises `LeafConflict`,
        `IdempotencyConflict`, `EntryNotFound` if ``expected`` (for a branch) is not an entry that the session sees, or
        an entry's reference neither such an entry nor another of these, `InvalidEntry` for an id that is taken, and
        `CallConflict` for a paid call that was reported before with other numbers. O(entries).
        """
        arguments = (self._sources, session_id, entries, expected, on_conflict, idempotency_key)
        return await self._carry_out(
            ops.append.plan_append, session_id, len(entries), idempotency_key is not None, *arguments
        )

    async def _carry_out(
        self,
        function: Callable[Concatenate[Transaction, P], Plan[Result] | Result],
        session_id: str,
        rows: int,
        repeatable: bool,
        /,
        *values: P.args,
        **named: P.kwargs,
    ) -> Result:
        """Write the plan of a function; `Runner.land` it where it is of few ``rows``, but of some."""
        plan = self._with_values(function, *values, **named)
        landed = await self._runner.land(session_id, plan) if 0 < rows <= self._most_landed else None
        if landed is not None:
            return landed
        return await self._runner.write(lambda tx: written(tx, plan(tx)), repeatable=repeatable)

    recall_append = _read(lambda: ops.append.recall_append)
    """Return the first result of the append under this key; None if there was none.

    Raises nothing of its own. O(1).
    """

    import_entries = _write_at(lambda: ops.append.import_entries)
    """Add entries that bring their own ids, parents and times, parents first, and set the leaf.

    A ``parent_id`` of None is a root; any other must be an entry that the session sees or an earlier one of the
    same call. ``leaf`` must be one that the session then sees, or None. Nothing is written if there are no entries
    and the leaf is there already. A paid call that was reported before with other numbers is named in
    ``call_conflicts``, and the ledger keeps the first, unless the call says that it ``replaces`` that one, and this
    session paid it. Raises `LeafConflict`, `EntryNotFound`, and `InvalidEntry` for an id that is taken: so does a
    second call. O(entries).
    """

    async def import_session(
        self,
        new: NewSession,
        entries: Sequence[NewEntry],
        *,
        leaf: str | None,
        marks: Sequence[Mark] = (),
        on_conflict: Callable[[CallDifference], None] | None = None,
    ) -> SessionInfo:
        """Create a session together with entries that bring their own ids, as `create_session` and `import_entries`.

        ``marks`` are labels and pins of these entries. ``on_conflict`` is called with each paid call that
        `Appended.call_conflicts` would name. Raises as `import_entries`; then there is no session. O(entries).
        """
        info, conflicts = await self._runner.write(
            self._with_values(ops.append.import_session, self._sources, new, entries, leaf, marks)
        )
        if on_conflict is not None:
            for conflict in conflicts:
                on_conflict(conflict)
        return info

    move = _does(MoveLeaf)
    """Set the leaf to any entry that the session sees, or to None.

    Idempotent: a move to where the leaf is already writes no revision. An idempotency key is looked up before the
    leaf is compared. Raises `LeafConflict`, `EntryNotFound`, `IdempotencyConflict`. O(1).
    """

    navigate = _write_at(lambda: ops.edit.navigate)
    """Set the leaf to any entry that the session sees, or to None, and append a summary below it, if there is one.

    Both are one revision, and one step of `undo`. A label is given to the summary, or else to ``labelled``, in a
    revision of its own of the same transaction. Raises `LeafConflict`, `EntryNotFound`, `InvalidArgument`. O(1).
    """

    retract = _write_at(lambda: ops.base.retract)
    """Retract a failed leaf message: the leaf steps back and, for this session, the entry leaves every view.

    Returns None, and changes nothing, unless ``entry_id`` is the stored leaf, a message, and childless for the
    session: so does a second call. The row, its cost and the move stay; `undo` brings it back. Raises nothing of
    its own. O(1).
    """

    undo = _does(Undo)
    """Return the leaf to where it was before the last operation not yet undone; None if there is none.

    Operations are appends (a batch is one), moves, retractions, imports, and going back. Each call undoes one more.
    Raises `LeafConflict`, and `EntryNotFound` if the entry to return to has been deleted. O(undos in a row).
    """

    redo = _does(Redo)
    """Do again the operation undone last; None if there is none, or a new one came since.

    Each call redoes one more. Raises as `undo` does. O(undos and redos in a row).
    """

    async def fork(
        self,
        session_id: str,
        at: LeafChoice,
        new: NewSession,
        *,
        scope: str | None = None,
        expected: Expected = STORED,
        idempotency_key: str | None = None,
    ) -> SessionInfo:
        """Create a session of the same tree whose leaf is ``at`` (default: the stored leaf). It copies nothing.

        The fork takes the scope of its source, unless it is given another. On the path that both share it sees the
        labels and pins of its source as they are at any time; its own win, and when the source is deleted, they stay.
        Where its id is that of a deleted session, the forks of that one name no source any more. Raises
        `EntryNotFound`, `SessionExists`, `IdempotencyConflict`, and `SessionNotFound` too if this request made a
        session that has been deleted since. O(1): one row; with an id, O(sessions of the tree).
        """
        arguments = (self._sources, session_id, at, new, expected, idempotency_key, scope)
        return await self._carry_out(ops.sessions.plan_fork, session_id, 1, idempotency_key is not None, *arguments)

    set_label = _does(SetLabel)
    """Label an entry that the session sees, in one revision; None or "" clears.

    Idempotent: setting the label that it has already writes no revision. Raises `EntryNotFound`, and
    `InvalidArgument` for a label that is too long. O(1).
    """

    set_pin = _does(SetPin)
    """Pin or unpin an entry with those that belong to it (a tool call and its results); return their ids in path order.

    A compaction that is appended later writes down which pinned entries lie on its path before its first kept entry
    (``pinnedEntryIds``); those of the latest compaction stay pinned until they are unpinned. Idempotent: if nothing
    changes, no revision is written. Raises `EntryNotFound`, and `InvalidArgument` for a kind that no
    context has. O(entries from the call to its last result, and the session's pins).
    """

    async def atomic(self, operations: Sequence[Operation], *, idempotency_key: str | None = None) -> Committed:
        """Do operations in one transaction, one after the other: all of them, or none.

        Each is a value that stands for a method of this class (`flue_py.core.operations`) and raises as that does; the
        error has the number of its ``operation``. An operation sees the results of earlier ones; an expected revision
        is the one before the batch. Ids of entries and sessions can be brought along (`new_entry_id`,
        `new_session_id`), so that a later operation can name an entry or session that an earlier one makes. If one with
        a key of its own was done before, later ones mean its first result. The ``idempotency_key`` is one for the whole
        batch, and belongs to the first session that it names and does not make itself. Raises `InvalidArgument` if
        there is none for the key. The sum of the costs, and O(sessions).
        """
        done = await self._runner.write(
            self._with_values(ops.edit.atomic, self._sources, operations, idempotency_key),
            repeatable=idempotency_key is not None,
        )
        await self._forget_words(*done.outcomes)
        return done

    recall_atomic = _read(lambda: ops.edit.recall_atomic)
    """Return the first result of each append of a batch with this key, and None for other operations.

    None if there was no batch of so many operations. Raises nothing of its own. O(operations).
    """

    def new_entry_id(self) -> str:
        """Return an id for an entry that is to be written, from where this store takes them.

        Raises nothing of its own. O(1).
        """
        return self._sources.entry_id()

    def new_session_id(self) -> str:
        """Return an id for a session that is to be made, from where this store takes them.

        Raises nothing of its own. O(1).
        """
        return self._sources.session_id()

    # -- reads ----------------------------------------------------------------------------------------------

    read_epoch = _read(lambda: ops.base.read_epoch, loose=True)
    """Return a number that changes when texts are erased: what was read in another one may be gone.

    Raises nothing of its own. O(1).
    """

    read_path = _read(lambda: ops.read.read_path, loose=True)
    """Return the entries from root to leaf; if the path goes on from the leaf of ``unless``, those behind that.

    Raises `EntryNotFound`. O(entries returned), by a range scan for each lane that they are in; with ``unless`` of
    another branch, those of this one are read twice from its depth on.
    """

    read_path_since = _read(lambda: ops.read.read_path_since)
    """Return the path's entries after ``since``, root to leaf: all for None, none if it is not on the path.

    Raises `EntryNotFound`. O(entries returned + forks on the path).
    """

    read_path_end = _read(lambda: ops.read.read_path_end, loose=True)
    """Return the last ``limit`` entries of the path, or fewer, root to leaf: the last whole exchanges.

    No tool call is left out whose result is returned (`core.exchange.tail_start`): they begin as early as that and
    ``limit`` allow. A last exchange that is longer than ``limit`` is returned whole. Raises `EntryNotFound`.
    O(limit + forks on the path), and up to the calls of the results in it: all of the path for one without a call.
    """

    read_context = _read(lambda: ops.read.read_context, loose=True)
    """Return the input of `context_of`: the kept part of the path, root to leaf, and the compaction.

    If that one has pinned entries, they come first, with the exclusions that lie before the kept part.
    As `read_path`, it goes on behind ``unless``, while the compaction is the same. No context shows artifacts, and the
    text cut out of them is neither read nor part of their payloads here. Raises `EntryNotFound`. O(kept entries + forks
    on the path), however long the history before them; with pins, also O(exclusions).
    """

    read_messages = _read(lambda: ops.read.read_messages, loose=True)
    """Return the messages that the projection of `read_context` gives, in its order, decoded afresh.

    Raises `EntryNotFound`. O(kept entries + forks on the path), and less for each than `read_context`.
    """

    read_context_end = _read(lambda: ops.read.read_context_end, loose=True)
    """Return the last ``limit`` items that `context_of` makes of `read_context`, or fewer: whole exchanges.

    They begin where `read_path_end` lets entries begin, counted in items. Raises `EntryNotFound`. O(entries that
    they come from + forks on the path), and up to the calls of the results in it; the cost of `read_context` where
    the context has not many more.
    """

    read_usage = _read(lambda: ops.sessions.read_usage, loose=True)
    """Return the usage after ``since`` up to the leaf: a difference of two stored sums.

    ``on_path=False``, and nothing used, if ``since`` is not on the path. Raises `EntryNotFound`. O(forks on the
    path).
    """

    read_turns = _read(lambda: ops.sessions.read_turns)
    """Return the messages of the path that a turn begins with (`begins_turn`), root to leaf.

    Raises `EntryNotFound`. O(user messages on the path + its forks).
    """

    read_settings = _read(lambda: ops.read.read_settings)
    """Return the model and the thinking level in force at a leaf, as `settings_on` finds them on its path.

    Raises `EntryNotFound`. O(entries since the last answer or change of model + forks on the path).
    """

    read_tree = _read(lambda: ops.sessions.read_tree)
    """Return every entry that the session sees: the inherited ones root first, then its own as they were added.

    Raises nothing of its own. O(entries).
    """

    get_entry = _read(lambda: ops.read.get_entry)
    """Return an entry that the session sees, or None. Raises nothing of its own. O(lanes the session builds on)."""

    find_entry = _read(lambda: ops.read.find_entry)
    """Return the entry with this id, whichever sessions see it and whoever has retracted it; None if there is none.

    Raises `AmbiguousId` if several trees have an entry of this id; it names up to five sessions, one for each.
    O(trees that have one).
    """

    get_entries = _read(lambda: ops.read.get_entries)
    """Return the entries with these ids, in the order given: None for one that the session does not see.

    An id that is given twice is answered twice. Raises nothing of its own. O(ids + lanes the session builds on), a
    statement for every 5,000 ids.
    """

    read_named = _read(lambda: ops.read.read_named)
    """Return the entries that are named with the id of a session and their own, in the order given.

    None for one that its session does not see, and where that is missing. Raises nothing of its own. O(entries +
    lanes the sessions build on), two statements for every 5,000 entries, and three more for each large entry.
    """

    places_of = _read(lambda: ops.read.places_of)
    """Return where entries lie that are named as for `read_named`, in the order given.

    It is ``active`` if the context at the stored leaf has it, or would have but for exclusions; ``compacted`` if
    the path alone has it; else ``abandoned``. None as for `read_named`. Raises nothing of its own. O(entries +
    lanes the sessions build on), three statements for every 5,000 entries, and some more for each session whose
    latest compaction is large or restores another one.
    """

    read_leaves = _read(lambda: ops.read.read_leaves)
    """Return the entry at the stored leaf of each session, in the order given.

    None for a session that is missing, and for one that has no leaf. Raises nothing of its own. O(ids), a statement
    for every 5,000 ids, and two more for each large entry.
    """

    read_entries = _read(lambda: ops.read.read_entries)
    """Return up to ``limit`` of the entries of `read_tree`, in its order or the reverse, of one kind or of all.

    Without ``contents``, artifacts come without their text, as in `read_context`.
    They begin behind ``after``, which may have been retracted since; fewer than ``limit`` are the last. Raises
    `EntryNotFound` for an ``after`` that the session never saw. O(limit + retracted entries) in each lane of the
    session; of a kind, O(entries behind ``after``) without their payloads, but for compactions and exclusions,
    which have an index.
    """

    children = _read(lambda: ops.read.children)
    """Return the entries that the session sees whose parent is ``entry_id``; for None, the roots.

    They are in the order of `read_tree`. Raises `EntryNotFound`. O(entries of the tree below that one + lanes the
    session builds on).
    """

    match_entry_ids = _read(lambda: ops.sessions.match_entry_ids)
    """Return up to ``limit`` ids of entries that the session sees and that start with ``prefix``, in order of id.

    Raises nothing of its own. O(entries of the tree that start so), until ``limit`` are found.
    """

    taken_entry_ids = _read(lambda: ops.sessions.taken_entry_ids)
    """Return those of ``ids`` that entries of the session's tree have, also ones that it has retracted.

    Raises nothing of its own. O(ids).
    """

    is_ancestor = _read(lambda: ops.sessions.is_ancestor)
    """Return whether ``entry_id`` is ``of`` or an ancestor of it.

    Raises `EntryNotFound` for either that the session does not see. O(lanes the session builds on).
    """

    common_ancestor = _read(lambda: ops.sessions.common_ancestor)
    """Return the deepest entry on the paths of both sessions; None if they have none in common.

    Sessions of different trees have none. Raises `EntryNotFound`. O(forks on the paths).
    """

    read_marks = _read(lambda: ops.sessions.read_marks)
    """Return the marks that the session sees, in order of entry id, those of one entry in order of kind.

    Those are its own, and of a fork the labels and pins of its source on the path they share, where its own say
    nothing else. Raises nothing of its own. O(marks), and of a fork, O(forks above it).
    """

    # -- the log --------------------------------------------------------------------------------------------

    read_log = _read(lambda: ops.edit.read_log)
    """Return a line for each of up to ``limit`` revisions below ``before`` (None: all), newest first.

    The edits of a line are in order of their fields. Raises nothing of its own. O(lines), from indexes: of a
    revision with many entries, only the first are looked at.
    """

    go_back = _write_at(lambda: ops.edit.go_back)
    """Bring back the state of a line of the log, and return the new line; None if nothing changed.

    Of a line that edited the session's title, metadata, completion or marks: the value that it gave. Of any other:
    the leaf as it was then, as a move that can be undone (a leaf that is ``expected`` by itself is compared only
    then); entries on its path that were retracted since come back (and undoing it retracts them again). With
    ``before``: as it was before that line. 0 is the session as it was created. A second call changes nothing.
    Raises `InvalidArgument` for a revision that does not exist yet, `EntryNotFound` for a leaf or a marked entry
    that has been deleted, `LeafConflict` if a leaf is to be moved. O(1); with retractions, O(entries the session
    has retracted).
    """

    changes = _read(lambda: ops.sessions.changes)
    """Return up to ``limit`` revisions after ``after``, in order and without a gap.

    The entries of each are in the order they were added. Raises nothing of its own. O(revisions returned and their
    entries).
    """

    readable_entries = _read(lambda: ops.sessions.readable_entries)
    """Return the entries that a session has added behind a revision, up to another, in order, but for damaged ones.

    Second, the faults of those, in words. Raises nothing of its own. O(entries).
    """

    async def notifications(self, session_id: str) -> AsyncGenerator[None, None]:
        """Yield at once, then whenever the session has changed, in this process or another.

        One wake-up may stand for several changes. Ends when the store is closed. The session may be missing
        or deleted. Raises nothing of its own. O(1) for each write that may concern it.
        """
        last: int | None = -1
        async with aclosing(self._runner.wakeups(session_id)) as wakeups:
            async for _ in wakeups:
                try:
                    revision = await self._runner.read(
                        lambda tx: ops.sessions.read_revision(tx, session_id), loose=True
                    )
                except StoreClosed:
                    # It was open when the watching began: one that closes now ends it.
                    return
                if revision != last:
                    last = revision
                    yield

    async def commits(self) -> AsyncGenerator[None, None]:
        """Yield at once, then whenever anything in the store may have changed, in this process or another.

        A commit after a wake-up brings another one, which may stand for several commits, or for none. Ends
        when the store is closed. Raises nothing of its own. O(1) ten times a second (four times on PostgreSQL), where
        other processes write; nothing for those who write.
        """
        async with aclosing(self._runner.wakeups(None)) as wakeups:
            async for _ in wakeups:
                yield

    # -- the ledger -----------------------------------------------------------------------------------------

    async def record_call(self, session_id: str, call: PaidCall, steps: Sequence[PaidCall] = ()) -> Recorded:
        """Write a paid call that made no entry, and count one revision; the same call again changes nothing.

        A call without an id gets one, so that it is another call each time. ``steps`` are those that other models took
        of it: calls of their own, all written with it or none; the cost that is returned is that of all. What a call
        ``replaces`` is taken out, if this session paid it and it differs, and leaves it its entry. Raises
        `CallConflict` if one was reported with other numbers, and `InvalidEntry` if the sums would leave 64 bits.
        O(calls); O(tree) if it replaces one.
        """
        return await self._runner.write(
            self._with_values(ops.ledger.record_call, self._sources, session_id, call, steps),
            repeatable=call.call_id is not None,
        )

    find_calls = _read(lambda: ops.ledger.find_calls, loose=True)
    """Return those of these calls that are in the ledger, in no order. Raises nothing of its own. O(identities)."""

    was_deleted = _read(lambda: ops.ledger.was_deleted, loose=True)
    """Return which ids are of sessions of a scope that were deleted, and are not there again.

    It is known of those that were imported, and of those that had paid calls. In a copy of the store an imported
    one without calls counts for every scope. The value is False for one that had a bill alone, and no entry with a
    call. Raises nothing of its own. O(calls of the deleted ones).
    """

    calls_of_entry = _read(lambda: ops.ledger.calls_of_entry)
    """Return the calls that the session reported with an entry, in order of provider and id.

    Raises nothing of its own. O(calls of the session).
    """

    read_ledger = _read(lambda: ops.ledger.read_ledger)
    """Return the sums of the paid calls that the query selects, by its groups; rows in order of those, None first.

    Deleted sessions are included. Raises `SessionNotFound` only for one that never existed or never paid, or, if
    the query is about its path, was deleted. O(calls of the sessions selected), or O(ledger) if none is named.
    """

    unpriced_calls = _read(lambda: ops.ledger.unpriced_calls, loose=True)
    """Return the paid calls whose cost is unknown, of all sessions, in the order they were written.

    The next page is ``after`` the number of the last one. Raises nothing of its own. O(ledger behind ``after``).
    """

    price_calls = _write(lambda: ops.ledger.price_calls, repeatable=True)
    """Give calls their costs, in the ledger and in the sums of sessions and paths; return how many had none before.

    A call that has a cost, or is gone, stays as it is. Budgets book the reserved amounts, and are not changed. Raises
    nothing of its own. O(trees of the calls).
    """

    read_entry_costs = _read(lambda: ops.ledger.read_entry_costs)
    """Return the costs of the entries that the session sees, by entry id, whichever session paid.

    In no order. Left out are entries that paid for nothing, or whose calls were reported first by others. Raises
    nothing of its own. One statement, O(calls of the tree).
    """

    # -- budgets --------------------------------------------------------------------------------------------
    # A session is covered by its own budgets, by those with tasks of every session that it is a task of, however far
    # above, and by those of its scope. Amounts that expired are counted nowhere, whether or not anybody noticed.

    set_budget = _write_at(lambda: ops.ledger.set_budget, repeatable=True)
    """Make a budget, or change what the one of the same target, unit and period allows, and its zone, and return it.

    An existing one keeps its count: a second call changes nothing but its time. ``spent="ledger"`` begins a new one
    with the amounts that the ledger has of its target (of gone task sessions, too). Raises `InvalidArgument` if that is
    too much to be stored. O(1); for ``spent="ledger"`` O(calls of the target), or O(ledger) for a scope.

    Of one with a period, all that return it sum up the ledger: O(log calls + calls of its session and tasks), or O(log
    calls + calls in the period). They raise `InvalidArgument` where its zone is not known.
    """

    get_budget = _read_at(lambda: ops.ledger.get_budget)
    """Return a budget, or None. Raises nothing of its own. O(its reservations)."""

    list_budgets = _read_at(lambda: ops.ledger.list_budgets)
    """Return up to ``limit`` budgets that were made after the one named, in the order they were made.

    With a scope, those of the scope and of its sessions; all of them have scopes that begin with the prefix. Raises
    `BudgetNotFound` if ``after`` is gone. O(budgets and their reservations).
    """

    covering_budgets = _read_at(lambda: ops.ledger.covering_budgets)
    """Return the budgets that cover a session, in the order they were made.

    With ``by_ledger``, ``spent`` is the amount that the ledger has of the sessions it covers. Raises nothing of its
    own. O(sessions above + budgets and their reservations); with ``by_ledger`` also O(their calls).
    """

    held_amounts = _read_at(lambda: ops.ledger.held_amounts)
    """Return the amounts held in a budget: in order of expiry, then of reservation id.

    Raises `BudgetNotFound`. O(reservations in the budget).
    """

    budgets_reached = _read(lambda: ops.ledger.budgets_reached)
    """Return, of pairs of a budget's id and an amount, when its spending came to that amount.

    None if it has not, or there is no such budget. Commits count in order of their times, then of reservation id.
    An amount that a budget began with was there when it was made, whoever had spent it. Raises nothing of its own.
    O(reservations of all budgets), however many are asked for.
    """

    reached_in_period = _read(lambda: ops.ledger.reached_in_period)
    """Return when a budget with a period had spent an amount in the period that it names; None if it has not.

    Calls count in order of their times, then of their numbers in the ledger. Raises nothing of its
    own. O(calls in the period).
    """

    async def delete_budget(self, budget_id: str) -> Budget:
        """Delete a budget, with its reservations, and return it as it was.

        Raises `BudgetNotFound`: so does a second call. O(reservations in the budget).
        """
        return await self._runner.write(ops.ledger.deleting(self._sources, budget_id), repeatable=True)

    async def reserve(self, session_id: str, amounts: Amounts, ttl_us: int) -> Reservation:
        """Set amounts aside in every budget that covers the session, or in none of them.

        If no budget covers the session, nothing is stored, and there is nothing to settle. Raises `BudgetExceeded`, for
        the first in the order they were made that has less left, or nothing. O(covering budgets).
        """
        return await self._runner.write(
            ops.ledger.reserving(self._sources, session_id, amounts, ttl_us), repeatable=True
        )

    get_reservation = _read_at(lambda: ops.ledger.get_reservation)
    """Return a reservation as it stands, or None. Raises nothing of its own. O(its budgets)."""

    commit_reservation = _write_at(lambda: ops.ledger.commit_reservation, repeatable=True)
    """Book the used amounts, in full, and give back the reserved ones.

    An amount that is left out is the one that was set aside. An expired reservation is booked, too: it has
    been spent. The same commit again changes nothing and returns the same. Raises `ReservationSettled` if
    it was released, or committed with other amounts, `ReservationNotFound`, and `InvalidArgument` if the sum would
    leave 64 bits. O(its budgets).
    """

    async def release_reservation(self, reservation_id: str) -> Reservation:
        """Give back the reserved amounts.

        Raises `ReservationSettled` unless it is held (so does a second call), and `ReservationNotFound`. O(its
        budgets).
        """
        return await self._runner.write(ops.ledger.releasing(self._sources, reservation_id), repeatable=True)

    prolong_reservation = _write_at(lambda: ops.ledger.prolong_reservation, repeatable=True)
    """Hold a reservation for at least ``ttl_us`` from now; its end never becomes earlier.

    Raises as `release_reservation` does. O(its budgets).
    """

    # -- documents ------------------------------------------------------------------------------------------
    # Texts with a name that belong to the store and to no session. Of two writes of one name, the later one stays.

    put_document = _write_at(lambda: ops.documents.put_document, repeatable=True)
    """Store a document, or another text, type or source under its name, and return its row.

    It keeps the time at which it was made; that of its change is later than the one before, whatever the clock
    says. The same again changes nothing, not even that. Raises nothing of its own. O(size).
    """

    get_document = _read(lambda: ops.documents.get_document, loose=True)
    """Return a document, or None. Raises nothing of its own. O(size)."""

    list_documents = _read(lambda: ops.documents.list_documents, loose=True)
    """Return up to ``limit`` of these documents behind the one named, in order of space, project and name.

    Without their texts. ``after`` need not be there any more. Raises nothing of its own. O(documents of the scope
    and kind behind it, up to the last of the page).
    """

    read_documents = _read(lambda: ops.documents.read_documents, loose=True)
    """Do as `list_documents`, and return them whole. Raises nothing of its own. O(size of the page), too."""

    search_documents = _read(lambda: ops.documents.search_documents)
    """Return up to ``limit`` of these documents whose names or texts have every word, in the order of lists.

    The words are of `searched_words`, and are compared literally, in any case. No index helps: a call reads up to
    `SEARCHED` documents, and says where the next one goes on. Raises nothing of its own. O(size of the texts read).
    """

    remove_document = _write(lambda: ops.documents.remove_document)
    """Delete a document; return whether it was there, which a second call finds it is not.

    Raises `OnHold` if a hold is on all of its scope. O(size).
    """

    list_holds = _read(lambda: ops.documents.list_holds)
    """Return the legal holds of a scope, or of all (None), the oldest first. Raises `CorruptStore`. O(documents)."""

    # -- transfer -------------------------------------------------------------------------------------------
    # A tree crosses whole, under keys of the target's own. A copy remembers in which state it was made, so that one
    # that nobody has written to can be told from one that has gone on by itself, or was made in another way.

    list_trees = _read(lambda: ops.transfer.list_trees)
    """Return up to ``limit`` trees with a number above ``after``, in order of it.

    The sessions of each are in the order they were made. Raises nothing of its own. O(their sessions).
    """

    read_whole_tree = _read(lambda: ops.transfer.read_whole_tree)
    """Return everything that is stored of a tree, as of one moment (`TreeCopy` says the order); None if it is gone.

    Raises nothing of its own. O(tree), in time and in memory: about 1 KB for each entry beside its payload.
    """

    compare_trees = _read(lambda: ops.transfer.compare_trees)
    """Return how each of these trees of another store compares with this store, in the order given.

    Raises nothing of its own. Two statements, O(their sessions).
    """

    write_whole_tree = _write(lambda: ops.transfer.write_whole_tree)
    """Write a tree of another store, or bring an earlier copy of it up to date, and return how it stood before.

    A tree that is there in the same state stays untouched, so that a second call changes nothing. Sessions, entries and
    calls come with their ids, revisions, times and order, and every read answers as in the other store; only
    sessions that were changed at the very same time may be listed in another order. Raises `SessionExists` if this
    store has something else under the id, the key or the paid call of one of its sessions, or its copy was changed.
    O(tree).
    """

    list_gone_payers = _read(lambda: ops.transfer.list_gone_payers)
    """Return up to ``limit`` deleted sessions that paid for calls, with a number above ``after``, in order of it.

    The calls of each are in order of scope, provider and id. Raises nothing of its own. O(calls).
    """

    write_gone_payers = _write(lambda: ops.transfer.write_gone_payers)
    """Write calls that deleted sessions have paid for; return how many were not there yet.

    A second call writes nothing and returns 0. To be called when the trees have been written. Raises nothing of its
    own. O(calls).
    """

    list_whole_budgets = _read(lambda: ops.transfer.list_whole_budgets)
    """Return up to ``limit`` budgets at a position above ``after``, in order of it, as of one moment.

    Each comes with all that was ever reserved in it, in the order it was reserved. Raises nothing of its own.
    O(reservations).
    """

    write_budgets = _write(lambda: ops.transfer.write_budgets)
    """Write budgets of another store, or bring them up to date; return the state of each, in the order given.

    One that is here under its id is replaced if the other was changed later, with its reservations: a second
    call changes nothing. None is written whose session is missing, or whose target and unit another budget has. To
    be called when the trees have been written. Raises nothing of its own. O(reservations).
    """

    list_whole_documents = _read(lambda: ops.documents.list_whole_documents, loose=True)
    """Return up to ``limit`` documents of all scopes behind the one named, whole, in order of their names' parts.

    Raises nothing of its own. O(their size).
    """

    write_documents = _write(lambda: ops.documents.write_documents, repeatable=True)
    """Write documents of another store; return the state of each, in the order given.

    One that is here under its name is replaced if the other was changed later: a second call changes nothing.
    Raises nothing of its own. O(their size).
    """

    # -- the store itself -----------------------------------------------------------------------------------

    async def verify(self) -> VerifyReport:
        """Recompute everything that is stored twice, and return the disagreements.

        First the problems that the database's own checks find, then entries by lane, then sessions in the order they
        were made, then the ledger and the budgets, then rows that nothing refers to, then what a witness saw otherwise,
        or that it could not be asked; it is told nothing. Raises nothing of its own: a store that cannot be read to its
        end is a problem, too. O(store).
        """
        storage = await self._runner.storage_problems()
        try:
            report = await self._runner.read(ops.verify.verify)
        except CorruptStore as error:
            # A text column that is not valid UTF-8 raises in whatever reads its row.
            counts = await self._runner.read(lambda tx: tx.first(sql.COUNTS), loose=True) or (0, 0, 0, 0)
            problem = Problem(
                "unreadable rows", "the store", f"{error}; nothing more was checked; rescue it by salvage"
            )
            return VerifyReport(counts[0], counts[1], [*storage, problem])
        try:
            put_back = await self._put_back(takes=False)
            last = [Problem("put back", f"session {error.session_id}", str(error)) for error in put_back]
        except FlueError as error:
            last = [Problem("witness not asked", "the store", str(error))]
        return replace(report, problems=storage + report.problems + last)

    async def backup(
        self, target: Path, *, overwrite: bool, verified: bool, progress: Callable[[int, int], None] | None
    ) -> BackupReport:
        """Copy a store that is a SQLite file, as it is at one moment, into another, while writers go on.

        The file is readable by its owner alone, and appears under its name when it is whole. With ``verified`` it does
        so only if `verify` finds nothing in it (`CorruptStore`). ``progress`` is told of pages copied and pages in all.
        Raises `InvalidArgument` if ``target`` is there, unless ``overwrite``, and for a store that is not a file.
        O(store).
        """
        # Raises, as every call does, if the store is closed or its file is no longer there.
        await self._runner.read(lambda tx: tx.first(sql.COUNTS), loose=True)
        return await self._runner.backup(Backup(target, overwrite, verified, progress))

    async def info(self) -> StoreInfo:
        """Return the kind of this store, where it is, of what format, how large, and how many rows it has.

        Raises nothing of its own. O(store), a count of four tables.
        """
        row = await self._runner.read(lambda tx: tx.first(sql.COUNTS), loose=True)
        sessions, entries, ledger_rows, documents = row or (0, 0, 0, 0)
        runner = self._runner
        return StoreInfo(
            runner.backend_name,
            runner.location,
            FORMAT_VERSION,
            sessions,
            entries,
            ledger_rows,
            await runner.size_bytes(),
            documents,
            self._keyed.key,
            self.is_unchecked,
        )

    async def close(self) -> None:
        """Finish the calls under way, refuse later ones (`StoreClosed`), and close; a second call does nothing.

        Raises nothing of its own. O(1).
        """
        await self._runner.close()
