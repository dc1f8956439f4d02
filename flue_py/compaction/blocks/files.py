"""Files that were in use: as they are now, read by a function of the caller's, or as they were read last."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.file_calls import file_call
from flue_py.compaction.material import Material
from flue_py.compaction.quoting import attribute, fenced
from flue_py.core.exchange import tool_calls
from flue_py.core.spoken import message_text

ReadFile: TypeAlias = Callable[[str], str | None]
"""Returns the text of a file, None if it is gone. What it raises leaves the file out, and is noted."""

MOST_FILES = 5
MOST_CHARS = 50_000
_WINDOW_PART = 8


def reread_files(
    material: Material, read: ReadFile | None, *, most: int = MOST_FILES, chars: int = MOST_CHARS
) -> Block:
    """Return the files that were read, written or edited last in what leaves, at most ``most``, the newest first.

    Without ``read``, those that were read last and not changed since, as the stored results have them. They take
    ``chars`` characters together, and no more than an eighth of the window has room for; the last one is cut to that.
    No block without any. O(messages).
    """
    if read is None:
        stored = _read_last(material, most)
        paths, read, when = list(stored), stored.get, "as they were read last"
    else:
        paths, when = _recent(material, most), "as they are now"
    shown: list[str] = []
    notes: list[str] = []
    left, tokens = chars, material.at_most(chars, _WINDOW_PART)
    for path in paths:
        if left <= 0 or tokens <= 0:
            break
        try:
            text = read(path)
        except Exception as error:  # noqa: BLE001 - a reader of the caller's, and a file is no reason to fail
            notes.append(f"the file {path} could not be read again: {error}")
            continue
        if isinstance(text, str) and text:
            empty = material.tokens_of(fenced("file", f"\n[… {len(text)} more characters]", attribute("path", path)))
            begun = material.begun(text[:left], tokens - empty)
            if not begun:
                break
            more = f"\n[… {len(text) - len(begun)} more characters]" if len(begun) < len(text) else ""
            shown.append(fenced("file", begun + more, attribute("path", path)))
            left -= len(text)
            tokens -= material.tokens_of(shown[-1])
    text = "\n".join([f"[FILES IN USE — {when}]", *shown]) if shown else ""
    return Block(text, notes=tuple(notes))


def _read_last(material: Material, most: int) -> dict[str, str]:
    """Return files by path as the last results of reading them have them: those in what stays are left out there.

    So are those that were written or edited after that, or that may have been.
    """
    policy, pairing = material.planned.plan.policy, material.pairing
    stays = [file_call(call, policy) for item in material.staying for call in tool_calls(item.data)]
    seen = {used.path for used in stays if used is not None}
    found: dict[str, str] = {}
    for call, results in reversed(pairing.results.items()):
        used = file_call(pairing.parts[call], policy)
        if used is None or used.path in seen or (results and results[0] in material.failed):
            continue
        if used.use == "read" and not results:
            continue
        seen.add(used.path)
        if used.use == "read" and "\n" not in used.path:
            found[used.path] = message_text(material.message(results[0]))
            if len(found) == most:
                break
    return found


def _recent(material: Material, most: int) -> list[str]:
    """Return the paths that were last used, the newest first, each once."""
    found: dict[str, None] = {}
    for message in reversed(material.messages):
        for call in reversed(tool_calls(message)):
            used = file_call(call, material.planned.plan.policy)
            if used is not None and "\n" not in used.path:
                found[used.path] = None
        if len(found) >= most:
            break
    return list(found)[:most]
