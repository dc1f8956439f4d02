"""How much of what a provider takes in one request, with the source of each number.

Where two sources differ, the smaller number stands: what fits it is taken by either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from flue_py.core.frozen import frozen
from flue_py.core.shapes import Shape
from flue_py.errors import InvalidArgument, shown


@frozen
class RequestLimits:
    """The limits of one provider's requests. None is a limit that is not known, and is not checked.

    ``id_pattern`` and ``most_id_chars`` are for the ids of tool calls, ``name_pattern`` and ``most_name_chars`` for the
    names of tools. ``images`` is how many a request may have, ``image_chars`` how long the base64 text of one may be,
    ``image_chars_in_all`` of all of them, and ``image_side`` how many pixels a side of one may have, or
    ``many_images_side`` where there are more than ``many_images``. ``image_types`` are the MIME types that are taken.
    ``request_bytes`` is the size of the whole request as JSON. ``answer_last`` says whether an answer may stand last,
    for the model to go on with, and ``system_within`` whether a system message may stand in the middle. ``source`` says
    where the numbers are from.
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
    source: str
    answer_last: bool = True
    system_within: bool = True

    def takes_id(self, call_id: object) -> bool:
        """Return whether a provider takes a value as the id of a tool call."""
        return isinstance(call_id, str) and _fits(call_id, self.id_pattern, self.most_id_chars)

    def takes_name(self, name: object) -> bool:
        """Return whether a provider takes a value as the name of a tool."""
        return isinstance(name, str) and _fits(name, self.name_pattern, self.most_name_chars)


def _fits(text: str, pattern: str, most: int) -> bool:
    return 0 < len(text) <= most and _matches(text, pattern)


@lru_cache(maxsize=8_192)
def _matches(text: str, pattern: str) -> bool:
    # The same ids and names are asked about before a request is made, when it is, and for the next one.
    return re.fullmatch(pattern, text) is not None


_COMMON_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})

_ANTHROPIC = RequestLimits(
    id_pattern=r"[a-zA-Z0-9_-]+",
    most_id_chars=64,
    name_pattern=r"[a-zA-Z0-9_-]+",
    most_name_chars=128,
    images=100,
    image_chars=5 * 1024 * 1024,
    image_chars_in_all=None,
    image_side=8_000,
    many_images=20,
    many_images_side=2_000,
    image_types=_COMMON_TYPES,
    request_bytes=32_000_000,
    source="Anthropic's documentation of vision, of tools and of errors, November 2026",
)
_CHAT = RequestLimits(
    id_pattern=r"(?s).+",
    most_id_chars=40,
    name_pattern=r"[a-zA-Z0-9_-]+",
    most_name_chars=64,
    images=500,
    image_chars=None,
    image_chars_in_all=50_000_000,
    image_side=None,
    many_images=None,
    many_images_side=None,
    image_types=_COMMON_TYPES,
    request_bytes=None,
    source="OpenAI's documentation of images and of function calling, and the API's own refusals, November 2026",
)
_RESPONSES = replace(_CHAT, most_id_chars=64)
_GEMINI = RequestLimits(
    id_pattern=r"(?s).+",
    most_id_chars=1_000_000,
    name_pattern=r"[a-zA-Z_][a-zA-Z0-9_.:-]*",
    most_name_chars=64,
    images=900,
    image_chars=7_000_000,
    image_chars_in_all=None,
    image_side=None,
    many_images=None,
    many_images_side=None,
    image_types=frozenset({"image/jpeg", "image/png", "image/webp", "image/heic", "image/heif"}),
    request_bytes=None,
    source="Google's documentation of images and of FunctionDeclaration, November 2026",
)

LIMITS: Mapping[Shape, RequestLimits] = {
    "anthropic": _ANTHROPIC,
    "openai-chat": _CHAT,
    "openai-responses": _RESPONSES,
    "gemini": _GEMINI,
}


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
    limits = LIMITS[checked_target(target)]
    return _of_model(limits, model.lower()) if limits is _ANTHROPIC and model else limits


@lru_cache(maxsize=64)
def _of_model(limits: RequestLimits, model: str) -> RequestLimits:
    if "claude" not in model:
        # Others that speak this form were made for the form as it began.
        return replace(limits, system_within=False)
    version = _CLAUDE.search(model)
    number = (int(version[1]), int(version[2] or 0)) if version else (99, 0)
    return replace(limits, answer_last=number <= _LAST_WITH_PREFILL, system_within=number >= _FIRST_WITH_SYSTEM)


def checked_target(target: object) -> Shape:
    """Return the name of a target. Raises `InvalidArgument`, with the names that there are, for any other value."""
    found = next((name for name in LIMITS if name == target), None)
    if found is None:
        raise InvalidArgument(f"target: should be one of {', '.join(LIMITS)}, not {shown(target)}")
    return found
