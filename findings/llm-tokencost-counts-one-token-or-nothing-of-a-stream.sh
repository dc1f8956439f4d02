#!/usr/bin/env bash
# llm-tokencost 0.7.0 (PyPI), track_anthropic() with anthropic 2.14.0: streamed answers cost nothing, or what their first token
# costs, and no budget stops them.
#
# Behaviour seen: "Streaming responses are fully supported", "Cost is tracked after stream completes". An answer of 1,000 tokens in
# and 10,000 out of claude-opus-4-6 costs 0.255; the budget is 1.00, with raise_on_budget. (1) Answers that are not streamed are
# counted, and the fourth ends it. (2) With messages.create(stream=True), the first event is counted, whose usage has the tokens
# in and one token out. The event that has all 10,000 has no model, is taken for a model "unknown" and left out, without a
# word. Ten answers for 2.55 are tracked as 0.05. (3) With messages.stream(), the one example of README's part on streaming, nothing
# is counted: only create() is wrapped. Ten answers for 2.55 are tracked as 0 in no request. (4) Tokens read from the cache are not
# in input_tokens and not counted either way: four answers that read 500,000 each cost 2.02 and are tracked as 1.02.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check llm-tokencost==0.7.0 litellm==1.110.2 anthropic==2.14.0 httpx2==2.16.2
export HOME=$work LITELLM_LOCAL_MODEL_COST_MAP=True
cat >stream.py <<'PY'
import json
from pathlib import Path

import anthropic
import httpx2
from tokencost import BudgetExceededError, CostTracker, track_anthropic

QUESTION = {"model": "claude-opus-4-6", "max_tokens": 16_000, "messages": [{"role": "user", "content": "Do it."}]}
bills = []


def event(name, **fields):
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n"


def provider(read):
    """Answers with 1,000 tokens in, `read` tokens read from the cache and 10,000 out, whole or as a stream."""

    def answer(request):
        bills.append((1_000 * 5 + read * 0.5 + 10_000 * 25) / 1_000_000)
        usage = {"input_tokens": 1_000, "output_tokens": 10_000}
        usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": read}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-4-6", "stop_sequence": None}
        if not json.loads(request.content).get("stream"):
            message |= {"content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn", "usage": usage}
            return httpx2.Response(200, json=message)
        message |= {"content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        events = [
            event("message_start", message=message),
            event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Done."}),
            event("content_block_stop", index=0),
            event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage),
            event("message_stop"),
        ]
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text="".join(events))

    return answer


def whole(client):
    return client.messages.create(**QUESTION).content[0].text


def events(client):
    stream = client.messages.create(stream=True, **QUESTION)
    return "".join(event.delta.text for event in stream if event.type == "content_block_delta")


def example(client):
    """As README's "Streaming Support" has it."""
    with client.messages.stream(**QUESTION) as stream:
        return "".join(stream.text_stream)


def tracked(name, ask, read=0):
    tracker = CostTracker(budget=1.00, raise_on_budget=True, print_summary=False)
    http = httpx2.Client(transport=httpx2.MockTransport(provider(read)))
    client = track_anthropic(anthropic.Anthropic(api_key="none", http_client=http), tracker)
    ended = "never stopped"
    try:
        for _ in range(10):
            assert ask(client) == "Done."
    except BudgetExceededError:
        ended = "stopped"
    tokens = {(entry["prompt_tokens"], entry["completion_tokens"]) for entry in tracker.history}
    line = f"{name}: {len(bills)} answers, {ended}, paid {sum(bills):.3f}, tracked {tracker.total_cost:.3f}"
    bills.clear()
    return f"{line} in {tracker.request_count} requests of {tokens or 'nothing'}\n"


lines = tracked("whole", whole) + tracked("events", events) + tracked("example", example)
Path("seen").write_text(lines + tracked("whole, with a cache", whole, 500_000))
PY
venv/bin/python stream.py >log 2>&1 || { cat log; exit 2; }
diff seen - <<'SEEN'
whole: 4 answers, stopped, paid 1.020, tracked 1.020 in 4 requests of {(1000, 10000)}
events: 10 answers, never stopped, paid 2.550, tracked 0.050 in 10 requests of {(1000, 1)}
example: 10 answers, never stopped, paid 2.550, tracked 0.000 in 0 requests of nothing
whole, with a cache: 4 answers, stopped, paid 2.020, tracked 1.020 in 4 requests of {(1000, 10000)}
SEEN
