"""Entry kinds: one row for each kind that means something to this library, and what it means.

Everything that treats kinds differently asks this table: the projection, the usage of a path, the ledger, pins, the
renderers, salvage. A kind without a row is custom: it is stored and read back, and no model sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Literal, TypeAlias

from msgspec.structs import replace

from flue_py.core.json import (
    Frozen,
    JsonObject,
    JsonValue,
    decode_json,
    encode_json,
    js_json,
    replace_lone_surrogates,
    splice,
    to_json,
    utf16_length,
)
from flue_py.errors import InvalidEntry
from flue_py.lazy import expression

# ---------------------------------------------------------------------------------------------------------------------
# The reference's estimate of how many tokens a message takes: its UTF-16 code units divided by four.
#
# Messages need not have been checked: anything unexpected is skipped, never an error.

Message: TypeAlias = Mapping[str, JsonValue]
"""A message as JSON, camelCase; roles and parts that are not known here are legal."""

USER = "user"
ASSISTANT = "assistant"
TOOL_RESULT = "toolResult"
SYSTEM = ("system", "developer")
"""The roles of what the system says."""
SUMMARIZED_ROLES = (USER, ASSISTANT, TOOL_RESULT)
"""A tuple, since a role read from unchecked JSON may be a list, which no set can be asked about."""

UNITS_PER_TOKEN = 4
IMAGE_UNITS = 4_800
"""What an image in a tool result counts, in UTF-16 code units. Images in user messages count nothing."""


def faithful_tokens(message: Message) -> int:
    """Return about how many tokens a message takes: its UTF-16 code units divided by four, rounded up.

    Text, thinking, and tool calls (name and arguments as compact JSON) count their length, an image in a tool
    result `IMAGE_UNITS`; other parts and other roles count nothing. Cost: O(size of the message).
    """
    role = message.get("role")
    if role not in SUMMARIZED_ROLES:
        return 0
    units = 0
    for part in parts_of(message):
        kind = part.get("type")
        if kind == "text":
            units += utf16_length(string_field(part, "text"))
        elif role == ASSISTANT and kind == "thinking":
            units += utf16_length(string_field(part, "thinking"))
        elif role == ASSISTANT and kind == "toolCall":
            units += utf16_length(string_field(part, "name"))
            if "arguments" in part:
                units += utf16_length(js_json(part["arguments"]))
        elif role == TOOL_RESULT and kind == "image":
            units += IMAGE_UNITS
    return -(-units // UNITS_PER_TOKEN)


def parts_of(message: Message) -> list[Mapping[str, JsonValue]]:
    """Return the content parts of a message in order; text given as a plain string is one text part."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, (list, tuple)):
        return [part for part in content if isinstance(part, Mapping)]
    return []


def string_field(part: Mapping[str, JsonValue], name: str) -> str:
    """Return a field that should be a string; the empty string if it is missing or not a string."""
    value = part.get(name)
    return value if isinstance(value, str) else ""


# ---------------------------------------------------------------------------------------------------------------------
# `producedUnder`: the digest of the request prefix that an answer belongs to.
#
# Reasoning that a provider signed is bound to system, tools and messages before it. Whoever appends the answer gives
# the
# digest of its request, and a later request whose beginning has another one can leave the reasoning out.

PRODUCED_UNDER = "producedUnder"
"""The field of an answer that has the digest of the request before it."""

_BOOKKEEPING = frozenset({
    "api", "provider", "model", "usage", "stopReason", "errorMessage", "timestamp", "responseId", "details",
    "redacted", PRODUCED_UNDER,
})  # fmt: skip
"""Fields of our messages that no model is sent."""
SIGNATURES = frozenset({"thinkingSignature", "textSignature", "thoughtSignature", "thinking_signature", "signature"})
_SIGNED_DATA = frozenset({"redacted_thinking", "reasoning.encrypted"})


class RunningDigest:
    """A digest that runs along the parts of a request. `text` is the digest so far."""

    __slots__ = ("_hash",)

    def __init__(self, *beginning: JsonValue) -> None:
        self._hash = blake2b(digest_size=16)
        self.add(list(beginning))

    def add(self, part: JsonValue) -> None:
        """Go on with a JSON value. O(size)."""
        try:
            text = to_json(part)
        except ValueError:  # half of a surrogate pair, which a client replaces
            text = encode_json(part, "request")[0].encode()
        self._hash.update(b"%d:" % len(text))
        self._hash.update(text)

    @property
    def text(self) -> str:
        """The digest so far, as 32 characters. O(1)."""
        return self._hash.copy().hexdigest()


def seen_by_model(message: Mapping[str, JsonValue]) -> JsonObject:
    """Return a message of ours without the fields that no model is sent. O(fields)."""
    return {name: value for name, value in message.items() if name not in _BOOKKEEPING}


