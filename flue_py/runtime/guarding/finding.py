"""What a guard finds out about a session before it decides."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from flue_py.compaction.context_budget import input_tokens
from flue_py.compaction.triggers import Facts, GuardState, Moment, TriggerSettings
from flue_py.core.calls import agent_of
from flue_py.core.counting import ContextSize
from flue_py.core.entries import Entry
from flue_py.core.frozen import changed, frozen
from flue_py.core.jsontext import JsonValue
from flue_py.core.kinds import is_answer
from flue_py.core.projection import ContextEntry
from flue_py.core.turns import Turns, begins_turn, last_turns, part_of
from flue_py.sessions.contexts import shown_context
from flue_py.sessions.handle import stored_row
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

FAILED = ("error", "aborted")


@frozen
class Found:
    """The context of a session, its size and its latest compaction."""

    items: Sequence[ContextEntry]
    latest: Entry | None
    size: ContextSize

    @property
    def cycle(self) -> str | None:
        """The id of the latest compaction."""
        return None if self.latest is None else self.latest.id

    def without(self, freed: float) -> Found:
        """Return it with a context that is smaller by a share, which steps leave out of what is sent."""
        size = self.size
        return changed(self, size=changed(size, messages=round(size.messages * (1 - freed)))) if freed else self

    def facts(
        self, moment: Moment, state: GuardState, agent: str, sent: int, instructions: str | None, *, turns: bool
    ) -> Facts:
        """Return what a decision is made of. Turns are counted only for whoever asks for them. O(messages)."""
        latest = self.latest
        ended, since = Turns(), Turns()
        for item in self.items if turns else ():
            part = part_of(item.entry)
            ended.add(part)
            if latest is not None and item.entry.depth > latest.depth:
                since.add(part)
        return Facts(
            moment,
            self.size,
            state,
            ended.ended,
            None if latest is None else since.ended,
            latest is None or any(item.entry.depth > latest.depth for item in self.items),
            agent,
            sent,
            instructions,
        )

    def kept_turns(self, turns: int, pinned: Collection[str]) -> int:
        """Return how many messages the last so many turns have, and what follows them, without those pinned."""
        start = last_turns([part_of(item.entry) for item in self.items], turns)
        return sum(item.entry_id not in pinned for item in self.items[start:])


async def find_out(
    session: Session,
    model: str | None,
    system: str | None,
    tools: Sequence[Mapping[str, JsonValue]] | None,
    window: int | None,
) -> Found:
    """Return what a decision needs. The cost of the context, and of counting what was not counted before."""
    found = await shown_context(session)
    size = await session.measure_context(model, system=system, tools=tools, window=window)
    return Found(found.items, found.compaction, size)


async def input_since(
    store: Store, session: Session, cycle: str | None, agent: str, settings: TriggerSettings, window: int | None
) -> int:
    """Return the tokens that an agent, or "" for all, has sent to the model since a compaction; 0 without a budget.

    What an answer reports above the window is not believed, and counts for nothing. O(forks on the path) for all
    agents, O(calls) for one; O(entries) where a budget is reached.
    """
    if not settings.has_budget:
        return 0
    if agent:
        sent = input_tokens((await store.usage(session, path=True, since=cycle, agent=agent)).total)
    else:
        sent = input_tokens((await session.aggregate_usage_since(cycle)).usage)
    if window and settings.budget_of(agent).is_reached_by(sent):
        sent -= await _disbelieved(session, cycle, agent, window)
    return sent


async def _disbelieved(session: Session, cycle: str | None, agent: str, window: int) -> int:
    """Return the tokens that answers of an agent, or of all, have reported above the window since a compaction."""
    entries = await session.get_active_path_since(cycle)
    answers = [each for each in entries if is_answer(each.kind, each.role)]
    reports = [input_tokens(each.usage) for each in answers if not agent or agent_of(each.fields) == agent]
    return sum(tokens for tokens in reports if tokens > window)


async def failed_leaf(session: Session) -> str | None:
    """Return the leaf if it is an answer that failed; None if it is not."""
    leaf = None if session.leaf_id is None else await session.get_entry(session.leaf_id)
    if leaf is None or not is_answer(leaf.kind, leaf.role) or leaf.fields.get("stopReason") not in FAILED:
        return None
    return leaf.id


async def goes_on(session: Session, agent: str) -> bool:
    """Return whether an agent's next answer is of a turn that has answers. The cost of the context."""
    turns = Turns()
    for item in (await shown_context(session)).items:
        turns.add_entry(item.entry)
    return turns.goes_on(agent)


async def has_gone_on(session: Session, since: str) -> bool:
    """Return whether a user said anything, or the model gave an answer, after an entry. True if it is off the path."""
    leaf = (await stored_row(session)).leaf_id
    if leaf is None or await session.get_entry(since) is None or not await session.is_ancestor(since, of=leaf):
        return True
    later = await session.get_active_path_since(since)
    return any(begins_turn(entry) or _is_good(entry) for entry in later)


def _is_good(entry: Entry) -> bool:
    return is_answer(entry.kind, entry.role) and entry.fields.get("stopReason") not in FAILED
