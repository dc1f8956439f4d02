"""Conversations of the OpenHands SDK."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Container, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import BASE, RANGES, NewEntry, Range
from flue_py.core.json import Frozen, JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION, EXCLUSION
from flue_py.core.sessions import made_id
from flue_py.core.usage import PaidCall, call_of, read_reported, usage_json
from flue_py.errors import UnreadableFile, shown
from flue_py.formats import kit
from flue_py.formats.gathered import SESSION, GatheredReader, gathered_row, object_beside, read_beside, states_of
from flue_py.providers.base import blocks_of, fields_of, listed, only
from flue_py.providers.openai_chat import arguments_from_text, image_from_url

# A conversation is a folder: base_state.json, and a file for each event, which are gathered behind a row about it.
#
# Events are a tree; base_state.json has its leaf and the whole bill, in which a response has an id. The calls of one
# response are an event each, and here one message. A condensation takes events out of the view of the model, by their
# ids, and may put a summary in a place of it.
# docs/formats/openhands.md lists the fields that are kept.

FORMAT = "openhands"

_STATE, _TASKS, _META = "base_state.json", "subagents", "meta.json"
_BEGINNING = re.compile(rb'\s*\{\s*"id":\s*"[0-9a-fA-F-]{32,36}",\s*"agent":\s*\{')
_EVENT_FILE = re.compile(r"event-([0-9]{5,18})-(.+)\.json")
_ROOT, _SUMMARY = "__root__", "-summary"
_UPDATE, _ERROR = "ConversationStateUpdateEvent", "ConversationErrorEvent"
_BESIDE = frozenset({
    _UPDATE, _ERROR, "CondensationRequest", "PauseEvent", "InterruptEvent", "TokenEvent", "HookExecutionEvent",
    "LLMCompletionLogEvent", "ACPToolCallEvent", "StreamingDeltaEvent",
})  # fmt: skip
_STEPS_AN_EVENT = 50
"""How many steps condensations may take, for each event: only hostile ones take more."""


def looks_like_openhands(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be the state of a conversation."""
    return bool(_BEGINNING.match(head))


def gather_openhands(path: Path) -> Generator[bytes, None, None]:
    """Yield a row about the conversation that a state is of, and one for each of its events, in their order."""
    folder = path.absolute().parent
    about: JsonObject = {"file": f"{folder.name}/{path.name}"}
    about["meta"] = only(object_beside(folder / _META), "title", "created_at", "forked_from_conversation_id")
    about["billed"] = [name for file in folder.glob(f"{_TASKS}/*/{_STATE}") for name, _ in bill_of(object_beside(file))]
    if folder.parent.name == _TASKS:
        about["above"] = object_beside(folder.parent.parent / _STATE).get("id")
    yield _row(SESSION, path, about)
    matches = [(_EVENT_FILE.fullmatch(file.name), file) for file in folder.glob("events/event-*.json")]
    for _, name, file in sorted((int(match[1]), match[2], file) for match, file in matches if match):
        yield _row("event", file, {"name": name})


def beside_openhands(path: Path) -> JsonValue:
    """Return the states of the other files of a conversation. Never raises."""
    folder = path.absolute().parent
    events = made_id(FORMAT, kit.json_line(states_of(sorted(folder.glob("events/event-*.json")))))
    return {"events": events, "others": states_of([folder / _META, *sorted(folder.glob(f"{_TASKS}/*/{_STATE}"))])}


def _row(kind: str, path: Path, fields: JsonObject) -> bytes:
    """Return a row with the text of a file in it as it is: no line ends, no type of its own."""
    data = (read_beside(path) or b"").removeprefix(b"\xef\xbb\xbf")
    return b'{"data":' + re.sub(rb"[\r\n]", b" ", data) + b"," + gathered_row(kind, fields)[1:]


class _View(Struct):
    """The entries that a model is shown at a place, each with the one behind it on the path; and the last on the path.

    A condensation stands for its summary. "" stands before the first entry.
    """

    names: list[str]
    behind: dict[str, str]
    last: str = ""
    dropped: list[str] = field(default_factory=list)
    """The names that the last condensation has taken out."""


