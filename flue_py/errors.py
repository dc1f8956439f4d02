"""Every error this library raises, drawn by what the caller can do about it.

    FlueError
    ├── RetryOrRebase            try again, or read the new state and build on that
    │   ├── LeafConflict         the stored leaf is not the one the call named
    │   ├── RevisionConflict     the session has changed since the revision the call named
    │   ├── FilesChanged         files are not as the session left them, or have to stay
    │   ├── StoreBusy            another process held the database too long      (TimeoutError)
    │   ├── OutcomeUnknown       a commit failed, and may have happened          (ConnectionError)
    │   ├── SummaryFailed        the model gave no summary; nothing was changed
    │   ├── MemoryUnavailable    a server that remembers cannot be asked         (ConnectionError)
    │   ├── SessionInUse         an agent runs in the session
    │   ├── RateLimited          the provider asks to wait                       (ModelError)
    │   ├── ModelUnavailable     it fails, hangs or cannot be reached            (ModelError)
    │   └── ModelAborted         the call was ended before it was answered       (ModelError)
    │       └── AbortedToCompact by a compaction on demand
    ├── FixTheCall               the call itself is wrong; nothing was changed
    │   ├── OnHold               a legal hold is on what was to be deleted or redacted
    │   ├── SessionNotFound                                                      (LookupError)
    │   ├── SessionExists                                                        (ValueError)
    │   ├── EntryNotFound                                                        (LookupError)
    │   ├── ArtifactNotFound                                                     (LookupError)
    │   ├── InvalidEntry                                                         (ValueError)
    │   ├── InvalidArgument                                                      (ValueError)
    │   ├── IdempotencyConflict                                                  (ValueError)
    │   ├── CallConflict         a paid call was reported with other numbers     (ValueError)
    │   ├── AmbiguousId                                                          (LookupError)
    │   ├── TaskDepthExceeded                                                    (ValueError)
    │   ├── BudgetExceeded       less is left than is asked for; nothing was reserved
    │   ├── BudgetNotFound                                                       (LookupError)
    │   ├── ReservationNotFound                                                  (LookupError)
    │   ├── ReservationSettled   committed, released or expired before           (ValueError)
    │   ├── UnreadableFile       a file is not what it was said to be, or odd    (ValueError)
    │   ├── WrongEventLoop       the store was opened in another event loop      (RuntimeError)
    │   ├── WrongProcess         the store was opened before this process forked (RuntimeError)
    │   ├── StoreClosed                                                          (RuntimeError)
    │   ├── ContextOverflow      more than the model's window holds: compact     (ModelError)
    │   └── ModelRefused         the model or its provider will not answer this  (ModelError)
    ├── FixTheStore              the database needs attention
    │   ├── FormatTooNew         written by a newer flue_py
    │   ├── NotAStore            the file is something else
    │   ├── WrongKey             its key was not given, or another one           (ValueError)
    │   ├── StoreUnavailable     cannot be opened, read or written               (OSError)
    │   └── CorruptStore         what is stored contradicts itself
    └── FixTheSetup
        ├── InvalidPrices        prices that cannot be read                      (ValueError)
        ├── ModelDenied          the key, the account or the model's name        (ModelError)
        └── MissingExtra         an optional dependency is not installed         (ImportError)

`ModelError` is a FlueError beside the branches: the errors of a call of a model, whichever branch they are on.

Each message names the event, the id and the remedy. The cause, where there is one, is chained.

`StoreWarning` is a warning (UserWarning): all is well, but not as it could be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

__all__ = [
    "AbortedToCompact", "AmbiguousId", "AnsweredCall", "ArtifactNotFound", "BudgetExceeded", "BudgetNotFound",
    "CallConflict", "ContextOverflow", "CorruptStore", "EntryNotFound", "FilesChanged", "FixTheCall", "FixTheSetup",
    "FixTheStore", "FlueError", "FormatTooNew", "HistoryPutBack", "IdempotencyConflict", "InvalidArgument",
    "InvalidEntry", "InvalidPrices", "LeafConflict", "MemoryUnavailable", "MissingExtra", "ModelAborted",
    "ModelDenied", "ModelError", "ModelRefused", "ModelUnavailable", "NotAStore", "OnHold", "OutcomeUnknown",
    "RateLimited", "ReservationNotFound", "ReservationSettled", "RetryOrRebase", "RevisionConflict", "SecretRefused",
    "SessionExists", "SessionInUse", "SessionNotFound", "StoreBusy", "StoreClosed", "StoreUnavailable",
    "StoreWarning", "SummaryFailed", "TaskDepthExceeded", "UnreadableFile", "WrongEventLoop", "WrongKey",
    "WrongProcess",
]  # fmt: skip

_SHOWN_CHARACTERS = 200
_SHOWN_BITS = 13_000


def shown(value: object) -> str:
    """Return a value as an error message shows it: its repr, cut where it is long; its type where it has none.

    Never raises: a wrong argument may be an integer with too many digits to print, a list that contains itself ten
    thousand levels down, or an object whose ``__repr__`` fails.
    """
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value[:_SHOWN_CHARACTERS] if type(value) in (str, bytes) else value)  # type: ignore[index]
    except Exception:  # noqa: BLE001 - whatever its __repr__ raises
        return f"a {type(value).__name__}"
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[:_SHOWN_CHARACTERS]}..."


class FlueError(Exception):
    """The root of every error this library raises.

    ``operation`` is the number, from 0, of the operation of a batch (`Store.atomic`) that raised it; None outside one.
    """

    operation: int | None = None


class RetryOrRebase(FlueError):
    """Another writer, a lock, a connection or a model was in the way: retry, or refresh and build on the new state."""


class FixTheCall(FlueError):
    """The call cannot succeed as it was made. Nothing was changed."""


class FixTheStore(FlueError):
    """The database itself needs attention."""


class FixTheSetup(FlueError):
    """The installation lacks something."""


class ModelError(FlueError):
    """A call of a model failed. Nothing was stored; the error's branch says how to go on.

    ``provider`` and ``model`` are those that were called, None if that is not known. ``call`` is the usage of the
    failed call, if the provider reported it all the same: an object with ``provider``, ``model`` and ``callId``, as the
    ledger takes them.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        model: str | None = None,
        call: Mapping[str, object] | None = None,
    ) -> None:
        self.provider = provider
        self.model = model
        self.call = call
        super().__init__(message)


