"""Task sessions that run and approvals that are waited for: which calls of tools wait for them, and for whom."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.compaction.blocks.around import Around
from flue_py.compaction.modes.protocol import Mode
from flue_py.compaction.plan import ContextItem
from flue_py.compaction.reading import Messages
from flue_py.core.sessions import TaskLink


def running_tasks(links: Sequence[TaskLink]) -> tuple[str, ...]:
    """Return each task session that runs as its id and a few words, in the order they were started."""
    return tuple(f"{link.task_id}: session {link.child_id}, running" for link in links if link.status == "running")


def waited_for(mode: Mode) -> tuple[str, ...]:
    """Return the tasks and approvals that the caller named for a mode, each as its id and a few words."""
    around = getattr(mode, "around", None)
    if not isinstance(around, Around):
        return ()
    return (*around.named_tasks, *around.named_approvals)


def live_callers(
    items: Sequence[ContextItem], links: Sequence[TaskLink], waiting: Sequence[str] = ()
) -> frozenset[str]:
    """Return the entries whose calls of tools a running task session is to answer, or whose id something waits for.

    These are messages with a call that has no result, below which the task began, or one of whose calls has the task's
    id, or that of one of ``waiting``, which begin with it. Once the task has ended (`Session.end_task`), or nobody
    names the call any more, it is no longer among them: a call without a result does not hold a compaction up for ever.
    O(messages) where anything is waited for, else O(links).
    """
    running = [link for link in links if link.status == "running"]
    if not running and not waiting:
        return frozenset()
    started, ids = {link.entry_id for link in running}, {link.task_id for link in running}
    pairing = Messages(items).pairing(range(len(items)))
    found = set()
    for call, results in pairing.results.items():
        if results:
            continue
        caller = items[call.at].entry_id
        named = {each.id for each in pairing.results_of(call.at)}
        if caller in started or ids & named or any(_names(text, each) for text in waiting for each in named):
            found.add(caller)
    return frozenset(found)


def _names(text: str, call_id: str) -> bool:
    """Return whether a task or an approval is that of a call: its id, and perhaps a few words."""
    return text == call_id or text.startswith((f"{call_id}:", f"{call_id} "))
