"""Shorter results of tools: those above a limit, and reads of a file that was written since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flue_py.context.items import Item
from flue_py.context.steps.notes import cut_after
from flue_py.context.steps.protocol import Over, View
from flue_py.context.steps.tools import path_of, plain_name, plain_names, tool_of_results, tool_uses
from flue_py.core.frozen import frozen

CONSUMED_CHARS = 500
"""What stays of a read whose file was written since."""


def cut_note(missing: int) -> str:
    """Return what stands behind a text that was cut."""
    return f"\n[...truncated — {missing:,} chars omitted to reduce context size...]"


def consumed_note(missing: int) -> str:
    """Return what stands behind a read whose file was written since."""
    return (
        f"\n[...{missing:,} chars elided — file was written or patched later this session; "
        "call read_file again if current content is needed]"
    )


@frozen
class ResultChars:
    """Cuts results of tools after ``most`` characters, or after what ``overrides`` has for the tool, 0 for no limit.

    A read whose file a later message writes is cut after 500, whatever the overrides say.
    """

    most: int
    overrides: Mapping[str, int]
    read_tools: tuple[str, ...]
    write_tools: tuple[str, ...]
    addresses: bool = True
    name: str = "max_tool_result_chars"
    reason: str = "a long result, or a read of a file that was written since"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with shorter results."""
        consumed = consumed_results(items, self.read_tools, self.write_tools)
        named = tool_of_results(items)
        limits = {plain_name(tool): limit for tool, limit in self.overrides.items()}
        made = [*items]
        for at, item in enumerate(items):
            if at in consumed:
                made[at] = cut_after(item, CONSUMED_CHARS, consumed_note, addresses=self.addresses)
            elif item.is_result and (limit := limits.get(plain_name(named[at]), self.most)):
                made[at] = cut_after(item, limit, cut_note, addresses=self.addresses)
        return made


def consumed_results(items: Sequence[Item], read_tools: Iterable[str], write_tools: Iterable[str]) -> set[int]:
    """Return where the results of reads are whose path a later message writes. O(size)."""
    reading, writing = plain_names(read_tools), plain_names(write_tools)
    named = [(use, plain_name(use.name), (path_of(use.arguments) or "").casefold()) for use in tool_uses(items)]
    written = {path: use.call.at for use, tool, path in named if path and tool in writing}
    return {
        at for use, tool, path in named if tool in reading and written.get(path, -1) > use.call.at for at in use.results
    }
