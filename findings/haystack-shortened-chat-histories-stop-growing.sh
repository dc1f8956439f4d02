#!/usr/bin/env bash
# haystack-experimental 0.19.0.post1 (PyPI), ChatMessageRetriever and ChatMessageWriter with InMemoryChatMessageStore: a history
# that begins with messages of another, or with the last ones of its own, stops growing, without a word.
#
# Behaviour seen: a message is stored under an id: its own, as all messages have that were read from a store, or else the number
# of messages that the history has. One whose id is there already is left out. (1) A history is shortened to its last two
# rounds, by reading them, deleting the history and writing them: they keep the ids 4 to 7. The next round gets 4 and 5, and
# neither is stored. The history stays at four messages, so that the round after it gets 4 and 5 too: nothing is ever stored
# again. (2) So it is with a new chat that goes on from the last two rounds of another. (3) Two rounds of another chat are added
# behind two: they have the ids of those, and are left out. Each time the model is sent the old rounds and the new
# question, and answers, and the pipeline says `messages_written: 0`. "It acts as a namespace that isolates messages from
# different sessions", says the docstring of a history's name.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check haystack-experimental==0.19.0.post1 haystack-ai==3.4.1
export HOME=$work HAYSTACK_TELEMETRY_ENABLED=False
cat >chat.py <<'PY'
from haystack import Pipeline, component
from haystack.dataclasses import ChatMessage
from haystack_experimental.chat_message_stores.in_memory import InMemoryChatMessageStore
from haystack_experimental.components.retrievers import ChatMessageRetriever
from haystack_experimental.components.writers import ChatMessageWriter


@component
class Model:
    """Answers, and gives the whole conversation back, as an agent does."""

    @component.output_types(messages=list[ChatMessage])
    def run(self, messages: list[ChatMessage]):
        return {"messages": [*messages, ChatMessage.from_assistant(f"answer {messages[-1].text}")]}


store = InMemoryChatMessageStore()
pipeline = Pipeline()
pipeline.add_component("read", ChatMessageRetriever(store))
pipeline.add_component("model", Model())
pipeline.add_component("write", ChatMessageWriter(store))
pipeline.connect("read.messages", "model.messages")
pipeline.connect("model.messages", "write.messages")


def ask(history, *questions):
    written = []
    for question in questions:
        read = {"chat_history_id": history, "current_messages": [ChatMessage.from_user(question)]}
        result = pipeline.run({"read": read, "write": {"chat_history_id": history}})
        written.append(result["write"]["messages_written"])
    return written


def show(history, *about):
    messages = store.retrieve_messages(history, last_k=100)
    print(*about, "stored:", ", ".join(f"{message.text} (id {message.meta['chat_message_id']})" for message in messages))


print("four rounds, written:", ask("one", "1", "2", "3", "4"))
last = store.retrieve_messages("one", last_k=2)
store.delete_messages("one")
store.write_messages("one", last)
print("shortened, four more, written:", ask("one", "5", "6", "7", "8"))
show("one", "  ")

store.write_messages("two", last)
print("another, goes on, written:", ask("two", "9", "10", "11"))
show("two", "  ")

print("two rounds, written:", ask("three", "12", "13"), "then two of another:", end=" ")
ask("four", "14", "15")
print(store.write_messages("three", store.retrieve_messages("four")))
show("three", "  ")
PY
venv/bin/python chat.py 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
four rounds, written: [2, 2, 2, 2]
shortened, four more, written: [0, 0, 0, 0]
   stored: 3 (id 4), answer 3 (id 5), 4 (id 6), answer 4 (id 7)
another, goes on, written: [0, 0, 0]
   stored: 3 (id 4), answer 3 (id 5), 4 (id 6), answer 4 (id 7)
two rounds, written: [2, 2] then two of another: 0
   stored: 12 (id 0), answer 12 (id 1), 13 (id 2), answer 13 (id 3)
SEEN
