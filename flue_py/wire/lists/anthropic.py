"""What the model sees as a list of Anthropic messages, and the system prompt that a request has beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flue_py.core.faithful import SYSTEM
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.native import COMPACTION_PART
from flue_py.wire.anthropic import (
    EXTRA,
    PROVIDER,
    block_from_part,
    is_blank,
    is_reasoning,
    latest_cache_marks,
    printed_result,
    without_blanks,
)
from flue_py.wire.differences import restored
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.said import (
    CONTINUED,
    Said,
    SystemApart,
    answered,
    joined_answers,
    split_system,
    with_own_ids,
)
from flue_py.wire.openai_chat import parts_of

LAST_REASONING = "reasoning that nothing of its answer follows, which the API refuses"


def anthropic_list(
    messages: Iterable[Said],
    left: Leftovers,
    *,
    is_sent: bool = False,
    account: str | None = None,
    system_within: bool = False,
) -> SystemApart:
    """Return messages of ours as Anthropic messages, users and answers taking turns, and what the system said.

    The results of an answer's tools stand at the beginning of one message of the user, right behind it. Reasoning
    goes out where Anthropic signed it, and in a list that ``is_sent`` where something of the same answer follows it; of
    marks for the cache the last ones do, as many as it takes. What the system said is a string, blocks, or None. What
    Anthropic compacted itself, for ``account``, goes out as it came. With ``system_within`` a system message from the
    middle stays behind the message of the user that is nearest. Cost: O(messages).
    """
    system, said = split_system(messages, left, provider=PROVIDER, account=account, within=system_within)
    turns = _turns(with_own_ids(answered(joined_answers(said), left), left), left, is_sent=is_sent)
    if turns and turns[0].get("role") != "user" and not _begins_compacted(turns[0]):
        begun: JsonObject = {"role": "user", "content": CONTINUED}
        left.change("a message of the user stands before the first answer, which the API asks for", put=[begun])
        turns.insert(0, begun)
        left.places = {entry_id: place + 1 for entry_id, place in left.places.items()}
    told = (_system(system, left) if system else None) or None
    request = latest_cache_marks({"system": told, "messages": [*turns]}, left)
    marked = request["messages"] if isinstance(request, dict) else None
    kept = [each for each in marked if isinstance(each, dict)] if isinstance(marked, list) else turns
    return SystemApart(request["system"] if isinstance(request, dict) else told, kept)


def _begins_compacted(turn: JsonObject) -> bool:
    """Return whether a list begins with what Anthropic compacted itself, which nothing may stand before."""
    first = next(iter(_blocks(turn.get("content"))), None)
    return isinstance(first, dict) and first.get("type") == COMPACTION_PART


def _system(system: Sequence[Said], left: Leftovers) -> JsonValue:
    content = system[0].message.get("content")
    if len(system) == 1 and isinstance(content, str):
        return without_blanks(content, left)
    return [
        block
        for each in system
        for part in parts_of(each.message)
        for block in block_from_part(part, left, provider=None)
    ]


def _turns(said: Sequence[Said], left: Leftovers, *, is_sent: bool) -> list[JsonObject]:
    turns: list[JsonObject] = []
    entries: list[str | None] = []  # of each block of the last turn
    before: Said | None = None
    instructions: list[Said] = []
    for each in said:
        left.at = each.entry_id
        if each.role in SYSTEM:
            instructions.append(each)
            continue
        role = "assistant" if each.role == "assistant" else "user"
        content = _content(each, left)
        if not content:
            if not each.message.get("content"):
                left.note("a message without content, which the API refuses", each.message)
            continue  # whatever else it held has no place here, and has been noted
        if role == "user" and is_sent:
            _end_answer(turns, entries, left)
            left.at = each.entry_id
        if instructions and role == "assistant":
            _instruct(turns, instructions, left)
            entries.clear()
        elif instructions:
            left.change("a system message stands behind the message of the user that follows it, as the API asks")
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": content})
            entries.clear()
        else:
            if before is not None and not (before.role == "toolResult" and role == "user"):
                left.change("messages of one side that followed each other were joined")
            turns[-1]["content"] = [*_blocks(turns[-1]["content"]), *_blocks(content)]
        entries += [each.entry_id] * (len(content) if isinstance(content, list) else 1)
        before = each
        left.places[each.entry_id] = len(turns) - 1
    if is_sent:
        _end_answer(turns, entries, left)
    if instructions:
        _instruct(turns, instructions, left)
    left.at = None
    return turns


def _instruct(turns: list[JsonObject], instructions: list[Said], left: Leftovers) -> None:
    """Add what the system said in the middle, which stands behind a message of the user; and empty the list of it."""
    content = _system(instructions, left)
    if content:
        if not turns or turns[-1]["role"] != "user":
            begun: JsonObject = {"role": "user", "content": CONTINUED}
            left.change("a message of the user stands before a system message, which the API asks for", put=[begun])
            turns.append(begun)
        turns.append({"role": "system", "content": content})
        left.places |= {each.entry_id: len(turns) - 1 for each in instructions}
    instructions.clear()


def _end_answer(turns: list[JsonObject], entries: Sequence[str | None], left: Leftovers) -> None:
    """Take reasoning off the end of an answer that stands last, and the answer where nothing is left of it.

    Where a turn was cut off there may be no more than that, and the API takes no answer that ends so.
    """
    if not turns or turns[-1]["role"] != "assistant":
        return
    blocks = _blocks(turns[-1]["content"])
    if blocks and not is_reasoning(blocks[-1]):
        return
    kept = [*blocks]
    while kept and is_reasoning(kept[-1]):
        block = kept.pop()
        left.at = entries[len(kept)]
        thought = block.get("thinking") if isinstance(block, dict) else None
        left.note(LAST_REASONING, {"type": "thinking", "thinking": thought or ""})
    if kept:
        turns[-1] = turns[-1] if len(kept) == len(blocks) else {**turns[-1], "content": kept}
        return
    turns.pop()
    for entry_id in dict.fromkeys(entries):
        left.places.pop(entry_id, None)
        if turns:
            left.places[entry_id] = len(turns) - 1


def _blocks(content: JsonValue) -> list[JsonValue]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _content(said: Said, left: Leftovers) -> JsonValue:
    """Return the content of the message that this one is, or is part of."""
    message, found = said.message, said.extra.get(EXTRA) if said.extra else None
    quiet = left if found is None else Leftovers()
    if said.role == "toolResult":
        result = restored(printed_result(message, quiet), found)
        if isinstance(result.get("content"), list):
            result["content"] = without_blanks(result["content"], left)
        return [result]
    content = message.get("content")
    if not content:
        return []
    if isinstance(content, str):
        return without_blanks(content, left)
    blocks: list[JsonValue] = []
    for part in content if isinstance(content, list) else ():
        # Written out, since almost every part is this: a text and nothing beside it.
        if not isinstance(part, dict):
            continue
        text = part.get("text")
        if len(part) == 2 and part.get("type") == "text" and isinstance(text, str) and not is_blank(text):
            blocks.append({"type": "text", "text": text})
        else:
            blocks += block_from_part(part, quiet, provider=message.get("provider"))
    if found is None:
        return blocks  # none of them is blank: such a text is no block
    # What stands beside a message may come from any file: only what can be content counts.
    content = restored({"content": blocks}, found).get("content")
    return without_blanks(content, left) if isinstance(content, (str, list)) else blocks
