"""Conversations of the OpenHands SDK."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import BASE, RANGES, NewEntry, Range
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION, EXCLUSION
from flue_py.core.sessions import made_id
from flue_py.core.usage import PaidCall, call_of, read_reported, usage_json
from flue_py.errors import UnreadableFile, shown
from flue_py.formats import kit
from flue_py.formats.gathered import SESSION, GatheredReader, gathered_row, read_beside, states_of
from flue_py.providers.base import blocks_of, fields_of, listed, only, without
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
_ROOT = "__root__"
_ACTION, _CONDENSATION, _STATE_UPDATE = "ActionEvent", "Condensation", "ConversationStateUpdateEvent"
_RESULTS = {"ObservationEvent": "observation", "UserRejectObservation": "rejection_reason", "AgentErrorEvent": "error"}
"""The kinds of results of tools, and their field that has the words."""
_BESIDE = frozenset({
    _STATE_UPDATE, "CondensationRequest", "ConversationErrorEvent", "PauseEvent", "InterruptEvent", "TokenEvent",
    "HookExecutionEvent", "LLMCompletionLogEvent", "ACPToolCallEvent", "StreamingDeltaEvent",
})  # fmt: skip
_ENVELOPE = ("id", "parent_id", "timestamp", "kind")
_FAILED = "[An error occurred during execution.]\n"
_STEPS_AN_EVENT = 200
"""How many steps condensations may take, for each event: only hostile ones take more."""


def looks_like_openhands(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be the state of a conversation."""
    return bool(_BEGINNING.match(head.removeprefix(b"\xef\xbb\xbf")))


def gather_openhands(path: Path) -> Generator[bytes, None, None]:
    """Yield a row about the conversation that a state is of, and one for each of its events, in their order."""
    folder = path.absolute().parent
    about: JsonObject = {"file": f"{folder.name}/{path.name}", "meta": None}
    about["meta"] = only(_object(folder / _META), "title", "created_at", "forked_from_conversation_id")
    tasks = [response for file in folder.glob(f"{_TASKS}/*/{_STATE}") for response, _ in _bill(_object(file))]
    about["billed"] = [response for response in tasks if response]
    if folder.parent.name == _TASKS:
        above = _object(folder.parent.parent / _STATE).get("id")
        about["above"] = above if isinstance(above, str) else folder.parent.parent.name
    yield _row(SESSION, path, about)
    events = [
        (match, file) for file in folder.glob("events/event-*.json") if (match := _EVENT_FILE.fullmatch(file.name))
    ]
    for match, file in sorted(events, key=lambda event: (int(event[0][1]), event[0][2])):
        yield _row("event", file, {"name": match[2]})


def states_beside(path: Path) -> JsonValue:
    """Return the states of the other files of a conversation. Never raises."""
    folder = path.absolute().parent
    events = made_id(FORMAT, kit.json_line(states_of(sorted(folder.glob("events/event-*.json")))))
    return {"events": events, "others": states_of([folder / _META, *sorted(folder.glob(f"{_TASKS}/*/{_STATE}"))])}


def _object(path: Path) -> JsonObject:
    return kit.decode_row(1, read_beside(path) or b"", kit.Notes()) or {}


def _row(kind: str, path: Path, fields: JsonObject) -> bytes:
    """Return a row with the text of a file in it as it is: no line ends, no type of its own."""
    data = (read_beside(path) or b"").removeprefix(b"\xef\xbb\xbf")
    return b'{"data":' + re.sub(rb"[\r\n]", b" ", data) + b"," + gathered_row(kind, fields)[1:]


class _Paid(Frozen):
    """A call that was paid for."""

    reported: JsonObject
    provider: str
    model: str
    purpose: str
    at_us: int | None


