#!/usr/bin/env bash
# agent-migrator 0.1.1 (PyPI), between Codex and Claude Code: a plan that the user refused arrives as approved, and an edit that
# failed as done.
#
# Behaviour seen: README's table of what gets migrated has text messages, tool calls and plans. (1) Codex proposes to drop
# tables, the user says no, Codex proposes to archive them, the user says not to start yet. In Claude Code the first proposal is
# gone; in its place the model calls ExitPlanMode with the second plan, and its result says "User has approved your plan. You can
# now start coding", twice against what the user said. The second proposal is there once more, as words. (2) The other way,
# Claude Code's plans are kept and what the user answered to them is not: in Codex two proposals follow on each other, and nobody
# has said no to the first one, nor "Archive them". (3) A patch of Codex for two files fails as a whole. In Claude Code it is two
# edits: the first has the result "File edited successfully.", the failure is the second one's alone. (4) A patch that only
# deletes a file is left out with its result. (5) An edit of Claude Code that failed is in Codex a patch with the status
# "completed", its event "success: true", and the line "Updated" beside the failure.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check agent-migrator==0.1.1
export HOME=$work
mkdir project .claude .codex
cat >move.py <<'PY'
import json
import subprocess
from pathlib import Path

HOME = Path.home()
PROJECT = HOME / "project"
STAMP = "2026-11-01T10:00:00.000Z"


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def to_codex(name, *items):
    """A rollout of Codex."""
    meta = {"id": name, "timestamp": STAMP, "cwd": str(PROJECT), "originator": "codex_cli_rs", "cli_version": "0.120.0"}
    meta |= {"source": "cli", "model_provider": "openai"}
    rows = [{"timestamp": STAMP, "type": "session_meta", "payload": meta}]
    rows += [{"timestamp": STAMP, "type": "response_item", "payload": item} for item in items]
    folder = HOME / ".codex/sessions/2026/11/01"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"rollout-2026-11-01T10-00-00-{name}.jsonl").write_text(lines(rows))


def to_claude(name, *messages):
    """A session of Claude Code."""
    rows, parent = [], None
    for number, (role, content) in enumerate(messages):
        row = {"parentUuid": parent, "isSidechain": False, "type": role, "uuid": f"{name}-{number}", "timestamp": STAMP}
        row |= {"sessionId": name, "cwd": str(PROJECT), "version": "2.1.0", "userType": "external", "gitBranch": ""}
        row["message"] = {"role": role, "content": content}
        if role == "assistant":
            row["message"] |= {"id": f"msg_{number}", "type": "message", "model": "claude-sonnet-4-6"}
        rows.append(row)
        parent = row["uuid"]
    folder = HOME / ".claude/projects" / str(PROJECT).replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jsonl").write_text(lines(rows))


def move(source, target, name):
    command = ["venv/bin/agent-migrator", "move", "--from", source, "--to", target, "--id", name, "--dir", str(PROJECT)]
    made = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)[0]["destination_id"]
    (path,) = HOME.glob(f".{'claude/projects' if target == 'claude-code' else 'codex/sessions'}/**/*{made}.jsonl")
    print(f"{name[-1]}, from {source} to {target}:")
    return [json.loads(line) for line in path.read_text().splitlines()]


def show_claude(rows):
    for row in rows:
        content = row.get("message", {}).get("content") or []
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "text":
                print(f"  {row['type']}:", " ".join(block["text"].split()))
            elif block["type"] == "tool_use":
                print("  call:", block["name"], *block["input"].values())
            else:
                print("  result:", " ".join(block["content"].split())[:62])


def show_codex(rows):
    for row in rows:
        item = row["payload"]
        if row["type"] == "response_item" and item["type"] == "message":
            print(f"  {item['role']}:", " ".join(item["content"][0]["text"].split()))
        elif row["type"] == "response_item":
            print(f"  {item['type']}:", *[repr(item[key]) for key in ("status", "output") if key in item])
        elif item.get("type") in ("patch_apply_end", "agent_message"):
            print(f"  event {item['type']}:", item.get("success", " ".join(item.get("message", "").split())))


