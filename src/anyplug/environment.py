"""What a plugin sees of the user's environment, and what is kept from it because it looks like a secret."""

import os
import re
from collections.abc import Mapping

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
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})
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


def certificates(variables: Mapping[str, str]) -> dict[str, str]:
    """Give the variables by which programs find the machine's certificates."""
    bundle = variables.get("SSL_CERT_FILE") or (CERTIFICATES if os.path.exists(CERTIFICATES) else "")
    if not bundle:
        return {}
    return {"SSL_CERT_FILE": bundle, "REQUESTS_CA_BUNDLE": variables.get("REQUESTS_CA_BUNDLE") or bundle}
