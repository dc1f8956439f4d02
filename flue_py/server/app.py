"""The HTTP API: who may ask, what a request may bring, and how errors are answered."""

from __future__ import annotations

import hmac
import logging
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeAlias, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as Served

from flue_py import errors
from flue_py.context.settings import ContextSettings
from flue_py.core.json import Frozen
from flue_py.core.operations import SessionEvent, seen_by
from flue_py.db.backend import Backend
from flue_py.errors import FlueError, InvalidArgument
from flue_py.render import views
from flue_py.server import conversations, page
from flue_py.server.listener import SHORTEST_TOKEN, answer_at
from flue_py.server.routes import CONVERSATIONS, EVENTS, ROUTES, Call, Route, etag_of, id_in, openapi_document
from flue_py.sessions.store import Looking, Store

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_log = logging.getLogger(__name__)

_ROUTES = (*ROUTES, *conversations.ROUTES)

LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Access(Frozen):
    """Who may ask: tokens by their digests, with the scope that each sees (None: all); without any, this machine alone.

    ``hosts`` are the names by which requests may call the server.
    """

    tokens: tuple[tuple[bytes, str | None], ...] = ()
    hosts: tuple[str, ...] = LOOPBACK

    def store_of(self, store: Store, header: str) -> Store | None:
        """Return the store as the token of an ``Authorization`` header sees it; None if there is no such token.

        Each token is compared, in the same time for each that is wrong.
        """
        if not self.tokens:
            return store
        sent = sha256(header.removeprefix("Bearer ").encode()).digest()
        scopes = [scope for digest, scope in self.tokens if hmac.compare_digest(digest, sent)]
        if not scopes or not header.startswith("Bearer "):
            return None
        return store if scopes[0] is None else store.in_scope(scopes[0])


class ServerLimits(Frozen):
    """The most that a request may bring, in bytes, and may take, in seconds; and the streams that are open at once.

    After ``keep_alive_seconds`` without an event, a stream says that it is there.
    """

    body_bytes: int = 64 * 2**20
    seconds: float = 60.0
    streams: int = 1_000
    keep_alive_seconds: float = 15.0


def read_tokens(text: str) -> tuple[tuple[bytes, str | None], ...]:
    """Return the tokens of a file: one a line, and behind a space the scope that it is for, if not for all of them.

    Raises `InvalidArgument`, which shows no token.
    """
    tokens: list[tuple[bytes, str | None]] = []
    for number, line in enumerate(text.splitlines(), 1):
        token, has_scope, scope = line.partition(" ")
        if not token or token.startswith("#"):
            continue
        if len(token) < SHORTEST_TOKEN or not token.isascii():
            raise InvalidArgument(f"line {number} of the tokens: a token has {SHORTEST_TOKEN} ASCII characters or more")
        tokens.append((sha256(token.encode()).digest(), scope.strip() if has_scope else None))
    if not tokens:
        raise InvalidArgument("the file of tokens has none: write one a line, TOKEN or TOKEN SCOPE")
    if len({digest for digest, _ in tokens}) < len(tokens):
        raise InvalidArgument("the file of tokens has one token twice; a token has one scope")
    return tuple(tokens)


# ---------------------------------------------------------------------------------------------------------------------
# Errors as problems (RFC 9457).

_STATUS: Sequence[tuple[tuple[type[FlueError], ...], int, str]] = (
    ((errors.SessionNotFound, errors.EntryNotFound, errors.BudgetNotFound), 404, "Look at GET /v1/sessions."),
    ((errors.RevisionConflict,), 412, "Read the session again, and repeat the request with its ETag."),
    ((errors.LeafConflict,), 409, "Read what is there now, and repeat the request with expectedLeaf as leafId says."),
    ((errors.IdempotencyConflict,), 409, "Use a new Idempotency-Key for a new operation."),
    ((errors.SessionExists,), 409, "Choose another key, or use the session that is there."),
    ((errors.AmbiguousId, errors.CallConflict, errors.OnHold), 409, "Nothing was changed; the detail says why."),
    ((errors.FixTheCall,), 400, "Change the request; nothing was changed."),
    ((errors.RetryOrRebase, errors.StoreUnavailable), 503, "Try again, with the same Idempotency-Key."),
    ((FlueError,), 500, "Who runs the server has to look at the database: flue-py verify."),
)


