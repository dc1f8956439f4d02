"""What a turn owes whose program died: an answer of the model, or the results of tool calls."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.entries import Entry
from flue_py.core.exchange import Pairing
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonValue
from flue_py.core.kinds import MESSAGE
from flue_py.core.projection import ContextEntry
from flue_py.core.settings import SHELL
from flue_py.core.turns import begins_turn

_FAILED = ("aborted", "error")
_PAUSED = "pause_turn"
"""Why an answer stopped that its provider goes on with when it is sent back."""


@frozen
class PendingCall:
    """A tool call without a result: the id that its result names, the tool, its arguments, and the entry it is in."""

    id: str
    name: str
    arguments: JsonValue
    entry_id: str


@frozen
class PendingTurn:
    """What a turn owes: the results of ``calls``, in order, or else an answer to ``unanswered``, or nothing.

    ``unanswered`` is the user's message, the last result where all calls of an answer have theirs, or an answer that
    its provider paused (``pause_turn``).
    """

    unanswered: Entry | None = None
    calls: tuple[PendingCall, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether nothing is owed."""
        return self.unanswered is None and not self.calls


def pending_in(items: Sequence[ContextEntry]) -> PendingTurn:
    """Return what the last turn of a context owes. O(turn).

    A failed or aborted answer is none, and its calls are not to be run. Left out of account are shell commands of a
    person, what programs wrote in the user's name, and entries of other kinds.
    """
    turn: list[ContextEntry] = []
    for item in reversed(items):
        if item.kind != MESSAGE or item.entry.source == SHELL or item.is_pinned:
            continue
        if item.role == "user" and begins_turn(item.entry):
            turn.append(item)
            break
        if item.role == "toolResult" or (item.role == "assistant" and not _has_failed(item)):
            turn.append(item)
    turn.reverse()
    messages = [item.data for item in turn]
    pairing = Pairing(messages)
    # The result of a call that failed, or of none, is not part of what goes on.
    while turn and len(turn) - 1 in pairing.unpaired:
        pairing.unpaired.discard(len(turn) - 1)
        turn.pop()
    if not turn:
        return PendingTurn()
    last = turn[-1]
    open_calls = [call for call, results in pairing.results.items() if not results]
    if last.role == "assistant" and not pairing.results_of(len(turn) - 1):
        return PendingTurn(last.entry if last.data.get("stopReason") == _PAUSED else None)
    if not open_calls:
        return PendingTurn(last.entry)
    calls = [(turn[call.at].entry_id, call.id, pairing.parts[call]) for call in open_calls]
    return PendingTurn(
        calls=tuple(
            PendingCall(id, str(part.get("name") or ""), part.get("arguments"), entry_id)
            for entry_id, id, part in calls
        )
    )


def _has_failed(item: ContextEntry) -> bool:
    return item.data.get("stopReason") in _FAILED
