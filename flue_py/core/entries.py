"""Entries: the immutable rows of history, and the values of which a caller has new ones made.

An `Entry` carries its payload as the stored JSON text and decodes it when asked, so that reading ten thousand
entries costs no parsing and a caller's change of a decoded value reaches nobody else's.
"""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias, TypedDict, Unpack, cast

from msgspec.structs import replace

from flue_py.core import kinds
from flue_py.core.json import (
    Frozen,
    JsonObject,
    JsonValue,
    NamedTuple,
    Selective,
    decode_json,
    decode_object,
    encode_json,
)
from flue_py.core.usage import (
    NO_USAGE,
    PaidCall,
    UsageTotals,
    all_oddities,
    answered_calls,
    by_model,
    call_of,
    calls_of_answer,
    is_whole,
    paid_for,
    read_beside,
    reported_usage,
    with_words_for_numbers,
)
from flue_py.errors import CorruptStore, InvalidArgument, InvalidEntry, shown
from flue_py.lazy import expression, lazy_module

if TYPE_CHECKING:
    from flue_py.core import messages
    from flue_py.core.messages import Message
else:
    messages = lazy_module("flue_py.core.messages")


# ---------------------------------------------------------------------------------------------------------------------
# Entries: the immutable rows of history, and the values of which a caller has new ones made.
#
# An `Entry` carries its payload as the stored JSON text and decodes it when asked, so that reading ten thousand
# entries costs no parsing and a caller's change of a decoded value reaches nobody else's.

Source: TypeAlias = Literal["prompt", "skill", "shell", "task", "retry"]

