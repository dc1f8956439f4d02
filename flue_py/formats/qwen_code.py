"""Session files of Qwen Code."""

from __future__ import annotations

import re

from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION, EXCLUSION, message_text
from flue_py.core.sessions import NewSession, derived_id, made_id
from flue_py.core.usage import PaidCall, ReportedUsage, call_of, read_reported, usage_json
from flue_py.errors import UnreadableFile, shown
from flue_py.formats import kit
from flue_py.formats.gathered import facts_beside, facts_of_agent
from flue_py.providers.base import fields_of, listed
from flue_py.providers.gemini import messages_from_gemini

# Rows name their parents, and the last one is where the program is: a rewind goes on from an earlier row. A row is an
# entry under its uuid; of one that makes several entries, the last has it, so that the next row hangs below all.
#
# The numbers of a call stand in the row of the answer. The program also reports every call in a row of telemetry: such
# a report is booked where no answer is its own. docs/formats/qwen-code.md lists the fields that are kept.

FORMAT = "qwen-code"
COMPACTED = "The conversation before this point was compacted; its beginning follows."
"""The summary where the program begins the new history with another thing than a text of the user."""

_SPOKEN = frozenset({"user", "assistant", "tool_result"})
_CONSTANT = ("sessionId", "cwd", "version", "gitBranch")
_PLACED = ("type", "message", "model", "usageMetadata")
_BESIDE = frozenset({
    "session_artifact_event", "session_artifact_snapshot", "session_sources_snapshot",
    "managed_session_header_v1", "managed_session_event_v1", "managed_session_commit_v1",
})  # fmt: skip
"""Rows that the program does not count among those of the conversation: it never goes on from one."""

_BEGINNING = re.compile(rb'\{"uuid": ?"[^"]{1,200}"[^{}]*"message": ?\{"role": ?"user", ?"parts": ?\[')
_COUNTS = {"prompt": "input", "candidates": "output", "cachedContent": "cached_content", "thoughts": "thoughts",
           "total": "total"}  # fmt: skip
"""The beginnings of the names of numbers in rows of answers, and of the same ones in reports."""

_OF_A_TURN = "########"
"""The mark in the names of calls whose answer may have a row."""


