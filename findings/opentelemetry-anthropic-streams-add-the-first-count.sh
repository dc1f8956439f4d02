#!/usr/bin/env bash
# opentelemetry-instrumentation-anthropic 0.62.4 (PyPI) with anthropic 2.14.0: the span of a streamed answer has more
# output tokens than were paid.
#
# Behaviour seen: the counts of a stream are totals so far (`message_start` says 1, `message_delta` says 5). The span
# adds them up: 6 output tokens, and 1,116 in all. Where a stream has a second `message_delta` (12), it is added, too: 18.
# The same answer without streaming has 5, and openinference-instrumentation-anthropic 3.1.0 has 5 and 12 for the streams.
#
# Needs Python 3.11 with venv and a registry; the model is a server on loopback. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check anthropic==2.14.0 opentelemetry-sdk==1.45.2 \
    opentelemetry-instrumentation-anthropic==0.62.4 openinference-instrumentation-anthropic==3.1.0
cat >spans.py <<'PY'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import anthropic
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

if sys.argv[1] == "opentelemetry":
    from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor
else:
    from openinference.instrumentation.anthropic import AnthropicInstrumentor

INPUT = {"input_tokens": 10, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 100}
ANSWER = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
TEXT = {"type": "text", "text": "Good morning"}


def stream(counts):
    """The events of an answer that has so many output tokens at each of its deltas."""
    start = {**ANSWER, "content": [], "stop_reason": None, "usage": {**INPUT, "output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT["text"]}}
    yield {"type": "content_block_stop", "index": 0}
    for count in counts:
        end = {"stop_reason": "end_turn", "stop_sequence": None}
        yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": count}}
    yield {"type": "message_stop"}


class Model(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if request.get("stream"):
            counts = json.loads(request["messages"][0]["content"])
            body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in stream(counts))
        else:
            usage = {**INPUT, "output_tokens": 5}
            body = json.dumps({**ANSWER, "content": [TEXT], "stop_reason": "end_turn", "usage": usage})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if request.get("stream") else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
Thread(target=server.serve_forever, daemon=True).start()
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
AnthropicInstrumentor().instrument(tracer_provider=provider)
client = anthropic.Anthropic(api_key="none", base_url=f"http://127.0.0.1:{server.server_port}")


def ask(counts, **options):
    messages = [{"role": "user", "content": json.dumps(counts)}]
    answer = client.messages.create(model="claude", max_tokens=100, messages=messages, **options)
    if options:
        list(answer)
    (span,) = spans.get_finished_spans()
    spans.clear()
    names = ("gen_ai.usage.output_tokens", "llm.token_count.completion")
    return next(span.attributes[name] for name in names if name in span.attributes)


print(sys.argv[1], "whole", ask([5]), "streamed", ask([5], stream=True), "two deltas", ask([5, 12], stream=True))
PY
{ venv/bin/python spans.py opentelemetry; venv/bin/python spans.py openinference; } 2>/dev/null | tee seen
diff seen - <<'SEEN'
opentelemetry whole 5 streamed 6 two deltas 18
openinference whole 5 streamed 5 two deltas 12
SEEN
