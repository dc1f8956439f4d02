"""Claude Code transcripts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import add
from typing import TypeGuard

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue, NamedTuple, without
from flue_py.core.kinds import COMPACTION, MESSAGE, message_text, spoken_text
from flue_py.core.sessions import derived_id
from flue_py.core.usage import SUMMED, PaidCall, ReportedUsage, UsageTotals, call_of, read_reported, usage_json
from flue_py.errors import InvalidEntry, UnreadableFile, shown
from flue_py.formats import kit
from flue_py.formats.gathered import facts_beside, facts_of_agent
from flue_py.providers.anthropic import part_from_block
from flue_py.providers.base import fields_of, listed, result_message

# The rows of a Claude Code transcript: how a file of them begins, and the fields that every row may have.

FORMAT = "claude-code"
PREFIX = "claude_code."
"""Before the type of a row that is not part of the conversation."""
UNREADABLE = "unreadable_"

CONSTANT = ("sessionId", "cwd", "version", "gitBranch", "userType", "entrypoint")
"""The fields that are the same all over a file."""
# Written between two turns only: the message before them is complete.
BETWEEN_TURNS = frozenset({"system", "summary", "custom-title", "last-prompt"})
KNOWN = BETWEEN_TURNS | {
    "permission-mode", "pr-link", "mode", "cost-state", "tools-used", "atis-latch", "frame-link",
    "api-request", "api-request-shape", "api-request-blob", "file-history-delta", "fork-context-ref", "bridge-session",
    "user", "assistant", "progress", "attachment", "file-history-snapshot", "queue-operation", "ai-title",
    "agent-name", "agent-color", "agent-setting", "worktree-state", "tag", "saved_hook_context", "content-replacement",
    "attribution-snapshot", "marble-origami-commit", "speculation-accept",
}  # fmt: skip
_BEGINNING = re.compile(rb"""\s*\{"parentUuid": ?(null|"[^"]{0,500}"),""")


