"""Check that a wheel and an sdist hold what the repository holds: shipped.py DIRECTORY_WITH_BOTH.

A build leaves out silently whatever an ignore rule or a forgotten include matches; the first to notice would be
the user who installed it.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def files_below(folder: Path) -> set[str]:
    """Return the files below ``folder``, relative to it; caches, built pages and hidden ones left out."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
        and not any(part in ("__pycache__", "built") or part.startswith(".") for part in path.relative_to(folder).parts)
    }


def wheel_problems(wheel: Path, root: Path = ROOT) -> list[str]:
    """Return what is wrong with the wheel's contents, one line each; empty when nothing is."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {f"flue_py/{name}" for name in files_below(root / "flue_py")}
    expected |= {f"flue_py/_migrations/{name}" for name in files_below(root / "migrations")}
    problems = [f"{wheel.name} lacks {name}" for name in sorted(expected - names)]
    extra = {name for name in names - expected if ".dist-info/" not in name}
    problems += [f"{wheel.name} holds {name}, which is not in the repository" for name in sorted(extra)]
    return problems + [
        f"{wheel.name} lacks {what}"
        for what, there in {
            "the marker flue_py/py.typed": "flue_py/py.typed" in names,
            "flue_py/_migrations/env.py": "flue_py/_migrations/env.py" in names,
            "a migration": any(name.startswith("flue_py/_migrations/versions/") for name in names),
            "the ranks of cl100k_base": any("cl100k_base" in name for name in names),
            "the ranks of o200k_base": any("o200k_base" in name for name in names),
            "the licence": any(name.endswith(".dist-info/licenses/LICENSE") for name in names),
            "the command flue-py": any(name.endswith(".dist-info/entry_points.txt") for name in names),
        }.items()
        if not there
    ]


def sdist_problems(sdist: Path, root: Path = ROOT) -> list[str]:
    """Return what is wrong with the sdist's contents, one line each; empty when nothing is."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    expected = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"}
    for folder in ("flue_py", "migrations", "tests", "docs", ".ci"):
        expected |= {f"{folder}/{name}" for name in files_below(root / folder)}
    return [f"{sdist.name} lacks {name}" for name in sorted(expected - names)]


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0])
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    problems = [problem for wheel in wheels for problem in wheel_problems(wheel)]
    problems += [problem for sdist in sdists for problem in sdist_problems(sdist)]
    if len(wheels) != 1 or len(sdists) != 1:
        problems.append(f"{folder} holds {len(wheels)} wheels and {len(sdists)} sdists instead of one of each")
    for problem in problems:
        print(problem, file=sys.stderr)
    for path in (*wheels, *sdists):
        print(f"{path.name}: {path.stat().st_size:,} bytes")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
