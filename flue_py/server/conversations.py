"""The Conversations API of OpenAI: a conversation is a session, and its items are those of the context.

An item is stored as it came; in an answer it has the fields that OpenAI's types ask for. Its id is the one it came
with, or one made of the entry's. An item that is deleted is left out by an exclusion, which `flue-py undo` takes back.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, cast
from weakref import WeakKeyDictionary

from msgspec import Meta, Struct, field

from flue_py.adapters.items import entries_of, items_of
from flue_py.core.context import ContextEntry, context_of
from flue_py.core.entries import NewEntry
from flue_py.core.json import Frozen, JsonObject, decode_objects, to_json
from flue_py.core.kinds import COMPACTION
from flue_py.core.sessions import PathRead, ReadStamp
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, IdempotencyConflict, InvalidArgument, SessionExists, shown
from flue_py.providers.base import fields_of
from flue_py.providers.openai_responses import completed
from flue_py.server.answers import ConversationDeletion, ConversationItem, ConversationRow, Items
from flue_py.server.routes import CONVERSATIONS, Call, Nothing, Route, session_id_of
from flue_py.sessions.handle import LandingOptions
from flue_py.sessions.session import Session
from flue_py.sessions.write import first_landed

METADATA = "openaiConversation"
"""The field of a session's metadata that has those of the conversation."""

Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]

# ---------------------------------------------------------------------------------------------------------------------
# Items: those of the context, under ids that each has alone.

_ID = re.compile(r"[\w.:=+~-]{1,255}", re.ASCII)
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fc"}
_WITH_STATUS = ("message", "function_call", "function_call_output")


class Item(Frozen):
    """An item under its id, the item of the context that it is of, and whether that is no other one as well."""

    id: str
    fields: JsonObject
    source: ContextEntry
    is_whole: bool


def _type_of(item: JsonObject) -> str:
    kind = item.get("type")
    return kind if isinstance(kind, str) else "message"


def _id_of(item: JsonObject, entry_id: str, number: int = 0) -> str:
    own = item.get("id")
    if isinstance(own, str) and own:
        return own
    return f"{_PREFIXES.get(_type_of(item), 'item')}_{entry_id}{f'_{number}' if number else ''}"


def _items_in(context: Sequence[ContextEntry]) -> dict[str, Item]:
    """Return the items of a context, or of its end, by their ids."""
    items: dict[str, Item] = {}
    # From the end, so that an id is the same whatever comes before: a history from elsewhere may have one twice.
    for source in reversed(context):
        printed = [cast("JsonObject", item) for item in items_of(source)]
        for number, fields in reversed([*enumerate(printed)]):
            item_id = _id_of(fields, source.entry_id, number)
            if item_id in items:
                item_id = _id_of({**fields, "id": None}, source.entry_id, number)
            items[item_id] = Item(item_id, fields, source, len(printed) == 1)
    return dict(reversed(items.items()))


class Listed(Frozen):
    """The items of a context as they are answered, each as JSON, their places by id, and how much they take."""

    stamp: ReadStamp
    answers: tuple[bytes, ...]
    places: Mapping[str, int]
    size: int


_LISTED: WeakKeyDictionary[Backend, OrderedDict[int, Listed]] = WeakKeyDictionary()
"""The conversations that were listed last: as long as nothing changes, a page of one is O(page)."""

_MOST, _MOST_BYTES, _BESIDE = 200, 128_000_000, 300
"""How many these may be, how much all of them may take, and how much an item takes beside its JSON."""


async def _listed(call: Call, session: Session) -> Listed:
    """Return the items of a conversation: one point read if they are those of the last time, else O(context)."""
    key, backend = session.info.session_key, call.store.backend
    all_listed = _LISTED.setdefault(backend, OrderedDict())
    listed = all_listed.get(key)
    read = await backend.read_context(session.info.ref, unless=None if listed is None else listed.stamp)
    if read.goes_on and read.entries:
        read = await backend.read_context(session.info.ref)
    if listed is None or not read.goes_on:
        listed = await backend.waiting.call(partial(_listed_in, read))
    all_listed.pop(key, None)
    if listed.size <= _MOST_BYTES:
        all_listed[key] = listed
    while len(all_listed) > _MOST or sum(each.size for each in all_listed.values()) > _MOST_BYTES:
        all_listed.popitem(last=False)
    return listed


def _listed_in(read: PathRead) -> Listed:
    items = _items_in(context_of(read.entries, read.compaction))
    answers = tuple(to_json(_answer_of(item_id, item.fields)) for item_id, item in items.items())
    places = {item_id: at for at, item_id in enumerate(items)}
    return Listed(read.stamp, answers, places, sum(map(len, answers)) + len(answers) * _BESIDE)


