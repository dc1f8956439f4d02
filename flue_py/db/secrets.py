"""Secrets on the way into a store: whatever a write is given is searched before its transaction begins."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cache, cached_property, partial
from importlib.util import find_spec
from inspect import signature
from typing import Concatenate, Literal, ParamSpec, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from flue_py.core.chain import NO_PARENT
from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonValue, decode_json, encode_json
from flue_py.core.kinds import SIGNATURES, message_title
from flue_py.core.ledger import AttachmentRow
from flue_py.core.operations import DeleteTree
from flue_py.core.sessions import GUARD_KEY, DocumentName, DocumentRow, NewDocument
from flue_py.core.trees import TreeCopy
from flue_py.db.ops.base import checked_text, pack, stored_text
from flue_py.db.runner import Sources, Transaction
from flue_py.errors import CorruptStore, InvalidArgument, MissingExtra, SecretRefused, shown
from flue_py.masking import Mask, Secret, joined, mark, replaced

SecretFinder: TypeAlias = Callable[[str], Iterable[tuple[int, int, str]]]
"""Returns where the secrets of a text begin and end, and by which rules."""

SecretsChoice: TypeAlias = Literal["mask", "refuse"] | SecretFinder
"""The fate of secrets: the name of the rule in their place, or an error; or those of a function are masked."""

P = ParamSpec("P")
Result = TypeVar("Result")
Value = TypeVar("Value")

_TEXTS = frozenset({
    "after", "agent", "auto_title", "before", "body", "by", "config_path", "cwd", "edited_by", "extra", "first_message",
    "label", "metadata", "metadata_text", "moved_by", "oddities", "payload", "source", "summary", "text",
    "title", "value", "why",
})  # fmt: skip
"""Fields that a mark can stand in. Any other text is a name by which things are found again: it is refused."""

_MAY_BE_JSON = frozenset({"after", "before", "extra", "metadata", "metadata_text", "payload", "text"})
_STRUCTURE = frozenset({"type", "role", "id"})
_SKIPPED = (bytes, Sources, DeleteTree, DocumentName)
"""Of what is removed there are names alone, and nothing is written."""
_BASE64 = re.compile(r"(?:data:[\w/+.;-]*;base64,)?[A-Za-z0-9+/]{1000,}={0,2}")
_LONGEST_PASSWORD = 200
_LONGEST_RULE = 100
_LEAST = 4


class SecretFilter:
    """Masks or refuses secrets in the values of writes. A value without one is returned as it is."""

    def __init__(self, choice: SecretsChoice) -> None:
        if not callable(choice) and choice not in ("mask", "refuse"):
            raise InvalidArgument(f"secrets: {shown(choice)} is not 'mask', 'refuse' or a function")
        if not callable(choice) and find_spec("detect_secrets") is None:
            raise MissingExtra("secrets", "finding secrets")
        self._is_refusing = choice == "refuse"
        self._finder = choice if callable(choice) else None

    @cached_property
    def _mask(self) -> Mask:
        # Whoever only reads does not wait for it.
        return Mask()

    def _find(self, text: str) -> Sequence[Secret]:
        return self._mask.find(text) if self._finder is None else _found_by(self._finder, text)

    def with_values(
        self, function: Callable[Concatenate[Transaction, P], Result], /, *values: P.args, **named: P.kwargs
    ) -> Callable[[Transaction], Result]:
        """Return a function of a transaction with these values, searched. Raises `SecretRefused`. O(characters)."""
        names = _parameters(function)
        clean = [self._value(value, name, name) for name, value in zip(names, values, strict=False)]
        others = {name: self._value(value, name, name) for name, value in named.items()}
        return lambda tx: function(tx, *clean, **others)  # type: ignore[arg-type]

    def _value(self, value: Value, where: str, name: str) -> Value:
        """Return a value of a write; ``name`` is that of the field or the parameter, ``where`` its place."""
        clean: object = value
        if isinstance(value, _SKIPPED):
            return value
        if isinstance(value, str):
            clean = self._text(value, where, name) if name in _TEXTS else self._name(value, where)
        elif isinstance(value, NewEntry):
            entry = replace(value, payload=self._payload(value.payload, where))
            clean = self._fields(entry, where, "payload")
        elif isinstance(value, TreeCopy):
            clean = self._tree(value)
        elif isinstance(value, Struct) or hasattr(value, "_fields"):
            clean = self._fields(value, where)
        elif isinstance(value, Mapping):
            clean = dict(self._value(tuple(value.items()), where, name))
        elif isinstance(value, (Sequence, Set)):
            items = [self._value(item, f"{where}[{number}]", name) for number, item in enumerate(value)]
            clean = frozenset(items) if isinstance(value, Set) else tuple(items) if isinstance(value, tuple) else items
        elif callable(value):
            # What becomes of metadata is known in the transaction only.
            clean = partial(self._later, value, where, name)
        return cast("Value", clean)

    def _later(self, function: Callable[[str], str], where: str, name: str, stored: str) -> str:
        return self._value(function(stored), where, name)

    def _fields(self, value: Value, where: str, *without: str) -> Value:
        """Return a value or a row with its fields searched, but for some."""
        names: Sequence[str] = getattr(value, "_fields", ()) or getattr(value, "__struct_fields__", ())
        old = {name: getattr(value, name) for name in names if name not in without}
        new = {name: self._value(field, f"{where}.{name}", name) for name, field in old.items() if field is not None}
        changes = {name: field for name, field in new.items() if field is not old[name]}
        if not changes:
            return value
        changed = getattr(value, "_replace", partial(replace, value))(**changes)  # type: ignore[type-var]
        return cast("Value", _rewritten(changed) if isinstance(changed, DocumentRow) else changed)

    def _payload(self, text: str, where: str) -> str:
        value = decode_json(text)
        clean = self._json(value, where, "", 0)
        encoded = encode_json(clean, where)[0]
        # A text that JSON spells in another way may have more in it: two fields of one name, of which one was read.
        return text if clean == value and (encoded == text or self._plain(text, where) == text) else encoded

    def _tree(self, copy: TreeCopy) -> TreeCopy:
        """Return a tree of another store; the digests of masked entries are made anew when it is written."""
        blobs = {blob.sha256: blob for blob in copy.blobs}
        data = {blob.sha256: blob.data for blob in copy.blobs}
        cuts: dict[tuple[int, int], list[tuple[int, bytes]]] = defaultdict(list)
        for row in copy.attachments:
            cuts[row.lane_id, row.depth].append((row.place, row.sha256))
        digests = {entry.id: entry.digest for entry in copy.entries}
        titles: dict[tuple[int, str | None], str | None] = {}
        entries, masked = [], set[str]()
        for number, entry in enumerate(copy.entries):
            where = f"entries[{number}]"
            clean = self._fields(entry, where, "payload")
            # Without its pictures.
            text = stored_text(entry, data).decode()
            if clean != entry or self._payload(text, where) is not text:
                place = entry.lane_id, entry.depth
                above = NO_PARENT if entry.parent_id is None else digests.get(entry.parent_id, b"")
                whole = checked_text(copy.chain, entry, above, data, cuts.pop(place, ()))
                new = self._payload(whole, where)
                titles.setdefault((entry.session_key, _title(whole)), _title(new))
                stored = pack(new)
                blobs.pop(entry.blob or b"", None)
                blobs |= {blob.sha256: blob for blob in stored.blobs}
                cuts[place] = [*stored.cuts]
                clean = clean._replace(payload=stored.payload, packed=stored.packed, blob=stored.blob)
                masked.add(entry.id)
            entries.append(clean)
        attachments = [AttachmentRow(*place, *cut) for place, pieces in sorted(cuts.items()) for cut in pieces]
        if masked:
            firsts = (
                (row, titles.get((row.session_key, row.first_message), row.first_message)) for row in copy.sessions
            )
            sessions = [row._replace(first_message=first) for row, first in firsts]
            copy = replace(copy, sessions=sessions, entries=entries, blobs=[*blobs.values()], attachments=attachments)
            copy = replace(copy, masked=masked)
        return self._fields(copy, "the copy", "entries", "blobs", "attachments", "chain")

    # -- texts

    def _json(self, value: JsonValue, where: str, name: str, depth: int) -> JsonValue:
        """Return JSON, searched; ``name`` is that of the field, and ``depth`` counts the objects around it."""
        if isinstance(value, str):
            is_part = depth <= 2
            if (is_part and name in SIGNATURES) or _BASE64.fullmatch(value):
                return value
            if is_part and (name in _STRUCTURE or name.endswith(("Id", "Ids"))):
                return self._name(value, where)
            return self._field(value, where, name)
        if isinstance(value, list):
            return [self._json(item, f"{where}[{number}]", name, depth) for number, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        clean: dict[str, JsonValue] = {}
        for key, item in value.items():
            masked = self._plain(key, where)
            clean[masked] = self._json(item, f"{where}.{masked}", key, depth + 1)
        if len(clean) < len(value):  # two have the same mark
            for key in value:
                self._name(key, where)
        return clean

    def _field(self, text: str, where: str, name: str) -> str:
        """Return the value of a field of JSON: its name says that it is a password, which has no form of its own."""
        clean = self._plain(text, where)
        is_short = clean is text and len(text) <= _LONGEST_PASSWORD
        if is_short and self._finder is None and GUARD_KEY not in where and self._mask.is_telling(name):
            rule = self._mask.rule_behind(name, text)
            if rule is not None:
                return self._mark_of(rule, where)
        return clean

    def _text(self, text: str, where: str, name: str) -> str:
        if name in _MAY_BE_JSON and text.startswith(("{", "[")):
            with contextlib.suppress(CorruptStore):  # which says that it is no JSON
                return self._payload(text, where)
        return self._plain(text, where)

    def _plain(self, text: str, where: str) -> str:
        return replaced(text, self._find(text), lambda rule: self._mark_of(rule, where))

    def _mark_of(self, rule: str, where: str) -> str:
        if self._is_refusing:
            raise SecretRefused(where, rule)
        return mark(rule)

    def _name(self, text: str, where: str) -> str:
        for secret in self._find(text):
            raise SecretRefused(where, secret.rule, is_name=True)
        return text


def _found_by(finder: SecretFinder, text: str) -> Sequence[Secret]:
    """Return the secrets that a function of the caller finds. Raises `InvalidArgument`, with nothing of the text."""
    secrets: list[Secret] = []
    try:
        secrets = sorted(Secret(*place) for place in finder(text))
        are_right = all(
            type(start) is type(end) is int and 0 <= start < end <= len(text) and _is_rule(rule, text[start:end])
            for start, end, rule in secrets
        )
        wrong = "" if are_right else "it returned a place that is not (start, end, rule) within the text"
    except Exception as error:  # noqa: BLE001 - whatever it raises
        wrong = f"it raised {type(error).__name__}, or returned no places"
    # Not within the handler: the error of the function may have the text.
    if wrong:
        raise InvalidArgument(f"secrets: {wrong}; nothing was written")
    return tuple(joined(secrets))


def _is_rule(rule: str, secret: str) -> bool:
    is_name = isinstance(rule, str) and rule.isprintable() and 0 < len(rule) <= _LONGEST_RULE
    return is_name and (len(secret) < _LEAST or secret not in rule)


@cache
def _parameters(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names of the parameters behind the transaction."""
    return tuple(signature(function).parameters)[1:]


def _title(payload: str) -> str | None:
    message = decode_json(payload)
    return message_title(message) if isinstance(message, dict) else None


def _rewritten(row: DocumentRow) -> DocumentRow:
    """Return a document with the digest of its text."""
    new = NewDocument(row.kind, row.name, row.body, row.type, row.scope, row.space, row.project, row.source)
    return new.row(row.changed_at)._replace(created_at=row.created_at)
