"""What a provider would refuse of a context as it is: each message in the provider's form, and none of it repaired."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from flue_py.core.faithful import SYSTEM
from flue_py.core.frozen import changed, frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.shapes import Shape
from flue_py.wire.conversion import to_provider
from flue_py.wire.leftovers import Leftovers, Repair
from flue_py.wire.lists.anthropic import anthropic_list
from flue_py.wire.lists.gemini import gemini_list
from flue_py.wire.lists.said import Said, SystemApart, last_model, speakers_only
from flue_py.wire.rules import Broken, broken_rules, checked_target, limits_of

_PLACE = re.compile(r"\w+\[(\d+)\]")


@frozen
class Validity:
    """Whether a provider takes a context as it is, and what makes a request of it that is taken.

    ``broken`` is where the context breaks the rules of the target as it is, each with the entry behind it where it is
    about one message; ``repairs`` are what a request leaves out or changes; ``left`` is what the request breaks all the
    same, () if it breaks no rule that is known.
    """

    target: Shape
    broken: tuple[Broken, ...]
    repairs: tuple[Repair, ...]
    left: tuple[Broken, ...]

    @property
    def is_valid(self) -> bool:
        """Whether the context breaks no rule as it is.

        There may be repairs all the same: what a form has no place for is left out, and so is reasoning that another
        model gave or that was produced under another beginning, which no rule can see.
        """
        return not self.broken


class _Form(NamedTuple):
    """Where a provider has what the system said and what makes a message, and whose own compactions it takes."""

    system: Callable[[Iterable[Said], Leftovers], SystemApart] | None = None
    content: str | None = None
    provider: str | None = None


_FORMS: Mapping[Shape, _Form] = {
    "anthropic": _Form(anthropic_list, "content", "anthropic"),
    "openai-chat": _Form(),
    "openai-responses": _Form(provider="openai"),
    "gemini": _Form(gemini_list, "parts"),
}


def broken_as_it_is(
    target: str, said: Iterable[Said], *, account: str | None = None, model: str | None = None
) -> tuple[Broken, ...]:
    """Return where a context breaks the rules of a target if nothing of it is repaired, () if it breaks none.

    Each message is put into the provider's form for itself, as `to_provider` does, what the system says first beside
    the list where a request has it there; results of tools that follow each other are one message of the user with what
    the user says behind them. The limits are those of ``model``, by default that of the last answer. Raises
    `InvalidArgument` for a target that is none. O(size).
    """
    name, said = checked_target(target), [*said]
    form = _FORMS[name]
    spoken = speakers_only(said, Leftovers(), also=SYSTEM, provider=form.provider, account=account)
    apart = _first_of_system(spoken) if form.system else 0
    told = form.system(spoken[:apart], Leftovers()).system if form.system else None
    messages, entry_ids = _printed(name, spoken[apart:], form)
    limits = limits_of(name, model or last_model(said))
    return tuple(_with_entry(each, entry_ids) for each in broken_rules(name, messages, told, limits=limits))


def _first_of_system(said: Sequence[Said]) -> int:
    return next((at for at, each in enumerate(said) if each.role not in SYSTEM), len(said))


def _printed(target: Shape, said: Sequence[Said], form: _Form) -> tuple[list[JsonObject], list[str | None]]:
    """Return the messages, and the entry behind each."""
    messages: list[JsonObject] = []
    entry_ids: list[str | None] = []
    before: JsonValue = None
    for each in said:
        is_one = form.content is not None and before == "toolResult" and each.role in ("toolResult", "user")
        for printed in to_provider(each.message, target, each.extra).messages:
            if is_one and messages and form.content:
                whole = [*_listed(messages[-1].get(form.content)), *_listed(printed.get(form.content))]
                messages[-1] = {**messages[-1], form.content: whole}
            else:
                messages.append(printed)
                entry_ids.append(each.entry_id)
        before = each.role
    return messages, entry_ids


def _listed(content: JsonValue) -> list[JsonValue]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _with_entry(broken: Broken, entry_ids: Sequence[str | None]) -> Broken:
    """Return where a rule is broken with the entry of the message that the path names."""
    found = _PLACE.match(broken.where)
    is_known = found is not None and not broken.where.startswith("system") and int(found[1]) < len(entry_ids)
    return changed(broken, entry_id=entry_ids[int(found[1])]) if is_known and found else broken