def looks_like_claude_code(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a Claude Code transcript: other programs have such rows, too, not messages."""
    has_row, has_others = False, False
    for row in kit.first_rows(first_bytes):
        if not isinstance(row.get("type"), str):
            continue
        message = row.get("message")
        is_row = "parentUuid" in row and ("sessionId" in row or "isSidechain" in row) and "systemPayload" not in row
        if is_row and isinstance(message, dict) and row["type"] in ("user", "assistant"):
            if "content" in message:
                return True
            has_others = True
        has_row |= (
            is_row
            or (row["type"] == "file-history-snapshot" and "messageId" in row)
            or (row["type"] == "summary" and "leafUuid" in row)
            or (row["type"] in KNOWN and "sessionId" in row and "uuid" not in row and "payload" not in row)
        )
    if has_row:
        return not has_others
    # A first line longer than what was read: a prompt with an image, say.
    is_beginning = b"\n" not in first_bytes and _BEGINNING.match(first_bytes) is not None
    return is_beginning and b'"isSidechain":' in first_bytes[:2000]


class ClaudeRow(kit.RawRow):
    """One row, with the fields that every row may have. ``message`` is empty if it has none."""

    type: str
    fields: JsonObject
    uuid: str | None
    parent: str | None
    message: JsonObject
    has_message: bool
    lost_parent: bool = False


def read_claude_row(number: int, raw: bytes, notes: kit.Notes) -> ClaudeRow | None:
    """Return the row on a line; None for a blank line, and if it is not a row, which is noted. O(size)."""
    fields = kit.decode_row(number, raw, notes)
    if fields is None or not kit.has_type(number, fields, notes):
        return None
    uuid = fields.get("uuid")
    if isinstance(uuid, str) and uuid and not kit.is_name(uuid):
        notes.repair(number, f"{kit.unusable_id(uuid)}; it was given another")
    return _row_of(number, raw, str(fields["type"]), fields)


def _row_of(line: int, raw: bytes, kind: str, fields: JsonObject) -> ClaudeRow:
    uuid, parent, message = fields.get("uuid"), fields.get("parentUuid"), fields.get("message")
    own_id, above = uuid if kit.is_name(uuid) else None, parent if isinstance(parent, str) and parent else None
    return ClaudeRow(line, raw, kind, fields, own_id, above, fields_of(message), isinstance(message, dict))


def message_name(row: ClaudeRow) -> str:
    """Return the name that the rows of one message share; behind some gateways all messages share it."""
    for name in (row.message.get("id"), row.fields.get("requestId")):
        # A name of NULs alone is none.
        if isinstance(name, str) and (key := kit.one_text(name)):
            return key
    return f"row {row.uuid or row.line}"


def is_failure(row: ClaudeRow) -> bool:
    """Return whether a row says that a call failed: the program shows it as an answer, and never sends it."""
    return row.type == "assistant" and row.fields.get("isApiErrorMessage") is True


def sent_with(row: ClaudeRow) -> JsonObject | None:
    """Return the message that an attachment was sent as; None if it was not sent, as far as the row says.

    It has the words that a person typed while the model worked, and, in rows of newer versions, the text made of them.
    """
    about = fields_of(row.fields.get("attachment"))
    rendered = row.fields.get("rendered") or about.get("rendered")
    role = row.fields.get("renderedRole") or about.get("renderedRole")
    is_typed = about.get("type") == "queued_command"
    content = (about.get("prompt") if is_typed else None) or rendered
    if row.type != "attachment" or not content or not isinstance(content, (str, list)):
        return None
    is_prompt = is_typed and about.get("commandMode", "prompt") == "prompt"
    message: JsonObject = {"role": "system" if role == "system" and not is_typed else "user", "content": content}
    return message if is_prompt else {**message, "isMeta": True}


def is_result(part: JsonValue) -> TypeGuard[JsonObject]:
    """Return whether a part of a message is the answer of a tool."""
    return isinstance(part, dict) and part.get("type") == "tool_result"


def is_said(row: ClaudeRow) -> bool:
    """Return whether a row is a message of the user: then the message before it is complete.

    Text that the program adds as the user (the body of a skill, say) may stand between two calls of one message.
    """
    if row.type != "user" or not row.has_message or row.fields.get("isMeta") is True:
        return False
    return not any(map(is_result, listed(row.message.get("content"))))


def kept_rows(about: JsonObject) -> tuple[JsonValue, JsonValue]:
    """Return the first and the last row that a compaction keeps: as the ends of a segment, or in a list of all."""
    segment = about.get("preservedSegment")
    if isinstance(segment, dict):
        return segment.get("headUuid"), segment.get("tailUuid")
    uuids = listed(fields_of(about.get("preservedMessages")).get("uuids"))
    return (uuids[0], uuids[-1]) if uuids else (None, None)


def kind_of(row: ClaudeRow) -> str:
    """Return the kind of entry that a row outside the conversation becomes."""
    if is_failure(row):
        return kit.entry_kind(PREFIX, "api_error")
    subtype = row.fields.get("subtype")
    name = f"{row.type}.{subtype}" if row.type == "system" and isinstance(subtype, str) else row.type
    return kit.entry_kind(PREFIX, name)


# The sessions that the rows of one Claude Code transcript belong to: the main one, and those of its sub-agents.

_FORKED = re.compile(r"a(compact|side_question)-")
"""Agents of the program whose files begin with a copy of the session, its first prompt as well."""
REMEMBERED = 50_000
"""How many rows back a row may name a row that was merged into another one."""


class Node(Struct):
    """A step of the conversation: its first entry, and the last one, below which the next entries hang."""

    chain: Chain
    first: str | None = None
    tail: str | None = None
    after: Node | None = None
    """The latest compaction when this step began (of a compaction: itself)."""


class Group(Struct):
    """The rows of one message that may still grow, and the rows after them that belong to it."""

    node: Node
    key: str
    parent: Node | None
    lost_parent: bool
    rows: list[ClaudeRow]
    pending: list[ClaudeRow] = field(default_factory=list)
    pending_bytes: int = 0


class Chain(kit.Draft):
    """A session while its rows come: the main one of the file, or a task session.

    Of a part, ``began`` has the entries that called agents, by the names of those; ``calls`` were paid for a message
    that may not be complete.
    """

    id: str
    header: JsonObject
    parent: kit.TaskOf | None = None
    created_us: int | None = None
    open: Group | None = None
    tail: Node | None = None
    last_time: int | None = None
    boundary: JsonObject | None = None
    compacted: Node | None = None
    title_rank: int = -1
    has_messages: bool = False
    command: tuple[str | None, str] | None = (None, "")
    """The row of the last command, and its words; None once a person has said something."""

    def step(self, entry_id: str | None = None) -> Node:
        """Return a new step, which may be an entry that is there."""
        return Node(self, entry_id, entry_id, self.compacted)


class Chains:
    """The sessions of one file, by the rows that belong to them. ``session_id`` is that of the main one."""

    def __init__(self, file_name: str, session_id: str | None) -> None:
        self._file_name = file_name
        self._by_id: dict[str, Chain] = {}
        self._of_row: kit.Recent[Chain] = kit.Recent(REMEMBERED)
        self.session_id = session_id

    def __iter__(self) -> Iterator[Chain]:
        return iter(self._by_id.values())

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def of(self, row: ClaudeRow) -> Chain:
        """Return the session a row belongs to: the main one, or the task session of its agent or its root."""
        fields = row.fields
        # Rows of the program's own, of requests say, name the agent alone.
        if not (fields["isSidechain"] is True if "isSidechain" in fields else kit.is_name(fields.get("agentId"))):
            chain = self._chain(str(self.session_id), None)
        else:
            chain = self._of_task(row)
        if chain.created_us is None:
            chain.created_us = kit.read_moment(fields.get("timestamp"))
        if "cwd" not in chain.header and "sessionId" in fields:
            # Up to the row that names the folder, so that it does not matter how much of the file there is yet.
            chain.header.update((name, fields[name]) for name in CONSTANT if name in fields)
        return chain

    def asker_of(self, row: ClaudeRow) -> Chain | None:
        """Return the session that asked for an answer which a fork repeats; None for an answer of its own.

        The bill is that session's, whether its file comes before, after or never.
        """
        asker = row.fields.get("requestSessionId")
        if not kit.is_name(asker) or asker == self.session_id:
            return None
        chain = self._mentioned(row, asker, None)
        chain.header["sessionId"] = asker
        return chain

    def of_agent(self, row: ClaudeRow, agent: JsonValue) -> Chain:
        """Return the task session of an agent that a row tells of; the row's own session if it names none."""
        if not kit.is_name(agent):
            return self.of(row)
        return self._mentioned(row, kit.task_session_id(str(self.session_id), agent), agent)

    def _mentioned(self, row: ClaudeRow, session_id: str, agent: str | None) -> Chain:
        """Return a session by a row of another one, which says when and where, as long as none of its own did."""
        chain = self._chain(session_id, agent)
        if not chain.header:
            chain.created_us = kit.read_moment(row.fields.get("timestamp"))
            chain.header.update((name, row.fields[name]) for name in CONSTANT if name in row.fields)
        return chain

    def _of_task(self, row: ClaudeRow) -> Chain:
        agent = row.fields.get("agentId")
        chain = None if kit.is_name(agent) or row.parent is None else self._of_row.get(row.parent)
        if chain is None:
            name = agent if kit.is_name(agent) else row.uuid or derived_id(str(self.session_id), row.line)
            chain = self._chain(kit.task_session_id(str(self.session_id), name), name)
        if row.uuid is not None and not kit.is_name(agent):
            self._of_row.put(row.uuid, chain)
        return chain

    def _chain(self, session_id: str, agent: str | None) -> Chain:
        """Return a session by its id: a new one, of a task if it is an agent's, if there is none."""
        if session_id not in self._by_id:
            parent = None if agent is None else kit.TaskOf(str(self.session_id), agent[:200])
            self._by_id[session_id] = Chain(session_id, {}, parent)
        return self._by_id[session_id]

    def take_part(self, chain: Chain, agents: Mapping[str, str]) -> kit.SessionPart:
        """Return the entries that a session has gained since the last part was taken; ``agents`` are their titles."""
        version = kit.one_text(chain.header.get("version")) or ""
        header: JsonObject = {name: kit.one_text(text, 1000) for name, text in chain.header.items()}
        names = {title.is_made: title.title for title in chain.titles}
        if chain.parent is not None and (forked := _FORKED.match(chain.parent.task_id)):
            names[True] = forked[1].replace("_", " ")
        elif chain.parent is not None and (title := agents.get(chain.parent.task_id)):
            names[True] = title
        session = kit.imported_session(
            chain.id,
            FORMAT,
            self._file_name,
            {"version": version, "header": header},
            kit.Notes(),
            title=names.get(False),
            auto_title=names.get(True),
            cwd=chain.header.get("cwd"),
            created_us=chain.created_us,
            parent=chain.parent,
        )
        # Rows at the beginning that bear no time have that of the first one which does.
        chain.entries = [
            replace(entry, created_us=chain.created_us) if entry.created_us is None else entry
            for entry in chain.entries
        ]
        part = chain.take(FORMAT, version, session, chain.parent)
        return replace(part, may_overlap=True, is_payer=chain.parent is None and chain.id != self.session_id)


# The messages in the rows of a Claude Code transcript, in the engine's own shape.
#
# Parts become text, thinking, toolCall and image; a part of any other type is kept as it is. Usage becomes the
# reference's camelCase object: cache reads and writes are apart from the input already, and stay so.

_STOP_REASONS = {
    "end_turn": "stop", "stop_sequence": "stop", "tool_use": "toolUse", "max_tokens": "length", "refusal": "error",
}  # fmt: skip
_READ = frozenset({
    "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation",
})  # fmt: skip
_TEXTS = {"text": ("text",), "thinking": ("thinking",), "toolCall": ("id", "name")}
"""The texts that parts of ours have; and a field that they need not have."""
_OPTIONAL = {"thinking": "thinkingSignature", "toolCall": "arguments", "file": "filename"}
_TERMS = frozenset({"service_tier", "server_tool_use", "inference_geo", "speed"})
"""Fields beside the numbers that read the same in either shape."""


def parts_of(content: JsonValue) -> JsonValue:
    """Return the content of a message: a string as it is, a list with its parts translated, anything else as it is."""
    return [translated_part(part) for part in content] if isinstance(content, list) else content


def translated_part(part: JsonValue) -> JsonValue:
    """Return one part in the engine's shape. Fields without a place there keep their names."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind, ours = fields_of(part).get("type"), fields_of(part_from_block(part))
    our_kind = str(ours.get("type"))
    optional = _OPTIONAL.get(our_kind, "")
    if ours.get(optional) is None or (optional != "arguments" and not isinstance(ours[optional], str)):
        ours = without(ours, optional)
    texts = ("thinkingSignature",) if kind == "redacted_thinking" else _TEXTS.get(our_kind, ())
    # It may have the name of a part, and not the fields of one.
    is_whole = isinstance(kind, str) and kind not in ("toolCall", "file")
    is_whole = is_whole and all(isinstance(ours.get(name), str) for name in texts)
    if our_kind in ("image", "file"):
        media = (ours.get(name) for name in ("data", "mimeType", "url"))
        is_whole = is_whole and all(isinstance(value, (str, type(None))) for value in media)
    return ours if is_whole else {"type": "json", "value": part}


def assistant_message(messages: Sequence[JsonObject], usage: JsonObject | None) -> JsonObject:
    """Return the message that several rows make together: their parts in order, the rest from the last row.

    A tool call that a later row repeats counts once.
    """
    last = messages[-1]
    content: list[JsonValue] = []
    called: set[str] = set()
    plain: JsonValue = None
    for message in messages:
        parts = message.get("content")
        if isinstance(parts, list):
            content += _without_repeated_calls(parts, called)
        elif isinstance(parts, str) and parts:
            plain = parts
            content.append({"type": "text", "text": parts})
    answer: JsonObject = {"role": "assistant", "content": plain if len(messages) == 1 and plain else content}
    answer |= {"api": "anthropic-messages", "provider": "anthropic"}
    if isinstance(last.get("model"), str):
        answer["model"] = last["model"]
    if usage is not None:
        answer["usage"] = usage
    # The model stopped for the reason in the last row that has one.
    reasons = (reason for message in reversed(messages) if isinstance(reason := message.get("stop_reason"), str))
    if (reason := next(reasons, None)) is not None:
        answer["stopReason"] = _STOP_REASONS.get(reason, reason)
    if isinstance(last.get("id"), str):
        answer["responseId"] = last["id"]
    return answer


def _without_repeated_calls(parts: Iterable[JsonValue], called: set[str]) -> Iterable[JsonValue]:
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "tool_use" and isinstance(call := part.get("id"), str):
            if call in called:
                continue
            called.add(call)
        yield translated_part(part)


def usage_of(value: JsonValue) -> tuple[JsonObject, ReportedUsage] | None:
    """Return reported usage in the engine's shape, and how that reads; None if no tokens are reported.

    Odd numbers stay as they are.
    """
    if not isinstance(value, dict):
        return None
    usage = read_reported(value)
    if usage.oddities:
        return dict(value), usage
    if not usage.told:
        return None
    rest = {name: item for name, item in value.items() if name not in _READ and item is not None}
    shaped = {**usage_json(usage), **rest}
    if rest.keys() <= _TERMS:
        return shaped, replace(usage, told=usage.told | {"totalTokens"})
    return shaped, read_reported(shaped)


def row_usage(row: ClaudeRow) -> tuple[JsonObject, ReportedUsage] | None:
    """Return the usage that a row of an answer reports, as `usage_of`; None if it reports none."""
    usage, dollars = usage_of(row.message.get("usage")), row.fields.get("costUSD")
    if usage is not None and isinstance(dollars, (int, float)) and not isinstance(dollars, bool):
        charged: JsonObject = {**usage[0], "cost": {"total": dollars}}
        return charged, read_reported(charged)
    return usage


def tool_result_message(part: JsonObject, tool: str | None, details: JsonValue) -> JsonObject:
    """Return the answer of a tool as a message of its own."""
    call_id, content, is_error = part.get("tool_use_id"), parts_of(part.get("content")), part.get("is_error")
    content = content if isinstance(content, (str, list)) or content is None else [translated_part(content)]
    call_id, is_error = call_id if isinstance(call_id, str) else None, is_error if isinstance(is_error, bool) else None
    message = result_message(call_id, content, tool, is_error=is_error)
    return message if details is None else {**message, "details": details}


def tool_calls(message: JsonObject) -> Iterable[tuple[str, str]]:
    """Return id and name of the tools that a row's message calls."""
    for part in map(fields_of, listed(message.get("content"))):
        call, name = part.get("id"), part.get("name")
        if part.get("type") == "tool_use" and isinstance(call, str):
            yield call, name if isinstance(name, str) else ""


def is_answer(messages: Sequence[JsonObject]) -> bool:
    """Return whether the rows so far look like a whole answer: they end in text, and call no tool."""
    if any(True for message in messages for _ in tool_calls(message)):
        return False
    content = messages[-1].get("content")
    if isinstance(content, list):
        return bool(content) and fields_of(content[-1]).get("type") == "text"
    return isinstance(content, str)


# The entries of a Claude Code transcript while they are made: their ids, their times, and the fields beside them.

_PLACED = frozenset({"type", "uuid", "parentUuid", "logicalParentUuid", "timestamp", "isSidechain", "message"})
_CONSTANT = frozenset(CONSTANT)
_OF_COMMAND = re.compile(r"<command-(name|args)>(.*?)</command-\1>", re.DOTALL)
_TITLES = {"summary": ("summary", 0), "ai-title": ("aiTitle", 1), "custom-title": ("customTitle", 2)}
_FAILED = re.compile(r"API Error(?::| \()|Credit balance is too low$|Invalid API key ·|Claude AI usage limit reached")
"""How titles begin that a model was to write, and could not."""
_MERGED, _ENTRY, _ENTRY_OF_TASK = 0, 1, 2


class Entries:
    """Makes the entries of a file, and knows which rows are in which. ``ready`` counts those that can be returned.

    ``nodes`` are the steps that rows are in, as far back as they are remembered: rows that name one of them as their
    parent hang below its step.
    """

    def __init__(self, notes: kit.Notes) -> None:
        self._notes = notes
        self._ids = kit.IdTable()
        self.nodes: kit.Recent[Node] = kit.Recent(REMEMBERED)
        self._branch_titles: kit.Recent[tuple[Chain, kit.TitleChange]] = kit.Recent(1000)
        self.ready = 0

    # the rows, by their entries

    def meet(self, uuid: str) -> bool:
        """Take down a row; return whether there was one with its uuid before."""
        before = self._ids.put(uuid, _MERGED)
        if before is not None:
            self._ids.put(uuid, before)
        return before is not None

    def entry_as_step(self, chain: Chain, uuid: str) -> Node | None:
        """Return an entry of the main session, however far back, as a step to hang something below."""
        return chain.step(uuid) if chain.parent is None and self._ids.get(uuid) == _ENTRY else None

    def parent_of(self, chain: Chain, row: ClaudeRow) -> Node | None:
        """Return the step that a row names as its parent; None for a root, which is noted where the name was lost."""
        name = row.parent
        if name is None:
            return None
        node = self.nodes.get(name)
        if node is None:
            node = self.entry_as_step(chain, name)
            if node is None:
                if chain.parent is not None and chain.tail is None:
                    # An agent may go on below a row of the session whose task it is, which has a file of its own.
                    row.lost_parent = True
                    return None
                why = "which is missing" if self._ids.get(name) is None else "which was merged or left out too far back"
                return self._below_the_row_before(chain, row, why)
            self.nodes.put(name, node)
        elif node.chain is not chain:
            return self._below_the_row_before(chain, row, "which is in another session")
        return node

    def _below_the_row_before(self, chain: Chain, row: ClaudeRow, why: str) -> Node | None:
        """Return the step before a row whose parent is lost, so that earlier messages go on being above it."""
        row.lost_parent = True
        where = "it became a root" if chain.tail is None else "it was put below the row before"
        self._notes.repair(row.line, f"names the parent {shown(row.parent)}, {why}; {where}")
        return chain.tail

    def entry_of(self, chain: Chain, uuid: JsonValue) -> str | None:
        """Return the entry that a row became, or became part of."""
        if not isinstance(uuid, str):
            return None
        if self._ids.get(uuid) == _ENTRY:
            return uuid
        node = self.nodes.get(uuid)
        return node.first if node is not None and node.chain is chain else None

    # handing over

    def emit(
        self, node: Node, row: ClaudeRow, content: NewEntry, extra: JsonObject, *, below: Node | None, name: str = ""
    ) -> str:
        """Hand an entry over: below the end of a step, under the row's uuid, as the end of its own. Return its id."""
        chain, parent = node.chain, None if below is None else below.tail
        entry_id = name or row.uuid or derived_id(chain.id, row.line, row.raw.strip().decode(errors="replace"))
        moment = kit.read_moment(row.fields.get("timestamp"))
        if moment is None:
            moment = chain.last_time if chain.last_time is not None else chain.created_us
            if row.uuid is not None:
                self._notes.repair(row.line, f"row {row.uuid!r} has no readable timestamp")
        else:
            chain.last_time = moment
        if row.parent != parent and row.uuid is not None:
            extra["parentUuid"] = row.parent
        text, replaced = None, content.surrogates_replaced
        if extra:
            try:
                text, in_extra = kit.encode_decoded(extra, "extra")
                replaced += in_extra
            except InvalidEntry as error:
                self._notes.repair(row.line, f"{error}; what stands beside the message is left out")
        self._notes.surrogates_replaced += replaced
        entry = replace(content, id=entry_id, parent_id=parent, created_us=moment, extra=text)
        chain.entries.append(replace(entry, surrogates_replaced=replaced) if replaced else entry)
        chain.lines.append(row.line)
        if row.lost_parent and parent is None and row.parent is not None:
            chain.lost[entry_id] = row.parent
        if content.kind in (MESSAGE, COMPACTION):
            chain.leaves.append(entry_id)
            chain.has_messages = True
        if node.first is None:
            node.first = entry_id
        node.tail = entry_id
        chain.tail = node
        self._ids.put(entry_id, _ENTRY if chain.parent is None else _ENTRY_OF_TASK)
        if row.uuid is not None:
            self.nodes.put(row.uuid, node)
            named = self._branch_titles.get(row.uuid)
            if named is not None and named[0].title_rank <= 0:
                named[0].title_rank = 0
                named[0].titles.append(named[1])
        self.ready += 1
        return entry_id

    def name_session(self, chain: Chain, row: ClaudeRow, entry_id: str) -> None:
        """Take the title from a row that has one: that of a person counts more than that of a model."""
        if row.type not in _TITLES:
            return
        name, rank = _TITLES[row.type]
        title = (kit.one_text(row.fields.get(name), 500) or "").strip()
        if not title or (row.type == "summary" and _FAILED.match(title)):
            return
        change = kit.TitleChange(entry_id, title, is_made=row.type != "custom-title")
        leaf = row.fields.get("leafUuid")
        if row.type == "summary" and isinstance(leaf, str) and self._ids.get(leaf) is None:
            # The title of a branch that comes later, or of another session.
            self._branch_titles.put(leaf, (chain, change))
        elif rank >= chain.title_rank:
            chain.title_rank = rank
            chain.titles.append(change)

    def name_by_command(self, chain: Chain, row: ClaudeRow, entry_id: str) -> None:
        """Take the title from a command with a prompt of its own, in the row below it, if nothing was said before."""
        if chain.command is None:
            return
        text = message_text(row.message)
        if row.fields.get("isMeta") is not True:
            words = dict(_OF_COMMAND.findall(text))
            title = kit.one_text(f"{words.get('name', '')} {words.get('args', '')}", 500) or ""
            chain.command = None if spoken_text(text) else (row.uuid, " ".join(title.split()))
        elif chain.command[1] and row.parent == chain.command[0]:
            name = kit.TitleChange(entry_id, chain.command[1], is_made=True)
            chain.titles += [name] if chain.title_rank < 0 else []
            chain.command = None

    # their contents

    def user_message(self, row: ClaudeRow, message: JsonObject) -> NewEntry:
        """Return a message that the model did not write."""
        try:
            return kit.message_content(message)
        except InvalidEntry as error:
            return self.unreadable(row, error, {"message": row.fields.get("message")})

    def custom(self, row: ClaudeRow, kind: str, body: JsonValue) -> NewEntry:
        """Return an entry that is not a message."""
        try:
            return kit.stored_entry(kind, body, kit.encode_decoded)
        except InvalidEntry as error:
            return self.unreadable(row, error, {"line": row.text})

    def unreadable(self, row: ClaudeRow, error: InvalidEntry, body: JsonObject) -> NewEntry:
        """Return a row that cannot be of its type: kept whole, and noted."""
        kind = f"{UNREADABLE}message" if row.type in ("user", "assistant") else f"{UNREADABLE}entry"
        bodies: tuple[JsonObject, ...] = ({"type": row.type, **body}, {"type": row.type, "line": row.text})
        return kit.unreadable_entry(kind, error, self._notes, row.line, *bodies)

    @staticmethod
    def beside(chain: Chain, row: ClaudeRow) -> JsonObject:
        """Return the fields of a row that have no other place, but for those that are the same all over the file."""
        header = chain.header
        return {
            name: value
            for name, value in row.fields.items()
            if name not in _PLACED and not (name in _CONSTANT and header.get(name) == value)
        }


# The messages of the model in a Claude Code transcript, each of several rows, and their costs.

_COUNTS = ("input", "output", "cacheRead", "cacheWrite", "totalTokens")
_PROMPT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_OF_THE_PROVIDER = re.compile(r"msg_(bdrk_|vrtx_)?0[0-9A-Za-z]{20,}")
"""Ids of messages that no two answers have. Gateways make ids of their own, some the same one for all answers."""


class _Origin(NamedTuple):
    """The latest answer of a name: the values that its rows share, and the rows of another answer do not have.

    The last three are the tokens of its prompt, by `_PROMPT_COUNTS`; 0 where no row says so.
    """

    key: str
    request: str | None
    time: JsonValue
    fresh: int = 0
    read: int = 0
    written: int = 0

    def differs(self, row: _Origin) -> bool:
        """Return whether a row is of another answer: of another request, or later and of another prompt."""
        if row.request is not None and self.request is not None:
            return row.request != self.request
        return row.time != self.time and any(
            now and before and now != before for now, before in zip(row[3:], self[3:], strict=True)
        )


_AGENT_TOOLS = frozenset({"Agent", "Task", "SendMessage"})
_ENDED = re.compile(r"<tool-use-id>([^<]*)</tool-use-id>")


class Answers:
    """Puts the rows of a message together, and remembers the tools that were called and the usage that was counted."""

    def __init__(self, notes: kit.Notes, entries: Entries, chains: Chains) -> None:
        self._notes = notes
        self._entries = entries
        self._chains = chains
        self._origins: kit.Recent[_Origin] = kit.Recent(REMEMBERED)
        self.prompts: kit.Recent[bool] = kit.Recent(REMEMBERED)
        """Rows that a person wrote: a row that names one as its parent begins an answer."""
        self._spent: dict[str, tuple[int, ...]] = {}
        self._repeats = False
        self._agents: set[str] = set()
        self._had_agents = False
        self._tools: kit.Recent[tuple[str, Node]] = kit.Recent(REMEMBERED)
        self.counted: kit.Recent[UsageTotals] = kit.Recent(REMEMBERED)
        """The usage of each answer that was counted, by its key."""

    def tool(self, call: object) -> tuple[str, Node] | None:
        """Return the name of the tool that was called, and the step that called it, where that is remembered."""
        return self._tools.get(call) if isinstance(call, str) else None

    def key_of(self, row: ClaudeRow) -> str:
        """Return the key that tells the answer of a row from all others, in this file and elsewhere."""
        name, fields, usage = message_name(row), row.fields, fields_of(row.message.get("usage"))
        request = next((text for key in ("requestId", "requestRef") if (text := kit.one_text(fields.get(key)))), None)
        prompt = [kit.count_of(usage.get(part)) for part in _PROMPT_COUNTS]
        now, origin = _Origin(name, request, fields.get("timestamp"), *prompt), self._origins.get(name)
        # Newer versions write the rows of a session that is resumed once more, with new uuids and the old times.
        is_same = origin is not None and isinstance(now.time, str) and now[2:] == origin[2:]
        is_copy = is_same or _OF_THE_PROVIDER.fullmatch(name) is not None
        if origin is not None and not (origin.differs(now) or (self.begins(row) and not is_copy)):
            known = (count or before for count, before in zip(prompt, origin[3:], strict=True))
            self._origins.put(name, _Origin(origin.key, origin.request, origin.time, *known))
            return origin.key
        if origin is not None or not (name == request or _OF_THE_PROVIDER.fullmatch(name)):
            now = now._replace(key=f"{name}:{request or f'{now.time}:{sum(prompt)}'}")
        self._origins.put(name, now)
        return now.key

    def begins(self, row: ClaudeRow) -> bool:
        """Return whether a row of an answer stands right below a prompt: it is the first one."""
        return row.parent is not None and self.prompts.get(row.parent) is not None

    def extend(self, group: Group, row: ClaudeRow) -> None:
        """Take one more row of a message."""
        group.rows.append(row)
        if row.uuid is not None:
            self._entries.nodes.put(row.uuid, group.node)
        for call, name in tool_calls(row.message):
            self._tools.put(call, (name, group.node))
            if name in _AGENT_TOOLS:
                self._had_agents = True
                if len(self._agents) < REMEMBERED:
                    self._agents.add(call)

    def take_spent(self) -> tuple[dict[str, tuple[int, ...]], bool | None]:
        """Return the tokens of answers since the last time, by model, and whether nothing else was called meanwhile.

        Agents call models in files of their own. None if answers of another session were among them.
        """
        spent, self._spent = self._spent, {}
        repeats, self._repeats = self._repeats, False
        had_agents, self._had_agents = self._had_agents, bool(self._agents)
        return spent, None if repeats else not had_agents

    def end_agents(self, row: ClaudeRow) -> None:
        """Take note of agents that have ended, as their result says, or a notification of those in the background."""
        details, message = fields_of(row.fields.get("toolUseResult")), row.message.get("content")
        if isinstance(message, list) and details.get("status") == "completed":
            self._agents -= {str(part.get("tool_use_id")) for part in message if isinstance(part, dict)}
        text = row.fields.get("content") if row.type == "queue-operation" else None
        if fields_of(row.fields.get("origin")).get("kind") == "task-notification":
            text = message
        if isinstance(text, str) and text.startswith("<task-notification>") and (ended := _ENDED.search(text)):
            self._agents.discard(ended[1])

    def content(self, group: Group) -> tuple[NewEntry, JsonObject]:
        """Return the message that the rows make together, with its paid call, and the fields beside it."""
        last = group.rows[-1]
        messages = [row.message for row in group.rows]
        before = self.counted.get(group.key)
        usage, reported = self._own_usage(group) or (None, None)
        message = assistant_message(messages, usage)
        extra = self._entries.beside(group.node.chain, last)
        try:
            content = kit.message_content(message, reported)
        except InvalidEntry as error:
            return self._entries.unreadable(last, error, {"messages": list(messages)}), {}
        self.counted.put(group.key, content.usage if before is None else content.usage.plus(before))
        if reported is None:
            return content, extra
        is_nothing = reported.is_known and not any(content.usage)
        if is_nothing or message.get("model") == "<synthetic>":
            return replace(content, unpaid=True), extra
        model, call_id = kit.one_text(message.get("model"), 160) or "", group.key[:200]
        if before is not None:
            call_id = f"{call_id}:{group.rows[0].uuid or last.line}"
        paid = kit.with_call(
            content, reported, self._notes, last.line, provider="anthropic", model=model, call_id=call_id
        )
        asker = self._chains.asker_of(last)
        if asker is None:
            for call in paid.calls:
                used = (*call.usage[:4], call.cache_write_1h, call.searches)
                self._spent[call.model] = tuple(map(add, used, self._spent.get(call.model, (0,) * len(used))))
            return paid, extra
        self._repeats = True
        at = kit.read_moment(last.fields.get("timestamp"))
        asker.calls += [replace(call, at_us=at) for call in paid.calls]
        return replace(content, unpaid=True), extra

    def _own_usage(self, group: Group) -> tuple[JsonObject, ReportedUsage] | None:
        """Return the usage of the message, less that of rows of it that came long before and are counted already.

        It is that of the last row that reports any, as `usage_of`.
        """
        before = self.counted.get(group.key)
        usage = next((usage for row in reversed(group.rows) if (usage := row_usage(row)) is not None), None)
        if before is None:
            return usage
        self._notes.repair(
            group.rows[0].line,
            f"goes on with the message {shown(group.key)} after other rows; it is an entry of its own, and what was "
            "counted before is not counted again",
        )
        if usage is None:
            return None
        reported, read = usage
        own = read.totals.minus(before)
        names = {*read.told, *(("totalTokens",) if read.told else ())}
        rest: JsonObject = {name: max(0, count) for name, count in zip(_COUNTS, own[:5], strict=True) if name in names}
        for_an_hour = reported.get("cacheWrite1h")
        if isinstance(for_an_hour, int):
            rest["cacheWrite1h"] = min(for_an_hour, max(0, own.cache_write))
        less = {**reported, **rest}
        return less, read_reported(less)


# Calls that a Claude Code transcript reports, and that no row of it is the answer of.

_BILLS_COUNTS = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens",
           "cacheCreationEphemeral1hInputTokens", "webSearchRequests")  # fmt: skip