class _Reading(Struct):
    """The events of a conversation as entries."""

    chain: kit.Chain
    bill: dict[tuple[str, int], Paid]
    events: list[Event] = field(default_factory=list)
    by_id: dict[str, int] = field(default_factory=dict)
    places: list[str | None] = field(default_factory=list)
    """Below which entry the children of an event stand."""
    views: dict[int, _View] = field(default_factory=dict)
    steps_left: int = 10_000

    def take(self, row: kit.Row) -> None:
        """Take over an event, with its place in the tree."""
        fields, index, notes = fields_of(row.fields.get("data")), len(self.events), self.chain.notes
        event_id, above = fields.get("id", row.fields.get("name")), fields.get("parent_id")
        if not kit.is_name(event_id) or event_id in self.by_id:
            fault = f"repeats the id {event_id!r}" if kit.is_name(event_id) else kit.unusable_id(event_id)
            notes.repair(row.line, f"{fault}; it got an id made from its line")
            event_id = made_id(self.chain.session_id, str(row.line))
        parent = index - 1 if above is None and index else self.by_id.get(above) if isinstance(above, str) else None
        if parent is None and above not in (None, _ROOT):
            notes.repair(row.line, f"names the parent {shown(above)}, which is no earlier event; it became a root")
        self.by_id[event_id] = index
        self.events.append(Event(row.line, event_id, kit.text_in(fields, "kind"), fields, parent, index))
        if parent is not None and self.events[index].kind != _UPDATE:
            self.events[parent].children.append(index)
        self.steps_left += _STEPS_AN_EVENT

    def leaf(self, state: JsonObject) -> int | None:
        """Return the event that the program is at; None if it is at none."""
        leaf = state.get("leaf_event_id")
        if isinstance(leaf, str) and leaf in self.by_id:
            return self.by_id[leaf]
        newest = () if state.get("head_is_empty") is True else range(len(self.events) - 1, -1, -1)
        return next((index for index in newest if self.events[index].kind not in (_UPDATE, _ERROR)), None)

    def build(self, leaf: int | None) -> None:
        """Make the entries. The calls of a response are joined, unless something else follows one before the last."""
        for index in range(len(self.events) - 1, -1, -1):
            event = self.events[index]
            child = self.events[event.children[0]] if len(event.children) == 1 and index != leaf else event
            if event.kind == child.kind == ACTION and event.response == child.response != "":
                event.last = child.last
        for index, event in enumerate(self.events):
            self.chain.leaf = None if event.parent is None else self.places[event.parent]
            if event.last != index:
                self.chain.notes.merged += 1
            elif event.kind in SHOWN:
                self._say(index, event)
            elif event.kind == CONDENSATION:
                self._condense(index, event)
            else:
                self.chain.notes.unknown_kinds.update([] if event.kind in _BESIDE else [event.kind])
                self._add(event, self._aside(event))
            self.places.append(self.chain.leaf)
        self.chain.leaf = None if leaf is None else self.places[leaf]

    def _say(self, index: int, event: Event) -> None:
        batch, at = [event], event.parent
        while event.kind == ACTION and at is not None and self.events[at].last == index:
            batch.append(self.events[at])
            at = self.events[at].parent
        message, beside = message_of([one.fields for one in reversed(batch)])
        paid = self.bill.get((event.response, 0))
        if paid is not None and message["role"] == "assistant":
            message |= {**only(paid.names, "provider", "model"), "usage": paid.usage}
        entry, extra = kit.message_entry(message, event.fields, event.line, self.chain.notes)
        entry = kit.with_response(entry, FORMAT, event.response)
        if len(batch) > 1:
            self.chain.earlier[event.id] = tuple(action.id for action in batch[:0:-1])
        if paid is not None:
            entry = replace(entry, calls=tuple(replace(call, at_us=paid.at_us) for call in entry.calls))
        self._add(event, entry, {**beside, **extra})

    def _aside(self, event: Event) -> NewEntry:
        return kit.plain_entry(kit.entry_kind("openhands.", event.kind), without(event.fields, *ENVELOPE))

    def _add(self, event: Event, entry: NewEntry, beside: JsonObject | None = None, name: str | None = None) -> None:
        moment = kit.read_time(event.fields.get("timestamp"))
        self.chain.add(entry, event.line, beside=beside, entry_id=name or event.id, created_us=moment)

    def _condense(self, index: int, event: Event) -> None:
        """Take events out of the view: a summary stands in the place of a stretch, others are taken out one by one."""
        entry, notes, view = self._aside(event), self.chain.notes, self._view(index)
        holes = [name for name in view.dropped if not self._is_summary(name)]
        if self.steps_left < 0:
            holes = []
            notes.repair(event.line, "condenses too long a path; it is kept outside the context")
        elif event.has_summary:
            ranges, holes = self._stretches(event, view)
            body: JsonObject = {"summary": event.fields["summary"], "firstKeptEntryId": view.behind[""]}
            body |= {"tokensBefore": 0, BASE: None, RANGES: [item.as_json for item in ranges]}
            body["details"] = without(event.fields, *ENVELOPE, "summary")
            entry = kit.plain_entry(COMPACTION, body)
        elif len(holes) < len(view.dropped):
            notes.repair(event.line, "forgets a summary and has none of its own: the summary stays in the context")
        if paid := self.bill.get((event.response, 0)):
            names = {**paid.names, "call_id": made_id(FORMAT, event.response), "purpose": "compaction"}
            entry = kit.with_call(entry, paid.usage, notes, event.line, **names)
        self._add(event, entry)
        for target in holes:
            name = made_id(self.chain.session_id, event.id, target)
            self._add(event, kit.plain_entry(EXCLUSION, {"entryId": target}), {"type": event.kind}, name)

    def _name(self, index: int) -> str:
        return self.events[self.events[index].last].id

    def _is_summary(self, name: str) -> bool:
        return self.events[self.by_id[name]].kind == CONDENSATION

    def _view(self, index: int) -> _View:
        """Return the view behind a condensation: that of the one before it on the path, and what was said since."""
        path: list[int] = []
        at: int | None = index
        while at is not None and at not in self.views and self.steps_left >= 0:
            path.append(at)
            at, self.steps_left = self.events[at].parent, self.steps_left - 1
        before = self.views.get(-1 if at is None else at, _View([], {}))
        view = _View([*before.names], {**before.behind}, before.last)
        self.steps_left -= len(view.names)
        for at in reversed(path):
            event, name = self.events[at], self._name(at)
            if event.kind == CONDENSATION:
                self._forget(event, view)
            elif event.kind in SHOWN and name not in view.names[-1:]:
                view.names.append(name)
            if name != view.last:
                view.behind[view.last] = name
                view.last = name
        view.behind = {name: view.behind[name] for name in ("", *view.names) if name in view.behind}
        self.views[index] = view
        return view

    def _forget(self, event: Event, view: _View) -> None:
        """Take over a condensation."""
        items = [item for item in listed(event.fields.get("forgotten_event_ids")) if isinstance(item, str)]
        places = [self.by_id.get(item.removesuffix(_SUMMARY)) for item in items]
        names = {self._name(place) for place in places if place is not None}
        view.dropped = [name for name in view.names if name in names]
        view.names = [name for name in view.names if name not in names]
        offset = event.fields.get("summary_offset")
        if event.has_summary and isinstance(offset, int):
            view.names.insert(min(offset, len(view.names)), event.id)

    def _stretches(self, event: Event, view: _View) -> tuple[list[Range], list[str]]:
        """Return the stretches of the path for which the summaries in a view stand, and the entries without one."""
        ranges: list[Range] = []
        holes: list[str] = []
        before, summary, is_lost = "", None, False
        for name in (*view.names, None):
            if name is not None and self._is_summary(name):
                is_lost, summary = is_lost or summary is not None, name
                continue
            end = name or event.id
            first, above = view.behind[before], self.events[self.by_id[end]].parent
            last = None if above is None else self.places[above]
            if summary is None:
                holes += self._between(first, end)
            elif first != end and last is not None:
                ranges.append(Range(first, last, None if summary == event.id else summary))
            else:
                is_lost = True
            before, summary = end, None
        if is_lost:
            self.chain.notes.repair(event.line, "puts a summary where nothing else was taken out; it is not shown")
        return ranges, holes

    def _between(self, first: str, end: str) -> list[str]:
        """Return the entries on the path that a model is shown, from one up to that before another."""
        names: dict[str, None] = {}
        at, name = self.events[self.by_id[end]].parent, end
        while at is not None and name != first and self.steps_left >= 0:
            name = self._name(at)
            if self.events[at].kind in SHOWN and name != end:
                names[name] = None
            at, self.steps_left = self.events[at].parent, self.steps_left - 1
        return [*names][::-1]


