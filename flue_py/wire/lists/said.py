"""A context on its way into a list that a provider takes: every call of a tool answered, every result called for."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from flue_py.core.exchange import Pairing, called_ids
from flue_py.core.faithful import SYSTEM
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import MESSAGE
from flue_py.core.native import NATIVE, sent_to
from flue_py.core.projection import ContextEntry
from flue_py.wire.anthropic import is_blank
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.openai_chat import parts_of

NO_RESULT = "No result: this tool call was never answered."
"""What stands as the result of a call that has none."""
CONTINUED = "(continued)"
"""What the user says where a request would begin with an answer, which some providers refuse."""
_FURTHER = "a further result of a tool call stands in the first one, since the API takes one"
_SAME = "a further result of a tool call, which says the same as an earlier one, is left out"

BLANK = "blank"
"""What `kinds_in` finds where a message, or a text in it, is empty or white space."""

SPEAKERS = frozenset({"user", "assistant", "toolResult", "system"})


class SystemApart(NamedTuple):
    """What the system said, as the provider has it beside the list (None if nothing), and the list without it."""

    system: JsonValue
    messages: list[JsonObject]


_NOTHING: JsonObject = {}


@dataclass(slots=True, init=False)
class Said:
    """A message of the context, and what its entry carried beside it; ``extra`` is empty if it was made here.

    ``entry_id`` is the entry behind it, None if it was made here or is not known. ``has_lost`` where reasoning that led
    to it is left out. ``role`` is whose message it is, ``calls`` are the ids of its tool calls, in order: found once,
    since a dozen passes ask each message of a request for them. Nobody changes any of it.
    """

    message: JsonObject
    extra: JsonObject
    entry_id: str | None
    has_lost: bool
    role: JsonValue
    calls: Sequence[str]

    def __init__(
        self, message: JsonObject, extra: JsonObject = _NOTHING, entry_id: str | None = None, *, has_lost: bool = False
    ) -> None:
        self.message = message
        self.extra = extra
        self.entry_id = entry_id
        self.has_lost = has_lost
        self.role = message.get("role")
        self.calls = called_ids(message) if self.role == "assistant" else ()

    @property
    def is_made_up(self) -> bool:
        """Whether it is the error that stands for a result that never came."""
        return self.role == "toolResult" and self.message.get("content") == NO_RESULT

    def with_message(self, message: JsonObject, extra: JsonObject = _NOTHING) -> Said:
        """Return this with another message. What stood beside the old one would bring that back, and is left out."""
        return Said(message, extra, self.entry_id, has_lost=self.has_lost)


def kinds_in(said: Iterable[Said]) -> frozenset[str]:
    """Return what there is in messages: types of parts, roles, and `BLANK` where content or a text is. O(parts)."""
    found: set[str] = set()
    for each in said:
        if isinstance(each.role, str):
            found.add(each.role)
        content = each.message.get("content")
        if not isinstance(content, list) or not content:
            if is_blank(content):
                found.add(BLANK)
            continue
        for part in content:
            if isinstance(part, dict) and isinstance(kind := part.get("type"), str):
                found.add(kind)
                if kind == "text" and is_blank(part.get("text")):
                    found.add(BLANK)
    return frozenset(found)


def last_model(said: Sequence[Said]) -> str | None:
    """Return the model of the last answer, which a request is for where no other is named; None where it has none."""
    answer = next((each for each in reversed(said) if each.role == "assistant"), None)
    model = None if answer is None else answer.message.get("model")
    return model if isinstance(model, str) else None


def said_in(context: Iterable[ContextEntry]) -> Iterator[Said]:
    """Yield the messages of a context, each with what its entry carries beside it. O(size)."""
    for item in context:
        yield said_of(item, item.data)


def said_of(item: ContextEntry, message: JsonObject) -> Said:
    """Return the message of an item with what its entry carries beside it, if ``message`` is all of it. O(size)."""
    # What stands beside a message may hold what the context leaves out of it.
    entry = item.entry
    whole = entry.extra is not None and entry.kind == MESSAGE and message == entry.fields
    return Said(message, entry.extra_fields if whole else _NOTHING, entry.id)


def speakers_only(
    messages: Iterable[Said],
    left: Leftovers,
    *,
    also: Iterable[str] = (),
    provider: str | None = None,
    account: str | None = None,
) -> list[Said]:
    """Return what the model sees: messages of `SPEAKERS`, and of the roles in ``also``.

    What ``provider`` made itself for ``account`` stands in place of the text that says the same, where it comes first,
    as providers ask. Commands of the user become text, ``custom`` messages the user's; what the user kept from the
    model, and other roles, are noted. Cost: O(messages).
    """
    given = [*messages]
    spoken = SPEAKERS.union(also)
    if all(each.role in spoken and NATIVE not in each.message for each in given):
        return given
    said: list[Said] = []
    for each in _sent(given, provider, account):
        message, role, left.at = each.message, each.role, each.entry_id
        if role in spoken:
            said.append(each)
        elif role == "bashExecution":
            if message.get("excludeFromContext"):
                left.note("a command that the user kept from the model", message)
            else:
                said.append(Said({"role": "user", "content": bash_text(message)}, entry_id=each.entry_id))
        elif role == "custom":
            said.append(Said({"role": "user", "content": message.get("content")}, entry_id=each.entry_id))
        else:
            left.note(f"a message of role {role!r}", message)
    left.at = None
    return said


def _sent(messages: Iterable[Said], provider: str | None, account: str | None) -> Iterator[Said]:
    is_first = True
    for said in messages:
        if NATIVE in said.message:
            sent = sent_to(said.message, provider if is_first else None, account)
            yield from (Said(message, entry_id=said.entry_id) for message in sent)
        else:
            yield said
        is_first = is_first and said.role in SYSTEM


def split_system(
    messages: Iterable[Said],
    left: Leftovers,
    *,
    provider: str | None = None,
    account: str | None = None,
    within: bool = False,
) -> tuple[list[Said], list[Said]]:
    """Return what the system said, and what everybody else did (see `speakers_only`), for a list without the former.

    With ``within`` that is what the system said first, and the list has the rest.
    """
    said = speakers_only(messages, left, also=SYSTEM, provider=provider, account=account)
    if within:
        first = next((at for at, each in enumerate(said) if each.role not in SYSTEM), len(said))
        return said[:first], said[first:]
    system = [each for each in said if each.role in SYSTEM]
    if not system:
        return system, said
    if said[: len(system)] != system:
        left.change("system messages from within the conversation stand at its beginning")
    return system, [each for each in said if each.role not in SYSTEM]


def pairing_of(said: Sequence[Said]) -> Pairing:
    """Return which results answer which calls in messages, by their places. Cost: O(messages that call or answer)."""
    places = [at for at, each in enumerate(said) if each.calls or each.role == "toolResult"]
    return Pairing([said[at].message for at in places], places)


def joined_answers(said: Sequence[Said]) -> list[Said]:
    """Return the messages with an answer that calls tools, and what the model says right after it, as one."""
    joined: list[Said] = []
    for each in said:
        if each.role == "assistant" and joined and joined[-1].role == "assistant" and joined[-1].calls:
            before = joined[-1].message
            parts: list[JsonValue] = [*parts_of(before), *parts_of(each.message)]
            whole = {**before, "content": parts}
            if before.get("provider") != each.message.get("provider"):
                whole.pop("provider", None)
            joined[-1] = Said(whole, entry_id=joined[-1].entry_id)
        else:
            joined.append(each)
    return joined


def answered(said: Sequence[Said], left: Leftovers, *, in_place: bool = False) -> list[Said]:
    """Return the messages with the results of each call right behind it, in the order in which they came.

    A call without a result gets an error as its result, a result without a call is left out, and what further results
    of a call say stands in its first one; all of it is noted. With ``in_place`` results stay where they are, and only
    those three things are done; an error stands behind the results that follow the answer. Cost: O(messages).
    """
    pairing = pairing_of(said)
    if not pairing.results and all(each.role != "toolResult" for each in said):
        return [*said]
    one, further = _one_for_each_call(said, pairing)
    behind = _ends_of_results(said, one) if in_place else {}
    errors: dict[int, list[Said]] = {}
    out: list[Said] = []
    for at, each in enumerate(said):
        left.at = each.entry_id
        if each.role == "toolResult":
            if at in further:
                left.change(further[at], lost=[each.message] if further[at] == _SAME else ())
            elif at not in one:
                left.note("a tool result whose call is not in the context", each.message)
            elif in_place:
                out += [one[at], *errors.pop(at, ())]
            continue
        out.append(each)
        if each.calls:
            paired = pairing.results_of(at)
            answers = sorted([results[0] for results in paired.values() if results])
            if not in_place:
                if answers != [*range(at + 1, at + 1 + len(answers))]:
                    left.change("results of tools were moved right behind their calls")
                out += [one[place] for place in answers]
            if len(answers) < len(paired):
                found = {call.id for call, results in paired.items() if results}
                errors.setdefault(behind.get(at, at), []).extend(_errors(each, found, left))
            out += errors.pop(at, ())
    left.at = None
    return out


def _one_for_each_call(said: Sequence[Said], pairing: Pairing) -> tuple[dict[int, Said], dict[int, str]]:
    """Return the result that goes out for each call that has one, and what is noted of further ones, by place."""
    one: dict[int, Said] = {}
    further: dict[int, str] = {}
    for results in pairing.results.values():
        if len(results) == 1:
            one[results[0]] = said[results[0]]
        elif results:
            told = _saying_something_else(said, results)
            one[results[0]] = _as_one([said[at] for at in told])
            further.update((at, _FURTHER if at in told else _SAME) for at in results[1:])
    return one, further


def _ends_of_results(said: Sequence[Said], answers: Container[int]) -> dict[int, int]:
    """Return for each message of the model where the results end that follow its answer: there or, if none do, at it.

    An answer may be several messages. Only a result that goes out, one of ``answers``, is such an end.
    """
    ends: dict[int, int] = {}
    end: int | None = None
    after: JsonValue = None
    for at in reversed(range(len(said))):
        role = said[at].role
        if role == "assistant":
            ends[at] = at if end is None else end
        elif role != "toolResult" or after == "assistant":
            end = None
        if role == "toolResult" and end is None and at in answers:
            end = at
        after = role
    return ends


def _saying_something_else(said: Sequence[Said], results: Sequence[int]) -> dict[int, None]:
    """Return those of the results of a call that say what none before them does, in order."""
    first: dict[str, int] = {}
    for at in results:
        message = said[at].message
        first.setdefault(json.dumps([message.get("content"), message.get("isError") is True], sort_keys=True), at)
    return dict.fromkeys(first.values())


def _as_one(results: Sequence[Said]) -> Said:
    """Return results of one call as the one that a provider takes: the first, with what the others say behind it."""
    first = results[0]
    if len(results) == 1:
        return first
    parts: list[JsonValue] = [
        part for each in results for part in parts_of(each.message) if part.get("type") != "text" or part.get("text")
    ]
    whole: JsonObject = {**first.message, "content": parts}
    if any("isError" in each.message for each in results):
        whole["isError"] = all(each.message.get("isError") is True for each in results)
    return first.with_message(whole)


def with_own_ids(said: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return the messages with another id for each call whose id an earlier one has, and for its results.

    Some programs use ids again, turn by turn, and some providers give none. Cost: O(messages).
    """
    called = [call_id for each in said for call_id in each.calls]
    if len({*called}) == len(called):
        return [*said]
    pairing = pairing_of(said)
    # An id that only comes later must not change one before it: a longer conversation begins with the same bytes.
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    own = [*said]
    for call, results in pairing.results.items():
        if call.id not in taken:
            taken.add(call.id)
            continue
        left.at = own[call.at].entry_id
        left.change("ids of tool calls that were used again have a number behind them")
        # Some programs give every call the same id: each goes on from the number of the one before it.
        number = next(each for each in count(numbers.get(call.id, 2)) if f"{call.id}_{each}" not in taken)
        numbers[call.id] = number + 1
        call_id = f"{call.id}_{number}"
        taken.add(call_id)
        content = own[call.at].message.get("content")
        parts = [*content] if isinstance(content, list) else []
        parts[call.part] = {**_object(parts[call.part]), "id": call_id}
        own[call.at] = own[call.at].with_message({**own[call.at].message, "content": parts})
        for at in results:
            own[at] = own[at].with_message({**own[at].message, "toolCallId": call_id})
    left.at = None
    return own


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _errors(said: Said, answered_ids: Container[str], left: Leftovers) -> Iterator[Said]:
    """Yield what stands as the result of each call of a message that has none."""
    for call in dict.fromkeys(said.calls):
        if call not in answered_ids:
            error = _no_result(said, call)
            left.change("a tool call without a result got an error as its result", put=[error])
            yield Said(error)


def _no_result(said: Said, call: str) -> JsonObject:
    names = (part.get("name") for part in parts_of(said.message) if part.get("id") == call)
    return {
        "role": "toolResult",
        "toolCallId": call,
        "toolName": next(names, None),
        "content": NO_RESULT,
        "isError": True,
    }


def bash_text(message: JsonObject) -> str:
    """Return the text that tells the model of a command that the user ran."""
    output = message.get("output")
    text = f"Ran `{message.get('command')}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    if message.get("cancelled"):
        text += "\n\n(command cancelled)"
    elif message.get("exitCode") not in (None, 0):
        text += f"\n\nCommand exited with code {message.get('exitCode')}"
    if message.get("truncated") and message.get("fullOutputPath"):
        text += f"\n\n[Output truncated. Full output: {message.get('fullOutputPath')}]"
    return text
