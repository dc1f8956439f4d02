"""Entries: the immutable rows of history, and what a caller hands in to have one made.

An `Entry` carries its payload as the stored JSON text and decodes it when asked, so that reading ten thousand
entries costs no parsing and what a caller does to a decoded value cannot reach anybody else's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from flue_py.core.bound import with_produced_under
from flue_py.core.calls import PaidCall, by_model, call_of
from flue_py.core.frozen import changed, frozen
from flue_py.core.jsontext import (
    JsonObject,
    JsonValue,
    decode_json,
    decode_object,
    encode_json,
)
from flue_py.core.kinds import (
    BRANCH_SUMMARY,
    BUILT_KINDS,
    COMPACTION,
    EXCLUSION,
    MESSAGE,
    adds_usage,
    is_answer,
    may_be_paid,
)
from flue_py.core.reported import all_oddities, answered_calls, calls_of_answer, paid_for
from flue_py.core.shapes import check_is_ours
from flue_py.core.spoken import message_title
from flue_py.core.usage import NO_USAGE, UsageTotals
from flue_py.core.usage_shapes import read_beside, reported_usage, with_words_for_numbers
from flue_py.errors import InvalidArgument, InvalidEntry, shown
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    from flue_py.core import messages as models
    from flue_py.core.messages import Message
else:
    models = lazy_module("flue_py.core.messages")

Source: TypeAlias = Literal["prompt", "skill", "shell", "task", "retry"]

FROM_HOOK = "fromHook"
"""The field of a compaction whose text a program gave in place of a mode."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")


def to_microseconds(moment: datetime) -> int:
    """Return an aware datetime as integer microseconds since 1970 UTC.

    Raises `ValueError` for a naive one, and for one that UTC has in a year before 1 or after 9999.
    """
    if moment.tzinfo is None:
        raise ValueError("a datetime without a time zone is not a point in time; give it a time zone")
    since = moment - EPOCH
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if not is_moment(microseconds):
        raise ValueError("the time is not in the years 1 to 9999 of UTC; give another")
    return microseconds


def is_moment(microseconds: object) -> bool:
    """Return whether a value is a time in microseconds since 1970 UTC that a datetime can stand for."""
    is_whole = isinstance(microseconds, int) and not isinstance(microseconds, bool)
    return is_whole and _FIRST_US <= cast("int", microseconds) <= _LAST_US


def from_microseconds(microseconds: int) -> datetime:
    """Return integer microseconds since 1970 UTC as an aware datetime."""
    return EPOCH + timedelta(microseconds=microseconds)


@frozen
class Entry:
    """One row of history.

    ``session_id`` is the session that created it (None once that session was deleted), ``revision`` that session's
    revision at which it was added and ``ordinal`` its place among the entries of that revision. ``depth`` counts from
    0 at a root.
    ``payload`` and ``extra`` are JSON text.
    """

    id: str
    parent_id: str | None
    session_id: str | None
    kind: str
    role: str | None
    source: str | None
    depth: int
    revision: int
    ordinal: int
    created_us: int
    payload: str
    extra: str | None = None

    @property
    def created_at(self) -> datetime:
        """When the entry was made (UTC)."""
        return from_microseconds(self.created_us)

    @property
    def data(self) -> JsonValue:
        """The payload, decoded afresh: the message of a message entry, the fields of any other kind."""
        return decode_json(self.payload)

    @property
    def fields(self) -> JsonObject:
        """The payload as an object. Raises `CorruptStore` if it is something else."""
        return decode_object(self.payload)

    @property
    def message(self) -> Message:
        """The message of a message entry, typed and frozen. Never None: an entry of another kind has none to give.

        Raises `InvalidArgument` for an entry of another kind.
        """
        if self.kind != MESSAGE:
            raise InvalidArgument(
                f"entry {self.id!r} is of kind {self.kind}, not a message; look at its kind first, or read its data"
            )
        return models.parse_message(self.fields)

    @property
    def extra_fields(self) -> JsonObject:
        """Fields that an imported row carried beside its payload, under their own names."""
        return {} if self.extra is None else decode_object(self.extra)

    @property
    def usage(self) -> UsageTotals:
        """What this entry reported: an assistant message's usage or a compaction's; zero otherwise."""
        return reported_usage(self.kind, self.role, self.fields) if adds_usage(self.kind, self.role) else NO_USAGE


