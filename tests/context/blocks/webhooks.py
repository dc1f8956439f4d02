"""A server on this machine that remembers, or does something else than it should."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Remembering:
    """What a server was asked, and what it answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.status = 200
        self.body = b"{}"
        self.headers: dict[str, str] = {}
        self.url = ""

    def answer(self, value: object) -> None:
        self.body = json.dumps(value).encode()


@contextmanager
def remembering() -> Iterator[Remembering]:
    """Run a server of HTTP on a free port."""
    told = Remembering()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = self.rfile.read(int(self.headers["Content-Length"]))
            told.asked.append((self.path, dict(self.headers), json.loads(said)))
            self.send_response(told.status)
            for name, value in {"Content-Length": str(len(told.body)), **told.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            # Who has read enough may have gone.
            with suppress(OSError):
                self.wfile.write(told.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield told
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def saying(*pieces: bytes, lets_wait: bool = False) -> Iterator[str]:
    """Accept one connection on a free port, say these bytes whatever it is asked, and hang up, or let it wait."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                connection = server.accept()[0]
                with connection:
                    asked = connection.recv(65_536)
                    # Who hangs up on a request that is under way resets the connection.
                    while asked.startswith(b"P") and not asked.endswith(b"}"):
                        more = connection.recv(65_536)
                        if not more:
                            break
                        asked += more
                    for piece in pieces:
                        connection.sendall(piece)
                    while lets_wait and connection.recv(1024):
                        pass

        thread = Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            # Where nobody came, it waits for somebody.
            with suppress(OSError):
                socket.create_connection(server.getsockname()[:2]).close()
            thread.join()


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
