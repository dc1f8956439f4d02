"""Mode ``window``: what leaves the context is not summarized, and nothing stands in its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from flue_py.compaction.blocks.around import Around
from flue_py.compaction.blocks.facts import carried_facts
from flue_py.compaction.blocks.paths import shown_file_lists
from flue_py.compaction.blocks.words import carried_words, words_set_aside
from flue_py.compaction.material import Material
from flue_py.compaction.modes.dressing import dressed, earlier_text, noted, shortened
from flue_py.compaction.modes.protocol import Asker, Made
from flue_py.compaction.quoting import shown_id
from flue_py.compaction.ranges import RangePlan
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject

DROPPED = "dropped"
"""The detail that says how many messages have left, and which were the first and the last."""
_LINES = re.compile(r"\n*\[[0-9]+ earlier messages? (?:is|are) not shown here: entries [^\n]*\]")


@frozen
class Window:
    """Drops the beginning of the context: the end stays that takes ``keep_recent_tokens``, characters / 4 each.

    What an earlier compaction has summarized stays. In the place of a range, or of a branch, a line says what it was.
    Of ``around``, calls that an approval waits for stay in the context; nothing else is used.
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
        """Return what an earlier summary says, "" where there is none. Its details say what left. O(messages)."""
        material = words_set_aside(material, only_carried=True)
        before = (material.earlier or {}).get(DROPPED)
        count, first = (before.get("messages"), before.get("firstEntryId")) if isinstance(before, Mapping) else (0, "")
        said: JsonObject = {
            "messages": len(material.leaving) + (count if isinstance(count, int) else 0),
            "firstEntryId": first if isinstance(first, str) and first else material.leaving[0].entry_id,
            "lastEntryId": material.leaving[-1].entry_id,
        }
        own = earlier_text(material)
        if isinstance(before, Mapping):
            own = own.removesuffix(_line(before)).rstrip("\n")
        is_beginning = bool(material.planned.first_kept_entry_id) and not isinstance(material.planned, RangePlan)
        if is_beginning:
            # What stood in the place of a range that leaves now.
            own = _LINES.sub("", own).lstrip("\n")
        own = shortened(material, own)
        is_silent = is_beginning and not own
        own = own if is_beginning else "\n\n".join(filter(None, [own, _line(said)]))
        left = material.beside(own).beside(shown_file_lists(material)[0])
        words = carried_words(left)
        made = dressed(
            material,
            self.name,
            own,
            after=[words, carried_facts(left.beside(words.text))],
            details={**noted(material.earlier, ["lastHandoff"]), DROPPED: said},
        )
        return replace(made, text="") if is_silent else made


def _line(said: Mapping[str, object]) -> str:
    first, last = (shown_id(str(said.get(name))) for name in ("firstEntryId", "lastEntryId"))
    what = "1 earlier message is" if said.get("messages") == 1 else f"{said.get('messages')} earlier messages are"
    return f"[{what} not shown here: entries {first} to {last}]"
