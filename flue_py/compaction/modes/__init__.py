"""The modes of compaction: the ways to make the text that stands for what leaves the context."""

from __future__ import annotations

from flue_py.compaction.modes.llm import Llm
from flue_py.compaction.modes.protocol import Asker, Made, Material, Mode
from flue_py.compaction.modes.registry import GROUP, find_mode, mode_names
from flue_py.compaction.modes.window import Window

__all__ = ["GROUP", "Asker", "Llm", "Made", "Material", "Mode", "Window", "find_mode", "mode_names"]
