"""A session while the parts of a file are stored in it, and what is done to it at the end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from flue_py.core.calls import PaidCall
from flue_py.core.entries import NewEntry, from_microseconds
from flue_py.core.jsontext import JsonObject, JsonValue, decode_object, encode_json
from flue_py.core.sessions import SessionInfo
from flue_py.core.usage import TOO_LARGE
from flue_py.errors import EntryNotFound
from flue_py.formats.kit.parsed import TaskOf
from flue_py.formats.kit.report import LineNote
from flue_py.formats.kit.streaming import SessionPart
from flue_py.sessions.appending import oddities_of
from flue_py.sessions.arguments import checked_metadata
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.transfer.importing.reports import SessionImport
from flue_py.transfer.importing.sources import ImportSource

_ODDITIES = 1_000
"""How many oddities of a session are remembered at most."""
_CHILDREN = 1_000
"""How many tasks of a session are looked up, and remembered, at most."""


@dataclass(slots=True)
class Target:
    """A session while its parts are stored. ``newest`` is the last entry that was the leaf in an import before."""

    session: Session
    created: bool
    newest: str | None = None
    first_part: bool = True
    is_older_copy: bool = False
    is_unchanged: bool = False
    """Whether the file begins with what was imported before."""

    is_chained: bool = False
    added: int = 0
    already_there: int = 0
    leaf_kept: bool = False
    title: str | None = None
    auto_title: str | None = None
    name: str | None = None
    """What is new of how people call the session beside its file; what it was called here since stays."""

    segment: str = ""
    """Which of its files the import is of, where it has several."""

    completed_us: int | None = None
    about: JsonObject | None = None
    """What a file that was rewritten says of itself now."""
    labels: dict[str, str | None] = field(default_factory=dict)
    instead: dict[str, str | None] = field(default_factory=dict)
    recorded: JsonObject | None = None
    parent: str | None = None
    began: dict[str, str] = field(default_factory=dict)
    tasks: list[TaskOf] = field(default_factory=list)
    calls: list[PaidCall] = field(default_factory=list)
    """Calls to book without an entry, or with other numbers than their entry has."""

    unsettled: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For entries that an earlier import may have taken: the ids of calls here that would be theirs."""

    booked: int = 0
    oddities: list[str] = field(default_factory=list)
    metadata: JsonObject | None = None
    below: str | None = None
    """Of a task: the entry of its parent that its first row names as its own parent."""

    def note_oddities(self, told: Sequence[str], entries: Sequence[NewEntry]) -> None:
        """Remember the oddities of entries that the store reported and their reader did not."""
        own = set(oddities_of(entries))
        new = (oddity for oddity in told if oddity.endswith(TOO_LARGE) and oddity not in own)
        self.oddities += islice(new, max(0, _ODDITIES - len(self.oddities)))

    def stands_for(self, entry_id: str | None) -> str | None:
        """Return the entry that stands in place of another, which was imported before it was complete."""
        seen = 0
        while entry_id in self.instead and seen <= len(self.instead):
            entry_id = self.instead[str(entry_id)]
            seen += 1
        return entry_id

    def note_names(self, part: SessionPart, added: Collection[str] | None) -> None:
        """Remember the title and the labels that new entries give. Others may have been changed here since."""
        for title in part.titles:
            if (added is None or title.entry_id in added) and title.is_made:
                self.auto_title = title.title
            elif added is None or title.entry_id in added:
                self.title = title.title
        if part.name is not None and part.name != (self.recorded or {}).get("name"):
            self.title = self.name = part.name
        for label in part.labels:
            if added is None or label.entry_id in added:
                self.labels[label.target_id] = label.label
        if part.restates:
            self.metadata = decode_object(part.session.metadata_text)
        self.tasks += part.tasks
        self.began.update((name, entry_id) for name, entry_id in part.began.items() if len(self.began) < _CHILDREN)

    async def set_names(self, notes: list[LineNote]) -> None:
        """Set the titles and the labels that differ."""
        session = self.session
        if self.auto_title is not None and self.auto_title != session.info.auto_title:
            await session.set_title(self.auto_title, auto=True)
        if self.title is not None and self.title != session.title:
            await session.set_title(self.title)
        there = await session.labels() if self.labels else {}
        for entry_id, label in self.labels.items():
            if there.get(entry_id) != label:
                try:
                    await session.set_label(entry_id, label)
                except EntryNotFound as error:
                    notes.append(LineNote(0, f"no label was set: {error}"))
        if "names" in (self.recorded or {}) or self.name is not None:
            self.recorded = {name: value for name, value in (self.recorded or {}).items() if name != "names"}
            if self.name is not None:
                self.recorded["name"] = self.name
            await session.set_metadata({"imported": self.recorded}, merge=True)

    async def set_completed(self) -> None:
        """Note that the work was completed, once: what was said of it here since stays."""
        if self.completed_us is None or (self.recorded or {}).get("completed") is True:
            return
        await self.session.set_completed(from_microseconds(self.completed_us))
        await self._remember({**(self.about or {}), "completed": True})

    async def remember_coming(self, about: JsonObject | None) -> None:
        """Note what comes with entries that are stored next: names, and what the file says of itself now.

        Names are set once everything is stored. Where an import dies before that, the next one finds them here.
        """
        names = self._names()
        if names != (self.recorded or {}).get("names", {}):
            await self._remember({**(about or {}), "names": names})
        elif about is not None:
            await self._remember(about)

    def _names(self) -> JsonObject:
        """Return the names that are to be set, and are not set yet as far as the row of the session tells."""
        info, names = self.session.info, JsonObject()
        if self.auto_title is not None and self.auto_title != info.auto_title:
            names["autoTitle"] = self.auto_title
        if self.title is not None and self.title != info.title:
            names["title"] = self.title
        if self.labels:
            names["labels"] = {**self.labels}
        return names

    def take_names(self) -> None:
        """Take over the names that an import which died did not set."""
        names = (self.recorded or {}).get("names")
        if not isinstance(names, dict):
            return
        title, auto_title, labels = names.get("title"), names.get("autoTitle"), names.get("labels")
        self.title = title if isinstance(title, str) else None
        self.auto_title = auto_title if isinstance(auto_title, str) else None
        for entry_id, label in labels.items() if isinstance(labels, dict) else ():
            self.labels[entry_id] = label if isinstance(label, str) else None

    async def _remember(self, found: JsonObject) -> None:
        before, self.recorded = self.recorded, {**(self.recorded or {}), **found}
        if before != self.recorded:
            await self.session.set_metadata({"imported": self.recorded}, merge=True)

    async def restate(self, store: Store) -> None:
        """Take over the metadata that the file has now, unless the session has gone on without it.

        Keys that an earlier import brought, and the file no longer has, go; those that were set here stay.
        """
        stated, session = self.metadata, self.session
        if stated is None or self.leaf_kept:
            return
        info = session.info
        now = checked_metadata(restated(decode_object(info.metadata_text), stated), store.limits)
        # What links say by now is not stored once more.
        if decode_object(info.task_names.taken_from(now, info.metadata_text)) == decode_object(info.metadata_text):
            return
        new = checked_metadata(stated, store.limits)

        def edit(stored: str) -> str:
            return checked_metadata(restated(decode_object(stored), decode_object(new)), store.limits)

        await store.backend.update_session(session.ref, metadata_text=edit)
        await session.refresh()

    def read_before(self) -> tuple[JsonValue, JsonValue]:
        """Return how many bytes of the file were imported before, and their digest."""
        record = self._segments().get(self.segment) if self.segment else self.recorded
        return (record.get("bytes"), record.get("digest")) if isinstance(record, dict) else (None, None)

    def _segments(self) -> JsonObject:
        segments = (self.recorded or {}).get("segments")
        return segments if isinstance(segments, dict) else {}

    @property
    def is_superseded(self) -> bool:
        """Whether another file, from which on the session took another way, was imported before."""
        return any(name > self.segment for name in self._segments())

    async def remember_end(self, source: ImportSource) -> None:
        """Note how far the file was read, and where that left the leaf; not of an older copy."""
        if self.is_older_copy:
            return
        recorded = dict(self.recorded or {})
        end: JsonObject = {"bytes": source.whole_bytes, "digest": source.digest}
        if self.segment:
            end = {"segments": {**self._segments(), self.segment: end}}
        if not self.leaf_kept and not self.is_superseded:
            end["leaf"] = self.session.leaf_id
        if {**recorded, **end} != recorded:
            await self.session.set_metadata({"imported": {**recorded, **end}}, merge=True)

    async def remember_leaf(self) -> None:
        """Note which entry was the leaf, for a file that may be rewritten."""
        recorded: JsonObject = {**(self.recorded or {}), "leaf": self.newest}
        if recorded != self.recorded:
            await self.session.set_metadata({"imported": recorded}, merge=True)

    def tasks_began(self) -> dict[str, str]:
        """Return below which entries tasks of the session began, by their names, as far as files said."""
        return {**began_of(self.session.metadata), **self.began}

    def note_beginning(self, part: SessionPart) -> None:
        """Take down which row of its parent a task goes on below, if it says so."""
        if part.parent is not None and self.below is None:
            self.below = next((part.lost[str(entry.id)] for entry in part.entries if entry.id in part.lost), None)

    async def remember_beginning(self) -> None:
        """Note where the task began, for a parent that comes later."""
        if self.below is not None:
            await self._remember({"below": self.below})

    async def remember_tasks(self) -> None:
        """Note where tasks began, for those whose sessions come later."""
        began = self.tasks_began()
        if began != began_of(self.session.metadata):
            imported: JsonObject = {**imported_record(self.session), "tasks": {**began}}
            await self.session.set_metadata({"imported": imported}, merge=True)

    def report(self) -> SessionImport:
        """Return what became of the session."""
        return SessionImport(
            self.session.id,
            self.created,
            self.added,
            self.already_there,
            self.session.leaf_id,
            self.leaf_kept,
            self.parent,
            self.booked,
            tuple(self.oddities),
        )


