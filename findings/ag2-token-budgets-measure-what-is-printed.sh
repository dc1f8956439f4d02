#!/usr/bin/env bash
# ag2 1.2.1 (PyPI), TokenBudgetPolicy: a budget of tokens lets long messages through whole and cuts short ones.
#
# Behaviour seen: its docstring says "Keep events within a token budget. Estimates tokens by character count". The characters
# are those of the event as it is printed in logs, where a text is cut at 80 and its class is named:
# "ModelRequest(parts=[TextInput(...". (1) With a budget of 1,000 tokens, ten questions of 4,000 words each and their
# answers are all sent, 40,000 words; so is the result of a tool of 40,000 words. (2) A hundred turns of short messages, 300 words
# together, are cut by half, which `transparent=True` notes for the model. TokenLimiter, the middleware of the same package,
# measures the texts ("never the truncated str(event) repr", says its docstring): of the ten questions it sends the first
# and the last, and of the hundred turns all.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check ag2==1.2.1
export HOME=$work
cat >budget.py <<'PY'
import asyncio

from ag2 import Agent
from ag2.config import LLMClient
from ag2.events import ModelRequest, ModelResponse, ToolCallEvent, ToolResultsEvent
from ag2.middleware import TokenLimiter
from ag2.policies import ConversationPolicy, TokenBudgetPolicy
from ag2.testing import TestConfig, TrackingConfig


class Config(TrackingConfig):
    """Keeps what the last call was sent."""

    def create(self):
        inner, config = self.config.create(), self

        class Client(LLMClient):
            async def __call__(self, messages, context, **options):
                config.sent, config.prompt = list(messages), list(context.prompt)
                return await inner(messages, context, **options)

        return Client()


def words(events):
    """The words of the messages, as providers are sent them."""
    texts = []
    for event in events:
        if isinstance(event, ModelRequest):
            texts += [part.content for part in event.parts]
        elif isinstance(event, ModelResponse) and event.message:
            texts.append(event.message.content)
        elif isinstance(event, ToolResultsEvent):
            texts += [part.content for result in event.results for part in result.result.parts]
    return sum(len(text.split()) for text in texts)


def look() -> str:
    """Looks."""
    return "seen " * 40000


def policy():
    return {"assembly": [ConversationPolicy(), TokenBudgetPolicy(max_tokens=1000, transparent=True)]}


def limiter():
    return {"middleware": [TokenLimiter(max_tokens=1000)]}


async def talk(title, questions, answers, **limit):
    config = Config(TestConfig(*answers))
    agent = Agent("agent", config=config, tools=[look], **limit)
    reply = None
    for question in questions:
        reply = await (reply or agent).ask(question)
    turns = sum(isinstance(event, ModelRequest) for event in config.sent)
    notes = [text for text in config.prompt if "token budget" in text]
    print(f"{title}: {turns} of {len(questions)} questions, {words(config.sent)} words", *notes)


async def main():
    long = [f"question {number} " + "word " * 3998 for number in range(10)]
    short = [f"Yes {number}." for number in range(100)]
    for name, limit in (("policy", policy), ("limiter", limiter)):
        await talk(f"{name}, long", long, ["Good."] * 10, **limit())
        await talk(f"{name}, tool", ["Look."], [ToolCallEvent(name="look", arguments="{}", id="1"), "Good."], **limit())
        await talk(f"{name}, short", short, ["Good."] * 100, **limit())


asyncio.run(main())
PY
venv/bin/python budget.py 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
policy, long: 10 of 10 questions, 40009 words
policy, tool: 1 of 1 questions, 40001 words
policy, short: 51 of 100 questions, 153 words [token_budget] Showing 102 of 199 events (token budget).
limiter, long: 2 of 10 questions, 8000 words
limiter, tool: 1 of 1 questions, 40001 words
limiter, short: 100 of 100 questions, 299 words
SEEN
