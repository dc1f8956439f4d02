"""Mode ``hybrid``: what is known for sure, and a model's summary after it."""

from __future__ import annotations

from flue_py.compaction.blocks.around import Around
from flue_py.compaction.blocks.words import words_set_aside
from flue_py.compaction.material import Material
from flue_py.compaction.modes.dressing import RULE, dressed, earlier_text, shortened, summary_head
from flue_py.compaction.modes.listing import MOST_OPERATIONS
from flue_py.compaction.modes.llm import Llm
from flue_py.compaction.modes.lossless import Lossless
from flue_py.compaction.modes.protocol import Asker, Made
from flue_py.compaction.operations import gathered
from flue_py.core.frozen import frozen
from flue_py.errors import InvalidArgument, ModelAborted, SummaryFailed

BETWEEN = f"\n\n{RULE}\n\n"


@frozen
class Hybrid:
    """Puts the text of ``lossless`` before that of ``llm``; where the model fails, it is the former alone."""

    lossless: Lossless = Lossless()
    llm: Llm = Llm()
    around: Around = Around()

    @property
    def name(self) -> str:
        """What it is chosen by."""
        return "hybrid"

    @property
    def needs_model(self) -> bool:
        """Yes: without one, choose ``lossless``."""
        return True

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return both texts, or that of the evidence and a note if the model failed. Calls as for ``llm``."""
        if asker is None:
            raise InvalidArgument(f"mode {self.name!r} needs a model; give one, or choose 'lossless'")
        material = words_set_aside(material)
        found = gathered(material, MOST_OPERATIONS)
        state = self.lossless.state() if callable(self.lossless.state) else self.lossless.state
        # Of a scarce room, most is for what the model says.
        for_evidence = material if material.room is None else material.within(material.room // 3)
        evidence = await self.lossless.evidence(for_evidence, found, state)
        earlier = earlier_text(material, self.name)
        head = summary_head(material)
        notes: tuple[str, ...] = ()
        try:
            told, notes = await self.llm.told(material.beside(evidence + head), asker, earlier)
        except SummaryFailed as error:
            if isinstance(error.__cause__, ModelAborted):
                raise
            # What the model said before is not lost with its failure.
            head, told = "", shortened(material.beside(evidence), earlier)
            notes = (f"the model's summary is missing: {error.reason}",)
        # The evidence is made anew each time, the model's part is what the next compaction takes over: it stands first
        # in what is noted as inherited, and last in the text.
        own = BETWEEN.join(filter(None, [evidence, head + told]))
        details = found.details
        made = dressed(
            material, self.name, own, around=self.around, calls=False, inherited=told, details=details, notes=notes
        )
        return _with_span_of_told(made, len(told))


def _with_span_of_told(made: Made, length: int) -> Made:
    own = made.details.get("own")
    if not isinstance(own, list) or not isinstance(own[1], int):
        return made
    end = own[1]
    return Made(made.text, made.mode, {**made.details, "inherited": [end - length, end]}, made.notes)
