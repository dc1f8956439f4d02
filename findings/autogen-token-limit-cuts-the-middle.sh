#!/usr/bin/env bash
# autogen-core 0.7.5 (PyPI): TokenLimitedChatCompletionContext, "at most token_limit tokens in recent messages", takes
# messages out of the middle, and separates calls from their results.
#
# Behaviour seen: while the history is too large, the message at half its length is taken out, one by one, whatever it is.
# So (1) the oldest messages stay, and younger ones go: of three turns all of the first is still sent when nothing but
# the question is left of the second; (2) a call is sent without its result, or a result without its call, which
# providers refuse: only a result at the very beginning is looked for. At four of eleven limits the list is one such.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check autogen-core==0.7.5 autogen-ext==0.7.5 autogen-agentchat==0.7.5
cat >limits.py <<'PY'
import asyncio

from autogen_core import FunctionCall
from autogen_core.model_context import TokenLimitedChatCompletionContext
from autogen_core.models import AssistantMessage, FunctionExecutionResult, FunctionExecutionResultMessage, UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient


class Counting(ReplayChatCompletionClient):
    """A token for each message."""

    def count_tokens(self, messages, *, tools=()):
        return len(messages)


def turn(number):
    result = FunctionExecutionResult(call_id=f"r{number}", name="read", content="text", is_error=False)
    return [
        UserMessage(content=f"question{number}", source="user"),
        AssistantMessage(content=[FunctionCall(id=f"c{number}", name="read", arguments="{}")], source="agent"),
        FunctionExecutionResultMessage(content=[result]),
        AssistantMessage(content=f"answer{number}", source="agent"),
    ]


def name(message):
    if isinstance(message.content, str):
        return message.content
    part = message.content[0]
    return part.call_id if isinstance(part, FunctionExecutionResult) else part.id


async def main():
    history = [message for number in (1, 2, 3) for message in turn(number)]
    separated = []
    for limit in range(1, len(history)):
        context = TokenLimitedChatCompletionContext(Counting([]), token_limit=limit, initial_messages=history)
        names = [name(message) for message in await context.get_messages()]
        if any((f"c{number}" in names) != (f"r{number}" in names) for number in (1, 2, 3)):
            separated.append(limit)
        if limit in (11, 9):
            print(limit, *names)
    print("separated at", *separated)


asyncio.run(main())
PY
seen=$(venv/bin/python limits.py)
printf '%s\n' "$seen"
[ "$seen" = "9 question1 c1 r1 answer1 question2 question3 c3 r3 answer3
11 question1 c1 r1 answer1 question2 c2 answer2 question3 c3 r3 answer3
separated at 3 4 5 11" ]
