"""The import of files of other programs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from hashlib import blake2b
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from msgspec import Struct, convert, field, to_builtins
from msgspec.structs import asdict, astuple, replace

import flue_py
from flue_py import errors
from flue_py.core.entries import NewEntry, from_microseconds
from flue_py.core.json import Frozen, JsonObject, JsonValue, decode_object, encode_json
from flue_py.core.ledger import CallId, CallRow, call_row, is_part_of
from flue_py.core.sessions import IMPORTED_FILES, DocumentName, NewDocument, SessionInfo, check_new_name, scope_meant
from flue_py.core.trees import CheckedEntries
from flue_py.core.usage import TOO_LARGE, CallDifference, PaidCall, SumTooLarge
from flue_py.formats import kit
from flue_py.formats.kit import LineNote, Recent, SessionPart, TaskOf
from flue_py.formats.registry import OURS, find_format
from flue_py.providers.base import fields_of, listed, only
from flue_py.sessions.handle import checked_flag, checked_function, checked_metadata, checked_path, listed_sessions
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.sessions.write import oddities_of
from flue_py.system import uri_of
from flue_py.transfer.marks import Bookmark, End, mark_in, text_with
from flue_py.transfer.source import AUTO, ImportSource, checked_format, open_plain, stated, stated_at

# What an import did, file by file and session by session.


class SessionImport(Frozen, rename="camel"):
    """The outcome of one session of a file.

    ``added`` entries are new, ``already_there`` were imported before. ``leaf_kept`` says that the session had moved
    on since the last import, so that its leaf was left where it is. ``task_of`` is the session whose task it is. Of
    ``booked`` paid calls the ledger has learnt apart from entries: they are new, or have other numbers now.
    ``deleted`` says that the session, or the one whose task it is, was deleted here before, and nothing was imported.
    ``oddities`` name usage that was kept without being counted, as sums would be too large with it (the first
    thousand). ``changed`` says that its leaf, its names, its completion or its costs are others now, or it has more.
    """

    session_id: str
    created: bool
    added: int
    already_there: int
    leaf_id: str | None
    leaf_kept: bool = False
    task_of: str | None = None
    booked: int = 0
    oddities: tuple[str, ...] = ()
    deleted: bool = False
    changed: bool = False

    def to_json(self) -> JsonObject:
        """Return it as JSON."""
        return {**to_builtins(self), "oddities": list(self.oddities)}


class ImportReport(kit.ParseReport, kw_only=True):
    """The effect of importing one file.

    ``sessions`` are those of the file, the first one being the one that the file is of; the fields that describe one
    session are about that one, ``added`` and ``already_there`` about all of them. There is none if nothing was said
    yet. ``rows`` counts the lines that are
    not blank, a header among them; ``skipped`` rows made no entry, ``repaired`` ones differ from what the file says
    (the first thousand of each, while ``skipped_rows`` and ``repaired_rows`` count them all), ``merged`` ones became
    part of another row's entry, ``left_out`` ones, by reason, say nothing of their own. ``held_back`` rows, from the
    line ``held_back_from`` on, belong to a message that may not be complete. ``unknown_kinds`` counts entries kept
    although their kind has no meaning here. ``call_conflicts`` are paid calls that the ledger has with other numbers;
    it keeps those.
    """

    file: str
    format: str
    sessions: tuple[SessionImport, ...]
    call_conflicts: tuple[CallDifference, ...] = ()

    @property
    def session_id(self) -> str:
        """The id of the session that the file is of; "" if nothing was said in it yet."""
        return self.sessions[0].session_id if self.sessions else ""

    @property
    def created(self) -> bool:
        """Whether that session was not there before."""
        return any(session.created for session in self.sessions[:1])

    @property
    def leaf_id(self) -> str | None:
        """The leaf of that session after the import."""
        return self.sessions[0].leaf_id if self.sessions else None

    @property
    def leaf_kept(self) -> bool:
        """Whether a session of the file had moved on, so that its leaf was left where it is."""
        return any(session.leaf_kept for session in self.sessions)

    @property
    def added(self) -> int:
        """The new entries, of all sessions."""
        return sum(session.added for session in self.sessions)

    @property
    def already_there(self) -> int:
        """The entries that were imported before, of all sessions."""
        return sum(session.already_there for session in self.sessions)

    @property
    def changed(self) -> bool:
        """Whether the store is not as it was before."""
        return any(session.changed for session in self.sessions)

    def to_json(self) -> JsonObject:
        """Return the report as JSON."""
        about: JsonObject = {"file": self.file, "format": self.format, "sessionId": self.session_id or None}
        about |= {"created": self.created, "changed": self.changed, "added": self.added}
        about |= {"alreadyThere": self.already_there, "leafId": self.leaf_id, "leafKept": self.leaf_kept}
        return {
            **about,
            **to_builtins(self),
            "skipped": _notes_json(self.skipped),
            "repaired": _notes_json(self.repaired),
            "callConflicts": [str(conflict) for conflict in self.call_conflicts],
            "sessions": [session.to_json() for session in self.sessions],
        }


def _notes_json(notes: tuple[LineNote, ...]) -> list[JsonValue]:
    return [{"line": note.line, "text": note.text} for note in notes]


# A session while the parts of a file are stored in it, and what is done to it at the end.


class Names(Struct, rename="camel", omit_defaults=True):
    """The names of a session that are set once its entries are there, as its metadata have them until then."""

    title: str | None = None
    auto_title: str | None = None
    labels: dict[str, str | None] = field(default_factory=dict)


_ODDITIES = 1_000
"""How many oddities of a session are remembered at most."""
_CHILDREN = 1_000
"""How many tasks of a session are looked up, and remembered, at most."""


class Target(Struct):
    """A session while its parts are stored. ``newest`` is the last entry that was the leaf in an import before."""

    session: Session
    created: bool
    before: SessionInfo | None = None
    """Of a session that was there: the session before the import."""

    newest: str | None = None
    first_part: bool = True
    is_older_copy: bool = False
    is_unchanged: bool = False
    """Whether the file begins with the bytes that were imported before."""

    is_chained: bool = False
    added: int = 0
    already_there: int = 0
    leaf_kept: bool = False
    title: str | None = None
    auto_title: str | None = None
    name: str | None = None
    """A new name of the session beside its file; one that it got here since stays."""

    segment: str = ""
    """Which of its files the import is of, where it has several."""

    completed_us: int | None = None
    about: JsonObject | None = None
    """The description of a rewritten file in itself, as it is now."""
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

    def note_oddities(self, reported: Sequence[str], entries: Sequence[NewEntry]) -> None:
        """Remember the oddities of entries that the store reported and their reader did not."""
        own = set(oddities_of(entries))
        new = (oddity for oddity in reported if oddity.endswith(TOO_LARGE) and oddity not in own)
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
        there = await session.marks.labels() if self.labels else {}
        for entry_id, label in self.labels.items():
            if there.get(entry_id) != label:
                try:
                    await session.marks.set_label(entry_id, label)
                except errors.EntryNotFound as error:
                    notes.append(LineNote(0, f"no label was set: {error}"))
        if "names" in (self.recorded or {}) or self.name is not None:
            self.recorded = {name: value for name, value in (self.recorded or {}).items() if name != "names"}
            if self.name is not None:
                self.recorded["name"] = self.name
            await session.set_metadata({"imported": self.recorded}, merge=True)

    async def set_completed(self) -> None:
        """Note that the work was completed, once: a statement that was made here since stays."""
        if self.completed_us is None or (self.recorded or {}).get("completed") is True:
            return
        await self.session.set_completed(from_microseconds(self.completed_us))
        await self.remember({**(self.about or {}), "completed": True})

    async def remember_coming(self, about: JsonObject | None) -> None:
        """Note facts that come with entries that are stored next: names, and the file's own description.

        Names are set once everything is stored. Where an import dies before that, the next one finds them here.
        """
        names = self._names()
        if names != (self.recorded or {}).get("names", {}):
            await self.remember({**(about or {}), "names": names})
        elif about is not None:
            await self.remember(about)

    def _names(self) -> JsonObject:
        """Return the names that are to be set, and are not set yet as far as the row of the session tells."""
        info = self.session.info
        title = None if self.title == info.title else self.title
        auto_title = None if self.auto_title == info.auto_title else self.auto_title
        return fields_of(to_builtins(Names(title, auto_title, self.labels)))

    def take_names(self) -> None:
        """Take over the names that an import which died did not set."""
        names = fields_of((self.recorded or {}).get("names"))
        self.title, self.auto_title = kit.one_text(names.get("title")), kit.one_text(names.get("autoTitle"))
        labels = fields_of(names.get("labels")).items()
        self.labels = {entry_id: label for entry_id, label in labels if label is None or isinstance(label, str)}

    async def remember(self, facts: JsonObject) -> None:
        """Note facts in the part of the metadata about the file."""
        before, self.recorded = self.recorded, {**(self.recorded or {}), **facts}
        if before != self.recorded:
            await self.session.set_metadata({"imported": self.recorded}, merge=True)

    async def restate(self, store: Store) -> None:
        """Take over the metadata that the file has now, unless the session has gone on without it.

        Keys that an earlier import brought, and the file no longer has, go; those that were set here stay.
        """
        stated, session = self.metadata, self.session
        if stated is None or self.leaf_kept:
            return
        # Facts of imports stay, which the file knows nothing of.
        info, own = session.info, only(self.recorded or {}, "leaf", "name", "completed", "fingerprint")
        stated = {**stated, "imported": {**own, **fields_of(stated.get("imported"))}}
        now = checked_metadata(restated(decode_object(info.metadata_text), stated), store.limits)
        # What links say by now is not stored once more.
        if decode_object(info.task_names.taken_from(now, info.metadata_text)) == decode_object(info.metadata_text):
            return

        def edit(stored: str) -> str:
            return checked_metadata(restated(decode_object(stored), stated), store.limits)

        await store.backend.update_session(session.ref, metadata_text=edit)
        await session.refresh()
        self.recorded = imported_in(session.info.metadata_text)

    def read_before(self) -> tuple[JsonValue, JsonValue]:
        """Return how many bytes of the file were imported before, and their digest."""
        record = fields_of(self._segments().get(self.segment) if self.segment else self.recorded)
        return record.get("bytes"), record.get("digest")

    def _segments(self) -> JsonObject:
        return fields_of((self.recorded or {}).get("segments"))

    @property
    def is_superseded(self) -> bool:
        """Whether another file, from which on the session took another way, was imported before."""
        return any(name > self.segment for name in self._segments())

    @property
    def is_followed(self) -> bool:
        """Whether the leaf is where the file has it, and nothing of the session is kept from it."""
        is_odd = self.leaf_kept or self.is_older_copy or self.is_superseded or self.oddities or self.instead
        return not is_odd and self.newest == self.session.leaf_id

    async def remember_end(self, source: ImportSource) -> None:
        """Note how far the file was read, and where that left the leaf; not of an older copy."""
        if self.is_older_copy:
            return
        end: JsonObject = {"bytes": source.whole_bytes, "digest": source.digest}
        if self.segment:
            end = {"segments": {**self._segments(), self.segment: end}}
        if not self.leaf_kept and not self.is_superseded:
            end["leaf"] = self.session.leaf_id
        await self.remember(end)

    def tasks_began(self) -> dict[str, str]:
        """Return below which entries tasks of the session began, by their names, as far as files said."""
        return {**began_of(self.session.metadata), **self.began}

    def note_beginning(self, part: SessionPart) -> None:
        """Take down which row of its parent a task goes on below, if it says so."""
        if part.parent is not None and self.below is None:
            self.below = next((part.lost[str(entry.id)] for entry in part.entries if entry.id in part.lost), None)

    async def remember_tasks(self) -> None:
        """Note where tasks began, for those whose sessions come later."""
        began = self.tasks_began()
        if began != began_of(self.session.metadata):
            await self.remember({"tasks": {**began}})

    def report(self, now: SessionInfo | None) -> SessionImport:
        """Return the outcome of the session, given it as it is now."""
        is_same = not (self.added or self.booked) and now is not None and _shown(now) == _shown(self.before or now)
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
            changed=self.created or not is_same,
        )


def _shown(info: SessionInfo) -> tuple[object, ...]:
    """Return the facts of a session that a user sees."""
    names = info.title, info.auto_title, info.leaf_id, info.completed_us
    return *names, info.spent_tokens, info.spent_picodollars, info.unpriced_calls, info.unknown_calls


def restated(there: JsonObject, stated: JsonObject) -> JsonObject:
    """Return the metadata of a session whose file has others now: the file's, and keys that it never brought."""
    brought = {name for name in listed(fields_of(there.get("imported")).get("keys")) if isinstance(name, str)}
    return {**stated, **{name: value for name, value in there.items() if name not in brought and name not in stated}}


