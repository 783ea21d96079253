"""Fetch a plugin's source into a staging folder: a folder, a git repository, an archive, or a pasted configuration.

Nothing of it runs: no hooks, no submodules, no filters of the repository's own. `.git`, caches and virtual environments
are left out, and so is a `config.json`: values are the user's, never an author's.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from anyplug.catalog import wrong_folder
from anyplug.home import untrusted_files
from anyplug.home.untrusted_files import Budget, HeldFolder, TooMuch
from anyplug.manage import archive_downloads, zip_sources
from anyplug.manage.zip_sources import UNPACKED, is_archive_name
from anyplug.model.errors import InstallError

GIT_S = 300.0  # for one git command
SCHEMES = ("https://", "http://", "git://", "ssh://", "file://", "git@")
PROTOCOLS = "https:http:git:ssh:file"
LEFT_BEHIND = frozenset({".git", "__pycache__", ".venv", "venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"})
NEVER_TAKEN = frozenset({".git", "__pycache__"})
MODULES = frozenset({".venv", "venv", "node_modules"})  # what a program needs and git does not have
ENVIRONMENT = "pyvenv.cfg"  # makes a folder a virtual environment
CONFIG = "config.json"
# Variables for access to repositories; GIT_DIR and the like would point git at another one.
GIT_KEPT = frozenset({"GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GIT_PROXY_COMMAND",
                      "GIT_SSL_CAINFO", "GIT_SSL_NO_VERIFY", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM",
                      "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"})  # fmt: skip

# No hook and no monitor runs, and a local repository can be read even if another user owns it.
SAFELY = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "safe.directory=*")
NO_CONFIGURATION = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
                    "GIT_ATTR_NOSYSTEM": "1", "XDG_CONFIG_HOME": os.devnull}  # fmt: skip

# In a staging folder, next to the plugin's own name: no plugin's name begins with a dot.
CHECKOUT = ".checkout"
COPY = ".copy"
ARCHIVE = ".archive"  # an unpacked one
DOWNLOAD = ".download"  # how the name of a fetched archive begins; its end tells the kind
PASTED = ".pasted"  # has a folder for a configuration that was pasted
EMPTY = ".empty"  # an empty repository, to evaluate .gitignore files

_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")
_SHORT_COMMIT = re.compile(r"[0-9a-f]{4,39}")


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the user named: where, which version, which folder or which plugin in it."""

    location: str  # for a pasted configuration: how it is shown
    ref: str = ""
    subdir: str = ""
    part: str = ""  # the name of one of its plugins, where a marketplace lists them
    servers: str = ""  # a configuration of MCP servers that was pasted, as JSON, with references for secrets
    name: str = ""  # the name of the pasted plugin

    @property
    def is_archive(self) -> bool:
        """Whether it is an archive, here or at an address."""
        if self.servers:
            return False
        if self.location.startswith(("https://", "http://")):
            return is_archive_name(urlsplit(self.location).path)
        return not self.is_address and is_archive_name(self.location) and os.path.isfile(self.lasting_location)

    @property
    def is_git(self) -> bool:
        """Whether git must fetch it. A working tree is copied as it is, unless a version of it is requested."""
        if self.servers or self.is_archive:
            return False
        return self.is_address or _is_bare_repository(self.location) or bool(self.ref and _is_checkout(self.location))

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine already."""
        return bool(self.servers) or not (self.is_git or self.is_address)

    @property
    def is_zip(self) -> bool:
        """Whether it was an uploaded archive, which was unpacked into a folder that is gone since."""
        return not self.is_address and any(part.startswith(UNPACKED) for part in self.location.split(os.sep))

    @property
    def lasting_location(self) -> str:
        """The location, independent of the current folder."""
        is_whole = self.is_address or self.servers
        return self.location if is_whole else os.path.abspath(os.path.expanduser(self.location))

    @property
    def folder_name(self) -> str:
        """The name of the folder: a plugin's name if its format defines no other."""
        if self.name:
            return self.name
        inside = os.path.normpath(self.subdir) if self.subdir else "."
        path = self.lasting_location if inside == "." else inside
        return re.split(r"[/:]" if self.is_address else "/", path.rstrip("/"))[-1].removesuffix(".git")

    @property
    def shown(self) -> str:
        """How messages show it: without a password in the address."""
        place = "a zip archive" if self.is_zip else _PASSWORD.sub("", self.location)
        inside = self.part or self.subdir
        return f"{place} ({inside})" if inside else place

    @property
    def words(self) -> list[str]:
        """What to type after `anyplug install`, without a password in the address."""
        if self.servers:
            return ["-"]
        options = {"--ref": self.ref, "--subdir": self.subdir}
        named = [word for option, value in options.items() if value for word in (option, value)]
        return [_PASSWORD.sub("", self.location), *([self.part] if self.part else []), *named]

    @property
    def is_address(self) -> bool:
        """Whether it is the address of a git repository."""
        return self.location.startswith(SCHEMES)


