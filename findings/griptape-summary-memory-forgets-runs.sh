#!/usr/bin/env bash
# griptape 1.13.0 (PyPI), SummaryConversationMemory: runs that no summary has are no longer sent, and a summary is not stored.
#
# Behaviour seen, with the newest two runs to be sent word for word (`offset=2`): (1) a call that should write a summary
# fails; the runs that it was asked for count as summarized all the same, and are sent neither as they are nor in a
# later summary. (2) With `max_runs=4` the place up to which runs are summarized stays where it is while older runs leave
# the list: from the fifth run on just one run is sent, and no further summary is written. (3) What its driver stores
# has no summary and no such place: in a new process all runs are sent in full.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check griptape==1.13.0
cat >summaries.py <<'PY'
import logging

from attrs import define, field

from griptape.artifacts import TextArtifact
from griptape.common import Message, TextMessageContent
from griptape.drivers.memory.conversation.local import LocalConversationMemoryDriver
from griptape.drivers.prompt import BasePromptDriver
from griptape.memory.structure import Run, SummaryConversationMemory
from griptape.tokenizers import SimpleTokenizer

logging.disable(logging.CRITICAL)


@define
class Summaries(BasePromptDriver):
    model: str = field(default="none")
    tokenizer: object = field(
        default=SimpleTokenizer(characters_per_token=4, max_input_tokens=10_000, max_output_tokens=1_000)
    )
    max_attempts: int = field(default=1)
    fails_at: int = field(default=0)
    prompts: list = field(factory=list)

    def try_run(self, prompt_stack):
        self.prompts.append(prompt_stack.messages[0].to_text())
        if len(self.prompts) == self.fails_at:
            raise RuntimeError("overloaded")
        text = TextArtifact(f"summary {len(self.prompts)}")
        return Message([TextMessageContent(text)], role=Message.ASSISTANT_ROLE)

    def try_stream(self, prompt_stack):
        raise NotImplementedError


def filled(count, driver, persist_file=None, **settings):
    storage = LocalConversationMemoryDriver(persist_file=persist_file)
    memory = SummaryConversationMemory(conversation_memory_driver=storage, prompt_driver=driver, offset=2, **settings)
    for number in range(count):
        memory.add_run(Run(input=TextArtifact(f"question {number}"), output=TextArtifact(f"answer {number}")))
    return memory


def sent(memory):
    texts = [message.to_text().strip() for message in memory.to_prompt_stack().messages]
    return [text.splitlines()[-1].split(": ")[-1] for text in texts if "answer" not in text]


failing = Summaries(fails_at=1)
print("failed", sent(filled(4, failing)), "question 0" in failing.prompts[1])
limited = Summaries()
print("limited", sent(filled(12, limited, max_runs=4)), len(limited.prompts))
print("before", sent(filled(6, Summaries(), "memory.json")))
print("after", sent(filled(0, Summaries(), "memory.json")))
PY
venv/bin/python summaries.py | tee seen
diff seen - <<'SEEN'
failed ['summary 2', 'question 2', 'question 3'] False
limited ['summary 3', 'question 11'] 3
before ['summary 4', 'question 4', 'question 5']
after ['question 0', 'question 1', 'question 2', 'question 3', 'question 4', 'question 5']
SEEN
