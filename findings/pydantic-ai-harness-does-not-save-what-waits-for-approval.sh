#!/usr/bin/env bash
# pydantic-ai-harness 0.62.0 with pydantic-ai-slim 2.62.0 (PyPI): StepPersistence has no resume point for a run that waits
# for a person, and says of the tool that was not run that it may have been.
#
# Behaviour seen: a run ends with DeferredToolRequests, since one of its two tools asks for approval and the other has
# been run. (1) The store has no snapshot of it, complete or interrupted: `continue_run` raises LookupError, although the
# run completed. With `capture_frontier=True` the newest complete snapshot is the prompt alone, which asks the model
# again, and the interrupted one lacks the result of the tool that was run, so that resuming it is refused. Only who
# stores `all_messages()` can go on. (2) The call that waits is in the ledger as `started`, which stands for "unknown
# after a crash"; it stays so after a second run in which it was approved and completed.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check pydantic-ai-harness==0.62.0 pydantic-ai-slim==2.62.0
cat >waits.py <<'PY'
import asyncio

from pydantic_ai import Agent, ApprovalRequired, DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_harness.step_persistence import InMemoryStepStore, StepPersistence, continue_run

APPROVED = DeferredToolResults(approvals={"call_delete": True})


def answer(messages, info):
    if isinstance(messages[-1].parts[-1], UserPromptPart):
        calls = ToolCallPart("look", {}, tool_call_id="call_look"), ToolCallPart("delete", {}, tool_call_id="call_delete")
        return ModelResponse(parts=list(calls))
    return ModelResponse(parts=[TextPart("done")])


async def attempt(frontier):
    store = InMemoryStepStore()
    persistence = StepPersistence(store=store, capture_frontier=frontier)
    agent = Agent(FunctionModel(answer), output_type=[str, DeferredToolRequests], capabilities=[persistence])

    @agent.tool
    def delete(ctx: RunContext) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return "deleted"

    @agent.tool_plain
    def look() -> str:
        return "seen"

    waiting = await agent.run("go", conversation_id="one")
    print("frontier", frontier, "waits for", [call.tool_name for call in waiting.output.approvals])
    run_id = (await store.list_runs())[0].run_id
    events = [(event.kind, event.tool_call_id) for event in await store.list_events(run_id=run_id)]
    print("run completed:", ("run_completed", None) in events)
    for interrupted in (False, True):
        try:
            messages = await continue_run(store, run_id=run_id, include_interrupted=interrupted)
        except LookupError:
            print("interrupted", interrupted, "no snapshot")
            continue
        print("interrupted", interrupted, "messages", len(messages))
        if interrupted:
            try:
                await agent.run(message_history=messages, deferred_tool_results=APPROVED, conversation_id="one")
            except UserError:
                print("refused")
    again = await agent.run(message_history=waiting.all_messages(), deferred_tool_results=APPROVED, conversation_id="one")
    print("approved:", again.output)
    for effect in await store.list_unresolved_tool_effects(run_id=run_id):
        print("unresolved:", effect.tool_name, effect.status)


asyncio.run(attempt(False))
asyncio.run(attempt(True))
PY
venv/bin/python waits.py | tee seen
diff seen - <<'SEEN'
frontier False waits for ['delete']
run completed: True
interrupted False no snapshot
interrupted True no snapshot
approved: done
unresolved: delete started
frontier True waits for ['delete']
run completed: True
interrupted False messages 1
interrupted True messages 2
refused
approved: done
unresolved: delete started
SEEN