def imported_in(metadata_text: str) -> JsonObject:
    """Return the part about the imported file of the metadata of a session."""
    return fields_of(decode_object(metadata_text).get("imported"))


def metadata_with_names(part: SessionPart) -> str:
    """Return the metadata of a session that is to be made, with the names that are set once its entries are there."""
    titles = {title.is_made: title.title for title in part.titles}
    labels = {label.target_id: label.label for label in part.labels}
    names, text = to_builtins(Names(titles.get(False), titles.get(True), labels)), part.session.metadata_text
    if not names:
        return text
    return encode_json({**decode_object(text), "imported": {**imported_in(text), "names": names}}, "metadata")[0]


def storable_entries(part: SessionPart, most: int, notes: list[LineNote]) -> Sequence[NewEntry]:
    """Return the entries of a part; one of more than ``most`` bytes is only said to be there."""
    if all(4 * (len(entry.payload) + len(entry.extra or "")) <= most for entry in part.entries):
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
        entries.append(replace(entry, kind="unreadable_entry", payload=body, role=None, extra=None))
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
        linked = {link.child_id: link for link in await session.tasks.links()}
        placed = [link for link in linked.values() if link.entry_id is None and link.task_id in began]
        for link in placed:
            await store.link_task(session, link.child_id, task_id=link.task_id, entry_id=began[link.task_id])
        waiting = await _waiting(store, scope, target)
        unplaced = {link.child_id for link in await session.tasks.links() if link.entry_id is None}
        await _link_children(store, session, [info for info in waiting if info.id not in linked or info.id in unplaced])


