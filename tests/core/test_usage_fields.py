"""The table of what providers report: every field of the types in their libraries is a line of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flue_py.core.usage import ANY, DOLLARS, FIELDS, ROWS, UPSTREAM, Rows

LIBRARIES = {
    "anthropic 2.14.0": """cache_creation.ephemeral_1h_input_tokens cache_creation.ephemeral_5m_input_tokens
        cache_creation_input_tokens cache_read_input_tokens inference_geo input_tokens output_tokens
        output_tokens_details.thinking_tokens server_tool_use.web_fetch_requests server_tool_use.web_search_requests
        service_tier speed fallback_credit.status.type""",
    "openai 3.57.0": """completion_tokens prompt_tokens total_tokens
        completion_tokens_details.accepted_prediction_tokens
        completion_tokens_details.audio_tokens completion_tokens_details.reasoning_tokens
        completion_tokens_details.rejected_prediction_tokens completion_tokens_details.text_tokens
        prompt_tokens_details.audio_tokens prompt_tokens_details.cache_write_tokens prompt_tokens_details.cached_tokens
        prompt_tokens_details.image_tokens prompt_tokens_details.text_tokens input_tokens
        input_tokens_details.cache_write_tokens input_tokens_details.cached_tokens
        input_tokens_details.cache_write_tokens_details.ttl_12h_tokens
        input_tokens_details.cache_write_tokens_details.ttl_30m_tokens output_tokens
        output_tokens_details.reasoning_tokens""",
    "google-genai 3.6.1": """cache_tokens_details cached_content_token_count candidates_token_count
        candidates_tokens_details prompt_token_count prompt_tokens_details thoughts_token_count
        tool_use_prompt_token_count tool_use_prompt_tokens_details total_token_count traffic_type response_token_count
        response_tokens_details service_tier cached_tokens_by_modality grounding_tool_count initial_input_tokens
        input_tokens_by_modality output_tokens_by_modality tool_use_tokens_by_modality total_cached_tokens
        total_input_tokens total_output_tokens total_thought_tokens total_tokens total_tool_use_tokens""",
    "botocore 1.44.8": """input_tokens output_tokens total_tokens cache_read_input_tokens cache_write_input_tokens
        cache_details.5m cache_details.1h service_tier performance_config.latency""",
    "langchain-core 1.8.3": """input_tokens output_tokens total_tokens input_token_details.audio
        input_token_details.cache_creation input_token_details.cache_read output_token_details.audio
        output_token_details.reasoning input_token_details.ephemeral_5m_input_tokens
        input_token_details.ephemeral_1h_input_tokens input_token_details.priority
        input_token_details.priority_cache_read input_token_details.priority_cache_creation
        input_token_details.flex input_token_details.flex_cache_read output_token_details.flex
        output_token_details.flex_reasoning""",
    "pydantic-ai 2.68": """input_tokens cache_write_tokens cache_write_1h_tokens cache_read_tokens output_tokens
        unmeasured_requests output_reasoning_tokens input_audio_tokens cache_audio_read_tokens output_audio_tokens
        audio_seconds details cost""",
    "genai-prices 0.2.3": """web_searches input_image_tokens input_video_tokens output_image_tokens output_video_tokens
        details.advisor_input_tokens details.advisor_output_tokens details.advisor_cache_creation_input_tokens
        details.advisor_cache_read_input_tokens""",
    "Mistral": "prompt_audio_seconds",
    "OpenRouter": "cost is_byok cost_details server_tool_use.web_search_requests",
}


def missing(path: str) -> bool:
    """Return whether a field is no line of the table."""
    node: object = FIELDS
    if path in DOLLARS or path in ("is_byok", UPSTREAM):
        return False
    for name in path.split("."):
        if not isinstance(node, Mapping) or name not in node:
            return True
        node = node[name]
    return False


def objects(node: object, path: str = "") -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield every object of the table with its path."""
    if isinstance(node, Mapping):
        yield path, node
        for name, part in node.items():
            yield from objects(part, f"{path}.{name}")


def test_every_field_of_a_library_is_in_the_table() -> None:
    assert [(name, path) for name, paths in LIBRARIES.items() for path in paths.split() if missing(path)] == []


def test_a_list_is_read_as_an_object_that_has_a_rule_for_it() -> None:
    for path, node in objects(FIELDS):
        assert isinstance(node.get(ROWS, Rows("", ())), Rows), path
        assert not isinstance(node.get(ANY), Mapping), path
