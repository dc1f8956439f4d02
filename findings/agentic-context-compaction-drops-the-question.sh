#!/usr/bin/env bash
# agentic-context-compaction 0.1.0 (PyPI) with pydantic-ai-slim 1.107.10: two of its strategies drop the question, put errors
# beside other calls, and take the usage out of the history.
#
# Behaviour seen: KeepToolCalls is to "Keep all tool calls and their results", the system prompts and the last texts. (1)
# pydantic-ai puts the system prompt and the first question into one message, and of such a message only the system prompt is
# kept. So the model is asked nothing: each request of the run, the first one too, is without the question, and so is the
# history of the run, which is what a history processor gives back. (2) Without a system prompt, as with each later question,
# the calls and results of a run come before the question that they were made for. (3) What a failed tool says is a
# RetryPromptPart, which counts as a text, and texts are put last: a call that failed and the one made after it come out as two
# calls of one step. (4) KeepToolCalls and DropThinking make each answer anew from its parts: all_messages() has them without
# usage and model. 300 tokens went in, the messages say 100, those of the last answer.
#
# Releases of pydantic-ai from 2.0 on have no `history_processors`, which its README says to use. Needs Python 3.11 with venv
# and a registry; the model is a function. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check agentic-context-compaction==0.1.0 pydantic-ai-slim==1.107.10
cat >compact.py <<'PY'
from context_compactor import ContextCompactor
from context_compactor.adapters.pydantic_ai import pydantic_ai_adapter
from context_compactor.strategies.pydantic_ai import DropThinking, KeepToolCalls
from context_compactor.tokenizers.pydantic_ai import PydanticAITokenCounter
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

NAMES = {"system-prompt": "system", "user-prompt": "user", "tool-call": "call", "tool-return": "result", "retry-prompt": "error"}
sent = []


def words(messages):
    parts = [part for message in messages for part in message.parts]
    said = [(NAMES.get(part.part_kind, part.part_kind), getattr(part, "content", None)) for part in parts]
    return ", ".join(f"{name} {content!r}" if content else name for name, content in said)


def model(messages, info):
    """Looks in two places, then answers."""
    sent.append(words(messages))
    place = len(sent)
    last = ToolCallPart("look", {"place": place}, f"call{place}") if place < 3 else TextPart("Found.")
    usage = RequestUsage(input_tokens=100, output_tokens=10)
    return ModelResponse(parts=[ThinkingPart("Hm."), last], usage=usage)


def run(strategy, prompt):
    sent.clear()
    compactor = ContextCompactor(max_context_tokens=10, strategy=strategy, token_counter=PydanticAITokenCounter())
    agent = Agent(FunctionModel(model), system_prompt=prompt, history_processors=[pydantic_ai_adapter(compactor)])

    @agent.tool_plain
    def look(place: int) -> str:
        if place == 1:
            raise ModelRetry("not here")
        return "a key"

    result = agent.run_sync("Where is the key?")
    answers = [message for message in result.all_messages() if isinstance(message, ModelResponse)]
    print(f"{type(strategy).__name__}, {'with a' if prompt else 'no'} system prompt")
    print("  first request:", sent[0])
    print("  last request:", sent[-1])
    print("  tokens in of the run:", result.usage.input_tokens, "of its messages:", [answer.usage.input_tokens for answer in answers])
    print("  models of its messages:", [answer.model_name for answer in answers])


run(KeepToolCalls(), "Be brief.")
run(KeepToolCalls(), ())
run(DropThinking(), "Be brief.")
PY
venv/bin/python -W ignore compact.py 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
KeepToolCalls, with a system prompt
  first request: system 'Be brief.'
  last request: system 'Be brief.', call, call, result 'a key', error 'not here'
  tokens in of the run: 300 of its messages: [0, 0, 100]
  models of its messages: [None, None, 'function:model:']
KeepToolCalls, no system prompt
  first request: user 'Where is the key?'
  last request: call, call, result 'a key', error 'not here', user 'Where is the key?'
  tokens in of the run: 300 of its messages: [0, 0, 100]
  models of its messages: [None, None, 'function:model:']
DropThinking, with a system prompt
  first request: system 'Be brief.', user 'Where is the key?'
  last request: system 'Be brief.', user 'Where is the key?', call, error 'not here', call, result 'a key'
  tokens in of the run: 300 of its messages: [0, 0, 100]
  models of its messages: [None, None, 'function:model:']
SEEN
