"""How providers, and programs that serve models, say that a request is more than a window holds."""

from __future__ import annotations

import re
from typing import TypedDict

from flue_py.errors import ContextOverflow, FlueError

_MOST_WORDS = 1_000
_N = r"[\d,]{1,18}"
"""No count has more digits, and Python turns no text of thousands of them into a number."""
_TOKENS, _WINDOW = rf"(?P<tokens>{_N})", rf"(?P<window>{_N})"

_WITH_NUMBERS = (
    # Anthropic; Fireworks
    rf"prompt is too long: {_TOKENS} tokens > {_WINDOW}",
    rf"exceed context limit: {_TOKENS} \+ {_N} > {_WINDOW}",
    rf"prompt is too long: {_TOKENS}, model maximum context length: {_WINDOW}",
    # OpenAI; vLLM of several versions; OpenRouter, DeepSeek, Azure, LiteLLM
    rf"exceed the configured limit of {_WINDOW} tokens(?:.{{0,40}}?resulted in {_TOKENS})?",
    rf"passed {_TOKENS} input tokens.{{0,80}}?context length is only {_WINDOW}",
    rf"prompt \(length {_TOKENS}\) is longer than the maximum model length of {_WINDOW}",
    (
        rf"maximum context length (?:is|of) {_WINDOW}(?: tokens)?.{{0,80}}?"
        rf"(?:resulted in|requested|request has|contains)(?: about| at least)? {_TOKENS}"
    ),
    rf"maximum context length (?:is|of) {_WINDOW}",
    # Gemini, and the same by Vertex
    rf"input token count(?: \(?{_TOKENS}\)?)? exceeds the maximum number of tokens allowed \(?{_WINDOW}",
    rf"input token count is {_TOKENS} but (?:the )?model only supports up to {_WINDOW}",
    # GitHub Copilot, xAI, Mistral
    rf"prompt token count of {_TOKENS} exceeds the limit of {_WINDOW}",
    rf"maximum prompt length is {_WINDOW}(?: but the request contains {_TOKENS})?",
    rf"too large for model with {_WINDOW} maximum context length",
    # Cerebras; Cohere; Alibaba's DashScope; Poolside; Databricks
    rf"current length is {_TOKENS} while limit is {_WINDOW}",
    rf"tokens in the prompt cannot exceed {_WINDOW}(?: - received {_TOKENS})?",
    rf"range of input length should be \[\d+, {_WINDOW}\]",
    rf"input length {_TOKENS} exceeds (?:the )?maximum (?:allowed )?input length(?: of)? {_WINDOW}",
    # llama.cpp, SGLang, LM Studio, TensorRT-LLM, Triton, DwarfStar
    rf"request \({_TOKENS} tokens\) exceeds the available context size \({_WINDOW}",
    rf"input \({_TOKENS} tokens\) is longer than the model's context length \({_WINDOW}",
    rf"input length \({_TOKENS}(?: tokens)?\) exceeds the maximum allowed length \({_WINDOW}",
    rf"keep the first {_TOKENS} tokens.{{0,90}}?context length of only {_WINDOW}",
    rf"prompt length \({_TOKENS}\) exceeds maximum input length \({_WINDOW}",
    rf"requested tokens \({_TOKENS}\) exceed context window of {_WINDOW}",
    rf"prompt has {_TOKENS} tokens, but the configured context size is {_WINDOW}",
    # Hugging Face's TGI, and Together by it
    (
        r"(?:`?inputs`?|prompt) tokens (?:\+|and) `?max_new_tokens`? must be <= "
        rf"{_WINDOW}(?:\. Given: {_TOKENS})?"
    ),
    rf"`inputs` must have less than {_WINDOW} tokens(?:\. Given: {_TOKENS})?",
)
_WITHOUT_NUMBERS = (
    # Anthropic; OpenAI's Responses and LiteLLM; Bedrock; Perplexity
    r"exceeds model context window|model_context_window_exceeded|prompt is too long|request_too_large",
    r"exceeds the context window|exceeds the model's maximum context length|context[ _]length[ _]exceeded",
    r"input is too long|input tokens exceeded",
    r"longer than the model's context (?:length|window)",
    # Groq; Kimi; MiniMax; GLM; Baidu
    r"reduce the length of the messages|exceeded model token limit|context window exceeds limit",
    r"prompt exceeds max length|prompt tokens too long",
    # llama.cpp, LM Studio, Ollama, TensorRT-LLM
    r"exceeds the available context size|exceed_context_size_error|greater than the context length",
    r"prompt too long; exceeded (?:max )?context length|number of input tokens exceeds",
)
_MALFORMED = (
    # A context that was cut otherwise than the provider takes it: OpenAI and compatible, Responses, Anthropic, Gemini
    r"must be a response to a prece+ding message with '?tool_calls|tool_call_ids did not have response messages",
    r"no tool (?:output|call) found for function call",
    r"`?tool_use`? ids were found without `?tool_result`?|unexpected `?tool_use_id`? found in `?tool_result`?",
    r"function response parts is equal to the number of function call parts",
    r"max_tokens`? must be greater than `?thinking\.budget_tokens",
)
_STATUS_NAMES = ("status_code", "code", "status", "http_status")
"""Where clients have the status: those of OpenAI, Anthropic, Mistral and Cohere; Google's and urllib's; aiohttp's;
OpenAI's as of 2023."""
_OVERFLOWS = [
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), patterns is _MALFORMED)
    for patterns in (_WITH_NUMBERS, _WITHOUT_NUMBERS, _MALFORMED)
    for pattern in patterns
]


class NamedOverflow(TypedDict):
    """The tokens of a request and the window, as the words of an error have them; None if they do not."""

    tokens: int | None
    window: int | None
    is_malformed: bool


def named_overflow(words: str) -> NamedOverflow | None:
    """Return the facts in the words of an error about a request that is too large, or lacks a part of an exchange.

    None where they say neither. O(words).
    """
    for pattern, is_malformed in _OVERFLOWS:
        if match := pattern.search(words):
            tokens, window = (_number(match.groupdict().get(name)) for name in ("tokens", "window"))
            return {"tokens": tokens, "window": window, "is_malformed": is_malformed}
    return None


def overflow_of(error: Exception) -> ContextOverflow | None:
    """Return the overflow that an error is, or that the words of a client's own error tell of; None for any other.

    A limit of rates (429) is none, with any words. O(words).
    """
    if isinstance(error, FlueError):
        return error if isinstance(error, ContextOverflow) else None
    status, words = _status_of(error), str(error)
    named = None if status == 429 else named_overflow(words)
    if named is None and status != 413:
        return None
    named = named or {"tokens": None, "window": None, "is_malformed": False}
    overflow = ContextOverflow(f"{words[:_MOST_WORDS]}; compact the session, or send less", **named)
    overflow.__cause__ = error
    return overflow


def _status_of(error: Exception) -> int | None:
    """Return the status that a client's own error has, or the response that it brings; None where neither has one."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's
        return _as_status(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    values = (getattr(of, name, None) for of in (error, response) for name in _STATUS_NAMES)
    return next((status for value in values if (status := _as_status(value)) is not None), None)


def _as_status(value: object) -> int | None:
    return int(value) if isinstance(value, (int, str)) and re.fullmatch(r"[1-5]\d\d", str(value)) else None


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits.replace(",", "") or 0) or None