class LeafConflict(RetryOrRebase):
    """The leaf this operation builds on is no longer the stored leaf of the session."""

    def __init__(self, session_id: str, expected: str | None, actual: str | None) -> None:
        self.session_id = session_id
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"session {session_id!r}: this operation builds on leaf {shown(expected)}, but the stored leaf "
            f"is {actual!r}; call refresh() and decide again, or append with on_conflict='branch'"
        )


class RevisionConflict(RetryOrRebase):
    """The session has changed since the revision that this operation expects."""

    def __init__(self, session_id: str, expected: int, actual: int) -> None:
        self.session_id = session_id
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"session {session_id!r}: this operation expects revision {expected}, but the stored one is {actual}; "
            "read what has changed since (changes() or refresh()) and decide again"
        )


class FilesChanged(RetryOrRebase):
    """Files cannot be restored as asked; ``names`` are those that were changed by other means, or have to stay."""

    def __init__(self, names: Sequence[str], detail: str) -> None:
        self.names = tuple(names)
        super().__init__(f"{', '.join(map(shown, self.names[:5]))}{', ...' if len(names) > 5 else ''}: {detail}")


class StoreBusy(RetryOrRebase, TimeoutError):
    """Another process kept the database locked for longer than the busy budget."""


class OutcomeUnknown(RetryOrRebase, ConnectionError):
    """A commit failed, or its connection was lost: whether the operation happened is not known.

    On SQLite that is a disk that could not sync a write, or files that vanished at that very moment. Look
    (``refresh()``) before repeating it, or give operations an idempotency key: then a repetition is done once.
    """


class AnsweredCall(Protocol):
    """A call to a summarizer that was answered: its purpose, and the usage that it reported, as JSON."""

    @property
    def kind(self) -> str: ...

    @property
    def usage(self) -> Mapping[str, object] | None: ...


