"""What each command and the library say about one session, fact by fact, under the same names.

The words are those of docs/glossary.md. A shortened value (a cost of four digits, a day instead of a moment) is a
`Short`: it has to equal the whole value, shortened in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import flue_py
from flue_py.sync import Store
from tests.edges.cli_runs import Flue
from tests.render.test_report import data_of
from tests.values import existing

_KINDS = ("input", "output", "cache_read", "cache_write", "tokens")
_PATH_KINDS = frozenset(f"path_{name}" for name in _KINDS)
_WIDE = {"COLUMNS": "600"}
_LONG = 100
"""Of a longer path, what is printed line by line is left out: its sizes would be counted, which takes seconds."""


@dataclass(frozen=True)
class Short:
    """A value as it is printed where there is no room for all of it."""

    text: str

    def is_short_for(self, whole: Any) -> bool:
        """Return whether the whole value can be printed so."""
        text = self.text.removeprefix("$").replace(",", "")
        if isinstance(whole, Decimal):
            return whole.quantize(Decimal(text)) == Decimal(text)
        return text.removesuffix("…").rstrip() in str(whole)


class Told:
    """Facts of one session: what each source says, by the name of the fact."""

    def __init__(self) -> None:
        self.facts: dict[str, dict[str, Any]] = {}

    def tell(self, source: str, **facts: Any) -> None:
        """Note what a source says."""
        for name, value in facts.items():
            self.facts.setdefault(name, {})[source] = value

    def disagreements(self) -> list[str]:
        """Return the facts that are not told alike, with who says what."""
        return [
            f"{name}: {said}"
            for name, said in self.facts.items()
            if not _agree(_counted(said.values()) if name in _PATH_KINDS else list(said.values()))
        ]


def _counted(counts: Iterable[int | None]) -> list[int]:
    """Return counts of tokens; what nobody reported is null on a bill, and adds nothing to what others sum."""
    return [count or 0 for count in counts]


def _agree(values: list[Any]) -> bool:
    whole = [value for value in values if not isinstance(value, Short)]
    short = [value for value in values if isinstance(value, Short)]
    assert whole, "a fact is told whole by somebody"
    return all(value == whole[0] for value in whole) and all(value.is_short_for(whole[0]) for value in short)


def facts_of_all(flue: Flue) -> dict[str, Told]:
    """Return what everything that reads sessions says of each, by its id. The bundle is of the whole store."""
    rows = flue.json("sessions")
    printed = flue.run("sessions", env=_WIDE).stdout.splitlines()
    bills = {row["session"]: row for row in flue.json("usage", "--all", "--by", "session")["rows"]}
    bundled = {row["id"]: row for row in _unbundled(flue).json("sessions")}
    found = {row["id"]: Told() for row in rows}
    for row in rows:
        told = found[row["id"]]
        told.tell("sessions --json", **_row_facts(row))
        told.tell("sessions", **_printed_row(printed, row["id"]))
        told.tell("bundle", **_row_facts(bundled[row["id"]]))
        if row["id"] in bills:
            told.tell("usage --by session --json", **_named("own_", _bill(bills[row["id"]])))
    with flue_py.sync.open(flue.database) as store:
        for session_id, told in found.items():
            _tell_library(told, store, session_id)
    for session_id, told in found.items():
        _tell_shown(told, flue, session_id)
        _tell_bills(told, flue, session_id)
        _tell_tree(told, flue, session_id)
        _tell_paths(told, flue, session_id)
        _tell_transcript(told, flue.run("export", "markdown", session_id).stdout)
        page = flue.run("export", "html", session_id, "--no-sizes", "--output", "-").stdout
        _tell_report(told, data_of(page), session_id)
    return found


def facts_of_store(flue: Flue) -> Told:
    """Return what is said of how much a whole store holds."""
    told = Told()
    info, rows = flue.json("info"), flue.json("sessions")
    told.tell("info --json", sessions=info["sessions"], entries=info["entries"], calls=info["ledgerRows"])
    told.tell("sessions --json", sessions=len(rows), tokens=sum(row["spentTokens"] or 0 for row in rows))
    told.tell("sessions --json", cost=sum((_exact(row["spent"]) or Decimal(0) for row in rows), Decimal(0)))
    made = flue.json("bundle", str(flue.folder / "again.bundle"))
    told.tell("bundle --json", sessions=made["sessions"], entries=made["entries"], calls=made["calls"])
    checked = flue.json("verify")
    told.tell("verify --json", sessions=checked["sessions"], entries=checked["entries"])
    bill = _bill(flue.json("usage", "--all")["total"])
    told.tell("usage --all --json", tokens=bill["tokens"], cost=bill["cost"], calls=bill["calls"])
    with flue_py.sync.open(flue.database) as store:
        total = store.usage().total
        told.tell("library", sessions=store.info().sessions, tokens=total.total_tokens, cost=total.cost)
    return told


def _unbundled(flue: Flue) -> Flue:
    """Return a database that has what a bundle of the whole store brought."""
    file = flue.folder / "whole.bundle"
    copy = Flue(flue.folder)
    copy.database = file.with_suffix(".db")
    flue.run("bundle", str(file), "--keep-paths")
    copy.run("unbundle", str(file))
    return copy


# -- the session's row ------------------------------------------------------------------------------------------------


def _row_facts(row: Any) -> dict[str, Any]:
    return {
        "name": row["name"], "title": row["title"] or "", "made_title": row["autoTitle"] or "", "kind": row["kind"],
        "model": row["model"] or "", "folder": row["cwd"] or "", "own_entries": row["entryCount"],
        "own_messages": row["messageCount"], "own_tokens": row["spentTokens"], "own_cost": _exact(row["spent"]),
        "own_unpriced": row["unpricedCalls"], "created": _moment(row["createdAt"]),
        "last_active": _moment(row["activeAt"]), "leaf": row["leafId"],
    }  # fmt: skip


def _printed_row(lines: list[str], session_id: str) -> dict[str, Any]:
    head = lines[0]
    line = next(line for line in lines[1:] if session_id.startswith(line.split()[0]))
    active, msgs, cost = (head.index(name) for name in ("active", "msgs", "$"))
    project, model, title = (head.index(name) for name in ("project", "model", "title"))
    return {
        "name": line[title:].removeprefix("task: "),
        "last_active": Short(line[active : active + 10]),
        "own_messages": int(line[active + 10 : msgs + 4]),
        "own_cost": _printed_money(line[msgs + 4 : cost + 1]),
        "folder_name": line[project:model].strip(),
        "model": Short(line[model:title].strip()),
    }


def _tell_shown(told: Told, flue: Flue, session_id: str) -> None:
    row = flue.json("show", session_id)
    told.tell("show --json", **_row_facts(row), tasks=len(row["tasks"]))
    lines = flue.run("show", session_id, env=_WIDE).stdout.splitlines()
    pairs = [re.split(r"\s{2,}", line, maxsplit=1) for line in lines]
    told.tell("show", **_facts_shown(dict(pairs)), tasks=sum(name == "task" for name, _ in pairs))


def _facts_shown(shown: dict[str, str]) -> dict[str, Any]:
    entries, messages = (int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", shown["own entries"]))
    folder = shown.get("folder", "")
    facts: dict[str, Any] = {
        "name": shown["name"], "title": shown.get("title", ""), "made_title": shown.get("made title", ""),
        "kind": shown["kind"], "folder": folder, "folder_name": folder.rpartition("/")[2], "own_entries": entries,
        "own_messages": messages, "created": Short(shown["created"].removesuffix(" UTC")),
        "last_active": Short(shown["last active"].removesuffix(" UTC")),
        "leaf": None if shown["leaf"] == "(before the first entry)" else shown["leaf"],
    }  # fmt: skip
    if "model" in shown:
        facts["model"] = shown["model"]
    if "spent" in shown:
        tokens, _, cost = shown["spent"].partition(" tokens, ")
        facts.update(own_tokens=_count(tokens), own_cost=_exact(cost.removeprefix("$").removesuffix(" + ?")))
    return facts


# -- what was paid ----------------------------------------------------------------------------------------------------


def _tell_bills(told: Told, flue: Flue, session_id: str) -> None:
    for source, prefix, options in (
        ("usage --all", "own_", ("--all",)),
        ("usage --path", "path_", ("--path",)),
        ("usage --tasks", "bill_", ("--tasks", "--all")),
    ):
        told.tell(f"{source} --json", **_named(prefix, _bill(flue.json("usage", session_id, *options)["total"])))
        told.tell(source, **_named(prefix, _printed_bill(flue.lines("usage", session_id, *options))))
    window = flue.json("usage", session_id)
    told.tell("usage --json", **_named("path_", _bill(window)))
    told.tell("usage", **_named("path_", _printed_window(flue.lines("usage", session_id))))


def _named(prefix: str, facts: dict[str, Any]) -> dict[str, Any]:
    return {prefix + name: value for name, value in facts.items()}


def _bill(row: Any) -> dict[str, Any]:
    facts = {
        "input": row["input"],
        "output": row["output"],
        "cache_read": row["cacheRead"],
        "cache_write": row["cacheWrite"]
        if "cacheWrite" in row
        else _known_sum(row["cacheWrite5m"], row["cacheWrite1h"]),
        "tokens": row["totalTokens"],
    }
    if "calls" in row:
        cost = row["costUsd"] if "costUsd" in row else row["cost"]["total"]
        facts.update(calls=row["calls"], unpriced=row["unpricedCalls"], cost=_exact(cost))
    return _billed(facts)


def _known_sum(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _billed(facts: dict[str, Any]) -> dict[str, Any]:
    """Return what a bill says; nothing but that where it has no calls: what nothing was told of is not on it."""
    return facts if facts.get("calls", 1) else {"calls": 0}


def _printed_bill(lines: list[str]) -> dict[str, Any]:
    calls, *counts, cost = lines[1].split()
    facts: dict[str, Any] = dict(zip(_KINDS, map(_count, counts), strict=True))
    return _billed({**facts, "calls": _count(calls), "cost": _exact(cost)})


def _printed_window(lines: list[str]) -> dict[str, Any]:
    rows = {name.strip(): rest.split() for line in lines if (name := line[:12]) and (rest := line[12:])}
    names = {"input": "input", "output": "output", "cache read": "cache_read", "cache write": "cache_write"}
    return {ours: _count(rows[name][0]) for name, ours in {**names, "total": "tokens"}.items()}


# -- the tree and its paths -------------------------------------------------------------------------------------------


def _tell_tree(told: Told, flue: Flue, session_id: str) -> None:
    tree = flue.json("tree", session_id, "--no-sizes")
    told.tell(
        "tree --json",
        name=tree["name"],
        entries=len(tree["entries"]),
        tasks=len(tree["tasks"]),
        branches=len(tree["branches"]),
        leaf=tree["leafId"],
        own_tokens=tree["spentTokens"],
        own_cost=_exact(tree["spent"]),
        own_unpriced=tree["unpricedCalls"],
    )
    title = flue.run("tree", session_id, "--no-sizes", env=_WIDE).stdout.splitlines()[0]
    found = re.fullmatch(
        r"(?P<name>.*), (?P<entries>[\d,]+) entr\w+, (?P<branches>[\d,]+) branch\w*"
        r"(, (?P<tokens>[\d,]+)( \+ \?)? tokens used)?(, (?P<cost>\$[\d.,+ ?]+|no known cost))?",
        title,
    )
    assert found, title
    told.tell(
        "tree", name=found["name"], entries=_count(found["entries"]), branches=_count(found["branches"]),
        own_cost=_printed_money(found["cost"] or "$0.00"),
    )  # fmt: skip
    if found["tokens"]:
        told.tell("tree", own_tokens=_count(found["tokens"]))


def _tell_paths(told: Told, flue: Flue, session_id: str) -> None:
    path = flue.json("show", session_id, "--path")
    told.tell("path --json", path_entries=len(path), leaf=path[-1]["id"] if path else None)
    told.tell("conversation --json", turns=len(flue.json("show", session_id, "--turns", "--all")))
    told.tell("context --json", context_messages=len(flue.json("context", session_id)))
    if len(path) > _LONG:
        return
    told.tell("path", path_entries=len(flue.run("show", session_id, "--path").stdout.splitlines()))
    head, *lines = flue.lines("context", session_id)
    told.tell("context", context_messages=_count(head.split()[0]))
    assert len(lines) == _count(head.split()[0])


# -- what is exported -------------------------------------------------------------------------------------------------


def _tell_transcript(told: Told, text: str) -> None:
    head = dict(re.findall(r"^\*\*(\w+):\*\* (.*?)(?:  )?$", text.partition("\n---\n")[0], re.MULTILINE))
    name = text.splitlines()[0].removeprefix("# Transcript: ")
    told.tell(
        "transcript",
        name=re.sub(r"\\(.)", r"\1", name),
        created=Short(head["Date"].removesuffix(" UTC")),
        folder=head.get("Folder", "``").strip("`"),
    )
    # It numbers the turns of agents; the others count the prompts of people.
    headings = re.findall(r"^## \[.*\] — Turn \d+  ·  (.*)$", text, re.MULTILINE)
    used = [dict(re.findall(r"([a-z-]+):([\d,]+)", facts)) for facts in headings]
    names = {"input": "in", "output": "out", "cache_read": "cached", "cache_write": "cache-written"}
    told.tell("transcript", **{f"path_{name}": _sum(used, word) for name, word in names.items()})
    costs = [_exact(cost) for facts in headings for cost in re.findall(r"\$([\d.,]+|–)", facts)]
    known = [cost for cost in costs if cost is not None]
    told.tell(
        "transcript", path_calls=len(costs), path_cost=sum(known, Decimal(0)) if known or not costs else None,
        turns=len(re.findall(r"^## \[Human\] — Turn ", text, re.MULTILINE)),
    )  # fmt: skip


def _tell_report(told: Told, data: Any, session_id: str) -> None:
    session = data["sessions"][0]
    assert session["id"] == session_id
    entries = session["entries"]
    parents = {entry.get("parent") for entry in entries}
    told.tell(
        "report",
        **_facts_shown(dict(session["facts"])),
        entries=len(entries),
        branches=sum(place not in parents for place in range(len(entries))),
        tasks=sum(each["parent"] == session_id for each in data["sessions"]),
        own_tokens=session["spent"]["tokens"],
        own_cost=_paid_cost(session["spent"]["paid"]),
        own_unpriced=session["spent"]["paid"][2],
    )
    told.tell("report's title", name=data["title"])
    told.tell("report's list", name=session["name"])
    usage, paid = data["models"]["total"]["usage"], data["models"]["total"]["paid"]
    names = ("bill_input", "bill_output", "bill_cache_read", "bill_cache_write")
    told.tell("report's bill", **dict(zip(names, usage, strict=True)), bill_cost=_paid_cost(paid), bill_calls=paid[1])
    path: list[Any] = []
    at = session["leaf"]
    while at is not None:
        path.insert(0, entries[at])
        at = entries[at].get("parent")
    told.tell("report's entries", path_entries=len(path), turns=sum(entry.get("asks", False) for entry in path))
    calls = [entry["paid"][:3] for entry in path if "paid" in entry]
    told.tell(
        "report's entries",
        path_calls=sum(count for _, count, _ in calls),
        path_cost=_paid_cost([sum(column) for column in zip(*calls, strict=True)] or [0, 0, 0]),
    )
    used = [entry["usage"] for entry in path if "usage" in entry]
    for place, name in enumerate(_KINDS):
        told.tell("report's entries", **{f"path_{name}": _known_sum(*(usage[place] for usage in used))})


def _paid_cost(paid: Any) -> Decimal | None:
    picodollars, calls, unpriced, untold = (*paid, 0)[:4]
    is_unknown = not picodollars and (unpriced or (untold and not calls))
    return None if is_unknown else Decimal(picodollars).scaleb(-12)


# -- the library ------------------------------------------------------------------------------------------------------


def _tell_library(told: Told, store: Store, session_id: str) -> None:
    session = existing(store.get_session(session_id))
    info = session.refresh()
    told.tell(
        "library",
        name=session.reports.name(),
        title=info.title or "",
        made_title=info.auto_title or "",
        kind=info.kind,
        folder=info.cwd or "",
        own_entries=info.entry_count,
        own_messages=info.message_count,
        own_tokens=info.known_tokens,
        own_cost=info.known_spent,
        own_unpriced=info.unpriced_calls,
        created=_moment(info.created_at.isoformat()),
        last_active=_moment(info.active_at.isoformat()),
        leaf=info.leaf_id,
        entries=len(session.get_tree()),
        path_entries=len(session.get_active_path()),
        context_messages=len(session.build_context()),
        turns=len(session.turns()),
        tasks=len(session.tasks.links()),
    )
    own, path, bill = store.usage(session), store.usage(session, path=True), store.usage(session, tasks=True)
    for prefix, report in (("own_", own), ("path_", path), ("bill_", bill)):
        told.tell("library's usage", **_named(prefix, _bill(report.total.to_json())))
    window = session.money.aggregate_usage_since(None, told=True).known
    told.tell(
        "library's window", path_input=window["input"], path_output=window["output"],
        path_cache_read=window["cacheRead"], path_cache_write=window["cacheWrite"], path_tokens=window["totalTokens"],
    )  # fmt: skip


# -- values -----------------------------------------------------------------------------------------------------------


def _exact(text: str | None) -> Decimal | None:
    return None if text in (None, "-", "–", "no known cost") else Decimal(str(text).replace(",", ""))


def _printed_money(text: str) -> Any:
    shown = text.strip().removeprefix("$").removesuffix(" + ?").removesuffix("+")
    return None if shown in ("-", "no known cost") else Short(shown)


def _sum(used: list[dict[str, str]], word: str) -> int:
    return sum(int(each.get(word, "0").replace(",", "")) for each in used)


def _count(text: str) -> int | None:
    return None if text == "-" else int(text.replace(",", ""))


def _moment(text: str) -> str:
    """Return a time as it is printed, to the microsecond."""
    whole = text.replace("T", " ").removesuffix("Z").removesuffix("+00:00")
    return whole if "." in whole else f"{whole}.000000"
