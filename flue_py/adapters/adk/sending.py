"""What settings leave of the contents of a request of ADK, before an agent asks its model.

    agent = LlmAgent(name="Coder", model="gemini-2.5-flash", before_model_callback=sent_to_adk(SETTINGS))

A content that no step has changed is the very object that came in, and so is each of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from google.genai import types

from flue_py import wire
from flue_py.adapters.adk.shortening import Known
from flue_py.context.items import plain_agent
from flue_py.context.reshaping import Reshaping
from flue_py.context.settings import ContextSettings, context_settings
from flue_py.core.jsontext import JsonObject, encode_json
from flue_py.errors import InvalidEntry
from flue_py.sessions.arguments import checked_text
from flue_py.wire.lists.said import CONTINUED

if TYPE_CHECKING:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models.llm_request import LlmRequest


def sent_to_adk(
    settings: ContextSettings | Mapping[str, object], *, agent: str | None = None, model: str | None = None
) -> Callable[[CallbackContext, LlmRequest], None]:
    """Return a ``before_model_callback`` of ADK: a request goes on with what the settings leave of its contents.

    They are those for ``agent``, or else for the agent that asks its model. Contents and parts that no step has
    changed are the objects that came in, and what was shortened has the other fields that it had. Thoughts and
    signatures are left out if the answer was given to a request of this callback with other contents before it. Tokens
    are counted as ``model`` does. Raises `InvalidArgument`, for settings with the path of each field that is wrong, and
    for a ``spec``, which reads a session. The callback raises `InvalidEntry` for a content that is none of Gemini's.
    O(size).
    """
    told = context_settings(settings)
    wanted, counted = checked_text(agent, "agent"), checked_text(model, "model")
    named = {plain_agent(name): Reshaping(told, name, counted) for name in told.agents}
    others = Reshaping(told, wanted, counted)

    def send(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        asking = plain_agent(wanted or callback_context.agent_name)
        llm_request.contents = _sent(named.get(asking, others), llm_request.contents)

    return send


class _Piece(NamedTuple):
    """What steps keep or leave out at once: an answer, the response of a function, or what stands between these.

    ``content`` is the number of the content that it is of; ``message`` is what it is in messages of ours, None for one
    that says nothing.
    """

    content: int
    parts: Sequence[types.Part]
    message: JsonObject | None


def _sent(reshaping: Reshaping, contents: Sequence[types.Content]) -> list[types.Content]:
    pieces = [piece for number, content in enumerate(contents) for piece in _pieces(number, content)]
    known = Known([(each.message, each.parts) for each in pieces if each.message is not None])
    sent: list[_Going] = []
    last: int | None = None
    for group, made in reshaping.run([[] if each.message is None else [each.message] for each in pieces]):
        if group is None:
            _add(sent, made or [])
            continue
        piece = pieces[group]
        if piece.content != last:
            sent.append(_Going(contents[piece.content]))
            last = piece.content
        sent[-1].parts += piece.parts if made is None else known.shortened(piece.message, piece.parts, made)
    found = [each.content() for each in sent]
    if found and found[0].role == "model" and contents[0].role != "model":
        found.insert(0, types.Content(role="user", parts=[types.Part(text=CONTINUED)]))
    return found


def _pieces(number: int, content: types.Content) -> Iterator[_Piece]:
    if not content.parts:
        yield _Piece(number, [], None)
        return
    where = f"contents[{number}]"
    try:
        printed: JsonObject = content.model_dump(mode="json", by_alias=True, exclude_none=True)
    except (ValueError, RecursionError) as error:
        raise InvalidEntry(f"{where}: is no JSON: {error}") from error
    messages = [each.message for each in wire.convert(printed, "gemini", {}, where)]
    apart = [content.parts] if content.role == "model" else [*_apart(content.parts)]
    for parts, message in zip(apart, messages, strict=True):
        yield _Piece(number, parts, message)


def _apart(parts: Sequence[types.Part]) -> Iterator[Sequence[types.Part]]:
    """Yield the parts of a content of the user, those together that are one message of ours."""
    said: list[types.Part] = []
    for part in parts:
        if part.function_response is None:
            said.append(part)
            continue
        if said:
            yield said
        said = []
        yield [part]
    if said:
        yield said


class _Going:
    """What goes on of one content: itself, unless a step has changed something in it."""

    def __init__(self, whole: types.Content) -> None:
        self._whole = whole
        self.parts: list[types.Part] = []

    def content(self) -> types.Content:
        """Return it with the parts that are left."""
        was = self._whole.parts or []
        is_whole = len(was) == len(self.parts) and all(one is other for one, other in zip(was, self.parts, strict=True))
        return self._whole if is_whole else self._whole.model_copy(update={"parts": self.parts})


def _add(sent: list[_Going], messages: Sequence[JsonObject]) -> None:
    """Add what a step added: the response of a function to those before it, anything else as a content of its own."""
    for message in messages:
        is_response = message.get("role") == "toolResult"
        for content in wire.to_provider(message, "gemini").messages:
            made = types.Content.model_validate_json(encode_json(content, "content")[0])
            if not sent or not is_response or not _ends_with_response(sent[-1].parts):
                sent.append(_Going(made))
            sent[-1].parts += made.parts or []


def _ends_with_response(parts: Sequence[types.Part]) -> bool:
    return bool(parts) and parts[-1].function_response is not None
