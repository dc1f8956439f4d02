"""What frameworks are to call before each request, made of the settings of what an agent is sent.

    shorten = sent_to_pydantic_ai(ContextSettings(microcompact=Microcompacting()))
    agent = Agent("openai:gpt-5", capabilities=[ProcessHistory(shorten)])

A message that no step has changed is the very object that came in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flue_py.adapters.messages.langchain import from_langchain, to_langchain
from flue_py.adapters.messages.parts import text_of
from flue_py.adapters.messages.pydantic_ai import from_pydantic_ai, to_pydantic_ai
from flue_py.context.reshaping import Reshaping
from flue_py.context.settings import ContextSettings
from flue_py.core.jsontext import JsonObject
from flue_py.sessions.arguments import checked_text

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from pydantic_ai import messages as theirs


def sent_to_langchain(
    settings: ContextSettings | Mapping[str, object], *, agent: str | None = None, model: str | None = None
) -> Callable[[Sequence[BaseMessage]], list[BaseMessage]]:
    """Return a function that takes messages of LangChain, and returns what the settings leave of them for an agent.

    For a hook that LangGraph calls before a model: ``lambda state: {"llm_input_messages": send(state["messages"])}``.
    What a step has shortened has the id and the other fields that it had. Signed reasoning is left out if the answer
    was given to a request of this function with other messages before it. Tokens are counted as ``model`` does.
    Raises `InvalidArgument`, for settings with the path of each field that is wrong, and for a ``spec``, which reads a
    session. The function raises `MissingExtra`, `InvalidEntry`. O(size).
    """
    reshaping = _reshaping(settings, agent, model)

    def send(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        sent: list[BaseMessage] = []
        for group, made in reshaping.run([from_langchain([each]).messages for each in messages]):
            if made is None:
                assert group is not None  # what a step added has a message
                sent.append(messages[group])
                continue
            for message in made:
                was = None if group is None else messages[group]
                sent.append(to_langchain([message]).messages[0] if was is None else _as_it_was(message, was))
        return sent

    return send


def _as_it_was(message: JsonObject, was: BaseMessage) -> BaseMessage:
    """Return a message of LangChain with what a step has left of it."""
    if was.type == "tool":
        return was.model_copy(update={"content": text_of(message)})
    made = to_langchain([message]).messages[0]
    content = text_of(message) if isinstance(was.content, str) else made.content
    left: dict[str, Any] = {"content": content}
    if hasattr(was, "tool_calls"):
        left["tool_calls"] = getattr(made, "tool_calls", [])
        if not isinstance(content, str):
            # Without the version the blocks would be taken for those of the provider.
            left["response_metadata"] = {**was.response_metadata, "output_version": "v1"}
    return was.model_copy(update=left)


def sent_to_pydantic_ai(
    settings: ContextSettings | Mapping[str, object], *, agent: str | None = None, model: str | None = None
) -> Callable[[list[theirs.ModelMessage]], list[theirs.ModelMessage]]:
    """Return a history processor of pydantic-ai: what the settings leave of a history for an agent.

    Parts and messages that a step has shortened have the ids and the other fields that they had. Otherwise as
    `sent_to_langchain`.
    """
    reshaping = _reshaping(settings, agent, model)

    def send(messages: list[theirs.ModelMessage]) -> list[theirs.ModelMessage]:
        pieces = [(number, piece) for number, message in enumerate(messages) for piece in _pieces(message)]
        left: dict[int, list[_Piece]] = {}
        sent: list[theirs.ModelMessage | int] = []
        for group, made in reshaping.run([from_pydantic_ai([piece]).messages for _, piece in pieces]):
            if group is None:
                sent += to_pydantic_ai(made or []).messages
                continue
            owner, piece = pieces[group]
            if owner not in left:
                sent.append(owner)
            left.setdefault(owner, []).append((piece, False) if made is None else (_shortened(piece, made), True))
        return [_joined(messages[each], left[each]) if isinstance(each, int) else each for each in sent]

    # pydantic-ai looks there for its own context, and would have to find a module that is imported for types alone.
    send.__annotations__.clear()
    return send


if TYPE_CHECKING:
    _Piece = tuple[theirs.ModelMessage, bool]


def _pieces(message: theirs.ModelMessage) -> Iterator[theirs.ModelMessage]:
    """Yield a message in pieces that steps keep or leave out each: an answer whole, a request part by part."""
    if message.kind == "response" or not message.parts:
        yield message
        return
    for part in message.parts:
        yield replace(message, parts=[part], instructions=None)


def _shortened(piece: theirs.ModelMessage, made: Sequence[JsonObject]) -> theirs.ModelMessage:
    """Return a piece with what a step has left of it."""
    [message] = made
    part: Any = piece.parts[0] if piece.kind == "request" else None
    parts: Any
    if part is not None and part.part_kind != "user-prompt":
        parts = [replace(part, content=text_of(message))]
    else:
        parts = to_pydantic_ai([message]).messages[0].parts
        if part is not None:
            parts = [replace(each, timestamp=part.timestamp) for each in parts]
    return replace(piece, parts=parts)


def _joined(message: theirs.ModelMessage, pieces: Sequence[_Piece]) -> theirs.ModelMessage:
    """Return a message of what is left of its pieces: itself, if that is all of it."""
    if message.kind == "response" or not message.parts:
        return pieces[0][0]
    if len(pieces) == len(message.parts) and not any(is_changed for _, is_changed in pieces):
        return message
    parts: Any = [part for piece, _ in pieces for part in piece.parts]
    return replace(message, parts=parts)


def _reshaping(settings: ContextSettings | Mapping[str, object], agent: str | None, model: str | None) -> Reshaping:
    return Reshaping(settings, checked_text(agent, "agent"), checked_text(model, "model"))
