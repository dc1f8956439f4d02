#!/usr/bin/env bash
# pipecat-ai 1.14.0 (PyPI): the model that writes a summary is sent each result of a tool twice, and no picture.
#
# Behaviour seen: a context of seven messages, among them a picture and a result of 4,000 characters, is to be summarized
# but for its last two messages. The transcript for the summary has the result under `TOOL:` and again under
# `TOOL_RESULT[id]:`. By pipecat's own estimate the transcript of four messages has 2,021 tokens, where all seven have
# 1,586, of which 500 stand for the picture. Of the picture the transcript has nothing, not even that there was one, and the
# message that showed it is replaced by the summary.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check pipecat-ai==1.14.0
cat >summary.py <<'PY'
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.utils.context.llm_context_summarization import LLMContextSummarizationUtil as Summaries

result = "r" * 4000
picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
call = {"id": "call1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
context = LLMContext(
    [
        {"role": "system", "content": "prompt"},
        {"role": "user", "content": [{"type": "text", "text": "question"}, picture]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call1", "content": result},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "more"},
        {"role": "assistant", "content": "end"},
    ]
)
chosen = Summaries.get_messages_to_summarize(context, 2)
transcript = Summaries.format_messages_for_summary(chosen.messages)
print("results", transcript.count(result), "of", len(chosen.messages), "messages")
print("tokens", Summaries.estimate_context_tokens(context), Summaries.estimate_tokens(transcript))
print(transcript.replace(result, "RESULT").replace("\n\n", " | "))
PY
seen=$(venv/bin/python summary.py 2>/dev/null)
printf '%s\n' "$seen"
[ "$seen" = "results 2 of 4 messages
tokens 1586 2021
USER: question | TOOL_CALL: read({}) | TOOL: RESULT | TOOL_RESULT[call1]: RESULT | ASSISTANT: answer" ]