class Checkout(msgspec.Struct, frozen=True):
    """Where a fetched source is; a folder is where it always was."""

    root: str  # the real path
    commit: str = ""  # empty if it did not come from git
    is_ours: bool = False  # it is in a staging folder


class Fetched(msgspec.Struct, frozen=True):
    """The contents of the staging folder."""

    folder: str
    commit: str  # empty if it did not come from git
    left_config: bool  # a config.json was left out
    left_modules: tuple[str, ...] = ()  # folders of modules that were left out


def fetch(source: Source, staging: str) -> Checkout:
    """Fetch a source if needed. Raises InstallError."""
    if source.servers:
        return Checkout(_pasted(source, staging), is_ours=True)
    if source.is_git:
        origin = os.path.join(staging, CHECKOUT)
        commit = _clone(source, origin)
        return Checkout(os.path.realpath(origin), commit, is_ours=True)
    if source.ref:
        raise InstallError(
            f"--ref is for git repositories, but {source.shown} is not one",
            "leave it out, or pass the repository's address",
        )
    if source.is_archive:
        return Checkout(_unpacked(source, staging), is_ours=True)
    return Checkout(os.path.realpath(source.lasting_location))


def inside(source: Source, checkout: Checkout, staging: str) -> str:
    """Return the folder that a source names in its checkout. Raises InstallError."""
    origin = checkout.root
    if os.path.isabs(source.subdir) or ".." in source.subdir.split("/"):
        raise _leads_out(source)
    wanted = os.path.realpath(os.path.join(origin, source.subdir))
    if not _is_within(wanted, origin):
        raise _leads_out(source)
    if not os.path.isdir(wanted) or not source.location:
        raise _no_folder(source, wanted)
    if not checkout.is_ours and _is_within(os.path.realpath(staging), wanted):
        raise InstallError(f"{source.shown} contains anyplug's own home", "pass the plugin's folder itself")
    return wanted


def _no_folder(source: Source, wanted: str) -> InstallError:
    forms = (
        "pass a folder, an archive, owner/repo, a command such as `npx -y @scope/server`, or an address that"
        f" begins with one of {', '.join(SCHEMES)}"
    )
    if source.location and os.path.isfile(wanted):
        return InstallError(f"'{source.shown}' is a file, but not an archive", forms)
    meant = wrong_folder.near(wanted) if source.location else ""
    hint = f"did you mean {meant}? Otherwise {forms}" if meant else forms
    return InstallError(f"the folder '{source.shown}' does not exist", hint)


def with_ref(source: Source, rest: str) -> Source:
    """Tell the ref and the folder apart that follow a repository in a web page's address. Raises InstallError.

    Both may contain slashes, so the repository is asked which branches and tags it has.
    """
    if not rest:
        return source
    ref, _, subdir = rest.partition("/")
    if subdir:
        listing = _git(source, "/", "ls-remote", "--heads", "--tags", "--", source.location)
        names = [line.partition("\trefs/")[2].partition("/")[2].removesuffix("^{}") for line in listing.splitlines()]
        ref = max((name for name in names if name and f"{rest}/".startswith(f"{name}/")), key=len, default=ref)
        subdir = rest.removeprefix(ref).strip("/")
    return msgspec.structs.replace(source, ref=ref, subdir=subdir)


def _pasted(source: Source, staging: str) -> str:
    """Write a pasted configuration as the folder of a plugin."""
    folder = os.path.join(staging, PASTED, source.name)
    os.makedirs(folder, 0o755)
    with open(os.path.join(folder, "mcp.json"), "wb") as file:
        file.write(msgspec.json.format(source.servers.encode(), indent=2) + b"\n")
    return os.path.realpath(folder)


