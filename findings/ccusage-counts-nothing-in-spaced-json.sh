#!/usr/bin/env bash
# ccusage 20.0.24 (npm, linux-x64): rows of Claude Code are counted only where their JSON has no space after a colon.
#
# Behaviour seen: the same three rows, each with 100 input and 10 output tokens, are 330 tokens if each row is written
# without spaces, or with spaces after commas alone, and nothing at all, without a word and with exit code 0, if there is
# a space after each colon, as json.dumps of Python writes it by default. All three are the same JSON.
# Whoever has rewritten, redacted or exported a transcript with a common JSON library sees a bill of 0.
#
# Needs Node.js 20 with npm, Python 3 and a registry. Exits 1 if the behaviour is another one.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit ccusage@20.0.24 >npm.log 2>&1 || { cat npm.log; exit 2; }
python3 - <<'PY'
import json
from pathlib import Path

FORMS = {"compact": (",", ":"), "after-commas": (", ", ":"), "after-colons": (",", ": ")}
for name, separators in FORMS.items():
    folder = Path(name, "projects", "-srv-shop")
    folder.mkdir(parents=True)
    with open(folder / "s1.jsonl", "w", encoding="utf-8") as file:
        for number in (1, 2, 3):
            usage = {"input_tokens": 100, "output_tokens": 10}
            usage |= {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
            message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude-opus-4-6"}
            message |= {"content": [{"type": "text", "text": "Done"}], "usage": usage}
            row = {"type": "assistant", "uuid": f"a{number}", "parentUuid": None, "sessionId": "s1", "cwd": "/srv/shop"}
            row |= {"version": "2.1.0", "timestamp": f"2026-05-04T09:00:0{number}Z", "requestId": f"req_{number}"}
            file.write(json.dumps({**row, "message": message}, separators=separators) + "\n")
PY
fail=0
for form in compact after-commas after-colons; do
    tokens=$(CLAUDE_CONFIG_DIR=$work/$form HOME=$work/home ./node_modules/.bin/ccusage daily --json --offline |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["totals"]["totalTokens"])')
    expected=330; [ "$form" = after-colons ] && expected=0
    echo "ccusage 20.0.24, spaces $form: $tokens tokens (seen: $expected)"
    [ "$tokens" = "$expected" ] || fail=1
done
exit $fail