def parse_openhands(rows: Sequence[kit.Row], notes: kit.Notes, take_all: bool) -> kit.SessionPart | None:
    """Return the conversation of a state and its events. Raises `UnreadableFile` if the state is none."""
    about = rows[0].fields if rows[0].type == SESSION else {}
    state, meta = fields_of(about.get("data")), fields_of(about.get("meta"))
    file = kit.text_in(about, "file") or "the file"
    session_id, above = state.get("id"), about.get("above")
    if not kit.is_name(session_id) or not isinstance(state.get("agent"), dict):
        raise UnreadableFile(f"{file} is not the state of a conversation of OpenHands; nothing was imported")
    parent = kit.task_below(above, session_id)
    notes.left_out["is the state of the conversation"] += 1
    reading = _Reading(kit.Chain(session_id, notes), bill_of(state))
    for row in rows[1:]:
        reading.take(row)
    leaf = reading.leaf(state)
    reading.build(leaf)
    chain, moments = reading.chain, [kit.read_time(event.fields.get("timestamp")) for event in reading.events]
    if leaf is None and moments:
        # A leaf at no event is one here, too: an entry without words, above which there is nothing.
        head = kit.plain_entry("openhands.empty_head", {})
        chain.add(head, rows[0].line, entry_id=made_id(session_id, "head_is_empty"), created_us=moments[-1])
    lists = ("token_usages", "costs", "response_latencies")
    sums: JsonObject = {name: without(value, *lists) for name, value in stats_of(state).items()}
    facts: JsonObject = {**without(state, "id", "stats"), "usage": sums}
    document: JsonObject = {"leafId": chain.leaf, "meta": meta, "state": facts}
    created = kit.read_time(meta.get("created_at")) or next(filter(None, moments), None)
    title, cwd = meta.get("title"), fields_of(state.get("workspace")).get("working_dir")
    fields: kit.SessionFields = {"auto_title": title, "cwd": cwd, "created_us": created, "parent": parent}
    parsed = chain.parsed(FORMAT, file, document, is_rewritten=False, **fields)
    booked = {call.call_id for entry in chain.entries for call in entry.calls}
    elsewhere = {name for name in listed(about.get("billed")) if isinstance(name, str)}
    bill = {call: paid for call, paid in reading.bill.items() if call[0] not in elsewhere}
    calls = calls_alone(bill, booked)
    return replace(parsed, restates=True, calls=calls)


