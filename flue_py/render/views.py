"""Paths, contexts, usage, sessions and deletions as lines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from flue_py.core.artifacts import readable
from flue_py.core.costs import window_costs
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonValue
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.core.projection import ContextEntry
from flue_py.core.sessions import Deletion, ScopeDeletion, SessionInfo, StoreInfo
from flue_py.core.usage import UsageWindow, picodollars_to_usd
from flue_py.render.entries import Look, entry_line, fold_line
from flue_py.render.lines import Line, Span, cells, counted, one_line, printable, shortest_ids, table

_NAMELESS = "(empty)"


def path_lines(
    path: Sequence[Entry], look: Look, *, leaf: str | None = None, head: int | None = None, tail: int = 0
) -> list[Line]:
    """Return a path, root to leaf, one line per entry.

    With ``head`` only that many entries from the root and ``tail`` up to the leaf are shown, and one line for
    those between.
    """
    ids = shortest_ids([entry.id for entry in path])
    width = max((cells(short) for short in ids.values()), default=0)
    before = (f"{look.glyphs.on_path} ", "dim")
    cut = len(path) if head is None or len(path) <= head + tail + 1 else head
    end = max(cut, len(path) - tail)

    def line_of(entry: Entry) -> Line:
        return entry_line(entry, ids[entry.id], look, before=before, is_leaf=entry.id == leaf)

    lines = [line_of(entry) for entry in path[:cut]]
    if path[cut:end]:
        lines.append(fold_line(path[cut:end], width, look, before=(f"{look.glyphs.fold} ", "dim")))
    return lines + [line_of(entry) for entry in path[end:]]


def context_lines(items: Sequence[ContextEntry], look: Look, *, head: int | None = None, tail: int = 0) -> list[Line]:
    """Return what the model sees, one line per message with its entry; folded as `path_lines`."""
    return path_lines([item.entry for item in items], look, head=head, tail=tail)


def entry_block(entry: Entry, label: str | None = None) -> list[Line]:
    """Return a whole entry: where it is in the tree, and everything it says."""
    facts = [
        ("entry", entry.id),
        ("parent", entry.parent_id or "(a root)"),
        ("kind", entry.kind),
        ("role", one_line(entry.role or "")),
        ("source", entry.source or ""),
        ("label", one_line(label or "")),
        ("session", entry.session_id or "(deleted)"),
        ("created", f"{minute(entry.created_at)} UTC"),
    ]
    lines: list[Line] = table([[(name, "dim"), (value, "")] for name, value in facts if value])
    lines.append(())
    value = entry.data
    if entry.kind == MESSAGE and isinstance(value, dict):
        for field in ("content", "command", "output"):
            for part in _parts_of(value.get(field)):
                lines += [((shown, ""),) for shown in part.splitlines() or [""]]
    elif (artifact := readable(entry)) is not None:
        said = printable(json.dumps(artifact[0], ensure_ascii=False, indent=2))
        lines += [((shown, ""),) for text in (said, "", printable(artifact[1])) for shown in text.splitlines() or [""]]
    else:
        lines += [((shown, ""),) for shown in printable(json.dumps(value, ensure_ascii=False, indent=2)).splitlines()]
    if entry.extra is not None:
        lines += [(), ((printable(json.dumps(entry.extra_fields, ensure_ascii=False)), "dim"),)]
    return lines


def _parts_of(content: JsonValue) -> list[str]:
    if content is None:
        return []
    parts = content if isinstance(content, list) else [content]
    texts = [part.get(str(part.get("type"))) if isinstance(part, dict) else part for part in parts]
    return [
        printable(text if isinstance(text, str) else json.dumps(part, ensure_ascii=False))
        for part, text in zip(parts, texts, strict=True)
    ]


def context_summary(items: Sequence[ContextEntry], tokens: int, *, is_estimate: bool) -> str:
    """Return the size of a context in words."""
    about = "about " if is_estimate else ""
    text = f"{counted(len(items), 'message')}, size {about}{counted(tokens, 'token')}"
    if items and items[0].kind == COMPACTION:
        text += "; the first is the summary of what was compacted"
    if (ranges := sum(item.kind == COMPACTION for item in items[1:])) > 0:
        text += f"; {counted(ranges, 'summary', 'summaries')} of ranges"
    return text


def usage_lines(window: UsageWindow) -> list[Line]:
    """Return a usage window as a table: tokens, and dollars to the last digit; an unknown amount is a dash."""
    usage = window.usage
    kinds = ("input", "output", "cache read", "cache write", "total")
    rows: list[list[Span]] = [[("", ""), ("tokens", "dim"), ("US dollars", "dim")]]
    for name, tokens, cost in zip(kinds, window.known.values(), window_costs(window), strict=True):
        style = "bold" if name == "total" else ""
        used = "-" if tokens is None else f"{tokens:,}"
        rows.append([(name, style), (used, style), ("-" if cost is None else dollars(picodollars_to_usd(cost)), style)])
    lines = table(rows, right=frozenset({1, 2}))
    if window.unpriced_calls:
        unpriced = counted(window.unpriced_calls, "call")
        lines.append(((f"what {unpriced} of {window.calls:,} cost is not known, and not in the sum", "yellow"),))
    if window.unknown_calls:
        unknown = counted(window.unknown_calls, "call")
        lines.append(((f"what {unknown} of {window.calls:,} used is not known, and not in the sum", "yellow"),))
    if window.calls and window.tokens != usage.total_tokens:
        lines.append(((f"paid for {counted(window.tokens, 'token')}, branch summaries included; see --path", ""),))
    if not window.on_path:
        lines.append(((f"entry {window.since} is not on the path to {window.leaf}: nothing is counted", "yellow"),))
    return lines


def dollars(amount: Decimal) -> str:
    """Return an exact amount without needless zeros, but with cents."""
    text = format(amount.normalize(), "f")
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction:0<2}"


def session_name(info: SessionInfo, source: SessionInfo | None) -> str:
    """Return the name that people know a session by, everywhere: `SessionInfo.shown_title`, on one line.

    A fork without a name of its own is named after its ``source``, the session that it was forked from; None if that
    is deleted. ``source`` is used only if `needs_source` returns True.
    """
    own = one_line(info.shown_title or "")
    if not needs_source(info):
        return own or _NAMELESS
    origin = "a deleted session" if source is None else one_line(source.shown_title or _NAMELESS)
    return f"{own} (fork of {origin})" if own else f"fork of {origin}"


def name_among(info: SessionInfo, sources: Mapping[str, SessionInfo]) -> str:
    """Return `session_name` where ``sources`` are those that forks without a name were made of, by id."""
    return session_name(info, sources.get(info.forked_from_session or ""))


def needs_source(info: SessionInfo) -> bool:
    """Return whether a session is a fork without a name of its own, which is named after its source."""
    return info.kind == "fork" and not (info.title or info.auto_title or info.key)


def spent(info: SessionInfo, amount: str) -> str:
    """Return what a session itself has paid, marked if some calls have no price; a dash if none has one.

    It is a dash, too, if there are answers of which the ledger has no call.
    """
    if info.known_spent is None:
        return "-"
    return f"{amount} + ?" if info.unpriced_calls else amount


def spent_tokens(info: SessionInfo) -> str:
    """Return the tokens that a session itself has paid for, marked if those of some calls are unknown."""
    if info.known_tokens is None:
        return "-"
    return f"{info.spent_tokens:,}" + " + ?" * bool(info.unknown_calls)


def minute(moment: datetime) -> str:
    """Return a moment to the minute, in UTC."""
    return moment.strftime("%Y-%m-%d %H:%M")


def clipped(line: Line, look: Look) -> Line:
    """Return a line whose last span is cut so that it fits the width of the look."""
    if not line:
        return line
    before = sum(cells(text) for text, _ in line[:-1])
    text, style = line[-1]
    return (*line[:-1], (look.fit(text, max(8, look.width - before)), style))


def facts_lines(facts: Sequence[tuple[str, str]], look: Look) -> list[Line]:
    """Return names and values, one pair per line, without empty values."""
    rows: list[list[Span]] = [[(name, "dim"), (value, "")] for name, value in facts if value]
    return [clipped(line, look) for line in table(rows)]


def session_facts(info: SessionInfo, name: str) -> list[tuple[str, str]]:
    """Return what is known of a session from its row and its name, fact by fact."""
    return [
        ("session", info.id),
        ("name", name),
        ("title", one_line(info.title or "")),
        ("made title", one_line(info.auto_title or "")),
        ("key", "" if info.key is None else repr(info.key)),
        ("scope", one_line(info.scope)),
        ("kind", info.kind),
        ("forked from", _fork_point(info)),
        ("leaf", info.leaf_id or "(before the first entry)"),
        ("own entries", f"{info.entry_count:,}, {info.message_count:,} of them messages"),
        ("spent", f"{spent_tokens(info)} tokens, {spent(info, f'${dollars(info.spent)}')}"),
        ("revision", f"{info.revision:,}"),
        ("folder", one_line(info.cwd or "")),
        ("created", f"{minute(info.created_at)} UTC"),
        ("last active", f"{minute(info.active_at)} UTC"),
        ("changed", f"{minute(info.updated_at)} UTC"),
    ]


def _fork_point(info: SessionInfo) -> str:
    if info.forked_from_session is None:
        return ""
    return f"{info.forked_from_session} at {info.forked_from_entry or 'the beginning'}"


def deletion_lines(
    deletion: Deletion, names: Mapping[str, str], *, dry_run: bool = False, knows_entries: bool = True
) -> list[Line]:
    """Return what a deletion removed, or would remove. ``names`` are the sessions' names, by id.

    Without ``knows_entries``, the number of entries is left out.
    """
    verb = "would be deleted" if dry_run else "deleted"
    with_them = f", {counted(deletion.entries_deleted, 'entry', 'entries')} with them" if knows_entries else ""
    lines: list[Line] = [((f"{counted(len(deletion.session_ids), 'session')} {verb}", "bold"), (with_them, ""))]
    lines += [
        ((f"  {session_id}", "red"), (f"  {names.get(session_id, '')}", "")) for session_id in deletion.session_ids
    ]
    if deletion.entries_kept:
        kept = counted(deletion.entries_kept, "entry", "entries")
        lines.append(((f"{kept} stay, because other sessions see them", ""),))
    if deletion.missing_ids:
        lines.append(((f"linked but not there: {', '.join(deletion.missing_ids)}", "yellow"),))
    return lines


def scope_deletion_lines(deletion: ScopeDeletion) -> list[Line]:
    """Return what went with a scope, or in a dry run would go, and what stays."""
    parts = [
        counted(len(deletion.session_ids), "session"),
        counted(deletion.memories, "memory", "memories"),
        counted(deletion.files, "file"),
        counted(deletion.budgets, "budget"),
    ]
    verb = "would be deleted" if deletion.entries_deleted is None else "deleted"
    lines: list[Line] = [((f"{', '.join(parts)} {verb}", "bold"),)]
    if deletion.entries_kept:
        kept = counted(deletion.entries_kept, "entry", "entries")
        lines.append(((f"{kept} stay, because sessions of other scopes see them", ""),))
    if deletion.calls:
        calls = counted(deletion.calls, "paid call")
        lines.append(((f"what was paid stays: {calls}, without agents and folders", ""),))
    return lines


def store_facts(info: StoreInfo) -> list[tuple[str, str]]:
    """Return the facts about a store, as names and values."""
    return [
        ("store", info.location),
        ("backend", info.backend),
        ("format", str(info.format_version)),
        ("sessions", f"{info.sessions:,}"),
        ("entries", f"{info.entries:,}"),
        ("paid calls", f"{info.ledger_rows:,}"),
        ("documents", f"{info.documents:,}" if info.documents else ""),
        ("size", "" if info.size_bytes is None else f"{info.size_bytes:,} bytes"),
    ]
