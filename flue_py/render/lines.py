"""Lines of styled text that fit a terminal: width in cells, clipping, columns, sizes."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from msgspec import field
from msgspec.structs import replace

from flue_py.core import kinds
from flue_py.core.context import begins_turn
from flue_py.core.entries import Entry, Exclusion
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.usage import picodollars_to_usd
from flue_py.lazy import expression, lazy_module

if TYPE_CHECKING:
    from flue_py.render import tools
else:
    # A list of sessions shows no call of a tool.
    tools = lazy_module("flue_py.render.tools")

# ---------------------------------------------------------------------------------------------------------------------
# Which lines a tree is drawn as: its branches, the runs of entries between them, and which of them are folded.
#
# Every branch has a main line that goes straight down: the active path if the branch is on it, else always the
# child with most entries below it. A side branch is nested one deeper, and has at most half the entries, so
# that nesting grows with the logarithm of the tree's size. No recursion, whatever the depth.

SHOWN_WHOLE = 24
"""A history of at most this many entries is shown entry by entry."""

MOST_BRANCHES = 50
MOST_LANDMARKS = 100
MOST_TURNS = 40
_LANDMARKS = frozenset(kind.name for kind in kinds.KINDS if kind.says == "summary")


class Branch(Frozen):
    """A main line from where it left another (or from a root) to its end.

    ``parent_id`` is the entry that it left, and ``nesting`` how many lines that is away from a root's.
    """

    parent_id: str | None
    tip_id: str
    entries: int
    nesting: int
    is_active: bool


class Run(Frozen):
    """Entries of one branch, each the child of the one before, that are shown as one line.

    ``opens`` and ``ends`` say that it is the first or the last of its branch. ``folded`` counts the branches that
    leave it and are not shown.
    """

    entries: tuple[Entry, ...]
    branch: Branch
    opens: bool
    ends: bool
    folded: int = 0

    @property
    def id(self) -> str:
        """The id of its last entry: where to move, fork or rewind to."""
        return self.entries[-1].id


class Plan(Frozen):
    """The lines of a tree in order, all of its branches (also those not shown), and how many entries are not shown."""

    runs: tuple[Run, ...]
    branches: tuple[Branch, ...]
    active: frozenset[str]
    folded_branches: int = 0
    folded_entries: int = 0


class Walk(Frozen):
    """Every entry of a tree in the order of its lines, with the nesting of its branch, and whether it begins one.

    Below an entry come the branches that leave its line there, and then the rest of the line, so that all that
    descends from an entry follows it. ``active`` are the ids of the path to the leaf.
    """

    entries: list[Entry]
    nesting: list[int]
    opens: list[bool]
    active: frozenset[str]
    branches: int


class _Shape(Frozen):
    """The links of a tree, which child its lines follow, and its branches by their first entry."""

    roots: list[Entry]
    children: dict[str, list[Entry]]
    main: dict[str, Entry]
    active: frozenset[str]
    lines: dict[str, list[Entry]]
    nesting: dict[str, int]
    below: dict[str, int]
    branches_below: dict[str, int] = field(default_factory=dict)

    def sides(self, entry: Entry) -> list[Entry]:
        """Return the first entries of the branches that leave the line of an entry there."""
        follower = self.main.get(entry.id)
        return [child for child in self.children.get(entry.id, ()) if child is not follower]


def plan_tree(
    entries: Sequence[Entry],
    leaf: str | None,
    *,
    fold: bool = True,
    depth: int | None = None,
    landmarks: Collection[str] = (),
    ends: Collection[str] = (),
) -> Plan:
    """Return how to draw the tree of ``entries`` (every branch, parents before children).

    An entry whose parent is not among them is a root. With ``fold`` a run of entries is one line: a turn, of the
    `MOST_TURNS` that began last, or all that comes before those. The leaf, ``landmarks``, compactions and branch
    summaries have lines of their own, entries of ``ends`` are the last of their lines, and only the `MOST_BRANCHES`
    largest branches are shown. ``depth`` leaves out branches nested deeper than
    that. O(entries).
    """
    shape = _shape_of(entries, leaf)
    fold = fold and len(entries) > SHOWN_WHOLE
    alone = {entry.id for entry in entries if entry.kind in _LANDMARKS or entry.id in landmarks}
    closing = {entry.id for entry in entries if entry.id in ends}
    if fold and len(alone) + len(closing) > MOST_LANDMARKS:
        newest = {entry.id for entry in [e for e in entries if e.id in alone or e.id in closing][-MOST_LANDMARKS:]}
        alone, closing = alone & newest, closing & newest
    marked = alone | closing if leaf is None else alone | closing | {leaf}
    # A line ends before the request that begins a turn.
    turns = [entry.parent_id for entry in entries if entry.parent_id is not None and begins_turn(entry)]
    closing.update(turns[-MOST_TURNS:])
    if leaf is not None:
        alone.add(leaf)
    shown = _shown(shape, marked, fold=fold, depth=depth)
    runs = tuple(_runs(shape, shown, alone, closing, fold=fold))
    branches = tuple(
        Branch(line[0].parent_id, line[-1].id, len(line), shape.nesting[start], start in shape.active)
        for start, line in shape.lines.items()
    )
    drawn = sum(len(run.entries) for run in runs)
    return Plan(runs, branches, shape.active, len(branches) - len(shown), len(entries) - drawn)


def without_program_rows(entries: Sequence[Entry], prefixes: tuple[str, ...], ends: Collection[str]) -> list[Entry]:
    """Return ``entries`` without rows that a program wrote for itself, by how their kinds begin, except ``ends``.

    Entries below such a row are drawn below the entry before it. O(entries).
    """
    above: dict[str, str | None] = {}
    spoken: list[Entry] = []
    for entry in entries:
        parent = entry.parent_id if entry.parent_id is None else above.get(entry.parent_id, entry.parent_id)
        if entry.kind.startswith(prefixes) and entry.id not in ends:
            above[entry.id] = parent
        else:
            spoken.append(entry if parent == entry.parent_id else replace(entry, parent_id=parent))
    return spoken


def walk_tree(entries: Sequence[Entry], leaf: str | None) -> Walk:
    """Return the entries of a tree (every branch, parents before children) in the order of `plan_tree`. O(entries)."""
    shape = _shape_of(entries, leaf)
    walk = Walk([], [], [], shape.active, len(shape.lines))
    # A branch that is being walked, and how far.
    waiting = [(root.id, 0) for root in reversed(shape.roots) if root.id in shape.lines]
    while waiting:
        start, at = waiting.pop()
        line, nesting = shape.lines[start], shape.nesting[start]
        for place in range(at, len(line)):
            entry = line[place]
            walk.entries.append(entry)
            walk.nesting.append(nesting)
            walk.opens.append(place == 0)
            if len(shape.children.get(entry.id, ())) > 1:
                waiting.append((start, place + 1))
                waiting += [(side.id, 0) for side in reversed(shape.sides(entry))]
                break
    return walk


def _shape_of(entries: Sequence[Entry], leaf: str | None) -> _Shape:
    by_id = {entry.id: entry for entry in entries}
    children: dict[str, list[Entry]] = {}
    roots = []
    for entry in entries:
        if entry.parent_id is None or entry.parent_id not in by_id:
            roots.append(entry)
        else:
            children.setdefault(entry.parent_id, []).append(entry)
    below = dict.fromkeys(by_id, 1)
    for entry in reversed(entries):
        if entry.parent_id in below:
            below[entry.parent_id] += below[entry.id]
    active = set()
    at = leaf
    while at in by_id and at not in active:
        active.add(at)
        at = by_id[at].parent_id
    main = {
        parent: next(
            (child for child in siblings if child.id in active), max(siblings, key=lambda child: below[child.id])
        )
        for parent, siblings in children.items()
    }
    shape = _Shape(roots, children, main, frozenset(active), {}, {}, below)
    start_of: dict[str, str] = {}
    for entry in entries:
        parent = entry.parent_id
        if parent is None or parent not in by_id:
            start, shape.nesting[entry.id] = entry.id, 0
        elif main[parent] is entry:
            start = start_of[parent]
        else:
            start, shape.nesting[entry.id] = entry.id, shape.nesting[start_of[parent]] + 1
        start_of[entry.id] = start
        shape.lines.setdefault(start, []).append(entry)
    shape.branches_below.update(dict.fromkeys(shape.lines, 1))
    for start in reversed(shape.lines):
        parent = by_id[start].parent_id
        if parent in start_of:
            shape.branches_below[start_of[parent]] += shape.branches_below[start]
    return shape


def _shown(shape: _Shape, marked: Collection[str], *, fold: bool, depth: int | None) -> set[str]:
    """Return the first entries of the branches to show. If a branch is shown, so is the one that it left."""
    starts = [start for start in shape.lines if depth is None or shape.nesting[start] <= depth]
    if not fold or len(starts) <= MOST_BRANCHES:
        return set(starts)
    holds_mark = set()
    for start in reversed(shape.lines):
        line = shape.lines[start]
        if any(entry.id in marked or any(side.id in holds_mark for side in shape.sides(entry)) for entry in line):
            holds_mark.add(start)
    # A branch is larger than any that leaves it, so none is chosen without the one that it left.
    starts.sort(key=lambda start: (start in shape.active, start in holds_mark, shape.below[start]), reverse=True)
    return set(starts[:MOST_BRANCHES])


def _runs(shape: _Shape, shown: set[str], alone: set[str], closing: set[str], *, fold: bool) -> Iterator[Run]:
    """Yield the runs in the order of their lines: a branch comes right below the entry that it left."""
    waiting = [_line_runs(root.id, shape, shown, alone, closing, fold=fold) for root in reversed(shape.roots)]
    while waiting:
        item = next(waiting[-1], None)
        if item is None:
            waiting.pop()
        elif isinstance(item, Run):
            yield item
        else:
            waiting.append(_line_runs(item, shape, shown, alone, closing, fold=fold))


def _line_runs(
    start: str, shape: _Shape, shown: set[str], alone: set[str], closing: set[str], *, fold: bool
) -> Iterator[Run | str]:
    """Yield the runs of one branch, and the first entries of the branches that leave it, in their places."""
    if start not in shown:
        return
    line = shape.lines[start]
    branch = Branch(line[0].parent_id, line[-1].id, len(line), shape.nesting[start], start in shape.active)
    run: list[Entry] = []
    opens, folded = True, 0
    for place, entry in enumerate(line):
        run.append(entry)
        sides = shape.sides(entry)
        shown_sides = [side.id for side in sides if side.id in shown]
        folded += sum(shape.branches_below[side.id] for side in sides if side.id not in shown)
        follower = line[place + 1] if place + 1 < len(line) else None
        goes_on = fold and not shown_sides and entry.id not in closing and entry.id not in alone
        if goes_on and follower is not None and follower.id not in alone:
            continue
        yield Run(tuple(run), branch, opens, follower is None, folded)
        yield from shown_sides
        run, opens, folded = [], False, 0


# ---------------------------------------------------------------------------------------------------------------------
# Lines of styled text that fit a terminal: width in cells, clipping, columns, sizes.

Span: TypeAlias = tuple[str, str]
Line: TypeAlias = tuple[Span, ...]
"""``(text, style)`` pairs, left to right, without a line end."""


class Glyphs(Frozen):
    """The signs a tree is drawn with."""

    on_path: str
    off_path: str
    side: str
    along: str
    fold: str
    leaf: str
    cut: str
    fork: str
    sum: str


UNICODE = Glyphs("●", "○", "├─", "│ ", "┊", "← leaf", "…", "↳", "Σ ")
ASCII = Glyphs("*", "o", "|-", "| ", ":", "<- leaf", "~", "+->", "sum ")


def text_of(line: Line) -> str:
    """Return a line without its styles."""
    return "".join(text for text, _ in line)


def cells(text: str) -> int:
    """Return how many terminal cells a text takes: wide characters take two, combining ones none.

    Where terminals disagree about a sign, it counts as wide, so that a line is never too long.
    """
    if text.isascii():
        return len(text)
    return sum(_cell(char) for char in text)


_WIDE_OF_LATE = ((0x2630, 0x2637), (0x268A, 0x268F), (0x4DC0, 0x4DFF), (0x1D300, 0x1D376))
"""Ranges that Unicode has called wide only since its version 16."""

_AS_EMOJI = "\ufe0f"
"""Turns the sign before it into an emoji, which is wide."""


def _cell(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF" or any(a <= ord(char) <= z for a, z in _WIDE_OF_LATE):
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf") and char != _AS_EMOJI else 1


def one_line(text: str, limit: int = 400) -> str:
    """Return the beginning of a text as one line: blanks collapsed, without anything a terminal would act on."""
    return printable(" ".join(text[: limit * 4].split())[:limit])


def printable(text: str) -> str:
    """Return a text in which a terminal acts on nothing but line ends and tabs.

    Escape sequences, changes of writing direction and separators of lines other than the line end become U+FFFD.
    """
    if text.isprintable():
        return text
    return "".join(char if char in "\n\t" or not _acts(char) else "\ufffd" for char in text)


def json_printable(text: str) -> str:
    """Return JSON with everything escaped that a terminal would act on. The value stays the same."""
    if text.isprintable():
        return text
    return "".join(char if char == "\n" or not _acts(char) else _escaped(char) for char in text)


def _acts(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] == "C" or category in ("Zl", "Zp")


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def clip(text: str, width: int, cut: str = "…") -> str:
    """Return a text that takes at most ``width`` cells; ``cut`` stands for the rest."""
    if cells(text) <= width:
        return text
    room = width - cells(cut)
    if room < 0:
        return ""
    taken = 0
    for place, char in enumerate(text):
        taken += _cell(char)
        if taken > room:
            return text[:place].rstrip() + cut
    return text


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a text filled up with blanks to ``width`` cells; with ``right`` they come first."""
    blanks = " " * max(0, width - cells(text))
    return blanks + text if right else text + blanks


