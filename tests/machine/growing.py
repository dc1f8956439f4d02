"""Rules that make sessions and add entries and paid calls to them."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import rule

from flue_py.core.context import latest_compaction, uncompaction
from flue_py.core.entries import Layout, NewEntry, Range, laid_out
from flue_py.core.sessions import NewSession, OnConflict
from flue_py.core.usage import PaidCall
from tests import strategies
from tests.machine.answers import GHOSTS
from tests.machine.comparing import ComparingMachine, picks
from tests.samples import placed


class Growing(ComparingMachine):
    """Appends, imports, paid calls."""

    @rule(key=st.sampled_from([None, None, "", "a"]), scope=st.sampled_from(["", "x"]), again=picks)
    def create(self, key: str | None, scope: str, again: int) -> None:
        """Create a root session, sometimes with the id of one that was there."""
        new = NewSession(key=key, scope=scope, id=self._any_session_id(again) if again % 4 == 3 else None)
        self._create(lambda backend: backend.create_session(new))

    @rule(
        pick=picks,
        entries=st.lists(strategies.entries, max_size=4),
        expected=picks,
        on_conflict=st.sampled_from(["raise", "branch", "branch", "rebase"]),
    )
    def append(self, pick: int, entries: list[NewEntry], expected: int, on_conflict: OnConflict) -> None:
        """Append a batch, at the stored leaf or at another."""
        session_id = self._session(pick)
        leaf = self._seen(session_id, expected) if expected % 4 == 0 else self._choice(session_id, expected)
        self._change(
            session_id, lambda backend: backend.append(session_id, entries, expected=leaf, on_conflict=on_conflict)
        )

    @rule(pick=picks, entries=st.lists(strategies.message_entries, min_size=1, max_size=3))
    def talk(self, pick: int, entries: list[NewEntry]) -> None:
        """Append messages at the stored leaf."""
        session_id = self._session(pick)
        self._change(session_id, lambda backend: backend.append(session_id, entries))

    @rule(pick=picks, kept=picks, data=st.data())
    def compact(self, pick: int, kept: int, data: st.DataObject) -> None:
        """Append a compaction that keeps from any entry."""
        session_id = self._session(pick)
        new = data.draw(strategies.compactions(self._entry(session_id, kept)))
        self._change(session_id, lambda backend: backend.append(session_id, [new]))

    @rule(pick=picks, kept=picks, ends=st.lists(st.tuples(picks, picks, picks), max_size=3), named=picks)
    def compact_range(self, pick: int, kept: int, ends: list[tuple[int, int, int]], named: int) -> None:
        """Append a compaction with ranges: some as a session makes them, some that are none."""
        session_id = self._session(pick)
        path = self._run(self._model.read_path(session_id)).entries if self._is_there(session_id) else ()
        if not path:
            return
        ids = [entry.id for entry in path]
        known = [None, *(entry.id for entry in path if entry.kind == "compaction"), ids[named % len(ids)]]
        chosen = [(ids[at % len(ids)], ids[to % len(ids)], known[by % len(known)]) for at, to, by in ends]
        in_order = sorted(chosen, key=lambda each: ids.index(each[0])) if kept % 3 else chosen
        new = NewEntry.compaction("so far", first_kept_entry_id=ids[kept % min(len(ids), 3)], tokens_before=9)
        head = Layout(known[pick % len(known)], None) if pick % 4 else None
        laid = laid_out(new, [Range(*each) for each in in_order], head=head)
        self._change(session_id, lambda backend: backend.append(session_id, [laid]))

    @rule(pick=picks)
    def uncompact(self, pick: int) -> None:
        """Take the compaction in effect back."""
        session_id = self._session(pick)
        path = self._run(self._model.read_path(session_id)).entries if self._is_there(session_id) else ()
        peeled = latest_compaction(path)
        if peeled is not None:
            new = uncompaction(peeled, latest_compaction(path[: peeled.depth]), path[0].id, 5)
            self._change(session_id, lambda backend: backend.append(session_id, [new]))

    @rule(pick=picks, entry=picks, part=st.sampled_from([None, None, 0, 1, "call"]), excluded=st.booleans())
    def exclude(self, pick: int, entry: int, part: int | str | None, excluded: bool) -> None:
        """Leave an entry, or a part of it, out of the context, or take it back in; also what is not on the path."""
        session_id = self._session(pick)
        new = NewEntry.exclusion(self._entry(session_id, entry), part, excluded=excluded)
        self._change(session_id, lambda backend: backend.append(session_id, [new]))

    @rule(pick=picks, call=strategies.calls)
    def record_call(self, pick: int, call: PaidCall) -> None:
        """Write a paid call without an entry."""
        session_id = self._session(pick)
        self._change(session_id, lambda backend: backend.record_call(session_id, call))

    @rule(pick=picks, shape=st.lists(st.tuples(picks, strategies.entries), max_size=5), leaf=picks, expected=picks)
    def import_entries(self, pick: int, shape: list[tuple[int, NewEntry]], leaf: int, expected: int) -> None:
        """Import a small tree below what is there."""
        session_id = self._session(pick)
        named = self._choice(session_id, expected)
        entries, to = self._imported(shape, leaf, lambda pick: [None, self._entry(session_id, pick)])
        self._change(session_id, lambda backend: backend.import_entries(session_id, entries, leaf=to, expected=named))

    @rule(
        shape=st.lists(st.tuples(picks, strategies.entries), max_size=5), leaf=picks, key=st.sampled_from([None, "a"])
    )
    def import_session(self, shape: list[tuple[int, NewEntry]], leaf: int, key: str | None) -> None:
        """Import a session with a small tree of its own."""
        entries, to = self._imported(shape, leaf, lambda pick: [GHOSTS[0]] if pick % 30 == 29 else [None])
        self._create(lambda backend: backend.import_session(NewSession(key=key), entries, leaf=to))

    def _imported(
        self, shape: list[tuple[int, NewEntry]], leaf: int, others: Callable[[int], list[str | None]]
    ) -> tuple[list[NewEntry], str | None]:
        """Return entries whose parents are earlier ones or ``others``, and a leaf chosen likewise."""
        ids = [f"i{len(self._entries)}-{number}" for number in range(len(shape))]
        entries: list[NewEntry] = []
        for number, (pick, new) in enumerate(shape):
            below: list[str | None] = [*ids[:number], *others(pick)]
            entries.append(placed(new, ids[number], below[pick % len(below)], pick))
        leaves: list[str | None] = [*ids, *others(leaf)]
        return entries, leaves[leaf % len(leaves)]
