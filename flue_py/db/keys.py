"""The keys of a store: which one its digests have, as every transaction finds it, and errors for those that lack it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from flue_py.core.chain import UNKEYED, Chain, UncheckedChain
from flue_py.core.json import NamedTuple
from flue_py.core.sessions import SessionPage
from flue_py.db import ops
from flue_py.db.ops.seals import NO_KEY, NOT_CHANGING, Stated
from flue_py.db.runner import Backup, KeyChanged, Plan, Runner, RunnerAround, Transaction
from flue_py.errors import CorruptStore, FlueError, InvalidArgument, StoreBusy, StoreUnavailable, WrongKey

if TYPE_CHECKING:
    from flue_py.core.trees import BackupReport

Result = TypeVar("Result")

SHORTEST_KEY = 16
LONGEST_KEY = 64

Key: TypeAlias = bytes | Callable[[], bytes]
"""A key, or a function that fetches it."""

KeyChoice: TypeAlias = Key | Sequence[Key | None] | None
"""A key, or none, or several of which a store may have any: None among them stands for no key."""

_ATTEMPTS = 3
_OF_ODD_ROWS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


class Keys:
    """The keys that a caller has, by fingerprint. Nothing shows them."""

    def __init__(self, choice: KeyChoice, *, unchecked: bool = False) -> None:
        """Raise `InvalidArgument`, which never shows the key."""
        is_list = isinstance(choice, (list, tuple)) and len(choice) > 0
        several: Sequence[Key | None] = cast("Sequence[Key | None]", choice if is_list else (choice,))
        self.is_unchecked = unchecked
        keys = [_fetched(key) for key in several]
        chains = [UNKEYED if key is None else Chain(_checked(key)) for key in keys]
        if unchecked and chains != [UNKEYED]:
            raise InvalidArgument("unchecked: with a key a store is checked; leave out one of the two")
        self._chains = {chain.fingerprint: chain for chain in chains}

    @property
    def first(self) -> int:
        """The fingerprint of the first: that of a new store."""
        return next(iter(self._chains))

    def add(self, key: Key | None) -> int:
        """Have another key, too; return its fingerprint. Raises `InvalidArgument`."""
        fetched = _fetched(key)
        chain = UNKEYED if fetched is None else Chain(_checked(fetched))
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
        raise WrongKey(f"{location} {_why(stated, lacking, is_keyed=self._chains.keys() != {NO_KEY})}")


def named_fingerprint(number: int) -> str | None:
    """Return a fingerprint as 16 hexadecimal digits; None for no key."""
    return None if number == NO_KEY else f"{number % 2**64:016x}"


def _named(number: int) -> str:
    name = named_fingerprint(number)
    return "no key" if name is None else f"key {name}"


def _why(stated: Stated, lacking: Sequence[int], *, is_keyed: bool) -> str:
    if stated.new_key != NOT_CHANGING:
        return (
            f"is changing from {_named(stated.key)} to {_named(stated.new_key)}, and"
            f" {' and '.join(map(_named, lacking))} was not given; give both (key=[new, old], --key-file twice), or"
            " run flue-py rekey again, which completes it"
        )
    if stated.key == NO_KEY:
        return "has no key; open it without one, or give it one by flue-py rekey"
    way = "was opened with another" if is_keyed else "was opened without one"
    return (
        f"needs the key with the fingerprint {named_fingerprint(stated.key)}, and {way}; give that key (key=,"
        " --key-file), or read it unchecked (unchecked=True, --unchecked)"
    )


def _fetched(key: Key | None) -> object:
    if not callable(key):
        return key
    try:
        return key()
    except Exception as error:
        raise InvalidArgument(f"key: the function raised {type(error).__name__}; nothing was opened") from error


def _checked(key: object) -> bytes:
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


_PAGE = 200
_PAUSE = 0.025


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
            if time.monotonic() - self._paused_at > 2 * _PAUSE:
                # Whoever waits for SQLite's lock looks for it so often, and would not get it in between.
                await self._runner.waiting.pause(_PAUSE)
                self._paused_at = time.monotonic()
            if place is None:
                return total


def _trees(tx: Transaction, after: int) -> list[int]:
    return [tree_id for (tree_id,) in tx.rows(ops.seals.TREES, after_key=after, count=_PAGE)]


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
        for _ in range(_ATTEMPTS):
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
        keyed, known = partial(self._reading, plan), self._known
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
                f"{self.location} is changing to {_named(under_way)}: complete that by flue-py rekey before another"
            )
        trees, entries, last = 0, 0, -1
        if number != before or under_way != NOT_CHANGING:
            await self._state(Stated(before, number))
            (total,) = await self.read(lambda tx: tx.first(ops.seals.COUNT_TREES), loose=True) or (0,)
            while page := await self.read(partial(_trees, after=last), loose=True):
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
