"""A server in a process of its own, as `flue-py serve` runs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

TOKENS = {"ann": "a" * 16, "bob": "b" * 16, None: "w" * 16}


@dataclass
class Server:
    """A server that answers, and the process that runs it."""

    url: str
    process: subprocess.Popen[str]

    def client(self, scope: str | None) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {TOKENS[scope]}"}, timeout=60)


@contextmanager
def served(folder: Path, *options: str, database: str | None = None) -> Iterator[Server]:
    """Serve a database, by default that of a folder, made if it is missing; the server is killed at the end."""
    tokens = folder / "tokens"
    tokens.write_text("".join(f"{token} {scope or ''}".strip() + "\n" for scope, token in TOKENS.items()))
    program = [str(Path(sys.executable).with_name("flue-py")), "--db", database or str(folder / "s.db")]
    if database is None and not (folder / "s.db").exists():
        subprocess.run([*program, "new"], check=True, capture_output=True)
    command = [*program, "serve", "--http", "0", "--token-file", str(tokens), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        url = process.stderr.readline().strip()
        assert url.startswith("http://"), url + process.stderr.read()
        yield Server(url, process)
    finally:
        process.kill()
        rest = process.stderr.read()
        process.wait()
        process.stderr.close()
        assert "Traceback" not in rest