def signatures_in(value: JsonValue) -> Iterator[str]:
    """Yield the signatures, and the encrypted reasoning, that a message has anywhere in it. O(size)."""
    if isinstance(value, list):
        for item in value:
            yield from signatures_in(item)
    elif isinstance(value, dict):
        for name, field_value in value.items():
            if isinstance(field_value, str):
                if field_value and (name in SIGNATURES or _is_encrypted(name, value)):
                    yield field_value
            elif name != "arguments":
                yield from signatures_in(field_value)


def _is_encrypted(name: str, fields: JsonObject) -> bool:
    return name == "encrypted_content" or (name == "data" and fields.get("type") in _SIGNED_DATA)


def with_produced_under(message: JsonObject, digest: str) -> JsonObject:
    """Return a message with the digest of its request, if it is an answer with signed reasoning. O(size)."""
    if message.get("role") != ASSISTANT or PRODUCED_UNDER in message or not is_signed(message):
        return message
    return {**message, PRODUCED_UNDER: digest}


def is_signed(message: Mapping[str, JsonValue]) -> bool:
    """Return whether a message of ours is an answer with signed reasoning. O(size)."""
    if message.get("role") != ASSISTANT:
        return False
    try:
        return next(signatures_in(dict(message)), None) is not None
    except RecursionError:
        return False  # deeper than JSON may be: whoever checks the message says so


# ---------------------------------------------------------------------------------------------------------------------
# Entry kinds: one row for each kind that means something to this library, and what it means.
#
# Everything that treats kinds differently asks this table: the projection, the usage of a path, the ledger, pins, the
# renderers, salvage. A kind without a row is custom: it is stored and read back, and no model sees it.

MESSAGE = "message"
COMPACTION = "compaction"
BRANCH_SUMMARY = "branch_summary"
CUSTOM_MESSAGE = "custom_message"
EXCLUSION = "exclusion"
ARTIFACT = "tool_artifact"
"""The kind of an entry that has the result of a tool whose message says where it is instead."""
FILE_CHECKPOINT = "file_checkpoint"
"""The kind of an entry that says how files were, and in which entries their contents are."""
FILE_BACKUP = "file_backup"
"""The kind of an entry that has the content of a file."""


class Kind(Frozen):
    """What one kind of entry means."""

    name: str

    says: Literal["message", "summary", "content"] | None = None
    """What the model reads of it: the message that the payload is, or the text or the parts in the field of this name,
    as a user message. None if no context shows it."""
    prefix: str = ""
    """The line before the summary that the model reads."""
    stands_in_place: bool = False
    """The context shows it where it lies on the path. (A compaction is shown first, and only the latest one.)"""

    may_be_paid: bool = False
    """A paid call may have made it: the ledger has a row for the usage that it reports. Of messages, for answers."""
    adds_usage: bool = False
    """The usage that it reports counts for its path. Of messages, that of answers."""

    references: tuple[str, ...] = ()
    """The fields of the payload that hold an id of an entry, a list of ids, or objects of ids."""
    has_builder: bool = False
    """Its payload is an object, which a function of `flue_py.core.entries` builds: `append_custom` refuses the kind."""

    heading: str = ""
    """The heading of its text in a transcript."""
    word: str = ""
    """What lists call it, where that is not its name."""
    line_from: str = ""
    """The field of the payload that is its line in a list; "" for the JSON of the payload, or what the model reads."""


KINDS: tuple[Kind, ...] = (
    Kind(MESSAGE, says="message", stands_in_place=True, may_be_paid=True, adds_usage=True, has_builder=True),
    Kind(
        COMPACTION,
        says="summary",
        prefix="[Context Summary]",
        may_be_paid=True,
        adds_usage=True,
        references=(
            "firstKeptEntryId",
            "pinnedEntryIds",
            "baseCompactionId",
            "ranges",
            "restoresCompactionId",
            "takesBackCompactionId",
        ),
        has_builder=True,
        heading="Summary of what came before",
        line_from="summary",
    ),
    Kind(
        BRANCH_SUMMARY,
        says="summary",
        prefix="[Branch Summary]",
        stands_in_place=True,
        may_be_paid=True,
        references=("fromId", "abandonedLeafId"),
        has_builder=True,
        heading="Summary of another branch",
        word="branch",
        line_from="summary",
    ),
    Kind(CUSTOM_MESSAGE, says="content", stands_in_place=True, heading="Custom message", word="custom"),
    Kind(EXCLUSION, references=("entryId",)),
    Kind(ARTIFACT, word="artifact", line_from="tool"),
    Kind(FILE_CHECKPOINT, word="files", line_from="reason"),
    Kind(FILE_BACKUP, word="backup", line_from="sha256"),
    # Kinds of imported files that the context does not show, and lists show in their own words.
    Kind("model_change", word="model"),
    Kind("thinking_level_change", word="thinking", line_from="thinkingLevel"),
    Kind("session_info", word="title", line_from="name"),
)

