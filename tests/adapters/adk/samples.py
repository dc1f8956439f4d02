"""Events of every kind, the same each time they are made."""

from __future__ import annotations

import math
from collections.abc import Callable

from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, HttpAuth, HttpCredentials
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event, NodeInfo
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

APP = "my_app"
USER = "alice"

Make = Callable[[], Event]

_HALF = chr(0xD800)


def said(text: str, **fields: object) -> Event:
    """Return what a user said."""
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return _event(author="user", content=content, **fields)


def answered(*parts: types.Part | str, **fields: object) -> Event:
    """Return what an agent answered."""
    made = [types.Part(text=part) if isinstance(part, str) else part for part in parts]
    return _event(author="root", content=types.Content(role="model", parts=made), **fields)


def returned(*results: types.FunctionResponse, **fields: object) -> Event:
    """Return what tools returned."""
    parts = [types.Part(function_response=result) for result in results]
    return _event(author="root", content=types.Content(role="user", parts=parts), **fields)


def acted(author: str = "root", **actions: object) -> Event:
    """Return an event without content."""
    return _event(author=author, actions=EventActions.model_validate(actions))


def used(prompt: int, answer: int, **more: int) -> types.GenerateContentResponseUsageMetadata:
    """Return what a call used."""
    return types.GenerateContentResponseUsageMetadata(
        prompt_token_count=prompt, candidates_token_count=answer, total_token_count=prompt + answer, **more
    )


def compacted(start: float, end: float, text: str, **fields: object) -> Event:
    """Return the summary of a span of time."""
    content = types.Content(role="model", parts=[types.Part(text=text)])
    compaction = EventCompaction(start_timestamp=start, end_timestamp=end, compacted_content=content)
    return _event(author="user", actions=EventActions(compaction=compaction), **fields)


def call(name: str, id: str | None = None, **arguments: object) -> types.Part:
    """Return a call of a function."""
    return types.Part(function_call=types.FunctionCall(id=id, name=name, args=arguments))


def result(name: str, id: str | None = None, **response: object) -> types.FunctionResponse:
    """Return what a function returned."""
    return types.FunctionResponse(id=id, name=name, response=response)


def _event(**fields: object) -> Event:
    return Event.model_validate({"invocation_id": "i-1", **fields})


def _signed() -> Event:
    thought = types.Part(text="Let me see.", thought=True, thought_signature=b"\xff\x00\xfe")
    first, second = call("read", "c-1", path="a"), call("read", "c-2", path=None, deep={"x": [1, 2.5, None]})
    first.thought_signature = b"\x01\x02"
    return answered(
        thought,
        "I shall read.",
        first,
        second,
        call("noid"),
        usage_metadata=used(800, 30, thoughts_token_count=12, cached_content_token_count=500),
        model_version="gemini-2.5-flash",
        finish_reason=types.FinishReason.STOP,
        long_running_tool_ids={"c-2", "c-1"},
        branch="root.child",
        node_info=NodeInfo(path="root@1/child@2", output_for=["root@1"]),
    )


def _grounded() -> Event:
    chunk = types.GroundingChunk(web=types.GroundingChunkWeb(uri="https://example.org", title="Example"))
    return answered(
        "It is so.",
        grounding_metadata=types.GroundingMetadata(web_search_queries=["is it so"], grounding_chunks=[chunk]),
        citation_metadata=types.CitationMetadata(citations=[types.Citation(start_index=0, end_index=2, uri="x")]),
        avg_logprobs=-0.25,
        logprobs_result=types.LogprobsResult(chosen_candidates=[types.LogprobsResultCandidate(token="a", token_id=3)]),
        custom_metadata={"mine": {"a": [1, None]}, "n": 1, "b": True, "f": 1.0},
        turn_complete=True,
        interaction_id="int-1",
    )


def _media() -> Event:
    return said("").model_copy(
        update={
            "content": types.Content(
                role="user",
                parts=[
                    types.Part(inline_data=types.Blob(data=bytes(range(256)) * 100, mime_type="image/png")),
                    types.Part(inline_data=types.Blob(data=b"??>>", mime_type="audio/wav", display_name="a.wav")),
                    types.Part(file_data=types.FileData(file_uri="gs://b/c.pdf", mime_type="application/pdf")),
                    types.Part(text="What is this?"),
                ],
            )
        }
    )


def _code() -> Event:
    return answered(
        types.Part(executable_code=types.ExecutableCode(code="print(1)", language=types.Language.PYTHON)),
        types.Part(code_execution_result=types.CodeExecutionResult(outcome=types.Outcome.OUTCOME_OK, output="1\n")),
        types.Part(video_metadata=types.VideoMetadata(fps=2.0), text="seen"),
    )


