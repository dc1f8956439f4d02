"""The cost of imports: rows of a small file per second, MB of large rows per second, importing again, and memory.

With ``--long`` a file of 1 GB is imported, for its memory. The floor is reading the rows with ``json.loads``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import flue_py
from benchmarks.measuring import Goal, Line, Options, main, scratch, settle

SESSION = "11111111-1111-4111-8111-111111111111"
FORMATS = ("claude-code", "codex", "pi")


def rows(format: str, count: int, size: int) -> Iterator[bytes]:  # noqa: A002
    """Return rows of a format, user and model in turn, with texts of about ``size`` characters."""
    random = Random(7)
    words = [f"w{number:04x}" for number in range(3000)]
    texts = [" ".join(random.choices(words, k=max(1, size // 6))) for _ in range(64)]
    parent = None
    if format == "pi":
        yield _line({"type": "session", "version": 3, "id": SESSION, "timestamp": _time(0), "cwd": "/w"})
    if format == "codex":
        yield _line({"timestamp": _time(0), "type": "session_meta", "payload": {"id": SESSION, "cwd": "/w"}})
    for number in range(count):
        text = f"{texts[number % 64]} {number}"
        entry_id = f"{random.getrandbits(32):08x}-0000-4000-8000-{number:012x}"
        if format == "claude-code":
            yield _line(_claude_code_row(entry_id, parent, text, number))
        elif format == "codex":
            role, kind = ("assistant", "output_text") if number % 2 else ("user", "input_text")
            item = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
            yield _line({"timestamp": _time(number), "type": "response_item", "payload": item})
        else:
            message = {"role": "assistant" if number % 2 else "user", "content": [{"type": "text", "text": text}]}
            yield _line(
                {"type": "message", "id": entry_id, "parentId": parent, "timestamp": _time(number), "message": message}
            )
        parent = entry_id


def _claude_code_row(uuid: str, parent: str | None, text: str, number: int) -> dict[str, object]:
    common = {"uuid": uuid, "parentUuid": parent, "isSidechain": False, "sessionId": SESSION, "cwd": "/w"}
    common |= {"timestamp": _time(number)}
    if number % 2 == 0:
        return {"type": "user", **common, "message": {"role": "user", "content": text}}
    usage = {"input_tokens": 9, "output_tokens": 50, "cache_read_input_tokens": 1000}
    content = [{"type": "text", "text": text}]
    message = {"id": f"msg_{number}", "role": "assistant", "model": "m", "content": content, "usage": usage}
    return {"type": "assistant", **common, "message": message}


def _time(number: int) -> str:
    return f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.000Z"


def _line(row: object) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    lines = []
    for format in FORMATS:  # noqa: A001
        small = _written(options, format, options.count(60_000, 200), 60)
        large = _written(options, format, options.count(6_000, 20), 20_000)
        first: list[float] = []
        again: list[float] = []
        floor: list[float] = []
        megabytes: list[float] = []
        for _ in range(options.rounds):
            with scratch(options) as folder:
                settle()
                floor.append(_read(small))
                seconds, seconds_again = await _import_twice(small, folder / "small.db", format)
                first.append(options.count(60_000, 200) / seconds)
                again.append(options.count(60_000, 200) / seconds_again)
                seconds, _ = await _import_twice(large, folder / "large.db", format)
                megabytes.append(large.stat().st_size / seconds / 1e6)
        goal = Goal(20_000, of="value", at_least=True)
        lines.append(Line.of_figures(f"{format}: small rows (raw: json.loads)", "/s", first, floor, goal))
        lines.append(Line.of_figures(f"{format}: small rows, imported again", "/s", again))
        lines.append(
            Line.of_figures(f"{format}: large rows", "MB/s", megabytes, None, Goal(30, of="value", at_least=True))
        )
        if options.long:
            goal = Goal(200, of="value")
            lines.append(
                Line.of_figures(f"{format}: memory for a file of 1 GB", "MiB", [_memory(options, format)], None, goal)
            )
    return lines


def _written(options: Options, format: str, count: int, size: int) -> Path:  # noqa: A002
    file = options.directory / f"{format}-{count}-{size}.jsonl"
    with file.open("wb") as lines:
        lines.writelines(rows(format, count, size))
    return file


def _read(file: Path) -> float:
    began, count = time.perf_counter(), 0
    with file.open("rb") as lines:
        for line in lines:
            json.loads(line)
            count += 1
    return count / (time.perf_counter() - began)


async def _import_twice(file: Path, database: Path, format: str) -> tuple[float, float]:  # noqa: A002
    async with flue_py.open(database) as store:
        began = time.perf_counter()
        await flue_py.import_file(store, file, format)
        between = time.perf_counter()
        await flue_py.import_file(store, file, format)
        return between - began, time.perf_counter() - between


_IN_A_PROCESS = """
import asyncio, resource, sys, flue_py
async def go():
    async with flue_py.open(sys.argv[2]) as store:
        await flue_py.import_file(store, sys.argv[1], sys.argv[3])
asyncio.run(go())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def _memory(options: Options, format: str) -> float:  # noqa: A002
    with scratch(options) as folder:
        file = folder / "long.jsonl"
        with file.open("wb") as lines:
            lines.writelines(rows(format, 900_000, 900))
        command = [sys.executable, "-c", _IN_A_PROCESS, str(file), str(folder / "long.db"), format]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main(measure)
