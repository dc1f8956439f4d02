#!/usr/bin/env bash
# smolagents 1.26.0 (PyPI): the tokens of a `RunResult` are those of all runs of the conversation, and of none of the
# agents that were called.
#
# Behaviour seen: each call of the model costs 100 and 10 tokens. An agent that goes on (`reset=False`) says 100, 200 and
# 300 input tokens after three runs of one call each, though the field is described as tokens used during the run; who
# adds up runs gets 600 for 300. A manager whose one managed agent made one call made two calls itself, and says 200:
# the 100 of the managed agent are in neither its result nor its monitor.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check smolagents==1.26.0
cat >tokens.py <<'PY'
from smolagents import ToolCallingAgent
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    Model,
)
from smolagents.monitoring import LogLevel, TokenUsage


class Scripted(Model):
    """A model that makes these calls, one at a time, and then gives final answers; it counts what it is asked."""

    def __init__(self, *calls):
        super().__init__(model_id="scripted")
        self.calls = list(calls)
        self.asked = 0

    def generate(self, messages, **options):
        self.asked += 1
        name, arguments = self.calls.pop(0) if self.calls else ("final_answer", {"answer": "done"})
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        call = ChatMessageToolCall(id=f"call_{self.asked}", type="function", function=function)
        usage = TokenUsage(input_tokens=100, output_tokens=10)
        return ChatMessage(role=MessageRole.ASSISTANT, content=None, tool_calls=[call], token_usage=usage)


def agent(model, **options):
    return ToolCallingAgent([], model, return_full_result=True, verbosity_level=LogLevel.OFF, **options)


alone = agent(Scripted())
print("runs", [alone.run(task, reset=False).token_usage.input_tokens for task in ("one", "two", "three")])

helper = Scripted()
managed = agent(helper, name="helper", description="It helps.")
boss = Scripted(("helper", {"task": "help"}))
manager = agent(boss, managed_agents=[managed])
result = manager.run("have it done")
counted = manager.monitor.get_total_token_counts().input_tokens
print("calls", boss.asked, helper.asked, "result", result.token_usage.input_tokens, "monitor", counted)
PY
venv/bin/python tokens.py | tee seen
diff seen - <<'SEEN'
runs [100, 200, 300]
calls 2 1 result 200 monitor 200
SEEN
