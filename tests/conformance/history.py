"""The cases of the history files: one session each, driven through its public methods."""

from __future__ import annotations

import json
from datetime import datetime

import flue_py
from flue_py.compaction import CompactionSettings, SummaryFailed, SummaryReply, SummaryRequest
from flue_py.core.entries import to_microseconds
from flue_py.core.json import utf16_length
from flue_py.formats.flue import parse_session_document, session_document
from tests.conformance.comparing import Case, Engine, Json, Op, OwnAnswer, check
from tests.conformance.planner import plan_session, summarize

DEFAULT_TIME = "2025-12-31T00:00:00.000Z"


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
        self.own_answers: set[str] = set()

    async def run(self, op: Op) -> None:
        await getattr(self, op["op"])(op)

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
                keep_exchanges_whole=False,
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
            self.own_answers.add("identity")  # an entry is named by its id: there is no equal copy of it to pass
            return
        entry_id = self.real(op["entry"]) or ""
        tree = await self.session.get_tree()
        has_children = any(entry.parent_id == entry_id for entry in tree)
        removed = await self.session.remove_leaf_message(entry_id)
        if "orphans" in self.tags and op["result"] is True and has_children:
            check(False, removed)
            check(self.symbols(tree), self.symbols(await self.session.get_tree()))
            raise OwnAnswer("orphans")
        check(op["result"], removed)

    async def move_leaf(self, op: Op) -> None:
        before = self.session.leaf_id
        try:
            await self.session.move_leaf(self.real(op["to"]))
        except flue_py.EntryNotFound:
            if "dangling_leaf" not in self.tags:
                raise
            check(before, (await self.session.refresh()).leaf_id)
            raise OwnAnswer("dangling_leaf") from None

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
        latest = await self.session.compactions.latest()
        planned = plan_session(
            await self.session.build_context_entries(),
            None if latest is None else latest.fields,
            CompactionSettings(op["reserve_tokens"], op["keep_recent_tokens"]),
        )
        if isinstance(planned, str):
            check([op["result"], op.get("reason")], [None, planned])
            return
        plan, first_kept_entry_id = planned
        try:
            summary = await summarize(plan, complete)
        except SummaryFailed as error:
            what = "Turn prefix summarization" if error.kind == "turn_prefix" else "Summarization"
            check([op["result"], op.get("reason")], [None, f"Failed: {what} failed: {error.reason}"])
            check(tree_before, self.symbols(await self.session.get_tree()))
        else:
            appended = await self.session.append_compaction(
                summary.text,
                first_kept_entry_id=first_kept_entry_id,
                tokens_before=plan.tokens_before,
                details=summary.details,
                calls=summary.usages,
                keep_exchanges_whole=False,
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
        check(op["expect"], self.symbols(await self.session.get_active_path(since=self.real(op["since"]))))

    async def build_context(self, op: Op) -> None:
        items = await self.session.build_context_entries()
        messages = await self.session.build_context()
        check([item.data for item in items], messages)
        expected = op["expect"]
        actual = [
            {
                "entry": self.symbol(item.entry_id), "kind": item.kind, "role": item.role, "message": message,
                "text": _text(message) if item.kind != "message" else None, "timestamp_ms": message.get("timestamp"),
            }
            for item, message in zip(items, messages, strict=True)
        ]  # fmt: skip
        check(len(expected), len(actual))
        check(expected, [{name: item[name] for name in like} for item, like in zip(actual, expected, strict=True)])

    async def latest_compaction(self, op: Op) -> None:
        entry = await self.session.compactions.latest()
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
        window = await self.session.money.aggregate_usage_since(self.real(op["since"]))
        check(op["expect"], window.usage.to_json())

    async def latest_assistant(self, op: Op) -> None:
        entry = await self.session.context.latest_assistant()
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
                check(True, parent in seen)
                seen.add(entry_id)
            self.own_answers.add("out_of_order_entries")
            return
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
