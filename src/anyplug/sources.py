"""Where a plugin is installed from: brings a folder or a git repository into a staging folder.

Nothing of what is brought runs: no hooks, no submodules, no filters of the repository's own. `.git`, caches and
virtual environments stay behind, and so does a `config.json`: values are the person's, never an author's.
"""

import os
import shutil
import stat
import subprocess

import msgspec

from anyplug.errors import InstallError

GIT_S = 300.0  # for one git command
SCHEMES = ("https://", "http://", "git://", "ssh://", "file://", "git@")
PROTOCOLS = "https:http:git:ssh:file"
LEFT_BEHIND = frozenset({".git", "__pycache__", ".venv", "venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"})
CONFIG = "config.json"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What a person named: where, which version, which folder in it."""

    location: str
    ref: str = ""
    subdir: str = ""

    @property
    def is_git(self) -> bool:
        """Whether git has to fetch it."""
        return self.location.startswith(SCHEMES) or _is_bare_repository(self.location)


class Brought(msgspec.Struct, frozen=True):
    """What lies in the staging folder now."""

    folder: str
    commit: str  # empty if it did not come from git
    left_config: bool  # a config.json was not taken over


def bring(source: Source, staging: str) -> Brought:
    """Bring a source into an empty folder; raises InstallError."""
    if os.path.isabs(source.subdir) or ".." in source.subdir.split("/"):
        raise InstallError(f"--subdir '{source.subdir}' leads out of the source", "name a folder inside it")
    if source.is_git:
        checkout = os.path.join(staging, "checkout")
        commit = _clone(source, checkout)
        origin = checkout
    else:
        if source.ref:
            raise InstallError("--ref is for git repositories", "leave it out, or give the repository's address")
        origin, commit = source.location, ""
    wanted = os.path.join(origin, source.subdir) if source.subdir else origin
    if not os.path.isdir(wanted):
        raise InstallError(f"there is no folder {source.subdir or source.location}", "check the path or address")
    if not os.path.realpath(wanted).startswith(os.path.realpath(origin)):
        raise InstallError(f"--subdir '{source.subdir}' leads out of the source", "name a folder inside it")
    folder = os.path.join(staging, "plugin")
    try:
        _copy(os.path.realpath(wanted), folder)
    except OSError as error:
        raise InstallError(
            f"cannot copy {error.filename or wanted}: {error.strerror}", "check its permissions"
        ) from error
    config = os.path.join(folder, CONFIG)
    left = os.path.lexists(config)
    if left:
        os.unlink(config)
    return Brought(folder, commit, left)


def files_of(folder: str) -> list[str]:
    """List the files of a tree, relative to it."""
    return sorted(
        os.path.relpath(os.path.join(parent, name), folder) for parent, _, names in os.walk(folder) for name in names
    )


def _clone(source: Source, target: str) -> str:
    """Clone a repository at a branch, tag or commit; give the commit. Raises InstallError."""
    if source.ref.startswith("-"):
        raise InstallError(f"'{source.ref}' is not a ref", "give a branch, a tag or a commit")
    location = source.location
    if not location.startswith(SCHEMES):
        location = os.path.abspath(location)
    os.mkdir(target)
    _git(target, "init", "--quiet", "--template=")
    _git(target, "fetch", "--quiet", "--depth=1", "--no-tags", "--", location, source.ref or "HEAD", what=location)
    _git(target, "checkout", "--quiet", "--detach", "FETCH_HEAD")
    return _git(target, "rev-parse", "HEAD").strip()


def _git(folder: str, *words: str, what: str = "") -> str:
    """Run git so that it asks nothing, runs nothing and ends; raises InstallError."""
    environment = {
        **os.environ,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": PROTOCOLS,
        "GIT_LFS_SKIP_SMUDGE": "1",
    }
    command = ["git", "-C", folder, "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*", *words]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=GIT_S, check=False
        )
    except FileNotFoundError as error:
        raise InstallError("git is not installed", "install git, or install from a folder") from error
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"git did not finish within {GIT_S:.0f}s", "check the network, then try again") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise InstallError(
            f"git could not fetch {what or 'the repository'}: {said}", "check the address, the ref and your access"
        )
    return done.stdout.decode()


def _copy(origin: str, target: str) -> None:
    """Copy a tree; links stay links, and what is neither file, folder nor link stays behind."""
    os.mkdir(target, 0o755)
    with os.scandir(origin) as entries:
        for entry in entries:
            new = os.path.join(target, entry.name)
            mode = entry.stat(follow_symlinks=False).st_mode
            if entry.name in LEFT_BEHIND:
                continue
            if stat.S_ISLNK(mode):
                os.symlink(os.readlink(entry.path), new)
            elif stat.S_ISDIR(mode):
                _copy(entry.path, new)
            elif stat.S_ISREG(mode):
                shutil.copy2(entry.path, new)


def _is_bare_repository(location: str) -> bool:
    return os.path.isfile(os.path.join(location, "HEAD")) and os.path.isdir(os.path.join(location, "objects"))
