"""The pages of a server: the list of sessions, and the report of each, which go on as the sessions do.

They are those of `flue_py.render.report`. Of a long session a page has the entries around one of them; figures that
are added up from all of them are asked for when the page is there.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast, get_args
from urllib.parse import parse_qs, quote
from zlib import crc32

from msgspec.structs import replace
from starlette.responses import RedirectResponse, Response

from flue_py.context.request import explained_row
from flue_py.core.context import entry_costs
from flue_py.core.entries import Entry
from flue_py.core.json import Frozen, JsonObject, JsonValue, to_json
from flue_py.core.ledger import Dimension, UsageRow
from flue_py.core.operations import EventType, SessionEvent
from flue_py.core.sessions import SessionInfo
from flue_py.errors import CorruptStore
from flue_py.providers.base import objects_in
from flue_py.render import report, views
from flue_py.server.routes import Call, etag_of, names_in, segment_of
from flue_py.sessions.request import reported_of
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from starlette.requests import Request

COOKIE = "flue_py_token"
AROUND = 500
"""How many entries before and behind one a page of a session has at most."""
FOLLOW = "/page/follow"
"""The path of the stream that the list follows."""
_MOST_LISTED = 200
_MOST_PAGES = 20
_NO_PAGE = "This page cannot be shown"
_NOT_THERE = "There is no such session or entry. It may have been deleted."
_MOST_OF_A_CONTEXT = 5_000
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


def is_page(path: str) -> bool:
    """Return whether this is the path of a page, which a person reads."""
    return path == "/" or path.startswith("/sessions/")


def _page(text: str, status: int = 200) -> Response:
    return Response(text.encode(errors="backslashreplace"), status, _HEADERS, "text/html; charset=utf-8")


def _data(value: JsonValue) -> Response:
    return Response(report.embedded_json(value), 200, _HEADERS, "application/json")


# ---------------------------------------------------------------------------------------------------------------------
# The token of a browser: in a cookie that no script reads and no other site sends.


def authorization_of(request: Request) -> str:
    """Return the ``Authorization`` of a request, which the cookie of a browser stands for.

    A request that changes something has to say that it comes from a page: `app` compares the origin with the host.
    """
    header = request.headers.get("authorization")
    cookie = request.cookies.get(COOKIE)
    is_ours = request.method in ("GET", "HEAD") or "origin" in request.headers
    if header is not None or cookie is None or not is_ours:
        return header or ""
    try:
        return f"Bearer {urlsafe_b64decode(cookie).decode()}"
    except ValueError:
        return ""


def login_page(*, is_wrong: bool = False) -> Response:
    """Return the form that asks for a token."""
    data: JsonObject = {"wrong": is_wrong}
    return _page(report.filled_page("login", ("page", "login"), data, title="Log in", served=True), 401)


def problem_page(status: int, detail: str, remedy: str) -> Response:
    """Return the page that says why there is no other."""
    why = _NOT_THERE if status == 404 else f"{detail} {remedy}"
    return _page(report.filled_page("problem", ("page", "problem"), {"why": why}, title=_NO_PAGE, served=True), status)


async def sent_token(request: Request) -> str:
    """Return the token that the form sends; "" if it sends none."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > 10_000:
            return ""
    return parse_qs(data.decode("latin-1")).get("token", [""])[0].strip()


def logged(request: Request, token: str) -> Response:
    """Return the way back to the list, with the cookie of a token, or with none for ""."""
    back = RedirectResponse("/", 303, {"Cache-Control": "no-store"})
    value = urlsafe_b64encode(token.encode()).decode()
    is_over = None if token else 0
    back.set_cookie(
        COOKIE, value, max_age=is_over, path="/", secure=request.url.scheme == "https", httponly=True, samesite="strict"
    )
    return back


# ---------------------------------------------------------------------------------------------------------------------
# The list of sessions.


def address_of(session_id: str) -> str:
    """Return the path of a session's page."""
    return f"/sessions/{segment_of(session_id)}"


class Listing(Frozen):
    """The newest sessions as the page takes them, and a digest by which they are known again."""

    data: bytes
    version: str


