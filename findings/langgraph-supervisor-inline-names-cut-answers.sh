#!/usr/bin/env bash
# langgraph-supervisor 0.0.31 (PyPI) with langgraph 1.2.24: with names of agents inline, a supervisor is sent the beginning of an
# answer, and an answer of its own that has XML in it becomes what is within <content>.
#
# Behaviour seen: include_agent_name="inline" is to "Add the agent name directly into the content field of the AI message using
# XML-style tags". (1) Of an answer with several text blocks, as Claude gives where it cites sources, the first is put into the
# tags, and the others are left out: "The key is under the mat, says the note." is sent as "The key is ". The state has all of
# it; what the supervisor says to the user is made of the piece. (2) The text goes first, before the thinking that it followed;
# Anthropic's docs want thinking first. (3) Tags are taken off the supervisor's own answers, whether it was the one who put them
# there or not: of an answer with a <name> and a <content> anywhere, the content alone is kept, in the state as well. Asked for
# an entry of an Atom feed, it says "Found.", without the entry and the words before it. (4) If it answers in the tags, as
# models do that see them, and in two blocks, the second block is dropped from the state.
#
# Needs Python 3.10 with venv and a registry; the models are made up. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check langgraph-supervisor==0.0.31 langgraph==1.2.24 langchain-core==1.8.3
cat >names.py <<'PY'
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import create_react_agent
from langgraph_supervisor import create_supervisor

ASK = {"name": "transfer_to_finder", "args": {}, "id": "1"}
ENTRY = "<entry><author><name>Ann</name></author><content>Found.</content></entry>"


class Answers(BaseChatModel):
    answers: list
    sent: list = []
    _llm_type = "made up"

    def bind_tools(self, tools, **options):
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    def _generate(self, messages, stop=None, run_manager=None, **options):
        self.sent.append(messages)
        return ChatResult(generations=[ChatGeneration(message=self.answers[len(self.sent) - 1])])


def texts(*parts):
    return [{"type": "text", "text": part} for part in parts]


def words(message):
    if isinstance(message.content, str):
        return repr(message.content)
    return " + ".join(repr(block.get("text", block["type"])) for block in message.content)


def run(names, *answers):
    finder = Answers(answers=[AIMessage(texts("The key is ", "under the mat", ", says the note."))])
    agent = create_react_agent(finder, tools=[], name="finder")
    boss = Answers(answers=list(answers))
    app = create_supervisor([agent], model=boss, include_agent_name=names).compile()
    state = app.invoke({"messages": [HumanMessage("Where is the key?")]})
    return [message for message in boss.sent[-1] if message.type == "ai"], state["messages"][-1]


thinking = {"type": "thinking", "thinking": "Ask the finder.", "signature": "s"}
call = {"type": "tool_use", "id": "1", "name": ASK["name"], "input": {}}
asking = AIMessage([thinking, *texts("I ask."), call], tool_calls=[ASK])
for names in (None, "inline"):
    print("names:", names)
    sent, _ = run(names, asking, AIMessage("There."))
    print("  sent, the supervisor:", words(sent[0]))
    print("  sent, the finder:", words(sent[1]))
    for answer in (f"Here it is: {ENTRY}", texts("<name>supervisor</name><content>It is </content>", "under the mat.")):
        _, kept = run(names, AIMessage(answer))
        print("  kept:", words(kept))
PY
venv/bin/python -W ignore names.py 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
names: None
  sent, the supervisor: 'thinking' + 'I ask.' + 'tool_use'
  sent, the finder: 'The key is ' + 'under the mat' + ', says the note.'
  kept: 'Here it is: <entry><author><name>Ann</name></author><content>Found.</content></entry>'
  kept: '<name>supervisor</name><content>It is </content>' + 'under the mat.'
names: inline
  sent, the supervisor: '<name>supervisor</name><content>I ask.</content>' + 'thinking' + 'tool_use'
  sent, the finder: '<name>finder</name><content>The key is </content>'
  kept: 'Found.'
  kept: 'It is '
SEEN
