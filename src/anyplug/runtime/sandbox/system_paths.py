"""What every plugin may use of this machine: libraries, interpreters, and the small tools that scripts use.

Library folders are listed one by one. The dynamic loader runs whatever can be read, so reading all of /usr/lib or
/usr/bin would mean executing all of it: `/usr/lib/git-core/git` is a whole git.
"""

import fnmatch
import functools
import glob
import os
import re
import stat
import threading
from collections.abc import Callable, Mapping

import msgspec

from anyplug.runtime.processes.program_search import which
from anyplug.runtime.sandbox.profile import System

PROGRAM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
# With their package managers, as set-up scripts need them: they run under the same rules.
INTERPRETERS = frozenset("sh bash dash zsh env uv uvx node nodejs npm npx".split())  # noqa: SIM905 - as below
VERSION = "0123456789."
VERSIONED = ("python", "perl", "ruby", "pip")  # interpreters whose names may end with a version
# What scripts without permissions call. None of these starts programs that it is not allowed to (the kernel applies the
# same rules to children), reaches a network, or talks to a daemon.
TOOLS = frozenset(
    """
    [ arch awk b2sum base32 base64 basename basenc bc bzcat bzip2 cat chmod chown cksum clear cmp column comm cp csplit
    cut date dc dd df diff diff3 dir dircolors dirname du echo ed egrep expand expr factor false fgrep file find fmt
    fold gawk getconf getopt grep groups gunzip gzip head hexdump hostid hostname iconv id install join jq kill
    ldconfig link ln locale logname ls mawk md5sum mkdir mkfifo mktemp more mv nawk nice nl nohup nproc numfmt od paste
    patch pathchk pgrep pinky pkill pr printenv printf ps ptx pwd readlink realpath rev rg rm rmdir sed seq setsid
    sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split stat stdbuf stty sum sync tac tail tar
    tee test time timeout touch tr tree true truncate tsort tty tput uname unexpand uniq unlink unxz uptime users
    uuidgen vdir wc which whoami xargs xxd xz xzcat yes yq zcat zgrep zstd
    """.split()  # noqa: SIM905 - a list of words is read as words
)
STAND_INS = ("/shims", "/.volta/bin")  # the ends of folders of version managers: pyenv, rbenv, asdf, mise; Volta
CARGO = "/.cargo/bin"
SYSTEM_FOLDERS = ("/usr/", "/bin", "/sbin", "/opt/", "/nix/", "/snap/")
LIBRARY_FOLDERS = (
    "/lib/{triplet}", "/usr/lib/{triplet}", "/usr/local/lib/{triplet}", "/lib64", "/usr/lib64", "/usr/local/lib64",
)  # fmt: skip
# In /lib, /usr/lib and /usr/local/lib themselves: single libraries, and parts of interpreters.
LIBRARIES = ("*.so", "*.so.*", "python*", "perl*", "ruby*", "node_modules", "gconv", "locale", "ssl", "engines*",
             "ossl-modules", "os-release", "terminfo", "mime", "jvm-common", "gcc/*/*/*.so*")  # fmt: skip
LIBRARY_PARENTS = ("/lib", "/usr/lib", "/usr/local/lib")
SHARED = (
    "ca-certificates", "dict", "file", "fontconfig", "fonts", "i18n", "icu", "javascript", "libtool", "locale", "misc",
    "mime", "nodejs", "node_modules", "perl", "perl5", "pki", "python3", "python-wheels", "ruby",
    "rubygems-integration", "terminfo", "unicode", "xml", "zoneinfo", "zoneinfo-icu", "zsh", "awk", "gawk",
    "X11/locale",
)  # fmt: skip
SETTINGS = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version",
    "fonts", "gai.conf", "group", "host.conf", "hostname", "hosts", "inputrc", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "ld-musl-x86_64.path", "ld-musl-aarch64.path", "locale.alias", "locale.conf", "localtime",
    "lsb-release", "machine-info", "magic", "magic.mime", "mime.types", "nsswitch.conf", "os-release", "passwd", "perl",
    "pki/ca-trust/extracted", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf", "protocols", "python3",
    "python3.*",
    "resolv.conf", "services", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
    "zsh",
)  # fmt: skip
RUNTIME_FILES = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/var/lib/gems")
LOADERS = ("/lib*/ld-linux*.so*", "/lib*/ld-musl-*.so*", "/lib/*-linux-*/ld-linux*.so*", "/usr/lib*/ld-linux*.so*")
PREFIX_PARTS = ("lib", "lib64", "pyvenv.cfg", "share/zoneinfo", "share/terminfo", "ssl")
SYSTEM_PREFIXES = frozenset({"/", "/usr", "/usr/local"})
UV_PYTHONS = (".local/share/uv/python", "Library/Application Support/uv/python")
PROGRAM_PARTS = ("/usr/lib/{0}", "/usr/lib/{0}-core", "/usr/libexec/{0}", "/usr/libexec/{0}-core", "/usr/share/{0}",
                 "/usr/share/{0}-core", "/etc/{0}", "/etc/{0}-*", "/etc/{0}config", "/etc/{0}rc",
                 "/etc/{0}.conf")  # fmt: skip