async def _listed(call: Call, cursor: str | None) -> JsonObject:
    """Return sessions that are no tasks, the newest first, and the cursor to go on at. O(sessions passed)."""
    infos: list[SessionInfo] = []
    damaged: list[str] = []
    for _ in range(_MOST_PAGES):
        page = await call.store.list_sessions(limit=_MOST_LISTED, cursor=cursor)
        infos += [info for info in page.sessions if not info.is_aside]
        damaged += page.damaged
        cursor = page.next_cursor
        if cursor is None or len(infos) >= _MOST_LISTED:
            break
    names = await names_in(call.store, infos)
    rows = {address_of(info.id): views.listed_session(info, names[info.id], "") for info in infos}
    return {**report.overview_data(rows, {}, None, damaged=damaged, unchecked=call.store.unchecked), "more": cursor}


def _listing(data: JsonObject) -> Listing:
    text = report.embedded_json(data).encode()
    return Listing(text, f"{crc32(text):08x}")


async def newest(call: Call) -> Listing:
    """Return the newest sessions."""
    return _listing(await _listed(call, None))


async def list_page(call: Call, request: Request) -> Response:
    """Return the list of sessions, the newest first."""
    data = await _listed(call, None)
    shown: JsonObject = {**data, "version": _listing(data).version, "hasLogin": COOKIE in request.cookies}
    return _page(report.overview_page(shown, served=True))


async def list_data(call: Call, request: Request) -> Response:
    """Return more of that list, from a cursor on."""
    return _data(await _listed(call, request.query_params.get("cursor")))


async def sums(call: Call, request: Request) -> Response:
    """Return the sums of all payments by a dimension, as the list of a report has them. O(ledger)."""
    name = cast("Dimension", request.query_params.get("by", report.SUMS[0]))
    usage = await call.store.usage(group_by=[name], tz="UTC")
    return _data({"sums": report.sums_json(name, usage.rows), "total": report.bill_json(usage.total)})


# ---------------------------------------------------------------------------------------------------------------------
# A session.


async def _page_of(session: Session, after: str | None, *, newest_first: bool = False) -> list[Entry]:
    """Return a page of entries, each damaged one as an entry that says so."""
    entries: list[Entry] = []
    count = AROUND
    while (wanted := min(count, AROUND - len(entries))) > 0:
        try:
            page = await session.entries(after=after, newest_first=newest_first, limit=wanted)
        except CorruptStore as error:
            if wanted > 1:
                count = wanted // 2
                continue
            page = [_damaged(error, entries[-1].created_us if entries else session.info.created_us)]
        entries += page
        if len(page) < wanted:
            break
        after, count = entries[-1].id, 2 * count
    return entries


def _damaged(error: CorruptStore, at: int) -> Entry:
    """Return an entry that stands for a damaged one, whose parent and time nobody knows."""
    if error.entry_id is None:
        raise error
    why = to_json({"damaged": "It is not as it was stored: flue-py verify names all that is."}).decode()
    return Entry(error.entry_id, None, None, report.DAMAGED, None, None, 0, 0, 0, at, why, None)


async def _entry_at(session: Session, entry_id: str) -> list[Entry]:
    try:
        entry = await session.get_entry(entry_id)
    except CorruptStore as error:
        return [_damaged(error, session.info.created_us)]
    return [] if entry is None else [entry]


async def _entries_around(session: Session, at: str | None) -> tuple[list[Entry], bool, bool]:
    """Return the entries before and behind one, with it, and whether there are more of both; the newest without one."""
    before = await _page_of(session, at, newest_first=True)
    behind = [] if at is None else await _page_of(session, at)
    here = [] if at is None else await _entry_at(session, at)
    return [*reversed(before), *here, *behind], len(before) == AROUND, len(behind) == AROUND


async def _links_of(call: Call, session: Session) -> list[JsonValue]:
    """Return the sessions that belong to this one, as far as the caller sees them: relation, address and name."""
    info = session.info
    related = [("started by", link.parent_id) for link in await session.tasks.parents()]
    related += [("forked from", info.forked_from_session)] if info.forked_from_session else []
    related += [(f"task {link.task_id}", link.child_id) for link in await session.tasks.links()]
    found = [(what, await call.store.get_session(session_id)) for what, session_id in related[:100]]
    there = [(what, other.info) for what, other in found if other is not None]
    names = await names_in(call.store, [other for _, other in there])
    return [[what, address_of(other.id), names[other.id]] for what, other in there]


