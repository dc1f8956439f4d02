"""What a provider made of a conversation itself, kept as it came beside a text that everybody can read.

A provider's own compaction (a block of Anthropic's, an item of OpenAI's) can be read by that provider alone, and only
for the account that it was made for. It is kept in the field ``native`` of a message whose content is the text: whoever
does not know the field, or is another, is sent the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue

NATIVE = "native"
"""The field of a message, and of the details of a compaction, that has it."""
COVERS = "covers"
"""How many characters of the text the provider's parts stand for, in the details of a compaction."""
COMPACTION_PART = "compaction"
"""The type of the part of an answer that a provider's compaction is, as the providers name it."""
_ALONE = frozenset({"anthropic"})
"""The providers that take back one compaction, with nothing beside it."""


@frozen
class Native:
    """The parts of an answer that a provider gave, unchanged, and whose they are.

    ``account`` is as the caller names it (`flue_py.models.open_model`), None if nobody said. ``beside`` is a text that
    goes with the parts, since it was put to the other text afterwards; "" for nothing.
    """

    provider: str
    content: tuple[JsonObject, ...]
    model: str | None = None
    account: str | None = None
    beside: str = ""

    @property
    def json(self) -> JsonObject:
        """This as it is stored."""
        told = {"provider": self.provider, "model": self.model, "account": self.account, "beside": self.beside or None}
        kept: JsonObject = {name: value for name, value in told.items() if value is not None}
        return {**kept, "content": [*self.content]}

    def is_for(self, provider: str | None, account: str | None) -> bool:
        """Return whether a provider takes it back. An account that is unknown on either side is taken for the same."""
        if provider != self.provider:
            return False
        return account is None or self.account is None or account == self.account


def native_in(value: JsonValue) -> Native | None:
    """Return what a stored value says; None for anything else."""
    if not isinstance(value, Mapping):
        return None
    provider, content = value.get("provider"), value.get("content")
    if not isinstance(provider, str) or not isinstance(content, list) or not content:
        return None
    parts = tuple(part for part in content if isinstance(part, dict))
    model, account, beside = (_text(value.get(name)) for name in ("model", "account", "beside"))
    return Native(provider, parts, model, account, beside or "")


def holds_compaction(part: Mapping[str, JsonValue]) -> bool:
    """Return whether a part is a compaction that has something in it: Anthropic's is null where it failed."""
    said = (part.get("content"), part.get("encrypted_content"))
    return part.get("type") == COMPACTION_PART and any(isinstance(each, str) and each.strip() for each in said)


def compaction_in(provider: str | None, parts: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """Return the parts of an answer that its provider takes back for the whole conversation; none without a compaction.

    They are all of the answer (OpenAI's begins with what the user said), or, of Anthropic's, the last compaction alone:
    it refuses a second one, and a thought or a text of the model's beside it is no part of the conversation.
    """
    found = [part for part in parts if holds_compaction(part)]
    return tuple(found[-1:] if provider in _ALONE or not found else parts)


def native_beside(details: JsonValue, summary: str) -> JsonObject | None:
    """Return what the message of a compaction has in `NATIVE`; None if the compaction is not a provider's own.

    The text that was put behind that of the mode, such as what is registered, goes with the provider's parts.
    """
    stored = details.get(NATIVE) if isinstance(details, Mapping) else None
    native = native_in(stored)
    if native is None or not isinstance(stored, Mapping):
        return None
    covers = stored.get(COVERS)
    rest = summary[covers:].strip() if isinstance(covers, int) and not isinstance(covers, bool) and covers > 0 else ""
    return replace(native, beside=rest).json


def sent_to(message: JsonObject, provider: str | None, account: str | None = None) -> list[JsonObject]:
    """Return what a provider is sent for a message: its own answer where it has one in it, else the message.

    The message is the same object where nothing is its own. O(1).
    """
    if NATIVE not in message:
        return [message]
    native = native_in(message[NATIVE])
    if native is None or not native.is_for(provider, account):
        return [{name: value for name, value in message.items() if name != NATIVE}]
    named: JsonObject = {} if native.model is None else {"model": native.model}
    own: JsonObject = {"role": "assistant", "content": [*native.content], "provider": native.provider, **named}
    return [own, {"role": "user", "content": native.beside}] if native.beside else [own]


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
