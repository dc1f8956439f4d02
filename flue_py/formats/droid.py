"""Session files of Droid, the agent of Factory."""

from __future__ import annotations

from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, without
from flue_py.core.sessions import derived_id, made_id
from flue_py.core.usage import PaidCall, call_of, read_reported
from flue_py.errors import UnreadableFile
from flue_py.formats import kit
from flue_py.formats.gathered import facts_beside
from flue_py.providers.anthropic import messages_from_anthropic
from flue_py.providers.base import fields_of
from flue_py.providers.openai_chat import calls_in

# The program cannot be run without an account: this follows the readers that others have published, which take the rows
# in the order of the file. The numbers of a session stand in a file beside it, as sums, and are one call that grows.
# docs/formats/droid.md lists the fields.

FORMAT = "droid"
_START = "session_start"
_COUNTS = {"inputTokens": "input_tokens", "cacheCreationTokens": "cache_creation_input_tokens",
           "cacheReadTokens": "cache_read_input_tokens"}  # fmt: skip


def looks_like_droid(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a session of Droid."""
    first = next(kit.first_rows(first_bytes), {})
    return first.get("type") == _START and isinstance(first.get("id"), str)


class DroidReader(kit.RowReader):
    """Reads a session file (see `Reader`)."""

    ready = 0

    def __init__(self, name: str = "the file") -> None:
        super().__init__(name)
        self._chain: kit.Chain | None = None
        self._start: JsonObject = {}
        self._tools: dict[str, str] = {}
        self._created_us: int | None = None
        self._last_us: int | None = None

    def feed_row(self, number: int, raw: bytes, fields: JsonObject) -> None:
        """Read a row. Raises `UnreadableFile` if the first one is of another program."""
        moment = kit.read_moment(fields.get("timestamp"))
        # Some rows have no time.
        at = self._last_us = moment if moment is not None else self._last_us
        self._created_us = at if self._created_us is None else self._created_us
        row, own = kit.Row(number, b"", fields), fields.get("id")
        if self._chain is None:
            self._chain = kit.Chain(self._begin(row), self._notes)
        row.id = str(own) if kit.is_name(own) else derived_id(self._chain.session_id, number)
        if row.type == _START and not self._start:
            self._start = fields
            self._notes.left_out["begins the session"] += 1
        elif row.type == "message" and isinstance(fields.get("message"), dict):
            self._say(row, self._chain, at)
        else:
            if row.type not in ("message", _START):
                self._notes.unknown_kinds[row.type] += 1
            body = without(fields, "id", "timestamp", "type")
            self._add(row, self._chain, kit.plain_entry(kit.entry_kind("droid.", row.type), body), {}, at)

    def finish(self, *, take_all: bool) -> list[kit.SessionPart]:
        """Return the session. Raises `UnreadableFile` if there is no row."""
        if self._chain is None:
            raise UnreadableFile(f"{self._name} is not a session of Droid: it has no row; nothing was imported")
        settings = kit.object_in(self.beside.get("settings", b""))
        about: JsonObject = {"start": self._start, **({"settings": settings} if settings else {})}
        title = kit.one_text(self._start.get("sessionTitle")) or kit.one_text(self._start.get("title"))
        names: kit.SessionFields = {"auto_title": title, "cwd": self._start.get("cwd"), "created_us": self._created_us}
        part = self._chain.parsed(FORMAT, self._name, about, **names)
        return [replace(part, calls=self._calls(settings, self._chain.session_id))]

    def _begin(self, row: kit.Row) -> str:
        names = (row.fields.get("id") if row.type == _START else None, self._name.rpartition("/")[2])
        session_id = next((name.removesuffix(".jsonl") for name in names if kit.is_name(name)), "")
        if not session_id or row.type not in (_START, "message"):
            raise UnreadableFile(f"{self._name} is not a session of Droid; nothing was imported")
        return session_id

    def _say(self, row: kit.Row, chain: kit.Chain, at: int | None) -> None:
        """Emit the messages of a row: several where a user's has results of tools."""
        value = fields_of(row.fields.get("message"))
        rest = without(row.fields, "id", "timestamp", "type", "message")
        messages = list(messages_from_anthropic(value, self._tools)) or [(value, {})]
        for index, (message, extra) in enumerate(messages):
            self._tools.update(calls_in(message))
            entry, more = kit.message_entry(message, row.fields, row.line, self._notes)
            # The sums beside have every call.
            beside = {**(rest if index == 0 else {}), **extra, **more}
            self._add(row, chain, replace(entry, calls=()), beside, at, index)

    def _add(
        self, row: kit.Row, chain: kit.Chain, entry: NewEntry, beside: JsonObject, at: int | None, index: int = 0
    ) -> None:
        name = derived_id(row.id, str(index)) if index else row.id
        name = chain.own_name(row, name, lambda number: derived_id(name, row.line, str(number)))
        chain.add(entry, row.line, beside=beside, entry_id=name, created_us=at)

    def _calls(self, settings: JsonObject, session_id: str) -> tuple[PaidCall, ...]:
        """Return the sums of the session as one call; thoughts are counted apart from the output."""
        sums = fields_of(settings.get("tokenUsage"))
        counts: JsonObject = {ours: sums[name] for name, ours in _COUNTS.items() if name in sums}
        written = [count for name in ("outputTokens", "thinkingTokens") if isinstance(count := sums.get(name), int)]
        counts |= {"output_tokens": sum(written)} if written else {}
        reported = read_reported(counts)
        self._notes.repair(0, *reported.oddities)
        provider, model = settings.get("providerLock"), settings.get("model")
        call = call_of(reported, provider=provider, model=model, call_id=made_id(FORMAT, session_id))
        at = kit.read_moment(settings.get("providerLockTimestamp")) or self._created_us
        return (replace(call, at_us=at),) if any(reported.totals) else ()


read_droid = DroidReader


before_droid, beside_droid = facts_beside(lambda path: {"settings": path.with_suffix(".settings.json")})