def _bill(state: JsonObject) -> dict[tuple[str, int], _Paid]:
    """Return the calls of a conversation, by the ids of their responses, and how often each occurred before."""
    bill: dict[tuple[str, int], _Paid] = {}
    has_own_input = fields_of(state.get("agent")).get("kind") == "ACPAgent"
    for name, value in fields_of(fields_of(state.get("stats")).get("usage_to_metrics")).items():
        usages, costs = ([fields_of(item) for item in listed(fields_of(value).get(part))] for part in _LISTS)
        models = Counter(_text(usage, "model") for usage in usages)
        # A call without a cost has none in the list: only where there are as many of both is it known which is whose.
        priced = {model: prices for model in models if len(prices := _of(costs, model)) == models[model]}
        seen = Counter[str]()
        for usage in usages:
            model, response = _text(usage, "model"), _text(usage, "response_id") or f"{state.get('id')}:{name}"
            cost = priced[model].pop(0) if model in priced else {}
            first, slash, rest = model.partition("/")
            provider = first if slash else ""
            purpose = "compaction" if name == "condenser" else "turn"
            moment = cost.get("timestamp")
            at_us = kit.read_moment(moment * 1000) if isinstance(moment, float) else None
            paid = _Paid(_reported(usage, cost, has_own_input), provider, rest if slash else model, purpose, at_us)
            bill.setdefault((response, seen[response]), paid)
            seen[response] += 1
    return bill


_LISTS = ("token_usages", "costs")


def _of(costs: Iterable[JsonObject], model: str) -> list[JsonObject]:
    return [cost for cost in costs if cost.get("model") == model]


def _reported(usage: JsonObject, cost: JsonObject, has_own_input: bool) -> JsonObject:
    """Return the usage of a call in our shape: its input holds the cache, but for programs that OpenHands drives."""
    value: JsonObject = {
        name if has_own_input else theirs: usage[theirs] for theirs, name in _TOKENS.items() if theirs in usage
    }
    read = read_reported(value)
    tokens = value if read.oddities else usage_json(read)
    return {**tokens, "cost": {"total": cost["cost"]}} if "cost" in cost else tokens


_TOKENS = {
    "prompt_tokens": "input",
    "completion_tokens": "output",
    "cache_read_tokens": "cacheRead",
    "cache_write_tokens": "cacheWrite",
    "reasoning_tokens": "reasoning",
}


class _Event(Struct):
    """An event, and its place: the index of its parent, and that of the last call of its response."""

    line: int
    id: str
    kind: str
    fields: JsonObject
    parent: int | None
    last: int
    children: list[int] = field(default_factory=list)


