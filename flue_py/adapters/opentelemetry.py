"""Spans of OpenTelemetry made of what sessions hold: turns, model calls, tool calls, compactions and task sessions.

They follow the semantic conventions for generative AI (`CONVENTIONS`) and need the extra ``opentelemetry``. Times are
those of the entries, and ids are derived from session and entry: a session that is exported again gives the spans that
the collector has already. Words are in them only where they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from flue_py.core.context import EntryCost, begins_turn, traits_in
from flue_py.core.entries import Entry
from flue_py.core.json import Frozen, JsonObject, JsonValue, encode_json
from flue_py.core.kinds import COMPACTION, MESSAGE, adds_usage, message_text
from flue_py.core.usage import read_reported, usage_json
from flue_py.errors import InvalidArgument, MissingExtra, StoreUnavailable, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.handle import checked_flag, is_unchecked
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

try:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ImportError as error:
    raise MissingExtra("opentelemetry", "flue_py.adapters.opentelemetry") from error

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http import trace_exporter as otlp
else:
    otlp = lazy_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")  # of a package of its own

CONVENTIONS = "https://opentelemetry.io/schemas/1.41.1"
"""The version of the semantic conventions whose names are used."""

_BATCH = 512
"""How many spans an exporter is given at once, as the SDK's own processor does."""

