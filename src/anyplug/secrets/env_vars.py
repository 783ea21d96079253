"""Divide the user's environment into what a plugin may see (known or plainly harmless variables) and what is withheld.

The name decides first (`secret_names`), then the value: a number, a switch, a locale, a version, paths, a host, a URL
without user, query or token, options, plain words. A word is plain if a person could have chosen it; unordered runs of
letters and digits look like generated keys.
"""

import os
import re
from collections.abc import Mapping, Sequence

import msgspec

from anyplug.model.late_patterns import late
from anyplug.secrets import secret_names

# Shapes that only secrets have, whatever their variable is called.
_SECRET_VALUE = late(
    r"^(?:sk-|sk_|rk_|pk_live_|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|xapp-|AKIA|ASIA|AIza|ya29\.|npm_|pypi-|hf_"
    r"|SG\.|shp[a-z]{2}_|dop_v1_|dckr_pat_|whsec_|lin_api_|figd_|nvapi-|gsk_|r8_|tskey-|hvs\.|AGE-SECRET-KEY-)"
    r"|^eyJ[\w-]{8,}\.[\w-]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|^\w[\w+.-]*://[^/\s@]*:[^/\s@]+@"
)
# Texts that contain a secret: connection strings, headers, options, scott/tiger@database.
_SECRET_INSIDE = late(
    r"^(?i:bearer|basic|token|digest|negotiate) \S|://[^/\s@]*:[^/\s@]+@|^[^/\s:@]+[/:][^/\s:@]+@[\w.-]+$"
    r"|(?i:(?:accountkey|sharedaccess(?:key|signature)|password|passwd|\bpwd|secret|\btoken|api_?key|\bsig|user id)"
    r"[\"']?\s*[=:]\s*[^\s,;]{3})"
)
# A secret inside a longer text: after an equals sign, a colon or a space, as in `--header=Authorization: Bearer x`.
_SECRET_PART = late(
    r"(?i:\b(?:bearer|basic)\s+)(\S+)|(?:^|[=:\s])((?:sk-|sk_live_|ghp_|gho_|github_pat_|glpat-|xox[abprs]-|hf_)\S+)"
)
_REFERENCE = late(r"\$\{[^}]*\}")
SHOWN_SECRET = "********"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"

LONGEST_WORDS = 64  # characters of plain words
LONGEST_VALUE = 4096  # characters of options and lists of paths
RANDOM_FROM = 8  # minimum length at which a word can be recognised as generated
LONG_KEY = 20  # length of a key that contains other characters
MANY_LETTERS, FEW_SEAMS = 15, 3  # letters of a long word, and its case or digit changes if it has digits
SPEAKABLE_FROM = 10  # minimum number of letters to judge whether they form words
FEWEST_USUAL, FEWEST_OF_MANY = 0.4, 0.48  # minimum share of common letter pairs; random letters have about a quarter
LONGEST_RUN = 40  # letters that a person writes without a separator
LONGEST_NUMBER = 15  # digits

NAMED_SECRET = "it is named like a secret"
SHAPED_SECRET = "its value looks like a secret"
FILE_OF_KEYS = "it is the path of a key file"
NOT_PLAIN = "its value is not plainly harmless"
LOADS_CODE = "programs load code from what it names, which others may write to"