def user(text):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def assistant(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def patch(call, text, output):
    text = f"*** Begin Patch\n{text}\n*** End Patch"
    called = {"type": "custom_tool_call", "status": "completed", "call_id": call, "name": "apply_patch", "input": text}
    return called, {"type": "custom_tool_call_output", "call_id": call, "output": output}


def call(name, tool, **given):
    return "assistant", [{"type": "tool_use", "id": name, "name": tool, "input": given}]


def result(name, text, error):
    return "user", [{"type": "tool_result", "tool_use_id": name, "content": text, "is_error": error}]


def plan(text):
    return assistant(f"<proposed_plan>\n{text}\n</proposed_plan>")


ID = "019a0000-0000-7000-8000-00000000000"
to_codex(
    ID + "1",
    user("Plan the cleanup."),
    plan("Drop the old tables."),
    user("No. Archive them."),
    plan("Archive the old tables."),
    user("Do not start yet."),
)
show_claude(move("codex", "claude-code", ID + "1"))

REFUSED = "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\n"
to_claude(
    ID + "2",
    ("user", "Plan the cleanup."),
    call("toolu_1", "ExitPlanMode", plan="Drop the old tables."),
    result("toolu_1", REFUSED + "No. Archive them.", True),
    call("toolu_2", "ExitPlanMode", plan="Archive the old tables."),
    result("toolu_2", "User has approved your plan. You can now start coding.", False),
    ("assistant", [{"type": "text", "text": "Starting."}]),
)
show_codex(row for row in move("claude-code", "codex", ID + "2") if row["type"] == "response_item")

CHANGES = "*** Update File: one.txt\n@@\n-a\n+b\n*** Update File: two.txt\n@@\n-c\n+d"
to_codex(
    ID + "3",
    user("Change both files, then delete the third."),
    *patch("call_1", CHANGES, "apply_patch verification failed: Failed to find expected lines in two.txt: c"),
    *patch("call_2", "*** Delete File: three.txt", "Success. Updated the following files:\nD three.txt"),
    assistant("Deleted the third only."),
)
show_claude(move("codex", "claude-code", ID + "3"))

to_claude(
    ID + "4",
    ("user", "Change it."),
    call("toolu_1", "Edit", file_path="one.txt", old_string="a", new_string="b"),
    result("toolu_1", "<tool_use_error>String to replace not found in file.</tool_use_error>", True),
    ("assistant", [{"type": "text", "text": "It is not there."}]),
)
show_codex(move("claude-code", "codex", ID + "4"))
PY
venv/bin/python move.py 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
1, from codex to claude-code:
  user: Plan the cleanup.
  call: ExitPlanMode Archive the old tables.
  result: User has approved your plan. You can now start coding. Start w
  user: No. Archive them.
  assistant: <proposed_plan> Archive the old tables. </proposed_plan>
  user: Do not start yet.
2, from claude-code to codex:
  user: Plan the cleanup.
  assistant: <proposed_plan> Drop the old tables. </proposed_plan>
  assistant: <proposed_plan> Archive the old tables. </proposed_plan>
  assistant: Starting.
3, from codex to claude-code:
  user: Change both files, then delete the third.
  call: Edit one.txt a b
  call: Edit two.txt c d
  result: File edited successfully.
  result: apply_patch verification failed: Failed to find expected lines
  assistant: Deleted the third only.
4, from claude-code to codex:
  user: Change it.
  custom_tool_call: 'completed'
  event agent_message: Updated `one.txt`
  event patch_apply_end: True
  custom_tool_call_output: '<tool_use_error>String to replace not found in file.</tool_use_error>'
  assistant: It is not there.
  event agent_message: It is not there.
SEEN
