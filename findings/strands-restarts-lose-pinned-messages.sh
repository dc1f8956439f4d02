#!/usr/bin/env bash
# strands-agents 1.62.0 (PyPI), conversation managers with `pin_first` and FileSessionManager: what was pinned "permanently"
# is gone after a restart, and another message is pinned in its place.
#
# Behaviour seen: a session keeps how many messages were removed, and a restart leaves out that many from the beginning of
# what is stored. A pinned message is not counted, as it was not removed, but it is the first one there. (1) With a window of
# four and the first message pinned, the model is sent question 1 until the restart (between questions 5 and 6), and never
# again; in its place comes an answer that had left the window, so that the messages begin with an answer. (2) The new manager
# pins the first message that it sees: that answer stays. (3) With SummarizingConversationManager nothing is left of
# the pinned question, since what is pinned is in no summary, and an answer is there twice, summarized and in words. The
# files have it all, and without `pin_first` a restart changes nothing. The docstrings do not say so.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check strands-agents==1.62.0
cat >pinned.py <<'PY'
from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager, SummarizingConversationManager
from strands.models.model import Model
from strands.session import FileSessionManager


class MadeUp(Model):
    """Answers each question by its number, and sums up by naming what it is given."""

    sent = []

    def get_config(self):
        return {}

    def update_config(self, **_):
        pass

    def structured_output(self, *_, **__):
        raise NotImplementedError

    async def stream(self, messages, tool_specs=None, system_prompt=None, **_):
        texts = [block["text"] for message in messages for block in message["content"]]
        if texts[-1].startswith("question"):
            self.sent = texts
            text = texts[-1].replace("question", "answer")
        else:
            text = f"summary of {', '.join(texts[:-1])}"
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def window(pin_first):
    return SlidingWindowConversationManager(window_size=4, pin_first=pin_first)


def summaries(pin_first):
    return SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=2, pin_first=pin_first)


def talk(name, make, pin_first, numbers):
    """Go on with the session as a new process does, and say what the model was sent at each question."""
    agent = Agent(
        model=MadeUp(),
        callback_handler=None,
        agent_id="agent",
        conversation_manager=make(pin_first),
        session_manager=FileSessionManager(session_id=name, storage_dir="sessions"),
    )
    for number in numbers:
        if make is summaries and number == 5:
            agent.conversation_manager.reduce_context(agent)
        agent(f"question {number}")
        if number in (5, 6, 8):
            print(f"{name}, question {number}:", " | ".join(agent.model.sent))


for name, make, pin_first in (("window", window, None), ("window, pinned", window, 1), ("summary, pinned", summaries, 1)):
    talk(name, make, pin_first, range(1, 6))
    talk(name, make, pin_first, range(6, 9))
PY
venv/bin/python pinned.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
window, question 5: question 3 | answer 3 | question 4 | answer 4 | question 5
window, question 6: question 4 | answer 4 | question 5 | answer 5 | question 6
window, question 8: question 6 | answer 6 | question 7 | answer 7 | question 8
window, pinned, question 5: question 1 | question 3 | answer 3 | question 4 | answer 4 | question 5
window, pinned, question 6: answer 3 | question 4 | answer 4 | question 5 | answer 5 | question 6
window, pinned, question 8: answer 3 | question 6 | answer 6 | question 7 | answer 7 | question 8
summary, pinned, question 5: question 1 | summary of answer 1, question 2, answer 2 | question 3 | answer 3 | question 4 | answer 4 | question 5
summary, pinned, question 6: summary of answer 1, question 2, answer 2 | answer 2 | question 3 | answer 3 | question 4 | answer 4 | question 5 | answer 5 | question 6
summary, pinned, question 8: summary of answer 1, question 2, answer 2 | answer 2 | question 3 | answer 3 | question 4 | answer 4 | question 5 | answer 5 | question 6 | answer 6 | question 7 | answer 7 | question 8
SEEN
