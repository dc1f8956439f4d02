"""Appending to a session: messages, compactions, summaries, entries that come from elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flue_py.core.calls import RESPONSE_ID, ledger_name, program_of
from flue_py.core.entries import NewEntry, checked_source, kept_from
from flue_py.core.exchange import Pairing, exchange_of
from flue_py.core.ids import derived_id
from flue_py.core.imported import checked_imported_entries
from flue_py.core.jsontext import JsonValue, decode_object
from flue_py.core.kinds import EXCLUSION, MESSAGE
from flue_py.core.sessions import STORED, Appended, LeafChoice, OnConflict, Seen, check_name
from flue_py.core.usage import TOO_LARGE, SumTooLarge
from flue_py.errors import CallConflict, EntryNotFound, InvalidEntry, shown
from flue_py.sessions.arguments import (
    checked_flag,
    checked_messages,
    checked_on_conflict,
    checked_place,
    checked_seen,
    checked_text,
)
from flue_py.sessions.contexts import Contexts
from flue_py.sessions.handle import Result
from flue_py.sessions.incoming import Incoming, as_incoming, incoming_message, incoming_messages, shell_entries
from flue_py.sessions.marking import Marking
from flue_py.sessions.offloading import Ground, Offloader, first_landed

if TYPE_CHECKING:
    from pydantic import BaseModel

    from flue_py.context.offloading import OffloadSettings
    from flue_py.core.messages import Message


_SINGLY = 8
"""After how many entries that are left out one by one the others are left out together."""


class Appending(Contexts, Marking):
    """What a `Session` adds to its history."""

    __slots__ = ()

    async def append_message(
        self,
        message: Mapping[str, JsonValue] | Message | BaseModel,
        *,
        source: str | None = None,
        calls: Sequence[Mapping[str, JsonValue]] = (),
        produced_under: str | None = None,
        offload: OffloadSettings | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Appended:
        """Append one message below the leaf, and return where it landed.

        ``source`` tags it (prompt, skill, shell, task, retry). An exact retry of an ``idempotency_key`` returns
        the first result. If another writer has moved the leaf, ``on_conflict="raise"`` raises `LeafConflict`,
        ``"branch"`` adds a sibling branch, without moving the stored leaf, and ``"rebase"`` appends below whatever is
        stored, for a log without branches; ``parent_id`` says where it landed. ``expected_leaf`` and
        ``expected_revision`` are what the caller has seen, to be compared (see `Session`). Lone surrogates are
        replaced, and counted in ``surrogates_replaced``. Usage is read in the shape of any provider and kept as it is
        given; ``oddities`` say what of it cannot be counted, which refuses nothing.

        ``calls`` are the single usages of the paid calls behind an answer, where it took several: usage objects, each
        with a ``provider``, ``model`` and ``callId`` of its own or else those of the message. Each has a row in the
        ledger. The message's usage is their sum, and is written so if it has none.

        ``produced_under`` is `ContextRequest.prefix_digest` of the request that an answer came from. An answer with
        signed reasoning is stored with it (``producedUnder``), so that no later request has that reasoning behind
        another beginning.

        With ``offload``, the result of a tool that is longer than those settings say is stored whole as an artifact, an
        entry of its own that no context reads, and the message after it has a stub in the place of its text: what it is
        the result of, and the id for `read_artifact`. The last of ``entry_ids`` is the message.

        A message in the form of OpenAI's Chat Completions or Responses, of Anthropic or of Gemini is converted into
        ours, as importing it would, and ``converted`` says so; it may become several entries, and `export_session`
        gives it back as it came. So is a whole response of theirs, as JSON or as the object that their library returns:
        what it used, its model and its id are kept with its last answer. The id (``responseId`` of a message of ours)
        is that of the paid call, which is counted once however often it is appended.

        Raises `InvalidEntry` naming the field that is wrong or cannot be converted, `IdempotencyConflict`,
        `RevisionConflict`. O(1).
        """
        seen = checked_seen(expected_leaf, expected_revision)
        incoming = incoming_message(message, source, calls, checked_text(produced_under, "produced_under"))
        return await self._append_incoming(incoming, offload, on_conflict, idempotency_key, seen)

    async def append_messages(
        self,
        messages: Sequence[Mapping[str, JsonValue] | Message | BaseModel],
        *,
        source: str | None = None,
        produced_under: str | None = None,
        offload: OffloadSettings | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Appended:
        """Append messages as a chain, all or none of them, in one transaction; otherwise as `append_message`.

        An error names the message, too (``messages[1].content``). No messages change nothing, and only compare the
        leaf. O(len(messages)).
        """
        seen = checked_seen(expected_leaf, expected_revision)
        incoming = incoming_messages(checked_messages(messages), source, checked_text(produced_under, "produced_under"))
        checked_source(source)
        return await self._append_incoming(incoming, offload, on_conflict, idempotency_key, seen)

    async def _append_incoming(
        self,
        incoming: Incoming,
        offload: OffloadSettings | None,
        on_conflict: OnConflict,
        idempotency_key: str | None,
        seen: Seen,
    ) -> Appended:
        if offload is not None:
            offloader = Offloader(self._backend, self._limits, offload)
            checked_on_conflict(on_conflict)
            ground = Ground(self._ref, await self._leaf_before(idempotency_key, on_conflict, seen))
            incoming = await offloader.with_stubs(incoming, ground)
        return incoming.noted_in(await self._append(incoming.entries, on_conflict, idempotency_key, seen))

    async def append_shell(
        self,
        command: str,
        output: str,
        exit_code: int | None,
        *,
        offload: OffloadSettings | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Appended:
        """Append a shell command that a person ran, with what it printed, so that the model and compaction see it.

        Three messages with the source ``shell``: the command as a message of the user, a call of the tool ``bash``, and
        its result, an error unless ``exit_code`` is 0. None is a command that was killed. Nothing is run. With
        ``offload`` a long output is put aside, too. Raises `InvalidArgument`; otherwise as `append_messages`. O(1).
        """
        seen = checked_seen(expected_leaf, expected_revision)
        check_name(idempotency_key, "idempotency_key")
        entries = shell_entries(command, output, exit_code, self._backend.new_entry_id(), idempotency_key)
        return await self._append_incoming(as_incoming(entries), offload, on_conflict, idempotency_key, seen)

    async def append_compaction(
        self,
        summary: str,
        *,
        first_kept_entry_id: str,
        tokens_before: int,
        details: JsonValue = None,
        usage: Mapping[str, JsonValue] | None = None,
        calls: Sequence[Mapping[str, JsonValue]] = (),
        from_hook: bool = False,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        keep_exchanges_whole: bool = True,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Appended:
        """Append a compaction: from here on, the summary stands for what comes before the first kept entry.

        ``usage`` is the sum of what the summarization calls used, ``calls`` their single usages for the
        ledger. A first kept entry that would leave a tool call out and keep its result, which no provider takes, is
        moved back to the message of the call, and ``oddities`` say so; with ``keep_exchanges_whole=False`` it is not.
        ``from_hook`` notes that a program gave the text in place of a mode: later compactions read none of its details.
        Raises `EntryNotFound` if the session sees no such first kept entry (on the path or off it),
        `InvalidEntry`; otherwise as `append_message`. The cost of the context, or else O(1).
        """
        checked_flag(keep_exchanges_whole, "keep_exchanges_whole")
        checked_flag(from_hook, "from_hook")
        checked_on_conflict(on_conflict)
        seen = checked_seen(expected_leaf, expected_revision)
        if not first_kept_entry_id:
            raise EntryNotFound(self.id, first_kept_entry_id)
        entry = NewEntry.compaction(
            summary,
            first_kept_entry_id=first_kept_entry_id,
            tokens_before=tokens_before,
            details=details,
            usage=usage,
            calls=calls,
            from_hook=from_hook,
        )
        if keep_exchanges_whole:
            leaf = await self._leaf_before(idempotency_key, on_conflict, seen)
            entry = kept_from(entry, await self._whole_first_kept(first_kept_entry_id, leaf))
        return await self._append([entry], on_conflict, idempotency_key, seen)

    async def _whole_first_kept(self, first_kept: str, leaf: str | None) -> str:
        """Return the entry to keep from, so that no call leaves the context whose result is kept or still to come.

        That is ``first_kept`` itself, or the message of the call if it lies before that. Pinned calls are kept anyway.
        An entry off the path to ``leaf`` stays as it is. The cost of the context, or else of the path.
        """
        if leaf is None:
            return first_kept
        read = await self._read_context(leaf)
        # Not the items: what an exclusion hides can be shown again.
        ids, messages = [entry.id for entry in read.tail], list(map(exchange_of, read.tail))
        if first_kept not in (item.entry_id for item in read.items):
            path = await self.get_active_path(leaf=leaf)
            ids = [entry.id for entry in path]
            messages = list(map(exchange_of, path))
        if first_kept not in ids:
            return first_kept
        pairing, at = Pairing(messages), ids.index(first_kept)
        if pairing.whole_cut(at) == at:
            return first_kept
        return ids[pairing.whole_cut(at, _pinned_callers(pairing, ids, await self.pins()))]

    async def _leaf_before(self, idempotency_key: str | None, on_conflict: OnConflict, seen: Seen) -> str | None:
        """Return the leaf that an append builds on; for a retry, the one that the first try built on."""
        check_name(idempotency_key, "idempotency_key")
        if (first := await first_landed(self._backend, self._ref, idempotency_key)) is not None:
            return first.parent_id
        if on_conflict != "rebase":
            return self._built_on(seen)
        return (await self._stored_info()).leaf_id

    async def append_branch_summary(
        self,
        summary: str,
        *,
        from_id: str | None,
        details: JsonValue = None,
        usage: Mapping[str, JsonValue] | None = None,
        calls: Sequence[Mapping[str, JsonValue]] = (),
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Appended:
        """Append the summary of a branch that was left. ``from_id`` is kept as given, not checked.

        ``usage`` is what the summarization calls used, ``calls`` their single usages: the ledger counts them, windows
        over the path do not. Otherwise as `append_compaction`.
        """
        seen = checked_seen(expected_leaf, expected_revision)
        entry = NewEntry.branch_summary(summary, from_id=from_id, details=details, usage=usage, calls=calls)
        return await self._append([entry], on_conflict, idempotency_key, seen)

    async def append_custom(
        self,
        kind: str,
        data: JsonValue = None,
        *,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Appended:
        """Append an entry of a further kind.

        ``custom_message`` is seen by the model as a user message; every other kind is never part of the context.
        Raises `InvalidEntry` for a kind that has a method of its own (message, compaction, branch_summary, exclusion).
        """
        if kind == EXCLUSION:
            raise InvalidEntry(f"kind: {kind!r} has methods of its own; use exclude() and include()")
        seen = checked_seen(expected_leaf, expected_revision)
        return await self._append([NewEntry.custom(kind, data)], on_conflict, idempotency_key, seen)

    def _append(
        self, entries: Sequence[NewEntry], on_conflict: OnConflict, idempotency_key: str | None, seen: Seen
    ) -> Awaitable[Appended]:
        checked_on_conflict(on_conflict)
        check_name(idempotency_key, "idempotency_key")

        def write(priced: Sequence[NewEntry]) -> Awaitable[Appended]:
            return self._commit(
                lambda: self._backend.append(
                    self._ref,
                    priced,
                    expected=self._expected(seen),
                    on_conflict=on_conflict,
                    idempotency_key=idempotency_key,
                ),
                self._note_append,
            )

        return self._write(write, entries)

    async def _write(
        self, write: Callable[[Sequence[NewEntry]], Awaitable[Appended]], entries: Sequence[NewEntry]
    ) -> Appended:
        """Check how large entries are, price them, write them, and return the result with what was odd about them."""
        self._limits.check_entries(entries)
        return with_oddities(*await write_what_fits(write, self._pricer.price_entries(entries)))

    async def import_entries(
        self,
        entries: Sequence[NewEntry],
        *,
        leaf: str | None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Appended:
        """Add entries that bring their own ids, parents and times, parents first, and set the leaf.

        A parent of None makes a root; any other is an entry the session sees, or an earlier one of these.
        ``leaf`` is one the session then sees, or None. All or nothing, and one step of `undo`. ``call_conflicts`` has
        the paid calls that were reported before with other numbers; the ledger keeps the first. What entries
        use is what their payloads report; one that names no paid call gets the one that its usage is of. Raises
        `LeafConflict`, `EntryNotFound`, and `InvalidEntry` for an id that is taken. O(len(entries)).
        """
        entries = checked_imported_entries(entries, program_of(self.metadata))
        checked_place(leaf, "leaf")
        seen = checked_seen(expected_leaf, expected_revision)

        def write(priced: Sequence[NewEntry]) -> Awaitable[Appended]:
            return self._commit(
                lambda: self._backend.import_entries(self._ref, priced, leaf=leaf, expected=self._expected(seen)),
                lambda result: self._note(result.leaf_id, result.revision),
            )

        return await self._write(write, entries)


def _pinned_callers(pairing: Pairing, ids: Sequence[str], pins: Sequence[str]) -> set[int]:
    places = {entry_id: at for at, entry_id in enumerate(ids)}
    groups = [pairing.group_of(places[pin]) for pin in pins if pin in places]
    return {group.caller for group in groups if group is not None and group.caller is not None}


async def write_what_fits(
    write: Callable[[Sequence[NewEntry]], Awaitable[Result]], entries: Sequence[NewEntry]
) -> tuple[Result, Sequence[NewEntry]]:
    """Write entries; return the result, and the entries as they were written.

    An answer is not refused for a number that is too large to be added up: the entry that reports the most is written
    without being counted, which its ``oddities`` say, and so on until the rest fits. Nor is it refused for an id of its
    provider's that another call has, too. Raises what ``write`` raises.
    """
    tries = 0
    while True:
        try:
            return await write(entries), entries
        except (SumTooLarge, CallConflict) as error:
            fitting = fitting_entries(entries, tries, error)
            if fitting is None:
                raise
            entries, tries = fitting, tries + 1


def fitting_entries(
    entries: Sequence[NewEntry], tries: int, error: SumTooLarge | CallConflict
) -> Sequence[NewEntry] | None:
    """Return entries without what kept them from being written; None if that cannot be left out."""
    return with_another_id(entries, error) if isinstance(error, CallConflict) else without_largest(entries, tries)


def with_another_id(entries: Sequence[NewEntry], conflict: CallConflict) -> list[NewEntry] | None:
    """Return entries of which the last answer whose response has the id of another call goes by an id of its own.

    Some servers number their answers anew at each start, or at random among a thousand. None if a caller gave the id.
    """
    for place, entry in reversed([*enumerate(entries)]):
        if conflict.call_id not in [call.call_id for call in entry.calls] or entry.kind != MESSAGE:
            continue
        name = ledger_name(decode_object(entry.payload).get(RESPONSE_ID))
        if name == entry.calls[0].call_id:
            # The calls of other models in it are named after the answer's.
            own = derived_id(name, repr([(call.usage, call.model) for call in entry.calls]))
            calls = tuple(replace(call, call_id=f"{own}{(call.call_id or '')[len(name) :]}") for call in entry.calls)
            told = (
                f"{RESPONSE_ID}: call {shown(conflict.call_id)} was reported before with other numbers "
                f"({', '.join(conflict.differences)}); this answer is counted as another call"
            )
            named = replace(entry, calls=calls, oddities=(*entry.oddities, told))
            return [*entries[:place], named, *entries[place + 1 :]]
    return None


def without_largest(entries: Sequence[NewEntry], tries: int) -> list[NewEntry] | None:
    """Return entries of which the one that reports the most is not counted; after several tries, all of them are not.

    None if none of them is counted.
    """
    counted = [place for place, entry in enumerate(entries) if entry.counted and _most(entry)]
    if not counted:
        return None
    largest = max(counted, key=lambda place: _most(entries[place]))
    left_out = {largest} if tries < _SINGLY else set(counted)
    return [_uncounted(entry) if place in left_out else entry for place, entry in enumerate(entries)]


def with_oddities(appended: Appended, entries: Sequence[NewEntry]) -> Appended:
    """Return the result of writing entries with what was odd about them."""
    oddities = oddities_of(entries)
    return replace(appended, oddities=oddities) if oddities else appended


def oddities_of(entries: Sequence[NewEntry]) -> tuple[str, ...]:
    """Return what is odd about entries."""
    return tuple(oddity for entry in entries for oddity in entry.oddities)


def _most(entry: NewEntry) -> int:
    numbers = [*entry.usage, *(number for call in entry.calls for number in (*call.usage, call.known_cost or 0))]
    return max(numbers)


def _uncounted(entry: NewEntry) -> NewEntry:
    where = "usage" if entry.id is None else f"entry {entry.id!r}: usage"
    return replace(entry, counted=False, oddities=(*entry.oddities, f"{where}: {TOO_LARGE}"))
