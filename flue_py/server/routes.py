"""The routes of the HTTP API: a row for each, with its parameters, its body, its answer, and the function behind it.

The OpenAPI document is made of this table.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from secrets import token_hex
from typing import Annotated, Any, Literal, TypeAlias, cast
from urllib.parse import quote
from zlib import crc32

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import schema_components

from flue_py.context.settings import ContextSettings
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.ledger import Dimension
from flue_py.core.sessions import STORED, LeafChoice, OnConflict, SessionInfo, SessionKind, SessionOrder
from flue_py.errors import IdempotencyConflict, InvalidArgument, RevisionConflict, SessionExists, SessionNotFound, shown
from flue_py.render import views
from flue_py.render.views import row_of
from flue_py.search import How, Part
from flue_py.server.answers import (
    AppendedRow,
    BudgetRow,
    Budgets,
    ConversationError,
    DeletionRow,
    Entries,
    MarkedRow,
    MovedRow,
    PlanRow,
    Problem,
    RequestRow,
    SessionRow,
    Sessions,
    UsageRows,
    WindowRow,
)
from flue_py.server.answers import Context as ContextRow
from flue_py.server.answers import Search as SearchRow
from flue_py.sessions.handle import EditOptions, LandingOptions, SeenOptions
from flue_py.sessions.housekeeping import moment
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]
Leaf: TypeAlias = str | None | UnsetType
Metadata: TypeAlias = dict[str, Any]

CONVERSATIONS = "/v1/conversations"
"""The path below which requests, answers and errors are of OpenAI's form."""


def segment_of(name: str) -> str:
    """Return the part of a path that stands for an id: itself, or its base64url behind a ~ if paths cannot have it."""
    if "/" in name or name in (".", "..") or name.startswith("~"):
        return f"~{urlsafe_b64encode(name.encode()).decode().rstrip('=')}"
    return quote(name, safe="")


def id_in(segment: str) -> str:
    """Return the id that a part of a path stands for. Raises `InvalidArgument`."""
    if not segment.startswith("~"):
        return segment
    data = segment[1:]
    try:
        return urlsafe_b64decode(data + "=" * (-len(data) % 4)).decode()
    except (NotBase64, ValueError):
        raise InvalidArgument(f"{shown(segment)}: behind a ~ an id is written in base64url") from None


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Call(Frozen):
    """A request: the store as its token sees it, the session of its path ("" if it has none), and its headers.

    ``settings`` are those by which pages make requests of agents.
    """

    store: Store
    session_id: str
    key: str | None = None
    expected_revision: int | None = None
    item_id: str = ""
    settings: ContextSettings | None = None

    async def session(self) -> Session:
        """Return the session of the path. Raises `SessionNotFound`, for one of another tenant, too. One point read."""
        session = await self.store.get_session(self.session_id)
        if session is None:
            raise SessionNotFound(self.session_id)
        return session

    def seen(self, leaf: Leaf = UNSET) -> SeenOptions:
        """Return the leaf and the revision that the caller has seen."""
        options: SeenOptions = {"expected_revision": self.expected_revision}
        if leaf is not UNSET:
            options["expected_leaf"] = leaf
        return options


