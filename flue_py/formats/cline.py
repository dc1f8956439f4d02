"""Sessions of Cline's command line, and tasks of the editor extensions of its family: Cline, Roo Code and Kilo."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from os.path import exists
from pathlib import Path, PurePath

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import BASE
from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION, message_text
from flue_py.core.sessions import made_id
from flue_py.errors import UnreadableFile
from flue_py.formats import kit
from flue_py.formats.gathered import facts_beside
from flue_py.providers.base import fields_of, objects_in, only

# A document is a list of Anthropic's messages that is written anew each time. Other files stand beside it: the header
# of a session and its compaction, or the screen of a task, which has the tokens, and says where the list was cut.
#
# An entry's id is made of the messages before it and its own words. It stays when the program gives a message another
# id, or adds its tokens later; a list that was cut or changed is a branch. docs/formats/cline.md lists the fields.

FORMAT = "cline"
HISTORY, SCREEN = "api_conversation_history.json", "ui_messages.json"
"""The names of a task's document, and of that of its screen, which is read in its place if that is lost."""

CUT = "Messages before this point are not sent any more."
"""The summary of a compaction without one, which shows none."""

_ENDING, _COMPACTED = ".messages.json", ".compaction.json"
_SIGN = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+,\s*"updated_at"[^{}\[\]]{0,300}"agent"')
_CLINE, _OF_OTHERS = re.compile(r"saoudrizwan\."), re.compile(r"rooveterinaryinc\.|kilocode\.")
_CLINE_FIELDS = frozenset({"modelInfo", "lastCheckpointHash"})
"""The fields that tell a task of Cline itself, wherever it lies. Its input does not include the tokens that were read
from the cache, or written to it."""

_WRAPPED = re.compile(r'<user_input mode="([a-z]+)">(.*)</user_input>', re.DOTALL)
_FOLDER = re.compile(r"# Current Work(?:ing|space) Directory \(([^()\n]+)\) Files")
_LONGEST_TITLE = 120
_TOKENS = {
    "inputTokens": "input", "tokensIn": "input", "prompt": "input",
    "outputTokens": "output", "tokensOut": "output", "completion": "output",
    "cacheReadTokens": "cacheRead", "cacheReads": "cacheRead", "cached": "cacheRead",
    "cacheWriteTokens": "cacheWrite", "cacheWrites": "cacheWrite",
}  # fmt: skip
"""The program's names of numbers of tokens, and ours."""

_SENT = frozenset({"text", "image", "document", "file", "search_result"})
"""The types of the parts of a tool's result. A list of other values is sent as JSON."""

_SCREEN_SIGN = re.compile(rb'\s*\[\s*\{\s*"ts"\s*:')
_SHOWN = {"task": "user", "user_feedback": "user", "text": "assistant", "completion_result": "assistant",
          "followup": "assistant", "plan_mode_respond": "assistant"}  # fmt: skip
"""The rows of a screen that were said, and by whom."""


