"""What the framework keeps of a conversation beside its messages, and where a session has it.

It is the state at a leaf: a save writes it beside the last entry that it adds, so that whoever goes back to that entry,
by an undo or a fork, has what held there. What changes without an entry (a branch, a fork, a save of no message) is in
the session's metadata, for the leaf that it names.
"""

from __future__ import annotations

import json
from copy import copy, deepcopy
from dataclasses import replace
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage
from pydantic_core import PydanticSerializationError

from flue_py.adapters.keys import id_of, key_of
from flue_py.adapters.pydantic_ai.exactness import repaired, repairs, without_surrogates
from flue_py.adapters.pydantic_ai.stored import FIELD, beside, held, told
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.sessions import SessionInfo
from flue_py.errors import InvalidEntry
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

Value = TypeVar("Value")


class _Kept(Generic[Value]):
    """Values of a class as JSON and back, value for value."""

    def __init__(self, kind: type[Value]) -> None:
        # Only a list takes these settings, which messages have, too.
        config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
        self._adapter = TypeAdapter(list[kind], config=config)  # type: ignore[valid-type]

    def dumped(self, value: Value) -> tuple[JsonObject, list[JsonValue]]:
        """Return a value as JSON, and what that cannot say of it. Raises `InvalidEntry`."""
        try:
            text = self._adapter.dump_json([without_surrogates(value)], warnings=False)
        except (PydanticSerializationError, ValueError) as error:
            raise InvalidEntry(f"record: pydantic-ai cannot write it as JSON, so it cannot be kept: {error}") from error
        (written,) = cast("list[JsonObject]", json.loads(text))
        return written, repairs(value, self.read(written))

    def read(self, written: JsonValue, exact: JsonValue = None) -> Value:
        """Return the value that was written."""
        (value,) = self._adapter.validate_json(json.dumps([written]))
        return cast("Value", repaired(value, exact))


_USAGE = _Kept(RunUsage)
_REQUESTS = _Kept(DeferredToolRequests)
_NO_USAGE = _USAGE.dumped(RunUsage())[0]


class Current(NamedTuple):
    """A conversation as it is stored: its record, and the session with it; a handle on that, where there is one."""

    record: ConversationRecord
    info: SessionInfo
    session: Session | None = None


# --- Writing ------------------------------------------------------------------------------------------------------


def state_of(record: ConversationRecord) -> JsonObject:
    """Return what of a record is of its leaf. Raises `InvalidEntry` for what JSON cannot hold."""
    state: JsonObject = {"revision": record.revision, "updatedAt": record.updated_at.isoformat()}
    usage, exact = _USAGE.dumped(record.usage)
    state["usage"] = {name: value for name, value in usage.items() if _NO_USAGE.get(name, 0) != value}
    if exact:
        state["exactUsage"] = exact
    if record.deferred_tool_requests is not None:
        state["deferred"], exact = _REQUESTS.dumped(record.deferred_tool_requests)
        if exact:
            state["exactDeferred"] = exact
    if record.branches:
        state["branches"] = list(record.branches)
    return state


def metadata_with(record: ConversationRecord, at_leaf: JsonObject | None) -> JsonObject:
    """Return the fields of a session's metadata that are this adapter's; ``at_leaf`` is the state without an entry."""
    kept: JsonObject = {}
    for name, value in (("scope", record.scope), ("from", record.forked_from), ("at", record.forked_at)):
        if value is not None:
            kept[name] = value
    if at_leaf is not None:
        kept["leaf"] = None if record.head_id is None else key_of(record.head_id)
        kept["state"] = at_leaf
    return {FIELD: held(kept)}


def scope_of(store: Store, scope: str | None) -> str:
    """Return the scope of the session of a conversation: its own, wherever a session's scope can be it. O(length).

    Of a conversation without one it is the scope of the store.
    """
    return store.scope or "" if scope is None else key_of(scope)


# --- Reading ------------------------------------------------------------------------------------------------------


def kept_in(info: SessionInfo) -> JsonObject | None:
    """Return what this adapter keeps in the metadata of a session; None if it never wrote to it."""
    if FIELD not in info.metadata_text:
        return None
    found = info.metadata.get(FIELD)
    return None if found is None else told(found)


def conversation_of(info: SessionInfo) -> str:
    """Return the id of the conversation that a session is."""
    name = info.key if info.key is not None else info.id
    return id_of(name, info.metadata) if name.startswith("sha256:") else name


def copied(record: ConversationRecord) -> ConversationRecord:
    """Return a record that may be changed without changing this one."""
    usage = copy(record.usage)
    waiting = None if record.deferred_tool_requests is None else deepcopy(record.deferred_tool_requests)
    return replace(record, usage=usage, deferred_tool_requests=waiting, branches=[*record.branches])


def record_of(info: SessionInfo, leaf: Entry | None, kept: JsonObject | None) -> ConversationRecord:
    """Return the record of a session with its leaf: as it was written, or what it comes to where nobody wrote one.

    ``kept`` is what this adapter keeps in the session's metadata.
    """
    kept = kept or {}
    near = None if leaf is None else beside(leaf)
    state = kept.get("state") if "state" in kept and kept.get("leaf") == info.leaf_id else (near or {}).get("state")
    named = (near or {}).get("id", info.leaf_id)
    scope = cast("str | None", kept.get("scope", info.scope or None))
    record = ConversationRecord(
        conversation_id=conversation_of(info),
        head_id=cast("str | None", named),
        scope=scope,
        forked_from=cast("str | None", kept.get("from")),
        forked_at=cast("str | None", kept.get("at")),
        revision=f"flue:{info.session_key}:{info.leaf_id or ''}",
        updated_at=info.updated_at,
    )
    return record if state is None else _with_state(record, cast("JsonObject", state))


def _with_state(record: ConversationRecord, state: JsonObject) -> ConversationRecord:
    deferred = state.get("deferred")
    usage = {**_NO_USAGE, **cast("JsonObject", state["usage"])}
    return replace(
        record,
        usage=_USAGE.read(usage, state.get("exactUsage")),
        deferred_tool_requests=None if deferred is None else _REQUESTS.read(deferred, state.get("exactDeferred")),
        branches=list(cast("list[str]", state.get("branches", []))),
        revision=cast("str", state["revision"]),
        updated_at=datetime.fromisoformat(cast("str", state["updatedAt"])),
    )