FROM_HOOK = "fromHook"
"""The field of a compaction whose text is a program's in place of a mode's."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_KIND = expression(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")


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
    return is_whole(microseconds, _FIRST_US, _LAST_US)


def from_microseconds(microseconds: int) -> datetime:
    """Return integer microseconds since 1970 UTC as an aware datetime."""
    return EPOCH + timedelta(microseconds=microseconds)


class Entry(Frozen):
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
        if self.kind != kinds.MESSAGE:
            raise InvalidArgument(
                f"entry {self.id!r} is of kind {self.kind}, not a message; look at its kind first, or read its data"
            )
        return messages.parse_message(self.fields)

    @property
    def extra_fields(self) -> JsonObject:
        """Fields that an imported row carried beside its payload, under their own names."""
        return {} if self.extra is None else decode_object(self.extra)

    @property
    def usage(self) -> UsageTotals:
        """The usage that this entry reported: an assistant message's usage or a compaction's; zero otherwise."""
        return reported_usage(self.kind, self.role, self.fields) if kinds.adds_usage(self.kind, self.role) else NO_USAGE


class Placement(TypedDict, total=False):
    """The place of an entry that an importer brings along, with fields that stand beside its payload."""

    id: str | None
    parent_id: str | None
    created_at: datetime | None
    extra: Mapping[str, JsonValue] | None


class NewEntry(Selective):
    """An entry ready to be written: checked, cleaned and encoded.

    Made by `message`, `compaction`, `branch_summary`, `custom` and `exclusion`: any other is not ``built``, and no
    import takes it. ``id``, ``parent_id`` and ``created_us`` are None unless an importer brings them along: an import
    then makes up the id, takes the clock's time, and makes the entry a root. ``extra`` is the JSON text of fields that
    stand beside the payload. ``references`` are ids that must be entries the session sees. ``oddities`` say which part
    of the reported usage was not counted as it stands, and why. ``unpaid`` says that no call was paid for it although
    it reports usage.
    """

    _not_compared: ClassVar[tuple[str, ...]] = ("built",)
    _not_shown: ClassVar[tuple[str, ...]] = ("built",)

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
    counted: bool = True
    oddities: tuple[str, ...] = ()
    unpaid: bool = False
    built: bool = False

    @property
    def preview(self) -> str | None:
        """The title that a message of the user gives its session; None for others, and without words. O(size)."""
        if self.kind != kinds.MESSAGE or self.role != "user":
            return None
        return kinds.message_title(decode_object(self.payload))

    @classmethod
    def message(
        cls,
        message: Mapping[str, object] | Message,
        source: str | None = None,
        *,
        calls: Sequence[Mapping[str, object]] = (),
        **place: Unpack[Placement],
    ) -> NewEntry:
        """Return a message of ours as an entry.

        ``source`` tags it (prompt, skill, shell, task, retry). ``calls`` are the paid calls behind an answer, if it
        took several (see `flue_py.Session.append_message`). Lone surrogates are replaced, and counted in
        ``surrogates_replaced``. A message is never refused for its usage: ``oddities`` say which part cannot be
        counted. Raises `InvalidEntry` naming the field, and for a message in a provider's form, which may become
        several entries: `append_message` converts it. O(size).
        """
        if isinstance(message, Mapping):
            kinds.check_is_ours(cast("Mapping[str, JsonValue]", message))
        return _placed(entry_of_message(message, source, calls=calls), place)

    @classmethod
    def compaction(
        cls,
        summary: str,
        *,
        first_kept_entry_id: str,
        tokens_before: int,
        details: object = None,
        usage: Mapping[str, object] | None = None,
        calls: Sequence[Mapping[str, object]] = (),
        from_hook: bool = False,
        **place: Unpack[Placement],
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
        fields: dict[str, object] = {
            "summary": summary,
            "firstKeptEntryId": first_kept_entry_id,
            "tokensBefore": tokens_before,
        }
        if from_hook:
            fields[FROM_HOOK] = True
        compaction = _summary(kinds.COMPACTION, fields, details, usage, calls)
        references = (first_kept_entry_id,) if first_kept_entry_id else ()
        return _placed(replace(compaction, references=references), place)

    @classmethod
    def branch_summary(
        cls,
        summary: str,
        *,
        from_id: str | None,
        abandoned_leaf_id: str | None = None,
        details: object = None,
        usage: Mapping[str, object] | None = None,
        calls: Sequence[Mapping[str, object]] = (),
        **place: Unpack[Placement],
    ) -> NewEntry:
        """Return a branch summary as an entry. ``from_id`` and ``abandoned_leaf_id`` are kept as given.

        ``usage`` and ``calls`` are its cost, as for `compaction`: the ledger counts them, the path does
        not. Raises `InvalidEntry` naming the field. O(size).
        """
        _check_string(summary, "summary")
        if from_id is not None:
            _check_string(from_id, "from_id")
        fields: dict[str, object] = {"summary": summary, "fromId": from_id}
        if abandoned_leaf_id is not None:
            _check_string(abandoned_leaf_id, "abandoned_leaf_id")
            fields["abandonedLeafId"] = abandoned_leaf_id
        summary_entry = _summary(kinds.BRANCH_SUMMARY, fields, details, usage, calls)
        return _placed(replace(summary_entry, usage=NO_USAGE), place)

    @classmethod
    def custom(
        cls, kind: str, data: object = None, *, calls: Sequence[Mapping[str, object]] = (), **place: Unpack[Placement]
    ) -> NewEntry:
        """Return an entry of any further kind, with the paid calls that it stands for, if there are any.

        The ledger counts ``calls``, of the purpose ``turn``; the usage of the path does not. Raises `InvalidEntry`
        naming the field, and for a kind with a builder of its own. O(size).
        """
        if checked_kind(kind) in kinds.BUILT_KINDS:
            raise InvalidEntry(f"kind: {kind!r} has a method of its own; append_custom is for further kinds")
        text, replaced = encode_json(data, "data")
        paid = paid_for(None, calls, "turn")
        entry = NewEntry(kind, text, calls=paid.calls, surrogates_replaced=replaced, oddities=paid.oddities, built=True)
        return _placed(entry, place)

    @classmethod
    def exclusion(
        cls,
        entry_id: str,
        part: int | str | None = None,
        *,
        excluded: bool = True,
        by: str | None = None,
        why: str | None = None,
        **place: Unpack[Placement],
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
        text, replaced = encode_json(fields, kinds.EXCLUSION)
        entry = NewEntry(kinds.EXCLUSION, text, references=(entry_id,), surrogates_replaced=replaced, built=True)
        return _placed(entry, place)


def _placed(entry: NewEntry, place: Placement) -> NewEntry:
    """Return an entry with the place that an importer gives it. Raises TypeError for an unknown keyword."""
    for name in place:
        if name not in Placement.__annotations__:
            allowed = ", ".join(Placement.__annotations__)
            raise TypeError(f"{name!r} is no argument of this builder of NewEntry; beside its own it takes {allowed}")
    id, parent_id = place.get("id"), place.get("parent_id")
    created_at, extra = place.get("created_at"), place.get("extra")
    if id is None and parent_id is None and created_at is None and extra is None:
        return entry
    for name, text in (("id", id), ("parent_id", parent_id)):
        if text is not None:
            _check_string(text, name)
    if created_at is not None and not isinstance(created_at, datetime):
        raise InvalidEntry(f"created_at: should be a datetime, not {type(created_at).__name__}")
    if extra is not None and not isinstance(extra, Mapping):
        raise InvalidEntry(f"extra: should be an object, not {type(extra).__name__}")
    try:
        created_us = None if created_at is None else to_microseconds(created_at)
    except ValueError as error:
        raise InvalidEntry(f"created_at: {error}") from error
    extra_text, replaced = (None, 0) if extra is None else encode_json(dict(extra), "extra")
    return replace(
        entry,
        id=id,
        parent_id=parent_id,
        created_us=created_us,
        extra=extra_text,
        surrogates_replaced=entry.surrogates_replaced + replaced,
    )


def _summary(
    kind: str,
    fields: dict[str, object],
    details: object,
    usage: Mapping[str, object] | None,
    calls: Sequence[Mapping[str, object]],
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


def entry_of_message(
    message: Mapping[str, object] | Message,
    source: str | None = None,
    where: str = "message",
    calls: Sequence[Mapping[str, object]] = (),
    produced_under: str | None = None,
) -> NewEntry:
    """Return a message as an entry ready to be written, in the form of any provider; ``where`` names it in errors.

    With ``produced_under`` an answer with signed reasoning says so (`flue_py.core.kinds`). Surrogates are replaced, and
    counted in ``surrogates_replaced``. A message is never refused for its usage: ``oddities`` say which part cannot be
    counted. Raises `InvalidEntry` naming the field, also if a required one is missing (see
    `flue_py.core.messages.check_complete`).
    """
    if isinstance(message, (dict, Mapping)):
        # What is no JSON is refused below, by its path.
        value = cast("Mapping[str, JsonValue]", message)
    elif isinstance(message, messages.MESSAGE_CLASSES):
        value = messages.message_json(message)
    else:
        raise InvalidEntry(f"{where}: should be an object or a message model, not {type(message).__name__}")
    if produced_under is not None:
        value = kinds.with_produced_under(dict(value), produced_under)
    if calls:
        return _answer_of_calls(value, source, where, calls)
    odd: tuple[str, ...] = ()
    role = messages.accepted_role(value)
    if role is None:
        value, odd = _with_kept_usage(value, where)
        text, replaced = encode_json(value, where)
        role = messages.validate_message(value, where)
    else:
        text, replaced = encode_json(value, where, is_json=True)
    messages.check_complete(value, where)
    paid: tuple[PaidCall, ...] = ()
    reported = None
    if role == "assistant" and value.get("usage") is not None:
        reported = read_beside(value, f"{where}.usage")
        paid = calls_of_answer(reported, value)
    return NewEntry(
        kinds.MESSAGE,
        text,
        role,
        checked_source(source),
        NO_USAGE if reported is None else reported.totals,
        paid,
        surrogates_replaced=replaced,
        oddities=odd if reported is None else all_oddities(odd, reported.oddities),
        built=True,
    )


def _answer_of_calls(
    value: Mapping[str, JsonValue], source: str | None, where: str, calls: Sequence[Mapping[str, object]]
) -> NewEntry:
    """Return an answer that several calls made. One without usage of its own gets their sum."""
    own = value.get("usage")
    paid = paid_for(None, calls, "turn")
    answer = entry_of_message({**value, "usage": paid.reported} if own is None else value, source, where)
    if answer.role != "assistant":
        raise InvalidEntry(f"calls: only an answer is made by calls, not a message of the role {shown(answer.role)}")
    oddities = paid.oddities if own is None else all_oddities(paid.oddities, answer.oddities)
    return replace(
        answer, calls=answered_calls(paid.calls, value), counted=paid.counted or own is not None, oddities=oddities
    )


def _with_kept_usage(value: Mapping[str, JsonValue], where: str) -> tuple[Mapping[str, JsonValue], tuple[str, ...]]:
    """Return a message whose usage JSON can hold, and the oddities of the numbers that became text for that."""
    usage = value.get("usage")
    if usage is None:
        return value, ()
    usage_json, odd = with_words_for_numbers(usage, f"{where}.usage")
    return ({**value, "usage": usage_json}, odd) if odd else (value, ())


def derived_from_payload(entry: NewEntry, payload: Mapping[str, JsonValue]) -> NewEntry:
    """Return an entry with the usage of its payload, and, if it names no call, with the call of that.

    ``payload`` is the entry's, decoded. The same entry where nothing differs.
    """
    if not kinds.may_be_paid(entry.kind, entry.role):
        return entry if entry.usage == NO_USAGE else replace(entry, usage=NO_USAGE)
    usage = payload.get("usage")
    reported = read_beside(payload)
    totals = reported.totals if kinds.adds_usage(entry.kind, entry.role) else NO_USAGE
    calls = entry.calls
    if usage is not None and not calls and entry.counted and not entry.unpaid:
        answered = kinds.is_answer(entry.kind, entry.role)
        alone = call_of(reported, purpose=entry.kind)
        calls = calls_of_answer(reported, payload) if answered else by_model(alone, reported)
    if (totals, calls) == (entry.usage, entry.calls):
        return entry
    return replace(entry, usage=totals, calls=calls, oddities=reported.oddities)


def checked_source(source: str | None) -> str | None:
    """Return ``source`` unchanged. Raises `InvalidEntry` if it is not a short tag."""
    if source is not None and not (isinstance(source, str) and _KIND.fullmatch(source)):
        raise InvalidEntry(f"source: {shown(source)} is not a tag; use prompt, skill, shell, task or retry")
    return source


def leaving(summary: NewEntry, from_id: str | None, leaf: str | None) -> NewEntry:
    """Return a branch summary that names the entry above it ("root" for none) and the leaf that was left."""
    fields = decode_object(summary.payload) | {"fromId": "root" if from_id is None else from_id}
    if leaf is not None:
        fields["abandonedLeafId"] = leaf
    return replace(summary, payload=encode_json(fields, "summary")[0])


def kept_from(compaction: NewEntry, first_kept: str) -> NewEntry:
    """Return a compaction that keeps from this entry on, and says in ``oddities`` that it was asked for another."""
    requested = compaction.references[0]
    if first_kept == requested:
        return compaction
    payload, _ = encode_json({**decode_object(compaction.payload), "firstKeptEntryId": first_kept}, "compaction")
    moved = (
        f"first_kept_entry_id: kept from {first_kept!r} on, which calls the tool that is answered at or after "
        f"{requested!r}"
    )
    return replace(compaction, payload=payload, references=(first_kept,), oddities=(*compaction.oddities, moved))


def checked_kind(kind: str) -> str:
    """Return ``kind`` unchanged. Raises `InvalidEntry` if it is not a name (letters, digits, ``_ . : -``)."""
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise InvalidEntry(f"kind: {shown(kind)} is not a name of at most 64 letters, digits and _ . : -")
    return kind


def _check_string(value: object, where: str) -> None:
    if not isinstance(value, str):
        raise InvalidEntry(f"{where}: should be a string, not {type(value).__name__}")


# ---------------------------------------------------------------------------------------------------------------------
# Artifacts: results of tools that are stored beside the conversation, whole, with a stub in their place.
#
# An artifact is an entry of its own, the parent of the message that refers to it: a fork that has the message has the
# artifact, and both are deleted together. Its text is base64 of its UTF-8, which is cut out of the payload and stored
# once per tree (`flue_py.core.json`): no context reads a byte of it.

OFFLOADED = "offloaded"
"""The field of a tool's result that says of which artifact its text is the stub: ``{"artifact": id}``."""