class SummaryFailed(RetryOrRebase):
    """A call to a summarizer failed, or its answer has no text. Nothing was changed; the call's own error is the cause.

    ``kind`` is the call that failed (the earlier one of two), ``answered`` the calls that were answered all the same:
    they have been paid for.
    """

    def __init__(self, kind: str, reason: str, answered: Sequence[AnsweredCall] = ()) -> None:
        self.kind = kind
        self.reason = reason
        self.answered = tuple(answered)
        super().__init__(f"the {kind} summary failed: {reason}; nothing was changed, compact again or go on as is")

    @property
    def retry_after(self) -> float | None:
        """The number of seconds that the provider asks to wait, if its rate limit was the reason and it says so."""
        return self.__cause__.retry_after if isinstance(self.__cause__, RateLimited) else None


class RateLimited(RetryOrRebase, ModelError):
    """The provider takes no further call for a while.

    ``retry_after`` is the number of seconds that it asks to wait, None if it does not say.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        model: str | None = None,
        call: Mapping[str, object] | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.retry_after = retry_after
        super().__init__(message, provider=provider, model=model, call=call)


class ModelUnavailable(RetryOrRebase, ModelError):
    """The provider failed, could not be reached, did not answer in time, or its answer broke off."""


class MemoryUnavailable(RetryOrRebase, ConnectionError):
    """A server that remembers for agents could not be reached, did not answer in time, or not as it should."""


class SessionInUse(RetryOrRebase):
    """An agent runs in this session, in another process or task. Run again when it has ended."""

    def __init__(self, session_id: str, detail: str) -> None:
        super().__init__(f"session {session_id!r}: {detail}")
        self.session_id = session_id


class ModelAborted(RetryOrRebase, ModelError):
    """The call was ended, by its caller or on the way, before the model had answered."""


class AbortedToCompact(ModelAborted):
    """The call was ended by a compaction on demand, which comes first. What was asked stays in the session.

    ``call`` is its cost, if that is known: it is in the ledger by then.
    """


class SessionNotFound(FixTheCall, LookupError):
    """No such session, or it has been deleted."""

    def __init__(self, session: str, *, detail: str | None = None) -> None:
        self.session = session
        super().__init__(
            detail or f"session {shown(session)} does not exist or has been deleted; create it, or list_sessions()"
        )


class SessionExists(FixTheCall, ValueError):
    """A session with this key or id is already there."""

    def __init__(self, session: str, *, detail: str | None = None) -> None:
        self.session = session
        super().__init__(
            detail or f"session {shown(session)} already exists; open it with mode='get' or 'get_or_create'"
        )


class EntryNotFound(FixTheCall, LookupError):
    """The session does not see an entry with this id."""

    def __init__(self, session_id: str, entry_id: str, *, detail: str | None = None) -> None:
        self.session_id = session_id
        self.entry_id = entry_id
        super().__init__(
            detail
            or f"session {session_id!r} sees no entry {shown(entry_id)}; it may belong to another session, "
            "have been deleted, or have been retracted"
        )


class ArtifactNotFound(FixTheCall, LookupError):
    """The session sees no artifact with this id."""

    def __init__(self, session_id: str, artifact_id: str) -> None:
        self.session_id = session_id
        self.artifact_id = artifact_id
        super().__init__(f"session {session_id!r} sees no artifact {shown(artifact_id)}; look at artifacts()")


class InvalidEntry(FixTheCall, ValueError):
    """An entry or message that cannot be stored; the message names the field."""


class InvalidArgument(FixTheCall, ValueError):
    """An argument that the call does not accept."""


class OnHold(FixTheCall):
    """A legal hold is on what was to be deleted or redacted. ``holds`` are named as ``despite_holds`` takes them."""

    def __init__(self, holds: Sequence[str], detail: str) -> None:
        self.holds = tuple(holds)
        super().__init__(
            f"{detail}; nothing was deleted: lift it (flue-py hold --lift, Store.lift_hold), or name it "
            f"(--despite-hold {holds[0]}, despite_holds=[...])"
        )


class SecretRefused(FixTheCall, ValueError):
    """A value that was to be written holds a secret, by ``rule``, at ``place``; it never shows the text."""

    def __init__(self, place: str, rule: str, *, is_name: bool = False) -> None:
        self.place = shown(place)[1:-1]
        self.rule = rule
        instead = ": no mark can stand for a name" if is_name else ", or open the store with secrets='mask'"
        super().__init__(
            f"{self.place}: holds a secret, by the rule {rule!r}; nothing was written: take it out{instead}"
        )


class IdempotencyConflict(FixTheCall, ValueError):
    """The idempotency key was used before with other content."""

    def __init__(self, session_id: str, key: str) -> None:
        self.session_id = session_id
        self.key = key
        super().__init__(
            f"session {session_id!r}: idempotency key {key!r} was already used for an operation with other "
            "content; use a new key for a new operation"
        )


class CallConflict(FixTheCall, ValueError):
    """A paid call was reported before, with other numbers."""

    def __init__(self, provider: str, call_id: str, differences: tuple[str, ...]) -> None:
        self.provider = provider
        self.call_id = call_id
        self.differences = differences
        of = f" of provider {shown(provider)}" if provider else ""
        super().__init__(
            f"paid call {shown(call_id)}{of} was reported before with other numbers ({', '.join(differences)}); "
            "a call has one set of numbers: report the same, or give this call an id of its own"
        )


class AmbiguousId(FixTheCall, LookupError):
    """An id prefix that fits more than one id; or an entry's id, which ``matches`` several sessions that are no kin."""

    def __init__(self, prefix: str, matches: tuple[str, ...], message: str | None = None) -> None:
        self.prefix = prefix
        self.matches = matches
        fits = f"{shown(prefix)} fits several ids ({', '.join(matches[:5])}...); give more characters"
        super().__init__(message or fits)


