"""Decide whether a variable, configuration key or option is named like a secret: one rule for all of them. Pure.

A name is split into words (`accessToken`, `ACCESS_TOKEN` and `access-token` are the same two). Some words are enough by
themselves, some as the end of an unsplit word (`PGPASSWORD`, `OPENAIKEY`), and some rule it out (`max_tokens`,
`primary_key`).
"""

import functools
import re


def words(text: str) -> frozenset[str]:
    """Parse a table of words."""
    return frozenset(text.split())


# Words that name a secret or where one is kept.
_SECRET = words(
    "apikey accesskey auth authorization authz bearer cookie cookies cookiejar cred creds credential credentials csrf "
    "dsn hmac htpasswd jks jwt kdbx key keyfile keypair keys keyring keystore keytab kubeconfig macaroon mnemonic "
    "oauth netrc otp p12 pass passcode passphrase passwd password passwords pat pem pfx pgpass pin pincode priv "
    "privkey psk psw pw pwd salt sas secret secrets sessid sessionid token tokens totp webhook webhooks xauthority "
    "xsrf"
)
# Ends of unsplit words: OPENAIKEY, PGPASSWORD, mytoken.
_ENDS = (
    "apikey", "key", "keys", "token", "password", "passwd", "passphrase", "secret", "secrets", "cookie", "credential",
    "credentials", "passcode", "webhook", "netrc", "kubeconfig", "dsn", "jwt", "pwd", "pass", "keystore", "keyfile",
    "connectionstring", "privkey", "creds", "webhookurl", "tokens", "authtoken", "apitoken", "keypath",
    "passfile", "tokenfile", "pw",
)  # fmt: skip
_INSIDE = ("password", "passwd", "passphrase", "secret", "apikey", "accesskey", "privatekey", "credential", "authtoken")
_INNOCENT = words(
    "monkey turkey donkey hockey jockey whiskey mickey hotkey compass bypass surpass overpass underpass trespass"
)
_NO_SECRET = frozenset({"PWD", "OLDPWD", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "GPG_TTY"})
# Words about how many secrets or how long they last; and kinds of keys that are not secret.
_QUANTITY = words(
    "max min num number count limit limits length len size bits budget ttl timeout expiry expires expiration "
    "interval rotation per total used remaining usage context window chunk retries attempts age days hours "
    "minutes seconds"
)
_HARMLESS_KEYS = frozenset({"primary", "foreign", "sort", "partition", "public", "hot", "cache", "index", "group"})


@functools.cache  # compiled on first use, because every command imports this
def _seams() -> re.Pattern[str]:
    return re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")


@functools.lru_cache(maxsize=4096)
def looks_like_one(name: str) -> bool:
    """Return whether a name looks like that of a secret."""
    if name in _NO_SECRET:
        return False
    words = [word.lower() for word in _seams().split(name) if word]
    glued = "".join(words)
    if any(word in _QUANTITY for word in words) and "password" not in glued and "secret" not in glued:
        return False
    for before, word in zip(["", *words], words, strict=False):
        if word in {"key", "keys"} and before in _HARMLESS_KEYS:
            continue
        if word in _SECRET:
            return True
        if word not in _INNOCENT and word.rstrip("s") not in _INNOCENT and word.rstrip("0123456789").endswith(_ENDS):
            return True
    return any(part in glued for part in _INSIDE) or glued.endswith(
        ("connectionstring", "connstr", "connstring", "agentinfo")
    )
