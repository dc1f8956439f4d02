"""Spans of what sessions hold, as a collector on loopback receives them over OTLP."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.adapters.needed import needs
from tests.edges.cli_runs import COMMAND

needs("opentelemetry", "opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.schemas import Schemas

import flue_py
from flue_py.adapters import opentelemetry
from flue_py.adapters.opentelemetry import CONVENTIONS, SpansReport, export_spans, session_spans
from flue_py.transfer.imports import import_file

DATA = Path(__file__).parents[2] / "data"
CALL = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "secret.txt"}}
OUTPUT = "gen_ai.usage.output_tokens"
USAGE = {"input": 100, "output": 20, "cacheRead": 50, "reasoning": 5, "totalTokens": 170, "cost": {"total": 0.25}}


class Collector:
    """What a collector has: spans by trace and id, and how often each came."""

    def __init__(self) -> None:
        self.spans: dict[tuple[bytes, bytes], Any] = {}
        self.received = 0

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                assert scope.schema_url == CONVENTIONS
                for span in scope.spans:
                    key = span.trace_id, span.span_id
                    assert self.spans.setdefault(key, span) == span
                    self.received += 1

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans.values() if span.name == name]


@contextmanager
def collecting() -> Iterator[tuple[Collector, OTLPSpanExporter]]:
    """A collector on loopback, and the exporter that sends to it."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector, OTLPSpanExporter(f"http://127.0.0.1:{server.server_port}/v1/traces")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def values(span: Any) -> dict[str, Any]:
    """The attributes of a span."""

    def value(of: Any) -> Any:
        kind = of.WhichOneof("value")
        return [value(item) for item in of.array_value.values] if kind == "array_value" else getattr(of, kind)

    return {attribute.key: value(attribute.value) for attribute in span.attributes}


