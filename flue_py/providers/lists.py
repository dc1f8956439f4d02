"""Contexts as whole lists of messages that a provider takes: Anthropic, Gemini, OpenAI chat and Responses."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from flue_py.core.context import ContextEntry
from flue_py.core.entries import Pairing, called_ids
from flue_py.core.json import JsonObject, JsonValue, NamedTuple, without
from flue_py.core.kinds import COMPACTION_PART, MESSAGE, NATIVE, SYSTEM, holds_compaction, sent_to
from flue_py.providers import anthropic, gemini, openai_chat, openai_responses
from flue_py.providers.base import Leftovers, blocks_of, fields_of, listed, objects_in, restored
from flue_py.providers.rules import is_known, kind_of

# A context on its way into a list that a provider takes: every call of a tool answered, every result called for.

NO_RESULT = "No result: this tool call was never answered."
"""The result of a call that has none."""
CONTINUED = "(continued)"
"""The words of the user before a first answer, since some providers refuse a request that begins with one."""
_FURTHER = "a further result of a tool call stands in the first one, since the API takes one"
_SAME = "a further result of a tool call, which says the same as an earlier one, is left out"

BLANK = "blank"
"""The kind that `kinds_in` returns for a message, or a text in it, that is empty or white space."""

SPEAKERS = frozenset({"user", "assistant", "toolResult", "system"})


class SystemApart(NamedTuple):
    """The words of the system, as the provider has them beside the list (None if there are none), and the list."""

    system: JsonValue
    messages: list[JsonObject]


_NOTHING: JsonObject = {}


@dataclass(slots=True, init=False)
class Said:
    """A message of the context, and the fields beside it in its entry; ``extra`` is empty if it was made here.

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

    @property
    def parts(self) -> list[JsonValue]:
        """The parts of its content; none if that is a text."""
        return listed(self.message.get("content"))

    def with_message(self, message: JsonObject, extra: JsonObject = _NOTHING) -> Said:
        """Return this with another message. The fields beside the old one would bring that back, and are left out."""
        return Said(message, extra, self.entry_id, has_lost=self.has_lost)

    def with_parts(self, parts: list[JsonValue]) -> Said:
        """Return this with other parts (see `with_message`)."""
        return self.with_message({**self.message, "content": parts})

    def without_parts(self, places: Sequence[int]) -> Said:
        """Return this without the parts at some places: the same one if there are none."""
        if not places:
            return self
        return self.with_parts([part for place, part in enumerate(self.parts) if place not in places])


def kinds_in(messages: Iterable[Said]) -> frozenset[str]:
    """Return the types of parts and the roles in messages, and `BLANK` if a content or a text is blank. O(parts)."""
    kinds: set[str] = set()
    for message in messages:
        if isinstance(message.role, str):
            kinds.add(message.role)
        content = message.message.get("content")
        if not isinstance(content, list) or not content:
            if anthropic.is_blank(content):
                kinds.add(BLANK)
            continue
        for part in content:
            if isinstance(part, dict) and isinstance(kind := part.get("type"), str):
                kinds.add(kind)
                if kind == "text" and anthropic.is_blank(part.get("text")):
                    kinds.add(BLANK)
    return frozenset(kinds)


def last_model(messages: Sequence[Said]) -> str | None:
    """Return the model of the last answer, which a request is for where no other is named; None where it has none."""
    answer = next((message for message in reversed(messages) if message.role == "assistant"), None)
    model = None if answer is None else answer.message.get("model")
    return model if isinstance(model, str) else None


def said_in(context: Iterable[ContextEntry]) -> Iterator[Said]:
    """Yield the messages of a context, each with the fields beside it in its entry. O(size)."""
    for item in context:
        yield said_of(item, item.data)