def looks_like_cline(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be a session of the command line, or a task of an extension."""
    name = PurePath(path_name.replace("\\", "/")).name
    if name == HISTORY:
        return head.lstrip().startswith(b"[")
    if name == SCREEN:
        return bool(_SCREEN_SIGN.match(head)) and not exists(PurePath(path_name).with_name(HISTORY))
    return not name.endswith(_COMPACTED) and bool(_SIGN.match(head))


def files_beside(path: Path) -> Mapping[str, Path]:
    """Return the files that say more about a document, by their kind."""
    if path.name in (HISTORY, SCREEN):
        return {"screen": path.with_name(SCREEN), "task": path.with_name("history_item.json")}
    # A sub-agent has no header of its own: its folder is that of the session.
    compacted = path.name.removesuffix(_ENDING) + _COMPACTED
    return {"header": path.with_name(f"{path.parent.name}.json"), "compaction": path.with_name(compacted)}


class ClineReader(kit.DocumentReader):
    """Reads a document (see `Reader`), given its path and the files beside it, by their kind."""

    def __init__(self, name: str = "the file") -> None:
        super().__init__(lambda data, name: (parse_cline(data, name, self.path, self.beside),), name)


read_cline = ClineReader


before_cline, beside_cline = facts_beside(files_beside)


def parse_cline(data: bytes, name: str, path: str, beside: Mapping[str, bytes]) -> kit.SessionPart:
    """Return the session in a document, given its path and the files beside it. Raises `UnreadableFile`. O(size)."""
    notes, values = kit.Notes("item"), dict[str, JsonValue]()
    for kind, raw in beside.items():
        try:
            values[kind] = kit.read_document(raw, notes, f"the {kind} beside it")
        except UnreadableFile as error:
            notes.repair(0, str(error).removesuffix("; nothing was imported"))
    if data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        return _task(kit.read_items(data, notes, name, ()), name, path, values, notes)
    return _session(kit.read_object(data, notes, name), name, values, notes)


def _session(document: JsonObject, name: str, beside: JsonObject, notes: kit.Notes) -> kit.SessionPart:
    """Return a session of the command line."""
    session_id, header = document.get("sessionId"), fields_of(beside.get("header"))
    if not kit.is_name(session_id) or not isinstance(document.get("messages"), list):
        raise UnreadableFile(f"{name} is no session of Cline: it has no id or no messages; nothing was imported")
    items, state = kit.items_of(document["messages"], notes), fields_of(beside.get("compaction"))
    reading, count = _Reading(kit.Chain(session_id, notes)), state.get("source_message_count")
    for place, item in enumerate(items, 1):
        reading.read(item)
        if place == count:
            reading.compact(state, items[:place])
    if state and (type(count) is not int or not 0 < count <= len(items)):
        notes.repair(0, "the compaction beside it is of another list; the context has all messages")
    title, about = None, without(document, "messages", "updated_at", "sessionId", "version")
    if header.get("session_id") == session_id:
        title, about["header"] = fields_of(header.get("metadata")).get("title"), header
    title = kit.one_text(title, _LONGEST_TITLE) or ""
    prompts = {_first_line(message) for message in ({"content": header.get("prompt")}, *(item.value for item in items))}
    is_made = not title or title in prompts or title.endswith(" (fork)")
    parent = fields_of(document.get("origin")).get("parentThreadId")
    parsed = reading.parsed(name, parent, about, title if is_made else "", header.get("cwd"))
    return replace(parsed, name=title if not is_made else None)


def _task(items: kit.Items, name: str, path: str, beside: JsonObject, notes: kit.Notes) -> kit.SessionPart:
    """Return a task of an extension. Its id is the name of its folder."""
    folder, about = PurePath(path).parent.name, fields_of(beside.get("task"))
    session_id = folder if kit.is_name(folder) else kit.list_session_id(FORMAT, name, items)
    screen = [row for _, row in objects_in(beside.get("screen"))]
    cuts, calls = _cuts(screen), _calls(screen, session_id)
    has_signs = any(not _CLINE_FIELDS.isdisjoint(row) for row in (*screen, *(item.value for item in items.items)))
    is_cline = _CLINE.search(path) or (has_signs and not _OF_OTHERS.search(path))
    reading = _Reading(kit.Chain(session_id, notes), not is_cline, calls)
    is_screen = name == SCREEN
    if is_screen:
        notes.repair(0, f"{HISTORY} is not there: the messages are those that the screen shows, without tools")
    for item in items.items:
        reading.read(kit.Item(item.index, _said(item)) if is_screen else item)
        if item.index in cuts and not is_screen:
            reading.cut(item.index, *cuts[item.index])
    # The answers of others may only not have been written yet.
    reading.unanswered([call for call in reading.calls if is_screen or call.get("cancelReason")])
    found = _FOLDER.search(message_text(items.items[0].value)) if items.items else None
    title, cwd = _first_line({"content": screen[0].get("text")}) if screen else "", found[1] if found else None
    parsed = reading.parsed(name, about.get("parentTaskId"), {"task": about}, title, about.get("workspace") or cwd)
    return replace(parsed, stands_in=is_screen)


def _first_line(message: JsonObject) -> str:
    """Return the title that the program makes of a prompt."""
    text = message_text(message).strip()
    wrapped = _WRAPPED.match(text)
    line, _, _ = (wrapped[2] if wrapped else text).strip().partition("\n")
    return kit.one_text(line.strip(), _LONGEST_TITLE) or ""


def _said(item: kit.Item) -> JsonObject:
    """Return a row of a screen as a message if it was said by somebody; the first one is the prompt."""
    row, kind = item.value, str(item.value.get("say", item.value.get("ask")))
    role = _SHOWN.get(kind) if item.index else "user"
    if role is None or not row.get("text"):
        return {**row, "type": "shown"}
    said: JsonObject = {"role": role, "content": row["text"], **without(row, "type", "say", "ask", "text")}
    # A question is JSON, with the answers to choose from.
    asked = _decoded(row) if row.get("type") == "ask" else {}
    name = next((name for name in ("question", "response") if kit.one_text(asked.get(name))), None)
    return {**said, "content": asked[name], "asked": without(asked, name)} if name else said


def _decoded(row: JsonObject) -> JsonObject:
    """Return the object that the text of a row is; {} if it is none."""
    return kit.object_in(str(row.get("text")).encode(errors="replace"))


def _calls(screen: Sequence[JsonObject], session_id: str) -> deque[JsonObject]:
    """Return the calls that the screen shows: their numbers, models and times."""
    calls = deque[JsonObject]()
    for row in screen:
        if row.get("say") == "api_req_started":
            numbers = _decoded(row)
            more = {"ts": row.get("ts"), "id": f"{session_id}:{row.get('ts')}"}
            calls.append({**without(numbers, "request"), **_named(row), **more})
    return calls


def _cuts(screen: Sequence[JsonObject]) -> Mapping[int, tuple[int, int]]:
    """Return the messages that are not sent any more, first and last, by the message behind which that was so."""
    found: dict[tuple[int, int], int] = {}
    for row in screen:
        match row.get("conversationHistoryIndex"), row.get("conversationHistoryDeletedRange"):
            # The program keeps two messages, at most, of the beginning.
            case int(at), [int(first), int(last)] if 0 <= first <= min(last, 2) and last < at:
                found.setdefault((first, last), at)
    return {at: ends for ends, at in found.items()}


def _counted(numbers: JsonObject, *, holds_cache: bool) -> JsonObject | None:
    """Return numbers of tokens as our usage; None if nothing is known. ``holds_cache``: input includes the cache's."""
    usage = {ours: numbers[name] for name, ours in _TOKENS.items() if numbers.get(name) is not None}
    whole, read, written = (usage.get(ours, 0) for ours in ("input", "cacheRead", "cacheWrite"))
    if holds_cache and type(whole) is int and type(read) is int and type(written) is int and whole >= read + written:
        usage["input"] = whole - read - written
    is_known = any(usage.values())
    if type(cost := numbers.get("cost")) in (int, float):
        usage["cost"] = {"total": cost}
    # The program writes 0 for all that a provider does not report.
    return usage if is_known or cost else None


class _Reading(Struct):
    """The messages so far: their entries by index, and the calls of the screen that have no answer yet."""

    chain: kit.Chain
    holds_cache: bool = True
    calls: deque[JsonObject] = field(default_factory=deque)
    tools: dict[str, str] = field(default_factory=dict)
    entries: dict[int, list[str]] = field(default_factory=dict)

    def parsed(self, name: str, parent: JsonValue, about: JsonObject, title: str, cwd: JsonValue) -> kit.SessionPart:
        """Return the session, as the task of a ``parent`` if there is one, with the fields beside its messages."""
        chain, task = self.chain, None
        short = kit.short_fields({key: value for key, value in about.items() if value}, chain.notes)
        if kit.is_name(parent) and parent != chain.session_id:
            task = kit.TaskOf(parent, chain.session_id.removeprefix(f"{parent}__"))
        began_us = next((entry.created_us for entry in chain.entries if entry.created_us), None)
        fields: kit.SessionFields = {"auto_title": title or None, "cwd": cwd, "created_us": began_us, "parent": task}
        return replace(chain.parsed(FORMAT, name, short, **fields), restates=True)

    def read(self, item: kit.Item) -> None:
        """Add what a message says."""
        value, at_us = item.value, kit.read_moment(item.value.get("ts"))
        role, kind = value.get("role"), kit.one_text(value.get("type"), 60) or "message"
        if fields_of(value.get("metadata")).get("displayOnly") is True or value.get("isTruncationMarker") is True:
            kind = "shown"
        if kind != "message" or role not in ("user", "assistant"):
            self.chain.notes.unknown_kinds.update([kind] if kind != "shown" else [])
            entry = kit.plain_entry(kit.entry_kind("cline.", kind), without(value, "ts"))
            self.chain.add(entry, item.index, created_us=at_us, is_link=False)
        elif value.get("isSummary") is True:
            self._compact(item, {"summary": message_text(value), "firstKeptEntryId": ""}, without(value, "content"))
            self.chain.linked = self.chain.leaf or ""
        else:
            self._say(item, at_us)

    def _say(self, item: kit.Item, at_us: int | None) -> None:
        """Add a message, known by the messages before it and its words; with its tokens, by these as well."""
        value, chain, numbers, usage, shown = item.value, self.chain, dict[str, JsonValue](), None, None
        if value["role"] == "assistant":
            metrics, shown = fields_of(value.get("metrics")), self._shown_call(at_us)
            numbers = shown or {**metrics, **fields_of(metrics.get("tokens")), "id": value.get("id")}
            usage = _counted(numbers, holds_cache=self.holds_cache)
        beside = without(value, "role", "content", "ts", "metrics")
        if wrapped := _WRAPPED.match(message_text(value)):
            beside["mode"] = wrapped[1]
        for message, extra in self._messages(value):
            words, call = without(message, "provider", "model"), (FORMAT, numbers.get("id"))
            named, fields = {**only(shown or {}, "provider", "model"), **message}, {**beside, **extra}
            name = chain.say(named, item, words=words, usage=usage, call=call, beside=fields, created_us=at_us)
            if shown is not None:
                # The provider is part of a call's identity. The list may name one, where the screen alone would not.
                entry, provider = chain.entries[-1], str(shown.get("provider", ""))
                paid = tuple(replace(each, provider=provider) for each in entry.calls)
                chain.entries[-1] = replace(entry, calls=paid)
            self.entries.setdefault(item.index, []).append(name)
            beside = {}

    def _messages(self, value: JsonObject) -> Iterator[tuple[JsonObject, JsonObject]]:
        """Yield our messages of one of the program, as it is sent."""
        content = value.get("content")
        for _, block in objects_in(content):
            if isinstance(call := block.get("tool_use_id"), str):
                self.tools.setdefault(call, kit.one_text(block.get("name")) or "")
        for message, extra in kit.messages_of(value["role"], content, self.tools, _sent):
            yield {**without(message, "provider"), **_named(value)}, extra

    def _shown_call(self, at_us: int | None) -> JsonObject | None:
        """Return the last call of the screen before an answer, of which the others have none."""
        calls: list[JsonObject] = []
        while self.calls and ((kit.read_moment(self.calls[0]["ts"]) or 0) <= at_us if at_us else not calls):
            calls.append(self.calls.popleft())
        self.unanswered(calls[:-1])
        return calls[-1] if calls and _counted(calls[-1], holds_cache=False) else None

    def unanswered(self, calls: Sequence[JsonObject]) -> None:
        """Add calls that failed or were broken off, if something was paid for them."""
        for call in calls:
            if (usage := _counted(call, holds_cache=self.holds_cache)) is not None:
                names = {name: str(call.get(name, "")) for name in ("provider", "model")}
                entry, name = kit.plain_entry("cline.api_req_started", call), made_id(FORMAT, str(call["id"]))
                entry = kit.with_call(entry, usage, self.chain.notes, 0, call_id=name, **names)
                self.chain.add(entry, 0, created_us=kit.read_moment(call["ts"]), is_link=False)

    def _entries(self, first: int, end: int) -> Iterator[str]:
        return (name for index in range(first, end) for name in self.entries.get(index, ()))

    def compact(self, state: JsonObject, items: Sequence[kit.Item]) -> None:
        """Add the compaction of these messages: the end of them is kept, or a list of its own."""
        kept, at_us = [value for _, value in objects_in(state.get("messages"))], kit.read_time(state.get("updated_at"))
        about, first = fields_of(kept[0].get("metadata")) if kept else {}, len(items) - len(kept)
        fields: JsonObject = {"summary": CUT, BASE: None}
        if about.get("kind") == "compaction_summary":
            fields, kept, first = {"summary": kit.one_text(about.get("summary")) or ""}, kept[1:], first + 1
        names = self._entries(items[first].index, items[-1].index + 1) if 0 <= first < len(items) else iter(())
        words = [[only(value, "role", "content") for value in values] for values in (kept, [i.value for i in items])]
        if words[0] != words[1][max(first, 0) :]:
            messages = [message for value in kept if value.get("role") for message, _ in self._messages(value)]
            copies = [kit.message_entry(message, message, items[-1].index, self.chain.notes)[0] for message in messages]
            names = iter([self.chain.add(copy, items[-1].index, created_us=at_us, is_link=False) for copy in copies])
        self._compact(items[-1], {**fields, "firstKeptEntryId": next(names, "")}, without(about, "summary"))

    def cut(self, index: int, first: int, last: int) -> None:
        """Add that messages are not sent any more, while those before them are."""
        fields = {"summary": CUT, BASE: None, "firstKeptEntryId": next(self._entries(last + 1, index + 1), "")}
        self._compact(kit.Item(index, {}), {**fields, "pinnedEntryIds": [*self._entries(0, first)]}, {})

    def _compact(self, item: kit.Item, fields: JsonObject, beside: JsonObject) -> None:
        fields = {**fields, "tokensBefore": kit.count_of(beside.get("tokensBefore"))}
        at_us = kit.read_moment(beside.get("generatedAt")) or kit.read_moment(item.value.get("ts"))
        self.chain.add(kit.plain_entry(COMPACTION, fields), item.index, beside=beside, created_us=at_us, is_link=False)


def _named(value: JsonObject) -> JsonObject:
    """Return the provider and the model of an answer, as our messages name them."""
    model = fields_of(value.get("modelInfo")) if value.get("role", "assistant") == "assistant" else {}
    names = (("provider", "provider"), ("provider", "providerId"), ("model", "id"), ("model", "modelId"))
    return {ours: name for ours, theirs in names if isinstance(name := model.get(theirs), str)}


def _sent(block: JsonObject) -> JsonObject:
    """Return a block as it is sent: the user's text without its wrapper, and values that are not parts as JSON."""
    kind, data, content = block.get("type"), block.get("data"), block.get("content")
    if kind == "text" and (wrapped := _WRAPPED.fullmatch(str(block.get("text")))):
        return {**block, "text": wrapped[2]}
    if kind == "image" and isinstance(data, str):
        source: JsonObject = {"type": "base64", "media_type": block.get("mediaType"), "data": data}
        return {**without(block, "data", "mediaType"), "source": source}
    if kind == "file" and isinstance(content, str):
        return {"type": "text", "text": f'<file_content path="{block.get("path")}">\n{content}\n</file_content>'}
    if kind == "tool_result":
        block = without(block, "name")
        if isinstance(content, list) and any(str(fields_of(part).get("type")) not in _SENT for part in content):
            with suppress(ValueError, RecursionError):
                return {**block, "content": json.dumps(content, ensure_ascii=False, separators=(",", ":"))}
    return block