@frozen
class NewEntry:
    """An entry ready to be written: checked, cleaned and encoded.

    Made by `message`, `compaction`, `branch_summary`, `custom` and `exclusion`: what is made otherwise is not
    ``built``, and no import takes it. ``id``, ``parent_id`` and ``created_us`` are None unless an importer brings them
    along: an import then makes up the id, takes the clock's time, and makes the entry a root. ``extra`` is the JSON
    text of fields that stand beside the payload.
    ``references`` are ids that must be entries the session sees. ``oddities`` say what of the reported usage was not
    counted as it stands, and why. ``unpaid`` says that no call was paid for it although it reports usage.
    """

    kind: str
    payload: str
    role: str | None = None
    source: str | None = None
    usage: UsageTotals = NO_USAGE
    calls: tuple[PaidCall, ...] = ()
    references: tuple[str, ...] = ()
    id: str | None = None
    parent_id: str | None = None
    created_us: int | None = None
    extra: str | None = None
    surrogates_replaced: int = 0
    preview: str | None = None
    counted: bool = True
    oddities: tuple[str, ...] = ()
    unpaid: bool = False
    built: bool = field(default=False, repr=False, compare=False)

    @classmethod
    def message(
        cls,
        message: Mapping[str, JsonValue] | Message,
        source: str | None = None,
        *,
        id: str | None = None,
        parent_id: str | None = None,
        created_at: datetime | None = None,
        extra: Mapping[str, JsonValue] | None = None,
        calls: Sequence[Mapping[str, JsonValue]] = (),
    ) -> NewEntry:
        """Return a message of ours as an entry.

        ``source`` tags it (prompt, skill, shell, task, retry). ``calls`` are the paid calls behind an answer, if it
        took several (see `flue_py.Session.append_message`). Lone surrogates are replaced, and counted in
        ``surrogates_replaced``. A message is never refused for its usage: ``oddities`` say what cannot be counted.
        Raises `InvalidEntry` naming the field, and for a message in a provider's form, which may become several
        entries: `append_message` converts it. O(size).
        """
        if isinstance(message, Mapping):
            check_is_ours(message, "message")
        return _placed(entry_of_message(message, source, calls=calls), id, parent_id, created_at, extra)

    @classmethod
    def compaction(
        cls,
        summary: str,
        *,
        first_kept_entry_id: str,
        tokens_before: int,
        details: JsonValue = None,
        usage: Mapping[str, JsonValue] | None = None,
        calls: Sequence[Mapping[str, JsonValue]] = (),
        from_hook: bool = False,
        id: str | None = None,
        parent_id: str | None = None,
        created_at: datetime | None = None,
        extra: Mapping[str, JsonValue] | None = None,
    ) -> NewEntry:
        """Return a compaction as an entry; one whose first kept entry is "" keeps nothing that came before it.

        ``usage`` is the sum of the summarisation calls; ``calls`` are their single usages for the ledger (each may
        carry ``provider``, ``model`` and ``callId``). Without ``calls`` the ledger gets one row; without ``usage``
        it is the sum of the calls. ``from_hook`` notes that a program gave the text in place of a mode: its details
        are the program's own. Raises `InvalidEntry` naming the field. O(size).
        """
        _check_string(summary, "summary")
        _check_string(first_kept_entry_id, "first_kept_entry_id")
        if isinstance(tokens_before, bool) or not isinstance(tokens_before, int) or tokens_before < 0:
            raise InvalidEntry(f"tokens_before: {shown(tokens_before)} is not a count of tokens")
        fields: JsonObject = {
            "summary": summary,
            "firstKeptEntryId": first_kept_entry_id,
            "tokensBefore": tokens_before,
        }
        if from_hook:
            fields[FROM_HOOK] = True
        made = _summary(COMPACTION, fields, details, usage, calls)
        kept = (first_kept_entry_id,) if first_kept_entry_id else ()
        return _placed(changed(made, references=kept), id, parent_id, created_at, extra)

    @classmethod
    def branch_summary(
        cls,
        summary: str,
        *,
        from_id: str | None,
        abandoned_leaf_id: str | None = None,
        details: JsonValue = None,
        usage: Mapping[str, JsonValue] | None = None,
        calls: Sequence[Mapping[str, JsonValue]] = (),
        id: str | None = None,
        parent_id: str | None = None,
        created_at: datetime | None = None,
        extra: Mapping[str, JsonValue] | None = None,
    ) -> NewEntry:
        """Return a branch summary as an entry. ``from_id`` and ``abandoned_leaf_id`` are kept as given.

        ``usage`` and ``calls`` are what it took to write it, as for `compaction`: the ledger counts them, the path does
        not. Raises `InvalidEntry` naming the field. O(size).
        """
        _check_string(summary, "summary")
        if from_id is not None:
            _check_string(from_id, "from_id")
        fields: JsonObject = {"summary": summary, "fromId": from_id}
        if abandoned_leaf_id is not None:
            _check_string(abandoned_leaf_id, "abandoned_leaf_id")
            fields["abandonedLeafId"] = abandoned_leaf_id
        made = _summary(BRANCH_SUMMARY, fields, details, usage, calls)
        return _placed(changed(made, usage=NO_USAGE), id, parent_id, created_at, extra)

    @classmethod
    def custom(
        cls,
        kind: str,
        data: JsonValue = None,
        *,
        id: str | None = None,
        parent_id: str | None = None,
        created_at: datetime | None = None,
        extra: Mapping[str, JsonValue] | None = None,
        calls: Sequence[Mapping[str, JsonValue]] = (),
    ) -> NewEntry:
        """Return an entry of any further kind, with the paid calls that it stands for, if there are any.

        The ledger counts ``calls``, of the purpose ``turn``; the usage of the path does not. Raises `InvalidEntry`
        naming the field, and for a kind with a builder of its own. O(size).
        """
        if checked_kind(kind) in BUILT_KINDS:
            raise InvalidEntry(f"kind: {kind!r} has a method of its own; append_custom is for further kinds")
        text, replaced = encode_json(data, "data")
        paid = paid_for(None, calls, "turn")
        made = NewEntry(kind, text, calls=paid.calls, surrogates_replaced=replaced, oddities=paid.oddities, built=True)
        return _placed(made, id, parent_id, created_at, extra)

    @classmethod
    def exclusion(
        cls,
        entry_id: str,
        part: int | str | None = None,
        *,
        excluded: bool = True,
        by: str | None = None,
        why: str | None = None,
        id: str | None = None,
        parent_id: str | None = None,
        created_at: datetime | None = None,
        extra: Mapping[str, JsonValue] | None = None,
    ) -> NewEntry:
        """Return an entry that leaves another, or one part of its content, out of the context, or takes it back in.

        ``part`` is a position in the content, or the id of a part (that of a tool call). Raises `InvalidEntry`.
        """
        _check_string(entry_id, "entry_id")
        fields: JsonObject = {"entryId": entry_id}
        if part is not None:
            fields["part"] = part
        if not excluded:
            fields["excluded"] = False
        fields |= {name: text for name, text in (("by", by), ("why", why)) if text is not None}
        text, replaced = encode_json(fields, EXCLUSION)
        made = NewEntry(EXCLUSION, text, references=(entry_id,), surrogates_replaced=replaced, built=True)
        return _placed(made, id, parent_id, created_at, extra)


