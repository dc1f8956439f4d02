"""Taking a compaction back by an entry: nothing is removed, and what came after it stays."""

from __future__ import annotations

from dataclasses import replace

from flue_py.core.entries import Entry, NewEntry
from flue_py.core.jsontext import JsonObject, decode_object, encode_json
from flue_py.core.projection import RESTORES

TAKES_BACK = "takesBackCompactionId"
"""The field that names the compaction which is taken back."""


def uncompaction(taken_back: Entry, restored: Entry | None, first_entry_id: str, tokens_before: int) -> NewEntry:
    """Return the entry that takes a compaction back and puts the one before it in effect again, None for no other.

    It is of the kind ``compaction``, with the summary and the kept part of the restored one. A program that does not
    know the field `RESTORES` therefore reads the same history; without an earlier compaction it keeps everything, from
    ``first_entry_id`` on, below an empty summary.
    """
    fields: JsonObject = {} if restored is None else restored.fields
    summary, first_kept = fields.get("summary"), fields.get("firstKeptEntryId")
    made = NewEntry.compaction(
        summary if isinstance(summary, str) else "",
        first_kept_entry_id=first_kept if isinstance(first_kept, str) else first_entry_id,
        tokens_before=tokens_before,
    )
    added: JsonObject = {
        "pinnedEntryIds": fields.get("pinnedEntryIds", []),
        RESTORES: None if restored is None else restored.id,
        TAKES_BACK: taken_back.id,
    }
    payload, _ = encode_json(decode_object(made.payload) | added, "compaction")
    return replace(made, payload=payload)
