"""Servers of a store: the HTTP API (``flue-py serve``, extra ``server``) and tools for agents (`mcp`, extra ``mcp``).

`routes` has the table of routes and their description, `answers` the types of answers; `app` puts them together.
`listener` takes the address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from pathlib import Path

from flue_py.context.settings import ContextSettings
from flue_py.errors import InvalidArgument, MissingExtra
from flue_py.server.listener import checked_address
from flue_py.sessions.store import Store
from flue_py.system import in_full


def serve(
    opening: AbstractAsyncContextManager[Store],
    address: str,
    *,
    token_file: str | None = None,
    hosts: Collection[str] = (),
    settings: ContextSettings | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Answer on HTTP at ``[HOST:]PORT`` until a signal ends it; ``tell`` gets the URL.

    ``opening`` is the store, to be opened. ``token_file`` has the tokens, one a line, each with a scope behind a space
    if it is for that alone; without it, the server is for this machine. ``hosts`` are further names by which it is
    called, ``settings`` those by which its pages show the requests of agents.

    Raises `MissingExtra` without the extra ``server``, `InvalidArgument`, `OSError` for a port that is taken, and what
    `flue_py.open` raises.
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise MissingExtra("server", "flue-py serve")
    from flue_py.server import app

    tokens = () if token_file is None else app.read_tokens(_text_of(token_file))
    access = app.Access(tokens, (*app.LOOPBACK, *hosts))
    at = checked_address(address, has_token=bool(tokens))

    async def run() -> None:
        async with opening as store:
            await app.serve(store, at, access, tell, settings=settings)

    asyncio.run(run())


def _text_of(file: str) -> str:
    try:
        return Path(in_full(file)).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"--token-file {file}: {getattr(error, 'strerror', None) or error}") from error
