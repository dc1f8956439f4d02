"""Messages between a provider's form and ours: OpenAI chat, OpenAI Responses, Anthropic, Gemini.

    converted = wire.convert(message, wire.shape_of(message), names := {})
    printed = wire.to_provider(converted[0].message, "anthropic")

`wire_request` makes a whole request of a context, which breaks none of a provider's rules; `broken_rules` checks one.

Adapters and formats stand on it. A name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_names

if TYPE_CHECKING:
    from flue_py.core.messages import check_complete, validate_message
    from flue_py.core.shapes import Shape, shape_of
    from flue_py.core.usage_shapes import ReportedUsage, read_reported, usage_json
    from flue_py.wire.applied import AppliedEdit, applied_edits
    from flue_py.wire.conversion import Converted, Printed, beside_ours, convert, to_provider
    from flue_py.wire.leftovers import ExportNote, Repair
    from flue_py.wire.requests import WireRequest, wire_request
    from flue_py.wire.rules import LIMITS, RULES, Broken, RequestLimits, broken_rules, limits_of
    from flue_py.wire.validity import Validity, broken_as_it_is
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "flue_py.core.messages": ("check_complete", "validate_message"),
            "flue_py.core.shapes": ("Shape", "shape_of"),
            "flue_py.core.usage_shapes": ("ReportedUsage", "read_reported", "usage_json"),
            "flue_py.wire.applied": ("AppliedEdit", "applied_edits"),
            "flue_py.wire.conversion": ("Converted", "Printed", "beside_ours", "convert", "to_provider"),
            "flue_py.wire.leftovers": ("ExportNote", "Repair"),
            "flue_py.wire.requests": ("WireRequest", "wire_request"),
            "flue_py.wire.rules": ("LIMITS", "RULES", "Broken", "RequestLimits", "broken_rules", "limits_of"),
            "flue_py.wire.validity": ("Validity", "broken_as_it_is"),
        },
    )


__all__ = [
    "LIMITS",
    "RULES",
    "AppliedEdit",
    "Broken",
    "Converted",
    "ExportNote",
    "Printed",
    "Repair",
    "ReportedUsage",
    "RequestLimits",
    "Shape",
    "Validity",
    "WireRequest",
    "applied_edits",
    "beside_ours",
    "broken_as_it_is",
    "broken_rules",
    "check_complete",
    "convert",
    "limits_of",
    "read_reported",
    "shape_of",
    "to_provider",
    "usage_json",
    "validate_message",
    "wire_request",
]
