#!/usr/bin/env bash
# agent-framework-core 1.23.0 (PyPI), CompactionProvider(after_strategy=...): the history is sent in full, and its summaries
# besides.
#
# Behaviour seen: after each run the strategy compacts the stored history, "so the next turn starts with a smaller context"
# (its docstring). It marks messages as excluded and inserts a summary; the history provider loads them all the same, unless
# it was made with `skip_excluded=True`, and nothing warns. (1) Six questions with a call of a tool each: the last one is sent
# with 20 messages before it, and with SummarizationStrategy with 23: the same 20, and in front of them three summaries that
# were paid for, the newest first. (2) With that flag, ToolResultCompactionStrategy leaves "[Tool results: look: taken]" of a
# step in which the model said what it goes by and looked at a port: its words beside the call are gone, and so is the port.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check agent-framework-core==1.23.0
cat >sent.py <<'PY'
import asyncio

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    CompactionProvider,
    Content,
    FunctionInvocationLayer,
    InMemoryHistoryProvider,
    Message,
    SummarizationStrategy,
    ToolResultCompactionStrategy,
    tool,
)


@tool(approval_mode="never_require")
def look(port: int) -> str:
    """Look whether a port is free."""
    return "taken"


def printed(content):
    if content.type == "function_call":
        return f"look({content.arguments['port']})"
    return content.result if content.type == "function_result" else content.text


class Client(FunctionInvocationLayer, BaseChatClient):
    """Says something and calls the tool when it is asked, and then answers."""

    async def respond(self, messages):
        self.sent = [" ".join(map(printed, message.contents)) for message in messages]
        if messages[-1].role == "tool":
            return ChatResponse(messages=[Message(role="assistant", contents=["Done."])])
        port = 5431 + sum(message.role == "user" for message in messages)
        call = Content.from_function_call(call_id=f"call{port}", name="look", arguments={"port": port})
        said = Content.from_text(f"Not below {port}, as you asked.")
        return ChatResponse(messages=[Message(role="assistant", contents=[said, call])])

    def _inner_get_response(self, *, messages, stream, options, **_):
        return self.respond(messages)


class Writer(BaseChatClient):
    calls = 0

    async def respond(self):
        self.calls += 1
        return ChatResponse(messages=[Message(role="assistant", contents=[f"summary {self.calls}"])])

    def _inner_get_response(self, *, messages, stream, options, **_):
        return self.respond()


async def talk(strategy, questions, **flags):
    client = Client()
    providers = [InMemoryHistoryProvider(**flags), CompactionProvider(after_strategy=strategy)]
    agent = Agent(client=client, name="agent", context_providers=providers, tools=[look])
    session = agent.create_session()
    for number in range(1, questions + 1):
        await agent.run(f"question {number}", session=session)
    return client.sent[:-2]


async def main():
    print("no compaction:", len(await talk(None, 6)) - 1)
    writer = Writer()
    sent = await talk(SummarizationStrategy(client=writer), 6)
    print("with summaries:", len(sent) - 1, [words for words in sent if words.startswith(("summary", "question"))])
    print("summaries paid for:", writer.calls)
    print("a step as it was:", (await talk(None, 4))[1:3])
    print("a step compacted:", (await talk(ToolResultCompactionStrategy(), 4, skip_excluded=True))[1:2])


asyncio.run(main())
PY
venv/bin/python sent.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
no compaction: 20
with summaries: 23 ['summary 3', 'summary 2', 'summary 1', 'question 1', 'question 2', 'question 3', 'question 4', 'question 5', 'question 6']
summaries paid for: 4
a step as it was: ['Not below 5432, as you asked. look(5432)', 'taken']
a step compacted: ['[Tool results: look: taken]']
SEEN
