"""The text of a compaction: what a mode wrote, the blocks around it, the lists of files; and finding it again later.

A compaction notes in its details where in the text the mode's own part is (``own``), and where in that stands what an
earlier compaction of another mode said (``inherited``). So the next one takes over words, not blocks made anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flue_py.compaction.blocks.around import Around
from flue_py.compaction.blocks.block import Block
from flue_py.compaction.blocks.paths import shown_file_lists
from flue_py.compaction.joining import Told, text_in
from flue_py.compaction.material import Material
from flue_py.compaction.modes.protocol import Made
from flue_py.compaction.operations import turns_before
from flue_py.compaction.quoting import shown_id
from flue_py.compaction.serialize import appended_file_lists, listed_files
from flue_py.core.jsontext import JsonObject, JsonValue

CARRIED = ("userWords", "keyFacts", "lastHandoff")
"""The details that each compaction hands on to the next, from which a block of it is made again."""
SPANS = ("own", "inherited")
"""The details that name a part of the text."""
RULE = "---"
"""The line between what stands before a summary and its head, and between parts of it."""
HOOK = "hook"
"""What stands for the name of the mode where a hook gave the text."""


_MOST_INHERITED = 16_000
_INHERITED_PART = 4
_LEFT_OUT = "\n[… {} characters of earlier summaries are left out; they are stored …]\n"


def dressed(
    material: Material,
    mode: str,
    own: str,
    *,
    around: Around | None = None,
    calls: bool = True,
    head: str = "",
    after: Sequence[Block] = (),
    inherited: str = "",
    details: JsonObject | None = None,
    notes: Sequence[str] = (),
) -> Made:
    """Return the text of a mode between its blocks, with the lists of files behind it. ``own`` begins with inherited.

    The blocks are those of ``around``, with calls that nothing answers among them where ``calls`` says so, and then
    ``after``. ``head`` stands right before ``own``. O(size of the text).
    """
    files, is_part = shown_file_lists(material)
    left = material.beside("\n\n".join([files, head, *(block.text for block in after)]).strip())
    before, behind_own = ([], []) if around is None else around.blocks(left, own, calls=calls)
    after = [*behind_own, *after]
    ahead = "".join(f"{block.text}\n\n" for block in before if block.text)
    ahead += (f"{RULE}\n\n" if ahead and head else "") + head
    behind = "".join(f"\n\n{block.text}" for block in after if block.text)
    stored: JsonObject = {**material.planned.plan.files.details, **_written(material, mode)}
    if ahead or behind or inherited or is_part:
        stored["own"] = [len(ahead), len(ahead) + len(own)]
    if inherited:
        stored["inherited"] = [len(ahead), len(ahead) + len(inherited)]
    said = list(notes)
    for block in (*before, *after):
        stored.update(block.details)
        said.extend(block.notes)
    text = ahead + own + behind + files
    return Made(text, mode, {**stored, **(details or {})}, tuple(said))


def supplied(material: Material, text: str, details: Mapping[str, JsonValue]) -> Made:
    """Return a text that a hook gives, with its own details, and what every compaction notes beside its text."""
    return Made(text, HOOK, {**details, **_written(material, HOOK)})


def _written(material: Material, mode: str) -> JsonObject:
    """Return what is noted beside every text: who made it, how many turns leave whole, where they are stored."""
    ended = turns_before(material.earlier) + material.planned.plan.content.turns_ended
    noted: JsonObject = {"mode": mode, "turns": ended}
    ends = _originals(material)
    return {**noted, "originals": [*ends]} if ends else noted


def with_block(made: Made, block: Block) -> Made:
    """Return what a mode made with one more block behind it, which the next compaction does not take for its words."""
    if not block.text:
        return Made(made.text, made.mode, {**made.details, **block.details}, (*made.notes, *block.notes))
    details = {**made.details, **block.details}
    if "own" not in details:
        details["own"] = [0, len(made.text.removesuffix(appended_file_lists(listed_files(made.details))))]
    return Made("\n\n".join(filter(None, [made.text, block.text])), made.mode, details, (*made.notes, *block.notes))


def turns_covered(material: Material) -> int:
    """Return how many turns this compaction and those before it stand for, the last one perhaps in part."""
    turns = material.planned.plan.content.turns
    return turns_before(material.earlier) + (turns[-1] if turns else 0)


def earlier_text(material: Material, mode: str | None = None) -> str:
    """Return what earlier compactions said, without blocks and lists of files; "" for the first compaction.

    With ``mode``, if the latest was made by it, only what that had taken over from another mode: it writes the rest
    anew, from the details.
    """
    text, details = material.previous_summary or "", material.earlier or {}
    if mode is not None and details.get("mode") == mode:
        return text_in(text, details.get("inherited")) or ""
    return Told(text, details).own_text


def shortened(material: Material, text: str) -> str:
    """Return what earlier compactions said for a mode that asks no model, which could say it in fewer words.

    Its middle is left out where it takes more than a quarter of the window, or half of the room: it gets longer with
    each range that is taken over. O(size).
    """
    most = material.at_most(_MOST_INHERITED, _INHERITED_PART)
    if material.room is not None:
        most = min(most, material.room // 2)
    tokens = material.tokens_of(text) if text else 0
    if tokens <= most:
        return text
    if material.tokens_of(_LEFT_OUT) > most:
        # The line that says what is left out would be all of it. Each text says where the originals are.
        return ""
    kept = max(len(text) * most // tokens - len(_LEFT_OUT), 0) // 2
    return text[:kept] + _LEFT_OUT.format(len(text) - 2 * kept) + text[len(text) - kept :]


def covers(material: Material, first: int, what: str) -> str:
    """Return the heading of a text: what it is, and which turns it stands for, from 1."""
    return f"[{what} — covers turns {first}–{max(turns_covered(material), first)}]"


def summary_head(material: Material) -> str:
    """Return what stands before a model's summary in the form ``turns``; "" in any other."""
    if material.settings.summary_form != "turns":
        return ""
    first = 1 if earlier_text(material) else turns_before(material.earlier) + 1
    return covers(material, first, "CONVERSATION SUMMARY") + "\n\n"


def entries_named(material: Material) -> str:
    """Return the ids between which the originals are stored, also those that earlier compactions stood for."""
    ends = _originals(material)
    return f"entries {shown_id(ends[0])} to {shown_id(ends[1])}" if ends else "the entries before"


def stored_block(material: Material) -> Block:
    """Return a line that says where the originals are, for a mode whose text may not."""
    return Block(f"[The originals are stored: {entries_named(material)}]")


def _originals(material: Material) -> list[str]:
    """Return the ids of the first entry that this compaction and those before it stand for, and of the last."""
    leaving = material.leaving
    if not leaving:
        return []
    known = (material.earlier or {}).get("originals")
    first = known[0] if isinstance(known, (list, tuple)) and known else None
    return [first if isinstance(first, str) else leaving[0].entry_id, leaving[-1].entry_id]


def noted(earlier: Mapping[str, JsonValue] | None, names: Sequence[str]) -> JsonObject:
    """Return those of an earlier compaction's details that a mode hands on as they are."""
    return {name: earlier[name] for name in names if name in earlier} if earlier else {}
