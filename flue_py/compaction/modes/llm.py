"""Mode ``llm``: a model writes the summary."""

from __future__ import annotations

from flue_py.compaction.modes.protocol import Asker, Made, Material
from flue_py.compaction.summarize import SummaryReply, SummaryRequest, finish_summary, summary_requests
from flue_py.core.jsontext import JsonObject
from flue_py.core.model_seam import ModelReply, ModelRequest
from flue_py.errors import InvalidArgument, SummaryFailed

PURPOSE = "compaction"


class Llm:
    """Asks the model for a summary, which a later compaction asks it to bring up to date."""

    name = "llm"
    needs_model = True

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return the model's summary, with the lists of files behind it. One call, or two at once for a split turn.

        Raises `SummaryFailed` for a call that fails, an empty answer, and one that was cut off.
        """
        if asker is None:
            raise InvalidArgument(f"mode {self.name!r} needs a model; give one, or choose a mode that needs none")
        plan = material.planned.plan
        requests = summary_requests(plan, focus=material.instructions)
        answers = await asker.ask_all([_asked(request) for request in requests])
        replies = [_replied(request, answer) for request, answer in zip(requests, answers, strict=True)]
        summary = finish_summary(plan, replies)
        return Made(summary.text, self.name, {**summary.details, "mode": self.name})


def _asked(request: SummaryRequest) -> ModelRequest:
    message: JsonObject = {"role": "user", "content": request.prompt}
    return ModelRequest((message,), request.system_prompt, max_tokens=request.max_tokens, purpose=PURPOSE)


def _replied(request: SummaryRequest, answer: ModelReply | Exception) -> SummaryReply:
    if isinstance(answer, Exception):
        raise SummaryFailed(request.kind, str(answer) or type(answer).__name__) from answer
    if answer.stop_reason == "length":
        raise SummaryFailed(request.kind, f"the answer was cut off at {request.max_tokens} tokens")
    return SummaryReply(answer.text, answer.usage)
