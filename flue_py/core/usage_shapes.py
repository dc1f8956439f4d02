"""Usage as providers and frameworks report it, read into one shape.

Everybody spells the same few numbers in another way, and counts them by other rules. `FIELDS` is the one table of the
spellings (`flue_py.core.usage_fields`); this is how they are read:

- Tokens of the cache are part of the input at OpenAI, Gemini, pydantic-ai, LangChain and the Vercel AI SDK, and are
  counted beside it at Anthropic, Bedrock and in our own shape. We count them beside it.
- Reasoning is part of the output nearly everywhere. Gemini counts thoughts beside the candidates, and others that speak
  OpenAI's dialect reasoning beside the output: the reported total says so. We count it as part of the output.
- Anthropic's numbers leave out what a compaction or an advisor on their side took; its ``iterations`` have everything,
  and name the model of a step.
- A total that is absent is the sum of the kinds. One that was reported stays as it is.
- What says that the list price does not hold (a tier, a batch, searches, tokens that are in no number) is a *term*.

Reading never fails: an answer that was paid for is kept whatever its usage says. A number that cannot be a count
(negative, fractional, beyond 64 bits, not a number) is not counted, and the `oddities` say so. If nothing at all is
recognised, the usage is unknown, which is not the same as zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isfinite, isnan
from typing import TYPE_CHECKING, TypeAlias

from flue_py.core.frozen import changed, frozen
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
from flue_py.core.usage_fields import (
    ANY,
    CONTEXT,
    DOLLARS,
    FIELDS,
    FREE,
    OWN_KEY,
    PICODOLLARS_PER_TICK,
    QUERIES,
    REQUESTS,
    ROWS,
    SEARCHES,
    TICKS,
    UPSTREAM,
    UPSTREAM_PARTS,
    UPSTREAM_WHOLE,
    Count,
    Field,
    Kind,
    Node,
    Rows,
    Term,
)
from flue_py.errors import shown
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy_module("difflib")

KINDS = ("input", "output", "cacheRead", "cacheWrite")
"""The kinds of tokens, as our shape spells them."""

PARTS = (*KINDS, "cacheWrite1h", "reasoning", "totalTokens")
"""Every number of tokens that a report may have: the kinds, the parts of two of them, and the total."""

_MAKES = {
    Kind.INPUT: "input",
    Kind.MORE_INPUT: "input",
    Kind.OUTPUT: "output",
    Kind.REASONING: "reasoning",
    Kind.CACHE_READ: "cacheRead",
    Kind.CACHE_WRITE: "cacheWrite",
    Kind.CACHE_WRITE_5M: "cacheWrite",
    Kind.MORE_CACHE_WRITE: "cacheWrite",
    Kind.TOTAL: "totalTokens",
}
_MAKES_BOTH = {Kind.THOUGHTS: ("output", "reasoning"), Kind.CACHE_WRITE_1H: ("cacheWrite", "cacheWrite1h")}
"""What kinds of numbers tell of: a part tells of what it is a part of."""


@lru_cache(maxsize=256)
def _told_by(kinds: tuple[Kind, ...]) -> frozenset[str]:
    """Return the numbers of tokens (`PARTS`) that were reported by numbers of these kinds."""
    return frozenset(name for kind in kinds for name in _MAKES_BOTH.get(kind) or (_MAKES[kind],))


Terms: TypeAlias = "tuple[tuple[str, str], ...]"

SUMMED = (REQUESTS, "several")
INCOMPLETE = ("tokens", "incomplete")
"""The term of tokens that are not all counted by kind."""
_OWN_KEY = ("key", "own")
_LONGEST_TERM = 64
_OLDEST_RULES, _RULES = 1, 2


@frozen
class ReportedUsage:
    """What a usage object says of a call.

    ``cache_write_1h`` is the part of the cache writes that is kept for an hour, ``reasoning`` the part of the output
    that was reasoning. ``cost`` is in picodollars, None if none was reported. ``is_known`` is False if nothing
    was recognised: the ten numbers are then zero because they are unknown. ``told`` names the numbers of tokens
    that were reported (`PARTS`): a zero in another was not reported. ``oddities`` say what was not counted as it
    was reported, and why. ``terms`` are names and values of what makes the price another one than that of these
    tokens on the list. ``steps`` are those of the numbers that another model took, by model.
    """

    totals: UsageTotals = NO_USAGE
    cache_write_1h: int = 0
    reasoning: int = 0
    cost: int | None = None
    is_known: bool = False
    told: frozenset[str] = frozenset()
    oddities: tuple[str, ...] = ()
    terms: Terms = ()
    steps: tuple[tuple[str, ReportedUsage], ...] = ()


def read_reported(value: JsonValue | Mapping[str, JsonValue], where: str = "usage") -> ReportedUsage:
    """Return what a usage object says, in any known shape. Never raises. O(fields)."""
    if not isinstance(value, (dict, Mapping)):
        odd = () if value is None else (f"{where}: {shown(value)} is not a usage object; nothing of it is counted",)
        return ReportedUsage(oddities=odd)
    return _read(value, where)


def _read(value: Mapping[str, JsonValue], where: str, rules: int = _RULES) -> ReportedUsage:
    reading = _Reading(where, rules)
    reading.read(value)
    whole = reading.result()
    steps = _steps(value, where, rules)
    parts = None if steps is None or "input_tokens" not in value else _sum_of([step for _, step in steps])
    if parts is not None and parts.totals.tokens > whole.totals.tokens:
        terms = merged_terms(tuple(term for term in parts.terms if term != SUMMED), whole.terms)
        cost = NO_USAGE if rules == _OLDEST_RULES else whole.totals
        totals = UsageTotals(*parts.totals[:5], *cost[5:])
        whole = changed(_with_larger_parts(parts, whole), totals=totals, terms=terms, cost=whole.cost)
    elif parts is not None and whole.is_known:
        whole = _with_larger_parts(whole, parts)
    if steps is None:
        return whole
    is_summed = len([model for model, _ in steps if not model]) > 1 and whole.cost is None
    terms = merged_terms((SUMMED,), whole.terms) if is_summed else whole.terms
    return changed(whole, terms=terms, steps=tuple(_named(steps, whole.terms)))


def _with_larger_parts(usage: ReportedUsage, beside: ReportedUsage) -> ReportedUsage:
    """Return a usage with the parts of its numbers that only another report of the same call has."""
    return changed(
        usage,
        cache_write_1h=min(max(usage.cache_write_1h, beside.cache_write_1h), usage.totals.cache_write),
        reasoning=min(max(usage.reasoning, beside.reasoning), usage.totals.output),
        told=usage.told | beside.told,
    )


def merged_terms(first: Terms, last: Terms) -> Terms:
    """Return the terms of both, in the order of their names; of two with one name the last counts."""
    return tuple(sorted({**dict(first), **dict(last)}.items()))


def read_beside(message: Mapping[str, JsonValue], where: str = "usage") -> ReportedUsage:
    """Return what the usage of a message says, with what the message itself says of its price. Never raises."""
    usage = message.get("usage")
    if not isinstance(usage, Mapping):
        return read_reported(usage, where)
    beside = context_of(message)
    return _read({**beside, **usage} if beside else usage, where)


def terms_beside(message: Mapping[str, JsonValue]) -> Terms:
    """Return what a message says of its price beside its usage."""
    reading = _Reading("", _RULES)
    reading.read(context_of(message))
    return reading.terms


def context_of(response: Mapping[str, JsonValue]) -> JsonObject:
    """Return the fields of a message or a response that say of its price what its usage may say, too."""
    return {name: value for name, value in response.items() if _snake_case(name) in CONTEXT}


def billed_by(response: Mapping[str, JsonValue], usage: JsonValue = None) -> JsonObject:
    """Return what a response says of its price beside the numbers that a framework keeps: fields for their usage.

    ``usage`` is the provider's own, where the framework has it, too. Never raises. O(fields).
    """
    reading = _Reading("", _RULES)
    reading.read(context_of(response))
    raw = usage if isinstance(usage, Mapping) else {}
    reading.read(raw)
    terms: JsonObject = dict(reading.terms)
    beside: JsonObject = {"terms": terms} if terms else {}
    return {**beside, "iterations": raw["iterations"]} if raw.get("iterations") else beside


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
    if added == _read(fields, "usage", _OLDEST_RULES).totals:
        return True
    cost = fields.get("cost")
    dollars = cost if isinstance(cost, Mapping) else {}
    return added == UsageTotals(
        *(_whole_number(fields.get(name)) or 0 for name in (*KINDS, "totalTokens")),
        *(_picodollars(dollars.get(name)) or 0 for name in COST_FIELDS),
    )


def usage_json(usage: ReportedUsage) -> JsonObject:
    """Return tokens as our shape spells them, for readers that translate: what was told, and the total of it.

    The steps that another model took stay in it, by model.
    """
    totals = usage.totals
    kinds = (totals.input, totals.output, totals.cache_read, totals.cache_write)
    made: JsonObject = {name: count for name, count in zip(KINDS, kinds, strict=True) if name in usage.told}
    if usage.told:
        made["totalTokens"] = totals.total_tokens
    parts = {"cacheWrite1h": usage.cache_write_1h, "reasoning": usage.reasoning}
    made |= {name: tokens for name, tokens in parts.items() if name in usage.told}
    terms: JsonObject = dict(usage.terms)
    if terms:
        made["terms"] = terms
    steps: list[JsonValue] = [{"model": name, **usage_json(step)} for name, step in usage.steps]
    return {**made, "iterations": steps} if steps else made


class _Reading:
    """The numbers of one usage object, by what they count, and what was odd about them."""

    def __init__(self, where: str, rules: int) -> None:
        self._where = where
        self._rules = rules
        self._counts: dict[Kind, int] = {}
        self._holds_cache = False
        self._subtracts_cache = False
        self._is_ours = False
        self._is_known = False
        self._dollars: dict[str, int] = {}
        self._terms: dict[str, str] = {}
        self._oddities: list[str] = []

    @property
    def terms(self) -> Terms:
        """What was read that changes the price, by name."""
        return tuple(sorted(self._terms.items())) if self._terms else ()

    def read(self, value: Mapping[str, JsonValue]) -> None:
        """Take in every field that is known."""
        beside: dict[str, JsonValue] = {}
        for name, reported in value.items():
            if reported is None:
                continue
            spelling = _snake_case(name)
            node = FIELDS.get(spelling)
            if type(node) is Field:
                self._take_number(node, reported, name)
            elif node is not None:
                self._take(node, reported, name, spelling)
            elif spelling in DOLLARS:
                self._take_cost(reported, name)
            elif spelling == TICKS and self._rules > _OLDEST_RULES:
                self._take_ticks(reported, name)
            elif spelling in (OWN_KEY, UPSTREAM):
                beside[spelling] = reported
            elif type(reported) is int and reported and self._rules > _OLDEST_RULES:
                meant = _name_meant(spelling)
                hint = f"; did you mean {shown(meant)}?" if meant else ""
                self._odd(name, f"is a field of no usage that is read here; its {shown(reported)} is not counted{hint}")
        if beside.get(OWN_KEY) is True and self._rules > _OLDEST_RULES:
            self._add_upstream(beside.get(UPSTREAM))
        if SEARCHES in self._terms or value.get(SEARCHES) == 0:
            self._terms.pop(QUERIES, None)

    def result(self) -> ReportedUsage:
        """Return what was read, by our rules for which number includes which."""
        counts = self._counts
        read = counts.get(Kind.CACHE_READ, 0)
        for_an_hour = counts.get(Kind.CACHE_WRITE_1H, 0)
        written = self._written(counts.get(Kind.CACHE_WRITE_5M, 0) + for_an_hour)
        given = counts.get(Kind.INPUT, 0)
        if self._subtracts_cache:
            given = self._less("input", given, read + written, "the cache")
        given += counts.get(Kind.MORE_INPUT, 0)
        thoughts = counts.get(Kind.THOUGHTS, 0)
        reasoning = counts.get(Kind.REASONING, thoughts)
        output = self._output(counts.get(Kind.OUTPUT, 0) + thoughts, given + read + written, reasoning)
        kinds = given + output + read + written
        total = counts.get(Kind.TOTAL, kinds)
        if total > MAX_AMOUNT or kinds > MAX_AMOUNT:
            self._oddities.append(f"{self._where}: its numbers come to more than {MAX_AMOUNT}; none is counted")
            return ReportedUsage(oddities=tuple(self._oddities))
        for_an_hour = self._at_most("cacheWrite1h", for_an_hour, "cacheWrite", written)
        reasoning = self._at_most("reasoning", reasoning, "output", output)
        # In our own shape a kind that is not there is none.
        is_split = self._is_ours or (Kind.INPUT in counts and Kind.OUTPUT in counts)
        if total > kinds or not (is_split or (Kind.TOTAL in counts and total == kinds)):
            self._terms.setdefault(*INCOMPLETE)
        cost = self._cost()
        return ReportedUsage(
            UsageTotals(given, output, read, written, total, *self._costs(cost)),
            for_an_hour,
            reasoning,
            cost,
            self._is_known,
            _told_by(tuple(counts)),
            tuple(self._oddities),
            self.terms if self._is_known and cost is None else (),
        )

    def _written(self, split: int) -> int:
        """Return the tokens written to a cache: the number of all, or those by lifetime and what is beside them."""
        if self._rules == _OLDEST_RULES:
            return self._counts.get(Kind.CACHE_WRITE, self._counts.get(Kind.MORE_CACHE_WRITE, split))
        more = self._counts.get(Kind.MORE_CACHE_WRITE, 0)
        beside = split if more == split else split + more
        written = self._counts.get(Kind.CACHE_WRITE, beside)
        return written if self._is_ours else max(written, beside)

    def _output(self, output: int, request: int, reasoning: int) -> int:
        """Return the tokens of the answer: with those beside it that only the total has.

        Those are its reasoning where there are as many. Where a provider counts the cache within the input, nothing
        else can be missing in the total.
        """
        counts = self._counts
        rest = counts.get(Kind.TOTAL, 0) - request - output
        if rest <= 0 or self._rules == _OLDEST_RULES or Kind.INPUT not in counts or Kind.OUTPUT not in counts:
            return output
        return output + rest if self._holds_cache or rest == reasoning else output

    def _take(self, node: Node, reported: JsonValue, name: str, spelling: str) -> None:
        if isinstance(node, Field):
            self._take_number(node, reported, name)
        elif isinstance(node, (Term, Count)):
            self._take_term(node, reported, spelling)
        elif isinstance(node, dict):
            rows = node.get(ROWS)
            if isinstance(reported, (list, tuple)) and isinstance(rows, Rows):
                reported = _summed_rows(rows, reported)
            if isinstance(reported, (dict, Mapping)):
                for part, value in reported.items():
                    each = _snake_case(part)
                    if value is not None:
                        self._take(node.get(each) or node.get(ANY, FREE), value, f"{name}.{part}", each)

    def _take_number(self, field: Field, reported: JsonValue, name: str) -> None:
        if field.since > self._rules:
            return
        count = _whole_number(reported)
        if count is None:
            self._odd(name, f"{shown(reported)} is not a number of tokens from 0 to {MAX_AMOUNT}; it is not counted")
            self._terms.setdefault(*INCOMPLETE)
            return
        if field.term is not None:
            self._note(*field.term)
        if field.kind is Kind.PART:
            return
        # The same number may stand there twice, in its provider's spelling and in that of a gateway.
        self._counts[field.kind] = max(count, self._counts.get(field.kind, 0))
        if field.holds_cache:
            self._holds_cache = True
            # A gateway adds a 0 to numbers that its provider counts beside the input.
            if count or field.kind is Kind.INPUT or self._rules == _OLDEST_RULES:
                self._subtracts_cache = True
        self._is_ours = self._is_ours or name in KINDS
        self._is_known = True

    def _take_term(self, node: Term | Count, reported: JsonValue, spelling: str) -> None:
        if isinstance(node, Count):
            if reported:
                self._note(node.name or spelling, str(reported))
            return
        # Bedrock has an object of one name there.
        value = reported.get("type") if isinstance(reported, Mapping) else reported
        word = value.strip().lower() if isinstance(value, str) else shown(value)
        if word and word not in node.usual:
            self._note(*node.values.get(word, (node.name or spelling, word)))

    def _note(self, name: str, value: str) -> None:
        """Note a term. What is named twice, and differs, has no price."""
        word = value[:_LONGEST_TERM]
        before = self._terms.setdefault(name, word)
        if before != word:
            self._terms[name] = f"{before} or {word}"[: 2 * _LONGEST_TERM]

    def _take_cost(self, reported: JsonValue, name: str) -> None:
        if not isinstance(reported, (dict, Mapping)):
            self._take_dollars("total", reported, name)
            return
        if self._rules > _OLDEST_RULES and reported.get("total_cost") is not None:
            self._take_dollars("total", reported["total_cost"], name, "total_cost")
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

    def _take_ticks(self, reported: JsonValue, name: str) -> None:
        ticks = _whole_number(reported)
        if ticks is None or ticks > MAX_AMOUNT // PICODOLLARS_PER_TICK:
            self._odd(name, f"{shown(reported)} is not an amount of money that can be stored; it is not counted")
            return
        self._dollars["total"] = ticks * PICODOLLARS_PER_TICK
        self._is_known = True

    def _add_upstream(self, details: JsonValue) -> None:
        """Add what the model's provider charged for a call that was paid for with the user's own key."""
        beside = details if isinstance(details, Mapping) else {}
        fee = self._dollars.get("total")
        self._dollars.clear()
        for names in ((UPSTREAM_WHOLE,), *UPSTREAM_PARTS):
            parts = [_picodollars(beside.get(name)) for name in names]
            known = [part for part in parts if part is not None]
            if fee is not None and len(known) == len(parts):
                self._dollars["total"] = fee + sum(known)
                return
        self._note(*_OWN_KEY)

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
            self._terms.setdefault(*INCOMPLETE)
            self._odd(name, f"{whole} is less than the {part} of {what}, which is part of it; it is counted as none")
        return max(0, whole - part)

    def _at_most(self, name: str, part: int, whole_name: str, whole: int) -> int:
        if part > whole:
            self._terms.setdefault(*INCOMPLETE)
            self._odd(name, f"{part} is more than the {whole} of {whole_name}, which it is a part of; counted as that")
        return min(part, whole)

    def _odd(self, name: str, what: str) -> None:
        self._oddities.append(f"{self._where}.{name}: {what}")


def _summed_rows(rows: Rows, reported: list[JsonValue] | tuple[JsonValue, ...]) -> JsonObject:
    """Return a list of numbers as an object: what is named several times is added up."""
    summed: dict[str, JsonValue] = {}
    for row in reported:
        if not isinstance(row, Mapping):
            continue
        fields = {_snake_case(name): value for name, value in row.items()}
        name = str(fields.get(rows.name) or "unnamed")
        count = next((fields[each] for each in rows.count if fields.get(each) is not None), None)
        before, number = summed.get(name, 0), _whole_number(count)
        summed[name] = (
            before + number if isinstance(before, int) and number is not None else before if count is None else count
        )
    return summed


_Step: TypeAlias = "tuple[str, ReportedUsage]"


def _steps(value: Mapping[str, JsonValue], where: str, rules: int) -> list[_Step] | None:
    """Return the steps that one request took, and their models, where they were reported and all are recognised."""
    steps = value.get("iterations")
    if not isinstance(steps, (list, tuple)) or not steps:
        return None
    read: list[_Step] = []
    for number, step in enumerate(steps):
        if not isinstance(step, Mapping):
            return None
        reading = _Reading(f"{where}.iterations[{number}]", rules)
        reading.read(step)
        model = step.get("model")
        read.append((model if isinstance(model, str) else "", reading.result()))
    return read if all(step.is_known for _, step in read) else None


def _sum_of(steps: Sequence[ReportedUsage]) -> ReportedUsage | None:
    """Return the sum of steps, without a cost; None where it cannot be stored."""
    numbers = [sum(column) for column in zip(*(step.totals for step in steps), strict=True)]
    if max(numbers) > MAX_AMOUNT:
        return None
    return ReportedUsage(
        UsageTotals(*numbers),
        sum(step.cache_write_1h for step in steps),
        sum(step.reasoning for step in steps),
        None,
        is_known=True,
        told=frozenset().union(*(step.told for step in steps)),
        oddities=tuple(odd for step in steps for odd in step.oddities),
        terms=tuple(sorted({*(term for step in steps for term in step.terms), *((SUMMED,) if steps[1:] else ())})),
    )


def _named(steps: Sequence[_Step], terms: Terms) -> Iterator[_Step]:
    """Yield the sum of the steps of each model that is named. The terms of their request hold for all of them."""
    of_request = tuple(term for term in terms if term[0] in CONTEXT)
    for model in dict.fromkeys(model for model, _ in steps if model):
        whole = _sum_of([step for name, step in steps if name == model])
        if whole is not None:
            yield model, changed(whole, terms=merged_terms(of_request, whole.terms))


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


_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=\d+[mh](?:[A-Z]|$))")


@lru_cache(maxsize=256)
def _name_meant(spelling: str) -> str | None:
    """Return the number of tokens that a field is a misspelling of, if it looks like one."""
    names = [name for name, node in FIELDS.items() if isinstance(node, Field)]
    return next(iter(difflib.get_close_matches(spelling, names, 1, 0.75)), None)


@lru_cache(maxsize=1024)
def _snake_case(name: str) -> str:
    """Return a name in snake case, as the table has it: ``promptTokens``, ``PromptTokens`` and ``prompt_tokens``."""
    # A name that is not a string means nothing here, and is refused where the usage is written down.
    return _WORD_START.sub("_", name).lower() if isinstance(name, str) else ""
