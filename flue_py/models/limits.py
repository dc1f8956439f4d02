"""How long an answer of a known model may be. (How large its window is, pydantic-ai knows by genai-prices.)"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel

_MAX_OUTPUT = {
    # The pages of the models at https://platform.openai.com/docs/models
    **dict.fromkeys(("gpt-5", "gpt-5-mini", "gpt-5-nano"), 128_000),
    **dict.fromkeys(("o1", "o3", "o3-mini", "o3-pro", "o4-mini"), 100_000),
    **dict.fromkeys(("gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano"), 32_768),
    **dict.fromkeys(("gpt-4o", "gpt-4o-mini"), 16_384),
    # The pages of the models at https://ai.google.dev/gemini-api/docs/models
    **dict.fromkeys(("gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"), 65_536),
}
"""Of models whose provider says so: a name that is not here, or here with a date behind it, is unknown."""

_DATE = re.compile(r"-20\d\d-?\d\d-?\d\d$")


def max_output_of(model: TheirModel) -> int | None:
    """Return how many tokens an answer may have, None if that is not known. O(1)."""
    try:
        told = model.profile.get("anthropic_max_output_tokens")
    except NotImplementedError:  # several models behind one
        return None
    return told if isinstance(told, int) else _MAX_OUTPUT.get(_DATE.sub("", model.model_name))
