"""What an agent is sent of a session, for the page: what each step did, and what became of each entry."""

from __future__ import annotations

from collections.abc import Mapping

from flue_py.core.jsontext import JsonObject, JsonValue


def sent_json(explained: JsonObject, place: Mapping[str, int]) -> JsonObject:
    """Return what was explained of a request: of the entries those not sent as they are, by place. O(items)."""
    reasons = {step["name"]: step["reason"] for step in _objects(explained["steps"])}
    changed: list[JsonValue] = []
    for entry in _objects(explained["entries"]):
        at = place.get(str(entry["entryId"]))
        if at is None or entry["sent"] == "whole":
            continue
        changes = _objects(entry["changes"])
        why: list[JsonValue] = [f"{change['step']}: {reasons[change['step']]}" for change in changes]
        into = changes[-1]["into"] if changes else None
        if into is not None:
            why.append(f"its content is in the message of {into}")
        is_sized = bool(changes) and into is None
        sizes = {"before": changes[0]["tokensBefore"], "after": changes[-1]["tokensAfter"]} if is_sized else {}
        changed.append({"at": at, "how": entry["sent"], "why": why, **sizes})
    repairs: list[JsonValue] = [
        {"at": place.get(str(each["entryId"])), "what": each["what"]} for each in _objects(explained["repairs"])
    ]
    kept = ("agent", "target", "counter", "isEstimate", "tokensBefore", "tokensSent", "steps", "events", "broken")
    return {**{name: explained[name] for name in kept}, "changed": changed, "repairs": repairs}


def _objects(value: JsonValue) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
