"""Run the reference's fixtures against flue_py.

    python tests/conformance/run.py [--backend memory|sqlite|aiosqlite] [--url URL] FILE...

A FILE is a fixture file as it is, or compressed (``.gz``). Each mismatch is printed with its case and op, and the
last line is ``N passed, M failed, K skipped``; the exit code is 1 where anything failed.

A case has passed where every comparison holds as the fixture says. A case is skipped only for a tag, and only
where flue_py's answer differs there; that answer is asserted instead, and is in docs/conformance.md. History,
deletion and lifecycle go through the public surface (`flue_py.open`), stored data through `flue_py.formats.flue`.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flue_py
from flue_py.compaction import (
    FAITHFUL_POLICY,
    CompactionSettings,
    NoCompaction,
    PreviousCompaction,
    SummaryFailed,
    SummaryReply,
    SummaryRequest,
    appended_file_lists,
    calculate_context_tokens,
    estimate_context_tokens,
    estimate_tokens,
    file_lists,
    plan_session_compaction,
    prepare_compaction,
    serialize_conversation,
    should_compact,
    summarize,
)
from flue_py.core.entries import to_microseconds
from flue_py.core.jsontext import utf16_length
from flue_py.core.usage import sum_usage
from flue_py.formats.flue import parse_session_document, session_document, task_references
from flue_py.runtime.harness import Harness, HarnessSession

FORMAT = "flue_py-conformance/1"
TOLERANCE = 1e-9
DEFAULT_TIME = "2025-12-31T00:00:00.000Z"
ROLES = ("dev", "qa")
CWD = "/w"

Json = Any
Case = Mapping[str, Any]
Op = Mapping[str, Any]


class OwnAnswer(Exception):
    """Raised where flue_py's documented answer to a tagged state was given, and the rest cannot be compared."""


class Mismatch(AssertionError):
    """What the fixture says and what flue_py answered are not the same."""


@dataclass
class Outcome:
    """What became of the cases of one file."""

    suite: str
    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return len(self.passed) + len(self.failed) + len(self.skipped)


# -- comparing ----------------------------------------------------------------------------------------------------


def difference(expected: Json, actual: Json, path: str = "", *, money: bool = False) -> str | None:
    """Return where two JSON values differ first, or None. Numbers compare by value, costs with a tolerance."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        if expected.keys() != actual.keys():
            return f"{path or '.'}: keys {sorted(expected)} expected, got {sorted(actual)}"
        pairs = ((f"{path}.{key}", expected[key], actual[key], money or key == "cost") for key in expected)
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return f"{path or '.'}: {len(expected)} items expected, got {len(actual)}: {expected!r} and {actual!r}"
        pairs = ((f"{path}[{n}]", *both, money) for n, both in enumerate(zip(expected, actual, strict=True)))
    else:
        return None if _same(expected, actual, money) else f"{path or '.'}: expected {expected!r}, got {actual!r}"
    return next((found for p, e, a, m in pairs if (found := difference(e, a, p, money=m)) is not None), None)


def _same(expected: Json, actual: Json, money: bool) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        return abs(expected - actual) <= TOLERANCE if money else expected == actual
    return type(expected) is type(actual) and bool(expected == actual)


def check(expected: Json, actual: Json) -> None:
    found = difference(expected, actual)
    if found is not None:
        raise Mismatch(found)


# -- the store under test -----------------------------------------------------------------------------------------


class FixtureClock:
    """A clock that stands still until a fixture sets it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def set(self, at: str | None) -> None:
        if at is not None:
            self.now = datetime.fromisoformat(at)


