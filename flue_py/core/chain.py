"""The chain of digests: an entry's covers its parent's, so that none can be changed, moved or left out unseen.

A digest has two halves of 8 bytes, each a BLAKE2b. The first is of the kind of the entry, a NUL, the first half of the
parent's digest, and the text of the payload: it is all that a reader of messages has to fetch and check. The second is
of the parent's digest, the first half, and the fields of the entry as JSON. So the text can be erased, and both hold:
in its place there is a tombstone (`flue_py.core.erasure`) with a seal, a hash of the digest and of the tombstone.

The row of a session has a head: the digest of its leaf, and a BLAKE2b of 8 bytes of that and of the row as JSON. So a
listing, which reads no leaf, takes one hash for a row, and so does an append.

Where a store has a key, both are keyed hashes: whoever lacks it can change nothing unseen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from inspect import iscoroutinefunction
from typing import Literal, Protocol, TypeAlias

from msgspec import MsgspecError, ValidationError
from msgspec.json import Decoder, Encoder

from flue_py.core.json import Frozen
from flue_py.errors import InvalidArgument, shown

HALF = 8
NO_PARENT = bytes(2 * HALF)
"""Stands for the digest above a root."""

SEAM = "seam "
"""How the names of rows of `flue_store` begin that say what a digest or a head was before."""

Fields: TypeAlias = tuple[str, str, str | None, str | None, int, int, int, str | None]
"""The fields of an entry beside its payload: id, kind, role, source, revision, ordinal, time in microseconds, extra."""

Seams: TypeAlias = Callable[[bytes], Iterable[tuple[str, int]]]
"""Returns rows of `flue_store`, those for a digest, its first half or a head among them."""

_SEAL = b',"seal":"%b"}}'
_SEALED = len(_SEAL % bytes(2 * HALF))
_encode = Encoder().encode
_decode: Callable[[str], Fields] = Decoder(Fields).decode
_decode_head = Decoder(tuple[str, int, str, str | None, str]).decode


def fields_of(text: str) -> Fields | None:
    """Return the fields that are written as JSON; None where one has a wrong type."""
    try:
        return _decode(text)
    except ValidationError:
        return None


def fingerprint(key: bytes) -> int:
    """Return the number that names a key without telling it, never 0: a keyed hash of nothing, as signed 64 bits."""
    named = blake2b(digest_size=HALF, key=key, person=b"fingerprint")
    return int.from_bytes(named.digest(), "big", signed=True) or 1


class _Begun(dict[str, blake2b]):
    """The hashes of payloads, begun with a kind. They are copied, which takes half as long as one made anew."""

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self._key = key

    def __missing__(self, kind: str) -> blake2b:
        begun = blake2b(f"{kind}\0".encode(errors="surrogatepass"), digest_size=HALF, key=self._key)
        # A file from elsewhere may have any number of kinds.
        return begun if len(self) > 64 else self.setdefault(kind, begun)


class Chain:
    """Makes and checks the digests of one store, by its key of 1 to 64 bytes, if it has one.

    ``earlier`` is the chain of another key, whose digests are as good: those that the store had before. ``seams`` are
    there while some entries of a tree have new digests: an entry may still be below the one that its parent had.
    """

    checks = True

    def __init__(self, key: bytes = b"", earlier: Chain | None = None, seams: Seams = lambda _: ()) -> None:
        self._key = key
        self._earlier = earlier
        self._seams = seams
        self._begun = _Begun(key)
        # Each begun by its name, so that none of one sort can stand for one of another.
        self._fields, self._head, self._erased = (
            blake2b(digest_size=HALF, key=key, person=name) for name in (b"fields", b"head", b"erased")
        )

    @property
    def fingerprint(self) -> int:
        """The fingerprint of its key; 0 without one."""
        return fingerprint(self._key) if self._key else 0

    @property
    def alone(self) -> Chain:
        """It as a chain that takes no other digests."""
        return Chain(self._key)

    @property
    def every(self) -> Sequence[Chain]:
        """The chains whose seals it takes, its own first."""
        return (self,) if self._earlier is None else (self, self._earlier)

    def after(self, earlier: Chain) -> Chain:
        """Return it as a chain that takes the digests of another, too."""
        return Chain(self._key, earlier)

    def over(self, seams: Seams) -> Chain:
        """Return it with these seams, if it takes the digests of another chain; else as it is."""
        return self if self._earlier is None else Chain(self._key, self._earlier, seams)

    def seam(self, now: bytes, before: bytes) -> tuple[str, int]:
        """Return the row of `flue_store` that says what a digest or a head was before."""
        name = f"{SEAM}{now.hex()} {before.hex()}"
        return name, self.seal("flue_store", (name,))

    def before(self, now: bytes, seams: Seams) -> bytes | None:
        """Return what a digest, its first half or a head was before; None if no seam says so."""
        start = now.hex()
        for name, seal in seams(now):
            if name.startswith(f"{SEAM}{start}") and self.seal("flue_store", (name,)) == seal:
                before = name.split(" ")[-1]
                # A head may change once more with another row of the session, and the same leaf.
                if not before.startswith(start):
                    return bytes.fromhex(before)[: len(now)]
        return None

    def _was(self, above: bytes, has: Callable[[Chain, bytes], bool]) -> bool:
        """Return whether an entry has its digest by the earlier key, or below the digest that its parent had."""
        if self._earlier is None or has(self._earlier, above):
            return self._earlier is not None
        before = self.before(above, self._seams)
        return before is not None and (has(self.alone, before) or has(self._earlier, before))

    def is_as(self, chain: Chain) -> bool:
        """Return whether it makes the same digests as another, and takes no others."""
        is_whole = self.checks and chain.checks and self._earlier is chain._earlier is None
        return is_whole and self._key == chain._key

    def digest(self, above: bytes, fields: Fields, text: bytes) -> bytes:
        """Return the digest of an entry with this payload in UTF-8, below one of digest ``above``. O(size)."""
        # In one function, and each hash of joined bytes: every entry that is read comes through here.
        of_text, of_fields = self._begun[fields[1]].copy(), self._fields.copy()
        of_text.update(above[:HALF] + text)
        first = of_text.digest()
        of_fields.update(above + first + _encode(fields))
        return first + of_fields.digest()

    def begun(self, kind: str) -> blake2b:
        """Return the first half of a digest, begun with a kind: to be copied, then completed as `text` does."""
        return self._begun[kind]

    def text(self, above: bytes, kind: str, text: bytes) -> bytes:
        """Return the first half of a digest. O(size)."""
        digest = self._begun[kind].copy()
        digest.update(above[:HALF] + text)
        return digest.digest()

    def fields(self, above: bytes, first: bytes, fields: Fields) -> bytes:
        """Return the second half, below a digest, of one that begins with ``first``."""
        digest = self._fields.copy()
        digest.update(above + first[:HALF] + _encode(fields))
        return digest.digest()

    def has_text(self, digest: bytes, above: bytes, kind: str, text: bytes) -> bool:
        """Return whether a digest is that of an entry with this payload. O(size)."""
        if self.text(above, kind, text) == digest[:HALF] or self._is_erased(digest, text):
            return True
        return self._was(above, lambda chain, above: chain.has_text(digest, above, kind, text))

    def has_fields(self, digest: bytes, above: bytes, fields: Fields) -> bool:
        """Return whether a digest is that of an entry with these fields."""
        if self.fields(above, digest, fields) == digest[HALF:]:
            return True
        # SQLite may hold anything in the last of them.
        extra = fields[-1].encode() if isinstance(fields[-1], str) else b""
        if self._is_erased(digest + above + _encode(fields[:-1]), extra):
            return True
        return self._was(above, lambda chain, above: chain.has_fields(digest, above, fields))

    def head(self, leaf: bytes, row: Sequence[object]) -> bytes:
        """Return the head of a session: the digest of its leaf (`NO_PARENT` without one), and a hash of both."""
        digest = self._head.copy()
        digest.update(leaf + _encode(row))
        return leaf + digest.digest()

    def erased_text(self, digest: bytes, tombstone: bytes) -> bytes:
        """Return a tombstone, of which the last member is an object, with the seal in it by which it stands for a text.

        ``digest`` is that of the entry. O(size).
        """
        seal = self._erased.copy()
        seal.update(digest + tombstone)
        return tombstone[:-2] + _SEAL % seal.hexdigest().encode()

    def erased_fields(self, digest: bytes, above: bytes, fields: Fields, tombstone: str) -> str:
        """Return the same of a tombstone for the last of an entry's fields."""
        return self.erased_text(digest + above + _encode(fields[:-1]), tombstone.encode()).decode()

    def _is_erased(self, digest: bytes, text: bytes) -> bool:
        return text == self.erased_text(digest, text[:-_SEALED] + b"}}")

    def seal(self, table: str, row: Sequence[object], above: int = 0) -> int:
        """Return the seal of a row of a table, in signed 64 bits; ``above`` is that of the row before it, or 0."""
        digest = blake2b(_encode((above, *row)), digest_size=HALF, key=self._key, person=table.encode())
        return int.from_bytes(digest.digest(), "big", signed=True)

    def has_seal(self, seal: int, table: str, row: Sequence[object], above: int = 0) -> bool:
        """Return whether a seal is that of a row."""
        if self.seal(table, row, above) == seal:
            return True
        return self._earlier is not None and self._earlier.has_seal(seal, table, row, above)

    def has_row(self, head: bytes, row: bytes) -> bool:
        """Return whether a head is that of a row, as JSON, whatever its leaf is."""
        # In one function: every session of a listing comes through here.
        digest = self._head.copy()
        digest.update(head[:-HALF] + row)
        if digest.digest() == head[-HALF:]:
            return True
        return self._earlier is not None and self._earlier.has_row(head, row)

    def has_head(self, head: bytes, leaf: bytes, row: Sequence[object]) -> bool:
        """Return whether a head is that of a row and of the digest of its leaf."""
        return head[:-HALF] == leaf and self.has_row(head, _encode(row))

    def moved(
        self, source: Chain, digest: bytes, above: bytes, new_above: bytes, fields: Fields, text: bytes | None
    ) -> bytes:
        """Return the digest here of an entry that has ``digest`` in another chain; ``text`` is None if it is lost.

        An entry that does not have its digest there gets one that it does not have here; one that has it here and there
        keeps it, also as a tombstone. O(size).
        """
        has_text = text is not None and source.has_text(digest, above, fields[1], text)
        is_here = has_text and above == new_above and self.alone.has_text(digest, above, fields[1], text or b"")
        first = self.text(new_above, fields[1], text or b"")
        first = first if has_text else _other(first)
        try:
            is_sound = source.has_fields(digest, above, fields)
            if is_here and is_sound and self.alone.has_fields(digest, above, fields):
                return digest
            second = self.fields(new_above, first, fields)
        except UnicodeEncodeError:
            return first + bytes(HALF)
        return first + (second if is_sound else _other(second))