class _Reading(Struct):
    """The events of a conversation as entries."""

    chain: kit.Chain
    bill: dict[tuple[str, int], _Paid]
    events: list[_Event] = field(default_factory=list)
    by_id: dict[str, int] = field(default_factory=dict)
    places: list[str | None] = field(default_factory=list)
    """Below which entry the children of an event stand."""
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)
    booked: set[tuple[str, int]] = field(default_factory=set)
    steps_left: int = 0

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
        self.events.append(_Event(row.line, event_id, _text(fields, "kind"), fields, parent, index))
        if parent is not None and self.events[index].kind != _STATE_UPDATE:
            self.events[parent].children.append(index)

    def leaf(self, state: JsonObject) -> int | None:
        """Return the event that the program is at; None if it is at none."""
        leaf = state.get("leaf_event_id")
        if isinstance(leaf, str) and leaf in self.by_id:
            return self.by_id[leaf]
        if state.get("head_is_empty") is True:
            return None
        artifacts = (_STATE_UPDATE, "ConversationErrorEvent")
        newest = range(len(self.events) - 1, -1, -1)
        return next((index for index in newest if self.events[index].kind not in artifacts), None)

    def add(self, leaf: int | None) -> None:
        """Make the entries. The calls of a response are joined, unless something else follows one before the last."""
        self.steps_left = _STEPS_AN_EVENT * len(self.events) + 10_000
        for index in range(len(self.events) - 1, -1, -1):
            event = self.events[index]
            only_child = self.events[event.children[0]] if len(event.children) == 1 and index != leaf else event
            if event.kind == only_child.kind == _ACTION and _response(event) == _response(only_child) is not None:
                event.last = only_child.last
        for index, event in enumerate(self.events):
            above = None if event.parent is None else self.places[event.parent]
            self.chain.leaf = above
            if event.last == index:
                self._place(index, event)
            else:
                self.chain.notes.merged += 1
            self.places.append(self.chain.leaf)

    def _place(self, index: int, event: _Event) -> None:
        if event.kind == _CONDENSATION:
            self._condense(index, event)
            return
        batch, at = [event], event.parent
        while event.kind == _ACTION and at is not None and self.events[at].last == index:
            batch.insert(0, self.events[at])
            at = self.events[at].parent
        value = _message(batch)
        if value is None:
            if event.kind not in _BESIDE:
                self.chain.notes.unknown_kinds[event.kind] += 1
            self._add(
                event, kit.plain_entry(kit.entry_kind("openhands.", event.kind), without(event.fields, *_ENVELOPE))
            )
            return
        message, beside = value
        response = _response(event)
        paid = self.bill.get((response, 0)) if response else None
        if response and paid and message.get("role") == "assistant":
            self.booked.add((response, 0))
            message |= {"provider": paid.provider, "model": paid.model, "usage": paid.reported}
        entry, extra = kit.message_entry(message, event.fields, event.line, self.chain.notes)
        if len(batch) > 1:
            self.earlier[event.id] = tuple(action.id for action in batch[:-1])
        self._add(event, kit.with_response(entry, FORMAT, response), {**beside, **extra})

    def _add(self, event: _Event, entry: NewEntry, beside: JsonObject | None = None, name: str | None = None) -> None:
        moment = kit.read_time(event.fields.get("timestamp"))
        self.chain.add(entry, event.line, beside=beside, entry_id=name or event.id, created_us=moment)

    def _condense(self, index: int, event: _Event) -> None:
        """Take events out of the view: a summary stands in the place of a stretch, others are taken out one by one."""
        fields, notes, response = event.fields, self.chain.notes, _response(event)
        path, view, dropped = self._seen(index)
        details: JsonObject = without(fields, *_ENVELOPE, "summary", "forgotten_event_ids")
        body: JsonObject = {"summary": fields.get("summary"), "firstKeptEntryId": path[0] if path else "", BASE: None}
        ranges, holes = self._stretches(event, path, view)
        if _has_summary(fields):
            body |= {RANGES: [item.as_json for item in ranges], "details": details}
            entry = replace(kit.plain_entry(COMPACTION, body), references=())
        else:
            holes = [name for name in dropped if not self._is_summary(name)]
            if len(holes) < len(dropped):
                notes.repair(event.line, "forgets a summary and has none of its own: the summary stays in the context")
            entry = kit.plain_entry(f"openhands.{_CONDENSATION}", without(fields, *_ENVELOPE))
        if response and (paid := self.bill.get((response, 0))):
            self.booked.add((response, 0))
            names = {"provider": paid.provider, "model": paid.model, "call_id": made_id(FORMAT, response)}
            entry = kit.with_call(entry, paid.reported, notes, event.line, purpose="compaction", **names)
        self._add(event, entry)
        for target in holes:
            name = made_id(self.chain.session_id, event.id, target)
            self._add(event, kit.plain_entry(EXCLUSION, {"entryId": target}), {"type": event.kind}, name)

    def _seen(self, index: int) -> tuple[list[str], list[str], list[str]]:
        """Return the path to a condensation, the view behind it, and the names that it takes out of that.

        The names are those of entries; that of a condensation in a view is its summary.
        """
        path, at = [index], self.events[index].parent
        while at is not None and self.steps_left > 0:
            path.append(at)
            at, self.steps_left = self.events[at].parent, self.steps_left - 1
        names = {at: self.events[self.events[at].last].id for at in path}
        view: list[str] = []
        dropped: list[str] = []
        for at in reversed(path):
            event = self.events[at]
            if event.kind == _CONDENSATION:
                ids = {
                    item.removesuffix(_SUMMARY) for item in map(_word, listed(event.fields.get("forgotten_event_ids")))
                }
                ids = {self.events[self.events[self.by_id[item]].last].id for item in ids if item in self.by_id}
                self.steps_left -= len(view)
                dropped = [item for item in view if item in ids]
                view = [item for item in view if item not in ids]
                if _has_summary(event.fields):
                    view.insert(_offset(event.fields), names[at])
            elif event.kind in _SHOWN and names[at] not in view[-1:]:
                view.append(names[at])
        return list(dict.fromkeys(names[at] for at in reversed(path[1:]))), view, dropped

    def _is_summary(self, name: str) -> bool:
        return self.events[self.by_id[name]].kind == _CONDENSATION

    def _stretches(self, event: _Event, path: list[str], view: list[str]) -> tuple[list[Range], list[str]]:
        """Return the stretches of the path for which the summaries in a view stand, and what nothing stands for."""
        ranges: list[Range] = []
        holes: list[str] = []
        places, at, waiting = {name: place for place, name in enumerate(path)}, 0, []
        for name in (*view, None):
            if name is not None and self._is_summary(name):
                waiting.append(None if name == event.id else name)
                continue
            end = len(path) if name is None else places.get(name, at)
            gap = path[at:end]
            if len(gap) < len(waiting):
                self.chain.notes.repair(event.line, "puts a summary where nothing was taken out; it is left out there")
            *first, last = waiting or [None]
            ranges += [Range(one, one, summary) for one, summary in zip(gap, first, strict=False)]
            if waiting and len(gap) >= len(waiting):
                ranges.append(Range(gap[len(first)], gap[-1], last))
            elif not waiting:
                holes += [one for one in gap if self.events[self.by_id[one]].kind in _SHOWN]
            at, waiting = end + 1, []
        return ranges, holes


