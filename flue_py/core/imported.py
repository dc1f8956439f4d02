"""What an import brings, checked before it reaches a store: what builders made may have been changed since."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.calls import PaidCall
from flue_py.core.entries import NewEntry, checked_kind, checked_source, derived_from_payload, is_moment
from flue_py.core.frozen import changed
from flue_py.core.jsontext import JsonValue, decode_json
from flue_py.core.kinds import BUILT_KINDS, MESSAGE
from flue_py.core.sessions import NewSession, check_label, is_storable
from flue_py.core.usage import MAX_AMOUNT, NO_USAGE, UsageTotals
from flue_py.core.usage_shapes import PARTS
from flue_py.errors import CorruptStore, FixTheCall, InvalidArgument, InvalidEntry, shown

_WHOLE_NUMBERS = {int}
_BUILDERS = "make it with NewEntry.message(), NewEntry.custom() or another builder of the class"


def check_imported_session(new: NewSession) -> None:
    """Raise `InvalidArgument` if it is not a `NewSession`, `InvalidEntry` if its metadata is not an object.

    O(metadata).
    """
    if not isinstance(new, NewSession):
        raise InvalidArgument(f"new: should be a NewSession, not {type(new).__name__}")
    if not isinstance(_decoded(new.metadata_text, "metadata_text"), dict):
        raise InvalidEntry(f"metadata_text: {shown(new.metadata_text)} is not the text of a JSON object")


def checked_imported_entries(entries: Sequence[NewEntry], program: str | None = None) -> list[NewEntry]:
    """Return entries with the usage and the preview that their payloads say, and with the calls of that usage.

    An entry that counts and names no call gets the one that its usage is of; calls that it names stay, for they may
    say more than the payload. A call that names no agent is of ``program``. Ids and parents are checked where they are
    stored. Raises `InvalidArgument` if it is not a sequence, `InvalidEntry` for one that no builder made, and for
    one that no store can hold. O(size).
    """
    if isinstance(entries, (str, bytes)) or not isinstance(entries, Sequence):
        raise InvalidArgument(f"entries: should be a sequence of NewEntry, not {type(entries).__name__}")
    checked = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, NewEntry):
            raise InvalidEntry(f"entry {number}: should be a NewEntry, not {type(entry).__name__}; {_BUILDERS}")
        if not entry.built:
            raise InvalidEntry(f"entry {number}: {shown(entry.id)} was not made by a builder of NewEntry; {_BUILDERS}")
        try:
            checked.append(_of_program(_checked(entry), program))
        except FixTheCall as error:
            raise InvalidEntry(f"entry {number} of {len(entries)}: {error}") from error
    return checked


def _of_program(entry: NewEntry, program: str | None) -> NewEntry:
    if program is None or all(call.agent is not None for call in entry.calls):
        return entry
    return changed(entry, calls=tuple(changed(call, agent=call.agent or program) for call in entry.calls))


def _checked(entry: NewEntry) -> NewEntry:
    checked_kind(entry.kind)
    checked_source(entry.source)
    check_label(entry.role, "role")
    check_label(entry.preview, "preview")
    payload = _decoded(entry.payload, "payload")
    if entry.kind in BUILT_KINDS and not isinstance(payload, dict):
        raise InvalidEntry(f"payload: {shown(entry.payload)} is not the JSON object that a {entry.kind} is")
    if entry.extra is not None and not isinstance(_decoded(entry.extra, "extra"), dict):
        raise InvalidEntry(f"extra: {shown(entry.extra)} is not the text of a JSON object")
    role = payload.get("role") if entry.kind == MESSAGE and isinstance(payload, dict) else None
    if entry.role != role or (entry.kind == MESSAGE and role is None):
        raise InvalidEntry(f"role: {shown(entry.role)} is not the role of the message, which is {shown(role)}")
    if entry.created_us is not None and not is_moment(entry.created_us):
        raise InvalidEntry(f"created_us: {shown(entry.created_us)} is not a time in microseconds since 1970 UTC")
    for what, text in (("id", entry.id), ("parent_id", entry.parent_id)):
        if text is not None and not isinstance(text, str):
            raise InvalidEntry(f"{what}: should be a string, not {type(text).__name__}")
    for what in ("counted", "unpaid"):
        if not isinstance(getattr(entry, what), bool):
            raise InvalidEntry(f"{what}: should be true or false, not {type(getattr(entry, what)).__name__}")
    _check_numbers(entry)
    return derived_from_payload(entry, payload) if isinstance(payload, dict) else entry


def _check_numbers(entry: NewEntry) -> None:
    if entry.usage is not NO_USAGE:
        _check_usage(entry.usage, "usage")
    if entry.calls != ():
        _check_calls(entry)
    for what, texts in (("references", entry.references), ("oddities", entry.oddities)):
        if texts != () and not (isinstance(texts, tuple) and all(isinstance(text, str) for text in texts)):
            raise InvalidEntry(f"{what}: should be a tuple of strings")
    replaced = entry.surrogates_replaced
    if isinstance(replaced, bool) or not isinstance(replaced, int) or not 0 <= replaced <= MAX_AMOUNT:
        raise InvalidEntry(f"surrogates_replaced: {shown(replaced)} is not a count")


def check_imported_call(call: PaidCall) -> None:
    """Raise `InvalidEntry` if it is not a paid call that a store can hold. O(1)."""
    if not isinstance(call, PaidCall):
        raise InvalidEntry(f"call: should be a PaidCall, not {type(call).__name__}")
    _check_usage(call.usage, "call.usage")
    _check_call(call, "call")


def _check_calls(entry: NewEntry) -> None:
    if not isinstance(entry.calls, tuple) or not all(isinstance(call, PaidCall) for call in entry.calls):
        raise InvalidEntry("calls: should be a tuple of PaidCall")
    for number, call in enumerate(entry.calls):
        if call.usage is not entry.usage:
            _check_usage(call.usage, f"calls[{number}].usage")
        _check_call(call, f"calls[{number}]")


def _check_call(call: PaidCall, where: str) -> None:
    _check_parts(call, where)
    for name in ("provider", "model", "call_id", "purpose", "outcome", "price_source", "agent"):
        text = getattr(call, name)
        if type(text) is str and text.isascii() and "\0" not in text:
            continue
        if text is None and name not in ("call_id", "outcome", "price_source", "agent"):
            raise InvalidEntry(f"{where}.{name}: should be a string, not None")
        check_label(text, f"{where}.{name}")
    if call.replaces != () and not (
        isinstance(call.replaces, tuple) and all(isinstance(name, str) and is_storable(name) for name in call.replaces)
    ):
        raise InvalidEntry(f"{where}.replaces: should be a tuple of ids of calls")


def _check_parts(call: PaidCall, where: str) -> None:
    for name, most in (("cache_write_1h", call.usage.cache_write), ("reasoning", call.usage.output)):
        tokens = getattr(call, name)
        if type(tokens) is not int or not 0 <= tokens <= most:
            raise InvalidEntry(f"{where}.{name}: {shown(tokens)} is not a whole number from 0 to {most}")
    if type(call.is_unknown) is not bool or (call.is_unknown and (any(call.usage) or call.cost is not None)):
        raise InvalidEntry(f"{where}.is_unknown: should be a bool, and True only if there are no numbers")
    if not isinstance(call.told, frozenset) or not call.told.issubset(PARTS):
        raise InvalidEntry(f"{where}.told: should be a frozenset of {', '.join(PARTS)}")
    if call.cost is not None and not (type(call.cost) is int and 0 <= call.cost <= MAX_AMOUNT):
        raise InvalidEntry(f"{where}.cost: {shown(call.cost)} is not a whole number of picodollars")
    if call.at_us is not None and not is_moment(call.at_us):
        raise InvalidEntry(f"{where}.at_us: {shown(call.at_us)} is not a time in microseconds since 1970 UTC")


def _check_usage(usage: UsageTotals, where: str) -> None:
    is_fine = isinstance(usage, UsageTotals) and set(map(type, usage)) == _WHOLE_NUMBERS
    if not is_fine or min(usage) < 0 or max(usage) > MAX_AMOUNT:
        raise InvalidEntry(f"{where}: {shown(usage)} is not ten whole numbers from 0 to {MAX_AMOUNT}")


def _decoded(text: object, where: str) -> JsonValue:
    """Return the value of a JSON text that can be stored. Raises `InvalidEntry` if it is not JSON."""
    try:
        if isinstance(text, str) and "\0" not in text and text.encode():
            return decode_json(text)
    except (CorruptStore, UnicodeEncodeError):
        pass
    raise InvalidEntry(f"{where}: {shown(text)} is not JSON text")
