"""What a mode has put around its text, as far as the caller has to give it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.blocks.facts import key_facts
from flue_py.compaction.blocks.files import ReadFile, reread_files
from flue_py.compaction.blocks.handoff import HANDOFFS, last_handoff
from flue_py.compaction.blocks.open_work import open_work
from flue_py.compaction.blocks.reasoning import reasoning_excerpts
from flue_py.compaction.blocks.symbols import symbol_graph
from flue_py.compaction.blocks.words import user_words
from flue_py.compaction.material import Material
from flue_py.core.frozen import frozen

Tasks: TypeAlias = Sequence[str] | Callable[[], Sequence[str]]
"""Running tasks, each as its id and a few words; or a function that returns them."""

Approvals: TypeAlias = Sequence[str] | Callable[[], Sequence[str]]
"""Approvals that are waited for, each as its id and a few words; or a function that returns them."""


def _fitting(material: Material, block: Block, name: str) -> Block:
    """Return a block where there is room for it, else its details, which the next compaction may have room for."""
    if material.fits(block.text):
        return block
    return Block("", block.details, (*block.notes, f"the {name} are left out: the window has no room for them"))


@frozen
class Around:
    """What is put around the text of a mode.

    ``tasks`` are what the caller knows to be running beside task sessions, which a session finds by itself, and
    ``approvals`` what somebody has yet to allow. One that begins with the id of a call without a result keeps that in
    the context. ``handoffs`` are the names of the tools that pass work on, as shell
    patterns, and ``read_file`` reads files that were in use once more; with ``include_files`` in the settings, those
    that were read are shown without it, as they were read last.
    """

    tasks: Tasks = ()
    handoffs: tuple[str, ...] = HANDOFFS
    read_file: ReadFile | None = None
    approvals: Approvals = ()

    @property
    def named_tasks(self) -> Sequence[str]:
        """The tasks, asked for now."""
        return self.tasks() if callable(self.tasks) else self.tasks

    @property
    def named_approvals(self) -> Sequence[str]:
        """The approvals, asked for now."""
        return self.approvals() if callable(self.approvals) else self.approvals

    def blocks(self, material: Material, own: str, *, calls: bool = True) -> tuple[list[Block], list[Block]]:
        """Return the blocks before a mode's own text and those after it, in order; ``calls`` lists those unanswered.

        Where there is little room beside that text, what the user said has what was set aside for it, and what the
        short ones leave; then come the rest. One for which there is no room is left out, and noted.
        """
        settings, left = material.settings, material.beside(own)
        work = open_work(left, self.named_tasks, self.named_approvals, calls=calls)
        left = left.beside(work.text)
        handoff = last_handoff(left, self.handoffs)
        left = left.beside(handoff.text)
        facts = _fitting(left, key_facts(left), "key facts")
        left = left.beside(facts.text)
        words = user_words(left)
        left = left.with_all_room().beside(words.text)
        has_files = self.read_file is not None or settings.include_files
        files = _fitting(left, reread_files(left, self.read_file), "files in use") if has_files else Block()
        left = left.beside(files.text)
        symbols = _fitting(left, symbol_graph(left), "symbols") if settings.include_symbols else Block()
        left = left.beside(symbols.text)
        reasoning = _fitting(left, reasoning_excerpts(left), "reasoning") if settings.include_reasoning else Block()
        return [symbols, reasoning], [words, facts, work, handoff, files]
