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
    from flue_py.core.kinds import Shape, shape_of
    from flue_py.core.messages import check_complete, validate_message
    from flue_py.core.usage import ReportedUsage, read_reported, usage_json
    from flue_py.providers.anthropic import AppliedEdit, applied_edits
    from flue_py.providers.base import LIMITS, Broken, ExportNote, Repair, RequestLimits, limits_of
    from flue_py.providers.request import (
        Converted,
        Printed,
        Validity,
        WireRequest,
        beside_ours,
        broken_as_it_is,
        convert,
        to_provider,
        wire_request,
    )
    from flue_py.providers.rules import RULES, broken_rules
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "flue_py.core.kinds": "Shape shape_of",
            "flue_py.core.messages": "check_complete validate_message",
            "flue_py.core.usage": "ReportedUsage read_reported usage_json",
            "flue_py.providers.anthropic": "AppliedEdit applied_edits",
            "flue_py.providers.base": "ExportNote Repair LIMITS Broken RequestLimits limits_of",
            "flue_py.providers.request": (
                "Converted Printed beside_ours convert to_provider WireRequest wire_request Validity broken_as_it_is"
            ),
            "flue_py.providers.rules": "RULES broken_rules",
        },
    )
__all__ = [
    "LIMITS", "RULES", "AppliedEdit", "Broken", "Converted", "ExportNote", "Printed", "Repair", "ReportedUsage",
    "RequestLimits", "Shape", "Validity", "WireRequest", "applied_edits", "beside_ours", "broken_as_it_is",
    "broken_rules", "check_complete", "convert", "limits_of", "read_reported", "shape_of", "to_provider", "usage_json",
    "validate_message", "wire_request",
]  # fmt: skip
