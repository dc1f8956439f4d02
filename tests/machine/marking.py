"""Rules that change what stands beside the history of a session."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from flue_py.core.entries import NewEntry
from flue_py.core.json import encode_json
from flue_py.core.sessions import STORED, Note, Stored
from tests import strategies
from tests.machine.comparing import ComparingMachine, picks, whys


class Marking(ComparingMachine):
    """Labels, pins, exclusions, and the row of a session."""

    @rule(pick=picks, entry=picks, label=st.none() | st.just("") | strategies.labels, why=whys, seen=picks)
    def label(self, pick: int, entry: int, label: str | None, why: str | None, seen: int) -> None:
        """Label an entry, or clear its label."""
        session_id = self._session(pick)
        entry_id = self._entry(session_id, entry)
        expected, note = self._seen(session_id, seen), Note(why=why)
        self._change(
            session_id, lambda backend: backend.set_label(session_id, entry_id, label, expected=expected, note=note)
        )

    @rule(pick=picks, entry=picks, pinned=st.booleans(), seen=picks)
    def pin(self, pick: int, entry: int, pinned: bool, seen: int) -> None:
        """Pin an entry, or let go of it."""
        session_id = self._session(pick)
        entry_id = self._entry(session_id, entry)
        expected, note = self._seen(session_id, seen), Note("pinner")
        self._change(
            session_id, lambda backend: backend.set_pin(session_id, entry_id, pinned, expected=expected, note=note)
        )

    @rule(pick=picks, entry=picks, part=st.sampled_from([None, None, 0, 1, "call"]), excluded=st.booleans(), why=whys)
    def exclude(self, pick: int, entry: int, part: int | str | None, excluded: bool, why: str | None) -> None:
        """Leave an entry, or a part of it, out of the context, or take it back in; also what is not on the path."""
        session_id = self._session(pick)
        new = NewEntry.exclusion(self._entry(session_id, entry), part, excluded=excluded, why=why)
        self._change(session_id, lambda backend: backend.append(session_id, [new]))

    @rule(pick=picks, title=st.none() | strategies.labels, completed=st.sampled_from([STORED, None, 5]), seen=picks)
    def update(self, pick: int, title: str | None, completed: int | Stored | None, seen: int) -> None:
        """Change a session's row; give it the metadata of a session, its own as they are shown among them."""
        session_id = self._session(pick)
        expected = self._seen(session_id, seen)
        shown = self._run(self._model.get_session(session_id if pick % 2 else self._session(seen)))
        text = encode_json({**({} if shown is None else shown.metadata), "n": 1}, "metadata")[0]
        self._change(
            session_id,
            lambda backend: backend.update_session(
                session_id,
                title=title,
                auto_title=title,
                metadata_text=text,
                completed_us=completed,
                expected=expected,
            ),
        )
