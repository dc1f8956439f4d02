"""Replace ids in payloads after a rename, such as the first entry that a compaction keeps."""

from __future__ import annotations

from collections.abc import Mapping

from flue_py.core.jsontext import JsonObject, JsonValue, decode_json, encode_json, payload_digest
from flue_py.core.kinds import kind_of
from flue_py.store.salvage.rows import EntryRow, Found, Gathered
from flue_py.store.schema.payloads import StoredPayload, pack


def follow_renamed(found: Gathered, entry: EntryRow, row: Found) -> tuple[tuple[str, ...], StoredPayload | None]:
    """Replace old names of entries in a payload, and compute its new digest.

    Return the fields that were changed, and how the payload is stored now; nothing if it stays as it is.
    """
    references = kind_of(entry.kind).references
    if not found.renamed or not references:
        return (), None
    value = decode_json(found.text(row, entry)[0])
    if not isinstance(value, dict):
        return (), None
    names = {old: new for (tree, old), new in found.renamed.items() if tree == entry.tree}
    changed: JsonObject = {
        name: now for name in references if name in value and (now := _renamed(value[name], names)) != value[name]
    }
    if not changed:
        return (), None
    text, _ = encode_json({**value, **changed}, entry.kind)
    return tuple(changed), stored_anew(row, text)


def stored_anew(row: Found, text: str) -> StoredPayload:
    """Give an entry's row a payload; return how that is stored."""
    stored = pack(text)
    row.update(payload=stored.payload, packed=stored.packed, blob=stored.blob, digest=payload_digest(text))
    return stored


def _renamed(value: JsonValue, names: Mapping[str, str]) -> JsonValue:
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {name: _renamed(item, names) for name, item in value.items()}
    return names.get(value, value) if isinstance(value, str) else value