def _placed(
    entry: NewEntry,
    entry_id: str | None,
    parent_id: str | None,
    created_at: datetime | None,
    extra: Mapping[str, JsonValue] | None,
) -> NewEntry:
    """Return an entry with what an importer says of its place."""
    if entry_id is None and parent_id is None and created_at is None and extra is None:
        return entry
    for what, text in (("id", entry_id), ("parent_id", parent_id)):
        if text is not None:
            _check_string(text, what)
    if created_at is not None and not isinstance(created_at, datetime):
        raise InvalidEntry(f"created_at: should be a datetime, not {type(created_at).__name__}")
    if extra is not None and not isinstance(extra, Mapping):
        raise InvalidEntry(f"extra: should be an object, not {type(extra).__name__}")
    try:
        created_us = None if created_at is None else to_microseconds(created_at)
    except ValueError as error:
        raise InvalidEntry(f"created_at: {error}") from error
    beside, replaced = (None, 0) if extra is None else encode_json(dict(extra), "extra")
    return changed(
        entry,
        id=entry_id,
        parent_id=parent_id,
        created_us=created_us,
        extra=beside,
        surrogates_replaced=entry.surrogates_replaced + replaced,
    )


def _summary(
    kind: str,
    fields: JsonObject,
    details: JsonValue,
    usage: Mapping[str, JsonValue] | None,
    calls: Sequence[Mapping[str, JsonValue]],
) -> NewEntry:
    paid = paid_for(usage, calls, kind)
    if details is not None:
        fields["details"] = details
    if paid.reported is not None:
        fields["usage"] = paid.reported
    text, replaced = encode_json(fields, kind)
    return NewEntry(
        kind,
        text,
        usage=paid.totals,
        calls=paid.calls,
        surrogates_replaced=replaced,
        counted=paid.counted,
        oddities=paid.oddities,
        built=True,
    )


