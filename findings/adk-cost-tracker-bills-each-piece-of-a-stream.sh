#!/usr/bin/env bash
# adk-cost-tracker 0.1.6 (PyPI) with google-adk 2.13.0: a streamed answer is billed once per piece, and thoughts are free.
#
# Behaviour seen: its plugin writes a row with a cost for each response that has usage, and says that a "streaming partial" has
# "no metadata yet". Gemini's API sends usage with every piece of a stream, what there is until then, and the ADK hands each
# piece to plugins, and at the end the whole. A request of 10,000 tokens to gemini-2.5-pro, answered with 2,000 of thoughts and
# 400 of text, costs 0.0365 dollars at the tracker's own prices, since thoughts are output. (1) Not streamed it costs 0.0165:
# Gemini counts thoughts beside `candidates_token_count`, and the tracker does not read them. (2) Streamed in four pieces it
# costs 0.0765, in five rows, each with the 10,000 of the prompt. (3) A row has the model's name, and where its docs say that it
# has the "ADK session id", nothing, so what belongs together cannot be seen. (4) Its README changes the price of gpt-4o by a
# call of update_price() with two prices. The third, for tokens from the cache, is 0 then: they are free for all who
# synchronise with the store, and cost 1.25 dollars per million before.
#
# Needs Python 3.10 with venv and a registry; the model answers on loopback. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check adk-cost-tracker==0.1.6 google-adk==2.13.0
export HOME=$work
cat >bill.py <<'PY'
import asyncio
import json
import os
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from adk_cost_tracker import CostTrackerPlugin
from adk_cost_tracker.pricing import registry
from adk_cost_tracker.store import make_store
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.runners import InMemoryRunner
from google.genai import types

NAME = "gemini-2.5-pro"
THOUGHTS = 2000


def piece(text, tokens, **end):
    counts = {"promptTokenCount": 10000, "candidatesTokenCount": tokens, "thoughtsTokenCount": THOUGHTS}
    candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}, **end}
    usage = {**counts, "totalTokenCount": sum(counts.values())}
    return {"candidates": [candidate], "modelVersion": NAME, "responseId": "r", "usageMetadata": usage}


class Gemini(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        kind = "application/json"
        body = json.dumps(piece("The key is here.", 400, finishReason="STOP"))
        if "streamGenerateContent" in self.path:
            kind = "text/event-stream"
            pieces = [piece("The ", 100), piece("key ", 200), piece("is ", 300), piece("here.", 400, finishReason="STOP")]
            body = "".join(f"data: {json.dumps(part)}\r\n\r\n" for part in pieces)
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Gemini)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["GOOGLE_GEMINI_BASE_URL"] = f"http://127.0.0.1:{server.server_port}"


async def ask(mode, answers):
    path = Path(f"{mode.name}.db")
    plugin = CostTrackerPlugin(store=make_store(db_path=path), app_name="app")
    runner = InMemoryRunner(agent=LlmAgent(name="agent", model=NAME), app_name="app", plugins=[plugin])
    session = await runner.session_service.create_session(app_name="app", user_id="user")
    options = {"user_id": "user", "session_id": session.id, "run_config": RunConfig(streaming_mode=mode)}
    async for _ in runner.run_async(new_message=types.UserContent("Where is the key?"), **options):
        pass
    # The rows are written behind the run: until they are there, at most ten seconds.
    for _ in range(200):
        if len(stored(path)) >= answers:
            break
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    rows = stored(path)
    print(f"{mode.name}: {len(rows)} rows, cost {sum(row[3] for row in rows):.4f}")
    for model, used_in, used_out, cost, of_session in rows:
        print(f"  {model}, in {used_in}, out {used_out}, {cost:.4f}, session {of_session!r}")


def stored(path):
    query = "SELECT model, input_tokens, output_tokens, cost_usd, session_id FROM llm_usage_log ORDER BY output_tokens, id"
    try:
        return sqlite3.connect(path).execute(query).fetchall()
    except sqlite3.OperationalError:
        return []


async def as_in_the_readme():
    store = make_store(db_path=Path("prices.db"))
    await registry.sync_with_store(store)
    print("cached tokens of gpt-4o, a million:", registry.calculate_cost("gpt-4o", 1_000_000, 0, 1_000_000))
    await store.update_price(model_key="gpt-4o", provider="openai", input_per_m=2.50, output_per_m=10.00)
    await registry.sync_with_store(store)
    print("after the update:", registry.calculate_cost("gpt-4o", 1_000_000, 0, 1_000_000))


print("what it costs:", registry.calculate_cost(NAME, 10000, 400 + THOUGHTS))
asyncio.run(ask(StreamingMode.NONE, 1))
asyncio.run(ask(StreamingMode.SSE, 5))
asyncio.run(as_in_the_readme())
PY
GOOGLE_API_KEY=key venv/bin/python -W ignore bill.py 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
what it costs: 0.0365
NONE: 1 rows, cost 0.0165
  gemini-2.5-pro, in 10000, out 400, 0.0165, session ''
SSE: 5 rows, cost 0.0765
  gemini-2.5-pro, in 10000, out 100, 0.0135, session ''
  gemini-2.5-pro, in 10000, out 200, 0.0145, session ''
  gemini-2.5-pro, in 10000, out 300, 0.0155, session ''
  gemini-2.5-pro, in 10000, out 400, 0.0165, session ''
  gemini-2.5-pro, in 10000, out 400, 0.0165, session ''
cached tokens of gpt-4o, a million: 1.25
after the update: 0.0
SEEN
