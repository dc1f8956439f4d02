"""Bringing history from one leaf to another: copies with their provenance, and what must be copied together.

A copy has an id of its own and adds nothing to what its path has used: what was paid was paid once, where it was said
first. Where it comes from is in its ``extra``, under `PROVENANCE`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from flue_py.core.entries import Entry, NewEntry
from flue_py.core.exchange import Pairing, answered_id, messages_of
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.kinds import BRANCH_SUMMARY, COMPACTION, EXCLUSION, MESSAGE
from flue_py.core.spoken import message_title
from flue_py.errors import InvalidArgument, shown

__all__ = ["MergedRange", "Provenance", "merged_range_of", "provenance_of"]

PROVENANCE = "copiedFrom"
"""The name, among the extra fields of a copy, of where it comes from: ``{"session": ..., "entry": ...}``."""

MERGED = "mergedFrom"
"""The name, among the details of a merged summary, of what it sums up: session, after, leaf, entries."""


@frozen
class Provenance:
    """Where a copied entry comes from: the session it was taken from, and its id there."""

    session_id: str
    entry_id: str


@frozen
class MergedRange:
    """The stretch of history that a merged summary stands for: what comes after ``after``, up to ``leaf``.

    ``after`` is None if it is the whole path. ``entries`` is how many there are.
    """

    session_id: str
    after: str | None
    leaf_id: str
    entries: int

    @property
    def as_json(self) -> JsonObject:
        """The range as the details of a summary keep it."""
        return {"session": self.session_id, "after": self.after, "leaf": self.leaf_id, "entries": self.entries}


def provenance_of(entry: Entry) -> Provenance | None:
    """Return where an entry was copied from; None if it was not."""
    return _read_provenance(entry.extra_fields.get(PROVENANCE)) if entry.extra is not None else None


def _read_provenance(value: JsonValue) -> Provenance | None:
    if not isinstance(value, Mapping):
        return None
    session_id, entry_id = value.get("session"), value.get("entry")
    if not isinstance(session_id, str) or not isinstance(entry_id, str):
        return None
    return Provenance(session_id, entry_id)


def merged_range_of(entry: Entry) -> MergedRange | None:
    """Return the stretch of history that a merged summary stands for; None for any other entry."""
    details = entry.fields.get("details") if entry.kind == BRANCH_SUMMARY else None
    value = details.get(MERGED) if isinstance(details, Mapping) else None
    if not isinstance(value, Mapping):
        return None
    session_id, after, leaf_id, entries = (value.get(name) for name in ("session", "after", "leaf", "entries"))
    if not isinstance(session_id, str) or not isinstance(leaf_id, str) or not isinstance(entries, int):
        return None
    return MergedRange(session_id, after if isinstance(after, str) else None, leaf_id, entries)


def copy_of(entry: Entry, session_id: str) -> NewEntry:
    """Return an entry ready to be written again elsewhere, byte for byte, with where it was taken from.

    ``session_id`` is the session it was read in, which counts where its creator is gone. The copy of a copy names the
    first of them: that is whose history it is. Raises `InvalidArgument` for a compaction, which stands for a path
    that is not the new one's, and for an exclusion, which names an entry there.
    """
    if entry.kind == EXCLUSION:
        raise InvalidArgument(
            f"entry {entry.id!r} is an exclusion, which names an entry of its own path, and would leave nothing out "
            "here; pick without it, then exclude() the copy"
        )
    if entry.kind == COMPACTION:
        raise InvalidArgument(
            f"entry {entry.id!r} is a compaction, which stands for what lies before it on its own path; merge its "
            "summary back instead"
        )
    return _copied(entry, session_id)


def same_entry(entry: Entry, session_id: str) -> NewEntry:
    """Return an entry ready to be written in another tree, with all around it: under its id, parent and time."""
    copied = _copied(entry, session_id)
    return replace(copied, id=entry.id, parent_id=entry.parent_id, created_us=entry.created_us)


def _copied(entry: Entry, session_id: str) -> NewEntry:
    beside = entry.extra_fields
    if provenance_of(entry) is None:
        beside[PROVENANCE] = {"session": entry.session_id or session_id, "entry": entry.id}
    extra, _ = encode_json(beside, "extra")
    preview = message_title(entry.fields) if entry.kind == MESSAGE and entry.role == "user" else None
    return NewEntry(
        entry.kind, entry.payload, entry.role, entry.source, extra=extra, preview=preview, counted=False, built=True
    )


def range_key(*parts: str | None) -> str:
    """Return a name for a stretch of history, by which a repeated merge is recognised."""
    text, _ = encode_json(list(parts), "range")
    return f"merged:{blake2b(text.encode(), digest_size=16).hexdigest()}"


def check_whole_exchanges(path: Sequence[Entry], chosen: Collection[str]) -> None:
    """Raise `InvalidArgument` if a tool call is chosen without its result, or a result without its call.

    No provider takes the one without the other. ``path`` holds the chosen entries and all between the first and the
    last of them.
    """
    pairing = Pairing(messages_of(path))
    for call, results in pairing.results.items():
        caller = path[call.at].id
        if caller in chosen and not any(path[result].id in chosen for result in results[:1]):
            raise InvalidArgument(
                f"entry {caller!r} makes the tool call {shown(call.id)}, and its result is not among the chosen "
                "entries; choose both, or neither"
            )
    for at, entry in enumerate(path):
        group = pairing.group_of(at) if entry.id in chosen else None
        if group is not None and (group.caller is None or path[group.caller].id not in chosen):
            raise InvalidArgument(
                f"entry {entry.id!r} is the result of the tool call {shown(answered_id(entry.fields))}, which is not "
                "among the chosen entries; choose both, or neither"
            )
