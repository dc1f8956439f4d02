"""The OpenAPI document of the HTTP API, made of the table of routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

from msgspec.json import schema_components

from flue_py.core.json import JsonObject
from flue_py.server.answers import ConversationError, Problem
from flue_py.server.routes import CONVERSATIONS, Route

EVENTS = "/v1/sessions/{session}/events"
_REFERENCE = "#/components/schemas/{name}"
_ID = "An id. One with a slash, one that begins with ~, . and .. are written as ~ and their base64url."
_KEY: JsonObject = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The key of retries: what was done by an earlier request with it is done once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
_PROBLEMS = {
    "400": "The request is wrong; nothing was changed.",
    "401": "There is no such token.",
    "403": "The host or the origin is not one that is served.",
    "404": "There is no such session, entry or budget.",
    "409": "Something else was written meanwhile; the answer says what is there now.",
    "412": "The session is not as If-Match says.",
    "413": "The body is too long.",
    "415": "The body is not JSON.",
    "503": "The database is busy, or the time is up; try again with the same key.",
}


def _fields(schema: object) -> tuple[JsonObject, list[str]]:
    document = cast("JsonObject", schema)
    return cast("JsonObject", document["properties"]), cast("list[str]", document.get("required", []))


def _parameters(route: Route, query: object) -> list[JsonObject]:
    rows: list[JsonObject] = [
        {"name": name, "in": "path", "required": True, "description": _ID, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    fields, required = _fields(query)
    rows += [
        {"name": name, "in": "query", "required": name in required, "schema": schema} for name, schema in fields.items()
    ]
    return [*rows, _KEY] if route.method == "POST" else rows


def _problems(path: str) -> JsonObject:
    kind, name = ("json", "ConversationError") if path.startswith(CONVERSATIONS) else ("problem+json", "Problem")
    problem: JsonObject = {f"application/{kind}": {"schema": {"$ref": _REFERENCE.format(name=name)}}}
    return {code: {"description": text, "content": problem} for code, text in _PROBLEMS.items()}


def _operation(route: Route, query: object) -> JsonObject:
    answer: JsonObject = {"schema": {"$ref": _REFERENCE.format(name=route.answer.__name__)}}
    responses = _problems(route.path)
    responses[str(route.status)] = {"description": "Done.", "content": {"application/json": answer}}
    if route.has_etag:
        responses["304"] = {"description": "The session is as If-None-Match says."}
    operation: JsonObject = {
        "operationId": route.work.__name__,
        "summary": route.summary,
        "parameters": [*_parameters(route, query)],
        "responses": responses,
    }
    if route.body is not None:
        body: JsonObject = {"schema": {"$ref": _REFERENCE.format(name=route.body.__name__)}}
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
    return operation


def _events() -> JsonObject:
    responses = _problems(EVENTS)
    responses["200"] = {"description": "Events, as they come.", "content": {"text/event-stream": {}}}
    last: JsonObject = {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}}
    after: JsonObject = {
        "name": "after",
        "in": "query",
        "description": "The same, for the first request of a reader that sends no headers.",
        "schema": {"type": "string"},
    }
    session: JsonObject = {
        "name": "session",
        "in": "path",
        "required": True,
        "description": _ID,
        "schema": {"type": "string"},
    }
    summary = "Follow the events of a session (server-sent events)."
    return {"operationId": "events", "summary": summary, "parameters": [session, last, after], "responses": responses}


def openapi_document(routes: Sequence[Route], version: str) -> JsonObject:
    """Return the document (OpenAPI 3.1) of these routes. O(routes)."""
    types = [route.answer for route in routes] + [route.body for route in routes if route.body]
    _, components = schema_components([*types, Problem, ConversationError], ref_template=_REFERENCE)
    paths: dict[str, JsonObject] = {}
    for route in routes:
        _, queries = schema_components([route.query], ref_template=_REFERENCE)
        operation = _operation(route, queries[route.query.__name__])
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    paths[EVENTS] = {"get": _events()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "flue_py", "version": version},
        "security": [{}, {"token": []}],
        "paths": cast("JsonObject", paths),
        "components": {
            "schemas": cast("JsonObject", components),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
