"""A process that reads hostile files with small limits, and prints the result and the memory of each.

``python -m tests.sessions.bomb_reader`` reads lines of JSON, ``["unbundle" or FORMAT, FILE, ENTRY_BYTES]``, and prints
one for each. It reads each file in a fork of its own, which has everything imported and has used no memory yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys

import flue_py


def peak() -> int:
    """The most memory this process has had resident, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def read(how: str, path: str, entry_bytes: int) -> dict[str, object]:
    """Read the file into a new store; return the error and by how much memory grew."""
    limits = flue_py.Limits(entry_bytes=entry_bytes, metadata_bytes=1000, document_bytes=entry_bytes)
    async with flue_py.open(":memory:", limits=limits, prices=False) as store:
        # What is loaded once is loaded before the memory is measured.
        with contextlib.suppress(flue_py.StoreUnavailable):
            await flue_py.read_bundle(store, "/nowhere")
        before, error, said = peak(), None, ""
        try:
            if how == "unbundle":
                await flue_py.read_bundle(store, path)
            else:
                await flue_py.import_file(store, path, how)
        except flue_py.FlueError as raised:
            error, said = type(raised).__name__, str(raised)
        sessions = (await store.info()).sessions
    return {"error": error, "said": said, "grew": peak() - before, "sessions": sessions}


def main() -> None:
    # Loads what is imported late.
    asyncio.run(read("unbundle", "/nowhere", 2**20))
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            print(json.dumps(asyncio.run(read(*json.loads(line)))), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
