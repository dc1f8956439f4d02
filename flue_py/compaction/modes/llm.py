"""Mode ``llm``: a model writes the summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from flue_py.compaction.blocks.around import Around
from flue_py.compaction.blocks.paths import shown_file_lists
from flue_py.compaction.blocks.words import first_words, words_set_aside
from flue_py.compaction.material import Material
from flue_py.compaction.modes.aligned import aligned_request
from flue_py.compaction.modes.dressing import dressed, earlier_text, stored_block, summary_head, turns_covered
from flue_py.compaction.modes.folding import Folding, checked_answer, fold
from flue_py.compaction.modes.protocol import Asker, Made
from flue_py.compaction.modes.transcript import lines_of, shown
from flue_py.compaction.plan import NO_PRIOR_HISTORY
from flue_py.compaction.prompts import DATA_PROMPT, FENCES, LENGTH, SYSTEM_PROMPT, instruction
from flue_py.compaction.quoting import fenced, without_tags
from flue_py.compaction.summarize import MAX_SUMMARY_TOKENS, TURN_PREFIX_HEADING, SummaryKind, allowed_tokens
from flue_py.core.frozen import frozen
from flue_py.core.model_seam import ModelRequest
from flue_py.errors import ContextOverflow, InvalidArgument
from flue_py.errors import shown as shown_value

PURPOSE = "compaction"
VARIABLES = ("task", "turn_count", "change_log", "history")
_VARIABLE = re.compile(r"\{\{\$(\w+)\}\}")
_CHANGE_LOG_CHARS = 20_000
_CHARS_A_TOKEN = 3

ChangeLog: TypeAlias = Callable[[], str | None]
"""Returns what has been changed, as far as is known for sure; None for nothing. What it raises is noted."""


@frozen
class Llm:
    """Asks the model for a summary, which a later compaction asks it to bring up to date.

    It writes in the form that ``summary_form`` of the settings names. What the caller asks for takes the place of our
    instruction, which the system prompt has then. So does ``template``: ``{{$task}}`` (what the user asked first),
    ``{{$turn_count}}``, ``{{$change_log}}`` and ``{{$history}}`` (the conversation, which comes before it otherwise)
    are filled in. ``change_log`` returns what has been changed, which the model is told to believe before the
    conversation; by default that is what the stored calls of tools say (`Material.changes`). Raises `InvalidArgument`
    for a template that names anything else.
    """

    template: str | None = None
    change_log: ChangeLog | None = None
    around: Around = Around()

    def __post_init__(self) -> None:
        if self.template is None:
            return
        if not isinstance(self.template, str) or not self.template.strip():
            raise InvalidArgument(f"template: should be a text or None, not {shown_value(self.template)}")
        for name in _VARIABLE.findall(self.template):
            if name not in VARIABLES:
                known = ", ".join(f"{{{{${each}}}}}" for each in VARIABLES)
                raise InvalidArgument(f"template: there is no {{{{${name}}}}}; use {known}")

    @property
    def name(self) -> str:
        """What it is chosen by."""
        return "llm"

    @property
    def needs_model(self) -> bool:
        """Yes."""
        return True

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return the model's summary between the blocks, with the lists of files behind it.

        One call, or two for a split turn, one after the other; more where the summarizer's window is too small for
        one. Raises `SummaryFailed` for a call that fails, an answer that can be no summary, and one that was cut off.
        """
        if asker is None:
            raise InvalidArgument(f"mode {self.name!r} needs a model; give one, or choose a mode that needs none")
        material = words_set_aside(material)
        head, after = summary_head(material), [stored_block(material)]
        text, notes = await self.told(material.beside(head), asker, earlier_text(material))
        # A model may leave out where what it says comes from: this it cannot.
        return dressed(material, self.name, text, around=self.around, head=head, after=after, notes=notes)

    async def told(self, material: Material, asker: Asker, earlier: str) -> tuple[str, tuple[str, ...]]:
        """Return the model's summary alone, and what went otherwise than asked. ``earlier`` is what it continues."""
        plan = material.planned.plan
        material = material.beside(shown_file_lists(material)[0]).beside(stored_block(material).text)
        log, notes = self._read_change_log(material)
        text, why = await self._told_by_last_request(material, asker, log)
        if text is not None:
            return without_tags(text), notes
        if why is not None:
            notes = (*notes, f"the summary was made from a transcript: {why}")
        history = len(plan.messages_to_summarize)
        lines = lines_of(material)
        asked = partial(self._asked, material, log)

        def folding(kind: SummaryKind, first: int, last: int, before: str | None) -> Folding:
            return Folding(
                kind,
                last - first,
                shown=lambda at, cap: shown(lines[first + at], plan.policy, cap),
                asked=asked,
                tokens=material.tokens_of,
                cap=material.settings.max_message_chars,
                window=material.summarizer_window,
                earlier=before,
            )

        folds = [folding("initial", 0, history, earlier or None)] if history else []
        if history < len(lines):
            folds.append(folding("turn_prefix", history, len(lines), None))
        await fold(folds, asker)
        # What it was shown may have made it write a tag of ours, such as that of what the user said.
        texts = [without_tags(each.text or "") for each in folds]
        if not history:
            texts.insert(0, earlier or NO_PRIOR_HISTORY)
        return TURN_PREFIX_HEADING.join(texts), notes

    async def _told_by_last_request(self, material: Material, asker: Asker, log: str) -> tuple[str | None, str | None]:
        """Return the summary that the model writes below its last request; None, and why, where it cannot be asked so.

        Why is None where the caller did not say what goes with the requests. Raises `SummaryFailed`.
        """
        if material.last_request is None:
            return None, material.unaligned
        if self.template is not None:
            return None, "a template takes the place of the instruction"
        known = []
        if log:
            known += [
                "What has been changed, from a log that is right where the above differs:",
                _fence("change-log", _log_within(log, material.summarizer_window)),
            ]
        limit = _limit(material, "initial", material.summarizer_window)
        known.append(LENGTH.format(words=limit * 2 // 3))
        if material.instructions:
            known.append(material.instructions)
        request = aligned_request(material, "\n\n".join(known), limit, PURPOSE)
        if isinstance(request, str):
            return None, request
        [answer] = await asker.ask_all([request])
        if isinstance(answer, ContextOverflow):
            return None, "the last request and a message more were too long for the model"
        text = checked_answer("initial", answer, request.max_tokens, may_be_blank=True).text
        if not text.strip():
            return None, "below the last request, the model wrote nothing, or called tools instead"
        return text, None

    def _read_change_log(self, material: Material) -> tuple[str, tuple[str, ...]]:
        if self.change_log is None:
            return material.changes, ()
        try:
            return self.change_log() or "", ()
        except Exception as error:  # noqa: BLE001 - a function of the caller's, and the conversation is there without it
            return "", (f"the change log could not be read: {error}",)

    def _asked(
        self, material: Material, log: str, kind: SummaryKind, text: str, before: str | None, window: int | None
    ) -> ModelRequest:
        """Return the request of a kind for a part of the conversation, with the summary of what came before it."""
        known: list[str] = []
        log = _log_within(log, window)
        template = None if kind == "turn_prefix" else self.template
        conversation = _fence("conversation", text)
        if template is None or "{{$history}}" not in template:
            known.append(conversation)
        if before:
            known.append(_fence("previous-summary", before))
        if log and (template is None or "{{$change_log}}" not in template):
            known.append("What has been changed, from a log that is right where the conversation differs:")
            known.append(_fence("change-log", log))
        kind = _of(kind, before)
        limit = _limit(material, kind, window)
        system, ours = f"{SYSTEM_PROMPT} {DATA_PROMPT}", instruction(kind, material.settings.summary_form)
        if template is not None:
            known.append(self._filled(template, material, log, text))
        elif material.instructions:
            system = f"{system}\n\n{ours}"
        else:
            known.append(ours)
        known.append(LENGTH.format(words=limit * 2 // 3))
        if material.instructions:
            known.append(material.instructions)
        prompt = "\n\n".join(known)
        return ModelRequest(({"role": "user", "content": prompt},), system, max_tokens=limit, purpose=PURPOSE)

    def _filled(self, template: str, material: Material, log: str, text: str) -> str:
        values: Mapping[str, str] = {
            "task": _fence("task", first_words(material)),
            "turn_count": str(turns_covered(material)),
            "change_log": _fence("change-log", log),
            "history": _fence("conversation", text),
        }
        # In one go: what is filled in may itself look like a variable.
        return _VARIABLE.sub(lambda found: values[found[1]], template)


def _limit(material: Material, kind: SummaryKind, window: int | None) -> int:
    """Return how many tokens the answer to a request of a kind may have.

    Where the text has little room, that is a third of it, or what is meant for it, half as much for the beginning of a
    turn, and an eighth of what it may have otherwise in any case: an answer that is cut off is none.
    """
    limit = allowed_tokens(kind, material.settings) or MAX_SUMMARY_TOKENS
    if material.room is not None:
        most = material.room // 3 if material.answer_room is None else min(material.answer_room, material.room)
        limit = min(limit, max(most // 2 if kind == "turn_prefix" else most, limit // 8))
    if window is not None:
        limit = min(limit, max(window // 4, 1))
    return limit if material.summarizer_output is None else min(limit, material.summarizer_output)


def _log_within(log: str, window: int | None) -> str:
    """Return as much of the end of a change log as may be shown: an eighth of the window."""
    most = _CHANGE_LOG_CHARS if window is None else min(_CHANGE_LOG_CHARS, window // 8 * _CHARS_A_TOKEN)
    return log if len(log) <= most else f"[… {len(log) - most} earlier characters]\n{log[-most:]}"


def _of(kind: SummaryKind, before: str | None) -> SummaryKind:
    """Return the kind of the request: what comes before is brought up to date, where there is any."""
    return "update" if before else kind


def _fence(tag: str, text: str) -> str:
    return fenced(tag, text, also=FENCES)
