"""A shell command that a person ran, as an exchange that every model understands: the command, a call, its result."""

from __future__ import annotations

from flue_py.core.entries import NewEntry
from flue_py.core.jsontext import JsonObject
from flue_py.errors import InvalidArgument, shown

SHELL_SOURCE = "shell"
SHELL_TOOL = "bash"

_LARGEST_EXIT_CODE = 2**32


def shell_exchange(
    command: str, output: str, exit_code: int | None, *, call_id: str, answer_id: str | None = None
) -> list[NewEntry]:
    """Return what stands for a command: a message of the user, a call of the tool ``bash``, and its result.

    The result is an error unless ``exit_code`` is 0; None is one that was killed. ``answer_id`` is the id of the entry
    with the call. Raises `InvalidArgument`, `InvalidEntry`.
    """
    if not isinstance(command, str) or not command.strip():
        raise InvalidArgument("command: should be the text of a command")
    if not isinstance(output, str):
        raise InvalidArgument(f"output: should be a text, not {type(output).__name__}")
    if exit_code is not None and (
        isinstance(exit_code, bool) or not isinstance(exit_code, int) or abs(exit_code) > _LARGEST_EXIT_CODE
    ):
        raise InvalidArgument(f"exit_code: {shown(exit_code)} is not the exit code of a command, or None")
    said: JsonObject = {"role": "user", "content": [{"type": "text", "text": command}]}
    called: JsonObject = {
        "role": "assistant",
        "content": [{"type": "toolCall", "id": call_id, "name": SHELL_TOOL, "arguments": {"command": command}}],
        "stopReason": "toolUse",
    }
    result: JsonObject = {
        "role": "toolResult",
        "toolCallId": call_id,
        "toolName": SHELL_TOOL,
        "content": [{"type": "text", "text": _told(output, exit_code)}],
        "details": {"command": command, "exitCode": exit_code},
        "isError": exit_code != 0,
    }
    return [
        NewEntry.message(said, SHELL_SOURCE),
        NewEntry.message(called, SHELL_SOURCE, id=answer_id),
        NewEntry.message(result, SHELL_SOURCE),
    ]


def _told(output: str, exit_code: int | None) -> str:
    """Return what the model reads of it. Some providers refuse an empty text."""
    text = output if output.strip() else "(no output)"
    if exit_code == 0:
        return text
    end = "Command was cancelled" if exit_code is None else f"Command exited with code {exit_code}"
    return f"{text}\n\n{end}"
