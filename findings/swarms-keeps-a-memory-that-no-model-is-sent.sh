#!/usr/bin/env bash
# swarms 16.0.3 (PyPI): what an agent remembers from earlier sessions is loaded and not sent, and a full window replaces the
# question that was just asked.
#
# Behaviour seen: with persistent_memory=True an agent writes what is said into MEMORY.md, and a new one of that name loads it as
# "this conversation's persistent memory from prior sessions. Use it". (1) It becomes a row of the role System, and such rows
# are left out of what is sent, since the system prompt is there already. Told "My name is Ann", and asked for it in the next
# session, the agent gets the question alone. (2) The rows fill the window, though, so that a greeting is over its limit: it
# is summarized together with the memory, by a call of its own, and the model gets the summary instead of the greeting. (3) So
# it goes without a memory: a question is added first, then the window is measured, and all that is over it goes into the summary,
# the question too. That is on by default. (4) The summary is asked for without the agent's llm_base_url and llm_api_key: it
# goes where the environment says, with the key there. (5) The definitions of tools are sent a second time, as the first thing that
# the assistant said. (6) Conversation.truncate_memory_with_tokenizer() keeps the oldest messages and drops the newest.
#
# Needs Python 3.10 with venv and a registry; the model answers on loopback. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check swarms==16.0.3
export HOME=$work
cat >remember.py <<'PY'
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from swarms import Agent
from swarms.structs.conversation import Conversation

sent = []
summarizers = []


class Model(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"]
        sent.append(asked)
        words = "Yes."
        if "compression expert" in asked[0]["content"]:
            words = "They talked."
            summarizers.append(f"{self.path.split('/')[1]} with {self.headers['authorization'].split()[-1]}")
        choice = {"index": 0, "message": {"role": "assistant", "content": words}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt", "choices": [choice], "usage": usage}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def look(place: str) -> str:
    """Looks.

    Args:
        place (str): where
    """
    return "seen"


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
os.environ |= {"OPENAI_API_BASE": f"{url}/default/v1", "OPENAI_BASE_URL": f"{url}/default/v1", "OPENAI_API_KEY": "default-key"}


def agent(name, **options):
    model = {"model_name": "openai/gpt-4o-mini", "llm_base_url": f"{url}/given/v1", "llm_api_key": "given-key"}
    return Agent(agent_name=name, system_prompt="Be brief.", max_loops=1, print_on=False, **model, **options)


def ask(title, of, question):
    calls = len(sent)
    of.run(question)
    parts = [f"{message['role']}: {message['content'].splitlines()[-1][:24].strip()}" for message in sent[-1][1:]]
    print(f"{title}, {len(sent) - calls} call(s), sent: {'; '.join(parts)}")


ask("session 1", agent("a", persistent_memory=True), "My name is Ann.")
second = agent("a", persistent_memory=True)
loaded = [row["role"] for row in second.short_memory.conversation_history if "My name is Ann." in row["content"]]
ask(f"session 2 (loaded as {loaded[0]})", second, "What is my name?")
ask("session 3, a small window", agent("a", persistent_memory=True, context_length=200), "Hello!")
long = agent("b", context_length=200)
ask("no memory", long, "word " * 100 + "Which?")
ask("no memory, then", long, "word " * 100 + "Who?")
print("summarized by:", *summarizers)
ask("with a tool", agent("c", tools=[look]), "Where?")
talk = Conversation(context_length=50)
for number in range(1, 6):
    talk.add("user", f"message{number} " + "word " * 20)
talk.truncate_memory_with_tokenizer()
kept = [row["content"].split() for row in talk.conversation_history]
print("truncated:", ", ".join(f"{words[0]} of {len(words)} words" for words in kept))
PY
export WORKSPACE_DIR=$work/workspace LITELLM_LOCAL_MODEL_COST_MAP=True SWARMS_TELEMETRY_ON=False
timeout 80 venv/bin/python -W ignore remember.py >out 2>errors || { cat errors; exit 2; }
grep -E '^(session|no memory|summarized|with|truncated)' out | tee seen
diff seen - <<'SEEN'
session 1, 1 call(s), sent: user: My name is Ann.
session 2 (loaded as System), 1 call(s), sent: user: What is my name?
session 3, a small window, 2 call(s), sent: user: They talked.
no memory, 1 call(s), sent: user: word word word word word
no memory, then, 2 call(s), sent: user: They talked.
summarized by: default with default-key default with default-key
with a tool, 1 call(s), sent: assistant: [{'type': 'function', 'f; user: Where?
truncated: message1 of 21 words, message2 of 21 words, message3 of 3 words
SEEN