OF = "artifact"
"""The field of that, and of an artifact's own entry, which has the id."""

_DIGITS, _MORE_DIGITS = 12, 4


class Artifact(Frozen):
    """A result that is stored whole, beside the conversation.

    ``tool`` is the tool's name, or None if it is unknown, ``hint`` the argument of the call that tells most
    (``path=src/a.py``), or "". ``call_id`` is the id of the tool call, ``entry_id`` that of the artifact's own entry,
    which the message with the stub comes after.
    """

    id: str
    tool: str | None
    hint: str
    characters: int
    call_id: str | None
    entry_id: str
    created_at: datetime

    @property
    def json(self) -> JsonObject:
        """The artifact as JSON."""
        return {
            "id": self.id,
            "tool": self.tool,
            "hint": self.hint,
            "characters": self.characters,
            "callId": self.call_id,
            "entryId": self.entry_id,
            "createdAt": self.created_at.isoformat(),
        }


def artifact_ids(text: str) -> list[str]:
    """Return the ids that an artifact of this text may have: the first that has no other text is its own. O(size)."""
    digest = sha256(text.encode()).hexdigest()
    return [digest[:digits] for digits in range(_DIGITS, len(digest) + 1, _MORE_DIGITS)]


def entry_prefix(artifact_id: str) -> str:
    """Return how the ids of the entries begin that an artifact is stored in by `new_artifact`."""
    return f"{artifact_id}-"


