"""What a compaction lost, and finding it again in what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION
from flue_py.core.projection import RESTORES
from flue_py.core.sessions import STORED
from flue_py.errors import EntryNotFound, InvalidArgument, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import checked_limit, checked_place
from flue_py.sessions.contexts import Contexts
from flue_py.sessions.handle import waiting_of

if TYPE_CHECKING:
    from flue_py.compaction import loss
    from flue_py.compaction import recall as recalling
    from flue_py.compaction.loss import LossReport, StandsFor
    from flue_py.compaction.recall import Recalled
else:
    # Most sessions are never compacted, and a command should start without this.
    loss = lazy_module("flue_py.compaction.loss")
    recalling = lazy_module("flue_py.compaction.recall")


class Recalling(Contexts):
    """What the compactions of a `Session` lost."""

    __slots__ = ()

    async def loss_report(self, compaction: str | None = None, *, limit: int = 50) -> LossReport | None:
        """Return what the summary of a compaction no longer says; by default of the one in effect, None without one.

        ``compaction`` is the id of its entry, also of one that was taken back. Files, identifiers, error messages, the
        user's instructions, questions, decisions and results of tools are found by the rules of
        `flue_py.compaction.facts`, in all that it stands for: what earlier compactions summarized included. Lost is
        what neither the summary nor what it kept says word for word; of a tool's result its errors and its first and
        last line are looked for, not those between. Of each kind it has the share that is still said
        and up to ``limit`` lost facts, the most often said first, with the ids of their entries. The same history gives
        the same report. Raises `EntryNotFound`, and `InvalidArgument` for another entry. O(path).
        """
        checked_limit(limit)
        found = await self._stands_for(compaction)
        if found is None:
            return None
        return await waiting_of(self).call(lambda: loss.report_on(found, limit=limit))

    async def recall(self, compaction: str | None, words: str, *, limit: int = 10) -> Recalled:
        """Return where words stand in the entries that a compaction stands for, the best match first, with excerpts.

        ``compaction`` is the id of its entry, or None for all that are in effect; without any nothing is found.
        ``words`` are taken literally, whatever they are; case, white space and emphasis do not matter. What has them as
        they were given comes first, then what has most of them, then the newest. At most ``limit`` entries, each with
        up to 400 characters. Every fact of `loss_report` is found by its text. Raises `EntryNotFound`, and
        `InvalidArgument` for another entry. O(path).
        """
        if not isinstance(words, str):
            raise InvalidArgument(f"words: should be a text, not {shown(words)}")
        checked_limit(limit)
        found = await self._gone() if compaction is None else await self._stands_for(compaction)
        if found is None:
            return recalling.Recalled(None)
        return await waiting_of(self).call(
            lambda: recalling.recall(found.compaction_id, found.source, words, limit=min(limit, recalling.MOST_HITS))
        )

    async def answer_recall(self, call: Mapping[str, JsonValue]) -> JsonObject:
        """Return the result of a model's call of the tool `flue_py.compaction.recall.RECALL_TOOL`, as a message.

        ``call`` is the part of the model's answer: ``id``, ``name``, ``arguments``. What the arguments lack is said in
        a result that failed, so that the model can mend it. Nothing is appended. Raises `InvalidArgument` for a call
        without an id. The cost of `recall` for the compactions in effect.
        """
        call_id = call.get("id") if isinstance(call, Mapping) else None
        if not isinstance(call_id, str):
            raise InvalidArgument(f"call: should be a tool call with an id, not {shown(call)}")
        asked = recalling.asked_words(call.get("arguments"))
        text = asked if isinstance(asked, str) else (await self.recall(None, asked[0], limit=asked[1])).text
        return {
            "role": "toolResult",
            "toolCallId": call_id,
            "toolName": recalling.RECALL_TOOL["name"],
            "content": [{"type": "text", "text": text}],
            "isError": isinstance(asked, str),
        }

    async def _stands_for(self, compaction: str | None) -> StandsFor | None:
        """Return what a compaction stands for; None for none in effect."""
        checked_place(compaction, "compaction")
        entry = await self.latest_compaction() if compaction is None else await self._compaction(compaction)
        if entry is None:
            return None
        return loss.stands_for(entry, await self.get_active_path(leaf=entry.id))

    async def _gone(self) -> StandsFor | None:
        """Return all that the context no longer has, as what the latest compaction stands for; None without any."""
        read = await self._read_context(STORED)
        if read.compaction is None:
            return None
        path = await self.get_active_path(leaf=read.stamp.leaf_id)
        return loss.left_context(read.compaction, path, read.items)

    async def _compaction(self, entry_id: str) -> Entry:
        entry = await self.get_entry(entry_id)
        if entry is None:
            raise EntryNotFound(self.id, entry_id)
        if entry.kind != COMPACTION or RESTORES in entry.fields:
            what = "takes one back" if entry.kind == COMPACTION else f"is a {entry.kind}"
            raise InvalidArgument(f"compaction: entry {shown(entry_id)} is no compaction, it {what}")
        return entry
