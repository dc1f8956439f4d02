"""Files go back with the leaf: checkpoints of what tools edit, and the way back."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from anyio import to_thread

import flue_py
from flue_py import InvalidArgument, JsonObject, Session, Store
from flue_py.agents.conversation import Conversation, run_command
from flue_py.cli import main
from flue_py.core.files import FileChange, FileCheckpoint, FileContent, FileState
from flue_py.core.kinds import FILE_BACKUP, FILE_CHECKPOINT
from flue_py.db.files import Folder
from flue_py.errors import FilesChanged, LeafConflict, StoreUnavailable, UnreadableFile
from flue_py.transfer import copy_store, read_bundle, write_bundle
from tests.checks import raises, unchanged
from tests.edges.cli_runs import runner
from tests.sessions.talk import assistant, user
from tests.tables import inputs

if TYPE_CHECKING:
    from click.testing import Result

BINARY = bytes(range(256)) * 300
BIG = "".join(f"line {number} of a file\n" for number in range(4_000))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
async def session(store: Store, root: Path) -> Session:
    return await store.create_session(cwd=str(root))


def write(path: Path, content: str | bytes | None, mode: int = 0o644) -> None:
    if content is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)


async def edit(session: Session, path: Path, content: str | bytes | None, mode: int = 0o644) -> None:
    """Edit a file as a tool does; None deletes it."""
    await session.files.before_edit(path)
    write(path, content, mode)
    await session.files.after_edit(path)


async def turn(session: Session, words: str, edits: dict[Path, str | bytes | None] | None = None) -> FileCheckpoint:
    checkpoint = await session.files.checkpoint()
    await session.append_message(user(words))
    for path, content in (edits or {}).items():
        await edit(session, path, content)
    await session.append_message(assistant(f"did {words}"))
    return checkpoint


def files_in(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
        for path in root.rglob("*")
        if path.is_file()
    }


def versions(checkpoint: FileCheckpoint) -> dict[str, tuple[int, bool]]:
    return {name: (state.version, state.backup is not None) for name, state in checkpoint.files.items()}


async def three_turns(session: Session, root: Path) -> list[dict[str, tuple[bytes, int]]]:
    """Have three turns, the last of which is not answered yet; return how the files were before each, and after."""
    write(root / "run.sh", "echo 1\n", 0o755)
    write(root / "apart.txt", "not of a tool")
    seen = [files_in(root)]
    await turn(session, "one", {root / "run.sh": "echo 2\n", root / "src/new.py": BIG})
    seen.append(files_in(root))
    await turn(session, "two", {root / "image.bin": BINARY, root / "src/new.py": BIG + "more"})
    seen.append(files_in(root))
    await turn(session, "three", {root / "run.sh": None, root / "image.bin": BINARY[::-1]})
    seen.append(files_in(root))
    return seen


async def test_each_checkpoint_has_the_files_before_its_turn_and_only_changes_have_new_backups(
    session: Session, root: Path
) -> None:
    seen = await three_turns(session, root)
    checkpoints = await session.files.checkpoints()
    assert [(checkpoint.sequence, checkpoint.reason) for checkpoint in checkpoints] == [
        (1, "turn"), (2, "turn"), (3, "turn"),
    ]  # fmt: skip
    # A file that did not exist has no backup; one that was edited late is in no earlier checkpoint.
    assert [versions(checkpoint) for checkpoint in checkpoints] == [
        {"run.sh": (1, True), "src/new.py": (1, False)},
        {"run.sh": (2, True), "src/new.py": (2, True), "image.bin": (1, False)},
        {"run.sh": (2, True), "src/new.py": (3, True), "image.bin": (2, True)},
    ]
    assert checkpoints[1].files["run.sh"] == checkpoints[2].files["run.sh"]
    for number in (2, 0, 1):
        result = await session.files.restore(checkpoints[number].entry_id)
        assert result.done
        expected = {**seen[number]}
        if number == 0:
            # It was not tracked then.
            assert result.untracked == ("image.bin",)
            expected["image.bin"] = seen[2]["image.bin"]
        assert files_in(root) == expected
        assert not (await session.files.restore(checkpoints[number].entry_id)).done
    assert [item.data["role"] for item in await session.build_context_entries()] == ["user", "assistant"] * 3


async def test_files_follow_the_leaf_back_along_branches_and_into_forks(
    store: Store, session: Session, root: Path
) -> None:
    seen = await three_turns(session, root)
    end = session.leaf_id
    assert not (await session.files.restore()).changes

    await session.rewind(turns=1)
    assert (await session.files.restore()).done
    assert files_in(root) == {**seen[1]}
    # A restore is taken back as any other append is.
    await session.undo()
    await session.undo()
    assert (session.leaf_id, (await session.files.restore()).done) == (end, True)
    assert files_in(root) == seen[3]

    await session.rewind(turns=2)
    await session.files.restore()
    await turn(session, "other", {root / "src/new.py": "other\n", root / "run.sh": "echo other\n"})
    other = files_in(root)
    fork = await session.fork()
    await session.move_leaf(end)
    await session.files.restore()
    assert files_in(root) == seen[3]
    await fork.files.restore()
    assert files_in(root) == other

    await store.delete_session_tree(session.id)
    write(root / "src/new.py", "lost")
    await fork.files.restore(force=True)
    assert files_in(root) == other


async def test_what_others_changed_is_refused_unless_it_is_forced_and_stays_stored(
    store: Store, session: Session, root: Path
) -> None:
    seen = await three_turns(session, root)
    write(root / "src/new.py", "by hand\n")
    first = (await session.files.checkpoints())[0].entry_id
    async with unchanged(store.backend):
        changes = {change.name: change for change in (await session.files.restore(first, dry_run=True)).changes}
        assert {name: (change.what, change.lines, change.is_outside) for name, change in changes.items()} == {
            "run.sh": ("create", (1, 0), False), "src/new.py": ("delete", (0, 1), True),
        }  # fmt: skip
        caught = await raises(FilesChanged, session.files.restore(first))
        assert caught.value.names == ("src/new.py",)
        other = await store.get_session(session.id)
        await session.refresh()
        await raises(LeafConflict, session.files.restore(first, force=True, expected_leaf=first))
    assert other is not None
    await session.files.restore(first, force=True)
    assert files_in(root) == {**seen[0], "image.bin": seen[3]["image.bin"]}
    await session.undo()
    await session.files.restore()
    assert (root / "src/new.py").read_text() == "by hand\n"


async def test_a_backup_that_is_gone_leaves_its_file_alone(session: Session, root: Path) -> None:
    seen = await three_turns(session, root)
    target = (await session.files.checkpoints())[1]
    backup = target.files["src/new.py"].backup
    assert backup is not None
    await session.redact(backup, "private")
    write(root / "odd", "")
    changes = {change.name: change for change in (await session.files.restore(target.entry_id, dry_run=True)).changes}
    assert {name: change.what for name, change in changes.items()} == {
        "run.sh": "create", "src/new.py": "stay", "image.bin": "delete",
    }  # fmt: skip
    assert (await raises(FilesChanged, session.files.restore(target.entry_id))).value.names == ("src/new.py",)
    await session.files.restore(target.entry_id, force=True)
    assert files_in(root) == {
        "run.sh": seen[1]["run.sh"], "apart.txt": seen[1]["apart.txt"], "src/new.py": seen[3]["src/new.py"],
        "odd": (b"", 0o644),
    }  # fmt: skip


def outside(root: Path) -> Path:
    write(root.parent / "outside.txt", "outside")
    return root.parent / "outside.txt"


def linked_folder(root: Path) -> str:
    (root / "way").symlink_to(root.parent)
    return "way/outside.txt"


def linked_file(root: Path) -> str:
    (root / "link").symlink_to(outside(root))
    return "link"


def fifo(root: Path) -> str:
    os.mkfifo(root / "pipe")
    return "pipe"


@inputs(
    ("path", "error"),
    [
        (outside, InvalidArgument),
        (lambda root: "../outside.txt", InvalidArgument),
        (lambda root: "a/../../outside.txt", InvalidArgument),
        (lambda root: root, InvalidArgument),
        (lambda root: ".", InvalidArgument),
        (lambda root: ".git/config", InvalidArgument),
        (lambda root: "sub/.GIT/hooks/post-commit", InvalidArgument),
        (lambda root: "nul\0", InvalidArgument),
        (lambda root: "half\ud800", InvalidArgument),
        (linked_folder, UnreadableFile),
        (linked_file, UnreadableFile),
        (fifo, UnreadableFile),
        (lambda root: "folder", UnreadableFile),
        (lambda root: "large", UnreadableFile),
    ],
)
async def test_a_path_that_leads_out_or_is_no_plain_file_is_refused(
    tmp_path: Path, path: Callable[[Path], str | Path], error: type[Exception]
) -> None:
    root = tmp_path / "project"
    (root / "folder").mkdir(parents=True)
    write(root / "large", b"x" * 30_000)
    async with flue_py.open(":memory:", limits=flue_py.Limits(entry_bytes=40_000)) as store:
        session = await store.create_session(cwd=str(root))
        async with unchanged(store.backend):
            await raises(error, session.files.before_edit(["folder/fine.txt", path(root)]))
            await raises(InvalidArgument, session.files.after_edit("folder/fine.txt"), match="before_edit")
            await raises(InvalidArgument, session.files.restore(), match="no checkpoint")
        other = await store.create_session()
        await raises(InvalidArgument, other.files.checkpoint(), match="root")
        await raises(InvalidArgument, other.files.checkpoint(root=root / "large"), match="not a folder")


async def test_a_record_from_elsewhere_leads_no_further_than_a_path_does(session: Session, root: Path) -> None:
    target = outside(root)
    state = {"version": 1, "sha256": None}
    for name in ("../outside.txt", str(target), ".git/config"):
        made = await session.append_custom(FILE_CHECKPOINT, {"reason": "turn", "sequence": 1, "files": {name: state}})
        await raises(InvalidArgument, session.files.restore(made.entry_id, force=True))
    await session.append_custom(FILE_CHECKPOINT, {"reason": "turn", "files": [1]})
    await session.append_custom(FILE_BACKUP, "no object")
    assert len(await session.files.checkpoints()) == 3
    assert target.read_text() == "outside"


async def test_a_file_that_became_something_else_is_neither_followed_nor_replaced(session: Session, root: Path) -> None:
    await turn(session, "one", {root / "a.txt": "one", root / "sub/b.txt": "one"})
    await turn(session, "two", {root / "a.txt": "two", root / "sub/b.txt": "two"})
    (root / "a.txt").unlink()
    (root / "a.txt").symlink_to(outside(root))
    (root / "sub").rename(root.parent / "sub")
    (root / "sub").symlink_to(root.parent / "sub")
    await session.files.checkpoint()
    target = (await session.files.checkpoints())[1].entry_id
    assert (await raises(FilesChanged, session.files.restore(target))).value.names == ("a.txt", "sub/b.txt")
    await session.files.restore(target, force=True)
    assert (outside(root).read_text(), (root.parent / "sub/b.txt").read_text()) == ("outside", "two")


@inputs("survived", range(4))
async def test_a_restore_that_was_killed_is_finished_by_the_next(
    tmp_path: Path, survived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    async with flue_py.open(":memory:") as store:
        session = await store.create_session(cwd=str(root))
        paths = [root / name for name in ("a", "b", "c", "new/d")]
        await turn(session, "one", dict.fromkeys(paths[:3], "one"))
        await turn(session, "two", dict.fromkeys(paths, "two"))
        target = (await session.files.checkpoints())[1].entry_id
        before, rename, unlink = files_in(root), os.rename, os.unlink
        left = [survived]

        def killed(*args: object, **named: object) -> None:
            if left[0] == 0:
                # As after a kill: nothing else is done, and nothing is tidied up.
                raise OSError("killed")
            left[0] -= 1

        monkeypatch.setattr(os, "rename", lambda *args, **named: (killed(), rename(*args, **named)))
        monkeypatch.setattr(os, "unlink", lambda *args, **named: (_is_part(args) or killed(), unlink(*args, **named)))
        await raises(StoreUnavailable, session.files.restore(target))
        monkeypatch.undo()
        assert (
            len(
                [
                    path
                    for path in paths
                    if files_in(root).get(str(path.relative_to(root))) != before[str(path.relative_to(root))]
                ]
            )
            == survived
        )
        # A part that a killed process has left is no obstacle.
        await session.files.restore()
        assert files_in(root) == dict.fromkeys("abc", (b"one", 0o644))


def _is_part(args: tuple[object, ...]) -> bool:
    return str(args[0]).endswith(".part")


def test_what_a_killed_process_has_left_of_a_file_goes_with_the_next(root: Path) -> None:
    folder = Folder(root)
    folder.write("a", FileContent(b"1", 0o600))
    real, names = os.rename, list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", lambda source, *args, **named: (names.append(source), real(source, *args, **named)))
        folder.write("a", FileContent(b"2", 0o640))
    write(root / names[0], "half")
    folder.write("a", FileContent(b"3", 0o6755))
    assert files_in(root) == {"a": (b"3", 0o755)}


async def test_only_the_newest_checkpoints_are_offered_and_numbers_go_on(session: Session, root: Path) -> None:
    for number in range(5):
        await session.files.checkpoint(max_snapshots=3)
        await edit(session, root / "a", f"{number}")
        await session.append_message(user(f"{number}"))
    checkpoints = await session.files.checkpoints()
    assert [checkpoint.sequence for checkpoint in checkpoints] == [3, 4, 5]
    first = (await session.entries(kind=FILE_CHECKPOINT))[0].id
    await raises(InvalidArgument, session.files.restore(first), match="evicted")
    await session.files.restore(checkpoints[0].entry_id)
    assert (root / "a").read_text() == "1"
    assert [checkpoint.sequence for checkpoint in await session.files.checkpoints()] == [5, 6, 7]


async def test_contents_go_where_the_session_goes(store: Store, session: Session, root: Path, tmp_path: Path) -> None:
    seen = await three_turns(session, root)
    await write_bundle(store, tmp_path / "all.bundle")
    async with flue_py.open(":memory:") as bundled, flue_py.open(":memory:") as copied:
        await read_bundle(bundled, tmp_path / "all.bundle")
        await copy_store(store, copied)
        for other in (bundled, copied):
            write(root / "src/new.py", "by hand\n")
            there = await other.get_session(session.id)
            assert there is not None
            await there.files.restore(root=root, force=True)
            assert files_in(root) == seen[3]
    twin = await session.copy()
    await store.delete_session_tree(session.id)
    write(root / "src/new.py", "by hand\n")
    await twin.files.restore(root=root, force=True)
    assert files_in(root) == seen[3]


async def test_a_conversation_rewinds_files_with_its_turns(store: Store, session: Session, root: Path) -> None:
    conversation = Conversation(store, session, files=root)

    async def work(messages: list[JsonObject]) -> list[JsonObject]:
        await edit(session, root / "a.txt", f"{len(messages)}\n")
        return [assistant("done")]

    for words in ("one", "two"):
        await conversation.take_turn(words, work)
    write(root / "a.txt", "by hand\n")
    assert "changed by other means" in (await run_command(conversation, "/rewind -1 --files")).text
    assert (len(await session.turns()), (root / "a.txt").read_text()) == (2, "by hand\n")
    assert (await run_command(conversation, "/rewind -1 --file")).text.startswith("Usage")
    write(root / "a.txt", "3\n")
    assert (await run_command(conversation, "/rewind -1 --files")).text.splitlines()[1:] == ["change a.txt"]
    assert (len(await session.turns()), (root / "a.txt").read_text()) == (1, "1\n")
    assert (await run_command(conversation, "/rewind 0 --files")).text.splitlines()[1:] == ["delete a.txt"]


async def test_the_command_lists_and_restores_and_changes_nothing_before_it_is_told(
    session: Session, root: Path, target: str
) -> None:
    await turn(session, "one", {root / "a.txt": "one\n"})
    await turn(session, "two", {root / "a.txt": "two\n"})

    async def flue(*args: str) -> Result:
        # The command runs an event loop of its own.
        call = partial(runner().invoke, main, ["--db", target, "files", session.id, *args])
        return await to_thread.run_sync(call)

    first, second = json.loads((await flue("--json")).stdout)
    lines = (await flue()).stdout.splitlines()
    assert (first["sequence"], second["files"]["a.txt"]["version"], len(lines)) == (1, 2, 3)
    at = ("--at", second["entryId"])
    assert (await flue("--diff", *at)).stdout.endswith("@@ -1 +1 @@\n-two\n+one\n")
    planned = await flue("--restore", *at)
    assert (planned.stdout, "give --yes" in planned.stderr) == ("change a.txt +1 -1\n", True)
    assert ((await flue("--yes")).exit_code, (root / "a.txt").read_text()) == (2, "two\n")
    assert json.loads((await flue("--restore", "--yes", "--json", *at)).stdout)["done"]
    assert (root / "a.txt").read_text() == "one\n"
    assert (await flue("--diff")).stdout == "files are as they were then\n"


TEXT = FileContent(b"one\ntwo\nthree\n", 0o644)


@inputs(
    ("before", "after", "what", "lines", "diff"),
    [
        (TEXT, FileContent(b"one\n2\nthree\n", 0o644), "change", (1, 1), "-two\n+2\n"),
        (TEXT, FileContent(b"zero\none\ntwo\nthree\n", 0o644), "change", (1, 0), "+zero\n"),
        (TEXT, FileContent(b"one\ntwo\nthree", 0o644), "change", (1, 1), "+three\n\\ No newline at end of file\n"),
        (TEXT, FileContent(TEXT.data, 0o755), "mode", (0, 0), ""),
        (TEXT, None, "delete", (0, 3), "+++ /dev/null\n"),
        (None, FileContent(b"", 0o644), "create", (0, 0), ""),
        (None, FileContent("a\rb\u2028\n".encode(), 0o644), "create", (1, 0), "+a\rb\u2028\n"),
        (TEXT, FileContent(b"\xff\xfe", 0o644), "change", None, "it is no text"),
        (TEXT, FileContent(b"a\0b", 0o644), "change", None, "it is no text"),
        (TEXT, FileContent(b"x\n" * 50_000, 0o644), "change", None, "too many lines"),
    ],
)
def test_a_change_is_shown_as_a_true_diff(
    before: FileContent | None, after: FileContent | None, what: str, lines: tuple[int, int] | None, diff: str
) -> None:
    change = FileChange("a", before, after)
    assert (change.what, change.lines) == (what, lines)
    assert diff in change.diff
    assert change.json["insertions"] == (None if lines is None else lines[0])


def test_a_state_is_that_of_a_content_with_its_mode() -> None:
    state = FileState(1, TEXT.digest, 0o644)
    assert [state.has(content) for content in (TEXT, FileContent(TEXT.data, 0o600), None)] == [True, False, False]
    assert FileState(1).has(None)
    assert not FileState(1, problem="is too large").has(None)
