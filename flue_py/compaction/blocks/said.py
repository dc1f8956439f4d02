"""Messages of the user as a summary shows them: in tags that they cannot close, short ones in one tag for several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flue_py.compaction.quoting import OWN_WORDS, attribute, fenced
from flue_py.core.jsontext import JsonObject

MOST_LINES = 20
"""So many short messages share a tag, which names the entries of the first and the last."""
_LINE_CHARS = 300
_TAG = "user-said"
_ASKED = "model-asked"


class Said(NamedTuple):
    """``asked`` is the question of the model that it answers: "the second one" says nothing without."""

    entry_id: str
    text: str
    asked: str = ""

    @property
    def is_line(self) -> bool:
        """Whether it can be a line among others: none of them can pose as another one."""
        return not self.asked and len(self.text) <= _LINE_CHARS and len(self.text.splitlines()) == 1

    @property
    def json(self) -> JsonObject:
        """It as a compaction stores it."""
        return {"entryId": self.entry_id, "text": self.text, **({"asked": self.asked} if self.asked else {})}


def shown_said(said: Sequence[Said]) -> list[str]:
    """Return messages in their order, each in a tag with the id of its entry; short ones that follow each other share.

    The tag of several has the ids of the first and the last: those between are stored beside the summary. O(text).
    """
    return [_line_tag(run) if len(run) > 1 else _own_tag(run[0]) for run in _runs(said)]


def _runs(said: Sequence[Said]) -> Iterator[Sequence[Said]]:
    run: list[Said] = []
    for each in said:
        if run and not (each.is_line and run[-1].is_line and len(run) < MOST_LINES):
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def _line_tag(run: Sequence[Said]) -> str:
    ends = attribute("from", run[0].entry_id) + attribute("to", run[-1].entry_id)
    return fenced(_TAG, "\n".join(f"- {each.text}" for each in run), ends, foreign=OWN_WORDS)


def _own_tag(said: Said) -> str:
    shown = fenced(_TAG, said.text, attribute("entry", said.entry_id), foreign=OWN_WORDS)
    return f"{fenced(_ASKED, said.asked, also=[_TAG])}\n{shown}" if said.asked else shown
