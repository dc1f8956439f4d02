#!/usr/bin/env bash
# codex-cissor 0.4.1 (PyPI, `cissor`), which edits the context of Codex's sessions, and @openai/codex 0.144.4 (npm), which resumes
# them: cutting a turn that was taken back takes the one before it too, and a summary of it never reaches the model.
#
# Behaviour seen: Codex (legacy `history_mode`, as up to here) leaves a turn that was taken back in the file, and writes
# `thread_rolled_back` with the number of turns behind it. cissor does not know that row, and keeps it: it shows the turn as
# part of the "auto context", counts its tokens, and edits it. (1) `edit drop --turns 2` removes the turn that was taken back, from
# a context that it never was in. On resuming, the row takes back one turn, which is now turn 1: "Look at the till." and its answer
# are gone. (2) `edit replace --turns 1-2` puts a summary in the place of both, as a message of the user, and that is
# what the row takes back now: neither the turns nor their summary are sent. For both, `validate` says "OK", `publish` that it
# may be resumed, and `show` prints what Codex does not send. What is printed below is what it sent to a model on loopback.
#
# Needs Python 3.10 with venv, npm, Node 16, and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); server=; trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
# Without tiktoken, which would fetch its tables; cissor then counts characters.
venv/bin/pip install -q --disable-pip-version-check --no-deps codex-cissor==0.4.1 requests==2.32.5 urllib3 idna certifi charset-normalizer
npm install --silent --no-fund --no-audit @openai/codex@0.144.4 >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work PATH="$work/venv/bin:$work/node_modules/.bin:$PATH"
unset CODEX_HOME
mkdir shop
cat >write.py <<'PY'
import json
from pathlib import Path

AT = "2026-11-27T22:10:00.000Z"
ID = "01a21f0e-c516-76e3-a197-a7b113c848b4"


def row(kind, **payload):
    return {"timestamp": AT, "type": kind, "payload": payload}


def turn(question, answer):
    asked = [{"type": "input_text", "text": question}]
    said = [{"type": "output_text", "text": answer}]
    return [
        row("response_item", type="message", role="user", content=asked),
        row("event_msg", type="user_message", message=question),
        row("event_msg", type="agent_message", message=answer),
        row("response_item", type="message", role="assistant", content=said),
    ]


about = {"id": ID, "timestamp": AT, "cwd": str(Path("shop").resolve()), "originator": "codex_cli_rs", "source": "cli"}
rows = [row("session_meta", **about, cli_version="0.144.4", model_provider="loopback")]
rows += turn("Look at the till.", "It has 42 euros.") + turn("Delete the till.", "I deleted it.")
rows += [row("event_msg", type="thread_rolled_back", num_turns=1), *turn("Keep the till.", "I keep it.")]
folder = Path(".codex/sessions/2026/11/27")
folder.mkdir(parents=True)
(folder / f"rollout-2026-11-27T22-10-00-{ID}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
PY
cat >server.py <<'PY'
"""A model on loopback that notes what it is sent, and says yes."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Model(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(404)
        self.end_headers()

    def do_POST(self):
        items = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
        said = [part["text"] for item in items if item.get("role") in ("user", "assistant") for part in item["content"]]
        Path("sent").write_text(" | ".join(text for text in said if not text.startswith("<environment_context>")) + "\n")
        content = [{"type": "output_text", "text": "Yes."}]
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        item = {"type": "message", "role": "assistant", "id": "msg", "content": content}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in (
            {"type": "response.created", "response": {"id": "resp"}},
            {"type": "response.output_item.done", "item": item},
            {"type": "response.completed", "response": {"id": "resp", "usage": usage}},
        ):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
Path("port.new").write_text(str(server.server_port))
Path("port.new").rename("port")
server.serve_forever()
PY
python3 write.py
python3 server.py & server=$!
for _ in $(seq 100); do [ -e port ] && break; sleep 0.1; done
cat >.codex/config.toml <<TOML
model = "made-up"
model_provider = "loopback"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.loopback]
name = "loopback"
base_url = "http://127.0.0.1:$(cat port)/v1"
wire_api = "responses"
TOML
fork() { cissor fork 01a21f0e --channel "$1" | sed -n 's/.*new session id: *//p'; }
publish() { echo "  $(cissor validate "$1")" && cissor publish "$1" >>publish.log; }
resume() {
  rm -f sent
  (cd shop && timeout 60 codex exec --skip-git-repo-check resume "$1" "Well?" </dev/null >>../codex.log 2>&1) || { cat codex.log; exit 2; }
  echo "  sent: $(cat sent)"
}
{
  echo "the session"
  cissor inspect 01a21f0e |
    sed -nE 's/^(auto context: [0-9]+ items).*/  \1/p; s/^ +([0-9]+) +([0-9]+-[0-9]+) +[0-9]+ +(.*)/  turn \1, items \2: \3/p'
  dropped=$(fork dropped) replaced=$(fork replaced)
  resume 01a21f0e-c516-76e3-a197-a7b113c848b4
  echo "turn 2 dropped"
  cissor edit "$dropped" drop --turns 2 | grep -a affected | sed 's/^/  /'
  publish "$dropped"
  resume "$dropped"
  echo "turns 1 and 2 replaced"
  cissor edit "$replaced" replace --turns 1-2 --summary-text "The till has 42 euros." >replace.log
  publish "$replaced"
  echo "  shown: $(cissor show "$replaced" --all | grep -a "42 euros")"
  resume "$replaced"
} | tee seen
diff seen - <<'SEEN'
the session
  auto context: 6 items
  turn 1, items 1-2: Look at the till.
  turn 2, items 3-4: Delete the till.
  turn 3, items 5-6: Keep the till.
  sent: Look at the till. | It has 42 euros. | Keep the till. | I keep it. | Well?
turn 2 dropped
  items affected: 3-4 (2 items)
  OK — no issues found
  sent: Keep the till. | I keep it. | Well?
turns 1 and 2 replaced
  OK — no issues found
  shown: The till has 42 euros.
  sent: Keep the till. | I keep it. | Well?
SEEN
