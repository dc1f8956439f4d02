"""Tests of a table of inputs: one case that runs all rows and names every row that fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_LABEL_CHARACTERS = 100
"""The most characters of a value in the name of a row."""


def inputs(names: str | Sequence[str], rows: Iterable[Any], ids: Any = None) -> Callable[[Any], Any]:
    """Call a test with every row of a table, as one case whose failure names all the rows that fail.

    The arguments are those of ``pytest.mark.parametrize``, which is for rows that have to be cases of their own. Two
    tables of a test are combined. A row has a ``tmp_path`` and a ``monkeypatch`` of its own; it shares all other
    fixtures with the other rows.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = _table(columns, list(rows), ids)
    assert table, "a table without rows tests nothing"

    def decorate(decorated: Any) -> Any:
        test, inner = getattr(decorated, "_table", (decorated, [_Row({}, ())]))
        combined = [_Row(a.values | b.values, a.labels + b.labels) for a in table for b in inner]
        parameters = inspect.signature(decorated).parameters
        assert set(columns) <= set(parameters), f"the test does not take all of {columns}"

        if inspect.iscoroutinefunction(test):

            @functools.wraps(decorated)
            async def run(*instance: Any, **fixtures: Any) -> None:
                failures: list[tuple[_Row, Exception]] = []
                for number, row in enumerate(combined):
                    with _collected(failures, row), _of_its_own(fixtures, number) as own:
                        await test(*instance, **own, **row.values)
                _tell(failures, len(combined))

        else:

            @functools.wraps(decorated)
            def run(*instance: Any, **fixtures: Any) -> None:
                failures: list[tuple[_Row, Exception]] = []
                for number, row in enumerate(combined):
                    with _collected(failures, row), _of_its_own(fixtures, number) as own:
                        test(*instance, **own, **row.values)
                _tell(failures, len(combined))

        shared = [parameter for name, parameter in parameters.items() if name not in columns]
        vars(run).update(__signature__=inspect.Signature(shared), _table=(test, combined))
        return run

    return decorate


@dataclass(frozen=True)
class _Row:
    """The values of a row by the names of its columns, and what names it in a failure."""

    values: dict[str, Any]
    labels: tuple[str | None, ...]
    """A name of each table that the row is combined from; None where the values name it."""

    def __str__(self) -> str:
        labels = [label for label in self.labels if label is not None]
        if len(labels) < len(self.labels):
            labels += [f"{name}={value!r:.{_LABEL_CHARACTERS}}" for name, value in self.values.items()]
        return ", ".join(labels)


def _table(columns: list[str], rows: list[Any], ids: Any) -> list[_Row]:
    labels = [None] * len(rows) if ids is None or callable(ids) else list(ids)
    table = []
    own_label: Any
    for row, label in zip(rows, labels, strict=True):
        if isinstance(row, type(pytest.param())):
            assert not row.marks, "a row with marks has to be a case of its own"
            values, own_label = row.values, row.id
        else:
            values, own_label = (row,) if len(columns) == 1 else tuple(row), None
        if callable(ids):
            own_label = own_label or "-".join(str(ids(value) or value) for value in values)
        table.append(_Row(dict(zip(columns, values, strict=True)), (own_label or label,)))
    return table


@contextmanager
def _collected(failures: list[tuple[_Row, Exception]], row: _Row) -> Iterator[None]:
    """Have the next row run whatever becomes of this one. A row that skips itself has failed: it is no case."""
    try:
        yield
    except (pytest.fail.Exception, pytest.skip.Exception) as outcome:
        failures.append((row, AssertionError(str(outcome)).with_traceback(outcome.__traceback__)))
    except Exception as error:  # noqa: BLE001 - whatever a row raises is shown with all the others
        failures.append((row, error))


def _tell(failures: list[tuple[_Row, Exception]], rows: int) -> None:
    if not failures:
        return
    for row, error in failures:
        error.add_note(f"row: {row}")
    names = "; ".join(str(row) for row, _ in failures)
    raise ExceptionGroup(f"{len(failures)} of {rows} rows fail: {names}", [error for _, error in failures])


@contextmanager
def _of_its_own(fixtures: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Yield the fixtures for a row: nothing that a row writes or replaces is there for the next one."""
    own = dict(fixtures)
    if isinstance(folder := fixtures.get("tmp_path"), Path):
        own["tmp_path"] = folder / str(number)
        own["tmp_path"].mkdir()
    with pytest.MonkeyPatch.context() as patch:
        if "monkeypatch" in fixtures:
            own["monkeypatch"] = patch
        yield own
