"""What the agent did, as a list of the stored calls of tools, and lines that warn above and below it."""

from __future__ import annotations

from flue_py.compaction.blocks.around import Around
from flue_py.compaction.blocks.open_work import ID_CHARS
from flue_py.compaction.blocks.words import words_set_aside
from flue_py.compaction.material import Material
from flue_py.compaction.modes.dressing import SPANS, covers, dressed, earlier_text, entries_named, shortened
from flue_py.compaction.modes.protocol import Made
from flue_py.compaction.operations import Operation, Operations, gathered
from flue_py.compaction.quoting import quoted, shown_id
from flue_py.compaction.serialize import appended_file_lists, listed_files

INTENT = "intent"
NO_CALLS = "nothing in it calls a tool"
NOT_ASKED = ", and no model was asked"
MARKS = {"done": "✓", "failed": "✗", "pending": "⧖"}
HEADING = "INTENT-DERIVED RECONSTRUCTION"
MOST_OPERATIONS = 500
MOST_WARNINGS = 20
_WARNING_TOKENS = 4_000
_WINDOW_PART = 8
LABEL_CHARS = 300
"""More than the name of a tool and what it was called on take."""
_ERROR_CHARS = 160
LIST_TOKENS = 4_000
"""What the list of operations takes at most, in a window however large."""


def listed(material: Material, around: Around, max_tokens: int = LIST_TOKENS) -> Made:
    """Return the text of mode ``intent``: the list, behind what earlier compactions of other modes said."""
    material = words_set_aside(material)
    inherited = shortened(material, earlier_text(material, INTENT))
    left = material.beside(inherited).beside(covers(material, 1, HEADING)).beside(_resumption(material))
    found, lines = _fitting(left, left.half().at_most(max_tokens, _WINDOW_PART))
    parts = [covers(material, found.first_turn, HEADING), _operations(found, lines)]
    parts += ["\n".join(warnings(left.beside(parts[-1]), found))]
    parts.append(_resumption(material))
    own = "\n\n".join(filter(None, [inherited, *parts]))
    return dressed(material, INTENT, own, around=around, calls=False, inherited=inherited, details=found.details)


def listed_none(material: Material, around: Around, why: str) -> Made:
    """Return the text of mode ``intent`` without any operation, below a line that says why."""
    note = f"{why}; the list of operations is empty"
    line = f"[COMPACTION WARNING: {note}]\n\n"
    return below(listed(material.beside(line), around), line, note)


def below_warning(material: Material, wanted: str, reason: str) -> Material:
    """Return it with the room that is left below the line that `warned` puts before a text."""
    return material.beside(_warning(wanted, reason, "a mode by another name"))


def _warning(wanted: str, reason: str, used: str) -> str:
    return f"[COMPACTION WARNING: {wanted!r} mode was requested but {reason}; {used!r} was used]\n\n"


def warned(made: Made, wanted: str, reason: str) -> Made:
    """Return what another mode made, with a first line and a note that say which mode was asked for, and why not."""
    note = f"mode {wanted!r} was requested but {reason}; {made.mode!r} was used"
    return below(made, _warning(wanted, reason, made.mode), note)


def below(made: Made, line: str, note: str) -> Made:
    """Return what was made below a line, with a note."""
    details = dict(made.details)
    spans = {name: details[name] for name in SPANS if isinstance(details.get(name), list)}
    for name, span in spans.items():
        assert isinstance(span, list)
        details[name] = [at + len(line) for at in span if isinstance(at, int)]
    if "own" not in details:
        lists = appended_file_lists(listed_files(made.details))
        details["own"] = [len(line), len(line) + len(made.text.removesuffix(lists))]
    return Made(line + made.text, made.mode, details, (note, *made.notes))


def _fitting(material: Material, most: int) -> tuple[Operations, list[str]]:
    """Return the operations whose lines take at most so many tokens, the newest of them, and their lines."""
    lines: list[str] = []
    left = most

    def fits(operation: Operation) -> bool:
        nonlocal left
        line = operation_line(operation)
        left -= material.tokens_of(line)
        if left >= 0:
            lines.append(line)
        return left >= 0

    return gathered(material, MOST_OPERATIONS, fits), lines[::-1]


def operation_line(operation: Operation) -> str:
    """Return an operation as a line; the entry is named where somebody may want to look at it."""
    # Those that were carried on are as they were stored, perhaps by another program.
    error = f" — {quoted(operation.error, _ERROR_CHARS)}" if operation.error.strip() else ""
    where = "" if operation.status == "done" else f" [{_where(operation)}]"
    mark, label = MARKS[operation.status], quoted(operation.label, LABEL_CHARS)
    return f"  {mark} {label}{error} (turn {operation.turn}, {quoted(operation.agent, LABEL_CHARS)}){where}"


def _where(operation: Operation) -> str:
    """Return the entry of an operation, and the id of its call where that is still to be answered."""
    entry = f"entry {shown_id(operation.entry_id)}"
    is_named = operation.status == "pending" and operation.call_id
    return f"{entry}, call {quoted(operation.call_id, ID_CHARS)}" if is_named else entry


def _operations(found: Operations, lines: list[str]) -> str:
    heading = ["OPERATIONS (chronological):"]
    if any(found.folded):
        counts = ", ".join(f"{n} {mark}" for n, mark in zip(found.folded, MARKS.values(), strict=True) if n)
        heading.append(f"  ({sum(found.folded)} earlier operations are not listed: {counts})")
    if not lines and not any(found.folded):
        heading.append("  (no tracked tool calls recorded in this range)")
    return "\n".join([*heading, *lines])


def warnings(material: Material, found: Operations) -> list[str]:
    """Return a line for each listed operation without a result, the newest `MOST_WARNINGS` of them that fit."""
    pending = [operation for operation in found.listed if operation.status == "pending"][-MOST_WARNINGS:]
    lines = [
        f"WARNING: {quoted(operation.label, LABEL_CHARS)} (turn {operation.turn}, {_where(operation)}) "
        "has no recorded result; "
        "it may or may not have taken effect. Check before repeating it."
        for operation in pending
    ]
    left = material.at_most(_WARNING_TOKENS, _WINDOW_PART)
    for at in range(len(lines) - 1, -1, -1):
        left -= material.tokens_of(lines[at])
        if left < 0:
            return lines[at + 1 :]
    return lines


def _resumption(material: Material) -> str:
    return (
        "RESUMPTION NOTE: this was made from the stored record of tool calls, not by a model. What is marked ✓ is done "
        "and need not be repeated; what is marked ✗ failed and should be retried. "
        f"The originals are stored: {entries_named(material)}."
    )
