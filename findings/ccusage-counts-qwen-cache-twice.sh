#!/usr/bin/env bash
# ccusage 20.0.24 (npm, linux-x64): the cached tokens of Qwen Code are counted twice, and so is all that a fork repeats.
#
# Behaviour seen: `promptTokenCount` of Qwen Code 0.24.4 includes `cachedContentTokenCount`, as in the Gemini API, and the
# row says so itself: 1000 prompt tokens, 600 of them cached, and 20 of the answer are a `totalTokenCount` of 1020. ccusage
# reports 1000 of input beside 600 of cache reads: 1620 tokens, and charges the 600 at both prices. `qwen --fork-session`
# writes the rows of the source once more, under their uuids and with `forkedFrom`: both copies are counted, 3240 tokens.
# Whoever reads a bill of Qwen Code there sees the cached part of each prompt twice, and a forked history again.
#
# Needs Node.js 20 with npm, Python 3 and a registry. Exits 1 if the behaviour is another one.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit ccusage@20.0.24 >npm.log 2>&1 || { cat npm.log; exit 2; }
python3 - <<'PY'
import json
from pathlib import Path

SOURCE, FORK = "c0000000-0000-4000-8000-0000000000e1", "c0000000-0000-4000-8000-0000000000e2"
USER, ANSWER = "474e439d-afe2-4ada-8252-3c0000000001", "c7960000-afe2-4ada-8252-3c0000000002"
counts = {"promptTokenCount": 1000, "candidatesTokenCount": 20, "thoughtsTokenCount": 0, "totalTokenCount": 1020}
said = {"type": "user", "provenance": "real_user", "message": {"role": "user", "parts": [{"text": "hi"}]}}
answer = {"type": "assistant", "provenance": "assistant_output", "model": "gpt-5"}
answer |= {"message": {"role": "model", "parts": [{"text": "Hi."}]}}
answer |= {"usageMetadata": {**counts, "cachedContentTokenCount": 600}}
for home, sessions in {"alone": (SOURCE,), "forked": (SOURCE, FORK)}.items():
    folder = Path(home, ".qwen", "projects", "-srv-shop", "chats")
    folder.mkdir(parents=True)
    for session in sessions:
        rows = []
        for uuid, parent, fields in ((USER, None, said), (ANSWER, USER, answer)):
            row = {"uuid": uuid, "parentUuid": parent, "sessionId": session, "timestamp": "2026-11-28T20:48:45.466Z"}
            row |= {**fields, "cwd": "/srv/shop", "version": "0.24.4"}
            if session == FORK:
                row["forkedFrom"] = {"sessionId": SOURCE, "messageUuid": uuid}
            rows.append(json.dumps(row, separators=(",", ":")) + "\n")
        (folder / f"{session}.jsonl").write_text("".join(rows))
PY
fail=0
for home in alone forked; do
    totals=$(HOME=$work/$home ./node_modules/.bin/ccusage qwen session --json --offline |
        python3 -c 'import json, sys; t = json.load(sys.stdin)["totals"]
print(*(t[name] for name in ("inputTokens", "cacheReadTokens", "outputTokens", "totalTokens", "totalCost")))')
    expected="1000 600 20 1620"; [ "$home" = forked ] && expected="2000 1200 40 3240"
    echo "ccusage 20.0.24, $home: input, cache reads, output, total, dollars: $totals (seen: $expected; paid: 400 600 20 1020)"
    [ "${totals% *}" = "$expected" ] || fail=1
done
exit $fail