async def _session_data(call: Call, at: str | None) -> JsonObject:
    session = await call.session()
    # The row first: entries that are appended meanwhile are on the page, and the leaf is one that the page has.
    info, store = session.info, call.store
    entries, has_earlier, has_later = await _entries_around(session, at or info.leaf_id)
    damaged: list[JsonValue] = [entry.id for entry in entries if entry.kind == report.DAMAGED]
    is_part = has_earlier or has_later or bool(damaged)
    reported = await reported_of(store.backend, info, entries, sizes=False, lost=not is_part, is_part=is_part)
    source = await store.get_session(info.forked_from_session) if reported.source and info.forked_from_session else None
    reported = replace(reported, source=None if source is None else source.info)
    bill = () if is_part else (await _bill_of(call, session))
    make = partial(report.report_data, [reported], report.Thresholds(), bill=bill, unchecked=store.unchecked)
    data = await store.backend.waiting.call(make)
    return {
        **data,
        "models": None if is_part else data["models"],
        "etag": await etag_of(store, info),
        # As the stream writes it.
        "after": quote(SessionEvent("entry_added", info.id, info.created_us, info.revision).id),
        "events": [*get_args(EventType)],
        "earlier": entries[0].id if has_earlier else None,
        "later": entries[-1].id if has_later else None,
        "links": await _links_of(call, session),
        "damaged": damaged,
        "agents": [] if call.settings is None else [*call.settings.agents],
    }


async def _bill_of(call: Call, session: Session) -> Sequence[UsageRow]:
    usage = await call.store.usage(session, tasks=True, group_by=("provider", "model", "purpose"))
    return usage.rows


async def session_page(call: Call, request: Request) -> Response:
    """Return the page of a session, around its leaf or the entry that ``at`` names."""
    return _page(report.session_page(await _session_data(call, request.query_params.get("at")), served=True))


async def session_data(call: Call, request: Request) -> Response:
    """Return the data of that page."""
    return _data(await _session_data(call, request.query_params.get("at")))


async def figures(call: Call, request: Request) -> Response:
    """Return the costs of the entries of a page, and of all of the session by model. O(calls of the tree)."""
    session = await call.session()
    entries, *_ = await _entries_around(session, request.query_params.get("at") or session.leaf_id)
    costs = entry_costs(entries, await call.store.backend.read_entry_costs(session.info.ref))
    paid: JsonObject = {entry_id: report.paid_json(cost) for entry_id, cost in costs.items()}
    return _data({"paid": paid, "models": report.models_json(await _bill_of(call, session))})


async def context(call: Call, request: Request) -> Response:
    """Return which entries the context at one has, the last of them, and how many there are. O(context).

    With a damaged entry nobody knows: it is named then.
    """
    session = await call.session()
    try:
        items = await session.build_context_entries(leaf=request.query_params.get("leaf", session.leaf_id))
    except CorruptStore as error:
        return _data({"count": None, "damaged": error.entry_id})
    return _data({"count": len(items), "entryIds": [item.entry_id for item in items[-_MOST_OF_A_CONTEXT:]]})


async def sent(call: Call, request: Request) -> Response:
    """Return the request of a target at an entry: the changes to the context, by their entries. O(context)."""
    session, query = await call.session(), request.query_params
    agent = query.get("agent") or None
    leaf = query.get("leaf", session.leaf_id)
    made = await session.request(query.get("target"), leaf=leaf, settings=call.settings, agent=agent)

    def explain() -> Response:
        explained = explained_row(None, made)
        ids = [str(entry["entryId"]) for _, entry in objects_in(explained["entries"])]
        return _data(report.sent_json(explained, dict(zip(ids, ids, strict=True))))

    return await call.store.backend.waiting.call(explain)


PAGES = {"/": list_page, "/sessions/{session}": session_page}
DATA = {
    "/page/sessions": list_data,
    "/page/sums": sums,
    "/page/sessions/{session}": session_data,
    "/page/sessions/{session}/figures": figures,
    "/page/sessions/{session}/context": context,
    "/page/sessions/{session}/sent": sent,
}
