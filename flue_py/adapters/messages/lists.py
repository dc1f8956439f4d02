"""Lists of plain objects, as OpenAI, Anthropic and Gemini take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flue_py.adapters.messages.values import Context, OurMessages, ProviderList, said_of
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.messages import validate_message
from flue_py.core.shapes import Shape, shape_of
from flue_py.errors import InvalidEntry, shown
from flue_py.wire.anthropic import part_from_block
from flue_py.wire.conversion import Converted, convert
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.anthropic import anthropic_list
from flue_py.wire.lists.gemini import gemini_list
from flue_py.wire.lists.openai_chat import chat_list
from flue_py.wire.lists.openai_responses import responses_list

# --- From ours ---------------------------------------------------------------------------------------------------


def to_openai(context: Context) -> ProviderList:
    """Return a context as messages of OpenAI's Chat Completions, every call of a tool answered right behind it.

    What the system said is in the list. Reasoning is left out, unless it came from such a list; pictures of a tool
    follow in a message of the user. Raises `InvalidEntry` with the path of what is not a message of ours. O(size).
    """
    left = Leftovers()
    return ProviderList(chat_list(said_of(context), left), None, left.notes())


def to_responses(context: Context, *, account: str | None = None) -> ProviderList:
    """Return a context as items of OpenAI's Responses, every call with an output.

    What the system said is in the list. Reasoning goes out where OpenAI gave it. What OpenAI's types ask for and our
    messages do not say is filled in: an answer's ``id`` (``msg_3``, by its place), ``status`` and ``annotations``, a
    picture's ``detail``; items that came from such a list stay as they came. Raises `InvalidEntry` with the path of
    what is not a message of ours. O(size).

    What OpenAI compacted itself goes out as it came, unless it was made for another ``account``.
    """
    left = Leftovers()
    items = responses_list(said_of(context), left, is_complete=True, account=account)
    return ProviderList(items, None, left.notes())


def to_anthropic(context: Context, *, account: str | None = None) -> ProviderList:
    """Return a context as messages of Anthropic, users and answers taking turns; ``system`` is a string or blocks.

    The results of an answer's tools stand in one message, right behind it. Reasoning goes out where Anthropic signed
    it, and what Anthropic compacted itself, unless that was made for another ``account``. Raises `InvalidEntry` with
    the path of what is not a message of ours. O(size).
    """
    left = Leftovers()
    system, messages = anthropic_list(said_of(context), left, account=account)
    return ProviderList(messages, system, left.notes())


def to_gemini(context: Context) -> ProviderList:
    """Return a context as contents of Gemini, fields as in its JSON; ``system`` is a content without a role.

    The responses to a model's calls are one content, right behind them. Thoughts and signatures go out where Google
    gave them; another model's calls have the mark that the API takes in place of a signature. Raises `InvalidEntry`
    with the path of what is not a message of ours. O(size).
    """
    left = Leftovers()
    system, contents = gemini_list(said_of(context), left)
    return ProviderList(contents, system, left.notes())


# --- Back --------------------------------------------------------------------------------------------------------


def from_openai(messages: Iterable[Mapping[str, JsonValue]]) -> OurMessages:
    """Return messages of OpenAI's Chat Completions as ours.

    Raises `InvalidEntry` with the path of what cannot be converted (``messages[1].tool_calls[0].id``). O(size).
    """
    return _ours(_converted(messages, "openai-chat"))


def from_responses(items: Iterable[Mapping[str, JsonValue]]) -> OurMessages:
    """Return items of OpenAI's Responses as ours, a message for each.

    Raises `InvalidEntry` with the path of what cannot be converted. O(size).
    """
    return _ours(_converted(items, "openai-responses"))


def from_anthropic(
    messages: Iterable[Mapping[str, JsonValue]], system: str | Iterable[Mapping[str, JsonValue]] | None = None
) -> OurMessages:
    """Return messages of Anthropic as ours; ``system``, a string or blocks, is a system message before them.

    A message with results of tools is one of ours for each of them, and one for the rest. Raises `InvalidEntry` with
    the path of what cannot be converted. O(size).
    """
    first: list[Converted] = []
    if system is not None:
        content = system if isinstance(system, str) else [part_from_block(dict(block)) for block in system]
        first = _valid([Converted({"role": "system", "content": content}, {})], "system")
    return _ours([*first, *_converted(messages, "anthropic")])


def from_gemini(
    contents: Iterable[Mapping[str, JsonValue]], system: str | Mapping[str, JsonValue] | None = None
) -> OurMessages:
    """Return contents of Gemini as ours; ``system``, a string or a content, is a system message before them.

    A content with responses of functions is one message for each of them, and one for the rest. Fields are read in the
    spelling of the JSON and in that of Python. Raises `InvalidEntry` with the path of what cannot be converted.
    O(size).
    """
    first: list[Converted] = []
    if system is not None:
        told: JsonObject = {"parts": [{"text": system}]} if isinstance(system, str) else dict(system)
        first = _valid(convert({**told, "role": "system"}, "gemini", {}, "system"), "system")
    return _ours([*first, *_converted(contents, "gemini")])


def _converted(messages: Iterable[Mapping[str, JsonValue]], shape: Shape) -> list[Converted]:
    names: dict[str, str] = {}
    found: list[Converted] = []
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if not isinstance(message, Mapping):
            raise InvalidEntry(f"{where}: should be an object, not {shown(message)}")
        encode_json(message, where)
        other = shape_of(message, where)
        if other not in (None, shape):
            raise InvalidEntry(f"{where}: is of the form {other}, not {shape}")
        found += _valid(convert(dict(message), shape, names, where), where)
    return found


def _valid(converted: list[Converted], where: str) -> list[Converted]:
    for each in converted:
        validate_message(each.message, where)
    return converted


def _ours(converted: Iterable[Converted]) -> OurMessages:
    found = [*converted]
    return OurMessages([each.message for each in found], [each.beside for each in found])
