"""The steps of settings over messages that are in no session: those that a framework is about to send."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

from flue_py.context.answered import SentRequests
from flue_py.context.choosing import steps_of
from flue_py.context.counters import counter_for
from flue_py.context.epochs import EpochRules
from flue_py.context.items import Item
from flue_py.context.pipeline import run_steps
from flue_py.context.settings import ContextSettings, context_settings
from flue_py.context.steps.protocol import View
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject, encode_json
from flue_py.core.kinds import MESSAGE
from flue_py.core.projection import ContextEntry
from flue_py.errors import InvalidArgument


class Reshaped(NamedTuple):
    """What goes on of one group of messages: which group (None for a message that a step added), and what it is now.

    ``messages`` is None if it goes on as it was.
    """

    group: int | None
    messages: list[JsonObject] | None


class Reshaping:
    """Settings for an agent, to be run over messages of ours that are in no session.

    Notes have no address, since no store has the messages. Raises `InvalidArgument` naming each field that is wrong by
    its path, and for a ``spec``, which is read from a session.
    """

    def __init__(
        self, settings: ContextSettings | Mapping[str, object], agent: str | None = None, model: str | None = None
    ) -> None:
        chosen = context_settings(settings).of(agent)
        if chosen.spec is not None:
            raise InvalidArgument("spec: is read from a session, by Session.request; messages alone have no sources")
        self._epoch_tokens = chosen.epoch_tokens
        self.steps = steps_of(chosen.model_copy(update={"addresses": False}))
        self._agent = agent
        self._counter = counter_for(model)
        self._sent = None if chosen.keep_stale_reasoning else SentRequests()

    def run(self, groups: Sequence[Sequence[JsonObject]]) -> list[Reshaped]:
        """Return what goes on of groups of messages, in order: a group for each message of a framework.

        A group of no messages goes on as it is. Signed reasoning is left out if the request that it was the answer to
        went out from here with other messages before it, unless ``keep_stale_reasoning`` is set. O(size).
        """
        owner = [number for number, group in enumerate(groups) for _ in group]
        given = [*chain.from_iterable(groups)]
        view = View(self._agent, self._counter)
        context = [_entry(at, message) for at, message in enumerate(given)]
        items = run_steps(context, self.steps, view, rules=EpochRules(self._epoch_tokens)).items
        left = deque(items if self._sent is None else self._sent.without_stale(given, items))
        found: list[Reshaped] = []
        for number, group in enumerate(groups):
            own: list[Item] = []
            added: list[Item] = []
            while left and (left[0].place is None or owner[left[0].place] == number):
                item = left.popleft()
                if item.place is not None:
                    own.append(item)
                elif own:
                    added.append(item)
                else:
                    found.append(Reshaped(None, [item.message]))
            if len(own) == len(group) and all(item.how is None for item in own):
                found.append(Reshaped(number, None))
            elif own:
                found.append(Reshaped(number, [item.message for item in own]))
            found += [Reshaped(None, [item.message]) for item in added]
        return [*found, *(Reshaped(None, [item.message]) for item in left)]


def _entry(at: int, message: JsonObject) -> ContextEntry:
    payload = encode_json(message, f"messages[{at}]")[0]
    # What was counted is found again by the id, wherever the message stands then.
    name = blake2b(payload.encode(), digest_size=8).hexdigest()
    role = message.get("role")
    return ContextEntry(
        Entry(name, None, None, MESSAGE, role if isinstance(role, str) else None, None, at, at, 0, at, payload)
    )
