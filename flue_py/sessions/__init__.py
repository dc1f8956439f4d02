"""Store and Session: the public surface. Every operation is one transaction of a `Backend`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if TYPE_CHECKING:
    from flue_py.sessions import incoming

__all__ = ["incoming"]
__getattr__ = lazy_modules(__name__)