read_openhands = partial(GatheredReader, parse_openhands)


# The events as our messages, and the calls that were paid for.

ACTION, CONDENSATION = "ActionEvent", "Condensation"
RESULTS = {"ObservationEvent": "observation", "UserRejectObservation": "rejection_reason", "AgentErrorEvent": "error"}
"""The kinds of results of tools, and their field that has the words."""
SHOWN = frozenset({"SystemPromptEvent", "MessageEvent", ACTION, *RESULTS})
"""The kinds that a model is shown."""
ENVELOPE = ("id", "parent_id", "timestamp", "kind")
"""The fields that every event has."""

_TOKENS = {
    "prompt_tokens": "input", "completion_tokens": "output",
    "cache_read_tokens": "cacheRead", "cache_write_tokens": "cacheWrite", "reasoning_tokens": "reasoning",
}  # fmt: skip
_THOUGHT = ("thinking_blocks", "reasoning_content", "responses_reasoning_item")
_TASK = {"Task ID": "task_id", "Subagent": "subagent", "Status": "status"}
_COMMAND = {"working_dir": "Current working directory:", "py_interpreter_path": "Python interpreter:"}
_PICTURES = {"/": "image/jpeg", "R": "image/gif", "U": "image/webp"}
"""The kinds of pictures by the first letter of their base64 text; any other is a PNG."""


# events


