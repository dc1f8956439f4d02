"""The modes by name: ours, and those that other packages bring through an entry point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

from flue_py.compaction.modes.hybrid import Hybrid
from flue_py.compaction.modes.intent import Intent
from flue_py.compaction.modes.llm import Llm
from flue_py.compaction.modes.lossless import Lossless
from flue_py.compaction.modes.native import NativeMode
from flue_py.compaction.modes.protocol import Mode
from flue_py.compaction.modes.window import Window
from flue_py.errors import InvalidArgument, shown

GROUP = "flue_py.compaction_modes"
"""The group of entry points: each is a function without parameters that returns a `Mode`."""

_OURS: Mapping[str, Callable[[], Mode]] = {
    "llm": Llm,
    "intent": Intent,
    "lossless": Lossless,
    "hybrid": Hybrid,
    "window": Window,
    "native": NativeMode,
}


def mode_names() -> list[str]:
    """Return the names of all modes that can be chosen here: ours, then those of installed packages, sorted."""
    return [*_OURS, *sorted({point.name for point in entry_points(group=GROUP)} - _OURS.keys())]


def is_mode_name(name: str) -> bool:
    """Return whether a mode can be chosen by a name. Installed packages are asked only for one that is not ours."""
    return name in _OURS or name in mode_names()


def find_mode(mode: str | Mode) -> Mode:
    """Return a mode by name; a mode itself is returned as it is. Raises `InvalidArgument` for a name of none."""
    if not isinstance(mode, str):
        if not callable(getattr(mode, "make", None)) or not isinstance(getattr(mode, "name", None), str):
            raise InvalidArgument(f"mode: {shown(mode)} is neither the name of a mode nor a mode")
        return mode
    if mode in _OURS:
        return _OURS[mode]()
    found = next((point for point in entry_points(group=GROUP) if point.name == mode), None)
    if found is None:
        raise InvalidArgument(f"mode: there is no {shown(mode)}; choose one of {', '.join(mode_names())}")
    made: Mode = found.load()()
    return made
