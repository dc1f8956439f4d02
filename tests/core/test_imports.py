"""Modules that are imported at their first use, and values that nothing changes."""

from __future__ import annotations

import copy
import pickle
import re
import sys
import typing
from typing import ClassVar

import pytest
from msgspec import convert, field
from msgspec.structs import force_setattr, replace

from flue_py.core.json import Frozen, NamedTuple, Selective
from flue_py.lazy import expression, lazy_module

# -- Modules that are imported when something of them is first used -----------------------------------------------


def test_a_module_is_imported_at_its_first_use_and_no_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    module = lazy_module("colorsys")
    assert "colorsys" not in sys.modules
    assert module.rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)
    assert "colorsys" in sys.modules
    assert module.rgb_to_hsv is sys.modules["colorsys"].rgb_to_hsv


def test_a_module_or_a_name_that_is_not_there_is_told_at_its_use() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lazy_module("json").nothing
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        _ = lazy_module("no_such_module").anything


def test_an_expression_is_compiled_at_its_first_use_and_has_the_methods_of_a_pattern() -> None:
    broken = expression("(")
    with pytest.raises(re.error, match="unterminated"):
        broken.search("a")
    words, compiled = expression("(?P<word>[a-z]+)", re.IGNORECASE), re.compile("(?P<word>[a-z]+)", re.IGNORECASE)
    assert words.findall("Ab cd") == ["Ab", "cd"]
    assert (words.pattern, words.flags, words.groupindex) == (compiled.pattern, compiled.flags, compiled.groupindex)
    assert expression(b"[0-9]").sub(b"n", b"a1") == b"an"


# -- Frozen values: compared, hashed, shown and copied by their fields, and changed by nothing --------------------


class Pair(Frozen):
    """Two names."""

    left: str
    right: str = ""


class Nothing(Frozen):
    """No field at all."""


class Part(Selective):
    """A value with every kind of field there is."""

    _not_compared: ClassVar[tuple[str, ...]] = ("row",)
    _not_shown: ClassVar[tuple[str, ...]] = ("row", "labels")

    name: str
    row: int = 0
    labels: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        force_setattr(self, "name", self.name.strip())


class Longer(Part):
    """A value with a field more."""

    size: int = 1


def test_values_are_compared_and_hashed_by_their_fields() -> None:
    assert {Pair("a", "b"): 1}[Pair("a", right="b")] == 1
    assert len({Nothing(), Nothing(), Pair("a"), Pair("a")}) == 2
    assert Pair("a") != Pair("b")
    assert Pair("a") != ("a", "")


def test_fields_are_left_out_of_the_comparison_and_the_text() -> None:
    for kind in (Part, Longer):
        assert kind(" a ", row=1) == kind("a", row=2) != kind("b", row=1)
        assert kind("a").labels is not kind("a").labels
        with pytest.raises(TypeError, match="unhashable type: 'dict'"):
            hash(kind("a"))
    assert Part("a") != Longer("a") != Longer("a", size=2)
    assert repr(Part("a", 1)) == "Part(name='a')"
    assert repr(Longer("a", 1)) == "Longer(name='a', size=1)"


def test_a_value_cannot_be_changed_and_is_copied_with_other_fields() -> None:
    pair, part = Pair("a", "b"), Longer("a", 1, {"b": "c"})
    for value, name in ((pair, "left"), (pair, "other"), (part, "row"), (part, "size"), (part, "other")):
        with pytest.raises(AttributeError):
            setattr(value, name, "c")
        with pytest.raises(AttributeError):
            delattr(value, name)
        assert not hasattr(value, "__dict__")
        assert pickle.loads(pickle.dumps(value)) == copy.copy(value) == copy.deepcopy(value) == value
    assert replace(pair, right="c") == Pair("a", "c")
    assert replace(part, name=" d ") == Longer("d", 1, {"b": "c"})
    with pytest.raises(TypeError, match="has no field 'other'"):
        replace(pair, other=1)
    match pair:
        case Pair(left, right):
            assert (left, right) == ("a", "b")


class Span(NamedTuple):
    """A part of a text."""

    start: int
    end: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has no end."""
        return self.end is None


def test_named_tuples_are_those_of_typing() -> None:
    class Plain(typing.NamedTuple):
        start: int
        end: int | None = None

    assert (Span(1), Span(1, end=2), Span._make((1, 3))) == (Plain(1), Plain(1, 2), Plain(1, 3))
    assert (Span(1).is_open, Span(1, 2)._replace(start=0).is_open) == (True, False)
    assert repr(Span(1)) == "Span(start=1, end=None)"
    assert (Span._fields, Span._field_defaults) == (Plain._fields, Plain._field_defaults)
    assert typing.get_type_hints(Span) == typing.get_type_hints(Plain)
    assert (Span.__doc__, Span.__module__) == ("A part of a text.", __name__)
    assert pickle.loads(pickle.dumps(Span(1, 2))) == copy.copy(Span(1, 2)) == convert([1, 2], Span)
    with pytest.raises(AttributeError):
        Span(1).start = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="start"):
        Span()  # type: ignore[call-arg]