def _other(half: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in half)


class UncheckedChain(Chain):
    """Takes every entry for what it is, for reading a store without its key."""

    checks = False

    def _takes(self, *args: object, **named: object) -> bool:
        return True

    has_text = has_fields = has_row = has_head = has_seal = _takes


UNKEYED = Chain()
"""The chain of stores without a key."""


# ---------------------------------------------------------------------------------------------------------------------
# Heads of sessions, as others keep them, and what a head that was seen says of the one that is there.

Age: TypeAlias = Literal["same", "newer", "older", "other", "missing"]
"""What is there, compared with a head that was seen: ``other`` is another history."""


GOES_ON: frozenset[Age] = frozenset({"same", "newer"})
"""The ages of a session that is as it was seen, or goes on from it."""


class Head(Frozen):
    """What identifies the state of a session, its row and all that it builds on. ``digest`` is that of the leaf.

    ``value`` is empty for a session that was deleted. As a text it is one line of JSON.
    """

    session_id: str
    revision: int
    value: bytes
    leaf: str | None = None
    digest: bytes = b""

    @property
    def fields(self) -> tuple[str, int, str, str | None, str]:
        """The fields as JSON has them."""
        return self.session_id, self.revision, self.value.hex(), self.leaf, self.digest.hex()

    def __str__(self) -> str:
        return json.dumps(self.fields)


