"""Models for what calls one, such as a compaction: any that pydantic-ai knows, or one of your own.

    model = open_model("openai:gpt-5")
    reply = await model.complete(ModelRequest(({"role": "user", "content": "Hello."},)))

`open_model` needs the extra ``models``; the protocol `Model`, and `FunctionModel`, which is made of a function, need
none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_names

if TYPE_CHECKING:
    from flue_py.core.model import FunctionModel, Model, ModelReply, ModelRequest
    from flue_py.models.opening import open_model
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "flue_py.core.model": ("FunctionModel", "Model", "ModelReply", "ModelRequest"),
            "flue_py.models.opening": ("open_model",),
        },
    )
__all__ = ["FunctionModel", "Model", "ModelReply", "ModelRequest", "open_model"]
