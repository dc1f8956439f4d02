"""How many tokens a text or a list of messages takes.

Exact for models whose vocabulary is shipped, an estimate marked as one for all others. Nothing is fetched,
nothing is written, no environment variable is read. Counting is CPU work that does not await: about 10 million
characters a second, after a first load of 0.15 to 0.4 s for each vocabulary in each process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from flue_py.core import context
from flue_py.core.entries import Entry, is_silent
from flue_py.core.json import Frozen, JsonObject, JsonValue, encode_json
from flue_py.core.kinds import ASSISTANT, COMPACTION, EXCLUSION, MESSAGE, faithful_tokens
from flue_py.core.sessions import check_label
from flue_py.errors import FixTheSetup, InvalidArgument, shown
from flue_py.lazy import lazy_module
from flue_py.providers.anthropic import cleared_tokens
from flue_py.providers.base import type_of_bytes
from flue_py.system import Lock

if TYPE_CHECKING:
    import hashlib
    import lzma
    from importlib import resources

    import tiktoken
    import tiktoken.model as tiktoken_model
    from tiktoken import Encoding
else:
    # An estimate does not need them, and tiktoken takes some 40 ms to import.
    hashlib = lazy_module("hashlib")
    lzma = lazy_module("lzma")
    resources = lazy_module("importlib.resources")
    tiktoken = lazy_module("tiktoken")
    tiktoken_model = lazy_module("tiktoken.model")


# ---------------------------------------------------------------------------------------------------------------------
# The token vocabularies that are shipped.
#
# A vocabulary ("ranks") lists byte strings; the place in the list is the rank, which is also the token's number. Each
# is stored as ``ranks/<name>.ranks.xz``: an LZMA stream of all token lengths (one byte each, in rank order) followed by
# all token bytes in the same order. ``ranks/NOTICE`` says where the data comes from, and `benchmarks.ranks` makes the
# files again from that source.


class Vocabulary(Frozen):
    """One shipped vocabulary.

    ``pattern`` is the regular expression that cuts text into pieces before merging. ``source_sha256`` is the
    hash of the published ``.tiktoken`` file, ``packed_sha256`` that of the decompressed stream shipped here.
    """

    name: str
    tokens: int
    pattern: str
    source_sha256: str
    packed_sha256: str

    @property
    def filename(self) -> str:
        """The name of the shipped file, in the folder ``ranks`` beside this module."""
        return f"{self.name}.ranks.xz"


_CL100K_PATTERN = "|".join(
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_O200K_PATTERN = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTION}",
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

VOCABULARIES = {
    vocabulary.name: vocabulary
    for vocabulary in (
        Vocabulary(
            name="cl100k_base",
            tokens=100_256,
            pattern=_CL100K_PATTERN,
            source_sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
            packed_sha256="18288f996f452d44e0e65996176591a4b712a3eb1b42afd6f0511e735c099480",
        ),
        Vocabulary(
            name="o200k_base",
            tokens=199_998,
            pattern=_O200K_PATTERN,
            source_sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
            packed_sha256="440741350e7cfa1c0f4869ce742d1b043550adbda5187adcac9e787edac6fba9",
        ),
    )
}
"""Every shipped vocabulary, by name."""


def read_ranks(vocabulary: Vocabulary) -> dict[bytes, int]:
    """Return the rank of every token of a shipped vocabulary, in rank order.

    Raises `FixTheSetup` if the shipped file is missing or has been changed. Reads one file, writes
    nothing. Cost: about 0.1 s for cl100k_base and 0.2 s for o200k_base.
    """
    resource = resources.files("flue_py.context") / "ranks" / vocabulary.filename
    try:
        packed = lzma.decompress(resource.read_bytes())
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise _damaged(vocabulary, f"cannot be read ({error})") from error
    digest = hashlib.sha256(packed).hexdigest()
    if digest != vocabulary.packed_sha256:
        raise _damaged(vocabulary, f"has SHA-256 {digest}, not {vocabulary.packed_sha256}")
    return unpack_ranks(packed, vocabulary.tokens)


def _damaged(vocabulary: Vocabulary, problem: str) -> FixTheSetup:
    return FixTheSetup(
        f"the vocabulary {vocabulary.name!r} shipped with flue_py ({vocabulary.filename}) {problem}; "
        "reinstall flue-py (pip install --force-reinstall flue-py)"
    )


def unpack_ranks(packed: bytes, tokens: int) -> dict[bytes, int]:
    """Return the rank of every token of a stream that holds ``tokens`` tokens."""
    ends = accumulate(packed[:tokens], initial=tokens)
    return {packed[start:end]: rank for rank, (start, end) in enumerate(pairwise(ends))}


# ---------------------------------------------------------------------------------------------------------------------
# Counting text and messages.

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


class TokenCount(Frozen):
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
    content) its JSON, with base64 of either in it counted as such; all of these make the result an
    estimate. Tool definitions and the system prompt are not messages: count their text and add it. Raises as
    `count_text_tokens` raises, and `InvalidEntry` where arguments or unknown parts are not JSON. Cost: O(size).
    """
    meter = _Meter(encoding_name_for(model))
    for message in messages:
        meter.add_message(message)
    return meter.reading()


