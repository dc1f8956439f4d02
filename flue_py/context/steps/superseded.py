"""Calls of tools that a later call has made worthless: repeated reads, overwritten files, commands run again."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from flue_py.context.items import Item
from flue_py.context.steps.content import text_length, text_parts, with_arguments
from flue_py.context.steps.notes import address, stubbed
from flue_py.context.steps.protocol import Over, View
from flue_py.context.steps.tools import ToolUse, path_of, plain_name, plain_names, tool_uses
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import encode_json

REPEATED = "[superseded by a later call with the same arguments]"
OVERWRITTEN = "[superseded by a later write of the same file]"
_EXIT = re.compile(r"\[EXIT (?:([^\]\n]{1,40})\])?")
"""How the result of a command begins that failed. What is too long to be a code is none."""


@frozen
class Superseded:
    """Puts a stub in place of the result of a call, and of its long arguments, that a later one repeats or overwrites.

    Calls of ``observing_tools`` with the same arguments, and writes of a file that a later call of ``write_tools``
    writes whole (``patch_tools`` overwrite nothing), are stubbed once that frees ``least_chars``; results of
    ``shell_tools`` for the same command always, by how they ended. A call supersedes if it has an answer that is no
    error.
    """

    least_chars: int
    observing_tools: tuple[str, ...]
    write_tools: tuple[str, ...]
    patch_tools: tuple[str, ...]
    shell_tools: tuple[str, ...]
    addresses: bool = True
    name: str = "superseded"
    reason: str = "a later call repeats or overwrites it"
    over: Over = "all"
    at_epochs: bool = True

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with stubs."""
        uses = tool_uses(items)
        working = {use.call for use in uses if any(items[at].message.get("isError") is not True for at in use.results)}
        whole, observing = plain_names(self.write_tools), plain_names(self.observing_tools)
        writing, shells = whole | plain_names(self.patch_tools), plain_names(self.shell_tools)

        def wins(use: ToolUse) -> bool:
            return use.call in working

        overwritten = _superseded(
            uses, lambda use: _path(use, writing), lambda use: wins(use) and plain_name(use.name) in whole
        )
        repeated = _superseded(uses, lambda use: _question(use, observing), wins)
        made = [*items]
        for group, note in ((overwritten, OVERWRITTEN), (repeated, REPEATED)):
            stubs = self._stubs(items, group, note, view)
            # A picture has no characters, and its stub has some.
            freed = sum(max(_length(items[at]) - _length(item), 0) for at, item in stubs.items())
            if freed >= self.least_chars:
                for at, item in stubs.items():
                    made[at] = item
        for use in _superseded(uses, lambda use: _command(use, shells), wins):
            for at in use.results:
                if made[at] is items[at]:
                    made[at] = stubbed(items[at], _outcome(items[at]), view, addresses=self.addresses)
        return made

    def _stubs(self, items: Sequence[Item], group: Sequence[ToolUse], note: str, view: View) -> dict[int, Item]:
        found: dict[int, Item] = {}
        for use in group:
            caller = found.get(use.call.at, items[use.call.at])
            text = note + address(caller, wanted=self.addresses)
            fewer = with_arguments(caller.message, use.call.part, partial(_instead, text), longer_than=len(text))
            if fewer is not None and not caller.is_pinned:
                found[use.call.at] = caller.replaced(fewer)
            found |= {at: stubbed(items[at], note, view, addresses=self.addresses) for at in use.results}
        return found


def _superseded(
    uses: Sequence[ToolUse], key_of: Callable[[ToolUse], Hashable], supersedes: Callable[[ToolUse], bool]
) -> list[ToolUse]:
    """Return the uses after which another one with the same key supersedes them; those without a key never are."""
    keys = [key_of(use) for use in uses]
    latest = {key: number for number, key in enumerate(keys) if key is not None and supersedes(uses[number])}
    return [use for number, (use, key) in enumerate(zip(uses, keys, strict=True)) if number < latest.get(key, -1)]


def _instead(text: str, _: str) -> str:
    return text


def _path(use: ToolUse, tools: frozenset[str]) -> Hashable:
    path = path_of(use.arguments)
    return path.casefold() if path and plain_name(use.name) in tools else None


def _question(use: ToolUse, tools: frozenset[str]) -> Hashable:
    if plain_name(use.name) not in tools:
        return None
    arguments = {name: use.arguments[name] for name in sorted(use.arguments)}
    return plain_name(use.name), encode_json(arguments, "arguments")[0]


def _command(use: ToolUse, tools: frozenset[str]) -> Hashable:
    command = use.arguments.get("command")
    if plain_name(use.name) not in tools or not isinstance(command, str):
        return None
    return command.strip(), str(use.arguments.get("workingDirectory") or "")


def _outcome(item: Item) -> str:
    """Return how a command ended, which its result begins with where it failed."""
    text = "".join(text_parts(item.message))
    code = _EXIT.match(text)
    if code is None or code[1] == "0":
        return "failed" if item.message.get("isError") is True else "succeeded"
    return f"failed {code[0]}" if code[1] else "failed"


def _length(item: Item) -> int:
    arguments = [call.get("arguments") for call in item.calls]
    return text_length(item.message) + sum(len(encode_json(each, "arguments")[0]) for each in arguments)
