#!/usr/bin/env bash
# conversation-tk 2.20.2 (PyPI, `ctk`), an archive of chats as trees: of ChatGPT's export it keeps no code and no place in the
# tree, and importing the next export deletes what was said in ctk.
#
# Behaviour seen: (1) ChatGPT's export has the text of a message in `parts`, but of code that was run, and of what it
# printed, in `text`. Only `parts` is read: both messages are stored empty, in the database too, and no command says so. (2)
# The export names the message a conversation stands at (`current_node`). It is not stored, and what is exported is the
# longest path, by default: here two turns of a question that was edited, and not the edited one with the answer the person sees.
# (3) Chats go on in ctk's own window, in the imported conversation. Importing an export again, and every newer one has all
# chats in it, replaces the conversation: that turn is gone, and so is the tag; the marks stay. (4) `ctk db merge` (filter and
# split save alike) keeps the turn and the tag, and loses the marks: star, pin, and that the chat was archived.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check conversation-tk==2.20.2
export HOME=$work PATH="$work/venv/bin:$PATH"
cat >export.py <<'PY'
import json


def node(name, parent, role, content, recipient="all"):
    about = {"id": name, "author": {"role": role}, "create_time": 1700000000 + len(nodes), "content": content}
    rest = {"status": "finished_successfully", "end_turn": True, "weight": 1.0, "metadata": {}, "recipient": recipient}
    nodes.append({"id": name, "parent": parent, "children": [], "message": about | rest})


def text(words):
    return {"content_type": "text", "parts": [words]}


nodes = [{"id": "root", "parent": None, "children": [], "message": None}]
node("q1", "root", "user", text("What is in the till?"))
code = {"content_type": "code", "language": "python", "text": "print(sum(coins))"}
node("code", "q1", "assistant", code, recipient="python")
node("output", "code", "tool", {"content_type": "execution_output", "text": "42 euros"})
node("a1", "output", "assistant", text("As computed above."))
node("q2", "a1", "user", text("Old question"))
node("a2", "q2", "assistant", text("Old answer"))
node("q3", "a2", "user", text("Old question, again"))
node("a3", "q3", "assistant", text("Old answer, again"))
node("q4", "a1", "user", text("Edited question"))
node("a4", "q4", "assistant", text("Answer that is shown"))
mapping = {each["id"]: each for each in nodes}
for each in nodes[1:]:
    mapping[each["parent"]]["children"].append(each["id"])
chat = {"title": "Till", "create_time": 1700000000, "update_time": 1700000010, "mapping": mapping}
with open("conversations.json", "w") as file:
    json.dump([chat | {"current_node": "a4", "conversation_id": "till", "id": "till"}], file)
PY
cat >go_on.py <<'PY'
from ctk.core.database import ConversationDB
from ctk.core.models import Message, MessageContent, MessageRole

with ConversationDB("chats") as db:
    db.star_conversation("till")
    db.pin_conversation("till")
    db.archive_conversation("till")
    db.add_tags("till", ["money"])
    # What the window does with a turn: add to the tree, and save it.
    tree = db.load_conversation("till")
    tree.add_message(Message(id="own", role=MessageRole.USER, content=MessageContent(text="Said in ctk"), parent_id="a4"))
    db.save_conversation(tree)
PY
cat >show.py <<'PY'
import sys

from ctk.core.database import ConversationDB

with ConversationDB(sys.argv[1]) as db:
    tree = db.load_conversation("till")
about = tree.metadata
marks = [name for name in ("starred", "pinned", "archived") if getattr(about, f"{name}_at")]
print(f"{sys.argv[1]}: own turn {'own' in tree.message_map}, tag {'money' in about.tags}, marks {marks}")
PY
cat >exported.py <<'PY'
import json

with open("chats.jsonl") as file:
    (chat,) = map(json.loads, file)
print("exported:", " | ".join(f"{message['role']}: {message['content']}" for message in chat["messages"][:6]), "...")
PY
python export.py
{
  ctk import conversations.json --db chats
  ctk sql "SELECT id, content_json FROM messages WHERE id IN ('till::code', 'till::output') ORDER BY id" --db chats --format csv
  ctk export chats.jsonl --db chats >export.log
  python exported.py
  python go_on.py
  python show.py chats
  mkdir other
  ctk db merge chats other --output merged >merge.log
  python show.py merged
  ctk import conversations.json --db chats
  python show.py chats
} 2>errors | tr -d '\r' | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
Imported 1 conversation(s)
  Saved: Till (till)
id,content_json
till::code,"{""text"": """", ""type"": ""code""}"
till::output,"{""text"": """", ""type"": ""execution_output""}"
exported: user: What is in the till? | assistant:  | tool:  | assistant: As computed above. | user: Old question | assistant: Old answer ...
chats: own turn True, tag True, marks ['starred', 'pinned', 'archived']
merged: own turn True, tag True, marks []
Imported 1 conversation(s)
  Saved: Till (till)
chats: own turn False, tag False, marks ['starred', 'pinned', 'archived']
SEEN