async def _waiting(store: Store, scope: str, target: Target) -> list[SessionInfo]:
    """Return the task sessions of a session that may have been imported before it.

    Those whose ids begin with its own are looked up, those of another kind only when it is new: O(task sessions).
    """
    session = target.session
    infos: list[SessionInfo] = []
    for child_id in await store.backend.match_session_ids(f"{session.id}:", _CHILDREN):
        child = await store.get_session(child_id, scope=scope)
        infos += [] if child is None else [child.info]
    if target.created:
        tasks = partial(store.list_sessions, scope=scope, kind="task", limit=_CHILDREN)
        infos += [info async for info in listed_sessions(tasks)]
    return [info for info in infos if decode_object(info.metadata_text).get("parentSession") == session.id]


async def _link_children(store: Store, parent: Session, children: Sequence[SessionInfo]) -> None:
    began = began_of(parent.metadata)
    for child in {info.id: info for info in children}.values():
        named = decode_object(child.metadata_text).get("taskId")
        task_id = named if isinstance(named, str) else child.id
        entry_id = began.get(task_id) or await _entry_below(parent, child)
        await store.link_task(parent, child.id, task_id=task_id, entry_id=entry_id)


async def _entry_below(parent: Session, child: SessionInfo) -> str | None:
    """Return the entry of its parent that a task goes on below, where it names one that is there."""
    name = fields_of(child.metadata.get("imported")).get("below")
    there = await parent.get_entry(name) if isinstance(name, str) else None
    return None if there is None else there.id


def began_of(metadata: JsonObject) -> dict[str, str]:
    """Return below which entries the tasks of an imported session began, by their names, as its metadata say."""
    began = fields_of(fields_of(metadata.get("imported")).get("tasks"))
    return {name: at for name, at in began.items() if isinstance(at, str)}


# Paid calls that a file counts before their entries are complete: booked at once, and once.


async def with_settled(store: Store, target: Target, part: SessionPart, entries: list[NewEntry]) -> list[NewEntry]:
    """Return entries whose calls replace those that an earlier import booked without an entry.

    One look-up of the calls that the entries name, or stand for. Calls that have an entry stay as they are.
    """
    named = {
        CallId(call.provider, name)
        for entry in entries
        for call in entry.calls
        for name in (call.call_id, *part.settles.get(str(entry.id), ()))
        if name is not None
    }
    rows = await _known(store, target, list(named))
    alone = {name for name, row in rows.items() if row.entry_id is None}
    if not alone:
        return entries
    return [
        replace(entry, calls=tuple(_settling(call, part.settles.get(str(entry.id), ()), alone) for call in entry.calls))
        for entry in entries
    ]


def _settling(call: PaidCall, names: Sequence[str], alone: set[CallId]) -> PaidCall:
    replaced = [name for name in (call.call_id, *names) if name is not None and CallId(call.provider, name) in alone]
    return replace(call, replaces=(*call.replaces, *replaced))


async def book_calls(store: Store, target: Target) -> list[CallDifference]:
    """Book calls that have no entry, and return those that the ledger has with other numbers.

    A call that is booked already stays, unless this report counts more, or says which report it takes the place of.
    """
    calls, target.calls = target.calls, []
    if target.is_older_copy:
        return []
    rows = await _known(store, target, [CallId(call.provider, call.call_id) for call in calls if call.call_id])
    if target.unsettled:
        rows.update(await _with_entries(store, target))
    conflicts = []
    for reported in calls:
        call = _grown(reported, rows.get(CallId(reported.provider, reported.call_id or "")))
        if call is None:
            continue
        try:
            target.booked += (await target.session.money.import_call(call)).is_new
        except errors.CallConflict as error:
            conflicts.append(CallDifference(error.provider, error.call_id, error.differences))
        except SumTooLarge:
            target.note_oddities([f"call {errors.shown(call.call_id)}: usage: {TOO_LARGE}"], ())
    return conflicts


def _grown(call: PaidCall, there: CallRow | None) -> PaidCall | None:
    """Return a call as it is to be booked; None if the ledger has as much of it."""
    if there is None or call.replaces:
        return call
    now = call_row(
        call, scope=there.scope, call_id=there.call_id, session_key=there.session_key, entry_id=None, at_us=0
    )
    if is_part_of(now, there):
        return None
    return replace(call, replaces=(there.call_id,)) if is_part_of(there, now) else call


async def _with_entries(store: Store, target: Target) -> dict[CallId, CallRow]:
    """Return the calls that are booked with an entry, by the ids that they have while that is not complete."""
    session = target.session
    rows = {}
    for entry_id in await store.backend.taken_entry_ids(session.id, list(target.unsettled)):
        for row in await store.backend.calls_of_entry(session.ref, entry_id):
            rows.update({CallId(row.provider, name): row for name in target.unsettled[entry_id]})
    return rows


async def _known(store: Store, target: Target, names: Sequence[CallId]) -> dict[CallId, CallRow]:
    rows = await store.backend.find_calls(target.session.info.scope, names) if names else []
    return {CallId(row.provider, row.call_id): row for row in rows}


# Importing files of other programs, once and again.
#
# A session keeps the id its file gives it, and entries keep theirs. That makes an import idempotent: the same file
# again
# changes nothing, one that has grown adds what is new, and one that broke off half way goes on where it stopped. A file
# is stored a few thousand entries at a time, each batch in one transaction, so that files of any length fit.

Progress = Callable[[int, int], None]

TAKEN_BACK = "imported before it was complete"
"""Why an import retracts a message, in the log: the next import knows by it that the whole one is still to come."""

_LINES_AT_ONCE = 500
_ANEW = "delete the session, then import the file with again=True"


