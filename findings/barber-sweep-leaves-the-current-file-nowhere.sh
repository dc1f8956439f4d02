#!/usr/bin/env bash
# barber-llm 0.7.0 (PyPI), its sweep() of coding agents' messages: what a file holds now is taken out of the history altogether, and
# what a refused call did not overwrite is called overwritten.
#
# Behaviour seen: sweep() drops "content the transcript itself proves is no longer true", "which cannot be wrong": reads of a file
# modified since, bodies that were rewritten later, results that repeat an earlier one. "Nothing is judged". (1) An edit is taken
# back by a second edit, and the file read again: the first read is dropped since the file was modified after it, and the
# last one, which is how the file is now, since it repeats the first. The text is in no message, and the note in its place,
# "identical to an earlier tool result in this conversation", points to the one that was dropped, naming no file. (2) So it
# is with a file that begins as a copy of another: the copy was never changed, and its text is gone once the other is. (3) A
# call counts before its result is looked at. The user refuses to have a file written: the read before it is dropped, "a.py was
# modified after this read, so this is not its current content", and with a body in place of the read, "a.py was rewritten
# later". Neither is so. The one text of a.py that is left is what the user refused.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check barber-llm==0.7.0
export HOME=$work
cat >sweep.py <<'PY'
from barber.agent import sweep

OLD = "\n".join(f"old line {number}" for number in range(1, 41))
NEW = "\n".join(f"new line {number}" for number in range(1, 41))
UPDATED = "The file a.py has been updated."
REFUSED = "The user doesn't want to proceed with this tool use. The tool use was rejected."


class Talk:
    """Messages of Anthropic's form, with the tools of Claude Code."""

    def __init__(self):
        self.messages = [{"role": "user", "content": "Mend it."}]

    def call(self, tool, path, result, **given):
        name = f"toolu_{len(self.messages)}"
        use = {"type": "tool_use", "id": name, "name": tool, "input": {"file_path": path, **given}}
        block = {"type": "tool_result", "tool_use_id": name, "content": result, "is_error": result == REFUSED}
        self.messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [block]}]

    def show(self, about):
        swept = sweep(self.messages)
        print(f"{about}, {swept.chunks_dropped} dropped")
        for message in swept.messages[1:]:
            (block,) = message["content"]
            if block["type"] == "tool_use":
                given = block["input"]
                print(f"  {block['name']}", *[text.split("\n")[0] for text in given.values()])
            else:
                print("    ", block["content"].split("\n")[0])
        print("  the old text is there:", any("old line 40" in str(message) for message in swept.messages))


talk = Talk()
talk.call("Read", "a.py", OLD)
talk.call("Edit", "a.py", UPDATED, old_string="old line 1", new_string="bad line 1")
talk.call("Edit", "a.py", UPDATED, old_string="bad line 1", new_string="old line 1")
talk.call("Read", "a.py", OLD)
talk.show("an edit, taken back")

talk = Talk()
talk.call("Read", "a.py", OLD)
talk.call("Read", "b.py", OLD)
talk.call("Write", "a.py", UPDATED, content=NEW)
talk.show("a copy")

talk = Talk()
talk.call("Read", "a.py", OLD)
talk.call("Write", "a.py", REFUSED, content=NEW)
talk.show("a write after a read, refused")

talk = Talk()
talk.call("Write", "a.py", "File created successfully at: a.py", content=OLD)
talk.call("Write", "a.py", REFUSED, content=NEW)
talk.show("a write after a write, refused")
PY
venv/bin/python sweep.py 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
an edit, taken back, 2 dropped
  Read a.py
     [… read omitted: a.py was modified after this read, so this is not its current content — read the file again if you need it …]
  Edit a.py old line 1 bad line 1
     The file a.py has been updated.
  Edit a.py bad line 1 old line 1
     The file a.py has been updated.
  Read a.py
     [… identical to an earlier tool result in this conversation …]
  the old text is there: False
a copy, 2 dropped
  Read a.py
     [… read omitted: a.py was modified after this read, so this is not its current content — read the file again if you need it …]
  Read b.py
     [… identical to an earlier tool result in this conversation …]
  Write a.py new line 1
     The file a.py has been updated.
  the old text is there: False
a write after a read, refused, 1 dropped
  Read a.py
     [… read omitted: a.py was modified after this read, so this is not its current content — read the file again if you need it …]
  Write a.py new line 1
     The user doesn't want to proceed with this tool use. The tool use was rejected.
  the old text is there: False
a write after a write, refused, 1 dropped
  Write a.py [… body omitted: a.py was rewritten later in this conversation, so this is not its current content — read the file if you need it …]
     File created successfully at: a.py
  Write a.py new line 1
     The user doesn't want to proceed with this tool use. The tool use was rejected.
  the old text is there: False
SEEN
