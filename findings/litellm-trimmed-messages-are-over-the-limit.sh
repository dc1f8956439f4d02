#!/usr/bin/env bash
# litellm 1.110.2 (PyPI), trim_messages: what it trims is over the limit where a tool has just answered, is not trimmed at all
# where a question has a picture, and has results of tools without their calls.
#
# Behaviour seen, with a limit of 200 tokens: its docs say "trim_messages ensures tokens(messages) < max_tokens". (1) Results
# of tools at the end are set aside before anything is counted, and put back: a result of 5,000 tokens goes through, and where
# the rest is trimmed to the limit, the sum is over it. So it is at each step of an agent. (2) A message that does not fit is
# cut in its middle. If its content is a list, as with a picture, this fails: the error goes to the log, and the list is
# returned as it came, five times the limit; without the picture it is trimmed. (3) Of an older step the result is kept, cut
# to what is left, and the call that it answers is not: OpenAI refuses such a list (its issue 10696, open since 2025).
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check litellm==1.110.2
cat >trim.py <<'PY'
from litellm import token_counter
from litellm.utils import trim_messages

SYSTEM = {"role": "system", "content": "Be careful."}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
FUNCTION = {"name": "look", "arguments": "{}"}
CALL = {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "1", "type": "function", "function": FUNCTION}]}


def user(content):
    return {"role": "user", "content": content}


def answer(content):
    return {"role": "assistant", "content": content}


def result(words):
    return {"role": "tool", "tool_call_id": "1", "content": "word " * words}


def count(messages):
    return token_counter(model="gpt-4", messages=messages)


def show(name, messages):
    trimmed = trim_messages(messages, model="gpt-4", max_tokens=200)
    roles = " ".join("call" if "tool_calls" in message else message["role"] for message in trimmed[-5:])
    print(f"{name}: {count(messages)} tokens trimmed to {count(trimmed)}, {len(trimmed)} messages, the last {roles}")


talk = [SYSTEM]
for number in range(10):
    talk += [user(f"question {number} " * 20), answer("answer " * 20)]
long = "What is this? " * 40
show("long result", [SYSTEM, user("Look."), CALL, result(5000)])
show("long talk, result", [*talk, user("Look."), CALL, result(150)])
show("long question", [*talk, user(long), answer("A cat."), user("Sure?")])
show("long question, picture", [*talk, user([{"type": "text", "text": long}, PICTURE]), answer("A cat."), user("Sure?")])
show("older step", [SYSTEM, user("Look."), CALL, result(300), answer("It is free."), user("Thanks.")])
PY
LITELLM_LOCAL_MODEL_COST_MAP=True venv/bin/python trim.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
long result: 5049 tokens trimmed to 5049, 4 messages, the last system user call tool
long talk, result: 1080 tokens trimmed to 349, 8 messages, the last user assistant user call tool
long question: 1088 tokens trimmed to 188, 4 messages, the last system user assistant user
long question, picture: 1173 tokens trimmed to 1173, 24 messages, the last user assistant user assistant user
older step: 344 tokens trimmed to 193, 4 messages, the last system tool assistant user
SEEN
