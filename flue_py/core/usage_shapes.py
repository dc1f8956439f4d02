"""Usage as providers and frameworks report it, read into one shape.

Everybody spells the same few numbers in another way, and counts them by other rules. `_FIELDS` is the one table of the
spellings; this is how they are read:

- Tokens of the cache are part of the input at OpenAI, Gemini, pydantic-ai, LangChain and the Vercel AI SDK, and are
  counted beside it at Anthropic, Bedrock and in our own shape. We count them beside it.
- Reasoning is part of the output everywhere but at Gemini, which counts thoughts beside the candidates. We count it as
  part of the output.
- Anthropic's numbers leave out what a compaction on their side took; its ``iterations`` have everything.
- A total that is absent is the sum of the kinds. One that was reported stays as it is.

Reading never fails: an answer that was paid for is kept whatever its usage says. A number that cannot be a count
(negative, fractional, beyond 64 bits, not a number) is not counted, and the `oddities` say so. If nothing at all is
recognised, the usage is unknown, which is not the same as zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from math import isfinite, isnan

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import MAX_JSON_DEPTH, JsonObject, JsonValue
from flue_py.core.kinds import adds_usage
from flue_py.core.plain import is_json
from flue_py.core.usage import (
    COST_FIELDS,
    MAX_AMOUNT,
    MAX_DOLLARS,
    NO_USAGE,
    Usage,
    UsageTotals,
    picodollars_as_printed,
    usd_to_picodollars,
)
from flue_py.errors import shown


class _Kind(Enum):
    """What a reported number counts."""

    INPUT = auto()
    MORE_INPUT = auto()
    """Tokens of the input that are not in the number of the input, cached or not."""
    OUTPUT = auto()
    CACHE_READ = auto()
    CACHE_WRITE = auto()
    CACHE_WRITE_5M = auto()
    CACHE_WRITE_1H = auto()
    REASONING = auto()
    THOUGHTS = auto()
    """Reasoning that is counted beside the output."""
    TOTAL = auto()

    # There is one object of each, and that of Enum is a function of Python's, which every answer would call 15 times.
    __hash__ = object.__hash__


@frozen
class _Field:
    """What a spelling stands for; ``holds_cache`` if a provider with this spelling counts the cache as input."""

    kind: _Kind
    holds_cache: bool = False


_INPUT = {
    "input": _Field(_Kind.INPUT),
    "input_tokens": _Field(_Kind.INPUT),
    "prompt_tokens": _Field(_Kind.INPUT, holds_cache=True),
    "request_tokens": _Field(_Kind.INPUT, holds_cache=True),
    "prompt_token_count": _Field(_Kind.INPUT, holds_cache=True),
    "tool_use_prompt_token_count": _Field(_Kind.MORE_INPUT),
}
_OUTPUT = {
    "output": _Field(_Kind.OUTPUT),
    "output_tokens": _Field(_Kind.OUTPUT),
    "completion_tokens": _Field(_Kind.OUTPUT),
    "response_tokens": _Field(_Kind.OUTPUT),
    "candidates_token_count": _Field(_Kind.OUTPUT),
    "response_token_count": _Field(_Kind.OUTPUT),
    "reasoning": _Field(_Kind.REASONING),
    "reasoning_tokens": _Field(_Kind.REASONING),
    "reasoning_output_tokens": _Field(_Kind.REASONING),
    "thoughts_token_count": _Field(_Kind.THOUGHTS),
}
_CACHE = {
    "cache_read": _Field(_Kind.CACHE_READ),
    "cache_read_input_tokens": _Field(_Kind.CACHE_READ),
    "cache_read_tokens": _Field(_Kind.CACHE_READ, holds_cache=True),
    "cached_tokens": _Field(_Kind.CACHE_READ, holds_cache=True),
    "cached_input_tokens": _Field(_Kind.CACHE_READ, holds_cache=True),
    "cached_content_token_count": _Field(_Kind.CACHE_READ, holds_cache=True),
    "prompt_cache_hit_tokens": _Field(_Kind.CACHE_READ, holds_cache=True),
    "cache_write": _Field(_Kind.CACHE_WRITE),
    "cache_write_input_tokens": _Field(_Kind.CACHE_WRITE),
    "cache_creation_input_tokens": _Field(_Kind.CACHE_WRITE),
    "cache_write_tokens": _Field(_Kind.CACHE_WRITE, holds_cache=True),
    "cache_write_1h": _Field(_Kind.CACHE_WRITE_1H),
}
_TOTAL = {"total_tokens": _Field(_Kind.TOTAL), "total_token_count": _Field(_Kind.TOTAL)}

_OF_INPUT = {
    "cached_tokens": _Field(_Kind.CACHE_READ, holds_cache=True),
    "cache_read": _Field(_Kind.CACHE_READ, holds_cache=True),
    "cache_read_tokens": _Field(_Kind.CACHE_READ, holds_cache=True),
    "cache_creation": _Field(_Kind.CACHE_WRITE, holds_cache=True),
    "cache_creation_tokens": _Field(_Kind.CACHE_WRITE, holds_cache=True),
    "cache_write_tokens": _Field(_Kind.CACHE_WRITE, holds_cache=True),
}
_OF_OUTPUT = {"reasoning_tokens": _Field(_Kind.REASONING), "reasoning": _Field(_Kind.REASONING)}
_OF_CACHE_CREATION = {
    "ephemeral_5m_input_tokens": _Field(_Kind.CACHE_WRITE_5M),
    "ephemeral_1h_input_tokens": _Field(_Kind.CACHE_WRITE_1H),
}

_FIELDS: Mapping[str, _Field | Mapping[str, _Field]] = {
    **_INPUT,
    **_OUTPUT,
    **_CACHE,
    **_TOTAL,
    "prompt_tokens_details": _OF_INPUT,
    "input_tokens_details": _OF_INPUT,
    "input_token_details": _OF_INPUT,
    "completion_tokens_details": _OF_OUTPUT,
    "output_tokens_details": _OF_OUTPUT,
    "output_token_details": _OF_OUTPUT,
    "details": _OF_OUTPUT,
    "cache_creation": _OF_CACHE_CREATION,
}
"""Every spelling that is known, in snake case; a field that holds others has a table of its own."""

_DOLLARS = frozenset({"cost", "cost_usd", "total_cost_usd"})
"""Where a cost stands that is one number of dollars."""


KINDS = ("input", "output", "cacheRead", "cacheWrite")
"""The kinds of tokens, as our shape spells them."""

PARTS = (*KINDS, "cacheWrite1h", "reasoning", "totalTokens")
"""Every number of tokens that a report may have: the kinds, the parts of two of them, and the total."""

_MAKES = {
    _Kind.INPUT: "input",
    _Kind.MORE_INPUT: "input",
    _Kind.OUTPUT: "output",
    _Kind.REASONING: "reasoning",
    _Kind.CACHE_READ: "cacheRead",
    _Kind.CACHE_WRITE: "cacheWrite",
    _Kind.CACHE_WRITE_5M: "cacheWrite",
    _Kind.TOTAL: "totalTokens",
}
_MAKES_BOTH = {_Kind.THOUGHTS: ("output", "reasoning"), _Kind.CACHE_WRITE_1H: ("cacheWrite", "cacheWrite1h")}
"""What kinds of numbers tell of: a part tells of what it is a part of."""


@lru_cache(maxsize=256)
def _told_by(kinds: tuple[_Kind, ...]) -> frozenset[str]:
    """Return the numbers of tokens (`PARTS`) that were reported by numbers of these kinds."""
    return frozenset(name for kind in kinds for name in _MAKES_BOTH.get(kind) or (_MAKES[kind],))


@frozen
class ReportedUsage:
    """What a usage object says of a call.

    ``cache_write_1h`` is the part of the cache writes that is kept for an hour, ``reasoning`` the part of the output
    that was reasoning. ``cost`` is in picodollars, None if none was reported. ``is_known`` is False if nothing
    was recognised: the ten numbers are then zero because they are unknown. ``told`` names the numbers of tokens
    that were reported (`PARTS`): a zero in another was not reported. ``oddities`` say what was not counted as it
    was reported, and why.
    """

    totals: UsageTotals = NO_USAGE
    cache_write_1h: int = 0
    reasoning: int = 0
    cost: int | None = None
    is_known: bool = False
    told: frozenset[str] = frozenset()
    oddities: tuple[str, ...] = ()


def read_reported(value: JsonValue | Mapping[str, JsonValue], where: str = "usage") -> ReportedUsage:
    """Return what a usage object says, in any known shape. Never raises. O(fields)."""
    if not isinstance(value, (dict, Mapping)):
        odd = () if value is None else (f"{where}: {shown(value)} is not a usage object; nothing of it is counted",)
        return ReportedUsage(oddities=odd)
    reading = _Reading(where)
    reading.read(value)
    whole = reading.result()
    parts = _iterations(value, where)
    return parts if parts is not None and parts.totals.tokens > whole.totals.tokens else whole


def with_words_for_numbers(value: JsonValue, where: str, depth: int = 0) -> tuple[JsonValue, tuple[str, ...]]:
    """Return a usage object with text in place of NaN and infinities, and which those are.

    A store holds JSON only, and a paid answer is not refused for that. A value without them is returned as it is.
    """
    if is_json(value, depth):
        return value, ()
    if isinstance(value, float) and not isfinite(value):
        word = "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return word, (f"{where}: {word} is not a JSON number; it is kept as text, and not counted",)
    if depth == MAX_JSON_DEPTH or not isinstance(value, (Mapping, list, tuple)):
        return value, ()
    names = list(value) if isinstance(value, Mapping) else range(len(value))
    inside = value.values() if isinstance(value, Mapping) else value
    # A key that is not text is refused elsewhere, and may be a number too long to print.
    places = [f"{where}.{name}" if isinstance(name, str) else f"{where}[{shown(name)}]" for name in names]
    read = [with_words_for_numbers(each, place, depth + 1) for each, place in zip(inside, places, strict=True)]
    odd = tuple(each for _, found in read for each in found)
    if not odd:
        return value, ()
    kept = [each for each, _ in read]
    return (dict(zip(value, kept, strict=True)) if isinstance(value, Mapping) else kept), odd


def read_usage(value: JsonValue, where: str = "usage") -> UsageTotals:
    """Return the ten numbers of a usage object (see `read_reported`): zero where nothing is recognised. O(fields)."""
    return read_reported(value, where).totals


def sum_usage(usages: Iterable[JsonValue]) -> Usage:
    """Return the sum of usage objects. Raises `InvalidEntry` if it leaves the stored range."""
    total = NO_USAGE
    for value in usages:
        total = total.plus(read_usage(value))
    return Usage.from_totals(total)


def reported_usage(kind: str, role: str | None, payload: Mapping[str, JsonValue]) -> UsageTotals:
    """Return what an entry adds to its path's totals: an assistant message's usage, or a compaction's.

    User and tool-result messages and branch summaries add nothing, whatever they carry.
    """
    return read_usage(payload.get("usage")) if adds_usage(kind, role) else NO_USAGE


def agrees_with_payload(added: UsageTotals, kind: str, role: str | None, payload: Mapping[str, JsonValue]) -> bool:
    """Return whether an entry adds to its path what its payload reports, by the rules of today or of older versions.

    Those read our own shape alone, and counted a total that was absent as nothing; what they wrote stays as it is.
    """
    now = reported_usage(kind, role, payload)
    if added == now:
        return True
    if now == NO_USAGE:
        return False
    usage = payload.get("usage")
    fields = usage if isinstance(usage, Mapping) else {}
    cost = fields.get("cost")
    dollars = cost if isinstance(cost, Mapping) else {}
    return added == UsageTotals(
        *(_whole_number(fields.get(name)) or 0 for name in (*KINDS, "totalTokens")),
        *(_picodollars(dollars.get(name)) or 0 for name in COST_FIELDS),
    )


def usage_json(usage: ReportedUsage) -> JsonObject:
    """Return tokens as our shape spells them, for readers that translate: what was told, and the total of it."""
    totals = usage.totals
    kinds = (totals.input, totals.output, totals.cache_read, totals.cache_write)
    made: JsonObject = {name: count for name, count in zip(KINDS, kinds, strict=True) if name in usage.told}
    if usage.told:
        made["totalTokens"] = totals.total_tokens
    parts = {"cacheWrite1h": usage.cache_write_1h, "reasoning": usage.reasoning}
    return made | {name: tokens for name, tokens in parts.items() if name in usage.told}


class _Reading:
    """The numbers of one usage object, by what they count, and what was odd about them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._counts: dict[_Kind, int] = {}
        self._holds_cache = False
        self._is_known = False
        self._dollars: dict[str, int] = {}
        self._oddities: list[str] = []

    def read(self, value: Mapping[str, JsonValue]) -> None:
        """Take in every field that is known."""
        for name, reported in value.items():
            if reported is None:
                continue
            spelling = _snake_case(name)
            known = _FIELDS.get(spelling)
            if isinstance(known, _Field):
                self._take(known, reported, name)
            elif known is not None and isinstance(reported, (dict, Mapping)):
                self._take_parts(known, reported, name)
            elif spelling in _DOLLARS:
                self._take_cost(reported, name)

    def result(self) -> ReportedUsage:
        """Return what was read, by our rules for which number includes which."""
        counts = self._counts
        read = counts.get(_Kind.CACHE_READ, 0)
        for_an_hour = counts.get(_Kind.CACHE_WRITE_1H, 0)
        split = counts.get(_Kind.CACHE_WRITE_5M, 0) + for_an_hour
        written = counts.get(_Kind.CACHE_WRITE, split)
        given = counts.get(_Kind.INPUT, 0)
        if self._holds_cache:
            given = self._less("input", given, read + written, "the cache")
        given += counts.get(_Kind.MORE_INPUT, 0)
        thoughts = counts.get(_Kind.THOUGHTS, 0)
        output = counts.get(_Kind.OUTPUT, 0) + thoughts
        reasoning = counts.get(_Kind.REASONING, thoughts)
        kinds = given + output + read + written
        total = counts.get(_Kind.TOTAL, kinds)
        if total > MAX_AMOUNT or kinds > MAX_AMOUNT:
            self._oddities.append(f"{self._where}: its numbers come to more than {MAX_AMOUNT}; none is counted")
            return ReportedUsage(oddities=tuple(self._oddities))
        cost = self._cost()
        return ReportedUsage(
            UsageTotals(given, output, read, written, total, *self._costs(cost)),
            self._at_most("cacheWrite1h", for_an_hour, "cacheWrite", written),
            self._at_most("reasoning", reasoning, "output", output),
            cost,
            self._is_known,
            _told_by(tuple(counts)),
            tuple(self._oddities),
        )

    def _take(self, field: _Field, reported: JsonValue, name: str) -> None:
        count = _whole_number(reported)
        if count is None:
            self._odd(name, f"{shown(reported)} is not a number of tokens from 0 to {MAX_AMOUNT}; it is not counted")
            return
        # The same number may stand there twice, in its provider's spelling and in that of a gateway.
        self._counts[field.kind] = max(count, self._counts.get(field.kind, 0))
        self._holds_cache = self._holds_cache or field.holds_cache
        self._is_known = True

    def _take_parts(self, known: Mapping[str, _Field], parts: Mapping[str, JsonValue], name: str) -> None:
        for part, reported in parts.items():
            field = known.get(_snake_case(part))
            if field is not None and reported is not None:
                self._take(field, reported, f"{name}.{part}")

    def _take_cost(self, reported: JsonValue, name: str) -> None:
        if not isinstance(reported, (dict, Mapping)):
            self._take_dollars("total", reported, name)
            return
        for part in COST_FIELDS:
            if (amount := reported.get(part)) is not None:
                self._take_dollars(part, amount, name, part)

    def _take_dollars(self, part: str, amount: JsonValue, *place: str) -> None:
        dollars = _picodollars(amount)
        if dollars is None:
            where = ".".join(place)
            self._odd(where, f"{shown(amount)} is not a number of dollars from 0 to {MAX_DOLLARS}; it is not counted")
            return
        self._dollars[part] = dollars
        self._is_known = True

    def _cost(self) -> int | None:
        """Return the cost: the total, or the sum of its parts; None if none was reported."""
        if not self._dollars:
            return None
        cost = self._dollars["total"] if "total" in self._dollars else sum(self._dollars.values())
        if cost > MAX_AMOUNT:
            self._odd("cost", "its parts come to more than can be stored; it is not counted")
            self._dollars.clear()
            return None
        return cost

    def _costs(self, total: int | None) -> list[int]:
        return [*[self._dollars.get(part, 0) for part in COST_FIELDS[:-1]], total or 0]

    def _less(self, name: str, whole: int, part: int, what: str) -> int:
        if part > whole:
            self._odd(name, f"{whole} is less than the {part} of {what}, which is part of it; it is counted as none")
        return max(0, whole - part)

    def _at_most(self, name: str, part: int, whole_name: str, whole: int) -> int:
        if part > whole:
            self._odd(name, f"{part} is more than the {whole} of {whole_name}, which it is a part of; counted as that")
        return min(part, whole)

    def _odd(self, name: str, what: str) -> None:
        self._oddities.append(f"{self._where}.{name}: {what}")


