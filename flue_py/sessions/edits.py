"""The edits of a context that `Session.plan` puts a price on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from flue_py.core.frozen import frozen
from flue_py.core.sessions import STORED, LeafChoice
from flue_py.errors import InvalidArgument, shown
from flue_py.sessions.arguments import checked_count, checked_id, checked_ids, checked_leaf, optional
from flue_py.sessions.moving import check_rewind

if TYPE_CHECKING:
    from flue_py.compaction.modes import Mode
    from flue_py.compaction.policy import CompactionSettings


@frozen
class Compact:
    """`Session.compact`, with the same arguments; with ``first`` or ``last``, `Session.compact_range` between these.

    ``summary_tokens`` is how long the summary is taken to be that a model would write; None for a usual length. A mode
    that asks no model makes its text, and that is counted: functions that it was given are called. Raises
    `InvalidArgument` for a number below 0, and for what is no id.
    """

    mode: str | Mode | None = None
    settings: CompactionSettings | None = None
    window: int | None = None
    summary_tokens: int | None = None
    first: str | None = None
    last: str | None = None

    def __post_init__(self) -> None:
        for entry_id, name in ((self.first, "first"), (self.last, "last")):
            optional(checked_id, entry_id, name)
        optional(checked_count, self.window, "window")
        optional(checked_count, self.summary_tokens, "summary_tokens")


@frozen
class Rewind:
    """`Session.rewind` to an entry, or over a number of turns. Raises `InvalidArgument` for both or neither."""

    to: LeafChoice = STORED
    turns: int | None = None

    def __post_init__(self) -> None:
        check_rewind(self.to, self.turns)


@frozen
class Exclude:
    """`Session.exclude` of one or more entries. Raises `InvalidArgument` for no id."""

    entry_ids: Sequence[str]

    def __post_init__(self) -> None:
        ids = (self.entry_ids,) if isinstance(self.entry_ids, str) else self.entry_ids
        object.__setattr__(self, "entry_ids", tuple(checked_ids(ids)))
        if not self.entry_ids:
            raise InvalidArgument("entry_ids: is empty; name at least one entry")


@frozen
class Fork:
    """`Session.fork`: the first call of a session that begins ``at`` an entry."""

    at: LeafChoice = STORED

    def __post_init__(self) -> None:
        checked_leaf(self.at, "at")


@frozen
class Resume:
    """The next call of the session as it is, for example after a pause, or with another model."""


Edit: TypeAlias = Compact | Rewind | Exclude | Fork | Resume
EditChoice: TypeAlias = Edit | Literal["compact", "rewind", "exclude", "fork", "resume"]


def checked_edit(edit: EditChoice, arguments: Mapping[str, object]) -> Edit:
    """Return an edit, given as one, or by its name and what is given of its arguments. Raises `InvalidArgument`."""
    leaves = ("to", "at")  # None is a leaf: the one before the first entry
    arguments = {name: value for name, value in arguments.items() if value is not (STORED if name in leaves else None)}
    if isinstance(edit, Compact | Rewind | Exclude | Fork | Resume):
        if arguments:
            name = next(iter(arguments))
            raise InvalidArgument(f"{name}: is an argument of an edit given by its name, not of {shown(edit)}")
        return edit
    made = _NAMED.get(edit) if isinstance(edit, str) else None
    if made is None:
        raise InvalidArgument(f"edit: {shown(edit)} is not an edit; give one of {', '.join(_NAMED)}")
    try:
        return made(**arguments)
    except TypeError as error:
        said = str(error).partition("__init__() ")[2]
        raise InvalidArgument(f"edit: {made.__name__} {said}") from error


_NAMED: dict[str, Callable[..., Edit]] = {
    "compact": Compact,
    "rewind": Rewind,
    "exclude": Exclude,
    "fork": Fork,
    "resume": Resume,
}
