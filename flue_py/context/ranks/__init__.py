"""The token vocabularies that are shipped, and the one way to read them.

A vocabulary ("ranks") lists byte strings; the place in the list is the rank, which is also the token's number.
Each is stored here as ``<name>.ranks.xz``: an LZMA stream of all token lengths (one byte each, in rank order)
followed by all token bytes in the same order. ``NOTICE`` says where the data comes from, and `rebuild` makes
the files again from that source.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from flue_py.core.json import Frozen
from flue_py.errors import FixTheSetup
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import hashlib
    import lzma
    from importlib import resources
else:
    # An estimate does not need them, and they would slow down the start of a command.
    hashlib = lazy_module("hashlib")
    resources = lazy_module("importlib.resources")
    lzma = lazy_module("lzma")


class Vocabulary(Frozen):
    """One shipped vocabulary.

    ``pattern`` is the regular expression that cuts text into pieces before merging. ``source_sha256`` is the
    hash of the published ``.tiktoken`` file, ``packed_sha256`` that of the decompressed stream shipped here.
    """

    name: str
    tokens: int
    pattern: str
    source_sha256: str
    packed_sha256: str

    @property
    def filename(self) -> str:
        """The name of the shipped file, beside this module."""
        return f"{self.name}.ranks.xz"


_CL100K_PATTERN = "|".join(
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_O200K_PATTERN = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTION}",
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

VOCABULARIES = {
    vocabulary.name: vocabulary
    for vocabulary in (
        Vocabulary(
            name="cl100k_base",
            tokens=100_256,
            pattern=_CL100K_PATTERN,
            source_sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
            packed_sha256="18288f996f452d44e0e65996176591a4b712a3eb1b42afd6f0511e735c099480",
        ),
        Vocabulary(
            name="o200k_base",
            tokens=199_998,
            pattern=_O200K_PATTERN,
            source_sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
            packed_sha256="440741350e7cfa1c0f4869ce742d1b043550adbda5187adcac9e787edac6fba9",
        ),
    )
}
"""Every shipped vocabulary, by name."""


def read_ranks(vocabulary: Vocabulary) -> dict[bytes, int]:
    """Return the rank of every token of a shipped vocabulary, in rank order.

    Raises `FixTheSetup` if the shipped file is missing or has been changed. Reads one file, writes
    nothing. Cost: about 0.1 s for cl100k_base and 0.2 s for o200k_base.
    """
    resource = resources.files(__name__) / vocabulary.filename
    try:
        packed = lzma.decompress(resource.read_bytes())
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise _damaged(vocabulary, f"cannot be read ({error})") from error
    found = hashlib.sha256(packed).hexdigest()
    if found != vocabulary.packed_sha256:
        raise _damaged(vocabulary, f"has SHA-256 {found}, not {vocabulary.packed_sha256}")
    return unpack_ranks(packed, vocabulary.tokens)


def _damaged(vocabulary: Vocabulary, what: str) -> FixTheSetup:
    return FixTheSetup(
        f"the vocabulary {vocabulary.name!r} shipped with flue_py ({vocabulary.filename}) {what}; "
        "reinstall flue-py (pip install --force-reinstall flue-py)"
    )


def pack_ranks(tokens: Iterable[bytes]) -> bytes:
    """Return tokens, given in rank order, as the stream that is compressed and shipped."""
    listed = list(tokens)
    return bytes(map(len, listed)) + b"".join(listed)


def unpack_ranks(packed: bytes, tokens: int) -> dict[bytes, int]:
    """Return the rank of every token of a stream made by `pack_ranks` that holds ``tokens`` tokens."""
    ends = accumulate(packed[:tokens], initial=tokens)
    return {packed[start:end]: rank for rank, (start, end) in enumerate(pairwise(ends))}