def _unpacked(source: Source, staging: str) -> str:
    path = source.lasting_location
    if source.is_address:
        path = os.path.join(staging, DOWNLOAD + os.path.basename(urlsplit(path).path)[-12:])
        archive_downloads.fetch(source.location, path, source.shown)
    folder = os.path.join(staging, ARCHIVE)
    os.mkdir(folder)
    return os.path.realpath(zip_sources.unpack(path, folder))


def ignored(source: Source, origin: str, staging: str) -> frozenset[str]:
    """List what the `.gitignore` files of a folder exclude, relative to it. Raises InstallError."""
    if not os.path.exists(os.path.join(origin, ".gitignore")) or shutil.which("git") is None:
        return frozenset()
    empty = os.path.join(staging, EMPTY)
    os.mkdir(empty)
    _git(source, empty, "init", "--quiet", "--bare", "--template=", is_local=True)
    listing = _git(
        source,
        origin,
        f"--git-dir={empty}",
        f"--work-tree={origin}",
        "ls-files",
        "--others",
        "--ignored",
        "--exclude-standard",
        "--directory",
        "-z",
        is_local=True,
    )
    return frozenset(name.rstrip("/") for name in listing.split("\0") if name)


def bring(
    origin: str,
    checkout: Checkout,
    staging: str,
    left: frozenset[str] = frozenset(),
    needed: Sequence[str] = (),
    *,
    is_whole: bool = False,
) -> Fetched:
    """Copy a folder into the staging folder, without `left` except for what is `needed`; raises InstallError.

    If a file in a virtual environment or among installed modules is needed, all of that is copied. `is_whole`: so is
    everything else that its author packed.
    """
    folder = os.path.join(staging, COPY)
    try:
        tree = checkout.root if checkout.is_ours else ""
        _copy(origin, folder, left, left_behind=NEVER_TAKEN if is_whole else LEFT_BEHIND, tree=tree)
        for name in needed:
            whole = _modules_around(origin, name)
            if whole and not os.path.lexists(os.path.join(folder, whole)):
                os.makedirs(os.path.dirname(os.path.join(folder, whole)), exist_ok=True)
                _copy(os.path.join(origin, whole), os.path.join(folder, whole), frozenset(), left_behind=NEVER_TAKEN)
            elif not whole:
                _copy_one(origin, folder, name)
    except OSError as error:
        cure = "remove from it what the plugin does not need" if isinstance(error, TooMuch) else "check its permissions"
        raise InstallError(f"cannot copy {error.filename or origin}: {error.strerror}", cure) from error
    config = os.path.join(folder, CONFIG)
    left_config = not is_whole and os.path.lexists(config)
    if left_config:
        _delete(config)
    left_modules = tuple(
        name
        for name in sorted(MODULES)
        if os.path.isdir(os.path.join(origin, name)) and not os.path.lexists(os.path.join(folder, name))
    )
    return Fetched(folder, checkout.commit, left_config, left_modules)


def _clone(source: Source, target: str) -> str:
    """Clone a repository at a branch, tag or commit; return the commit. Raises InstallError."""
    if source.ref.startswith("-"):
        raise InstallError(f"'{source.ref}' is not a ref", "pass a branch, a tag or a commit")
    os.mkdir(target)
    _git(source, target, "init", "--quiet", "--template=", is_local=True)
    _git(
        source,
        target,
        "fetch",
        "--quiet",
        "--depth=1",
        "--no-tags",
        "--",
        source.lasting_location,
        source.ref or "HEAD",
        is_local=source.lasting_location.startswith(("/", "file:")),
    )
    _git(source, target, "checkout", "--quiet", "--detach", "FETCH_HEAD", is_local=True)
    return _git(source, target, "rev-parse", "HEAD", is_local=True).strip()