_BY_NAME = {kind.name: kind for kind in KINDS}

CONTEXT_KINDS = frozenset(kind.name for kind in KINDS if kind.stands_in_place)
"""The kinds that a context shows where they lie on the path."""

SHOWN_KINDS = frozenset(kind.name for kind in KINDS if kind.says is not None)
"""The kinds that a context can show at all: those, and a compaction. All of them can be pinned."""

SUMMARIES = frozenset(kind.name for kind in KINDS if kind.says == "summary")
"""The kinds whose text was made of other entries."""

BUILT_KINDS = frozenset(kind.name for kind in KINDS if kind.has_builder)
"""The kinds whose payload is an object that `flue_py.core.entries` builds."""


def kind_of(name: str) -> Kind:
    """Return the row of a kind; for a custom kind, one that says nothing but its name. O(1)."""
    return _BY_NAME.get(name) or Kind(name)


def is_answer(kind: str, role: str | None) -> bool:
    """Return whether an entry is a message of the model."""
    return kind == MESSAGE and role == "assistant"


def may_be_paid(kind: str, role: str | None) -> bool:
    """Return whether a paid call may have made an entry of this kind and role: an answer, or a summary."""
    return kind_of(kind).may_be_paid and (kind != MESSAGE or role == "assistant")


def adds_usage(kind: str, role: str | None) -> bool:
    """Return whether the usage that an entry of this kind and role reports counts for its path."""
    return kind_of(kind).adds_usage and (kind != MESSAGE or role == "assistant")


# ---------------------------------------------------------------------------------------------------------------------
# A provider's own compaction of a conversation, kept as it came beside a text that everybody can read.
#
# A provider's own compaction (a block of Anthropic's, an item of OpenAI's) can be read by that provider alone, and only
# for the account that it was made for. It is kept in the field ``native`` of a message whose content is the text:
# whoever
# does not know the field, or is another, is sent the text.

NATIVE = "native"
"""The field of a message, and of the details of a compaction, that has it."""
COVERS = "covers"
"""How many characters of the text the provider's parts stand for, in the details of a compaction."""
COMPACTION_PART = "compaction"
"""The type of the part of an answer that a provider's compaction is, as the providers name it."""
_ALONE = frozenset({"anthropic"})
"""The providers that take back one compaction, with nothing beside it."""


class Native(Frozen):
    """The parts of an answer that a provider gave, unchanged, and whose they are.

    ``account`` is as the caller names it (`flue_py.models.open_model`), None if nobody said. ``beside`` is a text that
    goes with the parts, since it was put to the other text afterwards; "" for nothing.
    """

    provider: str
    content: tuple[JsonObject, ...]
    model: str | None = None
    account: str | None = None
    beside: str = ""

    @property
    def json(self) -> JsonObject:
        """This as it is stored."""
        own = {"provider": self.provider, "model": self.model, "account": self.account, "beside": self.beside or None}
        named: JsonObject = {name: value for name, value in own.items() if value is not None}
        return {**named, "content": [*self.content]}

    def is_for(self, provider: str | None, account: str | None) -> bool:
        """Return whether a provider takes it back. An account that is unknown on either side is taken for the same."""
        if provider != self.provider:
            return False
        return account is None or self.account is None or account == self.account


def native_in(value: JsonValue) -> Native | None:
    """Return the parts of a stored value; None for any other value."""
    if not isinstance(value, Mapping):
        return None
    provider, content = value.get("provider"), value.get("content")
    if not isinstance(provider, str) or not isinstance(content, list) or not content:
        return None
    parts = tuple(part for part in content if isinstance(part, dict))
    model, account, text_beside = (_text(value.get(name)) for name in ("model", "account", "beside"))
    return Native(provider, parts, model, account, text_beside or "")


def holds_compaction(part: Mapping[str, JsonValue]) -> bool:
    """Return whether a part is a compaction that has something in it: Anthropic's is null where it failed."""
    texts = (part.get("content"), part.get("encrypted_content"))
    return part.get("type") == COMPACTION_PART and any(isinstance(text, str) and text.strip() for text in texts)


