"""Having a mode make its text, with what the settings say about models that must not be asked, and that fail."""

from __future__ import annotations

from dataclasses import replace

from flue_py.compaction.blocks.around import Around
from flue_py.compaction.blocks.words import words_set_aside
from flue_py.compaction.material import Material
from flue_py.compaction.modes.dressing import CARRIED, covers, dressed, earlier_text, entries_named, noted, shortened
from flue_py.compaction.modes.intent import Intent
from flue_py.compaction.modes.listing import below_warning, warned
from flue_py.compaction.modes.lossless import Lossless
from flue_py.compaction.modes.protocol import Asker, Made, Mode
from flue_py.compaction.operations import turns_before
from flue_py.compaction.quoting import quoted
from flue_py.errors import BudgetExceeded, ModelAborted, ModelError, SummaryFailed

_REASON_CHARS = 400


async def make_text(mode: Mode, material: Material, asker: Asker | None) -> Made:
    """Return what a mode makes.

    Where ``settings.prefer_deterministic`` says that no model is to be asked, or a model has failed and
    ``settings.on_failure`` is ``fallback``, ``intent`` makes the text in its place, and a line and a note say so.
    With ``mark``, the text of a failure says what is missing. Raises `SummaryFailed`, always where the call was ended.
    What earlier compactions carry on stays in the details, also where the mode knows nothing of it.
    """
    made = await _text(mode, material, asker)
    carried = noted(material.earlier, [name for name in CARRIED if name not in made.details])
    return replace(made, details={**made.details, **carried}) if carried else made


async def _text(mode: Mode, material: Material, asker: Asker | None) -> Made:
    around = getattr(mode, "around", None)
    evidence = getattr(mode, "lossless", None)
    instead = Intent(
        around if isinstance(around, Around) else Around(), evidence if isinstance(evidence, Lossless) else Lossless()
    )
    if material.settings.prefer_deterministic:
        if mode.needs_model:
            return await _by(instead, material, mode, "no model was to be asked")
        # A mode that can do without a model may ask one all the same, in place of having nothing to say.
        asker = None
    try:
        return await _made(mode, material, asker)
    except SummaryFailed as error:
        # Whoever ended the call wants no compaction: another text in its place would be one.
        if material.settings.on_failure == "raise" or isinstance(error.__cause__, ModelAborted):
            raise
        if material.settings.on_failure == "fallback":
            chars = _REASON_CHARS if material.room is None else max(min(_REASON_CHARS, material.room // 2), 100)
            return await _by(instead, material, mode, f"it failed: {quoted(error.reason, chars)}")
        return _marked(mode, material, error.reason, instead.around)


async def _by(instead: Mode, material: Material, mode: Mode, why: str) -> Made:
    """Return what another mode makes in the place of one, below a line that says so."""
    return warned(await instead.make(below_warning(material, mode.name, why), None), mode.name, why)


async def _made(mode: Mode, material: Material, asker: Asker | None) -> Made:
    """Return what a mode makes. A mode of somebody else's may let the model's error through: it failed all the same."""
    try:
        return await mode.make(material, asker)
    except (ModelError, BudgetExceeded) as error:
        raise SummaryFailed(mode.name, str(error) or type(error).__name__) from error


def _marked(mode: Mode, material: Material, reason: str, around: Around) -> Made:
    """Return a text that says what is missing, behind what earlier compactions said."""
    material = words_set_aside(material)
    earlier = shortened(material, earlier_text(material))
    first = turns_before(material.earlier) + 1
    marker = "\n".join(
        [
            covers(material, first, "COMPACTION FAILED"),
            "",
            f"Error: {quoted(reason, _REASON_CHARS)}",
            "",
            "- These turns are not summarised here, and are no longer in the context.",
            f"- They are stored: {entries_named(material)}.",
            "- What came after them follows word for word; read the state from disk before relying on what they said.",
        ]
    )
    own = "\n\n".join(filter(None, [earlier, marker]))
    note = f"mode {mode.name!r} failed: {reason}; a marker stands for what it did not summarise"
    return dressed(material, mode.name, own, around=around, details={"failed": reason}, notes=(note,))