def estimate_message_tokens(message: Mapping[str, JsonValue]) -> TokenCount:
    """Return about how many tokens one message takes: the count of `count_message_tokens` for an unknown model.

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

    def _counted_media(self, span: re.Match[str]) -> str:
        """Count the base64 of a field as a picture or a file, and return the rest of it as text."""
        field, kind, data = span.groups()
        if field is not None and _ENCRYPTED.search(field):
            return span[0]
        media_type = type_of_bytes(data) or kind or ("image/" if '"type":"image' in span.string else "")
        self._add_fixed(IMAGE_TOKENS if media_type.startswith("image/") else FILE_TOKENS)
        return '""'


# ---------------------------------------------------------------------------------------------------------------------
# The counters of tokens, and the counts that each remembers.
#
# A count is remembered for each entry, in the process: to measure a context again is one look-up for each of its items.

MOST_COUNTS = 100_000
"""How many counts are kept for each counter. All of them take some 30 MB."""

MOST_COUNTERS = 8

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_Count: TypeAlias = tuple[int, str, int]
"""The hash of the payload and the kind of the entry that was counted, and its tokens; ``~tokens`` if not all of it was
text, so that they are an estimate whatever the counter."""


class Tally(Frozen):
    """The tokens of several items together, and whether any of it is an estimate."""

    tokens: int
    is_estimate: bool


class NotCounted(LookupError):
    """Something was not counted before."""


class Remembered(dict[Key, Value]):
    """At most ``most`` values by key; when there are more, the older half is forgotten. Any thread may keep one."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._changing = Lock()

    def keep(self, key: Key, value: Value) -> Value:
        """Remember a value, and return it. O(1), but for the time when half of all is forgotten."""
        with self._changing:
            if len(self) >= self._most:
                for oldest in list(self)[: len(self) // 2 + 1]:
                    del self[oldest]
            self[key] = value
        return value


class EntryCounts:
    """The tokens of entries, by counter: at most ``most`` for each, the newest. One object may be used by all threads.

    A count is found by the entry's id and by the parts left out of it, and is good as long as kind and payload are the
    same. Counters of the same name are taken to count alike.
    """

    def __init__(self, most: int = MOST_COUNTS) -> None:
        self._most = most
        self._counts: dict[str, Remembered[Hashable, _Count]] = {}
        self._changing = Lock()

    def count(self, item: context.ContextEntry, counter: context.Counter) -> int:
        """Return how many tokens an item takes. O(1) if it was counted before, else O(size)."""
        return self.tally((item,), counter).tokens

    def each_and_all(self, items: Iterable[context.ContextEntry], counter: context.Counter) -> tuple[list[int], Tally]:
        """Return how many tokens each of the items takes, in their order, and the result of `tally`, at its cost."""
        tallies = self._each(items, counter, only_known=False)
        return [~tokens if tokens < 0 else tokens for tokens in tallies], _tally(tallies, counter)

    def tally(
        self, items: Iterable[context.ContextEntry], counter: context.Counter, *, only_known: bool = False
    ) -> Tally:
        """Return how many tokens items take together. O(items), and O(size) of those not counted before.

        With ``only_known``, raises `NotCounted` at the first of those.
        """
        return _tally(self._each(items, counter, only_known=only_known), counter)

    def tally_texts(self, texts: Iterable[str], counter: context.Counter, *, only_known: bool = False) -> Tally:
        """Return the tokens of texts together, each as a message of its own. As `tally`, and remembered likewise."""
        counts = self._known(counter.name)
        total = 0
        for text in texts:
            key = (len(text), hash(text))
            count = counts.get(key)
            if count is None:
                if only_known:
                    raise NotCounted
                tokens = counter.count({"role": "user", "content": [{"type": "text", "text": text}]})
                count = counts.keep(key, (0, "", tokens))
            total += count[2]
        return Tally(total, counter.is_estimate and total > 0)

    def count_message(self, message: Mapping[str, JsonValue], counter: context.Counter) -> int:
        """Return how many tokens a message takes that no entry has as it is. O(size), and remembered by its text."""
        text = encode_json(dict(message), "message")[0]
        counts = self._known(counter.name)
        key = (len(text), hash(text), "message")
        count = counts.get(key) or counts.keep(key, (0, "", counter.count(message)))
        return count[2]

    def clear(self) -> None:
        """Forget all counts."""
        with self._changing:
            self._counts.clear()

    def _each(self, items: Iterable[context.ContextEntry], counter: context.Counter, *, only_known: bool) -> list[int]:
        counts = self._known(counter.name)
        tallies = []
        for item in items:
            # Written out, since this is all that happens for each of ten thousand items that were counted before.
            entry = item.entry
            count = counts.get((entry.id, item.excluded_parts) if item.excluded_parts else entry.id)
            # Another store may have the same id for something else. Python keeps the hash of a text beside it.
            if count is None or count[0] != hash(entry.payload) or count[1] != entry.kind:
                if only_known:
                    raise NotCounted
                count = self._count_entry(counts, item, counter)
            tallies.append(count[2])
        return tallies

    def _known(self, name: str) -> Remembered[Hashable, _Count]:
        counts = self._counts.get(name)
        if counts is not None:
            return counts
        with self._changing:
            if len(self._counts) >= MOST_COUNTERS and name not in self._counts:
                del self._counts[next(iter(self._counts))]
            return self._counts.setdefault(name, Remembered(self._most))

    def _count_entry(
        self, counts: Remembered[Hashable, _Count], item: context.ContextEntry, counter: context.Counter
    ) -> _Count:
        message = item.data
        tokens = counter.count(message)
        entry = item.entry
        if entry.kind == MESSAGE and not item.excluded_parts:
            context.TRAITS.note(entry, message)
        count = (hash(entry.payload), entry.kind, tokens if is_text_only(message) else ~tokens)
        return counts.keep((entry.id, item.excluded_parts) if item.excluded_parts else entry.id, count)


def _tally(counts: Sequence[int], counter: context.Counter) -> Tally:
    """Return the sum of counts; one below 0 is ``~tokens``, of an entry that is not all text (`_Count`)."""
    if min(counts, default=0) >= 0:
        total = sum(counts)
        return Tally(total, counter.is_estimate and total > 0)
    return Tally(sum(~tokens if tokens < 0 else tokens for tokens in counts), is_estimate=True)


ENTRY_COUNTS = EntryCounts()
"""The counts that all sessions of the process share."""


class ModelCounter(Frozen):
    """A counter whose counts of entries are remembered in `ENTRY_COUNTS`. Made by `counter_for`.

    ``name`` is ``tiktoken:`` and the vocabulary, ``bytes/3``, or ``faithful``. ``is_estimate`` is False if text is
    counted with the model's own vocabulary.
    """

    name: str
    is_estimate: bool
    _count: Callable[[Mapping[str, JsonValue]], int]

    def __repr__(self) -> str:
        return f"<counter {self.name}>"

    def count(self, message: Mapping[str, JsonValue], /) -> int:
        """Return how many tokens one message takes. O(size)."""
        return self._count(message)

    def count_entry(self, item: context.ContextEntry, /) -> int:
        """Return how many tokens the message of an item takes. O(1) if it was counted before, else O(size)."""
        return ENTRY_COUNTS.count(item, self)

    def count_entries(self, items: Sequence[context.ContextEntry], /) -> list[int]:
        """Return how many tokens each of the items takes. One look-up for each that was counted before."""
        return ENTRY_COUNTS.each_and_all(items, self)[0]


def counter_for(model: str | None, *, faithful: bool = False) -> ModelCounter:
    """Return the counter for a model: of its own vocabulary if that is shipped, else an estimate of bytes / 3.

    ``model`` may have its provider before it (``openai:gpt-5``, ``openai/gpt-5``); None is a model that is not known.
    With ``faithful`` it is the reference's estimate of UTF-16 code units / 4, for any model. Loads nothing: a
    vocabulary is loaded at the first count (see `load_encoding`). O(1).
    """
    if faithful:
        return _FAITHFUL
    return _ESTIMATE if model is None else _counter_of(model) or _ESTIMATE


def budget_counts(items: Sequence[context.ContextEntry]) -> list[int]:
    """Return the sizes of items as a budget counts them: characters / 4, for any model. As `count_entries`."""
    return _FAITHFUL.count_entries(items)


@lru_cache(maxsize=256)
def _counter_of(model: str) -> ModelCounter | None:
    name = next((name for name in context.model_names(model) if encoding_name_for(name) is not None), None)
    if name is None:
        return None
    counter = f"tiktoken:{encoding_name_for(name)}"
    return ModelCounter(counter, is_estimate=False, _count=lambda message: count_message_tokens(message, name).tokens)


_ESTIMATE = ModelCounter(
    f"bytes/{ESTIMATE_BYTES_PER_TOKEN}",
    is_estimate=True,
    _count=lambda message: estimate_message_tokens(message).tokens,
)
_FAITHFUL = ModelCounter("faithful", is_estimate=True, _count=faithful_tokens)


# ---------------------------------------------------------------------------------------------------------------------
# How large a context is: by the report of the provider, while that is fresh, and by our own count.

_NO_TALLY = Tally(0, is_estimate=False)


def measure_context(
    items: Sequence[context.ContextEntry],
    counter: context.Counter,
    *,
    model: str | None = None,
    provider: str | None = None,
    system: str | None = None,
    tools: Sequence[Mapping[str, JsonValue]] | None = None,
    window: int | None = None,
    use_reported: bool = True,
    changed_at: int = -1,
    only_known: bool = False,
) -> context.ContextSize:
    """Return how large a context is: the items of `Session.build_context_entries`, all of them.

    The whole is counted, and remembered in `ENTRY_COUNTS`. With ``use_reported``, the size is taken from the newest
    answer that reports one, as `reported_size` finds it, and our count of the items after it; the system prompt and the
    tools are then in it. ``system`` and ``tools`` (their JSON) go with the call, "" and () for none,
    None if that is unknown. ``window`` is the model's: a report above it is not believed. Raises `InvalidEntry` for
    tools that are no JSON, and with ``only_known`` `NotCounted` for items that were not counted before.
    O(items), and O(size) of those that were not counted before.
    """
    reported = (
        reported_size(items, model=model, provider=provider, changed_at=changed_at, only_known=only_known)
        if use_reported
        else None
    )
    after = 0 if reported is None else reported.place + 1
    before = ENTRY_COUNTS.tally(items[:after], counter, only_known=only_known) if after else _NO_TALLY
    trailing = ENTRY_COUNTS.tally(items[after:] if after else items, counter, only_known=only_known)
    prompt = ENTRY_COUNTS.tally_texts([system] if system else (), counter, only_known=only_known)
    # A provider prints them in a way of its own, which is never quite their JSON.
    offered = ENTRY_COUNTS.tally_texts(texts_of(tools or ()), counter, only_known=only_known)
    is_estimate = before.is_estimate or trailing.is_estimate or prompt.is_estimate or offered.tokens > 0
    return context.ContextSize(
        counter.name,
        before.tokens + trailing.tokens,
        trailing.tokens,
        None if system is None else prompt.tokens,
        None if tools is None else offered.tokens,
        reported,
        window,
        is_estimate,
        trailing.is_estimate,
    )


def reported_size(
    items: Sequence[context.ContextEntry],
    *,
    model: str | None = None,
    provider: str | None = None,
    changed_at: int = -1,
    only_known: bool = False,
) -> context.ReportedSize | None:
    """Return the report of the newest answer among the items on the context up to itself; None if none can be used.

    Never that of an answer that lies before the latest compaction or at most at the depth ``changed_at``, whose context
    was another; that was aborted or failed, or reports nothing or zero; that another model or provider than the one
    asked for gave; that was copied from elsewhere, with the numbers of there. An answer that names no model is taken
    for one of the model asked for. O(items after the answer); reports are remembered, and with ``only_known`` raises
    `NotCounted` for an answer that was not read before.
    """
    for place in range(len(items) - 1, context.usage_start(items) - 1, -1):
        entry = items[place].entry
        if entry.kind != MESSAGE or entry.role != ASSISTANT:
            continue
        if entry.depth <= changed_at:
            return None
        report = _report_of(entry, only_known=only_known)
        if report is not None and _is_of(report, model, provider):
            return replace(report, place=place)
    return None


def texts_of(tools: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the JSON text of each tool. Raises `InvalidEntry` for a tool that is no JSON. O(size)."""
    return [encode_json(cast("JsonObject", dict(tool)), "tools")[0] for tool in tools]


def changed_depth(path: Iterable[Entry]) -> int:
    """Return the depth of the last entry on a path that changed the prefix of earlier answers; -1 if none.

    That is an exclusion, or a compaction that takes another back, or that no item of the context tells of.
    """
    changes = (
        entry.depth
        for entry in path
        if entry.kind == EXCLUSION
        or (entry.kind == COMPACTION and (context.RESTORES in entry.fields or is_silent(entry)))
    )
    return max(changes, default=-1)


def _is_of(reported: context.ReportedSize, model: str | None, provider: str | None) -> bool:
    if model is not None and reported.model is not None and not context.is_same_model(reported.model, model):
        return False
    return provider is None or reported.provider is None or reported.provider.lower() == provider.lower()


_REPORTS: Remembered[str, tuple[tuple[int, int], context.ReportedSize | None]] = Remembered(10_000)
"""The reports of answers, by entry: reading one takes decoding the answer."""


def _report_of(entry: Entry, *, only_known: bool) -> context.ReportedSize | None:
    same = hash(entry.payload), hash(entry.extra)
    remembered = _REPORTS.get(entry.id)
    if remembered is None or remembered[0] != same:
        if only_known:
            raise NotCounted
        remembered = _REPORTS.keep(entry.id, (same, _read_report(entry)))
    return remembered[1]


def _read_report(entry: Entry) -> context.ReportedSize | None:
    message = entry.fields
    tokens = context.reported_tokens(message)
    if not tokens or tokens < 0 or context.provenance_of(entry) is not None:
        return None
    provider, model = message.get("provider"), message.get("model")
    return context.ReportedSize(
        tokens,
        entry.id,
        0,
        provider if isinstance(provider, str) and provider else None,
        model if isinstance(model, str) and model else None,
        cleared_tokens(message),
    )


def checked_request(
    model: str | None, provider: str | None, system: str | None, tools: Sequence[Mapping[str, object]] | None
) -> list[JsonObject] | None:
    """Check the rest of a request beside its messages, and return the tools.

    Raises `InvalidArgument`, and `InvalidEntry` for a tool that is no JSON.
    """
    for field, name in (("model", model), ("provider", provider)):
        check_label(name, field)
        if name == "":
            raise InvalidArgument(f"{field}: must not be empty; leave it out if it is unknown")
    if system is not None and not isinstance(system, str):
        raise InvalidArgument(f"system: {shown(system)} is not the text of a system prompt")
    if tools is None:
        return None
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Sequence):
        raise InvalidArgument(f"tools: {shown(tools)} is not a list of the tools' definitions")
    for tool in tools:
        if not isinstance(tool, Mapping):
            raise InvalidArgument(f"tools: {shown(tool)} is not the definition of a tool, a JSON object")
    texts_of(tools)
    return cast("list[JsonObject]", [*tools])
