#!/usr/bin/env bash
# camel-ai 0.2.90 (PyPI), ChatAgent: where a summary is due at a question with a picture, the model is asked an older question
# in its place.
#
# Behaviour seen: the memory is replaced by the summary and "my current message", by default when half of the window is used.
# For that the last message of the user whose content is a text is taken; with a picture the content is a list. So at the
# sixth question, with a picture, the model is asked the fifth again, which it has answered, and is sent no picture; so it is
# at the eighth, three questions later. The picture is in the summary, as the base64 of a printed dict, and so in the text
# that the summary is made of. What is kept as the user's message begins with words that the user did not say.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check camel-ai==0.2.90 mcp==1.30.0
cat >picture.py <<'PY'
from camel.agents import ChatAgent
from camel.messages import BaseMessage
from camel.models.stub_model import StubModel, StubTokenCounter
from camel.types import ChatCompletion, ChatCompletionMessage, Choice, CompletionUsage, ModelType
from PIL import Image


def tokens(messages):
    return sum(len(str(message["content"])) // 4 for message in messages)


class Counter(StubTokenCounter):
    def count_tokens_from_messages(self, messages):
        return tokens(messages)


class Model(StubModel):
    token_counter = Counter()
    sent = []

    def _run(self, messages, response_format=None, tools=None):
        is_summary = "summarizes" in messages[0]["content"]
        if not is_summary:
            self.sent[:] = messages
        text = "summary" if is_summary else "answer " * 200
        usage = CompletionUsage(
            prompt_tokens=tokens(messages), completion_tokens=350, total_tokens=tokens(messages) + 350
        )
        message = ChatCompletionMessage(role="assistant", content=text)
        choice = Choice(index=0, finish_reason="stop", message=message)
        return ChatCompletion(
            id="id", object="chat.completion", created=1, model="stub", choices=[choice], usage=usage
        )


model = Model(ModelType.STUB)
agent = ChatAgent("prompt", model=model, token_limit=4000)
for number in range(1, 9):
    pictures = [Image.new("RGB", (2, 2))] if number > 5 else None
    agent.step(BaseMessage.make_user_message("user", f"question {number}", image_list=pictures))
    content = model.sent[-1]["content"]
    if isinstance(content, list):
        print(number, "asked:", *(part.get("text", "and a picture") for part in content))
    else:
        print(number, "asked:", content)
summary = model.sent[1]["content"]
print("in the summary:", "question 6" in summary, "{'type': 'image_url'" in summary, "base64" in summary)
PY
CAMEL_LOGGING_DISABLED=true venv/bin/python picture.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
1 asked: question 1
2 asked: question 2
3 asked: question 3
4 asked: question 4
5 asked: question 5
6 asked: Based on the previous CONTEXT_SUMMARY, continue with my current message: question 5
7 asked: question 7 and a picture
8 asked: Based on the previous CONTEXT_SUMMARY, continue with my current message: question 5
in the summary: True True True
SEEN
