"""Usage in the shapes of providers and frameworks, and the table of what providers report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.json import JsonObject
from flue_py.core.usage import (
    ANY,
    DOLLARS,
    FIELDS,
    MAX_AMOUNT,
    NO_USAGE,
    ROWS,
    UPSTREAM,
    Rows,
    UsageTotals,
    billed_by,
    read_reported,
    usage_json,
)
from tests.tables import inputs
from tests.values import shapes

ONE_CALL = UsageTotals(input=70, output=30, cache_read=20, cache_write=10, total_tokens=130)
"""100 tokens were sent, 20 of them from the cache and 10 into it; 30 came back, 8 of them reasoning."""

SHAPES: dict[str, JsonObject] = shapes("usage")


def camel(name: str) -> str:
    """Return a name in camel case."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def in_camel_case(value: Any) -> Any:
    """Return JSON with every key in camel case."""
    return {camel(name): in_camel_case(each) for name, each in value.items()} if isinstance(value, dict) else value


@inputs("shape", SHAPES)
@inputs("spelled", [lambda value: value, in_camel_case], ids=["as it is", "camel case"])
def test_a_call_is_the_same_in_every_shape(shape: str, spelled: Any) -> None:
    read = read_reported(spelled(SHAPES[shape]))
    assert (read.totals, read.is_known, read.oddities) == (ONE_CALL, True, ())
    assert read.reasoning == (8 if any(word in str(SHAPES[shape]) for word in ("reasoning", "thinking")) else 0)
    assert read.told >= {"input", "output", "cacheRead", "cacheWrite"}
    if "1h" in str(SHAPES[shape]):
        assert read.cache_write_1h == (3 if shape == "LangChain, a sum of both" else 4)
    assert read_reported(usage_json(read)).totals == ONE_CALL


GEMINI: JsonObject = {
    "promptTokenCount": 100, "cachedContentTokenCount": 20, "candidatesTokenCount": 22, "thoughtsTokenCount": 8,
    "toolUsePromptTokenCount": 5, "totalTokenCount": 135,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 100}], "trafficType": "ON_DEMAND",
}  # fmt: skip
SNAKE_GEMINI: JsonObject = {
    "prompt_token_count": 100, "cached_content_token_count": 20, "candidates_token_count": 22,
    "thoughts_token_count": 8, "tool_use_prompt_token_count": 5, "total_token_count": 135,
    "prompt_tokens_details": None,
}  # fmt: skip


@inputs("usage", [GEMINI, SNAKE_GEMINI])
def test_gemini_counts_thoughts_beside_the_candidates_and_the_cache_within_the_prompt(usage: JsonObject) -> None:
    read = read_reported(usage)
    assert read.totals == UsageTotals(input=85, output=30, cache_read=20, total_tokens=135)
    assert (read.reasoning, read.oddities) == (8, ())


def test_the_interactions_of_gemini_and_the_billed_units_of_cohere_are_read() -> None:
    interaction = read_reported({
        "total_input_tokens": 100, "total_cached_tokens": 20, "total_output_tokens": 22, "total_thought_tokens": 8,
        "total_tool_use_tokens": 5, "total_tokens": 135,
        "input_tokens_by_modality": [{"modality": "text", "tokens": 100}],
    })  # fmt: skip
    assert interaction.totals == UsageTotals(input=85, output=30, cache_read=20, total_tokens=135)
    assert (interaction.reasoning, interaction.terms) == (8, ())
    cohere = read_reported({
        "billed_units": {"input_tokens": 9, "output_tokens": 4}, "tokens": {"input_tokens": 70, "output_tokens": 5},
        "cached_tokens": 0,
    })  # fmt: skip
    assert (cohere.totals, cohere.terms) == (UsageTotals(input=9, output=4, total_tokens=13), ())


def test_with_the_own_key_of_a_user_the_cost_is_what_the_provider_of_the_model_charged_and_the_fee() -> None:
    parts = {"upstream_inference_prompt_cost": 0.25, "upstream_inference_completions_cost": 0.5}
    wrong = [
        (usage, read.cost, read.terms)
        for usage, want in (
            ({"cost": 0.5, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.25}}, 0.5),
            ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.25, **parts}}, 0.25),
            ({"cost_details": {"upstream_inference_cost": 0.25}, "is_byok": True, "cost": 0.5}, 0.75),
            ({"cost": 0.25, "isByok": True, "costDetails": parts}, 1.0),
            ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": None}}, None),
            ({"cost": 0, "is_byok": True}, None),
            ({"is_byok": True, "cost_details": parts}, None),
            ({"cost": {"input_tokens_cost": 0.25, "request_cost": 0.5, "total_cost": 0.75}}, 0.75),
        )
        if (read := read_reported({"prompt_tokens": 4, "completion_tokens": 1, **usage})).cost
        != (None if want is None else int(want * 10**12))
        or (want is None) != (("key", "own") in read.terms)
    ]
    assert wrong == []


