"""The OpenAPI 3.1 document of the API, generated from the table of endpoints and their types."""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from anyplug import __version__
from anyplug.frontends.console import api_types as types
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.browser_sessions import PAGE_HEADER
from anyplug.frontends.console.endpoints import ROOT, Endpoint, Table

TEMPLATE: Final = "#/components/schemas/{name}"
CONTENT: Final = {
    "json": "application/json",
    "events": "text/event-stream",
    "text": "text/plain",
    "file": "application/octet-stream",
}
ABOUT: Final = (
    "Manage plugins, call their tools, and follow what happens. Programs send the token of `<home>/http-token` as "
    "`Authorization: Bearer TOKEN`; the console's page has a cookie and a key. "
    "What decides about trust takes only these."
)
PARAMETERS: Final = {
    "plugin": "the plugin's name or id",
    "tool": "the tool's full name or model name",
    "question": "the question's id",
    "call": "the call's id, or the one that the client chose",
    "record": "the record's number, or its call's id",
    "install": "the installation's id",
    "file": "the file's id",
    "job": "the job's id",
    "owner": "the plugin that has the panel",
    "panel": "the panel's id",
    "conversation": "the conversation's id",
}
BEARER: Final[list[dict[str, list[str]]]] = [{"token": []}, {"cookie": [], "page": []}]
PERSON: Final[list[dict[str, list[str]]]] = [{"cookie": [], "page": []}]


def document(table: Table) -> dict[str, Any]:
    """Return the document."""
    kinds = [kind for one in table.all for kind in (one.body, one.answer) if kind is not None]
    unique = list(dict.fromkeys([*kinds, types.Error]))
    schemas, components = msgspec.json.schema_components(unique, ref_template=TEMPLATE)
    by_type = dict(zip(unique, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in table.all:
        place = paths.setdefault(f"{ROOT}{endpoint.path}", {})
        place[endpoint.method.lower()] = _operation(endpoint, by_type)
    whole = {
        "openapi": "3.1.0",
        "info": {"title": "anyplug", "version": __version__, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "anyplug_session_PORT_PROJECT"},
                "page": {"type": "apiKey", "in": "header", "name": PAGE_HEADER.decode()},
            },
        },
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(whole))  # with nothing in it but JSON's own types
    return plain


def _operation(endpoint: Endpoint, by_type: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.about,
        "security": [] if endpoint.is_open else PERSON if endpoint.is_for_people else BEARER,
        "responses": _responses(endpoint, by_type),
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "description": PARAMETERS[name], "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", endpoint.path)
    ]
    parameters += [
        {"name": query.name, "in": "query", "description": query.about, "schema": {"type": query.type}}
        for query in endpoint.queries
    ]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        content: dict[str, Any] = {"application/json": {"schema": by_type[endpoint.body]}}
        if endpoint.upload:
            content[endpoint.upload] = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _responses(endpoint: Endpoint, by_type: dict[Any, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": endpoint.about}
    if endpoint.kind != "nothing":
        schema = by_type[endpoint.answer] if endpoint.answer is not None else {"type": "string"}
        if endpoint.kind == "json" and endpoint.answer is None:
            schema = {"type": "object"}
        answer["content"] = {CONTENT[endpoint.kind]: {"schema": schema}}
    error = {"description": "What went wrong", "content": {"application/json": {"schema": by_type[types.Error]}}}
    return {str(endpoint.status): answer, "default": error}


def endpoint_of(table_of: Callable[[], Table]) -> Endpoint:
    """Return the endpoint that answers with the document."""
    made: list[dict[str, Any]] = []

    async def show(request: ApiRequest) -> dict[str, Any]:
        if not made:
            made.append(document(table_of()))
        return made[0]

    return Endpoint(
        method="GET",
        path="/openapi.json",
        name="showOpenapi",
        about="Show this document",
        handle=show,
        is_open=True,
        needs_host=False,
    )