def new_artifact(
    artifact_id: str,
    text: str,
    *,
    tool: str | None,
    hint: str,
    call_id: str | None,
    parts: list[JsonValue] | None,
    drawn_id: str,
) -> NewEntry:
    """Return an artifact as an entry. ``parts`` are the parts that its text was joined from, if those were several.

    Its id begins with that of the artifact, so that it is found by that, and ends with one that was drawn. O(size).
    """
    data = text.encode()
    named: JsonObject = {OF: artifact_id, "tool": tool, "hint": hint or None, "chars": len(text)}
    named |= {"sha256": sha256(data).hexdigest(), "toolCallId": call_id, "parts": parts}
    payload: JsonObject = {name: value for name, value in named.items() if value is not None}
    payload["content"] = b64encode(data).decode()
    return NewEntry.custom(kinds.ARTIFACT, payload, id=entry_prefix(artifact_id) + drawn_id)


def artifact_of(entry: Entry) -> Artifact | None:
    """Return the artifact that an entry has, with its text or read without it; None for any other entry."""
    if entry.kind != kinds.ARTIFACT:
        return None
    fields = entry.data
    if not isinstance(fields, dict):
        return None
    artifact_id, characters, hint = fields.get(OF), fields.get("chars"), fields.get("hint")
    if not isinstance(artifact_id, str) or not isinstance(characters, int):
        return None
    tool, call_id = (text if isinstance(text := fields.get(name), str) else None for name in ("tool", "toolCallId"))
    hint_text = hint if isinstance(hint, str) else ""
    return Artifact(artifact_id, tool, hint_text, characters, call_id, entry.id, entry.created_at)


def message_as_artifact(entry: Entry) -> tuple[Artifact, str] | None:
    """Return a message as if it were an artifact with the id of its entry, and its text; None for any other entry.

    A note stands for such a message if a request had no room for it. The text of a tool's result is its content, that
    of any other message its JSON, since calls are a part of it. O(size).
    """
    if entry.kind != kinds.MESSAGE:
        return None
    message = entry.fields
    text = kinds.message_text(message) if entry.role == "toolResult" else entry.payload
    tool, call_id = (
        name if isinstance(name := message.get(field), str) else None for field in ("toolName", "toolCallId")
    )
    return Artifact(entry.id, tool, "", len(text), call_id, entry.id, entry.created_at), text


def is_of_text(entry: Entry, text: str) -> bool:
    """Return whether an artifact's entry, read with its text or without it, was made of this text. O(size)."""
    fields = entry.data
    return isinstance(fields, dict) and fields.get("sha256") == sha256(text.encode()).hexdigest()


def text_of_artifact(entry: Entry) -> str:
    """Return the text of an artifact's entry. Raises `CorruptStore` if it is lost, or is another. O(size)."""
    fields = entry.fields
    artifact_id, content = fields.get(OF), fields.get("content")
    try:
        text = b64decode(content, validate=True).decode() if isinstance(content, str) else ""
    except (NotBase64, UnicodeDecodeError):
        text = ""
    if not isinstance(artifact_id, str) or not sha256(text.encode()).hexdigest().startswith(artifact_id):
        raise CorruptStore(
            f"the text of artifact {shown(artifact_id)} in entry {entry.id!r} is lost; verify() names what is missing: "
            "restore a backup"
        )
    return text


def readable(entry: Entry) -> tuple[JsonObject, str] | None:
    """Return the fields of an artifact's entry beside its text, and the text; None for any other, and if it is lost."""
    if artifact_of(entry) is None:
        return None
    try:
        text = text_of_artifact(entry)
    except CorruptStore:
        return None
    return {name: value for name, value in entry.fields.items() if name != "content"}, text


def referred_artifact(message: Mapping[str, JsonValue]) -> str | None:
    """Return the id of the artifact that a message has the stub of; None for any other message. O(1)."""
    stub = message.get(OFFLOADED)
    artifact_id = stub.get(OF) if isinstance(stub, dict) else None
    return artifact_id if isinstance(artifact_id, str) else None


# ---------------------------------------------------------------------------------------------------------------------
# Tool calls and their results: which result answers which call, and which messages therefore belong together.
#
# One rule, for exclusions, pins, picks, compaction cuts, transcripts and exports. A result belongs to the latest
# message before it that calls a tool by its id, however many messages lie between. The first result of a call is its
# answer; a further one repeats it, and is never in a context without the call. Where one message calls twice by the
# same id, the first result answers the first call. An id that a later message uses again is another call. A result that
# comes before every call of its id answers nothing.


def tool_calls(message: Mapping[str, JsonValue]) -> list[JsonObject]:
    """Return the tool calls that an assistant message makes, in order; none for any other message."""
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, dict) and part.get("type") == "toolCall"]


def called_ids(message: Mapping[str, JsonValue]) -> list[str]:
    """Return the ids of the tool calls of a message, in order."""
    return [call_id for call in tool_calls(message) if isinstance(call_id := call.get("id"), str)]


def answered_id(message: Mapping[str, JsonValue]) -> str | None:
    """Return the id of the tool call that a message is the result of; None for any other message."""
    call_id = message.get("toolCallId")
    return call_id if message.get("role") == "toolResult" and isinstance(call_id, str) else None


_SAID: Mapping[str | None, JsonObject] = {role: {"role": role} for role in ("user", "assistant")}
CALLS = '"toolCall"'
"""A text in the payload of each message that calls a tool, and of others that quote it."""
_ANSWERS = '"toolCallId":'
_ANSWERED = expression(r'"toolCallId":"([^"\\]+)"')


