"""What a format has no place for: counted while it is printed, so that nothing is left out silently."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ExportNote:
    """One remark of an export, and how often it holds."""

    text: str
    count: int = 1

    def __str__(self) -> str:
        return self.text if self.count == 1 else f"{self.text} ({self.count:,} times)"


@dataclass(slots=True)
class Leftovers:
    """The remarks of an export while it is being made."""

    dropped: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)

    def note(self, what: str) -> None:
        """Note that something was left out."""
        self.dropped[what] += 1

    def change(self, what: str) -> None:
        """Note that something goes out other than it is."""
        self.changed[what] += 1

    def notes(self) -> tuple[ExportNote, ...]:
        """Return the remarks, each once: what was left out, then what was changed."""
        out = [ExportNote(f"left out: {what}", count) for what, count in self.dropped.items()]
        return (*out, *(ExportNote(what, count) for what, count in self.changed.items()))