async def conversation(store: flue_py.Store) -> flue_py.Session:
    """A session with a call of a tool that failed, a branch, and a task."""
    session = await store.create_session(cwd="/work")
    answer = {"role": "assistant", "provider": "google", "model": "m1", "usage": USAGE, "stopReason": "toolUse"}
    result = {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": "no such file", "isError": True}
    added = await session.append_messages([{"role": "user", "content": "Look."}, {**answer, "content": [CALL]}, result])
    task = await session.tasks.create(task_id="t1")
    await task.append_messages([{"role": "user", "content": "Count."}, {"role": "assistant", "content": "2"}])
    await session.append_message({**answer, "content": "It is gone.", "stopReason": "stop"})
    await session.move_leaf(added.entry_ids[0])
    failed = {"role": "assistant", "content": [], "stopReason": "error", "errorMessage": "key sk-1 is wrong"}
    await session.append_message(failed)
    return session


def test_turns_calls_tools_and_tasks_are_spans_and_words_only_where_asked_for() -> None:
    async def check() -> None:
        with collecting() as (collector, exporter):
            async with flue_py.open(":memory:") as store:
                session = await conversation(store)
                assert await export_spans(store, session, exporter) == SpansReport(spans=7, sessions=2)
                names = sorted(span.name for span in collector.spans.values())
                assert names == [*["chat"] * 2, *["chat m1"] * 2, "execute_tool read", *["invoke_agent"] * 2]
                assert len({span.trace_id for span in collector.spans.values()}) == 1  # the task is in the turn's
                turn, of_task = sorted(collector.named("invoke_agent"), key=lambda span: span.parent_span_id)
                assert not turn.parent_span_id
                assert of_task.parent_span_id == turn.span_id
                called = collector.named("chat m1")[0]
                assert called.parent_span_id == turn.span_id
                assert {**values(called), "flue_py.entry.id": ""} == {
                    "gen_ai.conversation.id": session.id,
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "gcp.gemini",
                    "gen_ai.request.model": "m1",
                    "gen_ai.response.finish_reasons": ["toolUse"],
                    "gen_ai.usage.input_tokens": 150,
                    "gen_ai.usage.output_tokens": 20,
                    "gen_ai.usage.cache_read.input_tokens": 50,
                    "gen_ai.usage.reasoning.output_tokens": 5,
                    "flue_py.cost.usd": 0.25,
                    "flue_py.entry.id": "",
                    "flue_py.session.cwd": "/work",
                }
                unknown = next(span for span in collector.named("chat") if span.status.code == 0)
                assert not [name for name in values(unknown) if "usage" in name or "cost" in name]
                tool = collector.named("execute_tool read")[0]
                assert (tool.status.code, values(tool)["error.type"]) == (2, "tool_error")
                assert called.end_time_unix_nano == tool.start_time_unix_nano <= tool.end_time_unix_nano
                everything = b"".join(span.SerializeToString() for span in collector.spans.values())
                words = [b"Look.", b"secret.txt", b"no such file", b"It is gone.", b"sk-1"]
                assert not [word for word in words if word in everything]
        with collecting() as (collector, exporter):
            async with flue_py.open(":memory:") as store:
                await export_spans(store, await conversation(store), exporter, content=True)
                everything = b"".join(span.SerializeToString() for span in collector.spans.values())
                assert [word for word in words if word not in everything] == []
                tool = values(collector.named("execute_tool read")[0])
                assert json.loads(tool["gen_ai.tool.call.arguments"]) == CALL["arguments"]
                output = json.loads(values(collector.named("chat m1")[0])["gen_ai.output.messages"])
                part = {"type": "tool_call", "id": "c1", "name": "read", "arguments": CALL["arguments"]}
                assert output == [{"role": "assistant", "parts": [part], "finish_reason": "toolUse"}]

    anyio.run(check)


def test_what_is_exported_again_or_of_a_fork_adds_only_what_is_new() -> None:
    async def check() -> None:
        with collecting() as (collector, exporter):
            async with flue_py.open(":memory:") as store:
                session = await conversation(store)
                task = await store.get_session((await session.tasks.links())[0].child_id)
                assert task is not None
                await export_spans(store, task, exporter)  # alone, it is where it is with its parent
                fork = await session.fork()
                await fork.append_message({"role": "assistant", "content": "Else."})
                await export_spans(store, session, exporter)
                await export_spans(store, session, exporter)
                assert (len(collector.spans), collector.received) == (7, 16)
                await export_spans(store, fork, exporter)
                assert (len(collector.spans), collector.received) == (8, 17)
                added = [*collector.spans.values()][-1]
                assert added.parent_span_id in {span.span_id for span in collector.spans.values()}

    anyio.run(check)


REAL = [
    "claude_code/entire-ca-fca7ea73ac-0.jsonl.gz",
    "codex/agent-history-real-session-01.jsonl.gz",
    "pi/large-session.jsonl.gz",
]


@pytest.mark.parametrize("name", REAL)
def test_the_spans_of_a_real_session_have_its_calls_tokens_and_cost(name: str, tmp_path: Path) -> None:
    async def check() -> None:
        path = tmp_path / Path(name).stem
        path.write_bytes(gzip.decompress((DATA / name).read_bytes()))
        async with flue_py.open(":memory:") as store:
            attributes = []
            for imported in (await import_file(store, path)).sessions:
                session = await store.get_session(imported.session_id)
                assert session is not None
                for span in await session_spans(store, session):
                    assert span.start_time is not None
                    assert span.end_time is not None
                    assert span.start_time <= span.end_time
                    attributes.append(span.attributes or {})
            tokens = [int(str(each[OUTPUT])) for each in attributes if OUTPUT in each]
            cost = sum(float(str(each.get("flue_py.cost.usd", 0))) for each in attributes)
            paid = (await store.usage()).total
            assert (len(tokens), sum(tokens)) == (paid.calls, paid.output)
            assert cost == pytest.approx(float(paid.cost or 0))

    anyio.run(check)


class Refusing(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.FAILURE


def test_a_shell_sends_the_same_spans_to_the_collector_of_the_variables(tmp_path: Path) -> None:
    async def begin() -> str:
        async with flue_py.open(tmp_path / "s.db") as store:
            return (await conversation(store)).id

    session_id = anyio.run(begin)
    with collecting() as (collector, exporter):
        url = str(exporter._endpoint).removesuffix("/v1/traces")
        for words in ([], [], ["--content", "--json"]):
            received = len(collector.spans)
            if words:
                collector.spans.clear()
            line = [*COMMAND, "--db", str(tmp_path / "s.db"), "export", "otlp", session_id, *words]
            env = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": url}
            done = subprocess.run(line, env=env, capture_output=True, text=True, check=True)
            if not words:
                assert done.stdout == f"{len(collector.spans)} spans of 2 sessions sent\n"
            assert ("Look." in str(collector.spans)) == bool(words)
            assert received in (0, len(collector.spans))
        assert json.loads(done.stdout) == {"spans": len(collector.spans), "sessions": 2}


def test_an_exporter_that_refuses_is_an_error() -> None:
    async def check() -> None:
        async with flue_py.open(":memory:") as store:
            session = await conversation(store)
            with pytest.raises(flue_py.StoreUnavailable, match="refused 5 spans after 0"):
                await export_spans(store, session, Refusing())
            with pytest.raises(flue_py.InvalidArgument, match="is no SpanExporter"):
                await export_spans(store, session, "http://127.0.0.1:4318")  # type: ignore[arg-type]

    anyio.run(check)


def test_the_names_are_those_of_the_conventions_and_of_the_page() -> None:
    source = Path(opentelemetry.__file__).read_text()
    names = set(re.findall(r'"(gen_ai\.[a-z_.]+)"', source))
    assert names <= {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    assert CONVENTIONS in {version.value for version in Schemas}
    page = (Path(__file__).parents[3] / "docs/how-to/watch-what-happens.md").read_text()
    assert names == set(re.findall(r"`(gen_ai\.[a-z_.]+)`", page))
