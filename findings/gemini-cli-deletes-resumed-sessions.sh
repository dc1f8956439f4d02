#!/usr/bin/env bash
# @google/gemini-cli 0.61.0 (npm, Node 22): a session that was resumed is deleted when the program is started anew.
#
# Behaviour seen: `--resume` goes on in the session's file, and leaves a second file of the same session id in `chats`,
# named by the minute, with a header and no message of the user. The next start without `--resume` cleans up files that
# have nothing to resume, and takes with them every file whose name ends in the same eight characters: the whole talk.
# A session that was not resumed, or was resumed within the minute of its start (both are then one file), stays.
#
# Needs Node with npm, Python 3 and a registry; takes up to two minutes. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); server=; trap 'kill $server 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
mkdir node app home folder
(cd node && npm install --silent node@22.23.3)
export PATH="$work/node/node_modules/.bin:$PATH"
(cd app && npm install --silent --ignore-scripts @google/gemini-cli@0.61.0)
cat >model.py <<'PY'
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        candidate = {"content": {"role": "model", "parts": [{"text": "Hello."}]}, "finishReason": "STOP", "index": 0}
        answer = json.dumps({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9}})
        is_stream = ":stream" in self.path
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
        self.end_headers()
        self.wfile.write((f"data: {answer}\n\n" if is_stream else answer).encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
PY
python3 model.py >port & server=$!
until [ -s port ]; do sleep 0.1; done
mkdir home/.gemini
echo '{"security": {"auth": {"selectedType": "gemini-api-key"}}}' >home/.gemini/settings.json
gemini() {
  (cd folder && env -i PATH="$PATH" HOME="$work/home" LANG=C.UTF-8 GEMINI_API_KEY=made-up \
    GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:$(cat ../port)" timeout 100 \
    ../app/node_modules/.bin/gemini --skip-trust -y -m gemini-2.5-flash "$@" </dev/null >/dev/null 2>&1)
}
talks() { { grep -l "$1" home/.gemini/tmp/folder/chats/*.jsonl || true; } | wc -l; }
gemini -p "The first talk."
gemini -p "The second talk."
minute=$(date +%M); while [ "$(date +%M)" = "$minute" ]; do sleep 1; done
gemini --resume latest -p "More of the second."
before="$(talks 'The first talk') $(talks 'The second talk')"
gemini -p "The third talk."
after="$(talks 'The first talk') $(talks 'The second talk')"
echo "files of the first and the second talk before: $before, after: $after"
[ "$before" = "1 1" ] && [ "$after" = "1 0" ]
