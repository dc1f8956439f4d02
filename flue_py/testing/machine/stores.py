"""A state machine that drives a store and the model in memory side by side, and compares all they tell.

Both get the same operations with the same ids and the same time, so every answer has to be equal: results, errors,
and after each step everything that can be read of the session that was touched. What a read says is also checked
against what the entries themselves say, so that the model is not the only witness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import partial
from operator import itemgetter
from typing import ClassVar, TypeVar, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from flue_py.core.calls import PaidCall
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.jsontext import decode_object, encode_json
from flue_py.core.ledger import DIMENSIONS, LedgerQuery
from flue_py.core.log import LogLine, Note
from flue_py.core.operations import Committed
from flue_py.core.projection import project
from flue_py.core.sessions import (
    STORED,
    Deletion,
    Expected,
    LeafChoice,
    NewSession,
    OnConflict,
    Seen,
    SessionInfo,
    Stored,
    TaskEnd,
)
from flue_py.errors import FlueError, LeafConflict, RevisionConflict
from flue_py.store.backend import Backend
from flue_py.store.seam import Sources
from flue_py.testing import samples, strategies
from flue_py.testing.checks import check_window
from flue_py.testing.machine.batches import STEPS, BatchMaker
from flue_py.testing.machine.listing import check_conditions
from flue_py.testing.model import StoreModel
from flue_py.testing.samples import entries_of, ids_of, path_of, placed, projected, snapshot
from flue_py.testing.sources import OpenBackend, StepSources

T = TypeVar("T")

MAX_SESSIONS = 10
GHOSTS = ("ghost-1", "ghost-2")
"""Ids of sessions and entries that never are."""

_LEDGER_EVERY = 5

picks = st.integers(0, 119)
"""Which of the things that are there at the time a rule means."""
whys = st.sampled_from([None, "because"])


def check_against_model(open_backend: OpenBackend, share: float = 1.0, step_share: float = 1.0) -> None:
    """Run the machine over a backend, with these shares of the profile's examples and of the steps of each."""
    profile = settings()
    examples = max(3, round(profile.max_examples * share))
    steps = max(10, round(profile.stateful_step_count * step_share))
    machine = type("Machine", (BackendMachine,), {"open_backend": staticmethod(open_backend)})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=steps))


