#!/usr/bin/env bash
# token-tracker 0.5.9 (PyPI): of a Codex session in which turns were taken back, the calls of one file count; of a session of
# Kimi Code, no call of a sub-agent does.
#
# Behaviour seen: (1) today's Codex (0.171) goes on in a further file after a revert, under the same id, with a `history_base`
# that says where it goes on from, and with a total that goes on from there. token-tracker takes one file for each id, the
# one that the folder happens to list first, and the last total in it. Three answers of 1000 tokens each, two of them taken
# back, and two more are 5000 tokens; each file's total is 3000, and 3000 is reported. (2) Kimi Code (2.1) keeps the calls of
# a sub-agent in `agents/agent-0/wire.jsonl`, beside `agents/main/wire.jsonl`. Only the latter is read: of 500 tokens and 700
# by the sub-agent, 500 are reported. All its reports are made of these entries, and their costs too.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check token-tracker==0.5.9
unset CODEX_HOME KIMI_CODE_HOME
export HOME=$work TZ=UTC
cat >counts.py <<'PY'
import json
from pathlib import Path

from token_tracker.adapters import codex, kimi

THREAD, PAGE = "01a21f0e-c516-76e3-a197-a7b113c848b4", "01a21f0e-c6ad-7ac0-b5e9-ced6d62f23b8"
FIELDS = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens", "reasoning_output_tokens")
ONE_CALL = (990, 600, 0, 10, 0)


def write(path, rows):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def usage(calls):
    return {name: count * calls for name, count in zip(FIELDS, ONE_CALL)} | {"total_tokens": 1000 * calls}


def rollout(name, minute, totals, **meta):
    """A file of a Codex thread, with a call for each of the totals that it says."""
    at = f"2026-11-27T22:{minute:02}:00.000Z"
    about = {"id": THREAD, "session_id": THREAD, "timestamp": at, "cwd": "/home/dev/demo", "model_provider": "openai"}
    rows = [("session_meta", about | {"history_mode": "paginated"} | meta), ("turn_context", {"model": "gpt-5.1-codex"})]
    for calls in totals:
        info = {"total_token_usage": usage(calls), "last_token_usage": usage(1)}
        rows.append(("token_usage_record", {"thread_id": THREAD, "usage": usage(1), "thread_token_usage": usage(calls)}))
        rows.append(("event_msg", {"type": "token_count", "info": info}))
    rows = [{"timestamp": at, "ordinal": at_row, "type": kind, "payload": row} for at_row, (kind, row) in enumerate(rows)]
    write(f".codex/sessions/2026/11/27/rollout-2026-11-27T22-{minute:02}-00-{name}.jsonl", rows)
    return sum(row["payload"]["usage"]["total_tokens"] for row in rows if row["type"] == "token_usage_record")


def wire(agent, time, count):
    """A file of an agent of Kimi Code, with one call."""
    usage = {"inputOther": count - 10, "output": 10, "inputCacheRead": 0, "inputCacheCreation": 0}
    row = {"type": "usage.record", "agentId": agent, "model": "kimi-code/k3", "usage": usage, "usageScope": "turn"}
    write(f".kimi-code/sessions/wd_demo/session_one/agents/{agent}/wire.jsonl", [row | {"time": time}])
    return count


base = {"thread_id": THREAD, "end_ordinal_exclusive": 4, "end_byte_offset": 1000}
said = rollout(THREAD, 10, [1, 2, 3]) + rollout(f"{THREAD}_{PAGE}", 20, [2, 3], history_base=base)
print("Codex:", sum(entry.total_tokens for entry in codex.load_entries()), "of", said)
said = wire("main", 1795899760020, 500) + wire("agent-0", 1795899760151, 700)
print("Kimi Code:", sum(entry.total_tokens for entry in kimi.load_entries()), "of", said)
PY
venv/bin/python counts.py | tee seen
diff seen - <<'SEEN'
Codex: 3000 of 5000
Kimi Code: 500 of 1200
SEEN
