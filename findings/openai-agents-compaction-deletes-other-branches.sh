#!/usr/bin/env bash
# openai-agents 0.24.0 (PyPI): a compaction of one branch of an AdvancedSQLiteSession deletes all other branches, and the usage.
#
# Behaviour seen: OpenAIResponsesCompactionSession "Wraps any Session"; AdvancedSQLiteSession is the one with branches and with
# the usage of each turn. Where a compaction cannot replace rows in place, as here, it reads the items of the current branch,
# clears the session and adds what the compaction gave back. Clearing takes every branch and every row of usage along. (1)
# After a question on `main`, a branch from there and a question on each, the compaction of the branch leaves no word of what
# was said on `main`, neither in get_items nor in the file: what is called `main` now is the compacted branch, and the branch's
# own name is gone. (2) Of three runs that were stored with store_run_usage, none is left:
# get_session_usage gives None. (3) With the automatic compaction, which runs within Runner.run, it goes as with a call of
# run_compaction; then only the run after it is in the usage, as turn 1 of 1. No warning is logged.
#
# Needs Python 3.10 with venv and a registry; the model and the client are made up. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check openai-agents==0.24.0
cat >branches.py <<'PY'
import asyncio
import sqlite3
from types import SimpleNamespace

from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.extensions.memory import AdvancedSQLiteSession
from agents.memory import OpenAIResponsesCompactionSession
from openai.types.responses import ResponseOutputMessage, ResponseOutputText


class Answers(Model):
    """Answers with the last question's words, at 100 tokens in and 10 out."""

    async def get_response(self, *args, **kwargs):
        text = ResponseOutputText(type="output_text", text=f"answer to {kwargs['input'][-1]['content']}", annotations=[])
        message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        usage = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)
        return ModelResponse(output=[message], usage=usage, response_id="response")

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


class Responses:
    async def compact(self, **_):
        return SimpleNamespace(output=[{"type": "compaction", "id": "c", "encrypted_content": "all in short"}], usage=None)


async def tell(name, automatic):
    store = AdvancedSQLiteSession(session_id="talk", db_path=f"{name}.db", create_tables=True)
    session = OpenAIResponsesCompactionSession(
        "talk",
        store,
        client=SimpleNamespace(responses=Responses()),
        should_trigger_compaction=lambda context: automatic and len(context["session_items"]) >= 6,
    )

    async def ask(question):
        await store.store_run_usage(await Runner.run(Agent(name="agent", model=Answers()), question, session=session))

    async def show(when):
        branches = {branch["branch_id"]: branch["message_count"] for branch in await store.list_branches()}
        usage = await store.get_session_usage() or {}
        rows = str(sqlite3.connect(f"{name}.db").execute("SELECT message_data FROM agent_messages").fetchall())
        kept = "is" if "only on main" in rows else "is not"
        print(f"{name}, {when}: {branches}, {usage.get('total_tokens')} tokens, what was said on main {kept} there")

    await ask("first")
    await ask("only on main")
    await store.create_branch_from_turn(2, "other")
    await ask("only on other")
    await show("before")
    await (ask("one more") if automatic else session.run_compaction({"force": True}))
    await show("after")


set_tracing_disabled(True)
asyncio.run(tell("by hand", automatic=False))
asyncio.run(tell("automatic", automatic=True))
PY
OPENAI_API_KEY=none venv/bin/python branches.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
by hand, before: {'main': 4, 'other': 4}, 330 tokens, what was said on main is there
by hand, after: {'main': 1}, None tokens, what was said on main is not there
automatic, before: {'main': 4, 'other': 4}, 330 tokens, what was said on main is there
automatic, after: {'main': 1}, 110 tokens, what was said on main is not there
SEEN
