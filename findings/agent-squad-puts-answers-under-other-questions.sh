#!/usr/bin/env bash
# agent-squad 1.1.4 (PyPI, once multi-agent-orchestrator of awslabs): after a stream that broke, the next answer is stored under
# the question before, and a limit of message pairs counts messages.
#
# Behaviour seen: with a streaming agent the question is stored before the stream is read, the answer when its end was read. (1) The
# connection broke, or the reader went away, as a person does who closes the page: the question stands there without an
# answer. Then the next question is not stored, since a message of the role of the last one is taken for a repetition
# ("Consecutive user message detected", in the log for debugging), and its answer is. What the agent is sent from then on, and
# what the classifier is sent, is "What is bread?", "Milk is white.". All storages of the package check in this way. (2)
# `MAX_MESSAGE_PAIRS_PER_AGENT` is handed to the storage as a number of messages: 4 keeps two pairs, the default of 100 keeps
# fifty, 3 keeps one. With 1 all is kept, without a limit: an odd number is made even, and the last 0 of a list are all.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check agent-squad==1.1.4
export HOME=$work
cat >ask.py <<'PY'
import asyncio
from contextlib import aclosing

from agent_squad.agents import Agent, AgentOptions, AgentStreamResponse
from agent_squad.classifiers import Classifier, ClassifierResult
from agent_squad.orchestrator import AgentSquad
from agent_squad.storage import InMemoryChatStorage
from agent_squad.types import ConversationMessage

ANSWERS = {"What is bread?": "Bread is baked.", "What is milk?": "Milk is white.", "And tea?": "Tea is hot."}


def texts(messages):
    return [message.content[0]["text"] for message in messages]


class Always(Classifier):
    async def process_request(self, input_text, chat_history):
        return ClassifierResult(selected_agent=self.agents["shop"], confidence=1.0)


class Shop(Agent):
    def __init__(self, breaks_at=None):
        super().__init__(AgentOptions(name="shop", description="Knows what is sold."))
        self.breaks_at, self.sent = breaks_at, []

    def is_streaming_enabled(self):
        return True

    async def process_request(self, input_text, user_id, session_id, chat_history, additional_params=None):
        self.sent = [*texts(chat_history), input_text]

        async def stream():
            answer = ANSWERS.get(input_text, f"answer {input_text}")
            yield AgentStreamResponse(text=answer[:5])
            if input_text == self.breaks_at:
                raise ConnectionError("the connection broke")
            content = [{"text": answer}]
            yield AgentStreamResponse(final_message=ConversationMessage(role="assistant", content=content))

        return stream()


async def ask(questions, shop, leaves_at=None, **options):
    storage = InMemoryChatStorage()
    squad = AgentSquad(options=options, storage=storage, classifier=Always())
    squad.add_agent(shop)
    for question in questions:
        response = await squad.route_request(question, "ann", "session", stream_response=True)
        try:
            async with aclosing(response.output) as output:
                async for _ in output:
                    if question == leaves_at:
                        break
        except ConnectionError as error:
            print("  ", error)
    print("   stored:", " | ".join(texts(await storage.fetch_chat("ann", "session", shop.id))))
    return shop.sent


async def main():
    for title, shop, leaves_at in (
        ("a stream breaks", Shop(breaks_at="What is bread?"), None),
        ("a reader leaves", Shop(), "What is bread?"),
    ):
        print(title)
        print("   sent at last:", " | ".join(await ask(ANSWERS, shop, leaves_at)))
    for pairs in (4, 3, 1):
        print("at most", pairs, "pairs")
        await ask("123456", Shop(), MAX_MESSAGE_PAIRS_PER_AGENT=pairs)


asyncio.run(main())
PY
venv/bin/python ask.py 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
a stream breaks
   the connection broke
   stored: What is bread? | Milk is white. | And tea? | Tea is hot.
   sent at last: What is bread? | Milk is white. | And tea?
a reader leaves
   stored: What is bread? | Milk is white. | And tea? | Tea is hot.
   sent at last: What is bread? | Milk is white. | And tea?
at most 4 pairs
   stored: 5 | answer 5 | 6 | answer 6
at most 3 pairs
   stored: 6 | answer 6
at most 1 pairs
   stored: 1 | answer 1 | 2 | answer 2 | 3 | answer 3 | 4 | answer 4 | 5 | answer 5 | 6 | answer 6
SEEN
