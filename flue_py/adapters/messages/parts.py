"""What objects of frameworks and our parts have in common: times, bytes, usage."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.usage_shapes import ReportedUsage, read_reported
from flue_py.wire.openai_chat import image_from_url, parts_of


def text_of(message: Mapping[str, JsonValue]) -> str:
    """Return the texts of a message as one."""
    return "\n".join(str(part.get("text", "")) for part in parts_of(message) if part.get("type") == "text")


def moment_of(message: Mapping[str, JsonValue]) -> datetime | None:
    """Return when a message was made, by its milliseconds since 1970; None where it does not say."""
    timestamp = message.get("timestamp")
    if isinstance(timestamp, bool) or not isinstance(timestamp, (int, float)):
        return None
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def milliseconds(moment: datetime | None) -> JsonObject:
    """Return the field that says when a message was made, or none."""
    return {} if moment is None else {"timestamp": round(moment.timestamp() * 1000)}


def usage_of(message: Mapping[str, JsonValue]) -> ReportedUsage | None:
    """Return what an answer used, or None where that is not known."""
    usage = read_reported(message.get("usage"))
    return usage if usage.is_known else None


def held_in(part: Mapping[str, JsonValue]) -> tuple[JsonValue, str, JsonValue]:
    """Return the base64 of a picture or a file (or None), its kind, and its URL (or None)."""
    data, url, kind = part.get("data"), part.get("url"), part.get("mimeType")
    if isinstance(url, str) and "data" in (inline := image_from_url(url)):
        data, url, kind = inline["data"], None, inline["mimeType"]
    default = "image/png" if part.get("type") == "image" else "application/octet-stream"
    return data, kind if isinstance(kind, str) else default, url


def decoded(data: JsonValue) -> bytes | None:
    """Return the bytes of base64, or None for what is not."""
    try:
        return base64.b64decode(data, validate=True) if isinstance(data, str) else None
    except ValueError:
        return None
