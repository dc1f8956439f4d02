"""Task sessions that run: how they are named in a summary, and which calls of tools wait for them."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.compaction.plan import ContextItem
from flue_py.compaction.reading import Messages
from flue_py.core.exchange import called_ids
from flue_py.core.sessions import TaskLink


def running_tasks(links: Sequence[TaskLink]) -> tuple[str, ...]:
    """Return each task session that runs as its id and a few words, in the order they were started."""
    return tuple(f"{link.task_id}: session {link.child_id}, running" for link in links if link.status == "running")


def live_callers(items: Sequence[ContextItem], links: Sequence[TaskLink]) -> frozenset[str]:
    """Return the entries whose calls of tools a running task session is to answer.

    These are messages with a call that has no result, below which the task began, or whose call has the task's id. Once
    the task has ended (`Session.end_task`), its call is no longer among them: a call without a result does not hold a
    compaction up for ever. O(messages) where a task runs, else O(links).
    """
    running = [link for link in links if link.status == "running"]
    if not running:
        return frozenset()
    started, ids = {link.entry_id for link in running}, {link.task_id for link in running}
    messages = Messages(items)
    pairing = messages.pairing(range(len(items)))
    return frozenset(
        items[call.at].entry_id
        for call, results in pairing.results.items()
        if not results and (items[call.at].entry_id in started or ids.intersection(called_ids(messages[call.at])))
    )