async def import_file(
    store: Store,
    path: str | PathLike[str],
    format: str = AUTO,  # noqa: A002 - what the command line calls it, too
    *,
    scope: str | None = None,
    finish: bool = False,
    again: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Import a session file of another program, or the rows it has gained since it was imported last.

    A session that was deleted stays deleted, with its tasks in the file, unless it is to be imported
    ``again``: its former payments are its own then, and are not counted once more.

    ``format`` is ``auto`` (the file tells), or one of `flue_py.formats.registry.format_names`. A last message that may
    not be complete is held back, for a later import of the file, unless ``finish`` says that no more will come.
    ``progress`` is called with the bytes read and the bytes in all. Raises `UnreadableFile` for a file that is not of
    the format, or not the one its session was imported from; `SessionExists` if another scope has the session.
    Cost: O(file), a few thousand rows at a time; nothing that was stored before is read.
    """
    place = checked_path(path, "path")
    checked_flag(finish, "finish")
    checked_flag(again, "again")
    checked_function(progress, "progress")
    with ImportSource(Path(place), checked_format(format), take_all=finish, limits=store.limits) as source:
        await store.backend.waiting.call(source.start)
        return await import_source(store, source, scope=scope, again=again, progress=progress)


async def import_source(
    store: Store,
    source: ImportSource,
    *,
    scope: str | None = None,
    again: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Import a file that was started, as `import_file` does."""
    try:
        return await _FileImport(store, scope_meant(store.scope, scope) or "", source, again=again).run(progress)
    except (errors.LeafConflict, errors.RevisionConflict) as error:
        error.args = (_changed_meanwhile(source, error.session_id),)
        raise


def _changed_meanwhile(source: ImportSource, session_id: str) -> str:
    changed = f"session {session_id!r} has changed while the file was imported, by another import of it, say"
    return f"{source.path.name}: {changed}; import it again"


def _next_batch(source: ImportSource) -> tuple[list[SessionPart], int] | None:
    """Return a batch and how many bytes have been read so far; None at the end."""
    batch = source.batch()
    return None if batch is None else (batch, min(source.bytes_read, source.size))


class _FileImport:
    """The import of one file."""

    def __init__(self, store: Store, scope: str, source: ImportSource, *, again: bool) -> None:
        check_new_name(scope, "scope")
        # A session that another scope has is there, also for a store that is narrowed to one.
        self._store = Store(store.backend, store.limits, store._pricer)  # noqa: SLF001 - nobody else may
        self._path = source.path
        self._scope = scope
        self._source = source
        self._again = again
        self._targets: dict[str, Target] = {}
        self._deleted: dict[str, SessionImport] = {}
        self._notes: list[LineNote] = []
        self._paid: dict[str, tuple[str, ...]] = {}
        self._conflicts: list[CallDifference] = []
        self._settled: set[tuple[str, str]] = set()
        self._rewritten: set[str] = set()
        self._payers: set[str] = set()
        self._unchanged: list[SessionImport] = []
        self._repeated: list[PaidCall] = []
        """Calls that the session which asked cannot have: the one that repeats them has the bill."""

    async def run(self, progress: Progress | None = None) -> ImportReport:
        """Import all of the file that its source has, and return the report."""
        await self._go_on()
        await self._leave_out_unchanged()
        # While one batch is stored, the next one is read.
        async with aclosing(self._store.backend.waiting.ahead(partial(_next_batch, self._source))) as batches:
            async for batch, done in batches:
                for part in batch:
                    await self.add(part)
                if progress is not None:
                    progress(done, self._source.size)
        await self.finish()
        infos = await self._store.backend.get_sessions([*self._targets])
        if (mark := self._source.bookmark) is not None:
            ends = self._ends(infos)
            self._source.bookmark = replace(mark, ends=ends) if ends else None
        return self.report(infos)

    async def _go_on(self) -> None:
        """Take over the sessions as an import before left them; read the file whole where they are others by now."""
        ends = self._source.ends
        infos = await self._store.backend.get_sessions([end.session_id for end in ends]) if ends else []
        for end, info in zip(ends, infos, strict=True):
            if info is None or _state_of_session(info) != end.state:
                self._targets.clear()
                await self._store.backend.waiting.call(self._source.begin_again)
                return
            session = await self._store.find_session(end.session_id)
            self._targets[session.id] = Target(
                session,
                created=False,
                before=info,
                newest=end.newest,
                first_part=False,
                is_unchanged=True,
                is_chained=self._source.format.is_chained,
                already_there=self._source.taken_before.get(session.id, 0),
                segment=end.segment,
                recorded=imported_in(session.info.metadata_text),
                parent=end.parent,
            )

    async def _leave_out_unchanged(self) -> None:
        """Have the sessions left out that were imported whole, and are in the file as they were then. One query."""
        now = self._source.fingerprints
        for info in await self._store.backend.get_sessions([*now]) if now else ():
            if info is None or info.scope != self._scope:
                continue
            metadata = decode_object(info.metadata_text)
            then = fields_of(metadata.get("imported")).get("fingerprint")
            if then == [flue_py.__version__, now[info.id]]:
                parent = kit.one_text(metadata.get("parentSession"))
                self._unchanged.append(SessionImport(info.id, False, 0, info.entry_count, info.leaf_id, task_of=parent))
                self._source.unchanged.add(info.id)

    async def add(self, part: SessionPart) -> None:
        """Store the new entries of a part."""
        session_id = str(part.session.id)
        if part.holds_back:
            self._source.fingerprints.pop(session_id, None)
        has_more = part.stands_in and await self._has_more(session_id)
        if has_more or await self._stays_deleted(session_id, part) or await self._is_elsewhere(session_id, part):
            return
        if part.is_rewritten:
            self._rewritten.add(session_id)
        await self._pay_more(session_id, part)
        target = await self._add(session_id, part)
        # A sum of a session has no time of its own. The one at which the session was made stays the same as it grows.
        made_us = part.session.created_us
        target.calls += [replace(call, at_us=made_us) if call.at_us is None else call for call in part.calls]
        if part.is_payer:
            self._payers.add(session_id)
        if part.calls:
            named = {call.call_id for call in part.calls}
            target.unsettled.update({entry: names for entry, names in part.settles.items() if named & {*names}})
        target.note_beginning(part)
        target.completed_us = part.completed_us or target.completed_us
        if part.is_rewritten:
            target.about = imported_in(part.session.metadata_text)

    async def _stays_deleted(self, session_id: str, part: SessionPart) -> bool:
        """Return whether a session was deleted, or the one whose task it is, and not to be imported again."""
        if self._again or session_id in self._targets or await self._store.get_session(session_id) is not None:
            return False
        parent = part.parent.session_id if part.parent else None
        ids = [session_id] if parent is None or parent in self._targets else [session_id, parent]
        deletions = await self._store.backend.was_deleted(ids, self._scope)
        # One that had a bill alone was never imported from its own file.
        if not any(had_entries or not part.entries for had_entries in deletions.values()):
            self._deleted.pop(session_id, None)
            return False
        self._deleted[session_id] = SessionImport(session_id, False, 0, 0, None, task_of=parent, deleted=True)
        if part.is_payer:
            self._repeated += part.calls
        return True

    async def _is_elsewhere(self, session_id: str, part: SessionPart) -> bool:
        """Return whether the session whose entries the file repeats is in another scope: it stays as it is."""
        session = await self._store.get_session(session_id) if part.is_payer else None
        if session is None or session.info.scope == self._scope:
            return False
        names = [CallId(call.provider, call.call_id or "") for call in part.calls]
        rows = await self._store.backend.find_calls(session.info.scope, names)
        paid = {CallId(row.provider, row.call_id) for row in rows}
        self._repeated += [call for call, name in zip(part.calls, names, strict=True) if name not in paid]
        return True

    async def _has_more(self, session_id: str) -> bool:
        """Return whether the session was imported from a file that says more than this one: it stays as it is."""
        session = await self._store.get_session(session_id, scope=self._scope)
        if session is None or imported_in(session.info.metadata_text).get("file") == self._path.name:
            return False
        self._notes.append(LineNote(0, "the session was imported from a file that says more, and stays as it is"))
        self._unchanged.append(SessionImport(session_id, False, 0, session.info.entry_count, session.leaf_id))
        return True

    async def _add(self, session_id: str, part: SessionPart) -> Target:
        target = self._targets.get(session_id)
        if target is None:
            session = await self._store.get_session(session_id)
            if session is None:
                return await self._create(part)
            if session.info.scope != self._scope:
                session = await self._adopted(session)
            target = self._targets[session_id] = Target(session, created=False, before=session.info)
            target.parent = part.parent.session_id if part.parent else None
            target.segment, target.is_chained = part.segment, self._source.format.is_chained
            target.recorded = imported_in(session.info.metadata_text)
            if target.is_chained:
                await self._check_unchanged(target)
            target.take_names()
        await self._extend(target, part)
        return target

    async def _adopted(self, session: Session) -> Session:
        """Return the session of another scope, which had only the bill that a fork there repeats, in this one."""
        try:
            await self._store.backend.adopt_session(session.id, self._scope)
        except errors.SessionExists as error:
            raise errors.SessionExists(session.id, detail=f"{self._path.name}: {error}") from error
        return await self._store.find_session(session.id)

    # a new session

    async def _create(self, part: SessionPart) -> Target:
        most = self._store.limits.batch_entries
        entries = storable_entries(part, self._store.limits.entry_bytes, self._notes)
        first = self._as_made(entries[:most])
        leaf = _last_among(part.leaves, first)
        new = replace(part.session, scope=self._scope, metadata_text=metadata_with_names(part))
        oddities, differing = list[str](), list[CallDifference]()
        try:
            session = await self._store.import_session(
                new, first, leaf=leaf, on_oddity=oddities.append, on_conflict=differing.append
            )
        except errors.SessionExists as error:
            raise errors.SessionExists(error.session, detail=_changed_meanwhile(self._source, error.session)) from error
        target = Target(session, created=True, newest=leaf, first_part=False, segment=part.segment)
        target.parent = part.parent.session_id if part.parent else None
        target.added = len(first)
        target.note_oddities(oddities, first)
        self._note_conflicts(differing)
        target.recorded = imported_in(session.info.metadata_text)
        self._targets[session.id] = target
        if len(entries) > most:
            await self._store_entries(target, entries[most:], part.leaves, _last(part.leaves))
            target.newest = _last(part.leaves)
        target.note_names(part, None)
        return target

    # a session that is there

    async def _check_unchanged(self, target: Target) -> None:
        """Raise `UnreadableFile` if the file does not begin any more with the bytes that were imported before."""
        count, digest = target.read_before()
        if type(count) is not int or not isinstance(digest, str):
            return
        if self._source.size < count:
            # An older copy of the file, if it is one, has nothing new.
            target.is_older_copy = True
            return
        target.is_unchanged = count > 0
        if await self._store.backend.waiting.call(partial(self._source.digest_of_first, count)) != digest:
            raise errors.UnreadableFile(
                f"{self._path.name}: its first {count} bytes have changed since they were imported into session "
                f"{target.session.id!r}, and its rows have no ids to tell them by; nothing was changed; {_ANEW}"
            )

    async def _extend(self, target: Target, part: SessionPart) -> None:
        if target.created:
            # Nobody else has written to it, and the reader has left out repeated ids.
            entries = storable_entries(part, self._store.limits.entry_bytes, self._notes)
            target.note_names(part, None)
            if entries:
                await target.remember_coming(None)
                target.newest = _last(part.leaves) or target.newest
                await self._store_entries(target, entries, part.leaves, target.newest)
            return
        session, first_part = target.session, target.first_part
        follows = False
        if part.lost:
            part, follows = await self._reattach_lost(target, part)
        ids = [str(entry.id) for entry in part.entries]
        ids += [name for earlier in part.earlier.values() for name in earlier]
        taken = await self._store.backend.taken_entry_ids(session.id, ids)
        if ids:
            target.first_part = False
        replaced = await self._replace_incomplete(target, part, taken)
        missing = [
            self._reattached(target, entry)
            for entry in storable_entries(part, self._store.limits.entry_bytes, self._notes)
            if entry.id not in taken and entry.id not in target.instead
        ]
        missing = await with_settled(self._store, target, part, missing)
        stored_leaves = [leaf for leaf in part.leaves if leaf in taken]
        if stored_leaves:
            target.newest = stored_leaves[-1]
        target.already_there += sum(entry.id in taken for entry in part.entries)
        follows = follows or replaced or session.leaf_id == target.newest or _is_where_it_was(target, part)
        follows = follows and not target.is_superseded
        if not follows and part.unfinished:
            # The session has it whole by now, or has gone on without it.
            missing = [entry for entry in missing if entry.id not in part.unfinished]
        if not missing:
            target.note_names(part, set())
            if follows and (part.restates or part.is_rewritten) and stored_leaves and session.leaf_id != target.newest:
                await session.move_leaf(target.newest)  # the program went back, and has written nothing since
            return
        if not part.may_overlap:
            missing = self._in_order(target, part, taken, missing)
        if first_part and not taken and session.info.entry_count and not (part.may_overlap or part.is_rewritten):
            raise errors.UnreadableFile(
                f"{self._path.name} and session {session.id!r} have no entry in common: the file was rewritten with "
                f"new ids (as pi does with an old version), or the id is that of another file; {_ANEW}"
            )
        leaf = target.stands_for(_last(part.leaves)) if follows and part.leaves else session.leaf_id
        added = {str(entry.id) for entry in missing}
        target.note_names(part, added)
        await target.remember_coming(imported_in(part.session.metadata_text) if part.is_rewritten else None)
        await self._store_entries(target, missing, part.leaves if follows else (), leaf)
        if follows:
            target.newest = leaf
        keeps_leaf = not follows and not target.is_superseded and any(leaf in added for leaf in part.leaves)
        target.leaf_kept = target.leaf_kept or keeps_leaf

    def _in_order(self, target: Target, part: SessionPart, taken: set[str], missing: list[NewEntry]) -> list[NewEntry]:
        """Return the new entries behind those that were imported, of a file whose rows have no ids of their own.

        Raises `UnreadableFile` if rows before have changed. Where they are the same, the version that imported them
        made fewer entries of them.
        """
        if not self._source.format.is_chained:
            return missing
        last = max((at for at, entry in enumerate(part.entries) if entry.id in taken), default=-1)
        early = {entry.id for entry in part.entries[: last + 1] if entry.id not in taken}
        early -= {name for name, earlier in part.earlier.items() if taken.intersection(earlier)}
        if target.is_older_copy or (early and not target.is_unchanged):
            raise errors.UnreadableFile(
                f"{self._path.name}: rows have changed since they were imported into session {target.session.id!r}; "
                f"its rows have no ids to tell them by; nothing was changed; {_ANEW}"
            )
        if early:
            text = f"{len(early)} entries of rows that were imported before, by an earlier version, were not added"
            self._notes.append(LineNote(0, f"{text}; to have them, {_ANEW}"))
        return [entry for entry in missing if entry.id not in early]

    async def _replace_incomplete(self, target: Target, part: SessionPart, taken: set[str]) -> bool:
        """Retract messages that were taken before they were complete; return whether the leaf stepped back for one.

        A message that was built on meanwhile stays as it is, and stands for the whole message.
        """
        replaced = False
        for position, entry in enumerate(part.entries):
            earlier = [name for name in part.earlier.get(str(entry.id), ()) if name in taken]
            if not earlier or entry.id in taken:
                continue
            session, stored = target.session, await target.session.get_entry(earlier[-1])
            paid = await self._store.backend.calls_of_entry(session.ref, earlier[-1])
            self._paid[str(entry.id)] = tuple(call.call_id for call in paid)
            if stored is not None and await session.remove_leaf_message(stored.id, why=TAKEN_BACK):
                replaced = True
                continue
            if stored is None and await self._was_taken_back(session, earlier[-1]):
                replaced = replaced or session.leaf_id == target.stands_for(entry.parent_id)
                continue
            # What it cost is known better now, whatever became of it here.
            # Where nothing was, every file that has the message calls it by the id that it had without its entry.
            alone = () if paid else part.settles.get(str(entry.id), ())
            calls = [replace(call, call_id=alone[0]) if alone else call for call in entry.calls]
            target.calls += [replace(call, replaces=self._paid[str(entry.id)]) for call in calls]
            line = part.lines[position] if position < len(part.lines) else 0
            text = f"the message {entry.id!r} was imported before it was complete, and the session has gone on since"
            self._notes.append(LineNote(line, f"{text}; it stays as it was"))
            target.instead[str(entry.id)] = earlier[-1] if stored is not None else entry.parent_id
        return replaced

    async def _was_taken_back(self, session: Session, entry_id: str) -> bool:
        """Return whether an import retracted the message, and died before it stored the whole one. O(log)."""
        before: int | None = None
        while lines := await self._store.backend.read_log(session.ref, before=before, limit=_LINES_AT_ONCE):
            for line in lines:
                if line.what == "retract" and line.from_id == entry_id:
                    return line.why == TAKEN_BACK
            before = lines[-1].revision
        return False

    def _reattached(self, target: Target, entry: NewEntry) -> NewEntry:
        """Return an entry below the stand-in for its parent, and its call in the place of payments of it before."""
        if entry.parent_id in target.instead:
            entry = replace(entry, parent_id=target.stands_for(entry.parent_id))
        if entry.calls and entry.id in self._paid:
            entry = replace(entry, calls=tuple(replace(call, replaces=self._paid[entry.id]) for call in entry.calls))
        return entry

    async def _reattach_lost(self, target: Target, part: SessionPart) -> tuple[SessionPart, bool]:
        """Put entries whose parents are in another file of the same session below them, where they are stored."""
        session = target.session
        stored = await self._store.backend.taken_entry_ids(session.id, list(part.lost.values()))
        if not stored:
            return part, False
        entries = []
        follows = False
        for entry in part.entries:
            name = part.lost.get(str(entry.id))
            if name in stored and entry.parent_id is None:
                self._notes.append(LineNote(0, f"entry {entry.id!r} was put below {name!r}, which the session has"))
                follows = follows or name == session.leaf_id
                entries.append(replace(entry, parent_id=name))
            else:
                entries.append(entry)
        return replace(part, entries=tuple(entries)), follows

    # both

    def _as_made(self, entries: Sequence[NewEntry]) -> Sequence[NewEntry]:
        """Return entries of a reader of ours as ones to store as they are; those of other packages are checked."""
        return CheckedEntries(entries) if self._source.format.package == OURS else entries

    async def _store_entries(
        self, target: Target, entries: Sequence[NewEntry], leaves: Sequence[str], leaf: str | None
    ) -> None:
        """Store entries a batch at a time. The leaf follows, so that a next import finds it where this one died."""
        most = self._store.limits.batch_entries
        for start in range(0, len(entries), most):
            some = self._as_made(entries[start : start + most])
            is_last = start + most >= len(entries)
            reached = leaf if is_last else _last_among(leaves, some) or target.session.leaf_id
            added = await target.session.import_entries(some, leaf=reached)
            self._note_conflicts(added.call_conflicts)
            target.note_oddities(added.oddities, some)
            target.added += len(some)

    async def _pay_more(self, session_id: str, part: SessionPart) -> None:
        """Book what the entries of a part report more of calls that the session above, or a task below, has paid.

        The file of a task may repeat answers of the session that began it, in rows that were written when these were
        over. This is done before the entries are stored: nothing would lead here again if an import died between. One
        look-up of sessions if it reports calls, and two more if there are any.
        """
        paid = [(call, entry.created_us) for entry in part.entries for call in entry.calls]
        near = await self._store.backend.match_session_ids(f"{session_id}:", _CHILDREN) if paid else []
        near += [part.parent.session_id] if part.parent and paid else []
        infos = await self._store.backend.get_sessions(near) if near else []
        payers = {info.session_key: info.id for info in infos if info is not None}
        paid = paid if payers else []
        calls = {CallId(call.provider, call.call_id or ""): replace(call, at_us=at_us) for call, at_us in paid}
        more: dict[str, list[PaidCall]] = {}
        for row in await self._store.backend.find_calls(self._scope, [*calls]) if calls else ():
            name = CallId(row.provider, row.call_id)
            call = _grown(calls[name], row)
            if row.session_key in payers and (call is None or call.replaces):
                self._settled.add(name)
                more.setdefault(payers[row.session_key], []).extend([] if call is None else [call])
        for payer_id, grown in more.items():
            payer = Target(await self._store.find_session(payer_id), created=False, calls=grown)
            self._conflicts += await book_calls(self._store, payer)

    def _note_conflicts(self, conflicts: Sequence[CallDifference]) -> None:
        """Note calls that were paid before with other numbers, but those that the larger numbers have settled."""
        self._conflicts += [each for each in conflicts if (each.provider, each.call_id) not in self._settled]

    async def finish(self) -> None:
        """Set titles and labels, remember how far the file was read, and link task sessions."""
        repeating = next((target for name, target in self._targets.items() if name not in self._payers), None)
        if repeating is not None:
            repeating.calls += self._repeated
        for target in self._targets.values():
            self._conflicts += await book_calls(self._store, target)
            await target.set_names(self._notes)
            await target.restate(self._store)
            await target.set_completed()
            if target.below is not None:
                # Where the task began, for a parent that comes later.
                await target.remember({"below": target.below})
            if self._source.format.is_chained:
                await target.remember_end(self._source)
            if target.session.id in self._rewritten and not target.leaf_kept:
                await target.remember({"leaf": target.newest})
            fingerprint = self._source.fingerprints.get(target.session.id)
            if fingerprint is not None and not (target.leaf_kept or target.oddities or self._conflicts):
                await target.remember({"fingerprint": [flue_py.__version__, fingerprint]})
        await link_tasks(self._store, self._scope, self._targets.values())

    def _ends(self, infos: Sequence[SessionInfo | None]) -> tuple[End, ...]:
        """Return the sessions of the file, if rows that come behind it can be told from the rest; none otherwise.

        They cannot where the outcome of a row that was imported depends on more than its session.
        """
        # A note of the reader may be that what comes before is not there.
        depends = self._source.format.has_rows_elsewhere and self._source.report.repaired_rows
        is_odd = depends or self._deleted or self._payers or self._rewritten or self._notes or self._conflicts
        if is_odd or not all(target.is_followed for target in self._targets.values()):
            return ()
        return tuple(
            End(info.id, _state_of_session(info), target.newest, target.segment, target.parent)
            for target, info in zip(self._targets.values(), infos, strict=True)
            if info is not None
        )

    def report(self, infos: Sequence[SessionInfo | None]) -> ImportReport:
        """Return the report of the import, given its sessions as they are now."""
        rows: dict[str, Any] = asdict(self._source.report)
        rows["repaired"] += tuple(self._notes)
        rows["repaired_rows"] += len(self._notes)
        # What the file is of comes first; then the task sessions in it.
        targets = [target.report(info) for target, info in zip(self._targets.values(), infos, strict=True)]
        sessions = [*targets, *self._unchanged, *self._deleted.values()]
        return ImportReport(
            file=str(self._path),
            format=self._source.format.name,
            sessions=tuple(sorted(sessions, key=lambda session: session.task_of is not None)),
            call_conflicts=tuple(self._conflicts),
            **rows,
        )


def _state_of_session(info: SessionInfo) -> str:
    return blake2b(repr(astuple(info)).encode(errors="replace"), digest_size=16).hexdigest()


def _is_where_it_was(target: Target, part: SessionPart) -> bool:
    """Return whether the leaf is where the last import left it, of a file that may not show that any more."""
    recorded, leaf = target.recorded or {}, target.session.leaf_id
    # A file that was rewritten may have lost the entry; a document's leaf need not be its last entry.
    is_newest = target.is_chained and not target.is_older_copy and "leaf" in recorded
    if part.is_rewritten or is_newest:
        return leaf == recorded.get("leaf")
    return part.restates and "leafId" in recorded and leaf == recorded["leafId"]


def _last_among(names: Sequence[str], entries: Sequence[NewEntry]) -> str | None:
    there = {entry.id for entry in entries}
    return next((name for name in reversed(names) if name in there), None)


def _last(names: Sequence[str]) -> str | None:
    return names[-1] if names else None


# Files that are as they were when they were imported last, so that they need not be read again.
#
# What a store remembers of them is a document, which no list of documents shows and no copy takes along. It is believed
# where a file has the size, the times and the place on the disk that it had, and the same end; where the files that it
# goes on from are as they were, too; and where the same sessions are there, with no less in them. (Of two times, the
# one
# at which a file was changed in any way cannot be set.)
#
# Of files that changed a short time before they were imported, it also remembers what their readers knew: they may
# grow, and are then read on from there, as those that are watched are.

_SETTLED_NS = 1_000_000_000
"""How old a change has to be: two in the same moment could have the same time."""
_END = 1 << 12
_MOST = 50_000
"""How many files are remembered."""
_RECENT_NS = 3600 * 10**9
"""How old the last change of a file is at most that is expected to grow."""
_MOST_MARKS, _LONGEST_MARK = 16, 8 * 2**20
"""How many bookmarks are remembered, and how long one is at most."""


class ImportedFiles:
    """The notes of a store about the files that were imported into a scope."""

    def __init__(self, store: Store, scope: str, *, finish: bool, wanted: str, version: str) -> None:
        self._store = store
        self._scope = scope
        self._finish = finish
        self._wanted = wanted
        self._version = version
        self._files: dict[str, Any] = {}
        self._sessions: dict[str, SessionInfo] = {}
        self._imported: dict[str, Any] = {}
        self._reports: dict[Path, ImportReport | None] = {}
        self._marked: dict[str, int] = {}
        """The number of the document of each bookmark, the oldest first."""
        self._marks: dict[str, Bookmark] = {}
        """The bookmarks of files that have changed since."""
        self._new_marks: dict[str, Bookmark] = {}

    async def read(self) -> None:
        """Read the notes. O(files, and their sessions)."""
        record: dict[str, Any] = {**decode_object(await self._body("unchanged") or "{}")}
        # Another version may read more of a file.
        if record.get("version") == self._version:
            self._files, self._marked = record["files"], record.get("marked", {})
        self._sessions = await self._there({name for file in self._files.values() for name in file["sessions"]})
        for key, number in self._marked.items():
            before = self._files[key]["file"][:-1] if key in self._files else None
            if before is None or before != stated_at(os.fsdecode(unquote_to_bytes(key.removeprefix("file://")))):
                mark = mark_in(await self._body(f"mark {number}"), key)
                self._marks |= {} if mark is None else {key: mark}

    async def _body(self, name: str) -> str | None:
        document = await self._store.backend.get_document(DocumentName(self._scope, "file", IMPORTED_FILES, "", name))
        return None if document is None else document.body

    async def _put(self, name: str, body: str) -> None:
        await self._store.backend.put_document(NewDocument("file", name, body, "json", self._scope, IMPORTED_FILES))

    def source(self, path: Path) -> ImportSource:
        """Return a file to be imported: from where an import before stopped on, if it has grown since."""
        state = stated_at(str(path))
        return ImportSource(
            path,
            self._wanted,
            take_all=self._finish,
            limits=self._store.limits,
            is_followed=state is not None and time.time_ns() - state[3] < _RECENT_NS,
            bookmark=self._marks.get(_key(path)),
        )

    async def _there(self, names: set[str]) -> dict[str, SessionInfo]:
        infos = await self._store.backend.get_sessions(sorted(names))
        return {info.id: info for info in infos if info is not None and info.scope == self._scope}

    def report(self, path: Path) -> ImportReport | None:
        """Return the report of an import of a file that changes nothing; None if it has to be read.

        It is looked at the first time that it is asked for.
        """
        if path not in self._reports:
            self._reports[path] = self._report(path)
        return self._reports[path]

    def _report(self, path: Path) -> ImportReport | None:
        record = self._files.get(_key(path))
        if record is None or record["finish"] != self._finish or self._wanted not in (AUTO, record["report"]["format"]):
            return None
        counts: dict[str, list[int]] = record["sessions"]
        sessions = {name: self._sessions[name] for name in counts if name in self._sessions}
        if len(sessions) < len(counts) or any(_has_less(info, counts[name]) for name, info in sessions.items()):
            return None
        said_beside = find_format(record["report"]["format"]).said_beside(path)
        before: dict[str, list[int]] = record.get("before", {})
        if record.get("beside") != said_beside or any(
            stated_at(before_path) != state for before_path, state in before.items()
        ):
            return None
        if record["file"] != _state_of(path):
            return None
        return _reported(str(path), record["report"], sessions)

    def note(self, source: ImportSource, report: ImportReport) -> None:
        """Remember a file that was imported, if all that it brought is known by it alone, and is in the store."""
        if source.bookmark is not None:
            self._new_marks[_key(source.path)] = source.bookmark
            self._new_marks = dict([*self._new_marks.items()][-_MOST_MARKS:])
        made_by = find_format(report.format)
        # A note may be that what comes before is not there, which is not remembered.
        depends = made_by.package != OURS or (made_by.has_rows_elsewhere and report.repaired_rows > 0)
        is_odd = report.call_conflicts or any(
            session.deleted or session.leaf_kept or session.oddities for session in report.sessions
        )
        now = None if depends or is_odd else _state_of(source.path)
        changed_ns = max(time for state in (source.state, *source.before.values()) for time in state[3:])
        is_settled = source.opened_ns - changed_ns > _SETTLED_NS
        if now is not None and now[:-1] == source.state and is_settled:
            record = {"file": now, "finish": self._finish, "report": report.to_json()}
            record |= {"before": source.before, "beside": source.beside}
            self._imported[_key(source.path)] = record

    async def write(self) -> None:
        """Store the notes, if it can be done: an import does not fail by it. O(files that are remembered)."""
        if self._imported or self._new_marks:
            with suppress(errors.FlueError):
                await self._write()

    async def _write(self) -> None:
        there = await self._there(
            {session["sessionId"] for record in self._imported.values() for session in _parts(record)}
        )
        for path, record in self._imported.items():
            names = [session["sessionId"] for session in _parts(record)]
            if all(name in there for name in names):
                record["sessions"] = {name: _counts(there[name]) for name in names}
                self._files.pop(path, None)
                self._files[path] = record
        for key, mark in self._new_marks.items():
            text = text_with(mark, key)
            if len(text) <= _LONGEST_MARK:
                oldest = next(iter(self._marked)) if len(self._marked) >= _MOST_MARKS else ""
                number = self._marked.pop(key if key in self._marked else oldest, len(self._marked))
                await self._put(f"mark {number}", text)
                self._marked[key] = number
        files = dict([*self._files.items()][-_MOST:])
        notes: JsonObject = {"version": self._version, "files": files, "marked": {**self._marked}}
        await self._put("unchanged", encode_json(notes, "files")[0])


def _key(path: Path) -> str:
    """Return the name of a file as text, whatever its bytes are."""
    return uri_of(path)


def _parts(record: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = record["report"]["sessions"]
    return parts


def _counts(info: SessionInfo) -> list[int]:
    return [info.session_key, info.entry_count, info.spent_tokens]


def _has_less(info: SessionInfo, counts: list[int]) -> bool:
    """Return whether a session is another one of that id, an older copy, or something was taken back in it."""
    return info.session_key != counts[0] or any(
        now < before for now, before in zip(_counts(info), counts, strict=False)
    )


def _state_of(path: Path) -> list[Any] | None:
    """Return where on the disk a file is, its size, its times, and the digest of its end."""
    try:
        with open_plain(path) as file:
            state = stated(os.fstat(file.fileno()))
            file.seek(max(0, state[2] - _END))
            return [*state, blake2b(file.read(_END), digest_size=16).hexdigest()]
    except (OSError, errors.FlueError):
        return None


def _reported(file: str, before: dict[str, Any], sessions: dict[str, SessionInfo]) -> ImportReport:
    def part(session: dict[str, Any]) -> SessionImport:
        leaf = sessions[session["sessionId"]].leaf_id
        there = session["added"] + session["alreadyThere"]
        return SessionImport(session["sessionId"], False, 0, there, leaf, task_of=session["taskOf"])

    rows = asdict(convert(before, kit.ParseReport))
    return ImportReport(file=file, format=before["format"], sessions=tuple(map(part, before["sessions"])), **rows)


# Files that grow while they are watched: of each, only the rows that are new are read.
#
# A reader knows what the rows before said: it is kept in memory, with the place in the file where it stopped. Anything
# that is not as it was left, in the file, beside it, or in the store, has the whole file read.

_MOST_FOLLOWED = 32


class FollowedFiles:
    """Files that are imported again and again while they grow, into a scope."""

    def __init__(self, store: Store, wanted: str, scope: str | None, *, again: bool) -> None:
        self._store = store
        self._wanted = wanted
        self._scope = scope
        self._again = again
        self._files: Recent[Bookmark | None] = Recent(_MOST_FOLLOWED)

    async def catch_up(self, path: Path, *, take_all: bool) -> ImportReport:
        """Import a file, or the rows that it has gained since the last time. The result is that of `import_file`.

        Raises as that does. O(new rows), and a digest of the file.
        """
        mark, limits = self._files.get(str(path)), self._store.limits
        self._files.put(str(path), None)
        source = ImportSource(path, self._wanted, take_all=take_all, limits=limits, is_followed=True, bookmark=mark)
        with source:
            await self._store.backend.waiting.call(source.start)
            report = await import_source(self._store, source, scope=self._scope, again=self._again)
            self._files.put(str(path), source.bookmark)
        return report
