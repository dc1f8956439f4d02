#!/usr/bin/env bash
# memori 3.3.6 (PyPI) with openai 3.57.0: a call that says stream=False is stored without its answer, and the history of an
# agent with tools has the question twice and an assistant who says "None".
#
# Behaviour seen: memori wraps the client, stores what a call sent and got back (SQLite here), and sends all of it before the
# messages of the next call. (1) Whether an answer was streamed is asked as `stream is None`: with `stream=False`, which is
# the default said aloud, it looks for the parts of a stream and finds none. Questions are stored, answers are not, and the
# model is sent "one", "two", "three" of the user in a row. (2) In an agent's loop the second call has what the first one had,
# with the tool's call and result: what memori put there itself it leaves out, what the program sent again it stores and sends
# again. So the question is there twice from the second step on, and once more with each further step: three steps, three
# times. (3) A message that only calls a tool has the content null; it is stored as the text "None", and sent as words of the
# assistant in every later call. Each row of the file has one role and one text, the calls themselves are in none.
#
# Needs Python 3.10 with venv and a registry; the model answers on loopback. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check memori==3.3.6 openai==3.57.0
cat >talk.py <<'PY'
import contextlib
import io
import json
import os
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from memori import Memori
from openai import OpenAI

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
sent = []


class Model(BaseHTTPRequestHandler):
    """Looks twice if there is a tool, then answers."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        sent.append(asked["messages"])
        looked = sum(message["role"] == "tool" for message in asked["messages"])
        message = {"role": "assistant", "content": f"answer {len(sent)}"}
        if asked.get("tools") and looked < 2:
            call = {"id": f"call{looked}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt", "choices": [choice], "usage": usage}
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


class NoFacts:
    """Instead of the search for facts, which loads a model of embeddings."""

    def retrieve_facts(self, **_):
        return []


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()


def client_with_memory(name):
    client = OpenAI(api_key="key", base_url=f"http://127.0.0.1:{server.server_port}")
    with contextlib.redirect_stdout(io.StringIO()):
        memory = Memori(conn=lambda: sqlite3.connect(f"{name}.db")).llm.register(client)
        memory.config.storage.build()
    memory.config.rust_core = NoFacts()
    memory.config.augmentation = None
    memory.attribution(entity_id="user", process_id="chat")
    return client


def user(text):
    return {"role": "user", "content": text}


def show(name):
    rows = sqlite3.connect(f"{name}.db").execute("SELECT role, content FROM memori_conversation_message ORDER BY id")
    print(f"{name}, stored: " + ", ".join(f"{role} {content}" for role, content in rows))
    print(f"{name}, last sent: " + ", ".join(f"{message['role']} {message['content']}" for message in sent[-1]))
    sent.clear()


for name, option in {"plain": {}, "stream=False": {"stream": False}}.items():
    client = client_with_memory(name)
    for question in ("one", "two", "three"):
        client.chat.completions.create(model="gpt", messages=[user(question)], **option)
    show(name)
client = client_with_memory("tools")
messages = [user("one")]
for _ in range(3):
    message = client.chat.completions.create(model="gpt", messages=list(messages), tools=[LOOK]).choices[0].message
    messages.append(message.model_dump(include={"role", "content", "tool_calls"}))
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "seen"} for call in message.tool_calls or []]
client.chat.completions.create(model="gpt", messages=[user("two")])
show("tools")
os._exit(0)
PY
MEMORI_API_URL_BASE=http://127.0.0.1:9 PYTHONUNBUFFERED=1 venv/bin/python talk.py 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
plain, stored: user one, assistant answer 1, user two, assistant answer 2, user three, assistant answer 3
plain, last sent: user one, assistant answer 1, user two, assistant answer 2, user three
stream=False, stored: user one, user two, user three
stream=False, last sent: user one, user two, user three
tools, stored: user one, user one, assistant None, tool seen, user one, assistant None, tool seen, assistant None, tool seen, assistant answer 3, user two, assistant answer 4
tools, last sent: user one, user one, assistant None, user one, assistant None, assistant None, assistant answer 3, user two
SEEN
