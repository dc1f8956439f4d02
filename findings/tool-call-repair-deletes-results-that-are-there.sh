#!/usr/bin/env bash
# tool-call-repair 0.1.0 and tessera-transcript 0.1.0 (PyPI), both for "tool_use ids were found without tool_result blocks":
# one deletes calls and results of valid histories, the other takes a history for valid that providers refuse.
#
# Behaviour seen: (1) Anthropic's API takes messages of one role that follow on each other as one turn ("will be combined into a
# single turn", says anthropic's own package). tool-call-repair looks for results in the very next message, and for the call in the
# very one before. A result per message, or a call per message, as Claude Code writes them: it says that both are orphans, and
# repair() takes one of the two payments out of the history. With strategy="synthesize", which it names for the middle of a
# conversation, the result "paid a" becomes an error, "its result was lost", beside an answer that says that both are
# paid. Its README promises that "an already-valid history" stays byte-identical. (2) Where the user said something while the tool
# ran, so that the result is one message further on, it deletes it in the same way; OpenAI's form too. turnsafe 0.1.0, a third
# package for this, moves it back behind its call. (3) tessera, asked "Is this safe to send?", says yes to that history, and its
# repair() leaves it: it looks only whether the result is somewhere behind the call.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check tool-call-repair==0.1.0 tessera-transcript==0.1.0 turnsafe==0.1.0 anthropic==2.14.0
export HOME=$work
cat >pairs.py <<'PY'
import inspect

import tessera
import toolrepair
import turnsafe
from anthropic.types import message_create_params


def calls(*names):
    blocks = [{"type": "tool_use", "id": name, "name": "pay", "input": {"bill": name}} for name in names]
    return {"role": "assistant", "content": blocks}


def results(*names):
    blocks = [{"type": "tool_result", "tool_use_id": name, "content": f"paid {name}"} for name in names]
    return {"role": "user", "content": blocks}


def shown(messages):
    found = []
    for message in messages:
        content = message["content"]
        for block in [content] if isinstance(content, str) else content or []:
            if isinstance(block, str):
                found.append(block)
            else:
                found.append(block.get("content") or block.get("text") or f"pay {block['id']}")
        found += [f"pay {call['id']}" for call in message.get("tool_calls") or []]
    return " | ".join(text.split(":")[0] for text in found)


ASK, HURRY = {"role": "user", "content": "Pay."}, {"role": "user", "content": "Hurry."}
DONE = {"role": "assistant", "content": [{"type": "text", "text": "All paid."}]}
CALL = {"id": "a", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
HISTORIES = {
    "a result per message": [ASK, calls("a", "b"), results("a"), results("b"), DONE],
    "a call per message": [ASK, calls("a"), calls("b"), results("a", "b"), DONE],
    "a word between": [ASK, calls("a"), HURRY, results("a"), DONE],
    "a word between, OpenAI": [
        ASK,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        HURRY,
        {"role": "tool", "tool_call_id": "a", "content": "paid a"},
        {"role": "assistant", "content": "All paid."},
    ],
}
said = " ".join(inspect.getsource(message_create_params).split())
print("Consecutive `user` or `assistant` turns in your request will be combined into a single turn" in said)
for name, history in HISTORIES.items():
    print(f"{name}: {shown(history)}")
    print("  valid:", toolrepair.is_valid(history), bool(tessera.inspect(history)), turnsafe.validate(history).ok)
    print("  tool-call-repair:", shown(toolrepair.repair(history)))
    print("  with synthesize:", shown(toolrepair.repair(history, strategy="synthesize")))
    print("  tessera:", shown(tessera.repair(history).transcript))
    print("  turnsafe:", shown(turnsafe.repair(history)))
PY
venv/bin/python pairs.py | tee seen
diff seen - <<'SEEN'
True
a result per message: Pay. | pay a | pay b | paid a | paid b | All paid.
  valid: False True True
  tool-call-repair: Pay. | pay a | paid a | All paid.
  with synthesize: Pay. | pay a | pay b | Tool result unavailable | paid a | All paid.
  tessera: Pay. | pay a | pay b | paid a | paid b | All paid.
  turnsafe: Pay. | pay a | pay b | paid a | paid b | All paid.
a call per message: Pay. | pay a | pay b | paid a | paid b | All paid.
  valid: False True True
  tool-call-repair: Pay. | pay b | paid b | All paid.
  with synthesize: Pay. | pay a | Tool result unavailable | pay b | paid b | All paid.
  tessera: Pay. | pay a | pay b | paid a | paid b | All paid.
  turnsafe: Pay. | pay a | pay b | paid a | paid b | All paid.
a word between: Pay. | pay a | Hurry. | paid a | All paid.
  valid: False True False
  tool-call-repair: Pay. | Hurry. | All paid.
  with synthesize: Pay. | pay a | Tool result unavailable | Hurry. | All paid.
  tessera: Pay. | pay a | Hurry. | paid a | All paid.
  turnsafe: Pay. | pay a | paid a | Hurry. | All paid.
a word between, OpenAI: Pay. | pay a | Hurry. | paid a | All paid.
  valid: False True False
  tool-call-repair: Pay. | Hurry. | All paid.
  with synthesize: Pay. | pay a | Tool result unavailable | Hurry. | All paid.
  tessera: Pay. | pay a | Hurry. | paid a | All paid.
  turnsafe: Pay. | pay a | paid a | Hurry. | All paid.
SEEN
