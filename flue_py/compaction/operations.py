"""What the agent did, by the stored calls of tools and their results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice, takewhile
from typing import Literal, NamedTuple, TypeAlias, cast

from flue_py.compaction.content import string_field
from flue_py.compaction.material import Material
from flue_py.compaction.quoting import quoted, without_tags
from flue_py.core.calls import agent_of
from flue_py.core.exchange import Call, answered_id
from flue_py.core.javascript import js_json
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.spoken import message_text

Status: TypeAlias = Literal["done", "failed", "pending"]
STATUSES: tuple[Status, ...] = ("done", "failed", "pending")
ERROR_CHARS = 400
"""How much of the output of a failed call is kept."""
_TARGET_CHARS = 120
_TARGETS = ("path", "file_path", "filePath", "file", "filename", "command", "cmd", "query", "pattern", "url")


class Operation(NamedTuple):
    """A call of a tool and what became of it. ``turn`` counts those of all agents, from 1."""

    status: Status
    name: str
    target: str
    turn: int
    agent: str
    entry_id: str
    error: str = ""
    call_id: str = ""

    @property
    def label(self) -> str:
        """The tool and what it was called on."""
        return f'{self.name} → "{self.target}"' if self.target else self.name


class Operations(NamedTuple):
    """Operations in order, with how many older ones are counted only: done, failed, pending. From turn to turn."""

    first_turn: int
    last_turn: int
    listed: list[Operation]
    folded: tuple[int, int, int]

    @property
    def details(self) -> JsonObject:
        """These as a compaction stores them."""
        listed: list[JsonValue] = [list(each) for each in self.listed]
        return {"operations": {"from": self.first_turn, "folded": list(self.folded), "listed": listed}}


def turns_before(earlier: Mapping[str, JsonValue] | None) -> int:
    """Return how many whole turns earlier compactions stand for, as far as they say."""
    turns = (earlier or {}).get("turns")
    return turns if isinstance(turns, int) and not isinstance(turns, bool) and turns > 0 else 0


def turn_numbers(material: Material) -> Sequence[int]:
    """Return the turn of each message that leaves, from 1, and on from those of earlier compactions."""
    before, turns = turns_before(material.earlier), material.planned.plan.content.turns
    return [before + turn for turn in turns] if before else turns


def gathered(material: Material, most: int, fits: Callable[[Operation], bool] = lambda _: True) -> Operations:
    """Return the operations that were carried on and those of what leaves, of which the newest ``most`` are listed.

    ``fits`` is asked about these, the newest first, and no more after the first that does not. O(messages).
    """
    turns = turn_numbers(material)
    before = turns_before(material.earlier)
    carried = _answered_since(material, _carried(material.earlier, before))
    failed, made = material.failed, list(material.pairing.results.items())
    newest = chain(
        (_operation(material, turns, call, results) for call, results in reversed(made)), reversed(carried.listed)
    )
    listed = list(takewhile(fits, islice(newest, most)))[::-1]
    new = min(len(listed), len(made))
    # As `_status` says, written out: of ten thousand calls most are counted only.
    counted: list[Status] = [
        ("failed" if results[0] in failed else "done") if results else "pending"
        for _, results in made[: len(made) - new]
    ]
    counted += [each.status for each in carried.listed[: len(carried.listed) + new - len(listed)]]
    folded = _added(carried.folded, counted)
    return Operations(carried.first_turn, turns[-1] if turns else before, listed, folded)


def has_operations(material: Material) -> bool:
    """Return whether something in what leaves calls a tool, or operations are listed that were carried on."""
    return bool(material.pairing.results or _carried(material.earlier, 0).listed)


def unanswered_calls(material: Material) -> list[tuple[str, JsonObject, str]]:
    """Return the calls in what leaves that have no result, in order: id, call, and id of the entry."""
    leaving = material.leaving
    return [
        (call.id, material.pairing.parts[call], leaving[call.at].entry_id)
        for call, results in material.pairing.results.items()
        if not results
    ]


def called_on(part: Mapping[str, JsonValue]) -> str:
    """Return the tool and what it is called on, on one line."""
    name, target = _name(part), _target(part.get("arguments"))
    return f'{name} → "{target}"' if target else name


def _added(folded: tuple[int, int, int], more: Sequence[Status]) -> tuple[int, int, int]:
    done, failed, pending = (count + more.count(status) for count, status in zip(folded, STATUSES, strict=True))
    return done, failed, pending


def _status(failed: Collection[int], results: Sequence[int]) -> Status:
    if not results:
        return "pending"
    return "failed" if results[0] in failed else "done"


def _operation(material: Material, turns: Sequence[int], call: Call, results: Sequence[int]) -> Operation:
    part, message = material.pairing.parts[call], material.message(call.at)
    status = _status(material.failed, results)
    return Operation(
        status,
        _name(part),
        _target(part.get("arguments")),
        turns[call.at],
        quoted(agent_of(message) or "", 80) or "assistant",
        material.leaving[call.at].entry_id,
        _error(material, results[0]) if status == "failed" else "",
        call.id,
    )


def _error(material: Material, at: int) -> str:
    return without_tags(message_text(material.message(at))[:ERROR_CHARS])


def _answered_since(material: Material, carried: Operations) -> Operations:
    """Return operations that were carried on, those with their status whose result has come late.

    A result that answers nothing in what leaves is the answer of the last call by its id that was carried.
    """
    late = {answered_id(material.message(at)): at for at in sorted(material.pairing.unpaired, reverse=True)}
    listed = carried.listed[:]
    for place in range(len(listed) - 1, -1, -1):
        operation = listed[place]
        at = late.pop(operation.call_id, None) if operation.call_id and operation.status == "pending" else None
        if at is not None:
            status = _status(material.failed, [at])
            listed[place] = operation._replace(status=status, error=_error(material, at) if status == "failed" else "")
    return carried._replace(listed=listed)


def _name(part: Mapping[str, JsonValue]) -> str:
    return quoted(string_field(part, "name"), 80) or "?"


def _target(arguments: JsonValue) -> str:
    """Return what a call is made on: what usually names it, or else the first text among its arguments."""
    if not isinstance(arguments, dict):
        return ""
    values = chain(map(arguments.get, _TARGETS), arguments.values())
    found = next((value for value in values if isinstance(value, str) and value.strip()), None)
    if found is None:
        found = next((js_json(value) for value in arguments.values() if isinstance(value, list)), "")
    return quoted(found, _TARGET_CHARS)


def _carried(earlier: Mapping[str, JsonValue] | None, before: int) -> Operations:
    stored = (earlier or {}).get("operations")
    if not isinstance(stored, Mapping):
        return Operations(before + 1, before, [], (0, 0, 0))
    first, folded = stored.get("from"), stored.get("folded")
    counts = [n if isinstance(n, int) and n > 0 else 0 for n in folded] if isinstance(folded, (list, tuple)) else []
    done, failed, pending = [*counts, 0, 0, 0][:3]
    return Operations(first if isinstance(first, int) else 1, before, list(_read(stored)), (done, failed, pending))


def _read(stored: Mapping[str, JsonValue]) -> Iterator[Operation]:
    listed = stored.get("listed")
    for each in listed if isinstance(listed, (list, tuple)) else ():
        # Some were stored without the id of the call, which is their last.
        if not isinstance(each, (list, tuple)) or len(each) not in (len(Operation._fields) - 1, len(Operation._fields)):
            continue
        status, name, target, turn, agent, entry_id, *texts = each
        if (
            status in STATUSES
            and isinstance(turn, int)
            and all(isinstance(text, str) for text in (name, target, agent, entry_id, *texts))
        ):
            yield Operation(*cast("tuple[Status, str, str, int, str, str, str, str]", tuple(each)))