def _answer_of(item_id: str, item: JsonObject) -> JsonObject:
    """Return an item as the API has it: with an id, a type and a status, and the content of a message as parts."""
    kind = _type_of(item)
    content = item.get("content")
    begun: JsonObject = {"id": item_id, "type": kind}
    if kind in _WITH_STATUS:
        begun["status"] = "completed"
    whole: JsonObject = {**begun, **item, "id": item_id, "type": kind}
    if kind == "message" and isinstance(content, str):
        text_type = "output_text" if item.get("role") == "assistant" else "input_text"
        whole["content"] = [{"type": text_type, "text": content}]
    return completed(whole, item_id)


def _list_of(items: Sequence[JsonObject], *, has_more: bool) -> JsonObject:
    ids = [item["id"] for item in items]
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    return {"object": "list", "data": [*items], "first_id": first, "last_id": last, "has_more": has_more}


def _checked_ids(items: Sequence[JsonObject]) -> list[str]:
    """Return the ids that items bring along. Raises `InvalidArgument`, also for one that is there twice."""
    ids: list[str] = []
    for number, item in enumerate(items):
        item_id, kind = item.get("id"), item.get("type")
        is_message = isinstance(item.get("role"), str) and isinstance(item.get("content"), (str, list))
        if not is_message if kind in (None, "message") else not isinstance(kind, str):
            raise InvalidArgument(f"items[{number}]: an item has a type, and a message a role and a content")
        if item_id is None:
            continue
        if not isinstance(item_id, str) or not _ID.fullmatch(item_id) or item_id in (".", ".."):
            raise InvalidArgument(f"items[{number}].id: {shown(item_id)} is no id of an item; leave it out to get one")
        if item_id in ids:
            raise InvalidArgument(f"items[{number}].id: {shown(item_id)} is the id of an earlier item, too")
        ids.append(item_id)
    return ids


async def _append(call: Call, session: Session, items: Sequence[JsonObject]) -> list[JsonObject]:
    """Append items, and return them as the API has them. Raises `InvalidArgument` for an id that is there already."""
    options: LandingOptions = {"expected_revision": call.expected_revision, "idempotency_key": call.key}
    ids = _checked_ids(items)
    if ids and await first_landed(call.store.backend, session.id, call.key) is None:
        there = _items_in(await session.build_context_entries())
        for item_id in ids:
            if item_id in there:
                raise InvalidArgument(f"items: the conversation has an item {shown(item_id)} already; send it once")
        options["expected_leaf"] = session.leaf_id
    async with call.store.atomic() as batch:
        pending = batch.append_entries(session, entries_of(items, {}), **options)
    entry_ids = pending.result.entry_ids
    return [_answer_of(_id_of(item, entry_id), item) for item, entry_id in zip(items, entry_ids, strict=True)]


async def _item(call: Call, session: Session) -> Item:
    item = _items_in(await session.build_context_entries()).get(call.item_id)
    if item is None:
        raise EntryNotFound(session.id, call.item_id)
    return item


# ---------------------------------------------------------------------------------------------------------------------
# The calls.


class ConversationBody(Struct, frozen=True, forbid_unknown_fields=True):
    metadata: Metadata | None


class NewConversationBody(Struct, frozen=True, forbid_unknown_fields=True):
    items: list[dict[str, Any]] | None = None
    metadata: Metadata | None = None


class NewItemsBody(Struct, frozen=True, forbid_unknown_fields=True):
    items: Annotated[list[dict[str, Any]], Meta(min_length=1)]


class ItemQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Fields to include: all are, in any case."""

    include: tuple[str, ...] = ()
    include_list: tuple[str, ...] = field(name="include[]", default=())


class ItemsQuery(ItemQuery, frozen=True, forbid_unknown_fields=True):
    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"


def _conversation(session: Session) -> JsonObject:
    metadata, created_at = fields_of(session.metadata.get(METADATA)), session.info.created_us // 1_000_000
    return {"id": session.id, "object": "conversation", "created_at": created_at, "metadata": metadata}


async def create_conversation(call: Call, _: Nothing, body: NewConversationBody) -> JsonObject:
    """Create a session with these items; with an idempotency key, return that of the first request."""
    store, items = call.store, body.items or []
    metadata: JsonObject = {METADATA: {**(body.metadata or {})}}
    _checked_ids(items)
    drawn_id = f"conv_{session_id_of(store.scope, call.key)}"
    try:
        async with store.atomic() as batch:
            session = batch.create_session(id=drawn_id, metadata=metadata)
            if items:
                batch.append_entries(session, entries_of(items, {}), idempotency_key=call.key)
    except SessionExists:
        earlier = await store.get_session(drawn_id)
        if earlier is None or call.key is None:
            raise
        landed = await first_landed(store.backend, drawn_id, call.key)
        if (landed is None) != (not items):
            raise IdempotencyConflict(drawn_id, call.key) from None
        if items:
            await _append(call, earlier, items)
        session = earlier
    return _conversation(session)


async def read_conversation(call: Call, _: Nothing, __: None) -> JsonObject:
    """Return a conversation."""
    return _conversation(await call.session())


async def update_conversation(call: Call, _: Nothing, body: ConversationBody) -> JsonObject:
    """Replace the metadata of a conversation, once for an idempotency key; others of the session stay."""
    session = await call.session()
    async with call.store.atomic(idempotency_key=call.key) as batch:
        batch.set_metadata(session, {METADATA: {**(body.metadata or {})}}, merge=True, **call.seen())
    await session.refresh()
    return _conversation(session)


async def delete_conversation(call: Call, _: Nothing, __: None) -> JsonObject:
    """Delete the session of a conversation and its tasks."""
    session = await call.session()
    await call.store.delete_session_tree(session, **call.seen())
    return {"id": session.id, "object": "conversation.deleted", "deleted": True}


async def create_items(call: Call, _: ItemQuery, body: NewItemsBody) -> JsonObject:
    """Append items to a conversation: all or none."""
    return _list_of(await _append(call, await call.session(), body.items), has_more=False)


async def list_items(call: Call, query: ItemsQuery, _: None) -> JsonObject:
    """Return a page of the items of a conversation, by default the newest first. O(page), if it is not a first look."""
    session, is_down = await call.session(), query.order == "desc"
    if is_down and query.after is None:
        # The newest are at the end of the context, whatever is before them.
        newest = [*_items_in(await session.build_context_entries(limit=query.limit + 1)).values()]
        if len(newest) > query.limit:
            answers = [_answer_of(item.id, item.fields) for item in newest[: -query.limit - 1 : -1]]
            return _list_of(answers, has_more=True)
    listed = await _listed(call, session)
    place = None if query.after is None else listed.places.get(query.after)
    if query.after is not None and place is None:
        raise EntryNotFound(session.id, query.after)
    count = len(listed.answers)
    if is_down:
        end = count if place is None else place
        start = max(0, end - query.limit)
    else:
        start = 0 if place is None else place + 1
        end = min(count, start + query.limit)
    answers = decode_objects(listed.answers[start:end])
    return _list_of(answers[::-1], has_more=start > 0) if is_down else _list_of(answers, has_more=end < count)


async def read_item(call: Call, _: ItemQuery, __: None) -> JsonObject:
    """Return an item."""
    item = await _item(call, await call.session())
    return _answer_of(item.id, item.fields)


async def delete_item(call: Call, _: Nothing, __: None) -> JsonObject:
    """Leave an item out of the conversation; the output of a call goes with it. The entry stays in the history."""
    session = await call.session()
    item = await _item(call, session)
    if not item.is_whole or item.source.kind == COMPACTION:
        raise InvalidArgument(
            f"item {shown(item.id)}: it is a part of the entry {item.source.entry_id}; leave that out (flue-py exclude)"
        )
    async with call.store.atomic() as batch:
        left_out = NewEntry.exclusion(item.source.entry_id, why="deleted by a client")
        batch.append_entries(session, [left_out], **call.seen())
    return _conversation(session)


_CONVERSATION = f"{CONVERSATIONS}/{{session}}"
_ITEM = f"{_CONVERSATION}/items/{{item}}"

ROUTES = (
    Route(
        "POST", CONVERSATIONS, "Create a conversation.", create_conversation, Nothing, NewConversationBody,
        ConversationRow,
    ),
    Route("GET", _CONVERSATION, "Read metadata.", read_conversation, Nothing, None, ConversationRow, has_etag=True),
    Route(
        "POST", _CONVERSATION, "Replace metadata.", update_conversation, Nothing, ConversationBody, ConversationRow
    ),
    Route(
        "DELETE", _CONVERSATION, "Delete a conversation.", delete_conversation, Nothing, None, ConversationDeletion
    ),
    Route("POST", f"{_CONVERSATION}/items", "Append items.", create_items, ItemQuery, NewItemsBody, Items),
    Route("GET", f"{_CONVERSATION}/items", "List items.", list_items, ItemsQuery, None, Items, has_etag=True),
    Route("GET", _ITEM, "Read an item.", read_item, ItemQuery, None, ConversationItem, has_etag=True),
    Route("DELETE", _ITEM, "Leave an item out.", delete_item, Nothing, None, ConversationRow),
)  # fmt: skip