_PROVIDERS = {
    "amazon-bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "azure-openai": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""The providers that the conventions have another name for."""


_TOKENS = {
    "gen_ai.usage.output_tokens": "output",
    "gen_ai.usage.cache_read.input_tokens": "cacheRead",
    "gen_ai.usage.cache_creation.input_tokens": "cacheWrite",
    "gen_ai.usage.reasoning.output_tokens": "reasoning",
}
"""The kinds of tokens beside those of the input."""


class SpansReport(Frozen):
    """How many spans an exporter took, and of how many sessions."""

    spans: int
    sessions: int


async def export_spans(
    store: Store, session: Session, exporter: SpanExporter, *, content: bool = False, resource: Resource | None = None
) -> SpansReport:
    """Give the spans of a session and its tasks, theirs included, to an exporter, which is not shut down.

    ``content`` adds what was said, thought, called and returned. ``resource`` describes the program, by default as the
    variables ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` do. Raises `StoreUnavailable` if the exporter
    refuses a batch: what it took before it has, and a second call repeats the same spans. O(entries).
    """
    if not isinstance(exporter, SpanExporter):
        raise InvalidArgument(
            f"exporter: {shown(exporter)} is no SpanExporter; take one of opentelemetry-exporter-otlp"
        )
    spans = sessions = 0
    waiting = [session]
    while waiting:
        each = waiting.pop()
        made = await session_spans(store, each, content=content, resource=resource)
        for at in range(0, len(made), _BATCH):
            batch = made[at : at + _BATCH]
            if await store.backend.waiting.call(partial(exporter.export, batch)) is not SpanExportResult.SUCCESS:
                raise StoreUnavailable(
                    f"session {each.id!r}: the exporter refused {len(batch)} spans after {spans}; see its own log, "
                    "and export again: no span is doubled by it"
                )
            spans += len(batch)
        sessions += 1
        for link in reversed(await each.tasks.links()):
            task = await store.get_session(link.child_id)
            waiting += [task] if task is not None else []
    return SpansReport(spans, sessions)


def otlp_exporter() -> SpanExporter:
    """Return the exporter to the collector that the variables ``OTEL_EXPORTER_OTLP_...`` name, over HTTP.

    Raises `MissingExtra` without its package.
    """
    if find_spec("opentelemetry.exporter") is None or find_spec("opentelemetry.exporter.otlp.proto.http") is None:
        package = "opentelemetry-exporter-otlp-proto-http"
        raise MissingExtra("opentelemetry", "otlp", detail=f"otlp needs an exporter: pip install {package}")
    return otlp.OTLPSpanExporter()


async def session_spans(
    store: Store, session: Session, *, content: bool = False, resource: Resource | None = None
) -> list[ReadableSpan]:
    """Return the spans of the entries that a session itself has made, by turn, each turn before what it holds.

    Every branch is in them, and of a fork what came after it. A turn is a trace, in which a task's turns hang below
    the one that started the task. See `export_spans` for ``content`` and ``resource``. O(entries).
    """
    checked_flag(content, "content")
    info = await session.refresh()
    above = await _turn_above(store, session)
    entries = await session.get_tree()
    tree = _Tree(entries, session.id, await session.money.entry_costs(), content)
    common: JsonObject = {"gen_ai.conversation.id": session.id}
    if info.cwd is not None:
        common["flue_py.session.cwd"] = info.cwd
    if is_unchecked(session):
        common["flue_py.unchecked"] = True
    make = partial(_span, resource or Resource.create({"service.name": "flue_py"}), common)
    return [make(span, above) for turn in tree.turns() for span in turn]


async def _turn_above(store: Store, session: Session) -> _Place | None:
    """Return the place of the turn that started a task; None for a session that is no task, or whose parent is gone."""
    for link in await session.tasks.parents():
        parent = await store.get_session(link.parent_id)
        if link.entry_id is None or parent is None:
            continue
        tree = _Tree(await parent.get_tree(), parent.id, {}, False)
        if link.entry_id in tree.by_id:
            turn = tree.by_id[tree.turn_of(link.entry_id)]
            above = await _turn_above(store, parent)
            return _Place(above.trace if above else tree.id_of(turn, "trace", 16), tree.id_of(turn, "turn", 8))
    return None


class _Place(Frozen):
    """The place of a turn's span: its trace, and its own id."""

    trace: int
    span: int


class _Made(Frozen):
    """A span before it has a resource. ``place`` is its own, ``parent`` the turn's, None of the turn itself."""

    name: str
    place: _Place
    parent: int | None
    start_us: int
    end_us: int
    attributes: Mapping[str, JsonValue]
    is_call: bool = False
    error: str | None = None
    words: str | None = None


class _Tree:
    """The entries of a session as turns, and the spans of each."""

    def __init__(
        self, entries: Sequence[Entry], session_id: str, costs: Mapping[str, EntryCost], content: bool
    ) -> None:
        self.by_id = {entry.id: entry for entry in entries}
        self._session_id = session_id
        self._costs = costs
        self._content = content
        self._turns: dict[str, str] = {}
        for entry in entries:  # parents come before their children
            is_first = begins_turn(entry) or entry.parent_id not in self._turns
            self._turns[entry.id] = entry.id if is_first else self._turns[entry.parent_id or ""]

    def turn_of(self, entry_id: str) -> str:
        """Return the first entry of the turn that an entry is in."""
        return self._turns[entry_id]

    def id_of(self, entry: Entry, use: str, size: int) -> int:
        """Return the id of a span: the same in each export, whichever session that sees the entry is exported."""
        owner = entry.session_id or self._session_id
        return int.from_bytes(blake2b(f"{use}\0{owner}\0{entry.id}".encode(), digest_size=size).digest(), "big") or 1

    def turns(self) -> Iterator[list[_Made]]:
        """Yield the spans of each turn that has an entry of the session's own; its first entry's alone has a span."""
        own: dict[str, list[Entry]] = {}
        for entry in self.by_id.values():
            if entry.session_id in (self._session_id, None):
                own.setdefault(self._turns[entry.id], []).append(entry)
        for first_id, entries in own.items():
            first = self.by_id[first_id]
            place = _Place(self.id_of(first, "trace", 16), self.id_of(first, "turn", 8))
            spans = [span for entry in entries if (span := self._step(entry, place))]
            if first.session_id in (self._session_id, None):
                spans.insert(0, self._turn(first, entries, place))
            yield spans

    def _turn(self, first: Entry, entries: Sequence[Entry], place: _Place) -> _Made:
        answers = [entry for entry in entries if entry.role == "assistant"]
        agent = traits_in(answers[-1].fields).agent if answers else None
        attributes: JsonObject = {"gen_ai.operation.name": "invoke_agent", "flue_py.entry.id": first.id}
        attributes.update({"gen_ai.agent.name": agent} if agent else {})
        if self._content:
            attributes.update(_messages("gen_ai.input.messages", [first] if begins_turn(first) else []))
            attributes.update(_messages("gen_ai.output.messages", answers[-1:]))
        end_us = max(entry.created_us for entry in entries)
        name = f"invoke_agent {agent}" if agent else "invoke_agent"
        return _Made(name, place, None, first.created_us, max(first.created_us, end_us), attributes)

    def _step(self, entry: Entry, turn: _Place) -> _Made | None:
        """Return the span of a model call or a tool call that an entry ended; None for an entry that ended neither."""
        if entry.kind == MESSAGE and entry.role == "toolResult":
            return self._tool_call(entry, turn)
        if adds_usage(entry.kind, entry.role) and (entry.role == "assistant" or "usage" in entry.fields):
            return self._model_call(entry, turn)
        return None

    def _model_call(self, entry: Entry, turn: _Place) -> _Made:
        fields = entry.fields
        model, provider, stop = (_text(fields.get(name)) for name in ("model", "provider", "stopReason"))
        attributes: JsonObject = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(provider or "", provider),
            "gen_ai.request.model": model,
            "gen_ai.response.id": _text(fields.get("responseId")),
            "gen_ai.response.finish_reasons": [stop] if stop else None,
            "flue_py.call.purpose": "compaction" if entry.kind == COMPACTION else None,
            "flue_py.entry.id": entry.id,
            **_tokens(entry),
        }
        cost = self._costs.get(entry.id)
        if cost is not None and cost.usd is not None:
            attributes["flue_py.cost.usd"] = float(cost.usd)
        if self._content:
            attributes.update(_messages("gen_ai.output.messages", [entry]))
        failed = stop if stop in ("error", "aborted") else None
        words = _text(fields.get("errorMessage")) if self._content else None
        return self._made(f"chat {model}" if model else "chat", entry, turn, attributes, failed, words, is_call=True)

    def _tool_call(self, entry: Entry, turn: _Place) -> _Made:
        fields = entry.fields
        call_id, tool = _text(fields.get("toolCallId")), _text(fields.get("toolName"))
        attributes: JsonObject = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": call_id,
            "flue_py.entry.id": entry.id,
        }
        if self._content:
            attributes["gen_ai.tool.call.arguments"] = self._arguments(entry, call_id)
            attributes["gen_ai.tool.call.result"] = message_text(fields)
        failed = "tool_error" if fields.get("isError") is True else None
        return self._made(f"execute_tool {tool}" if tool else "execute_tool", entry, turn, attributes, failed, None)

    def _arguments(self, result: Entry, call_id: str | None) -> str | None:
        """Return the arguments of the call that a result answers, from the nearest answer above it that has it."""
        at = self.by_id.get(result.parent_id or "")
        while at is not None and not begins_turn(at):
            for part in _parts(at):
                if part.get("type") == "toolCall" and part.get("id") == call_id:
                    return encode_json(part.get("arguments"), "arguments")[0]
            at = self.by_id.get(at.parent_id or "")
        return None

    def _start_us(self, entry: Entry) -> int:
        """Return when the step began: a result's with the answer that called it, any other with the entry above."""
        at = self.by_id.get(entry.parent_id or "")
        while entry.role == "toolResult" and at is not None and at.role == "toolResult":
            at = self.by_id.get(at.parent_id or "")
        return entry.created_us if at is None else min(at.created_us, entry.created_us)

    def _made(
        self,
        name: str,
        entry: Entry,
        turn: _Place,
        attributes: JsonObject,
        failed: str | None,
        words: str | None,
        *,
        is_call: bool = False,
    ) -> _Made:
        if failed:
            attributes["error.type"] = failed
        place = _Place(turn.trace, self.id_of(entry, "step", 8))
        start_us = self._start_us(entry)
        return _Made(name, place, turn.span, start_us, entry.created_us, attributes, is_call, failed, words)