_SUMMARY = "-summary"
_SHOWN = frozenset({"SystemPromptEvent", "MessageEvent", _ACTION, *_RESULTS})


def _text(fields: JsonObject, name: str) -> str:
    return _word(fields.get(name))


def _word(value: JsonValue) -> str:
    return kit.one_text(value) or ""


def _response(event: _Event) -> str | None:
    return _text(event.fields, "llm_response_id") or None


def _has_summary(condensation: JsonObject) -> bool:
    return isinstance(condensation.get("summary"), str) and type(condensation.get("summary_offset")) is int


def _offset(condensation: JsonObject) -> int:
    offset = condensation.get("summary_offset")
    return min(max(offset, 0), 1 << 30) if isinstance(offset, int) else 0


def _parts(*values: JsonValue) -> list[JsonValue]:
    """Return parts of a message as ours: an image of several URLs is several."""
    parts: list[JsonValue] = []
    for value in values:
        part = fields_of(value)
        urls = part.get("image_urls")
        if part.get("type") == "image" and isinstance(urls, list):
            parts += [{"type": "image", **image_from_url(url)} for url in urls if isinstance(url, str)]
        elif part:
            parts.append(without(part, "cache_prompt") if part.get("cache_prompt") is False else part)
    return parts


def _thoughts(value: JsonObject) -> list[JsonValue]:
    """Return the reasoning of an answer, in the most exact of the forms in which it has it."""
    thoughts: list[JsonValue] = []
    for block in map(fields_of, listed(value.get("thinking_blocks"))):
        signature, thinking = block.get("signature", block.get("data")), block.get("thinking", "")
        part: JsonObject = {"type": "thinking", "thinking": thinking}
        part |= {"thinkingSignature": signature} if isinstance(signature, str) else {}
        thoughts.append({**part, "redacted": True} if block.get("type") == "redacted_thinking" else part)
    item = fields_of(value.get("responses_reasoning_item"))
    if item and not thoughts:
        texts = [text for text in (*listed(item.get("summary")), *listed(item.get("content"))) if isinstance(text, str)]
        signature = item.get("encrypted_content")
        signed: JsonObject = {"thinkingSignature": signature} if isinstance(signature, str) else {}
        thoughts.append({"type": "thinking", "thinking": "\n\n".join(texts), **signed})
    if not thoughts and (text := _text(value, "reasoning_content")):
        thoughts.append({"type": "thinking", "thinking": text})
    return thoughts