class Engine:
    """One store of the backend under test, which can be closed and opened again."""

    def __init__(self, backend: str, target: str) -> None:
        self.backend = backend
        self.clock = FixtureClock()
        self._target = target
        self._stack = AsyncExitStack()
        self.store: flue_py.Store

    async def start(self) -> None:
        opening = flue_py.open(self._target, durability="normal", clock=self.clock)
        self.store = await self._stack.enter_async_context(opening)

    async def stop(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        """Forget everything that is not stored. A store in memory has nothing to forget but its handles."""
        if self.backend != "memory":
            await self.stop()
            await self.start()


@asynccontextmanager
async def running(backend: str, url: str | None = None) -> AsyncIterator[Engine]:
    with tempfile.TemporaryDirectory() as folder:
        targets = {
            "memory": ":memory:",
            "sqlite": f"{folder}/conformance.db",
            "aiosqlite": f"sqlite+aiosqlite:///{folder}/conformance.db",
        }
        engine = Engine(backend, url or targets[backend])
        await engine.start()
        try:
            yield engine
            report = await engine.store.verify()
            check([], [str(problem) for problem in report.problems])
        finally:
            await engine.stop()


# -- history ------------------------------------------------------------------------------------------------------


class History:
    """One case of the history files: a session, and the ids its entries have in the fixture."""

    def __init__(self, engine: Engine, case: Case) -> None:
        self.engine = engine
        self.tags = frozenset(case.get("tags", ()))
        self.scope = case["name"]
        self.session: flue_py.Session
        self._symbols: dict[str, str] = {}
        self._reals: dict[str, str] = {}
        self._own_time: set[str] = set()

    async def start(self) -> None:
        self.session = await self.engine.store.create_session(scope=self.scope)

    # The n-th entry made is e<n>, whatever its real id.

    def made(self, *entry_ids: str, dated: bool = True) -> list[str]:
        for entry_id in entry_ids:
            symbol = f"e{len(self._symbols)}"
            self._symbols[entry_id] = symbol
            self._reals[symbol] = entry_id
            if not dated:
                self._own_time.add(entry_id)
        return [self._symbols[entry_id] for entry_id in entry_ids]

    def real(self, symbol: str | None) -> str | None:
        return self._reals.get(symbol, symbol) if symbol is not None else None

    def symbol(self, entry_id: str | None) -> str | None:
        return self._symbols.get(entry_id, entry_id) if entry_id is not None else None

    def symbols(self, entries: list[flue_py.Entry]) -> list[str | None]:
        return [self.symbol(entry.id) for entry in entries]

    # -- what changes something

    async def append_message(self, op: Op) -> None:
        self.engine.clock.set(op.get("at"))
        appended = await self.session.append_message(op["message"], source=op.get("source"))
        check([op["result"]], self.made(*appended.entry_ids))

    async def append_messages(self, op: Op) -> None:
        times = op.get("at") or [None]
        self.engine.clock.set(times[0])  # a batch is one transaction, at one time
        appended = await self.session.append_messages(op["messages"], source=op.get("source"))
        check(op["result"], self.made(*appended.entry_ids, dated=False))

    async def append_compaction(self, op: Op) -> None:
        self.engine.clock.set(op.get("at"))
        try:
            appended = await self.session.append_compaction(
                op["summary"],
                first_kept_entry_id=self.real(op["first_kept"]) or "",
                tokens_before=op["tokens_before"],
                details=op.get("details"),
                usage=op.get("usage"),
            )
        except flue_py.EntryNotFound:
            check(op.get("error_kind"), "unknown_entry")
        else:
            check(op.get("result"), self.made(*appended.entry_ids)[0])

    async def append_branch_summary(self, op: Op) -> None:
        self.engine.clock.set(op.get("at"))
        appended = await self.session.append_branch_summary(
            op["summary"], from_id=self.real(op["from"]), details=op.get("details")
        )
        check([op["result"]], self.made(*appended.entry_ids))

    async def remove_leaf_message(self, op: Op) -> None:
        if op.get("equal_copy") and "identity" in self.tags:
            return  # an entry is named by its id here: there is no such thing as an equal copy of it
        entry_id = self.real(op["entry"]) or ""
        tree = await self.session.get_tree()
        has_children = any(entry.parent_id == entry_id for entry in tree)
        removed = await self.session.remove_leaf_message(entry_id)
        if "orphans" in self.tags and op["result"] is True and has_children:
            check(False, removed)
            check(self.symbols(tree), self.symbols(await self.session.get_tree()))
            raise OwnAnswer
        check(op["result"], removed)

    async def move_leaf(self, op: Op) -> None:
        before = self.session.leaf_id
        try:
            await self.session.move_leaf(self.real(op["to"]))
        except flue_py.EntryNotFound:
            if "dangling_leaf" not in self.tags:
                raise
            check(before, (await self.session.refresh()).leaf_id)
            raise OwnAnswer from None

    async def reload(self, op: Op) -> None:
        session_id = self.session.id
        await self.engine.restart()
        session = await self.engine.store.get_session(session_id, scope=self.scope)
        assert session is not None
        self.session = session

    async def load(self, op: Op) -> None:
        document = parse_session_document(op["data"])
        new = flue_py.NewSession(scope=self.scope, metadata_text=json.dumps(document.metadata))
        self.session = await self.engine.store.import_session(new, document.entries, leaf=document.leaf_id)
        self._symbols = {row["id"]: row["id"] for row in op["data"]["entries"]}
        self._reals = dict(self._symbols)

    async def run_compaction(self, op: Op) -> None:
        self.engine.clock.set(op.get("at"))
        calls: list[SummaryRequest] = []

        async def complete(request: SummaryRequest) -> SummaryReply:
            calls.append(request)
            return canned_reply(op["replies"], len(calls) - 1)

        tree_before = self.symbols(await self.session.get_tree())
        latest = await self.session.latest_compaction()
        planned = plan_session_compaction(
            await self.session.build_context_entries(),
            None if latest is None else SimpleNamespace(**{"details": None, **latest.fields}),
            CompactionSettings(op["reserve_tokens"], op["keep_recent_tokens"]),
            FAITHFUL_POLICY,
        )
        if isinstance(planned, NoCompaction):
            check([op["result"], op.get("reason")], [None, planned.reason])
            return
        try:
            summary = await summarize(planned.plan, complete)
        except SummaryFailed as error:
            what = "Turn prefix summarization" if error.kind == "turn_prefix" else "Summarization"
            check([op["result"], op.get("reason")], [None, f"Failed: {what} failed: {error.reason}"])
            check(tree_before, self.symbols(await self.session.get_tree()))
        else:
            appended = await self.session.append_compaction(
                summary.text,
                first_kept_entry_id=planned.first_kept_entry_id,
                tokens_before=planned.plan.tokens_before,
                details=summary.details,
                calls=summary.usages,
            )
            check(op["result"], self.made(*appended.entry_ids)[0])
            (entry,) = [row for row in (await self._document())["entries"] if row["id"] == op["result"]]
            check(op["entry"], {name: value for name, value in entry.items() if name != "timestamp"})
            check(op["context_len"], len(await self.session.build_context()))
        expected = op.get("calls", [])
        check(expected, [_call_json(call, like) for call, like in zip(calls, expected, strict=True)])

    # -- what asks something

    async def active_path(self, op: Op) -> None:
        check(op["expect"], self.symbols(await self.session.get_active_path()))

    async def active_path_since(self, op: Op) -> None:
        check(op["expect"], self.symbols(await self.session.get_active_path_since(self.real(op["since"]))))

    async def build_context(self, op: Op) -> None:
        items = await self.session.build_context_entries()
        messages = await self.session.build_context()
        check([item.data for item in items], messages)
        expected = op["expect"]
        actual = [
            {
                "entry": self.symbol(item.entry_id),
                "kind": item.kind,
                "role": item.role,
                "message": message,
                "text": _text(message) if item.kind != "message" else None,
                "timestamp_ms": message.get("timestamp"),
            }
            for item, message in zip(items, messages, strict=True)
        ]
        check(len(expected), len(actual))
        check(expected, [{name: item[name] for name in like} for item, like in zip(actual, expected, strict=True)])

    async def latest_compaction(self, op: Op) -> None:
        entry = await self.session.latest_compaction()
        fields = None if entry is None else entry.fields
        check(
            op["expect"],
            None
            if entry is None or fields is None
            else {
                "entry": self.symbol(entry.id),
                "first_kept": self.symbol(str(fields["firstKeptEntryId"])),
                "tokens_before": fields["tokensBefore"],
                "summary": fields["summary"],
            },
        )

    async def aggregate_usage_since(self, op: Op) -> None:
        window = await self.session.aggregate_usage_since(self.real(op["since"]))
        check(op["expect"], window.usage.to_json())

    async def latest_assistant(self, op: Op) -> None:
        entry = await self.session.latest_assistant()
        check(op["expect"], None if entry is None else self.symbol(entry.id))

    async def leaf(self, op: Op) -> None:
        check(op["expect"], self.symbol((await self.session.refresh()).leaf_id))

    async def tree(self, op: Op) -> None:
        entries = [
            [self.symbol(entry.id), entry.kind, self.symbol(entry.parent_id)] for entry in await self.session.get_tree()
        ]
        expected = op["expect"]["entries"]
        if "out_of_order_entries" in self.tags and entries != expected:
            check(sorted(expected), sorted(entries))
            seen: set[str | None] = {None}
            for entry_id, _, parent in entries:
                assert parent in seen, f"{entry_id} comes before its parent {parent}"
                seen.add(entry_id)
            raise OwnAnswer
        check(op["expect"], {"leaf": self.symbol(self.session.leaf_id), "entries": entries})

    async def to_data(self, op: Op) -> None:
        actual = await self._document(op)
        expected = op["expect"]
        for theirs, ours in zip(expected["entries"], actual["entries"], strict=False):
            if "timestamp" not in theirs:
                del ours["timestamp"]
            elif self.real(ours["id"]) in self._own_time:
                ours["timestamp"] = theirs["timestamp"]
        check(expected, actual)

    async def _document(self, op: Op | None = None) -> dict[str, Json]:
        asked = op or {}
        document = session_document(
            await self.session.get_tree(),
            self.session.leaf_id,
            metadata=asked.get("metadata", {}),
            created_us=to_microseconds(datetime.fromisoformat(asked.get("created_at", DEFAULT_TIME))),
            updated_us=to_microseconds(datetime.fromisoformat(asked.get("updated_at", DEFAULT_TIME))),
        )
        rows: Json = document["entries"]
        for row in rows:
            row.update((name, self.symbol(row[name])) for name in _ID_FIELDS & row.keys())
        return {**document, "leafId": self.symbol(self.session.leaf_id)}


_ID_FIELDS = {"id", "parentId", "firstKeptEntryId", "fromId"}


def _text(message: Json) -> Json:
    (part,) = message["content"]
    return part["text"]


def canned_reply(replies: list[Json], number: int) -> SummaryReply:
    reply = replies[number] if number < len(replies) else {"text": f"reply-{number}"}
    if "error" in reply:
        raise RuntimeError(reply["error"])
    return SummaryReply(reply["text"] if "text" in reply else "\n".join(reply["parts"]), reply.get("usage"))


def _call_json(call: SummaryRequest, like: Json) -> Json:
    seen = {
        "kind": call.kind,
        "max_tokens": call.max_tokens,
        "input": call.input,
        "input_len": utf16_length(call.input),
    }
    return {name: seen[name] for name in like}


# -- deletion and lifecycle ---------------------------------------------------------------------------------------


async def keys_in(store: flue_py.Store, scope: str) -> list[str]:
    keys: list[str] = []
    cursor = None
    while True:
        page = await store.list_sessions(scope=scope, cursor=cursor)
        keys += [info.key for info in page.sessions if info.key is not None]
        cursor = page.next_cursor
        if cursor is None:
            return sorted(keys)


async def run_deletion(engine: Engine, case: Case) -> None:
    scope = case["name"]
    for key in case["sessions"]:
        await engine.store.create_session(key=key, scope=scope, id=f"{scope}/{key}")
    for key, metadata in case["sessions"].items():
        for task in task_references(metadata):
            await engine.store.link_task(f"{scope}/{key}", f"{scope}/{task.storage_key}", task_id=task.task_id)
    root = f"{scope}/{case['root']}"
    planned = await engine.store.delete_session_tree(root, scope=scope, dry_run=True)
    check(sorted(case["sessions"]), await keys_in(engine.store, scope))
    deletion = await engine.store.delete_session_tree(root, scope=scope)
    check(case["expect"]["remaining"], await keys_in(engine.store, scope))
    called = {f"{scope}/{key}" for key in case["expect"]["delete_calls"]}
    stored = {f"{scope}/{key}" for key in case["sessions"]}
    check(sorted(called & stored), sorted(deletion.session_ids))
    check(sorted(planned.session_ids), sorted(deletion.session_ids))


class Lifecycle:
    """One case of the lifecycle file: a harness, and the handle last seen under each session name."""

    def __init__(self, engine: Engine, case: Case) -> None:
        self.engine = engine
        self.case = case
        self.scope = case["name"]
        self.handles: dict[str, HarnessSession] = {}

    async def start(self) -> None:
        case = self.case
        self.harness = Harness(
            self.engine.store, instance=case["instance"], name=case["harness"], roles=ROLES, cwd=CWD, scope=self.scope
        )

    async def open(self, op: Op) -> None:
        handle = await self.harness.open_session(op.get("name"), mode=op["mode"], role=op.get("role"))
        expected = {
            "name": handle.name,
            "storage_key": handle.storage_key,
            "role": handle.role,
            "same_object_as_before": self.handles.get(handle.name) is handle,
        }
        self.handles[handle.name] = handle
        check(op["expect"], expected)

    async def append(self, op: Op) -> None:
        session = self.handles[op["session"]].session
        await session.append_messages(op["messages"])
        check(op["expect"], len(await session.get_active_path()))

    async def task(self, op: Op) -> None:
        parent = self.handles[op["session"]]
        child = await parent.create_task(op["task_id"], role=op.get("role"))
        self.handles[child.name] = child
        actual = {
            "name": child.name,
            "storage_key": child.storage_key,
            "child_metadata": await child.read_metadata(),
            "parent_task_sessions": (await parent.read_metadata())["taskSessions"],
        }
        check(op["expect"], actual)

    async def delete(self, op: Op) -> None:
        await self.harness.delete_session(op.get("name"))

    async def restart(self, op: Op) -> None:
        await self.engine.restart()
        self.handles.clear()
        await self.start()

    async def keys(self, op: Op) -> None:
        check(op["expect"], await keys_in(self.engine.store, self.scope))

    async def stored(self, op: Op) -> None:
        key = self.harness.storage_key(op["name"])
        try:
            session = await self.engine.store.open_session(key, mode="get", scope=self.scope)
        except flue_py.SessionNotFound:
            check(op["expect"], None)
            return
        handle = HarnessSession(self.harness, op["name"], None, session)
        check(op["expect"], {"entries": len(await session.get_tree()), "metadata": await handle.read_metadata()})


# Flue's wording is Flue's; the condition decides which of our errors it has to be.
CONDITIONS = {
    "does not exist in harness": flue_py.SessionNotFound,
    "already exists in harness": flue_py.SessionExists,
    "has been deleted": flue_py.SessionNotFound,
    "cannot reopen with role": flue_py.InvalidArgument,
    "not registered": flue_py.InvalidArgument,
    "Maximum task depth": flue_py.TaskDepthExceeded,
}


async def run_ops(case: Case, runner: History | Lifecycle) -> None:
    await runner.start()
    for number, op in enumerate(case["ops"]):
        step = getattr(runner, op["op"])
        try:
            if isinstance(runner, Lifecycle) and "error" in op:
                await _expect_error(step, op)
            else:
                await step(op)
        except OwnAnswer:
            raise
        except Exception as error:
            text = str(error) if isinstance(error, Mismatch) else f"raised {error!r}"
            raise Mismatch(f"op {number} ({op['op']}): {text}") from error


async def _expect_error(step: Callable[[Op], Any], op: Op) -> None:
    (expected,) = [error for text, error in CONDITIONS.items() if text in op["error"]]
    try:
        await step({**op, "expect": None})
    except expected:
        return
    raise Mismatch(f"expected {expected.__name__} ({op['error']})")


# -- calls --------------------------------------------------------------------------------------------------------


def _settings(settings: Json) -> CompactionSettings:
    return CompactionSettings(**settings)


def prepared(case: Case) -> Json:
    previous = case["previous"]
    plan = prepare_compaction(
        case["messages"],
        _settings(case["settings"]),
        None if previous is None else PreviousCompaction(**previous),
        FAITHFUL_POLICY,
    )
    return plan and {
        "first_kept_index": plan.first_kept_index,
        "is_split_turn": plan.is_split_turn,
        "messages_to_summarize": len(plan.messages_to_summarize),
        "turn_prefix": len(plan.turn_prefix),
        "tokens_before": plan.tokens_before,
        "previous_summary": plan.previous_summary,
        "read_files": list(plan.read_files),
        "modified_files": list(plan.modified_files),
    }


def estimated(case: Case) -> Json:
    found = estimate_context_tokens(case["messages"], FAITHFUL_POLICY)
    names = ("tokens", "usage_tokens", "trailing_tokens", "last_usage_index")
    return {name: getattr(found, name) for name in names}


def listed(case: Case) -> Json:
    found = file_lists(case["read"], case["written"], case["edited"])
    return {
        "read_files": list(found.read_files),
        "modified_files": list(found.modified_files),
        "appended_text": appended_file_lists(found),
    }


CALLS: dict[str, Callable[[Case], Json]] = {
    "prepare_compaction": prepared,
    "estimate_tokens": lambda case: estimate_tokens(case["message"], FAITHFUL_POLICY),
    "estimate_context_tokens": estimated,
    "should_compact": lambda case: should_compact(
        case["context_tokens"], case["context_window"], _settings(case["settings"])
    ),
    "calculate_context_tokens": lambda case: calculate_context_tokens(case["usage"]),
    "sum_usage": lambda case: {"cost": sum_usage(case["usages"]).to_json()},
    "serialize_conversation": lambda case: serialize_conversation(case["messages"], FAITHFUL_POLICY),
    "file_lists": listed,
}


# -- files --------------------------------------------------------------------------------------------------------


def read_fixture(path: Path) -> dict[str, Json]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    fixture: dict[str, Json] = json.loads(raw)
    if fixture["format"] != FORMAT:
        raise SystemExit(f"{path}: format {fixture['format']!r} is not {FORMAT!r}")
    assert fixture["count"] == len(fixture["cases"])
    return fixture


async def run_case(engine: Engine, suite: str, case: Case) -> None:
    if suite.startswith("history"):
        await run_ops(case, History(engine, case))
    elif suite == "lifecycle":
        await run_ops(case, Lifecycle(engine, case))
    elif suite == "delete_tree":
        await run_deletion(engine, case)
    else:
        name = case.get("fn", "prepare_compaction")
        expected = {"cost": case["expect"]} if name == "sum_usage" else case["expect"]
        check(expected, CALLS[name](case))


async def run_file(path: Path, backend: str = "memory", url: str | None = None) -> Outcome:
    """Run every case of a file against one store, verify the store at the end, and return what became of them."""
    fixture = read_fixture(path)
    outcome = Outcome(fixture["suite"])
    async with running(backend, url) as engine:
        for case in fixture["cases"]:
            name = case["name"]
            try:
                await run_case(engine, outcome.suite, case)
            except OwnAnswer:
                outcome.skipped[name] = ", ".join(case["tags"])
            except Mismatch as error:
                outcome.failed[name] = str(error)
            else:
                if "identity" in case.get("tags", ()):
                    outcome.skipped[name] = "identity"
                else:
                    outcome.passed.append(name)
    return outcome


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", default="memory", choices=("memory", "sqlite", "aiosqlite"))
    parser.add_argument("--url", help="a SQLAlchemy URL to use in place of the backend's own")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    total: Counter[str] = Counter(passed=0, failed=0, skipped=0)
    for path in options.files:
        outcome = asyncio.run(run_file(path, options.backend, options.url))
        for name, tags in outcome.skipped.items():
            print(f"skipped {outcome.suite}/{name}: our own answer was given to {tags}")
        for name, text in outcome.failed.items():
            print(f"FAILED {outcome.suite}/{name}: {text}")
        total += Counter(passed=len(outcome.passed), failed=len(outcome.failed), skipped=len(outcome.skipped))
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