def said_of(item: ContextEntry, message: JsonObject) -> Said:
    """Return the message of an item with the fields beside it in its entry, if ``message`` is all of it. O(size)."""
    # The fields beside a message may hold parts that the context leaves out of it.
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
    """Return the messages for the model: those of `SPEAKERS`, and of the roles in ``also``.

    The own compaction of ``provider`` for ``account`` stands in place of the text that says the same, if it comes
    first, as providers ask. Commands of the user become text, ``custom`` messages the user's; commands that the user
    kept from the model, and other roles, are noted. Cost: O(messages).
    """
    whole = [*messages]
    spoken = SPEAKERS.union(also)
    if all(item.role in spoken and NATIVE not in item.message for item in whole):
        return whole
    spoken_messages: list[Said] = []
    for item in _sent(whole, provider, account):
        message, role, left.at = item.message, item.role, item.entry_id
        if role in spoken:
            spoken_messages.append(item)
        elif role == "bashExecution":
            if message.get("excludeFromContext"):
                left.note("a command that the user kept from the model", message)
            else:
                spoken_messages.append(Said({"role": "user", "content": bash_text(message)}, entry_id=item.entry_id))
        elif role == "custom":
            spoken_messages.append(Said({"role": "user", "content": message.get("content")}, entry_id=item.entry_id))
        else:
            left.note(f"a message of role {role!r}", message)
    left.at = None
    return spoken_messages


def _sent(messages: Iterable[Said], provider: str | None, account: str | None) -> Iterator[Said]:
    is_first = True
    for item in messages:
        if NATIVE in item.message:
            sent = sent_to(item.message, provider if is_first else None, account)
            yield from (Said(message, entry_id=item.entry_id) for message in sent)
        else:
            yield item
        is_first = is_first and item.role in SYSTEM


def split_system(
    messages: Iterable[Said],
    left: Leftovers,
    *,
    provider: str | None = None,
    account: str | None = None,
    within: bool = False,
) -> tuple[list[Said], list[Said]]:
    """Return the messages of the system, and all others (see `speakers_only`), for a list without the former.

    With ``within`` those are the first messages of the system, and the list has the rest.
    """
    spoken = speakers_only(messages, left, also=SYSTEM, provider=provider, account=account)
    if within:
        first = leading_system(spoken)
        return spoken[:first], spoken[first:]
    system = [message for message in spoken if message.role in SYSTEM]
    if not system:
        return system, spoken
    if spoken[: len(system)] != system:
        left.change("system messages from within the conversation stand at its beginning")
    return system, [message for message in spoken if message.role not in SYSTEM]


def leading_system(messages: Sequence[Said]) -> int:
    """Return how many messages of the system stand before all others."""
    return next((at for at, message in enumerate(messages) if message.role not in SYSTEM), len(messages))


def pairing_of(messages: Sequence[Said]) -> Pairing:
    """Return which results answer which calls in messages, by their places. Cost: O(messages that call or answer)."""
    places = [at for at, message in enumerate(messages) if message.calls or message.role == "toolResult"]
    return Pairing([messages[at].message for at in places], places)


def joined_answers(messages: Sequence[Said]) -> list[Said]:
    """Return the messages with an answer that calls tools, and the answers right after it, as one."""
    joined: list[Said] = []
    for message in messages:
        if message.role == "assistant" and joined and joined[-1].role == "assistant" and joined[-1].calls:
            before = joined[-1].message
            parts: list[JsonValue] = [*openai_chat.parts_of(before), *openai_chat.parts_of(message.message)]
            whole = {**before, "content": parts}
            if before.get("provider") != message.message.get("provider"):
                whole.pop("provider", None)
            joined[-1] = Said(whole, entry_id=joined[-1].entry_id)
        else:
            joined.append(message)
    return joined


