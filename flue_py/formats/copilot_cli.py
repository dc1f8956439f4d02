"""Session files of GitHub Copilot CLI."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.core.sessions import derived_id, made_id
from flue_py.core.usage import PaidCall, call_of, read_reported, usage_json
from flue_py.errors import UnreadableFile
from flue_py.formats import kit
from flue_py.formats.gathered import facts_beside
from flue_py.providers.base import fields_of, listed, objects_in, only, result_message

# Events stand in the order in which they happened, those of sub-agents among the others: each agent has a chain of its
# own. Parents do not help: the calls of a compaction name one that is not there. A rewind cuts the file, so that rows
# that were imported before stay as a branch.
#
# The numbers of a call stand in a row before that of its answer. docs/formats/copilot-cli.md lists the fields.

FORMAT = "copilot-cli"
_EVENTS = "events.jsonl"
_MAIN = ""
_PROVIDER = "github-copilot"
"""The provider of calls whose rows name none."""

_RECORD, _ANSWER, _SHUTDOWN = "session.usage_record", "assistant.message", "session.shutdown"
_MODEL_CALL = "model.model_call_success"
_REPEATS = frozenset({"assistant.turn_start", "assistant.turn_end", "tool.execution_start"})
_KNOWN = re.compile(r"abort$|(assistant|hook|mcp|model|permission|session|skill|subagent|system|tool|user)[._]")
_COUNTS = {"inputTokens": "prompt_tokens", "outputTokens": "completion_tokens", "cacheReadTokens": "cache_read_tokens",
           "cacheWriteTokens": "cache_write_tokens", "reasoningTokens": "reasoning_tokens"}  # fmt: skip
"""The numbers of a call, and names that say that the input has the cached part in it."""


def looks_like_copilot_cli(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a session of Copilot CLI."""
    rows = kit.first_rows(first_bytes)
    return any(row.get("type") == "session.start" and isinstance(row.get("data"), dict) for row in rows)


class _Agent(Struct):
    """The rows so far of the session itself, or of one of its sub-agents."""

    chain: kit.Chain
    parent: kit.TaskOf | None = None
    created_us: int | None = None
    completed_us: int | None = None
    texts: list[str] = field(default_factory=list)
    """The texts of the user."""

    calls: dict[str, tuple[PaidCall, JsonObject]] = field(default_factory=dict)
    """The calls without an answer so far, and their usage, by the name that the answer has for its call."""

    compacting: int | None = None
    """How many entries there were when a compaction began."""

    counts_calls: bool = False
    """Whether the calls of that compaction have rows of their own."""


