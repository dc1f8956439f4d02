"""A provider on the loopback interface: it answers what a test says, and keeps what it was asked.

Bodies of answers and errors are in the shapes that the providers document, errors in their own words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

KEY = "sk-test-0123456789abcdef0123456789"


@dataclass
class Answer:
    """What a server answers: a status, headers, and a body; JSON, or bytes as they are.

    With ``promised`` more bytes are announced than are sent. With ``hangs`` nothing is sent until the test is over;
    with ``pauses`` the body is, and then nothing more.
    """

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    promised: int = 0
    hangs: bool = False
    pauses: bool = False

    def sent(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Provider:
    """A server that is running."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.over = Event()
        self.reached = Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def request(self) -> dict[str, Any]:
        """The body of the only request."""
        [(_, body)] = self.asked
        return body


@contextmanager
def provider(scripted: Callable[[str, dict[str, Any]], Answer] | None = None) -> Iterator[Provider]:
    """Yield a running server; at the end it is closed, whatever its requests wait for.

    It answers the next of its answers, or whatever ``scripted`` returns for a path and a body.
    """
    state = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked = self.path, json.loads(body)
            state.asked.append(asked)
            state.headers.append({name.lower(): value for name, value in self.headers.items()})
            answer = state.answers.pop(0) if scripted is None else scripted(*asked)
            state.reached.set()
            if answer.hangs:
                state.over.wait()
                self.close_connection = True
                return
            sent = answer.sent()
            self.send_response(answer.status)
            kind = "text/event-stream" if isinstance(answer.body, bytes) else "application/json"
            for name, value in {"Content-Type": kind, **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(sent) + answer.promised))
            self.end_headers()
            self.wfile.write(sent)
            if answer.pauses:
                state.over.wait()
            self.close_connection = bool(answer.promised)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    state.port = server.server_address[1]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        state.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def events(*each: dict[str, Any], named: bool) -> bytes:
    """Return a stream of server-sent events; Anthropic names each by its type."""
    lines = []
    for event in each:
        name = f"event: {event['type']}\n" if named else ""
        lines.append(f"{name}data: {json.dumps(event)}\n\n")
    return "".join(lines).encode()


# --- OpenAI's Chat Completions: https://platform.openai.com/docs/api-reference/chat ----------------------------------


def completion(text: str | None = "The log says TIMEOUT.", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": None, **more.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": more.pop("finish_reason", "stop"), "logprobs": None}
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 30,
        "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 100},
        "completion_tokens_details": {"reasoning_tokens": 20},
    }
    told = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_750_000_000, "model": "gpt-5-2025-08-07"}
    return {**told, "choices": [choice], "usage": usage, **more}


def openai_error(status: int, message: str, kind: str, code: str | None = None, **headers: str) -> Answer:
    error = {"message": message, "type": kind, "param": None, "code": code}
    return Answer({"error": error}, status, {name.replace("_", "-"): value for name, value in headers.items()})


def chunks(*texts: str, ends: bool = True) -> bytes:
    told = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_750_000_000,
        "model": "gpt-5-2025-08-07",
    }
    made = [{**told, "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]} for text in texts]
    if ends:
        made.append({**told, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        made.append({**told, "choices": [], "usage": completion()["usage"]})
    return events(*made, named=False) + (b"data: [DONE]\n\n" if ends else b"")


# --- OpenAI's Responses: https://platform.openai.com/docs/api-reference/responses ------------------------------------


def response(text: str | None = "The log says TIMEOUT.", **more: Any) -> dict[str, Any]:
    said = {"type": "output_text", "text": text, "annotations": []}
    output = [] if text is None else [item([said])]
    usage = {
        "input_tokens": 120,
        "input_tokens_details": {"cached_tokens": 100},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 20},
        "total_tokens": 150,
    }
    told = {"id": "resp_1", "object": "response", "created_at": 1_750_000_000, "model": "gpt-5-2025-08-07"}
    settings: dict[str, Any] = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None}
    return {**told, **settings, "status": "completed", "output": output, "usage": usage, **more}


def item(content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "id": "item_1", "status": "completed", "role": "assistant", "content": content}


def response_events(*texts: str, ends: bool = True) -> bytes:
    begun = response(None, status="in_progress", usage=None)
    place = {"output_index": 0, "item_id": "item_1", "content_index": 0}
    made: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item([]), "status": "in_progress"}},
    ]
    made += [{"type": "response.output_text.delta", **place, "delta": text, "logprobs": []} for text in texts]
    if ends:
        made.append({"type": "response.completed", "response": response("".join(texts))})
    return events(*[{**event, "sequence_number": number} for number, event in enumerate(made)], named=True)


def compacted_response(*said: str, **more: Any) -> dict[str, Any]:
    """Return what `POST /responses/compact` answers: what the user said, and one item with the rest."""
    output: list[dict[str, Any]] = [
        {
            "id": f"msg_{number}",
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        }
        for number, text in enumerate(said)
    ]
    output.append({"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAAABo-encrypted=="})
    told = {"id": "resp_c1", "object": "response.compaction", "created_at": 1_750_000_000}
    usage = {**response()["usage"], "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 0}}
    return {**told, "output": output, "usage": usage, **more}


# --- Anthropic's Messages: https://docs.anthropic.com/en/api/messages ------------------------------------------------

ANTHROPIC_USAGE = {
    "input_tokens": 20,
    "cache_read_input_tokens": 100,
    "cache_creation_input_tokens": 40,
    "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 30},
    "output_tokens": 30,
}


def message(text: str | None = "The log says TIMEOUT.", **more: Any) -> dict[str, Any]:
    content = [] if text is None else [{"type": "text", "text": text}]
    told = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5-20260101"}
    usage = dict(ANTHROPIC_USAGE)
    return {**told, "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage, **more}


COMPACTION_BLOCK = {
    "type": "compaction",
    "content": "The user wants a green build. build.log says TIMEOUT.",
    "encrypted_content": None,
    "signature": "EqQBCkYIBxgC-signed==",
    "tool_changes": [],
}


def compaction_message(*blocks: dict[str, Any], iterations: int = 1, **more: Any) -> dict[str, Any]:
    """Return what a request with ``compaction`` is answered: the block alone, and what it cost by iterations alone."""
    step = {**ANTHROPIC_USAGE, "type": "compaction"}
    none = {name: 0 for name, count in ANTHROPIC_USAGE.items() if isinstance(count, int)}
    usage = {**none, "iterations": [dict(step) for _ in range(iterations)]}
    told = {"content": [*(blocks or (COMPACTION_BLOCK,))], "stop_reason": "compaction", "usage": usage}
    return message(None, **{**told, **more})


def anthropic_error(status: int, kind: str, text: str, **headers: str) -> Answer:
    body = {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}
    return Answer(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def message_events(*texts: str, ends: bool = True) -> bytes:
    started = message(None, stop_reason=None, usage={**ANTHROPIC_USAGE, "output_tokens": 1})
    made: list[dict[str, Any]] = [{"type": "message_start", "message": started}]
    if texts:
        made.append({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    deltas = [{"type": "text_delta", "text": text} for text in texts]
    made += [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
    if ends and texts:
        made.append({"type": "content_block_stop", "index": 0})
    if ends:
        ended = {"stop_reason": "end_turn", "stop_sequence": None}
        made.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 30}})
        made.append({"type": "message_stop"})
    return events(*made, named=True)
