"""Formats that other packages bring by entry points: the one of the how-to, and broken ones."""

from __future__ import annotations

import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import flue_py
from flue_py.core import trees
from flue_py.core.trees import CheckedEntries
from flue_py.errors import InvalidArgument, UnreadableFile
from flue_py.formats import registry
from flue_py.transfer import imports
from tests.docs.pages import blocks_of
from tests.edges.cli_runs import Flue
from tests.formats.pi_files import as_lines, every_type
from tests.values import existing

PAGE = "docs/how-to/import-and-export.md"
FILES = {
    block.file: block.text + "\n"
    for block in blocks_of(PAGE, (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8"))
    if block.file is not None
}

Install = Callable[[str, str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that installs a package of one module: its name, its code, and the entry point ``name = value``."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))
    modules = set(sys.modules)

    def add(package: str, code: str, point: str) -> None:
        information = site / f"{package.replace('-', '_')}-1.0.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[flue_py.formats]\n{point}\n")
        (site / f"{package.replace('-', '_')}.py").write_text(code)
        registry.added_formats.cache_clear()

    yield add
    registry.added_formats.cache_clear()
    for name in set(sys.modules) - modules:
        if (site / f"{name}.py").exists():
            del sys.modules[name]


@pytest.fixture
def diary(install: Install) -> None:
    """The package of the how-to, installed."""
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    ((name, value),) = project["entry-points"][registry.GROUP].items()
    install(project["name"], FILES["diary_format.py"], f"{name} = {value}")


@pytest.mark.usefixtures("diary")
async def test_a_format_of_another_package_is_imported_and_exported(tmp_path: Path) -> None:
    file = tmp_path / "talk.diary"
    file.write_text(FILES["talk.diary"])
    async with flue_py.open(":memory:") as store:
        report = await flue_py.import_file(store, file)
        assert (report.format, report.added, report.skipped) == ("diary", 2, ())
        session = existing(await store.get_session(report.session_id))
        exported = await flue_py.export_session(session, "diary")
        assert exported.text == FILES["talk.diary"].replace("Z ", ".000Z ")
        assert not (await flue_py.import_file(store, file, "diary")).changed
        file.write_text(FILES["talk.diary"] + "2026-01-05T10:01:00Z user: Skip it.\nnothing\n")
        again = await flue_py.import_file(store, file)
        assert (again.session_id, again.added) == (report.session_id, 1)
        assert [note.line for note in again.skipped] == [5]
        await session.set_title("Red build")
        pi = (await flue_py.export_session(session, "pi")).value
        assert isinstance(pi, list)
        assert len(pi) == 1 + 3 + 1
        assert [str(note) for note in (await flue_py.export_session(session, "diary")).notes] == ["left out: the title"]


@pytest.mark.usefixtures("diary")
async def test_entries_of_other_packages_alone_are_checked_before_they_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = tmp_path / "talk.diary", tmp_path / "talk.jsonl"
    theirs.write_text(FILES["talk.diary"])
    ours.write_bytes(b"".join(as_lines(every_type())))
    checked: list[object] = []
    monkeypatch.setattr(imports, "CheckedEntries", CheckedEntries)
    monkeypatch.setattr(trees, "checked_source", checked.append)
    async with flue_py.open(":memory:") as store:
        assert (await flue_py.import_file(store, ours)).added > 1
        assert not checked
        assert (await flue_py.import_file(store, theirs)).added > 1
        assert checked


@pytest.mark.usefixtures("diary")
def test_the_command_line_knows_it(tmp_path: Path) -> None:
    place = tmp_path / "home" / ".diary"
    place.mkdir(parents=True)
    (place / "talk.diary").write_text(FILES["talk.diary"])
    (place / "notes.txt").write_text(FILES["talk.diary"])
    flue, home = Flue(tmp_path), {"HOME": str(tmp_path / "home")}
    assert "imported as session" in flue.run("import", "--discover", env=home).stdout
    (session,) = flue.json("sessions")
    assert "nothing was changed" in flue.run("import", "diary", str(place)).stdout
    assert flue.run("export", "diary", session["id"]).stdout.startswith("diary 1\n2026-01-05T10:00:00.000Z user: Why")
    assert "diary" in flue.run("import", "nothing", code=2).stderr
    assert "diary" in flue.run("export", "nothing", session["id"], code=2).stderr


BROKEN = {
    "raises": ("raise OSError('no driver')", "bad_one:FORMAT", "the package bad-one fails .OSError: no driver"),
    "has nothing": ("", "bad_one:FORMAT", "the package bad-one fails .AttributeError"),
    "leads elsewhere": ("FORMAT = 'pi'", "bad_one:FORMAT", "bad-one fails .TypeError: its entry point leads to a str"),
    "calls itself another": ("FORMAT = Format('other', 'a:b', 'a:c')", "bad_one:FORMAT", "calls itself 'other'"),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.usefixtures("diary")
async def test_a_broken_package_is_named_and_hinders_no_other(what: str, tmp_path: Path, install: Install) -> None:
    code, value, message = BROKEN[what]
    install("bad-one", f"from flue_py.formats.registry import Format\n{code}\n", f"bad = {value}")
    file = tmp_path / "talk.diary"
    file.write_text(FILES["talk.diary"])
    async with flue_py.open(":memory:") as store:
        with pytest.warns(RuntimeWarning, match=message) as told:
            assert (await flue_py.import_file(store, file)).format == "diary"
        assert len(told) == 1
        (tmp_path / "session.jsonl").write_bytes(b"".join(as_lines(every_type())))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (await flue_py.import_file(store, tmp_path / "session.jsonl")).format == "pi"
            with pytest.raises(InvalidArgument, match=r"'bad' is not one of pi, .*diary"):
                await flue_py.import_file(store, file, "bad")


@pytest.mark.usefixtures("diary")
def test_a_name_that_is_taken_is_refused(install: Install) -> None:
    code = "from flue_py.formats.registry import Format\nFORMAT = Format({!r}, 'a:b', 'a:c')\n"
    install("other-pi", code.format("pi"), "pi = other_pi:FORMAT")
    install("second-diary", code.format("diary"), "diary = second_diary:FORMAT")
    with pytest.warns(RuntimeWarning) as told:
        (added,) = registry.added_formats()
    assert [str(each.message).partition(";")[0] for each in told] == [
        "the format 'diary' of the package second-diary is left out: diary-format has this name",
        "the format 'pi' of the package other-pi is left out: flue-py has this name",
    ]
    assert added.package == "diary-format"
    assert registry.find_format("pi").package == "flue-py"


async def test_code_of_another_package_that_fails_costs_its_own_files_alone(tmp_path: Path, install: Install) -> None:
    install(
        "bad-one",
        "from flue_py.formats.registry import Format\n"
        "FORMAT = Format('bad', 'bad_one:recognize', 'bad_one:read', 'missing_module:write', suffixes=('.txt',))\n"
        "recognize = read = lambda *arguments: 1 / 0\n",
        "bad = bad_one:FORMAT",
    )
    (tmp_path / "talk.json").write_text('[{"role": "user", "content": "hi"}]')
    async with flue_py.open(":memory:") as store:
        with pytest.warns(RuntimeWarning, match="of the package bad-one fails .ZeroDivisionError"):
            report = await flue_py.import_file(store, tmp_path / "talk.json")
        assert report.format == "openai-chat"
        with (
            pytest.warns(RuntimeWarning),
            pytest.raises(UnreadableFile, match=r"talk\.json: the format 'bad' of the package bad-one fails"),
        ):
            await flue_py.import_file(store, tmp_path / "talk.json", "bad")
        session = existing(await store.get_session(report.session_id))
        with pytest.raises(InvalidArgument, match=r"bad-one fails .ModuleNotFoundError: .*missing_module"):
            await flue_py.export_session(session, "bad")