def _asked_for_credentials() -> Event:
    credential = AuthCredential(
        auth_type=AuthCredentialTypes.HTTP, http=HttpAuth(scheme="bearer", credentials=HttpCredentials(token="t"))
    )
    config = AuthConfig.model_validate(
        {
            "auth_scheme": {"type": "http", "scheme": "bearer"},
            "raw_auth_credential": credential,
            "credential_key": "key",
        }
    )
    return acted(
        requested_auth_configs={"c-1": config},
        requested_tool_confirmations={"c-2": ToolConfirmation(hint="sure?", confirmed=False, payload={"a": 1})},
    )


KINDS: dict[str, Make] = {
    "a text": lambda: said("Why is the build red?"),
    "an empty text": lambda: said(""),
    "calls, thoughts and usage": _signed,
    "one result": lambda: returned(result("read", "c-1", result="ok")),
    "several results": lambda: returned(
        result("read", "c-1", result='{"a": 1}'),
        result("read", "c-2", error="no such file"),
        result("noid", None, output={"a": [1, None, 1.0, True]}),
    ),
    "a result and a text": lambda: _event(
        author="user",
        content=types.Content(
            role="user",
            parts=[
                types.Part(text="before"),
                types.Part(function_response=result("read", "c-1")),
                types.Part(text="after"),
            ],
        ),
    ),
    "a result without a response": lambda: returned(types.FunctionResponse(id="c-9", name="f")),
    "grounding": _grounded,
    "pictures and files": _media,
    "code": _code,
    "an error": lambda: _event(
        author="root", error_code="SAFETY", error_message="no", usage_metadata=used(5, 0), finish_reason="SAFETY"
    ),
    "an error without words": lambda: _event(author="root", error_code="500"),
    "usage alone": lambda: _event(author="root", usage_metadata=used(3, 1), turn_complete=True),
    "content without parts": lambda: _event(author="root", content=types.Content(role="model", parts=[])),
    "content without a role": lambda: _event(author="root", content=types.Content(parts=[types.Part(text="x")])),
    "an agent as the user": lambda: _event(
        author="root", content=types.Content(role="user", parts=[types.Part(text="x")])
    ),
    "a model of another maker": lambda: answered("hi", model_version="openai/gpt-5", usage_metadata=used(1, 2)),
    "cut off": lambda: answered("I was", finish_reason=types.FinishReason.MAX_TOKENS),
    "interrupted": lambda: answered("I was", interrupted=True, finish_reason=types.FinishReason.OTHER),
    "transcriptions": lambda: _event(
        author="user", input_transcription=types.Transcription(text="hello", finished=True)
    ),
    "state": lambda: acted(state_delta={"k": 1, "app:a": [1], "user:u": {"x": None}, "gone": None}),
    "artifacts": lambda: acted(artifact_delta={"a.txt": 3}),
    "control": lambda: acted(
        transfer_to_agent="child", escalate=True, skip_summarization=False, end_of_agent=True, agent_state={"a": {}}
    ),
    "credentials": _asked_for_credentials,
    "output": lambda: _event(author="root", output={"answer": [1, 2.5, "x"]}),
    "what no JSON holds": lambda: answered("half \ud800 of a pair, NUL \0", custom_metadata={"x": "\udc00"}),
    "names that no JSON holds": lambda: answered(
        call("f", "c-1", **{_HALF: 1, chr(0xFFFD): 2}), custom_metadata={"\ud800": 1}, usage_metadata=used(4, 1)
    ),
    "control characters": lambda: said("\x1b[2J\u2028\ufeff"),
    "an odd id": lambda: said("x", id="n\0ul \ud800"),
    "a long id": lambda: said("x", id="i" * 3_000),
    "no id of an invocation": lambda: said("x", invocation_id=""),
}

ODD_NUMBERS: dict[str, Make] = {
    "an answer": lambda: answered(
        call("f", "c-1", a=math.nan, b=[math.inf, None, -math.inf], c=None),
        usage_metadata=used(4, 1),
        model_version="gemini-2.5-flash",
        custom_metadata={"n": math.nan},
        output=[math.inf],
        actions={
            "state_delta": {"n": math.nan, "\ud800": {"\ud800": math.inf}, "app:\ud800": "\ud800"},
            "agent_state": {"x": math.inf},
            "requested_tool_confirmations": {"c-1": ToolConfirmation(payload={"n": math.nan})},
        },
    ),
    "a result": lambda: returned(result("f", "c-1", **{"\ud800": [math.nan]})),
}
"""Events with numbers that no JSON holds, and that Python does not find equal to themselves."""
