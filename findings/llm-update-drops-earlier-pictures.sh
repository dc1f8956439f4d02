#!/usr/bin/env bash
# llm 0.36 (PyPI), after 0.27.1: a conversation that goes on after the update is sent without its earlier attachments.
#
# Behaviour seen: a picture is sent with the first question by 0.27.1. `llm -c` of 0.27.1 sends the picture again with
# the second question, as it should. `llm -c` of 0.36, on a copy of the same logs.db, sends the first question as bare
# text: no picture, no warning, exit code 0. The model answers about a picture that it does not see.
# The attachment is still in the database (tables attachments and prompt_attachments).
#
# Needs Python 3.11 with venv, and a registry. Exits 1 if the behaviour is another one.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
for version in 0.27.1 0.36; do
    more=(httpx); [ "$version" = 0.27.1 ] && more+=('openai==1.109.1')
    python3 -m venv "v$version"
    "v$version/bin/pip" install -q --disable-pip-version-check "llm==$version" "${more[@]}" >pip.log 2>&1 || { cat pip.log; exit 2; }
done
cat >run.py <<'PY'
import base64, json, os, shutil, subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer

sent = []
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="


class Model(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        sent.append(body["messages"])
        message = {"role": "assistant", "content": "A dot."}
        answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "made-up"}
        answer["usage"] = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        answer["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


server = HTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}/v1"
os.mkdir("first")
with open("first/extra-openai-models.yaml", "w") as file:
    json.dump([{"model_id": "made-up", "model_name": "made-up", "api_base": url, "vision": True}], file)


def ask(version, folder, *arguments, data=b""):
    env = {"PATH": os.environ["PATH"], "HOME": os.getcwd(), "LLM_USER_PATH": folder, "OPENAI_API_KEY": "none"}
    command = [f"v{version}/bin/llm", *arguments, "--no-stream"]
    done = subprocess.run(command, input=data, env=env, check=False, capture_output=True)
    if done.returncode:
        sys.exit(done.stderr.decode())
    return json.dumps(sent[-1]).count("image_url\"")


ask("0.27.1", "first", "-m", "made-up", "-a", "-", "Which picture is this?", data=base64.b64decode(PICTURE))
shutil.copytree("first", "second")
fail = 0
for version, folder, expected in (("0.27.1", "first", True), ("0.36", "second", False)):
    found = ask(version, folder, "-c", "And its color?") > 0
    print(f"llm {version}, -c: the picture is sent again: {found} (seen: {expected})")
    fail |= found != expected
sys.exit(fail)
PY
python3 run.py
