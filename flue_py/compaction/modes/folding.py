"""Summarizing what is longer than the summarizer's window: in parts, each of which brings the summary up to date."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from flue_py.compaction.modes.protocol import Asker
from flue_py.compaction.prompts import LAYOUTS, LENGTH, instruction
from flue_py.compaction.quoting import quoted
from flue_py.compaction.summarize import SummaryKind
from flue_py.core.model_seam import ModelReply, ModelRequest
from flue_py.errors import ContextOverflow, SummaryFailed

RETRIES = 4
SHRINK = 0.8
FLOOR = 200
"""How short messages are cut at the most, in characters, when a request was too long."""
FIRST_CAP = 8_000
"""What a cap begins at where there was none and a request was too long, in characters."""
MARGIN = 0.9
"""The share of a window that is filled: the tokens of another model's window are an estimate."""
LEAST_TOKENS = 100
"""With less room than this, no part of a conversation is worth a call."""
LEAST_SHARE = 0.2
"""With less of the window than this left beside it, an earlier summary is summarized, too."""

MOST_CHARS_A_TOKEN = 40
"""No counter has less than a token for so many characters: what does not fit need not be counted whole."""

Shown: TypeAlias = Callable[[int, int], str]
"""Returns the text of a message, by its index, cut after so many characters."""
Asked: TypeAlias = Callable[[SummaryKind, str, str | None, int | None], ModelRequest]
"""Returns the request of a kind for a text, with the summary of what came before it, for a window."""


class Folding:
    """A summary in the making: the request to make next, until everything is in it.

    Of a request that overflows the window, messages are cut shorter, four times; then it is made for half the window.
    An earlier summary that leaves no room beside it is summarized as well, before the conversation.
    """

    def __init__(
        self,
        kind: SummaryKind,
        size: int,
        *,
        shown: Shown,
        asked: Asked,
        tokens: Callable[[str], int],
        cap: int,
        window: int | None,
        earlier: str | None = None,
    ) -> None:
        self.kind = kind
        self.text: str | None = earlier
        self._size = size
        self._shown = shown
        self._asked = asked
        self._tokens = tokens
        self._cap = cap
        self._window = window
        """What a request and its answer may take together, in our tokens; None before that is known."""
        self._earlier = earlier
        self._at, self._offset = 0, 0
        self._next = (0, 0)
        self._chunk = ""
        self._request: ModelRequest | None = None
        self._tries = 0
        self._overflow: ContextOverflow | None = None

    @property
    def is_done(self) -> bool:
        """Whether everything is in the summary."""
        return self._at >= self._size

    def request(self) -> ModelRequest:
        """Return the request to make next. Raises `SummaryFailed` where no part of the conversation fits."""
        self._chunk, self._next = self._filled(self._room())
        self._request = self._asked(self.kind, self._chunk, self.text, self._window)
        return self._request

    def take(self, answer: ModelReply | Exception) -> None:
        """Take the answer to the last request in. Raises `SummaryFailed` if there is no going on."""
        if isinstance(answer, ContextOverflow):
            self._make_smaller(answer)
            return
        limit = None if self._request is None else self._request.max_tokens
        self.text = checked_answer(self.kind, answer, limit, self._chunk).text
        self._at, self._offset = self._next

    def _room(self) -> int | None:
        """Return how many tokens of conversation fit into the next request; None where that is unknown."""
        if self._window is None:
            return None
        room = self._room_beside(self.text, self._window)
        if self.text is not None and self.text is self._earlier and room < int(self._window * LEAST_SHARE):
            self.text, self._at = None, -1
            room = self._room_beside(None, self._window)
        if room < LEAST_TOKENS:
            why = f"a window of {self._window} tokens has no room beside what must be in it"
            if self._overflow is not None:
                why = str(self._overflow) or type(self._overflow).__name__
            raise SummaryFailed(self.kind, why) from self._overflow
        return room

    def _room_beside(self, earlier: str | None, window: int) -> int:
        empty = self._asked(self.kind, "", earlier, window)
        return int(window * MARGIN) - (empty.max_tokens or 0) - self._tokens(_said_by(empty))

    def _text_at(self, at: int) -> str:
        """Return a message as it is shown; the earlier summary, where it comes first, is at -1."""
        return f"[Notes of what happened before]\n{self._earlier}" if at < 0 else self._shown(at, self._cap)

    def _filled(self, room: int | None) -> tuple[str, tuple[int, int]]:
        """Return the text of as many messages as fit, and where the next part begins: message and character."""
        parts: list[str] = []
        at, offset, left = self._at, self._offset, room
        while at < self._size:
            text = self._text_at(at)[offset:]
            if text and left is not None:
                begun = text[: MOST_CHARS_A_TOKEN * (left + 1)]
                tokens = self._tokens(begun)
                if tokens > left:
                    if not parts:
                        taken = max(int(len(begun) * left / tokens * MARGIN), 1)
                        parts.append(begun[:taken])
                        offset += taken
                    break
                left -= tokens
            parts.append(text)
            at, offset = at + 1, 0
        return "\n\n".join(filter(None, parts)), (at, offset)

    def _make_smaller(self, error: ContextOverflow) -> None:
        self._overflow = error
        sent = 0 if self._request is None else self._tokens(_said_by(self._request)) + (self._request.max_tokens or 0)
        told = in_our_tokens(error, sent)
        if told is not None and (self._window is None or told < self._window):
            self._window = told
            return
        # What is left of a message of which a part is in the summary is found by its place in the text as it was cut.
        longest = max((len(part) for part in self._chunk.split("\n\n[")), default=0)
        cap = max(FLOOR, int((self._cap or FIRST_CAP) * SHRINK))
        if self._tries < RETRIES and not self._offset and not self._next[1] and self._cap != cap and longest > FLOOR:
            self._tries += 1
            self._cap = cap
            return
        self._window = sent // 2


