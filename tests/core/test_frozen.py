"""Frozen values: what `frozen` makes is what the standard library would make."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field

import pytest

from flue_py.core.json import changed, frozen


class Plain:
    """A value with every kind of field there is."""

    name: str
    sizes: tuple[int, ...] = (1, 2)
    labels: dict[str, str] = field(default_factory=dict)
    row: int = field(default=0, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.strip())

    @property
    def first(self) -> str:
        """The first letter."""
        return self.name[0]


def made_by(decorate: object) -> type:
    """Return a class of the same body, made anew: slots are a new class."""
    assert callable(decorate)
    return decorate(type("Plain", (), {**vars(Plain), "__qualname__": "Plain"}))  # type: ignore[no-any-return]


Ours = made_by(frozen)
Theirs = made_by(dataclass(frozen=True, slots=True))


@frozen
class Pair:
    """Two names."""

    left: str
    right: str = ""


@frozen
class Nothing:
    """No field at all."""


class Long:
    """A value with so many fields that it is filled another way, which nobody can tell."""

    a: int
    b: int
    c: int
    d: int
    e: int
    f: int = 6
    g: str = " g "
    labels: dict[str, str] = field(default_factory=dict)
    row: int = field(default=0, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "g", self.g.strip())


def long_by(decorate: object) -> type:
    """Return a class of that body, made anew."""
    assert callable(decorate)
    return decorate(type("Long", (), {**vars(Long), "__qualname__": "Long"}))  # type: ignore[no-any-return]


def test_it_is_the_same_with_many_fields_and_as_a_base_class() -> None:
    ours, theirs = long_by(frozen), long_by(dataclass(frozen=True, slots=True))
    for of_ours, of_theirs in ((ours, theirs), (type("Long", (ours,), {}), type("Long", (theirs,), {}))):
        made, expected = of_ours(1, 2, 3, 4, e=5), of_theirs(1, 2, 3, 4, e=5)
        assert type(made) is of_ours
        assert repr(made) == repr(expected)
        assert dataclasses.asdict(made) == dataclasses.asdict(expected)
        assert made.labels is not of_ours(1, 2, 3, 4, 5).labels
        assert dataclasses.replace(made, row=7) == made == copy.copy(made) != dataclasses.replace(made, f=0)
        assert changed(made, row=7) == made != changed(made, f=0) == dataclasses.replace(made, f=0)
        assert type(changed(made, f=0)) is of_ours
        assert hasattr(made, "__dict__") == hasattr(expected, "__dict__")
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
            made.a = 2
    with pytest.raises(TypeError, match="h"):
        changed(ours(1, 2, 3, 4, 5), h=1)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    with pytest.raises(TypeError, match=r"Long\.__init__\(\) missing 1 required positional argument: 'e'"):
        ours(1, 2, 3, 4)


def test_it_is_constructed_compared_and_shown_as_the_standard_librarys() -> None:
    for make in (lambda cls: cls(" a "), lambda cls: cls("a", labels={"b": "c"}, sizes=(), row=5)):
        assert repr(make(Ours)) == repr(make(Theirs))
        assert make(Ours) == make(Ours) != make(Theirs)
        assert dataclasses.asdict(make(Ours)) == dataclasses.asdict(make(Theirs))
        assert make(Ours).first == "a"
    assert Ours("a", row=1) == Ours("a", row=2) != Ours("b")
    assert Ours("a").labels is not Ours("a").labels
    assert str(inspect.signature(Ours)) == str(inspect.signature(Theirs))
    assert Ours.__doc__ == Theirs.__doc__
    assert Ours.__match_args__ == Theirs.__match_args__
    assert Ours.__slots__ == Theirs.__slots__
    with pytest.raises(TypeError, match=r"Plain\.__init__\(\) missing 1 required positional argument: 'name'"):
        Ours()


def test_it_is_hashed_by_what_is_compared() -> None:
    assert {Pair("a", "b"): 1}[Pair("a", "b")] == 1
    assert len({Nothing(), Nothing(), Pair("a"), Pair("a")}) == 2
    with pytest.raises(TypeError, match="unhashable type: 'dict'"):
        hash(Ours("a"))


def test_it_cannot_be_changed_and_is_copied_as_it_is() -> None:
    pair = Pair("a", "b")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'left'"):
        pair.left = "c"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'left'"):
        del pair.left  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        pair.other = "c"  # type: ignore[attr-defined]
    assert not hasattr(pair, "__dict__")
    assert dataclasses.replace(pair, right="c") == Pair("a", "c")
    assert pickle.loads(pickle.dumps(pair)) == copy.copy(pair) == copy.deepcopy(pair) == pair
    match pair:
        case Pair(left, right):
            assert (left, right) == ("a", "b")
