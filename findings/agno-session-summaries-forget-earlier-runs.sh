#!/usr/bin/env bash
# agno 3.1.10 (PyPI): a session summary of the last runs takes the place of the one before it, which nobody reads again.
#
# Behaviour seen, four runs with one tool call each, `SessionSummaryManager(last_n_runs=2)` and one run of history in
# the context: (1) each summary is made of the last two runs alone. The summary that it replaces is not among what the
# model is given, so after the third run the first is in no summary, and in nothing that the model is sent; no message
# says so. (2) A message that calls a tool is given as the words "Assistant: None", and its result not at all, so that
# what a tool found out is lost with the run.
#
# Needs Python 3.10 to 3.13 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check agno==3.1.10 openai==3.57.0 sqlalchemy==2.1.9
cat >summaries.py <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.openai import OpenAIChat
from agno.session.summary import SessionSummaryManager

summaries = []
last = []


class Server(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        system = str(request["messages"][0].get("content"))
        if "<conversation>" in system:
            summaries.append(system.split("<conversation>")[1].split("</conversation>")[0])
            message = {"content": json.dumps({"summary": f"summary{len(summaries)}", "topics": []})}
        else:
            last[:] = [str(message.get("content")) for message in request["messages"]]
            call = {"id": f"call{len(last)}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            is_asked = request["messages"][-1]["role"] == "user"
            message = {"content": None, "tool_calls": [call]} if is_asked else {"content": "answer"}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        completion = {"id": "id", "object": "chat.completion", "created": 1, "model": "gpt-4o"}
        answer = json.dumps({**completion, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()


def model():
    return OpenAIChat(id="gpt-4o", base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none")


def look() -> str:
    """Look."""
    return "code 4711"


agent = Agent(
    model=model(),
    db=InMemoryDb(),
    tools=[look],
    telemetry=False,
    add_history_to_context=True,
    num_history_runs=1,
    enable_session_summaries=True,
    add_session_summary_to_context=True,
    session_summary_manager=SessionSummaryManager(model=model(), last_n_runs=2),
)
for number in (1, 2, 3, 4):
    agent.run(f"question{number}", session_id="session")
for summary in summaries:
    print(" ".join(summary.split()))
print("in the fourth run:", *(word for word in ("question1", "summary1", "summary2", "summary3") if word in str(last)))
print("results in summaries:", sum("4711" in summary for summary in summaries))
PY
seen=$(venv/bin/python summaries.py 2>/dev/null)
printf '%s\n' "$seen"
[ "$seen" = "User: question1 Assistant: None Assistant: answer
User: question1 Assistant: None Assistant: answer User: question2 Assistant: None Assistant: answer
User: question2 Assistant: None Assistant: answer User: question3 Assistant: None Assistant: answer
User: question3 Assistant: None Assistant: answer User: question4 Assistant: None Assistant: answer
in the fourth run: summary3
results in summaries: 0" ]
