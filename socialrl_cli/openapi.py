"""The API of `socialrl serve` as an OpenAPI 3.1 document. Tests hold it against routes and answers."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
TEXT: Json = {"type": "string"}
NUMBER: Json = {"type": "number"}
WHOLE: Json = {"type": "integer", "minimum": 0}
OBJECT: Json = {"type": "object"}
TRUTH: Json = {"type": "boolean"}
MAYBE: Json = {"type": ["string", "null"]}


def document() -> Json:
    """What /openapi.json answers."""
    from importlib.metadata import version

    return {
        "openapi": "3.1.0",
        "info": {
            "title": "socialrl serve",
            "version": version("socialrl"),
            "description": "Episodes for remote participants. A seat reads its events from a cursor and answers "
            "notifications; each seat has its own secret.",
        },
        "paths": _paths(),
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(),
        },
    }


def _paths() -> Json:
    episode, seat = _in_path("episode"), _in_path("seat")
    one = "/v1/episodes/{episode}"
    at = one + "/seats/{seat}"
    return {
        "/v1/episodes": {
            "post": _operation(
                "Open an episode. The server's token, where it has one.",
                {"201": _answer("Opened", "The episode, its secret and those of its remote seats")},
                errors=("400", "401", "408", "413", "415", "429"),
                parameters=[
                    {
                        "name": "Idempotency-Key",
                        "in": "header",
                        "schema": {"type": "string", "pattern": "^[!-~]+$"},
                        "description": "Sent again with the same body it names the same episode; choose it at random, "
                        "because whoever sends it is given the same secrets.",
                    }
                ],
                body="Opening",
            )
        },
        one: {
            "get": _operation(
                "How an episode stands, with its whole outcome when it has ended. The episode's secret.",
                {"200": _answer("Episode", "The episode")},
                errors=("401", "404", "410"),
                parameters=[episode],
            ),
            "delete": _operation(
                "Abort an episode. The episode's secret.",
                {"200": _answer("Episode", "The episode, ended")},
                errors=("401", "404", "410"),
                parameters=[episode],
            ),
        },
        at + "/events": {
            "get": _operation(
                "A seat's events from a cursor; waits for one where there is none yet. The seat's secret.",
                {"200": _answer("Events", "The events, and where to go on")},
                errors=("400", "401", "404", "410"),
                parameters=[
                    episode,
                    seat,
                    _in_query("cursor", {**WHOLE, "default": 0}, "The number of events that are known already."),
                    _in_query("wait_s", {**NUMBER, "minimum": 0, "maximum": 60, "default": 0}, "How long to wait."),
                ],
            )
        },
        at + "/actions": {
            "post": _operation(
                "Answer a notification. The seat's secret.",
                {"200": _answer("Ack", "What became of the action; its effects are events")},
                errors=("400", "401", "404", "408", "410", "413", "415"),
                parameters=[episode, seat],
                body="Answer",
            )
        },
        at + "/outcome": {
            "get": _operation(
                "How the episode ended for a seat. The seat's secret.",
                {"200": _answer("Outcome", "The outcome")},
                errors=("401", "404", "409", "410"),
                parameters=[episode, seat],
            )
        },
        "/openapi.json": {
            "get": {"summary": "This document.", "responses": {"200": _content({"type": "object"}, "The document")}}
        },
        "/health": {
            "get": {
                "summary": "Whether episodes are recorded.",
                "responses": {
                    "200": _answer("Health", "They are"),
                    "500": _answer("Health", "Recording has failed, the server stops"),
                },
            }
        },
    }


def _schemas() -> Json:
    score = _object({"raw": NUMBER, "utility": NUMBER, "reference": {"type": ["number", "null"]}, "reward": NUMBER})
    ending = {
        "status": {"enum": ["agreement", "walk_away", "timeout", "aborted"]},
        "agreement": {"type": ["object", "null"]},
        "by": MAYBE,
        "error": MAYBE,
    }
    outcome = _object({**ending, "seats": {"type": "object", "additionalProperties": score}, "measures": OBJECT})
    state = {
        "episode_id": TEXT,
        "env": TEXT,
        "scenario_id": TEXT,
        "seed": {"type": "integer"},
        "seats": {"type": "object", "additionalProperties": TEXT},
        "ended": TRUTH,
        "outcome": {"anyOf": [outcome, {"type": "null"}]},
    }
    move = _object({"move": TEXT, "description": TEXT, "fields": OBJECT})
    event = {
        "seq": WHOLE,
        "kind": {"enum": ["observation", "notification"]},
        "type": TEXT,
        "at": WHOLE,
        "payload": OBJECT,
        "notification_id": TEXT,
        "actions": {"type": "array", "items": move},
        "deadline_s": {"type": ["number", "null"]},
    }
    limits = {
        "moves_per_seat": {"type": "integer", "minimum": 1},
        "retries": WHOLE,
        "say_chars": {"type": "integer", "minimum": 1},
        "decide_timeout_s": {"type": "number", "exclusiveMinimum": 0},
        "episode_timeout_s": {"type": "number", "exclusiveMinimum": 0},
    }
    opening = {
        "env": TEXT,
        "scenario": {"type": ["object", "null"], "description": "The game itself, with all fields of a scenario file."},
        "split": {"enum": ["train", "val", "test"], "description": "Or a packaged one, with index."},
        "index": WHOLE,
        "seed": {"type": "integer", "default": 0},
        "seats": {"type": "object", "additionalProperties": TEXT, "description": "Who sits where: remote, scripted:…"},
        "limits": _object(limits, required=()),
    }
    said = _object({"message": TEXT, "type": TEXT, "param": MAYBE, "code": MAYBE})
    secrets = {"secret": TEXT, "secrets": {"type": "object", "additionalProperties": TEXT}}
    action = {"type": "object", "properties": {"move": TEXT}, "required": ["move"]}
    return {
        "Opening": _object(opening, required=("env", "seats")),
        "Episode": _object(state),
        "Opened": _object({**state, **secrets}),
        "Event": _object(event, required=("seq", "kind", "type", "at", "payload")),
        "Events": _object({"events": {"type": "array", "items": _ref("Event")}, "cursor": WHOLE, "closed": TRUTH}),
        "Answer": _object({"notification_id": TEXT, "action": action}),
        "Ack": _object(
            {
                "status": {"enum": ["accepted", "invalid", "stale", "closed"]},
                "reason": MAYBE,
                "repeated": {"type": "boolean", "description": "The same action was sent before; this did nothing."},
            }
        ),
        "Outcome": _object({**ending, "seat": TEXT, "score": {"anyOf": [score, {"type": "null"}]}}),
        "Health": _object({"open": WHOLE, "recording": TRUTH}),
        "Error": _object({"error": said}),
    }  # fmt: skip


def _operation(
    summary: str, responses: Json, *, errors: tuple[str, ...], parameters: list[Json], body: str = ""
) -> Json:
    failures = {code: {**_answer("Error", ERRORS[code]), **HEADERS.get(code, {})} for code in errors}
    found: Json = {"summary": summary, "security": [{"bearer": []}], "parameters": parameters}
    if body:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(body)}}}
    return {**found, "responses": {**responses, **failures}}


ERRORS = {
    "400": "Something in the request is wrong; the message says what",
    "401": "The secret is missing or another one",
    "404": "No such episode, or no such remote seat",
    "408": "The body did not arrive in time",
    "409": "The episode has not ended",
    "410": "The episode has ended and is not kept here any more",
    "413": "The body is too large",
    "415": "The body is not application/json",
    "429": "As many episodes are open as may be",
}
HEADERS: dict[str, Json] = {
    "401": {"headers": {"WWW-Authenticate": {"schema": TEXT}}},
    "429": {"headers": {"Retry-After": {"schema": TEXT}}},
}


def _object(properties: Json, required: tuple[str, ...] | None = None) -> Json:
    needed = list(properties) if required is None else list(required)
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _answer(schema: str, description: str) -> Json:
    return _content(_ref(schema), description)


def _content(schema: Json, description: str) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _in_path(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _in_query(name: str, schema: Json, description: str) -> Json:
    return {"name": name, "in": "query", "schema": schema, "description": description}