def restated(there: JsonObject, stated: JsonObject) -> JsonObject:
    """Return the metadata of a session whose file has others now: the file's, and what the file never brought."""
    imported = there.get("imported")
    keys = imported.get("keys") if isinstance(imported, dict) else None
    brought = {name for name in keys if isinstance(name, str)} if isinstance(keys, list) else set[str]()
    return {**stated, **{name: value for name, value in there.items() if name not in brought and name not in stated}}


def imported_in(metadata_text: str) -> JsonObject:
    """Return what the metadata of a session that is to be made say of the file it is imported from."""
    told = decode_object(metadata_text).get("imported")
    return told if isinstance(told, dict) else {}


def metadata_with_names(part: SessionPart) -> str:
    """Return the metadata of a session that is to be made, with the names that are set once its entries are there."""
    names: JsonObject = {}
    for title in part.titles:
        names["autoTitle" if title.is_made else "title"] = title.title
    if part.labels:
        names["labels"] = {label.target_id: label.label for label in part.labels}
    text = part.session.metadata_text
    if not names:
        return text
    return encode_json({**decode_object(text), "imported": {**imported_in(text), "names": names}}, "metadata")[0]


def imported_record(session: Session) -> JsonObject:
    """Return what a session's metadata says of the file it was imported from."""
    recorded = session.metadata.get("imported")
    return recorded if isinstance(recorded, dict) else {}


