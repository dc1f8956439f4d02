"""What the agent did, by the stored calls of tools and their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, cast

from flue_py.compaction.content import string_field
from flue_py.compaction.material import Material
from flue_py.compaction.quoting import quoted, without_tags
from flue_py.core.exchange import Call
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
    """A call of a tool and what became of it. ``turn`` counts the messages of user and model, from 1."""

    status: Status
    name: str
    target: str
    turn: int
    agent: str
    entry_id: str
    error: str = ""

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
    """Return how many turns earlier compactions stand for, as far as they say."""
    turns = (earlier or {}).get("turns")
    return turns if isinstance(turns, int) and not isinstance(turns, bool) and turns > 0 else 0


def turn_numbers(material: Material) -> Sequence[int]:
    """Return the turn of each message that leaves: a message of the user or the model begins one. From 1."""
    before, turns = turns_before(material.earlier), material.planned.plan.content.turns
    return [before + turn for turn in turns] if before else turns


def gathered(material: Material, most: int) -> Operations:
    """Return the operations that were carried on and those of what leaves, of which the newest ``most`` are listed.

    O(messages).
    """
    turns = turn_numbers(material)
    before = turns_before(material.earlier)
    carried = _carried(material.earlier, before)
    made = list(material.pairing.results.items())
    new = [
        _operation(material, turns, call, results[0] if results else None)
        for call, results in made[max(len(made) - most, 0) :]
    ]
    counted = [_status(material, results) for _, results in made[: len(made) - len(new)]]
    listed = [*carried.listed, *new]
    kept = listed[max(len(listed) - most, 0) :]
    folded = _added(carried.folded, [*counted, *(each.status for each in listed[: len(listed) - len(kept)])])
    return Operations(carried.first_turn, turns[-1] if turns else before, kept, folded)


def folded_to(found: Operations, kept: int) -> Operations:
    """Return operations of which only the newest ``kept`` are listed, the others counted."""
    at = max(len(found.listed) - kept, 0)
    return found._replace(
        listed=found.listed[at:], folded=_added(found.folded, [each.status for each in found.listed[:at]])
    )


def unanswered_calls(material: Material) -> list[tuple[str, JsonObject, str]]:
    """Return the calls in what leaves that have no result, in order: id, call, and id of the entry."""
    leaving = material.leaving
    return [
        (call.id, part_of(material, call), leaving[call.at].entry_id)
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


def part_of(material: Material, call: Call) -> JsonObject:
    """Return the part of a message that makes a call in what leaves."""
    content = material.message(call.at).get("content")
    return cast("JsonObject", cast("list[JsonValue]", content)[call.part])


def _status(material: Material, results: Sequence[int]) -> Status:
    if not results:
        return "pending"
    return "failed" if material.has_failed(results[0]) else "done"


def _operation(material: Material, turns: Sequence[int], call: Call, answer: int | None) -> Operation:
    part, message = part_of(material, call), material.message(call.at)
    status = _status(material, () if answer is None else (answer,))
    error = ""
    if answer is not None and status == "failed":
        error = without_tags(message_text(material.message(answer))[:ERROR_CHARS])
    return Operation(
        status,
        _name(part),
        _target(part.get("arguments")),
        turns[call.at],
        quoted(string_field(message, "agentName") or string_field(message, "agent"), 80) or "assistant",
        material.leaving[call.at].entry_id,
        error,
    )


def _name(part: Mapping[str, JsonValue]) -> str:
    return quoted(string_field(part, "name"), 80) or "?"


def _target(arguments: JsonValue) -> str:
    """Return what a call is made on: what usually names it, or else the first text among its arguments."""
    if not isinstance(arguments, dict):
        return ""
    named = (arguments.get(name) for name in _TARGETS)
    found = next((value for value in (*named, *arguments.values()) if isinstance(value, str) and value.strip()), None)
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
        if not isinstance(each, (list, tuple)) or len(each) != len(Operation._fields):
            continue
        status, name, target, turn, agent, entry_id, error = each
        if (
            status in STATUSES
            and isinstance(turn, int)
            and all(isinstance(text, str) for text in (name, target, agent, entry_id, error))
        ):
            yield Operation(*cast("tuple[Status, str, str, int, str, str, str]", tuple(each)))
