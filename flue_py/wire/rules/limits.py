"""How much of what a provider takes in one request, with the source of each number.

Where two sources differ, the smaller number stands: what fits it is taken by either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, fields, replace
from functools import lru_cache
from typing import TypeAlias

from flue_py.core.frozen import frozen
from flue_py.core.shapes import Shape
from flue_py.errors import InvalidArgument, shown


@frozen
class RequestLimits:
    """The limits of one provider's requests. None is a limit that is not known, and is not checked.

    ``id_pattern`` and ``most_id_chars`` are for the ids of tool calls, ``name_pattern`` and ``most_name_chars`` for the
    names of tools and of who speaks, ``item_id_pattern`` for the ids of items. ``images`` is how many a request may
    have, ``image_chars`` how long the base64 text of one may be, ``image_chars_in_all`` of all of them, and
    ``image_side`` how many pixels a side of one may have, or ``many_images_side`` where there are more than
    ``many_images``. ``image_types`` are the MIME types that are taken. ``text_chars`` is how long one text may be, and
    ``file_chars`` the base64 text of one file. ``messages`` and ``tools`` are how many a request may have,
    ``request_bytes`` its size as JSON. ``answer_last`` says whether an answer may stand last, for the model to go on
    with, ``system_within`` whether a system message may stand in the middle, and ``empty_texts`` whether the text of a
    part may be "". ``sources`` says of each row where it is from, and of when that is.
    """

    id_pattern: str
    most_id_chars: int
    name_pattern: str
    most_name_chars: int
    images: int
    image_chars: int | None
    image_chars_in_all: int | None
    image_side: int | None
    many_images: int | None
    many_images_side: int | None
    image_types: frozenset[str]
    request_bytes: int | None
    sources: Mapping[str, str] = field(compare=False)
    answer_last: bool = True
    system_within: bool = True
    empty_texts: bool = True
    item_id_pattern: str | None = None
    text_chars: int | None = None
    file_chars: int | None = None
    messages: int | None = None
    tools: int | None = None

    @property
    def source(self) -> str:
        """Where all of it is from, each source once."""
        return "; ".join(dict.fromkeys(self.sources.values()))

    def takes_id(self, call_id: object) -> bool:
        """Return whether a provider takes a value as the id of a tool call."""
        return isinstance(call_id, str) and _fits(call_id, self.id_pattern, self.most_id_chars)

    def takes_item_id(self, item_id: object) -> bool:
        """Return whether a provider takes a value as the id of an item. It need not have any."""
        pattern = self.item_id_pattern
        return item_id is None or pattern is None or (isinstance(item_id, str) and _matches(item_id, pattern))

    def takes_name(self, name: object) -> bool:
        """Return whether a provider takes a value as the name of a tool."""
        return isinstance(name, str) and _fits(name, self.name_pattern, self.most_name_chars)


def _fits(text: str, pattern: str, most: int) -> bool:
    return 0 < len(text) <= most and _matches(text, pattern)


@lru_cache(maxsize=8_192)
def _matches(text: str, pattern: str) -> bool:
    # The same ids and names are asked about before a request is made, when it is, and for the next one.
    return re.fullmatch(pattern, text) is not None


_VISION = "Anthropic's documentation of vision, November 2026"
_OPENAI_IMAGES = "OpenAI's documentation of images, November 2026"
_OPENAPI = "OpenAI's OpenAPI description, August 2026"
_GOOGLE_IMAGES = "Google's documentation of images, November 2026"
_COMMON_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_NAME = r"[a-zA-Z0-9_-]+"
_Row: TypeAlias = tuple[object, str]


def _limits(like: RequestLimits | None = None, /, **rows: _Row) -> RequestLimits:
    """Return the limits that rows say, each a value and its source; what has no row is as in others, or not known."""
    others = () if like is None else fields(like)
    beneath = {**dict.fromkeys(_NOT_KNOWN), **{each.name: getattr(like, each.name) for each in others}}
    sources = {**({} if like is None else like.sources), **{name: source for name, (_, source) in rows.items()}}
    values = {name: value for name, (value, _) in rows.items()}
    return RequestLimits(**{**beneath, **values, "sources": sources})


_NOT_KNOWN = ("image_chars", "image_chars_in_all", "image_side", "many_images", "many_images_side", "request_bytes")

_ANTHROPIC = _limits(
    id_pattern=(_NAME, "the API's refusal, November 2026"),
    most_id_chars=(64, "the API's refusal, November 2026"),
    name_pattern=(_NAME, "Anthropic's documentation of tools, November 2026"),
    most_name_chars=(128, "Anthropic's documentation of tools, November 2026"),
    images=(100, f"{_VISION}: for a window of 200,000 tokens, and 600 for larger ones"),
    image_chars=(5 * 1024 * 1024, _VISION),
    image_side=(8_000, _VISION),
    many_images=(20, _VISION),
    many_images_side=(2_000, _VISION),
    image_types=(_COMMON_TYPES, _VISION),
    request_bytes=(32_000_000, "Anthropic's documentation of errors, November 2026"),
    messages=(100_000, "anthropic 2.14.0, November 2026"),
)
_CHAT = _limits(
    id_pattern=(r"(?s).+", "the API's refusal, February 2026"),
    most_id_chars=(40, "the API's refusal, February 2026"),
    name_pattern=(_NAME, f"{_OPENAPI}; for who speaks, the API's refusal, 2024"),
    most_name_chars=(64, _OPENAPI),
    images=(500, f"{_OPENAI_IMAGES}; another page has 1,500"),
    image_chars_in_all=(50_000_000, f"{_OPENAI_IMAGES}; another page has 512 MB"),
    image_types=(_COMMON_TYPES, _OPENAI_IMAGES),
    text_chars=(10_485_760, "the API's refusal, May 2025"),
    tools=(128, f"{_OPENAPI}; the API's refusal, November 2025"),
)
_RESPONSES = _limits(
    _CHAT,
    most_id_chars=(64, _OPENAPI),
    most_name_chars=(128, _OPENAPI),
    item_id_pattern=(r"[a-zA-Z0-9_-]{1,64}", "the API's refusal, July 2026"),
    image_chars=(20_971_520 - len("data:image/jpeg;base64,"), f"{_OPENAPI}: of the URL"),
    text_chars=(10_485_760, _OPENAPI),
    file_chars=(73_400_320, _OPENAPI),
    tools=(None, f"{_OPENAPI}: no limit"),
)
_GEMINI = _limits(
    id_pattern=(r"(?s).+", "no limit is documented, November 2026"),
    most_id_chars=(1_000_000, "no limit is documented, November 2026"),
    name_pattern=(r"[a-zA-Z_][a-zA-Z0-9_.:-]*", "Google's documentation of FunctionDeclaration, November 2026"),
    most_name_chars=(64, "Google's documentation of FunctionDeclaration, 2026; google-genai 3.6.1 has 128"),
    images=(900, f"{_GOOGLE_IMAGES}: of a preview model, and 3,000 of others"),
    image_chars=(7_000_000, _GOOGLE_IMAGES),
    image_types=(
        frozenset({"image/jpeg", "image/png", "image/webp", "image/heic", "image/heif"}),
        _GOOGLE_IMAGES,
    ),
    empty_texts=(False, "the API's refusal, January 2026"),
)

LIMITS: Mapping[Shape, RequestLimits] = {
    "anthropic": _ANTHROPIC,
    "openai-chat": _CHAT,
    "openai-responses": _RESPONSES,
    "gemini": _GEMINI,
}
_NOT_IN_CLOUDS: _Row = (False, "Anthropic's documentation: neither Amazon Bedrock nor Google Cloud, July 2026")
_OF_MODELS: tuple[tuple[Shape, re.Pattern[str], Mapping[str, _Row]], ...] = (
    # Others that speak this form were made for the form as it began.
    ("anthropic", re.compile(r"(?!.*claude)"), {"system_within": (False, "the form as of 2024")}),
    ("anthropic", re.compile(r".*claude-.*@|publishers/"), {"system_within": _NOT_IN_CLOUDS}),
    (
        "anthropic",
        re.compile(r"(.*[./:])?anthropic\.claude"),
        {
            "system_within": _NOT_IN_CLOUDS,
            "request_bytes": (20_000_000, "the Amazon Bedrock user guide, of InvokeModel, 2026"),
        },
    ),
    (
        "openai-chat",
        re.compile(r".*(mistral|mixtral|ministral|codestral|devstral|magistral|pixtral|voxtral)"),
        {
            "id_pattern": (r"[a-zA-Z0-9]{9}", "Mistral's refusal, March 2026"),
            "most_id_chars": (9, "Mistral's refusal, March 2026"),
        },
    ),
)
"""Where some models take less than their target does: what their names match, and the rows that differ."""


_CLAUDE = re.compile(r"claude(?:-[a-z]+)*-v?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_LAST_WITH_PREFILL = (4, 5)
"""From Claude 4.6 on an answer that stands last is refused (Anthropic's notes on migration to Opus 4.6, 2026)."""
_FIRST_WITH_SYSTEM = (4, 8)
"""From Claude 4.8 on a system message may stand behind one of the user ("What's new in Claude 4.8", May 2026)."""


def limits_of(target: str, model: str | None = None) -> RequestLimits:
    """Return the limits of a target, and of a model of it, where that is known.

    Of Anthropic's models the newest are meant by a name without a version. Raises `InvalidArgument` for a target that
    is none. O(1).
    """
    name = checked_target(target)
    return _of_model(name, model.lower()) if model else LIMITS[name]


@lru_cache(maxsize=64)
def _of_model(target: Shape, model: str) -> RequestLimits:
    limits = LIMITS[target]
    if target == "anthropic" and "claude" in model:
        version = _CLAUDE.search(model)
        number = (int(version[1]), int(version[2] or 0)) if version else (99, 0)
        limits = replace(limits, answer_last=number <= _LAST_WITH_PREFILL, system_within=number >= _FIRST_WITH_SYSTEM)
    for of, pattern, rows in _OF_MODELS:
        if of == target and pattern.match(model):
            limits = _limits(limits, **rows)
    return limits


def checked_target(target: object) -> Shape:
    """Return the name of a target. Raises `InvalidArgument`, with the names that there are, for any other value."""
    found = next((name for name in LIMITS if name == target), None)
    if found is None:
        raise InvalidArgument(f"target: should be one of {', '.join(LIMITS)}, not {shown(target)}")
    return found
