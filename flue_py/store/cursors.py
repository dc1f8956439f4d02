"""The cursor of a page of sessions: an opaque text for the place of the last session on it."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

from flue_py.errors import InvalidArgument, shown

_LARGEST = 2**62


def write_cursor(updated_us: int, number: int) -> str:
    """Return the cursor for the sessions that come after this place."""
    return urlsafe_b64encode(f"{updated_us}.{number}".encode()).decode()


def read_cursor(cursor: str) -> tuple[int, int]:
    """Return the place that a cursor stands for. Raises `InvalidArgument` for what `write_cursor` did not make."""
    try:
        updated_us, number = map(int, urlsafe_b64decode(cursor.encode()).decode().split("."))
        # Decoding passes over what it does not know, and databases over no number of more than 64 bits.
        if write_cursor(updated_us, number) != cursor or max(abs(updated_us), abs(number)) > _LARGEST:
            raise ValueError("it was changed")
        return updated_us, number
    except ValueError as error:
        raise InvalidArgument(
            f"cursor {shown(cursor)} is not one that list_sessions gave; start without one"
        ) from error