class Route(Frozen):
    """A row of the table. ``work`` gets the call, the parameters and the body, and returns the answer as JSON."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    summary: str
    work: Callable[[Call, Any, Any], Awaitable[JsonObject]]
    query: type[Struct]
    body: type[Struct] | None
    answer: type[Struct]
    status: int = 200
    has_etag: bool = False


async def etag_of(store: Store, info: SessionInfo) -> str:
    """Return the ETag of a session: its number in the store, its revision, and a digest of what else an answer shows.

    That is what it has spent, its name, which may be of its source, and the epoch: entries of a source may be redacted.
    Two point reads, three for a fork without a title.
    """
    spent = (info.spent_tokens, info.spent_picodollars, info.unpriced_calls, info.unknown_calls)
    digest = crc32(repr((spent, await store.backend.read_epoch(), await names_in(store, [info]))).encode())
    return f'"{info.session_key}-{info.revision}-{digest:08x}"'


def _leaf(leaf: str | None) -> LeafChoice:
    return STORED if leaf is None else leaf


# ---------------------------------------------------------------------------------------------------------------------
# Sessions.


class SessionsQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    kind: SessionKind | None = None
    order_by: SessionOrder = "activity"
    descending: bool = True
    title: str | None = None
    cwd: str | None = None
    completed: bool | None = None
    limit: Limit = 50
    cursor: str | None = None


class NewSessionBody(Struct, frozen=True, forbid_unknown_fields=True):
    key: str | None = None
    title: str | None = None
    metadata: Metadata | None = None
    cwd: str | None = None


class DeleteQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    confirm: str | None = None
    dry_run: bool = False


class ForkBody(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    at: Leaf = UNSET
    before: str | None = None
    key: str | None = None
    title: str | None = None
    metadata: Metadata | None = None
    expected_leaf: Leaf = UNSET


async def names_in(store: Store, infos: list[SessionInfo]) -> dict[str, str]:
    """Return the names of sessions by their ids; of a source in another scope, nothing is said."""
    names = {}
    for info in infos:
        needs = info.forked_from_session if views.needs_source(info) else None
        source = None if needs is None else await store.get_session(needs)
        names[info.id] = views.session_name(info, None if source is None else source.info)
    return names


async def _row(store: Store, info: SessionInfo) -> JsonObject:
    return views.session_row(info, (await names_in(store, [info]))[info.id])


async def list_sessions(call: Call, query: SessionsQuery, _: None) -> JsonObject:
    """Return a page of sessions."""
    page = await call.store.list_sessions(
        kind=query.kind,
        order_by=query.order_by,
        descending=query.descending,
        title=query.title,
        cwd=query.cwd,
        completed=query.completed,
        limit=query.limit,
        cursor=query.cursor,
    )
    names = await names_in(call.store, [*page.sessions])
    rows: JsonObject = {"sessions": [views.session_row(info, names[info.id]) for info in page.sessions]}
    return rows | row_of(page, "next_cursor damaged")


def session_id_of(scope: str | None, key: str | None) -> str:
    """Return the id of the session that a request with this idempotency key makes: the same for each retry."""
    if key is None:
        return token_hex(16)
    return sha256(f"{scope or ''}\0{key}".encode()).hexdigest()[:32]


async def create_session(call: Call, _: Nothing, body: NewSessionBody) -> JsonObject:
    """Create a session; with an idempotency key, that of the first request."""
    store = call.store
    made_id = None if call.key is None else session_id_of(store.scope, call.key)
    try:
        session = await store.create_session(
            key=body.key, title=body.title, metadata=body.metadata, cwd=body.cwd, id=made_id
        )
    except SessionExists:
        earlier = None if made_id is None else await store.get_session(made_id)
        if earlier is None:
            raise
        # Neither changes after a session is made; its title and its metadata may.
        if (earlier.info.key, earlier.info.cwd) != (body.key, body.cwd):
            raise IdempotencyConflict(earlier.id, cast("str", call.key)) from None
        session = earlier
    return await _row(store, session.info)


async def read_session(call: Call, _: Nothing, __: None) -> JsonObject:
    """Return a session's row."""
    return await _row(call.store, (await call.session()).info)


async def delete_session(call: Call, query: DeleteQuery, _: None) -> JsonObject:
    """Delete a session and its tasks, once the id is confirmed, or say what would go."""
    session = await call.session()
    if not query.dry_run and query.confirm != session.id:
        raise InvalidArgument(
            f"confirm: nothing was deleted: repeat the id (?confirm={session.id}), or look at ?dryRun=true first"
        )
    done = await call.store.delete_session_tree(session, dry_run=query.dry_run, **call.seen())
    return {"dryRun": query.dry_run, **row_of(done, "session_ids entries_deleted entries_kept")}


