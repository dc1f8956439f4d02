#!/usr/bin/env bash
# agent-context-manager 0.1.0 (PyPI): what its sliding window drops, when it is full, are the newest messages, first of all the
# question that has just been added.
#
# Behaviour seen: SlidingWindowStrategy, the default one, is to "Keep the most recent N messages", N being 20. Of these it adds
# one after the other, the oldest first, until the limit of tokens is reached, and leaves out the rest. (1) What is over 90% of
# the limit is compressed to 72%. New messages come in until then, and all of them are thrown out at once: of 20 turns of equal
# messages the context is the first seven messages in the end, and the other 33 are in nothing. (2) The message that makes it
# too full is among those that go. Of the 20 questions, five are not in get_context() right after they were added, so that the
# model would be asked nothing. (3) A question longer than what is left is gone at once, while older ones stay. None of it is
# an error or a warning; `token_count` is below the limit, as it should be. With OverflowPolicy.TRUNCATE, which has code of its
# own, the oldest go.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check agent-context-manager==0.1.0
cat >window.py <<'PY'
from agent_context_manager import ContextManager, OverflowPolicy


class Words:
    """Counts words, so that the counts here are plain."""

    def count_tokens(self, text):
        return len(text.split())

    def count_message_tokens(self, message):
        return self.count_tokens(message["content"])

    def count_messages_tokens(self, messages):
        return sum(map(self.count_message_tokens, messages))


def names(manager):
    return [message["content"].split()[0] for message in manager.get_context()]


def talk(turns, **options):
    manager = ContextManager(max_tokens=1000, tokenizer=Words(), **options)
    unseen = []
    for turn in range(1, turns + 1):
        for name in (f"question{turn}", f"answer{turn}"):
            manager.add_message({"role": "user" if "question" in name else "assistant", "content": f"{name} " + "word " * 99})
            if name not in names(manager) and "question" in name:
                unseen.append(name)
    print(f"after {turns} turns, {manager.token_count} tokens:", *names(manager))
    print("  not in the context when asked:", *unseen)
    return manager


talk(20)
manager = talk(3)
manager.add_message({"role": "user", "content": "long-question " + "word " * 400})
print("with a long question:", *names(manager))
print("TRUNCATE:")
talk(20, overflow_policy=OverflowPolicy.TRUNCATE)
PY
venv/bin/python window.py 2>&1 | tee seen
diff seen - <<'SEEN'
after 20 turns, 700 tokens: question1 answer1 question2 answer2 question3 answer3 question4
  not in the context when asked: question7 question10 question13 question16 question19
after 3 turns, 600 tokens: question1 answer1 question2 answer2 question3 answer3
  not in the context when asked:
with a long question: question1 answer1 question2 answer2 question3 answer3
TRUNCATE:
after 20 turns, 1000 tokens: question16 answer16 question17 answer17 question18 answer18 question19 answer19 question20 answer20
  not in the context when asked:
SEEN