# Variables that programs need and that are not secret, whatever their value looks like.
_HARMLESS = secret_names.words(
    "PATH HOME USER LOGNAME USERNAME SHELL TERM TZ EDITOR VISUAL PAGER BROWSER LANG LANGUAGE DISPLAY "
    "WAYLAND_DISPLAY PWD OLDPWD SHLVL HOSTNAME HOST HOSTTYPE OSTYPE MACHTYPE TMPDIR TEMP TMP MAIL MANPATH "
    "INFOPATH COLUMNS LINES _ LS_COLORS LSCOLORS GREP_COLORS GREP_COLOR JQ_COLORS EZA_COLORS EXA_COLORS "
    "GCC_COLORS LESS LESSOPEN LESSCLOSE LESSHISTFILE PS1 PS2 PS4 PROMPT PROMPT_COMMAND HISTSIZE HISTFILE "
    "HISTFILESIZE HISTCONTROL HISTTIMEFORMAT JAVA_HOME JDK_HOME JAVA_OPTS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS "
    "MAVEN_OPTS GRADLE_OPTS CLASSPATH GOPATH GOROOT GOBIN GOFLAGS GOPROXY GONOSUMDB GOPRIVATE GOOS GOARCH "
    "PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONHASHSEED VIRTUAL_ENV VIRTUAL_ENV_PROMPT NODE_OPTIONS NODE_PATH "
    "NODE_EXTRA_CA_CERTS NVM_BIN NVM_DIR RUSTFLAGS CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAKEFLAGS PKG_CONFIG_PATH "
    "LD_LIBRARY_PATH DYLD_LIBRARY_PATH CC CXX FZF_DEFAULT_OPTS FZF_DEFAULT_COMMAND RIPGREP_CONFIG_PATH "
    "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE HTTP_PROXY HTTPS_PROXY FTP_PROXY ALL_PROXY "
    "NO_PROXY http_proxy https_proxy ftp_proxy all_proxy no_proxy SSH_CONNECTION SSH_CLIENT SSH_TTY GPG_TTY "
    "TERM_SESSION_ID ITERM_SESSION_ID TERM_PROGRAM TERM_PROGRAM_VERSION LaunchInstanceID SECURITYSESSIONID "
    "Apple_PubSub_Socket_Render __CF_USER_TEXT_ENCODING DBUS_SESSION_BUS_ADDRESS SESSION_MANAGER "
    "GNOME_TERMINAL_SCREEN GNOME_TERMINAL_SERVICE WINDOWID KONSOLE_DBUS_SESSION INVOCATION_ID JOURNAL_STREAM TMUX "
    "TMUX_PANE STY WEZTERM_UNIX_SOCKET KITTY_WINDOW_ID KITTY_PUBLIC_KEY ALACRITTY_SOCKET VSCODE_GIT_IPC_HANDLE "
    "VSCODE_IPC_HOOK_CLI VSCODE_GIT_ASKPASS_NODE VSCODE_GIT_ASKPASS_MAIN VSCODE_GIT_ASKPASS_EXTRA_ARGS "
    "GIT_ASKPASS SSH_ASKPASS SSH_ASKPASS_REQUIRE SUDO_ASKPASS STARSHIP_SESSION_KEY ZELLIJ_SESSION_NAME WT_SESSION "
    "WSLENV"
)
_HARMLESS_FAMILIES = ("LC_", "XDG_")
# Interpreters and loaders take code from what these name, which is harmless only where no plugin can write.
_LOADING = secret_names.words(
    "PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV NODE_PATH NODE_OPTIONS PERL5LIB PERL5OPT RUBYLIB RUBYOPT GEM_PATH "
    "GEM_HOME LUA_PATH LUA_CPATH CLASSPATH JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS LD_LIBRARY_PATH LD_PRELOAD "
    "DYLD_LIBRARY_PATH DYLD_INSERT_LIBRARIES BASH_ENV ENV PERLLIB PYTHONUSERBASE JULIA_LOAD_PATH JULIA_PROJECT "
    "TCLLIBPATH GUILE_LOAD_PATH GUILE_LOAD_COMPILED_PATH R_LIBS R_LIBS_USER R_LIBS_SITE R_PROFILE R_PROFILE_USER "
    "R_ENVIRON R_ENVIRON_USER PHPRC PHP_INI_SCAN_DIR BUNDLE_GEMFILE BUNDLE_PATH DOTNET_STARTUP_HOOKS "
    "DOTNET_ADDITIONAL_DEPS ERL_LIBS MIX_ARCHIVES UV_ENV_FILE PIP_CONFIG_FILE OPENSSL_CONF OPENSSL_MODULES "
    "MAVEN_OPTS JAVA_OPTS npm_config_node_options npm_config_script_shell npm_config_userconfig "
    "npm_config_globalconfig TS_NODE_PROJECT TSX_TSCONFIG_PATH ESBUILD_BINARY_PATH RUSTC_WRAPPER "
    "RUSTC_WORKSPACE_WRAPPER CARGO_BUILD_RUSTC_WRAPPER GIT_EXEC_PATH GIT_TEMPLATE_DIR"
)
_OF_THE_SYSTEM = ("/usr/", "/opt/", "/nix/", "/lib/", "/lib64/", "/etc/", "/snap/", "/Library/", "/System/")
# A commit or build number: not a word, but not secret.
_IDENTIFIER = late(
    r"(?:^|_)(?:SHA|SHA256|COMMIT|REVISION|REV|DIGEST|CHECKSUM|REF|HEAD|BUILD|TAG)(?:_|$)"
    r"|(?:^|_)(?:BUILD|RUN|JOB|PIPELINE|WORKFLOW|MACHINE|BOOT|TRACE|REQUEST|TENANT|SUBSCRIPTION|PROJECT|ACCOUNT|ORG|INSTANCE"
    r"|NODE|POD|CONTAINER|IMAGE|DEVICE|PANE|WINDOW|SURFACE|TASK)_?U?ID$|^HOSTNAME$",
    re.IGNORECASE,
)
_HEX = late(r"[0-9a-fA-F]{7,64}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LONG_HEX = late(r"[0-9a-fA-F]{32,}")  # which only one of the known variables has: INVOCATION_ID of systemd
# Files that contain credentials.
_KEY_FILE = late(
    r"(?i)(?:^|/)(?:\.ssh|\.gnupg|\.aws|\.azure|\.kube|gcloud|\.password-store|secrets?|keys?)(?:/|$)"
    r"|(?:^|/)[._]?(?:netrc|pgpass|my\.cnf|npmrc|pypirc|git-credentials|credentials?|htpasswd|id_(?:rsa|dsa|ecdsa|ed25519)|kubeconfig)(?:\.\w+)?$"
    r"|\.(?:pem|key|p12|pfx|jks|keystore|keytab|kdbx|asc|gpg|ppk|ovpn|p8)$|(?:service|sa)[-_]?account|docker/config\.json|cookie|agent\.\d+$"
)
# The letter pairs that make up most words in European languages.
_PAIRS = secret_names.words(
    "th he in er an re nd on en at ou ed ha to or it is hi es ng st ar te se me le ea al de ve nt ra ri ro ic ne "
    "ti co io ll be ma si om ur ca el ta la ns di fo ho pe ec pr no ct us ac ot il tr ly nc et ut ss so rs un lo "
    "wa ge ie wh ee wi em ad ol rt po we na ul ni ts mo ow pa im mi ai sh ir su id os iv ia am fi ci vi pl ig tu "
    "ev ld ry mp fe bl ab gh ty op wo sa ay ex ke fr oo av ag if ap gr od bo sp rd do uc bu ei ov by rm ep tt oc "
    "fa ef cu rn sc gi da yo cr cl du ga qu ue ff ba ck mb ux ub db"
)
_SWITCH = secret_names.words("true false yes no on off y n t f always never auto none null default enabled disabled")
_NUMBER = late(rf"[+-]?(?:0x[0-9a-fA-F]{{1,8}}|\d{{1,{LONGEST_NUMBER}}}(?:\.\d{{1,9}})?)(?:%|[a-zA-Z]{{1,3}})?")
_VERSION = late(r"[vV^~>=<]{0,2}\d{1,8}(?:\.\d{1,8}){1,4}(?:[-+.][A-Za-z]{1,12}[.\d]{0,8}){0,2}")
_LOCALE = late(r"[a-z]{2,3}(?:[_-][A-Za-z]{2,4})?(?:\.[A-Za-z0-9-]{3,12})?(?:@[a-z]+)?")
_URL = late(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s?#@]*(?:/[^\s?#]*)?")
_SEPARATORS = late(r"[\s,;:=|()\[\]<>\"'{}]+")
_PLAIN = late(r"[\w.+@%~/\\*-]*", re.ASCII)
_PADDED = late(r"[A-Za-z0-9+/_-]{8,}={1,2}$")  # base64
_IN_NIX = late(r"/nix/store/[a-z0-9]{32}-")
_SENTENCE = late(r"[^\W_]+(?:['\u2019-][^\W_]+)*[.,;:!?\u2026]*|[&+/|-]")  # a word of a sentence, in any script


class Environment(msgspec.Struct, frozen=True):
    """The variables that a plugin gets, and those that are withheld, with the reason for each."""

    given: dict[str, str]
    withheld: dict[str, str]


def looks_secret(name: str, value: str) -> bool:
    """Return whether a value is a secret by its name or its shape; switches and counts are not."""
    if not value or value.lower() in _SWITCH:
        return False
    return secret_names.looks_like_one(name) or bool(_SECRET_VALUE.search(value))


def is_masked(name: str, value: str) -> bool:
    """Return whether a value intended for a plugin is masked: it is a secret, contains one, or looks generated."""
    return looks_secret(name, value) or bool(_SECRET_INSIDE.search(value)) or _has_key(value)


def divide(variables: Mapping[str, str], granted: frozenset[str], *, inherits: bool = False) -> Environment:
    """Divide an environment into what a plugin gets and what is withheld.

    `granted` are names that a person granted; `inherits` passes everything that does not look like a secret.
    """
    given: dict[str, str] = {}
    withheld: dict[str, str] = {}
    for name, value in sorted(variables.items()):
        why = "" if name in granted else reason(name, value)
        if why and not (inherits and why == NOT_PLAIN and not _has_key(value)):
            withheld[name] = why
        else:
            given[name] = value
    return Environment(given, withheld)


def reason(name: str, value: str) -> str:
    """Return why a variable is withheld; empty if it is known or plainly harmless."""
    if not value:
        return ""
    if name in _LOADING and _names_other_places(value):
        return LOADS_CODE
    if _SECRET_VALUE.search(value) or _SECRET_INSIDE.search(value):
        return SHAPED_SECRET
    if name in _HARMLESS and name != "INVOCATION_ID" and _LONG_HEX.fullmatch(value):
        return SHAPED_SECRET
    if name in _HARMLESS:
        return NOT_PLAIN if "://" in value and not all(map(_is_plain_url, _urls(value))) else ""
    if name.startswith(_HARMLESS_FAMILIES) and not secret_names.looks_like_one(name):
        return "" if _is_harmless(value) else NOT_PLAIN
    if secret_names.looks_like_one(name) and value.lower() not in {"true", "false", "0", "1"}:
        return NAMED_SECRET
    if _IDENTIFIER.search(name) and _HEX.fullmatch(value.strip("{}")):
        return ""
    if "/" in value and _KEY_FILE.search(value):
        return FILE_OF_KEYS
    return "" if _is_harmless(value) else NOT_PLAIN


def _names_other_places(value: str) -> bool:
    """Return whether anything in a value may be a path outside the system's folders, or relative to any folder."""
    parts = [part for part in re.split(r"[:;\s=,]+", value) if part]
    joined = [part[2:] for part in parts if part.startswith("-") and ("/" in part or part[2:3] == ".")]  # -I/path, -r.
    parts = [part for part in parts if not part.startswith("-")] + joined
    return any(not f"{part}/".startswith(_OF_THE_SYSTEM) for part in parts if not part.isdigit())


def _is_harmless(value: str) -> bool:
    """Return whether a value is plainly harmless, whatever its name."""
    value = value.strip()
    if len(value) > LONGEST_VALUE or not value.isprintable() or _PADDED.search(value):
        return False
    if _is_atom(value):
        return True
    words = value.split()
    if len(value) <= LONGEST_WORDS and len(words) > 1 and all(map(_is_spoken, words)):
        return True
    return all(map(_is_option, words)) and (len(value) <= LONGEST_WORDS or _has_structure(words))


def _has_structure(words: list[str]) -> bool:
    """Return whether a long value is a command line or a list of paths, rather than a long text."""
    return len(words) == 1 or any(word.startswith(("-", "/")) for word in words)


def _is_spoken(word: str) -> bool:
    """Return whether it is a word of a sentence."""
    return bool(_SENTENCE.fullmatch(word)) and not _is_random(word.strip(".,;:!?'"))


def _is_option(word: str) -> bool:
    """Return whether a word of a command line is harmless: a path, an address, or names and plain values."""
    if _is_atom(word):
        return True
    name, equals, value = word.partition("=")
    if equals and (secret_names.looks_like_one(name.lstrip("-")) or not value.isprintable()):
        return False
    if "://" in word:
        return (not equals or _is_plain(name.lstrip("-"))) and _is_plain_url(value if equals else word)
    return all(_is_atom(part) or _is_plain(part) for part in _SEPARATORS.split(word) if part)


def _is_atom(text: str) -> bool:
    """Return whether a text is a single harmless value: a number, switch, version, locale, paths, host or URL."""
    if text.lower() in _SWITCH or _NUMBER.fullmatch(text) or _VERSION.fullmatch(text) or _LOCALE.fullmatch(text):
        return True
    if "://" in text:
        return all(map(_is_plain_url, _urls(text)))
    if text.startswith(("/", "~/", "./", "../", "$")):
        return all(map(_is_plain_path, filter(None, text.split(":"))))
    return _is_plain(text)


def _urls(text: str) -> list[str]:
    return [part for part in re.split(r"[\s,|]+", text) if "://" in part]


def _is_plain_url(url: str) -> bool:
    if not _URL.fullmatch(url):
        return False
    scheme, _, rest = url.partition("://")
    host, *segments = rest.split("/")
    name = host.rpartition(":")[0] or host
    return (
        _is_plain(scheme)
        and all(not _is_random(label) for label in name.split("."))
        and not any(map(_is_random, segments))
    )


def _is_plain_path(path: str) -> bool:
    if _KEY_FILE.search(path):
        return False
    if not any(map(_is_random, _IN_NIX.sub("/", path).split("/"))):
        return True
    # Existing paths are not secret; the last name in an existing folder may be created later.
    parent, _, name = path.rstrip("/").rpartition("/")
    return os.path.exists(path) or (not _is_random(name) and bool(parent) and os.path.isdir(parent))


def _is_plain(word: str) -> bool:
    """Return whether a word has only characters that names have, and was not generated."""
    return bool(_PLAIN.fullmatch(word)) and not _is_random(word) and not _KEY_FILE.search(word)


def _has_key(value: str) -> bool:
    """Return whether any part of a value looks generated."""
    return any(map(_is_random, re.split(r"[\s,;:=|()\[\]<>\"'{}/?&#@]+", value)))


def _is_random(word: str) -> bool:
    """Return whether a word looks generated: an unusual mix of digits and letters, or a typical password."""
    if all(re.search(kind, word) for kind in ("[a-z]", "[A-Z]", "[0-9]", "[@!#$%^&*+]")):
        return True
    joined = re.sub(r"[-_+=/.]", "", word)  # base64 characters, too
    return any(map(_is_random_run, re.split(r"[._@%~/\\*+-]+", word))) or (
        len(joined) >= LONG_KEY and bool(re.search("[0-9]", joined)) and _seams(joined) * 4 >= len(joined)
    )


def _is_random_run(run: str) -> bool:
    """Return whether an unbroken run of letters and digits looks generated."""
    if len(run) < RANDOM_FROM or not run.isascii():
        return False
    if run.isdecimal():
        return len(run) > LONGEST_NUMBER
    seams = _seams(run)
    if re.fullmatch(r"(?=\D*\d)(?=\d*\D)[0-9a-fA-F]{12,}", run) or seams * 4 >= len(run):
        return True
    if len(run) >= MANY_LETTERS and seams >= FEW_SEAMS and re.search("[0-9]", run):
        return True
    letters = re.sub("[^a-z]", "", run.lower())
    if len(letters) < SPEAKABLE_FROM:
        return False
    usual = sum(letters[place : place + 2] in _PAIRS for place in range(len(letters) - 1))
    fewest = FEWEST_USUAL if len(letters) < MANY_LETTERS else FEWEST_OF_MANY
    return usual < fewest * (len(letters) - 1) or len(letters) > LONGEST_RUN


def _seams(run: str) -> int:
    """Count the changes between lower case, upper case and digits, except for a capital that starts a word."""
    kinds = re.sub(r"[A-Z](?=[a-z]{2})", "a", run)
    return len(re.findall(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[a-z0-9])|(?<=[0-9])(?=[a-zA-Z])", kinds))


def masked_words(words: Sequence[str]) -> list[str]:
    """Return a command line's words for display, with secrets masked."""
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
    """Return variables for display, with secret values masked."""
    return {
        name: masked(value) if looks_secret(name, value) else masked_text(value)
        for name, value in sorted(variables.items())
    }


def masked_url(url: str) -> str:
    """Return a URL for display, without its password and query values."""
    address, mark, query = url.partition("?")
    scheme, slashes, rest = address.partition("://")
    authority, slash, path = rest.partition("/")
    if "@" in authority:
        authority = f"{SHOWN_SECRET}@{authority.rpartition('@')[2]}"
    names = "&".join(f"{name}={masked(value)}" if value else name for name, _, value in _pairs(query))
    return f"{scheme}{slashes}{authority}{slash}{path}{mark}{names}"


def masked_text(text: str) -> str:
    """Return a text without the parts that look like a secret."""
    if _SECRET_VALUE.search(text):
        return SHOWN_SECRET
    return _SECRET_PART.sub(lambda found: found[0].replace(found[1] or found[2], SHOWN_SECRET), text)


def masked(value: str) -> str:
    """Mask a value, except for a plain reference to a variable."""
    return value if _REFERENCE.fullmatch(value) else SHOWN_SECRET


def _pairs(query: str) -> list[tuple[str, str, str]]:
    return [pair.partition("=") for pair in query.split("&")] if query else []


def _as_name(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def certificates(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables through which programs find the machine's certificates."""
    # Node bundles its own certificates and must be told about those that a person added.
    given = {name: variables[name] for name in ("NODE_EXTRA_CA_CERTS",) if variables.get(name)}
    bundle = variables.get("SSL_CERT_FILE") or (CERTIFICATES if os.path.exists(CERTIFICATES) else "")
    if not bundle:
        return given
    return given | {"SSL_CERT_FILE": bundle, "REQUESTS_CA_BUNDLE": variables.get("REQUESTS_CA_BUNDLE") or bundle}