class TaskDepthExceeded(FixTheCall, ValueError):
    """A task session would be nested deeper than allowed."""


class BudgetExceeded(FixTheCall):
    """A budget has less left than is asked for. Nothing was reserved, and the session goes on when it is raised.

    Amounts are whole tokens, or picodollars, as ``unit`` says. ``ends_at`` is when its period ends, None without one.
    """

    def __init__(
        self,
        message: str,
        *,
        budget_id: str,
        session_id: str,
        unit: str,
        allowed: int,
        spent: int,
        reserved: int,
        asked: int,
        ends_at: datetime | None = None,
    ) -> None:
        self.budget_id = budget_id
        self.session_id = session_id
        self.unit = unit
        self.allowed = allowed
        self.spent = spent
        self.reserved = reserved
        self.asked = asked
        self.ends_at = ends_at
        super().__init__(message)

    @property
    def left(self) -> int:
        """The amount that could still be reserved; negative if more was spent than is allowed."""
        return self.allowed - self.spent - self.reserved


class BudgetNotFound(FixTheCall, LookupError):
    """No such budget, or it has been deleted."""

    def __init__(self, budget_id: str) -> None:
        self.budget_id = budget_id
        super().__init__(f"budget {shown(budget_id)} does not exist or has been deleted; look at list_budgets()")


class ReservationNotFound(FixTheCall, LookupError):
    """No such reservation, or the budgets that it was made in have been deleted."""

    def __init__(self, reservation_id: str) -> None:
        self.reservation_id = reservation_id
        super().__init__(
            f"reservation {shown(reservation_id)} does not exist in this store, or its budgets have been deleted; "
            "there is nothing to settle"
        )


class ReservationSettled(FixTheCall, ValueError):
    """The reservation was committed, released or has expired before. Nothing was changed."""

    def __init__(self, message: str, reservation_id: str, state: str) -> None:
        self.reservation_id = reservation_id
        self.state = state
        super().__init__(message)


class UnreadableFile(FixTheCall, ValueError):
    """A file that is not of the format it was said to be, is no plain file, is too large, or may not be read."""


class StoreClosed(FixTheCall, RuntimeError):
    """The store has been closed."""


class WrongEventLoop(FixTheCall, RuntimeError):
    """The store belongs to the event loop that opened it, or its database has no driver for this loop."""


class WrongProcess(FixTheCall, RuntimeError):
    """The store was opened before ``os.fork()`` and belongs to the process that opened it."""


