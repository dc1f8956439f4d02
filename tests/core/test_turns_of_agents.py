"""What a turn is: one table, which compactions, windows, transcripts and charts go by."""

from __future__ import annotations

from flue_py.core.context import Turns, last_turns, part_in, turn_numbers
from flue_py.core.json import JsonObject

SAID: dict[str, JsonObject] = {
    "u": {"role": "user", "content": "go on"},
    "p": {"role": "user", "content": "<system-reminder>be brief</system-reminder>"},
    "r": {"role": "toolResult", "toolCallId": "c", "content": []},
    "a": {"role": "assistant", "content": "done"},
    "A": {"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "read", "arguments": {}}]},
}
SAID |= {"d": {**SAID["a"], "agent": "Dev"}, "D": {**SAID["A"], "agentName": "DEV"}, "v": {**SAID["a"], "agent": "Rev"}}

TABLE = {
    # what is said: the turn of each message, how many have ended, where the last turn begins
    "": ([], 0, 0),
    "u": ([1], 0, 0),
    "uArAra": ([1, 1, 1, 1, 1, 1], 1, 0),
    "uArAr": ([1, 1, 1, 1, 1], 0, 0),
    "uaua": ([1, 1, 2, 2], 2, 2),
    "uauu": ([1, 1, 2, 2], 1, 0),
    "aa": ([1, 2], 2, 1),
    "uAruAra": ([1, 1, 1, 2, 2, 2, 2], 2, 3),
    "uArpAra": ([1, 1, 1, 1, 1, 1, 1], 1, 0),
    "uapa": ([1, 1, 2, 2], 2, 2),
    "uDrdvu": ([1, 1, 1, 1, 2, 3], 2, 4),
    "uDrvu": ([1, 1, 1, 2, 3], 2, 3),
    "uDrara": ([1, 1, 1, 1, 1, 2], 2, 5),
    "uArd": ([1, 1, 1, 1], 1, 0),
}


def test_a_turn_is_of_one_agent_until_it_calls_nothing_or_somebody_else_speaks() -> None:
    wrong = []
    for said, expected in TABLE.items():
        parts = [part_in(SAID[each]) for each in said]
        counter = Turns()
        for part in parts:
            counter.add(part)
        found = (turn_numbers(parts), counter.ended, last_turns(parts, 1))
        if found != expected:
            wrong.append((said, found, expected))
    assert wrong == []
