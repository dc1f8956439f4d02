"""What `AdvancedSQLiteSession` tells of branches and turns, from forks and the ledger."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypedDict

from flue_py.adapters.openai_agents.below import MAIN
from flue_py.adapters.openai_agents.items import items_of
from flue_py.adapters.openai_agents.spending import tokens_of
from flue_py.adapters.openai_agents.turns import turns_of, turns_with
from flue_py.core.ledger import UsageRow
from flue_py.errors import InvalidArgument, LeafConflict, SessionNotFound, shown
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from flue_py.adapters.openai_agents.below import Below


_NAME = re.compile(r"[^\0\ud800-\udfff]+")


class Branch(TypedDict):
    """A branch: how many items `get_items` gives, turns to branch from, whether it is in use, when it was made.

    The time is in ISO 8601, in UTC.
    """

    branch_id: str
    message_count: int
    user_turns: int
    is_current: bool
    created_at: str


class TurnUsage(TypedDict, total=False):
    """What a turn paid for: calls and tokens. ``user_turn_number`` counts from 1, where all turns are asked for."""

    user_turn_number: int
    requests: int
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens_details: dict[str, int]


class SessionUsage(TypedDict):
    """What a session or a branch paid for, and how many of its turns did."""

    requests: int
    input_tokens: int
    output_tokens: int
    total_tokens: int
    total_turns: int


async def branched(store: Store, below: Below, turn: int, name: str | None) -> str:
    """Begin a branch before a turn, counted from 1, and return its name. Raises `InvalidArgument`."""
    session = await below.found(store)
    turns = [] if session is None else await turns_of(session)
    if isinstance(turn, bool) or not isinstance(turn, int) or not 1 <= turn <= len(turns):
        raise InvalidArgument(f"turn_number: {shown(turn)} is not one of the {len(turns)} turns of this branch")
    if name is not None and not (isinstance(name, str) and name.strip() and _NAME.fullmatch(name)):
        raise InvalidArgument(f"branch_name: {shown(name)} is not a name; leave it out, or give one")
    return await below.branched(store, turns[turn - 1].entry.parent_id, name, f"branch_from_turn_{turn}")


async def branched_at_content(store: Store, below: Below, term: str, name: str | None) -> str:
    """Begin a branch before the first turn in which the user said a text. Raises `InvalidArgument`."""
    session = await below.found(store)
    found = [] if session is None else await turns_with(session, term)
    if not found:
        raise InvalidArgument(f"search_term: nobody said {shown(term)} on this branch")
    return await branched(store, below, found[0]["turn"], name)


async def deleted(store: Store, below: Below, branch: str, *, force: bool) -> None:
    """Delete a branch other than the main one; what its own branches see stays. Raises `InvalidArgument`."""
    if branch == MAIN:
        raise InvalidArgument("branch_id: the main branch cannot be deleted; clear_session() empties the session")
    session = _named(await below.branches(store), branch)
    if branch == below.branch:
        if not force:
            raise InvalidArgument(f"branch_id: {shown(branch)} is in use; switch to another one, or say force=True")
        await below.switched(store, MAIN)
    await store.delete_session_tree(session)


async def cleared(store: Store, below: Below) -> None:
    """Move the leaves of all branches to before their first items, in one transaction, and use the main one."""
    while True:
        branches = await below.branches(store)
        try:
            async with store.atomic() as batch:
                for session in branches.values():
                    if session.leaf_id is not None:
                        batch.move_leaf(session, None, why="clear_session")
        except (LeafConflict, SessionNotFound):
            continue
        below.forget()
        return


async def listed(store: Store, below: Below) -> list[Branch]:
    """Return the branches in the order they were made. O(contexts)."""
    found = []
    for name, session in (await below.branches(store)).items():
        shown_items = await session.build_context_entries()
        found.append(
            Branch(
                branch_id=name,
                message_count=sum(len(items_of(each)) for each in shown_items),
                user_turns=len(await turns_of(session)),
                is_current=name == below.branch,
                created_at=session.info.created_at.isoformat(),
            )
        )
    return found


async def session_usage(store: Store, below: Below, branch: str | None) -> SessionUsage | None:
    """Return what all branches paid for, or one; None if nothing is known to be paid."""
    branches = await below.branches(store)
    sessions = list(branches.values()) if branch is None else [_named(branches, branch)]
    paid = (await store.usage(sessions)).total if sessions else UsageRow()
    if not paid.calls:
        return None
    turns = [each for session in sessions for each in await _turns(store, session)]
    tokens = tokens_of(paid)
    return SessionUsage(
        requests=paid.calls,
        input_tokens=tokens["input_tokens"],
        output_tokens=tokens["output_tokens"],
        total_tokens=tokens["total_tokens"],
        total_turns=len(turns),
    )


async def turn_usage(store: Store, below: Below, turn: int | None, branch: str | None) -> list[TurnUsage] | TurnUsage:
    """Return what each turn that a branch itself has paid for used, or one of them: empty if that paid for nothing."""
    branches = await below.branches(store)
    session = branches.get(below.branch) if branch is None else _named(branches, branch)
    found = [] if session is None else await _turns(store, session)
    if turn is None:
        return found
    for each in found:
        if each.pop("user_turn_number") == turn:
            return each
    return TurnUsage()


async def chosen(store: Store, below: Below, branch: str | None) -> Session | None:
    """Return the session of a branch, or of the one in use; None if nothing was ever written to that."""
    return await below.found(store) if branch is None else _named(await below.branches(store), branch)


def _named(branches: dict[str, Session], branch: str) -> Session:
    if not isinstance(branch, str) or branch not in branches:
        raise InvalidArgument(f"branch_id: {shown(branch)} does not exist; list_branches() names those that do")
    return branches[branch]


async def _turns(store: Store, session: Session) -> list[TurnUsage]:
    turns = [turn.entry for turn in await turns_of(session)]
    if not turns:
        # No user has spoken: a greeting, or items that are encrypted.
        return []
    ends = [*(turn.parent_id for turn in turns[1:]), session.leaf_id]
    found = []
    for number, (turn, end) in enumerate(zip(turns, ends, strict=True), 1):
        if turn.session_id != session.id:
            continue
        paid = (await store.usage(session, leaf=end, since=turn.parent_id)).total
        if paid.calls:
            tokens = tokens_of(paid)
            used = TurnUsage(
                user_turn_number=number,
                requests=paid.calls,
                input_tokens=tokens["input_tokens"],
                output_tokens=tokens["output_tokens"],
                total_tokens=tokens["total_tokens"],
                input_tokens_details={"cached_tokens": paid.cache_read, "cache_write_tokens": paid.cache_write},
                output_tokens_details={"reasoning_tokens": paid.reasoning},
            )
            found.append(used)
    return found
