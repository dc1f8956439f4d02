"""Compactions of a session, and its branches."""

from __future__ import annotations

import os
import platform
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache, partial
from inspect import isawaitable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, Unpack, cast

from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import force_setattr, replace

from flue_py import prices
from flue_py.core import context
from flue_py.core.context import ContextEntry
from flue_py.core.entries import SHELL, Entry, PathSettings
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION, MESSAGE, is_answer, message_text
from flue_py.core.operations import UpdateSession
from flue_py.core.sessions import GUARD_KEY, STORED, Appended, LeafChoice, Note, ReadStamp, Seen
from flue_py.core.usage import PaidCall, UsageTotals
from flue_py.errors import EntryNotFound, InvalidArgument, LeafConflict, RevisionConflict, SummaryFailed, shown
from flue_py.lazy import lazy_module
from flue_py.prices import CacheRules, CallSize, EditKind, EditPlan, ModelRates
from flue_py.sessions import handle
from flue_py.sessions.handle import Group, KnownContext
from flue_py.sessions.marks import Marks
from flue_py.sessions.money import BookingAsker, Patience, Spending, book, model_of
from flue_py.sessions.request import Context
from flue_py.sessions.write import Writing, checked_call_id, pins_in, tool_result

if TYPE_CHECKING:
    from flue_py.compaction import blocks, facts, modes, plan
    from flue_py.compaction import material as hooks
    from flue_py.compaction import settings as policy
    from flue_py.compaction.blocks import Block
    from flue_py.compaction.facts import LossReport, Recalled, StandsFor
    from flue_py.compaction.material import BeforeCompaction, Cancelled, HookAnswer, HookSummary, LastRequest
    from flue_py.compaction.modes import Made, Mode
    from flue_py.compaction.plan import (
        CompactionResult,
        Fitted,
        NoCompaction,
        NotCompacted,
        SessionCompactionPlan,
        Uncompacted,
    )
    from flue_py.compaction.settings import CompactionSettings
    from flue_py.context import pipeline, sources, tokens
    from flue_py.context.tokens import ModelCounter
    from flue_py.core.model import Model
else:
    # Most sessions are never compacted, and a command should start without these.
    blocks = lazy_module("flue_py.compaction.blocks")
    facts = lazy_module("flue_py.compaction.facts")
    hooks = lazy_module("flue_py.compaction.material")
    modes = lazy_module("flue_py.compaction.modes")
    plan = lazy_module("flue_py.compaction.plan")
    policy = lazy_module("flue_py.compaction.settings")
    pipeline = lazy_module("flue_py.context.pipeline")
    sources = lazy_module("flue_py.context.sources")
    tokens = lazy_module("flue_py.context.tokens")


bound = lazy_module("flue_py.providers.request")


_HOUR = 3_600


def _was_given_by(entry: Entry, model: str | None, provider: str | None) -> bool:
    if entry.kind != MESSAGE or not is_answer(entry.kind, entry.role) or entry.source == SHELL:
        return False
    fields = entry.fields
    by, at = fields.get("model"), fields.get("provider")
    if fields.get("stopReason") == "error" or context.provenance_of(entry) is not None:
        return False
    if isinstance(by, str) and model is not None and not context.is_same_model(by, model):
        return False
    # Each provider has a cache of its own, also where several serve the same model.
    return not (isinstance(at, str) and at and provider and at.lower() != provider.lower())


def tokens_around(system: str | None, tools: Sequence[Mapping[str, object]] | None, counter: ModelCounter) -> int:
    """Return how many tokens the system prompt and the tools of a request take. O(size) the first time."""
    texts = [*([system] if system else ()), *tokens.texts_of(tools or ())]
    return tokens.ENTRY_COUNTS.tally_texts(texts, counter).tokens


def why_not_the_same(model: Model, settings: PathSettings) -> str | None:
    """Return why a model cannot read the cache of another one; None if it is the one of the session."""
    if settings.model is None:
        return "the model of the session is not known"
    if not context.is_same_model(model.name, settings.model):
        return f"the session's model is {settings.model}, and {model.name} is asked"
    if model.provider and settings.provider and model.provider.lower() != settings.provider.lower():
        return f"the session's provider is {settings.provider}, and {model.provider} is asked"
    return None


Planned: TypeAlias = "SessionCompactionPlan | NoCompaction"
Finding: TypeAlias = (
    "Callable[[KnownContext, CompactionSettings, Sequence[str], Sequence[int], frozenset[str]], Planned]"
)


class Basis(Frozen):
    """The basis of a compaction: the context it was planned on, and the plan or why there is none.

    ``window`` is how many tokens the messages may take and the next answer: less than the window of the model by the
    system prompt and the tools.
    """

    stamp: ReadStamp
    items: Sequence[ContextEntry]
    latest: Entry | None
    mode: Mode
    settings: CompactionSettings
    window: int | None
    tasks: tuple[str, ...]
    counter: ModelCounter
    tokens_before: int
    tokens_leaving: int
    tokens_staying: int
    planned: Planned

    @property
    def leaf(self) -> str | None:
        """The leaf of the context."""
        return self.stamp.leaf_id

    @property
    def notes(self) -> tuple[str, ...]:
        """The differences of the plan from the request, in whole sentences."""
        if not isinstance(self.planned, plan.RangePlan) or not self.planned.is_widened:
            return ()
        first, last = self.planned.first_entry_id, self.planned.last_entry_id
        return (f"the range is that from {first!r} to {last!r}: no call is separated from its results",)

    def nothing(self, reason: NotCompacted) -> CompactionResult:
        """Return the result of having made nothing."""
        planned = self.planned if isinstance(self.planned, plan.SessionCompactionPlan) else None
        return plan.CompactionResult(
            reason,
            self.mode.name,
            self.tokens_before,
            self.tokens_staying,
            planned=planned,
            counter=self.counter.name,
            notes=self.notes,
        )

    def size_of(self, summary: str) -> int:
        """Return how many tokens a summary takes in the context, which does not show one without a text."""
        return self.counter.count(shown_summary(summary)) if summary else 0

    def made(self, text: Made, calls: tuple[JsonObject, ...]) -> CompactionResult:
        """Return the result of a text, with the reason ``not_smaller`` where it is that."""
        after = self.tokens_staying + self.size_of(text.text)
        return replace(
            self.nothing("not_smaller"),
            reason="not_smaller" if after >= self.tokens_before else None,
            mode=text.mode,
            tokens_after=after,
            summary=text.text,
            calls=calls,
            notes=(*self.notes, *text.notes, *self._above(after)),
        )

    def _above(self, after: int) -> Iterator[str]:
        """Yield a note where the context is large enough for another compaction right after this one."""
        most = after if self.window is None else self.window - self.settings.reserve_tokens
        if after > most:
            staying = f"{self.tokens_staying:,} of them stay word for word"
            yield f"the context still takes {after:,} tokens, {after - most:,} more than leave the reserve: {staying}"

    def material(
        self, planned: SessionCompactionPlan, instructions: str | None, model: Model | None, registered: Block
    ) -> hooks.Material:
        """Return the material of a mode, beside the registered texts."""
        staying = self.tokens_staying + (self.counter.count(said(registered.text)) if registered.text else 0)
        return hooks.Material(
            planned,
            self.counter.count,
            None if planned.previous is None else planned.previous.details,
            instructions,
            self.window,
            None if model is None else model.context_window,
            self.tokens_leaving,
            self.tasks,
            policy.room_for_text(self.settings, self.window, staying),
            summarizer_output=None if model is None else model.max_output_tokens,
        )


