#!/usr/bin/env bash
# agentbudget 0.4.0 (PyPI), with the clients openai and anthropic: the call that goes over a limit is paid and never counted.
#
# Behaviour seen: "Hard limit: raises BudgetExhausted. No more calls allowed", "No silent overruns. No surprise bills", says its
# README. A call is priced when its answer is there. If that takes the total over the limit, BudgetExhausted is raised in place of
# the answer, and the cost is not added: spent and remaining stay as they were, and nothing is closed. (1) Eight calls of 0.30 under
# a limit of 1.00, by an agent whose steps may fail: all eight are sent and paid, 2.40. Five answers are thrown away. The report
# says 0.90 spent in 3 calls, 0.10 remaining, and ended by nothing. (2) "Costs roll up automatically" from a child to its
# parent: what took the child over its limit does not, here all it spent. (3) Two children, each given 0.70 while 1.00 was left: both
# stay within it, with 0.60. The parent cannot take the second, and reports 0.60 of 1.20. (4) Tokens written to and read from
# Anthropic's cache are not in input_tokens, and are looked for nowhere: five calls for 2.265 cost 0.09, below a limit of 1.00.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check agentbudget==0.4.0 openai==3.57.0 anthropic==2.14.0 httpx2==2.16.2
export HOME=$work
cat >spend.py <<'PY'
import agentbudget
import anthropic
import httpx2
import openai
from agentbudget import AgentBudget, BudgetExhausted

bills = []


def gpt(request):
    """gpt-4o with 100,000 tokens in and 5,000 out: 0.25 and 0.05 dollars."""
    bills.append(0.30)
    message = {"role": "assistant", "content": "Done."}
    answer = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100_000, "completion_tokens": 5_000, "total_tokens": 105_000},
    }
    return httpx2.Response(200, json=answer)


def claude(request):
    """claude-sonnet-4-5: 1,000 tokens in, 100,000 written to the cache, 200,000 read from it, 1,000 out."""
    bills.append((1_000 * 3 + 100_000 * 3.75 + 200_000 * 0.30 + 1_000 * 15) / 1_000_000)
    usage = {"input_tokens": 1_000, "output_tokens": 1_000}
    usage |= {"cache_creation_input_tokens": 100_000, "cache_read_input_tokens": 200_000}
    answer = {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "Done."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }
    return httpx2.Response(200, json=answer)


def options(provider):
    http = httpx2.Client(transport=httpx2.MockTransport(provider))
    return {"api_key": "none", "http_client": http, "max_retries": 0}


QUESTION = [{"role": "user", "content": "Do it."}]


def ask(client):
    client.chat.completions.create(model="gpt-4o", messages=QUESTION)


def show(report):
    spent, remaining = report["total_spent"], report["remaining"]
    calls, ended = report["breakdown"]["llm"]["calls"], report["terminated_by"]
    print(f"  paid {round(sum(bills), 6)}, spent {spent} in {calls} calls, remaining {remaining}, ended by {ended}")
    bills.clear()


agentbudget.init("$1.00")
client = openai.OpenAI(**options(gpt))
steps = []
for _ in range(8):
    try:
        ask(client)
        steps.append("answered")
    except BudgetExhausted:
        steps.append("exhausted")
print("eight calls of 0.30, limit 1.00:", *steps)
show(agentbudget.teardown())

with AgentBudget("$10.00").session() as parent:
    try:
        with parent.child_session(max_spend=0.20) as child:
            ask(agentbudget.wrap_client(openai.OpenAI(**options(gpt)), child))
    except BudgetExhausted:
        print("a child's call of 0.30, limit 0.20 of 10.00: exhausted")
show(parent.report())

with AgentBudget("$1.00").session() as parent:
    try:
        for child in [parent.child_session(max_spend=0.70), parent.child_session(max_spend=0.70)]:
            with child:
                client = agentbudget.wrap_client(openai.OpenAI(**options(gpt)), child)
                ask(client)
                ask(client)
            print("a child of two calls, limit 0.70 of 1.00: done")
    except BudgetExhausted:
        print("another child of two calls, limit 0.70 of 1.00: exhausted")
show(parent.report())

with AgentBudget("$1.00").session() as session:
    client = agentbudget.wrap_client(anthropic.Anthropic(**options(claude)), session)
    for _ in range(5):
        client.messages.create(model="claude-sonnet-4-5", max_tokens=2_000, messages=QUESTION)
print("five calls with a cache, limit 1.00: answered")
show(session.report())
PY
venv/bin/python spend.py 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
eight calls of 0.30, limit 1.00: answered answered answered exhausted exhausted exhausted exhausted exhausted
  paid 2.4, spent 0.9 in 3 calls, remaining 0.1, ended by None
a child's call of 0.30, limit 0.20 of 10.00: exhausted
  paid 0.3, spent 0.0 in 0 calls, remaining 10.0, ended by None
a child of two calls, limit 0.70 of 1.00: done
another child of two calls, limit 0.70 of 1.00: exhausted
  paid 1.2, spent 0.6 in 0 calls, remaining 0.4, ended by None
five calls with a cache, limit 1.00: answered
  paid 2.265, spent 0.09 in 5 calls, remaining 0.91, ended by None
SEEN
