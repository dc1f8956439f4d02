"""The CPU that the HTTP API takes, without the parser of the server: an append beside the library's, and a poll."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from time import process_time
from typing import Any

import flue_py
from benchmarks.measuring import Goal, Line, Options, Samples, body, in_rounds, main, make_messages
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
    ]


async def _cpu_time(work: Callable[[], Awaitable[object]]) -> float:
    start = process_time()
    await work()
    return process_time() - start


if __name__ == "__main__":
    main(measure)
