"""The answers of the HTTP API, as its OpenAPI document describes them; `flue_py.render.views` makes most of them."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

Text: TypeAlias = str | None


class SessionRow(Struct, rename="camel"):
    """A session: ``spent`` is in US dollars, null if unknown."""

    id: str
    name: str
    key: Text
    title: Text
    scope: str
    kind: str
    leaf_id: Text
    revision: int
    cwd: Text
    entry_count: int
    message_count: int
    spent_tokens: int | None
    spent: Text
    metadata: dict[str, Any]
    created_at: str
    active_at: str
    updated_at: str


class Sessions(Struct, rename="camel"):
    """A page of sessions; ``nextCursor`` is null on the last."""

    sessions: list[SessionRow]
    next_cursor: Text
    damaged: list[str]


class EntryRow(Struct, rename="camel"):
    """An entry, with its payload."""

    id: str
    parent_id: Text
    session_id: Text
    kind: str
    role: Text
    source: Text
    depth: int
    created_at: str
    payload: Any


class Entries(Struct, rename="camel"):
    """A page of entries; ``nextAfter`` is the ``after`` of the next, null on the last."""

    entries: list[EntryRow]
    next_after: Text


class AppendedRow(Struct, rename="camel"):
    """What was appended; ``replayed`` by an earlier request with the same key."""

    session_id: str
    entry_ids: list[str]
    parent_id: Text
    leaf_id: Text
    revision: int
    on_branch: bool
    replayed: bool
    surrogates_replaced: int
    oddities: list[str]


class MovedRow(Struct, rename="camel"):
    """Where the leaf is now; ``moved`` is false if there was nothing to do."""

    session_id: str
    moved: bool
    reason: Text
    from_id: Text
    leaf_id: Text


class MarkedRow(Struct, rename="camel"):
    """The entries that have the mark: of a pin, also the tool call or the results that belong to one."""

    session_id: str
    entry_ids: list[str]


class DeletionRow(Struct, rename="camel"):
    """What was deleted, or would be."""

    dry_run: bool
    session_ids: list[str]
    entries_deleted: int
    entries_kept: int


class Context(Struct, rename="camel"):
    """The messages that the model sees at a leaf."""

    messages: list[dict[str, Any]]
    leaf_id: Text
    revision: int


class RequestRow(Struct, rename="camel"):
    """The request of a provider, and what was left out or changed for it."""

    target: str
    body: dict[str, Any]
    repairs: list[dict[str, Any]]
    is_broken: bool


class PlanRow(Struct, rename="camel"):
    """What a compaction would summarize; ``reason`` says why nothing."""

    reason: Text
    mode: str
    tokens_before: int
    tokens_staying: int
    notes: list[str]
    leaving: list[str]


class WindowRow(Struct, rename="camel"):
    """Tokens and US dollars of the calls of a path; null is unknown."""

    calls: int
    unpriced_calls: int
    unknown_calls: int
    paid_tokens: int | None
    cost: dict[str, Text]
    on_path: bool


class UsageRows(Struct, rename="camel"):
    """The rows of the ledger by group, and their total."""

    total: dict[str, Any]
    rows: list[dict[str, Any]]
    on_path: bool


class Search(Struct, rename="camel"):
    """The hits, and what was searched."""

    words: str
    how: str
    hits: list[dict[str, Any]]
    has_more: bool
    searched: dict[str, Any]
    widen: list[str]
    suggestions: list[str]
    damaged: list[str]


class BudgetRow(Struct, rename="camel"):
    """A budget: whole tokens, or US dollars as texts."""

    id: str
    covers: str
    session_id: Text
    scope: Text
    unit: str
    allowed: int | str
    spent: int | Text
    reserved: int | str
    left: int | Text


class Budgets(Struct, rename="camel"):
    """A page of budgets; ``nextAfter`` is the ``after`` of the next, null on the last."""

    budgets: list[BudgetRow]
    next_after: Text


class ConversationRow(Struct):
    """A conversation of OpenAI's form; ``created_at`` is in seconds since 1970."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class ConversationDeletion(Struct):
    """The conversation that was deleted."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: bool


class ConversationItem(Struct):
    """An item of OpenAI's form, with the fields of its type."""

    id: str
    type: str


class Items(Struct):
    """A page of items; ``last_id`` is the ``after`` of the next."""

    object: Literal["list"]
    data: list[ConversationItem]
    first_id: Text
    last_id: Text
    has_more: bool


class ErrorFields(Struct):
    """The fields of an error: ``code`` is its name, ``param`` the parameter or the field that is wrong."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: Text
    code: str


class ConversationError(Struct):
    """An error of OpenAI's form."""

    error: ErrorFields


class Problem(Struct, rename="camel"):
    """An error (RFC 9457). ``code`` is the name of the error; nothing was changed unless it says otherwise."""

    type: str
    title: str
    status: int
    detail: str
    code: str