OWN_PLACES = ("/usr/lib/", "/usr/local/", "/opt/")
# What a user installed: folders that these variables name, and where package managers install.
LIBRARY_VARIABLES = ("PYTHONPATH", "NODE_PATH", "PERL5LIB", "PERLLIB", "RUBYLIB", "GEM_HOME", "GEM_PATH",
                     "LD_LIBRARY_PATH")  # fmt: skip
USERS_LIBRARIES = (".local/lib/python*/site-packages", ".local/lib/node_modules", ".local/share/gem", ".gem", "perl5")
# Never as a whole, even if a variable names them: they contain much else.
TOO_WIDE = frozenset({"/", "/bin", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/run", "/sbin", "/srv",
                      "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/local", "/usr/sbin", "/usr/share",
                      "/var", "/var/lib", "/var/tmp"})  # fmt: skip
FOR_ALL = 0o004  # the mode bit for reading by everyone
FOR_ALL_FOLDERS = 0o005

_surveying = threading.Lock()  # plugins that start together need one survey


def survey(search_path: str, bin_folder: str, user: str) -> System:
    """Survey the machine: the user's PATH, our folder of programs, and uv's interpreters.

    Done once, and again when our folder of programs changes: at first there is none.
    """
    try:
        changed = os.stat(bin_folder).st_mtime_ns
    except OSError:
        changed = 0
    with _surveying:
        return _survey(search_path, bin_folder, user, changed)


@functools.lru_cache(maxsize=8)
def _survey(search_path: str, bin_folder: str, user: str, _changed: int) -> System:
    folders = tuple(dict.fromkeys(folder for folder in search_path.split(os.pathsep) if os.path.isabs(folder)))
    programs = [path for folder in (bin_folder, *folders) for path in _programs(folder, _is_interpreter)]
    for parent in UV_PYTHONS:
        programs += glob.glob(os.path.join(user, parent, "*", "bin", "python3*"))
    belongings = _belongings(programs)
    managers = [os.path.dirname(os.path.dirname(path)) for path in programs if _is_stand_in(path)]
    for folder in dict.fromkeys(map(os.path.realpath, PROGRAM_FOLDERS)):
        programs += _programs(folder, lambda name: name in TOOLS or _is_interpreter(name))
    triplet = f"{os.uname().machine}-linux-gnu"
    readable = [folder.format(triplet=triplet) for folder in LIBRARY_FOLDERS]
    for parent, patterns in (
        *((parent, LIBRARIES) for parent in dict.fromkeys(map(os.path.realpath, LIBRARY_PARENTS))),
        ("/usr/share", SHARED),
        ("/usr/local/share", SHARED),
        ("/etc", SETTINGS),
    ):
        readable += _all_matching(parent, patterns)
    loaders = [path for pattern in LOADERS for path in glob.glob(pattern)]
    return System(
        readable=_real([*readable, *RUNTIME_FILES, bin_folder, *belongings]),
        executable=_real([*managers, *programs, *loaders]),
        search_path=folders,
    )


def program_files(name: str, search_path: str = os.defpath) -> tuple[str, ...]:
    """Return the files of one program: itself, and the folders named after it."""
    found = which(name, path=search_path)
    if found is None:
        return ()
    stem, real = os.path.basename(name), os.path.realpath(found)
    named = [path for part in PROGRAM_PARTS for path in _matching("/", part.format(glob.escape(stem)))]
    place = os.path.dirname(os.path.dirname(real))  # a program with its own folder: everything in it belongs to it
    own = [place] if place.startswith(OWN_PLACES) and place not in TOO_WIDE else []
    return tuple(dict.fromkeys([real, *_real([*named, *own, *_belongings([real])])]))