class Witness(Protocol):
    """Who remembers heads where nobody reaches who can put back an older copy of the store.

    Both methods are called on a thread that may wait. An error of `last` ends the read or write that needs it, as
    `StoreUnavailable`; one of `take` is a warning, and the head goes with the next one. One that has a method
    ``last_of(session_ids)``, which returns the heads that there are by id, is asked once for a page of a list.
    """

    def last(self, session_id: str, /) -> Head | None:
        """Return the last head of a session that was taken; None if there is none."""

    def take(self, head: Head, /) -> None:
        """Remember a head, in the place of the last one of its session."""


def check_methods(where: str, value: object, names: Sequence[str]) -> None:
    """Raise `InvalidArgument` for an object without these methods, or where one is async: its answer would be lost."""
    methods = [getattr(value, name, None) for name in names]
    if isinstance(value, type) or not all(callable(method) and not iscoroutinefunction(method) for method in methods):
        raise InvalidArgument(f"{where}: {shown(value)} has not the methods {' and '.join(names)}, which may block")


def read_head(line: str) -> Head:
    """Return the head that a line says. Raises `InvalidArgument`."""
    try:
        session_id, revision, value, leaf, digest = _decode_head(line)
        return Head(session_id, revision, bytes.fromhex(value), leaf, bytes.fromhex(digest))
    except (MsgspecError, ValueError) as error:
        raise InvalidArgument(f"{shown(line.strip())} is not a head, as flue-py head prints them") from error


def age_of(seen: Head, present: Head | None) -> Age:
    """Return what is there, compared with a head that was seen; "newer" if it has that one's leaf as it was."""
    if present is None:
        return "same" if not seen.value else "missing"
    if not seen.value:
        return "other"
    if present.revision < seen.revision:
        return "older"
    if present.value == seen.value:
        return "same"
    return "newer" if present.revision > seen.revision else "other"
