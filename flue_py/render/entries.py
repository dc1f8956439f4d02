"""One entry as a line: what it is, and the beginning of what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice

from flue_py.core.entries import Entry
from flue_py.core.exclusions import Exclusion
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.kinds import BRANCH_SUMMARY, COMPACTION, CUSTOM_MESSAGE, MESSAGE, kind_of
from flue_py.core.spoken import message_text
from flue_py.core.turns import begins_turn
from flue_py.core.usage import picodollars_to_usd
from flue_py.render.lines import UNICODE, Glyphs, Line, Span, cells, clip, one_line, padded, short_count

STYLES: Mapping[str, str] = {
    "user": "bold cyan",
    "assistant": "green",
    "toolResult": "dim",
    "bashExecution": "magenta",
    COMPACTION: "bold yellow",
    BRANCH_SUMMARY: "yellow",
    CUSTOM_MESSAGE: "cyan",
}
_DEEPEST = 3
_MOST_FACTS = 20
SIZE_WIDTH = 5
COST_WIDTH = 9
NAME_WIDTH = 9
_ROLE_WORDS: Mapping[str, str] = {
    "toolResult": "result",
    "bashExecution": "shell",
}


@frozen
class Cost:
    """What calls cost, in picodollars. ``is_partial`` says that some of them have no known cost."""

    picodollars: int
    is_partial: bool = False


@frozen
class Look:
    """How entries are shown: the width in cells, the signs, and by entry id how many tokens each takes, its label,
    what its line cost (lines without calls are left out), and what the branch that ends with it cost. If
    ``sizes_counted`` is False, sizes are estimates, marked with ``~``. If ``cuts`` is False, no text is cut to fit."""

    width: int = 80
    sizes: Mapping[str, int] | None = None
    labels: Mapping[str, str] | None = None
    glyphs: Glyphs = UNICODE
    costs: Mapping[str, Cost] | None = None
    branch_costs: Mapping[str, Cost] | None = None
    sizes_counted: bool = True
    masked: Callable[[str], str] = str
    """Takes out of a text what is not to be shown, before it is cut."""
    cuts: bool = True

    def fit(self, text: str, room: int) -> str:
        """Return a text that takes at most ``room`` cells, or whole if nothing is cut."""
        return clip(text, room, self.glyphs.cut) if self.cuts else text

    def size_text(self, size: int | None) -> str:
        """Return a size in at most `SIZE_WIDTH` characters; "" if there is none."""
        if size is None:
            return ""
        return short_count(size) if self.sizes_counted else f"~{short_count(size)}"


def cost_text(cost: Cost) -> str:
    """Return a cost in dollars, in at most eight characters up to a million; a dash where none is known.

    A plus means "at least": some calls have no known cost.
    """
    if cost.is_partial and not cost.picodollars:
        return "-"
    dollars = picodollars_to_usd(cost.picodollars)
    if dollars >= 100:
        text = f"{dollars:,.0f}"
    elif dollars >= 1 or not dollars:
        text = f"{dollars:.2f}"
    else:
        text = f"{dollars:.4f}" if dollars >= Decimal("0.0001") else "<0.0001"
    return text + "+" * cost.is_partial


def entry_name(entry: Entry) -> Span:
    """Return a word for the kind of an entry, of at least `NAME_WIDTH` cells, with its style."""
    name = entry.role or entry.kind if entry.kind == MESSAGE else entry.kind
    word = _ROLE_WORDS.get(name) or kind_of(name).word or name
    return padded(one_line(word, 24), NAME_WIDTH), STYLES.get(name, "blue")


def exclusion_text(exclusion: Exclusion) -> str:
    """Return what lists say of an entry that is excluded, or a part of which is."""
    return "excluded" if exclusion.part is None else f"part {exclusion.part} excluded"


def entry_text(entry: Entry) -> str:
    """Return the beginning of what an entry says, as one line."""
    value = entry.data
    fields: JsonObject = value if isinstance(value, dict) else {}
    kind = kind_of(entry.kind)
    if kind.says == "message":
        text = _message_line(entry.role, fields)
    elif kind.says == "content":
        text = message_text(fields)
    elif kind.line_from:
        text = str(fields.get(kind.line_from, "")) or _left_out(fields.get("details"))
    elif entry.kind == "model_change":
        text = f"{fields.get('provider')}/{fields.get('modelId')}"
    elif entry.kind == "label":
        text = f"{fields.get('label') or '(cleared)'} on {fields.get('targetId')}"
    else:
        text = ", ".join(_facts(value)) or encode_json(value, "payload")[0]
    return one_line(text)


def _left_out(details: JsonValue) -> str:
    """Return what a compaction says that left messages out, and has no summary; "" for any other entry."""
    dropped = details.get("dropped") if isinstance(details, dict) else None
    return f"{dropped.get('messages')} messages are left out" if isinstance(dropped, dict) else ""


def _facts(value: JsonValue, name: str = "", depth: int = 0) -> Iterator[str]:
    """Yield what an object says as ``name: value``, objects in it included; lists and what lies deeper as JSON."""
    if isinstance(value, dict) and depth < _DEEPEST:
        for key, part in islice(value.items(), _MOST_FACTS):
            yield from _facts(part, key, depth + 1)
    elif name and value not in (None, "", [], {}):
        yield f"{name}: {value if isinstance(value, str) else encode_json(value, name)[0]}"


def _message_line(role: str | None, message: JsonObject) -> str:
    if role == "bashExecution":
        return f"! {message.get('command')}"
    text = message_text(message)
    if role == "toolResult":
        name = message.get("toolName")
        marks = [str(name)] if isinstance(name, str) else []
        marks += ["failed"] if message.get("isError") is True else []
        return f"[{', '.join(marks)}] {text}" if marks else text
    if text.strip():
        return text
    parts = message.get("content")
    calls = [_call_line(part) for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "; ".join(call for call in calls if call) or str(message.get("errorMessage") or "(nothing said)")


def _call_line(part: Mapping[str, JsonValue]) -> str:
    if part.get("type") == "thinking":
        return f"(thinks) {part.get('thinking')}"
    if part.get("type") != "toolCall":
        return f"({part.get('type')})"
    arguments = part.get("arguments")
    first = _main_argument(arguments) if isinstance(arguments, dict) else arguments
    return f"-> {part.get('name')}({first if isinstance(first, str) else encode_json(first, 'arguments')[0]})"


_MAIN_ARGUMENTS = ("file_path", "path", "command", "cmd", "pattern", "query", "url", "prompt", "description")


def _main_argument(arguments: JsonObject) -> JsonValue:
    """Return the argument that says most about a call: one of a common name, else the first text, else the first."""
    named = [arguments[name] for name in _MAIN_ARGUMENTS if arguments.get(name)]
    texts = [value for value in arguments.values() if isinstance(value, str)]
    return next(iter([*named, *texts, *arguments.values()]), "")


def entry_line(
    entry: Entry,
    short_id: str,
    look: Look,
    *,
    before: Span = ("", ""),
    guide: Span = ("", ""),
    is_leaf: bool = False,
    marks: Sequence[Span] = (),
    is_faint: bool = False,
) -> Line:
    """Return an entry as a line of ``look.width`` cells: id, ``before`` (its place), what it is and says, size, cost.

    ``guide`` leads to its place; ``marks`` follow what it says, behind its label and the sign of the leaf.
    """
    label = (look.labels or {}).get(entry.id)
    said: list[Span] = []
    if label:
        said.append((f" [{look.fit(one_line(look.masked(label)), 20)}]", "bold magenta"))
    if is_leaf:
        said.append((f" {look.glyphs.leaf}", "bold green"))
    first: tuple[Span, ...] = ((short_id, "dim"), (" ", ""), guide, before, entry_name(entry), (" ", ""))
    return laid_out(
        first,
        look.masked(entry_text(entry)),
        [*said, *marks],
        look,
        (look.sizes or {}).get(entry.id),
        (look.costs or {}).get(entry.id),
        is_faint=is_faint,
    )


def laid_out(
    first: Sequence[Span],
    text: str,
    marks: Sequence[Span],
    look: Look,
    size: int | None,
    cost: Cost | None,
    *,
    is_faint: bool = False,
) -> Line:
    """Return a line of ``look.width`` cells: ``first``, as much of the text as fits, marks, size, cost (if any is)."""
    numbers = padded(look.size_text(size), SIZE_WIDTH, right=True)
    if look.costs is not None:
        numbers += padded("" if cost is None else cost_text(cost), COST_WIDTH, right=True)
    taken = sum(cells(part) for part, _ in (*first, *marks)) + 1 + len(numbers)
    room = max(8, look.width - taken)
    shown = look.fit(text, room)
    filler = " " * max(0, room - cells(shown))
    return (*first, (shown, "dim" if is_faint else ""), *marks, (filler + " ", ""), (numbers, "dim"))


def fold_line(entries: Sequence[Entry], short_id_width: int, look: Look, *, before: Span = ("", "")) -> Line:
    """Return a line in place of a run of entries: how many there are, how many turns, how many tokens."""
    turns = sum(map(begins_turn, entries))
    text = f"{len(entries):,} entries" + (f", {turns:,} turn{'s' * (turns != 1)}" if turns else "")
    sizes = look.sizes or {}
    size = look.size_text(None if look.sizes is None else sum(sizes.get(entry.id, 0) for entry in entries))
    taken = short_id_width + 1 + cells(before[0]) + cells(text)
    filler = " " * max(0, look.width - taken - SIZE_WIDTH)
    return (
        (" " * (short_id_width + 1), ""),
        before,
        (text, "dim italic"),
        (filler, ""),
        (padded(size, SIZE_WIDTH, right=True), "dim"),
    )
