"""Which numbers of tokens are known although they are 0: those that somebody reported."""

from __future__ import annotations

from collections.abc import Iterable

from flue_py.core.entries import Entry
from flue_py.core.kinds import adds_usage, is_answer
from flue_py.core.merging import provenance_of
from flue_py.core.usage import Usage
from flue_py.core.usage_shapes import PARTS, ReportedUsage, read_reported

EVERYTHING = frozenset(PARTS)


def told_by(entries: Iterable[Entry]) -> frozenset[str]:
    """Return the numbers of tokens that are 0 because entries report it, and all where nothing was called.

    A number that an entry reports to be more, and that is 0 in the sum, was not counted: it is not known, either. What
    counts is what adds to the sums of a path: answers and compactions, but for copies. O(entries): it decodes them.
    """
    zeros: set[str] = set()
    more: set[str] = set()
    is_called = False
    for entry in entries:
        if not adds_usage(entry.kind, entry.role) or provenance_of(entry) is not None:
            continue
        usage = entry.fields.get("usage")
        # A summary without usage came without a call.
        is_called = is_called or usage is not None or is_answer(entry.kind, entry.role)
        for name, count in reported_counts(read_reported(usage)).items():
            if count is not None:
                (more if count else zeros).add(name)
    return frozenset(zeros - more) if is_called else EVERYTHING


def reported_counts(usage: ReportedUsage) -> dict[str, int | None]:
    """Return the tokens of a usage object by kind, and all of them; None is what it does not tell."""
    return Usage.from_totals(usage.totals).known(usage.told)
