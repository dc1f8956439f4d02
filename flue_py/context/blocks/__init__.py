"""What a model is told beside the conversation: blocks, which are appended as messages and never rewritten.

    blocks = [RuntimeEnvironment(), Gitignore(".")]
    await session.append_blocks(blocks)
    await session.append_message({"role": "user", "content": "Go on."})

A block of your own has a ``name`` and ``read``. A name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_names

if TYPE_CHECKING:
    from flue_py.context.blocks.environment import RuntimeEnvironment
    from flue_py.context.blocks.files import FileIndex
    from flue_py.context.blocks.gitignore import Gitignore
    from flue_py.context.blocks.local_memory import LocalMemory
    from flue_py.context.blocks.memory import MemoryText, Remembered, memory_text
    from flue_py.context.blocks.protocol import Block, BlockFailure, BlocksAppended, BlockText, BlockTold, Saving
    from flue_py.context.blocks.webhook_memory import WebhookMemory
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "flue_py.context.blocks.environment": ("RuntimeEnvironment",),
            "flue_py.context.blocks.files": ("FileIndex",),
            "flue_py.context.blocks.gitignore": ("Gitignore",),
            "flue_py.context.blocks.local_memory": ("LocalMemory",),
            "flue_py.context.blocks.memory": ("MemoryText", "Remembered", "memory_text"),
            "flue_py.context.blocks.protocol": (
                "Block",
                "BlockFailure",
                "BlockText",
                "BlockTold",
                "BlocksAppended",
                "Saving",
            ),
            "flue_py.context.blocks.webhook_memory": ("WebhookMemory",),
        },
    )

__all__ = [
    "Block",
    "BlockFailure",
    "BlockText",
    "BlockTold",
    "BlocksAppended",
    "FileIndex",
    "Gitignore",
    "LocalMemory",
    "MemoryText",
    "Remembered",
    "RuntimeEnvironment",
    "Saving",
    "WebhookMemory",
    "memory_text",
]