class ContextOverflow(FixTheCall, ModelError):
    """The request, or the request and its answer, are more than the context window of the model holds.

    With ``is_malformed`` it is no size that the provider refuses: a call or a result stands alone, or its reasoning has
    no room. A compaction helps neither, and fewer results of tools may. ``tokens`` is the size of the request and
    ``window`` that of the window, in tokens by the provider's own count; None where its error does not say.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        model: str | None = None,
        call: Mapping[str, object] | None = None,
        tokens: int | None = None,
        window: int | None = None,
        is_malformed: bool = False,
    ) -> None:
        self.is_malformed = is_malformed
        self.tokens = tokens
        self.window = window
        super().__init__(message, provider=provider, model=model, call=call)


class ModelRefused(FixTheCall, ModelError):
    """The model, or its provider, does not answer this request, for its content or its form."""


class FormatTooNew(FixTheStore):
    """The database was written by a newer flue_py; nothing was read or written."""


class NotAStore(FixTheStore):
    """The file is not a flue_py database."""


class WrongKey(FixTheStore, ValueError):
    """The store needs a key that was not given, or has none; the message names it by its fingerprint."""


class StoreUnavailable(FixTheStore, OSError):
    """The database cannot be opened, read or written."""


class CorruptStore(FixTheStore):
    """What is stored contradicts itself; run verify(), restore a backup, or rescue the readable rows by salvage.

    ``entry_id`` is the entry that is damaged; None if it is another row.
    """

    entry_id: str | None = None


class HistoryPutBack(FixTheStore):
    """A session is not as its witness saw it last: an older copy of the store was put in its place."""

    def __init__(self, session_id: str, seen: int, present: int | None) -> None:
        self.session_id, self.seen, self.present = session_id, seen, present
        state = "it is not there" if present is None else f"it is at revision {present}"
        if present is not None and present >= seen:
            state += " of another history"
        super().__init__(
            f"session {session_id!r}: its witness saw revision {seen}, and {state}: an older copy of the store was put "
            f"back. If that was done on purpose, open the store once with accept=[{session_id!r}]; else restore it"
        )


class MissingExtra(FixTheSetup, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, needed_for: str, *, detail: str | None = None) -> None:
        self.extra = extra
        super().__init__(detail or f"{needed_for} needs an optional dependency: pip install 'flue-py[{extra}]'")


class ModelDenied(FixTheSetup, ModelError):
    """The provider does not accept the key, the account or its balance, or the name of the model."""


class InvalidPrices(FixTheSetup, ValueError):
    """Invalid prices, or a pricing file that cannot be read; the message names the line or the model."""


class StoreWarning(UserWarning):
    """The store works, and keeps every promise, but not as well as it does elsewhere."""


MISMATCH = "does not match its digest: it was damaged, or changed by other means"


def damaged_entry(entry_id: str, problem: str, session_id: str | None = None) -> CorruptStore:
    """Return the error for an entry that is not as it was appended."""
    where = "" if session_id is None else f"session {session_id!r}: "
    error = CorruptStore(
        f"{where}entry {entry_id!r} {problem}; verify() names every such entry: restore a backup, or "
        "rescue what is readable by salvage"
    )
    error.entry_id = entry_id
    return error


def damaged_rows(session_id: object) -> CorruptStore:
    """Return the error for a session whose log, marks, task links or calls are not as they were written."""
    return CorruptStore(
        f"session {session_id!r}: a row of its log, marks, task links or calls {MISMATCH.replace('digest', 'seal')};"
        " verify() names every such session: restore a backup, or rescue what is readable by salvage"
    )


def damaged_path(session_id: str, count: int, expected: int) -> CorruptStore:
    """Return the error for a path, or a part of it, that has not as many entries as its places say."""
    return CorruptStore(
        f"session {session_id!r}: {count} of its entries are there, not {expected}; verify() names where: restore a "
        "backup, or rescue what is readable by salvage"
    )


def damaged_session(session_id: object) -> CorruptStore:
    """Return the error for a session of which the row is not as it was written."""
    return CorruptStore(
        f"session {session_id!r}: its row does not match its head: it was damaged, or changed by other means; verify() "
        "names every such session: restore a backup, or rescue what is readable by salvage"
    )
