#!/usr/bin/env bash
# cheapskate 0.1.0 (PyPI) with langchain-core 0.3.80: what it compresses loses pictures, the indentation of code, and words
# of JSON, in the messages that it is to preserve as well.
#
# Behaviour seen: PromptCompressor, which CheapSkateRouter runs before each call, "compresses conversational fluff while
# protecting structured payloads", with preserve_system_messages=True and preserve_recent_turns=2. To preserve means here not to
# be cut by a budget: the rest is done to each message. (1) Content that is a list becomes one text, and a block without text
# its printed form: the picture of the last question is sent as the words "{'type': 'image_url', ...". (2) Runs of spaces
# become one: a Python function in the last question comes out with other indentation, and no longer compiles. (3) JSON is
# protected if it is flat. In a nested one, as tools return, the first closing brace ends it, what it finds is not valid, and
# words in it are taken away like others: "I actually agree" in a tool's result becomes "I agree". (4) The system prompt loses
# its "kindly" and "to be clear". The messages given are left as they are; nothing says what was changed.
#
# Needs Python 3.10 with venv and a registry; tokens are counted as words here, since its own counter downloads an encoding.
# Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check cheapskate==0.1.0 langchain-core==0.3.80
cat >squeeze.py <<'PY'
import json

from cheapskate import PromptCompressor
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage


class Words:
    def count_text(self, text):
        return len(text.split())

    def count_messages(self, messages):
        return sum(self.count_text(str(message.content)) for message in messages)


CODE = "def half(number):\n    if number:\n        number /= 2\n    return number"
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
FLAT = json.dumps({"said": "I actually agree"})
NESTED = json.dumps({"mail": {"said": "I actually agree"}})
CALL = {"name": "read", "args": {}, "id": "1"}


def last(message, *earlier):
    return PromptCompressor(token_counter=Words()).compress([SystemMessage("To be clear: kindly wait."), *earlier, message])[-1]


picture = last(HumanMessage([{"type": "text", "text": "What is this?"}, PICTURE]))
print("picture:", repr(picture.content))
code = last(HumanMessage(CODE)).content
print("code:", repr(code))
try:
    compile(code, "code", "exec")
except IndentationError as error:
    print("compiled:", type(error).__name__)
for name, payload in (("flat", FLAT), ("nested", NESTED)):
    result = ToolMessage(payload, tool_call_id="1")
    print(f"{name}:", last(result, HumanMessage("Read it."), AIMessage("", tool_calls=[CALL])).content)
print("system:", PromptCompressor(token_counter=Words()).compress([SystemMessage("To be clear: kindly wait.")])[0].content)
PY
venv/bin/python squeeze.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
picture: "What is this?\n{'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,iVBORw0KGgo='}}"
code: 'def half(number):\n if number:\n number /= 2\n return number'
compiled: IndentationError
flat: {"said": "I actually agree"}
nested: {"mail": {"said": "I agree"}}
system: wait.
SEEN
