#!/usr/bin/env bash
# llama-index-core 0.14.25 (PyPI): Memory, whose `token_limit` bounds what the model is sent, counts the blocks of tool calls
# and of thinking as nothing.
#
# Behaviour seen: twenty turns, each with a call whose arguments are 1,000 words (a file that is written), under a limit of
# 1,000 tokens of one word each. Where the call is a ToolCallBlock, the form of today's model classes, all twenty stay in
# the queue, and 20,000 words are sent. So it is with a ThinkingBlock of 1,000 words. Where the same call is in
# `additional_kwargs`, the older form, or the words are text, older turns leave the queue, and 1,000 words are sent.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check llama-index-core==0.14.25 aiosqlite==0.22.1
cat >words.py <<'PY'
import asyncio
import json

from llama_index.core.base.llms.types import ChatMessage, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.memory import Memory

WORDS = "word " * 1000


def as_block(number):
    block = ToolCallBlock(tool_call_id=f"c{number}", tool_name="write", tool_kwargs={"text": WORDS})
    return ChatMessage(role="assistant", blocks=[block])


def as_keywords(number):
    function = {"name": "write", "arguments": json.dumps({"text": WORDS})}
    calls = [{"id": f"c{number}", "type": "function", "function": function}]
    return ChatMessage(role="assistant", blocks=[], additional_kwargs={"tool_calls": calls})


def as_thought(number):
    return ChatMessage(role="assistant", blocks=[ThinkingBlock(content=WORDS), TextBlock(text="done")])


def as_text(number):
    return ChatMessage(role="assistant", content=WORDS)


async def attempt(form):
    memory = Memory.from_defaults(
        session_id="one", token_limit=1000, token_flush_size=100, tokenizer_fn=lambda text: text.split()
    )
    for number in range(20):
        await memory.aput(ChatMessage(role="user", content=f"write file {number}"))
        await memory.aput(form(number))
        if form in (as_block, as_keywords):
            result = ChatMessage(role="tool", content="written", additional_kwargs={"tool_call_id": f"c{number}"})
            await memory.aput(result)
    sent = await memory.aget()
    words = sum(message.model_dump_json().count("word ") for message in sent)
    print(form.__name__, "messages", len(sent), "words", words)


for form in (as_block, as_thought, as_keywords, as_text):
    asyncio.run(attempt(form))
PY
venv/bin/python words.py | tee seen
diff seen - <<'SEEN'
as_block messages 60 words 20000
as_thought messages 40 words 20000
as_keywords messages 3 words 1000
as_text messages 2 words 1000
SEEN