def beginning(
    read: KnownContext,
    settings: CompactionSettings,
    pins: Sequence[str],
    counts: Sequence[int],
    live: frozenset[str],
    *,
    most: int | None,
    whole_turns: bool = False,
) -> Planned:
    """Plan to summarize the beginning of the context; at most so many tokens stay, where that can be."""
    planning = partial(
        plan.plan_session_compaction,
        read.items,
        read.compaction,
        counts=counts,
        live=live,
        most=most,
        split=plan.split_exchanges(read.tail, (item.entry_id for item in read.items)),
        whole_turns=whole_turns,
    )
    planned = planning(settings, pinned=pins)
    if not whole_turns or isinstance(planned, plan.NoCompaction):
        return planned
    asked = {
        item.entry_id: count for item, count in zip(read.items, counts, strict=True) if context.begins_turn(item.entry)
    }
    question, size = asked.popitem() if asked else ("", 0)
    if question not in (item.entry_id for item in planned.leaving):
        return planned
    # Beside it the end stays as it is, unless it can be cut further.
    settings = replace(settings, keep_recent_tokens=settings.keep_recent_tokens + size)
    planned = planning(settings, pinned=[*pins, question])
    return planned if isinstance(planned, plan.NoCompaction) else replace(planned, question=question)


def shown_summary(text: str) -> JsonObject:
    """Return the message by which the model sees a summary."""
    return said(context.summary_text("compaction", text))


def said(text: str) -> JsonObject:
    """Return a message of the user that says a text."""
    return {"role": "user", "content": [{"type": "text", "text": text}]}


# ---------------------------------------------------------------------------------------------------------------------
# A claim on a session that ends with its process: who compacts it now.
#
# It names a process so that others of the same machine see whether that still runs, however it ended. Of a process
# elsewhere nobody here can tell; its claim holds for ten minutes, and is renewed before each call of a model.

ELSEWHERE_SECONDS = 600
_SPARE_SECONDS = 60

_under: ContextVar[Claim | None] = ContextVar("_under", default=None)


_held: set[str] = set()


class Claim(Frozen, rename="camel"):
    """Who compacts a session: the process, when that began, and when the claim was made, in seconds since 1970.

    ``cycle`` is the latest compaction then. Two claims of one process differ in ``token``.
    """

    session_id: str
    host: str
    pid: int
    born: str
    token: str
    cycle: str
    at: int

    @classmethod
    def make(cls, session_id: str, cycle: str, at: int) -> Claim:
        """Return a claim of this process, which holds from now on."""
        claim = cls(session_id, _this_host(), os.getpid(), _born(os.getpid()) or "", os.urandom(8).hex(), cycle, at)
        _held.add(claim.token)
        return claim

    def drop(self) -> None:
        """Let go of it. It may be dropped again."""
        _held.discard(self.token)

    def holds(self, session_id: str, now: int) -> bool:
        """Return whether whoever made it is still at work. That of another session, copied with metadata, holds not."""
        if self.session_id != session_id:
            return False
        if self.host != _this_host():
            return now - self.at < ELSEWHERE_SECONDS
        if self.pid == os.getpid():
            return self.token in _held
        born = _born(self.pid)
        return born is not None and born == self.born

    def renewed(self, now: int, seconds: float) -> Claim | None:
        """Return it as it holds elsewhere for so many seconds more; None where it does already."""
        until = now + int(seconds) + _SPARE_SECONDS
        return None if until <= self.at + ELSEWHERE_SECONDS else replace(self, at=max(now, until - ELSEWHERE_SECONDS))

    def to_json(self) -> JsonObject:
        """Return it as JSON."""
        fields: JsonObject = to_builtins(self)
        return fields

    @classmethod
    def from_json(cls, stored: JsonValue) -> Claim | None:
        """Return a stored claim; None if it is none."""
        try:
            return convert(stored, cls)
        except ValidationError:
            return None


@contextmanager
def compacting_under(claim: Claim | None) -> Iterator[None]:
    """Compact under a claim of this process in the block; under none for None."""
    before = _under.set(claim)
    try:
        yield
    finally:
        _under.reset(before)


def claim_of_this_task(session_id: str) -> Claim | None:
    """Return the claim under which this task compacts a session; None for none."""
    claim = _under.get()
    return claim if claim is not None and claim.session_id == session_id else None


