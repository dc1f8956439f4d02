"""What has to be changed in messages of ours before a provider takes them: ids, names, pictures, foreign reasoning.

Each repair takes the messages of a context and returns them; what it changed is noted with the entry. A message is
changed for what it says itself and for what came before it, so that the beginning of a growing conversation stays the
same bytes; pictures, of which a request may have so many, leave in portions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from flue_py.core.counting import is_same_model
from flue_py.core.faithful import SYSTEM
from flue_py.core.ids import made_id
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.native import COMPACTION_PART, holds_compaction
from flue_py.wire.anthropic import is_blank
from flue_py.wire.codex_items import ITEM
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.openai_responses import PI_ID
from flue_py.wire.lists.said import Said
from flue_py.wire.media import type_of_bytes
from flue_py.wire.openai_chat import CUSTOM, arguments_object, image_from_url, is_text_of_object
from flue_py.wire.rules.anthropic import torn_server_calls
from flue_py.wire.rules.limits import RequestLimits
from flue_py.wire.rules.pictures import HEIF, wrong_picture

_SAY_SOMETHING = frozenset({"user", "assistant", "system", "developer", "custom"})
_PORTION = 5
"""Above the limit so many portions are made of it: with 100 images allowed, they leave 20 at a time."""


def fitting_id(call_id: str, limits: RequestLimits) -> str:
    """Return the id of a call as a provider takes it: the same where it does, else one made of it. O(size)."""
    if limits.takes_id(call_id):
        return call_id
    bare = PI_ID.fullmatch(call_id)
    if bare is not None and limits.takes_id(bare[1]):
        return bare[1]
    # The digest keeps two apart that begin alike, or whose signs were replaced by the same one.
    digest = made_id(call_id)
    text = f"{_only_fitting(call_id, limits.id_pattern)[: limits.most_id_chars - 17]}_{digest}"
    return text if limits.takes_id(text) else digest[: limits.most_id_chars]


def fitting_name(name: str, limits: RequestLimits) -> str:
    """Return the name of a tool as a provider takes it, as `fitting_id` does. O(size)."""
    if limits.takes_name(name):
        return name
    text = _only_fitting(name, limits.name_pattern)[: limits.most_name_chars]
    return text if limits.takes_name(text) else f"tool_{text}"[: limits.most_name_chars]


def _only_fitting(text: str, pattern: str) -> str:
    return "".join(sign if re.fullmatch(pattern, f"a{sign}") else "_" for sign in text)


def with_fitting_calls(
    said: Sequence[Said], limits: RequestLimits, left: Leftovers, *, as_items: bool = False
) -> list[Said]:
    """Return messages whose calls and results have ids, names and arguments that a provider takes. O(parts).

    ``as_items`` says that a call which was an item of Responses goes out as that item.
    """
    return [_with_fitting_call(each, limits, left, as_items=as_items) for each in said]


def _with_fitting_call(said: Said, limits: RequestLimits, left: Leftovers, *, as_items: bool) -> Said:
    message = said.message
    left.at = said.entry_id
    if said.role == "toolResult":
        fitting = _fitted(message, limits, "toolCallId", "toolName")
    elif said.calls:
        given = _parts(message)
        parts = [_fitted(part, limits, "id", "name") if _is(part, "toolCall") else part for part in given]
        fitting = {**message, "content": parts} if parts != given else message
    else:
        return said
    if fitting is not message:
        left.change("ids or names of tool calls were changed to what the API accepts")
    whole = _with_objects(fitting, left, as_items=as_items) if said.calls else fitting
    return said if whole is message else said.with_message(whole)


def _with_objects(message: JsonObject, left: Leftovers, *, as_items: bool) -> JsonObject:
    """Return an answer whose calls have objects as arguments, or the text of one; the same one if they do."""
    changed: dict[int, JsonValue] = {}
    for place, part in enumerate(_parts(message)):
        if not isinstance(part, dict) or part.get("type") != "toolCall" or part.get(CUSTOM) is True:
            continue
        arguments = part.get("arguments")
        is_item = as_items and part.get(ITEM, "function_call") != "function_call"
        if arguments is None or isinstance(arguments, dict) or is_item or is_text_of_object(arguments):
            continue
        changed[place] = {**part, "arguments": arguments_object(part, left)}
    if not changed:
        return message
    return {**message, "content": [changed.get(place, part) for place, part in enumerate(_parts(message))]}


def _fitted(value: JsonValue, limits: RequestLimits, id_field: str, name_field: str) -> JsonObject:
    held = value if isinstance(value, dict) else {}
    changed: JsonObject = {}
    call_id, name = held.get(id_field), held.get(name_field)
    if isinstance(call_id, str) and (fitting := fitting_id(call_id, limits)) != call_id:
        changed[id_field] = fitting
    if isinstance(name, str) and (fitting := fitting_name(name, limits)) != name:
        changed[name_field] = fitting
    return {**held, **changed} if changed else held


def without_foreign_reasoning(said: Sequence[Said], model: str | None, left: Leftovers) -> list[Said]:
    """Return messages without the reasoning of other models than the one that is asked.

    Where that is None, all of it stays, and so does that of an answer that names no model. What an answer goes on with
    behind it, in this message or in the next ones, has `Said.has_lost`. O(parts).
    """
    if model is None:
        return [*said]
    kept: list[Said] = []
    has_lost = False
    for each in said:
        bare = _without_reasoning(each, left) if _is_foreign(each.message, model) else each
        has_lost = each.role == "assistant" and (has_lost or bare is not each)
        kept.append(Said(bare.message, bare.extra, bare.entry_id, has_lost=True) if has_lost else bare)
    return kept


def _is_foreign(message: JsonObject, model: str) -> bool:
    by = message.get("model")
    return message.get("role") == "assistant" and isinstance(by, str) and bool(by) and not is_same_model(by, model)


def _without_reasoning(said: Said, left: Leftovers) -> Said:
    parts = _parts(said.message)
    kept = [part for part in parts if not _is(part, "thinking")]
    if len(kept) == len(parts):
        return said
    left.at = said.entry_id
    for part in parts:
        if _is(part, "thinking"):
            left.note("reasoning of another model", _object(part))
    return said.with_message({**said.message, "content": kept})


def with_fitting_images(
    said: Sequence[Said], limits: RequestLimits, left: Leftovers, *, in_answers: bool
) -> list[Said]:
    """Return messages without the images that a provider does not take, with a text in the place of each.

    Of more images than a request may have, the oldest leave. ``in_answers`` says whether answers may have any.
    O(parts).
    """
    found = [
        (at, place)
        for at, each in enumerate(said)
        for place, part in enumerate(_parts(each.message))
        if _is(part, "image")
    ]
    held = [_held(_parts(said[at].message)[place]) for at, place in found]
    types = [_real_type(*each) for each in held]
    spare = _spare([len(data or "") for data, _ in held], limits)
    changes: dict[int, dict[int, JsonValue]] = {}
    for number, ((at, place), (data, declared), real) in enumerate(zip(found, held, types, strict=True)):
        why = "" if in_answers or said[at].role != "assistant" else "an image in an answer"
        if number < spare:
            why = why or f"an image of more than the API takes in one request ({limits.images:,})"
        why = why or wrong_picture(data, real or declared, limits, among=len(found) - spare)
        left.at = said[at].entry_id
        if not why and real is not None:
            left.change(f"an image that is said to be of another type goes out as {real}, as its data are")
            rest = {name: value for name, value in _object(_parts(said[at].message)[place]).items() if name != "url"}
            changes.setdefault(at, {})[place] = {**rest, "data": data, "mimeType": real}
        if why:
            instead: JsonObject = {"type": "text", "text": _in_its_place(why, said[at].entry_id)}
            left.note(why, _object(_parts(said[at].message)[place]), put=instead)
            changes.setdefault(at, {})[place] = instead
    return [_replaced(each, changes.get(at)) for at, each in enumerate(said)]


def _real_type(data: str | None, declared: str | None) -> str | None:
    """Return the type of the picture that some data are, where it is said to be of another; None where it is not."""
    real = None if data is None else type_of_bytes(data)
    said = declared or "image/png"  # as it goes out
    is_other = real is not None and real.startswith("image/") and real != said and {real, said} != HEIF
    return real if is_other else None


def _spare(sizes: Sequence[int], limits: RequestLimits) -> int:
    """Return how many images leave from the beginning, in portions, so that the rest fits."""
    portion = max(1, limits.images // _PORTION)
    spare = -(-max(0, len(sizes) - limits.images) // portion) * portion
    most = limits.image_chars_in_all
    if most is not None:
        # So many characters leave that the next images do not move the cut again.
        goal = -(-max(0, sum(sizes) - most) // max(1, most // _PORTION)) * (most // _PORTION)
        gone, leaving = 0, 0
        while gone < goal and leaving < len(sizes):
            gone += sizes[leaving]
            leaving += 1
        spare = max(spare, leaving)
    return min(spare, len(sizes))


def _in_its_place(why: str, entry_id: str | None) -> str:
    stored = "" if entry_id is None else f"; it is stored in entry {entry_id}"
    return f"[image left out: {why}{stored}]"


def _replaced(said: Said, parts: dict[int, JsonValue] | None) -> Said:
    if not parts:
        return said
    kept = [parts.get(place, part) for place, part in enumerate(_parts(said.message))]
    return said.with_message({**said.message, "content": kept})


def without_spare_compactions(said: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return messages without what a provider compacted itself, but where it stands first and holds something.

    What it stands for is in the messages before it, which a provider would otherwise be sent beside it. O(parts).
    """
    kept: list[Said] = []
    first = next((at for at, each in enumerate(said) if each.role not in SYSTEM), None)
    for at, each in enumerate(said):
        parts = _parts(each.message)
        is_first = at == first and each.role == "assistant"
        good = [
            part
            for place, part in enumerate(parts)
            if not _is(part, COMPACTION_PART) or (is_first and place == 0 and holds_compaction(_object(part)))
        ]
        if len(good) == len(parts):
            kept.append(each)
            continue
        left.at = each.entry_id
        spare = [_object(part) for part in parts if part not in good]
        left.note("a compaction of the provider's that does not stand first, or holds nothing", *spare)
        kept.append(each.with_message({**each.message, "content": good}))
    return kept


