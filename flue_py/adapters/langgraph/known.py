"""What a process remembers of entries: they never change, so what was read or written once need not be read again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Value = TypeVar("Value")


class Known(Generic[Value]):
    """The values that were used last, up to a number of them. Any thread may use it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Value | None:
        """Return a value, or None. O(1)."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def get_or_put(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return a value, made if it is not there. O(1)."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                found = make()
            self._put(key, found)
            return found

    def put(self, key: Hashable, value: Value) -> None:
        """Remember a value, and forget the one that was not used for the longest time. O(1)."""
        with self._lock:
            self._put(key, value)

    def _put(self, key: Hashable, value: Value) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._values.popitem(last=False)
