"""The cost of counting tokens: loading a vocabulary, a short message, long texts, and runs without a blank.

Run with ``python benchmarks/tokens.py``. Prints medians of five, and the ratio to the estimate.
"""

from __future__ import annotations

import lzma
import platform
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.ranks import RANKS
from flue_py.context import tokens
from flue_py.context.tokens import VOCABULARIES, count_text_tokens, read_ranks

CHARS = 1_000_000
MODELS = {"o200k_base": "gpt-4o", "cl100k_base": "gpt-4", "estimate": "unknown"}


def seconds(work: Callable[[], object]) -> float:
    """Return the median time of five runs."""
    times = []
    for _ in range(5):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return median(times)


def load(name: str) -> None:
    """Load an encoding as a new process would."""
    tokens._encodings.pop(name, None)
    tokens.load_encoding(name)


def main() -> None:
    """Print the table."""
    source = Path(tokens.__file__).read_text(encoding="utf-8")
    texts = {
        "message, 2,000 characters": source[:2_000],
        "Python source, 1,000,000": (source * (CHARS // len(source) + 1))[:CHARS],
        "blanks, 1,000,000": " " * CHARS,
        "one letter, 1,000,000": "a" * CHARS,
    }
    print(f"{platform.platform()}, Python {platform.python_version()}, tiktoken {version('tiktoken')}")
    for name in ("o200k_base", "cl100k_base"):
        file = RANKS / VOCABULARIES[name].filename
        parts = (
            ("", partial(load, name)),
            ("decompress", lambda file=file: lzma.decompress(file.read_bytes())),
            ("make the ranks, decompressing included", partial(read_ranks, VOCABULARIES[name])),
        )
        for what, work in parts:
            print(f"load {name}{', ' * bool(what)}{what}: {seconds(work) * 1e3:.0f} ms")
    print(f"{'text':28}{'encoding':14}{'tokens':>10}{'ms':>10}{'ratio':>10}")
    for label, text in texts.items():
        base = seconds(partial(count_text_tokens, text, "unknown"))
        for name, model in MODELS.items():
            spent = seconds(partial(count_text_tokens, text, model))
            count = count_text_tokens(text, model).tokens
            print(f"{label:28}{name:14}{count:>10}{spent * 1e3:>10.3f}{spent / base:>10.0f}")


if __name__ == "__main__":
    main()
