"""What a format has no place for: counted while it is printed, so that nothing is left out silently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flue_py.core.jsontext import JsonObject, JsonValue

_LEFT_OUT = "left out: "


@dataclass(frozen=True, slots=True)
class ExportNote:
    """One remark of an export, and how often it holds."""

    text: str
    count: int = 1

    def __str__(self) -> str:
        return self.text if self.count == 1 else f"{self.text} ({self.count:,} times)"


@dataclass(frozen=True, slots=True)
class Repair:
    """What was left out of one message, or changed in it, so that a provider takes it.

    ``entry_id`` is the entry behind the message, None where there is none. ``what`` is the text of the `ExportNote`.
    ``lost`` are the parts, or whole messages of ours, that are not in the request, and ``put`` those that are in it
    instead, as far as they take tokens.
    """

    entry_id: str | None
    what: str
    lost: tuple[JsonObject, ...] = field(default=(), compare=False, repr=False)
    put: tuple[JsonObject, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return self.what if self.entry_id is None else f"{self.entry_id}: {self.what}"


@dataclass(slots=True)
class Leftovers:
    """The remarks of an export while it is being made. ``at`` is the entry that is being printed, if it is known."""

    at: str | None = None
    repairs: list[Repair] = field(default_factory=list)
    """Each remark, in the order in which they were made, with the entry that it is about."""
    places: dict[str | None, int] = field(default_factory=dict)
    """Where in the list a message went, by its entry, for a list that tells it."""

    def note(self, what: str, *lost: Mapping[str, JsonValue], put: Mapping[str, JsonValue] | None = None) -> None:
        """Note that something was left out: parts or messages of ours, with ``put`` in their place."""
        instead = () if put is None else (dict(put),)
        self.repairs.append(Repair(self.at, f"{_LEFT_OUT}{what}", tuple(map(dict, lost)), instead))

    def change(
        self, what: str, *, lost: Sequence[Mapping[str, JsonValue]] = (), put: Sequence[Mapping[str, JsonValue]] = ()
    ) -> None:
        """Note that something goes out other than it is, with what is lost by it, and what is put there."""
        self.repairs.append(Repair(self.at, what, tuple(map(dict, lost)), tuple(map(dict, put))))

    def notes(self) -> tuple[ExportNote, ...]:
        """Return the remarks, each once: what was left out, then what was changed."""
        counts = Counter(repair.what for repair in self.repairs)
        ordered = sorted(counts, key=lambda what: not what.startswith(_LEFT_OUT))
        return tuple(ExportNote(what, counts[what]) for what in ordered)
