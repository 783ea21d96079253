"""Policies that the fleet's admin distributes: each member keeps them beside its own, in `<home>/policy/fleet`.

They stay there while the member is cut off, and only ones that the admin signed later replace them: a message of the
admin stays signed, and NATS, or a backup of its store, may deliver an older one again. Every record of a member says by
their version which ones decided.
"""

import hashlib
import os
from contextlib import suppress

from anyplug import rego
from anyplug.fleet.messages import Policies
from anyplug.fleet.nats_link import FleetError
from anyplug.home.location import make_private
from anyplug.model.errors import ConfigError
from anyplug.policy.paths import HOME_FOLDER

FOLDER = "fleet"  # in the folder of the user's own policies
VERSION = "version"
SIGNED = "signed"  # by whom, and the number of that decision
SUFFIX = ".rego"
LARGEST = 512 << 10  # bytes of all of them
VERSION_LETTERS = 12


def read(folder: str) -> Policies:
    """Read the policies in a folder, to publish them. Raises ConfigError if they do not compile."""
    files: dict[str, str] = {}
    try:
        for above, _, names in os.walk(folder):
            for name in names:
                if name.endswith(SUFFIX):
                    path = os.path.join(above, name)
                    with open(path, encoding="utf-8") as file:
                        files[os.path.relpath(path, folder)] = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the policies in {folder} cannot be read: {error}", "check the files") from error
    if not files:
        raise ConfigError(f"there are no policies in {folder}", f"put files into it that end with {SUFFIX}")
    if sum(map(len, files.values())) > LARGEST:
        raise ConfigError(f"the policies in {folder} have more than {LARGEST >> 10} KiB", "publish less of them")
    try:
        rego.compile(files)
    except rego.RegoErrors as error:
        raise ConfigError(
            f"the policies in {folder} do not compile: {error}", "`anyplug policy validate` helps"
        ) from error
    return Policies(serial=0, version=_version(files), files=files)


def _version(files: dict[str, str]) -> str:
    whole = hashlib.sha256()
    for name, text in sorted(files.items()):
        whole.update(f"{name}\0{hashlib.sha256(text.encode()).hexdigest()}\n".encode())
    return whole.hexdigest()[:VERSION_LETTERS]


def kept(home: str) -> str:
    """Return the version of the policies that a member keeps; empty if it keeps none."""
    return _noted(home, VERSION)


def _noted(home: str, name: str) -> str:
    try:
        with open(os.path.join(home, HOME_FOLDER, FOLDER, name), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def keep(home: str, policies: Policies, admin: str) -> None:
    """Put policies of an admin in place of the ones that a member keeps; return if it keeps them already. Blocks.

    Raises FleetError if they cannot be written, or if that admin signed them before the ones that are kept.
    """
    signer, _, number = _noted(home, SIGNED).partition(" ")
    known = int(number) if signer == admin and number.isdecimal() else 0
    version = kept(home)
    if policies.serial < known:
        raise FleetError(
            f"the policies that NATS delivers, version {policies.version}, are older than version {version}, which "
            "the fleet's admin signed later and which still applies here: NATS repeats an old message, or its store "
            "was restored from an old backup",
            "the admin publishes the current ones again: `anyplug fleet policy DIR`",
        )
    if (version, known) == (policies.version, policies.serial):
        return
    try:
        _replace(os.path.join(home, HOME_FOLDER, FOLDER), policies, f"{admin} {policies.serial}")
    except OSError as error:
        why = f"the fleet's policies cannot be kept: {error.strerror}: {error.filename}"
        raise FleetError(why, "check the disk's free space, and the permissions of the folder") from error


def _replace(folder: str, policies: Policies, signed: str) -> None:
    # File by file, so that there is no moment without policies.
    present = {
        os.path.relpath(os.path.join(above, name), folder) for above, _, names in os.walk(folder) for name in names
    }
    # The number first, so that older ones cannot come back, and the version last, since it says that all are there.
    for name, text in {SIGNED: signed, **policies.files, VERSION: policies.version}.items():
        path = os.path.normpath(os.path.join(folder, name))
        if not path.startswith(f"{folder}/"):
            continue
        make_private(os.path.dirname(path))
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{path}.new", path)
    for name in present - {*policies.files, SIGNED, VERSION}:
        with suppress(OSError):
            os.unlink(os.path.join(folder, name))
