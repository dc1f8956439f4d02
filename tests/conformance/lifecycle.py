"""The cases of the lifecycle and deletion files: harnesses, task sessions, and what a deletion leaves."""

from __future__ import annotations

import flue_py
from flue_py.agents.harness import Harness, HarnessSession
from flue_py.core.sessions import task_references
from tests.conformance.comparing import Case, Engine, Mismatch, Op, check

ROLES = ("dev", "qa")
CWD = "/w"

# Flue's wording is Flue's; the condition decides which of our errors it has to be.
CONDITIONS = {
    "does not exist in harness": flue_py.SessionNotFound,
    "already exists in harness": flue_py.SessionExists,
    "has been deleted": flue_py.SessionNotFound,
    "cannot reopen with role": flue_py.InvalidArgument,
    "not registered": flue_py.InvalidArgument,
    "Maximum task depth": flue_py.TaskDepthExceeded,
}


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
        self.own_answers: set[str] = set()

    async def run(self, op: Op) -> None:
        step = getattr(self, op["op"])
        if "error" not in op:
            await step(op)
            return
        (expected,) = [error for text, error in CONDITIONS.items() if text in op["error"]]
        try:
            await step({**op, "expect": None})
        except expected:
            return
        raise Mismatch(f"expected {expected.__name__} ({op['error']})")

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
