"""`AdvancedSQLiteSession` of the OpenAI Agents SDK: branches at turns, and usage by turn."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from agents.extensions.memory import AdvancedSQLiteSession
from agents.usage import Usage

from benchmarks.peers.claims.measures import FILE, columns, count, names_like, size, user_version


def session(folder: Path, name: str = "a") -> AdvancedSQLiteSession:
    return AdvancedSQLiteSession(session_id=name, db_path=folder / FILE, create_tables=True)


def turn(text: str) -> list[Any]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": f"answer to {text}"}]


def run_of(tokens: int) -> Any:
    """Return what `store_run_usage` reads of the result of a run."""
    usage = Usage(requests=1, input_tokens=tokens, output_tokens=0, total_tokens=tokens)
    return SimpleNamespace(context_wrapper=SimpleNamespace(usage=usage))


async def spent(own: AdvancedSQLiteSession) -> int:
    usage = cast("Any", await own.get_session_usage())
    return int(usage["total_tokens"]) if usage else 0


async def fork(folder: Path) -> None:
    """In part. A branch in the same session, before a turn of the user; it costs a row for each item that it keeps."""
    own = session(folder)
    await own.add_items([*turn("one"), *turn("two")])
    await own.create_branch_from_turn(2, "other")
    assert await own.get_items() == turn("one")
    assert (count(folder, "agent_messages"), count(folder, "message_structure")) == (4, 6)
    own.close()


async def rewind(folder: Path) -> None:
    """In part. By a branch before a turn of the user; what came after stays. Not to an answer or a tool call."""
    own = session(folder)
    await own.add_items([*turn("one"), *turn("two")])
    await own.create_branch_from_turn(2)
    await own.add_items(turn("three"))
    assert await own.get_items() == [*turn("one"), *turn("three")]
    assert await own.get_items(branch_id="main") == [*turn("one"), *turn("two")]
    own.close()


async def undo(folder: Path) -> None:
    """In part. `switch_to_branch` goes back to a branch; what `pop_item` and `clear_session` took is deleted."""
    own = session(folder)
    await own.add_items([*turn("one"), *turn("two")])
    await own.create_branch_from_turn(2)
    await own.switch_to_branch("main")
    assert len(await own.get_items()) == 4
    await own.pop_item()
    assert count(folder, "agent_messages") == 3
    assert names_like(own, "undo", "restore") == []
    own.close()


async def bills(folder: Path) -> None:
    """No. One sum per turn: a second run in a turn replaces the first one's, and deleting a branch deletes its bill."""
    own = session(folder)
    await own.add_items(turn("one"))
    await own.store_run_usage(run_of(100))
    await own.store_run_usage(run_of(7))
    assert await spent(own) == 7
    await own.create_branch_from_turn(1, "other")
    await own.add_items(turn("again"))
    await own.store_run_usage(run_of(50))
    assert await spent(own) == 57
    await own.delete_branch("other", force=True)
    assert await spent(own) == 7
    own.close()


async def conflicts(folder: Path) -> None:
    """No. Two writers that have read the same history both append, and their items mix."""
    one, other = session(folder), session(folder)
    await one.add_items(turn("asked"))
    assert await one.get_items() == await other.get_items()
    await one.add_items(turn("by one"))
    await other.add_items(turn("by the other"))
    assert await one.get_items() == [*turn("asked"), *turn("by one"), *turn("by the other")]
    one.close(), other.close()


async def deletion(folder: Path) -> None:
    """Yes. `clear_session` deletes a session with its branches and what they cost, `delete_branch` one of them."""
    own, other = session(folder), session(folder, "b")
    await own.add_items(turn("one"))
    await own.create_branch_from_turn(1)
    await other.add_items(turn("two"))
    await own.clear_session()
    assert (count(folder, "agent_messages"), count(folder, "message_structure")) == (2, 2)
    own.close(), other.close()


async def migration(folder: Path) -> None:
    """No. Tables are made where they are missing; no version of them is stored."""
    own = session(folder)
    assert user_version(folder) == 0
    assert not [name for name in columns(folder) if "version" in name]
    own.close()


async def growth(folder: Path) -> None:
    """In part. Two rows for each item; each branch adds a row for every item before it."""
    own = session(folder)
    sizes = [size(folder)]
    for number in range(2):
        await own.add_items([each for at in range(200) for each in turn(f"{number}-{at}")])
        sizes.append(size(folder))
    assert sizes[2] - sizes[1] < 1.3 * (sizes[1] - sizes[0])
    before = count(folder, "message_structure")
    await own.create_branch_from_turn(301)
    assert count(folder, "message_structure") == before + 600
    own.close()
