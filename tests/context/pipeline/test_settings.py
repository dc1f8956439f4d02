"""The settings of the pipeline: one model, whose errors name the path of each field, and a JSON schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from flue_py.context.settings import (
    AgentContext,
    ContextSettings,
    ContextWindow,
    InTurn,
    Microcompacting,
    context_schema,
    context_settings,
)
from flue_py.errors import InvalidArgument
from tests.tables import inputs


def test_a_json_object_is_what_the_classes_are() -> None:
    given = {
        "window": {"max_turn_age": 4, "exclude_agents": ["Coder"]},
        "agents": {"Reviewer": {"window": {"text_only": True}}},
    }
    made = ContextSettings(
        window=ContextWindow(max_turn_age=4, exclude_agents=("Coder",)),
        agents={"Reviewer": AgentContext(window=ContextWindow(text_only=True))},
    )
    assert context_settings(json.loads(json.dumps(given))) == made
    assert context_settings(made.model_dump()) == made
    assert context_settings(json.loads(made.model_dump_json())) == made


@inputs(
    ("given", "paths"),
    [
        ({"window": {"max_turn_age": -1}}, ["window.max_turn_age"]),
        ({"window": {"max_turn_age": "4"}}, ["window.max_turn_age"]),
        ({"window": {"max_tail_messages": True}}, ["window.max_tail_messages"]),
        ({"windows": {}}, ["windows"]),
        ({"window": {"exclude_agents": [""]}}, ["window.exclude_agents.0"]),
        ({"window": {"text_only": 1, "context_cap_fraction": 2}}, ["window.text_only", "window.context_cap_fraction"]),
        ({"agents": {"A": {"trim": {"max_tokens": 0}}}}, ["agents.A.trim.max_tokens"]),
        ({"agents": {"A": {"agents": {}}}}, ["agents.A.agents"]),
        ({"epoch_tokens": None}, ["epoch_tokens"]),
        ({1: 2}, ["1"]),
        ({"trim": {"max_tokens": 2**53}, "epoch_tokens": 10**5_000}, ["trim.max_tokens", "epoch_tokens"]),
        ({"window": {"context_cap_fraction": float("nan")}}, ["window.context_cap_fraction"]),
        ({"agents": {"Coder": {}, " coder": {}}}, ["agents"]),
        (
            {"window": {"tool_result_char_overrides": {"read_file": 1, "ReadFile": 1}}},
            ["window.tool_result_char_overrides"],
        ),
        ({"x" * 1_000: 1}, ["x" * 200 + "..."]),
        ({f"field{at}": 1 for at in range(50)}, [*(f"field{at}" for at in range(20)), "and 30 more"]),
    ],
)
def test_wrong_values_are_named_by_their_path(given: Any, paths: list[str]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        context_settings(given)
    assert [problem.split(":")[0] for problem in str(caught.value).split("; ")] == paths


def test_a_class_names_its_own_fields() -> None:
    with pytest.raises(InvalidArgument, match=r"^max_turn_age: .* greater than or equal to 0, not -1"):
        ContextWindow(max_turn_age=-1)
    with pytest.raises(InvalidArgument, match="window"):
        ContextSettings(window=5)  # type: ignore[arg-type]


@inputs("given", [5, "text", [], object()])
def test_what_is_no_settings_is_refused(given: Any) -> None:
    with pytest.raises(InvalidArgument, match="settings: should be ContextSettings"):
        context_settings(given)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        ContextSettings().epoch_tokens = 5  # type: ignore[misc]


def test_an_agent_has_its_own_and_what_it_does_not_name_is_as_for_all() -> None:
    chosen = ContextSettings(
        microcompact=Microcompacting(keep=3),
        epoch_tokens=7,
        agents={"Coder": AgentContext(in_turn=InTurn(max_tool_pairs=8)), "R": AgentContext(microcompact=None)},
    )
    coder = chosen.of("coder")
    assert (coder.microcompact, coder.in_turn, coder.epoch_tokens) == (
        Microcompacting(keep=3), InTurn(max_tool_pairs=8), 7,
    )  # fmt: skip
    assert chosen.of("R").microcompact is None
    assert chosen.of(" r ").microcompact is None
    assert chosen.of(None) is chosen
    assert chosen.of("nobody") is chosen


def test_the_schema_has_every_field_with_its_default() -> None:
    schema: Any = context_schema()
    assert schema["additionalProperties"] is False
    assert schema["properties"].keys() == ContextSettings.model_fields.keys()
    window = schema["$defs"]["ContextWindow"]
    assert window["properties"]["max_turn_age"] == {
        "default": 0, "maximum": 2**53 - 1, "minimum": 0, "title": "Max Turn Age", "type": "integer",
    }  # fmt: skip
    assert "text_only" in window["description"]
