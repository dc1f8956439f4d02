"""The exit code of each error, for scripts. They are promised: docs/reference/README.md."""

from __future__ import annotations

import re

from flue_py import errors

# ---------------------------------------------------------------------------------------------------------------------
# The exit code of each error, for scripts. They are promised: docs/reference/README.md.

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


# ---------------------------------------------------------------------------------------------------------------------
# Error messages of the library, with commands in place of Python calls.

_PHRASES = {
    "with again=True": "with --again",
    "create it, or list_sessions()": "flue-py sessions lists those that are there",
    "open it with mode='get' or 'get_or_create'": "choose another, or use the one that is there",
    "name its scope, or open it with mode='get_or_create'": "flue-py sessions lists those that are there",
    "open it with mode='create'": "choose one that is there",
    "open it with mode='get'": "choose another",
    "call refresh() and decide again, or append with on_conflict='branch'": "look at it, and run the command again",
    "read what has changed since (changes() or refresh()) and decide again": "look at it, and run the command again",
    "refresh() and look before you repeat it, or use an idempotency_key": "look at it before you repeat the command",
    "or open with durability='normal'": "or ask who runs the server",
    "exclude() the copy": "use flue-py exclude on the copy",
}
_COMMANDS = {
    "copy_store": "copy",
    "list_sessions": "sessions",
    "list_budgets": "budget list",
    "set_budget": "budget set",
    "delete_budget": "budget rm",
    "forget": "memory rm",
    "remember": "memory add",
    "delete_session_tree": "rm",
    "move_leaf": "move",
    "go_back": "undo --to",
    "rewind": "move --turns",
    "uncompact": "compact --undo",
    "include": "exclude --clear",
    "unpin": "pin --clear",
    "get_tree": "tree",
    "loss_report": "loss",
    "read_bundle": "unbundle",
    "write_bundle": "bundle",
    "import_file": "import",
    "set_label": "label",
}
_SAME = frozenset(
    ["verify", "salvage", "backup", "undo", "redo", "exclude", "pin", "fork", "migrate", "compact", "recall"]
)
_CALL = re.compile(r"\b(?:store\.|session\.|flue_py\.|await )*([a-z_]+)\(\)")


def in_commands(message: str) -> str:
    """Return an error's message with commands in the place of the calls in it."""
    for phrase, command in _PHRASES.items():
        message = message.replace(phrase, command)
    return _CALL.sub(lambda call: _command(call[1]), message)


def _command(call: str) -> str:
    if call in _SAME:
        return f"flue-py {call}"
    return f"flue-py {_COMMANDS[call]}" if call in _COMMANDS else call.replace("_", " ")
