"""The cases that are one call of a pure function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce
from typing import Any

import flue_py
from flue_py.compaction import (
    CompactionSettings,
    ContextEstimate,
    PreviousCompaction,
    appended_file_lists,
    calculate_context_tokens,
    file_lists,
    should_compact,
)
from flue_py.core.usage import NO_USAGE, Usage, UsageTotals, read_usage
from tests.conformance.comparing import Case, Json, Mismatch, check
from tests.conformance.planner import (
    estimate_context_tokens,
    estimate_tokens,
    prepare_compaction,
    serialize_conversation,
)


def sum_usage(usages: Iterable[Json]) -> Usage:
    return Usage.from_totals(reduce(UsageTotals.plus, map(read_usage, usages), NO_USAGE))


def _settings(settings: Json) -> CompactionSettings:
    return CompactionSettings(**settings)


def prepared(case: Case, prepare: Callable[..., Any] = prepare_compaction) -> Json:
    previous = case["previous"]
    plan = prepare(
        case["messages"], _settings(case["settings"]), None if previous is None else PreviousCompaction(**previous)
    )
    return plan and {
        "first_kept_index": plan.first_kept_index, "is_split_turn": plan.is_split_turn,
        "messages_to_summarize": len(plan.messages_to_summarize), "turn_prefix": len(plan.turn_prefix),
        "tokens_before": plan.tokens_before, "previous_summary": plan.previous_summary,
        "read_files": list(plan.files.read_files), "modified_files": list(plan.files.modified_files),
    }  # fmt: skip


def estimated(case: Case, estimate: Callable[..., ContextEstimate] = estimate_context_tokens) -> Json:
    found = estimate(case["messages"])
    names = ("tokens", "usage_tokens", "trailing_tokens", "last_usage_index")
    return {name: getattr(found, name) for name in names}


def listed(case: Case) -> Json:
    found = file_lists(case["read"], case["written"], case["edited"])
    return {
        "read_files": list(found.read_files),
        "modified_files": list(found.modified_files),
        "appended_text": appended_file_lists(found),
    }


CALLS: dict[str, Callable[[Case], Json]] = {
    "prepare_compaction": prepared,
    "estimate_tokens": lambda case: estimate_tokens(case["message"]),
    "estimate_context_tokens": estimated,
    "should_compact": lambda case: should_compact(
        case["context_tokens"], case["context_window"], _settings(case["settings"])
    ),
    "calculate_context_tokens": lambda case: calculate_context_tokens(case["usage"]),
    "sum_usage": lambda case: {"cost": sum_usage(case["usages"]).to_json()},
    "serialize_conversation": lambda case: serialize_conversation(case["messages"]),
    "file_lists": listed,
}


PRODUCT: dict[str, Callable[[Case], Json]] = {
    **CALLS,
    "prepare_compaction": partial(prepared, prepare=flue_py.compaction.prepare_compaction),
    "estimate_tokens": lambda case: flue_py.compaction.estimate_tokens(case["message"]),
    "estimate_context_tokens": partial(estimated, estimate=flue_py.compaction.estimate_context_tokens),
    "serialize_conversation": lambda case: flue_py.compaction.serialize_conversation(case["messages"]),
}
"""The same calls of the functions of flue_py, which depart from the reference on purpose."""


def run_call(case: Case, calls: Mapping[str, Callable[[Case], Json]] = CALLS) -> None:
    """Call the function that the case names, and compare. Raises `Mismatch`."""
    name = case.get("fn", "prepare_compaction")
    try:
        actual = calls[name](case)
    except Exception as error:
        raise Mismatch(f"{name}: raised {error!r}") from error
    check({"cost": case["expect"]} if name == "sum_usage" else case["expect"], actual)
