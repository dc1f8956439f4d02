"""Open work by id: calls that nothing answers, tasks that run, approvals that are waited for."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.material import Material
from flue_py.compaction.operations import called_on, unanswered_calls
from flue_py.compaction.quoting import quoted, shown_id

MOST = 50
"""How many calls, tasks and approvals are listed, of each."""
_LINE = 200


def open_work(
    material: Material, tasks: Sequence[str] = (), approvals: Sequence[str] = (), *, calls: bool = True
) -> Block:
    """Return what is still to be done, each a line with its id; no block without any.

    These are the task sessions that run and ``tasks``, ``approvals``, and the calls in what leaves that have no result,
    newest last. A call that is still running is never among what leaves: those that are listed were left without an
    answer, since the conversation went on. O(messages).
    """
    lines = [*_listed("task", "tasks", [*material.tasks, *tasks]), *_listed("approval", "approvals", approvals)]
    found = unanswered_calls(material) if calls else []
    if len(found) > MOST:
        lines.append(f"- {len(found) - MOST} earlier calls without a result")
    lines += [
        f"- call {quoted(call_id, 80)}: {called_on(part)}, without a result (entry {shown_id(entry_id)})"
        for call_id, part, entry_id in found[-MOST:]
    ]
    return Block("[OPEN WORK]\n" + "\n".join(lines)) if lines else Block()


def _listed(word: str, words: str, items: Sequence[str]) -> list[str]:
    lines = [f"- {word} {quoted(item, _LINE)}" for item in items[:MOST]]
    return [*lines, f"- {len(items) - MOST} more {words}"] if len(items) > MOST else lines
