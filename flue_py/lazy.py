"""Importing a module when it is first used: the one way in which this package puts an import off."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def lazy_modules(package: str) -> Callable[[str], ModuleType]:
    """Return a ``__getattr__`` for a package, which imports its modules when they are asked for.

    ``from flue_py import render`` then loads next to nothing, and ``render.report.html_report`` the report.
    """

    def module_named(name: str) -> ModuleType:
        path = f"{package}.{name}"
        if not name.startswith("__"):
            try:
                return import_module(path)
            except ModuleNotFoundError as error:
                if error.name != path:
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return module_named
