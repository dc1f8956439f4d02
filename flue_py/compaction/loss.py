"""What the summary of a compaction no longer says: the facts of what it stands for, and which of them are gone."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.compaction.content import string_field
from flue_py.compaction.facts import FACT_KINDS, Fact, FactKind, Said, covered, facts_of, text_of
from flue_py.compaction.plan import ContextItem
from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.kinds import COMPACTION, EXCLUSION
from flue_py.core.layout import own_gap
from flue_py.core.projection import RESTORES, ContextEntry, project_compacted, project_kept

LISTED = 50
"""How many lost facts of each kind are listed."""


@frozen
class KindLoss:
    """What a compaction lost of one kind: ``total`` facts, of which ``covered`` are still said.

    ``lost`` are those that are not, the most often said first, then in the order in which they were first said;
    ``left_out`` more are not listed.
    """

    kind: FactKind
    total: int
    covered: int
    lost: tuple[Fact, ...] = ()
    left_out: int = 0

    @property
    def share(self) -> float | None:
        """The share of the facts that is still said, 0 to 1; None where there were none."""
        return self.covered / self.total if self.total else None


@frozen
class LossReport:
    """What a compaction lost, kind by kind in the order of `FACT_KINDS`, kinds without facts included.

    ``entry_ids`` are the entries that it stands for, in order: all that the path has before it and the model no longer
    sees word for word, earlier compactions' included.
    """

    compaction_id: str
    entry_ids: tuple[str, ...]
    kinds: tuple[KindLoss, ...]

    @property
    def lost(self) -> tuple[Fact, ...]:
        """The lost facts that are listed, of all kinds."""
        return tuple(fact for each in self.kinds for fact in each.lost)

    @property
    def json(self) -> JsonObject:
        """The report as JSON."""
        return {
            "compactionId": self.compaction_id,
            "entries": len(self.entry_ids),
            "firstEntryId": self.entry_ids[0] if self.entry_ids else None,
            "lastEntryId": self.entry_ids[-1] if self.entry_ids else None,
            "kinds": [_kind_json(each) for each in self.kinds],
        }


@frozen
class StandsFor:
    """A compaction with the items that it stands for (``source``) and those that it kept word for word, in order."""

    compaction_id: str
    summary: str
    source: tuple[ContextEntry, ...]
    kept: tuple[ContextEntry, ...]


def stands_for(compaction: Entry, path: Sequence[Entry]) -> StandsFor:
    """Return what a compaction stands for; ``path`` is the path to it, root first, with it at its end. O(path)."""
    kept = [item for item in project_compacted(compaction, path) if item.entry_id != compaction.id]
    known = {item.entry_id for item in kept}
    gap = own_gap(compaction, {each.id: each for each in path})
    first, last = (0, compaction.depth) if gap is None else (gap.first, gap.last)
    source = tuple(
        item for item in project_kept(path) if item.entry_id not in known and first <= item.entry.depth <= last
    )
    return StandsFor(compaction.id, string_field(compaction.fields, "summary"), source, tuple(kept))


def left_context(compaction: Entry, path: Sequence[Entry], context: Sequence[ContextEntry]) -> StandsFor:
    """Return what all compactions on a path stand for, by the context at its end, as that of the latest. O(path)."""
    shown = {item.entry_id for item in context}
    source = tuple(item for item in project_kept(path) if item.entry_id not in shown)
    return StandsFor(compaction.id, "", source, tuple(context))


def report_on(found: StandsFor, *, limit: int = LISTED, known: dict[str, Said] | None = None) -> LossReport:
    """Return what `loss_report` does for a compaction; ``known`` is that of `facts_of`."""
    return loss_report(found.compaction_id, found.summary, found.source, found.kept, limit=limit, known=known)


def losses_in(entries: Sequence[Entry], *, most: int, limit: int) -> dict[str, LossReport]:
    """Return the reports of the newest compactions of a tree, at most ``most``, by the ids of their entries.

    ``entries`` are all of the tree, parents before children; ``limit`` is as in `loss_report`. What messages say is
    worked out once for all of them: O(entries), and O(path and its facts) for each compaction.
    """
    by_id = {entry.id: entry for entry in entries}
    # An exclusion of a part makes an item another one from there on.
    known: dict[str, Said] | None = None if any(entry.kind == EXCLUSION for entry in entries) else {}
    made = [entry for entry in entries if entry.kind == COMPACTION and RESTORES not in entry.fields]
    found = {}
    for entry in made[max(len(made) - most, 0) :]:
        path = [entry]
        while (parent := by_id.get(path[-1].parent_id or "")) is not None:
            path.append(parent)
        found[entry.id] = report_on(stands_for(entry, path[::-1]), limit=limit, known=known)
    return found


def loss_report(
    compaction_id: str,
    summary: str,
    source: Sequence[ContextItem],
    kept: Sequence[ContextItem],
    *,
    limit: int = LISTED,
    known: dict[str, Said] | None = None,
) -> LossReport:
    """Return which facts of ``source`` neither a summary nor the items that were kept say; ``limit`` of each kind.

    ``known`` is that of `facts_of`. O(text of both) and, for each fact whose words are all there, one search.
    """
    said = "\n".join([summary, text_of([item.data for item in kept])])
    facts = facts_of(source, known)
    kinds = tuple(_loss_of(kind, facts.of(kind), said, limit) for kind in FACT_KINDS)
    return LossReport(compaction_id, tuple(item.entry_id for item in source), kinds)


def _loss_of(kind: FactKind, facts: Sequence[Fact], said: str, limit: int) -> KindLoss:
    lost = [fact for fact in facts if not covered(fact, said)]
    listed = sorted(lost, key=lambda fact: -fact.count)[:limit]
    return KindLoss(kind, len(facts), len(facts) - len(lost), tuple(listed), len(lost) - len(listed))


def _kind_json(loss: KindLoss) -> JsonObject:
    return {
        "kind": loss.kind,
        "total": loss.total,
        "covered": loss.covered,
        "share": loss.share,
        "lost": [{"text": fact.text, "entryIds": list(fact.entry_ids), "count": fact.count} for fact in loss.lost],
        "leftOut": loss.left_out,
    }
