#!/usr/bin/env bash
# openhands-sdk 1.58.2 (PyPI): after `navigate_to(None)` the model gets no system prompt any more.
#
# Behaviour seen: the system prompt is an event, the root of the tree of a conversation, and is written once. After
# `navigate_to(None)`, which its docstring offers for an empty tree, the next message is a root of its own: requests hold
# it and the tools, and no system message, for the rest of that branch, and also after the conversation was resumed.
# Whoever lets people begin anew in a conversation gets an agent without its instructions and its rules of safety, and
# no word about it.
#
# Needs Python 3.12 (PYTHON names it, if it is not python3.12) and a registry. Exits 1 if the behaviour is another one.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
"${PYTHON:-python3.12}" -m venv venv
./venv/bin/pip install --quiet --disable-pip-version-check openhands-sdk==1.58.2 >pip.log 2>&1 || { cat pip.log; exit 2; }
cat >talk.py <<'PY'
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import UUID

from openhands.sdk import LLM, Agent, LocalConversation
from pydantic import SecretStr

sent = []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        sent.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        message = {"role": "assistant", "content": "Yes."}
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        answer = {"id": f"chatcmpl-{len(sent)}", "object": "chat.completion", "created": 1, "model": "gpt-4o"}
        answer |= {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()


def opened():
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    llm = LLM(model="openai/gpt-4o", usage_id="agent", api_key=SecretStr("made-up"), num_retries=0, base_url=url)
    return LocalConversation(
        agent=Agent(llm=llm, tools=[]), workspace=".", persistence_dir="saved", conversation_id=UUID(int=1), visualizer=None
    )


def say(conversation, text):
    conversation.send_message(text)
    conversation.run()


conversation = opened()
say(conversation, "One.")
conversation.navigate_to(None)
say(conversation, "Anew.")
conversation.close()
conversation = opened()
say(conversation, "Later.")
roles = [[message["role"] for message in request["messages"]] for request in sent]
tools = [len(request.get("tools") or []) for request in sent]
expected = [["system", "user"], ["user"], ["user", "assistant", "user"]]
print(f"openhands-sdk 1.58.2: roles of the requests: {roles}; tools: {tools} (seen: {expected})")
conversation.close()
sys.exit(roles != expected)
PY
mkdir home
HOME=$work/home LITELLM_LOCAL_MODEL_COST_MAP=True OPENHANDS_SUPPRESS_BANNER=1 ./venv/bin/python talk.py 2>talk.log >out.txt || {
    grep "^openhands-sdk" out.txt || tail -5 talk.log out.txt
    exit 1
}
grep "^openhands-sdk" out.txt
