"""Title, metadata and completion of a session. Each change is a line of its log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial

from flue_py.core.jsontext import JsonValue
from flue_py.core.log import Note
from flue_py.core.sessions import STORED, LeafChoice, SessionInfo, checked_title
from flue_py.errors import InvalidArgument
from flue_py.sessions.arguments import ChangedMetadata, checked_flag, checked_metadata, checked_moment, checked_seen
from flue_py.sessions.handle import Handle


class Editing(Handle):
    """What a `Session` changes of its own row."""

    __slots__ = ()

    async def set_title(
        self,
        title: str | None,
        *,
        auto: bool = False,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> SessionInfo:
        """Set or clear the title, and return the session's row. O(1).

        A title of white space only is none. With ``auto`` it is the title that a program made. It is kept apart: a
        title that was given is shown before it, whichever came later (`SessionInfo.shown_title`).
        """
        title = checked_title(title)
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        update = partial(self._backend.update_session, self._ref, expected=seen, note=note)
        change = partial(update, auto_title=title) if checked_flag(auto, "auto") else partial(update, title=title)
        return await self._commit(change, self._note_row)

    async def set_metadata(
        self,
        metadata: Mapping[str, JsonValue],
        *,
        merge: bool = False,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> SessionInfo:
        """Replace the metadata, and return the session's row.

        With ``merge`` only the top-level keys given are replaced, in one transaction: of two handles that merge at
        the same time, neither loses what the other gave. What links say is passed over, so that `metadata` may be
        changed and given back: a ``parentSession``, ``taskId`` or ``depth`` that the link has, too, and such items of
        ``taskSessions``. Anything else under these names is stored, and stands before what links say. What a
        `CompactionGuard` remembers stays, unless its key is given. Raises `InvalidArgument`, `InvalidEntry`.
        """
        if metadata is None:
            raise InvalidArgument("metadata: should be an object, not None; {} takes all of yours away")
        text = checked_metadata(metadata, self._limits)
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        change = ChangedMetadata(text, checked_flag(merge, "merge"), self._limits)
        work = partial(self._backend.update_session, self._ref, metadata_text=change, expected=seen, note=note)
        return await self._commit(work, self._note_row)

    async def set_completed(
        self,
        at: datetime | None,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> SessionInfo:
        """Note when the session's work was completed, or with None that it goes on; return the session's row."""
        moment = None if at is None else checked_moment(at)
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        work = partial(self._backend.update_session, self._ref, completed_us=moment, expected=seen, note=note)
        return await self._commit(work, self._note_row)
