"""What the HTTP API takes: CPU without the parser of the server (an append beside the library's, and a poll); over a
socket of `flue-py serve` the time of an append beside the library's, and of an event with 1,000 streams."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from urllib.parse import urlsplit

import flue_py
from benchmarks.measuring import (
    Goal,
    Line,
    Message,
    Options,
    Samples,
    body,
    in_rounds,
    main,
    make_messages,
    timed_async,
)
from flue_py.lazy import lazy_module

served = lazy_module("flue_py.server.app")  # of the extra server


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        return [Line.skipped("HTTP API", "install the extra server")]
    messages = make_messages(options.count(500, 5))
    async with flue_py.open(options.directory / "server.db", durability="normal") as store:
        session, polled = await store.create_session(), await store.create_session()
        app = served.make_app(store)
        path = f"/v1/sessions/{(await store.create_session()).id}"

        async def send(method: str, path: str, data: bytes, status: int, *headers: tuple[bytes, bytes]) -> None:
            sent: list[dict[str, Any]] = []

            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": data}

            async def take(message: dict[str, Any]) -> None:
                sent.append(message)

            scope = {"type": "http", "method": method, "path": path, "query_string": b""}
            await app(scope | {"headers": [(b"host", b"localhost"), *headers]}, receive, take)
            assert sent[0]["status"] == status

        async def by_library() -> Samples:
            return [await _cpu_time(lambda message=message: session.append_message(message)) for message in messages]

        async def by_http() -> Samples:
            kind = (b"content-type", b"application/json")
            bodies = [f'{{"messages":[{body(message)}]}}'.encode() for message in messages]
            return [
                await _cpu_time(lambda data=data: send("POST", f"{path}/messages", data, 201, kind)) for data in bodies
            ]

        async def by_poll() -> Samples:
            known = (b"if-none-match", served.etag_of(polled.info).encode())
            same = f"/v1/sessions/{polled.id}/context"
            return [await _cpu_time(lambda: send("GET", same, b"", 304, known)) for _ in messages]

        library, http, polls = await in_rounds(options.rounds, by_library, by_http, by_poll)
    return [
        Line.of_latencies("append over HTTP, to the library's, CPU", "ms", http, library, Goal(3, to="the library's")),
        Line.of_latencies("GET that is unchanged, CPU", "ms", polls, None, Goal(1, of="value")),
        *await _over_sockets(options, messages),
    ]


async def _over_sockets(options: Options, messages: list[Message]) -> list[Line]:
    files = options.directory / "socket.db", options.directory / "beside.db"
    async with flue_py.open(files[0]) as store:
        session = await store.create_session()
        others = [(await store.create_session()).id for _ in range(options.count(1_000, 3))]
    posts = [f'{{"messages":[{message}]}}' for message in map(body, messages)]
    async with flue_py.open(files[1]) as store, _served(files[0]) as server:
        own = await store.create_session()

        async def by_library() -> Samples:
            return [await timed_async(lambda message=message: own.append_message(message)) for message in messages]

        async def by_http() -> Samples:
            await server.connect()
            return [await timed_async(lambda post=post: server.append(session.id, post)) for post in posts]

        library, http = await in_rounds(options.rounds, by_library, by_http)
        streams = [await server.stream(session_id) for session_id in others]
        start = server.cpu_seconds()
        events = [
            await _event(server, session_id, posts[0], stream)
            for session_id, (stream, _) in [*zip(others, streams, strict=True)][:: max(1, len(others) // 20)]
        ]
        spent = (server.cpu_seconds() - start) / len(events)
        for _, writer in streams:
            writer.close()
    goal = Goal(3, to="the library's")
    return [
        Line.of_latencies("append over HTTP on a socket, to the library's", "ms", http, library, goal),
        Line.of_latencies(f"an event over HTTP to one of {len(others):,} streams", "ms", [events]),
        Line.of_figures("the same, CPU of the server", "ms", [spent * 1_000]),
    ]


async def _event(server: _Server, session_id: str, post: str, stream: StreamReader) -> float:
    await server.connect()
    start = perf_counter()
    await server.append(session_id, post)
    await stream.readuntil(b"data: ")
    return perf_counter() - start


class _Server:
    """A process of `flue-py serve`, and a connection to it, which it ends after 5 seconds without a request."""

    def __init__(self, pid: int, address: tuple[str, int]) -> None:
        self._pid, self._address = pid, address

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    async def append(self, session_id: str, post: str) -> None:
        data = post.encode()
        head = f"POST /v1/sessions/{session_id}/messages HTTP/1.1\r\nHost: localhost\r\n"
        self._writer.write(
            f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
        )
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert answer.startswith("http/1.1 201"), answer
        await self._reader.readexactly(int(answer.partition("content-length: ")[2].partition("\r")[0]))

    async def stream(self, session_id: str) -> tuple[StreamReader, StreamWriter]:
        """Open a stream of events, and read until its first one has come."""
        reader, writer = await asyncio.open_connection(*self._address)
        writer.write(f"GET /v1/sessions/{session_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await reader.readuntil(b"data: ")
        return reader, writer

    def cpu_seconds(self) -> float:
        """Return the CPU that the process has taken; 0 where the system does not say."""
        file = Path(f"/proc/{self._pid}/stat")
        fields = file.read_text().rpartition(")")[2].split() if file.exists() else ["0"] * 13
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def _served(file: Path) -> AsyncIterator[_Server]:
    # A thousand streams are a thousand files.
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, limits[1]), limits[1]))
    command = [str(Path(sys.executable).with_name("flue-py")), "--db", str(file), "serve", "--http", "0"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        url = urlsplit((await process.stderr.readline()).decode().strip())
        address = (str(url.hostname), url.port or 0)
        yield _Server(process.pid, address)
    finally:
        process.kill()
        await process.wait()


async def _cpu_time(work: Callable[[], Awaitable[object]]) -> float:
    start = process_time()
    await work()
    return process_time() - start


if __name__ == "__main__":
    main(measure)
