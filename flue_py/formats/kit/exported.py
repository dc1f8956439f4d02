"""What an exporter hands over: the text of a file, and what the format had no place for."""

from __future__ import annotations

import json
from dataclasses import dataclass

from flue_py.core.jsontext import JsonValue, replace_lone_surrogates
from flue_py.wire.leftovers import ExportNote, Leftovers


@dataclass(frozen=True, slots=True)
class Exported:
    """A session in another format. ``notes`` say what was left out or changed, never silently.

    ``text`` is what a file of the format holds, its last line end included.
    """

    format: str
    text: str
    notes: tuple[ExportNote, ...] = ()

    @property
    def value(self) -> JsonValue:
        """The value of the text: of JSONL the list of its rows."""
        if self.format == "pi":
            return [json.loads(line) for line in self.text.splitlines() if line]
        return json.loads(self.text)  # type: ignore[no-any-return]


def exported_json(format_name: str, value: JsonValue, left: Leftovers) -> Exported:
    """Return a value as the text of a document of its own."""
    text = replace_lone_surrogates(json.dumps(value, ensure_ascii=False, indent=2))[0]
    return Exported(format_name, text + "\n", left.notes())


def json_line(value: JsonValue) -> str:
    """Return a value as one line of JSONL, without its end."""
    # U+2028 and its like stay escaped: some readers take them for the end of a line.
    text = replace_lone_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":")))[0]
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\u0085", "\\u0085")