_PARAMETER = re.compile(r"`\$\.([^`]+)`$|^([a-z][\w.\[\]]*): ")


def problem(path: str, status: int, code: str, detail: str, remedy: str, **more: object) -> Response:
    """Return an error as a problem: its status, the name of the error, a text and a remedy.

    Below the path of conversations it is of the form that OpenAI's clients read, and where there are pages a page.
    """
    if page.is_page(path):
        return page.login_page() if status == 401 else page.problem_page(status, detail, remedy)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {"Retry-After": "1"} if status == 503 else {}
    if path.startswith(CONVERSATIONS):
        named = _PARAMETER.search(detail) if status == 400 else None
        kind = "server_error" if status >= 500 else "invalid_request_error"
        param = named and (named[1] or named[2]).removesuffix("[...]")
        fields = {"message": f"{detail.removesuffix('.')}. {remedy}", "type": kind, "param": param}
        return Response(msgspec.json.encode({"error": {**fields, "code": code}}), status, headers, "application/json")
    names = {"type": "about:blank", "title": code, "code": code, "remedy": remedy}
    document: dict[str, object] = {**names, "status": status, "detail": detail, **more}
    return Response(msgspec.json.encode(document), status, headers, "application/problem+json")


async def _problem_of(error: FlueError, call: Call, path: str) -> Response:
    status, remedy = next((status, remedy) for kinds, status, remedy in _STATUS if isinstance(error, kinds))
    more: dict[str, object] = {}
    if isinstance(error, (errors.LeafConflict, errors.RevisionConflict)):
        session = await call.store.get_session(call.session_id)
        if session is not None:
            more = {
                "leafId": session.leaf_id,
                "revision": session.revision,
                "etag": await etag_of(call.store, session.info),
            }
    detail = str(error)
    if status >= 500 and call.store.scope is not None:
        # It may name files of the server, which are no business of a tenant.
        _log.warning("a request failed: %s", error)
        detail = "The database could not do this now; the log of the server says why."
    return problem(path, status, type(error).__name__, detail, remedy, **more)


def _refused(code: str, status: int, detail: str, remedy: str) -> HTTPException:
    return HTTPException(status, {"code": code, "detail": detail, "remedy": remedy})  # type: ignore[arg-type]


async def _refusal(request: Request, error: Exception) -> Response:
    """Answer what is refused here, or by starlette: a path that is not there, a method."""
    refusal = cast("HTTPException", error)
    refused: dict[str, str] = refusal.detail if isinstance(refusal.detail, dict) else {}
    code = refused.get("code", "NoSuchRoute" if refusal.status_code in (404, 405) else "BadRequest")
    detail, remedy = refused.get("detail", str(refusal.detail)), refused.get("remedy", "Look at GET /openapi.json.")
    response = problem(request.url.path, refusal.status_code, code, detail, remedy)
    response.headers.update(refusal.headers or {})
    return response


async def _failed(request: Request, error: Exception) -> Response:
    _log.error("a request failed", exc_info=error)
    text = "The server failed; what was acknowledged stays."
    return problem(request.url.path, 500, "InternalError", text, "Look at the server's log.")


# ---------------------------------------------------------------------------------------------------------------------
# A request: its parameters, its body, its revision.


async def _expected_revision(call: Call, header: str | None) -> int | None:
    """Return the revision of an ETag, of several that which is stored if it is among them.

    Raises `RevisionConflict` where all are of an earlier session of this id.
    """
    if header is None or header.strip() == "*":
        return None
    tags = [tag.strip().strip('"').split("-") for tag in header.split(",")]
    is_none = any(len(tag) != 3 or not tag[1].isascii() or not tag[1].isdigit() or len(tag[1]) > 18 for tag in tags)
    if is_none or not call.session_id:
        raise InvalidArgument("If-Match: this is no ETag of a session; send the one that GET returned")
    info = (await call.session()).info
    seen = [int(revision) for key, revision, _ in tags if key == str(info.session_key)]
    if not seen:
        raise errors.RevisionConflict(info.id, int(tags[0][1]), info.revision)
    return info.revision if info.revision in seen else seen[-1]


@cache
def _lists_in(query: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(query) if "tuple" in str(field.type))


