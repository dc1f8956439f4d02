#!/usr/bin/env bash
# agentstate-reducer 0.5.0 (PyPI), ReducingSaver with langgraph 1.2.24: it pays for summaries that nobody reads, and a run that
# waits for an approval goes on without its question.
#
# Behaviour seen: the wrapper shortens the messages of each checkpoint, one for each step; the running graph goes on with all
# of them. (1) Once a run is over `max_messages`, each further step has all that was left out summarized once more. The next
# run reads the last checkpoint only: with the defaults and five calls of a tool a turn, four summaries are paid for, and one
# is used. `on_prune` gets each message once, and the docs say why that is needed; `summarize_fn`, the one that costs, is
# called each time. (2) A run that calls a tool fifteen times (a talk of 31 messages, `max_messages=20`) stops for an approval
# (`interrupt`). Until then each request had all messages in it. After the answer the model is sent what the checkpoint has:
# the greeting that the talk began with, then the last calls and results. The question that the run is for is not there;
# without the stop it is sent until the end. Of the first message the docs say that it is kept, "typically the system prompt";
# of the question that is being worked on they say nothing.
#
# Needs Python 3.10 with venv and a registry; the model is a function. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
export HOME=$work
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check agentstate-reducer==0.5.0 langgraph==1.2.24 \
  langgraph-checkpoint==4.3.2 langchain-core==1.8.3
cat >agent.py <<'PY'
from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.langgraph import ReducingSaver
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

THREAD = {"configurable": {"thread_id": "1"}, "recursion_limit": 100}


def agent(config, calls, approve_after=None):
    sent = []

    def model(state):
        sent.append([message.content or "call" for message in state["messages"]])
        if len(sent) % (calls + 1) == 0:
            return {"messages": [AIMessage("done")]}
        call = {"name": "look", "args": {}, "id": f"call_{len(sent)}"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    def tools(state):
        (call,) = state["messages"][-1].tool_calls
        said = interrupt("May it?") if len(sent) == approve_after else "found"
        return {"messages": [ToolMessage(said, tool_call_id=call["id"])]}

    graph = StateGraph(MessagesState)
    graph.add_node(model)
    graph.add_node(tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=ReducingSaver(InMemorySaver(), MessageReducer(config=config))), sent


paid = []


def summarize(pruned):
    paid.append(len(pruned))
    return "a summary"


app, _ = agent(ReducerConfig(summarize_fn=summarize, inject_summary=True), calls=5)
for turn in range(1, 5):
    paid.clear()
    app.invoke({"messages": [("user", f"question {turn}")]}, THREAD)
    print(f"turn {turn}: summaries of {paid} messages")

for approve_after in (None, 15):
    app, sent = agent(ReducerConfig(max_messages=20), calls=19, approve_after=approve_after)
    app.update_state(THREAD, {"messages": [("user", "hello"), ("ai", "good day")]})
    app.invoke({"messages": [("user", "question")]}, THREAD)
    if approve_after:
        app.invoke(Command(resume="approved"), THREAD)
    print("with an approval" if approve_after else "without one")
    for request in (sent[14], sent[15], sent[-1]):
        print(f"  sent {len(request)} messages, with the question: {'question' in request}, first: {request[:3]}")
PY
venv/bin/python agent.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
turn 1: summaries of [] messages
turn 2: summaries of [10, 11, 12, 14] messages
turn 3: summaries of [10, 11, 12, 14] messages
turn 4: summaries of [10, 11, 12, 14] messages
without one
  sent 31 messages, with the question: True, first: ['hello', 'good day', 'question']
  sent 33 messages, with the question: True, first: ['hello', 'good day', 'question']
  sent 41 messages, with the question: True, first: ['hello', 'good day', 'question']
with an approval
  sent 31 messages, with the question: True, first: ['hello', 'good day', 'question']
  sent 11 messages, with the question: False, first: ['hello', 'call', 'found']
  sent 19 messages, with the question: False, first: ['hello', 'call', 'found']
SEEN
