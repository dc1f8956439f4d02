"""What a provider is asked to compact: all that leaves, or as much as its window takes behind what it made before."""

from __future__ import annotations

from itertools import accumulate

from flue_py.compaction.material import Material
from flue_py.compaction.modes.folding import in_our_tokens
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.kinds import COMPACTION
from flue_py.core.model_seam import ModelReply, ModelRequest
from flue_py.core.native import NATIVE, Native, compaction_in, native_in
from flue_py.core.projection import summary_text
from flue_py.errors import ContextOverflow, ModelError

_ANSWERS_SHARE = 4
"""An answer may have a quarter of the window: a small one would have no room for the conversation otherwise."""
_UNREADABLE = "(what happened before)"


class Parts:
    """A provider's compaction in the making: the request to make next, until everything has been sent.

    No request separates a call from its results. After one that is more than the window, the next is smaller.
    """

    def __init__(self, material: Material, max_tokens: int) -> None:
        self.made: Native | None = None
        self.taken = 0
        self._material = material
        self._window = material.summarizer_window
        self._most = min(max_tokens, material.summarizer_output or max_tokens)
        self._messages = tuple(map(_plain, material.messages))
        self._ends = material.pairing.whole_cuts(range(1, len(self._messages) + 1))
        self._tokens = [0, *accumulate(map(material.count, self._messages))]
        self._before = _earlier(material)
        self._at = self._end = 0

    @property
    def is_done(self) -> bool:
        """Whether everything was sent, or an answer had no compaction."""
        return not self._ends or (self.taken > 0 and self.made is None)

    def request(self) -> ModelRequest:
        """Return the request to make next: as many messages as fit, at least one whole exchange."""
        limit = self._most if self._window is None else min(self._most, max(self._window // _ANSWERS_SHARE, 1))
        room = None if self._window is None else self._window - limit - self._around()
        fitting = [end for end in self._ends if room is None or self._tokens[end] - self._tokens[self._at] <= room]
        self._end = (fitting or self._ends[:1])[-1]
        return ModelRequest(
            (*self._before, *self._messages[self._at : self._end]),
            self._material.system or None,
            self._material.tools,
            max_tokens=limit,
            purpose="compaction",
            compacts=True,
        )

    def take(self, reply: ModelReply) -> None:
        """Take the answer to the last request in."""
        self.made = native_of(reply)
        self.taken += 1
        self._at = self._end
        self._ends = [end for end in self._ends if end > self._at]
        if self.made is not None:
            said = [each for part in self.made.content if isinstance(each := part.get("content"), str)]
            self._before = [_standing_for("\n\n".join(said).strip() or _UNREADABLE, self.made)]

    def make_smaller(self, error: ModelError) -> bool:
        """Return whether the next request is smaller than the last one, which failed; it is after an overflow.

        A single exchange cannot be made smaller.
        """
        if not isinstance(error, ContextOverflow) or self._end <= self._ends[0]:
            return False
        sent = self._around() + self._tokens[self._end] - self._tokens[self._at]
        told = in_our_tokens(error, sent)
        self._window = told if told is not None and (self._window is None or told < self._window) else sent // 2
        return True

    def _around(self) -> int:
        """Return how many tokens go with the messages: what the system says, the tools, what was made before."""
        material = self._material
        texts = [material.system or "", *(encode_json(tool, "tools")[0] for tool in material.tools)]
        return sum(map(material.count, self._before)) + sum(material.tokens_of(text) for text in texts if text)


def native_of(reply: ModelReply) -> Native | None:
    """Return the compaction that a reply has, with whose it is; None for a reply of anything else."""
    message = reply.messages[-1]
    content, provider = message.get("content"), message.get("provider")
    listed = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    if not isinstance(provider, str) or not (parts := compaction_in(provider, listed)):
        return None
    return native_in({**message, "content": [*parts]})


def _earlier(material: Material) -> list[JsonObject]:
    """Return the message that stands for what earlier compactions made, in both forms where there are two."""
    if material.previous_summary is None:
        return []
    native = native_in((material.earlier or {}).get(NATIVE))
    return [_standing_for(summary_text(COMPACTION, material.previous_summary), native)]


def _standing_for(text: str, native: Native | None) -> JsonObject:
    content: list[JsonValue] = [{"type": "text", "text": text}]
    own: JsonObject = {} if native is None else {NATIVE: native.json}
    return {"role": "user", "content": content, **own}


def _plain(message: object) -> JsonObject:
    assert isinstance(message, dict)
    return message
