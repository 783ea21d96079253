"""What a plugin sees of the user's environment, and what is kept from it."""

import os

import pytest
from hypothesis import given
from hypothesis import settings as bounds
from hypothesis import strategies as st

import environments
from anyplug.model import permissions
from anyplug.secrets import env_vars
from random_examples import at_most
from rows import each_row

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


@each_row("name", SECRET_NAMES)
def test_a_variable_named_like_a_secret_is_withheld(name):
    assert env_vars.divide({name: "x"}, frozenset()).withheld == {name: env_vars.NAMED_SECRET}


@each_row("name", PLAIN_NAMES)
def test_other_names_are_given(name):
    assert env_vars.divide({name: "x"}, frozenset()).given == {name: "x"}


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_value_shaped_like_a_secret_is_withheld_whatever_its_name(value):
    assert env_vars.divide({"SETTING": value}, frozenset()).withheld == {"SETTING": env_vars.SHAPED_SECRET}


@pytest.mark.parametrize("value", PLAIN_VALUES)
def test_other_values_are_given(value):
    assert env_vars.divide({"SETTING": value}, frozenset()).given == {"SETTING": value}


def test_an_empty_secret_is_no_secret():
    assert env_vars.divide({"API_KEY": ""}, frozenset()).withheld == {}


def test_what_is_granted_by_name_is_given():
    granted = permissions.environment_names(("network", "env:API_KEY"))
    divided = env_vars.divide({"API_KEY": "x", "OTHER_TOKEN": "y"}, granted)
    assert (divided.given, divided.withheld) == (
        {"API_KEY": "x"},
        {"OTHER_TOKEN": env_vars.NAMED_SECRET},
    )


@pytest.mark.claim("environment-secrets")
def test_no_secret_of_a_developers_environment_passes():
    divided = env_vars.divide(environments.HARMLESS | environments.SECRETS, frozenset())
    assert divided.withheld.keys() >= environments.SECRETS.keys()


def test_at_most_a_twentieth_of_what_is_harmless_is_withheld():
    withheld = env_vars.divide(environments.HARMLESS, frozenset()).withheld
    assert len(withheld) <= len(environments.HARMLESS) / 20, withheld


@pytest.mark.claim("environment-secrets")
@each_row("name", environments.MORE_SECRETS)
@each_row("inherits", [False, True])
def test_secrets_are_withheld_however_they_are_named_and_shaped(name, inherits):
    variables = {name: environments.MORE_SECRETS[name]}
    assert env_vars.divide(variables, frozenset(), inherits=inherits).given == {}


KEYS = {
    "hexadecimal": lambda: environments.hexadecimal(32),
    "letters and digits": lambda: environments.base62(24),
    "small letters and digits": lambda: environments.lower(28),
    "base64": lambda: environments.base64(32),
    "UUID": environments.uid,
}


@pytest.mark.parametrize("kind", KEYS)
def test_generated_keys_are_told_from_words(kind):
    withheld = [bool(env_vars.reason("SETTING", KEYS[kind]())) for _ in range(500)]
    assert sum(withheld) >= 495


@each_row(
    ("name", "value"),
    [
        ("GREETING", "good morning"),
        ("MOTTO", "Ordnung muss sein!"),
        ("TITLE", "Žluťoučký kůň"),
        ("KEYWORDS", "red, green"),
        ("MAX_TOKENS", "4096"),
        ("TOKEN_LIMIT", "100000"),
        ("AUTHOR", "jane"),
        ("HOTKEY", "ctrl-k"),
        ("SHARDS", "0,1,2"),
        ("ARN", "arn:aws:iam::123456789012:role/Deploy"),
        ("IMAGE", "ghcr.io/acme/shop:1.2.3"),
        ("PATTERN", "*.test.js"),
        ("REMOTE", "git@github.com:acme/shop.git"),
        ("AGENT", "npm/9.5.0 node/v18.16.0 darwin arm64 workspaces/false"),
        ("MIRROR", "https://mirror.acme.com/pub/linux/"),
        ("HOSTS", "a.acme.com:9092,b.acme.com:9092"),
        ("RATIO", "0.75"),
        ("NIX", "/nix/store/0c1lq9y5hm6yk3p2n8x4v7w6z5d3f2s1-bash-5.2/bin"),
        ("LIMITS", "--memory=2g --cpus=4"),
        ("WHEN", "2024-05-01"),
    ],
)
def test_what_is_plainly_harmless_is_given(name, value):
    assert env_vars.reason(name, value) == ""


