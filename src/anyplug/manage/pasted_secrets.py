"""Take the secrets out of a pasted server, and write the references of other clients as ours.

    "Authorization: Bearer sk-..."     ->  Authorization: Bearer ${NAME_TOKEN}
    postgresql://ada:secret@host/db    ->  postgresql://ada:${NAME_PASSWORD}@host/db
    ${input:api-key}  {env:API_KEY}  $API_KEY  ${{ secrets.API_KEY }}  ->  ${API_KEY}

Pure. A placeholder, such as `<your key>`, becomes a reference without a value.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from anyplug.manage.bundles.foreign_bundle import variable
from anyplug.secrets import env_vars

HEADER_OPTIONS: Final = frozenset({"--header", "-H"})
VARIABLE_OPTIONS: Final = frozenset({"-e", "--env"})  # of containers: NAME=value

_PLACEHOLDER = re.compile(
    r"<[^>]*>|\[[^]]*\]|x{3,}|\.{3}|\*{3,}|.*(?:your|changeme|replace|placeholder|here\b).*", re.IGNORECASE
)
_SLOT = re.compile(r"<[^<>]+>")  # a placeholder whatever it stands for
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_OF_OPENCODE = re.compile(r"(?<!\$)\{env:([A-Za-z_]\w*)\}")
_OF_CONTINUE = re.compile(r"\$\{\{\s*(?:secrets|inputs)\.([A-Za-z_]\w*)\s*\}\}")
_OF_A_SHELL = re.compile(r"\$([A-Za-z_]\w*)|%([A-Za-z_]\w*)%")
_ASKED = re.compile(r"\$\{(?:input|promptString):([^}]+)\}")  # VS Code asks for it
_FROM_A_FILE = re.compile(r"\{file:[^}]*\}")
_HEADER = re.compile(r"(?i:authorization|[\w-]*(?:key|token|secret|auth)):\s*\S.*|[A-Za-z][\w-]*:\s+\S.*", re.DOTALL)
_WITH_PASSWORD = re.compile(r"(\w[\w+.-]*://[^/\s@:]*:)([^/\s@]+)(@.*)", re.DOTALL)
_SIGN = re.compile(r"[^A-Za-z0-9]+")

Kept = Callable[[str, str], str]  # a variable and a value, to the value or a reference to the variable


def taken_out(entry: Mapping[str, Any], name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a server's entry without secrets, and these by the variables that it refers to instead."""
    secrets: dict[str, str] = {}

    def kept(wanted: str, value: str) -> str:
        if (named := _OF_A_SHELL.fullmatch(value)) is not None:
            return f"${{{named[1] or named[2]}}}"
        if any(form.fullmatch(value) for form in (_ASKED, _FROM_A_FILE, _SLOT)):
            return f"${{{wanted}}}"
        if not value or _REFERENCE.search(value) or not env_vars.looks_secret(wanted, value):
            return value
        if _PLACEHOLDER.fullmatch(value):
            return f"${{{wanted}}}"
        return f"${{{_keep(secrets, wanted, value)}}}"

    changed = {field: _in_our_words(value) for field, value in entry.items()}
    if isinstance(env := changed["env"], dict):
        changed["env"] = {key: kept(key, text) for key, text in env.items()}
    if isinstance(headers := changed["headers"], dict):
        changed["headers"] = {key: _header(name, key, text, kept) for key, text in headers.items()}
    if isinstance(args := changed["args"], list):
        changed["args"] = _arguments(name, [str(word) for word in args], kept)
    if isinstance(url := changed["url"], str):
        changed["url"] = _address(name, url, kept)
    return {field: _with_answers(value) for field, value in changed.items()}, secrets


def _keep(secrets: dict[str, str], wanted: str, value: str) -> str:
    """Store a secret under the wanted variable, or the next one that is free; return which."""
    names = (wanted if number == 1 else f"{wanted}_{number}" for number in range(1, len(secrets) + 2))
    name = next(name for name in names if secrets.get(name, value) == value)
    secrets[name] = value
    return name


def _header(name: str, key: str, text: Any, kept: Kept) -> Any:
    """Return a header without its token; the word before it, such as `Bearer`, stays."""
    if not isinstance(text, str):
        return text
    scheme, space, token = text.rpartition(" ")
    return f"{scheme}{space}{kept(_named(name, 'token' if key.lower() == 'authorization' else key), token)}"


def _arguments(name: str, words: Sequence[str], kept: Kept) -> list[str]:
    """Return arguments without secrets: values of options and variables, headers, addresses, and known shapes."""
    changed, before = [], ""
    for word in words:
        option, equals, value = word.partition("=")
        if equals and (option.startswith("-") or before in VARIABLE_OPTIONS):
            changed.append(f"{option}={_value(name, option, value, kept)}")
        else:
            is_value = before.startswith("-") and before != "--" and not word.startswith("-")
            changed.append(_value(name, before if is_value else "", word, kept))
        before = word
    return changed


def _value(name: str, option: str, word: str, kept: Kept) -> str:
    """Return what an option gets, or an argument without one."""
    if "://" in word and " " not in word:
        return _address(name, word, kept)
    if option in HEADER_OPTIONS or _HEADER.fullmatch(word):
        key, colon, text = word.partition(":")
        blank = text[: len(text) - len(text.lstrip())]
        return f"{key}{colon}{blank}{_header(name, key, text.lstrip(), kept)}"
    return kept(_named("", option) or _named(name, "secret"), word) if option or _is_shaped(word) else word


def _is_shaped(word: str) -> bool:
    return env_vars.looks_secret("", word)


def _address(name: str, url: str, kept: Kept) -> str:
    """Return an address without its password and the secrets in its query."""
    if found := _WITH_PASSWORD.fullmatch(url):
        password = kept(_named(name, "password"), found[2])
        url = f"{found[1]}{password}{found[3]}"
    base, mark, query = url.partition("?")
    if not mark:
        return url
    parts = (part.partition("=") for part in query.split("&"))
    return f"{base}?" + "&".join(f"{key}{equals}{kept(_named(name, key), text)}" for key, equals, text in parts)


def _in_our_words(value: Any) -> Any:
    """Write references that other clients define as `${NAME}`."""
    if isinstance(value, str):
        return _OF_CONTINUE.sub(r"${\1}", _OF_OPENCODE.sub(r"${\1}", value))
    if isinstance(value, list):
        return [_in_our_words(item) for item in value]
    return {key: _in_our_words(item) for key, item in value.items()} if isinstance(value, dict) else value


def _with_answers(value: Any) -> Any:
    """Refer to a variable wherever a client would ask the person in the middle of a text."""
    if isinstance(value, str):
        return _ASKED.sub(lambda found: f"${{{variable(found[1])}}}", value)
    if isinstance(value, list):
        return [_with_answers(item) for item in value]
    return {key: _with_answers(item) for key, item in value.items()} if isinstance(value, dict) else value


def _named(name: str, key: str) -> str:
    return _SIGN.sub("_", f"{name}_{key.lstrip('-')}" if name else key.lstrip("-")).strip("_").upper()