def libraries(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders in which interpreters look for modules that the user installed, given these variables."""
    user = variables.get("HOME", "")
    named = [path for name in LIBRARY_VARIABLES for path in variables.get(name, "").split(os.pathsep)]
    found = [os.path.realpath(path) for path in named if os.path.isabs(path)]
    if os.path.isabs(user):
        found += [path for pattern in USERS_LIBRARIES for path in glob.glob(os.path.join(user, pattern))]
    return tuple(path for path in found if path not in TOO_WIDE and not f"{user}/".startswith(f"{path}/"))


def for_every_program(found: System) -> System:
    """Add what plugins need that may run all programs: settings, and the targets of links in the PATH."""
    with _surveying:
        return msgspec.structs.replace(found, settings=settings(), linked=_linked(found.search_path))


@functools.cache
def settings(folder: str = "/etc") -> tuple[str, ...]:
    """Return the machine's settings that everyone may read, by folder if that is all in it."""
    found, is_whole = _public(folder)
    return (folder,) if is_whole else tuple(found)


@functools.cache
def _linked(folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the programs that links in these folders lead to, with what is installed around them.

    That covers nvm's npm, and what pipx and uv install; rustup's programs start others in its own folder.
    """
    found = []
    for folder in folders:
        for path in _programs(folder, lambda _: True) if not folder.startswith(SYSTEM_FOLDERS) else ():
            if os.path.islink(path):
                target = os.path.realpath(path)
                found += [target, *_belongings([target])]
        if folder.endswith(CARGO):
            found.append(os.path.join(folder.removesuffix(CARGO), ".rustup", "toolchains"))
    return _real(found)


def _public(folder: str) -> tuple[list[str], bool]:
    """List what everyone may read in a folder, and whether that is everything. Links lead to what has its own rules."""
    found, is_whole = [], True
    try:
        with os.scandir(folder) as entries:
            listed = [(entry, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
    except OSError:  # not readable, or just changed
        return [], False
    for entry, mode in sorted(listed, key=lambda pair: pair[0].name):
        if entry.is_dir(follow_symlinks=False):
            inside, is_open = _public(entry.path) if mode & FOR_ALL_FOLDERS == FOR_ALL_FOLDERS else ([], False)
            found += [entry.path] if is_open else inside
            is_whole = is_whole and is_open
        elif entry.is_file(follow_symlinks=False):
            found += [entry.path] if mode & FOR_ALL else []
            is_whole = is_whole and bool(mode & FOR_ALL)
    return found, is_whole


def _is_interpreter(name: str) -> bool:
    return name in INTERPRETERS or (name.startswith(VERSIONED) and name.rstrip(VERSION) in VERSIONED)


def _programs(folder: str, is_wanted: Callable[[str], bool]) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder) if is_wanted(name)]
    except OSError:
        return []


def _is_stand_in(interpreter: str) -> bool:
    """Return whether it only selects an interpreter, as in pyenv, rbenv and asdf, and needs its whole folder."""
    return os.path.dirname(interpreter).endswith(STAND_INS)


def _belongings(interpreters: list[str]) -> list[str]:
    """Return what interpreters outside the system's folders read, where they are and where they are linked from."""
    links = [path for path in interpreters if os.path.islink(path)]
    folders = dict.fromkeys(map(os.path.dirname, (*interpreters, *map(os.path.realpath, links))))
    folders |= dict.fromkeys(map(os.path.realpath, list(folders)))
    prefixes = dict.fromkeys(os.path.dirname(folder) for folder in folders if os.path.basename(folder) == "bin")
    return [os.path.join(prefix, part) for prefix in prefixes if prefix not in SYSTEM_PREFIXES for part in PREFIX_PARTS]


def _all_matching(parent: str, patterns: tuple[str, ...]) -> list[str]:
    """Return what matches any of some patterns; a folder is listed once for all that are about its own entries."""
    single = [pattern for pattern in patterns if "*" in pattern and "/" not in pattern]
    is_named = re.compile("|".join(map(fnmatch.translate, single))).match if single else None
    found = _programs(parent, lambda name: is_named(name) is not None and name[0] != ".") if is_named else []
    return found + [path for pattern in patterns if pattern not in single for path in _matching(parent, pattern)]


def _matching(parent: str, pattern: str) -> list[str]:
    path = os.path.join(parent, pattern)
    return glob.glob(path) if "*" in pattern else [path]


def _real(paths: list[str]) -> tuple[str, ...]:
    """Resolve links, and drop what is missing or inside another of the folders."""
    folder_of = functools.cache(os.path.realpath)  # many are in the same folder
    found: dict[str, None] = {}
    for path in dict.fromkeys(paths):
        try:
            mode = os.lstat(path).st_mode
        except OSError:  # it is missing
            continue
        folder, name = os.path.split(path)
        if stat.S_ISLNK(mode) or name in {"", ".", ".."}:
            target = os.path.realpath(path)
            if os.path.exists(target):
                found[target] = None
        else:
            found[os.path.join(folder_of(folder), name)] = None
    outer = ""
    for path in sorted(found, key=lambda path: path.replace("/", "\0")):  # each before what is inside it
        if outer and path.startswith(f"{outer}/"):
            del found[path]
        else:
            outer = path
    return tuple(found)