class Event(Struct):
    """An event: the indexes of its parent, of its children, and of the last call of its response."""

    line: int
    id: str
    kind: str
    fields: JsonObject
    parent: int | None
    last: int
    children: list[int] = field(default_factory=list)

    @property
    def response(self) -> str:
        """The id of the response that it is of, or ""."""
        return kit.text_in(self.fields, "llm_response_id")

    @property
    def has_summary(self) -> bool:
        """Whether it is a condensation that puts a summary in the view."""
        offset, summary = self.fields.get("summary_offset"), self.fields.get("summary")
        return self.kind == CONDENSATION and type(offset) is int and offset >= 0 and isinstance(summary, str)


def message_of(events: Sequence[JsonObject]) -> tuple[JsonObject, JsonObject]:
    """Return the message that an event of `SHOWN` is, or the actions of a response; and their other fields."""
    fields = events[-1]
    kind = kit.text_in(fields, "kind")
    if kind == "SystemPromptEvent":
        prompt = _parts(fields.get("system_prompt"), fields.get("dynamic_context"))
        return {"role": "system", "content": prompt}, without(fields, *ENVELOPE, "system_prompt", "dynamic_context")
    if kind == "MessageEvent":
        return _said(fields)
    if kind in RESULTS:
        return _result(fields, RESULTS[kind])
    parts = [part for event in events for part in (*_thoughts(event), *_parts(*listed(event.get("thought"))))]
    actions: list[JsonValue] = [without(event, *ENVELOPE[1:], *_THOUGHT, "thought") for event in events]
    parts += [_call(event.get("tool_call")) for event in events]
    return {"role": "assistant", "content": parts}, {"actions": actions}


def _said(fields: JsonObject) -> tuple[JsonObject, JsonObject]:
    value = fields_of(fields.get("llm_message"))
    words = _parts(*blocks_of(value.get("content")), *listed(fields.get("extended_content")))
    calls = [_call(call) for call in listed(value.get("tool_calls"))]
    rest = without(value, "role", "content", "tool_calls", *_THOUGHT)
    beside = without(fields, *ENVELOPE, "llm_message", "extended_content")
    message: JsonObject = {"role": value.get("role"), "content": [*_thoughts(value), *words, *calls]}
    return message, {**beside, **({"llm_message": rest} if rest else {})}


def _result(fields: JsonObject, name: str) -> tuple[JsonObject, JsonObject]:
    result, text = fields_of(fields.get(name)), kit.text_in(fields, name)
    words, is_error = _observed(result), result.get("is_error") is True
    if name != "observation":
        words, is_error = [_text(f"Action rejected: {text}" if name == "rejection_reason" else text)], True
    message: JsonObject = {"role": "toolResult", "toolCallId": fields.get("tool_call_id"), "isError": is_error}
    message["toolName"] = fields.get("tool_name")
    message["content"] = _parts(*words, *listed(fields.get("extended_content")))
    beside = without(fields, *ENVELOPE, "tool_call_id", "tool_name", "extended_content", name)
    return message, {**beside, **({name: without(result, "content")} if result else {})}


def _observed(result: JsonObject) -> list[JsonValue]:
    """Return the parts that the model is shown of a result of a tool, which some tools put words around."""
    parts, picture, kind = listed(result.get("content")), result.get("screenshot_data"), result.get("kind")
    head: list[JsonValue] = [_text("[An error occurred during execution.]\n")] if result.get("is_error") is True else []
    if kind == "TaskObservation":
        head.insert(0, _text("\n".join(f"{name}: {result.get(key)}" for name, key in _TASK.items())))
    elif kind == "TerminalObservation":
        about = fields_of(result.get("metadata"))
        text = "".join(kit.text_in(fields_of(part), "text") for part in parts)
        lines = [f"{words} {about[name]}" for name, words in _COMMAND.items() if about.get(name)]
        code = about.get("exit_code", -1)
        lines += [f"Command finished with exit code {code}"] if code != -1 else []
        text = f"{kit.text_in(about, 'prefix')}{text}{kit.text_in(about, 'suffix')}"
        parts = [_text(text + "".join(f"\n[{line}]" for line in lines))]
    if isinstance(picture, str):
        parts = [*parts, {"type": "image", "data": picture, "mimeType": _PICTURES.get(picture[:1], "image/png")}]
    return [*head, *parts]


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _parts(*values: JsonValue) -> list[JsonValue]:
    """Return parts of a message as ours: an image of several URLs is several."""
    parts: list[JsonValue] = []
    for part in map(fields_of, values):
        urls = part.get("image_urls")
        if part.get("type") == "image" and isinstance(urls, list):
            parts += [{"type": "image", **image_from_url(url)} for url in urls if isinstance(url, str)]
        elif part:
            parts.append(without(part, "cache_prompt") if part.get("cache_prompt") is False else part)
    return parts