def without_torn_server_calls(said: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return messages without calls of tools that Anthropic runs itself whose result never came. O(parts)."""
    sides = (("results" if each.role == "toolResult" else str(each.role), _parts(each.message)) for each in said)
    torn: dict[int, list[int]] = {}
    for at, place in torn_server_calls(sides):
        torn.setdefault(at, []).append(place)
    kept = [*said]
    for at, places in torn.items():
        parts = _parts(said[at].message)
        left.at = said[at].entry_id
        for place in places:
            left.note("a call of a tool that the API runs, without its result or the reverse", _object(parts[place]))
        whole = [part for place, part in enumerate(parts) if place not in places]
        kept[at] = said[at].with_message({**said[at].message, "content": whole})
    return kept


def without_empty(said: Sequence[Said], left: Leftovers) -> list[Said]:
    """Return messages without those that say nothing: no content, or nothing but white space and empty parts.

    The result of a tool stays: it answers its call. O(parts).
    """
    kept: list[Said] = []
    for each in said:
        if not each.extra and _says_nothing(each.message.get("content")) and each.role in _SAY_SOMETHING:
            left.at = each.entry_id
            left.note("a message that says nothing", each.message)
        else:
            kept.append(each)
    return kept


def _says_nothing(content: JsonValue) -> bool:
    if not isinstance(content, list):
        return is_blank(content)
    # Written out: almost every part of a history is asked, and says something.
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not is_blank(part.get("text")):
            return False
    return True


def _parts(message: JsonObject) -> list[JsonValue]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _is(part: JsonValue, kind: str) -> bool:
    return isinstance(part, dict) and part.get("type") == kind


def _held(part: JsonValue) -> tuple[str | None, str | None]:
    """Return the base64 text of an image and its MIME type, from its own fields or from its URL; None for neither."""
    image = _object(part)
    url = image.get("url")
    inline = image_from_url(url) if isinstance(url, str) else {}
    data = image["data"] if isinstance(image.get("data"), str) else inline.get("data")
    mime_type = image["mimeType"] if isinstance(image.get("mimeType"), str) else inline.get("mimeType")
    return data if isinstance(data, str) else None, mime_type if isinstance(mime_type, str) else None