class CopilotCliReader(kit.RowReader):
    """Reads a session file (see `Reader`)."""

    ready = 0

    def __init__(self, name: str = "the file") -> None:
        super().__init__(name)
        self._session_id = ""
        self._start: JsonObject = {}
        self._agents: dict[str, _Agent] = {}
        self._tools: dict[str, tuple[str, str]] = {}
        """The name of the tool of each call, and the session that called it."""

        self._provider = _PROVIDER
        self._told: dict[str, Counter[str]] = {}
        """The sums of the last shutdown, by model."""

        self._room, self._has_records = 1 << 26, False
        """How much of the texts of the user may still be repeated; whether each call has numbers of its own."""

    def feed_row(self, number: int, raw: bytes, fields: JsonObject) -> None:
        """Read a row."""
        data = fields_of(fields.get("data"))
        if not self._agents:
            self._begin(fields, data)
        name = fields.get("id")
        row = kit.Row(number, b"", fields, name if kit.is_name(name) else derived_id(self._session_id, number))
        agent = self._agent_of(row, data)
        if row.type == _RECORD:
            self._record(row, fields_of(data.get("usage")), agent)
        elif row.type in _REPEATS or (row.type.startswith("model.") and row.type != _MODEL_CALL):
            self._notes.left_out["repeats what other rows say"] += 1
        else:
            self._read(row, data, agent)

    def finish(self, *, take_all: bool) -> list[kit.SessionPart]:
        """Return the session, then those of its sub-agents. Raises `UnreadableFile`."""
        if not self._agents:
            raise UnreadableFile(f"{self._name} is not a session of Copilot CLI: it has no event; nothing was imported")
        return [self._part(key, agent) for key, agent in self._agents.items()]

    # the sessions

    def _begin(self, first: JsonObject, data: JsonObject) -> None:
        folder = Path(self.path).parent.name if self._name == _EVENTS else ""
        names = (data.get("sessionId"), folder, self._name.rpartition("/")[2].removesuffix(".jsonl"))
        self._session_id = next((name for name in names if kit.is_name(name)), "")
        if not self._session_id or "data" not in first or "id" not in first:
            raise UnreadableFile(f"{self._name} is not a session of Copilot CLI; nothing was imported")
        self._start = data if first["type"] == "session.start" else {}
        created_us = kit.read_time(data.get("startTime")) or kit.read_time(first.get("timestamp"))
        self._agents[_MAIN] = _Agent(kit.Chain(self._session_id, self._notes), created_us=created_us)

    def _agent_of(self, row: kit.Row, data: JsonObject) -> _Agent:
        """Return the agent of a row. Older rows of sub-agents name the call that began them alone."""
        name = row.fields.get("agentId") or data.get("parentToolCallId")
        if not isinstance(name, str) or not name:
            return self._agents[_MAIN]
        if name not in self._agents:
            asking = data.get("parentToolCallId") or data.get("toolCallId")
            asker = self._tools.get(str(asking), ("", self._session_id))[1]
            own = f"{asker}:{name}"
            chain = kit.Chain(own if kit.is_name(own) else made_id(asker, name), self._notes)
            task = kit.TaskOf(asker, name if kit.is_name(name) and len(name) <= 200 else derived_id(name))
            self._agents[name] = _Agent(chain, task, kit.read_time(row.fields.get("timestamp")))
        return self._agents[name]

    def _part(self, key: str, agent: _Agent) -> kit.SessionPart:
        about, is_main = _workspace(self.beside.get("workspace", b"")), key == _MAIN
        title, is_named = about.get("name") or about.get("summary"), about.get("user_named") == "true"
        part = agent.chain.parsed(
            FORMAT,
            self._name,
            {"start": self._start} if is_main and self._start else {},
            version=str(self._start.get("copilotVersion") or ""),
            auto_title=title if is_main and not is_named else None,
            cwd=kit.one_text(fields_of(self._start.get("context")).get("cwd")) or about.get("cwd"),
            created_us=agent.created_us,
            parent=agent.parent,
        )
        name, calls = title if is_main and is_named else None, tuple(call for call, _ in agent.calls.values())
        return replace(part, completed_us=agent.completed_us, name=name, calls=calls)

    # the rows

    def _read(self, row: kit.Row, data: JsonObject, agent: _Agent) -> None:
        content, sent = data.get("content"), data.get("transformedContent")
        if row.type == "user.message":
            pictures = _pictures(data)
            words = sent if isinstance(sent, str) else content
            parts: list[JsonValue] = [{"type": "text", "text": words}, *pictures]
            message: JsonObject = {"role": "user", "content": parts if pictures else words}
            data = without(data, "attachments") if pictures else data
            self._say(row, message, without(data, "transformedContent" if isinstance(sent, str) else "content"), agent)
            agent.texts += [content] if isinstance(content, str) else []
        elif row.type == "system.notification":
            self._say(row, {"role": "user", "content": content, "isMeta": True}, without(data, "content"), agent)
        elif row.type == _ANSWER:
            self._answer(row, data, agent)
        elif row.type == "tool.execution_complete":
            self._result(row, data, agent)
        elif row.type == "session.compaction_complete" and isinstance(data.get("summaryContent"), str):
            self._compact(row, data, agent)
        else:
            self._aside(row, data, agent)

    def _say(
        self, row: kit.Row, message: JsonObject, beside: JsonObject, agent: _Agent, calls: tuple[PaidCall, ...] = ()
    ) -> None:
        entry, extra = kit.message_entry(message, row.fields, row.line, self._notes)
        self._add(replace(entry, calls=calls), row, agent, {**beside, **extra} if entry.kind == MESSAGE else extra)

    def _answer(self, row: kit.Row, data: JsonObject, agent: _Agent) -> None:
        parts: list[JsonValue] = []
        thoughts, content = data.get("reasoningText"), data.get("content")
        if isinstance(thoughts, str) and thoughts:
            parts.append(kit.thought(thoughts))
        if content:
            parts.append({"type": "text", "text": content})
        for call in map(fields_of, listed(data.get("toolRequests"))):
            call_id, name = call.get("toolCallId"), call.get("name")
            parts.append({"type": "toolCall", "id": call_id, "name": name, "arguments": call.get("arguments")})
            self._tools[str(call_id)] = (str(name), agent.chain.session_id)
        message: JsonObject = {"role": "assistant", "content": parts}
        if isinstance(data.get("model"), str):
            message |= {"model": data["model"], "provider": self._provider}
        paid = agent.calls.pop(kit.one_text(data.get("apiCallId")) or "", None)
        if paid is not None:
            message |= {"provider": paid[0].provider, "model": paid[0].model, "usage": paid[1]}
        beside = without(data, "content", "reasoningText", "model")
        self._say(row, message, beside, agent, () if paid is None else paid[:1])

    def _result(self, row: kit.Row, data: JsonObject, agent: _Agent) -> None:
        result, error = fields_of(data.get("result")), fields_of(data.get("error"))
        call_id, content = data.get("toolCallId"), result.get("content", error.get("message", ""))
        name, _ = self._tools.get(str(call_id), ("unknown", ""))
        message = result_message(call_id, content, name, is_error=data.get("success") is not True)
        beside = without(data, "toolCallId", "success", "error" if not set(error) - {"message"} else "")
        self._say(row, message, {**beside, "result": without(result, "content")} if result else beside, agent)

    def _compact(self, row: kit.Row, data: JsonObject, agent: _Agent) -> None:
        """Emit a compaction: the program sends the texts of the user, the summary, and messages that came meanwhile."""
        since = [] if agent.compacting is None else agent.chain.entries[agent.compacting :]
        kept = next((entry.id for entry in since if entry.kind == MESSAGE), "")
        self._room -= sum(len(text) + 32 for text in agent.texts)
        if self._room < 0:
            self._notes.repair(row.line, "the summary is without the texts of the user, which are too long")
            agent.texts.clear()
        texts = "".join(f"<user_message>\n{text}\n</user_message>\n" for text in agent.texts)
        summary = f"The messages of the user so far:\n{texts}\n<summary>\n{data['summaryContent']}\n</summary>"
        before, used = data.get("preCompactionTokens"), fields_of(data.get("compactionTokensUsed"))
        details = without(data, "summaryContent")
        fields: JsonObject = {"summary": summary, "firstKeptEntryId": kept, "details": details}
        entry = kit.plain_entry(COMPACTION, {**fields, "tokensBefore": before if type(before) is int else 0})
        calls = (self._paid(row, used, COMPACTION, used.get("model")),) if used and not agent.counts_calls else ()
        agent.compacting = None
        self._add(replace(entry, calls=calls), row, agent, {})

    def _aside(self, row: kit.Row, data: JsonObject, agent: _Agent) -> None:
        """Emit a row that is not part of the conversation."""
        calls: Sequence[PaidCall] = ()
        if row.type == "session.compaction_start":
            agent.compacting, agent.counts_calls = len(agent.chain.entries), False
        elif row.type == _MODEL_CALL:
            data = without(data, "requestMessages", "requestSettings", "responseChunk")
            model = fields_of(data.get("modelCall")).get("model")
            calls, agent.counts_calls = [self._paid(row, fields_of(data.get("responseUsage")), COMPACTION, model)], True
        elif row.type == _SHUTDOWN:
            calls = list(self._unaccounted(row, fields_of(data.get("modelMetrics"))))
        elif row.type == "session.context_cleared":
            agent.chain.leaf = None
        elif row.type in ("subagent.completed", "subagent.failed"):
            done = self._agents.get(str(row.fields.get("agentId") or data.get("toolCallId")), agent)
            done.completed_us = kit.read_time(row.fields.get("timestamp")) if done.parent is not None else None
        if not _KNOWN.match(row.type):
            self._notes.unknown_kinds[row.type] += 1
        body = data or without(row.fields, "id", "parentId", "timestamp")
        entry = kit.plain_entry(kit.entry_kind("copilot_cli.", row.type), body)
        self._add(replace(entry, calls=tuple(calls)), row, agent, {})

    def _add(self, entry: NewEntry, row: kit.Row, agent: _Agent, beside: Mapping[str, JsonValue]) -> None:
        name = agent.chain.own_name(row, row.id, lambda number: derived_id(row.id, row.line, *range(number)))
        at = kit.read_time(row.fields.get("timestamp"))
        agent.chain.add(entry, row.line, beside=beside, entry_id=name, created_us=at)

    # the calls

    def _record(self, row: kit.Row, usage: JsonObject, agent: _Agent) -> None:
        """Note the numbers of a call. Forks have the same rows, so that the ids of these tell the calls apart."""
        self._provider, self._has_records = kit.one_text(usage.get("providerType")) or _PROVIDER, True
        at, call = kit.read_time(row.fields.get("timestamp")), self._paid(row, usage, "turn", usage.get("model"))
        name = kit.one_text(usage.get("apiCallId")) or row.id
        numbers = usage_json(read_reported(_translated(usage)))
        agent.calls[row.id if name in agent.calls else name] = replace(call, at_us=at), numbers
        self._notes.merged += 1

    def _paid(self, row: kit.Row, usage: JsonObject, purpose: str, model: JsonValue) -> PaidCall:
        reported = read_reported(_translated(usage))
        self._notes.repair(row.line, *reported.oddities)
        return call_of(reported, provider=self._provider, model=model, call_id=made_id(FORMAT, row.id), purpose=purpose)

    def _unaccounted(self, row: kit.Row, metrics: JsonObject) -> Iterator[PaidCall]:
        """Yield the calls that only the sums of a shutdown have: older versions write no numbers of each call."""
        for model, metric in metrics.items():
            sums, before = _numbers(fields_of(fields_of(metric).get("usage"))), self._told.get(model, Counter())
            # Some versions begin the sums anew when a session is resumed.
            is_anew = any(sums[name] < before[name] for name in _COUNTS)
            rest, self._told[model] = sums if is_anew else sums - before, sums
            if rest and not self._has_records:
                yield replace(self._paid(row, dict(rest), "turn", model), call_id=made_id(FORMAT, row.id, model))


