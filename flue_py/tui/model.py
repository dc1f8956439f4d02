"""The model of the browser: sessions, entries, rows and changes, without a screen."""

from __future__ import annotations

import asyncio
import json
import re
import time
import zlib
from base64 import b64decode
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from msgspec import msgpack
from msgspec.structs import astuple
from rich.markdown import Markdown
from rich.text import Text

from flue_py.core.context import EntryCost, begins_turn, entry_costs, reported_counts
from flue_py.core.entries import Entry, readable
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.kinds import (
    COMPACTION,
    EXCLUSION,
    MESSAGE,
    SHOWN_KINDS,
    is_answer,
    kind_of,
    may_be_paid,
    message_text,
)
from flue_py.core.sessions import Change, Deletion, SessionInfo, TaskLink
from flue_py.core.usage import read_reported
from flue_py.db.files import write_whole
from flue_py.errors import FlueError, LeafConflict, RevisionConflict
from flue_py.render.lines import (
    DIFF_STYLES,
    PART_STYLES,
    Cost,
    Glyphs,
    Line,
    Span,
    cells,
    clip,
    cost_text,
    counted,
    entry_name,
    entry_text,
    exclusion_text,
    one_line,
    padded,
    printable,
    short_count,
    walk_tree,
)
from flue_py.render.tools import PICTURES, Shown, media_of, shown_parts, without_bytes
from flue_py.render.views import (
    ListedSession,
    group_line,
    hit_lines,
    minute,
    name_width,
    short_model,
    spent,
    whole_cost_text,
)
from flue_py.search import SearchAnswer, SearchHit
from flue_py.sessions.handle import all_sessions, forks_seen
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.sessions.write import pins_in

if TYPE_CHECKING:
    from rich.console import RenderableType


# ---------------------------------------------------------------------------------------------------------------------
# The deletion of a session: its effect in words to ask with, and doing it if nothing has changed since.


def in_words(error: FlueError) -> str:
    """Return the message of an error for a person at the browser, unless a caller has to mend it."""
    if isinstance(error, LeafConflict | RevisionConflict):
        return "the session was written meanwhile; nothing was changed, try again"
    return str(error)


async def or_false(work: Awaitable[object | None]) -> object:
    """Return the result of some work, and False in place of None: there was nothing to do."""
    done = await work
    return False if done is None else done


SearchRow: TypeAlias = tuple[Line, SearchHit | None]
"""A line of a search; None for its hit if none begins there."""


def search_rows(answer: SearchAnswer, names: Mapping[str, str]) -> Sequence[SearchRow]:
    """Return the lines of the hits, session by session. ``names`` are those of the sessions, by id."""
    rows: list[SearchRow] = []
    for group in answer.sessions:
        rows.append((group_line(group, names[group.session.id]), None))
        for hit in group.hits:
            first, second = hit_lines(hit)
            rows += ((first, hit), (second, None))
    return rows


class Planned(Frozen):
    """A deletion that was not made yet: the question, and the facts about it."""

    store: Store
    session_id: str
    revision: int
    question: str
    facts: tuple[str, ...]
    would: Deletion

    async def go(self) -> Deletion:
        """Delete it. Raises `RevisionConflict`, and deletes nothing, if the session or a task of it was written since.

        The tasks are looked at right before.
        """
        now = await self.store.delete_session_tree(self.session_id, dry_run=True, expected_revision=self.revision)
        if now != self.would:
            raise RevisionConflict(self.session_id, self.revision, self.revision)
        return await self.store.delete_session_tree(self.session_id, expected_revision=self.revision)


async def plan_deletion(store: Store, session_id: str) -> Planned | None:
    """Return the effect of deleting a session; None if it is gone. O(rows that would be deleted)."""
    session = await store.get_session(session_id)
    if session is None:
        return None
    would = await store.delete_session_tree(session_id, dry_run=True, expected_revision=session.revision)
    tasks = len(would.session_ids) - 1
    facts = [f"{counted(would.entries_deleted, 'entry', 'entries')} would go; this cannot be undone."]
    if tasks:
        facts.insert(0, f"{counted(tasks, 'task session goes', 'task sessions go')} with it.")
    if would.entries_kept:
        facts.append(f"{counted(would.entries_kept, 'entry', 'entries')} stay, because other sessions see them.")
    question = f"Delete {clip(await session.reports.name(), 100)!r}?"
    return Planned(store, session_id, session.revision, question, tuple(facts), would)


# ---------------------------------------------------------------------------------------------------------------------
# A session's tree as a list of rows: the order of its entries, which of them a view shows, and what is folded.
#
# No screen and no store. A row is the place of an entry in the outline, or a session that begins below an entry: a fork
# or a task.