_VARIANT = re.compile(r"\[[^\]]*\]$")
"""The addition behind the name of a model in ``cost-state``, ``[1m]`` say, which answers do not have."""

_Tokens = tuple[int, ...]
_NONE: _Tokens = (0,) * len(_BILLS_COUNTS)


class Bills:
    """Finds the calls that ``cost-state`` rows count beyond the answers, and those of agents in ``progress`` rows."""

    def __init__(self, notes: kit.Notes, answers: Answers, chains: Chains) -> None:
        self._notes = notes
        self._answers = answers
        self._chains = chains
        self._before: Mapping[str, _Tokens] = {}
        self._dollars: Mapping[str, float] = {}
        self.compaction: str | None = None
        """The last compaction that the program made: the calls for it have no rows."""

        self._of_agents: dict[str, tuple[Chain, PaidCall]] = {}

    def read_state(self, chain: Chain, row: ClaudeRow) -> None:
        """Book the tokens that the program has counted since the last such row, and no answer in between reports."""
        reported = row.fields.get("modelUsage")
        if not isinstance(reported, dict):
            return
        state = {_VARIANT.sub("", model): _tokens(counts) for model, counts in reported.items()}
        before, self._before = self._before, state
        charged, self._dollars = self._dollars, _dollars(row, reported)
        compaction, self.compaction = self.compaction, None
        spent, is_whole = self._answers.take_spent()
        if is_whole is None:
            return  # a fork repeats the answers of another session, which pays for the rest as well
        place = compaction or str(row.line)
        name = f"{self._chains.session_id}:{place}"
        purpose = "background" if compaction is None else "compaction"
        if not is_whole or not spent.keys() <= state.keys():
            if compaction is not None:
                self._notes.repair(
                    row.line,
                    f"what the compaction {shown(place)} cost cannot be told from what agents did meanwhile; it is "
                    "booked as a call whose usage is unknown",
                )
                call = PaidCall(UsageTotals(), "anthropic", call_id=name[:200], purpose=purpose, is_unknown=True)
                chain.calls.append(replace(call, at_us=chain.last_time))
            return
        for model, tokens in state.items():
            rest = _beyond(tokens, before.get(model, _NONE), spent.get(model, _NONE))
            if any(rest):
                *kinds, for_an_hour, searches = rest
                usage: JsonObject = dict(zip(("input", "output", "cacheRead", "cacheWrite"), kinds, strict=True))
                usage["terms"] = dict((SUMMED,))
                dollars = self._dollars.get(model, -1) - charged.get(model, 0)
                if dollars >= 0 and model not in spent:
                    usage["cost"] = {"total": round(dollars, 12)}
                usage |= {"cacheWrite1h": min(for_an_hour, kinds[3])} if for_an_hour else {}
                usage |= {"server_tool_use": {"web_search_requests": searches}} if searches else {}
                call = call_of(
                    read_reported(usage),
                    provider="anthropic",
                    model=model[:160],
                    call_id=f"{name}:{model}"[:200],
                    purpose=purpose,
                )
                chain.calls.append(replace(call, at_us=chain.last_time))

    def read_progress(self, row: ClaudeRow) -> None:
        """Take down the call of an agent that a row of progress shows. The agent's own file may have it, too."""
        data = fields_of(row.fields.get("data"))
        shown_row = fields_of(data.get("message"))
        message = fields_of(shown_row.get("message"))
        usage = usage_of(message.get("usage")) if shown_row.get("type") == "assistant" else None
        if usage is None or message.get("model") == "<synthetic>":
            return
        inner = _row_of(row.line, row.raw, "assistant", {**without(row.fields, "uuid", "parentUuid"), **shown_row})
        key = self._answers.key_of(inner)
        model = kit.one_text(message.get("model"), 160) or ""
        call = call_of(usage[1], provider="anthropic", model=model, call_id=key[:200], purpose="task")
        at = kit.read_moment(shown_row.get("timestamp")) or kit.read_moment(row.fields.get("timestamp"))
        chain = self._chains.of_agent(row, data.get("agentId"))
        self._of_agents[key] = (chain, replace(call, at_us=at))

    def finish(self) -> None:
        """Book the calls of agents whose answers are not in this file."""
        for key, (chain, call) in self._of_agents.items():
            if self._answers.counted.get(key) is None and any(call.usage):
                chain.calls.append(call)
        self._of_agents = {}


