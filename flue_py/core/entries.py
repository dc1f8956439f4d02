"""Entries: the immutable rows of history, and what a caller hands in to have one made.

An `Entry` carries its payload as the stored JSON text and decodes it when asked, so that reading ten thousand
entries costs no parsing and what a caller does to a decoded value cannot reach anybody else's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from flue_py.core.calls import PaidCall, agent_of, call_of, outcome_of, read_call, read_calls
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import (
    JsonObject,
    JsonValue,
    decode_json,
    decode_object,
    encode_json,
    replace_lone_surrogates,
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
from flue_py.core.shapes import check_is_ours
from flue_py.core.spoken import spoken_text
from flue_py.core.usage import NO_USAGE, TOO_LARGE, SumTooLarge, Usage, UsageTotals
from flue_py.core.usage_shapes import (
    ReportedUsage,
    read_reported,
    reported_usage,
    with_words_for_numbers,
)
from flue_py.errors import InvalidArgument, InvalidEntry, shown
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    from flue_py.core import messages as models
    from flue_py.core.messages import Message
else:
    models = lazy_module("flue_py.core.messages")

Source: TypeAlias = Literal["prompt", "skill", "shell", "task", "retry"]

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
    """An entry ready to be written: checked, cleaned and encoded. Built by the functions of this module.

    ``id``, ``created_us`` and ``parent_id`` are None unless an importer brings them along; the store then
    chooses the id, reads the clock, and chains the entry to the one before it (the first to the leaf).
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


def new_message(
    message: Mapping[str, JsonValue] | Message, source: str | None = None, where: str = "message"
) -> NewEntry:
    """Return a message of ours as an entry ready to be written; ``where`` names it in errors.

    Raises as `entry_of_message`, and for a message in a provider's form, which may become several entries:
    `append_message` converts it. O(size).
    """
    if isinstance(message, Mapping):
        check_is_ours(message, where)
    return entry_of_message(message, source, where)


def entry_of_message(
    message: Mapping[str, JsonValue] | Message, source: str | None = None, where: str = "message"
) -> NewEntry:
    """Return a message as an entry ready to be written, in the form of any provider; ``where`` names it in errors.

    Lone surrogates are replaced, and counted in ``surrogates_replaced``. A message is never refused for its
    usage: ``oddities`` say what cannot be counted. Raises `InvalidEntry` naming the field, also if a required one is
    missing (see `flue_py.core.messages.check_complete`).
    """
    if isinstance(message, Mapping):
        value: Mapping[str, JsonValue] = message
    elif isinstance(message, models.MESSAGE_CLASSES):
        value = models.message_json(message)
    else:
        raise InvalidEntry(f"{where}: should be an object or a message model, not {type(message).__name__}")
    value, odd = _with_kept_usage(value, where)
    text, replaced = encode_json(value, where)
    role = models.validate_message(value, where)
    models.check_complete(value, where)
    calls: tuple[PaidCall, ...] = ()
    preview = None
    reported = None
    if role == "assistant" and value.get("usage") is not None:
        reported = read_reported(value["usage"], f"{where}.usage")
        calls = (answered_call(reported, value),)
    elif role == "user":
        preview = message_title(value)
    return NewEntry(
        MESSAGE,
        text,
        role,
        checked_source(source),
        NO_USAGE if reported is None else reported.totals,
        calls,
        surrogates_replaced=replaced,
        preview=preview,
        oddities=odd if reported is None else _told(odd, reported.oddities),
    )


def _told(kept: Sequence[str], read: Sequence[str]) -> tuple[str, ...]:
    """Return oddities of what is kept as text and of what was read, one for each place."""
    places = {odd.partition(": ")[0] for odd in kept}
    return (*kept, *(odd for odd in read if odd.partition(": ")[0] not in places))


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
        entry = replace(entry, preview=says)
    if not may_be_paid(entry.kind, entry.role):
        return entry if entry.usage == NO_USAGE else replace(entry, usage=NO_USAGE)
    usage = payload.get("usage")
    reported = read_reported(usage)
    totals = reported.totals if adds_usage(entry.kind, entry.role) else NO_USAGE
    calls = entry.calls
    if usage is not None and not calls and entry.counted and not entry.unpaid:
        answered = is_answer(entry.kind, entry.role)
        calls = (answered_call(reported, payload) if answered else call_of(reported, purpose=entry.kind),)
    if (totals, calls) == (entry.usage, entry.calls):
        return entry
    return replace(entry, usage=totals, calls=calls, oddities=reported.oddities)


def answered_call(reported: ReportedUsage, message: Mapping[str, JsonValue]) -> PaidCall:
    """Return the call that an assistant message is the answer of."""
    return call_of(
        reported,
        provider=message.get("provider"),
        model=message.get("model"),
        outcome=outcome_of(message.get("stopReason")),
        agent=agent_of(message),
    )