def answered(messages: Sequence[Said], left: Leftovers, *, in_place: bool = False) -> list[Said]:
    """Return the messages with the results of each call right behind it, in the order in which they came.

    A call without a result gets an error as its result, a result without a call is left out, and the words of further
    results of a call stand in its first one; all of it is noted. With ``in_place`` results stay where they are, and
    only those three things are done; an error stands behind the results that follow the answer. Cost: O(messages).
    """
    pairing = pairing_of(messages)
    if not pairing.results and all(message.role != "toolResult" for message in messages):
        return [*messages]
    first_results, further = _one_for_each_call(messages, pairing)
    behind = _ends_of_results(messages, first_results) if in_place else {}
    errors: dict[int, list[Said]] = {}
    out: list[Said] = []
    for at, message in enumerate(messages):
        left.at = message.entry_id
        if message.role == "toolResult":
            if at in further:
                left.change(further[at], lost=[message.message] if further[at] == _SAME else ())
            elif at not in first_results:
                left.note("a tool result whose call is not in the context", message.message)
            elif in_place:
                out += [first_results[at], *errors.pop(at, ())]
            continue
        out.append(message)
        if message.calls:
            paired = pairing.results_of(at)
            answers = sorted([results[0] for results in paired.values() if results])
            if not in_place:
                if answers != [*range(at + 1, at + 1 + len(answers))]:
                    left.change("results of tools were moved right behind their calls")
                out += [first_results[place] for place in answers]
            if len(answers) < len(paired):
                answered_ids = {call.id for call, results in paired.items() if results}
                errors.setdefault(behind.get(at, at), []).extend(_errors(message, answered_ids, left))
            out += errors.pop(at, ())
    left.at = None
    return out


def _one_for_each_call(messages: Sequence[Said], pairing: Pairing) -> tuple[dict[int, Said], dict[int, str]]:
    """Return the result that goes out for each call that has one, and the notes on further ones, by place."""
    first_results: dict[int, Said] = {}
    further: dict[int, str] = {}
    for results in pairing.results.values():
        if len(results) == 1:
            first_results[results[0]] = messages[results[0]]
        elif results:
            places = _saying_something_else(messages, results)
            first_results[results[0]] = _as_one([messages[at] for at in places])
            further.update((at, _FURTHER if at in places else _SAME) for at in results[1:])
    return first_results, further


def _ends_of_results(messages: Sequence[Said], answers: Container[int]) -> dict[int, int]:
    """Return for each message of the model where the results end that follow its answer: there or, if none do, at it.

    An answer may be several messages. Only a result that goes out, one of ``answers``, is such an end.
    """
    ends: dict[int, int] = {}
    end: int | None = None
    after: JsonValue = None
    for at in reversed(range(len(messages))):
        role = messages[at].role
        if role == "assistant":
            ends[at] = at if end is None else end
        elif role != "toolResult" or after == "assistant":
            end = None
        if role == "toolResult" and end is None and at in answers:
            end = at
        after = role
    return ends


def _saying_something_else(messages: Sequence[Said], results: Sequence[int]) -> dict[int, None]:
    """Return the results of a call that do not repeat one before them, in order."""
    first: dict[str, int] = {}
    for at in results:
        message = messages[at].message
        first.setdefault(json.dumps([message.get("content"), message.get("isError") is True], sort_keys=True), at)
    return dict.fromkeys(first.values())


def _as_one(results: Sequence[Said]) -> Said:
    """Return results of one call as the one a provider takes: the first, with the words of the others behind it."""
    first = results[0]
    if len(results) == 1:
        return first
    parts: list[JsonValue] = [
        part
        for result in results
        for part in openai_chat.parts_of(result.message)
        if part.get("type") != "text" or part.get("text")
    ]
    whole: JsonObject = {**first.message, "content": parts}
    if any("isError" in result.message for result in results):
        whole["isError"] = all(result.message.get("isError") is True for result in results)
    return first.with_message(whole)


