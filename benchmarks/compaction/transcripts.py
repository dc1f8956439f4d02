"""The transcripts that are compacted: the messages of each path, in order, and their parts of equal size."""

from __future__ import annotations

import gzip
import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import flue_py.sync
from flue_py.context.tokens import ModelCounter, counter_for
from flue_py.core.entries import Pairing
from flue_py.core.json import JsonObject

ROOT = Path(__file__).resolve().parents[2]
SHARED = (ROOT / "tests" / "data", ROOT / "flue_py" / "demo")
LEAST_TOKENS = 10_000
"""A shorter transcript is not compacted at any window, and is left out."""


@dataclass(frozen=True)
class Transcript:
    """The messages of a session's path, the model that answered last, and what each message takes in tokens."""

    name: str
    messages: tuple[JsonObject, ...]
    model: str | None
    counts: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """How many tokens the messages take together."""
        return sum(self.counts)

    @property
    def counter(self) -> ModelCounter:
        """The counter of its model."""
        return counter_for(self.model)

    def parts(self, number: int) -> Iterator[tuple[JsonObject, ...]]:
        """Yield the messages in ``number`` parts that take as many tokens each as whole exchanges allow."""
        whole = [*Pairing(self.messages).whole_cuts(range(1, len(self.messages))), len(self.messages)]
        reached = list(accumulate(self.counts))
        start = 0
        for part in range(1, number + 1):
            wanted = bisect_left(reached, reached[-1] * part / number) + 1
            end = whole[min(bisect_left(whole, wanted), len(whole) - 1)]
            if end > start:
                yield self.messages[start:end]
            start = max(start, end)


def transcripts(folders: tuple[Path, ...] = SHARED) -> list[Transcript]:
    """Return those transcripts in some folders that are long enough, each path once, in the order of their names."""
    found: dict[tuple[str, ...], Transcript] = {}
    with tempfile.TemporaryDirectory() as scratch, flue_py.sync.open(":memory:", prices=False) as store:
        for file in (file for folder in folders for file in sorted(folder.rglob("*.jsonl*"))):
            if file.name.endswith((".jsonl", ".jsonl.gz")):
                for name, each in _read(store, _unpacked(file, Path(scratch))):
                    transcript = _transcript(name, each)
                    found.setdefault(tuple(map(str, each)), transcript)
    return [each for each in found.values() if each.tokens >= LEAST_TOKENS]


def _unpacked(file: Path, scratch: Path) -> Path:
    if file.suffix != ".gz":
        return file
    # Two packed files may have one name.
    unpacked = scratch / f"{file.parent.name}-{file.name.removesuffix('.gz')}"
    unpacked.write_bytes(gzip.decompress(file.read_bytes()))
    return unpacked


def _read(store: flue_py.sync.Store, file: Path) -> Iterator[tuple[str, list[JsonObject]]]:
    for imported in flue_py.sync.import_file(store, file).sessions:
        session = store.get_session(imported.session_id)
        if session is not None:
            yield file.stem, [entry.fields for entry in session.get_active_path() if entry.kind == "message"]


def _transcript(name: str, messages: list[JsonObject]) -> Transcript:
    models = (each.get("model") for each in reversed(messages) if each.get("role") == "assistant")
    model = next((model for model in models if isinstance(model, str)), None)
    counter = counter_for(model)
    return Transcript(name, tuple(messages), model, tuple(map(counter.count, messages)))