def short_count(number: int) -> str:
    """Return a count in at most five characters: 950, 1.2k, 45k, 1.3M."""
    for unit, sign in ((1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")):
        if number >= unit * 0.9995:
            scaled = number / unit
            return f"{scaled:.1f}{sign}" if scaled < 9.95 else f"{scaled:.0f}{sign}"
    return str(number)


def counted(number: int, singular: str, many: str | None = None) -> str:
    """Return a number with its noun: ``1 entry``, ``1,018 entries``."""
    return f"{number:,} {singular if number == 1 else many or singular + 's'}"


_PART = expression(r":\d+\Z")


def shortest_ids(ids: Sequence[str], least: int = 6, most: int = 16) -> dict[str, str]:
    """Return the beginning of each id, all of one length, that tells the ids apart (up to ``most`` characters).

    If that is not enough to tell two apart, ids longer than ``most`` are given whole. The number of a part of an
    imported row stays: ``7ce96df4-...-04:1`` becomes ``7ce96d:1``.
    """
    rows = {entry_id: _PART.sub("", entry_id) for entry_id in ids}
    ordered = sorted(set(rows.values()))
    length = least
    for first, second in pairwise(ordered):
        shared = 0
        while shared < len(first) and first[shared] == second[shared]:
            shared += 1
        length = max(length, shared + 1)
    if length > most:
        return {entry_id: entry_id for entry_id in ids}
    return {entry_id: row[:length] + entry_id[len(row) :] for entry_id, row in rows.items()}


def table(rows: Sequence[Sequence[Span]], *, right: frozenset[int] = frozenset()) -> list[Line]:
    """Return rows of cells as lines with aligned columns; columns in ``right`` are aligned to the right."""
    columns = max((len(row) for row in rows), default=0)
    widths = [max((cells(row[n][0]) for row in rows if n < len(row)), default=0) for n in range(columns)]
    lines: list[Line] = []
    for row in rows:
        spans: list[Span] = []
        for n, (text, style) in enumerate(row):
            is_last = n == len(row) - 1
            filled = text if is_last and n not in right else padded(text, widths[n], right=n in right)
            spans.append((filled, style))
            if not is_last:
                spans.append(("  ", ""))
        lines.append(tuple(spans))
    return lines


# ---------------------------------------------------------------------------------------------------------------------
# One entry as a line: its kind, and the beginning of its text.

STYLES: Mapping[str, str] = {
    "user": "bold cyan",
    "assistant": "green",
    "toolResult": "dim",
    "bashExecution": "magenta",
    kinds.COMPACTION: "bold yellow",
    kinds.BRANCH_SUMMARY: "yellow",
    kinds.CUSTOM_MESSAGE: "cyan",
}
DIFF_STYLES: Mapping[str, str] = {"+": "green", "-": "red", "@": "cyan"}
"""The styles of the lines of a diff, by their first sign."""
PART_STYLES: Mapping[str, str] = {
    "thinking": "dim italic", "program": "dim", "call": "magenta", "error": "red", "media": "dim", "data": "dim",
}  # fmt: skip
"""The styles of the parts of a message, by their kinds."""

SIZE_WIDTH = 5
COST_WIDTH = 9
NAME_WIDTH = 9
_ROLE_WORDS: Mapping[str, str] = {"toolResult": "result", "bashExecution": "shell"}


class Cost(Frozen):
    """The cost of calls, in picodollars. ``is_partial`` says that some of them have no known cost."""

    picodollars: int
    is_partial: bool = False


class Look(Frozen):
    """How entries are shown: the width in cells, the signs, and by entry id how many tokens each takes, its label,
    the cost of its line (lines without calls are left out), and of the branch that ends with it. If
    ``sizes_counted`` is False, sizes are estimates, marked with ``~``. If ``cuts`` is False, no text is cut to fit."""

    width: int = 80
    sizes: Mapping[str, int] | None = None
    labels: Mapping[str, str] | None = None
    glyphs: Glyphs = UNICODE
    costs: Mapping[str, Cost] | None = None
    branch_costs: Mapping[str, Cost] | None = None
    sizes_counted: bool = True
    masked: Callable[[str], str] = str
    """Takes out of a text all that is not to be shown, before it is cut."""
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
    name = entry.role or entry.kind if entry.kind == kinds.MESSAGE else entry.kind
    word = _ROLE_WORDS.get(name) or kinds.kind_of(name).word or name
    return padded(one_line(word, 24), NAME_WIDTH), STYLES.get(name, "blue")


def exclusion_text(exclusion: Exclusion) -> str:
    """Return how lists mark an entry that is excluded, or a part of which is."""
    return "excluded" if exclusion.part is None else f"part {exclusion.part} excluded"


def entry_text(entry: Entry, data: JsonValue = None) -> str:
    """Return the beginning of the text of an entry, as one line. ``data`` is its payload, if it is decoded already."""
    value = entry.data if data is None else data
    fields: JsonObject = value if isinstance(value, dict) else {}
    kind = kinds.kind_of(entry.kind)
    if kind.says == "message":
        text = _message_line(entry.role, fields)
    elif kind.says == "content":
        text = kinds.message_text(fields)
    elif kind.line_from:
        text = str(fields.get(kind.line_from, "")) or _left_out(fields.get("details"))
    elif entry.kind == "model_change":
        text = f"{fields.get('provider')}/{fields.get('modelId')}"
    elif entry.kind == "label":
        text = tools.with_short_ids(f"{fields.get('label') or '(cleared)'} on {fields.get('targetId')}")
    else:
        text = tools.fact_line(value) or "(empty)"
    return one_line(text)


def _left_out(details: JsonValue) -> str:
    """Return the text of a compaction that left messages out, and has no summary; "" for any other entry."""
    dropped = details.get("dropped") if isinstance(details, dict) else None
    return f"{dropped.get('messages')} messages are left out" if isinstance(dropped, dict) else ""


def _message_line(role: str | None, message: JsonObject) -> str:
    if role == "bashExecution":
        command, result = tools.command_run(message)
        return _marked(result.marks, f"! {command.line}")
    if role == "toolResult":
        result, name = tools.result_of(message), message.get("toolName")
        return _marked([*([name] if isinstance(name, str) else []), *result.marks], tools.plain_line(result.text))
    text = kinds.message_text(message)
    if role == "user" and text:
        pieces = kinds.as_typed(kinds.pieces_in(message))
        names = dict.fromkeys(piece.name for piece in pieces if piece.name)
        return _marked([*names], "\n".join(piece.text for piece in pieces if not piece.name))
    if text.strip():
        return text
    content = message.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    calls = [f"-> {tools.call_line(tools.call_of(part))}" for part in parts if part.get("type") == "toolCall"]
    return "; ".join(calls or map(_silent_line, parts)) or str(message.get("errorMessage") or "(nothing said)")


def _silent_line(part: Mapping[str, JsonValue]) -> str:
    """Return in words a part that is neither a text nor a call."""
    return f"(thinks) {part.get('thinking')}" if part.get("type") == "thinking" else f"({part.get('type')})"


def _marked(marks: Sequence[str], text: str) -> str:
    return f"[{', '.join(marks)}] {text}" if marks else text


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
    """Return an entry as a line of ``look.width`` cells: id, ``before`` (its place), kind, text, size, cost.

    ``guide`` leads to its place; ``marks`` follow its text, behind its label and the sign of the leaf.
    """
    label = (look.labels or {}).get(entry.id)
    spans: list[Span] = []
    if label:
        spans.append((f" [{look.fit(one_line(look.masked(label)), 20)}]", "bold magenta"))
    if is_leaf:
        spans.append((f" {look.glyphs.leaf}", "bold green"))
    first: tuple[Span, ...] = ((short_id, "dim"), (" ", ""), guide, before, entry_name(entry), (" ", ""))
    return laid_out(
        first,
        look.masked(entry_text(entry)),
        [*spans, *marks],
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
