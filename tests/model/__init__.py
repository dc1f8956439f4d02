"""The reference model: what a store must answer, in dicts and parent links, for the state machines to compare with.

It imports nothing of `flue_py.db`, so that a fault there cannot be in both. Copies of stores are compared with each
other instead.
"""

from __future__ import annotations

from tests.model.store_model import StoreModel

__all__ = ["StoreModel"]
