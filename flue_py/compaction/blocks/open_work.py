"""Open work by id: calls that nothing answers, tasks that run, approvals that are waited for."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.material import Material
from flue_py.compaction.operations import called_on, unanswered_calls
from flue_py.compaction.quoting import quoted, shown_id
from flue_py.core.jsontext import JsonObject

MOST = 50
"""How many calls, tasks and approvals are listed, of each."""
MOST_TOKENS = 4_000
"""What the block takes in a large window; in a small one no more than a sixteenth of it."""
ID_CHARS = 80
"""What is shown of the id of a call, which may be of any length."""
_WINDOW_PART = 16
_SIZES = ((MOST, 200), (25, 200), (12, 200), (6, 200), (6, 60), (3, 60), (1, 60))
"""How many of each are listed, and how many characters of a line, the first of these that fit; the last in any case."""


def open_work(
    material: Material,
    tasks: Sequence[str] = (),
    approvals: Sequence[str] = (),
    *,
    calls: bool = True,
    tokens: int = MOST_TOKENS,
) -> Block:
    """Return what is still to be done, each a line with its id; no block without any.

    These are the task sessions that run and ``tasks``, ``approvals``, and the calls in what leaves that have no result,
    newest last. A call that is still running is never among what leaves: those that are listed were left without an
    answer, since the conversation went on. It takes at most ``tokens`` where one of each does. O(messages).
    """
    found = unanswered_calls(material) if calls else []
    running = [*material.tasks, *tasks]
    if not found and not running and not approvals:
        return Block()
    text, most = "", material.at_most(tokens, _WINDOW_PART)
    for listed, chars in _SIZES:
        lines = [*_listed("task", "tasks", running, listed, chars)]
        lines += [*_listed("approval", "approvals", approvals, listed, chars), *_without_result(found, listed, chars)]
        text = "\n".join(["[OPEN WORK]", *lines])
        if material.tokens_of(text) <= most:
            break
    return Block(text)


def _listed(word: str, words: str, items: Sequence[str], most: int, chars: int) -> list[str]:
    lines = [f"- {word} {quoted(item, chars)}" for item in items[:most]]
    return [*lines, f"- {len(items) - most} more {words}"] if len(items) > most else lines


def _without_result(found: Sequence[tuple[str, JsonObject, str]], most: int, chars: int) -> list[str]:
    lines = [
        f"- call {quoted(call_id, ID_CHARS)}: {quoted(called_on(part), chars)}, "
        f"without a result (entry {shown_id(entry_id)})"
        for call_id, part, entry_id in found[-most:]
    ]
    return [f"- {len(found) - most} earlier calls without a result", *lines] if len(found) > most else lines