class BackendMachine(RuleBasedStateMachine):
    """Every operation of a store, in any order, on a handful of sessions."""

    open_backend: ClassVar[Callable[[Sources], Awaitable[Backend]]]
    lists_ties_alike: ClassVar[bool] = True
    """Whether sessions that were changed at the same time are listed in the same order, too."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._steps = (StepSources(), StepSources())
        self._model = cast("Backend", StoreModel(self._steps[0].sources))
        self._store: Backend = self._run(type(self).open_backend(self._steps[1].sources))
        self._is_alike = True
        self._compared = 0
        self._batches = 0
        self._sessions: list[str] = []
        self._entries: list[str] = []
        self._retries: list[Callable[[Backend], Awaitable[object]]] = []

    def teardown(self) -> None:
        """Compare everything once more, and let the store check itself."""
        try:
            if self._is_alike:
                self._compare_stores()
                assert self._run(self._store.verify()).problems == []
        finally:
            self._run(self._store.close())
            self._runner.close()

    # -- what is there to pick from -------------------------------------------------------------------------------

    def _session(self, pick: int) -> str:
        """Return a session, now and then one that is gone or never was."""
        alive = self._alive()
        if not alive or pick % 30 == 29:
            return self._any_session_id(pick)
        return alive[pick % len(alive)]

    def _any_session_id(self, pick: int) -> str:
        ids = [*self._sessions, *GHOSTS]
        return ids[pick % len(ids)]

    def _alive(self) -> list[str]:
        return [session_id for session_id in self._sessions if self._is_there(session_id)]

    def _is_there(self, session_id: str) -> bool:
        return self._run(self._model.get_session(session_id)) is not None

    def _entry(self, session_id: str, pick: int) -> str:
        """Return an entry the session sees, now and then any other."""
        seen: Sequence[str] = ()
        if pick % 10 != 9 and self._is_there(session_id):
            seen = ids_of(self._run(self._model.read_tree(session_id)))
        found = seen or [*self._entries, *GHOSTS]
        return found[pick % len(found)]

    def _stored_leaf(self, session_id: str) -> str | None:
        found = self._run(self._model.get_session(session_id))
        return None if found is None else found.leaf_id

    def _choice(self, session_id: str, pick: int) -> LeafChoice:
        """Return a leaf to name: mostly the stored one, else any entry or None."""
        if pick % 5 < 2:
            return STORED
        if pick % 5 == 2:
            return self._stored_leaf(session_id)
        return None if pick % 15 == 3 else self._entry(session_id, pick)

    def _seen(self, session_id: str, pick: int) -> Expected:
        """Return what to compare: mostly nothing, else a leaf, the stored revision or another one."""
        if pick % 4:
            return STORED
        found = self._run(self._model.get_session(session_id))
        revision = None if found is None or pick % 3 == 2 else found.revision + (pick % 5 == 4)
        return Seen(self._choice(session_id, pick // 4), revision)

    # -- the rules ------------------------------------------------------------------------------------------------

    @initialize(length=st.integers(0, 5), forked=st.booleans())
    def begin(self, length: int, forked: bool) -> None:
        """Start with one session, or with it and its fork."""
        self._create(lambda backend: backend.create_session(NewSession(key="first")))
        first = self._sessions[0]
        self._change(first, lambda backend: backend.append(first, samples.talk(length)))
        if forked:
            leaf = self._entry(first, length) if length else None
            self._create(lambda backend: backend.fork(first, leaf, NewSession()), first)

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
        key=st.sampled_from([None, None, None, None, "k1", "k2"]),
    )
    def append(
        self, pick: int, entries: list[NewEntry], expected: int, on_conflict: OnConflict, key: str | None
    ) -> None:
        """Append a batch, at the stored leaf or at another."""
        session_id = self._session(pick)
        leaf = self._seen(session_id, expected) if expected % 4 == 0 else self._choice(session_id, expected)
        self._change(
            session_id,
            lambda backend: backend.append(
                session_id, entries, expected=leaf, on_conflict=on_conflict, idempotency_key=key
            ),
            retried=key is not None,
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

    @rule(pick=picks, to=picks, key=st.sampled_from([None, None, None, "k1", "k3"]), seen=picks)
    def move(self, pick: int, to: int, key: str | None, seen: int) -> None:
        """Move the leaf to an entry or to None."""
        session_id = self._session(pick)
        expected = self._seen(session_id, seen)
        target = None if to % 12 == 6 else self._entry(session_id, to)
        self._change(
            session_id,
            lambda backend: backend.move(session_id, target, expected=expected, idempotency_key=key),
            retried=key is not None,
        )

    @rule(
        pick=picks,
        to=picks,
        summary=st.none() | strategies.summary_entries,
        label=st.none() | strategies.labels,
        seen=picks,
    )
    def navigate(self, pick: int, to: int, summary: NewEntry | None, label: str | None, seen: int) -> None:
        """Go elsewhere, often with a summary of what is left."""
        session_id = self._session(pick)
        target, labelled = self._choice(session_id, to), self._entry(session_id, to)
        leaf = None if isinstance(target, Stored) else target
        expected = self._seen(session_id, seen)
        self._change(
            session_id,
            lambda backend: backend.navigate(
                session_id, leaf, summary=summary, label=label, labelled=labelled, expected=expected, note=Note("guide")
            ),
        )

    @rule(pick=picks, entry=picks, seen=picks)
    def retract(self, pick: int, entry: int, seen: int) -> None:
        """Retract the leaf, or try to retract something else."""
        session_id = self._session(pick)
        entry_id = (self._stored_leaf(session_id) if entry % 4 else None) or self._entry(session_id, entry)
        expected = self._seen(session_id, seen)
        self._change(session_id, lambda backend: backend.retract(session_id, entry_id, expected=expected))

    @rule(pick=picks, steps=st.lists(st.booleans(), min_size=1, max_size=6), expected=picks)
    def undo_and_redo(self, pick: int, steps: list[bool], expected: int) -> None:
        """Undo and redo, back and forth."""
        session_id = self._session(pick)
        for forward in steps:
            named = self._choice(session_id, expected) if expected % 10 == 9 else self._seen(session_id, expected)
            self._change(session_id, partial(_redo if forward else _undo, session_id, named))

    @rule(pick=picks, at=picks, key=st.sampled_from([None, None, None, None, "f"]), again=picks, seen=picks)
    def fork(self, pick: int, at: int, key: str | None, again: int, seen: int) -> None:
        """Fork anywhere, also a fork, sometimes with the id of a session that was there."""
        session_id = self._session(pick)
        leaf, expected = self._choice(session_id, at), self._seen(session_id, seen)
        new = NewSession(title="forked", id=self._any_session_id(again) if again % 4 == 3 else None)
        self._create(
            lambda backend: backend.fork(session_id, leaf, new, expected=expected, idempotency_key=key),
            session_id,
            retried=key is not None,
        )

    @rule(
        pick=picks,
        task_id=st.sampled_from(["t1", "t2"]),
        key=st.sampled_from([None, None, None, None, "t"]),
        seen=picks,
    )
    def create_task(self, pick: int, task_id: str, key: str | None, seen: int) -> None:
        """Start a task session."""
        session_id = self._session(pick)
        new, expected = NewSession(metadata_text='{"given":1}'), self._seen(session_id, seen)
        self._create(
            lambda backend: backend.create_task(session_id, task_id, new, expected=expected, idempotency_key=key),
            session_id,
            retried=key is not None,
        )

    @rule(pick=picks, child=picks, task_id=st.sampled_from(["t1", "t3"]), seen=picks)
    def link_task(self, pick: int, child: int, task_id: str, seen: int) -> None:
        """Link any session, or one that is not there, as a task."""
        session_id = self._session(pick)
        child_id = self._any_session_id(child)
        expected = self._seen(session_id, seen)
        self._change(session_id, lambda backend: backend.link_task(session_id, child_id, task_id, expected=expected))

    @rule(
        pick=picks,
        status=st.sampled_from(["done", "failed"]),
        summary=st.none() | strategies.labels,
        why=whys,
        seen=picks,
    )
    def end_task(self, pick: int, status: TaskEnd, summary: str | None, why: str | None, seen: int) -> None:
        """Note how a task ended, or try to of a session that is none."""
        tasks = [each for each in self._alive() if self._run(self._model.task_parents(each))]
        session_id = tasks[pick % len(tasks)] if tasks and pick % 8 else self._session(pick)
        expected = self._seen(session_id, seen)
        self._both(
            lambda backend: backend.end_task(
                session_id, status, summary=summary, expected=expected, note=Note("child", why)
            )
        )
        self._compare_stores()

    @precondition(lambda self: len(self._alive()) > 2)
    @rule(pick=picks, scope=st.sampled_from([None, None, None, "", "x"]), seen=picks)
    def delete(self, pick: int, scope: str | None, seen: int) -> None:
        """Delete a session and the closure of its links, after saying what that will do."""
        session_id = self._session(pick)
        expected = self._seen(session_id, seen)
        foretold = self._both(
            lambda backend: backend.delete_tree(session_id, scope=scope, dry_run=True, expected=expected)
        )
        self._compare_stores()
        done = self._both(lambda backend: backend.delete_tree(session_id, scope=scope, expected=expected))
        assert done == foretold
        self._compare_stores()

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

    @rule(pick=picks, revision=picks, before=st.booleans(), expected=picks)
    def go_back(self, pick: int, revision: int, before: bool, expected: int) -> None:
        """Go back to a line of the log, now and then to one that is not there yet."""
        session_id = self._session(pick)
        found = self._run(self._model.get_session(session_id))
        line = revision % (2 + (0 if found is None else found.revision))
        named = self._choice(session_id, expected) if expected % 10 == 9 else self._seen(session_id, expected)
        self._change(
            session_id, lambda backend: backend.go_back(session_id, line, before=before and line > 0, expected=named)
        )

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

    @rule(
        steps=st.lists(st.tuples(st.sampled_from(STEPS), picks, picks, picks), min_size=1, max_size=6),
        key=st.sampled_from([None, None, None, "b1", "b2"]),
    )
    def batch(self, steps: list[tuple[str, int, int, int]], key: str | None) -> None:
        """Do several operations as one, later ones on what earlier ones make."""
        self._batches += 1
        maker = BatchMaker(f"b{self._batches}", self._session, self._entry, self._seen)
        room = MAX_SESSIONS - len(self._alive())
        operations = [maker.make(*step, room=room) for step in steps]
        done = self._both(lambda backend: backend.atomic(operations, idempotency_key=key))
        if key is not None:
            self._retries.append(lambda backend: backend.atomic(operations, idempotency_key=key))
        if isinstance(done, tuple) and done[0] == "committed":
            self._sessions += [made for made in maker.sessions if made not in self._sessions]
        self._compare_stores()

    @rule(pick=picks)
    def retry(self, pick: int) -> None:
        """Do again an operation that had an idempotency key."""
        if self._retries:
            result = self._both(self._retries[pick % len(self._retries)])
            if isinstance(result, SessionInfo) and result.id not in self._sessions:
                self._sessions.append(result.id)
            self._compare_stores()

    # -- how they are compared ------------------------------------------------------------------------------------

    def _run(self, awaitable: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await awaitable

        # `Runner.run` would take over SIGINT and give it back each time, which takes longer than most answers.
        return self._runner.get_loop().run_until_complete(awaited())

    def _both(self, call: Callable[[Backend], Awaitable[object]]) -> object:
        """Do it in both stores and return the answer, which is the same: a result or an error."""
        self._is_alike = False
        for steps in self._steps:
            steps.begin_step()
        expected = self._run(_answer(call, self._model))
        actual = self._run(_answer(call, self._store))
        assert actual == expected, "the answers differ"
        self._is_alike = True
        return expected

    def _create(
        self,
        call: Callable[[Backend], Awaitable[SessionInfo]],
        source_id: str | None = None,
        *,
        retried: bool = False,
    ) -> None:
        if len(self._alive()) >= MAX_SESSIONS:
            return
        made = self._both(call)
        if retried:
            self._retries.append(call)
        if isinstance(made, SessionInfo):
            if made.id not in self._sessions:
                self._sessions.append(made.id)
            self._compare(made.id)
        if source_id is not None:
            self._compare(source_id)

    def _change(self, session_id: str, call: Callable[[Backend], Awaitable[object]], *, retried: bool = False) -> None:
        self._both(call)
        if retried:
            self._retries.append(call)
        self._compare(session_id)

    def _compare(self, session_id: str) -> None:
        """Compare all that both tell about a session."""
        if self._is_there(session_id):
            self._note_entries(session_id)
        # Two of the entries there are, other ones each time: many of them the session does not see.
        known = self._entries or [*GHOSTS]
        self._compared += 1
        probes = {known[(7 * self._compared) % len(known)], known[-1 - self._compared % len(known)]}
        expected = self._run(_told(self._model, session_id, probes))
        actual = self._run(_told(self._store, session_id, probes))
        self._is_alike = False
        for what in expected.keys() | actual.keys():
            assert actual.get(what) == expected.get(what), f"{what} of {session_id}"
        self._is_alike = True
        if self._compared % _LEDGER_EVERY == 0:
            bills = _bills(session_id, known[self._compared % len(known)])
            bill = bills[self._compared // _LEDGER_EVERY % len(bills)]
            paid = [self._run(_answer(partial(_read_ledger, bill), each)) for each in (self._model, self._store)]
            assert paid[1] == paid[0], f"{bill}"
            costs = [
                self._run(_answer(partial(_read_entry_costs, session_id), each)) for each in (self._model, self._store)
            ]
            assert costs[1] == costs[0], f"costs of {session_id}"
        if self._is_there(session_id):
            self._run(_check_reads(self._store, session_id))

    def _note_entries(self, session_id: str) -> None:
        known = {*self._entries}
        self._entries += [entry.id for entry in self._run(self._model.read_tree(session_id)) if entry.id not in known]

    def _compare_stores(self) -> None:
        for session_id in (*self._sessions, *GHOSTS):
            self._compare(session_id)
        ties = type(self).lists_ties_alike
        told = [self._run(_told_of_store(backend, ties=ties)) for backend in (self._model, self._store)]
        assert told[1] == told[0]


async def _undo(session_id: str, expected: Expected, backend: Backend) -> object:
    return await backend.undo(session_id, expected=expected)


async def _redo(session_id: str, expected: Expected, backend: Backend) -> object:
    return await backend.redo(session_id, expected=expected)


async def _answer(call: Callable[[Backend], Awaitable[object]], backend: Backend) -> object:
    """Return the result of a call, or what its error says."""
    try:
        result = await call(backend)
    except (LeafConflict, RevisionConflict) as error:
        return (type(error), error.session_id, error.expected, error.actual, error.operation)
    except FlueError as error:
        return type(error) if error.operation is None else (type(error), error.operation)
    if isinstance(result, Committed):
        return ("committed", result.left, result.replayed, [_comparable_answer(each) for each in result.outcomes])
    return _comparable_answer(result)


def _comparable_answer(result: object) -> object:
    """Return a result without what stores may differ in."""
    if isinstance(result, SessionInfo):
        return comparable(result)
    if isinstance(result, LogLine):
        return replace(result, at_us=None)
    if isinstance(result, Deletion):
        # Which session an entry counts with once its creator is gone is the store's own affair.
        return replace(
            result,
            session_ids=tuple(sorted(result.session_ids)),
            missing_ids=tuple(sorted(result.missing_ids)),
            entries_kept=0,
            # Those of each session stay in their order.
            links=tuple(sorted(result.links, key=itemgetter(0))),
        )
    return result


def comparable(info: SessionInfo) -> SessionInfo:
    """Return a session without what stores may differ in: the spelling of metadata, those stored and those shown."""
    return replace(info, metadata_text=repr((decode_object(info.metadata_text), info.metadata)))


async def _told(backend: Backend, session_id: str, probes: Iterable[str]) -> dict[str, object]:
    """Return all that a store tells about a session, and about some entries from its point of view."""
    if await backend.get_session(session_id) is None:
        return {"path": await _answer(lambda backend: backend.read_path(session_id), backend)}
    shown = await snapshot(backend, session_id)
    told = {each.name: getattr(shown, each.name) for each in fields(shown)}
    told["info"] = comparable(shown.info)
    told["log"] = [replace(line, at_us=None) for line in shown.log]
    told["changes"] = [replace(change, at_us=None) for change in shown.changes]
    for entry_id in probes:
        for what, call in _questions(session_id, shown.info.leaf_id, entry_id).items():
            told[f"{what} {entry_id}"] = await _answer(call, backend)
    return told


def _bills(session_id: str, entry_id: str) -> tuple[LedgerQuery, ...]:
    """Return what is asked of the ledger, one after the other."""
    return (
        LedgerQuery(session_id, group_by=DIMENSIONS),
        LedgerQuery(session_id, tree=True, tasks=True, group_by=("session", "purpose")),
        LedgerQuery(session_id, on_path=True, group_by=("purpose",)),
        LedgerQuery(session_id, on_path=True, since=entry_id),
        LedgerQuery(branch="abandoned", group_by=("session",)),
    )


async def _read_ledger(query: LedgerQuery, backend: Backend) -> object:
    return await backend.read_ledger(query)


async def _read_entry_costs(session_id: str, backend: Backend) -> object:
    return await backend.read_entry_costs(session_id)


def _questions(session_id: str, leaf: str | None, entry_id: str) -> dict[str, Callable[[Backend], Awaitable[object]]]:
    return {
        "entry": lambda backend: backend.get_entry(session_id, entry_id),
        "anywhere": lambda backend: backend.find_entry(entry_id),
        "entries": lambda backend: backend.get_entries(session_id, [entry_id, GHOSTS[0], leaf or entry_id, entry_id]),
        "children": lambda backend: backend.children(session_id, entry_id),
        "entries after": lambda backend: backend.read_entries(session_id, after=entry_id, limit=3),
        "messages before": lambda backend: _messages_before(backend, session_id, entry_id),
        "ids like": lambda backend: backend.match_entry_ids(session_id, entry_id[:4], 3),
        "path since": lambda backend: _ids_since(backend, session_id, entry_id),
        "usage since": lambda backend: backend.read_usage(session_id, entry_id),
        "path to": lambda backend: path_of(backend, session_id, entry_id),
        "usage to": lambda backend: backend.read_usage(session_id, None, leaf=entry_id),
        "context at": lambda backend: _context_ids(backend, session_id, entry_id),
        "settings at": lambda backend: backend.read_settings(session_id, leaf=entry_id),
        "end of path": lambda backend: _end_ids(backend, session_id, entry_id, 2),
        "end of context": lambda backend: _context_end(backend, session_id, entry_id, 2),
        "turns to": lambda backend: backend.read_turns(session_id, leaf=entry_id),
        "common": lambda backend: backend.common_ancestor(session_id, session_id, other_leaf=entry_id),
        "ancestor": lambda backend: backend.is_ancestor(session_id, entry_id, leaf or entry_id),
    }


async def _ids_since(backend: Backend, session_id: str, since: str) -> list[str]:
    return ids_of(entries_of(await backend.read_path_since(session_id, since)))


async def _context_ids(backend: Backend, session_id: str, leaf: str) -> list[str]:
    return [item.entry_id for item in projected(await backend.read_context(session_id, leaf=leaf))]


async def _messages_before(backend: Backend, session_id: str, after: str) -> list[Entry]:
    return await backend.read_entries(session_id, kind="message", after=after, newest_first=True, limit=3)


async def _end_ids(backend: Backend, session_id: str, leaf: str, limit: int) -> list[str]:
    return ids_of(entries_of(await backend.read_path_end(session_id, limit, leaf=leaf)))


async def _context_end(backend: Backend, session_id: str, leaf: str, limit: int) -> list[object]:
    return [(item.entry_id, item.data) for item in (await backend.read_context_end(session_id, limit, leaf=leaf)).items]


async def _told_of_store(backend: Backend, *, ties: bool) -> object:
    info = await backend.info()
    listed: list[SessionInfo] = []
    cursor = None
    while True:
        page = await backend.list_sessions(scope=None, kind=None, limit=5, cursor=cursor)
        listed += page.sessions
        cursor = page.next_cursor
        if cursor is None:
            await check_conditions(backend, listed)
            if not ties:
                listed.sort(key=lambda session: (-session.updated_us, session.id))
            return info.sessions, info.entries, info.ledger_rows, [session.id for session in listed]


async def _check_reads(backend: Backend, session_id: str) -> None:
    """Check what a store reads against what the entries themselves say."""
    tree = await backend.read_tree(session_id)
    by_id = {entry.id: entry for entry in tree}
    assert len(by_id) == len(tree)
    path = await path_of(backend, session_id)
    _check_is_path(path, by_id)
    context = projected(await backend.read_context(session_id))
    assert [item.data for item in context] == [item.data for item in project(path)]
    assert (await backend.read_messages(session_id)).messages == [item.data for item in context]
    assert await backend.get_entries(session_id, list(by_id)) == tree
    assert await backend.children(session_id, None) == [entry for entry in tree if entry.parent_id is None]
    half = len(tree) // 2 + 1
    first = await backend.read_entries(session_id, limit=half)
    last = await backend.read_entries(session_id, newest_first=True, limit=half)
    assert (first, last) == (tree[:half], tree[::-1][:half])
    for limit in (1, 3, len(path) + 1):
        end = entries_of(await backend.read_path_end(session_id, limit))
        assert end == path[len(path) - len(end) :]
        items = (await backend.read_context_end(session_id, limit)).items
        assert list(items) == context[len(context) - len(items) :]
    assert await backend.match_entry_ids(session_id, "", len(tree) + 1) == sorted(by_id)
    await check_window(backend, session_id, None)
    if path:
        middle = path[len(path) // 2].id
        await check_window(backend, session_id, middle)
        await check_window(backend, session_id, None, middle)
        whole = await backend.read_usage(session_id, None)
        before = await backend.read_usage(session_id, None, leaf=middle)
        after = await backend.read_usage(session_id, middle)
        assert before.usage + after.usage == whole.usage
        assert await backend.is_ancestor(session_id, middle, path[-1].id)


def _check_is_path(path: Sequence[Entry], seen: dict[str, Entry]) -> None:
    parent_id = None
    for depth, entry in enumerate(path):
        assert (entry.parent_id, entry.depth) == (parent_id, depth)
        assert seen[entry.id] == entry
        parent_id = entry.id