def _git(source: Source, folder: str, *words: str, is_local: bool = False) -> str:
    """Run git without prompts, hooks or a hang; raises InstallError.

    The user's own configuration applies only to fetching from elsewhere: for what `is_local`, it could name filters,
    hooks and monitors that a stranger's files would make git run.
    """
    environment = {
        # When git runs us, in a hook or an alias, it tells its children about its own repository.
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in GIT_KEPT},
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": PROTOCOLS,
        "GIT_LFS_SKIP_SMUDGE": "1",
        **(NO_CONFIGURATION if is_local else {}),
    }
    command = ["git", "-C", folder, *SAFELY, *words]
    try:
        # In its own session ssh finds no terminal to prompt on, and git's helpers can be killed with it.
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise InstallError("git is not installed", "install git, or install from a folder") from error
    with process:
        try:
            out, err = process.communicate(timeout=GIT_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise InstallError(
                    f"git did not finish within {GIT_S:.0f}s", "check the network, then try again"
                ) from error
            raise
    if process.returncode != 0:
        said = _PASSWORD.sub("", err.decode(errors="replace").replace("\r", "").strip())
        hint = "check the address, the ref and your access"
        if _SHORT_COMMIT.fullmatch(source.ref):
            hint = "pass the full commit, all 40 digits"
        raise InstallError(f"git could not fetch {source.shown}: {said}", hint)
    return out.decode()


def _modules_around(origin: str, name: str) -> str:
    """Return the outermost folder of modules or virtual environment that contains a file, or an empty string."""
    parts = name.split(os.sep)[:-1]
    for depth, part in enumerate(parts, 1):
        folder = os.path.join(*parts[:depth])
        if part == "node_modules" or os.path.exists(os.path.join(origin, folder, ENVIRONMENT)):
            return folder
    return ""


def _copy_one(origin: str, target: str, name: str) -> None:
    """Copy one file that a manifest names, wherever it is, unless it was copied already."""
    file, new = os.path.join(origin, name), os.path.join(target, name)
    if not os.path.isfile(file) or os.path.lexists(new):
        return
    with untrusted_files.hold(target) as into, into.make_folders(os.path.dirname(name)):
        if os.path.islink(file):
            _copy_link(file, new, origin, "")
        else:
            _copy_file(file, into, name, Budget())


def _copy(
    origin: str, target: str, left: frozenset[str], left_behind: frozenset[str] = LEFT_BEHIND, tree: str = ""
) -> None:
    """Copy a tree; links inside it stay links, and anything but files, folders and links is left out.

    `tree` is the clone that it is part of, if any.
    """
    budget = Budget()
    os.mkdir(target, 0o755)
    with untrusted_files.hold(os.path.realpath(origin)) as source, untrusted_files.hold(target) as into:
        for entry in source.walk(budget, lambda name: name.rpartition("/")[2] not in left_behind and name not in left):
            if entry.is_folder and entry.relative:
                into.make_folders(entry.relative).close()
            elif entry.is_link:
                _copy_link(os.path.join(origin, entry.relative), os.path.join(target, entry.relative), origin, tree)
            elif entry.is_file:
                untrusted_files.copy_entry(entry.folder, entry.name, into, entry.relative, budget)


def _copy_link(link: str, new: str, origin: str, tree: str) -> None:
    """Copy a link; if it leads out of the plugin, copy its target instead, if that is in the same clone.

    A source must not give away files from elsewhere on the machine. Raises InstallError if the link would be broken.
    """
    target, leads_to = os.readlink(link), os.path.realpath(link)
    if os.path.isabs(target) or _is_within(leads_to, os.path.realpath(origin)):
        os.symlink(target, new)
    elif tree and os.path.isfile(leads_to) and _is_within(leads_to, tree) and not _is_within(leads_to, f"{tree}/.git"):
        with untrusted_files.hold(os.path.dirname(new)) as into:
            _copy_file(leads_to, into, os.path.basename(new), Budget())
    else:
        raise InstallError(
            f"{os.path.relpath(link, origin)} is a link that leads outside the plugin, to {target}",
            "replace it with a copy, or install the folder that contains both",
        )


def _copy_file(path: str, into: HeldFolder, name: str, budget: Budget) -> None:
    with untrusted_files.hold(os.path.dirname(path)) as folder:
        untrusted_files.copy_entry(folder, os.path.basename(path), into, name, budget)


def _delete(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        untrusted_files.remove(path)
    else:
        os.unlink(path)


def _leads_out(source: Source) -> InstallError:
    return InstallError(f"--subdir '{source.subdir}' leads outside the source", "pass a folder inside it")


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_checkout(location: str) -> bool:
    return os.path.lexists(os.path.join(os.path.expanduser(location), ".git"))


def _is_bare_repository(location: str) -> bool:
    location = os.path.expanduser(location)
    return os.path.isfile(os.path.join(location, "HEAD")) and os.path.isdir(os.path.join(location, "objects"))
