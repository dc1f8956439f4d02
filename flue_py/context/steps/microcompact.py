"""Old results of tools that can be had again are cleared."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.items import Item
from flue_py.context.steps.content import text_parts
from flue_py.context.steps.notes import stubbed
from flue_py.context.steps.protocol import Over, View
from flue_py.context.steps.tools import plain_name, plain_names, tool_of_results
from flue_py.core.frozen import frozen

CLEARED = "[tool result cleared to save context]"


@frozen
class Microcompact:
    """Clears the results of ``tools`` but for the ``keep`` newest; one that is cleared already does not count.

    One that is no longer than what would stand in its place stays.
    """

    keep: int
    tools: tuple[str, ...]
    addresses: bool = True
    name: str = "microcompact"
    reason: str = "an old result of a tool"
    over: Over = "all"
    at_epochs: bool = True

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with the old results cleared."""
        eligible = plain_names(self.tools)
        found = [at for at, tool in sorted(tool_of_results(items).items()) if plain_name(tool) in eligible]
        found = [at for at in found if not "".join(text_parts(items[at].message)).startswith(CLEARED)]
        cleared = set(found[: max(len(found) - self.keep, 0)])
        return [
            stubbed(item, CLEARED, view, addresses=self.addresses) if at in cleared else item
            for at, item in enumerate(items)
        ]
