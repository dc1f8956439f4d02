"""Mode ``lossless``: where things stand, by evidence: the state, contracts evaluated now, the latest results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from inspect import isawaitable
from typing import TypeAlias

from flue_py.compaction.blocks.around import Around
from flue_py.compaction.blocks.words import words_set_aside
from flue_py.compaction.material import Material
from flue_py.compaction.modes.dressing import dressed, earlier_text, entries_named, shortened
from flue_py.compaction.modes.listing import (
    LABEL_CHARS,
    MARKS,
    MOST_OPERATIONS,
    NO_CALLS,
    NOT_ASKED,
    below_warning,
    listed_none,
    warned,
    warnings,
)
from flue_py.compaction.modes.llm import Llm
from flue_py.compaction.modes.protocol import Asker, Made, Mode
from flue_py.compaction.operations import ERROR_CHARS, Operation, Operations, gathered
from flue_py.compaction.quoting import quoted, shown_id, without_tags
from flue_py.core.frozen import frozen

HEADING = "[CONTEXT RECONSTRUCTION — derived from durable evidence, not summarised by LLM]"
MOST_EVIDENCE = 20
MOST_TOKENS = 4_000
"""What the evidence takes in a large window; in a small one no more than an eighth of it."""
_WINDOW_PART = 8
_REASON_CHARS = 400

State: TypeAlias = str | Callable[[], str | None] | None
"""Where a state machine stands, or what returns it; None where there is none."""

Verdict: TypeAlias = bool | str | None
"""What a contract says: True or None if it holds; False, or the reason as a text, if it does not."""

Contract: TypeAlias = Callable[[], Verdict | Awaitable[Verdict]]


@frozen
class Lossless:
    """Says what is known for sure: ``state``, ``contracts`` by name, which are called now, and the latest results.

    A contract that raises has failed, for the reason that it raised. Where there is none of the three, ``instead``
    makes the text if it can, and otherwise the mode ``intent``.
    """

    state: State = None
    contracts: Mapping[str, Contract] = field(default_factory=dict)
    around: Around = Around()
    instead: Mode = Llm()

    @property
    def name(self) -> str:
        """What it is chosen by."""
        return "lossless"

    @property
    def needs_model(self) -> bool:
        """No: it asks one only in place of having no evidence at all."""
        return False

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return what is known for sure, behind what earlier compactions of other modes said. O(messages)."""
        found = gathered(material, MOST_OPERATIONS)
        state = self.state() if callable(self.state) else self.state
        if not found.listed and not state and not self.contracts:
            why = "there is no state, no contract and no evidence"
            left, can = below_warning(material, self.name, why), asker is not None or not self.instead.needs_model
            made = await self.instead.make(left, asker) if can else listed_none(left, self.around, NO_CALLS + NOT_ASKED)
            return warned(made, self.name, why)
        material = words_set_aside(material)
        inherited = shortened(material, earlier_text(material, self.name))
        evidence = await self.evidence(material.beside(inherited), found, state)
        own = "\n\n".join(filter(None, [inherited, evidence]))
        return dressed(
            material, self.name, own, around=self.around, calls=False, inherited=inherited, details=found.details
        )

    async def evidence(self, material: Material, found: Operations, state: str | None) -> str:
        """Return the text itself, without what came before it and is put around it."""
        parts = [HEADING]
        if state:
            parts.append(f"STATE MACHINE POSITION:\n  {quoted(state, _REASON_CHARS)}")
        if self.contracts:
            parts.append("\n".join(["CONTRACT STATUS:", *await self._verdicts()]))
        where = f" The state is {quoted(state, _REASON_CHARS)}." if state else ""
        where += " Satisfy all ✗ contracts before going on." if "\n  ✗ " in parts[-1] else ""
        resumption = (
            f"RESUMPTION NOTE: go on from the evidence above.{where} The originals are stored: "
            f"{entries_named(material)}."
        )
        left = material.beside("\n\n".join([*parts, resumption]))
        if found.listed:
            parts.append("\n".join(["RECENT EVIDENCE (newest first):", *_newest(left, found)]))
            parts.append("\n".join(warnings(left.beside(parts[-1]), found)))
        return "\n\n".join(filter(None, [*parts, resumption]))

    async def _verdicts(self) -> list[str]:
        """Return a line for each contract: those that hold, then those that do not with their reason."""
        passed, failed = [], []
        for name, contract in self.contracts.items():
            reason = await _reason(contract)
            if reason is None:
                passed.append(f"  ✓ {name}")
            else:
                failed.append(f"  ✗ {name}\n    Reason: {quoted(reason, _REASON_CHARS)}")
        return [*passed, *failed]


async def _reason(contract: Contract) -> str | None:
    """Return why a contract does not hold; None if it does."""
    try:
        verdict = contract()
        said = await verdict if isawaitable(verdict) else verdict
    except Exception as error:  # noqa: BLE001 - a contract of the caller's; that it raises is the finding
        return str(error) or type(error).__name__
    if said is None or said is True:
        return None
    return said if isinstance(said, str) and said else "it does not hold"


def _newest(material: Material, found: Operations) -> list[str]:
    lines: list[str] = []
    left = material.half().at_most(MOST_TOKENS, _WINDOW_PART)
    for operation in reversed(found.listed[-MOST_EVIDENCE:]):
        line = _evidence(operation)
        tokens = material.tokens_of(line)
        if tokens > left:
            # The last thing that was done is told in any case, in a window however small.
            lines += [] if lines else [line.partition("\n")[0]]
            break
        left -= tokens
        lines.append(line)
    return lines


def _evidence(operation: Operation) -> str:
    label, entry_id = quoted(operation.label, LABEL_CHARS), shown_id(operation.entry_id)
    agent = quoted(operation.agent, LABEL_CHARS)
    line = f"  {MARKS[operation.status]} {label} (turn {operation.turn}, {agent}, entry {entry_id})"
    output = without_tags(operation.error).strip()[:ERROR_CHARS]
    return line + "".join(f"\n      {each}" for each in output.splitlines()) if output else line
