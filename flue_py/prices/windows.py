"""How large the context window of a model is, as published beside its prices (genai-prices). No network."""

from __future__ import annotations

from flue_py.core.counting import model_names
from flue_py.prices.published import published_prices


def published_window(model: str, provider: str | None = None) -> int | None:
    """Return the context window of a model in tokens; None where it is not known.

    ``model`` may have its provider before it. What is published is loaded once (half a second), then O(1).
    """
    published = published_prices()
    # A provider that only passes calls on is not known by its name, but the model is.
    for name in model_names(model):
        for by in dict.fromkeys((provider or "", "")):
            window = published.window_of(by, name)
            if window is not None:
                return window
    return None