def message_text(value: Mapping[str, JsonValue]) -> str:
    """Return what a person would read of a message: its content, or its text parts joined by newlines.

    Thinking, tool calls, images and other parts are left out. Never raises: a value that is not a message has no text.
    """
    content: object = value.get("content") if isinstance(value, Mapping) else None
    if isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        return ""
    parts = [part for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


PREVIEW_LENGTH = 120
_PREVIEW_SEARCHED = 4000


def message_preview(text: str) -> str | None:
    """Return the first line with text in it, at most `PREVIEW_LENGTH` characters; None if there is none."""
    for line in text[:_PREVIEW_SEARCHED].splitlines():
        stripped = line.replace("\0", "").strip()
        if stripped:
            return replace_lone_surrogates(stripped[:PREVIEW_LENGTH])[0]
    return None


def is_spoken(message: Mapping[str, JsonValue]) -> bool:
    """Return whether a message of the user says something of a person's own, rather than of a program's alone.

    Pictures and other parts that are not text count as a person's; so does a message that says nothing.
    """
    if message.get("isMeta") is True:
        return False
    content = message.get("content")
    if isinstance(content, list) and any(isinstance(part, dict) and part.get("type") != "text" for part in content):
        return True
    text = message_text(message)
    return not text.strip() or bool(spoken_text(text))


def message_title(message: Mapping[str, JsonValue]) -> str | None:
    """Return the first line of what a person said in a message of the user, as a title; None if there is none.

    Every format, and every store, takes the title of a session without one from here: from its first such message.
    """
    return None if message.get("isMeta") is True else message_preview(spoken_text(message_text(message)))


def checked_source(source: str | None) -> str | None:
    """Return ``source`` unchanged. Raises `InvalidEntry` if it is not a short tag."""
    if source is not None and not (isinstance(source, str) and _KIND.fullmatch(source)):
        raise InvalidEntry(f"source: {shown(source)} is not a tag; use prompt, skill, shell, task or retry")
    return source


def new_compaction(
    summary: str,
    *,
    first_kept_entry_id: str,
    tokens_before: int,
    details: JsonValue = None,
    usage: Mapping[str, JsonValue] | None = None,
    calls: Sequence[Mapping[str, JsonValue]] = (),
) -> NewEntry:
    """Return a compaction as an entry ready to be written.

    ``usage`` is the sum of the summarisation calls; ``calls`` are their single usages for the ledger (each may
    carry ``provider``, ``model`` and ``callId``). Without ``calls`` the ledger gets one row; without ``usage``
    it is the sum of the calls. Raises `InvalidEntry` naming the field.
    """
    _check_string(summary, "summary")
    _check_string(first_kept_entry_id, "first_kept_entry_id")
    if isinstance(tokens_before, bool) or not isinstance(tokens_before, int) or tokens_before < 0:
        raise InvalidEntry(f"tokens_before: {shown(tokens_before)} is not a count of tokens")
    paid = _paid_for(usage, calls, COMPACTION)
    fields: JsonObject = {
        "summary": summary,
        "firstKeptEntryId": first_kept_entry_id,
        "tokensBefore": tokens_before,
    }
    if details is not None:
        fields["details"] = details
    if paid.reported is not None:
        fields["usage"] = paid.reported
    text, replaced = encode_json(fields, "compaction")
    return NewEntry(
        COMPACTION,
        text,
        usage=paid.totals,
        calls=paid.calls,
        references=(first_kept_entry_id,),
        surrogates_replaced=replaced,
        counted=paid.counted,
        oddities=paid.oddities,
    )


def kept_from(compaction: NewEntry, first_kept: str) -> NewEntry:
    """Return a compaction that keeps from this entry on, and says in ``oddities`` that it was asked for another."""
    asked = compaction.references[0]
    if first_kept == asked:
        return compaction
    payload, _ = encode_json({**decode_object(compaction.payload), "firstKeptEntryId": first_kept}, "compaction")
    moved = (
        f"first_kept_entry_id: kept from {first_kept!r} on, which calls the tool that is answered at or after {asked!r}"
    )
    return replace(compaction, payload=payload, references=(first_kept,), oddities=(*compaction.oddities, moved))


def _paid_for(usage: Mapping[str, JsonValue] | None, calls: Sequence[Mapping[str, JsonValue]], purpose: str) -> _Paid:
    """Return the calls that made a summary, and what they report together. Raises `InvalidEntry`."""
    if usage is not None and not isinstance(usage, Mapping):
        raise InvalidEntry(f"usage: should be an object, not {type(usage).__name__}")
    paid = read_calls(calls, "calls", purpose)
    words = with_words_for_numbers(None if usage is None else dict(usage), "usage")
    kept = with_words_for_numbers([dict(call) for call in calls], "calls")
    odd = (*words[1], *kept[1])
    if odd:
        usage = cast("Mapping[str, JsonValue] | None", words[0])
        calls = cast("Sequence[Mapping[str, JsonValue]]", kept[0])
    if usage is not None:
        # The sum of several calls is read like one call. It is not counted as a call if the calls are named.
        whole = read_reported(usage, "usage")
        return _Paid(
            paid or (read_call(usage, "usage", purpose),), dict(usage), whole.totals, _told(odd, whole.oddities)
        )
    if not paid:
        return _Paid((), None, NO_USAGE, ())
    oddities = [odd for number, call in enumerate(calls) for odd in read_reported(call, f"calls[{number}]").oddities]
    kept_calls: JsonObject = {"calls": [dict(call) for call in calls]}
    # If the usage of all of them is unknown, there is no sum: they are kept as they were reported.
    reported = kept_calls if all(call.is_unknown for call in paid) else _summed_json(paid)
    # What the payload says is what counts: dollars as JSON numbers can be a hair off the sum.
    whole = read_reported(reported)
    if reported is None or whole.oddities:
        # An answer that was paid for is kept, even if its numbers are too large.
        return _Paid(paid, kept_calls, NO_USAGE, (*_told(odd, oddities), f"calls: {TOO_LARGE}"), counted=False)
    return _Paid(paid, reported, whole.totals, _told(odd, oddities))


class _Paid(NamedTuple):
    """What a summary took: its calls, the usage that its payload keeps, and what that adds to a path."""

    calls: tuple[PaidCall, ...]
    reported: JsonObject | None
    totals: UsageTotals
    oddities: tuple[str, ...]
    counted: bool = True


def _summed_json(paid: Sequence[PaidCall]) -> JsonObject | None:
    """Return a sum of calls as the payload keeps it: the kinds of tokens, and the cost, that some of them reported.

    None if it leaves the stored range.
    """
    total = NO_USAGE
    try:
        for call in paid:
            total = total.plus(call.usage)
    except SumTooLarge:
        return None
    told = frozenset[str]().union(*(call.told for call in paid))
    known = Usage.from_totals(total).known(told)
    whole = Usage.from_totals(total).to_json()
    summed = {name: each for name, each in whole.items() if known.get(name, each) is not None}
    return summed if any(call.known_cost is not None for call in paid) else {**summed, "cost": None}


def new_branch_summary(
    summary: str,
    *,
    from_id: str | None,
    details: JsonValue = None,
    usage: Mapping[str, JsonValue] | None = None,
    calls: Sequence[Mapping[str, JsonValue]] = (),
) -> NewEntry:
    """Return a branch summary as an entry ready to be written. ``from_id`` is kept as given.

    ``usage`` and ``calls`` are what it took to write it, as for `new_compaction`: the ledger counts them, the path does
    not. Raises `InvalidEntry` naming the field.
    """
    _check_string(summary, "summary")
    if from_id is not None:
        _check_string(from_id, "from_id")
    paid = _paid_for(usage, calls, BRANCH_SUMMARY)
    fields: JsonObject = {"summary": summary, "fromId": from_id}
    if details is not None:
        fields["details"] = details
    if paid.reported is not None:
        fields["usage"] = paid.reported
    text, replaced = encode_json(fields, "branch_summary")
    return NewEntry(
        BRANCH_SUMMARY,
        text,
        calls=paid.calls,
        surrogates_replaced=replaced,
        counted=paid.counted,
        oddities=paid.oddities,
    )


def new_custom(kind: str, data: JsonValue) -> NewEntry:
    """Return an entry of any further kind. Raises `InvalidEntry` for a kind with a builder of its own."""
    if checked_kind(kind) in BUILT_KINDS:
        raise InvalidEntry(f"kind: {kind!r} has a method of its own; append_custom is for further kinds")
    text, replaced = encode_json(data, "data")
    return NewEntry(kind, text, surrogates_replaced=replaced)


def new_exclusion(
    entry_id: str,
    part: int | str | None = None,
    *,
    excluded: bool = True,
    by: str | None = None,
    why: str | None = None,
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
    return NewEntry(EXCLUSION, text, references=(entry_id,), surrogates_replaced=replaced)


def checked_kind(kind: str) -> str:
    """Return ``kind`` unchanged. Raises `InvalidEntry` if it is not a name (letters, digits, ``_ . : -``)."""
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise InvalidEntry(f"kind: {shown(kind)} is not a name of at most 64 letters, digits and _ . : -")
    return kind


def _check_string(value: object, where: str) -> None:
    if not isinstance(value, str):
        raise InvalidEntry(f"{where}: should be a string, not {type(value).__name__}")
