#!/usr/bin/env bash
# claude-codex-sessions 0.1.0 (PyPI, and a plugin of Claude Code), which imports sessions of Codex: what changed a file is not in
# them, and what was taken back is.
#
# Behaviour seen: "Each tool call becomes one line", says its README, and the first message of each import tells the model the same.
# It knows `function_call`, `local_shell_call` and `tool_search_call`. Codex (0.141 to 0.159, the versions it names) writes
# a patch as `custom_tool_call` and a search of the web as `web_search_call`, and both are left out: here `ls` is the
# only call, and nothing says that prices.txt was written, nor that till.txt was deleted. With --with-tool-output the output of `ls` is
# there, the first message still says that no output is included, and the patches are missing too. Nothing is reported.
# After `thread_rolled_back`, which it does not read, the turn stays in the import: "Keep the till." follows on "I deleted it.".
# It is the context of the next prompt, and what the model then believes of the files is wrong twice.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check claude-codex-sessions==0.1.0
export HOME=$work PATH="$work/venv/bin:$PATH" TZ=UTC
unset CODEX_HOME CLAUDE_CONFIG_DIR
mkdir shop
cat >write.py <<'PY'
import json
from pathlib import Path

AT = "2026-11-27T22:10:00.000Z"
ID = "01a21f0e-c516-76e3-a197-a7b113c848b4"


def row(kind, **payload):
    return {"timestamp": AT, "type": kind, "payload": payload}


def said(role, words):
    kind = "input_text" if role == "user" else "output_text"
    return row("response_item", type="message", role=role, content=[{"type": kind, "text": words}])


def called(call, name, output, **given):
    kind = "custom_tool_call" if "input" in given else "function_call"
    return [
        row("response_item", type=kind, status="completed", call_id=call, name=name, **given),
        row("response_item", type=f"{kind}_output", call_id=call, output=output),
    ]


def patch(call, *lines):
    return called(call, "apply_patch", "Success.", input="\n".join(["*** Begin Patch", *lines, "*** End Patch"]))


about = {"id": ID, "timestamp": AT, "cwd": str(Path("shop").resolve()), "originator": "codex_cli_rs", "source": "cli"}
rows = [
    row("session_meta", **about, cli_version="0.144.4", model_provider="openai"),
    said("user", "Write the prices."),
    *called("c1", "exec_command", "till.txt", arguments='{"cmd": "ls"}'),
    row("response_item", type="web_search_call", status="completed", action={"type": "search", "query": "price of bread"}),
    *patch("c2", "*** Add File: prices.txt", "+bread 3"),
    said("assistant", "Done."),
    said("user", "Delete the till."),
    *patch("c3", "*** Delete File: till.txt"),
    said("assistant", "I deleted it."),
    row("event_msg", type="thread_rolled_back", num_turns=1),
    said("user", "Keep the till."),
    said("assistant", "I keep it."),
]
folder = Path(".codex/sessions/2026/11/27")
folder.mkdir(parents=True)
(folder / f"rollout-2026-11-27T22-10-00-{ID}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
PY
cat >show.py <<'PY'
import json
from pathlib import Path

imports = [[json.loads(line) for line in path.open()] for path in Path(".claude/projects").glob("*/*.jsonl")]
for title, *rows in sorted(imports, key=lambda rows: rows[0]["customTitle"]):
    print(title["customTitle"])
    for row in rows:
        content = row["message"]["content"]
        words = content if isinstance(content, str) else content[0]["text"]
        header = words.partition("UTC. ")[2]
        print(f"  {row['type']}:", " | ".join(line.strip() for line in (header or words).splitlines() if line))
PY
python write.py
(cd shop && claude-codex-sessions import) | grep imported | tee seen
(cd shop && claude-codex-sessions import --with-tool-output) | grep imported | tee -a seen
python show.py | tee -a seen
diff seen - <<'SEEN'
  imported     [codex] Write the prices.
1 imported
  imported     [codex] Write the prices. (1)
1 imported
[codex] Write the prices.
  user: Tool calls are summarised as “→ tool: `args`” lines; their output is not included.] | Write the prices.
  assistant: → exec_command: `ls` | Done.
  user: Delete the till.
  assistant: I deleted it.
  user: Keep the till.
  assistant: I keep it.
[codex] Write the prices. (1)
  user: Tool calls are summarised as “→ tool: `args`” lines; their output is not included.] | Write the prices.
  assistant: → exec_command: `ls` | till.txt | Done.
  user: Delete the till.
  assistant: I deleted it.
  user: Keep the till.
  assistant: I keep it.
SEEN
