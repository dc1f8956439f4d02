"""Whole lists of messages for those who call a provider themselves, without a framework.

    request = to_anthropic(await session.build_context())
    client.messages.create(system=request.system, messages=request.messages, ...)

``to_X`` makes of a context what X takes, ``from_X`` makes our messages of a list of X. None of them reads or writes
anything. `to_pydantic_ai` and `to_langchain` make objects of these libraries, and need the extra of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_names

if TYPE_CHECKING:
    from flue_py.adapters.messages.hooks import sent_to_langchain, sent_to_pydantic_ai
    from flue_py.adapters.messages.langchain import from_langchain, to_langchain
    from flue_py.adapters.messages.lists import (
        from_anthropic,
        from_gemini,
        from_openai,
        from_responses,
        to_anthropic,
        to_gemini,
        to_openai,
        to_responses,
    )
    from flue_py.adapters.messages.pydantic_ai import from_pydantic_ai, to_pydantic_ai
    from flue_py.adapters.messages.values import Context, FrameworkList, OurMessages, ProviderList
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "flue_py.adapters.messages.hooks": ("sent_to_langchain", "sent_to_pydantic_ai"),
            "flue_py.adapters.messages.langchain": ("from_langchain", "to_langchain"),
            "flue_py.adapters.messages.lists": (
                "from_anthropic",
                "from_gemini",
                "from_openai",
                "from_responses",
                "to_anthropic",
                "to_gemini",
                "to_openai",
                "to_responses",
            ),
            "flue_py.adapters.messages.pydantic_ai": ("from_pydantic_ai", "to_pydantic_ai"),
            "flue_py.adapters.messages.values": ("Context", "FrameworkList", "OurMessages", "ProviderList"),
        },
    )

__all__ = [
    "Context",
    "FrameworkList",
    "OurMessages",
    "ProviderList",
    "from_anthropic",
    "from_gemini",
    "from_langchain",
    "from_openai",
    "from_pydantic_ai",
    "from_responses",
    "sent_to_langchain",
    "sent_to_pydantic_ai",
    "to_anthropic",
    "to_gemini",
    "to_langchain",
    "to_openai",
    "to_pydantic_ai",
    "to_responses",
]
