"""How many tokens a text or a list of messages takes.

Exact for models whose vocabulary is shipped, an estimate marked as one for all others. Nothing is fetched,
nothing is written, no environment variable is read. Counting is CPU work that does not await: about 10 million
characters a second, after a first load of 0.15 to 0.4 s for each vocabulary in each process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING

from flue_py.context.ranks import VOCABULARIES, read_ranks
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import encode_json
from flue_py.errors import InvalidArgument
from flue_py.lazy import lazy_module
from flue_py.wire.media import type_of_bytes

if TYPE_CHECKING:
    import tiktoken
    from tiktoken import Encoding
    from tiktoken import model as tiktoken_model

    from flue_py.core.jsontext import JsonValue
else:
    # It takes some 40 ms to import, and an estimate does not need it.
    tiktoken = lazy_module("tiktoken")
    tiktoken_model = lazy_module("tiktoken.model")

DEFAULT_ENCODING = "o200k_base"
"""The encoding that counts when no model is named."""

MESSAGE_OVERHEAD_TOKENS = 4
"""Added for each message: its role and the marks around it. Providers differ by one or two."""

IMAGE_TOKENS = 1_200
"""Counted for an image, whatever its size: the figure pi uses (4,800 characters)."""

FILE_TOKENS = 3_000
"""Counted for an attached file, whatever its size: roughly one dense page sent as text and picture."""

ESTIMATE_BYTES_PER_TOKEN = 3
"""UTF-8 bytes per token of an estimate. Prose and code have about 4, tool output 1.5 to 3."""

SLICE_CHARS = 4_096
"""The longest text handed to the tokenizer at once.

