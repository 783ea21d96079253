"""The OpenAPI document is generated from the code, and every answer is as it says: schemathesis asks at random.

What it must not ask: streams, which do not end, and what changes this test's own session.
"""

import os

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import plugin_folders
from anyplug.frontends.console import console_routes, openapi
from command_line import ok
from consoles import Console, console
from random_examples import LONG_FORM

NOT_ASKED = {"followEvents", "followConversation", "followLog", "logOut", "openConversation"}
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
EXAMPLES = 30 if os.environ.get(LONG_FORM) else 3  # of each operation


def document() -> dict:
    return openapi.document(console_routes.table())


def test_every_operation_has_a_name_of_its_own_and_an_answer():
    names = []
    for place in document()["paths"].values():
        for operation in place.values():
            names.append(operation["operationId"])
            assert operation["summary"]
            assert "default" in operation["responses"]
    assert len(names) == len(set(names))


def test_the_server_shows_the_document_to_everybody():
    with console() as page:
        said = Console(page.address, {}).ask("GET", "/openapi.json")
        assert said.status == 200
        assert said.json == document()


def test_answers_are_as_the_document_says(root):
    ok("install", plugin_folders.cyclop(root, "hello", permissions=["filesystem:write"]), "--yes")
    with console() as page:
        schema = schemathesis.openapi.from_dict(document())
        for found in schema.get_all_operations():
            operation = found.ok()
            if operation.definition.raw["operationId"] not in NOT_ASKED:
                _check(operation, page)


def _check(operation, page: Console) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def ask(case) -> None:
        answer = case.call(base_url=f"http://{page.address}", headers=page.headers, cookies={})
        case.validate_response(answer, checks=list(CHECKS))

    ask()


pytestmark = pytest.mark.xdist_group("console-openapi")
