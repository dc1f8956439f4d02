"""Tool calls and their results: which result answers which call, and what therefore belongs together.

One rule, for exclusions, pins, picks, compaction cuts, transcripts and exports. A result belongs to the latest message
before it that calls a tool by its id, however many messages lie between. The first result of a call is its answer; a
further one repeats it, and is never in a context without the call. Where one message calls twice by the same id, the
first result answers the first call. An id that a later message uses again is another call. A result that comes before
every call of its id answers nothing.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import NamedTuple

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import MESSAGE


def tool_calls(message: Mapping[str, JsonValue]) -> list[JsonObject]:
    """Return the tool calls that an assistant message makes, in order; none for any other message."""
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, dict) and part.get("type") == "toolCall"]


def called_ids(message: Mapping[str, JsonValue]) -> list[str]:
    """Return the ids of the tool calls of a message, in order."""
    return [call_id for call in tool_calls(message) if isinstance(call_id := call.get("id"), str)]


def answered_id(message: Mapping[str, JsonValue]) -> str | None:
    """Return the id of the tool call that a message is the result of; None for any other message."""
    call_id = message.get("toolCallId")
    return call_id if message.get("role") == "toolResult" and isinstance(call_id, str) else None


_SAID: Mapping[str | None, JsonObject] = {role: {"role": role} for role in ("user", "assistant")}
CALLS = '"toolCall"'
"""What the payload of a message has that calls a tool; so has another that says it."""
_ANSWERS = '"toolCallId":'
_ANSWERED = re.compile(r'"toolCallId":"([^"\\]+)"')


def undecoded_exchange(entry: Entry) -> JsonObject | None:
    """Return what `Pairing` reads of the message of an entry, where that can be told without decoding it; else None.

    That is so unless it calls a tool. In a text of JSON a quotation mark has a backslash before it, so that what looks
    like a field is one; of two fields of the name one belongs to something else. O(size), but a small part of it.
    """
    if entry.role == "toolResult":
        found = _ANSWERED.search(entry.payload) if entry.payload.count(_ANSWERS) == 1 else None
        return None if found is None else {"role": "toolResult", "toolCallId": found[1]}
    return None if entry.role == "assistant" and CALLS in entry.payload else _SAID.get(entry.role)


def exchange_of(entry: Entry) -> Mapping[str, JsonValue] | None:
    """Return what `Pairing` reads of an entry; None for one that is not a message. O(size)."""
    if entry.kind != MESSAGE:
        return None
    found = undecoded_exchange(entry)
    return entry.fields if found is None else found


class Call(NamedTuple):
    """A tool call in a list of messages: the index of its message, its place in the content, and its id."""

    at: int
    part: int
    id: str


@frozen
class ToolGroup:
    """A message with tool calls (``caller``) and the answer of each, by index: what is kept or left out as one.

    ``caller`` is None for a result that answers nothing. ``is_answered`` where every call has its answer; ``is_open``
    where one has none yet, and no later message of the user or the model says that none will come.
    """

    caller: int | None
    calls: Sequence[Call]
    answers: Mapping[Call, int]
    is_answered: bool
    is_open: bool
    members: Sequence[int]
    """The indices of all its messages, in order; a result that repeats an answer, only where it was asked for."""


class Pairing:
    """Which results answer which calls in a list of messages; None stands for an entry that is not a message.

    ``places`` are the indices of the messages, in order, where those are left out that neither call nor answer, and
    ``last_said`` is that of the last of these in which the user or the model says something, -1 for none.
    Cost: O(messages and their parts).
    """

    def __init__(
        self,
        messages: Iterable[Mapping[str, JsonValue] | None],
        places: Iterable[int] | None = None,
        last_said: int = -1,
    ) -> None:
        self.results: dict[Call, list[int]] = {}
        """Every call, in order, with the indices of its results: its answer first, then what repeats that."""
        self.parts: dict[Call, JsonObject] = {}
        """Every call, in order, with the part of its message that makes it."""
        self.unpaired: set[int] = set()
        """The results that answer no call in the list."""
        self._last_said = -1
        latest: dict[str, list[Call]] = {}
        for at, message in zip(count() if places is None else places, messages, strict=False):
            # Written out, since there may be ten thousand, most of which neither call nor answer.
            role = None if message is None else message.get("role")
            if message is None or role == "user":
                self._last_said = self._last_said if message is None else at
            elif role == "assistant":
                self._last_said = at
                if "content" in message:
                    self._read_calls(at, message["content"], latest)
            elif role == "toolResult":
                answered = message.get("toolCallId")
                if not isinstance(answered, str):
                    continue
                calls = latest.get(answered)
                if calls is None:
                    self.unpaired.add(at)
                elif len(calls) == 1:
                    self.results[calls[0]].append(at)
                else:
                    self.results[next((each for each in calls if not self.results[each]), calls[-1])].append(at)
        self._last_said = max(self._last_said, last_said)

    def _read_calls(self, at: int, content: JsonValue, latest: dict[str, list[Call]]) -> None:
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(part, dict) or part.get("type") != "toolCall":
                continue
            call_id = part.get("id")
            if not isinstance(call_id, str):
                continue
            call = Call(at, place, call_id)
            self.results[call] = []
            self.parts[call] = part
            same = latest.get(call_id)
            if same is not None and same[0].at == at:
                same.append(call)
            else:
                latest[call_id] = [call]

    @cached_property
    def _by_caller(self) -> dict[int, list[Call]]:
        found: dict[int, list[Call]] = {}
        for call in self.results:
            found.setdefault(call.at, []).append(call)
        return found

    @cached_property
    def _call_of(self) -> dict[int, Call]:
        return {at: call for call, results in self.results.items() for at in results}

    def results_of(self, at: int) -> dict[Call, list[int]]:
        """Return the calls that a message makes, in order, each with its results."""
        return {call: self.results[call] for call in self._by_caller.get(at, ())}

    def group_of(self, at: int) -> ToolGroup | None:
        """Return the group that a message belongs to; None for one that neither calls nor answers."""
        if at in self.unpaired:
            return ToolGroup(None, (), {}, False, False, (at,))
        caller = self._call_of[at].at if at in self._call_of else at
        calls = self._by_caller.get(caller)
        if calls is None:
            return None
        answers = {call: self.results[call][0] for call in calls if self.results[call]}
        is_answered = len(answers) == len(calls)
        is_open = not is_answered and self._last_said <= caller
        return ToolGroup(caller, calls, answers, is_answered, is_open, sorted({at, caller, *answers.values()}))

    def whole_cuts(self, cuts: Iterable[int], pinned: Container[int] = ()) -> list[int]:
        """Return those of some indices, given in order, that no call lies before and its result at or after.

        Groups whose caller is in ``pinned`` are kept wherever they are, and do not count.
        """
        ends = [
            (at, max(place for call in calls for place in (at, *self.results[call])))
            for at, calls in self._by_caller.items()
            if at not in pinned
        ]
        whole: list[int] = []
        reached, following = -1, 0
        for cut in cuts:
            while following < len(ends) and ends[following][0] < cut:
                reached = max(reached, ends[following][1])
                following += 1
            if reached < cut:
                whole.append(cut)
        return whole

    def whole_cut(self, at: int, pinned: Container[int] = ()) -> int:
        """Return the latest index up to ``at`` that no call lies before whose result lies at it or after, or may come.

        Groups whose caller is in ``pinned`` do not count, as in `whole_cuts`.
        """
        cut = at
        for caller, calls in reversed(self._by_caller.items()):
            if caller >= cut or caller in pinned:
                continue
            found = [result for call in calls for result in self.results[call]]
            is_open = self._last_said <= caller and any(not self.results[call] for call in calls)
            if is_open or max(found, default=-1) >= cut:
                cut = caller
        return cut


def tail_start(messages: Sequence[Mapping[str, JsonValue] | None], limit: int, *, is_all: bool) -> int | None:
    """Return where the last whole exchanges of a list begin, as an index, from the messages at its end.

    They are at most ``limit`` messages; or more, where the last exchange alone is longer, which then is all of them.
    None where that cannot be told from these messages: it needs ``limit`` of them, and the call of each result in
    doubt. If they are all of the list (``is_all``), it always can. O(messages and their parts).
    """
    pairing = Pairing(messages)
    lowest = max(len(messages) - limit, 0)
    # A result whose call is not among these messages may answer one before them.
    in_doubt = -1 if is_all else max(pairing.unpaired, default=-1)
    if not is_all and (len(messages) < limit or in_doubt >= lowest):
        return None
    whole = [cut for cut in pairing.whole_cuts(range(len(messages))) if cut > in_doubt]
    if not whole:
        return 0 if is_all else None
    return next((cut for cut in whole if cut >= lowest), whole[-1])


def is_whole_end(entries: Iterable[Entry]) -> bool:
    """Return whether no result among the last entries of a path can belong to a call before them.

    Only messages that call or answer are decoded. O(messages and their parts).
    """
    called: set[str | None] = set()
    for entry in entries:
        if entry.role == "assistant":
            if CALLS in entry.payload:
                called.update(called_ids(entry.fields))
        elif entry.role == "toolResult" and answered_id(entry.fields) not in called:
            return False
    return True


def messages_of(entries: Iterable[Entry]) -> list[JsonObject | None]:
    """Return the messages of entries, None for an entry that is not a message."""
    return [entry.fields if entry.kind == MESSAGE else None for entry in entries]


def group_ids(entries: Sequence[Entry], messages: Sequence[JsonObject | None], index: int) -> list[str]:
    """Return the ids of the entries that belong together with one of them; it alone where none does."""
    group = Pairing(messages).group_of(index)
    members: Sequence[int] = [index] if group is None else group.members
    return [entries[member].id for member in members]
