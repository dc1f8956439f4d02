"""Mode ``native``: the provider compacts the conversation itself, and takes back what it made of it.

What it made is stored as it came, with whose it is, beside a text for every other provider and account.
"""

from __future__ import annotations

from flue_py.compaction.blocks.around import Around
from flue_py.compaction.material import Material
from flue_py.compaction.modes.dressing import dressed
from flue_py.compaction.modes.intent import Intent
from flue_py.compaction.modes.protocol import Asker, Made, Mode
from flue_py.compaction.quoting import without_tags
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION
from flue_py.core.model_seam import ModelReply, ModelRequest
from flue_py.core.native import COMPACTION_PART, COVERS, NATIVE, Native, holds_compaction, native_in
from flue_py.core.projection import summary_text
from flue_py.errors import InvalidArgument, ModelError, SummaryFailed


@frozen
class NativeMode:
    """Asks the provider of the session's model to compact what leaves.

    The text beside it is the provider's own where it can be read (Anthropic's), else what ``fallback`` makes, which
    should ask no model. The provider is asked for nothing in particular: its own prompt counts, and instructions of the
    caller's are noted as left out.
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
        """Return the text, with what the provider made in its details. One call.

        Raises `SummaryFailed` where the call fails, the provider cannot do it, or its answer has no compaction.
        """
        if asker is None:
            raise InvalidArgument(f"mode {self.name!r} needs a model; give one, or choose a mode that needs none")
        messages = (*_before(material), *map(_plain, material.messages))
        request = ModelRequest(messages, max_tokens=self.max_tokens, purpose="compaction", compacts=True)
        try:
            reply = await asker.ask(request)
        except ModelError as error:
            raise SummaryFailed(self.name, str(error) or type(error).__name__) from error
        native = native_of(reply)
        if native is None:
            raise SummaryFailed(self.name, "the model's answer has no compaction; choose another mode for it")
        made = await self._text(material, native)
        notes = made.notes
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


def native_of(reply: ModelReply) -> Native | None:
    """Return the compaction that a reply has, with whose it is; None for a reply of anything else."""
    message = reply.messages[-1]
    content, provider = message.get("content"), message.get("provider")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    if not isinstance(provider, str) or not any(map(holds_compaction, parts)):
        return None
    return native_in({**message, "content": [*parts]})


def _before(material: Material) -> list[JsonObject]:
    """Return the message that stands for what earlier compactions made, in both forms where there are two."""
    if material.previous_summary is None:
        return []
    content: list[JsonValue] = [{"type": "text", "text": summary_text(COMPACTION, material.previous_summary)}]
    native = native_in((material.earlier or {}).get(NATIVE))
    own: JsonObject = {} if native is None else {NATIVE: native.json}
    return [{"role": "user", "content": content, **own}]


def _plain(message: object) -> JsonObject:
    assert isinstance(message, dict)
    return message