def _query_of(request: Request, route: Route) -> object:
    lists, params = _lists_in(route.query), request.query_params
    values: dict[str, object] = {}
    for name in params:
        sent = params.getlist(name)
        if len(sent) > 1 and name not in lists:
            raise InvalidArgument(f"{name}: it is there {len(sent)} times")
        values[name] = sent if name in lists else sent[0]
    return msgspec.convert(values, route.query, strict=False)


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


async def _body_of(request: Request, body: type[msgspec.Struct], most: int) -> object:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise _refused("NotJson", 415, "The body is not application/json.", "Send Content-Type: application/json.")
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > most:
            raise _refused("BodyTooLong", 413, f"The body has more than {most:,} bytes.", "Append in several requests.")
    try:
        return msgspec.json.decode(bytes(data), type=body)
    except RecursionError:
        raise InvalidArgument("body: it is nested too deeply") from None
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        has_half = _SURROGATE.search(data) is not None
        why = "half of a surrogate pair (\\ud800 to \\udfff) is no text; send whole characters" if has_half else error
        raise InvalidArgument(f"body: it is no JSON: {why}") from None


Work: TypeAlias = Callable[[Call, Request], Awaitable[Response]]


async def _answer(
    work: Work, store: Store, access: Access, seconds: float, settings: ContextSettings | None, request: Request
) -> Response:
    narrowed = access.store_of(store, page.authorization_of(request))
    path, names = request.url.path, request.path_params
    if narrowed is None:
        return problem(path, 401, "NoToken", "The token is missing or wrong.", "Send Authorization: Bearer TOKEN.")
    call = Call(narrowed, "", request.headers.get("idempotency-key"), settings=settings)
    try:
        session_id, item_id = (id_in(names.get(name, "")) for name in ("session", "item"))
        call = msgspec.structs.replace(call, session_id=session_id, item_id=item_id)
        with anyio.fail_after(seconds):
            return await work(call, request)
    except FlueError as error:
        return await _problem_of(error, call, path)
    except msgspec.MsgspecError as error:
        return problem(path, 400, "InvalidArgument", str(error), "Change the request; nothing was changed.")
    except TimeoutError:
        text = f"This took longer than {seconds:g} seconds, and may have happened."
        return problem(path, 503, "TimedOut", text, "Look, or try again with the same Idempotency-Key.")


async def _work(route: Route, limits: ServerLimits, call: Call, request: Request) -> Response:
    etag = None
    if route.method == "GET":
        if route.has_etag:
            etag = await etag_of(call.store, (await call.session()).info)
            # A proxy that compresses makes it a weak one.
            known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
            if known & {etag, "*"}:
                return Response(status_code=304, headers={"ETag": etag})
    else:
        revision = await _expected_revision(call, request.headers.get("if-match"))
        call = msgspec.structs.replace(call, expected_revision=revision)
    if call.key == "":
        raise InvalidArgument("Idempotency-Key: it is empty; send a text of your own, or leave it out")
    query = _query_of(request, route)
    body = None if route.body is None else await _body_of(request, route.body, limits.body_bytes)
    answer = await route.work(call, query, body)
    headers = {} if etag is None else {"ETag": etag}
    return Response(msgspec.json.encode(answer), route.status, headers, "application/json")


# ---------------------------------------------------------------------------------------------------------------------
# The events of a session, as they come (server-sent events).