def looks_like_qwen_code(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a session of Qwen Code, or of one of its sub-agents."""
    for row in kit.first_rows(first_bytes):
        is_row = "uuid" in row and "sessionId" in row and row.get("type") in (*_SPOKEN, "system")
        if is_row and ("systemPayload" in row or isinstance(fields_of(row.get("message")).get("parts"), list)):
            return True
    # A first line longer than the bytes that were read.
    return b"\n" not in first_bytes and _BEGINNING.match(first_bytes) is not None


def usage_of(reported: JsonObject) -> ReportedUsage:
    """Return usage by our rules, given the numbers of the program, which have the names of the Gemini API.

    Of most providers the candidates there include the thoughts; the total tells. A 0 of the cache, of thoughts or of
    all is written also where the provider said nothing.
    """
    unsaid = ("cachedContentTokenCount", "thoughtsTokenCount", "totalTokenCount")
    counts = {name: value for name, value in reported.items() if value != 0 or name not in unsaid}
    prompt, output, thoughts = (counts.get(f"{name}TokenCount") for name in ("prompt", "candidates", "thoughts"))
    if type(prompt) is int and type(output) is int and type(thoughts) is int and 0 < thoughts <= output:
        total = counts.get("totalTokenCount")
        if type(total) is not int or total < prompt + output + thoughts:
            counts["candidatesTokenCount"] = output - thoughts
    return read_reported(counts)


class QwenCodeReader(kit.RowReader):
    """Reads a session file row by row (see `Reader`). ``name`` is that of the file."""

    def __init__(self, name: str = "the file") -> None:
        super().__init__(name)
        self._about: JsonObject = {}
        """The facts on a sub-agent in the file beside its own."""

        self._chain = kit.Chain("", self._notes)
        self._draft = kit.Draft()
        self._session: NewSession | None = None
        self._parent: kit.TaskOf | None = None
        self._header: JsonObject = {}
        self._last_time: int | None = None
        self._payer, self._is_copied = "", False
        self._repeated: list[PaidCall] = []
        self._waiting: list[PaidCall] = []
        """Reported calls of a turn, until the row of the answer comes."""

        self._prompt: tuple[str, str] | None = None
        """The message that a person typed, if nothing was said since: its entry, and its text."""

    @property
    def ready(self) -> int:
        """How many entries can be taken."""
        return len(self._chain.entries)

    def feed_row(self, number: int, raw: bytes, fields: JsonObject) -> None:
        """Read a row."""
        if self._session is None:
            self._session = self._begun(fields)
        row = kit.Row(number, raw, fields)
        is_own, moment = self._place(row), kit.read_time(fields.get("timestamp"))
        self._last_time = moment if moment is not None else self._last_time
        source = fields_of(fields.get("forkedFrom")).get("sessionId")
        self._is_copied = kit.is_name(source) and source != self._chain.session_id
        self._payer = str(source) if self._is_copied else self._payer
        subtype, payload = fields.get("subtype"), fields_of(fields.get("systemPayload"))
        content, contents = fields_of(fields.get("message")), payload.get("compressedHistory")
        # An answer without a part has its numbers alone: the words of a sub-agent come in the next row.
        is_said = row.type in _SPOKEN and content.get("parts") != [] and subtype != "realtime_message"
        if is_own and is_said and content:
            self._say(row, content)
        elif is_own and subtype == "chat_compression" and isinstance(contents, list):
            self._compact(row, payload, contents)
        else:
            self._aside(row, payload)
        if is_own and not (isinstance(subtype, str) and subtype in _BESIDE):
            self._draft.leaves.append(row.id)

    def take(self) -> list[kit.SessionPart]:
        """Return the part that is ready."""
        session, draft = self._session, self._draft
        draft.entries, self._chain.entries = self._chain.entries, []
        if session is None or not draft.has_part:
            return []
        names = {title.is_made: title.title for title in draft.titles}
        session = replace(session, title=names.get(False), auto_title=names.get(True))
        part = draft.take(FORMAT, str(self._header.get("version") or ""), session, self._parent)
        is_over = self._parent is not None and self._about.get("status") == "completed"
        own = replace(part, completed_us=kit.read_time(self._about.get("lastUpdatedAt")) if is_over else None)
        calls, self._repeated = self._repeated, []
        return [own, *kit.payer_part(self._payer, own, self._name, calls)]

    def finish(self, *, take_all: bool) -> list[kit.SessionPart]:
        """Return the last part: a row is complete, so that nothing is held back. Raises `UnreadableFile`."""
        if self._session is None:
            raise UnreadableFile(f"{self._name} is not a session of Qwen Code: it has no row; nothing was imported")
        # Should an answer come, it replaces the report.
        self._draft.calls += [] if self._is_copied else self._waiting
        return self.take()

    # where rows stand

    def _begun(self, first: JsonObject) -> NewSession:
        self._about = kit.decode_row(1, self.beside.get("agent", b""), kit.Notes()) or {}
        session_id: JsonValue = first.get("sessionId")
        if not kit.is_name(session_id):
            session_id = self._name.rpartition("/")[2].removesuffix(".jsonl")
        if not kit.is_name(session_id):
            raise UnreadableFile(f"{self._name}: neither its first row nor its name is the id of a session")
        agent = first.get("agentId")
        if first.get("isSidechain") is True and kit.is_name(agent):
            above = self._about.get("parentAgentId")
            asker = kit.task_session_id(session_id, above) if kit.is_name(above) else session_id
            self._parent = kit.TaskOf(asker, agent[:200])
            session_id = kit.task_session_id(session_id, agent)
        self._chain.session_id = session_id
        self._header = {name: kit.one_text(first[name], 1000) for name in _CONSTANT if name in first}
        about: JsonObject = {"header": self._header, **({"agent": self._about} if self._about else {})}
        cwd, began_us = kit.one_text(first.get("cwd")), kit.read_time(first.get("timestamp"))
        return kit.imported_session(
            session_id, FORMAT, self._name, about, self._notes, cwd=cwd, created_us=began_us, parent=self._parent
        )

    def _place(self, row: kit.Row) -> bool:
        """Give a row its id and its parent, the row before if it names none; return whether the id is its own."""
        uuid, parent, known = row.fields.get("uuid"), row.fields.get("parentUuid"), self._chain.lines
        row.parent = parent if isinstance(parent, str) and parent else None
        is_own = kit.is_name(uuid) and uuid not in known
        row.id = str(uuid) if is_own else derived_id(self._chain.session_id, row.line, row.text)
        if not is_own:
            why = f"repeats the uuid {shown(uuid)}" if kit.is_name(uuid) else kit.unusable_id(uuid)
            self._notes.repair(row.line, f"{why}; it is kept under another, outside the context")
            row.parent = row.parent or self._chain.leaf
        if row.parent is not None and row.parent not in known:
            self._notes.repair(row.line, f"names the parent {shown(row.parent)}, which is not before it: it is a root")
            row.lost_parent, row.parent = row.parent, None
        return is_own

    def _emit(self, row: kit.Row, entry: NewEntry, beside: JsonObject, number: int | None = None) -> None:
        """Hand an entry over, below the one before it of the row: under the row's id, or one with a number."""
        name = row.id if number is None else made_id(self._chain.session_id, row.id, str(number))
        if entry.calls and self._is_copied:
            self._repeated += [replace(call, at_us=self._last_time) for call in entry.calls]
            entry = replace(entry, calls=(), unpaid=True)
        self._chain.leaf = row.parent
        row.parent = self._chain.add(entry, row.line, beside=beside, entry_id=name, created_us=self._last_time)
        self._draft.lines.append(row.line)
        if row.lost_parent is not None:
            self._draft.lost[name], row.lost_parent = row.lost_parent, None

    def _rest(self, row: kit.Row, *placed: str) -> JsonObject:
        """Return the fields of a row that have no other place, but for those that are the same all over the file."""
        same = [name for name, value in self._header.items() if row.fields.get(name) == value]
        return without(row.fields, "uuid", "parentUuid", "timestamp", *same, *placed)

    # what rows say

    def _say(self, row: kit.Row, content: JsonObject) -> None:
        """Emit the messages of a row: several where a user's has results of several tools."""
        is_answer = row.type == "assistant"
        messages = _messages({**content, "role": "model" if is_answer else "user"})
        for number, (message, beside) in enumerate(messages, 1 - len(messages)):
            message.update(self._answer(row, message) if is_answer else {})
            entry, extra = kit.message_entry(message, row.fields["message"], row.line, self._notes)
            extra = {**beside, **extra} if number else {**self._rest(row, *_PLACED), **beside, **extra}
            self._emit(row, kit.with_response(entry, FORMAT, row.id), extra, number or None)
        self._prompt = None
        if row.type == "user" and "subtype" not in row.fields:
            self._prompt = (row.id, message_text(messages[-1][0]))

    def _answer(self, row: kit.Row, message: JsonObject) -> JsonObject:
        """Return the model and the usage of an answer, and note the sub-agents that it calls."""
        for part in map(fields_of, listed(message.get("content"))):
            if part.get("type") == "toolCall" and part.get("name") == "agent" and isinstance(part.get("id"), str):
                kind = kit.one_text(fields_of(part.get("arguments")).get("subagent_type")) or "general-purpose"
                self._draft.began[f"{kind}-{part['id']}"[:200]] = row.id
        call, usage = self._paid(row)
        model: JsonObject = {"model": call.model} if call.model else {}
        return {**model, "usage": usage_json(usage)} if usage.told else model

    def _paid(self, row: kit.Row) -> tuple[PaidCall, ReportedUsage]:
        """Return the call of an answer, whose report does not wait any more."""
        usage = usage_of(fields_of(row.fields.get("usageMetadata")))
        self._notes.repair(row.line, *usage.oddities)
        if usage.told and self._waiting:
            # A report before that of the answer is of one that the program did not take: it asked again.
            *others, own = sorted(self._waiting, key=lambda call: call.usage == usage.totals)
            (self._repeated if self._is_copied else self._draft.calls).extend(others)
            self._draft.settles[row.id] = (str(own.call_id),)
            self._waiting = []
        model = self._about.get("model") or fields_of(self._about.get("persistedCliFlags")).get("model")
        return _call(row, usage, row.fields.get("model", model), "turn"), usage

    def _compact(self, row: kit.Row, payload: JsonObject, contents: list[JsonValue]) -> None:
        """Emit the list of messages that the program goes on with: a summary, and those that the compaction keeps."""
        messages = [pair for content in contents for pair in _messages(fields_of(content))]
        summary, self._prompt = COMPACTED, None
        if messages and messages[0][0]["role"] == "user" and (text := message_text(messages[0][0])):
            summary, messages = text, messages[1:]
        for number, (message, beside) in enumerate(messages, 1):
            entry, extra = kit.message_entry(message, message, row.line, self._notes)
            self._emit(row, replace(entry, calls=(), unpaid=True), {**beside, **extra}, number)
        fields: JsonObject = {
            "summary": summary,
            "firstKeptEntryId": made_id(self._chain.session_id, row.id, "1") if messages else "",
            "tokensBefore": kit.count_of(fields_of(payload.get("info")).get("originalTokenCount")),
            "details": without(payload, "compressedHistory"),
        }
        self._emit(row, kit.plain_entry(COMPACTION, fields), self._rest(row, *_PLACED, "systemPayload"))

    def _aside(self, row: kit.Row, payload: JsonObject) -> None:
        """Emit a row that the program does not send."""
        subtype, body = row.fields.get("subtype"), self._rest(row)
        if row.type not in (*_SPOKEN, "system"):
            self._notes.unknown_kinds[row.type] += 1
        kind = kit.entry_kind("qwen_code.", subtype if isinstance(subtype, str) and subtype else row.type)
        if subtype == "slash_command":
            if self._prompt is not None and _takes_back(payload, self._prompt[1]):
                kind, body = EXCLUSION, {"entryId": self._prompt[0], "row": body}
            self._prompt = None
        entry = kit.plain_entry(kind, body)
        if subtype == "ui_telemetry":
            entry = replace(entry, calls=self._reported(row, fields_of(payload.get("uiEvent"))))
        elif row.type == "assistant" and (call := self._paid(row)[0]).told:
            entry = replace(entry, calls=(call,))
        self._emit(row, entry, {})
        title = (kit.one_text(payload.get("customTitle"), 500) or "").strip()
        if subtype == "custom_title" and title:
            self._draft.titles.append(kit.TitleChange(row.id, title, is_made=payload.get("titleSource") == "auto"))

    def _reported(self, row: kit.Row, event: JsonObject) -> tuple[PaidCall, ...]:
        """Return the call of a report, unless an answer has it or may get it, in this file or in that of an agent."""
        if event.get("event.name") != "qwen-code.api_response" or event.get("subagent_task_name") is not None:
            return ()
        usage = usage_of({f"{name}TokenCount": event.get(f"{field}_token_count") for name, field in _COUNTS.items()})
        source = kit.one_text(event.get("prompt_id")) or ""
        if _OF_A_TURN in source:
            self._waiting.append(replace(_call(row, usage, event.get("model"), "turn"), at_us=self._last_time))
            return ()
        return (_call(row, usage, event.get("model"), COMPACTION if source.startswith("compress-") else "background"),)


read_qwen_code = QwenCodeReader


before_qwen_code, beside_qwen_code = facts_beside(facts_of_agent)


def _call(row: kit.Row, usage: ReportedUsage, model: JsonValue, purpose: str) -> PaidCall:
    # Forks repeat rows with their uuids.
    return call_of(usage, model=model, call_id=made_id(FORMAT, row.id), purpose=purpose)


def _messages(content: JsonObject) -> list[tuple[JsonObject, JsonObject]]:
    """Return the messages of a content of the Gemini API, each with the fields for its ``extra``."""
    pairs = messages_from_gemini({**content, "parts": listed(content.get("parts"))})
    return [(without(message, "provider"), beside) for message, beside in pairs]


def _takes_back(payload: JsonObject, text: str) -> bool:
    """Return whether the program answered a command by itself: what was typed is then not sent."""
    items = listed(payload.get("outputHistoryItems"))
    is_shown = bool(items) and all(fields_of(item).get("type") == "assistant" for item in items)
    is_answered = payload.get("phase") == "result" and payload.get("sentToModel") is not True
    return is_answered and is_shown and payload.get("rawCommand") == text
