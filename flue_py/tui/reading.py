"""One entry to be read: its facts in a few lines, and what it says, as things that rich can draw.

Every text is masked, cut to what a person reads, and made inert before it is drawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from rich.markdown import Markdown
from rich.text import Text

from flue_py.core.artifacts import readable
from flue_py.core.costs import EntryCost
from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import MESSAGE, is_answer, kind_of, may_be_paid
from flue_py.core.told import reported_counts
from flue_py.core.usage_shapes import read_reported
from flue_py.render.costs import whole_cost_text
from flue_py.render.entries import entry_name
from flue_py.render.lines import counted, one_line, printable
from flue_py.render.views import minute

if TYPE_CHECKING:
    from rich.console import RenderableType

SHOWN_CHARACTERS = 20_000
"""How much of one text is shown at first."""

WHOLE_CHARACTERS = 200_000
"""How much of one text is shown at all: ``flue-py show`` prints what is longer."""

MARKDOWN_CHARACTERS = 4_000
"""Longer texts are shown as they stand: a table of five times that takes seconds to be drawn as Markdown."""

_LONGEST_RUN = 1_000
"""Longer values without a blank are bytes of pictures and files, of which their size is shown."""

Masking: TypeAlias = Callable[[str], str]


@frozen
class Marks:
    """What is known of an entry beside itself."""

    label: str | None = None
    is_pinned: bool = False
    excluded: str | None = None
    is_leaf: bool = False
    is_active: bool = True
    cost: EntryCost | None = None
    session_id: str = ""


def facts(entry: Entry, marks: Marks, masked: Masking) -> str:
    """Return what an entry is, as lines: kind, time, tokens and cost, what marks it, its id."""
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
    """Yield what an entry says, part by part. With ``whole``, texts are cut at `WHOLE_CHARACTERS` only.

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
    elif kind.says == "message":
        yield from _message(entry.role, fields, page)
    elif kind.says == "content":
        yield from _parts(fields.get("content"), page, is_prose=True)
    elif kind.says == "summary":
        yield page.prose(str(fields.get("summary", "")))
        yield page.data({key: value for key, value in fields.items() if key != "summary"})
    else:
        yield page.data(fields)
    if entry.extra is not None and not markdown:
        yield page.note("further fields of the imported row")
        yield page.data(entry.extra_fields)


def _message(role: str | None, fields: JsonObject, page: _Page) -> Iterator[RenderableType]:
    if role == "bashExecution":
        yield page.text(f"$ {fields.get('command')}", "bold magenta")
        yield page.text(str(fields.get("output") or ""))
        return
    if role == "toolResult":
        failed = fields.get("isError") is True
        yield page.note(f"result of {fields.get('toolName')}" + (", failed" if failed else ""), "red" if failed else "")
    yield from _parts(fields.get("content"), page, is_prose=role in ("user", "assistant"))
    error = fields.get("errorMessage")
    if isinstance(error, str) and error:
        yield page.text(error, "red")


def _parts(content: JsonValue, page: _Page, *, is_prose: bool) -> Iterator[RenderableType]:
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield page.prose(part) if is_prose else page.text(part)
        elif not isinstance(part, dict):
            if part is not None:
                yield page.data(part)
        elif isinstance(text := part.get("text"), str) and part.get("type") == "text":
            yield page.prose(text) if is_prose else page.text(text)
        elif isinstance(text := part.get("thinking"), str):
            yield page.note("thinking" if text.strip() else "thinking, not readable")
            yield page.text(text, "italic dim")
        elif part.get("type") == "toolCall":
            yield page.note(f"calls {part.get('name')}")
            yield from page.arguments(part.get("arguments"))
        elif isinstance(data := part.get("data"), str):
            yield page.note(f"{part.get('type')}, {part.get('mimeType')}, {counted(len(data) * 3 // 4, 'byte')}")
        else:
            yield page.data(part)


def strings_of(value: JsonValue) -> Iterator[str]:
    """Yield the texts in a value, those of names left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings_of(each)


def _without_bytes(value: JsonValue) -> JsonValue:
    """Return a value with the sizes of pictures and files in place of their bytes."""
    if isinstance(value, str):
        is_run = len(value) > _LONGEST_RUN and not any(char.isspace() for char in value[:_LONGEST_RUN])
        return f"[{counted(len(value), 'character')}]" if is_run else value
    if isinstance(value, dict):
        return {name: _without_bytes(each) for name, each in value.items()}
    return [_without_bytes(each) for each in value] if isinstance(value, list) else value


class _Page:
    """Makes texts into what rich draws: masked, cut, inert."""

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
        """Return a line about what follows."""
        return Text(f"[{one_line(self._masked(text))}]", style=style or "bold dim")

    def data(self, value: JsonValue) -> RenderableType:
        """Return a value as JSON."""
        return self.text(json.dumps(_without_bytes(value), ensure_ascii=False, indent=2), "dim")

    def arguments(self, value: JsonValue) -> Iterator[RenderableType]:
        """Yield the arguments of a call: texts as they stand, everything else as JSON."""
        if not isinstance(value, Mapping):
            yield self.data(value)
            return
        for name, each in value.items():
            said = each if isinstance(each, str) else json.dumps(_without_bytes(each), ensure_ascii=False)
            between = "\n" if "\n" in said else " "
            yield self.text(f"{name}:{between}{said}")

    def _shown(self, text: str) -> str:
        if len(text) <= self._most:
            return printable(self._masked(text))
        # A secret on the edge is whole when it is looked for.
        shown = self._masked(text[: self._most + 1_000])[: self._most]
        how = "w shows all" if self._most < WHOLE_CHARACTERS else "flue-py show prints all"
        return f"{printable(shown)}\n[{counted(len(text) - self._most, 'more character')}; {how}]"
