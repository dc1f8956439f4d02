"""The entries of a Claude Code transcript while they are made: their ids, their times, and what stands beside them."""

from __future__ import annotations

from flue_py.core.ids import derived_id
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.errors import InvalidEntry, shown
from flue_py.formats.claude_code.chains import REMEMBERED, Chain, Node
from flue_py.formats.claude_code.rows import CONSTANT, UNREADABLE, ClaudeRow
from flue_py.formats.kit.encoding import Content, encode_decoded, message_content
from flue_py.formats.kit.rows import Notes
from flue_py.formats.kit.streaming import IdTable, Recent, TitleChange
from flue_py.formats.kit.values import one_text, read_moment

_PLACED = frozenset({"type", "uuid", "parentUuid", "logicalParentUuid", "timestamp", "isSidechain", "message"})
_CONSTANT = frozenset(CONSTANT)
_TITLES = {"summary": ("summary", 0), "ai-title": ("aiTitle", 1), "custom-title": ("customTitle", 2)}
_MERGED, _ENTRY, _ENTRY_OF_TASK = 0, 1, 2


class Entries:
    """Makes the entries of a file, and knows which rows became what. ``ready`` counts those that can be returned."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._ids = IdTable()
        self._nodes: Recent[Node] = Recent(REMEMBERED)
        self._branch_titles: Recent[tuple[Chain, TitleChange]] = Recent(1000)
        self.ready = 0

    # -- which rows became what ---------------------------------------------------------------------------------

    def meet(self, uuid: str) -> bool:
        """Take down a row; return whether there was one with its uuid before."""
        if self._ids.get(uuid) is not None:
            return True
        self._ids.put(uuid, _MERGED)
        return False

    def is_known(self, uuid: str) -> bool:
        """Return whether there was a row or an entry of this name."""
        return self._ids.get(uuid) is not None

    def belongs(self, uuid: str, node: Node) -> None:
        """Note that what names a row as its parent hangs below a step."""
        self._nodes.put(uuid, node)

    def step_of(self, uuid: str) -> Node | None:
        """Return the step that a row is in, where it is remembered."""
        return self._nodes.get(uuid)

    def entry_as_step(self, chain: Chain, uuid: str) -> Node | None:
        """Return an entry of the main session, however far back, as a step to hang something below."""
        return Node(chain, uuid, uuid) if chain.parent is None and self._ids.get(uuid) == _ENTRY else None

    def parent_of(self, chain: Chain, row: ClaudeRow) -> Node | None:
        """Return the step that a row names as its parent; None for a root, which is noted where the name was lost."""
        name = row.parent
        if name is None:
            return None
        node = self._nodes.get(name)
        if node is None:
            node = self.entry_as_step(chain, name)
            if node is None:
                if chain.parent is not None and chain.tail is None:
                    # An agent may go on below a row of the session whose task it is, which has a file of its own.
                    row.lost_parent = True
                    return None
                why = "which was merged or left out too far back" if self.is_known(name) else "which is missing"
                return self._below_the_row_before(chain, row, why)
            self._nodes.put(name, node)
        elif node.chain is not chain:
            return self._below_the_row_before(chain, row, "which is in another session")
        return node

    def _below_the_row_before(self, chain: Chain, row: ClaudeRow, why: str) -> Node | None:
        """Return the step before a row whose parent is lost, so that what was said before goes on being above it."""
        row.lost_parent = True
        where = "it became a root" if chain.tail is None else "it was put below the row before"
        self._notes.repair(row.line, f"names the parent {shown(row.parent)}, {why}; {where}")
        return chain.tail

    def entry_of(self, chain: Chain, uuid: JsonValue) -> str | None:
        """Return the entry that a row became, or became part of."""
        if not isinstance(uuid, str):
            return None
        if self._ids.get(uuid) == _ENTRY:
            return uuid
        node = self._nodes.get(uuid)
        return node.first if node is not None and node.chain is chain else None

    # -- handing over -------------------------------------------------------------------------------------------

    def emit(
        self,
        chain: Chain,
        node: Node,
        row: ClaudeRow,
        content: Content,
        extra: JsonObject,
        *,
        parent: str | None,
        name: str | None = None,
    ) -> str:
        """Hand an entry over: below ``parent``, under the row's uuid, as the end of its step. Return its id."""
        entry_id = name or row.uuid or derived_id(chain.id, row.line, row.raw.strip().decode(errors="replace"))
        moment = read_moment(row.fields.get("timestamp"))
        if moment is None:
            moment = chain.last_time if chain.last_time is not None else chain.created_us
            if row.uuid is not None:
                self._notes.repair(row.line, f"row {row.uuid!r} has no readable timestamp")
        else:
            chain.last_time = moment
        if row.parent != parent and row.uuid is not None:
            extra["parentUuid"] = row.parent
        text, replaced = None, content.surrogates_replaced
        if extra:
            try:
                text, more = encode_decoded(extra, "extra")
                replaced += more
            except InvalidEntry as error:
                self._notes.repair(row.line, f"{error}; what stands beside the message is left out")
        self._notes.surrogates_replaced += replaced
        chain.entries.append(content.placed(entry_id, parent, moment, text, replaced))
        chain.lines.append(row.line)
        if row.lost_parent and parent is None and row.parent is not None:
            chain.lost[entry_id] = row.parent
        if content.kind in (MESSAGE, COMPACTION):
            chain.leaves.append(entry_id)
            chain.has_messages = True
        if node.first is None:
            node.first = entry_id
        node.tail = entry_id
        chain.tail = node
        self._ids.put(entry_id, _ENTRY if chain.parent is None else _ENTRY_OF_TASK)
        if row.uuid is not None:
            self._nodes.put(row.uuid, node)
            named = self._branch_titles.get(row.uuid)
            if named is not None and named[0].title_rank <= 0:
                named[0].title_rank = 0
                named[0].titles.append(named[1])
        self.ready += 1
        return entry_id

    def name_session(self, chain: Chain, row: ClaudeRow, entry_id: str) -> None:
        """Take the title from a row that gives one: what a person chose counts more than what a model made up."""
        if row.type not in _TITLES:
            return
        name, rank = _TITLES[row.type]
        title = (one_text(row.fields.get(name), 500) or "").strip()
        if not title:
            return
        change = TitleChange(entry_id, title, is_made=row.type != "custom-title")
        leaf = row.fields.get("leafUuid")
        if row.type == "summary" and isinstance(leaf, str) and not self.is_known(leaf):
            # The title of a branch that comes later, or of another session.
            self._branch_titles.put(leaf, (chain, change))
        elif rank >= chain.title_rank:
            chain.title_rank = rank
            chain.titles.append(change)

    # -- what they hold -----------------------------------------------------------------------------------------

    def user_message(self, row: ClaudeRow, message: JsonObject) -> Content:
        """Return a message that the model did not write."""
        try:
            return message_content(message)
        except InvalidEntry as error:
            return self.unreadable(row, error, {"message": row.fields.get("message")})

    def custom(self, row: ClaudeRow, kind: str, body: JsonValue) -> Content:
        """Return an entry that is not a message."""
        try:
            text, replaced = encode_decoded(body, kind)
        except InvalidEntry as error:
            return self.unreadable(row, error, {"line": row.text})
        return Content(kind, text, surrogates_replaced=replaced)

    def unreadable(self, row: ClaudeRow, error: InvalidEntry, body: JsonObject) -> Content:
        """Return a row that cannot be what it says: kept whole, and noted."""
        kind = f"{UNREADABLE}message" if row.type in ("user", "assistant") else f"{UNREADABLE}entry"
        self._notes.repair(row.line, f"{error}; kept as {kind}, outside the context")
        try:
            text, replaced = encode_json({"type": row.type, **body}, kind)
        except InvalidEntry:
            text, replaced = encode_json({"type": row.type, "line": row.text}, kind)
        return Content(kind, text, surrogates_replaced=replaced)

    @staticmethod
    def beside(chain: Chain, row: ClaudeRow) -> JsonObject:
        """Return the fields of a row that have no other place, but for those that are the same all over the file."""
        header = chain.header
        return {
            name: value
            for name, value in row.fields.items()
            if name not in _PLACED and not (name in _CONSTANT and header.get(name) == value)
        }
