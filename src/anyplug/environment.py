"""What a plugin sees of the user's environment, and what is kept from it because it looks like a secret."""

import os
import re
from collections.abc import Mapping, Sequence

import msgspec

# A name that has one of these words in it, between underscores or at an end.
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|SECRET_?KEY|KEY|TOKEN|PAT|SECRETS?|PASS(?:WD|WORD|PHRASE)?"
    r"|PWD|COOKIES?|CREDENTIALS?|AUTH|AUTH_SOCK|DSN)(?:_|$)",
    re.IGNORECASE,
)
# Shapes that only secrets have, whatever their variable is called.
_SECRET_VALUE = re.compile(
    r"^(?:sk-|sk_live_|rk_live_|ghp_|gho_|ghs_|ghu_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|npm_|pypi-|hf_)"
    r"|^eyJ[\w-]{8,}\.[\w-]+\."
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|^\w[\w+.-]*://[^/\s:@]+:[^/\s@]+@"
)
# A secret inside a longer text: after an equals sign, a colon or a blank, as in `--header=Authorization: Bearer x`.
_SECRET_PART = re.compile(
    r"(?i:\b(?:bearer|basic)\s+)(\S+)|(?:^|[=:\s])((?:sk-|sk_live_|ghp_|gho_|github_pat_|glpat-|xox[abprs]-|hf_)\S+)"
)
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})
SHOWN_SECRET = "********"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


class Environment(msgspec.Struct, frozen=True):
    """The variables that a plugin gets, and the names of those that are withheld."""

    given: dict[str, str]
    withheld: tuple[str, ...]


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable is a secret, by its name or by the shape of its value."""
    if name in _NOT_SECRET or not value:
        return False
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def divide(variables: Mapping[str, str], granted: frozenset[str]) -> Environment:
    """Divide an environment into what a plugin gets and the secrets that nobody granted by name."""
    given: dict[str, str] = {}
    withheld: list[str] = []
    for name, value in variables.items():
        if name not in granted and looks_secret(name, value):
            withheld.append(name)
        else:
            given[name] = value
    return Environment(given, tuple(sorted(withheld)))


def masked_words(words: Sequence[str]) -> list[str]:
    """Give the words of a command line as they may be shown: without what looks like a secret."""
    shown: list[str] = []
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        before = words[number - 1] if number else ""
        if before.startswith("-") and "=" not in before and looks_secret(_as_name(before), word):
            shown.append(masked(word))
        elif equals and looks_secret(_as_name(option), value):
            shown.append(f"{option}={masked(value)}")
        else:
            shown.append(masked_url(word) if "://" in word else masked_text(word))
    return shown


def masked_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Give variables as they may be shown: those that look like secrets without their value."""
    return {
        name: masked(value) if looks_secret(name, value) else masked_text(value)
        for name, value in sorted(variables.items())
    }


def masked_url(url: str) -> str:
    """Give an address as it may be shown: without a password, and without the values of its query."""
    address, mark, query = url.partition("?")
    scheme, slashes, rest = address.partition("://")
    authority, slash, path = rest.partition("/")
    if "@" in authority:
        authority = f"{SHOWN_SECRET}@{authority.rpartition('@')[2]}"
    names = "&".join(f"{name}={masked(value)}" if value else name for name, _, value in _pairs(query))
    return f"{scheme}{slashes}{authority}{slash}{path}{mark}{names}"


def masked_text(text: str) -> str:
    """Give a text without the parts that have the shape of a secret."""
    if _SECRET_VALUE.search(text):
        return SHOWN_SECRET
    return _SECRET_PART.sub(lambda found: found[0].replace(found[1] or found[2], SHOWN_SECRET), text)


def masked(value: str) -> str:
    """Hide a value; a mere reference to a variable says nothing and stays."""
    return value if _REFERENCE.fullmatch(value) else SHOWN_SECRET


def _pairs(query: str) -> list[tuple[str, str, str]]:
    return [pair.partition("=") for pair in query.split("&")] if query else []


def _as_name(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def certificates(variables: Mapping[str, str]) -> dict[str, str]:
    """Give the variables by which programs find the machine's certificates."""
    # Node has certificates of its own, and needs to be told of those that a person added.
    given = {name: variables[name] for name in ("NODE_EXTRA_CA_CERTS",) if variables.get(name)}
    bundle = variables.get("SSL_CERT_FILE") or (CERTIFICATES if os.path.exists(CERTIFICATES) else "")
    if not bundle:
        return given
    return given | {"SSL_CERT_FILE": bundle, "REQUESTS_CA_BUNDLE": variables.get("REQUESTS_CA_BUNDLE") or bundle}
