"""Messages between a provider's form and ours: OpenAI chat, OpenAI Responses, Anthropic.

    converted = wire.convert(message, wire.shape_of(message), names := {})
    printed = wire.to_provider(converted[0].message, "anthropic")

Adapters and formats stand on it. A name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flue_py.core.messages import check_complete, validate_message
    from flue_py.core.shapes import Shape, shape_of
    from flue_py.core.usage_shapes import ReportedUsage, read_reported, usage_json
    from flue_py.wire.conversion import Converted, Printed, beside_ours, convert, to_provider
    from flue_py.wire.leftovers import ExportNote
else:
    _HOME_OF = {
        "check_complete": "flue_py.core.messages",
        "validate_message": "flue_py.core.messages",
        "Shape": "flue_py.core.shapes",
        "shape_of": "flue_py.core.shapes",
        "ReportedUsage": "flue_py.core.usage_shapes",
        "read_reported": "flue_py.core.usage_shapes",
        "usage_json": "flue_py.core.usage_shapes",
        "ExportNote": "flue_py.wire.leftovers",
        **dict.fromkeys(("Converted", "Printed", "beside_ours", "convert", "to_provider"), "flue_py.wire.conversion"),
    }

    def __getattr__(name):
        if name not in _HOME_OF:
            raise AttributeError(f"module 'flue_py.wire' has no attribute {name!r}")
        value = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value


__all__ = [
    "Converted",
    "ExportNote",
    "Printed",
    "ReportedUsage",
    "Shape",
    "beside_ours",
    "check_complete",
    "convert",
    "read_reported",
    "shape_of",
    "to_provider",
    "usage_json",
    "validate_message",
]