def _thoughts(value: JsonObject) -> list[JsonValue]:
    """Return the reasoning of an answer, in the most exact of the forms in which it has it."""
    blocks = [fields_of(block) for block in listed(value.get("thinking_blocks"))]
    item = fields_of(value.get("responses_reasoning_item"))
    if blocks:
        return [
            kit.thought(kit.text_in(block, "thinking"), block.get("signature"), block.get("data")) for block in blocks
        ]
    if item:
        texts = [text for text in (*listed(item.get("summary")), *listed(item.get("content"))) if isinstance(text, str)]
        return [{**kit.thought("\n\n".join(texts), item.get("encrypted_content")), **only(item, "id", "status")}]
    text = kit.text_in(value, "reasoning_content")
    return [kit.thought(text)] if text else []


def _call(value: JsonValue) -> JsonObject:
    call = fields_of(value)
    arguments = arguments_from_text(call.get("arguments"))
    return {"type": "toolCall", "id": call.get("id"), "name": call.get("name"), "arguments": arguments}


# the bill


class Paid(Frozen):
    """A call that was paid for, as it was reported."""

    usage: JsonObject
    names: dict[str, str]
    at_us: int | None


def bill_of(state: JsonObject) -> dict[tuple[str, int], Paid]:
    """Return the calls of a conversation, by the ids of their responses, and how often each occurred before."""
    bill: dict[tuple[str, int], Paid] = {}
    is_driven = fields_of(state.get("agent")).get("kind") == "ACPAgent"
    for name, value in stats_of(state).items():
        usages, costs = ([fields_of(item) for item in listed(value.get(part))] for part in ("token_usages", "costs"))
        models, prices, seen = Counter(map(_model, usages)), defaultdict[str, deque[JsonObject]](deque), Counter[str]()
        for cost in costs:
            prices[_model(cost)].append(cost)
        # A call without a cost has none in the list: where there are as many of both, it is known which is whose.
        whole = {model for model, number in models.items() if len(prices[model]) == number}
        for usage in usages:
            model, response = _model(usage), kit.text_in(usage, "response_id") or f"{state.get('id')}:{name}"
            cost = prices[model].popleft() if model in whole else {}
            provider, slash, rest = model.partition("/")
            names = {"provider": provider if slash else "", "model": rest if slash else model}
            names["purpose"] = "compaction" if name == "condenser" else "turn"
            paid = Paid(_reported(usage, cost, is_driven), names, kit.read_moment(cost.get("timestamp")))
            bill.setdefault((response, seen[response]), paid)
            seen[response] += 1
    return bill


def stats_of(state: JsonObject) -> dict[str, JsonObject]:
    """Return the sums and lists of calls of a conversation, by the uses of its models."""
    stats = fields_of(fields_of(state.get("stats")).get("usage_to_metrics"))
    return {name: fields_of(value) for name, value in stats.items()}


def _model(usage: JsonObject) -> str:
    return kit.text_in(usage, "model")


def _reported(usage: JsonObject, cost: JsonObject, is_driven: bool) -> JsonObject:
    """Return the usage of a call in our shape: its input holds the cache, but for programs that OpenHands drives."""
    counts = only(usage, *_TOKENS)
    value: JsonObject = {_TOKENS[name] if is_driven else name: count for name, count in counts.items()}
    read = read_reported(value)
    tokens = value if read.oddities else usage_json(read)
    return {**tokens, "cost": {"total": cost["cost"]}} if "cost" in cost else tokens


def calls_alone(bill: Mapping[tuple[str, int], Paid], booked: Container[str | None]) -> tuple[PaidCall, ...]:
    """Return the calls whose responses became no event: titles, questions aside, sub-agents without a file."""
    calls = []
    for (response, number), paid in bill.items():
        call_id = made_id(FORMAT, response, *([str(number)] if number else []))
        call = call_of(read_reported(paid.usage), call_id=call_id, **paid.names)
        calls += [replace(call, at_us=paid.at_us)] if call_id not in booked else []
    return tuple(calls)