def _span(resource: Resource, common: Mapping[str, JsonValue], made: _Made, above: _Place | None) -> ReadableSpan:
    """Return a span as an exporter takes it, in the trace of the turn that started the task, if there is one."""
    context = partial(SpanContext, above.trace if above else made.place.trace, is_remote=False)
    parent_id = made.parent if made.parent is not None else above.span if above else None
    attributes = {**common, **made.attributes}
    return ReadableSpan(
        name=made.name,
        context=context(made.place.span, trace_flags=TraceFlags(TraceFlags.SAMPLED)),
        parent=None if parent_id is None else context(parent_id, trace_flags=TraceFlags(TraceFlags.SAMPLED)),
        resource=resource,
        attributes={name: value for name, value in attributes.items() if value is not None},  # type: ignore[misc]
        kind=SpanKind.CLIENT if made.is_call else SpanKind.INTERNAL,
        instrumentation_scope=InstrumentationScope("flue_py", schema_url=CONVENTIONS),
        status=Status(StatusCode.ERROR, made.words) if made.error else Status(StatusCode.UNSET),
        start_time=made.start_us * 1000,
        end_time=made.end_us * 1000,
    )


def _tokens(entry: Entry) -> JsonObject:
    """Return the tokens of a call that were reported, by the names of the conventions, where input has the cache's."""
    reported = usage_json(read_reported(entry.fields.get("usage")))
    kinds = [reported[kind] for kind in ("input", "cacheRead", "cacheWrite") if kind in reported]
    tokens = {name: reported[kind] for name, kind in _TOKENS.items() if kind in reported}
    return {"gen_ai.usage.input_tokens": sum(cast("list[int]", kinds)), **tokens} if "input" in reported else {**tokens}


def _messages(name: str, entries: Iterable[Entry]) -> JsonObject:
    """Return messages as the conventions' JSON, under a name; nothing without any."""
    listed: list[JsonValue] = [_message(entry) for entry in entries]
    return {name: encode_json(listed, name)[0]} if listed else {}


def _message(entry: Entry) -> JsonObject:
    parts: list[JsonValue] = []
    for part in _parts(entry):
        kind = part.get("type")
        if kind == "text":
            parts.append({"type": "text", "content": part.get("text")})
        elif kind == "thinking":
            parts.append({"type": "reasoning", "content": part.get("thinking")})
        elif kind == "toolCall":
            named = {"id": part.get("id"), "name": part.get("name"), "arguments": part.get("arguments")}
            parts.append({"type": "tool_call", **named})
        else:  # pictures and files are named, not sent
            parts.append({"type": kind, "mime_type": part.get("mimeType")})
    reason = _text(entry.fields.get("stopReason"))
    return {"role": entry.role or "assistant", "parts": parts, **({"finish_reason": reason} if reason else {})}


def _parts(entry: Entry) -> list[JsonObject]:
    content = entry.fields.get("summary" if entry.kind == COMPACTION else "content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