read_copilot_cli = CopilotCliReader


def _translated(usage: JsonObject) -> JsonObject:
    """Return the numbers of a call under names that say that the input has the cached part in it."""
    return {ours: usage[name] for name, ours in _COUNTS.items() if name in usage} or usage


def _numbers(usage: JsonObject) -> Counter[str]:
    counts = ((name, usage.get(name)) for name in _COUNTS)
    return Counter({name: value for name, value in counts if type(value) is int and 0 < value < 1 << 53})


# The file beside a session: its name, and who gave it.


def _files_beside(path: Path) -> Mapping[str, Path]:
    return {"workspace": path.with_name("workspace.yaml")} if path.name == _EVENTS else {}


before_copilot_cli, beside_copilot_cli = facts_beside(_files_beside)


def _workspace(data: bytes) -> dict[str, str]:
    """Return the fields of a flat YAML file; of a text of several lines, the first one."""
    fields: dict[str, str] = {}
    for line in re.sub(r": [|>][+-]?\n +", ": ", data.decode(errors="replace")).splitlines():
        name, _, value = line.partition(": ")
        if value.startswith('"'):
            value = str(kit.object_in(f'{{"value": {value}}}'.encode()).get("value", value))
        fields[name] = value.strip("'").replace("''", "'") if value.startswith("'") else value
    return fields


def _pictures(data: JsonObject) -> list[JsonValue]:
    """Return the pictures that stand in a message of the user, if no other file is attached to it."""
    files = [file for _, file in objects_in(data.get("attachments"))]
    if any(file.get("type") != "blob" or not isinstance(file.get("data"), str) for file in files):
        return []
    return [{"type": "image", **only(file, "data", "mimeType")} for file in files]
