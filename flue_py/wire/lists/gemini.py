"""What the model sees as a list of Gemini contents, and the system instruction that a request has beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.wire.differences import restored
from flue_py.wire.gemini import EXTRA, FOREIGN_SIGNATURE, STARTS, is_of_google, printed_content
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.said import CONTINUED, Said, SystemApart, answered, joined_answers, pairing_of, split_system


def gemini_list(messages: Iterable[Said], left: Leftovers) -> SystemApart:
    """Return messages of ours as contents, and what the system said as a content without a role, or None.

    The responses to a model's calls are one content of the user, right behind the calls. Reasoning and signatures go
    out where a model of Google's gave them. The first call of any other model's answer gets `FOREIGN_SIGNATURE`, as the
    API refuses it without. Cost: O(messages).
    """
    system, said = split_system(messages, left)
    contents = _contents(_named(answered(joined_answers(said), left)), left)
    if contents and contents[0].get("role") == "model":
        left.change(
            "a content of the user stands before the first answer, which the API asks for",
            put=[{"role": "user", "content": CONTINUED}],
        )
        contents.insert(0, {"role": "user", "parts": [{"text": CONTINUED}]})
    told = [part for each in system for part in _parts(_printed(each, left))]
    return SystemApart({"parts": told} if told else None, contents)


def _named(said: Sequence[Said]) -> list[Said]:
    """Return the messages with the name of the tool that was called on every result: the API finds the call by it."""
    pairing = pairing_of(said)
    named = [*said]
    for call, results in pairing.results.items():
        name = pairing.parts[call].get("name")
        for at in results:
            if said[at].message.get("toolName") != name:
                named[at] = said[at].with_message({**said[at].message, "toolName": name}, said[at].extra)
    return named


def _contents(said: Sequence[Said], left: Leftovers) -> list[JsonObject]:
    contents: list[JsonObject] = []
    before: Said | None = None
    for each in said:
        left.at = each.entry_id
        printed = _printed(each, left)
        if not printed.get("parts") and EXTRA not in each.extra:
            if not each.message.get("content"):
                left.note("a message without content, which the API refuses", each.message)
            continue  # whatever else it held has no place here, and has been noted
        if before is not None and _goes_on(each, before) and _side(contents[-1]) == _side(printed):
            contents[-1] = {**contents[-1], "parts": [*_parts(contents[-1]), *_parts(printed)]}
        else:
            contents.append(printed)
        before = each
    left.at = None
    return contents


def _goes_on(said: Said, before: Said) -> bool:
    """Return whether a message is part of the content that the one before it is in."""
    if not said.extra:
        return said.role == before.role == "toolResult"
    beside = said.extra.get(EXTRA)
    starts = beside.get(STARTS) if isinstance(beside, dict) else None
    return starts is False or (starts is None and said.role == before.role == "toolResult")


def _side(content: JsonObject) -> bool:
    return content.get("role") == "model"


def _parts(content: JsonObject) -> list[JsonValue]:
    parts = content.get("parts")
    return parts if isinstance(parts, list) else []


def _printed(said: Said, left: Leftovers) -> JsonObject:
    found = said.extra.get(EXTRA)
    is_silent = found is not None or said.is_made_up
    printed = printed_content(said.message, Leftovers() if is_silent else left)
    if found is None and said.role == "assistant" and not is_of_google(said.message):
        return with_signature(printed, left)
    return restored(printed, found)


def with_signature(content: JsonObject, left: Leftovers) -> JsonObject:
    """Return a content of the model whose first call has a signature: its own, or `FOREIGN_SIGNATURE`. O(parts)."""
    parts = _parts(content)
    calls = [at for at, part in enumerate(parts) if isinstance(part, dict) and "functionCall" in part]
    if not calls or (isinstance(first := parts[at := calls[0]], dict) and first.get("thoughtSignature")):
        return content
    left.change("calls that a model other than Google's made go out with a mark in place of its signature")
    signed: JsonObject = {**dict(parts[at]), "thoughtSignature": FOREIGN_SIGNATURE}  # type: ignore[arg-type]
    return {**content, "parts": [*parts[:at], signed, *parts[at + 1 :]]}
