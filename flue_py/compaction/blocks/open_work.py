"""Open work by id: calls that nothing answers, and tasks that the caller knows to be running."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.material import Material
from flue_py.compaction.operations import called_on, unanswered_calls
from flue_py.compaction.quoting import on_one_line

MOST = 50
"""How many calls, and how many tasks, are listed."""
_LINE = 200


def open_work(material: Material, tasks: Sequence[str] = (), *, calls: bool = True) -> Block:
    """Return the calls in what leaves that have no result, newest last, and ``tasks``: each a line with its id.

    A call that is still running is never among what leaves: those that are listed were left without an answer, since
    the conversation went on. No block without any. O(messages).
    """
    lines = [f"- task {on_one_line(task, _LINE)}" for task in tasks[:MOST]]
    if len(tasks) > MOST:
        lines.append(f"- {len(tasks) - MOST} more tasks")
    found = unanswered_calls(material) if calls else []
    if len(found) > MOST:
        lines.append(f"- {len(found) - MOST} earlier calls without a result")
    lines += [
        f"- call {on_one_line(call_id, 80)}: {called_on(part)}, without a result (entry {entry_id})"
        for call_id, part, entry_id in found[-MOST:]
    ]
    return Block("[OPEN WORK]\n" + "\n".join(lines)) if lines else Block()
