"""The exit code of each error, for scripts. They are promised: docs/reference/README.md."""

from __future__ import annotations

from flue_py import errors

FAILED = 1
NOT_FOUND = 4
CHANGED = 5
TAKEN = 6
BUSY = 7
REFUSED = 8
BAD_INPUT = 9

_CODES: tuple[tuple[int, tuple[type[errors.FlueError], ...]], ...] = (
    (CHANGED, (errors.LeafConflict, errors.RevisionConflict)),
    (TAKEN, (errors.SessionExists, errors.IdempotencyConflict, errors.CallConflict, errors.ReservationSettled)),
    (REFUSED, (errors.BudgetExceeded, errors.TaskDepthExceeded, errors.ModelRefused, errors.ContextOverflow)),
    (BUSY, (errors.RetryOrRebase,)),
    (
        NOT_FOUND,
        (
            errors.SessionNotFound,
            errors.EntryNotFound,
            errors.ArtifactNotFound,
            errors.BudgetNotFound,
            errors.ReservationNotFound,
            errors.AmbiguousId,
        ),
    ),
    (BAD_INPUT, (errors.InvalidEntry,)),
)

CODES = tuple(code for code, _ in _CODES)


def exit_code_of(error: errors.FlueError) -> int:
    """Return the exit code of a command that this error ended."""
    return next((code for code, kinds in _CODES if isinstance(error, kinds)), FAILED)
