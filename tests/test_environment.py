"""What a plugin sees of the user's environment, and what is kept from it."""

import os

import pytest
from hypothesis import given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from anyplug import environment, permissions

SECRET_NAMES = [
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID",
    "DATABASE_PASSWORD",
    "MYSQL_PWD",
    "PGPASSWORD_FILE_PASS",
    "MY_PASSPHRASE",
    "SESSION_COOKIE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "SSH_AUTH_SOCK",
    "SENTRY_DSN",
    "secret",
    "my_token",
    "KEY",
]
PLAIN_NAMES = [
    "PATH",
    "HOME",
    "LANG",
    "PWD",
    "OLDPWD",
    "TERM",
    "KEYBOARD",
    "TOKENIZERS_PARALLELISM",
    "MONKEY",
    "AUTHOR",
    "COMPASS",
    "EDITOR",
]
SECRET_VALUES = [
    "sk-proj-abcdefghijklmnop",
    "ghp_0123456789abcdefghij",
    "github_pat_0123456789",
    "glpat-0123456789",
    "xoxb-1234-5678",
    "AKIAIOSFODNN7EXAMPLE",
    "hf_abcdefghij",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.c2ln",
    "-----BEGIN RSA PRIVATE KEY-----\nabc",
    "postgres://user:password@host/db",
]
PLAIN_VALUES = ["", "blue", "/usr/bin:/bin", "https://example.com/a:b@c", "en_US.UTF-8", "skiing", "postgres://host/db"]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_variable_named_like_a_secret_is_withheld(name):
    assert environment.divide({name: "x"}, frozenset()).withheld == (name,)


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_other_names_are_given(name):
    assert environment.divide({name: "x"}, frozenset()).given == {name: "x"}


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_value_shaped_like_a_secret_is_withheld_whatever_its_name(value):
    assert environment.divide({"SETTING": value}, frozenset()).withheld == ("SETTING",)


@pytest.mark.parametrize("value", PLAIN_VALUES)
def test_other_values_are_given(value):
    assert environment.divide({"SETTING": value}, frozenset()).given == {"SETTING": value}


def test_an_empty_secret_is_no_secret():
    assert environment.divide({"API_KEY": ""}, frozenset()).withheld == ()


def test_what_is_granted_by_name_is_given():
    granted = permissions.environment_names(("network", "env:API_KEY"))
    divided = environment.divide({"API_KEY": "x", "OTHER_TOKEN": "y"}, granted)
    assert (divided.given, divided.withheld) == ({"API_KEY": "x"}, ("OTHER_TOKEN",))


@bounds(max_examples=200)
@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_every_variable_is_either_given_or_withheld(variables):
    divided = environment.divide(variables, frozenset())
    assert set(divided.given) | set(divided.withheld) == set(variables)
    assert set(divided.given).isdisjoint(divided.withheld)


def test_certificates_are_the_users_or_the_machines():
    assert environment.certificates({"SSL_CERT_FILE": "/mine"}) == {
        "SSL_CERT_FILE": "/mine",
        "REQUESTS_CA_BUNDLE": "/mine",
    }
    assert environment.certificates({"NODE_EXTRA_CA_CERTS": "/ours"})["NODE_EXTRA_CA_CERTS"] == "/ours"
    if os.path.exists(environment.CERTIFICATES):
        assert environment.certificates({})["SSL_CERT_FILE"] == environment.CERTIFICATES


@pytest.mark.anyio
@pytest.mark.parametrize("format", ["cyclop", "stavrobot"])
async def test_variables_that_are_no_text_do_not_stop_a_call(format, host, request, monkeypatch):
    monkeypatch.setenv("ODD", os.fsdecode(b"\xff\xfe"))
    monkeypatch.setenv("PATH", os.environ["PATH"] + os.fsdecode(b":/caf\xe9"))
    async with host(request.getfixturevalue(format)("odd")) as h:
        result = await h.call("odd" if format == "cyclop" else "odd.act")
    assert not result.is_error, result


@pytest.mark.anyio
async def test_no_virtual_environment_of_ours_captures_a_plugins_python(host, cyclop):
    async with host(cyclop(script='#!/bin/sh\nprintf \'{"result": "%s"}\' "$(command -v python3)"\n')) as h:
        found = (await h.call("hello")).text
    assert not found.startswith(str(h.catalog.home.bin))