A run of a million blanks makes tiktoken panic with a `BaseException` (older versions: of letters, too), and
older versions take quadratic time for a run of one kind of character (100,000 letters: 3 s; 4,096: 5 ms).
Runs are cut at a power of two because the vocabularies' long tokens have such lengths, which keeps the count
of a uniform run exact.
"""

# tiktoken at our lower bound does not know these yet; the answer should not depend on its version.
_O200K_FAMILIES = ("gpt-5", "gpt-4.1", "gpt-4.5", "gpt-oss", "o1", "o3", "o4-mini")

# The same vocabulary and pattern; harmony only adds special tokens, and text holds none.
_SAME_TEXT = {"o200k_harmony": "o200k_base"}

_IMAGE_PARTS = frozenset({"image", "image_url", "input_image"})
_FILE_PARTS = frozenset({"file", "document", "input_file"})

_LEAST_MEDIA_CHARS = 1_000
_MEDIA = re.compile(rf'(?:"(\w+)":)?"(?:data:([^",;]*)[^",]*,)?([A-Za-z0-9+/_-]{{{_LEAST_MEDIA_CHARS},}}={{0,2}})"')
"""A field with base64 so long that it is a picture, a sound or a document: its name, MIME type and data."""
_ENCRYPTED = re.compile("encrypted|signature", re.IGNORECASE)
"""Of fields with base64 that a model reads as words, in a form that its provider alone can open."""

_encodings: dict[str, Encoding] = {}
_loading = Lock()


@frozen
class TokenCount:
    """A number of tokens, and how far to trust it.

    ``is_estimate`` is False if every part was text counted with the model's own vocabulary; the fixed overhead of
    messages does not make it an estimate. ``encoding`` names that vocabulary, or is None if none is known.
    """

    tokens: int
    is_estimate: bool
    encoding: str | None


def count_text_tokens(text: str, model: str | None = None) -> TokenCount:
    """Return how many tokens ``text`` takes for ``model``; special-token text counts as ordinary text.

    Without a model, counts with `DEFAULT_ENCODING`. For a model whose vocabulary is not shipped, estimates
    UTF-8 bytes / `ESTIMATE_BYTES_PER_TOKEN`, rounded up. Text longer than `SLICE_CHARS` is counted in slices;
    where it has neither a blank nor a line end to cut at, each cut can miscount by a few tokens.
    Raises `FixTheSetup` where the installed vocabulary is damaged. Cost: O(length).
    """
    meter = _Meter(encoding_name_for(model))
    meter.add_text(text)
    return meter.reading()


def count_message_tokens(message: Mapping[str, JsonValue], model: str | None = None) -> TokenCount:
    """Return how many tokens one message takes, `MESSAGE_OVERHEAD_TOKENS` included; see `count_tokens`."""
    return count_tokens((message,), model)


def count_tokens(messages: Iterable[Mapping[str, JsonValue]], model: str | None = None) -> TokenCount:
    """Return how many tokens ``messages`` (message JSON objects) take together for ``model``.

    Counted are text, thinking, and the name and compact JSON arguments of tool calls, plus
    `MESSAGE_OVERHEAD_TOKENS` a message. Ids, signatures, usage and times are not sent as text and count
    nothing. An image counts `IMAGE_TOKENS`, a file `FILE_TOKENS`, any other part (and a message without
    content) its JSON, with what it holds of either in base64 counted as such; all of these make the result an
    estimate. Tool definitions and the system prompt are not messages: count their text and add it. Raises what
    `count_text_tokens` raises, and `InvalidEntry` where arguments or unknown parts are not JSON. Cost: O(size).
    """
    meter = _Meter(encoding_name_for(model))
    for message in messages:
        meter.add_message(message)
    return meter.reading()


def estimate_message_tokens(message: Mapping[str, JsonValue]) -> TokenCount:
    """Return about how many tokens one message takes: what `count_message_tokens` says for a model it does not know.

    Reads no vocabulary and does not import the tokenizer. Raises `InvalidEntry` as `count_tokens` does. Cost: O(size).
    """
    meter = _Meter(None)
    meter.add_message(message)
    return meter.reading()


def is_text_only(message: Mapping[str, JsonValue]) -> bool:
    """Return whether a message holds nothing but text, thinking and tool calls, which a vocabulary can count."""
    content = message.get("content")
    if isinstance(content, str):
        return True
    return isinstance(content, (list, tuple)) and all(_is_text(part) for part in content)


def _is_text(part: JsonValue) -> bool:
    if not isinstance(part, Mapping):
        return isinstance(part, str)
    kind = part.get("type")
    value = part.get("name") if kind == "toolCall" else part.get(kind) if kind in ("text", "thinking") else None
    return isinstance(value, str)


def encoding_name_for(model: str | None) -> str | None:
    """Return the name of the shipped vocabulary that ``model`` uses, or None where none is known.

    None as the model is `DEFAULT_ENCODING`. Loads no vocabulary.
    """
    return DEFAULT_ENCODING if model is None else _known_encoding(model)


@lru_cache(maxsize=256)
def _known_encoding(model: str) -> str | None:
    if any(model == family or model.startswith((f"{family}-", f"{family}.")) for family in _O200K_FAMILIES):
        return "o200k_base"
    try:
        name = tiktoken_model.encoding_name_for_model(model)
    except KeyError:
        return None
    name = _SAME_TEXT.get(name, name)
    return name if name in VOCABULARIES else None


def load_encoding(name: str) -> Encoding:
    """Return the encoding of a shipped vocabulary, the same object at every call and in every thread.

    It has no special tokens: all text is ordinary. Raises `InvalidArgument` for a name that is not shipped,
    `FixTheSetup` where the shipped file is damaged. Cost: 0.15 to 0.4 s and 50 to 70 MB at the first call for
    a name, nothing later.
    """
    encoding = _encodings.get(name)
    if encoding is not None:
        return encoding
    vocabulary = VOCABULARIES.get(name)
    if vocabulary is None:
        raise InvalidArgument(f"the vocabulary {name!r} is not shipped; use one of {', '.join(VOCABULARIES)}")
    with _loading:
        encoding = _encodings.get(name)
        if encoding is None:
            # tiktoken's own get_encoding would fetch the ranks over the network, without a timeout.
            encoding = tiktoken.Encoding(
                name, pat_str=vocabulary.pattern, mergeable_ranks=read_ranks(vocabulary), special_tokens={}
            )
            _encodings[name] = encoding
    return encoding


def slices(text: str, limit: int = SLICE_CHARS) -> list[str]:
    """Return ``text`` as consecutive slices of at most ``limit`` characters, cut where it keeps the count.

    Joined they are ``text`` again. Each cut is before a blank that follows a visible character, or after a
    line end before a visible character other than a slash. A slice without such a place is cut at full length,
    which can change the count. Cost: O(length).
    """
    return [text] if len(text) <= limit else _slice_pattern(limit).findall(text)


@lru_cache(maxsize=8)
def _slice_pattern(limit: int) -> re.Pattern[str]:
    # Neither vocabulary has a token across the first blank after a visible character, nor across a line end
    # before a visible character (o200k_base alone lets a slash follow the line end): cutting there changes
    # no count.
    return re.compile(rf".{{1,{limit}}}(?:\Z|(?<=\S)(?= )|(?<=\n)(?=[^\s/]))|.{{1,{limit}}}", re.DOTALL)


class _Meter:
    """Adds up the tokens of texts and messages in one encoding; without one it estimates."""

    def __init__(self, encoding: str | None) -> None:
        self._encoding = encoding
        self._tokens = 0
        self._is_estimate = encoding is None

    def reading(self) -> TokenCount:
        return TokenCount(self._tokens, self._is_estimate, self._encoding)

    def add_text(self, text: str) -> None:
        if not text:
            return
        if self._encoding is None:
            size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
            self._tokens += -(-size // ESTIMATE_BYTES_PER_TOKEN)
            return
        # Not `encode`: it refuses text that looks like a special token.
        encode = load_encoding(self._encoding).encode_ordinary
        self._tokens += sum(len(encode(piece)) for piece in slices(text))

    def add_message(self, message: Mapping[str, JsonValue]) -> None:
        self._tokens += MESSAGE_OVERHEAD_TOKENS
        content = message.get("content")
        if isinstance(content, str):
            self.add_text(content)
        elif isinstance(content, (list, tuple)):
            for part in content:
                self._add_part(part)
        else:
            self._add_unknown(message)

    def _add_part(self, part: JsonValue) -> None:
        fields = part if isinstance(part, Mapping) else {"type": "text", "text": part}
        kind = fields.get("type")
        if not isinstance(kind, str):
            kind = ""
        text = fields.get(kind) if kind in ("text", "thinking") else None
        name = fields.get("name")
        if isinstance(text, str):
            self.add_text(text)
        elif kind == "toolCall" and isinstance(name, str):
            self.add_text(name)
            arguments = fields.get("arguments", {})
            self.add_text(arguments if isinstance(arguments, str) else encode_json(arguments, "arguments")[0])
        elif kind in _IMAGE_PARTS:
            self._add_fixed(IMAGE_TOKENS)
        elif kind in _FILE_PARTS:
            self._add_fixed(FILE_TOKENS)
        else:
            self._add_unknown(part)

    def _add_fixed(self, tokens: int) -> None:
        self._tokens += tokens
        self._is_estimate = True

    def _add_unknown(self, value: object) -> None:
        text = encode_json(value, "message")[0]
        if len(text) > _LEAST_MEDIA_CHARS:
            text = _MEDIA.sub(self._counted_media, text)
        self.add_text(text)
        self._is_estimate = True

    def _counted_media(self, found: re.Match[str]) -> str:
        """Count what a field holds in base64 as a picture or a file, and return what is left of it as text."""
        field, kind, data = found.groups()
        if field is not None and _ENCRYPTED.search(field):
            return found[0]
        told = type_of_bytes(data) or kind or ("image/" if '"type":"image' in found.string else "")
        self._add_fixed(IMAGE_TOKENS if told.startswith("image/") else FILE_TOKENS)
        return '""'
