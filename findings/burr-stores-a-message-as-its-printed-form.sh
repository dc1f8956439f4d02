#!/usr/bin/env bash
# apache-burr 0.42.0 (PyPI), SQLitePersister: what is not JSON comes back as its printed form, and nothing says so.
#
# Behaviour seen: a history of messages that are tuples, data classes or named tuples, with a cost as a Decimal and a time
# as a datetime, is saved and loaded without an error or a warning; each comes back as the text that `str` makes of it
# ("('user', 'hello')"). A list of two such messages is then a list of two texts. The numbers that are keys of a dict come
# back as texts as well. InMemoryPersister, its store for tests, gives the objects back, so that tests do not see it.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check apache-burr==0.42.0
cat >history.py <<'PY'
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal

from burr.core import ApplicationBuilder, action
from burr.core.persistence import InMemoryPersister, SQLitePersister


@dataclass(frozen=True)
class Message:
    role: str
    content: str


@action(reads=["messages"], writes=["messages", "cost", "at", "turns"])
def ask(state, prompt: str):
    state = state.append(messages=("user", prompt)).append(messages=Message("assistant", "hi"))
    return state.update(cost=Decimal("0.0123"), at=datetime(2026, 1, 1, tzinfo=timezone.utc), turns={1: prompt})


def application(persister):
    start = {"messages": []}
    builder = ApplicationBuilder().with_actions(ask).with_transitions(("ask", "ask")).with_identifiers(app_id="one")
    builder = builder.initialize_from(persister, resume_at_next_action=True, default_state=start, default_entrypoint="ask")
    return builder.with_state_persister(persister).build()


def attempt(name, persister):
    application(persister).run(halt_after=["ask"], inputs={"prompt": "hello"})
    state = application(persister).state
    for value in (*state["messages"], state["cost"], state["at"], state["turns"]):
        print(name, type(value).__name__, repr(value))


on_disk = SQLitePersister("state.db")
on_disk.initialize()
attempt("sqlite", on_disk)
attempt("memory", InMemoryPersister())
PY
venv/bin/python -W error::UserWarning history.py | tee seen
diff seen - <<'SEEN'
sqlite str "('user', 'hello')"
sqlite str "Message(role='assistant', content='hi')"
sqlite str '0.0123'
sqlite str '2026-01-01 00:00:00+00:00'
sqlite dict {'1': 'hello'}
memory tuple ('user', 'hello')
memory Message Message(role='assistant', content='hi')
memory Decimal Decimal('0.0123')
memory datetime datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)
memory dict {1: 'hello'}
SEEN
