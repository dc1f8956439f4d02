"""The cost of calls whose provider did not report it, from the user's own or from published prices. No network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_names

if TYPE_CHECKING:
    from flue_py.prices.book import PriceBook

__all__ = [
    "PriceBook",
]
__getattr__ = lazy_names(
    __name__,
    {
        "flue_py.prices.book": ("PriceBook",),
    },
)
