"""What a search found, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flue_py.core.entries import from_microseconds
from flue_py.core.jsontext import JsonObject
from flue_py.render.lines import Line, Span, counted, one_line, printable
from flue_py.render.rows import iso
from flue_py.render.views import minute
from flue_py.search.values import Place, SearchAnswer, Searched, SearchHit, SessionHits, Snippet

_WHERE: Mapping[Place, str] = {
    "active": "",
    "abandoned": "on another branch",
    "compacted": "compacted away",
    "title": "the title",
}


def search_lines(answer: SearchAnswer, names: Mapping[str, str]) -> Iterable[Line]:
    """Yield the hits, session by session, and then what was searched. ``names`` are those of the sessions, by id."""
    for group in answer.sessions:
        yield from _group_lines(group, names[group.session.id])
    if answer.has_more:
        yield (("there is more: --limit shows more of it", "dim"),)
    yield ((searched_text(answer), "dim"),)


def _group_lines(group: SessionHits, name: str) -> Iterable[Line]:
    yield ((name, "bold"), (f"  {one_line(group.session.id)}, up to revision {group.revision}", "dim"))
    for hit in group.hits:
        yield (("  ", ""), *_facts(hit))
        yield (("    ", ""), *_marked(hit.snippet))
        yield ((f"    {printable(hit.go)}", "cyan"),)
    yield ()


def _facts(hit: SearchHit) -> tuple[Span, ...]:
    what = [hit.role or hit.part.removesuffix("s"), hit.tool, _WHERE[hit.place], "by its id" if hit.by_id else None]
    said = ", ".join(one_line(each) for each in what if each)
    cut = " (only its beginning is searched)" if hit.is_cut else ""
    return ((minute(from_microseconds(hit.at_us)), "dim"), (f" {said}{cut}", ""))


def _marked(snippet: Snippet) -> Iterable[Span]:
    """Yield a snippet with its matches in bold."""
    at = 0
    for start, end in snippet.matches:
        yield printable(snippet.text[at:start]), ""
        yield printable(snippet.text[start:end]), "bold yellow"
        at = end
    yield printable(snippet.text[at:]), ""


def searched_text(answer: SearchAnswer) -> str:
    """Return what was searched, and how, in one line."""
    searched = answer.searched
    text = f"searched {counted(searched.entries, 'entry', 'entries')} of {counted(searched.sessions, 'session')}"
    if searched.newest is not None:
        session_id, revision = searched.newest
        whose = "" if searched.sessions == 1 else f" of {one_line(session_id)}, which was active last"
        text += f" up to revision {revision}{whose},"
    text += f" in {', '.join(searched.parts)}"
    if searched.left_out:
        text += f"; not in {', '.join(searched.left_out)}"
    if searched.why_not is not None:
        text += f"; {one_line(searched.why_not)}"
    return text


def search_row(answer: SearchAnswer, names: Mapping[str, str]) -> JsonObject:
    """Return an answer as JSON."""
    searched = answer.searched
    return {
        "words": answer.words,
        "how": answer.how,
        "hits": [_hit_row(group, hit, names[group.session.id]) for group in answer.sessions for hit in group.hits],
        "hasMore": answer.has_more,
        "searched": {
            "sessions": searched.sessions,
            "entries": searched.entries,
            "revisions": searched.revisions,
            "newest": _newest_row(searched),
            "parts": list(searched.parts),
            "leftOut": list(searched.left_out),
            "byIndex": searched.by_index,
            "whyNot": searched.why_not,
        },
        "widen": list(answer.widen),
        "suggestions": list(answer.suggestions),
    }


def _newest_row(searched: Searched) -> JsonObject | None:
    if searched.newest is None:
        return None
    session_id, revision = searched.newest
    return {"sessionId": session_id, "revision": revision}


def _hit_row(group: SessionHits, hit: SearchHit, name: str) -> JsonObject:
    return {
        "sessionId": hit.session_id,
        "sessionName": name,
        "scope": group.session.scope,
        "revision": group.revision,
        "entryId": hit.entry_id,
        "part": hit.part,
        "role": hit.role,
        "tool": hit.tool,
        "at": iso(from_microseconds(hit.at_us)),
        "place": hit.place,
        "snippet": hit.snippet.text,
        "matches": [list(match) for match in hit.snippet.matches],
        "isCut": hit.is_cut,
        "go": hit.go,
        "byId": hit.by_id,
    }
