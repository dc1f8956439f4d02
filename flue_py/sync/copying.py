"""The blocking twin of `flue_py.transfer.copy_store`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper

from flue_py.errors import InvalidArgument, shown
from flue_py.sync import Store
from flue_py.sync.twins import parts_of
from flue_py.sync.ways import OnThisThread
from flue_py.transfer import copying
from flue_py.transfer.copying import CopyProgress, CopyReport


def copy_store(
    source: Store,
    target: Store,
    *,
    progress: Callable[[CopyProgress], None] | None = None,
    verify: bool = True,
) -> CopyReport:
    for what, store in (("source", source), ("target", target)):
        if not isinstance(store, Store):
            raise InvalidArgument(f"{what}: {shown(store)} is not a Store of flue_py.sync")
    (way, origin), (other, destination) = parts_of(source), parts_of(target)
    other.require_running()
    if isinstance(way, OnThisThread):
        # A store on this thread can be called on any, so the event loop of the other one, if it has one, is for both.
        way.require_running()
        way = other
    elif way is not other and not isinstance(other, OnThisThread):
        raise InvalidArgument(
            "source and target each have an event loop of their own; open both with flue_py.open in one event loop, "
            "and await flue_py.transfer.copy_store"
        )
    return way.call(partial(copying.copy_store, origin, destination, progress=progress, verify=verify))


update_wrapper(copy_store, copying.copy_store)
