#!/usr/bin/env bash
# chatfit 0.4.0 (PyPI): its rolling memory folds questions into the summary and throws answers away.
#
# Behaviour seen: ChatMemory "keeps recent turns verbatim while incrementally folding older ones into a single rolling summary",
# and its docs begin with "Remembers, doesn't just delete". When it is full, the oldest message is folded, one at a time, until
# the rest fits; then answers that the rest begins with are taken away, "whose user turn was removed". No summary is made of
# them. (1) Twelve turns of equal messages: of the eight that left the window, all questions were given to the summarizer, and
# one answer, the first. Seven answers are in nothing, and the summary is made of the user's words alone. (2) This is done
# at each message, full or not: a greeting of the assistant with which a talk begins is gone at once, far below the limit. (3)
# fit(), the function without a memory, takes the answer at its cut away too, after the summary was made, and says that it is
# gone only in `dropped_count`. (4) If what it takes away called a tool, the tool's result stays, now the first message after
# the summary; OpenAI refuses a result without its call.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check chatfit==0.4.0
cat >remember.py <<'PY'
import re

from chatfit import ChatMemory, fit

summarized = []


def summarize(messages):
    """Keeps the names of all it was ever given."""
    found = [name for message in messages for name in re.findall(r"question\d+|answer\d+", message["content"])]
    summarized.extend(name for name in found if name not in summarized)
    return " ".join(found)


def text(name):
    return f"{name} " + "word " * 20


def names(messages):
    return [message["content"].split()[0] for message in messages if "Summary" not in message["content"]]


memory = ChatMemory(max_tokens=300, summarizer=summarize)
for turn in range(1, 13):
    memory.add_user(text(f"question{turn}"))
    memory.add_assistant(text(f"answer{turn}"))
print("in the window:", *names(memory.render()))
print("ever summarized:", *summarized)

memory = ChatMemory(max_tokens=1000)
memory.add_assistant("Hello! How can I help?")
memory.add_user("Where is it?")
print("begun with a greeting:", [message["role"] for message in memory.render()])

summarized.clear()
messages = []
for turn in range(1, 7):
    messages += [{"role": "user", "content": text(f"question{turn}")}, {"role": "assistant", "content": text(f"answer{turn}")}]
fitted = fit(messages, 260, summarizer=summarize)
print("fit, in the window:", *names(fitted.messages))
print("fit, summarized:", *summarized)

call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
step = [
    {"role": "user", "content": text("question1") * 3},
    {"role": "assistant", "content": "", "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "1", "content": text("seen")},
    {"role": "assistant", "content": text("answer1")},
    {"role": "user", "content": text("question2")},
]
print("fit, with a tool:", [message["role"] for message in fit(step, 150, summarizer=summarize).messages])
PY
venv/bin/python remember.py 2>&1 | tee seen
diff seen - <<'SEEN'
in the window: question9 answer9 question10 answer10 question11 answer11 question12 answer12
ever summarized: question1 answer1 question2 question3 question4 question5 question6 question7 question8
begun with a greeting: ['user']
fit, in the window: question5 answer5 question6 answer6
fit, summarized: question1 answer1 question2 answer2 question3 answer3 question4
fit, with a tool: ['system', 'tool', 'assistant', 'user']
SEEN