def new_message(
    message: Mapping[str, JsonValue] | Message, source: str | None = None, where: str = "message"
) -> NewEntry:
    """Return what `NewEntry.message` returns: its earlier name. ``where`` names the message in errors."""
    if isinstance(message, Mapping):
        check_is_ours(message, where)
    return entry_of_message(message, source, where)


def entry_of_message(
    message: Mapping[str, JsonValue] | Message,
    source: str | None = None,
    where: str = "message",
    calls: Sequence[Mapping[str, JsonValue]] = (),
    produced_under: str | None = None,
) -> NewEntry:
    """Return a message as an entry ready to be written, in the form of any provider; ``where`` names it in errors.

    With ``produced_under`` an answer with signed reasoning says so (`flue_py.core.bound`). Surrogates are replaced,
    and counted in ``surrogates_replaced``. A message is never refused for its usage: ``oddities`` say what cannot be
    counted. Raises `InvalidEntry` naming the field, also if a required one is missing (see
    `flue_py.core.messages.check_complete`).
    """
    if isinstance(message, (dict, Mapping)):
        value: Mapping[str, JsonValue] = message
    elif isinstance(message, models.MESSAGE_CLASSES):
        value = models.message_json(message)
    else:
        raise InvalidEntry(f"{where}: should be an object or a message model, not {type(message).__name__}")
    if produced_under is not None:
        value = with_produced_under(dict(value), produced_under)
    if calls:
        return _answer_of_calls(value, source, where, calls)
    odd: tuple[str, ...] = ()
    role = models.accepted_role(value)
    if role is None:
        value, odd = _with_kept_usage(value, where)
        text, replaced = encode_json(value, where)
        role = models.validate_message(value, where)
    else:
        text, replaced = encode_json(value, where, is_json=True)
    models.check_complete(value, where)
    paid: tuple[PaidCall, ...] = ()
    preview = None
    reported = None
    if role == "assistant" and value.get("usage") is not None:
        reported = read_beside(value, f"{where}.usage")
        paid = calls_of_answer(reported, value)
    elif role == "user":
        preview = message_title(value)
    return NewEntry(
        MESSAGE,
        text,
        role,
        checked_source(source),
        NO_USAGE if reported is None else reported.totals,
        paid,
        surrogates_replaced=replaced,
        preview=preview,
        oddities=odd if reported is None else all_oddities(odd, reported.oddities),
        built=True,
    )


