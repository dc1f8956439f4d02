"""A whole response in a file: what stands beside its usage changes its price, too."""

from __future__ import annotations

import json
from typing import Any

from flue_py.formats.lists import parse_openai_responses


def test_the_tier_and_the_searches_of_a_response_are_terms_of_its_call() -> None:
    response: dict[str, Any] = {
        "object": "response", "id": "resp_1", "model": "gpt-5", "service_tier": "flex",
        "output": [
            {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "q"}},
            {"type": "web_search_call", "id": "ws_2", "action": {"type": "open_page", "url": "u"}},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": "hi", "annotations": []}]},
        ],
        "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
    }  # fmt: skip
    (session,) = parse_openai_responses(json.dumps(response).encode())
    calls = [call for entry in session.entries for call in entry.calls]
    assert [call.terms for call in calls] == [(("service_tier", "flex"), ("web_searches", "1"))]
