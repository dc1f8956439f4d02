#!/usr/bin/env bash
# ccusage 20.0.24 (npm, linux-x64): a fork of a Kimi Code session is billed again, and a compaction is not billed.
#
# Behaviour seen: Kimi Code 2.1.0 copies the rows of a session into the file of its fork, usage and times included, and
# ends them with a row `forked`. A call of 1,000 input and 20 output tokens, a compaction of 3,070 tokens (a usage.record
# whose usageScope is "session"), and a call of the fork itself are 5,110 tokens. ccusage says 1,020 tokens for the
# source and 2,040 for the fork, 3,060 together: the copied call twice, the compaction never.
#
# Needs Node.js 20 with npm, Python 3 and a registry. Exits 1 if the behaviour is another one.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit ccusage@20.0.24 >npm.log 2>&1 || { cat npm.log; exit 2; }
python3 - <<'PY'
import json
from pathlib import Path


def row(kind, at, /, **fields):
    return {"type": kind, "agentId": "main", **fields, "time": 1_795_897_000_000 + at}


def call(at, step, scope="turn", **usage):
    usage = {"inputOther": 400, "output": 20, "inputCacheRead": 600, "inputCacheCreation": 0, **usage}
    request = row("llm.request", at, kind="loop", provider="kimi", model="kimi-k2", modelAlias="kimi")
    return [request, row("usage.record", at + 1, model="kimi", usage=usage, usageScope=scope)]


header = {"type": "metadata", "protocol_version": "1.5", "created_at": 1_795_897_000_000}
source = [header, *call(100, "a"), *call(200, "b", "session", inputOther=3000, output=70, inputCacheRead=0)]
fork = [*source, row("forked", 300), *call(400, "c")]
for name, rows in (("session_source", source), ("session_fork", fork)):
    folder = Path("home/.kimi-code/sessions/wd_shop_0123456789ab", name, "agents/main")
    folder.mkdir(parents=True)
    text = "".join(json.dumps(item, separators=(",", ":")) + "\n" for item in rows)
    (folder / "wire.jsonl").write_text(text, encoding="utf-8")
PY
HOME=$work/home ./node_modules/.bin/ccusage kimi session --json --offline | python3 -c '
import json, sys

totals = {each["sessionId"]: each["totalTokens"] for each in json.load(sys.stdin)["sessions"]}
print("ccusage 20.0.24:", totals, "(the calls took 5110 tokens)")
sys.exit(totals != {"session_source": 1020, "session_fork": 2040})
'
