"""What is put around the text of a mode: the user's words, facts, open work, handoffs, reasoning, symbols, files.

And, behind every mode, what is registered.
"""

from __future__ import annotations

from flue_py.compaction.blocks.around import Around
from flue_py.compaction.blocks.block import Block
from flue_py.compaction.blocks.facts import key_facts
from flue_py.compaction.blocks.files import reread_files
from flue_py.compaction.blocks.handoff import last_handoff
from flue_py.compaction.blocks.open_work import open_work
from flue_py.compaction.blocks.reasoning import reasoning_excerpts
from flue_py.compaction.blocks.registered import registered_block
from flue_py.compaction.blocks.symbols import symbol_graph
from flue_py.compaction.blocks.words import user_words
from flue_py.compaction.quoting import fenced

__all__ = [
    "Around",
    "Block",
    "fenced",
    "key_facts",
    "last_handoff",
    "open_work",
    "reasoning_excerpts",
    "registered_block",
    "reread_files",
    "symbol_graph",
    "user_words",
]