async def fork_session(call: Call, _: Nothing, body: ForkBody) -> JsonObject:
    """Fork a session at an entry, or before one that a person wrote."""
    session = await call.session()
    fork = await session.fork(
        at=STORED if body.at is UNSET else body.at,
        before=body.before,
        idempotency_key=call.key,
        key=body.key,
        title=body.title,
        metadata=body.metadata,
        **call.seen(body.expected_leaf),
    )
    return await _row(call.store, fork.info) | {"draft": fork.draft}


# ---------------------------------------------------------------------------------------------------------------------
# Entries, appends and moves.


class EntriesQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    kind: str | None = None
    after: str | None = None
    newest_first: bool = False
    limit: Limit = 100


class AppendBody(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    source: str | None = None
    expected_leaf: Leaf = UNSET
    on_conflict: OnConflict = "raise"


class EditBody(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    expected_leaf: Leaf = UNSET
    by: str | None = None
    why: str | None = None


class MoveBody(EditBody, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    to: str | None


class MarkBody(EditBody, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    label: str | None | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET


async def list_entries(call: Call, query: EntriesQuery, _: None) -> JsonObject:
    """Return a page of the entries that a session sees."""
    session = await call.session()
    entries = await session.entries(
        kind=query.kind, after=query.after, newest_first=query.newest_first, limit=query.limit
    )
    rest = entries[-1].id if len(entries) == query.limit else None
    return {"entries": [views.entry_row(entry) for entry in entries], "nextAfter": rest}


async def append_messages(call: Call, _: Nothing, body: AppendBody) -> JsonObject:
    """Append messages: all or none."""
    options: LandingOptions = {
        **call.seen(body.expected_leaf),
        "on_conflict": body.on_conflict,
        "idempotency_key": call.key,
    }
    done = await call.store.append_messages(call.session_id, body.messages, source=body.source, **options)
    names = "entry_ids parent_id leaf_id revision on_branch replayed surrogates_replaced oddities"
    return {"sessionId": call.session_id, **row_of(done, names)}


def _edit(call: Call, body: EditBody) -> EditOptions:
    return {**call.seen(body.expected_leaf), "by": body.by, "why": body.why}


async def move_leaf(call: Call, _: Nothing, body: MoveBody) -> JsonObject:
    """Set the leaf to an entry; null is before the first."""
    session = await call.session()
    moved = await session.move_leaf(body.to, idempotency_key=call.key, **_edit(call, body))
    return views.moved_row(session.id, moved, moved.to_id)


async def mark_entry(call: Call, _: Nothing, body: MarkBody) -> JsonObject:
    """Label an entry, or pin it with its tool call or results."""
    marks, edit = (await call.session()).marks, _edit(call, body)
    if (body.label is UNSET) is (body.pinned is UNSET):
        raise InvalidArgument("label, pinned: send one of them; nothing was changed")
    entry_ids: tuple[str, ...] = (call.item_id,)
    if body.label is not UNSET:
        await marks.set_label(call.item_id, body.label, **edit)
    else:
        entry_ids = (await (marks.pin if body.pinned else marks.unpin)(call.item_id, **edit)).entry_ids
    return {"sessionId": call.session_id, "entryIds": [*entry_ids]}


async def undo(call: Call, _: Nothing, body: EditBody) -> JsonObject:
    """Undo the last operation."""
    return await _step(call, body, is_undo=True)


async def redo(call: Call, _: Nothing, body: EditBody) -> JsonObject:
    """Redo what was undone last."""
    return await _step(call, body, is_undo=False)


async def _step(call: Call, body: EditBody, *, is_undo: bool) -> JsonObject:
    session = await call.session()
    async with call.store.atomic(idempotency_key=call.key) as batch:
        pending = (batch.undo if is_undo else batch.redo)(session.id, **_edit(call, body))
    return views.moved_row(session.id, pending.result, session.leaf_id)


# ---------------------------------------------------------------------------------------------------------------------
# Contexts, usage, search and budgets.


class ContextQuery(Struct, frozen=True, forbid_unknown_fields=True):
    leaf: str | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None


class RequestQuery(Struct, frozen=True, forbid_unknown_fields=True):
    target: Literal["anthropic", "openai-chat", "openai-responses", "gemini"]
    model: str | None = None
    leaf: str | None = None


class PlanQuery(Struct, frozen=True, forbid_unknown_fields=True):
    mode: str | None = None
    window: Annotated[int, Meta(ge=1, le=2**53)] | None = None


class WindowQuery(Struct, frozen=True, forbid_unknown_fields=True):
    since: str | None = None
    leaf: str | None = None


class UsageQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    session: str | None = None
    group_by: tuple[Dimension, ...] = ()
    provider: str | None = None
    model: str | None = None
    purpose: str | None = None
    agent: str | None = None
    project: str | None = None


class SearchQuery(Struct, frozen=True, forbid_unknown_fields=True):
    words: str
    how: How = "words"
    part: tuple[Part, ...] = ()
    session: tuple[str, ...] = ()
    project: str | None = None
    role: str | None = None
    tool: str | None = None
    since: str | None = None
    until: str | None = None
    limit: Limit = 20


class BudgetsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    after: str | None = None
    limit: Limit = 100


class BudgetBody(Struct, frozen=True, forbid_unknown_fields=True):
    tokens: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    cost: str | None = None
    tasks: bool = False
    period: Literal["day", "week", "month"] | None = None


async def read_context(call: Call, query: ContextQuery, _: None) -> JsonObject:
    """Return the messages that the model sees."""
    session = await call.session()
    messages = await session.build_context(leaf=_leaf(query.leaf), limit=query.limit)
    return {"messages": [*messages], "leafId": query.leaf or session.leaf_id, "revision": session.revision}


async def read_request(call: Call, query: RequestQuery, _: None) -> JsonObject:
    """Return the request of a provider."""
    sent = await (await call.session()).request(query.target, leaf=_leaf(query.leaf), model=query.model)
    repairs = [row_of(repair, "entry_id what") for repair in sent.repairs]
    return {"target": query.target, "body": sent.body, "repairs": [*repairs], "isBroken": bool(sent.broken)}


async def plan_compaction(call: Call, query: PlanQuery, _: None) -> JsonObject:
    """Return what a compaction would summarize now; nothing is made."""
    session = await call.session()
    done = await session.compactions.plan(mode=query.mode, window=query.window)
    leaving = [] if done.planned is None else [item.entry_id for item in done.planned.leaving]
    return {**row_of(done, "reason mode tokens_before tokens_staying notes"), "leaving": [*leaving]}


async def read_window(call: Call, query: WindowQuery, _: None) -> JsonObject:
    """Return the usage of a session's path, or of a part of it."""
    session = await call.session()
    return views.usage_row(await session.money.aggregate_usage_since(query.since, leaf=_leaf(query.leaf), told=True))


async def read_usage(call: Call, query: UsageQuery, _: None) -> JsonObject:
    """Return what calls used and cost, by the ledger."""
    report = await call.store.usage(
        query.session,
        group_by=query.group_by,
        provider=query.provider,
        model=query.model,
        purpose=query.purpose,
        agent=query.agent,
        project=query.project,
        tz="UTC",
    )
    return report.to_json()


async def search(call: Call, query: SearchQuery, _: None) -> JsonObject:
    """Return where something was said, the best first."""
    answer = await call.store.search(
        query.words,
        how=query.how,
        parts=query.part or None,
        sessions=query.session or None,
        project=query.project,
        role=query.role,
        tool=query.tool,
        since=moment(query.since, "since"),
        until=moment(query.until, "until", is_end=True),
        limit=query.limit,
    )
    return views.search_row(answer, await names_in(call.store, [group.session for group in answer.sessions]))


async def list_budgets(call: Call, query: BudgetsQuery, _: None) -> JsonObject:
    """Return a page of budgets, in the order they were made in."""
    budgets = await call.store.list_budgets(after=query.after, limit=query.limit)
    rest = budgets[-1].id if len(budgets) == query.limit else None
    return {"budgets": [views.budget_row(budget) for budget in budgets], "nextAfter": rest}


async def set_budget(call: Call, _: Nothing, body: BudgetBody) -> JsonObject:
    """Set a budget of a session. Those of scopes are set by who runs the server (flue-py budget)."""
    try:
        cost = None if body.cost is None else Decimal(body.cost)
    except InvalidOperation:
        raise InvalidArgument(f"cost: {shown(body.cost)} is no amount of dollars; write 1.50") from None
    session = await call.session()
    if call.expected_revision not in (None, session.revision):
        raise RevisionConflict(session.id, call.expected_revision, session.revision)
    budget = await call.store.set_budget(
        session, tasks=body.tasks, tokens=body.tokens, cost=cost, period=body.period, tz="UTC" if body.period else None
    )
    return views.budget_row(budget)


_SESSION = "/v1/sessions/{session}"

ROUTES = (
    Route("GET", "/v1/sessions", "List sessions.", list_sessions, SessionsQuery, None, Sessions),
    Route("POST", "/v1/sessions", "Create a session.", create_session, Nothing, NewSessionBody, SessionRow, 201),
    Route("GET", _SESSION, "Read a session.", read_session, Nothing, None, SessionRow, has_etag=True),
    Route("DELETE", _SESSION, "Delete a session and its tasks.", delete_session, DeleteQuery, None, DeletionRow),
    Route("POST", f"{_SESSION}/fork", "Fork a session.", fork_session, Nothing, ForkBody, SessionRow, 201),
    Route("GET", f"{_SESSION}/entries", "List entries.", list_entries, EntriesQuery, None, Entries, has_etag=True),
    Route("POST", f"{_SESSION}/messages", "Append messages.", append_messages, Nothing, AppendBody, AppendedRow, 201),
    Route("POST", f"{_SESSION}/move", "Move the leaf.", move_leaf, Nothing, MoveBody, MovedRow),
    Route("PUT", f"{_SESSION}/entries/{{item}}/marks", "Label or pin.", mark_entry, Nothing, MarkBody, MarkedRow),
    Route("POST", f"{_SESSION}/undo", "Undo.", undo, Nothing, EditBody, MovedRow),
    Route("POST", f"{_SESSION}/redo", "Redo.", redo, Nothing, EditBody, MovedRow),
    Route("GET", f"{_SESSION}/context", "Read a context.", read_context, ContextQuery, None, ContextRow, has_etag=True),
    Route("GET", f"{_SESSION}/request", "Make a request.", read_request, RequestQuery, None, RequestRow, has_etag=True),
    Route("GET", f"{_SESSION}/compaction", "Plan a compaction.", plan_compaction, PlanQuery, None, PlanRow),
    Route("GET", f"{_SESSION}/usage", "Read the usage of a path.", read_window, WindowQuery, None, WindowRow),
    Route("PUT", f"{_SESSION}/budget", "Set a budget.", set_budget, Nothing, BudgetBody, BudgetRow),
    Route("GET", "/v1/usage", "Read the ledger.", read_usage, UsageQuery, None, UsageRows),
    Route("GET", "/v1/search", "Search.", search, SearchQuery, None, SearchRow),
    Route("GET", "/v1/budgets", "List budgets.", list_budgets, BudgetsQuery, None, Budgets),
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# The OpenAPI document.

EVENTS = "/v1/sessions/{session}/events"
_REFERENCE = "#/components/schemas/{name}"
_ID = "An id. One with a slash, one that begins with ~, . and .. are written as ~ and their base64url."


def _text(name: str, place: str, description: str, **limits: JsonValue) -> JsonObject:
    return {"name": name, "in": place, "description": description, "schema": {"type": "string", **limits}}


_KEY = _text(
    "Idempotency-Key", "header", "Of several requests with one key, the first takes effect.", pattern="^[!-~]{1,255}$"
)
_MATCH = _text("If-Match", "header", "The ETag that was seen: of a session that is another by now nothing is changed.")
_PROBLEMS = {
    "400": "The request is wrong; nothing was changed.",
    "401": "There is no such token.",
    "403": "The host or the origin is not one that is served.",
    "404": "There is no such session, entry or budget.",
    "409": "Something else was written meanwhile; the answer says what is there now.",
    "412": "The session is not as If-Match says.",
    "413": "The body is too long.",
    "415": "The body is not JSON.",
    "503": "The database is busy, or the time is up; try again with the same key.",
}


def _fields(schema: object) -> tuple[JsonObject, list[str]]:
    document = cast("JsonObject", schema)
    return cast("JsonObject", document["properties"]), cast("list[str]", document.get("required", []))


def _in_path(path: str) -> list[JsonObject]:
    return [{**_text(name, "path", _ID, minLength=1), "required": True} for name in re.findall(r"\{(\w+)\}", path)]


def _parameters(route: Route, query: object) -> list[JsonObject]:
    rows = _in_path(route.path)
    fields, required = _fields(query)
    rows += [
        {"name": name, "in": "query", "required": name in required, "schema": schema} for name, schema in fields.items()
    ]
    if route.method != "GET" and "{session}" in route.path:
        rows.append(_MATCH)
    return [*rows, _KEY] if route.method == "POST" else rows


def _problems(path: str) -> JsonObject:
    kind, name = ("json", "ConversationError") if path.startswith(CONVERSATIONS) else ("problem+json", "Problem")
    problem: JsonObject = {f"application/{kind}": {"schema": {"$ref": _REFERENCE.format(name=name)}}}
    return {code: {"description": text, "content": problem} for code, text in _PROBLEMS.items()}


def _operation(route: Route, query: object) -> JsonObject:
    answer: JsonObject = {"schema": {"$ref": _REFERENCE.format(name=route.answer.__name__)}}
    responses = _problems(route.path)
    responses[str(route.status)] = {"description": "Done.", "content": {"application/json": answer}}
    if route.has_etag:
        responses["304"] = {"description": "The session is as If-None-Match says."}
    operation: JsonObject = {
        "operationId": route.work.__name__,
        "summary": route.summary,
        "parameters": [*_parameters(route, query)],
        "responses": responses,
    }
    if route.body is not None:
        body: JsonObject = {"schema": {"$ref": _REFERENCE.format(name=route.body.__name__)}}
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
    return operation


def _events() -> JsonObject:
    responses = _problems(EVENTS)
    responses["200"] = {"description": "Events, as they come.", "content": {"text/event-stream": {}}}
    last = _text("Last-Event-ID", "header", "The id of the last event that was read: those behind it follow.")
    after = _text("after", "query", "The same, for the first request of a reader that sends no headers.")
    summary = "Follow the events of a session (server-sent events)."
    parameters: list[JsonValue] = [*_in_path(EVENTS), last, after]
    return {"operationId": "events", "summary": summary, "parameters": parameters, "responses": responses}


def openapi_document(routes: Sequence[Route], version: str) -> JsonObject:
    """Return the document (OpenAPI 3.1) of these routes. O(routes)."""
    types = [route.answer for route in routes] + [route.body for route in routes if route.body]
    _, components = schema_components([*types, Problem, ConversationError], ref_template=_REFERENCE)
    paths: dict[str, JsonObject] = {}
    for route in routes:
        _, queries = schema_components([route.query], ref_template=_REFERENCE)
        operation = _operation(route, queries[route.query.__name__])
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    paths[EVENTS] = {"get": _events()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "flue_py", "version": version},
        "security": [{}, {"token": []}],
        "paths": cast("JsonObject", paths),
        "components": {
            "schemas": cast("JsonObject", components),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
