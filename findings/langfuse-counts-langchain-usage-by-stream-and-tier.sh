#!/usr/bin/env bash
# langfuse 5.0.4 (PyPI), its CallbackHandler, with langchain-anthropic 1.7.10 and langchain-openai 1.7.4: the same usage is
# recorded as another one if the answer is not streamed, and if OpenAI's answer has the tier "flex".
#
# Behaviour seen: its docs say "If no total usage type is ingested, Langfuse sums up all usage type units to a total", and that
# all types with `input` in their name are summed up as input. (1) Anthropic, 1,000 tokens in, 400 of them written into the
# cache, and 20 out: streamed, the parts have sum and total of 1,020. Not streamed, there is no total, and the 400 are there
# twice, as `cache_creation_input_tokens` and as `cache_creation_ephemeral_5m_input_tokens`: 1,420. (2) OpenAI, 1,000 in with
# 600 from the cache, 20 out with 5 of reasoning: langchain-openai puts the tier's name before the parts, and adds one for the
# rest. On flex both are taken out of `input` and `output`, which are 0 then: all is in types that only flex has. On priority,
# the only tier that the handler knows by name, nothing is taken out: the types with `input` have 2,000, those with `output`
# 40, and the 600 of the cache are within `input`. So of one call on three tiers `input` is 400, 1,000 and 0.
#
# Needs Python 3.10 with venv and a registry; the models answer on loopback. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check \
  langfuse==5.0.4 langchain==1.5.2 langchain-anthropic==1.7.10 langchain-openai==1.7.4
cat >usage.py <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from langfuse import Langfuse
from langfuse.langchain import CallbackHandler
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

CLAUDE = {"input_tokens": 100, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 400, "output_tokens": 20}
WRITTEN = {"cache_creation": {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 0}}
GPT = {
    "prompt_tokens": 1000,
    "completion_tokens": 20,
    "total_tokens": 1020,
    "prompt_tokens_details": {"cached_tokens": 600},
    "completion_tokens_details": {"reasoning_tokens": 5},
}
TEXT = {"type": "text", "text": "yes"}


def claude():
    return {"id": "m", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
            "stop_sequence": None, "content": [TEXT], "usage": {**CLAUDE, **WRITTEN}}


def claude_events():
    started = {**claude(), "content": [], "stop_reason": None, "usage": {**CLAUDE, **WRITTEN, "output_tokens": 1}}
    yield {"type": "message_start", "message": started}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "yes"}}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": CLAUDE}
    yield {"type": "message_stop"}


def gpt(tier):
    choice = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt", "choices": [choice], "usage": GPT}
    return {**answer, "service_tier": tier}


class Models(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        kind = "application/json"
        if not self.path.endswith("/messages"):
            body = json.dumps(gpt(asked["service_tier"]))
        elif not asked.get("stream"):
            body = json.dumps(claude())
        else:
            kind = "text/event-stream"
            body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in claude_events())
        self.send_response(200)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(body.encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Models)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
spans = InMemorySpanExporter()
langfuse = Langfuse(public_key="public", secret_key="secret", base_url=url, span_exporter=spans)
with_handler = {"callbacks": [CallbackHandler()]}


def show(name):
    langfuse.flush()
    recorded = [span.attributes.get("langfuse.observation.usage_details") for span in spans.get_finished_spans()]
    (usage,) = [json.loads(details) for details in recorded if details]
    spans.clear()
    total = usage.pop("total", None)
    print(f"{name}: total {total}, sum {sum(usage.values())}")
    print("  " + ", ".join(f"{kind} {count}" for kind, count in sorted(usage.items()) if count or kind in ("input", "output")))


anthropic = ChatAnthropic(model="claude", api_key="key", base_url=url, max_tokens=100)
list(anthropic.stream("well?", config=with_handler))
show("anthropic, streamed")
anthropic.invoke("well?", config=with_handler)
show("anthropic, not streamed")
for tier in ("default", "priority", "flex"):
    ChatOpenAI(model="gpt", api_key="key", base_url=url, service_tier=tier).invoke("well?", config=with_handler)
    show(f"openai, {tier}")
PY
venv/bin/python usage.py 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
anthropic, streamed: total 1020, sum 1020
  input 100, input_cache_creation 400, input_cache_read 500, output 20
anthropic, not streamed: total None, sum 1420
  cache_creation_ephemeral_5m_input_tokens 400, cache_creation_input_tokens 400, cache_read_input_tokens 500, input 100, output 20
openai, default: total 1020, sum 1020
  input 400, input_cache_read 600, output 15, output_reasoning 5
openai, priority: total 1020, sum 2040
  input 1000, input_priority 400, input_priority_cache_read 600, output 20, output_priority 15, output_priority_reasoning 5
openai, flex: total 1020, sum 1020
  input 0, input_flex 400, input_flex_cache_read 600, output 0, output_flex 15, output_flex_reasoning 5
SEEN
