"""The key of a session whose id a framework chose: that id, wherever a key can be it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.sessions import check_new_name
from flue_py.errors import InvalidArgument, shown

FRAMEWORK_ID = "frameworkId"
"""The field of a session's metadata that has the id, as JSON text in ASCII, where the key is another."""

_MADE = re.compile(r"sha256:[0-9a-f]{64}")


def key_of(id: str) -> str:
    """Return the key of the session with this id: the id itself, or its digest where no key can be that.

    No two ids have one key. Raises `InvalidArgument` if the id is not a string. O(length).
    """
    if not isinstance(id, str):
        raise InvalidArgument(f"id: should be a string, not {shown(id)}")
    return id if _can_be_key(id) else f"sha256:{sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()}"


def metadata_of(id: str) -> JsonObject:
    """Return what the session's metadata must hold so that `id_of` gives the id back; empty where the key is it."""
    return {} if _can_be_key(id) else {FRAMEWORK_ID: json.dumps(id)}


def id_of(key: str, metadata: Mapping[str, JsonValue]) -> str:
    """Return the id of the session with this key and these metadata. O(length)."""
    kept = metadata.get(FRAMEWORK_ID)
    if isinstance(kept, str) and _MADE.fullmatch(key):
        try:
            id = json.loads(kept)
        except ValueError:
            return key
        if isinstance(id, str) and key_of(id) == key:
            return id
    return key


def _can_be_key(id: str) -> bool:
    # An id that looks like a key that is made here gets one, too: else it would be taken for another's.
    if _MADE.fullmatch(id):
        return False
    try:
        check_new_name(id, "id")
    except InvalidArgument:
        return False
    return True
