"""Registering texts that every compaction of a session brings back word for word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.core.entries import NewEntry
from flue_py.core.sessions import STORED, Appended, LeafChoice, OnConflict, Seen, check_name, check_new_name
from flue_py.errors import InvalidArgument
from flue_py.lazy import lazy_module
from flue_py.sessions.appending import Appending
from flue_py.sessions.arguments import checked_choice, checked_on_conflict, checked_seen, checked_text
from flue_py.sessions.contexts import Contexts

if TYPE_CHECKING:
    from flue_py.core import registered
    from flue_py.core.registered import RegisteredKind, RegisteredText
else:
    # Most sessions register nothing, and a command should start without this.
    registered = lazy_module("flue_py.core.registered")


class Registered(Contexts):
    """What a `Session` has registered."""

    __slots__ = ()

    async def registered(self, *, leaf: LeafChoice = STORED) -> tuple[RegisteredText, ...]:
        """Return the registered texts of the path, in the order in which their names were first registered.

        Whole, however a cap may have cut them in the summary: a program that resumes the session can show them again.
        The cost of the context; after a compaction that `compact` did not make, once that of the path. Raises
        `EntryNotFound`.
        """
        read = await self._read_context(leaf)
        if read.compaction is None:
            return registered.texts_in_force(read.tail)
        noted = registered.noted_ids(read.compaction.fields.get("details"))
        if noted is not None:
            found = [entry for entry in await self.get_entries(noted) if entry is not None]
            if len(found) == len(noted):
                return registered.texts_in_force(read.tail, found)
        return registered.texts_in_force(await self.get_active_path(leaf=read.stamp.leaf_id))


class Registering(Registered, Appending):
    """How a `Session` registers texts."""

    __slots__ = ()

    async def register(
        self,
        name: str,
        text: str,
        *,
        kind: RegisteredKind = "instructions",
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Appended | None:
        """Have every later compaction bring a text back word for word, under a name; None if it is registered already.

        ``kind`` is what it is: ``instructions``, ``plan``, ``todo`` or ``skill``. A text of the same name is replaced.
        It is an entry of its own that no model sees: what the model is to read now, tell it in a message. It holds on
        this path, and in forks of it. How long it may be, `CompactionSettings` says. Raises `InvalidArgument`, and
        `InvalidEntry` for what cannot be stored; otherwise as `append_message`. The cost of `registered`.
        """
        _check_name(name)
        if not isinstance(text, str) or not text.strip():
            raise InvalidArgument("text: is not a text with words in it; take a text off the register by unregister()")
        checked_text(text, "text")
        checked_choice(kind, "kind", registered.REGISTERED_KINDS)
        seen = _checked(idempotency_key, on_conflict, expected_leaf, expected_revision)
        await self._compare(seen)
        if idempotency_key is None and any(
            (each.name, each.kind, each.text) == (name, kind, text)
            for each in await self.registered(leaf=self._built_on(seen))
        ):
            return None
        entry = NewEntry.custom(registered.REGISTERED, registered.registration(name, kind, text))
        return await self._append([entry], on_conflict, idempotency_key, seen)

    async def unregister(
        self,
        name: str,
        *,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Appended | None:
        """Take a text off the register, so that later compactions leave it out; None where there is none of this name.

        Otherwise as `register`.
        """
        _check_name(name)
        seen = _checked(idempotency_key, on_conflict, expected_leaf, expected_revision)
        await self._compare(seen)
        known = await self.registered(leaf=self._built_on(seen))
        if idempotency_key is None and all(each.name != name for each in known):
            return None
        entry = NewEntry.custom(registered.REGISTERED, registered.registration(name, None, None))
        return await self._append([entry], on_conflict, idempotency_key, seen)


def _check_name(name: str) -> None:
    check_new_name(name, "name")
    if not isinstance(name, str) or name.splitlines() != [name] or not name.strip():
        raise InvalidArgument("name: should be one line, by which the text is replaced and taken off the register")


def _checked(key: str | None, on_conflict: OnConflict, leaf: LeafChoice, revision: int | None) -> Seen:
    """Check what an append takes, also where there turns out to be nothing to append."""
    check_name(key, "idempotency_key")
    checked_on_conflict(on_conflict)
    return checked_seen(leaf, revision)