def compaction_in(provider: str | None, parts: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """Return the parts of an answer that its provider takes back for the whole conversation; none without a compaction.

    They are all of the answer (OpenAI's begins with the user's words), or, of Anthropic's, the last compaction alone:
    it refuses a second one, and a thought or a text of the model's beside it is no part of the conversation.
    """
    compactions = [part for part in parts if holds_compaction(part)]
    return tuple(compactions[-1:] if provider in _ALONE or not compactions else parts)


def native_beside(details: JsonValue, summary: str) -> JsonObject | None:
    """Return the value of `NATIVE` for the message of a compaction; None if the compaction is not a provider's own.

    The text that was put behind that of the mode, such as registered texts, goes with the provider's parts.
    """
    stored = details.get(NATIVE) if isinstance(details, Mapping) else None
    native = native_in(stored)
    if native is None or not isinstance(stored, Mapping):
        return None
    covers = stored.get(COVERS)
    rest = summary[covers:].strip() if isinstance(covers, int) and not isinstance(covers, bool) and covers > 0 else ""
    return replace(native, beside=rest).json


def sent_to(message: JsonObject, provider: str | None, account: str | None = None) -> list[JsonObject]:
    """Return the messages that a provider is sent for one: its own answer if it has one in it, else the message.

    The message is the same object if nothing is its own. O(1).
    """
    if NATIVE not in message:
        return [message]
    native = native_in(message[NATIVE])
    if native is None or not native.is_for(provider, account):
        return [{name: value for name, value in message.items() if name != NATIVE}]
    named: JsonObject = {} if native.model is None else {"model": native.model}
    own: JsonObject = {"role": "assistant", "content": [*native.content], "provider": native.provider, **named}
    return [own, {"role": "user", "content": native.beside}] if native.beside else [own]


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None


# ---------------------------------------------------------------------------------------------------------------------
# Messages in a provider's own form, told from ours, a message at a time.
#
# A field or a part that only one provider has says whose message it is. A message without any is in our form.

Shape: TypeAlias = Literal["openai-chat", "openai-responses", "anthropic", "gemini"]
"""Whose form a message is in; lists of the first three are formats of this name, too."""

_CHAT_FIELDS = frozenset({
    "tool_calls", "function_call", "tool_call_id", "refusal", "audio", "annotations", "reasoning_content",
    "thinking_content",
})  # fmt: skip
_ANTHROPIC_FIELDS = frozenset({"stop_reason", "stop_sequence"})
_CHAT_PARTS = ("image_url", "input_audio", "audio_url", "video_url")
_RESPONSES_PARTS = ("input_text", "output_text", "input_image", "input_file", "summary_text")
_ANTHROPIC_PARTS = (
    "tool_use", "tool_result", "redacted_thinking", "server_tool_use", "web_search_tool_result",
    "web_fetch_tool_result", "code_execution_tool_result", "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result", "tool_search_tool_result", "mcp_tool_use", "mcp_tool_result",
    "container_upload",
)  # fmt: skip
_PART_SHAPES: dict[str, Shape] = {
    **dict.fromkeys(_CHAT_PARTS, "openai-chat"),
    **dict.fromkeys(_RESPONSES_PARTS, "openai-responses"),
    **dict.fromkeys(_ANTHROPIC_PARTS, "anthropic"),
}
_MARKED_BY_FIELD: dict[str, tuple[str, Shape]] = {
    "thinking": ("signature", "anthropic"),
    "image": ("source", "anthropic"),
    "document": ("source", "anthropic"),
    "search_result": ("source", "anthropic"),
    "file": ("file", "openai-chat"),
    "refusal": ("refusal", "openai-chat"),
}
_WHOLE_ANSWERS = {
    "choices": "a whole completion, which append_message() takes; its choices[0].message is a message",
    "output": "a whole response, which append_message() takes; the items in it are messages",
    "messages": "a whole request; append the messages in it, with append_messages()",
    "candidates": "a whole answer of Gemini, which append_message() takes; its candidates[0].content is a message",
    "contents": "a whole request to Gemini; append the contents in it, with append_messages()",
}
_GEMINI_PARTS = frozenset({
    "text", "functionCall", "function_call", "functionResponse", "function_response", "inlineData", "inline_data",
    "fileData", "file_data", "executableCode", "executable_code", "codeExecutionResult", "code_execution_result",
})  # fmt: skip


def shape_of(message: Mapping[str, JsonValue], where: str = "message") -> Shape | None:
    """Return whose form a message is in; None for ours.

    Raises `InvalidEntry` if it mixes the parts of two providers, and for a whole request or response. O(parts).
    """
    role = message.get("role")
    if role == "toolResult":
        return None
    if "parts" in message and _is_content(message, role):
        return "gemini"
    if role is None and "type" not in message:
        _refuse_whole_answer(message, where)
    content = message.get("content")
    by_parts = _shape_of_parts(content, where) if type(content) is list else None
    if by_parts == "ours":
        return None
    by_fields = _shape_of_fields(message, role, by_parts)
    if by_parts is None or by_fields is None or by_parts == by_fields:
        return by_fields or by_parts
    if by_parts == "openai-chat" and by_fields == "openai-responses":  # both have refusals and files
        return by_fields
    raise InvalidEntry(f"{where}.content: holds parts of {by_parts} in a message of {by_fields}; send one form")


def _is_content(message: Mapping[str, JsonValue], role: JsonValue) -> bool:
    """Return whether a message is a content of Gemini's: it has parts in place of a content."""
    parts = message.get("parts")
    if not isinstance(parts, list) or "content" in message:
        return False
    if role == "model":
        return True
    if role not in ("user", "function", "system", None):
        return False
    return any(isinstance(part, dict) and "type" not in part and not _GEMINI_PARTS.isdisjoint(part) for part in parts)


def _shape_of_fields(message: Mapping[str, JsonValue], role: JsonValue, by_parts: Shape | None) -> Shape | None:
    kind = message.get("type")
    # A message with a role and another type is ours, with a field that we do not know.
    if isinstance(kind, str) and (kind == "message" or role is None):
        # Items of the Responses API have no usage, but by their parts they may be some to which a caller added it.
        fields = _ANTHROPIC_FIELDS if by_parts else _ANTHROPIC_FIELDS | {"usage"}
        is_answer = kind == "message" and not fields.isdisjoint(message)
        return "anthropic" if is_answer or by_parts == "anthropic" else "openai-responses"
    if role in ("tool", "function"):
        return "openai-chat"
    if role == "assistant":
        if not _ANTHROPIC_FIELDS.isdisjoint(message):
            return "anthropic"
        if not _CHAT_FIELDS.isdisjoint(message):
            return "openai-chat"
    return None


def _shape_of_parts(content: Sequence[JsonValue], where: str) -> Shape | Literal["ours"] | None:
    agreed: Shape | None = None
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(part, dict) or not isinstance(kind, str):
            continue
        if kind == "toolCall" or (kind == "thinking" and "thinkingSignature" in part):
            return "ours"
        shape = _PART_SHAPES.get(kind)
        if shape is None and kind in _MARKED_BY_FIELD:
            field, marked = _MARKED_BY_FIELD[kind]
            shape = marked if field in part else None
        if shape is None or shape == agreed:
            continue
        if agreed == "openai-responses" and kind == "refusal":
            continue
        if agreed is not None and not (agreed == "openai-chat" and shape == "openai-responses"):
            raise InvalidEntry(f"{where}.content[{number}]: a part of {shape} beside parts of {agreed}; send one form")
        agreed = shape
    return agreed


def _refuse_whole_answer(message: Mapping[str, JsonValue], where: str) -> None:
    for field, description in _WHOLE_ANSWERS.items():
        if isinstance(message.get(field), list):
            raise InvalidEntry(f"{where}.{field}: is {description}")


def check_is_ours(message: Mapping[str, JsonValue], where: str = "message") -> None:
    """Raise `InvalidEntry`, with the path of the field that tells it, for a message in a provider's form. O(parts)."""
    shape = shape_of(message, where)
    if shape is not None:
        raise InvalidEntry(
            f"{where}{_mark_of(message)}: is of the form {shape}, which one entry may not hold; append_message() "
            "and append_messages() convert it"
        )


def _mark_of(message: Mapping[str, JsonValue]) -> str:
    """Return the path below a message of the field that makes it a provider's."""
    content = message.get("content")
    if _is_content(message, message.get("role")):
        return ".parts"
    for number, part in enumerate(content if isinstance(content, list) else ()):
        if _shape_of_parts([part], "") is not None:
            return f".content[{number}].type"
    if message.get("role") in ("tool", "function"):
        return ".role"
    marks = [field for field in message if field in _CHAT_FIELDS or field in _ANTHROPIC_FIELDS]
    return f".{marks[0]}" if marks else ".type"


# ---------------------------------------------------------------------------------------------------------------------
# The words of a person, apart from the texts that programs put into messages of the user: commands, contexts,
# reminders.
#
# Agents tell their model many things in the user's name. None of it is a title, and a message of nothing
# else does not begin a turn. This is the one place that knows how such texts look, whichever program wrote them.

_TAG = expression(
    r"<(?P<name>(?:[\w.-]+[ _-])?"
    r"(?:context|instructions?|reminders?|details|hook|notifications?|caveat|stdout|stderr|mode)"
    r"|command-(?:name|message|args|contents)|bash-input|user-memory-input|turn_aborted|user_(?:action|info|shell_command)"
    r"|ide_(?:opened_file|selection|diagnostics)|new-diagnostics|personality_spec|realtime_conversation|skills?"
    r"|model_switch|additional_data|attached_files|open_and_recently_viewed_files|project_layout|git_status|task_id"
    r"|teammate-message|retrieval_status|output-file|subagent_result|current_datetime|recommended_plugins|fork-boilerplate"
    r")(?:\s[^<>]*)?>",
    re.IGNORECASE,
)
"""The first tag of a block that a program wrote; the block ends with the same name."""

_DOUBTFUL = expression(r"<(?:context|instructions?|details|reminders?|notifications?|caveat|mode)>", re.IGNORECASE)
"""Those of them that people write as well, around their words."""

_WRAPPED = expression(
    r"<(?P<name>user_query|user_message|user_input|task|feedback|answer)(?: mode=[^<>]*)?>", re.IGNORECASE
)
"""The tag around a person's words, if a program put one there."""

_LINE = expression(r"(?:Caveat:|\[Request interrupted by user)[^\n]*")
"""The beginning of a line that a program wrote."""

_SURE_LINE = expression(r"(?:Caveat: The messages below|\[Request interrupted by user)[^\n]*")
"""The same, of a line that nobody else begins so."""

_WHOLE: Mapping[str, str] = {
    "This session is being continued from a previous conversation": "summary of what came before",
    **{f"{kind.prefix}\n": kind.heading.lower() for kind in KINDS if kind.prefix},
    "You are continuing a trajectory after a context compaction.": "summary of what came before",
    "</previous_user_messages>": "summary of what came before",
    "Base directory for this skill:": "skill",
    "[SUGGESTION MODE: Suggest what the user": "suggestion mode",
    **dict.fromkeys(("[Image: source:", "[Image: original "), "picture"),
    "Called the Read tool with the following input:": "attached file",
}
"""How messages begin that a program wrote whole, and their names."""

_COMMAND = expression(r"/[A-Za-z][\w:.-]*(?=\s|$)")
"""A command of a program, such as ``/compact``; a path has a slash behind its first name."""

_RULES = expression(r"# (AGENTS|CLAUDE|GEMINI)\.md instructions\b")
_IDE = expression(r"# (?:Context from my IDE setup:|(?:Files|Applications) mentioned by the user:\s*\n## )")
_TYPED = "command"
_END_OF_IDE = expression(r"^## My request for [^\n:]*:[ \t]*", re.MULTILINE)
_FIRST_SIGNS = frozenset("</[#CTB")
_WORDS_IN_PAYLOAD = expression(
    r'{"role":"user","content":(?:"|\[{"type":"text","text":")(?!You are continuing )[^\s"\\</\[#CTB]'
)
"""How the payload of a message of the user begins that a person began: with none of `_FIRST_SIGNS`."""


class Piece(Frozen):
    """A part of a message of the user. ``name`` says which text of a program it is, "" for a person's words."""

    name: str
    text: str


def spoken_text(text: str) -> str:
    """Return the words of a person in a message of the user: "" if a program wrote all of it.

    Blocks that a program put before the words are taken off; words are never changed. O(size).
    """
    return _said(text, in_doubt=False)


def own_words(text: str) -> str:
    """Return the words that may be a person's own in a message of the user: those of `spoken_text`, and its guesses.

    A block in plain tags that people use as well, such as ``<context>``, and a command with words behind it count as
    said: for whoever must lose nothing that a person asked for. O(size).
    """
    return _said(text, in_doubt=True)


def words_of(message: Mapping[str, JsonValue]) -> str:
    """Return the words that may be a person's own in a message of the user, "" for none. O(size)."""
    return "" if message.get("isMeta") is True else own_words(message_text(message)).strip()


def pieces_of(text: str) -> list[Piece]:
    """Return what a person says in a message of the user, and the texts of programs around it, in their order.

    A command that a person typed counts as said. Only blanks between pieces, and the tag around the words, are left
    out. O(size).
    """
    pieces = _pieces(text, in_doubt=False)
    return [Piece("", piece.text) if piece.name == _TYPED else piece for piece in pieces]


def pieces_in(message: Mapping[str, JsonValue]) -> list[Piece]:
    """Return the same of all texts of a message. O(size)."""
    texts = [string_field(part, "text") for part in parts_of(message) if part.get("type") == "text"]
    return [piece for text in texts for piece in pieces_of(text)]


def as_typed(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces with what a person typed to a program as words: a command with its arguments, one of a shell.

    The message of a command, which repeats it, is left out. O(size).
    """
    is_command = any(piece.name == "command name" for piece in pieces)
    shown: list[Piece] = []
    for piece in pieces:
        inside = _inside(piece.text) if piece.name in ("command name", "command args", "bash input") else ""
        if piece.name == "command args" and is_command and shown and not shown[-1].name:
            shown[-1] = Piece("", f"{shown[-1].text} {inside}".rstrip())
        elif inside:
            shown.append(Piece("", f"! {inside}" if piece.name == "bash input" else inside))
        elif not (is_command and piece.name == "command message"):
            shown.append(piece)
    return shown


def _inside(block: str) -> str:
    """Return the text between the tags of a block, also if it was cut off before the second."""
    rest = block.partition(">")[2]
    return (rest[: rest.rindex("</")] if "</" in rest else rest).strip()


def _said(text: str, *, in_doubt: bool) -> str:
    return next((piece.text for piece in _pieces(text, in_doubt=in_doubt) if not piece.name), "")


def _pieces(text: str, *, in_doubt: bool) -> Iterator[Piece]:
    behind: list[str] = []
    while True:
        at = _next_word(text, 0)
        while at < len(text) and text[at] in _FIRST_SIGNS:
            insertion = _insertion(text, at, in_doubt=in_doubt)
            if insertion is None:
                break
            name, end = insertion
            yield Piece(name, text[at:end])
            at = _next_word(text, end)
        text = text[at:]
        wrapped = _WRAPPED.match(text)
        if wrapped is None:
            break
        inner, closing, rest = text[wrapped.end() :].partition(f"</{wrapped['name']}>")
        if not closing:
            break
        text = inner
        behind.append(rest)
    if text:
        command = _COMMAND.match(text)
        is_command = command is not None and not (in_doubt and text[command.end() :].strip())
        whole = next((name for beginning, name in _WHOLE.items() if text.startswith(beginning)), "")
        yield Piece(_TYPED if is_command else whole, text)
    for rest in reversed(behind):
        if rest.strip():
            tag = _TAG.match(rest.strip())
            yield Piece("added text" if tag is None else _name_of(tag["name"]), rest.strip())


def _name_of(tag: str) -> str:
    words = tag.lower().replace("-", " ").replace("_", " ").split()
    return " ".join("IDE" if word == "ide" else word for word in words)


def has_words(payload: str) -> bool:
    """Return whether a payload is surely a message in which a person says something. It is not decoded for it.

    Of most of those that are, that can be told from how they begin: a quotation mark within a text has a backslash
    before it, so that a text like a field is one. O(size), but a small part of it.
    """
    begun = _WORDS_IN_PAYLOAD.match(payload)
    # A second field of the name would count.
    return begun is not None and payload.find('"content":', begun.end()) < 0 and '"isMeta":' not in payload


def _next_word(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _insertion(text: str, at: int, *, in_doubt: bool) -> tuple[str, int] | None:
    """Return the name and the end of a program's text at a place; None if there is none, or if that is in doubt."""
    tag = _TAG.match(text, at)
    if tag is not None and in_doubt and _DOUBTFUL.match(text, at):
        return None
    if tag is not None:
        return _name_of(tag["name"]), _behind(text, f"</{tag['name']}>", tag.end())
    if rules := _RULES.match(text, at):
        return f"{rules[1]}.md", _behind(text, "</INSTRUCTIONS>", at)
    if _IDE.match(text, at):
        request = _END_OF_IDE.search(text, at)
        return "IDE context", len(text) if request is None else request.end()
    line = (_SURE_LINE if in_doubt else _LINE).match(text, at)
    return None if line is None else ("interruption" if text[at] == "[" else "caveat", line.end())


def _behind(text: str, closing: str, at: int) -> int:
    """Return the place behind a closing tag; the end of the text where it was cut off."""
    end = text.find(closing, at)
    return len(text) if end < 0 else end + len(closing)


def message_text(value: Mapping[str, JsonValue]) -> str:
    """Return the text of a message for a person: its content, or its text parts joined by newlines.

    Thinking, tool calls, images and other parts are left out. Never raises: a value that is not a message has no text.
    """
    content: object = value.get("content") if isinstance(value, (dict, Mapping)) else None
    if isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        return ""
    parts = [part for part in content if isinstance(part, (dict, Mapping)) and part.get("type") == "text"]
    return "\n".join([text for part in parts if isinstance(text := part.get("text"), str)])


SECTIONS = "sections"
"""The field of a system message that has its text in parts, by name, as pi writes it."""


def prompt_text(value: Mapping[str, JsonValue]) -> str:
    """Return the text of a system message: its own, or that of its sections, in the order of their names."""
    sections = value.get(SECTIONS)
    if (own := message_text(value)) or not isinstance(sections, dict):
        return own
    return "\n\n".join(text for _, text in sorted(sections.items()) if isinstance(text, str) and text)


PREVIEW_LENGTH = 120
_PREVIEW_SEARCHED = 4000


_HEADING = expression(r"#{1,6}\s+(.*?)[\s#]*\Z")
_LINK = expression(r"(?<![\w\])!])\[([^\[\]\n]+)\]\((?=[/~.]|[A-Za-z]:[\\/]|\w+://)(?:\\.|[^)\\\n]){1,400}\)")
"""A link in Markdown: programs write a file or a skill that a person names as one, with its whole path."""


def message_preview(text: str) -> str | None:
    """Return the first line with text in it, at most `PREVIEW_LENGTH` characters; None if there is none."""
    return next(_preview_lines(text), None)


def _preview_lines(text: str) -> Iterator[str]:
    for line in text[:_PREVIEW_SEARCHED].splitlines():
        stripped = line.replace("\0", "").strip()
        if stripped:
            yield replace_lone_surrogates(stripped[:PREVIEW_LENGTH])[0]


def is_spoken(message: Mapping[str, JsonValue]) -> bool:
    """Return whether a message of the user says something of a person's own, rather than of a program's alone.

    Pictures and other parts that are not text count as a person's; so does a message that says nothing.
    """
    if message.get("isMeta") is True:
        return False
    content = message.get("content")
    if isinstance(content, list) and any(isinstance(part, dict) and part.get("type") != "text" for part in content):
        return True
    text = message_text(message)
    return not text.strip() or bool(spoken_text(text))


def message_title(message: Mapping[str, JsonValue]) -> str | None:
    """Return a title from the words of a person in a message of the user; None if there is none.

    It is the first line, with the words of links; one that ends with a colon only leads to the next, of which a heading
    is the title alone.
    Every format, and every store, takes the title of a session without one from here: from its first such message.
    """
    if message.get("isMeta") is True:
        return None
    lines = _preview_lines(_LINK.sub(r"\1", spoken_text(message_text(message))[:_PREVIEW_SEARCHED]))
    first = next(lines, None)
    if first is None or not first.endswith(":"):
        return first
    second = next(lines, "")
    heading = _HEADING.match(second)
    return heading[1] if heading and heading[1] else f"{first} {second}".strip()[:PREVIEW_LENGTH]


# ---------------------------------------------------------------------------------------------------------------------
# The words in a payload for a picture that is lost: ``[image no longer available: <name>]``.
#
# The bytes of pictures and files are stored apart from the payloads they were cut out of. Where a damaged store has
# lost
# some, the rest of the entry is still worth reading: the part that they were of becomes a part of text.

_NAMES = ("filename", "fileName", "file_name", "name", "title", "mimeType", "mime_type", "media_type", "mediaType")
"""The fields by which parts of messages name their content, the best first."""

_OF_TEXT = frozenset({"text", "thinking", "toolCall", "tool_use", "toolResult", "tool_result", "input_text"})
"""Parts that may quote base64, and are not made of it."""

_IN_A_URL = r"data:([\w.+-]+/[\w.+-]+)?[^,\s]{0,200};base64,"


def without_lost(rest: bytes, pieces: Sequence[tuple[int, bytes | None]], where: str) -> str:
    """Return the text that ``rest`` was cut from, with words for the pieces that are lost (None).

    A part of a message becomes a part of text; a text that has base64 among its words gets words in that place. The
    rest is as it was. ``where`` names the value in errors. Raises `CorruptStore` if it is not JSON. O(size).
    """
    mark = "LostPicture"
    while mark.encode() in rest:
        mark += "X"
    whole = splice(rest, [(place, mark.encode() if piece is None else piece) for place, piece in pieces])
    return encode_json(_Replacing(mark).value(decode_json(whole), None), where)[0]


class _Replacing:
    """Puts words for pieces that are marked as lost."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._marked = re.compile(f"(?:{_IN_A_URL})?{mark}")

    def value(self, value: JsonValue, part: JsonObject | None) -> JsonValue:
        """Return a value with the words in it. ``part`` is the object that it belongs to, and that may name it."""
        if isinstance(value, str):
            return self._said(value, part or {}) if self._mark in value else value
        if isinstance(value, list):
            return [self._item(item, part) for item in value]
        if isinstance(value, dict):
            return {str(self.value(key, None)): self.value(item, value) for key, item in value.items()}
        return value

    def _item(self, item: JsonValue, part: JsonObject | None) -> JsonValue:
        kind = item.get("type") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(kind, str) or kind in _OF_TEXT:
            return self.value(item, part)
        lost = self._lost_in(item)
        if lost is None:
            return self.value(item, part)
        return {"type": "input_text" if kind.startswith("input_") else "text", "text": self._words(lost, item)}

    def _lost_in(self, part: JsonObject) -> str | None:
        """Return the text of a part that is lost, as far as it is there; not one of a part within a list of it."""
        for value in part.values():
            text = self._lost_in(value) if isinstance(value, dict) else value
            if isinstance(text, str) and self._mark in text:
                return text
        return None

    def _said(self, text: str, part: JsonObject) -> str:
        return self._marked.sub(lambda match: self._words(match[0], part), text)

    def _words(self, lost: str, part: JsonObject) -> str:
        match = self._marked.search(lost)
        kind = part.get("type")
        name = _name_in(part) or (match[1] if match is not None else None) or (kind if isinstance(kind, str) else None)
        return f"[image no longer available: {name or 'unknown'}]"


def _name_in(part: JsonObject) -> str | None:
    """Return the name that a part gives its content: its own fields first, then those of the parts in it."""
    for name in _NAMES:
        value = part.get(name)
        if isinstance(value, str) and value:
            return value
    inside = (_name_in(value) for value in part.values() if isinstance(value, dict))
    return next((name for name in inside if name is not None), None)
