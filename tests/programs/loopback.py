"""A made-up model on loopback, in the words of four providers, for running real programs without a network.

`Model` answers each request by the next turn, or by a function of the request, and keeps the requests.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """An answer: text, thoughts, calls of tools (name, arguments), and tokens; or the status of an error."""

    text: str = ""
    calls: Sequence[tuple[str, JsonObject]] = ()
    thoughts: str = ""
    input: int = 1000
    cached: int = 600
    output: int = 20
    reasoning: int = 0
    status: int = 200


@dataclass(frozen=True)
class Request:
    """A request as it came in: its path, and its body."""

    path: str
    body: JsonObject

    @property
    def has_tools(self) -> bool:
        """Whether tools are offered: requests for titles and summaries offer none, as a rule."""
        return bool(self.body.get("tools"))


@dataclass
class Model:
    """A server; use it as a context manager. ``url`` has no path.

    Without ``choose`` a request with tools gets the next of ``turns`` (the last one again when there are no more), one
    without tools gets ``aside``.
    """

    turns: Sequence[Turn] = (Turn("Done."),)
    aside: Turn = field(default_factory=lambda: Turn("A made-up title", input=50, cached=0, output=4))
    choose: Callable[[Request], Turn] | None = None
    requests: list[Request] = field(default_factory=list)

    def __enter__(self) -> Model:
        self._at, self._lock, self._serial = 0, threading.Lock(), 0
        handler = type("Handler", (_Handler,), {"model": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The address, with no slash at its end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, request: Request) -> tuple[Turn, str]:
        """Return the turn for a request, and a name for it that no other has."""
        with self._lock:
            self.requests.append(request)
            self._serial += 1
            name = f"{self._serial:04d}"
            if self.choose is not None:
                return self.choose(request), name
            if not request.has_tools:
                return self.aside, name
            turn = self.turns[min(self._at, len(self.turns) - 1)]
            self._at += 1
            return turn, name


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Model

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is that of the library
        """Say nothing."""

    def do_GET(self) -> None:
        """List the one model."""
        self._send({"object": "list", "data": [{"id": "made-up", "object": "model"}], "models": []})

    def do_POST(self) -> None:
        """Answer a request by the provider that its path is of."""
        size = int(self.headers.get("content-length") or 0)
        data = self.rfile.read(size) if size else self._chunks()
        try:
            body = json.loads(data or b"{}")
        except ValueError:
            body = {}
        request = Request(self.path, body if isinstance(body, dict) else {})
        path = self.path.partition("?")[0]
        forms = {
            "/chat/completions": _chat,
            "/responses": _responses,
            "/messages": _anthropic,
            ":generateContent": _gemini,
            ":streamGenerateContent": _gemini,
        }
        form = next((form for end, form in forms.items() if path.endswith(end)), None)
        if form is None:
            self._send({"totalTokens": 10, "input_tokens": 10})
            return
        turn, name = self.model.answer(request)
        if turn.status != 200:
            error = {"type": "invalid_request_error", "message": turn.text or "made-up failure", "code": turn.status}
            self._send({"type": "error", "error": error}, turn.status)
            return
        is_stream = bool(request.body.get("stream")) or path.endswith(":streamGenerateContent")
        whole, events = form(turn, name, request.body)
        if is_stream:
            self._stream(events)
        else:
            self._send(whole)

    def _chunks(self) -> bytes:
        data = b""
        if "chunked" not in (self.headers.get("transfer-encoding") or ""):
            return data
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _send(self, value: object, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Iterator[tuple[str | None, object]]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for kind, event in events:
            text = event if isinstance(event, str) else json.dumps(event)
            self.wfile.write(((f"event: {kind}\n" if kind else "") + f"data: {text}\n\n").encode())
            self.wfile.flush()
        self.close_connection = True


Answer = tuple[JsonObject, Iterator[tuple[str | None, object]]]


def _chat(turn: Turn, name: str, body: JsonObject) -> Answer:
    calls = [
        {
            "index": index,
            "id": f"call_{name}_{index}",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments)},
        }
        for index, (tool, arguments) in enumerate(turn.calls)
    ]
    usage = {
        "prompt_tokens": turn.input,
        "completion_tokens": turn.output,
        "total_tokens": turn.input + turn.output,
        "prompt_tokens_details": {"cached_tokens": turn.cached},
        "completion_tokens_details": {"reasoning_tokens": turn.reasoning},
    }
    message: JsonObject = {"role": "assistant", "content": turn.text or None}
    if calls:
        message["tool_calls"] = calls
    if turn.thoughts:
        message["reasoning_content"] = turn.thoughts
    finish = "tool_calls" if calls else "stop"
    head = {"id": f"chatcmpl-{name}", "created": 1_790_000_000, "model": body.get("model", "made-up")}

    def events() -> Iterator[tuple[str | None, object]]:
        chunk = {**head, "object": "chat.completion.chunk"}
        yield None, {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}
        yield None, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
        yield None, {**chunk, "choices": [], "usage": usage}
        yield None, "[DONE]"

    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}, events()


def _responses(turn: Turn, name: str, body: JsonObject) -> Answer:
    items: list[JsonObject] = []
    if turn.thoughts:
        summary = [{"type": "summary_text", "text": turn.thoughts}]
        items.append({"type": "reasoning", "id": f"rs_{name}", "summary": summary, "encrypted_content": "bWFkZSB1cA=="})
    if turn.text:
        part = {"type": "output_text", "text": turn.text, "annotations": []}
        items.append(
            {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed", "content": [part]}
        )
    for index, (tool, arguments) in enumerate(turn.calls):
        namespace, _, own_name = tool.rpartition("/")
        call = {
            "type": "function_call",
            "id": f"fc_{name}_{index}",
            "call_id": f"call_{name}_{index}",
            "name": own_name,
        }
        call |= {"namespace": namespace} if namespace else {}
        items.append({**call, "arguments": json.dumps(arguments), "status": "completed"})
    usage = {
        "input_tokens": turn.input,
        "input_tokens_details": {"cached_tokens": turn.cached},
        "output_tokens": turn.output,
        "output_tokens_details": {"reasoning_tokens": turn.reasoning},
        "total_tokens": turn.input + turn.output,
    }
    head: JsonObject = {"id": f"resp_{name}", "object": "response", "created_at": 1_790_000_000, "status": "completed"}
    whole = {**head, "model": body.get("model", "made-up"), "output": items, "usage": usage}

    def events() -> Iterator[tuple[str | None, object]]:
        kinds: list[tuple[str, JsonObject]] = [
            ("response.created", {"response": {**whole, "output": [], "usage": None}})
        ]
        for index, item in enumerate(items):
            kinds.append(("response.output_item.added", {"output_index": index, "item": item}))
            if item["type"] == "message":
                place = {"output_index": index, "item_id": item["id"], "content_index": 0}
                kinds.append(("response.output_text.delta", {**place, "delta": item["content"][0]["text"]}))
                kinds.append(("response.output_text.done", {**place, "text": item["content"][0]["text"]}))
            kinds.append(("response.output_item.done", {"output_index": index, "item": item}))
        kinds.append(("response.completed", {"response": whole}))
        for number, (kind, fields) in enumerate(kinds):
            yield kind, {"type": kind, "sequence_number": number, **fields}

    return whole, events()


def _anthropic(turn: Turn, name: str, body: JsonObject) -> Answer:
    content: list[JsonObject] = []
    if turn.thoughts:
        content.append({"type": "thinking", "thinking": turn.thoughts, "signature": "bWFkZSB1cA=="})
    if turn.text:
        content.append({"type": "text", "text": turn.text})
    for index, (tool, arguments) in enumerate(turn.calls):
        content.append({"type": "tool_use", "id": f"toolu_{name}_{index}", "name": tool, "input": arguments})
    usage = {
        "input_tokens": turn.input - turn.cached,
        "cache_read_input_tokens": turn.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": turn.output,
    }
    stop = "tool_use" if turn.calls else "end_turn"
    head = {"id": f"msg_{name}", "type": "message", "role": "assistant", "model": body.get("model", "made-up")}
    whole = {**head, "content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage}

    def events() -> Iterator[tuple[str | None, object]]:
        begun = {
            **head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1},
        }  # fmt: skip
        yield "message_start", {"type": "message_start", "message": begun}
        for index, part in enumerate(content):
            deltas: dict[str, tuple[JsonObject, list[JsonObject]]] = {
                "text": ({"text": ""}, [{"type": "text_delta", "text": part.get("text")}]),
                "thinking": (
                    {"thinking": "", "signature": ""},
                    [
                        {"type": "thinking_delta", "thinking": part.get("thinking")},
                        {"type": "signature_delta", "signature": part.get("signature")},
                    ],
                ),
                "tool_use": (
                    {"input": {}},
                    [{"type": "input_json_delta", "partial_json": json.dumps(part.get("input"))}],
                ),
            }
            empty, changes = deltas[part["type"]]
            yield (
                "content_block_start",
                {"type": "content_block_start", "index": index, "content_block": {**part, **empty}},
            )
            for change in changes:
                yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": change}
            yield "content_block_stop", {"type": "content_block_stop", "index": index}
        delta = {"stop_reason": stop, "stop_sequence": None}
        yield "message_delta", {"type": "message_delta", "delta": delta, "usage": usage}
        yield "message_stop", {"type": "message_stop"}

    return whole, events()


def _gemini(turn: Turn, name: str, body: JsonObject) -> Answer:
    parts: list[JsonObject] = []
    if turn.thoughts:
        parts.append({"text": turn.thoughts, "thought": True})
    if turn.text:
        parts.append({"text": turn.text})
    parts += [
        {"functionCall": {"id": f"call_{name}_{index}", "name": tool, "args": arguments}}
        for index, (tool, arguments) in enumerate(turn.calls)
    ]
    usage = {
        "promptTokenCount": turn.input,
        "cachedContentTokenCount": turn.cached,
        "candidatesTokenCount": turn.output - turn.reasoning,
        "thoughtsTokenCount": turn.reasoning,
        "totalTokenCount": turn.input + turn.output,
    }
    content = {"role": "model", "parts": parts}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    whole = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "made-up", "responseId": f"resp-{name}"}
    return whole, iter([(None, whole)])
