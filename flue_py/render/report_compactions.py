"""What a report shows of compactions: what went in, what came out, what was lost, and what took one back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION
from flue_py.core.projection import RESTORES, latest_compaction, project
from flue_py.core.uncompacting import TAKES_BACK

_LINE_LENGTH = 300


def compactions_json(
    entries: Sequence[Entry],
    active: Sequence[Entry],
    losses: Mapping[str, JsonObject],
    sizes: Mapping[str, int],
    stretches: Callable[[Sequence[int]], list[tuple[int, int]]],
) -> dict[str, JsonObject]:
    """Return what the page shows of each compaction, by the id of its entry; entries are named by their places.

    ``active`` is the path to the leaf, ``losses`` are the loss reports as JSON, with ``entryIds``: what went in.
    Without one, what was lost was not worked out. ``stretches`` makes stretches of places. O(entries + losses).
    """
    place = {entry.id: number for number, entry in enumerate(entries)}
    latest = latest_compaction(active)
    in_effect = {item.entry_id for item in project(active) if item.kind == COMPACTION} | {latest and latest.id}
    found: dict[str, JsonObject] = {}
    takers: dict[str, list[JsonValue]] = {}
    for entry in entries:
        if entry.kind != COMPACTION:
            continue
        fields = entry.fields
        row: JsonObject = {"isInEffect": True} if entry.id in in_effect else {}
        if RESTORES in fields:
            taken, restored = fields.get(TAKES_BACK), fields.get(RESTORES)
            row["takesBack"] = place.get(taken) if isinstance(taken, str) else None
            row["restores"] = place.get(restored) if isinstance(restored, str) else None
            if isinstance(taken, str):
                takers.setdefault(taken, []).append(place[entry.id])
        elif entry.id in losses:
            row |= _loss_json(losses[entry.id], place, sizes, stretches)
        found[entry.id] = row
    for entry_id, places in takers.items():
        if entry_id in found:
            found[entry_id]["takenBackBy"] = places
    return found


def _loss_json(
    loss: JsonObject,
    place: Mapping[str, int],
    sizes: Mapping[str, int],
    stretches: Callable[[Sequence[int]], list[tuple[int, int]]],
) -> JsonObject:
    listed, kinds = loss["entryIds"], loss["kinds"]
    assert isinstance(listed, list)
    assert isinstance(kinds, list)
    ids = [each for each in listed if isinstance(each, str) and each in place]
    return {
        "in": [[first, last] for first, last in stretches([place[each] for each in ids])],
        "entries": len(ids),
        "tokensIn": sum(sizes.get(each, 0) for each in ids),
        "kinds": [_kind_json(kind, place) for kind in kinds if isinstance(kind, dict) and kind["total"]],
    }


def _kind_json(kind: JsonObject, place: Mapping[str, int]) -> JsonValue:
    """Return a kind of facts: its name, how many there are, how many are still said, those lost, how many more are."""
    lost = kind["lost"]
    assert isinstance(lost, list)
    facts: list[JsonValue] = []
    for fact in lost:
        assert isinstance(fact, dict)
        ids = fact["entryIds"]
        assert isinstance(ids, list)
        last = ids[-1]
        facts.append(
            [str(fact["text"])[:_LINE_LENGTH], place.get(last) if isinstance(last, str) else None, fact["count"]]
        )
    return [kind["kind"], kind["total"], kind["covered"], facts, kind["leftOut"]]
