"""pi session files row by row (see `streaming`)."""

from __future__ import annotations

from flue_py.formats.pi import parse_pi
from flue_py.formats.report import ParseReport
from flue_py.formats.rows import Notes, decode_row, is_name
from flue_py.formats.streaming import SessionPart, first_rows, whole_session


def looks_like_pi(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a pi session file."""
    for raw in first_rows(first_bytes):
        row = decode_row(2, raw, Notes())
        if row is not None and isinstance(row.get("type"), str):
            return row["type"] == "session" and is_name(row.get("id")) and "cwd" in row
    return False


class PiReader:
    """Reads a pi session file."""

    needs_scan = False

    def __init__(self, name: str = "the file") -> None:
        self._name = name
        self._lines: list[bytes] = []
        self._report: ParseReport | None = None
        self.ready = 0

    def scan(self, number: int, raw: bytes) -> None:
        """Nothing has to be known in advance."""

    def feed(self, number: int, raw: bytes) -> None:
        """Read a line."""
        self._lines.append(raw)

    def take(self) -> list[SessionPart]:
        """Return what is ready."""
        return []

    def finish(self, *, take_all: bool) -> list[SessionPart]:
        """Return the session."""
        parsed = parse_pi(self._lines, self._name)
        self._report = parsed.report
        return [whole_session(parsed)]

    def report(self) -> ParseReport:
        """Return what came of the rows."""
        assert self._report is not None
        return self._report
