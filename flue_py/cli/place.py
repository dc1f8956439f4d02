"""Which database a command works on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """The database of this run. ``is_named`` says that the user chose it, rather than taking the default."""

    target: str
    is_named: bool = False

    @property
    def is_file(self) -> bool:
        """Whether it is a file rather than the URL of a server."""
        return "://" not in self.target
