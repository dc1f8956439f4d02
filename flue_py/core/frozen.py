"""`frozen`, which makes a class a frozen data class with slots, as `dataclasses.dataclass` does but faster.

``dataclass(frozen=True, slots=True)`` compiles six functions for each class: with eighty classes that was a third of
what a short command took to start. Here only ``__init__`` is compiled; what compares, hashes, shows and freezes is
shared. The standard library still collects the fields: ``fields``, ``replace``, ``asdict`` and ``match`` work as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields, replace
from operator import attrgetter
from types import FunctionType
from typing import Any, NoReturn, TypeVar, dataclass_transform

Made = TypeVar("Made")
_Fields = Sequence[Field[Any]]

_set = object.__setattr__
_become = object.__dict__["__class__"].__set__

_drafts: dict[type, type] = {}
_Copier = Callable[[Any, Mapping[str, object]], Any]
_copiers: dict[type, _Copier | None] = {}
_PAYS_FOR_CHANGING_CLASS = 8
"""From so many fields on, an object is filled sooner as one of a class that lets itself be assigned to."""


class _Factory:
    """What stands for a default that is made anew, and is shown so in a signature."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[Made]) -> type[Made]:
    """Return the class as ``dataclass(frozen=True, slots=True)`` would.

    ``__post_init__`` is called. Every field is a parameter of ``__init__``, and is hashed where it is compared.
    """
    made = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    found: _Fields = fields(made)  # type: ignore[arg-type] # it is a data class now
    methods = {"__init__": _init(made, found), **_comparison(found), **_copying(found), **_FROZEN}
    methods["__repr__"] = _representation(found)
    for name, method in methods.items():
        setattr(made, name, method)
    return made


def changed(value: Made, **fields: object) -> Made:
    """Return a frozen value with other fields, as `dataclasses.replace` does, in a third of the time where it has many.

    Raises `TypeError` for a field that it has not.
    """
    cls: type = type(value)
    if cls not in _copiers:
        _copiers[cls] = _copier(cls)
    copied = _copiers[cls]
    if copied is None:
        return replace(value, **fields)  # type: ignore[type-var] # only frozen values have this
    made: Made = copied(value, fields)
    return made


def _copier(cls: type) -> _Copier | None:
    """Return what copies the values of a class with other fields; None where that is nothing quicker."""
    draft = _drafts.get(cls)
    if draft is None or hasattr(cls, "__post_init__"):
        return None
    names = frozenset(each.name for each in fields(cls))
    known: dict[str, Any] = {"_new": object.__new__, "_draft": draft}
    copies = "\n".join(f" made.{name} = value.{name}" for name in names)
    exec(f"def copied(value):\n made = _new(_draft)\n{copies}\n return made", known)  # noqa: S102 - own fields
    copied = known["copied"]

    def changing(value: object, others: Mapping[str, object]) -> object:
        made = copied(value)
        for name, item in others.items():
            if name not in names:
                raise TypeError(f"{cls.__qualname__} has no field {name!r}")
            setattr(made, name, item)
        made.__class__ = cls
        return made

    return changing


def _init(cls: type, found: _Fields) -> FunctionType:
    """Return ``__init__``, compiled of its source, as the standard library does it: a loop would be slow to call."""
    known: dict[str, object] = {"_factory": _FACTORY}
    parameters, given = ["self"], {}
    for each in found:
        name = given[each.name] = each.name
        if each.default is not MISSING:
            known[f"_default_{name}"] = each.default
            parameters.append(f"{name}=_default_{name}")
        elif each.default_factory is not MISSING:
            known[f"_make_{name}"] = each.default_factory
            parameters.append(f"{name}=_factory")
            given[name] = f"_make_{name}() if {name} is _factory else {name}"
        else:
            parameters.append(name)
    lines = _filling_lines(cls, given, known)
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n".join(f" {line}" for line in lines or ["pass"])
    exec(f"def __init__({', '.join(parameters)}):\n{body}", known)  # noqa: S102 - own fields
    made = known["__init__"]
    assert isinstance(made, FunctionType)
    made.__annotations__ = {**{each.name: each.type for each in found}, "return": None}
    made.__module__, made.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    return made


def _filling_lines(cls: type, given: Mapping[str, str], known: dict[str, object]) -> list[str]:
    """Return the lines that give each field its value; what they name is added to ``known``."""
    draft = _draft_of(cls) if len(given) >= _PAYS_FOR_CHANGING_CLASS else None
    if draft is None:
        # That of the slot itself: ``object.__setattr__`` would look it up by its name each time.
        known |= {f"_set_{name}": getattr(cls, name).__set__ for name in given}
        return [f"_set_{name}(self, {value})" for name, value in given.items()]
    known |= {"_cls": cls, "_draft": draft, "_become": _become, "_fill": _filling([*given])}
    return [
        "if self.__class__ is _cls:",
        *(f" {name} = {value}" for name, value in given.items() if name != value),
        " _become(self, _draft)",
        *(f" self.{name} = {name}" for name in given),
        " self.__class__ = _cls",
        # The slots of a subclass are others.
        "else:",
        f" _fill(self, {', '.join(given.values())})",
    ]


def _filling(names: Sequence[str]) -> Callable[..., None]:
    def fill(self: object, *values: object) -> None:
        for name, value in zip(names, values, strict=True):
            _set(self, name, value)

    return fill


def _draft_of(cls: type) -> type | None:
    """Return a class of the same slots that is not frozen; None where its objects cannot become those of ``cls``.

    An assignment to a slot takes a few nanoseconds, where the call of a slot's ``__set__`` takes fifty.
    """
    if cls.__bases__ != (object,):
        return None
    draft = type(cls.__name__, (), {"__slots__": cls.__dict__["__slots__"]})
    try:
        _become(object.__new__(cls), draft)
    except TypeError:
        return None
    _drafts[cls] = draft
    return draft


_Method = Callable[..., Any]


def _comparison(found: _Fields) -> dict[str, _Method]:
    names = [each.name for each in found if each.compare]
    # Of one name attrgetter gives the value itself, and of none there is no attrgetter.
    compared: _Method = attrgetter(*names) if len(names) > 1 else _values(names)

    def equal(self: object, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: object) -> int:
        return hash(compared(self))

    return {"__eq__": equal, "__hash__": hashed}


def _values(names: Sequence[str]) -> Callable[[object], tuple[object, ...]]:
    return lambda self: tuple(getattr(self, name) for name in names)


def _representation(found: _Fields) -> _Method:
    names = [each.name for each in found if each.repr]

    def shown(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return shown


def _copying(found: _Fields) -> dict[str, _Method]:
    """Return what `copy` and `pickle` use: a copy has the fields as they are, without ``__post_init__``."""
    names = [each.name for each in found]

    def taken(self: object) -> list[object]:
        return [getattr(self, name) for name in names]

    fill = _filling(names)

    def given(self: object, state: Sequence[object]) -> None:
        fill(self, *state)

    return {"__getstate__": taken, "__setstate__": given}


def _refuse_setting(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_FROZEN: Mapping[str, _Method] = {"__setattr__": _refuse_setting, "__delattr__": _refuse_deleting}
