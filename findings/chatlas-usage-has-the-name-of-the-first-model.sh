#!/usr/bin/env bash
# chatlas 0.23.0 (PyPI): token_usage() has one row for each provider, under the name of the model that was used first.
#
# Behaviour seen: a million input tokens each of gpt-4.1, of gpt-4.1-nano and of a model without a price, from a server on
# loopback. token_usage() is a single row: model gpt-4.1, 3,000,000 tokens, and a cost of 2.1, which is that of two models;
# the one whose price is unknown adds its tokens and nothing to the cost. Where it comes first, the row has its name. A
# chat's own get_cost() raises a KeyError for that model.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check chatlas==0.23.0 openai==3.57.0
cat >usage.py <<'PY'
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import chatlas


class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
        usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0, "total_tokens": 1_000_000}
        answer = {"id": "c1", "object": "chat.completion", "created": 1, "model": asked["model"]}
        data = json.dumps({**answer, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1"
for model in sys.argv[1:]:
    chat = chatlas.ChatOpenAICompletions(model=model, base_url=url, api_key="none")
    chat.chat("hello", stream=False, echo="none")
    try:
        cost = chat.get_cost()
    except KeyError as error:
        cost = type(error).__name__
    print(model, cost)
print([(row["model"], row["input"], row["cost"]) for row in chatlas.token_usage()])
PY
for order in "gpt-4.1 gpt-4.1-nano no-price" "no-price gpt-4.1 gpt-4.1-nano"; do
  venv/bin/python usage.py $order
done 2>/dev/null | tee seen
diff seen - <<'SEEN'
gpt-4.1 2.0
gpt-4.1-nano 0.1
no-price KeyError
[('gpt-4.1', 3000000, 2.1)]
no-price KeyError
gpt-4.1 2.0
gpt-4.1-nano 0.1
[('no-price', 3000000, 2.1)]
SEEN
