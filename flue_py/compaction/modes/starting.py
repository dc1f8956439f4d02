"""What can be wrong with a compaction before anything is done, found at once: at the start of a program."""

from __future__ import annotations

from flue_py.compaction.modes.protocol import Mode
from flue_py.compaction.modes.registry import find_mode, is_mode_name, mode_names
from flue_py.compaction.policy import CompactionSettings, checked_settings
from flue_py.errors import InvalidArgument, shown


def checked_mode(
    mode: str | Mode | None, settings: CompactionSettings | None, *, has_model: bool | None = None
) -> Mode:
    """Return the mode that settings, or ``mode`` in place of theirs, lead to.

    With ``has_model``, also whether that can be without a model. Raises `InvalidArgument` whose message begins with the
    path of the field: ``settings.mode``, ``mode``, ``model``.
    """
    settings = checked_settings(settings)
    if mode is None and not is_mode_name(settings.mode):
        names = ", ".join(mode_names())
        raise InvalidArgument(f"settings.mode: there is no {shown(settings.mode)}; choose one of {names}")
    found = find_mode(settings.mode if mode is None else mode)
    if has_model is False and found.needs_model and not settings.prefer_deterministic:
        raise InvalidArgument(
            f"model: mode {found.name!r} asks a model; give one, or choose a mode that needs none, "
            "or settings.prefer_deterministic"
        )
    return found
