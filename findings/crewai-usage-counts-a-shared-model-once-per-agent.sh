#!/usr/bin/env bash
# crewai 1.15.30 (PyPI): the usage of a crew has each call once for every agent that shares the model object, and the
# calls of all earlier runs.
#
# Behaviour seen: three agents answer one task each, three calls of 110 tokens, from a server on loopback. With an `LLM`
# of its own for each agent, `kickoff().token_usage` says 330 tokens and 3 requests. With one `LLM` object for the three
# it says 990 tokens and 9 requests: the sum goes over the agents, and asks each one's model
# for all that it ever counted. For the same reason the second `kickoff()` of a crew says what both runs took, 660 and
# 1,980. Requests at the server: 3 and 3.
#
# Needs Python 3.10 to 3.13 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check crewai==1.15.30
export CREWAI_DISABLE_TELEMETRY=true OTEL_SDK_DISABLED=true CREWAI_TRACING_ENABLED=false CREWAI_STORAGE_DIR="$work/storage"
cat >usage.py <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from crewai import LLM, Agent, Crew, Task


class Server(BaseHTTPRequestHandler):
    calls = 0

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        Server.calls += 1
        answer = json.dumps(
            {
                "id": f"call{Server.calls}",
                "object": "chat.completion",
                "created": 1,
                "model": "gpt-4o",
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": "Thought: I know it\nFinal Answer: done"},
                    }
                ],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()


def model():
    return LLM(model="gpt-4o", base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none")


def crew(models):
    agents = [Agent(role=f"role{i}", goal="goal", backstory="story", llm=llm) for i, llm in enumerate(models)]
    return Crew(agents=agents, tasks=[Task(description="do", expected_output="text", agent=agent) for agent in agents])


for name, models in (("own", [model(), model(), model()]), ("shared", [model()] * 3)):
    runs = crew(models)
    for run in (1, 2):
        before = Server.calls
        usage = runs.kickoff().token_usage
        print(name, "run", run, "paid", Server.calls - before, "says", usage.successful_requests, usage.total_tokens)
PY
seen=$(venv/bin/python usage.py 2>/dev/null | grep says)
printf '%s\n' "$seen"
[ "$seen" = "own run 1 paid 3 says 3 330
own run 2 paid 3 says 6 660
shared run 1 paid 3 says 9 990
shared run 2 paid 3 says 18 1980" ]