def _said_by(request: ModelRequest) -> str:
    return (request.system or "") + "".join(str(message["content"]) for message in request.messages)


def in_our_tokens(error: ContextOverflow, sent: int) -> int | None:
    """Return the window that an error names, as we count what was sent; None where it names none."""
    if error.window is None or error.window <= 0:
        return None
    return min(error.window, error.window * sent // error.tokens) if error.tokens else error.window


def checked_answer(
    kind: SummaryKind,
    answer: ModelReply | Exception,
    limit: int | None,
    record: str = "",
    *,
    may_be_blank: bool = False,
) -> ModelReply:
    """Return an answer with a summary in it, of a record if that is known.

    Raises `SummaryFailed` for any other, from the error of a failed call.
    """
    if isinstance(answer, Exception):
        raise SummaryFailed(kind, str(answer) or type(answer).__name__) from answer
    if answer.stop_reason == "length":
        raise SummaryFailed(kind, f"the answer was cut off at {limit} tokens")
    why = "" if may_be_blank and not answer.text.strip() else why_no_summary(answer.text, record)
    if why:
        raise SummaryFailed(kind, why)
    return answer


_LEAST_LINES = 20
_LEAST_ECHO = 40
_INSTRUCTIONS = "\n".join([*map(instruction, ("initial", "update", "turn_prefix")), *LAYOUTS.values(), LENGTH])
_SAYS_NOTHING = re.compile(r"[\W_]*(none)?[\W_]*", re.IGNORECASE)
_LABEL = re.compile(r"\[[^\[\]]*\]?:?")
_LEAST_LABELS = 3
_WORD = re.compile(r"\w{3,}")


def why_no_summary(text: str, record: str = "") -> str:
    """Return why an answer can be no summary of a record, or of any; "" where nothing speaks against it. O(size).

    Weak models write no word, one line again and again, the labels of the record, or the instruction in some words.
    """
    if not text.strip():
        return "the answer has no text"
    lines = [line.strip() for line in text.splitlines() if not _SAYS_NOTHING.fullmatch(line)]
    if not lines:
        return "the answer has no words"
    if len(lines) >= _LEAST_LINES and Counter(lines).most_common(1)[0][1] * 2 > len(lines):
        return f"the answer repeats one line: {quoted(Counter(lines).most_common(1)[0][0], 80)}"
    if len(lines) >= _LEAST_LABELS and all(map(_LABEL.fullmatch, lines)):
        return "the answer has labels of the record, and nothing of what stands behind them"
    own = [line for line in lines if _NUMBER.sub("{words}", line) not in _INSTRUCTIONS]
    echoed = sum(map(len, lines)) - sum(map(len, own))
    said = _words("\n".join(own)) - _words(_INSTRUCTIONS)
    is_own = bool(said & _words(record) if record and echoed >= sum(map(len, own)) else own)
    if not is_own and echoed >= _LEAST_ECHO:
        return "the answer repeats the instruction, and says nothing of the conversation"
    return ""


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


_NUMBER = re.compile(r"\d+")


async def fold(folds: Sequence[Folding], asker: Asker) -> None:
    """Make the requests of summaries until all are done, one after the other: behind one that failed, none is paid.

    Raises `SummaryFailed`, of the first that failed.
    """
    for each in folds:
        while not each.is_done:
            [answer] = await asker.ask_all([each.request()])
            each.take(answer)