def storable_entries(part: SessionPart, most: int, notes: list[LineNote]) -> Sequence[NewEntry]:
    """Return the entries of a part; one of more than ``most`` bytes is only said to be there."""
    for entry in part.entries:
        if 4 * (len(entry.payload) + len(entry.extra or "")) > most:
            break
    else:
        return part.entries
    entries = []
    for position, entry in enumerate(part.entries):
        size = len(entry.payload.encode()) + len((entry.extra or "").encode())
        if size <= most:
            entries.append(entry)
            continue
        line = part.lines[position] if position < len(part.lines) else 0
        text = f"{size} bytes are more than an entry may have ({most}); its content was left out"
        notes.append(LineNote(line, text))
        body = encode_json({"kind": entry.kind, "bytes": size}, "entry")[0]
        entries.append(replace(entry, kind="unreadable_entry", payload=body, role=None, extra=None, preview=None))
    return entries


async def link_tasks(store: Store, scope: str, targets: Iterable[Target]) -> None:
    """Link task sessions to their parents, and parents to those of their task sessions that came before them."""
    for target in targets:
        session = target.session
        if target.parent is not None:
            parent = await store.get_session(target.parent, scope=scope)
            if parent is not None:
                await _link_children(store, parent, [session.info])
        for task in target.tasks:
            await store.link_task(session, task.session_id, task_id=task.task_id)
        await target.remember_tasks()
        began = target.tasks_began()
        linked = {link.child_id: link for link in await session.task_links()}
        placed = [each for each in linked.values() if each.entry_id is None and each.task_id in began]
        for link in placed:
            await store.link_task(session, link.child_id, task_id=link.task_id, entry_id=began[link.task_id])
        waiting = await _waiting(store, scope, target)
        unplaced = {link.child_id for link in await session.task_links() if link.entry_id is None}
        await _link_children(store, session, [info for info in waiting if info.id not in linked or info.id in unplaced])


async def _waiting(store: Store, scope: str, target: Target) -> list[SessionInfo]:
    """Return the task sessions of a session that may have been imported before it.

    Those whose ids begin with its own are looked up, those of another kind only when it is new: O(task sessions).
    """
    session = target.session
    found: list[SessionInfo] = []
    for child_id in await store.backend.match_session_ids(f"{session.id}:", _CHILDREN):
        child = await store.get_session(child_id, scope=scope)
        found += [] if child is None else [child.info]
    cursor = None
    while target.created:
        page = await store.list_sessions(scope=scope, kind="task", limit=_CHILDREN, cursor=cursor)
        found += page.sessions
        cursor = page.next_cursor
        if cursor is None:
            break
    return [info for info in found if decode_object(info.metadata_text).get("parentSession") == session.id]


async def _link_children(store: Store, parent: Session, children: Sequence[SessionInfo]) -> None:
    began = began_of(parent.metadata)
    for child in {info.id: info for info in children}.values():
        named = decode_object(child.metadata_text).get("taskId")
        task_id = named if isinstance(named, str) else child.id
        entry_id = began.get(task_id) or await _entry_below(parent, child)
        await store.link_task(parent, child.id, task_id=task_id, entry_id=entry_id)


async def _entry_below(parent: Session, child: SessionInfo) -> str | None:
    """Return the entry of its parent that a task goes on below, where it names one that is there."""
    imported = child.metadata.get("imported")
    name = imported.get("below") if isinstance(imported, dict) else None
    there = await parent.get_entry(name) if isinstance(name, str) else None
    return None if there is None else there.id


def began_of(metadata: JsonObject) -> dict[str, str]:
    """Return below which entries the tasks of an imported session began, by their names, as its metadata say."""
    imported = metadata.get("imported")
    began = imported.get("tasks") if isinstance(imported, dict) else None
    return {name: at for name, at in began.items() if isinstance(at, str)} if isinstance(began, dict) else {}