def _call(value: JsonValue) -> JsonObject:
    call = fields_of(value)
    arguments = arguments_from_text(call.get("arguments"))
    return {"type": "toolCall", "id": call.get("id"), "name": call.get("name"), "arguments": arguments}


_THOUGHT = ("thinking_blocks", "reasoning_content", "responses_reasoning_item")


def _message(batch: Sequence[_Event]) -> tuple[JsonObject, JsonObject] | None:
    """Return the message that an event is, or the actions of one response, and their other fields, if it is one."""
    event, fields = batch[-1], batch[-1].fields
    if event.kind == "SystemPromptEvent":
        prompt = _parts(fields.get("system_prompt"), fields.get("dynamic_context"))
        return {"role": "system", "content": prompt}, without(fields, *_ENVELOPE, "system_prompt", "dynamic_context")
    if event.kind == "MessageEvent":
        value = fields_of(fields.get("llm_message"))
        said = "llm_message"
        calls = [_call(call) for call in listed(value.get("tool_calls"))]
        message: JsonObject = {"role": value.get("role")}
        message["content"] = [
            *_thoughts(value),
            *_parts(*blocks_of(value.get("content")), *listed(fields.get("extended_content"))),
            *calls,
        ]
        rest = without(value, "role", "content", "tool_calls", *_THOUGHT)
        return message, {**without(fields, *_ENVELOPE, said, "extended_content"), **({said: rest} if rest else {})}
    if event.kind == _ACTION:
        parts = [
            part for one in batch for part in (*_thoughts(one.fields), *_parts(*listed(one.fields.get("thought"))))
        ]
        parts += [_call(one.fields.get("tool_call")) for one in batch]
        actions: list[JsonValue] = [without(one.fields, *_ENVELOPE[1:], *_THOUGHT, "thought") for one in batch]
        return {"role": "assistant", "content": parts}, {"actions": actions}
    if event.kind not in _RESULTS:
        return None
    name = _RESULTS[event.kind]
    message = {"role": "toolResult", "toolCallId": fields.get("tool_call_id"), "toolName": fields.get("tool_name")}
    result = fields_of(fields.get(name))
    words, is_error = _observed(result), result.get("is_error") is True
    if name != "observation":
        text = _text(fields, name)
        words, is_error = [{"type": "text", "text": f"Action rejected: {text}" if name[0] == "r" else text}], True
    message |= {"content": _parts(*words, *listed(fields.get("extended_content"))), "isError": is_error}
    beside = without(fields, *_ENVELOPE, "tool_call_id", "tool_name", "extended_content", name)
    return message, {**beside, **({name: without(result, "content")} if result else {})}


def _observed(result: JsonObject) -> list[JsonValue]:
    """Return the parts that the model is shown of a result of a tool, which some tools put words around."""
    parts = listed(result.get("content"))
    failed: list[JsonValue] = [{"type": "text", "text": _FAILED}] if result.get("is_error") is True else []
    if result.get("kind") == "TaskObservation":
        task = "\n".join(f"{name}: {result.get(key)}" for name, key in _TASK.items())
        return [{"type": "text", "text": task}, *failed, *parts]
    if result.get("kind") == "TerminalObservation":
        about, text = fields_of(result.get("metadata")), "".join(_text(fields_of(part), "text") for part in parts)
        text = f"{_text(about, 'prefix')}{text}{_text(about, 'suffix')}"
        text += "".join(f"\n[{words} {about[name]}]" for name, words in _COMMAND.items() if about.get(name))
        if (code := about.get("exit_code", -1)) != -1:
            text += f"\n[Command finished with exit code {code}]"
        return [*failed, {"type": "text", "text": text}]
    screenshot = result.get("screenshot_data")
    if isinstance(screenshot, str):
        kind = {"/": "image/jpeg", "R": "image/gif", "U": "image/webp"}.get(screenshot[:1], "image/png")
        parts = [*parts, {"type": "image", "data": screenshot, "mimeType": kind}]
    return [*failed, *parts]


