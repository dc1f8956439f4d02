"""The lists of files at the end of a summary, which grow with each compaction: as much of them as there is room for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flue_py.compaction.file_calls import path_argument
from flue_py.compaction.material import Material
from flue_py.compaction.serialize import FileLists, appended_file_lists
from flue_py.core.exchange import tool_calls

MOST_TOKENS = 4_000
"""What the lists take in a large window; in a small one no more than a sixteenth of it."""
_WINDOW_PART = 16
_ROOM_PART = 4
"""They take no more of a scarce room than one so many-th."""
_AROUND_CHARS = 200
"""What the tags take, and the lines that count what is left out."""
_COUNTED = "[{} files that were read and {} that were modified: stored with this summary]"
"""What stands for both lists where no path has room: their tags would take more than a path does."""


def shown_file_lists(material: Material) -> tuple[str, bool]:
    """Return the text of the lists of a compaction, and whether it leaves any out, which it then counts.

    Of each list those stay that were used last in what leaves; files that were modified get three quarters of the room.
    O(paths), and O(messages) where not all are shown.
    """
    files = material.planned.plan.files
    text = appended_file_lists(files)
    most = material.at_most(MOST_TOKENS, _WINDOW_PART)
    if material.room is not None:
        most = min(most, material.room // _ROOM_PART)
    tokens = material.tokens_of(text) if text else 0
    if tokens <= max(most, 0):
        return text, False
    used = list(_used(material))
    room = max(len(text) * most // tokens - _AROUND_CHARS, 0)
    modified = _chosen(files.modified_files, used, max(room * 3 // 4, room - _size(files.read_files)))
    read = _chosen(files.read_files, used, room - _size(modified))
    if not read and not modified:
        return f"\n\n{_COUNTED.format(len(files.read_files), len(files.modified_files))}", True
    shown = FileLists(read, modified)
    return appended_file_lists(shown, of=files), True


def _used(material: Material) -> Iterator[str]:
    """Yield the paths that calls in what leaves have used, the last one first."""
    policy = material.planned.plan.policy
    for message in reversed(material.messages):
        for call in reversed(tool_calls(message)):
            if path := path_argument(call.get("arguments"), policy):
                yield path


def _size(paths: Sequence[str]) -> int:
    return sum(len(path) + 1 for path in paths)


def _chosen(paths: Sequence[str], used: Sequence[str], room: int) -> tuple[str, ...]:
    """Return those of some paths that fit into so many characters, a line each, in their order."""
    known = set(paths)
    chosen: set[str] = set()
    for path in dict.fromkeys([*(each for each in used if each in known), *paths]):
        room -= len(path) + 1
        if room < 0:
            break
        chosen.add(path)
    return tuple(path for path in paths if path in chosen)