def undecoded_exchange(entry: Entry) -> JsonObject | None:
    """Return the part of an entry's message that `Pairing` reads, if it can be told without decoding it; else None.

    That is so unless it calls a tool. In a text of JSON a quotation mark has a backslash before it, so that anything
    like a field is one; of two fields of the name one belongs to something else. O(size), but a small part of it.
    """
    if entry.role == "toolResult":
        match = _ANSWERED.search(entry.payload) if entry.payload.count(_ANSWERS) == 1 else None
        return None if match is None else {"role": "toolResult", "toolCallId": match[1]}
    return None if entry.role == "assistant" and CALLS in entry.payload else _SAID.get(entry.role)


def exchange_of(entry: Entry) -> Mapping[str, JsonValue] | None:
    """Return the part of an entry that `Pairing` reads; None for one that is not a message. O(size)."""
    if entry.kind != kinds.MESSAGE:
        return None
    exchange = undecoded_exchange(entry)
    return entry.fields if exchange is None else exchange


class Call(Frozen):
    """A tool call in a list of messages: the index of its message, its place in the content, and its id."""

    at: int
    part: int
    id: str


class ToolGroup(Frozen):
    """A message with tool calls (``caller``) and the answer of each, by index: they stay or are left out together.

    ``caller`` is None for a result that answers nothing. ``is_answered`` where every call has its answer; ``is_open``
    where one has none yet, and no later message of the user or the model says that none will come.
    """

    caller: int | None
    calls: Sequence[Call]
    answers: Mapping[Call, int]
    is_answered: bool
    is_open: bool
    members: Sequence[int]
    """The indices of all its messages, in order; a result that repeats an answer, only where it was asked for."""


class Pairing:
    """Which results answer which calls in a list of messages; None stands for an entry that is not a message.

    ``places`` are the indices of the messages, in order, where those are left out that neither call nor answer, and
    ``last_said`` is that of the last of these in which the user or the model says something, -1 for none.
    Cost: O(messages and their parts).
    """

    def __init__(
        self,
        messages: Iterable[Mapping[str, JsonValue] | None],
        places: Iterable[int] | None = None,
        last_said: int = -1,
    ) -> None:
        self.results: dict[Call, list[int]] = {}
        """Every call, in order, with the indices of its results: its answer first, then its repetitions."""
        self.parts: dict[Call, JsonObject] = {}
        """Every call, in order, with the part of its message that makes it."""
        self.unpaired: set[int] = set()
        """The results that answer no call in the list."""
        self._last_said = -1
        latest: dict[str, list[Call]] = {}
        for at, message in zip(count() if places is None else places, messages, strict=False):
            # Written out, since there may be ten thousand, most of which neither call nor answer.
            role = None if message is None else message.get("role")
            if message is None or role == "user":
                self._last_said = self._last_said if message is None else at
            elif role == "assistant":
                self._last_said = at
                if "content" in message:
                    self._read_calls(at, message["content"], latest)
            elif role == "toolResult":
                answered = message.get("toolCallId")
                if not isinstance(answered, str):
                    continue
                calls = latest.get(answered)
                if calls is None:
                    self.unpaired.add(at)
                elif len(calls) == 1:
                    self.results[calls[0]].append(at)
                else:
                    self.results[next((call for call in calls if not self.results[call]), calls[-1])].append(at)
        self._last_said = max(self._last_said, last_said)

    def _read_calls(self, at: int, content: JsonValue, latest: dict[str, list[Call]]) -> None:
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(part, dict) or part.get("type") != "toolCall":
                continue
            call_id = part.get("id")
            if not isinstance(call_id, str):
                continue
            call = Call(at, place, call_id)
            self.results[call] = []
            self.parts[call] = part
            same = latest.get(call_id)
            if same is not None and same[0].at == at:
                same.append(call)
            else:
                latest[call_id] = [call]

    @cached_property
    def _by_caller(self) -> dict[int, list[Call]]:
        calls: dict[int, list[Call]] = {}
        for call in self.results:
            calls.setdefault(call.at, []).append(call)
        return calls

    @cached_property
    def _call_of(self) -> dict[int, Call]:
        return {at: call for call, results in self.results.items() for at in results}

    def results_of(self, at: int) -> dict[Call, list[int]]:
        """Return the calls that a message makes, in order, each with its results."""
        return {call: self.results[call] for call in self._by_caller.get(at, ())}

    def group_of(self, at: int) -> ToolGroup | None:
        """Return the group that a message belongs to; None for one that neither calls nor answers."""
        if at in self.unpaired:
            return ToolGroup(None, (), {}, False, False, (at,))
        caller = self._call_of[at].at if at in self._call_of else at
        calls = self._by_caller.get(caller)
        if calls is None:
            return None
        answers = {call: self.results[call][0] for call in calls if self.results[call]}
        is_answered = len(answers) == len(calls)
        is_open = not is_answered and self._last_said <= caller
        return ToolGroup(caller, calls, answers, is_answered, is_open, sorted({at, caller, *answers.values()}))

    def whole_cuts(self, cuts: Iterable[int], pinned: Container[int] = ()) -> list[int]:
        """Return those of some indices, given in order, that no call lies before and its result at or after.

        Groups whose caller is in ``pinned`` are kept wherever they are, and do not count.
        """
        ends = [
            (at, max(place for call in calls for place in (at, *self.results[call])))
            for at, calls in self._by_caller.items()
            if at not in pinned
        ]
        whole: list[int] = []
        reached, following = -1, 0
        for cut in cuts:
            while following < len(ends) and ends[following][0] < cut:
                reached = max(reached, ends[following][1])
                following += 1
            if reached < cut:
                whole.append(cut)
        return whole

    def whole_cut(self, at: int, pinned: Container[int] = ()) -> int:
        """Return the latest index up to ``at`` that no call lies before whose result lies at it or after, or may come.

        Groups whose caller is in ``pinned`` do not count, as in `whole_cuts`.
        """
        cut = at
        for caller, calls in reversed(self._by_caller.items()):
            if caller >= cut or caller in pinned:
                continue
            results = [result for call in calls for result in self.results[call]]
            is_open = self._last_said <= caller and any(not self.results[call] for call in calls)
            if is_open or max(results, default=-1) >= cut:
                cut = caller
        return cut


