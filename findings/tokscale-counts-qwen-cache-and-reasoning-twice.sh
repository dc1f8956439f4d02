#!/usr/bin/env bash
# tokscale 4.17.0 (npm, its program for linux-x64): of the same counts it makes 1025 tokens for Gemini CLI, as the file says,
# and 1625 for Qwen Code, where the file says 1020.
#
# Behaviour seen: in files of both, the prompt includes what was cached. Of Gemini CLI tokscale takes the cached part out: 1000
# with 600 cached are an input of 400 beside 600 of cache reads. Of Qwen Code it does not: the input is 1000, beside the same
# 600. The thoughts differ too: Gemini's `output` is without them, while `candidatesTokenCount` of Qwen Code 0.24.4, with a
# provider of the OpenAI kind, includes them (1000 and 20 are a `totalTokenCount` of 1020, with 5 of thoughts). tokscale
# reports 20 of output and 5 of reasoning. `qwen --fork-session` writes the rows of the source once more, under their uuids
# and with `forkedFrom`: both copies count, 3250 tokens. (ccusage counts the cached part and the fork twice as well.)
#
# Needs Node.js 20 with npm, Python 3 and a registry; it goes on without the prices that it asks the network for. Exits 1 if
# the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @tokscale/cli-linux-x64-gnu@4.17.0 >npm.log 2>&1 || { cat npm.log; exit 2; }
export TZ=UTC
cat >counts.py <<'PY'
import json
import os
import subprocess
from pathlib import Path

AT = "2026-11-28T20:48:45.466Z"
SOURCE, FORK = "c0000000-0000-4000-8000-0000000000e1", "c0000000-0000-4000-8000-0000000000e2"
USER, ANSWER = "474e439d-afe2-4ada-8252-3c0000000001", "c7960000-afe2-4ada-8252-3c0000000002"


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def gemini(home):
    tokens = {"input": 1000, "output": 20, "cached": 600, "thoughts": 5, "tool": 0, "total": 1025}
    answer = {"id": ANSWER, "timestamp": AT, "type": "gemini", "content": "Hi.", "model": "gemini-2.5-pro"}
    about = {"sessionId": SOURCE, "projectHash": "0a", "startTime": AT, "lastUpdated": AT, "kind": "main"}
    asked = {"id": USER, "timestamp": AT, "type": "user", "content": [{"text": "hi"}]}
    write(home / ".gemini/tmp/shop/chats/session-2026-11-28T20-48-c0000000.jsonl", [about, asked, answer | {"tokens": tokens}])


def qwen(home, sessions):
    said = {"type": "user", "message": {"role": "user", "parts": [{"text": "hi"}]}}
    counts = {"promptTokenCount": 1000, "candidatesTokenCount": 20, "thoughtsTokenCount": 5, "totalTokenCount": 1020}
    answer = {"type": "assistant", "model": "qwen3-coder", "message": {"role": "model", "parts": [{"text": "Hi."}]}}
    answer |= {"usageMetadata": counts | {"cachedContentTokenCount": 600}}
    for session in sessions:
        rows = []
        for uuid, parent, fields in ((USER, None, said), (ANSWER, USER, answer)):
            row = {"uuid": uuid, "parentUuid": parent, "sessionId": session, "timestamp": AT, **fields}
            row |= {"cwd": "/srv/shop", "version": "0.24.4"}
            if session == FORK:
                row["forkedFrom"] = {"sessionId": SOURCE, "messageUuid": uuid}
            rows.append(row)
        write(home / f".qwen/projects/-srv-shop/chats/{session}.jsonl", rows)


def report(name, home, client):
    program = "node_modules/@tokscale/cli-linux-x64-gnu/bin/tokscale"
    command = [program, "--json", "--no-spinner", "--client", client]
    run = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | {"HOME": str(home.resolve())})
    told = json.loads(run.stdout[run.stdout.index("{"):])
    counts = {kind: sum(entry[kind] for entry in told["entries"]) for kind in ("input", "cacheRead", "output", "reasoning")}
    print(f"{name}:", *(f"{kind} {count}" for kind, count in counts.items()), "together", sum(counts.values()))


gemini(Path("gemini"))
qwen(Path("qwen"), [SOURCE])
qwen(Path("forked"), [SOURCE, FORK])
report("Gemini CLI", Path("gemini"), "gemini")
report("Qwen Code", Path("qwen"), "qwen")
report("Qwen Code, forked", Path("forked"), "qwen")
PY
python3 counts.py | tee seen
diff seen - <<'SEEN'
Gemini CLI: input 400 cacheRead 600 output 20 reasoning 5 together 1025
Qwen Code: input 1000 cacheRead 600 output 20 reasoning 5 together 1625
Qwen Code, forked: input 2000 cacheRead 1200 output 40 reasoning 10 together 3250
SEEN