def _iterations(value: Mapping[str, JsonValue], where: str) -> ReportedUsage | None:
    """Return the sum of the steps that one request took, where they were reported and each was recognised."""
    steps = value.get("iterations")
    if not isinstance(steps, (list, tuple)) or not steps or "input_tokens" not in value:
        return None
    read = list(_steps(steps, where))
    if not all(step.is_known for step in read):
        return None
    numbers = [sum(column) for column in zip(*(step.totals for step in read), strict=True)]
    if max(numbers) > MAX_AMOUNT:
        return None
    return ReportedUsage(
        UsageTotals(*numbers),
        sum(step.cache_write_1h for step in read),
        sum(step.reasoning for step in read),
        None,
        is_known=True,
        told=frozenset().union(*(step.told for step in read)),
        oddities=tuple(odd for step in read for odd in step.oddities),
    )


def _steps(steps: list[JsonValue] | tuple[JsonValue, ...], where: str) -> Iterator[ReportedUsage]:
    for number, step in enumerate(steps):
        reading = _Reading(f"{where}.iterations[{number}]")
        if isinstance(step, Mapping):
            reading.read(step)
        yield reading.result()


def _whole_number(value: JsonValue) -> int | None:
    """Return a number of tokens that can be stored, or None."""
    if type(value) is int:
        return value if 0 <= value <= MAX_AMOUNT else None
    if isinstance(value, float) and isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_AMOUNT:
        return None
    return value


def _picodollars(value: JsonValue) -> int | None:
    """Return a number of dollars in picodollars, or None if it cannot be one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not 0 <= value <= MAX_DOLLARS:
        return None
    if not value:
        return 0
    printed = picodollars_as_printed(value) if type(value) is float else None
    return usd_to_picodollars(value) if printed is None else printed


_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=\d[mh](?:[A-Z]|$))")


@lru_cache(maxsize=1024)
def _snake_case(name: str) -> str:
    """Return a name in snake case, as the table has it: ``promptTokens``, ``PromptTokens`` and ``prompt_tokens``."""
    # A name that is not a string means nothing here, and is refused where the usage is written down.
    return _WORD_START.sub("_", name).lower() if isinstance(name, str) else ""
