#!/usr/bin/env bash
# lykos-cctx 0.3.0 (PyPI, `cctx`), which forks, trims and splices sessions of Claude Code: a trim or a splice that begins at a
# turn that was taken back makes it part of the conversation, and the conversation longer.
#
# Behaviour seen: after a rewind in Claude Code the next prompt names the row it went back to, and what was taken back stays in
# the file. cctx says itself that the context "is the linked list walked back from the tail, NOT file order", but its numbered
# turns, from which cuts are chosen, are those of the file, without a mark at the one that was taken back, turn 2 here. (1)
# `fork --from 2` "drops turns 1-1, keeps 2-4". The row that turn 3 went on from is not kept, and so turn 3 is hung on the
# row above it in the file, the end of turn 2: in the new session "Keep the till." follows on "I deleted it.", below a marker
# that says "The conversation continues verbatim from the next message". The trim of a turn makes eight rows of the six that
# were in the context. (2) `splice --from 2` appends the same to another session, "rewritten in place". Anthropic's own
# claude-agent-sdk 0.2.189, which reads a session as Claude Code resumes it, shows what is printed here.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check lykos-cctx==0.3.0 claude-agent-sdk==0.2.189
export HOME=$work PATH="$work/venv/bin:$PATH" COLUMNS=200 TZ=UTC
unset CLAUDE_CONFIG_DIR
cat >write.py <<'PY'
import json
from pathlib import Path

FOLDER = Path(".claude/projects/-home-ann-shop")
FOLDER.mkdir(parents=True)


def write(number, *said):
    """Write a session; each row is what it follows on, its role, and its words."""
    session = f"{number}1111111-1111-4111-8111-111111111111"
    lines = []
    for row, (parent, role, words) in enumerate(said, 1):
        names = [f"{number}0000000-0000-4000-8000-{name:012d}" if name else None for name in (row, parent)]
        message = {"role": role, "content": words}
        if role == "assistant":
            usage = {"input_tokens": 1000 * row, "output_tokens": 10}
            message = {"id": f"msg_{number}{row}", "type": "message", "model": "claude-opus-5", "usage": usage} | message
            message["content"] = [{"type": "text", "text": words}]
        about = {"isSidechain": False, "userType": "external", "cwd": "/home/ann/shop", "version": "2.1.332"}
        time = f"2026-11-30T10:00:{row:02d}.000Z"
        lines.append({"uuid": names[0], "parentUuid": names[1], "sessionId": session, "timestamp": time, "type": role})
        lines[-1] |= about | {"message": message}
    (FOLDER / f"{session}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


write(
    1,
    (0, "user", "Look at the till."),
    (1, "assistant", "I looked."),
    (2, "user", "Delete the till."),
    (3, "assistant", "I deleted it."),
    (2, "user", "Keep the till."),
    (5, "assistant", "I keep it."),
    (6, "user", "Count it."),
    (7, "assistant", "42 euros."),
)
write(2, (0, "user", "Good morning."), (1, "assistant", "Good morning, Ann."))
PY
cat >show.py <<'PY'
from claude_agent_sdk import get_session_messages, list_sessions

for session in sorted(list_sessions(), key=lambda session: (session.custom_title or "", session.session_id)):
    print(session.custom_title or session.session_id[:8])
    for message in get_session_messages(session.session_id):
        content = message.message["content"]
        print("  ", (content if isinstance(content, str) else content[0]["text"])[:130])
PY
python write.py
cctx show 11111111 >turns
cctx fork 11111111 --from 2 --yes >fork.log
cctx splice 11111111 --onto 21111111 --from 2 --until 4 --yes >splice.log
{
  grep -a "^[1-4] .*10:00" turns | sed 's/  */ /g; s/ *$//'
  grep -ahoE "active chain [0-9]+" fork.log splice.log
  python show.py
} | tee seen
diff seen - <<'SEEN'
1 11-30 10:00 0 Look at the till.
2 11-30 10:00 0 Delete the till.
3 11-30 10:00 0 Keep the till.
4 11-30 10:00 0 Count it.
active chain 8
active chain 8
11111111
   Look at the till.
   I looked.
   Keep the till.
   I keep it.
   Count it.
   42 euros.
21111111
   Good morning.
   Good morning, Ann.
   Delete the till.
   I deleted it.
   Keep the till.
   I keep it.
   Count it.
   42 euros.
11111111 (trim @2)
   This session is being continued from a previous conversation. Earlier context was trimmed at this point by cctx. The conversation 
   Delete the till.
   I deleted it.
   Keep the till.
   I keep it.
   Count it.
   42 euros.
SEEN
