"""Histories as corrupt as a store may hold them, for the tests of what is sent to providers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from flue_py.core.json import JsonObject

texts = st.sampled_from(["", " ", "\n", "words", "words \n", "日本", "\ud83d", "a" * 300])
ids = st.sampled_from(["", "c1", "c2", "c 1", "c_1", "call_x|fc_y", "é", "toolu_" + "z" * 80, "z" * 41, "x" * 64])
names = st.sampled_from(["read", "mcp.read", "", "9lives", "a b", "n" * 130, "日本"])
models = st.sampled_from([
    ("anthropic", "claude-sonnet-4-5"), ("anthropic", "claude-opus-4-5"), ("openai", "gpt-5"),
    ("google", "gemini-3-pro"), ("mistral", "large"), (None, None),
])  # fmt: skip
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

images = st.sampled_from([
    {"type": "image", "data": PNG, "mimeType": "image/png"},
    {"type": "image", "data": "QUJD", "mimeType": "image/tiff"},
    {"type": "image", "data": "QUJD"},
    {"type": "image", "url": "https://example.org/a.png"},
    {"type": "image", "url": f"data:image/bmp;base64,{PNG}"},
    {"type": "image"},
])  # fmt: skip
calls = st.builds(
    lambda call_id, name, arguments: {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments},
    ids,
    names,
    st.sampled_from([{}, {"path": "a"}, None, "not an object", [1]]),
)
thoughts = st.sampled_from([
    {"type": "thinking", "thinking": "hm"},
    {"type": "thinking", "thinking": "hm", "thinkingSignature": ""},
    {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"},
    {"type": "thinking", "thinking": "", "thinkingSignature": "c2ln", "redacted": True},
    {"type": "thinking", "thinking": "hm", "thinkingSignature": '{"type":"reasoning","id":"rs_1","summary":[]}'},
])  # fmt: skip
odd = st.sampled_from([
    {"type": "text", "text": ""}, {"type": "unheard_of", "x": 1}, {"type": "file"},
    {"type": "file", "data": "QUJD", "mimeType": "text/plain", "filename": "a.txt"},
    {"type": "file", "data": "QUJD", "mimeType": "application/msword"}, {"type": "file", "data": "QUJD"},
    {"type": "file", "url": "data:text/plain;base64,IA=="}, {"type": "file", "data": "\xe9", "mimeType": "text/plain"},
    {"type": "refusal", "refusal": "no"},
    {"type": "compaction", "content": None}, {"type": "web_search_call", "id": "ws_1", "status": "completed"},
])  # fmt: skip
said = st.builds(lambda text: {"type": "text", "text": text}, texts)


def contents(*parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return texts | st.none() | st.lists(st.one_of(*parts), max_size=4)


def _answer(content: Any, model: tuple[str | None, str | None], stop: str) -> JsonObject:
    provider, name = model
    named: JsonObject = {} if provider is None else {"provider": provider, "model": name, "api": "openai-responses"}
    return {"role": "assistant", "content": content, "stopReason": stop, **named}


messages: st.SearchStrategy[JsonObject] = st.one_of(
    st.builds(lambda content: {"role": "user", "content": content}, contents(said, images, odd)),
    st.builds(
        _answer,
        contents(said, calls, calls, thoughts, images, odd),
        models,
        st.sampled_from(["stop", "toolUse", "error", "aborted"]),
    ),
    st.builds(
        lambda call_id, name, content, failed: {
            "role": "toolResult", "toolCallId": call_id, "toolName": name, "content": content, "isError": failed,
        },
        ids, names, contents(said, images, odd), st.booleans(),
    ),
    st.builds(lambda content: {"role": "system", "content": content}, contents(said)),
    st.builds(lambda content: {"role": "custom", "content": content}, contents(said, images)),
    st.sampled_from([
        {"role": "bashExecution", "command": "ls", "output": "a.py", "exitCode": 0},
        {"role": "bashExecution", "command": "ls", "output": "", "excludeFromContext": True},
        {"role": "memory", "content": "m"},
        {"role": "developer", "content": "d"},
    ]),
)  # fmt: skip
histories = st.lists(messages, max_size=14)
