"""Mode ``window``: the oldest messages leave the context, and one line says so. Nothing is summarized.

What is still to be done is listed: nobody would find it again by two ids.
"""

from __future__ import annotations

from collections.abc import Mapping

from flue_py.compaction.blocks.around import Around
from flue_py.compaction.blocks.facts import carried_facts
from flue_py.compaction.blocks.open_work import open_work
from flue_py.compaction.blocks.paths import shown_file_lists
from flue_py.compaction.blocks.words import carried_words, words_set_aside
from flue_py.compaction.material import Material
from flue_py.compaction.modes.dressing import dressed, earlier_text, noted, shortened
from flue_py.compaction.modes.protocol import Asker, Made
from flue_py.compaction.quoting import shown_id
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue

OPEN_WORK_TOKENS = 500
"""What the list of open work takes at most, in a window however large."""


@frozen
class Window:
    """Drops the beginning of the context. What an earlier compaction has summarized stays as it is.

    Running task sessions and calls without a result in what leaves are listed by id, and the tasks and approvals of
    ``around``, of which nothing else is used.
    """

    around: Around = Around()

    @property
    def name(self) -> str:
        """What it is chosen by."""
        return "window"

    @property
    def needs_model(self) -> bool:
        """No: it asks none."""
        return False

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return a line that says what left, behind an earlier summary, and open work. Asks nothing. O(messages)."""
        material = words_set_aside(material, only_carried=True)
        dropped = _dropped(material.earlier)
        count = len(material.leaving) + (dropped[0] if dropped else 0)
        first = dropped[1] if dropped else material.leaving[0].entry_id
        said: JsonObject = {"messages": count, "firstEntryId": first, "lastEntryId": material.leaving[-1].entry_id}
        own = "\n\n".join(filter(None, [_summary_before(material), _line(said)]))
        left = material.beside(own).beside(shown_file_lists(material)[0])
        tasks, approvals = self.around.named_tasks, self.around.named_approvals
        work = open_work(left, tasks, approvals, tokens=OPEN_WORK_TOKENS)
        left = left.beside(work.text)
        words = carried_words(left)
        return dressed(
            material,
            self.name,
            own,
            after=[words, carried_facts(left.beside(words.text)), work],
            details={**noted(material.earlier, ["lastHandoff"]), "dropped": said},
        )


def _summary_before(material: Material) -> str:
    """Return the earlier summary without what is written anew: the lists of files, and the line of this mode."""
    text = earlier_text(material)
    said = (material.earlier or {}).get("dropped")
    return shortened(material, text.removesuffix(_line(said)).rstrip("\n") if isinstance(said, Mapping) else text)


def _dropped(details: Mapping[str, JsonValue] | None) -> tuple[int, str] | None:
    """Return how many messages an earlier compaction of this mode dropped, and the id of the first."""
    said = (details or {}).get("dropped")
    if not isinstance(said, Mapping):
        return None
    count, first = said.get("messages"), said.get("firstEntryId")
    return (count, first) if isinstance(count, int) and isinstance(first, str) else None


def _line(said: Mapping[str, JsonValue]) -> str:
    count = said.get("messages")
    what = "1 earlier message is" if count == 1 else f"{count} earlier messages are"
    first, last = (shown_id(str(said.get(name))) for name in ("firstEntryId", "lastEntryId"))
    return f"[{what} not shown here: entries {first} to {last}]"
