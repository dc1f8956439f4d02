"""Mode ``native``: the provider compacts the conversation itself, and takes back what it made of it.

What it made is stored as it came, with whose it is, beside a text for every other provider and account.
"""

from __future__ import annotations

from flue_py.compaction.blocks.around import Around
from flue_py.compaction.material import Material
from flue_py.compaction.modes.dressing import dressed
from flue_py.compaction.modes.intent import Intent
from flue_py.compaction.modes.parts import Parts
from flue_py.compaction.modes.protocol import Asker, Made, Mode
from flue_py.compaction.quoting import without_tags
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.native import COMPACTION_PART, COVERS, NATIVE, Native
from flue_py.errors import InvalidArgument, ModelError, SummaryFailed


@frozen
class NativeMode:
    """Asks the provider of the session's model to compact what leaves.

    The text beside it is the provider's own where it can be read (Anthropic's), else what ``fallback`` makes, which
    should ask no model. The provider is asked for nothing in particular: its own prompt counts, and instructions of the
    caller's are noted as left out. It is sent what goes with the session's requests, where that is known. What is more
    than its window it is sent in parts, cut at whole exchanges, each behind what it made of those before.
    """

    fallback: Mode = Intent()
    around: Around = Around()
    max_tokens: int = 16_000

    @property
    def name(self) -> str:
        """What it is chosen by."""
        return NATIVE

    @property
    def needs_model(self) -> bool:
        """Yes, one whose provider can compact."""
        return True

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return the text, with what the provider made in its details. One call, or one for each part.

        Raises `SummaryFailed` where a call fails, the provider cannot do it, or its answer has no compaction.
        """
        if asker is None:
            raise InvalidArgument(f"mode {self.name!r} needs a model; give one, or choose a mode that needs none")
        parts = Parts(material, self.max_tokens)
        while not parts.is_done:
            try:
                parts.take(await asker.ask(parts.request()))
            except ModelError as error:
                if not parts.make_smaller(error):
                    raise SummaryFailed(self.name, str(error) or type(error).__name__) from error
        native = parts.made
        if native is None:
            raise SummaryFailed(self.name, "the model's answer has no compaction; choose another mode for it")
        made = await self._text(material, native)
        notes = made.notes
        if parts.taken > 1:
            notes = (*notes, f"what left is more than a window, and was compacted in {parts.taken} parts")
        if material.instructions:
            notes = (*notes, f"mode {self.name!r} gives the provider no instructions; what was asked for is left out")
        own: JsonObject = {**native.json, COVERS: len(made.text)}
        return Made(made.text, self.name, {**made.details, NATIVE: own}, notes)

    async def _text(self, material: Material, native: Native) -> Made:
        said = [part.get("content") for part in native.content if part.get("type") == COMPACTION_PART]
        text = without_tags("\n\n".join(each for each in said if isinstance(each, str) and each.strip()))
        if not text:
            return await self.fallback.make(material, None)
        return dressed(material, self.name, text, around=self.around)