def test_inheriting_gives_what_is_not_plain_and_no_secret():
    variables = {"PROMPT_STYLE": "%F{blue}%~ $(git branch) »", "BLOB": environments.base62(40), "API_KEY": "abc"}
    assert env_vars.divide(variables, frozenset()).given == {}
    divided = env_vars.divide(variables, frozenset(), inherits=True)
    assert divided.given.keys() == {"PROMPT_STYLE"}


@each_row(
    ("name", "value", "secret"),
    [
        ("keywords", "alpha, beta", False),
        ("max_tokens", "100000", False),
        ("maxTokens", "100000", False),
        ("monkey", "george", False),
        ("primary_key", "customer", False),
        ("author", "somebody", False),
        ("api_key", "abcdef", True),
        ("apiKey", "abcdef", True),
        ("accessToken", "abcdef", True),
        ("sessionCookie", "abcdef", True),
        ("password", "true", False),
        ("note", "sk-abcdefghijkl", True),
    ],
)
def test_masking_judges_name_and_value_together(name, value, secret):
    assert env_vars.looks_secret(name, value) == secret


@bounds(max_examples=at_most(200))
@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_every_variable_is_either_given_or_withheld(variables):
    divided = env_vars.divide(variables, frozenset())
    assert set(divided.given) | set(divided.withheld) == set(variables)
    assert set(divided.given).isdisjoint(divided.withheld)


def test_certificates_are_the_users_or_the_machines():
    assert env_vars.certificates({"SSL_CERT_FILE": "/mine"}) == {
        "SSL_CERT_FILE": "/mine",
        "REQUESTS_CA_BUNDLE": "/mine",
    }
    assert env_vars.certificates({"NODE_EXTRA_CA_CERTS": "/ours"})["NODE_EXTRA_CA_CERTS"] == "/ours"
    if os.path.exists(env_vars.CERTIFICATES):
        assert env_vars.certificates({})["SSL_CERT_FILE"] == env_vars.CERTIFICATES


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


@pytest.mark.claim("environment-secrets")
@each_row("name", ["XDG_SESSION_ID", "XDG_VTNR", "LC_KEYMAP", "EDITOR", "TERM", "HOSTNAME"])
def test_a_harmless_name_does_not_hide_what_looks_generated(name):
    assert env_vars.reason(name, "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b")


@each_row(
    "name, value",
    [
        ("XDG_SESSION_ID", "c2"),
        ("XDG_SESSION_ID", "143"),
        ("XDG_RUNTIME_DIR", "/run/user/1000"),
        ("XDG_SESSION_PATH", "/org/freedesktop/DisplayManager/Session0"),
        ("XDG_CURRENT_DESKTOP", "ubuntu:GNOME"),
        ("XDG_DATA_DIRS", "/usr/share/gnome:/var/lib/flatpak/exports/share:/usr/local/share/:/usr/share/"),
        ("XDG_SESSION_TYPE", "wayland"),
        ("LC_TIME", "de_DE.UTF-8@euro"),
        ("INVOCATION_ID", "9f86d081884c7d659a2feaa0c55ad015"),
    ],
)
def test_usual_values_of_these_are_passed(name, value):
    assert env_vars.reason(name, value) == ""


@pytest.mark.claim("code-above")
@pytest.mark.parametrize(
    "variable",
    [
        "PYTHONPATH=/home/ada/work", "RUBYOPT=-r/home/ada/work/x.rb", "RUBYOPT=-r./x", "PERL5OPT=-I/home/ada/work -Mx",
        "JULIA_LOAD_PATH=/home/ada/work", "R_PROFILE=/home/ada/work/r", "PHPRC=/home/ada/work", "TCLLIBPATH=work",
        "DOTNET_STARTUP_HOOKS=/home/ada/work/x.dll", "BUNDLE_GEMFILE=/home/ada/work/Gemfile",
        "npm_config_node_options=--require /home/ada/work/x.js", "MAVEN_OPTS=-javaagent:/home/ada/work/x.jar",
    ],
)  # fmt: skip
def test_a_variable_from_which_interpreters_take_code_is_withheld_outside_the_systems_folders(variable):
    name, _, value = variable.partition("=")
    assert env_vars.reason(name, value) == env_vars.LOADS_CODE
    assert env_vars.reason(name, "/usr/lib/x") == ""