def _answer_of_calls(
    value: Mapping[str, JsonValue], source: str | None, where: str, calls: Sequence[Mapping[str, JsonValue]]
) -> NewEntry:
    """Return an answer that several calls made. One without usage of its own gets their sum."""
    own = value.get("usage")
    paid = paid_for(None, calls, "turn")
    answer = entry_of_message({**value, "usage": paid.reported} if own is None else value, source, where)
    if answer.role != "assistant":
        raise InvalidEntry(f"calls: only an answer is made by calls, not a message of the role {shown(answer.role)}")
    oddities = paid.oddities if own is None else all_oddities(paid.oddities, answer.oddities)
    return changed(
        answer,
        calls=answered_calls(paid.calls, value),
        counted=paid.counted or own is not None,
        oddities=oddities,
    )


def _with_kept_usage(value: Mapping[str, JsonValue], where: str) -> tuple[Mapping[str, JsonValue], tuple[str, ...]]:
    """Return a message whose usage JSON can hold, and what of it is kept as text for that."""
    usage = value.get("usage")
    if usage is None:
        return value, ()
    kept, odd = with_words_for_numbers(usage, f"{where}.usage")
    return ({**value, "usage": kept}, odd) if odd else (value, ())


def derived_from_payload(entry: NewEntry, payload: Mapping[str, JsonValue]) -> NewEntry:
    """Return an entry with what its payload says: its preview, its usage, and, where it names none, the call of that.

    ``payload`` is the entry's, decoded. The same entry where nothing differs.
    """
    says = message_title(payload) if entry.kind == MESSAGE and entry.role == "user" else None
    if entry.preview != says:
        entry = changed(entry, preview=says)
    if not may_be_paid(entry.kind, entry.role):
        return entry if entry.usage == NO_USAGE else changed(entry, usage=NO_USAGE)
    usage = payload.get("usage")
    reported = read_beside(payload)
    totals = reported.totals if adds_usage(entry.kind, entry.role) else NO_USAGE
    calls = entry.calls
    if usage is not None and not calls and entry.counted and not entry.unpaid:
        answered = is_answer(entry.kind, entry.role)
        alone = call_of(reported, purpose=entry.kind)
        calls = calls_of_answer(reported, payload) if answered else by_model(alone, reported)
    if (totals, calls) == (entry.usage, entry.calls):
        return entry
    return changed(entry, usage=totals, calls=calls, oddities=reported.oddities)


def checked_source(source: str | None) -> str | None:
    """Return ``source`` unchanged. Raises `InvalidEntry` if it is not a short tag."""
    if source is not None and not (isinstance(source, str) and _KIND.fullmatch(source)):
        raise InvalidEntry(f"source: {shown(source)} is not a tag; use prompt, skill, shell, task or retry")
    return source


def leaving(summary: NewEntry, from_id: str | None, leaf: str | None) -> NewEntry:
    """Return a branch summary that names what it lies below ("root" for nothing) and the leaf that was left."""
    fields = decode_object(summary.payload) | {"fromId": "root" if from_id is None else from_id}
    if leaf is not None:
        fields["abandonedLeafId"] = leaf
    return changed(summary, payload=encode_json(fields, "summary")[0])


def kept_from(compaction: NewEntry, first_kept: str) -> NewEntry:
    """Return a compaction that keeps from this entry on, and says in ``oddities`` that it was asked for another."""
    asked = compaction.references[0]
    if first_kept == asked:
        return compaction
    payload, _ = encode_json({**decode_object(compaction.payload), "firstKeptEntryId": first_kept}, "compaction")
    moved = (
        f"first_kept_entry_id: kept from {first_kept!r} on, which calls the tool that is answered at or after {asked!r}"
    )
    return changed(compaction, payload=payload, references=(first_kept,), oddities=(*compaction.oddities, moved))


def checked_kind(kind: str) -> str:
    """Return ``kind`` unchanged. Raises `InvalidEntry` if it is not a name (letters, digits, ``_ . : -``)."""
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise InvalidEntry(f"kind: {shown(kind)} is not a name of at most 64 letters, digits and _ . : -")
    return kind


def _check_string(value: object, where: str) -> None:
    if not isinstance(value, str):
        raise InvalidEntry(f"{where}: should be a string, not {type(value).__name__}")
