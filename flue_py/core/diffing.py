"""What two leaves have in common, and what each has by itself: messages, tools, cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from flue_py.core.costs import NO_CALLS, EntryCost
from flue_py.core.entries import Entry
from flue_py.core.exchange import tool_calls
from flue_py.core.frozen import frozen
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.core.told import told_by
from flue_py.core.usage import Usage


@frozen
class ToolUse:
    """How often a tool was called, and how many of its results were errors."""

    calls: int
    errors: int = 0


@frozen
class DiffSide:
    """What one leaf has that the other has not: the entries after the common ancestor, root to leaf.

    ``usage`` is what their path says they used (`aggregate_usage_since`): a copied entry adds nothing. ``cost`` is what
    they cost as far as the ledger knows, which also has what was priced, and the calls behind branch summaries.
    """

    session_id: str
    leaf_id: str | None
    entries: Sequence[Entry]
    usage: Usage
    cost: EntryCost = NO_CALLS

    @property
    def messages(self) -> Mapping[str, int]:
        """How many messages there are of each role, in order of role."""
        return _counted(entry.role or "" for entry in self.entries if entry.kind == MESSAGE)

    @property
    def told(self) -> frozenset[str]:
        """The numbers of tokens in ``usage`` that are 0 as they were reported, or nothing was called. O(entries)."""
        return told_by(self.entries)

    @property
    def kinds(self) -> Mapping[str, int]:
        """How many entries there are of each kind, in order of kind."""
        return _counted(entry.kind for entry in self.entries)

    @property
    def compactions(self) -> int:
        """How many compactions there are."""
        return sum(entry.kind == COMPACTION for entry in self.entries)

    @property
    def tools(self) -> Mapping[str, ToolUse]:
        """The tools that were called, most often called first, then by name. O(entries): it decodes them."""
        calls: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        for entry in self.entries:
            if entry.kind != MESSAGE:
                continue
            if entry.role == "assistant":
                calls.update(str(call.get("name", "")) for call in tool_calls(entry.fields))
            elif entry.role == "toolResult" and entry.fields.get("isError") is True:
                errors[str(entry.fields.get("toolName", ""))] += 1
        names = sorted(calls | errors, key=lambda name: (-calls[name], name))
        return {name: ToolUse(calls[name], errors[name]) for name in names}


@frozen
class LeafDiff:
    """Two leaves: their deepest common ancestor (None if there is none), and what comes after it on either side."""

    ancestor_id: str | None
    left: DiffSide
    right: DiffSide

    @property
    def is_same(self) -> bool:
        """Whether both leaves are the same entry, or both are before the first one."""
        return not self.left.entries and not self.right.entries


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