class Streams:
    """The streams that are open. One of them watches for commits, and wakes all of them to look at their sessions."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self.open = 0
        self.woken = anyio.Event()
        self._lists: dict[str | None, page.Listing] = {}
        self._followed: Counter[str] = Counter()
        self._states: dict[str, object] = {}
        self._reading = anyio.Lock()
        # So that requests do not wait behind the looks of all streams.
        self.looks = anyio.Semaphore(_LOOKS_AT_ONCE)
        self._watch = anyio.Lock()

    async def watch(self, backend: Backend) -> None:
        """Wake the streams after commits, as soon as nobody else does."""
        async with self._watch, aclosing(backend.commits()) as commits:
            try:
                async for _ in commits:
                    self._wake()
                    await anyio.sleep(max(_REST_SECONDS, self.open / _LOOKS_A_SECOND))
            finally:
                # What is committed before somebody watches again is not missed.
                self._wake()

    def _wake(self) -> None:
        self.woken.set()
        self.woken = anyio.Event()
        self._lists.clear()
        self._states = {}

    @contextmanager
    def following(self, session_id: str) -> Iterator[None]:
        """Count a stream of this session, while it is open."""
        self._followed[session_id] += 1
        try:
            yield
        finally:
            self._followed[session_id] -= 1
            self._followed += Counter()

    async def state_of(self, backend: Backend, session_id: str) -> object:
        """Return what the events of a session come from, which is read once after a commit for all streams.

        If it is as it was, nothing has happened to the session.
        """
        async with self._reading:
            states, woken = self._states, self.woken
            if not states:
                ids = [*self._followed]
                rows = await backend.get_sessions(ids)
                budgets = await backend.list_budgets(scope=None, after=None, limit=_MOST_BUDGETS)
                states = {row.id: (row, [each for each in budgets if each.session_id == row.id]) for row in rows if row}
                if len(budgets) == _MOST_BUDGETS:
                    # There are others, which are read by each stream.
                    states = {}
                if woken is self.woken:
                    self._states = states
            return states.get(session_id, object())

    async def list_of(self, call: Call) -> page.Listing:
        """Return the list of sessions, made once after a commit for all pages of a tenant."""
        woken, scope = self.woken, call.store.scope
        async with self.looks:
            if scope not in self._lists or woken is not self.woken:
                listing = await page.newest(call)
                if woken is not self.woken:
                    return listing
                self._lists[scope] = listing
            return self._lists[scope]

    async def wait(self, woken: anyio.Event) -> bool:
        """Wait for a commit after ``woken`` was there; return whether there was one before the reader has to be told
        that the stream is there."""
        with anyio.move_on_after(self.limits.keep_alive_seconds):
            await woken.wait()
        return woken.is_set()


_LOOKS_AT_ONCE = 4
_LOOKS_A_SECOND = 2_000
_MOST_BUDGETS = 1_000
_REST_SECONDS = 0.02
"""How long the watcher rests after a commit, and longer if so many streams cannot look within that time."""


class EventStream(StreamingResponse):
    """Lines that come as things happen, until they end or nobody reads."""

    def __init__(self, streams: Streams, store: Store, lines: AsyncGenerator[bytes, None]) -> None:
        super().__init__(lines, headers={"Cache-Control": "no-store"}, media_type="text/event-stream")
        self._streams = streams
        self._backend = store.backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams.open += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._streams.watch, self._backend)
                await super().__call__(scope, receive, send)
                tasks.cancel_scope.cancel()
        except* FlueError as failed:
            # Whoever reads comes again, and is told.
            _log.warning("a stream ended: %s", failed.exceptions[0])
        finally:
            self._streams.open -= 1


async def _news(call: Call, streams: Streams, looking: Looking) -> AsyncGenerator[SessionEvent | None, None]:
    """Yield the events as they come, and None whenever none has come for a while."""
    woken = streams.woken
    # The first look may bring a long history, and is as slow as its reader.
    async with aclosing(looking.look()) as events:
        async for event in events:
            yield event
    state: object = None
    while True:
        if not await streams.wait(woken):
            yield None
            continue
        woken = streams.woken
        if (now := await streams.state_of(call.store.backend, call.session_id)) == state:
            continue
        state = now
        async with streams.looks:
            news = [event async for event in looking.look()]
        for event in news:
            yield event


# Something is sent at once, so that the reader knows that it is connected; and proxies end a stream on which nothing
# comes.
_CONNECTED, _NOTHING_NEW = b": connected\n\n", b": nothing new\n\n"


async def _event_lines(call: Call, streams: Streams, looking: Looking) -> AsyncGenerator[bytes, None]:
    """Yield the events of a session behind the one that the reader saw last, until it is deleted."""
    yield _CONNECTED
    news = _news(call, streams, looking)
    with streams.following(call.session_id):
        async with aclosing(news):
            async for event in news:
                if event is None:
                    yield _NOTHING_NEW
                    continue
                data = msgspec.json.encode(views.event_row(event))
                yield b"id: %b\nevent: %b\ndata: %b\n\n" % (quote(event.id).encode(), event.type.encode(), data)
                if event.type == "session_deleted":
                    return


async def _stream(call: Call, streams: Streams, request: Request) -> Response:
    session = await call.session()
    last = unquote(request.headers.get("last-event-id", request.query_params.get("after", "")))
    after = [last] if last else []
    if after and not seen_by(after).sessions.knows(session.id):
        raise InvalidArgument("Last-Event-ID: this is no event of this session; leave it out to begin at the first")
    looking = Looking(call.store.backend, [session.id], call.store.scope, seen_by(after))
    return _opened(streams, call, _event_lines(call, streams, looking), request)


async def _list_lines(call: Call, streams: Streams, seen: str) -> AsyncGenerator[bytes, None]:
    """Yield the list of sessions, if it is another than the reader has seen, and whenever it is another."""
    yield _CONNECTED
    while True:
        woken = streams.woken
        listing = await streams.list_of(call)
        if listing.version != seen:
            yield b"id: %b\ndata: %b\n\n" % (listing.version.encode(), listing.data)
            seen = listing.version
        await anyio.sleep(_LIST_SECONDS)
        while not await streams.wait(woken):
            yield _NOTHING_NEW


_LIST_SECONDS = 1.0
"""How long a list stays as it is while sessions go on."""


async def _list_stream(call: Call, streams: Streams, request: Request) -> Response:
    seen = request.headers.get("last-event-id", request.query_params.get("after", ""))
    return _opened(streams, call, _list_lines(call, streams, seen), request)


def _opened(streams: Streams, call: Call, lines: AsyncGenerator[bytes, None], request: Request) -> Response:
    if streams.open >= streams.limits.streams:
        text = f"{streams.open:,} streams are open."
        return problem(request.url.path, 503, "TooManyStreams", text, "Try again when one has ended.")
    return EventStream(streams, call.store, lines)


# ---------------------------------------------------------------------------------------------------------------------
# The app and its server.


class _Guard:
    """Refuses requests that name another host, and those that pages of other origins send."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._hosts = {host.lower() for host in access.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Request(scope).headers
        host = headers.get("host", "")
        origin = headers.get("origin")
        is_ours = (_parts_of(f"//{host}").hostname or "").lower() in self._hosts
        if is_ours and (origin is None or _parts_of(origin).netloc == host):
            await self._app(scope, receive, send)
            return
        text, remedy = "This host or origin is not served.", "Call the server by its name (--allow-host)."
        refusal = problem(scope["path"], 403, "OtherHost", text, remedy)
        await refusal(scope, receive, send)


