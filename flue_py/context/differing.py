"""Where a request stops being what the one before it was, and what made it so: what a provider's cache is lost by."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from flue_py.context.items import Item
from flue_py.context.provider import STEP
from flue_py.context.report import ContextChange, ContextReport
from flue_py.core.faithful import SYSTEM
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue, to_json
from flue_py.wire.bound import begins_with

if TYPE_CHECKING:
    from flue_py.context.requests import ContextRequest


@frozen
class PrefixBreak:
    """The first thing in a request that is not as it was in an earlier one.

    ``by`` is what made it differ: ``target``, ``tools``, ``system``, the name of a step, ``compaction``, ``context``
    (the session has it no longer, or in another place) or ``repair``. ``entry_id`` is the entry behind it, None where
    there is none. ``why`` says it in words.
    """

    by: str
    entry_id: str | None
    why: str

    def __str__(self) -> str:
        return f"{self.entry_id or 'the request'}: {self.by}, {self.why}"


def prefix_break(before: ContextRequest, after: ContextRequest) -> PrefixBreak | None:
    """Return where a request stops beginning with the bytes of an earlier one; None if it has all of them. O(size)."""
    if before.target != after.target:
        return PrefixBreak("target", None, f"the request is for {after.target}, and was for {before.target}")
    if begins_with(after.target, after.messages, after.system, after.tools, before.prefix_digest):
        return None
    if to_json(before.tools) != to_json(after.tools):
        return PrefixBreak("tools", None, "the tools are others")
    is_system = (before.system, _leading(before)) != (after.system, _leading(after))
    return _of_items(before, after, only_system=is_system) or (
        PrefixBreak("system", None, "what the system says is other text") if is_system else _of_repairs(before, after)
    )


def _leading(request: ContextRequest) -> Sequence[JsonValue]:
    """Return the messages of the system that stand first."""
    messages: Sequence[JsonObject] = request.messages
    end = next((at for at, each in enumerate(messages) if each.get("role") not in SYSTEM), len(messages))
    return messages[:end]


def _of_items(before: ContextRequest, after: ContextRequest, *, only_system: bool) -> PrefixBreak | None:
    items = [each for each in before.items if not only_system or each.is_system]
    others = [each for each in after.items if not only_system or each.is_system]
    # What came since may be of the system: it goes to the front of some requests.
    for old, new in zip_longest(items, others) if only_system else zip_longest(items, others[: len(items)]):
        if old is None or new is None or old.entry_id != new.entry_id or old.message != new.message:
            if only_system and old is None and new is not None:
                return PrefixBreak("system", new.entry_id, "what the system has said since stands before all else")
            return _between(old, new, before, after)
    return None


def _between(old: Item | None, new: Item | None, before: ContextRequest, after: ContextRequest) -> PrefixBreak:
    entry_id = next((each.entry_id for each in (old, new) if each is not None and each.entry_id), None)
    change = _last(after.report, old) or _last(after.report, new)
    if change is not None:
        return PrefixBreak(change.step, entry_id, f"{change.how} it ({_reason(after.report, change.step)})")
    was = _last(before.report, old) or _last(before.report, new)
    if was is not None:
        return PrefixBreak(was.step, entry_id, f"{was.how} it before, and no longer does")
    if new is not None and new.is_summary:
        return PrefixBreak("compaction", new.entry_id, "a summary stands for what was there")
    if (old is not None and _is_repaired(old, after)) or (new is not None and _is_repaired(new, before)):
        return _of_repairs(before, after)
    return PrefixBreak("context", entry_id, "the context is another one from there on")


def _last(report: ContextReport, item: Item | None) -> ContextChange | None:
    """Return what was done last with a message, by its entry; one that a step added is found by that."""
    if item is None:
        return None
    found = [
        change
        for change in report.changes
        if change.step != STEP
        and change.entry_id == item.entry_id
        and (change.how == "added") == (item.entry_id is None)
    ]
    return found[-1] if found else None


def _reason(report: ContextReport, step: str) -> str:
    return next(each.reason for each in report.steps if each.name == step)


def _is_repaired(item: Item, request: ContextRequest) -> bool:
    return any(repair.entry_id == item.entry_id for repair in request.repairs)


def _of_repairs(before: ContextRequest, after: ContextRequest) -> PrefixBreak:
    known = {item.entry_id for item in before.items}
    for repair in after.repairs:
        if repair not in before.repairs and repair.entry_id in known:
            return PrefixBreak("repair", repair.entry_id, repair.what)
    for repair in before.repairs:
        if repair not in after.repairs:
            return PrefixBreak("repair", repair.entry_id, f"no longer: {repair.what}")
    return PrefixBreak("repair", None, "what came since is joined with what was there")
