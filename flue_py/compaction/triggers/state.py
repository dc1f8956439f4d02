"""What a guard remembers of a session from one process to the next, and how each event changes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue

MOST_ATTEMPTS = 50
_MOST_NAMES = 100


@frozen
class Attempt:
    """What a compaction came to: the size of the context in tokens after it, and the share that it freed, 0 to 1."""

    after: int
    freed: float


@frozen
class GuardState:
    """The memory of a guard: values that survive the process.

    ``failures`` counts the failed compactions in a row, ``attempts`` are the latest ones, oldest first. ``cycle`` is
    the compaction that ``warned`` (agents) and ``told`` (what was decided, or held a trigger back) are of: each is
    said once in a cycle. ``wanted`` is the text of a request that was not met yet. ``recovered`` is the leaf that the
    recovery from an overflow has left.
    """

    failures: int = 0
    attempts: tuple[Attempt, ...] = ()
    cycle: str = ""
    warned: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()
    wanted: str | None = None
    recovered: str = ""

    def in_cycle(self, compaction: str | None) -> GuardState:
        """Return it as it is in the cycle after a compaction: another one begins with nothing said."""
        cycle = compaction or ""
        return self if cycle == self.cycle else replace(self, cycle=cycle, warned=frozenset(), told=frozenset())

    def with_warning(self, agent: str) -> GuardState:
        """Return it after a warning about an agent."""
        return replace(self, warned=self.warned | {agent})

    def with_told(self, decision: str) -> GuardState:
        """Return it after an event that says what was decided, or what held a trigger back."""
        return replace(self, told=self.told | {decision})

    def with_attempt(self, after: int, freed: float) -> GuardState:
        """Return it after a compaction that came to something, or to nothing, without failing."""
        attempts = (*self.attempts, Attempt(after, round(freed, 4)))[-MOST_ATTEMPTS:]
        return replace(self, attempts=attempts, wanted=None)

    def with_success(self, after: int, freed: float) -> GuardState:
        """Return it after a compaction that was appended: failures are forgotten."""
        return replace(self.with_attempt(after, freed), failures=0)

    def with_failure(self) -> GuardState:
        """Return it after a compaction that failed."""
        return replace(self, failures=self.failures + 1, wanted=None)

    def to_json(self) -> JsonObject:
        """Return it as JSON; what is as in the beginning is left out."""
        fields: JsonObject = {
            "failures": self.failures,
            "attempts": [[each.after, each.freed] for each in self.attempts],
            "cycle": self.cycle,
            "warned": [*sorted(self.warned)],
            "told": [*sorted(self.told)],
            "recovered": self.recovered,
        }
        said: JsonObject = {name: value for name, value in fields.items() if value}
        return said if self.wanted is None else {**said, "wanted": self.wanted}

    @classmethod
    def from_json(cls, stored: JsonValue) -> GuardState:
        """Return what was stored; what cannot be read is as in the beginning."""
        if not isinstance(stored, dict):
            return cls()
        wanted = stored.get("wanted")
        failures = stored.get("failures")
        return cls(
            failures if isinstance(failures, int) and not isinstance(failures, bool) and failures > 0 else 0,
            tuple(_attempts(stored.get("attempts")))[-MOST_ATTEMPTS:],
            _text(stored.get("cycle")),
            frozenset(_texts(stored.get("warned"))),
            frozenset(_texts(stored.get("told"))),
            wanted if isinstance(wanted, str) else None,
            _text(stored.get("recovered")),
        )


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: JsonValue) -> list[str]:
    return [each for each in value if isinstance(each, str)][:_MOST_NAMES] if isinstance(value, list) else []


def _attempts(value: JsonValue) -> Iterator[Attempt]:
    for pair in value if isinstance(value, list) else []:
        after, freed = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        if isinstance(after, int) and isinstance(freed, (int, float)):
            yield Attempt(after, freed)
