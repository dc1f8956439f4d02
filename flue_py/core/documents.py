"""Documents: texts with a name that belong to a store and not to a session.

They are memories of agents, or files that somebody has added for agents to read.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from flue_py.core.frozen import frozen
from flue_py.core.ids import derived_id
from flue_py.core.jsontext import encode_json, payload_digest
from flue_py.core.limits import LARGEST_ENTRY
from flue_py.core.sessions import check_name, check_scope, is_storable
from flue_py.errors import InvalidArgument, shown

DocumentKind: TypeAlias = Literal["memory", "file"]
KINDS: tuple[DocumentKind, ...] = ("memory", "file")

DocumentState: TypeAlias = Literal["written", "same", "later", "other"]
"""What became of a copied document: it was written; the target has it as it is, in a later state, or as another one
that was changed at the same time."""

# An index of PostgreSQL takes 2,704 bytes for all parts of a key, of which a scope may have 1,000.
MAX_DOCUMENT_NAME = 500
MAX_SPACE = 200
MAX_PROJECT = 800
MAX_TYPE = 100
MAX_SOURCE = 4_096

IMPORTED_FILES = "imported files"
"""The space of what imports remember of files, which is nobody's document: it is counted and copied with none."""

SEARCHED = 1_000
"""How many documents one call of `Backend.search_documents` reads at most."""


class DocumentName(NamedTuple):
    """What sets a document apart: whose it is, what it is, in which space, for which project, and its own name."""

    scope: str
    kind: DocumentKind
    space: str
    project: str
    name: str


class DocumentRow(NamedTuple):
    """A document as it is stored, and as it crosses from one store to another."""

    scope: str
    kind: DocumentKind
    space: str
    project: str
    name: str
    type: str
    source: str | None
    created_at: int
    changed_at: int
    chars: int
    digest: bytes
    body: str

    @property
    def id(self) -> DocumentName:
        """What sets it apart."""
        return DocumentName._make(self[:5])


@frozen
class NewDocument:
    """A document to be stored. Raises `InvalidArgument` for what no store takes, and never shows what it says.

    ``space`` is whose memory it is: ``repl``, or ``agents/`` and a name; ``project`` the folder it is for, "" for all.
    ``type`` is one word: of a memory what it is about, of a file its media type. ``source`` is where it came from.
    """

    kind: DocumentKind
    name: str
    body: str
    type: str
    scope: str = ""
    space: str = ""
    project: str = ""
    source: str | None = None

    def __post_init__(self) -> None:
        check_document_name(self.id)
        _check_line(self.type, "type", MAX_TYPE)
        if not self.type or any(character.isspace() for character in self.type):
            raise InvalidArgument(f"type: {shown(self.type)} is not one word")
        if self.source is not None:
            _check_line(self.source, "source", MAX_SOURCE)
            if not self.source:
                raise InvalidArgument("source: is empty; leave it out where there is none")
        if not isinstance(self.body, str):
            raise InvalidArgument(f"body: should be a string, not {type(self.body).__name__}")
        if not is_storable(self.body):
            raise InvalidArgument("body: holds a NUL character or a lone surrogate; remove it")
        if 4 * len(self.body) > LARGEST_ENTRY and len(self.body.encode()) > LARGEST_ENTRY:
            raise InvalidArgument(f"body: is longer than {LARGEST_ENTRY} bytes; store a part of it")

    @property
    def id(self) -> DocumentName:
        """What sets it apart."""
        return DocumentName(self.scope, self.kind, self.space, self.project, self.name)

    def row(self, now_us: int) -> DocumentRow:
        """Return the row of it as a new one."""
        digest = payload_digest(self.body)
        return DocumentRow(*self.id, self.type, self.source, now_us, now_us, len(self.body), digest, self.body)


def deletion_of(session_id: str, scope: str) -> NewDocument:
    """Return what a store remembers of an imported session that was deleted in a scope, so that it stays deleted.

    What sets it apart are digests, in the project that of the id: an id is no name that each document could have.
    """
    body, _ = encode_json({"deleted": session_id, "scope": scope}, "body")
    return NewDocument("file", derived_id(scope), body, "json", "", IMPORTED_FILES, derived_id(session_id))


@frozen
class DocumentInfo:
    """What a store says of a document without its text. ``chars`` is how many characters that has.

    Times are microseconds since 1970 UTC; ``changed_us`` grows with each change of it, so that of two copies the later
    one is known.
    """

    scope: str
    kind: DocumentKind
    space: str
    project: str
    name: str
    type: str
    source: str | None
    created_us: int
    changed_us: int
    chars: int

    @property
    def id(self) -> DocumentName:
        """What sets it apart."""
        return DocumentName(self.scope, self.kind, self.space, self.project, self.name)


@frozen
class Document:
    """A document, whole: what the store says of it, and its text."""

    info: DocumentInfo
    body: str

    @property
    def name(self) -> str:
        """Its name."""
        return self.info.name

    @property
    def type(self) -> str:
        """Its type: of a memory what it is about, of a file its media type."""
        return self.info.type


@frozen
class DocumentFilter:
    """Which documents are meant: those of a scope and a kind, of one space and project where they are named."""

    kind: DocumentKind
    scope: str = ""
    space: str | None = None
    project: str | None = None


@frozen
class DocumentsFound:
    """Documents that a search has found, in order of space, project and name, and how many it has read.

    ``after`` is where to go on; None at the end.
    """

    documents: tuple[Document, ...]
    searched: int
    after: DocumentName | None


def check_document_name(name: DocumentName) -> None:
    """Refuse what can be the name of no document. Raises `InvalidArgument`."""
    if name.kind not in KINDS:
        raise InvalidArgument(f"kind: {shown(name.kind)} is not one of {', '.join(KINDS)}")
    check_scope(name.scope)
    _check_line(name.space, "space", MAX_SPACE)
    _check_line(name.project, "project", MAX_PROJECT)
    _check_line(name.name, "name", MAX_DOCUMENT_NAME)
    if not name.name.strip():
        raise InvalidArgument("name: must not be empty")


def _check_line(text: str, what: str, most: int) -> None:
    """Refuse what is no line of text that can be stored, or is longer than ``most`` bytes."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{what}: should be a string, not {type(text).__name__}")
    if not is_line(text):
        raise InvalidArgument(f"{what}: {shown(text)} holds a line end or a control character; leave it out")
    if 4 * len(text) > most and len(text.encode()) > most:
        raise InvalidArgument(f"{what}: {shown(text[:40])}... is longer than {most} bytes; shorten it")


def is_line(text: object) -> bool:
    """Return whether something is text that can be stored and stands on one line."""
    return isinstance(text, str) and is_storable(text) and text.isprintable()


def searched_words(text: str) -> tuple[str, ...]:
    """Return the words of a search, as they are compared. Raises `InvalidArgument` where there are none."""
    check_name(text, "words")
    words = tuple(text.casefold().split()) if isinstance(text, str) else ()
    if not words:
        raise InvalidArgument("words: should be one word at least")
    return words


def has_words(document: Document, words: tuple[str, ...]) -> bool:
    """Return whether the name or the text has every word, in any case. O(its size)."""
    name, body = document.name.casefold(), document.body.casefold()
    return all(word in name or word in body for word in words)


def state_of_document(copied: DocumentRow, changed_at: int, digest: bytes) -> DocumentState:
    """Return how a copied document that was not written stands to the one in its place."""
    if changed_at != copied.changed_at:
        return "later"
    return "same" if digest == copied.digest else "other"
