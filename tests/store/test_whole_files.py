"""A file is complete under its name, or not there, however the writing ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import flue_py
import flue_py.sync
from flue_py.db.files import Part, write_whole
from flue_py.errors import InvalidArgument, StoreUnavailable

LIMIT = 100_000
COMMAND = "import sys; from flue_py.cli import main; sys.argv[0] = 'flue-py'; sys.exit(main())"
# Bytecode longer than the limit would be cut off, and stay.
LIMITED = (
    "import resource, sys; sys.dont_write_bytecode = True;"
    f" resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT}, {LIMIT})); {COMMAND}"
)
KILLED = (
    "import os, signal, sys; from pathlib import Path; from flue_py.db.files import Part;"
    " part = Part(Path(sys.argv[1])); part.write(b'half'); Path(f'{part.path}-journal').write_bytes(b'x');"
    " print(part.path, flush=True); %s"
)
DIES = KILLED % "os.kill(os.getpid(), signal.SIGKILL)"
LIVES = KILLED % "sys.stdin.read()"


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "out"
    made.mkdir()
    return made


def test_a_file_is_its_owners_alone_and_has_its_content(folder: Path) -> None:
    write_whole(folder / "a.json", b"one")
    assert (folder / "a.json").read_bytes() == b"one"
    assert (folder / "a.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidArgument, match="there already"):
        write_whole(folder / "a.json", b"two")
    write_whole(folder / "a.json", b"three", overwrite=True)
    assert (folder / "a.json").read_bytes() == b"three"
    assert names(folder) == ["a.json"]


def test_what_fails_leaves_nothing_and_keeps_what_was_there(folder: Path) -> None:
    target = folder / "a.json"
    write_whole(target, b"one")

    def fail() -> None:
        with Part(target, overwrite=True) as part:
            part.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert target.read_bytes() == b"one"
    assert names(folder) == ["a.json"]
    with pytest.raises(StoreUnavailable, match="cannot be made"):
        write_whole(folder / "missing" / "b.json", b"")


def test_a_name_as_long_as_the_file_system_takes_is_written(folder: Path) -> None:
    target = folder / ("x" * 250)
    write_whole(target, b"one")
    assert names(folder) == [target.name]


def test_what_a_killed_process_left_is_removed_by_the_next_one(folder: Path) -> None:
    target = folder / "backup.db"
    for _ in range(2):
        died = subprocess.run([sys.executable, "-c", DIES, str(target)], capture_output=True, text=True, check=False)
        assert died.returncode == -signal.SIGKILL
        left = Path(died.stdout.strip())
        assert names(folder) == [left.name, f"{left.name}-journal"]
    other = folder / f".backup.db.{'0' * 8}.part.txt"
    other.write_bytes(b"somebody else's")
    write_whole(target, b"whole")
    assert names(folder) == [other.name, target.name]


def test_what_another_process_is_making_is_left_alone(folder: Path) -> None:
    target = folder / "backup.db"
    with subprocess.Popen(
        [sys.executable, "-c", LIVES, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        making = Path(other.stdout.readline().strip())
        write_whole(target, b"whole")
        assert making.read_bytes() == b"half"
        other.communicate("")
    assert target.read_bytes() == b"whole"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "s.db"
    with flue_py.sync.open(path, prices=False) as made:
        session = made.create_session(id="long", key="long")
        for number in range(4):
            session.append_message({"role": "user", "content": f"{number} " + os.urandom(60_000).hex()})
    return path


COMMANDS = {
    "export": ["export", "pi", "long", "--output"],
    "markdown": ["export", "markdown", "long", "--output"],
    "html": ["export", "html", "long", "--output"],
    "json": ["export", "json", "long", "--output"],
    "bundle": ["bundle"],
    "backup": ["backup"],
}


@pytest.mark.thorough(but=["backup", "export"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_line_of_error_and_leaves_nothing(store: Path, folder: Path, command: str) -> None:
    target = folder / "out.file"
    arguments = ["--db", str(store), *COMMANDS[command], str(target)]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "File too large" in done.stderr or "disk" in done.stderr.lower(), done.stderr
    assert names(folder) == []
    whole = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert whole.returncode == 0, whole.stderr
    assert names(folder) == [target.name]
    assert target.stat().st_mode & 0o777 == 0o600
    assert target.stat().st_size > LIMIT