def test_what_changes_the_price_stays_with_a_usage_that_is_translated() -> None:
    usage: JsonObject = {"prompt_tokens": 4, "completion_tokens": 1, "service_tier": "flex", "num_sources_used": 2}
    read = read_reported(usage)
    assert read.terms == (("num_sources_used", "2"), ("service_tier", "flex"))
    assert read_reported(usage_json(read)).terms == read.terms
    assert billed_by({"serviceTier": {"type": "flex"}, "id": "r"}, {"server_tool_use": {"web_search_requests": 3}}) == {
        "terms": {"service_tier": "flex", "web_searches": "3"}
    }


def test_what_a_compaction_of_the_provider_took_is_among_the_iterations() -> None:
    steps: list[Any] = [
        {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
        {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000, "cache_read_input_tokens": 10},
    ]
    read = read_reported({"input_tokens": 0, "output_tokens": 0, "iterations": steps})
    assert read.totals == UsageTotals(203_000, 4_500, 10, 0, 207_510)
    once = read_reported({**steps[1], "iterations": steps[1:]})
    assert once.totals == UsageTotals(23_000, 1_000, 10, 0, 24_010)


def test_a_part_of_a_number_may_be_in_the_whole_or_in_its_steps() -> None:
    """Which of the writes are kept for an hour, and what was reasoning."""
    step: dict[str, Any] = {"input_tokens": 10, "output_tokens": 9, "cache_creation_input_tokens": 8}
    split = {"cache_creation": {"ephemeral_1h_input_tokens": 5}, "output_tokens_details": {"thinking_tokens": 3}}
    wrong = []
    for name, whole, steps in (
        ("in the whole, which the steps outnumber", step | split, [step, step]),
        ("in the steps, which outnumber the whole", step, [step | split, step]),
        ("in the whole", step | split, [step]),
        ("in the step", step, [step | split]),
        (
            "in the step, more than the whole has",
            step | split,
            [step | {"output_tokens_details": {"thinking_tokens": 9}}],
        ),
    ):
        read = read_reported({**whole, "iterations": steps})
        if (read.cache_write_1h, read.reasoning, read.oddities) != (5, 9 if "more" in name else 3, ()):
            wrong.append((name, read))
    assert wrong == []


def test_a_cache_of_none_does_not_say_that_the_input_has_what_another_field_counts() -> None:
    wrong = []
    for usage, want in (
        ({"input_tokens": 1000, "cache_read_input_tokens": 500, "cached_tokens": 0}, (1000, 500)),
        ({"input_tokens": 9, "cache_read_input_tokens": 5, "input_tokens_details": {"cached_tokens": 0}}, (9, 5)),
        ({"input_tokens": 1000, "cached_tokens": 500, "cache_write_tokens": 0}, (500, 500)),
        ({"prompt_tokens": 1000, "cache_read_input_tokens": 500, "cached_tokens": 0}, (500, 500)),
    ):  # fmt: skip
        read = read_reported(usage)
        if ((read.totals.input, read.totals.cache_read), read.oddities) != (want, ()):
            wrong.append((usage, read))
    assert wrong == []


@inputs("cost", [{"cost": 0.25}, {"cost_usd": 0.25}, {"costUSD": 0.25}, {"CostUsd": 0.25}])
def test_a_cost_may_be_one_number_of_dollars(cost: JsonObject) -> None:
    read = read_reported({"prompt_tokens": 4, "completion_tokens": 1, **cost})
    assert (read.cost, read.totals.cost_total) == (250_000_000_000, 250_000_000_000)


def test_an_absent_total_is_the_sum_and_a_reported_one_stays() -> None:
    assert read_reported({"input": 1, "cacheRead": 43_000_000}).totals.total_tokens == 43_000_001
    assert read_reported({"input": 1, "totalTokens": 7}).totals.total_tokens == 7
    assert read_reported({"input": 1, "totalTokens": 0}).totals.total_tokens == 0
    assert read_reported({"cost": {"input": 0.25, "output": 0.5}}).totals.cost_total == 750_000_000_000


@inputs(
    "usage", [{}, {"tokens": 5}, {"requests": 1}, {"usage": {"input": 5}}, {"input": None}, {"cost": {}}, {"inputs": 5}]
)
def test_where_nothing_is_recognised_the_usage_is_unknown(usage: JsonObject) -> None:
    read = read_reported(usage)
    assert (read.totals, read.cost, read.is_known, read.told) == (NO_USAGE, None, False, frozenset())


@inputs(
    ("usage", "totals", "reasoning", "written_1h", "oddity"),
    [
        ({"input": 5, "output": 2, "reasoning": 7}, (5, 2, 0, 0, 7), 2, 0, "usage.reasoning: 7 is more than the 2"),
        ({"cacheWrite": 2, "cacheWrite1h": 7}, (0, 0, 0, 2, 2), 0, 2, "usage.cacheWrite1h: 7 is more than the 2"),
        ({"input": -5, "output": 2}, (0, 2, 0, 0, 2), 0, 0, "usage.input: -5 is not a number of tokens"),
        ({"input": 1.5, "output": 2}, (0, 2, 0, 0, 2), 0, 0, "usage.input: 1.5 is not a number of tokens"),
        ({"input": "5", "output": 2}, (0, 2, 0, 0, 2), 0, 0, "usage.input: '5' is not a number of tokens"),
        ({"prompt_tokens": 5, "cached_tokens": 9}, (0, 0, 9, 0, 9), 0, 0, "usage.input: 5 is less than the 9"),
        ({"input": MAX_AMOUNT, "output": 1}, (0, 0, 0, 0, 0), 0, 0, "usage: its numbers come to more than"),
    ],
)
def test_numbers_that_do_not_add_up_are_told_and_never_refused(
    usage: JsonObject, totals: tuple[int, ...], reasoning: int, written_1h: int, oddity: str
) -> None:
    read = read_reported(usage)
    assert read.totals[:5] == totals
    assert (read.reasoning, read.cache_write_1h) == (reasoning, written_1h)
    assert len(read.oddities) == 1
    assert read.oddities[0].startswith(oddity)


NAMES = sorted({name for shape in [*SHAPES.values(), GEMINI, SNAKE_GEMINI] for name in shape} | {"cost", "iterations"})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=8))
def test_reading_never_fails_and_gives_numbers_that_can_be_stored(usage: Any) -> None:
    read = read_reported(usage)
    assert all(type(number) is int and 0 <= number <= MAX_AMOUNT for number in read.totals)
    assert 0 <= read.reasoning <= read.totals.output
    assert 0 <= read.cache_write_1h <= read.totals.cache_write
    assert read.is_known or read.totals == NO_USAGE


