"""How the input of each agent grew over its turns, and where it was compacted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flue_py.core.calls import agent_of
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.core.projection import RESTORES
from flue_py.core.told import reported_counts
from flue_py.core.turns import Turns, part_of
from flue_py.core.usage_shapes import read_reported
from flue_py.render.lines import one_line
from flue_py.render.rows import iso

_COPIED = "copiedFrom"
"""The extra field in which a copy says where it comes from."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of an agent, the sum of its answers that were sent input.

    ``input``, ``cache_read`` and ``cache_write`` together are the tokens sent; ``cumulative`` sums those over this
    agent's turns since the last compaction. ``entry`` is the place of the last of the answers among the entries.
    """

    entry: int
    input: int
    cache_read: int
    cache_write: int
    output: int
    cumulative: int
    known: Mapping[str, int | None]
    """The same tokens under their names in JSON; None if the answer does not report them."""

    @property
    def sent(self) -> int:
        """The tokens the model was sent in this turn, by all of its calls."""
        return self.input + self.cache_read + self.cache_write


@dataclass(frozen=True, slots=True)
class Compacted:
    """A compaction after so many turns of an agent; ``entry`` is its place among the entries."""

    after_turn: int
    entry: int
    tokens_before: int


@dataclass(frozen=True, slots=True)
class Growth:
    """One agent's line, along the active path of its session; ``session`` is that session's place in the report."""

    session: int
    agent: str
    turns: tuple[Turn, ...]
    compactions: tuple[Compacted, ...]


@dataclass(slots=True)
class _Line:
    turns: list[Turn]
    compactions: list[Compacted]
    cumulative: int = 0
    number: int = 0


def _together(first: Turn, then: Turn) -> Turn:
    """Return two calls of a turn as one; what one of them does not report is unknown."""
    return Turn(
        then.entry,
        first.input + then.input,
        first.cache_read + then.cache_read,
        first.cache_write + then.cache_write,
        first.output + then.output,
        then.cumulative,
        {
            name: None if count is None or (other := then.known[name]) is None else count + other
            for name, count in first.known.items()
        },
    )


def speaker_of(message: Mapping[str, JsonValue]) -> str | None:
    """Return the name of the agent that a message carries, on one line, or None."""
    name = agent_of(message)
    return None if name is None else one_line(name, 80)


def is_copy(entry: Entry) -> bool:
    """Return whether an entry is a copy of one in another session, where its usage is counted."""
    return entry.extra is not None and isinstance(entry.extra_fields.get(_COPIED), dict)


def growth_of(sessions: Sequence[tuple[str, Sequence[Entry], str | None]]) -> list[Growth]:
    """Return the lines of all agents, those of the first session first.

    A session is its name, all its entries (parents before children) and its leaf. It has one line, and one more for
    each agent whose name its messages carry. Agents without a turn have no line. Cost: O(entries).
    """
    found = []
    for number, (name, entries, leaf) in enumerate(sessions):
        lines = _lines_of(active_path(entries, leaf), entries)
        for speaker, line in lines.items():
            label = name if speaker is None else speaker if number == 0 else f"{name}: {speaker}"
            if line.turns:
                found.append(Growth(number, label, tuple(line.turns), tuple(line.compactions)))
    return found


def active_path(entries: Sequence[Entry], leaf: str | None) -> list[int]:
    """Return the positions, root to leaf, of the entries on the way to ``leaf``; none if it is not among them."""
    place = {entry.id: number for number, entry in enumerate(entries)}
    path: list[int] = []
    while leaf is not None and leaf in place:
        path.append(place[leaf])
        leaf = entries[place[leaf]].parent_id
    path.reverse()
    return path


def _lines_of(path: Sequence[int], entries: Sequence[Entry]) -> dict[str | None, _Line]:
    lines: dict[str | None, _Line] = {}
    counter = Turns()
    for number in path:
        entry = entries[number]
        turn = counter.add(part_of(entry))
        if entry.kind == COMPACTION:
            if RESTORES in entry.fields:
                # It takes a compaction back: the context grows again.
                continue
            before = entry.fields.get("tokensBefore")
            for line in lines.values():
                line.cumulative = 0
                line.compactions.append(Compacted(len(line.turns), number, before if isinstance(before, int) else 0))
        elif entry.kind == MESSAGE and entry.role == "assistant" and not is_copy(entry):
            fields = entry.fields
            reported = read_reported(fields.get("usage"))
            usage = reported.totals
            sent = usage.input + usage.cache_read + usage.cache_write
            if not sent:
                continue
            line = lines.setdefault(speaker_of(fields), _Line([], []))
            line.cumulative += sent
            counts = reported_counts(reported)
            call = Turn(number, usage.input, usage.cache_read, usage.cache_write, usage.output, line.cumulative, counts)
            is_cut = bool(line.compactions) and line.compactions[-1].after_turn == len(line.turns)
            if line.number == turn and not is_cut:
                line.turns[-1] = _together(line.turns[-1], call)
            else:
                line.turns.append(call)
            line.number = turn
    return lines


def snapshot_rows(
    sessions: Sequence[tuple[str, Sequence[Entry], str | None]],
    session_id: str,
    *,
    warn_at: int = 0,
    cutover_at: int = 0,
) -> list[JsonObject]:
    """Return the same figures as rows of the context snapshots: one per turn, and one per compaction.

    Session by session, each in the order of its path. A compaction is a row of the agent ``system``.
    """
    rows: list[JsonObject] = []
    limits: JsonObject = {
        name: limit for name, limit in (("warn_at", warn_at), ("cutover_at", cutover_at)) if limit > 0
    }
    lines = growth_of(sessions)
    for number, (_, entries, _) in enumerate(sessions):
        ours = [line for line in lines if line.session == number]
        found: dict[int, JsonObject] = {}
        for line in ours:
            for count, turn in enumerate(line.turns, 1):
                found[turn.entry] = {
                    "agent": line.agent,
                    "turn": count,
                    "turn_input_tokens": turn.sent,
                    "turn_output_tokens": turn.output,
                    "cumulative_input_tokens": turn.cumulative,
                    **limits,
                }
            for mark in line.compactions:
                turns = max(each.after_turn for other in ours for each in other.compactions if each.entry == mark.entry)
                found[mark.entry] = {
                    "agent": "system",
                    "turn": turns,
                    "turn_input_tokens": 0,
                    "turn_output_tokens": 0,
                    "cumulative_input_tokens": 0,
                    **limits,
                    "compaction_occurred": True,
                }
        rows += [
            {"ts": iso(entries[place].created_at), "session": session_id, **found[place]} for place in sorted(found)
        ]
    return rows
