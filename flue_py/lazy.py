"""Importing modules and names, and compiling expressions, when they are first used: the one way to put that off.

For mypy and import-linter, a module that is put off is imported under `TYPE_CHECKING`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from sys import modules
from types import ModuleType
from typing import AnyStr, cast


class _StandIn:
    def __init__(self, find: Callable[[], object]) -> None:
        self._find = find

    def __getattr__(self, name: str) -> object:
        # Kept, so that the next use costs the same as that of the thing itself.
        value: object = getattr(self._find(), name)
        setattr(self, name, value)
        return value


def lazy_module(name: str) -> ModuleType:
    """Return a stand-in for a module, which imports it at the first use of an attribute. O(1).

    Raises the errors of the import, at that use.
    """
    return cast("ModuleType", _StandIn(lambda: import_module(name)))


def expression(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression that is compiled when it is first used. O(1).

    Those of the modules that each command loads took a twentieth of its start. It has the methods of a pattern, but the
    functions of `re` do not take it. Raises `re.error` at that use.
    """
    return cast("re.Pattern[AnyStr]", _StandIn(lambda: re.compile(text, flags)))


def lazy_modules(package: str) -> Callable[[str], ModuleType]:
    """Return a ``__getattr__`` for a package, which imports its modules when they are asked for.

    ``from flue_py import render`` then loads next to nothing, and ``render.report.html_report`` the report.
    """

    return lambda name: _module_of(package, name)


def _module_of(package: str, name: str) -> ModuleType:
    path = f"{package}.{name}"
    if not name.startswith("__"):
        try:
            return import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:
                raise
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a package that offers names of other modules, and imports these when asked for one.

    ``homes`` has the names that each module gives, as words. The package's own modules are offered, too.
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def value_named(name: str) -> object:
        if name not in home_of:
            return _module_of(package, name)
        value: object = getattr(import_module(home_of[name]), name)
        setattr(modules[package], name, value)
        return value

    return value_named