def tail_start(messages: Sequence[Mapping[str, JsonValue] | None], limit: int, *, is_all: bool) -> int | None:
    """Return where the last whole exchanges of a list begin, as an index, from the messages at its end.

    They are at most ``limit`` messages; or more, where the last exchange alone is longer, which then is all of them.
    None where that cannot be told from these messages: it needs ``limit`` of them, and the call of each result in
    doubt. If they are all of the list (``is_all``), it always can. O(messages and their parts).
    """
    pairing = Pairing(messages)
    lowest = max(len(messages) - limit, 0)
    # A result whose call is not among these messages may answer one before them.
    in_doubt = -1 if is_all else max(pairing.unpaired, default=-1)
    if not is_all and (len(messages) < limit or in_doubt >= lowest):
        return None
    whole = [cut for cut in pairing.whole_cuts(range(len(messages))) if cut > in_doubt]
    if not whole:
        return 0 if is_all else None
    return next((cut for cut in whole if cut >= lowest), whole[-1])


def is_whole_end(entries: Iterable[Entry]) -> bool:
    """Return whether no result among the last entries of a path can belong to a call before them.

    Only messages that call or answer are decoded. O(messages and their parts).
    """
    called: set[str | None] = set()
    for entry in entries:
        if entry.role == "assistant":
            if CALLS in entry.payload:
                called.update(called_ids(entry.fields))
        elif entry.role == "toolResult" and answered_id(entry.fields) not in called:
            return False
    return True


def messages_of(entries: Iterable[Entry]) -> list[JsonObject | None]:
    """Return the messages of entries, None for an entry that is not a message."""
    return [entry.fields if entry.kind == kinds.MESSAGE else None for entry in entries]


# ---------------------------------------------------------------------------------------------------------------------
# Exclusions: the parts of a path that its context leaves out.
#
# An ``exclusion`` entry on the path names another entry, or one part of its content, and leaves it out of the context
# of everything below; with ``"excluded": false`` it takes it back in, with a ``replacement`` in the place of its
# content if it has one. The last one on the path holds.

WHOLE = None
REPLACEMENT = "replacement"
"""The field of an exclusion that takes an entry back in with another content: text, or a list of parts."""


class Exclusion(Frozen):
    """A part of a path that its exclusions leave out: an entry, or (``part``: a position or an id) one part of it.

    ``exclusion_id`` is the entry that says so, with its author and the reason. ``in_effect`` is False if the
    context would not have it anyway: it is not on the path, or was compacted away, or there is no such part.
    """

    entry_id: str
    part: int | str | None
    exclusion_id: str
    by: str | None = None
    why: str | None = None
    in_effect: bool = True


class Excluding(Frozen):
    """An entry's fields, where it is an exclusion that can be read."""

    entry_id: str
    part: int | str | None
    excluded: bool


def read_exclusion(value: JsonValue) -> Excluding | None:
    """Return the fields of an exclusion's payload; None if they cannot be understood."""
    if not isinstance(value, dict) or not isinstance(entry_id := value.get("entryId"), str):
        return None
    part = value.get("part")
    if isinstance(part, bool) or not (part is None or isinstance(part, (int, str))):
        return None
    return Excluding(entry_id, part, value.get("excluded") is not False)


def excluded_parts(path: Iterable[Entry]) -> dict[str, dict[int | str | None, Entry]]:
    """Return the parts that the exclusions among these entries leave out, by entry, each with its exclusion.

    `WHOLE` (None) as a part stands for the whole entry. To take a whole entry back in takes back its parts, too.
    """
    by_entry: dict[str, dict[int | str | None, Entry]] = {}
    for entry in path:
        if entry.kind != kinds.EXCLUSION or (exclusion := read_exclusion(entry.data)) is None:
            continue
        excluded = by_entry.setdefault(exclusion.entry_id, {})
        if exclusion.excluded:
            excluded[exclusion.part] = entry
        elif exclusion.part is WHOLE:
            excluded.clear()
        else:
            excluded.pop(exclusion.part, None)
    return {entry_id: excluded for entry_id, excluded in by_entry.items() if excluded}


def replacements(path: Iterable[Entry]) -> dict[str, Entry]:
    """Return which exclusions among these entries put another content in the place of an entry's, by that entry's id.

    The last one counts, from its place on the path on.
    """
    by_entry: dict[str, Entry] = {}
    for entry in path:
        if entry.kind != kinds.EXCLUSION or (exclusion := read_exclusion(entry.data)) is None:
            continue
        content = entry.fields.get(REPLACEMENT)
        if not exclusion.excluded and exclusion.part is WHOLE and isinstance(content, (str, list)):
            by_entry[exclusion.entry_id] = entry
    return by_entry


def with_replacement(message: JsonObject, content: JsonValue) -> JsonObject:
    """Return a message with another content, in the form that its own content has."""
    is_text = isinstance(content, str) and not isinstance(message.get("content"), str)
    return {**message, "content": [{"type": "text", "text": content}] if is_text else content}


