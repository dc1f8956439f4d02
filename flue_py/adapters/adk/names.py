"""Where the sessions of an app and a user are: their scope, and the keys in it.

The scope is ``app/user``, with a slash, a percent sign and what no scope may hold written as ``%`` and two hexadecimal
digits for each byte, so that it can be read, typed and split again. State that the sessions of a user share, and state
that an app shares, has a session of its own, in a scope that no session of a user is in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from urllib.parse import quote_from_bytes, unquote_to_bytes

from flue_py.adapters.keys import metadata_of
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.errors import InvalidArgument, shown

_APP_STATE = "app"
_USER_STATE = "user:"
_NAMES = "adkNames"
_LONGEST = 450
"""How long one of the two names may be in a scope, of 1,000 bytes at most; a longer one is there as its digest."""

_ODD = re.compile(r"[%/\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def scope_of(app_name: str, user_id: str) -> str:
    """Return the scope of the sessions of a user of an app. No two users have the same. O(length)."""
    return f"{_written(app_name)}/{_written(user_id)}"


def app_prefix(app_name: str) -> str:
    """Return how the scopes of all users of an app begin, and those of no other app. O(length)."""
    return f"{_written(app_name)}/"


def names_of(scope: str, metadata: Mapping[str, JsonValue] = MappingProxyType({})) -> tuple[str, str]:
    """Return the app and the user whose scope this is.

    ``metadata`` are those of a session in it: names that are too long for a scope are there. Raises `InvalidArgument`
    for another scope. O(length).
    """
    kept = metadata.get(_NAMES)
    if isinstance(kept, str):
        names = json.loads(kept)
        return (str(names[0]), str(names[1]))
    parts = scope.split("/")
    if len(parts) != 2:
        raise InvalidArgument(f"scope: {shown(scope)} is not that of an app and a user; scope_of makes it")
    return _read(parts[0]), _read(parts[1])


def session_metadata(app_name: str, user_id: str, session_id: str) -> JsonObject:
    """Return the metadata of a new session: empty, unless its names are not in its scope and key as they are."""
    found = metadata_of(session_id)
    if _is_long(app_name) or _is_long(user_id):
        found[_NAMES] = json.dumps([app_name, user_id])
    return found


def state_place(app_name: str, user_id: str | None) -> tuple[str, str]:
    """Return the scope and the key of the session with the state of an app, or of a user of it."""
    return _written(app_name), _APP_STATE if user_id is None else _USER_STATE + _written(user_id)


def _is_long(name: str) -> bool:
    if not isinstance(name, str):
        raise InvalidArgument(f"app_name, user_id: should be strings, not {shown(name)}")
    return len(_quoted(name).encode()) > _LONGEST


def _written(name: str) -> str:
    # A percent sign that two other characters follow is never what quoting makes.
    return f"%sha256:{sha256(_bytes(name)).hexdigest()}" if _is_long(name) else _quoted(name)


def _quoted(name: str) -> str:
    return _ODD.sub(lambda found: quote_from_bytes(_bytes(found[0]), safe="") if found[0] != "%" else "%25", name)


def _read(written: str) -> str:
    # What is not quoted is kept as it is: `unquote` would take other characters for bytes of UTF-8.
    return re.sub(
        r"(?:%[0-9A-F]{2})+", lambda found: unquote_to_bytes(found[0]).decode("utf-8", "surrogatepass"), written
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
