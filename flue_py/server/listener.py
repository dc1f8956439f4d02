"""Where a server answers: the address, the length of tokens, and the socket that uvicorn gets."""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING

from flue_py.errors import InvalidArgument
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp
else:
    uvicorn = lazy_module("uvicorn")  # of the extras

SHORTEST_TOKEN = 16
"""How many characters keep others out."""


async def answer_at(
    address: tuple[str, int], make_app: Callable[[str, int], ASGIApp], tell: Callable[[str], None]
) -> None:
    """Answer on HTTP until a signal ends it, by the app that is made for the host and the port that were taken.

    ``tell`` gets the URL, once they are. Raises `OSError` for an address that cannot be had.
    """
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.create_server(address, family=family) as listener:
        # asyncio leaves it out for a socket of its own maker: answers would wait 40 ms for an acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = listener.getsockname()[:2]
        config = uvicorn.Config(
            make_app(host, port), log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=2
        )
        tell(f"http://{f'[{host}]' if family == socket.AF_INET6 else host}:{port}")
        await uvicorn.Server(config).serve(sockets=[listener])


def checked_address(text: str, *, has_token: bool) -> tuple[str, int]:
    """Return the host and the port of ``[HOST:]PORT``: of this machine alone, unless there is a token.

    Raises `InvalidArgument`.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not (port.isascii() and port.isdigit() and int(port) < 2**16):
        raise InvalidArgument(f"address: {text!r} is no [HOST:]PORT; write 8765, or 127.0.0.1:8765")
    if not has_token and not _is_loopback(host):
        raise InvalidArgument(f"address: other machines reach {host}; give a token (--token-file), or use 127.0.0.1")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