def without_parts(message: JsonObject, parts: frozenset[int | str]) -> JsonObject:
    """Return a message without some parts of its content, named by position or id."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [part for number, part in enumerate(content) if not _is_named(number, part, parts)]}


def _is_named(number: int, part: JsonValue, names: frozenset[int | str]) -> bool:
    part_id = part.get("id") if isinstance(part, dict) else None
    return number in names or (isinstance(part_id, str) and part_id in names)


def has_part(message: JsonObject, part: int | str) -> bool:
    """Return whether the content of a message has a part at this position, or with this id."""
    content = message.get("content")
    names = frozenset((part,))
    return isinstance(content, list) and any(_is_named(number, item, names) for number, item in enumerate(content))


# ---------------------------------------------------------------------------------------------------------------------
# The layout of a context: which summaries it has, and which stretches of the path they stand for.
#
# A compaction has its own summary first, and keeps the path from its first kept entry on. One of a *range* has another
# compaction's summary first, its base, or none, and its own in the place of a stretch in the middle. Either may have
# further ranges in what it keeps, those of earlier compactions.

RANGES = "ranges"
"""The field that lists the ranges, in the order of the path."""
BASE = "baseCompactionId"
"""The field of the compaction of a range: whose summary comes first, null for none."""


class Range(Frozen):
    """A stretch of the path, and the compaction whose summary stands for it; None for the one that says so."""

    first_id: str
    last_id: str
    compaction_id: str | None

    @property
    def as_json(self) -> JsonObject:
        """The range as a payload has it."""
        return {"firstEntryId": self.first_id, "lastEntryId": self.last_id, "compactionId": self.compaction_id}


class OnPath(Protocol):
    """The fields of an entry of a path that a layout needs."""

    @property
    def kind(self) -> str: ...

    @property
    def depth(self) -> int: ...


class Gap(NamedTuple):
    """Where a range lies on a path, by the depths of its first and last entry."""

    first: int
    last: int
    of: Range


NO_GAP = Gap(sys.maxsize, sys.maxsize, Range("", "", None))
"""The one that no entry comes to."""


class Layout(Frozen):
    """The layout of a compaction's context. ``head_id`` is the compaction whose summary comes first, if any."""

    head_id: str | None
    first_kept_id: str | None
    ranges: tuple[Range, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether there are no ranges, and nobody else's summary comes first."""
        return not self.ranges and self.head_id is not None

    @property
    def named(self) -> Iterator[str]:
        """The ids of the entries that tell where the parts are, the first kept one left out."""
        if self.head_id is not None:
            yield self.head_id
        for item in self.ranges:
            yield item.first_id
            yield item.last_id
            yield item.compaction_id or ""


def layout_of(compaction_id: str, fields: Mapping[str, JsonValue]) -> Layout:
    """Return the layout that a compaction gives its context. An item that cannot be understood is left out of it."""
    base = fields.get(BASE, compaction_id)
    first_kept = fields.get("firstKeptEntryId")
    listed = fields.get(RANGES)
    ranges = [_range(item, compaction_id) for item in listed] if isinstance(listed, list) else []
    return Layout(
        base if isinstance(base, str) else None,
        first_kept if isinstance(first_kept, str) else None,
        tuple(item for item in ranges if item is not None),
    )


def _range(value: JsonValue, compaction_id: str) -> Range | None:
    if not isinstance(value, dict):
        return None
    first, last, by = value.get("firstEntryId"), value.get("lastEntryId"), value.get("compactionId")
    if not isinstance(first, str) or not isinstance(last, str) or not (by is None or isinstance(by, str)):
        return None
    return Range(first, last, compaction_id if by is None else by)


def gaps_of(layout: Layout, entries: Mapping[str, OnPath], kept_from: int, depth: int) -> list[Gap]:
    """Return where the ranges of a layout lie, in the order of the path.

    ``entries`` are those that the layout names, as far as they are on the path at ``depth`` or before, by id. A range
    that lies before the kept part or before the range listed before it, whose ends are not there or the wrong way
    round, or that has no compaction to stand for it, is none: its entries stay in the context.
    """
    gaps: list[Gap] = []
    for item in layout.ranges:
        first, last = entries.get(item.first_id), entries.get(item.last_id)
        by = entries.get(item.compaction_id or "")
        if first is None or last is None or by is None or by.kind != kinds.COMPACTION:
            continue
        begin = gaps[-1].last + 1 if gaps else kept_from
        if begin <= first.depth <= last.depth < depth:
            gaps.append(Gap(first.depth, last.depth, item))
    return gaps


def is_silent(compaction: Entry) -> bool:
    """Return whether an entry is a compaction without a summary: its stretch is left out, as by mode window."""
    if compaction.kind != kinds.COMPACTION:
        return False
    layout = layout_of(compaction.id, compaction.fields)
    return layout.head_id is None and all(item.compaction_id != compaction.id for item in layout.ranges)


def own_gap(compaction: Entry, entries: Mapping[str, OnPath]) -> Gap | None:
    """Return where the range lies that a compaction stands for; None for one that stands for the beginning."""
    layout = layout_of(compaction.id, compaction.fields)
    own = tuple(item for item in layout.ranges if item.compaction_id == compaction.id)
    gaps = gaps_of(Layout(None, None, own), entries, 0, compaction.depth)
    return gaps[0] if gaps and layout.head_id != compaction.id else None


def without_summary(compaction: NewEntry) -> NewEntry:
    """Return a compaction that shows nothing in the place of its stretch."""
    text, _ = encode_json({**decode_object(compaction.payload), BASE: None}, kinds.COMPACTION)
    return replace(compaction, payload=text)


def laid_out(
    compaction: NewEntry, ranges: Sequence[Range], *, pinned: Sequence[str] = (), head: Layout | None = None
) -> NewEntry:
    """Return a compaction with ranges in what it keeps, and with entries that stay in them or before.

    With ``head``, it is one of a range: that layout's summary comes first, or none.
    """
    fields = decode_object(compaction.payload)
    if head is not None:
        fields[BASE] = head.head_id
    fields[RANGES] = [item.as_json for item in ranges]
    if pinned:
        fields["pinnedEntryIds"] = [*pinned]
    return replace(compaction, payload=encode_json(fields, kinds.COMPACTION)[0])


# ---------------------------------------------------------------------------------------------------------------------
# Registered texts, which every compaction of a session brings back word for word.
#
# Each registration is an entry of its own on the path, which no model sees: a branch has the texts of its path, and a
# later entry of the same name takes the place of the earlier one.

REGISTERED = "registered"
"""The kind of these entries, and the name under which a compaction notes those in force."""

RegisteredKind: TypeAlias = Literal["instructions", "plan", "todo", "skill"]
REGISTERED_KINDS: tuple[RegisteredKind, ...] = ("instructions", "plan", "todo", "skill")
"""The kinds of registered texts, in the order in which they are shown."""


class RegisteredText(Frozen):
    """A text that every compaction brings back word for word: its name, its kind, and the entry that set it last."""

    name: str
    kind: RegisteredKind
    text: str
    entry_id: str


def registration(name: str, kind: RegisteredKind | None, text: str | None) -> JsonObject:
    """Return the payload of an entry that registers a text; None for both takes it off the register."""
    return {"name": name, "kind": kind, "text": text}


def texts_in_force(entries: Iterable[Entry], before: Sequence[Entry] = ()) -> tuple[RegisteredText, ...]:
    """Return the texts in force at the end of a path, in the order of their names' first registration.

    ``before`` are the entries in force where ``entries`` begin, or anywhere after that. Entries of other kinds are
    passed over. O(entries).
    """
    texts: dict[str, RegisteredText] = {}
    for entry in (*before, *entries):
        if entry.kind != REGISTERED:
            continue
        data = entry.data
        registered = _read(data, entry.id) if isinstance(data, dict) else None
        if registered is not None:
            texts[registered.name] = registered
        elif isinstance(data, dict) and isinstance(name := data.get("name"), str):
            texts.pop(name, None)
    return tuple(texts.values())


def _read(data: JsonObject, entry_id: str) -> RegisteredText | None:
    name, kind, text = data.get("name"), data.get("kind"), data.get("text")
    if not isinstance(name, str) or not isinstance(text, str) or kind not in REGISTERED_KINDS:
        return None
    return RegisteredText(name, kind, text, entry_id)


def noted_ids(details: JsonValue) -> list[str] | None:
    """Return the ids of the entries that a compaction notes as in force; None if it notes none."""
    listed = details.get(REGISTERED) if isinstance(details, dict) else None
    if not isinstance(listed, list):
        return None
    return [item for item in listed if isinstance(item, str)]


# ---------------------------------------------------------------------------------------------------------------------
# The settings in force at a leaf: the model and the thinking level, as the path has them.

MODEL_CHANGE = "model_change"
THINKING_LEVEL_CHANGE = "thinking_level_change"
SHELL = "shell"
"""The source of an answer that no model gave: it calls a command that a person ran."""


class PathSettings(Frozen):
    """The settings in force at a leaf: the last ones on its path. None where the path says nothing."""

    thinking_level: str | None = None
    provider: str | None = None
    model: str | None = None


def settings_on(path: Sequence[Entry]) -> PathSettings:
    """Return the settings in force at the end of a path, its entries from root to leaf; others may be left out.

    The thinking level is that of the last ``thinking_level_change`` (``thinkingLevel``). The model is that of the last
    ``model_change`` (``provider``, ``modelId``) or answer (``provider``, ``model``), but for the
    calls of `shell_exchange`, which no model made. From the end, as far as is needed:
    O(path) at worst.
    """
    level: JsonObject | None = None
    model: tuple[JsonValue, JsonValue] | None = None
    for entry in reversed(path):
        if level is None and entry.kind == THINKING_LEVEL_CHANGE:
            level = _object(entry)
        elif model is None and entry.kind == MODEL_CHANGE:
            model = _object(entry).get("provider"), _object(entry).get("modelId")
        elif model is None and entry.role == "assistant" and entry.kind == kinds.MESSAGE and entry.source != SHELL:
            model = entry.fields.get("provider"), entry.fields.get("model")
        if level is not None and model is not None:
            break
    provider, name = model or (None, None)
    return PathSettings(_text((level or {}).get("thinkingLevel")), _text(provider), _text(name))


def _object(entry: Entry) -> JsonObject:
    data = entry.data  # an entry of these kinds may carry any JSON
    return data if isinstance(data, dict) else {}


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None


# ---------------------------------------------------------------------------------------------------------------------
# A shell command that a person ran, as an exchange that every model understands: the command, a call, its result.

SHELL_SOURCE = "shell"
SHELL_TOOL = "bash"

_LARGEST_EXIT_CODE = 2**32


def shell_exchange(
    command: str, output: str, exit_code: int | None, *, call_id: str, answer_id: str | None = None
) -> list[NewEntry]:
    """Return the entries that stand for a command: a message of the user, a call of the tool ``bash``, and its result.

    The result is an error unless ``exit_code`` is 0; None is one that was killed. ``answer_id`` is the id of the entry
    with the call. Raises `InvalidArgument`, `InvalidEntry`.
    """
    if not isinstance(command, str) or not command.strip():
        raise InvalidArgument("command: should be the text of a command")
    if not isinstance(output, str):
        raise InvalidArgument(f"output: should be a text, not {type(output).__name__}")
    if exit_code is not None and not is_whole(exit_code, -_LARGEST_EXIT_CODE, _LARGEST_EXIT_CODE):
        raise InvalidArgument(f"exit_code: {shown(exit_code)} is not the exit code of a command, or None")
    command_message: JsonObject = {"role": "user", "content": [{"type": "text", "text": command}]}
    called: JsonObject = {
        "role": "assistant",
        "content": [{"type": "toolCall", "id": call_id, "name": SHELL_TOOL, "arguments": {"command": command}}],
        "stopReason": "toolUse",
    }
    result: JsonObject = {
        "role": "toolResult",
        "toolCallId": call_id,
        "toolName": SHELL_TOOL,
        "content": [{"type": "text", "text": _told(output, exit_code)}],
        "details": {"command": command, "exitCode": exit_code},
        "isError": exit_code != 0,
    }
    return [
        NewEntry.message(command_message, SHELL_SOURCE),
        NewEntry.message(called, SHELL_SOURCE, id=answer_id),
        NewEntry.message(result, SHELL_SOURCE),
    ]


def _told(output: str, exit_code: int | None) -> str:
    """Return the text of the result for the model. Some providers refuse an empty text."""
    text = output if output.strip() else "(no output)"
    if exit_code == 0:
        return text
    end = "Command was cancelled" if exit_code is None else f"Command exited with code {exit_code}"
    return f"{text}\n\n{end}"