def _dollars(row: ClaudeRow, reported: JsonObject) -> dict[str, float]:
    """Return the dollars that the program has charged for each model, if it knows the prices of all."""
    if row.fields.get("hasUnknownModelCost") is not False:
        return {}
    costs = {name: counts.get("costUSD") for name, counts in reported.items() if isinstance(counts, dict)}
    return {_VARIANT.sub("", name): cost for name, cost in costs.items() if isinstance(cost, float)}


def _tokens(counts: JsonValue) -> _Tokens:
    return tuple(kit.count_of(fields_of(counts).get(name)) for name in _BILLS_COUNTS)


def _beyond(now: _Tokens, before: _Tokens, spent: Iterable[int]) -> _Tokens:
    """Return the gain of a count beyond the tokens that were spent. One that went down was begun anew."""
    start = before if all(new >= old for new, old in zip(now, before, strict=True)) else _NONE
    return tuple(max(0, new - old - own) for new, old, own in zip(now, start, spent, strict=True))


# Claude Code transcripts: from the rows of a file to sessions ready to be stored.
#
# One message of the model lies in several rows, a row for each of its parts, and each repeats the usage so far. They
# become one entry with the usage of the last row that reports any. Its id is the uuid of its **last** row: a message
# that is still growing thereby changes its id, and never the content that is stored under one. All other entries have
# the uuid of their row; rows without one get an id derived from the session, the line and its content.
#
# The rows that follow a message in the file hang in one line below it: tool results, however many calls ran side by
# side, then progress and other rows. Only messages of the user, and the next one of the model, can begin a branch.
#
# A message is complete when a row comes that cannot be part of it. Until then it and the rows that belong to it are
# held back; at the end of a file a message that reads like a whole answer is returned all the same.

