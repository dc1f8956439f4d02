"""Where an agent runs: the system, the shell, the folder, the date."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime

from flue_py.context.blocks.plain import visible_line
from flue_py.context.blocks.protocol import BlockText
from flue_py.errors import InvalidArgument, shown

_MOST_CHARS = 1_000


class RuntimeEnvironment:
    """The block ``environment``: system, architecture, shell, working directory, date and time with offset and zone.

    ``cwd`` is the folder, by default that of the process each time it is read. ``clock`` returns the time as a
    datetime with a time zone. It is told again when anything but the time of day has changed: on a new day, or in
    another folder.
    """

    name = "environment"

    def __init__(
        self,
        *,
        cwd: str | None = None,
        shell: str | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC).astimezone(),
    ) -> None:
        for what, given in (("cwd", cwd), ("shell", shell)):
            if given is not None and not isinstance(given, str):
                raise InvalidArgument(f"{what}: {shown(given)} is not a text")
        if not callable(clock):
            raise InvalidArgument(f"clock: {shown(clock)} is not a function")
        self._cwd = cwd
        self._shell = shell
        self._clock = clock

    async def read(self) -> BlockText:
        """Return the block. Raises `InvalidArgument` for a clock that names no time zone. O(1)."""
        now = self._clock()
        if not isinstance(now, datetime) or now.utcoffset() is None:
            raise InvalidArgument(f"clock: {shown(now)} is not a datetime with a time zone")
        shell = self._shell or os.environ.get("SHELL") or os.environ.get("COMSPEC") or "unknown"
        facts = [
            ("OS", f"{platform.system()} {platform.release()}".strip() or "unknown"),
            ("Architecture", platform.machine() or "unknown"),
            ("Shell", shell),
            ("Working directory", os.getcwd() if self._cwd is None else self._cwd),
        ]
        lines = ["## Runtime Environment", *(f"- {what}: {visible_line(said, _MOST_CHARS)}" for what, said in facts)]
        day, offset, zone = now.date().isoformat(), _offset(now), visible_line(_zone(now), _MOST_CHARS)
        text = "\n".join([*lines, f"- Date/time: {day} {now:%H:%M} {offset} ({zone})"])
        return BlockText(text, "\n".join([*lines, f"{day} {offset} {zone}"]))


def _offset(now: datetime) -> str:
    digits = now.strftime("%z")
    return f"{digits[:3]}:{digits[3:5]}"


def _zone(now: datetime) -> str:
    key = getattr(now.tzinfo, "key", None)
    return key if isinstance(key, str) else now.tzname() or "no name"
