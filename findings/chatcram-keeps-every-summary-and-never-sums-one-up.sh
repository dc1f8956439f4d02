#!/usr/bin/env bash
# chatcram 0.1.0 (PyPI): summaries are never taken into a later one. They pile up until they alone are over the budget, and from
# then on each turn pays for a summary of itself.
#
# Behaviour seen, with the numbers of its README (a budget of 4,000 tokens, 1,500 of them recent) and the defaults otherwise:
# what is older than the recent turns becomes "a single summary message". It has the role `system`, and "system messages" are
# "always kept, verbatim": the next summary is made of what came after the one before, and both stay. With turns and summaries
# of 200 tokens each (1) the first summaries stand for a dozen turns, later ones for fewer, as there is less room for turns.
# (2) After turn 98 the history is over the budget although it was compacted, and so it is after each later turn: one turn
# falls out of the recent ones, a summary of it is paid for, which is as long as it was, and the history grows on. After 200
# turns 115 summaries were paid for, all are in the history, no one was ever summarized, and it has 24,420 tokens. "Keep a
# long chat history within a token budget" is what the package is for; `summarized` is true throughout.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
export HOME=$work
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check chatcram==0.1.0
cat >summaries.py <<'PY'
from chatcram import Compactor

paid = []


def summarize(transcript):
    paid.append(transcript)
    return "word " * 152


compactor = Compactor(budget=4000, summarize=summarize, keep_recent=1500)
messages = [{"role": "system", "content": "You are a tutor."}]
over = 0
for turn in range(1, 201):
    messages += [
        {"role": "user", "content": f"question {turn:3} " + "word " * 76},
        {"role": "assistant", "content": f"answer {turn:3} " + "word " * 77},
    ]
    result = compactor.compact(messages)
    messages = result.messages
    if result.used_tokens > 4000 and not over:
        over = turn
    if turn % 40 == 0:
        kept = sum(message["content"].startswith("Summary of earlier") for message in messages)
        last = len(paid[-1].splitlines())
        print(f"turn {turn}: {result.used_tokens} tokens, {len(paid)} summaries paid, {kept} kept, the last of {last} messages")
print(f"over the budget first after turn {over}; summarized: {result.summarized}")
print("a summary in a summary:", any("Summary of earlier" in transcript for transcript in paid))
PY
venv/bin/python summaries.py | tee seen
diff seen - <<'SEEN'
turn 40: 3436 tokens, 2 summaries paid, 2 kept, the last of 24 messages
turn 80: 3426 tokens, 7 summaries paid, 7 kept, the last of 14 messages
turn 120: 8420 tokens, 35 summaries paid, 35 kept, the last of 2 messages
turn 160: 16420 tokens, 75 summaries paid, 75 kept, the last of 2 messages
turn 200: 24420 tokens, 115 summaries paid, 115 kept, the last of 2 messages
over the budget first after turn 98; summarized: True
a summary in a summary: False
SEEN