_MAX_EARLY = 10_000
_MAX_PENDING = 10_000
_MAX_PENDING_BYTES = 16 * 2**20
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class ClaudeCodeReader(kit.RowReader):
    """Reads a transcript row by row (see `Reader`). ``name`` is that of the file."""

    def __init__(self, name: str = "the file") -> None:
        super().__init__(name)
        stem = name.rpartition("/")[2].rpartition(".")[0]
        self._chains = Chains(name, stem if _UUID.fullmatch(stem) else None)
        # The rows before the first one that names the session.
        self._early: list[ClaudeRow] | None = [] if self._chains.session_id is None else None
        self._entries = Entries(self._notes)
        self._answers = Answers(self._notes, self._entries, self._chains)
        self._bills = Bills(self._notes, self._answers, self._chains)

    # the interface

    @property
    def ready(self) -> int:
        """How many entries can be taken."""
        return self._entries.ready

    def feed(self, number: int, raw: bytes) -> None:
        """Read a line."""
        row = read_claude_row(number, raw, self._notes)
        if row is None:
            return
        if self._early is None:
            self._read(row)
            return
        self._early.append(row)
        session_id = row.fields.get("sessionId")
        if kit.is_name(session_id):
            self._chains.session_id = session_id
            early, self._early = self._early, None
            for row in early:
                self._read(row)
        elif len(self._early) >= _MAX_EARLY:
            raise UnreadableFile(f"{self._name}: none of its first {_MAX_EARLY} rows names a session")

    def take(self) -> list[kit.SessionPart]:
        """Return the parts that are ready."""
        self._entries.ready = 0
        about = kit.object_in(self.beside.get("agent", b""))
        agent = self._name.rpartition("/")[2].removeprefix("agent-").removesuffix(".jsonl")
        agents = {agent: (kit.one_text(about.get("description"), 500) or "").strip()}
        return [self._chains.take_part(chain, agents) for chain in self._chains if chain.has_part]

    def finish(self, *, take_all: bool) -> list[kit.SessionPart]:
        """Return the last parts; a message that may still grow is held back, unless it reads like a whole answer."""
        if not self._chains:
            raise UnreadableFile(
                f"{self._name} is not a Claude Code transcript: no row of it belongs to a session; nothing was imported"
            )
        for chain in list(self._chains):
            group = chain.open
            if group is None:
                continue
            if take_all:
                self._close(chain)
                continue
            waiting = group.pending
            if is_answer([row.message for row in group.rows]):
                group.pending = []
                self._close(chain)
                chain.unfinished = frozenset(chain.leaves[-1:])
            else:
                # The tokens are paid, though the message is not there yet.
                content, _ = self._answers.content(group)
                at = kit.read_moment(group.rows[-1].fields.get("timestamp"))
                chain.calls += [replace(call, at_us=at or chain.last_time) for call in content.calls]
                waiting = [*group.rows, *waiting]
            for row in waiting:
                self._notes.hold_back(row.line)
        self._bills.finish()
        return self.take()

    # rows

    def _read(self, row: ClaudeRow) -> None:
        chain = self._chains.of(row)
        if row.uuid is not None and self._entries.meet(row.uuid):
            self._repeated(chain, row)
            return
        group = chain.open
        if row.type == "assistant" and row.has_message and not is_failure(row):
            key = self._answers.key_of(row)
            if group is None or group.key != key or self._answers.begins(row):
                self._close(chain)
                parent = self._entries.parent_of(chain, row)
                group = chain.open = Group(chain.step(), key, parent, row.lost_parent, [])
            self._answers.extend(group, row)
            return
        if group is not None:
            if row.type not in BETWEEN_TURNS and not is_said(row) and not is_failure(row):
                group.pending.append(row)
                group.pending_bytes += len(row.raw)
                if len(group.pending) > _MAX_PENDING or group.pending_bytes > _MAX_PENDING_BYTES:
                    self._close(chain)
                return
            self._close(chain)
        self._place(chain, row)

    def _repeated(self, chain: Chain, row: ClaudeRow) -> None:
        """A row that was there before. The rows that a compaction has kept are written again below its summary."""
        parent = None if row.parent is None else self._entries.nodes.get(row.parent)
        if row.uuid is not None and parent is not None and parent is chain.compacted:
            self._entries.nodes.put(row.uuid, parent)
            self._notes.left_out["written again after a compaction"] += 1
            return
        self._notes.skip(row.line, f"repeats the uuid {row.uuid!r} of an earlier row; the first one counts")

    def _close(self, chain: Chain) -> None:
        """Store the message that is complete now, and the rows that were waiting behind it."""
        group = chain.open
        if group is None:
            return
        chain.open = None
        last = group.rows[-1]
        last.lost_parent = group.lost_parent
        content, extra = self._answers.content(group)
        uuids = [row.uuid for row in group.rows if row.uuid is not None]
        if len(uuids) > 1:
            extra["rows"] = list(uuids)
        self._notes.merged += len(group.rows) - 1
        # The parent of a message is that of its first row; the others name each other.
        last.parent = group.rows[0].parent
        entry_id = self._entries.emit(group.node, last, content, extra, below=group.parent)
        if uuids[:-1]:
            chain.earlier[entry_id] = tuple(uuids[:-1])
        for row in group.pending:
            self._place(chain, row)

    def _place(self, chain: Chain, row: ClaudeRow) -> None:
        """Store a row that is not a message of the model."""
        message = row.message
        self._answers.end_agents(row)
        if row.type == "user" and row.has_message:
            content = message.get("content")
            if row.fields.get("isCompactSummary") is True:
                self._summary(chain, row, message)
            elif isinstance(content, list) and any(is_result(part) for part in content):
                self._results(chain, row, content)
            elif row.fields.get("isVisibleInTranscriptOnly") is True:
                self._aside(chain, row)
            else:
                if is_said(row) and row.uuid is not None:
                    self._answers.prompts.put(row.uuid, True)
                self._said(chain, row, {**message, "role": "user"}, is_added=row.fields.get("isMeta") is True)
        elif row.type == "system" and row.fields.get("subtype") == "compact_boundary":
            self._boundary(chain, row)
        elif (sent := sent_with(row)) is not None:
            self._said(chain, row, sent, is_added=True)
        else:
            self._aside(chain, row)

    def _said(self, chain: Chain, row: ClaudeRow, message: JsonObject, *, is_added: bool) -> None:
        """A message of the user begins a step of its own; one that comes into a turn belongs to the step before."""
        parent = self._entries.parent_of(chain, row)
        translated = {**message, "content": parts_of(message.get("content"))}
        if row.fields.get("isMeta") is True:
            translated["isMeta"] = True
        content = self._entries.user_message(row, translated)
        node = parent if is_added and parent is not None else chain.step()
        entry_id = self._entries.emit(node, row, content, self._entries.beside(chain, row), below=parent)
        self._entries.name_by_command(chain, row, entry_id)

    def _results(self, chain: Chain, row: ClaudeRow, content: list[JsonValue]) -> None:
        """The results of tools hang below the message that called them, whichever of its rows they name."""
        node = self._node_of_calls(chain, row, content) or self._entries.parent_of(chain, row) or chain.step()
        results = [part for part in content if is_result(part)]
        others = [part for part in content if not is_result(part)]
        details = row.fields.get("toolUseResult")
        entries = []
        for part in results:
            tool = self._answers.tool(part.get("tool_use_id"))
            alone = details if len(results) == 1 else None
            message = tool_result_message(part, tool[0] or None if tool else None, alone)
            entries.append(self._entries.user_message(row, message))
        if others:
            entries.append(self._entries.user_message(row, {"role": "user", "content": parts_of(others)}))
        rest = self._entries.beside(chain, row)
        if len(results) == 1:
            rest.pop("toolUseResult", None)
        if kit.is_name(agent := fields_of(details).get("agentId")) and node.first is not None:
            chain.began[agent[:200]] = node.first
        for number, result in enumerate(entries, start=1):
            is_last = number == len(entries)
            name = "" if is_last else f"{row.uuid or derived_id(chain.id, row.line)}:{number}"
            self._entries.emit(node, row, result, rest if is_last else {}, below=node, name=name)

    def _node_of_calls(self, chain: Chain, row: ClaudeRow, content: list[JsonValue]) -> Node | None:
        """Return the step of the message that made the calls; None if a compaction lies between, which stays."""
        own = None if row.parent is None else self._entries.nodes.get(row.parent)
        for part in content:
            tool = self._answers.tool(part.get("tool_use_id")) if isinstance(part, dict) else None
            if tool is not None and tool[1].chain is chain and tool[1].tail is not None:
                is_apart = own is not None and own.chain is chain and own.after is not tool[1].after
                return None if is_apart else tool[1]
        return None

    def _boundary(self, chain: Chain, row: ClaudeRow) -> None:
        """A compaction begins here: the rows above go on being above, though the row names no parent."""
        logical = row.fields.get("logicalParentUuid")
        parent = self._entries.parent_of(chain, row)
        if row.parent is None and isinstance(logical, str) and (parent := self._entries.nodes.get(logical)) is None:
            parent = self._entries.entry_as_step(chain, logical)
            # A fork of a compacted session begins here, and has the rows that were kept below the summary.
            if parent is None and chain.has_messages:
                self._notes.repair(
                    row.line, f"follows on {shown(logical)}, which is missing; it was put below the row before"
                )
        if parent is None or parent.chain is not chain:
            parent = chain.tail
        body = {**self._entries.beside(chain, row), "logicalParentUuid": logical}
        self._bills.compaction = row.uuid or str(row.line)
        chain.boundary = fields_of(row.fields.get("compactMetadata"))
        content = self._entries.custom(row, f"{PREFIX}compact_boundary", body)
        self._entries.emit(chain.step(), row, content, {}, below=parent)

    def _summary(self, chain: Chain, row: ClaudeRow, message: JsonObject) -> None:
        """The summary stands for the rows above the boundary, but for those that were kept."""
        parent = self._entries.parent_of(chain, row)
        about, chain.boundary = chain.boundary or {}, None
        head, tail = kept_rows(about)
        first = self._entries.entry_of(chain, head)
        if first is None and head is not None and chain.has_messages:
            self._notes.repair(row.line, f"keeps {shown(head)}, which is missing; nothing is kept")
        fields: JsonObject = {
            "summary": message_text(message),
            "firstKeptEntryId": first or "",
            "tokensBefore": kit.count_of(about.get("preTokens")),
        }
        if about:
            fields["details"] = about
        content = self._entries.custom(row, COMPACTION, fields)
        node = chain.step()
        self._entries.emit(node, row, content, self._entries.beside(chain, row), below=parent)
        chain.compacted = node.after = node
        if first is not None and isinstance(tail, str):
            self._entries.nodes.put(tail, node)

    def _aside(self, chain: Chain, row: ClaudeRow) -> None:
        """Put a row that is not part of the conversation below the row it names, or else the row before."""
        node = chain.tail if row.parent is None else self._entries.parent_of(chain, row)
        if row.type == "cost-state":
            self._bills.read_state(chain, row)
        elif row.type == "progress":
            self._bills.read_progress(row)
        elif row.type not in KNOWN:
            self._notes.unknown_kinds[row.type] += 1
        body = self._entries.beside(chain, row)
        if "message" in row.fields:
            body["message"] = row.fields["message"]
        node = node or chain.step()
        content = self._entries.custom(row, kind_of(row), body)
        entry_id = self._entries.emit(node, row, content, {}, below=node)
        self._entries.name_session(chain, row, entry_id)


read_claude_code = ClaudeCodeReader


before_claude_code, beside_claude_code = facts_beside(facts_of_agent)
