"""The public `Session`: its methods stand in a file for each group."""

from __future__ import annotations

from flue_py.sessions.compact import Fitting, Merging, Navigating, Ranging, Recalling, Weighing
from flue_py.sessions.handle import Editing, Watching
from flue_py.sessions.money import Budgeting, Usage
from flue_py.sessions.read import Measuring, Prefixing
from flue_py.sessions.request import Handing, Reporting
from flue_py.sessions.write import Appending, Artifacts, Excluding, Forking, Moving, Telling


class Session(
    Reporting,
    Handing,
    Fitting,
    Weighing,
    Ranging,
    Recalling,
    Artifacts,
    Telling,
    Navigating,
    Merging,
    Appending,
    Moving,
    Forking,
    Editing,
    Excluding,
    Measuring,
    Prefixing,
    Usage,
    Budgeting,
    Watching,
):
    """A handle on one session. Handles are made by a `Store`, by `fork` and by `create_task`.

    **Order.** Calls on one handle run one after the other, in the order they were made, and chain: what an
    append or a move builds on (``leaf_id``) is looked up when it runs, not when it is called. Conflicts
    (`LeafConflict`) therefore arise between handles, and between processes, only; call `refresh` after one.

    **What it builds on.** ``leaf_id`` is the leaf after this handle's last write or `refresh`, or that of the context
    it last read to have it answered: `build_context`, `build_context_entries`, `request` and `attempts` without
    ``leaf=`` take over the stored leaf. Every other read leaves it alone, and so do these with ``leaf=``. After
    an append that landed on a sibling branch, ``leaf_id`` is the end of that branch, so that the rest of a turn
    can land there too; ``leaf=session.leaf_id`` reads there, `refresh` goes back.

    **What was seen.** Every write takes ``expected_leaf`` and ``expected_revision``, what the caller has seen of the
    session, and compares them with what is stored in the transaction that writes: `RevisionConflict`, `LeafConflict`.
    Left out, the leaf is this handle's for what builds on the leaf (appends, moves, undo, exclusions), and is not
    compared by anything else; so is the revision. What was done before under an ``idempotency_key`` is returned first.

    **Cancellation.** A commit that has begun is finished, and the handle brought up to date, before the
    cancellation is raised. A call that is still waiting for its turn has no effect.

    Every method raises `SessionNotFound` once the session has been deleted, also if its key has been used
    again, and `StoreClosed` once the store is closed. What raises has changed nothing.
    """

    __slots__ = ()
