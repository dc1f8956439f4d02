"""One HTTP exchange of JSON with a server that is not trusted: bounded in time and bytes, and never led elsewhere."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import NamedTuple
from urllib.parse import urlsplit

from flue_py.errors import InvalidArgument, MemoryUnavailable


class Address(NamedTuple):
    """An address that was checked. Its ``repr`` has no path, which may be a secret."""

    is_secure: bool
    host: str
    port: int
    path: str

    def __repr__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_secure else 'http'}://{host}:{self.port}"


def checked_address(url: str, what: str) -> Address:
    """Return the parts of a URL of HTTP(S). Raises `InvalidArgument`, which does not show it, for anything else."""
    if not isinstance(url, str):
        raise InvalidArgument(f"{what}: should be a URL, not a {type(url).__name__}")
    # Others would be quoted by somebody, or end up in the head of the request.
    if not url.isascii() or any(char <= " " or char == "\x7f" for char in url):
        raise InvalidArgument(f"{what}: the URL has characters that have to be encoded in it")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidArgument(f"{what}: is not a URL") from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidArgument(f"{what}: the URL should begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument(f"{what}: the URL has a user or a password in it; give token= instead")
    is_secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(is_secure, host, port if port is not None else 443 if is_secure else 80, path)


class Exchange:
    """A POST of JSON. `run` is for a thread of its own, and `end`, from any other, has it end soon."""

    def __init__(self, address: Address, body: bytes, token: str | None, timeout: float, most_bytes: int) -> None:
        self._address = address
        self._body = body
        self._token = token
        self._timeout = timeout
        self._most_bytes = most_bytes
        self._socket: socket.socket | None = None
        self._is_to_end = False

    def run(self) -> bytes:
        """Return the body of the answer. Raises `MemoryUnavailable`, in which nothing is said by the server."""
        connection = self._connection()
        try:
            return self._ask(connection)
        except MemoryUnavailable:
            raise
        except TimeoutError:
            raise MemoryUnavailable(f"{self._address} gave no answer within {self._timeout:g} seconds") from None
        except (OSError, HTTPException, ValueError) as error:
            # The text of such an error may have what the server answered, and that what it was sent.
            raise MemoryUnavailable(f"{self._address} cannot be asked: {_reason(error)}") from None
        finally:
            connection.close()
            self._close()

    def end(self) -> None:
        """Have whatever waits for the server end."""
        self._is_to_end = True
        self._close()

    def _connection(self) -> HTTPConnection:
        _, host, port, _ = self._address
        if self._address.is_secure:
            context = ssl.create_default_context()
            return HTTPSConnection(host, port, timeout=self._timeout, context=context)
        return HTTPConnection(host, port, timeout=self._timeout)

    def _ask(self, connection: HTTPConnection) -> bytes:
        connection.connect()
        self._socket = connection.sock
        if self._is_to_end:
            raise MemoryUnavailable(f"{self._address} took too long")
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection.request("POST", self._address.path, self._body, headers)
        with connection.getresponse() as response:
            return self._answer(response)

    def _answer(self, response: HTTPResponse) -> bytes:
        if 300 <= response.status < 400:
            raise MemoryUnavailable(f"{self._address} answered {response.status}; it is not followed elsewhere")
        if not 200 <= response.status < 300:
            raise MemoryUnavailable(f"{self._address} answered {response.status}")
        body = response.read(self._most_bytes + 1)
        if len(body) > self._most_bytes:
            raise MemoryUnavailable(f"{self._address} answered more than {self._most_bytes:,} bytes")
        if response.length:
            raise MemoryUnavailable(f"{self._address} broke off its answer")
        return body

    def _close(self) -> None:
        if self._socket is not None:
            with suppress(OSError, ValueError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not trusted"
    if isinstance(error, socket.gaierror):
        return "there is no host of that name"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else type(error).__name__