def with_own_ids(messages: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return the messages with another id for each call whose id an earlier one has, and for its results.

    Some programs use ids again, turn by turn, and some providers give none. Cost: O(messages).
    """
    called = [call_id for message in messages for call_id in message.calls]
    if len({*called}) == len(called):
        return [*messages]
    pairing = pairing_of(messages)
    # An id that only comes later must not change one before it: a longer conversation begins with the same bytes.
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    own = [*messages]
    for call, results in pairing.results.items():
        if call.id not in taken:
            taken.add(call.id)
            continue
        left.at = own[call.at].entry_id
        left.change("ids of tool calls that were used again have a number behind them")
        # Some programs give every call the same id: each goes on from the number of the one before it.
        number = next(message for message in count(numbers.get(call.id, 2)) if f"{call.id}_{message}" not in taken)
        numbers[call.id] = number + 1
        call_id = f"{call.id}_{number}"
        taken.add(call_id)
        parts = [*own[call.at].parts]
        parts[call.part] = {**fields_of(parts[call.part]), "id": call_id}
        own[call.at] = own[call.at].with_parts(parts)
        for at in results:
            own[at] = own[at].with_message({**own[at].message, "toolCallId": call_id})
    left.at = None
    return own


def _errors(answer: Said, answered_ids: Container[str], left: Leftovers) -> Iterator[Said]:
    """Yield an error as the result of each call of a message that has none."""
    for call in dict.fromkeys(answer.calls):
        if call not in answered_ids:
            error = _no_result(answer, call)
            left.change("a tool call without a result got an error as its result", put=[error])
            yield Said(error)


def _no_result(answer: Said, call: str) -> JsonObject:
    name = next((part.get("name") for part in openai_chat.parts_of(answer.message) if part.get("id") == call), None)
    return {"role": "toolResult", "toolCallId": call, "toolName": name, "content": NO_RESULT, "isError": True}


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


# A context as a list of Anthropic messages, and the system prompt that a request has beside it.

LAST_REASONING = "reasoning that nothing of its answer follows, which the API refuses"


def anthropic_list(
    messages: Iterable[Said],
    left: Leftovers,
    *,
    is_sent: bool = False,
    account: str | None = None,
    system_within: bool = False,
) -> SystemApart:
    """Return messages of ours as Anthropic messages, users and answers taking turns, and the system prompt.

    The results of an answer's tools stand at the beginning of one message of the user, right behind it. Reasoning
    goes out where Anthropic signed it, and in a list that ``is_sent`` where something of the same answer follows it; of
    marks for the cache the last ones do, as many as it takes. The system prompt is a string, blocks, or None. A
    compaction of Anthropic's own, for ``account``, goes out as it came. With ``system_within`` a system message from
    the middle stays behind the message of the user that is nearest. Cost: O(messages).
    """
    system, spoken = split_system(messages, left, provider=anthropic.PROVIDER, account=account, within=system_within)
    turns = _turns(with_own_ids(answered(joined_answers(spoken), left), left), left, is_sent=is_sent)
    if turns and turns[0].get("role") != "user" and not _begins_compacted(turns[0]):
        begun: JsonObject = {"role": "user", "content": CONTINUED}
        left.change("a message of the user stands before the first answer, which the API asks for", put=[begun])
        turns.insert(0, begun)
        left.places = {entry_id: place + 1 for entry_id, place in left.places.items()}
    prompt = (_system(system, left) if system else None) or None
    request = fields_of(anthropic.latest_cache_marks({"system": prompt, "messages": [*turns]}, left))
    return SystemApart(request["system"], [turn for _, turn in objects_in(request["messages"])])


def _begins_compacted(turn: JsonObject) -> bool:
    """Return whether a list begins with Anthropic's own compaction, which nothing may stand before."""
    first = next(iter(blocks_of(turn.get("content"))), None)
    return isinstance(first, dict) and first.get("type") == COMPACTION_PART


def _system(system: Sequence[Said], left: Leftovers) -> JsonValue:
    content = system[0].message.get("content")
    if len(system) == 1 and isinstance(content, str):
        return anthropic.without_blanks(content, left)
    return [
        block
        for message in system
        for part in openai_chat.parts_of(message.message)
        for block in anthropic.block_from_part(part, left, provider=None)
    ]


def _turns(messages: Sequence[Said], left: Leftovers, *, is_sent: bool) -> list[JsonObject]:
    turns: list[JsonObject] = []
    entries: list[str | None] = []  # of each block of the last turn
    before: Said | None = None
    instructions: list[Said] = []
    for message in messages:
        left.at = message.entry_id
        if message.role in SYSTEM:
            instructions.append(message)
            continue
        role = "assistant" if message.role == "assistant" else "user"
        content = _content(message, left)
        if not content:
            if not message.message.get("content"):
                left.note("a message without content, which the API refuses", message.message)
            continue  # whatever else it held has no place here, and has been noted
        if role == "user" and is_sent:
            _end_answer(turns, entries, left)
            left.at = message.entry_id
        if instructions and role == "assistant":
            _instruct(turns, instructions, left)
            entries.clear()
        elif instructions:
            left.change("a system message stands behind the message of the user that follows it, as the API asks")
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": content})
            entries.clear()
        else:
            if before is not None and not (before.role == "toolResult" and role == "user"):
                left.change("messages of one side that followed each other were joined")
            turns[-1]["content"] = [*blocks_of(turns[-1]["content"]), *blocks_of(content)]
        entries += [message.entry_id] * (len(content) if isinstance(content, list) else 1)
        before = message
        left.places[message.entry_id] = len(turns) - 1
    if is_sent:
        _end_answer(turns, entries, left)
    if instructions:
        _instruct(turns, instructions, left)
    left.at = None
    return turns


def _instruct(turns: list[JsonObject], instructions: list[Said], left: Leftovers) -> None:
    """Add system messages from the middle, which stand behind one of the user; and empty the list of them."""
    content = _system(instructions, left)
    if content:
        if not turns or turns[-1]["role"] != "user":
            begun: JsonObject = {"role": "user", "content": CONTINUED}
            left.change("a message of the user stands before a system message, which the API asks for", put=[begun])
            turns.append(begun)
        turns.append({"role": "system", "content": content})
        left.places |= {message.entry_id: len(turns) - 1 for message in instructions}
    instructions.clear()


def _end_answer(turns: list[JsonObject], entries: Sequence[str | None], left: Leftovers) -> None:
    """Take reasoning off the end of an answer that stands last, and the answer where nothing is left of it.

    Where a turn was cut off there may be no more than that, and the API takes no answer that ends so.
    """
    if not turns or turns[-1]["role"] != "assistant":
        return
    blocks = blocks_of(turns[-1]["content"])
    if blocks and not anthropic.is_reasoning(blocks[-1]):
        return
    rest = [*blocks]
    while rest and anthropic.is_reasoning(rest[-1]):
        block = rest.pop()
        left.at = entries[len(rest)]
        left.note(LAST_REASONING, {"type": "thinking", "thinking": fields_of(block).get("thinking") or ""})
    if rest:
        turns[-1] = turns[-1] if len(rest) == len(blocks) else {**turns[-1], "content": rest}
        return
    turns.pop()
    for entry_id in dict.fromkeys(entries):
        left.places.pop(entry_id, None)
        if turns:
            left.places[entry_id] = len(turns) - 1


def _content(item: Said, left: Leftovers) -> JsonValue:
    """Return the content of the message that this one is, or is part of."""
    message, change = item.message, item.extra.get(anthropic.EXTRA) if item.extra else None
    quiet = left if change is None else Leftovers()
    if item.role == "toolResult":
        result = restored(anthropic.printed_result(message, quiet), change)
        if isinstance(result.get("content"), list):
            result["content"] = anthropic.without_blanks(result["content"], left)
        return [result]
    content = message.get("content")
    if not content:
        return []
    if isinstance(content, str):
        return anthropic.without_blanks(content, left)
    blocks: list[JsonValue] = []
    for part in content if isinstance(content, list) else ():
        # Written out, since almost every part is this: a text and nothing beside it.
        if not isinstance(part, dict):
            continue
        text = part.get("text")
        if len(part) == 2 and part.get("type") == "text" and isinstance(text, str) and not anthropic.is_blank(text):
            blocks.append({"type": "text", "text": text})
        else:
            blocks += anthropic.block_from_part(part, quiet, provider=message.get("provider"))
    if change is None:
        return blocks  # none of them is blank: such a text is no block
    # The fields beside a message may come from any file: only a value that can be content counts.
    content = restored({"content": blocks}, change).get("content")
    return anthropic.without_blanks(content, left) if isinstance(content, (str, list)) else blocks


# A context as a list of Gemini contents, and the system instruction that a request has beside it.


def gemini_list(messages: Iterable[Said], left: Leftovers) -> SystemApart:
    """Return messages of ours as contents, and the words of the system as a content without a role, or None.

    The responses to a model's calls are one content of the user, right behind the calls. Reasoning and signatures go
    out where a model of Google's gave them. The first call of any other model's answer gets `FOREIGN_SIGNATURE`, as the
    API refuses it without. Cost: O(messages).
    """
    system, spoken = split_system(messages, left)
    contents = _contents(_named(answered(joined_answers(spoken), left)), left)
    if contents and contents[0].get("role") == "model":
        left.change(
            "a content of the user stands before the first answer, which the API asks for",
            put=[{"role": "user", "content": CONTINUED}],
        )
        contents.insert(0, {"role": "user", "parts": [{"text": CONTINUED}]})
    parts = [part for message in system for part in listed(_printed(message, left).get("parts"))]
    return SystemApart({"parts": parts} if parts else None, contents)


def _named(messages: Sequence[Said]) -> list[Said]:
    """Return the messages with the name of the tool that was called on every result: the API finds the call by it."""
    pairing = pairing_of(messages)
    named = [*messages]
    for call, results in pairing.results.items():
        name = pairing.parts[call].get("name")
        for at in results:
            if messages[at].message.get("toolName") != name:
                named[at] = messages[at].with_message({**messages[at].message, "toolName": name}, messages[at].extra)
    return named


def _contents(messages: Sequence[Said], left: Leftovers) -> list[JsonObject]:
    contents: list[JsonObject] = []
    before: Said | None = None
    for message in messages:
        left.at = message.entry_id
        printed = _printed(message, left)
        if not printed.get("parts") and gemini.EXTRA not in message.extra:
            if not message.message.get("content"):
                left.note("a message without content, which the API refuses", message.message)
            continue  # whatever else it held has no place here, and has been noted
        if before is not None and _goes_on(message, before) and _side(contents[-1]) == _side(printed):
            contents[-1] = {
                **contents[-1],
                "parts": [*listed(contents[-1].get("parts")), *listed(printed.get("parts"))],
            }
        else:
            contents.append(printed)
        before = message
    left.at = None
    return contents


def _goes_on(message: Said, before: Said) -> bool:
    """Return whether a message is part of the content that the one before it is in."""
    if not message.extra:
        return message.role == before.role == "toolResult"
    starts = fields_of(message.extra.get(gemini.EXTRA)).get(gemini.STARTS)
    return starts is False or (starts is None and message.role == before.role == "toolResult")


def _side(content: JsonObject) -> bool:
    return content.get("role") == "model"


def _printed(item: Said, left: Leftovers) -> JsonObject:
    change = item.extra.get(gemini.EXTRA)
    is_silent = change is not None or item.is_made_up
    printed = gemini.printed_content(item.message, Leftovers() if is_silent else left)
    if change is None and item.role == "assistant" and not gemini.is_of_google(item.message):
        return with_signature(printed, left)
    return restored(printed, change)


def with_signature(content: JsonObject, left: Leftovers) -> JsonObject:
    """Return a content of the model whose first call has a signature: its own, or `FOREIGN_SIGNATURE`. O(parts)."""
    parts = listed(content.get("parts"))
    calls = [at for at, part in enumerate(parts) if isinstance(part, dict) and "functionCall" in part]
    if not calls or (isinstance(first := parts[at := calls[0]], dict) and first.get("thoughtSignature")):
        return content
    left.change("calls that a model other than Google's made go out with a mark in place of its signature")
    signed: JsonObject = {**dict(parts[at]), "thoughtSignature": gemini.FOREIGN_SIGNATURE}  # type: ignore[arg-type]
    return {**content, "parts": [*parts[:at], signed, *parts[at + 1 :]]}


# A context as a list of OpenAI chat messages.

_ALSO = frozenset({"developer", "function"})


def chat_list(messages: Iterable[Said], left: Leftovers) -> list[JsonObject]:
    """Return messages of ours as chat messages, every call of a tool answered right behind it.

    Reasoning is left out, unless it came from such a list. Images of tool results follow in a message of the user:
    the format takes them from no other role. Cost: O(messages).
    """
    printed: list[JsonObject] = []
    images: list[JsonValue] = []
    for item in answered(joined_answers(speakers_only(messages, left, also=_ALSO)), left):
        left.at = item.entry_id
        if images and item.role != "toolResult":
            _flush(printed, images)
        chat_message = _openai_chat_printed(item, left)
        if chat_message is not None:
            printed.append(chat_message)
        if item.role == "toolResult" and openai_chat.EXTRA not in item.extra:
            images += _images(item.message, left)
    _flush(printed, images)
    left.at = None
    return printed


def _openai_chat_printed(item: Said, left: Leftovers) -> JsonObject | None:
    if openai_chat.EXTRA in item.extra:
        # Reasoning that came from such a list goes back into it, so that it is not left out.
        return restored(openai_chat.printed_chat(item.message, Leftovers()), item.extra[openai_chat.EXTRA])
    printed = openai_chat.printed_chat(item.message, Leftovers() if item.is_made_up else left)
    is_empty = item.role == "assistant" and printed["content"] is None and "tool_calls" not in printed
    return None if is_empty and isinstance(item.message.get("content"), list) else printed


def _images(message: Mapping[str, JsonValue], left: Leftovers) -> list[JsonValue]:
    images = [
        image
        for part in openai_chat.parts_of(message)
        if part.get("type") == "image"
        for image in openai_chat.printed_image(part, left)
    ]
    for part in openai_chat.parts_of(message):
        if part.get("type") == "file":
            left.note("a file of a tool result", part)
    if not images:
        return []
    left.change("images of tool results stand in a message of the user")
    return [{"type": "text", "text": f"Images from tool call {message.get('toolCallId')}:"}, *images]


def _flush(messages: list[JsonObject], images: list[JsonValue]) -> None:
    if images:
        messages.append({"role": "user", "content": [*images]})
        images.clear()


# A context as a list of OpenAI Responses items.

_BOUND = frozenset({"message", "function_call", "custom_tool_call"})
"""The items that the API takes without an id."""
_OPENAI_RESPONSES_ALSO = frozenset({"developer"})
PI_ID = re.compile(r"([^|]+)\|((?:fc|ctc)_[^|]*)")
"""How pi writes the id of a call: that of the call, and that of the item behind it."""


def responses_list(
    messages: Iterable[Said],
    left: Leftovers,
    *,
    is_complete: bool = False,
    is_sent: bool = False,
    account: str | None = None,
) -> list[JsonObject]:
    """Return messages of ours as Responses items, every call with an output.

    If it is to be ``is_complete``, with the fields that OpenAI's types ask for and our messages do not have; if it
    ``is_sent``, without ids that bind an item to reasoning which is not in it.

    Reasoning goes out where OpenAI gave it, as the item that came; where it does not, no id binds an item to it.
    Outputs stay in place: the format does not ask for them right behind the calls. A compaction of OpenAI's own,
    for ``account``, goes out as it came. Cost: O(messages).
    """
    items: list[JsonObject] = []
    called: dict[str, str] = {}
    is_reasoned = False
    spoken = speakers_only(messages, left, also=_OPENAI_RESPONSES_ALSO, provider="openai", account=account)
    for message in answered(spoken, left, in_place=True):
        left.at = message.entry_id
        printed: list[JsonObject] = []
        for item in _openai_responses_printed(message, left):
            plain = _without_pi_id(item) if "call_id" in item else item
            if not is_complete or _is_taken(plain, left):
                printed.append(plain)
        if message.has_lost:
            bare = [
                openai_responses.without_its_reasoning(item, f"msg_{number}")
                for number, item in enumerate(printed, len(items))
            ]
            if bare != printed:
                left.change("ids by which the API would look for reasoning that is left out are left out, too")
            printed = bare
        elif is_sent and message.role == "assistant":
            is_reasoned = _turn_is_reasoned(printed, left, is_reasoned=is_reasoned)
        elif message.role != "toolResult":
            is_reasoned = False
        stays = (
            not is_complete
            or openai_responses.EXTRA in message.extra
            or COMPACTION_PART in [item.get("type") for item in printed]
        )
        for item in printed:
            whole = item if stays else openai_responses.completed(item, f"msg_{len(items)}")
            items.append(_paired(whole, called, message) if "call_id" in whole else whole)
    left.at = None
    return items


def _turn_is_reasoned(items: list[JsonObject], left: Leftovers, *, is_reasoned: bool) -> bool:
    """Return whether reasoning of the turn has been sent behind some items; take off ids, in place, where none is.

    By the id of an item that its model made, the API looks for the reasoning that stood before it, and refuses it
    without: compacted lists have such items, and stores that keep no reasoning.
    """
    for at, item in enumerate(items):
        kind = item.get("type")
        if kind == "reasoning" or (is_reasoned and kind == COMPACTION_PART):
            is_reasoned = kind == "reasoning"
        elif "id" in item and not is_reasoned and kind in _BOUND:
            items[at] = without(item, "id")
            left.change("ids by which the API would look for reasoning that is not sent are left out")
    return is_reasoned


def _openai_responses_printed(message: Said, left: Leftovers) -> list[JsonObject]:
    if openai_responses.EXTRA not in message.extra:
        return openai_responses.printed_items(message.message, Leftovers() if message.is_made_up else left)
    printed = openai_responses.printed_items(message.message, Leftovers())
    return [restored(printed[0] if len(printed) == 1 else {}, message.extra[openai_responses.EXTRA])]


def _is_taken(item: JsonObject, left: Leftovers) -> bool:
    kind = kind_of(item)
    if kind == "message":
        return True
    if kind == COMPACTION_PART and not holds_compaction(item):
        left.note("a compaction that holds nothing", item)
        return False
    if kind and not is_known(kind):
        left.note(f"an item {kind!r}, which is none of this form", item)
        return False
    return True


def _without_pi_id(item: JsonObject) -> JsonObject:
    """Return an item with the id of its call alone, where pi has put the id of the item behind it."""
    call_id = item.get("call_id")
    both = PI_ID.fullmatch(call_id) if isinstance(call_id, str) else None
    if both is None:
        return item
    is_call = str(item.get("type")).endswith("_call")
    return {**item, "call_id": both[1], **({"id": both[2]} if is_call else {})}


def _paired(item: JsonObject, called: dict[str, str], message: Said) -> JsonObject:
    """Return an item; an output that was made up in the form for its call. ``called`` are the calls before it."""
    kind, call_id = item.get("type"), item.get("call_id")
    if not isinstance(call_id, str):
        return item
    if not message.is_made_up:
        if isinstance(kind, str) and kind.endswith("_call"):
            called[call_id] = kind
        return item
    if called.get(call_id) == openai_responses.TOOL_SEARCH_CALL:
        search: JsonObject = {"status": "completed", "execution": "client", "tools": []}
        return {"type": openai_responses.TOOL_SEARCH_OUTPUT, "call_id": call_id, **search}
    return {**item, "type": "custom_tool_call_output"} if called.get(call_id) == "custom_tool_call" else item