def _parts_of(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def make_app(
    store: Store,
    access: Access = Access(),  # noqa: B008 - a value
    limits: ServerLimits = ServerLimits(),  # noqa: B008 - a value
    *,
    settings: ContextSettings | None = None,
) -> ASGIApp:
    """Return the app of a store, which stays the caller's to close; pages show what agents get by ``settings``."""
    document = msgspec.json.encode(openapi_document(_ROUTES, version("flue-py")))

    async def described(_: Request) -> Response:
        return Response(document, media_type="application/json")

    served = [Served("/openapi.json", described, methods=["GET"])]
    streams = Streams(limits)

    def serve_at(path: str, method: str, work: Work) -> None:
        answer = partial(_answer, work, store, access, limits.seconds, settings)
        served.append(Served(path, answer, methods=[method]))

    for route in _ROUTES:
        serve_at(route.path, route.method, partial(_work, route, limits))
    serve_at(EVENTS, "GET", lambda call, request: _stream(call, streams, request))
    serve_at(page.FOLLOW, "GET", lambda call, request: _list_stream(call, streams, request))
    for path, work in {**page.PAGES, **page.DATA}.items():
        serve_at(path, "GET", work)

    async def log_in(request: Request) -> Response:
        token = await page.sent_token(request)
        if token and access.store_of(store, f"Bearer {token}") is None:
            return page.login_page(is_wrong=True)
        return page.logged(request, token)

    served.append(Served("/login", log_in, methods=["POST"]))
    handlers: Mapping[object, object] = {HTTPException: _refusal, Exception: _failed}
    return _Guard(Starlette(routes=served, exception_handlers=handlers), access)  # type: ignore[arg-type]


async def serve(
    store: Store,
    address: tuple[str, int],
    access: Access,
    tell: Callable[[str], None],
    *,
    settings: ContextSettings | None = None,
) -> None:
    """Answer on HTTP until a signal ends it. ``tell`` gets the URL, once the port is taken. Raises `OSError`."""

    def make(host: str, port: int) -> ASGIApp:
        return make_app(store, msgspec.structs.replace(access, hosts=(*access.hosts, address[0])), settings=settings)

    await answer_at(address, make, tell)
