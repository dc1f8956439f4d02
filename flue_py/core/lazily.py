"""Modules that are slow to import, and are imported when something of them is first used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def lazy_module(name: str) -> ModuleType:
    """Return a stand-in for a module, which imports it at the first use of an attribute. O(1).

    Raises what the import raises, at that use. For mypy and import-linter, import the module under `TYPE_CHECKING`.
    """
    stand_in = ModuleType(name)

    def load(attribute: str) -> object:
        # Kept, so that the next use costs what it costs of the module itself.
        found: object = getattr(import_module(name), attribute)
        stand_in.__dict__[attribute] = found
        return found

    stand_in.__dict__["__getattr__"] = load
    return stand_in
