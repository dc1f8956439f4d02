"""Run the framework's own tests of its runtime with `FlueSaver` as their checkpointer, and say how many pass.

    python tests/adapters/langgraph/upstream.py [--checkout DIRECTORY]

The tests, and the conformance kit as it is there, come from the framework's repository at a pinned commit;
``--checkout`` names one that is there already. Nothing of it is kept. Where it cannot be had, they are skipped.
`upstream_plugin` puts our class in the place of `SqliteSaver` and `AsyncSqliteSaver`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
REPOSITORY = "https://github.com/langchain-ai/langgraph"
PINNED = "f09cfe8ffc1eeffd68f4b628ed69c30f7cad229f"


def fetched(folder: Path) -> Path:
    """Return a checkout of the pinned commit. Raises `CalledProcessError` where git cannot have it."""
    git = ["git", "-C", str(folder)]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    # Without a terminal nobody could answer a question.
    quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    subprocess.run([*git, "fetch", "-q", "--depth", "1", REPOSITORY, PINNED], check=True, timeout=300, env=quiet)
    subprocess.run([*git, "checkout", "-q", "FETCH_HEAD"], check=True)
    return folder


def installed(folder: Path) -> Path:
    """Return a folder with what the tests need, apart from this environment."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), "-r", str(HERE / "upstream.txt")]
    # The framework itself comes along, and has to be the one that is tested.
    subprocess.run([*pip, "-c", str(ROOT / ".ci" / "frameworks" / "langgraph.txt")], check=True)
    return folder


def runtime(checkout: Path, beside: Path) -> int:
    """Run the tests of the runtime that have a SQLite saver, print how many passed, and return the exit code."""
    paths = os.pathsep.join(map(str, (HERE, beside, ROOT)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "upstream_plugin", "-k", "sqlite"]
    variables = {**os.environ, "PYTHONPATH": paths, "NO_DOCKER": "true"}
    tests = checkout / "libs" / "langgraph"
    done = subprocess.run([*command, "tests"], cwd=tests, env=variables, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FAILED") or " passed" in line]
    print("\n".join(["runtime:", *lines]))
    return done.returncode


def kit(checkout: Path) -> int:
    """Run our tests of conformance with the kit as it is in the checkout, and return the exit code."""
    paths = os.pathsep.join((str(checkout / "libs" / "checkpoint-conformance"), str(ROOT)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "test_conformance.py")]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    print("kit:", done.stdout.splitlines()[-1] if done.stdout else done.stderr)
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path)
    given: Path | None = parser.parse_args().checkout
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        try:
            checkout = given.resolve() if given is not None else fetched(at / "checkout")
            beside = installed(at / "beside")
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
            print(f"skipped: the tests of {REPOSITORY}, or what they need, cannot be had ({error})")
            return 0
        return kit(checkout) or runtime(checkout, beside)


if __name__ == "__main__":
    sys.exit(main())