@lru_cache(maxsize=1)
def _this_host() -> str:
    """Return a name of this machine, since it was started, and of the processes that see each other on it."""
    try:
        booted = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # Processes in two containers may have the same number.
        return f"{booted} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def _born(pid: int) -> str | None:
    """Return when a process began, "" where the system does not say; None where it does not run."""
    if pid <= 0:
        return None
    if Path("/proc/self/stat").exists():
        return _born_by_proc(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""
    return ""


def _born_by_proc(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name of the program stands in brackets, and may hold blanks and brackets.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


BY = "compaction guard"


def checked_hook(hook: BeforeCompaction | None) -> BeforeCompaction | None:
    """Return a hook, or None, unchanged. Raises `InvalidArgument` for anything but a function, classes included.

    A class would be called like one, and fail with an error of its own after the compaction was planned.
    """
    handle.checked_function(hook, "before_compaction")
    if isinstance(hook, type):
        raise InvalidArgument(f"before_compaction: {shown(hook)} is a class, not a function")
    return hook


async def _of(answer: Awaitable[HookAnswer]) -> HookAnswer:
    return await answer


class Requests(Frozen):
    """The system prompt and tools of a session's requests, and whether these have the context as it is beside them."""

    system: str
    tools: Sequence[Mapping[str, object]]
    is_whole: bool


def _own_window(had: PathSettings, summarizer: Model | None) -> int | None:
    """Return the window that the context has to fit into: that of the session's own model, as far as it is known.

    A summarizer may have a larger or a smaller one, and a caller who names it knows best. O(1) once the published ones
    have been loaded.
    """
    own = None if summarizer is None else summarizer.context_window
    if had.model is None or (summarizer is not None and own and why_not_the_same(summarizer, had) is None):
        return own
    return prices.published_window(had.model, had.provider) or own


class Compact(Frozen):
    """`Session.compact`, with the same arguments; with ``first`` or ``last``, `Session.compactions.compact_range`
    between these.

    ``summary_tokens`` is how long the summary is taken to be that a model would write; None for a usual length. A mode
    that asks no model makes its text, and that is counted: functions that it was given are called. Raises
    `InvalidArgument` for a number below 0, and for anything but an id.
    """

    mode: str | Mode | None = None
    settings: CompactionSettings | None = None
    window: int | None = None
    summary_tokens: int | None = None
    first: str | None = None
    last: str | None = None

    def __post_init__(self) -> None:
        for entry_id, name in ((self.first, "first"), (self.last, "last")):
            handle.optional(handle.checked_id, entry_id, name)
        handle.optional(handle.checked_count, self.window, "window")
        handle.optional(handle.checked_count, self.summary_tokens, "summary_tokens")


class Rewind(Frozen):
    """`Session.rewind` to an entry, or over a number of turns. Raises `InvalidArgument` for both or neither."""

    to: LeafChoice = STORED
    turns: int | None = None

    def __post_init__(self) -> None:
        handle.check_rewind(self.to, self.turns)


class Exclude(Frozen):
    """`Session.marks.exclude` of one or more entries. Raises `InvalidArgument` for no id."""

    entry_ids: Sequence[str]

    def __post_init__(self) -> None:
        ids = (self.entry_ids,) if isinstance(self.entry_ids, str) else self.entry_ids
        force_setattr(self, "entry_ids", tuple(handle.checked_ids(ids)))
        if not self.entry_ids:
            raise InvalidArgument("entry_ids: is empty; name at least one entry")


class Fork(Frozen):
    """`Session.fork`: the first call of a session that begins ``at`` an entry."""

    at: LeafChoice = STORED

    def __post_init__(self) -> None:
        handle.checked_leaf(self.at, "at")


class Resume(Frozen):
    """The next call of the session as it is, for example after a pause, or with another model."""


Edit: TypeAlias = Compact | Rewind | Exclude | Fork | Resume


EditChoice: TypeAlias = Edit | Literal["compact", "rewind", "exclude", "fork", "resume"]


def checked_edit(edit: EditChoice, arguments: Mapping[str, object]) -> Edit:
    """Return an edit, given as one, or by its name and its arguments. Raises `InvalidArgument`."""
    leaves = ("to", "at")  # None is a leaf: the one before the first entry
    arguments = {name: value for name, value in arguments.items() if value is not (STORED if name in leaves else None)}
    if isinstance(edit, Compact | Rewind | Exclude | Fork | Resume):
        if arguments:
            name = next(iter(arguments))
            raise InvalidArgument(f"{name}: is an argument of an edit given by its name, not of {shown(edit)}")
        return edit
    edit_class = _NAMED.get(edit) if isinstance(edit, str) else None
    if edit_class is None:
        raise InvalidArgument(f"edit: {shown(edit)} is not an edit; give one of {', '.join(_NAMED)}")
    try:
        return edit_class(**arguments)
    except TypeError as error:
        raise InvalidArgument(f"edit: {edit_class.__name__}: {error}") from error


_NAMED: dict[EditKind, Callable[..., Edit]] = {
    "compact": Compact,
    "rewind": Rewind,
    "exclude": Exclude,
    "fork": Fork,
    "resume": Resume,
}
_KINDS: dict[object, EditKind] = {edit: name for name, edit in _NAMED.items()}


USUAL_SUMMARY_TOKENS = 2_000
PROMPT_TOKENS = 600


class _Basis(Frozen):
    """The basis on which an edit is priced: the context now, and the request that was sent last, if it may be in a
    cache.

    ``overhead`` are the tokens of the system prompt and the tools.
    """

    leaf: str | None
    now: list[ContextEntry]
    sent: list[ContextEntry]
    is_warm: bool
    counter: ModelCounter
    rules: CacheRules
    model: str | None
    provider: str | None
    overhead: int
    system: str | None
    tools: Sequence[Mapping[str, object]] | None

    def request(self, items: Sequence[ContextEntry], added_tokens: int = 0, *, prefix: int) -> CallSize:
        """Return how a provider reads the request of a context. Its first ``prefix`` items are as they were last sent.

        ``added_tokens`` stand behind its items.
        """
        counts = self.counter.count_entries(items)
        same = self.overhead + sum(counts[:prefix])
        return prices.next_request(self.overhead + sum(counts) + added_tokens, same, self.rules, is_warm=self.is_warm)

    def common_items(self, items: Sequence[ContextEntry]) -> int:
        """Return how many items are as they were last sent."""
        return context.chain_of(items).common_items(context.chain_of(self.sent))

    def is_same(self, items: Sequence[ContextEntry]) -> bool:
        """Return whether these are the items of the context now, byte for byte."""
        return context.chain_of(items).ends == context.chain_of(self.now).ends


class _Edited(Frozen):
    """The context after an edit: its items, and the tokens of a summary after the first ``before`` of them.

    ``summarized`` is how many tokens a model is shown that writes the summary, None where none does. It is shown a
    transcript, unless ``may_align`` and the last request does.
    """

    items: Sequence[ContextEntry]
    summary_tokens: int = 0
    before: int = 0
    summarized: int | None = None
    may_align: bool = False

    def call(self, basis: _Basis, request: CallSize) -> CallSize | None:
        """Return the call that makes the summary; ``request`` is that of the context as it is now."""
        if self.summarized is None:
            return None
        # A summary is asked for by the last request and a message more where its system prompt and tools are known.
        is_known = basis.system is not None and basis.tools is not None
        if self.may_align and is_known and request.cache_read >= modes.LEAST_CACHED * (request.request + PROMPT_TOKENS):
            return prices.summary_call(request, PROMPT_TOKENS, self.summary_tokens)
        return prices.CallSize(input=self.summarized + PROMPT_TOKENS, output=self.summary_tokens)


class Compactions(Group[Writing]):
    """The compactions of a session."""

    async def _last_answer_by(self, model: str | None, provider: str | None, leaf: str | None) -> Entry | None:
        """Return the newest answer of the kept path that a model gave to a request of its own; None for none.

        Not one that another model or provider gave, that was copied from elsewhere, or that failed: its request is in
        no cache, or in another's. The cost of the context.
        """
        tail = (await self._session._read_context(leaf)).tail
        return next((entry for entry in reversed(tail) if _was_given_by(entry, model, provider)), None)

    def _seconds_too_old(self, answer: Entry, model: str | None, provider: str | None) -> tuple[int, int] | None:
        """Return how old an answer is and how long a provider keeps its request, if that is over; else None."""
        lifetime = prices.cache_rules(model, provider).lifetime_seconds
        usage = answer.fields.get("usage")
        # Who asked for writes of an hour has the cache for that long.
        if isinstance(usage, dict) and usage.get("cacheWrite1h"):
            lifetime = max(lifetime, _HOUR)
        age = self._session._pricer.now_us() - answer.created_us
        return (age // 1_000_000, lifetime) if age > lifetime * 1_000_000 else None

    async def _sent_for(self, answer: Entry | None) -> list[ContextEntry]:
        """Return the context that an answer was given to; nothing for None."""
        return [] if answer is None else (await self._session._read_context(answer.parent_id)).items

    async def _last_request(
        self,
        items: Sequence[ContextEntry],
        answer: Entry,
        counter: ModelCounter,
        system: str,
        tools: tuple[JsonObject, ...],
    ) -> LastRequest:
        """Return the request of a context, and how much of it was in the request of an answer on the path."""
        sent = await self._sent_for(answer)

        def counted() -> LastRequest:
            overhead = tokens_around(system, tools, counter)
            counts = counter.count_entries(items)
            common = context.chain_of(items).common_items(context.chain_of(sent))
            cached = overhead + sum(counts[:common])
            # As it was sent: no reasoning behind another beginning, whose signature the provider would refuse.
            messages = tuple(bound.ours_without_stale([item.data for item in items], system, tools))
            return hooks.LastRequest(messages, system, tools, overhead + sum(counts), cached)

        return await self._backend.waiting.call(counted)

    async def _is_claimed_elsewhere(self) -> bool:
        """Return whether somebody else has claimed the session for a compaction that still runs. One point read."""
        self._session._note_row(await self._session._stored_info())
        claim = Claim.from_json(self._guarded.get("claim"))
        return claim is not None and claim.holds(self._session.id, self._session._pricer.now_us() // 1_000_000)

    async def _renew_claim(self, claim: Claim, seconds: float) -> None:
        """Have a claim hold for as long as a call of a model may take.

        One point read, and a write where the claim would end before.
        """
        while True:
            info = await self._session._stored_info()
            self._session._note_row(info)
            stored = Claim.from_json(self._guarded.get("claim"))
            if stored is None or stored.token != claim.token:
                return
            renewed = stored.renewed(self._session._pricer.now_us() // 1_000_000, seconds)
            if renewed is None:
                return
            claimed: JsonObject = {GUARD_KEY: {**self._guarded, "claim": renewed.to_json()}}
            limits = self._session._limits
            change = handle.ChangedMetadata(handle.checked_metadata(claimed, limits), merge=True, limits=limits)
            note, seen = Note(BY, "still compacting: the claim is renewed"), Seen(STORED, info.revision)
            with suppress(RevisionConflict):
                await self._session._do(UpdateSession(self._ref, metadata_text=change, expected=seen, note=note))
                return

    @property
    def _guarded(self) -> JsonObject:
        stored = self._session.metadata.get(GUARD_KEY)
        return {**stored} if isinstance(stored, dict) else {}

    async def _compact(
        self,
        basis: Basis,
        model: Model | None,
        instructions: str | None,
        *,
        dry_run: bool,
        requests: Requests | None = None,
        hook: BeforeCompaction | None = None,
    ) -> CompactionResult:
        """Make the text of a plan, and append it. ``requests`` are those of the session."""
        planned = basis.planned
        if isinstance(planned, plan.NoCompaction):
            return basis.nothing(planned.reason)
        if dry_run:
            return basis.nothing("dry_run")
        claim = claim_of_this_task(self._session.id)
        if claim is None and await self._is_claimed_elsewhere():
            return basis.nothing("elsewhere")
        # It is the claim of this one compaction, and not of one that a model or a hook may begin.
        with compacting_under(None):
            registered = await self._registered_block(basis, basis.leaf)
            material = basis.material(planned, instructions, model, registered)
            answer = None if hook is None else await self._answer_of(hook, basis, material)
            if isinstance(answer, hooks.Cancelled):
                why = f"a hook cancelled it: {answer.reason}" if answer.reason else "a hook cancelled it"
                return replace(basis.nothing("cancelled"), notes=(*basis.notes, why))
            if answer is not None:
                return await self._append_supplied(basis, planned, material, answer)
            asker = None if model is None else self._asker_of(model, basis.settings, claim=claim)
            if model is not None and requests is not None:
                material = await self._aligned(material, basis, model, requests)
            if asker is not None and not isinstance(basis.mode, modes.Window):
                material = replace(material, changes=await self._changes(basis, planned))
            text = await modes.make_text(basis.mode, material, asker)
            if not text.text.strip() and not isinstance(basis.mode, modes.Window):
                raise SummaryFailed(basis.mode.name, "it made no text")
            return await self._append_made(basis, planned, text, () if asker is None else tuple(asker.calls))

    async def _answer_of(
        self, hook: BeforeCompaction, basis: Basis, material: hooks.Material
    ) -> HookSummary | Cancelled | None:
        """Return the answer of a hook, a text as a summary. Raises its errors, and `InvalidArgument` for another."""
        sizes = basis.tokens_before, basis.tokens_staying
        answer = hook(hooks.AboutToCompact(material, basis.mode.name, *sizes, basis.counter.name))
        if isawaitable(answer):
            answer = await self._backend.waiting.ask(partial(_of, answer), None)
        if isinstance(answer, str):
            return hooks.HookSummary(answer)
        if answer is None or isinstance(answer, hooks.HookSummary | hooks.Cancelled):
            return answer
        raise InvalidArgument(
            f"before_compaction: answered {shown(answer)}; return None to go on, Cancelled(reason), a text or a "
            "HookSummary"
        )

    async def _changes(self, basis: Basis, planned: SessionCompactionPlan) -> str:
        """Return the changes that calls on the path have made up to the last item that leaves. O(path)."""
        last = planned.leaving[-1].entry_id
        first = planned.first_entry_id if isinstance(planned, plan.RangePlan) and planned.head is not None else None
        path = await self._session.get_active_path(leaf=basis.leaf)
        ids = [entry.id for entry in path]
        stretch = path[0 if first is None else ids.index(first) : ids.index(last) + 1]

        def read() -> str:
            messages = [ContextEntry(entry) for entry in stretch if entry.kind == MESSAGE]
            return sources.changes_text(sources.changes_of(list(map(pipeline.Item, messages, count())))) or ""

        return await self._backend.waiting.call(read)

    async def _append_supplied(
        self, basis: Basis, planned: SessionCompactionPlan, material: hooks.Material, answer: HookSummary
    ) -> CompactionResult:
        """Append the text that a hook gave. Its paid calls are in the ledger first, also if nothing is appended."""
        calls = [
            (await book(Spending(self._session), call, self._backend.new_entry_id, COMPACTION)).call
            for call in answer.calls
        ]
        if not answer.text.strip():
            raise SummaryFailed(modes.HOOK, "it gave no text")
        text = modes.supplied(material, answer.text, answer.details)
        done = await self._append_made(basis, planned, text, tuple(calls), from_hook=True)
        return replace(done, from_hook=True)

    def _asker_of(
        self, model: Model, settings: CompactionSettings, purpose: str | None = None, claim: Claim | None = None
    ) -> BookingAsker:
        patience = Patience(settings.summary_timeout, settings.rate_limit_wait)
        before = None if claim is None else partial(self._renew_claim, claim)
        waiting, new_id = self._backend.waiting, self._backend.new_entry_id
        return BookingAsker(model, Spending(self._session), waiting, new_id, patience, purpose, before)

    async def plan(
        self,
        *,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        window: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] | None = None,
    ) -> CompactionResult:
        """Return the result of `compact` as a dry run: ``planned`` is None where there is nothing to do.

        Without ``window``, that of the model of the session's latest answer counts, as far as it is known. Raises
        `InvalidArgument`. The cost of the context.
        """
        tokens.checked_request(None, None, system, tools)
        basis = await self._basis_of(mode, settings, window, system=system, tools=tools)
        return basis.nothing(basis.planned.reason if isinstance(basis.planned, plan.NoCompaction) else "dry_run")

    async def uncompact(self, **options: Unpack[handle.SeenOptions]) -> Uncompacted | None:
        """Take the compaction in effect back, so that the model sees the entries behind it again; None if there is
        none.

        One layer is peeled off: an earlier compaction is in effect again, or else none. Entries after the compaction
        stay, after those that come back. One entry is appended; nothing is removed, and `undo` takes it back. Raises
        `LeafConflict`, `RevisionConflict`. The cost of the context that comes back.
        """
        seen = handle.checked_seen(**options)
        await self._session._compare(seen)
        read = await self._session._read_context(STORED)
        peeled = read.compaction
        if peeled is None:
            return None
        earlier = await self.latest(leaf=peeled.parent_id)
        first = (await self._session.get_active_path(leaf=peeled.parent_id))[0].id if earlier is None else ""
        counter = await self._counter_at(read.stamp.leaf_id)
        before = await self._size_of(read.items, counter)
        entry = context.uncompaction(peeled, earlier, first, before)
        base = self._session._leaf_id
        appended = await self._session._append([entry], handle.Landing(Seen(read.stamp.leaf_id, seen.revision)))
        self._session._keep_base(base, read.stamp.leaf_id)
        after = await self._size_of((await self._session._read_context(appended.entry_ids[-1])).items, counter)
        return plan.Uncompacted(peeled.id, None if earlier is None else earlier.id, before, after, appended)

    async def _basis_of(
        self,
        mode: str | Mode | None,
        settings: CompactionSettings | None,
        window: int | None,
        find: Finding | None = None,
        *,
        summarizer: Model | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] | None = None,
    ) -> Basis:
        """Return the basis of a compaction; ``find`` plans the range to summarize, by default the beginning.

        The tokens of ``system`` and ``tools`` are taken off the window. Without one, it is that of the
        session's own model, as far as it is known, and else that of ``summarizer``.
        """
        maker = modes.checked_mode(mode, settings)
        is_whole = settings is None and find is None and maker.needs_model
        settings = policy.WHOLE if is_whole else policy.checked_settings(settings)
        handle.optional(handle.checked_count, window, "window")
        read = await self._session._read_context(STORED)
        async with self._session._turn:
            marks = await self._backend.read_marks(self._ref)
            links = await self._backend.task_links(self._ref)
        pins = pins_in(marks, read.compaction, read.tail)
        had = await self._session._settings_of(read)
        counter = tokens.counter_for(had.model)
        path = await self._path_of_hidden(read, pins)
        is_window = find is None and isinstance(maker, modes.Window)
        texts = await Marks(self._session).registered(leaf=read.stamp.leaf_id) if is_window else ()
        waiting = modes.waited_for(maker)

        def worked_out() -> Basis:
            fitting = _own_window(had, summarizer) if window is None else window
            counts = read.counts.get(counter.name)
            if counts is None:
                counts = read.counts[counter.name] = counter.count_entries(read.items)
            live = modes.live_callers(read.items, links, waiting)
            hidden = modes.Hidden(path, read.compaction, pins, read.items) if path else None
            back = 0 if hidden is None else sum(counter.count_entries(hidden.items))
            overhead = tokens_around(system, tools, counter)
            sized, room = policy.sized_for(settings, fitting, overhead), policy.window_of_messages(fitting, overhead)
            most = policy.most_kept(sized, room)
            if is_window:
                registered = blocks.registered_block(texts, settings, room, lambda text: counter.count(said(text))).text
                budget = room
                if budget is not None and registered:
                    budget = max(budget - counter.count(shown_summary(registered)), 1)
                has_summary = bool(read.items) and read.items[0].kind == COMPACTION
                budgeted = tokens.budget_counts(read.items)
                # None where all of it may stay.
                most = policy.within_budget(settings, counts, budgeted, sized, budget, has_summary=has_summary)
                sized = replace(
                    sized, keep_recent_tokens=most or 0, keep_recent_messages=sized.keep_recent_messages or None
                )
            fits = is_window and most is None
            most = None if most is None else most - back
            planning = find or partial(beginning, most=most, whole_turns=is_window)
            planned = (
                plan.NoCompaction("no_cut_point")
                if fits
                else planning(read, policy.keeping_less(sized, back), pins, counts, live)
            )
            before = sum(counts)
            leaving, staying = 0, before
            if isinstance(planned, plan.SessionCompactionPlan):
                leaving = sum(planned.plan.content.those_of(counts))
                # The summaries of earlier compactions that are taken over neither leave nor stay.
                staying -= leaving + sum(map(counts.__getitem__, planned.taken_over))
                if hidden is not None and (coming_back := hidden.coming_back(plan.entry_of(planned, "", {}, ()))):
                    planned = replace(planned, staying=(*coming_back, *planned.staying))
                    staying += sum(counter.count_entries(coming_back))
            sizes = before, leaving, staying
            tasks = modes.running_tasks(links)
            return Basis(read.stamp, read.items, read.compaction, maker, sized, room, tasks, counter, *sizes, planned)

        # Counting ten thousand messages takes a second the first time: other tasks go on meanwhile.
        return await self._backend.waiting.call(worked_out)

    async def _path_of_hidden(self, read: KnownContext, pins: Sequence[str]) -> Sequence[Entry]:
        """Return the path where something on it is pinned that the context does not show, else nothing."""
        leaf = read.stamp.leaf_id
        if leaf is None or not pins or not (hidden := set(pins) - {item.entry_id for item in read.items}):
            return ()
        hidden_ids = [entry.id for entry in await self._session.get_entries(hidden) if entry is not None]
        is_on_path = any([await self._ask(self._backend.is_ancestor, entry, leaf) for entry in hidden_ids])
        return await self._session.get_active_path(leaf=leaf) if is_on_path else ()

    async def _counter_at(self, leaf: str | None) -> ModelCounter:
        """Return the counter of the model that the path has at a leaf."""
        return tokens.counter_for((await self._session.settings(leaf=leaf)).model)

    async def _size_of(self, items: Sequence[ContextEntry], counter: ModelCounter) -> int:
        """Return how many tokens the items of a context take; other tasks go on meanwhile."""
        return await self._backend.waiting.call(lambda: sum(counter.count_entries(items)))

    async def _append_made(
        self,
        basis: Basis,
        planned: SessionCompactionPlan,
        text: Made,
        calls: tuple[JsonObject, ...],
        *,
        from_hook: bool = False,
    ) -> CompactionResult:
        """Append the text below the stored leaf, if that still is the end of the path that was planned on."""
        if planned.question:
            text = replace(text, details={**text.details, context.QUESTION: planned.question})
        while True:
            leaf = (await self._session._stored_info()).leaf_id
            moved = None if leaf == basis.leaf else await self._overtaken(basis, leaf)
            moved = "redacted_meanwhile" if moved is None and await self._is_redacted(basis) else moved
            # Registered texts are those of the path appended to: they may have changed while the text was made.
            whole = text if moved is not None else await self._with_registered(basis, text, leaf)
            outcome = basis.made(whole, calls)
            if moved is not None or outcome.reason is not None:
                return replace(outcome, reason=moved or outcome.reason)
            base = self._session._leaf_id
            with suppress(LeafConflict):
                appended = await self._append_summary(planned, whole, calls, leaf, basis.leaf, from_hook=from_hook)
                self._session._keep_base(base, leaf)
                return replace(outcome, appended=appended)

    async def _with_registered(self, basis: Basis, text: Made, leaf: str | None) -> Made:
        block = await self._registered_block(basis, leaf)
        staying = basis.planned.staying if isinstance(basis.planned, plan.SessionCompactionPlan) else ()
        stays = any(block.text in message_text(item.data) for item in staying if item.kind == COMPACTION)
        return modes.with_block(text, replace(block, text="") if stays else block)

    async def _registered_block(self, basis: Basis, leaf: str | None) -> Block:
        texts = await Marks(self._session).registered(leaf=leaf)
        return blocks.registered_block(
            texts, basis.settings, basis.window, lambda text: basis.counter.count(said(text))
        )

    async def _aligned(
        self, material: hooks.Material, basis: Basis, model: Model, requests: Requests
    ) -> hooks.Material:
        """Return the material with the system prompt and the tools of requests.

        It has the last request, too, where the model that is asked is the one that was sent it.
        """
        offered = tuple(cast("JsonObject", dict(tool)) for tool in requests.tools)
        material = replace(material, system=requests.system, tools=offered)
        if not requests.is_whole:
            return replace(material, unaligned="what is sent is not the context as it is")
        settings = await self._session.settings(leaf=basis.leaf)
        if (why := why_not_the_same(model, settings)) is not None:
            return replace(material, unaligned=why)
        provider = model.provider or settings.provider
        answer = await self._last_answer_by(model.name, provider, basis.leaf)
        if answer is None:
            return replace(material, unaligned=f"{model.name} has answered nothing that is still in the context")
        if (too_old := self._seconds_too_old(answer, model.name, provider)) is not None:
            age, limit = (seconds // 60 for seconds in too_old)
            return replace(material, unaligned=f"what was sent last is kept for {limit} minutes, and {age} have passed")
        last = await self._last_request(basis.items, answer, basis.counter, requests.system, offered)
        return replace(material, last_request=last)

    async def _overtaken(self, basis: Basis, leaf: str | None) -> NotCompacted | None:
        """Return why a leaf that is not the one planned on cannot be built on; None where only turns were added."""
        if leaf is None or basis.leaf is None or not await self._ask(self._backend.is_ancestor, basis.leaf, leaf):
            return "leaf_moved"
        latest = await self.latest(leaf=leaf)
        latest_id = None if basis.latest is None else basis.latest.id
        return None if (None if latest is None else latest.id) == latest_id else "compacted_meanwhile"

    async def _is_redacted(self, basis: Basis) -> bool:
        """Return whether an entry of the context is not as it was read. One point read, if nothing was redacted."""
        read = await self._ask(self._backend.read_context, leaf=basis.leaf, unless=basis.stamp)
        payloads = {entry.id: entry.payload for entry in read.entries}
        return any(payloads.get(item.entry_id, item.entry.payload) != item.entry.payload for item in basis.items)

    async def _append_summary(
        self,
        planned: SessionCompactionPlan,
        text: Made,
        calls: tuple[JsonObject, ...],
        leaf: str | None,
        planned_on: str | None,
        *,
        from_hook: bool,
    ) -> Appended:
        first_kept, is_range = planned.first_kept_entry_id, isinstance(planned, plan.RangePlan)
        if not first_kept and not is_range and leaf != planned_on:
            # Entries appended meanwhile stay, though nothing else does.
            first_kept = (await self._session.get_active_path(since=planned_on, leaf=leaf))[0].id
        if is_range or not first_kept or not text.text:
            entry = plan.entry_of(planned, text.text, text.details, calls, from_hook=from_hook)
            return await self._session._append([entry], handle.Landing(Seen(leaf)))
        return await self._session.append_compaction(
            text.text,
            first_kept_entry_id=first_kept,
            tokens_before=planned.plan.tokens_before,
            details=text.details,
            calls=calls,
            from_hook=from_hook,
            expected_leaf=leaf,
        )

    async def fit_to(
        self,
        model: Model,
        *,
        compactor: Model | None = None,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        instructions: str | None = None,
        window: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] | None = None,
    ) -> Fitted:
        """Make the context fit into the window of ``model``, which is to go on with the session, and say if it does.

        Call it before the first request to the other model. Nothing is done where the context, as the counter for that
        model counts it, leaves ``settings.reserve_tokens`` free. Otherwise it is compacted by ``compactor``, which
        should be the larger model that the session had so far, or else by ``model`` itself, in parts; with less of the
        end kept word for word each time, three times at most. ``window`` is by default that of ``model``, ``system``
        and ``tools`` are counted in. One message alone that is larger than the window does not fit, whatever is done.

        Raises `InvalidArgument` where the window is unknown, and otherwise as `compact`; earlier compactions
        stay.
        """
        target = model_of(model)
        summarizer = target if compactor is None else model_of(compactor, "compactor")
        window = target.context_window if window is None else handle.checked_count(window, "window")
        if not window:
            raise InvalidArgument(f"window: the context window of model {target.name!r} is not known; give it")
        settings = policy.checked_settings(settings)
        modes.checked_mode(mode, settings, has_model=True)
        handle.checked_text(instructions, "instructions")
        sized = policy.sized_for(settings, window)
        room, keep = window - sized.reserve_tokens, sized.keep_recent_tokens
        measure = partial(Context(self._session).measure, target.name, system=system, tools=tools, use_reported=False)
        requests = None if system is None or tools is None else Requests(system, tools, is_whole=True)
        results: list[CompactionResult] = []
        size = await measure()
        for kept_tokens in (keep, keep // 4, 0):
            if size.tokens <= room:
                break
            less = replace(settings, keep_recent_tokens=kept_tokens)
            maker = modes.checked_mode(mode, less, has_model=True)
            basis = await self._basis_of(maker, less, window, summarizer=summarizer, system=system, tools=tools)
            done = await self._compact(basis, summarizer, instructions, dry_run=False, requests=requests)
            results.append(done)
            size = await measure()
        return plan.Fitted(size.tokens <= room, size.tokens, room, tuple(results))

    async def compact_range(
        self,
        first: str | None,
        last: str | None,
        model: Model | None = None,
        *,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        instructions: str | None = None,
        window: int | None = None,
        dry_run: bool = False,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] | None = None,
        before_compaction: BeforeCompaction | None = None,
        **options: Unpack[handle.SeenOptions],
    ) -> CompactionResult:
        """Replace a range of the context by a text that stands for it, and return the result, or why nothing was done.

        ``first`` and ``last`` are the entries of its first and last item; None for ``last`` summarizes from ``first``
        to the end, None for ``first`` everything up to ``last``. Items before and after it stay word for word. A range
        that would separate a tool call from its results is made wider, which the ``notes`` say; one without ``last``
        ends before a call whose result is still to come. Pinned entries in the range stay, after the summary; summaries
        of earlier compactions in it are taken over. Ranges can stand beside each other, and inside of ranges that are
        compacted later. One entry is appended, and nothing removed: `undo` and `uncompact` take it back. The text is
        made to fit beside ``system`` and ``tools``, which go with the session's own requests; a model is shown a
        transcript of the range. Everything else, also the effect of failures, is as `compact` says;
        ``settings.keep_recent_tokens`` does not count here.

        Raises `EntryNotFound`, and `InvalidArgument` for an entry that is not in the context, for ends that are the
        wrong way round or both None, for an explicit end within an exchange that is not over, and for a pinned summary
        in the range; otherwise as `compact`. The cost of the context, and of the model.
        """
        for entry_id, name in ((first, "first"), (last, "last")):
            handle.optional(handle.checked_id, entry_id, name)
        if first is None and last is None:
            raise InvalidArgument("first and last are both None; use compact() for the beginning of the context")
        handle.checked_flag(dry_run, "dry_run")
        handle.checked_text(instructions, "instructions")
        tokens.checked_request(None, None, system, tools)
        checked_hook(before_compaction)
        summarizer = None if model is None else model_of(model)
        maker = modes.checked_mode(mode, settings, has_model=summarizer is not None or dry_run)
        await self._session._compare(handle.checked_seen(**options))
        find = await self._finding_range(first, last)
        basis = await self._basis_of(maker, settings, window, find, summarizer=summarizer, system=system, tools=tools)
        return await self._compact(basis, summarizer, instructions, dry_run=dry_run, hook=before_compaction)

    async def _finding_range(self, first: str | None, last: str | None) -> Finding:
        """Return the function that plans the compaction of a range. Raises `EntryNotFound` for its ends."""
        for entry_id in (first, last):
            if entry_id is not None and await self._session.get_entry(entry_id) is None:
                raise EntryNotFound(self._session.id, entry_id)
        return lambda read, sized, pins, counts, live: plan.plan_range(
            read.items, read.compaction, read.tail, sized, first, last, pinned=pins, live=live
        )

    async def loss_report(self, compaction: str | None = None, *, limit: int = 50) -> LossReport | None:
        """Return the facts that the summary of a compaction no longer has; by default of the one in effect, None
        without one.

        ``compaction`` is the id of its entry, also of one that was taken back. Files, identifiers, error messages, the
        user's instructions, questions, decisions and results of tools are found by the rules of
        `flue_py.compaction.facts`, in all that it stands for: the entries behind earlier compactions included. Lost is
        a fact that neither the summary nor the kept entries have word for word; of a tool's result its errors and its
        first and last line are looked for, not those between. Of each kind it has the share that is still said and up
        to ``limit`` lost facts, the most often said first, with the ids of their entries. The same history gives the
        same report. Raises `EntryNotFound`, and `InvalidArgument` for another entry. O(path).
        """
        handle.checked_limit(limit)
        behind = await self._stands_for(compaction)
        if behind is None:
            return None
        return await handle.waiting_of(self._session).call(lambda: facts.loss_report(*behind, limit=limit))

    async def recall(self, compaction: str | None, words: str, *, limit: int = 10) -> Recalled:
        """Return where words stand in the entries that a compaction stands for, the best match first, with excerpts.

        ``compaction`` is the id of its entry, or None for all that are in effect; without any nothing is found.
        ``words`` are taken literally, whatever they are; case, white space and emphasis do not matter. Exact matches
        come first, then those with most of the words, then the newest. At most ``limit`` entries, each with up to 400
        characters. Every fact of `loss_report` is found by its text. Raises `EntryNotFound`, and `InvalidArgument` for
        another entry. O(path).
        """
        if not isinstance(words, str):
            raise InvalidArgument(f"words: should be a text, not {shown(words)}")
        handle.checked_limit(limit)
        behind = await self._gone() if compaction is None else await self._stands_for(compaction)
        if behind is None:
            return facts.Recalled(None)
        return await handle.waiting_of(self._session).call(
            lambda: facts.recall(behind.compaction_id, behind.source, words, limit=min(limit, facts.MOST_HITS))
        )

    async def answer_recall(self, call: Mapping[str, object]) -> JsonObject:
        """Return the result of a model's call of the tool `flue_py.compaction.facts.RECALL_TOOL`, as a message.

        ``call`` is the part of the model's answer: ``id``, ``name``, ``arguments``. A missing argument is named in a
        result that failed, so that the model can mend it. Nothing is appended. Raises `InvalidArgument` for a call
        without an id. The cost of `recall` for the compactions in effect.
        """
        call_id = checked_call_id(call)
        words = facts.asked_words(call.get("arguments"))
        text = words if isinstance(words, str) else (await self.recall(None, words[0], limit=words[1])).text
        return tool_result(call_id, facts.RECALL_TOOL["name"], text, is_error=isinstance(words, str))

    async def _stands_for(self, compaction: str | None) -> StandsFor | None:
        """Return the entries that a compaction stands for; None for none in effect."""
        handle.checked_place(compaction, "compaction")
        entry = await self.latest() if compaction is None else await self._compaction(compaction)
        if entry is None:
            return None
        return facts.stands_for(entry, await self._session.get_active_path(leaf=entry.id))

    async def _gone(self) -> StandsFor | None:
        """Return all that the context no longer has, as if the latest compaction stood for it; None without any."""
        read = await self._session._read_context(STORED)
        if read.compaction is None:
            return None
        path = await self._session.get_active_path(leaf=read.stamp.leaf_id)
        return facts.left_context(read.compaction, path, read.items)

    async def _compaction(self, entry_id: str) -> Entry:
        entry = await self._session.get_entry(entry_id)
        if entry is None:
            raise EntryNotFound(self._session.id, entry_id)
        if entry.kind != COMPACTION or context.RESTORES in entry.fields:
            reason = "takes one back" if entry.kind == COMPACTION else f"is a {entry.kind}"
            raise InvalidArgument(f"compaction: entry {shown(entry_id)} is no compaction, it {reason}")
        return entry

    async def price(
        self,
        edit: EditChoice,
        *,
        model: str | None = None,
        provider: str | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] | None = None,
        cached: bool | None = None,
        to: LeafChoice = STORED,
        turns: int | None = None,
        entry_ids: Sequence[str] | None = None,
        at: LeafChoice = STORED,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        window: int | None = None,
        summary_tokens: int | None = None,
        first: str | None = None,
        last: str | None = None,
    ) -> EditPlan:
        """Return the price of an edit of the context, and when it has paid for itself. Nothing is changed.

        ``edit`` is `Compact`, `Rewind`, `Exclude`, `Fork` or `Resume`; or its name, such as ``"rewind"``, with its own
        arguments, those after ``cached``. ``model`` and its ``provider`` are those of the next call, by default those
        that the path has at its leaf. ``system`` and ``tools`` are those of each request, as for
        `measure_context`.
        ``cached`` says whether the last request is in the provider's cache still; by default, it is if the
        last answer on the path is by this model of this provider and younger than the provider keeps anything.

        Prices are those of the store (`flue_py.open(prices=...)`); one that is unknown leaves ``price`` None. Raises
        as the edit itself, but for conflicts. The cost of two contexts, and O(size) of items that this process
        has not counted before.
        """
        compacting = {"mode": mode, "settings": settings, "window": window, "summary_tokens": summary_tokens}
        compacting |= {"first": first, "last": last}
        wanted = checked_edit(edit, {"to": to, "turns": turns, "entry_ids": entry_ids, "at": at, **compacting})
        tokens.checked_request(model, provider, system, tools)
        handle.optional(handle.checked_flag, cached, "cached")
        read = await self._session._read_context(STORED)
        leaf = read.stamp.leaf_id
        if model is None:
            stored = await self._session._settings_of(read)
            model, provider = stored.model, provider or stored.provider
        if cached is None:
            answer = await self._last_answer_by(model, provider, leaf)
            is_warm = answer is not None and self._seconds_too_old(answer, model, provider) is None
        else:
            answer = await handle.latest_answer(self._session, leaf)
            is_warm = cached and answer is not None
        sent = await self._sent_for(answer if is_warm else None)
        counter, rules = tokens.counter_for(model), prices.cache_rules(model, provider)
        overhead = tokens_around(system, tools, counter)
        basis = _Basis(leaf, read.items, sent, is_warm, counter, rules, model, provider, overhead, system, tools)
        edited = await self._edited(wanted, basis)
        return await self._backend.waiting.call(partial(self._weighed, wanted, basis, edited))

    async def _edited(self, edit: Edit, basis: _Basis) -> _Edited:
        """Return the context as it would be after an edit."""
        if isinstance(edit, Compact):
            return await self._compacted(edit, basis)
        if isinstance(edit, Exclude):
            async with self._session._turn:
                return _Edited(await Marks(self._session)._context_without(edit.entry_ids, basis.leaf))
        leaf: LeafChoice = basis.leaf
        if isinstance(edit, Rewind):
            async with self._session._turn:
                leaf = await self._session._rewind_target(edit.to, edit.turns, basis.leaf)
        elif isinstance(edit, Fork) and edit.at is not STORED:
            leaf = edit.at
        return _Edited(basis.now if leaf == basis.leaf else (await self._session._read_context(leaf)).items)

    async def _compacted(self, edit: Compact, basis: _Basis) -> _Edited:
        is_range = edit.first is not None or edit.last is not None
        sizes = edit.mode, edit.settings, edit.window
        if is_range:
            compaction = await self._basis_of(*sizes, await self._finding_range(edit.first, edit.last))
        else:
            compaction = await self._basis_of(*sizes, system=basis.system, tools=basis.tools)
        planned = compaction.planned
        if isinstance(planned, plan.NoCompaction):
            return _Edited(basis.now)
        before = 0
        if isinstance(planned, plan.RangePlan):
            ids = [item.entry_id for item in compaction.items]
            before = ids.index(planned.first_entry_id)
        ahead = {item.entry_id for item in compaction.items[:before]}
        after = [item for item in planned.staying if item.entry_id not in ahead]
        staying = cast("Sequence[ContextEntry]", [*compaction.items[:before], *after])
        if not compaction.mode.needs_model or compaction.settings.prefer_deterministic:
            registered = await self._registered_block(compaction, basis.leaf)
            text = await modes.make_text(compaction.mode, compaction.material(planned, None, None, registered), None)
            whole = await self._with_registered(compaction, text, basis.leaf)
            if compaction.made(whole, ()).reason is not None:
                # `compact` refuses it, and the context stays as it is.
                return _Edited(basis.now)
            return _Edited(staying, compaction.size_of(whole.text), before)
        tokens = edit.summary_tokens
        if tokens is None:
            tokens = min(USUAL_SUMMARY_TOKENS, compaction.tokens_leaving)
        return _Edited(staying, tokens, before, compaction.tokens_leaving, may_align=not is_range)

    def _weighed(self, edit: Edit, basis: _Basis, edited: _Edited) -> EditPlan:
        unchanged = basis.common_items(basis.now)
        unedited = basis.request(basis.now, prefix=unchanged)
        # After a summary, nothing of the context is where it was.
        common = min(edited.before, unchanged) if edited.summary_tokens else basis.common_items(edited.items)
        after = basis.request(edited.items, edited.summary_tokens, prefix=common)
        call = edited.call(basis, unedited)
        price = prices.price_edit(call, after, unedited, basis.rules, partial(self._rates, basis))
        kind = _KINDS[type(edit)]
        turns, never = prices.turns_to_pay(price)
        if isinstance(edit, Fork | Resume):
            turns, never = None, "no_edit"
        elif not edited.summary_tokens and basis.is_same(edited.items):
            turns, never = None, "nothing_to_do"
        return prices.EditPlan(
            kind,
            basis.leaf,
            basis.model,
            basis.provider,
            basis.counter.name,
            basis.counter.is_estimate or call is not None,
            basis.is_warm,
            common,
            unedited.request,
            after.request,
            after.cache_read,
            unedited.cache_read,
            call,
            price,
            turns,
            never,
        )

    def _rates(self, basis: _Basis, usage: UsageTotals) -> ModelRates | None:
        return self._session._pricer.rates(PaidCall(usage, provider=basis.provider or "", model=basis.model or ""))

    async def latest(self, *, leaf: LeafChoice = STORED) -> Entry | None:
        """Return the last compaction on the path, or None. The cost of the context."""
        return (await self._session._read_context(leaf)).compaction