def test_a_number_in_a_field_that_no_usage_has_is_an_oddity_that_names_it() -> None:
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"input": 5, "ouput": 600}, ["ouput", "600", "did you mean 'output'?"]),
        ({"input_tokens": 5, "ouputTokens": 600}, ["ouputTokens", "did you mean 'output_tokens'?"]),
        ({"input": 5, "cahceRead": 600}, ["cahceRead", "did you mean 'cache_read'?"]),
        ({"input": 5, "zebras": 600}, ["zebras", "600 is not counted"]),
        ({"zebras": 600}, ["zebras", "600 is not counted"]),
        ({"input": 5, "output": 6, "zebras": 0, "giraffes": None, "note": "x", "more": {"a": 1}}, []),
        ({"input_tokens": 5, "output_tokens": 6, "requests": 2, "tool_calls": 1}, []),
    ]
    wrong = []
    for usage, words in cases:
        read = read_reported(usage)
        if len(read.oddities) != bool(words) or any(word not in read.oddities[0] for word in words):
            wrong.append((usage, read.oddities))
    assert not wrong


# -- The table of what providers report: every field of the types in their libraries is a line of it --------------


LIBRARIES: dict[str, list[str]] = shapes("fields")


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
    assert [(name, path) for name, paths in LIBRARIES.items() for path in paths if missing(path)] == []


def test_a_list_is_read_as_an_object_that_has_a_rule_for_it() -> None:
    for path, node in objects(FIELDS):
        assert isinstance(node.get(ROWS, Rows("", ())), Rows), path
        assert not isinstance(node.get(ANY), Mapping), path
