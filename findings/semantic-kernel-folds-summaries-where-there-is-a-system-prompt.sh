#!/usr/bin/env bash
# semantic-kernel 1.45.0 (PyPI), ChatHistorySummarizationReducer(use_single_summary=False): with a system prompt there is
# one summary all the same, made of the summary before it.
#
# Behaviour seen: six turns, reduced after every second one. Without a system message the history keeps a summary for each
# reduction, each of the messages themselves. With one, the search for where summaries end stops at the system message, in
# front of them: each reduction summarizes the summary before it and drops it, as if `use_single_summary` were True, so that
# the first turns have been through three summaries.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check semantic-kernel==1.45.0
cat >summaries.py <<'PY'
import asyncio

from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.contents import ChatHistorySummarizationReducer, ChatMessageContent


class Model(ChatCompletionClientBase):
    async def get_chat_message_contents(self, chat_history, settings, **kwargs):
        # The last message asks for the summary.
        texts = " ".join(message.content for message in chat_history.messages[:-1])
        return [ChatMessageContent(role="assistant", content=f"({texts})")]


async def talk(system):
    reducer = ChatHistorySummarizationReducer(
        service=Model(ai_model_id="m"), target_count=3 if system else 2, use_single_summary=False
    )
    if system:
        reducer.add_system_message(system)
    for turn in range(1, 7):
        reducer.add_user_message(f"u{turn}")
        reducer.add_assistant_message(f"a{turn}")
        if turn % 2 == 0:
            await reducer.reduce()
    print([f"{message.role.value}: {message.content}" for message in reducer.messages])


asyncio.run(talk(None))
asyncio.run(talk("be brief"))
PY
venv/bin/python summaries.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
['assistant: (u1 a1)', 'assistant: (u2 a2 u3 a3)', 'assistant: (u4 a4 u5 a5)', 'user: u6', 'assistant: a6']
['system: be brief', 'assistant: (((u1 a1) u2 a2 u3 a3) u4 a4 u5 a5)', 'user: u6', 'assistant: a6']
SEEN
