#!/usr/bin/env bash
# langmem 0.0.30 (PyPI), summarize_messages: by its defaults a summary leaves out the first messages that it stands for.
#
# Behaviour seen: a conversation is summarized when its new messages reach `max_tokens` (what `max_tokens_before_summary` is
# by default), and the model is given the last `max_tokens` of them, less the size of the summary before. So each summary
# after the first leaves out its oldest messages, here turn 6; and the first one does, too, here turn 1 with the task,
# unless the messages add up to the limit exactly. All of them are noted as summarized: they are in no summary and in no
# later request. The docstring says that the last `max_tokens` are summarized if there are more, not that there always are.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check langmem==0.0.30 langchain-core==1.8.3 langgraph==1.2.24
cat >summaries.py <<'PY'
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langmem.short_term import summarize_messages

LIMIT = 100


def words(messages):
    return sum(len(str(message.content).split()) for message in messages)


def talk(size):
    summarized = []

    def model(messages):
        # The last message asks for the summary.
        summarized.append(" ".join(str(message.content).split()[0] for message in messages[:-1]))
        return AIMessage("a summary")

    history, summary, sent = [], None, []
    for turn in range(1, 11):
        for kind, name in ((HumanMessage, f"u{turn}"), (AIMessage, f"a{turn}")):
            history.append(kind(name + " word" * (size - 1), id=name))
        result = summarize_messages(
            history,
            running_summary=summary,
            model=RunnableLambda(model),
            max_tokens=LIMIT,
            max_summary_tokens=20,
            token_counter=words,
        )
        summary, sent = result.running_summary or summary, result.messages
    print(f"messages of {size} words")
    for text in summarized:
        print("  summarized:", text)
    print("  noted as summarized:", len(summary.summarized_message_ids), "sent:", len(sent))


talk(10)
talk(11)
PY
venv/bin/python summaries.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
messages of 10 words
  summarized: u1 a1 u2 a2 u3 a3 u4 a4 u5 a5
  summarized: u7 a7 u8 a8 u9 a9 u10 a10
  noted as summarized: 20 sent: 1
messages of 11 words
  summarized: u2 a2 u3 a3 u4 a4 u5 a5
  summarized: u7 a7 u8 a8 u9 a9 u10 a10
  noted as summarized: 20 sent: 1
SEEN
