"""Texts and times as files of other programs have them, and as they are stored."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from flue_py.core.entries import from_microseconds, to_microseconds
from flue_py.core.jsontext import JsonValue, replace_lone_surrogates


def one_text(value: JsonValue, most: int = 0) -> str | None:
    """Return a text that can be stored as a name or title, cut to ``most`` characters; None if it is not a string."""
    if not isinstance(value, str):
        return None
    text = value
    if not value.isascii() or "\0" in value:
        text = replace_lone_surrogates(value.replace("\0", ""))[0]
    return text[:most] if most else text


def read_time(value: JsonValue) -> int | None:
    """Return an ISO 8601 text in microseconds since 1970 UTC; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return to_microseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None


def read_moment(value: JsonValue) -> int | None:
    """Return an ISO 8601 text, or milliseconds since 1970, in microseconds since 1970 UTC; None for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 253_402_300_800_000:
        return int(value * 1000)
    return read_time(value)


def iso_time(microseconds: int) -> str:
    """Return microseconds since 1970 UTC as JavaScript prints a time: UTC, to the millisecond, with a Z."""
    return from_microseconds(microseconds).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def entry_kind(prefix: str, name: str) -> str:
    """Return the kind of entry that a row outside the conversation becomes, by what its program calls it."""
    return (prefix + re.sub(r"[^A-Za-z0-9_.:-]", "_", name))[:64]