_TASK = {"Task ID": "task_id", "Subagent": "subagent", "Status": "status"}
_COMMAND = {"working_dir": "Current working directory:", "py_interpreter_path": "Python interpreter:"}


def parse_openhands(rows: Sequence[kit.Row], notes: kit.Notes, take_all: bool) -> kit.ParsedSession | None:
    """Return the conversation of a state and its events. Raises `UnreadableFile` if the state is none."""
    about = rows[0].fields if rows[0].type == SESSION else {}
    state, meta, file = fields_of(about.get("data")), fields_of(about.get("meta")), _text(about, "file") or "the file"
    session_id = state.get("id")
    if not kit.is_name(session_id) or not isinstance(state.get("agent"), dict):
        raise UnreadableFile(f"{file} is not the state of a conversation of OpenHands; nothing was imported")
    above = about.get("above")
    parent = kit.TaskOf(above, session_id) if kit.is_name(above) and above != session_id else None
    notes.left_out["is the state of the conversation"] += 1
    bill = _bill(state)
    reading = _Reading(kit.Chain(session_id, notes), bill)
    for row in rows[1:]:
        reading.take(row)
    leaf = reading.leaf(state)
    reading.add(leaf)
    moments = [kit.read_time(event.fields.get("timestamp")) for event in reading.events]
    reading.chain.leaf = None if leaf is None else reading.places[leaf]
    if leaf is None and moments:
        # A leaf at no event is one here, too: an entry without words, above which there is nothing.
        empty = made_id(session_id, "head_is_empty")
        reading.chain.add(
            kit.plain_entry("openhands.empty_head", {}), rows[0].line, entry_id=empty, created_us=moments[-1]
        )
    elsewhere = {*map(_word, listed(about.get("billed")))}
    calls = [
        _alone(response, number, paid)
        for (response, number), paid in bill.items()
        if (response, number) not in reading.booked and response not in elsewhere
    ]
    stats = fields_of(fields_of(state.get("stats")).get("usage_to_metrics"))
    sums: JsonObject = {name: without(fields_of(value), *_LISTS, "response_latencies") for name, value in stats.items()}
    document: JsonObject = {
        "leafId": reading.chain.leaf,
        "state": {**without(state, "id", "stats"), "usage": sums},
        **({"meta": meta} if meta else {}),
    }
    session = kit.imported_session(
        session_id,
        FORMAT,
        file,
        document,
        notes,
        auto_title=kit.one_text(meta.get("title")),
        cwd=kit.one_text(fields_of(state.get("workspace")).get("working_dir")),
        created_us=kit.read_time(meta.get("created_at")) or next((moment for moment in moments if moment), None),
        parent=parent,
    )
    parsed = reading.chain.parsed(FORMAT, "1", session, is_rewritten=False)
    return replace(parsed, parent=parent, restates=True, earlier=reading.earlier, calls=tuple(calls))


def _alone(response: str, number: int, paid: _Paid) -> PaidCall:
    """Return a call whose response became no event: of a title, a question aside, or a sub-agent without a file."""
    call_id = made_id(FORMAT, response, *([str(number)] if number else []))
    call = call_of(
        read_reported(paid.reported), provider=paid.provider, model=paid.model, call_id=call_id, purpose=paid.purpose
    )
    return replace(call, at_us=paid.at_us)


read_openhands = partial(GatheredReader, parse_openhands)
