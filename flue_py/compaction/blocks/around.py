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


@frozen
class Around:
    """What is put around the text of a mode.

    ``tasks`` are what the caller knows to be running beside task sessions, which a session finds by itself, and
    ``approvals`` what somebody has yet to allow. ``handoffs`` are the names of the tools that pass work on, as shell
    patterns, and ``read_file`` reads files that were in use once more.
    """

    tasks: Tasks = ()
    handoffs: tuple[str, ...] = HANDOFFS
    read_file: ReadFile | None = None
    approvals: Approvals = ()

    def before(self, material: Material) -> list[Block]:
        """Return the blocks that come before the text, in order."""
        settings = material.settings
        return [
            symbol_graph(material) if settings.include_symbols else Block(),
            reasoning_excerpts(material) if settings.include_reasoning else Block(),
        ]

    def after(self, material: Material, *, calls: bool = True) -> list[Block]:
        """Return the blocks that come after the text, in order; ``calls`` lists calls without a result."""
        tasks = self.tasks() if callable(self.tasks) else self.tasks
        approvals = self.approvals() if callable(self.approvals) else self.approvals
        return [
            user_words(material),
            key_facts(material),
            open_work(material, tasks, approvals, calls=calls),
            last_handoff(material, self.handoffs),
            reread_files(material, self.read_file),
        ]
