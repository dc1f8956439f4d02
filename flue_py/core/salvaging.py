"""The reports of a backup and of a salvage: what could be read, and what has changed."""

from __future__ import annotations

from flue_py.core.frozen import frozen


@frozen
class BackupReport:
    """A copy of a store that was made: where it is, its size, and how much it holds.

    ``is_verified`` says whether `verify` was run on the copy; then it found nothing.
    """

    path: str
    size_bytes: int
    sessions: int
    entries: int
    is_verified: bool = True


@frozen
class Loss:
    """One thing that a rescue lost or had to change.

    ``what`` is one of ``entry``, ``session``, ``leaf``, ``fork point``, ``mark``, ``move``, ``edit``, ``request``,
    ``link``, ``call``, ``budget``, ``reservation``, ``document`` and ``page``. ``session_id`` and ``entry_id`` are None
    if they do not apply or are lost, too.
    """

    what: str
    session_id: str | None
    entry_id: str | None
    detail: str

    def __str__(self) -> str:
        named = [f"session {self.session_id}"] if self.session_id is not None else []
        named += [f"entry {self.entry_id}"] if self.entry_id is not None else []
        return f"{self.what}: {', '.join(named)}{': ' if named else ''}{self.detail}"


@frozen
class SalvageReport:
    """What a rescue found in a damaged database and wrote into a new one.

    ``losses`` are not in the new store; ``changes`` are in it, but not as they were: a branch whose beginning is lost,
    a leaf that went back to an entry that is left, a session of which only the entries are left. ``damaged_pages`` are
    the numbers, from 1, of the pages that could not be read whole.
    """

    sessions: int
    entries: int
    calls: int
    damaged_pages: tuple[int, ...] = ()
    losses: tuple[Loss, ...] = ()
    changes: tuple[Loss, ...] = ()
    documents: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether everything was rescued and is as it was."""
        return not self.losses and not self.changes

    @property
    def lost_entry_ids(self) -> tuple[str, ...]:
        """The ids of the entries that are lost, as far as they are known."""
        return tuple(loss.entry_id for loss in self.losses if loss.what == "entry" and loss.entry_id is not None)

    @property
    def lost_session_ids(self) -> tuple[str, ...]:
        """The ids of the sessions that are lost, as far as they are known."""
        return tuple(loss.session_id for loss in self.losses if loss.what == "session" and loss.session_id is not None)
