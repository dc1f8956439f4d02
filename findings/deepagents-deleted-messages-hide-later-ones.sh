#!/usr/bin/env bash
# deepagents 0.7.32 (PyPI), SummarizationMiddleware: after messages of a thread were deleted, as many others are not sent, and
# no summary has them.
#
# Behaviour seen: the messages stay in the state; the middleware keeps a summary, and the number of messages that it stands for
# (`cutoff_index`), and sends the summary and the messages from that number on. LangGraph's way of deleting messages,
# `RemoveMessage`, leaves the number as it is. A thread of six questions has a summary of the first three. (1) The first two
# and their answers are deleted from the state, where only the summary stands for them: with the seventh question the model
# is sent neither the fourth nor the fifth, and no summary has these. (2) Questions three to six are taken back: the seventh
# is not sent, so that the model has a summary and no question, in which the third is as before. A warning in the log, that
# the number exceeds the count, is all that is said; in the first case it is not.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check deepagents==0.7.32 langchain==1.5.2 langgraph==1.2.24
cat >deleted.py <<'PY'
import re

from deepagents import create_deep_agent
from deepagents.backends import StateBackend
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, RemoveMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver


def questions(text):
    return list(dict.fromkeys(re.findall(r"(?:question|answer)\d", text)))


class Model(BaseChatModel):
    """Sums up by naming the questions and answers that it is given."""

    sent: list = []

    @property
    def _llm_type(self):
        return "made-up"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        self.sent[:] = messages
        named = questions(str(messages[-1].content))
        is_summary = "<messages>" in str(messages[-1].content)
        text = "summary of " + " ".join(named) if is_summary else named[-1].replace("question", "answer")
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])


def talk(name, deleted):
    model = Model(sent=[])
    backend = StateBackend()
    summaries = SummarizationMiddleware(model=model, backend=backend, trigger=("messages", 11), keep=("messages", 5))
    agent = create_deep_agent(model=model, backend=backend, middleware=[summaries], checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "thread"}}
    for number in range(1, 9):
        if number == 7:
            messages = agent.get_state(thread).values["messages"][deleted]
            agent.update_state(thread, {"messages": [RemoveMessage(id=message.id) for message in messages]})
        agent.invoke({"messages": [{"role": "user", "content": f"question{number}"}]}, thread)
        if number > 6:
            summary, *rest = [str(message.content) for message in model.sent if message.type != "system"]
            print(f"{name}: summary [{' '.join(questions(summary))}], then [{' '.join(rest)}]")


talk("nothing deleted", slice(0))
talk("questions 1 and 2 deleted", slice(4))
talk("questions 3 to 6 deleted", slice(4, None))
PY
venv/bin/python deleted.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
nothing deleted: summary [question1 answer1 question2 answer2 question3 answer3], then [question4 answer4 question5 answer5 question6 answer6 question7]
nothing deleted: summary [question1 answer1 question2 answer2 question3 answer3], then [question4 answer4 question5 answer5 question6 answer6 question7 answer7 question8]
questions 1 and 2 deleted: summary [question1 answer1 question2 answer2 question3 answer3], then [question6 answer6 question7]
questions 1 and 2 deleted: summary [question1 answer1 question2 answer2 question3 answer3], then [question6 answer6 question7 answer7 question8]
questions 3 to 6 deleted: summary [question1 answer1 question2 answer2 question3 answer3], then []
questions 3 to 6 deleted: summary [question1 answer1 question2 answer2 question3 answer3], then [question8]
SEEN
