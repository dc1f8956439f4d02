"""The rows of the table: what each measures, in which unit, and what flue_py is to reach in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Unit: TypeAlias = Literal["us", "ms", "/s", "KiB"]
FACTORS: dict[str, float] = {"us": 1e6, "ms": 1e3, "/s": 1.0, "KiB": 1 / 1024}
"""From seconds, appends a second, or bytes."""

NOT_BEHIND, AHEAD, FAR_AHEAD = 1.0, 1.3, 5.0
ONCE = 1


@dataclass(frozen=True)
class Row:
    """One row. ``goal`` is how many times the best SQL store's cost is of ours, at least; more is better for rates."""

    name: str
    title: str
    unit: Unit
    goal: float = NOT_BEHIND


@dataclass(frozen=True)
class Group:
    """Rows that are measured together, by the function of `work` that has the group's ``work`` as its name.

    ``rounds`` limits how often: sizes do not change from round to round. ``length`` is the history to begin with.
    """

    name: str
    work: str
    rows: tuple[Row, ...]
    length: int = 0
    rounds: int | None = None


GROUPS = (
    Group("append", "append", (Row("append", "append, one session", "us", AHEAD),)),
    Group("at_once", "at_once", (Row("at_once", "100 sessions append at once", "/s", FAR_AHEAD),)),
    Group("atomic", "atomic", (Row("atomic", "append to 10 sessions, all or none", "us", AHEAD),)),
    *(
        Group(
            f"append_{length}",
            "append",
            (Row(f"append_{length}", f"append at a history of {length:,}", "us", AHEAD),),
            length,
        )
        for length in (100, 10_000, 100_000)
    ),
    *(
        Group(
            f"load_{length}",
            "load",
            (
                Row(f"load_{length}_cold", f"load {length:,}, cold", "ms"),
                Row(f"load_{length}_again", f"load {length:,}, again", "ms"),
            ),
            length,
        )
        for length in (100, 1_000, 10_000)
    ),
    Group(
        "fork",
        "fork",
        (
            Row("fork", "fork in the middle of 10,000", "ms", FAR_AHEAD),
            Row("fork_bytes", "- what it adds to the database", "KiB"),
        ),
        10_000,
    ),
    Group("usage", "usage", (Row("usage", "usage since the middle of 10,000", "ms", FAR_AHEAD),), 10_000),
    Group("context", "context", (Row("context", "context: 200 kept of 100,000", "ms"),), 100_000),
    Group("tail", "tail", (Row("tail", "the last 20 of 5,000", "ms"),), 5_000),
    Group("size", "size", (Row("size", "size of 1,000 messages of 600 bytes", "KiB"),), rounds=ONCE),
    Group("size_short", "size_short", (Row("size_short", "size of 1,000 short messages", "KiB"),), rounds=ONCE),
    Group("size_pi", "size_pi", (Row("size_pi", "size of a real pi transcript", "KiB"),), rounds=ONCE),
)

ROWS = tuple(row for group in GROUPS for row in group.rows)
