"""Whole stores in the tests: made with something of everything, copied, and compared."""

from __future__ import annotations

from hashlib import sha256

from flue_py.core.sessions import STORED, NewSession, Note, SessionInfo
from flue_py.core.trees import TreeCopy
from flue_py.db.backend import Backend
from flue_py.sessions.store import Store
from flue_py.transfer.copy import CopyReport, copy_store
from tests.samples import (
    PICTURE,
    UNKNOWN,
    Snapshot,
    add,
    assistant,
    compaction,
    new_session,
    path_ids,
    pictured,
    placed,
    snapshot,
    talk,
    user,
)

NOISE = "-".join(sha256(b"%d" % number).hexdigest() for number in range(1_000))


async def copied(source: Backend, target: Backend) -> CopyReport:
    """Copy everything, which must succeed, and return the report."""
    report = await copy_store(Store(source), Store(target))
    assert report.is_complete, report
    return report


async def whole_trees(backend: Backend) -> list[TreeCopy]:
    """Return every tree of a store, whole."""
    found = [await backend.read_whole_tree(head.tree_id) for head in await backend.list_trees(-1, 1_000)]
    assert None not in found
    return [tree for tree in found if tree is not None]


def with_names(tree: TreeCopy) -> dict[str, list[tuple[object, ...]]]:
    """Return a tree's rows in an order of their own, with names for its keys, which are others in another store."""
    names = dict.fromkeys(tree.all_keys(), "gone")
    names |= {payer.session_key: f"gone: {payer.session_id}" for payer in tree.payers}
    names |= {session.session_key: session.id for session in tree.sessions}
    return {
        "sessions": sorted(session[1:] for session in tree.sessions),
        "lanes": [(lane.lane_id, names[lane.owner_key], *lane[2:]) for lane in tree.lanes],
        "entries": [(names[row.session_key], *row._replace(session_key=0)) for row in tree.entries],
        "blobs": list(tree.blobs),
        "attachments": list(tree.attachments),
        "links": sorted((names[link.parent_key], *link[1:]) for link in tree.links),
        "moves": sorted((names[move.session_key], *move[1:]) for move in tree.moves),
        "edits": sorted((names[edit.session_key], *edit[1:]) for edit in tree.edits),
        "requests": sorted((names[request.session_key], *request[1:]) for request in tree.requests),
        "marks": sorted((names[mark.session_key], *mark[1:]) for mark in tree.marks),
        "calls": sorted((*call[:3], names[call.session_key], *call[4:]) for call in tree.calls),
        "payers": sorted((names[payer.session_key], payer.session_id) for payer in tree.payers),
    }


async def told(backend: Backend) -> dict[str, Snapshot]:
    """Return everything a store tells about its sessions, by id."""
    page = await backend.list_sessions(scope=None, kind=None, limit=1_000, cursor=None)
    return {info.id: await snapshot(backend, info.id) for info in page.sessions}


async def make_everything(backend: Backend) -> SessionInfo:
    """Make a store with something of everything; return the session that the most happened in."""
    session = await new_session(
        backend, *talk(4), user("x" * 5_000), user(NOISE), pictured(PICTURE), key="main", scope="s"
    )
    path = await path_ids(backend, session.id)
    await backend.append(session.id, [compaction(path[1], tokens=7, dollars=0.5)], idempotency_key="compact")
    await backend.append(session.id, [user("aside")], expected=path[2], on_conflict="branch")
    await backend.move(session.id, path[3], note=Note("somebody"), idempotency_key="go back")
    await backend.undo(session.id)
    await backend.set_label(session.id, path[0], "the start", note=Note("somebody", "to find it"))
    await backend.set_pin(session.id, path[1], True)
    (failed,) = await add(backend, session.id, assistant("failed", tokens=5, dollars=0.1))
    await backend.retract(session.id, failed)
    fork = await backend.fork(session.id, path[2], NewSession(key="fork"), idempotency_key="fork")
    await add(backend, fork.id, *talk(3))
    task = await backend.create_task(session.id, "task", NewSession(title="A task"), idempotency_key="task")
    await add(backend, task.id, assistant("done", tokens=3, dollars=0.25))
    await backend.link_task(session.id, UNKNOWN, "lost")
    await backend.end_task(task.id, "done", summary="found it", note=Note("somebody"))
    await backend.update_session(task.id, title="Done", metadata_text='{"a": 1}', completed_us=5)
    gone = await backend.fork(session.id, STORED, NewSession())
    kept, _ = await add(backend, gone.id, *talk(2))
    heir = await backend.fork(gone.id, kept, NewSession())
    await add(backend, heir.id, *talk(2, start=2))
    await backend.delete_tree(gone.id)
    paid = await new_session(backend, *talk(2), scope="other")
    await backend.delete_tree(paid.id)
    await backend.create_session(NewSession(scope="other", key="empty", cwd="/somewhere", config_path="a.toml"))
    await backend.import_session(
        NewSession(), [placed(user(), "a", at_us=7), placed(user(), "b", "a"), placed(user(), "c", "a")], leaf="b"
    )
    return session
