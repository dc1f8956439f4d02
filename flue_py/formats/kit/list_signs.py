"""What tells the three formats of plain lists apart: types of items and parts that only one of them has.

Text inside a message does not mislead: the quotation marks of JSON within JSON are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

ONLY_RESPONSES = re.compile(
    rb'"type"\s*:\s*"(message|reasoning|item_reference|input_text|input_image|input_file|output_text|summary_text'
    rb"|(function|custom_tool|local_shell|shell|apply_patch|computer|tool_search)_call(_output)?|tool_search_output"
    rb'|(web_search|file_search|image_generation|code_interpreter|mcp)_call|mcp_list_tools|mcp_approval_re(quest|sponse))"'
)
ONLY_ANTHROPIC = re.compile(rb'"type"\s*:\s*"(tool_use|tool_result|thinking|redacted_thinking|server_tool_use)"')
_LONGEST_SIGN = 200


def other_list(chunks: Iterable[bytes]) -> str | None:
    """Return whose list a file is that begins as chat messages do, from what comes later in it; None: it is chat.

    Roles and texts alone are chat messages, Anthropic messages and Responses items alike. O(size), a chunk at a time.
    """
    is_list, before = None, b""
    for chunk in chunks:
        text = before + chunk
        if is_list is None:
            is_list = text.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
        if is_list and ONLY_RESPONSES.search(text):
            return "openai-responses"
        if ONLY_ANTHROPIC.search(text):
            return "anthropic"
        before = text[-_LONGEST_SIGN:]
    return None
