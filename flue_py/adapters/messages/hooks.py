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
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.sessions.arguments import checked_text
from flue_py.wire.openai_chat import parts_of

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
        groups = [from_langchain([each]).messages for each in messages]
        for group, made in reshaping.run(groups):
            if made is None:
                assert group is not None  # what a step added has a message
                sent.append(messages[group])
                continue
            for message in made:
                if group is None:
                    sent.append(to_langchain([message]).messages[0])
                elif lost := _lost_reasoning(groups[group], message):
                    sent.append(_without(lost, messages[group]))
                else:
                    sent.append(_as_it_was(message, messages[group]))
        return sent

    return send


def _lost_reasoning(given: Sequence[JsonObject], made: JsonObject) -> list[JsonValue]:
    """Return the reasoning that an answer has lost, if it can go without anything else; else nothing."""
    [was] = given
    parts, left = was.get("content"), made.get("content")
    if not isinstance(parts, list) or not isinstance(left, list):
        return []
    lost = [part for part in parts if part not in left]
    is_whole = [part for part in parts if part not in lost] == left
    return lost if is_whole and all(map(_goes_alone, lost)) else []


def _goes_alone(part: JsonValue) -> bool:
    if not isinstance(part, dict) or part.get("type") != "thinking":
        return False
    # OpenAI looks for the item with the reasoning of other items that have the id it gave them.
    return not str(part.get("thinkingSignature")).startswith("{")


def _without(lost: Sequence[JsonValue], was: BaseMessage) -> BaseMessage:
    """Return an answer of LangChain without some reasoning. What ours have no place for stays in it."""

    def is_lost(block: str | dict[str, Any]) -> bool:
        alone = was.model_copy(update={"content": [block], "tool_calls": []})
        found = [part for message in from_langchain([alone]).messages for part in parts_of(message)]
        return bool(found) and all(part in lost for part in found)

    return was.model_copy(update={"content": [block for block in was.content if not is_lost(block)]})


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
        groups = [from_pydantic_ai([piece]).messages for _, piece in pieces]
        for group, made in reshaping.run(groups):
            if group is None:
                sent += to_pydantic_ai(made or []).messages
                continue
            owner, piece = pieces[group]
            if owner not in left:
                sent.append(owner)
            shorter = None if made is None else _shortened(piece, groups[group], made)
            left.setdefault(owner, []).append((piece, False) if shorter is None else (shorter, True))
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


def _shortened(
    piece: theirs.ModelMessage, given: Sequence[JsonObject], made: Sequence[JsonObject]
) -> theirs.ModelMessage:
    """Return a piece with what a step has left of it."""
    [message] = made
    if piece.kind == "response" and (lost := _lost_reasoning(given, message)):
        # What ours have no place for stays in it.
        return replace(
            piece, parts=[part for part in piece.parts if _ours(piece, part) not in [[each] for each in lost]]
        )
    part: Any = piece.parts[0] if piece.kind == "request" else None
    parts: Any
    if part is not None and part.part_kind != "user-prompt":
        parts = [replace(part, content=text_of(message))]
    else:
        parts = to_pydantic_ai([message]).messages[0].parts
        if part is not None:
            parts = [replace(each, timestamp=part.timestamp) for each in parts]
    return replace(piece, parts=parts)


def _ours(answer: theirs.ModelResponse, part: theirs.ModelResponsePart) -> JsonValue:
    [message] = from_pydantic_ai([replace(answer, parts=[part])]).messages
    return message.get("content")


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