_GROUP = 100


class _Stub(Entry):
    """An entry whose payload and further fields are in a group, compressed, at a place."""

    group: bytes = b""
    place: int = 0


def stubs(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield entries as they take less memory: all that places them is as it was, and `whole` returns the rest."""
    texts: dict[str, str] = {}
    for start in range(0, len(entries), _GROUP):
        some = entries[start : start + _GROUP]
        group = zlib.compress(msgpack.encode([(entry.payload, entry.extra) for entry in some]), 1)
        for place, entry in enumerate(some):
            # An id is that of a parent, too, and few kinds are all there are: equal texts are one.
            shared = (texts.setdefault(part, part) if isinstance(part, str) else part for part in astuple(entry)[:-2])
            row: list[Any] = [*shared, "", None, group, place]
            yield _Stub(*row)


def whole(entry: Entry) -> Entry:
    """Return an entry with its payload. O(entries of its group), once for those that are looked at together."""
    if not isinstance(entry, _Stub):
        return entry
    row = (*astuple(entry)[:-4], *_payloads(entry.group)[entry.place])
    return Entry(*row)


@lru_cache(maxsize=16)
def _payloads(group: bytes) -> list[tuple[str, str | None]]:
    return msgpack.decode(zlib.decompress(group), type=list[tuple[str, str | None]])


View: TypeAlias = Literal["default", "no tools", "prompts", "labelled", "all"]
VIEWS: tuple[View, ...] = get_args(View)

_TOOLS = frozenset({"toolResult", "bashExecution"})


class Begun(Frozen):
    """A session that begins below an entry. ``info`` is None if it is deleted; ``link`` is that of a task."""

    entry_id: str
    session_id: str
    info: SessionInfo | None
    link: TaskLink | None = None


Row: TypeAlias = int | Begun


class Outline(Frozen):
    """The entries of a tree in the order in which they are drawn, with the depth of the branch that each is on.

    Below an entry come the branches that leave there, and then the one that goes on, so that all that descends from an
    entry follows it. ``opens`` says which entries begin a branch; ``active`` are those on the path to the leaf, and
    ``place`` is where each is. The lists grow at their ends only (`grown`).
    """

    entries: list[Entry]
    depths: list[int]
    opens: list[bool]
    active: set[str]
    place: dict[str, int]
    leaf: str | None
    branches: int

    @classmethod
    def of(cls, entries: Sequence[Entry], leaf: str | None) -> Outline:
        """Return the outline of a tree (parents before children). O(entries)."""
        walk = walk_tree(entries, leaf)
        place = {entry.id: at for at, entry in enumerate(walk.entries)}
        return cls(walk.entries, walk.nesting, walk.opens, set(walk.active), place, leaf, walk.branches)

    def grown(self, new: Sequence[Entry], leaf: str | None) -> Outline | None:
        """Return the outline with new entries, where they only go on where it ends; None where it has to be made anew.

        It shares its lists with this one, which is not to be used any more. O(new).
        """
        last = self.entries[-1].id if self.entries else None
        if last is None or self.leaf != last or not new or leaf != new[-1].id:
            return None
        for entry in new:
            if entry.parent_id != last:
                return None
            last = entry.id
        for entry in new:
            self.place[entry.id] = len(self.entries)
            self.entries.append(entry)
            self.depths.append(self.depths[-1])
            self.opens.append(False)
            self.active.add(entry.id)
        return Outline(self.entries, self.depths, self.opens, self.active, self.place, leaf, self.branches)

    def end_of(self, at: int) -> int:
        """Return the place behind the last entry that descends from the one at ``at``. O(those entries)."""
        depth = self.depths[at]
        for place in range(at + 1, len(self.entries)):
            deep = self.depths[place]
            if deep < depth or (deep == depth and self.opens[place]):
                return place
        return len(self.entries)

    def parent_of(self, at: int) -> int | None:
        """Return the place of an entry's parent; None for a root."""
        return self.place.get(self.entries[at].parent_id or "")

    def has_below(self, at: int) -> bool:
        """Return whether anything descends from an entry."""
        return at + 1 < len(self.entries) and self.entries[at + 1].parent_id == self.entries[at].id


def shows(view: View, labels: Collection[str]) -> Callable[[Entry], bool]:
    """Return the test whether a view shows an entry. ``labels`` are the ids of entries with a label or a pin.

    ``default`` has entries that a model could be shown, and those with a label; ``no tools`` leaves out results of
    tools; ``prompts`` has the beginnings of turns, ``labelled`` entries with a label or a pin.
    """

    def is_default(entry: Entry) -> bool:
        return entry.kind in SHOWN_KINDS or entry.id in labels

    def is_said(entry: Entry) -> bool:
        if entry.id in labels:
            return True
        if entry.kind != MESSAGE:
            return entry.kind in SHOWN_KINDS
        if entry.role == "assistant":
            return bool(message_text(entry.fields).strip())
        return entry.role not in _TOOLS

    tests: Mapping[View, Callable[[Entry], bool]] = {
        "default": is_default,
        "no tools": is_said,
        "prompts": begins_turn,
        "labelled": lambda entry: entry.id in labels,
        "all": lambda entry: True,
    }
    return tests[view]


def rows_of(
    outline: Outline,
    shown: Callable[[int], bool],
    folded: Collection[str] = (),
    begun: Mapping[str, Sequence[Begun]] | None = None,
) -> list[Row]:
    """Return the rows of a view: the entries that it shows, but for those below a folded one. O(entries).

    Sessions of ``begun``, by the id of the entry where they began, come below their entry, or the last one before it
    that is shown.
    """
    rows: list[Row] = []
    begins = begun or {}
    at, count = 0, len(outline.entries)
    while at < count:
        entry_id = outline.entries[at].id
        if shown(at):
            rows.append(at)
        if entry_id in folded:
            at = outline.end_of(at)
            continue
        if entry_id in begins:
            rows += begins[entry_id]
        at += 1
    return rows


def begun_at(
    forks: Iterable[SessionInfo], links: Iterable[TaskLink], tasks: Mapping[str, SessionInfo]
) -> dict[str, list[Begun]]:
    """Return the sessions that begin at an entry, by its id: tasks, in the order they were linked, and then forks."""
    begun: dict[str, list[Begun]] = {}
    for link in links:
        if link.entry_id is not None:
            begun.setdefault(link.entry_id, []).append(
                Begun(link.entry_id, link.child_id, tasks.get(link.child_id), link)
            )
    for info in forks:
        if info.forked_from_entry is not None:
            at = info.forked_from_entry
            begun.setdefault(at, []).append(Begun(at, info.id, info))
    return begun


# ---------------------------------------------------------------------------------------------------------------------
# One entry to be read: its facts in a few lines, and what it says, as things that rich can draw.
#
# Every text is masked, cut to what a person reads, and made inert before it is drawn.

SHOWN_CHARACTERS = 20_000
"""How much of one text is shown at first."""

WHOLE_CHARACTERS = 200_000
"""How much of one text is shown at all: ``flue-py show`` prints longer ones."""

MARKDOWN_CHARACTERS = 4_000
"""Longer texts are shown as they stand: a table of five times that takes seconds to be drawn as Markdown."""

Masking: TypeAlias = Callable[[str], str]


class Marks(Frozen):
    """Facts about an entry that are not in itself."""

    label: str | None = None
    is_pinned: bool = False
    excluded: str | None = None
    is_leaf: bool = False
    is_active: bool = True
    cost: EntryCost | None = None
    session_id: str = ""


def facts(entry: Entry, marks: Marks, masked: Masking) -> str:
    """Return the facts about an entry as lines: kind, time, tokens and cost, its marks, its id."""
    fields = entry.data if isinstance(entry.data, dict) else {}
    name = entry_name(entry)[0].strip()
    model = fields.get("model") if entry.kind == MESSAGE else None
    head = [name, f"{minute(entry.created_at)} UTC", one_line(masked(model), 40) if isinstance(model, str) else ""]
    signs = [
        "the leaf" if marks.is_leaf else "" if marks.is_active else "not on the active path",
        f"label: {one_line(masked(marks.label), 60)}" if marks.label else "",
        "pinned" if marks.is_pinned else "",
        marks.excluded or "",
        "inherited" if marks.session_id and entry.session_id != marks.session_id else "",
    ]
    lines = [head, _used(entry, marks), signs, [f"entry {one_line(entry.id, 80)}"]]
    return "\n".join(" · ".join(part for part in line if part) for line in lines if any(line))


def _used(entry: Entry, marks: Marks) -> list[str]:
    """Return the tokens and the cost of an entry that a model made; unknown is said, and is not 0."""
    if not may_be_paid(entry.kind, entry.role):
        return []
    counts = reported_counts(read_reported(entry.fields.get("usage")))
    names = (("input", "in"), ("output", "out"), ("cacheRead", "from the cache"), ("cacheWrite", "to the cache"))
    tokens = [f"{counts[key]:,} {word}" for key, word in names if counts.get(key)]
    if tokens:
        tokens[-1] += " tokens"
    is_known = marks.cost is not None and marks.cost.is_known
    cost = f"${whole_cost_text(marks.cost)}" if is_known and marks.cost is not None else ""
    if is_answer(entry.kind, entry.role):
        return [*(tokens or ["tokens unknown"]), cost or "cost unknown"]
    return [*tokens, cost]


def body(entry: Entry, masked: Masking, *, markdown: bool = True, whole: bool = False) -> Iterator[RenderableType]:
    """Yield the text of an entry, part by part. With ``whole``, texts are cut at `WHOLE_CHARACTERS` only.

    Without ``markdown`` texts are drawn as they stand, and the further fields of an imported row are there, too.
    """
    page = _Page(masked, markdown=markdown, most=WHOLE_CHARACTERS if whole else SHOWN_CHARACTERS)
    fields = entry.data
    kind = kind_of(entry.kind)
    if not isinstance(fields, dict):
        yield page.data(fields)
    elif (artifact := readable(entry)) is not None:
        yield page.data(artifact[0])
        yield page.text(artifact[1])
    elif kind.says in ("message", "content"):
        if entry.role == "toolResult":
            failed = fields.get("isError") is True
            yield page.note(f"result of {fields.get('toolName')}{', failed' * failed}", "red" if failed else "")
        for part in shown_parts(fields):
            yield from page.part(part)
    elif kind.says == "summary":
        yield page.prose(str(fields.get("summary", "")))
        yield page.data({key: value for key, value in fields.items() if key != "summary"})
    else:
        yield page.data(fields)
    if entry.extra is not None and not markdown:
        yield page.note("further fields of the imported row")
        yield page.data(entry.extra_fields)


def strings_of(value: JsonValue) -> Iterator[str]:
    """Yield the texts in a value, those of names left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_of(item)


class _Page:
    """Makes texts into renderables of rich: masked, cut, inert."""

    def __init__(self, masked: Masking, *, markdown: bool, most: int) -> None:
        self._masked = masked
        self._markdown = markdown
        self._most = most

    def prose(self, text: str) -> RenderableType:
        """Return a text as Markdown, or as it stands where that is wished or the text is long."""
        if not self._markdown or len(text) > MARKDOWN_CHARACTERS:
            return self.text(text)
        return Markdown(printable(self._masked(text)), hyperlinks=False)

    def text(self, text: str, style: str = "") -> RenderableType:
        """Return a text as it stands."""
        return Text(self._shown(text), style=style)

    def note(self, text: str, style: str = "") -> RenderableType:
        """Return the line above a part."""
        return Text(f"[{one_line(self._masked(text))}]", style=style or "bold dim")

    def data(self, value: JsonValue) -> RenderableType:
        """Return a value as JSON."""
        return self.text(json.dumps(without_bytes(value), ensure_ascii=False, indent=2), "dim")

    def part(self, part: Shown) -> Iterator[RenderableType]:
        """Yield a part of a message: what a program put into a message of the user is folded, unless all is wished."""
        if part.kind == "program" and self._markdown and self._most < WHOLE_CHARACTERS:
            yield self.note(f"{part.heading}, {counted(len(part.text), 'character')}; w shows it")
            return
        if part.heading:
            yield self.note(part.heading if part.text.strip() else f"{part.heading}, nothing to read")
        if part.kind == "words":
            yield self.prose(part.text)
        elif part.kind == "media":
            yield self.note(part.text)
        elif part.kind == "diff":
            lines = self._shown(part.text).split("\n")
            yield Text("\n").join(Text(line, style=DIFF_STYLES.get(line[:1], "")) for line in lines)
        elif part.text:
            yield self.text(part.text, PART_STYLES.get(part.kind, ""))

    def _shown(self, text: str) -> str:
        if len(text) <= self._most:
            return printable(self._masked(text))
        # A secret on the edge is whole when it is looked for.
        shown = self._masked(text[: self._most + 1_000])[: self._most]
        how = "w shows all" if self._most < WHOLE_CHARACTERS else "flue-py show prints all"
        return f"{printable(shown)}\n[{counted(len(text) - self._most, 'more character')}; {how}]"


# ---------------------------------------------------------------------------------------------------------------------
# The line of a row of a tree.

_MOST_GUIDES = 8
"""Deeper branches are drawn as deep as this, so that there is room for their texts."""

_SHOWN = 300
"""A line shows less text than is searched for secrets, so that none is cut, and missed, at its end."""


def entry_row(
    entry: Entry,
    marks: Marks,
    masked: Callable[[str], str],
    width: int,
    *,
    depth: int,
    opens: bool,
    is_folded: bool,
    glyphs: Glyphs,
) -> Line:
    """Return an entry as a line: its place, kind, label, text and marks."""
    sign = glyphs.on_path if marks.is_active else glyphs.off_path
    name, style = entry_name(entry)
    word = name.strip()
    first: list[Span] = [
        (_guide(depth, opens, glyphs), "dim"),
        (f"{sign} ", "bold green" if marks.is_active else "dim"),
        (f"{word} ", style),
    ]
    if marks.label:
        first.append((f"[{clip(one_line(masked(marks.label)), 20, glyphs.cut)}] ", "bold magenta"))
    behind: list[Span] = []
    if is_folded:
        behind.append((" (folded)", "yellow"))
    if marks.is_pinned:
        behind.append((" pinned", "yellow"))
    if marks.excluded:
        behind.append((f" {marks.excluded}", "red"))
    if marks.is_leaf:
        behind.append((f" {glyphs.leaf}", "bold green"))
    text = one_line(masked(entry_text(entry)))[:_SHOWN]
    return _laid_out(first, text, behind, width, "" if marks.is_active else "dim", glyphs)


def begun_row(begun: Begun, name: str, width: int, depth: int, glyphs: Glyphs) -> Line:
    """Return a session that begins below an entry as a line. ``name`` is the one that people know."""
    kind = "fork" if begun.link is None else "task"
    status = "" if begun.link is None or begun.link.status is None else f" ({begun.link.status})"
    first: list[Span] = [
        (glyphs.along * min(depth + 1, _MOST_GUIDES), "dim"),
        (f"{glyphs.fork} {kind}{status} ", "magenta"),
    ]
    if begun.info is None:
        first[-1] = (f"{glyphs.fork} {kind}, deleted ", "dim")
    return _laid_out(first, one_line(name)[:_SHOWN], [], width, "bold", glyphs)


def _guide(depth: int, opens: bool, glyphs: Glyphs) -> str:
    deep = min(depth, _MOST_GUIDES)
    return glyphs.along * (deep - 1) + glyphs.side if opens and deep else glyphs.along * deep


def _laid_out(first: list[Span], text: str, behind: list[Span], width: int, style: str, glyphs: Glyphs) -> Line:
    room = max(4, width - sum(cells(text) for text, _ in (*first, *behind)))
    return (*first, (clip(text, room, glyphs.cut), style), *behind)


# ---------------------------------------------------------------------------------------------------------------------
# Editing a prompt: it is appended anew beside the old one, and what followed the old one stays where it is.

MOST_CHARACTERS = 100_000
"""Longer prompts are not edited here: the box would take minutes to show them."""


def is_prompt(entry: Entry) -> bool:
    """Return whether an entry is a message of a user."""
    return entry.kind == MESSAGE and entry.role == "user"


def text_of(entry: Entry) -> str:
    """Return the text of a prompt."""
    return message_text(entry.fields)


def edited(message: JsonObject, text: str, now_ms: int) -> JsonObject:
    """Return a message with another text, in place of its texts, where the first of them is. Other parts stay."""
    content = message.get("content")
    if not isinstance(content, list):
        return {**message, "content": text, "timestamp": now_ms}
    parts: list[JsonValue] = []
    is_placed = False
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            parts.append(part)
        elif not is_placed:
            parts.append({**part, "text": text})
            is_placed = True
    new: list[JsonValue] = parts if is_placed else [{"type": "text", "text": text}, *parts]
    return {**message, "content": new, "timestamp": now_ms}


async def branch_off(store: Store, session: Session, entry: Entry, text: str, *, by: str) -> str:
    """Append a prompt with another text beside it, as the leaf; return the id of the new entry.

    One transaction. One `undo` returns the leaf to where it was. Raises `LeafConflict` if the session was written since
    the handle last saw it, and changes nothing then.
    """
    message = edited(entry.fields, text, time.time_ns() // 1_000_000)
    was = session.leaf_id
    if was == entry.parent_id:
        return (await session.append_message(message, source=entry.source)).entry_id
    async with store.atomic() as batch:
        # As a branch beside the old prompt, so that one undo moves the leaf back over the whole way.
        appended = batch.append_message(
            session, message, source=entry.source, on_conflict="branch", expected_leaf=entry.parent_id
        )
        batch.move_leaf(session, to=appended.entry_ids[-1], by=by, why="a prompt was edited", expected_leaf=was)
    return appended.entry_ids[-1]


# ---------------------------------------------------------------------------------------------------------------------
# The pictures of an entry as files.


def save_pictures(entry: Entry, folder: Path) -> list[Path]:
    """Write the pictures of an entry into a folder, for their owner alone, and return the files, in order.

    Raises `InvalidArgument` if a file is there already, `StoreUnavailable`. O(bytes).
    """
    content = entry.data.get("content") if isinstance(entry.data, dict) else None
    name = re.sub(r"[^A-Za-z0-9_-]", "-", entry.id)[:64]
    files: list[Path] = []
    for part in content if isinstance(content, list) else ():
        media = media_of(part) if isinstance(part, dict) else None
        if media is not None and media.is_picture:
            files.append(folder / f"picture-{name}-{len(files) + 1}.{PICTURES[media.mime_type]}")
            write_whole(files[-1], b64decode(media.data + "=="))
    return files


# ---------------------------------------------------------------------------------------------------------------------
# A session that is looked at: its tree and what marks its entries, kept up to date while others write. No screen.

FIRST_PAGE = 1_000
"""How many of the newest entries are shown before all are there."""


_LEAVE_ENTRIES = frozenset({"append", "move", "rewind", "branch", "import", None})
"""Changes that take no entry out of the tree, and bring none back."""


class OpenedSession:
    """The browser's copy of a session. Each ``load_`` reads a part of it; the part as it was stays until then."""

    def __init__(self, store: Store, session: Session) -> None:
        self.store = store
        self.session = session
        self.name = ""
        self.info: SessionInfo = session.info
        self.outline = Outline.of((), None)
        self.is_whole = False
        self.labels: Mapping[str, str] = {}
        self.pinned: frozenset[str] = frozenset()
        self.excluded: Mapping[str, str] = {}
        self.begun: Mapping[str, Sequence[Begun]] = {}
        self._tree: list[Entry] = []
        self._costs: Mapping[str, EntryCost] = {}
        self._costs_are_new = False
        self._turn = asyncio.Lock()

    async def load_end(self) -> None:
        """Read the newest entries, which are shown first. O(`FIRST_PAGE`)."""
        self.info = await self.session.refresh()
        self.name = await self.session.reports.name()
        newest = await self.session.entries(newest_first=True, limit=FIRST_PAGE)
        self.labels = await self.session.marks.labels()
        self.outline = Outline.of(newest[::-1], self.info.leaf_id)

    async def load_all(self) -> None:
        """Read the whole tree, and the marks of its entries. O(entries), most of it on another thread."""
        async with self._turn:
            await self._load_tree()
            await self._load_marks()
            await self.load_begun()

    async def catch_up(self, changes: Sequence[Change]) -> None:
        """Read changes: new entries, their marks, where the leaf is. O(new entries) as a rule."""
        async with self._turn:
            before = self.info
            self.info = await self.session.refresh()
            self.name = await self.session.reports.name()
            added = [entry for change in changes for entry in change.entries]
            reasons = {change.reason for change in changes}
            if reasons <= _LEAVE_ENTRIES and self.is_whole:
                await self._grow()
            else:
                await self._load_tree()
            if reasons - {"append", None} or not added or any(entry.kind in (COMPACTION, EXCLUSION) for entry in added):
                await self._load_marks()
            self._costs_are_new = False
            if self.info.metadata_text != before.metadata_text or not added:
                await self.load_begun()

    def lacks_cost(self, entry: Entry) -> bool:
        """Return whether an entry may have a cost that `load_costs` would find."""
        return not self._costs_are_new and entry.id not in self._costs and may_be_paid(entry.kind, entry.role)

    async def load_costs(self) -> None:
        """Read the cost of every entry. O(calls of the tree)."""
        self._costs_are_new = True
        paid = await self.session.money.entry_costs()
        self._costs = await asyncio.to_thread(entry_costs, map(whole, [*self.outline.entries]), paid)

    @property
    def marked(self) -> frozenset[str]:
        """The ids of the entries with a label or a pin."""
        return self.pinned | self.labels.keys()

    def marks_of(self, entry: Entry) -> Marks:
        """Return the facts about an entry that are not in itself."""
        return Marks(
            self.labels.get(entry.id),
            entry.id in self.pinned,
            self.excluded.get(entry.id),
            entry.id == self.info.leaf_id,
            entry.id in self.outline.active,
            self._costs.get(entry.id),
            self.session.id,
        )

    async def _load_tree(self) -> None:
        self._tree = await self._read_behind(None)
        self.outline = await asyncio.to_thread(Outline.of, self._tree, self.info.leaf_id)
        self.is_whole = True

    async def _grow(self) -> None:
        """Add new entries to the tree. O(new) if the path goes on at its end, else O(entries) on another thread."""
        new = await self._read_behind(self._tree[-1].id if self._tree else None)
        self._tree += new
        if not new and self.outline.leaf == self.info.leaf_id:
            return
        grown = self.outline.grown(new, self.info.leaf_id)
        if grown is None:
            grown = await asyncio.to_thread(Outline.of, self._tree, self.info.leaf_id)
        self.outline = grown

    async def _read_behind(self, after: str | None) -> list[Entry]:
        """Return the entries of the tree behind one, as stubs, read in pages. O(entries)."""
        entries: list[Entry] = []
        while page := await self.session.entries(after=after, limit=FIRST_PAGE):
            entries += await asyncio.to_thread(list, stubs(page))
            after = page[-1].id
        return entries

    async def _load_marks(self) -> None:
        marks = self.session.marks
        self.labels = await marks.labels()
        # Both read the context, which is the whole path before the first compaction: twice the memory of the tree.
        kinds = {entry.kind for entry in self.outline.entries}
        if COMPACTION in kinds:
            self.pinned = frozenset(await marks.pins())
        else:
            self.pinned = frozenset(pins_in(await self.store.backend.read_marks(self.session.ref), None, ()))
        exclusions = await marks.exclusions() if EXCLUSION in kinds else ()
        self.excluded = {made.entry_id: exclusion_text(made) for made in exclusions if made.in_effect}

    async def load_begun(self) -> None:
        """Read which tasks and forks begin here. O(tasks and forks of the store)."""
        links = await self.session.tasks.links()
        tasks: dict[str, SessionInfo] = {}
        if links:
            tasks = {info.id: info for info in await all_sessions(self.store.backend, kind="task", damaged=[])}
            for link in links:
                # A session that was linked later may be of another kind.
                if link.child_id not in tasks and (child := await self.store.get_session(link.child_id)) is not None:
                    tasks[link.child_id] = child.info
        forks = await forks_seen(self.store.backend, self.info, self.outline.place)
        self.begun = begun_at([fork for begun in forks.values() for fork in begun], links, tasks)


# ---------------------------------------------------------------------------------------------------------------------
# The list of sessions, filtered by what is typed.

_COLUMNS: Mapping[str, Callable[[ListedSession], str]] = {
    "program": lambda row: one_line(row.program),
    "project": lambda row: row.project,
    "model": lambda row: short_model(row.model),
}
_NARROW, _WIDE = 70, 100
"""Below the one width the list has dates, titles and numbers alone; from the other on, the time of day, too."""


def fitting(sessions: Sequence[ListedSession], words: str, masked: Masking) -> Sequence[ListedSession]:
    """Return the sessions in which every word is, in any case, in their order. O(sessions).

    A word may be in the name, the first words, the program, the folder, the model, the scope, the key or the id.
    """
    wanted = words.casefold().split()
    return [row for row in sessions if all(map(_text_of_row(row, masked).__contains__, wanted))] if wanted else sessions


def _text_of_row(row: ListedSession, masked: Masking) -> str:
    info = row.info
    texts = (info.cwd, info.scope, info.key, info.id, row.program, row.model)
    said = masked(f"{row.name}\n{info.first_message or ''}")
    return "\n".join((said, *(text or "" for text in texts))).casefold()


def columns_of(sessions: Sequence[ListedSession]) -> Mapping[str, int]:
    """Return the cells of each column that some sessions fill, but maybe not all. O(sessions)."""
    texts = {name: {text_of(row) for row in sessions} - {""} for name, text_of in _COLUMNS.items()}
    return {name: max(map(cells, (name, *found))) for name, found in texts.items() if found}


def list_line(row: ListedSession, masked: Masking, columns: Mapping[str, int], width: int, glyphs: Glyphs) -> Line:
    """Return a session as a line of exactly this width."""
    info = row.info
    sign = f"{glyphs.fork} {info.kind} " if info.kind in ("task", "fork") else ""
    amount = spent(info, f"${cost_text(Cost(info.spent_picodollars))}")
    texts = {name: masked(_COLUMNS[name](row)) for name in columns}
    behind = _behind(texts, short_count(info.message_count), amount, columns, width, glyphs)
    when = minute(info.active_at)[2 : 16 if width >= _WIDE else 10]
    room = max(8, width - cells(sign) - cells(when) - 1 - cells(behind))
    name = padded(clip(one_line(masked(row.name)), room, glyphs.cut), room)
    style = "dim" if info.completed_us is not None else ""
    return (f"{when} ", "dim"), (sign, "magenta"), (name, style), (behind, "dim")


def list_heading(columns: Mapping[str, int], width: int, glyphs: Glyphs) -> str:
    """Return the names of the columns, above lines of this width."""
    behind = _behind({name: name for name in columns}, "msgs", "cost", columns, width, glyphs)
    return padded("active".ljust(15 if width >= _WIDE else 9) + "title", width - cells(behind)) + behind


def _behind(
    texts: Mapping[str, str], messages: str, cost: str, columns: Mapping[str, int], width: int, glyphs: Glyphs
) -> str:
    """Return the columns behind the title: these texts, unless the screen is narrow, and two numbers."""
    rooms = {name: min(most, name_width(width) + 1) for name, most in columns.items()} if width >= _NARROW else {}
    shown = (padded(clip(texts[name], room, glyphs.cut), room) for name, room in rooms.items())
    return " ".join(("", *shown, padded(messages, 5, right=True), padded(cost, 9, right=True)))


def next_row(count: int, stands: Callable[[int], bool], at: int, step: int) -> int:
    """Return the next of ``count`` rows from ``at`` on, in the direction of ``step``, on which one ``stands``.

    If there is none, that in the other direction; 0 without any. O(rows passed over).
    """
    for way in (1 if step >= 0 else -1, -1 if step >= 0 else 1):
        place = min(max(at, 0), count - 1)
        while 0 <= place < count:
            if stands(place):
                return place
            place += way
    return 0


# ---------------------------------------------------------------------------------------------------------------------
# The rows of a session's tree that are on the screen: a view of its outline, without what is folded. No screen.


class _Flagged(Frozen):
    """Which entries of a list a view shows, with these labelled."""

    entries: list[Entry]
    view: View
    labels: frozenset[str]
    flags: bytearray


class ShownTree:
    """The rows on the screen. Whatever is read meanwhile, they stay as shown last: a key means the row that is seen."""

    def __init__(self) -> None:
        self.view: View = "default"
        self.outline = Outline.of((), None)
        self.rows: Sequence[Row] = ()
        self.leaf_row: Row | None = None
        self._folded: set[str] = set()
        self._flagged: _Flagged | None = None

    def flag(self, outline: Outline, labels: frozenset[str]) -> bytearray:
        """Return which entries the view shows. O(entries); O(new) where the tree has only grown."""
        entries, flagged = outline.entries, self._flagged
        if flagged is None or flagged.entries is not entries or (flagged.view, flagged.labels) != (self.view, labels):
            flagged = self._flagged = _Flagged(entries, self.view, labels, bytearray())
        is_shown = shows(self.view, labels)
        flagged.flags.extend(is_shown(whole(entry)) for entry in entries[len(flagged.flags) :])
        return flagged.flags

    def show(self, outline: Outline, labels: frozenset[str], begun: Mapping[str, Sequence[Begun]]) -> None:
        """Take over an outline, and work out its rows. O(entries)."""
        flags = self.flag(outline, labels)
        self.outline = outline
        self.rows = rows_of(outline, lambda at: bool(flags[at]), self._folded, begun)
        self.leaf_row = self._row_for_leaf()

    def turn_to(self, view: View | None) -> None:
        """Choose a view: the next one for None."""
        self.view = VIEWS[(VIEWS.index(self.view) + 1) % len(VIEWS)] if view is None else view

    def row(self, number: int) -> Row | None:
        """Return a row; None behind the last one."""
        return self.rows[number] if number < len(self.rows) else None

    def number_of(self, entry_id: str | None) -> int:
        """Return which row an entry has, or the nearest before it that is shown; the last one for None. O(rows)."""
        place = self.outline.place.get(entry_id or "")
        if place is None:
            return max(len(self.rows) - 1, 0)
        best = 0
        for number, row in enumerate(self.rows):
            if isinstance(row, int):
                if row > place:
                    break
                best = number
        return best

    def has_entry(self, entry_id: str) -> bool:
        """Return whether the view shows an entry, folded or not."""
        place = self.outline.place.get(entry_id)
        return place is not None and self._flagged is not None and bool(self._flagged.flags[place])

    def is_folded(self, entry_id: str) -> bool:
        """Return whether the entries below an entry are folded."""
        return entry_id in self._folded

    def fold(self, place: int) -> bool:
        """Fold the entries below the one at a place; return whether there was anything to fold."""
        entry_id = self.outline.entries[place].id
        if entry_id in self._folded or not self.outline.has_below(place):
            return False
        self._folded.add(entry_id)
        return True

    def unfold(self, entry_id: str) -> bool:
        """Unfold the entries below an entry; return whether it was folded."""
        was_folded = entry_id in self._folded
        self._folded.discard(entry_id)
        return was_folded

    def unfold_above(self, entry_id: str | None) -> bool:
        """Unfold the entry that hides another; return whether anything did. O(depth)."""
        has_hidden = False
        place = self.outline.place.get(entry_id or "")
        while place is not None and self._folded:
            place = self.outline.parent_of(place)
            if place is not None:
                has_hidden |= self.unfold(self.outline.entries[place].id)
        return has_hidden

    def _row_for_leaf(self) -> Row | None:
        """Return the row of the leaf; where it is not shown, that of the last entry before it on its path that is."""
        shown = {row for row in self.rows if isinstance(row, int)}
        place = self.outline.place.get(self.outline.leaf or "")
        while place is not None and place not in shown:
            place = self.outline.parent_of(place)
        return place
