"""The modes of compaction: the ways to make the text that stands for what leaves the context."""

from __future__ import annotations

from flue_py.compaction.modes.dressing import HOOK, supplied, with_block
from flue_py.compaction.modes.hybrid import Hybrid
from flue_py.compaction.modes.intent import Intent
from flue_py.compaction.modes.llm import Llm
from flue_py.compaction.modes.lossless import Lossless
from flue_py.compaction.modes.making import make_text
from flue_py.compaction.modes.native import NativeMode
from flue_py.compaction.modes.protocol import Asker, Made, Material, Mode
from flue_py.compaction.modes.registry import GROUP, find_mode, mode_names
from flue_py.compaction.modes.starting import checked_mode
from flue_py.compaction.modes.window import Window

__all__ = [
    "GROUP",
    "HOOK",
    "Asker",
    "Hybrid",
    "Intent",
    "Llm",
    "Lossless",
    "Made",
    "Material",
    "Mode",
    "NativeMode",
    "Window",
    "checked_mode",
    "find_mode",
    "make_text",
    "mode_names",
    "supplied",
    "with_block",
]
